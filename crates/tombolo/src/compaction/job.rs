//! Running a job: `parts by key range → merge → tables under fresh names`. Nothing is named before
//! it is installed.
//!
//! A large job is cut into parts by key range that run side by side. An output ends where it is
//! full, where the level below asks for it, and never within a key; a part aims at tables of equal
//! size, so that its last one is no leftover.
//!
//! Invariants:
//! 1. What a snapshot sees is kept: snapshots are listed after the inputs were chosen.
//! 2. A delete goes only where nothing older of its key can lie below the output.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Completion, Task, TaskClass, completion};
use tombolo_format::checksum::entry_hash;
use tombolo_format::compaction::Tally;
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::ranges::{Covered, RANGE_HEADER_BYTES, RangeLayers};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use super::again::Again;
use super::merge::{Failure, Merge, Merged};
use super::pick::{Job, Reason};
use super::relocation::{Moving, Place, Waiting};
use super::world::{JobWorld, Terms};
use crate::budget::Category;
use crate::filter::{FilterJob, Filtered, Filtering, Offered};
use crate::flush::finish;
use crate::resolve::{Hiding, Retention, Taken, apart};
use crate::version::{Below, Output, SortedRun, TableHandle, TableWriter, Tables};

/// Most parts of one job.
const PARTS_MAX: u64 = 4;
/// A part merges at least this many full tables: below it, a part costs more than it gains.
const PART_TABLES_MIN: u64 = 2;
/// What the parts of a job hold of large values is at most this part of the memory budget, or one
/// part's.
const HELD_PART: u64 = 8;
/// Entries between two looks at whether others want to run: a few milliseconds.
const ENTRIES_PER_TURN: u32 = 4096;

/// What the parts of a job share.
pub(super) struct Run {
    world: Arc<dyn JobWorld>,
    job: Arc<Job>,
    terms: Terms,
    oldest_unix_seconds: u64,
    /// A part failed: the others need not go on.
    failed: AtomicBool,
    /// Complete tables, in no order.
    outputs: Mutex<Vec<TableDescription>>,
    /// The range deletes of all inputs, once they are known.
    ranges: OnceLock<Hiding>,
    /// Of a job whose outputs lie on two levels, those of what came from above, and of the others.
    ranges_apart: OnceLock<(Hiding, Hiding)>,
    /// Those tables that hold older versions of keys, which snapshots see.
    older: Mutex<Vec<TableName>>,
    /// What the keyspace's merge operator failed with first.
    trouble: Mutex<Option<Error>>,
    /// The value objects that are collected, and out of which values move that pass.
    moving: Moving,
    /// What the keyspace's compaction filter did.
    filtered: Mutex<Filtered>,
    /// Single deletes that met anything but one put.
    misused: AtomicU64,
    /// What became of the entries.
    tally: Mutex<Tally>,
    /// Nothing is written: what would be is kept, to be compared.
    again: Option<Again>,
}

/// From a key to a key, without the latter.
pub(super) type Range = (Option<Bytes>, Option<Bytes>);

impl Run {
    /// A job in a world, by what holds as of now.
    pub(super) fn new(world: Arc<dyn JobWorld>, job: &Arc<Job>, terms: Terms) -> Arc<Run> {
        Arc::new(Run {
            moving: Moving::new(&terms.collected, job.inputs()),
            world,
            job: Arc::clone(job),
            terms,
            oldest_unix_seconds: job
                .inputs()
                .map(|table| table.description().oldest_unix_seconds)
                .min()
                .unwrap_or(0),
            failed: AtomicBool::new(false),
            outputs: Mutex::default(),
            ranges: OnceLock::new(),
            ranges_apart: OnceLock::new(),
            older: Mutex::default(),
            trouble: Mutex::default(),
            filtered: Mutex::default(),
            misused: AtomicU64::new(0),
            tally: Mutex::default(),
            again: None,
        })
    }

