//! Whether somebody lives who has a database open, without a claim and without disturbing them:
//! `what its record says → what the operating system says → a sign of life that is asked for`.
//!
//! - A record of the chain says who claimed, and whether they have closed.
//! - Of a process on this host the operating system knows whether it runs. A log of one host alone
//!   has no writer that lives when that host was started since.
//! - Any other is asked as a standby asks: with a record that the writer looks for once a minute,
//!   and at once when it is asked already. Whatever it puts into the chain meanwhile is a sign too.
//!
//! All of it is for liveness only. What a claim that follows may do, the claim decides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{Env, Instant, clock};
use tombolo_storage::{Epoch, Error, ErrorKind, LogStore, ObjectStore, Result};

use super::{RENEW, UNSEEN_MAX, newest_sign, put_sign};
use crate::manifest::chain::open::check_log;
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::names::{self, Sign, StandbyRecord};
use crate::manifest::state::WriterState;

/// A process that has, or had, a database open as its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Writer {
    /// The epoch that it claimed.
    pub epoch: Epoch,
    /// The name of its host; empty when it is not known.
    pub host: String,
    /// The name of its program; empty when it is not known.
    pub program: String,
    /// Its process number.
    pub process: u32,
    /// When it claimed the database, in seconds since the Unix epoch, by its own clock.
    pub since_unix_seconds: u64,
}

impl Writer {
    pub(super) fn of(state: &WriterState) -> Writer {
        let WriterState { epoch, writer, .. } = state;
        Writer {
            epoch: *epoch,
            host: printable(&writer.host),
            program: printable(&writer.program),
            process: writer.process,
            since_unix_seconds: writer.since_unix_seconds,
        }
    }
}

/// What others have put into the store, without what would steer a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

impl fmt::Display for Writer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Writer { epoch, host, program, process, since_unix_seconds } = self;
        write!(formatter, "process {process}")?;
        if !program.is_empty() {
            write!(formatter, " ({program})")?;
        }
        if !host.is_empty() {
            write!(formatter, " on {host}")?;
        }
        write!(formatter, ", since {}, epoch {epoch}", clock::date(*since_unix_seconds))
    }
}

/// How it is known that a writer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Its process runs, says the operating system of this host.
    Process,
    /// It has given a sign of life, or a record, since it was asked, and so long after that.
    Answered(Duration),
}

/// Who has a database open as its writer: see [`crate::Builder::presence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is no database, or it was never opened.
    Nobody,
    /// The last writer has closed it.
    Closed(Writer),
    /// The last writer has ended without closing it, or gives no sign of life.
    Dead(Writer),
    /// It is open.
    Alive(Writer, Seen),
    /// Whether the last writer lives is not known: it was not waited for long enough.
    Unknown(Writer),
}

impl Presence {
    /// A writer that was asked for so long, and gave no sign, does not live.
    pub const WAIT_MAX: Duration = UNSEEN_MAX;

    /// Whether the database may be taken without disturbing anybody.
    ///
    /// # Errors
    /// `InUse`, with the writer's name, when it is open, or may be.
    pub fn check_free(&self) -> Result<()> {
        match self {
            Presence::Nobody | Presence::Closed(_) | Presence::Dead(_) => Ok(()),
            Presence::Alive(writer, seen) => Err(in_use(writer, *seen)),
            Presence::Unknown(writer) => Err(in_use_perhaps(writer)),
        }
    }
}

/// Somebody has the database open.
fn in_use(writer: &Writer, seen: Seen) -> Error {
    let seen = match seen {
        Seen::Process => "its process runs on this host".to_owned(),
        Seen::Answered(after) => format!("it gave a sign of life {after:.1?} after it was asked"),
    };
    Error::new(ErrorKind::InUse, format!("the database is open: {writer}")).found(seen).advice(
        "let that process do it, or take the database over: `TakeOver::Always`, or `--take-over` at the \
            prompt; that process is then fenced, and loses nothing that it has acknowledged",
    )
}

/// Perhaps somebody has.
fn in_use_perhaps(writer: &Writer) -> Error {
    Error::new(ErrorKind::InUse, format!("the database may be open: {writer}"))
        .advice("try again in a minute, or take the database over: `TakeOver::Always`, or `--take-over`")
}

/// How often a writer is asked for a sign.
const SIGN_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks at a writer that was asked: often at first, when one that is asked already
/// answers.
const PERIOD: Duration = Duration::from_millis(250);
const PERIOD_LATER: Duration = Duration::from_secs(1);
/// That long it is looked often.
const OFTEN: Duration = Duration::from_secs(3);

/// As [`crate::Builder::presence`].
pub(crate) async fn of(
    env: &Env,
    objects: &Arc<dyn ObjectStore>,
    log_store: &dyn LogStore,
    wait_max: Duration,
) -> Result<Presence> {
    let mut chain = match ChainFollower::open(env, objects).await {
        Ok(chain) => chain,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Presence::Nobody),
        Err(error) => return Err(error),
    };
    check_log(&chain.tip().state, &log_store.identity())?;
    look(&mut chain, log_store, wait_max).await
}

