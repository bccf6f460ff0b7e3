//! Names of a database's objects, under the store's root.
//!
//! | name | what | deleted |
//! |---|---|---|
//! | `incarnation/{!i}` | the database's life number i began | never |
//! | `{i}/manifest/{!slot}` | a record of the chain | below a durable snapshot, claims never |
//! | `{i}/snapshot/{slot}-{random}` | the state as of a slot | when a newer snapshot is durable |
//! | `{i}/table/{epoch}-{random}` | a table, or a value object | when the manifest names it no more (section 4, rules 11–14) |
//! | `{i}/checkpoint/{id}` | a checkpoint | by its owner, before its pin |
//! | `{i}/pin/{id}` | a pin | by its owner, or when its lease has expired |
//! | `{i}/pin/{id}.{!beat}` | a heartbeat of a leased pin | as the pin, and by the next but one |
//! | `{i}/application/{epoch}-{random}` | an object of the application's own | by the application, or with the database |
//! | `{i}/alive/{!epoch}.{!beat}` | the writer of an epoch lives; made only while somebody stands by | by the next but one, and by later epochs |
//! | `{i}/alive/{!epoch}.leaving`, `.left` | it is about to hand over; it has closed | by later epochs |
//! | `{i}/standby/{id}.{period}.{!beat}`, with `.asks` of one who would not take over | somebody stands by, and asks for a sign of life every so many ms | by the next but one, by its owner, by the writer |
//! | `{i}/standby/{id}.ask`, `.answer` | a question to the writer; its answer | by who asks, and by the writer when that is gone |
//!
//! Numbers are 16 lower-case hexadecimal digits; `!x` is `u64::MAX − x`, so that the newest sorts
//! first and a list of one name is an atomic answer to 'which is the newest?'.

use tombolo_format::manifest::TableName;
use tombolo_storage::{Error, ErrorKind, Incarnation, ObjectName, Result};

/// Prefix of the incarnation records.
pub const INCARNATION_PREFIX: &str = "incarnation/";

fn name(text: impl AsRef<str>) -> ObjectName {
    let text = text.as_ref();
    match ObjectName::new(text) {
        Ok(name) => name,
        Err(_) => unreachable!("{text} is built from digits, letters and slashes"),
    }
}

/// `incarnation/{!i}`.
pub fn incarnation(incarnation: Incarnation) -> ObjectName {
    name(format!("{INCARNATION_PREFIX}{:016x}", !incarnation.0))
}

/// Prefix of the records of a chain.
pub fn record_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/manifest/", incarnation.0)
}

/// `{i}/manifest/{!slot}`.
pub fn record(incarnation: Incarnation, slot: u64) -> ObjectName {
    name(format!("{:016x}/manifest/{:016x}", incarnation.0, !slot))
}

/// Prefix of the snapshots of a chain.
pub fn snapshot_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/snapshot/", incarnation.0)
}

/// `{i}/snapshot/{slot}-{random}`.
pub fn snapshot(incarnation: Incarnation, slot: u64, random: u64) -> ObjectName {
    name(format!("{:016x}/snapshot/{slot:016x}-{random:016x}", incarnation.0))
}

/// Prefix of the tables of an incarnation.
pub fn table_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/table/", incarnation.0)
}

/// `{i}/table/{epoch}-{random}`.
pub fn table(incarnation: Incarnation, table: TableName) -> ObjectName {
    name(format!("{:016x}/table/{:016x}-{:016x}", incarnation.0, table.epoch, table.random))
}

/// `cold`: says, in a database's part of a cold store, whose it is.
pub fn cold_marker() -> ObjectName {
    name("cold")
}

/// Prefix of the checkpoints of an incarnation.
pub fn checkpoint_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/checkpoint/", incarnation.0)
}

/// `{i}/checkpoint/{id}`.
pub fn checkpoint(incarnation: Incarnation, id: u128) -> ObjectName {
    name(format!("{:016x}/checkpoint/{id:032x}", incarnation.0))
}

/// Prefix of the pins of an incarnation.
pub fn pin_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/pin/", incarnation.0)
}

