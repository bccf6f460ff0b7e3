//! Writes a table: entries in order → a stream of bytes → an object. Flush and compaction, the step
//! before the manifest.
//!
//! ```text
//! TableWriter::create → add … (flush when it asks for it) → finish → TableDescription
//! ```
//!
//! Memory: one data block, a piece of output and the one that the store holds, and the table's
//! filters and index. Nothing is visible before `finish` returned; dropping the writer leaves
//! nothing.

use std::sync::Arc;

use tombolo_format::FormatError;
use tombolo_format::checksum::{entry_hash, mix64};
use tombolo_format::cold::{EIGHTHS, PROPERTY_EIGHTHS, encode_eighths};
use tombolo_format::expiry::{Expiry, PROPERTY_EXPIRY};
use tombolo_format::flash::FlashKey;
use tombolo_format::key::{InternalKey, SequenceNumber, kind_name};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::property::{
    PROPERTY_ENTRY_SUM, PROPERTY_ONE_EACH, PROPERTY_RANGE_DELETES, Property, PropertyList, RangeDeletes,
};
use tombolo_format::ranges::RangeLayers;
use tombolo_format::table::{TableBuilder, TableOptions};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, ObjectWriter, Placement, Request, Result,
};

use crate::collector::{Collecting, PROPERTY};
use crate::flash::FlashCache;

/// Output is handed to the store in pieces of this size; of a small memory budget in smaller ones.
const PIECE_BYTES: u64 = 256 << 10;
/// Below it, a write costs more than it brings.
const PIECE_BYTES_MIN: u64 = 16 << 10;
/// A piece has at most so much of the budget: flushes and compactions run side by side, with two
/// pieces each.
const PIECE_PART: u64 = 64;

/// Size of the pieces in which a table is written, under a memory budget of so many bytes.
pub fn piece_bytes(budget_bytes: u64) -> usize {
    usize::try_from((budget_bytes / PIECE_PART).clamp(PIECE_BYTES_MIN, PIECE_BYTES)).unwrap_or(usize::MAX)
}

/// What a new table will be.
#[derive(Clone, Debug)]
pub struct NewTable {
    /// Its fresh name {epoch, random}, never used before (rule 6).
    pub name: TableName,
    /// The object that will hold it.
    pub object: ObjectName,
    /// Fresh randomness, mixed into its checksums. Not derived from the name: an object with the
    /// right name and wrong bytes is caught.
    pub identity: u64,
    /// The level it is written for.
    pub level: u8,
    /// How it is built. `keyspace` and `oldest_unix_seconds` go into the description.
    pub options: TableOptions,
}

/// A table that is being written.
#[derive(Debug)]
pub struct TableWriter {
    new: NewTable,
    builder: TableBuilder,
    object: Box<dyn ObjectWriter>,
    hot: Option<Hot>,
    collecting: Option<Collecting>,
    /// Of the entries' hashes, where it is wanted.
    sum: Option<u64>,
    /// Of the entries' sequence numbers, where it is wanted.
    eighths: Option<Eighths>,
}

/// Sequence numbers of entries, a few hundred of them. Hashes of their places choose: a pattern of
/// the keys, such as each fourth being old, has no part in it.
#[derive(Debug, Default)]
struct Eighths {
    /// With the hashes of their places.
    kept: Vec<(u64, u64)>,
    seen: u64,
    /// One in two to the power of so many entries is kept.
    skipped: u32,
}

/// Most numbers that are kept for that.
const EIGHTHS_KEPT_MAX: usize = 512;

impl Eighths {
    #[inline]
    fn add(&mut self, number: u64) {
        let place = mix64(self.seen);
        self.seen += 1;
        if self.is_kept(place) {
            self.keep(place, number);
        }
    }

    fn is_kept(&self, place: u64) -> bool {
        place & ((1 << self.skipped) - 1) == 0
    }

    #[cold]
    fn keep(&mut self, place: u64, number: u64) {
        while self.kept.len() == EIGHTHS_KEPT_MAX {
            self.skipped += 1;
            let mut kept = std::mem::take(&mut self.kept);
            kept.retain(|(_, place)| self.is_kept(*place));
            self.kept = kept;
        }
        if self.is_kept(place) {
            self.kept.push((number, place));
        }
    }

    /// `None` of a table without entries.
    fn finish(mut self) -> Option<[u64; EIGHTHS]> {
        self.kept.sort_unstable();
        let last = self.kept.len().checked_sub(1)?;
        Some(std::array::from_fn(|eighth| self.kept[(eighth + 1) * last / (EIGHTHS + 1)].0))
    }
}

