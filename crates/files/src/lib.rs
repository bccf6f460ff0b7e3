//! Named files over a database: what a program that was written for a file system keeps there, in
//! the fenced log, the rows and the objects of a [`tombolo::Db`].
//!
//! Three kinds of files lie in one `catalog`, and their names say which they are ([`kind`]):
//!
//! - **objects**, for tables: streamed to the store while they are written, never whole in memory;
//! - **lanes**, for logs: each append is an entry of a log, beside those of all other such files,
//!   and one sync makes all of them durable;
//! - **records**, for everything small: rows of the database.
//!
//! Every file is a list of parts under names of their own, never called after the file: a program
//! uses names again. Listing, existence and sizes come from memory, without a request.
//!
//! Invariants:
//! 1. An object is finished before the row that names it is written; the row that un-names it is
//!    durable before it is deleted.
//! 2. A sync of any file, and of the names, makes all earlier changes of names durable.
//! 3. A change of names is one batch of rows, whole or absent; a directory moves in one as well.
//! 4. A lane is trimmed only up to the first entry that a file needs, once the rows say so durably.
//!    Lanes of earlier epochs are only read, and released once no file needs them.
//! 5. Nothing is changed by who follows: see [`Files::follow`].
//!
//! Thread safety: everything may be called from any thread; one file is written by one at a time.

pub mod ahead;
mod catalog;
mod change;
mod content;
pub mod door;
mod files;
pub mod fuzzing;
mod io;
pub mod kind;
mod lanes;
mod load;
pub mod path;
mod rows;
mod usage;

pub use change::Child;
pub use content::{File, Hints};
pub use files::{Files, FilesOptions};
pub use io::{Ask, Reading};
pub use usage::{KindUsage, Usage};

#[cfg(test)]
mod tests;