    /// A job that is run again within a range, to see what comes of it.
    pub(super) async fn again(
        world: Arc<dyn JobWorld>,
        job: &Arc<Job>,
        terms: Terms,
        range: Range,
    ) -> Merged<Again> {
        let mut run = Run::new(world, job, terms);
        if let Some(run) = Arc::get_mut(&mut run) {
            run.again = Some(Again::default());
        }
        run.gather_ranges().await?;
        match run.part(range, 1).await {
            Ok(()) => {}
            // It has seen enough.
            Err(_) if run.again.as_ref().is_some_and(Again::is_full) => {}
            Err(failure) => return Err(failure),
        }
        let again = Arc::into_inner(run).and_then(|run| run.again);
        again.ok_or_else(|| Error::new(ErrorKind::Bug, "a part of a job goes on after its end").into())
    }

    /// The tables written so far; all of them once the job has run.
    pub(super) fn take_outputs(&self) -> Vec<TableDescription> {
        std::mem::take(&mut *self.outputs.lock())
    }

    /// Of the tables written, those that hold older versions of keys.
    pub(super) fn take_older(&self) -> Vec<TableName> {
        std::mem::take(&mut *self.older.lock())
    }

    /// What the keyspace's merge operator failed with: its operands were kept.
    pub(super) fn take_trouble(&self) -> Option<Error> {
        self.trouble.lock().take()
    }

    /// Value objects of which not all that should have moved could be read.
    pub(super) fn take_unreadable(&self) -> Vec<(TableName, Error)> {
        self.moving.take_unreadable()
    }

    /// What the keyspace's compaction filter did.
    pub(super) fn take_filtered(&self) -> Filtered {
        std::mem::take(&mut *self.filtered.lock())
    }

    /// How many single deletes met anything but one put.
    pub(super) fn misused(&self) -> u64 {
        self.misused.load(Ordering::Relaxed)
    }

    /// What became of the entries.
    pub(super) fn tally(&self) -> Tally {
        *self.tally.lock()
    }

    /// The keyspace's filter, at a part.
    fn begin_filtering(&self) -> Option<Filtering> {
        let job = FilterJob {
            keyspace: self.job.keyspace,
            level: self.job.to,
            is_flush: false,
            is_asked: self.job.reason == Reason::Asked,
            oldest_unix_seconds: Some(self.oldest_unix_seconds),
            time_ms: self.terms.time_ms,
        };
        let newest = self.terms.moments.snapshots.last().map(|(number, _)| *number);
        self.terms.filter.as_ref().map(|filter| filter.begin(&job, newest))
    }

