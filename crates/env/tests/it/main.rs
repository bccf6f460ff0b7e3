//! What both worlds promise alike, and what a simulated world promises of its own, through the
//! public interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod files;
mod mapping;
mod network;
mod power_loss;
mod reads;
mod worlds;
