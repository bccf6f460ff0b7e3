//! What a client does next: written down for scripted histories, drawn by chance for random ones.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tombolo::Durability;
use tombolo_env::simulated::tape::Stream;

use super::{Client, Stop};
use crate::oracle::{Change, SessionId, show};
use crate::random::Random;

/// One entry of a write.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A value of that many bytes for a key; the value names its write, so that no two are equal.
    Put(String, Vec<u8>, usize),
    /// The same, which ends years from now.
    PutUntil(String, Vec<u8>, usize),
    /// No value.
    Delete(String, Vec<u8>),
    /// An operand of that many bytes, appended to what the key has: of keyspaces that were created.
    Merge(String, Vec<u8>, usize),
    /// No value, of a key that was put once: or as a delete.
    SingleDelete(String, Vec<u8>),
    /// No value for all keys from the first to the second, without that.
    DeleteRange(String, Vec<u8>, Vec<u8>),
}

impl Entry {
    pub(super) fn keyspace(&self) -> &str {
        match self {
            Entry::Put(keyspace, ..)
            | Entry::PutUntil(keyspace, ..)
            | Entry::Delete(keyspace, _)
            | Entry::Merge(keyspace, ..)
            | Entry::SingleDelete(keyspace, _)
            | Entry::DeleteRange(keyspace, ..) => keyspace,
        }
    }

    pub(super) fn change(&self, session: SessionId, place: usize, nth: usize) -> Change {
        let value = |length: usize| {
            let mut value = format!("{}.{place}.{nth}:", session.0).into_bytes();
            let mut filler = Random::fixed(session.0, (place * 64 + nth) as u64);
            while value.len() < length {
                value.extend_from_slice(&filler.next().to_le_bytes());
            }
            value.truncate(length.max(8));
            value
        };
        match self {
            Entry::Put(keyspace, key, length) => Change::Put(keyspace.clone(), key.clone(), value(*length)),
            Entry::PutUntil(keyspace, key, length) => {
                Change::PutUntil(keyspace.clone(), key.clone(), value(*length))
            }
            Entry::Delete(keyspace, key) => Change::Delete(keyspace.clone(), key.clone()),
            Entry::Merge(keyspace, key, length) => {
                Change::Merge(keyspace.clone(), key.clone(), value(*length))
            }
            Entry::SingleDelete(keyspace, key) => Change::SingleDelete(keyspace.clone(), key.clone()),
            Entry::DeleteRange(keyspace, from, to) => {
                Change::DeleteRange(keyspace.clone(), from.clone(), to.clone())
            }
        }
    }

    /// Some puts and deletes become what else there is, by a chance of their own.
    fn richer(self, random: &mut Random) -> Entry {
        match self {
            Entry::Put(keyspace, key, length) if keyspace != "default" && random.percent(40) => {
                Entry::Merge(keyspace, key, length.min(300))
            }
            Entry::Delete(keyspace, key) => match random.below(4) {
                0 => Entry::SingleDelete(keyspace, key),
                1 => {
                    let (one, other) = (key, self::key(random));
                    let (from, to) = if one < other { (one, other) } else { (other, one) };
                    // Most are short, so that they do not empty the keyspace.
                    let to = if random.percent(20) { to } else { from.clone() };
                    Entry::DeleteRange(keyspace, from, [&to[..], b"\xff"].concat())
                }
                _ => Entry::Delete(keyspace, key),
            },
            entry => entry,
        }
    }
}

/// What a write asks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// It has no value.
    Absent,
    /// It has one.
    Present,
    /// It is as a read right before has found it.
    Unchanged,
    /// It has another value than that.
    Other,
}

/// How a table from outside comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Over all that is there.
    Over,
    /// In its place.
    Exchange,
    /// Behind it, with keys that nothing else writes.
    Behind,
}

/// What a client does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Calls a write without waiting: one entry by the keyspace's verbs, several as a batch.
    Begin(Vec<Entry>, Durability),
    /// Calls a write and waits for all that were called.
    Write(Vec<Entry>, Durability),
    /// Waits for all writes that were called.
    Settle,
    /// Puts a value of that many bytes if its key is as it asks; waits for all writes before it.
    PutIf(String, Vec<u8>, usize, Asks),
    /// Takes in a table from outside with values of that many bytes; waits for all writes before.
    Ingest(String, BTreeSet<Vec<u8>>, usize, Takes),
    /// Creates a keyspace.
    Create(String),
    /// Drops a keyspace.
    Drop(String),
    /// Flushes.
    Flush,
    /// Compacts.
    Compact,
    /// Takes a snapshot.
    Snapshot,
    /// Reads all snapshots whole.
    CheckSnapshots,
    /// Drops the oldest snapshot.
    DropSnapshot,
    /// Reads one key in each way.
    Get(String, Vec<u8>),
    /// Scans a range of a keyspace.
    Scan(String, Vec<u8>, Vec<u8>),
    /// Reads everything in each way.
    ReadAll,
    /// Asks whether this process still owns the database.
    Confirm,
    /// Lets virtual time pass.
    Sleep(Duration),
}

