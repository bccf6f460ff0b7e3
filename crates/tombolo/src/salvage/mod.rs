//! Salvage: what can be had of a database of which objects are gone or damaged, as a database of
//! its own, and a report of what cannot.
//!
//! `states that the manifest and checkpoints still tell of → the newest whose tables are all sound
//! → on in its logs, as far as they are whole
//!  → a new database`. Nothing of the damaged one is changed, and nothing of it is claimed.
//!
//! The last consistent point is a state that the database once showed: every write up to a sequence
//! number, and none after. Where there is none, or more is wanted, the newest state is taken
//! without the blocks of its tables that are damaged: then the ranges of those blocks may show
//! older values, values that were deleted, or nothing, and all other keys are right. The sound part
//! of a damaged table becomes a table of its own.
//!
//! Of a database with streams only a checkpoint is of one moment: the newest of those is taken, and
//! nothing of its logs.
//!
//! Invariants:
//! 1. Nothing is left out, and no older state taken, that the report does not tell.
//! 2. Of logs a prefix is taken, in their order: nothing behind the first entry that cannot be
//!    read.
//! 3. The new database is empty until one commit names its tables and logs together.

mod history;
mod logs;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;

use tombolo_env::Env;
use tombolo_format::manifest::{Edit, LogRole, TableDescription};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, LogContext, LogStore, ObjectStore, Purpose, Result};

use crate::budget::{LogBooks, MemoryBudget};
use crate::checkpoint::{edits, last_sequence};
use crate::manifest::driver::io::Io;
use crate::manifest::{LogState, Manifest, State, names};
use crate::options::{KeyspaceOptions, Options};
use crate::recovery::{claim_empty, copy_tables, refused};
use crate::table::Part;
use history::{Candidate, History, Whence};
use logs::Found;
use tables::{Rest, Tables};

/// The loss of a database with streams.
const AFTER_CHECKPOINT: &str = "what came after the checkpoint is not taken: the database has streams, and \
    of those only a checkpoint is of one moment";

/// The state to take of a damaged database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SalvageMode {
    /// The newest state that is whole: what the database showed once, and nothing later.
    #[default]
    Consistent,
    /// The newest state of all, without the damaged blocks of its tables: keys in the ranges of
    /// those may be missing, or show overwritten or deleted values.
    WithHoles,
}

/// Something damaged or gone, and the loss with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The trouble, with the object's name.
    pub what: String,
    /// The keyspace of a damaged table.
    pub keyspace: Option<String>,
    /// All keys that are lost lie in this range, bounds included: of a damaged table, or of blocks
    /// of it that follow each other.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Entries that are lost; the first of several losses of a table says it for all.
    pub entries: u64,
    /// Bytes that are lost, as far as the table still tells.
    pub bytes: u64,
}

/// The salvaged data, or what would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The checkpoint that it comes from; else it comes from the manifest.
    pub checkpoint: Option<String>,
    /// The slot of the manifest whose state it is.
    pub slot: u64,
    /// The newest slot of the manifest that has a record, readable or not.
    pub newest_slot: u64,
    /// The last sequence number in it: all writes up to it are there, but for the ranges that are
    /// told as lost.
    pub last_sequence: u64,
    /// The last sequence number that is known to have been given out.
    pub newest_sequence: u64,
    /// Tables in it, those made of the sound blocks of damaged ones included.
    pub tables: u64,
    /// Their bytes; of the latter those of the sound blocks.
    pub table_bytes: u64,
    /// Entries of logs in it.
    pub log_entries: u64,
    /// The damaged or missing parts. With [`SalvageMode::Consistent`] no table among them is in the
    /// state that was taken.
    pub losses: Vec<Loss>,
}

impl SalvageReport {
    /// Whether it holds everything that the database held, as far as anybody can tell.
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty() && self.last_sequence == self.newest_sequence
    }
}

