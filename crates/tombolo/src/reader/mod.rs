//! Reading beside a live writer, which needs not know of it:
//! `follow the chain → pin its tables → follow the log → show both as one cut`.
//!
//! - [`follow`]: one round, which brings the view up to date.
//! - [`driven`]: a reader whose owner says when.
//! - [`tasks`]: when rounds are made, and the heartbeats of pins.
//!
//! A reader goes on making rounds. A look makes one, and stays at what that shows. It needs no
//! right to write: where it cannot pin, it reads without, and a table that is deleted meanwhile is
//! a loud `PinLost`.
//!
//! Invariants:
//! 1. A view is one prefix of the order of the logged writes, with all that tables hold: what a
//!    round read is shown at its end, at once.
//! 2. Nothing is shown that a takeover could take back: of tables what a proven state names, of a
//!    log the entries that are sealed or known to be durable.
//! 3. A round that begins now shows all that is acknowledged as durable now: the newest state is
//!    proven by a list that begins after the round, and the logs that it names are read after that.
//! 4. Every table of a view is pinned, and the pin proven (rule 12), before the view is shown; the
//!    view holds the pin. Of a look that cannot pin, no read of a table that is gone is an answer.

mod driven;
mod follow;
mod order;
mod tasks;

pub(crate) use driven::Driven;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo_env::{Env, Instant};
use tombolo_storage::{Error, ErrorKind, LogStore, ObjectStore, Result};

use crate::budget::MemoryBudget;
use crate::engine::{Engine, Following, Health, ReadOnly};
use crate::flash::FlashCache;
use crate::manifest::driver::follow::ChainFollower;
use crate::operator::Operators;
use crate::options::Options;
use crate::recovery::{WithoutClaim, refused, without_claim};
use follow::{Follower, Pinning, Pins, pin_newest};

/// How a reader follows the writer. Set the fields that matter and take the rest from [`Default`]:
/// later versions may have more.
///
/// ```no_run
/// use std::time::Duration;
/// use tombolo::{Db, ReaderOptions};
///
/// # fn main() -> tombolo::Result<()> {
/// let options = ReaderOptions { lag: Duration::from_millis(100), ..ReaderOptions::default() };
/// let reader = Db::builder("s3://bucket/orders").open_reader(options).wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// How far the reader is behind at most, while the store answers and a machine is not
    /// overloaded: every write that was acknowledged as durable so long ago is visible. Two rounds
    /// of a read and a list are made in that time, and a look at the log. Default: 1 s.
    pub lag: Duration,
    /// Reads end with `Retry` once the reader is behind by more: because the store does not answer,
    /// or the process stood still. A reader that may show anything, however old, takes
    /// [`Duration::MAX`]. Default: 10 s.
    pub lag_max: Duration,
    /// How long the writer keeps tables for a reader of which it hears nothing. A heartbeat is put
    /// every third of it. A cursor or snapshot of a process that stood still for longer ends with
    /// `PinLost`. Default: 1 min.
    pub lease: Duration,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions {
            lag: Duration::from_secs(1),
            lag_max: Duration::from_secs(10),
            lease: Duration::from_secs(60),
        }
    }
}

impl ReaderOptions {
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: &str, expected: String, found: Duration| {
            Err(Error::new(ErrorKind::Invalid, format!("the reader's {what} is out of range"))
                .expected(expected)
                .found(format!("{found:?}")))
        };
        if !(LAG_MIN..=LAG_MAX).contains(&self.lag) {
            return refuse("lag", format!("{LAG_MIN:?} to {LAG_MAX:?}"), self.lag);
        }
        if self.lag_max < self.lag {
            return refuse("lag_max", format!("at least the lag, {:?}", self.lag), self.lag_max);
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return refuse("lease", format!("{LEASE_MIN:?} to {LEASE_MAX:?}"), self.lease);
        }
        Ok(())
    }
}

const LAG_MIN: Duration = Duration::from_millis(1);
const LAG_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How an open view is kept up to date.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// By rounds.
    Follow(ReaderOptions),
    /// Not at all.
    Look,
}

/// What to open.
pub(crate) struct FollowRequest {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Without it only what tables hold is shown, which is for looks alone.
    pub(crate) log_store: Option<Arc<dyn LogStore>>,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) flash: Option<Arc<FlashCache>>,
    pub(crate) operators: Operators,
    pub(crate) how: How,
}

