//! Events of a trace, done again on a database.
//!
//! Threads share a trace by the hashes of keys, so that all that happens to a key stays in its
//! order. What the trace does not have is made: values of the recorded size, from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, OperatorName};
use tombolo_format::checksum::{key_hash, mix64};
use tombolo_format::trace::{Asked, Event, Found};
use tombolo_workload::Latencies;

/// What events are done on.
pub trait Subject {
    /// Does what was asked; says whether something was found, and how many entries a walk gave.
    ///
    /// # Errors
    /// As the engine says, for people.
    fn perform(&mut self, event: &Event<'_>, value: &[u8]) -> Result<(Found, u32), String>;
}

/// What came of a replay, or of one thread's part of it.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Latencies by operation, in the order of [`Asked::ALL`].
    pub latencies: Vec<Latencies>,
    /// Events done.
    pub events: u64,
    /// Events that nobody can do again: accesses of blocks.
    pub passed_over: u64,
    /// Reads that found what the trace's did not, or the other way round.
    pub found_otherwise: u64,
    /// Events that began later than they should have, by more than a millisecond.
    pub late: u64,
    /// Entries that walks gave.
    pub entries: u64,
}

impl Replayed {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Replayed {
        Replayed { latencies: vec![Latencies::new(); Asked::ALL.len()], ..Replayed::default() }
    }

    /// Adds what another thread did.
    pub fn merge(&mut self, other: &Replayed) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
        self.events += other.events;
        self.passed_over += other.passed_over;
        self.found_otherwise += other.found_otherwise;
        self.late += other.late;
        self.entries += other.entries;
    }

    /// Latencies of an operation.
    #[must_use]
    pub fn of(&self, asked: Asked) -> &Latencies {
        &self.latencies[asked as usize - 1]
    }
}

/// When events are done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// One after the other, as fast as it goes.
    Closed,
    /// At their times in the trace, so many times as fast. Latencies count from the time at which
    /// an event should have begun.
    Open(f64),
}

impl Timing {
    /// When an event should begin, from the start of the replay.
    #[must_use]
    pub fn begin(self, time_ns: u64) -> Option<Duration> {
        match self {
            Timing::Closed => None,
            Timing::Open(speed) => {
                let seconds = Duration::from_nanos(time_ns).as_secs_f64() / speed.max(1e-9);
                Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
            }
        }
    }
}

/// The thread of so many that does an event.
#[must_use]
pub fn thread_of(event: &Event<'_>, threads: usize) -> usize {
    let hash = mix64(key_hash(event.key) ^ u64::from(event.keyspace));
    usize::try_from(hash % threads.max(1) as u64).unwrap_or(0)
}

/// Makes values of a size that compress to about half, from a seed of their key.
#[derive(Debug, Default)]
pub struct Filler(Vec<u8>);

impl Filler {
    /// The value of an event: the recorded one, or one of its size.
    pub fn value<'a>(&'a mut self, event: &Event<'a>) -> &'a [u8] {
        if !event.value.is_empty() || event.value_bytes == 0 {
            return event.value;
        }
        self.0.clear();
        let (bytes, mut word) = (event.value_bytes.min(64 << 20) as usize, key_hash(event.key));
        while self.0.len() < bytes {
            word = mix64(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
            self.0.extend_from_slice(&word.to_le_bytes());
            self.0.extend_from_slice(&[b' '; 8]);
        }
        self.0.truncate(bytes);
        &self.0
    }
}

/// Does one event and counts it. `now` is a clock from the start of the replay.
///
/// # Errors
/// The subject's.
pub fn perform<S: Subject>(
    subject: &mut S,
    event: &Event<'_>,
    filler: &mut Filler,
    timing: Timing,
    now: &impl Fn() -> Duration,
    replayed: &mut Replayed,
) -> Result<(), String> {
    if event.asked == Asked::Block {
        replayed.passed_over += 1;
        return Ok(());
    }
    // The time of making it is not measured.
    let is_with_value = matches!(event.asked, Asked::Put | Asked::Merge);
    let value = if is_with_value { filler.value(event) } else { &[] };
    let began = now();
    let begin = timing.begin(event.time_ns).unwrap_or(began);
    replayed.late += u64::from(began.saturating_sub(begin) > Duration::from_millis(1));
    let (found, entries) = subject.perform(event, value)?;
    replayed.latencies[event.asked as usize - 1].record(now().saturating_sub(begin));
    replayed.events += 1;
    replayed.entries += u64::from(entries);
    let is_told = event.found != Found::Unknown && found != Found::Unknown;
    replayed.found_otherwise += u64::from(is_told && found != event.found && !event.asked.is_scan());
    Ok(())
}

/// A database of Tombolo as a subject.
pub struct TomboloSubject {
    db: Db,
    keyspaces: BTreeMap<u32, Keyspace>,
    names: BTreeMap<u32, String>,
    durability: Durability,
    scan_entries: u32,
}

impl std::fmt::Debug for TomboloSubject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TomboloSubject").field("db", &self.db).finish_non_exhaustive()
    }
}

