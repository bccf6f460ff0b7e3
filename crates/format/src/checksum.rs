//! Checksums: CRC-32C over bytes, mixed with the identity of the place that the bytes belong to.
//!
//! | checksum of | over | mixed with |
//! |---|---|---|
//! | block of a table | stored bytes and compression byte | table identity, offset in the table |
//! | log frame | header (from its length on) and payload | the segment's identity, byte in the segment |
//! | headers, records, footers | the bytes before the checksum, or around it | nothing |
//!
//! Mixing is exclusive-or with a 32-bit modifier, after the hashing: a block that moves is stamped
//! anew by [`restamp`] without hashing its bytes again, and a right block in the wrong place is
//! caught with the same certainty as a damaged one (1 − 2⁻³²).

/// CRC-32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of `first` followed by `second`, without joining them.
#[inline]
pub fn crc32c_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    digest.finalize() as u32
}

/// The modifier of a place: a mix of `identity` and `offset` in which every bit of both counts.
#[inline]
pub fn modifier(identity: u64, offset: u64) -> u32 {
    // The finaliser of MurmurHash3, over both words.
    let mut mixed = identity ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((mixed ^ (mixed >> 33)) >> 16) as u32
}

/// A bijection of 64 bits in which each bit of the input counts for each of the output (the
/// finaliser of SplitMix64).
#[inline]
pub const fn mix64(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The checksum `crc`, bound to a place.
#[inline]
pub fn stamp(crc: u32, identity: u64, offset: u64) -> u32 {
    crc ^ modifier(identity, offset)
}

/// A stamped checksum, moved from one place to another.
#[inline]
pub fn restamp(stamped: u32, from: (u64, u64), to: (u64, u64)) -> u32 {
    stamped ^ modifier(from.0, from.1) ^ modifier(to.0, to.1)
}

/// 128-bit hash of a manifest record, by which its successor names it.
pub fn hash128(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

/// 64-bit hash (xxh3) of an object that passes by in pieces.
#[derive(Clone)]
pub struct StreamHash(Box<xxhash_rust::xxh3::Xxh3>);

impl StreamHash {
    /// The hash of nothing.
    pub fn new() -> StreamHash {
        StreamHash(Box::new(xxhash_rust::xxh3::Xxh3::new()))
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash of all pieces so far.
    pub fn digest(&self) -> u64 {
        self.0.digest()
    }
}

impl Default for StreamHash {
    fn default() -> Self {
        StreamHash::new()
    }
}

impl std::fmt::Debug for StreamHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "StreamHash({:#018x})", self.digest())
    }
}

/// 64-bit hash of a user key, for filters.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Hash of an entry: of its key, the eight bytes of its trailer, and its value. Sums of them tell
/// whether two sets of entries are the same.
pub fn entry_hash(key: &[u8], trailer: u64, value: &[u8]) -> u64 {
    let seed = xxhash_rust::xxh3::xxh3_64_with_seed(key, trailer);
    xxhash_rust::xxh3::xxh3_64_with_seed(value, seed)
}

#[cfg(test)]
mod tests;
