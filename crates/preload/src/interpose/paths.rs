//! Calls that name a file by its path.

use std::ffi::{OsStr, c_int};
use std::fs;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::calls::{self, Patch};
use super::descriptors::{self, OpenFile};
use super::mount::{self, Mounted};
use super::placeholder::{self, Found};
use super::resolved::resolved;
use super::{Errno, Outcome, report};
use crate::files::OpenHow;

/// Whether the last component of a path may be a symbolic link that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// As `open` and `stat` do.
    Followed,
    /// As `lstat`, `rename` and `unlink` do.
    Kept,
}

/// A path that the database keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ours(PathBuf);

impl Ours {
    fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// The path, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Whether a path could be one of ours, judged by its end alone: what almost every call on other
/// files costs.
#[inline]
pub fn may_be_ours(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    mount::settings().is_some_and(|settings| settings.patterns.may_match(name))
}

/// The path as the database knows it, if it keeps it. A relative one begins at the directory
/// `descriptor`, or where the process is. Its directory need not be there: the database may know
/// it.
pub fn ours(descriptor: c_int, path: &[u8], links: Links) -> Option<Ours> {
    let settings = mount::settings()?;
    let path = absolute(descriptor, path)?;
    let path = match links {
        Links::Followed => resolved(&path)?,
        Links::Kept => resolved(path.parent()?)?.join(path.file_name()?),
    };
    settings.patterns.matches(&path).then_some(Ours(path))
}

/// What a call wants to know of a path that may be a directory with files of the database in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Whether it is there.
    Existence,
    /// Its entries as well.
    Entries,
    /// Its entries, which are to be somewhere else.
    Contents,
}

/// Whether the answer about a directory at `path` could depend on the database, which is not open
/// yet: judged by the path's end alone.
#[inline]
pub fn may_be_directory(path: &[u8]) -> bool {
    let Some(settings) = mount::settings() else { return false };
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name = path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_relative = matches!(name, b"" | b"." | b"..") && !path.is_empty();
    (is_relative || settings.patterns.may_lead(name)) && mount::is_ahead()
}

/// Opens the database, which puts directories and placeholders where they are missing, if what the
/// disk says of a directory at `path` could be less than the database knows: a program that finds
/// no directory, or nothing in it, begins anew, and puts new files in the place of those that the
/// database has.
///
/// # Errors
/// Those of opening, unless another process has the files open and nothing is to be taken from it:
/// nobody knows the answer then.
pub fn prepare(descriptor: c_int, path: &[u8], asked: Asked) -> Outcome<()> {
    let Some(settings) = mount::settings() else { return Ok(()) };
    let Some(path) = absolute(descriptor, path).and_then(|path| resolved(&path)) else { return Ok(()) };
    let mut next_names = settings.patterns.next_names(&path);
    let depends = match fs::metadata(&path) {
        Err(_) => next_names.next().is_some(),
        Ok(metadata) if metadata.is_dir() => match asked {
            Asked::Existence => false,
            Asked::Entries => {
                next_names.any(|name| name.is_none_or(|name| fs::symlink_metadata(path.join(name)).is_err()))
            }
            Asked::Contents => next_names.next().is_some(),
        },
        Ok(_) => false,
    };
    if !depends {
        return Ok(());
    }
    match asked {
        Asked::Contents => mount::mounted().map(drop),
        // Another process that has the files open puts directories and placeholders right, or has
        // done so. A missing path may be nobody's: below `**` any path could be a directory.
        Asked::Existence | Asked::Entries => mount::mounted_or_beside().map(drop),
    }
}

/// `path` from the root; `None` when its directory is not known.
pub fn absolute(descriptor: c_int, path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    if path.is_absolute() {
        return Some(path.to_path_buf());
    }
    let base = if descriptor == libc::AT_FDCWD {
        std::env::current_dir().ok()?
    } else {
        fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?
    };
    Some(base.join(path))
}

