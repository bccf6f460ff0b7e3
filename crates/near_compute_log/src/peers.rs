//! The nodes of a log store, and the peers by which they are reached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_segment::announce::{Announcement, Registry};
use tombolo_segment::call::Node;
use tombolo_segment::message::{Answer, Refusal};
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
    troubles: Arc<Troubles>,
}

/// Why nodes did not do what they were asked for last, for whoever has to say why there are too few.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// Whether there may be any: what goes well takes no lock.
    are_any: AtomicBool,
    by_node: Mutex<BTreeMap<Arc<str>, String>>,
}

impl Troubles {
    /// What came of a call to a node.
    pub(crate) fn hear(&self, node: &Arc<str>, answer: Option<&Result<Answer>>) {
        let trouble = match answer {
            // A node that was asked in the name of a life that is over has told the one that it lives.
            Some(Ok(Answer::Refused(refusal))) if !matches!(refusal, Refusal::OtherIncarnation(_)) => refusal.to_string(),
            Some(Ok(_)) if !self.are_any.load(Ordering::Relaxed) => return,
            Some(Ok(_)) => {
                self.by_node.lock().remove(node);
                return;
            }
            Some(Err(error)) => error.message().to_owned(),
            None => "the connection has ended".to_owned(),
        };
        self.are_any.store(true, Ordering::Relaxed);
        self.by_node.lock().insert(Arc::clone(node), trouble);
    }

    /// What is known of these nodes, to stand behind a message; of the others, that they do not answer.
    pub(crate) fn told(&self, silent: &[Arc<str>]) -> String {
        let mut troubles = self.by_node.lock().clone();
        for node in silent {
            troubles.entry(Arc::clone(node)).or_insert_with(|| "no answer".to_owned());
        }
        let each: Vec<String> = troubles.into_iter().map(|(node, trouble)| format!("{node}: {trouble}")).collect();
        if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) }
    }
}

impl Neighbours {
    /// Nodes at these addresses.
    pub fn new(env: &Env, connect: Arc<dyn Connect>, nodes: Vec<Node>) -> Neighbours {
        Neighbours {
            env: env.clone(),
            connect,
            nodes: Mutex::new(nodes),
            announced: Mutex::new(None),
            peers: Mutex::default(),
            troubles: Arc::default(),
        }
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

    /// Why nodes fail.
    pub(crate) fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
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
