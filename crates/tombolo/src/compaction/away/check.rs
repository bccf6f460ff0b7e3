//! What of an answer is believed: nothing that was not checked.
//!
//! Workers are trusted code: the checks find mistakes, and not malice. Counts, bounds, order and
//! sums of hashes say whether entries were lost on the way. Only a range that is merged again says
//! whether an entry was dropped that had to stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::compaction::{Attempt, JobResult};
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use super::super::again::Again;
use super::super::job::{Range, Run};
use super::super::merge::Failure;
use super::super::pick::Job;
use super::super::world::Terms;
use super::picture::levels_of;
use super::{encoded, names};
use crate::engine::{Engine, KeyspaceInfo};
use crate::version::{Levels, TableHandle};

/// Why an answer does not count.
#[derive(Debug)]
pub(super) enum Doubt {
    /// It is wrong.
    Wrong(Error),
    /// It could not be checked.
    Unknown(Error),
}

fn wrong<T>(what: impl Into<String>) -> std::result::Result<T, Doubt> {
    let what: String = what.into();
    Err(Doubt::Wrong(
        Error::new(ErrorKind::Corrupt, format!("the answer of a worker is wrong: {what}"))
            .advice("replace that worker, and report it: nothing of its answer counts"),
    ))
}

/// Judges an error of the store while outputs are read: damage is the worker's.
fn reading(error: Error) -> Doubt {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Unsupported => {
            Doubt::Wrong(error.context("reading what a worker wrote"))
        }
        _ => Doubt::Unknown(error),
    }
}

/// Checks an answer.
pub(super) async fn check(
    engine: &Arc<Engine>,
    job: &Arc<Job>,
    keyspace: &KeyspaceInfo,
    terms: &Terms,
    attempt: &Attempt,
    names_max: u32,
    result: &JobResult,
) -> std::result::Result<(), Doubt> {
    if !is_enabled(Mutant::RemoteNamesUnchecked) {
        check_names(job, attempt, names_max, result)?;
    }
    if !is_enabled(Mutant::RemoteBoundsUnchecked) {
        check_bounds(job, &result.outputs)?;
    }
    if !is_enabled(Mutant::RemoteCountsUnchecked) {
        check_counts(job, result)?;
    }
    if !is_enabled(Mutant::RemoteSumsUnchecked) {
        check_sums(job, terms, result)?;
    }
    let outputs = opened(engine, job, keyspace, result).await?;
    if is_enabled(Mutant::RemoteRangeUnchecked) {
        return Ok(());
    }
    check_range(engine, job, terms, &outputs).await
}

fn tables(outputs: &[TableDescription]) -> impl Iterator<Item = &TableDescription> {
    outputs.iter().filter(|table| !table.is_values())
}

/// Names are those of this attempt, and none comes twice.
fn check_names(
    job: &Job,
    attempt: &Attempt,
    names_max: u32,
    result: &JobResult,
) -> std::result::Result<(), Doubt> {
    if result.names > names_max {
        return wrong(format!("{} names were taken, of {names_max}", result.names));
    }
    let mut left = names(attempt, result.names);
    for output in &result.outputs {
        if !left.remove(&output.name) || job.inputs().any(|input| input.description().name == output.name) {
            return wrong(format!("{:?} is no name of this attempt, or comes twice", output.name));
        }
    }
    match result.older.iter().find(|name| tables(&result.outputs).all(|output| output.name != **name)) {
        Some(stranger) => wrong(format!("{stranger:?} is no output")),
        None => Ok(()),
    }
}

/// Outputs are of the keyspace and level, and within keys and numbers of the inputs; they follow
/// each other.
fn check_bounds(job: &Job, outputs: &[TableDescription]) -> std::result::Result<(), Doubt> {
    let Some((first, last)) = job.range() else { return wrong("a job without inputs") };
    let numbers: Vec<_> = job.inputs().map(|table| table.description()).collect();
    let oldest = numbers.iter().map(|table| table.first_sequence).min();
    let newest = numbers.iter().map(|table| table.last_sequence).max();
    for output in outputs {
        let level = if output.is_values() { output.level } else { job.to };
        if output.keyspace != job.keyspace || output.level != level || output.source.is_some() {
            return wrong(format!("{:?} is of another keyspace or level", output.name));
        }
        if output.is_values() {
            continue;
        }
        if output.first_key < first || output.last_key > last || output.first_key > output.last_key {
            return wrong(format!("{:?} has keys beyond those of the inputs", output.name));
        }
        if Some(output.first_sequence) < oldest || Some(output.last_sequence) > newest {
            return wrong(format!("{:?} has numbers beyond those of the inputs", output.name));
        }
    }
    let mut sorted: Vec<_> = tables(outputs).collect();
    sorted.sort_by(|one, other| one.first_key.cmp(&other.first_key));
    match sorted.windows(2).find(|pair| !pair[0].ends_before(&pair[1].first_key)) {
        Some(pair) => wrong(format!("{:?} and {:?} overlap", pair[0].name, pair[1].name)),
        None => Ok(()),
    }
}