/// `{i}/pin/{id}`.
pub fn pin(incarnation: Incarnation, id: u128) -> ObjectName {
    name(format!("{:016x}/pin/{id:032x}", incarnation.0))
}

/// `{i}/pin/{id}.{!beat}`.
pub fn heartbeat(incarnation: Incarnation, id: u128, beat: u64) -> ObjectName {
    name(format!("{:016x}/pin/{id:032x}.{:016x}", incarnation.0, !beat))
}

/// Prefix of the application's own objects.
pub fn application_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/application/", incarnation.0)
}

/// `{i}/application/{epoch}-{random}`.
pub fn application(incarnation: Incarnation, epoch: u64, random: u64) -> ObjectName {
    name(format!("{:016x}/application/{epoch:016x}-{random:016x}", incarnation.0))
}

/// Prefix of the signs of writers' lives.
pub fn alive_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/alive/", incarnation.0)
}

/// What the writer of an epoch tells those who stand by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// It lives: a number that rises.
    Beat(u64),
    /// It is about to hand over.
    Leaving,
    /// It has closed, and the standby is to take over.
    Left,
}

/// `{i}/alive/{!epoch}.{!beat}`, or with a word for the beat.
pub fn alive(incarnation: Incarnation, epoch: u64, sign: Sign) -> ObjectName {
    let sign = match sign {
        Sign::Beat(beat) => format!("{:016x}", !beat),
        Sign::Leaving => "leaving".into(),
        Sign::Left => "left".into(),
    };
    name(format!("{:016x}/alive/{:016x}.{sign}", incarnation.0, !epoch))
}

/// The epoch and the sign in such a name; `None` when it is none.
pub fn parse_alive(incarnation: Incarnation, object: &ObjectName) -> Option<(u64, Sign)> {
    let (epoch, sign) = object.as_str().strip_prefix(&alive_prefix(incarnation))?.split_once('.')?;
    let sign = match sign {
        "leaving" => Sign::Leaving,
        "left" => Sign::Left,
        beat => Sign::Beat(!hexadecimal(beat)?),
    };
    Some((!hexadecimal(epoch)?, sign))
}

/// Prefix of those who stand by.
pub fn standby_prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/standby/", incarnation.0)
}

/// Somebody who asks for signs of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StandbyRecord {
    /// Random.
    pub id: u128,
    /// How often it has renewed its record.
    pub beat: u64,
    /// How often it asks for a sign, in milliseconds.
    pub period_ms: u64,
    /// Whether it only asks, and would not take over.
    pub only_asks: bool,
}

/// `{i}/standby/{id}.{period}.{!beat}`, with `.asks` behind it of one who only asks.
pub fn standby(incarnation: Incarnation, record: StandbyRecord) -> ObjectName {
    let StandbyRecord { id, period_ms, beat, only_asks } = record;
    let end = if only_asks { ".asks" } else { "" };
    name(format!("{:016x}/standby/{id:032x}.{period_ms:016x}.{:016x}{end}", incarnation.0, !beat))
}

/// The record of such a name; `None` when it is none.
pub fn parse_standby(incarnation: Incarnation, object: &ObjectName) -> Option<StandbyRecord> {
    let mut parts = object.as_str().strip_prefix(&standby_prefix(incarnation))?.split('.');
    let (id, period, beat) = (parts.next()?, parts.next()?, parts.next()?);
    let only_asks = match parts.next() {
        None => false,
        Some("asks") => true,
        Some(_) => return None,
    };
    let (id, period_ms, beat) = (parse_id(id)?, hexadecimal(period)?, !hexadecimal(beat)?);
    Some(StandbyRecord { id, period_ms, beat, only_asks }).filter(|_| parts.next().is_none())
}

/// `{i}/standby/{id}.ask`: something is asked of the writer.
pub fn question(incarnation: Incarnation, id: u128) -> ObjectName {
    name(format!("{:016x}/standby/{id:032x}.ask", incarnation.0))
}

