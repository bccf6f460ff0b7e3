//! A sorted run: tables that follow each other without overlap, walked as one.
//!
//! One table is open at a time; going on to the next one takes the read-ahead along. Where requests
//! take long, the next one is opened and read in the background as soon as the last bytes of this
//! one are on their way. Only tables that meet the bounds are ever touched.

use std::future::poll_fn;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::BoxFuture;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::{Error, ErrorKind, ObjectName, Purpose, Result};

use crate::table::{AtEnd, KeyRange, Step, TableIterator};
use crate::version::{Apart, Prepared, SortedRun, TableCursor, TableHandle};

/// Whether a table may hold keys within a range.
pub(crate) fn meets(table: &TableHandle, range: &KeyRange) -> bool {
    let description = table.description();
    !range.is_below(&description.last_key) && !range.is_above(&description.first_key)
}

/// The prepared step, with the place of its table.
type Slot = Mutex<Option<(usize, Prepared)>>;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RunCursor {
    tables: Arc<SortedRun>,
    /// The tables to walk. Invariant: not empty.
    within: Range<usize>,
    /// The keys that the walk is about.
    range: Option<Arc<KeyRange>>,
    purpose: Purpose,
    at: usize,
    /// Invariant: a cursor of `tables[at]`; `None`: nowhere.
    cursor: Option<TableCursor>,
    backward: bool,
    /// Of the table where the walk will go on, with its place; `None` where requests are short, and
    /// nothing is prepared.
    prepared: Option<Arc<Slot>>,
    /// Whether the walk waits for the prepared step. Invariant: then there is no cursor, and
    /// `prepared` is of the place to go to.
    is_arriving: bool,
}

