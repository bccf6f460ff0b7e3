//! The commit of a transaction: `check in the commit section → else check outside → again`.
//!
//! 1. In the commit section memory is asked whether anything that the transaction rests on was
//!    written since its snapshot. Where nothing was, its batch is committed before the section is
//!    left.
//! 2. Where memory cannot tell, or looking would keep writers waiting, the section is left and
//!    tables are asked, up to a number that has been given out. The next stay asks for
//!    newer versions only. After a bounded number of rounds the commit ends with
//!    `Conflict`.
//!
//! Invariants:
//! 1. Between the check and the commit nobody else commits.
//! 2. The transaction's snapshot stays open until the check is over: see [`crate::read`].
//! 3. A number up to which something was checked outside is one at which a snapshot was opened
//!    before the view was loaded, so that the view holds all up to it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{Completer, completion};
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::conditions::Registered;
use super::content::{Content, Prepared};
use super::line::enter_line;
use super::{
    acknowledge, acknowledge_with, check_in_flight, check_line, commit_locked, finish_checked, no_log,
    serve_commit_queue, so_far, stands_in_line,
};
use crate::deadline::Limit;
use crate::engine::{Commit, Committed, Engine, InLine};
use crate::locks::Span;
use crate::op::Op;
use crate::options::Durability;
use crate::read::{self, Changed, Since, Touched};

/// How often tables are asked before the commit ends with `Conflict`.
const ROUNDS_MAX: u32 = 16;
/// Most entries of ranges that are looked at in one stay in the commit section: about 100 µs.
const STEPS_MAX: usize = 1024;
/// In the last round: then writers wait, so that the transaction ends.
const LAST_STEPS_MAX: usize = 1 << 20;

/// What a transaction is told once its fate is known; it gives back its locks then.
pub(crate) type Told = Box<dyn FnOnce(&Result<()>) + Send + Sync>;

/// A transaction that is to be committed.
pub(crate) struct Transactional {
    pub(crate) prepared: Prepared,
    /// What must be as it was at `seen`.
    pub(crate) rests_on: Vec<Touched>,
    pub(crate) seen: SequenceNumber,
    pub(crate) durability: Durability,
    /// Called once it is committed or refused, before it is durable.
    pub(crate) ended: Told,
    /// What it holds from its commit on, if it is prepared by it, and its id.
    pub(crate) prepares: Option<(Vec<Span>, Bytes)>,
}

