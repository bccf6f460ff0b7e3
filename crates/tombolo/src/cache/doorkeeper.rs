//! Which blocks were missed a short while ago.
//!
//! A full cache takes in what costs little to miss again, for the host has it in memory, only when it is missed for the second time. What is read once
//! would put something out that was read once, too, and pay for it with a place in cold memory: on 64 MiB over the page cache that was a quarter of a
//! get. The idea is that of the doorkeeper of Einziger, Friedman and Manes, "TinyLFU" (2017); here it forgets by being overwritten.

use std::sync::atomic::{AtomicU32, Ordering};

/// Hashes by their low bits, of which the latest stays: it remembers about as many misses as it has places.
#[derive(Debug)]
pub(super) struct Doorkeeper(Box<[AtomicU32]>);

/// Bytes of cache for each place: a block's.
const BYTES_PER_PLACE: u64 = 8192;
/// 16 MiB: of 32 GiB of blocks.
const PLACES_MAX: u64 = 4 << 20;

impl Doorkeeper {
    /// Of a cache of about so many bytes.
    pub(super) fn new(cache_bytes: u64) -> Doorkeeper {
        let places = (cache_bytes / BYTES_PER_PLACE).clamp(1, PLACES_MAX).next_power_of_two();
        Doorkeeper((0..places).map(|_| AtomicU32::new(0)).collect())
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Whether the block was missed a short while ago. It was missed now.
    pub(super) fn knows(&self, hash: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let place = &self.0[hash as usize & (self.0.len() - 1)];
        #[allow(clippy::cast_possible_truncation, reason = "the high half")]
        let rest = (hash >> 32) as u32;
        place.swap(rest, Ordering::Relaxed) == rest
    }
}
