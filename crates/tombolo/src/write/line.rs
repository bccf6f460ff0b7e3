//! The line of writes that found no room: they take their places in the order of their calls, when
//! a flush or a sync has made room.
//!
//! Invariants:
//! 1. While the line is not empty no other write commits: so a thread's call order is sequence
//!    order, whether or not it waits.
//! 2. The line's bytes are bounded. A write beyond that stands in line as long as somebody waits
//!    for it: its bytes are held by its operation, and it is refused, nothing of it taken, when its
//!    caller only asks how it ended, or drops it.
//! 3. A caller that waits moves the line, as do flushes and a task of its own: nobody waits for
//!    somebody who does not.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Env, TaskClass, completion};
use tombolo_storage::{Error, ErrorKind, Result};

use super::change::Change;
use super::ticket::WriteTicket;
use super::{Content, Prepared, check_in_flight, commit_locked, finish_commit, stands_in_line};
use crate::budget::{Category, Charge};
use crate::engine::{Commit, Committed, Engine, InLine};
use crate::guard::guarded;
use crate::op::Ticket;
use crate::options::Durability;

/// Pauses of the one that moves the line: flushes move it as well, so that these matter only when
/// nothing else happens.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// A write in line.
#[derive(Debug)]
struct Waiting {
    wanted: Place,
    /// What of `line_bytes` is its.
    bytes: usize,
    durability: Durability,
    committed: Option<Result<Committed>>,
    turn: Completer<Result<WriteTicket>>,
}

/// What somebody in line waits to commit.
#[derive(Debug)]
pub(super) enum Wanted {
    Batch(Prepared),
    Change(Change),
}

impl Wanted {
    /// Room that it needs in a memtable, or about what it takes of memory.
    fn bytes(&self) -> usize {
        match self {
            Wanted::Batch(prepared) => prepared.memtable_bytes,
            Wanted::Change(change) => change.bytes(),
        }
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Wanted::Batch(prepared) => prepared.batch.payload_bytes(),
            Wanted::Change(change) => change.bytes(),
        }
    }

    fn commit(&self, engine: &Engine, commit: &mut Commit, durability: Durability) -> Result<Committed> {
        match self {
            Wanted::Batch(prepared) => commit_locked(engine, commit, Content::Batch(prepared), durability),
            Wanted::Change(change) => change.commit(engine, commit),
        }
    }
}

/// What waits, with what it takes of the memory budget.
#[derive(Debug)]
struct Charged {
    wanted: Wanted,
    _charge: Charge,
}

/// What its operation holds as well: `None` once one side has taken it.
type Held = Arc<Mutex<Option<Charged>>>;

/// Where that of a write in line is.
#[derive(Debug)]
enum Place {
    Line(Charged),
    Held(Held),
}

impl InLine for Waiting {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_given_up(&self) -> bool {
        matches!(&self.wanted, Place::Held(held) if held.lock().is_none())
    }

    fn advance(&mut self, engine: &Engine, commit: &mut Commit) -> bool {
        if let Err(error) = engine.check_writable() {
            self.committed = Some(Err(error));
            return true;
        }
        if engine.is_stopping() {
            self.committed = Some(Err(Error::new(
                ErrorKind::Closed,
                "the database stopped before there was room for the write",
            )));
            return true;
        }
        // When all that was appended is durable, those in flight have only not been taken yet,
        // perhaps by the very thread that waits here.
        if check_in_flight(engine, self.durability).is_err() && commit.log.durable_through() < commit.log_end
        {
            return false;
        }
        let committed = match &self.wanted {
            Place::Line(charged) => charged.wanted.commit(engine, commit, self.durability),
            Place::Held(held) => {
                let mut held = held.lock();
                let Some(charged) = &*held else { return true };
                let committed = charged.wanted.commit(engine, commit, self.durability);
                if !matches!(&committed, Err(error) if stands_in_line(engine, error)) {
                    *held = None;
                }
                committed
            }
        };
        match committed {
            Err(error) if stands_in_line(engine, &error) => false,
            committed => {
                self.committed = Some(committed);
                true
            }
        }
    }

    fn tell(self: Box<Self>, engine: &Arc<Engine>) {
        let Waiting { durability, committed, turn, .. } = *self;
        if let Some(committed) = committed {
            let committed = finish_commit(engine, committed);
            turn.complete(
                committed.map(|committed| WriteTicket::new(Arc::clone(engine), committed, durability)),
            );
        }
    }
}

/// Lets those in line take their places as far as there is room.
pub(crate) fn advance_line(engine: &Arc<Engine>) {
    let mut done = Vec::new();
    let mut is_stuck = false;
    {
        let mut commit = engine.stream.commit.lock();
        while let Some(mut first) = commit.line.pop_front() {
            if !first.advance(engine, &mut commit) {
                commit.line.push_front(first);
                is_stuck = true;
                break;
            }
            commit.line_bytes -= first.bytes();
            done.push(first);
        }
    }
    for write in done {
        write.tell(engine);
    }
    if is_stuck {
        // A memtable may have been sealed before there was no room for something else, and its
        // flush may be what makes room.
        engine.work.raise();
        engine.tell_of_log();
    }
}

