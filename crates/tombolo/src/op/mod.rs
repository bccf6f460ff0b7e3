//! One verb, two faces: an operation that is ready, or a ticket for its end.
//!
//! Every verb of the engine returns an [`Op`]. What memory can answer is ready when the call
//! returns, without an allocation.
//!
//! Invariants:
//! 1. An operation has started when the call returns, but for reads from near that miss
//!    ([`driven`]); the calls of one thread take their places in the order of the calls.
//! 2. Dropping a read cancels it; dropping a write leaves it to complete, unless it waits for room
//!    in memory that earlier writes, which wait before it, take up: such a write is taken only
//!    while somebody waits for it.
//! 3. No waker runs under a lock of the engine.
//!
//! The sync behind a durable write is shared: it begins when somebody waits for the write or drops
//! it, or makes another one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Completer, Completion, Env, Instant, Task, TaskClass, completion};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::blocks;
use crate::deadline::{self, Limit, Scope};
use crate::value::Value;
use driven::Driven;

mod driven;
#[cfg(test)]
mod tests;

/// An operation that has started: `.await` it, or [`Op::wait`] for it on a thread that runs no
/// tasks.
///
/// A get that misses memory, of tables in files of this host, takes no thread: it begins when it is
/// polled or waited for, or with the next read of its thread, and goes on with that.
///
/// Dropping a read cancels it. Dropping a write leaves it to complete, and nobody learns how; but
/// one that finds no room in memory, and more than a memtable's bytes of earlier writes that wait
/// for it, is not taken before somebody waits: dropped, nothing of it takes effect.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::Op;
///
/// let three: Op<u32> = Op::ready(Ok(3));
/// assert_eq!(three.wait()?, 3);
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation tells how it ended only to whoever asks: `.await`, `.wait()` or `.try_take()`"]
pub struct Op<T>(State<T>);

enum State<T> {
    /// Invariant: `Some` until the result was taken.
    Ready(Option<Result<T>>),
    /// Work on the pool, unless a waiting thread takes it over before the pool has begun.
    Running(Running<T>),
    /// A read that missed, and what the caller wants of the value, run on the caller's thread.
    Reading(Running<Option<Value>>, Option<Finish<T>>),
    /// A read from near that missed, which goes on where it is polled or waited for.
    Driven(Driven<T>),
    /// The same, and what the caller wants of the value.
    DrivenReading(Driven<Option<Value>>, Option<Finish<T>>),
    /// Something that a waiting thread may bring about itself.
    Ticket(Box<dyn Ticket>, Option<Given<T>>),
    /// Another one, up to a deadline.
    Limited(Box<Limited<T>>),
    /// Another one, whose end is told to somebody.
    Told(Box<Told<T>>),
}

/// Is told how an operation ended.
type Tell<T> = Box<dyn FnMut(&Result<T>) + Send>;

/// An operation, and who is told how it ended.
struct Told<T> {
    op: Option<Op<T>>,
    tell: Tell<T>,
}

impl<T> Told<T> {
    fn end(&mut self, result: Result<T>) -> Result<T> {
        (self.tell)(&result);
        result
    }
}

/// What an operation gives once its ticket has ended.
enum Given<T> {
    Value(T),
    /// A result that is known only then.
    Found(Box<dyn FnOnce() -> Result<T> + Send>),
}

/// An operation that ends when its deadline passes, if not before; it is dropped then.
struct Limited<T> {
    env: Env,
    scope: Arc<Scope>,
    sleep: Option<BoxFuture<'static, ()>>,
    /// What to do when the deadline has passed, where the operation knows.
    advice: Option<&'static str>,
    /// `None` once it has ended.
    op: Option<Op<T>>,
}

type Finish<T> = Box<dyn FnOnce(Option<Value>) -> T + Send>;

/// Something to wait for that a waiting thread may bring about itself.
pub(crate) trait Ticket: Send {
    /// Polls for the end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<()>>;
    /// How it ended, if it has; never waits.
    fn try_end(&mut self) -> Option<Result<()>>;
    /// Brings the end about on the calling thread.
    fn wait_end(&mut self) -> Result<()>;
    /// What it waits for, in words.
    fn waits_for(&self) -> &'static str;
    /// The world to wait in.
    fn env(&self) -> Env;
}

