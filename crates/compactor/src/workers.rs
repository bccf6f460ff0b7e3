//! A writer's side: the workers that it knows, and its jobs at them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo::{CompactionOffer, CompactionWorkers};
use tombolo_env::{BoxFuture, Env, Instant, within};
use tombolo_format::compaction::WorkerStatus;
use tombolo_segment::announce::Registry;
use tombolo_segment::tcp::introduce::{Introduced, introduce_to};
use tombolo_segment::wire::Kind;
use tombolo_segment::wire::credentials::Credentials;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::line::Line;
use crate::server::PROGRESS;

/// Workers to which a job is offered at once.
const OFFERED_AT_ONCE: usize = 3;
/// Workers that are given the same job one after another.
const TRIES: usize = 3;
/// How long connecting and the introduction may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long an offer waits for a permit.
const PERMIT_MAX: Duration = Duration::from_secs(60);
/// A worker that says nothing for so long has lost its job.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const _: () = assert!(SILENCE_MAX.as_secs() > 3 * PROGRESS.as_secs());
/// One that failed is not asked for so long, and one whose answer was wrong.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_AFTER_A_WRONG_ANSWER: Duration = Duration::from_secs(600);
/// How often it is looked who is announced.
const LOOK: Duration = Duration::from_secs(30);
/// Attempts of which it is remembered who had them.
const ATTEMPTS_MAX: usize = 256;

/// How workers are found.
#[derive(Debug)]
pub enum Found {
    /// By their addresses, `host:port`.
    At(Vec<String>),
    /// By what they announce.
    Announced(Box<Registry>),
}

/// Workers behind a network, for [`tombolo::Builder::compaction_workers`].
#[derive(Clone, Debug)]
pub struct Workers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    env: Env,
    credentials: Option<Credentials>,
    place: Option<String>,
    client: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    addresses: Vec<String>,
    /// Taken out while somebody looks.
    registry: Option<Box<Registry>>,
    looked: Option<Instant>,
    /// Until when a worker is not asked.
    paused: BTreeMap<String, Instant>,
    /// Who had an attempt.
    attempts: Vec<(u128, String)>,
}

impl Workers {
    /// Those that are found so. `place` is the URI by which they open the database's store; `None`:
    /// as the writer does.
    pub fn new(env: &Env, found: Found, credentials: Option<Credentials>, place: Option<String>) -> Workers {
        let (addresses, registry) = match found {
            Found::At(addresses) => (addresses, None),
            Found::Announced(registry) => (Vec::new(), Some(registry)),
        };
        let (paused, attempts) = (BTreeMap::new(), Vec::new());
        let state = Mutex::new(State { addresses, registry, looked: None, paused, attempts });
        Workers(Arc::new(Inner { env: env.clone(), credentials, place, client: env.random_u64(), state }))
    }
}

/// What the worker at `address` says of itself.
///
/// # Errors
/// Those of reaching it.
pub async fn status(env: &Env, address: &str, credentials: Option<&Credentials>) -> Result<WorkerStatus> {
    connect(env, address, credentials, env.random_u64()).await.map(|(_, status)| status)
}

async fn connect(
    env: &Env,
    address: &str,
    credentials: Option<&Credentials>,
    client: u64,
) -> Result<(Line, WorkerStatus)> {
    let connecting = introduce_to(env, address, credentials, client, WorkerStatus::decode);
    let introduced = within(env, CONNECT_MAX, connecting)
        .await
        .unwrap_or_else(|| Err(Error::new(ErrorKind::Retry, format!("worker {address} does not answer"))));
    let Introduced { read, write, to_node, to_writer, inbox, said } = introduced?;
    let (env, peer) = (env.clone(), address.to_owned());
    Ok((Line { env, peer, read, write, out: to_node, back: to_writer, inbox }, said))
}

/// The first of several that goes well; else why the last one did not.
async fn first_of<T>(mut all: Vec<BoxFuture<'_, Result<T>>>) -> Result<T> {
    let mut last = Error::new(ErrorKind::Retry, "there is no worker to ask");
    poll_fn(move |context| {
        let mut found = None;
        all.retain_mut(|one| {
            if found.is_some() {
                return true;
            }
            match one.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(value)) => {
                    found = Some(value);
                    false
                }
                Poll::Ready(Err(error)) => {
                    // What can never be says more than what may be later.
                    if last.kind() != ErrorKind::Unsupported {
                        last = error;
                    }
                    false
                }
            }
        });
        match found {
            Some(value) => Poll::Ready(Ok(value)),
            None if all.is_empty() => Poll::Ready(Err(last.clone())),
            None => Poll::Pending,
        }
    })
    .await
}

/// The registry, while somebody looks. Dropping it gives it back: others look, too.
struct Taken<'a> {
    of: &'a Inner,
    registry: Option<Box<Registry>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.take() {
            self.of.state.lock().registry = Some(registry);
        }
    }
}

