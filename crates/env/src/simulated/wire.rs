//! What lies between the hosts of a simulated network: pipes with bytes under way, listeners, cuts.
//!
//! A connection is two pipes. A pipe's bytes arrive in order, each piece after a delay of its own,
//! in pieces that need not be those that were written. While the way from one host to another is
//! cut, nothing arrives, ends and resets included, and everything arrives after it has healed (as
//! TCP's retransmissions do). A killed process closes or resets its connections; a host that loses
//! power says nothing: a peer that only reads waits for ever, a peer that writes is reset.
//!
//! Invariant: a pipe's `queue` is ordered by arrival, and `end` arrives after it, save a reset.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use super::random::Random;
use super::{HostId, ProcessId};

/// Delay of a piece, by default.
const DELAY_NANOS: (u64, u64) = (20_000, 500_000);

pub(super) type PipeId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The writer has closed.
    Closed,
    /// The connection is broken.
    Reset,
}

#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) from: (HostId, ProcessId),
    pub(super) to: (HostId, ProcessId),
    pub(super) reverse: PipeId,
    pub(super) queue: VecDeque<(u64, VecDeque<u8>)>,
    pub(super) buffered: usize,
    pub(super) end: Option<(u64, End)>,
    /// Nobody will read again: from this moment on writers get an error.
    pub(super) broken: Option<u64>,
    /// The reading host lost its power: the next write resets the connection.
    pub(super) reader_lost: bool,
    pub(super) reader_gone: bool,
    pub(super) writer_gone: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct ListenerState {
    pub(super) process: ProcessId,
    pub(super) backlog: VecDeque<(PipeId, PipeId, String)>,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) random: Random,
    delay_nanos: (u64, u64),
    pub(super) listeners: BTreeMap<(HostId, u16), ListenerState>,
    pub(super) pipes: BTreeMap<PipeId, Pipe>,
    /// Directed: nothing arrives from the first host at the second.
    pub(super) cuts: BTreeSet<(HostId, HostId)>,
}

impl NetworkState {
    pub(super) fn new(random: Random) -> NetworkState {
        NetworkState {
            random,
            delay_nanos: DELAY_NANOS,
            listeners: BTreeMap::new(),
            pipes: BTreeMap::new(),
            cuts: BTreeSet::new(),
        }
    }

    pub(super) fn set_delay(&mut self, min: Duration, max: Duration) {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.delay_nanos = (nanos(min), nanos(max).max(nanos(min)));
    }

    pub(super) fn delay(&mut self) -> u64 {
        let (min, max) = self.delay_nanos;
        min + self.random.below(max - min + 1)
    }

    pub(super) fn is_cut(&self, pipe: &Pipe) -> bool {
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
        let closed: Vec<(HostId, u16)> = self
            .listeners
            .iter()
            .filter(|(_, listener)| listener.process == process)
            .map(|(key, _)| *key)
            .collect();
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

    pub(super) fn finish(&mut self, id: PipeId, at: u64, end: End) -> Option<Waker> {
        let pipe = self.pipes.get_mut(&id)?;
        let last = pipe.queue.back().map_or(0, |(at, _)| *at);
        pipe.end = Some((at.max(if end == End::Closed { last } else { 0 }), end));
        pipe.reader.take()
    }

    pub(super) fn stop_listening(&mut self, key: (HostId, u16), now: u64) -> Vec<Waker> {
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

    pub(super) fn sweep(&mut self) {
        self.pipes.retain(|_, pipe| !(pipe.reader_gone && pipe.writer_gone));
    }

    /// Forgets everything; the wakers are to be dropped outside the lock.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        let pipes = std::mem::take(&mut self.pipes)
            .into_values()
            .flat_map(|pipe| pipe.reader.into_iter().chain(pipe.writer));
        let listeners =
            std::mem::take(&mut self.listeners).into_values().filter_map(|listener| listener.waker);
        pipes.chain(listeners).collect()
    }
}

impl Pipe {
    pub(super) fn new(from: (HostId, ProcessId), to: (HostId, ProcessId), reverse: PipeId) -> Pipe {
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
