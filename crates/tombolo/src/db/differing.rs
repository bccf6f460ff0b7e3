//! Where two moments of a keyspace may differ, from the sources that are not the same.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::Trailer;
use tombolo_format::ranges::RangeLayers;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use crate::db::{Cursor, Handle};
use crate::engine::Kept;
use crate::lifecycle::tables_within;
use crate::memtable::MemtableCursor;
use crate::read::{RangeCursor, open_for_ranges};
use crate::table::{KeyRange, Step};
use crate::version::{TableCursor, TableHandle};

/// Steps that are taken before a move seeks.
const STEPS_MAX: usize = 8;

/// Where a source stands.
#[derive(Debug)]
enum Place {
    /// Nowhere yet, or nowhere any more after an error.
    Unknown,
    At(Vec<u8>),
    End,
}

/// Something that one of both sees and the other may not.
#[derive(Debug)]
enum Source {
    Memtable(MemtableCursor),
    /// A table that nobody has opened yet, and the range wanted of it.
    Unopened(Arc<TableHandle>, Option<Arc<KeyRange>>),
    Table(TableCursor),
    /// Nothing comes of it any more.
    Ended,
}

#[derive(Debug)]
struct Walked {
    source: Source,
    /// Of which database.
    side: usize,
    place: Place,
}

impl Walked {
    /// A table before its first entry. It is opened once somebody goes beyond its first key: where
    /// many tables differ, few are open at a time.
    fn table(table: &Arc<TableHandle>, range: Option<&KeyRange>, side: usize) -> Walked {
        let first = &table.description().first_key;
        let place = match range {
            Some(range) if range.is_below(first) => Place::Unknown,
            _ => Place::At(first.to_vec()),
        };
        Walked { source: Source::Unopened(Arc::clone(table), range.cloned().map(Arc::new)), side, place }
    }

    /// To the first key at or after `from`, in memory.
    fn advance(&mut self, from: &[u8]) -> Result<Step> {
        if let Source::Unopened(table, range) = &self.source {
            if matches!(&self.place, Place::At(key) if &key[..] >= from) {
                return Ok(Step::Done);
            }
            if *table.description().last_key < *from {
                (self.source, self.place) = (Source::Ended, Place::End);
                return Ok(Step::Done);
            }
            let cursor = table.cursor_within(Purpose::Scan, range.clone());
            (self.source, self.place) = (Source::Table(cursor), Place::Unknown);
        }
        for _ in 0..STEPS_MAX {
            match &self.place {
                Place::End => return Ok(Step::Done),
                Place::At(key) if &key[..] >= from => return Ok(Step::Done),
                Place::Unknown => break,
                Place::At(_) => {}
            }
            self.place = Place::Unknown;
            let step = match &mut self.source {
                Source::Memtable(cursor) => {
                    cursor.next();
                    Step::Done
                }
                Source::Table(cursor) => cursor.next()?,
                Source::Unopened(..) | Source::Ended => Step::Done,
            };
            if step == Step::Blocked {
                return Ok(step);
            }
            self.look();
        }
        if matches!(&self.place, Place::At(key) if &key[..] >= from) || matches!(self.place, Place::End) {
            return Ok(Step::Done);
        }
        self.place = Place::Unknown;
        let step = match &mut self.source {
            Source::Memtable(cursor) => {
                cursor.seek(from, Trailer::FIRST);
                Step::Done
            }
            Source::Table(cursor) => {
                cursor.approach(from, Trailer::FIRST, false)?;
                cursor.arrive()?
            }
            Source::Unopened(..) | Source::Ended => Step::Done,
        };
        if step == Step::Done {
            self.look();
        }
        Ok(step)
    }

    /// Completes a blocked move.
    async fn load(&mut self) -> Result<()> {
        if let Source::Table(cursor) = &mut self.source {
            cursor.load().await?;
        }
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        let key = match &self.source {
            Source::Memtable(cursor) => cursor.entry().map(|entry| entry.key.to_vec()),
            Source::Table(cursor) => cursor.entry().map(|(key, _)| key.to_vec()),
            Source::Unopened(..) | Source::Ended => None,
        };
        if key.is_none() {
            // What it holds of blocks goes.
            self.source = Source::Ended;
        }
        self.place = key.map_or(Place::End, Place::At);
    }
}

/// Keys at which two cursors may see something else, found from what only one of them reads:
/// memtables and tables that came since, and tables that left. They may be of two moments of a
/// database, or of two databases of which one was made of the other: a checkpoint, a clone, a
/// restore.
pub struct Differing {
    sides: [(Arc<Handle>, Kept); 2],
    sources: Vec<Walked>,
    /// Covered by range deletes of them: ascending, without overlaps, ends excluded.
    ranges: Vec<(Bytes, Bytes)>,
}

impl fmt::Debug for Differing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Differing").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Cursor {
    /// Where this cursor and another one over the same range may see something else. Opens tables
    /// that hold range deletes, if they are not open.
    ///
    /// # Errors
    /// Those of opening the cursors, and as [`crate::Keyspace::get`].
    pub fn differing(&self, other: &Cursor) -> Result<Differing> {
        Differing::between(self, other)
    }
}

