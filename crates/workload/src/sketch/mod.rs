//! What a stream is made of, in bounded memory: distinct items, frequent items, sizes, rates.
//!
//! Items are 64-bit hashes, which the caller makes. Each sketch says its error.

mod counts;
mod distinct;
mod frequent;
mod series;

pub use counts::Counts;
pub use distinct::Distinct;
pub use frequent::{Frequent, Heavy};
pub use series::Series;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Takes hashes as they are, so that maps of hashes hash nothing again.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
}

/// A map whose keys are hashes, or begin with one.
pub type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// Pearson's correlation of pairs; 0 where one side never changes.
#[must_use]
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut count, mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (first, second) in pairs {
        count += 1.0;
        let (from_x, from_y) = (first - x, second - y);
        x += from_x / count;
        y += from_y / count;
        xx += from_x * (first - x);
        yy += from_y * (second - y);
        xy += from_x * (second - y);
    }
    let spread = (xx * yy).sqrt();
    if spread > 0.0 { xy / spread } else { 0.0 }
}

#[cfg(test)]
mod tests;
