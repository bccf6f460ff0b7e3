//! Jobs that run on other machines: `job → bytes → a worker → bytes → checked → install`.
//!
//! - `encoded`: a job and all that it needs, as bytes.
//! - `worker`: the other side, which has no database: it reads the inputs, writes the outputs, and
//!   answers.
//! - `picture`: levels made of what a job or an answer names.
//! - `check`: what of an answer is believed.
//! - `void`: attempts that came to nothing, and what they may have written.
//!
//! Invariants:
//! 1. Nothing of an answer counts before it was checked; the writer alone installs, by the rules of
//!    a job of its own.
//! 2. An attempt is accepted once, of those that were begun for this job alone.
//! 3. Every output of an attempt has a name that follows from it, so that the writer finds what an
//!    attempt has left that came to nothing.

mod check;
mod encoded;
mod picture;
mod void;
mod worker;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::within;
use tombolo_format::compaction::{Attempt, JobAnswer, JobOutcome, JobResult, JobTrouble, decode_job_answer};
use tombolo_format::manifest::TableName;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

pub(super) use void::{sweep, sweep_later};
pub use worker::{CompactionRun, CompactionWorker};

use super::pick::Job;
use super::world::Terms;
use crate::engine::{Engine, KeyspaceInfo};
use crate::event::Event;
use crate::filter::Filtered;
use crate::options::CompactionPlace;
use crate::stalls::RUNS_SLOW;
use crate::workers::{Attempts, CompactionOffer, CompactionWorkers, Urgency};

/// How often one who waits for workers looks whether anybody wants the job still.
const LOOK: Duration = Duration::from_millis(250);

/// What a worker has made of a job, checked.
pub(super) struct Away {
    pub(super) result: Box<JobResult>,
    pub(super) attempt: Attempt,
    pub(super) attempts: Attempts,
}

impl Away {
    /// What the filter did, as a job here says it.
    pub(super) fn filtered(&self) -> Filtered {
        let [dropped, replaced, failed] = self.result.filtered;
        Filtered { dropped, replaced, failed, trouble: trouble(&self.result.filter_trouble) }
    }

    /// What the operator failed with.
    pub(super) fn operator_trouble(&self) -> Option<Error> {
        trouble(&self.result.operator_trouble)
    }
}

fn trouble(text: &str) -> Option<Error> {
    (!text.is_empty())
        .then(|| Error::new(ErrorKind::Unsupported, text.to_owned()).context("on a worker that compacts"))
}

/// Why a job is not done elsewhere.
struct Unhelped {
    error: Error,
    /// The answer was wrong, and this attempt gave it.
    refused: Option<u128>,
    /// Trying again elsewhere is of no use.
    is_final: bool,
}

impl From<Error> for Unhelped {
    fn from(error: Error) -> Unhelped {
        let is_final = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Invalid);
        Unhelped { error, refused: None, is_final }
    }
}

/// Has workers do a job, if that is wanted of the keyspace. `None`: it is to be done here.
///
/// # Errors
/// Why nobody did it, where it is not to be done here.
pub(super) async fn run(
    engine: &Arc<Engine>,
    job: &Arc<Job>,
    keyspace: &KeyspaceInfo,
    terms: &Terms,
) -> Result<Option<Away>> {
    let place = keyspace.options().compaction.unwrap_or(engine.options.load().compaction);
    // Workers know one store alone.
    let is_cold = job.tier.is_cold || job.inputs().any(|table| table.description().cold().is_some());
    if place == CompactionPlace::Local || is_cold {
        return Ok(None);
    }
    let workers = engine.workers.as_ref().map(|workers| Arc::clone(&workers.0));
    let unhelped = match offered(engine, workers.as_deref(), job, keyspace, terms).await {
        Ok(away) => {
            engine.counters.remote_compactions.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(away));
        }
        Err(unhelped) => unhelped,
    };
    if engine.is_stopping() {
        return Err(Error::new(ErrorKind::Closed, "the compaction was given up"));
    }
    let Unhelped { error, refused, is_final } = unhelped;
    let is_refused = refused.is_some();
    engine.counters.remote_failed.fetch_add(1, Ordering::Relaxed);
    if let (Some(attempt), Some(workers)) = (refused, &workers) {
        engine.counters.remote_refused.fetch_add(1, Ordering::Relaxed);
        workers.refused(attempt, &error);
    }
    // A wrong answer is no reason to ask the next worker for more of them.
    let is_done_here = place == CompactionPlace::RemoteOrLocal || is_refused;
    tracing::warn!(keyspace = keyspace.id, %error, is_refused, is_done_here, "a compaction for workers");
    let told = error.clone();
    engine.events.tell(|| Event::RemoteCompactionFailed {
        keyspace: keyspace.id,
        error: told,
        is_refused,
        is_done_here,
    });
    if is_done_here {
        engine.counters.remote_fallbacks.fetch_add(1, Ordering::Relaxed);
        return Ok(None);
    }
    let advice = "start a worker that has what the job needs (`tombolo serve compactor`), or set \
        compaction=remote_or_local";
    let kind = if is_final { error.kind() } else { ErrorKind::Retry };
    Err(Error::new(kind, format!("no worker did a compaction: {error}")).source(error).advice(advice))
}

