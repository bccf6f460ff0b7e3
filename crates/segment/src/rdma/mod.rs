//! Regions in the memory of other hosts that their writers' cards write to: one-sided writes
//! (RDMA), in which no processor of the node has a part.
//!
//! All but appends goes over the node's TCP connection, as ever. When the owner of a region has
//! made it, it makes a queue pair and asks the node for another, and for the address and key of the
//! region's memory (`pair` and `paired with` in [`wire::body`](crate::wire::body)). The memory
//! holds records and nothing else. An append is then a write at its offset, and held once the card
//! says that it succeeded: the node's card has it, and every one before it.
//!
//! **The fence.** There is no seal word: a card asks nobody. Before it answers about a seal or a
//! freed region the node ends its own queue pair, and the order of it is the proof:
//!
//! 1. The pair goes to the error state: its card takes no more packets of it, and acknowledges
//!    none.
//! 2. The receive that was posted when the pair was made is flushed. Its completion was stored by
//!    the card behind all that it had taken: what the writer knows to be written is now seen here.
//! 3. The pair is destroyed and the memory deregistered. The kernel returns from that once the card
//!    knows neither, for the pages may be anybody's afterwards: no write is under way, and later
//!    ones are refused.
//! 4. Only now is the region's length read, from the bytes; they are copied, checked on the copy,
//!    and never looked at again.
//!
//! So all that the writer took for held lies in the answer (1, 2, 4), nothing more is ever
//! taken for held (1), and the bytes of the answer do not change (3, 4). When a step fails the
//! region is no answer any more, and its memory is never given back.
//!
//! A region has a pair of its own, so that the end of one is nothing to others. Pairs end with
//! their connection, on both sides: later appends go by TCP, or to another region.
//! Where one breaks alone, writes on their way are of unknown outcome, and the rest goes by TCP.
//!
//! **What it is not.** Written bytes are not encrypted, and nothing but a key of 32 bits and the
//! numbers of the pair keep others of the network from writing: with and without a secret it is for
//! networks that are trusted. Memory of a node is memory: a write that succeeded survives what an
//! append to memory survives.

mod peer;
pub(crate) mod source;
mod target;

#[cfg(test)]
pub(crate) mod tests;

use std::io;

use tombolo_env::Env;
use tombolo_env::real::verbs::{Device, Endpoint};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::message::QueueAddress;

pub use peer::RdmaPeer;
pub(crate) use target::Target;

/// Opens `DEVICE`, `DEVICE:PORT` or `DEVICE:PORT/GID`; `None`: the first one whose port is up.
///
/// # Errors
/// `NotFound` when there is none; `Unsupported` where there can be none: libibverbs is not
/// installed, say.
pub fn open(env: &Env, which: Option<&str>) -> Result<Device> {
    let shown = which.unwrap_or("any");
    if env.is_simulated() {
        return Err(Error::new(ErrorKind::Unsupported, "the simulated world has no RDMA"));
    }
    Device::open(which).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::Unsupported => {
                "install libibverbs and the driver of the card (Debian: libibverbs1, ibverbs-providers)"
            }
            io::ErrorKind::InvalidInput => {
                "write DEVICE, DEVICE:PORT or DEVICE:PORT/GID, as ibv_devinfo names them"
            }
            _ => "look at what ibv_devinfo says: the device, its port's state, its addresses",
        };
        Error::io(error, "opening an RDMA device", shown).advice(advice)
    })
}

impl From<Endpoint> for QueueAddress {
    fn from(endpoint: Endpoint) -> QueueAddress {
        let Endpoint { queue, first_packet, lid, mtu, gid } = endpoint;
        QueueAddress { queue, first_packet, lid, mtu, gid }
    }
}

impl From<QueueAddress> for Endpoint {
    fn from(address: QueueAddress) -> Endpoint {
        let QueueAddress { queue, first_packet, lid, mtu, gid } = address;
        Endpoint { queue, first_packet, lid, mtu, gid }
    }
}

/// A random number of a first packet.
#[expect(clippy::cast_possible_truncation, reason = "as many bits as are wanted")]
fn first_packet(env: &Env) -> u32 {
    env.random_u64() as u32
}
