//! Writes with conditions: `read outside → check and commit in one stay in the commit section`.
//!
//! 1. A snapshot is registered, and the keys of the conditions are read at it, with requests where
//!    memory does not know.
//! 2. In the commit section memory is asked, without a request, for versions that are newer than
//!    the snapshot: memtables, and tables that were flushed since. Where there are none, what was
//!    read stands.
//! 3. Where memory cannot tell, the section is left and the keys are read again, a bounded number
//!    of times; then the write ends with `Conflict`.
//! 4. When all conditions hold, the batch is committed before the section is left.
//!
//! Invariants:
//! 1. Between the check and the commit nobody else commits: such a write joins no group, and serves
//!    the commit queue only afterwards.
//! 2. The snapshot is registered before the view is loaded, so that the view holds all that the
//!    snapshot sees; and it stays registered until the check is over, so that no compaction drops a
//!    delete that is newer than what was read.
//! 3. What has expired is judged at the check, and what was found in tables of a keyspace that has
//!    a compaction filter stands only as long as those tables are the newest.
//! 4. An answer of a durable write rests on durable state, whichever it is: that of a write whose
//!    conditions do not hold waits until what was found is durable, and until the epoch was
//!    verified at the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tombolo_env::{Completer, completion};
use tombolo_format::key::{SequenceNumber, check_limits};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::content::{Content, Prepared, beyond_limit};
use super::line::enter_line;
use super::{
    BATCH_BYTES_MAX, acknowledge, acknowledge_with, check_in_flight, check_line, commit_locked,
    finish_checked, no_log, serve_commit_queue, so_far, stands_in_line,
};
use crate::condition::{Condition, Decision, Versioned};
use crate::deadline::Limit;
use crate::engine::{Commit, Committed, Engine, InLine, KeyspaceInfo, Sight, View, took_no_effect};
use crate::op::Op;
use crate::options::Durability;
use crate::read::{self, Asked, InMemory, Newer, Version};
use crate::value::aligned;
use crate::version::Levels;

/// Most conditions of a batch: the commit section checks them all in one stay.
pub(crate) const CONDITIONS_MAX: usize = 4096;
/// How often the keys of conditions are read before the write ends with `Conflict`.
const READS_MAX: u32 = 16;

/// A condition on a key.
#[derive(Clone, Debug)]
pub(crate) struct Required {
    pub(crate) keyspace: Arc<KeyspaceInfo>,
    pub(crate) key: Bytes,
    pub(crate) condition: Condition,
}

/// Conditions of one write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requirements {
    pub(crate) all: Vec<Required>,
    bytes: usize,
    /// The first limit that one of them broke.
    invalid: Option<Error>,
}

impl Requirements {
    /// Adds a condition; a broken limit is remembered.
    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInfo>, key: &[u8], condition: Condition) {
        if self.invalid.is_some() {
            return;
        }
        if let Err(error) = check_limits(key, &[]) {
            self.invalid = Some(beyond_limit(&error));
            return;
        }
        self.bytes += key.len() + condition.bytes();
        if self.all.len() == CONDITIONS_MAX || self.bytes > BATCH_BYTES_MAX {
            let message = format!("{} conditions of {} bytes", self.all.len() + 1, self.bytes);
            let bound = format!("at most {CONDITIONS_MAX} of at most {BATCH_BYTES_MAX} bytes");
            let error = Error::new(ErrorKind::Invalid, message).expected(bound);
            self.invalid = Some(error.advice("write smaller batches, or ask for versions and not for bytes"));
            return;
        }
        let key = Bytes::copy_from_slice(key);
        self.all.push(Required { keyspace: Arc::clone(keyspace), key, condition });
    }

    /// Whether nothing was asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.invalid.is_none()
    }

    /// # Errors
    /// `NotFound` when a keyspace was dropped.
    fn check(&self) -> Result<()> {
        self.all.iter().try_for_each(|required| required.keyspace.check())
    }
}

/// A write with conditions.
#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) prepared: Prepared,
    pub(crate) requirements: Requirements,
    pub(crate) durability: Durability,
}

