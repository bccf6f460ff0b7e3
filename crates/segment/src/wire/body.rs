//! Bodies of requests, answers and notices.
//!
//! Requests about a region begin alike (32 bytes), then come the fields of their kind:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | incarnation of the node |
//! | 8 | 16 | region |
//! | 24 | 8 | epoch |
//!
//! | request | offset | bytes | field |
//! |---|---|---|---|
//! | `create` | 32 | 8 | random number of the database |
//! | | 40 | 8 | segment: incarnation |
//! | | 48 | 8 | segment: epoch |
//! | | 56 | 4 | segment: lane |
//! | | 60 | 4 | segment: number |
//! | | 64 | 4 | most bytes |
//! | | 68 | 4 | 0 |
//! | `append` | 32 | 8 | predecessor's digest |
//! | | 40 | 4 | offset |
//! | | 44 | 4 | 0 |
//! | | 48 | | records |
//! | `read` | 32 | 4 | from |
//! | | 36 | 4 | most bytes |
//! | `seal`, `free`, `share` | | | no more |
//! | `pair` | 32 | 32 | the writer's queue pair |
//! | `collect` | 32 | 8 | random number of the database; the region before it is 0 |
//! | | 40 | 16 each | regions that stay |
//! | `status` | | 0 | nothing at all |
//! | `lend` | 0 | 8 | bytes to lend at most, and nothing before; answered with `status is`, or refused. A node that does not know it ends the connection |
//!
//! | answer | offset | bytes | field |
//! |---|---|---|---|
//! | `held` | 0 | 16 | extent: digest (8), length (4), committed (4) |
//! | `sealed` | 0 | 8 | 1: it was made, and its extent follows; 0: it was never seen, and zeros follow |
//! | | 8 | 16 | extent |
//! | `bytes` | 0 | | the bytes |
//! | `freed` | | 0 | |
//! | `refused` | 0 | 8 | reason |
//! | | 8 | 8 | first number of it, or 0 |
//! | | 16 | 8 | second number of it, or 0 |
//! | `status is` | 0 | 40 | incarnation, bytes lent, bytes taken, regions, names (8 each) |
//! | | 40 | 4 | medium: 1 memory, 2 memory with a copy, 3 disk |
//! | | 44 | 4 | 1: it is draining |
//! | | 48 | 4 | bytes of the domain's name, at most 255 |
//! | | 52 | | the name, UTF-8 |
//! | | … | 8 | milliseconds after which it ends at the latest, as it drains; 2^64 − 1: none are said |
//! | | … | 4 | databases that have regions there |
//! | | … | 4 | how many of them follow, those that take the most: at most 8 |
//! | | … | 24 each | database, its regions, bytes that they take (8 each) |
//! | `shared at` | 0 | | path of the memory, UTF-8, at most 4096 bytes; none: the node shares none |
//! | `paired with` | 0 | 32 | the node's queue pair; nothing at all: the node takes no such writes |
//! | | 32 | 8 | address of the region's memory |
//! | | 40 | 4 | its key |
//! | | 44 | 4 | 0 |
//!
//! | queue pair | offset | bytes | field |
//! |---|---|---|---|
//! | | 0 | 4 | number, at most 24 bits |
//! | | 4 | 4 | number of its first packet, at most 24 bits |
//! | | 8 | 4 | short address of its port (16 bits) |
//! | | 12 | 4 | bytes of a packet: 1 is 256, and each number more twice that; 1 to 5 |
//! | | 16 | 16 | long address of its port |
//!
//! | notice | offset | bytes | field |
//! |---|---|---|---|
//! | `wanted back` | 0 | 16 | region |

use bytes::Bytes;
use tombolo_format::codec::{Reader, put_prefixed};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::Digest;
use tombolo_format::{FormatError, Result};
use tombolo_storage::Epoch;

use super::Kind;
use crate::message::{
    APPEND_BYTES_MAX, Answer, Body, DOMAIN_BYTES_MAX, Extent, HOLDINGS_MAX, Holding, KEEP_MAX,
    NodeIncarnation, NodeMedium, NodeStatus, QueueAddress, READ_BYTES_MAX, Refusal, RegionId, Request,
    Window,
};

/// Most bytes of a path.
const PATH_BYTES_MAX: usize = 4096;

