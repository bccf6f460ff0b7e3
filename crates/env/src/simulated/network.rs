//! The simulated network: byte streams with delays, partitions and resets.
//!
//! A connection is two pipes. A pipe's bytes arrive in order, each piece after a delay of its own, in pieces that need not be those that were
//! written. While the way from one host to another is cut, nothing arrives, ends and resets included, and everything arrives after it
//! has healed (as TCP's retransmissions do). A killed process closes or resets its connections; a host that loses power says nothing: a peer
//! that only reads waits for ever, a peer that writes is reset.
//!
//! Invariant: a pipe's `queue` is ordered by arrival, and `end` arrives after it, save a reset.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::fault::crash_error;
use super::random::Random;
use super::scheduler::{Shared, Sleep};
use super::state::State;
use super::{HostId, ProcessId};
use crate::network::{ReadHalf, WriteHalf};
use crate::{BoxFuture, Connection, Instant, Listener, Network};

/// Delay of a piece, by default.
const DELAY_NANOS: (u64, u64) = (20_000, 500_000);
/// How long connecting tries through a cut.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often it tries.
const CONNECT_RETRY: Duration = Duration::from_millis(100);
/// Bytes under way in one pipe; then the writer waits.
const PIPE_BYTES_MAX: usize = 1 << 20;
/// Connections that wait to be accepted; more are refused.
const BACKLOG_MAX: usize = 1024;
/// First port given out for port 0.
const FREE_PORT_FIRST: u16 = 40_000;

type PipeId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The writer has closed.
    Closed,
    /// The connection is broken.
    Reset,
}

#[derive(Debug)]
struct Pipe {
    from: (HostId, ProcessId),
    to: (HostId, ProcessId),
    reverse: PipeId,
    queue: VecDeque<(u64, VecDeque<u8>)>,
    buffered: usize,
    end: Option<(u64, End)>,
    /// Nobody will read again: from this moment on writers get an error.
    broken: Option<u64>,
    /// The reading host lost its power: the next write resets the connection.
    reader_lost: bool,
    reader_gone: bool,
    writer_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct ListenerState {
    process: ProcessId,
    backlog: VecDeque<(PipeId, PipeId, String)>,
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct NetworkState {
    random: Random,
    delay_nanos: (u64, u64),
    listeners: BTreeMap<(HostId, u16), ListenerState>,
    pipes: BTreeMap<PipeId, Pipe>,
    /// Directed: nothing arrives from the first host at the second.
    cuts: BTreeSet<(HostId, HostId)>,
}

impl NetworkState {
    pub(super) fn new(random: Random) -> NetworkState {
        NetworkState { random, delay_nanos: DELAY_NANOS, listeners: BTreeMap::new(), pipes: BTreeMap::new(), cuts: BTreeSet::new() }
    }

    pub(super) fn set_delay(&mut self, min: Duration, max: Duration) {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.delay_nanos = (nanos(min), nanos(max).max(nanos(min)));
    }

    fn delay(&mut self) -> u64 {
        let (min, max) = self.delay_nanos;
        min + self.random.below(max - min + 1)
    }

    fn is_cut(&self, pipe: &Pipe) -> bool {
        self.cuts.contains(&(pipe.from.0, pipe.to.0))
    }

    pub(super) fn cut(&mut self, from: HostId, to: HostId) {
        self.cuts.insert((from, to));
    }

    pub(super) fn heal(&mut self, from: HostId, to: HostId, now: u64) -> Vec<Waker> {
        self.cuts.remove(&(from, to));
        let delay = self.delay();
        let mut wakers = Vec::new();
        for pipe in self.pipes.values_mut().filter(|pipe| pipe.from.0 == from && pipe.to.0 == to) {
            for (at, _) in &mut pipe.queue {
                *at = (*at).max(now + delay);
            }
            if let Some((at, _)) = &mut pipe.end {
                *at = (*at).max(now + delay);
            }
            wakers.extend(pipe.reader.take());
            wakers.extend(pipe.writer.take());
        }
        wakers
    }

    /// Resets all connections between two hosts.
    pub(super) fn reset(&mut self, one: HostId, other: HostId, now: u64) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for pipe in self.pipes.values_mut() {
            if (pipe.from.0 == one && pipe.to.0 == other) || (pipe.from.0 == other && pipe.to.0 == one) {
                wakers.extend(pipe.break_at(now));
            }
        }
        wakers
    }

    /// The kernel closes what a killed process had open.
    pub(super) fn process_ended(&mut self, process: ProcessId, now: u64) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let closed: Vec<(HostId, u16)> =
            self.listeners.iter().filter(|(_, listener)| listener.process == process).map(|(key, _)| *key).collect();
        for key in closed {
            wakers.extend(self.stop_listening(key, now));
        }
        let ends: Vec<PipeId> = self.pipes.keys().copied().collect();
        for id in ends {
            let at = now + self.delay();
            let reset = self.random.chance(0.5);
            let Some(pipe) = self.pipes.get_mut(&id) else { continue };
            if pipe.from.1 == process && !pipe.writer_gone {
                pipe.writer_gone = true;
                if self.pipes.get(&id).is_some_and(|pipe| pipe.end.is_none()) {
                    let end = if reset { End::Reset } else { End::Closed };
                    wakers.extend(self.finish(id, at, end));
                }
            } else if pipe.to.1 == process && !pipe.reader_gone {
                pipe.reader_gone = true;
                pipe.broken.get_or_insert(at);
                wakers.extend(pipe.writer.take());
            }
        }
        self.sweep();
        wakers
    }

