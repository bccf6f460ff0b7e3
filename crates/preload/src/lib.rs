//! `libtombolo_preload.so`: programs that know nothing of Tombolo keep chosen files in a Tombolo
//! database instead of on their disk.
//!
//! `LD_PRELOAD` puts this library between a program and the C library. Calls on files whose paths
//! match a pattern go to [`files`], files that live in the fenced log and the tables of a database;
//! all other calls go on untouched. After the end of the program, `kill -9` included, the process
//! that opens the database next, on this machine or another, finds everything that was synced.
//!
//! - [`files`]: files in a database, with an interface of their own. Knows nothing of processes and
//!   descriptors.
//! - [`interpose`]: what a process sees of them: paths, descriptors, placeholders in real
//!   directories, `errno`.
//! - `symbols`: the functions that take the place of the C library's. Not in tests of this crate,
//!   whose own files they would take.
//!
//! docs/preload.md says how to use it, what it supports, and what survives what.

pub mod files;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
pub mod interpose;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64", not(test)))]
mod symbols;
