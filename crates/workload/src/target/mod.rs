//! What benches drive: Tombolo and its peers behind one interface, so that all run under one
//! harness.

use std::time::Duration;

use crate::{Latencies, Operation, Source, Verb};

/// Why an operation failed: a text for people, and whether trying again may help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TargetError {
    /// What happened.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl TargetError {
    /// The engine has no such operation.
    #[must_use]
    pub fn unsupported(what: &str) -> TargetError {
        TargetError { message: format!("this engine has no {what}"), retryable: false }
    }
}

/// What a write must survive before its call returns. Each engine says in [`Target::describe`] what
/// it takes them to mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// Nothing: it may go with the process.
    Unlogged,
    /// The end of the process.
    #[default]
    Accepted,
    /// The end of the machine, as far as the engine's storage does.
    Durable,
}

/// An engine, opened. Shared by all threads of a run.
pub trait Target: Send + Sync {
    /// What one thread drives it with.
    type Session<'a>: Session
    where
        Self: 'a;

    /// A handle for one thread: holds its buffers, iterators and whatever the engine wants per
    /// thread. Its writes have `durability`.
    fn session(&self, durability: Durability) -> Self::Session<'_>;

    /// Moves everything in memory to tables, and returns when that is done.
    ///
    /// # Errors
    /// As the engine says.
    fn flush(&self) -> Result<(), TargetError>;

    /// Merges everything into the shape that reads like best, and returns when that is done.
    ///
    /// # Errors
    /// As the engine says.
    fn compact(&self) -> Result<(), TargetError>;

    /// Returns when no background work is left to do. `go_on` is asked now and then; false ends the
    /// waiting.
    ///
    /// # Errors
    /// As the engine says.
    fn settle(&self, go_on: &dyn Fn() -> bool) -> Result<(), TargetError>;

    /// What the engine says about itself, for people.
    fn statistics(&self) -> String;

    /// Name and settings, for reports: what must be the same for a run to be comparable.
    fn describe(&self) -> String;
}

/// Puts the next key and value, in the order of keys, into the buffers; returns whether there was
/// one more.
pub type NextEntry<'a> = &'a mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool;

/// Is given an entry's key and value; returns whether to go on.
pub type Seen<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Puts the next key to read into the buffer, and gives the number by which its end is told;
/// `None`: there is none.
pub type NextKey<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> Option<u64>;

/// Is told of a read that ended: its number, and the value, if there is one.
pub type ReadEnded<'a> = &'a mut dyn FnMut(u64, Result<Option<&[u8]>, TargetError>);

/// One thread's handle.
pub trait Session {
    /// Writes a key; returns when the write has the durability of the session.
    ///
    /// # Errors
    /// As the engine says.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError>;

    /// Reads a key and hands the value, when there is one, to `seen`; returns whether there was
    /// one.
    ///
    /// # Errors
    /// As the engine says.
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError>;

    /// Deletes a key, there or not.
    ///
    /// # Errors
    /// As the engine says.
    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError>;

