//! Operations of a simulated process on its disk, and what may go wrong with each.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use super::{ProcessId, World};

/// What a process asked of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the calls of `FileSystem`, `File` and `Mapping`")]
pub enum OperationKind {
    Open,
    CreateNew,
    CreateDirectories,
    HardLink,
    Rename,
    RemoveFile,
    RemoveDirectory,
    List,
    SyncDirectory,
    /// `metadata`, `length`, `space` and `kind`.
    Metadata,
    Read,
    Write,
    /// `set_length` and `allocate`.
    SetLength,
    WriteOut,
    Sync,
    Lock,
    Map,
    MapPopulate,
    MapWrite,
    MapRead,
    MapLoad,
    MapStore,
    MapFetchMax,
    MapFence,
}

impl OperationKind {
    /// Whether it changes what the disk or its cache holds, or makes that durable.
    pub const fn is_mutation(self) -> bool {
        !matches!(
            self,
            OperationKind::Open
                | OperationKind::List
                | OperationKind::Metadata
                | OperationKind::Read
                | OperationKind::Lock
                | OperationKind::Map
                | OperationKind::MapPopulate
                | OperationKind::MapRead
                | OperationKind::MapLoad
                | OperationKind::MapFence
        )
    }

    /// Whether it goes through a mapping, where nothing returns an error: a fault there kills the
    /// process, as SIGBUS does.
    pub const fn is_mapped(self) -> bool {
        matches!(
            self,
            OperationKind::MapWrite
                | OperationKind::MapRead
                | OperationKind::MapLoad
                | OperationKind::MapStore
                | OperationKind::MapFetchMax
                | OperationKind::MapFence
        )
    }
}

/// One operation of a process on its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who.
    pub process: ProcessId,
    /// The how manieth of this process, from 1.
    pub number: u64,
    /// The how manieth mutation of this process, from 1; 0 when it is none.
    pub mutation: u64,
    /// What.
    pub kind: OperationKind,
    /// On which path; that under which the file was opened for operations on open files and
    /// mappings.
    pub path: PathBuf,
    /// The name that it had before, or has besides, for `Rename` and `HardLink`.
    pub from: Option<PathBuf>,
    /// Offset in the file, where there is one.
    pub offset: u64,
    /// Bytes, or the new length for `SetLength`.
    pub length: u64,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { process, number, kind, path, offset, length, .. } = self;
        write!(
            formatter,
            "process {} operation {number}: {kind:?} {} at {offset}, {length} bytes",
            process.0,
            path.display()
        )
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Crash {
    /// `kill -9`: the page cache, and so data stored to mappings, stays.
    Kill,
    /// The host's power goes: all of its processes end, and its disk keeps synced data and a
    /// random part of the rest.
    PowerLoss,
}

/// What happens to an operation.
pub enum Action {
    /// It fails with this kind. A write may have written any part; a sync gives up the dirty data,
    /// for ever. On a mapping: the process is killed.
    Fail(ErrorKind),
    /// The process ends in it: nothing, all or some of its effect has taken place.
    Crash(Crash),
    /// The process stands still before it while the rest of the world goes on for this time.
    Stall(Duration),
    /// The same, for as long as this says of the operation: a device of some speed. It must not use
    /// the world, and leaves no trace.
    Take(Box<dyn FnMut(&Operation) -> Duration + Send>),
    /// The process stands still before it while this runs, which may drive the world (`run_until`,
    /// `run_for`, …). Runs once, whatever [`Fault::times`] says.
    Call(Box<dyn FnMut(&World) + Send>),
}

impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Fail(kind) => write!(formatter, "Fail({kind:?})"),
            Action::Crash(crash) => write!(formatter, "Crash({crash:?})"),
            Action::Stall(duration) => write!(formatter, "Stall({duration:?})"),
            Action::Take(_) => formatter.write_str("Take"),
            Action::Call(_) => formatter.write_str("Call"),
        }
    }
}

/// A condition on operations.
pub(super) type Condition = Box<dyn Fn(&Operation) -> bool + Send>;

/// An action for the operations that match.
pub struct Fault {
    pub(super) matching: Condition,
    pub(super) skip: u64,
    pub(super) times: u64,
    pub(super) action: Action,
}

impl fmt::Debug for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { skip, times, action, .. } = self;
        formatter
            .debug_struct("Fault")
            .field("skip", skip)
            .field("times", times)
            .field("action", action)
            .finish_non_exhaustive()
    }
}

impl Fault {
    /// `action` for the first operation that matches. The condition must not use the world.
    pub fn new(action: Action, matching: impl Fn(&Operation) -> bool + Send + 'static) -> Fault {
        Fault { matching: Box::new(matching), skip: 0, times: 1, action }
    }

    /// Lets `skip` matching operations pass first.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Fault {
        self.skip = skip;
        self
    }

    /// Acts `times` times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Fault {
        self.times = times;
        self
    }

    /// Acts for ever.
    #[must_use]
    pub fn always(self) -> Fault {
        self.times(u64::MAX)
    }
}

/// The error of every operation of a process that has ended.
#[derive(Debug)]
struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the simulated process has ended")
    }
}

impl std::error::Error for Ended {}

pub(super) fn crash_error() -> io::Error {
    io::Error::other(Ended)
}

/// Whether an IO error says that the simulated process or its power is gone.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Ended>)
}
