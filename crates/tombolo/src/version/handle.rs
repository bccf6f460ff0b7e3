//! A table as the engine uses it: opened by its description, read through the block cache, written
//! from a keyspace's options.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tombolo_env::{BoxFuture, Completion, Env, Task, TaskClass, all, completion};
use tombolo_format::compression::Compression as FormatCompression;
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::ranges::RangeLayers;
use tombolo_format::value_object::Reference;
use tombolo_storage::{Epoch, ObjectName, Purpose, Request, Result};

use super::place::Tables;
use super::silence::Silence;
use super::values::{Apart, EntryApart, Separating, referred};
use super::{Handles, ValueHandle};
use crate::budget::{Category, Charge};
use crate::cache::Pinned;
use crate::deadline;
use crate::manifest::names;
use crate::options::{Compression, KeyspaceOptions};
use crate::resolve::apart;
use crate::table::{
    Hit, KeyRange, Lookup, Near, NearProbe, NewTable, Pace, Probe, Step, Table, TableIterator, TableOptions,
    TablePiece, TableWriter as Writer, ValueObject, piece_bytes,
};

/// Value objects that are read at once for one read of several keys.
const OBJECTS_AT_ONCE: usize = 16;

/// A value object, the places of the values wanted of it, and references with their keys.
type Group<'a> = (&'a Arc<ValueObject>, Vec<usize>, Vec<(Reference, &'a [u8])>);

/// A table that a version names.
#[derive(Debug)]
pub(crate) struct TableHandle {
    table: Arc<Table>,
    epoch: Epoch,
    /// Where walks read ahead.
    env: Env,
    handles: Arc<Handles>,
    /// The value objects to which it refers, by identity.
    values: Option<Arc<[Arc<ValueHandle>]>>,
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        self.handles.forget(self.table.description().name);
    }
}

impl TableHandle {
    pub(super) fn new(
        tables: &Tables,
        description: &TableDescription,
        handles: Arc<Handles>,
        values: Option<Arc<[Arc<ValueHandle>]>>,
    ) -> TableHandle {
        let (store, object) = tables.locate(description);
        let table = Table::new(description.clone(), object, store, Arc::clone(&tables.cache));
        let habit = handles.habit(description.keyspace, description.level);
        let table = table.with_flash(tables.flash.cache().cloned()).with_habit(habit);
        TableHandle { table: Arc::new(table), epoch: tables.epoch, env: tables.env.clone(), handles, values }
    }

