//! A cursor that lends what it stands at.

use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tombolo_format::trace::Asked;
use tombolo_storage::{Error, Result};

use crate::db::recording::Walk;
use crate::db::{Handle, Keyspace, Snapshot};
use crate::read::{self, RangeCursor};
use crate::table::{KeyRange, Step};
use crate::value::{AlignedEntry, Value};

/// A cursor over the entries of a range, at one moment of the database. It lends key and value: a
/// step copies nothing out, and takes no lock and no allocation while memory has the blocks.
///
/// Fresh, it stands before all entries: [`Cursor::next`] goes to the first. A move that finds no
/// entry leaves it beyond the range's end, or before its start; from there the other direction goes
/// back in. After an error it stands beside the entry where it was, so that the same move may be
/// tried again.
///
/// Verbs block the calling thread on a miss, so they must not be called inside a task; their
/// `_async` twins may. All begin with what memory holds, and a seek fetches the misses of all
/// tables together. A cursor keeps memory and tables alive until it is dropped: [`Cursor::refresh`]
/// a long-lived one.
///
/// ```no_run
/// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
/// let mut cursor = orders.cursor("2026-".."2027-");
/// let mut found = cursor.seek("2026-11-22")?;
/// while found {
///     println!("{:?} {:?}", cursor.key(), cursor.value());
///     found = cursor.next()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cursor {
    /// What opening it failed with, which every verb answers.
    inner: std::result::Result<RangeCursor, Error>,
    keyspace: Keyspace,
    /// What it looks from, and keeps; `None` when it looked from the newest.
    snapshot: Option<Snapshot>,
    aligned: AlignedEntry,
    /// Its walk, where that is recorded.
    walk: Option<Box<Walk>>,
    /// Dropped last: it tells that the rest is gone.
    held: Held,
}

/// What a key has that was merged, as it is: see [`Cursor::unfolded`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfolded {
    /// The value under the operands; `None`: they lie over nothing.
    pub value: Option<Bytes>,
    /// When that value ends, in milliseconds of the database's time: operands that do not end lie
    /// over it until then, and over nothing from then on. `None`: it stays.
    pub value_expires_ms: Option<u64>,
    /// The operands, oldest first. Those that were joined already are one.
    pub operands: Vec<Bytes>,
    /// Whether one of the operands ends. When each was written counts then, and is not said here.
    pub operands_end: bool,
}

/// What an open cursor is charged for.
#[derive(Debug)]
struct Held {
    handle: Arc<Handle>,
    bytes: u64,
    /// Whether the cursor kept what the database has replaced, which can now be deleted.
    behind: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        let engine = &self.handle.engine;
        engine.readers.unpin(self.bytes);
        if self.behind {
            engine.work.raise();
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.held.behind = self
            .inner
            .as_ref()
            .is_ok_and(|inner| !Arc::ptr_eq(inner.view(), &self.held.handle.engine.view()));
    }
}

impl Cursor {
    /// Without a snapshot it looks from now.
    pub(crate) fn open(keyspace: &Keyspace, snapshot: Option<Snapshot>, range: KeyRange) -> Cursor {
        let handle = Arc::clone(keyspace.handle());
        let engine = &handle.engine;
        let view = snapshot.as_ref().and_then(Snapshot::view).map_or_else(|| engine.view_owned(), Arc::clone);
        let walk = if engine.recording.is_on() {
            let from = match &range.lower {
                Bound::Included(from) | Bound::Excluded(from) => &from[..],
                Bound::Unbounded => &[],
            };
            Walk::begin(keyspace, from)
        } else {
            None
        };
        let inner = read::check(engine, keyspace.info()).map(|()| {
            let sequence = snapshot.as_ref().map_or_else(|| engine.stream.visible(), Snapshot::number);
            let judged_ms = snapshot.as_ref().map_or_else(|| engine.judged_ms(), Snapshot::judged_ms);
            RangeCursor::new(view, Arc::clone(keyspace.info()), (sequence, judged_ms), range)
        });
        let bytes = inner.as_ref().map_or(0, |inner| engine.readers.pin(inner.tables()));
        let aligned = AlignedEntry::new(keyspace.info().value_alignment());
        Cursor {
            inner,
            keyspace: keyspace.clone(),
            snapshot,
            aligned,
            walk,
            held: Held { handle, bytes, behind: false },
        }
    }

