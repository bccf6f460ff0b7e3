//! Operations by chance.

use std::collections::{BTreeMap, BTreeSet};

use tombolo::{Bring, Durability};
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
    /// The same, which is there for so many steps of time after this one.
    PutUntil(usize, u64),
    /// Appends an operand of so many bytes: [`OPERATOR`].
    Merge(usize),
    /// The same, which ends as [`Does::PutUntil`] does.
    MergeUntil(usize, u64),
    Delete,
    SingleDelete,
    /// Deletes all from the key to this one, without it.
    DeleteRange(Vec<u8>),
}

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

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    RollBack,
    Commit,
    /// Prepared, and then rolled back or committed.
    Prepare {
        commits: bool,
    },
    /// Prepared, and decided after another opening.
    PrepareReopen {
        commits: bool,
    },
}

impl Way {
    pub(super) fn commits(self) -> bool {
        matches!(self, Way::Commit | Way::Prepare { commits: true } | Way::PrepareReopen { commits: true })
    }
}

/// Where else the database is read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// By a reader that follows: the same one each time while the handle lives.
    Reader,
    /// Once, without a claim.
    Look,
    /// In a checkpoint.
    Checkpoint,
    /// In a copy, which is then written and compacted.
    Copy,
    /// In a clone that shares its tables, the same.
    Share,
}

/// Keys of a table from outside, and what it does to each.
pub(super) type Table = Vec<(Vec<u8>, Brings)>;

/// What a table from outside does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brings {
    Put,
    /// A value that is there for so many steps of time after this one.
    PutUntil(u64),
    Merge,
    Delete,
}

/// What a write asks of a key before it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Absent,
    Present,
    /// That it has the value that a read right before has found, or another one.
    Equal {
        right: bool,
    },
    /// That it is as a read right before has found it, or as none ever did.
    Unchanged {
        right: bool,
    },
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// One entry by the keyspace's verbs, several as a batch; whether its end is waited for.
    Write(Vec<Write>, Durability, bool),
    /// A put of so many bytes, if the key is as it asks.
    PutIf(String, Vec<u8>, usize, Asks),
    /// A delete of the same kind.
    DeleteIf(String, Vec<u8>, Asks),
    /// Writes in one batch, if all these keys are as it asks.
    Require(Vec<(String, Vec<u8>, Asks)>, Vec<Write>),
    /// A transaction of these writes, which reads the first of its keys; pessimistic or not.
    Transact(Vec<Write>, Way, bool),
    /// Takes in tables from outside at once, later ones over earlier ones; their values have so
    /// many bytes.
    Ingest(Vec<(String, Table)>, usize, Bring),
    /// The same of one table, in the place of all that is there.
    Exchange(String, Table, usize),
    /// The same, behind all that is there.
    Behind(String, Vec<Vec<u8>>, usize),
    /// Exports a keyspace as tables, and exchanges it for them.
    Export(String),
    /// Drops what tables hold from one key to another.
    DeleteFiles(String, Vec<u8>, Vec<u8>),
    /// The same by a compaction filter, of all that there is.
    Filter(String, Vec<u8>, Vec<u8>),
    /// Lets a step of time pass.
    Pass,
    /// Reads all elsewhere.
    Beside(Beside),
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
    /// What was read elsewhere is wrong.
    Differs(String),
    /// Whether a condition held.
    Met(bool),
    /// Whether the old handle learned of the takeover.
    Fenced(bool),
    Value(Option<Vec<u8>>),
    Values(Vec<Option<Vec<u8>>>),
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
}

impl Answer {
    pub(super) fn or_none(is_there: bool) -> Answer {
        if is_there { Answer::Done } else { Answer::None }
    }

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

fn keyspace(random: &mut Random) -> String {
    ["default", "default", "orders", "users"][random.index(4)].to_owned()
}

/// Whether values of a key may end. Operands of such a key always do, and of no other: what an
/// operand without an end lies over would depend on whether its keyspace gives it one.
fn may_end(key: &[u8]) -> bool {
    key.last().is_some_and(|last| last % 2 == 1)
}

/// For how many steps of time after this one something is there.
fn steps(random: &mut Random) -> u64 {
    random.below(3)
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
            let bytes = random.index(most);
            if may_end(&key) { Does::MergeUntil(bytes, steps(random)) } else { Does::Merge(bytes) }
        }
        // Most are short, so that they do not empty the keyspace.
        14 if key < other && random.percent(20) => Does::DeleteRange(other),
        14 | 15 => Does::DeleteRange([&key[..], b"\xff"].concat()),
        16..=18 if may_end(&key) => {
            let most = if random.percent(20) { 2000 } else { 70 };
            Does::PutUntil(random.index(most), steps(random))
        }
        _ => Does::Put(random.index(70)),
    };
    Write { keyspace, key, does }
}

/// Keys in ascending order, each once.
fn table(random: &mut Random, keyspace: &str) -> Table {
    let keys: BTreeSet<_> = (0..1 + random.index(12)).map(|_| key(random)).collect();
    let of = |key: Vec<u8>| {
        let brings = match random.below(10) {
            0..=3 if may_end(&key) => Brings::PutUntil(steps(random)),
            // A table says of no operand when it was written, and so of none that it ends.
            0..=3 if keyspace != "default" => Brings::Merge,
            4 => Brings::Delete,
            _ => Brings::Put,
        };
        (key, brings)
    };
    keys.into_iter().map(of).collect()
}

