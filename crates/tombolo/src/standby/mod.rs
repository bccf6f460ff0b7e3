//! Standing by for a writer:
//! `register → watch its signs of life, the newest state in memory → claim, and open`.
//!
//! - [`judge`]: when a writer is given up; a machine without IO.
//!
//! Invariants:
//! 1. Watching is for liveness only. Safety comes from the claim, the fence and the
//!    replay of an ordinary opening.
//! 2. A standby claims only while the epoch that it gave up is the newest: of several, one
//!    takes over, and the others go on standing by for that one.

mod judge;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use crate::engine::{Engine, Store};
use crate::liveness::{
    RECORD_LEASE, RENEW, Standing, UNSEEN_MAX, is_there, newest_sign, put_sign, who_stands_by,
};
use crate::manifest::driver::Attempt;
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::driver::io::Io;
use crate::manifest::names::{self, Sign, StandbyRecord};
use crate::{lifecycle, manifest, recovery, write};
use judge::{Judge, Verdict};

/// How somebody stands by. Set the fields that matter and take the rest from [`Default`]: later
/// versions may have more.
///
/// ```no_run
/// use std::time::Duration;
/// use tombolo::{Db, StandbyOptions};
///
/// # fn main() -> tombolo::Result<()> {
/// let patient = StandbyOptions { silence_max: Duration::from_secs(5), ..StandbyOptions::default() };
/// let standby = Db::builder("s3://bucket/orders").stand_by(patient).wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyOptions {
    /// A writer that gives no sign of life for so long is replaced. It is asked for four in that
    /// time. Shorter than the store's slowest puts, it replaces writers that live: which loses
    /// nothing, but time. Default: 1 s.
    pub silence_max: Duration,
}

impl Default for StandbyOptions {
    fn default() -> StandbyOptions {
        StandbyOptions { silence_max: Duration::from_secs(1) }
    }
}

const SILENCE_MIN: Duration = Duration::from_millis(40);
const SILENCE_MAX: Duration = Duration::from_secs(60 * 60);
/// Signs asked for in the time of silence that ends a writer.
const SIGNS: u32 = 4;
/// Between two looks at a writer that is about to hand over.
const HURRY: Duration = Duration::from_millis(5);
/// A standby answers a writer that is leaving within the silence that it allows, and so
/// much more for the store.
const ANSWER_SLACK: Duration = Duration::from_secs(2);
/// How long a writer that has left waits to see that another took its place.
const TAKEN_MAX: Duration = Duration::from_secs(10);
/// Between two looks for that, at most.
const TAKEN_LOOK: Duration = Duration::from_millis(100);
/// Pause after an attempt to take over that failed, doubled with each that follows: each may leave
/// a claim, which stays for ever.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl StandbyOptions {
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        if (SILENCE_MIN..=SILENCE_MAX).contains(&self.silence_max) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "the silence that a writer is allowed is out of range")
            .expected(format!("{SILENCE_MIN:?} to {SILENCE_MAX:?}"))
            .found(format!("{:?}", self.silence_max)))
    }
}

/// One who stands by, before it takes over.
pub(crate) struct Watch {
    request: recovery::Request,
    options: StandbyOptions,
    chain: ChainFollower,
    judge: Judge,
    /// Its record's id, and the number of its newest renewal.
    id: u128,
    renewal: u64,
    /// When the newest renewal that went well began: counted from there, its lease ends before the
    /// writer takes it for ended.
    renewed: Instant,
    /// Looks that may do without a list.
    cheap_looks: u32,
    /// When the next attempt to take over may be made, and the pause after it if it fails.
    next_attempt: Instant,
    pause: Duration,
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watch").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

impl Watch {
    /// Loads the newest state and registers.
    ///
    /// # Errors
    /// `NotFound` when there is no database; `Invalid` for another log; those of the store.
    pub(crate) async fn begin(request: recovery::Request, options: StandbyOptions) -> Result<Watch> {
        let env = &request.env;
        let chain = ChainFollower::open(env, &request.objects).await?;
        crate::manifest::chain::open::check_log(&chain.tip().state, &request.log_store.identity())?;
        let judge = Judge::new(chain.tip().epoch().0, env.now(), options.silence_max, UNSEEN_MAX);
        let id = chain.io().random_u128();
        let renewed = env.now();
        let (next_attempt, pause) = (renewed, PAUSE_MIN);
        let mut watch = Watch {
            request,
            options,
            chain,
            judge,
            id,
            renewal: 0,
            renewed,
            cheap_looks: 0,
            next_attempt,
            pause,
        };
        watch.renew().await?;
        Ok(watch)
    }

    /// The epoch that it stands by for.
    pub(crate) fn epoch(&self) -> Epoch {
        self.chain.tip().epoch()
    }

    fn period(&self) -> Duration {
        self.options.silence_max / SIGNS
    }

