//! Walking a table in both directions, block by block.
//!
//! A move is synchronous while blocks are in memory. When one is not, the move answers
//! [`Step::Blocked`] and stays pending: [`TableIterator::load`] fetches what it needs and completes
//! it. A merge of several iterators can so load them side by side.
//!
//! Position: `top index → partition → block`, each with a cursor. A pending move is a stage (which
//! of the three comes next) and how to enter it; whatever interrupts it, nothing is lost, and
//! loading goes on from there.
//!
//! Read-ahead (see [`super::ahead`]): the third block in a row, forward or backward, asks for more
//! than itself; a seek begins anew, and brings a few blocks at a store where requests take long.
//! Read-ahead ends at the walk's bounds and at blocks that are in the cache, or, at such a store,
//! at more of them than are cheaper not to read. It stays with the iterator; reached, a block goes
//! to the cache only where nothing else has to leave for it: a scan does not drive out blocks that
//! are read again and again.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env, TaskClass};
use tombolo_format::block::{Block, Cursor, Place};
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_format::stored::BlockHandle;
use tombolo_format::table::{Top, raw_bytes_within};
use tombolo_storage::{ObjectName, Purpose, Request, Result};

use super::Table;
use super::ahead::{AtEnd, KeyRange, Pace, Reach, ReadAhead};
use crate::cache::{Kept, Pinned, Resident};
use crate::deadline;

/// Partitions that are asked for at once, at most.
const PARTITIONS_AT_ONCE_MAX: usize = 32;

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a blocked move is completed by load()"]
pub enum Step {
    /// It is complete: look at `valid`.
    Done,
    /// Something that it needs is not in memory: `load` completes it.
    Blocked,
}

/// How to enter a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    First,
    Last,
    /// At or after `target`.
    Seek,
    /// Before `target`.
    SeekBefore,
}

impl Entry {
    fn is_backward(self) -> bool {
        matches!(self, Entry::Last | Entry::SeekBefore)
    }
}

/// What comes next in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Top(Entry),
    Partition(Entry),
    Block(Entry),
}

/// What a pending move waits for.
#[derive(Clone, Copy, Debug)]
enum Need {
    Top,
    Partition(PartitionHandle),
    Block(BlockHandle),
}

/// A position in a table. See the module's documentation.
#[derive(Debug)]
pub struct TableIterator {
    table: Arc<Table>,
    walk: Walk,
}

/// Where an iterator is, apart from its table: moves borrow that one. If each counted itself among
/// those who hold it, threads that walk through one table would wait for each other.
#[derive(Debug)]
struct Walk {
    request: Request,
    fill_cache: bool,
    stage: Stage,
    need: Option<Need>,
    /// Of a pending or finished seek.
    target_key: Vec<u8>,
    target_trailer: Trailer,
    top: Place,
    partition: Option<Kept>,
    partition_at: u64,
    blocks: Place,
    block: Option<Kept>,
    block_at: u64,
    /// Of a compaction with a flash cache: a cache had the block before it was read here.
    block_is_hot: bool,
    entries: Cursor,
    /// What `load` fetched last, for the stage that waits for it; at most one, so that a cache too
    /// small for it does not matter.
    loaded: Option<(u64, Kept)>,
    ahead: ReadAhead,
    /// Bytes of the blocks that were entered since the last seek; `None` when the walk began
    /// otherwise.
    walked: Option<u64>,
    /// How far it is expected to go, when what the seek read reaches so far.
    usual: u64,
    /// Whether a block had to be fetched since then.
    missed: bool,
    /// The pace at which the next seek begins.
    pace: Pace,
    /// Where the next piece is read while this one is walked through; without it, pieces are read
    /// one after the other.
    env: Option<Env>,
    /// The keys that the walk is about.
    range: Option<Arc<KeyRange>>,
    at_end: Option<AtEnd>,
}

