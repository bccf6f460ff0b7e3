//! Workloads: what benches drive, what they drive it with, and what they measure. Never sees the
//! engine.
//!
//! `distribution → key, value → generator → Target → statistics`. Everything random comes from one
//! seeded generator per thread, so that a run is repeated exactly by its seed, on every store and
//! every engine that implements [`Target`].

pub mod bench;
pub mod cache;
pub mod distribution;
pub mod fit;
pub mod generator;
pub mod in_flight;
pub mod key;
pub mod mixgraph;
pub mod reuse;
pub mod sketch;
pub mod statistics;
pub mod target;
pub mod value;
pub mod ycsb;

pub use distribution::{Distribution, Keys};
pub use generator::{Generator, Mix, Operation, Source, Verb};
pub use in_flight::InFlight;
pub use key::KeyEncoding;
pub use statistics::{Latencies, Summary};
pub use target::{Durability, Session, Target, TargetError, run};
pub use value::{ValueSizes, Values};

/// The seeded generator of every workload: one algorithm, fixed for ever, so that seeds replay.
pub type Random = rand_xoshiro::Xoshiro256PlusPlus;

/// The generator of thread `thread` of a run with `seed`: streams of different threads do not
/// overlap.
#[must_use]
pub fn random(seed: u64, thread: u64) -> Random {
    use rand::SeedableRng;
    // An odd multiplier spreads neighbouring thread numbers over the whole seed space; seeding
    // mixes further.
    Random::seed_from_u64(seed ^ thread.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
