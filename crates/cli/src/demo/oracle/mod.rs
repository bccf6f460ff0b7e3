//! What must be in the database, what may be, and what must not: judged from what the writers said
//! over their pipes.
//!
//! - Acknowledged: must be there, whichever process was killed when.
//! - Announced, not acknowledged: may be there, whole, and only if everything its writer announced
//!   before is there too.
//! - Begun by a stale writer after its successor had opened the database: must not be there, nor
//!   ever have been acknowledged.
//! - The newest record of a path: that of the last journal entry of that path, in the order of the
//!   takeovers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tombolo_workload::Latencies;
use xxhash_rust::xxh3::xxh3_64;

use super::writer::parse_journal_key;
use crate::process::Message;
use crate::text;

/// Most findings that are told in words.
const EXAMPLES: usize = 10;

/// What one writer said.
#[derive(Debug, Default)]
pub struct History {
    /// Invariant: entry `i` is the write with sequence `i + 1`.
    writes: Vec<Write>,
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Refused writes.
    pub refused: u64,
    /// When it had opened the database, and how long that took.
    pub opened: Option<(Instant, Duration)>,
    /// When its first write was acknowledged.
    pub first_acknowledged: Option<Instant>,
    /// Its last word.
    pub ended: Option<(u8, String)>,
    /// Bytes of log that it replayed.
    pub replayed_bytes: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Writes announced when its successor had opened the database: later ones must not take
    /// effect.
    boundary: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    path: u32,
    journal_hash: u64,
    acknowledged: bool,
    found: bool,
}

/// What all writers said.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Invariant: entry `i` is writer `i + 1`.
    pub writers: Vec<History>,
    paths: HashMap<Vec<u8>, u32>,
    /// Latencies of acknowledged writes.
    pub latencies: Latencies,
    /// Files that could not be read.
    pub unreadable: u64,
    /// What was wrong already before reading back.
    wrong: Findings,
}

/// Findings: how many, and some in words.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

impl Findings {
    fn add(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl Oracle {
    /// Takes in a message of writer `number`.
    pub fn hear(&mut self, number: u32, message: Message, now: Instant) {
        let index = number as usize - 1;
        if self.writers.len() <= index {
            self.writers.resize_with(index + 1, History::default);
        }
        let writer = &mut self.writers[index];
        match message {
            Message::Opened { epoch, open_nanos, replayed_bytes } => {
                writer.opened = Some((now, Duration::from_nanos(open_nanos)));
                writer.replayed_bytes = replayed_bytes;
                writer.epoch = epoch;
            }
            Message::Intent { sequence, record, path } => {
                if sequence != writer.writes.len() as u64 + 1 {
                    self.wrong.add(|| format!("writer {number} announced {sequence} out of turn"));
                    return;
                }
                let journal_hash = xxh3_64(&[record, path.clone()].concat());
                let next = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
                let path = *self.paths.entry(path).or_insert(next);
                writer.writes.push(Write { path, journal_hash, acknowledged: false, found: false });
            }
            Message::Acknowledged { sequence, latency_nanos } => {
                self.latencies.record(Duration::from_nanos(latency_nanos));
                writer.acknowledged += 1;
                writer.first_acknowledged.get_or_insert(now);
                let at = usize::try_from(sequence - 1).unwrap_or(usize::MAX);
                if writer.boundary.is_some_and(|boundary| at >= boundary) {
                    self.wrong.add(|| {
                        format!(
                            "writer {number} was acknowledged write {sequence}, begun \
                        after it had lost the database"
                        )
                    });
                }
                match writer.writes.get_mut(at) {
                    Some(write) => write.acknowledged = true,
                    None => self.wrong.add(|| {
                        format!("writer {number} was acknowledged write {sequence}, which it never announced")
                    }),
                }
            }
            Message::Refused { .. } => writer.refused += 1,
            Message::Ended { exit_code, text } => writer.ended = Some((exit_code, text)),
            Message::Unreadable { count } => self.unreadable = self.unreadable.max(count),
            Message::Memory { .. } | Message::Seen { .. } => {}
        }
    }

    /// Writer `number`, stopped, has been taken over: what it announces from here on must not take
    /// effect.
    pub fn taken_over(&mut self, number: u32) {
        if let Some(writer) = self.writers.get_mut(number as usize - 1) {
            writer.boundary = Some(writer.writes.len());
        }
    }

    /// Paths seen.
    pub fn paths(&self) -> u64 {
        self.paths.len() as u64
    }

    /// Acknowledged writes of all writers.
    pub fn acknowledged(&self) -> u64 {
        self.writers.iter().map(|writer| writer.acknowledged).sum()
    }

    /// Refused writes of all writers.
    pub fn refused(&self) -> u64 {
        self.writers.iter().map(|writer| writer.refused).sum()
    }
}

/// Reads the database back against an oracle.
#[derive(Debug)]
pub struct Check<'a> {
    oracle: &'a mut Oracle,
    /// The journal's hash of the newest record of each path, as the journal says.
    newest: HashMap<u32, u64>,
    /// The entry that must come next, unless its writer's journal ends.
    next: (u32, u64),
    /// Paths met in `files`.
    files: u64,
    lost: Findings,
    wrong: Findings,
}

/// What reading back found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Journal entries found.
    pub entries: u64,
    /// Paths found.
    pub files: u64,
    /// Acknowledged writes that are not there.
    pub lost: Findings,
    /// Entries that must not be there, or that differ.
    pub wrong: Findings,
}

