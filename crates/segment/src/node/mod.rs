//! A node: lends memory in regions to writers that come by the network.
//!
//! 1. A connection is accepted, and its writer shows that it belongs here (`connection`).
//! 2. Each request that has arrived is carried out by [`Regions`], one step each, in the order of
//!    the connection.
//! 3. With a disk, each request carried out is noted in a journal ([`NodeDisk`]); answers wait
//!    until it is durable, or not, as the node was started.
//! 4. Answers to what arrived together go back together.
//! 5. Regions whose memory is wanted back are named to every connection.
//!
//! Invariants:
//! 1. Nothing of a connection takes effect after a later one of the same writer was welcomed.
//! 2. Bounded: connections, sockets that nobody has introduced, the bytes of a frame, memory for
//!    long frames, bytes of answers that were not written, the time of an introduction, of a long
//!    frame, and of a writer that does not take its answers.
//! 3. A node that ends, because it was told to, has drained or its disk failed, carries out nothing
//!    any more.
//! 4. A region is freed by its owner, or a later epoch, and never by the node: not when it drains,
//!    and not when it wants the memory back, because its host is short of memory or because it was
//!    told to lend less.
//!
//! A node that is started again lives another life, in which it makes new regions. What its disk
//! holds of earlier lives it still answers for, and takes nothing new there.
//!
//! Beside what it lends a node takes, for each connection, 64 KiB and what one read answers, and
//! [`FRAMES_BYTES_MAX`] for long frames of all.

mod budget;
mod connection;
mod journal;
mod lending;
mod lives;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, File, Instant, Listener, Task, TaskClass};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use crate::message::{
    Answer, Body, DOMAIN_BYTES_MAX, NodeIncarnation, NodeMedium, NodeStatus, QueueAddress, Refusal, RegionId,
    Request, Window,
};
use crate::region::{Occupancy, Regions};
use crate::wire::BODY_BYTES_MAX;
use crate::wire::body::Message;
use crate::wire::credentials::Credentials;
use crate::wire::hello::Farewell;
use budget::Budget;
use journal::Journal;
pub(crate) use journal::recover::take as take_directory;
use journal::recover::{self, Found};
use lending::{Lending, LineNumber};
use lives::{Life, Lives, Wait};
use signal::Signal;

/// Connections at once, unless the options say otherwise.
pub const CONNECTIONS_MAX: usize = 256;
/// Sockets at once whose writer has not shown yet that it knows the secret, beside those. Each
/// takes 64 KiB, for some seconds at most.
pub const STRANGERS_MAX: usize = 256;
/// Memory for frames that are longer than what a connection always has: the longest one, while its
/// buffer doubles.
pub const FRAMES_BYTES_MAX: usize = 2 * (BODY_BYTES_MAX + 4096);
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How often a node with a disk looks whether there is something to clean.
const KEEP_LOOK: Duration = Duration::from_secs(1);
/// Bytes, and names, that are noted again before the disk has them.
const CLEAN_BYTES: u64 = 16 << 20;
const CLEAN_NAMES: usize = 1024;
/// How often a node that drains looks whether it is done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it listens, `host:port`; port 0 picks one.
    pub listen: String,
    /// Bytes that it lends.
    pub bytes_max: u64,
    /// What fails together with it: a rack, a power supply. Writers spread over these.
    pub domain: String,
    /// What writers must show. `None`: nothing.
    pub credentials: Option<Credentials>,
    /// Connections at once, of writers that were welcomed.
    pub connections_max: usize,
    /// Where it keeps a copy; `None`: in memory only.
    pub disk: Option<NodeDisk>,
    /// A directory of a tmpfs, for this node alone, in which it shares memory with writers of this
    /// host. Not with a disk: bytes stored there are in memory.
    pub share: Option<PathBuf>,
    /// A card (`DEVICE`, `DEVICE:PORT` or `DEVICE:PORT/GID`) through which writers of other hosts
    /// write to its memory themselves. Needs the feature `rdma`. Not with a disk. What they write
    /// is neither encrypted nor proven to be theirs by more than a key of 32 bits: for a network
    /// that is trusted.
    pub rdma: Option<String>,
}

