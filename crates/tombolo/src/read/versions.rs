//! The slow path of reads: all versions of one key, newest first, over memtables and tables, until
//! they have an answer.
//!
//! Puts and deletes are answered without it. It begins anew at the newest version whenever a read
//! meets an entry that alone says nothing, or memory cannot go on: over the same view and moment it
//! meets the same entries, so that none is lost on the way.
//!
//! Invariant: a version is looked for below the one before. Of two entries with one number, which a
//! source might hold beside another, the second is never taken.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use super::{
    Asked, Cover, InMemory, MEMTABLE, candidates, cover_of, hides_hit, open_for_ranges, open_together,
};
use crate::engine::View;
use crate::memtable::{Joined, Memtable};
use crate::resolve::{Answer, Fold, Judge, OperandEnds, operand_times};
use crate::table::{Hit, Lookup, Probe};
use crate::version::TableHandle;

/// A walk over so many entries of a memtable leaves their operands joined. In tests, whose chains
/// are short, after few.
const JOINED_FROM: u32 = if cfg!(test) { 2 } else { 16 };

/// A value, and when it expires if it does.
pub(super) type Ending = (Bytes, Option<u64>);

/// A walk over the versions of one key.
struct Walk<'a> {
    lookup: Lookup<'a>,
    judge: Judge,
    fold: Fold,
}

