//! Picking: which tables to merge next. Pure: levels, settings and what runs already in, a job out.
//!
//! Level 0 holds runs that overlap; levels 1 to 6 hold one sorted run each. Data enters the *base
//! level*, which is chosen by the size of the largest level: with little data that is level 6
//! itself; it moves up as the data grows, so that each level holds a few times what the one above
//! it may hold, and most of the data lies in the last one.
//!
//! The most urgent job comes first, by score:
//! 1. Level 0 once it has several runs: all that may go go to the base level. Where that would
//!    rewrite far more than it brings, or the base is busy, its newest runs become one run instead.
//! 2. A level beyond its target gives the table that overlaps least of the next level; between
//!    equals they take turns.
//! 3. Tables of which a large part are deletes go down early, and at the bottom are written again
//!    once no snapshot sees what they deleted.
//! 4. A level 0 that reads have paid for goes down, few as its runs may be: see
//!    `version::read_cost`. So does one with many deletes once nobody writes.
//!
//! What has expired comes before all that ([`expired`]), and garbage of values that lie apart after
//! it ([`apart`]), and so does what has gone cold ([`cold`]). That is the shape `leveled`.
//! [`tiered`] and [`fifo`] say what the other shapes of a keyspace do instead; asked compactions
//! are the same in all.
//!
//! Invariants of a job:
//! 1. None of its inputs is an input of another job.
//! 2. It takes all tables of its output level that meet the range of what it takes from above; no
//!    other job writes to that level within the range of all its inputs.
//! 3. A run of level 0 stays above every older run that it meets.
//! 4. Of the levels that it passes it takes all tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::TableName;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::manifest::Collected;
use crate::options::Shape;
pub(crate) use crate::version::LEVEL_LAST;
use crate::version::{Levels, SortedRun, TableHandle};
pub(crate) use asked::{Asked, Turn};

mod apart;
mod asked;
mod cold;
mod dropped;
mod expired;
mod fifo;
mod placed;
mod pulled;
mod tiered;

/// Runs of level 0 that start a compaction.
const RUNS_TRIGGER: usize = 4;
/// A level holds at least this many times what the level above holds, and at most about ten times.
const FACTOR_MIN: u64 = 4;
/// Up to this many times what enters at once, data goes to the last level directly: one more level
/// would write more.
const DIRECT_MAX: u64 = 6;
/// An output overlaps at most this many full tables of the level below it, so that its own
/// compaction stays small.
const GRANDPARENTS_MAX: u64 = 10;
/// Level 0 merges within itself rather than rewrite this many times its bytes.
const REWRITE_MAX: u64 = 3;
/// A table with at least one delete in this many entries is compacted early.
const ENTRIES_PER_DELETE: u64 = 4;
/// A small table of the output level next to a job's range joins it when it is at most this many
/// times as large as the job.
const NEIGHBOUR_MAX: u64 = 4;
/// Runs that become one hold at most so many bytes of range deletes: what overlaps is cut, to twice
/// as many at most, and a table takes no more than that.
const RANGES_BYTES_MAX: u64 = tombolo_format::ranges::RANGES_BYTES_MAX as u64 / 2;
/// Most tables that one job takes from a sorted level because they are small.
const SMALL_TABLES_MAX: usize = 64;

/// Sizes that follow from the memtable's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// A table of the base level ends at this many bytes.
    pub(crate) table_bytes: u64,
    /// What enters the base level at once, roughly.
    pub(crate) base_bytes: u64,
    /// Whether tables of the last level are compressed as those of the others: else none moves
    /// there unwritten.
    pub(crate) same_compression: bool,
    /// What the keyspace's levels aim at.
    pub(crate) shape: Shape,
    /// Of [`Shape::Fifo`]: the keyspace's tables are at most so large in all.
    pub(crate) fifo_bytes: u64,
    /// What has gone cold lies in a cold store: of the shape `leveled` all of the last level.
    pub(crate) is_cold: bool,
    /// The last level is kept for tables that are ingested behind: compaction does not write there,
    /// and deletes stay.
    pub(crate) keeps_last: bool,
}

impl Settings {
    /// For memtables of this size.
    pub(crate) fn new(memtable_bytes: u64, same_compression: bool) -> Settings {
        let base_bytes = memtable_bytes * RUNS_TRIGGER as u64;
        Settings {
            table_bytes: memtable_bytes.clamp(16 << 10, 64 << 20),
            base_bytes,
            same_compression,
            shape: Shape::Leveled,
            fifo_bytes: u64::MAX,
            is_cold: false,
            keeps_last: false,
        }
    }

    /// The same, for a keyspace that perhaps keeps its last level.
    pub(crate) fn keeping_last(self, keeps_last: bool) -> Settings {
        Settings { keeps_last, ..self }
    }

    /// The last level that compaction writes to.
    pub(crate) fn bottom(&self) -> u8 {
        if self.keeps_last { LEVEL_LAST - 1 } else { LEVEL_LAST }
    }