/// A node's disk.
#[derive(Clone, Debug)]
pub struct NodeDisk {
    /// A directory that no other node has. It takes up to twice what regions hold, and 200 MiB.
    pub directory: PathBuf,
    /// Whether appends and seals are durable there before they are answered (`fdatasync`, which
    /// many share), or copied behind the answer. A copy counts only after a clean stop
    /// ([`Node::stop`]): after any other end nobody knows what it lacks.
    pub is_synced: bool,
}

impl NodeOptions {
    fn medium(&self) -> NodeMedium {
        match &self.disk {
            None => NodeMedium::Memory,
            Some(NodeDisk { is_synced: false, .. }) => NodeMedium::MemoryWithCopy,
            Some(NodeDisk { is_synced: true, .. }) => NodeMedium::Disk,
        }
    }
}

/// What a node has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were accepted.
    pub connections_accepted: u64,
    /// Connections that were refused: by a wrong secret or certificate, another version, or because
    /// there were too many.
    pub connections_refused: u64,
    /// Connections that ended with bytes that are no frame.
    pub connections_malformed: u64,
    /// Requests that were answered, refusals included.
    pub requests: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Appends that were taken.
    pub appends: u64,
    /// Bytes of records in them.
    pub append_bytes: u64,
    /// Regions that writers of other hosts were let write to through a card: what they append there
    /// is in no other figure.
    pub regions_paired: u64,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    malformed: AtomicU64,
    requests: AtomicU64,
    refusals: AtomicU64,
    appends: AtomicU64,
    append_bytes: AtomicU64,
}

/// One connection, as others of the node see it.
#[derive(Debug)]
struct Line {
    client: u64,
    /// A later connection of the same writer was welcomed. Changes under the lock of the regions.
    is_superseded: AtomicBool,
}

#[derive(Debug, Default)]
struct Lines {
    /// Connections that were accepted and have not ended, by number; those that were welcomed with
    /// their line.
    open: BTreeMap<u64, Option<Arc<Line>>>,
    /// Invariant: how many of `open` were not welcomed; at most [`STRANGERS_MAX`].
    strangers: usize,
    next: u64,
    /// The newest connection of a writer.
    by_client: HashMap<u64, u64>,
}

struct Shared {
    env: Env,
    options: NodeOptions,
    lives: Mutex<Lives>,
    lines: Mutex<Lines>,
    /// Raised when regions are wanted back, connections superseded, or the node ends.
    signal: Signal,
    frames: Arc<Budget>,
    counters: Counters,
    is_ending: AtomicBool,
    /// Troubles that were logged: each once.
    told: Mutex<BTreeSet<u32>>,
}

/// A node that runs. Dropping it stops it at once; what its regions hold in memory only is lost
/// with it.
pub struct Node {
    shared: Arc<Shared>,
    address: String,
    _tasks: Vec<Task>,
    /// Its directories are its own as long as these are open.
    _locks: Vec<Arc<dyn File>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Node").field(&self.address).finish()
    }
}

