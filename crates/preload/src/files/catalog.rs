//! Names: which file each path leads to, and what becomes of a file that loses its last one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo::{Batch, Error, ErrorKind, Keyspace, Op, Result};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::file::File;
use super::image::Image;
use super::rows::{self, FileId, PATH_BYTES_MAX};
use super::{DELETES_MAX, Files, Memory};

/// All names, and the next number for a file.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    names: BTreeMap<Vec<u8>, Arc<File>>,
    /// Above every id with rows, so that a new file finds none.
    next: u64,
}

/// How a file is opened, as `open(2)` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Makes the file when there is none.
    pub create: bool,
    /// With `create`: there must be none.
    pub exclusive: bool,
}

impl Catalog {
    pub(super) async fn load(names: &Keyspace, memory: &Arc<Memory>) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        let mut cursor = names.cursor::<&[u8]>(..);
        while cursor.next_async().await? {
            let id = rows::name_id(cursor.key(), cursor.value())?;
            catalog.next = catalog.next.max(id.0.saturating_add(1));
            catalog.names.insert(cursor.key().to_vec(), Arc::new(File::new(id, None, memory)));
        }
        Ok(catalog)
    }

    fn get(&self, path: &[u8]) -> Result<&Arc<File>> {
        self.names.get(path).ok_or_else(|| not_found(path))
    }
}

fn not_found(path: &[u8]) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no file {}", path.escape_ascii()))
}

impl Files {
    /// Opens the file at `path`: reads its content unless it is in memory, one scan.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` against `how`; `Invalid` for a path that is empty or too long;
    /// `OutOfSpace` when it does not fit into the memory of images; `Corrupt` and others of the
    /// database.
    pub async fn open(&self, path: &[u8], how: OpenHow) -> Result<Arc<File>> {
        if path.is_empty() || path.len() > PATH_BYTES_MAX {
            return Err(Error::new(ErrorKind::Invalid, "a path that is empty or too long")
                .found(format!("{} bytes", path.len())));
        }
        loop {
            let (file, op) = self.begin_open(path, how)?;
            if let Some(op) = op {
                // The name is there already.
                self.noted(op.await)?;
            }
            if let Some(file) = self.load(file).await? {
                return Ok(file);
            }
        }
    }

