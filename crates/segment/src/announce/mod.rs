//! How nodes say in an object store, or in etcd, that they are there, and how writers find them.
//!
//! A look takes the newest announcement of each node for a hint and no more: a node is there
//! when it answers. So no clock and no lease matters to safety. In an object store a node that
//! stands still for [`LEASE_PERIODS`] of its periods is gone; in etcd its lease ends by etcd's own
//! clock.
//!
//! **Announcement**:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLNANN` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes in all |
//! | 16 | 8 | period in milliseconds |
//! | 24 | 4 | bytes of the address, at most 255 |
//! | 28 | | the address as writers use it, `host:port` |
//! | … | | the node's status, as on the wire ([`crate::wire::body`]) |
//! | end − 4 | 4 | CRC-32C of all before |

mod etcd;
mod http;
mod objects;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::checksum::crc32c;
use tombolo_format::codec::{Reader, put_prefixed};
use tombolo_format::{FormatError, Result as FormatResult};
use tombolo_storage::{Error, ErrorKind, ObjectStore, Registry as Stores, Result, Uri};

use crate::message::NodeStatus;
use crate::wire::body::{put_status, take_status};
use etcd::{Entries, Leased};
use objects::{Beats, Objects};

pub use etcd::Etcd;

#[cfg(test)]
mod tests;

/// First bytes of an announcement.
pub const ANNOUNCEMENT_MAGIC: [u8; 8] = *b"TMBLNANN";
/// How often a node announces itself: at a bucket half a dollar in a month.
pub const PERIOD: Duration = Duration::from_secs(30);
/// Periods after which a node whose beats stand still is gone.
pub const LEASE_PERIODS: u32 = 3;
/// Nodes of one registry that are looked at.
pub const NODES_MAX: usize = 1000;
const VERSION: u32 = 1;
const ADDRESS_BYTES_MAX: usize = 255;
/// Most bytes of an announcement.
const ANNOUNCEMENT_BYTES_MAX: u64 = 1024;

/// A node that announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where writers reach it.
    pub address: String,
    /// How often it announces itself.
    pub period: Duration,
    /// What it said of itself then.
    pub status: NodeStatus,
}

impl Announcement {
    /// Its bytes.
    ///
    /// # Errors
    /// `Invalid` for an address that is too long.
    pub fn encode(&self) -> Result<Bytes> {
        if self.address.len() > ADDRESS_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("an address of more than {ADDRESS_BYTES_MAX} bytes: {}", self.address),
            ));
        }
        let mut out = Vec::new();
        out.extend_from_slice(&ANNOUNCEMENT_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
        put_prefixed(&mut out, self.address.as_bytes());
        put_status(&self.status, &mut out);
        let bytes = u32::try_from(out.len() + 4).unwrap_or(u32::MAX);
        out[12..16].copy_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        Ok(out.into())
    }

    /// Reads it.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for another version.
    pub fn decode(bytes: &[u8]) -> FormatResult<Announcement> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array::<8>()?;
        if magic != ANNOUNCEMENT_MAGIC {
            return Err(FormatError::damaged(
                0,
                "the magic of an announcement",
                magic.escape_ascii().to_string(),
            ));
        }
        let Some((hashed, stored)) = bytes.split_last_chunk::<4>() else {
            return Err(FormatError::damaged(8, "a checksum", "an end"));
        };
        let (computed, stored) = (crc32c(hashed), u32::from_le_bytes(*stored));
        if computed != stored {
            return Err(FormatError::checksum(hashed.len(), computed, stored));
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(FormatError::newer(8, format!("version {version}; this program reads {VERSION}")));
        }
        let length = reader.u32()? as usize;
        if length != bytes.len() {
            return Err(FormatError::damaged(12, bytes.len().to_string(), length.to_string()));
        }
        let period = Duration::from_millis(reader.u64()?);
        let address = reader.text(ADDRESS_BYTES_MAX)?.to_owned();
        let status = take_status(&mut reader)?;
        reader.u32()?;
        reader.end()?;
        Ok(Announcement { address, period, status })
    }
}

