//! A digest of entries in their order.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Of all keys and values of a keyspace, and how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Hash of all of them with their lengths.
    pub hash: u128,
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.hash)
    }
}

#[derive(Default)]
pub(crate) struct Digesting {
    digest: Digest,
    hash: Xxh3,
}

impl Digesting {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.digest.entries += 1;
        for bytes in [key, value] {
            self.digest.bytes += bytes.len() as u64;
            self.hash.update(&(bytes.len() as u64).to_le_bytes());
            self.hash.update(bytes);
        }
    }

    pub(crate) fn end(self) -> Digest {
        Digest { hash: self.hash.digest128(), ..self.digest }
    }
}
