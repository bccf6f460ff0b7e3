//! A node of the same host, seen from a writer that stores to the node's memory itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completion, Env, TaskClass, completion};
use tombolo_format::segment_record::Digest;
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use super::reading::Reading;
use super::{Sealed, SharedMemory, Stored, answered};
use crate::making::Making;
use crate::message::{Answer, Body, Extent, NodeIncarnation, NodeStatus, Refusal, RegionId, Request};
use crate::peer::{AtOnce, Peer};
use crate::tail::{Fit, Tail};
use crate::tcp::TcpPeer;
use crate::wire::credentials::Credentials;

/// A node of the same host. Appends to regions that it made here are stores to shared memory, and
/// reads of sealed regions whose records lie there are loads; all else goes the way of a
/// [`TcpPeer`], and so does whatever is about other regions, and all of it where the node shares no
/// memory.
pub struct SharedPeer {
    env: Env,
    node: Arc<TcpPeer>,
    regions: Arc<Mutex<Regions>>,
    /// Invariant: as for the regions that are filled.
    reading: Arc<Reading>,
}

impl Drop for SharedPeer {
    fn drop(&mut self) {
        // The maker of a region may hold the connection.
        self.node.close();
    }
}

impl fmt::Debug for SharedPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedPeer").field(&self.node.address()).finish()
    }
}

#[derive(Default)]
struct Regions {
    /// Invariant: empty while no connection is up; what one of them shared ends with it. They are
    /// few: the ones that are filled.
    filled: Vec<Shared>,
    making: Making,
}

impl Regions {
    fn remove(&mut self, region: RegionId) -> Option<Shared> {
        self.filled.iter().position(|shared| shared.region == region).map(|at| self.filled.swap_remove(at))
    }
}

/// A region whose memory is mapped here.
struct Shared {
    region: RegionId,
    memory: SharedMemory,
    incarnation: NodeIncarnation,
    owner: Epoch,
    /// What the region holds for certain.
    tail: Tail,
    /// Bytes stored behind that, if they are held: the region's length then.
    stored: Option<(Extent, Stored)>,
}

impl SharedPeer {
    /// The node at `address`, of this host.
    pub fn new(env: &Env, address: &str, credentials: Option<Credentials>) -> SharedPeer {
        let regions = Arc::new(Mutex::new(Regions::default()));
        let reading = Arc::new(Reading::default());
        let (held, read) = (Arc::clone(&regions), Arc::clone(&reading));
        let node = TcpPeer::ending_with(env, address, credentials, move || {
            let ended = std::mem::take(&mut held.lock().filled);
            drop(ended);
            read.forget_all();
        });
        SharedPeer { env: env.clone(), node: Arc::new(node), regions, reading }
    }

    /// Whether appends to a region are stores.
    pub fn is_shared(&self, region: RegionId) -> bool {
        self.regions.lock().filled.iter().any(|shared| shared.region == region)
    }

    /// Whether a region's sealed bytes are read where they lie.
    #[cfg(test)]
    pub(super) fn is_read(&self, region: RegionId) -> bool {
        self.reading.knows(region)
    }

    /// Makes a region, then asks for its memory. Where the node has none to share, the region is
    /// made all the same.
    fn create(&self, request: Request, bytes_max: u32) -> Completion<Result<Answer>> {
        let (completer, answer) = completion();
        self.regions.lock().making.begin(request.region);
        let made = self.node.call(request.clone());
        let (env, node, regions) = (self.env.clone(), Arc::clone(&self.node), Arc::clone(&self.regions));
        let task = async move {
            let made = made.await;
            let mut mapped = None;
            if let Some(Ok(Answer::Held(held))) = &made
                && let Some(connection) = node.up()
                && let Some(memory) = share(&env, &node, &request, bytes_max).await
            {
                let Request { incarnation, region, epoch: owner, .. } = request;
                mapped = Some((
                    connection,
                    Shared {
                        region,
                        memory,
                        incarnation,
                        owner,
                        tail: Tail::new(*held, bytes_max),
                        stored: None,
                    },
                ));
            }
            let ended = {
                let mut regions = regions.lock();
                // Under the lock that the end of a connection takes: it ends later, and takes this
                // along, or it has ended. So does whatever ends the region.
                match (regions.making.finish(request.region), mapped) {
                    (true, Some((connection, shared))) if node.up() == Some(connection) => {
                        let ended = regions.remove(shared.region);
                        regions.filled.push(shared);
                        ended
                    }
                    (_, mapped) => mapped.map(|(_, shared)| shared),
                }
            };
            drop(ended);
            if let Some(made) = made {
                completer.complete(made);
            }
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
            tracing::warn!(node = node.address(), path, %error, "a node's shared memory cannot be mapped: \
                is it of this host, and of this user?");
            None
        }
    }
}

