//! The local log in the real world and in simulated ones.

mod damage;
mod harness;
mod memory;
#[cfg(feature = "mutants")]
mod mutants;
mod real;
mod simulated;
mod space;
