//! Jobs of compaction that run on other machines, and their answers.
//!
//! A **job** says all that a worker needs: it opens no manifest, lists nothing and deletes nothing.
//! It holds no secret.
//!
//! **Job:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOJOB` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole job, at most [`JOB_BYTES_MAX`] |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 48 | attempt: random number of the database, incarnation, epoch, job (8 each), random number of the attempt (16) |
//! | 80 | 8 | database time, ms |
//! | 88 | 8 | what ended up to then may be destroyed, ms |
//! | 96 | 8 | an output ends at so many bytes |
//! | 104 | 4 | bytes of a block |
//! | 108 | 4 | most names that outputs may take |
//! | 112 | 4 | keyspace |
//! | 116 | 1 | level that its tables come from |
//! | 117 | 1 | level that they go to |
//! | 118 | 1 | 1: somebody asked for it |
//! | 119 | 1 | 0 |
//! | 120 | | URI of the database's store, as workers reach it |
//! | | 4 | number of needs; each a text: see [`CompactionJob::needs`] |
//! | | 4 | number of snapshots {sequence u64, judged ms u64}, ascending |
//! | | 4 | number of value objects that are collected {identity u64} |
//! | | 4 | number of inputs {role u8: 0 upper, 1 passed, 2 lower; level u8; name} |
//! | | 4 | number of other tables {level u8, flags u8: 1 ends before its last key, length u64, first key, last key}: of level 0 older runs, else what lies below |
//! | | 4 | number of edits ([`crate::manifest`]): the keyspace, sources, value objects, inputs |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! **Answer:** as far as offset 80 like a job, with the magic `TMBLOJAN`; then
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 80 | 1 | outcome: 0 done, 1 failed |
//! | | | of a failure: kind u8 (1 damaged input, 2 missing ability, 3 given up, 4 other), message |
//! | | 88 | of a job that is done: [`Tally`], eleven numbers of 8 bytes |
//! | | 32 | entries that the filter dropped, replaced, and did not decide of; single deletes misused (8 each) |
//! | | 4 | names taken |
//! | | | what the filter failed with, what the operator failed with; empty: nothing |
//! | | 4 | number of outputs with older versions {name} |
//! | | 4 | number of edits: the outputs, each value object before the table that refers to it |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! Text and keys have their length (u32) before them; a name is {epoch u64, random u64}.
//!
//! **Offer** (28 bytes), on the way to a worker: hundredths to a stall u32, bytes that wait to be
//! merged, bytes of the job's tables, random number of the database (8 each). **Worker**, what one
//! says of itself: magic `TMBLWORK`, version u32 (1), jobs at once u32, jobs that run u32, offers
//! that wait u32, jobs done u64, jobs failed u64, number of abilities u32, each a text.
//!
//! **Names** of outputs follow from the attempt ([`Attempt::name`]): the writer can tell those of
//! an attempt that came to nothing.

use bytes::Bytes;

use crate::checksum::hash128;
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_version};
use crate::key::{KEY_BYTES_MAX, SequenceNumber};
use crate::manifest::{Edit, TableDescription, TableName, decode_edit, encode_edit};
use crate::message::Message;

/// First bytes of a job.
pub const JOB_MAGIC: [u8; 8] = *b"TMBLOJOB";
/// First bytes of an answer.
pub const JOB_ANSWER_MAGIC: [u8; 8] = *b"TMBLOJAN";
/// The version written of both, and the newest read.
pub const JOB_VERSION: u32 = 1;
/// Most bytes of a job, and of an answer.
pub const JOB_BYTES_MAX: usize = 8 << 20;
/// Most bytes of the URI of a store, and of other text.
pub const JOB_TEXT_BYTES_MAX: usize = 4096;
/// Most needs of a job.
pub const JOB_NEEDS_MAX: usize = 64;
/// Most names that the outputs of one job may take.
pub const JOB_NAMES_MAX: u32 = 1 << 20;
/// Bytes before what a job and an answer say each in its own way.
const HEADER_BYTES: usize = 80;
/// Where the attempt begins.
const ATTEMPT_AT: usize = 32;
const ENDS_BEFORE_LAST: u8 = 1;