/// What follows an introduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request about a region.
    Request(Request),
    /// Asks a node for its status.
    Status,
    /// A node is told to lend so many bytes at most.
    Lend(u64),
    /// Asks for the memory of a region, in the name of its maker.
    Share(NodeIncarnation, RegionId, Epoch),
    /// Where it is, if the node shares it.
    SharedAt(Option<String>),
    /// Asks to write to the memory of a region through a queue pair, in the name of its
    /// maker.
    Pair(NodeIncarnation, RegionId, Epoch, QueueAddress),
    /// The other pair, which is connected, and the memory, if the node takes such writes.
    PairedWith(Option<(QueueAddress, Window)>),
    /// An answer about a region.
    Answer(Answer),
    /// A node's status.
    StatusIs(NodeStatus),
    /// A node wants a region's memory back.
    WantedBack(RegionId),
}

impl Message {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Status => Kind::Status,
            Message::Lend(_) => Kind::Lend,
            Message::StatusIs(_) => Kind::StatusIs,
            Message::Share(..) => Kind::Share,
            Message::SharedAt(_) => Kind::SharedAt,
            Message::Pair(..) => Kind::Pair,
            Message::PairedWith(_) => Kind::PairedWith,
            Message::WantedBack(_) => Kind::WantedBack,
            Message::Request(request) => match request.body {
                Body::Create { .. } => Kind::Create,
                Body::Append { .. } => Kind::Append,
                Body::Seal => Kind::Seal,
                Body::Read { .. } => Kind::Read,
                Body::Free => Kind::Free,
                Body::Collect { .. } => Kind::Collect,
            },
            Message::Answer(answer) => match answer {
                Answer::Held(_) => Kind::Held,
                Answer::Sealed(_) => Kind::Sealed,
                Answer::Bytes(_) => Kind::Bytes,
                Answer::Freed => Kind::Freed,
                Answer::Refused(_) => Kind::Refused,
            },
        }
    }

    /// Appends its body.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Message::Status => {}
            Message::Lend(bytes_max) => out.extend_from_slice(&bytes_max.to_le_bytes()),
            Message::Request(request) => put_request(request, out),
            Message::Share(incarnation, region, epoch) => put_target(*incarnation, *region, *epoch, out),
            Message::SharedAt(path) => out.extend_from_slice(path.as_deref().unwrap_or_default().as_bytes()),
            Message::Pair(incarnation, region, epoch, queue) => {
                put_target(*incarnation, *region, *epoch, out);
                put_queue(queue, out);
            }
            Message::PairedWith(None) => {}
            Message::PairedWith(Some((queue, window))) => {
                put_queue(queue, out);
                out.extend_from_slice(&window.address.to_le_bytes());
                out.extend_from_slice(&window.key.to_le_bytes());
                out.extend_from_slice(&0u32.to_le_bytes());
            }
            Message::Answer(answer) => put_answer(answer, out),
            Message::StatusIs(status) => put_status(status, out),
            Message::WantedBack(region) => out.extend_from_slice(&region.0.to_le_bytes()),
        }
    }

    /// Reads a body of a kind.
    ///
    /// # Errors
    /// `Damaged` with the byte of the body; also for kinds of an introduction.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Message> {
        let mut reader = Reader::new(body);
        let message = match kind {
            Kind::Create | Kind::Append | Kind::Seal | Kind::Read | Kind::Free | Kind::Collect => {
                Message::Request(take_request(kind, &mut reader)?)
            }
            Kind::Held | Kind::Sealed | Kind::Bytes | Kind::Freed | Kind::Refused => {
                Message::Answer(take_answer(kind, &mut reader)?)
            }
            Kind::Status => Message::Status,
            Kind::Lend => Message::Lend(reader.u64()?),
            Kind::Share => {
                Message::Share(NodeIncarnation(reader.u64()?), RegionId(reader.u128()?), Epoch(reader.u64()?))
            }
            Kind::SharedAt => Message::SharedAt(take_path(&mut reader)?),
            Kind::Pair => {
                let (incarnation, region) = (NodeIncarnation(reader.u64()?), RegionId(reader.u128()?));
                Message::Pair(incarnation, region, Epoch(reader.u64()?), take_queue(&mut reader)?)
            }
            Kind::PairedWith if body.is_empty() => Message::PairedWith(None),
            Kind::PairedWith => {
                let (queue, address, key) = (take_queue(&mut reader)?, reader.u64()?, reader.u32()?);
                zero(&mut reader)?;
                Message::PairedWith(Some((queue, Window { address, key })))
            }
            Kind::StatusIs => Message::StatusIs(take_status(&mut reader)?),
            Kind::WantedBack => Message::WantedBack(RegionId(reader.u128()?)),
            Kind::Hello
            | Kind::Challenge
            | Kind::Proof
            | Kind::Welcome
            | Kind::Farewell
            | Kind::Offer
            | Kind::Begin
            | Kind::AskWorker
            | Kind::Permit
            | Kind::Declined
            | Kind::Progress
            | Kind::Done
            | Kind::WorkerIs => {
                return Err(FormatError::damaged(0, "a request, an answer or a notice", format!("{kind:?}")));
            }
        };
        reader.end()?;
        Ok(message)
    }
}