    /// The value to which an entry of it refers, if it is in memory.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn value_in_memory(&self, user_key: &[u8], reference: &[u8]) -> Result<Option<Bytes>> {
        let (reference, object) = self.referred(reference)?;
        object.try_get(Purpose::Get, &reference, user_key, self.table.value_alignment())
    }

    /// The value to which an entry of it refers: at most one request.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    pub(crate) async fn value(&self, purpose: Purpose, user_key: &[u8], reference: &[u8]) -> Result<Bytes> {
        let (reference, object) = self.referred(reference)?;
        object.get(purpose, &reference, user_key, self.table.value_alignment()).await
    }

    /// The values to which entries of it refer, in their order: those of one object with one
    /// request, objects side by side.
    ///
    /// # Errors
    /// As [`TableHandle::value`].
    pub(crate) async fn values_of(&self, purpose: Purpose, wanted: &[(&[u8], &[u8])]) -> Result<Vec<Bytes>> {
        let mut groups: BTreeMap<u64, Group<'_>> = BTreeMap::new();
        for (at, (user_key, reference)) in wanted.iter().enumerate() {
            let (reference, object) = self.referred(reference)?;
            let (_, places, references) =
                groups.entry(reference.object).or_insert_with(|| (object, Vec::new(), Vec::new()));
            places.push(at);
            references.push((reference, user_key));
        }
        let alignment = self.table.value_alignment();
        let reads = groups.values().map(|(object, _, references)| {
            Box::pin(object.get_several(purpose, references, alignment)) as BoxFuture<'_, Result<Vec<Bytes>>>
        });
        let mut values = vec![Bytes::new(); wanted.len()];
        let read = all(reads.collect(), OBJECTS_AT_ONCE).await;
        for ((_, places, _), read) in groups.values().zip(read) {
            for (at, value) in places.iter().zip(read?) {
                values[*at] = value;
            }
        }
        Ok(values)
    }

    /// What a reference in one of its entries refers to, and the object that has it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn referred(&self, reference: &[u8]) -> Result<(Reference, &Arc<ValueObject>)> {
        referred(self.values(), reference, self.object())
    }

    /// The value objects to which it refers.
    pub(crate) fn values(&self) -> &[Arc<ValueHandle>] {
        self.values.as_deref().unwrap_or_default()
    }

    /// A request, with the deadline of the operation that makes it.
    fn request(&self, purpose: Purpose) -> Request {
        Request::new(purpose, self.epoch).until(deadline::current())
    }

    /// What the manifest said when the table was first seen. A table that was moved since stands at
    /// another level.
    #[inline]
    pub(crate) fn description(&self) -> &TableDescription {
        self.table.description()
    }

    /// The object that holds it.
    pub(crate) fn object(&self) -> &ObjectName {
        self.table.object()
    }

    /// Looks a key up in memory.
    #[inline]
    pub(crate) fn probe(&self, lookup: &Lookup<'_>) -> Result<Probe> {
        self.table.try_get(lookup)
    }

    /// Looks for an older version beside one that was found.
    pub(crate) fn probe_older(&self, hit: Hit, lookup: &Lookup<'_>) -> Result<Option<Probe>> {
        self.table.try_get_older(hit, lookup)
    }

    /// Whether a user key lies between the table's first and last.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.table.covers(key)
    }

    /// Whether it holds range deletes.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.table.description().range_deletes().is_some()
    }

    /// Its range deletes, once it is open: a table without any need not be.
    #[inline]
    pub(crate) fn ranges(&self) -> Option<&RangeLayers> {
        self.table.ranges()
    }

    /// Whether it was not opened yet, and opening it takes a request that is worth making ahead.
    pub(crate) fn is_far_and_closed(&self) -> bool {
        self.table.is_far_and_closed()
    }

    /// Opens it for reads, if it is not: one request.
    pub(crate) fn open(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.table.open(self.request(Purpose::Get)).await.map(drop) })
    }

    /// Looks a key up in memory, after one that was not greater.
    #[inline]
    pub(crate) fn probe_near<R>(
        &self,
        lookup: &Lookup<'_>,
        near: &mut Near,
        answer: impl FnMut(Trailer, &Pinned, &[u8]) -> R,
    ) -> Result<NearProbe<R>> {
        self.table.try_get_near(lookup, near, answer)
    }

    /// Looks several keys up, in ascending order.
    pub(crate) async fn get_several(&self, lookups: &[Lookup<'_>]) -> Result<Vec<Option<crate::table::Hit>>> {
        self.table.get_several(self.request(Purpose::Get), lookups).await
    }

    /// Looks a key up.
    pub(crate) async fn get(&self, lookup: &Lookup<'_>) -> Result<Option<crate::table::Hit>> {
        self.table.get(self.request(Purpose::Get), lookup).await
    }

    /// Looks a key up, and says what it asked.
    pub(crate) async fn explain(&self, lookup: &Lookup<'_>) -> Result<crate::table::Met> {
        self.table.explain(self.request(Purpose::Get), lookup).await
    }

    /// Reads and checks all of it; tells all that is damaged.
    pub(crate) async fn damages(&self) -> Result<Vec<tombolo_storage::Error>> {
        self.table.damages(self.request(Purpose::Verify)).await
    }

    /// Bytes of it that keys within the bounds take, from its index.
    pub(crate) async fn bytes_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        self.table.bytes_within(self.request(Purpose::Get), lower, upper).await
    }

    /// A cursor over all of it, for one who reads it once.
    pub(crate) fn whole_cursor(&self) -> TableIterator {
        self.table.iterator(Request::new(Purpose::Compaction, self.epoch), false)
    }

    /// Keys that cut the table into pieces of about equal size, ascending. One request if the table
    /// was not opened.
    pub(crate) async fn sample_keys(&self, purpose: Purpose) -> Result<Vec<Bytes>> {
        self.table.sample_keys(self.request(purpose)).await
    }

    /// Its partitions. One request if the table was not opened.
    pub(crate) async fn partitions(&self, purpose: Purpose) -> Result<Vec<TablePiece>> {
        self.table.partitions(self.request(purpose)).await
    }

    /// The data blocks of a partition. At most two requests.
    pub(crate) async fn blocks_of(&self, purpose: Purpose, partition: usize) -> Result<Vec<TablePiece>> {
        self.table.blocks_of(self.request(purpose), partition).await
    }

    /// A cursor that stands nowhere, for a walk that is about `range`.
    pub(crate) fn cursor_within(&self, purpose: Purpose, range: Option<Arc<KeyRange>>) -> TableCursor {
        // Blocks that are read once would only drive out those that are read again.
        let fill_cache = purpose == Purpose::Scan;
        let iterator = self.table.iterator(Request::new(purpose, self.epoch), fill_cache);
        let iterator = Box::new(iterator.in_background(&self.env).within(range));
        TableCursor { iterator, values: self.values.clone() }
    }

    /// Whether requests to its store take long.
    pub(crate) fn is_far(&self) -> bool {
        self.table.is_far()
    }

    /// Brings a cursor to the first entry, or to the last one of a walk that goes backward, in the
    /// background: for a walk that will come here at this pace.
    pub(crate) fn prepare(&self, pace: Pace, purpose: Purpose, range: Option<Arc<KeyRange>>) -> Prepared {
        let mut cursor = self.cursor_within(purpose, range);
        cursor.iterator.take_pace(pace);
        let (completer, completion) = completion();
        let class =
            if purpose == Purpose::Compaction { TaskClass::Background } else { TaskClass::Foreground };
        let task = self.env.spawn(class, "read the next table ahead", async move {
            let step = if pace.is_backward() { cursor.last() } else { cursor.first() };
            let came = match step {
                Ok(Step::Done) => Ok(()),
                Ok(Step::Blocked) => cursor.load().await,
                Err(error) => Err(error),
            };
            completer.complete(came.map(|()| cursor));
        });
        Prepared { completion, _task: task }
    }
}

