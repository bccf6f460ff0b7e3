//! A job as bytes: all that a worker needs, and no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::compaction::{
    Attempt, CompactionJob, JOB_NAMES_MAX, JOB_NEEDS_MAX, JobInput, Reach, Role, encode_job,
};
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::location::location_of;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result, Uri};

use super::super::pick::{Job, Reason};
use super::super::world::Terms;
use crate::engine::{Engine, KeyspaceInfo};
use crate::manifest::State;
use crate::version::{TableHandle, block_bytes};

/// Names for each table's worth of inputs: outputs may end early, for what lies below.
const NAMES_PER_TABLE: u64 = 32;
/// Names beside those.
const NAMES_MIN: u64 = 256;

/// What every worker says that it is.
pub(super) fn version_need() -> String {
    concat!("tombolo ", env!("CARGO_PKG_VERSION")).to_owned()
}

pub(super) fn operator_need(name: &impl std::fmt::Display) -> String {
    format!("operator {name}")
}

pub(super) fn filter_need(name: &impl std::fmt::Display) -> String {
    format!("filter {name}")
}

pub(super) fn collector_need(name: &str) -> String {
    format!("collector {name}")
}

/// The bytes of a job, what it needs, and how many names its outputs may take.
///
/// # Errors
/// `Unsupported` when it cannot leave this process.
pub(super) fn encode(
    engine: &Engine,
    place: Option<&str>,
    job: &Job,
    keyspace: &KeyspaceInfo,
    terms: &Terms,
) -> Result<(Vec<u8>, Vec<String>, u32)> {
    let (state, options) = (engine.manifest.state(), &terms.options);
    let (needs, place) = (needs(engine, terms)?, place_of(engine, place)?);
    let tables = job.bytes() / job.table_bytes.max(1);
    let names_max = tables.saturating_mul(NAMES_PER_TABLE).saturating_add(NAMES_MIN);
    let names_max = u32::try_from(names_max).unwrap_or(JOB_NAMES_MAX).min(JOB_NAMES_MAX);
    let database = engine.context.database;
    let budget_bytes = engine.budget().bytes();
    let attempt = Attempt {
        database,
        incarnation: engine.context.incarnation.0,
        epoch: engine.context.epoch.0,
        job: engine.offered.fetch_add(1, Ordering::Relaxed),
        random: 0,
    };
    let moments = &terms.moments;
    let snapshots =
        if is_enabled(Mutant::RemoteJobForgetsSnapshots) { Vec::new() } else { moments.snapshots.clone() };
    let bytes = CompactionJob {
        attempt,
        time_ms: terms.time_ms,
        settled_ms: moments.settled_ms,
        output_bytes: job.table_bytes,
        block_bytes: options.block_bytes.unwrap_or_else(|| block_bytes(terms.table_bytes, budget_bytes)),
        names_max,
        keyspace: job.keyspace,
        from: job.from,
        to: job.to,
        is_asked: job.reason == Reason::Asked,
        place,
        needs: needs.clone(),
        snapshots,
        collected: terms.collected.iter().copied().collect(),
        inputs: inputs(job),
        others: if is_enabled(Mutant::RemoteJobForgetsBelow) { Vec::new() } else { others(job) },
        edits: edits(&state, keyspace, job.inputs().map(|table| table.description()))?,
    };
    let encoded = encode_job(&bytes).map_err(|error| {
        Error::new(ErrorKind::Unsupported, format!("a compaction is too large for workers: {error}"))
    })?;
    Ok((encoded, needs, names_max))
}

/// What a worker must have.
fn needs(engine: &Engine, terms: &Terms) -> Result<Vec<String>> {
    let mut needs = vec![version_need()];
    needs.extend(terms.options.operator.as_ref().map(operator_need));
    // One that is not there filters nothing, here as there.
    if terms.filter.is_some() {
        needs.extend(terms.options.compaction_filter.as_ref().map(filter_need));
    }
    needs.extend(engine.versions.tables().collectors.names().map(collector_need));
    if needs.len() > JOB_NEEDS_MAX {
        return Err(Error::new(ErrorKind::Unsupported, "a compaction needs too much for workers"));
    }
    Ok(needs)
}

