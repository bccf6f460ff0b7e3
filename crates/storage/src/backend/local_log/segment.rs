//! A segment's file: made ahead, stored to through a mapping or by `pwrite`, synced.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tombolo_env::{Env, File, Mapping};
use tombolo_format::log_frame::SEGMENT_HEADER_BYTES;

use super::Form;
use crate::backend::local::reserve::leaves_room;

/// Where a segment's frames begin.
pub(super) const FIRST_BYTE: u32 = 4096;
const _: () = assert!(FIRST_BYTE as usize == SEGMENT_HEADER_BYTES);

/// Files are zeroed in pieces of this size: larger ones make large folios in the page cache, and a
/// store through the mapping dirties a whole folio. A durable append of 512 bytes then writes to
/// the device: 4 to 8 KiB with pieces of 4 KiB, 20 KiB with 16 KiB, 1 MiB with 1 MiB.
const ZERO_BYTES: usize = 4 << 10;

/// Pages are let go of before a sync in pieces of this size: for less, as with a sync for each
/// entry, it is not worth a call of the kernel.
const LET_GO_BYTES_MIN: u32 = 64 << 10;

/// How a new segment comes by its blocks. Either way it reads as zeros, and the disk's space is
/// taken when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Every block is written once. Then a sync of later writes to them changes no metadata: for
    /// writes that are synced.
    Zeroed,
    /// The blocks are only taken (`fallocate`), and each is written when a frame comes. The first
    /// sync of each changes metadata.
    Reserved,
}

/// How a new segment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Making {
    pub(super) blocks: Blocks,
    /// Its pages are brought into the mapping: for frames that are stored there.
    pub(super) is_populated: bool,
}

impl Making {
    /// Of a segment that takes small frames, of which somebody may wait for each.
    pub(super) const SMALL: Making = Making { blocks: Blocks::Zeroed, is_populated: true };
}

/// How bytes are stored in a segment that is mapped; both show the same bytes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Through the mapping: no call of the kernel, but the first store to a page after its sync is
    /// a page fault, and the page's next sync interrupts the other processors.
    Mapped,
    /// By `pwrite`: a call, and neither of these. For frames from half a page on, of which
    /// few share a page: a fault costs several calls.
    Written,
}

/// Name of a segment's file.
pub(super) fn segment_name(number: u32) -> String {
    format!("{number:08x}")
}

/// The number that a file's name stands for.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    let proper =
        name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if proper { u32::from_str_radix(name, 16).ok() } else { None }
}

/// Whether an error says that there is no room, which zeroing would not find either.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// An open segment. The descriptor stays open until it is retired, so that an error of a writeback
/// is not forgotten with it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    /// Bytes of the file, header page included.
    pub(super) capacity: u32,
    pub(super) path: PathBuf,
    file: Arc<dyn File>,
    /// In mapped form.
    mapping: Option<Arc<dyn Mapping>>,
    /// The byte up to which pages of the mapping were let go.
    gone_to: AtomicU32,
}

impl Segment {
    /// Makes a segment that reads as zeros, durably with its name. On an error nothing of it is
    /// left. `StorageFull` already where flush and compaction, which free segments, would find no
    /// room.
    pub(super) fn create(
        env: &Env,
        directory: &Path,
        number: u32,
        capacity: u32,
        making: Making,
        form: Form,
    ) -> io::Result<Segment> {
        if !leaves_room(env, directory, u64::from(capacity)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let path = directory.join(segment_name(number));
        let file = env.files().create_new(&path)?;
        let made = Segment::take_blocks(&*file, capacity, making.blocks)
            .and_then(|()| file.sync_data())
            .and_then(|()| env.files().sync_directory(directory))
            .and_then(|()| Segment::map(&*file, capacity, making.is_populated, form));
        match made {
            Ok(mapping) => {
                Ok(Segment { number, capacity, path, file, mapping, gone_to: AtomicU32::new(FIRST_BYTE) })
            }
            Err(error) => {
                // Best effort: what stays behind is not begun, and goes with the log.
                let _ = env.files().remove_file(&path);
                Err(error)
            }
        }
    }

    /// Where the file system cannot take blocks without writing them they are zeroed, whatever was
    /// asked for.
    fn take_blocks(file: &dyn File, capacity: u32, blocks: Blocks) -> io::Result<()> {
        if blocks == Blocks::Reserved {
            match file.allocate(u64::from(capacity)) {
                Err(error) if !is_full(&error) && !tombolo_env::simulated::is_crash(&error) => {
                    tracing::debug!(%error, "blocks of a log segment cannot be taken without writing them");
                }
                taken => return taken,
            }
        }
        let zeros = [0; ZERO_BYTES];
        let mut at = 0;
        while at < u64::from(capacity) {
            let piece = usize::try_from(u64::from(capacity) - at).unwrap_or(ZERO_BYTES).min(ZERO_BYTES);
            file.write_all_at(&zeros[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
    }

    fn map(
        file: &dyn File,
        capacity: u32,
        is_populated: bool,
        form: Form,
    ) -> io::Result<Option<Arc<dyn Mapping>>> {
        if form == Form::Written {
            return Ok(None);
        }
        let mapping = file.map(capacity as usize)?;
        if is_populated {
            mapping.populate(0, capacity as usize)?;
        }
        Ok(Some(mapping))
    }

    /// The same file under another number, for use again by the same epoch. Durable with its name.
    pub(super) fn recycle(&self, env: &Env, directory: &Path, number: u32) -> io::Result<Segment> {
        let path = directory.join(segment_name(number));
        env.files().rename(&self.path, &path)?;
        env.files().sync_directory(directory)?;
        let (file, mapping) = (Arc::clone(&self.file), self.mapping.clone());
        Ok(Segment {
            number,
            capacity: self.capacity,
            path,
            file,
            mapping,
            gone_to: AtomicU32::new(FIRST_BYTE),
        })
    }

    /// Stores bytes: a memory copy, or one `pwrite`. After an error any part of them may be there.
    #[inline]
    pub(super) fn store(&self, byte: u32, bytes: &[u8], how: Store) -> io::Result<()> {
        match &self.mapping {
            Some(mapping) if how == Store::Mapped => {
                mapping.write(byte as usize, bytes);
                Ok(())
            }
            _ => self.file.write_all_at(bytes, u64::from(byte)),
        }
    }

    /// Makes everything stored so far durable, of which nothing before `end` will be stored to
    /// again. For one caller at a time.
    pub(super) fn sync_to(&self, end: u32) -> io::Result<()> {
        if let Some(mapping) = &self.mapping {
            let from = self.gone_to.load(Ordering::Relaxed);
            if end.saturating_sub(from) >= LET_GO_BYTES_MIN {
                // The page in which the next frame begins is stored to at once.
                let to = end - end % LET_GO_BYTES_MIN;
                mapping.let_go(from as usize, (to - from) as usize);
                self.gone_to.store(to, Ordering::Relaxed);
            }
        }
        self.sync()
    }

    /// Makes everything stored so far durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
