//! Builds programs of the project for habits that run them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program by a profile of cargo's.
pub fn build(root: &Path, profile: &str) -> Result<PathBuf, String> {
    Ok(build_package(root, profile, "tombolo-cli")?.join("tombolo"))
}

/// Builds a package by a profile of cargo's. Says in which directory the result is.
pub fn build_package(root: &Path, profile: &str, package: &str) -> Result<PathBuf, String> {
    build_with(root, profile, package, &[])
}

/// As [`build_package`], with these cargo features of the package.
pub fn build_with(root: &Path, profile: &str, package: &str, features: &[&str]) -> Result<PathBuf, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--profile", profile, "--package", package]).current_dir(root);
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // A profile's directory has its name, but for that of tests.
    let directory = if profile == "test" { "debug" } else { profile };
    if status.success() {
        Ok(target.join(directory))
    } else {
        Err(format!("building {package} ended with {status}"))
    }
}