/// Whether a table says the same to both, wherever it lies.
fn is_same(one: &TableHandle, other: &TableHandle) -> bool {
    let (one, other) = (one.description(), other.description());
    (one.length, one.entries, &one.first_key, &one.last_key)
        == (other.length, other.entries, &other.first_key, &other.last_key)
        && one.properties.sequence_override() == other.properties.sequence_override()
}

impl Differing {
    fn between(one: &Cursor, other: &Cursor) -> Result<Differing> {
        let (one, other) = (one.parts()?, other.parts()?);
        let sides = [&one, &other].map(|(inner, handle, _)| {
            (Arc::clone(handle), Kept::new(&handle.engine, Arc::clone(inner.view())))
        });
        let mut differing = Differing { sides, sources: Vec::new(), ranges: Vec::new() };
        let cursors = [(one.0, one.2.id()), (other.0, other.2.id())];
        let tables = cursors.map(|(inner, keyspace)| tables_of(inner, keyspace));
        let judged = [one.0.judged_ms(), other.0.judged_ms()];
        let mut ranges = Vec::new();
        for (side, (inner, keyspace)) in cursors.into_iter().enumerate() {
            let theirs: BTreeMap<u64, &Arc<TableHandle>> =
                tables[1 - side].iter().map(|table| (table.description().identity, table)).collect();
            let is_shared = |table: &TableHandle| {
                let description = table.description();
                // Both see all of it, and by the same time.
                cursors.iter().all(|(inner, _)| description.last_sequence <= inner.sequence())
                    && (judged[0] == judged[1] || description.expiry().is_none())
                    && theirs.get(&description.identity).is_some_and(|other| is_same(table, other))
            };
            if side == 0 && is_enabled(Mutant::DifferenceIgnoresGone) {
                continue;
            }
            for table in tables[side].iter().filter(|table| !is_shared(table)) {
                if table.has_ranges() {
                    let env = &differing.sides[side].0.engine.env;
                    env.block_on(open_for_ranges(table))?;
                    let deletes = table.ranges().into_iter().flat_map(RangeLayers::iter);
                    ranges.extend(deletes.map(|delete| {
                        (Bytes::copy_from_slice(delete.from), Bytes::copy_from_slice(delete.to))
                    }));
                }
                differing.sources.push(Walked::table(table, inner.range(), side));
            }
            let memtables = inner.view().memtables_of(keyspace);
            for list in memtables.filter_map(|memtable| memtable.list(keyspace)) {
                if is_enabled(Mutant::DifferenceIgnoresMemtables) {
                    continue;
                }
                if let Some(deletes) = list.ranges() {
                    ranges.extend(deletes.iter().map(|delete| {
                        (Bytes::copy_from_slice(delete.from), Bytes::copy_from_slice(delete.to))
                    }));
                }
                let source = Source::Memtable(list.cursor());
                differing.sources.push(Walked { source, side, place: Place::Unknown });
            }
        }
        ranges.sort();
        for (from, to) in ranges {
            match differing.ranges.last_mut() {
                Some((_, end)) if *end >= from => *end = to.max(end.clone()),
                _ => differing.ranges.push((from, to)),
            }
        }
        Ok(differing)
    }

    /// The first key at or after `from` at which they may differ; `None`: nowhere after that. Waits
    /// for what memory does not hold. `from` rises from call to call. Keys that are covered by a
    /// range delete that one of them sees alone are given from the first on, there or not.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`]: it may be asked again.
    pub fn next(&mut self, from: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let from = from.as_ref();
        let mut next: Option<Vec<u8>> = None;
        for walked in &mut self.sources {
            let env = self.sides[walked.side].0.engine.env.clone();
            let mut moved = walked.advance(from);
            while let Ok(Step::Blocked) = moved {
                moved = match env.block_on(walked.load()) {
                    Ok(()) => walked.advance(from),
                    Err(error) => Err(error),
                };
            }
            if let Err(error) = moved {
                walked.place = Place::Unknown;
                let (handle, view) = &self.sides[walked.side];
                return Err(env.block_on(handle.engine.judge_read(view, error)));
            }
            if let Place::At(key) = &walked.place
                && next.as_ref().is_none_or(|next| key < next)
            {
                next = Some(key.clone());
            }
        }
        let at = self.ranges.partition_point(|(_, to)| **to <= *from);
        if let Some((begin, _)) = self.ranges.get(at) {
            let begin = if **begin < *from { from } else { begin };
            if next.as_deref().is_none_or(|next| begin < next) {
                next = Some(begin.to_vec());
            }
        }
        Ok(next)
    }
}

fn tables_of(cursor: &RangeCursor, keyspace: u32) -> Vec<Arc<TableHandle>> {
    let all = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
    tables_within(cursor.view(), keyspace, cursor.range().unwrap_or(&all))
}