fn put_target(incarnation: NodeIncarnation, region: RegionId, epoch: Epoch, out: &mut Vec<u8>) {
    out.extend_from_slice(&incarnation.0.to_le_bytes());
    out.extend_from_slice(&region.0.to_le_bytes());
    out.extend_from_slice(&epoch.0.to_le_bytes());
}

fn put_queue(queue: &QueueAddress, out: &mut Vec<u8>) {
    let QueueAddress { queue, first_packet, lid, mtu, gid } = queue;
    for number in [*queue, *first_packet, u32::from(*lid), u32::from(*mtu)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(gid);
}

fn take_queue(reader: &mut Reader<'_>) -> Result<QueueAddress> {
    let at = reader.position();
    let (queue, first_packet, lid, mtu) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let gid = reader.array()?;
    let damaged =
        |at, expected: &'static str, found: u32| FormatError::damaged(at, expected, found.to_string());
    for (at, number) in [(at, queue), (at + 4, first_packet)] {
        if number > 0x00ff_ffff {
            return Err(damaged(at, "a number of 24 bits", number));
        }
    }
    let lid = u16::try_from(lid).map_err(|_| damaged(at + 8, "a number of 16 bits", lid))?;
    let mtu = u8::try_from(mtu)
        .ok()
        .filter(|mtu| (1..=5).contains(mtu))
        .ok_or_else(|| damaged(at + 12, "1 to 5", mtu))?;
    Ok(QueueAddress { queue, first_packet, lid, mtu, gid })
}

fn take_path(reader: &mut Reader<'_>) -> Result<Option<String>> {
    let bytes = rest(reader, PATH_BYTES_MAX)?;
    let path =
        std::str::from_utf8(&bytes).map_err(|_| FormatError::damaged(0, "UTF-8 text", "other bytes"))?;
    Ok((!path.is_empty()).then(|| path.to_owned()))
}

fn put_request(request: &Request, out: &mut Vec<u8>) {
    let Request { incarnation, region, epoch, body } = request;
    put_target(*incarnation, *region, *epoch, out);
    match body {
        Body::Create { database, segment, bytes_max } => {
            out.extend_from_slice(&database.to_le_bytes());
            out.extend_from_slice(&segment.incarnation.to_le_bytes());
            out.extend_from_slice(&segment.epoch.to_le_bytes());
            out.extend_from_slice(&segment.lane.to_le_bytes());
            out.extend_from_slice(&segment.segment.to_le_bytes());
            out.extend_from_slice(&bytes_max.to_le_bytes());
            out.extend_from_slice(&0u32.to_le_bytes());
        }
        Body::Append { offset, predecessor, records } => {
            out.extend_from_slice(&predecessor.0.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&0u32.to_le_bytes());
            out.extend_from_slice(records);
        }
        Body::Read { from, bytes_max } => {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&bytes_max.to_le_bytes());
        }
        Body::Collect { database, keep } => {
            out.extend_from_slice(&database.to_le_bytes());
            keep.iter().for_each(|region| out.extend_from_slice(&region.0.to_le_bytes()));
        }
        Body::Seal | Body::Free => {}
    }
}

