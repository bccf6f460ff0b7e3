//! A node of another host, seen from a writer whose card writes to the node's memory.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tombolo_env::network::Watched;
use tombolo_env::real::verbs::{Channel, Device};
use tombolo_env::{Completer, Completion, Env, Task, TaskClass, completion};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use super::first_packet;
use super::source::{self, Answered, SLOTS, Slots, Source, Taken};
use crate::making::Making;
use crate::message::{Answer, Body, Extent, NodeIncarnation, NodeStatus, RegionId, Request};
use crate::peer::Peer;
use crate::tcp::TcpPeer;
use crate::wire::credentials::Credentials;

/// A node whose memory this host's card writes to. Appends to regions that it made here are writes;
/// all else goes the way of a [`TcpPeer`], and so do appends to other regions, and all of them
/// where the node takes no such writes.
pub struct RdmaPeer {
    env: Env,
    node: Arc<TcpPeer>,
    shared: Arc<Shared>,
    /// Looks at completions. Ends with this.
    _task: Task,
}

struct Shared {
    device: Device,
    channel: Arc<Channel>,
    next_token: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    slots: Slots,
    /// Invariant: empty while no connection is up; pairs made on one end with it.
    regions: HashMap<RegionId, Paired>,
    making: Making,
}

/// A region whose memory is written from here.
struct Paired {
    source: Source,
    /// Tells its completions from those of others.
    token: usize,
    incarnation: NodeIncarnation,
    owner: Epoch,
}

impl Drop for RdmaPeer {
    fn drop(&mut self) {
        // The maker of a region may hold the connection.
        self.node.close();
    }
}

impl fmt::Debug for RdmaPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("RdmaPeer").field(&self.node.address()).field(&self.shared.device).finish()
    }
}

impl RdmaPeer {
    /// The node at `address`, which `device` reaches. Takes 4 MiB of registered memory.
    ///
    /// # Errors
    /// What the system says: as a rule that so much memory may not be pinned (`ulimit -l`).
    pub fn new(
        env: &Env,
        address: &str,
        credentials: Option<Credentials>,
        device: &Device,
    ) -> Result<RdmaPeer> {
        let make = || {
            let channel = Channel::new(device)?;
            let watched = env.network().watch(channel.watched()?)?;
            Ok((Slots::new(device, SLOTS)?, channel, watched))
        };
        let failed = |error| {
            Error::io(error, "preparing an RDMA device", device.name())
                .advice("allow more memory to be pinned: ulimit -l")
        };
        let (slots, channel, watched) = make().map_err(failed)?;
        let state = Mutex::new(State { slots, regions: HashMap::new(), making: Making::default() });
        let shared =
            Arc::new(Shared { device: device.clone(), channel, next_token: AtomicUsize::new(1), state });
        let (ended, listening) = (Arc::clone(&shared), Arc::clone(&shared));
        let node = Arc::new(TcpPeer::ending_with(env, address, credentials, move || ended.end_all()));
        let name = address.to_owned();
        let task = env.spawn(TaskClass::Network, "completions of a card", async move {
            listening.listen(watched, &name).await;
        });
        Ok(RdmaPeer { env: env.clone(), node, shared, _task: task })
    }

    /// Whether appends to a region are writes of the card.
    pub fn is_paired(&self, region: RegionId) -> bool {
        self.shared.state.lock().regions.contains_key(&region)
    }

    /// Makes a region, then asks for its memory. Where the node lets no card write, the region is
    /// made all the same.
    fn create(&self, request: Request, bytes_max: u32) -> Completion<Result<Answer>> {
        let (completer, answer) = completion();
        let region = request.region;
        self.shared.state.lock().making.begin(region);
        let made = self.node.call(request.clone());
        let (env, node, shared) = (self.env.clone(), Arc::clone(&self.node), Arc::clone(&self.shared));
        let task = async move {
            let made = made.await;
            let mut pair = None;
            if let Some(Ok(Answer::Held(held))) = &made
                && let Some(connection) = node.up()
                && let Some(paired) = shared.pair(&env, &node, &request, *held, bytes_max).await
            {
                pair = Some((connection, paired));
            }
            let mut state = shared.state.lock();
            let is_wanted = state.making.finish(region);
            // Under the lock that the end of a connection takes: it ends later, and takes this
            // along, or it has ended. So does whatever ends the region.
            if let Some((connection, paired)) = pair.filter(|_| is_wanted)
                && node.up() == Some(connection)
            {
                state.regions.insert(region, paired);
            }
            drop(state);
            if let Some(made) = made {
                completer.complete(made);
            }
        };
        self.env.spawn(TaskClass::Foreground, "memory of a node for a card", task).detach();
        answer
    }

    /// An append that is a write; `Err`: it is none, and goes to the node.
    fn write(&self, request: Request) -> std::result::Result<Completion<Result<Answer>>, Request> {
        let Body::Append { offset, predecessor, records } = &request.body else { return Err(request) };
        if records.is_empty() {
            // Whether the region is there, and unsealed: only the node knows.
            return Err(request);
        }
        let mut state = self.shared.state.lock();
        let State { slots, regions, .. } = &mut *state;
        let Some(paired) = regions.get_mut(&request.region) else { return Err(request) };
        if paired.incarnation != request.incarnation || paired.owner != request.epoch {
            return Err(request);
        }
        let (completer, answer) = completion();
        if self.node.up().is_none() {
            // Nobody may be there to read the request. The next call connects again, and finds
            // out.
            let message = format!("the connection to node {} is down", self.node.address());
            let ended = end(&mut state, request.region);
            drop(state);
            fail(ended, &message);
            completer.complete(Err(Error::new(ErrorKind::Retry, message)));
            return Ok(answer);
        }
        let mut answered = Vec::new();
        let taken = paired.source.append(slots, (*offset, *predecessor), records, completer);
        // What has completed meanwhile needs no event.
        let taken = taken.map(|taken| (taken, paired.source.collect(slots, &mut answered).err()));
        let (outcome, broken, waits) = match taken {
            Ok((taken, broken)) => (Some(taken), broken, None),
            Err((error, completer)) => (None, Some(error), Some(completer)),
        };
        let ended = if broken.is_some() { end(&mut state, request.region) } else { Vec::new() };
        drop(state);
        tell(answered);
        if let Some(error) = broken {
            let message = self.shared.broken(self.node.address(), &error);
            fail(ended.into_iter().chain(waits), &message);
        }
        match outcome {
            Some(Taken::Refused(completer, refusal)) => completer.complete(Ok(Answer::Refused(refusal))),
            Some(Taken::Elsewhere) => return Err(request),
            Some(Taken::Sent) | None => {}
        }
        Ok(answer)
    }
}