impl TableIterator {
    pub(super) fn new(table: Arc<Table>, request: Request, fill_cache: bool) -> TableIterator {
        let pace = if request.purpose == Purpose::Compaction { Pace::whole() } else { Pace::default() };
        let walk = Walk {
            request,
            fill_cache,
            stage: Stage::Idle,
            need: None,
            target_key: Vec::new(),
            target_trailer: Trailer::LAST,
            top: Place::new(),
            partition: None,
            partition_at: 0,
            blocks: Place::new(),
            block: None,
            block_at: 0,
            block_is_hot: false,
            entries: Cursor::new(),
            loaded: None,
            ahead: ReadAhead::default(),
            walked: None,
            usual: 0,
            missed: false,
            pace,
            env: None,
            range: None,
            at_end: None,
        };
        TableIterator { table, walk }
    }

    /// Reads the next piece in the background, in `env`, while one is walked through.
    #[must_use]
    pub fn in_background(mut self, env: &Env) -> TableIterator {
        self.walk.env = Some(env.clone());
        self
    }

    /// Reads nothing ahead that lies beyond `range`.
    #[must_use]
    pub fn within(mut self, range: Option<Arc<KeyRange>>) -> TableIterator {
        self.walk.range = range;
        self
    }

    /// How far the walk has come.
    pub fn pace(&self) -> Pace {
        self.walk.ahead.pace
    }

    /// Goes on at the pace of a walk through the table before, or behind.
    pub fn take_pace(&mut self, pace: Pace) {
        self.walk.pace = pace;
    }

    /// Does this when it has asked for the last bytes of the table.
    pub fn at_end(&mut self, then: AtEnd) {
        self.walk.at_end = Some(then);
    }

    /// Whether the block at which it stands is charged: by itself, or with the piece that it is a
    /// part of.
    #[cfg(test)]
    pub(super) fn block_is_charged(&self) -> bool {
        let part = self.walk.block.as_ref().filter(|block| block.is_part());
        part.and_then(Kept::block).is_none_or(|block| self.walk.ahead.holds(block.bytes()))
    }

    /// Whether a cache had the block of the entry at which it stands. Known in compactions of
    /// databases with a flash cache, else `false`.
    #[inline]
    pub fn block_is_hot(&self) -> bool {
        self.walk.block_is_hot
    }

    /// Whether the last move is pending.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.walk.need.is_some()
    }

    fn begin(&mut self, entry: Entry) -> Result<Step> {
        self.walk.set_out(&self.table, entry);
        self.walk.run(&self.table)
    }
}

impl Walk {
    fn set_out(&mut self, table: &Table, entry: Entry) {
        self.entries.clear();
        self.learn(table);
        self.walked = matches!(entry, Entry::Seek | Entry::SeekBefore).then_some(0);
        self.usual = 0;
        // The piece goes, and what it is charged with; a walk that begins where this one stands
        // needs the block.
        if self.block.as_ref().is_some_and(Kept::is_part) {
            self.block = self.block.take().and_then(|block| block.apart());
        }
        self.ahead.begin_at(self.pace);
        if self.request.purpose != Purpose::Compaction {
            self.pace = Pace::default();
        }
        self.need = None;
        self.stage = Stage::Top(entry);
    }

    /// Remembers how far the walk went that ends here.
    fn learn(&mut self, table: &Table) {
        // Those in memory alone tell nothing, and share nothing with other threads.
        let missed = std::mem::take(&mut self.missed) && self.request.purpose != Purpose::Compaction;
        if let Some(walked) = self.walked.take().filter(|walked| missed && *walked > 0) {
            table.habit.saw(walked);
        }
    }

    /// Goes on with the move until it is done or needs something.
    fn run(&mut self, table: &Arc<Table>) -> Result<Step> {
        self.need = None;
        let run = self.run_stages(table, false);
        self.stop_after(run)
    }

