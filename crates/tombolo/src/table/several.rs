//! Point reads of several keys, in ascending order: what one key needed from memory serves the
//! next, and the rest is fetched together, one vectored request for all partitions and one for all
//! blocks of a table.

use std::sync::Arc;

use tombolo_env::{BoxFuture, all};
use tombolo_format::block::Within;
use tombolo_format::index::PartitionHandle;
use tombolo_format::key::Trailer;
use tombolo_format::stored::BlockHandle;
use tombolo_storage::{Error, ErrorKind, Request, Result};

use super::flight::Waiter;
use super::{Hit, Lookup, Place, Table};
use crate::cache::{BlockCache, Kept, Pinned};

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
    /// As [`Table::try_get`], for look-ups in ascending order that pass the same `near`. A key in
    /// the block of the one before costs a search in that block and nothing else.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn try_get_near<R>(
        &self,
        lookup: &Lookup<'_>,
        near: &mut Near,
        mut answer: impl FnMut(Trailer, &Pinned, &[u8]) -> R,
    ) -> Result<NearProbe<R>> {
        let Some(number) = self.number else { return self.try_get_near_own(lookup, near, answer) };
        let Some(own) = lookup.own(number) else { return Ok(NearProbe::Absent) };
        let answer =
            |trailer: Trailer, pinned: &Pinned, value: &[u8]| answer(trailer.at(number), pinned, value);
        self.try_get_near_own(&own, near, answer)
    }

    /// As [`Table::try_get_near`], by the numbers that its entries have.
    #[inline]
    fn try_get_near_own<R>(
        &self,
        lookup: &Lookup<'_>,
        near: &mut Near,
        mut answer: impl FnMut(Trailer, &Pinned, &[u8]) -> R,
    ) -> Result<NearProbe<R>> {
        if let Some(pinned) = &near.block
            && let Some(block) = pinned.block()
        {
            match block.get_within(lookup.target).map_err(|error| self.damaged(error))? {
                Within::Found(entry) => {
                    return Ok(NearProbe::Found(answer(entry.trailer, pinned, entry.value)));
                }
                Within::Absent => return Ok(NearProbe::Absent),
                Within::Beyond => {}
            }
        }
        if !self.covers(lookup.target.user_key) {
            return Ok(NearProbe::Absent);
        }
        let Some(opened) = self.opened.get() else { return Ok(NearProbe::Miss) };
        let Some((at, handle)) = opened.top.place_for(lookup.target) else { return Ok(NearProbe::Absent) };
        let Some(pinned) = self.partition(opened, at, handle) else { return Ok(NearProbe::Miss) };
        if !self.passes(&pinned, handle, lookup)? {
            return Ok(NearProbe::Absent);
        }
        let Some(handle) = self.block_for(&opened.top, &pinned, handle, lookup)? else {
            return Ok(NearProbe::Absent);
        };
        let Some(pinned) = self.cache.get(&self.key(handle.offset)) else { return Ok(NearProbe::Miss) };
        let block = pinned.block().ok_or_else(|| self.not_a("data block", handle.offset))?;
        let found = block.get(lookup.target).map_err(|error| self.damaged(error.shifted(handle.offset)))?;
        let probe = found
            .map_or(NearProbe::Absent, |entry| NearProbe::Found(answer(entry.trailer, &pinned, entry.value)));
        near.block = Some(pinned);
        Ok(probe)
    }

    /// Looks several keys up from one moment, in ascending order, and fetches those not in
    /// memory: at most three requests, whatever their number.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns.
    pub async fn get_several(
        self: &Arc<Self>,
        request: Request,
        lookups: &[Lookup<'_>],
    ) -> Result<Vec<Option<Hit>>> {
        let Some(number) = self.number else { return self.get_several_own(request, lookups).await };
        // All look from one moment: all of them see the table, or none does.
        let Some(own) = lookups.iter().map(|lookup| lookup.own(number)).collect::<Option<Vec<_>>>() else {
            return Ok(lookups.iter().map(|_| None).collect());
        };
        let hits = self.get_several_own(request, &own).await?;
        Ok(hits.into_iter().map(|hit| hit.map(|hit| hit.at(number))).collect())
    }

    /// As [`Table::get_several`], by the numbers that its entries have.
    async fn get_several_own(
        self: &Arc<Self>,
        request: Request,
        lookups: &[Lookup<'_>],
    ) -> Result<Vec<Option<Hit>>> {
        let top = self.open(request).await?;
        let mut places: Vec<Option<PartitionHandle>> = Vec::with_capacity(lookups.len());
        for lookup in lookups {
            places.push(if self.covers(lookup.target.user_key) {
                top.partition_for(lookup.target)
            } else {
                None
            });
        }
        let partitions =
            self.residents(request, places.iter().flatten().copied().map(Place::Partition)).await?;
        let mut blocks: Vec<Option<BlockHandle>> = Vec::with_capacity(lookups.len());
        let mut hits: Vec<Option<Hit>> = Vec::with_capacity(lookups.len());
        for (lookup, place) in lookups.iter().zip(&places) {
            let Some(place) = place else {
                blocks.push(None);
                hits.push(None);
                continue;
            };
            let kept =
                of_offset(&partitions, place.offset).ok_or_else(|| self.not_a("partition", place.offset))?;
            let pinned = kept.clone().pin();
            let passes = self.passes(&pinned, *place, lookup)?;
            let row = if passes { self.row(lookup) } else { None };
            blocks.push(if passes && row.is_none() {
                self.block_for(top, &pinned, *place, lookup)?
            } else {
                None
            });
            hits.push(row);
        }
        let residents = self.residents(request, blocks.iter().flatten().copied().map(Place::Block)).await?;
        for ((lookup, place), hit) in lookups.iter().zip(&blocks).zip(&mut hits) {
            let Some(place) = place else { continue };
            let kept =
                of_offset(&residents, place.offset).ok_or_else(|| self.not_a("data block", place.offset))?;
            *hit = self.hit(kept.clone().pin(), *place, lookup)?;
            self.keep_row(lookup, hit.as_ref());
        }
        Ok(hits)
    }

    /// Brings partitions, ascending by offset, into the cache: those that are not there with one
    /// request.
    pub(super) async fn bring_partitions(
        self: &Arc<Self>,
        request: Request,
        partitions: Vec<PartitionHandle>,
    ) -> Result<()> {
        self.residents(request, partitions.into_iter().map(Place::Partition)).await.map(drop)
    }

    /// What lies at `places`, ascending by offset, each once: from the cache, from requests under
    /// way, or with one request for all the rest.
    async fn residents(
        self: &Arc<Self>,
        request: Request,
        places: impl Iterator<Item = Place>,
    ) -> Result<Vec<(u64, Kept)>> {
        let mut wanted: Vec<Place> = places.collect();
        wanted.dedup();
        let mut found = Vec::with_capacity(wanted.len());
        let (mut missing, mut coming) = (Vec::new(), Vec::new());
        if let (Some(first), Some(last)) = (wanted.first(), wanted.last()) {
            self.note_wait(&(first.range().start..last.range().end));
        }
        for place in wanted {
            let begin = place.range().start;
            match self.cache.get(&self.key(begin)) {
                Some(pinned) => found.push((begin, pinned.keep())),
                None => match self.flights.join(begin) {
                    Some(waiter) => coming.push((place, waiter, true)),
                    // All of them are held together: in memory of the cache, which gives way for
                    // them one by one.
                    None => match self.load_held(request, place, BlockCache::memory)? {
                        Some(pinned) => found.push((begin, pinned.keep())),
                        None => missing.push(place),
                    },
                },
            }
        }
        if !missing.is_empty() {
            // Its own first: the others come by themselves meanwhile.
            let table = Arc::clone(self);
            let places: Arc<[Place]> = missing.into();
            let all = Arc::clone(&places);
            let fetched = Waiter::new(Box::pin(async move { table.fetch_several(request, &all).await }));
            let own = places.iter().enumerate().map(|(number, place)| {
                let fetched = fetched.clone();
                let fetch = async move { Ok(fetched.await?.get(number).cloned()) };
                let (waiter, is_anothers) = self.flights.join_or(place.range().start, fetch);
                (*place, waiter, is_anothers)
            });
            let own: Vec<_> = own.collect();
            coming.splice(0..0, own);
        }
        for (place, waiter, is_anothers) in coming {
            let begin = place.range().start;
            let kept = match waiter.await {
                // The deadline of the read that began it is not this one's.
                Err(error) if is_anothers && error.kind() == ErrorKind::DeadlineExceeded => {
                    Some(self.load(request, place).await?.keep())
                }
                ended => ended?,
            };
            found.push((begin, kept.ok_or_else(|| self.not_a("block or partition", begin))?));
        }
        found.sort_unstable_by_key(|(offset, _)| *offset);
        Ok(found)
    }

    /// Fetches what lies at `places`: from the flash cache what it has, with one request all else.
    async fn fetch_several(&self, request: Request, places: &[Place]) -> Result<Arc<[Kept]>> {
        let mut kept = self.flashed(places).await;
        let missing: Vec<Place> =
            kept.iter().zip(places).filter_map(|(kept, place)| kept.is_none().then_some(*place)).collect();
        if missing.is_empty() {
            return Ok(kept.into_iter().flatten().collect());
        }
        let base = self.description().offset;
        let ranges: Vec<_> =
            missing.iter().map(|place| base + place.range().start..base + place.range().end).collect();
        let pieces = self.store.read_ranges(request, &self.object, &ranges).await;
        let pieces = pieces
            .map_err(|error| if error.kind() == ErrorKind::NotFound { self.missing() } else { error })?;
        if pieces.len() != missing.len() {
            let message = format!("the store answered {} ranges with {} pieces", missing.len(), pieces.len());
            return Err(Error::new(ErrorKind::Bug, message).object(&self.object));
        }
        let absent = kept.iter_mut().filter(|kept| kept.is_none());
        for ((kept, piece), place) in absent.zip(pieces).zip(missing) {
            *kept = Some(self.take_in(&piece, place.range().start, place)?.keep());
            self.offer(request, place, &piece);
        }
        Ok(kept.into_iter().flatten().collect())
    }

    /// What the flash cache has of `places`.
    async fn flashed(&self, places: &[Place]) -> Vec<Option<Kept>> {
        if self.flash.is_none() {
            return vec![None; places.len()];
        }
        let look = |place: &Place| -> BoxFuture<'_, Option<Kept>> {
            let place = *place;
            Box::pin(async move { self.load_flashed(place).await.map(Pinned::keep) })
        };
        all(places.iter().map(look).collect(), FLASH_READS_MAX).await
    }
}

/// Reads of the flash cache at once, of one multi-get in one table.
const FLASH_READS_MAX: usize = 32;

fn of_offset(found: &[(u64, Kept)], offset: u64) -> Option<&Kept> {
    found.binary_search_by_key(&offset, |(offset, _)| *offset).ok().map(|index| &found[index].1)
}