/// A cursor on its way to where a walk will go on. Dropping it gives that up.
#[derive(Debug)]
pub(crate) struct Prepared {
    completion: Completion<Result<TableCursor>>,
    _task: Task,
}

impl Prepared {
    /// The cursor when it has come. `None`: that failed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<TableCursor>> {
        Pin::new(&mut self.completion).poll(context).map(|come| come.and_then(Result::ok))
    }
}

/// Walks a table both ways. A move takes no detour while blocks are in memory.
#[derive(Debug)]
pub(crate) struct TableCursor {
    iterator: Box<TableIterator>,
    values: Option<Arc<[Arc<ValueHandle>]>>,
}

impl TableCursor {
    /// The table's own iterator.
    #[inline]
    pub(crate) fn iterator(&mut self) -> &mut TableIterator {
        &mut self.iterator
    }

    /// Goes on at the pace of a walk through the table before, or behind.
    pub(crate) fn take_pace(&mut self, neighbour: &TableCursor) {
        self.iterator.take_pace(neighbour.iterator.pace());
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        self.iterator.valid().then(|| {
            let key = self.iterator.key();
            (key.user_key, key.trailer)
        })
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.iterator.valid()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.iterator.value()
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        self.iterator.share_value()
    }

    /// What the entry at which it stands refers to.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn referred(&self) -> Result<Apart> {
        let values = self.values.as_deref().unwrap_or_default();
        let stored = self.value();
        let reference = apart(self.iterator.key().trailer, stored).map_or(stored, |(reference, _)| reference);
        let (reference, object) = referred(values, reference, self.object())?;
        let (object, alignment) = (Arc::clone(object), self.iterator.value_alignment());
        let user_key = Bytes::copy_from_slice(self.iterator.key().user_key);
        Ok(Apart { object, reference, user_key, alignment })
    }

    /// The object of its table.
    pub(crate) fn object(&self) -> &ObjectName {
        self.iterator.object()
    }

    /// The greatest number in its table.
    pub(crate) fn last_sequence(&self) -> SequenceNumber {
        self.iterator.last_sequence()
    }

    /// Whether the last move is pending.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.iterator.is_blocked()
    }

    /// Completes a blocked move.
    pub(crate) fn load(&mut self) -> BoxFuture<'_, Result<()>> {
        self.iterator.load()
    }

    /// The first half of a seek: see [`TableIterator::approach`].
    pub(crate) fn approach(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<()> {
        self.iterator.approach(InternalKey::new(key, trailer), backward)
    }

    /// The second half of a seek.
    pub(crate) fn arrive(&mut self) -> Result<Step> {
        self.iterator.arrive()
    }

    pub(crate) fn first(&mut self) -> Result<Step> {
        self.iterator.first()
    }

    pub(crate) fn last(&mut self) -> Result<Step> {
        self.iterator.last()
    }

    /// One on; nowhere stays nowhere.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Step> {
        if self.iterator.valid() { self.iterator.next() } else { Ok(Step::Done) }
    }

    /// One back; nowhere stays nowhere.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<Step> {
        if self.iterator.valid() { self.iterator.prev() } else { Ok(Step::Done) }
    }
}

