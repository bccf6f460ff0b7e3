//! What a step prints goes to a file of its own, so that steps may run side by side.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines of a failed step's log that are shown at the prompt; the rest stays in the file.
const SHOWN_LINES_MAX: usize = 400;

/// The log of one step.
pub struct Log {
    path: PathBuf,
    file: File,
}

/// Where cargo puts what it builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

impl Log {
    /// An empty log for the step `name`.
    pub fn create(root: &Path, name: &str) -> Result<Log, String> {
        let folder = target(root).join("check");
        let path = folder.join(format!("{name}.log"));
        let made = std::fs::create_dir_all(&folder).and_then(|()| File::create(&path));
        let file = made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Log { path, file })
    }

    /// An empty log for a test, which shows its end and leaves it to the system.
    #[cfg(test)]
    pub fn for_tests(name: &str) -> Log {
        let path = std::env::temp_dir().join(format!("tombolo-check-{name}-{}.log", std::process::id()));
        let file = File::create(&path).expect("a file");
        Log { path, file }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    pub fn line(&self, text: &str) {
        // The log is there for people: a full disk shows itself elsewhere.
        let _ = writeln!(&self.file, "{text}");
    }

    /// The log as output of a program.
    pub fn stdio(&self) -> Result<Stdio, String> {
        let file = self.file.try_clone();
        file.map(Stdio::from).map_err(|error| format!("cannot use {}: {error}", self.path.display()))
    }

    /// Its end, for a failed step; empty when it has nothing to say.
    pub fn end(&self) -> String {
        let text = std::fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let left_out = lines.len().saturating_sub(SHOWN_LINES_MAX);
        let mut shown = String::new();
        if left_out > 0 {
            shown = format!("   … {left_out} lines before this are in {}\n", self.path.display());
        }
        for line in &lines[left_out..] {
            shown.push_str(line);
            shown.push('\n');
        }
        shown
    }
}

/// Runs a program whose output goes to the log.
pub fn run(command: &mut Command, log: &Log) -> Result<String, String> {
    let arguments = command.get_args().map(std::ffi::OsStr::to_string_lossy);
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let shown: Vec<_> = std::iter::once(program).chain(arguments).collect();
    let shown = shown.join(" ");
    log.line(&format!("$ {shown}"));
    let status = command
        .stdin(Stdio::null())
        .stdout(log.stdio()?)
        .stderr(log.stdio()?)
        .status()
        .map_err(|error| format!("   cannot start {shown}: {error}"))?;
    if status.success() { Ok("clean".to_owned()) } else { Err(format!("   `{shown}` ended with {status}")) }
}

/// Cargo in the workspace.
///
/// `cargo run` tells this program its own package by variables. Build scripts of others look at
/// them (that of `ring` does): they would build again what `cargo test` built, and it again theirs.
pub fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root);
    command
}

/// Cargo in the workspace, its output in the log.
pub fn cargo(
    root: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
    log: &Log,
) -> Result<String, String> {
    let mut command = cargo_command(root);
    command.args(arguments).envs(variables.iter().copied());
    run(&mut command, log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_apart_and_its_end_is_shown() {
        let log = Log::for_tests("log");
        let mut command = Command::new("sh");
        command.args(["-c", "seq 500; echo wrong >&2; exit 3"]);
        let failure = run(&mut command, &log).expect_err("it fails");
        assert!(failure.contains("sh -c") && failure.contains('3'), "{failure}");
        let end = log.end();
        assert!(end.starts_with("   … 102 lines before this are in "), "{end}");
        assert!(end.ends_with("\n500\nwrong\n") && end.lines().count() == 401);
        std::fs::remove_file(log.path()).expect("removed");
    }
}