/// Which jobs come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgency {
    /// How near writers are to being slowed, in hundredths: 100 and more, they are.
    pub stall_percent: u32,
    /// Bytes that wait to be merged.
    pub debt_bytes: u64,
    /// Bytes of the job's tables.
    pub bytes: u64,
    /// The random number of the database, by which workers are fair.
    pub database: u64,
}

impl Urgency {
    /// Its bytes, as an offer.
    pub fn encode(&self) -> [u8; 28] {
        let mut out = [0; 28];
        out[..4].copy_from_slice(&self.stall_percent.to_le_bytes());
        out[4..12].copy_from_slice(&self.debt_bytes.to_le_bytes());
        out[12..20].copy_from_slice(&self.bytes.to_le_bytes());
        out[20..].copy_from_slice(&self.database.to_le_bytes());
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8]) -> Result<Urgency> {
        let mut reader = Reader::new(bytes);
        let stall_percent = reader.u32()?;
        let (debt_bytes, bytes, database) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.end()?;
        Ok(Urgency { stall_percent, debt_bytes, bytes, database })
    }
}

/// First bytes of what a worker says of itself.
pub const WORKER_MAGIC: [u8; 8] = *b"TMBLWORK";
/// Most abilities of a worker.
pub const ABILITIES_MAX: u32 = 4096;

/// What a worker says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Jobs that it runs at once.
    pub jobs_max: u32,
    /// Jobs that run.
    pub running: u32,
    /// Offers that wait.
    pub waiting: u32,
    /// Jobs done.
    pub done: u64,
    /// Jobs that failed, or that nobody wanted any more.
    pub failed: u64,
    /// What it has, as jobs say what they need.
    pub abilities: Vec<String>,
}

impl WorkerStatus {
    /// Its bytes.
    ///
    /// # Errors
    /// `Limit` for too many or too long abilities.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if self.abilities.len() > ABILITIES_MAX as usize {
            return Err(FormatError::limit(format!("{} abilities of a worker", self.abilities.len())));
        }
        let mut out = WORKER_MAGIC.to_vec();
        for word in [JOB_VERSION, self.jobs_max, self.running, self.waiting] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.done, self.failed] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        put_count(&mut out, self.abilities.len())?;
        self.abilities.iter().try_for_each(|ability| put_text(&mut out, ability))?;
        Ok(out)
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for another version.
    pub fn decode(bytes: &[u8]) -> Result<WorkerStatus> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array::<8>()?;
        if magic != WORKER_MAGIC {
            let expected = format!("the magic of a worker ({})", WORKER_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
        }
        check_version(8, reader.u32()?, JOB_VERSION)?;
        let (jobs_max, running, waiting) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (done, failed) = (reader.u64()?, reader.u64()?);
        let abilities = take_at_most(&mut reader, ABILITIES_MAX, take_text)?;
        reader.end()?;
        Ok(WorkerStatus { jobs_max, running, waiting, done, failed, abilities })
    }
}

/// One attempt at a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The random number of the database.
    pub database: u64,
    /// Its life.
    pub incarnation: u64,
    /// The epoch of its writer.
    pub epoch: u64,
    /// The job's number in that epoch.
    pub job: u64,
    /// Fresh randomness of the attempt.
    pub random: u128,
}

