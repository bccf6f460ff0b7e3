//! A cursor over what one moment sees of a range: one entry for each key that has a value.
//!
//! Invariant: the cursor stands in a gap between keys. `merge` is only a means: where it stands is trusted while `direction` says so, and
//! found again from the gap otherwise. So an error, or a dropped future, leaves the cursor where it was.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_storage::{Purpose, Result};

use super::{Merge, unknown_kind};
use crate::engine::View;

/// A key and its value.
pub(crate) type KeyValue = (Bytes, Bytes);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A place between keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gap {
    First,
    Before(Vec<u8>),
    After(Vec<u8>),
    Last,
}

impl Gap {
    #[inline]
    fn is_after(&self, key: &[u8]) -> bool {
        matches!(self, Gap::After(before) if before == key)
    }

    #[inline]
    fn move_after(&mut self, key: &[u8]) {
        if let Gap::After(buffer) = self {
            buffer.clear();
            buffer.extend_from_slice(key);
        } else {
            *self = Gap::After(key.to_vec());
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RangeCursor {
    merge: Merge,
    /// Keeps what the merge reads from.
    _view: Arc<View>,
    sequence: SequenceNumber,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    gap: Gap,
    /// In which direction `merge` stands at the next entry; `None`: nowhere of use.
    direction: Option<Direction>,
}

impl RangeCursor {
    pub(crate) fn new(
        view: Arc<View>,
        keyspace: u32,
        sequence: SequenceNumber,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> RangeCursor {
        let merge = Merge::of_view(&view, keyspace, Purpose::Scan);
        RangeCursor { merge, _view: view, sequence, lower, upper, gap: Gap::First, direction: None }
    }

    /// Before the first key at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.gap = Gap::Before(key.to_vec());
        self.direction = None;
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.gap = Gap::First;
        self.direction = None;
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.gap = Gap::Last;
        self.direction = None;
    }

    fn below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(bound) => key < &bound[..],
            Bound::Excluded(bound) => key <= &bound[..],
        }
    }

    fn above(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(bound) => key > &bound[..],
            Bound::Excluded(bound) => key >= &bound[..],
        }
    }

    /// Moves the merge to the first entry after the gap.
    async fn stand_forward(&mut self) -> Result<()> {
        let lower = match &self.lower {
            Bound::Unbounded => None,
            Bound::Included(bound) => Some((&bound[..], Trailer::FIRST)),
            Bound::Excluded(bound) => Some((&bound[..], Trailer::LAST)),
        };
        let gap = match &self.gap {
            Gap::First => None,
            Gap::Before(key) => Some((&key[..], Trailer::FIRST)),
            Gap::After(key) => Some((&key[..], Trailer::LAST)),
            Gap::Last => match &self.upper {
                Bound::Unbounded => {
                    self.merge.end();
                    return Ok(());
                }
                Bound::Included(bound) => Some((&bound[..], Trailer::LAST)),
                Bound::Excluded(bound) => Some((&bound[..], Trailer::FIRST)),
            },
        };
        // Of two places, the later one: keys ascend, and within a key `LAST` comes after `FIRST`.
        let later = |one: (&[u8], Trailer), other: (&[u8], Trailer)| one.0 > other.0 || one.0 == other.0 && one.1 < other.1;
        let start = match (lower, gap) {
            (Some(lower), Some(gap)) => Some(if later(lower, gap) { lower } else { gap }),
            (lower, gap) => lower.or(gap),
        };
        match start {
            Some((key, trailer)) => self.merge.seek(key, trailer).await,
            None => self.merge.first().await,
        }
    }

    /// Moves the merge to the last entry before the gap.
    async fn stand_backward(&mut self) -> Result<()> {
        let upper = match &self.upper {
            Bound::Unbounded => None,
            Bound::Included(bound) => Some((&bound[..], Trailer::LAST)),
            Bound::Excluded(bound) => Some((&bound[..], Trailer::FIRST)),
        };
        let gap = match &self.gap {
            Gap::First => Some((&b""[..], Trailer::FIRST)),
            Gap::Before(key) => Some((&key[..], Trailer::FIRST)),
            Gap::After(key) => Some((&key[..], Trailer::LAST)),
            Gap::Last => None,
        };
        let earlier = |one: (&[u8], Trailer), other: (&[u8], Trailer)| one.0 < other.0 || one.0 == other.0 && one.1 > other.1;
        let end = match (upper, gap) {
            (Some(upper), Some(gap)) => Some(if earlier(upper, gap) { upper } else { gap }),
            (upper, gap) => upper.or(gap),
        };
        match end {
            Some((key, trailer)) => self.merge.seek_before(key, trailer).await,
            None => self.merge.last().await,
        }
    }

    /// The entry after the gap; the gap moves behind it.
    pub(crate) async fn next(&mut self) -> Result<Option<KeyValue>> {
        if self.direction.take() != Some(Direction::Forward) {
            self.stand_forward().await?;
        }
        let mut found = None;
        while let Some((key, trailer)) = self.merge.entry() {
            if self.above(key) {
                break;
            }
            // After the newest visible version of a key, which moved the gap, all others of it are older.
            if trailer.sequence() <= self.sequence && !self.gap.is_after(key) {
                match trailer.kind() {
                    Some(EntryKind::Put) => found = self.merge.source().map(|source| (Bytes::copy_from_slice(key), source.value_bytes())),
                    Some(EntryKind::Delete) => self.gap.move_after(key),
                    kind => return Err(unknown_kind(kind)),
                }
            }
            self.merge.next().await?;
            if found.is_some() {
                break;
            }
        }
        match &found {
            Some((key, _)) => self.gap.move_after(key),
            None => self.gap = Gap::Last,
        }
        self.direction = Some(Direction::Forward);
        Ok(found)
    }

    /// The entry before the gap; the gap moves before it.
    pub(crate) async fn prev(&mut self) -> Result<Option<KeyValue>> {
        if self.direction.take() != Some(Direction::Backward) {
            self.stand_backward().await?;
        }
        let mut found = None;
        while found.is_none() {
            let Some((key, _)) = self.merge.entry() else { break };
            if self.below(key) {
                break;
            }
            let key = Bytes::copy_from_slice(key);
            let value = self.newest_backward(&key).await?;
            found = value.map(|value| (key, value));
        }
        self.gap = match &found {
            Some((key, _)) => Gap::Before(key.to_vec()),
            None => Gap::First,
        };
        self.direction = Some(Direction::Backward);
        Ok(found)
    }

    /// Walks backward over all versions of `key`, oldest first, and gives the newest visible one's value.
    async fn newest_backward(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut newest = None;
        while let Some((found, trailer)) = self.merge.entry() {
            if found != key {
                break;
            }
            if trailer.sequence() <= self.sequence {
                newest = match trailer.kind() {
                    Some(EntryKind::Put) => self.merge.source().map(super::Source::value_bytes),
                    Some(EntryKind::Delete) => None,
                    kind => return Err(unknown_kind(kind)),
                };
            }
            self.merge.prev().await?;
        }
        Ok(newest)
    }
}
