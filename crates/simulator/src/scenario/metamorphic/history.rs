//! Operations by chance, and what an ordered map answers.

use std::collections::{BTreeMap, BTreeSet};

use tombolo::Durability;
use tombolo_env::simulated::Crash;
use tombolo_env::simulated::tape::Stream;

use crate::client::key;
use crate::random::Random;

/// Entries that a walk of a cursor goes, each way.
pub(super) const WALK_ENTRIES: usize = 4;

/// One entry of a write.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) keyspace: String,
    pub(super) key: Vec<u8>,
    pub(super) does: Does,
}

/// What an entry does.
#[derive(Clone, Debug)]
pub(super) enum Does {
    /// Puts a value of so many bytes.
    Put(usize),
    /// Appends an operand of so many bytes: [`OPERATOR`].
    Merge(usize),
    Delete,
    SingleDelete,
    /// Deletes all from the key to this one, without it.
    DeleteRange(Vec<u8>),
}

/// The merge operator of keyspaces that have one: all but the first.
pub(super) const OPERATOR: &str = "append";

/// The value or operand of so many bytes that operation `number` writes: it names its operation, so
/// that no two are equal; half of it compresses.
pub(super) fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = format!("{number}:").into_bytes();
    let mut filler = Random::fixed(number as u64, 7);
    while value.len() < bytes {
        value.extend_from_slice(&filler.next().to_le_bytes());
        value.extend_from_slice(b"the same");
    }
    value
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// One entry by the keyspace's verbs, several as a batch; whether its end is waited for.
    Write(Vec<Write>, Durability, bool),
    /// A put of so many bytes where the key is absent, or else where it is present.
    PutIf(String, Vec<u8>, usize, bool),
    /// Takes in a table from outside that puts a value of so many bytes under each of the keys.
    Ingest(String, Vec<Vec<u8>>, usize),
    Create(String),
    Drop(String),
    Flush,
    Compact,
    Snapshot,
    DropSnapshot,
    /// Closes and opens.
    Reopen,
    /// Opens beside the open handle, which must learn it.
    TakeOver,
    /// Ends the process, or the host.
    Crash(Crash),
    Get(String, Vec<u8>),
    MultiGet(String, Vec<Vec<u8>>),
    Scan(String, Vec<u8>, Vec<u8>, bool),
    Prefix(String, Vec<u8>, bool),
    Walk(String, Vec<u8>),
    ReadSnapshot(String, usize),
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// The keyspace or snapshot is not there.
    None,
    /// Two ways to read gave two answers.
    Disagree,
    /// Whether a condition held.
    Met(bool),
    /// Whether the old handle learned of the takeover.
    Fenced(bool),
    Value(Option<Vec<u8>>),
    Values(Vec<Option<Vec<u8>>>),
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

impl Answer {
    pub(super) fn entries<'a>(
        entries: impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
        forward: bool,
    ) -> Answer {
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        Answer::Entries(if forward {
            entries.map(owned).collect()
        } else {
            entries.rev().map(owned).collect()
        })
    }
}

/// What the database must hold.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) content: BTreeMap<String, Map>,
    pub(super) snapshots: Vec<BTreeMap<String, Map>>,
}

impl Default for Model {
    fn default() -> Model {
        Model { content: BTreeMap::from([("default".to_owned(), Map::new())]), snapshots: Vec::new() }
    }
}

