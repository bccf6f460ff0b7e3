//! One thread of a benchmark.

mod operations;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::{Benchmark, Meter, Outcome, Plan, Shared, Work};

use crate::distribution::shuffled;
use crate::mixgraph::{self, Mixgraph, Ranges};
use crate::target::perform;
use crate::ycsb::{SCAN_ENTRIES_MAX, Ycsb};
use crate::{
    Distribution, Durability, Generator, KeyEncoding, Keys, Mix, Random, Session, Source, Target,
    TargetError, ValueSizes, Values, random,
};

/// What one thread of a benchmark does.
#[derive(Clone, Debug)]
pub struct Worker {
    plan: Plan,
    benchmark: Benchmark,
    /// Number of this thread; the one after the last foreground thread is the writer of
    /// `readwhilewriting`.
    thread: usize,
    values: Arc<Values>,
    random: Random,
    /// Of `mixgraph`: which keys are popular.
    ranges: Option<Arc<Ranges>>,
    /// Of all threads.
    operations: u64,
}

/// The workers of a benchmark: one for each thread, and one more for the writer of
/// `readwhilewriting`.
pub fn work(plan: &Plan, benchmark: Benchmark) -> Vec<Worker> {
    let (operations, plan) = (plan.operations(benchmark), &plan.of(benchmark));
    let threads = plan.threads + usize::from(benchmark.work == Work::ReadWhileWriting);
    let is_mixgraph = benchmark.work == Work::Mixgraph;
    let sizes = if is_mixgraph { mixgraph::VALUES } else { ValueSizes::Fixed(plan.value_bytes) };
    let values = Arc::new(Values::new(sizes, plan.compression_ratio, &mut random(plan.seed, u64::MAX)));
    let ranges = is_mixgraph.then(|| Arc::new(Ranges::new(plan.num, &mut random(plan.seed, u64::MAX - 1))));
    let worker = |thread| {
        // Another stream for each benchmark, so that reads follow neither the order of the writes
        // nor that of earlier reads.
        let salt = benchmark.name.bytes().fold(plan.step, |salt, byte| salt.rotate_left(8) ^ u64::from(byte));
        let random = random(plan.seed ^ salt, thread as u64);
        Worker {
            plan: plan.clone(),
            benchmark,
            thread,
            values: Arc::clone(&values),
            random,
            ranges: ranges.clone(),
            operations,
        }
    };
    (0..threads).map(worker).collect()
}

/// The part of `count` that is thread `thread`'s.
fn share(count: u64, thread: usize, threads: usize) -> Range<u64> {
    let part = |number: usize| {
        let product = u128::from(count) * number as u128 / threads as u128;
        u64::try_from(product).unwrap_or(count)
    };
    part(thread)..part(thread + 1)
}

impl Worker {
    /// Whether this is the writer beside the foreground threads.
    pub fn is_background(&self) -> bool {
        self.thread >= self.plan.threads
    }

