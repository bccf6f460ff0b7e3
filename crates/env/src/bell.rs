//! Bells: how a process of the same host is told to look at something now, and not in a while.
//!
//! A bell says nothing but that it was rung, and may be rung by anybody, or be lost: a process that
//! hears it looks, and looks now and then anyway.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{Completer, Completion, completion};

/// Those who wait for a bell, by its key.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Invariant: at most about twice as many keys as anybody waited for at the last sweep.
    by_key: BTreeMap<u128, Vec<Completer<()>>>,
    /// With so many keys those that nobody waits for any more are swept out.
    swept_at: usize,
}

/// Keys that are kept without a sweep.
const KEYS_MIN: usize = 16;

impl Bells {
    /// None.
    pub(crate) const fn new() -> Bells {
        Bells(Mutex::new(Waiting { by_key: BTreeMap::new(), swept_at: KEYS_MIN }))
    }

    /// Resolves when the bell is rung after this call.
    pub(crate) fn wait(&self, key: u128) -> Completion<()> {
        let (completer, rung) = completion();
        let gone = {
            let mut bells = self.0.lock();
            let mut gone = Vec::new();
            if bells.by_key.len() >= bells.swept_at.max(KEYS_MIN) {
                for waiting in bells.by_key.values_mut() {
                    gone.extend(waiting.extract_if(.., |waits| waits.is_abandoned()));
                }
                bells.by_key.retain(|_, waiting| !waiting.is_empty());
                bells.swept_at = 2 * bells.by_key.len();
            }
            let waiting = bells.by_key.entry(key).or_default();
            gone.extend(waiting.extract_if(.., |waits| waits.is_abandoned()));
            waiting.push(completer);
            gone
        };
        // With each goes what waited last, whose destructors may do anything: outside the lock.
        drop(gone);
        rung
    }

    /// Wakes those who wait for it, and forgets those who have gone.
    pub(crate) fn ring(&self, key: u128) {
        let waiting = self.0.lock().by_key.remove(&key);
        for waits in waiting.into_iter().flatten() {
            waits.complete(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bells_that_nobody_waits_for_any_more_take_no_memory() {
        let bells = Bells::new();
        let mut kept: Vec<_> = (0..40).map(|key| bells.wait(key)).collect();
        for key in 100..10_000 {
            drop(bells.wait(key));
        }
        assert!(bells.0.lock().by_key.len() <= 2 * kept.len() + 1);
        bells.ring(7);
        assert_eq!(kept.remove(7).try_take(), Some(()), "who waits was not forgotten");
    }
}