impl RunCursor {
    /// A cursor that stands nowhere, over the tables that meet `range`, if there are any.
    pub(crate) fn new(
        tables: &Arc<SortedRun>,
        range: Option<&Arc<KeyRange>>,
        purpose: Purpose,
    ) -> Option<RunCursor> {
        let within = range.map_or(0..tables.len(), |range| places(tables, range));
        let new = || RunCursor {
            tables: Arc::clone(tables),
            at: within.start,
            within: within.clone(),
            range: range.cloned(),
            purpose,
            cursor: None,
            backward: false,
            prepared: (within.len() > 1 && tables[within.start].is_far()).then(Arc::default),
            is_arriving: false,
        };
        (!within.is_empty()).then(new)
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        self.cursor.as_ref().and_then(TableCursor::entry)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], TableCursor::value)
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        self.cursor.as_ref().map_or_else(Bytes::new, TableCursor::value_bytes)
    }

    /// What the entry at which it stands refers to.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn referred(&self) -> Result<Apart> {
        match &self.cursor {
            Some(cursor) => cursor.referred(),
            None => Err(Error::new(ErrorKind::Bug, "a walk that stands nowhere refers to nothing")),
        }
    }

    /// The object of the table in which it stands.
    pub(crate) fn object(&self) -> Option<&ObjectName> {
        self.cursor.as_ref().map(TableCursor::object)
    }

    /// The table in which it stands.
    #[inline]
    pub(crate) fn table(&mut self) -> Option<&mut TableIterator> {
        self.cursor.as_mut().map(TableCursor::iterator)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_arriving || self.cursor.as_ref().is_some_and(TableCursor::is_blocked)
    }

    /// How far it may go past keys that a range delete of `number` hides, up to `to`, going
    /// backward down to it: to the first table that holds something newer. `None` when this one
    /// does.
    pub(crate) fn target_past(&self, to: &[u8], number: SequenceNumber, backward: bool) -> Option<Bytes> {
        let is_older = |at: usize| self.tables[at].description().last_sequence < number;
        if !is_older(self.at) {
            return None;
        }
        let mut at = self.at;
        while let Some(next) = beside(at, backward, &self.within) {
            let description = self.tables[next].description();
            let is_past = if backward { description.ends_before(to) } else { *description.first_key >= *to };
            if is_past {
                break;
            }
            if !is_older(next) {
                // Going backward, all of the table lies before where this one begins.
                let passed = if backward { self.tables[at].description() } else { description };
                return Some(passed.first_key.clone());
            }
            at = next;
        }
        Some(Bytes::copy_from_slice(to))
    }

    /// A cursor of table `at`.
    fn open(&mut self, at: usize) -> &mut TableCursor {
        if self.at != at {
            self.cursor = None;
        }
        self.at = at;
        let cursor = self.cursor.take().unwrap_or_else(|| {
            self.with_neighbours(self.tables[at].cursor_within(self.purpose, self.range.clone()))
        });
        self.cursor.insert(cursor)
    }

    /// Has the table beside that of `cursor`, which is `at`, prepared when the end of this one is
    /// on its way.
    fn with_neighbours(&self, mut cursor: TableCursor) -> TableCursor {
        let at = self.at;
        if let Some(prepared) = self.prepared.clone() {
            let (tables, within, purpose, range) =
                (Arc::clone(&self.tables), self.within.clone(), self.purpose, self.range.clone());
            cursor.iterator().at_end(AtEnd(Box::new(move |pace| {
                let next = beside(at, pace.is_backward(), &within);
                if let Some((next, table)) = next.and_then(|next| Some((next, tables.get(next)?))) {
                    *prepared.lock() = Some((next, table.prepare(pace, purpose, range)));
                }
            })));
        }
        cursor
    }

    /// A walk begins anew: what was prepared is for another one.
    fn set_out(&mut self, backward: bool) {
        self.backward = backward;
        self.is_arriving = false;
        if let Some(prepared) = &self.prepared {
            *prepared.lock() = None;
        }
    }

    /// Goes on to the table beside this one, at this one's pace.
    fn go_on(&mut self, at: usize) -> Result<Step> {
        if self
            .prepared
            .as_ref()
            .is_some_and(|prepared| prepared.lock().as_ref().is_some_and(|(of, _)| *of == at))
        {
            self.cursor = None;
            self.at = at;
            self.is_arriving = true;
            return Ok(Step::Blocked);
        }
        let left = self.cursor.take();
        let backward = self.backward;
        let next = self.open(at);
        if let Some(left) = left {
            next.take_pace(&left);
        }
        if backward { next.last() } else { next.first() }
    }

    /// Waits for the prepared step, and stands there. If the future is dropped, nothing is lost.
    async fn arrive_at_prepared(&mut self) -> Result<()> {
        let come = poll_fn(|context| {
            match self
                .prepared
                .as_ref()
                .and_then(|prepared| prepared.lock().as_mut().map(|(_, prepared)| prepared.poll(context)))
            {
                Some(come) => come,
                None => Poll::Ready(None),
            }
        });
        let come = come.await;
        if let Some(prepared) = &self.prepared {
            *prepared.lock() = None;
        }
        self.is_arriving = false;
        match come {
            Some(cursor) => self.cursor = Some(self.with_neighbours(cursor)),
            // A walk that goes there itself is told why it failed.
            None => {
                let (at, backward) = (self.at, self.backward);
                let cursor = self.open(at);
                let _ = if backward { cursor.last()? } else { cursor.first()? };
            }
        }
        Ok(())
    }

    /// The first half of a seek: to the first entry at or after (`key`, `trailer`), or to the last
    /// one before it when it goes backward. See [`TableIterator::approach`].
    pub(crate) fn approach(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<()> {
        self.set_out(backward);
        let at = match backward {
            false => Some(self.tables.before(key).max(self.within.start)).filter(|at| *at < self.within.end),
            true => self
                .tables
                .begun(key)
                .min(self.within.end)
                .checked_sub(1)
                .filter(|at| *at >= self.within.start),
        };
        match at {
            Some(at) => self.open(at).approach(key, trailer, backward),
            None => {
                self.cursor = None;
                Ok(())
            }
        }
    }

    /// The second half of a seek.
    pub(crate) fn arrive(&mut self) -> Result<Step> {
        let Some(cursor) = &mut self.cursor else { return Ok(Step::Done) };
        let step = cursor.arrive()?;
        self.settle(step)
    }

    pub(crate) fn first(&mut self) -> Result<Step> {
        self.set_out(false);
        let step = self.open(self.within.start).first()?;
        self.settle(step)
    }

    pub(crate) fn last(&mut self) -> Result<Step> {
        self.set_out(true);
        let step = self.open(self.within.end - 1).last()?;
        self.settle(step)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<Step> {
        let Some(cursor) = &mut self.cursor else { return Ok(Step::Done) };
        let step = cursor.next()?;
        if step == Step::Done && cursor.valid() { Ok(Step::Done) } else { self.settle(step) }
    }

    #[inline]
    pub(crate) fn prev(&mut self) -> Result<Step> {
        let Some(cursor) = &mut self.cursor else { return Ok(Step::Done) };
        let step = cursor.prev()?;
        if step == Step::Done && cursor.valid() { Ok(Step::Done) } else { self.settle(step) }
    }

    /// Goes on to the next table while this one has ended.
    pub(crate) fn settle(&mut self, mut step: Step) -> Result<Step> {
        while step == Step::Done {
            let Some(cursor) = &self.cursor else { return Ok(Step::Done) };
            if cursor.valid() {
                return Ok(Step::Done);
            }
            step = match beside(self.at, self.backward, &self.within) {
                Some(at) => self.go_on(at)?,
                None => {
                    self.cursor = None;
                    Step::Done
                }
            };
        }
        Ok(step)
    }

    pub(crate) fn load(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            loop {
                if self.is_arriving {
                    self.arrive_at_prepared().await?;
                } else if let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.is_blocked()) {
                    cursor.load().await?;
                } else {
                    return Ok(());
                }
                // A table at whose beginning it waits still has not ended, though nothing is there.
                if !self.is_blocked() {
                    let _ = self.settle(Step::Done)?;
                }
            }
        })
    }
}

/// The place beside `at` in the direction of a walk, if the walk is about it.
fn beside(at: usize, backward: bool, within: &Range<usize>) -> Option<usize> {
    let next = if backward { at.checked_sub(1)? } else { at + 1 };
    within.contains(&next).then_some(next)
}

/// The places of the tables that meet a range.
fn places(tables: &SortedRun, range: &KeyRange) -> Range<usize> {
    let start = match &range.lower {
        Bound::Unbounded => 0,
        Bound::Included(lower) | Bound::Excluded(lower) => {
            let before = tables.before(lower);
            before
                + usize::from(
                    tables.get(before).is_some_and(|table| range.is_below(&table.description().last_key)),
                )
        }
    };
    let end = match &range.upper {
        Bound::Unbounded => tables.len(),
        Bound::Included(upper) | Bound::Excluded(upper) => {
            let begun = tables.begun(upper);
            begun
                - usize::from(
                    begun
                        .checked_sub(1)
                        .is_some_and(|last| range.is_above(&tables[last].description().first_key)),
                )
        }
    };
    start..end.max(start)
}

#[cfg(test)]
mod tests;