impl fmt::Debug for Transactional {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transactional")
            .field("rests_on", &self.rests_on.len())
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// What the commit section said.
#[derive(Debug)]
enum Verdict {
    /// The batch is committed, up to this number.
    Met(Committed, u64),
    /// Something was written since.
    NotMet(Error),
    /// Memory does not know.
    AskTables,
}

impl Verdict {
    fn committed(&self) -> Option<&Committed> {
        match self {
            Verdict::Met(committed, _) => Some(committed),
            _ => None,
        }
    }
}

/// The error of a transaction that rests on what has changed.
#[cold]
pub(crate) fn conflict(touched: &Touched, changed: &Changed, seen: SequenceNumber) -> Error {
    let (name, key) = (&touched.keyspace.name, changed.key.escape_ascii());
    Error::new(ErrorKind::Conflict, format!("key \"{key}\" of keyspace {name:?} was written by another"))
        .object(format!("{name}/{key}"))
        .expected(format!("nothing newer than write {}, which the transaction looks from", seen.0))
        .found(format!("write {}", changed.number.0))
        .advice("nothing was written; begin the transaction again, for which Db::transact has a loop")
}

/// Why the commit cannot be, as far as memory knows; `None`: it can.
fn judge(
    engine: &Engine,
    transaction: &Transactional,
    seen: SequenceNumber,
    mut steps: usize,
) -> Result<Option<Verdict>> {
    let view = engine.view();
    for touched in &transaction.rests_on {
        match read::changed_in_memory(&view, touched, seen, &mut steps)? {
            Since::Unchanged => {}
            Since::Changed(changed) => {
                return Ok(Some(Verdict::NotMet(conflict(touched, &changed, seen))));
            }
            Since::Unknown if is_enabled(Mutant::TransactionTakesUnknownForNothing) => {}
            Since::Unknown => return Ok(Some(Verdict::AskTables)),
        }
    }
    Ok(None)
}

/// In the commit section: checks, and commits if nothing has changed since `seen`.
fn judge_and_commit(
    engine: &Engine,
    commit: &mut Commit,
    transaction: &Transactional,
    (seen, steps): (SequenceNumber, usize),
) -> Result<Verdict> {
    engine.check_writable()?;
    transaction.rests_on.iter().try_for_each(|touched| touched.keyspace.check())?;
    if let Some(cause) = commit.log.ended() {
        return Err(no_log(cause));
    }
    // Nobody has written anything since.
    if commit.last != seen.0
        && !is_enabled(Mutant::TransactionUnchecked)
        && let Some(verdict) = judge(engine, transaction, seen, steps)?
    {
        return Ok(verdict);
    }
    if transaction.prepared.batch.is_empty() && transaction.prepared.invalid.is_none() {
        return Ok(Verdict::Met(so_far(commit), commit.last));
    }
    let (locks, owner) = (&engine.transactions.locks, transaction.prepared.transaction);
    if let Some((spans, _)) = &transaction.prepares {
        spans.iter().try_for_each(|span| locks.check_prepared(span, owner))?;
    }
    let content = Content::Batch(&transaction.prepared);
    let committed = commit_locked(engine, commit, content, transaction.durability)?;
    // Before anybody else commits.
    if let Some((spans, id)) = &transaction.prepares
        && !is_enabled(Mutant::PrepareKeepsNoLocks)
    {
        locks.hold_again(owner, spans.clone());
        locks.prepare(owner, id.clone());
    }
    Ok(Verdict::Met(committed, commit.last))
}

/// One stay in the commit section, of a transaction that does not stand in line.
fn attempt(engine: &Engine, transaction: &Transactional, moment: (SequenceNumber, usize)) -> Result<Verdict> {
    check_in_flight(engine, transaction.durability)?;
    if is_enabled(Mutant::TransactionCheckedOutside) {
        let verdict = judge(engine, transaction, moment.0, moment.1)?;
        let mut commit = engine.stream.commit.lock();
        serve_commit_queue(engine, &mut commit);
        if let Some(verdict) = verdict {
            return Ok(verdict);
        }
        let content = Content::Batch(&transaction.prepared);
        let committed = commit_locked(engine, &mut commit, content, transaction.durability)?;
        return Ok(Verdict::Met(committed, commit.last));
    }
    let verdict = {
        let mut commit = engine.stream.commit.lock();
        let verdict =
            check_line(&commit).and_then(|()| judge_and_commit(engine, &mut commit, transaction, moment));
        serve_commit_queue(engine, &mut commit);
        verdict
    };
    finish_checked(engine, verdict, Verdict::committed)
}

/// Commits a transaction, if nothing that it rests on has changed. Gives the number of its last
/// write.
pub(crate) fn commit_transaction(engine: &Arc<Engine>, transaction: Transactional, limit: Limit) -> Op<u64> {
    let moment = (transaction.seen, STEPS_MAX);
    let first = match attempt(engine, &transaction, moment) {
        Ok(Verdict::Met(committed, last)) => {
            let durability = transaction.durability;
            (transaction.ended)(&Ok(()));
            return Op::limited(limit, &engine.env, "commit of a transaction", || {
                acknowledge_with(engine, committed, durability, last)
            });
        }
        Ok(Verdict::NotMet(error)) => {
            (transaction.ended)(&Err(error.clone()));
            return Op::ready(Err(error));
        }
        Err(error) if !stands_in_line(engine, &error) => {
            (transaction.ended)(&Err(error.clone()));
            return Op::ready(Err(error));
        }
        other => other,
    };
    let (engine, env) = (Arc::clone(engine), engine.env.clone());
    Op::begin(limit, &env, "commit of a transaction", async move {
        let mut transaction = Some(transaction);
        let gone_on = go_on(&engine, &mut transaction, first).await;
        let fate = gone_on.as_ref().map(|_| ()).map_err(Error::clone);
        let durability = transaction.map_or(Durability::Accepted, |transaction| {
            (transaction.ended)(&fate);
            transaction.durability
        });
        let (committed, last) = gone_on?;
        acknowledge(&engine, committed, durability).await?;
        Ok(last)
    })
}

/// Asks tables and tries until there is a verdict. Gives the transaction back.
async fn go_on(
    engine: &Arc<Engine>,
    transaction: &mut Option<Transactional>,
    first: Result<Verdict>,
) -> Result<(Committed, u64)> {
    let missing = || Error::new(ErrorKind::Bug, "a commit that lost its transaction");
    let mut tried = first;
    let mut checked: Option<Registered> = None;
    for round in 0..ROUNDS_MAX {
        let seen = checked.as_ref().map(|checked| checked.sequence);
        let one = transaction.take().ok_or_else(missing)?;
        let seen = seen.unwrap_or(one.seen);
        let steps = if round + 1 == ROUNDS_MAX { LAST_STEPS_MAX } else { STEPS_MAX };
        let verdict = match tried {
            Err(error) if stands_in_line(engine, &error) => {
                let (given, verdict) = stand_in_line(engine, one, (seen, steps)).await?;
                *transaction = Some(given);
                finish_checked(engine, verdict, Verdict::committed)?
            }
            tried => {
                *transaction = Some(one);
                tried?
            }
        };
        match verdict {
            Verdict::Met(committed, last) => return Ok((committed, last)),
            Verdict::NotMet(error) => return Err(error),
            Verdict::AskTables => {}
        }
        let one = transaction.as_ref().ok_or_else(missing)?;
        let next = Registered::new(engine);
        let view = engine.view_owned();
        if let Some((touched, changed)) = read::first_changed(engine, &view, &one.rests_on, seen).await? {
            return Err(conflict(&touched, &changed, seen));
        }
        let seen = next.sequence;
        checked = Some(next);
        tried = attempt(engine, one, (seen, steps));
    }
    let message = format!("what the transaction rests on was too much to check in {ROUNDS_MAX} rounds");
    Err(Error::new(ErrorKind::Conflict, message)
        .advice("nothing was written; begin it again, and read smaller ranges in it"))
}

/// Takes its place among writes that found no room, and has the verdict of its turn.
async fn stand_in_line(
    engine: &Arc<Engine>,
    transaction: Transactional,
    moment: (SequenceNumber, usize),
) -> Result<(Transactional, Result<Verdict>)> {
    let (turn, came) = completion();
    let bytes = transaction.prepared.memtable_bytes;
    enter_line(engine, bytes, |bytes| Box::new(Waiting { transaction, moment, bytes, verdict: None, turn }));
    came.await.ok_or_else(stopped)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Closed, "the database stopped before there was room for the transaction")
}

