//! Write path: `batch → sequence → log append → memtable → accepted → durable`.
//!
//! 1. A batch is encoded once, by the thread that writes it; that encoding is the log's payload. A
//!    single entry needs no buffer: log and memtable take it from where its caller has it.
//! 2. The commit section, or the writer that is in it already, gives it sequence numbers, appends
//!    it to the log and puts it into the memtable.
//! 3. The visible sequence number is raised when the whole batch is in the memtable.
//! 4. A durable write waits for a sync, which all that were appended before it share.
//!
//! Invariants:
//! 1. Sequence numbers have no holes: an append that took no effect takes no number. After one of
//!    unknown outcome nothing is appended to that log.
//! 2. A log entry covers every number since the entry before; unlogged writes in between take the
//!    first numbers of its range, and its own operations the last. So recovery checks that entries
//!    follow each other without a gap. Numbers beyond what one entry's count can say are covered by
//!    entries without operations before it.
//! 3. The memtable holds nothing that was not appended first, unlogged writes apart.
//! 4. No waker runs inside the commit section.
//! 5. What finds no room stands in line, and nothing passes it: a thread's call order is sequence
//!    order.
//! 6. A commit that panics finishes the handle: nothing is appended behind what it left.

mod change;
mod conditions;
mod content;
mod cut;
mod following;
mod ingest;
mod ingesting;
mod keyspaces;
mod line;
mod slowing;
mod ticket;
mod transactional;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tombolo_env::{Completion, TaskClass};
use tombolo_format::batch::{BatchBuilder, OPERATIONS_MAX};
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_format::manifest::Edit;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogAppend, LogOffset, LogRecord, Result};

use crate::budget::Room;
use crate::engine::{
    Background, Commit, Committed, Engine, Health, KeyspaceInfo, MAIN_LANE, POSTED_BYTES_MAX, Posted, Sealed,
    Sight, View, Work, no_log, took_no_effect, unix_ms,
};
use crate::memtable::Memtable;
use crate::op::Op;
use crate::options::{Durability, Options};
use crate::version::Ingested;
pub(crate) use conditions::{Conditional, Requirements, write_if};
use content::{Content, One};
pub(crate) use content::{Cost, Prepared};
pub(crate) use cut::{Reached, mark_cut};
pub(crate) use ingest::{Ingestion, end_behind};
pub(crate) use ingesting::ingest;
pub(crate) use keyspaces::{create_keyspace, drop_keyspace};
pub(crate) use line::advance_line;
use line::{Wanted, stand_in_line};
pub(crate) use slowing::{look_again, slowed_now};
use ticket::WriteTicket;
pub(crate) use transactional::{Told, Transactional, commit_transaction, conflict};

/// Most bytes of a batch's encoding. A value of the largest size fits with room to spare.
pub(crate) const BATCH_BYTES_MAX: usize = 96 << 20;

/// What a log keeps beside the payload of an entry, about.
const LOG_ENTRY_OVERHEAD_BYTES: u64 = 28;
/// The speed of replay that is assumed until one was measured.
const REPLAY_BYTES_PER_SECOND: u64 = 384 << 20;
/// A shorter replay tells nothing about speed.
const REPLAYED_BYTES_MIN: u64 = 4 << 20;
/// Bounds of the log bytes of a memtable, whatever was measured.
const LOG_BYTES_MIN: u64 = 8 << 20;
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Most keyspaces created and dropped in one memtable: one manifest record tells of all, and has a
/// largest size.
const KEYSPACE_EDITS_MAX: usize = 16 << 10;
/// Most key and value bytes of writes that are made one entry of the log: beyond, an entry costs
/// little beside its bytes, and small segments have room for it.
const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// How often somebody who has left a write looks whether it was served, before waiting for the
/// section: some microseconds, several commits.
const DESK_LOOKS: u32 = 100;
/// How often it then lets others run, before it sleeps until the section is free.
const DESK_YIELDS: u32 = 64;

