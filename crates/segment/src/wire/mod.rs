//! The way between a writer and a node: frames on a byte stream.
//!
//! **Frame** (32 bytes, then the body):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the body, at most [`BODY_BYTES_MAX`] |
//! | 4 | 2 | kind |
//! | 6 | 2 | 0 |
//! | 8 | 8 | number: of a request, which its answer repeats; 0 otherwise |
//! | 16 | 16 | tag: of bytes 0–15 and of the body |
//! | 32 | | body |
//!
//! The tag is xxh3 of 128 bits until both sides have shown that they know the secret, and for good
//! where there is none. With a secret the body is encrypted from then on (AES-256 in GCM) and the
//! tag is GCM's, over the bytes before it too; a frame's nonce is its number on the way in this
//! direction of this connection, whose keys no other has ([`secret`]).
//!
//! **Introduction**: `hello` → `challenge` → `proof` → `welcome`, in the layouts of [`hello`]; then
//! requests, answers in the order of their requests, and notices ([`body`]). A node that will not
//! go on says so with `farewell`. Where certificates take the secret's place a handshake of TLS
//! comes first, and makes the secret of the connection ([`tls`]).
//!
//! Workers that compact are spoken to in the same frames: after the same introduction come `offer`,
//! `permit` or `declined`, `begin` with a job, `progress`, and `done` with its answer
//! ([`tombolo_format::compaction`]).
//!
//! A newer version is told by the hello and the challenge, whose first 16 bytes stay what they are
//! for ever.

pub mod body;
pub mod credentials;
pub mod hello;
pub mod inbox;
pub mod secret;
pub mod tls;

#[cfg(test)]
mod tests;

use tombolo_format::checksum::hash128;
use tombolo_format::codec::Reader;
use tombolo_format::{FormatError, Result};

use crate::message::APPEND_BYTES_MAX;
use secret::Way;

/// Bytes of a frame before its body.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a frame's tag.
pub const TAG_BYTES: usize = 16;
/// Where the tag begins: what lies before it is checked with the body, and not encrypted.
const TAG_AT: usize = HEADER_BYTES - TAG_BYTES;
/// Most bytes of a body: the longest append, and what stands before its records.
pub const BODY_BYTES_MAX: usize = APPEND_BYTES_MAX + 4096;
/// The version that this program speaks.
pub const VERSION: u32 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(missing_docs, reason = "named after the messages")]
pub enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    Farewell = 5,
    Create = 16,
    Append = 17,
    Seal = 18,
    Read = 19,
    Free = 20,
    Status = 21,
    Collect = 22,
    Share = 23,
    Pair = 24,
    Lend = 25,
    Held = 32,
    Sealed = 33,
    Bytes = 34,
    Freed = 35,
    Refused = 36,
    StatusIs = 37,
    SharedAt = 38,
    PairedWith = 39,
    WantedBack = 48,
    Offer = 64,
    Begin = 65,
    AskWorker = 66,
    Permit = 80,
    Declined = 81,
    Progress = 82,
    Done = 83,
    WorkerIs = 84,
}

impl Kind {
    const ALL: [Kind; 32] = [
        Kind::Hello,
        Kind::Challenge,
        Kind::Proof,
        Kind::Welcome,
        Kind::Farewell,
        Kind::Create,
        Kind::Append,
        Kind::Seal,
        Kind::Read,
        Kind::Free,
        Kind::Status,
        Kind::Collect,
        Kind::Share,
        Kind::Pair,
        Kind::Lend,
        Kind::Held,
        Kind::Sealed,
        Kind::Bytes,
        Kind::Freed,
        Kind::Refused,
        Kind::StatusIs,
        Kind::SharedAt,
        Kind::PairedWith,
        Kind::WantedBack,
        Kind::Offer,
        Kind::Begin,
        Kind::AskWorker,
        Kind::Permit,
        Kind::Declined,
        Kind::Progress,
        Kind::Done,
        Kind::WorkerIs,
    ];

    pub(crate) fn decode(code: u16) -> Result<Kind> {
        let known = Kind::ALL.into_iter().find(|kind| *kind as u16 == code);
        known.ok_or_else(|| FormatError::damaged(4, "a kind of frame that version 1 has", code.to_string()))
    }
}

/// What stands before a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub body_bytes: usize,
    /// What it is.
    pub kind: Kind,
    /// Of a request, and of its answer.
    pub number: u64,
}

impl Header {
    /// Reads what stands before a body. Nothing of it is proven before [`open`], but that it is
    /// possible.
    ///
    /// # Errors
    /// `Damaged` for what no version 1 writes.
    pub fn decode(bytes: &[u8]) -> Result<Header> {
        let mut reader = Reader::new(bytes);
        let (body_bytes, kind, zero, number) =
            (reader.u32()? as usize, reader.u16()?, reader.u16()?, reader.u64()?);
        if body_bytes > BODY_BYTES_MAX {
            return Err(FormatError::damaged(
                0,
                format!("a body of at most {BODY_BYTES_MAX} bytes"),
                format!("{body_bytes} bytes"),
            ));
        }
        if zero != 0 {
            return Err(FormatError::damaged(6, "0", zero.to_string()));
        }
        reader.take(TAG_BYTES)?;
        Ok(Header { body_bytes, kind: Kind::decode(kind)?, number })
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes
    }
}

/// Appends a frame to `out`; `put` appends its body.
///
/// # Panics
/// When the body is too long: its maker checks before.
pub fn append_frame(
    out: &mut Vec<u8>,
    way: &mut Way,
    kind: Kind,
    number: u64,
    put: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    put(out);
    let body_bytes = out.len() - begin - HEADER_BYTES;
    assert!(body_bytes <= BODY_BYTES_MAX, "a body of {body_bytes} bytes");
    let frame = &mut out[begin..];
    frame[..4].copy_from_slice(&u32::try_from(body_bytes).unwrap_or(u32::MAX).to_le_bytes());
    frame[4..6].copy_from_slice(&(kind as u16).to_le_bytes());
    frame[8..16].copy_from_slice(&number.to_le_bytes());
    let (header, body) = frame.split_at_mut(HEADER_BYTES);
    let tag = way.close(&header[..TAG_AT], body);
    header[TAG_AT..].copy_from_slice(&tag);
}

/// Checks a whole frame, and decrypts its body in place.
///
/// # Errors
/// `Damaged` when it is not what its sender made, or not the next frame on this way.
pub fn open<'a>(frame: &'a mut [u8], way: &mut Way) -> Result<&'a [u8]> {
    let Some((header, body)) = frame.split_at_mut_checked(HEADER_BYTES) else {
        return Err(FormatError::damaged(0, "a whole frame", "an end"));
    };
    let (checked, tag) = header.split_at(TAG_AT);
    if way.open(checked, tag, body) {
        return Ok(body);
    }
    Err(FormatError::damaged(
        TAG_AT,
        "the tag of the frame that was sent, under the secret of this node",
        "another",
    ))
}

/// The tag of a frame that no secret protects.
fn plain_tag(header: &[u8], body: &[u8]) -> [u8; TAG_BYTES] {
    let head = hash128(header);
    // Two hashes, so that no copy joins header and body.
    (hash128(body).rotate_left(1) ^ head.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
        .to_le_bytes()
}
