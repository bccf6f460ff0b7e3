//! The fold of a key's entries, newest first, into what the key has.

use bytes::Bytes;
use tombolo_format::expiry::split_expiring;
use tombolo_format::key::{EntryKind, Trailer, VALUE_BYTES_MAX};
use tombolo_format::operands::operands;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{Answer, Says, Unresolved, says};
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

/// Operands in the order in which they come, newest first, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operands {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Operands {
    fn push(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    /// Takes those of an entry.
    ///
    /// # Errors
    /// `Corrupt` of a list that is none.
    pub(crate) fn push_entry(&mut self, kind: Option<EntryKind>, value: &[u8]) -> Result<()> {
        if kind != Some(EntryKind::MergeList) {
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

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The newest ones left out, oldest first.
    fn older_than_newest(&self, newest: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let count = self.count();
        (0..count.saturating_sub(newest)).map(move |at| self.get(count - 1 - at))
    }

    /// Oldest first.
    pub(crate) fn oldest_first(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let count = self.count();
        let is_reversed = is_enabled(Mutant::MergeOrderReversed);
        (0..count).map(move |at| self.get(if is_reversed { at } else { count - 1 - at }))
    }
}

/// Takes the entries of one key that a moment sees, newest first, until they have an answer.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    operands: Operands,
    base: Option<Bytes>,
    /// When the base ends, if it does.
    expires_ms: Option<u64>,
    /// Whether operands were joined that were fed apart.
    is_shortened: bool,
}

impl Fold {
    /// Takes the next entry. `value` is asked of what needs it.
    ///
    /// # Errors
    /// Of a kind that is not known; `Unsupported` without the operator; those of the operator;
    /// `Corrupt` of a list of operands that is none.
    pub(crate) fn feed(
        &mut self,
        judge: &Judge,
        key: &[u8],
        trailer: Trailer,
        value: impl FnOnce() -> Bytes,
        place: impl FnOnce() -> String,
    ) -> Result<Answer> {
        match says(trailer) {
            Ok(Says::Value) => {
                self.base = Some(value());
                Ok(Answer::Value)
            }
            Ok(Says::Absent) => Ok(Answer::Absent),
            Ok(Says::Operand) if trailer.kind() == Some(EntryKind::ExpiringPut) => {
                let stored = value();
                // The writer of one checks it: else another version has.
                let Ok((value, expires_ms)) = split_expiring(&stored) else {
                    return Err(Unresolved(trailer.kind_byte()).at(place()));
                };
                if expires_ms <= judge.judged_ms {
                    return Ok(Answer::Absent);
                }
                (self.base, self.expires_ms) = (Some(stored.slice(..value.len())), Some(expires_ms));
                Ok(Answer::Value)
            }
            // Who walks has fetched the value, and feeds it as a put.
            Ok(Says::Separated) => {
                Err(Error::new(ErrorKind::Bug, "a reference where its value is needed").object(place()))
            }
            Ok(Says::Operand) => {
                let operator = judge.operator()?;
                let value = value();
                self.operands.push_entry(trailer.kind(), &value)?;
                if self.operands.bytes.len() > HELD_BYTES_MAX {
                    self.shorten(operator, key)?;
                }
                Ok(Answer::More)
            }
            Err(unresolved) => Err(Unresolved::at(unresolved, place())),
        }
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
            let message = format!("a chain of merge operands of more than {HELD_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::Unsupported, message).advice("put or delete the key"));
        };
        (self.operands, self.is_shortened) = (Operands::default(), true);
        self.operands.push(&joined);
        Ok(())
    }

    /// When what the key has ends: the value of one entry.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires_ms.filter(|_| self.operands.count() == 0)
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