fn ingest(random: &mut Random) -> Action {
    let tables = (0..1 + random.index(3)).map(|_| {
        let name = keyspace(random);
        let table = table(random, &name);
        (name, table)
    });
    let tables = tables.collect();
    Action::Ingest(tables, random.index(1500), [Bring::Link, Bring::Move, Bring::Copy][random.index(3)])
}

fn exchange(random: &mut Random) -> Action {
    let name = keyspace(random);
    let table = table(random, &name);
    Action::Exchange(name, table, random.index(700))
}

fn asks(random: &mut Random) -> Asks {
    let right = random.percent(70);
    match random.below(5) {
        0 => Asks::Absent,
        1 => Asks::Present,
        2 => Asks::Equal { right },
        _ => Asks::Unchanged { right },
    }
}

fn require(random: &mut Random) -> Action {
    let asked = (0..1 + random.index(4)).map(|_| (keyspace(random), key(random), asks(random))).collect();
    let writes = (0..random.index(5)).map(|_| write(random)).collect();
    Action::Require(asked, writes)
}

/// A keyspace, and a part of it with both ends within what keys have.
fn part(random: &mut Random) -> (String, Vec<u8>, Vec<u8>) {
    let (one, other) = (key(random), key(random));
    let (from, to) = if one < other { (one, other) } else { (other, one) };
    (keyspace(random), from, [&to[..], b"\xff"].concat())
}

fn transact(random: &mut Random) -> Action {
    // One write of a key: what two single deletes come to depends on the flushes between.
    let writes: BTreeMap<_, _> = (0..1 + random.index(5))
        .map(|_| write(random))
        .map(|write| ((write.keyspace.clone(), write.key.clone()), write))
        .collect();
    let commits = random.percent(70);
    let way = match random.below(4) {
        0 => Way::RollBack,
        1 => Way::Commit,
        2 => Way::Prepare { commits },
        _ => Way::PrepareReopen { commits },
    };
    Action::Transact(writes.into_values().collect(), way, random.percent(50))
}

fn behind(random: &mut Random) -> Action {
    let place = random.below(20) * 10;
    let keys = (place..place + 10).filter(|_| random.percent(60));
    let keys = keys.map(|number| format!("other-{number:04}").into_bytes()).collect();
    Action::Behind(["orders", "users"][random.index(2)].to_owned(), keys, random.index(1500))
}

fn durability(random: &mut Random) -> Durability {
    [Durability::Unlogged, Durability::Accepted, Durability::Accepted, Durability::Durable][random.index(4)]
}

fn action(random: &mut Random) -> Action {
    match random.below(124) {
        0..=49 => {
            let count = if random.percent(30) { 2 + random.index(8) } else { 1 };
            let writes = (0..count).map(|_| write(random)).collect();
            Action::Write(writes, durability(random), random.percent(30))
        }
        50..=56 => Action::Get(keyspace(random), key(random)),
        57 => Action::PutIf(keyspace(random), key(random), random.index(200), asks(random)),
        58 => ingest(random),
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
        98..=99 => Action::Crash(Crash::PowerLoss),
        100..=103 => transact(random),
        104..=105 => behind(random),
        106 => exchange(random),
        107 => Action::Export(keyspace(random)),
        108 => {
            let (keyspace, from, to) = part(random);
            Action::DeleteFiles(keyspace, from, to)
        }
        109..=111 => Action::Pass,
        112..=114 => Action::Beside(Beside::Reader),
        115 => Action::Beside(Beside::Look),
        116 => Action::Beside(Beside::Checkpoint),
        117 => Action::Beside(Beside::Copy),
        118 => Action::Beside(Beside::Share),
        119 => Action::DeleteIf(keyspace(random), key(random), asks(random)),
        120..=121 => require(random),
        122 => {
            let (keyspace, from, to) = part(random);
            Action::Filter(keyspace, from, to)
        }
        _ => Action::DropSnapshot,
    }
}

/// What the stream of the tape is named by that says which actions there are.
const ACTIONS: u64 = 1 << 34;

/// The history of a seed.
pub(super) fn history(seed: u64, count: usize) -> Vec<Action> {
    let mut random = Random::new(seed, 8);
    let mut actions = Vec::with_capacity(count);
    // Keyspaces that are not there take no writes: both are made early, and again once dropped.
    let mut missing = vec!["orders".to_owned(), "users".to_owned()];
    while actions.len() < count {
        let action = if !missing.is_empty() && random.percent(30) {
            Action::Create(missing.swap_remove(0))
        } else {
            action(&mut random)
        };
        match &action {
            Action::Create(name) => missing.retain(|other| other != name),
            Action::Drop(name) if !missing.contains(name) => missing.push(name.clone()),
            _ => {}
        }
        actions.push(action);
    }
    // One that is shrunk leaves some out.
    let stream = Stream::open(seed, ACTIONS);
    actions.into_iter().filter(|_| stream.happens(true)).collect()
}
