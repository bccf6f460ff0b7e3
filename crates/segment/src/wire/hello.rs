//! How a writer and a node make each other's acquaintance.
//!
//! **Hello** (64 bytes), from the writer:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLNODE` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | 1: it has a secret; 0: it has none |
//! | 16 | 32 | fresh random bytes |
//! | 48 | 8 | whom it speaks for, drawn once: a later connection of the same ends the earlier one |
//! | 56 | 8 | 0 |
//!
//! **Challenge** (48 bytes), from the node: the first 16 bytes as in the hello, then 32 fresh
//! random bytes. **Proof** (32 bytes), from the writer. **Welcome**, from the node: its proof (32
//! bytes), then its status as in [`super::body`].
//!
//! **Farewell** (8 bytes), from the node: a reason (4 bytes), then 0.

use std::fmt;

use tombolo_format::codec::Reader;
use tombolo_format::{FormatError, Result};

use super::VERSION;

/// First bytes of a hello and of a challenge.
pub const MAGIC: [u8; 8] = *b"TMBLNODE";
/// Fresh random bytes of each side.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 64;
/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 48;

/// What a writer says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that it speaks.
    pub version: u32,
    /// It has a secret.
    pub has_secret: bool,
    /// Fresh random bytes.
    pub nonce: [u8; NONCE_BYTES],
    /// Whom it speaks for.
    pub client: u64,
}

/// What a node says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The version that it speaks.
    pub version: u32,
    /// It has a secret.
    pub has_secret: bool,
    /// Fresh random bytes.
    pub nonce: [u8; NONCE_BYTES],
}

fn decode_start(reader: &mut Reader<'_>) -> Result<(u32, bool, [u8; NONCE_BYTES])> {
    let magic = reader.array::<8>()?;
    if magic != MAGIC {
        let expected = format!("the magic of a node's connection ({})", MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let version = reader.u32()?;
    if version != VERSION {
        return Err(FormatError::newer(8, format!("version {version}; this program speaks {VERSION}")));
    }
    let has_secret = match reader.u32()? {
        0 => false,
        1 => true,
        other => return Err(FormatError::damaged(12, "0 or 1", other.to_string())),
    };
    Ok((version, has_secret, reader.array()?))
}

impl Hello {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..CHALLENGE_BYTES].copy_from_slice(
            &Challenge { version: self.version, has_secret: self.has_secret, nonce: self.nonce }.encode(),
        );
        out[48..56].copy_from_slice(&self.client.to_le_bytes());
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for another version.
    pub fn decode(body: &[u8]) -> Result<Hello> {
        let mut reader = Reader::new(body);
        let (version, has_secret, nonce) = decode_start(&mut reader)?;
        let (client, _) = (reader.u64()?, reader.u64()?);
        reader.end()?;
        Ok(Hello { version, has_secret, nonce, client })
    }
}

impl Challenge {
    /// Its bytes.
    pub fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut out = [0; CHALLENGE_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[12..16].copy_from_slice(&u32::from(self.has_secret).to_le_bytes());
        out[16..].copy_from_slice(&self.nonce);
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for another version.
    pub fn decode(body: &[u8]) -> Result<Challenge> {
        let mut reader = Reader::new(body);
        let (version, has_secret, nonce) = decode_start(&mut reader)?;
        reader.end()?;
        Ok(Challenge { version, has_secret, nonce })
    }
}

/// Why a node ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Farewell {
    /// It speaks another version.
    OtherVersion = 1,
    /// The writer's proof is wrong, or one side has a secret and the other none.
    WrongSecret = 2,
    /// It has as many connections as it takes.
    TooMany = 3,
    /// What came is no frame, or none that belongs there.
    Malformed = 4,
    /// The same writer has come by another connection.
    Superseded = 5,
    /// It ends.
    Ending = 6,
    /// It takes certificates only, or does not believe the writer's.
    WrongCertificate = 7,
}

impl Farewell {
    const ALL: [Farewell; 7] = [
        Farewell::OtherVersion,
        Farewell::WrongSecret,
        Farewell::TooMany,
        Farewell::Malformed,
        Farewell::Superseded,
        Farewell::Ending,
        Farewell::WrongCertificate,
    ];

    /// Its bytes.
    pub fn encode(self) -> [u8; 8] {
        u64::from(self as u32).to_le_bytes()
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(body: &[u8]) -> Result<Farewell> {
        let mut reader = Reader::new(body);
        let code = reader.u64()?;
        reader.end()?;
        let known = Farewell::ALL.into_iter().find(|reason| u64::from(*reason as u32) == code);
        known.ok_or_else(|| FormatError::damaged(0, "a reason that version 1 has", code.to_string()))
    }
}

impl fmt::Display for Farewell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Farewell::OtherVersion => "it speaks another version",
            Farewell::WrongSecret => "the secret is not its own, or one side has none",
            Farewell::TooMany => "it has as many connections as it takes",
            Farewell::Malformed => "what it was sent is no frame",
            Farewell::Superseded => "the same writer came by another connection",
            Farewell::Ending => "it ends",
            Farewell::WrongCertificate => {
                "it takes certificates only, or does not believe the one that it was shown"
            }
        })
    }
}
