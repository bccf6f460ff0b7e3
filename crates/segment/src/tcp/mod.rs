//! A node behind a network, seen from a writer.
//!
//! A call is encoded and written on the caller's thread, together with whatever others have added
//! meanwhile; answers come back on the thread that waits for sockets, in the order of the calls. A
//! connection that breaks leaves calls in flight of unknown outcome, and is made again by the
//! next call, after a pause that doubles while it fails.
//!
//! ```text
//!          call                    welcome
//! down ───────────▶ connecting ──────────────▶ up
//!   ▲  (pause over)     │                      │
//!   └───────────────────┴──────────────────────┘
//!     refused, too late, broken, or what came is no frame
//! ```
//!
//! Invariants:
//! 1. Calls reach the node in their order. A later connection of this peer ends the earlier one at
//!    the node before it is welcomed, so that nothing old takes effect after something new.
//! 2. Every call is answered: by the node, or with an error once its connection has ended. Answers
//!    are waited for [`ANSWER_MAX`] at most.
//! 3. Bounded: calls in flight, their bytes that were not written, calls that wait for the
//!    connection.

pub mod introduce;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::network::{ReadHalf, WriteHalf};
use tombolo_env::{Completer, Completion, Env, Instant, Task, TaskClass, completion, within};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::message::{APPEND_BYTES_MAX, Answer, Body, NodeStatus, RegionId, Request};
#[cfg(feature = "rdma")]
use crate::message::{QueueAddress, Window};
use crate::peer::Peer;
use crate::wire::body::Message;
use crate::wire::credentials::Credentials;
use crate::wire::hello::Farewell;
use crate::wire::inbox::Inbox;
use crate::wire::secret::Way;
use crate::wire::{Header, Kind, append_frame};
use introduce::{Introduced, introduce};

/// How long connecting and the introduction may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a node may take to answer; then its connection is given up. A caller that needs to know
/// earlier looks at its own clock.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The pause after a connection that failed, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Calls in flight, and calls that wait for a connection.
pub const CALLS_MAX: usize = 4096;
/// Bytes of calls that were not written; beyond, no call is taken.
const OUT_BYTES_MAX: usize = 64 << 20;
/// A buffer of so many bytes is kept for the next calls.
const OUT_BYTES_KEPT: usize = 256 << 10;
/// Regions wanted back that are remembered.
const WANTED_BACK_MAX: usize = 1 << 16;

/// A node behind a network. Dropping it ends its connection.
pub struct TcpPeer(Arc<Shared>);

impl fmt::Debug for TcpPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TcpPeer").field(&self.0.address).finish()
    }
}

struct Shared {
    env: Env,
    address: String,
    credentials: Option<Credentials>,
    /// Whom its connections speak for.
    client: u64,
    /// Called when a connection has ended, under no lock.
    at_end: Option<Box<dyn Fn() + Send + Sync>>,
    state: Mutex<State>,
}

struct State {
    link: Link,
    /// Counts connections, so that leftovers of an earlier one change nothing.
    generation: u64,
    pause: Duration,
    /// Calls that wait for the connection.
    /// Invariant: empty unless connecting.
    waiting: VecDeque<Call>,
    wanted_back: BTreeSet<RegionId>,
    /// What the node fails together with, by the newest welcome.
    domain: Option<Arc<str>>,
    /// The trouble that was logged last: the same is not logged again.
    told: String,
}

enum Link {
    Down { retry_at: Instant, why: Error },
    Connecting,
    Up(Box<Up>),
}

struct Up {
    /// Frames that were not written.
    out: Vec<u8>,
    way: Way,
    /// `None` while somebody writes, and takes along the bytes added meanwhile.
    stream: Option<Box<dyn WriteHalf>>,
    in_flight: VecDeque<InFlight>,
    next_number: u64,
    /// Receives, and looks for answers that are late. They end with this.
    _tasks: [Task; 2],
}

struct Call {
    message: Message,
    reply: Reply,
}

enum Reply {
    Answer(Completer<Result<Answer>>),
    Status(Completer<Result<NodeStatus>>),
    Lent(Completer<Result<NodeStatus>>),
    Shared(Completer<Result<Option<String>>>),
    #[cfg(feature = "rdma")]
    Paired(Completer<Result<Option<(QueueAddress, Window)>>>),
}

impl Reply {
    fn fail(self, error: Error) {
        match self {
            Reply::Answer(completer) => completer.complete(Err(error)),
            Reply::Status(completer) | Reply::Lent(completer) => completer.complete(Err(error)),
            Reply::Shared(completer) => completer.complete(Err(error)),
            #[cfg(feature = "rdma")]
            Reply::Paired(completer) => completer.complete(Err(error)),
        }
    }
}

