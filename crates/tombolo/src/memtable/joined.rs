//! Operands of a key that a reader has joined, so that the next one need not walk over them again.
//!
//! Entries of a memtable never change, and a merge reads nothing. So a key that is merged over and
//! over has a chain of operands, and each read of it would walk over all of them. A reader that has
//! walked over a long chain leaves here what the chain comes to. The next one walks from its moment
//! down to the newest operand of that, and goes on below the oldest.
//!
//! Invariants:
//! 1. Between the newest and the oldest operand of what was joined, the memtable has nothing else
//!    of the key.
//! 2. It is given only to readers that see all of it: their walk has come to the newest operand.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::key::{EntryKind, SequenceNumber};

use crate::budget::{Category, Charge, MemoryBudget};

/// Joined operands have at most so many bytes: with longer ones, joining costs more than walking.
const OPERAND_BYTES_MAX: usize = 64 << 10;
/// All of a memtable have at most this part of the bytes that it is to take.
const MEMTABLE_PART: u64 = 16;
/// About what one takes beside key and operand.
const ENTRY_BYTES: u64 = 128;

/// What operands of a key come to.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) newest: SequenceNumber,
    pub(crate) oldest: SequenceNumber,
    /// What they come to, with the kind of an entry that stores it so.
    pub(crate) kind: EntryKind,
    pub(crate) operand: Bytes,
}

/// Of a key.
type Of = (Box<[u8]>, Joined);

#[derive(Debug, Default)]
struct Kept {
    /// By keyspace and hash of the key. Of two keys with one hash the last has the place.
    by_key: HashMap<(u32, u64), Of>,
    bytes: u64,
    charge: Option<Charge>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct JoinedOperands {
    /// Whether there are any: most memtables have none.
    is_used: AtomicBool,
    kept: Mutex<Kept>,
}

fn bytes_of(key: &[u8], joined: &Joined) -> u64 {
    (key.len() + joined.operand.len()) as u64 + ENTRY_BYTES
}

impl JoinedOperands {
    /// What was joined of a key.
    pub(super) fn get(&self, keyspace: u32, key: &[u8], hash: u64) -> Option<Joined> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.kept.lock();
        let (of, joined) = kept.by_key.get(&(keyspace, hash))?;
        (**of == *key).then(|| joined.clone())
    }

    /// Keeps what was joined, unless it is too large or not newer than the one before.
    pub(super) fn keep(
        &self,
        (keyspace, key, hash): (u32, &[u8], u64),
        joined: Joined,
        budget: &Arc<MemoryBudget>,
        memtable_bytes: u64,
    ) {
        if joined.operand.len() > OPERAND_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        let old = kept.by_key.get(&(keyspace, hash));
        if old.is_some_and(|(of, old)| **of == *key && old.newest >= joined.newest) {
            return;
        }
        let freed = old.map_or(0, |(of, old)| bytes_of(of, old));
        let bytes = kept.bytes - freed + bytes_of(key, &joined);
        if bytes > memtable_bytes / MEMTABLE_PART {
            return;
        }
        kept.bytes = bytes;
        kept.charge.get_or_insert_with(|| budget.charge(Category::Memtables, 0)).set(bytes);
        kept.by_key.insert((keyspace, hash), (key.into(), joined));
        self.is_used.store(true, Ordering::Release);
    }
}
