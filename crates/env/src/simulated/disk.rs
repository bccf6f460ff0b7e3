//! A simulated disk: what reads see (the page cache) and what a power loss leaves (the medium).
//!
//! Content is kept once, as reads see it. For each 512-byte sector that the medium may not hold
//! yet, the sector's durable content is kept beside it, so that a power loss puts back a random
//! subset of them. Names are kept twice, with the changes in between as a list: a power loss keeps
//! a random subset of these. A rename is one change.
//!
//! Invariants:
//! 1. A sector is in at most one of `dirty` (a sync persists it) and `lost` (a failed sync gave it
//!    up; no later sync persists it).
//! 2. Changes of one name become durable in their order.
//! 3. Data synced without an error is durable: only rewriting or truncating touches it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::ProcessId;
use super::random::Random;
use crate::{DirectoryEntry, FileSystemKind, Metadata, Space};

/// What a device writes whole or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;
/// `SECTOR_BYTES` as a length in memory.
const SECTOR: usize = 512;
/// Space of a disk without a set capacity.
const CAPACITY_DEFAULT: u64 = 1 << 40;
/// Longest file; simulated files live in memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

pub(super) type InodeNumber = u64;
const ROOT: InodeNumber = 0;

const ZEROS: [u8; SECTOR] = [0; SECTOR];

/// A sector's content; `None` for zeros, so that filling new files stays cheap.
type Sector = Option<Box<[u8; SECTOR]>>;

/// A whole disk. Cloning it makes an image.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    inodes: BTreeMap<InodeNumber, Inode>,
    next_inode: InodeNumber,
    /// Name changes that the medium may not hold yet, oldest first; and in which directories.
    pending: BTreeMap<u64, NameChange>,
    pending_in: BTreeMap<InodeNumber, BTreeSet<u64>>,
    next_change: u64,
    /// Files with something in `dirty` or another length than the durable one.
    dirty_files: BTreeSet<InodeNumber>,
    /// Paths that cannot be found although they are there.
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) capacity: Option<u64>,
    pub(super) read_only: bool,
    pub(super) kind: FileSystemKind,
    /// Bytes handed to the device.
    pub(super) bytes_written: u64,
    /// Invariant: the sum of the lengths of all files.
    used: u64,
}

#[derive(Clone, Debug)]
enum Inode {
    File(FileNode),
    Directory(DirectoryNode),
}

#[derive(Clone, Debug, Default)]
struct DirectoryNode {
    names: BTreeMap<String, InodeNumber>,
    durable: BTreeMap<String, InodeNumber>,
}

#[derive(Clone, Debug, Default)]
struct FileNode {
    content: Vec<u8>,
    durable_length: u64,
    /// Sectors that a sync has to persist, with what the medium holds now.
    dirty: BTreeMap<u64, Sector>,
    /// Sectors that a failed sync gave up, with what the medium holds now.
    lost: BTreeMap<u64, Sector>,
    /// Visible names.
    links: u64,
    handles: u64,
    /// Durable names, and changes in flight that give it one.
    held: u64,
    /// The open file that holds the advisory lock.
    lock: Option<LockHolder>,
}

/// An open file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockHolder {
    pub(super) process: ProcessId,
    pub(super) handle: u64,
}

/// One atomic change of names: each edit sets a name of a directory, or removes it.
#[derive(Clone, Debug)]
struct NameChange(Vec<(InodeNumber, String, Option<InodeNumber>)>);

impl NameChange {
    fn touches(&self, directory: InodeNumber, name: &str) -> bool {
        self.0.iter().any(|(at, held, _)| *at == directory && held == name)
    }
}

impl FileNode {
    fn length(&self) -> u64 {
        self.content.len() as u64
    }

    /// A sector as reads see it, zeros beyond the end.
    fn sector(&self, number: u64) -> Sector {
        let start = to_index(number * SECTOR_BYTES);
        let held = self.content.get(start..)?;
        let held = &held[..held.len().min(SECTOR)];
        let mut sector = (*held != ZEROS[..held.len()]).then(|| Box::new([0; SECTOR]))?;
        sector[..held.len()].copy_from_slice(held);
        Some(sector)
    }

