//! Tables on an object store: written in order, opened lazily, read through the block cache.
//!
//! - [`TableWriter`]: entries in order → an object, and the [`TableDescription`] that the manifest
//!   keeps.
//! - [`Table`]: one table for reading. [`Table::try_get`] is plain synchronous code over memory;
//!   when something is not there, it says so, and [`Table::get`] fetches it.
//! - [`ValueObject`], [`ValueWriter`]: values that lie apart.
//! - [`TableIterator`]: both directions; the engine merges several.
//!
//! Requests: opening takes one (the tail, whose size the manifest holds; up to 1 MiB it brings all
//! filters and indexes). A get takes one for the data block when its partition is in memory, and
//! one more for filter and index together when not. What the flash cache has takes none.
//!
//! Invariants:
//! 1. Nothing of a table is used before its checksum, bound to the table's identity and its offset,
//!    was found right; an error names the object, the offset, what was expected and what was found.
//! 2. A table handle holds its top index (about a millionth of the data) and nothing else outside
//!    the cache's budget.

mod ahead;
mod approximate;
mod damage;
mod explain;
mod flight;
mod iterator;
mod older;
mod outside;
mod parts;
mod pieces;
mod several;
mod values;
mod writer;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tombolo_format::FormatError;
use tombolo_format::block::Block;
use tombolo_format::checksum::{crc32c, key_hash, stamp};
use tombolo_format::compression::Dictionary;
use tombolo_format::flash::FlashKey;
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::TableDescription;
use tombolo_format::ranges::RangeLayers;
use tombolo_format::stored::{BlockHandle, Sealed};
use tombolo_format::table::{Partition, TAIL_BYTES_LIMIT, Top, open_data_within, sealed_within};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, ObjectName, ObjectStore, Request, Result};

use crate::blocks;
use crate::budget::{Category, Charge};
use crate::cache::{BlockCache, CacheKey, Hint, Kept, Memory, Pinned, Resident, RowKey};
use crate::deadline;
use crate::flash::FlashCache;
use flight::Flights;

pub use ahead::{AtEnd, Habit, KeyRange, Pace};
pub use explain::{Met, Piece, Whence};
pub use iterator::{Step, TableIterator};
pub use parts::Part;
pub use pieces::TablePiece;
pub use several::{Near, NearProbe};
pub use tombolo_format::table::TableOptions;
pub use values::{NewValueObject, ValueObject, ValueWriter};
pub use writer::{NewTable, TableWriter, piece_bytes};

/// What a point read looks for: made once, used for every table.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The user's key, with the greatest trailer that the snapshot sees.
    pub target: InternalKey<'a>,
    /// The key's hash, for filters.
    pub hash: u64,
}

impl<'a> Lookup<'a> {
    /// A look-up of `user_key` as of `snapshot`.
    #[inline]
    pub fn new(user_key: &'a [u8], snapshot: SequenceNumber) -> Lookup<'a> {
        Lookup { target: InternalKey::new(user_key, Trailer::seek(snapshot)), hash: key_hash(user_key) }
    }

    /// The same by the numbers of a table's entries, all of which stand for `number`; `None`: it
    /// sees none of them.
    #[inline]
    fn own(&self, number: SequenceNumber) -> Option<Lookup<'a>> {
        let target = InternalKey::new(self.target.user_key, Trailer::FIRST);
        (self.target.trailer.sequence() >= number).then_some(Lookup { target, hash: self.hash })
    }
}

/// The newest entry of a key that a look-up may see. Holds its block: copy the value out, or hand
/// it on with [`Hit::into_value`].
#[derive(Debug)]
pub struct Hit {
    /// Sequence number and kind.
    pub trailer: Trailer,
    value: Found,
}

#[derive(Debug)]
enum Found {
    /// In a block, which is held.
    Within(Pinned, Range<usize>),
    /// Out of a block that nobody keeps.
    Alone(Bytes),
}

impl Hit {
    /// The same under another number.
    fn at(self, number: SequenceNumber) -> Hit {
        Hit { trailer: self.trailer.at(number), ..self }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.value {
            Found::Within(pinned, range) => {
                pinned.block().and_then(|block| block.bytes().get(range.clone())).unwrap_or_default()
            }
            Found::Alone(value) => value,
        }
    }

    /// Whether its block is not held: it was a row that is kept, as a rule.
    #[inline]
    pub fn is_row(&self) -> bool {
        matches!(self.value, Found::Alone(_))
    }

    /// An entry whose value lies elsewhere, with that value.
    pub fn of_value(trailer: Trailer, value: Bytes) -> Hit {
        Hit { trailer, value: Found::Alone(value) }
    }

