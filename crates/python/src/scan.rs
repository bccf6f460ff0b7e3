//! Iterators over ranges of keys.

use std::collections::VecDeque;
use std::ops::Bound as End;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tombolo::{Cursor, TransactionCursor};

use crate::buffer::Given;
use crate::error::{Invalid, OrRaise};
use crate::handles::Snapshot;

/// Entries that are fetched while the interpreter is let go once.
const ENTRIES_AT_ONCE: usize = 256;
/// Bytes of them, about.
const BYTES_AT_ONCE: usize = 1 << 20;

/// What an iterator gives of each entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Keys,
    /// The value.
    Values,
    /// Both, as a tuple.
    Both,
}

/// A range: from a key on and before another, or with a prefix.
pub fn range_of(
    (start, end, prefix): (Option<Given>, Option<Given>, Option<Given>),
    python: Python<'_>,
) -> PyResult<(End<Vec<u8>>, End<Vec<u8>>)> {
    Ok(match &prefix {
        Some(_) if start.is_some() || end.is_some() => {
            return Err(Invalid::new_err("a prefix goes with neither start nor end"));
        }
        Some(prefix) => {
            let first = prefix.bytes(python).to_vec();
            let mut after = first.clone();
            while after.last() == Some(&u8::MAX) {
                after.pop();
            }
            if let Some(last) = after.last_mut() {
                *last += 1;
            }
            let end = if after.is_empty() { End::Unbounded } else { End::Excluded(after) };
            (End::Included(first), end)
        }
        None => (
            start.as_ref().map_or(End::Unbounded, |key| End::Included(key.bytes(python).to_vec())),
            end.as_ref().map_or(End::Unbounded, |key| End::Excluded(key.bytes(python).to_vec())),
        ),
    })
}

/// A cursor over a range.
pub fn cursor(
    keyspace: &tombolo::Keyspace,
    range: (Option<Given>, Option<Given>, Option<Given>),
    snapshot: Option<&Snapshot>,
    python: Python<'_>,
) -> PyResult<Cursor> {
    let range = range_of(range, python)?;
    Ok(match snapshot {
        Some(snapshot) => snapshot.0.cursor::<Vec<u8>>(keyspace, range),
        None => keyspace.cursor::<Vec<u8>>(range),
    })
}

/// Whose entries.
#[allow(clippy::large_enum_variant, reason = "it lies in the object that Python has")]
pub enum Entries {
    OfKeyspace(Cursor),
    OfTransaction(Box<TransactionCursor>),
}

/// Calls a method that both have.
macro_rules! both {
    ($cursor:expr, $entries:ident => $call:expr) => {
        match $cursor {
            Entries::OfKeyspace($entries) => $call,
            Entries::OfTransaction($entries) => $call,
        }
    };
}

struct Walk {
    cursor: Entries,
    begun: bool,
    ended: bool,
    fetched: VecDeque<(Vec<u8>, Vec<u8>)>,
}

/// Entries of a range at one moment, in order.
#[pyclass(frozen)]
pub struct Items {
    walk: Mutex<Walk>,
    part: Part,
    reverse: bool,
}

impl Items {
    /// Over all that the cursor has.
    pub fn new(cursor: Entries, part: Part, reverse: bool) -> Items {
        let cursor = match cursor {
            Entries::OfKeyspace(cursor) if part == Part::Keys => Entries::OfKeyspace(cursor.keys_only()),
            cursor => cursor,
        };
        let walk = Walk { cursor, begun: false, ended: false, fetched: VecDeque::new() };
        Items { walk: Mutex::new(walk), part, reverse }
    }

    /// The next entry, from what was fetched or after fetching more.
    fn step(&self) -> tombolo::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let Walk { cursor, begun, ended, fetched } = &mut *walk;
        let mut bytes = 0;
        while fetched.is_empty() && !*ended {
            loop {
                let found = match (self.reverse, *begun) {
                    (true, false) => both!(cursor, entries => entries.seek_to_last()),
                    (true, true) => both!(cursor, entries => entries.prev()),
                    (false, _) => both!(cursor, entries => entries.next()),
                }?;
                *begun = true;
                if !found {
                    *ended = true;
                    break;
                }
                let (key, value) = both!(&*cursor, entries => (entries.key(), entries.value()));
                let key = if self.part == Part::Values { Vec::new() } else { key.to_vec() };
                let value = if self.part == Part::Keys { Vec::new() } else { value.to_vec() };
                bytes += key.len() + value.len();
                fetched.push_back((key, value));
                if fetched.len() >= ENTRIES_AT_ONCE || bytes >= BYTES_AT_ONCE {
                    break;
                }
            }
        }
        Ok(fetched.pop_front())
    }
}

#[pymethods]
impl Items {
    fn __iter__(slf: Py<Items>) -> Py<Items> {
        slf
    }

    fn __next__(&self, python: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some((key, value)) = python.detach(|| self.step()).or_raise()? else { return Ok(None) };
        Ok(Some(match self.part {
            Part::Keys => PyBytes::new(python, &key).into_any().unbind(),
            Part::Values => PyBytes::new(python, &value).into_any().unbind(),
            Part::Both => {
                let both = [PyBytes::new(python, &key), PyBytes::new(python, &value)];
                PyTuple::new(python, both)?.into_any().unbind()
            }
        }))
    }
}
