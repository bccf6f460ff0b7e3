//! Loops of operations beside put, get and delete: merges, range deletes, values that end, tables
//! from outside.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use rand::Rng;

use super::{Worker, digest};
use crate::bench::{Meter, Outcome};
use crate::distribution::shuffled;
use crate::{Distribution, Keys, Random, Session, TargetError};

/// How long values of `fillttl` live.
const TTL: Duration = Duration::from_secs(3600);
/// A table of `ingest` has about so many bytes of keys and values.
const TABLE_BYTES: usize = 64 << 20;
/// Of so many operations of `deleterangeget` one deletes.
const READS_BESIDE: u64 = 100;

impl Worker {
    /// One read at a time is a sample: a meter measures calls that follow each other.
    pub(super) fn get_in_flight<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        meter: Meter<'_, C>,
        mut part: Range<u64>,
    ) -> Outcome {
        let (encoding, num, key_bytes) = (self.encoding(), self.plan.num, self.plan.key_bytes as u64);
        let (random, in_flight) = (&mut self.random, self.plan.batch_size);
        let meter = RefCell::new(meter);
        let sampled: Cell<Option<(u64, Duration)>> = Cell::new(None);
        let goes_on = Cell::new(true);
        let read = session.get_in_flight(
            in_flight,
            &mut |key| {
                let number = part.next().filter(|_| goes_on.get())?;
                encoding.encode(random.random_range(0..num), key);
                if sampled.get().is_none() {
                    sampled.set(meter.borrow_mut().begin().map(|begun| (number, begun)));
                }
                Some(number)
            },
            &mut |number, value| {
                let mut meter = meter.borrow_mut();
                let begun = sampled.get().filter(|(sample, _)| *sample == number).map(|(_, begun)| begun);
                if begun.is_some() {
                    sampled.set(None);
                }
                let result = value.map(|value| {
                    if let Some(value) = value {
                        meter.outcome.bytes += key_bytes + value.len() as u64;
                        meter.outcome.digest ^= digest(value);
                        meter.outcome.found += 1;
                    }
                });
                goes_on.set(meter.end(begun, 1, result) && goes_on.get());
            },
        );
        let meter = meter.into_inner();
        match read {
            Ok(()) => meter.finish(),
            Err(error) => meter.failed(error.message),
        }
    }

    pub(super) fn merge<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let spread = self.plan.distribution.unwrap_or(Distribution::Uniform);
        let mut keys = match Keys::new(spread, self.plan.num) {
            Ok(keys) => keys,
            Err(error) => return meter.failed(error.to_string()),
        };
        let draw = |_, _, random: &mut Random| keys.draw(random);
        self.change(meter, part, draw, size_of::<u64>(), |key| session.merge(key, 1))
    }

    /// Reads numbers in order, by the first thread alone: all of them, with so many merges in them.
    pub(super) fn check_merged<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        if part.start > 0 {
            return meter.finish();
        }
        let (mut sum, mut odd) = (0_u64, 0_u64);
        let begun = meter.begin();
        let mut seen = |_: &[u8], value: &[u8]| {
            match value.try_into() {
                Ok(number) => sum = sum.wrapping_add(u64::from_le_bytes(number)),
                Err(_) => odd += 1,
            }
            true
        };
        let read = session.scan(&[], usize::MAX, &mut seen);
        let read = read.and_then(|entries| match (sum == self.plan.num, odd) {
            (true, 0) => Ok(entries as u64),
            _ => {
                let merges = self.plan.num;
                let message = format!("{merges} merges add up to {sum}, and {odd} values are no numbers");
                Err(TargetError { message, retryable: false })
            }
        });
        let entries = *read.as_ref().unwrap_or(&1);
        meter.outcome.found += entries;
        meter.end(begun, entries, read.map(|_| ()));
        meter.finish()
    }

    /// Each range begins at a multiple of the same number of keys, so that none meets another
    /// unless they fill all.
    pub(super) fn delete_ranges<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let ranges = self.operations;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for index in part {
            let first = u128::from(shuffled(index, ranges)) * u128::from(self.plan.num) / u128::from(ranges);
            self.range_at(u64::try_from(first).unwrap_or(u64::MAX), &mut from, &mut to);
            let begun = meter.begin();
            let result = session.delete_range(&from, &to);
            meter.outcome.bytes += (from.len() + to.len()) as u64;
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    fn range_at(&self, first: u64, from: &mut Vec<u8>, to: &mut Vec<u8>) {
        let encoding = self.plan.key_encoding();
        encoding.encode(first, from);
        let last = first.saturating_add(self.plan.range_keys - 1).min(self.plan.num - 1);
        encoding.encode(last, to);
        // The first key after the last.
        to.push(0);
    }

    pub(super) fn get_beside_ranges<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for index in part {
            let number = self.random.random_range(0..self.plan.num);
            let deletes = index % READS_BESIDE == 0;
            if deletes {
                self.range_at(number, &mut from, &mut to);
            } else {
                self.plan.key_encoding().encode(number, &mut from);
            }
            let begun = meter.begin();
            let outcome = &mut meter.outcome;
            let result = if deletes {
                session.delete_range(&from, &to)
            } else {
                let found =
                    session.get(&from, &mut |value| outcome.bytes += (from.len() + value.len()) as u64);
                found.map(|found| outcome.found += u64::from(found))
            };
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    pub(super) fn expiring<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (encoding, mut key) = (self.plan.key_encoding(), Vec::new());
        for _ in part {
            encoding.encode(self.random.random_range(0..self.plan.num), &mut key);
            let value = self.values.draw(&mut self.random);
            let begun = meter.begin();
            let result = session.put_ttl(&key, value, TTL);
            meter.outcome.bytes += (key.len() + value.len()) as u64;
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    /// One call makes a table and ingests it.
    pub(super) fn ingest<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let encoding = self.plan.key_encoding();
        let entry_bytes = self.plan.key_bytes + self.plan.value_bytes;
        let table_keys = (TABLE_BYTES / entry_bytes).max(1) as u64;
        let mut next = part.start;
        while next < part.end {
            let end = part.end.min(next.saturating_add(table_keys));
            let (mut number, random, values) = (next, &mut self.random, &self.values);
            let mut entries = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
                if number == end {
                    return false;
                }
                encoding.encode(number, key);
                value.clear();
                value.extend_from_slice(values.draw(random));
                number += 1;
                true
            };
            let begun = meter.begin();
            let result = session.ingest(&mut entries);
            let keys = end - next;
            meter.outcome.bytes += keys * entry_bytes as u64;
            next = end;
            if !meter.end(begun, keys, result) {
                break;
            }
        }
        meter.finish()
    }

    pub(super) fn create_keyspaces<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let mut next = part.start;
        while next < part.end {
            let end = part.end.min(next + KEYSPACES_AT_ONCE);
            let begun = meter.begin();
            let result = session.create_keyspaces(next..end);
            if !meter.end(begun, end - next, result) {
                break;
            }
            next = end;
        }
        meter.finish()
    }

    /// Only the checkpoints themselves are measured.
    pub(super) fn checkpoint<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        for number in part {
            let (random, values) = (&mut self.random, &self.values);
            let mut written = Ok(());
            for keyspace in (number % 10..self.plan.keyspaces()).step_by(10) {
                let value = values.draw(random);
                written = written.and_then(|()| session.put_in(keyspace, &number.to_be_bytes(), value));
                meter.outcome.bytes += value.len() as u64;
            }
            let begun = meter.begin();
            let result = written.and_then(|()| session.checkpoint(number));
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }
}

/// Keyspaces that are on their way at a time from one thread.
const KEYSPACES_AT_ONCE: u64 = 256;