/// Puts blocks of the table into the flash cache where what they were made of was in a cache. The
/// last block of a table is left out.
#[derive(Debug)]
struct Hot {
    flash: Arc<FlashCache>,
    table: TableName,
    /// Bytes of the open block's entries, and of those of them that came out of a cached block.
    bytes: usize,
    hot_bytes: usize,
    /// A block entered: the tail, without which none is found, is worth it too.
    entered: bool,
}

impl Hot {
    /// The open block was closed.
    fn close(&mut self, offset: u64, stored: &[u8]) {
        if self.hot_bytes * 2 > self.bytes && !is_enabled(Mutant::FlashIgnoresHeat) {
            self.flash.admit(FlashKey { table: self.table, offset }, stored);
            self.entered = true;
        }
        (self.bytes, self.hot_bytes) = (0, 0);
    }
}

impl TableWriter {
    /// Begins the object.
    ///
    /// # Errors
    /// What the store returns.
    pub async fn create(store: &dyn ObjectStore, request: Request, new: NewTable) -> Result<TableWriter> {
        let life = match new.level {
            0 => Life::Short,
            1..=3 => Life::Medium,
            _ => Life::Long,
        };
        let placement = Placement { level: new.level, ..Placement::new(ObjectKind::Table, life) };
        let object = store.create(request, &new.object, placement).await?;
        let builder = TableBuilder::new(new.options, new.identity);
        Ok(TableWriter { new, builder, object, hot: None, collecting: None, sum: None, eighths: None })
    }

    /// Puts blocks into `flash` where most of their bytes came out of cached blocks:
    /// [`TableWriter::add_from`] says so.
    #[must_use]
    pub fn with_flash(self, flash: Option<Arc<FlashCache>>) -> TableWriter {
        let table = self.new.name;
        let hot = flash.map(|flash| Hot { flash, table, bytes: 0, hot_bytes: 0, entered: false });
        TableWriter { hot, ..self }
    }

    /// Shows these collectors its entries.
    #[must_use]
    pub fn with_collecting(self, collecting: Option<Collecting>) -> TableWriter {
        TableWriter { collecting, ..self }
    }

    /// Has the table say which merge operator its operands are for, if it gets any.
    #[must_use]
    pub fn with_operator(mut self, operator: Option<String>) -> TableWriter {
        if let Some(operator) = operator {
            self.builder.set_operator(operator);
        }
        self
    }

    /// Has the description say the sum of its entries' hashes.
    #[must_use]
    pub fn with_sum(self, is_wanted: bool) -> TableWriter {
        TableWriter { sum: is_wanted.then_some(0), ..self }
    }

    /// Has the description say which sequence numbers cut its entries into eighths.
    #[must_use]
    pub fn with_eighths(self, is_wanted: bool) -> TableWriter {
        TableWriter { eighths: is_wanted.then(Eighths::default), ..self }
    }