/// Commits a batch or an entry. On an error nothing of it was taken, or the handle is finished.
///
/// # Errors
/// `Busy` when there is no room in memory, or others stand in line for it; `Invalid`, `NotFound`
/// for what the batch asks; those of the log.
#[inline]
fn commit(engine: &Engine, content: Content<'_>, durability: Durability) -> Result<Committed> {
    let committed = match engine.stream.commit.try_lock() {
        Some(mut commit) => {
            let committed = commit_in_turn(engine, &mut commit, content, durability);
            serve_commit_queue(engine, &mut commit);
            committed
        }
        None => commit_contended(engine, content, durability),
    };
    finish_commit(engine, committed)
}

/// In the commit section, of a write that does not stand in line.
fn commit_in_turn(
    engine: &Engine,
    commit: &mut Commit,
    content: Content<'_>,
    durability: Durability,
) -> Result<Committed> {
    engine.check_writable()?;
    check_line(commit)?;
    commit_locked(engine, commit, content, durability)
}

/// Commits for those who found the section taken.
#[inline]
fn serve_commit_queue(engine: &Engine, commit: &mut Commit) {
    if engine.stream.commit_queue.has_waiting() {
        serve_waiting(engine, commit);
    }
}

/// As few entries of the log, if it wants that, or each by itself.
fn serve_waiting(engine: &Engine, commit: &mut Commit) {
    engine.stream.commit_queue.serve(commit.log.wants_gathered(), |mut posted| {
        while !posted.is_empty() {
            let (first, others) = posted.split_at_mut(short_enough(posted));
            commit_left(engine, commit, first);
            posted = others;
        }
    });
}

/// How many of the first are short enough for one entry of the log; one at least.
fn short_enough(posted: &[MutexGuard<'_, Posted>]) -> usize {
    let mut bytes = 0;
    let are_short = |posted: &&MutexGuard<'_, Posted>| {
        bytes += posted.bytes.len();
        bytes <= TOGETHER_BYTES_MAX
    };
    posted.iter().take_while(are_short).count().max(1)
}

