//! The protocol of the chain: state machines that say what to do next and are told how it ended.
//!
//! Manifest, step 1 of 3. A machine is a value: [`Machine::begin`] gives its first effect,
//! [`Machine::step`] takes the answer and gives the next one, until it is done. One effect is
//! outstanding at a time, which is what makes 'a list begun after the read' and 'one put
//! outstanding' true by construction. No IO, clock or randomness inside; the
//! [driver](super::driver) performs the effects for real, and the model performs them against a
//! store that lets every put and delete land at any later time, more than once.
//!
//! | machine | rule | does |
//! |---|---|---|
//! | [`load::Load`] | 3 | finds the newest state, and proves it |
//! | [`claim::Claim`] | 4 | begins an epoch |
//! | [`append::Append`] | 1, 5 | puts one record after the tip |
//! | [`open::Open`] | 1 | finds or begins the incarnation, then loads and claims |
//! | [`follow::Follow`] | 3 | brings a reader's tip up to date |
//! | [`truncate::Truncate`] | 2 | deletes records below a durable snapshot |

pub mod append;
pub mod claim;
pub mod follow;
pub mod load;
pub mod open;
pub mod tip;
pub mod truncate;

use std::ops::RangeInclusive;

use bytes::Bytes;
use tombolo_format::manifest::Edit;
use tombolo_storage::{Error, ErrorKind, Incarnation, ObjectName, Result};

pub use tip::{SnapshotName, Tip};

use super::names;

/// Most records read by one effect.
pub const RECORDS_PER_READ_MAX: u64 = 128;

/// What a machine asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The highest number of an incarnation record: one atomic list of one name. →
    /// [`Answer::Newest`]
    NewestIncarnation,
    /// Put the record that begins an incarnation, if it is absent. → [`Answer::Put`]
    PutIncarnation(Incarnation),
    /// The highest slot of a chain: one atomic list of one name. → [`Answer::Newest`]
    NewestRecord(Incarnation),
    /// The bytes in these slots, at most [`RECORDS_PER_READ_MAX`]; the reads may be made in any
    /// order. → [`Answer::Records`]
    ReadRecords(Incarnation, RangeInclusive<u64>),
    /// The edits in a snapshot object, checked against its name. → [`Answer::Snapshot`]
    ReadSnapshot(Incarnation, SnapshotName),
    /// Put these bytes in a slot, if it is empty. → [`Answer::Put`]
    PutRecord(Incarnation, u64, Bytes),
    /// Delete the record in a slot. → [`Answer::Deleted`]
    DeleteRecord(Incarnation, u64),
    /// 128 fresh random bits. → [`Answer::Random`]
    Random,
}

/// How an effect ended. Whatever else can go wrong ends the machine, or is tried again below it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The highest number, or that there is none.
    Newest(Option<u64>),
    /// What each slot holds, in the order of the slots.
    Records(Vec<Option<Bytes>>),
    /// The edits, or that there is no such object.
    Snapshot(Option<Vec<Edit>>),
    /// How a put ended.
    Put(PutAnswer),
    /// The record is gone, or a delete may still land.
    Deleted,
    /// Random bits.
    Random(u128),
}

/// How a put-if-absent ended.
#[derive(Clone, Debug)]
pub enum PutAnswer {
    /// The name was free and holds the bytes.
    Created,
    /// The name holds something: perhaps these bytes.
    Exists,
    /// It may have landed, or may land at any later time.
    Unknown,
    /// It did not land and never will.
    Refused(Error),
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Perform this and step with the answer.
    Do(Effect),
    /// The machine is finished.
    Done(T),
}

impl<T> Step<T> {
    /// The same step of a machine that contains this one.
    pub fn map<U>(self, done: impl FnOnce(T) -> Step<U>) -> Step<U> {
        match self {
            Step::Do(effect) => Step::Do(effect),
            Step::Done(result) => done(result),
        }
    }
}

/// A machine: see the module's documentation.
pub trait Machine {
    /// What it comes to.
    type Output;
    /// The first step.
    fn begin(&mut self) -> Step<Self::Output>;
    /// The step after `answer` to the last effect.
    fn step(&mut self, answer: Answer) -> Step<Self::Output>;
}

/// An answer of another kind than was asked for: a bug of the performer of effects.
fn misfit<T>(machine: &str, answer: &Answer) -> Result<T> {
    Err(Error::new(ErrorKind::Bug, format!("{machine} was given {answer:?}")))
}

/// What decoding found wrong, with the object.
pub(crate) fn undecodable(object: &ObjectName, error: tombolo_format::FormatError) -> Error {
    use tombolo_format::FormatError;
    match error {
        FormatError::Damaged { offset, expected, found } => Error::corrupt(object, offset, expected, found),
        FormatError::Newer { offset, what } => {
            Error::new(ErrorKind::Unsupported, format!("a newer Tombolo wrote this: {what}"))
                .object(object)
                .offset(offset)
                .advice("open the database with the version that wrote it, or a later one")
        }
        other => Error::new(ErrorKind::Corrupt, other.to_string()).object(object),
    }
}

/// A record that must be there and is not.
pub(crate) fn missing(incarnation: Incarnation, slot: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "a record of the manifest is missing")
        .object(names::record(incarnation, slot))
        .expected("a record")
        .found("nothing")
        .advice("restore the object from a copy")
}

#[cfg(test)]
mod tests;
