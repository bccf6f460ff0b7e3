//! A cursor over the keys of a transaction: those of the state that it sees, with its own writes
//! over them.
//!
//! Two walks as one: a cursor at the transaction's snapshot, and the index of its own writes as
//! they were when the cursor was opened. Of a key that both have, the own writes say what it has.
//!
//! Invariants:
//! 1. `base` stands at the first entry of the snapshot on the way from `place`, or there is none,
//!    when `ahead` says so; else it stands nowhere of use.
//! 2. Of a transaction that keeps what it reads, the stretch from where a walk began to where it
//!    stands is noted before the move ends, at the snapshot that the transaction has then.

use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, Result};

use crate::db::transaction::{Shared, keep};
use crate::db::{Cursor, Keyspace, Snapshot, Transaction};
use crate::table::KeyRange;
use crate::transaction::{Index, Own, below_ms};
use crate::value::Value;

/// A cursor over the keys of a range as a transaction sees them: [`Transaction::cursor`]. It moves
/// as a [`Cursor`] does, sees the writes that the transaction had made when it was opened, and
/// those since from its next [`TransactionCursor::refresh`] on.
#[derive(Debug)]
pub struct TransactionCursor {
    shared: Arc<Shared>,
    keyspace: Keyspace,
    range: KeyRange,
    /// What opening it failed with, which every move answers.
    refused: Option<Error>,
    index: Index,
    /// At which `base` looks.
    snapshot: Option<Snapshot>,
    base: Cursor,
    ahead: Option<Way>,
    place: Place,
    /// The value of an entry of own writes.
    own: Option<Value>,
    /// The stretch of this walk, and its number among what the transaction has read.
    stretch: Option<(usize, KeyRange)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// Where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Start,
    End,
    /// Before this key, and after all less ones.
    Before(Bytes),
    /// After this key, and before all greater ones.
    After(Bytes),
    /// At the entry of this key.
    At(Bytes),
}

/// Where a move begins.
#[derive(Clone, Debug)]
enum Begin {
    /// At the range's end on this way.
    Edge,
    /// At this key, or next to it when the flag is set.
    Key(Bytes, bool),
}

impl Transaction {
    /// A cursor over the keys of `range`, both ways, its own writes among them; it starts before
    /// the first.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let db = tombolo::Db::builder("mem://words").open().wait()?;
    /// # let words = db.default_keyspace();
    /// words.put("b", "committed").wait()?;
    /// let transaction = db.transaction();
    /// transaction.put(&words, "a", "not yet").wait()?;
    /// let mut cursor = transaction.cursor::<&str>(&words, ..);
    /// assert!(cursor.next()? && cursor.key() == b"a");
    /// assert!(cursor.next()? && cursor.key() == b"b");
    /// assert!(!cursor.next()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl std::ops::RangeBounds<K>,
    ) -> TransactionCursor {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let range = KeyRange { lower: owned(range.start_bound()), upper: owned(range.end_bound()) };
        TransactionCursor::open(&self.shared, keyspace, range)
    }
}

fn base_at(keyspace: &Keyspace, snapshot: Option<&Snapshot>, range: &KeyRange) -> Cursor {
    let bounds = (range.lower.clone(), range.upper.clone());
    keyspace.cursor_at::<Vec<u8>>(snapshot.cloned(), bounds)
}

impl TransactionCursor {
    fn open(shared: &Arc<Shared>, keyspace: &Keyspace, range: KeyRange) -> TransactionCursor {
        let opened = shared.check(keyspace).and_then(|()| shared.snapshot());
        let index = shared.with(|state| Ok(state.writes.index.clone())).unwrap_or_default();
        let (snapshot, base, refused) = match opened {
            Ok(snapshot) => {
                let base = base_at(keyspace, Some(&snapshot), &range);
                (Some(snapshot), base, None)
            }
            Err(error) => (None, Cursor::refused(keyspace, error.clone()), Some(error)),
        };
        TransactionCursor {
            shared: Arc::clone(shared),
            keyspace: keyspace.clone(),
            range,
            refused,
            index,
            snapshot,
            base,
            ahead: None,
            place: Place::Start,
            own: None,
            stretch: None,
        }
    }

