//! Layers: each wraps a store and is a store, so that any of them can stand before any backend.
//!
//! - [`fault`]: makes a store as bad as the contract allows, and worse where asked.
//! - [`flow`]: asks a remote store for much at once, and for no more than it takes.
//! - [`hedge`]: asks a second time for what takes long.
//! - [`meter`]: counts requests and bytes, always.
//! - [`retry`]: waits for a store that fails for a while.
//! - [`throttle`]: makes a store slower than it could be.
//! - [`trace`]: tells each request, and counts them.

#[macro_use]
mod leave;

pub mod fault;
pub mod flow;
pub mod hedge;
pub mod meter;
pub mod retry;
pub mod throttle;
pub mod trace;

pub use crate::request::RequestKind;
