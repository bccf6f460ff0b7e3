//! Lints that no compiler has: no ambient world, `unsafe` in listed modules only, short and
//! finished files, no backend named above storage.
//!
//! The exception rule, in one place: tests (`tests.rs`, `tests/`, `#[cfg(test)]`, benches,
//! examples) may touch the ambient world where a real process or disk is what they test; everything
//! else needs a line in one of the tables below, with its reason.

use super::{Context, Outcome, verdict};
use crate::source::{Source, line_of, paths, words};

/// Most lines of a file. The style asks for about 800; beyond this no reason is accepted.
const LINES_MAX: usize = 1000;

/// Crates that are the world or its edge: threads, files, clocks and the rest are theirs.
const WORLDLY: &[&str] =
    &["env", "cli", "preload", "capi", "rocksdb_c", "rocksdb_plugin", "migrate", "python", "xtask"];

/// An ambient thing: the beginning of the paths that name it, and whom to ask instead.
struct Ambient {
    what: &'static str,
    instead: &'static str,
    paths: &'static [&'static str],
}

const AMBIENT: &[Ambient] = &[
    Ambient {
        what: "a thread",
        instead: "Env::spawn",
        paths: &["std::thread", "thread::spawn", "thread::Builder", "thread::scope"],
    },
    Ambient {
        what: "a file",
        instead: "Env::files",
        paths: &[
            "std::fs",
            "fs::File",
            "fs::read",
            "fs::write",
            "File::open",
            "File::create",
            "std::os::unix::fs",
            "OpenOptions::new",
        ],
    },
    Ambient {
        what: "a clock",
        instead: "Env::now",
        paths: &["std::time::Instant", "std::time::SystemTime", "std::time::UNIX_EPOCH", "SystemTime::now"],
    },
    Ambient {
        what: "randomness",
        instead: "Env::random_u64",
        paths: &[
            "rand::rng",
            "rand::random",
            "rand::thread_rng",
            "rand::rngs::OsRng",
            "rand::rngs::ThreadRng",
            "getrandom",
            "std::hash::RandomState",
            "std::collections::hash_map::RandomState",
            "SmallRng::from_os_rng",
            "StdRng::from_os_rng",
        ],
    },
    Ambient {
        what: "parking",
        instead: "Env::block_on and completions",
        paths: &[
            "std::sync::Condvar",
            "parking_lot::Condvar",
            "Condvar::new",
            "std::sync::mpsc",
            "std::sync::Barrier",
            "thread::park",
            "thread::sleep",
            "thread::yield_now",
            "parking_lot_core",
        ],
    },
    Ambient {
        what: "the network",
        instead: "Env::network",
        paths: &["std::net", "std::os::unix::net", "async_io"],
    },
    Ambient {
        what: "the process",
        instead: "options handed in",
        paths: &[
            "std::env::var",
            "std::env::args",
            "std::process::Command",
            "std::process::exit",
            "std::process::abort",
        ],
    },
    Ambient { what: "the operating system", instead: "Env", paths: &["rustix", "libc"] },
    Ambient { what: "another runtime", instead: "Env::spawn", paths: &["tokio", "reqwest"] },
];

/// Modules outside the worldly crates that may touch something ambient, and why.
const AMBIENT_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/storage/src/backend/cloud/", "another runtime", "object_store's requests run on tokio"),
    ("crates/storage/src/backend/hdfs/", "another runtime", "hdfs-native's requests run on tokio"),
    ("crates/segment/src/announce/etcd/grpc.rs", "another runtime", "etcd-client's requests run on tokio"),
    (
        "crates/simulator/src/main.rs",
        "a file",
        "histories on a real store leave a directory of this host behind, which the program removes",
    ),
    (
        "crates/storage/src/backend/remote.rs",
        "another runtime",
        "requests of both run here; their results leave it through completions",
    ),
];