    /// Whether it stands at an entry.
    pub fn valid(&self) -> bool {
        matches!(self.place, Place::At(_))
    }

    /// The key of the entry at which it stands; empty at none.
    pub fn key(&self) -> &[u8] {
        match &self.place {
            Place::At(key) => key,
            _ => &[],
        }
    }

    /// The value of the entry at which it stands; empty at none.
    pub fn value(&self) -> &[u8] {
        match (&self.place, &self.own) {
            (Place::At(_), Some(own)) => own,
            (Place::At(_), None) => self.base.value(),
            _ => &[],
        }
    }

    /// Key and value to keep.
    pub fn entry(&self) -> Option<(Value, Value)> {
        let Place::At(key) = &self.place else { return None };
        match &self.own {
            Some(own) => Some((Value::from(key.clone()), own.clone())),
            None => self.base.entry(),
        }
    }

    /// To the first entry at or after `key`; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = Bytes::copy_from_slice(key.as_ref());
        here(&self.env(), self.seek_from(key))
    }

    /// To the last entry at or before `key`; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = Bytes::copy_from_slice(key.as_ref());
        here(&self.env(), self.seek_back_from(key))
    }

    /// To the first entry of the range; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.turn(Place::Start);
        self.next()
    }

    /// To the last entry of the range; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.turn(Place::End);
        self.prev()
    }

    /// To the next entry; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[allow(clippy::should_implement_trait, reason = "it lends its entries, which an iterator cannot")]
    pub fn next(&mut self) -> Result<bool> {
        here(&self.env(), self.next_async())
    }

    /// To the entry before; says whether there is one. Blocks on a miss.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn prev(&mut self) -> Result<bool> {
        here(&self.env(), self.prev_async())
    }

    /// As [`TransactionCursor::seek`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn seek_async(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_from(Bytes::copy_from_slice(key.as_ref())).await
    }

    /// As [`TransactionCursor::seek_for_prev`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn seek_for_prev_async(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_back_from(Bytes::copy_from_slice(key.as_ref())).await
    }

    /// As [`TransactionCursor::seek_to_first`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn seek_to_first_async(&mut self) -> Result<bool> {
        self.turn(Place::Start);
        self.next_async().await
    }

    /// As [`TransactionCursor::seek_to_last`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn seek_to_last_async(&mut self) -> Result<bool> {
        self.turn(Place::End);
        self.prev_async().await
    }

    /// As [`TransactionCursor::next`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn next_async(&mut self) -> Result<bool> {
        self.go(Way::Forward).await
    }

    /// As [`TransactionCursor::prev`], without blocking.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn prev_async(&mut self) -> Result<bool> {
        self.go(Way::Backward).await
    }

    /// Sees all writes of the transaction from here on. It stands in the gap before the entry where
    /// it stood.
    ///
    /// # Errors
    /// `Invalid` once the transaction has ended.
    pub fn refresh(&mut self) -> Result<()> {
        self.index = self.shared.with(|state| Ok(state.writes.index.clone()))?;
        if let Place::At(key) = &self.place {
            self.place = Place::Before(key.clone());
        }
        self.ahead = None;
        Ok(())
    }

    async fn seek_from(&mut self, key: Bytes) -> Result<bool> {
        self.turn(Place::Before(key));
        self.next_async().await
    }

    async fn seek_back_from(&mut self, key: Bytes) -> Result<bool> {
        self.turn(Place::After(key));
        self.prev_async().await
    }

    /// It goes elsewhere: another walk begins.
    fn turn(&mut self, place: Place) {
        (self.place, self.ahead, self.stretch) = (place, None, None);
    }

    fn env(&self) -> Env {
        self.shared.engine().env.clone()
    }

    async fn go(&mut self, way: Way) -> Result<bool> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        loop {
            self.look_from_the_newest()?;
            let from = match (&self.place, way) {
                (Place::Start, Way::Forward) | (Place::End, Way::Backward) => Begin::Edge,
                (Place::Start | Place::End, _) => return Ok(false),
                (Place::Before(key), Way::Forward) | (Place::After(key), Way::Backward) => {
                    Begin::Key(key.clone(), false)
                }
                (Place::Before(key) | Place::After(key) | Place::At(key), _) => Begin::Key(key.clone(), true),
            };
            let found = match way {
                Way::Forward => self.forward(from.clone()).await,
                Way::Backward => self.backward(from.clone()).await,
            };
            // What fails leaves it in the gap beside the entry where it was.
            let found = found.inspect_err(|_| self.stand_beside(way))?;
            if self.note(way, &from, found.as_ref().map(|(key, _)| key))? {
                return Ok(self.stand(way, found));
            }
            // The transaction sees another state meanwhile.
            self.stand_beside(way);
        }
    }

    fn stand_beside(&mut self, way: Way) {
        self.ahead = None;
        if let Place::At(key) = &self.place {
            self.place = match way {
                Way::Forward => Place::After(key.clone()),
                Way::Backward => Place::Before(key.clone()),
            };
        }
    }

    fn stand(&mut self, way: Way, found: Option<(Bytes, Option<Value>)>) -> bool {
        match (found, way) {
            (Some((key, own)), _) => {
                (self.place, self.own) = (Place::At(key), own);
                true
            }
            (None, Way::Forward) => {
                self.place = Place::End;
                false
            }
            (None, Way::Backward) => {
                self.place = Place::Start;
                false
            }
        }
    }

    /// Where the transaction has moved to another state, so does this: all that it has passed is as
    /// it was.
    fn look_from_the_newest(&mut self) -> Result<()> {
        let now = self.shared.snapshot()?;
        if self.snapshot.as_ref().is_none_or(|own| own.number() != now.number()) {
            self.base = base_at(&self.keyspace, Some(&now), &self.range);
            (self.snapshot, self.ahead) = (Some(now), None);
        }
        Ok(())
    }

    /// Notes what was passed; says whether the transaction sees the same state still.
    fn note(&mut self, way: Way, from: &Begin, found: Option<&Bytes>) -> Result<bool> {
        if !self.shared.options().keeps_reads() || is_enabled(Mutant::TransactionCursorUnnoted) {
            return Ok(true);
        }
        let stretch = &mut self.stretch;
        let (range, info) = (&self.range, self.keyspace.info());
        let own = self.snapshot.as_ref().map(Snapshot::number);
        self.shared.with_snapshot(|now, state, bytes_max| {
            if Some(now.number()) != own {
                return Ok(false);
            }
            let edge = |way| match way {
                Way::Forward => range.upper.clone(),
                Way::Backward => range.lower.clone(),
            };
            let end = found.map_or_else(|| edge(way), |key| Bound::Included(key.to_vec()));
            let (number, passed) = match stretch.take() {
                Some(known) => known,
                None => {
                    let begin = match (from, way) {
                        (Begin::Edge, Way::Forward) => range.lower.clone(),
                        (Begin::Edge, Way::Backward) => range.upper.clone(),
                        (Begin::Key(key, _), _) => Bound::Included(key.to_vec()),
                    };
                    let passed = match way {
                        Way::Forward => KeyRange { lower: begin, upper: end.clone() },
                        Way::Backward => KeyRange { lower: end.clone(), upper: begin },
                    };
                    (state.reads.add_range(info, passed.clone()), passed)
                }
            };
            let passed = match way {
                Way::Forward => KeyRange { upper: farther(passed.upper, end), ..passed },
                Way::Backward => KeyRange { lower: lower(passed.lower, end), ..passed },
            };
            state.reads.extend(number, passed.clone());
            *stretch = Some((number, passed));
            state.charge(0, bytes_max)?;
            Ok(true)
        })
    }

    /// Moves `base` to the first entry on the way from `from`.
    async fn look_ahead(&mut self, way: Way, from: &Begin) -> Result<()> {
        if self.ahead == Some(way) {
            let is_passed = match (from, way) {
                _ if !self.base.valid() => false,
                (Begin::Edge, _) => false,
                (Begin::Key(key, next_to), Way::Forward) => {
                    self.base.key() < &key[..] || *next_to && self.base.key() == key
                }
                (Begin::Key(key, next_to), Way::Backward) => {
                    self.base.key() > &key[..] || *next_to && self.base.key() == key
                }
            };
            if !is_passed {
                return Ok(());
            }
            // One step, as a rule.
            self.ahead = None;
            match way {
                Way::Forward => self.base.next_async().await?,
                Way::Backward => self.base.prev_async().await?,
            };
            self.ahead = Some(way);
            let is_past = match (from, way) {
                _ if !self.base.valid() => true,
                (Begin::Edge, _) => true,
                (Begin::Key(key, next_to), Way::Forward) => {
                    self.base.key() > &key[..] || !next_to && self.base.key() == key
                }
                (Begin::Key(key, next_to), Way::Backward) => {
                    self.base.key() < &key[..] || !next_to && self.base.key() == key
                }
            };
            if is_past {
                return Ok(());
            }
        }
        self.ahead = None;
        match (from, way) {
            (Begin::Edge, Way::Forward) => self.base.seek_to_first_async().await?,
            (Begin::Edge, Way::Backward) => self.base.seek_to_last_async().await?,
            (Begin::Key(key, next_to), Way::Forward) => {
                self.base.seek_async(key).await?;
                if *next_to && self.base.valid() && self.base.key() == key {
                    self.base.next_async().await?;
                }
                true
            }
            (Begin::Key(key, next_to), Way::Backward) => {
                self.base.seek_for_prev_async(key).await?;
                if *next_to && self.base.valid() && self.base.key() == key {
                    self.base.prev_async().await?;
                }
                true
            }
        };
        self.ahead = Some(way);
        Ok(())
    }

    /// The first entry from `from` on, with the value where it is of own writes.
    async fn forward(&mut self, mut from: Begin) -> Result<Option<(Bytes, Option<Value>)>> {
        let id = self.keyspace.id();
        loop {
            self.look_ahead(Way::Forward, &from).await?;
            let own = match &from {
                Begin::Key(key, is_after) => self.index.next(id, key, *is_after),
                Begin::Edge => match &self.range.lower {
                    Bound::Unbounded => self.index.next(id, &[], false),
                    Bound::Included(key) => self.index.next(id, key, false),
                    Bound::Excluded(key) => self.index.next(id, key, true),
                },
            };
            let own = own.filter(|(key, _)| !self.range.is_above(key));
            // A seek below the range begins in it.
            if let Some((key, _)) = own.as_ref().filter(|(key, _)| self.range.is_below(key)) {
                from = Begin::Key(key.clone(), true);
                continue;
            }
            let base = self.base.valid().then(|| Bytes::copy_from_slice(self.base.key()));
            let (key, own) = match (own, base) {
                (None, None) => return Ok(None),
                (Some((key, own)), Some(base)) if key <= base => (key, Some((own, Some(base)))),
                (Some((key, own)), None) => (key, Some((own, None))),
                (_, Some(base)) => (base, None),
            };
            if let Some(own) = self.entry_at(&key, own).await? {
                return Ok(Some((key, own)));
            }
            // A deleted range is passed at once, up to the next own write in it.
            from = match self.index.range_around(id, &key) {
                Some((_, to)) => match self.index.next(id, &key, true) {
                    Some((next, _)) if next < *to => Begin::Key(next, false),
                    _ => Begin::Key(to.clone(), false),
                },
                None => Begin::Key(key, true),
            };
        }
    }

    /// The same, backward.
    async fn backward(&mut self, mut from: Begin) -> Result<Option<(Bytes, Option<Value>)>> {
        let id = self.keyspace.id();
        loop {
            self.look_ahead(Way::Backward, &from).await?;
            let own = match &from {
                Begin::Key(key, is_before) => self.index.prev(id, Some(key), *is_before),
                Begin::Edge => match &self.range.upper {
                    Bound::Unbounded => self.index.prev(id, None, false),
                    Bound::Included(key) => self.index.prev(id, Some(key), false),
                    Bound::Excluded(key) => self.index.prev(id, Some(key), true),
                },
            };
            let own = own.filter(|(key, _)| !self.range.is_below(key));
            if let Some((key, _)) = own.as_ref().filter(|(key, _)| self.range.is_above(key)) {
                from = Begin::Key(key.clone(), true);
                continue;
            }
            let base = self.base.valid().then(|| Bytes::copy_from_slice(self.base.key()));
            let (key, own) = match (own, base) {
                (None, None) => return Ok(None),
                (Some((key, own)), Some(base)) if key >= base => (key, Some((own, Some(base)))),
                (Some((key, own)), None) => (key, Some((own, None))),
                (_, Some(base)) => (base, None),
            };
            if let Some(own) = self.entry_at(&key, own).await? {
                return Ok(Some((key, own)));
            }
            from = match self.index.range_around(id, &key) {
                Some((begin, _)) => match self.index.prev(id, Some(&key), true) {
                    Some((prev, _)) if prev >= *begin => Begin::Key(prev, false),
                    _ => Begin::Key(begin.clone(), true),
                },
                None => Begin::Key(key, true),
            };
        }
    }

    /// What a key has: `None` nothing; else the value where it is of own writes. `own` is what own
    /// writes say, with the key at which `base` stands.
    async fn entry_at(
        &mut self,
        key: &Bytes,
        own: Option<(Own, Option<Bytes>)>,
    ) -> Result<Option<Option<Value>>> {
        match own {
            // Of the snapshot alone: unless a deleted range of own writes is over it.
            None => Ok(self.index.range_around(self.keyspace.id(), key).is_none().then_some(None)),
            Some((Own::Nothing | Own::Absent, _)) => Ok(None),
            Some((Own::Written(written, shows_below), base)) => {
                let below = match (below_ms(&written), &self.snapshot) {
                    _ if !shows_below => None,
                    (Some(judged_ms), Some(snapshot)) => {
                        snapshot.get_judged(&self.keyspace, key, judged_ms).await?
                    }
                    _ if base.as_ref() == Some(key) => self.base.entry().map(|(_, value)| value),
                    _ => None,
                };
                Ok(keep(self.keyspace.info(), key, &written, below)?.map(Some))
            }
        }
    }
}

/// Completes a move on the calling thread.
fn here(env: &Env, moved: impl Future<Output = Result<bool>> + Send) -> Result<bool> {
    let mut moved = pin!(moved);
    // What memory knows is there at once.
    match moved.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => env.block_on(moved),
    }
}

/// Of two upper bounds the greater one.
fn farther(one: Bound<Vec<u8>>, other: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&one, &other) {
        (Bound::Unbounded, _) => one,
        (_, Bound::Unbounded) => other,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b)) if b >= a => other,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b)) if b > a => other,
        _ => one,
    }
}

/// Of two lower bounds the less one.
fn lower(one: Bound<Vec<u8>>, other: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (&one, &other) {
        (Bound::Unbounded, _) => one,
        (_, Bound::Unbounded) => other,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b)) if b <= a => other,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b)) if b < a => other,
        _ => one,
    }
}