async fn offered(
    engine: &Arc<Engine>,
    workers: Option<&dyn CompactionWorkers>,
    job: &Arc<Job>,
    keyspace: &KeyspaceInfo,
    terms: &Terms,
) -> std::result::Result<Away, Unhelped> {
    let workers = workers.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the database was opened without workers that compact")
            .advice("open it with Builder::compaction_workers, or set compaction=local")
    })?;
    let (bytes, needs, names_max) =
        encoded::encode(engine, workers.place().as_deref(), job, keyspace, terms)?;
    let offer = CompactionOffer::new(&engine.env, bytes, needs, urgency(engine, job));
    let answer = wait(engine, workers, &offer).await;
    let attempts = Attempts { all: offer.attempts(), names_max };
    let (answer, attempts) = match answer {
        Ok(answer) => (answer, attempts),
        Err(error) => {
            sweep_later(engine, attempts);
            return Err(error.into());
        }
    };
    match accepted(engine, job, keyspace, terms, &answer, &attempts).await {
        Ok((attempt, result)) => Ok(Away { result, attempt, attempts }),
        Err(unhelped) => {
            sweep_later(engine, attempts);
            Err(unhelped)
        }
    }
}

/// What an answer says, once it is believed.
async fn accepted(
    engine: &Arc<Engine>,
    job: &Arc<Job>,
    keyspace: &KeyspaceInfo,
    terms: &Terms,
    answer: &[u8],
    attempts: &Attempts,
) -> std::result::Result<(Attempt, Box<JobResult>), Unhelped> {
    let unread = |error| Error::format("the answer of a worker", 0, error);
    let JobAnswer { attempt, outcome } = decode_job_answer(answer).map_err(unread)?;
    if !attempts.all.contains(&attempt) && !is_enabled(Mutant::AnswerOfAnyAttempt) {
        let error =
            Error::new(ErrorKind::Corrupt, "a worker answers an attempt that was not begun for this job");
        return Err(Unhelped { error, refused: Some(attempt.random), is_final: false });
    }
    match outcome {
        JobOutcome::Failed(trouble, message) => {
            let kind = match trouble {
                JobTrouble::Unable => ErrorKind::Unsupported,
                JobTrouble::Damaged | JobTrouble::GivenUp | JobTrouble::Other => ErrorKind::Retry,
            };
            // A damaged input is found here, where it is set aside.
            let refused = (trouble == JobTrouble::Damaged).then_some(attempt.random);
            let error = Error::new(kind, format!("a worker could not do a compaction: {message}"));
            Err(Unhelped { error, refused, is_final: trouble == JobTrouble::Unable })
        }
        JobOutcome::Done(result) => {
            let checked = check::check(engine, job, keyspace, terms, &attempt, attempts.names_max, &result);
            match checked.await {
                Ok(()) => Ok((attempt, result)),
                Err(check::Doubt::Wrong(error)) => {
                    Err(Unhelped { error, refused: Some(attempt.random), is_final: false })
                }
                Err(check::Doubt::Unknown(error)) => Err(error.into()),
            }
        }
    }
}

/// Waits for an answer, as long as somebody wants it.
async fn wait(
    engine: &Arc<Engine>,
    workers: &dyn CompactionWorkers,
    offer: &CompactionOffer,
) -> Result<Bytes> {
    let mut answer = pin!(workers.run(offer.clone()));
    loop {
        if let Some(answer) = within(&engine.env, LOOK, answer.as_mut()).await {
            return answer;
        }
        if engine.is_stopping() {
            return Err(Error::new(ErrorKind::Closed, "the compaction was given up"));
        }
    }
}

fn urgency(engine: &Engine, job: &Job) -> Urgency {
    let view = engine.view_owned();
    let runs = view.version.levels(job.keyspace).map_or(0, |levels| levels.runs.len());
    Urgency {
        stall_percent: u32::try_from(runs * 100 / RUNS_SLOW).unwrap_or(u32::MAX),
        debt_bytes: super::bytes_pending(engine, &view.version),
        bytes: job.bytes(),
        database: engine.context.database,
    }
}

/// The names that an attempt may have taken.
fn names(attempt: &Attempt, names_max: u32) -> BTreeSet<TableName> {
    (0..names_max).map(|number| attempt.name(number)).collect()
}