/// Opens a reader that follows, or a look: on return it shows everything that was acknowledged as
/// durable before the call.
pub(crate) async fn open(request: FollowRequest) -> Result<Arc<Engine>> {
    let (how, began) = (request.how, request.env.now());
    let Begun { engine, following, follower, pins, reader } = begin(request).await?;
    let Some(mut follower) = follower else {
        tasks::keep(&engine, &following, pins, reader.lease);
        return Ok(opened(engine, began));
    };
    if let Err(error) = follower.round().await {
        follower.release_all().await;
        return Err(error);
    }
    tasks::keep(&engine, &following, pins, reader.lease);
    match how {
        How::Follow(_) => tasks::follow(&engine, &following, follower, reader.lag / 2),
        How::Look => {
            engine.counters.replayed_bytes.store(follower.replayed_bytes(), Ordering::Relaxed);
        }
    }
    Ok(opened(engine, began))
}

/// A reader that has shown the newest state, and has made no round yet.
struct Begun {
    engine: Arc<Engine>,
    following: Arc<Following>,
    /// What makes rounds; a look without logs needs none.
    follower: Option<Follower>,
    pins: Arc<Pins>,
    reader: ReaderOptions,
}

async fn begin(request: FollowRequest) -> Result<Begun> {
    let FollowRequest { env, place, objects, log_store, options, budget, flash, operators, how } = request;
    let membership = budget.join(options.memtable_bytes())?;
    let began = env.now();
    let mut chain = ChainFollower::open(&env, &objects).await?;
    if let Some(log_store) = &log_store {
        crate::manifest::chain::open::check_log(&chain.tip().state, &log_store.identity())?;
    }
    let (reader, pinning) = match how {
        How::Follow(reader) => (reader, Pinning::Needed),
        How::Look => {
            (ReaderOptions { lag_max: Duration::MAX, ..ReaderOptions::default() }, Pinning::WherePossible)
        }
    };
    let kept = pin_newest(&mut chain, reader.lease, pinning).await?;
    let (incarnation, state, tip) = (chain.tip().incarnation, Arc::clone(&kept.state), chain.tip().clone());
    let memtable_bytes = options.memtable_bytes();
    let kept_by = kept.pin.clone();
    let engine = without_claim(WithoutClaim {
        env,
        place,
        objects,
        log_store: log_store.clone(),
        incarnation,
        state,
        options,
        budget,
        membership,
        kept_by,
        flash,
        operators,
    })?;
    let following = Arc::new(Following::new(reader.lag_max, began));
    let shown = Arc::clone(&following);
    let reads = match how {
        How::Follow(_) => ReadOnly::Following(shown),
        How::Look => ReadOnly::Look { following: shown, tables_only: log_store.is_none() },
    };
    for engine in engine.with_streams() {
        engine.set_read_only(reads.clone(), &refused());
    }
    if log_store.is_none() && matches!(how, How::Look) {
        follow::check_one_moment(&engine.manifest.state())?;
        let pins = Arc::new(Pins::new(tip, kept.pin.as_ref()));
        return Ok(Begun { engine, following, follower: None, pins, reader });
    }
    let context = engine.context.clone();
    let lease = (reader.lease, pinning);
    let follower = Follower::new(&engine, log_store, context, chain, lease, kept, memtable_bytes)?;
    let pins = Arc::clone(&follower.pins);
    Ok(Begun { engine, following, follower: Some(follower), pins, reader })
}

fn opened(engine: Arc<Engine>, began: Instant) -> Arc<Engine> {
    let nanos = u64::try_from(engine.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
    engine.counters.open_nanos.store(nanos, Ordering::Relaxed);
    engine
}

/// Resolves once a round that began after this call has ended.
///
/// # Errors
/// What the round failed with; `Closed`.
pub(crate) async fn refresh(health: &Health) -> Result<()> {
    let Some(following) = health.following() else {
        return Err(Error::new(ErrorKind::Bug, "only a reader that follows is refreshed"));
    };
    let ticket = following.request();
    loop {
        let ended = following.ended.subscribe();
        if health.has_stopped() {
            return Err(Error::new(ErrorKind::Closed, "the reader was closed"));
        }
        if following.is_served(ticket) {
            return following.error().map_or(Ok(()), Err);
        }
        let _woken = ended.await;
    }
}

#[cfg(test)]
mod tests;
