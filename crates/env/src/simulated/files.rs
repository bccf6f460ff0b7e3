//! Files and mappings of a simulated process: each call is one operation, counted, traced, and open
//! to faults.
//!
//! Stores to mappings go through a store buffer, as on x86: bytes written become visible to other
//! processes in their order but late, at the latest with the process's next fence, sequentially
//! consistent store, file call or poll. The process itself sees them at once.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ProcessId;
use super::disk::{Disk, InodeNumber, LockHolder};
use super::fault::{Action, Crash, Fault, Operation, OperationKind, crash_error};
use super::random::Random;
use super::scheduler::{Shared, Yield};
use super::state::{BufferedStore, State};
use crate::file::check_alignment;
use crate::{
    Access, BoxFuture, DirectoryEntry, File, FileSystem, FileSystemFacts, FileSystemKind, Mapping, Metadata,
    Space, ZoneControl,
};

/// Virtual time of an operation, and of one that waits for the device.
const OPERATION_NANOS: u64 = 2_000;
const SYNC_NANOS: u64 = 80_000;
/// Stores that may be under way; processors have about 50 entries.
const BUFFERED_STORES_MAX: usize = 48;

/// As `ulimit -n` says on most hosts; nothing here enforces it.
pub(super) const OPEN_FILES_MAX: usize = 1024;

/// What direct reads and writes must be aligned to.
const DIRECT_ALIGNMENT: usize = 4096;

/// How much of an operation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Some part; nothing or everything where there are no parts.
    Torn,
    /// It fails, and leaves behind what a failure leaves.
    Failed,
}

/// What the faults say about an operation.
#[derive(Clone, Copy)]
enum Verdict {
    Proceed,
    Fail(ErrorKind),
    Crash(Crash),
}

#[derive(Clone)]
pub(super) struct SimulatedFiles {
    shared: Arc<Shared>,
    process: ProcessId,
}

impl fmt::Debug for SimulatedFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedFiles(process {})", self.process.0)
    }
}

impl SimulatedFiles {
    pub(super) fn new(shared: Arc<Shared>, process: ProcessId) -> SimulatedFiles {
        SimulatedFiles { shared, process }
    }

    /// Counts and traces an operation, lets others run before it, and asks the faults.
    fn begin(
        &self,
        kind: OperationKind,
        (path, from): (&Path, Option<&Path>),
        offset: u64,
        length: u64,
    ) -> io::Result<Verdict> {
        self.shared.preempt(self.process);
        let mut verdict = Verdict::Proceed;
        let mut hooks: Vec<Action> = Vec::new();
        let used_up = {
            let mut state = self.shared.state.lock();
            if !state.is_alive(self.process) {
                return Err(crash_error());
            }
            state.operations += 1;
            state.now += if matches!(kind, OperationKind::Sync | OperationKind::SyncDirectory) {
                SYNC_NANOS
            } else {
                OPERATION_NANOS
            };
            let process = state.process(self.process);
            process.operations += 1;
            process.mutations += u64::from(kind.is_mutation());
            let operation = Operation {
                process: self.process,
                number: process.operations,
                mutation: if kind.is_mutation() { process.mutations } else { 0 },
                kind,
                path: path.to_path_buf(),
                from: from.map(Path::to_path_buf),
                offset,
                length,
            };
            let now = state.now;
            state.trace.operation(now, &operation);
            self.write_back(&mut state);
            apply_faults(&mut state, &operation, &mut verdict, &mut hooks)
        };
        drop(used_up);
        for hook in hooks {
            match hook {
                Action::Stall(duration) => self.shared.stall(self.process, duration),
                Action::Call(mut call) => self.shared.call(self.process, &mut *call),
                Action::Fail(_) | Action::Crash(_) | Action::Take(_) => {}
            }
        }
        if self.shared.state.lock().is_alive(self.process) { Ok(verdict) } else { Err(crash_error()) }
    }

    fn write_back(&self, state: &mut State) {
        let probability = state.write_back;
        if state.disk_chance.chance(probability) {
            let host = state.process(self.process).host;
            let State { hosts, disk_chance, .. } = state;
            hosts[host.0 as usize].disk.write_back(disk_chance);
        }
        state.trickle_stores();
    }

