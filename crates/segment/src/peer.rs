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
    /// Sends a request on its way before it returns. Requests of one peer take effect in the order of these calls, those that take effect.
    ///
    /// The answer's errors: `Retry` when the request did not reach the node; `OutcomeUnknown` when it may have, or may yet. The completer gone means
    /// the same. Any other kind: it did not reach the node, and will not until what the error says is mended (a wrong secret, another version), or
    /// until some of what is on its way was answered (`Busy`). What the node itself says, refusals included, is no error.
    fn call(&self, request: Request) -> Completion<Result<Answer>>;

    /// The answer to a request that takes no waiting, as of one that is a store to memory. It counts among the calls, in their order. `None`: nothing took
    /// effect, and it is to be called.
    fn answer_at_once(&self, request: &Request) -> Option<Result<Answer>> {
        let _ = request;
        None
    }

    /// Asks the node what it is: its life, which whoever makes a region there has to know, and its room. Errors as those of [`Peer::call`].
    fn status(&self) -> Completion<Result<NodeStatus>>;

    /// Whether the node wants a region's memory back: its owner makes another elsewhere, or destages the log, and frees it. Looks at a flag
    /// that the node's notices set.
    fn is_wanted_back(&self, region: RegionId) -> bool;

    /// Where the node is, as a configuration names it.
    fn address(&self) -> &str;
}

/// A node in this process: for tests, and for whoever lends its own memory.
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
    fn answer_at_once(&self, request: &Request) -> Option<Result<Answer>> {
        matches!(request.body, Body::Append { .. }).then(|| Ok(self.regions.lock().handle(request.clone())))
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

    fn address(&self) -> &str {
        &self.address
    }
}
