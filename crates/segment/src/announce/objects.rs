//! Announcements in an object store.
//!
//! A node puts `nodes/{registry}/{id}.{!beat}` again and again, its id drawn when it starts,
//! `!beat` = `u64::MAX` − beat with 16 hexadecimal digits, and deletes the one before. By the clock
//! of who looks, a node whose beats stand still for [`LEASE_PERIODS`] of its periods is gone; other
//! nodes delete what it left.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_env::{Env, Instant};
use tombolo_storage::object::read_whole;
use tombolo_storage::{
    Epoch, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Result,
};

use super::{ANNOUNCEMENT_BYTES_MAX, Announcement, LEASE_PERIODS, NODES_MAX, PERIOD, decode};
use crate::message::NodeStatus;

/// The nodes of a registry, as somebody sees them who looks now and then.
#[derive(Debug)]
pub(super) struct Objects {
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

pub(super) fn request() -> Request {
    Request::new(Purpose::Log, Epoch::NONE)
}

impl Objects {
    /// The registry `registry` of a store. Nothing is asked for yet.
    ///
    /// # Errors
    /// `Invalid` when it is no name: letters, digits, `.`, `_`, `-` and `~`.
    pub(super) fn new(env: &Env, store: Arc<dyn ObjectStore>, registry: &str) -> Result<Objects> {
        let prefix = format!("nodes/{registry}/");
        name(&prefix, 0, 0)?;
        Ok(Objects { env: env.clone(), store, prefix, seen: BTreeMap::new() })
    }

    /// Nodes that have announced themselves and are not known to be gone, in the order of their
    /// ids. One list, and a read for each node that has announced something new.
    ///
    /// # Errors
    /// What the store says. An announcement that is damaged, or a newer version's, is left out and
    /// told.
    pub(super) async fn look(&mut self) -> Result<Vec<Announcement>> {
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
            Ok(bytes) => Ok(decode(name, &bytes)),
            // Its node has put the next one meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Seen {
    fn is_gone(&self, now: Instant) -> bool {
        let period =
            self.announcement.as_ref().map_or(PERIOD, |announcement| announcement.period.min(PERIOD * 10));
        now.since(self.since) > period * LEASE_PERIODS
    }
}

/// A node's own announcements.
#[derive(Debug)]
pub(super) struct Beats {
    registry: Objects,
    id: u64,
    beat: u64,
    address: String,
}

impl Beats {
    /// Announces a node that writers reach at `address`.
    ///
    /// # Errors
    /// As [`Objects::new`].
    pub(super) fn new(
        env: &Env,
        store: Arc<dyn ObjectStore>,
        registry: &str,
        address: &str,
    ) -> Result<Beats> {
        let registry = Objects::new(env, store, registry)?;
        Ok(Beats { registry, id: env.random_u64(), beat: 0, address: address.to_owned() })
    }

    /// Puts the next announcement, and deletes what serves nobody any more: two requests, a list,
    /// and a read for each other node.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn announce(&mut self, status: NodeStatus) -> Result<()> {
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
    pub(super) async fn withdraw(self) -> Result<()> {
        for beat in [self.beat.saturating_sub(1), self.beat] {
            self.registry.store.delete(request(), &name(&self.registry.prefix, self.id, beat)?).await?;
        }
        Ok(())
    }
}
