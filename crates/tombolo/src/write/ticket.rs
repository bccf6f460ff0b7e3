//! Waiting for a write: for its delay, for acceptance, for the sync. Waiting for its turn before
//! that is in `line`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tombolo_env::{BoxFuture, Completion, Env, Instant};
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use crate::engine::{Committed, Engine};
use crate::op::Ticket;
use crate::options::Durability;

/// A write that is committed and not yet acknowledged.
pub(super) struct WriteTicket {
    engine: Arc<Engine>,
    delayed_until: Option<Instant>,
    sleep: Option<BoxFuture<'static, ()>>,
    accepted: Option<Completion<Result<()>>>,
    /// What must be durable; `None` when nothing must, or it is.
    end: Option<LogOffset>,
    /// Of which lane.
    lane: u32,
    syncing: Option<Completion<Result<()>>>,
    /// Whether the write counts as in flight, and as one whose sync nobody has begun.
    counted: bool,
    unstarted: bool,
}

impl fmt::Debug for WriteTicket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WriteTicket").field("end", &self.end).finish_non_exhaustive()
    }
}

impl WriteTicket {
    pub(super) fn new(engine: Arc<Engine>, committed: Committed, durability: Durability) -> WriteTicket {
        let durable = durability == Durability::Durable;
        let delayed_until = (!committed.delay.is_zero()).then(|| engine.env.now() + committed.delay);
        let mut ticket = WriteTicket {
            engine,
            delayed_until,
            sleep: None,
            accepted: committed.accepted,
            end: committed.end.filter(|_| durable),
            lane: committed.lane,
            syncing: None,
            counted: durable,
            unstarted: false,
        };
        if durable {
            ticket.engine.stream.in_flight.fetch_add(1, Ordering::Relaxed);
            // The first of several is left to its waiter, which does the sync without a hand-off. A
            // second one means that writes are pipelined: the sync had better run meanwhile.
            if ticket.engine.stream.unstarted.fetch_add(1, Ordering::Relaxed) > 0 {
                ticket.engine.stream.unstarted.fetch_sub(1, Ordering::Relaxed);
                ticket.begin_sync();
            } else {
                ticket.unstarted = true;
            }
        }
        ticket
    }

    fn mark_started(&mut self) {
        if std::mem::take(&mut self.unstarted) {
            self.engine.stream.unstarted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn begin_sync(&mut self) {
        self.mark_started();
        if let (Some(end), None) = (self.end, &self.syncing) {
            self.syncing = Some(self.engine.durable(self.lane, end));
        }
    }

    fn uncount(&mut self) {
        self.mark_started();
        if std::mem::take(&mut self.counted) {
            self.engine.stream.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What an error of acceptance or sync means: the write is in the memtable, and may or may not
    /// be in the log.
    fn ended(&mut self, result: Result<()>) -> Result<()> {
        self.end = None;
        self.uncount();
        result.map_err(|error| {
            self.engine.note(&error);
            self.engine.sync_failed(self.lane, &error);
            match error.kind() {
                ErrorKind::Retry | ErrorKind::Busy | ErrorKind::Closed | ErrorKind::DeadlineExceeded => {
                    Error::new(
                        ErrorKind::OutcomeUnknown,
                        format!("the write was made, but is not known to be durable: {error}"),
                    )
                    .source(error)
                }
                _ => error,
            }
        })
    }

    fn acceptance(&mut self, result: Option<Result<()>>) -> Result<()> {
        self.accepted = None;
        let result = result.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::OutcomeUnknown, "the log ended before it accepted the write"))
        });
        result.or_else(|error| {
            // A log that has not taken it in time goes on with it, and with what follows it.
            if error.kind() != ErrorKind::DeadlineExceeded {
                self.engine.log_ended(self.lane, &error);
            }
            self.ended(Err(error))
        })
    }
}

fn log_ended() -> Result<()> {
    Err(Error::new(ErrorKind::OutcomeUnknown, "the log ended before the write was durable"))
}

impl Ticket for WriteTicket {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.begin_sync();
        if let Some(until) = self.delayed_until {
            let env = &self.engine.env;
            ready!(self.sleep.get_or_insert_with(|| env.sleep_until(until)).as_mut().poll(context));
            (self.delayed_until, self.sleep) = (None, None);
        }
        if let Some(accepted) = &mut self.accepted {
            let result = ready!(Pin::new(accepted).poll(context));
            self.acceptance(result)?;
        }
        match &mut self.syncing {
            Some(syncing) => {
                let result = ready!(Pin::new(syncing).poll(context)).unwrap_or_else(log_ended);
                self.syncing = None;
                Poll::Ready(self.ended(result))
            }
            None => Poll::Ready(self.ended(Ok(()))),
        }
    }

    fn try_end(&mut self) -> Option<Result<()>> {
        self.begin_sync();
        if self.accepted.is_none() && self.syncing.is_none() {
            return Some(self.ended(Ok(())));
        }
        match self.poll_end(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    fn wait_end(&mut self) -> Result<()> {
        let env = self.engine.env.clone();
        self.mark_started();
        if let Some(until) = self.delayed_until.take() {
            env.block_on(env.sleep_until(until));
        }
        if let Some(accepted) = self.accepted.take() {
            let result = env.block_on(accepted);
            self.acceptance(result)?;
        }
        let result = match (self.syncing.take(), self.end) {
            (Some(syncing), _) => env.block_on(syncing).unwrap_or_else(log_ended),
            (None, Some(end)) => self.engine.sync(self.lane, end),
            (None, None) => Ok(()),
        };
        self.ended(result)
    }

    fn waits_for(&self) -> &'static str {
        match (&self.delayed_until, &self.accepted) {
            (Some(_), _) => "background work, which writers are slowed by",
            (None, Some(_)) => "the log to accept it",
            (None, None) => "the log to have it durable",
        }
    }

    fn env(&self) -> Env {
        self.engine.env.clone()
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        // A write that nobody waits for any more still becomes durable.
        self.begin_sync();
        self.uncount();
    }
}
