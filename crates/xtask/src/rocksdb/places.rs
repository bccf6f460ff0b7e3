//! Where the files lie: a directory, a bucket, and a directory whose log is in the memory of nodes.

use std::fmt;

use clap::ValueEnum;

/// A place for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Place {
    /// A directory of this run, with its own log.
    Directory,
    /// A bucket of versitygw, with its own log. The server is built once, in minutes.
    Bucket,
    /// A directory of this run, and a log in the memory of three nodes.
    Near,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Place::Directory => "a directory",
            Place::Bucket => "a bucket",
            Place::Near => "a near-compute log",
        })
    }
}