    /// The value as bytes of their own or sharing the block's memory: a small one is copied, so
    /// that it does not keep a block alive.
    pub fn into_value(self) -> Bytes {
        self.to_value()
    }

    /// The same, for one that is looked at further.
    pub fn to_value(&self) -> Bytes {
        match &self.value {
            Found::Within(pinned, _) => pinned.keep_value(self.value()),
            Found::Alone(value) => value.clone(),
        }
    }
}

/// What a synchronous look-up found.
#[derive(Debug)]
pub enum Probe {
    /// The newest visible entry of the key.
    Found(Hit),
    /// The table has no visible entry of the key.
    Absent,
    /// Something that is needed is not in memory: [`Table::get`].
    Miss,
}

/// One table, for reading. Opens itself on first use. Safe to use from many threads.
pub struct Table {
    description: TableDescription,
    object: ObjectName,
    store: Arc<dyn ObjectStore>,
    cache: Arc<BlockCache>,
    flash: Option<Arc<FlashCache>>,
    opened: OnceLock<Opened>,
    /// Those being fetched, by offset; opening at [`OPENING`].
    flights: Arc<Flights<Result<Option<Kept>>>>,
    /// How far walks through tables like it usually go.
    habit: Arc<Habit>,
    /// Whether requests to the store take long.
    is_far: bool,
    /// The sequence number that takes the place of all in it, if there is one: its entries have
    /// number 0, and one version of each key.
    number: Option<SequenceNumber>,
}

/// Where no block begins.
const OPENING: u64 = u64::MAX;

#[derive(Debug)]
struct Opened {
    top: Top,
    /// Where in the cache the partitions were last found, by their places.
    hints: Box<[Hint]>,
    _memory: Charge,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Table")
            .field("object", &self.object)
            .field("opened", &self.opened.get().is_some())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// The table that `description` says `object` holds. Reads nothing yet.
    pub fn new(
        description: TableDescription,
        object: ObjectName,
        store: Arc<dyn ObjectStore>,
        cache: Arc<BlockCache>,
    ) -> Table {
        let (opened, flights, habit, is_far) =
            (OnceLock::new(), Arc::default(), Arc::default(), store.performance().is_some());
        let number = description.properties.sequence_override();
        let number = number.filter(|_| !is_enabled(Mutant::OverrideIgnored));
        Table { description, object, store, cache, flash: None, opened, flights, habit, is_far, number }
    }

    /// Looks into `flash` before it asks the store.
    #[must_use]
    pub fn with_flash(self, flash: Option<Arc<FlashCache>>) -> Table {
        Table { flash, ..self }
    }

    /// Shares with other tables what walks teach.
    #[must_use]
    pub fn with_habit(self, habit: Arc<Habit>) -> Table {
        Table { habit, ..self }
    }

    /// What the manifest says about it.
    pub fn description(&self) -> &TableDescription {
        &self.description
    }

    /// The object that holds it.
    pub fn object(&self) -> &ObjectName {
        &self.object
    }

    /// Whether a user key lies between the table's first and last.
    #[inline]
    pub fn covers(&self, user_key: &[u8]) -> bool {
        self.description.covers(user_key)
    }

    /// Its range deletes; `None` when it was not opened. A table without any need not be.
    #[inline]
    pub fn ranges(&self) -> Option<&RangeLayers> {
        self.opened.get().map(|opened| &opened.top.ranges)
    }

    /// Looks up in memory a key that the table covers. No request, no lock that others
    /// contend for, no allocation.
    ///
    /// # Errors
    /// `Corrupt`.
    #[inline]
    pub fn try_get(&self, lookup: &Lookup<'_>) -> Result<Probe> {
        let Some(number) = self.number else { return self.try_get_own(lookup) };
        let Some(own) = lookup.own(number) else { return Ok(Probe::Absent) };
        Ok(match self.try_get_own(&own)? {
            Probe::Found(hit) => Probe::Found(hit.at(number)),
            probe => probe,
        })
    }

    /// As [`Table::try_get`], by the numbers that its entries have.
    #[inline]
    fn try_get_own(&self, lookup: &Lookup<'_>) -> Result<Probe> {
        let Some(opened) = self.opened.get() else { return Ok(Probe::Miss) };
        let Some((at, handle)) = opened.top.place_for(lookup.target) else { return Ok(Probe::Absent) };
        let Some(pinned) = self.partition(opened, at, handle) else { return Ok(Probe::Miss) };
        if !self.passes(&pinned, handle, lookup)? {
            return Ok(Probe::Absent);
        }
        if let Some(hit) = self.row(lookup) {
            return Ok(Probe::Found(hit));
        }
        let Some(handle) = self.block_for(&opened.top, &pinned, handle, lookup)? else {
            return Ok(Probe::Absent);
        };
        let Some(block) = self.cache.get(&self.key(handle.offset)) else { return Ok(Probe::Miss) };
        Ok(self.hit(block, handle, lookup)?.map_or(Probe::Absent, Probe::Found))
    }