/// Modules that may hold `unsafe`, and why. Small, with a safe face (rule 15 of the style).
const UNSAFE: &[(&str, &str)] = &[
    ("crates/env/src/real/", "system calls and shared mappings"),
    ("crates/env/src/memory", "large allocations advised for huge pages"),
    ("crates/tombolo/tests/it/allocator", "an allocator that counts, for the test of the memory bound"),
    (
        "crates/typed/tests/it/allocator",
        "an allocator that counts, for the test that lending allocates nothing",
    ),
    (
        "crates/format/src/prefetch.rs",
        "a hint to the processor that has no safe face in the standard library",
    ),
    (
        "crates/format/src/compression/prefix.rs",
        "a function of the LZ4 library that its Rust crate does not declare",
    ),
    (
        "crates/tombolo/src/cache/frames/",
        "frames cut out of regions: each its holder's alone, given back under a lock",
    ),
    (
        "crates/tombolo/src/cache/hazard/",
        "entries that readers borrow without counting: kept alive by notes that who takes them out must pay",
    ),
    (
        "crates/typed/src/value/",
        "archived values read without a second check, of memory that was checked and does not change",
    ),
    (
        "crates/capi/src/",
        "functions that C programs call: pointers made slices and handles for one call, callbacks called",
    ),
    ("crates/rocksdb_c/src/", "as above, with the names of RocksDB's C library"),
    ("crates/migrate/src/library.rs", "functions of RocksDB's C library, loaded when they are needed"),
    ("crates/rocksdb_plugin/src/", "functions that the shim of RocksDB's file system calls"),
    ("crates/python/src/buffer.rs", "views of Python on bytes of the engine, which live as long as they"),
    (
        "crates/preload/src/symbols/",
        "functions in the place of the C library's: pointers of C programs, made slices for one call",
    ),
    (
        "crates/preload/tests/it/streams",
        "calls of the C library that programs make and the standard library does not",
    ),
    ("crates/tombolo/src/memtable/", "an arena, leaves and a skip list: one writer, readers without locks"),
];

/// Where `unsafe` may be.
pub fn unsafe_paths() -> impl Iterator<Item = &'static str> {
    UNSAFE.iter().map(|(path, _)| *path)
}

/// Words that say that something is unfinished.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const UNFINISHED_WORDS: &[&str] = &["FIXME", "XXX", "TODO"];

/// Crates of layers 2 to 4, which never name a concrete backend.
const ABOVE_STORAGE: &[&str] = &[
    "tombolo",
    "segment",
    "zoned",
    "near_compute_log",
    "compactor",
    "files",
    "chunk_cluster",
    "simulator",
    "server",
];

/// Where layers 2 to 4 may name a backend, and why.
const BACKEND_EXCEPTIONS: &[(&str, &str)] = &[];

/// Runs every lint over every source.
pub fn check(context: &Context<'_>) -> Outcome {
    let mut failures = Vec::new();
    for source in context.sources {
        ambient(source, &mut failures);
        unsafe_code(source, &mut failures);
        length(source, &mut failures);
        unfinished(source, &mut failures);
        backends(source, &mut failures);
    }
    stale_exceptions(context.sources, &mut failures);
    let lines: usize = context.sources.iter().map(|source| source.text.lines().count()).sum();
    verdict(failures, format!("{} files, {lines} lines", context.sources.len()))
}

fn begins(segments: &[String], path: &str) -> bool {
    let mut wanted = path.split("::");
    let mut given = segments.iter();
    wanted.all(|want| given.next().is_some_and(|have| have == want))
}

fn ambient(source: &Source, failures: &mut Vec<String>) {
    let Some(name) = source.crate_name() else { return };
    if WORLDLY.contains(&name) || source.path.ends_with("/build.rs") {
        return;
    }
    for named in paths(&source.product) {
        for thing in AMBIENT {
            if !thing.paths.iter().any(|path| begins(&named.segments, path)) {
                continue;
            }
            let excepted = AMBIENT_EXCEPTIONS
                .iter()
                .any(|(prefix, what, _)| source.path.starts_with(prefix) && *what == thing.what);
            if !excepted {
                let (what, instead, path) = (thing.what, thing.instead, named.segments.join("::"));
                failures.push(format!(
                    "{}:{}: {path} is {what} of the ambient world: use {instead}",
                    source.path, named.line
                ));
            }
        }
    }
}

fn unsafe_code(source: &Source, failures: &mut Vec<String>) {
    if UNSAFE.iter().any(|(prefix, _)| source.path.starts_with(prefix)) {
        return;
    }
    for at in words(&source.code, "unsafe") {
        let line = line_of(&source.code, at);
        failures.push(format!(
            "{}:{line}: unsafe outside the modules listed in crates/xtask/src/check/lints.rs",
            source.path
        ));
    }
}

fn length(source: &Source, failures: &mut Vec<String>) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        failures
            .push(format!("{}: {lines} lines, more than {LINES_MAX}: split it by what it does", source.path));
    }
}