    /// Adds the newest entry of a key, or what its filter makes of it. `table` holds it, where its
    /// value lies apart.
    async fn add_filtered(
        &self,
        outputs: &mut Outputs,
        (key, value): (InternalKey<'_>, &[u8]),
        place: Place,
        filtering: &mut Filtering,
        table: Option<Arc<TableHandle>>,
        below: &mut Below,
    ) -> Merged<()> {
        let mut offered = filtering.offer(key, value, None, |key| !below.may_hold(key));
        if offered == Offered::NeedsValue
            && let Some(table) = table
        {
            let reference = apart(key.trailer, value).map_or(value, |(reference, _)| reference);
            match table.value(Purpose::Compaction, key.user_key, reference).await {
                Ok(fetched) => {
                    offered = filtering.offer(key, value, Some(&fetched), |key| !below.may_hold(key));
                }
                // The job ends soon.
                Err(_) if self.world.is_given_up() => {}
                Err(error) => filtering.failed(error.context("fetching a value for a compaction filter")),
            }
        }
        match offered {
            Offered::Kept | Offered::NeedsValue => self.add(outputs, key, value, place).await,
            Offered::Dropped => {
                outputs.tally.filtered += 1;
                outputs.gone(key, value);
                Ok(())
            }
            Offered::Changed(trailer, changed) => {
                outputs.gone(key, value);
                let key = InternalKey::new(key.user_key, trailer);
                outputs.made(key, &changed);
                self.add(outputs, key, &changed, place).await
            }
        }
    }

    /// Runs all parts, and waits for all, however they end.
    pub(super) async fn run(self: &Arc<Run>) -> Merged<()> {
        self.gather_ranges().await?;
        self.note_unread();
        let mut ranges = ranges(&split_keys(&self.job, self.world.tables().cache.budget().bytes()).await?);
        let parts = ranges.len() as u64;
        let first = ranges.remove(0);
        let others: Vec<_> = ranges.into_iter().map(|range| self.spawn(range, parts)).collect();
        let mut result = self.part(first, parts).await;
        for (task, ended) in others {
            let ended = ended
                .await
                .unwrap_or_else(|| Err(Error::new(ErrorKind::Bug, "a part of a compaction panicked").into()));
            drop(task);
            result = match (result, ended) {
                // A part that was given up says nothing; the one that failed says why.
                (Err(one), Err(other)) if one.error.kind() == ErrorKind::Closed => Err(other),
                (result, ended) => result.and(ended),
            };
        }
        result
    }

    /// Reads the range deletes of the inputs, of those that have any.
    async fn gather_ranges(&self) -> Merged<()> {
        let mut hiding = Hiding::new(self.terms.moments.numbers());
        let (mut above, mut below) = (hiding.clone(), hiding.clone());
        for table in self.job.inputs().filter(|table| table.has_ranges()) {
            let opened = table.open().await;
            opened.map_err(|error| Failure { error, table: Some(table.description().name) })?;
            let is_above = self.job.upper.iter().any(|upper| Arc::ptr_eq(upper, table));
            let apart = if is_above { &mut above } else { &mut below };
            for range in table.ranges().into_iter().flat_map(RangeLayers::iter) {
                hiding.add(range);
                apart.add(range);
            }
        }
        let _first = self.ranges.set(hiding);
        let _first = self.ranges_apart.set((above, below));
        Ok(())
    }

    /// Counts the entries of tables that one range delete covers wholly: see [`Run::merge`].
    fn note_unread(&self) {
        let Some(hiding) = self.ranges.get().filter(|hiding| !hiding.is_empty()) else { return };
        let unread = self.job.inputs().filter(|table| hiding.hides_all(table.description()));
        self.tally.lock().unread += unread.map(|table| table.description().entries).sum::<u64>();
    }

    /// The range deletes that a part has to write.
    fn ranges_of(&self, hiding: &Hiding, (start, end): &Range, below: &Below) -> RangeLayers {
        if hiding.is_empty() {
            return RangeLayers::default();
        }
        hiding.kept(start.as_deref(), end.as_deref(), |from, to| {
            // Those that go depend on where the part begins and ends, which is another one's.
            if self.again.is_some() {
                return false;
            }
            if is_enabled(Mutant::RangeDeleteDroppedByKey) {
                return !below.may_hold_within(from, &[from, b"\0"].concat());
            }
            !below.may_hold_within(from, to)
        })
    }

    fn spawn(self: &Arc<Run>, range: Range, parts: u64) -> (Task, Completion<Merged<()>>) {
        let (ended, ending) = completion();
        let run = Arc::clone(self);
        let part = async move { ended.complete(run.part(range, parts).await) };
        (self.world.tables().env.spawn(TaskClass::Background, "compaction part", part), ending)
    }

    async fn part(&self, range: Range, parts: u64) -> Merged<()> {
        let result = self.merge(range, parts).await;
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    /// Merges one part.
    async fn merge(&self, range: Range, parts: u64) -> Merged<()> {
        let mut hiding = self.ranges.get().cloned().unwrap_or_else(|| Hiding::new(Vec::new()));
        // Whole tables that nobody sees any more go unread.
        let mut inputs = inputs(&self.job);
        if !hiding.is_empty() {
            inputs.iter_mut().for_each(|run| run.retain(|table| !hiding.hides_all(table.description())));
        }
        let mut merge = Merge::open(inputs, range.0.as_ref(), range.1.as_ref()).await?;
        let mut retention = Retention::new(self.terms.moments.clone(), self.terms.judge.clone());
        let below = Below::new(self.job.older_runs.clone(), &self.job.deeper);
        let mut below = below.kept(self.job.keeps_last);
        let mut two = Two::new(self, &hiding, &range, &below, self.job.bytes() / parts)?;
        let mut filtering = self.begin_filtering();
        let mut entries = 0;
        // Of the entry that is held: whether it is the newest of its key, and its block was in a
        // cache.
        let (mut held_new, mut held_hot) = (false, false);
        // The table of an entry that is held, if its value lies apart.
        let mut held_apart = None;
        // Whether the key of held entries comes from above.
        let mut held_above = false;
        loop {
            let entry = merge.entry();
            if let Some((key, _)) = &entry
                && hiding.hides(key.user_key, key.trailer)
            {
                if let Some((key, value)) = &entry {
                    two.low.read(*key, value);
                    two.low.tally.hidden += 1;
                    two.low.gone(*key, value);
                }
                if let Some(step) = merge.advance()? {
                    merge.settle(step).await?;
                }
                entries += 1;
                if entries == ENTRIES_PER_TURN {
                    entries = 0;
                    self.let_others_run().await?;
                }
                continue;
            }
            if retention.holds()
                && entry.as_ref().is_none_or(|(key, _)| retention.is_due(key.user_key, key.trailer))
            {
                let next = entry.as_ref().map(|(key, _)| key.user_key);
                let mut is_first = true;
                let released = retention.release(next, |key| !below.may_hold(key));
                // A value under operands is not what the key has.
                let is_whole = released.len() == 1;
                for (trailer, value) in released {
                    if entry.is_none() && is_enabled(Mutant::PartForgetsWhatItHolds) {
                        break;
                    }
                    let key = InternalKey::new(retention.key(), trailer);
                    let place = Place { is_new: held_new && is_first, is_older: !held_new, is_hot: held_hot };
                    let (outputs, place) = two.of(held_above, trailer, place);
                    outputs.tally.made += 1;
                    outputs.made(key, &value);
                    match filtering.as_mut().filter(|_| held_new && is_first && is_whole) {
                        Some(filtering) => {
                            let entry = (key, &value[..]);
                            let table = held_apart.take();
                            self.add_filtered(outputs, entry, place, filtering, table, &mut below).await?;
                        }
                        None => self.add(outputs, key, &value, place).await?,
                    }
                    is_first = false;
                }
                // What comes of the same key goes into the same table.
                held_new = false;
            }
            let Some((key, value)) = entry else { break };
            let (is_new, was_held) = (retention.is_new(key.user_key), retention.holds());
            if is_new {
                two.begin_key(merge.is_of_first());
            }
            two.low.read(key, value);
            let bytes = || Bytes::copy_from_slice(value);
            let taken = retention
                .take(key.user_key, key.trailer, bytes, |key| !below.may_hold(key))
                .map_err(|unresolved| merge.failed(|table| unresolved.at(table)))?;
            match taken {
                Taken::Kept => {
                    let place = Place { is_new, is_older: !is_new, is_hot: merge.is_hot() };
                    let (outputs, place) = two.of(two.is_above, key.trailer, place);
                    match filtering.as_mut().filter(|_| is_new) {
                        Some(filtering) => {
                            let is_apart = apart(key.trailer, value).is_some();
                            let table = if is_apart { merge.table().cloned() } else { None };
                            let entry = (key, value);
                            self.add_filtered(outputs, entry, place, filtering, table, &mut below).await?;
                        }
                        None => self.add(outputs, key, value, place).await?,
                    }
                }
                Taken::Dropped => {
                    two.low.tally.superseded += 1;
                    two.low.gone(key, value);
                }
                Taken::Held => {
                    two.low.tally.folded += 1;
                    two.low.gone(key, value);
                    if !was_held {
                        (held_new, held_hot) = (is_new, merge.is_hot());
                        held_above = two.is_above;
                        let is_apart = filtering.is_some() && apart(key.trailer, value).is_some();
                        held_apart = if is_apart { merge.table().cloned() } else { None };
                    }
                }
            }
            if let Some(step) = merge.advance()? {
                merge.settle(step).await?;
            }
            entries += 1;
            if entries == ENTRIES_PER_TURN {
                entries = 0;
                self.let_others_run().await?;
            }
        }
        if let Some(filtering) = filtering {
            self.filtered.lock().add(filtering.finish());
        }
        self.misused.fetch_add(retention.take_misused(), Ordering::Relaxed);
        if let Some(error) = retention.take_trouble() {
            self.trouble.lock().get_or_insert(error);
        }
        for mut outputs in two.into_both() {
            Box::pin(self.write_waiting(&mut outputs)).await?;
            while let Some(cut) = outputs.ranges.cut_before(None) {
                Box::pin(self.finish(&mut outputs, Some(&cut))).await?;
            }
            Box::pin(self.finish(&mut outputs, None)).await?;
            self.tally.lock().add(&outputs.tally);
        }
        Ok(())
    }

    /// Adds an entry to the outputs, at once or behind values that are about to move.
    #[inline]
    async fn add(
        &self,
        outputs: &mut Outputs,
        key: InternalKey<'_>,
        value: &[u8],
        place: Place,
    ) -> Merged<()> {
        if self.moving.is_empty() {
            return self.write(outputs, key, value, place).await;
        }
        let moves = self.moving.moves(key.trailer, value);
        if !moves && outputs.waiting.is_empty() {
            return self.write(outputs, key, value, place).await;
        }
        outputs.waiting.push(key, value, place, moves);
        if outputs.waiting.is_full() { Box::pin(self.write_waiting(outputs)).await } else { Ok(()) }
    }

    /// Reads the values that are about to move, and writes all that waits for them.
    async fn write_waiting(&self, outputs: &mut Outputs) -> Merged<()> {
        if outputs.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut outputs.waiting);
        let _charge = self.world.tables().cache.budget().charge(Category::Compactions, waiting.bytes());
        for entry in self.moving.read(waiting).await? {
            let key = InternalKey::new(&entry.key, entry.trailer);
            self.write(outputs, key, &entry.value, entry.place).await?;
        }
        Ok(())
    }

    /// Writes an entry to the outputs. Its future is made for each entry: what it seldom waits for
    /// lies in futures of their own.
    #[inline]
    async fn write(
        &self,
        outputs: &mut Outputs,
        key: InternalKey<'_>,
        value: &[u8],
        place: Place,
    ) -> Merged<()> {
        if let Some(again) = &self.again {
            return Ok(again.take(key, value)?);
        }
        outputs.tally.written += 1;
        // All versions of a key stay in one table: sorted levels do not overlap.
        if place.is_new || is_enabled(Mutant::OutputCutWithinKey) {
            while let Some(cut) = outputs.ranges.cut_before(Some(key.user_key)) {
                Box::pin(self.finish(outputs, Some(&cut))).await?;
            }
            let is_full = outputs.writer.as_ref().is_some_and(TableWriter::is_full);
            if outputs.cuts_before(key.user_key) || is_full {
                Box::pin(self.finish(outputs, Some(key.user_key))).await?;
            }
        }
        outputs.older |= place.is_older;
        let writer = match &mut outputs.writer {
            Some(writer) => writer,
            None => outputs.writer.insert(Box::pin(self.begin_output(outputs.level, &outputs.cold)).await?),
        };
        if writer.add_from(key, value, place.is_hot)? {
            let bytes = Box::pin(writer.flush()).await?;
            Box::pin(self.moved(bytes)).await;
        }
        Ok(())
    }

    async fn let_others_run(&self) -> Merged<()> {
        if self.world.is_given_up() || self.failed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the compaction was given up").into());
        }
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        Ok(())
    }

