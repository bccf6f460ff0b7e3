//! `tombolo inspect`: what the bytes say, with offsets, on damaged files too.
//!
//! Nothing is opened as a database: objects and files are read as they are, told apart by their
//! magic, and reported part by part. A damaged part is named with what was expected and what was
//! found; the rest is reported as far as it can be reached. Writers are not disturbed.

mod entry;
mod log;
mod log_object;
mod manifest;
mod place;
mod report;
mod table;
mod values;

use bytes::Bytes;
use clap::{Args, ValueEnum};

use self::place::Place;
use self::report::Report;
use crate::failure::Result;
use crate::output::Output;

/// Arguments of `inspect`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo inspect file:///data/orders                     every object and log file, and what it is
  tombolo inspect file:///data/orders manifest            every record of the manifest, oldest first
  tombolo inspect file:///data/orders tables              every table, and every object of values that lie apart
  tombolo inspect file:///data/orders log                 every file or object of logs
  tombolo inspect file:///data/orders pins                every pin of checkpoints and readers; checkpoints likewise
  tombolo inspect file:///logs                            a place of logs alone: by the ids of their databases
  tombolo inspect file:///data/orders 0000000000000001/table/…
  tombolo inspect /data/orders/0000000000000001/log/…/00000000 --entries

A name that ends in a slash stands for all that lies under it. Exit code 5 when something is damaged.")]
pub struct Arguments {
    /// A store, as a URI, or the path of a file.
    #[arg(value_name = "URI|PATH")]
    place: String,
    /// Of a store: the name of an object, or manifest, tables, log, checkpoints, pins.
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    /// What the bytes are, when their magic does not tell.
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<Kind>,
    /// Print every entry of tables and every operation of logs.
    #[arg(long)]
    entries: bool,
}

/// What bytes can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A table.
    Table,
    /// An object of values that lie apart from their table.
    Values,
    /// A segment of a log.
    Segment,
    /// The control page of a log lane.
    Lane,
    /// An object of a log that is kept as objects.
    LogObject,
    /// A record of the manifest.
    Record,
    /// A snapshot of the manifest.
    Snapshot,
    /// The record that begins a database's numbered life.
    Incarnation,
    /// A checkpoint.
    Checkpoint,
    /// A pin, which keeps tables.
    Pin,
    /// An object whose name says all: of a writer, a standby or a pin that lives.
    Sign,
    /// What a trial of the store left.
    Probe,
}

impl Kind {
    const MAGICS: [(Kind, [u8; 8]); 10] = [
        (Kind::Table, tombolo_format::table::TABLE_MAGIC),
        (Kind::Values, tombolo_format::value_object::VALUE_OBJECT_MAGIC),
        (Kind::Segment, tombolo_format::log_frame::SEGMENT_MAGIC),
        (Kind::Lane, tombolo_format::log_frame::LANE_MAGIC),
        (Kind::Record, tombolo_format::manifest::RECORD_MAGIC),
        (Kind::Snapshot, tombolo_format::manifest::snapshot::SNAPSHOT_MAGIC),
        (Kind::Incarnation, tombolo_format::incarnation::INCARNATION_MAGIC),
        (Kind::LogObject, tombolo_format::log_object::LOG_OBJECT_MAGIC),
        (Kind::Checkpoint, tombolo_format::checkpoint::CHECKPOINT_MAGIC),
        (Kind::Pin, tombolo_format::pin::PIN_MAGIC),
    ];

    /// What the magic says; a table's is at its end.
    fn by_magic(bytes: &[u8]) -> Option<Kind> {
        let ends = [bytes.first_chunk::<8>(), bytes.last_chunk::<8>()];
        Kind::MAGICS
            .iter()
            .find(|(kind, magic)| ends[usize::from(*kind == Kind::Table)] == Some(magic))
            .map(|(kind, _)| *kind)
    }

