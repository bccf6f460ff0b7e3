//! Standing by for a writer: `register → watch its signs of life, the newest state in memory → claim, and open`.
//!
//! - [`judge`]: when a writer is given up; a machine without IO.
//!
//! Invariants:
//! 1. Watching is for liveness only. What is safe is so because of the claim, the fence and the replay of an ordinary opening.
//! 2. Whoever stands by claims only while the epoch that it gave up is the newest: of several, one takes over, and the others go on standing
//!    by for that one.

mod judge;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use crate::engine::Engine;
use crate::liveness::{LOOK_IDLE, RENEW, asked_period, newest_sign, put_sign};
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::names::{self, Sign};
use crate::{lifecycle, recovery, write};
use judge::{Judge, Verdict};

/// How somebody stands by. Set the fields that matter and take the rest from [`Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyOptions {
    /// A writer that gives no sign of life for so long is replaced. It is asked for four in that time. Shorter than the store's slowest
    /// puts, it replaces writers that live: which loses nothing, but time. Default: 1 s.
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
/// A writer that has never given a sign may not have looked for those who stand by yet.
const UNSEEN_MAX: Duration = LOOK_IDLE.saturating_add(Duration::from_secs(15));
/// Pause after an attempt to take over that failed.
const PAUSE: Duration = Duration::from_millis(200);

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
        let mut watch = Watch { request, options, chain, judge, id, renewal: 0 };
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
        names::standby(self.chain.tip().incarnation, self.id, period_ms, renewal)
    }

    async fn renew(&mut self) -> Result<()> {
        self.renewal += 1;
        put_sign(self.chain.io(), &self.record(self.renewal)).await?;
        if self.renewal > 1 {
            self.chain.io().delete(&self.record(self.renewal - 1)).await?;
        }
        Ok(())
    }

    /// Waits until the writer is gone or hands over, and takes over.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Corrupt`, `Unsupported`, `Invalid`, `PermissionDenied`, `Bug` of taking over. What passes
    /// is tried again.
    pub(crate) async fn take_over(mut self) -> Result<Arc<Engine>> {
        let env = self.request.env.clone();
        let (mut renewed, mut advanced) = (env.now(), env.now());
        loop {
            let began = env.now();
            let sign = newest_sign(self.chain.io(), self.chain.tip().incarnation).await;
            let verdict = match sign {
                Ok(sign) => self.judge.observe(began, env.now(), sign),
                Err(error) => {
                    // Without the store nobody takes over, and nobody is judged.
                    tracing::warn!(%error, "standing by: the store does not answer");
                    self.judge.heard_nothing(env.now());
                    Verdict::Wait
                }
            };
            if verdict == Verdict::Gone
                && let Some(engine) = self.succeed().await?
            {
                return Ok(engine);
            }
            let now = env.now();
            if now.since(renewed) >= RENEW {
                renewed = now;
                if let Err(error) = self.renew().await {
                    tracing::warn!(%error, "standing by: the record could not be renewed; it is tried again");
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

    /// Keeps the newest state in memory, and learns of other writers.
    async fn advance(&mut self) -> Result<()> {
        match self.chain.advance().await {
            Ok(()) => self.judge.succeeded(self.epoch().0, self.request.env.now()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported) => return Err(error),
            Err(error) => tracing::warn!(%error, "standing by: following the chain failed; it is tried again"),
        }
        Ok(())
    }

    /// Takes over, unless another did, or it fails for a passing reason.
    async fn succeed(&mut self) -> Result<Option<Arc<Engine>>> {
        let gone = self.epoch();
        self.advance().await?;
        if self.epoch() != gone {
            return Ok(None);
        }
        tracing::info!(epoch = %gone, "the writer is gone; taking over");
        match recovery::open_on(self.request.clone(), Some(self.chain.tip().clone())).await {
            Ok(engine) => {
                // Best effort: the writer that it now is would find the record dead.
                if let Err(error) = self.chain.io().delete(&self.record(self.renewal)).await {
                    tracing::debug!(%error, "the record of standing by stays until its lease ends");
                }
                Ok(Some(engine))
            }
            Err(error) => match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::PermissionDenied | ErrorKind::Bug => {
                    Err(error)
                }
                _ => {
                    tracing::warn!(%error, "taking over failed; it is tried again");
                    self.request.env.sleep(PAUSE).await;
                    self.advance().await?;
                    Ok(None)
                }
            },
        }
    }
}

/// Hands over to whoever stands by: tells that it will, flushes, closes, and tells that it has.
pub(crate) async fn hand_over(engine: &Arc<Engine>) -> Result<()> {
    engine.check_writable()?;
    let (io, incarnation, epoch) = (engine.manifest.io().clone(), engine.context.incarnation, engine.context.epoch.0);
    let Some(period) = asked_period(&io, incarnation).await? else {
        return Err(Error::new(ErrorKind::NotFound, "nobody stands by for this database").advice("start a standby, or close the database"));
    };
    put_sign(&io, &names::alive(incarnation, epoch, Sign::Leaving)).await?;
    // Writes go on while it learns that, and while most of what would be replayed is flushed.
    engine.env.sleep(period).await;
    let last = write::seal(engine);
    lifecycle::flushed(engine, last).await?;
    lifecycle::close(engine).await?;
    put_sign(&io, &names::alive(incarnation, epoch, Sign::Left)).await
}
