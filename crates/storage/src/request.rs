//! What every request carries down to the wire, and what creating an object says about it.

use std::fmt;

use tombolo_env::Instant;

/// Numbered life of a database at its URI. Destroying and creating again gives the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Number of the writer's generation: the slot number of its claim in the manifest chain. Only
/// rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Of requests made before any claim, or by processes that never claim.
    pub const NONE: Epoch = Epoch(0);
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Why a request is made; metrics and layers tell requests apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Opening, recovery and takeover.
    Open,
    /// The manifest chain.
    Manifest,
    /// The write-ahead log.
    Log,
    /// A user's read.
    Get,
    /// A user's scan.
    Scan,
    /// Writing a memtable as a table.
    Flush,
    /// Compaction.
    Compaction,
    /// Deletion of objects that nobody needs.
    Collection,
    /// Verification and inspection.
    Verify,
    /// Objects of the application's own.
    Application,
}

impl Purpose {
    /// All of them, in the order of their declaration.
    pub const ALL: [Purpose; 10] = [
        Purpose::Open,
        Purpose::Manifest,
        Purpose::Log,
        Purpose::Get,
        Purpose::Scan,
        Purpose::Flush,
        Purpose::Compaction,
        Purpose::Collection,
        Purpose::Verify,
        Purpose::Application,
    ];

    /// The purpose in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Open => "open",
            Purpose::Manifest => "manifest",
            Purpose::Log => "log",
            Purpose::Get => "get",
            Purpose::Scan => "scan",
            Purpose::Flush => "flush",
            Purpose::Compaction => "compaction",
            Purpose::Collection => "collection",
            Purpose::Verify => "verify",
            Purpose::Application => "application",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Which of two waiting requests goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Nobody waits.
    Low,
    /// Memory or progress depends on it.
    Normal,
    /// A user waits.
    High,
}

/// What every request carries.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Why it is made.
    pub purpose: Purpose,
    /// Which goes first.
    pub priority: Priority,
    /// When the caller stops waiting; `None` is never.
    pub deadline: Option<Instant>,
    /// The epoch in whose name it is made.
    pub epoch: Epoch,
}

impl Request {
    /// A request without a deadline, its priority by its purpose.
    pub fn new(purpose: Purpose, epoch: Epoch) -> Request {
        let priority = match purpose {
            Purpose::Open | Purpose::Manifest | Purpose::Log | Purpose::Get | Purpose::Scan => Priority::High,
            Purpose::Flush | Purpose::Application => Priority::Normal,
            Purpose::Compaction | Purpose::Collection | Purpose::Verify => Priority::Low,
        };
        Request { purpose, priority, deadline: None, epoch }
    }

    /// The same with a deadline.
    #[must_use]
    pub fn until(mut self, deadline: Option<Instant>) -> Request {
        self.deadline = deadline;
        self
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A record or snapshot of the manifest.
    Manifest,
    /// A piece of log.
    Log,
    /// A pin.
    Pin,
    /// Anything else.
    Other,
}

/// How long an object is expected to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// Seconds to minutes: logs, the upper levels.
    Short,
    /// Minutes to hours.
    Medium,
    /// Days: the lowest level.
    Long,
    /// As long as the database: claims, incarnations.
    Forever,
}

/// What creating an object says about it, so that redundancy classes, zones and tiers decide below
/// the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What it is.
    pub kind: ObjectKind,
    /// The level of the tree that it belongs to; 0 for what has none.
    pub level: u8,
    /// How long it is expected to live.
    pub life: Life,
    /// Age of its oldest data in seconds; 0 when fresh or unknown.
    pub age_seconds: u64,
}

impl Placement {
    /// A placement of `kind` at level 0, fresh.
    pub fn new(kind: ObjectKind, life: Life) -> Placement {
        Placement { kind, level: 0, life, age_seconds: 0 }
    }
}