/// What a session's stream of the tape is named by.
const STEPS: u64 = 1 << 33;

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Put(keyspace, key, length) => {
                write!(formatter, "put {keyspace}/{} of {length} bytes", show(key))
            }
            Entry::PutUntil(keyspace, key, length) => {
                write!(formatter, "put {keyspace}/{} of {length} bytes that end", show(key))
            }
            Entry::Delete(keyspace, key) => write!(formatter, "delete {keyspace}/{}", show(key)),
            Entry::Merge(keyspace, key, length) => {
                write!(formatter, "merge {length} bytes into {keyspace}/{}", show(key))
            }
            Entry::SingleDelete(keyspace, key) => {
                write!(formatter, "delete once {keyspace}/{}", show(key))
            }
            Entry::DeleteRange(keyspace, from, to) => {
                write!(formatter, "delete {keyspace}/{}..{}", show(from), show(to))
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |entries: &[Entry]| entries.iter().map(Entry::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Step::Begin(entries, durability) => write!(formatter, "begins, {durability:?}: {}", all(entries)),
            Step::Write(entries, durability) => write!(formatter, "writes, {durability:?}: {}", all(entries)),
            Step::Get(keyspace, key) => write!(formatter, "gets {keyspace}/{}", show(key)),
            Step::Scan(keyspace, from, to) => {
                write!(formatter, "scans {keyspace}/{}..{}", show(from), show(to))
            }
            Step::PutIf(keyspace, key, length, asks) => {
                write!(formatter, "puts {keyspace}/{} of {length} bytes if {asks:?}", show(key))
            }
            Step::Ingest(keyspace, keys, length, takes) => {
                write!(formatter, "ingests into {keyspace}, {takes:?}: {} keys of {length} bytes", keys.len())
            }
            Step::Create(keyspace) => write!(formatter, "creates {keyspace}"),
            Step::Drop(keyspace) => write!(formatter, "drops {keyspace}"),
            Step::Sleep(duration) => write!(formatter, "sleeps {duration:?}"),
            step => write!(formatter, "{step:?}"),
        }
    }
}

impl Client {
    /// Does one step.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        self.alive()?;
        self.process.world().say(|| format!("{}: {step}", self.process.name()));
        match step {
            Step::Begin(entries, durability) => self.begin(entries, *durability),
            Step::Write(entries, durability) => self.write(entries, *durability).await,
            Step::Settle => self.settle().await,
            Step::PutIf(keyspace, key, length, asks) => self.put_if(keyspace, key, *length, *asks).await,
            Step::Ingest(keyspace, keys, length, takes) => self.ingest(keyspace, keys, *length, *takes).await,
            Step::Create(name) => self.create(name).await,
            Step::Drop(name) => self.drop_keyspace(name).await,
            Step::Flush => self.flush().await,
            Step::Compact => self.compact().await,
            Step::Snapshot => self.take_snapshot(),
            Step::CheckSnapshots => self.check_snapshots().await,
            Step::DropSnapshot => {
                self.drop_snapshot();
                Ok(())
            }
            Step::Get(keyspace, key) => self.check_get(keyspace, key).await,
            Step::Scan(keyspace, from, to) => self.check_scan(keyspace, from, to).await,
            Step::ReadAll => self.check_all().await,
            Step::Confirm => self.confirm().await,
            Step::Sleep(duration) => {
                self.process.sleep(*duration).await;
                self.alive()
            }
        }
    }

    /// Does some steps.
    ///
    /// # Errors
    /// As [`Client::step`].
    pub async fn steps(&mut self, steps: &[Step]) -> Result<(), Stop> {
        // A history that is shrunk leaves some out.
        let stream = Stream::open(self.id().0, STEPS);
        for step in steps {
            if stream.happens(true) {
                self.step(step).await?;
            }
        }
        Ok(())
    }
}

