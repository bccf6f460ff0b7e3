//! Which blocks are missed so often that they deserve a place.
//!
//! A full cache takes in what costs little to miss again, for the host has it in memory, only when
//! it is missed for the second time within a while. A block read once would put out one that
//! was read once, too, and pay for it with a place in cold memory: on 64 MiB over the page cache
//! that was a quarter of a get. The idea is that of the doorkeeper of Einziger, Friedman and Manes,
//! "TinyLFU" (2017); here it forgets by being overwritten.
//!
//! How long the while is, the cache's own hits say: the second miss has to follow so soon that a
//! block that is asked for as often has a multiple of the hits that the average resident has. Of
//! reads that are spread evenly over more than the cache holds, few blocks come in then, however
//! much more it is: another that is put out would have been hit as often. When residents are no
//! longer hit, because others are read now, each second miss is soon enough.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Hashes by their low bits, of which the latest stays: it remembers about as many misses as it has
/// places.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    /// Of the latest miss that fell on each: the hash's high bits, and when it was, in steps
    /// ([`Doorkeeper::step`]) that wrap.
    places: Box<[AtomicU32]>,
    missed: AtomicU64,
    /// How soon a second miss has to follow, in steps.
    soon: AtomicU32,
    /// Hits of the cache when it was last looked at.
    hits: AtomicU64,
    /// Hits in a while of a quarter of the places, lately.
    hits_lately: AtomicU64,
}

/// Bytes of cache for each place: a block's.
const BYTES_PER_PLACE: u64 = 8192;
/// 16 MiB: of 32 GiB of blocks.
const PLACES_MAX: u64 = 4 << 20;
/// Times that as many misses pass as there are places are told apart by so many steps.
const STEPS: u64 = 1024;
/// How many times as often as the average resident a block has to be asked for. Of reads spread
/// evenly over more than the cache holds, a share of 1 − exp(−1/8), or 12 %, comes in.
const WORTH: u64 = 8;

impl Doorkeeper {
    /// Of a cache of about so many bytes.
    pub(super) fn new(cache_bytes: u64) -> Doorkeeper {
        let places = (cache_bytes / BYTES_PER_PLACE).clamp(1, PLACES_MAX).next_power_of_two();
        Doorkeeper {
            places: (0..places).map(|_| AtomicU32::new(u32::MAX)).collect(),
            missed: AtomicU64::new(0),
            soon: AtomicU32::new(u32::from(u16::MAX)),
            hits: AtomicU64::new(u64::MAX),
            hits_lately: AtomicU64::new(0),
        }
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.places) as u64
    }

    fn step(&self) -> u64 {
        (self.places.len() as u64 / STEPS).max(1)
    }

    /// Whether the block was missed so short a while ago that it is worth its place. It was missed
    /// now. `residents` tells how often a resident was found so far, and how many there are.
    pub(super) fn knows(&self, hash: u64, residents: impl FnOnce() -> (u64, u64)) -> bool {
        let missed = self.missed.fetch_add(1, Ordering::Relaxed);
        let period = (self.places.len() as u64 / 4).max(1);
        if missed.is_multiple_of(period) {
            self.look_back(period, residents());
        }
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let (place, now) =
            (&self.places[hash as usize & (self.places.len() - 1)], (missed / self.step()) as u16);
        #[allow(clippy::cast_possible_truncation, reason = "the high bits")]
        let rest = (hash >> 48) as u16;
        let before = place.swap(u32::from(rest) << 16 | u32::from(now), Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "the low half")]
        let ago = now.wrapping_sub(before as u16);
        before >> 16 == u32::from(rest) && u32::from(ago) <= self.soon.load(Ordering::Relaxed)
    }

    /// After so many misses: how soon is soon?
    fn look_back(&self, misses: u64, (hits, entries): (u64, u64)) {
        let before = self.hits.swap(hits, Ordering::Relaxed);
        let recent = hits.saturating_sub(before);
        if before == u64::MAX {
            return;
        }
        let lately = u64::midpoint(self.hits_lately.load(Ordering::Relaxed), recent);
        self.hits_lately.store(lately, Ordering::Relaxed);
        let soon = entries.saturating_mul(misses) / (lately * WORTH).max(1) / self.step();
        self.soon.store(u32::try_from(soon).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
