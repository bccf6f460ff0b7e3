//! Stores on zoned devices, through their public face.

mod bad_input;
mod conformance;
mod crash;
mod faults;
mod full;
mod harness;
mod holders;
mod mount;
mod mutants;