/// A snapshot that keeps newer deletes, until it is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    engine: Arc<Engine>,
    pub(super) sequence: SequenceNumber,
    /// By which it is judged what has expired.
    judged_ms: u64,
}

impl Registered {
    pub(super) fn new(engine: &Arc<Engine>) -> Registered {
        let (sequence, judged_ms) = if is_enabled(Mutant::ConditionForgetsItsSnapshot) {
            (engine.stream.visible(), engine.judged_ms())
        } else {
            let visible = || engine.stream.visible();
            // It reads once, and the commit section sees whether a filter has changed that since.
            let opened = engine.snapshots.open(engine.env.now(), visible, || engine.judged_ms());
            (opened.sequence, opened.judged_ms)
        };
        Registered { engine: Arc::clone(engine), sequence, judged_ms }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !is_enabled(Mutant::ConditionForgetsItsSnapshot) && self.engine.snapshots.close(self.sequence) {
            self.engine.work.raise();
        }
    }
}

/// What was read at a snapshot, for each condition.
#[derive(Debug)]
struct Looked {
    at: Registered,
    found: Vec<Option<Version>>,
    /// The tables that were read. A compaction filter may take away what was found there, without a
    /// newer version of it.
    filtered: Filtered,
}

/// The tables of keyspaces that compaction filters, or has filtered, by number.
#[derive(Debug, Default)]
struct Filtered(Vec<(u32, Option<Arc<Levels>>)>);

impl Filtered {
    /// Those of a view, of the keyspaces that conditions name.
    fn of(view: &View, requirements: &Requirements) -> Filtered {
        let mut all: Vec<_> = Vec::new();
        for Required { keyspace, .. } in &requirements.all {
            if keyspace.was_filtered() && !all.iter().any(|(id, _)| *id == keyspace.id) {
                all.push((keyspace.id, view.version.levels(keyspace.id).cloned()));
            }
        }
        Filtered(all)
    }

    /// Whether what was read of a keyspace stands, but for newer writes.
    fn stands(&self, view: &View, keyspace: &KeyspaceInfo) -> bool {
        if !keyspace.was_filtered() || is_enabled(Mutant::ConditionIgnoresFilters) {
            return true;
        }
        let read = self.0.iter().find(|(id, _)| *id == keyspace.id);
        read.is_some_and(|(_, levels)| match (levels, view.version.levels(keyspace.id)) {
            (None, None) => true,
            (Some(read), Some(now)) => Arc::ptr_eq(read, now),
            _ => false,
        })
    }
}

/// What the commit section said.
#[derive(Debug)]
enum Verdict {
    /// All conditions hold, and the batch is committed.
    Met(Committed, Judged),
    /// Some do not. What this rests on, as one commit.
    NotMet(Committed, Judged),
    /// Memory did not know.
    ReadAgain,
}

impl Verdict {
    fn committed(&self) -> Option<&Committed> {
        match self {
            Verdict::Met(committed, _) => Some(committed),
            _ => None,
        }
    }
}

/// What the commit section found.
#[derive(Debug)]
struct Judged {
    /// The newest number that was given out then, or that the write got.
    sequence: u64,
    unmet: Vec<usize>,
    /// Where something newer was found than was read: the condition's number, and what.
    newer: Vec<(usize, Newer)>,
    /// What `newer` is of.
    view: Option<Arc<View>>,
}

/// Looks in memory alone; `None` where it does not know.
fn look_in_memory(engine: &Arc<Engine>, conditional: &Conditional) -> Result<Option<Looked>> {
    let at = Registered::new(engine);
    let view = engine.view();
    let mut found = Vec::with_capacity(conditional.requirements.all.len());
    for required in &conditional.requirements.all {
        read::check(engine, &required.keyspace)?;
        let judged = read::Judged::At(at.judged_ms);
        let asked = Asked { keyspace: &required.keyspace, sequence: at.sequence, judged };
        match read::get_version_in_memory(&view, asked, &required.key)? {
            InMemory::Answer(version) => found.push(version),
            InMemory::Miss => return Ok(None),
        }
    }
    let filtered = Filtered::of(&view, &conditional.requirements);
    Ok(Some(Looked { at, found, filtered }))
}