    /// What a host without power had under way is gone, and its peers learn nothing.
    pub(super) fn host_lost(&mut self, host: HostId) {
        for pipe in self.pipes.values_mut() {
            if pipe.from.0 == host && pipe.to.0 != host {
                pipe.queue.clear();
                pipe.buffered = 0;
                pipe.writer_gone = true;
            } else if pipe.to.0 == host && pipe.from.0 != host {
                pipe.reader_gone = true;
                pipe.reader_lost = true;
            }
        }
    }

    fn finish(&mut self, id: PipeId, at: u64, end: End) -> Option<Waker> {
        let pipe = self.pipes.get_mut(&id)?;
        let last = pipe.queue.back().map_or(0, |(at, _)| *at);
        pipe.end = Some((at.max(if end == End::Closed { last } else { 0 }), end));
        pipe.reader.take()
    }

    fn stop_listening(&mut self, key: (HostId, u16), now: u64) -> Vec<Waker> {
        let Some(listener) = self.listeners.remove(&key) else { return Vec::new() };
        let mut wakers: Vec<Waker> = listener.waker.into_iter().collect();
        for (read, write, _) in listener.backlog {
            for id in [read, write] {
                if let Some(pipe) = self.pipes.get_mut(&id) {
                    wakers.extend(pipe.break_at(now));
                }
            }
        }
        wakers
    }

    fn sweep(&mut self) {
        self.pipes.retain(|_, pipe| !(pipe.reader_gone && pipe.writer_gone));
    }

    /// Forgets everything; the wakers are to be dropped outside the lock.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        let pipes = std::mem::take(&mut self.pipes).into_values().flat_map(|pipe| pipe.reader.into_iter().chain(pipe.writer));
        let listeners = std::mem::take(&mut self.listeners).into_values().filter_map(|listener| listener.waker);
        pipes.chain(listeners).collect()
    }
}

impl Pipe {
    fn new(from: (HostId, ProcessId), to: (HostId, ProcessId), reverse: PipeId) -> Pipe {
        Pipe {
            from,
            to,
            reverse,
            queue: VecDeque::new(),
            buffered: 0,
            end: None,
            broken: None,
            reader_lost: false,
            reader_gone: false,
            writer_gone: false,
            reader: None,
            writer: None,
        }
    }