    /// Waits until bytes that were just moved fit the rate.
    async fn moved(&self, bytes: u64) {
        self.world.note_moved(bytes);
        self.world.pace().take(&self.world.tables().env, bytes).await;
    }

    async fn begin_output(&self, level: u8, cold: &Option<Tables>) -> Result<TableWriter> {
        let output = Output {
            name: self.world.fresh_name(),
            keyspace: self.job.keyspace,
            level,
            lowest: level == self.job.bottom(),
            oldest_unix_seconds: Some(self.oldest_unix_seconds),
            table_bytes: self.terms.table_bytes,
            purpose: Purpose::Compaction,
        };
        let tables = cold.as_ref().unwrap_or_else(|| self.world.tables());
        TableWriter::create(tables, output, &self.terms.options).await
    }

    /// Ends an output before `cut`, with the range deletes up to there.
    async fn finish(&self, outputs: &mut Outputs, cut: Option<&[u8]>) -> Merged<()> {
        let ranges = outputs.ranges.up_to(cut);
        if let Some(again) = &self.again {
            again.take_ranges(&ranges);
            return Ok(());
        }
        if !ranges.is_empty() {
            let writer = match &mut outputs.writer {
                Some(writer) => writer,
                None => outputs.writer.insert(self.begin_output(outputs.level, &outputs.cold).await?),
            };
            writer.set_ranges(ranges)?;
        }
        if let Some(writer) = outputs.writer.take()
            && let Some(written) = finish(self.world.left_behind(), writer).await?
        {
            if std::mem::take(&mut outputs.older) {
                self.older.lock().push(written.table.name);
            }
            let bytes = written.bytes;
            self.outputs.lock().extend(written.descriptions());
            self.moved(bytes).await;
        }
        Ok(())
    }
}