impl Node {
    /// Starts a node: with an empty memory, which is a life of its own, and with what its disk
    /// holds of earlier ones.
    ///
    /// # Errors
    /// `Invalid` for options that contradict each other; `Busy` when another node has its
    /// directory; what the network and the disk say otherwise.
    pub async fn start(env: &Env, options: NodeOptions) -> Result<Node> {
        if options.domain.len() > DOMAIN_BYTES_MAX {
            let message = format!("a failure domain with a name of {} bytes", options.domain.len());
            return Err(
                Error::new(ErrorKind::Invalid, message).expected(format!("{DOMAIN_BYTES_MAX} bytes at most"))
            );
        }
        if options.disk.is_some() && (options.share.is_some() || options.rdma.is_some()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a node with a disk whose memory writers fill themselves",
            )
            .advice("choose one of them"));
        }
        let (lives, lock) = wake(env, &options)?;
        let mut locks = Vec::from_iter(lock);
        if let Some(directory) = &options.share {
            locks.push(take_directory(env, directory)?);
            crate::shared::clear_directory(env, directory)?;
        }
        let listener = env
            .network()
            .listen(&options.listen)
            .await
            .map_err(|error| cannot_listen(error, &options.listen))?;
        let address = listener.local_address().map_err(|error| cannot_listen(error, &options.listen))?;
        let shared = Arc::new(Shared {
            env: env.clone(),
            options,
            lives: Mutex::new(lives),
            lines: Mutex::default(),
            signal: Signal::default(),
            frames: Budget::new(FRAMES_BYTES_MAX),
            counters: Counters::default(),
            is_ending: AtomicBool::new(false),
            told: Mutex::default(),
        });
        let mut tasks =
            vec![env.spawn(TaskClass::Network, "writers of a node", accept(Arc::clone(&shared), listener))];
        if shared.options.disk.is_some() {
            tasks.push(env.spawn(TaskClass::Background, "disk of a node", keep(Arc::clone(&shared))));
        }
        Ok(Node { shared, address, _tasks: tasks, _locks: locks })
    }

    /// Where it listens, with its actual port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it says of itself.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// What it has done.
    pub fn counters(&self) -> NodeCounters {
        let Counters { accepted, refused, malformed, requests, refusals, appends, append_bytes } =
            &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeCounters {
            connections: self.shared.lines.lock().open.len() as u64,
            connections_accepted: read(accepted),
            connections_refused: read(refused),
            connections_malformed: read(malformed),
            requests: read(requests),
            refusals: read(refusals),
            appends: read(appends),
            append_bytes: read(append_bytes),
            regions_paired: self.shared.lives.lock().lending().0.paired(),
        }
    }

    /// Lends so many bytes at most from here on, as the host has no more for it. When regions take
    /// more, their owners are asked to give the largest back, and the memory is free once they did.
    /// What the node was started with, and what it is told by others
    /// ([`TcpPeer::lend`](crate::tcp::TcpPeer::lend)), bound it as well: the least counts.
    pub fn lend(&self, bytes_max: u64) {
        self.shared.lives.lock().lend_spared(bytes_max);
        self.shared.signal.raise();
    }

    /// Takes no new regions, asks all owners to move elsewhere, waits until the last region was
    /// freed, and ends: nothing is carried out any more. A caller that will not wait drops the
    /// future: a node that ends with regions is to its writers a node that was lost. `until` is
    /// when the caller does so, for those who ask the node for its status.
    ///
    /// # Errors
    /// [`Node::failure`].
    pub async fn drain(&self, until: Option<Instant>) -> Result<()> {
        self.shared.lives.lock().drain(until);
        self.shared.signal.raise();
        while !self.shared.end_if_empty()? {
            self.shared.env.sleep(DRAIN_LOOK).await;
        }
        Ok(())
    }
}

impl Node {
    /// Why the node has to end: its disk failed, and it carries out nothing any more.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lives.lock().failure()
    }

    /// Ends all connections, and says on the disk, if there is one, that it holds all.
    ///
    /// # Errors
    /// What the disk says: then the next life of a node that answers from memory finds nothing.
    pub async fn stop(self) -> Result<()> {
        self.shared.end();
        let journals: Vec<_> = {
            let lives = self.shared.lives.lock();
            std::iter::once(&lives.current)
                .chain(&lives.earlier)
                .filter_map(|life| life.journal.clone())
                .collect()
        };
        for journal in journals {
            journal.close().await?;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.end();
    }
}

fn cannot_listen(error: io::Error, address: &str) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: end it, or listen on another port (0 picks a free one)"
        }
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::NotFound => {
            "listen on an address of this host: 127.0.0.1:7420, or 0.0.0.0:7420 for all of them"
        }
        io::ErrorKind::PermissionDenied => "listen on a port from 1024 on",
        _ => "write HOST:PORT, an address of this host and a free port",
    };
    Error::io(error, "the node cannot listen", address).advice(advice)
}