fn take_request(kind: Kind, reader: &mut Reader<'_>) -> Result<Request> {
    let (incarnation, region, epoch) =
        (NodeIncarnation(reader.u64()?), RegionId(reader.u128()?), Epoch(reader.u64()?));
    let body = match kind {
        Kind::Create => {
            let database = reader.u64()?;
            let segment = SegmentIdentity {
                incarnation: reader.u64()?,
                epoch: reader.u64()?,
                lane: reader.u32()?,
                segment: reader.u32()?,
            };
            let bytes_max = reader.u32()?;
            zero(reader)?;
            Body::Create { database, segment, bytes_max }
        }
        Kind::Append => {
            let (predecessor, offset) = (Digest(reader.u64()?), reader.u32()?);
            zero(reader)?;
            Body::Append { offset, predecessor, records: rest(reader, APPEND_BYTES_MAX)? }
        }
        Kind::Read => Body::Read { from: reader.u32()?, bytes_max: reader.u32()? },
        Kind::Collect => {
            let database = reader.u64()?;
            let at = reader.position();
            if reader.remaining() > KEEP_MAX * 16 {
                return Err(FormatError::damaged(
                    at,
                    format!("at most {KEEP_MAX} regions"),
                    format!("{} bytes", reader.remaining()),
                ));
            }
            let mut keep = Vec::with_capacity(reader.remaining() / 16);
            while reader.remaining() > 0 {
                keep.push(RegionId(reader.u128()?));
            }
            Body::Collect { database, keep }
        }
        Kind::Seal => Body::Seal,
        _ => Body::Free,
    };
    Ok(Request { incarnation, region, epoch, body })
}

fn put_extent(extent: &Extent, out: &mut Vec<u8>) {
    out.extend_from_slice(&extent.digest.0.to_le_bytes());
    out.extend_from_slice(&extent.length.to_le_bytes());
    out.extend_from_slice(&extent.committed.to_le_bytes());
}

fn take_extent(reader: &mut Reader<'_>) -> Result<Extent> {
    Ok(Extent { digest: Digest(reader.u64()?), length: reader.u32()?, committed: reader.u32()? })
}

