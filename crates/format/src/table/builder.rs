//! Builds a table from entries in order; its bytes come out in pieces.

use bytes::Bytes;

use super::properties::COUNTED_PARTITIONS_MAX;
use super::{FOOTER_BYTES, Footer, Properties, SequenceRange, TAIL_BYTES_MAX};
use crate::block::BlockBuilder;
use crate::compression::{Compression, Compressor, Trained};
use crate::error::{FormatError, Result};
use crate::expiry::Expiry;
use crate::filter::{BITS_PER_KEY_DEFAULT, FilterBuilder};
use crate::index::{PartitionHandle, separator};
use crate::key::{ENTRY_FEATURES_OPERANDS, EntryKind, InternalKey, SequenceNumber, Trailer, check_limits};
use crate::property::RangeDeletes;
use crate::ranges::{RANGES_BYTES_MAX, RangeLayers};
use crate::stored::{self, BlockHandle};

/// How a table is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// A data block has at most so many bytes before compression, unless it is one entry that has
    /// more.
    pub block_bytes: usize,
    /// Values begin at multiples of this in their block, and blocks at multiples of it in memory: a
    /// power of two; 1 for no alignment.
    pub value_alignment: u32,
    /// Compression of data blocks. Index, filter and properties are stored as they are: they are
    /// read far more often than written.
    pub compression: Compression,
    /// A dictionary of at most so many bytes is trained from the first entries of a table that ZSTD
    /// compresses; 0 for none. They wait in memory: at most 32
    /// times as many bytes.
    pub dictionary_bytes: usize,
    /// Filter bits per key; 0 for no filters.
    pub filter_bits_per_key: u32,
    /// An index partition ends once it has this many bytes.
    pub partition_bytes: usize,
    /// Output is worth taking once it has this many bytes.
    pub output_bytes: usize,
    /// The keyspace, for the properties.
    pub keyspace: u32,
    /// When the oldest data was written, for the properties.
    pub oldest_unix_seconds: u64,
}

impl TableOptions {
    /// Most bytes of memory in which entries wait for a dictionary.
    fn sample_bytes(&self) -> usize {
        self.dictionary_bytes.saturating_mul(SAMPLES_PART)
    }

    /// Room for the output, and for what a last block of the usual size has beyond it.
    fn output_capacity(&self) -> usize {
        self.output_bytes + self.output_bytes / 8
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 8 << 10,
            value_alignment: 1,
            compression: Compression::Lz4,
            dictionary_bytes: 0,
            filter_bits_per_key: BITS_PER_KEY_DEFAULT,
            partition_bytes: 8 << 10,
            output_bytes: 256 << 10,
            keyspace: 0,
            oldest_unix_seconds: 0,
        }
    }
}

/// What a finished table is: all that the manifest needs beside names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes at its end that opening fetches.
    pub tail_bytes: u32,
    /// Smallest user key, of entries and range deletes.
    pub first_key: Bytes,
    /// Greatest user key, or the end of a range if that is greater.
    pub last_key: Bytes,
    /// The range deletes in it.
    pub range_deletes: Option<RangeDeletes>,
    /// Range of sequence numbers.
    pub sequences: SequenceRange,
    /// Its incompatible feature bits.
    pub features: u64,
    /// What it says about itself.
    pub properties: Properties,
    /// When entries of it end, if any do.
    pub expiry: Option<Expiry>,
}

impl TableSummary {
    /// Whether each of its entries is a value that stays, of a key of its own.
    pub fn is_one_each(&self) -> bool {
        self.properties.values == self.properties.entries && self.range_deletes.is_none()
    }
}

