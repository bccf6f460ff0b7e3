//! What this machine is, and what this process uses of it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tombolo_env::memory::{heap_bytes, mapped_bytes};

/// What figures depend on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel name and release.
    pub system: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// One-minute load average when it was looked at.
    pub load: f64,
}

impl Machine {
    /// Looks.
    pub fn look() -> Machine {
        let uname = rustix::system::uname();
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor =
            field(&processor, "model name").map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Machine {
            system: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            processor: processor.unwrap_or_else(|| "unknown processor".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: kilobytes(&meminfo, "MemTotal"),
            load: load.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

/// The text after `name` and its colon.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        line.split_once(':').filter(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
    };
    text.lines().find_map(of)
}

/// A field such as `MemTotal: 8148288 kB`, in bytes; 0 when it is not there.
pub fn kilobytes(text: &str, name: &str) -> u64 {
    let number = field(text, name).and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

/// Memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident bytes that are its own: heap, stacks, caches.
    pub own_bytes: u64,
    /// Bytes that the program holds: of the allocator and of mappings that are no files. What the
    /// allocator keeps of freed blocks is resident, and no part of it.
    pub held_bytes: u64,
    /// Resident bytes of mapped files: the mapped log, the program itself. The kernel takes them
    /// back when it needs them.
    pub mapped_bytes: u64,
}

impl Memory {
    /// Looks.
    pub fn look() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let own_bytes = kilobytes(&status, "RssAnon");
        // Where the allocator does not tell, all that is resident counts as held.
        let held_bytes = heap_bytes().map_or(own_bytes, |heap| heap + mapped_bytes() as u64);
        Memory {
            own_bytes,
            held_bytes,
            mapped_bytes: kilobytes(&status, "RssFile") + kilobytes(&status, "RssShmem"),
        }
    }
}

/// CPU time of this process, all threads, user and system.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that this process has caused to be written to disks, by the kernel's count: whole pages,
/// mapped files included.
pub fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    field(&io, "write_bytes").and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "MemTotal:        8148288 kB\nMemFree: 12 kB\nwrite_bytes: 4096\n";
        assert_eq!(kilobytes(text, "MemTotal"), 8_148_288 << 10);
        assert_eq!(kilobytes(text, "Mem"), 0);
        assert_eq!(field(text, "write_bytes"), Some("4096"));
    }

    #[test]
    fn this_machine_has_something() {
        let machine = Machine::look();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(Memory::look().own_bytes > 0);
        let before = cpu_time();
        let mut digest = 0u64;
        while cpu_time() == before {
            digest = std::hint::black_box(digest.wrapping_add(1));
        }
    }
}