/// What to salvage.
pub(crate) struct SalvageRequest {
    pub(crate) env: Env,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) options: Options,
    pub(crate) mode: SalvageMode,
    /// Where to; `None` only looks.
    pub(crate) target: Option<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)>,
}

/// Looks at the remains, and makes a database of them if asked.
///
/// # Errors
/// `NotFound` when there is no database; `Corrupt` when no state is left that is whole, or of which
/// any table or record can be read; `AlreadyExists` when the target holds a database; those of the
/// stores.
pub(crate) async fn salvage(request: SalvageRequest) -> Result<SalvageReport> {
    let SalvageRequest { env, objects, log_store, options, mode, target } = request;
    let io =
        Io { env: env.clone(), store: Arc::clone(&objects), epoch: Epoch::NONE, purpose: Purpose::Verify };
    let mut history = history::load(&io).await?;
    let moments = history.keep_moments()?;
    let budget = MemoryBudget::private(options.memory_bytes)?;
    let mut tables = Tables::new(&objects, &budget, history.incarnation);
    let Choice { candidate: chosen, mut report, rests } = choose(&history, &mut tables, mode).await?;
    let context = context(&env, &objects, &history, chosen, &budget);
    // Logs go on from a state without streams if no newer one has any.
    let is_newer = |newer: usize| history.candidates.iter().take(newer).any(|one| std::ptr::eq(one, chosen));
    let passed_over = moments.filter(|(_, newer)| !is_newer(*newer)).map(|(newest, _)| newest);
    let found = match passed_over {
        None => {
            let states = (&*chosen.state, history.newest_state());
            logs::survey(&context, &*log_store, states, &budget, options.memtable_bytes()).await?
        }
        Some(newest) => {
            report.newest_sequence = report.newest_sequence.max(newest.0);
            report.losses.push(Loss::told(AFTER_CHECKPOINT.to_owned()));
            logs::Found::none(last_sequence(&chosen.state))
        }
    };
    report.log_entries = found.entries();
    report.last_sequence = found.last_sequence.0;
    report.newest_sequence = report.newest_sequence.max(report.last_sequence);
    report.losses.extend(found.stopped.iter().map(Loss::from));
    report.losses.extend(applications(&io, &history, &chosen.state).await?);
    if let Some((target, target_log)) = target {
        let edits = sound_edits(&chosen.state, &tables, &rests);
        let source = Source {
            env: &env,
            log_store: &*log_store,
            context: &context,
            budget: &budget,
            tables: &tables,
            rests: &rests,
        };
        source.write(edits, &found, &target, &*target_log).await?;
    }
    Ok(report)
}

/// What applications keep beside the database, which is not taken.
async fn applications(io: &Io, history: &History, state: &State) -> Result<Vec<Loss>> {
    let holds = |log: &LogState| log.sealed.is_none_or(|sealed| sealed > log.replay_point);
    let logs = state.logs().iter().filter(|(_, log)| log.role == LogRole::Application && holds(log));
    let mut losses: Vec<Loss> = logs
        .map(|(id, _)| {
            Loss::told(format!("log {} of the application, of epoch {}, is not taken", id.lane - 1, id.epoch))
        })
        .collect();
    let objects = io.list_all(&names::application_prefix(history.incarnation)).await?.len();
    if objects > 0 {
        losses.push(Loss::told(format!("{objects} objects of the application are not taken")));
    }
    Ok(losses)
}

/// The state to take.
struct Choice<'a> {
    candidate: &'a Candidate,
    report: SalvageReport,
    /// The rest of its damaged tables.
    rests: Vec<Rest>,
}

