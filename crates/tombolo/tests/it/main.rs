//! The engine through its public interface.

mod basics;
mod model;
mod simulation;
