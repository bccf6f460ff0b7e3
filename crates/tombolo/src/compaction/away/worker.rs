//! The side of a worker: runs a job that came as bytes, and answers in bytes.
//!
//! It needs a way to open the store that a job names, memory, and the operators, filters and
//! collectors that jobs need. It opens no manifest, lists nothing and deletes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::compaction::{
    Attempt, CompactionJob, JobAnswer, JobInput, JobOutcome, JobResult, JobTrouble, Reach, Role, attempt_of,
    decode_job, encode_job_answer,
};
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_format::property::{PROPERTY_RANGE_DELETES, Property, PropertyList, RangeDeletes};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, ObjectStore, Registry, Result, Uri};

use super::super::job::Run;
use super::super::merge::Failure;
use super::super::pick::{Job, Means, Reason, Tier};
use super::super::world::{JobWorld, Terms};
use super::encoded::{collector_need, filter_need, operator_need, version_need};
use super::picture::levels_of;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::collector::{Collector, Collectors};
use crate::filter::{CompactionFilter, FilterName, Filters};
use crate::flash::FlashUse;
use crate::flush::OutputWorld;
use crate::manifest::Places;
use crate::operator::{Operator, OperatorName, Operators};
use crate::options::KeyspaceOptions;
use crate::pace::{BackgroundRate, Paces};
use crate::resolve::{Judge, Moments};
use crate::version::{AttemptNames, LeftBehind, Levels, Naming, TableHandle, Tables};

/// Stores that are kept open.
const STORES_MAX: usize = 64;

/// Runs compactions of databases that it does not have open: see the module's documentation.
/// `tombolo-compactor` serves one to writers over a network.
#[derive(Clone)]
pub struct CompactionWorker {
    env: Env,
    registry: Registry,
    budget: Arc<MemoryBudget>,
    rate: Option<Arc<BackgroundRate>>,
    operators: Operators,
    filters: Filters,
    collectors: Arc<Collectors>,
    stores: Arc<Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>>,
}

impl fmt::Debug for CompactionWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CompactionWorker")
            .field("abilities", &self.abilities())
            .finish_non_exhaustive()
    }
}

/// A job that runs: who holds it sees how far it is, and may end it.
#[derive(Clone, Debug, Default)]
pub struct CompactionRun(Arc<Running>);

#[derive(Debug, Default)]
struct Running {
    is_given_up: AtomicBool,
    bytes: AtomicU64,
}

impl CompactionRun {
    /// Nobody wants it any more: it ends soon.
    pub fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::Release);
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

impl CompactionWorker {
    /// One that opens stores through `registry`, within a memory budget.
    pub fn new(env: &Env, registry: Registry, budget: &Arc<MemoryBudget>) -> CompactionWorker {
        CompactionWorker {
            env: env.clone(),
            registry,
            budget: Arc::clone(budget),
            rate: None,
            operators: Operators::default(),
            filters: Filters::default(),
            collectors: Arc::default(),
            stores: Arc::default(),
        }
    }

    /// With a merge operator: as [`crate::Builder::operator`].
    #[must_use]
    pub fn operator(mut self, name: OperatorName, operator: Operator) -> CompactionWorker {
        self.operators.insert(name, operator);
        self
    }

    /// With a compaction filter: as [`crate::Builder::compaction_filter`].
    #[must_use]
    pub fn compaction_filter(mut self, name: FilterName, filter: impl CompactionFilter) -> CompactionWorker {
        self.filters.insert(name, Arc::new(filter));
        self
    }

    /// With a collector: as [`crate::Builder::collector`].
    #[must_use]
    pub fn collector(mut self, name: &str, collector: Arc<dyn Collector>) -> CompactionWorker {
        Arc::make_mut(&mut self.collectors).add(name, collector);
        self
    }

    /// With a bound on what all its jobs move.
    #[must_use]
    pub fn background_rate(mut self, rate: &Arc<BackgroundRate>) -> CompactionWorker {
        self.rate = Some(Arc::clone(rate));
        self
    }

    /// With a store at hand, for jobs that name this URI.
    #[must_use]
    pub fn store(self, uri: &str, store: Arc<dyn ObjectStore>) -> CompactionWorker {
        self.stores.lock().insert(uri.to_owned(), store);
        self
    }

    /// What it has, as jobs say what they need: its version, operators, filters, collectors.
    pub fn abilities(&self) -> Vec<String> {
        let mut abilities = vec![version_need()];
        abilities.extend(self.operators.names().map(operator_need));
        abilities.extend(self.filters.names().map(filter_need));
        abilities.extend(self.collectors.names().map(collector_need));
        abilities
    }