/// The state to take, and the loss of others for it.
async fn choose<'a>(history: &'a History, tables: &mut Tables, mode: SalvageMode) -> Result<Choice<'a>> {
    let mut losses: Vec<Loss> = history.damage.iter().map(Loss::from).collect();
    let newest = history.candidates.first();
    for candidate in &history.candidates {
        let damaged = tables.damaged(&candidate.state).await?;
        let is_newest = newest.is_some_and(|newest| Arc::ptr_eq(&newest.state, &candidate.state));
        let mut rests = Vec::new();
        for (table, error) in damaged.iter().filter(|_| is_newest) {
            let keyspace = candidate.state.keyspace(table.keyspace);
            if table.is_values() {
                losses.push(loss_of_values(table, keyspace.map(|keyspace| keyspace.name.to_string()), error));
                continue;
            }
            let parts = if mode == SalvageMode::WithHoles { tables.parts(table).await? } else { None };
            let rest = parts.zip(keyspace).map(|(parts, keyspace)| Rest {
                description: Arc::clone(table),
                // What a newer version set matters to a table's size and speed only.
                options: KeyspaceOptions::from_manifest(&keyspace.options).unwrap_or_default(),
                parts,
            });
            losses.extend(losses_of(
                table,
                keyspace.map(|keyspace| keyspace.name.to_string()),
                error,
                rest.as_ref(),
            ));
            rests.extend(rest);
        }
        if damaged.is_empty()
            || mode == SalvageMode::WithHoles
            || is_enabled(Mutant::SalvageTakesDamagedState)
        {
            let gone = damaged.iter().map(|(table, _)| table.name).collect::<Vec<_>>();
            let kept = || {
                candidate
                    .state
                    .keyspaces()
                    .flat_map(|keyspace| keyspace.tables())
                    .filter(|table| !gone.contains(&table.name))
            };
            let report = SalvageReport {
                checkpoint: match &candidate.whence {
                    Whence::Manifest => None,
                    Whence::Checkpoint(name) => Some(name.clone()),
                },
                slot: candidate.state.slot(),
                newest_slot: history.newest_slot,
                newest_sequence: history
                    .candidates
                    .iter()
                    .map(|candidate| last_sequence(&candidate.state).0)
                    .max()
                    .unwrap_or(0),
                tables: kept().count() as u64 + rests.len() as u64,
                table_bytes: kept().map(|table| table.length).sum::<u64>()
                    + rests.iter().map(Rest::bytes).sum::<u64>(),
                losses,
                ..SalvageReport::default()
            };
            return Ok(Choice { candidate, report, rests });
        }
    }
    let told = losses.iter().map(|loss| loss.what.clone()).collect::<Vec<_>>().join("; ");
    let error = Error::new(ErrorKind::Corrupt, "no state of the database is left that is whole").found(told);
    Err(error.advice(match newest {
        Some(_) => "salvage it with holes: everything but the ranges of what is damaged",
        None => "restore the manifest's objects from a copy",
    }))
}

/// The loss with a damaged table: its damaged blocks, when there is a rest, else all of it.
fn losses_of(
    table: &TableDescription,
    keyspace: Option<String>,
    error: &Error,
    rest: Option<&Rest>,
) -> Vec<Loss> {
    let Some(rest) = rest else {
        let keys = Some((table.first_key.to_vec(), table.last_key.to_vec()));
        return vec![Loss {
            keyspace,
            keys,
            entries: table.entries,
            bytes: table.length,
            ..Loss::from(error)
        }];
    };
    let saved = format!("{} of its {} entries are saved", rest.entries(), table.entries);
    let lost = table.entries.saturating_sub(rest.entries());
    let mut losses: Vec<Loss> = Vec::new();
    for part in &rest.parts {
        let Part::Lost { first, last, bytes, error } = part else { continue };
        losses.push(Loss {
            what: format!("{error}; {saved}"),
            keyspace: keyspace.clone(),
            keys: Some((first.to_vec(), last.to_vec())),
            entries: if losses.is_empty() { lost } else { 0 },
            bytes: *bytes,
        });
    }
    if losses.is_empty() {
        // A filter, or a count: no entry.
        losses.push(Loss {
            what: format!("{error}; {saved}"),
            keyspace,
            keys: None,
            entries: lost,
            bytes: 0,
        });
    }
    losses
}