    /// The same, for a keyspace of another shape.
    pub(crate) fn shaped(self, shape: Shape, fifo_bytes: Option<u64>) -> Settings {
        Settings { shape, fifo_bytes: fifo_bytes.unwrap_or(u64::MAX), ..self }
    }

    /// The last level of hot data.
    pub(crate) fn last(&self) -> u8 {
        if self.is_cold && self.shape == Shape::Leveled { LEVEL_LAST - 1 } else { self.bottom() }
    }

    /// A table of `level` ends at this many bytes: larger further down, where there is more.
    pub(crate) fn table_bytes_at(&self, level: u8, base: u8) -> u64 {
        (self.table_bytes << level.saturating_sub(base).min(6)).min(self.table_bytes.max(64 << 20))
    }
}

/// Why a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Level 0 has many runs.
    Runs,
    /// Level 0 has many runs, and the base level would not take them.
    WithinLevel0,
    /// A level is larger than its target.
    Size,
    /// A table has many deletes.
    Deletes,
    /// Reads have paid for it.
    Reads,
    /// Tiers have grown to about the same size.
    Tiers,
    /// The keyspace is larger than it may be, and keeps the newest.
    Oldest,
    /// Much of it has expired.
    Expired,
    /// Somebody asked for it.
    Asked,
    /// Ingested tables find their level.
    Ingested,
    /// It refers to value objects of which much is garbage.
    Garbage,
    /// Much of it has gone cold.
    Cold,
    /// It lies under a source on another store.
    Pulled,
}

impl Reason {
    /// As listeners are told it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Runs => "runs",
            Reason::WithinLevel0 => "runs within level 0",
            Reason::Size => "size",
            Reason::Deletes => "deletes",
            Reason::Reads => "reads",
            Reason::Tiers => "tiers",
            Reason::Oldest => "oldest",
            Reason::Expired => "expired",
            Reason::Asked => "asked",
            Reason::Ingested => "ingested",
            Reason::Garbage => "garbage of values",
            Reason::Cold => "gone cold",
            Reason::Pulled => "pulled from another store",
        }
    }
}

/// What a job does with its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// Merges them into new tables.
    Merge,
    /// They fit where they go as they are: nothing is read or written.
    Move,
    /// They go, unread.
    Drop,
}

/// Whether a job writes into the cold store, and what stays out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tier {
    /// What it writes to its output level goes there.
    pub(crate) is_cold: bool,
    /// Entries that come from above, and are newer than that, stay on the level that they come
    /// from.
    pub(crate) stays_after: Option<SequenceNumber>,
}

/// What to merge, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) keyspace: u32,
    pub(crate) reason: Reason,
    pub(crate) from: u8,
    /// Tables of level `from`: of level 0 newest first, else in order.
    pub(crate) upper: Vec<Arc<TableHandle>>,
    /// Of each level between `from` and `to` that holds something, all tables, in order.
    pub(crate) passed: Vec<(u8, Vec<Arc<TableHandle>>)>,
    pub(crate) to: u8,
    /// Tables of level `to`, in order; none when `from` is `to`.
    pub(crate) lower: Vec<Arc<TableHandle>>,
    pub(crate) means: Means,
    /// Outputs end at this many bytes.
    pub(crate) table_bytes: u64,
    pub(crate) tier: Tier,
    /// Runs of level 0 that are older than the inputs: deletes stay for them.
    pub(crate) older_runs: Vec<Arc<TableHandle>>,
    /// Levels below the output, from top to bottom: deletes stay for them, and outputs end where
    /// the first of them asks for it.
    pub(crate) deeper: Vec<Arc<SortedRun>>,
    /// Tables may come to lie below all: deletes stay for them.
    pub(crate) keeps_last: bool,
}

impl Job {
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        let passed = self.passed.iter().flat_map(|(_, tables)| tables);
        self.upper.iter().chain(passed).chain(self.lower.iter())
    }

    /// The last level that compaction writes to.
    pub(crate) fn bottom(&self) -> u8 {
        if self.keeps_last { LEVEL_LAST - 1 } else { LEVEL_LAST }
    }

    /// Bytes of all inputs.
    pub(crate) fn bytes(&self) -> u64 {
        sum(self.inputs())
    }

    /// How many runs fewer level 0 has once it is done.
    pub(crate) fn runs_left(&self) -> u64 {
        match (self.from, self.to) {
            (0, 0) if self.means == Means::Drop => self.upper.len() as u64,
            (0, 0) => self.upper.len().saturating_sub(1) as u64,
            (0, _) => self.upper.len() as u64,
            _ => 0,
        }
    }

    /// The keys that the inputs span.
    pub(crate) fn range(&self) -> Option<(Bytes, Bytes)> {
        range_of(self.inputs())
    }

    /// Overlap with the level below at which an output ends.
    pub(crate) fn grandparent_bytes_max(&self) -> u64 {
        self.table_bytes * GRANDPARENTS_MAX
    }
}

