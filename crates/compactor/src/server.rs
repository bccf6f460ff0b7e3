//! A worker's side.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{CompactionRun, CompactionWorker, Urgency};
use tombolo_env::network::Listener;
use tombolo_env::{
    Completer, Completion, Connection, Either, Env, Task, TaskClass, completion, either, within,
};
use tombolo_format::compaction::WorkerStatus;
use tombolo_segment::announce::Announcer;
use tombolo_segment::message::{NodeIncarnation, NodeMedium, NodeStatus};
use tombolo_segment::wire::credentials::{Credentials, admit};
use tombolo_segment::wire::hello::{Challenge, Farewell, Hello, PROOF_BYTES};
use tombolo_segment::wire::inbox::{INBOX_BYTES, Inbox};
use tombolo_segment::wire::secret::{Introduction, Secret, Way, fresh_nonce, is_same_proof};
use tombolo_segment::wire::{Kind, VERSION};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::line::Line;
use crate::queue::Queue;

/// How long an introduction may take.
const INTRODUCTION_MAX: Duration = Duration::from_secs(5);
/// How long a writer may take to begin with a job once it was permitted.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// How often a writer hears that its job goes on.
pub(crate) const PROGRESS: Duration = Duration::from_secs(1);
/// How often one that is announced looks whether that is over.
const ANNOUNCE_LOOK: Duration = Duration::from_millis(250);
/// Offers that wait at most.
const WAITING_MAX: usize = 64;

/// How a worker serves.
#[derive(Clone, Debug)]
pub struct CompactorOptions {
    /// Where it listens, `host:port`; port 0 picks one.
    pub listen: String,
    /// What writers and it show each other; `None` for those of this host.
    pub credentials: Option<Credentials>,
    /// Jobs at once.
    pub jobs_max: usize,
    /// Connections at once.
    pub connections_max: usize,
}

/// A worker that serves. Dropping it ends its jobs.
#[derive(Debug)]
pub struct Compactor {
    shared: Arc<Shared>,
    address: String,
    _accepting: Task,
    announcing: Option<Announcing>,
}

/// A worker that is announced.
#[derive(Debug)]
struct Announcing {
    is_over: Arc<AtomicBool>,
    _task: Task,
    /// What announces it, once that is over.
    left: Completion<Announcer>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    worker: CompactionWorker,
    options: CompactorOptions,
    state: Mutex<State>,
    done: AtomicU64,
    failed: AtomicU64,
    connections: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Who waits for a permit.
    waiting: BTreeMap<u64, Completer<()>>,
}

/// Serves `worker` to writers: what a program calls that links its own operators and filters.
///
/// # Errors
/// `Invalid` when it cannot listen there.
pub async fn serve(env: &Env, worker: CompactionWorker, options: CompactorOptions) -> Result<Compactor> {
    let cannot = |error: io::Error| {
        Error::io(error, "listening for writers", &options.listen)
            .advice("listen on another address, or end what listens there")
    };
    let listener = env.network().listen(&options.listen).await.map_err(cannot)?;
    let address = listener.local_address().map_err(cannot)?;
    let shared = Arc::new(Shared {
        env: env.clone(),
        worker,
        options,
        state: Mutex::default(),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        connections: AtomicUsize::new(0),
    });
    let accepting =
        env.spawn(TaskClass::Network, "writers of a worker", accept(Arc::clone(&shared), listener));
    Ok(Compactor { shared, address, _accepting: accepting, announcing: None })
}

impl Compactor {
    /// As `serve`.
    ///
    /// # Errors
    /// As `serve`.
    pub async fn start(env: &Env, worker: CompactionWorker, options: CompactorOptions) -> Result<Compactor> {
        serve(env, worker, options).await
    }

    /// Where it listens, with its actual port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it says of itself.
    pub fn status(&self) -> WorkerStatus {
        self.shared.status()
    }

    /// Announces it again and again, as nodes are, so that writers find it ([`crate::Found`]). A
    /// place that does not answer is asked again.
    pub fn announce(&mut self, mut announcer: Announcer) {
        let is_over = Arc::<AtomicBool>::default();
        let (ended, left) = completion();
        let (over, env) = (Arc::clone(&is_over), self.shared.env.clone());
        let incarnation = NodeIncarnation(env.random_u64());
        let task = self.shared.env.spawn(TaskClass::Network, "announcements of a worker", async move {
            let mut next = env.now();
            while !over.load(Ordering::Acquire) {
                if env.now() >= next {
                    let announced = within(&env, INTRODUCTION_MAX, announcer.announce(said_by(incarnation)));
                    match announced.await {
                        Some(Ok(())) => {}
                        Some(Err(error)) => tracing::warn!(%error, "a worker could not be announced"),
                        None => tracing::warn!("announcing a worker took too long"),
                    }
                    next = env.now() + announcer.period();
                }
                env.sleep_until(next.min(env.now() + ANNOUNCE_LOOK)).await;
            }
            ended.complete(announcer);
        });
        self.announcing = Some(Announcing { is_over, _task: task, left });
    }