/// The URI by which workers open the database's store: the one that is said for them, or its own.
///
/// # Errors
/// `Unsupported` for one that holds a secret; `Invalid` for text that is not a URI.
fn place_of(engine: &Engine, said: Option<&str>) -> Result<String> {
    let uri = match said {
        Some(said) => Uri::parse(said)?,
        None => location_of(&*engine.objects)?.uri().clone(),
    };
    let shown = uri.shown();
    if uri.to_string() == shown {
        return Ok(said.map_or(shown, str::to_owned));
    }
    let message = format!("{shown} holds a secret, which is not given to workers");
    Err(Error::new(ErrorKind::Unsupported, message)
        .advice("say by which URI workers open the store, and give them the secret where they run"))
}

fn inputs(job: &Job) -> Vec<JobInput> {
    let of = |role: Role, level: u8, tables: &[Arc<TableHandle>]| {
        let input = |table: &Arc<TableHandle>| JobInput { role, level, name: table.description().name };
        tables.iter().map(input).collect::<Vec<_>>()
    };
    let mut all = of(Role::Upper, job.from, &job.upper);
    all.extend(job.passed.iter().flat_map(|(level, tables)| of(Role::Passed, *level, tables)));
    all.extend(of(Role::Lower, job.to, &job.lower));
    all
}

/// What else holds keys of the inputs' range.
fn others(job: &Job) -> Vec<Reach> {
    let Some((first, last)) = job.range() else { return Vec::new() };
    let reach = |level: u8, table: &Arc<TableHandle>| {
        let description = table.description();
        Reach {
            level,
            ends_before_last: description.range_deletes().is_some_and(|ranges| ranges.ends_before_last),
            length: description.length,
            first_key: description.first_key.clone(),
            last_key: description.last_key.clone(),
        }
    };
    let meets = |table: &&Arc<TableHandle>| {
        let description = table.description();
        description.first_key <= last && !description.ends_before(&first)
    };
    let mut all: Vec<_> = job.older_runs.iter().filter(meets).map(|table| reach(0, table)).collect();
    // Each run below gets a level of its own, in their order: the job names no others there.
    for (at, run) in job.deeper.iter().enumerate() {
        let level = job.to.saturating_add(1).saturating_add(u8::try_from(at).unwrap_or(u8::MAX));
        all.extend(run.range(run.overlapping(&first, &last)).map(|table| reach(level, table)));
    }
    all
}

/// What says from nothing what these tables are: the keyspace, the sources and value objects that
/// they need, themselves.
///
/// # Errors
/// `Bug` for a table of no state.
pub(super) fn edits<'a>(
    state: &State,
    keyspace: &KeyspaceInfo,
    tables: impl Iterator<Item = &'a TableDescription>,
) -> Result<Vec<Edit>> {
    let found = state.keyspace(keyspace.id).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("keyspace {:?} was dropped", keyspace.name))
    })?;
    let tables: Vec<_> = tables.collect();
    let values: BTreeMap<_, _> = tables
        .iter()
        .flat_map(|table| table.referred())
        .filter_map(|referred| Some((referred.object, found.values.object(referred.object)?)))
        .collect();
    let objects = || values.values().map(|object| &***object).chain(tables.iter().copied());
    let sources: BTreeSet<_> = objects().filter_map(|table| table.source).map(|of| of.source).collect();
    let created = Edit::KeyspaceCreated {
        id: keyspace.id,
        name: keyspace.name.to_string(),
        stream: found.stream,
        options: keyspace.options().to_manifest(),
    };
    let named = state.sources().filter(|source| sources.contains(&source.number)).cloned();
    let mut edits = vec![created];
    edits.extend(named.map(Edit::SourceNamed));
    edits.extend(objects().cloned().map(Edit::TableAdded));
    Ok(edits)
}