/// Builds a table: [`TableBuilder::add`] in order, write what [`TableBuilder::take_output`] gives
/// whenever [`TableBuilder::wants_output_taken`], then [`TableBuilder::finish`].
///
/// Memory: one data block, the output not yet taken, and the table's filters and index (about 2 %
/// of the data).
#[derive(Debug)]
pub struct TableBuilder {
    options: TableOptions,
    identity: u64,
    data: BlockBuilder,
    /// The data block that was closed last; its separator waits for the next key.
    pending: Option<BlockHandle>,
    /// The data block that was closed last, until it was asked for or the output was taken.
    closed: Option<BlockHandle>,
    /// The last key of the data block that was closed last.
    last_key: Vec<u8>,
    /// As above.
    last_trailer: Trailer,
    index: BlockBuilder,
    filter: FilterBuilder,
    /// Stored partitions, checksums not yet bound to a place: `(separator, filter, index)`.
    partitions: Vec<Partition>,
    /// Bytes of `partitions`.
    partition_bytes: usize,
    compressor: Compressor,
    raw: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of the table before `out`.
    taken: u64,
    first_key: Option<Vec<u8>>,
    sequences: SequenceRange,
    properties: Properties,
    /// Feature bits of the kinds of entries so far.
    features: u64,
    /// When entries so far end.
    expiry: Option<Expiry>,
    /// The key of the last operand that ends, and when that is.
    over: Option<(Vec<u8>, u64)>,
    separator: Vec<u8>,
    /// Entries that wait until there is a dictionary; `None` once it was decided.
    waiting: Option<Waiting>,
    ranges: RangeLayers,
    /// Entries of each closed partition.
    partition_entries: Vec<u32>,
    /// Entries of all of them.
    counted: u64,
}

/// The first entries of a table, from which a dictionary is trained.
#[derive(Debug, Default)]
struct Waiting {
    /// Key and value of each, one after another.
    bytes: Vec<u8>,
    /// Sequence number, kind, and bytes of the key and of both.
    entries: Vec<(SequenceNumber, EntryKind, usize, usize)>,
}

impl Waiting {
    /// Bytes of memory that an entry takes.
    fn entry_bytes(user_key: &[u8], value: &[u8]) -> usize {
        user_key.len() + value.len() + size_of::<(SequenceNumber, EntryKind, usize, usize)>()
    }

    fn push(&mut self, user_key: &[u8], sequence: SequenceNumber, kind: EntryKind, value: &[u8]) {
        self.bytes.extend_from_slice(user_key);
        self.bytes.extend_from_slice(value);
        self.entries.push((sequence, kind, user_key.len(), user_key.len() + value.len()));
    }

    /// Bytes of memory that all take.
    fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.entries)
    }
}

/// A dictionary is trained from at most so many times its bytes.
const SAMPLES_PART: usize = 32;

/// Separators from here on are long.
const LONG_SEPARATOR_BYTES: usize = 256;
/// A partition holds so many long ones, so that the top index is a small part of the index.
const LONG_SEPARATORS_MIN: usize = 32;
/// A partition ends when its filter has so many bytes.
const PARTITION_FILTER_BYTES: usize = 4 << 20;

#[derive(Debug)]
struct Partition {
    last_key: Vec<u8>,
    last_trailer: Trailer,
    filter: Vec<u8>,
    index: Vec<u8>,
}

/// Most bytes that an entry adds to its block: rows of full width, whatever it shares.
fn entry_bytes(key: InternalKey<'_>, value: &[u8], alignment: u32) -> usize {
    key.user_key.len() + value.len() + alignment as usize + 16
}

