//! A sorted run: tables that follow each other without overlap, walked as one.
//!
//! One table is open at a time; going on to the next one takes the read-ahead along. Only tables that meet the bounds are ever touched.

use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::Trailer;
use tombolo_storage::{Purpose, Result};

use crate::table::{KeyRange, Step, TableIterator};
use crate::version::{SortedRun, TableCursor, TableHandle};

/// Whether a table may hold keys within a range.
pub(crate) fn meets(table: &TableHandle, range: &KeyRange) -> bool {
    let description = table.description();
    !range.is_below(&description.last_key) && !range.is_above(&description.first_key)
}

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
}

impl RunCursor {
    /// A cursor that stands nowhere, over the tables that meet `range`, if there are any.
    pub(crate) fn new(tables: &Arc<SortedRun>, range: Option<&Arc<KeyRange>>, purpose: Purpose) -> Option<RunCursor> {
        let within = range.map_or(0..tables.len(), |range| places(tables, range));
        let new = || RunCursor {
            tables: Arc::clone(tables),
            at: within.start,
            within: within.clone(),
            range: range.cloned(),
            purpose,
            cursor: None,
            backward: false,
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

    /// The table in which it stands.
    #[inline]
    pub(crate) fn table(&mut self) -> Option<&mut TableIterator> {
        self.cursor.as_mut().map(TableCursor::iterator)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::is_blocked)
    }

    /// A cursor of table `at`.
    fn open(&mut self, at: usize) -> &mut TableCursor {
        if self.at != at {
            self.cursor = None;
        }
        self.at = at;
        let (tables, purpose, range) = (&self.tables, self.purpose, &self.range);
        self.cursor.get_or_insert_with(|| tables[at].cursor_within(purpose, range.clone()))
    }

    /// A cursor of the table beside this one, at this one's pace.
    fn go_on(&mut self, at: usize) -> &mut TableCursor {
        let left = self.cursor.take();
        let next = self.open(at);
        if let Some(left) = left {
            next.take_pace(&left);
        }
        next
    }

    /// The first half of a seek: to the first entry at or after (`key`, `trailer`), or to the last one before it when it goes backward. See
    /// [`TableIterator::approach`].
    pub(crate) fn approach(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<()> {
        self.backward = backward;
        let at = match backward {
            false => Some(self.tables.before(key).max(self.within.start)).filter(|at| *at < self.within.end),
            true => self.tables.begun(key).min(self.within.end).checked_sub(1).filter(|at| *at >= self.within.start),
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
        self.backward = false;
        let step = self.open(self.within.start).first()?;
        self.settle(step)
    }

    pub(crate) fn last(&mut self) -> Result<Step> {
        self.backward = true;
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
            step = match self.backward {
                false if self.at + 1 < self.within.end => self.go_on(self.at + 1).first()?,
                true if self.at > self.within.start => self.go_on(self.at - 1).last()?,
                _ => {
                    self.cursor = None;
                    Step::Done
                }
            };
        }
        Ok(step)
    }

    pub(crate) fn load(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            while let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.is_blocked()) {
                cursor.load().await?;
                let _ = self.settle(Step::Done)?;
            }
            Ok(())
        })
    }
}

/// The places of the tables that meet a range.
fn places(tables: &SortedRun, range: &KeyRange) -> Range<usize> {
    let start = match &range.lower {
        Bound::Unbounded => 0,
        Bound::Included(lower) | Bound::Excluded(lower) => {
            let before = tables.before(lower);
            before + usize::from(tables.get(before).is_some_and(|table| range.is_below(&table.description().last_key)))
        }
    };
    let end = match &range.upper {
        Bound::Unbounded => tables.len(),
        Bound::Included(upper) | Bound::Excluded(upper) => {
            let begun = tables.begun(upper);
            begun - usize::from(begun.checked_sub(1).is_some_and(|last| range.is_above(&tables[last].description().first_key)))
        }
    };
    start..end.max(start)
}

#[cfg(test)]
mod tests;
