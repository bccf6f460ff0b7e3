//! The nodes of a log store, and the peers by which they are reached.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, within};
use tombolo_segment::announce::{Announcement, Registry};
use tombolo_segment::call::Node;
use tombolo_segment::message::{Answer, Refusal};
use tombolo_segment::peer::Peer;
use tombolo_storage::Result;

/// So long named nodes may take to say what they fail together with, all together: one that is down
/// holds up the first opening of a log no longer.
const DOMAINS_TIME_MAX: Duration = Duration::from_secs(1);

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
    /// Nodes announce themselves, and were not named.
    are_announced: bool,
    /// Where they do. Taken out while somebody looks.
    announced: Mutex<Option<Registry>>,
    /// Named nodes were asked what they fail together with.
    are_asked: AtomicBool,
    /// Those that had not answered when enough domains were known without them: until they do, no
    /// guess from their host may take the place of a domain that is known.
    unheard: Mutex<BTreeSet<Arc<str>>>,
    peers: Mutex<BTreeMap<Arc<str>, Arc<dyn Peer>>>,
    troubles: Arc<Troubles>,
}

/// Why nodes did not do what they were asked for last, for the error that says why there are too
/// few.
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
            // A node that was asked in the name of a life that is over has told the one that it
            // lives.
            Some(Ok(Answer::Refused(refusal))) if !matches!(refusal, Refusal::OtherIncarnation(_)) => {
                refusal.to_string()
            }
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

    /// What we know of these nodes, to stand behind a message; of the others, that they do not
    /// answer.
    pub(crate) fn told(&self, silent: &[Arc<str>]) -> String {
        let mut troubles = self.by_node.lock().clone();
        for node in silent {
            troubles.entry(Arc::clone(node)).or_insert_with(|| "no answer".to_owned());
        }
        let each: Vec<String> =
            troubles.into_iter().map(|(node, trouble)| format!("{node}: {trouble}")).collect();
        if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) }
    }
}

impl Neighbours {
    /// Nodes at these addresses. A domain given here counts until its node says another one.
    pub fn new(env: &Env, connect: Arc<dyn Connect>, nodes: Vec<Node>) -> Neighbours {
        Neighbours {
            env: env.clone(),
            connect,
            nodes: Mutex::new(nodes),
            are_announced: false,
            announced: Mutex::new(None),
            are_asked: AtomicBool::new(false),
            unheard: Mutex::default(),
            peers: Mutex::default(),
            troubles: Arc::default(),
        }
    }

    /// Nodes that announce themselves. None is known before [`Neighbours::look`].
    pub fn announced(env: &Env, connect: Arc<dyn Connect>, registry: Registry) -> Neighbours {
        let neighbours = Neighbours::new(env, connect, Vec::new());
        Neighbours { are_announced: true, announced: Mutex::new(Some(registry)), ..neighbours }
    }

    /// Looks which nodes there are, for segments of so many regions. Where nodes announce
    /// themselves: one list. Where they were named: the first time, if there is a choice between
    /// them, each is asked for its domain, which takes a second at most; later each connection
    /// tells it.
    ///
    /// # Errors
    /// The store's; what was known stays.
    pub async fn look(&self, copies: usize) -> Result<()> {
        if !self.are_announced {
            self.hear_domains(copies).await;
            return Ok(());
        }
        let found = {
            let Some(registry) = self.announced.lock().take() else { return Ok(()) };
            let mut taken = Taken { announced: &self.announced, registry: Some(registry) };
            let Some(registry) = &mut taken.registry else { return Ok(()) };
            registry.look().await
        };
        let node = |announcement: Announcement| {
            let said = announcement.status.domain.as_str();
            let domain = if said.is_empty() { host(&announcement.address) } else { said };
            Node { domain: Arc::from(domain), address: Arc::from(announcement.address.as_str()) }
        };
        let takes_regions = |announcement: &Announcement| !announcement.status.is_draining;
        *self.nodes.lock() = found?.into_iter().filter(takes_regions).map(node).collect();
        Ok(())
    }

    /// Waits until as many domains are known as regions are wanted, or all nodes have answered, or
    /// the time is up.
    async fn hear_domains(&self, copies: usize) {
        let nodes = self.nodes.lock().clone();
        if nodes.len() <= copies || self.are_asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let ask = |node: &Node| Some((node.clone(), self.peer(&node.address).ok()?.status()));
        let mut asked: Vec<_> = nodes.iter().filter_map(ask).collect();
        let mut heard = BTreeSet::new();
        let are_known = poll_fn(|context| {
            asked.retain_mut(|(node, status)| match Pin::new(status).poll(context) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    heard.extend(answer.and_then(Result::ok).map(|_| self.domain(node)));
                    false
                }
            });
            if asked.is_empty() || heard.len() >= copies { Poll::Ready(()) } else { Poll::Pending }
        });
        let _in_time = within(&self.env, DOMAINS_TIME_MAX, are_known).await;
        if heard.len() >= copies {
            *self.unheard.lock() = asked.into_iter().map(|(node, _)| node.address).collect();
        }
    }

    /// What a named node fails together with: what it said itself, if it said anything; nothing
    /// known while its answer is still to come.
    fn domain(&self, node: &Node) -> Arc<str> {
        let said = self.peers.lock().get(&node.address).and_then(|peer| peer.domain());
        let guess = || {
            let is_unheard = self.unheard.lock().contains(&node.address);
            if is_unheard { Arc::from("") } else { Arc::clone(&node.domain) }
        };
        said.unwrap_or_else(guess)
    }

    /// Whether nodes announce themselves, and so come and go.
    pub(crate) fn change(&self) -> bool {
        self.are_announced
    }

    /// Nodes at `addresses`, each failing together with others of its host unless it says something
    /// else.
    pub fn at(addresses: &[&str]) -> Vec<Node> {
        addresses
            .iter()
            .map(|address| Node { address: Arc::from(*address), domain: Arc::from(host(address)) })
            .collect()
    }

    /// Nodes that regions are made on, each with the domain that it names itself, or else its host.
    /// Asks nobody.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes = self.nodes.lock().clone();
        if !self.are_announced {
            nodes.iter_mut().for_each(|node| node.domain = self.domain(node));
        }
        nodes
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

/// The registry while somebody looks. A look that is given up within a list puts it back as well.
struct Taken<'a> {
    announced: &'a Mutex<Option<Registry>>,
    /// Invariant: there until this is dropped.
    registry: Option<Registry>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.announced.lock() = self.registry.take();
    }
}

/// The host of `host:port`.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