impl Attempt {
    fn encode(&self) -> [u8; HEADER_BYTES - ATTEMPT_AT] {
        let mut out = [0; HEADER_BYTES - ATTEMPT_AT];
        let words = [self.database, self.incarnation, self.epoch, self.job];
        for (at, word) in words.into_iter().enumerate() {
            out[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        out[32..].copy_from_slice(&self.random.to_le_bytes());
        out
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Attempt> {
        Ok(Attempt {
            database: reader.u64()?,
            incarnation: reader.u64()?,
            epoch: reader.u64()?,
            job: reader.u64()?,
            random: reader.u128()?,
        })
    }

    /// The name of its output `number`.
    pub fn name(&self, number: u32) -> TableName {
        let hash = hash128(&[&self.encode()[..], &number.to_le_bytes()].concat());
        TableName { epoch: self.epoch, random: hash as u64 ^ (hash >> 64) as u64 }
    }
}

/// How an input lies to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Of the level that tables come from; of level 0 newest first, else in order.
    Upper = 0,
    /// Of a level between.
    Passed = 1,
    /// Of the level that tables go to.
    Lower = 2,
}

/// A table to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobInput {
    /// Where it comes in.
    pub role: Role,
    /// Its level.
    pub level: u8,
    /// Which of the tables that the edits describe.
    pub name: TableName,
}

/// The keys of a table that is not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Its level: 0 of an older run, else of what lies below.
    pub level: u8,
    /// It ends before its last key.
    pub ends_before_last: bool,
    /// Its bytes.
    pub length: u64,
    /// Its smallest key.
    pub first_key: Bytes,
    /// Its greatest key.
    pub last_key: Bytes,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionJob {
    /// Which attempt at which job of which database.
    pub attempt: Attempt,
    /// The database's time, in milliseconds.
    pub time_ms: u64,
    /// What ended up to then may be destroyed.
    pub settled_ms: u64,
    /// An output ends at so many bytes.
    pub output_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Most names that outputs may take.
    pub names_max: u32,
    /// The keyspace.
    pub keyspace: u32,
    /// The level that its tables come from.
    pub from: u8,
    /// The level that they go to.
    pub to: u8,
    /// Somebody asked for it.
    pub is_asked: bool,
    /// The URI of the database's store, as workers reach it.
    pub place: String,
    /// What a worker must have, as it says itself of what it has: `operator add_u64@1`,
    /// `filter sessions@1`, `collector longest`.
    pub needs: Vec<String>,
    /// Whence somebody looks, ascending, with the time by which it is judged.
    pub snapshots: Vec<(SequenceNumber, u64)>,
    /// Identities of the value objects out of which values move.
    pub collected: Vec<u64>,
    /// What to merge.
    pub inputs: Vec<JobInput>,
    /// What else holds keys of the inputs' range: deletes stay for it, and outputs end by it.
    pub others: Vec<Reach>,
    /// The keyspace, sources, value objects, inputs.
    pub edits: Vec<Edit>,
}

/// Entries of a job, by what became of them. All wrap around where they are sums of hashes.
///
/// Of a worker that counts right, `read = hidden + superseded + folded + kept`, where
/// `written = kept + made − filtered`; and of the hashes
/// `read_sum + made_sum = written_sum + gone_sum`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries of tables that one range delete covers wholly, which were not read.
    pub unread: u64,
    /// Entries read.
    pub read: u64,
    /// Of them those that range deletes hide.
    pub hidden: u64,
    /// Of them those that nobody sees any more.
    pub superseded: u64,
    /// Of them those that were held, to be folded with others.
    pub folded: u64,
    /// Entries that came of those that were held.
    pub made: u64,
    /// Entries that the filter took away.
    pub filtered: u64,
    /// Entries written.
    pub written: u64,
    /// Sum of the hashes of entries read.
    pub read_sum: u64,
    /// The same of entries that went, or were replaced.
    pub gone_sum: u64,
    /// The same of entries that came of others, or in their place.
    pub made_sum: u64,
}

impl Tally {
    const WORDS: usize = 11;

    fn words(&self) -> [u64; Tally::WORDS] {
        [
            self.unread,
            self.read,
            self.hidden,
            self.superseded,
            self.folded,
            self.made,
            self.filtered,
            self.written,
            self.read_sum,
            self.gone_sum,
            self.made_sum,
        ]
    }

    fn of_words(words: [u64; Tally::WORDS]) -> Tally {
        let [unread, read, hidden, superseded, folded, made, filtered, written, rest @ ..] = words;
        let [read_sum, gone_sum, made_sum] = rest;
        Tally {
            unread,
            read,
            hidden,
            superseded,
            folded,
            made,
            filtered,
            written,
            read_sum,
            gone_sum,
            made_sum,
        }
    }

    /// Adds what another part of the job counted.
    pub fn add(&mut self, other: &Tally) {
        let (own, other) = (self.words(), other.words());
        *self = Tally::of_words(std::array::from_fn(|at| own[at].wrapping_add(other[at])));
    }