    fn record(&self, renewal: u64) -> tombolo_storage::ObjectName {
        let period_ms = u64::try_from(self.period().as_millis()).unwrap_or(u64::MAX);
        let record = StandbyRecord { id: self.id, period_ms, beat: renewal, only_asks: false };
        names::standby(self.chain.tip().incarnation, record)
    }

    async fn renew(&mut self) -> Result<()> {
        let began = self.request.env.now();
        self.renewal += 1;
        put_sign(self.chain.io(), &self.record(self.renewal)).await?;
        self.renewed = began;
        if self.renewal > 1 {
            self.chain.io().delete(&self.record(self.renewal - 1)).await?;
        }
        Ok(())
    }

    /// Waits until the writer is gone or hands over, and takes over.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Corrupt`, `Unsupported`, `Invalid`, `Bug` of
    /// taking over. Passing errors are tried again, and so are refusals: the standby had
    /// the rights when it began, and they are mended while nobody else would take over.
    pub(crate) async fn take_over(mut self) -> Result<Arc<Engine>> {
        let env = self.request.env.clone();
        let mut advanced = env.now();
        let mut answered = false;
        loop {
            if let Err(error) = self.tell_anew_if_forgotten().await {
                tracing::warn!(%error, "standing by: the record could not be put again; it is tried again");
                env.sleep(self.period()).await;
                continue;
            }
            let verdict = match self.look().await {
                Ok((began, sign)) => {
                    let verdict = self.judge.observe(began, env.now(), sign);
                    if verdict != Verdict::Gone {
                        // What failed before did so against another writer.
                        self.pause = PAUSE_MIN;
                    }
                    verdict
                }
                Err(error) => {
                    // Without the store nobody takes over, and nobody is judged.
                    tracing::warn!(%error, "standing by: the store does not answer");
                    self.judge.heard_nothing(env.now());
                    Verdict::Wait
                }
            };
            if verdict == Verdict::Gone
                && env.now() >= self.next_attempt
                && let Some(engine) = self.succeed().await?
            {
                return Ok(engine);
            }
            let now = env.now();
            // A writer that is leaving stays until it sees a record renewed.
            let is_leaving = verdict == Verdict::Leaving;
            answered &= is_leaving;
            if now.since(self.renewed) >= RENEW || is_leaving && !answered {
                match self.renew().await {
                    Ok(()) => answered = is_leaving,
                    Err(error) => {
                        tracing::warn!(%error, "standing by: the record could not be renewed; it is tried \
                            again");
                    }
                }
            }
            if now.since(advanced) >= self.options.silence_max && verdict != Verdict::Leaving {
                advanced = now;
                self.advance().await?;
            }
            let pause = if verdict == Verdict::Leaving { HURRY.min(self.period()) } else { self.period() };
            env.sleep(pause).await;
        }
    }

    /// The newest sign, and when the request began that tells it. While the writer lives most looks
    /// ask only whether its next sign is there, for a twelfth of a list's price; one in [`SIGNS`]
    /// is a list, which shows a writer that is leaving, and those of a silent writer all are.
    async fn look(&mut self) -> Result<(Instant, Option<(u64, Sign)>)> {
        let (io, incarnation) = (self.chain.io(), self.chain.tip().incarnation);
        let expected = self.judge.next_beat();
        if let Some((epoch, beat)) = expected.filter(|_| self.cheap_looks > 0) {
            self.cheap_looks -= 1;
            let began = io.env.now();
            if is_there(io, &names::alive(incarnation, epoch, Sign::Beat(beat))).await? {
                return Ok((began, Some((epoch, Sign::Beat(beat)))));
            }
        }
        // It may have come and gone.
        let began = io.env.now();
        let newest = newest_sign(io, incarnation).await?;
        let is_news = newest.is_some_and(|(epoch, sign)| {
            expected.is_none_or(|(known, beat)| (epoch, sign) >= (known, Sign::Beat(beat)))
        });
        self.cheap_looks = if is_news { SIGNS - 1 } else { 0 };
        Ok((began, newest))
    }

    /// After standing still for long, or without the store: the writer may have taken the record
    /// for that of one who died, and its silence says nothing until it has learned better.
    async fn tell_anew_if_forgotten(&mut self) -> Result<()> {
        if self.request.env.now().since(self.renewed) < RECORD_LEASE
            || is_enabled(Mutant::StandbyForgottenTakesSilenceForDeath)
        {
            return Ok(());
        }
        self.renew().await?;
        let newest = newest_sign(self.chain.io(), self.chain.tip().incarnation).await?;
        self.judge.told_anew(self.request.env.now(), newest);
        Ok(())
    }

    /// Keeps the newest state in memory, and learns of other writers.
    async fn advance(&mut self) -> Result<()> {
        match self.chain.advance().await {
            Ok(()) => self.judge.succeeded(self.epoch().0, self.request.env.now()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported
                ) =>
            {
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(%error, "standing by: following the chain failed; it is tried again");
            }
        }
        Ok(())
    }

