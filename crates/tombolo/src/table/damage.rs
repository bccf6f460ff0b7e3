//! Whether a table is sound, and all that is damaged in it, not only the first.
//!
//! Read in pieces: beside the table's tail, which holds indexes and filters, one piece and one
//! block are in memory, and charged.

use std::ops::Range;

use bytes::Bytes;
use tombolo_format::FormatError;
use tombolo_format::block::Cursor;
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::key::{InternalKey, SequenceNumber};
use tombolo_format::stored::{BLOCK_BYTES_MAX, BlockHandle};
use tombolo_format::table::{Partition, Top, Verification, raw_bytes_within};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, Request, Result};

use super::Table;
use crate::budget::{Category, Charge, MemoryBudget};

/// Damages of one table that are told; more would say nothing new.
const DAMAGES_MAX: usize = 256;

/// Bytes read at once, unless one block has more; of a small memory budget a part.
const PIECE_BYTES: Range<u64> = 64 << 10..1 << 20;
const PIECE_PART: u64 = 32;

/// Bytes read at once of a table that is read once, under a memory budget.
fn piece_bytes(budget: &MemoryBudget) -> u64 {
    (budget.bytes() / PIECE_PART).clamp(PIECE_BYTES.start, PIECE_BYTES.end)
}

/// Bytes of a table, of which some are in memory.
pub(super) struct Pieces<'a> {
    table: &'a Table,
    request: Request,
    bytes: Bytes,
    offset: u64,
    charge: Option<Charge>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(table: &'a Table, request: Request) -> Pieces<'a> {
        Pieces { table, request, bytes: Bytes::new(), offset: 0, charge: None }
    }

    /// A piece that holds a block, and where it begins; blocks are asked for in ascending order.
    pub(super) async fn around(&mut self, handle: BlockHandle, data_end: u64) -> Result<(&Bytes, u64)> {
        if handle.offset < self.offset || handle.end() > self.offset + self.bytes.len() as u64 {
            let budget = self.table.cache.budget();
            // Given back before the next one is read.
            (self.bytes, self.charge) = (Bytes::new(), None);
            let end = handle.end().max(handle.offset.saturating_add(piece_bytes(budget)).min(data_end));
            let charge = budget.charge(Category::Scans, end - handle.offset);
            self.bytes = self.table.read(self.request, handle.offset..end).await?;
            (self.offset, self.charge) = (handle.offset, Some(charge));
        }
        Ok((&self.bytes, self.offset))
    }
}

impl Table {
    /// By the table's description keys are counted without a look at it, but where it says that
    /// there are range deletes: tables from outside said so of those once.
    pub(super) fn check_one_each(&self, top: &Top) -> Result<()> {
        let (values, entries, ranges) = (top.properties.values, top.properties.entries, top.ranges.len());
        let is_said = self.description.is_one_each();
        if !is_said || (values == entries && ranges == 0) || is_enabled(Mutant::OneEachUnchecked) {
            return Ok(());
        }
        Err(Error::corrupt(
            &self.object,
            self.description.offset + self.description.length,
            "a value of a key of its own in each entry, as its description says",
            format!("{entries} entries, {values} of them such values; {ranges} range deletes"),
        ))
    }

    /// Footer, top index, properties and partitions: the table's last bytes, where they begin, and
    /// the first three decoded.
    pub(super) async fn tail(&self, request: Request) -> Result<(Bytes, u64, Top, Charge)> {
        let length = self.description.length;
        let mut at = length.saturating_sub(u64::from(self.description.tail_bytes));
        let mut charge = self.cache.budget().charge(Category::Scans, length - at);
        let mut tail = self.read(request, at..length).await?;
        let top = self.decode_top(&tail)?;
        if top.footer.data_end < at {
            at = top.footer.data_end;
            charge.grow(length - at - tail.len() as u64);
            tail = self.read(request, at..length).await?;
        }
        Ok((tail, at, top, charge))
    }

