//! Temporary files: where an object's bytes lie until they have a name.
//!
//! A temporary file is `tmp/{random:016x}.partial`, locked by its writer. The lock goes with the
//! process, however that ends, so that a file whose lock is free belongs to nobody. Between making
//! a file and locking it a sweep may take it away: then its maker finds the lock taken or, later,
//! the name gone, and nothing has taken effect.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::{Access, File};

use super::{LocalObjectStore, TEMPORARY_DIRECTORY};
use crate::mutant::{Mutant, is_enabled};
use crate::{Error, ErrorKind, Result};

/// What ends a temporary file's name; anything else under `tmp/` is not ours.
const SUFFIX: &str = ".partial";

/// Fresh names tried before giving up. Names are random: a second attempt is already a wonder.
const ATTEMPTS_MAX: u32 = 16;

/// A temporary file. Its name goes with it.
#[derive(Debug)]
pub(super) struct Temporary {
    store: LocalObjectStore,
    path: PathBuf,
    file: Arc<dyn File>,
    /// The same file, past the page cache.
    direct: Option<Arc<dyn File>>,
}

fn failed_look(error: io::Error, path: &Path) -> Error {
    Error::io(error, "looking at a temporary file", path.display())
}

impl Temporary {
    pub(super) fn create(store: &LocalObjectStore) -> Result<Temporary> {
        let directory = store.shared.root.join(TEMPORARY_DIRECTORY);
        for _ in 0..ATTEMPTS_MAX {
            let path = directory.join(format!("{:016x}{SUFFIX}", store.shared.env.random_u64()));
            let failed = |error| Error::io(error, "making a temporary file", path.display());
            store.ensure_directory(&directory).map_err(failed)?;
            let file = match store.files().create_new(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    store.forget_directory(&directory);
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let temporary = Temporary { store: store.clone(), path, file, direct: None };
            match temporary.file.try_lock() {
                // A sweep may have come and gone between the two: a file that is there under the
                // lock stays there.
                Ok(true) => match store.files().metadata(&temporary.path) {
                    Ok(_) => return Ok(temporary),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed_look(error, &temporary.path)),
                },
                // A sweep was faster. It removes the name; so may we.
                Ok(false) => {}
                // Without locks nothing is ever swept.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(temporary),
                Err(error) => {
                    return Err(Error::io(error, "locking a temporary file", temporary.path.display()));
                }
            }
        }
        Err(Error::new(ErrorKind::Retry, "no temporary file could be made").object(directory.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Passes the page cache by from here on; returns the alignment that later writes need.
    pub(super) fn pass_cache(&mut self) -> Result<usize> {
        let opened = self.store.files().open(&self.path, Access::ReadWriteDirect);
        let file = opened.map_err(|error| {
            Error::io(error, "opening a temporary file past the page cache", self.path.display())
        })?;
        let alignment = file.direct_alignment().unwrap_or(1);
        self.direct = Some(file);
        Ok(alignment)
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let file = self.direct.as_ref().unwrap_or(&self.file);
        file.write_all_at(bytes, offset)
            .map_err(|error| Error::io(error, "writing an object", self.path.display()).offset(offset))
    }

    /// See [`File::write_out`].
    pub(super) fn write_out(&self, offset: u64, length: u64) -> Result<()> {
        self.file
            .write_out(offset, length)
            .map_err(|error| Error::io(error, "writing an object out", self.path.display()).offset(offset))
    }

    /// Takes space ahead; where that is not possible, it is taken by the writes.
    pub(super) fn allocate(&self, length: u64) -> Result<()> {
        match self.file.allocate(length) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) =>
            {
                Ok(())
            }
            outcome => {
                outcome.map_err(|error| Error::io(error, "taking space for an object", self.path.display()))
            }
        }
    }

    pub(super) fn cut(&self, length: u64) -> Result<()> {
        self.file
            .set_length(length)
            .map_err(|error| Error::io(error, "cutting an object to its length", self.path.display()))
    }

    pub(super) fn sync(&self) -> Result<()> {
        if is_enabled(Mutant::ObjectNamedBeforeSync) {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|error| Error::io(error, "making an object durable", self.path.display()))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed now is swept later.
        let _ = self.store.files().remove_file(&self.path);
    }
}

/// Removes the temporary files of dead processes.
pub(super) fn sweep(store: &LocalObjectStore) -> Result<u64> {
    let directory = store.shared.root.join(TEMPORARY_DIRECTORY);
    let entries = match store.files().list_atomically(&directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(0);
        }
        Err(error) => return Err(Error::io(error, "listing temporary files", directory.display())),
    };
    let mut removed = 0;
    for entry in entries {
        let ours = entry
            .name
            .strip_suffix(SUFFIX)
            .is_some_and(|stem| stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if entry.is_directory || !ours {
            continue;
        }
        let path = directory.join(&entry.name);
        let file = match store.files().open(&path, Access::ReadWrite) {
            Ok(file) => file,
            // Finished or swept meanwhile, or another user's.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                continue;
            }
            Err(error) => return Err(Error::io(error, "sweeping a temporary file", path.display())),
        };
        match file.try_lock().map(|free| free || is_enabled(Mutant::ObjectSweepIgnoresLocks)) {
            Ok(true) => match store.files().remove_file(&path) {
                Ok(()) => removed += 1,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
                Err(error) => return Err(Error::io(error, "sweeping a temporary file", path.display())),
            },
            Ok(false) => {}
            // Without locks nobody is known to be gone.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(removed),
            Err(error) => return Err(Error::io(error, "sweeping a temporary file", path.display())),
        }
    }
    Ok(removed)
}