    fn break_at(&mut self, now: u64) -> impl Iterator<Item = Waker> + use<> {
        self.end = Some((now, End::Reset));
        self.broken = Some(now);
        self.reader.take().into_iter().chain(self.writer.take())
    }
}

/// A process's view of the network.
#[derive(Clone)]
pub(super) struct SimulatedNetwork {
    shared: Arc<Shared>,
    process: ProcessId,
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedNetwork(process {})", self.process.0)
    }
}

impl SimulatedNetwork {
    pub(super) fn new(shared: Arc<Shared>, process: ProcessId) -> SimulatedNetwork {
        SimulatedNetwork { shared, process }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let deadline = Instant::from_nanos(self.shared.state.lock().now) + duration;
        Sleep::new(Arc::clone(&self.shared), deadline)
    }

    fn delay(&self) -> Sleep {
        let delay = self.shared.state.lock().network.delay();
        self.sleep(Duration::from_nanos(delay))
    }

    /// The host and port that an address means to this process.
    fn resolve(&self, address: &str) -> io::Result<(HostId, u16)> {
        let (name, port) = address.rsplit_once(':').ok_or(ErrorKind::InvalidInput)?;
        let port = port.parse().map_err(|_| ErrorKind::InvalidInput)?;
        let mut state = self.shared.state.lock();
        if ["", "localhost", "127.0.0.1", "0.0.0.0"].contains(&name) {
            return Ok((state.process(self.process).host, port));
        }
        let host = state.hosts.iter().position(|host| host.name == name).ok_or(ErrorKind::NotFound)?;
        Ok((HostId(u32::try_from(host).unwrap_or(u32::MAX)), port))
    }

    fn listen_now(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let (host, mut port) = self.resolve(address)?;
        let mut state = self.shared.state.lock();
        if !state.is_alive(self.process) {
            return Err(crash_error());
        }
        if state.process(self.process).host != host {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        if port == 0 {
            let free = (FREE_PORT_FIRST..).find(|port| !state.network.listeners.contains_key(&(host, *port)));
            port = free.ok_or(ErrorKind::AddrInUse)?;
        }
        if state.network.listeners.contains_key(&(host, port)) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let listener = ListenerState { process: self.process, backlog: VecDeque::new(), waker: None };
        state.network.listeners.insert((host, port), listener);
        let address = format!("{}:{port}", state.host(host).name);
        state.note(format!("process {} listens on {address}", self.process.0));
        Ok(Box::new(SimulatedListener { network: self.clone(), key: (host, port), address }))
    }

    async fn connect_to(&self, address: &str) -> io::Result<Box<dyn Connection>> {
        let key = self.resolve(address)?;
        let deadline = Instant::from_nanos(self.shared.state.lock().now) + CONNECT_TIMEOUT;
        loop {
            self.delay().await;
            let attempt = {
                let mut state = self.shared.state.lock();
                if !state.is_alive(self.process) {
                    return Err(crash_error());
                }
                let own = state.process(self.process).host;
                if state.network.cuts.contains(&(own, key.0)) || state.network.cuts.contains(&(key.0, own)) {
                    if state.now >= deadline.as_nanos() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    None
                } else {
                    Some(self.shake_hands(&mut state, key)?)
                }
            };
            let Some((read, write, waker)) = attempt else {
                self.sleep(CONNECT_RETRY).await;
                continue;
            };
            if let Some(waker) = waker {
                waker.wake();
            }
            let connection = self.connection(read, write, address.to_owned());
            self.delay().await;
            return Ok(Box::new(connection));
        }
    }

    /// Makes the two pipes and hands them to the listener.
    fn shake_hands(&self, state: &mut State, key: (HostId, u16)) -> io::Result<(PipeId, PipeId, Option<Waker>)> {
        let (forward, back) = (state.fresh_id(), state.fresh_id());
        let own = (state.process(self.process).host, self.process);
        let name = format!("{}:{}", state.host(own.0).name, forward % 20_000 + 40_000);
        let State { network, .. } = state;
        let listener = network.listeners.get_mut(&key).ok_or(ErrorKind::ConnectionRefused)?;
        if listener.backlog.len() >= BACKLOG_MAX {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let other = (key.0, listener.process);
        listener.backlog.push_back((forward, back, name.clone()));
        let waker = listener.waker.take();
        network.pipes.insert(forward, Pipe::new(own, other, back));
        network.pipes.insert(back, Pipe::new(other, own, forward));
        state.note(format!("{name} connects to process {}", other.1.0));
        Ok((back, forward, waker))
    }

    fn connection(&self, read: PipeId, write: PipeId, peer: String) -> SimulatedConnection {
        SimulatedConnection {
            read: Receiver { network: self.clone(), pipe: read },
            write: Sender { network: self.clone(), pipe: write },
            peer,
        }
    }
}

impl Network for SimulatedNetwork {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move { self.listen_now(address) })
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(self.connect_to(address))
    }
}

