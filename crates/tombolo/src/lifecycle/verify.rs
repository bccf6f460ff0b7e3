//! Verification of a whole database: the manifest's chain, what its parts say about each other,
//! every table, every log.
//!
//! All damage is told, not only the first; nothing is repaired, and what runs beside it is not
//! disturbed. Tables that compaction replaces meanwhile are kept until they are read, logs are read
//! up to where they are durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::incarnation::{INCARNATION_BYTES, decode_incarnation};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{LogRole, TableDescription};
use tombolo_storage::object::read_whole;
use tombolo_storage::{Error, ErrorKind, LogId, LogOffset, LogRecord, ObjectName, Purpose, Result};

use crate::checkpoint::last_sequence;
use crate::engine::{Engine, Health, Kept, Store, View};
use crate::manifest::names::{INCARNATION_PREFIX, parse_incarnation};
use crate::manifest::{self, State};
use crate::table::check_description;

/// What [`crate::Db::verify`] read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read in full.
    pub tables: u64,
    /// Value objects read in full.
    pub value_objects: u64,
    /// Tables to read in all.
    pub tables_all: u64,
    /// Entries of the sound ones.
    pub entries: u64,
    /// Bytes read of tables and value objects.
    pub bytes: u64,
    /// Bytes of all of them.
    pub bytes_all: u64,
    /// Records of the manifest read.
    pub manifest_records: u64,
    /// Entries of logs read: what opening would replay.
    pub log_entries: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// The damaged places, one text each; empty when all is well.
    pub damage: Vec<String>,
    /// The same, in parts.
    pub findings: Vec<Finding>,
}

/// Names of one page of a list.
const NAMES_PER_LIST: usize = 1000;

/// Something that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The trouble.
    pub message: String,
    /// The object that is damaged.
    pub object: Option<String>,
    /// Where in it.
    pub offset: Option<u64>,
    /// What should be there.
    pub expected: Option<String>,
    /// The bytes found.
    pub found: Option<String>,
}

impl VerifyReport {
    /// Damage goes into the report; all other errors end the verification.
    fn note(&mut self, error: &Error) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Unsupported) {
            return Err(error.clone());
        }
        self.damage.push(error.to_string());
        self.findings.push(Finding {
            message: error.message().to_owned(),
            object: error.object_name().map(str::to_owned),
            offset: error.position(),
            expected: error.expectation().map(str::to_owned),
            found: error.finding().map(str::to_owned),
        });
        Ok(())
    }
}

