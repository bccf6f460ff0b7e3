//! Which version of a key wins, and which versions somebody can still see.
//!
//! Get, multi-get, cursors, flush and compaction all ask here, so that they cannot differ.
//! - [`says`]: what an entry that is seen says of its key. A search for the newest entry that a
//!   moment sees has its answer by it.
//! - [`Moment`]: takes the entries of a key, newest first, and says when it has the answer.
//! - [`Fold`]: takes those of a key that one entry does not answer for, and gives the answer.
//! - [`Hiding`]: says which entries range deletes take away before, and which range deletes stay.
//! - [`Retention`]: takes the entries of all keys in order, and gives those that are kept: as they
//!   are, or others in their place.
//!
//! Invariants:
//! 1. An entry of a kind that this version does not know is never taken for another, and never
//!    dropped, not even behind a newer put: a newer version may need it.
//! 2. Reads at every moment that somebody can look from are the same before and after retention.
//!
//! A new kind is a variant of `EntryKind`, and an arm wherever the compiler asks for one. Puts and
//! deletes answer on the fast paths of reads. Every other kind says [`Says::Operand`] there, which
//! leaves them for [`Fold`].

mod fold;
mod hiding;
mod retention;

use std::fmt;

use bytes::Bytes;
use tombolo_format::expiry::{join_expiring, split_expiring};
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer, kind_name};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind};

pub(crate) use fold::{Fold, Judge, OperandEnds, Parts, operand_times};
pub(crate) use hiding::Hiding;
pub(crate) use retention::{Moments, Retention, Taken, operands_ms};

/// What an entry says of its key to a read that sees it and nothing newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// The key has the entry's value.
    Value,
    /// The key has a value, and the entry's value refers to it.
    Separated,
    /// The key has no value.
    Absent,
    /// That depends on older entries of the key, or on the time: [`Fold`].
    Operand,
}

/// What the entries of a key come to, fed newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The key has the value of the entry that was fed last.
    Value,
    /// The key has the value to which the entry refers that was fed last.
    Separated,
    /// The key has no value.
    Absent,
    /// The next older entry is needed.
    More,
    /// All entries are needed, this one included: [`Fold`].
    Fold,
}

/// An entry of a kind that this version does not know, by the byte of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unresolved(u8);

impl Unresolved {
    /// The error, with the place where the entry lies.
    #[cold]
    pub(crate) fn at(self, place: impl fmt::Display) -> Error {
        let message = format!("an entry of kind {}, which this version cannot read", kind_name(self.0));
        Error::new(ErrorKind::Unsupported, message)
            .object(place)
            .advice("use the version of Tombolo that wrote it, or a later one")
    }
}

/// What an entry that is seen says of its key.
#[inline]
pub(crate) fn says(trailer: Trailer) -> Result<Says, Unresolved> {
    if is_put(trailer) { Ok(Says::Value) } else { others_say(trailer) }
}

/// Whether it is a put, as most are, which alone says the value of its key: asked before all other
/// kinds, in one comparison.
#[inline]
pub(crate) fn is_put(trailer: Trailer) -> bool {
    trailer.kind_byte() == EntryKind::Put as u8
}

/// The same, of one that is no put.
fn others_say(trailer: Trailer) -> Result<Says, Unresolved> {
    match trailer.kind() {
        Some(EntryKind::Put) => Ok(Says::Value),
        Some(EntryKind::SeparatedPut) => Ok(Says::Separated),
        Some(EntryKind::Delete | EntryKind::SingleDelete) => Ok(Says::Absent),
        Some(EntryKind::Merge | EntryKind::MergeList) if is_enabled(Mutant::MergeAnswersAlone) => {
            Ok(Says::Value)
        }
        Some(
            EntryKind::Merge
            | EntryKind::MergeList
            | EntryKind::ExpiringPut
            | EntryKind::ExpiringMerge
            | EntryKind::ExpiringMergeList
            | EntryKind::SeparatedExpiringPut,
        ) => Ok(Says::Operand),
        None if is_enabled(Mutant::UnknownKindTakenForPut) => Ok(Says::Value),
        // It is no entry of a key: among those it is out of place.
        None | Some(EntryKind::RangeDelete) => Err(Unresolved(trailer.kind_byte())),
    }
}

/// By which time it is judged what has expired. Of now it is asked for only where an entry expires.
#[derive(Clone, Copy)]
pub(crate) enum Judged<'a> {
    At(u64),
    Now(&'a (dyn Fn() -> u64 + Sync)),
}

impl Judged<'_> {
    pub(crate) fn ms(self) -> u64 {
        match self {
            Judged::At(judged_ms) => judged_ms,
            Judged::Now(now) => now(),
        }
    }
}

impl fmt::Debug for Judged<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ms", self.ms())
    }
}

/// Whether the entry's value lies apart, and when it ends if it does. The entry itself has the
/// reference then.
pub(crate) fn apart(trailer: Trailer, stored: &[u8]) -> Option<(&[u8], Option<u64>)> {
    match trailer.kind() {
        Some(EntryKind::SeparatedPut) => Some((stored, None)),
        Some(EntryKind::SeparatedExpiringPut) => {
            let (reference, expires_ms) = split_expiring(stored).ok()?;
            Some((reference, Some(expires_ms)))
        }
        _ => None,
    }
}

/// An entry whose value lay apart as if the value had been put with the entry.
pub(crate) fn as_put(trailer: Trailer, value: Bytes, expires_ms: Option<u64>) -> (Trailer, Bytes) {
    let (kind, stored) = match expires_ms {
        Some(end) => (EntryKind::ExpiringPut, join_expiring(&value, end).into()),
        None => (EntryKind::Put, value),
    };
    (Trailer::new(trailer.sequence(), kind), stored)
}

/// A moment to look from: it sees entries that are no newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) SequenceNumber);

impl Moment {
    /// Whether an entry is seen.
    #[inline]
    pub(crate) fn sees(self, trailer: Trailer) -> bool {
        trailer.sequence() <= self.0
    }

    /// Takes the next entry of a key. The entries come newest first, and end with an answer.
    #[inline]
    pub(crate) fn feed(self, trailer: Trailer) -> Result<Answer, Unresolved> {
        if !self.sees(trailer) {
            return Ok(Answer::More);
        }
        match says(trailer) {
            Ok(Says::Value) => Ok(Answer::Value),
            Ok(Says::Separated) => Ok(Answer::Separated),
            Ok(Says::Absent) => Ok(Answer::Absent),
            Ok(Says::Operand) => Ok(Answer::Fold),
            Err(unresolved) => Err(unresolved),
        }
    }
}

#[cfg(test)]
mod tests;
