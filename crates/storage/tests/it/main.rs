//! The storage crate from outside: by URI, in pairs, through layers, over crashes.

mod layers;
mod pairs;
mod registry;
