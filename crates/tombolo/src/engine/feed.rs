//! The subjects that are followed, keyspaces or all of them, and how far their changes go back.
//!
//! Invariants:
//! 1. Subjects come and go between two commits. A subscription is added before its place is
//!    known, and goes only once its record is gone: so no commit leaves out what a place promises.
//! 2. A change is counted once its commit has succeeded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::KeyspaceInfo;
use crate::signal::{Signal, Turn};

/// The changes that are kept go in so many pieces.
const PIECES: u64 = 8;

/// A keyspace that is followed, or all of them.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Bytes of all its changes.
    pub(crate) total_bytes: u64,
    /// Where pieces of them end: `total_bytes` then, and the number of the last change.
    pieces: VecDeque<(u64, u64)>,
    /// Up to where they have gone, as is written beside them. It goes on only.
    gone: u64,
    /// Of each subscription: up to where it has taken changes, and the bytes that are kept for it.
    pub(crate) places: BTreeMap<String, (u64, u64)>,
}

impl Followed {
    /// The number up to which older changes may go, when one of so many bytes comes.
    pub(crate) fn goes_with(&self, bytes: u64) -> Option<u64> {
        let (total_bytes, kept) = (self.total_bytes.saturating_add(bytes), self.kept_bytes());
        let taken = self.places.values().map(|(place, _)| *place).min().unwrap_or(u64::MAX);
        let gone = |(total, end): &&(u64, u64)| *end <= taken || total.saturating_add(kept) < total_bytes;
        let end = self.pieces.iter().take_while(gone).last().map(|(_, end)| *end);
        end.filter(|end| *end > self.gone || is_enabled(Mutant::ChangesGoneMarkFalls))
    }

    /// A change of so many bytes was committed with this number, and older ones have gone.
    pub(crate) fn took(&mut self, bytes: u64, sequence: u64, gone: Option<u64>) {
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        if let Some(gone) = gone {
            self.begins(gone);
        }
        let last = self.pieces.back().map_or(0, |(total, _)| *total);
        if self.total_bytes.saturating_sub(last) >= self.kept_bytes() / PIECES {
            self.pieces.push_back((self.total_bytes, sequence));
        }
    }

    fn kept_bytes(&self) -> u64 {
        self.places.values().map(|(_, bytes_max)| *bytes_max).max().unwrap_or_default()
    }

    /// What came up to `gone` is not there.
    pub(crate) fn begins(&mut self, gone: u64) {
        self.gone = self.gone.max(gone);
        self.pieces.retain(|(_, end)| *end > self.gone);
    }

    /// What was kept when the database was opened is from after `gone`, and ends with this change.
    pub(crate) fn begin(&mut self, gone: u64, last: Option<(u64, u64)>) {
        self.gone = gone;
        let last = last.or(is_enabled(Mutant::ChangesGoneMarkFalls).then_some((0, 0)));
        if let Some((total_bytes, sequence)) = last {
            self.total_bytes = total_bytes;
            self.pieces.push_back((total_bytes, sequence));
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    is_on: AtomicBool,
    state: Mutex<FeedState>,
    /// Raised after commits, while something is followed.
    pub(crate) news: Signal,
    /// Whose turn it is to change subscriptions.
    pub(crate) changing: Turn,
}

/// What its lock guards.
#[derive(Debug, Default)]
pub(crate) struct FeedState {
    /// Where changes are kept; `None` before the first subscription.
    pub(crate) kept_in: Option<Arc<KeyspaceInfo>>,
    /// By the number of the keyspace, or that which stands for all.
    pub(crate) followed: BTreeMap<u32, Followed>,
}

impl Feed {
    /// Whether anything is followed. Writes ask it first.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Looks at the subjects, and changes them.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut FeedState) -> T) -> T {
        let mut state = self.state.lock();
        let given = change(&mut state);
        self.is_on.store(!state.followed.is_empty(), Ordering::Release);
        given
    }
}

#[cfg(test)]
mod tests;
