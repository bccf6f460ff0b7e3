//! A door to files: looks without a claim until a lock is taken, and claims then.
//!
//! A program that only reads takes no lock, and disturbs nobody: it follows. The first lock opens
//! the database for writing, which takes it over; the last one that is given back closes it. What
//! changes files without a lock is refused, but for directories: they are noted, and made with the
//! lock.
//!
//! Programs that write files without a lock, as those that restore a backup do, say
//! [`Claim::WithChange`]: the first change claims then, and the claim stays as long as the door.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Env, Error, ErrorKind, Instant, ReaderOptions, Result, TakeOver};

use crate::files::{Files, FilesOptions};
use crate::load::LANES;
use crate::path;

/// How long what a follower saw is shown before it looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What takes the database over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// A lock.
    #[default]
    WithLock,
    /// A lock, or the first change of a file.
    WithChange,
}

/// See the module's documentation. Calls wait: they are for threads of programs, and not for tasks.
pub struct Door {
    builder: Box<dyn Fn() -> Builder + Send + Sync>,
    env: Env,
    options: FilesOptions,
    take_over: TakeOver,
    claim: Claim,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inside: Inside,
    /// Directories that are to be made with the next lock.
    directories: BTreeSet<Vec<u8>>,
}

#[derive(Debug, Default)]
enum Inside {
    #[default]
    Nothing,
    /// Looked at the last time then.
    Following(Arc<Files>, Instant),
    Mounted(Arc<Files>, BTreeSet<Vec<u8>>),
}

impl std::fmt::Debug for Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Door").field("take_over", &self.take_over).finish_non_exhaustive()
    }
}

impl Door {
    /// A door to the files of the database that `builder` opens. A lock takes it from others as
    /// `take_over` says.
    pub fn new(
        env: &Env,
        options: FilesOptions,
        take_over: TakeOver,
        builder: impl Fn() -> Builder + Send + Sync + 'static,
    ) -> Door {
        Door {
            builder: Box::new(builder),
            env: env.clone(),
            options,
            take_over,
            claim: Claim::default(),
            state: Mutex::default(),
        }
    }

    /// The same door, which claims with this.
    #[must_use]
    pub fn claiming(mut self, claim: Claim) -> Door {
        self.claim = claim;
        self
    }

