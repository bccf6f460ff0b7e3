//! Files in a database: what a process would keep on a disk, in the fenced log and the tables of a
//! [`Db`].
//!
//! Each open file is an [`image`] in memory and [`rows`] in the database. Everything that changes a
//! file is one batch, accepted in the order of the calls; [`Files::sync`] makes durable whatever
//! came before it. So what a crash or takeover leaves is the state after some prefix of all that
//! was done to all files, and never shorter than the last sync: more than a file system promises. A
//! write is whole or absent up to [`WRITE_BYTES_MAX`]; renaming and unlinking are whole.
//!
//! Invariants:
//! 1. Rows change in the order in which images do: both happen under the lock of the file, of the
//!    catalog where names change.
//! 2. An image is never ahead of a batch that was refused; when a batch fails that was taken
//!    already, all files are finished for writing.
//! 3. Locks are taken in the order catalog, `pending`, file, and nobody waits for the database
//!    under either.
//!
//! Thread safety: everything may be called from any thread. One process at a time: opening the
//! database elsewhere fences this one, and its next call fails with `Fenced`.

mod catalog;
mod file;
pub mod image;
pub mod rows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo::{Batch, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Op, Result};

use catalog::Catalog;
pub use catalog::OpenHow;
pub use file::{At, File};
use image::Change;
use rows::FileId;

/// Most bytes that one write makes whole or absent: a longer one takes effect in parts, from front
/// to back.
pub const WRITE_BYTES_MAX: usize = 8 << 20;
/// Most rows that one batch deletes: what has more is deleted in several.
const DELETES_MAX: usize = 16 << 10;
/// Writes that may be on their way before the next one waits for the oldest of them.
const PENDING_MAX: usize = 64;

/// How often room is waited for before `Busy` is an error: more often than a line of writes is
/// long.
const BUSY_TRIES_MAX: usize = 1000;

/// The files of a database. See the module's documentation.
#[derive(Debug)]
pub struct Files {
    db: Db,
    names: Keyspace,
    extents: Keyspace,
    unlinked: Keyspace,
    catalog: Mutex<Catalog>,
    /// Batches that were taken and not yet accepted, oldest first.
    pending: Mutex<VecDeque<Op<()>>>,
    /// Held while waiting for one of them, so that a sync misses none that another waits for.
    settling: Mutex<()>,
    failure: Mutex<Option<Error>>,
    memory: Arc<Memory>,
    /// Whether `unlinked` may have rows.
    has_leftovers: AtomicBool,
}

/// What images take together, and may take.
#[derive(Debug)]
struct Memory {
    used_bytes: AtomicU64,
    bytes_max: u64,
}

impl Files {
    /// Takes over the files that `db` holds, whose images may take `image_bytes_max` together.
    /// Reads all names, and deletes what was unlinked when the process before ended; contents are
    /// read when a file is opened.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for rows that this library does not write; those of the database.
    pub async fn mount(db: Db, image_bytes_max: u64) -> Result<Files> {
        let names = keyspace(&db, rows::NAMES).await?;
        let extents = keyspace(&db, rows::EXTENTS).await?;
        let unlinked = keyspace(&db, rows::UNLINKED).await?;
        let memory = Arc::new(Memory { used_bytes: AtomicU64::new(0), bytes_max: image_bytes_max });
        let catalog = Mutex::new(Catalog::load(&names, &memory).await?);
        let (pending, settling, failure) = (Mutex::default(), Mutex::default(), Mutex::default());
        let has_leftovers = AtomicBool::new(true);
        let files = Files {
            db,
            names,
            extents,
            unlinked,
            catalog,
            pending,
            settling,
            failure,
            memory,
            has_leftovers,
        };
        files.delete_leftovers().await?;
        Ok(files)
    }

    /// Makes durable everything that was done to any file before the call. One sync of the log,
    /// which callers at the same time share.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over; `OutcomeUnknown` and others of the log. After
    /// any of them all files are finished. `Busy` when there is no room in the database for long:
    /// then they are not.
    pub fn sync(&self) -> Result<()> {
        self.check()?;
        {
            let _turn = self.settling.lock();
            while let Some(op) = self.take_oldest(0) {
                self.noted(op.wait())?;
            }
        }
        // Another call may have waited for one of them, and noted its failure meanwhile.
        self.check()?;
        for _ in 0..BUSY_TRIES_MAX {
            match self.db.sync().wait() {
                // It says that there is no room now, not that something was lost.
                Err(error) if error.kind() == ErrorKind::Busy => self.db.flush().wait()?,
                synced => return self.noted(synced),
            }
        }
        Err(Error::new(ErrorKind::Busy, "there is no room in the database for a sync").advice("sync again"))
    }

