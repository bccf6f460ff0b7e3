//! What a machine and a store offer, judged: plain data for `tombolo doctor`.
//!
//! A fact has a value as a person reads it, a verdict, and, unless all is well, the next step.
//! [`host`] tells of the machine, [`crate::ObjectStore::facts`] of a store. Nothing here changes
//! anything.

use tombolo_env::Env;

#[cfg(test)]
mod tests;

/// How good a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It works, slower or with less room than it could.
    Warning,
    /// It will fail, or can lose data.
    Bad,
}

/// One thing found out about a machine or a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is about, in a few words; the same at every look.
    pub name: &'static str,
    /// What was found, as a person reads it.
    pub value: String,
    /// How good that is.
    pub verdict: Verdict,
    /// The next step, unless all is well.
    pub advice: Option<String>,
}

impl Fact {
    /// A fact that is as it should be.
    pub fn fine(name: &'static str, value: impl Into<String>) -> Fact {
        Fact { name, value: value.into(), verdict: Verdict::Fine, advice: None }
    }

    /// A fact that works, but could be better.
    pub fn warning(name: &'static str, value: impl Into<String>, advice: impl Into<String>) -> Fact {
        Fact { name, value: value.into(), verdict: Verdict::Warning, advice: Some(advice.into()) }
    }

    /// A fact that will fail or can lose data.
    pub fn bad(name: &'static str, value: impl Into<String>, advice: impl Into<String>) -> Fact {
        Fact { name, value: value.into(), verdict: Verdict::Bad, advice: Some(advice.into()) }
    }
}

/// Bytes as a person reads them, in binary units.
pub(crate) fn bytes_text(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let whole = bytes >> shift;
        if whole > 0 {
            let tenths = ((bytes >> (shift - 10)) & 1023) * 10 / 1024;
            return format!("{whole}.{tenths} {unit}");
        }
    }
    format!("{bytes} bytes")
}

/// Open files below which a database of a few hundred tables has to close and open them again.
const OPEN_FILES_WANTED: usize = 4096;
/// Open files below which there is no room for logs, tables and the program around them.
const OPEN_FILES_NEEDED: usize = 128;
/// Memory below which the defaults do not fit.
const MEMORY_WANTED: u64 = 512 << 20;

/// What the machine offers.
pub fn host(env: &Env) -> Vec<Fact> {
    let facts = env.host_facts();
    let memory = bytes_text(facts.memory_bytes);
    vec![
        Fact::fine("system", facts.system),
        match facts.cores {
            1 => Fact::warning(
                "cores",
                "1",
                "compaction and users share the one core: give the process two or more",
            ),
            cores => Fact::fine("cores", cores.to_string()),
        },
        if facts.memory_bytes < MEMORY_WANTED {
            Fact::warning("memory", memory, "set memory_bytes to at most half of it")
        } else {
            Fact::fine("memory", memory)
        },
        match facts.huge_pages.as_deref() {
            Some(mode @ ("madvise" | "always")) => Fact::fine("huge pages", mode),
            Some(mode) => Fact::warning(
                "huge pages",
                mode,
                "random reads of memory cost up to twice as much: echo madvise > \
                /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            None => Fact::warning(
                "huge pages",
                "unknown",
                "the kernel does not tell; nothing but speed depends on it",
            ),
        },
        match facts.open_files_max {
            limit if limit < OPEN_FILES_NEEDED => {
                Fact::bad("open files", limit.to_string(), "raise the limit: ulimit -n 65536")
            }
            limit if limit < OPEN_FILES_WANTED => {
                let advice = "tables beyond a quarter of it are opened anew for each read: ulimit -n 65536";
                Fact::warning("open files", limit.to_string(), advice)
            }
            limit => Fact::fine("open files", limit.to_string()),
        },
        match facts.io_uring {
            Ok(()) => Fact::fine("io_uring", "works"),
            Err(reason) => Fact::warning(
                "io_uring",
                reason,
                "reads go through a pool of threads, which works and costs more; kernel 5.10 or later",
            ),
        },
    ]
}
