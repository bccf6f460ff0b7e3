//! The writer's end: appends to one region as writes, in order.
//!
//! `append → fits behind the posted writes → copied into slots, a write for each → completions, in order → held`.
//! Records that are longer than a slot take several, and wait where there are none: slots are the
//! bound of the bytes on their way to a node.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Completer;
use tombolo_env::real::verbs::{Channel, Completed, Device, Endpoint, Memory, QueuePair};
use tombolo_format::segment_record::Digest;
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::message::{Answer, Extent, Refusal, Window};
use crate::tail::{Fit, Tail};

/// Bytes of a slot: large so that bulk writes are not held up by their number.
pub(crate) const SLOT_BYTES: usize = 64 << 10;
/// Slots for all regions on one node.
pub(crate) const SLOTS: u32 = 64;

/// Registered memory that bytes are written from.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: Memory,
    free: Vec<u32>,
}

impl Slots {
    /// Memory for `count` slots.
    pub(crate) fn new(device: &Device, count: u32) -> io::Result<Slots> {
        let memory = Memory::source(device, count as usize * SLOT_BYTES)?;
        Ok(Slots { memory, free: (0..count).collect() })
    }

    fn start(slot: u32) -> usize {
        slot as usize * SLOT_BYTES
    }
}

/// The waiter for an append, and its answer.
pub(crate) type Answered = (Completer<Result<Answer>>, Answer);

#[derive(Debug)]
struct Append {
    /// Invariant: not empty. What has no bytes has no completion.
    records: Bytes,
    /// Bytes of them that were posted, and that are held.
    /// Invariant: held <= posted.
    posted: usize,
    held: usize,
    offset: u32,
    /// What the region holds with it.
    extent: Extent,
    completer: Completer<Result<Answer>>,
}

/// What came of an append at once.
pub(crate) enum Taken {
    /// It is on its way.
    Sent,
    /// The node would refuse it.
    Refused(Completer<Result<Answer>>, Refusal),
    /// The node must be asked.
    Elsewhere,
}

/// Writes to one region.
#[derive(Debug)]
pub(crate) struct Source {
    queue: QueuePair,
    window: Window,
    /// An append accepted for writing.
    tail: Tail,
    /// Appends that are not held, in order.
    appends: VecDeque<Append>,
    /// Slots of writes that have not completed, in order, with their bytes.
    posted: VecDeque<(u32, usize)>,
}

/// A pair that waits for its other side.
pub(crate) fn queue(
    device: &Device,
    channel: &Arc<Channel>,
    token: usize,
    first_packet: u32,
) -> io::Result<QueuePair> {
    QueuePair::source(device, channel, token, SLOTS, first_packet)
}

impl Source {
    /// Connects a pair with the node's. The region holds `held`, and `bytes_max` at most.
    pub(crate) fn connect(
        queue: QueuePair,
        node: &Endpoint,
        window: Window,
        held: Extent,
        bytes_max: u32,
    ) -> io::Result<Source> {
        queue.connect(node)?;
        queue.arm()?;
        Ok(Source {
            queue,
            window,
            tail: Tail::new(held, bytes_max),
            appends: VecDeque::new(),
            posted: VecDeque::new(),
        })
    }

    /// Takes an append, and posts what there are slots for.
    ///
    /// # Errors
    /// What the card's driver says: the source is broken.
    pub(crate) fn append(
        &mut self,
        slots: &mut Slots,
        (offset, predecessor): (u32, Digest),
        records: &Bytes,
        completer: Completer<Result<Answer>>,
    ) -> std::result::Result<Taken, (io::Error, Completer<Result<Answer>>)> {
        assert!(!records.is_empty(), "whether nothing fits is the node's to say");
        let extent = match self.tail.fit(offset, predecessor, records) {
            Fit::Follows(extent) => extent,
            Fit::Refused(refusal) => return Ok(Taken::Refused(completer, refusal)),
            Fit::Elsewhere => return Ok(Taken::Elsewhere),
        };
        self.tail.extend(extent);
        self.appends.push_back(Append {
            records: records.clone(),
            posted: 0,
            held: 0,
            offset,
            extent,
            completer,
        });
        match self.post(slots) {
            Ok(()) => Ok(Taken::Sent),
            Err(error) => {
                Err((error, self.appends.pop_back().map(|append| append.completer).expect("it was pushed")))
            }
        }
    }

