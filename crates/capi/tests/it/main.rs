//! The library as C programs see it: its header, and programs that `cc` compiles and links with it.

#![allow(clippy::unwrap_used, reason = "what fails in a test is shown")]

mod header;
mod programs;