impl Model {
    /// Does operation `number`, and says what it answers.
    pub(super) fn apply(&mut self, action: &Action, number: usize) -> Answer {
        match action {
            Action::Write(writes, ..) => {
                for write in writes {
                    let Some(map) = self.content.get_mut(&write.keyspace) else { continue };
                    match &write.does {
                        Does::Put(bytes) => drop(map.insert(write.key.clone(), value(number, *bytes))),
                        Does::Merge(bytes) => {
                            map.entry(write.key.clone()).or_default().extend(value(number, *bytes));
                        }
                        Does::Delete | Does::SingleDelete => drop(map.remove(&write.key)),
                        Does::DeleteRange(to) => {
                            map.retain(|key, _| *key < write.key || key >= to);
                        }
                    }
                }
            }
            Action::PutIf(keyspace, key, bytes, absent) => {
                let Some(map) = self.content.get_mut(keyspace) else { return Answer::None };
                let is_met = map.contains_key(key) != *absent;
                if is_met {
                    map.insert(key.clone(), value(number, *bytes));
                }
                return Answer::Met(is_met);
            }
            Action::Ingest(keyspace, keys, bytes) => {
                let Some(map) = self.content.get_mut(keyspace) else { return Answer::None };
                map.extend(keys.iter().map(|key| (key.clone(), value(number, *bytes))));
            }
            Action::Create(name) => {
                self.content.entry(name.clone()).or_default();
            }
            Action::Drop(name) => {
                self.content.remove(name);
                self.snapshots.iter_mut().for_each(|snapshot| drop(snapshot.remove(name)));
            }
            Action::Flush | Action::Compact | Action::Crash(_) => {}
            Action::Snapshot => self.snapshots.push(self.content.clone()),
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(0);
                }
            }
            Action::Reopen => self.snapshots.clear(),
            Action::TakeOver => {
                self.snapshots.clear();
                return Answer::Fenced(true);
            }
            Action::ReadSnapshot(keyspace, nth) => {
                return match (self.content.contains_key(keyspace), self.snapshots.get(*nth)) {
                    (true, Some(snapshot)) => {
                        // One that was created after the snapshot holds nothing at it.
                        let empty = Map::new();
                        Answer::entries(snapshot.get(keyspace).unwrap_or(&empty).iter(), nth % 2 == 0)
                    }
                    _ => Answer::None,
                };
            }
            read => return self.read(read),
        }
        Answer::Done
    }

    fn read(&self, action: &Action) -> Answer {
        let (Action::Get(keyspace, _)
        | Action::MultiGet(keyspace, _)
        | Action::Scan(keyspace, ..)
        | Action::Prefix(keyspace, ..)
        | Action::Walk(keyspace, _)) = action
        else {
            return Answer::Done;
        };
        let Some(map) = self.content.get(keyspace) else { return Answer::None };
        match action {
            Action::Get(_, key) => Answer::Value(map.get(key).cloned()),
            Action::MultiGet(_, keys) => {
                Answer::Values(keys.iter().map(|key| map.get(key).cloned()).collect())
            }
            Action::Scan(_, from, to, _) if from >= to => Answer::Entries(Vec::new()),
            Action::Scan(_, from, to, forward) => {
                Answer::entries(map.range(from.clone()..to.clone()), *forward)
            }
            Action::Prefix(_, prefix, forward) => {
                Answer::entries(map.iter().filter(|(key, _)| key.starts_with(prefix)), *forward)
            }
            Action::Walk(_, key) => {
                let on = map.range(key.clone()..).take(WALK_ENTRIES);
                let back = map.range(..=key.clone()).rev().take(WALK_ENTRIES);
                Answer::Entries(on.chain(back).map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            _ => Answer::Done,
        }
    }
}

fn keyspace(random: &mut Random) -> String {
    ["default", "default", "orders", "users"][random.index(4)].to_owned()
}

fn write(random: &mut Random) -> Write {
    let (keyspace, key, other) = (keyspace(random), key(random), key(random));
    let does = match random.below(24) {
        0..=2 => Does::Delete,
        3 => Does::SingleDelete,
        4 => Does::Put(random.index(6000)),
        5..=8 => Does::Put(random.index(700)),
        9..=13 if keyspace != "default" => {
            let most = if random.percent(10) { 2000 } else { 40 };
            Does::Merge(random.index(most))
        }
        // Most are short, so that they do not empty the keyspace.
        14 if key < other && random.percent(20) => Does::DeleteRange(other),
        14 | 15 => Does::DeleteRange([&key[..], b"\xff"].concat()),
        _ => Does::Put(random.index(70)),
    };
    Write { keyspace, key, does }
}

fn action(random: &mut Random) -> Action {
    match random.below(100) {
        0..=49 => {
            let count = if random.percent(30) { 2 + random.index(8) } else { 1 };
            let writes = (0..count).map(|_| write(random)).collect();
            let durability =
                [Durability::Unlogged, Durability::Accepted, Durability::Accepted, Durability::Durable]
                    [random.index(4)];
            Action::Write(writes, durability, random.percent(30))
        }
        50..=56 => Action::Get(keyspace(random), key(random)),
        57 => Action::PutIf(keyspace(random), key(random), random.index(200), random.percent(50)),
        58 => {
            // Ascending, each once.
            let keys: BTreeSet<_> = (0..1 + random.index(12)).map(|_| key(random)).collect();
            Action::Ingest(keyspace(random), keys.into_iter().collect(), random.index(1500))
        }
        59..=60 => Action::MultiGet(keyspace(random), (0..random.below(9)).map(|_| key(random)).collect()),
        61..=66 => Action::Scan(keyspace(random), key(random), key(random), random.percent(50)),
        67..=69 => Action::Prefix(
            keyspace(random),
            [&b"key-0"[..], b"key", b"other-01", b""][random.index(4)].to_vec(),
            random.percent(50),
        ),
        70..=72 => Action::Walk(keyspace(random), key(random)),
        73..=75 => Action::Create(["orders", "users"][random.index(2)].to_owned()),
        76 => Action::Drop(["orders", "users"][random.index(2)].to_owned()),
        77..=80 => Action::Flush,
        81..=82 => Action::Compact,
        83..=85 => Action::Snapshot,
        86..=89 => Action::ReadSnapshot(keyspace(random), random.index(3)),
        90 => Action::DropSnapshot,
        91..=93 => Action::Reopen,
        94..=95 => Action::TakeOver,
        96..=97 => Action::Crash(Crash::Kill),
        _ => Action::Crash(Crash::PowerLoss),
    }
}

/// What the stream of the tape is named by that says which actions there are.
const ACTIONS: u64 = 1 << 34;

/// The history of a seed.
pub(super) fn history(seed: u64, count: usize) -> Vec<Action> {
    let mut random = Random::new(seed, 8);
    let actions = (0..count).map(|_| action(&mut random)).collect::<Vec<_>>();
    // One that is shrunk leaves some out.
    let stream = Stream::open(seed, ACTIONS);
    actions.into_iter().filter(|_| stream.happens(true)).collect()
}
