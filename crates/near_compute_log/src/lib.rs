//! The near-compute log: a [`LogStore`](tombolo_storage::LogStore) on replicated segments in the
//! memory of nodes. A write is durable after one round trip to a majority of them; tables go to the
//! object store as ever.
//!
//! ```text
//! append ─▶ lane ─▶ segment n, n + 1, … ─▶ regions on nodes          flush ─▶ trim ─▶ whole segments are freed
//!             │                                                      memory short, or a node wants it back ─▶ segments become objects
//!             └─▶ configurations ─▶ the manifest chain ─▶ the next owner
//! ```
//!
//! A lane is cut into segments; where they are is the lane's
//! [`LogRecord`](tombolo_storage::LogRecord), published through the chain that the log is opened
//! with. The protocol of one segment, and its rules, are [`tombolo_segment`]'s; this crate drives
//! its state machines:
//!
//! - `lane` writes: all segments of one lane, their calls, their configurations.
//! - `fence` takes over: seals, recovers, copies to fresh regions, publishes.
//! - `old` moves what was taken over to the object store, while this epoch writes.
//! - `read` reads what was recovered, and follows a log that is still written.
//! - `flight` carries calls to nodes and their answers back.
//!
//! **Failure model.** A write that was acknowledged survives the death of its writer, and of as
//! many nodes as q − 1 of those that hold its segment, counted from when their regions were made:
//! one of three. What more of them lose, at once or one after the other, is lost with them, and so
//! it is by a power failure of all, unless it was in tables or objects before; then opening says
//! so, and serves nothing. A living writer keeps all of it, and repairs any number; what it took
//! over is in objects about a second after it opened.

mod configuration;
mod destage;
mod fence;
mod flight;
mod lane;
mod log;
mod old;
mod peers;
mod read;
mod replication;
mod status;
mod store;
#[cfg(test)]
mod tests;
mod uri;

pub use peers::{Connect, Neighbours};
pub use replication::Replication;
pub use status::{RegionState, RegionStatus, SegmentStatus, log_status};
pub use store::NearLogStore;
pub use uri::register;