/// What a node lends to writers that fill its memory themselves: nothing yet.
#[cfg(feature = "rdma")]
fn lend_memory(env: &Env, options: &NodeOptions) -> Result<Lending> {
    let device = options.rdma.as_deref().map(|name| crate::rdma::open(env, Some(name))).transpose()?;
    Ok(Lending::new(env, options.share.clone()).through(device))
}

/// What a node lends to writers that fill its memory themselves: nothing yet.
#[cfg(not(feature = "rdma"))]
fn lend_memory(env: &Env, options: &NodeOptions) -> Result<Lending> {
    if let Some(device) = &options.rdma {
        let error = Error::new(
            ErrorKind::Unsupported,
            format!("this program was built without RDMA, and cannot use {device}"),
        );
        return Err(error.advice("build it with the feature: cargo build --release --features rdma"));
    }
    Ok(Lending::new(env, options.share.clone()))
}

/// The lives of a node that is started, and its hold on its directory.
fn wake(env: &Env, options: &NodeOptions) -> Result<(Lives, Option<Arc<dyn File>>)> {
    let lending = lend_memory(env, options)?;
    let incarnation = NodeIncarnation(env.random_u64());
    let regions = Regions::new(incarnation, options.bytes_max);
    let Some(disk) = &options.disk else {
        return Ok((
            Lives::new(
                Life { regions, journal: None },
                Vec::new(),
                options.medium(),
                options.bytes_max,
                lending,
            ),
            None,
        ));
    };
    let lock = recover::take(env, &disk.directory)?;
    let mut earlier = Vec::new();
    for Found { directory, regions, end, .. } in recover::all(env, &disk.directory)? {
        let Occupancy { bytes_taken, regions: count, .. } = regions.occupancy();
        tracing::info!(life = %regions.incarnation(), regions = count, bytes = bytes_taken, "an earlier \
            life of the node was found on its disk");
        let journal = Some(Journal::new(env, directory, regions.incarnation(), end));
        earlier.push(Life { regions, journal });
    }
    let directory = recover::life_directory(&disk.directory, incarnation, options.medium());
    let made = env.files().create_directories(&directory);
    made.map_err(|error| Error::io(error, "making a node's directory", directory.display()))?;
    let journal = Some(Journal::new(env, directory, incarnation, journal::End::default()));
    Ok((
        Lives::new(Life { regions, journal }, earlier, options.medium(), options.bytes_max, lending),
        Some(lock),
    ))
}

/// Cleans journals, and forgets lives that hold nothing any more.
async fn keep(shared: Arc<Shared>) {
    loop {
        shared.env.sleep(KEEP_LOOK).await;
        let (empty, live, journal) = {
            let mut lives = shared.lives.lock();
            (lives.take_empty(), lives.current.regions.bytes_held(), lives.current.journal.clone())
        };
        for journal in empty.into_iter().filter_map(|life| life.journal) {
            if let Err(error) = journal.remove() {
                tracing::warn!(%error, "the directory of an earlier life stays");
            }
        }
        if let Some(journal) = journal.filter(|journal| journal.wants_cleaning(live))
            && let Err(error) = clean(&shared, &journal).await
        {
            tracing::warn!(%error, "a node's journal could not be cleaned");
        }
    }
}

/// Notes all that lives once more, so that the files before can go.
async fn clean(shared: &Shared, journal: &Arc<Journal>) -> Result<()> {
    let number = journal.begin_cleaning().await?;
    copy_living(shared, journal, number).await
}

