//! What was opened for reading and is kept, by the name of its object: files, or where the blocks
//! of an object lie.
//!
//! Tables are read at random and often, and their names are never used again, so that an open file
//! may stand for a name. A look-up takes the shared side of one of sixteen locks, so that readers
//! of different tables do not meet, and readers of one do not wait for each other; a second chance
//! for what was used since the last round decides who goes (no list is reordered by a look-up).
//!
//! Invariants:
//! 1. Each shard holds at most its share of `handles_max`, which is a quarter of what the process
//!    may open: the rest belongs to logs, writers, further databases and the program around them.
//! 2. `names` and `ring` of a shard hold the same names, `ring` in the order of insertion, oldest
//!    first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::ObjectName;

const SHARDS: usize = 16;

/// Most files kept open, whatever the process may: a terabyte of tables of 64 MiB.
const HANDLES_MAX: usize = 16 << 10;

/// Open objects by name. A file that another process deletes keeps its space while it is among
/// them.
#[derive(Debug)]
pub(crate) struct Handles<H> {
    shards: [RwLock<Shard<H>>; SHARDS],
    shard_max: usize,
}

#[derive(Debug)]
struct Shard<H> {
    // Hashed with fixed keys, so that a simulated history repeats; names are our own, nobody sends
    // colliding ones.
    names: HashMap<ObjectName, Slot<H>, BuildHasherDefault<DefaultHasher>>,
    ring: VecDeque<ObjectName>,
}

impl<H> Default for Shard<H> {
    fn default() -> Shard<H> {
        Shard { names: HashMap::default(), ring: VecDeque::new() }
    }
}

#[derive(Debug)]
struct Slot<H> {
    handle: H,
    used: AtomicBool,
}

impl<H: Clone> Handles<H> {
    /// For a process that may have `open_files_max` files open.
    pub(crate) fn new(open_files_max: usize) -> Handles<H> {
        let handles_max = (open_files_max / 4).min(HANDLES_MAX);
        Handles { shards: Default::default(), shard_max: (handles_max / SHARDS).max(1) }
    }

    fn shard(&self, name: &ObjectName) -> &RwLock<Shard<H>> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        &self.shards[usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)]
    }

    pub(crate) fn get(&self, name: &ObjectName) -> Option<H> {
        let shard = self.shard(name).read();
        let slot = shard.names.get(name)?;
        // Written only when it changes: a store by every reader would move the cache line between
        // cores.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(slot.handle.clone())
    }

    pub(crate) fn insert(&self, name: &ObjectName, handle: H) {
        let mut evicted = Vec::new();
        {
            let mut shard = self.shard(name).write();
            let slot = Slot { handle, used: AtomicBool::new(false) };
            match shard.names.insert(name.clone(), slot) {
                Some(before) => evicted.push(before),
                None => shard.ring.push_back(name.clone()),
            }
            while shard.names.len() > self.shard_max {
                let Some(oldest) = shard.ring.pop_front() else { break };
                if shard.names.get(&oldest).is_some_and(|slot| slot.used.swap(false, Ordering::Relaxed)) {
                    shard.ring.push_back(oldest);
                } else {
                    evicted.extend(shard.names.remove(&oldest));
                }
            }
        }
        // Closing a file is a system call: outside the lock.
        drop(evicted);
    }

    pub(crate) fn forget(&self, name: &ObjectName) {
        let forgotten = {
            let mut shard = self.shard(name).write();
            let forgotten = shard.names.remove(name);
            if forgotten.is_some() {
                shard.ring.retain(|held| held != name);
            }
            forgotten
        };
        drop(forgotten);
    }

    /// Closes all of them: the process has run out of files.
    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            let held = std::mem::take(&mut *shard.write());
            drop(held);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().names.len()).sum()
    }
}

#[cfg(test)]
mod tests;
