//! What a client does next: written down for scripted histories, drawn by chance for random ones.

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
    /// No value.
    Delete(String, Vec<u8>),
}

impl Entry {
    pub(super) fn keyspace(&self) -> &str {
        match self {
            Entry::Put(keyspace, ..) | Entry::Delete(keyspace, _) => keyspace,
        }
    }

    pub(super) fn change(&self, session: SessionId, place: usize, nth: usize) -> Change {
        match self {
            Entry::Put(keyspace, key, length) => {
                let mut value = format!("{}.{place}.{nth}:", session.0).into_bytes();
                let mut filler = Random::fixed(session.0, (place * 64 + nth) as u64);
                while value.len() < *length {
                    value.extend_from_slice(&filler.next().to_le_bytes());
                }
                value.truncate((*length).max(8));
                Change::Put(keyspace.clone(), key.clone(), value)
            }
            Entry::Delete(keyspace, key) => Change::Delete(keyspace.clone(), key.clone()),
        }
    }
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
            Entry::Delete(keyspace, key) => write!(formatter, "delete {keyspace}/{}", show(key)),
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
