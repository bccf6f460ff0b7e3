//! Files through system calls.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, CWD, FallocateFlags, FileType, Mode, OFlags, RawDir, fadvise, fallocate, major, minor, openat,
    statfs, statvfs,
};

use super::facts::{self, Alignment};
use super::mapping::Mapped;
use super::reads::{Choice, Readable};
use super::write_out;
use crate::file::check_alignment;
use crate::{
    Access, BoxFuture, DirectoryEntry, File, FileSystem, FileSystemFacts, FileSystemKind, Mapping, Metadata,
    Space, ZoneControl,
};

/// First try for the names of a directory: about a thousand names of 32 bytes.
const LIST_BUFFER_BYTES: usize = 64 << 10;
/// A directory whose names do not fit is beyond what the local backend is made for.
const LIST_BUFFER_BYTES_MAX: usize = 256 << 20;

/// Network and cluster file systems by the magic number that `statfs` answers (linux/magic.h and
/// the file systems' own headers). FUSE may be anything, so it counts as one.
const NETWORK_FILE_SYSTEMS: [(u32, &str); 16] = [
    (0x0000_6969, "nfs"),
    (0x0000_517B, "smb"),
    (0xFF53_4D42, "smb"),
    (0xFE53_4D42, "smb"),
    (0x00C3_6400, "ceph"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x0BD0_0BD0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x2003_0528, "orangefs"),
];

/// File systems that write overwritten data to a new place, by the same number. Not xfs, which
/// does so only for what files share by a reflink.
const COPY_ON_WRITE_FILE_SYSTEMS: [(u32, &str); 5] = [
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0xF2F5_2010, "f2fs"),
    (0x0000_3434, "nilfs2"),
];

/// What a file system of this magic number is backed by.
fn kind_of(magic: u32) -> FileSystemKind {
    let name_in = |known: &[(u32, &str)]| {
        known.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned())
    };
    match name_in(&NETWORK_FILE_SYSTEMS) {
        Some(name) => FileSystemKind::Network(name),
        None => {
            name_in(&COPY_ON_WRITE_FILE_SYSTEMS).map_or(FileSystemKind::Local, FileSystemKind::CopyOnWrite)
        }
    }
}

/// The host's files.
#[derive(Debug)]
pub(super) struct RealFiles {
    pub(super) reads: Choice,
}

impl RealFiles {
    fn handle(&self, file: fs::File, direct: bool) -> io::Result<Arc<dyn File>> {
        let direct = direct.then(|| facts::alignment(&file)).transpose()?;
        Ok(Arc::new(RealFile(Readable::new(file, direct, self.reads))))
    }
}

impl FileSystem for RealFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = fs::File::options();
        options.read(true).write(matches!(access, Access::ReadWrite | Access::ReadWriteDirect));
        let direct = matches!(access, Access::ReadDirect | Access::ReadWriteDirect);
        if direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let file = options.open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.handle(file, direct)
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        give_to_owner(&file, parent(path));
        self.handle(file, false)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for ancestor in path.ancestors() {
            let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
            match fs::metadata(ancestor) {
                Ok(metadata) if metadata.is_dir() => break,
                Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor.to_path_buf()),
                Err(error) => return Err(error),
            }
        }
        for directory in missing.iter().rev() {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                made => {
                    if made.is_ok() {
                        give_directory_to_owner(directory);
                    }
                    self.sync_directory(parent(directory))?;
                }
            }
        }
        if missing.is_empty() {
            // The creator of the name may have died before it was durable. Where the parent may
            // not be opened, it is not ours.
            match self.sync_directory(parent(path)) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list_atomically(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        list_atomically(path, LIST_BUFFER_BYTES)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let metadata = fs::metadata(path)?;
        Ok(Metadata { length: metadata.len(), is_directory: metadata.is_dir() })
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let answer = statvfs(path)?;
        Ok(Space {
            available: answer.f_bavail.saturating_mul(answer.f_frsize),
            total: answer.f_blocks.saturating_mul(answer.f_frsize),
        })
    }

    fn kind(&self, path: &Path) -> io::Result<FileSystemKind> {
        // The magic number has 32 bits; the field is a signed word whose upper half may carry the
        // sign.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let magic = statfs(path)?.f_type as u32;
        Ok(kind_of(magic))
    }

    fn open_files_max(&self) -> usize {
        facts::open_files_max()
    }

    fn io_uring(&self) -> Result<(), String> {
        self.reads.io_uring()
    }

    fn facts(&self, path: &Path) -> io::Result<FileSystemFacts> {
        facts::file_system(path)
    }

    fn zones(&self, path: &Path) -> io::Result<Arc<dyn ZoneControl>> {
        Ok(Arc::new(super::zones::RealZones::open(path)?))
    }

    fn device_bytes_written(&self, path: &Path) -> Option<u64> {
        let device = fs::metadata(path).ok()?.dev();
        let text =
            fs::read_to_string(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device))).ok()?;
        // The seventh number counts sectors of 512 bytes, whatever the device's own size (kernel:
        // Documentation/block/stat.rst).
        let sectors: u64 = text.split_ascii_whitespace().nth(6)?.parse().ok()?;
        sectors.checked_mul(512)
    }
}

