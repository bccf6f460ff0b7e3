//! How the keys of a range are spread: how many there are, where they are cut into equal parts, and
//! some of them at random.
//!
//! All is of one moment, as a view and a number say it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use super::size::range_size;
use crate::engine::{Health, KeyspaceInfo, View};
use crate::memtable::Memtable;
use crate::read::RangeCursor;
use crate::table::{KeyRange, Step, TablePiece};
use crate::value::Value;
use crate::version::TableHandle;

/// Entries that are walked over before others get a turn.
const STEPS_AT_ONCE: u32 = 1024;
/// Pieces for each part of a range: a part is right to one of them for each table that it cuts.
const PIECES_FOR_PART: usize = 16;
/// A sample is taken from a walk over all where there are about so many entries, or this many for
/// each one wanted.
const WALKED_ENTRIES: u64 = 4096;
const WALKED_FOR_ONE: u64 = 4;
/// Draws for each key that is wanted, before fewer are given.
const DRAWS_FOR_ONE: usize = 8;
/// Bytes of a piece of a memtable, at least.
const MEMORY_PIECE_BYTES: u64 = 1 << 10;
/// Steps from the beginning of a block to an entry of it, at most.
const BLOCK_STEPS_MAX: u64 = 512;

/// A range of keys, at one moment.
pub(crate) struct Spread {
    pub(crate) env: Env,
    pub(crate) view: Arc<View>,
    pub(crate) keyspace: Arc<KeyspaceInfo>,
    /// The number that reads look from, and the time by which they judge what has expired.
    pub(crate) moment: (SequenceNumber, u64),
    pub(crate) range: KeyRange,
}

/// Keys that were counted: those from `from` on and up to `to`.
#[derive(Debug)]
struct Counted {
    from: Bound<Bytes>,
    to: Bytes,
    keys: u64,
}

impl Counted {
    fn is_before(&self, key: &[u8]) -> bool {
        match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => **from <= *key,
            Bound::Excluded(from) => **from < *key,
        }
    }
}

/// What memtables have in a stretch of keys.
struct Written<'a> {
    view: &'a View,
    keyspace: u32,
}

impl Written<'_> {
    fn lists(&self) -> impl Iterator<Item = crate::memtable::List> {
        self.view
            .memtables_of(self.keyspace)
            .filter_map(|memtable: &Arc<Memtable>| memtable.list(self.keyspace))
    }

    /// Whether there is nothing, neither entries nor range deletes, from `from` on and up to `to`.
    fn is_nothing(&self, from: Bound<&[u8]>, to: &[u8]) -> bool {
        if is_enabled(Mutant::CountIgnoresMemtables) {
            return true;
        }
        let first = match from {
            Bound::Unbounded => &[],
            Bound::Included(key) | Bound::Excluded(key) => key,
        };
        self.lists().all(|list| {
            let mut cursor = list.cursor();
            match from {
                Bound::Unbounded => cursor.first(),
                Bound::Included(key) => cursor.seek(key, Trailer::FIRST),
                Bound::Excluded(key) => cursor.seek(key, Trailer::LAST),
            }
            if let (Some(entry), Bound::Excluded(key)) = (cursor.entry(), from)
                && entry.key == key
            {
                cursor.next();
            }
            let is_met = cursor.entry().is_some_and(|entry| entry.key <= to);
            let ranges = list.ranges();
            let hides = |ranges: &crate::memtable::MemtableRanges| {
                ranges.newest_first().any(|delete| delete.from <= to && first < delete.to)
            };
            !is_met && !ranges.as_deref().is_some_and(hides)
        })
    }

    /// `each` is given the key and the bytes of one entry in the range after the other.
    async fn walk(&self, env: &Env, range: &KeyRange, mut each: impl FnMut(&[u8], u64) + Send) {
        let mut steps = 0;
        let lists: Vec<_> = self.lists().collect();
        for list in lists {
            let mut cursor = list.cursor();
            match &range.lower {
                Bound::Unbounded => cursor.first(),
                Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key, Trailer::FIRST),
            }
            while let Some(entry) = cursor.entry().filter(|entry| !range.is_above(entry.key)) {
                if !range.is_below(entry.key) {
                    each(entry.key, (entry.key.len() + entry.value.len()) as u64);
                }
                cursor.next();
                steps += 1;
                if steps == STEPS_AT_ONCE {
                    steps = 0;
                    env.yield_now().await;
                }
            }
        }
    }
}

/// Whether all keys of a table lie in the range.
fn is_within(table: &TableHandle, range: &KeyRange) -> bool {
    let description = table.description();
    !range.is_below(&description.first_key) && !range.is_above(&description.last_key)
}