/// The second half of it: from file `number` on all that lives is noted.
async fn copy_living(shared: &Shared, journal: &Arc<Journal>, number: u32) -> Result<()> {
    let names = shared.lives.lock().current.regions.names();
    let mut last = 0;
    for (index, name) in names.iter().enumerate() {
        {
            // One region is copied in one step: appends to it meanwhile are noted behind.
            let lives = shared.lives.lock();
            for request in lives.current.regions.rebuilt(*name) {
                last = journal.note(request);
            }
        }
        if journal.behind_bytes() > CLEAN_BYTES || index % CLEAN_NAMES == 0 {
            journal.durable(last).await?;
        }
    }
    journal.durable(last).await?;
    let live = shared.lives.lock().current.regions.bytes_held();
    journal.end_cleaning(number, live).await
}

async fn accept(shared: Arc<Shared>, mut listener: Box<dyn Listener>) {
    loop {
        match listener.accept().await {
            Ok(connection) => {
                let Some(number) = shared.open_line() else {
                    shared.note_trouble(
                        &connection.peer_address(),
                        Farewell::TooMany,
                        "sockets that nobody introduced",
                    );
                    continue;
                };
                let task = connection::serve(Arc::clone(&shared), connection, number);
                shared.env.spawn(TaskClass::Network, "a writer's connection", task).detach();
            }
            Err(error) if tombolo_env::simulated::is_crash(&error) => return,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                shared.env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    fn end(&self) {
        self.end_under(&mut self.lives.lock());
        self.signal.raise();
    }

    /// Under the lock that requests take: requests not carried out by now never are.
    fn end_under(&self, lives: &mut Lives) {
        self.is_ending.store(true, Ordering::Release);
        lives.lending().0.end_all();
    }

    /// Ends once no region is left, and says whether that is so.
    fn end_if_empty(&self) -> Result<bool> {
        let mut lives = self.lives.lock();
        if let Some(error) = lives.failure() {
            return Err(error);
        }
        if lives.occupancy().regions > 0 {
            return Ok(false);
        }
        self.end_under(&mut lives);
        drop(lives);
        self.signal.raise();
        Ok(true)
    }

    /// Whether requests of a connection are still carried out. Asked under the lock that they take.
    fn check_goes_on(&self, line: &Line, lives: &Lives) -> std::result::Result<(), Farewell> {
        if line.is_superseded.load(Ordering::Acquire) {
            return Err(Farewell::Superseded);
        }
        if self.is_ending.load(Ordering::Acquire) || lives.failure().is_some() {
            return Err(Farewell::Ending);
        }
        Ok(())
    }

    fn status(&self) -> NodeStatus {
        self.lives.lock().status(&self.options.domain, self.env.now())
    }

    /// The number of a connection that was accepted; `None` when too many have not been introduced.
    fn open_line(&self) -> Option<u64> {
        let mut lines = self.lines.lock();
        if lines.strangers >= STRANGERS_MAX {
            return None;
        }
        lines.next += 1;
        lines.strangers += 1;
        let number = lines.next;
        lines.open.insert(number, None);
        Some(number)
    }

    /// A connection's writer has shown who it is: its earlier connections end.
    fn welcome(&self, number: u64, client: u64) -> std::result::Result<Arc<Line>, Farewell> {
        let line = Arc::new(Line { client, is_superseded: AtomicBool::new(false) });
        let mut lines = self.lines.lock();
        // The one that ends by it leaves its place.
        let welcomed =
            lines.open.len() - lines.strangers - usize::from(lines.by_client.contains_key(&client));
        if welcomed >= self.options.connections_max {
            return Err(Farewell::TooMany);
        }
        lines.open.insert(number, Some(Arc::clone(&line)));
        lines.strangers -= 1;
        let earlier = lines.by_client.insert(client, number);
        let earlier =
            earlier.and_then(|earlier| Some((earlier, lines.open.get(&earlier).cloned().flatten()?)));
        drop(lines);
        if let Some(earlier) = earlier
            && !is_enabled(Mutant::NodeKeepsEarlierConnection)
        {
            // Under the lock that each of its requests takes: requests not carried out by now never
            // are.
            let mut lives = self.lives.lock();
            earlier.1.is_superseded.store(true, Ordering::Release);
            let (lending, regions) = lives.lending();
            lending.end_line(regions, earlier.0);
            drop(lives);
            self.signal.raise();
        }
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(line)
    }

    fn close_line(&self, number: u64) {
        let mut lines = self.lines.lock();
        match lines.open.remove(&number) {
            Some(Some(line)) if lines.by_client.get(&line.client) == Some(&number) => {
                lines.by_client.remove(&line.client);
            }
            Some(None) => lines.strangers -= 1,
            _ => {}
        }
        drop(lines);
        {
            let mut lives = self.lives.lock();
            let (lending, regions) = lives.lending();
            lending.end_line(regions, number);
        }
        self.signal.forget(number);
    }

    /// Carries a request out, unless its connection was superseded or the node ends. Says what to
    /// wait for before it is answered.
    fn handle(&self, line: &Line, request: Request) -> std::result::Result<(Answer, Option<Wait>), Farewell> {
        let append_bytes = match &request.body {
            Body::Append { records, .. } => Some(records.len() as u64),
            _ => None,
        };
        let is_free = matches!(request.body, Body::Free | Body::Collect { .. });
        let mut lives = self.lives.lock();
        self.check_goes_on(line, &lives)?;
        let (answer, wait) = lives.handle(request);
        if is_free {
            let incarnation = NodeIncarnation(self.env.random_u64());
            if lives.begin_anew(incarnation) {
                tracing::warn!(%incarnation, "the node begins another life: it has no region, and knows \
                    many names");
            }
        }
        drop(lives);
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        match (&answer, append_bytes) {
            (Answer::Refused(refusal), _) => self.count_refusal(*refusal),
            (_, Some(bytes)) => {
                self.counters.appends.fetch_add(1, Ordering::Relaxed);
                self.counters.append_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok((answer, wait))
    }

    /// Lends so many bytes at most from here on, as its operator says, unless that is more than it
    /// was started with.
    fn lend(&self, line: &Line, bytes_max: u64) -> std::result::Result<Message, Farewell> {
        let mut lives = self.lives.lock();
        self.check_goes_on(line, &lives)?;
        let told = lives.lend_told(bytes_max);
        let status = lives.status(&self.options.domain, self.env.now());
        drop(lives);
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(refusal) = told {
            self.count_refusal(refusal);
            return Ok(Message::Answer(Answer::Refused(refusal)));
        }
        tracing::info!(bytes_max, "the node was told how much to lend at most");
        self.signal.raise();
        Ok(Message::StatusIs(status))
    }

    fn share(
        &self,
        line: &Line,
        life: NodeIncarnation,
        region: RegionId,
        epoch: Epoch,
    ) -> std::result::Result<Option<String>, Farewell> {
        let mut lives = self.lives.lock();
        self.check_goes_on(line, &lives)?;
        let (lending, regions) = lives.lending();
        Ok(lending.share(regions, life, region, epoch))
    }

    fn pair(
        &self,
        line: (&Line, LineNumber),
        whose: (NodeIncarnation, RegionId, Epoch),
        queue: &QueueAddress,
    ) -> std::result::Result<Option<(QueueAddress, Window)>, Farewell> {
        let mut lives = self.lives.lock();
        self.check_goes_on(line.0, &lives)?;
        let (lending, regions) = lives.lending();
        Ok(lending.pair(regions, line.1, whose, queue))
    }

    fn count_refusal(&self, refusal: Refusal) {
        self.counters.refusals.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%refusal, "a request was refused");
    }

    /// Counts a connection that ended by its own fault, and logs the first of each kind.
    fn note_trouble(&self, peer: &str, farewell: Farewell, detail: &str) {
        let counter = match farewell {
            Farewell::Malformed => &self.counters.malformed,
            Farewell::OtherVersion
            | Farewell::WrongSecret
            | Farewell::WrongCertificate
            | Farewell::TooMany => &self.counters.refused,
            Farewell::Superseded | Farewell::Ending => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if self.told.lock().insert(farewell as u32) {
            tracing::warn!(peer, reason = %farewell, detail, "a connection was refused; others like it are \
                counted, and not logged");
        }
    }
}
