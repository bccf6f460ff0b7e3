//! What figures depend on besides the engines: the machine, its load, and the versions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One line about the machine.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'));
    let processor = processor.map_or("unknown processor", |(_, name)| name.trim());
    let memory = read("/proc/meminfo");
    let kilobytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = read("/proc/sys/kernel/osrelease");
    format!("{cores} x {processor}, {} GiB, Linux {}", kilobytes.unwrap_or(0) >> 20, system.trim())
}

/// Load average of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Each engine's version, from what the build is locked to.
pub fn versions(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let path = root.join("bench/peers/Cargo.lock");
    let lock = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output().ok();
    let commit =
        commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    Ok(versions_of(&lock, &commit))
}

fn versions_of(lock: &str, commit: &str) -> BTreeMap<String, String> {
    let of = |name: &str| {
        let mut lines = lock.lines().skip_while(|line| *line != format!("name = {name:?}"));
        let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
        version.map_or_else(String::new, |version| version.trim_end_matches('"').to_owned())
    };
    // The bindings' version carries that of RocksDB itself behind a plus.
    let rocksdb = of("librocksdb-sys");
    let rocksdb =
        format!("{} (crate {})", rocksdb.split_once('+').map_or("", |(_, version)| version), of("rocksdb"));
    let versions = [
        ("tombolo", format!("{} {commit}", of("tombolo")).trim().to_owned()),
        ("rocksdb", rocksdb.clone()),
        ("rocksdb-tuned", rocksdb),
        ("fjall", of("fjall")),
        ("slatedb", of("slatedb")),
        ("slatedb-tuned", of("slatedb")),
        ("redb", of("redb")),
        ("lmdb", format!("(heed {})", of("heed"))),
    ];
    versions.into_iter().map(|(engine, version)| (engine.to_owned(), version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"rocksdb\"\nversion = \"0.25.0\"\n\n[[package]]\nname \
            = \"librocksdb-sys\"\nversion = \"0.19.0+11.8.1\"\n\
                    [[package]]\nname = \"fjall\"\nversion = \"3.1.13\"\n";
        let versions = versions_of(lock, "abc");
        assert_eq!(versions["rocksdb"], "11.8.1 (crate 0.25.0)");
        assert_eq!(versions["fjall"], "3.1.13");
        assert_eq!(versions["redb"], "");
    }

    #[test]
    fn a_machine_has_something() {
        assert!(describe().contains("GiB") && load() >= 0.0, "{}", describe());
    }
}