    /// Runs an operation's effect under the lock, to the extent that the faults leave.
    fn finish<T>(
        &self,
        verdict: Verdict,
        effect: impl FnOnce(&mut Disk, &mut Random, Extent) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.shared.state.lock();
        let host = state.process(self.process).host;
        let State { hosts, disk_chance, .. } = &mut *state;
        let disk = &mut hosts[host.0 as usize].disk;
        match verdict {
            Verdict::Proceed => effect(disk, disk_chance, Extent::Whole),
            Verdict::Fail(kind) => {
                // Whatever it leaves behind, what the caller learns is the injected error.
                let _ = effect(disk, disk_chance, Extent::Failed);
                Err(kind.into())
            }
            Verdict::Crash(crash) => {
                let extent = [None, Some(Extent::Whole), Some(Extent::Torn)][disk_chance.index(3)];
                if let Some(extent) = extent {
                    // Nobody is left to learn the outcome.
                    let _ = effect(disk, disk_chance, extent);
                }
                drop(state);
                self.shared.crash(self.process, crash);
                Err(crash_error())
            }
        }
    }

    /// An operation that takes place whole or not at all.
    fn atomic<T>(
        &self,
        kind: OperationKind,
        path: &Path,
        effect: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        self.atomic_from(kind, None, path, effect)
    }

    /// The same, of two names.
    fn atomic_from<T>(
        &self,
        kind: OperationKind,
        from: Option<&Path>,
        path: &Path,
        effect: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        let verdict = self.begin(kind, (path, from), 0, 0)?;
        self.drain();
        self.finish(verdict, |disk, random, extent| match extent {
            Extent::Failed => Err(ErrorKind::Other.into()),
            Extent::Torn if random.chance(0.5) => Err(ErrorKind::Other.into()),
            _ => effect(disk),
        })
    }

    /// Makes all stores of this process visible, as entering the kernel does in effect.
    fn drain(&self) {
        let mut state = self.shared.state.lock();
        let count = state.process(self.process).stores.len();
        state.drain_stores(self.process, count);
    }

    fn handle(&self, inode: InodeNumber, path: &Path, access: Access) -> SimulatedFile {
        let mut state = self.shared.state.lock();
        let (boot, id) = (state.host_of(self.process).boot, state.fresh_id());
        SimulatedFile {
            handle: Handle { files: self.clone(), inode, path: path.to_path_buf(), boot },
            access,
            id,
        }
    }
}

/// Asks the faults about an operation; returns those that are used up, to be dropped outside the
/// lock.
fn apply_faults(
    state: &mut State,
    operation: &Operation,
    verdict: &mut Verdict,
    hooks: &mut Vec<Action>,
) -> Vec<Fault> {
    let mut used_up = Vec::new();
    let mut index = 0;
    while index < state.faults.len() {
        let fault = &mut state.faults[index];
        if !(fault.matching)(operation) {
            index += 1;
            continue;
        }
        if fault.skip > 0 {
            fault.skip -= 1;
            index += 1;
            continue;
        }
        fault.times = fault.times.saturating_sub(1);
        let last = fault.times == 0;
        let note = format!("fault {:?}", fault.action);
        match &mut fault.action {
            Action::Fail(kind) => *verdict = Verdict::Fail(*kind),
            Action::Crash(crash) => *verdict = Verdict::Crash(*crash),
            Action::Stall(duration) => hooks.push(Action::Stall(*duration)),
            Action::Take(takes) => {
                hooks.push(Action::Stall(takes(operation)));
                index += 1;
                continue;
            }
            // A hook acts once: it cannot stay in the list while it runs.
            Action::Call(_) => {
                let Fault { action, matching, .. } = state.faults.remove(index);
                hooks.push(action);
                used_up.push(Fault::new(Action::Stall(std::time::Duration::ZERO), matching));
                state.note(note);
                continue;
            }
        }
        state.note(note);
        if last {
            used_up.push(state.faults.remove(index));
        } else {
            index += 1;
        }
    }
    used_up
}