    /// Does its part, on the calling thread.
    pub fn run<T: Target>(mut self, target: &T, shared: &Shared, clock: &impl Fn() -> Duration) -> Outcome {
        let durability = if self.benchmark.is_durable {
            Durability::Durable
        } else {
            self.plan.durability.unwrap_or_default()
        };
        let mut session = target.session(durability);
        let meter = Meter::new(&self.plan, clock, shared, self.thread);
        if self.is_background() {
            return self.overwrite_beside(&mut session, meter, shared);
        }
        // Also when the target panics: the writer beside must not wait for ever.
        let _ended = Ended(shared);
        let part = share(self.operations, self.thread, self.plan.threads);
        // Random ones run for the whole duration, whatever the counts say.
        let timed = if self.plan.duration.is_some() { 0..u64::MAX } else { part.clone() };
        match self.benchmark.work {
            Work::WriteSequential => self.put(&mut session, meter, part, |number, _, _| number),
            Work::WriteShuffled => {
                self.put(&mut session, meter, part, |number, num, _| shuffled(number, num))
            }
            Work::WriteRandom => {
                self.put(&mut session, meter, timed, |_, num, random| random.random_range(0..num))
            }
            Work::WriteBatches | Work::WriteRandomBatches => self.put_batches(&mut session, meter, part),
            Work::DeleteRandom => {
                let number = |_, num, random: &mut Random| random.random_range(0..num);
                self.change(meter, timed, number, 0, |key| session.delete(key))
            }
            Work::SingleDelete => self.change(
                meter,
                part,
                |number, num, _| shuffled(number, num),
                0,
                |key| session.single_delete(key),
            ),
            Work::WriteExpiring => self.expiring(&mut session, meter, timed),
            Work::Ingest => self.ingest(&mut session, meter, part),
            Work::CreateKeyspaces => self.create_keyspaces(&mut session, meter, part),
            Work::Checkpoint => self.checkpoint(&mut session, meter, part),
            Work::MergeRandom => self.merge(&mut session, meter, timed),
            Work::CheckMerged => self.check_merged(&mut session, meter, part),
            Work::DeleteRange => self.delete_ranges(&mut session, meter, part),
            Work::ReadDeleteRange => self.get_beside_ranges(&mut session, meter, timed),
            Work::ReadRandom | Work::ReadMissing | Work::ReadWhileWriting | Work::ReadMerged => {
                self.get(&mut session, meter, timed)
            }
            Work::MultiRead => self.multi_get(&mut session, meter, timed),
            Work::ReadInFlight => self.get_in_flight(&mut session, meter, timed),
            Work::Seek => self.seek(&mut session, meter, timed),
            Work::ReadSequential | Work::ReadReverse => self.read_all(&mut session, meter, part),
            Work::Queue => self.queue(&mut session, meter, timed),
            Work::SeekDeleted => self.seek_deleted(&mut session, meter, timed),
            Work::DeleteScan | Work::ReadUpdate(_) | Work::Ycsb(_) | Work::Mixgraph => {
                match self.source(shared) {
                    Ok(mut source) => self.serve(&mut session, meter, timed, &mut *source),
                    Err(message) => meter.failed(message),
                }
            }
            Work::Compact | Work::Flush | Work::Wait | Work::Stats => meter.finish(),
        }
    }

    /// The operations of a benchmark that mixes them.
    fn source(&self, shared: &Shared) -> Result<Box<dyn Source>, String> {
        let (plan, values, random) = (&self.plan, Arc::clone(&self.values), self.random.clone());
        let text = |error: &dyn std::fmt::Display| error.to_string();
        Ok(match (self.benchmark.work, &self.ranges) {
            (Work::Ycsb(core), _) => {
                let inserted = Arc::clone(&shared.inserted);
                let ycsb =
                    Ycsb::new(core, plan.distribution, plan.num, inserted, self.encoding(), values, random);
                Box::new(ycsb.map_err(|error| text(&error))?)
            }
            (_, Some(ranges)) => Box::new(Mixgraph::new(Arc::clone(ranges), self.encoding(), values, random)),
            (mixed, _) => {
                let (mix, distribution) = match mixed {
                    Work::ReadUpdate(reads) => {
                        let get = f64::from(reads) / 100.0;
                        (
                            Mix { get, put: 1.0 - get, ..Mix::default() },
                            plan.distribution.unwrap_or(Distribution::Uniform),
                        )
                    }
                    _ => (Mix { delete: 0.5, put: 0.3, scan: 0.2, ..Mix::default() }, Distribution::Uniform),
                };
                let keys = Keys::new(distribution, plan.num).map_err(|error| text(&error))?;
                let generator = Generator::new(mix, keys, self.encoding(), values, SCAN_ENTRIES_MAX, random);
                Box::new(generator.map_err(|error| text(&error))?)
            }
        })
    }

