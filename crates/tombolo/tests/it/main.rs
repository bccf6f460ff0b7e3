//! The engine through its public interface.

mod basics;
mod damage;
mod model;
mod simulation;
mod threads;