/// The loss with a damaged value object: which of its values are lost is told where they are read.
fn loss_of_values(object: &TableDescription, keyspace: Option<String>, error: &Error) -> Loss {
    Loss {
        what: format!("{error}; of its {} values, those that are lost are read as damaged", object.entries),
        keyspace,
        keys: Some((object.first_key.to_vec(), object.last_key.to_vec())),
        entries: 0,
        bytes: 0,
    }
}

/// What names the state in a new database, without the tables that are damaged, and without logs.
/// Damaged value objects stay: what refers to them says so, and no older value comes back.
fn sound_edits(state: &State, tables: &Tables, rests: &[Rest]) -> Vec<Edit> {
    let is_sound = |table: &TableDescription| !tables.is_damaged(table.name);
    let sound = state.keyspaces().flat_map(|keyspace| keyspace.tables()).filter(|table| is_sound(table));
    let kept = sound.chain(rests.iter().map(|rest| &rest.description));
    let referred: BTreeSet<u64> =
        kept.flat_map(|table| table.referred()).map(|referred| referred.object).collect();
    let is_taken = |edit: &Edit| match edit {
        Edit::TableAdded(object) if object.is_values() && is_enabled(Mutant::SalvageForgetsDamagedValues) => {
            referred.contains(&object.identity) && is_sound(object)
        }
        Edit::TableAdded(object) if object.is_values() => referred.contains(&object.identity),
        Edit::TableAdded(table) => is_sound(table),
        _ => true,
    };
    edits(state).into_iter().filter(is_taken).collect()
}

/// What the source's logs are read with: without a claim.
fn context(
    env: &Env,
    objects: &Arc<dyn ObjectStore>,
    history: &History,
    chosen: &Candidate,
    budget: &Arc<MemoryBudget>,
) -> LogContext {
    let manifest =
        Manifest::fixed(env, Arc::clone(objects), history.incarnation, Arc::clone(&chosen.state), refused());
    LogContext {
        epoch: Epoch::NONE,
        ..manifest.log_context(Arc::new(manifest.clone()), Arc::new(LogBooks::new(budget)))
    }
}

/// A damaged database, as far as it can be read.
struct Source<'a> {
    env: &'a Env,
    log_store: &'a dyn LogStore,
    context: &'a LogContext,
    budget: &'a Arc<MemoryBudget>,
    tables: &'a Tables,
    /// The rest of damaged tables.
    rests: &'a [Rest],
}

impl Source<'_> {
    /// Makes a database of it. Its logs are copied entry by entry, so that opening replays them as
    /// it would have here.
    async fn write(
        &self,
        edits: Vec<Edit>,
        found: &Found,
        target: &Arc<dyn ObjectStore>,
        target_log: &dyn LogStore,
    ) -> Result<()> {
        let manifest = claim_empty(self.env, target, target_log).await?;
        let written = self.write_claimed(edits, found, target, target_log, &manifest).await;
        manifest.leave().await;
        written.map_err(|error| error.context("writing what was salvaged"))
    }

    async fn write_claimed(
        &self,
        edits: Vec<Edit>,
        found: &Found,
        target: &Arc<dyn ObjectStore>,
        target_log: &dyn LogStore,
        manifest: &Manifest,
    ) -> Result<()> {
        let is_damaged = |name| self.tables.is_damaged(name);
        let mut edits = copy_tables(self.tables.places(), edits, manifest, target, &is_damaged).await?;
        for rest in self.rests {
            edits.extend(self.tables.rewrite(rest, self.env, manifest, target).await?.map(Edit::TableAdded));
        }
        edits.extend(
            logs::copy(self.context, self.log_store, found, manifest, target_log, self.budget).await?,
        );
        manifest.committed_in_time(edits).await.map(drop)
    }
}

impl Loss {
    /// One of which there is no more to say.
    fn told(what: String) -> Loss {
        Loss { what, keyspace: None, keys: None, entries: 0, bytes: 0 }
    }
}

impl From<&Error> for Loss {
    fn from(error: &Error) -> Loss {
        Loss::told(error.to_string())
    }
}