/// Where a part of a job writes to: most often one level. One that moves to a cold store what has
/// gone cold leaves the rest on the level that it came from.
///
/// Invariants:
/// 1. What stays above has come from above: so it lies within the keys of what was there, and no
///    key moves up.
/// 2. Of each key, all that stays above is newer than all that goes down.
struct Two {
    low: Outputs,
    /// Newer entries, of keys that come from above, stay there.
    high: Option<(SequenceNumber, Outputs)>,
    /// Of the key at which the merge is: whether its newest entry comes from above.
    is_above: bool,
    /// Of that key: whether nothing went down yet.
    is_new_below: bool,
}

impl Two {
    fn new(run: &Run, hiding: &Hiding, range: &Range, below: &Below, part_bytes: u64) -> Result<Two> {
        let (job, tables) = (&run.job, run.world.tables());
        let outputs = |hiding: &Hiding, level, cold| {
            let ranges = Ending::new(run.ranges_of(hiding, range, below), level);
            let mut outputs = Outputs::new(Cutter::new(job, part_bytes), ranges, (level, cold));
            outputs.sums = tables.naming.has_sums();
            outputs
        };
        let cold = job.tier.is_cold.then(|| tables.cold()).transpose()?;
        let apart = run.ranges_apart.get().filter(|_| job.tier.stays_after.is_some());
        let low = outputs(apart.map_or(hiding, |(_, below)| below), job.to, cold);
        let high = job
            .tier
            .stays_after
            .zip(apart)
            .map(|(after, (above, _))| (after, outputs(above, job.from, None)));
        Ok(Two { low, high, is_above: false, is_new_below: true })
    }