fn unfinished(source: &Source, failures: &mut Vec<String>) {
    // This file names the words that it looks for.
    if source.path == "crates/xtask/src/check/lints.rs" {
        return;
    }
    for macro_name in UNFINISHED {
        for at in words(&source.code, macro_name) {
            failures.push(format!(
                "{}:{}: {macro_name} is unfinished work",
                source.path,
                line_of(&source.code, at)
            ));
        }
    }
    for word in UNFINISHED_WORDS {
        for at in words(&source.text, word) {
            failures.push(format!(
                "{}:{}: {word} is unfinished work: do it, or write down the decision",
                source.path,
                line_of(&source.text, at)
            ));
        }
    }
    for attribute in ["#[ignore", "#![allow(dead_code", "#[allow(dead_code"] {
        for (at, _) in source.code.match_indices(attribute) {
            failures.push(format!(
                "{}:{}: {attribute}…] hides what does not run",
                source.path,
                line_of(&source.code, at)
            ));
        }
    }
}

fn backends(source: &Source, failures: &mut Vec<String>) {
    let above = source.crate_name().is_some_and(|name| ABOVE_STORAGE.contains(&name));
    if !above || BACKEND_EXCEPTIONS.iter().any(|(path, _)| source.path == *path) {
        return;
    }
    for named in paths(&source.product) {
        if begins(&named.segments, "tombolo_storage::backend") {
            let path = named.segments.join("::");
            failures.push(format!(
                "{}:{}: {path} names a backend: take what the registry gives",
                source.path, named.line
            ));
        }
    }
}

/// An exception that nothing needs is a hole.
fn stale_exceptions(sources: &[Source], failures: &mut Vec<String>) {
    let prefixes = UNSAFE.iter().map(|(prefix, _)| *prefix);
    let prefixes = prefixes
        .chain(AMBIENT_EXCEPTIONS.iter().map(|(prefix, _, _)| *prefix))
        .chain(BACKEND_EXCEPTIONS.iter().map(|(prefix, _)| *prefix));
    for prefix in prefixes {
        if !sources.iter().any(|source| source.path.starts_with(prefix)) {
            failures.push(format!(
                "crates/xtask/src/check/lints.rs excepts {prefix}, which does not exist: remove the line"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lint: fn(&Source, &mut Vec<String>), path: &str, text: &str) -> Vec<String> {
        let mut failures = Vec::new();
        lint(&Source::new(path, text.to_owned()), &mut failures);
        failures
    }

    #[test]
    fn the_ambient_world_is_found_outside_the_worldly_crates() {
        let text = "use std::time::{Duration, Instant};\nfn f() { std::thread::sleep(x); }\n";
        let failures = found(ambient, "crates/storage/src/a.rs", text);
        assert!(failures[0].contains("a.rs:1: std::time::Instant is a clock"), "{failures:?}");
        assert!(failures[1].contains("a.rs:2: std::thread::sleep is a thread"), "{failures:?}");
        assert!(found(ambient, "crates/env/src/real/a.rs", text).is_empty());
        assert!(found(ambient, "crates/storage/src/a/tests.rs", text).is_empty());
        assert!(
            found(ambient, "crates/storage/src/a.rs", "use std::time::Duration; use tombolo_env::Instant;")
                .is_empty()
        );
    }

    #[test]
    fn unsafe_is_found_outside_the_listed_modules() {
        let text = "// unsafe\nfn f() { unsafe { g() } }\n";
        assert_eq!(found(unsafe_code, "crates/storage/src/a.rs", text).len(), 1);
        assert!(found(unsafe_code, "crates/storage/src/a.rs", "#![forbid(unsafe_code)]").is_empty());
        assert!(found(unsafe_code, "crates/env/src/real/mapping.rs", text).is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = format!("fn f() {{ to{}!() }}\n// FIX{}\n#[ig{}]\nfn g() {{}}", "do", "ME", "nore");
        assert_eq!(found(unfinished, "crates/storage/src/a.rs", &text).len(), 3);
    }

    #[test]
    fn backends_are_found_above_storage_only() {
        let text = "use tombolo_storage::backend::local::LocalStore;";
        assert_eq!(found(backends, "crates/tombolo/src/db.rs", text).len(), 1);
        assert!(found(backends, "crates/tombolo/tests/it/main.rs", text).is_empty());
        assert!(found(backends, "crates/cli/src/main.rs", text).is_empty());
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(found(length, "crates/storage/src/a.rs", &"\n".repeat(LINES_MAX + 1)).len(), 1);
        assert!(found(length, "crates/storage/src/a.rs", &"\n".repeat(LINES_MAX)).is_empty());
    }
}