/// As many entries were read as the inputs have, and what became of them adds up.
fn check_counts(job: &Job, result: &JobResult) -> std::result::Result<(), Doubt> {
    let tally = &result.tally;
    let inputs: u64 = job.inputs().map(|table| table.description().entries).sum();
    if tally.read.checked_add(tally.unread) != Some(inputs) {
        return wrong(format!("{} entries were read and {} left, of {inputs}", tally.read, tally.unread));
    }
    if tally.unread > 0 && !job.inputs().any(|table| table.has_ranges()) {
        return wrong("entries were left unread, and nothing hides them");
    }
    if tally.balanced() != Some(tally.written) {
        return wrong(format!("its counts contradict each other: {tally:?}"));
    }
    let written: u64 = tables(&result.outputs).map(|table| table.entries).sum();
    if written != tally.written {
        return wrong(format!("{} entries were written, and outputs have {written}", tally.written));
    }
    Ok(())
}

/// The hashes of what was read are those of the inputs, and what became of them adds up. Where
/// values lie apart, hashes say less, as references are made anew.
fn check_sums(job: &Job, terms: &Terms, result: &JobResult) -> std::result::Result<(), Doubt> {
    let tally = &result.tally;
    let is_plain = |table: &&Arc<TableHandle>| table.description().properties.sequence_override().is_none();
    let sums: Option<u64> = job
        .inputs()
        .map(|table| {
            Some(&**table).filter(|_| is_plain(&table)).and_then(|table| table.description().entry_sum())
        })
        .try_fold(0u64, |sum, next| Some(sum.wrapping_add(next?)));
    if let Some(sum) = sums.filter(|_| tally.unread == 0)
        && sum != tally.read_sum
    {
        return wrong("the entries that were read are not those of the inputs");
    }
    if terms.options.separate_bytes > 0 || !terms.collected.is_empty() {
        return Ok(());
    }
    let written = tables(&result.outputs)
        .map(TableDescription::entry_sum)
        .try_fold(0u64, |sum, next| Some(sum.wrapping_add(next?)));
    match written {
        None => wrong("an output says no sum of its entries' hashes"),
        Some(sum) if sum != tally.written_sum() => {
            wrong("the entries that were written are not those that stayed")
        }
        Some(_) => Ok(()),
    }
}

/// The outputs, opened: their footers are read back.
async fn opened(
    engine: &Arc<Engine>,
    job: &Job,
    keyspace: &KeyspaceInfo,
    result: &JobResult,
) -> std::result::Result<Arc<Levels>, Doubt> {
    let state = engine.manifest.state();
    // The new value objects, and those of the inputs to which outputs refer.
    let named = encoded::edits(&state, keyspace, job.inputs().map(|table| table.description()));
    let mut edits = named.map_err(Doubt::Unknown)?;
    let is_referred = |object: &TableDescription| {
        let refers = |table: &TableDescription| {
            table.referred().iter().any(|referred| referred.object == object.identity)
        };
        object.is_values() && tables(&result.outputs).any(refers)
    };
    edits.retain(|edit| match edit {
        Edit::TableAdded(table) => is_referred(table),
        _ => true,
    });
    edits.extend(result.outputs.iter().cloned().map(Edit::TableAdded));
    let levels = levels_of(engine.versions.tables(), job.keyspace, &edits)
        .map_err(|error| Doubt::Wrong(error.context("what a worker says that it wrote")))?;
    for table in levels.tables() {
        table.open().await.map_err(reading)?;
    }
    Ok(levels)
}

/// Merges a range of the job again, and compares.
async fn check_range(
    engine: &Arc<Engine>,
    job: &Arc<Job>,
    terms: &Terms,
    outputs: &Levels,
) -> std::result::Result<(), Doubt> {
    let range = some_range(engine, job).await.map_err(Doubt::Unknown)?;
    let terms = Terms { collected: BTreeSet::new(), ..terms.clone() };
    let moments = terms.moments.clone();
    let again = Run::again(Arc::<Engine>::clone(engine), job, terms, range.clone()).await;
    let again = again.map_err(|Failure { error, .. }| Doubt::Unknown(error))?;
    let mut sorted: Vec<_> = outputs.tables().cloned().collect();
    sorted.sort_by(|one, other| one.description().first_key.cmp(&other.description().first_key));
    let theirs = Again::read(sorted, (range.0.as_ref(), range.1.as_ref())).await;
    let theirs = theirs.map_err(|Failure { error, .. }| reading(error))?;
    match again.difference(&theirs, job, &moments) {
        Some(difference) => wrong(format!("a range merged again differs: {difference}")),
        None => Ok(()),
    }
}

/// A range of about a hundredth of the job, by chance: between keys of the index of one input. All
/// of a job that has no such keys.
async fn some_range(engine: &Engine, job: &Job) -> Result<Range> {
    let inputs: Vec<_> = job.inputs().collect();
    let draw = |below: usize| usize::try_from(engine.env.random_u64()).unwrap_or(usize::MAX) % below.max(1);
    let Some(input) = inputs.get(draw(inputs.len())) else { return Ok((None, None)) };
    let mut keys: Vec<Bytes> = input.sample_keys(Purpose::Compaction).await?;
    keys.sort_unstable();
    keys.dedup();
    let at = draw(keys.len() + 1);
    let start = at.checked_sub(1).and_then(|at| keys.get(at)).cloned();
    Ok((start, keys.get(at).cloned()))
}