    /// Remembers what the medium holds before a sector changes.
    fn touch(&mut self, number: u64) {
        if !self.dirty.contains_key(&number) {
            let durable = self.lost.remove(&number).unwrap_or_else(|| self.sector(number));
            self.dirty.insert(number, durable);
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        if end > self.length() {
            self.grow(end);
        }
        for number in offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            self.touch(number);
        }
        self.content[to_index(offset)..to_index(end)].copy_from_slice(bytes);
    }

    fn set_length(&mut self, length: u64) {
        for number in length / SECTOR_BYTES..self.length().div_ceil(SECTOR_BYTES) {
            self.touch(number);
        }
        self.content.truncate(to_index(length));
        self.grow(length);
    }

    /// Fills with zeros up to `length`, sector by sector: hardly optimised, it would go byte
    /// by byte otherwise.
    fn grow(&mut self, length: u64) {
        let length = to_index(length);
        self.content.reserve(length.saturating_sub(self.content.len()));
        while self.content.len() < length {
            let missing = (length - self.content.len()).min(SECTOR);
            self.content.extend_from_slice(&ZEROS[..missing]);
        }
    }

    fn put_back(&mut self, number: u64, durable: &Sector) {
        let start = to_index(number * SECTOR_BYTES).min(self.content.len());
        let end = (start + SECTOR).min(self.content.len());
        match durable {
            Some(durable) => self.content[start..end].copy_from_slice(&durable[..end - start]),
            None => self.content[start..end].fill(0),
        }
    }

    fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.durable_length == self.length()
    }

    /// Leaves what the medium holds: each dirty sector arrived with probability `kept`.
    fn power_loss(&mut self, random: &mut Random, kept: f64) {
        let length = self.length();
        let survived = match self.durable_length {
            durable if durable == length => length,
            durable if durable < length && random.chance(0.3) => {
                let sectors = (length - durable).div_ceil(SECTOR_BYTES);
                (durable + random.below(sectors + 1) * SECTOR_BYTES).min(length)
            }
            durable => {
                if random.chance(kept) {
                    length
                } else {
                    durable
                }
            }
        };
        // A truncation that did not arrive leaves everything behind it.
        let cut_undone = survived > length;
        self.grow(length.max(survived));
        for (number, durable) in std::mem::take(&mut self.dirty) {
            let beyond = cut_undone && (number + 1) * SECTOR_BYTES > length;
            if beyond || !random.chance(kept) {
                self.put_back(number, &durable);
            }
        }
        for (number, durable) in std::mem::take(&mut self.lost) {
            self.put_back(number, &durable);
        }
        self.content.truncate(to_index(survived));
        self.durable_length = survived;
        self.handles = 0;
        self.lock = None;
    }
}

