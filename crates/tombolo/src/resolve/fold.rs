//! The fold of a key's entries, newest first, into what the key has.
//!
//! What ends is there until its time: by the reader's time if nothing that ends lies over it. Below
//! an operand that ends it counts if it ended after that operand was written. So an operand that
//! ends comes to the same whenever it is folded, and the key's value ends with the newest of them.

use bytes::Bytes;
use tombolo_format::expiry::{OperandTimes, join_operand, split_expiring, split_operand};
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer, VALUE_BYTES_MAX};
use tombolo_format::operands::operands;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{Answer, Says, Unresolved, apart, says};
use crate::operator::Named;

/// Bytes of operands that a read holds at most: an associative operator has them joined then, and
/// of another the value would be too large.
const HELD_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// What resolving needs to know of a keyspace beside its entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judge {
    /// The operator that the keyspace names.
    pub(crate) operator: Option<Named>,
    /// The time by which it is judged what has expired.
    pub(crate) judged_ms: u64,
    /// Operands are not folded, so that nobody needs the operator: [`Fold::into_parts`].
    pub(crate) keeps_operands: bool,
}

impl Judge {
    /// The operator.
    ///
    /// # Errors
    /// `Unsupported` when the keyspace names none, or one that is not there.
    pub(crate) fn operator(&self) -> Result<&Named> {
        let Some(named) = &self.operator else {
            let error = Error::new(ErrorKind::Unsupported, "the keyspace names no merge operator");
            return Err(error.advice("set its operator"));
        };
        named.get().map(|_| named)
    }
}

/// Operands in the order in which they come, newest first, in one piece of memory: each with its
/// length behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    count: usize,
}

/// The oldest of [`Operands`], and the others.
#[inline]
fn oldest(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, length) = bytes.split_last_chunk()?;
    let start = before.len().checked_sub(u32::from_le_bytes(*length) as usize)?;
    let (newer, operand) = before.split_at(start);
    Some((operand, newer))
}

/// The oldest operands, oldest first.
#[derive(Debug)]
struct OldestFirst<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for OldestFirst<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (operand, newer) = oldest(self.bytes)?;
        if is_enabled(Mutant::MergeOrderReversed) {
            let newest = (0..self.left).try_fold((operand, newer), |(_, rest), _| oldest(rest));
            return newest.map(|(operand, _)| operand);
        }
        self.bytes = newer;
        Some(operand)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for OldestFirst<'_> {}

impl Operands {
    /// Room for what most keys have.
    const FIRST_BYTES: usize = 64;

    fn push(&mut self, operand: &[u8]) {
        let Ok(length) = u32::try_from(operand.len()) else {
            unreachable!("operands are bounded as values are")
        };
        self.bytes.reserve((operand.len() + size_of::<u32>()).max(Operands::FIRST_BYTES));
        self.bytes.extend_from_slice(operand);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.count += 1;
    }

    /// Takes those of an entry.
    ///
    /// # Errors
    /// `Corrupt` of a list that is none.
    pub(crate) fn push_entry(&mut self, kind: Option<EntryKind>, value: &[u8]) -> Result<()> {
        if !matches!(kind, Some(EntryKind::MergeList | EntryKind::ExpiringMergeList)) {
            self.push(value);
            return Ok(());
        }
        let list = operands(value).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("a list of merge operands: {error}"))
                .advice("verify the database, and restore it from a checkpoint or a backup")
        })?;
        list.iter().rev().for_each(|operand| self.push(operand));
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The newest ones left out, oldest first.
    fn older_than_newest(&self, newest: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        OldestFirst { bytes: &self.bytes, left: self.count.saturating_sub(newest) }
    }

    /// All of them, oldest first.
    pub(crate) fn oldest_first(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.older_than_newest(0)
    }
}

/// An operand, or a list, with its times if it ends.
///
/// # Errors
/// When it should have times, and has none.
pub(super) fn operand_of(
    trailer: Trailer,
    stored: &[u8],
) -> std::result::Result<(&[u8], Option<OperandTimes>), Unresolved> {
    match trailer.kind() {
        Some(EntryKind::ExpiringMerge | EntryKind::ExpiringMergeList) => match split_operand(stored) {
            Ok((operand, times)) => Ok((operand, Some(times))),
            // The writer of one checks it: else another version has.
            Err(_) => Err(Unresolved(trailer.kind_byte())),
        },
        _ => Ok((stored, None)),
    }
}