impl<'a> Walk<'a> {
    fn new(asked: Asked<'_>, lookup: &Lookup<'a>) -> Walk<'a> {
        Walk { lookup: *lookup, judge: asked.judge(), fold: Fold::default() }
    }

    /// Takes a version; says whether it was the last one needed.
    fn take(
        &mut self,
        trailer: Trailer,
        stored: &[u8],
        kept: impl FnOnce() -> Bytes,
        place: impl FnOnce() -> String,
    ) -> Result<bool> {
        let key = self.lookup.target.user_key;
        let answer = self.fold.feed(&self.judge, key, trailer, stored, kept, place)?;
        let Some(older) = trailer.sequence().0.checked_sub(1) else { return Ok(true) };
        self.lookup.target = InternalKey::new(key, Trailer::seek(SequenceNumber(older)));
        Ok(!matches!(answer, Answer::More | Answer::Fold))
    }

    /// Takes a version from a table as far as memory has its value; `None`: it has not.
    fn take_in_memory(&mut self, table: &TableHandle, hit: &Hit) -> Result<Option<bool>> {
        let Some((reference, end)) = self.fold.apart(&self.judge, hit.trailer, hit.value()) else {
            return self.take_hit(table, hit).map(Some);
        };
        let value = table.value_in_memory(self.lookup.target.user_key, reference)?;
        Ok(value.map(|value| self.take_value(value, end)))
    }

    /// The same, wherever its value lies.
    async fn take_anywhere(&mut self, table: &TableHandle, hit: Hit) -> Result<bool> {
        let Some((reference, end)) = self.fold.apart(&self.judge, hit.trailer, hit.value()) else {
            return self.take_hit(table, &hit);
        };
        let value = table.value(Purpose::Get, self.lookup.target.user_key, reference).await?;
        Ok(self.take_value(value, end))
    }

    /// Takes a value that lay apart: the last version that is needed.
    fn take_value(&mut self, value: Bytes, end: Option<u64>) -> bool {
        self.fold.feed_value(value, end);
        true
    }

    fn take_hit(&mut self, table: &TableHandle, hit: &Hit) -> Result<bool> {
        self.take(hit.trailer, hit.value(), || hit.to_value(), || table.object().to_string())
    }

    /// Walks the memtables; says whether that was enough.
    fn memtables(&mut self, view: &View, asked: Asked<'_>) -> Result<bool> {
        for memtable in view.memtables() {
            let key = self.lookup.target.user_key;
            let cover = Cover(memtable.covering(asked.keyspace.id, key, asked.sequence));
            // Below a range delete there is nothing.
            if self.memtable(memtable, asked.keyspace.id, cover)? || cover.is_there() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Walks a memtable; says whether that was enough. Operands that a read before has joined are
    /// taken as one, and those of a long walk are left joined for the next.
    fn memtable(&mut self, memtable: &Memtable, keyspace: u32, cover: Cover) -> Result<bool> {
        let (key, hash) = (self.lookup.target.user_key, self.lookup.hash);
        let joined = memtable.joined(keyspace, key, hash);
        // Those that a range delete has taken away in part are walked over.
        let joined = joined.filter(|joined| cover.0.is_none_or(|number| number < joined.oldest));
        let (held, mut walked) = (self.fold.operands(), 0);
        let mut chain: Option<(SequenceNumber, SequenceNumber)> = None;
        let mut ends = OperandEnds::default();
        let mut go_on = true;
        let mut is_done = false;
        while std::mem::take(&mut go_on) {
            let below = self.lookup.target.trailer.sequence();
            is_done = memtable.versions(keyspace, key, hash, below, |entry| {
                let number = entry.trailer.sequence();
                if cover.hides(entry.trailer) {
                    return Ok(true);
                }
                walked += 1;
                let here = joined.as_ref().filter(|joined| {
                    number == joined.newest
                        || is_enabled(Mutant::JoinedOperandsSeenBefore)
                            && (joined.oldest..joined.newest).contains(&number)
                });
                if let Some(joined) = here {
                    let taken = Trailer::new(joined.oldest, joined.kind);
                    let before = self.fold.operands();
                    let kept = || joined.operand.clone();
                    let is_done = self.take(taken, &joined.operand, kept, || MEMTABLE.to_owned())?;
                    if self.fold.operands() > before {
                        chain = Some((chain.map_or(joined.newest, |(newest, _)| newest), joined.oldest));
                        ends.push(operand_times(taken, &joined.operand));
                    }
                    go_on = !is_done;
                    return Ok(true);
                }
                let before = self.fold.operands();
                let kept = || Bytes::copy_from_slice(entry.value);
                let is_done = self.take(entry.trailer, entry.value, kept, || MEMTABLE.to_owned())?;
                if self.fold.operands() > before {
                    chain = Some((chain.map_or(number, |(newest, _)| newest), number));
                    ends.push(operand_times(entry.trailer, entry.value));
                }
                Ok(is_done)
            })?;
        }
        if walked >= JOINED_FROM
            && let Some((newest, oldest)) = chain.filter(|_| self.fold.operands() > held)
            && let Some(operand) = self.fold.joined_after(held, &self.judge, key)
            && let Some((trailer, operand)) = ends.entry(newest, operand, false)
            && let Some(kind) = trailer.kind()
        {
            memtable.keep_joined(keyspace, key, hash, Joined { newest, oldest, kind, operand });
        }
        Ok(is_done)
    }

    fn finish(self) -> Result<Option<Ending>> {
        let expires_ms = self.fold.expires_ms();
        let value = self.fold.finish(&self.judge, self.lookup.target.user_key)?;
        Ok(value.map(|value| (value, expires_ms)))
    }
}

/// The newest version of the key that is seen and lies in a memtable.
pub(super) fn newest_in_memtables(view: &View, asked: Asked<'_>, lookup: &Lookup<'_>) -> Option<Trailer> {
    let key = lookup.target.user_key;
    let newest = |memtable: &Arc<Memtable>| {
        memtable.get(asked.keyspace.id, key, lookup.hash, asked.sequence, |entry| entry.trailer)
    };
    view.memtables().find_map(newest)
}

/// Reads the key in memory; `read` makes the answer of its value, and does not run on a miss.
#[cold]
pub(super) fn get_in_memory<R>(
    view: &View,
    asked: Asked<'_>,
    lookup: &Lookup<'_>,
    read: impl FnMut(Ending) -> Option<R>,
) -> Result<InMemory<R>> {
    get_from_met(view, asked, lookup, None, read)
}

/// The same, from where its newest version was met: in the table after so many candidates. Nothing
/// of the key, nor a range delete over it, is in memtables and in those before.
#[cold]
pub(super) fn get_from_met<R>(
    view: &View,
    asked: Asked<'_>,
    lookup: &Lookup<'_>,
    met: Option<(usize, Hit)>,
    mut read: impl FnMut(Ending) -> Option<R>,
) -> Result<InMemory<R>> {
    let mut walk = Walk::new(asked, lookup);
    let (passed, mut met) = met.map_or((0, None), |(passed, hit)| (passed, Some(hit)));
    if (met.is_some() || !walk.memtables(view, asked)?)
        && let Some(levels) = view.version.levels(asked.keyspace.id)
    {
        'tables: for table in candidates(levels, lookup.target.user_key).skip(passed) {
            let key = lookup.target.user_key;
            let Some(cover) = cover_of(table, key, asked.sequence) else { return Ok(InMemory::Miss) };
            let mut probe = match met.take() {
                Some(hit) => Probe::Found(hit),
                None => table.probe(&walk.lookup)?,
            };
            loop {
                let hit = match probe {
                    Probe::Absent if cover.is_there() => break 'tables,
                    Probe::Absent => break,
                    Probe::Miss => return Ok(InMemory::Miss),
                    Probe::Found(hit) if hides_hit(cover, &hit) => break 'tables,
                    Probe::Found(hit) => hit,
                };
                match walk.take_in_memory(table, &hit)? {
                    Some(true) => break 'tables,
                    Some(false) => {}
                    None => return Ok(InMemory::Miss),
                }
                // As a rule a flush or compaction has left one version, and the block says so.
                probe = match table.probe_older(hit, &walk.lookup)? {
                    Some(older) => older,
                    None => table.probe(&walk.lookup)?,
                };
            }
        }
    }
    Ok(InMemory::Answer(walk.finish()?.and_then(&mut read)))
}

/// Reads the key, from tables too.
///
/// # Errors
/// `Corrupt`, `Unsupported`; those of the store.
pub(super) async fn get(view: &View, asked: Asked<'_>, lookup: &Lookup<'_>) -> Result<Option<Ending>> {
    let mut walk = Walk::new(asked, lookup);
    if !walk.memtables(view, asked)?
        && let Some(levels) = view.version.levels(asked.keyspace.id)
    {
        open_together(candidates(levels, lookup.target.user_key)).await?;
        'tables: for table in candidates(levels, lookup.target.user_key) {
            open_for_ranges(table).await?;
            let cover = cover_of(table, lookup.target.user_key, asked.sequence).unwrap_or(Cover(None));
            while let Some(hit) = table.get(&walk.lookup).await? {
                if hides_hit(cover, &hit) || walk.take_anywhere(table, hit).await? {
                    break 'tables;
                }
            }
            if cover.is_there() {
                break;
            }
        }
    }
    walk.finish()
}
