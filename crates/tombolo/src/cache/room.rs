//! Making room in the cache, and making the cache smaller.
//!
//! A resident needs a frame. In this order: a free one; one of another region, if the budget has
//! room for it; one that an entry leaves which was not used for long (CLOCK); one of a region that
//! is evacuated and cut anew, when residents of one size were put out for one of another.
//!
//! What the cache gives way with are whole regions: one whose residents find room elsewhere, or
//! else the one that holds least of the size that most are of. Entries not used since the hand
//! last passed go; used ones are copied to a frame elsewhere, for which something else may go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::frames::{Evacuation, FrameMut, Then};
use super::{BlockCache, CacheKey};
use crate::budget::GiveWay;

#[cfg(test)]
mod tests;

/// How often a region is evacuated for one resident.
const EVACUATIONS_MAX: usize = 2;
/// How many entries are put out for one resident before a region is evacuated.
const EVICTIONS_MAX: usize = 16;
/// The same, for one that is only moved.
const EVICTIONS_FOR_A_MOVE_MAX: usize = 2;

impl GiveWay for BlockCache {
    fn resized(&self) {
        self.forget_misses();
        let slots = super::slots_of(self.budget.bytes(), self.shards.len() as u64);
        for shard in &self.shards {
            shard.grow(slots, &self.budget);
        }
    }

    fn give_way(&self) {
        let _one_at_a_time = self.giving_way.lock();
        // Entries held by others leave the cache without giving anything back: regions come to an
        // end, and entries.
        while self.budget.yielding_bytes() > self.budget.cache_bytes_max() {
            let gave = self.rows.give_way()
                || self.frames.give_empty_back()
                || self.evacuate(Then::GiveBack)
                || self.evict_next();
            if !gave {
                return;
            }
        }
    }
}

impl BlockCache {
    /// A frame for a resident of `bytes`, at a multiple of `alignment`; others leave for it. `None`
    /// when it does not fit.
    pub(super) fn frame(&self, key: CacheKey, bytes: usize, alignment: usize) -> Option<FrameMut> {
        let take = || self.frames.take(key, bytes, alignment);
        if let Some(frame) = take() {
            return Some(frame);
        }
        if bytes as u64 > self.budget.cache_bytes_max() {
            return None;
        }
        for _ in 0..EVACUATIONS_MAX {
            for _ in 0..EVICTIONS_MAX {
                if self.frames.grow(bytes, alignment) || self.evict_next() {
                    let taken = take();
                    if taken.is_some() {
                        return taken;
                    }
                } else {
                    break;
                }
            }
            self.evacuate(Then::Cut(bytes, alignment));
        }
        take()
    }

    /// A frame that nobody has to leave for.
    pub(super) fn free_frame(&self, key: CacheKey, bytes: usize, alignment: usize) -> Option<FrameMut> {
        let take = || self.frames.take(key, bytes, alignment);
        take().or_else(|| if self.frames.grow(bytes, alignment) { take() } else { None })
    }

    /// Whether a resident of `bytes` would fit without another one leaving for it.
    pub fn has_room(&self, bytes: usize, alignment: usize) -> bool {
        self.frames.has_room(bytes, alignment)
    }

    /// Puts one entry out; `false` when there is none.
    ///
    /// Of two shards the one with more: each gets its part of the new entries only on average. If
    /// all gave the same, how many a shard has would be a random walk, and where it came to a few,
    /// those that are used all the time would go.
    fn evict_next(&self) -> bool {
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        let count = self.shards.len();
        let shard = |number: usize| &self.shards[number % count];
        // So that each is compared with each other one.
        let other = hand + 1 + hand / count % (count - 1).max(1);
        let first = if shard(other).entries() > shard(hand).entries() { other } else { hand };
        (0..count).any(|step| shard(first + step).evict_next())
    }

    /// Evacuates a region; `false` when there is none to evacuate.
    fn evacuate(&self, then: Then) -> bool {
        let Some(evacuation) = self.frames.begin_evacuation() else { return false };
        self.move_out(&evacuation);
        self.frames.end_evacuation(&evacuation, then);
        true
    }

    fn move_out(&self, evacuation: &Evacuation) {
        for key in &evacuation.residents {
            let hash = key.hash();
            let shard = self.shard(hash);
            // The entry taken for a key is not in the cache yet, or not any more. To move one that
            // lies elsewhere would free nothing here, and have another slab evacuated again, for
            // ever.
            let here =
                shard.look(key, hash).filter(|(entry, _)| evacuation.holds(entry.resident.first_bytes()));
            let Some((entry, was_used)) = here else { continue };
            let frame = if was_used {
                self.frame_for_a_move(*key, entry.resident.frame_bytes(), entry.resident.alignment())
            } else {
                None
            };
            match frame {
                None => {
                    // Not held here: it would count as held.
                    drop(entry);
                    shard.evict(key, hash);
                }
                Some(frame) => {
                    let charged_bytes = frame.charged_bytes();
                    let moved = self.framed(*key, entry.resident.in_frame(frame), charged_bytes);
                    shard.replace(&entry, Arc::new(moved), hash);
                }
            }
        }
    }

    fn frame_for_a_move(&self, key: CacheKey, bytes: usize, alignment: usize) -> Option<FrameMut> {
        for _ in 0..EVICTIONS_FOR_A_MOVE_MAX {
            let taken = self.frames.take(key, bytes, alignment);
            if taken.is_some() || !self.evict_next() {
                return taken;
            }
        }
        self.frames.take(key, bytes, alignment)
    }
}