    /// How many entries are written, by these counts; `None`: they contradict each other.
    pub fn balanced(&self) -> Option<u64> {
        let kept = self.read.checked_sub(self.hidden)?.checked_sub(self.superseded)?;
        let kept = kept.checked_sub(self.folded)?.checked_add(self.made)?;
        kept.checked_sub(self.filtered)
    }

    /// The sum of the hashes of entries written, by these sums.
    pub fn written_sum(&self) -> u64 {
        self.read_sum.wrapping_add(self.made_sum).wrapping_sub(self.gone_sum)
    }
}

/// What a job that is done says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobResult {
    /// The entries.
    pub tally: Tally,
    /// What the filter dropped, replaced, and did not decide of.
    pub filtered: [u64; 3],
    /// Single deletes that met anything but one put.
    pub misused: u64,
    /// Names that were taken: those of outputs, and of what was begun.
    pub names: u32,
    /// What the filter failed with first; empty: nothing.
    pub filter_trouble: String,
    /// What the operator failed with first; empty: nothing.
    pub operator_trouble: String,
    /// The outputs that hold older versions of keys.
    pub older: Vec<TableName>,
    /// The outputs, value objects among them.
    pub outputs: Vec<TableDescription>,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum JobTrouble {
    /// An input is damaged.
    Damaged = 1,
    /// The worker lacks something that the job needs, or does not understand it.
    Unable = 2,
    /// It was given up.
    GivenUp = 3,
    /// Anything else: it may go well another time.
    Other = 4,
}

/// What a worker says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It is done.
    Done(Box<JobResult>),
    /// It failed.
    Failed(JobTrouble, String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAnswer {
    /// Which attempt.
    pub attempt: Attempt,
    /// What came of it.
    pub outcome: JobOutcome,
}

const fn message(magic: [u8; 8]) -> Message {
    Message { magic, version: JOB_VERSION, header_bytes: HEADER_BYTES, bytes_max: JOB_BYTES_MAX }
}

const JOB: Message = message(JOB_MAGIC);
const ANSWER: Message = message(JOB_ANSWER_MAGIC);

fn begin(message: &Message, attempt: &Attempt) -> Vec<u8> {
    let mut out = message.begin();
    out.extend_from_slice(&attempt.encode());
    out
}

/// What both begin with, and a reader of the rest.
fn open<'a>(bytes: &'a [u8], message: &Message) -> Result<(Attempt, Reader<'a>)> {
    let (mut header, body) = message.open(bytes)?;
    Ok((Attempt::decode(&mut header)?, body))
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| FormatError::limit(format!("{count} parts of a job")))?;
    out.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    if text.len() > JOB_TEXT_BYTES_MAX {
        return Err(FormatError::limit(format!("a text of {} bytes in a job", text.len())));
    }
    put_prefixed(out, text.as_bytes());
    Ok(())
}

fn put_name(out: &mut Vec<u8>, name: TableName) {
    out.extend_from_slice(&name.epoch.to_le_bytes());
    out.extend_from_slice(&name.random.to_le_bytes());
}

fn take_name(reader: &mut Reader<'_>) -> Result<TableName> {
    Ok(TableName { epoch: reader.u64()?, random: reader.u64()? })
}

/// So many of what `take` reads: grows with the bytes that are there, not with the count.
fn take_all<T>(reader: &mut Reader<'_>, take: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    take_at_most(reader, u32::MAX, take)
}

/// As [`take_all`], of no more than `count_max`.
fn take_at_most<T>(
    reader: &mut Reader<'_>,
    count_max: u32,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let at = reader.position();
    let count = reader.u32()?;
    if count > count_max {
        return Err(FormatError::damaged(at, format!("at most {count_max} of them"), count.to_string()));
    }
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(take(reader)?);
    }
    Ok(all)
}

fn take_text(reader: &mut Reader<'_>) -> Result<String> {
    reader.text(JOB_TEXT_BYTES_MAX).map(str::to_owned)
}

fn word(reader: &mut Reader<'_>) -> Result<u64> {
    reader.u64()
}

fn sequence(reader: &mut Reader<'_>) -> Result<SequenceNumber> {
    let at = reader.position();
    let number = reader.u64()?;
    if number > SequenceNumber::MAX.0 {
        return Err(FormatError::damaged(at, "a sequence number of 56 bits", number.to_string()));
    }
    Ok(SequenceNumber(number))
}