    /// The merge comes to another key.
    #[inline]
    fn begin_key(&mut self, is_above: bool) {
        self.is_above = is_above || is_enabled(Mutant::ColdKeysMoveUp);
        self.is_new_below = true;
    }

    /// Where an entry goes, and how it lies there.
    #[inline]
    fn of(&mut self, is_above: bool, trailer: Trailer, place: Place) -> (&mut Outputs, Place) {
        match &mut self.high {
            None => (&mut self.low, place),
            Some((after, high)) if is_above && trailer.sequence() > *after => (high, place),
            Some(_) => {
                let is_new = std::mem::replace(&mut self.is_new_below, false);
                (&mut self.low, Place { is_new, ..place })
            }
        }
    }

    fn into_both(self) -> impl Iterator<Item = Outputs> {
        std::iter::once(self.low).chain(self.high.map(|(_, high)| high))
    }
}

/// Where a part of a job writes to, on one level.
struct Outputs {
    level: u8,
    /// Where, if that is the cold store.
    cold: Option<Tables>,
    writer: Option<TableWriter>,
    /// Whether the table of `writer` holds older versions of keys.
    older: bool,
    cutter: Cutter,
    ranges: Ending,
    waiting: Waiting,
    /// What became of the part's entries; of hashes only where `sums` says so.
    tally: Tally,
    sums: bool,
}

impl Outputs {
    fn new(cutter: Cutter, ranges: Ending, (level, cold): (u8, Option<Tables>)) -> Outputs {
        let (waiting, tally) = (Waiting::default(), Tally::default());
        Outputs { level, cold, writer: None, older: false, cutter, ranges, waiting, tally, sums: false }
    }