impl Inner {
    /// The workers that may be asked now, in an order by chance.
    async fn candidates(&self) -> Vec<String> {
        self.look().await;
        let now = self.env.now();
        let mut state = self.state.lock();
        state.paused.retain(|_, until| *until > now);
        let free = state.addresses.iter().filter(|address| !state.paused.contains_key(*address));
        let mut candidates: Vec<String> = free.cloned().collect();
        for at in (1..candidates.len()).rev() {
            let other = usize::try_from(self.env.random_u64()).unwrap_or(usize::MAX) % (at + 1);
            candidates.swap(at, other);
        }
        candidates
    }

    /// Looks who is announced, now and then.
    async fn look(&self) {
        let now = self.env.now();
        let taken = {
            let mut state = self.state.lock();
            if state.looked.is_some_and(|looked| now.since(looked) < LOOK) {
                return;
            }
            state.registry.take()
        };
        let mut taken = Taken { of: self, registry: taken };
        let Some(registry) = &mut taken.registry else { return };
        let found = within(&self.env, CONNECT_MAX, registry.look()).await;
        drop(taken);
        let mut state = self.state.lock();
        match found {
            Some(Ok(found)) => {
                state.looked = Some(now);
                state.addresses = found.into_iter().map(|announced| announced.address).collect();
            }
            Some(Err(error)) => tracing::warn!(%error, "looking for workers failed"),
            None => tracing::warn!("looking for workers took too long"),
        }
    }

    fn pause(&self, address: &str, pause: Duration) {
        let until = self.env.now() + pause;
        self.state.lock().paused.insert(address.to_owned(), until);
    }

    /// Offers a job to one worker, and waits for its permit.
    async fn offer(&self, address: &str, offer: &CompactionOffer) -> Result<Line> {
        let connected = connect(&self.env, address, self.credentials.as_ref(), self.client).await;
        let (mut line, said) = connected.inspect_err(|_| self.pause(address, PAUSE))?;
        if let Some(missing) = offer.needs().iter().find(|need| !said.abilities.contains(need)) {
            let message = format!("worker {address} lacks what a job needs: {missing}");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .advice("link it into the worker, by the same name and version"));
        }
        line.send(Kind::Offer, &offer.urgency().encode()).await?;
        let permitted = within(&self.env, PERMIT_MAX, line.receive()).await;
        match permitted.ok_or_else(|| self.too_busy(address))?? {
            (Kind::Permit, _) => Ok(line),
            (Kind::Declined, _) => Err(self.too_busy(address)),
            (kind, _) => Err(line.out_of_place(kind)),
        }
    }

    fn too_busy(&self, address: &str) -> Error {
        Error::new(ErrorKind::Busy, format!("worker {address} has too much to do"))
            .advice("start more workers")
    }

    async fn run(&self, offer: &CompactionOffer) -> Result<Bytes> {
        let mut failed = None;
        for _ in 0..TRIES {
            let candidates = self.candidates().await;
            let asked = candidates.iter().take(OFFERED_AT_ONCE);
            let offers = asked.map(|address| Box::pin(self.offer(address, offer)) as BoxFuture<'_, _>);
            let mut line = match first_of(offers.collect()).await {
                Ok(line) => line,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            match self.have_done(&mut line, offer).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    tracing::warn!(worker = line.peer, %error, "a worker lost a compaction");
                    self.pause(&line.peer, PAUSE);
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| Error::new(ErrorKind::Retry, "no worker has done a compaction")))
    }

    /// Gives a job to a worker that has permitted it, and waits for the answer as long as it is
    /// heard of.
    async fn have_done(&self, line: &mut Line, offer: &CompactionOffer) -> Result<Bytes> {
        let (attempt, job) = offer.begin()?;
        {
            let mut state = self.state.lock();
            if state.attempts.len() >= ATTEMPTS_MAX {
                state.attempts.remove(0);
            }
            state.attempts.push((attempt, line.peer.clone()));
        }
        line.send(Kind::Begin, &job).await?;
        loop {
            let heard = within(&self.env, SILENCE_MAX, line.receive()).await;
            match heard.ok_or_else(|| line.broken("nothing is heard of a job"))?? {
                (Kind::Progress, _) => {}
                (Kind::Done, answer) => return Ok(answer.into()),
                (kind, _) => return Err(line.out_of_place(kind)),
            }
        }
    }
}

impl CompactionWorkers for Workers {
    fn run(&self, offer: CompactionOffer) -> BoxFuture<'static, Result<Bytes>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.run(&offer).await })
    }

    fn place(&self) -> Option<String> {
        self.0.place.clone()
    }

    fn refused(&self, attempt: u128, error: &Error) {
        let had = self.0.state.lock().attempts.iter().find(|(known, _)| *known == attempt).cloned();
        if let Some((_, address)) = had {
            tracing::error!(worker = address, %error, "a worker gave a wrong answer");
            self.0.pause(&address, PAUSE_AFTER_A_WRONG_ANSWER);
        }
    }
}

#[cfg(test)]
mod tests;
