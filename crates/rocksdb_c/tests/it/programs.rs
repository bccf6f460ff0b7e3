//! Programs in C that include `rocksdb/c.h` and know nothing of Tombolo.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `tests/c`, linked as it would be with RocksDB: against `librocksdb.so`,
/// which is this library under that name.
fn compiled(directory: &Path, source: &str, more: &[&str]) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libtombolo_rocksdb.so");
    assert!(library.exists(), "{} was not built", library.display());
    let named = directory.join("librocksdb.so");
    std::os::unix::fs::symlink(&library, &named).unwrap();
    let program = directory.join("program");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-I"])
        .arg(root.join("include"))
        .arg(root.join("tests/c").join(source))
        .arg("-o")
        .arg(&program)
        .args([&format!("-L{}", directory.display()), "-lrocksdb"])
        .args([&format!("-Wl,-rpath,{}", directory.display())])
        .args([&format!("-Wl,-rpath,{}", library.parent().unwrap().display())])
        .args(more)
        .output()
        .expect("a C compiler, which building this project needs too");
    if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn runs(program: &Path, directory: &Path) {
    let output = Command::new(program).arg(directory.join("database")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("all is well\n"), "{said}\n{failed}");
}

#[test]
fn a_program_for_rocksdb_runs() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "program.c", &[]).unwrap();
    runs(&program, directory.path());
}

#[test]
fn transactions_are_as_those_of_rocksdb() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "transactions.c", &[]).unwrap();
    runs(&program, directory.path());
}

#[test]
fn their_memory_is_kept_well() {
    for source in ["program.c", "transactions.c"] {
        let directory = tempfile::tempdir().unwrap();
        match compiled(directory.path(), source, &["-fsanitize=address"]) {
            Ok(program) => runs(&program, directory.path()),
            Err(_) => eprintln!("this compiler has no address sanitizer: nothing is shown"),
        }
    }
}