impl<T> fmt::Debug for Op<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Ready(_) => "ready",
            State::Running(_) | State::Reading(..) | State::Driven(_) | State::DrivenReading(..) => "running",
            State::Ticket(..) => "waiting",
            State::Limited(_) => "waiting up to a deadline",
            State::Told(_) => "waiting, and recorded",
        };
        formatter.debug_tuple("Op").field(&state).finish()
    }
}

/// Operations are moved freely: what must stay in place is boxed.
impl<T> Unpin for Op<T> {}

fn ended_without_result<T>() -> Result<T> {
    Err(Error::new(
        ErrorKind::Closed,
        "the engine stopped before the operation ended, or its result was taken already",
    ))
}

fn give<T>(given: &mut Option<Given<T>>) -> Result<T> {
    match given.take() {
        Some(Given::Value(value)) => Ok(value),
        Some(Given::Found(find)) => find(),
        None => ended_without_result(),
    }
}

fn finish<T>(value: Result<Option<Value>>, finish: &mut Option<Finish<T>>) -> Result<T> {
    match finish.take() {
        Some(finish) => value.map(finish),
        None => ended_without_result(),
    }
}

impl<T> Op<T> {
    /// An operation that has ended already.
    pub fn ready(result: Result<T>) -> Op<T> {
        Op(State::Ready(Some(result)))
    }

    /// An operation that waits for `ticket` and then gives `value`.
    pub(crate) fn ticket(ticket: Box<dyn Ticket>, value: T) -> Op<T> {
        Op(State::Ticket(ticket, Some(Given::Value(value))))
    }

    /// An operation that waits for `ticket` and then gives what `find` finds.
    pub(crate) fn ticket_for(
        ticket: Box<dyn Ticket>,
        find: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Op<T> {
        Op(State::Ticket(ticket, Some(Given::Found(Box::new(find)))))
    }

    /// An operation that is started by `start`, and ends within `limit`.
    pub(crate) fn limited(
        limit: Limit,
        env: &Env,
        what: &'static str,
        start: impl FnOnce() -> Op<T>,
    ) -> Op<T> {
        match limit.scope(env, what) {
            Some(scope) => Op::ending(env, scope.within(start), scope, None),
            None => start(),
        }
    }

    fn ending(env: &Env, op: Op<T>, scope: Arc<Scope>, advice: Option<&'static str>) -> Op<T> {
        match op.0 {
            State::Ready(_) => op,
            _ => Op(State::Limited(Box::new(Limited {
                env: env.clone(),
                scope,
                sleep: None,
                advice,
                op: Some(op),
            }))),
        }
    }

    /// The result if it is there, else the operation back. Never waits.
    ///
    /// # Errors
    /// `Err(self)` when the operation has not ended.
    pub fn try_take(mut self) -> std::result::Result<Result<T>, Op<T>> {
        let result = match &mut self.0 {
            State::Ready(result) => Some(result.take().unwrap_or_else(ended_without_result)),
            State::Running(running) => running.try_take(),
            State::Reading(running, then) => running.try_take().map(|value| finish(value, then)),
            State::Driven(driven) => driven.try_take(),
            State::DrivenReading(driven, then) => driven.try_take().map(|value| finish(value, then)),
            State::Ticket(ticket, given) => ticket.try_end().map(|end| end.and_then(|()| give(given))),
            State::Limited(limited) => limited.try_take(),
            State::Told(told) => match told.op.take().map(Op::try_take) {
                Some(Ok(result)) => Some(told.end(result)),
                Some(Err(op)) => {
                    told.op = Some(op);
                    None
                }
                None => Some(ended_without_result()),
            },
        };
        result.ok_or(self)
    }
}

impl<T: Send + 'static> Op<T> {
    /// Starts `work` on the pool; dropping the operation cancels it.
    pub(crate) fn start_read(
        env: &Env,
        name: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        Op(State::Running(Running::start(env, TaskClass::Foreground, name, Box::pin(work))))
    }

    /// A read of tables that are near (`is_near`), which needs no thread of the pool, or of others,
    /// which starts there.
    pub(crate) fn read(
        env: &Env,
        is_near: bool,
        name: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        if is_near {
            Op(State::Driven(Driven::new(env, scoped(Box::pin(work)))))
        } else {
            Op::start_read(env, name, work)
        }
    }

