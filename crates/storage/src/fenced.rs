//! What fences have read of older logs, kept for the replay that follows: so a log is read once.
//!
//! Below the end that a fence found nobody changes a log any more, so what it read there stays
//! true. Entries that are not read before the epoch's own log is opened are let go: nobody replays
//! it then.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{Incarnation, LogId};

/// Kept for one store, so many bytes of all logs at most; more is read again.
#[derive(Debug)]
pub struct Fenced<T> {
    bytes_max: usize,
    /// With the bytes of each.
    logs: Mutex<BTreeMap<(Incarnation, LogId), (usize, T)>>,
}

impl<T: Default> Fenced<T> {
    /// Nothing, with room for `bytes_max`.
    pub fn new(bytes_max: usize) -> Fenced<T> {
        Fenced { bytes_max, logs: Mutex::default() }
    }

    /// Keeps what was read of a log of a database's life, in place of what was kept of it, if there
    /// is room.
    pub fn keep(&self, life: Incarnation, log: LogId, bytes: usize, read: T) {
        let mut logs = self.logs.lock();
        logs.remove(&(life, log));
        if logs.values().map(|(bytes, _)| bytes).sum::<usize>().saturating_add(bytes) <= self.bytes_max {
            logs.insert((life, log), (bytes, read));
        }
    }

    /// The kept part of a log; nothing when none is.
    pub fn get(&self, life: Incarnation, log: LogId) -> T
    where
        T: Clone,
    {
        self.logs.lock().get(&(life, log)).map(|(_, read)| read.clone()).unwrap_or_default()
    }

    /// Takes the kept part of a log out; nothing when there is none.
    pub fn take(&self, life: Incarnation, log: LogId) -> T {
        self.logs.lock().remove(&(life, log)).map(|(_, read)| read).unwrap_or_default()
    }

    /// Keeps nothing any more.
    pub fn clear(&self) {
        self.logs.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    #[test]
    fn what_there_is_room_for_is_kept_until_it_is_taken_or_let_go() {
        let (fenced, life) = (Fenced::new(100), Incarnation(1));
        let log = |epoch| LogId { epoch: Epoch(epoch), lane: 0 };
        fenced.keep(life, log(1), 60, "one");
        fenced.keep(life, log(2), 41, "too much");
        assert_eq!((fenced.take(life, log(2)), fenced.take(Incarnation(2), log(1))), ("", ""));
        fenced.keep(life, log(1), 90, "one again");
        assert_eq!((fenced.get(life, log(1)), fenced.get(life, log(2))), ("one again", ""));
        assert_eq!((fenced.take(life, log(1)), fenced.take(life, log(1))), ("one again", ""));
        fenced.keep(life, log(3), 100, "three");
        fenced.clear();
        assert_eq!(fenced.take(life, log(3)), "");
        fenced.keep(life, log(3), usize::MAX, "beyond all");
        assert_eq!(fenced.take(life, log(3)), "");
    }
}
