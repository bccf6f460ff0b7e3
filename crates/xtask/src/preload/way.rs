//! How a program keeps its files, and what that survives.

use std::path::Path;

use crate::nodes;

/// In the order of the columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// On its disk, synced with every write.
    Strong,
    /// On its disk, never synced.
    Weak,
    /// In a database, synced with every write; the log is in the memory of three nodes of this host
    /// that share it with the program.
    NearShared,
    /// The same behind TCP.
    NearTcp,
    /// The same with a log on the disk.
    Local,
    /// The same with a log that was named, as a URI.
    Given(String),
}

impl Way {
    pub fn name(&self) -> &str {
        match self {
            Way::Strong => "disk, synced (strong)",
            Way::Weak => "disk, never synced (weak)",
            Way::NearShared => "near-compute log, shared memory",
            Way::NearTcp => "near-compute log, TCP",
            Way::Local => "local log",
            Way::Given(uri) => uri,
        }
    }

    /// What an acknowledged write survives.
    pub fn survives(&self) -> &'static str {
        match self {
            Way::Strong | Way::Local => "its program, and a loss of power, on this disk; not the disk's loss",
            Way::Weak => "the end of its program; not the host's",
            Way::NearShared | Way::NearTcp => nodes::SURVIVES,
            Way::Given(_) => "what `tombolo explain STORE URI` says of it",
        }
    }

    /// Whether a database keeps the files.
    pub fn is_ours(&self) -> bool {
        !matches!(self, Way::Strong | Way::Weak)
    }

    /// Whether nodes of this host hold the log, and whether they share their memory.
    pub fn nodes(&self) -> Option<bool> {
        match self {
            Way::NearShared => Some(true),
            Way::NearTcp => Some(false),
            _ => None,
        }
    }

    /// The log's URI, where a database keeps the files; that of the nodes where there are some.
    pub fn log(&self, base: &Path, near: Option<&str>) -> Option<String> {
        match self {
            Way::Strong | Way::Weak => None,
            Way::NearShared | Way::NearTcp => near.map(str::to_owned),
            Way::Local => Some(format!("file://{}", base.join("log").display())),
            Way::Given(uri) => Some(uri.clone()),
        }
    }
}