    /// Takes its announcements back: it is about to end.
    ///
    /// # Errors
    /// What the place says: the announcement then stays until writers take it for gone.
    pub async fn withdraw(&mut self) -> Result<()> {
        let Some(Announcing { is_over, left, _task }) = self.announcing.take() else { return Ok(()) };
        is_over.store(true, Ordering::Release);
        match left.await {
            Some(announcer) => announcer.withdraw().await,
            None => Ok(()),
        }
    }
}

/// A worker, in the words of nodes: it lends no memory.
fn said_by(incarnation: NodeIncarnation) -> NodeStatus {
    NodeStatus {
        incarnation,
        bytes_max: 0,
        bytes_taken: 0,
        regions: 0,
        names: 0,
        medium: NodeMedium::Memory,
        is_draining: true,
        domain: String::new(),
        drain_millis_left: None,
        databases: 0,
        holdings: Vec::new(),
    }
}

async fn accept(shared: Arc<Shared>, mut listener: Box<dyn Listener>) {
    // Connections end with the listener.
    let mut tasks: Vec<(Task, Completion<()>)> = Vec::new();
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "accepting a writer failed");
                shared.env.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        tasks.retain_mut(|(_, ended)| ended.try_take().is_none());
        if shared.connections.load(Ordering::Relaxed) >= shared.options.connections_max {
            tracing::warn!("a writer was turned away: there are as many connections as may be");
            continue;
        }
        let (ended, ending) = completion();
        let (serving, place) = (Arc::clone(&shared), Place::take(&shared));
        let task = shared.env.spawn(TaskClass::Network, "a writer of a worker", async move {
            let peer = connection.peer_address();
            if let Err(error) = serve_one(&serving, connection).await {
                tracing::debug!(%peer, %error, "a writer's connection has ended");
            }
            drop(place);
            ended.complete(());
        });
        tasks.push((task, ending));
    }
}

impl Shared {
    fn status(&self) -> WorkerStatus {
        let state = self.state.lock();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        WorkerStatus {
            jobs_max: number(self.options.jobs_max),
            running: number(state.queue.running()),
            waiting: number(state.queue.waiting()),
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            abilities: self.worker.abilities(),
        }
    }

    /// The status as bytes.
    fn said(&self) -> Result<Vec<u8>> {
        self.status().encode().map_err(|error| Error::format("what a worker says", 0, error))
    }

    /// Permits what may run now.
    fn permit(&self, state: &mut State) {
        while let Some(number) = state.queue.permit(self.options.jobs_max) {
            match state.waiting.remove(&number) {
                Some(completer) => completer.complete(()),
                None => state.queue.ended(),
            }
        }
    }
}

/// A place among the connections. Dropping it gives it back, by a panic too.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Place {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(shared))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in the queue, or among what runs. Dropping it gives it back.
struct Turn<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.waiting.remove(&self.number).is_some() {
            state.queue.withdraw(self.number);
        } else {
            state.queue.ended();
        }
        self.shared.permit(&mut state);
    }
}

async fn serve_one(shared: &Arc<Shared>, connection: Box<dyn Connection>) -> Result<()> {
    let introduced = within(&shared.env, INTRODUCTION_MAX, introduce(shared, connection)).await;
    let mut line = introduced.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::DeadlineExceeded, "a writer did not introduce itself in time"))
    })?;
    loop {
        match line.receive().await? {
            (Kind::AskWorker, _) => {
                let said = shared.said()?;
                line.send(Kind::WorkerIs, &said).await?;
            }
            (Kind::Offer, body) => offered(shared, &mut line, &body).await?,
            (kind, _) => return Err(line.out_of_place(kind)),
        }
    }
}

async fn offered(shared: &Shared, line: &mut Line, offer: &[u8]) -> Result<()> {
    let urgency = Urgency::decode(offer).map_err(|error| line.broken(&error.to_string()))?;
    let (completer, permitted) = completion();
    let turn = {
        let mut state = shared.state.lock();
        if state.queue.waiting() >= WAITING_MAX {
            None
        } else {
            let number = state.queue.offer(urgency);
            state.waiting.insert(number, completer);
            shared.permit(&mut state);
            Some(Turn { shared, number })
        }
    };
    let Some(_turn) = turn else {
        return line.send(Kind::Declined, b"as many offers wait as may").await;
    };
    // Who goes meanwhile takes the offer back.
    match either(permitted, line.receive()).await {
        Either::First(_) => {}
        Either::Second(received) => {
            let (kind, _) = received?;
            return Err(line.out_of_place(kind));
        }
    }
    line.send(Kind::Permit, &[]).await?;
    let begun = within(&shared.env, BEGIN_MAX, line.receive()).await;
    let (kind, job) = begun.ok_or_else(|| line.broken("a permitted job was not begun"))??;
    if kind != Kind::Begin {
        return Err(line.out_of_place(kind));
    }
    let answer = run(shared, line, job).await.inspect_err(|error| {
        // The writer hears no more than that the connection has ended.
        tracing::warn!(peer = line.peer, %error, "a compaction of a writer came to nothing");
    });
    let counter = if answer.is_ok() { &shared.done } else { &shared.failed };
    counter.fetch_add(1, Ordering::Relaxed);
    line.send(Kind::Done, &answer?).await
}

