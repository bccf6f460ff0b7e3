//! Values: how long they are, and how well they compress.

use rand::{Rng, RngCore};

use crate::Random;

/// Longest value that a distribution gives, in bytes, unless it says less.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueSizes {
    /// All of this length in bytes.
    Fixed(usize),
    /// Generalised Pareto: `location + scale·(u^−shape − 1)/shape`, rounded up, at least `least`
    /// and at most `most` bytes. The published values of one production database are location 0,
    /// shape 0.2615, scale 25.45 (facts of the FAST'20 study).
    Pareto {
        /// Smallest value before rounding, in bytes.
        location: f64,
        /// Tail: 0 is exponential, 1 has no mean.
        shape: f64,
        /// Spread, in bytes.
        scale: f64,
        /// Shortest value in bytes.
        least: usize,
        /// Longest value in bytes; draws above it are drawn again, so that the maximum is not
        /// itself a common length.
        most: usize,
    },
}

impl ValueSizes {
    /// The next length in bytes.
    pub fn draw(self, random: &mut Random) -> usize {
        match self {
            ValueSizes::Fixed(bytes) => bytes.min(VALUE_BYTES_MAX),
            ValueSizes::Pareto { location, shape, scale, least, most } => {
                let most = most.min(VALUE_BYTES_MAX);
                let least = least.min(most);
                // A bounded number of draws: parameters whose mass lies above `most` end there.
                for _ in 0..16 {
                    let drawn = pareto(location, shape, scale, random).ceil();
                    #[allow(clippy::cast_precision_loss, reason = "lengths stay far below 2^53")]
                    if drawn <= most as f64 {
                        #[allow(
                            clippy::cast_possible_truncation,
                            clippy::cast_sign_loss,
                            reason = "at most `most`; negative and NaN become 0"
                        )]
                        return (drawn as usize).max(least);
                    }
                }
                most
            }
        }
    }
}

fn pareto(location: f64, shape: f64, scale: f64, random: &mut Random) -> f64 {
    // In (0, 1]: never the infinity that u = 0 would give.
    let u = 1.0 - random.random::<f64>();
    if shape.abs() < 1e-9 {
        location - scale * u.ln()
    } else {
        location + scale * (u.powf(-shape) - 1.0) / shape
    }
}

/// Makes values whose compressed size is about `ratio` of their length.
///
/// Slices of one pool of pieces: in each piece of [`PIECE_BYTES`] the first part is random and the
/// rest is zero, so that any block of values has the ratio, whatever the lengths.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    sizes: ValueSizes,
}

/// Bytes of a piece: small enough that short values carry the ratio too.
pub const PIECE_BYTES: usize = 128;

/// Bytes of the pool beyond the longest value: larger than the window of LZ4, so that values do not
/// compress against each other.
const POOL_BYTES: usize = 1 << 20;

impl Values {
    /// Values of `sizes`; `ratio` in 0..=1 is compressed size by size: 1 is random, 0.5 halves, 0
    /// is zero bytes.
    #[must_use]
    pub fn new(sizes: ValueSizes, ratio: f64, random: &mut Random) -> Values {
        let longest = match sizes {
            ValueSizes::Fixed(bytes) => bytes,
            ValueSizes::Pareto { most, .. } => most,
        };
        let length = (POOL_BYTES + longest.min(VALUE_BYTES_MAX)).next_multiple_of(PIECE_BYTES);
        let mut pool = vec![0; length];
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of 128"
        )]
        let fresh = ((PIECE_BYTES as f64 * ratio.clamp(0.0, 1.0)).round() as usize).min(PIECE_BYTES);
        for piece in pool.chunks_exact_mut(PIECE_BYTES) {
            random.fill_bytes(&mut piece[..fresh]);
        }
        Values { pool, sizes }
    }

    /// The next value: a slice of the pool; nothing is copied.
    pub fn draw(&self, random: &mut Random) -> &[u8] {
        let bytes = self.sizes.draw(random).min(self.pool.len());
        let start = random.random_range(0..=self.pool.len() - bytes);
        &self.pool[start..start + bytes]
    }
}

#[cfg(test)]
mod tests;