    /// Takes over, unless another did, or it fails for a passing reason.
    async fn succeed(&mut self) -> Result<Option<Arc<Engine>>> {
        let gone = self.epoch();
        self.advance().await?;
        let whoever = is_enabled(Mutant::StandbyReplacesWhoever);
        if self.epoch() != gone && !whoever {
            return Ok(None);
        }
        tracing::info!(epoch = %gone, "the writer is gone; taking over");
        let mut attempt = None;
        match recovery::open_on(
            self.request.clone(),
            Some(self.chain.tip().clone()).filter(|_| !whoever),
            &mut attempt,
        )
        .await
        {
            Ok(engine) => {
                // Best effort: the writer that it now is would find the record dead.
                if let Err(error) = self.chain.io().delete(&self.record(self.renewal)).await {
                    tracing::debug!(%error, "the record of standing by stays until its lease ends");
                }
                Ok(Some(engine))
            }
            Err(error) => match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Bug => {
                    Err(error)
                }
                _ => {
                    tracing::warn!(%error, "taking over failed; it is tried again");
                    self.has_failed(attempt).await?;
                    Ok(None)
                }
            },
        }
    }

    /// An attempt to take over failed. If its claim is the newest, there is no writer whose sign is
    /// worth waiting for.
    async fn has_failed(&mut self, attempt: Option<Attempt>) -> Result<()> {
        self.next_attempt = self.request.env.now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.advance().await?;
        if attempt.is_some_and(|attempt| attempt.is_newest(self.chain.tip())) {
            self.judge.is_without_writer(self.epoch().0, self.request.env.now());
        }
        Ok(())
    }
}

/// Hands over to a standby: tells that it will, waits for an answer, flushes, closes, tells
/// that it has, and sees another claim.
///
/// The record of one who died stays for a while: without an answer the writer stays, and says so.
pub(crate) async fn hand_over(engine: &Arc<Engine>) -> Result<()> {
    engine.check_writable()?;
    let (io, incarnation, epoch) =
        (engine.manifest.io().clone(), engine.context.incarnation, engine.context.epoch.0);
    let Some(known) = who_stands_by(&io, incarnation).await? else {
        return Err(nobody("nobody stands by for this database"));
    };
    let leaving = names::alive(incarnation, epoch, Sign::Leaving);
    let ready = async {
        put_sign(&io, &leaving).await?;
        answered(engine, &io, &known).await?;
        // Writes go on while most of what would be replayed is flushed.
        let last = write::seal(engine);
        lifecycle::flushed(engine, last).await
    };
    if let Err(error) = ready.await {
        if let Err(left) = io.delete(&leaving).await {
            tracing::warn!(error = %left, "handing over failed, and the sign of it stays: who stands by may \
                take over in {UNSEEN_MAX:?}");
        }
        return Err(error);
    }
    let closed = lifecycle::close(engine).await;
    // However that ended, this process writes no more.
    put_sign(&io, &names::alive(incarnation, epoch, Sign::Left)).await?;
    closed?;
    succeeded(engine, known.shortest).await
}

fn nobody(why: &str) -> Error {
    Error::new(ErrorKind::NotFound, why).advice("start a standby, or close the database")
}

/// Waits until one of those who stand by renews its record, or a new one comes. The records of the
/// dead are deleted meanwhile.
async fn answered(store: &Store, io: &Io, known: &Standing) -> Result<()> {
    let asked = store.env.now();
    // What records say was read from the store, and may be anything.
    let time_max = known.longest.saturating_mul(SIGNS).min(SILENCE_MAX) + ANSWER_SLACK;
    loop {
        store.env.sleep((known.shortest / 2).clamp(HURRY, ANSWER_SLACK)).await;
        let now = who_stands_by(io, store.context.incarnation).await?;
        let is_news =
            |(id, renewal): (&u128, &u64)| known.renewals.get(id).is_none_or(|before| renewal > before);
        match now {
            Some(now) if now.renewals.iter().any(is_news) => return Ok(()),
            Some(_) if store.env.now().since(asked) < time_max => {}
            _ => return Err(nobody("whoever stood by for this database does not answer")),
        }
    }
}

/// Waits until another has claimed the database.
async fn succeeded(store: &Store, period: Duration) -> Result<()> {
    let left = store.env.now();
    loop {
        match manifest::load(&store.env, &store.objects).await {
            Ok(newest)
                if newest.state.epoch() > store.context.epoch
                    || newest.incarnation > store.context.incarnation =>
            {
                return Ok(());
            }
            // Destroyed: it needs no writer.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Ok(_) if store.env.now().since(left) < TAKEN_MAX => {
                store.env.sleep(period.clamp(HURRY, TAKEN_LOOK)).await;
            }
            Ok(_) => {
                let message = format!(
                    "who stood by has not taken over within {TAKEN_MAX:?}: the database has no writer now"
                );
                return Err(Error::new(ErrorKind::DeadlineExceeded, message)
                    .advice("open it again, or start another standby; nothing is lost"));
            }
            Err(error) => {
                return Err(error
                    .context("the database was handed over, but whether another has taken it is not known"));
            }
        }
    }
}