    /// Looks a key up, and fetches those not in memory: at most three requests, one if the table
    /// was opened and its index is resident.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns.
    pub async fn get(self: &Arc<Self>, request: Request, lookup: &Lookup<'_>) -> Result<Option<Hit>> {
        if !self.covers(lookup.target.user_key) {
            return Ok(None);
        }
        let Some(number) = self.number else { return self.get_own(request, lookup).await };
        let Some(own) = lookup.own(number) else { return Ok(None) };
        Ok(self.get_own(request, &own).await?.map(|hit| hit.at(number)))
    }

    /// As [`Table::get`], by the numbers that its entries have.
    async fn get_own(self: &Arc<Self>, request: Request, lookup: &Lookup<'_>) -> Result<Option<Hit>> {
        let opened = self.opened(request).await?;
        let Some((at, handle)) = opened.top.place_for(lookup.target) else { return Ok(None) };
        let pinned = match self.partition(opened, at, handle) {
            Some(pinned) => pinned,
            None => self.load_partition(request, handle).await?,
        };
        if !self.passes(&pinned, handle, lookup)? {
            return Ok(None);
        }
        if let Some(hit) = self.row(lookup) {
            return Ok(Some(hit));
        }
        let Some(handle) = self.block_for(&opened.top, &pinned, handle, lookup)? else { return Ok(None) };
        drop(pinned);
        let block = match self.cache.get(&self.key(handle.offset)) {
            Some(block) => block,
            None => match self.look_up_held(request, handle, lookup)? {
                Some(found) => return Ok(found),
                None => {
                    let fetched = self.fetch(request, Place::Block(handle)).await?;
                    let hit = self.hit(fetched, handle, lookup)?;
                    self.keep_row(lookup, hit.as_ref());
                    return Ok(hit);
                }
            },
        };
        self.hit(block, handle, lookup)
    }

    /// The row of a key that the filter lets pass, if it is kept: of a table far away.
    #[inline]
    fn row(&self, lookup: &Lookup<'_>) -> Option<Hit> {
        if !self.is_far {
            return None;
        }
        let (trailer, value) = self.cache.row(&self.row_key(lookup), lookup.target.trailer.sequence())?;
        Some(Hit { trailer, value: Found::Alone(value) })
    }

    /// Keeps the row of a key that took a request, if it is the newest of the key here, and nobody
    /// needs its value aligned.
    fn keep_row(&self, lookup: &Lookup<'_>, hit: Option<&Hit>) {
        if let Some(hit) = hit.filter(|_| self.is_far && self.value_alignment() == 1)
            && lookup.target.trailer.sequence() >= self.description.last_sequence
        {
            self.cache.insert_row(&self.row_key(lookup), hit.trailer, hit.value());
        }
    }