/// An index into memory; lengths are bounded by `FILE_BYTES_MAX`.
fn to_index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Disk {
    pub(super) fn new() -> Disk {
        Disk {
            inodes: BTreeMap::from([(ROOT, Inode::Directory(DirectoryNode::default()))]),
            next_inode: ROOT + 1,
            pending: BTreeMap::new(),
            pending_in: BTreeMap::new(),
            next_change: 0,
            dirty_files: BTreeSet::new(),
            hidden: BTreeSet::new(),
            capacity: None,
            read_only: false,
            kind: FileSystemKind::Local,
            bytes_written: 0,
            used: 0,
        }
    }

    // Paths.

    fn components(path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    names.push(name.to_str().ok_or(ErrorKind::InvalidInput)?.to_owned());
                }
                Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
            }
        }
        Ok(names)
    }

    fn directory(&self, inode: InodeNumber) -> io::Result<&DirectoryNode> {
        match self.inodes.get(&inode) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn walk(&self, names: &[String]) -> io::Result<InodeNumber> {
        names.iter().try_fold(ROOT, |inode, name| {
            self.directory(inode)?.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    fn find(&self, path: &Path) -> io::Result<InodeNumber> {
        if self.hidden.contains(path) {
            return Err(ErrorKind::NotFound.into());
        }
        self.walk(&Disk::components(path)?)
    }

    /// The directory that holds the last name of `path`, and that name.
    fn find_parent(&self, path: &Path) -> io::Result<(InodeNumber, String)> {
        let mut names = Disk::components(path)?;
        let name = names.pop().ok_or(ErrorKind::InvalidInput)?;
        let parent = self.walk(&names)?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    fn name_in(&self, directory: InodeNumber, name: &str) -> Option<InodeNumber> {
        self.directory(directory).ok()?.names.get(name).copied()
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    // Names.

    fn change(&mut self, edits: Vec<(InodeNumber, String, Option<InodeNumber>)>) {
        let targets = || edits.iter().filter_map(|(.., target)| *target);
        targets().for_each(|target| self.count(target, |file| file.held += 1));
        for (directory, name, target) in &edits {
            if let Some(Inode::Directory(directory)) = self.inodes.get_mut(directory) {
                let before = match target {
                    Some(target) => directory.names.insert(name.clone(), *target),
                    None => directory.names.remove(name),
                };
                if let Some(target) = target {
                    self.count(*target, |file| file.links += 1);
                }
                if let Some(before) = before {
                    self.count(before, |file| file.links = file.links.saturating_sub(1));
                }
            }
        }
        for (directory, ..) in &edits {
            self.pending_in.entry(*directory).or_default().insert(self.next_change);
        }
        self.pending.insert(self.next_change, NameChange(edits));
        self.next_change += 1;
    }

    /// Counts what leads to a file. One that nothing leads to any more, no name, no handle, no
    /// durable name and no change in flight, is freed.
    fn count(&mut self, inode: InodeNumber, count: impl FnOnce(&mut FileNode)) {
        if let Some(Inode::File(file)) = self.inodes.get_mut(&inode) {
            count(file);
            if (file.links, file.handles, file.held) == (0, 0, 0) {
                self.forget(inode);
            }
        }
    }

    fn add(&mut self, inode: Inode) -> InodeNumber {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        number
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<InodeNumber> {
        let inode = self.find(path)?;
        match self.inodes.get_mut(&inode) {
            Some(Inode::File(file)) => {
                file.handles += 1;
                Ok(inode)
            }
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn create_new(&mut self, path: &Path) -> io::Result<InodeNumber> {
        let (parent, name) = self.find_parent(path)?;
        if self.name_in(parent, &name).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.writable()?;
        let inode = self.add(Inode::File(FileNode { handles: 1, ..FileNode::default() }));
        self.change(vec![(parent, name, Some(inode))]);
        Ok(inode)
    }

    /// Creates missing directories and makes all names on the way durable.
    pub(super) fn create_directories(&mut self, path: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in Disk::components(path)? {
            let next = match self.directory(at)?.names.get(&name) {
                Some(inode) => *inode,
                None => {
                    self.writable()?;
                    let inode = self.add(Inode::Directory(DirectoryNode::default()));
                    self.change(vec![(at, name, Some(inode))]);
                    inode
                }
            };
            self.directory(next)?;
            self.flush_names(at);
            at = next;
        }
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.find(from)?;
        let (parent, name) = self.find_parent(to)?;
        if self.name_in(parent, &name).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if self.directory(inode).is_ok() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.writable()?;
        self.change(vec![(parent, name, Some(inode))]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.find(from)?;
        let (from_parent, from_name) = self.find_parent(from)?;
        let (to_parent, to_name) = self.find_parent(to)?;
        self.writable()?;
        if let Some(replaced) = self.name_in(to_parent, &to_name) {
            if replaced == inode {
                return Ok(());
            }
            match (self.directory(inode), self.directory(replaced)) {
                (Ok(_), Ok(directory)) if !directory.names.is_empty() => {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                (Ok(_), Err(_)) => return Err(ErrorKind::NotADirectory.into()),
                (Err(_), Ok(_)) => return Err(ErrorKind::IsADirectory.into()),
                _ => {}
            }
        }
        self.change(vec![(to_parent, to_name, Some(inode)), (from_parent, from_name, None)]);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.find(path)?;
        if self.directory(inode).is_ok() {
            return Err(ErrorKind::IsADirectory.into());
        }
        self.writable()?;
        let (parent, name) = self.find_parent(path)?;
        self.change(vec![(parent, name, None)]);
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.find(path)?;
        if !self.directory(inode)?.names.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.writable()?;
        let (parent, name) = self.find_parent(path)?;
        self.change(vec![(parent, name, None)]);
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let directory = self.directory(self.find(path)?)?;
        let visible = directory
            .names
            .iter()
            .filter(|(name, _)| self.hidden.is_empty() || !self.hidden.contains(&path.join(name)));
        Ok(visible
            .map(|(name, inode)| DirectoryEntry {
                name: name.clone(),
                is_directory: self.directory(*inode).is_ok(),
            })
            .collect())
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.find(path)?;
        self.directory(inode)?;
        self.flush_names(inode);
        Ok(())
    }

    /// Makes the changes that touch `directory` durable, and with them every earlier change of the
    /// same names.
    fn flush_names(&mut self, directory: InodeNumber) {
        let mut flushed = self.pending_in.get(&directory).cloned().unwrap_or_default();
        let mut look: Vec<u64> = flushed.iter().copied().collect();
        while let Some(number) = look.pop() {
            let Some(change) = self.pending.get(&number) else { continue };
            // Of this directory all are.
            for (at, name, _) in change.0.iter().filter(|(at, ..)| *at != directory) {
                let earlier = self.pending_in.get(at).into_iter().flat_map(|numbers| numbers.range(..number));
                look.extend(earlier.filter(|earlier| {
                    self.pending[*earlier].touches(*at, name) && flushed.insert(**earlier)
                }));
            }
        }
        flushed.into_iter().for_each(|number| self.persist(number));
    }

    /// Makes a change durable that was in flight.
    fn persist(&mut self, number: u64) {
        let Some(change) = self.pending.remove(&number) else { return };
        for (directory, name, target) in &change.0 {
            if let Entry::Occupied(mut numbers) = self.pending_in.entry(*directory) {
                numbers.get_mut().remove(&number);
                if numbers.get().is_empty() {
                    numbers.remove();
                }
            }
            if let Some(Inode::Directory(directory)) = self.inodes.get_mut(directory) {
                let before = match target {
                    Some(target) => directory.durable.insert(name.clone(), *target),
                    None => directory.durable.remove(name),
                };
                if let Some(target) = target {
                    self.count(*target, |file| file.held += 1);
                }
                if let Some(before) = before {
                    self.count(before, |file| file.held = file.held.saturating_sub(1));
                }
            }
        }
        for target in change.0.iter().filter_map(|(.., target)| *target) {
            self.count(target, |file| file.held = file.held.saturating_sub(1));
        }
    }

    fn forget(&mut self, inode: InodeNumber) {
        if let Some(Inode::File(file)) = self.inodes.remove(&inode) {
            self.used -= file.length();
        }
        self.dirty_files.remove(&inode);
    }

    pub(super) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        Ok(match self.inodes.get(&self.find(path)?) {
            Some(Inode::File(file)) => Metadata { length: file.length(), is_directory: false },
            _ => Metadata { length: 0, is_directory: true },
        })
    }

    pub(super) fn space(&self) -> Space {
        let total = self.capacity.unwrap_or(CAPACITY_DEFAULT);
        Space { available: total.saturating_sub(self.used), total }
    }

    // Content. An inode that is gone belongs to a world before a power loss: its holders are dead.

    fn file(&self, inode: InodeNumber) -> io::Result<&FileNode> {
        match self.inodes.get(&inode) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Changes a file's content and keeps the books.
    fn alter(&mut self, inode: InodeNumber, alter: impl FnOnce(&mut FileNode)) -> io::Result<()> {
        let Some(Inode::File(file)) = self.inodes.get_mut(&inode) else {
            return Err(ErrorKind::NotFound.into());
        };
        self.used -= file.length();
        alter(file);
        self.used += file.length();
        if file.is_clean() {
            self.dirty_files.remove(&inode);
        } else {
            self.dirty_files.insert(inode);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, inode: InodeNumber) {
        self.count(inode, |file| file.handles = file.handles.saturating_sub(1));
    }

    pub(super) fn add_handle(&mut self, inode: InodeNumber) {
        if let Some(Inode::File(file)) = self.inodes.get_mut(&inode) {
            file.handles += 1;
        }
    }

    /// Takes the lock, unless another open file holds it.
    pub(super) fn try_lock(&mut self, inode: InodeNumber, holder: LockHolder) -> io::Result<bool> {
        let Some(Inode::File(file)) = self.inodes.get_mut(&inode) else {
            return Err(ErrorKind::NotFound.into());
        };
        Ok(*file.lock.get_or_insert(holder) == holder)
    }

    pub(super) fn unlock(&mut self, inode: InodeNumber, holder: LockHolder) {
        if let Some(Inode::File(file)) = self.inodes.get_mut(&inode) {
            file.lock = file.lock.filter(|held| *held != holder);
        }
    }

    /// Gives up all locks of a process that has ended.
    pub(super) fn unlock_all(&mut self, process: ProcessId) {
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.lock = file.lock.filter(|held| held.process != process);
            }
        }
    }

    pub(super) fn length(&self, inode: InodeNumber) -> io::Result<u64> {
        Ok(self.file(inode)?.length())
    }

    pub(super) fn read(&self, inode: InodeNumber, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = &self.file(inode)?.content;
        let start = to_index(offset).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    /// Writes `bytes`; what does not fit on the disk is not written, and that is an error.
    pub(super) fn write(&mut self, inode: InodeNumber, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        let length = self.length(inode)?;
        let end = offset
            .checked_add(bytes.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX)
            .ok_or(ErrorKind::FileTooLarge)?;
        let room = length.saturating_add(self.space().available);
        let fitting = to_index(room.saturating_sub(offset)).min(bytes.len());
        self.alter(inode, |file| file.write(offset, &bytes[..fitting]))?;
        if end > room { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Writes some of the sectors of `bytes`, as an interrupted or failed write does.
    pub(super) fn write_torn(&mut self, inode: InodeNumber, bytes: &[u8], offset: u64, random: &mut Random) {
        let prefix_only = random.chance(0.5);
        let mut start = 0;
        while start < bytes.len() {
            let end = (start + SECTOR - to_index((offset + start as u64) % SECTOR_BYTES)).min(bytes.len());
            if random.chance(0.5) {
                // Failing again (no space, read-only) is what a failed write may do.
                let _ = self.write(inode, &bytes[start..end], offset + start as u64);
            } else if prefix_only {
                return;
            }
            start = end;
        }
    }

    pub(super) fn set_length(&mut self, inode: InodeNumber, length: u64) -> io::Result<()> {
        self.writable()?;
        if length > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if length.saturating_sub(self.length(inode)?) > self.space().available {
            return Err(ErrorKind::StorageFull.into());
        }
        self.alter(inode, |file| file.set_length(length))
    }

    pub(super) fn sync(&mut self, inode: InodeNumber) -> io::Result<()> {
        let mut sectors = 0;
        self.alter(inode, |file| {
            sectors = file.dirty.len() as u64;
            file.dirty.clear();
            file.durable_length = file.length();
        })?;
        self.bytes_written += sectors * SECTOR_BYTES;
        Ok(())
    }

    /// A sync that fails as Linux does: the dirty sectors count as clean from now on, reads still
    /// see them, the medium got some of them.
    pub(super) fn fail_sync(&mut self, inode: InodeNumber, random: &mut Random) {
        let kept = if random.chance(0.5) { 0.5 } else { 0.0 };
        // An inode that is gone has nothing to lose.
        let _ = self.alter(inode, |file| {
            for (number, durable) in std::mem::take(&mut file.dirty) {
                if !random.chance(kept) {
                    file.lost.insert(number, durable);
                }
            }
        });
    }

    // The medium.

    /// The kernel writes back whatever it likes, at any time.
    pub(super) fn write_back(&mut self, random: &mut Random) {
        if !self.pending.is_empty() && random.chance(0.3) {
            // Some change, unless an earlier one is of the same name.
            let index = random.index(self.pending.len());
            if let Some((number, change)) = self.pending.iter().nth(index)
                && !change.0.iter().any(|(at, name, _)| {
                    self.pending_in[at]
                        .range(..number)
                        .any(|earlier| self.pending[earlier].touches(*at, name))
                })
            {
                self.persist(*number);
            }
        }
        if self.dirty_files.is_empty() {
            return;
        }
        let Some(inode) = self.dirty_files.iter().nth(random.index(self.dirty_files.len())).copied() else {
            return;
        };
        let mut written = 0;
        // The set names only files that are there.
        let _ = self.alter(inode, |file| {
            if random.chance(0.3) && file.durable_length < file.length() {
                file.durable_length = file.length();
            }
            // Behind a cut or an extension that is not durable yet, the medium keeps what it holds.
            let end = if file.durable_length > file.length() {
                file.length()
            } else {
                file.durable_length.next_multiple_of(SECTOR_BYTES)
            };
            let numbers: Vec<u64> =
                file.dirty.keys().copied().take_while(|number| (number + 1) * SECTOR_BYTES <= end).collect();
            if !numbers.is_empty() {
                let first = random.index(numbers.len());
                let run = 1 + random.index((numbers.len() - first).min(8));
                for number in &numbers[first..first + run] {
                    file.dirty.remove(number);
                    written += 1;
                }
            }
        });
        self.bytes_written += written * SECTOR_BYTES;
    }

    /// The page cache is gone: synced data stays, and a random part of the rest.
    pub(super) fn power_loss(&mut self, random: &mut Random) {
        let kept_names = [0.0, 0.5, 1.0][random.index(3)];
        // A journal keeps a prefix; other file systems keep what they like.
        let prefix = random.chance(0.5).then(|| random.index(self.pending.len() + 1));
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        for (index, number) in numbers.into_iter().enumerate() {
            if prefix.map_or_else(|| random.chance(kept_names), |prefix| index < prefix) {
                self.persist(number);
            }
        }
        self.pending.clear();
        self.pending_in.clear();
        for inode in self.inodes.values_mut() {
            if let Inode::Directory(directory) = inode {
                directory.names = directory.durable.clone();
            }
        }
        self.drop_unreachable();
        let kept_sectors = [0.0, 0.2, 0.5, 0.9, 1.0][random.index(5)];
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.power_loss(random, kept_sectors);
            }
        }
        self.dirty_files.clear();
        self.count_all();
    }

    fn drop_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut queue = vec![ROOT];
        while let Some(at) = queue.pop() {
            if let Some(Inode::Directory(directory)) = self.inodes.get(&at) {
                queue.extend(directory.names.values().filter(|inode| reached.insert(**inode)));
            }
        }
        self.inodes.retain(|inode, _| reached.contains(inode));
    }

    /// Counts anew what leads to each file, when no change is in flight.
    fn count_all(&mut self) {
        let mut counts: BTreeMap<InodeNumber, (u64, u64)> = BTreeMap::new();
        for inode in self.inodes.values() {
            if let Inode::Directory(directory) = inode {
                directory.names.values().for_each(|target| counts.entry(*target).or_default().0 += 1);
                directory.durable.values().for_each(|target| counts.entry(*target).or_default().1 += 1);
            }
        }
        self.used = 0;
        for (number, inode) in &mut self.inodes {
            if let Inode::File(file) = inode {
                (file.links, file.held) = counts.get(number).copied().unwrap_or_default();
                self.used += file.length();
            }
        }
    }

    /// Everything becomes durable and nothing is open: the state of a disk that was unmounted in
    /// peace.
    pub(super) fn settle(&mut self) {
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.persist(number));
        self.pending_in.clear();
        self.drop_unreachable();
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.dirty.clear();
                file.lost.clear();
                file.durable_length = file.length();
                file.handles = 0;
                file.lock = None;
            }
        }
        self.dirty_files.clear();
        self.count_all();
    }

    // A tester's hands.

    pub(super) fn content(&self, path: &Path) -> io::Result<&[u8]> {
        Ok(&self.file(self.walk(&Disk::components(path)?)?)?.content)
    }

    /// Replaces a file's content on the medium and in the cache, creating the file where it is
    /// missing.
    pub(super) fn damage(&mut self, path: &Path, alter: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let inode = self.walk(&Disk::components(path)?)?;
        self.alter(inode, |file| {
            alter(&mut file.content);
            let sectors = file.length().div_ceil(SECTOR_BYTES);
            file.dirty.retain(|number, _| *number < sectors);
            file.lost.retain(|number, _| *number < sectors);
            file.durable_length = file.durable_length.min(file.length());
        })
    }

    /// Every file with its path, as reads see it.
    pub(super) fn all_files(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut queue = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, inode)) = queue.pop() {
            match self.inodes.get(&inode) {
                Some(Inode::File(file)) => found.push((path, file.length())),
                Some(Inode::Directory(directory)) => {
                    queue.extend(directory.names.iter().map(|(name, inode)| (path.join(name), *inode)));
                }
                None => {}
            }
        }
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests;