/// Commits what was left: together, if it can be.
fn commit_left(engine: &Engine, commit: &mut Commit, posted: &mut [MutexGuard<'_, Posted>]) {
    let together = if posted.len() > 1 {
        commit_together(engine, commit, posted)
    } else {
        Together::Not { sealed: false }
    };
    let Together::Not { sealed } = together else { return };
    for posted in &mut *posted {
        if let Some(one) = One::left(posted) {
            posted.committed = Some(commit_in_turn(engine, commit, Content::One(&one), posted.durability));
        }
    }
    // A caller that is told an error looks for work itself.
    if sealed
        && let Some(first) = posted.iter_mut().find_map(|posted| posted.committed.as_mut()?.as_mut().ok())
    {
        first.rotated = true;
    }
}

/// What came of committing several together.
enum Together {
    /// Each was told how it went.
    Committed,
    /// No write took effect, and each is to be committed by itself. `sealed`: room was made, and
    /// the flush is to be told of a memtable.
    Not { sealed: bool },
}

/// Commits what several have left as one log entry: what an entry costs, and a log of several
/// copies three times, comes once for all of them.
fn commit_together(engine: &Engine, commit: &mut Commit, posted: &mut [MutexGuard<'_, Posted>]) -> Together {
    let several: Vec<One<'_>> = posted.iter().filter_map(|posted| One::left(posted)).collect();
    if several.len() < posted.len() || posted.iter().any(|posted| posted.durability == Durability::Unlogged) {
        return Together::Not { sealed: false };
    }
    let memtable = Arc::clone(&commit.memtable);
    let mut committed = match commit_in_turn(engine, commit, Content::Several(&several), Durability::Durable)
    {
        Err(error)
            if took_no_effect(&error)
                || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) =>
        {
            return Together::Not { sealed: !Arc::ptr_eq(&memtable, &commit.memtable) };
        }
        committed => committed,
    };
    if let Ok(Committed { delay, .. }) = &committed {
        // All of them wait for it, and one was counted.
        slowing::count_delay(engine, *delay, posted.len() - 1);
    }
    let is_accepted_later = matches!(&committed, Ok(Committed { accepted: Some(_), .. }));
    for (number, posted) in posted.iter_mut().enumerate() {
        posted.committed = Some(match &mut committed {
            Err(error) => Err(error.clone()),
            // What the commit has brought up is told of once.
            Ok(first) if number == 0 => Ok(Committed { accepted: first.accepted.take(), ..*first }),
            Ok(first) => {
                // Nothing tells several of one acceptance; a durable write is accepted.
                let accepted =
                    if is_accepted_later { first.end.map(|end| commit.log.durable(end)) } else { None };
                let (rotated, stall_changed, wants_time) = (false, false, false);
                Ok(Committed { accepted, rotated, stall_changed, wants_time, ..*first })
            }
        });
    }
    Together::Committed
}

/// Somebody is in the commit section: the write is left there, or waits for the section.
#[cold]
fn commit_contended(engine: &Engine, content: Content<'_>, durability: Durability) -> Result<Committed> {
    let commit_queue = &engine.stream.commit_queue;
    let place = match content {
        Content::One(one) if one.bytes() <= POSTED_BYTES_MAX => {
            commit_queue.post(|posted| one.leave(posted, durability))
        }
        _ => None,
    };
    let Some(place) = place else {
        let mut commit = engine.stream.commit.lock();
        let committed = commit_in_turn(engine, &mut commit, content, durability);
        serve_commit_queue(engine, &mut commit);
        return committed;
    };
    for _ in 0..DESK_LOOKS {
        if commit_queue.is_served(place) {
            break;
        }
        std::hint::spin_loop();
    }
    // Who is in the section may not be running: he is let run, and nobody is put to sleep and woken
    // for it.
    for _ in 0..DESK_YIELDS {
        if commit_queue.is_served(place) {
            break;
        }
        match engine.stream.commit.try_lock() {
            Some(mut commit) => serve_commit_queue(engine, &mut commit),
            None => engine.env.let_others_run(),
        }
    }
    while !commit_queue.is_served(place) {
        serve_commit_queue(engine, &mut engine.stream.commit.lock());
    }
    commit_queue.take(place)
}

/// # Errors
/// `Busy` when as many durable writes as may be have not ended.
fn check_in_flight(engine: &Engine, durability: Durability) -> Result<()> {
    let limit = engine.options.writes_in_flight_max();
    if durability == Durability::Durable && engine.stream.in_flight.load(Ordering::Relaxed) >= limit {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("{limit} writes are in flight, which is the setting writes_in_flight_max"),
        )
        .advice("wait for some of them"));
    }
    Ok(())
}

/// # Errors
/// `Busy` while other writes stand in line: none may pass them.
#[inline]
fn check_line(commit: &Commit) -> Result<()> {
    if commit.line.is_empty() { Ok(()) } else { Err(others_wait(commit.line.len())) }
}

#[cold]
fn others_wait(waiting: usize) -> Error {
    Error::new(ErrorKind::Busy, format!("{waiting} earlier writes wait for room in memory"))
        .advice("wait for the flush")
}

/// What follows the commit section: wakers run outside it.
fn finish_commit(engine: &Engine, committed: Result<Committed>) -> Result<Committed> {
    match &committed {
        Ok(committed) => tell_of_commit(engine, committed),
        Err(error) => tell_of_refusal(engine, error),
    }
    committed
}

#[inline]
fn tell_of_commit(engine: &Engine, committed: &Committed) {
    if engine.feed.is_on() {
        engine.feed.news.raise();
    }
    if !(committed.rotated | committed.stall_changed | committed.wants_time) {
        return;
    }
    if committed.wants_time {
        engine.time.wanted.raise();
    }
    if committed.rotated {
        engine.work.raise();
    }
    if committed.stall_changed {
        slowing::tell(engine);
    }
}

fn tell_of_refusal(engine: &Background, error: &Error) {
    // A memtable may have been sealed before the error, and its flush may be what makes room.
    engine.work.raise();
    if error.kind() != ErrorKind::Busy {
        engine.note(error);
        engine.tell_failure();
        engine.tell_of_log();
    }
}

