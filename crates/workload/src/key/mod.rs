//! Key numbers as bytes of fixed width, in an order that comparing bytes keeps.

/// How a key number becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// Big-endian, after zero bytes or cut at the front; widths 1 to 64.
    BigEndian {
        /// Bytes of each key.
        width: usize,
    },
    /// `user` and decimal digits with leading zeros, as YCSB with ordered inserts; widths 5 to 64.
    Decimal {
        /// Bytes of each key.
        width: usize,
    },
    /// As RocksDB's db_bench: the number big-endian in the first 8 bytes (cut at the front when
    /// narrower), then `0` digits; widths 1 to 64.
    Padded {
        /// Bytes of each key.
        width: usize,
    },
}

/// Widest key of an encoding, in bytes.
pub const KEY_WIDTH_MAX: usize = 64;

const PREFIX: &[u8] = b"user";

impl KeyEncoding {
    /// Bytes of each key.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            KeyEncoding::BigEndian { width }
            | KeyEncoding::Decimal { width }
            | KeyEncoding::Padded { width } => width,
        }
    }

    /// Whether every number in `0..count` has a key of its own, and the width is allowed.
    #[must_use]
    pub fn holds(self, count: u64) -> bool {
        let last = count.saturating_sub(1);
        match self {
            KeyEncoding::BigEndian { width } | KeyEncoding::Padded { width } => {
                (1..=KEY_WIDTH_MAX).contains(&width) && (width >= 8 || last >> (8 * width) == 0)
            }
            KeyEncoding::Decimal { width } => {
                let digits = width.saturating_sub(PREFIX.len());
                (PREFIX.len() + 1..=KEY_WIDTH_MAX).contains(&width)
                    && (digits >= 20
                        || last < 10u64.saturating_pow(u32::try_from(digits).unwrap_or(u32::MAX)))
            }
        }
    }

    /// Writes the key of `number` over `key`, whose capacity is kept: no allocation after the
    /// first.
    ///
    /// # Panics
    /// When the number does not fit: ask [`KeyEncoding::holds`] first.
    pub fn encode(self, number: u64, key: &mut Vec<u8>) {
        assert!(number == u64::MAX || self.holds(number + 1), "{number} does not fit in {self:?}");
        key.clear();
        key.resize(self.width(), 0);
        match self {
            KeyEncoding::BigEndian { width } => {
                let bytes = number.to_be_bytes();
                let used = width.min(8);
                key[width - used..].copy_from_slice(&bytes[8 - used..]);
            }
            KeyEncoding::Padded { width } => {
                let bytes = number.to_be_bytes();
                let used = width.min(8);
                key[..used].copy_from_slice(&bytes[8 - used..]);
                key[used..].fill(b'0');
            }
            KeyEncoding::Decimal { width } => {
                key[..PREFIX.len()].copy_from_slice(PREFIX);
                let mut rest = number;
                for place in (PREFIX.len()..width).rev() {
                    key[place] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                    rest /= 10;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