    /// Runs a job, and gives the answer for its writer.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for bytes that are no job of this version: there is nobody to
    /// answer.
    pub async fn run(&self, job: &[u8], running: &CompactionRun) -> Result<Bytes> {
        let unread = |error| Error::format("a compaction job", 0, error);
        let attempt = attempt_of(job).map_err(unread)?;
        let outcome = match decode_job(job).map_err(unread) {
            Ok(job) => self.run_job(job, running).await.unwrap_or_else(|failure| failed(&failure)),
            Err(error) => JobOutcome::Failed(JobTrouble::Unable, error.to_string()),
        };
        let answer = encode_job_answer(&JobAnswer { attempt, outcome });
        let too_large = |error| {
            let outcome = JobOutcome::Failed(JobTrouble::Unable, format!("the answer is too large: {error}"));
            encode_job_answer(&JobAnswer { attempt, outcome })
        };
        let answer = answer.or_else(too_large).map_err(|error| Error::format("an answer", 0, error))?;
        Ok(answer.into())
    }

    async fn run_job(
        &self,
        job: CompactionJob,
        running: &CompactionRun,
    ) -> std::result::Result<JobOutcome, Failure> {
        let abilities = self.abilities();
        if let Some(missing) = job.needs.iter().find(|need| !abilities.contains(need))
            && !is_enabled(Mutant::WorkerIgnoresNeeds)
        {
            let message = format!("the worker lacks what the job needs: {missing}");
            return Err(Error::new(ErrorKind::Unsupported, message).into());
        }
        let names = Arc::new(AttemptNames::new(job.attempt));
        let world = Arc::new(World {
            tables: self.tables(&job, &names)?,
            names: Arc::clone(&names),
            names_max: job.names_max,
            pace: Paces::new(0, self.rate.clone()),
            left_behind: LeftBehind::default(),
            running: running.clone(),
        });
        let terms = self.terms(&job)?;
        let picked = Arc::new(picked(&world.tables, &job, terms.options.ingest_behind)?);
        let run = Run::new(Arc::clone(&world) as Arc<dyn JobWorld>, &picked, terms);
        run.run().await?;
        if names.taken() > job.names_max {
            let message = format!("the outputs took more than {} names", job.names_max);
            return Err(Error::new(ErrorKind::Unsupported, message).into());
        }
        if let Some((object, error)) = run.take_unreadable().into_iter().next() {
            // The references stay, and reads tell of them: the writer is to know which.
            return Err(Failure { error, table: Some(object) });
        }
        let filtered = run.take_filtered();
        let said = |error: Option<Error>| error.map(|error| error.to_string()).unwrap_or_default();
        Ok(JobOutcome::Done(Box::new(JobResult {
            tally: run.tally(),
            filtered: [filtered.dropped, filtered.replaced, filtered.failed],
            misused: run.misused(),
            names: names.taken(),
            filter_trouble: said(filtered.trouble),
            operator_trouble: said(run.take_trouble()),
            older: run.take_older(),
            outputs: run.take_outputs(),
        })))
    }

    /// The store that a job names.
    fn store_of(&self, place: &str) -> Result<Arc<dyn ObjectStore>> {
        if let Some(store) = self.stores.lock().get(place) {
            return Ok(Arc::clone(store));
        }
        let store = self.registry.open_object_store(&self.env, &Uri::parse(place)?)?;
        let mut stores = self.stores.lock();
        if stores.len() < STORES_MAX {
            stores.insert(place.to_owned(), Arc::clone(&store));
        }
        Ok(store)
    }

    fn tables(&self, job: &CompactionJob, names: &Arc<AttemptNames>) -> Result<Tables> {
        let objects = self.store_of(&job.place)?;
        let Attempt { incarnation, epoch, .. } = job.attempt;
        let incarnation = Incarnation(incarnation);
        Ok(Tables {
            env: self.env.clone(),
            cache: BlockCache::of(&self.budget),
            flash: FlashUse::None,
            incarnation,
            epoch: Epoch(epoch),
            places: Arc::new(Mutex::new(Places::own(&objects, incarnation))),
            objects,
            silence: Arc::default(),
            naming: Naming::Attempt(Arc::clone(names)),
            left_behind: Arc::default(),
            cold: None,
            collectors: Arc::clone(&self.collectors),
        })
    }

    fn terms(&self, job: &CompactionJob) -> Result<Terms> {
        let created = job.edits.iter().find_map(|edit| match edit {
            Edit::KeyspaceCreated { id, options, .. } if *id == job.keyspace => Some(options),
            _ => None,
        });
        let created = created
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "a job does not say what its keyspace is"))?;
        let mut options = KeyspaceOptions::from_manifest(created)?;
        options.block_bytes = Some(job.block_bytes.clamp(1 << 10, 1 << 20));
        let filter = options.compaction_filter.as_ref().map(|name| Arc::new(self.filters.named(name)));
        Ok(Terms {
            moments: Moments { snapshots: job.snapshots.clone(), settled_ms: job.settled_ms },
            judge: Judge {
                operator: options.operator.as_ref().map(|name| self.operators.named(name)),
                ..Judge::default()
            },
            filter: filter.filter(|filter| filter.is_there()),
            time_ms: job.time_ms,
            options: Arc::new(options),
            table_bytes: 0,
            collected: job.collected.iter().copied().collect(),
        })
    }
}