/// Looks in memory and in tables.
async fn look(engine: &Arc<Engine>, conditional: &Conditional) -> Result<Looked> {
    let at = Registered::new(engine);
    let view = engine.view_owned();
    let all = &conditional.requirements.all;
    all.iter().try_for_each(|required| read::check(engine, &required.keyspace))?;
    let keys: Vec<_> = all.iter().map(|required| (&*required.keyspace, &required.key[..])).collect();
    let found = read::get_versions(engine, &view, &keys, (at.sequence, at.judged_ms)).await?;
    let filtered = Filtered::of(&view, &conditional.requirements);
    Ok(Looked { at, found, filtered })
}

/// Checks the conditions against the newest state, without a request. `None`: memory does not know.
fn judge(
    engine: &Sight,
    commit: &Commit,
    conditional: &Conditional,
    looked: &Looked,
) -> Result<Option<Judged>> {
    let view = engine.view();
    let now = SequenceNumber(commit.last);
    let judged_ms =
        if is_enabled(Mutant::ConditionExpiresAtTheRead) { looked.at.judged_ms } else { engine.judged_ms() };
    // The time was set back: what had expired at the read may be there again.
    if judged_ms < looked.at.judged_ms && !is_enabled(Mutant::ConditionIgnoresResets) {
        return Ok(None);
    }
    let mut judged = Judged { sequence: commit.last, unmet: Vec::new(), newer: Vec::new(), view: None };
    for (number, (required, read)) in conditional.requirements.all.iter().zip(&looked.found).enumerate() {
        let Required { keyspace, key, condition } = required;
        if !looked.filtered.stands(&view, keyspace) {
            return Ok(None);
        }
        // What has expired since it was read is absent.
        let has_ended = |version: &&Version| version.expires_ms.is_some_and(|end| end <= judged_ms);
        let ended = read.as_ref().filter(has_ended).is_some();
        let read = read.as_ref().filter(|_| !ended);
        let mut holds = condition.holds(read.map(|version| (version.sequence, &version.value[..])));
        let newer = if is_enabled(Mutant::ConditionCheckedAtTheReadAlone) {
            Newer::None
        } else {
            let judge = |sequence: SequenceNumber, value: &[u8]| {
                holds = condition.holds(Some((sequence, value)));
            };
            let asked = Asked { keyspace, sequence: now, judged: read::Judged::At(judged_ms) };
            read::newer_in_memory(&view, asked, key, looked.at.sequence, judge)?
        };
        match newer {
            Newer::None if ended => judged.newer.push((number, Newer::Absent)),
            Newer::None => {}
            Newer::Unknown => return Ok(None),
            Newer::Absent => {
                holds = condition.holds(None);
                judged.newer.push((number, newer));
            }
            Newer::InMemtable(_) | Newer::Owned(_) => judged.newer.push((number, newer)),
        }
        if !holds {
            judged.unmet.push(number);
        }
    }
    if !judged.newer.is_empty() {
        judged.view = Some(Arc::clone(&view));
    }
    Ok(Some(judged))
}

/// In the commit section: checks, and commits if all holds.
fn judge_and_commit(
    engine: &Engine,
    commit: &mut Commit,
    conditional: &Conditional,
    looked: &Looked,
) -> Result<Verdict> {
    engine.check_writable()?;
    conditional.requirements.check()?;
    if let Some(cause) = commit.log.ended() {
        return Err(no_log(cause));
    }
    let Some(mut judged) = judge(engine, commit, conditional, looked)? else { return Ok(Verdict::ReadAgain) };
    if !judged.unmet.is_empty() {
        return Ok(Verdict::NotMet(so_far(commit), judged));
    }
    if conditional.prepared.batch.is_empty() && conditional.prepared.invalid.is_none() {
        return Ok(Verdict::Met(so_far(commit), judged));
    }
    if is_enabled(Mutant::ConditionCheckedBeforeItsGroup) {
        serve_commit_queue(engine, commit);
    }
    let content = Content::Batch(&conditional.prepared);
    let committed = commit_locked(engine, commit, content, conditional.durability)?;
    judged.sequence = commit.last;
    Ok(Verdict::Met(committed, judged))
}