impl Shared {
    /// Stores records that a node would take (rule 2); a node would answer the rest. `No`: the node
    /// must be asked.
    fn store(&mut self, offset: u32, predecessor: Digest, records: &[u8]) -> AtOnce {
        if self.stored.is_some() {
            // Nobody asked what came of it.
            let _unheard = self.end_store();
        }
        match self.tail.fit(offset, predecessor, records) {
            Fit::Follows(held) => {
                self.stored = Some((held, self.memory.begin_store(offset, records)));
                AtOnce::Stored
            }
            Fit::Refused(refusal) => AtOnce::Answer(Ok(Answer::Refused(refusal))),
            Fit::Elsewhere => AtOnce::No,
        }
    }

    /// The answer that a node would give to the stored bytes.
    fn end_store(&mut self) -> Option<Answer> {
        let (held, stored) = self.stored.take()?;
        Some(match self.memory.end_store(stored) {
            Ok(()) => {
                self.tail.extend(held);
                Answer::Held(held)
            }
            Err(Sealed::By(epoch)) => Answer::Refused(Refusal::Sealed(epoch)),
            Err(Sealed::Freed) => Answer::Refused(Refusal::Freed),
        })
    }
}

impl SharedPeer {
    /// Carries an append out that is a store.
    fn store(&self, request: &Request) -> AtOnce {
        let Body::Append { offset, predecessor, records } = &request.body else { return AtOnce::No };
        // Nothing is stored to find out whether a region is there, and such a store might come
        // between another's store and its answer.
        if records.is_empty() {
            return AtOnce::No;
        }
        let mut regions = self.regions.lock();
        let Some(shared) = regions.filled.iter_mut().find(|shared| shared.region == request.region) else {
            return AtOnce::No;
        };
        if shared.incarnation != request.incarnation || shared.owner != request.epoch {
            return AtOnce::No;
        }
        if self.node.up().is_none() {
            // Nobody may be there to read the stored bytes. The next call connects again, and finds
            // out.
            let ended = regions.remove(request.region);
            drop(regions);
            drop(ended);
            let message = format!("the connection to node {} is down", self.node.address());
            return AtOnce::Answer(Err(Error::new(ErrorKind::Retry, message)));
        }
        shared.store(*offset, *predecessor, records)
    }

    fn forget(&self, region: RegionId) {
        let mut regions = self.regions.lock();
        regions.making.forget(region);
        let ended = regions.remove(region);
        drop(regions);
        drop(ended);
    }

    /// Sends a request, and drops the memory of a region that ends with it, or that is read no
    /// more.
    fn send(&self, request: Request) -> Completion<Result<Answer>> {
        match request.body {
            Body::Seal | Body::Free => self.forget(request.region),
            Body::Collect { .. } => self.reading.forget_read(),
            _ => {}
        }
        self.reading.forget(request.region);
        self.node.call(request)
    }
}

impl Peer for SharedPeer {
    fn answer_at_once(&self, request: &Request) -> AtOnce {
        self.store(request)
    }

    fn answer_stored(&self, region: RegionId) -> Result<Answer> {
        let mut regions = self.regions.lock();
        let answer =
            regions.filled.iter_mut().find(|shared| shared.region == region).and_then(Shared::end_store);
        answer.ok_or_else(|| {
            Error::new(
                ErrorKind::OutcomeUnknown,
                format!("the memory of node {} is shared no more", self.node.address()),
            )
        })
    }

    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        match request.body {
            Body::Create { bytes_max, .. } => return self.create(request, bytes_max),
            Body::Read { from, bytes_max } => {
                return Reading::read(&self.reading, &self.env, &self.node, request, (from, bytes_max));
            }
            _ => {}
        }
        // A caller that asks for an answer at once has heard of it; a node must never be asked for
        // something that is a store.
        match self.store(&request) {
            AtOnce::Answer(answer) => answered(answer),
            AtOnce::Stored => answered(self.answer_stored(request.region)),
            AtOnce::No => self.send(request),
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
