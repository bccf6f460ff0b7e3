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
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

const MAGIC: &str = "TOMBOLO-PRELOAD 1 ";
const ID_DIGITS: usize = 32;

/// What the disk has at a path.
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

/// What the disk has at `path`.
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
/// was not finished. It is not synced when it is made, so a loss of power may leave that of it, and
/// so may [`create_in_steps`].
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

/// Puts a placeholder where nothing is, whole from the first moment that anyone sees it; open for
/// reading and writing, whatever its mode lets others do. `None`: the file system has no way to do
/// it, and [`create_in_steps`] is left.
///
/// # Errors
/// `AlreadyExists`, and others of the operating system: nothing was put there then.
pub fn create(path: &Path, id: u128, store: &str, mode: u32) -> io::Result<Option<fs::File>> {
    for way in [create_unnamed, create_renamed, create_linked] {
        if let Some(made) = way(path, &text(id, store), mode)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// As [`create`], but empty first: for file systems that have no other way.
///
/// # Errors
/// As there.
pub fn create_in_steps(path: &Path, id: u128, store: &str, mode: u32) -> io::Result<fs::File> {
    create_written(path, &text(id, store), mode)
}

fn create_written(path: &Path, text: &str, mode: u32) -> io::Result<fs::File> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _removed = fs::remove_file(path);
    })?;
    Ok(file)
}

/// What a system call says where the file system, or the kernel, does not have it.
fn is_lacking(error: Errno) -> bool {
    matches!(
        error,
        Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::ISDIR
            | Errno::NOENT
            | Errno::PERM
            | Errno::MLINK
    )
}

/// A file without a name, which gets one when it is written.
fn create_unnamed(path: &Path, text: &str, mode: u32) -> io::Result<Option<fs::File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).mode(mode).open(directory);
    let mut file = match opened {
        Ok(file) => file,
        Err(error)
            if Errno::from_io_error(&error)
                .is_some_and(|errno| errno != Errno::NOENT && is_lacking(errno)) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    file.write_all(text.as_bytes())?;
    // By its own name among the open ones: a name for a descriptor needs more rights.
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, &*unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(Some(file)),
        Err(error) if is_lacking(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Written under another name, and renamed if nothing is there.
fn create_renamed(path: &Path, text: &str, mode: u32) -> io::Result<Option<fs::File>> {
    create_beside(path, text, mode, |temporary| {
        rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)
    })
}

/// Written under another name, and linked.
fn create_linked(path: &Path, text: &str, mode: u32) -> io::Result<Option<fs::File>> {
    create_beside(path, text, mode, |temporary| {
        rustix::fs::linkat(CWD, temporary, CWD, path, AtFlags::empty())?;
        let _removed = fs::remove_file(temporary);
        Ok(())
    })
}

fn create_beside(
    path: &Path,
    text: &str,
    mode: u32,
    put: impl FnOnce(&Path) -> rustix::io::Result<()>,
) -> io::Result<Option<fs::File>> {
    let temporary = temporary(path);
    let file = create_written(&temporary, text, mode)?;
    let Err(error) = put(&temporary) else { return Ok(Some(file)) };
    let _removed = fs::remove_file(&temporary);
    if is_lacking(error) { Ok(None) } else { Err(error.into()) }
}

/// A name beside a file that nobody else takes.
fn temporary(path: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".tombolo-{:x}-{number:x}", std::process::id()));
    path.with_file_name(name)
}

/// Puts a placeholder in the place of whatever file is there, at one stroke. It has that mode,
/// whatever the process takes from new files.
///
/// # Errors
/// Those of the operating system.
pub fn replace(path: &Path, id: u128, store: &str, mode: u32) -> io::Result<()> {
    let temporary = temporary(path);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_in_steps(&temporary, id, store, mode)?.set_permissions(fs::Permissions::from_mode(mode))?;
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
        create(&path, 77, "mem://x", 0o644).unwrap().expect("a way");
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
    type Way = fn(&Path, &str, u32) -> io::Result<Option<fs::File>>;
    const WAYS: [(&str, Way); 3] =
        [("unnamed", create_unnamed), ("renamed", create_renamed), ("linked", create_linked)];

    #[test]
    fn each_way_replaces_nothing_and_leaves_nothing_beside() {
        for (name, way) in WAYS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a");
            let mut made = way(&path, "text", 0o600).unwrap().expect(name);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            made.write_all(b", and more").unwrap();
            assert_eq!(way(&path, "other", 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "text, and more", "{name}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{name}");
            let missing = way(&directory.path().join("none/a"), "text", 0o600).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound, "{name}");
        }
    }

    /// Another thread sees nothing, or all of it.
    #[test]
    fn a_placeholder_is_there_whole_or_not_at_all() {
        for (name, way) in WAYS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a");
            let text = text(77, "mem://x");
            let is_done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..500 {
                        way(&path, &text, 0o600).unwrap().expect(name);
                        fs::remove_file(&path).unwrap();
                    }
                    is_done.store(true, Ordering::Relaxed);
                });
                while !is_done.load(Ordering::Relaxed) {
                    match fs::read_to_string(&path) {
                        Ok(found) => assert_eq!(found, text, "{name}"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{name}"),
                    }
                }
            });
        }
    }
}