    /// After an error it is nowhere.
    fn stop_after<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stage = Stage::Idle;
            self.entries.clear();
        }
        result
    }

    /// Goes on until the move is done or needs something; with `only_near` until the first block is
    /// there, which is not searched yet.
    fn run_stages(&mut self, table: &Arc<Table>, only_near: bool) -> Result<Step> {
        loop {
            match self.stage {
                Stage::Idle => return Ok(Step::Done),
                Stage::Top(entry) => {
                    let Some(opened) = table.opened.get() else { return Ok(self.wait(Need::Top)) };
                    let at = opened.top.footer.top_index.offset;
                    enter_index(
                        &mut self.top,
                        &opened.top.index,
                        entry,
                        &self.target_key,
                        self.target_trailer,
                    )
                    .map_err(|error| table.damaged(error.shifted(at)))?;
                    self.stage = if self.top.valid() { Stage::Partition(entry) } else { Stage::Idle };
                }
                Stage::Partition(entry) => {
                    let Some(opened) = table.opened.get() else { return Ok(self.wait(Need::Top)) };
                    if !self.enter_partition(table, &opened.top, entry)? {
                        return Ok(Step::Blocked);
                    }
                }
                Stage::Block(entry) => {
                    let Some(opened) = table.opened.get() else { return Ok(self.wait(Need::Top)) };
                    if !self.bring_block(table, &opened.top)? {
                        return Ok(Step::Blocked);
                    }
                    if only_near {
                        self.block.as_ref().and_then(Kept::block).inspect(|block| block.prefetch_rows());
                        return Ok(Step::Done);
                    }
                    self.enter_block(table, &opened.top, entry)?;
                }
            }
        }
    }

    fn wait(&mut self, need: Need) -> Step {
        self.need = Some(need);
        Step::Blocked
    }

    /// Enters the partition at the top cursor; `false` when it is not in memory.
    fn enter_partition(&mut self, table: &Table, top: &Top, entry: Entry) -> Result<bool> {
        let at = top.footer.top_index.offset;
        let handle = PartitionHandle::decode(self.top.value(&top.index), at)
            .map_err(|error| table.damaged(error.shifted(at)))?;
        if self.partition.is_none() || self.partition_at != handle.offset {
            let Some(kept) = self.resident(table, handle.offset) else {
                self.need = Some(Need::Partition(handle));
                return Ok(false);
            };
            (self.partition, self.partition_at) = (Some(kept), handle.offset);
        }
        let partition = self
            .partition
            .as_ref()
            .and_then(Kept::partition)
            .ok_or_else(|| table.not_a("partition", handle.offset))?;
        enter_index(&mut self.blocks, &partition.index, entry, &self.target_key, self.target_trailer)
            .map_err(|error| table.damaged(error.shifted(handle.index().offset)))?;
        self.stage = match (self.blocks.valid(), entry.is_backward()) {
            (true, _) => Stage::Block(entry),
            (false, backward) => self.neighbour(table, top, backward)?,
        };
        Ok(true)
    }

    /// Takes hold of the block at the partition's cursor; `false` when it is not in memory.
    fn bring_block(&mut self, table: &Arc<Table>, top: &Top) -> Result<bool> {
        let partition = self
            .partition
            .as_ref()
            .and_then(Kept::partition)
            .ok_or_else(|| table.not_a("partition", self.partition_at))?;
        let handle = decode_block_handle(self.blocks.value(&partition.index), top.footer.data_end)
            .map_err(|error| table.damaged(error.shifted(self.partition_at)))?;
        if self.block.is_none() || self.block_at != handle.offset {
            self.block_is_hot = self.request.purpose == Purpose::Compaction && table.is_cached(handle.offset);
            let kept = match self.resident(table, handle.offset) {
                Some(kept) => Some(kept),
                None => self.read_ahead_block(table, handle),
            };
            let Some(kept) = kept else {
                self.need = Some(Need::Block(handle));
                return Ok(false);
            };
            (self.block, self.block_at) = (Some(kept), handle.offset);
            if let Some(walked) = &mut self.walked {
                *walked += u64::from(handle.length);
            }
        }
        Ok(true)
    }

    /// Enters the block that was brought.
    fn enter_block(&mut self, table: &Table, top: &Top, entry: Entry) -> Result<()> {
        let block = self
            .block
            .as_ref()
            .and_then(Kept::block)
            .ok_or_else(|| table.not_a("data block", self.block_at))?;
        enter(&mut self.entries, block, entry, &self.target_key, self.target_trailer)
            .map_err(|error| table.damaged(error.shifted(self.block_at)))?;
        self.stage = if self.entries.valid() {
            Stage::Idle
        } else {
            self.neighbour_block(table, top, entry.is_backward())?
        };
        Ok(())
    }

    /// The stage that enters the next block, or the one before.
    fn neighbour_block(&mut self, table: &Table, top: &Top, backward: bool) -> Result<Stage> {
        let partition = self
            .partition
            .as_ref()
            .and_then(Kept::partition)
            .ok_or_else(|| table.not_a("partition", self.partition_at))?;
        let moved =
            if backward { self.blocks.prev(&partition.index) } else { self.blocks.next(&partition.index) };
        moved.map_err(|error| table.damaged(error.shifted(self.partition_at)))?;
        if !self.blocks.valid() {
            return self.neighbour(table, top, backward);
        }
        self.ahead.pace.step(backward);
        Ok(Stage::Block(if backward { Entry::Last } else { Entry::First }))
    }

    /// The stage that enters the next partition, or the one before; `Idle` at the table's end.
    fn neighbour(&mut self, table: &Table, top: &Top, backward: bool) -> Result<Stage> {
        let moved = if backward { self.top.prev(&top.index) } else { self.top.next(&top.index) };
        moved.map_err(|error| table.damaged(error.shifted(top.footer.top_index.offset)))?;
        Ok(match (self.top.valid(), backward) {
            (false, _) => Stage::Idle,
            (true, true) => Stage::Partition(Entry::Last),
            (true, false) => Stage::Partition(Entry::First),
        })
    }

    /// What was just loaded, or is in the cache.
    fn resident(&mut self, table: &Table, offset: u64) -> Option<Kept> {
        if let Some((at, kept)) = self.loaded.take()
            && at == offset
        {
            return Some(kept);
        }
        table.cache.get(&table.key(offset)).map(Pinned::keep)
    }

    /// A block from what was read ahead and has come.
    fn read_ahead_block(&mut self, table: &Arc<Table>, handle: BlockHandle) -> Option<Kept> {
        if self.ahead.has_left(handle) {
            self.leave_pieces();
        }
        let (piece, start) = self.ahead.take(handle)?;
        let kept = self.take_from(table, handle, &piece, start);
        if kept.is_err() {
            // It is read again, and that read says why.
            self.leave_pieces();
        }
        self.read_on(table);
        kept.ok()
    }

    /// Lets go of what was read ahead, and of the block that lies in it: the walk goes on to
    /// another.
    fn leave_pieces(&mut self) {
        if self.block.as_ref().is_some_and(Kept::is_part) {
            self.block = None;
        }
        self.ahead.clear();
    }

    /// A block out of a larger piece of the table, or out of bytes that are just the block.
    fn take_from(&self, table: &Table, handle: BlockHandle, piece: &Bytes, start: u64) -> Result<Kept> {
        let has_room = |bytes| table.cache.has_room(bytes, table.value_alignment());
        if self.fill_cache && raw_bytes_within(piece, start, handle).is_some_and(has_room) {
            return Ok(table.take_block_in(piece, start, handle)?.keep());
        }
        let block = table.decode_block(piece, start, handle, table.dictionary())?;
        // Uncompressed blocks are slices of the piece, which is charged itself; what was put
        // together of two is not.
        let is_part = piece.len() as u64 > u64::from(handle.length)
            && piece.as_ptr_range().contains(&block.bytes().as_ptr());
        let make = if is_part { Pinned::part } else { Pinned::own };
        Ok(make(table.key(handle.offset), Resident::Block(block), table.cache.budget()).keep())
    }

    /// Begins to read the next piece, unless it is coming already.
    fn read_on(&mut self, table: &Arc<Table>) {
        let Some(env) = self.env.as_ref().filter(|_| self.ahead.pace.is_sequential()) else { return };
        if self.walked.is_some_and(|walked| walked <= self.usual) {
            return;
        }
        let reach = self.reach(table);
        while let Some(edge) = self.ahead.edge(reach) {
            let range = self.piece_from(table, edge, self.ahead.pace.wanted(reach), reach.seek_bytes);
            if !self.ahead.start(env, table, self.request, range) {
                break;
            }
        }
        self.bring_partitions(table, self.partitions_of(table, reach));
        if reach.is_far()
            && table
                .opened
                .get()
                .is_some_and(|opened| self.ahead.is_at_end(opened.top.footer.data_end, reach))
            && let Some(AtEnd(then)) = self.at_end.take()
        {
            then(self.ahead.pace);
        }
    }

    fn reach(&self, table: &Table) -> Reach {
        let reach = Reach::of(table.store.performance(), table.cache.budget().bytes());
        // It has many inputs, and nobody waits for it.
        if self.request.purpose == Purpose::Compaction { reach.with_few_coming() } else { reach }
    }

    /// How many partitions hold what may be on its way, twice.
    fn partitions_of(&self, table: &Table, reach: Reach) -> usize {
        let Some(opened) = table.opened.get().filter(|_| reach.is_far()) else { return 0 };
        let each = (opened.top.footer.data_end / opened.top.partitions.len().max(1) as u64).max(1);
        usize::try_from(2 * reach.coming_bytes_max() / each)
            .unwrap_or(usize::MAX)
            .clamp(1, PARTITIONS_AT_ONCE_MAX)
    }

    /// Has the next `count` partitions brought into the cache, in the direction of the walk, with
    /// one request; once for each partition that is walked through. A piece is of little use
    /// without the index that says where its blocks begin.
    fn bring_partitions(&mut self, table: &Arc<Table>, count: usize) {
        if count == 0 || self.ahead.is_brought_from(self.partition_at) {
            return;
        }
        let (Some(env), Some(opened)) = (&self.env, table.opened.get()) else { return };
        let Ok(mut top) = self.top.to_cursor(&opened.top.index) else { return };
        let mut missing = Vec::new();
        for number in 0..count {
            let moved = if self.ahead.pace.backward {
                top.prev(&opened.top.index)
            } else {
                top.next(&opened.top.index)
            };
            if moved.is_err() || !top.valid() {
                break;
            }
            // Damage is told when the walk gets there.
            let at = opened.top.footer.top_index.offset;
            let Ok(handle) = PartitionHandle::decode(top.value(&opened.top.index), at) else { break };
            if !table.cache.has(&table.key(handle.offset)) {
                missing.push(handle);
            } else if missing.is_empty() && number > count / 2 {
                // Enough for now.
                break;
            }
        }
        let task = (!missing.is_empty()).then(|| {
            missing.sort_unstable_by_key(|handle| handle.offset);
            let (table, request) = (Arc::clone(table), self.request);
            // The walk that needs what failed asks for it again, and is told then.
            env.spawn(TaskClass::Foreground, "read an index ahead", async move {
                drop(table.bring_partitions(request, missing).await);
            })
        });
        self.ahead.brought_from(self.partition_at, task);
    }

    /// What to read ahead from `edge` on, in the walk's direction: about `wanted` bytes, up to more
    /// than `along` bytes of blocks that are in the cache, and not beyond the walk's range. Empty
    /// when there is nothing to read.
    fn piece_from(&self, table: &Table, edge: u64, wanted: u64, along: u64) -> Range<u64> {
        let data_end = table.opened.get().map_or(edge, |opened| opened.top.footer.data_end);
        let Some(partition) = self.partition.as_ref().and_then(Kept::partition) else { return edge..edge };
        let Ok(mut blocks) = self.blocks.to_cursor(&partition.index) else { return edge..edge };
        let backward = self.ahead.pace.backward;
        let limit =
            if backward { edge.saturating_sub(wanted) } else { edge.saturating_add(wanted).min(data_end) };
        let mut reached = edge;
        // Where the blocks begin that are in the cache, when the last ones are: the piece is not to
        // end with them.
        let mut cached_from: Option<u64> = None;
        let piece = |reached: u64| if backward { reached..edge } else { edge..reached };
        let mut here = true;
        while blocks.valid() {
            // Damage is told when the walk gets there.
            let until = cached_from.unwrap_or(reached);
            let Ok(handle) = decode_block_handle(blocks.value(&partition.index), data_end) else {
                return piece(until);
            };
            let begins_beyond = if backward { handle.end() <= edge } else { handle.offset >= edge };
            cached_from =
                (begins_beyond && !here && table.cache.has(&table.key(handle.offset))).then_some(until);
            if cached_from.is_some()
                && (if backward {
                    until - handle.offset.min(until)
                } else {
                    handle.end() - until.min(handle.end())
                }) > along
            {
                return piece(until);
            }
            here = false;
            reached = if backward { reached.min(handle.offset) } else { reached.max(handle.end()) };
            let limit_reached = if backward { reached <= limit } else { reached >= limit };
            let separator_is_beyond = |blocks: &Cursor| {
                let key = blocks.key().user_key;
                self.range
                    .as_ref()
                    .is_some_and(|range| if backward { range.is_below(key) } else { range.is_above(key) })
            };
            if limit_reached || !backward && separator_is_beyond(&blocks) {
                return piece(cached_from.unwrap_or(reached));
            }
            let moved = if backward { blocks.prev(&partition.index) } else { blocks.next(&partition.index) };
            if moved.is_err() || backward && blocks.valid() && separator_is_beyond(&blocks) {
                return piece(cached_from.unwrap_or(reached));
            }
        }
        if let Some(from) = cached_from {
            return piece(from);
        }
        // Data goes on behind the partition that is known.
        piece(if backward { reached.min(limit) } else { reached.max(limit) })
    }

    /// Whether a piece reaches into the partition behind this one.
    fn goes_beyond(&self, table: &Table, range: &Range<u64>) -> bool {
        let Some(partition) = self.partition.as_ref().and_then(Kept::partition) else { return false };
        let mut last = Place::new();
        let backward = self.ahead.pace.backward;
        let moved = if backward { last.first(&partition.index) } else { last.last(&partition.index) };
        let data_end = table.opened.get().map_or(u64::MAX, |opened| opened.top.footer.data_end);
        let handle = moved
            .ok()
            .filter(|()| last.valid())
            .and_then(|()| decode_block_handle(last.value(&partition.index), data_end).ok());
        handle.is_some_and(
            |handle| if backward { range.start < handle.offset } else { range.end > handle.end() },
        )
    }

    /// Fetches what the pending move needs next.
    async fn fetch(&mut self, table: &Arc<Table>, need: Need) -> Result<()> {
        let request = self.request.until(deadline::current());
        match need {
            Need::Top => {
                table.open(request).await?;
            }
            Need::Partition(handle) => {
                let kept = table.load_partition(request, handle).await?.keep();
                self.loaded = Some((handle.offset, kept));
            }
            Need::Block(handle) => {
                let kept = self.fetch_block(table, request, handle).await?;
                self.loaded = Some((handle.offset, kept));
            }
        }
        Ok(())
    }

    async fn fetch_block(
        &mut self,
        table: &Arc<Table>,
        request: Request,
        handle: BlockHandle,
    ) -> Result<Kept> {
        self.missed = true;
        if self.ahead.awaits(handle) {
            deadline::waits_for(format_args!("what is read ahead of {}", table.object()));
            let reach = self.reach(table);
            let come = self.ahead.wait(handle, reach).await;
            if let Some(kept) =
                come.and_then(|(piece, start)| self.take_from(table, handle, &piece, start).ok())
            {
                self.read_on(table);
                return Ok(kept);
            }
        }
        self.leave_pieces();
        let edge = if self.ahead.pace.backward { handle.end() } else { handle.offset };
        let (sequential, reach) = (self.ahead.pace.is_sequential(), self.reach(table));
        let usual = table.habit.bytes();
        let wanted = if sequential { self.ahead.pace.wanted(reach) } else { reach.seek(usual) };
        let wants_more = sequential || self.fill_cache && wanted > u64::from(handle.length);
        let range = wants_more.then(|| self.piece_from(table, edge, wanted, reach.seek_bytes));
        if sequential {
            self.bring_partitions(table, self.partitions_of(table, reach));
        } else if reach.is_far() && range.as_ref().is_some_and(|range| self.goes_beyond(table, range)) {
            self.bring_partitions(table, 1);
        }
        let range = range.filter(|range| range.start <= handle.offset && handle.end() <= range.end);
        let charged = range
            .and_then(|range| ReadAhead::room(table, self.request, &range).map(|charge| (range, charge)));
        let Some((range, charge)) = charged else {
            return Ok(table.load_block(request, handle, self.fill_cache).await?.keep());
        };
        if !sequential {
            // Where requests take long, a seek brings what the walk may come to next. What it looks
            // for is kept like any block that was missed.
            let (kept, piece) = table.load_block_around(request, handle, range.clone()).await?;
            if let Some(piece) = piece {
                self.usual = usual.min(piece.len() as u64);
                self.ahead.install(range.start, piece, charge);
            }
            return Ok(kept);
        }
        let piece = table.read(request, range.clone()).await?;
        // The block itself must be there; the rest is a hope, and a block that is cut off is read
        // again.
        let kept = self.take_from(table, handle, &piece, range.start)?;
        self.ahead.install(range.start, piece, charge);
        self.read_on(table);
        Ok(kept)
    }
}

