//! A second database that follows a first one: `the newest state of the source, pinned → the tables
//! that the mirror lacks, copied and read back → what the source has in memory, as tables of the
//! mirror's own → one commit of the mirror's chain`.
//!
//! So every state of a mirror is a consistent cut of its source, and it is opened like any database
//! once its mark is taken away: see [`Mirror::promote`]. Its numbers, epochs and chain are its own.
//!
//! - [`plan`]: which edits make the one state of the other. Pure.
//! - [`work`]: one round; the process that mirrors holds the mirror's claim.
//! - [`copy`]: tables on their way.
//! - [`digest`]: the same ranges of keys, read on both sides.
//! - [`roles`]: a mirror takes its source's place.
//!
//! Invariants:
//! 1. Tables of the source that a round copies are pinned until it has committed; the pin of the
//!    state that is shown stays until the next one is pinned.
//! 2. A table is named by the mirror only after it was read back, every block of it.
//! 3. A mirror never shows less than it has shown.
//! 4. Nobody claims a mirror but who mirrors the same source, and one at a time; a claim that comes
//!    later ends that of before, whose late records count as nothing.

mod copy;
mod digest;
mod plan;
mod roles;
mod work;

pub use digest::{Difference, Verified};
pub use roles::{HandedOver, MirrorState, Promoted};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, TaskClass};
use tombolo_storage::backoff::is_passing;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::Builder;
use crate::op::Op;
use crate::signal::Turn;
use work::Work;

/// How a mirror is kept. Set the fields that matter and take the rest from [`Default`]: later
/// versions may have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How often [`Mirror::follow`] publishes a new state. Each time writes what the source has in
    /// memory again, if that has changed. Default: 10 s.
    pub period: Duration,
    /// Most bytes a second that it reads of the source's tables; 0: no bound. Default: no bound.
    pub bytes_per_second_max: u64,
    /// Compares some of the keys after each publishing, round and round: about as many bytes as one
    /// table has. Default: yes.
    pub verify: bool,
}

impl Default for MirrorOptions {
    fn default() -> MirrorOptions {
        MirrorOptions { period: Duration::from_secs(10), bytes_per_second_max: 0, verify: true }
    }
}

/// What a mirror shows, and what it is at.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MirrorStatus {
    /// All writes of the source up to here are in the mirror, and none after.
    pub sequence: u64,
    /// The newest write of the source that is known.
    pub source_sequence: u64,
    /// When the source was seen to have nothing newer, in milliseconds since the Unix epoch; 0:
    /// nothing was published yet.
    pub unix_ms: u64,
    /// How long ago that is.
    pub lag: Duration,
    /// Publishings of this process.
    pub published: u64,
    /// Tables that it has copied, and their bytes.
    pub tables_copied: u64,
    /// See `tables_copied`.
    pub bytes_copied: u64,
    /// Tables that the round at work has still to copy, and their bytes.
    pub tables_left: u64,
    /// See `tables_left`.
    pub bytes_left: u64,
    /// Entries that were compared, and how often all of them were.
    pub entries_verified: u64,
    /// See `entries_verified`.
    pub rounds_verified: u64,
    /// What the last round failed with, if it did; it is made again.
    pub error: Option<Error>,
}

impl MirrorStatus {
    /// Writes of the source that are not in the mirror yet.
    pub fn lag_writes(&self) -> u64 {
        self.source_sequence.saturating_sub(self.sequence)
    }
}

/// A mirror that this process keeps: a second database that shows consistent states of a first one,
/// in another store or beside it, and takes its place when that is lost ([`Mirror::promote`]), or
/// in exchange ([`Mirror::hand_over`]). Disturbs no writer. Nobody opens the mirror by mistake; it
/// may be read like any database. Cheap to clone; all clones are one.
///
/// ```no_run
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::{Db, Mirror, MirrorOptions};
///
/// let source = Db::builder("file:///var/lib/orders");
/// let target = Db::builder("s3://bucket/orders");
/// let mirror = Mirror::begin(source, target, MirrorOptions::default()).wait()?;
/// mirror.refresh().wait()?;
/// println!("{} writes behind", mirror.status().lag_writes());
/// mirror.close().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mirror(Arc<Inner>);

struct Inner {
    env: Env,
    options: MirrorOptions,
    status: Arc<Mutex<MirrorStatus>>,
    turn: Turn,
    /// `None` while a round is at work, and once it is closed.
    work: Mutex<Option<Box<Work>>>,
    stopping: AtomicBool,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mirror").field("status", &self.status()).finish()
    }
}

