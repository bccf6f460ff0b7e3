//! What a host and a file system offer: plain data, for `tombolo doctor` and for code that chooses
//! between two ways of doing one thing.
//!
//! Nothing here is a promise: a container, a hypervisor or an administrator may take any of it away
//! while the process runs.

/// What this host offers to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The operating system and its release, as `uname` says.
    pub system: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory in bytes, or what a control group leaves of it.
    pub memory_bytes: u64,
    /// How the kernel gives huge pages: `always`, `madvise`, `never`; `None` when it does not tell.
    pub huge_pages: Option<String>,
    /// Files that this process may have open at once.
    pub open_files_max: usize,
    /// Whether io_uring works, or why not.
    pub io_uring: Result<(), String>,
}

/// What the file system that holds a path offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFacts {
    /// Its kind by name: `ext4`, `xfs`, `tmpfs`.
    pub name: String,
    /// Its options, joined by commas, as mounted.
    pub options: String,
    /// Whether it lies in memory and ends with the host.
    pub in_memory: bool,
    /// Alignment in bytes that reads and writes past the page cache need, or why they do not work.
    pub direct_io: Result<usize, String>,
    /// Whether the device has a volatile write cache, which a sync must flush; `None` when the
    /// kernel does not tell.
    pub volatile_cache: Option<bool>,
    /// Whether the device turns; `None` when the kernel does not tell.
    pub rotational: Option<bool>,
}

/// Which process this is, so that others can tell whether it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The name of its host.
    pub host: String,
    /// The name of its program.
    pub program: String,
    /// Its number.
    pub process: u32,
    /// The namespace in which that number counts; 0 when it is not known.
    pub namespace: u64,
    /// When it started, in the host's own units since its boot; 0 when it is not known.
    pub start: u64,
}