    /// What the name says, for bytes whose magic is damaged.
    fn by_name(name: &str) -> Option<Kind> {
        let segments: Vec<&str> = name.split('/').collect();
        match segments[..] {
            [.., "incarnation", _] => Some(Kind::Incarnation),
            [.., "manifest", _] => Some(Kind::Record),
            [.., "snapshot", _] => Some(Kind::Snapshot),
            [.., "table", _] => Some(Kind::Table),
            [.., "log", _, "control"] => Some(Kind::Lane),
            [.., "log", _, _] => Some(Kind::Segment),
            [.., "log-objects", _, _, _] => Some(Kind::LogObject),
            [.., "checkpoint", _] => Some(Kind::Checkpoint),
            [.., "pin", name] => Some(if name.contains('.') { Kind::Sign } else { Kind::Pin }),
            [.., "alive" | "standby", _] => Some(Kind::Sign),
            ["probe", ..] => Some(Kind::Probe),
            _ => None,
        }
    }
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let place = Place::parse(&arguments.place)?;
    let names = match (&place, arguments.object.as_deref()) {
        (Place::Store(store), None) => return overview(store, output),
        (Place::Store(store), Some("manifest")) => {
            store.names_of(&[Kind::Incarnation, Kind::Snapshot, Kind::Record])?
        }
        (Place::Store(store), Some("tables" | "table")) => store.names_of(&[Kind::Table])?,
        (Place::Store(store), Some("log" | "logs")) => {
            store.names_of(&[Kind::Lane, Kind::Segment, Kind::LogObject])?
        }
        (Place::Store(store), Some("checkpoints" | "checkpoint")) => store.names_of(&[Kind::Checkpoint])?,
        (Place::Store(store), Some("pins" | "pin")) => store.names_of(&[Kind::Pin, Kind::Sign])?,
        (Place::Store(store), Some(prefix)) if prefix.ends_with('/') => store.names_under(prefix)?,
        (_, Some(object)) => vec![object.to_owned()],
        (Place::File(_), None) => vec![String::new()],
    };
    let mut damaged = None;
    for name in &names {
        let (shown, bytes) = place.read(name)?;
        let report = inspect(&shown, &bytes, arguments.kind, arguments.entries);
        report.print(output)?;
        damaged = damaged.or(report.into_error());
    }
    if names.is_empty() {
        if let Place::Store(store) = &place {
            store.check_not_empty()?;
        }
        output.result(|| serde_json::json!({ "found": 0 }), || "there is none".to_owned())?;
    }
    output.finish()?;
    damaged.map_or(Ok(()), |error| Err(error.into()))
}

fn overview(store: &place::Store, output: &Output) -> Result<()> {
    store.check_not_empty()?;
    for (name, length) in store.list()? {
        let kind =
            Kind::by_name(&name).map_or("foreign".to_owned(), |kind| format!("{kind:?}").to_lowercase());
        output.result(
            || serde_json::json!({ "name": name, "bytes": length, "kind": kind }),
            || format!("{kind:<12} {:>12}  {name}", crate::text::bytes(length)),
        )?;
    }
    Ok(())
}

/// Reports on bytes.
fn inspect(name: &str, bytes: &Bytes, kind: Option<Kind>, entries: bool) -> Report {
    let mut report = Report::new(name, bytes.len() as u64);
    match kind.or_else(|| Kind::by_magic(bytes)).or_else(|| Kind::by_name(name)) {
        Some(Kind::Table) => table::inspect(bytes, entries, &mut report),
        Some(Kind::Values) => values::inspect(bytes, entries, &mut report),
        Some(Kind::Segment) => log::segment(name, bytes, entries, &mut report),
        Some(Kind::Lane) => log::lane(bytes, &mut report),
        Some(Kind::LogObject) => log_object::inspect(name, bytes, entries, &mut report),
        Some(Kind::Record) => manifest::record(bytes, &mut report),
        Some(Kind::Snapshot) => manifest::snapshot(bytes, &mut report),
        Some(Kind::Incarnation) => manifest::incarnation(bytes, &mut report),
        Some(Kind::Checkpoint) => manifest::checkpoint(bytes, &mut report),
        Some(Kind::Pin) => manifest::pin(bytes, &mut report),
        Some(Kind::Sign) => manifest::sign(bytes, &mut report),
        Some(Kind::Probe) => report.kind("trial of the store"),
        None => report.foreign(bytes),
    }
    report
}

#[cfg(test)]
mod tests;