/// The same, of a check and a commit in one stay. `committed` says what of the verdict is one.
fn finish_checked<T>(
    engine: &Engine,
    verdict: Result<T>,
    committed: impl FnOnce(&T) -> Option<&Committed>,
) -> Result<T> {
    match verdict {
        Ok(verdict) => {
            if let Some(committed) = committed(&verdict) {
                tell_of_commit(engine, committed);
            }
            Ok(verdict)
        }
        // Nothing was tried: nobody needs to be told.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => Err(error),
        Err(error) => {
            tell_of_refusal(engine, &error);
            Err(error)
        }
    }
}

/// Finishes the handle when a commit ends by a panic: the log may hold what the memtable does not,
/// under numbers that would be given out again.
struct Unfinished<'a>(&'a Health);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let error =
            Error::new(ErrorKind::Bug, "a commit panicked; what it wrote may or may not be found again");
        self.0.fail_silently(&error.advice("open the database again, and report the panic"));
    }
}

fn commit_locked(
    engine: &Engine,
    commit: &mut Commit,
    content: Content<'_>,
    durability: Durability,
) -> Result<Committed> {
    let unfinished = Unfinished(engine);
    let committed = commit_guarded(engine, commit, content, durability);
    std::mem::forget(unfinished);
    committed
}

fn commit_guarded(
    engine: &Engine,
    commit: &mut Commit,
    content: Content<'_>,
    durability: Durability,
) -> Result<Committed> {
    content.check()?;
    if engine.feed.is_on() {
        return following::commit(engine, commit, content, durability);
    }
    commit_checked(engine, commit, content, durability)
}

/// Commits content that keeps the limits.
#[inline]
fn commit_checked(
    engine: &Engine,
    commit: &mut Commit,
    content: Content<'_>,
    durability: Durability,
) -> Result<Committed> {
    if engine.transactions.locks.has_prepared() {
        content.check_prepared(&engine.transactions.locks)?;
    }
    engine.check_writable()?;
    if let Some(cause) = commit.log.ended() {
        return Err(no_log(cause));
    }
    let earliest_end = content.earliest_end();
    if earliest_end != u64::MAX {
        engine.time.check_written(content.earliest_written(), unix_ms(&engine.env))?;
    }
    if let Some(cuts) = engine.snapshots.cuts() {
        // Before it takes a number: a cut that was raised before this write began is without it.
        cuts.meet_in_commit();
    }
    let (bytes, count) = (content.memtable_bytes(), content.count());
    let rotated = make_room(engine, commit, bytes)?;
    commit.writer.reserve(bytes, count as usize)?;
    let (end, accepted) = match durability {
        Durability::Unlogged => (None, None),
        _ => content.append(engine, commit).map(|(end, accepted)| (Some(end), accepted))?,
    };
    if engine.catalog.dead_runs().is_any() {
        content.meet_dead_runs(engine, commit.last);
    }
    content.apply(engine, commit, commit.last + 1);
    commit.last += u64::from(count);
    match end {
        Some(_) => commit.logged = commit.last,
        None => commit.unlogged = commit.last,
    }
    engine.stream.visible.store(commit.last, Ordering::Release);
    if let Some(ready) = commit.writer.wants_chunk() {
        let made = async move { ready.make() };
        engine.env.spawn(TaskClass::Foreground, "memory for a memtable", made).detach();
    }
    // Changed in the commit section only.
    let writes = engine.stream.writes.load(Ordering::Relaxed);
    engine.stream.writes.store(writes + content.writes(), Ordering::Relaxed);
    let (delay, stall_changed) = slowing::delay(engine, commit, bytes);
    let wants_time = engine.time.is_news(earliest_end);
    Ok(Committed { end, lane: commit.log.id.lane, accepted, delay, rotated, stall_changed, wants_time })
}

/// What an append comes to: the log's end after it, and its acceptance unless it was accepted at
/// once.
type AppendEnd = (LogOffset, Option<Completion<Result<()>>>);

