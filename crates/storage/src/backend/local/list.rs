//! Listing: an ascending walk over directories.
//!
//! Atomic: the names of one directory come in one answer of the file system. A prefix within one
//! directory, with no matching directory beside the objects, is therefore answered as of one
//! moment. A prefix that spans directories is walked in ascending order of names, one moment per
//! directory: a name made behind the walk's back is not shown, while a name shown was there.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::path::Path;

use tombolo_env::DirectoryEntry;

use super::{LOG_DIRECTORY, LocalObjectStore, TEMPORARY_DIRECTORY};
use crate::backend::may_match;
use crate::error::is_link_loop;
use crate::mutant::{Mutant, is_enabled};
use crate::{Error, ErrorKind, Listed, ObjectInfo, ObjectName, Result};

/// Most names of one page.
const LIST_PAGE_MAX: usize = 4096;

/// Directories below one another.
const DEPTH_MAX: usize = 256;

/// How often a directory is listed again because names of it were deleted before their lengths were
/// asked for.
const ATTEMPTS_MAX: usize = 1000;

struct Walk<'a> {
    store: &'a LocalObjectStore,
    prefix: &'a str,
    after: Option<&'a str>,
    /// Names wanted, one beyond the page so that `more` is known.
    wanted: usize,
    found: Vec<ObjectInfo>,
}

/// What a directory holds, the smallest first; a directory sorts as what lies in it. A heap: who
/// wants the first name of many (the newest record, among the claims of years) does not pay for
/// their order.
fn order(entries: Vec<DirectoryEntry>) -> BinaryHeap<Reverse<String>> {
    let name = |DirectoryEntry { mut name, is_directory }| {
        if is_directory {
            name.push('/');
        }
        Reverse(name)
    };
    entries.into_iter().map(name).collect()
}

impl Walk<'_> {
    /// Walks the directory whose objects' names begin with `base` (empty, or ending in `/`).
    fn directory(&mut self, path: &Path, base: &str, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::new(ErrorKind::Invalid, "directories lie too deep").object(path.display()));
        }
        let before = self.found.len();
        let mut missing = BTreeSet::new();
        for _ in 0..ATTEMPTS_MAX {
            if self.attempt(path, base, depth, &mut missing)? {
                return Ok(());
            }
            self.found.truncate(before);
        }
        Err(Error::new(ErrorKind::Retry, "objects are deleted faster than they are listed")
            .object(path.display()))
    }

    /// One listing of a directory; `false` when a name was gone before its length was known, and is
    /// `missing` from now on: listed again and still without a file, it is no object (a link to
    /// nowhere) and is passed over.
    fn attempt(
        &mut self,
        path: &Path,
        base: &str,
        depth: usize,
        missing: &mut BTreeSet<String>,
    ) -> Result<bool> {
        let files = self.store.files();
        let entries = match files.list_atomically(path) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(true);
            }
            Err(error) => return Err(Error::io(error, "listing objects", path.display())),
        };
        // Names of this directory are about to be shown: they must be there after a loss of power.
        let mut durable = false;
        let mut entries = order(entries);
        while let Some(Reverse(entry)) = entries.pop() {
            let name = format!("{base}{entry}");
            if !may_match(&name, self.prefix, self.after) {
                continue;
            }
            if let Some(directory) = entry.strip_suffix('/') {
                let reserved =
                    directory == LOG_DIRECTORY || base.is_empty() && directory == TEMPORARY_DIRECTORY;
                if !reserved && ObjectName::new(directory).is_ok() {
                    self.directory(&path.join(directory), &name, depth + 1)?;
                }
            } else if let Ok(name) = ObjectName::new(&name) {
                match files.metadata(&path.join(&entry)) {
                    Ok(metadata) => self.found.push(ObjectInfo { name, length: metadata.length }),
                    // A link that leads nowhere for good is no object.
                    Err(error) if is_link_loop(&error) => continue,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        if missing.insert(entry) {
                            return Ok(false);
                        }
                        continue;
                    }
                    Err(error) => {
                        return Err(Error::io(error, "listing objects", path.join(&entry).display()));
                    }
                }
                if !durable && !is_enabled(Mutant::ObjectListedBeforeDirectorySync) {
                    self.make_durable(path)?;
                    durable = true;
                }
            }
            if self.found.len() >= self.wanted {
                break;
            }
        }
        Ok(true)
    }

    fn make_durable(&self, path: &Path) -> Result<()> {
        match self.store.files().sync_directory(path) {
            Ok(()) => Ok(()),
            // Nobody can have changed it since it was mounted.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            Err(error) => Err(Error::io(error, "making listed names durable", path.display())),
        }
    }
}

impl LocalObjectStore {
    /// See [`crate::ObjectStore::list`].
    pub(super) fn walk(&self, prefix: &str, after: Option<&ObjectName>, limit: usize) -> Result<Listed> {
        let limit = limit.min(LIST_PAGE_MAX);
        let base = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
        let unnameable = !base.is_empty() && ObjectName::new(base.trim_end_matches('/')).is_err();
        let reserved = base.split('/').any(|segment| segment == LOG_DIRECTORY)
            || base.split('/').next() == Some(TEMPORARY_DIRECTORY);
        if unnameable || reserved {
            // No object has such a name; a prefix that goes up (`../`) ends here too.
            return Ok(Listed { objects: Vec::new(), more: false });
        }
        let mut walk = Walk {
            store: self,
            prefix,
            after: after.map(ObjectName::as_str),
            wanted: limit + 1,
            found: Vec::new(),
        };
        walk.directory(&self.shared.root.join(base), base, 0)?;
        let more = walk.found.len() > limit;
        walk.found.truncate(limit);
        Ok(Listed { objects: walk.found, more })
    }
}
