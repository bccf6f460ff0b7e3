//! Readiness of sockets, as the kernel tells it: each is registered once, for both directions, and
//! the kernel tells of changes only (edge-triggered epoll). So a message costs its reader one read,
//! and a share of one wait.
//!
//! Invariants:
//! 1. A direction that is not ready had nothing when it was last tried, and whatever has come since
//!    is told by an event that is still to be looked at.
//! 2. Who waits is woken under no lock.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// Events taken at once.
const EVENTS_MAX: usize = 128;
/// The token of what wakes the waiting thread.
const ALARM: u64 = 0;
/// Tries that a thread makes before the task that makes them lets others run: of a stream that
/// always has more there is no end.
const TRIES_MAX: u32 = 64;

thread_local! {
    static TRIES: Cell<u32> = const { Cell::new(0) };
}

/// All sockets of a world.
#[derive(Debug)]
pub(super) struct Reactor {
    epoll: OwnedFd,
    alarm: OwnedFd,
    next_token: AtomicU64,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
}

/// The state of one socket.
#[derive(Debug)]
pub(super) struct Source(Mutex<[Direction; 2]>);

/// Reading or writing.
#[derive(Debug)]
struct Direction {
    is_ready: bool,
    /// The other side has ended it, or it broke: there is always something to be had, an end or an
    /// error.
    is_over: bool,
    /// Events so far.
    events: u64,
    waker: Option<Waker>,
}

/// Which direction of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Read = 0,
    Write = 1,
}

impl Source {
    fn new() -> Source {
        // The first attempt finds out.
        let direction = || Direction { is_ready: true, is_over: false, events: 0, waker: None };
        Source(Mutex::new([direction(), direction()]))
    }

    fn hear(&self, flags: epoll::EventFlags, wakers: &mut Vec<Waker>) {
        use epoll::EventFlags as Flags;
        let broken = Flags::ERR | Flags::HUP;
        let mut ways = self.0.lock();
        for (direction, ready, over) in
            [(Way::Read, Flags::IN | Flags::RDHUP, broken | Flags::RDHUP), (Way::Write, Flags::OUT, broken)]
        {
            let way = &mut ways[direction as usize];
            if flags.intersects(ready | over) {
                way.is_ready = true;
                way.is_over |= flags.intersects(over);
                way.events += 1;
                wakers.extend(way.waker.take());
            }
        }
    }

    /// Tries until it does not have to wait. `attempt` says how it went, and whether that was all
    /// that there was.
    pub(super) async fn until_done<T>(
        &self,
        way: Way,
        mut attempt: impl FnMut() -> io::Result<(T, bool)>,
    ) -> io::Result<T> {
        poll_fn(|context| {
            loop {
                if TRIES.replace(TRIES.get() + 1) >= TRIES_MAX {
                    TRIES.set(0);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let events = {
                    let mut ways = self.0.lock();
                    let way = &mut ways[way as usize];
                    if !way.is_ready && !way.is_over {
                        let before = match &way.waker {
                            Some(waker) if waker.will_wake(context.waker()) => None,
                            _ => way.waker.replace(context.waker().clone()),
                        };
                        drop(ways);
                        drop(before);
                        return Poll::Pending;
                    }
                    way.events
                };
                let result = attempt();
                let is_empty = match &result {
                    Ok((_, is_all)) => *is_all,
                    Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                };
                if is_empty {
                    let mut ways = self.0.lock();
                    let way = &mut ways[way as usize];
                    // What came meanwhile counts.
                    way.is_ready = way.events != events;
                    if result.is_err() && !way.is_ready {
                        // Nothing is to be had, whatever was said before the attempt: the next
                        // event tells.
                        way.is_over = false;
                    }
                }
                match result {
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    }
                    result => return Poll::Ready(result.map(|(value, _)| value)),
                }
            }
        })
        .await
    }
}

