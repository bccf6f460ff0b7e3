//! A store that fails, as real ones do: by script, or by chance from a seed.
//!
//! [`FaultPlan`] decides and is shared: tests keep a handle, and give others to
//! [`FaultObjectStore`] and [`FaultLogStore`], which act. A request is numbered when it begins,
//! then the plan says which faults it meets. With the same seed and the same order of requests the
//! same faults come.
//!
//! What can be injected stays within the contract of [`crate::ObjectStore`] (errors, delays,
//! effects that come late or twice, unknown outcomes, pages put together from several moments),
//! with one exception that exists to be noticed: [`Fault::Short`] reads.
//!
//! An effect that comes late is carried out by a task of the `env` that the layer was made with. In
//! a simulation that should be a process that stays when the client is killed: a request under way
//! in the network does.

mod log;
mod objects;
mod plan;

#[cfg(test)]
mod tests;

pub use log::FaultLogStore;
pub use objects::FaultObjectStore;
pub use plan::{Asked, Chances, Fault, FaultPlan, Hook, Lateness, Rule};