/// The times of an operand, if it ends.
pub(crate) fn operand_times(trailer: Trailer, stored: &[u8]) -> Option<OperandTimes> {
    operand_of(trailer, stored).ok().and_then(|(_, times)| times)
}

/// The times of operands that follow each other, newest first, as those of one operand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperandEnds {
    /// Of the newest, whether it ends.
    times: Option<OperandTimes>,
    count: u32,
    /// One that ends lies under one that does not: together they are no operand.
    is_mixed: bool,
}

impl OperandEnds {
    /// Takes the next older one.
    pub(crate) fn push(&mut self, next: Option<OperandTimes>) {
        self.times = match (self.times, next) {
            (Some(newer), Some(next)) => Some(OperandTimes { written_ms: next.written_ms, ..newer }),
            (Some(newer), None) => Some(newer),
            (None, next) => {
                self.is_mixed |= self.count > 0 && next.is_some();
                next
            }
        };
        self.count += 1;
    }

    /// When what they come to ends, if it does.
    pub(super) fn expires_ms(&self) -> Option<u64> {
        self.times.map(|times| times.expires_ms)
    }

    /// The entry at a number of what they were joined to, or of a list of them; `None`: they are no
    /// operand together.
    pub(crate) fn entry(
        &self,
        number: SequenceNumber,
        joined: Bytes,
        is_list: bool,
    ) -> Option<(Trailer, Bytes)> {
        let kind = match (self.times, is_list) {
            _ if self.is_mixed => return None,
            (None, false) => EntryKind::Merge,
            (None, true) => EntryKind::MergeList,
            (Some(_), false) => EntryKind::ExpiringMerge,
            (Some(_), true) => EntryKind::ExpiringMergeList,
        };
        let stored = match self.times {
            Some(times) => join_operand(&joined, times).into(),
            None => joined,
        };
        Some((Trailer::new(number, kind), stored))
    }
}

/// Who walks fetches the value, and feeds that.
#[cold]
fn not_fetched(place: String) -> Error {
    Error::new(ErrorKind::Bug, "a reference where its value is needed").object(place)
}

#[cold]
fn too_long() -> Error {
    let message = format!("a chain of merge operands of more than {HELD_BYTES_MAX} bytes");
    Error::new(ErrorKind::Unsupported, message).advice("put or delete the key")
}

/// What a [`Fold`] holds, unfolded.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The value under the operands, and when it ends, if it does.
    pub(crate) value: Option<Bytes>,
    pub(crate) value_expires_ms: Option<u64>,
    /// Oldest first.
    pub(crate) operands: Vec<Bytes>,
    /// Whether an operand ends.
    pub(crate) operands_end: bool,
}

/// Takes the entries of one key that a moment sees, newest first, until they have an answer.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    operands: Operands,
    base: Option<Bytes>,
    /// When the base ends, if it does.
    base_expires_ms: Option<u64>,
    /// When the newest entry ends, if it does.
    expires_ms: Option<u64>,
    /// When the oldest operand so far was written that ends: the time by which older entries count.
    written_ms: Option<u64>,
    /// Whether operands were joined that were fed apart.
    is_shortened: bool,
}

