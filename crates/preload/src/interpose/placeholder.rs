//! Placeholders: small real files that stand in directories for files of the database.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 18 | `TOMBOLO-PRELOAD 1 ` |
//! | 18 | 32 | random id of the files, in hexadecimal digits |
//! | 50 | | a line end, and for people: where the file really is |
//!
//! A placeholder proves nothing: whether there is a file, and what it holds, is known by the
//! database alone. A program that reads one without this library finds that it is no file of its
//! own.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &str = "TOMBOLO-PRELOAD 1 ";
const ID_DIGITS: usize = 32;

/// What is on the disk at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The placeholder of a file of the files with this id.
    Placeholder(u128),
    /// A file of its own.
    Ordinary,
    /// A symbolic link, wherever it leads.
    Link,
    /// A directory, pipe, socket or device.
    Special,
}

/// What is on the disk at `path`.
///
/// # Errors
/// Those of the operating system.
pub fn look(path: &Path) -> io::Result<Found> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        metadata => metadata?.file_type(),
    };
    if kind.is_symlink() {
        return Ok(Found::Link);
    }
    if kind.is_dir() || kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
    {
        return Ok(Found::Special);
    }
    let mut head = Vec::new();
    fs::File::open(path)?.take((MAGIC.len() + ID_DIGITS) as u64).read_to_end(&mut head)?;
    Ok(parse(&head).map_or(Found::Ordinary, Found::Placeholder))
}

fn parse(head: &[u8]) -> Option<u128> {
    let digits = head.strip_prefix(MAGIC.as_bytes()).filter(|digits| digits.len() == ID_DIGITS)?;
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn text(id: u128, store: &str) -> String {
    format!(
        "{MAGIC}{id:032x}\nThis file is kept in the Tombolo database at {store}.\n\
         Run the program that uses it with libtombolo_preload.so; see docs/preload.md of Tombolo.\n"
    )
}

/// Whether the file at `path` is empty, or ends within what [`create`] writes: a placeholder that
/// was not finished. It is not synced when it is made, so a loss of power may leave that of it.
/// Nothing is lost with such a file where the database has one of that name.
///
/// # Errors
/// Those of the operating system.
pub fn is_unfinished(path: &Path, id: u128, store: &str) -> io::Result<bool> {
    let text = text(id, store);
    let mut head = Vec::new();
    fs::File::open(path)?.take(text.len() as u64).read_to_end(&mut head)?;
    Ok(head.len() < text.len() && text.as_bytes().starts_with(&head))
}

/// Puts a placeholder where nothing is; open for reading and writing, whatever its mode lets others
/// do.
///
/// # Errors
/// `AlreadyExists`, and others of the operating system: nothing is there then.
pub fn create(path: &Path, id: u128, store: &str, mode: u32) -> io::Result<fs::File> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text(id, store).as_bytes()).inspect_err(|_| {
        let _removed = fs::remove_file(path);
    })?;
    Ok(file)
}

/// Puts a placeholder in the place of whatever file is there, at one stroke. It has that mode,
/// whatever the process takes from new files.
///
/// # Errors
/// Those of the operating system.
pub fn replace(path: &Path, id: u128, store: &str, mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".tombolo-{:x}", std::process::id()));
    let temporary: PathBuf = path.with_file_name(name);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create(&temporary, id, store, mode)?.set_permissions(fs::Permissions::from_mode(mode))?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_told_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        assert_eq!(look(&path).unwrap(), Found::Nothing);
        assert_eq!(look(directory.path()).unwrap(), Found::Special);
        std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
        assert_eq!(look(&directory.path().join("link")).unwrap(), Found::Link);
        fs::remove_file(directory.path().join("link")).unwrap();
        create(&path, 77, "mem://x", 0o644).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Placeholder(77));
        assert_eq!(create(&path, 78, "mem://x", 0o644).unwrap_err().kind(), ErrorKind::AlreadyExists);
        for content in [
            "",
            "TOMBOLO-PRELOAD 1 ",
            "TOMBOLO-PRELOAD 1 0000000000000000000000000000000g",
            "SQLite format 3",
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(look(&path).unwrap(), Found::Ordinary, "{content}");
        }
        for (content, unfinished) in [
            ("", true),
            ("TOMBOLO-PRELOAD 1 ", true),
            ("TOMBOLO-PRELOAD 2", false),
            ("SQLite format 3", false),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(is_unfinished(&path, 79, "mem://x").unwrap(), unfinished, "{content}");
        }
        fs::write(&path, text(79, "mem://x") + "more").unwrap();
        assert!(!is_unfinished(&path, 79, "mem://x").unwrap());
        replace(&path, 79, "mem://x", 0o644).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Placeholder(79));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