fn flag(reader: &mut Reader<'_>) -> Result<bool> {
    let at = reader.position();
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(FormatError::newer(at, format!("a flag of {other:#x} in a job"))),
    }
}

/// The bytes of a job.
///
/// # Errors
/// `Limit` when it is too large.
pub fn encode_job(job: &CompactionJob) -> Result<Vec<u8>> {
    if job.needs.len() > JOB_NEEDS_MAX || job.names_max > JOB_NAMES_MAX {
        let message = format!("a job with {} needs and {} names", job.needs.len(), job.names_max);
        return Err(FormatError::limit(message));
    }
    let mut out = begin(&JOB, &job.attempt);
    for word in [job.time_ms, job.settled_ms, job.output_bytes] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for word in [job.block_bytes, job.names_max, job.keyspace] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&[job.from, job.to, u8::from(job.is_asked), 0]);
    put_text(&mut out, &job.place)?;
    put_count(&mut out, job.needs.len())?;
    job.needs.iter().try_for_each(|need| put_text(&mut out, need))?;
    put_count(&mut out, job.snapshots.len())?;
    for (number, judged_ms) in &job.snapshots {
        out.extend_from_slice(&number.0.to_le_bytes());
        out.extend_from_slice(&judged_ms.to_le_bytes());
    }
    put_count(&mut out, job.collected.len())?;
    job.collected.iter().for_each(|identity| out.extend_from_slice(&identity.to_le_bytes()));
    put_count(&mut out, job.inputs.len())?;
    for input in &job.inputs {
        out.extend_from_slice(&[input.role as u8, input.level]);
        put_name(&mut out, input.name);
    }
    put_count(&mut out, job.others.len())?;
    for other in &job.others {
        if other.first_key.len().max(other.last_key.len()) > KEY_BYTES_MAX {
            return Err(FormatError::limit("a key of a job is too long".to_owned()));
        }
        let flags = if other.ends_before_last { ENDS_BEFORE_LAST } else { 0 };
        out.extend_from_slice(&[other.level, flags]);
        out.extend_from_slice(&other.length.to_le_bytes());
        put_prefixed(&mut out, &other.first_key);
        put_prefixed(&mut out, &other.last_key);
    }
    put_count(&mut out, job.edits.len())?;
    job.edits.iter().try_for_each(|edit| encode_edit(edit, &mut out))?;
    JOB.finish(out)
}

/// The same job as another attempt.
///
/// # Errors
/// As [`decode_job`], of bytes that are no job.
pub fn with_attempt(job: &[u8], random: u128) -> Result<(Attempt, Vec<u8>)> {
    let (attempt, _) = open(job, &JOB)?;
    let attempt = Attempt { random, ..attempt };
    let mut out = job[..job.len() - 4].to_vec();
    out[ATTEMPT_AT..HEADER_BYTES].copy_from_slice(&attempt.encode());
    Ok((attempt, JOB.finish(out)?))
}

/// Which attempt at which job some bytes are.
///
/// # Errors
/// As [`decode_job`].
pub fn attempt_of(job: &[u8]) -> Result<Attempt> {
    open(job, &JOB).map(|(attempt, _)| attempt)
}

