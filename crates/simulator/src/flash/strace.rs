//! File operations of a program that `strace` wrote down, on a file system on flash.
//!
//! `strace -ff -ttt -y -s 0 -e trace=file,desc -o OUT PROGRAM` writes a file for each thread, with
//! a line for each call:
//!
//! ```text
//! 1764345600.123456 openat(AT_FDCWD</tmp>, "/db/000004.log", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 5</db/000004.log>
//! 1764345600.123460 write(5</db/000004.log>, ""..., 129) = 129
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::FileSystemOnFlash;

/// A call that a program made.
#[derive(Debug)]
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: &'a str,
}

impl<'a> Call<'a> {
    /// Microseconds since 1970, and the call; `None` for other lines: signals, ends of threads.
    fn parse(line: &'a str) -> Option<(u64, Call<'a>)> {
        let (time, rest) = line.split_once(' ')?;
        let (seconds, micros) = time.split_once('.')?;
        let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
        let (call, result) = rest.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        Some((time, Call { name, arguments: arguments.split(", ").collect(), result }))
    }

    fn number(&self, index: usize) -> Option<u64> {
        self.arguments.get(index)?.parse().ok()
    }

    /// A path in quotes.
    fn quoted(&self, index: usize) -> Option<&'a Path> {
        self.arguments.get(index)?.strip_prefix('"')?.strip_suffix('"').map(Path::new)
    }

    /// The path of an open file: `5</db/000004.log>`.
    fn opened(&self, index: usize) -> Option<&'a Path> {
        path_of(self.arguments.get(index)?)
    }

    fn succeeded(&self) -> bool {
        !self.result.starts_with('-')
    }
}

fn path_of(descriptor: &str) -> Option<&Path> {
    let (_, path) = descriptor.split_once('<')?;
    Some(Path::new(path.split_once('>')?.0))
}

/// Plays the calls below `directory` of all threads in the order of their time; returns how many.
///
/// Writes of more than 512 KiB of a file that wait are given to the device at once, as the kernel
/// does sooner or later; the rest with the next sync.
pub fn replay(threads: &[String], directory: &Path, files: &mut FileSystemOnFlash) -> u64 {
    const WAITING_MAX: u64 = 512 << 10;
    let mut calls: Vec<(u64, Call<'_>)> =
        threads.iter().flat_map(|text| text.lines()).filter_map(Call::parse).collect();
    calls.sort_by_key(|(time, _)| *time);
    // Where each file is written next, and how much of it waits.
    let mut ends: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
    let mut played = 0;
    for (_, call) in calls.iter().filter(|(_, call)| call.succeeded()) {
        let is_below = |path: &&Path| path.starts_with(directory);
        let open = call.opened(0).filter(is_below);
        played += 1;
        match (call.name, open) {
            ("openat" | "creat", _) => {
                let Some(path) = path_of(call.result).filter(is_below) else { continue };
                if call.name == "creat"
                    || call.arguments.get(2).is_some_and(|flags| flags.contains("O_TRUNC"))
                {
                    files.create(path);
                    ends.remove(path);
                }
            }
            ("write" | "writev" | "pwrite64" | "pwritev" | "pwritev2", Some(path)) => {
                let Ok(length) = call.result.parse::<u64>() else { continue };
                let at = call.number(3).filter(|_| call.name.starts_with('p'));
                let (end, waiting) = ends.entry(path.to_path_buf()).or_default();
                let offset = at.unwrap_or(*end);
                (*end, *waiting) = (offset + length, *waiting + length);
                files.write(path, offset, length);
                if *waiting > WAITING_MAX {
                    *waiting = 0;
                    files.write_out(path);
                }
            }
            ("fsync" | "fdatasync", Some(path)) => {
                files.sync(path);
                ends.entry(path.to_path_buf()).or_default().1 = 0;
            }
            ("sync_file_range", Some(path)) => {
                files.write_out(path);
                ends.entry(path.to_path_buf()).or_default().1 = 0;
            }
            ("ftruncate", Some(path)) => files.set_length(path, call.number(1).unwrap_or(0)),
            ("rename", _) => {
                let (Some(from), Some(to)) = (call.quoted(0), call.quoted(1)) else { continue };
                if is_below(&from) && is_below(&to) {
                    files.rename(from, to);
                    let end = ends.remove(from).unwrap_or_default();
                    ends.insert(to.to_path_buf(), end);
                }
            }
            ("link", _) => {
                let (Some(from), Some(to)) = (call.quoted(0), call.quoted(1)) else { continue };
                files.link(from, to);
            }
            ("unlink", _) => {
                let Some(path) = call.quoted(0).filter(is_below) else { continue };
                files.remove(path);
                ends.remove(path);
            }
            _ => played -= 1,
        }
    }
    played
}
