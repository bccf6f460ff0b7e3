//! Point reads of several keys, in ascending order: what one key needed from memory serves the next, and what is not in memory is
//! fetched together, one vectored request for all partitions and one for all blocks of a table.

use tombolo_format::block::{Block, Within};
use tombolo_format::index::PartitionHandle;
use tombolo_format::key::Trailer;
use tombolo_format::stored::BlockHandle;
use tombolo_format::table::Partition;
use tombolo_storage::{Error, ErrorKind, Request, Result};

use super::{Hit, Lookup, Table, own};
use crate::cache::{Kept, Pinned, Resident};

/// Where the look-up before ended in a table.
#[derive(Debug, Default)]
pub struct Near {
    /// Invariant: all blocks before it end before the target of the look-up before.
    block: Option<Pinned>,
}

/// As [`super::Probe`], what was found already made into an answer.
#[derive(Debug)]
pub enum NearProbe<R> {
    /// The answer made of the newest visible entry of the key.
    Found(R),
    /// The table has no visible entry of the key.
    Absent,
    /// Something that is needed is not in memory.
    Miss,
}

impl Table {
    /// As [`Table::try_get`], for look-ups in ascending order that pass the same `near`. A key in the block of the one before costs a search in
    /// that block and nothing else.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn try_get_near<R>(
        &self,
        lookup: &Lookup<'_>,
        near: &mut Near,
        mut answer: impl FnMut(Trailer, &Block, &[u8]) -> R,
    ) -> Result<NearProbe<R>> {
        if let Some(block) = near.block.as_ref().and_then(Pinned::block) {
            match block.get_within(lookup.target).map_err(|error| self.damaged(error))? {
                Within::Found(entry) => return Ok(NearProbe::Found(answer(entry.trailer, block, entry.value))),
                Within::Absent => return Ok(NearProbe::Absent),
                Within::Beyond => {}
            }
        }
        if !self.covers(lookup.target.user_key) {
            return Ok(NearProbe::Absent);
        }
        let Some(opened) = self.opened.get() else { return Ok(NearProbe::Miss) };
        let Some(handle) = self.partition_for(&opened.top, lookup.target)? else { return Ok(NearProbe::Absent) };
        let Some(pinned) = self.cache.get(&self.key(handle.offset)) else { return Ok(NearProbe::Miss) };
        let Some(handle) = self.block_for(&opened.top, &pinned, handle, lookup)? else { return Ok(NearProbe::Absent) };
        let Some(pinned) = self.cache.get(&self.key(handle.offset)) else { return Ok(NearProbe::Miss) };
        let block = pinned.block().ok_or_else(|| self.not_a("data block", handle.offset))?;
        let found = block.get(lookup.target).map_err(|error| self.damaged(error.shifted(handle.offset)))?;
        let probe = found.map_or(NearProbe::Absent, |entry| NearProbe::Found(answer(entry.trailer, block, entry.value)));
        near.block = Some(pinned);
        Ok(probe)
    }

    /// Looks several keys up, in ascending order, and fetches what is not in memory: at most three requests, whatever their number.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns.
    pub async fn get_several(&self, request: Request, lookups: &[Lookup<'_>]) -> Result<Vec<Option<Hit>>> {
        let top = self.open(request).await?;
        let mut places: Vec<Option<PartitionHandle>> = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            places.push(if self.covers(lookup.target.user_key) { self.partition_for(top, lookup.target)? } else { None });
        }
        let partitions = self.partitions(request, &places).await?;
        let mut blocks: Vec<Option<BlockHandle>> = Vec::with_capacity(lookups.len());
        for (lookup, place) in lookups.iter().zip(&places) {
            let Some(place) = place else {
                blocks.push(None);
                continue;
            };
            let kept = of_offset(&partitions, place.offset).ok_or_else(|| self.not_a("partition", place.offset))?;
            blocks.push(self.block_for(top, &kept.clone().pin(), *place, lookup)?);
        }
        let residents = self.blocks(request, &blocks).await?;
        let mut hits = Vec::with_capacity(lookups.len());
        for (lookup, place) in lookups.iter().zip(&blocks) {
            hits.push(match place {
                None => None,
                Some(place) => {
                    let kept = of_offset(&residents, place.offset).ok_or_else(|| self.not_a("data block", place.offset))?;
                    self.hit(kept.clone().pin(), *place, lookup)?
                }
            });
        }
        Ok(hits)
    }

    /// The partitions at `places`, ascending by offset, each once.
    async fn partitions(&self, request: Request, places: &[Option<PartitionHandle>]) -> Result<Vec<(u64, Kept)>> {
        let mut wanted: Vec<PartitionHandle> = places.iter().flatten().copied().collect();
        wanted.dedup();
        let ranges = |handle: &PartitionHandle| (handle.offset, handle.offset + handle.length());
        self.residents(request, &wanted, ranges, |piece, handle| {
            let partition = Partition::decode(piece, handle.offset, *handle, self.description().identity);
            partition.map(Resident::Partition).map_err(|error| self.damaged(error))
        })
        .await
    }

    /// The data blocks at `places`, ascending by offset, each once.
    async fn blocks(&self, request: Request, places: &[Option<BlockHandle>]) -> Result<Vec<(u64, Kept)>> {
        let mut wanted: Vec<BlockHandle> = places.iter().flatten().copied().collect();
        wanted.dedup();
        let ranges = |handle: &BlockHandle| (handle.offset, handle.end());
        self.residents(request, &wanted, ranges, |piece, handle| self.decode_block(piece, handle.offset, *handle).map(Resident::Block))
            .await
    }

    /// What lies at `wanted`, from the cache or with one request for all that is not there.
    async fn residents<H>(
        &self,
        request: Request,
        wanted: &[H],
        place: impl Fn(&H) -> (u64, u64),
        decode: impl Fn(&bytes::Bytes, &H) -> Result<Resident>,
    ) -> Result<Vec<(u64, Kept)>> {
        let mut found = Vec::with_capacity(wanted.len());
        let (mut missing, mut ranges) = (Vec::new(), Vec::new());
        for handle in wanted {
            let (begin, end) = place(handle);
            match self.cache.get(&self.key(begin)) {
                Some(pinned) => found.push((begin, pinned.keep())),
                None => {
                    missing.push(handle);
                    ranges.push(self.description().offset + begin..self.description().offset + end);
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let pieces = self.store.read_ranges(request, &self.object, &ranges).await;
        let pieces = pieces.map_err(|error| if error.kind() == ErrorKind::NotFound { self.missing() } else { error })?;
        if pieces.len() != missing.len() {
            let message = format!("the store answered {} ranges with {} pieces", missing.len(), pieces.len());
            return Err(Error::new(ErrorKind::Bug, message).object(&self.object));
        }
        for (handle, piece) in missing.into_iter().zip(pieces) {
            let (begin, _) = place(handle);
            let resident = decode(&own(piece), handle)?;
            found.push((begin, self.cache.insert(self.key(begin), resident).keep()));
        }
        found.sort_unstable_by_key(|(offset, _)| *offset);
        Ok(found)
    }
}

fn of_offset(found: &[(u64, Kept)], offset: u64) -> Option<&Kept> {
    found.binary_search_by_key(&offset, |(offset, _)| *offset).ok().map(|index| &found[index].1)
}
