//! Counts the instructions of hot paths: runs the example `instructions` under callgrind, which counts within one function only; once for
//! each path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

/// The function of the example within which instructions count.
const GATE: &str = "*measured_gate*";

/// Options of `instructions`.
#[derive(Args)]
pub struct Arguments {
    /// Fails when some path takes more than this many instructions per operation, as `name=count`; may be repeated.
    #[arg(long)]
    at_most: Vec<String>,
    /// Counts only what has this in its name.
    #[arg(long)]
    only: Option<String>,
    /// Keeps callgrind's files here, for callgrind_annotate.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Counts and prints.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if !installed("valgrind") {
        println!("nothing counted: valgrind is not installed (it counts the instructions)");
        return Ok(());
    }
    let build = ["build", "--quiet", "--release", "--package", "tombolo", "--example", "instructions"];
    let built =
        Command::new(env!("CARGO")).args(build).current_dir(root).status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.success() {
        return Err("the example does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let scratch = target.join("instructions");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(scratch.join("db")).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let result = count(&target, &scratch, arguments);
    if let Some(keep) = &arguments.keep {
        let _ = fs::remove_dir_all(scratch.join("db"));
        let _ = fs::remove_dir_all(keep);
        fs::rename(&scratch, keep).map_err(|error| format!("{}: {error}", keep.display()))?;
    } else {
        let _ = fs::remove_dir_all(&scratch);
    }
    result
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn count(target: &Path, scratch: &Path, arguments: &Arguments) -> Result<(), String> {
    let example = target.join("release/examples/instructions");
    let all = Command::new(&example).arg(scratch.join("db")).output().map_err(|error| format!("cannot start the example: {error}"))?;
    if !all.status.success() {
        return Err(format!("the example ended with {}:\n{}", all.status, String::from_utf8_lossy(&all.stderr)));
    }
    let mut missed = Vec::new();
    for (index, line) in String::from_utf8_lossy(&all.stdout).lines().enumerate() {
        let Some((name, rounds)) = line.split_once('\t') else { continue };
        if arguments.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let rounds: u64 = rounds.parse().map_err(|_| format!("the example printed {line:?}"))?;
        let each = count_one(&example, scratch, index, name)? / rounds.max(1);
        println!("{each:>10}  {name}");
        for bound in &arguments.at_most {
            let (bounded, most) = bound.rsplit_once('=').ok_or_else(|| format!("{bound:?} is not name=count"))?;
            let most: u64 = most.parse().map_err(|_| format!("{bound:?} is not name=count"))?;
            if bounded == name && each > most {
                missed.push(format!("{name}: {each} instructions, at most {most} wanted"));
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

/// Instructions of all rounds of one path, in a database of its own.
fn count_one(example: &Path, scratch: &Path, index: usize, name: &str) -> Result<u64, String> {
    let (out, folder) = (scratch.join(format!("callgrind.out.{index}")), scratch.join(format!("db-{index}")));
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--toggle-collect={GATE}"))
        .arg(example)
        .arg(&folder)
        .arg(name)
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let _ = fs::remove_dir_all(&folder);
    if !output.status.success() {
        return Err(format!("the example ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    total(&out)
}

/// What one of callgrind's files sums up to.
fn total(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or_else(|| format!("{}: no sum", path.display()))
}
