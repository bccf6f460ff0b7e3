//! How nodes say in an object store that they are there, and how writers find them.
//!
//! A node puts `nodes/{registry}/{id}.{!beat}` again and again, its id drawn when it starts, `!beat` = `u64::MAX` − beat with 16 hexadecimal digits, and
//! deletes the one before. Whoever looks takes the newest of each id for a hint and no more: a node is there when it answers. By the clock of who looks, a node
//! whose beats stand still for [`LEASE_PERIODS`] of its periods is gone; other nodes delete what it left.
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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{Env, Instant};
use tombolo_format::checksum::crc32c;
use tombolo_format::codec::{Reader, put_prefixed};
use tombolo_format::{FormatError, Result as FormatResult};
use tombolo_storage::object::read_whole;
use tombolo_storage::{Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Result};

use crate::message::NodeStatus;
use crate::wire::body::{put_status, take_status};

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
            return Err(Error::new(ErrorKind::Invalid, format!("an address of more than {ADDRESS_BYTES_MAX} bytes: {}", self.address)));
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
            return Err(FormatError::damaged(0, "the magic of an announcement", magic.escape_ascii().to_string()));
        }
        let Some((hashed, stored)) = bytes.split_last_chunk::<4>() else { return Err(FormatError::damaged(8, "a checksum", "an end")) };
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

/// The nodes of a registry, as somebody sees them who looks now and then.
#[derive(Debug)]
pub struct Registry {
    env: Env,
    store: Arc<dyn ObjectStore>,
    prefix: String,
    /// The newest beat of each node, and when it was seen first.
    seen: BTreeMap<u64, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    beat: u64,
    since: Instant,
    /// `None`: it could not be read.
    announcement: Option<Announcement>,
}

fn name(prefix: &str, id: u64, beat: u64) -> Result<ObjectName> {
    ObjectName::new(format!("{prefix}{id:016x}.{:016x}", u64::MAX - beat))
}

/// The id and beat that a name says.
fn parse_name(prefix: &str, name: &str) -> Option<(u64, u64)> {
    let (id, beat) = name.strip_prefix(prefix)?.split_once('.')?;
    Some((u64::from_str_radix(id, 16).ok()?, u64::MAX - u64::from_str_radix(beat, 16).ok()?))
}

fn request() -> Request {
    Request::new(Purpose::Log, Epoch::NONE)
}

impl Registry {
    /// The registry `registry` of a store. Nothing is asked for yet.
    ///
    /// # Errors
    /// `Invalid` when it is no name: letters, digits, `.`, `_`, `-` and `~`.
    pub fn new(env: &Env, store: Arc<dyn ObjectStore>, registry: &str) -> Result<Registry> {
        let prefix = format!("nodes/{registry}/");
        name(&prefix, 0, 0)?;
        Ok(Registry { env: env.clone(), store, prefix, seen: BTreeMap::new() })
    }

    /// Nodes that have announced themselves and are not known to be gone, in the order of their ids. One list, and a read for each node that has
    /// announced something new.
    ///
    /// # Errors
    /// What the store says. An announcement that is damaged, or a newer version's, is left out and told.
    pub async fn look(&mut self) -> Result<Vec<Announcement>> {
        self.refresh().await?;
        let now = self.env.now();
        let live = self.seen.values().filter(|seen| !seen.is_gone(now));
        Ok(live.filter_map(|seen| seen.announcement.clone()).collect())
    }

    /// Names that serve nobody: those before the newest beat, and those of nodes that are gone.
    async fn refresh(&mut self) -> Result<Vec<ObjectName>> {
        let listed = self.store.list(request(), &self.prefix, None, 4 * NODES_MAX).await?;
        let now = self.env.now();
        let (mut found, mut old) = (BTreeMap::new(), Vec::new());
        for object in listed.objects {
            let Some((id, beat)) = parse_name(&self.prefix, object.name.as_str()) else { continue };
            // The newest of an id sorts first.
            if found.contains_key(&id) {
                old.push(object.name);
            } else if found.len() < NODES_MAX {
                let before = self.seen.remove(&id).filter(|seen| seen.beat == beat);
                let seen = match before {
                    Some(seen) => seen,
                    None => Seen { beat, since: now, announcement: self.read(&object.name).await? },
                };
                if seen.is_gone(now) {
                    old.push(object.name);
                }
                found.insert(id, seen);
            }
        }
        self.seen = found;
        Ok(old)
    }

    async fn read(&self, name: &ObjectName) -> Result<Option<Announcement>> {
        match read_whole(&*self.store, request(), name, ANNOUNCEMENT_BYTES_MAX).await {
            Ok(bytes) => match Announcement::decode(&bytes) {
                Ok(announcement) => Ok(Some(announcement)),
                Err(error) => {
                    tracing::warn!(%name, %error, "a node's announcement cannot be read: it is left out");
                    Ok(None)
                }
            },
            // Its node has put the next one meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Seen {
    fn is_gone(&self, now: Instant) -> bool {
        let period = self.announcement.as_ref().map_or(PERIOD, |announcement| announcement.period.min(PERIOD * 10));
        now.since(self.since) > period * LEASE_PERIODS
    }
}

/// A node's own announcements.
#[derive(Debug)]
pub struct Announcer {
    registry: Registry,
    id: u64,
    beat: u64,
    address: String,
}

impl Announcer {
    /// Announces a node that writers reach at `address`.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn new(env: &Env, store: Arc<dyn ObjectStore>, registry: &str, address: &str) -> Result<Announcer> {
        let registry = Registry::new(env, store, registry)?;
        Ok(Announcer { registry, id: env.random_u64(), beat: 0, address: address.to_owned() })
    }

    /// Puts the next announcement, and deletes what serves nobody any more: two requests, a list, and a read for each other node.
    ///
    /// # Errors
    /// What the store says.
    pub async fn announce(&mut self, status: NodeStatus) -> Result<()> {
        self.beat += 1;
        let announcement = Announcement { address: self.address.clone(), period: PERIOD, status };
        let name = name(&self.registry.prefix, self.id, self.beat)?;
        let placement = Placement::new(ObjectKind::Other, Life::Short);
        self.registry.store.put_if_absent(request(), &name, placement, announcement.encode()?).await?;
        for old in self.registry.refresh().await? {
            self.registry.store.delete(request(), &old).await?;
        }
        Ok(())
    }

    /// Takes the node's announcements back: it ends.
    ///
    /// # Errors
    /// What the store says.
    pub async fn withdraw(self) -> Result<()> {
        for beat in [self.beat.saturating_sub(1), self.beat] {
            self.registry.store.delete(request(), &name(&self.registry.prefix, self.id, beat)?).await?;
        }
        Ok(())
    }
}
