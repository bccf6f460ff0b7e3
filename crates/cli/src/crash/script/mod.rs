//! The script of the crash test: which operations each batch holds is a function of seed, round,
//! thread and number, so that writer and oracle need no words about it.

use std::collections::BTreeMap;

use rand::{Rng, RngCore};
use tombolo::Durability;

/// Threads that write at once. Each has keys of its own; all share the log.
pub const THREADS: u8 = 2;
/// Keyspaces that every batch may span.
pub const KEYSPACES: [&str; 2] = ["default", "second"];
/// Keys of a thread in each keyspace: few, so that they are written again and again.
pub const KEYS: u32 = 300;

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Index into [`KEYSPACES`].
    pub keyspace: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` deletes.
    pub value: Option<Vec<u8>>,
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripted {
    /// Its writes; the last is the marker.
    pub writes: Vec<Write>,
    /// What it must survive.
    pub durability: Durability,
}

/// The key under which thread `thread` says which batch was its last.
pub fn marker_key(thread: u8) -> Vec<u8> {
    vec![thread, b'!']
}

/// Key `number` of a thread.
pub fn key(thread: u8, number: u32) -> Vec<u8> {
    let mut key = vec![thread, b'k'];
    key.extend(number.to_be_bytes());
    key
}

/// Batch `number` of `thread` in `round`, over `keys` keys.
pub fn batch(keys: u32, seed: u64, round: u64, thread: u8, number: u64) -> Scripted {
    let mixed = seed ^ round.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mut random = tombolo_workload::random(mixed, u64::from(thread));
    let mut writes: Vec<Write> = (0..random.random_range(1..=6))
        .map(|_| {
            let key = key(thread, random.random_range(0..keys));
            let value = random.random_bool(0.85).then(|| {
                // Mostly short, now and then one that spans blocks and pages.
                let length = if random.random_bool(0.02) {
                    random.random_range(0..40_000)
                } else {
                    random.random_range(0..300)
                };
                let mut value = vec![0; length];
                random.fill_bytes(&mut value);
                value
            });
            Write { keyspace: random.random_range(0..KEYSPACES.len()), key, value }
        })
        .collect();
    writes.push(Write { keyspace: 0, key: marker_key(thread), value: Some(number.to_be_bytes().to_vec()) });
    let durability = if random.random_bool(0.3) { Durability::Accepted } else { Durability::Durable };
    Scripted { writes, durability }
}

/// A value as the oracle knows it: so the oracle of a soak takes some megabytes, and not what the
/// database takes several times over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    bytes: usize,
    hash: u64,
}

impl Known {
    /// The knowledge of a value.
    pub fn of(value: &[u8]) -> Known {
        Known { bytes: value.len(), hash: tombolo_format::checksum::key_hash(value) }
    }

    /// Bytes of the value.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a thread's keys hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    values: BTreeMap<(usize, Vec<u8>), Known>,
    /// The number in the marker; 0 without one.
    marker: u64,
}

impl State {
    /// Applies a batch.
    pub fn apply(&mut self, batch: &Scripted) {
        for write in &batch.writes {
            self.set(write.keyspace, &write.key, write.value.as_deref());
        }
    }

    /// A key holds this value from here on, or none.
    pub fn set(&mut self, keyspace: usize, key: &[u8], value: Option<&[u8]>) {
        if keyspace == 0 && key.len() == 2 && key[1] == b'!' {
            self.marker =
                value.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?))).unwrap_or(0);
        }
        let place = (keyspace, key.to_vec());
        match value {
            Some(value) => self.values.insert(place, Known::of(value)),
            None => self.values.remove(&place),
        };
    }

    /// What a key holds.
    pub fn get(&self, keyspace: usize, key: &[u8]) -> Option<Known> {
        self.values.get(&(keyspace, key.to_vec())).copied()
    }

    /// The keys of a keyspace in `from..to`, and what they hold.
    pub fn range(&self, keyspace: usize, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&[u8], Known)> {
        let range = self.values.range((keyspace, from.to_vec())..(keyspace, to.to_vec()));
        range.map(|((_, key), value)| (&key[..], *value))
    }

    /// The number of the last batch that the marker tells of; 0 without one.
    pub fn marker(&self) -> u64 {
        self.marker
    }

    /// A digest of all keys and what they hold.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        for ((keyspace, key), value) in &self.values {
            bytes.extend(
                [*keyspace as u64, key.len() as u64, value.bytes as u64, value.hash]
                    .map(u64::to_le_bytes)
                    .concat(),
            );
            bytes.extend(key);
        }
        tombolo_format::checksum::key_hash(&bytes)
    }

    /// The first place in which two states differ, and how, in words.
    pub fn difference(&self, found: &State) -> Option<((usize, Vec<u8>), String)> {
        let say = |value: Option<&Known>| {
            value.map_or("nothing".to_owned(), |value| format!("{} bytes", value.bytes))
        };
        let places = self.values.keys().chain(found.values.keys());
        let different =
            places.into_iter().find(|place| self.values.get(*place) != found.values.get(*place))?;
        let (expected, there) = (self.values.get(different), found.values.get(different));
        let key = crate::text::shown(&different.1);
        let mut words = format!(
            "key {key} of keyspace {}: expected {}, found {}",
            KEYSPACES[different.0],
            say(expected),
            say(there)
        );
        if let (Some(expected), Some(there)) = (expected, there)
            && expected.bytes == there.bytes
        {
            words += " of another content";
        }
        Some((different.clone(), words))
    }
}

#[cfg(test)]
mod tests;