struct InFlight {
    number: u64,
    sent: Instant,
    /// The region that is freed by it.
    frees: Option<RegionId>,
    reply: Reply,
}

impl Up {
    fn add(&mut self, Call { message, reply }: Call, now: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        append_frame(&mut self.out, &mut self.way, message.kind(), number, |out| message.put(out));
        let frees = match &message {
            Message::Request(Request { region, body: Body::Free, .. }) => Some(*region),
            _ => None,
        };
        self.in_flight.push_back(InFlight { number, sent: now, frees, reply });
    }
}

impl TcpPeer {
    /// The node at `address` (`host:port`). Connects with the first call.
    pub fn new(env: &Env, address: &str, credentials: Option<Credentials>) -> TcpPeer {
        TcpPeer::speaking_for(env, address, credentials, env.random_u64(), None)
    }

    /// As [`TcpPeer::new`]; `at_end` is called whenever a connection has ended.
    pub(crate) fn ending_with(
        env: &Env,
        address: &str,
        credentials: Option<Credentials>,
        at_end: impl Fn() + Send + Sync + 'static,
    ) -> TcpPeer {
        TcpPeer::speaking_for(env, address, credentials, env.random_u64(), Some(Box::new(at_end)))
    }

    fn speaking_for(
        env: &Env,
        address: &str,
        credentials: Option<Credentials>,
        client: u64,
        at_end: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> TcpPeer {
        let never = Error::new(ErrorKind::Retry, "no connection yet");
        TcpPeer(Arc::new(Shared {
            env: env.clone(),
            address: address.to_owned(),
            credentials,
            client,
            at_end,
            state: Mutex::new(State {
                link: Link::Down { retry_at: Instant::from_nanos(0), why: never },
                generation: 0,
                pause: PAUSE.0,
                waiting: VecDeque::new(),
                wanted_back: BTreeSet::new(),
                domain: None,
                told: String::new(),
            }),
        }))
    }
}

impl TcpPeer {
    /// Tells the node to lend so many bytes at most from here on, until it ends. It makes no region
    /// beyond that at once; when regions take more, it asks their owners to give the largest back,
    /// as it does when its host is short of memory: they move or write to their store, and writes
    /// go on. The answer, its status, does not wait for that. The least counts of this, of what it
    /// was started with and of what its host has for it.
    ///
    /// The answer's errors: `Invalid` for more than it was started with; `Unsupported` when it is
    /// of a version that cannot be told; others as those of [`Peer::call`]. With the first two
    /// nothing changed.
    pub fn lend(&self, bytes_max: u64) -> Completion<Result<NodeStatus>> {
        let (completer, answer) = completion();
        self.0.send(Call { message: Message::Lend(bytes_max), reply: Reply::Lent(completer) });
        answer
    }

    /// Asks for the memory of a region that `request` made. `None`: the node shares none.
    pub(crate) fn share(&self, request: &Request) -> Completion<Result<Option<String>>> {
        let (completer, answer) = completion();
        let Request { incarnation, region, epoch, .. } = *request;
        self.0.send(Call {
            message: Message::Share(incarnation, region, epoch),
            reply: Reply::Shared(completer),
        });
        answer
    }

    /// Asks to write to the memory of a region that `request` made through `queue`. `None`: the
    /// node takes no such writes.
    #[cfg(feature = "rdma")]
    pub(crate) fn pair(
        &self,
        request: &Request,
        queue: QueueAddress,
    ) -> Completion<Result<Option<(QueueAddress, Window)>>> {
        let (completer, answer) = completion();
        let Request { incarnation, region, epoch, .. } = *request;
        self.0.send(Call {
            message: Message::Pair(incarnation, region, epoch, queue),
            reply: Reply::Paired(completer),
        });
        answer
    }

    /// The connection that is up, by its number.
    pub(crate) fn up(&self) -> Option<u64> {
        let state = self.0.state.lock();
        matches!(state.link, Link::Up(_)).then_some(state.generation)
    }

    /// Ends the connection, and makes no other.
    pub(crate) fn close(&self) {
        self.0.end(None, &Error::new(ErrorKind::Closed, "the connection was closed"));
    }
}

impl Drop for TcpPeer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Peer for TcpPeer {
    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        let (completer, answer) = completion();
        self.0.send(Call { message: Message::Request(request), reply: Reply::Answer(completer) });
        answer
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        let (completer, answer) = completion();
        self.0.send(Call { message: Message::Status, reply: Reply::Status(completer) });
        answer
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.0.state.lock().wanted_back.contains(&region)
    }

