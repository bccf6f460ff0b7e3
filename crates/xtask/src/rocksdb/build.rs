//! What the steps need: packages, and the plugin.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Arguments;

/// A program that the steps run, and the package that has it.
const PROGRAMS: [(&str, &str); 3] =
    [("db_bench", "rocksdb-tools"), ("ldb", "rocksdb-tools"), ("sst_dump", "rocksdb-tools")];
const HEADER: &str = "/usr/include/rocksdb/file_system.h";
const HEADER_PACKAGE: &str = "librocksdb-dev";

/// Packages that are not there.
fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| found(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !Path::new(HEADER).exists() {
        missing.push(HEADER_PACKAGE);
    }
    missing.dedup();
    missing
}

/// The same, after an attempt to install them.
pub(super) fn missing_after_install() -> Vec<&'static str> {
    let needed = missing();
    if needed.is_empty() {
        return needed;
    }
    println!("$ apt-get install -y {}", needed.join(" "));
    let installed = Command::new("apt-get").args(["install", "-y", "-qq"]).args(&needed).status();
    if !installed.is_ok_and(|status| status.success()) {
        println!("apt-get could not install them");
    }
    missing()
}

/// Where a program lies, if it is installed.
pub(super) fn found(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(program)).find(|path| path.exists())
}

/// Builds the plugin against the headers of the system, or those in `include`: a workspace of its
/// own, whose output lies beside that of the others. The library of each version stays below
/// `directory`.
pub(super) fn plugin(
    root: &Path,
    directory: &Path,
    arguments: &Arguments,
    include: Option<&Path>,
) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet"]).current_dir(root.join("crates/rocksdb_plugin"));
    command.env("CARGO_TARGET_DIR", &target);
    command.args(if arguments.release { &["--release"][..] } else { &[] });
    command.args(if arguments.needs_cloud() { &["--features", "cloud"][..] } else { &[] });
    if let Some(include) = include {
        command.env("ROCKSDB_INCLUDE", include);
    }
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err(format!("building the plugin ended with {status}"));
    }
    let profile = if arguments.release { "release" } else { "debug" };
    let built = target.join(profile).join("libtombolo_rocksdb_plugin.so");
    let of = if include.is_some() { "newest" } else { "installed" };
    let kept = directory.join(format!("plugin-{of}.so"));
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::copy(&built, &kept))
        .map_err(|error| format!("copying {}: {error}", built.display()))?;
    println!("the plugin for RocksDB, {of}: {}", built.display());
    Ok(kept)
}
