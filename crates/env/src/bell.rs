//! Bells: how a process of the same host is told to look at something now, and not in a while.
//!
//! A bell says nothing but that it was rung, and may be rung by anybody, or be lost: whoever hears
//! it looks, and looks now and then anyway.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{Completer, Completion, completion};

/// Those who wait for a bell, by its key.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<BTreeMap<u128, Vec<Completer<()>>>>);

impl Bells {
    /// None.
    pub(crate) const fn new() -> Bells {
        Bells(Mutex::new(BTreeMap::new()))
    }

    /// Resolves when the bell is rung after this call.
    pub(crate) fn wait(&self, key: u128) -> Completion<()> {
        let (completer, rung) = completion();
        let gone: Vec<_> = {
            let mut bells = self.0.lock();
            let waiting = bells.entry(key).or_default();
            let gone = waiting.extract_if(.., |waits| waits.is_abandoned()).collect();
            waiting.push(completer);
            gone
        };
        // With each goes what waited last, whose destructors may do anything: outside the lock.
        drop(gone);
        rung
    }

    /// Wakes those who wait for it, and forgets those who have gone.
    pub(crate) fn ring(&self, key: u128) {
        let waiting = self.0.lock().remove(&key);
        for waits in waiting.into_iter().flatten() {
            waits.complete(());
        }
    }
}