    /// Waits for what a call has begun, as far as it must: until it was taken, or for the oldest of
    /// many.
    ///
    /// # Errors
    /// Those of the write, or of one before it: all files are finished then.
    pub fn settle(&self, op: Op<()>) -> Result<()> {
        let op = match op.try_take() {
            Ok(result) => return self.noted(result),
            Err(op) => op,
        };
        let waiting = {
            let mut pending = self.pending.lock();
            pending.push_back(op);
            pending.len()
        };
        if waiting <= PENDING_MAX {
            return Ok(());
        }
        let _turn = self.settling.lock();
        self.take_oldest(PENDING_MAX).map_or(Ok(()), |op| self.noted(op.wait()))
    }

    /// Begins something, and again whenever there is no room for it as long as others are on their
    /// way: the database's flushes make room, in the order of the calls.
    ///
    /// # Errors
    /// Those of `begin`; `Busy` when there is no room although nothing is on its way.
    pub fn begun<T>(&self, begin: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..BUSY_TRIES_MAX {
            match begin() {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                // The memory of closed files can be had once nothing is on its way.
                Err(error) if error.kind() == ErrorKind::OutOfSpace && self.is_any_pending() => {}
                begun => return begun,
            }
            let _turn = self.settling.lock();
            match self.take_oldest(0) {
                Some(op) => self.noted(op.wait())?,
                None => self.db.flush().wait()?,
            }
        }
        begin()
    }

    /// Whether batches are on their way, one that another call waits for among them.
    fn is_any_pending(&self) -> bool {
        self.settling.is_locked() || !self.pending.lock().is_empty()
    }

    /// The oldest batch on its way, when there are more than `kept`.
    fn take_oldest(&self, kept: usize) -> Option<Op<()>> {
        let mut pending = self.pending.lock();
        if pending.len() > kept { pending.pop_front() } else { None }
    }

    /// Why the files are finished for writing, if they are.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone().or_else(|| self.db.failure())
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Bytes that images take.
    pub fn image_bytes(&self) -> u64 {
        self.memory.used_bytes.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// A failed write was applied to its image already: nothing is shown or written any more that
    /// the database does not hold.
    fn noted(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.failure.lock().get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Begins a batch of rows; nothing is applied to an image when it is refused at once.
    fn begin(&self, batch: Batch) -> Result<Op<()>> {
        self.check()?;
        let op = self.db.write_with(batch, Durability::Accepted);
        match op.try_take() {
            Ok(result) => result.map(|()| Op::ready(Ok(()))),
            Err(op) => Ok(op),
        }
    }

    fn add(&self, batch: &mut Batch, id: FileId, plan: &[Change<'_>]) {
        for change in plan {
            match change {
                Change::Put(offset, bytes) => batch.put(&self.extents, rows::extent_key(id, *offset), bytes),
                Change::Delete(offset) => batch.delete(&self.extents, rows::extent_key(id, *offset)),
                Change::Size(size) => batch.put(&self.extents, rows::size_key(id), size.to_le_bytes()),
            };
        }
    }
}

impl Memory {
    /// # Errors
    /// `OutOfSpace` when images would take more than they may.
    fn check(&self, bytes: u64) -> Result<()> {
        let used = self.used_bytes.load(Ordering::Relaxed);
        if used.saturating_add(bytes) > self.bytes_max {
            let error = Error::new(
                ErrorKind::OutOfSpace,
                format!("files in memory would take more than {} bytes", self.bytes_max),
            );
            return Err(error
                .found(format!("{used} bytes, and {bytes} more"))
                .advice("allow more memory, or match fewer files"));
        }
        Ok(())
    }

    fn count(&self, before: u64, after: u64) {
        if after >= before {
            self.used_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.used_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

/// The keyspace of that name, made when there is none.
async fn keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    match db.keyspace(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            db.create_keyspace(name, KeyspaceOptions::default()).await
        }
        found => found,
    }
}

#[cfg(test)]
mod tests;