    /// Reads the whole table and checks every byte: checksums, order, filters, counts. One request
    /// for each MiB, and memory for that, or for the largest block.
    ///
    /// # Errors
    /// `Corrupt` for the first damage found; `Unsupported`; what the store returns.
    pub async fn verify(&self, request: Request) -> Result<()> {
        let (tail, at, top, _charge) = self.tail(request).await?;
        let mut verification = Verification::new(&tail, at, &top).map_err(|error| self.damaged(error))?;
        let (mut pieces, mut first) = (Pieces::new(self, request), None);
        while let Some(handle) = verification.next_block().map_err(|error| self.damaged(error))? {
            let (piece, offset) = pieces.around(handle, top.footer.data_end).await?;
            let _decoded = self.charge_decoded(piece, offset, handle);
            let each = |key: InternalKey<'_>, _: &[u8]| {
                if self.number.is_some() && key.trailer.sequence() != SequenceNumber::ZERO {
                    let found = format!("{}", key.trailer.sequence().0);
                    return Err(FormatError::damaged(0, "an entry without a number of its own", found));
                }
                first.get_or_insert_with(|| key.user_key.to_vec());
                Ok(())
            };
            verification.take(handle, piece, offset, each).map_err(|error| self.damaged(error))?;
        }
        let first_fits = match first.as_deref() {
            // Its first key may be that of a range delete.
            _ if !top.ranges.is_empty() => first.as_ref().is_none_or(|first| self.covers(first)),
            first => first == Some(&*self.description.first_key),
        };
        if top.properties.entries != self.description.entries || !first_fits {
            let expected =
                format!("{} entries from {:?}", self.description.entries, self.description.first_key);
            let found = format!("{} from {first:?}", top.properties.entries);
            return Err(Error::corrupt(&self.object, self.description.offset, expected, found));
        }
        Ok(())
    }

    /// What a block takes that lies in `piece` once it is decompressed, charged before it is.
    pub(super) fn charge_decoded(&self, piece: &Bytes, offset: u64, handle: BlockHandle) -> Charge {
        let bytes = raw_bytes_within(piece, offset, handle).unwrap_or(0);
        // What says how much that is was not checked yet.
        let bytes = bytes.min(BLOCK_BYTES_MAX) as u64;
        self.cache.budget().charge(Category::Scans, bytes)
    }

    /// Reads the whole table and tells everything that is damaged in it, block by block; nothing
    /// when it is sound.
    ///
    /// # Errors
    /// What the store returns, damage excepted.
    pub async fn damages(&self, request: Request) -> Result<Vec<Error>> {
        use tombolo_storage::ErrorKind::{Corrupt, NotFound, Unsupported};
        let first = match self.verify(request).await {
            Ok(()) => return Ok(Vec::new()),
            Err(error) if matches!(error.kind(), Corrupt | NotFound | Unsupported) => error,
            Err(error) => return Err(error),
        };
        // Without its index nothing else can be found.
        let Ok((tail, at, top, _charge)) = self.tail(request).await else { return Ok(vec![first]) };
        let mut damages = Vec::new();
        self.damages_of_blocks(request, (&tail, at), &top, &mut damages).await;
        if damages.is_empty() {
            damages.push(first);
        }
        damages.truncate(DAMAGES_MAX);
        Ok(damages)
    }

    /// Looks at each block by itself.
    async fn damages_of_blocks(
        &self,
        request: Request,
        (tail, tail_at): (&Bytes, u64),
        top: &Top,
        damages: &mut Vec<Error>,
    ) {
        let at = top.footer.top_index.offset;
        let (mut partitions, mut pieces) = (Cursor::new(), Pieces::new(self, request));
        let mut sound = partitions.first(&top.index);
        while sound.is_ok() && partitions.valid() && damages.len() < DAMAGES_MAX {
            match PartitionHandle::decode(partitions.value(&top.index), at) {
                Err(error) => damages.push(self.damaged(error.shifted(at))),
                Ok(handle) => match Partition::decode(tail, tail_at, handle, top.footer.identity) {
                    Err(error) => damages.push(self.damaged(error)),
                    Ok(partition) => {
                        self.data_blocks(&mut pieces, top, &partition, handle.index().offset, damages).await;
                    }
                },
            }
            sound = partitions.next(&top.index);
        }
        if let Err(error) = sound {
            damages.push(self.damaged(error.shifted(at)));
        }
    }

    async fn data_blocks(
        &self,
        pieces: &mut Pieces<'_>,
        top: &Top,
        partition: &Partition,
        at: u64,
        damages: &mut Vec<Error>,
    ) {
        let mut blocks = Cursor::new();
        let mut sound = blocks.first(&partition.index);
        while sound.is_ok() && blocks.valid() && damages.len() < DAMAGES_MAX {
            match decode_block_handle(blocks.value(&partition.index), top.footer.data_end) {
                Err(error) => damages.push(self.damaged(error.shifted(at))),
                Ok(handle) => match pieces.around(handle, top.footer.data_end).await {
                    Err(error) => damages.push(error),
                    Ok((piece, offset)) => {
                        let _decoded = self.charge_decoded(piece, offset, handle);
                        match self.decode_block(piece, offset, handle, top.dictionary.as_ref()) {
                            Err(error) => damages.push(error),
                            Ok(block) => {
                                damages.extend(
                                    block
                                        .verify(|_, _| Ok(()))
                                        .err()
                                        .map(|error| self.damaged(error.shifted(handle.offset))),
                                );
                            }
                        }
                    }
                },
            }
            sound = blocks.next(&partition.index);
        }
        if let Err(error) = sound {
            damages.push(self.damaged(error.shifted(at)));
        }
    }
}