/// What a new table is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Fresh.
    pub(crate) name: TableName,
    pub(crate) keyspace: u32,
    pub(crate) level: u8,
    /// Nothing lies below its level, and most of the data in it.
    pub(crate) lowest: bool,
    /// When its oldest data was written; `None`: now.
    pub(crate) oldest_unix_seconds: Option<u64>,
    /// Bytes of all tables of the database, which its blocks go by.
    pub(crate) table_bytes: u64,
    pub(crate) purpose: Purpose,
}

/// Bytes of blocks where the memory budget can hold the database. All reads are cheaper: fewer
/// blocks to find and keep.
const BLOCK_BYTES_IN_MEMORY: u32 = 16 << 10;
/// Bytes of blocks beyond: what a miss reads, decompresses and keeps is a block. 16 KiB cost 11 to
/// 18 % of such reads.
pub(crate) const BLOCK_BYTES_BEYOND: u32 = 8 << 10;
/// The budget can hold a database whose tables take at most this part of it: what they hold is
/// about twice as much before compression, and blocks get about three quarters.
const IN_MEMORY_PART: (u64, u64) = (3, 8);

/// Bytes of the blocks of a table that is written to a database with tables of `table_bytes`,
/// unless the keyspace's options say it.
pub(crate) fn block_bytes(table_bytes: u64, budget_bytes: u64) -> u32 {
    let (part, of) = IN_MEMORY_PART;
    if table_bytes.saturating_mul(of) <= budget_bytes.saturating_mul(part) {
        BLOCK_BYTES_IN_MEMORY
    } else {
        BLOCK_BYTES_BEYOND
    }
}

/// Most bytes of a dictionary: one block's.
const DICTIONARY_BYTES: usize = 16 << 10;
/// A dictionary has at most this part of the bytes of a piece.
const DICTIONARY_PART: usize = 16;

/// How a keyspace's tables are built, in pieces of `output_bytes`; `lowest` says that nothing lies
/// below, and `block_bytes` what the options leave open.
pub(crate) fn table_options(
    options: &KeyspaceOptions,
    keyspace: u32,
    lowest: bool,
    oldest_unix_seconds: u64,
    block_bytes: u32,
    output_bytes: usize,
) -> TableOptions {
    let compression = if lowest { options.compression_of_lowest() } else { options.compression };
    let compression = match compression {
        Compression::None => FormatCompression::None,
        Compression::Lz4 => FormatCompression::Lz4,
        Compression::Zstd => FormatCompression::Zstd,
    };
    // The last level is written least often and read longest. In a small memory budget, whose
    // pieces are small, neither the entries that wait nor the dictionary of each open table fit.
    let fits = output_bytes >= DICTIONARY_BYTES * DICTIONARY_PART;
    let dictionary_bytes = if lowest && fits { DICTIONARY_BYTES } else { 0 };
    TableOptions {
        dictionary_bytes,
        block_bytes: options.block_bytes.unwrap_or(block_bytes) as usize,
        compression,
        filter_bits_per_key: u32::from(options.filter_bits),
        value_alignment: u32::from(options.value_alignment),
        output_bytes,
        keyspace,
        oldest_unix_seconds,
        ..TableOptions::default()
    }
}

/// Bytes of values that are handed to the store at once.
const APART_BYTES: u64 = 256 << 10;

/// Writes a table, entries in order.
#[derive(Debug)]
pub(crate) struct TableWriter {
    name: TableName,
    writer: Writer,
    flushed_bytes: u64,
    /// What it takes, as of the last flush.
    memory: Charge,
    env: Env,
    silence: Arc<Silence>,
    apart: Separating,
    tables: Tables,
    /// For the reference of an entry.
    room: EntryApart,
    object: ObjectName,
}

/// A table that is complete, and the value objects that were written with it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) table: TableDescription,
    pub(crate) values: Vec<TableDescription>,
    /// Bytes beside those flushed.
    pub(crate) bytes: u64,
}

impl Written {
    /// All, in the order in which they are to be named.
    pub(crate) fn descriptions(self) -> impl Iterator<Item = TableDescription> {
        self.values.into_iter().chain([self.table])
    }
}