/// One stay in the commit section, of a write that does not stand in line.
fn attempt(engine: &Engine, conditional: &Conditional, looked: &Looked) -> Result<Verdict> {
    check_in_flight(engine, conditional.durability)?;
    let verdict = {
        let mut commit = engine.stream.commit.lock();
        let verdict =
            check_line(&commit).and_then(|()| judge_and_commit(engine, &mut commit, conditional, looked));
        serve_commit_queue(engine, &mut commit);
        verdict
    };
    finish_checked(engine, verdict, Verdict::committed)
}

/// The answer that a verdict comes to.
fn decide(conditional: &Conditional, looked: &Looked, judged: Judged, is_met: bool) -> Decision {
    let keep = |number: usize, sequence: SequenceNumber, value: Bytes| {
        let alignment = conditional.requirements.all[number].keyspace.value_alignment();
        Versioned { value: aligned(value, alignment), sequence: sequence.0 }
    };
    let mut found: Vec<_> = looked
        .found
        .iter()
        .enumerate()
        .map(|(number, version)| version.clone().map(|version| keep(number, version.sequence, version.value)))
        .collect();
    for (number, newer) in judged.newer {
        let required = &conditional.requirements.all[number];
        let version = match newer {
            Newer::Owned(version) => Some((version.sequence, version.value)),
            Newer::InMemtable(sequence) => judged.view.as_ref().and_then(|view| {
                read::value_in_memtables(view, required.keyspace.id, &required.key, sequence)
                    .map(|value| (sequence, value))
            }),
            Newer::None | Newer::Absent | Newer::Unknown => None,
        };
        found[number] = version.map(|(sequence, value)| keep(number, sequence, value));
    }
    Decision { sequence: is_met.then_some(judged.sequence), found, unmet: judged.unmet }
}

/// Waits until the answer that conditions do not hold, or that they do and nothing was to be
/// written, rests on durable state.
async fn rest(engine: &Arc<Engine>, so_far: Committed, durability: Durability) -> Result<()> {
    if durability != Durability::Durable || is_enabled(Mutant::ConditionUnmetBeforeDurable) {
        return Ok(());
    }
    acknowledge(engine, so_far, durability).await?;
    engine.confirm().await.inspect_err(|error| engine.note(error))
}

/// Writes a batch if its conditions hold.
pub(crate) fn write_if(engine: &Arc<Engine>, conditional: Conditional, limit: Limit) -> Op<Decision> {
    let requirements = &conditional.requirements;
    let invalid = requirements.invalid.clone().or_else(|| conditional.prepared.invalid.clone());
    if let Err(error) = invalid.map_or(Ok(()), Err).and_then(|()| engine.check_writable()) {
        return Op::ready(Err(error));
    }
    let first = match look_in_memory(engine, &conditional) {
        Err(error) => return Op::ready(Err(error)),
        Ok(None) => None,
        Ok(Some(looked)) => match attempt(engine, &conditional, &looked) {
            Ok(Verdict::Met(committed, judged)) if !conditional.prepared.batch.is_empty() => {
                let decision = decide(&conditional, &looked, judged, true);
                return Op::limited(limit, &engine.env, "conditional write", || {
                    acknowledge_with(engine, committed, conditional.durability, decision)
                });
            }
            Ok(Verdict::NotMet(_, judged)) if conditional.durability != Durability::Durable => {
                return Op::ready(Ok(decide(&conditional, &looked, judged, false)));
            }
            Ok(Verdict::ReadAgain) => None,
            Err(error) if !stands_in_line(engine, &error) => return Op::ready(Err(error)),
            other => Some((looked, other)),
        },
    };
    let guard = match InProgress::begin(engine) {
        Ok(guard) => guard,
        // Of what a log may have, nobody is told that it was refused.
        Err(busy) => {
            let unknown = first.and_then(|(_, tried)| tried.err()).filter(|error| !took_no_effect(error));
            return Op::ready(Err(unknown.unwrap_or(busy)));
        }
    };
    let (engine, env) = (Arc::clone(engine), engine.env.clone());
    Op::begin(limit, &env, "conditional write", async move {
        let _guard = guard;
        go_on(&engine, Arc::new(conditional), first).await
    })
}