#[derive(Debug)]
struct SimulatedListener {
    network: SimulatedNetwork,
    key: (HostId, u16),
    address: String,
}

impl SimulatedListener {
    fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<Box<dyn Connection>>> {
        let mut state = self.network.shared.state.lock();
        let own = state.network.listeners.get_mut(&self.key).filter(|listener| listener.process == self.network.process);
        let Some(listener) = own else { return Poll::Ready(Err(crash_error())) };
        if let Some((read, write, peer)) = listener.backlog.pop_front() {
            drop(state);
            return Poll::Ready(Ok(Box::new(self.network.connection(read, write, peer))));
        }
        let before = listener.waker.replace(context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Listener for SimulatedListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(poll_fn(|context| self.poll_accept(context)))
    }

    fn local_address(&self) -> io::Result<String> {
        Ok(self.address.clone())
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        let mut state = self.network.shared.state.lock();
        let now = state.now;
        let own = state.network.listeners.get(&self.key).is_some_and(|listener| listener.process == self.network.process);
        let wakers = if own { state.network.stop_listening(self.key, now) } else { Vec::new() };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The reading end of a pipe.
#[derive(Debug)]
struct Receiver {
    network: SimulatedNetwork,
    pipe: PipeId,
}

impl Receiver {
    fn poll_read(&self, context: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.network.shared.state.lock();
        if !state.is_alive(self.network.process) {
            return Poll::Ready(Err(crash_error()));
        }
        let State { network, now, timers, .. } = &mut *state;
        let cut = network.pipes.get(&self.pipe).is_some_and(|pipe| network.is_cut(pipe));
        let Some(pipe) = network.pipes.get_mut(&self.pipe) else { return Poll::Ready(Err(ErrorKind::ConnectionReset.into())) };
        let mut due = None;
        if !cut {
            match (pipe.end, pipe.queue.front_mut()) {
                (Some((at, End::Reset)), _) if at <= *now => return Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                (_, Some((at, piece))) if *at <= *now => {
                    let count = buffer.len().min(piece.len());
                    for (slot, byte) in buffer.iter_mut().zip(piece.drain(..count)) {
                        *slot = byte;
                    }
                    if piece.is_empty() {
                        pipe.queue.pop_front();
                    }
                    pipe.buffered -= count;
                    let waker = pipe.writer.take();
                    drop(state);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                    return Poll::Ready(Ok(count));
                }
                (Some((at, End::Closed)), None) if at <= *now => return Poll::Ready(Ok(0)),
                (end, front) => due = front.map(|(at, _)| *at).into_iter().chain(end.map(|(at, _)| at)).min(),
            }
        }
        let before = pipe.reader.replace(context.waker().clone());
        let timer = due.and_then(|due| timers.insert((due, self.pipe), context.waker().clone()));
        drop(state);
        drop((before, timer));
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.network.shared.state.lock();
        let at = state.now + state.network.delay();
        let wakers = state.network.pipes.get_mut(&self.pipe).map(|pipe| {
            pipe.reader_gone = true;
            // A host without power tells nobody.
            if !pipe.reader_lost {
                pipe.broken.get_or_insert(at);
            }
            (pipe.reader.take(), pipe.writer.take())
        });
        state.network.sweep();
        drop(state);
        if let Some((reader, writer)) = wakers {
            drop(reader);
            if let Some(writer) = writer {
                writer.wake();
            }
        }
    }
}

/// The writing end of a pipe.
#[derive(Debug)]
struct Sender {
    network: SimulatedNetwork,
    pipe: PipeId,
}

impl Sender {
    /// Hands over as much as fits.
    fn poll_write(&self, context: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.network.shared.state.lock();
        if !state.is_alive(self.network.process) {
            return Poll::Ready(Err(crash_error()));
        }
        let State { network, now, trace, .. } = &mut *state;
        let (delay, reply) = (network.delay(), network.delay());
        let split = network.random.chance(0.3).then(|| network.random.next());
        let Some(pipe) = network.pipes.get_mut(&self.pipe) else { return Poll::Ready(Err(ErrorKind::BrokenPipe.into())) };
        if pipe.broken.is_some_and(|at| at <= *now) {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        let count = bytes.len().min(PIPE_BYTES_MAX.saturating_sub(pipe.buffered));
        if count == 0 && !pipe.reader_gone {
            let before = pipe.writer.replace(context.waker().clone());
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        let mut waker = None;
        if pipe.reader_lost {
            let (at, reverse) = (*now + delay + reply, pipe.reverse);
            pipe.broken = Some(at);
            waker = network.finish(reverse, at, End::Reset);
        } else if !pipe.reader_gone {
            let last = pipe.queue.back().map_or(0, |(at, _)| *at);
            let cut = split.map_or(count, |split| usize::try_from(split % count as u64).unwrap_or(0));
            for (piece, later) in [(&bytes[..cut], 0), (&bytes[cut..count], if cut == count { 0 } else { reply })] {
                if !piece.is_empty() {
                    pipe.queue.push_back(((*now + delay + later).max(last), piece.iter().copied().collect()));
                }
            }
            pipe.buffered += count;
            waker = pipe.reader.take();
        }
        trace.mix(*now);
        trace.mix(count as u64);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(Ok(if count == 0 { bytes.len() } else { count }))
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|context| self.poll_write(context, bytes)).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.network.shared.state.lock();
        let at = state.now + state.network.delay();
        let mut wakers = (None, None);
        if let Some(pipe) = state.network.pipes.get_mut(&self.pipe) {
            pipe.writer_gone = true;
            wakers.0 = pipe.writer.take();
            // A host without power, or a process that was killed, has ended the pipe in its own way.
            if pipe.end.is_none() && state.is_alive(self.network.process) {
                wakers.1 = state.network.finish(self.pipe, at, End::Closed);
            }
        }
        state.network.sweep();
        drop(state);
        drop(wakers.0);
        if let Some(reader) = wakers.1 {
            reader.wake();
        }
    }
}

#[derive(Debug)]
struct SimulatedConnection {
    read: Receiver,
    write: Sender,
    peer: String,
}

impl Connection for SimulatedConnection {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>> {
        self.read.read(buffer)
    }

    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.write.write_all(bytes))
    }

    fn split(self: Box<Self>) -> (Box<dyn ReadHalf>, Box<dyn WriteHalf>) {
        (Box::new(self.read), Box::new(self.write))
    }

    fn peer_address(&self) -> String {
        self.peer.clone()
    }
}

impl ReadHalf for Receiver {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(poll_fn(move |context| if buffer.is_empty() { Poll::Ready(Ok(0)) } else { self.poll_read(context, buffer) }))
    }
}

impl WriteHalf for Sender {
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(Sender::write_all(self, bytes))
    }
}
