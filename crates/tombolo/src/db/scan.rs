//! The entries of a range as an iterator, from both ends, and as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tombolo_env::BoxFuture;
use tombolo_storage::{Error, Result};

use crate::db::{Cursor, Keyspace};
use crate::table::Step;
use crate::value::Value;

/// An entry to keep: key and value.
type Entry = (Value, Value);

/// The entries of a range at one moment of the database, as an iterator from both ends, which also
/// steps back. Entries are given to keep; a [`Cursor`] lends them, and is faster.
///
/// It stands in a gap: `next` gives the entry after the gap and steps over it, `prev` the entry
/// before it. `next_back` begins with the last entry of the range, and ends at the gap, as `next`
/// ends where `next_back` has come: from both ends no entry is given twice. Only `prev` and the
/// seeks move the gap back over what was given.
///
/// As an iterator it blocks the calling thread on a miss; the `_async` verbs and
/// [`Scan::into_stream`] do not. After an error it stays where it was.
///
/// Cost: a step of a cursor and a copy for each entry. The first `next_back` makes a second cursor
/// over the same moment, which reads ahead for itself: `.rev()` costs what going forward does, and
/// both ends at once what two scans do.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// # let db = tombolo::Db::builder("mem://scan").open().wait()?;
/// # let orders = db.default_keyspace();
/// for number in 0..100_u32 {
///     orders.put(number.to_be_bytes(), b"an order").wait()?;
/// }
/// let newest: Vec<_> = orders.prefix(b"").rev().take(10).collect::<tombolo::Result<_>>()?;
/// assert_eq!(&newest[0].0[..], &99_u32.to_be_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scan {
    cursor: Cursor,
    /// Of the entry at which the cursor stands, if it does, whether the gap is the one before it.
    before: bool,
    back: Option<Box<Back>>,
}

/// The other end.
#[derive(Debug)]
struct Back {
    cursor: Cursor,
    /// The key that was given last.
    bound: Option<Vec<u8>>,
    /// Whether the cursor stands at an entry that was not given.
    is_ahead: bool,
}

impl Scan {
    pub(crate) fn new(cursor: Cursor) -> Scan {
        Scan { cursor, before: true, back: None }
    }

    /// One that answers every verb with `error`.
    pub(crate) fn refused(keyspace: &Keyspace, error: Error) -> Scan {
        Scan::new(Cursor::refused(keyspace, error))
    }

    /// Whether the cursor stands at the entry after the gap.
    fn stands_before(&self) -> bool {
        self.cursor.valid() && self.before
    }

    /// Whether the cursor stands at the entry before the gap.
    fn stands_after(&self) -> bool {
        self.cursor.valid() && !self.before
    }

    /// Gives the entry at which the cursor stands, and steps over it; `None` where the other end
    /// has come.
    fn give(&mut self) -> Option<Entry> {
        let bound = self.back.as_ref().and_then(|back| back.bound.as_deref());
        self.before = bound.is_some_and(|bound| bound <= self.cursor.key());
        if self.before { None } else { self.cursor.entry() }
    }

    /// The other end, which begins after all entries.
    fn back(&mut self) -> &mut Back {
        let front = &self.cursor;
        self.back.get_or_insert_with(|| {
            let mut cursor = front.twin();
            cursor.stand_at_end();
            Box::new(Back { cursor, bound: None, is_ahead: false })
        })
    }

    /// Whether the other end stands at an entry that it has not given.
    fn stands_ahead(&mut self) -> bool {
        let back = self.back();
        back.is_ahead && back.cursor.valid()
    }

    /// Gives the entry at which the other end stands; `None` where the gap has come.
    fn give_back(&mut self) -> Option<Entry> {
        let (front, is_before) = (&self.cursor, self.stands_before());
        let back = self.back.as_mut()?;
        let key = back.cursor.key();
        back.is_ahead = !(front.is_before(key) || is_before && front.key() == key);
        if back.is_ahead {
            return None;
        }
        let bound = back.bound.get_or_insert_default();
        bound.clear();
        bound.extend_from_slice(key);
        back.cursor.entry()
    }

    /// The entry before the gap, which moves before it; `None` at the range's start. Blocks on a
    /// miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn prev(&mut self) -> Option<Result<Entry>> {
        if !self.stands_after() {
            match self.cursor.prev() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.before = true;
        self.cursor.entry().map(Ok)
    }

    /// Moves the gap before the first key at or after `key`, within the range.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.cursor.stand_before(key.as_ref());
    }

    /// Moves the gap before the first entry.
    pub fn seek_to_first(&mut self) {
        self.cursor.stand_at_start();
    }

    /// Moves the gap after the last entry.
    pub fn seek_to_last(&mut self) {
        self.cursor.stand_at_end();
    }

    /// As the iterator's `next`, without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_async(&mut self) -> Result<Option<Entry>> {
        if !self.stands_before() && !self.cursor.next_async().await? {
            return Ok(None);
        }
        Ok(self.give())
    }

    /// As [`Scan::prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn prev_async(&mut self) -> Result<Option<Entry>> {
        if !self.stands_after() && !self.cursor.prev_async().await? {
            return Ok(None);
        }
        self.before = true;
        Ok(self.cursor.entry())
    }

    /// As the iterator's `next_back`, without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_back_async(&mut self) -> Result<Option<Entry>> {
        if !self.stands_ahead() && !self.back().cursor.prev_async().await? {
            return Ok(None);
        }
        Ok(self.give_back())
    }

    /// The entries from here on as a stream, which never blocks: `next` of `StreamExt`, and all
    /// that is built on streams. A type of its own, as the same names of iterators and of streams
    /// could not both be called.
    ///
    /// Cost: as the iterator; an allocation for each entry that must be fetched.
    pub fn into_stream(self) -> ScanStream {
        ScanStream(State::Idle(Some(Box::new(self))))
    }
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if !self.stands_before() {
            match self.cursor.next() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.give().map(Ok)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        if !self.stands_ahead() {
            match self.back().cursor.prev() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.give_back().map(Ok)
    }
}

/// The entries of a [`Scan`] as a stream. Dropped, it cancels the read that it waits for. After an
/// error it stays where it was: the next item is the same entry again.
pub struct ScanStream(State);

enum State {
    /// Invariant: `Some` but while a move begins.
    Idle(Option<Box<Scan>>),
    /// Waits for a miss.
    Moving(BoxFuture<'static, (Box<Scan>, Result<bool>)>),
}

impl fmt::Debug for ScanStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Idle(scan) => formatter.debug_tuple("ScanStream").field(scan).finish(),
            State::Moving(_) => formatter.write_str("ScanStream(waiting)"),
        }
    }
}

impl Stream for ScanStream {
    type Item = Result<Entry>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Entry>>> {
        if let State::Idle(scan) = &mut self.0 {
            let Some(mut idle) = scan.take() else { return Poll::Ready(None) };
            let step = if idle.stands_before() { Ok(Step::Done) } else { idle.cursor.begin_next() };
            if let Ok(Step::Done) = step {
                let given = if idle.cursor.valid() { idle.give() } else { None };
                *scan = Some(idle);
                return Poll::Ready(given.map(Ok));
            }
            self.0 = State::Moving(Box::pin(async move {
                let moved = idle.cursor.finish_async(step).await;
                (idle, moved)
            }));
        }
        let State::Moving(moving) = &mut self.0 else { return Poll::Ready(None) };
        let (mut scan, moved) = ready!(moving.as_mut().poll(context));
        let given = moved.map(|found| if found { scan.give() } else { None }).transpose();
        self.0 = State::Idle(Some(scan));
        Poll::Ready(given)
    }
}
