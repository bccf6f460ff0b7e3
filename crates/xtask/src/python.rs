//! The package for Python: built as a wheel, installed beside pytest, and tested.
//!
//! A workspace of its own, so that the check needs no Python: this habit is run when the package or
//! the interface of the engine changes.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// What the tests need beside the wheel; without pyarrow those of `to_arrow` are skipped.
const NEEDED: [&str; 2] = ["maturin>=1.7,<2", "pytest"];

/// Options of `python`.
#[derive(Args)]
pub struct Arguments {
    /// Optimised, as a wheel that is given away.
    #[arg(long)]
    release: bool,
    /// Tests of a package of others as well: `rockstore`, a binding to RocksDB's C library, of its
    /// source from PyPI, unchanged on `libtombolo_rocksdb.so`.
    #[arg(long)]
    bindings: bool,
}

/// Builds the wheel and runs its tests.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let folder = root.join("target/python");
    let environment = folder.join("environment");
    let bin = environment.join("bin");
    let python = bin.join("python");
    if !python.exists() {
        let venv = ["-m".into(), "venv".into(), environment.clone().into_os_string()];
        ended(Command::new("python3").args(venv), "a virtual environment")?;
    }
    pip(&python, &NEEDED)?;
    if pip(&python, &["pyarrow"]).is_err() {
        println!("pyarrow cannot be had here: tests of to_arrow are skipped");
    }
    let crate_folder = root.join("crates/python");
    let wheels = folder.join("wheels");
    let mut build = Command::new(bin.join("maturin"));
    build.args(["build", "--interpreter"]).arg(&python).arg("--out").arg(&wheels);
    build.args(if arguments.release { &["--release"][..] } else { &[] });
    build.env("CARGO_TARGET_DIR", &folder).current_dir(&crate_folder);
    ended(&mut build, "the wheel")?;
    let wheel = newest(&wheels)?;
    let install = ["-m", "pip", "-q", "install", "--force-reinstall", "--no-deps"];
    ended(Command::new(&python).args(install).arg(&wheel), "installing the wheel")?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]).current_dir(&crate_folder);
    ended(&mut tests, "the tests")?;
    println!("the wheel: {}", wheel.display());
    if arguments.bindings { bindings(root, &folder, &python) } else { Ok(()) }
}

/// Tests of a binding that knows nothing of Tombolo.
fn bindings(root: &Path, folder: &Path, python: &Path) -> Result<(), String> {
    const BINDING: &str = "rockstore==0.2.0";
    pip(python, &["cffi", "setuptools"])?;
    let sources = folder.join("bindings");
    std::fs::create_dir_all(&sources).map_err(|error| format!("making {}: {error}", sources.display()))?;
    let download = ["-m", "pip", "-q", "download", "--no-deps", "--no-binary", ":all:", BINDING];
    ended(Command::new(python).args(download).current_dir(&sources), "its source")?;
    ended(
        Command::new("tar").args(["xzf", "rockstore-0.2.0.tar.gz"]).current_dir(&sources),
        "unpacking its source",
    )?;
    let mut build = Command::new(env!("CARGO"));
    ended(build.args(["build", "-p", "tombolo-rocksdb"]).current_dir(root), "libtombolo_rocksdb.so")?;
    let library = sources.join("librocksdb.so");
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = built.join("debug/libtombolo_rocksdb.so");
    std::fs::copy(&built, &library).map_err(|error| format!("copying {}: {error}", built.display()))?;
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]);
    tests.current_dir(sources.join("rockstore-0.2.0")).env("PYTHONPATH", "src");
    ended(tests.env("LD_LIBRARY_PATH", &sources), "its tests")
}

fn pip(python: &Path, packages: &[&str]) -> Result<(), String> {
    let install = ["-m", "pip", "-q", "install", "--disable-pip-version-check"];
    ended(Command::new(python).args(install).args(packages), &packages.join(", "))
}

fn newest(wheels: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("looking for the wheel in {}: {error}", wheels.display());
    let entries = std::fs::read_dir(wheels).map_err(failed)?.filter_map(Result::ok);
    let newest = entries.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok());
    newest.map(|entry| entry.path()).ok_or_else(|| format!("there is no wheel in {}", wheels.display()))
}

/// Runs a program that shows what it does; it must end well.
fn ended(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{what}: cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what}: {command:?} ended with {status}")) }
}