/// What jobs that run have taken.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    tables: BTreeSet<TableName>,
    outputs: BTreeMap<u64, Output>,
    /// Tables that cannot be read, with their keyspaces: nobody takes them.
    damaged: BTreeMap<TableName, u32>,
    /// Tables written with older versions of keys, which snapshots saw then. Those of before the
    /// process began are not known.
    older: BTreeSet<TableName>,
    next: u64,
}

/// Where a job that runs writes.
#[derive(Debug)]
struct Output {
    keyspace: u32,
    level: u8,
    /// The level on which some of it stays.
    stays: Option<u8>,
    first: Bytes,
    last: Bytes,
}

impl Busy {
    /// Takes what `job` needs; the number gives it back.
    pub(crate) fn take(&mut self, job: &Job) -> u64 {
        self.next += 1;
        self.tables.extend(job.inputs().map(|table| table.description().name));
        if let Some((first, last)) = job.range() {
            let (keyspace, level, stays) = (job.keyspace, job.to, job.tier.stays_after.map(|_| job.from));
            self.outputs.insert(self.next, Output { keyspace, level, stays, first, last });
        }
        self.next
    }

    /// Gives back what `job` took under `number`.
    pub(crate) fn give_back(&mut self, number: u64, job: &Job) {
        for table in job.inputs() {
            self.tables.remove(&table.description().name);
        }
        self.outputs.remove(&number);
    }

    /// Sets a table aside; whether it was not yet.
    pub(crate) fn set_aside(&mut self, keyspace: u32, table: TableName) -> bool {
        self.damaged.insert(table, keyspace).is_none()
    }

    pub(crate) fn is_damaged(&self, table: &TableHandle) -> bool {
        self.damaged.contains_key(&table.description().name)
    }

    /// Tables were written that hold older versions of keys.
    pub(crate) fn note_older(&mut self, tables: impl IntoIterator<Item = TableName>) {
        self.older.extend(tables);
    }

    fn holds_older(&self, table: &TableHandle) -> bool {
        self.older.contains(&table.description().name)
    }

    /// Forgets tables that `lives` does not say are still there. Gives the
    /// keyspaces that have no damaged one any more.
    pub(crate) fn retain(&mut self, lives: impl Fn(TableName) -> bool) -> BTreeSet<u32> {
        self.older.retain(|table| lives(*table));
        let mut healed: BTreeSet<u32> = self.damaged.values().copied().collect();
        self.damaged.retain(|table, _| lives(*table));
        healed.retain(|keyspace| self.damaged.values().all(|damaged| damaged != keyspace));
        healed
    }

    /// Whether there is something that [`Busy::retain`] may forget.
    pub(crate) fn knows_tables(&self) -> bool {
        !self.damaged.is_empty() || !self.older.is_empty()
    }

    /// Whether a job of a keyspace has taken something.
    pub(crate) fn is_at(&self, keyspace: u32) -> bool {
        self.outputs.values().any(|output| output.keyspace == keyspace)
    }

    /// Whether tables of a keyspace are damaged.
    fn has_damage(&self, keyspace: u32) -> bool {
        self.damaged.values().any(|damaged| *damaged == keyspace)
    }

    fn is_free(&self, table: &TableHandle) -> bool {
        !self.is_taken(table) && !self.is_damaged(table)
    }

    /// Whether a job that runs has taken a table.
    fn is_taken(&self, table: &TableHandle) -> bool {
        self.tables.contains(&table.description().name)
    }

    /// Whether a job of a keyspace writes to a sorted level.
    fn writes_below_level_0(&self, keyspace: u32) -> bool {
        self.outputs.values().any(|output| output.keyspace == keyspace && output.level > 0)
    }

    /// Whether a job may write `first..=last` of a level. Level 0 takes anything.
    fn may_write(&self, keyspace: u32, level: u8, first: &Bytes, last: &Bytes) -> bool {
        level == 0
            || !self.outputs.values().any(|output| {
                output.keyspace == keyspace
                    && (output.level == level || output.stays == Some(level))
                    && output.first <= *last
                    && *first <= output.last
            })
    }
}

/// The last key that each level gave away: the next one follows it.
pub(crate) type Cursors = BTreeMap<(u32, u8), Bytes>;

