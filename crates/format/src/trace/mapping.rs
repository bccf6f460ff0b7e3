//! Keys that say less: as hashes, or replaced such that order and common prefixes stay.
//!
//! The mapping that keeps order codes each byte in two. Of each prefix a function of the secret
//! draws 256 gaps of 1 to 255, and a byte's code is the sum of the gaps up to it. So two keys
//! compare as before, and they share twice the bytes that they shared.
//!
//! What it still shows: how long keys are, how many bytes two keys share, which key comes first,
//! and how often each is asked for. Who knows some keys may guess what lies between them. Without
//! the secret the bytes themselves are not shown.

use crate::checksum::mix64;

/// Bytes of a hashed key.
pub const HASHED_KEY_BYTES: usize = 16;

/// Replaces keys of a trace.
#[derive(Clone)]
pub struct KeyMapping {
    secret: u64,
    keeps_order: bool,
}

impl std::fmt::Debug for KeyMapping {
    /// Never shows the secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeyMapping").field("keeps_order", &self.keeps_order).finish_non_exhaustive()
    }
}

impl KeyMapping {
    /// To hashes of 16 bytes: neither order nor prefixes stay.
    #[must_use]
    pub fn hashed(secret: u64) -> KeyMapping {
        KeyMapping { secret, keeps_order: false }
    }

    /// To keys of twice the bytes, whose order and common prefixes are those of the keys.
    #[must_use]
    pub fn ordered(secret: u64) -> KeyMapping {
        KeyMapping { secret, keeps_order: true }
    }

    /// Puts what stands for `key` into `mapped`, which it clears.
    pub fn map(&self, key: &[u8], mapped: &mut Vec<u8>) {
        mapped.clear();
        if !self.keeps_order {
            let low = xxhash_rust::xxh3::xxh3_64_with_seed(key, self.secret);
            let high = xxhash_rust::xxh3::xxh3_64_with_seed(key, mix64(self.secret ^ 1));
            mapped.extend_from_slice(&low.to_be_bytes());
            mapped.extend_from_slice(&high.to_be_bytes());
            return;
        }
        let mut prefix = mix64(self.secret ^ 0x7c15_9e37_79b9_7f4a);
        for byte in key {
            mapped.extend_from_slice(&code(prefix, *byte).to_be_bytes());
            prefix = mix64(prefix.rotate_left(23) ^ self.secret ^ u64::from(*byte).wrapping_mul(0x9e37_79b9));
        }
    }
}

/// The sum of the gaps up to `byte`. Eight gaps come from one word.
fn code(prefix: u64, byte: u8) -> u16 {
    let gap = |byte: u8| u16::from(byte.max(1));
    let word = |number: u8| mix64(prefix.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let (whole, rest) = (byte / 8, usize::from(byte % 8));
    let before: u16 = (0..whole).map(|number| word(number).to_le_bytes().map(gap).iter().sum::<u16>()).sum();
    before + word(whole).to_le_bytes().map(gap)[..=rest].iter().sum::<u16>()
}

#[cfg(test)]
mod tests;
