//! What a writer, or its successor, asks of a node, and what the node answers. Their
//! bytes on a wire are the transport's.

use std::fmt;

use bytes::Bytes;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, RECORD_PAYLOAD_BYTES_MAX};
use tombolo_storage::Epoch;

/// Most bytes of records that one append carries: a record is never split, and may be that long.
pub const APPEND_BYTES_MAX: usize = RECORD_PAYLOAD_BYTES_MAX + (1 << 20);
/// Most bytes that one read answers with.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// Most regions of a database that a node keeps when it frees the others: those of 64 lanes.
pub const KEEP_MAX: usize = 1 << 15;
/// Most bytes of the name of a failure domain.
pub const DOMAIN_BYTES_MAX: usize = 255;

/// A node's life: drawn at random whenever it starts without all that it held, so that nobody takes
/// an empty memory for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIncarnation(pub u64);

/// A region's name: drawn at random by its maker, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u128);

impl fmt::Display for NodeIncarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// A request about one region. Every one of them, freeing included, says for whom it is meant and
/// in whose name it is made (rule 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The node's life that the region was made in.
    pub incarnation: NodeIncarnation,
    /// Which region.
    pub region: RegionId,
    /// The epoch in whose name it is asked.
    pub epoch: Epoch,
    /// The request.
    pub body: Body,
}

/// A request to a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Makes it, empty. Making it again with the same arguments changes nothing.
    Create {
        /// The random number of the database whose segment it is: incarnations count from 1 in
        /// each.
        database: u64,
        /// Whose records it will hold.
        segment: SegmentIdentity,
        /// Most bytes that it will be asked to hold.
        bytes_max: u32,
    },
    /// Appends whole records, or finds that it holds them already.
    Append {
        /// Where the first of them begins.
        offset: u32,
        /// The digest of all before `offset`.
        predecessor: Digest,
        /// The records, as they will lie in the region; [`APPEND_BYTES_MAX`] at most.
        records: Bytes,
    },
    /// Ends it: nothing is appended from the answer on.
    Seal,
    /// Reads bytes of it.
    Read {
        /// From this byte on.
        from: u32,
        /// So many at most, and [`READ_BYTES_MAX`] at most: for more, read on.
        bytes_max: u32,
    },
    /// Gives its memory back. Its name stays taken.
    Free,
    /// Gives back the memory of all regions that older epochs of a database made and that nothing
    /// names: of no single region.
    ///
    /// The asker has an effective claim, and all that the chain names is in `keep`. No older
    /// epoch publishes any more, and later ones publish what they made themselves: so it may come
    /// at any later time.
    Collect {
        /// The random number of the database.
        database: u64,
        /// Regions that are named; [`KEEP_MAX`] at most.
        keep: Vec<RegionId>,
    },
}

/// What a region holds, as its node checked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of whole, sound records from the start.
    pub length: u32,
    /// The digest of them.
    pub digest: Digest,
    /// The greatest committed offset that one of them carries.
    pub committed: u32,
}

/// Where a queue pair is that writes to remote memory, or is written through, for the one that it
/// is connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddress {
    /// The pair's number.
    pub queue: u32,
    /// The number of its first packet.
    pub first_packet: u32,
    /// The port's short address, on InfiniBand.
    pub lid: u16,
    /// Bytes of a packet: 1 is 256, 2 is 512, up to 5, which is 4096.
    pub mtu: u8,
    /// The port's long address.
    pub gid: [u8; 16],
}

/// The memory of a region, for the writer that a node lets write there itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where the region's first byte lies, as the node's card knows it.
    pub address: u64,
    /// What the card wants to be shown.
    pub key: u32,
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The region is there, unsealed, and holds this: of making and of appending.
    Held(Extent),
    /// The region is sealed for good and holds this. `None`: this life of the node has never seen
    /// it, and never will take a byte for it, which is an answer of length zero (rule 4).
    Sealed(Option<Extent>),
    /// Bytes of it: none only at its end.
    Bytes(Bytes),
    /// Its memory is free.
    Freed,
    /// Nothing was done.
    Refused(Refusal),
}