    /// The files, for reading: those that are mounted, or as they were a second ago at most. `None`
    /// where there is no database yet.
    ///
    /// # Errors
    /// Those of opening it as a reader.
    pub fn look(&self) -> Result<Option<Arc<Files>>> {
        let mut state = self.state.lock();
        match &mut state.inside {
            Inside::Mounted(files, _) => return Ok(Some(Arc::clone(files))),
            Inside::Following(files, looked) => {
                if self.env.now() >= *looked + LOOK_AGAIN {
                    self.env.block_on(files.refresh())?;
                    *looked = self.env.now();
                }
                return Ok(Some(Arc::clone(files)));
            }
            Inside::Nothing => {}
        }
        let reader = match (self.builder)().open_reader(ReaderOptions::default()).wait() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            reader => reader?,
        };
        let files = Arc::new(self.env.block_on(Files::follow(reader, &self.env, self.options))?);
        state.inside = Inside::Following(Arc::clone(&files), self.env.now());
        Ok(Some(files))
    }

    /// The files, for changes.
    ///
    /// # Errors
    /// `PermissionDenied` without a lock, where that alone claims; those of opening.
    pub fn mounted(&self) -> Result<Arc<Files>> {
        let mut state = self.state.lock();
        match &state.inside {
            Inside::Mounted(files, _) => Ok(Arc::clone(files)),
            Inside::Nothing | Inside::Following(..) if self.claim == Claim::WithChange => {
                self.mount(&mut state, BTreeSet::new())
            }
            Inside::Nothing | Inside::Following(..) => {
                let error = "files are changed only by who holds a lock on them";
                Err(Error::new(ErrorKind::PermissionDenied, error)
                    .advice("open the database for writing, which locks it"))
            }
        }
    }

    fn mount(&self, state: &mut State, locks: BTreeSet<Vec<u8>>) -> Result<Arc<Files>> {
        if let Inside::Following(files, _) = std::mem::take(&mut state.inside) {
            self.env.block_on(files.close())?;
        }
        let builder = (self.builder)().application_logs(LANES).take_over(self.take_over);
        let db = builder.open().wait()?;
        let files = Arc::new(self.env.block_on(Files::mount(db, &self.env, self.options))?);
        for directory in std::mem::take(&mut state.directories) {
            match self.env.block_on(files.create_directory(&directory)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        state.inside = Inside::Mounted(Arc::clone(&files), locks);
        Ok(files)
    }

    /// Takes the lock at `path`. The first one takes the database over.
    ///
    /// # Errors
    /// `InUse` when this process holds it, or another process lives that has the files and is not
    /// to be disturbed; those of opening.
    pub fn lock(&self, path: &[u8]) -> Result<()> {
        let path = path::normal(path)?;
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Inside::Mounted(files, locks) = &mut state.inside {
            // A handle that was fenced serves nobody any more: a lock claims anew.
            if files.failure().is_none() || !locks.is_empty() {
                if locks.insert(path.clone()) {
                    return Ok(());
                }
                return Err(Error::new(ErrorKind::InUse, "this process holds the lock already")
                    .object(path.escape_ascii()));
            }
        }
        self.mount(state, BTreeSet::from([path]))?;
        Ok(())
    }

    /// Gives the lock at `path` back. With the last one the database is closed, all made durable.
    ///
    /// # Errors
    /// `NotFound` when it was not held; those of closing.
    pub fn unlock(&self, path: &[u8]) -> Result<()> {
        let path = path::normal(path)?;
        let mut state = self.state.lock();
        let Inside::Mounted(files, locks) = &mut state.inside else {
            return Err(Error::new(ErrorKind::NotFound, "no lock is held"));
        };
        if !locks.remove(&path) {
            return Err(Error::new(ErrorKind::NotFound, "the lock is not held").object(path.escape_ascii()));
        }
        if !locks.is_empty() {
            return Ok(());
        }
        let files = Arc::clone(files);
        if self.claim == Claim::WithChange && files.failure().is_none() {
            return self.env.block_on(files.sync_names());
        }
        state.inside = Inside::Nothing;
        let closed = self.env.block_on(files.close());
        match closed {
            // It was finished before: there is nothing to close.
            Err(_) if files.failure().is_some() => Ok(()),
            closed => closed,
        }
    }

    /// Makes the directory at `path` now, or with the next lock where only that claims.
    ///
    /// # Errors
    /// As [`Files::create_directory`].
    pub fn create_directory(&self, path: &[u8]) -> Result<()> {
        match self.mounted() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && self.claim == Claim::WithLock => {}
            files => return self.env.block_on(files?.create_directory(path)),
        }
        let path = path::normal(path)?;
        let is_there = path == b"/" || self.look()?.is_some_and(|files| files.exists(&path));
        if is_there || !self.state.lock().directories.insert(path.clone()) {
            return Err(Error::new(ErrorKind::AlreadyExists, "it exists").object(path.escape_ascii()));
        }
        Ok(())
    }

    /// Deletes an empty directory, or forgets one that was to be made with the next lock.
    ///
    /// # Errors
    /// As [`Files::delete_directory`].
    pub fn delete_directory(&self, path: &[u8]) -> Result<()> {
        if self.state.lock().directories.remove(&path::normal(path)?) {
            return Ok(());
        }
        self.env.block_on(self.mounted()?.delete_directory(path))
    }

    /// Whether a directory is at `path`, or will be with the next lock.
    ///
    /// # Errors
    /// As [`Door::look`].
    pub fn is_directory(&self, path: &[u8]) -> Result<bool> {
        let path = path::normal(path)?;
        if path == b"/" || self.state.lock().directories.contains(&path) {
            return Ok(true);
        }
        Ok(self.look()?.is_some_and(|files| files.is_directory(&path)))
    }
}