    /// Another one over the same range at the same moment, before all entries.
    pub(crate) fn twin(&self) -> Cursor {
        let handle = Arc::clone(&self.held.handle);
        let inner = match &self.inner {
            Ok(inner) => Ok(inner.twin()),
            Err(error) => Err(error.clone()),
        };
        let bytes = inner.as_ref().map_or(0, |inner| handle.engine.readers.pin(inner.tables()));
        Cursor {
            inner,
            keyspace: self.keyspace.clone(),
            snapshot: self.snapshot.clone(),
            aligned: AlignedEntry::new(self.keyspace.info().value_alignment()),
            walk: self.walk.as_ref().and_then(|_| Walk::begin(&self.keyspace, &[])),
            held: Held { handle, bytes, behind: false },
        }
    }

    /// Whether `key` lies after the entry or the gap at which it stands.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        self.inner.as_ref().is_ok_and(|inner| inner.is_before(key))
    }

    /// The cursor below, and the handle that it is of, unless opening it failed.
    pub(crate) fn parts(&self) -> Result<(&RangeCursor, &Arc<Handle>, &Keyspace)> {
        let inner = self.inner.as_ref().map_err(Error::clone)?;
        Ok((inner, &self.held.handle, &self.keyspace))
    }

    /// One that answers every verb with `error`.
    pub(crate) fn refused(keyspace: &Keyspace, error: Error) -> Cursor {
        let held = Held { handle: Arc::clone(keyspace.handle()), bytes: 0, behind: false };
        Cursor {
            inner: Err(error),
            keyspace: keyspace.clone(),
            snapshot: None,
            aligned: AlignedEntry::new(1),
            walk: None,
            held,
        }
    }

    /// The same cursor, for a walk over keys: values that lie apart from their tables
    /// ([`crate::KeyspaceOptions::separate_bytes`]) are not fetched from here on, and are empty.
    #[must_use]
    pub fn keys_only(mut self) -> Cursor {
        if let Ok(inner) = &mut self.inner {
            inner.keys_only();
        }
        self
    }

    /// The same cursor, for a walk that needs no merge operator: operands are not folded from here
    /// on. Of a key that was merged, [`Cursor::operands`] says what there is, and its value is
    /// empty.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::{Db, KeyspaceOptions, OperatorName};
    ///
    /// let db = Db::builder("mem://unfolded").open().wait()?;
    /// let operator = Some(OperatorName::parse("append_comma")?);
    /// let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    /// let tags = db.create_keyspace("tags", options).wait()?;
    /// tags.put("a", "1").wait()?;
    /// tags.merge("a", "2").wait()?;
    /// let mut cursor = tags.cursor::<&str>(..).unfolded();
    /// assert!(cursor.next()?);
    /// let unfolded = cursor.operands().unwrap();
    /// assert_eq!((unfolded.value.as_deref(), &unfolded.operands[0][..]), (Some(&b"1"[..]), &b"2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn unfolded(mut self) -> Cursor {
        if let Ok(inner) = &mut self.inner {
            inner.keep_operands();
        }
        self
    }

    /// What the entry has at which it stands, if it was merged and the cursor folds nothing
    /// ([`Cursor::unfolded`]).
    pub fn operands(&self) -> Option<Unfolded> {
        let parts = self.inner.as_ref().ok()?.operands()?;
        Some(Unfolded {
            value: parts.value.clone(),
            value_expires_ms: parts.value_expires_ms,
            operands: parts.operands.clone(),
            operands_end: parts.operands_end,
        })
    }

    /// Whether it stands at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.as_ref().is_ok_and(RangeCursor::valid)
    }

    /// The key of the entry at which it stands; empty at none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.inner.as_ref().map_or(&[], RangeCursor::key)
    }

    /// The value of the entry at which it stands; empty at none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.aligned.get(self.inner.as_ref().map_or(&[], RangeCursor::value))
    }

    /// Key and value to keep: small ones are copied, a large value shares the block it lies in.
    pub fn entry(&self) -> Option<(Value, Value)> {
        let inner = self.inner.as_ref().ok().filter(|inner| inner.valid())?;
        Some((Value::from(Bytes::copy_from_slice(inner.key())), self.aligned.keep(inner.value_bytes())))
    }

    /// To the first entry at or after `key`; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.turn(Asked::Scan, key.as_ref());
        let step = self.inner()?.seek(key.as_ref());
        self.finish(step)
    }

    /// To the last entry at or before `key`; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.turn(Asked::ScanBack, key.as_ref());
        let step = self.inner()?.seek_for_prev(key.as_ref());
        self.finish(step)
    }

    /// To the first entry of the range; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.turn(Asked::Scan, &[]);
        self.inner()?.stand_at_start();
        self.next()
    }

    /// To the last entry of the range; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.turn(Asked::ScanBack, &[]);
        self.inner()?.stand_at_end();
        self.prev()
    }

    /// To the next entry; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "it lends its entries, which an iterator cannot; a Scan is one"
    )]
    pub fn next(&mut self) -> Result<bool> {
        let step = self.inner()?.next();
        self.finish(step)
    }

    /// To the entry before; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        let step = self.inner()?.prev();
        self.finish(step)
    }

    /// As [`Cursor::seek`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn seek_async(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.turn(Asked::Scan, key.as_ref());
        let step = self.inner()?.seek(key.as_ref());
        self.finish_async(step).await
    }

    /// As [`Cursor::seek_for_prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn seek_for_prev_async(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.turn(Asked::ScanBack, key.as_ref());
        let step = self.inner()?.seek_for_prev(key.as_ref());
        self.finish_async(step).await
    }

    /// As [`Cursor::seek_to_first`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn seek_to_first_async(&mut self) -> Result<bool> {
        self.turn(Asked::Scan, &[]);
        self.inner()?.stand_at_start();
        self.next_async().await
    }

    /// As [`Cursor::seek_to_last`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn seek_to_last_async(&mut self) -> Result<bool> {
        self.turn(Asked::ScanBack, &[]);
        self.inner()?.stand_at_end();
        self.prev_async().await
    }

    /// As [`Cursor::next`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_async(&mut self) -> Result<bool> {
        let step = self.inner()?.next();
        self.finish_async(step).await
    }

    /// As [`Cursor::prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn prev_async(&mut self) -> Result<bool> {
        let step = self.inner()?.prev();
        self.finish_async(step).await
    }

    /// Looks at the database as it is now, and lets go of what it kept for the moment before; it
    /// stands in the gap before the entry where it stood, so that [`Cursor::next`] gives that one
    /// again if it is still there. A snapshot's cursor goes on to look from the snapshot, which it
    /// keeps open.
    ///
    /// # Errors
    /// `Closed`; `NotFound` when the keyspace was dropped.
    pub fn refresh(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.held.handle.engine);
        let view =
            self.snapshot.as_ref().and_then(Snapshot::view).map_or_else(|| engine.view_owned(), Arc::clone);
        read::check(&engine, self.keyspace.info())?;
        let sequence = self.snapshot.as_ref().map_or_else(|| engine.stream.visible(), Snapshot::number);
        let judged_ms = self.snapshot.as_ref().map_or_else(|| engine.judged_ms(), Snapshot::judged_ms);
        let inner = self.inner()?;
        let behind = !Arc::ptr_eq(&view, inner.view());
        inner.refresh(view, (sequence, judged_ms));
        let pinned = engine.readers.pin(inner.tables());
        engine.readers.unpin(std::mem::replace(&mut self.held.bytes, pinned));
        if behind {
            engine.work.raise();
        }
        Ok(())
    }

    /// When the entry ends at which it stands, in milliseconds of the database's time
    /// ([`crate::Db::time_ms`]); `None` of one that stays, and at no entry.
    pub fn expires_ms(&self) -> Option<u64> {
        self.inner.as_ref().ok().and_then(RangeCursor::expires_ms)
    }

    /// Begins to go to the next entry: [`Cursor::finish_async`] completes it.
    pub(crate) fn begin_next(&mut self) -> Result<Step> {
        let step = self.inner()?.next();
        if let Ok(Step::Done) = step {
            self.stand();
        }
        step
    }

    /// Stands before the first key at or after `key` from now on, without looking.
    pub(crate) fn stand_before(&mut self, key: &[u8]) {
        self.turn(Asked::Scan, key);
        if let Ok(inner) = &mut self.inner {
            inner.stand_before(key);
        }
    }

    /// Stands before the first entry from now on, without looking.
    pub(crate) fn stand_at_start(&mut self) {
        self.turn(Asked::Scan, &[]);
        if let Ok(inner) = &mut self.inner {
            inner.stand_at_start();
        }
    }

    /// Stands after the last entry from now on, without looking.
    pub(crate) fn stand_at_end(&mut self) {
        self.turn(Asked::ScanBack, &[]);
        if let Ok(inner) = &mut self.inner {
            inner.stand_at_end();
        }
    }

    /// It goes elsewhere.
    #[inline]
    fn turn(&mut self, asked: Asked, from: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.turn(asked, from);
        }
    }

    /// It has moved: values are made ready, and a recorded walk learns of it.
    #[inline]
    fn stand(&mut self) {
        self.align();
        if self.walk.is_some() {
            self.tell_walk();
        }
    }

    #[cold]
    fn tell_walk(&mut self) {
        let value = self.valid().then(|| self.value().len());
        if let Some(walk) = &mut self.walk {
            walk.stood(value);
        }
    }

    #[inline]
    fn inner(&mut self) -> Result<&mut RangeCursor> {
        self.inner.as_mut().map_err(|error| error.clone())
    }

    #[inline]
    fn finish(&mut self, step: Result<Step>) -> Result<bool> {
        match step {
            Ok(Step::Done) => {
                self.stand();
                Ok(self.valid())
            }
            step => self.wait(step),
        }
    }

    /// Makes the entry's value ready to be lent, where values are aligned.
    #[inline]
    fn align(&mut self) {
        if self.aligned.is_wanted()
            && let Ok(inner) = &self.inner
        {
            self.aligned.stand_at(inner.value());
        }
    }

    /// Completes a move on the calling thread.
    #[cold]
    fn wait(&mut self, step: Result<Step>) -> Result<bool> {
        let env = self.held.handle.engine.env.clone();
        let mut finished = pin!(self.finish_async(step));
        // A store in memory answers at once.
        match finished.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => env.block_on(finished),
        }
    }

    pub(crate) async fn finish_async(&mut self, step: Result<Step>) -> Result<bool> {
        // What memory could not answer, where somebody wants to know of it.
        let is_watched = matches!(step, Ok(Step::Blocked)) && self.held.handle.engine.recording.is_on();
        let noted = is_watched.then(|| self.keyspace.noted("cursor", &[], 1)).flatten();
        let inner = self.inner.as_mut().map_err(|error| error.clone())?;
        let ended = match step {
            Ok(Step::Done) => Ok(()),
            Ok(Step::Blocked) => {
                match self.keyspace.limit().scope(&self.held.handle.engine.env, "move of a cursor") {
                    Some(scope) => scope.until(&self.held.handle.engine.env, inner.load()).await,
                    None => inner.load().await,
                }
            }
            Err(error) => Err(error),
        };
        if let Some(noted) = noted {
            noted.ended(&ended);
        }
        match ended {
            Ok(()) => {
                self.stand();
                Ok(self.valid())
            }
            Err(error) => {
                let view = Arc::clone(inner.view());
                Err(self.held.handle.engine.judge_read(&view, error).await)
            }
        }
    }
}
