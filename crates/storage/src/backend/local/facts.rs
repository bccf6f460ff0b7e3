//! What the file system under a local store offers, judged.

use std::path::Path;

use tombolo_env::{FileSystemFacts, FileSystemKind};

use super::LocalObjectStore;
use crate::facts::{Fact, bytes_text};
use crate::{Error, Result};

/// Room below which flush and compaction soon stop.
const AVAILABLE_NEEDED: u64 = 256 << 20;
/// Room below which it is time to act.
const AVAILABLE_WANTED: u64 = 2 << 30;

/// File systems on which hard links, locks and whole lists are known to work as the store needs
/// them.
const KNOWN: &[&str] = &["ext4", "xfs", "tmpfs", "overlay", "simulated"];

impl LocalObjectStore {
    /// Judges the file system that holds the root, or its nearest parent that exists.
    pub(super) fn judge(&self) -> Result<Vec<Fact>> {
        let files = self.files();
        let at = self
            .shared
            .root
            .ancestors()
            .find(|ancestor| files.metadata(ancestor).is_ok())
            .unwrap_or(Path::new("/"));
        let fail = |error| Error::io(error, "looking at a file system", at.display());
        let facts = files.facts(at).map_err(fail)?;
        let mut judged =
            vec![file_system(&facts, &files.kind(at).map_err(fail)?), options(&facts), durability(&facts)];
        judged.push(space(files.space(at).map_err(fail)?.available));
        judged.push(match &facts.direct_io {
            Ok(alignment) => Fact::fine("direct io", format!("works, in units of {alignment} bytes")),
            Err(reason) => Fact::warning(
                "direct io",
                reason.clone(),
                "io=direct is not possible here; io=buffered works",
            ),
        });
        judged.push(match facts.rotational {
            Some(true) => Fact::warning(
                "device",
                "rotational, or unknown to its driver",
                "a disk that turns reads some hundred blocks a second; virtual disks say so too",
            ),
            Some(false) => Fact::fine("device", "solid state"),
            None => Fact::fine("device", "not told"),
        });
        Ok(judged)
    }
}

fn file_system(facts: &FileSystemFacts, kind: &FileSystemKind) -> Fact {
    match kind {
        FileSystemKind::Network(name) => Fact::bad(
            "file system",
            format!("{name}, of a network"),
            "a fence cannot keep two hosts apart here: use a local disk, or vouch for a single host with \
            ?single_host=yes",
        ),
        FileSystemKind::CopyOnWrite(name) => Fact::warning(
            "file system",
            format!("{name}, which copies on write"),
            "a full disk would kill a process that stores through a mapping: the log is in written form \
            here unless form=mapped is said; leave it so",
        ),
        FileSystemKind::Local if facts.in_memory => Fact::bad(
            "file system",
            format!("{}, in memory", facts.name),
            "everything is lost with the host: use a disk",
        ),
        FileSystemKind::Local if KNOWN.contains(&facts.name.as_str()) => {
            Fact::fine("file system", facts.name.clone())
        }
        FileSystemKind::Local => Fact::warning(
            "file system",
            facts.name.clone(),
            "not one that this was tested on: ext4 and xfs are; run `tombolo bench store` on it",
        ),
    }
}

fn options(facts: &FileSystemFacts) -> Fact {
    let has = |wanted: &str| facts.options.split(',').any(|option| option == wanted);
    let value = facts.options.clone();
    if has("ro") {
        Fact::bad("mount options", value, "mounted read-only: remount it to write")
    } else if ["nobarrier", "barrier=0", "eatmydata"].into_iter().any(has) {
        Fact::bad(
            "mount options",
            value,
            "syncs do not reach the medium: mount it with barriers, or a loss of power loses acknowledged \
            writes",
        )
    } else if has("sync") {
        Fact::warning("mount options", value, "every write waits for the medium: mount it without sync")
    } else {
        Fact::fine("mount options", if value.is_empty() { "none told".into() } else { value })
    }
}

fn durability(facts: &FileSystemFacts) -> Fact {
    match facts.volatile_cache {
        _ if facts.in_memory => Fact::bad("durability", "none: memory", "use a disk"),
        Some(true) => Fact::fine("durability", "a volatile cache that each sync flushes"),
        Some(false) => Fact::fine("durability", "no volatile cache by the device's word"),
        None => Fact::warning(
            "durability",
            "not told",
            "make sure that the device keeps what a sync acknowledged",
        ),
    }
}

fn space(available: u64) -> Fact {
    let value = format!("{} free", bytes_text(available));
    match available {
        0..AVAILABLE_NEEDED => Fact::bad(
            "space",
            value,
            "free space: writes stop soon, and resume by themselves when there is room",
        ),
        AVAILABLE_NEEDED..AVAILABLE_WANTED => {
            Fact::warning("space", value, "compaction needs room for its output beside its input: free space")
        }
        _ => Fact::fine("space", value),
    }
}