/// Which of these tables, by their first keys, are alone: no other has something for a key between
/// their first and last; with the greatest key of all before each.
fn alone(tables: &[Arc<TableHandle>]) -> impl Iterator<Item = (&Arc<TableHandle>, Option<Bytes>)> {
    let mut reached: Option<Bytes> = None;
    tables.iter().enumerate().filter_map(move |(at, table)| {
        let (first, last) = (&table.description().first_key, &table.description().last_key);
        let is_alone = reached.as_ref().is_none_or(|reached| reached < first)
            && tables.get(at + 1).is_none_or(|next| *last < next.description().first_key);
        let before = reached.clone();
        reached = Some(reached.take().map_or_else(|| last.clone(), |reached| reached.max(last.clone())));
        (is_alone || is_enabled(Mutant::CountIgnoresOtherTables)).then_some((table, before))
    })
}

/// The tables that meet the range, by their first keys.
pub(crate) fn tables_within(view: &View, keyspace: u32, range: &KeyRange) -> Vec<Arc<TableHandle>> {
    let Some(levels) = view.version.levels(keyspace) else { return Vec::new() };
    let meets = |table: &&Arc<TableHandle>| {
        let description = table.description();
        !range.is_below(&description.last_key) && !range.is_above(&description.first_key)
    };
    let mut tables: Vec<_> = levels.tables().filter(meets).cloned().collect();
    tables.sort_by(|left, right| left.description().first_key.cmp(&right.description().first_key));
    tables
}