impl Fold {
    /// Takes the next entry, of which `stored` is the value. `kept` gives it where it stays.
    ///
    /// # Errors
    /// Of a kind that is not known; `Unsupported` without the operator; those of the operator;
    /// `Corrupt` of a list of operands that is none.
    pub(crate) fn feed(
        &mut self,
        judge: &Judge,
        key: &[u8],
        trailer: Trailer,
        stored: &[u8],
        kept: impl FnOnce() -> Bytes,
        place: impl FnOnce() -> String,
    ) -> Result<Answer> {
        match says(trailer) {
            Ok(Says::Value) => Ok(self.feed_value(kept(), None)),
            Ok(Says::Absent) => Ok(Answer::Absent),
            Ok(Says::Operand)
                if matches!(
                    trailer.kind(),
                    Some(EntryKind::ExpiringPut | EntryKind::SeparatedExpiringPut)
                ) =>
            {
                // The writer of one checks it: else another version has.
                let Ok((value, expires_ms)) = split_expiring(stored) else {
                    return Err(Unresolved(trailer.kind_byte()).at(place()));
                };
                if self.has_ended(judge, expires_ms) {
                    return Ok(Answer::Absent);
                }
                if trailer.kind() == Some(EntryKind::SeparatedExpiringPut) {
                    return Err(not_fetched(place()));
                }
                Ok(self.feed_value(kept().slice(..value.len()), Some(expires_ms)))
            }
            Ok(Says::Separated) => Err(not_fetched(place())),
            Ok(Says::Operand) => {
                let (operand, times) =
                    operand_of(trailer, stored).map_err(|unresolved| unresolved.at(place()))?;
                if let Some(OperandTimes { written_ms, expires_ms }) = times {
                    if self.has_ended(judge, expires_ms) {
                        return Ok(Answer::Absent);
                    }
                    if self.operands.count() == 0 {
                        self.expires_ms = Some(expires_ms);
                    }
                    self.written_ms = Some(written_ms);
                }
                let operator = if judge.keeps_operands { None } else { Some(judge.operator()?) };
                self.operands.push_entry(trailer.kind(), operand)?;
                if self.operands.bytes.len() > HELD_BYTES_MAX {
                    let Some(operator) = operator else { return Err(too_long()) };
                    self.shorten(operator, key)?;
                }
                Ok(Answer::More)
            }
            Err(unresolved) => Err(Unresolved::at(unresolved, place())),
        }
    }

    /// Whether what ends then does not count.
    fn has_ended(&self, judge: &Judge, expires_ms: u64) -> bool {
        let written_ms = self.written_ms.filter(|_| !is_enabled(Mutant::OperandJudgedAtTheRead));
        expires_ms <= written_ms.unwrap_or(judge.judged_ms)
    }

    /// What an entry refers to, and its end, if its value lies apart and is needed: it is fed with
    /// [`Fold::feed_value`].
    pub(crate) fn apart<'v>(
        &self,
        judge: &Judge,
        trailer: Trailer,
        stored: &'v [u8],
    ) -> Option<(&'v [u8], Option<u64>)> {
        apart(trailer, stored).filter(|(_, end)| !end.is_some_and(|end| self.has_ended(judge, end)))
    }

    /// Takes a value, which nothing older counts below.
    pub(crate) fn feed_value(&mut self, value: Bytes, expires_ms: Option<u64>) -> Answer {
        (self.base, self.base_expires_ms) = (Some(value), expires_ms);
        if self.operands.count() == 0 {
            self.expires_ms = expires_ms;
        }
        Answer::Value
    }

    /// How many operands it holds.
    pub(crate) fn operands(&self) -> usize {
        self.operands.count()
    }

    /// What the operands come to that were fed after the first `newest` ones; `None` where they
    /// cannot be joined without the value under them, or the operator fails: the read says so.
    pub(crate) fn joined_after(&self, newest: usize, judge: &Judge, key: &[u8]) -> Option<Bytes> {
        let operator = judge.operator().ok().filter(|_| !self.is_shortened)?;
        operator.join(key, self.operands.older_than_newest(newest)).ok().flatten().map(Bytes::from)
    }

    /// Joins the operands that are held.
    fn shorten(&mut self, operator: &Named, key: &[u8]) -> Result<()> {
        let Some(joined) = operator.join(key, self.operands.oldest_first())? else {
            return Err(too_long());
        };
        (self.operands, self.is_shortened) = (Operands::default(), true);
        self.operands.push(&joined);
        Ok(())
    }

    /// When what the key has ends, if its newest entry does.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires_ms
    }

    /// What it holds, unfolded.
    pub(crate) fn into_parts(self) -> Parts {
        let operands = self.operands.oldest_first().map(Bytes::copy_from_slice).collect();
        Parts {
            value: self.base,
            value_expires_ms: self.base_expires_ms,
            operands,
            operands_end: self.written_ms.is_some(),
        }
    }

    /// What the key has, once an answer has come or nothing is left.
    ///
    /// # Errors
    /// Those of the operator.
    pub(crate) fn finish(self, judge: &Judge, key: &[u8]) -> Result<Option<Bytes>> {
        if self.operands.count() == 0 {
            return Ok(self.base);
        }
        let folded = judge.operator()?.fold(key, self.base.as_deref(), self.operands.oldest_first())?;
        Ok(folded.map(Bytes::from))
    }
}
