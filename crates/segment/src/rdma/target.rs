//! The node's end: memory that one writer's card may write to, until it is ended.

use std::time::Duration;

use tombolo_env::Env;
use tombolo_env::real::verbs::{Device, Memory, QueuePair};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::first_packet;
use crate::lent::{End, Lent};
use crate::message::{QueueAddress, Window};

/// How long a pair may take to drain: cards take microseconds. After that it is taken for broken,
/// and what it wrote for no answer.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Memory of a region, and the pair by which its writer reaches it.
#[derive(Debug)]
pub(crate) struct Target {
    env: Env,
    queue: QueuePair,
    memory: Memory,
    bytes_max: u32,
    /// The writer reaches it no more.
    is_ended: bool,
}

impl Target {
    /// Makes both, connected with the writer's pair.
    pub(crate) fn new(env: &Env, device: &Device, writer: &QueueAddress, bytes_max: u32) -> Result<Target> {
        let make = || {
            let memory = Memory::target(device, bytes_max as usize)?;
            let queue = QueuePair::target(device, first_packet(env))?;
            queue.connect(&(*writer).into())?;
            Ok((memory, queue))
        };
        let (memory, queue) =
            make().map_err(|error| Error::io(error, "lending memory to a writer's card", device.name()))?;
        Ok(Target { env: env.clone(), queue, memory, bytes_max, is_ended: false })
    }

    /// Where the pair is.
    pub(crate) fn address(&self) -> QueueAddress {
        self.queue.endpoint().into()
    }

    /// Where the memory is.
    pub(crate) fn window(&self) -> Window {
        Window { address: self.memory.address(), key: self.memory.remote_key() }
    }

    fn end_in_order(&mut self) -> std::io::Result<()> {
        self.queue.fail()?;
        let deadline = self.env.now() + DRAIN_MAX;
        while !self.queue.drained()? {
            if self.env.now() > deadline {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("a queue pair has not drained within {DRAIN_MAX:?}"),
                ));
            }
            self.env.let_others_run();
        }
        self.queue.end()?;
        self.memory.end()
    }
}

impl Lent for Target {
    fn bytes_max(&self) -> u32 {
        self.bytes_max
    }

    fn end(&mut self, _why: End) -> Result<()> {
        if !self.is_ended {
            self.end_in_order().map_err(|error| {
                let message =
                    format!("a writer's card cannot be kept from memory that it writes to: {error}");
                Error::new(ErrorKind::Corrupt, message).advice("start the node again, and look at the card")
            })?;
            self.is_ended = true;
        }
        Ok(())
    }

    fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool {
        self.memory.read(offset as usize, buffer);
        true
    }

    fn is_read_early(&self) -> bool {
        is_enabled(Mutant::RdmaReadBeforeFence)
    }
}