impl TableWriter {
    /// Begins a table under a fresh name. Nothing but the description that [`TableWriter::finish`]
    /// gives names it.
    pub(crate) async fn create(
        tables: &Tables,
        output: Output,
        options: &KeyspaceOptions,
    ) -> Result<TableWriter> {
        let Output { name, keyspace, level, lowest, oldest_unix_seconds, table_bytes, purpose } = output;
        let budget_bytes = tables.cache.budget().bytes();
        let (blocks, bytes) = (block_bytes(table_bytes, budget_bytes), piece_bytes(budget_bytes));
        let oldest = oldest_unix_seconds.unwrap_or_else(|| tables.env.unix_time().as_secs());
        let (separate_bytes, says_ages) = (options.separate_bytes, options.cold_after.is_some());
        let options = table_options(options, keyspace, lowest, oldest, blocks, bytes);
        let apart = Separating::new(tables, (keyspace, purpose), options.compression, oldest, separate_bytes);
        let object = names::table(tables.incarnation, name);
        let identity = tables.env.random_u64();
        let new = NewTable { name, object: object.clone(), identity, level, options };
        let (env, silence) = (tables.env.clone(), Arc::clone(&tables.silence));
        let created = Writer::create(&*tables.objects, tables.request(purpose), new);
        let writer = silence.bounds(&env, 0, created).await?;
        // What a flush writes is in memory still, and nobody has missed it.
        let writer = if purpose == Purpose::Compaction {
            writer.with_flash(tables.flash.cache().cloned())
        } else {
            writer
        };
        let writer = writer.with_collecting(tables.collectors.begin(keyspace, level));
        let writer = writer.with_sum(tables.naming.has_sums()).with_eighths(says_ages);
        let memory = tables.cache.budget().charge(Category::Compactions, writer.memory_bytes());
        let (name, room) = (output.name, [0; size_of::<EntryApart>()]);
        let tables = tables.clone();
        Ok(TableWriter { name, writer, flushed_bytes: 0, memory, env, silence, apart, tables, room, object })
    }

    /// Whether it is written into the cold store.
    pub(crate) fn is_cold(&self) -> bool {
        self.tables.cold.is_some()
    }

    /// Its name.
    pub(crate) fn name(&self) -> TableName {
        self.name
    }

    /// Adds the next entry, in memory; whether [`TableWriter::flush`] should follow.
    #[inline]
    pub(crate) fn add_now(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<bool> {
        let (key, value) = self.apart.place(key, value, &mut self.room, &self.object)?;
        self.writer.add(key, value)?;
        Ok(self.wants_flush())
    }

    #[inline]
    fn wants_flush(&self) -> bool {
        self.writer.wants_flush() || self.apart.pending_bytes() >= APART_BYTES
    }

    /// Whether the table refers to so many value objects that it had better end before the next
    /// key.
    pub(crate) fn is_full(&self) -> bool {
        self.apart.is_full()
    }

    /// The same, of an entry out of a block that a cache had, or not.
    #[inline]
    pub(crate) fn add_from(&mut self, key: InternalKey<'_>, value: &[u8], is_hot: bool) -> Result<bool> {
        let (key, value) = self.apart.place(key, value, &mut self.room, &self.object)?;
        self.writer.add_from(key, value, is_hot)?;
        Ok(self.wants_flush())
    }

    /// Gives the table its range deletes, once.
    pub(crate) fn set_ranges(&mut self, ranges: RangeLayers) -> Result<()> {
        self.memory.grow(ranges.memory_bytes() as u64);
        self.writer.set_ranges(ranges)
    }

    /// Hands what was added so far to the store; says how many bytes of the table that were.
    pub(crate) async fn flush(&mut self) -> Result<u64> {
        let bytes = self.writer.pending_bytes() + self.apart.pending_bytes();
        self.memory.set(self.writer.memory_bytes());
        // A store may let a piece wait for those before it.
        let flushed = async {
            self.apart.flush().await?;
            self.writer.flush().await
        };
        self.silence.bounds(&self.env, self.flushed_bytes + bytes, flushed).await?;
        self.flushed_bytes += bytes;
        Ok(bytes)
    }

    /// Bytes written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.writer.table_bytes()
    }

    /// Makes the table durable, and its value objects before it; `None` when nothing was added.
    pub(crate) async fn finish(mut self) -> Result<Option<Written>> {
        let bytes = self.flushed_bytes + self.writer.pending_bytes() + self.apart.pending_bytes();
        let finished = async {
            self.apart.finish().await?;
            self.writer.finish().await
        };
        let table = self.silence.bounds(&self.env, bytes, finished).await?;
        self.silence.answered(bytes);
        let Some(mut table) = table else { return Ok(None) };
        let values = self.apart.describe(&mut table);
        let values: Vec<_> = values.into_iter().map(|object| self.tables.placed(object)).collect();
        let table = self.tables.placed(table);
        let length = table.length + values.iter().map(|object| object.length).sum::<u64>();
        let bytes = length - self.flushed_bytes.min(length);
        Ok(Some(Written { table, values, bytes }))
    }
}