impl Spread {
    fn written(&self) -> Written<'_> {
        Written { view: &self.view, keyspace: self.keyspace.id }
    }

    /// The tables that meet the range, by their first keys.
    fn tables(&self) -> Vec<Arc<TableHandle>> {
        tables_within(&self.view, self.keyspace.id, &self.range)
    }

    fn cursor(&self) -> RangeCursor {
        let view = Arc::clone(&self.view);
        RangeCursor::new(view, Arc::clone(&self.keyspace), self.moment, self.range.clone())
    }

    /// How many keys of the range have a value.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`; those of the store.
    pub(crate) async fn count(&self, health: &Health) -> Result<u64> {
        match self.counted_and_walked().await {
            Ok(count) => Ok(count),
            Err(error) => Err(health.judge_read(&self.view, error).await),
        }
    }

    async fn counted_and_walked(&self) -> Result<u64> {
        let counted = self.counted().await?;
        let mut cursor = self.cursor();
        cursor.keys_only();
        let mut count = 0;
        let mut after: Option<Vec<u8>> = None;
        for counted in counted {
            count += self.walk(&mut cursor, after.as_deref(), |key| counted.is_before(key)).await?;
            count += counted.keys;
            after = Some(counted.to.to_vec());
        }
        count += self.walk(&mut cursor, after.as_deref(), |_| false).await?;
        Ok(count)
    }

    /// Counts the keys after `after`, up to the first that is `beyond`.
    async fn walk(
        &self,
        cursor: &mut RangeCursor,
        after: Option<&[u8]>,
        beyond: impl Fn(&[u8]) -> bool,
    ) -> Result<u64> {
        let mut step = match after {
            Some(after) => cursor.seek_after(after)?,
            None => cursor.next()?,
        };
        let (mut count, mut steps) = (0, 0);
        loop {
            if step == Step::Blocked {
                cursor.load().await?;
            }
            if !cursor.valid() || beyond(cursor.key()) {
                return Ok(count);
            }
            count += 1;
            steps += 1;
            if steps == STEPS_AT_ONCE {
                steps = 0;
                self.env.yield_now().await;
            }
            step = cursor.next()?;
        }
    }

    /// Stretches of the range of which tables say how many keys they hold, in order: nothing else
    /// is in them, and each entry is a value of a key of its own.
    async fn counted(&self) -> Result<Vec<Counted>> {
        let (tables, written) = (self.tables(), self.written());
        let mut all: Vec<Counted> = Vec::new();
        for (table, before) in alone(&tables) {
            let description = table.description();
            let (first, last) = (&description.first_key, &description.last_key);
            let says = description.is_one_each()
                && (description.last_sequence <= self.moment.0 || is_enabled(Mutant::CountIgnoresMoment));
            if !says {
                continue;
            }
            let mut add = |from: Bound<Bytes>, to: &Bytes, keys: u64| {
                // After what was counted last, with nothing between.
                let follows = all.last().is_some_and(|known| match &from {
                    Bound::Excluded(from) => known.to == *from,
                    Bound::Included(_) => {
                        Some(&known.to) == before.as_ref()
                            && written.is_nothing(Bound::Excluded(&known.to), first)
                    }
                    Bound::Unbounded => false,
                });
                match all.last_mut() {
                    Some(known) if follows => {
                        known.keys += keys;
                        known.to = to.clone();
                    }
                    _ => all.push(Counted { from, to: to.clone(), keys }),
                }
            };
            if is_within(table, &self.range) && written.is_nothing(Bound::Included(first), last) {
                add(Bound::Included(first.clone()), last, description.entries);
                continue;
            }
            let mut from = Bound::Included(first.clone());
            for piece in table.partitions(Purpose::Scan).await? {
                let lies_within = match &from {
                    Bound::Included(first) => !self.range.is_below(first),
                    Bound::Excluded(key) => match &self.range.lower {
                        Bound::Unbounded => true,
                        Bound::Included(lower) | Bound::Excluded(lower) => **lower <= **key,
                    },
                    Bound::Unbounded => false,
                } && !self.range.is_above(&piece.last);
                let start = from.as_ref().map(|key| &**key);
                if piece.entries > 0 && lies_within && written.is_nothing(start, &piece.last) {
                    add(from, &piece.last, piece.entries);
                }
                from = Bound::Excluded(piece.last);
            }
        }
        Ok(all)
    }

    /// Keys that cut the range into about equal parts, of which there are at most `parts`.
    ///
    /// # Errors
    /// As [`Spread::count`].
    pub(crate) async fn split_points(&self, health: &Health, parts: usize) -> Result<Vec<Bytes>> {
        let pieces = match self.pieces(parts.saturating_mul(PIECES_FOR_PART)).await {
            Ok(pieces) => pieces,
            Err(error) => return Err(health.judge_read(&self.view, error).await),
        };
        let all: u64 = pieces.values().sum();
        let (mut points, mut passed) = (Vec::new(), 0_u64);
        for (last, bytes) in pieces {
            passed += bytes;
            let due = u128::from(all) * (points.len() as u128 + 1);
            let is_due = u128::from(passed) * parts as u128 >= due;
            let is_inside = passed < all && !self.range.is_below(&last) && !self.range.is_above(&last);
            if is_due && is_inside && points.len() + 1 < parts {
                points.push(last);
            }
        }
        Ok(points)
    }

    /// What lies in the range, in at least `wanted` pieces of each source, as far as blocks go: the
    /// bytes of each by its last key.
    async fn pieces(&self, wanted: usize) -> Result<BTreeMap<Bytes, u64>> {
        let tables = self.tables();
        let mut pieces: BTreeMap<Bytes, u64> = BTreeMap::new();
        let mut add = |last: Bytes, bytes: u64| *pieces.entry(last).or_default() += bytes;
        let of_table = wanted.div_ceil(tables.len().max(1));
        for table in &tables {
            if of_table <= 1 && is_within(table, &self.range) {
                add(table.description().last_key.clone(), table.description().length);
                continue;
            }
            for piece in self.pieces_of(table, of_table).await? {
                add(piece.last, piece.bytes);
            }
        }
        // Small ones first: where there come to be twice as many as are wanted, each two are one.
        let (mut found, mut each, mut bytes) = (Vec::new(), MEMORY_PIECE_BYTES, 0);
        let written = self.written();
        let walked = written.walk(&self.env, &self.range, |key, more| {
            bytes += more;
            if bytes < each {
                return;
            }
            found.push((Bytes::copy_from_slice(key), std::mem::take(&mut bytes)));
            if found.len() >= 2 * wanted.max(1) {
                each *= 2;
                let one = |two: &[(Bytes, u64)]| {
                    let last = two.last().map(|(last, _)| last.clone()).unwrap_or_default();
                    (last, two.iter().map(|(_, bytes)| bytes).sum())
                };
                found = found.chunks(2).map(one).collect();
            }
        });
        walked.await;
        found.into_iter().for_each(|(last, bytes)| add(last, bytes));
        Ok(pieces)
    }

    /// Those pieces of a table that meet the range: its partitions, or its blocks where partitions
    /// are fewer than `wanted`.
    async fn pieces_of(&self, table: &TableHandle, wanted: usize) -> Result<Vec<TablePiece>> {
        let partitions = table.partitions(Purpose::Scan).await?;
        let mut before: Option<Bytes> = None;
        let mut within = Vec::new();
        let with_blocks = partitions.len() < wanted;
        for (place, piece) in partitions.into_iter().enumerate() {
            let is_above = before.as_ref().is_some_and(|before| self.range.is_above(before));
            if is_above {
                break;
            }
            before = Some(piece.last.clone());
            if self.range.is_below(&piece.last) {
                continue;
            }
            if with_blocks {
                within.extend(table.blocks_of(Purpose::Scan, place).await?);
            } else {
                within.push(piece);
            }
        }
        within.retain(|piece| !self.range.is_below(&piece.last));
        Ok(within)
    }

    /// Different entries at random, by ascending key: `wanted`, or fewer where there are no more.
    ///
    /// # Errors
    /// As [`Spread::count`].
    pub(crate) async fn sample(&self, health: &Health, wanted: usize) -> Result<Vec<(Value, Value)>> {
        let (lower, upper) = (self.range.lower.as_ref(), self.range.upper.as_ref());
        let (lower, upper) = (lower.map(Vec::as_slice), upper.map(Vec::as_slice));
        let size = range_size(health, &self.view, self.keyspace.id, lower, upper).await?;
        match self.sampled(size.table_entries + size.memory_entries, wanted).await {
            Ok(entries) => Ok(entries),
            Err(error) => Err(health.judge_read(&self.view, error).await),
        }
    }

    async fn sampled(&self, entries: u64, wanted: usize) -> Result<Vec<(Value, Value)>> {
        if wanted == 0 {
            return Ok(Vec::new());
        }
        if entries <= WALKED_ENTRIES.max(WALKED_FOR_ONE.saturating_mul(wanted as u64)) {
            return self.sample_of_walk(wanted).await;
        }
        self.sample_of_blocks(&self.tables(), wanted).await
    }

    /// Each key is as likely as any other.
    async fn sample_of_walk(&self, wanted: usize) -> Result<Vec<(Value, Value)>> {
        let mut cursor = self.cursor();
        let (mut kept, mut seen) = (Vec::new(), 0_u64);
        let mut step = cursor.next()?;
        loop {
            if step == Step::Blocked {
                cursor.load().await?;
            }
            if !cursor.valid() {
                break;
            }
            seen += 1;
            let place = if kept.len() < wanted { kept.len() as u64 } else { self.below(seen) };
            if let Ok(place) = usize::try_from(place)
                && place < wanted
            {
                let entry = self.entry(&cursor);
                if place == kept.len() { kept.push(entry) } else { kept[place] = entry }
            }
            if seen.is_multiple_of(u64::from(STEPS_AT_ONCE)) {
                self.env.yield_now().await;
            }
            step = cursor.next()?;
        }
        kept.sort_by(|(left, _), (right, _)| left[..].cmp(&right[..]));
        Ok(kept)
    }

    /// From blocks that are drawn by what they hold, an entry of each. Of tables that lie in the
    /// range only those are opened that are drawn.
    async fn sample_of_blocks(
        &self,
        tables: &[Arc<TableHandle>],
        wanted: usize,
    ) -> Result<Vec<(Value, Value)>> {
        let mut places: Vec<(u64, Place<'_>)> = Vec::new();
        let mut weight = 0;
        for table in tables {
            let mut partitions = Vec::new();
            let entries = if is_within(table, &self.range) {
                table.description().entries
            } else {
                partitions = self.partitions_within(table).await?;
                partitions.last().map_or(0, |last| last.until)
            };
            weight += entries;
            places.push((weight, Place::Table(table, partitions)));
        }
        let mut inside: Vec<Bytes> = Vec::new();
        let mut number = 0_u64;
        let written = self.written();
        let walked = written.walk(&self.env, &self.range, |key, _| {
            if number.is_multiple_of(BLOCK_STEPS_MAX) {
                inside.push(Bytes::copy_from_slice(key));
            }
            number += 1;
        });
        walked.await;
        for key in inside {
            weight += BLOCK_STEPS_MAX.min(number);
            places.push((weight, Place::Memory(key)));
        }
        let mut cursor = self.cursor();
        let mut found = BTreeMap::new();
        for _ in 0..wanted.saturating_mul(DRAWS_FOR_ONE) {
            let drawn = self.below(weight);
            let at = places.partition_point(|(until, _)| *until <= drawn);
            let Some((_, place)) = places.get_mut(at) else { break };
            let Some((begins, entries)) = self.block(place).await? else { continue };
            let mut step = match begins {
                Begins::After(key) => cursor.seek_after(&key)?,
                Begins::At(key) => cursor.seek(&key)?,
            };
            let mut left = self.below(entries.clamp(1, BLOCK_STEPS_MAX));
            loop {
                if step == Step::Blocked {
                    cursor.load().await?;
                }
                if !cursor.valid() || left == 0 {
                    break;
                }
                left -= 1;
                step = cursor.next()?;
            }
            if cursor.valid() {
                found.insert(cursor.key().to_vec(), self.entry(&cursor));
            }
            if found.len() == wanted {
                break;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Draws a block of a place: where it begins, and about how many entries it has.
    async fn block(&self, place: &mut Place<'_>) -> Result<Option<(Begins, u64)>> {
        let (table, partitions) = match place {
            Place::Memory(key) => return Ok(Some((Begins::At(key.clone()), BLOCK_STEPS_MAX))),
            Place::Table(table, partitions) => (table, partitions),
        };
        if partitions.is_empty() {
            *partitions = self.partitions_within(table).await?;
        }
        let drawn = self.below(partitions.last().map_or(0, |last| last.until));
        let at = partitions.partition_point(|partition| partition.until <= drawn);
        let Some(partition) = partitions.get(at) else { return Ok(None) };
        let (mut blocks, entries) = self.blocks_within(table, partition.place, &partition.begins).await?;
        let block = usize::try_from(self.below(blocks.len() as u64)).unwrap_or(0);
        Ok((block < blocks.len()).then(|| (blocks.swap_remove(block), entries)))
    }

    /// The partitions of a table that meet the range, weighed by the entries of their blocks that
    /// do.
    async fn partitions_within(&self, table: &TableHandle) -> Result<Vec<Partition>> {
        let partitions = table.partitions(Purpose::Scan).await?;
        let count = partitions.len().max(1) as u64;
        let mut begins = Begins::At(table.description().first_key.clone());
        let (mut within, mut until) = (Vec::new(), 0);
        for (place, piece) in partitions.into_iter().enumerate() {
            if self.range.is_above(begins.key()) {
                break;
            }
            if !self.range.is_below(&piece.last) {
                let is_cut = self.range.is_below(begins.key()) || self.range.is_above(&piece.last);
                until += match piece.entries {
                    _ if is_cut => {
                        let (blocks, entries) = self.blocks_within(table, place, &begins).await?;
                        entries * blocks.len() as u64
                    }
                    // A table that says no counts.
                    0 => (table.description().entries / count).max(1),
                    entries => entries,
                };
                within.push(Partition { until, place, begins });
            }
            begins = Begins::After(piece.last);
        }
        Ok(within)
    }

    /// Where the blocks of a partition begin that meet the range, and about how many entries each
    /// has.
    async fn blocks_within(
        &self,
        table: &TableHandle,
        place: usize,
        partition_begins: &Begins,
    ) -> Result<(Vec<Begins>, u64)> {
        let blocks = table.blocks_of(Purpose::Scan, place).await?;
        let entries = match blocks.first().map_or(0, |block| block.entries) {
            // One that says no counts: as the table has on average.
            0 => {
                let description = table.description();
                let each = description.length / description.entries.max(1);
                blocks.first().map_or(1, |block| block.bytes / each.max(1))
            }
            entries => entries,
        };
        let mut begins = partition_begins.clone();
        let mut within = Vec::new();
        for block in blocks {
            let is_met = !self.range.is_above(begins.key()) && !self.range.is_below(&block.last);
            let begun = std::mem::replace(&mut begins, Begins::After(block.last));
            within.extend(is_met.then_some(begun));
        }
        Ok((within, entries.max(1)))
    }

    fn entry(&self, cursor: &RangeCursor) -> (Value, Value) {
        let value = crate::value::aligned(cursor.value_bytes(), self.keyspace.value_alignment());
        (Value::from(Bytes::copy_from_slice(cursor.key())), value)
    }

    /// A random number below `bound`; 0 for none.
    fn below(&self, bound: u64) -> u64 {
        let drawn = u128::from(self.env.random_u64()) * u128::from(bound);
        u64::try_from(drawn >> 64).unwrap_or(0)
    }
}

/// Where a block or a partition begins.
#[derive(Clone, Debug)]
enum Begins {
    At(Bytes),
    After(Bytes),
}

impl Begins {
    fn key(&self) -> &[u8] {
        match self {
            Begins::At(key) | Begins::After(key) => key,
        }
    }
}

/// A partition of a table.
#[derive(Debug)]
struct Partition {
    /// The weights of those before it, and its own.
    until: u64,
    place: usize,
    begins: Begins,
}

/// Where an entry is drawn from.
enum Place<'a> {
    /// A table, and its partitions that meet the range, once they are known.
    Table(&'a Arc<TableHandle>, Vec<Partition>),
    /// A few hundred entries of a memtable, from this key on.
    Memory(Bytes),
}