    fn domain(&self) -> Option<Arc<str>> {
        self.0.state.lock().domain.clone()
    }

    fn address(&self) -> &str {
        &self.0.address
    }
}

impl Shared {
    fn send(self: &Arc<Shared>, call: Call) {
        if let Message::Request(Request { body: Body::Append { records, .. }, .. }) = &call.message
            && records.len() > APPEND_BYTES_MAX
        {
            let message = format!("an append of {} bytes, more than {APPEND_BYTES_MAX}", records.len());
            return call.reply.fail(Error::new(ErrorKind::Invalid, message));
        }
        let now = self.env.now();
        let mut state = self.state.lock();
        let generation = state.generation;
        let State { link, waiting, .. } = &mut *state;
        let refused = match link {
            Link::Up(up) if up.in_flight.len() >= CALLS_MAX || up.out.len() > OUT_BYTES_MAX => {
                self.too_many()
            }
            Link::Up(up) => {
                up.add(call, now);
                let stream = up.stream.take();
                drop(state);
                if let Some(stream) = stream {
                    self.write(stream, generation);
                }
                return;
            }
            Link::Connecting if waiting.len() >= CALLS_MAX => self.too_many(),
            Link::Connecting => {
                waiting.push_back(call);
                return;
            }
            Link::Down { retry_at, why } if now < *retry_at => why.clone(),
            Link::Down { .. } => {
                state.generation += 1;
                state.link = Link::Connecting;
                state.waiting.push_back(call);
                drop(state);
                let shared = Arc::clone(self);
                self.env
                    .spawn(TaskClass::Network, "connect to a node", async move {
                        shared.connect(generation + 1).await;
                    })
                    .detach();
                return;
            }
        };
        drop(state);
        call.reply.fail(refused);
    }

    fn too_many(&self) -> Error {
        Error::new(ErrorKind::Busy, format!("too much is on its way to node {}", self.address))
            .advice("wait for some of it")
    }

    /// Writes what there is on this thread; a task goes on with what does not go at once.
    fn write(self: &Arc<Shared>, mut stream: Box<dyn WriteHalf>, generation: u64) {
        let mut bytes = Vec::new();
        while let Some((back, next)) = self.next_bytes(stream, bytes, generation) {
            (stream, bytes) = (back, next);
            match stream.try_write(&bytes) {
                Ok(count) if count == bytes.len() => {}
                Ok(count) => {
                    let shared = Arc::clone(self);
                    bytes.drain(..count);
                    let rest = async move { shared.write_on(stream, bytes, generation).await };
                    return self.env.spawn(TaskClass::Network, "write to a node", rest).detach();
                }
                Err(error) => return self.end(Some(generation), &self.broken(&error)),
            }
        }
    }

    async fn write_on(
        self: Arc<Shared>,
        mut stream: Box<dyn WriteHalf>,
        mut bytes: Vec<u8>,
        generation: u64,
    ) {
        loop {
            if let Err(error) = stream.write_all(&bytes).await {
                return self.end(Some(generation), &self.broken(&error));
            }
            match self.next_bytes(stream, bytes, generation) {
                Some((back, next)) => (stream, bytes) = (back, next),
                None => return,
            }
        }
    }

    /// The bytes to write next. When there are none, or the connection has ended, the stream goes
    /// back, and there is nothing more to do.
    fn next_bytes(
        &self,
        stream: Box<dyn WriteHalf>,
        mut written: Vec<u8>,
        generation: u64,
    ) -> Option<(Box<dyn WriteHalf>, Vec<u8>)> {
        written.clear();
        let mut state = self.state.lock();
        let is_current = state.generation == generation;
        match &mut state.link {
            Link::Up(up) if is_current && up.out.is_empty() => {
                up.stream = Some(stream);
                // A buffer that one long record made large does not stay.
                up.out = if written.capacity() <= OUT_BYTES_KEPT { written } else { Vec::new() };
                None
            }
            Link::Up(up) if is_current => Some((stream, std::mem::replace(&mut up.out, written))),
            _ => {
                drop(state);
                drop(stream);
                None
            }
        }
    }

    fn broken(&self, error: &io::Error) -> Error {
        Error::new(ErrorKind::Retry, format!("the connection to node {} broke: {error}", self.address))
    }