impl Drop for TableIterator {
    fn drop(&mut self) {
        self.walk.learn(&self.table);
    }
}

/// Where a trailer stands among those of a table, whose entries all have number 0 and stand for
/// `number`.
#[inline]
fn own_trailer(number: Option<SequenceNumber>, trailer: Trailer) -> Trailer {
    match number.map(|number| trailer.sequence().cmp(&number)) {
        None => trailer,
        Some(Ordering::Greater) => Trailer::FIRST,
        Some(Ordering::Equal) => trailer.at(SequenceNumber::ZERO),
        Some(Ordering::Less) => Trailer::LAST,
    }
}

/// Moves a cursor in a block.
fn enter(
    cursor: &mut Cursor,
    block: &Block,
    entry: Entry,
    key: &[u8],
    trailer: Trailer,
) -> tombolo_format::Result<()> {
    let target = InternalKey::new(key, trailer);
    match entry {
        Entry::First => cursor.first(block),
        Entry::Last => cursor.last(block),
        Entry::Seek => cursor.seek(block, target),
        Entry::SeekBefore => cursor.seek_before(block, target),
    }
}

/// Moves to a place in an index. The entry to seek to is the first that may hold the key, in either
/// direction.
fn enter_index(
    place: &mut Place,
    index: &Block,
    entry: Entry,
    key: &[u8],
    trailer: Trailer,
) -> tombolo_format::Result<()> {
    let target = InternalKey::new(key, trailer);
    match entry {
        Entry::First => place.first(index),
        Entry::Last => place.last(index),
        Entry::Seek => place.seek(index, target),
        Entry::SeekBefore => {
            place.seek(index, target)?;
            // All keys lie before the target: the last block holds the last of them.
            if place.valid() { Ok(()) } else { place.last(index) }
        }
    }
}