impl TableBuilder {
    /// A builder of a table with this random identity.
    pub fn new(options: TableOptions, identity: u64) -> TableBuilder {
        TableBuilder {
            options,
            identity,
            data: BlockBuilder::with_alignment(options.value_alignment),
            pending: None,
            closed: None,
            last_key: Vec::new(),
            last_trailer: Trailer::FIRST,
            index: BlockBuilder::new(),
            filter: FilterBuilder::new(options.filter_bits_per_key),
            partitions: Vec::new(),
            partition_bytes: 0,
            compressor: Compressor::new(),
            raw: Vec::new(),
            out: Vec::new(),
            taken: 0,
            first_key: None,
            sequences: SequenceRange { first: SequenceNumber::MAX, last: SequenceNumber::ZERO },
            properties: Properties {
                filter_bits_per_key: options.filter_bits_per_key,
                value_alignment: options.value_alignment,
                compression: options.compression as u8,
                keyspace: options.keyspace,
                oldest_unix_seconds: options.oldest_unix_seconds,
                ..Properties::default()
            },
            features: 0,
            expiry: None,
            over: None,
            separator: Vec::new(),
            waiting: (options.compression == Compression::Zstd && options.dictionary_bytes > 0)
                .then(Waiting::default),
            ranges: RangeLayers::default(),
            partition_entries: Vec::new(),
            counted: 0,
        }
    }