/// Ends the writing to a region. Who waits.
fn end(state: &mut State, region: RegionId) -> Vec<Completer<Result<Answer>>> {
    let State { slots, regions, .. } = state;
    regions.remove(&region).map(|paired| paired.source.end(slots)).unwrap_or_default()
}

fn tell(answered: Vec<Answered>) {
    for (completer, answer) in answered {
        completer.complete(Ok(answer));
    }
}

/// Writes on their way may be held, or not.
fn fail(waiting: impl IntoIterator<Item = Completer<Result<Answer>>>, message: &str) {
    for completer in waiting {
        completer.complete(Err(Error::new(ErrorKind::OutcomeUnknown, message)
            .advice("ask the node what it holds, or replace it")));
    }
}

impl Shared {
    /// The way to the memory of a region; `None`: there is none, and why is in the log of this
    /// process.
    async fn pair(
        &self,
        env: &Env,
        node: &TcpPeer,
        request: &Request,
        held: Extent,
        bytes_max: u32,
    ) -> Option<Paired> {
        let warn = |error: &dyn fmt::Display| {
            tracing::warn!(node = node.address(), %error, "a node's \
            memory is not written by this card");
        };
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let queue = source::queue(&self.device, &self.channel, token, first_packet(env))
            .inspect_err(|error| warn(error))
            .ok()?;
        let (address, window) = match node.pair(request, queue.endpoint().into()).await? {
            Ok(pair) => pair?,
            Err(error) => {
                warn(&error);
                return None;
            }
        };
        let source = Source::connect(queue, &address.into(), window, held, bytes_max)
            .inspect_err(|error| warn(error))
            .ok()?;
        Some(Paired { source, token, incarnation: request.incarnation, owner: request.epoch })
    }

    /// Looks at completions as they come.
    async fn listen(&self, watched: Box<dyn Watched>, node: &str) {
        loop {
            let mut token = 0;
            let mut take = || {
                token = self.channel.take_event()?;
                Ok(())
            };
            if let Err(error) = watched.until_done(&mut take).await {
                // Appends are still looked at by those that follow, and given up by their waiters
                // then.
                tracing::error!(%error, node, "a card tells of no completions any more");
                return self.end_all();
            }
            self.look(token, node);
        }
    }

    /// The pair with this token has completions.
    fn look(&self, token: usize, node: &str) {
        let mut answered = Vec::new();
        let mut state = self.state.lock();
        let State { slots, regions, .. } = &mut *state;
        let Some((region, paired)) = regions.iter_mut().find(|(_, paired)| paired.token == token) else {
            return;
        };
        let region = *region;
        // In this order: what completes between the two is told of.
        let looked = paired.source.arm().and_then(|()| paired.source.collect(slots, &mut answered));
        let ended = if looked.is_err() { end(&mut state, region) } else { self.post_others(&mut state) };
        drop(state);
        tell(answered);
        let message = looked.err().map(|error| self.broken(node, &error)).unwrap_or_default();
        fail(ended, &message);
    }

    /// Slots are free: their waiters have them. Who waits at a source that broke.
    fn post_others(&self, state: &mut State) -> Vec<Completer<Result<Answer>>> {
        let State { slots, regions, .. } = state;
        let broken: Vec<RegionId> = regions
            .iter_mut()
            .filter_map(|(region, paired)| paired.source.post(slots).err().map(|_| *region))
            .collect();
        broken.into_iter().flat_map(|region| end(state, region)).collect()
    }

    fn broken(&self, node: &str, error: &io::Error) -> String {
        tracing::warn!(node, device = self.device.name(), %error, "writes to a region of a node are over");
        format!("the writes to a region of node {node} broke: {error}")
    }

    fn end_all(&self) {
        let mut state = self.state.lock();
        let State { slots, regions, .. } = &mut *state;
        let waiting: Vec<_> = regions.drain().flat_map(|(_, paired)| paired.source.end(slots)).collect();
        drop(state);
        fail(waiting, "the connection to the node has ended");
    }
}

impl Peer for RdmaPeer {
    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        if let Body::Create { bytes_max, .. } = request.body {
            return self.create(request, bytes_max);
        }
        match self.write(request) {
            Ok(answer) => answer,
            Err(request) => {
                if matches!(request.body, Body::Seal | Body::Free) {
                    let mut state = self.shared.state.lock();
                    state.making.forget(request.region);
                    let ended = end(&mut state, request.region);
                    drop(state);
                    fail(ended, "the region was sealed or freed by its writer");
                }
                self.node.call(request)
            }
        }
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        self.node.status()
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.node.is_wanted_back(region)
    }

    fn domain(&self) -> Option<Arc<str>> {
        self.node.domain()
    }

    fn address(&self) -> &str {
        self.node.address()
    }
}