    /// As [`TableWriter::add`]; `is_hot` says that the entry came out of a block that a cache had.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn add_from(&mut self, key: InternalKey<'_>, value: &[u8], is_hot: bool) -> Result<()> {
        self.add(key, value)?;
        let Some(hot) = &mut self.hot else { return Ok(()) };
        if let Some((offset, stored)) = self.builder.take_closed_block() {
            hot.close(offset, stored);
        }
        let bytes = key.user_key.len() + value.len();
        hot.bytes += bytes;
        hot.hot_bytes += if is_hot { bytes } else { 0 };
        Ok(())
    }

    /// Adds the next entry, in memory. When [`TableWriter::wants_flush`] says so afterwards, flush.
    ///
    /// # Errors
    /// `Invalid` for a key or value beyond the limits; `Unsupported` for an entry of a kind that
    /// only a newer version knows.
    ///
    /// # Panics
    /// When the entry does not come after the last one: a bug of the caller.
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        // A compaction hands on what its inputs hold; a newer version may have written them.
        let Some(kind) = key.trailer.kind() else {
            let unknown = format!("an entry of kind {}", kind_name(key.trailer.kind_byte()));
            return Err(Error::format(&self.new.object, 0, FormatError::newer(0, unknown)));
        };
        self.builder
            .add(key.user_key, key.trailer.sequence(), kind, value)
            .map_err(|error| Error::format(&self.new.object, 0, error))?;
        if let Some(collecting) = &mut self.collecting {
            collecting.add(key, value);
        }
        if let Some(sum) = &mut self.sum {
            *sum = sum.wrapping_add(entry_hash(key.user_key, key.trailer.0, value));
        }
        if let Some(eighths) = &mut self.eighths {
            eighths.add(key.trailer.sequence().0);
        }
        Ok(())
    }

    /// Gives the table its range deletes, once.
    ///
    /// # Errors
    /// `Invalid` when they are more than a table takes.
    pub fn set_ranges(&mut self, ranges: RangeLayers) -> Result<()> {
        self.builder.set_ranges(ranges).map_err(|error| Error::format(&self.new.object, 0, error))
    }

    /// Whether enough output waits to be handed to the store.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        self.builder.wants_output_taken()
    }

    /// Bytes that [`TableWriter::flush`] would hand to the store.
    pub fn pending_bytes(&self) -> u64 {
        self.builder.output_bytes() as u64
    }

    /// Bytes of memory that it takes, those on their way to the store included.
    pub fn memory_bytes(&self) -> u64 {
        self.builder.memory_bytes() as u64
    }

    /// Hands the output so far to the store.
    ///
    /// # Errors
    /// What the store returns: the table is lost, begin again under a fresh name.
    pub async fn flush(&mut self) -> Result<()> {
        if self.builder.output_bytes() > 0 {
            self.object.append(self.builder.take_output()).await?;
        }
        Ok(())
    }

    /// Bytes so far, for deciding when the table is large enough.
    pub fn table_bytes(&self) -> u64 {
        self.builder.table_bytes()
    }

    /// Completes the object: it is durable when this returns. `None`, and no object, when nothing
    /// was added.
    ///
    /// # Errors
    /// What the store returns: the table is lost, begin again under a fresh name.
    pub async fn finish(mut self) -> Result<Option<TableDescription>> {
        self.flush().await?;
        let Some((end, summary)) = self.builder.finish() else { return Ok(None) };
        if let Some(hot) = self.hot.filter(|hot| hot.entered)
            && let Some(start) = end.len().checked_sub(summary.tail_bytes as usize)
        {
            hot.flash.admit(FlashKey { table: hot.table, offset: FlashKey::TAIL }, &end[start..]);
        }
        self.object.append(end).await?;
        let info = self.object.finish().await?;
        if info.length != summary.table_bytes {
            let (expected, found) = (format!("an object of {} bytes", summary.table_bytes), info.length);
            return Err(Error::new(ErrorKind::Corrupt, "the store kept another length")
                .object(info.name)
                .expected(expected)
                .found(found));
        }
        let NewTable { name, identity, level, options, .. } = self.new;
        let ranges = summary.range_deletes.map(RangeDeletes::encode);
        let ranges =
            ranges.as_ref().map(|value| Property { id: PROPERTY_RANGE_DELETES, is_critical: true, value });
        let expiry = summary.expiry.map(|expiry| {
            if is_enabled(Mutant::ExpiryOfTableTooEarly) {
                Expiry { latest_ms: expiry.earliest_ms, ..expiry }
            } else {
                expiry
            }
        });
        let expiry = expiry.map(Expiry::encode);
        let expiry = expiry.as_ref().map(|value| Property { id: PROPERTY_EXPIRY, is_critical: true, value });
        let collected = self.collecting.and_then(Collecting::finish);
        let collected = collected.as_ref().map(|value| Property { id: PROPERTY, is_critical: false, value });
        let sum = self.sum.map(u64::to_le_bytes);
        let sum = sum.as_ref().map(|value| Property { id: PROPERTY_ENTRY_SUM, is_critical: false, value });
        let eighths = self.eighths.and_then(Eighths::finish).map(encode_eighths);
        let eighths =
            eighths.as_ref().map(|value| Property { id: PROPERTY_EIGHTHS, is_critical: false, value });
        let one_each = Property { id: PROPERTY_ONE_EACH, is_critical: false, value: &[] };
        let one_each = summary.is_one_each().then_some(one_each);
        let properties = ranges.into_iter().chain(expiry).chain(sum).chain(collected).chain(eighths);
        let properties = properties.chain(one_each);
        let properties = PropertyList::of(properties);
        Ok(Some(TableDescription {
            name,
            offset: 0,
            length: summary.table_bytes,
            identity,
            keyspace: options.keyspace,
            level,
            first_key: summary.first_key,
            last_key: summary.last_key,
            first_sequence: SequenceNumber(summary.properties.first_sequence),
            last_sequence: SequenceNumber(summary.properties.last_sequence),
            entries: summary.properties.entries,
            deletes: summary.properties.deletes,
            tail_bytes: summary.tail_bytes,
            oldest_unix_seconds: options.oldest_unix_seconds,
            features: summary.features,
            properties,
            source: None,
        }))
    }
}