    /// An entry was read.
    #[inline]
    fn read(&mut self, key: InternalKey<'_>, value: &[u8]) {
        self.tally.read += 1;
        if self.sums {
            add_hash(&mut self.tally.read_sum, key, value);
        }
    }

    /// An entry goes, or another takes its place.
    #[inline]
    fn gone(&mut self, key: InternalKey<'_>, value: &[u8]) {
        if self.sums {
            add_hash(&mut self.tally.gone_sum, key, value);
        }
    }

    /// An entry came of others, or in the place of one.
    #[inline]
    fn made(&mut self, key: InternalKey<'_>, value: &[u8]) {
        if self.sums {
            add_hash(&mut self.tally.made_sum, key, value);
        }
    }

    #[inline]
    fn cuts_before(&mut self, key: &[u8]) -> bool {
        self.cutter.cuts(key, self.writer.as_ref().map_or(0, TableWriter::written_bytes))
    }
}

/// Adds the hash of an entry to a sum.
#[cold]
fn add_hash(sum: &mut u64, key: InternalKey<'_>, value: &[u8]) {
    *sum = sum.wrapping_add(entry_hash(key.user_key, key.trailer.0, value));
}

/// A table of a sorted level ends once its range deletes have about so many bytes.
const RANGES_BYTES_MAX: usize = 2 << 20;

/// The range deletes that a part writes, cut where its outputs end.
struct Ending {
    ranges: RangeLayers,
    /// Where ranges begin, ascending, with the bytes of each; a run of level 0 is not cut.
    starts: Vec<(Vec<u8>, usize)>,
    next: usize,
    /// Bytes of those that began since the last cut.
    bytes: usize,
    /// The last cut.
    reached: Option<Vec<u8>>,
}

impl Ending {
    fn new(ranges: RangeLayers, level: u8) -> Ending {
        let bytes = |range: Covered<'_>| RANGE_HEADER_BYTES + range.from.len() + range.to.len();
        let mut starts = Vec::new();
        if level > 0 {
            starts.extend(ranges.iter().map(|range| (range.from.to_vec(), bytes(range))));
            starts.sort_unstable();
        }
        Ending { ranges, starts, next: 0, bytes: 0, reached: None }
    }

    /// Where the output must end before it goes on to a key, or to the end of the part, as its
    /// range deletes are many. Asked again until there is none.
    fn cut_before(&mut self, key: Option<&[u8]>) -> Option<Vec<u8>> {
        while let Some((from, bytes)) = self.starts.get(self.next)
            && key.is_none_or(|key| &from[..] <= key)
        {
            if self.bytes + bytes > RANGES_BYTES_MAX && self.bytes > 0 {
                self.bytes = 0;
                return Some(from.clone());
            }
            self.bytes += bytes;
            self.next += 1;
        }
        None
    }

    /// The range deletes from the last cut up to this one.
    fn up_to(&mut self, cut: Option<&[u8]>) -> RangeLayers {
        if self.ranges.is_empty() {
            return RangeLayers::default();
        }
        let within = if is_enabled(Mutant::RangeDeleteUncut) {
            self.ranges.within(self.reached.as_deref(), None)
        } else {
            self.ranges.within(self.reached.as_deref(), cut)
        };
        self.reached = cut.map(<[u8]>::to_vec);
        self.bytes = 0;
        within
    }
}

/// The inputs as sorted runs: each run of level 0 is one.
fn inputs(job: &Job) -> Vec<Vec<Arc<TableHandle>>> {
    let mut runs: Vec<Vec<_>> = match job.from {
        0 => job.upper.iter().map(|table| vec![Arc::clone(table)]).collect(),
        _ => vec![job.upper.clone()],
    };
    runs.extend(job.passed.iter().map(|(_, tables)| tables.clone()));
    if !job.lower.is_empty() {
        runs.push(job.lower.clone());
    }
    runs
}

/// What one part of a job holds at once of its inputs: a block of every run, each of which has a
/// value at least.
fn held_bytes(job: &Job) -> u64 {
    let value_bytes =
        |table: &Arc<TableHandle>| table.description().length / table.description().entries.max(1);
    inputs(job).iter().map(|run| run.iter().map(value_bytes).max().unwrap_or(0)).sum()
}