/// What picking goes by, beside the levels.
#[derive(Debug)]
pub(crate) struct Picking<'a> {
    pub(crate) keyspace: u32,
    /// A compaction filter is asked of its entries.
    pub(crate) is_filtered: bool,
    pub(crate) settings: Settings,
    pub(crate) busy: &'a Busy,
    pub(crate) cursors: &'a Cursors,
    /// The oldest number that a snapshot looks from: deletes up to it can go.
    pub(crate) oldest_snapshot: SequenceNumber,
    /// The numbers that snapshots look from, ascending.
    pub(crate) snapshots: Vec<SequenceNumber>,
    /// The newest number that a snapshot looks from, if there is one: it sees no table that begins
    /// after it.
    pub(crate) newest_snapshot: Option<SequenceNumber>,
    /// What ended up to then may be destroyed.
    pub(crate) settled_ms: u64,
    /// The earliest time by which a snapshot judges what has expired.
    pub(crate) snapshots_judged_ms: u64,
    /// When the first operand that ends was written, of those in memtables.
    pub(crate) operands_ms: u64,
    /// The value objects to collect.
    pub(crate) collected: Collected,
    /// Sources on other stores, whose tables are pulled.
    pub(crate) far: BTreeSet<u32>,
    /// Everything up to there has gone cold.
    pub(crate) cold_up_to: SequenceNumber,
    /// Nobody has written for a while.
    pub(crate) is_idle: bool,
}

impl Picking<'_> {
    /// What ended up to then may be destroyed, and no snapshot sees it.
    fn expired_ms(&self) -> u64 {
        self.settled_ms.min(self.snapshots_judged_ms)
    }
}

/// How much each level may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// The level that takes what comes from level 0.
    pub(crate) base: u8,
    /// The last level of hot data.
    pub(crate) last: u8,
    /// Of levels from the base on; the last has none.
    bytes: [u64; LEVEL_LAST as usize],
}

impl Targets {
    /// For levels of these sizes.
    pub(crate) fn new(levels: &Levels, settings: &Settings) -> Targets {
        let last = settings.last();
        let hot = levels.sorted.iter().filter(|(level, _)| *level <= last);
        let largest = hot.map(|(_, run)| run.bytes()).max().unwrap_or(0);
        let ratio = largest / settings.base_bytes.max(1);
        let mut steps: u32 = 0;
        let mut reach = DIRECT_MAX;
        while ratio > reach && steps < u32::from(last) - 1 {
            steps += 1;
            reach = reach.saturating_mul(10);
        }
        let factor = (FACTOR_MIN..=10).find(|factor| factor.saturating_pow(steps + 1) >= ratio).unwrap_or(10);
        let mut targets =
            Targets { base: last - u8::try_from(steps).unwrap_or(0), last, bytes: [0; LEVEL_LAST as usize] };
        let mut bytes = largest;
        for level in (usize::from(targets.base)..usize::from(last)).rev() {
            bytes /= factor;
            targets.bytes[level] = bytes.max(settings.base_bytes);
        }
        targets
    }

    /// The bytes that a level may hold; `None` when it may hold anything.
    pub(crate) fn of(&self, level: u8) -> Option<u64> {
        self.bytes.get(usize::from(level)).copied().filter(|_| level < self.last)
    }
}

/// Chooses the next job; `None` when nothing needs one, or what does must wait for a job that runs.
pub(crate) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let (all, trimmed) = (levels, kept_aside(levels, &picking.settings));
    let levels = trimmed.as_ref().unwrap_or(levels);
    if let Some(job) = expired::pick(levels, picking) {
        return Some(job);
    }
    let shaped = || match picking.settings.shape {
        Shape::Leveled => leveled(levels, picking),
        Shape::Tiered => tiered::pick(levels, picking),
        Shape::Auto => tiered::pick(levels, picking)
            .or_else(|| for_reads(levels, picking, &Targets::new(levels, &picking.settings)))
            .or_else(|| for_rest(levels, picking, &Targets::new(levels, &picking.settings))),
        Shape::Fifo => fifo::pick(levels, picking),
    };
    let garbage = || apart::pick(levels, picking);
    let job = if picking.collected.is_urgent { garbage().or_else(shaped) } else { shaped().or_else(garbage) };
    job.or_else(|| cold::pick(levels, picking)).or_else(|| pulled::pick(all, picking))
}

/// The levels that compaction knows of, if one is kept that holds something: nobody merges it.
fn kept_aside(levels: &Levels, settings: &Settings) -> Option<Levels> {
    (settings.keeps_last && levels.level(LEVEL_LAST).is_some()).then(|| levels.without_last())
}

fn leveled(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let targets = Targets::new(levels, &picking.settings);
    if let Some(job) = placed::pick(levels, picking, &targets) {
        return Some(job);
    }
    let mut scores = vec![(score_of_level_0(levels, picking), 0)];
    for (level, run) in levels.sorted.iter().filter(|(level, _)| *level < targets.last) {
        let target = targets.of(*level).unwrap_or(u64::MAX).max(1);
        // What lies above the base has to go: it is in the way of all that comes.
        let score = if *level < targets.base {
            u64::MAX
        } else {
            free_bytes(run, picking.busy).saturating_mul(1000) / target
        };
        scores.push((score, *level));
    }
    scores.retain(|(score, _)| *score >= 1000);
    scores.sort_by_key(|(score, level)| (std::cmp::Reverse(*score), *level));
    let mut waited_for = None;
    for (_, level) in scores {
        if level == 0 {
            match from_level_0(levels, picking, &targets) {
                Ok(job) => return Some(job),
                // The base must come to rest, or level 0 would wait for ever.
                Err(blocked) => waited_for = blocked,
            }
        } else if waited_for != Some(level)
            && let Some(job) = from_sorted(levels, picking, &targets, level)
        {
            return Some(job);
        }
    }
    for_deletes(levels, picking, &targets)
        .or_else(|| for_reads(levels, picking, &targets))
        .or_else(|| for_rest(levels, picking, &targets))
}