/// Reads and checks everything; tells `progress` after each step.
pub(crate) async fn verify(
    engine: &Arc<Engine>,
    mut progress: impl FnMut(&VerifyReport) + Send,
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    match manifest::load(&engine.env, &engine.objects).await {
        Ok(loaded) => report.manifest_records = loaded.state.slot(),
        Err(error) => report.note(&error)?,
    }
    incarnations(engine, &mut report).await?;
    let view = Kept::new(engine, engine.view_owned());
    let state = engine.manifest.state();
    for error in contradictions(engine, &state) {
        report.note(&error)?;
    }
    let of = |view: &View| {
        let all = view.version.keyspaces();
        all.flat_map(|(_, levels)| levels.tables().cloned().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let mut tables = of(&view);
    engine.streams.all().iter().for_each(|stream| tables.extend(of(&stream.view())));
    report.tables_all = tables.len() as u64;
    let values: BTreeMap<_, _> = tables
        .iter()
        .flat_map(|table| table.values())
        .map(|handle| (handle.object().description().name, Arc::clone(handle.object())))
        .collect();
    report.bytes_all = tables.iter().map(|table| table.description().length).sum::<u64>()
        + values.values().map(|object| object.description().length).sum::<u64>();
    progress(&report);
    for table in tables {
        engine.pace.take(&engine.env, table.description().length).await;
        let damages = table.damages().await?;
        report.tables += 1;
        report.bytes += table.description().length;
        if damages.is_empty() {
            report.entries += table.description().entries;
            if let Err(error) = check_length(engine, table.description()).await {
                report.note(&judged(engine, &view, error).await)?;
            }
        }
        for error in damages {
            report.note(&judged(engine, &view, error).await)?;
        }
        progress(&report);
        if engine.check_open().is_err() {
            return Err(closed());
        }
    }
    for object in values.into_values() {
        engine.pace.take(&engine.env, object.description().length).await;
        let mut damages = object.damages().await?;
        if damages.is_empty() {
            damages.extend(check_length(engine, object.description()).await.err());
        }
        for error in damages {
            report.note(&judged(engine, &view, error).await)?;
        }
        report.value_objects += 1;
        report.bytes += object.description().length;
        progress(&report);
        if engine.check_open().is_err() {
            return Err(closed());
        }
    }
    if !engine.is_read_only() || engine.shows_logs() {
        logs(engine, &mut report).await?;
        progress(&report);
    }
    Ok(report)
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database was closed while it was verified")
}

/// What damage means that a process without a claim finds: a table that nobody kept for it, and
/// that was deleted meanwhile, is not damaged.
async fn judged(health: &Health, view: &View, error: Error) -> Error {
    if health.is_read_only() { health.judge_read(view, error).await } else { error }
}

/// Reads the records that began the lives of the database: each says the number in its name.
async fn incarnations(store: &Store, report: &mut VerifyReport) -> Result<()> {
    let request = store.request(Purpose::Verify);
    let mut after = None;
    loop {
        let page = store.objects.list(request, INCARNATION_PREFIX, after.as_ref(), NAMES_PER_LIST).await?;
        for object in &page.objects {
            if let Err(error) = check_incarnation(store, &object.name).await {
                report.note(&error)?;
            }
        }
        after = page.objects.last().map(|object| object.name.clone());
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
}

async fn check_incarnation(store: &Store, name: &ObjectName) -> Result<()> {
    let expected = parse_incarnation(name)?;
    let bytes_max = INCARNATION_BYTES as u64;
    let bytes = read_whole(&*store.objects, store.request(Purpose::Verify), name, bytes_max).await?;
    match decode_incarnation(&bytes).map_err(|error| Error::format(name, 0, error))? {
        found if found == expected.0 => Ok(()),
        found => Err(Error::corrupt(name, 0, format!("life {}", expected.0), format!("life {found}"))),
    }
}

/// Whether the object of a sound table ends where the table does: nothing reads what follows, and
/// nobody wrote it.
async fn check_length(store: &Store, table: &TableDescription) -> Result<()> {
    let (objects, object) = store.versions.tables().locate(table);
    let (found, end) =
        (objects.length(store.request(Purpose::Verify), &object).await?, table.offset + table.length);
    if found == end {
        Ok(())
    } else {
        Err(Error::corrupt(object, end, format!("an object of {end} bytes"), format!("{found} bytes")))
    }
}

/// What the manifest's state says that cannot be.
fn contradictions(store: &Store, state: &State) -> Vec<Error> {
    let object = |table: &TableDescription| store.versions.tables().locate(table).1;
    let last = last_sequence(state);
    let mut errors = Vec::new();
    for keyspace in state.keyspaces() {
        for (number, level) in &keyspace.levels {
            let mut before: Option<&Arc<TableDescription>> = None;
            for table in level.tables() {
                errors.extend(check_description(table, &object(table)).err());
                if table.last_sequence > last {
                    errors.push(Error::corrupt(
                        object(table),
                        0,
                        format!("sequence numbers up to {}", last.0),
                        table.last_sequence.0,
                    ));
                }
                if let Some(before) =
                    before.filter(|before| *number > 0 && !before.ends_before(&table.first_key))
                {
                    let expected = format!(
                        "keys of level {number} after {:?}, the last of {}",
                        before.last_key,
                        object(before)
                    );
                    errors.push(Error::corrupt(
                        object(table),
                        0,
                        expected,
                        format!("{:?} first", table.first_key),
                    ));
                }
                before = Some(table);
            }
        }
    }
    errors
}

/// Reads what opening would replay. A log that a flush frees meanwhile is needed no more.
async fn logs(engine: &Engine, report: &mut VerifyReport) -> Result<()> {
    let state = engine.manifest.state();
    for (id, log) in state.logs() {
        let record = LogRecord { id: *id, configuration: log.configuration.clone() };
        let end = match log.sealed {
            Some(sealed) => Some(sealed),
            // Another process's: what it has made durable.
            None if engine.is_read_only() => None,
            None if id.epoch == engine.context.epoch => match durable_through(engine, *id) {
                Some(end) => Some(end),
                None => continue,
            },
            None => continue,
        };
        if end.is_some_and(|end| log.replay_point >= end) {
            continue;
        }
        if let Err(error) = read_log(engine, &record, log.replay_point, end, report).await {
            let freed = newest(engine).await.is_ok_and(|newest| {
                newest.logs().get(id).is_none_or(|newest| newest.replay_point > log.replay_point)
            });
            if !freed {
                report.note(&engine.judge(error).await)?;
            }
        }
    }
    Ok(())
}

/// The newest state of the manifest.
async fn newest(health: &Health) -> Result<Arc<State>> {
    if health.is_read_only() {
        return Ok(manifest::load(&health.env, &health.objects).await?.state);
    }
    Ok(health.manifest.state())
}

/// How far a log of this epoch is durable; nothing of one that has ended, and is about to be
/// un-named.
fn durable_through(health: &Engine, id: LogId) -> Option<LogOffset> {
    let main = health.main_log();
    if id == main.id {
        return main.ended().is_none().then(|| main.durable_through());
    }
    if let Some(lane) = health.streams.all().iter().map(|of| of.main_log()).find(|lane| lane.id == id) {
        return lane.ended().is_none().then(|| lane.durable_through());
    }
    let state = health.manifest.state();
    let is_application = state.logs().get(&id).is_some_and(|log| log.role == LogRole::Application);
    health.application.log.as_ref().filter(|_| is_application).map(|log| log.durable_through(id.lane))
}

async fn read_log(
    store: &Store,
    record: &LogRecord,
    from: LogOffset,
    to: Option<LogOffset>,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut reader = match to {
        Some(to) => store.log_store.read(&store.context, record, from, to).await?,
        None => store.log_store.tail(&store.context, record, from).await?,
    };
    let mut next: Option<SequenceNumber> = None;
    while let Some((entry, at)) = reader.next().await? {
        if let Some(next) = next.filter(|next| entry.first_sequence < next.0) {
            let what = format!("the log of epoch {} at {at}", record.id.epoch);
            return Err(Error::corrupt(
                what,
                0,
                format!("a sequence number of at least {}", next.0),
                entry.first_sequence,
            ));
        }
        next = Some(SequenceNumber(entry.first_sequence.saturating_add(u64::from(entry.count))));
        report.log_entries += 1;
        report.log_bytes += entry.payload.len() as u64;
    }
    reader.lacks().map_or(Ok(()), Err)
}
