//! Admission to the flash cache: pieces missed before, as fast as the disk may be written.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a tag is some bits of a hash, and a slot is below their number"
)]

use std::sync::atomic::{AtomicU32, Ordering};

use tombolo_env::Instant;

/// The misses of late, by their fingerprints: one slot for each, where the next one that falls
/// there takes its place. A miss is remembered for about as many other misses as there are slots.
///
/// Threads that miss at once may forget one another's: a hint needs no more.
pub(super) struct Ghosts(Box<[AtomicU32]>);

impl Ghosts {
    pub(super) fn new(slots: usize) -> Ghosts {
        Ghosts((0..slots.max(1)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Bytes of memory.
    pub(super) fn bytes(slots: usize) -> u64 {
        slots as u64 * 4
    }

    /// Whether this was missed of late, and is forgotten; else it is remembered.
    pub(super) fn knew(&self, fingerprint: u64) -> bool {
        let slot = &self.0[((u128::from(fingerprint) * self.0.len() as u128) >> 64) as usize];
        let tag = fingerprint as u32 | 1;
        let knew = slot.load(Ordering::Relaxed) == tag;
        slot.store(if knew { 0 } else { tag }, Ordering::Relaxed);
        knew
    }
}

/// Bytes that may be written: so many a second, saved up to a maximum.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes: u64,
    bytes_max: u64,
    per_second: u64,
    filled_at: Instant,
}

impl Bucket {
    /// With `bytes` to begin with.
    pub(super) fn new(now: Instant, bytes: u64, bytes_max: u64, per_second: u64) -> Bucket {
        Bucket { bytes, bytes_max, per_second, filled_at: now }
    }

    /// Takes `bytes`, if they are there.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) -> bool {
        let nanos = now.since(self.filled_at).as_nanos();
        let gained = u64::try_from(nanos * u128::from(self.per_second) / 1_000_000_000).unwrap_or(u64::MAX);
        if gained > 0 {
            self.bytes = self.bytes.saturating_add(gained).min(self.bytes_max);
            self.filled_at = now;
        }
        let enough = self.bytes >= bytes;
        if enough {
            self.bytes -= bytes;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_miss_of_late_is_known_and_the_first_is_not() {
        let ghosts = Ghosts::new(1024);
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(!ghosts.knew(hash(1)) && ghosts.knew(hash(1)) && !ghosts.knew(hash(1)));
        // As many misses as there are slots leave about a third of the earlier ones.
        for number in 10_000..11_024 {
            assert!(!ghosts.knew(hash(number)));
        }
        for number in 20_000..30_000 {
            ghosts.knew(hash(number));
        }
        assert!((10_000..11_024).filter(|number| ghosts.knew(hash(*number))).count() < 10);
    }

    #[test]
    fn a_bucket_gives_its_rate_and_what_was_saved_up() {
        let second = |n: u64| Instant::from_nanos(n * 1_000_000_000);
        let mut bucket = Bucket::new(second(0), 100, 1000, 10);
        assert!(bucket.take(second(0), 100) && !bucket.take(second(0), 1));
        assert!(!bucket.take(second(1), 11) && bucket.take(second(1), 10));
        // Small steps lose nothing.
        for step in 0..100 {
            assert!(!bucket.take(Instant::from_nanos(1_000_000_000 + step * 10_000_000), 11));
        }
        assert!(bucket.take(second(2), 10));
        assert!(!bucket.take(second(1_000_000), 1001) && bucket.take(second(1_000_000), 1000));
    }
}