    fn row_key<'a>(&self, lookup: &Lookup<'a>) -> RowKey<'a> {
        RowKey { table: self.description.name, user_key: lookup.target.user_key, hash: lookup.hash }
    }

    /// Opens the table if it is not: one request, which all share who ask meanwhile.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for a newer format; what the store returns.
    pub async fn open(self: &Arc<Self>, request: Request) -> Result<&Top> {
        Ok(&self.opened(request).await?.top)
    }

    async fn opened(self: &Arc<Self>, request: Request) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opening = || {
            let table = Arc::clone(self);
            async move {
                let opened = if table.is_open() { Ok(()) } else { table.open_now(request).await };
                opened.map(|()| None)
            }
        };
        deadline::waits_for(format_args!("the end of {}", self.object));
        self.shared(OPENING, opening).await?;
        self.opened
            .get()
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a table that was opened is not").object(&self.object))
    }

    async fn open_now(&self, request: Request) -> Result<()> {
        let description = &self.description;
        if description.tail_bytes > TAIL_BYTES_LIMIT || u64::from(description.tail_bytes) > description.length
        {
            let expected =
                format!("a tail of at most {} bytes", description.length.min(u64::from(TAIL_BYTES_LIMIT)));
            return Err(Error::corrupt(&self.object, description.offset, expected, description.tail_bytes));
        }
        if let Some(top) = self.flashed_top().await {
            self.install(top);
            return Ok(());
        }
        let start = description.length - u64::from(description.tail_bytes);
        let tail = self.read(request, start..description.length).await?;
        if tail.len() as u64 != u64::from(description.tail_bytes) {
            let at = description.offset + start + tail.len() as u64;
            return Err(Error::corrupt(
                &self.object,
                at,
                format!("a table of {} bytes", description.length),
                "the end of the object",
            ));
        }
        let top = self.take_tail(&tail)?;
        if let Some(flash) = &self.flash {
            flash.offer_tail(request.purpose, self.flash_key(FlashKey::TAIL), &tail);
        }
        self.install(top);
        Ok(())
    }

    /// Footer, top index and properties, out of the table's last bytes.
    fn decode_top(&self, tail: &Bytes) -> Result<Top> {
        let description = &self.description;
        let top = Top::decode(tail, description.length, description.identity)
            .map_err(|error| self.damaged(error))?;
        let counted = u32::try_from(top.ranges.len()).unwrap_or(u32::MAX);
        if description.range_deletes().map_or(0, |ranges| ranges.count) != counted {
            let expected = format!("the range deletes of its description, {:?}", description.range_deletes());
            let at = description.offset + description.length;
            return Err(Error::corrupt(&self.object, at, expected, counted));
        }
        self.check_one_each(&top)?;
        // By what the manifest says it was decided who may read the table.
        if top.footer.features != description.features {
            let expected = format!("the feature bits of its description, {:#x}", description.features);
            let found = format!("{:#x}", top.footer.features);
            return Err(Error::corrupt(
                &self.object,
                description.offset + description.length,
                expected,
                found,
            ));
        }
        Ok(top)
    }

    /// What opening needs, out of the table's tail; partitions that came with it go to the cache.
    fn take_tail(&self, tail: &Bytes) -> Result<Top> {
        let description = &self.description;
        let tail_offset = description.length.saturating_sub(tail.len() as u64);
        // The index keeps a part of the bytes read: a copy, so that it does not keep all of them.
        let top = self.decode_top(tail)?;
        let top = Top {
            index: Block::new(Bytes::copy_from_slice(top.index.bytes()))
                .map_err(|error| self.damaged(error))?,
            ..top
        };
        if top.footer.data_end >= tail_offset {
            self.take_partitions(&top, tail, tail_offset)?;
        }
        Ok(top)
    }

    fn install(&self, top: Top) {
        let hints: Box<[Hint]> = top.partitions.iter().map(|_| Hint::default()).collect();
        let memory =
            self.cache.budget().charge(Category::Tables, (top.memory_bytes() + size_of_val(&*hints)) as u64);
        // One flight at a time opens it: there is none yet.
        self.opened.get_or_init(|| Opened { top, hints, _memory: memory });
    }

    /// A partition, if it is in memory.
    #[inline]
    fn partition(&self, opened: &Opened, at: usize, place: PartitionHandle) -> Option<Pinned> {
        self.cache.get_by(opened.hints.get(at)?, &self.key(place.offset))
    }

    /// Keys that cut the table into pieces of about equal size, ascending: those of its top index,
    /// one for each partition.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub async fn sample_keys(self: &Arc<Self>, request: Request) -> Result<Vec<Bytes>> {
        let top = self.open(request).await?;
        let at = top.footer.top_index.offset;
        let mut cursor = tombolo_format::block::Cursor::new();
        let mut keys = Vec::new();
        cursor.first(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        while cursor.valid() {
            keys.push(Bytes::copy_from_slice(cursor.key().user_key));
            cursor.next(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        }
        Ok(keys)
    }

    /// Whether the table was not opened, and its store is one where requests take long.
    pub fn is_far_and_closed(&self) -> bool {
        !self.is_open() && self.is_far
    }

    /// Whether its store is one where requests take long.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.is_far
    }

    /// Whether the table was opened.
    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// An iterator over all entries. `fill_cache` is off where all is read once: compaction,
    /// verification.
    pub fn iterator(self: &Arc<Self>, request: Request, fill_cache: bool) -> TableIterator {
        TableIterator::new(Arc::clone(self), request, fill_cache)
    }

    /// Whether the filter lets the look-up's key pass.
    #[inline]
    fn passes(&self, pinned: &Pinned, place: PartitionHandle, lookup: &Lookup<'_>) -> Result<bool> {
        let partition = pinned.partition().ok_or_else(|| self.not_a("partition", place.offset))?;
        Ok(partition.may_contain(lookup.hash))
    }

    /// The block that may hold the look-up's key, which the filter lets pass.
    #[inline]
    fn block_for(
        &self,
        top: &Top,
        pinned: &Pinned,
        place: PartitionHandle,
        lookup: &Lookup<'_>,
    ) -> Result<Option<BlockHandle>> {
        let partition = pinned.partition().ok_or_else(|| self.not_a("partition", place.offset))?;
        let at = place.index().offset;
        let found =
            partition.index.at_or_after(lookup.target).map_err(|error| self.damaged(error.shifted(at)))?;
        let Some(entry) = found else { return Ok(None) };
        let handle = decode_block_handle(entry.value, top.footer.data_end)
            .map_err(|error| self.damaged(error.shifted(at)))?;
        Ok(Some(handle))
    }

    #[inline]
    fn hit(&self, pinned: Pinned, place: BlockHandle, lookup: &Lookup<'_>) -> Result<Option<Hit>> {
        let block = pinned.block().ok_or_else(|| self.not_a("data block", place.offset))?;
        block.prefetch_rows();
        let found = block.get(lookup.target).map_err(|error| self.damaged(error.shifted(place.offset)))?;
        let Some((trailer, value)) = found.map(|entry| (entry.trailer, block.range_of(entry.value))) else {
            return Ok(None);
        };
        Ok(Some(Hit { trailer, value: Found::Within(pinned, value) }))
    }

    /// Looks a key up in a block that the host holds in memory, if it does. A block that the cache
    /// takes in goes there; of another only what the answer takes is decompressed, and nobody keeps
    /// it.
    fn look_up_held(
        &self,
        request: Request,
        place: BlockHandle,
        lookup: &Lookup<'_>,
    ) -> Result<Option<Option<Hit>>> {
        self.with_held(request, Place::Block(place), |piece| self.look_up(piece, place, lookup))
    }

    fn look_up(&self, piece: &[u8], place: BlockHandle, lookup: &Lookup<'_>) -> Result<Option<Hit>> {
        let (key, alignment) = (self.key(place.offset), self.value_alignment());
        let believed =
            is_enabled(Mutant::TableBlockUnchecked).then(|| self.believed(piece, place.offset, place));
        let piece = believed.as_deref().unwrap_or(piece);
        let sealed = sealed_within(piece, place.offset, place, self.description.identity)
            .map_err(|error| self.damaged(error))?
            .with(self.dictionary());
        let bytes = sealed.raw_bytes();
        let memory = match self.cache.memory_if_worth(key, bytes, alignment) {
            Some(memory) => memory,
            None if bytes > LOOK_UP_BYTES_MAX || alignment > 1 => BlockCache::memory_elsewhere(bytes),
            None => return self.look_up_in(&sealed, place, lookup),
        };
        let pinned = self.take_sealed(&sealed, place, |_| memory)?;
        self.hit(pinned, place, lookup)
    }

    fn look_up_in(
        &self,
        sealed: &Sealed<'_>,
        place: BlockHandle,
        lookup: &Lookup<'_>,
    ) -> Result<Option<Hit>> {
        thread_local! {
            // Warm memory for one block after another.
            static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        blocks::read();
        ROOM.with_borrow_mut(|room| {
            let found =
                sealed.get(lookup.target, room).map_err(|error| self.damaged(error.shifted(place.offset)))?;
            Ok(found.map(|(trailer, value)| Hit {
                trailer,
                value: Found::Alone(Bytes::copy_from_slice(&room[value])),
            }))
        })
    }

    fn key(&self, offset: u64) -> CacheKey {
        CacheKey { table: self.description.name, offset }
    }

    /// Bytes of the table; fewer at the object's end.
    async fn read(&self, request: Request, range: Range<u64>) -> Result<Bytes> {
        let base = self.description.offset;
        let read = self.store.read(request, &self.object, base + range.start..base + range.end).await;
        read.map_err(|error| if error.kind() == ErrorKind::NotFound { self.missing() } else { error })
    }

    /// A table that the manifest names and the store does not have: damage, not an answer to a read
    /// of a key.
    #[cold]
    fn missing(&self) -> Error {
        let is_cold = self.description.cold().is_some();
        let found = if is_cold { "no such object in the cold store" } else { "no such object" };
        let expected = format!("a table of {} bytes, which the manifest names", self.description.length);
        Error::corrupt(&self.object, 0, expected, found)
    }

    /// Fetches a partition: filter and index with one request.
    async fn load_partition(self: &Arc<Self>, request: Request, handle: PartitionHandle) -> Result<Pinned> {
        self.load(request, Place::Partition(handle)).await
    }

    /// Fetches a data block.
    async fn load_block(
        self: &Arc<Self>,
        request: Request,
        handle: BlockHandle,
        fill_cache: bool,
    ) -> Result<Pinned> {
        if fill_cache {
            return self.load(request, Place::Block(handle)).await;
        }
        // Beside the block itself, which is charged for as long as it is held.
        let _read = self.cache.budget().charge(Category::Compactions, u64::from(handle.length));
        let piece = own(self.read(request, handle.offset..handle.end()).await?);
        let block = self.decode_block(&piece, handle.offset, handle, self.dictionary())?;
        Ok(Pinned::own(self.key(handle.offset), Resident::Block(block), self.cache.budget()))
    }

    /// As [`Table::key`], in the flash cache.
    fn flash_key(&self, offset: u64) -> FlashKey {
        FlashKey { table: self.description.name, offset }
    }

    /// What opening needs, from the flash cache. Damage there is a miss.
    async fn flashed_top(&self) -> Option<Top> {
        let flash = self.flash.as_ref()?;
        let key = self.flash_key(FlashKey::TAIL);
        let tail = flash.get(key, u64::from(self.description.tail_bytes)).await?;
        self.take_tail(&tail).inspect_err(|error| flash.forget_damaged(key, error)).ok()
    }

    /// Whether the block at `offset` is in a cache, of a table with a flash cache.
    fn is_cached(&self, offset: u64) -> bool {
        self.flash
            .as_ref()
            .is_some_and(|flash| self.cache.has(&self.key(offset)) || flash.has(self.flash_key(offset)))
    }

    /// What lies at `place`, from the flash cache into this one. Damage there is a miss.
    async fn load_flashed(&self, place: Place) -> Option<Pinned> {
        let flash = self.flash.as_ref()?;
        let range = place.range();
        let key = self.flash_key(range.start);
        let piece = flash.get(key, range.end - range.start).await?;
        self.take_in(&piece, range.start, place).inspect_err(|error| flash.forget_damaged(key, error)).ok()
    }

    /// What a read had to ask the store for may be worth keeping nearer.
    fn offer(&self, request: Request, place: Place, piece: &[u8]) {
        if let Some(flash) = &self.flash {
            flash.offer(request.purpose, self.flash_key(place.range().start), piece);
        }
    }

    /// Waits for the fetch at `offset`, or else for what `fetch` gives. Another's
    /// deadline is not this one's: it is begun again then.
    async fn shared<F: Future<Output = Result<Option<Kept>>> + Send + 'static>(
        &self,
        offset: u64,
        fetch: impl Fn() -> F,
    ) -> Result<Option<Kept>> {
        loop {
            let (waiter, is_anothers) = self.flights.join_or(offset, fetch());
            match waiter.await {
                Err(error) if is_anothers && error.kind() == ErrorKind::DeadlineExceeded => {}
                ended => return ended,
            }
        }
    }

    /// Notes what an operation waits for, should anybody ask when its deadline has passed.
    fn note_wait(&self, range: &Range<u64>) {
        let base = self.description.offset;
        deadline::waits_for(format_args!(
            "bytes {} to {} of {}",
            base + range.start,
            base + range.end,
            self.object
        ));
    }

    /// Fetches into the cache, with one request that all share who miss the same meanwhile.
    async fn load(self: &Arc<Self>, request: Request, place: Place) -> Result<Pinned> {
        match self.load_held(request, place, memory_if_worth)? {
            Some(pinned) => Ok(pinned),
            None => self.fetch(request, place).await,
        }
    }

    /// Fetches what the host does not hold in memory, as [`Table::load`].
    async fn fetch(self: &Arc<Self>, request: Request, place: Place) -> Result<Pinned> {
        let begin = place.range().start;
        let fetch = || {
            let table = Arc::clone(self);
            async move {
                // It may have come since the miss.
                if let Some(kept) = table.known(begin) {
                    return Ok(Some(kept));
                }
                if let Some(pinned) = table.load_flashed(place).await {
                    return Ok(Some(pinned.keep()));
                }
                let piece = table.read(request, place.range()).await?;
                let kept = table.take_in(&piece, begin, place)?.keep();
                table.offer(request, place, &piece);
                Ok(Some(kept))
            }
        };
        self.note_wait(&place.range());
        let kept = self.shared(begin, fetch).await?;
        kept.map(Kept::pin).ok_or_else(|| self.not_a("block or partition", begin))
    }

    /// Fetches a data block into the cache together with what lies around it, with one request that
    /// all share who miss the block meanwhile. The bytes of `around` are for who made the request;
    /// `None`: another brought the block.
    async fn load_block_around(
        self: &Arc<Self>,
        request: Request,
        handle: BlockHandle,
        around: Range<u64>,
    ) -> Result<(Kept, Option<Bytes>)> {
        let begin = handle.offset;
        let brought = Arc::<parking_lot::Mutex<Option<Bytes>>>::default();
        let fetch = || {
            let (table, bringing, around) = (Arc::clone(self), Arc::clone(&brought), around.clone());
            async move {
                if let Some(kept) = table.known(begin) {
                    return Ok(Some(kept));
                }
                let piece = table.read(request, around.clone()).await?;
                let kept = table.take_block_in(&piece, around.start, handle)?.keep();
                *bringing.lock() = Some(piece);
                Ok(Some(kept))
            }
        };
        self.note_wait(&around);
        let kept = self.shared(begin, fetch).await?;
        let kept = kept.ok_or_else(|| self.not_a("data block", begin))?;
        let piece = brought.lock().take();
        Ok((kept, piece))
    }

    /// Takes what the host holds in memory into the cache, if it does: no request that others could
    /// share, and nothing to wait for. A data block goes into what `memory` gives.
    fn load_held(&self, request: Request, place: Place, memory: TakeMemory) -> Result<Option<Pinned>> {
        self.with_held(request, place, |piece| self.take_piece_in(piece, place, memory))
    }

    /// What `take` makes of just the bytes of `place`, if the host holds them in memory: the
    /// store's, or those of the flash cache, where damage is a miss.
    fn with_held<R>(
        &self,
        request: Request,
        place: Place,
        mut take: impl FnMut(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let (range, base) = (place.range(), self.description.offset);
        let mut taken = None;
        self.store.with_held(request, &self.object, base + range.start..base + range.end, &mut |piece| {
            taken = Some(take(piece));
        });
        if let (None, Some(flash)) = (&taken, &self.flash) {
            let key = self.flash_key(range.start);
            flash.with_held(key, range.end - range.start, &mut |piece| taken = Some(take(piece)));
            if let Some(Err(error)) = taken.take_if(|taken| taken.is_err()) {
                flash.forget_damaged(key, &error);
            }
        }
        taken.transpose()
    }

    /// What the cache has, without counting a miss.
    fn known(&self, offset: u64) -> Option<Kept> {
        let key = self.key(offset);
        if self.cache.has(&key) { self.cache.get(&key).map(Pinned::keep) } else { None }
    }

    /// Puts what lies at `place` into the cache, out of `piece`, bytes of the table from
    /// `piece_offset` on. Nothing keeps the piece after.
    fn take_in(&self, piece: &Bytes, piece_offset: u64, place: Place) -> Result<Pinned> {
        match place {
            Place::Block(handle) => self.take_block_in(piece, piece_offset, handle),
            Place::Partition(handle) => {
                let partition = Partition::decode(piece, piece_offset, handle, self.description.identity);
                let partition = partition.map_err(|error| self.damaged(error))?;
                Ok(self.cache.insert(self.key(handle.offset), Resident::Partition(partition)))
            }
        }
    }

    /// Puts what lies at `place` into the cache, out of just its bytes.
    fn take_piece_in(&self, piece: &[u8], place: Place, memory: TakeMemory) -> Result<Pinned> {
        match place {
            Place::Block(handle) => self.take_block(piece, handle.offset, handle, memory),
            Place::Partition(handle) => self.take_in(&Bytes::copy_from_slice(piece), handle.offset, place),
        }
    }

    /// A data block is decompressed into its place in the cache.
    fn take_block_in(&self, piece: &[u8], piece_offset: u64, handle: BlockHandle) -> Result<Pinned> {
        self.take_block(piece, piece_offset, handle, BlockCache::memory)
    }

    fn take_block(
        &self,
        piece: &[u8],
        piece_offset: u64,
        handle: BlockHandle,
        memory: TakeMemory,
    ) -> Result<Pinned> {
        let key = self.key(handle.offset);
        let believed =
            is_enabled(Mutant::TableBlockUnchecked).then(|| self.believed(piece, piece_offset, handle));
        let (piece, piece_offset) =
            believed.as_deref().map_or((piece, piece_offset), |believed| (believed, handle.offset));
        let sealed = sealed_within(piece, piece_offset, handle, self.description.identity)
            .map_err(|error| self.damaged(error))?
            .with(self.dictionary());
        self.take_sealed(&sealed, handle, |bytes| memory(&self.cache, key, bytes, self.value_alignment()))
    }

    fn take_sealed(
        &self,
        sealed: &Sealed<'_>,
        handle: BlockHandle,
        memory: impl FnOnce(usize) -> Memory,
    ) -> Result<Pinned> {
        let key = self.key(handle.offset);
        blocks::read();
        let memory = sealed.open_into(memory).map_err(|error| self.damaged(error.shifted(handle.offset)))?;
        let (bytes, held) = memory.freeze();
        let block = Block::new(bytes).map_err(|error| self.damaged(error.shifted(handle.offset)))?;
        Ok(self.cache.insert_held(key, Resident::Block(block), held))
    }

    /// Of the values in its blocks.
    pub fn value_alignment(&self) -> usize {
        self.opened.get().map_or(1, |opened| opened.top.properties.value_alignment as usize)
    }

    /// With which its data blocks may be compressed. None is read before the table is open.
    fn dictionary(&self) -> Option<&Dictionary> {
        self.opened.get().and_then(|opened| opened.top.dictionary.as_ref())
    }

    /// A data block from `piece`, bytes of the table from `piece_offset` on.
    fn decode_block(
        &self,
        piece: &Bytes,
        piece_offset: u64,
        handle: BlockHandle,
        dictionary: Option<&Dictionary>,
    ) -> Result<Block> {
        let believed =
            is_enabled(Mutant::TableBlockUnchecked).then(|| self.believed(piece, piece_offset, handle));
        let (piece, piece_offset) =
            believed.as_ref().map_or((piece, piece_offset), |believed| (believed, handle.offset));
        let identity = self.description.identity;
        let raw = open_data_within(piece, piece_offset, handle, identity, dictionary)
            .map_err(|error| self.damaged(error))?;
        Block::new(raw).map_err(|error| self.damaged(error.shifted(handle.offset)))
    }

    /// A block with the checksum that its bytes have, whatever they are: what would be read if none
    /// were checked.
    #[cold]
    fn believed(&self, piece: &[u8], piece_offset: u64, handle: BlockHandle) -> Bytes {
        let start = handle
            .offset
            .checked_sub(piece_offset)
            .and_then(|start| usize::try_from(start).ok())
            .unwrap_or(usize::MAX);
        let mut block =
            piece.get(start..start.saturating_add(handle.length as usize)).unwrap_or_default().to_vec();
        if let Some((hashed, checksum)) = block.split_last_chunk_mut::<4>() {
            *checksum = stamp(crc32c(hashed), self.description.identity, handle.offset).to_le_bytes();
        }
        block.into()
    }

    /// Puts the partitions that came with the tail into the cache.
    fn take_partitions(&self, top: &Top, tail: &Bytes, tail_offset: u64) -> Result<()> {
        let mut cursor = tombolo_format::block::Cursor::new();
        let at = top.footer.top_index.offset;
        cursor.first(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        while cursor.valid() {
            let handle = PartitionHandle::decode(cursor.value(&top.index), at)
                .map_err(|error| self.damaged(error.shifted(at)))?;
            let start = handle.offset.checked_sub(tail_offset).and_then(|start| usize::try_from(start).ok());
            let length = usize::try_from(handle.length()).ok();
            let range = start.zip(length).and_then(|(start, length)| Some(start..start.checked_add(length)?));
            let Some(range) = range.filter(|range| range.end <= tail.len()) else {
                return Err(self.damaged(
                    FormatError::damaged(0, "partitions within the tail", format!("{handle:?}")).shifted(at),
                ));
            };
            self.take_in(&tail.slice(range), handle.offset, Place::Partition(handle))?;
            cursor.next(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        }
        Ok(())
    }

    /// The error at an offset of the table, with the object's name and the offset in it.
    #[cold]
    fn damaged(&self, error: FormatError) -> Error {
        Error::format(&self.object, self.description.offset, error)
    }

    #[cold]
    fn not_a(&self, what: &str, offset: u64) -> Error {
        // Two handles of the index name one offset as different things.
        Error::corrupt(
            &self.object,
            self.description.offset + offset,
            format!("a {what}"),
            "another kind of block",
        )
    }
}

/// How memory is come by for a block: [`BlockCache::memory`], or [`memory_if_worth`].
type TakeMemory = fn(&BlockCache, CacheKey, usize, usize) -> Memory;

/// The cache's, if it is worth its place there.
fn memory_if_worth(cache: &BlockCache, key: CacheKey, bytes: usize, alignment: usize) -> Memory {
    cache.memory_if_worth(key, bytes, alignment).unwrap_or_else(|| BlockCache::memory_elsewhere(bytes))
}

/// Greatest block that a look-up decompresses a part of, into memory that its thread keeps.
const LOOK_UP_BYTES_MAX: usize = 64 << 10;

/// Where something lies in a table that the cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Partition(PartitionHandle),
    Block(BlockHandle),
}

impl Place {
    fn range(self) -> Range<u64> {
        match self {
            Place::Partition(handle) => handle.offset..handle.offset.saturating_add(handle.length()),
            Place::Block(handle) => handle.offset..handle.end(),
        }
    }
}

/// The bytes in memory of their own: a store may answer with a slice of something large, which the
/// cache must not keep alive.
fn own(piece: Bytes) -> Bytes {
    if piece.is_unique() { piece } else { Bytes::copy_from_slice(&piece) }
}

/// Refuses descriptions that cannot be of a table.
///
/// # Errors
/// `Corrupt`, in the name of `object`.
pub fn check_description(description: &TableDescription, object: &ObjectName) -> Result<()> {
    let sound = description.offset.checked_add(description.length).is_some()
        && u64::from(description.tail_bytes) <= description.length
        && description.first_key <= description.last_key
        && description.first_sequence <= description.last_sequence;
    if sound {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, "the manifest describes no table")
        .object(object)
        .found(format!("{description:?}")))
}

#[cfg(test)]
mod tests;
