//! Programs in C, compiled and linked as users do.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the libraries beside this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap().to_owned();
    assert!(beside.join("libtombolo_c.so").exists(), "no library in {}", beside.display());
    beside
}

/// A program of `tests/c`, or another of this crate, compiled in `directory` and linked as `link`
/// says.
///
/// # Errors
/// What the compiler said.
fn compile(directory: &Path, source: &str, link: &[String]) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join("program");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-pthread", "-I"])
        .arg(root.join("include"))
        .arg(root.join(source))
        .arg("-o")
        .arg(&program)
        .args(link)
        .output()
        .expect("a C compiler, which building this project needs too");
    if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn compiled(directory: &Path, source: &str, link: &[String]) -> PathBuf {
    compile(directory, source, link).unwrap()
}

fn shared() -> Vec<String> {
    let libraries = libraries();
    let libraries = libraries.display();
    vec![format!("-L{libraries}"), "-ltombolo_c".to_owned(), format!("-Wl,-rpath,{libraries}")]
}

/// Runs a command to its end, which must be a good one; what it said.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}: {said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn uri(directory: &Path) -> String {
    format!("file://{}/database", directory.canonicalize().unwrap().display())
}

#[test]
fn every_function_does_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "tests/c/all.c", &shared());
    let said = said(Command::new(program).arg(uri(directory.path())));
    assert!(said.ends_with("all is well\n"), "{said}");
}

#[test]
fn wrong_calls_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "tests/c/wrong.c", &shared());
    let said = said(Command::new(program).arg(uri(directory.path())));
    assert!(said.ends_with("all is well\n"), "{said}");
}

/// No memory is read or written that is not the program's, and none is lost: the compiler's address
/// sanitizer looks, which sees all that the library allocates too. Compilers without it are rare.
#[test]
fn memory_is_kept_well() {
    for source in ["tests/c/all.c", "tests/c/wrong.c"] {
        let directory = tempfile::tempdir().unwrap();
        let mut link = shared();
        link.push("-fsanitize=address".to_owned());
        let Ok(program) = compile(directory.path(), source, &link) else {
            eprintln!("this compiler has no address sanitizer: nothing is shown");
            return;
        };
        let said = said(Command::new(program).arg(uri(directory.path())));
        assert!(said.ends_with("all is well\n"), "{said}");
    }
}

/// As above by valgrind, which sees what the library itself reads and writes; half a minute, so
/// that only campaigns do it.
#[test]
fn memory_is_kept_well_as_valgrind_says() {
    if std::env::var_os("TOMBOLO_DEEP").is_none() {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not here: nothing is shown");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "tests/c/all.c", &shared());
    let mut command = Command::new("valgrind");
    // System calls that are made without the C library leave registers that it takes for undefined.
    command
        .args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--undef-value-errors=no"])
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
    let said = said(command.arg(program).arg(uri(directory.path())));
    assert!(said.ends_with("all is well\n"), "{said}");
}

#[test]
fn the_example_is_linked_statically() {
    let directory = tempfile::tempdir().unwrap();
    let link = vec![libraries().join("libtombolo_c.a").display().to_string(), "-lm".to_owned()];
    let program = compiled(directory.path(), "examples/orders.c", &link);
    let said = said(Command::new(program).arg(uri(directory.path())));
    assert_eq!(said, "1 two books\n2 a lamp\n");
}