/// What an announcement says; one that is damaged, or a newer version's, is left out and told.
fn decode(name: &dyn Display, bytes: &[u8]) -> Option<Announcement> {
    let decoded = Announcement::decode(bytes);
    decoded
        .map_err(
            |error| tracing::warn!(%name, %error, "a node's announcement cannot be read: it is left out"),
        )
        .ok()
}

/// Where nodes announce themselves.
#[derive(Clone, Debug)]
pub enum Place {
    /// As objects of a store.
    Store(Arc<dyn ObjectStore>),
    /// As entries of etcd.
    Etcd(Etcd),
}

impl Place {
    /// What `uri` names: an etcd, or a store that `stores` knows.
    ///
    /// # Errors
    /// `Invalid` for a wrong URI; those of opening the store, or of reading the files that an
    /// etcd's URI names. Of etcd nothing is asked.
    pub fn open(env: &Env, stores: &Stores, uri: &str) -> Result<Place> {
        let uri = Uri::parse(uri)?;
        Ok(match Etcd::of(env, &uri)? {
            Some(etcd) => Place::Etcd(etcd),
            None => Place::Store(stores.open_object_store(env, &uri)?),
        })
    }
}

/// The nodes of a registry, as somebody sees them who looks now and then.
#[derive(Debug)]
pub struct Registry(Look);

#[derive(Debug)]
enum Look {
    Objects(Objects),
    Etcd(Entries),
}

impl Registry {
    /// The registry `registry` of a place. Nothing is asked for yet.
    ///
    /// # Errors
    /// `Invalid` when it is no name: letters, digits, `.`, `_`, `-` and `~`.
    pub fn new(env: &Env, place: Place, registry: &str) -> Result<Registry> {
        Ok(Registry(match place {
            Place::Store(store) => Look::Objects(Objects::new(env, store, registry)?),
            Place::Etcd(etcd) => Look::Etcd(Entries::new(env, etcd, registry)?),
        }))
    }

    /// Nodes that have announced themselves and are not known to be gone, in the order of their
    /// ids. One list, and in a store a read for each node that has announced something new.
    ///
    /// # Errors
    /// What the store says. An announcement that is damaged, or a newer version's, is left out and
    /// told.
    pub async fn look(&mut self) -> Result<Vec<Announcement>> {
        match &mut self.0 {
            Look::Objects(objects) => objects.look().await,
            Look::Etcd(entries) => entries.look().await,
        }
    }
}

/// A node's own announcements.
#[derive(Debug)]
pub struct Announcer(Say);

#[derive(Debug)]
enum Say {
    Objects(Beats),
    Etcd(Leased),
}

impl Announcer {
    /// Announces a node that writers reach at `address`.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn new(env: &Env, place: Place, registry: &str, address: &str) -> Result<Announcer> {
        Ok(Announcer(match place {
            Place::Store(store) => Say::Objects(Beats::new(env, store, registry, address)?),
            Place::Etcd(etcd) => Say::Etcd(Leased::new(env, etcd, registry, address)?),
        }))
    }

    /// How often [`Announcer::announce`] is to be called.
    pub fn period(&self) -> Duration {
        match self.0 {
            Say::Objects(_) => PERIOD,
            Say::Etcd(_) => etcd::PERIOD,
        }
    }

    /// Puts the next announcement, and deletes what serves nobody any more. In a store: two
    /// requests, a list, and a read for each other node; in etcd two requests.
    ///
    /// # Errors
    /// What the store says.
    pub async fn announce(&mut self, status: NodeStatus) -> Result<()> {
        match &mut self.0 {
            Say::Objects(beats) => beats.announce(status).await,
            Say::Etcd(leased) => leased.announce(status).await,
        }
    }

    /// Takes the node's announcements back: it ends.
    ///
    /// # Errors
    /// What the store says.
    pub async fn withdraw(self) -> Result<()> {
        match self.0 {
            Say::Objects(beats) => beats.withdraw().await,
            Say::Etcd(leased) => leased.withdraw().await,
        }
    }
}