/// Whether the database has a file there. Kinds of files on the disk are told apart: an ordinary
/// file is the disk's until it is opened.
fn is_there(mounted: &Mounted, ours: &Ours) -> Outcome<Found> {
    if mounted.files.exists(ours.bytes()) {
        return Ok(Found::Placeholder(mounted.id));
    }
    match placeholder::look(&ours.0)? {
        // Another thread took it over meanwhile.
        Found::Placeholder(id) if id == mounted.id && mounted.files.exists(ours.bytes()) => {
            Ok(Found::Placeholder(id))
        }
        // Its file is gone: the process ended between the two.
        Found::Placeholder(id) if id == mounted.id => Ok(Found::Nothing),
        Found::Placeholder(_) => {
            report(&format!(
                "{} stands for a file of another database than {}: move it away",
                ours.0.display(),
                mounted.store
            ));
            Err(Errno(libc::EIO))
        }
        found => Ok(found),
    }
}

/// Whether there is anything at `path`, which is ours or not.
///
/// # Errors
/// Those of the operating system.
pub fn is_anything(path: &Path, ours: Option<&Ours>) -> Outcome<bool> {
    match ours {
        Some(ours) => Ok(is_there(mount::mounted()?, ours)? != Found::Nothing),
        None => Ok(fs::symlink_metadata(path).is_ok()),
    }
}