/// When a node answers an append or a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMedium {
    /// Once it is in memory, and there only.
    Memory,
    /// Once it is in memory; a disk gets a copy, which survives a clean stop of the node.
    MemoryWithCopy,
    /// Once a disk holds it (`fdatasync`).
    Disk,
}

/// Most databases that a status names.
pub const HOLDINGS_MAX: usize = 8;

/// What a database has on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The database's id.
    pub database: u64,
    /// Its regions.
    pub regions: u64,
    /// Bytes that they take, at what they may grow to.
    pub bytes: u64,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its life.
    pub incarnation: NodeIncarnation,
    /// Bytes that it lends in all, as things stand.
    pub bytes_max: u64,
    /// Bytes taken by regions, at what they may grow to.
    pub bytes_taken: u64,
    /// Regions that hold memory.
    pub regions: u64,
    /// Names that it knows.
    pub names: u64,
    /// When it answers.
    pub medium: NodeMedium,
    /// It takes no new regions.
    pub is_draining: bool,
    /// What fails together with it, as its operator names that (a rack, a power supply);
    /// [`DOMAIN_BYTES_MAX`] bytes at most.
    pub domain: String,
    /// When it drains: milliseconds after which it ends at the latest, even if regions are left.
    pub drain_millis_left: Option<u64>,
    /// How many databases have regions there.
    pub databases: u32,
    /// Those that take the most, [`HOLDINGS_MAX`] at most.
    pub holdings: Vec<Holding>,
}

impl NodeStatus {
    /// Bytes that new regions may take.
    pub fn bytes_free(&self) -> u64 {
        if self.is_draining { 0 } else { self.bytes_max.saturating_sub(self.bytes_taken) }
    }
}

/// Why a node did nothing. What only says that the asker is late tells the epoch that came after
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node lives another life: what it held is lost. No answer for a seal (rule 4).
    OtherIncarnation(NodeIncarnation),
    /// The region was never made here.
    Unknown,
    /// The region's memory was given back. No answer for a seal (rule 4).
    Freed,
    /// What the region holds is shorter than what it had recorded. No answer for a seal (rule 4).
    Damaged {
        /// Bytes that are sound.
        sound: u32,
        /// Bytes that were recorded, or may have been.
        recorded: u32,
    },
    /// The region was sealed, in the name of this epoch.
    Sealed(Epoch),
    /// The region belongs to this epoch, or was sealed in its name.
    OtherEpoch(Epoch),
    /// Bytes before the new ones are missing; so much is held.
    Gap(u32),
    /// Before the offset lies something else than the asker says, or other bytes are held where
    /// these came: so much of it agrees at most.
    Differs(u32),
    /// The bytes that came are not whole, sound records.
    Malformed,
    /// The region was made with other arguments.
    OtherArguments,
    /// The region, or the node, has no room for it; so many bytes are free.
    Full(u64),
    /// The node was asked to lend more than it was started with, which is this.
    LendsAtMost(u64),
    /// The node takes nothing new, there: it is draining, or the region is of an earlier life of
    /// it, whose copy it found on its disk.
    Draining,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OtherIncarnation(current) => {
                write!(formatter, "the node lost what it held: its life is {current} now")
            }
            Refusal::Unknown => formatter.write_str("the region was never made on this node"),
            Refusal::Freed => formatter.write_str("the region's memory was given back"),
            Refusal::Damaged { sound, recorded } => {
                write!(formatter, "the region is damaged: {sound} of {recorded} bytes are sound")
            }
            Refusal::Sealed(epoch) => write!(formatter, "the region was sealed in the name of epoch {epoch}"),
            Refusal::OtherEpoch(epoch) => write!(formatter, "the region is epoch {epoch}'s"),
            Refusal::Gap(length) => write!(formatter, "the region holds {length} bytes only"),
            Refusal::Differs(length) => {
                write!(formatter, "the region holds other bytes; {length} at most agree")
            }
            Refusal::Malformed => formatter.write_str("the bytes are not whole, sound records"),
            Refusal::OtherArguments => formatter.write_str("the region was made with other arguments"),
            Refusal::Full(free) => write!(formatter, "no room: {free} bytes are free"),
            Refusal::LendsAtMost(bytes) => write!(formatter, "it was started to lend {bytes} bytes at most"),
            Refusal::Draining => formatter.write_str("the node takes no new regions"),
        }
    }
}
