//! Sealed regions of a node of the same host, read where they lie.
//!
//! The first read asks the node where the memory is; those that come meanwhile wait for that. From
//! then on a read is a copy, which a task of its own makes, one after the other, while the
//! reader works on the one before: its bytes are in the processor's cache then, and few buffers are
//! enough, which are used again. Where the node shares nothing, or the region is open, the node is
//! asked, as ever. A region that anything else is asked of is read no more: its memory is let go.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::file::read_exact_at;
use tombolo_env::{Access, Completer, Completion, Env, File, OnPanic, TaskClass, completion};
use tombolo_storage::{Epoch, Result};

use super::{FIELDS_BYTES, LENGTH_WORD_OFFSET, SHARED_HEADER_BYTES, header, not_its_memory};
use crate::message::{Answer, NodeIncarnation, READ_BYTES_MAX, RegionId, Request};
use crate::peer::Peer;
use crate::tcp::TcpPeer;

/// The sealed bytes of a region.
#[derive(Debug)]
pub(super) struct Records {
    file: Arc<dyn File>,
    bytes: u32,
}

impl Records {
    /// Those that lie in the file at `path`. `None`: the node has not said how many there are.
    ///
    /// # Errors
    /// What the file system says; `InvalidData` when it is not the memory of that region.
    pub(super) fn open(
        env: &Env,
        path: &Path,
        region: RegionId,
        incarnation: NodeIncarnation,
    ) -> io::Result<Option<Records>> {
        let file = env.files().open(path, Access::Read)?;
        let mut page = [0; LENGTH_WORD_OFFSET + 8];
        read_exact_at(&*file, &mut page, 0)?;
        let bytes_max = u32::from_le_bytes(*page[40..].first_chunk().unwrap_or(&[0; 4]));
        if page[..FIELDS_BYTES + 4] != header(region, incarnation, bytes_max) {
            return Err(not_its_memory(path, region));
        }
        let word = u64::from_le_bytes(*page[LENGTH_WORD_OFFSET..].first_chunk().unwrap_or(&[0; 8]));
        let bytes = word
            .checked_sub(1)
            .and_then(|bytes| u32::try_from(bytes).ok())
            .filter(|bytes| *bytes <= bytes_max);
        Ok(bytes.map(|bytes| Records { file, bytes }))
    }

    /// How many bytes they take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// What a node answers to [`Body::Read`](crate::message::Body::Read), in a buffer that comes
    /// back.
    fn read(&self, (from, bytes_max): (u32, u32), spare: &Arc<Spare>) -> io::Result<Bytes> {
        let from = from.min(self.bytes);
        let to = from.saturating_add(bytes_max.min(READ_BYTES_MAX)).min(self.bytes);
        let (length, at) = ((to - from) as usize, SHARED_HEADER_BYTES as u64 + u64::from(from));
        let mut piece =
            Piece { buffer: spare.0.lock().pop().unwrap_or_default(), length, spare: Arc::clone(spare) };
        if piece.buffer.len() < length {
            piece.buffer.resize(length, 0);
        }
        read_exact_at(&*self.file, &mut piece.buffer[..length], at)?;
        Ok(Bytes::from_owner(piece))
    }
}

/// Buffers that nobody reads in.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Vec<u8>>>);

/// So many are kept, no longer than this, while regions are read.
const SPARE_MAX: usize = 32;
const SPARE_BYTES_MAX: usize = 256 << 10;

/// A buffer, and how much of it is read.
struct Piece {
    buffer: Vec<u8>,
    length: usize,
    spare: Arc<Spare>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut spare = self.spare.0.lock();
        if spare.len() < SPARE_MAX && buffer.len() <= SPARE_BYTES_MAX {
            spare.push(buffer);
        }
    }
}

/// A read on its way, and its waiter.
type Waiting = (Request, (u32, u32), Completer<Result<Answer>>);

/// Whose region is read in whose name: a node answers others otherwise.
type Key = (RegionId, NodeIncarnation, Epoch);

fn key(request: &Request) -> Key {
    (request.region, request.incarnation, request.epoch)
}

#[derive(Debug)]
enum State {
    /// Its memory is asked for; for those alone who wait for it, if it was forgotten since.
    Asked { waiting: Vec<Waiting>, is_forgotten: bool },
    /// It is there to be read.
    Open(Arc<Records>),
    /// It is not to be had.
    Elsewhere,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Reading {
    regions: Mutex<HashMap<Key, State>>,
    queue: Mutex<Queue>,
    spare: Arc<Spare>,
}

/// Reads that are to be made.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Arc<Records>, Waiting)>,
    /// Whether a task makes them.
    is_worked_on: bool,
}

impl Reading {
    /// The answer to `request`, which reads `(from, bytes_max)` of a region.
    pub(super) fn read(
        this: &Arc<Reading>,
        env: &Env,
        node: &Arc<TcpPeer>,
        request: Request,
        part: (u32, u32),
    ) -> Completion<Result<Answer>> {
        // A follower usually reads open regions.
        if request.epoch == Epoch::NONE {
            return node.call(request);
        }
        let mut regions = this.regions.lock();
        if let Some(State::Elsewhere) = regions.get(&key(&request)) {
            drop(regions);
            return node.call(request);
        }
        let (completer, answer) = completion();
        match regions.get_mut(&key(&request)) {
            Some(State::Open(records)) => {
                let records = Arc::clone(records);
                drop(regions);
                this.enqueue(env, node, &records, [(request, part, completer)]);
            }
            Some(State::Asked { waiting, .. }) => waiting.push((request, part, completer)),
            _ => {
                let waiting = vec![(request.clone(), part, completer)];
                regions.insert(key(&request), State::Asked { waiting, is_forgotten: false });
                drop(regions);
                let task = Reading::open(Arc::clone(this), env.clone(), Arc::clone(node), request);
                env.spawn(TaskClass::Foreground, "sealed memory of a node", task).detach();
            }
        }
        answer
    }

