//! Compaction on other machines: workers that run jobs of databases which they do not have open,
//! and how writers reach them.
//!
//! ```text
//! writer ── offer ──▶ two or three workers       each queues it, the most urgent first, databases in turn
//! writer ◀─ permit ── the first that has room    the other offers are taken back
//! writer ── begin ──▶ the job, as bytes
//! writer ◀─ progress, once a second              silence: the job goes to another worker
//! writer ◀─ done ──── the answer, which the writer checks
//! ```
//!
//! A connection is made as to a node: frames, secrets and certificates are those of
//! [`tombolo_segment::wire`]. What a worker has is said in its welcome, and compared with what a
//! job needs before anything is offered. There is no scheduler in the middle.
//!
//! Invariants:
//! 1. A worker runs at most so many jobs at once, and keeps at most so many offers.
//! 2. One whose writer has gone ends its job soon.
//! 3. Each attempt goes to one worker, once: where nobody knows what became of it, another attempt
//!    follows, under other names.

mod line;
mod queue;
mod server;
mod workers;

pub use server::{Compactor, CompactorOptions};
pub use workers::{Found, Workers, status};

#[cfg(test)]
mod tests;