/// In thousandths of what starts a compaction. A run of deletes counts twice.
///
/// By bytes, a delete counts as what it deletes.
fn score_of_level_0(levels: &Levels, picking: &Picking<'_>) -> u64 {
    let free = || levels.runs.iter().filter(|table| picking.busy.is_free(table));
    let runs = free().count() as u64;
    if runs == 0 {
        return 0;
    }
    let heavy = free().filter(|table| has_many_deletes(table)).count() as u64;
    let bytes = if runs > 1 || heavy > 0 { weight(levels, free()) } else { 0 };
    let by_bytes = bytes.saturating_mul(1000) / (picking.settings.base_bytes * 2).max(1);
    ((runs + heavy) * 1000 / RUNS_TRIGGER as u64).max(by_bytes)
}

fn has_many_deletes(table: &TableHandle) -> bool {
    let description = table.description();
    // One range delete may take any number of entries away.
    if table.has_ranges() {
        return true;
    }
    description.deletes > 0 && description.deletes.saturating_mul(ENTRIES_PER_DELETE) >= description.entries
}

fn sum<'a>(tables: impl Iterator<Item = &'a Arc<TableHandle>>) -> u64 {
    tables.map(|table| table.description().length).sum()
}

/// Bytes of tables and of what they delete, roughly: each delete takes an entry of the usual size
/// away.
fn weight<'a>(levels: &Levels, tables: impl Iterator<Item = &'a Arc<TableHandle>>) -> u64 {
    let (bytes, entries) = levels
        .sorted
        .iter()
        .fold((0, 0), |(bytes, entries), (_, run)| (bytes + run.bytes(), entries + run.entries()));
    let usual = bytes.checked_div(entries).unwrap_or(0);
    tables.map(|table| table.description().length + table.description().deletes.saturating_mul(usual)).sum()
}

fn free_bytes(run: &SortedRun, busy: &Busy) -> u64 {
    sum(run.iter().filter(|table| busy.is_free(table)))
}

fn range_of<'a>(tables: impl Iterator<Item = &'a Arc<TableHandle>>) -> Option<(Bytes, Bytes)> {
    tables.fold(None, |range, table| {
        let (first, last) = (&table.description().first_key, &table.description().last_key);
        Some(match range {
            None => (first.clone(), last.clone()),
            Some((from, to)) => (from.min(first.clone()), to.max(last.clone())),
        })
    })
}

fn meets(one: &TableHandle, other: &TableHandle) -> bool {
    one.description().meets(other.description())
}

/// Where tables of `level` go: the next level that holds something, or the base.
fn next_level(levels: &Levels, targets: &Targets, level: u8) -> u8 {
    if level >= targets.base {
        return (level + 1).min(targets.last);
    }
    levels
        .sorted
        .iter()
        .map(|(number, _)| *number)
        .find(|number| *number > level)
        .map_or(targets.base, |number| number.min(targets.base))
}

/// A job from what was chosen of a level, if it may run: with the tables of the output level that
/// it meets, and small ones beside them.
fn job(
    levels: &Levels,
    picking: &Picking<'_>,
    targets: &Targets,
    reason: Reason,
    (from, upper): (u8, Vec<Arc<TableHandle>>),
    to: u8,
) -> Option<Job> {
    let (first, last) = range_of(upper.iter())?;
    let table_bytes = picking.settings.table_bytes_at(to, targets.base);
    let mut lower = Vec::new();
    let is_moved_below = is_enabled(Mutant::RangeDeleteMovedBelow)
        && upper.iter().all(|table| table.description().entries == 0);
    if let Some(run) = levels.level(to).filter(|_| from != to && !is_moved_below) {
        let mut met = run.overlapping(&first, &last);
        // Tables written in order move down as they are, and are not written again to be joined to
        // what was there before.
        if !met.is_empty() || are_small(&upper, table_bytes) {
            met = with_small_neighbours(run, met, sum(upper.iter()), table_bytes, picking.busy);
        }
        lower.extend(run.range(met).cloned());
    }
    if lower.iter().any(|table| !picking.busy.is_free(table)) {
        return None;
    }
    let (first, last) = range_of(upper.iter().chain(&lower))?;
    if !picking.busy.may_write(picking.keyspace, to, &first, &last) {
        return None;
    }
    let mut job = assemble(levels, picking, reason, (from, upper), (to, lower), table_bytes);
    if job.tier.stays_after.is_some() && !picking.busy.may_write(picking.keyspace, from, &first, &last) {
        return None;
    }
    if can_move(&job, picking) {
        job.means = Means::Move;
    }
    Some(job)
}