/// The world of one of two databases.
fn world(source: &Builder, target: &Builder) -> Env {
    source.env.clone().or_else(|| target.env.clone()).unwrap_or_else(Env::real)
}

/// Starts a verb about databases.
fn start<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    env: Env,
    name: &'static str,
    verb: impl FnOnce(Env) -> F,
) -> Op<T> {
    Op::start(&env.clone(), TaskClass::Background, name, verb(env))
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the mirror was closed")
}

/// Whether a round that failed so is worth another. The next one waits for a record of which it was
/// not known whether it is in place.
fn is_worth_another(error: &Error) -> bool {
    is_passing(error)
        || matches!(error.kind(), ErrorKind::PinLost | ErrorKind::OutOfSpace | ErrorKind::OutcomeUnknown)
}

impl Mirror {
    /// Begins to mirror `source` to `target`, with the settings and operators of `source`. The
    /// target is empty, or a mirror of this database already, which goes on from there; or this
    /// database was a mirror of it and has taken its place: tables that both have are not copied
    /// again.
    ///
    /// # Errors
    /// `NotFound` without a database; `AlreadyExists` when the target holds an ordinary one, and
    /// `Invalid` when it is a mirror of another; `Unsupported` of a source with streams, whenever
    /// the first one begins ([`Mirror::refresh`] then); `InUse` when somebody mirrors to it already
    /// ([`crate::TakeOver::Always`] of the target takes it from them); those of both stores.
    pub fn begin(source: Builder, target: Builder, options: MirrorOptions) -> Op<Mirror> {
        start(world(&source, &target), "mirror", async move |env| {
            let status = Arc::<Mutex<MirrorStatus>>::default();
            let work = Work::begin(&env, source, target, options, Arc::clone(&status)).await?;
            let (turn, stopping) = (Turn::default(), AtomicBool::new(false));
            let work = Mutex::new(Some(Box::new(work)));
            Ok(Mirror(Arc::new(Inner { env, options, status, turn, work, stopping })))
        })
    }

    /// What a database is, if nobody may write to it: a mirror, or one that has moved. Of a mirror,
    /// it asks the source as well, and says exactly what the mirror lacks. Disturbs nobody.
    ///
    /// # Errors
    /// `NotFound` without a database; those of its own store. What the source's place says goes
    /// into the answer.
    pub fn state(of: Builder) -> Op<Option<MirrorState>> {
        start(world(&of, &of), "state of a mirror", async move |env| roles::state_of(&env, &of).await)
    }

    /// Makes a mirror a database that is written: takes its mark away, and says what of its source
    /// is not in it. Costs a look at the source, if that answers, and two records.
    ///
    /// # Errors
    /// `Invalid` when it is no mirror; when its source answers, or may be there and could not be
    /// asked (it has moved, has a log of its own, is damaged), unless `force` says to go on:
    /// [`Mirror::hand_over`] loses nothing; and, forced or not, when the source is about to move
    /// there. `NotFound` when it has published nothing yet; `InUse`
    /// while somebody mirrors to it, unless it may be taken ([`crate::TakeOver::Always`]).
    pub fn promote(mirror: Builder, force: bool) -> Op<Promoted> {
        start(world(&mirror, &mirror), "promotion of a mirror", async move |env| {
            roles::promote(&env, &mirror, force).await
        })
    }

    /// Ends a move from `source` to `target` of which only the last step was not done: the source's
    /// mark says where it has moved. `None` when more is to be done: [`Mirror::begin`], and
    /// [`Mirror::hand_over`].
    ///
    /// # Errors
    /// `Invalid` when the target was promoted without all that the source holds; those of both
    /// stores.
    pub fn finish_move(source: Builder, target: Builder) -> Op<Option<HandedOver>> {
        start(world(&source, &target), "end of a move", async move |env| {
            roles::resume(&env, &source, &target).await
        })
    }

    /// Undoes a move that has not ended: `source` may be written again, and `target` stays its
    /// mirror.
    ///
    /// # Errors
    /// `Invalid` when the source does not move, and when the target has taken its place already;
    /// those of both stores.
    pub fn undo_move(source: Builder, target: Builder) -> Op<()> {
        start(world(&source, &target), "undo of a move", async move |env| {
            roles::move_back(&env, &source, &target).await
        })
    }

    /// What it shows, and what it is at. Asks nobody.
    pub fn status(&self) -> MirrorStatus {
        let mut status = self.0.status.lock().clone();
        if status.unix_ms > 0 {
            let now = crate::engine::unix_ms(&self.0.env);
            status.lag = Duration::from_millis(now.saturating_sub(status.unix_ms));
        }
        status
    }

