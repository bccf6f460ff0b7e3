//! Questions to a writer, and their answers: how the prompt reaches the process that has a database
//! open.
//!
//! **Question:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOASK` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole question |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 16 | id, as in its name |
//! | 56 | 4 | verb: 1 flush, 2 compact, 3 make a checkpoint, 4 tell properties, 5 tell statistics, |
//! | | | 6 tell metrics |
//! | 60 | | of verb 3 the checkpoint's name, of verb 6 the database's label |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! **Answer:** as far as offset 56 like a question, with the magic `TMBLOANS`; then
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 56 | 8 | the epoch that answers |
//! | 64 | 4 | outcome: 0 done, 1 failed |
//! | 68 | 4 | number of facts |
//! | 72 | | facts {name, value} |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! Text has its length (u32) before it, and no control characters: lines end with U+240A. The facts
//! of a failure are its kind, its message and what to do about it.

use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};
use crate::message::Message;

/// First bytes of a question.
pub const QUESTION_MAGIC: [u8; 8] = *b"TMBLOASK";
/// First bytes of an answer.
pub const ANSWER_MAGIC: [u8; 8] = *b"TMBLOANS";
/// The version written of both, and the newest read.
pub const QUESTION_VERSION: u32 = 1;
/// Most bytes of a question.
pub const QUESTION_BYTES_MAX: usize = 4096;
/// Most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Most facts of an answer.
pub const FACTS_MAX: usize = 1024;
/// Most bytes of the name of a checkpoint in a question.
pub const QUESTION_NAME_BYTES_MAX: usize = 1024;
/// Most bytes of a fact's name, and of its value.
pub const FACT_BYTES_MAX: usize = 16 << 10;
/// The end of a line in a fact, which holds no control characters: the symbol for a new line.
pub const LINE_END: char = '\u{240a}';
/// Bytes before what a question and an answer say each in its own way.
pub const QUESTION_HEADER_BYTES: usize = 56;

/// What a writer is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Move the writes in memory and in the log to tables.
    Flush,
    /// Merge all tables of each keyspace into one run.
    Compact,
    /// Make a checkpoint of this name.
    Checkpoint(String),
    /// Tell its properties.
    Properties,
    /// Tell its statistics.
    Stats,
    /// Tell its metrics as Prometheus reads them, with this label.
    Metrics(String),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The database's life.
    pub incarnation: u64,
    /// Fresh randomness; also its name.
    pub id: u128,
    /// What the writer shall do.
    pub verb: Verb,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The database's life.
    pub incarnation: u64,
    /// The question's id.
    pub id: u128,
    /// The epoch of the writer that answers.
    pub epoch: u64,
    /// Whether it was done.
    pub is_done: bool,
    /// Facts about it: names and values.
    pub facts: Vec<(String, String)>,
}

const fn message(magic: [u8; 8], bytes_max: usize) -> Message {
    Message { magic, version: QUESTION_VERSION, header_bytes: QUESTION_HEADER_BYTES, bytes_max }
}

const QUESTION: Message = message(QUESTION_MAGIC, QUESTION_BYTES_MAX);
const ANSWER: Message = message(ANSWER_MAGIC, ANSWER_BYTES_MAX);

fn begin(message: &Message, incarnation: u64, id: u128) -> Vec<u8> {
    let mut out = message.begin();
    out.extend_from_slice(&incarnation.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out
}

fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) -> Result<()> {
    if text.len() > bytes_max {
        return Err(FormatError::limit(format!("a text of {} bytes; at most {bytes_max}", text.len())));
    }
    put_prefixed(out, text.as_bytes());
    Ok(())
}

/// The bytes of a question.
///
/// # Errors
/// `Limit` when the name is too long.
pub fn encode_question(question: &Question) -> Result<Vec<u8>> {
    let mut out = begin(&QUESTION, question.incarnation, question.id);
    let verb = match &question.verb {
        Verb::Flush => 1u32,
        Verb::Compact => 2,
        Verb::Checkpoint(_) => 3,
        Verb::Properties => 4,
        Verb::Stats => 5,
        Verb::Metrics(_) => 6,
    };
    out.extend_from_slice(&verb.to_le_bytes());
    if let Verb::Checkpoint(name) | Verb::Metrics(name) = &question.verb {
        put_text(&mut out, name, QUESTION_NAME_BYTES_MAX)?;
    }
    QUESTION.finish(out)
}

/// The bytes of an answer.
///
/// # Errors
/// `Limit` when there are too many facts, or they are too long.
pub fn encode_answer(answer: &Answer) -> Result<Vec<u8>> {
    let count = answer.facts.len();
    if count > FACTS_MAX {
        return Err(FormatError::limit(format!("{count} facts; at most {FACTS_MAX}")));
    }
    let mut out = begin(&ANSWER, answer.incarnation, answer.id);
    out.extend_from_slice(&answer.epoch.to_le_bytes());
    out.extend_from_slice(&u32::from(!answer.is_done).to_le_bytes());
    out.extend_from_slice(&(count as u32).to_le_bytes());
    for (name, value) in &answer.facts {
        put_text(&mut out, name, FACT_BYTES_MAX)?;
        put_text(&mut out, value, FACT_BYTES_MAX)?;
    }
    ANSWER.finish(out)
}

/// What both begin with: the life and the id, and a reader of the rest.
fn open<'a>(bytes: &'a [u8], message: &Message) -> Result<(u64, u128, Reader<'a>)> {
    let (mut header, body) = message.open(bytes)?;
    Ok((header.u64()?, header.u128()?, body))
}

/// Reads a question.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_question(bytes: &[u8]) -> Result<Question> {
    let (incarnation, id, mut reader) = open(bytes, &QUESTION)?;
    let mut read = || {
        let verb = match reader.u32()? {
            0 => return Err(FormatError::damaged(0, "a verb", "verb 0")),
            1 => Verb::Flush,
            2 => Verb::Compact,
            3 => Verb::Checkpoint(reader.text(QUESTION_NAME_BYTES_MAX)?.to_owned()),
            4 => Verb::Properties,
            5 => Verb::Stats,
            6 => Verb::Metrics(reader.text(QUESTION_NAME_BYTES_MAX)?.to_owned()),
            verb => return Err(FormatError::newer(0, format!("question of verb {verb}"))),
        };
        reader.end()?;
        Ok(verb)
    };
    let verb = read().map_err(|error| error.shifted(QUESTION_HEADER_BYTES as u64))?;
    Ok(Question { incarnation, id, verb })
}

/// Reads an answer.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_answer(bytes: &[u8]) -> Result<Answer> {
    let (incarnation, id, mut reader) = open(bytes, &ANSWER)?;
    let mut read = || {
        let epoch = reader.u64()?;
        let is_done = match reader.u32()? {
            0 => true,
            1 => false,
            outcome => return Err(FormatError::newer(8, format!("answer of outcome {outcome}"))),
        };
        let count = reader.u32()? as usize;
        if count > FACTS_MAX {
            return Err(FormatError::damaged(12, format!("at most {FACTS_MAX} facts"), count.to_string()));
        }
        // Grows with the facts that are there, not with the count that is claimed.
        let mut facts = Vec::new();
        for _ in 0..count {
            let name = reader.text(FACT_BYTES_MAX)?.to_owned();
            facts.push((name, reader.text(FACT_BYTES_MAX)?.to_owned()));
        }
        reader.end()?;
        Ok(Answer { incarnation, id, epoch, is_done, facts })
    };
    read().map_err(|error| error.shifted(QUESTION_HEADER_BYTES as u64))
}

#[cfg(test)]
mod tests;
