//! What the state machines of this crate say and hear: calls to nodes, and their outcomes.

use std::sync::Arc;

use crate::message::{Answer, NodeIncarnation, RegionId, Request};

/// Parameters of the protocol; k is 1: each region has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// n: regions that a segment should have.
    pub copies: usize,
    /// q: regions that acknowledge.
    pub quorum: usize,
}

/// A region of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Where its node is.
    pub node: Arc<str>,
    /// The node's life that it was made in.
    pub incarnation: NodeIncarnation,
    /// Its name.
    pub region: RegionId,
}

/// A node that regions may be made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it is.
    pub address: Arc<str>,
    /// What it fails together with: a host, a rack, a zone. Regions of a segment are spread over
    /// them. Empty: not known yet, so that it may fail together with any other.
    pub domain: Arc<str>,
}

/// Tells the answer of one call from that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// Which region it is about, as the machine counts them.
    pub(crate) replica: u32,
    pub(crate) number: u32,
}

impl CallId {
    /// Of a machine's call about the region that it counts as `replica`; `number` tells its calls
    /// about that apart.
    pub const fn new(replica: u32, number: u32) -> CallId {
        CallId { replica, number }
    }

    /// Of a call whose answer nobody waits for.
    pub const fn nobodys() -> CallId {
        CallId { replica: u32::MAX, number: 0 }
    }
}

/// A request that wants to be sent. The machine lives on without its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Comes back with the outcome.
    pub id: CallId,
    /// To whom.
    pub node: Arc<str>,
    /// What.
    pub request: Request,
}

/// No answer came: the request may have taken effect, or may yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// How a call ended.
pub type Outcome = Result<Answer, Lost>;