    /// The same of a value; `then` runs on the thread that takes the result.
    pub(crate) fn read_with(
        env: &Env,
        is_near: bool,
        name: &'static str,
        work: impl Future<Output = Result<Option<Value>>> + Send + 'static,
        then: impl FnOnce(Option<Value>) -> T + Send + 'static,
    ) -> Op<T> {
        if is_near {
            let driven = Driven::new(env, scoped(Box::pin(work)));
            return Op(State::DrivenReading(driven, Some(Box::new(then))));
        }
        let running = Running::start(env, TaskClass::Foreground, name, Box::pin(work));
        Op(State::Reading(running, Some(Box::new(then))))
    }

    /// Starts `work`, whose steps belong together: only the wait for it ends within `limit`. It
    /// goes on to its end, and its requests have no deadline.
    pub(crate) fn begin(
        limit: Limit,
        env: &Env,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        let op = Op::start(env, TaskClass::Foreground, what, work);
        let Some(scope) = limit.scope(env, what) else { return op };
        scope.note("its steps, which go on");
        Op::ending(
            env,
            op,
            scope,
            Some("look what came of it before it is done again: it goes on to its end"),
        )
    }

    /// Starts `work` on the pool; it runs to its end whether or not somebody waits.
    pub(crate) fn start(
        env: &Env,
        class: TaskClass,
        name: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        let mut running = Running::start(env, class, name, Box::pin(work));
        if let Some(task) = running.task.take() {
            task.detach();
        }
        Op(State::Running(running))
    }

    /// The same operation, of which `tell` hears how it ended. One that has ended is told of here.
    #[cold]
    pub(crate) fn told(self, mut tell: impl FnMut(&Result<T>) + Send + 'static) -> Op<T> {
        match self.try_take() {
            Ok(result) => {
                tell(&result);
                Op::ready(result)
            }
            Err(op) => Op(State::Told(Box::new(Told { op: Some(op), tell: Box::new(tell) }))),
        }
    }

    fn wait_told_until(self, deadline: Instant) -> Result<T> {
        match self.0 {
            State::Told(mut told) => {
                let result = told.op.take().map_or_else(ended_without_result, |op| op.wait_until(deadline));
                told.end(result)
            }
            other => Op(other).wait_until(deadline),
        }
    }

    /// Waits for the end on the calling thread, which may do the work itself. Needs no runtime.
    ///
    /// # Errors
    /// Those of the operation.
    ///
    /// # Panics
    /// Inside a task of the engine's pool or of a simulated world, unless the operation is ready:
    /// waiting there would stop what has to do the work.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            State::Ready(result) => result.unwrap_or_else(ended_without_result),
            State::Running(running) => running.wait(),
            State::Reading(running, mut then) => finish(running.wait(), &mut then),
            State::Driven(driven) => driven.wait(),
            State::DrivenReading(driven, mut then) => finish(driven.wait(), &mut then),
            State::Ticket(mut ticket, mut given) => {
                ticket.wait_end()?;
                give(&mut given)
            }
            State::Limited(limited) => limited.env.clone().block_on(Op(State::Limited(limited))),
            State::Told(mut told) => {
                let result = told.op.take().map_or_else(ended_without_result, Op::wait);
                told.end(result)
            }
        }
    }

    /// As [`Op::wait`], until `deadline`. A read is given up then; a write may still take effect.
    ///
    /// # Errors
    /// `DeadlineExceeded`, or those of the operation.
    ///
    /// # Panics
    /// As [`Op::wait`].
    pub fn wait_until(self, deadline: Instant) -> Result<T> {
        let env = match &self.0 {
            State::Ready(_) => return self.wait(),
            State::Running(running) => running.env.clone(),
            State::Reading(running, _) => running.env.clone(),
            State::Driven(driven) => driven.env.clone(),
            State::DrivenReading(driven, _) => driven.env.clone(),
            State::Ticket(ticket, _) => ticket.env(),
            State::Limited(limited) => limited.env.clone(),
            State::Told(_) => return self.wait_told_until(deadline),
        };
        let passed =
            || Err(Error::new(ErrorKind::DeadlineExceeded, "the deadline passed before the operation ended"));
        env.block_on_until(self, deadline).unwrap_or_else(passed)
    }
}

