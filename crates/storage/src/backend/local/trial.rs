//! Whether this process may write in a directory, by trying.

use std::io;
use std::path::{Path, PathBuf};

use tombolo_env::{Env, FileSystem};

use crate::facts::Fact;

/// Directories that are tried at most: those of a database lie two deep.
const DIRECTORIES_MAX: usize = 64;
/// How deep.
const DEPTH: usize = 2;

/// Makes an empty file in the directory of a store or log, and in the directories that are there
/// already, and removes each again. Where there is no directory yet, the nearest parent is tried.
pub fn trial(env: &Env, path: &Path) -> Fact {
    let name = "writing";
    let files = env.files();
    let Some(at) = path.ancestors().find(|ancestor| files.metadata(ancestor).is_ok()) else {
        return Fact::bad(name, format!("{} is not to be reached", path.display()), "check the path");
    };
    let mut directories = vec![at.to_path_buf()];
    if at == path {
        below(files, path, DEPTH, &mut directories);
    }
    for directory in &directories {
        let file = directory.join(format!(".tombolo-trial-{:016x}", env.random_u64()));
        let tried = files.create_new(&file).map(drop).and_then(|()| files.remove_file(&file));
        if let Err(error) = tried {
            return refused(name, directory, &error);
        }
    }
    let count = directories.len();
    let where_tried = if count == 1 { at.display().to_string() } else { format!("{count} directories") };
    Fact::fine(name, format!("works, tried in {where_tried}"))
}

fn refused(name: &'static str, directory: &Path, error: &io::Error) -> Fact {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as the user that the directory belongs to, or give this user the right to write there"
        }
        io::ErrorKind::ReadOnlyFilesystem => "remount the file system to write, or read only",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space, or raise the quota",
        _ => "check the directory and its file system",
    };
    Fact::bad(name, format!("{}: {error}", directory.display()), advice)
}

/// Adds the directories below `path`.
fn below(files: &dyn FileSystem, path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries = files.list_atomically(path).unwrap_or_default();
    for entry in entries.into_iter().filter(|entry| entry.is_directory) {
        if found.len() >= DIRECTORIES_MAX {
            return;
        }
        let directory = path.join(entry.name);
        found.push(directory.clone());
        if depth > 1 {
            below(files, &directory, depth - 1, found);
        }
    }
}
