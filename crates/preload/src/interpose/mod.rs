//! What a process sees of the files: paths, descriptors, placeholders, `errno`.
//!
//! `symbols` (the C library's names) → here → [`crate::files`] → the database.
//!
//! Each file in the database has a placeholder on the disk: a small real file of the same name, so
//! that directories list it, and so that a real descriptor stands for it, which can be duplicated,
//! locked and asked for its inode. Its size and content are the database's.
//!
//! Invariants:
//! 1. A call that is not about a matching path or one of its descriptors reaches the C library as
//!    it was; where a directory is asked for that files could be in, the database is opened
//!    before, so that the disk shows what it knows.
//! 2. A call that cannot be done as the operating system would do it fails with an `errno`, and
//!    says why on standard error; it never reads or writes a placeholder in a file's stead, but for
//!    what docs/preload.md names.
//! 3. Calls that the engine makes while it serves one ([`guard`]) go to the C library, and its own
//!    files never match.
//! 4. A child that was forked after the database was opened gets `EIO` for its files: the
//!    database's threads are not in it.

pub mod calls;
pub mod descriptors;
mod errors;
pub mod guard;
pub mod mount;
pub mod paths;
mod patterns;
mod placeholder;
mod resolved;
mod settings;

pub use errors::{Errno, Outcome, report};
