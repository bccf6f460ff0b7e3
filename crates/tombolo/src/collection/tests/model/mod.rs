//! A readable model of the chain and of deletion: exhaustive search, to a bound, of everything that
//! can happen.
//!
//! Two or three processes run the real state machines of [`crate::manifest::chain`] and
//! [`crate::collection::machine`]. The world between them is the adversary's: every put and delete
//! that was ever sent may land now, at any later time, and again; its sender may be told so or left
//! without an answer; every process may stand still before each of its requests, for ever. Lists of
//! one name, and reads of one object, are atomic; reads of several are not.
//!
//! Beside the store the model keeps the **true chain**: a record that lands in the first slot that
//! no record ever held is its next one. Checked at every step ([`Violation`]):
//! 1. Records extend the true chain: without a gap, linked to their predecessor, in the newest
//!    epoch.
//! 2. Whatever an append acknowledges, a claim calls effective or a load calls proven is on the
//!    true chain; and what a load calls proven, or a claim builds on, has everything that was in
//!    the chain when it began.
//! 3. An edit that was reported to have failed never takes effect.
//! 4. The object of every table that the true chain names, and of every table of an effective pin,
//!    exists.
//!
//! Not modelled: liveness, lease clocks, the creation of incarnations, lists of pins or tables that
//! are put together from several moments.

mod orphans;
mod search;
mod world;

mod tests;

use search::search;
use world::{Process, Task, World};
