//! The Tombolo engine.
