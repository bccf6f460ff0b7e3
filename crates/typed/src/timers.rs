//! Timers, the earliest first.

use std::fmt;

use tombolo::{Batch, Db, Op, Result, Snapshot, SortedBatch};

use crate::{Key, TypedKeyspace, TypedOp};

/// Timers of an operator: each a moment and a thing. They are part of the state: a batch sets and
/// clears them together with what they belong to.
///
/// ```
/// use tombolo::{Batch, Db};
/// use tombolo_typed::Timers;
///
/// # fn main() -> tombolo::Result<()> {
/// let db = Db::builder("mem://windows").open().wait()?;
/// let timers = Timers::<String>::open(&db, "timers").wait()?;
/// let mut batch = Batch::new();
/// timers.set_in(&mut batch, 2_000, &"window 7".to_owned())?;
/// timers.set_in(&mut batch, 1_000, &"window 3".to_owned())?;
/// db.write(batch).wait()?;
///
/// assert_eq!(timers.earliest()?, Some(1_000));
/// let mut done = Batch::new();
/// assert_eq!(timers.due_in(&mut done, 1_500, 100)?, [(1_000, "window 3".to_owned())]);
/// db.write(done).wait()?;
/// assert_eq!(timers.earliest()?, Some(2_000));
/// # Ok(())
/// # }
/// ```
pub struct Timers<T> {
    timers: TypedKeyspace<(u64, T), ()>,
}

impl<T> Clone for Timers<T> {
    fn clone(&self) -> Timers<T> {
        Timers { timers: self.timers.clone() }
    }
}

impl<T> fmt::Debug for Timers<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Timers").field(&self.timers).finish()
    }
}

impl<T: Key> Timers<T> {
    /// Those of the keyspace `name`, which is made if it is not there.
    ///
    /// # Errors
    /// As [`TypedKeyspace::open`].
    pub fn open(db: &Db, name: &str) -> TypedOp<tombolo::Keyspace, Timers<T>> {
        let options = TypedKeyspace::<(u64, T), ()>::options(tombolo::KeyspaceOptions::default());
        TypedOp::new(db.open_or_create_keyspace(name, options), |keyspace| {
            TypedKeyspace::of(keyspace).map(|timers| Timers { timers })
        })
    }

    /// Adds a timer to a batch. The same moment and thing are one timer.
    ///
    /// # Errors
    /// As [`TypedKeyspace::put_in`].
    pub fn set_in(&self, batch: &mut Batch, at: u64, of: &T) -> Result<()>
    where
        T: Clone,
    {
        self.timers.put_in(batch, &(at, of.clone()), &())
    }

    /// Adds the end of a timer to a batch.
    ///
    /// # Errors
    /// As [`TypedKeyspace::delete_in`].
    pub fn clear_in(&self, batch: &mut Batch, at: u64, of: &T) -> Result<()>
    where
        T: Clone,
    {
        self.timers.delete_in(batch, &(at, of.clone()))
    }

    /// The timers that are due at `now`, the earliest first, at most `count`. Their ends are added
    /// to `batch`: written together with what they bring about, each fires once.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    pub fn due_in(&self, batch: &mut Batch, now: u64, count: usize) -> Result<Vec<(u64, T)>> {
        let due = self.due(now, count)?;
        due.iter().try_for_each(|timer| self.timers.delete_in(batch, timer))?;
        Ok(due)
    }

    /// The timers that are due at `now`, the earliest first, at most `count`. They stay.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    pub fn due(&self, now: u64, count: usize) -> Result<Vec<(u64, T)>> {
        let mut cursor = self.timers.range(..=(now,));
        let mut due = Vec::new();
        while due.len() < count && cursor.next()? {
            due.push(cursor.key()?);
        }
        Ok(due)
    }

    /// Adds a timer to a sorted batch: timers by moment, then by thing.
    ///
    /// # Errors
    /// As [`TypedKeyspace::put_sorted`].
    pub fn set_sorted(&self, batch: &mut SortedBatch, at: u64, of: &T) -> Op<()>
    where
        T: Clone,
    {
        self.timers.put_sorted(batch, &(at, of.clone()), &())
    }

    /// Adds the end of a timer to a sorted batch.
    ///
    /// # Errors
    /// As [`TypedKeyspace::delete_sorted`].
    pub fn clear_sorted(&self, batch: &mut SortedBatch, at: u64, of: &T) -> Op<()>
    where
        T: Clone,
    {
        self.timers.delete_sorted(batch, &(at, of.clone()))
    }

    /// When the next one is due.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    pub fn earliest(&self) -> Result<Option<u64>> {
        let mut cursor = self.timers.all();
        if cursor.next()? { Ok(Some(cursor.key()?.0)) } else { Ok(None) }
    }

    /// The same, as a snapshot sees it.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    pub fn earliest_at(&self, snapshot: &Snapshot) -> Result<Option<u64>> {
        let mut cursor = self.timers.at(snapshot).all();
        if cursor.next()? { Ok(Some(cursor.key()?.0)) } else { Ok(None) }
    }
}
