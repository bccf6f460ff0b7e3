//! A directory with files that are kept in a database beside it, and programs that run there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const CHILD: &str = "PRELOAD_CHILD";

/// See the module's documentation.
pub struct Setup {
    pub directory: tempfile::TempDir,
    patterns: String,
}

/// The library, as cargo builds it beside this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap().join("libtombolo_preload.so");
    assert!(beside.exists(), "{} was not built", beside.display());
    beside
}

impl Setup {
    /// `patterns` are relative to the directory `files` in it.
    pub fn new(patterns: &[&str]) -> Setup {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("files")).unwrap();
        let root = directory.path().canonicalize().unwrap().join("files");
        let absolute = |pattern: &&str| match pattern.strip_prefix('!') {
            Some(pattern) => format!("!{}/{pattern}", root.display()),
            None => format!("{}/{pattern}", root.display()),
        };
        Setup { patterns: patterns.iter().map(absolute).collect::<Vec<_>>().join(":"), directory }
    }

    /// Where the programs run, and their files are.
    pub fn files(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("files")
    }

    /// The store's URI.
    pub fn store(&self) -> String {
        format!("file://{}/store", self.directory.path().canonicalize().unwrap().display())
    }

    /// A program under the library.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        // Another log than the store's own:
        // `PRELOAD_LOG=near://… cargo test -p tombolo-preload survives_kills`.
        if let Ok(log) = std::env::var("PRELOAD_LOG") {
            command.env("TOMBOLO_PRELOAD_LOG", log);
        }
        command
            .current_dir(self.files())
            .env("LD_PRELOAD", library())
            .env("TOMBOLO_PRELOAD_STORE", self.store())
            .env("TOMBOLO_PRELOAD_FILES", &self.patterns)
            .env("TOMBOLO_PRELOAD_SET", "memory_bytes=16777216");
        command
    }
}

/// Whether this process is the program that [`as_program`] runs.
pub fn is_program() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test of that name, with its module's, again, as a program under the library; `None`
/// when this is that program.
pub fn as_program(test: &str, setup: &Setup) -> Option<Output> {
    if is_program() {
        return None;
    }
    let mut command = setup.command(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--test-threads", "1", "--nocapture"]).env(CHILD, "1");
    let output =
        command.env("TOMBOLO_PRELOAD_FILE_MEMORY_BYTES", "4194304").stdin(Stdio::null()).output().unwrap();
    printed(&output);
    Some(output)
}

/// What the next program reads.
pub fn content(setup: &Setup, name: &str) -> String {
    printed(&setup.command("/bin/cat").arg(name).output().unwrap())
}

/// Where a program is installed; says that what needs it is skipped when it is not.
pub fn installed(program: &str) -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {program} is not installed (`cargo xtask preload` installs it)");
    }
    found
}

/// What a program printed, if it ended well.
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Kills a process as the system does it when it must.
pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// How often each program is killed: few times in CI, `PRELOAD_ROUNDS` in `cargo xtask preload`.
pub fn rounds() -> u64 {
    std::env::var("PRELOAD_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}