/// Reads and tries until there is a verdict. `first` is what an attempt came to already.
async fn go_on(
    engine: &Arc<Engine>,
    conditional: Arc<Conditional>,
    mut first: Option<(Looked, Result<Verdict>)>,
) -> Result<Decision> {
    for _ in 0..READS_MAX {
        let (looked, tried) = match first.take() {
            Some((looked, tried)) => (Arc::new(looked), tried),
            None => {
                let looked = Arc::new(look(engine, &conditional).await?);
                let tried = attempt(engine, &conditional, &looked);
                (looked, tried)
            }
        };
        let verdict = match tried {
            Err(error) if stands_in_line(engine, &error) => {
                let verdict = stand_in_line(engine, &conditional, &looked).await;
                finish_checked(engine, verdict, Verdict::committed)?
            }
            tried => tried?,
        };
        let durability = conditional.durability;
        return match verdict {
            Verdict::ReadAgain => continue,
            Verdict::Met(committed, judged) => {
                let decision = decide(&conditional, &looked, judged, true);
                drop(looked);
                if conditional.prepared.batch.is_empty() {
                    rest(engine, committed, durability).await?;
                } else {
                    acknowledge(engine, committed, durability).await?;
                }
                Ok(decision)
            }
            Verdict::NotMet(so_far, judged) => {
                let decision = decide(&conditional, &looked, judged, false);
                drop(looked);
                rest(engine, so_far, durability).await?;
                Ok(decision)
            }
        };
    }
    let message = format!("a key of the conditions was written again each of {READS_MAX} times it was read");
    Err(Error::new(ErrorKind::Conflict, message).advice("nothing was written; write again"))
}

/// Takes its place among writes that found no room, and has the verdict of its turn.
async fn stand_in_line(
    engine: &Arc<Engine>,
    conditional: &Arc<Conditional>,
    looked: &Arc<Looked>,
) -> Result<Verdict> {
    let (turn, came) = completion();
    let bytes = conditional.prepared.memtable_bytes;
    enter_line(engine, bytes, |bytes| {
        let (conditional, looked) = (Arc::clone(conditional), Arc::clone(looked));
        Box::new(Waiting { conditional, looked, bytes, verdict: None, turn })
    });
    came.await.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Closed, "the database stopped before there was room for the write"))
    })
}

/// A write with conditions, in line. Its bytes are held by its operation, which is never given up.
#[derive(Debug)]
struct Waiting {
    conditional: Arc<Conditional>,
    looked: Arc<Looked>,
    /// What of the line's bytes is its.
    bytes: usize,
    verdict: Option<Result<Verdict>>,
    turn: Completer<Result<Verdict>>,
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
            self.verdict = Some(engine.check_writable().and_then(|()| {
                Err(Error::new(ErrorKind::Closed, "the database stopped before there was room for the write"))
            }));
            return true;
        }
        if check_in_flight(engine, self.conditional.durability).is_err()
            && commit.log.durable_through() < commit.log_end
        {
            return false;
        }
        match judge_and_commit(engine, commit, &self.conditional, &self.looked) {
            Err(error) if stands_in_line(engine, &error) => false,
            verdict => {
                self.verdict = Some(verdict);
                true
            }
        }
    }

    fn tell(self: Box<Self>, _engine: &Arc<Engine>) {
        let Waiting { verdict, turn, .. } = *self;
        if let Some(verdict) = verdict {
            turn.complete(verdict);
        }
    }
}

/// A write with conditions that goes on beside its caller, counted: their number is bounded.
#[derive(Debug)]
struct InProgress(Arc<Engine>);

impl InProgress {
    /// # Errors
    /// `Busy` when there are as many as may be writes in flight.
    fn begin(engine: &Arc<Engine>) -> Result<InProgress> {
        let limit = engine.options.writes_in_flight_max();
        if engine.stream.conditional.fetch_add(1, Ordering::Relaxed) >= limit {
            engine.stream.conditional.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "{limit} writes with conditions are at their reads, which is the setting \
                writes_in_flight_max"
            );
            return Err(Error::new(ErrorKind::Busy, message).advice("wait for some of them"));
        }
        Ok(InProgress(Arc::clone(engine)))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.stream.conditional.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