/// The least that has to be lost for what a store acknowledged as durable to be lost, or to be out
/// of reach; the first is lost soonest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureDomain {
    /// The process that wrote.
    Process,
    /// The memory of a few processes, on other hosts or not.
    Nodes,
    /// A disk of one host.
    Host,
    /// A service that replicates what it keeps.
    Service,
}

impl FailureDomain {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            FailureDomain::Process => "process",
            FailureDomain::Nodes => "nodes",
            FailureDomain::Host => "host",
            FailureDomain::Service => "service",
        }
    }
}

/// What survives which failure on a store: printed by `tombolo explain`.
#[derive(Clone, Debug)]
pub struct Survival {
    /// The store, as a person would name it.
    pub store: String,
    /// What durable writes are lost with. A database whose log has a weaker one than its store
    /// writes all to the store when it is closed.
    pub domain: FailureDomain,
    /// What an accepted write survives, and what it does not.
    pub accepted: String,
    /// What a durable write survives, and what it does not.
    pub durable: String,
    /// Everything else that a user must know, one sentence each.
    pub notes: Vec<String>,
}

/// A kind of request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// Beginning an object that comes in pieces.
    Create,
    /// A piece of it.
    Append,
    /// Its end, which makes it visible.
    Finish,
    /// A put-if-absent.
    Put,
    /// A read of one range.
    Read,
    /// A read of several ranges.
    ReadRanges,
    /// An object's length.
    Length,
    /// A list.
    List,
    /// A deletion.
    Delete,
    /// A copy by reference, of this store or of another.
    Copy,
    /// A sweep of what was left behind.
    Sweep,
    /// Beginning an epoch's log.
    LogOpen,
    /// A log entry.
    LogAppend,
    /// Making a lane durable.
    LogSync,
    /// Freeing the old part of a lane.
    LogTrim,
    /// Asking whether the log is fenced.
    LogConfirm,
    /// Closing a log.
    LogClose,
    /// Fencing an older epoch's log.
    LogFence,
    /// Reading a log.
    LogRead,
    /// Deleting a log.
    LogFree,
}

impl RequestKind {
    /// Those that object stores are asked, in the order of their declaration.
    pub const OF_OBJECTS: [RequestKind; 11] = [
        RequestKind::Create,
        RequestKind::Append,
        RequestKind::Finish,
        RequestKind::Put,
        RequestKind::Read,
        RequestKind::ReadRanges,
        RequestKind::Length,
        RequestKind::List,
        RequestKind::Delete,
        RequestKind::Copy,
        RequestKind::Sweep,
    ];

    /// The kind in one word.
    pub const fn name(self) -> &'static str {
        match self {
            RequestKind::Create => "create",
            RequestKind::Append => "append",
            RequestKind::Finish => "finish",
            RequestKind::Put => "put",
            RequestKind::Read => "read",
            RequestKind::ReadRanges => "read_ranges",
            RequestKind::Length => "length",
            RequestKind::List => "list",
            RequestKind::Delete => "delete",
            RequestKind::Copy => "copy",
            RequestKind::Sweep => "sweep",
            RequestKind::LogOpen => "log_open",
            RequestKind::LogAppend => "log_append",
            RequestKind::LogSync => "log_sync",
            RequestKind::LogTrim => "log_trim",
            RequestKind::LogConfirm => "log_confirm",
            RequestKind::LogClose => "log_close",
            RequestKind::LogFence => "log_fence",
            RequestKind::LogRead => "log_read",
            RequestKind::LogFree => "log_free",
        }
    }

    /// Whether it changes what the store holds.
    pub const fn is_mutation(self) -> bool {
        !matches!(
            self,
            RequestKind::Read
                | RequestKind::ReadRanges
                | RequestKind::Length
                | RequestKind::List
                | RequestKind::LogRead
                | RequestKind::LogConfirm
        )
    }

    /// Whether it makes an object appear.
    pub const fn is_creation(self) -> bool {
        matches!(self, RequestKind::Put | RequestKind::Finish | RequestKind::Copy)
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