    fn verb<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        name: &'static str,
        verb: impl FnOnce(Mirror) -> F,
    ) -> Op<T> {
        Op::start(&self.0.env, TaskClass::Background, name, verb(self.clone()))
    }

    /// Publishes the newest state of the source: when it ends, all that was acknowledged there as
    /// durable before the call is in the mirror; but what came in by tables from outside, or into
    /// keyspaces made since, only once the source has flushed it.
    ///
    /// Costs what following the source does, a read and a write of each table that is new there,
    /// and a record of the mirror.
    ///
    /// # Errors
    /// `Fenced` when another process has claimed the mirror; `NotFound` when the source was
    /// destroyed; `OutOfSpace`, `Corrupt` and those of both stores, after which it may be done
    /// again: what was copied counts.
    pub fn refresh(&self) -> Op<()> {
        self.verb("refresh of a mirror", async |mirror| mirror.round().await)
    }

    /// Publishes again and again, until the mirror is closed.
    ///
    /// # Errors
    /// As [`Mirror::refresh`], but for failures worth another try, which [`MirrorStatus::error`]
    /// says; `Corrupt` when both sides differ.
    pub fn follow(&self) -> Op<()> {
        self.verb("mirror", async |mirror| {
            loop {
                let next = mirror.0.env.now() + mirror.0.options.period;
                match mirror.round().await {
                    Err(_) if mirror.0.stopping.load(Ordering::Acquire) => return Ok(()),
                    Err(error) if is_worth_another(&error) => {
                        tracing::warn!(%error, "mirroring failed; it is tried again");
                    }
                    round => round?,
                }
                while mirror.0.env.now() < next {
                    if mirror.0.stopping.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    let step = mirror.0.env.now() + Duration::from_millis(100);
                    mirror.0.env.sleep_until(step.min(next)).await;
                }
            }
        })
    }

    /// Compares all keys: both sides are read whole, at one sequence number, and digests of ranges
    /// of keys are compared. Publishes first.
    ///
    /// # Errors
    /// As [`Mirror::refresh`]; those of reading. Differences are in the answer.
    pub fn verify(&self) -> Op<Verified> {
        self.verb("verification of a mirror", async |mirror| {
            mirror.turn(async |work| work.verify_all().await).await
        })
    }

    /// The mirror takes the place of its source: takes the source from its writer, publishes all
    /// that it holds, marks it as moved, so that nobody claims it by mistake, and takes the
    /// mirror's mark away. What each of both lacks then is nothing.
    ///
    /// A source builder that says `TakeOver::Never` leaves a source alone that somebody has open.
    /// The source takes no writes from the call on. Publish before, so that it is short. When it
    /// fails, the source is as it was, or it is marked as moving: [`Mirror::begin`] and this call
    /// go on from there, [`Mirror::undo_move`] undoes it.
    ///
    /// # Errors
    /// As [`Mirror::refresh`] and [`crate::Builder::open`], `InUse` among them; `Invalid` when the
    /// source is a mirror itself, `Unsupported` when it has streams: none takes it from anybody.
    /// The mirror is closed then, too.
    pub fn hand_over(self) -> Op<HandedOver> {
        self.verb("exchange of roles", async |mirror| {
            let _turn = mirror.0.turn.take().await;
            let work = mirror.0.work.lock().take().ok_or_else(closed)?;
            mirror.0.stopping.store(true, Ordering::Release);
            roles::hand_over(*work).await
        })
    }

    /// Ends it, and gives its pins at the source back. The mirror stays as it is.
    ///
    /// # Errors
    /// None so far.
    pub fn close(&self) -> Op<()> {
        self.0.stopping.store(true, Ordering::Release);
        self.verb("close of a mirror", async |mirror| {
            let _turn = mirror.0.turn.take().await;
            let work = mirror.0.work.lock().take();
            if let Some(work) = work {
                work.close().await;
            }
            Ok(())
        })
    }

    async fn round(&self) -> Result<()> {
        let round = self.turn(async |work| work.round().await).await;
        self.0.status.lock().error = round.as_ref().err().cloned();
        round
    }

    /// Does something while nobody else is at work.
    async fn turn<T>(&self, verb: impl AsyncFnOnce(&mut Work) -> Result<T>) -> Result<T> {
        let _turn = self.0.turn.take().await;
        if self.0.stopping.load(Ordering::Acquire) {
            return Err(closed());
        }
        let mut work = self.0.work.lock().take().ok_or_else(closed)?;
        let done = match verb(&mut work).await {
            Err(error) => Err(work.judge_claim(error).await),
            done => done,
        };
        *self.0.work.lock() = Some(work);
        done
    }
}