impl Reactor {
    /// Takes two descriptors.
    pub(super) fn new() -> io::Result<Arc<Reactor>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &alarm,
            epoll::EventData::new_u64(ALARM),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        Ok(Arc::new(Reactor {
            epoll,
            alarm,
            next_token: AtomicU64::new(ALARM + 1),
            sources: Mutex::default(),
        }))
    }

    /// Whether there is a socket.
    pub(super) fn has_sockets(&self) -> bool {
        !self.sources.lock().is_empty()
    }

    /// Ends the current wait, or the next one.
    pub(super) fn ring(&self) {
        // A counter that is full rings as well.
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }

    /// Waits for events and gives them to `events`; at most so long. One thread at a time.
    pub(super) fn wait(&self, timeout: Option<Duration>, events: &mut Vec<epoll::Event>) {
        events.clear();
        events.reserve(EVENTS_MAX);
        // A longer one is cut: who waits looks at the time himself.
        let limit = |duration: Duration| Timespec {
            tv_sec: i64::try_from(duration.as_secs().min(3600)).unwrap_or(3600),
            tv_nsec: duration.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.map(limit).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                panic!("waiting for sockets failed, which descriptors of our own do by a bug only: {error}")
            }
        }
    }

    /// Wakes the tasks that wait for these events.
    pub(super) fn hear(&self, events: &[epoll::Event]) {
        let mut wakers = Vec::new();
        for event in events {
            let token = event.data.u64();
            if token == ALARM {
                continue;
            }
            let source = self.sources.lock().get(&token).cloned();
            if let Some(source) = source {
                source.hear(event.flags, &mut wakers);
            }
        }
        for waker in wakers {
            // The leader goes on even if a waker panics: the panic hook has reported it.
            drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
    }
}

/// A socket, registered as long as this lives.
#[derive(Debug)]
pub(super) struct Registered<S: AsFd> {
    reactor: Arc<Reactor>,
    token: u64,
    source: Arc<Source>,
    socket: S,
}

impl<S: AsFd> Registered<S> {
    /// Of a socket that does not block.
    pub(super) fn new(reactor: &Arc<Reactor>, socket: S) -> io::Result<Registered<S>> {
        use epoll::EventFlags as Flags;
        let token = reactor.next_token.fetch_add(1, Ordering::Relaxed);
        let source = Arc::new(Source::new());
        reactor.sources.lock().insert(token, Arc::clone(&source));
        let registered = Registered { reactor: Arc::clone(reactor), token, source, socket };
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        epoll::add(&reactor.epoll, &registered.socket, epoll::EventData::new_u64(token), flags)?;
        Ok(registered)
    }

    /// What it is registered with.
    pub(super) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }
}

impl<S: AsFd> Drop for Registered<S> {
    fn drop(&mut self) {
        // One that could not be registered is none.
        let _ = epoll::delete(&self.reactor.epoll, &self.socket);
        let source = self.reactor.sources.lock().remove(&self.token);
        drop(source);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn whoever_always_has_more_lets_others_run() {
        let source = Source::new();
        let mut endless = pin!(async {
            for _ in 0..1000 {
                source.until_done(Way::Read, || Ok(((), false))).await.expect("it has more");
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(endless.as_mut().poll(&mut context).is_pending());
        }
    }

    /// The end of a stream comes while a read finds nothing, and a later read takes all that there
    /// was: the end is still to be had.
    #[test]
    fn an_end_that_comes_during_an_attempt_is_not_forgotten() {
        let source = Source::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut wakers = Vec::new();
        let end = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        source.hear(end, &mut wakers);
        let mut attempts = [Err(io::ErrorKind::WouldBlock), Ok((4, true)), Ok((0, false))].into_iter();
        let mut read = || {
            if attempts.len() == 3 {
                // It comes behind the attempt's back.
                source.hear(end, &mut Vec::new());
            }
            attempts.next().expect("an attempt is left").map_err(io::Error::from)
        };
        for expected in [4, 0] {
            let mut reading = pin!(source.until_done(Way::Read, &mut read));
            match reading.as_mut().poll(&mut context) {
                Poll::Ready(count) => assert_eq!(count.expect("bytes"), expected),
                Poll::Pending => panic!("it waits for an event that has been"),
            }
        }
    }
}
