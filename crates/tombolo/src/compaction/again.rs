//! What comes of a range of a job that is run again, to be compared with what somebody else made of
//! it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use tombolo_format::ranges::{Covered, RangeLayers};
use tombolo_storage::{Error, ErrorKind, Result};

use super::merge::{Merge, Merged};
use super::pick::Job;
use crate::resolve::Moments;
use crate::version::TableHandle;

/// Bytes of entries that are kept at most: what comes after them is not looked at.
const BYTES_MAX: usize = 4 << 20;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) trailer: Trailer,
    pub(super) value: Vec<u8>,
}

impl Entry {
    /// Whether the other one says the same of the same key. A value that lies apart in one of them
    /// is not looked at.
    fn is(&self, other: &Entry) -> bool {
        if self.key != other.key || self.trailer.sequence() != other.trailer.sequence() {
            return false;
        }
        match (self.in_place(), other.in_place()) {
            (None, None) => self.trailer == other.trailer && self.value == other.value,
            (Some(kind), None) => other.trailer.kind() == Some(kind),
            (None, Some(kind)) => self.trailer.kind() == Some(kind),
            (Some(one), Some(another)) => one == another,
        }
    }

    /// The kind that an entry would have whose value lies apart, if that lay in it.
    fn in_place(&self) -> Option<EntryKind> {
        match self.trailer.kind() {
            Some(EntryKind::SeparatedPut) => Some(EntryKind::Put),
            Some(EntryKind::SeparatedExpiringPut) => Some(EntryKind::ExpiringPut),
            _ => None,
        }
    }
}

/// A piece of a range delete: from, to, number.
type Piece = (Vec<u8>, Vec<u8>, SequenceNumber);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Again(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    entries: Vec<Entry>,
    bytes: usize,
    pieces: Vec<Piece>,
    /// There is no room for what follows.
    is_full: bool,
}

impl Again {
    /// Takes the next entry.
    ///
    /// # Errors
    /// `Closed` once it is full.
    pub(super) fn take(&self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let mut seen = self.0.lock();
        if seen.bytes > BYTES_MAX {
            seen.is_full = true;
            return Err(Error::new(ErrorKind::Closed, "enough of the job was seen"));
        }
        seen.bytes += key.user_key.len() + value.len() + size_of::<Entry>();
        let (key, trailer) = (key.user_key.to_vec(), key.trailer);
        seen.entries.push(Entry { key, trailer, value: value.to_vec() });
        Ok(())
    }

    /// What tables that follow each other have within a range.
    pub(super) async fn read(
        tables: Vec<Arc<TableHandle>>,
        (start, end): (Option<&Bytes>, Option<&Bytes>),
    ) -> Merged<Again> {
        let again = Again::default();
        for ranges in tables.iter().filter_map(|table| table.ranges()) {
            again.take_ranges(&RangeLayers::within(ranges, start.map(|key| &**key), end.map(|key| &**key)));
        }
        let mut merge = Merge::open(vec![tables], start, end).await?;
        while let Some((key, value)) = merge.entry() {
            if again.take(key, value).is_err() {
                break;
            }
            if let Some(step) = merge.advance()? {
                merge.settle(step).await?;
            }
        }
        Ok(again)
    }

    /// Takes range deletes.
    pub(super) fn take_ranges(&self, ranges: &RangeLayers) {
        let piece = |range: Covered<'_>| (range.from.to_vec(), range.to.to_vec(), range.number);
        self.0.lock().pieces.extend(ranges.iter().map(piece));
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.lock().is_full
    }

    /// How `other`, made of the same range by somebody else, differs. Range deletes are all here,
    /// and there without those that nobody needs.
    pub(super) fn difference(&self, other: &Again, job: &Job, moments: &Moments) -> Option<String> {
        let (own, other) = (self.0.lock(), other.0.lock());
        // One that is not full has no more than it has.
        let count = match (own.is_full, other.is_full) {
            (false, false) => own.entries.len().max(other.entries.len()),
            (false, true) => other.entries.len(),
            (true, false) => own.entries.len(),
            (true, true) => own.entries.len().min(other.entries.len()),
        };
        for at in 0..count {
            match (own.entries.get(at), other.entries.get(at)) {
                (Some(one), Some(another)) if one.is(another) => {}
                (one, another) => return Some(format!("{} instead of {}", said(another), said(one))),
            }
        }
        // One that is full has not come to all of its own.
        if own.is_full || other.is_full {
            return None;
        }
        let (own, other) = (joined(&own.pieces), joined(&other.pieces));
        if other.iter().any(|piece| !is_within(piece, &own)) {
            return Some("a range delete that is none".to_owned());
        }
        let mut needed = own.iter().flat_map(|piece| needed(piece, job, moments));
        needed.any(|piece| !is_within(&piece, &other)).then(|| "a range delete is missing".to_owned())
    }
}

/// Whether one of some pieces that were [`joined`] has all of a piece.
fn is_within((from, to, number): &Piece, all: &[Piece]) -> bool {
    let after = all.partition_point(|piece| (piece.2, &piece.0) <= (*number, from));
    let before = after.checked_sub(1).and_then(|at| all.get(at));
    before.is_some_and(|piece| piece.2 == *number && piece.1 >= *to)
}

/// What of a range delete has to stay: in the oldest stripe what lies over something. More may
/// stay, by where parts of the job begin and end.
fn needed(piece: &Piece, job: &Job, moments: &Moments) -> Vec<Piece> {
    let (from, to, number) = piece;
    if moments.snapshots.first().is_some_and(|(oldest, _)| number > oldest) {
        return vec![piece.clone()];
    }
    let deeper = job.deeper.iter().flat_map(|run| run.range(run.overlapping(from, to)));
    let over = job.older_runs.iter().chain(deeper).map(|table| {
        let table = table.description();
        let mut end = table.last_key.to_vec();
        if !table.ends_before(&end) {
            end.push(0);
        }
        (table.first_key.to_vec().max(from.clone()), end.min(to.clone()), *number)
    });
    over.filter(|(from, to, _)| from < to).collect()
}

fn said(entry: Option<&Entry>) -> String {
    entry.map_or("nothing".to_owned(), |entry| {
        let start = &entry.key[..entry.key.len().min(64)];
        format!("key {} under number {}", start.escape_ascii(), entry.trailer.sequence().0)
    })
}

/// Pieces of one number that meet as one, by number and key: outputs end at other keys.
fn joined(pieces: &[Piece]) -> Vec<Piece> {
    let mut sorted = pieces.to_vec();
    sorted.sort_by(|one, other| (one.2, &one.0).cmp(&(other.2, &other.0)));
    let mut all: Vec<Piece> = Vec::new();
    for (from, to, number) in sorted {
        match all.last_mut() {
            Some(last) if last.2 == number && last.1 >= from => {
                if to > last.1 {
                    last.1 = to;
                }
            }
            _ => all.push((from, to, number)),
        }
    }
    all
}