/// Appends a payload to the log. When that fails it took no number, or the handle is finished.
fn append(health: &Health, commit: &mut Commit, payload: &[&[u8]], count: u32) -> Result<AppendEnd> {
    // More unlogged writes than an entry's count can say: entries without operations cover them.
    while commit.last - commit.logged + u64::from(count) > u64::from(u32::MAX) {
        append_entry(health, commit, &[BatchBuilder::new().payload()], u32::MAX - OPERATIONS_MAX)?;
        commit.logged += u64::from(u32::MAX - OPERATIONS_MAX);
    }
    let covered = commit.last - commit.logged + u64::from(count);
    append_entry(health, commit, payload, u32::try_from(covered).unwrap_or(u32::MAX))
}

/// Appends an entry that covers the next `count` numbers.
fn append_entry(health: &Health, commit: &mut Commit, payload: &[&[u8]], count: u32) -> Result<AppendEnd> {
    let stream = health.stream_id();
    let entry = LogAppend { stream, first_sequence: commit.logged + 1, count, parts: payload };
    match commit.log.log().append_parts(MAIN_LANE, &entry) {
        Ok(appended) => {
            commit.log_end = appended.end;
            commit.log_bytes += entry.payload_bytes() as u64 + LOG_ENTRY_OVERHEAD_BYTES;
            Ok((appended.end, appended.accepted))
        }
        Err(error) => {
            if error.kind() == ErrorKind::Fenced {
                health.fail_silently(&error);
            } else if !took_no_effect(&error) {
                // Whether it is in the log is not known, and its numbers are given out again:
                // nothing more is appended behind it.
                commit.log.end(&error);
            }
            Err(error)
        }
    }
}

/// Memtables that the budget promises to every database: one that takes writes, and one that is
/// flushed.
const PROMISED: usize = 2;

/// Memtables that may wait for their flush: what the budget's quarter leaves beside the active one.
fn waiting_max(background: &Background) -> usize {
    let quarter = background.options.load().memory_bytes.min(background.budget().bytes()) / 4;
    usize::try_from((quarter / background.options.memtable_bytes()).saturating_sub(1))
        .unwrap_or(1)
        .clamp(1, 16)
}

/// Bytes of log that a second of replay takes: by what the replay at opening took, if it was long
/// enough to tell.
pub(crate) fn replay_rate(replayed_bytes: u64, took: Duration) -> u64 {
    match u64::try_from(took.as_micros()) {
        Ok(micros @ 1..) if replayed_bytes >= REPLAYED_BYTES_MIN => {
            replayed_bytes.saturating_mul(1_000_000) / micros
        }
        _ => REPLAY_BYTES_PER_SECOND,
    }
}

/// Bytes of log that one memtable may hold, so that replaying two of them, one filling and one
/// being flushed, takes a quarter of a second at `replay_rate`. A memtable that was given its size
/// may be filled.
pub(crate) fn log_bytes_max(options: &Options, replay_rate: u64) -> u64 {
    (replay_rate / 8)
        .clamp(LOG_BYTES_MIN, LOG_BYTES_MAX)
        .max(options.memtable_bytes.map_or(0, |bytes| bytes.saturating_mul(4)))
}

/// Seals the active memtable when it is full; says whether it did.
fn make_room(engine: &Sight, commit: &mut Commit, bytes: usize) -> Result<bool> {
    let used = commit.memtable.used_bytes();
    let limit = slowing::memtable_bytes_max(engine, commit);
    let is_long_to_replay = commit.log_bytes > engine.log_bytes_max.load(Ordering::Relaxed);
    let has_many_edits = commit.keyspace_edits.len() >= KEYSPACE_EDITS_MAX;
    if used != 0 && used + bytes as u64 <= limit && !is_long_to_replay && !has_many_edits {
        return Ok(false);
    }
    let waiting = engine.view().waiting.len();
    if used == 0 && !has_many_edits {
        // Sealed before it was full, so that nobody asked for room.
        if waiting >= PROMISED && !commit.memtable.has_room() {
            commit.memtable.keep_room(room(engine, waiting)?);
        }
        return Ok(false);
    }
    if waiting == 0 && !is_long_to_replay && !has_many_edits {
        let is_full = |commit: &Commit| used + bytes as u64 > slowing::memtable_bytes_max(engine, commit);
        while is_full(commit) && grow(engine, commit) {}
        if !is_full(commit) {
            return Ok(false);
        }
    }
    if waiting >= waiting_max(engine) {
        return Err(no_room(engine, waiting));
    }
    let room = if waiting + 1 >= PROMISED { Some(room(engine, waiting)?) } else { None };
    rotate(engine, commit, None);
    if let Some(room) = room {
        commit.memtable.keep_room(room);
    }
    Ok(true)
}

