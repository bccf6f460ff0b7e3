//! The merge of a job: several sorted inputs as one, forward only.
//!
//! A step is plain code while blocks are in memory; only at the end of what was read ahead does it
//! wait. Inputs are few, so they are kept in a list sorted by their keys: most often the one that
//! moved stays first, which costs one comparison.
//!
//! Invariant: `order` holds the inputs that stand at an entry, by their internal keys, ascending.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{InternalKey, Trailer, head_of};
use tombolo_format::manifest::TableName;
use tombolo_storage::{Error, ErrorKind, ObjectName};

use crate::table::{Step, TableIterator};
use crate::version::TableHandle;

/// What a merge failed with, and the table that it was reading.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) table: Option<TableName>,
}

/// How a step of a job went.
pub(super) type Merged<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, table: None }
    }
}

/// Tables one after another.
#[derive(Debug)]
struct Input {
    tables: Vec<Arc<TableHandle>>,
    at: usize,
    /// Invariant: walks `tables[at]`; `None` past the last.
    cursor: Option<TableIterator>,
    /// Keys from here on are another part's.
    end: Option<Bytes>,
    /// First eight bytes of the key, as a number.
    prefix: u64,
}

impl Input {
    fn key(&self) -> InternalKey<'_> {
        self.cursor.as_ref().map_or(InternalKey::new(&[], Trailer::LAST), TableIterator::key)
    }

    fn failed(&self, error: Error) -> Failure {
        Failure { error, table: self.tables.get(self.at).map(|table| table.description().name) }
    }

    /// To the first entry at or after `start`.
    async fn enter(&mut self, start: Option<&[u8]>) -> Merged<()> {
        self.at = start
            .map_or(0, |start| self.tables.partition_point(|table| table.description().ends_before(start)));
        self.cursor = self.tables.get(self.at).map(|table| table.whole_cursor());
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let step = match start {
            Some(start) => cursor.seek(InternalKey::new(start, Trailer::FIRST)),
            None => cursor.first(),
        };
        let step = step.map_err(|error| self.failed(error))?;
        self.settle(step).await
    }

    /// One on, if that needs nothing from outside; else what [`Input::settle`] needs to know.
    #[inline]
    fn advance(&mut self) -> Merged<Option<Step>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        match cursor.next() {
            Ok(Step::Done) if cursor.valid() => {
                self.look();
                Ok(None)
            }
            Ok(step) => Ok(Some(step)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Completes a move, through the following tables as far as it takes.
    async fn settle(&mut self, mut step: Step) -> Merged<()> {
        while let Some(cursor) = &mut self.cursor {
            if step == Step::Blocked
                && let Err(error) = cursor.load().await
            {
                return Err(self.failed(error));
            }
            if cursor.valid() {
                self.look();
                return Ok(());
            }
            self.at += 1;
            self.cursor = self.tables.get(self.at).map(|table| table.whole_cursor());
            if let Some(cursor) = &mut self.cursor {
                step = cursor.first().map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }

    /// Takes note of the key at which it stands, and ends at the part's end.
    #[inline]
    fn look(&mut self) {
        let key = self.key().user_key;
        let number = head_of(key);
        if self.end.as_ref().is_some_and(|end| key >= &end[..]) {
            self.cursor = None;
        }
        self.prefix = number;
    }

    #[inline]
    fn is_before(&self, other: &Input) -> bool {
        match self.prefix.cmp(&other.prefix) {
            std::cmp::Ordering::Equal => self.key() < other.key(),
            order => order.is_lt(),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Merge {
    inputs: Vec<Input>,
    order: Vec<usize>,
}

impl Merge {
    /// Of runs of tables, from `start` up to and without `end`; stands at the first entry.
    pub(super) async fn open(
        runs: Vec<Vec<Arc<TableHandle>>>,
        start: Option<&Bytes>,
        end: Option<&Bytes>,
    ) -> Merged<Merge> {
        let input = |tables| Input { tables, at: 0, cursor: None, end: end.cloned(), prefix: 0 };
        let mut merge = Merge { inputs: runs.into_iter().map(input).collect(), order: Vec::new() };
        for input in &mut merge.inputs {
            input.enter(start.map(|start| &start[..])).await?;
        }
        let inputs = &merge.inputs;
        merge.order = (0..inputs.len()).filter(|index| inputs[*index].cursor.is_some()).collect();
        merge.order.sort_by(|one, other| {
            let (one, other) = (&inputs[*one], &inputs[*other]);
            if one.is_before(other) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
        });
        Ok(merge)
    }

    /// The entry at which it stands.
    #[inline]
    pub(super) fn entry(&self) -> Option<(InternalKey<'_>, &[u8])> {
        let cursor = self.inputs[*self.order.first()?].cursor.as_ref()?;
        Some((cursor.key(), cursor.value()))
    }

    /// The table of the entry at which it stands.
    pub(super) fn table(&self) -> Option<&Arc<TableHandle>> {
        let input = &self.inputs[*self.order.first()?];
        input.tables.get(input.at)
    }

    /// Whether the entry at which it stands is of the first of the runs.
    #[inline]
    pub(super) fn is_of_first(&self) -> bool {
        self.order.first() == Some(&0)
    }

    /// The trouble with the entry at which it stands, said of its table.
    #[cold]
    pub(super) fn failed(&self, error: impl FnOnce(&ObjectName) -> Error) -> Failure {
        let Some(input) = self.order.first().map(|first| &self.inputs[*first]) else {
            return Error::new(ErrorKind::Bug, "a merge that stands nowhere has failed").into();
        };
        match input.tables.get(input.at) {
            Some(table) => input.failed(error(table.object())),
            None => Error::new(ErrorKind::Bug, "a merge stands in no table").into(),
        }
    }

    /// Whether a cache had the block of the entry at which it stands.
    #[inline]
    pub(super) fn is_hot(&self) -> bool {
        let first = self.order.first().and_then(|first| self.inputs[*first].cursor.as_ref());
        first.is_some_and(TableIterator::block_is_hot)
    }

    /// To the next entry, if that needs nothing from outside; else [`Merge::settle`] completes it.
    #[inline]
    pub(super) fn advance(&mut self) -> Merged<Option<Step>> {
        let Some(first) = self.order.first() else { return Ok(None) };
        let step = self.inputs[*first].advance()?;
        if step.is_none() {
            self.place_first();
        }
        Ok(step)
    }

    /// Completes a step that needs something from outside.
    pub(super) async fn settle(&mut self, step: Step) -> Merged<()> {
        if let Some(first) = self.order.first() {
            self.inputs[*first].settle(step).await?;
            self.place_first();
        }
        Ok(())
    }

    /// The first input has moved: puts it where it belongs now.
    #[inline]
    fn place_first(&mut self) {
        let Some((first, rest)) = self.order.split_first() else { return };
        let moved = &self.inputs[*first];
        if moved.cursor.is_none() {
            self.order.remove(0);
            return;
        }
        match rest.first() {
            Some(second) if self.inputs[*second].is_before(moved) => {
                let before = 1 + rest[1..].partition_point(|other| self.inputs[*other].is_before(moved));
                self.order[..=before].rotate_left(1);
            }
            _ => {}
        }
    }
}
