//! The nodes of a log store, and the peers by which they are reached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_segment::announce::{Announcement, Registry};
use tombolo_segment::call::Node;
use tombolo_segment::peer::Peer;
use tombolo_storage::Result;

/// How nodes are reached, by their address.
pub trait Connect: Send + Sync + fmt::Debug {
    /// The peer at `address`. Connects when it is first called, and again when that is lost.
    ///
    /// # Errors
    /// `Invalid` when no node can have that address.
    fn connect(&self, env: &Env, address: &str) -> Result<Arc<dyn Peer>>;
}

/// The nodes that regions are made on, and peers of all nodes that a configuration names.
#[derive(Debug)]
pub struct Neighbours {
    env: Env,
    connect: Arc<dyn Connect>,
    nodes: Mutex<Vec<Node>>,
    /// Where nodes announce themselves, unless they were named. Taken out by whoever looks.
    announced: Mutex<Option<Registry>>,
    peers: Mutex<BTreeMap<Arc<str>, Arc<dyn Peer>>>,
}

impl Neighbours {
    /// Nodes at these addresses.
    pub fn new(env: &Env, connect: Arc<dyn Connect>, nodes: Vec<Node>) -> Neighbours {
        Neighbours { env: env.clone(), connect, nodes: Mutex::new(nodes), announced: Mutex::new(None), peers: Mutex::default() }
    }

    /// Nodes that announce themselves. None is known before [`Neighbours::look`].
    pub fn announced(env: &Env, connect: Arc<dyn Connect>, registry: Registry) -> Neighbours {
        let neighbours = Neighbours::new(env, connect, Vec::new());
        *neighbours.announced.lock() = Some(registry);
        neighbours
    }

    /// Looks which nodes have announced themselves, unless they were named: one list.
    ///
    /// # Errors
    /// The store's; what was known stays.
    pub async fn look(&self) -> Result<()> {
        let Some(mut registry) = self.announced.lock().take() else { return Ok(()) };
        let found = registry.look().await;
        *self.announced.lock() = Some(registry);
        let node = |announcement: Announcement| {
            let host = announcement.address.rsplit_once(':').map_or(announcement.address.as_str(), |(host, _)| host);
            let domain = if announcement.status.domain.is_empty() { host } else { announcement.status.domain.as_str() };
            Node { domain: Arc::from(domain), address: Arc::from(announcement.address.as_str()) }
        };
        let takes_regions = |announcement: &Announcement| !announcement.status.is_draining;
        *self.nodes.lock() = found?.into_iter().filter(takes_regions).map(node).collect();
        Ok(())
    }

    /// Whether nodes come and go.
    pub(crate) fn change(&self) -> bool {
        self.announced.lock().is_some()
    }

    /// Nodes at `addresses`, each failing together with others of its host.
    pub fn at(addresses: &[&str]) -> Vec<Node> {
        let node = |address: &&str| Node {
            address: Arc::from(*address),
            domain: Arc::from(address.rsplit_once(':').map_or(*address, |(host, _)| host)),
        };
        addresses.iter().map(node).collect()
    }

    /// Nodes that regions are made on.
    pub fn nodes(&self) -> Vec<Node> {
        self.nodes.lock().clone()
    }

    /// The peer of a node.
    pub(crate) fn peer(&self, address: &Arc<str>) -> Result<Arc<dyn Peer>> {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(address) {
            return Ok(Arc::clone(peer));
        }
        let peer = self.connect.connect(&self.env, address)?;
        peers.insert(Arc::clone(address), Arc::clone(&peer));
        Ok(peer)
    }
}
