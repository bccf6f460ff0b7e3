//! What a database keeps of changes for those who follow a keyspace: keys and values of the
//! keyspace `tombolo.changes`, which is made with the first subscription.
//!
//! | first byte of the key | rest of the key, numbers big-endian | value |
//! |---|---|---|
//! | `c` | subject (u32), number of its last operation in the batch (u64) | a change |
//! | `s` | subject (u32), name of a subscription | its place, below |
//! | `t` | subject (u32) | a number (u64, little-endian): changes up to it are not there |
//!
//! The subject is the number of the keyspace that is followed, or 2^32 - 1: all keyspaces but those
//! of the database's own. A change is written in the batch that it tells of, before the batch's own
//! operations. `t` is there as long as changes are kept.
//!
//! **Change:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version (1) |
//! | 4 | 4 | number of names |
//! | 8 | 8 | bytes of all changes up to this one, this one included |
//! | 16 | 8 | when it was written, in milliseconds since the Unix epoch |
//! | 24 | | names of keyspaces: each its number (u32), its name with its length (u32) before |
//! | | | the operations, as the payload of a batch ([`crate::batch`]) |
//!
//! **Place of a subscription:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version (1) |
//! | 4 | 4 | 0 |
//! | 8 | 8 | number up to which it has taken changes |
//! | 16 | 8 | bytes of changes that are kept for it at least |

use crate::batch::{BatchBuilder, Operations};
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_version};
use crate::keyspace::KEYSPACE_NAME_BYTES_MAX;

/// The version written of both, and the newest read.
pub const CHANGE_VERSION: u32 = 1;
/// Bytes of a change before its names.
pub const CHANGE_HEADER_BYTES: usize = 24;
/// Bytes of a place.
pub const PLACE_BYTES: usize = 24;
/// Stands for all keyspaces, where the number of one is said.
pub const ALL_KEYSPACES: u32 = u32::MAX;
/// Least bytes of a name.
const NAME_BYTES_MIN: usize = 8;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Bytes of all changes up to this one.
    pub total_bytes: u64,
    /// When it was written, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Names of the keyspaces that the operations are about, where they need to be said.
    pub names: Vec<(u32, &'a str)>,
    /// The payload of a batch.
    pub payload: &'a [u8],
}

impl<'a> Change<'a> {
    /// Bytes of its value.
    pub fn encoded_bytes(&self) -> usize {
        let names: usize = self.names.iter().map(|(_, name)| NAME_BYTES_MIN + name.len()).sum();
        CHANGE_HEADER_BYTES + names + self.payload.len()
    }

    /// Its value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_bytes());
        out.extend_from_slice(&CHANGE_VERSION.to_le_bytes());
        out.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.total_bytes.to_le_bytes());
        out.extend_from_slice(&self.unix_ms.to_le_bytes());
        for (keyspace, name) in &self.names {
            out.extend_from_slice(&keyspace.to_le_bytes());
            put_prefixed(&mut out, name.as_bytes());
        }
        out.extend_from_slice(self.payload);
        out
    }

    /// # Errors
    /// `Damaged`; `Newer` for a version that this program does not know.
    pub fn decode(bytes: &'a [u8]) -> Result<Change<'a>> {
        let mut reader = Reader::new(bytes);
        check_version(0, reader.u32()?, CHANGE_VERSION)?;
        let count = reader.u32()? as usize;
        let (total_bytes, unix_ms) = (reader.u64()?, reader.u64()?);
        if count > reader.remaining() / NAME_BYTES_MIN {
            return Err(FormatError::damaged(4, "a count of names that fits the change", count.to_string()));
        }
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push((reader.u32()?, reader.text(KEYSPACE_NAME_BYTES_MAX)?));
        }
        let payload = reader.take(reader.remaining())?;
        for operation in Operations::new(payload)? {
            operation?;
        }
        Ok(Change { total_bytes, unix_ms, names, payload })
    }
}

/// Where a subscription has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionPlace {
    /// Changes up to this number were taken.
    pub sequence: u64,
    /// Bytes of changes that are kept for it at least.
    pub bytes_max: u64,
}

