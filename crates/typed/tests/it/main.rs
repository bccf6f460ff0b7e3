//! Typed keyspaces on real databases.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod allocator;
mod joins;
mod keyspaces;
mod lending;
mod spread;

/// A name that no other test has: stores in memory are the process's.
fn fresh(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("mem://{name}-{}", NEXT.fetch_add(1, Relaxed))
}