/// Gives what root has just made in another user's directory to that user, who could neither change
/// nor delete it otherwise: a command that root runs leaves nothing behind that stops the service
/// whose database it is. As far as that goes: on some file systems root may not.
fn give_to_owner(made: &fs::File, directory: &Path) {
    let (Ok(made_is), Ok(directory)) = (made.metadata(), fs::metadata(directory)) else { return };
    if made_is.uid() == 0 && directory.uid() != 0 {
        let _ = fchown(made, Some(directory.uid()), Some(directory.gid()));
    }
}

/// As [`give_to_owner`]. By a handle of the directory itself: its name may be another's by now.
fn give_directory_to_owner(path: &Path) {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    if let Ok(made) = fs::File::options().read(true).custom_flags(flags).open(path) {
        give_to_owner(&made, parent(path));
    }
}

/// The directory that holds `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Lists with a buffer of `buffer_bytes` first. The kernel holds the directory's lock during one
/// `getdents`, so what a single call returns is one moment's state; a second call must find nothing
/// more, or all begins again with a larger buffer.
pub(super) fn list_atomically(path: &Path, mut buffer_bytes: usize) -> io::Result<Vec<DirectoryEntry>> {
    while buffer_bytes <= LIST_BUFFER_BYTES_MAX {
        if let Some(entries) = list_in_one_call(path, buffer_bytes)? {
            return Ok(entries);
        }
        buffer_bytes *= 4;
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "{} does not list its names in one call with a buffer of {LIST_BUFFER_BYTES_MAX} bytes",
            path.display()
        ),
    ))
}

fn list_in_one_call(path: &Path, buffer_bytes: usize) -> io::Result<Option<Vec<DirectoryEntry>>> {
    let directory = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = Vec::with_capacity(buffer_bytes);
    let mut names = RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    let mut calls = 0;
    loop {
        // The next step calls the kernel when the buffer is used up: the first time for everything,
        // the second time to learn that this was all.
        if names.is_buffer_empty() {
            calls += 1;
        }
        let entry = match names.next() {
            None => return Ok(Some(entries)),
            Some(Err(rustix::io::Errno::INVAL)) => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(_)) if calls > 1 => return Ok(None),
            Some(Ok(entry)) => entry,
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Our own names are ASCII; a foreign one is shown, and cannot be opened under the replaced
        // characters.
        let name = String::from_utf8_lossy(name).into_owned();
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                fs::symlink_metadata(path.join(&name)).is_ok_and(|metadata| metadata.is_dir())
            }
            file_type => file_type == FileType::Directory,
        };
        entries.push(DirectoryEntry { name, is_directory });
    }
}

#[derive(Debug)]
struct RealFile(Arc<Readable>);

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.0.direct.is_some() {
            let bytes = self.0.read_now(offset, buffer.len())?;
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read_many(self: Arc<Self>, ranges: Vec<(u64, usize)>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        Arc::clone(&self.0).read_many(&ranges)
    }

    fn with_held(&self, offset: u64, length: usize, show: &mut dyn FnMut(&[u8])) -> bool {
        self.0.with_held(offset, length, show)
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.0.direct.map(|alignment| alignment.write)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(Alignment { write: align, .. }) = self.0.direct else {
            return self.0.file.write_all_at(bytes, offset);
        };
        check_alignment(align, bytes.len(), offset)?;
        if bytes.as_ptr().align_offset(align) == 0 {
            return self.0.file.write_all_at(bytes, offset);
        }
        let mut scratch = vec![0_u8; bytes.len() + align];
        let start = scratch.as_ptr().align_offset(align).min(align);
        scratch[start..start + bytes.len()].copy_from_slice(bytes);
        self.0.file.write_all_at(&scratch[start..start + bytes.len()], offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.file.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        match fallocate(&self.0.file, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Not all file systems give back what they took before they found the disk full.
                let before = self.0.file.metadata()?.len();
                self.0.file.set_len(before)?;
                Err(error.into())
            }
        }
    }

    fn write_out(&self, offset: u64, length: u64) -> io::Result<()> {
        write_out::write_out(&self.0.file, offset, length)
    }

    fn read_once(&self) {
        // Advice: a file system that takes none reads as well, slower.
        let _ = fadvise(&self.0.file, 0, None, Advice::Sequential);
        let _ = fadvise(&self.0.file, 0, None, Advice::NoReuse);
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.file.try_lock() {
            Ok(()) => Ok(true),
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn map(&self, length: usize) -> io::Result<Arc<dyn Mapping>> {
        Ok(Arc::new(Mapped::new(&self.0.file, length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_numbers() {
        assert_eq!(kind_of(0x9123_683E), FileSystemKind::CopyOnWrite("btrfs".into()));
        assert_eq!(kind_of(0x0000_6969), FileSystemKind::Network("nfs".into()));
        for in_place in [0x0000_EF53, 0x5846_5342, 0x0102_1994] {
            assert_eq!(kind_of(in_place), FileSystemKind::Local, "{in_place:x}");
        }
    }
}
