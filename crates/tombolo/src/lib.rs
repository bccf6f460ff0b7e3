//! The Tombolo engine.

pub mod manifest;
