//! One file: reading, writing, its size. Every change is begun under the file's lock, and waited
//! for outside it.

use std::sync::Arc;

use parking_lot::RwLock;
use tombolo::{Batch, Error, ErrorKind, Op, Result};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::image::{Change, Image};
use super::rows::{FILE_BYTES_MAX, FileId};
use super::{DELETES_MAX, Files, Memory, WRITE_BYTES_MAX};

/// A file of [`Files`], opened or not. It outlives its name: a file that is unlinked while it is
/// open stays in memory until the last handle goes.
#[derive(Debug)]
pub struct File {
    pub(super) id: FileId,
    pub(super) state: RwLock<State>,
    memory: Arc<Memory>,
}

impl Drop for File {
    fn drop(&mut self) {
        let image = self.state.get_mut().image.take();
        self.memory.count(image.map_or(0, |image| image.memory_bytes()), 0);
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// `None` until it is opened.
    pub(super) image: Option<Image>,
    /// Whether the database names it; what it does not is written in memory only.
    pub(super) named: bool,
    /// Raised by every change of what it holds.
    changes: u64,
}

impl File {
    pub(super) fn new(id: FileId, image: Option<Image>, memory: &Arc<Memory>) -> File {
        File { id, state: RwLock::new(State { image, named: true, changes: 0 }), memory: Arc::clone(memory) }
    }

    /// Copies what it holds at `offset` into `buffer`, and says how much; less than the buffer's
    /// length at the file's end only.
    ///
    /// # Errors
    /// `Bug` when it was never opened.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.state.read().image.as_ref().map(|image| image.read(offset, buffer)).ok_or_else(unopened)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// `Bug` when it was never opened.
    pub fn size(&self) -> Result<u64> {
        self.state.read().image.as_ref().map(Image::size).ok_or_else(unopened)
    }

    /// Whether a name leads to it.
    pub fn is_named(&self) -> bool {
        self.state.read().named
    }

    /// How often what it holds was changed since it was opened.
    pub fn changes(&self) -> u64 {
        self.state.read().changes
    }

    /// What tells it from other files of the database.
    pub fn id(&self) -> u64 {
        self.id.0
    }
}

fn unopened() -> Error {
    Error::new(ErrorKind::Bug, "a file was used before it was opened")
}

fn too_large(offset: u64, length: usize) -> Error {
    Error::new(ErrorKind::Invalid, format!("{length} bytes at {offset} are beyond the largest file"))
}

/// Where a write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At this offset.
    Offset(u64),
    /// At the file's end as it is then.
    End,
}

impl Files {
    /// Writes at most [`WRITE_BYTES_MAX`] of `data`, whole or not at all: says where it began, how
    /// much it took, and the operation that [`Files::settle`] ends. One log append of these bytes,
    /// in the order of the calls.
    ///
    /// # Errors
    /// `OutOfSpace` beyond the memory that images may take; `Invalid` beyond the largest file;
    /// `Fenced` and others of the database. The file is then as it was.
    pub fn begin_write(&self, file: &File, at: At, data: &[u8]) -> Result<(u64, usize, Op<()>)> {
        let data = &data[..data.len().min(WRITE_BYTES_MAX)];
        if self.memory.check(data.len() as u64).is_err() {
            self.forget_closed();
        }
        let mut state = file.state.write();
        let State { image, named, changes } = &mut *state;
        let image = image.as_mut().ok_or_else(unopened)?;
        let offset = match at {
            At::Offset(offset) => offset,
            At::End => image.size(),
        };
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX)
            .ok_or_else(|| too_large(offset, data.len()))?;
        if data.is_empty() {
            return Ok((offset, 0, Op::ready(self.check())));
        }
        self.memory.check(end.saturating_sub(image.size()).min(data.len() as u64))?;
        let plan = image.plan_write(offset, data);
        let op = self.change(file.id, image, *named, &plan)?;
        *changes += 1;
        let merge = image.plan_merge(end);
        if !merge.is_empty() {
            // The write itself was taken. What merges it with others may wait behind it; refused,
            // it is tried again with a later write.
            if let Ok(merged) = self.change(file.id, image, *named, &merge) {
                image.merged(&merge);
                drop(state);
                self.settle(op)?;
                return Ok((offset, data.len(), merged));
            }
        }
        Ok((offset, data.len(), op))
    }

    /// Writes all of `data`, and waits until it was taken.
    ///
    /// # Errors
    /// As [`Files::begin_write`]; what was written before the error stays.
    pub fn write(&self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let (_, written, op) =
                self.begun(|| self.begin_write(file, At::Offset(offset + done as u64), &data[done..]))?;
            self.settle(op)?;
            done += written;
        }
        Ok(())
    }

    /// Gives the file the size `size`: cuts it, or adds zeros. One batch, several where more than
    /// some ten thousand extents are cut off.
    ///
    /// # Errors
    /// As [`Files::begin_write`].
    pub fn truncate(&self, file: &File, size: u64) -> Result<()> {
        loop {
            let (op, is_done) = self.begun(|| self.begin_truncate(file, size))?;
            self.settle(op)?;
            if is_done {
                return Ok(());
            }
        }
    }

    /// One step of [`Files::truncate`], and whether it is the last: the file has the size then, and
    /// what others write to it after that is not to be cut off.
    ///
    /// # Errors
    /// As [`Files::begin_write`].
    pub fn begin_truncate(&self, file: &File, size: u64) -> Result<(Op<()>, bool)> {
        self.begin_resize(file, size, |_| true)
    }

    /// Makes the file at least `size` bytes long. One batch at most.
    ///
    /// # Errors
    /// As [`Files::begin_write`].
    pub fn extend(&self, file: &File, size: u64) -> Result<()> {
        let (op, _) = self.begun(|| self.begin_resize(file, size, |present| present < size))?;
        self.settle(op)
    }

    /// Asks `is_wanted` about the present size under the file's lock.
    fn begin_resize(
        &self,
        file: &File,
        size: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<(Op<()>, bool)> {
        if size > FILE_BYTES_MAX {
            return Err(too_large(size, 0));
        }
        let mut state = file.state.write();
        let State { image, named, changes } = &mut *state;
        let image = image.as_mut().ok_or_else(unopened)?;
        if image.size() == size || !is_wanted(image.size()) {
            return self.check().map(|()| (Op::ready(Ok(())), true));
        }
        let plan = image.plan_truncate(size, DELETES_MAX);
        let op = self.change(file.id, image, *named, &plan)?;
        *changes += 1;
        Ok((op, image.size() == size))
    }

    /// Begins the batch of a plan, and applies it to the image once it was not refused.
    fn change(&self, id: FileId, image: &mut Image, named: bool, plan: &[Change<'_>]) -> Result<Op<()>> {
        let op = if named {
            let mut batch = Batch::new();
            self.add(&mut batch, id, plan);
            match self.begin(batch) {
                Err(_) if is_enabled(Mutant::FilesShowRefused) => Op::ready(Ok(())),
                begun => begun?,
            }
        } else {
            Op::ready(Ok(()))
        };
        let before = image.memory_bytes();
        image.apply(plan);
        self.memory.count(before, image.memory_bytes());
        Ok(op)
    }
}

#[cfg(test)]
impl Files {
    /// How many rows the database has for a file.
    pub(super) fn rows_of(&self, file: &File) -> usize {
        self.extents.prefix(super::rows::id_key(file.id)).count()
    }
}