impl TomboloSubject {
    /// Events of a keyspace go to the one of its name, which is made when it is not there, with the
    /// operator `append` for merges. A walk whose length the trace does not say reads so many
    /// entries.
    #[must_use]
    pub fn new(
        db: Db,
        names: BTreeMap<u32, String>,
        durability: Durability,
        scan_entries: u32,
    ) -> TomboloSubject {
        TomboloSubject { db, keyspaces: BTreeMap::new(), names, durability, scan_entries }
    }

    fn keyspace(&mut self, id: u32) -> Result<&Keyspace, String> {
        if !self.keyspaces.contains_key(&id) {
            let name = self.names.get(&id).cloned().unwrap_or_else(|| match id {
                0 => "default".to_owned(),
                _ => format!("keyspace-{id}"),
            });
            let said = |error: tombolo::Error| error.to_string();
            let keyspace = match self.db.keyspace(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let operator = Some(OperatorName::parse("append").map_err(said)?);
                    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
                    self.db.open_or_create_keyspace(&name, options).wait().map_err(said)?
                }
                found => found.map_err(said)?,
            };
            self.keyspaces.insert(id, keyspace);
        }
        self.keyspaces.get(&id).ok_or_else(|| format!("keyspace {id} is gone"))
    }
}

impl Subject for TomboloSubject {
    fn perform(&mut self, event: &Event<'_>, value: &[u8]) -> Result<(Found, u32), String> {
        let (durability, length) = (self.durability, self.scan_entries);
        let keyspace = self.keyspace(event.keyspace)?;
        let mut found = Found::Unknown;
        let mut entries = 0;
        let done = match event.asked {
            Asked::Get | Asked::MultiGet => keyspace.get(event.key).wait().map(|value| {
                found = Found::from(value.is_some());
            }),
            Asked::Put if event.ttl_ms > 0 => {
                let ttl = Duration::from_millis(event.ttl_ms);
                keyspace.put_ttl_with(event.key, value, ttl, durability).wait()
            }
            Asked::Put => keyspace.put_with(event.key, value, durability).wait(),
            Asked::Delete => keyspace.delete_with(event.key, durability).wait(),
            Asked::SingleDelete => keyspace.single_delete_with(event.key, durability).wait(),
            Asked::Merge => {
                if keyspace.options().operator.is_none() {
                    keyspace
                        .set_options([("operator", "append@1")])
                        .wait()
                        .map_err(|error| error.to_string())?;
                }
                keyspace.merge_with(event.key, value, durability).wait()
            }
            Asked::RangeDelete if event.key < event.end => {
                keyspace.delete_range_with(event.key, event.end, durability).wait()
            }
            Asked::RangeDelete | Asked::Block => Ok(()),
            Asked::Scan | Asked::ScanBack => {
                let wanted =
                    if event.entries > 0 || event.found != Found::Unknown { event.entries } else { length };
                walk(keyspace, event, wanted).map(|walked| {
                    entries = walked;
                    found = Found::from(walked > 0);
                })
            }
        };
        done.map_err(|error| error.to_string())?;
        Ok((found, entries))
    }
}

fn walk(keyspace: &Keyspace, event: &Event<'_>, wanted: u32) -> tombolo::Result<u32> {
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    let is_up = event.asked == Asked::Scan;
    let mut stands = match (is_up, event.key.is_empty()) {
        (true, _) => cursor.seek(event.key)?,
        (false, true) => cursor.seek_to_last()?,
        (false, false) => cursor.seek_for_prev(event.key)?,
    };
    let mut entries = 0;
    while stands {
        let is_beyond = if is_up { cursor.key() >= event.end } else { cursor.key() < event.end };
        if !event.end.is_empty() && is_beyond {
            break;
        }
        entries += 1;
        if entries >= wanted {
            break;
        }
        stands = if is_up { cursor.next()? } else { cursor.prev()? };
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
