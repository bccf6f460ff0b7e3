//! The manifest chain and deletion together: a model that is searched, and processes that fight in
//! a simulated world.

mod model;
mod simulation;