    /// Has the table say which merge operator its operands are for, if it gets any: of tables that
    /// are made outside of a database.
    pub fn set_operator(&mut self, operator: String) {
        self.properties.operator = operator;
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Limit` when key or value is beyond its limit; `Damaged` when an expiring put says no end.
    /// Nothing was added.
    ///
    /// # Panics
    /// When the entry does not come after the last one, or is a range delete.
    pub fn add(
        &mut self,
        user_key: &[u8],
        sequence: SequenceNumber,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<()> {
        assert!(kind != EntryKind::RangeDelete, "a range delete among the entries");
        check_limits(user_key, value)?;
        if let Some(one) = Expiry::of_entry(kind, value)? {
            self.count_end(user_key, one);
        }
        let most = self.options.sample_bytes();
        if let Some(waiting) = &mut self.waiting {
            if waiting.memory_bytes() + Waiting::entry_bytes(user_key, value) <= most {
                waiting.push(user_key, sequence, kind, value);
                return Ok(());
            }
            self.take_waiting();
        }
        self.add_now(user_key, sequence, kind, value);
        Ok(())
    }

    /// Counts an entry that ends. One below an operand is needed as long as that is.
    fn count_end(&mut self, user_key: &[u8], mut one: Expiry) {
        if let Some((_, end)) = self.over.as_ref().filter(|(key, _)| key == user_key) {
            (one.earliest_ms, one.latest_ms) = (one.earliest_ms.max(*end), one.latest_ms.max(*end));
        }
        if one.written_ms != u64::MAX {
            self.over = Some((user_key.to_vec(), one.latest_ms));
        }
        self.expiry = Some(self.expiry.map_or(one, |all| all.with(one)));
    }

    /// Trains a dictionary from the entries that wait for it, and adds them.
    #[cold]
    fn take_waiting(&mut self) {
        let Some(Waiting { bytes, entries }) = self.waiting.take() else { return };
        let lengths: Vec<_> = entries.iter().map(|(.., bytes)| *bytes).collect();
        let options = &self.options;
        let trained = Trained::train(&bytes, &lengths, options.dictionary_bytes, options.block_bytes);
        if let Some(trained) = trained {
            self.compressor.set_dictionary(trained);
        }
        let mut rest = &bytes[..];
        for (sequence, kind, key_bytes, entry_bytes) in entries {
            let (entry, after) = rest.split_at(entry_bytes);
            let (user_key, value) = entry.split_at(key_bytes);
            self.add_now(user_key, sequence, kind, value);
            rest = after;
        }
        // Those before the last were told to nobody.
        self.closed = None;
    }

    fn add_now(&mut self, user_key: &[u8], sequence: SequenceNumber, kind: EntryKind, value: &[u8]) {
        let key = InternalKey::new(user_key, Trailer::new(sequence, kind));
        // A block ends before the entry that would make it too large, so that blocks fill what
        // memory is given to them.
        if !self.data.is_empty()
            && self.data.block_bytes() + entry_bytes(key, value, self.options.value_alignment)
                > self.options.block_bytes
        {
            self.close_block();
        }
        let last = if self.data.is_empty() {
            self.begin_block(key);
            &*self.last_key
        } else {
            self.data.last_key().user_key
        };
        let is_new_key = self.properties.entries == 0 || last != user_key;
        let is_value = matches!(kind, EntryKind::Put | EntryKind::SeparatedPut);
        self.properties.values += u64::from(is_new_key && is_value);
        self.filter.add(user_key);
        // Within a block the block's builder checks the order.
        self.data.add(key, value);
        self.count(key, kind, value);
    }

    /// What happens before the first entry of a block.
    fn begin_block(&mut self, key: InternalKey<'_>) {
        if self.first_key.is_none() {
            self.first_key = Some(key.user_key.to_vec());
            return;
        }
        let last = InternalKey::new(&self.last_key, self.last_trailer);
        assert!(last < key, "entries out of order: {last:?} before {key:?}");
        self.index_pending(Some(key));
    }

    fn count(&mut self, key: InternalKey<'_>, kind: EntryKind, value: &[u8]) {
        let sequence = key.trailer.sequence();
        self.sequences.first = self.sequences.first.min(sequence);
        self.sequences.last = self.sequences.last.max(sequence);
        self.properties.entries += 1;
        self.properties.deletes += u64::from(kind.is_delete());
        self.features |= kind.feature();
        self.properties.key_bytes += key.user_key.len() as u64;
        self.properties.value_bytes += value.len() as u64;
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        let waits = self.waiting.as_ref().is_some_and(|waiting| !waiting.entries.is_empty());
        self.first_key.is_none() && !waits && self.ranges.is_empty()
    }

    /// Gives the table its range deletes, whatever the entries. Once, before the end.
    ///
    /// # Errors
    /// `Limit` when they are more than a table takes; nothing was added.
    pub fn set_ranges(&mut self, ranges: RangeLayers) -> Result<()> {
        let bytes = ranges.encoded_bytes();
        if bytes > RANGES_BYTES_MAX {
            let message = format!("range deletes of {bytes} bytes in one table; at most {RANGES_BYTES_MAX}");
            return Err(FormatError::limit(message));
        }
        self.ranges = ranges;
        Ok(())
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries + self.waiting.as_ref().map_or(0, |waiting| waiting.entries.len() as u64)
    }

    /// Bytes of the table so far, the open block estimated: for deciding when it is large enough.
    /// Indexes and filters count: of long keys that compress well they are most of it.
    pub fn table_bytes(&self) -> u64 {
        let indexed = self.partition_bytes + self.index.block_bytes() + self.filter.filter_bytes();
        // Compressed, they will be about half of it.
        let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.bytes.len() / 2);
        self.taken + (self.out.len() + self.data.block_bytes() + indexed + waiting) as u64
    }

    /// Whether there is enough output to be worth taking.
    #[inline]
    pub fn wants_output_taken(&self) -> bool {
        self.out.len() >= self.options.output_bytes
    }

    /// Bytes that [`TableBuilder::take_output`] would give.
    pub fn output_bytes(&self) -> usize {
        self.out.len()
    }

    /// Bytes of memory that it takes, what [`TableBuilder::take_output`] gave last included.
    pub fn memory_bytes(&self) -> usize {
        let block = self.data.block_bytes() + self.raw.capacity();
        // From the first on as much as will wait: nobody asks again before it is given up.
        let waiting = self.waiting.as_ref().map_or(0, |_| self.options.sample_bytes());
        2 * self.out.capacity().max(self.options.output_capacity())
            + waiting
            + self.compressor.dictionary_memory_bytes()
            + block
            + self.index.block_bytes()
            + self.filter.memory_bytes()
            + self.partition_bytes
    }

    /// The data block that the entry added last has closed, if it has: its offset in the table, and
    /// its stored bytes. Told once.
    pub fn take_closed_block(&mut self) -> Option<(u64, &[u8])> {
        let handle = self.closed.take()?;
        let start = usize::try_from(handle.offset.checked_sub(self.taken)?).ok()?;
        Some((handle.offset, self.out.get(start..start.checked_add(handle.length as usize)?)?))
    }

    /// The table's next bytes.
    pub fn take_output(&mut self) -> Bytes {
        self.closed = None;
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out).into()
    }

    /// Completes the table: its last bytes, and what it is. `None` when nothing was added.
    ///
    /// # Panics
    /// When the tail is larger than 4 GiB: the engine ends tables long before.
    pub fn finish(mut self) -> Option<(Bytes, TableSummary)> {
        self.take_waiting();
        if self.is_empty() {
            return None;
        }
        if !self.data.is_empty() {
            self.close_block();
        }
        self.index_pending(None);
        if !self.index.is_empty() {
            self.close_partition();
        }
        let data_end = self.position();
        self.put_partitions();
        let top = std::mem::take(&mut self.raw);
        let top_offset = self.position();
        self.put_ranges();
        self.raw = top;
        let top_index = self.seal_raw(Compression::None);
        if self.features & ENTRY_FEATURES_OPERANDS == 0 {
            self.properties.operator.clear();
        }
        self.properties.first_sequence = self.sequences.first.0;
        self.properties.last_sequence = self.sequences.last.0;
        self.properties.dictionary = Bytes::copy_from_slice(self.compressor.dictionary());
        if self.partition_entries.len() <= COUNTED_PARTITIONS_MAX {
            self.properties.partition_entries = std::mem::take(&mut self.partition_entries).into();
        }
        self.raw = self.properties.encode();
        let properties = self.seal_raw(Compression::None);
        let table_bytes = self.position() + FOOTER_BYTES as u64;
        let footer = Footer {
            identity: self.identity,
            table_bytes,
            data_end,
            top_index,
            properties_bytes: properties.length,
            features: self.features,
        };
        self.out.extend_from_slice(&footer.encode());
        let whole = u32::try_from(table_bytes - data_end).expect("a table's tail is below 4 GiB");
        let top = u32::try_from(table_bytes - top_offset).expect("a table's top is below 4 GiB");
        let (first_key, last_key, range_deletes) = self.bounds();
        let summary = TableSummary {
            table_bytes,
            tail_bytes: if whole <= TAIL_BYTES_MAX { whole } else { top },
            first_key,
            last_key,
            range_deletes,
            sequences: self.sequences,
            features: self.features,
            properties: self.properties,
            expiry: self.expiry,
        };
        Some((self.out.into(), summary))
    }

    /// Stores the range deletes, if there are any.
    fn put_ranges(&mut self) {
        let Some((first, last)) = self.ranges.numbers() else { return };
        self.sequences.first = self.sequences.first.min(first);
        self.sequences.last = self.sequences.last.max(last);
        self.features |= EntryKind::RangeDelete.feature();
        self.raw = self.ranges.encode().expect("their size was checked when they came");
        self.properties.ranges = Some(self.seal_raw(Compression::None));
    }

    /// Smallest and greatest key of entries and range deletes, and what there is of the latter.
    fn bounds(&mut self) -> (Bytes, Bytes, Option<RangeDeletes>) {
        let last_key = std::mem::take(&mut self.last_key);
        let Some((from, to)) = self.ranges.bounds() else {
            return (self.first_key.take().unwrap_or_default().into(), last_key.into(), None);
        };
        let ends_before_last = self.first_key.is_none() || *last_key < *to;
        let first_key = match self.first_key.take() {
            Some(first) if *first <= *from => first.into(),
            _ => Bytes::copy_from_slice(from),
        };
        let last_key = if ends_before_last { Bytes::copy_from_slice(to) } else { last_key.into() };
        let count = self.ranges.len() as u32;
        let bytes = self.ranges.encoded_bytes() as u32;
        (first_key, last_key, Some(RangeDeletes { count, bytes, ends_before_last }))
    }

    /// Offset in the table of the next byte of output.
    fn position(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// Where the next block will begin.
    fn place(&mut self) -> u64 {
        if self.out.capacity() == 0 {
            // A buffer that grows by doubling would be half empty.
            self.out.reserve_exact(self.options.output_capacity());
        }
        self.position()
    }

    /// Stores `raw` as the next block.
    fn seal_raw(&mut self, compression: Compression) -> BlockHandle {
        let offset = self.place();
        stored::seal(&mut self.compressor, compression, &self.raw, self.identity, offset, &mut self.out)
    }

    fn close_block(&mut self) {
        let last = self.data.last_key();
        self.last_trailer = last.trailer;
        self.last_key.clear();
        self.last_key.extend_from_slice(last.user_key);
        let values_end = self.data.finish_into(&mut self.raw);
        self.properties.data_blocks += 1;
        self.properties.raw_data_bytes += self.raw.len() as u64;
        let (offset, compression) = (self.place(), self.options.compression);
        let data = (&*self.raw, values_end);
        self.pending = Some(stored::seal_data(
            &mut self.compressor,
            compression,
            data,
            self.identity,
            offset,
            &mut self.out,
        ));
        self.closed = self.pending;
    }

    /// Puts the block that was closed last into the index; `next` is the first key after it.
    fn index_pending(&mut self, next: Option<InternalKey<'_>>) {
        let Some(handle) = self.pending.take() else { return };
        let last = InternalKey::new(&self.last_key, self.last_trailer);
        let trailer = match next {
            Some(next) => separator(last, next, &mut self.separator),
            None => {
                self.separator.clone_from(&self.last_key);
                Trailer::LAST
            }
        };
        self.index.add(InternalKey::new(&self.separator, trailer), &handle.encode());
        // The top index takes a separator of each partition, and is held in memory while the table
        // is open: long ones are few.
        let least = if self.separator.len() < LONG_SEPARATOR_BYTES {
            0
        } else {
            LONG_SEPARATORS_MIN * self.separator.len()
        };
        if self.index.block_bytes() >= self.options.partition_bytes.max(least)
            || self.filter.filter_bytes() >= PARTITION_FILTER_BYTES
        {
            self.close_partition();
        }
    }

    /// Ends the partition of index and filter. Its place is not known yet: only its raw bytes are
    /// kept.
    fn close_partition(&mut self) {
        let last = self.index.last_key();
        let (last_key, last_trailer) = (last.user_key.to_vec(), last.trailer);
        let (mut filter, mut index) =
            (Vec::with_capacity(self.filter.filter_bytes()), Vec::with_capacity(self.index.block_bytes()));
        let entries = self.properties.entries - self.counted;
        self.counted += entries;
        self.partition_entries.push(u32::try_from(entries).unwrap_or(u32::MAX));
        self.filter.finish_into(&mut filter);
        self.index.finish_into(&mut index);
        self.partition_bytes +=
            last_key.len() + filter.capacity() + index.capacity() + size_of::<Partition>();
        self.partitions.push(Partition { last_key, last_trailer, filter, index });
    }

    /// Stores all partitions, and leaves the top index in `raw`.
    fn put_partitions(&mut self) {
        let mut top = BlockBuilder::new();
        for partition in std::mem::take(&mut self.partitions) {
            let offset = self.position();
            let mut filter_bytes = 0;
            if !partition.filter.is_empty() {
                self.raw = partition.filter;
                filter_bytes = self.seal_raw(Compression::None).length;
            }
            self.raw = partition.index;
            let index_bytes = self.seal_raw(Compression::None).length;
            let handle = PartitionHandle { offset, filter_bytes, index_bytes };
            top.add(InternalKey::new(&partition.last_key, partition.last_trailer), &handle.encode());
        }
        top.finish_into(&mut self.raw);
    }
}
