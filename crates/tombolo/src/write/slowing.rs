//! Slowing writers while background work falls behind: looks at what piles up, asks a writer to
//! wait, and tells when that begins and ends.
//!
//! Writers share one queue of delays, so that all together go at the rate, however many they are.
//! It is bounded: no write waits longer than [`AHEAD_MAX`] for others' bytes and [`OWN_MAX`] for
//! its own. Readers that keep flushed memtables slow nobody.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::waiting_max;
use crate::engine::{Background, Commit, Engine, Sight, View};
use crate::event::Event;
use crate::stalls::{Pressure, RUNS_SLOW, Slowed};

/// It is looked whether writers must be slowed whenever they have written so much.
const JUDGED_BYTES: usize = 16 << 10;
/// What a memtable shrinks to when the memory budget is short: a quarter.
const SHORT_SHARE: u64 = 4;
/// A delay shorter than this is saved up: sleeping costs more than it.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Most that a write waits for the bytes of others.
const AHEAD_MAX: Duration = Duration::from_secs(1);
/// Most that a write waits for its own bytes.
const OWN_MAX: Duration = Duration::from_secs(10);

/// At how many bytes the active memtable is full.
pub(super) fn memtable_bytes_max(background: &Background, commit: &Commit) -> u64 {
    (background.options.memtable_bytes() + commit.grown_bytes) / if commit.is_short { SHORT_SHARE } else { 1 }
}

/// How long this writer is asked to wait, and whether slowing has begun or ended.
#[inline]
pub(super) fn delay(engine: &Sight, commit: &mut Commit, bytes: usize) -> (Duration, bool) {
    commit.unjudged_bytes += bytes;
    if commit.unjudged_bytes < JUDGED_BYTES { (Duration::ZERO, false) } else { judge(engine, commit) }
}

fn judge(engine: &Sight, commit: &mut Commit) -> (Duration, bool) {
    let bytes = std::mem::take(&mut commit.unjudged_bytes);
    commit.is_short = engine.budget().is_short();
    look_at_log(engine, commit);
    let slowed = slowed(engine, commit);
    let changed = engine.stalls.found(slowed.map(|slowed| slowed.reason));
    let Some(slowed) = slowed else {
        commit.delayed_until = None;
        return (Duration::ZERO, changed);
    };
    let now = engine.env.now();
    let ahead = commit.delayed_until.map_or(Duration::ZERO, |until| until.since(now)).min(AHEAD_MAX);
    let own = slowed.time(bytes as u64).min(OWN_MAX);
    let delay = ahead + own;
    commit.delayed_until = Some(now + delay);
    if delay < DELAY_MIN {
        return (Duration::ZERO, changed);
    }
    count_delay(engine, delay, 1);
    (delay, changed)
}

/// So many writers were asked to wait so long.
pub(super) fn count_delay(background: &Background, delay: Duration, writers: usize) {
    if !delay.is_zero() {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX).saturating_mul(writers as u64);
        background.stalls.delayed_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// A log that wants its oldest data flushed, by its bytes or by its pieces, is as good as one that
/// would take too long to replay: the memtable counts as full, unless one is being flushed already.
fn look_at_log(engine: &Sight, commit: &mut Commit) {
    let pressure = commit.log.pressure();
    if pressure.live_bytes > pressure.wanted_bytes_max && engine.view().waiting.is_empty() {
        let limit = engine.log_bytes_max.load(Ordering::Relaxed);
        commit.log_bytes = commit.log_bytes.max(limit.saturating_add(1));
    }
}

fn slowed(engine: &Sight, commit: &Commit) -> Option<Slowed> {
    let view = engine.view();
    if engine.is_read_only() || (view.waiting.is_empty() && view.version.runs_max() < RUNS_SLOW) {
        return None;
    }
    let share = |used: u64, limit: u64| (u128::from(used) * 1000 / u128::from(limit.max(1))).min(1000);
    let by_bytes = share(commit.memtable.used_bytes(), memtable_bytes_max(engine, commit));
    let by_log = share(commit.log_bytes, engine.log_bytes_max.load(Ordering::Relaxed));
    let active = u64::try_from(by_bytes.max(by_log)).unwrap_or(1000);
    engine.stalls.slowed(&Pressure {
        filled: view.waiting.len() as u64 * 1000 + active,
        memtables_max: waiting_max(engine) as u64 + 1,
        runs: runs(engine, &view),
    })
}

/// The most runs of a keyspace, among those that compaction makes fewer.
fn runs(background: &Background, view: &View) -> usize {
    if view.version.runs_max() < RUNS_SLOW || !background.options.load().automatic_compaction {
        return 0;
    }
    let stuck = background.troubles.stuck();
    let merges =
        |id: u32| background.catalog.by_id(id).is_some_and(|keyspace| keyspace.options().shape.merges_runs());
    let counted = view.version.keyspaces().filter(|(id, _)| !stuck.contains(id) && merges(*id));
    counted.map(|(_, levels)| levels.runs.len()).max().unwrap_or(0)
}

/// How writers are slowed now.
pub(crate) fn slowed_now(engine: &Engine) -> Option<Slowed> {
    slowed(engine, &engine.stream.commit.lock())
}

/// Background work has come on: tells of it if writers were slowed and are no more, though nobody
/// writes.
pub(crate) fn look_again(engine: &Engine) {
    if engine.stalls.reason().is_none() {
        return;
    }
    let changed = {
        let commit = engine.stream.commit.lock();
        slowed(engine, &commit).is_none() && engine.stalls.found(None)
    };
    if changed {
        tell(engine);
    }
}

/// Tells that slowing has begun or ended. Outside the commit section.
#[cold]
pub(super) fn tell(background: &Background) {
    // Held while it is told: so the last to be told is the last that was found.
    let mut told = background.stalls.told.lock();
    let now = background.stalls.reason();
    let before = std::mem::replace(&mut *told, now);
    if before == now {
        return;
    }
    match now {
        Some(reason) => {
            tracing::info!(%reason, "writers are slowed");
            background.events.tell(|| Event::StallBegan { reason });
        }
        None => {
            tracing::info!("writers are not slowed any more");
            background.events.tell(|| Event::StallEnded);
        }
    }
}
