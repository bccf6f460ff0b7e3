//! What the kernel tells about the host and its file systems.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, major, minor, openat, statx};

use crate::host::{FileSystemFacts, HostFacts, ProcessFacts};

/// Alignment where the kernel does not tell: no device of today wants more.
const DIRECT_ALIGNMENT_DEFAULT: usize = 4096;
/// More than this is no alignment of a device.
const DIRECT_ALIGNMENT_MAX: usize = 1 << 20;

pub(super) fn open_files_max() -> usize {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether a ring can be made and knows how to read.
pub(super) fn io_uring() -> Result<(), String> {
    let ring = io_uring::IoUring::new(2).map_err(|error| match error.raw_os_error() {
        Some(38) => "this kernel does not have it".to_owned(),
        Some(1 | 13) => {
            "it is forbidden here (kernel.io_uring_disabled, or the filter of a container)".to_owned()
        }
        _ => format!("it does not start: {error}"),
    })?;
    let mut probe = io_uring::Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|error| format!("it does not say what it can do: {error}"))?;
    if probe.is_supported(io_uring::opcode::Read::CODE) {
        Ok(())
    } else {
        Err("this kernel's cannot read files".into())
    }
}

fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    let total = total.map_or(0, |kib| kib.saturating_mul(1024));
    // A control group of a container may leave less.
    let limit =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    limit.map_or(total, |limit| limit.min(total))
}

pub(super) fn host() -> HostFacts {
    let uname = rustix::system::uname();
    let huge_pages =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok().and_then(|text| {
            let (_, rest) = text.split_once('[')?;
            Some(rest.split_once(']')?.0.to_owned())
        });
    HostFacts {
        system: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory_bytes(),
        huge_pages,
        open_files_max: open_files_max(),
        io_uring: io_uring(),
    }
}

/// Characters of a name that a process tells of itself, at most.
const NAME_CHARACTERS_MAX: usize = 60;

fn short(name: &str) -> String {
    name.chars().take(NAME_CHARACTERS_MAX).collect()
}

pub(super) fn process() -> ProcessFacts {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| Some(short(&path.file_name()?.to_string_lossy())))
        .unwrap_or_default();
    let host = short(&rustix::system::uname().nodename().to_string_lossy());
    // "pid:[4026531836]" (namespaces(7)).
    let namespace = fs::read_link("/proc/self/ns/pid").ok().and_then(|link| {
        let text = link.to_string_lossy().into_owned();
        text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
    });
    let process = std::process::id();
    let start = stat(process).map_or(0, |(_, start)| start);
    ProcessFacts { host, program, process, namespace: namespace.unwrap_or(0), start }
}

/// The state of a process and when it started (fields 3 and 22 of proc_pid_stat(5)).
pub(super) fn stat(process: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may hold anything, parentheses as well.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

pub(super) fn lives(process: u32, start: u64) -> Option<bool> {
    if let Some((state, started)) = stat(process) {
        // What has ended and was not waited for yet writes no more.
        return Some(started == start && !matches!(state, 'Z' | 'X' | 'x'));
    }
    // Mounted with `hidepid`, /proc does not show other users' processes.
    let number = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    match rustix::process::test_kill_process(number) {
        Err(rustix::io::Errno::SRCH) => Some(false),
        _ => None,
    }
}

/// The last mount of a device by name and options.
fn mount(device: u64) -> Option<(String, String)> {
    let wanted = format!("{}:{}", major(device), minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // "id parent major:minor root mount-point options … - name source options"
    // (proc_pid_mountinfo(5)).
    table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split_ascii_whitespace();
        let (device, options) = (before.nth(2)?, before.nth(2)?);
        let mut after = after.split_ascii_whitespace();
        let (name, more) = (after.next()?, after.nth(1)?);
        (device == wanted).then(|| (name.to_owned(), format!("{options},{more}")))
    })
}

/// A line of the queue of the device, or of the whole disk when the device is a part of one.
fn queue(device: u64, line: &str) -> Option<String> {
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let own = fs::read_to_string(format!("{base}/queue/{line}"));
    own.or_else(|_| fs::read_to_string(format!("{base}/../queue/{line}")))
        .ok()
        .map(|text| text.trim().to_owned())
}

pub(super) fn file_system(path: &Path) -> io::Result<FileSystemFacts> {
    let device = fs::metadata(path)?.dev();
    let (name, options) = mount(device).unwrap_or_else(|| ("unknown".into(), String::new()));
    Ok(FileSystemFacts {
        in_memory: matches!(name.as_str(), "tmpfs" | "ramfs"),
        name,
        options,
        direct_io: probe_direct(path),
        volatile_cache: queue(device, "write_cache").map(|cache| cache == "write back"),
        rotational: queue(device, "rotational").map(|rotational| rotational == "1"),
    })
}

/// Opens a file without a name in the directory `path`, past the page cache.
fn probe_direct(path: &Path) -> Result<usize, String> {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::DIRECT | OFlags::CLOEXEC;
    match openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            alignment(&file.into()).map(|alignment| alignment.write).map_err(|error| error.to_string())
        }
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
            Err("this file system does not do it".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// What offsets, lengths and memory are aligned to when the page cache is passed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Of reads: what the device does with, its logical block. A block of a table that lies across
    /// pages would else be read with the rest of both: twice the bytes, and a third fewer reads.
    pub(super) read: usize,
    /// Of writes: whole pages at least, so that neither device nor file system has to read what
    /// lies around them. Invariant: a multiple of `read`.
    pub(super) write: usize,
}

impl Alignment {
    const UNTOLD: Alignment = Alignment { read: DIRECT_ALIGNMENT_DEFAULT, write: DIRECT_ALIGNMENT_DEFAULT };
}

/// The alignment that direct reads and writes of an open file need, in memory and in the file.
pub(super) fn alignment(file: &fs::File) -> io::Result<Alignment> {
    let answer = match statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(answer) => answer,
        Err(rustix::io::Errno::NOSYS) => return Ok(Alignment::UNTOLD),
        Err(error) => return Err(error.into()),
    };
    if answer.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Alignment::UNTOLD);
    }
    let told = answer.stx_dio_mem_align.max(answer.stx_dio_offset_align) as usize;
    if told == 0 || !told.is_power_of_two() || told > DIRECT_ALIGNMENT_MAX {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file cannot be read past the page cache",
        ));
    }
    Ok(Alignment { read: told, write: told.max(DIRECT_ALIGNMENT_DEFAULT) })
}