impl<'a> Check<'a> {
    /// Begins; `journal` is to be called with every entry of the journal in order, then `file` with
    /// every entry of `files`.
    pub fn new(oracle: &'a mut Oracle) -> Check<'a> {
        let wrong = std::mem::take(&mut oracle.wrong);
        Check { oracle, newest: HashMap::new(), next: (1, 1), files: 0, lost: Findings::default(), wrong }
    }

    /// An entry of the journal.
    pub fn journal(&mut self, key: &[u8], value: &[u8]) {
        let Some((number, sequence)) = parse_journal_key(key) else {
            self.wrong.add(|| format!("the journal has the key {}, which nobody wrote", text::shown(key)));
            return;
        };
        if self.next.0 != number {
            self.next = (number, 1);
        }
        if self.next.1 != sequence {
            let missing = self.next.1;
            self.wrong.add(|| {
                format!(
                    "of writer {number}, write {sequence} is there and {missing}, begun before it, is not"
                )
            });
        }
        self.next = (number, sequence + 1);
        let at = usize::try_from(sequence.wrapping_sub(1)).unwrap_or(usize::MAX);
        let writer = (number as usize).checked_sub(1).and_then(|index| self.oracle.writers.get_mut(index));
        let Some((boundary, write)) =
            writer.and_then(|writer| Some((writer.boundary, writer.writes.get_mut(at)?)))
        else {
            self.wrong
                .add(|| format!("write {sequence} of writer {number} is there, which never announced it"));
            return;
        };
        if boundary.is_some_and(|boundary| at >= boundary) {
            self.wrong.add(|| {
                format!("write {sequence} of writer {number} is there, begun after it had lost the database")
            });
        }
        if xxh3_64(value) != write.journal_hash {
            self.wrong.add(|| format!("write {sequence} of writer {number} is there with another content"));
        }
        write.found = true;
        self.newest.insert(write.path, write.journal_hash);
    }

    /// An entry of `files`: a path and its newest record.
    pub fn file(&mut self, path: &[u8], record: &[u8]) {
        self.files += 1;
        let newest = self.oracle.paths.get(path).and_then(|path| self.newest.remove(path));
        match newest {
            Some(hash) if hash == xxh3_64(&[record, path].concat()) => {}
            Some(_) => {
                self.wrong.add(|| format!("{} has another record than its last write", text::shown(path)));
            }
            None => self.wrong.add(|| format!("{} has a record and no write", text::shown(path))),
        }
    }

    /// Ends; names the missing entries.
    pub fn finish(mut self) -> Verdict {
        let mut entries = 0;
        for (index, writer) in self.oracle.writers.iter().enumerate() {
            for (at, write) in writer.writes.iter().enumerate() {
                entries += u64::from(write.found);
                if write.acknowledged && !write.found {
                    self.lost.add(|| {
                        format!("write {} of writer {}, acknowledged, is not there", at + 1, index + 1)
                    });
                }
            }
        }
        for path in self.newest.keys() {
            let name = self
                .oracle
                .paths
                .iter()
                .find(|(_, number)| *number == path)
                .map_or_else(String::new, |(name, _)| text::shown(name));
            self.wrong.add(|| format!("{name} was written and has no record: a batch is not whole"));
        }
        Verdict { entries, files: self.files, lost: self.lost, wrong: self.wrong }
    }
}

#[cfg(test)]
mod tests;