    async fn connect(self: Arc<Shared>, generation: u64) {
        match within(
            &self.env,
            CONNECT_MAX,
            introduce(&self.env, &self.address, self.credentials.as_ref(), self.client),
        )
        .await
        {
            Some(Ok(introduced)) => self.go_up(generation, introduced),
            Some(Err(error)) => self.end(Some(generation), &error),
            None => {
                let message = format!("node {} did not answer within {CONNECT_MAX:?}", self.address);
                self.end(
                    Some(generation),
                    &Error::new(ErrorKind::Retry, message)
                        .advice("check that it runs and can be reached from here"),
                );
            }
        }
    }

    fn go_up(self: &Arc<Shared>, generation: u64, introduced: Introduced<NodeStatus>) {
        let Introduced { read, write, to_node, to_writer, inbox, said } = introduced;
        let domain = (!said.domain.is_empty()).then(|| Arc::from(said.domain));
        let (receiver, watcher) = (Arc::clone(self), Arc::clone(self));
        let tasks = [
            self.env.spawn(TaskClass::Network, "answers of a node", async move {
                receiver.receive(generation, read, to_writer, inbox).await;
            }),
            self.env.spawn(TaskClass::Network, "late answers of a node", async move {
                watcher.watch(generation).await;
            }),
        ];
        let now = self.env.now();
        let mut up = Up {
            out: Vec::new(),
            way: to_node,
            stream: None,
            in_flight: VecDeque::new(),
            next_number: 1,
            _tasks: tasks,
        };
        let mut state = self.state.lock();
        if state.generation != generation || !matches!(state.link, Link::Connecting) {
            // It has ended meanwhile.
            drop(state);
            drop((up, write));
            return;
        }
        state.pause = PAUSE.0;
        state.domain = domain;
        let told = !std::mem::take(&mut state.told).is_empty();
        state.waiting.drain(..).for_each(|call| up.add(call, now));
        state.link = Link::Up(Box::new(up));
        drop(state);
        if told {
            tracing::info!(node = %self.address, "the node is back");
        }
        self.write(write, generation);
    }

    async fn receive(
        self: Arc<Shared>,
        generation: u64,
        mut stream: Box<dyn ReadHalf>,
        mut way: Way,
        mut inbox: Inbox,
    ) {
        let why = loop {
            match self.take_all(generation, &mut way, &mut inbox) {
                Ok(()) => {}
                Err(error) => break error,
            }
            match inbox.fill(&mut *stream).await {
                Ok(0) => {
                    break Error::new(
                        ErrorKind::Retry,
                        format!("node {} closed the connection", self.address),
                    );
                }
                Ok(_) => {}
                Err(error) => break self.broken(&error),
            }
        };
        self.end(Some(generation), &why);
    }

    fn take_all(&self, generation: u64, way: &mut Way, inbox: &mut Inbox) -> Result<()> {
        let malformed = |error| Error::format(format!("what node {} sent", self.address), 0, error);
        while let Some((Header { kind, number, .. }, body)) = inbox.next(way).map_err(malformed)? {
            if kind == Kind::Farewell {
                let reason = Farewell::decode(body).map_err(malformed)?;
                if reason == Farewell::Malformed {
                    self.fail_lend_of_earlier_version(generation);
                }
                return Err(Error::new(
                    ErrorKind::Retry,
                    format!("node {} ended the connection: {reason}", self.address),
                ));
            }
            match Message::decode(kind, body).map_err(malformed)? {
                Message::WantedBack(region) => {
                    let mut state = self.state.lock();
                    if state.generation == generation && state.wanted_back.len() < WANTED_BACK_MAX {
                        state.wanted_back.insert(region);
                    }
                }
                message => self.answer(generation, number, message)?,
            }
        }
        Ok(())
    }

    /// A node for which the oldest request is no frame is of a version before that of the request,
    /// if that is one that came later. It carried nothing of it out.
    fn fail_lend_of_earlier_version(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation != generation {
            return;
        }
        let Link::Up(up) = &mut state.link else { return };
        if !up.in_flight.front().is_some_and(|oldest| matches!(oldest.reply, Reply::Lent(_))) {
            return;
        }
        let Some(oldest) = up.in_flight.pop_front() else { return };
        drop(state);
        let message =
            format!("node {} runs a version of Tombolo that cannot be told how much to lend", self.address);
        let error = Error::new(ErrorKind::Unsupported, message)
            .advice("start the node again: this version of Tombolo, or with another --memory");
        oldest.reply.fail(error);
    }