    fn serve<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
        source: &mut dyn Source,
    ) -> Outcome {
        for _ in part {
            let operation = source.draw();
            let begun = meter.begin();
            let outcome = &mut meter.outcome;
            let result = perform(session, &operation, &mut |value| {
                outcome.bytes += value.len() as u64;
                outcome.digest ^= digest(value);
            });
            meter.outcome.bytes += operation.value.len() as u64;
            let result = result.map(|read| meter.outcome.found += u64::from(read.found || read.scanned > 0));
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    fn encoding(&self) -> KeyEncoding {
        self.plan.key_encoding()
    }

    fn put<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
        number_of: impl Fn(u64, u64, &mut Random) -> u64,
    ) -> Outcome {
        let (encoding, mut key) = (self.encoding(), Vec::new());
        for index in part {
            encoding.encode(number_of(index, self.plan.num, &mut self.random), &mut key);
            let value = self.values.draw(&mut self.random);
            let begun = meter.begin();
            let result = session.put(&key, value);
            meter.outcome.bytes += (key.len() + value.len()) as u64;
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    fn put_batches<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let encoding = self.encoding();
        let mut keys = vec![Vec::new(); self.plan.batch_size];
        let mut next = part.start;
        while next < part.end {
            let count = usize::try_from(part.end - next).unwrap_or(usize::MAX).min(self.plan.batch_size);
            let mut writes = Vec::with_capacity(count);
            for (key, number) in keys[..count].iter_mut().zip(next..) {
                let number = match self.benchmark.work {
                    Work::WriteRandomBatches => self.random.random_range(0..self.plan.num),
                    _ => number,
                };
                encoding.encode(number, key);
                writes.push((&key[..], Some(self.values.draw(&mut self.random))));
            }
            let begun = meter.begin();
            let result = session.batch(&writes);
            meter.outcome.bytes += (count * (self.plan.key_bytes + self.plan.value_bytes)) as u64;
            next += count as u64;
            if !meter.end(begun, count as u64, result) {
                break;
            }
        }
        meter.finish()
    }

    /// Changes keys one by one, each with `value_bytes` beside the key.
    fn change<C: Fn() -> Duration>(
        &mut self,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
        mut number_of: impl FnMut(u64, u64, &mut Random) -> u64,
        value_bytes: usize,
        mut change: impl FnMut(&[u8]) -> Result<(), TargetError>,
    ) -> Outcome {
        let (encoding, mut key) = (self.encoding(), Vec::new());
        for index in part {
            encoding.encode(number_of(index, self.plan.num, &mut self.random), &mut key);
            let begun = meter.begin();
            let result = change(&key);
            meter.outcome.bytes += (key.len() + value_bytes) as u64;
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    fn get<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (encoding, mut key) = (self.encoding(), Vec::new());
        let missing = self.benchmark.work == Work::ReadMissing;
        let spread = self.plan.distribution.filter(|_| self.benchmark.work == Work::ReadMerged);
        let mut keys = match Keys::new(spread.unwrap_or(Distribution::Uniform), self.plan.num) {
            Ok(keys) => keys,
            Err(error) => return meter.failed(error.to_string()),
        };
        for _ in part {
            let number = if spread.is_some() {
                keys.draw(&mut self.random)
            } else {
                self.random.random_range(0..self.plan.num)
            };
            encoding.encode(number, &mut key);
            if missing {
                key.push(b'.');
            }
            let begun = meter.begin();
            let outcome = &mut meter.outcome;
            let result = session.get(&key, &mut |value| {
                outcome.bytes += (key.len() + value.len()) as u64;
                outcome.digest ^= digest(value);
            });
            let result = result.map(|found| meter.outcome.found += u64::from(found));
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    fn multi_get<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let encoding = self.encoding();
        let batch = self.plan.batch_size.min(Plan::MULTI_READ_MAX);
        let mut keys = vec![Vec::new(); batch];
        let mut left = part.end - part.start;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(batch);
            let first = self.random.random_range(0..self.plan.num);
            for (index, key) in (0u64..).zip(&mut keys[..count]) {
                let near = first.wrapping_add(index.wrapping_mul(self.plan.multiread_stride)) % self.plan.num;
                let number = if self.plan.multiread_stride > 0 {
                    near
                } else {
                    self.random.random_range(0..self.plan.num)
                };
                encoding.encode(number, key);
            }
            let begun = meter.begin();
            let outcome = &mut meter.outcome;
            let result = session.multi_get(&keys[..count], &mut |_, value| {
                outcome.bytes += (self.plan.key_bytes + value.len()) as u64;
                outcome.digest ^= digest(value);
            });
            let result = result.map(|found| meter.outcome.found += found as u64);
            left -= count as u64;
            if !meter.end(begun, count as u64, result) {
                break;
            }
        }
        meter.finish()
    }

    fn seek<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (encoding, mut from) = (self.encoding(), Vec::new());
        // As db_bench: one entry for the seek itself, and so many more.
        let entries = self.plan.seek_nexts.saturating_add(1);
        for _ in part {
            encoding.encode(self.random.random_range(0..self.plan.num), &mut from);
            let begun = meter.begin();
            let outcome = &mut meter.outcome;
            let result = session.scan(&from, entries, &mut |key, value| {
                outcome.bytes += (key.len() + value.len()) as u64;
                outcome.digest ^= digest(value);
                true
            });
            let result = result.map(|entries| meter.outcome.found += u64::from(entries > 0));
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    /// Pops a queue, of which each thread has one of its own: between its keys lies room for all
    /// that it can put.
    fn queue<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (encoding, mut key, mut first) = (self.encoding(), Vec::new(), Vec::new());
        let filled = share(self.plan.num, self.thread, self.plan.threads);
        let begin = self.thread as u64 * (Plan::NUM_MAX / Plan::THREADS_MAX as u64);
        let mut end = begin;
        let mut put = |session: &mut S, key: &mut Vec<u8>, worker: &mut Worker| {
            encoding.encode(end, key);
            end += 1;
            let value = worker.values.draw(&mut worker.random);
            session.put(key, value).map(|()| (key.len() + value.len()) as u64)
        };
        for _ in filled {
            if let Err(error) = put(session, &mut key, self) {
                meter.end(None, 0, Err(error));
                return meter.finish();
            }
        }
        let mut start = Vec::new();
        encoding.encode(begin, &mut start);
        // One thread seeks to the first entry of all.
        let start = if self.plan.threads == 1 { &[][..] } else { &start[..] };
        meter.begin_now();
        for _ in part {
            let begun = meter.begin();
            let popped = put(session, &mut key, self).and_then(|bytes| {
                meter.outcome.bytes += bytes;
                session.scan(start, 1, &mut |key, value| {
                    first.clear();
                    first.extend_from_slice(key);
                    meter.outcome.digest ^= digest(value);
                    false
                })?;
                meter.outcome.found += 1;
                session.delete(&first)
            });
            if !meter.end(begun, 1, popped) {
                break;
            }
        }
        meter.finish()
    }

    /// Writes and deletes its part of the keys; then it seeks to the first entry, of which there is
    /// none.
    fn seek_deleted<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let (encoding, mut key) = (self.encoding(), Vec::new());
        let all = share(self.plan.num, self.thread, self.plan.threads);
        let fill = |worker: &mut Worker| {
            for number in all.clone() {
                encoding.encode(number, &mut key);
                session.put(&key, worker.values.draw(&mut worker.random))?;
            }
            for number in all.clone() {
                encoding.encode(number, &mut key);
                session.delete(&key)?;
            }
            Ok(())
        };
        if let Err(error) = { fill }(self) {
            meter.end(None, 0, Err(error));
            return meter.finish();
        }
        meter.begin_now();
        for _ in part {
            let begun = meter.begin();
            let result = session.scan(&[], 1, &mut |_, _| false);
            let result = result.map(|entries| meter.outcome.found += u64::from(entries > 0));
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }

    /// Each entry is a call of its own to the meter: the engine's part lies between two of them.
    fn read_all<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        part: Range<u64>,
    ) -> Outcome {
        let entries = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let mut begun = meter.begin();
        let mut go_on = true;
        let mut seen = |key: &[u8], value: &[u8]| {
            meter.outcome.bytes += (key.len() + value.len()) as u64;
            meter.outcome.digest ^= digest(value);
            meter.outcome.found += 1;
            go_on = meter.end(begun, 1, Ok(()));
            begun = meter.begin();
            go_on
        };
        let result = match self.benchmark.work {
            Work::ReadReverse => session.scan_back(entries, &mut seen),
            _ => session.scan(&[], entries, &mut seen),
        };
        if let Err(error) = result {
            meter.end(None, 0, Err(error));
        }
        meter.finish()
    }

    /// Overwrites at random until the readers have ended.
    fn overwrite_beside<S: Session, C: Fn() -> Duration>(
        &mut self,
        session: &mut S,
        mut meter: Meter<'_, C>,
        shared: &Shared,
    ) -> Outcome {
        let (encoding, mut key) = (self.encoding(), Vec::new());
        let mut written = 0;
        // At least one, however late the scheduler lets it begin.
        while written == 0 || !shared.is_done() {
            if let Some(rate) = self.plan.beside_rate {
                meter.wait_until(Duration::from_secs_f64(written as f64 / rate as f64));
            }
            written += 1;
            encoding.encode(self.random.random_range(0..self.plan.num), &mut key);
            let value = self.values.draw(&mut self.random);
            let begun = meter.begin();
            let result = session.put(&key, value);
            meter.outcome.bytes += (key.len() + value.len()) as u64;
            if !meter.end(begun, 1, result) {
                break;
            }
        }
        meter.finish()
    }
}

/// Says that a foreground thread has ended.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// The ends of a value: touches what a reader would.
#[inline]
fn digest(value: &[u8]) -> u64 {
    match value {
        [first, .., last] => u64::from(*first) << 8 | u64::from(*last),
        _ => value.len() as u64,
    }
}
