//! Stores on zoned devices, through their public face.

mod bad_input;
mod conformance;
mod crash;
mod faults;
mod harness;
mod holders;
mod mount;
mod mutants;