/// Lets the active memtable of a far store, where each flush and each merge of what flushes brought
/// costs requests, take more than the sixteenth of the memory that every database is promised: up
/// to its share of the quarter that memtables may take, as long as nothing waits to be flushed and
/// the budget has room. A size that was set is kept to. Says whether it may take more now.
fn grow(background: &Background, commit: &mut Commit) -> bool {
    let options = background.options.load();
    if commit.is_short || options.memtable_bytes.is_some() || background.objects.performance().is_none() {
        return false;
    }
    let budget = background.budget();
    let step = options.memtable_bytes();
    let share = options.memory_bytes.min(budget.bytes()) / 4 / budget.members().max(1);
    if step + commit.grown_bytes + step > share {
        return false;
    }
    let Some(room) = budget.room(step) else { return false };
    commit.memtable.keep_room(room);
    commit.grown_bytes += step;
    true
}

/// Room in the budget for another memtable, beside those that it promises to every database.
///
/// # Errors
/// `Busy` when there is none. It comes with this database's own flushes, too.
fn room(background: &Background, waiting: usize) -> Result<Room> {
    background.budget().room(background.options.memtable_bytes()).ok_or_else(|| no_room(background, waiting))
}

#[cold]
fn no_room(background: &Background, waiting: usize) -> Error {
    let message = format!("{waiting} memtables wait for their flush");
    let busy =
        Error::new(ErrorKind::Busy, message).advice("wait for the flush, or give the database more memory");
    match background.troubles.of(Work::FLUSH) {
        Some(error) => busy.source(error),
        None => busy,
    }
}

/// Seals the active memtable, with what was ingested since, and begins the next.
fn rotate(engine: &Sight, commit: &mut Commit, ingested: Option<Arc<Ingested>>) {
    let (memtable, writer) = Memtable::create(engine.budget(), engine.options.memtable_bytes());
    (commit.log_bytes, commit.grown_bytes) = (0, 0);
    let (before, has_ingested) = (engine.view().generation, ingested.is_some());
    let sealed = Arc::new(Sealed {
        memtable: std::mem::replace(&mut commit.memtable, Arc::clone(&memtable)),
        last_sequence: SequenceNumber(commit.last),
        log_end: Some(commit.log_end),
        keyspace_edits: std::mem::take(&mut commit.keyspace_edits),
        ingested,
        old_logs: std::mem::take(&mut commit.old_logs),
        buried: Mutex::default(),
    });
    commit.writer = writer;
    show_sealed(engine, &sealed, Some(memtable));
    let (dead_runs, generations) = (engine.catalog.dead_runs(), (before, engine.view().generation));
    if has_ingested {
        dead_runs.forget(commit.last, generations);
    } else {
        dead_runs.take_along(commit.last, generations);
    }
}

/// Shows a memtable that was sealed, and in its place another.
fn show_sealed(engine: &Sight, sealed: &Arc<Sealed>, active: Option<Arc<Memtable>>) {
    engine.change_view(|view| {
        let mut waiting = Vec::with_capacity(view.waiting.len() + 1);
        waiting.push(Arc::clone(sealed));
        waiting.extend(view.waiting.iter().cloned());
        let active = active.unwrap_or_else(|| Arc::clone(&view.active));
        let generation = view.generation + 1;
        match sealed.ingested {
            Some(_) => {
                let with_tables = view.with_tables(&engine.versions, &engine.manifest.state(), waiting);
                View { active, generation, ..with_tables }
            }
            None => View { active, waiting, version: Arc::clone(&view.version), kept_by: None, generation },
        }
    });
}

