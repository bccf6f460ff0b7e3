//! A sorted run: tables that follow each other without overlap, walked as one.
//!
//! One table is open at a time; going on to the next one takes the read-ahead along. Only tables that meet the bounds are ever touched.

use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::Trailer;
use tombolo_storage::{Purpose, Result};

use super::merge::Bounds;
use crate::table::Step;
use crate::version::{SortedRun, TableCursor, TableHandle};

/// Whether a table may hold keys within bounds.
pub(crate) fn meets(table: &TableHandle, bounds: Bounds<'_>) -> bool {
    !ends_before(table, bounds.0) && !begins_after(table, bounds.1)
}

/// Whether all keys of a table lie below a lower bound.
fn ends_before(table: &TableHandle, lower: Bound<&[u8]>) -> bool {
    let last = &table.description().last_key[..];
    match lower {
        Bound::Unbounded => false,
        Bound::Included(bound) => last < bound,
        Bound::Excluded(bound) => last <= bound,
    }
}

/// Whether all keys of a table lie above an upper bound.
fn begins_after(table: &TableHandle, upper: Bound<&[u8]>) -> bool {
    let first = &table.description().first_key[..];
    match upper {
        Bound::Unbounded => false,
        Bound::Included(bound) => first > bound,
        Bound::Excluded(bound) => first >= bound,
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RunCursor {
    tables: Arc<SortedRun>,
    /// The tables to walk.
    within: Range<usize>,
    purpose: Purpose,
    at: usize,
    /// Invariant: a cursor of `tables[at]`; `None`: nowhere.
    cursor: Option<TableCursor>,
    backward: bool,
}

impl RunCursor {
    /// A cursor over all tables that stands nowhere.
    pub(crate) fn new(tables: &Arc<SortedRun>, purpose: Purpose) -> RunCursor {
        let within = 0..tables.len();
        RunCursor { tables: Arc::clone(tables), within, purpose, at: 0, cursor: None, backward: false }
    }

    /// A cursor over the tables that meet `bounds`, if there are any.
    pub(crate) fn within(tables: &Arc<SortedRun>, bounds: Bounds<'_>, purpose: Purpose) -> Option<RunCursor> {
        let start = match bounds.0 {
            Bound::Unbounded => 0,
            Bound::Included(lower) => tables.before(lower),
            Bound::Excluded(lower) => {
                let before = tables.before(lower);
                before + usize::from(tables.get(before).is_some_and(|table| ends_before(table, bounds.0)))
            }
        };
        let end = match bounds.1 {
            Bound::Unbounded => tables.len(),
            Bound::Included(upper) => tables.begun(upper),
            Bound::Excluded(upper) => {
                let begun = tables.begun(upper);
                begun - usize::from(begun.checked_sub(1).is_some_and(|at| begins_after(&tables[at], bounds.1)))
            }
        };
        (start < end).then(|| RunCursor { within: start..end, ..RunCursor::new(tables, purpose) })
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

    pub(crate) fn is_blocked(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::is_blocked)
    }

    /// A cursor of table `at`.
    fn open(&mut self, at: usize) -> &mut TableCursor {
        if self.at != at {
            self.cursor = None;
        }
        self.at = at;
        let (tables, purpose) = (&self.tables, self.purpose);
        self.cursor.get_or_insert_with(|| tables[at].cursor(purpose))
    }

    pub(crate) fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<Step> {
        self.backward = false;
        let at = self.tables.before(key).max(self.within.start);
        if at >= self.within.end {
            self.cursor = None;
            return Ok(Step::Done);
        }
        let step = self.open(at).seek(key, trailer)?;
        self.settle(step)
    }

    pub(crate) fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<Step> {
        self.backward = true;
        let after = self.tables.begun(key).min(self.within.end);
        if after <= self.within.start {
            self.cursor = None;
            return Ok(Step::Done);
        }
        let step = self.open(after - 1).seek_before(key, trailer)?;
        self.settle(step)
    }

    pub(crate) fn first(&mut self) -> Result<Step> {
        self.backward = false;
        if self.within.is_empty() {
            return Ok(Step::Done);
        }
        let step = self.open(self.within.start).first()?;
        self.settle(step)
    }

    pub(crate) fn last(&mut self) -> Result<Step> {
        self.backward = true;
        if self.within.is_empty() {
            return Ok(Step::Done);
        }
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
    fn settle(&mut self, mut step: Step) -> Result<Step> {
        while step == Step::Done {
            let Some(cursor) = &self.cursor else { return Ok(Step::Done) };
            if cursor.valid() {
                return Ok(Step::Done);
            }
            step = match self.backward {
                false if self.at + 1 < self.within.end => self.open(self.at + 1).first()?,
                true if self.at > self.within.start => self.open(self.at - 1).last()?,
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