    /// Posts what waits, as long as there are slots.
    ///
    /// # Errors
    /// As of [`Source::append`].
    pub(crate) fn post(&mut self, slots: &mut Slots) -> io::Result<()> {
        for append in self.appends.iter_mut().filter(|append| append.posted < append.records.len()) {
            while append.posted < append.records.len() {
                let Some(slot) = slots.free.pop() else { return Ok(()) };
                let rest = &append.records[append.posted..];
                let piece = &rest[..rest.len().min(SLOT_BYTES)];
                let start = Slots::start(slot);
                slots.memory.write(start, piece);
                let at = self.window.address + u64::from(append.offset) + append.posted as u64;
                let written = self.queue.write(
                    u64::from(slot),
                    &slots.memory,
                    start..start + piece.len(),
                    at,
                    self.window.key,
                );
                if let Err(error) = written {
                    slots.free.push(slot);
                    return Err(error);
                }
                self.posted.push_back((slot, piece.len()));
                append.posted += piece.len();
            }
        }
        Ok(())
    }

    /// Has the channel told of the next completion.
    ///
    /// # Errors
    /// As of [`Source::append`].
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.queue.arm()
    }

    /// Looks at what has completed, posts appends that wait for slots, and says what to answer.
    ///
    /// # Errors
    /// A write failed, or the card's driver did: the source is broken.
    pub(crate) fn collect(&mut self, slots: &mut Slots, answered: &mut Vec<Answered>) -> io::Result<()> {
        if is_enabled(Mutant::RdmaHeldOncePosted) {
            for append in self.appends.drain(..) {
                answered.push((append.completer, Answer::Held(append.extent)));
            }
        }
        let mut is_any = false;
        while let Some(Completed { token, outcome }) = self.queue.completed()? {
            outcome.map_err(|(status, vendor)| {
                io::Error::other(format!("a write failed: status {status}, vendor's {vendor}"))
            })?;
            let Some((slot, bytes)) = self.posted.pop_front().filter(|(slot, _)| u64::from(*slot) == token)
            else {
                return Err(io::Error::other("writes completed in another order than they were posted in"));
            };
            slots.free.push(slot);
            self.held(bytes, answered);
            is_any = true;
        }
        if is_any { self.post(slots) } else { Ok(()) }
    }

    /// So many bytes more are held.
    fn held(&mut self, bytes: usize, answered: &mut Vec<Answered>) {
        let Some(append) = self.appends.front_mut() else { return };
        append.held += bytes;
        if append.held == append.records.len()
            && let Some(append) = self.appends.pop_front()
        {
            answered.push((append.completer, Answer::Held(append.extent)));
        }
    }

    /// Stops it: nothing more is sent, and posted writes complete, done or flushed.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.queue.fail()
    }

    /// Ends it. Who waits for appends of unknown outcome.
    pub(crate) fn end(mut self, slots: &mut Slots) -> Vec<Completer<Result<Answer>>> {
        match self.stop().and_then(|()| self.queue.end()) {
            // The card reads them no more.
            Ok(()) => slots.free.extend(self.posted.drain(..).map(|(slot, _)| slot)),
            // It may: they are never used again, so that it reads the very bytes that were to be
            // written.
            Err(error) => {
                tracing::error!(%error, slots = self.posted.len(), "a queue pair stays, and its memory with \
                    it");
            }
        }
        self.appends.drain(..).map(|append| append.completer).collect()
    }
}