impl FileSystem for SimulatedFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let inode = self.atomic(OperationKind::Open, path, |disk| match access {
            Access::ReadWrite | Access::ReadWriteDirect if disk.read_only => {
                Err(ErrorKind::ReadOnlyFilesystem.into())
            }
            _ => disk.open(path),
        })?;
        Ok(Arc::new(self.handle(inode, path, access)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let inode = self.atomic(OperationKind::CreateNew, path, |disk| disk.create_new(path))?;
        Ok(Arc::new(self.handle(inode, path, Access::ReadWrite)))
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.atomic(OperationKind::CreateDirectories, path, |disk| disk.create_directories(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.atomic_from(OperationKind::HardLink, Some(from), to, |disk| disk.hard_link(from, to))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.atomic_from(OperationKind::Rename, Some(from), to, |disk| disk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.atomic(OperationKind::RemoveFile, path, |disk| disk.remove_file(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.atomic(OperationKind::RemoveDirectory, path, |disk| disk.remove_directory(path))
    }

    fn list_atomically(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.atomic(OperationKind::List, path, |disk| disk.list(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.atomic(OperationKind::SyncDirectory, path, |disk| disk.sync_directory(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.atomic(OperationKind::Metadata, path, |disk| disk.metadata(path))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.atomic(OperationKind::Metadata, path, |disk| disk.metadata(path).map(|_| disk.space()))
    }

    fn kind(&self, path: &Path) -> io::Result<FileSystemKind> {
        self.atomic(OperationKind::Metadata, path, |disk| disk.metadata(path).map(|_| disk.kind.clone()))
    }

    fn open_files_max(&self) -> usize {
        OPEN_FILES_MAX
    }

    fn io_uring(&self) -> Result<(), String> {
        Err("the simulated world completes reads in an order of its own".into())
    }

    fn facts(&self, path: &Path) -> io::Result<FileSystemFacts> {
        self.atomic(OperationKind::Metadata, path, |disk| {
            disk.metadata(path).map(|_| FileSystemFacts {
                name: match &disk.kind {
                    FileSystemKind::Local => "simulated".into(),
                    FileSystemKind::Network(name) | FileSystemKind::CopyOnWrite(name) => name.clone(),
                },
                options: if disk.read_only { "ro" } else { "rw" }.into(),
                in_memory: false,
                direct_io: Ok(DIRECT_ALIGNMENT),
                volatile_cache: Some(true),
                rotational: Some(false),
            })
        })
    }

    /// Simulated devices have none: zones are emulated in a file.
    fn zones(&self, path: &Path) -> io::Result<Arc<dyn ZoneControl>> {
        self.atomic(OperationKind::Open, path, |disk| disk.metadata(path))?;
        Err(ErrorKind::Unsupported.into())
    }

    fn device_bytes_written(&self, _path: &Path) -> Option<u64> {
        Some(self.shared.state.lock().host_of(self.process).disk.bytes_written)
    }
}

/// What keeps a file's content alive, and says who uses it.
struct Handle {
    files: SimulatedFiles,
    inode: InodeNumber,
    path: PathBuf,
    /// The host's boot in which it was opened.
    boot: u64,
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.files.shared.state.lock();
        let host = state.host_of(self.files.process);
        if host.boot == self.boot {
            host.disk.close(self.inode);
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    handle: Handle,
    access: Access,
    id: u64,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let holder = self.holder();
        let mut state = self.handle.files.shared.state.lock();
        let host = state.host_of(holder.process);
        if host.boot == self.handle.boot {
            host.disk.unlock(self.handle.inode, holder);
        }
    }
}

impl SimulatedFile {
    fn holder(&self) -> LockHolder {
        LockHolder { process: self.handle.files.process, handle: self.id }
    }

    fn is_writable(&self) -> bool {
        matches!(self.access, Access::ReadWrite | Access::ReadWriteDirect)
    }

    fn perform<T>(
        &self,
        kind: OperationKind,
        offset: u64,
        length: u64,
        effect: impl FnOnce(&mut Disk, &mut Random, Extent) -> io::Result<T>,
    ) -> io::Result<T> {
        let verdict = self.handle.files.begin(kind, (&self.handle.path, None), offset, length)?;
        self.handle.files.drain();
        if kind.is_mutation() && kind != OperationKind::Sync && !self.is_writable() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.handle.files.finish(verdict, effect)
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = buffer.len() as u64;
        self.perform(OperationKind::Read, offset, length, |disk, _, _| {
            disk.read(self.handle.inode, buffer, offset)
        })
    }

    /// In any order, others between them: as a device answers.
    fn read_many(self: Arc<Self>, ranges: Vec<(u64, usize)>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        Box::pin(async move {
            let mut results: Vec<_> = ranges.iter().map(|_| None).collect();
            let mut left: Vec<usize> = (0..ranges.len()).collect();
            while !left.is_empty() {
                let (next, waits) = {
                    let mut state = self.handle.files.shared.state.lock();
                    (state.schedule.index(left.len()), state.schedule.chance(0.5))
                };
                if waits {
                    Yield(false).await;
                }
                let index = left.swap_remove(next);
                let (offset, length) = ranges[index];
                let mut buffer = vec![0; length];
                results[index] = Some(self.read_at(&mut buffer, offset).map(|count| {
                    buffer.truncate(count);
                    buffer
                }));
            }
            results.into_iter().flatten().collect()
        })
    }

    /// Half of the time, as if the other half was not there.
    fn with_held(&self, offset: u64, length: usize, show: &mut dyn FnMut(&[u8])) -> bool {
        let is_held =
            self.direct_alignment().is_none() && self.handle.files.shared.state.lock().schedule.chance(0.5);
        let mut buffer = vec![0; length];
        let shown = is_held && self.read_at(&mut buffer, offset).is_ok_and(|count| count == length);
        if shown {
            show(&buffer);
        }
        shown
    }

    fn direct_alignment(&self) -> Option<usize> {
        matches!(self.access, Access::ReadDirect | Access::ReadWriteDirect).then_some(DIRECT_ALIGNMENT)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(align) = self.direct_alignment() {
            check_alignment(align, bytes.len(), offset)?;
        }
        self.perform(OperationKind::Write, offset, bytes.len() as u64, |disk, random, extent| match extent {
            Extent::Whole => disk.write(self.handle.inode, bytes, offset),
            Extent::Torn | Extent::Failed => {
                disk.write_torn(self.handle.inode, bytes, offset, random);
                Ok(())
            }
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.perform(OperationKind::SetLength, 0, length, |disk, _, extent| match extent {
            Extent::Whole => disk.set_length(self.handle.inode, length),
            Extent::Torn | Extent::Failed => Ok(()),
        })
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.perform(OperationKind::SetLength, 0, length, |disk, _, extent| match extent {
            Extent::Whole if disk.length(self.handle.inode)? > length => Err(ErrorKind::InvalidInput.into()),
            Extent::Whole => disk.set_length(self.handle.inode, length),
            Extent::Torn | Extent::Failed => Ok(()),
        })
    }

    fn write_out(&self, offset: u64, length: u64) -> io::Result<()> {
        self.perform(OperationKind::WriteOut, offset, length, |disk, random, extent| {
            if extent == Extent::Failed {
                disk.fail_sync(self.handle.inode, random);
            }
            // What the device was given is in its volatile cache: as good as nothing, until a sync.
            Ok(())
        })
    }

    fn read_once(&self) {}

    fn length(&self) -> io::Result<u64> {
        self.perform(OperationKind::Metadata, 0, 0, |disk, _, _| disk.length(self.handle.inode))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.perform(OperationKind::Sync, 0, 0, |disk, random, extent| match extent {
            Extent::Whole => disk.sync(self.handle.inode),
            // A power loss in the middle keeps a random part anyway.
            Extent::Torn => Ok(()),
            Extent::Failed => {
                disk.fail_sync(self.handle.inode, random);
                Ok(())
            }
        })
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.perform(OperationKind::Lock, 0, 0, |disk, _, extent| match extent {
            Extent::Whole => disk.try_lock(self.handle.inode, self.holder()),
            Extent::Torn | Extent::Failed => Ok(false),
        })
    }

    fn map(&self, length: usize) -> io::Result<Arc<dyn Mapping>> {
        let inode = self.handle.inode;
        self.perform(OperationKind::Map, 0, length as u64, |disk, _, extent| {
            if !self.is_writable() {
                return Err(ErrorKind::PermissionDenied.into());
            }
            if length == 0 || disk.length(inode)? < length as u64 {
                return Err(io::Error::new(
                    ErrorKind::InvalidInput,
                    "the file is shorter than the mapping, or that is empty",
                ));
            }
            if extent == Extent::Whole {
                disk.add_handle(inode);
            }
            Ok(())
        })?;
        let Handle { files, path, boot, .. } = &self.handle;
        Ok(Arc::new(SimulatedMapping {
            handle: Handle { files: files.clone(), inode, path: path.clone(), boot: *boot },
            length,
        }))
    }
}

#[derive(Debug)]
struct SimulatedMapping {
    handle: Handle,
    length: usize,
}

impl SimulatedMapping {
    /// Runs one operation; nothing when the process has ended.
    fn perform<T: Default>(
        &self,
        kind: OperationKind,
        offset: usize,
        length: usize,
        effect: impl FnOnce(&mut State, Extent) -> T,
    ) -> T {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "range {offset}+{length} lies outside a mapping of {} bytes",
            self.length
        );
        let files = &self.handle.files;
        let Ok(verdict) = files.begin(kind, (&self.handle.path, None), offset as u64, length as u64) else {
            return T::default();
        };
        let crash = match verdict {
            Verdict::Proceed => return effect(&mut files.shared.state.lock(), Extent::Whole),
            // A page that the device cannot give or take ends the process.
            Verdict::Fail(_) => Crash::Kill,
            Verdict::Crash(crash) => crash,
        };
        {
            let mut state = files.shared.state.lock();
            let extent = [None, Some(Extent::Whole), Some(Extent::Torn)][state.disk_chance.index(3)];
            if let Some(extent) = extent {
                effect(&mut state, extent);
            }
        }
        files.shared.crash(files.process, crash);
        T::default()
    }

    fn word(&self, kind: OperationKind, offset: usize, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        assert!(offset.is_multiple_of(8), "word at {offset} is not 8-byte aligned");
        self.perform(kind, offset, 8, |state, _| {
            if kind != OperationKind::MapLoad {
                let count = state.process(self.handle.files.process).stores.len();
                state.drain_stores(self.handle.files.process, count);
            }
            let mut word = [0; 8];
            self.load(state, offset, &mut word);
            let before = u64::from_le_bytes(word);
            if let Some(after) = change(before) {
                self.store(state, offset, &after.to_le_bytes());
            }
            before
        })
    }

    /// Loads what this process sees: the cache, and its own stores that are under way.
    fn load(&self, state: &mut State, offset: usize, buffer: &mut [u8]) {
        let files = &self.handle.files;
        // A file that is gone, or cut, reads as zeros: the process cannot act on them before it
        // ends.
        let _ = state.host_of(files.process).disk.read(self.handle.inode, buffer, offset as u64);
        for store in &state.process(files.process).stores {
            if store.inode == self.handle.inode {
                overlay(buffer, offset as u64, &store.bytes, store.offset);
            }
        }
    }

    fn store(&self, state: &mut State, offset: usize, bytes: &[u8]) {
        let host = state.host_of(self.handle.files.process);
        // As in `State::drain_stores`.
        let _ = host.disk.write(self.handle.inode, bytes, offset as u64);
    }
}

/// Copies the part of `bytes` (at `bytes_at`) that lies in `buffer` (at `buffer_at`).
fn overlay(buffer: &mut [u8], buffer_at: u64, bytes: &[u8], bytes_at: u64) {
    for (at, byte) in (bytes_at..).zip(bytes) {
        if let Some(slot) = at
            .checked_sub(buffer_at)
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| buffer.get_mut(index))
        {
            *slot = *byte;
        }
    }
}

impl Mapping for SimulatedMapping {
    fn length(&self) -> usize {
        self.length
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.perform(OperationKind::MapWrite, offset, bytes.len(), |state, extent| {
            let stored = match extent {
                Extent::Whole => bytes.len(),
                _ => state.disk_chance.index(bytes.len() + 1),
            };
            let process = self.handle.files.process;
            // Pieces, so that others may see a part; each lies in one sector.
            let mut start = 0;
            while start < stored {
                let end = (start + 512 - (offset + start) % 512).min(stored);
                let store = BufferedStore {
                    inode: self.handle.inode,
                    offset: (offset + start) as u64,
                    bytes: bytes[start..end].to_vec(),
                };
                state.process(process).stores.push_back(store);
                start = end;
            }
            let over = state.process(process).stores.len().saturating_sub(BUFFERED_STORES_MAX);
            state.drain_stores(process, over);
        });
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        let length = buffer.len();
        self.perform(OperationKind::MapRead, offset, length, |state, _| self.load(state, offset, buffer));
    }

    fn load_u64(&self, offset: usize) -> u64 {
        self.word(OperationKind::MapLoad, offset, |_| None)
    }

    fn store_u64(&self, offset: usize, value: u64) {
        self.word(OperationKind::MapStore, offset, |_| Some(value));
    }

    fn fetch_max_u64(&self, offset: usize, value: u64) -> u64 {
        self.word(OperationKind::MapFetchMax, offset, |before| (before < value).then_some(value))
    }

    fn full_fence(&self) {
        self.perform(OperationKind::MapFence, 0, 0, |state, _| {
            let process = self.handle.files.process;
            let count = state.process(process).stores.len();
            state.drain_stores(process, count);
        });
    }

    fn populate(&self, offset: usize, length: usize) -> io::Result<()> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "range {offset}+{length} lies outside a mapping of {} bytes",
            self.length
        );
        let files = &self.handle.files;
        let verdict = files.begin(
            OperationKind::MapPopulate,
            (&self.handle.path, None),
            offset as u64,
            length as u64,
        )?;
        files.finish(verdict, |_, _, _| Ok(()))
    }

    fn let_go(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "range {offset}+{length} lies outside a mapping of {} bytes",
            self.length
        );
    }
}