/// Runs a job in a task of its own, and tells how far it is. Who goes meanwhile ends it.
async fn run(shared: &Shared, line: &mut Line, job: Vec<u8>) -> Result<bytes::Bytes> {
    let running = CompactionRun::default();
    let (ended, ending) = completion();
    let (worker, seen) = (shared.worker.clone(), running.clone());
    let task = shared.env.spawn(TaskClass::Background, "a compaction of a writer", async move {
        ended.complete(worker.run(&job, &seen).await);
    });
    let mut ending = pin!(ending);
    loop {
        let news = either(ending.as_mut(), either(line.receive(), shared.env.sleep(PROGRESS))).await;
        match news {
            Either::First(answer) => {
                drop(task);
                return answer.unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Bug, "a compaction for a writer panicked"))
                });
            }
            Either::Second(Either::Second(())) => {
                line.send(Kind::Progress, &running.bytes().to_le_bytes()).await.inspect_err(|_| {
                    running.give_up();
                })?;
            }
            Either::Second(Either::First(received)) => {
                running.give_up();
                let (kind, _) = received?;
                return Err(line.out_of_place(kind));
            }
        }
    }
}

/// The other half of the writer's introduction.
async fn introduce(shared: &Shared, mut connection: Box<dyn Connection>) -> Result<Line> {
    let peer = connection.peer_address();
    let admitted = admit(shared.options.credentials.as_ref(), &mut *connection).await;
    let (read, write) = connection.split();
    let (env, inbox) = (shared.env.clone(), Inbox::new());
    let mut line = Line { env, peer, read, write, out: Way::plain(), back: Way::plain(), inbox };
    let secret = match admitted {
        Ok(secret) => secret,
        Err(None) => return Err(line.broken("it ended")),
        Err(Some(why)) => return Err(say(&mut line, Farewell::WrongCertificate, &why).await),
    };
    match introduce_on(shared, &mut line, secret).await {
        Ok(()) => Ok(line),
        Err((Some(farewell), error)) => Err(say(&mut line, farewell, &error.to_string()).await),
        Err((None, error)) => Err(error),
    }
}

async fn say(line: &mut Line, farewell: Farewell, why: &str) -> Error {
    let _gone = line.send(Kind::Farewell, &farewell.encode()).await;
    tracing::warn!(peer = line.peer, %farewell, why, "a writer was turned away");
    line.broken(why)
}

async fn introduce_on(
    shared: &Shared,
    line: &mut Line,
    secret: Option<Secret>,
) -> std::result::Result<(), (Option<Farewell>, Error)> {
    let gone = |error| (None, error);
    let hello = Hello::decode(&expect(line, Kind::Hello).await?)
        .map_err(|error| (Some(Farewell::Malformed), line.broken(&error.to_string())))?;
    let nonce = fresh_nonce(&shared.env).map_err(gone)?;
    let challenge = Challenge { version: VERSION, has_secret: secret.is_some(), nonce };
    line.send(Kind::Challenge, &challenge.encode()).await.map_err(gone)?;
    let wrong = |line: &Line| (Some(Farewell::WrongSecret), line.broken("its secret is another"));
    if hello.has_secret != secret.is_some() {
        return Err(wrong(line));
    }
    let proof = <[u8; PROOF_BYTES]>::try_from(expect(line, Kind::Proof).await?).map_err(|_| wrong(line))?;
    // Whichever the writer has shown is that of the connection.
    let taken: Vec<Option<Secret>> =
        secret.as_ref().map_or_else(|| vec![None], |secret| secret.each().map(Some).collect());
    let introductions = taken.iter().map(|secret| Introduction { secret: secret.as_ref(), hello, challenge });
    let shown: Vec<_> = introductions.filter(|one| is_same_proof(&proof, &one.writer_proof())).collect();
    let Some(introduction) = shown.first() else { return Err(wrong(line)) };
    let said = shared.said().map_err(gone)?;
    let welcome = [&introduction.node_proof(&said)[..], &said].concat();
    line.send(Kind::Welcome, &welcome).await.map_err(gone)?;
    (line.back, line.out) = introduction.ways();
    Ok(())
}

/// The next frame of an introduction, which is short.
async fn expect(line: &mut Line, kind: Kind) -> std::result::Result<Vec<u8>, (Option<Farewell>, Error)> {
    let malformed = |line: &Line| (Some(Farewell::Malformed), line.broken("it sent no introduction"));
    loop {
        match line.inbox.coming() {
            Ok(Some(bytes)) if bytes > INBOX_BYTES => return Err(malformed(line)),
            Ok(_) => {}
            Err(_) => return Err(malformed(line)),
        }
        match line.inbox.next(&mut line.back) {
            Ok(Some((header, body))) if header.kind == kind => return Ok(body.to_vec()),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(malformed(line)),
        }
        match line.inbox.fill(&mut *line.read).await {
            Ok(0) | Err(_) => return Err((None, line.broken("it ended"))),
            Ok(_) => {}
        }
    }
}