/// Parts of a job of `bytes`, each of which holds `held_bytes`, under a memory budget.
pub(super) fn parts_of(bytes: u64, table_bytes: u64, held_bytes: u64, budget_bytes: u64) -> u64 {
    let pays = bytes / table_bytes.saturating_mul(PART_TABLES_MIN).max(1);
    let fits = budget_bytes / HELD_PART / held_bytes.max(1);
    pays.min(PARTS_MAX).min(fits.max(1))
}

/// Keys at which a large job is cut into parts of about equal size.
async fn split_keys(job: &Job, budget_bytes: u64) -> Merged<Vec<Bytes>> {
    let parts = parts_of(job.bytes(), job.table_bytes, held_bytes(job), budget_bytes);
    if parts < 2 || job.to == 0 {
        return Ok(Vec::new());
    }
    // Each key stands for about as many bytes as the others: an index partition covers a fixed
    // number of blocks.
    let mut keys = Vec::new();
    for table in job.inputs() {
        let sampled = table.sample_keys(Purpose::Compaction).await;
        keys.extend(sampled.map_err(|error| Failure { error, table: Some(table.description().name) })?);
    }
    keys.sort_unstable();
    let parts = usize::try_from(parts).unwrap_or(1);
    let mut chosen: Vec<Bytes> =
        (1..parts).filter_map(|part| keys.get(part * keys.len() / parts).cloned()).collect();
    chosen.dedup();
    Ok(chosen)
}

fn ranges(keys: &[Bytes]) -> Vec<Range> {
    let starts = std::iter::once(None).chain(keys.iter().cloned().map(Some));
    let ends = keys.iter().cloned().map(Some).chain(std::iter::once(None));
    starts.zip(ends).collect()
}

/// Says where outputs end.
#[derive(Debug)]
struct Cutter {
    table_bytes: u64,
    grandparents: Option<Arc<SortedRun>>,
    at: usize,
    /// The last key of `grandparents[at]`.
    boundary: Option<Bytes>,
    overlap_bytes: u64,
    overlap_bytes_max: u64,
    /// A boundary of the level below lies between the last key and this one.
    at_boundary: bool,
}

impl Cutter {
    fn new(job: &Job, part_bytes: u64) -> Cutter {
        let tables = (part_bytes + job.table_bytes / 2) / job.table_bytes.max(1);
        let equal = part_bytes.checked_div(tables).unwrap_or(job.table_bytes);
        let table_bytes = equal.clamp(job.table_bytes / 2, job.table_bytes);
        let grandparents = job.deeper.first().filter(|_| job.to != 0).cloned();
        let boundary = grandparents
            .as_ref()
            .and_then(|run| run.get(0))
            .map(|table| table.description().last_key.clone());
        let overlap_bytes_max = job.grandparent_bytes_max();
        Cutter {
            table_bytes,
            grandparents,
            at: 0,
            boundary,
            overlap_bytes: 0,
            overlap_bytes_max,
            at_boundary: false,
        }
    }

    /// Whether an output of `written` bytes ends before `key`, which is greater than all before.
    fn cuts(&mut self, key: &[u8], written: u64) -> bool {
        while let Some(boundary) = &self.boundary
            && &boundary[..] < key
        {
            self.step();
        }
        let at_boundary = std::mem::take(&mut self.at_boundary);
        let cuts = written >= self.table_bytes
            || (at_boundary && written >= self.table_bytes / 4 * 3)
            || (self.overlap_bytes > self.overlap_bytes_max && written >= self.table_bytes / 8);
        if cuts || written == 0 {
            self.overlap_bytes = 0;
        }
        cuts && written > 0
    }

    #[cold]
    fn step(&mut self) {
        let Some(run) = &self.grandparents else { return };
        self.overlap_bytes += run.get(self.at).map_or(0, |table| table.description().length);
        self.at += 1;
        self.at_boundary = true;
        self.boundary = run.get(self.at).map(|table| table.description().last_key.clone());
    }
}

#[cfg(test)]
mod tests;
