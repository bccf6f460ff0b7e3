//! What a database holds, as plain maps with a fingerprint that changes with each entry.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

/// One change to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A keyspace is made.
    Create(String),
    /// A keyspace goes, with all in it.
    Drop(String),
    /// A key gets a value.
    Put(String, Vec<u8>, Vec<u8>),
    /// The same of one that ends, after all that is looked at.
    PutUntil(String, Vec<u8>, Vec<u8>),
    /// A key goes.
    Delete(String, Vec<u8>),
    /// A key gets more at the end of its value.
    Merge(String, Vec<u8>, Vec<u8>),
    /// A key goes that was put once; any other goes as well.
    SingleDelete(String, Vec<u8>),
    /// All keys from the first to the second go, without that.
    DeleteRange(String, Vec<u8>, Vec<u8>),
}

/// Keyspaces with their entries.
pub type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A content and its fingerprint: equal contents have equal ones, and different ones differ but for
/// one case in 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    content: Content,
    /// Invariant: the wrapping sum of the hashes of all keyspaces and entries.
    fingerprint: u64,
}

impl Default for State {
    fn default() -> State {
        State::new(Content::from([("default".to_owned(), BTreeMap::new())]))
    }
}

fn hash(keyspace: &str, key: &[u8], value: &[u8]) -> u64 {
    let mut bytes = Vec::with_capacity(keyspace.len() + key.len() + value.len() + 16);
    for part in [keyspace.as_bytes(), key, value] {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    xxh3_64(&bytes)
}

fn hash_keyspace(keyspace: &str) -> u64 {
    xxh3_64(keyspace.as_bytes())
}

impl State {
    /// The state of `content`.
    pub fn new(content: Content) -> State {
        let mut fingerprint = 0u64;
        for (keyspace, entries) in &content {
            fingerprint = fingerprint.wrapping_add(hash_keyspace(keyspace));
            for (key, value) in entries {
                fingerprint = fingerprint.wrapping_add(hash(keyspace, key, value));
            }
        }
        State { content, fingerprint }
    }

    /// What it holds.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Its fingerprint.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The value of a key.
    pub fn get(&self, keyspace: &str, key: &[u8]) -> Option<&[u8]> {
        self.content.get(keyspace)?.get(key).map(Vec::as_slice)
    }

    /// Number of entries in all keyspaces.
    pub fn entries(&self) -> usize {
        self.content.values().map(BTreeMap::len).sum()
    }

    /// Applies a change. What names an absent keyspace does nothing.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(keyspace) => {
                if !self.content.contains_key(keyspace) {
                    self.content.insert(keyspace.clone(), BTreeMap::new());
                    self.fingerprint = self.fingerprint.wrapping_add(hash_keyspace(keyspace));
                }
            }
            Change::Drop(keyspace) => {
                if let Some(entries) = self.content.remove(keyspace) {
                    self.fingerprint = self.fingerprint.wrapping_sub(hash_keyspace(keyspace));
                    for (key, value) in entries {
                        self.fingerprint = self.fingerprint.wrapping_sub(hash(keyspace, &key, &value));
                    }
                }
            }
            Change::Put(keyspace, key, value) | Change::PutUntil(keyspace, key, value) => {
                self.put(keyspace, key, value.clone());
            }
            Change::Merge(keyspace, key, operand) => {
                let before = self.get(keyspace, key).unwrap_or_default();
                self.put(keyspace, key, [before, operand].concat());
            }
            Change::Delete(keyspace, key) | Change::SingleDelete(keyspace, key) => {
                self.delete(keyspace, key);
            }
            Change::DeleteRange(keyspace, from, to) => {
                let entries = self.content.get(keyspace).into_iter();
                let keys: Vec<Vec<u8>> = entries
                    .flat_map(|entries| entries.range(from.clone()..to.clone()))
                    .map(|(key, _)| key.clone())
                    .collect();
                keys.iter().for_each(|key| self.delete(keyspace, key));
            }
        }
    }

    fn put(&mut self, keyspace: &str, key: &[u8], value: Vec<u8>) {
        if let Some(entries) = self.content.get_mut(keyspace) {
            self.fingerprint = self.fingerprint.wrapping_add(hash(keyspace, key, &value));
            if let Some(before) = entries.insert(key.to_vec(), value) {
                self.fingerprint = self.fingerprint.wrapping_sub(hash(keyspace, key, &before));
            }
        }
    }

    fn delete(&mut self, keyspace: &str, key: &[u8]) {
        if let Some(before) = self.content.get_mut(keyspace).and_then(|entries| entries.remove(key)) {
            self.fingerprint = self.fingerprint.wrapping_sub(hash(keyspace, key, &before));
        }
    }

    /// What differs from `found`, in words, at most `limit` lines; and how many differences there
    /// are.
    pub fn differences(&self, found: &State, limit: usize) -> (usize, Vec<String>) {
        let mut lines = Vec::new();
        let mut count = 0;
        let mut differ = |line: &dyn Fn() -> String| {
            count += 1;
            if lines.len() < limit {
                lines.push(line());
            }
        };
        for name in self.content.keys().filter(|name| !found.content.contains_key(*name)) {
            differ(&|| format!("keyspace {name} is missing"));
        }
        for (name, entries) in &found.content {
            let Some(expected) = self.content.get(name) else {
                differ(&|| format!("keyspace {name} should not be there"));
                continue;
            };
            for (key, value) in expected {
                match entries.get(key) {
                    Some(found) if found == value => {}
                    Some(found) => differ(&|| {
                        format!("{name}/{} is {}, expected {}", show(key), show(found), show(value))
                    }),
                    None => differ(&|| format!("{name}/{} is missing, expected {}", show(key), show(value))),
                }
            }
            for (key, value) in entries.iter().filter(|(key, _)| !expected.contains_key(*key)) {
                differ(&|| format!("{name}/{} is {}, expected none", show(key), show(value)));
            }
        }
        (count, lines)
    }
}

/// The beginning of some bytes, readable.
pub fn show(bytes: &[u8]) -> String {
    let text: String = bytes.iter().take(28).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    if bytes.len() > 28 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}
