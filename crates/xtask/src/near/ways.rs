//! The kinds of log that are compared, and what each survives.

use std::path::Path;

use crate::nodes;

/// How writes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In the local log, not synced: what others call weak.
    Accepted,
    /// In the object store, each object shared by the writers that wait: what others call strong.
    Objects,
    /// In the memory of three nodes that the writer stores to itself.
    NearShared,
    /// In the memory of three nodes behind TCP.
    NearTcp,
    /// In the local log, synced.
    File,
    /// By SlateDB with its defaults, in objects of a store as slow.
    SlateDb,
    /// The same with its documentation's advice.
    SlateDbTuned,
}

impl Way {
    pub const ALL: [Way; 7] = [
        Way::Accepted,
        Way::Objects,
        Way::NearShared,
        Way::NearTcp,
        Way::File,
        Way::SlateDb,
        Way::SlateDbTuned,
    ];

    /// Its name in records and at the prompt.
    pub fn name(self) -> &'static str {
        match self {
            Way::Accepted => "accepted",
            Way::Objects => "objects",
            Way::NearShared => "near-shared",
            Way::NearTcp => "near-tcp",
            Way::File => "file",
            Way::SlateDb => "slatedb",
            Way::SlateDbTuned => "slatedb-tuned",
        }
    }

    /// What an acknowledged write survives.
    pub fn survives(self) -> &'static str {
        match self {
            Way::Accepted => "the end of its process; not the host's",
            Way::Objects | Way::SlateDb | Way::SlateDbTuned => {
                "whatever the object store survives (here a directory of this disk, made slow, that stands \
                for one)"
            }
            Way::NearShared | Way::NearTcp => nodes::SURVIVES,
            Way::File => "its process, and a loss of power, on this disk; not the disk's loss",
        }
    }

    /// Whether nodes hold it, and whether they share their memory.
    pub fn nodes(self) -> Option<bool> {
        match self {
            Way::NearShared => Some(true),
            Way::NearTcp => Some(false),
            _ => None,
        }
    }

    /// Whether another engine than ours writes. Its insertions alone are measured: its reads and
    /// mixes are `cargo xtask peers --bucket`.
    pub fn is_peer(self) -> bool {
        matches!(self, Way::SlateDb | Way::SlateDbTuned)
    }

    /// Durability of its writes.
    pub fn durability(self) -> &'static str {
        if self == Way::Accepted { "accepted" } else { "durable" }
    }

    /// The log's URI; that of the nodes where there are some.
    pub fn log(self, base: &Path, near: Option<&str>) -> String {
        match (self, near) {
            (Way::Objects, _) => "objects://".to_owned(),
            (_, Some(near)) => near.to_owned(),
            _ => format!("file://{}", base.join("log").display()),
        }
    }
}