    pub(super) fn begin_open(&self, path: &[u8], how: OpenHow) -> Result<(Arc<File>, Option<Op<()>>)> {
        let mut catalog = self.catalog.lock();
        match catalog.get(path) {
            Ok(_) if how.create && how.exclusive => {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    format!("the file {} exists", path.escape_ascii()),
                ));
            }
            Ok(file) => return Ok((Arc::clone(file), None)),
            Err(error) if !how.create => return Err(error),
            Err(_) => {}
        }
        let id = FileId(catalog.next);
        let mut batch = Batch::new();
        batch.put(&self.names, path, rows::name_value(id));
        let op = self.begin(batch)?;
        catalog.next += 1;
        let file = Arc::new(File::new(id, Some(Image::default()), &self.memory));
        catalog.names.insert(path.to_vec(), Arc::clone(&file));
        Ok((file, Some(op)))
    }

    /// Reads what the database holds of a file. Several may do so at once; nothing is written
    /// before one of them has. `None` when the file has lost its name meanwhile, and its rows may
    /// have gone while they were read: nobody has seen it, and the path leads elsewhere.
    pub(super) async fn load(&self, file: Arc<File>) -> Result<Option<Arc<File>>> {
        if file.state.read().image.is_some() {
            return Ok(Some(file));
        }
        let mut image = Image::default();
        let mut cursor = self.extents.cursor(prefix(file.id));
        while cursor.next_async().await? {
            image.load(file.id, cursor.key(), cursor.value())?;
            if self.memory.check(image.memory_bytes()).is_err() {
                self.forget_closed();
                self.memory.check(image.memory_bytes())?;
            }
        }
        let mut state = file.state.write();
        if state.image.is_none() {
            if !state.named {
                return Ok(None);
            }
            self.memory.count(0, image.memory_bytes());
            state.image = Some(image);
        }
        drop(state);
        Ok(Some(file))
    }

    /// Drops the images of files that nobody has open: the database has what they hold. Not while
    /// batches are on their way to it.
    pub(super) fn forget_closed(&self) {
        let catalog = self.catalog.lock();
        // The thread that waits for a batch has taken it out of `pending`. To the end none may come
        // to them: the file of one may be closed by then.
        let Some(_turn) = self.settling.try_lock() else { return };
        let pending = self.pending.lock();
        if !pending.is_empty() {
            return;
        }
        for file in catalog.names.values().filter(|file| Arc::strong_count(file) == 1) {
            let forgotten = file.state.write().image.take();
            self.memory.count(forgotten.map_or(0, |image| image.memory_bytes()), 0);
        }
    }

    /// The size of the file at `path`: reads it when it is not in memory.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub async fn size_of(&self, path: &[u8]) -> Result<u64> {
        self.open(path, OpenHow::default()).await?.size()
    }

    /// Whether there is a file at `path`.
    pub fn exists(&self, path: &[u8]) -> bool {
        self.catalog.lock().names.contains_key(path)
    }

    /// All paths, sorted.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        self.catalog.lock().names.keys().cloned().collect()
    }

    /// Whether a path begins with `directory`, which ends with a slash.
    pub fn has_paths_below(&self, directory: &[u8]) -> bool {
        self.has_path_below(directory, |_| true)
    }

    /// Whether a path is `directory`, which ends with a slash, and one component.
    pub fn has_paths_in(&self, directory: &[u8]) -> bool {
        self.has_path_below(directory, |below| !below.contains(&b'/'))
    }

    fn has_path_below(&self, directory: &[u8], is_one: impl Fn(&[u8]) -> bool) -> bool {
        let catalog = self.catalog.lock();
        let mut below =
            catalog.names.range(directory.to_vec()..).map_while(|(path, _)| path.strip_prefix(directory));
        below.any(is_one)
    }

    /// Takes the name `path` from its file. Who has it open goes on with it, in memory; its rows go
    /// with the name, or are deleted by and by when they are many: call [`Files::delete_leftovers`]
    /// once the operation has ended.
    ///
    /// # Errors
    /// `NotFound`; `Fenced` and others of the database: nothing was changed.
    pub fn begin_unlink(&self, path: &[u8]) -> Result<Op<()>> {
        let mut catalog = self.catalog.lock();
        let file = Arc::clone(catalog.get(path)?);
        let mut batch = Batch::new();
        batch.delete(&self.names, path);
        let op = self.begin_without(batch, &file)?;
        catalog.names.remove(path);
        Ok(op)
    }

    /// Gives the file at `from` the name `to`, and takes it from the file that had it: one batch,
    /// whole or absent.
    ///
    /// # Errors
    /// As [`Files::begin_unlink`]; `Invalid` for a path that is empty or too long.
    pub fn begin_rename(&self, from: &[u8], to: &[u8]) -> Result<Op<()>> {
        if to.is_empty() || to.len() > PATH_BYTES_MAX {
            return Err(Error::new(ErrorKind::Invalid, "a path that is empty or too long")
                .found(format!("{} bytes", to.len())));
        }
        let mut catalog = self.catalog.lock();
        let file = Arc::clone(catalog.get(from)?);
        if from == to {
            return self.check().map(|()| Op::ready(Ok(())));
        }
        let mut batch = Batch::new();
        batch.put(&self.names, to, rows::name_value(file.id));
        if is_enabled(Mutant::FilesRenameInTwoBatches) {
            drop(self.begin(std::mem::take(&mut batch))?);
        }
        batch.delete(&self.names, from);
        let op = match catalog.names.get(to) {
            Some(replaced) => self.begin_without(batch, &Arc::clone(replaced))?,
            None => self.begin(batch)?,
        };
        catalog.names.remove(from);
        catalog.names.insert(to.to_vec(), file);
        Ok(op)
    }

    /// Begins `batch`, which takes the last name from `file`, with the deletion of its rows, or the
    /// note that they are to be deleted.
    fn begin_without(&self, mut batch: Batch, file: &File) -> Result<Op<()>> {
        let mut state = file.state.write();
        match &state.image {
            _ if is_enabled(Mutant::FilesUnlinkKeepsRows) => {}
            Some(image) if image.extents_count() < DELETES_MAX => {
                image.extents().for_each(|offset| {
                    batch.delete(&self.extents, rows::extent_key(file.id, offset));
                });
                batch.delete(&self.extents, rows::size_key(file.id));
            }
            _ => {
                batch.put(&self.unlinked, rows::id_key(file.id), []);
                self.has_leftovers.store(true, Ordering::Relaxed);
            }
        }
        let op = self.begin(batch)?;
        state.named = false;
        Ok(op)
    }

    /// Deletes the rows of files without a name, in batches. Costs nothing when there are none.
    ///
    /// # Errors
    /// Those of the database: call it again.
    pub async fn delete_leftovers(&self) -> Result<()> {
        if !self.has_leftovers.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let deleted = self.delete_all_leftovers().await;
        if deleted.is_err() {
            self.has_leftovers.store(true, Ordering::Relaxed);
        }
        deleted
    }

    async fn delete_all_leftovers(&self) -> Result<()> {
        let mut leftovers = self.unlinked.cursor::<&[u8]>(..);
        while leftovers.next_async().await? {
            let id = rows::key_id(leftovers.key())?;
            {
                let mut catalog = self.catalog.lock();
                catalog.next = catalog.next.max(id.0.saturating_add(1));
            }
            let mut cursor = self.extents.cursor(prefix(id));
            loop {
                let mut batch = Batch::new();
                let mut is_last = false;
                while batch.len() < DELETES_MAX && !is_last {
                    match cursor.next_async().await? {
                        true => _ = batch.delete(&self.extents, cursor.key()),
                        false => is_last = true,
                    }
                }
                if is_last {
                    batch.delete(&self.unlinked, rows::id_key(id));
                }
                self.begin(batch)?.await?;
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// All rows of a file.
fn prefix(id: FileId) -> std::ops::RangeInclusive<[u8; 16]> {
    rows::extent_key(id, 0)..=rows::size_key(id)
}
