//! What the kernel knows of this process: CPU time, bytes written, memory; and what lies in a
//! directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads, user and system.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that the process has caused to be written to disks: whole pages, those of mapped files
/// included.
pub fn written_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/io").unwrap_or_default(), "write_bytes")
}

/// Bytes that the process has caused to be read from disks.
pub fn read_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/io").unwrap_or_default(), "read_bytes")
}

/// Resident bytes that are the process's own: heap, stacks, caches. Mapped files are not: the
/// kernel takes them back when it needs them.
pub fn own_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "RssAnon") << 10
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes that the files below `directory` take on the disk.
pub fn disk_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        // A file of several names, such as a hard link in the making, would count twice; none of
        // the engines keeps any.
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}