/// What a failure is to the writer.
fn failed(failure: &Failure) -> JobOutcome {
    let trouble = match (failure.error.kind(), failure.table) {
        (ErrorKind::Corrupt, Some(_)) => JobTrouble::Damaged,
        (ErrorKind::Unsupported | ErrorKind::Invalid, _) => JobTrouble::Unable,
        (ErrorKind::Closed, _) => JobTrouble::GivenUp,
        _ => JobTrouble::Other,
    };
    JobOutcome::Failed(trouble, failure.error.to_string())
}

/// The world of a worker's job.
struct World {
    tables: Tables,
    names: Arc<AttemptNames>,
    names_max: u32,
    pace: Paces,
    left_behind: LeftBehind,
    running: CompactionRun,
}

impl OutputWorld for World {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn fresh_name(&self) -> TableName {
        self.names.next()
    }

    fn pace(&self) -> &Paces {
        &self.pace
    }

    fn left_behind(&self) -> &LeftBehind {
        &self.left_behind
    }

    fn note_moved(&self, bytes: u64) {
        self.running.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl JobWorld for World {
    fn is_given_up(&self) -> bool {
        self.running.0.is_given_up.load(Ordering::Acquire) || self.names.taken() > self.names_max
    }
}

/// A table of which the keys count alone.
fn described(job: &CompactionJob, at: usize, other: &Reach) -> TableDescription {
    let ranges = RangeDeletes { count: 1, bytes: 0, ends_before_last: true }.encode();
    let ranges = Property { id: PROPERTY_RANGE_DELETES, is_critical: true, value: &ranges };
    TableDescription {
        name: TableName { epoch: job.attempt.epoch, random: at as u64 },
        offset: 0,
        length: other.length,
        identity: at as u64,
        keyspace: job.keyspace,
        level: other.level,
        first_key: other.first_key.clone(),
        last_key: other.last_key.clone(),
        first_sequence: SequenceNumber(at as u64),
        last_sequence: SequenceNumber(at as u64),
        entries: 1,
        deletes: 0,
        tail_bytes: 0,
        oldest_unix_seconds: 0,
        features: if other.ends_before_last { EntryKind::RangeDelete.feature() } else { 0 },
        properties: PropertyList::of(other.ends_before_last.then_some(ranges)),
        source: None,
    }
}

/// The job, with handles of its tables.
fn picked(tables: &Tables, job: &CompactionJob, keeps_last: bool) -> Result<Job> {
    let levels = levels_of(tables, job.keyspace, &job.edits)?;
    let by_name: BTreeMap<TableName, &Arc<TableHandle>> =
        levels.tables().map(|table| (table.description().name, table)).collect();
    let found = |input: &JobInput| {
        let table = by_name.get(&input.name).map(|table| Arc::clone(table));
        table.ok_or_else(|| Error::new(ErrorKind::Invalid, "a job does not describe one of its inputs"))
    };
    let of = |role: Role| job.inputs.iter().filter(move |input| input.role == role);
    let mut passed: Vec<(u8, Vec<Arc<TableHandle>>)> = Vec::new();
    for input in of(Role::Passed) {
        match passed.last_mut().filter(|(level, _)| *level == input.level) {
            Some((_, tables)) => tables.push(found(input)?),
            None => passed.push((input.level, vec![found(input)?])),
        }
    }
    let others = others(tables, job)?;
    let deeper = others.sorted.iter().map(|(_, run)| Arc::clone(run)).collect();
    Ok(Job {
        keyspace: job.keyspace,
        reason: if job.is_asked { Reason::Asked } else { Reason::Size },
        from: job.from,
        upper: of(Role::Upper).map(found).collect::<Result<_>>()?,
        passed,
        to: job.to,
        lower: of(Role::Lower).map(found).collect::<Result<_>>()?,
        means: Means::Merge,
        table_bytes: job.output_bytes,
        tier: Tier::default(),
        older_runs: others.runs.clone(),
        deeper,
        keeps_last,
    })
}

/// Levels of what a job does not merge.
fn others(tables: &Tables, job: &CompactionJob) -> Result<Arc<Levels>> {
    let created = job.edits.iter().filter(|edit| matches!(edit, Edit::KeyspaceCreated { .. })).cloned();
    let table = |(at, other)| Edit::TableAdded(described(job, at, other));
    let edits: Vec<_> = created.chain(job.others.iter().enumerate().map(table)).collect();
    levels_of(tables, job.keyspace, &edits)
}