/// A position in entries ordered by internal key, of which the engine merges several.
///
/// `key` and `value` may be asked only while `valid`, and a move may begin only when none is
/// pending (`next` and `prev` only while `valid`). After an error the position is not valid, until
/// a seek.
impl TableIterator {
    /// Whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.walk.entries.valid() && self.walk.stage == Stage::Idle
    }

    /// The entry's key.
    #[inline]
    pub fn key(&self) -> InternalKey<'_> {
        let key = self.walk.entries.key();
        match self.table.number {
            None => key,
            Some(number) => InternalKey::new(key.user_key, key.trailer.at(number)),
        }
    }

    /// The entry's value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let walk = &self.walk;
        walk.block.as_ref().and_then(Kept::block).map_or(&[], |block| walk.entries.value(block))
    }

    /// The greatest number in the table that it walks.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.table.description().last_sequence
    }

    /// The object of the table that it walks.
    pub fn object(&self) -> &ObjectName {
        self.table.object()
    }

    /// Of the values of its table.
    pub fn value_alignment(&self) -> usize {
        self.table.value_alignment()
    }

    /// The entry's value, sharing memory where that pays.
    pub fn share_value(&self) -> Bytes {
        self.walk.block.as_ref().map_or_else(Bytes::new, |block| block.keep_value(self.value()))
    }

    /// To the first entry.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn first(&mut self) -> Result<Step> {
        self.begin(Entry::First)
    }

    /// To the last entry.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn last(&mut self) -> Result<Step> {
        self.begin(Entry::Last)
    }

    /// To the first entry at or after `target`.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn seek(&mut self, target: InternalKey<'_>) -> Result<Step> {
        self.approach(target, false)?;
        self.arrive()
    }

    /// The first half of [`TableIterator::seek`], or of [`TableIterator::seek_before`] when it goes
    /// backward; [`TableIterator::arrive`] is the second. Between them other tables may do their
    /// first halves: what each then reads first comes from memory at the same time.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn approach(&mut self, target: InternalKey<'_>, backward: bool) -> Result<()> {
        let walk = &mut self.walk;
        walk.target_key.clear();
        walk.target_key.extend_from_slice(target.user_key);
        walk.target_trailer = own_trailer(self.table.number, target.trailer);
        walk.set_out(&self.table, if backward { Entry::SeekBefore } else { Entry::Seek });
        let approached = walk.run_stages(&self.table, true).map(|_| ());
        walk.stop_after(approached)
    }

    /// The second half of a seek.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn arrive(&mut self) -> Result<Step> {
        if self.is_blocked() { Ok(Step::Blocked) } else { self.walk.run(&self.table) }
    }

    /// To the last entry before `target`.
    ///
    /// # Errors
    /// `Corrupt`.
    #[cfg(test)]
    pub fn seek_before(&mut self, target: InternalKey<'_>) -> Result<Step> {
        self.approach(target, true)?;
        self.arrive()
    }

    /// To the next entry.
    ///
    /// # Errors
    /// `Corrupt`.
    #[allow(clippy::should_implement_trait, reason = "it lends its entries, which an iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Result<Step> {
        debug_assert!(self.valid(), "next() at no entry");
        let walk = &mut self.walk;
        if let Some(block) = walk.block.as_ref().and_then(Kept::block) {
            walk.entries.next(block).map_err(|error| self.table.damaged(error.shifted(walk.block_at)))?;
            if walk.entries.valid() {
                return Ok(Step::Done);
            }
        }
        walk.leave_block(&self.table, false)
    }

    /// To the next entry if it lies in the same block, has another user key, and `wanted` says yes
    /// to its trailer; else it stays where it is, and says `false`. What a walk does most of the
    /// time, for less than [`TableIterator::next`] costs.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub fn next_key_if(&mut self, wanted: impl FnOnce(Trailer) -> bool) -> Result<bool> {
        let walk = &mut self.walk;
        let Some(block) = walk.block.as_ref().and_then(Kept::block).filter(|_| walk.stage == Stage::Idle)
        else {
            return Ok(false);
        };
        let number = self.table.number;
        let wanted = |trailer: Trailer| wanted(number.map_or(trailer, |number| trailer.at(number)));
        walk.entries
            .next_key_if(block, wanted)
            .map_err(|error| self.table.damaged(error.shifted(walk.block_at)))
    }

    /// To the entry before.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub fn prev(&mut self) -> Result<Step> {
        debug_assert!(self.valid(), "prev() at no entry");
        let walk = &mut self.walk;
        if let Some(block) = walk.block.as_ref().and_then(Kept::block) {
            walk.entries.prev(block).map_err(|error| self.table.damaged(error.shifted(walk.block_at)))?;
            if walk.entries.valid() {
                return Ok(Step::Done);
            }
        }
        walk.leave_block(&self.table, true)
    }

    /// Completes a move that is [`Step::Blocked`], with as many requests as it takes; does nothing
    /// when none is. If the future is dropped, the move stays pending.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns: the move stays pending, and loading may be tried again.
    pub fn load(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            while let Some(need) = self.walk.need {
                self.walk.fetch(&self.table, need).await?;
                let _ = self.walk.run(&self.table)?;
            }
            Ok(())
        })
    }
}

impl Walk {
    fn leave_block(&mut self, table: &Arc<Table>, backward: bool) -> Result<Step> {
        let Some(opened) = table.opened.get() else { return Ok(Step::Done) };
        self.stage = self.neighbour_block(table, &opened.top, backward)?;
        self.run(table)
    }
}