impl<T> Future for Op<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            State::Ready(result) => Poll::Ready(result.take().unwrap_or_else(ended_without_result)),
            State::Running(running) => running.poll(context),
            State::Reading(running, then) => {
                let value = ready!(running.poll(context));
                Poll::Ready(finish(value, then))
            }
            State::Driven(driven) => driven.poll(context),
            State::DrivenReading(driven, then) => {
                let value = ready!(driven.poll(context));
                Poll::Ready(finish(value, then))
            }
            State::Ticket(ticket, given) => {
                let end = ready!(ticket.poll_end(context));
                Poll::Ready(end.and_then(|()| give(given)))
            }
            State::Limited(limited) => limited.poll(context),
            State::Told(told) => {
                let Some(op) = &mut told.op else { return Poll::Ready(ended_without_result()) };
                let result = ready!(Pin::new(op).poll(context));
                told.op = None;
                Poll::Ready(told.end(result))
            }
        }
    }
}

impl<T> Limited<T> {
    /// The deadline has passed: the operation is dropped, which cancels a read.
    fn give_up(&mut self) -> Error {
        let waits_for = match self.op.as_ref().map(|op| &op.0) {
            Some(State::Ticket(ticket, _)) => Some(ticket.waits_for()),
            _ => None,
        };
        let passed = self.scope.passed(waits_for);
        self.op = None;
        let of_writes =
            || waits_for.map(|_| "the write may still take effect: read it to find out, or write it again");
        match self.advice.or_else(of_writes) {
            Some(advice) => passed.advice(advice),
            None => passed,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(op) = &mut self.op else { return Poll::Ready(ended_without_result()) };
        if let Poll::Ready(result) = Pin::new(op).poll(context) {
            self.op = None;
            return Poll::Ready(result);
        }
        let (env, scope) = (&self.env, &self.scope);
        ready!(self.sleep.get_or_insert_with(|| env.sleep_until(scope.deadline)).as_mut().poll(context));
        Poll::Ready(Err(self.give_up()))
    }

    fn try_take(&mut self) -> Option<Result<T>> {
        match self.op.take()?.try_take() {
            Ok(result) => return Some(result),
            Err(op) => self.op = Some(op),
        }
        (self.env.now() >= self.scope.deadline).then(|| Err(self.give_up()))
    }
}

/// Work that the pool runs, or a waiting thread in its stead.
struct Running<T> {
    env: Env,
    completion: Completion<Result<T>>,
    stealable: Arc<Stealable<T>>,
    /// Dropping it cancels the work. `None`: the work outlives this handle.
    task: Option<Task>,
}

/// The work itself with the place for its result, until the pool or a waiting thread takes both.
struct Stealable<T>(Mutex<Option<Work<T>>>);

type Work<T> = (BoxFuture<'static, Result<T>>, Completer<Result<T>>);

/// Work that goes on within the deadline that the thread has now, and counts its blocks for the
/// operation that the thread works at, where there is one.
fn scoped<T: Send + 'static>(work: BoxFuture<'static, Result<T>>) -> BoxFuture<'static, Result<T>> {
    let work = match blocks::count() {
        Some(count) => count.over(work),
        None => work,
    };
    match deadline::scope() {
        Some(scope) => scope.over(work),
        None => work,
    }
}

impl<T: Send + 'static> Running<T> {
    fn start(
        env: &Env,
        class: TaskClass,
        name: &'static str,
        work: BoxFuture<'static, Result<T>>,
    ) -> Running<T> {
        let work = scoped(work);
        let (completer, completion) = completion();
        let stealable = Arc::new(Stealable(Mutex::new(Some((work, completer)))));
        let taken = Arc::clone(&stealable);
        let task = env.spawn(class, name, async move {
            let work = taken.0.lock().take();
            if let Some((work, completer)) = work {
                completer.complete(work.await);
            }
        });
        Running { env: env.clone(), completion, stealable, task: Some(task) }
    }

    fn wait(self) -> Result<T> {
        let stolen = self.stealable.0.lock().take();
        match stolen {
            Some((work, _completer)) => self.env.block_on(work),
            None => self.env.block_on(self.completion).unwrap_or_else(ended_without_result),
        }
    }
}

impl<T> Running<T> {
    fn try_take(&mut self) -> Option<Result<T>> {
        self.completion.is_ready().then(|| self.completion.try_take().unwrap_or_else(ended_without_result))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.completion).poll(context).map(|result| result.unwrap_or_else(ended_without_result))
    }
}