/// Seals the active memtable, full or not, and says up to which sequence number all must be
/// flushed.
pub(crate) fn seal(engine: &Engine) -> SequenceNumber {
    let last = seal_what_is_there(engine, &mut engine.stream.commit.lock());
    engine.work.raise();
    last
}

fn seal_what_is_there(engine: &Engine, commit: &mut Commit) -> SequenceNumber {
    if !commit.memtable.is_empty() || !commit.keyspace_edits.is_empty() || !commit.old_logs.is_empty() {
        rotate(engine, commit, None);
    }
    SequenceNumber(commit.last)
}

/// Seals the active memtables of several streams at one moment, the main one first, then the others
/// by number: nothing is committed to any of them meanwhile. `is_held`: what comes after is not
/// flushed. Says up to where each must be flushed.
pub(crate) fn seal_together(engines: &[Arc<Engine>], is_held: bool) -> Vec<SequenceNumber> {
    let last = {
        let mut commits: Vec<_> = engines.iter().map(|engine| engine.stream.commit.lock()).collect();
        let seal = |(engine, commit): (&Arc<Engine>, &mut MutexGuard<'_, Commit>)| {
            let last = seal_what_is_there(engine, commit);
            if is_held {
                engine.stream.flush_up_to.store(last.0, Ordering::Release);
            }
            last
        };
        engines.iter().zip(&mut commits).map(seal).collect()
    };
    engines.iter().for_each(|engine| engine.work.raise());
    last
}

/// Seals the memtable when the log has ended, once: the flush of the newest memtable un-names
/// it. Nothing is committed until another log stands. Says whether it has ended.
pub(crate) fn seal_ended_log(engine: &Engine) -> bool {
    let mut commit = engine.stream.commit.lock();
    if commit.log.ended().is_none() {
        return false;
    }
    if std::mem::replace(&mut commit.is_log_given_up, true) {
        return true;
    }
    let id = commit.log.id;
    // From here on no record names it again.
    engine.manifest.give_up_log(id);
    commit.log.log().give_up(MAIN_LANE);
    let state = engine.manifest.state();
    if is_enabled(Mutant::EndedLogUnnamedBeforeTables) {
        drop(engine.manifest.commit(vec![Edit::LogUnnamed { epoch: id.epoch.0, lane: id.lane }]));
    } else if let Some(log) = state.logs().get(&id).filter(|_| !is_enabled(Mutant::EndedLogStaysNamed)) {
        commit.old_logs.push(LogRecord { id, configuration: log.configuration.clone() });
    }
    rotate(engine, &mut commit, None);
    true
}

/// Whether writes are in memory that no log holds, or none that lives.
pub(crate) fn has_unlogged(engine: &Engine) -> bool {
    let commit = engine.stream.commit.lock();
    commit.log.ended().is_some() || commit.unlogged > engine.counters.flushed.load(Ordering::Acquire)
}

/// Commits a batch and says how it will end.
pub(crate) fn write(engine: &Arc<Engine>, prepared: Prepared, durability: Durability) -> Op<()> {
    if prepared.batch.is_empty() && prepared.invalid.is_none() {
        return Op::ready(engine.check_writable());
    }
    let committed = check_in_flight(engine, durability)
        .and_then(|()| commit(engine, Content::Batch(&prepared), durability));
    match committed {
        Ok(committed) => acknowledge(engine, committed, durability),
        Err(error) if stands_in_line(engine, &error) => {
            Op::ticket(stand_in_line(engine, Wanted::Batch(prepared), durability, error), ())
        }
        Err(error) => Op::ready(Err(error)),
    }
}