    /// Hands an answer to its waiter: it must be the oldest call's.
    fn answer(&self, generation: u64, number: u64, message: Message) -> Result<()> {
        let mut state = self.state.lock();
        if state.generation != generation {
            return Ok(());
        }
        let Link::Up(up) = &mut state.link else { return Ok(()) };
        let (reply, frees) = match up.in_flight.pop_front() {
            Some(oldest) if oldest.number == number => (oldest.reply, oldest.frees),
            oldest => {
                let expected = oldest.as_ref().map_or("no answer".to_owned(), |oldest| {
                    format!("the answer to request {}", oldest.number)
                });
                // Its outcome is as unknown as that of the rest.
                oldest.into_iter().for_each(|oldest| up.in_flight.push_front(oldest));
                return Err(Error::corrupt(
                    format!("what node {} sent", self.address),
                    8,
                    expected,
                    format!("one to {number}"),
                ));
            }
        };
        if let (Some(region), Message::Answer(Answer::Freed)) = (frees, &message) {
            state.wanted_back.remove(&region);
        }
        drop(state);
        match (reply, message) {
            (Reply::Answer(completer), Message::Answer(answer)) => completer.complete(Ok(answer)),
            (Reply::Status(completer) | Reply::Lent(completer), Message::StatusIs(status)) => {
                completer.complete(Ok(status));
            }
            (Reply::Lent(completer), Message::Answer(Answer::Refused(refusal))) => {
                let error = Error::new(
                    ErrorKind::Invalid,
                    format!("node {} does not lend so much: {refusal}", self.address),
                );
                completer.complete(Err(
                    error.advice("tell it that or less; to lend more, start it again with a larger --memory")
                ));
            }
            (Reply::Shared(completer), Message::SharedAt(path)) => completer.complete(Ok(path)),
            #[cfg(feature = "rdma")]
            (Reply::Paired(completer), Message::PairedWith(pair)) => completer.complete(Ok(pair)),
            (reply, message) => {
                let error = Error::corrupt(
                    format!("what node {} sent", self.address),
                    4,
                    "an answer of its request's kind",
                    format!("{:?}", message.kind()),
                );
                reply.fail(unknown(&error));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives the connection up once an answer is late.
    async fn watch(self: Arc<Shared>, generation: u64) {
        loop {
            self.env.sleep(ANSWER_MAX / 4).await;
            let now = self.env.now();
            let state = self.state.lock();
            if state.generation != generation {
                return;
            }
            let late = match &state.link {
                Link::Up(up) => {
                    up.in_flight.front().is_some_and(|oldest| now.since(oldest.sent) > ANSWER_MAX)
                }
                _ => false,
            };
            drop(state);
            if late {
                let message = format!("node {} did not answer within {ANSWER_MAX:?}", self.address);
                return self.end(
                    Some(generation),
                    &Error::new(ErrorKind::Retry, message).advice("look at what the node is doing"),
                );
            }
        }
    }

    /// Ends a connection, or the attempt at one: calls in flight are of unknown outcome, those
    /// that waited never left. `None`: whichever there is, and no other is made.
    fn end(&self, generation: Option<u64>, why: &Error) {
        let now = self.env.now();
        let mut state = self.state.lock();
        let retry_at = if generation.is_none() { Instant::from_nanos(u64::MAX) } else { now + state.pause };
        let down = Link::Down { retry_at, why: why.clone() };
        match generation {
            None if matches!(state.link, Link::Down { .. }) => {
                state.link = down;
                return;
            }
            Some(generation) if state.generation != generation || matches!(state.link, Link::Down { .. }) => {
                return;
            }
            _ => {}
        }
        let before = std::mem::replace(&mut state.link, down);
        state.pause = (state.pause * 2).min(PAUSE.1);
        state.generation += 1;
        let waiting = std::mem::take(&mut state.waiting);
        let wanted_back = std::mem::take(&mut state.wanted_back);
        let text = why.to_string();
        let is_news = why.kind() != ErrorKind::Closed && state.told != text;
        if is_news {
            state.told.clone_from(&text);
        }
        drop(state);
        if is_news {
            tracing::warn!(node = %self.address, error = %text, "a node cannot be reached");
        }
        drop(wanted_back);
        if let Some(at_end) = &self.at_end {
            at_end();
        }
        for call in waiting {
            call.reply.fail(why.clone());
        }
        // The receiving task may be the one that runs: it is cancelled, and comes to its end.
        if let Link::Up(up) = before {
            for call in up.in_flight {
                call.reply.fail(unknown(why));
            }
        }
    }
}

/// What a call learns when its connection ended before its answer.
fn unknown(why: &Error) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, why.message()).advice("ask the node what it holds, or replace it")
}