/// Keys of scenarios: few, so that they are written again and again, and some beginning like
/// others.
pub fn key(random: &mut Random) -> Vec<u8> {
    match random.below(14) {
        number @ 0..=10 => format!("key-{number:02}").into_bytes(),
        11 => b"key".to_vec(),
        12 => b"key-01\0".to_vec(),
        _ => format!("other-{:04}", random.below(200)).into_bytes(),
    }
}

fn keyspace(random: &mut Random) -> String {
    match random.below(4) {
        0 => "orders".to_owned(),
        1 => "users".to_owned(),
        _ => "default".to_owned(),
    }
}

fn entry(random: &mut Random) -> Entry {
    if random.percent(25) {
        return Entry::Delete(keyspace(random), key(random));
    }
    let length = match random.below(20) {
        0 => random.index(3000),
        1..=4 => random.index(500),
        _ => random.index(60),
    };
    Entry::Put(keyspace(random), key(random), length)
}

fn entries(random: &mut Random) -> Vec<Entry> {
    let count = if random.percent(30) { 2 + random.index(6) } else { 1 };
    (0..count).map(|_| entry(random)).collect()
}

fn durability(random: &mut Random) -> Durability {
    match random.below(10) {
        0 => Durability::Unlogged,
        1..=4 => Durability::Accepted,
        _ => Durability::Durable,
    }
}

/// A step by chance.
pub fn random_step(random: &mut Random) -> Step {
    match random.below(100) {
        0..=29 => Step::Begin(entries(random), durability(random)),
        30..=59 => Step::Write(entries(random), durability(random)),
        60..=64 => Step::Settle,
        65..=66 => Step::Create(keyspace(random)),
        67 => Step::Drop(keyspace(random)),
        68..=70 => Step::Flush,
        71..=72 => Step::Compact,
        73..=75 => Step::Snapshot,
        76..=78 => Step::CheckSnapshots,
        79..=80 => Step::DropSnapshot,
        81..=88 => Step::Get(keyspace(random), key(random)),
        89..=92 => Step::Scan(keyspace(random), key(random), key(random)),
        93..=94 => Step::ReadAll,
        95..=96 => Step::Confirm,
        _ => Step::Sleep(Duration::from_micros(1 + random.below(20_000))),
    }
}

/// A write of tens of kilobytes: a few of them fill a segment of a log.
pub fn large_write(random: &mut Random) -> Step {
    let length = 8_000 + random.index(40_000);
    Step::Write(vec![Entry::Put(keyspace(random), key(random), length)], durability(random))
}

/// Some steps by chance.
pub fn random_steps(random: &mut Random, count: usize) -> Vec<Step> {
    (0..count).map(|_| random_step(random)).collect()
}

/// The same steps, of which some writes merge, delete ranges, or delete what was put once. What
/// `random` draws has no part in the steps themselves.
pub fn richer(steps: Vec<Step>, random: &mut Random) -> Vec<Step> {
    let mut all = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.richer(random)).collect();
    let one = |step| match step {
        Step::Begin(entries, durability) => Step::Begin(all(entries), durability),
        Step::Write(entries, durability) => Step::Write(all(entries), durability),
        step => step,
    };
    steps.into_iter().map(one).collect()
}

/// The same steps, of which some ask of their key, take in tables, or put what ends, by a chance of
/// their own.
pub fn richest(steps: Vec<Step>, random: &mut Random) -> Vec<Step> {
    let mut one = |step| match step {
        Step::Write(mut entries, durability) => {
            for entry in &mut entries {
                if let Entry::Put(keyspace, key, length) = entry
                    && random.percent(15)
                {
                    *entry = Entry::PutUntil(keyspace.clone(), key.clone(), *length);
                }
            }
            match &entries[..] {
                [Entry::Put(keyspace, key, length)] if random.percent(15) => {
                    let asks = [Asks::Absent, Asks::Present, Asks::Unchanged, Asks::Other][random.index(4)];
                    Step::PutIf(keyspace.clone(), key.clone(), *length, asks)
                }
                [Entry::Put(keyspace, _, length), ..] if random.percent(6) => {
                    let keys = (0..1 + random.index(8)).map(|_| key(random)).collect();
                    let takes = [Takes::Over, Takes::Over, Takes::Exchange, Takes::Behind][random.index(4)];
                    Step::Ingest(keyspace.clone(), keys, *length, takes)
                }
                _ => Step::Write(entries, durability),
            }
        }
        step => step,
    };
    steps.into_iter().map(&mut one).collect()
}