/// Says who writes to the newest state of `chain`, which it follows meanwhile.
///
/// # Errors
/// Those of the store.
pub(crate) async fn look(
    chain: &mut ChainFollower,
    log_store: &dyn LogStore,
    wait_max: Duration,
) -> Result<Presence> {
    loop {
        let state = Arc::clone(&chain.tip().state);
        let Some(writer) = state.writer() else { return Ok(Presence::Nobody) };
        if let Some(known) = at_once(&chain.io().env, log_store, writer) {
            return Ok(known);
        }
        if wait_max.is_zero() {
            return Ok(Presence::Unknown(Writer::of(writer)));
        }
        let id = chain.io().random_u128();
        let mut knock = Knock::new(chain, id);
        let answer = knock.wait(writer, wait_max).await;
        knock.leave().await;
        if let Some(presence) = answer? {
            return Ok(presence);
        }
    }
}

/// What records and the operating system say.
pub(super) fn at_once(env: &Env, log_store: &dyn LogStore, state: &WriterState) -> Option<Presence> {
    let (writer, there) = (Writer::of(state), &state.writer);
    if state.closed {
        return Some(Presence::Closed(writer));
    }
    if is_of_this_host(env, state) {
        return match env.process_lives(there.process, there.process_start)? {
            true => Some(Presence::Alive(writer, Seen::Process)),
            false => Some(Presence::Dead(writer)),
        };
    }
    let is_known = there.process_namespace != 0 && env.process_facts().namespace != 0;
    let is_of_boot = there.boot_id == env.boot_id();
    // Whatever wrote before this host was started does not any more.
    (is_known && !is_of_boot && log_store.is_of_one_host()).then_some(Presence::Dead(writer))
}

/// Whether the writer's process number means on this host, and in this namespace, what it meant to
/// the writer.
pub(super) fn is_of_this_host(env: &Env, state: &WriterState) -> bool {
    let namespace = env.process_facts().namespace;
    let there = &state.writer;
    namespace != 0 && there.process_namespace == namespace && there.boot_id == env.boot_id()
}

/// Asks a writer for signs of life.
pub(super) struct Knock<'a> {
    pub(super) chain: &'a mut ChainFollower,
    /// Its record's id, and the number of its newest renewal.
    id: u128,
    renewal: u64,
    /// When it began to ask, and when it last renewed its record.
    asked: Instant,
    renewed: Instant,
}

impl Knock<'_> {
    pub(super) fn new(chain: &mut ChainFollower, id: u128) -> Knock<'_> {
        let now = chain.io().env.now();
        Knock { chain, id, renewal: 0, asked: now, renewed: now }
    }

    pub(super) fn id(&self) -> u128 {
        self.id
    }

    /// Begins to ask.
    pub(super) async fn begin(&mut self) -> Result<()> {
        self.asked = self.chain.io().env.now();
        self.renew().await
    }

    /// Waits before the next look, and goes on asking.
    pub(super) async fn pause(&mut self) -> Result<()> {
        let env = self.chain.io().env.clone();
        let is_early = env.now().since(self.asked) < OFTEN;
        env.sleep(if is_early { PERIOD } else { PERIOD_LATER }).await;
        if env.now().since(self.renewed) >= RENEW {
            self.renew().await?;
        }
        Ok(())
    }

    fn record(&self, renewal: u64) -> tombolo_storage::ObjectName {
        let period_ms = u64::try_from(SIGN_PERIOD.as_millis()).unwrap_or(u64::MAX);
        let record = StandbyRecord { id: self.id, period_ms, beat: renewal, only_asks: true };
        names::standby(self.chain.tip().incarnation, record)
    }

    async fn renew(&mut self) -> Result<()> {
        self.renewed = self.chain.io().env.now();
        self.renewal += 1;
        put_sign(self.chain.io(), &self.record(self.renewal)).await?;
        if self.renewal > 1 {
            self.chain.io().delete(&self.record(self.renewal - 1)).await?;
        }
        Ok(())
    }

    /// Waits for a sign; `None` when another has claimed the database meanwhile.
    async fn wait(&mut self, writer: &WriterState, wait_max: Duration) -> Result<Option<Presence>> {
        let (env, incarnation) = (self.chain.io().env.clone(), self.chain.tip().incarnation);
        let (who, slot) = (Writer::of(writer), self.chain.tip().slot);
        let before = newest_sign(self.chain.io(), incarnation).await?;
        self.begin().await?;
        loop {
            self.pause().await?;
            let began = env.now();
            let sign = newest_sign(self.chain.io(), incarnation).await?;
            self.chain.advance().await?;
            if self.chain.tip().epoch() != writer.epoch {
                return Ok(None);
            }
            if self.chain.tip().state.writer().is_some_and(|writer| writer.closed) {
                return Ok(Some(Presence::Closed(who)));
            }
            let is_of_writer = sign.is_some_and(|(epoch, _)| epoch == writer.epoch.0);
            if is_of_writer && sign.is_some_and(|(_, sign)| sign == Sign::Left) {
                return Ok(Some(Presence::Closed(who)));
            }
            let answered = Seen::Answered(began.since(self.asked));
            if is_of_writer && sign > before || self.chain.tip().slot > slot {
                return Ok(Some(Presence::Alive(who, answered)));
            }
            if began.since(self.asked) >= wait_max {
                let is_silent = wait_max >= Presence::WAIT_MAX;
                return Ok(Some(if is_silent { Presence::Dead(who) } else { Presence::Unknown(who) }));
            }
        }
    }

    /// The writer would find the record dead after a while.
    pub(super) async fn leave(&mut self) {
        for renewal in self.renewal.saturating_sub(1)..=self.renewal {
            if renewal > 0
                && let Err(error) = self.chain.io().delete(&self.record(renewal)).await
            {
                tracing::debug!(%error, "the record of asking stays until its lease ends");
            }
        }
    }
}

#[cfg(test)]
mod tests;
