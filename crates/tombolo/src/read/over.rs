//! Reads of a keyspace over whose memtables tables lie that were ingested a moment ago: by a walk
//! limited to the key, which goes by numbers and not by places. It lasts until the flush that puts
//! them into the levels.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::{Purpose, Result};

use super::hides::{Hides, hides};
use super::versions::Ending;
use super::{Asked, InMemory, Merge};
use crate::engine::View;
use crate::resolve::{Answer, Fold, Judge};
use crate::table::{KeyRange, Step};
use crate::version::{Apart, TableHandle};

/// The newest version of a key that is seen, by its number, and the value that the key has, with
/// its end.
type Newest = (SequenceNumber, Option<Ending>);

/// A walk over the versions of one key, newest first.
struct Walk<'a> {
    merge: Merge,
    hides: Option<Box<Hides>>,
    key: &'a [u8],
    judge: Judge,
    fold: Fold,
    newest: Option<SequenceNumber>,
    /// A value that lies apart, and is not in memory.
    waits: Option<Apart>,
    /// That value, once it has come.
    come: Option<Bytes>,
}

impl<'a> Walk<'a> {
    fn begin(view: &View, asked: Asked<'_>, key: &'a [u8]) -> Result<(Walk<'a>, Step)> {
        let bound = Bound::Included(key.to_vec());
        let range = Arc::new(KeyRange { lower: bound.clone(), upper: bound });
        let mut merge = Merge::of_view(view, asked.keyspace.id, Some(&range), Purpose::Get);
        let step = merge.try_seek(key, Trailer::seek(asked.sequence))?;
        let hides = Hides::of_view(view, asked.keyspace.id, asked.sequence, Some(&range));
        let (judge, fold) = (asked.judge(), Fold::default());
        let (newest, waits, come) = (None, None, None);
        Ok((Walk { merge, hides, key, judge, fold, newest, waits, come }, step))
    }

    /// Tables whose range deletes must be known first.
    fn closed_tables(&self) -> Vec<Arc<TableHandle>> {
        self.hides.as_ref().map_or_else(Vec::new, |hides| hides.closed_tables(None))
    }

    /// Takes versions from where it stands, until they have an answer or something is not in
    /// memory.
    fn settle(&mut self) -> Result<Step> {
        // Older versions than that of a range delete are not seen.
        let deleted = self.hides.as_mut().and_then(|hides| hides.number(self.key));
        while let Some(source) = self.merge.source()
            && let Some((_, trailer)) = source.entry().filter(|(key, _)| *key == self.key)
        {
            if deleted.is_some_and(|number| hides(number, trailer)) {
                break;
            }
            let come = self.come.take();
            if let Some((_, end)) = self.fold.apart(&self.judge, trailer, source.value()) {
                let apart = source.referred()?;
                let value = come.map_or_else(|| apart.in_memory(Purpose::Get), |value| Ok(Some(value)))?;
                let Some(value) = value else {
                    self.waits = Some(apart);
                    return Ok(Step::Blocked);
                };
                self.newest.get_or_insert(trailer.sequence());
                self.fold.feed_value(value, end);
                break;
            }
            self.newest.get_or_insert(trailer.sequence());
            let (kept, place) = (|| source.value_bytes(), || source.place());
            let answer = self.fold.feed(&self.judge, self.key, trailer, source.value(), kept, place)?;
            if !matches!(answer, Answer::More | Answer::Fold) {
                break;
            }
            if self.merge.try_next()? == Step::Blocked {
                return Ok(Step::Blocked);
            }
        }
        self.newest = self.newest.or(deleted);
        Ok(Step::Done)
    }

    fn finish(self) -> Result<Option<Newest>> {
        let expires_ms = self.fold.expires_ms();
        let value = self.fold.finish(&self.judge, self.key)?;
        Ok(self.newest.map(|newest| (newest, value.map(|value| (value, expires_ms)))))
    }
}

/// Looks the key up in memory. The answer has no value where the key has none.
///
/// # Errors
/// `Corrupt`, `Unsupported`; those of folding.
#[cold]
pub(super) fn newest_in_memory(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<InMemory<Newest>> {
    let (mut walk, step) = Walk::begin(view, asked, key)?;
    if step == Step::Blocked || !walk.closed_tables().is_empty() || walk.settle()? == Step::Blocked {
        return Ok(InMemory::Miss);
    }
    walk.finish().map(InMemory::Answer)
}

/// Looks the key up, in tables too.
///
/// # Errors
/// As [`newest_in_memory`]; those of the store.
pub(super) async fn newest(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<Option<Newest>> {
    let (mut walk, mut step) = Walk::begin(view, asked, key)?;
    for table in walk.closed_tables() {
        table.open().await?;
    }
    loop {
        match walk.waits.take() {
            Some(apart) => walk.come = Some(apart.get(Purpose::Get).await?),
            None if step == Step::Blocked => walk.merge.load().await?,
            None => {}
        }
        step = walk.settle()?;
        if step == Step::Done {
            return walk.finish();
        }
    }
}

/// The value of the key, by memory.
///
/// # Errors
/// As [`newest_in_memory`].
pub(super) fn get_in_memory(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<InMemory<Bytes>> {
    Ok(match newest_in_memory(view, asked, key)? {
        InMemory::Miss => InMemory::Miss,
        InMemory::Answer(newest) => InMemory::Answer(newest.and_then(|(_, value)| Some(value?.0))),
    })
}

/// The value of the key, by tables too.
///
/// # Errors
/// As [`newest`].
pub(super) async fn get(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<Option<Bytes>> {
    Ok(newest(view, asked, key).await?.and_then(|(_, value)| Some(value?.0)))
}