/// `open(2)`. The descriptor that stands for the file; `None` when the call is the C library's.
///
/// # Errors
/// As the call.
pub fn open(ours: &Ours, flags: c_int, mode: u32) -> Outcome<Option<c_int>> {
    let mounted = mount::mounted()?;
    let creates = flags & libc::O_CREAT != 0;
    let (readable, writable) = access(flags)?;
    let mut made = None;
    match is_there(mounted, ours)? {
        // A link is left only where it is not to be followed.
        Found::Link | Found::Special => return Ok(None),
        Found::Placeholder(_) | Found::Ordinary if flags & libc::O_DIRECTORY != 0 => {
            return Err(Errno(libc::ENOTDIR));
        }
        Found::Nothing if !creates => return Err(Errno(libc::ENOENT)),
        Found::Placeholder(_) | Found::Ordinary if creates && flags & libc::O_EXCL != 0 => {
            return Err(Errno(libc::EEXIST));
        }
        _ if flags & libc::O_PATH != 0 => {
            report(&format!("{} cannot be opened with O_PATH", ours.0.display()));
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Found::Ordinary => mounted.take_over(&ours.0, &ours.0)?,
        Found::Placeholder(_) => mounted.place(&ours.0, mode)?,
        // The directory must be one in which the process may make files.
        Found::Nothing => made = mounted.make(&ours.0, mode)?,
    }
    // Who makes a file may write it whatever its mode is, and nobody after.
    let placeholder = made.map_or_else(|| open_placeholder(&ours.0, readable, writable, flags), Ok)?;
    let stand_in = stand_in(&ours.0)?;
    let file = mounted.open_file(
        ours.bytes(),
        OpenHow { create: creates, exclusive: creates && flags & libc::O_EXCL != 0 },
    )?;
    if flags & libc::O_TRUNC != 0 && writable {
        mounted.files.truncate(&file, 0)?;
    }
    let open = OpenFile {
        file,
        offset: Mutex::new(0),
        readable,
        writable,
        appends: AtomicBool::new(flags & libc::O_APPEND != 0),
        synchronous: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
        placeholder,
    };
    descriptors::check(stand_in.as_raw_fd())?;
    let descriptor = stand_in.into_raw_fd();
    descriptors::set_file(descriptor, Arc::new(open));
    Ok(Some(descriptor))
}

fn access(flags: c_int) -> Outcome<(bool, bool)> {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Ok((true, false)),
        libc::O_WRONLY => Ok((false, true)),
        libc::O_RDWR => Ok((true, true)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// The descriptor that the program gets: nothing can be read or written through it.
fn stand_in(path: &Path) -> Outcome<OwnedFd> {
    Ok(fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?.into())
}

/// The placeholder, opened as the file is: what the process may not do to the one, it may not do to
/// the other.
fn open_placeholder(path: &Path, readable: bool, writable: bool, flags: c_int) -> Outcome<OwnedFd> {
    let kept = flags & (libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME);
    let file = fs::OpenOptions::new().read(readable).write(writable).custom_flags(kept).open(path)?;
    Ok(file.into())
}

/// After a real open of `descriptor` succeeded: whether it is a directory with files of the
/// database in it, whose sync is theirs too.
pub fn note_directory(descriptor: c_int) {
    let Some(settings) = mount::settings() else { return };
    let link = format!("/proc/self/fd/{descriptor}");
    if !fs::metadata(&link).is_ok_and(|metadata| metadata.is_dir()) {
        return;
    }
    let Ok(path) = fs::read_link(&link) else { return };
    if settings.patterns.is_excluded(&path) {
        return;
    }
    if mount::already().is_some_and(|mounted| mounted.is_directory_of_files(&path)) {
        descriptors::set_directory(descriptor);
    }
}

/// What to put into the answer of `stat(2)` about the placeholder; `None` when it is about an
/// ordinary file.
///
/// # Errors
/// As the call.
pub fn stat(ours: &Ours) -> Outcome<Option<Patch>> {
    let mounted = mount::mounted()?;
    match is_there(mounted, ours)? {
        Found::Nothing => Err(Errno(libc::ENOENT)),
        Found::Ordinary | Found::Link | Found::Special => Ok(None),
        Found::Placeholder(_) => {
            mounted.place(&ours.0, 0o644)?;
            let file = mounted.open_file(ours.bytes(), OpenHow::default())?;
            Ok(Some(calls::patch(mounted, &file)?))
        }
    }
}

/// `access(2)`: whether the C library may be asked about the placeholder.
///
/// # Errors
/// `ENOENT` when there is no file.
pub fn access_check(ours: &Ours) -> Outcome<()> {
    let mounted = mount::mounted()?;
    match is_there(mounted, ours)? {
        Found::Nothing => Err(Errno(libc::ENOENT)),
        Found::Placeholder(_) => mounted.place(&ours.0, 0o644),
        Found::Ordinary | Found::Link | Found::Special => Ok(()),
    }
}

/// `truncate(2)`; `None` when the call is the C library's.
///
/// # Errors
/// As the call.
pub fn truncate(ours: &Ours, size: i64) -> Outcome<Option<()>> {
    let size = u64::try_from(size).map_err(|_| Errno(libc::EINVAL))?;
    let mounted = mount::mounted()?;
    match is_there(mounted, ours)? {
        Found::Nothing => return Err(Errno(libc::ENOENT)),
        Found::Link | Found::Special => return Ok(None),
        Found::Ordinary => mounted.take_over(&ours.0, &ours.0)?,
        Found::Placeholder(_) => mounted.place(&ours.0, 0o644)?,
    }
    let _may_write = open_placeholder(&ours.0, false, true, 0)?;
    let file = mounted.open_file(ours.bytes(), OpenHow::default())?;
    mounted.files.truncate(&file, size)?;
    Ok(Some(()))
}

/// `unlink(2)`, durable when it returns; `None` when the call is the C library's.
///
/// # Errors
/// As the call.
pub fn unlink(ours: &Ours) -> Outcome<Option<()>> {
    let mounted = mount::mounted()?;
    match is_there(mounted, ours)? {
        Found::Nothing => {
            // Nobody needs a placeholder without a file.
            let _removed = fs::remove_file(&ours.0);
            return Err(Errno(libc::ENOENT));
        }
        Found::Ordinary | Found::Link | Found::Special => return Ok(None),
        Found::Placeholder(_) => mounted.place(&ours.0, 0o644)?,
    }
    // A directory that does not let go of the placeholder would not let go of the file.
    fs::remove_file(&ours.0)?;
    mounted.files.settle(mounted.files.begun(|| mounted.files.begin_unlink(ours.bytes()))?)?;
    mounted.files.sync()?;
    mounted.delete_leftovers()?;
    Ok(Some(()))
}

/// `rename(2)` where at least one of the names is ours, durable when it returns; `None` when the
/// call is the C library's.
///
/// # Errors
/// As the call: `EXDEV` from the database to the disk, as between file systems.
pub fn rename(from: (&Path, Option<&Ours>), to: (&Path, Option<&Ours>)) -> Outcome<Option<()>> {
    match (from.1, to.1) {
        (Some(from), Some(to)) => rename_ours(from, to),
        (Some(from), None) => match is_there(mount::mounted()?, from)? {
            Found::Placeholder(_) => {
                report(&format!(
                    "{} cannot be renamed to {}, which no pattern matches",
                    from.0.display(),
                    to.0.display()
                ));
                Err(Errno(libc::EXDEV))
            }
            Found::Nothing => Err(Errno(libc::ENOENT)),
            Found::Ordinary | Found::Link | Found::Special => Ok(None),
        },
        (None, Some(to)) => {
            let (metadata, mounted) = (fs::symlink_metadata(from.0)?, mount::mounted()?);
            if metadata.is_symlink() {
                return rename_link(mounted, from.0, to);
            }
            if !metadata.is_file() {
                report(&format!(
                    "{} is no ordinary file, and cannot be renamed to {}",
                    from.0.display(),
                    to.0.display()
                ));
                return Err(Errno(libc::EXDEV));
            }
            match is_there(mounted, to)? {
                Found::Special => return Ok(None),
                found => keep_replaced(mounted, to, &found)?,
            }
            // What has no place there is not copied.
            fs::metadata(to.0.parent().ok_or(Errno(libc::ENOENT))?)?;
            mounted.take_over(from.0, &to.0)?;
            fs::remove_file(from.0)?;
            Ok(Some(()))
        }
        (None, None) => Ok(None),
    }
}

fn rename_ours(from: &Ours, to: &Ours) -> Outcome<Option<()>> {
    let mounted = mount::mounted()?;
    match is_there(mounted, from)? {
        Found::Nothing => return Err(Errno(libc::ENOENT)),
        Found::Special => return Ok(None),
        Found::Link => return rename_link(mounted, &from.0, to),
        Found::Ordinary => mounted.take_over(&from.0, &from.0)?,
        Found::Placeholder(_) => mounted.place(&from.0, 0o644)?,
    }
    match is_there(mounted, to)? {
        Found::Special => return Err(Errno(libc::EISDIR)),
        found => keep_replaced(mounted, to, &found)?,
    }
    // A directory that does not take the placeholder would not take the file. The database decides;
    // what the disk shows is put right by it.
    fs::rename(&from.0, &to.0)?;
    mounted.files.settle(mounted.files.begun(|| mounted.files.begin_rename(from.bytes(), to.bytes()))?)?;
    mounted.files.sync()?;
    mounted.delete_leftovers()?;
    Ok(Some(()))
}

/// A link is renamed by the C library; not in the place of a file of the database, which would
/// still be there.
fn rename_link(mounted: &Mounted, from: &Path, to: &Ours) -> Outcome<Option<()>> {
    match is_there(mounted, to)? {
        Found::Placeholder(_) => {
            report(&format!(
                "{} is a symbolic link, and cannot take the place of {}",
                from.display(),
                to.0.display()
            ));
            Err(Errno(libc::EXDEV))
        }
        _ => Ok(None),
    }
}

/// Takes an ordinary file over that a rename is about to replace. Else the disk would lose it
/// before the database has what replaces it, or have it still when the database has.
fn keep_replaced(mounted: &Mounted, to: &Ours, found: &Found) -> Outcome<()> {
    if *found == Found::Ordinary { mounted.take_over(&to.0, &to.0) } else { Ok(()) }
}

/// Whether renaming the directory at `path` would take files of the database out of it.
pub fn has_files_below(descriptor: c_int, path: &[u8]) -> bool {
    let Some(mounted) = mount::already() else { return false };
    let Some(path) = absolute(descriptor, path).and_then(|path| fs::canonicalize(path).ok()) else {
        return false;
    };
    let is_directory = fs::metadata(&path).is_ok_and(|metadata| metadata.is_dir());
    is_directory && mounted.files.has_paths_below(&[path.as_os_str().as_bytes(), b"/"].concat())
}