/// `{i}/standby/{id}.answer`: what the writer answers.
pub fn answer(incarnation: Incarnation, id: u128) -> ObjectName {
    name(format!("{:016x}/standby/{id:032x}.answer", incarnation.0))
}

/// The id in the name of a question or an answer, and whether it is an answer; `None` when it is
/// neither.
pub fn parse_question(incarnation: Incarnation, object: &ObjectName) -> Option<(u128, bool)> {
    let (id, what) = object.as_str().strip_prefix(&standby_prefix(incarnation))?.split_once('.')?;
    let is_answer = match what {
        "ask" => false,
        "answer" => true,
        _ => return None,
    };
    Some((parse_id(id)?, is_answer))
}

fn hexadecimal(digits: &str) -> Option<u64> {
    let proper = digits.len() == 16
        && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if proper { u64::from_str_radix(digits, 16).ok() } else { None }
}

fn foreign(object: &ObjectName, expected: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "a name that Tombolo does not make")
        .object(object)
        .expected(expected)
        .found(object)
        .advice("move what does not belong to the database out of its directory")
}

/// The number in an incarnation record's name.
///
/// # Errors
/// `Corrupt` when it is no such name.
pub fn parse_incarnation(object: &ObjectName) -> Result<Incarnation> {
    let digits = object.as_str().strip_prefix(INCARNATION_PREFIX).and_then(hexadecimal);
    digits.map(|number| Incarnation(!number)).ok_or_else(|| foreign(object, "incarnation/{16 digits}"))
}

/// The slot in a record's name.
///
/// # Errors
/// `Corrupt` when it is no such name.
pub fn parse_record(incarnation: Incarnation, object: &ObjectName) -> Result<u64> {
    let digits = object.as_str().strip_prefix(&record_prefix(incarnation)).and_then(hexadecimal);
    digits.map(|number| !number).ok_or_else(|| foreign(object, "{incarnation}/manifest/{16 digits}"))
}

fn parse_pair(object: &ObjectName, prefix: &str) -> Option<(u64, u64)> {
    pair(object.as_str().strip_prefix(prefix)?)
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (first, second) = text.split_once('-')?;
    Some((hexadecimal(first)?, hexadecimal(second)?))
}

/// Epoch and randomness of an application's object; `None` when it is no such name.
pub fn parse_application(incarnation: Incarnation, object: &ObjectName) -> Option<(u64, u64)> {
    parse_pair(object, &application_prefix(incarnation))
}

/// The same of the last part of such a name.
pub fn parse_application_text(text: &str) -> Option<(u64, u64)> {
    pair(text)
}

/// Slot and randomness in a snapshot's name; `None` when it is no such name.
pub fn parse_snapshot(incarnation: Incarnation, object: &ObjectName) -> Option<(u64, u64)> {
    parse_pair(object, &snapshot_prefix(incarnation))
}

/// The table that an object holds; `None` when it is no table's name.
pub fn parse_table(incarnation: Incarnation, object: &ObjectName) -> Option<TableName> {
    let (epoch, random) = parse_pair(object, &table_prefix(incarnation))?;
    Some(TableName { epoch, random })
}

/// The pin that an object holds, or is a heartbeat of, with the heartbeat's number; `None` when it
/// is neither's name.
pub fn parse_pin(incarnation: Incarnation, object: &ObjectName) -> Option<(u128, Option<u64>)> {
    let rest = object.as_str().strip_prefix(&pin_prefix(incarnation))?;
    let (id, beat) = match rest.split_once('.') {
        Some((id, beat)) => (id, Some(!hexadecimal(beat)?)),
        None => (rest, None),
    };
    Some((parse_id(id)?, beat))
}

/// The id in a checkpoint's name; `None` when it is no such name.
pub fn parse_checkpoint(incarnation: Incarnation, object: &ObjectName) -> Option<u128> {
    object.as_str().strip_prefix(&checkpoint_prefix(incarnation)).and_then(parse_id)
}

fn parse_id(digits: &str) -> Option<u128> {
    let (high, low) = digits.split_at_checked(16)?;
    Some((u128::from(hexadecimal(high)?) << 64) | u128::from(hexadecimal(low)?))
}