/// Moves the line until it is empty: after the sync that the log may wait for, and again after a
/// pause, whatever room depends on.
async fn move_line(engine: &Arc<Engine>) {
    let mut pause = FIRST_PAUSE;
    loop {
        advance_line(engine);
        let (log, log_end) = {
            let commit = engine.stream.commit.lock();
            if commit.line.is_empty() {
                return;
            }
            (Arc::clone(&commit.log), commit.log_end)
        };
        if log.ended().is_none() && log.durable_through() < log_end {
            let _ended = log.durable(log_end).await;
            advance_line(engine);
        }
        engine.env.sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Puts a write that found no room in line.
pub(super) fn stand_in_line(
    engine: &Arc<Engine>,
    wanted: Wanted,
    durability: Durability,
    refusal: Error,
) -> Box<dyn Ticket> {
    let (turn, ticket) = completion();
    // Outside the commit section: the cache gives way to it.
    let charge = engine.budget().charge(Category::Queues, wanted.payload_bytes() as u64);
    let wanted_bytes = wanted.bytes();
    let charged = Charged { wanted, _charge: charge };
    let mut held = None;
    enter_line(engine, wanted_bytes, |bytes| {
        let wanted = if bytes < wanted_bytes {
            let place = Arc::new(Mutex::new(Some(charged)));
            let refusal = match refusal.kind() {
                ErrorKind::Busy => {
                    refusal.context("too many writes wait for room; nothing of this one was taken")
                }
                _ => refusal,
            };
            held = Some((Arc::clone(&place), refusal));
            Place::Held(place)
        } else {
            Place::Line(charged)
        };
        Box::new(Waiting { wanted, bytes, durability, committed: None, turn })
    });
    Box::new(LineTicket { engine: Arc::clone(engine), turn: ticket, held, progress: None, committed: None })
}

/// Puts a write of so many bytes in line. `make` is told what of the line's bytes are its: all of
/// them, or none when they would be too many, and its operation is to hold them.
pub(super) fn enter_line(
    engine: &Arc<Engine>,
    wanted_bytes: usize,
    make: impl FnOnce(usize) -> Box<dyn InLine>,
) {
    let first = {
        let mut commit = engine.stream.commit.lock();
        let is_beyond = !commit.line.is_empty()
            && (commit.line_bytes + wanted_bytes) as u64 > engine.options.memtable_bytes();
        let bytes = if is_beyond { 0 } else { wanted_bytes };
        commit.line_bytes += bytes;
        commit.line.push_back(make(bytes));
        commit.line.len() == 1
    };
    if first {
        let engine = Arc::clone(engine);
        let env = engine.env.clone();
        let failed = Arc::clone(&engine);
        let moving = guarded(async move { move_line(&engine).await }, move || failed.tell_failure());
        env.spawn(TaskClass::Foreground, "line", moving).detach();
    }
    // Room may have come before the write stood in line.
    advance_line(engine);
}

/// Waits for a turn, and then for the write.
struct LineTicket {
    engine: Arc<Engine>,
    turn: Completion<Result<WriteTicket>>,
    /// For a write beyond what the line may hold: its batch, and the error for a caller that does
    /// not wait.
    held: Option<(Held, Error)>,
    progress: Option<Completion<()>>,
    committed: Option<WriteTicket>,
}

impl LineTicket {
    /// Takes a write beyond what the line may hold back, if it was not committed meanwhile; the
    /// error to answer with.
    fn give_up(&mut self) -> Option<Error> {
        let (held, refusal) = self.held.take()?;
        let batch = held.lock().take();
        drop(batch?);
        let mut given_up = Vec::new();
        {
            let mut commit = self.engine.stream.commit.lock();
            while commit.line.back().is_some_and(|last| last.is_given_up()) {
                given_up.extend(commit.line.pop_back());
            }
        }
        // Outside the commit section: it wakes those who are told nothing more.
        drop(given_up);
        Some(refusal)
    }

    /// Ready once the write is committed.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.committed.is_none() {
            if let Poll::Ready(turn) = Pin::new(&mut self.turn).poll(context) {
                let ended = || {
                    Err(Error::new(
                        ErrorKind::Closed,
                        "the database stopped before there was room for the write",
                    ))
                };
                self.committed = Some(turn.unwrap_or_else(ended)?);
                break;
            }
            if let Some(progress) = &mut self.progress
                && Pin::new(progress).poll(context).is_pending()
            {
                return Poll::Pending;
            }
            self.progress = Some(self.engine.progress.subscribe());
            advance_line(&self.engine);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for LineTicket {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Ticket for LineTicket {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        std::task::ready!(self.poll_turn(context))?;
        self.committed.as_mut().map_or(Poll::Pending, |ticket| ticket.poll_end(context))
    }

    fn try_end(&mut self) -> Option<Result<()>> {
        match self.poll_turn(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.give_up().map(Err),
            Poll::Ready(Err(error)) => Some(Err(error)),
            Poll::Ready(Ok(())) => self.committed.as_mut().and_then(Ticket::try_end),
        }
    }

    fn wait_end(&mut self) -> Result<()> {
        let env = self.engine.env.clone();
        env.block_on(std::future::poll_fn(|context| self.poll_turn(context)))?;
        self.committed.as_mut().map_or(Ok(()), Ticket::wait_end)
    }

    fn waits_for(&self) -> &'static str {
        self.committed.as_ref().map_or("room in memory, or for a log", Ticket::waits_for)
    }

    fn env(&self) -> Env {
        self.engine.env.clone()
    }
}
