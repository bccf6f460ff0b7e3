//! The local log in the real world and in simulated ones.

mod real;
