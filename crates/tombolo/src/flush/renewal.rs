//! Another log in the place of one that has ended: the last step of what [`crate::engine::MainLog`]
//! says.
//!
//! Runs when everything of the ended log is in tables, and the record of the last of them has
//! un-named it. Tried again with pauses for as long as the store or the log's place refuses; writes
//! wait meanwhile, bounded as while they wait for room.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_format::manifest::Edit;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogId, LogOffset, Result};

use super::{FIRST_PAUSE, LAST_PAUSE, Retries, sleep};
use crate::engine::{Background, Engine, MainLog, Store, Work};
use crate::manifest::LogState;
use crate::write;

/// A log that ends sooner than this is followed by another only after a pause.
const SOON: Duration = Duration::from_secs(60);

/// The memory from one log to the next.
#[derive(Debug)]
pub(super) struct Renewal {
    /// When the log that is in use began.
    began: Option<Instant>,
    pause: Duration,
}

impl Default for Renewal {
    fn default() -> Renewal {
        Renewal { began: None, pause: FIRST_PAUSE }
    }
}

/// Puts another log in the place of the one that has ended.
///
/// # Errors
/// When the handle has stopped or is finished.
pub(super) async fn run(engine: &Arc<Engine>, renewal: &mut Renewal) -> Result<()> {
    renewal.rest(engine).await?;
    let mut retries = Retries::default();
    loop {
        let attempt = match begin(engine).await {
            Ok(log) => {
                install(engine, &log);
                renewal.began = Some(engine.env.now());
                Ok(())
            }
            Err(error) => Err(passing(engine, error)),
        };
        if retries.after(engine, Work::LOG, attempt).await? {
            break;
        }
    }
    engine.progress.raise();
    write::advance_line(engine);
    Ok(())
}

impl Renewal {
    /// Pauses before another log if the last one ended soon: what a place takes and loses again is
    /// not to be made as fast as it goes.
    ///
    /// # Errors
    /// `Closed` when the database stops meanwhile.
    async fn rest(&mut self, background: &Background) -> Result<()> {
        let is_soon = self.began.is_some_and(|began| background.env.now().since(began) < SOON);
        self.pause = if is_soon { (self.pause * 2).min(LAST_PAUSE) } else { FIRST_PAUSE };
        if is_soon {
            // Subscribed before it looks: a stop in between is not missed.
            let stop = background.work.subscribe();
            if background.is_stopping() || !sleep(background, self.pause, Work::LOG, stop).await {
                return Err(Error::new(ErrorKind::Closed, "the database stopped before another log stood"));
            }
        }
        Ok(())
    }
}

/// What an attempt failed with: only what the manifest says is of unknown outcome for ever.
fn passing(store: &Store, error: Error) -> Error {
    let is_passing = matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Closed | ErrorKind::Bug)
        && store.manifest.error().is_none();
    if is_passing {
        Error::new(ErrorKind::Retry, format!("no other log stands yet: {error}")).source(error)
    } else {
        error
    }
}

/// Begins another lane, which the manifest names when this returns.
async fn begin(store: &Store) -> Result<Arc<MainLog>> {
    end_attempts(store).await?;
    let lane = store.lanes.next()?;
    store.manifest.assign_lanes([(lane, store.log_role())]);
    let mut context = store.context.clone();
    if is_enabled(Mutant::RenewedLogServedBeforeNamed) {
        context.chain = store.manifest.without_waiting();
    }
    let log = store.log_store.open_lane(&context, lane).await?;
    Ok(MainLog::new(log, LogId { epoch: store.context.epoch, lane }))
}

/// Un-names lanes of attempts that failed after all: nothing was ever appended to them.
async fn end_attempts(store: &Store) -> Result<()> {
    let state = store.manifest.state();
    let mine =
        |(id, log): &(&LogId, &LogState)| id.epoch == store.context.epoch && log.role == store.log_role();
    let ended: Vec<LogId> = state.logs().iter().filter(mine).map(|(id, _)| *id).collect();
    if ended.is_empty() || is_enabled(Mutant::EndedLogStaysNamed) {
        return Ok(());
    }
    ended.iter().for_each(|id| store.manifest.give_up_log(*id));
    let unnamed = ended.iter().map(|id| Edit::LogUnnamed { epoch: id.epoch.0, lane: id.lane });
    store.manifest.committed(unnamed.collect()).await.map(drop)
}

/// Lets commits go on, with the log that is named now.
fn install(engine: &Engine, log: &Arc<MainLog>) {
    let mut commit = engine.stream.commit.lock();
    commit.log = Arc::clone(log);
    commit.log_end = LogOffset::ZERO;
    // What came before is in tables: no entry covers it.
    commit.logged = commit.last;
    commit.log_bytes = 0;
    commit.is_log_given_up = false;
    engine.replace_main_log(log);
}
