//! Layers: each wraps a store and is a store, so that any of them can stand before any backend.
//!
//! - [`fault`]: makes a store as bad as the contract allows, and worse where asked.
//! - [`flow`]: asks a remote store for much at once, and for no more than it takes.
//! - [`hedge`]: asks a second time for what takes long.
//! - [`meter`]: counts requests and bytes, always.
//! - [`retry`]: waits for a store that fails for a while.
//! - [`throttle`]: makes a store slower than it could be.
//! - [`trace`]: tells each request, and counts them.

#[macro_use]
mod leave;

pub mod fault;
pub mod flow;
pub mod hedge;
pub mod meter;
pub mod retry;
pub mod throttle;
pub mod trace;

use std::fmt;

/// What is asked of a store.
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
