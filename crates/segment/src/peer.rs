//! How a writer reaches a node.
//!
//! [`TcpPeer`](crate::tcp::TcpPeer) is one over the network.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completion, completion};
use tombolo_storage::Result;

use crate::message::{Answer, Body, NodeMedium, NodeStatus, RegionId, Request};
use crate::region::Regions;

/// A node, seen from a writer.
pub trait Peer: Send + Sync + fmt::Debug {
    /// Sends a request on its way before it returns. Requests of one peer take effect in the order
    /// of these calls, those that take effect.
    ///
    /// The answer's errors: `Retry` when the request did not reach the node; `OutcomeUnknown` when
    /// it may have, or may yet. The completer gone means the same. Any other kind: it did not reach
    /// the node, and will not until what the error says is mended (a wrong secret, another
    /// version), or until some of the calls on their way were answered (`Busy`). What the node
    /// itself says, refusals included, is no error.
    fn call(&self, request: Request) -> Completion<Result<Answer>>;

    /// Carries a request out that takes no waiting, as one that is a store to memory. It counts
    /// among the calls, in their order. Between a store and its answer nothing else is asked of
    /// that region.
    fn answer_at_once(&self, request: &Request) -> AtOnce {
        let _ = request;
        AtOnce::No
    }

    /// The answer to a request for which [`Peer::answer_at_once`] said [`AtOnce::Stored`] of this
    /// region. It waits until all that this process has stored can be seen (a full fence): where
    /// several nodes are stored to, stores go first, and only the first answer waits.
    fn answer_stored(&self, region: RegionId) -> Result<Answer> {
        unreachable!("nothing was stored to {region}")
    }

    /// Asks the node what it is: its life, which a maker of regions there has to know, and its
    /// room. Errors as those of [`Peer::call`].
    fn status(&self) -> Completion<Result<NodeStatus>>;

    /// Whether the node wants a region's memory back: its owner makes another elsewhere, or
    /// destages the log, and frees it. Looks at a flag that the node's notices set.
    fn is_wanted_back(&self, region: RegionId) -> bool;

    /// What fails together with the node, as it said when it last let this process in. `None`: it
    /// has said nothing yet, or names nothing. Asks nobody.
    fn domain(&self) -> Option<Arc<str>>;

    /// Where the node is, as a configuration names it.
    fn address(&self) -> &str;
}

/// What came of a request that may take no waiting.
#[derive(Debug)]
pub enum AtOnce {
    /// Nothing took effect: it is to be called.
    No,
    /// Its answer.
    Answer(Result<Answer>),
    /// It was stored, and its answer is to be asked for ([`Peer::answer_stored`]).
    Stored,
}

/// A node in this process: for tests, and for a process that lends its own memory.
#[derive(Clone, Debug)]
pub struct LocalPeer {
    address: Arc<str>,
    regions: Arc<Mutex<Regions>>,
}

impl LocalPeer {
    /// The node that holds `regions`.
    pub fn new(address: &str, regions: Arc<Mutex<Regions>>) -> LocalPeer {
        LocalPeer { address: address.into(), regions }
    }
}

impl Peer for LocalPeer {
    fn answer_at_once(&self, request: &Request) -> AtOnce {
        match request.body {
            Body::Append { .. } => AtOnce::Answer(Ok(self.regions.lock().handle(request.clone()))),
            _ => AtOnce::No,
        }
    }

    fn call(&self, request: Request) -> Completion<Result<Answer>> {
        let (completer, answer) = completion();
        let said = self.regions.lock().handle(request);
        completer.complete(Ok(said));
        answer
    }

    fn status(&self) -> Completion<Result<NodeStatus>> {
        let (completer, answer) = completion();
        completer.complete(Ok(self.regions.lock().status(NodeMedium::Memory, &self.address)));
        answer
    }

    fn is_wanted_back(&self, region: RegionId) -> bool {
        self.regions.lock().is_wanted_back(region)
    }

    fn domain(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.address))
    }

    fn address(&self) -> &str {
        &self.address
    }
}
