//! A process's ends of the simulated network: listeners, and the two ends of each pipe
//! ([`super::wire`]).

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::fault::crash_error;
use super::scheduler::{Shared, Sleep};
use super::state::State;
use super::wire::{End, ListenerState, Pipe, PipeId};
use super::{HostId, ProcessId};
use crate::network::{ReadHalf, Watched, WriteHalf};
use crate::{BoxFuture, Connection, Instant, Listener, Network};

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
    fn shake_hands(
        &self,
        state: &mut State,
        key: (HostId, u16),
    ) -> io::Result<(PipeId, PipeId, Option<Waker>)> {
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

    fn watch(&self, _descriptor: OwnedFd) -> io::Result<Box<dyn Watched>> {
        Err(ErrorKind::Unsupported.into())
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
        let own = state
            .network
            .listeners
            .get_mut(&self.key)
            .filter(|listener| listener.process == self.network.process);
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
        let own = state
            .network
            .listeners
            .get(&self.key)
            .is_some_and(|listener| listener.process == self.network.process);
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
        let Some(pipe) = network.pipes.get_mut(&self.pipe) else {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        };
        let mut due = None;
        if !cut {
            match (pipe.end, pipe.queue.front_mut()) {
                (Some((at, End::Reset)), _) if at <= *now => {
                    return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
                }
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
        let split = network.random.chance(0.3).then(|| network.random.below(u64::MAX));
        let Some(pipe) = network.pipes.get_mut(&self.pipe) else {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        };
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
            for (piece, later) in
                [(&bytes[..cut], 0), (&bytes[cut..count], if cut == count { 0 } else { reply })]
            {
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
            // A host without power, or a process that was killed, has ended the pipe in its own
            // way.
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
        Box::pin(poll_fn(move |context| {
            if buffer.is_empty() { Poll::Ready(Ok(0)) } else { self.poll_read(context, buffer) }
        }))
    }
}

impl WriteHalf for Sender {
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.poll_write(&Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(0),
        }
    }

    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(Sender::write_all(self, bytes))
    }
}