/// A job of these tables, with what its deletes stay for.
fn assemble(
    levels: &Levels,
    picking: &Picking<'_>,
    reason: Reason,
    (from, upper): (u8, Vec<Arc<TableHandle>>),
    (to, lower): (u8, Vec<Arc<TableHandle>>),
    table_bytes: u64,
) -> Job {
    let oldest = upper.last().filter(|_| from == 0).map(|table| table.description().last_sequence);
    // Tables that were ingested together have one number, and one may hold what others do not.
    let older = |table: &&Arc<TableHandle>| {
        oldest.is_some_and(|oldest| table.description().last_sequence <= oldest)
            && !upper.iter().any(|taken| Arc::ptr_eq(taken, table))
    };
    let older_runs = levels.runs.iter().filter(older).cloned().collect();
    let deeper =
        levels.sorted.iter().filter(|(level, _)| *level > to).map(|(_, run)| Arc::clone(run)).collect();
    let tier = cold::tier(picking, reason, (from, &upper), to);
    Job {
        keyspace: picking.keyspace,
        reason,
        from,
        upper,
        passed: Vec::new(),
        to,
        lower,
        means: Means::Merge,
        table_bytes,
        tier,
        older_runs,
        deeper,
        keeps_last: picking.settings.keeps_last,
    }
}

/// Small tables beside what a job meets join it, so that small tables do not stay for ever; what
/// they cost is in proportion to the job.
fn with_small_neighbours(
    run: &SortedRun,
    mut met: std::ops::Range<usize>,
    upper_bytes: u64,
    table_bytes: u64,
    busy: &Busy,
) -> std::ops::Range<usize> {
    let mut bytes = upper_bytes + sum(run.range(met.clone()));
    let mut joins = |at: usize| {
        let Some(table) = run.get(at) else { return false };
        let length = table.description().length;
        let joins = bytes + length <= table_bytes
            && length <= bytes.saturating_mul(NEIGHBOUR_MAX)
            && busy.is_free(table);
        bytes += if joins { length } else { 0 };
        joins
    };
    while met.start > 0 && joins(met.start - 1) {
        met.start -= 1;
    }
    while joins(met.end) {
        met.end += 1;
    }
    met
}

/// Whether tables are so small, on average, that they should become parts of larger ones.
fn are_small(tables: &[Arc<TableHandle>], table_bytes: u64) -> bool {
    sum(tables.iter()) < (table_bytes / 16).saturating_mul(tables.len() as u64)
}

/// Whether the tables fit where they go as they are.
fn can_move(job: &Job, picking: &Picking<'_>) -> bool {
    // Who asks may want new settings to take effect, or all entries offered to a filter.
    if (job.reason == Reason::Asked && (job.from == 0 || picking.is_filtered))
        || job.from == job.to
        || job.tier.is_cold
        || !job.lower.is_empty()
    {
        return false;
    }
    if job.to == job.bottom() && !picking.settings.same_compression {
        return false;
    }
    // Of several small tables one is made.
    if job.upper.len() > 1 && are_small(&job.upper, job.table_bytes) {
        return false;
    }
    let mut in_order: Vec<_> = job.upper.iter().collect();
    in_order.sort_by(|one, other| one.description().first_key.cmp(&other.description().first_key));
    if in_order.windows(2).any(|pair| meets(pair[0], pair[1])) {
        return false;
    }
    let overlap = |run: &Arc<SortedRun>, table: &TableHandle| {
        sum(run.range(run.overlapping(&table.description().first_key, &table.description().last_key)))
    };
    in_order.iter().all(|table| {
        // Deletes of nothing would go to the bottom and stay there.
        let deletes_something = job.keeps_last
            || (table.description().deletes == 0 && !table.has_ranges())
            || job.deeper.iter().any(|run| overlap(run, table) > 0);
        deletes_something
            && job.deeper.first().is_none_or(|run| overlap(run, table) <= job.grandparent_bytes_max())
    })
}

/// Runs of level 0 that may go down to level `to`, newest first: all but those in use, those that
/// meet a damaged table there, and those that would pass an older run that they meet.
fn runs_that_may_go(levels: &Levels, busy: &Busy, to: u8) -> Vec<Arc<TableHandle>> {
    let mut stay: Vec<&Arc<TableHandle>> = match levels.level(to) {
        Some(run) if !busy.damaged.is_empty() => run.iter().filter(|table| busy.is_damaged(table)).collect(),
        _ => Vec::new(),
    };
    let mut go = Vec::new();
    for table in levels.runs.iter().rev() {
        if busy.is_free(table) && !stay.iter().any(|older| meets(older, table)) {
            go.push(Arc::clone(table));
        } else {
            stay.push(table);
        }
    }
    go.reverse();
    go
}