impl SubscriptionPlace {
    /// Its value.
    pub fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut out = [0; PLACE_BYTES];
        out[..4].copy_from_slice(&CHANGE_VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..].copy_from_slice(&self.bytes_max.to_le_bytes());
        out
    }

    /// # Errors
    /// `Damaged`; `Newer` for a version that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<SubscriptionPlace> {
        let mut reader = Reader::new(bytes);
        check_version(0, reader.u32()?, CHANGE_VERSION)?;
        if reader.u32()? != 0 {
            return Err(FormatError::damaged(4, "0", "something else"));
        }
        let place = SubscriptionPlace { sequence: reader.u64()?, bytes_max: reader.u64()? };
        reader.end()?;
        Ok(place)
    }
}

/// The key of a change.
pub fn change_key(keyspace: u32, sequence: u64) -> [u8; 13] {
    let mut key = [b'c'; 13];
    key[1..5].copy_from_slice(&keyspace.to_be_bytes());
    key[5..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// The number in the key of a change.
pub fn change_sequence(key: &[u8]) -> Option<u64> {
    key.get(5..13)?.try_into().ok().map(u64::from_be_bytes)
}

/// The key of a subscription.
pub fn subscription_key(keyspace: u32, name: &str) -> Vec<u8> {
    let mut key = vec![b's'];
    key.extend_from_slice(&keyspace.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// Keyspace and name in the key of a subscription.
pub fn subscription_of(key: &[u8]) -> Option<(u32, &str)> {
    let keyspace = u32::from_be_bytes(key.get(1..5)?.try_into().ok()?);
    Some((keyspace, std::str::from_utf8(key.get(5..)?).ok()?))
}

/// The key under which it is said which changes are gone.
pub fn trimmed_key(keyspace: u32) -> [u8; 5] {
    let mut key = [b't'; 5];
    key[1..].copy_from_slice(&keyspace.to_be_bytes());
    key
}

/// For fuzzing: what decodes must encode to the same bytes.
pub(crate) fn check_any(bytes: &[u8]) {
    if let Ok(change) = Change::decode(bytes) {
        assert_eq!(change.encode(), bytes);
    }
    if let Ok(place) = SubscriptionPlace::decode(bytes) {
        assert_eq!(place.encode(), bytes);
    }
}

/// An example, for tests and as a seed of fuzzing.
pub(crate) fn example() -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    let _pushed = batch.push(crate::key::EntryKind::Put, 3, b"key", b"value");
    let names = vec![(3, "orders")];
    Change { total_bytes: 77, unix_ms: 1_764_000_000_000, names, payload: batch.payload() }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_places_are_read_back() {
        let bytes = example();
        let change = Change::decode(&bytes).unwrap();
        assert_eq!(change.total_bytes, 77);
        assert_eq!((change.encoded_bytes(), &change.names[..]), (bytes.len(), &[(3, "orders")][..]));
        assert_eq!(Operations::new(change.payload).unwrap().count(), 1);
        let place = SubscriptionPlace { sequence: 7, bytes_max: 1 << 30 };
        assert_eq!(SubscriptionPlace::decode(&place.encode()), Ok(place));
        for bytes in [&bytes, &place.encode().to_vec()] {
            check_any(bytes);
            for end in 0..bytes.len() {
                assert!(Change::decode(&bytes[..end]).is_err(), "{end}");
                check_any(&bytes[..end]);
            }
            let newer = [&2_u32.to_le_bytes()[..], &bytes[4..]].concat();
            assert!(matches!(Change::decode(&newer), Err(FormatError::Newer { .. })));
            assert!(matches!(SubscriptionPlace::decode(&newer), Err(FormatError::Newer { .. })));
        }
    }

    #[test]
    fn keys_sort_by_keyspace_and_number() {
        let keys = [change_key(1, 255), change_key(1, 256), change_key(2, 1), change_key(256, 0)];
        assert!(keys.is_sorted());
        assert_eq!(change_sequence(&keys[1]), Some(256));
        assert_eq!(subscription_of(&subscription_key(7, "mirror")), Some((7, "mirror")));
        assert_eq!(trimmed_key(1), *b"t\0\0\0\x01");
    }
}