    /// Opens the memory of the region that `request` reads, for its waiter.
    async fn open(self: Arc<Reading>, env: Env, node: Arc<TcpPeer>, request: Request) {
        let key = key(&request);
        let found = sealed_records(&env, &node, &request).await;
        let records = found.as_ref().and_then(Option::as_ref).map(Arc::clone);
        let waiting = {
            let mut regions = self.regions.lock();
            // The connection may have ended meanwhile, and with it the waiter.
            let Some(State::Asked { waiting, is_forgotten }) = regions.remove(&key) else { return };
            // Without an answer of the node nothing is known, and the next read asks again.
            if let Some(found) = found.filter(|_| !is_forgotten) {
                regions.insert(key, found.map_or(State::Elsewhere, State::Open));
            }
            waiting
        };
        match records {
            Some(records) => self.enqueue(&env, &node, &records, waiting),
            None => waiting
                .into_iter()
                .for_each(|(request, _, completer)| ask_the_node(&env, &node, request, completer)),
        }
    }

    fn enqueue(
        self: &Arc<Reading>,
        env: &Env,
        node: &Arc<TcpPeer>,
        records: &Arc<Records>,
        reads: impl IntoIterator<Item = Waiting>,
    ) {
        let mut queue = self.queue.lock();
        queue.waiting.extend(reads.into_iter().map(|read| (Arc::clone(records), read)));
        if !std::mem::replace(&mut queue.is_worked_on, true) {
            drop(queue);
            let task = Reading::work(Arc::clone(self), env.clone(), Arc::clone(node));
            env.spawn(TaskClass::Foreground, "reads of a node's sealed memory", task).detach();
        }
    }

    async fn work(self: Arc<Reading>, env: Env, node: Arc<TcpPeer>) {
        let whoever_comes_next = OnPanic::new(|| self.queue.lock().is_worked_on = false);
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let next = queue.waiting.pop_front();
                queue.is_worked_on = next.is_some();
                next
            };
            let Some((records, (request, part, completer))) = next else {
                return whoever_comes_next.disarm();
            };
            match records.read(part, &self.spare) {
                Ok(bytes) => completer.complete(Ok(Answer::Bytes(bytes))),
                Err(error) => {
                    let address = node.address();
                    tracing::warn!(node = address, region = %request.region, %error, "a node's sealed \
                        memory cannot be read: the node is asked");
                    ask_the_node(&env, &node, request, completer);
                }
            }
        }
    }

    /// Whether anything is kept of a region.
    #[cfg(test)]
    pub(super) fn knows(&self, region: RegionId) -> bool {
        self.regions.lock().keys().any(|(id, ..)| *id == region)
    }

    /// A region is read no more. Waiters are answered.
    pub(super) fn forget(&self, region: RegionId) {
        self.forget_those(|(id, ..)| *id == region);
    }

    /// No region is read any more, as after a takeover. Waiters are answered.
    pub(super) fn forget_read(&self) {
        self.forget_those(|_| true);
    }

    fn forget_those(&self, are_forgotten: impl Fn(&Key) -> bool) {
        let mut regions = self.regions.lock();
        if regions.is_empty() {
            return;
        }
        let is_ended = |key: &Key, state: &mut State| match state {
            _ if !are_forgotten(key) => false,
            State::Asked { is_forgotten, .. } => {
                *is_forgotten = true;
                false
            }
            State::Open(_) | State::Elsewhere => true,
        };
        let ended: Vec<State> = regions.extract_if(is_ended).map(|(_, state)| state).collect();
        let is_last = regions.is_empty();
        drop(regions);
        drop(ended);
        if is_last {
            self.spare.0.lock().clear();
        }
    }

    /// The connection has ended: waiters for memory get no answer.
    pub(super) fn forget_all(&self) {
        let ended = std::mem::take(&mut *self.regions.lock());
        drop(ended);
        self.spare.0.lock().clear();
    }
}

/// Has the node answer. Without an answer there is none for the waiter.
fn ask_the_node(env: &Env, node: &TcpPeer, request: Request, completer: Completer<Result<Answer>>) {
    let answer = node.call(request);
    let pass_on = async move {
        if let Some(answer) = answer.await {
            completer.complete(answer);
        }
    };
    env.spawn(TaskClass::Foreground, "read by a node", pass_on).detach();
}

/// The records of the region that `request` reads; `Some(None)`: the node must be asked for them.
/// `None`: nothing is known, as the connection is down.
async fn sealed_records(env: &Env, node: &TcpPeer, request: &Request) -> Option<Option<Arc<Records>>> {
    let Request { incarnation, region, .. } = *request;
    let Some(path) = node.share(request).await?.ok()? else { return Some(None) };
    match Records::open(env, Path::new(&path), region, incarnation) {
        Ok(records) => Some(records.map(Arc::new)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
        Err(error) => {
            tracing::warn!(node = node.address(), path, %error, "a node's sealed memory cannot be opened: \
                is it of this host, and of this user?");
            Some(None)
        }
    }
}
