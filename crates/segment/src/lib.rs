//! Replicated segments: one protocol, with parameters (n nodes, k to decode, q to acknowledge,
//! medium).
//!
//! A **segment** is a bounded, append-only run of records. Each of n **nodes** holds it in a
//! **region**, in memory or on disk. A **configuration**, published by put-if-absent in the chain
//! that owns the segment, names the regions that count. The rules, by number, are those of the
//! design's section on replicated segments:
//!
//! | rule | says | here |
//! |---|---|---|
//! | 1 | only regions of the newest published configuration count | [`writer`] |
//! | 2 | check and append are one step; epoch, incarnation and predecessor are checked by the node | [`region`] |
//! | 3 | acknowledged is what lies on q regions, of both configurations while one changes | [`writer`] |
//! | 4 | a region that lost its content is no answer; a node seals what it has never seen | [`region`], [`takeover`] |
//! | 5 | seal n − q + k, take the k-th longest, copy to fresh regions, publish, then serve and free | [`takeover`], [`writer`] |
//! | 6 | what a publication of unknown outcome names or would drop is not freed | [`writer`] |
//!
//! Everything that decides is a plain state machine without IO; [`peer::Peer`] is how a writer
//! reaches a node, whatever lies between: [`tcp`] on one side and [`node`] on the other, in the
//! frames of [`wire`]; or, on one host, [`shared`] memory; or, with the feature `rdma`, a card that
//! writes to a node's memory (`rdma`).
//!
//! **Failure model.** After the writer's death, what it acknowledged is recoverable while at most q
//! − k of the regions named by the newest published configuration have lost or corrupted their
//! content since they were made, counted cumulatively: a restart does not restore a region.

pub mod announce;
mod batch;
pub mod call;
pub mod follow;
#[doc(hidden)]
pub mod fuzzing;
mod lent;
mod making;
pub mod message;
pub mod node;
mod pace;
pub mod peer;
#[cfg(feature = "rdma")]
pub mod rdma;
pub mod region;
mod replica;
pub mod shared;
mod slow;
mod tail;
pub mod takeover;
pub mod tcp;
pub mod wire;
pub mod writer;