/// A transaction, in line. Its bytes are held by its operation, which is never given up.
#[derive(Debug)]
struct Waiting {
    transaction: Transactional,
    moment: (SequenceNumber, usize),
    /// What of the line's bytes is its.
    bytes: usize,
    verdict: Option<Result<Verdict>>,
    turn: Completer<(Transactional, Result<Verdict>)>,
}

impl InLine for Waiting {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_given_up(&self) -> bool {
        false
    }

    fn advance(&mut self, engine: &Engine, commit: &mut Commit) -> bool {
        if engine.is_stopping() {
            self.verdict = Some(engine.check_writable().and_then(|()| Err(stopped())));
            return true;
        }
        if check_in_flight(engine, self.transaction.durability).is_err()
            && commit.log.durable_through() < commit.log_end
        {
            return false;
        }
        match judge_and_commit(engine, commit, &self.transaction, self.moment) {
            Err(error) if stands_in_line(engine, &error) => false,
            verdict => {
                self.verdict = Some(verdict);
                true
            }
        }
    }

    fn tell(self: Box<Self>, _engine: &Arc<Engine>) {
        let Waiting { verdict, turn, transaction, .. } = *self;
        if let Some(verdict) = verdict {
            turn.complete((transaction, verdict));
        }
    }
}

#[cfg(test)]
mod tests;