    /// Deletes a key that was written once since it was last deleted.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn single_delete(&mut self, _key: &[u8]) -> Result<(), TargetError> {
        Err(TargetError::unsupported("single deletes"))
    }

    /// Deletes all keys from `from` on and before `to`.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn delete_range(&mut self, _from: &[u8], _to: &[u8]) -> Result<(), TargetError> {
        Err(TargetError::unsupported("range deletes"))
    }

    /// Writes a key whose value ends after `ttl`.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn put_ttl(&mut self, _key: &[u8], _value: &[u8], _ttl: Duration) -> Result<(), TargetError> {
        Err(TargetError::unsupported("values that end"))
    }

    /// Makes a table of `entries` outside of the database, and makes it part of the database.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn ingest(&mut self, _entries: NextEntry<'_>) -> Result<(), TargetError> {
        Err(TargetError::unsupported("tables from outside"))
    }

    /// Makes empty keyspaces by these numbers, in any order.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn create_keyspaces(&mut self, _numbers: std::ops::Range<u64>) -> Result<(), TargetError> {
        Err(TargetError::unsupported("keyspaces"))
    }

    /// Writes a key of a keyspace that was made by its number.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn put_in(&mut self, _keyspace: u64, _key: &[u8], _value: &[u8]) -> Result<(), TargetError> {
        Err(TargetError::unsupported("keyspaces"))
    }

    /// Makes a checkpoint that stays.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn checkpoint(&mut self, _number: u64) -> Result<(), TargetError> {
        Err(TargetError::unsupported("checkpoints"))
    }

    /// Adds to the number of a key, which is 0 where the key is not there: u64, little-endian.
    ///
    /// # Errors
    /// As the engine says; that it cannot, where it has no such thing.
    fn merge(&mut self, _key: &[u8], _operand: u64) -> Result<(), TargetError> {
        Err(TargetError::unsupported("merges"))
    }

    /// Reads several keys at one moment and hands each value that there is, with the key's index,
    /// to `seen`; returns how many there were.
    ///
    /// # Errors
    /// As the engine says.
    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, TargetError> {
        let mut found = 0;
        for (index, key) in keys.iter().enumerate() {
            found += usize::from(self.get(key, &mut |value| seen(index, value))?);
        }
        Ok(found)
    }

    /// Reads the keys that `next` gives, as many as `in_flight` on their way at a time, from this
    /// thread alone; returns when all have ended.
    ///
    /// # Errors
    /// That the engine cannot, where its reads wait each for itself.
    fn get_in_flight(
        &mut self,
        _in_flight: usize,
        _next: NextKey<'_>,
        _ended: ReadEnded<'_>,
    ) -> Result<(), TargetError> {
        Err(TargetError::unsupported("reads of which several are on their way from one thread"))
    }

    /// Reads at most `entries` entries from `from` on, ascending, while `seen` says so; returns how
    /// many there were.
    ///
    /// # Errors
    /// As the engine says.
    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError>;

    /// Reads at most `entries` entries from the last one on, descending, while `seen` says so;
    /// returns how many there were.
    ///
    /// # Errors
    /// As the engine says.
    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError>;

    /// Writes all pairs, or none; `None` deletes.
    ///
    /// # Errors
    /// As the engine says.
    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError>;
}

/// What one thread did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Latencies of each verb, in the order of [`Verb`].
    pub latencies: [Latencies; Verb::COUNT],
    /// Gets that found a value.
    pub found: u64,
    /// Entries that scans read.
    pub scanned: u64,
    /// Bytes of values read, so that no target can skip reading them.
    pub value_bytes_read: u64,
}

impl Report {
    /// Latencies of one verb.
    #[must_use]
    pub fn of(&self, verb: Verb) -> &Latencies {
        &self.latencies[verb as usize]
    }

    /// Adds what another thread did.
    pub fn merge(&mut self, other: &Report) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
        self.found += other.found;
        self.scanned += other.scanned;
        self.value_bytes_read += other.value_bytes_read;
    }
}

/// What one operation read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// Whether a get found a value.
    pub found: bool,
    /// Entries that a scan read.
    pub scanned: usize,
}

/// Does one operation; hands the value, or the values, to `seen`.
///
/// # Errors
/// As the engine says.
pub fn perform<S: Session>(
    session: &mut S,
    operation: &Operation<'_>,
    seen: &mut dyn FnMut(&[u8]),
) -> Result<Read, TargetError> {
    let mut read = Read::default();
    match operation.verb {
        Verb::Get => read.found = session.get(operation.key, seen)?,
        Verb::Put => session.put(operation.key, operation.value)?,
        Verb::Delete => session.delete(operation.key)?,
        Verb::Scan => {
            let mut each = |_: &[u8], value: &[u8]| {
                seen(value);
                true
            };
            read.scanned = session.scan(operation.key, operation.scan_entries, &mut each)?;
        }
        Verb::Modify => {
            read.found = session.get(operation.key, seen)?;
            session.put(operation.key, operation.value)?;
        }
    }
    Ok(read)
}

/// Runs `operations` of `source` on `session`. `now` is a monotonic clock: this crate reads none of
/// its own.
///
/// # Errors
/// The first error of the target.
pub fn run<S: Session>(
    session: &mut S,
    source: &mut impl Source,
    operations: u64,
    now: impl Fn() -> Duration,
) -> Result<Report, TargetError> {
    let mut report = Report::default();
    for _ in 0..operations {
        let operation = source.draw();
        let begun = now();
        let bytes = &mut report.value_bytes_read;
        let read = perform(session, &operation, &mut |value| *bytes += value.len() as u64)?;
        report.latencies[operation.verb as usize].record(now().saturating_sub(begun));
        report.found += u64::from(read.found);
        report.scanned += read.scanned as u64;
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
