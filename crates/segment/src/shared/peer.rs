//! A node of the same host, seen from a writer that stores to the node's memory itself.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Env, TaskClass, completion};
use tombolo_format::segment_record::Digest;
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use super::{Sealed, SharedMemory};
use crate::message::{Answer, Body, NodeIncarnation, NodeStatus, Refusal, RegionId, Request};
use crate::peer::Peer;
use crate::tail::{Fit, Tail};
use crate::tcp::TcpPeer;
use crate::wire::credentials::Credentials;

/// A node of the same host. Appends to regions that it made here are stores to shared memory; all else goes the way of a [`TcpPeer`], and so do appends
/// to other regions, and all of them where the node shares no memory.
pub struct SharedPeer {
    env: Env,
    node: Arc<TcpPeer>,
    /// Invariant: empty while no connection is up; what one of them shared ends with it.
    regions: Arc<Mutex<HashMap<RegionId, Shared>>>,
}

impl Drop for SharedPeer {
    fn drop(&mut self) {
        // Whoever makes a region may hold the connection.
        self.node.close();
    }
}

impl fmt::Debug for SharedPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedPeer").field(&self.node.address()).finish()
    }
}

/// A region whose memory is mapped here.
struct Shared {
    memory: SharedMemory,
    incarnation: NodeIncarnation,
    owner: Epoch,
    /// What the region holds for certain.
    tail: Tail,
}

impl SharedPeer {
    /// The node at `address`, of this host.
    pub fn new(env: &Env, address: &str, credentials: Option<Credentials>) -> SharedPeer {
        let regions = Arc::new(Mutex::new(HashMap::new()));
        let held = Arc::clone(&regions);
        let node = TcpPeer::ending_with(env, address, credentials, move || {
            let ended = std::mem::take(&mut *held.lock());
            drop(ended);
        });
        SharedPeer { env: env.clone(), node: Arc::new(node), regions }
    }

    /// Whether appends to a region are stores.
    pub fn is_shared(&self, region: RegionId) -> bool {
        self.regions.lock().contains_key(&region)
    }

    /// Makes a region, then asks for its memory. Where the node has none to share, the region is made all the same.
    fn create(&self, request: Request, bytes_max: u32) -> Completion<Result<Answer>> {
        let (completer, answer) = completion();
        let made = self.node.call(request.clone());
        let (env, node, regions) = (self.env.clone(), Arc::clone(&self.node), Arc::clone(&self.regions));
        let task = async move {
            let Some(made) = made.await else { return };
            if let Ok(Answer::Held(held)) = &made
                && let Some(connection) = node.up()
                && let Some(memory) = share(&env, &node, &request, bytes_max).await
            {
                let Request { incarnation, region, epoch, .. } = request;
                let mut regions = regions.lock();
                // Under the lock that the end of a connection takes: it ends later, and takes this along, or it has ended.
                if node.up() == Some(connection) {
                    regions.insert(region, Shared { memory, incarnation, owner: epoch, tail: Tail::new(*held, bytes_max) });
                }
            }
            completer.complete(made);
        };
        // Mapping it touches all of its pages.
        self.env.spawn(TaskClass::Foreground, "shared memory of a node", task).detach();
        answer
    }
}

/// The memory of a region; `None`: the node shares none, and says why in the log of this process.
async fn share(env: &Env, node: &TcpPeer, request: &Request, bytes_max: u32) -> Option<SharedMemory> {
    let Request { incarnation, region, .. } = *request;
    let path = match node.share(request).await {
        Some(Ok(Some(path))) => path,
        Some(Ok(None)) | None => return None,
        Some(Err(error)) => {
            tracing::warn!(node = node.address(), %error, "a node's memory is not shared");
            return None;
        }
    };
    match SharedMemory::open(env, Path::new(&path), region, incarnation, bytes_max) {
        Ok(memory) => Some(memory),
        Err(error) => {
            tracing::warn!(node = node.address(), path, %error, "a node's shared memory cannot be mapped: is it of this host, and of this user?");
            None
        }
    }
}

impl Shared {
    /// What a node would answer (rule 2). `None`: the node must be asked.
    fn append(&mut self, offset: u32, predecessor: Digest, records: &[u8]) -> Option<Answer> {
        let held = match self.tail.fit(offset, predecessor, records) {
            Fit::Follows(held) => held,
            Fit::Refused(refusal) => return Some(Answer::Refused(refusal)),
            Fit::Elsewhere => return None,
        };
        match self.memory.store(offset, records) {
            Ok(()) => {
                self.tail.extend(held);
                Some(Answer::Held(held))
            }
            Err(Sealed::By(epoch)) => Some(Answer::Refused(Refusal::Sealed(epoch))),
            Err(Sealed::Freed) => Some(Answer::Refused(Refusal::Freed)),
        }
    }
}

impl SharedPeer {
    /// The answer to an append that is a store.
    fn store(&self, request: &Request) -> Option<Result<Answer>> {
        let Body::Append { offset, predecessor, records } = &request.body else { return None };
        let mut regions = self.regions.lock();
        let shared = regions.get_mut(&request.region)?;
        if shared.incarnation != request.incarnation || shared.owner != request.epoch {
            return None;
        }
        if self.node.up().is_none() {
            // Nobody may be there to read what is stored. The next call connects again, and finds out.
            let message = format!("the connection to node {} is down", self.node.address());
            regions.remove(&request.region);
            return Some(Err(Error::new(ErrorKind::Retry, message)));
        }
        shared.append(*offset, *predecessor, records).map(Ok)
    }

    /// Sends a request, and drops the memory of a region that ends with it.
    fn send(&self, request: Request) -> Completion<Result<Answer>> {
        if matches!(request.body, Body::Seal | Body::Free) {
            self.regions.lock().remove(&request.region);
        }
        self.node.call(request)
    }
}

fn answered(answer: Result<Answer>) -> Completion<Result<Answer>> {
    let (completer, completion): (Completer<_>, _) = completion();
    completer.complete(answer);
    completion
}

impl Peer for SharedPeer {
    fn answer_at_once(&self, request: &Request) -> Option<Result<Answer>> {
        self.store(request)
    }

    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        if let Body::Create { bytes_max, .. } = request.body {
            return self.create(request, bytes_max);
        }
        // Whoever asks for an answer at once has heard of it; a node must never be asked for what is a store.
        match self.store(&request) {
            Some(answer) => answered(answer),
            None => self.send(request),
        }
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        self.node.status()
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.node.is_wanted_back(region)
    }

    fn address(&self) -> &str {
        self.node.address()
    }
}