fn put_answer(answer: &Answer, out: &mut Vec<u8>) {
    match answer {
        Answer::Held(extent) => put_extent(extent, out),
        Answer::Sealed(extent) => {
            out.extend_from_slice(&u64::from(extent.is_some()).to_le_bytes());
            put_extent(&extent.unwrap_or(Extent { length: 0, digest: Digest(0), committed: 0 }), out);
        }
        Answer::Bytes(bytes) => out.extend_from_slice(bytes),
        Answer::Freed => {}
        Answer::Refused(refusal) => {
            let (reason, first, second) = refusal_numbers(*refusal);
            for number in [reason, first, second] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

fn take_answer(kind: Kind, reader: &mut Reader<'_>) -> Result<Answer> {
    Ok(match kind {
        Kind::Held => Answer::Held(take_extent(reader)?),
        Kind::Sealed => {
            let at = reader.position();
            let (made, extent) = (reader.u64()?, take_extent(reader)?);
            match made {
                0 if extent == (Extent { length: 0, digest: Digest(0), committed: 0 }) => {
                    Answer::Sealed(None)
                }
                1 => Answer::Sealed(Some(extent)),
                _ => {
                    return Err(FormatError::damaged(
                        at,
                        "0 and zeros, or 1 and an extent",
                        made.to_string(),
                    ));
                }
            }
        }
        Kind::Bytes => Answer::Bytes(rest(reader, READ_BYTES_MAX as usize)?),
        Kind::Freed => Answer::Freed,
        _ => Answer::Refused(take_refusal(reader)?),
    })
}

/// A refusal as its reason's number and the two numbers that go with it.
fn refusal_numbers(refusal: Refusal) -> (u64, u64, u64) {
    match refusal {
        Refusal::OtherIncarnation(current) => (1, current.0, 0),
        Refusal::Unknown => (2, 0, 0),
        Refusal::Freed => (3, 0, 0),
        Refusal::Damaged { sound, recorded } => (4, sound.into(), recorded.into()),
        Refusal::Sealed(epoch) => (5, epoch.0, 0),
        Refusal::OtherEpoch(epoch) => (6, epoch.0, 0),
        Refusal::Gap(length) => (7, length.into(), 0),
        Refusal::Differs(length) => (8, length.into(), 0),
        Refusal::Malformed => (9, 0, 0),
        Refusal::OtherArguments => (10, 0, 0),
        Refusal::Full(free) => (11, free, 0),
        Refusal::Draining => (12, 0, 0),
        Refusal::LendsAtMost(bytes) => (13, bytes, 0),
    }
}

fn take_refusal(reader: &mut Reader<'_>) -> Result<Refusal> {
    let (reason, first, second) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let short = |number: u64| {
        u32::try_from(number).map_err(|_| FormatError::damaged(8, "a length", number.to_string()))
    };
    let refusal = match reason {
        1 => Refusal::OtherIncarnation(NodeIncarnation(first)),
        2 => Refusal::Unknown,
        3 => Refusal::Freed,
        4 => Refusal::Damaged { sound: short(first)?, recorded: short(second)? },
        5 => Refusal::Sealed(Epoch(first)),
        6 => Refusal::OtherEpoch(Epoch(first)),
        7 => Refusal::Gap(short(first)?),
        8 => Refusal::Differs(short(first)?),
        9 => Refusal::Malformed,
        10 => Refusal::OtherArguments,
        11 => Refusal::Full(first),
        12 => Refusal::Draining,
        13 => Refusal::LendsAtMost(first),
        _ => return Err(FormatError::damaged(0, "a reason that version 1 has", reason.to_string())),
    };
    if refusal_numbers(refusal) == (reason, first, second) {
        return Ok(refusal);
    }
    Err(FormatError::damaged(8, "zeros where a reason has no numbers", format!("{first}, {second}")))
}

/// Appends a node's status.
pub fn put_status(status: &NodeStatus, out: &mut Vec<u8>) {
    let NodeStatus {
        incarnation,
        bytes_max,
        bytes_taken,
        regions,
        names,
        medium,
        is_draining,
        domain,
        drain_millis_left,
        databases,
        holdings,
    } = status;
    for number in [incarnation.0, *bytes_max, *bytes_taken, *regions, *names] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let medium: u32 = match medium {
        NodeMedium::Memory => 1,
        NodeMedium::MemoryWithCopy => 2,
        NodeMedium::Disk => 3,
    };
    out.extend_from_slice(&medium.to_le_bytes());
    out.extend_from_slice(&u32::from(*is_draining).to_le_bytes());
    put_prefixed(out, domain.as_bytes());
    out.extend_from_slice(&drain_millis_left.unwrap_or(u64::MAX).to_le_bytes());
    out.extend_from_slice(&databases.to_le_bytes());
    let holdings = &holdings[..holdings.len().min(HOLDINGS_MAX)];
    out.extend_from_slice(&u32::try_from(holdings.len()).unwrap_or(0).to_le_bytes());
    for Holding { database, regions, bytes } in holdings {
        for number in [database, regions, bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Reads a node's status.
///
/// # Errors
/// `Damaged`.
pub fn take_status(reader: &mut Reader<'_>) -> Result<NodeStatus> {
    let (incarnation, bytes_max, bytes_taken) =
        (NodeIncarnation(reader.u64()?), reader.u64()?, reader.u64()?);
    let (regions, names) = (reader.u64()?, reader.u64()?);
    let at = reader.position();
    let medium = match reader.u32()? {
        1 => NodeMedium::Memory,
        2 => NodeMedium::MemoryWithCopy,
        3 => NodeMedium::Disk,
        other => return Err(FormatError::damaged(at, "a medium that version 1 has", other.to_string())),
    };
    let is_draining = match reader.u32()? {
        0 => false,
        1 => true,
        other => return Err(FormatError::damaged(at + 4, "0 or 1", other.to_string())),
    };
    let domain = reader.text(DOMAIN_BYTES_MAX)?.to_owned();
    let drain_millis_left = Some(reader.u64()?).filter(|millis| *millis < u64::MAX);
    let databases = reader.u32()?;
    let at = reader.position();
    let count = reader.u32()? as usize;
    if count > HOLDINGS_MAX {
        return Err(FormatError::damaged(at, format!("at most {HOLDINGS_MAX}"), count.to_string()));
    }
    let mut holdings = Vec::with_capacity(count);
    for _ in 0..count {
        holdings.push(Holding { database: reader.u64()?, regions: reader.u64()?, bytes: reader.u64()? });
    }
    Ok(NodeStatus {
        incarnation,
        bytes_max,
        bytes_taken,
        regions,
        names,
        medium,
        is_draining,
        domain,
        drain_millis_left,
        databases,
        holdings,
    })
}

fn zero(reader: &mut Reader<'_>) -> Result<()> {
    let at = reader.position();
    match reader.u32()? {
        0 => Ok(()),
        other => Err(FormatError::damaged(at, "0", other.to_string())),
    }
}

fn rest(reader: &mut Reader<'_>, bytes_max: usize) -> Result<Bytes> {
    let (at, count) = (reader.position(), reader.remaining());
    if count > bytes_max {
        return Err(FormatError::damaged(at, format!("at most {bytes_max} bytes"), format!("{count} bytes")));
    }
    Ok(Bytes::copy_from_slice(reader.take(count)?))
}