/// Whether a write whose commit failed so stands in line for another log: its append ended the log,
/// and nobody knows whether it is in there. It is in no memtable, and writes that were called after
/// it must not be there without it; so it is appended again, before them, once what the ended log
/// may hold of it is never replayed. Until then a successor may find it: it was neither
/// acknowledged nor refused.
#[cold]
fn is_for_another_log(health: &Health, error: &Error) -> bool {
    let is_unknown = !took_no_effect(error)
        && !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::NotFound | ErrorKind::Bug);
    is_unknown
        && health.main_log().ended().is_some()
        && !health.is_stopping()
        && health.check_writable().is_ok()
}

/// Whether a write whose commit failed so stands in line.
fn stands_in_line(health: &Health, error: &Error) -> bool {
    error.kind() == ErrorKind::Busy || is_for_another_log(health, error)
}

/// Commits one entry and says how it will end. Allocates nothing unless the write must be waited
/// for.
#[inline]
pub(crate) fn write_one(
    engine: &Arc<Engine>,
    keyspace: &Arc<KeyspaceInfo>,
    kind: EntryKind,
    key: &[u8],
    value: &[u8],
    durability: Durability,
) -> Op<()> {
    let one = match One::new(keyspace, kind, key, value) {
        Ok(one) => one,
        Err(error) => return Op::ready(Err(error)),
    };
    match check_in_flight(engine, durability).and_then(|()| commit(engine, Content::One(&one), durability)) {
        Ok(committed) => acknowledge(engine, committed, durability),
        Err(error) if stands_in_line(engine, &error) => {
            Op::ticket(stand_in_line(engine, Wanted::Batch(one.to_prepared()), durability, error), ())
        }
        Err(error) => Op::ready(Err(error)),
    }
}

/// As [`write`], but gives the batch back when there is no room.
pub(crate) fn try_write(
    engine: &Arc<Engine>,
    prepared: Prepared,
    durability: Durability,
) -> std::result::Result<Op<()>, (Error, Prepared)> {
    if prepared.batch.is_empty() && prepared.invalid.is_none() {
        return Ok(Op::ready(engine.check_writable()));
    }
    let committed = check_in_flight(engine, durability)
        .and_then(|()| commit(engine, Content::Batch(&prepared), durability));
    match committed {
        Ok(committed) => Ok(acknowledge(engine, committed, durability)),
        Err(error) if error.kind() == ErrorKind::Busy => Err((error, prepared)),
        Err(error) if is_for_another_log(engine, &error) => {
            Ok(Op::ticket(stand_in_line(engine, Wanted::Batch(prepared), durability, error), ()))
        }
        Err(error) => Ok(Op::ready(Err(error))),
    }
}

/// Makes durable what the log was given so far.
pub(crate) fn sync(engine: &Arc<Engine>) -> Op<()> {
    if let Err(error) = engine.check_writable() {
        return Op::ready(Err(error));
    }
    let committed = so_far(&engine.stream.commit.lock());
    match committed.end {
        Some(LogOffset::ZERO) => Op::ready(Ok(())),
        _ => acknowledge(engine, committed, Durability::Durable),
    }
}

/// All that the log was given so far, as one commit.
fn so_far(commit: &Commit) -> Committed {
    Committed {
        end: Some(commit.log_end),
        lane: commit.log.id.lane,
        accepted: None,
        delay: Duration::ZERO,
        rotated: false,
        stall_changed: false,
        wants_time: false,
    }
}

/// The operation of a write that was committed.
pub(crate) fn acknowledge(engine: &Arc<Engine>, committed: Committed, durability: Durability) -> Op<()> {
    acknowledge_with(engine, committed, durability, ())
}

/// The operation of a write that was committed, which gives `value`.
pub(crate) fn acknowledge_with<T>(
    engine: &Arc<Engine>,
    committed: Committed,
    durability: Durability,
    value: T,
) -> Op<T> {
    if durability != Durability::Durable && committed.accepted.is_none() && committed.delay.is_zero() {
        return Op::ready(Ok(value));
    }
    Op::ticket(Box::new(WriteTicket::new(Arc::clone(engine), committed, durability)), value)
}

#[cfg(test)]
mod tests;
