//! Where a path leads, links followed, though not all of it need be there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Most links that one path leads through, as Linux has it.
const LINKS_MAX: usize = 40;

/// `path`, absolute, without links as far as it is there; missing parts keep their names. `None`
/// where the operating system would not get that far.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    resolve(path, LINKS_MAX)
}

fn resolve(path: &Path, links_max: usize) -> Option<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.ok(),
    }
    let directory = path.parent()?;
    // Without a slash at its end, with which the link itself would not be read.
    match fs::read_link(path.components().as_path()) {
        // Its target is not there yet.
        Ok(target) => resolve(&directory.join(target), links_max.checked_sub(1)?),
        Err(_) => Some(resolve(directory, links_max)?.join(path.file_name()?)),
    }
}