/// Reads a job.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_job(bytes: &[u8]) -> Result<CompactionJob> {
    let (attempt, mut reader) = open(bytes, &JOB)?;
    let reader = &mut reader;
    let mut read = || {
        let (time_ms, settled_ms, output_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (block_bytes, names_max, keyspace) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if names_max > JOB_NAMES_MAX {
            let expected = format!("at most {JOB_NAMES_MAX} names");
            return Err(FormatError::damaged(28, expected, names_max.to_string()));
        }
        let (from, to, is_asked) = (reader.u8()?, reader.u8()?, flag(reader)?);
        if reader.u8()? != 0 {
            return Err(FormatError::newer(39, "unknown flags of a job".to_owned()));
        }
        let place = take_text(reader)?;
        let needs = take_at_most(reader, JOB_NEEDS_MAX as u32, take_text)?;
        let snapshots = take_all(reader, |reader| Ok((sequence(reader)?, reader.u64()?)))?;
        let collected = take_all(reader, word)?;
        let inputs = take_all(reader, |reader| {
            let at = reader.position();
            let role = match reader.u8()? {
                0 => Role::Upper,
                1 => Role::Passed,
                2 => Role::Lower,
                other => return Err(FormatError::newer(at, format!("an input of role {other}"))),
            };
            Ok(JobInput { role, level: reader.u8()?, name: take_name(reader)? })
        })?;
        let others = take_all(reader, |reader| {
            let (level, ends_before_last, length) = (reader.u8()?, flag(reader)?, reader.u64()?);
            let mut key = || reader.prefixed(KEY_BYTES_MAX).map(Bytes::copy_from_slice);
            Ok(Reach { level, ends_before_last, length, first_key: key()?, last_key: key()? })
        })?;
        let edits = take_all(reader, decode_edit)?;
        reader.end()?;
        Ok(CompactionJob {
            attempt,
            time_ms,
            settled_ms,
            output_bytes,
            block_bytes,
            names_max,
            keyspace,
            from,
            to,
            is_asked,
            place,
            needs,
            snapshots,
            collected,
            inputs,
            others,
            edits,
        })
    };
    read().map_err(|error| error.shifted(HEADER_BYTES as u64))
}

/// As much of a text as an answer takes.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(JOB_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The bytes of an answer. Text that is too long is cut.
///
/// # Errors
/// `Limit` when there are too many outputs.
pub fn encode_job_answer(answer: &JobAnswer) -> Result<Vec<u8>> {
    let mut out = begin(&ANSWER, &answer.attempt);
    match &answer.outcome {
        JobOutcome::Failed(trouble, message) => {
            out.extend_from_slice(&[1, *trouble as u8]);
            put_text(&mut out, shortened(message))?;
        }
        JobOutcome::Done(result) => {
            out.push(0);
            for word in result.tally.words().into_iter().chain(result.filtered).chain([result.misused]) {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(&result.names.to_le_bytes());
            put_text(&mut out, shortened(&result.filter_trouble))?;
            put_text(&mut out, shortened(&result.operator_trouble))?;
            put_count(&mut out, result.older.len())?;
            result.older.iter().for_each(|name| put_name(&mut out, *name));
            put_count(&mut out, result.outputs.len())?;
            for table in &result.outputs {
                encode_edit(&Edit::TableAdded(table.clone()), &mut out)?;
            }
        }
    }
    ANSWER.finish(out)
}

/// Reads an answer.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_job_answer(bytes: &[u8]) -> Result<JobAnswer> {
    let (attempt, mut reader) = open(bytes, &ANSWER)?;
    let reader = &mut reader;
    let mut read = || {
        let outcome = if flag(reader)? {
            let at = reader.position();
            let trouble = match reader.u8()? {
                1 => JobTrouble::Damaged,
                2 => JobTrouble::Unable,
                3 => JobTrouble::GivenUp,
                4 => JobTrouble::Other,
                other => return Err(FormatError::newer(at, format!("a failure of kind {other}"))),
            };
            JobOutcome::Failed(trouble, take_text(reader)?)
        } else {
            let mut words = [0; Tally::WORDS];
            for word in &mut words {
                *word = reader.u64()?;
            }
            let filtered = [reader.u64()?, reader.u64()?, reader.u64()?];
            let (misused, names) = (reader.u64()?, reader.u32()?);
            let filter_trouble = take_text(reader)?;
            let operator_trouble = take_text(reader)?;
            let older = take_all(reader, take_name)?;
            let outputs = take_all(reader, |reader| {
                let at = reader.position();
                match decode_edit(reader)? {
                    Edit::TableAdded(table) if table.source.is_none() => Ok(table),
                    other => Err(FormatError::damaged(at, "an output", format!("{other:?}"))),
                }
            })?;
            JobOutcome::Done(Box::new(JobResult {
                tally: Tally::of_words(words),
                filtered,
                misused,
                names,
                filter_trouble,
                operator_trouble,
                older,
                outputs,
            }))
        };
        reader.end()?;
        Ok(JobAnswer { attempt, outcome })
    };
    read().map_err(|error| error.shifted(HEADER_BYTES as u64))
}

#[cfg(test)]
mod tests;