/// A job that takes runs out of level 0. When none may run now, the level that it waits for: none
/// when only damage is in its way, which stays.
fn from_level_0(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Result<Job, Option<u8>> {
    let to = next_level(levels, targets, 0);
    let runs = runs_that_may_go(levels, picking.busy, to);
    let is_damaged = picking.busy.has_damage(picking.keyspace);
    // All together may span a damaged table that none of them meets.
    let oldest = runs.last().filter(|_| is_damaged).cloned();
    let down = job(levels, picking, targets, Reason::Runs, (0, runs), to);
    let down = down.or_else(|| job(levels, picking, targets, Reason::Runs, (0, vec![oldest?]), to));
    let dear =
        |job: &Job| sum(job.lower.iter()) > weight(levels, job.upper.iter()).saturating_mul(REWRITE_MAX);
    // Runs do not grow beyond what goes down well.
    let bytes_max = picking.settings.base_bytes.saturating_mul(2);
    let within = |runs_min| within_level_0(levels, picking, targets, runs_min, bytes_max);
    match down {
        Some(job) if !dear(&job) => Ok(job),
        Some(job) => Ok(within(RUNS_TRIGGER).unwrap_or(job)),
        None => within(RUNS_TRIGGER * 2).ok_or(Some(to).filter(|_| !is_damaged)),
    }
}

/// Makes one run of at least `runs_min` runs that follow each other, none much larger than all that
/// are newer: so no byte is merged often. The run has at most `bytes_max`, unless damage keeps runs
/// from going down: then they stay few, however much is written.
fn within_level_0(
    levels: &Levels,
    picking: &Picking<'_>,
    targets: &Targets,
    runs_min: usize,
    bytes_max: u64,
) -> Option<Job> {
    let newest = levels.runs.iter().position(|table| picking.busy.is_free(table))?;
    let bytes_max = if picking.busy.has_damage(picking.keyspace) { u64::MAX } else { bytes_max };
    let (mut bytes, mut range_bytes) = (0u64, 0u64);
    let mut chosen = Vec::new();
    for table in levels.runs[newest..].iter().take_while(|table| picking.busy.is_free(table)) {
        let length = table.description().length;
        let small = chosen.len() < 2 || length <= bytes * 2;
        range_bytes += table.description().range_deletes().map_or(0, |ranges| u64::from(ranges.bytes));
        let fits = range_bytes <= RANGES_BYTES_MAX || is_enabled(Mutant::RangeDeletesUnbounded);
        if !small || !fits || bytes.saturating_add(length) > bytes_max {
            break;
        }
        bytes += length;
        chosen.push(Arc::clone(table));
    }
    if chosen.len() < runs_min {
        return None;
    }
    let job = job(levels, picking, targets, Reason::WithinLevel0, (0, chosen), 0)?;
    // One run stays one table.
    Some(Job { table_bytes: u64::MAX / GRANDPARENTS_MAX, ..job })
}

/// The table of a level that overlaps least of the next one for its size; of equal ones the first
/// after the level's cursor.
fn from_sorted(levels: &Levels, picking: &Picking<'_>, targets: &Targets, level: u8) -> Option<Job> {
    let run = levels.level(level)?;
    let to = next_level(levels, targets, level);
    let below = levels.level(to);
    let start = picking.cursors.get(&(picking.keyspace, level)).map_or(0, |key| run.begun(key));
    let mut candidates: Vec<_> = (0..run.len())
        .map(|step| (start + step) % run.len())
        .filter(|at| run.get(*at).is_some_and(|table| picking.busy.is_free(table)))
        .map(|at| {
            let table = run[at].description();
            let met = below
                .map_or(0, |below| sum(below.range(below.overlapping(&table.first_key, &table.last_key))));
            (met.saturating_mul(1000) / table.length.max(1), at)
        })
        .collect();
    candidates.sort_by_key(|(ratio, _)| *ratio);
    let tables = candidates.into_iter().map(|(_, at)| with_followers(run, at, picking));
    tables.filter_map(|upper| job(levels, picking, targets, Reason::Size, (level, upper), to)).next()
}

/// A table, and if it is small, those that follow it, up to a full one.
fn with_followers(run: &SortedRun, at: usize, picking: &Picking<'_>) -> Vec<Arc<TableHandle>> {
    let mut bytes = 0;
    let fits = |table: &&Arc<TableHandle>| {
        bytes += table.description().length;
        picking.busy.is_free(table) && bytes <= picking.settings.table_bytes
    };
    let mut upper: Vec<_> = run.range(at..at + SMALL_TABLES_MAX).take_while(fits).cloned().collect();
    if upper.is_empty() {
        upper.push(Arc::clone(&run[at]));
    }
    upper
}

/// A table with many deletes: down one level, or, at the bottom, written again without those that
/// nobody sees.
fn for_deletes(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Option<Job> {
    levels.sorted.iter().find_map(|(level, _)| for_deletes_at(levels, picking, targets, *level))
}

/// The same, of one level.
fn for_deletes_at(levels: &Levels, picking: &Picking<'_>, targets: &Targets, level: u8) -> Option<Job> {
    let to = next_level(levels, targets, level);
    // Where the last level is kept no delete goes, and the job would be done again and again.
    if level == picking.settings.bottom() && picking.settings.keeps_last {
        return None;
    }
    // Above cold data, deletes that somebody needs stay where they are; so do those of keys that
    // the cold data may hold, until they have gone cold themselves.
    let goes = to != level && level != picking.settings.last();
    let covers_cold = |table: &TableHandle| {
        let (first, last) = (&table.description().first_key, &table.description().last_key);
        let below = levels.sorted.iter().filter(|(below, _)| *below > level);
        below.map(|(_, run)| run.overlapping(first, last)).any(|met| !met.is_empty())
    };
    let droppable = |table: &TableHandle| {
        goes || (table.description().last_sequence <= picking.oldest_snapshot && !covers_cold(table))
    };
    let mut heavy = levels
        .level(level)?
        .iter()
        .filter(|table| has_many_deletes(table) && picking.busy.is_free(table) && droppable(table));
    heavy.find_map(|table| {
        job(levels, picking, targets, Reason::Deletes, (level, vec![Arc::clone(table)]), to)
    })
}

/// All runs that may go, once reads have cost as much as that will: however little they bring to
/// the base.
fn for_reads(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Option<Job> {
    if !levels.read_cost.is_paid() {
        return None;
    }
    let to = next_level(levels, targets, 0);
    job(levels, picking, targets, Reason::Reads, (0, runs_that_may_go(levels, picking.busy, to)), to)
}

/// Whether there may be something to do for [`for_rest`].
pub(crate) fn may_want_rest(levels: &Levels) -> bool {
    levels.runs.iter().any(|table| has_many_deletes(table))
}

/// While nobody writes: all runs that may go, if some have many deletes. Writes that go on would
/// bring more of them, to go down together.
fn for_rest(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Option<Job> {
    let is_heavy = |table: &Arc<TableHandle>| picking.busy.is_free(table) && has_many_deletes(table);
    if !picking.is_idle || !levels.runs.iter().any(is_heavy) {
        return None;
    }
    let to = next_level(levels, targets, 0);
    job(levels, picking, targets, Reason::Deletes, (0, runs_that_may_go(levels, picking.busy, to)), to)
}

/// The number that the oldest snapshot must reach before a table at the bottom can lose the many
/// deletes that it has, one beyond the bytes of its keyspace can go, or what has expired can.
pub(crate) fn held_by_snapshots(levels: &Levels, picking: &Picking<'_>) -> Option<SequenceNumber> {
    let expired = expired::held(levels, picking);
    let deleted = held_with_deletes(levels, picking);
    expired.into_iter().chain(deleted).min()
}

fn held_with_deletes(levels: &Levels, picking: &Picking<'_>) -> Option<SequenceNumber> {
    if picking.settings.shape == Shape::Fifo {
        return fifo::held(levels, picking);
    }
    if picking.settings.keeps_last {
        return None;
    }
    let held = |table: &&Arc<TableHandle>| {
        has_many_deletes(table) && table.description().last_sequence > picking.oldest_snapshot
    };
    let lowest = levels.sorted.iter().filter(|(level, _)| *level >= picking.settings.last());
    let held = lowest.flat_map(|(_, run)| run.iter()).filter(held);
    held.map(|table| table.description().last_sequence).min()
}

/// Bytes that wait to be merged: level 0 once its runs start a compaction, and what sorted levels
/// hold beyond their targets.
pub(crate) fn bytes_pending(levels: &Levels, settings: &Settings) -> u64 {
    let runs = if levels.runs.len() >= RUNS_TRIGGER { sum(levels.runs.iter()) } else { 0 };
    match settings.shape {
        Shape::Leveled => {}
        // What a tier holds waits for nothing.
        Shape::Tiered | Shape::Auto => return runs,
        Shape::Fifo => return 0,
    }
    let trimmed = kept_aside(levels, settings);
    let levels = trimmed.as_ref().unwrap_or(levels);
    let targets = Targets::new(levels, settings);
    let beyond = |(level, run): &(u8, Arc<SortedRun>)| match targets.of(*level) {
        _ if *level < targets.base => run.bytes(),
        Some(target) => run.bytes().saturating_sub(target),
        None => 0,
    };
    runs + levels.sorted.iter().map(beyond).sum::<u64>()
}

#[cfg(test)]
mod tests;
