//! A database for a while: temporary and removed, or where the user wants it.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::note::note;

/// Where the database is, and whether it goes when the command ends.
pub struct Scratch {
    uri: String,
    /// Removed on drop.
    folder: Option<PathBuf>,
}

impl Scratch {
    /// At `store`, or in a fresh temporary directory whose name says what it is for.
    pub fn new(store: Option<&str>, what: &str) -> Result<Scratch> {
        if let Some(store) = store {
            return Ok(Scratch { uri: store.to_owned(), folder: None });
        }
        // /var/tmp is a disk where /tmp often is memory, and durable writes belong on a disk.
        let base = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let base = if base.is_dir() { base } else { std::env::temp_dir() };
        let stamp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let folder = base.join(format!("tombolo-{what}-{}-{stamp:x}", std::process::id()));
        std::fs::create_dir(&folder)
            .map_err(|error| Failure::io(error, format!("making the directory {}", folder.display())))?;
        let path = folder.to_str().ok_or_else(|| {
            Failure::Usage(format!("{} is no UTF-8: set TMPDIR to a path that is", base.display()))
        })?;
        let uri = format!("file://{}", path.replace('%', "%25").replace('#', "%23").replace('?', "%3F"));
        Ok(Scratch { uri, folder: Some(folder) })
    }

    /// The database's URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Its directory, where it goes when the command ends.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Whether it goes when the command ends.
    pub fn is_temporary(&self) -> bool {
        self.folder.is_some()
    }

    /// Keeps the directory, and says so, unless all is well.
    pub fn keep_unless(&mut self, well: bool) {
        if !well && let Some(folder) = self.folder.take() {
            note(format_args!("the database is kept for a look at it: {}", folder.display()));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take()
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            note(format_args!("cannot remove {}: {error}", folder.display()));
        }
    }
}
