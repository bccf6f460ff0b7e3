//! Counts the instructions of hot paths and compares them with the stored figures: runs the example
//! `instructions` under callgrind, which counts within one function only; once for each path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

/// The function of the example within which instructions count.
const GATE: &str = "*measured_gate*";

/// Where the figures are stored.
const FIGURES: &str = "crates/tombolo/examples/instructions.txt";

/// A rise of more than this many percent fails, and a fall of more is worth storing. Counts of one
/// build differ by less than one percent.
const RISE_PERCENT_MAX: u64 = 3;

/// Of two counts of one run, the first may be at most so many percent of the second.
const AT_MOST: [(&str, u64, &str); 2] = [
    ("get beside 10,000 range deletes", 120, "get beside 10,000 puts"),
    ("get under a table of 10,000 range deletes", 120, "get under a table of 10,000 puts"),
];

/// Options of `instructions`.
#[derive(Args)]
pub struct Arguments {
    /// Stores what was counted, with the compiler that it holds for.
    #[arg(long)]
    update: bool,
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
    let built = Command::new(env!("CARGO"))
        .args(build)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.success() {
        return Err("the example does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let scratch = target.join("instructions");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(scratch.join("db")).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let result = count(root, &target, &scratch, arguments);
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
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn count(root: &Path, target: &Path, scratch: &Path, arguments: &Arguments) -> Result<(), String> {
    let example = target.join("release/examples/instructions");
    let all = Command::new(&example)
        .arg(scratch.join("db"))
        .output()
        .map_err(|error| format!("cannot start the example: {error}"))?;
    if !all.status.success() {
        return Err(format!(
            "the example ended with {}:\n{}",
            all.status,
            String::from_utf8_lossy(&all.stderr)
        ));
    }
    let compiler = compiler();
    let mut figures = Figures::load(&root.join(FIGURES))?;
    if figures.compiler != compiler {
        println!(
            "the stored figures are of {}, these of {compiler}: a difference may be the compiler's",
            figures.compiler
        );
    }
    let (mut risen, mut counted) = (Vec::new(), BTreeMap::new());
    for (index, line) in String::from_utf8_lossy(&all.stdout).lines().enumerate() {
        let Some((name, rounds)) = line.split_once('\t') else { continue };
        if arguments.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let rounds: u64 = rounds.parse().map_err(|_| format!("the example printed {line:?}"))?;
        let each = count_one(&example, scratch, index, name)? / rounds.max(1);
        let verdict = figures.verdict(name, each);
        println!("{each:>10}  {name}{}", verdict.text());
        if let Verdict::Risen(_) | Verdict::New = verdict {
            risen.push(format!("{name}: {each} instructions{}", verdict.text()));
        }
        figures.counts.insert(name.to_owned(), each);
        counted.insert(name.to_owned(), each);
    }
    beyond(&counted)?;
    if arguments.update {
        figures.compiler = compiler;
        let path = root.join(FIGURES);
        return fs::write(&path, figures.text()).map_err(|error| format!("{}: {error}", path.display()));
    }
    if risen.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nmore than {RISE_PERCENT_MAX} % above {FIGURES}: find out why; if it is worth it, store it with \
        `cargo xtask instructions --update`",
        risen.join("\n")
    ))
}

/// Holds counts of one run against each other.
fn beyond(counted: &BTreeMap<String, u64>) -> Result<(), String> {
    for (name, percent, than) in AT_MOST {
        let (Some(one), Some(other)) = (counted.get(name), counted.get(than)) else { continue };
        if one * 100 > other * percent {
            return Err(format!(
                "{name}: {one} instructions, more than {percent} % of the {other} of {than}"
            ));
        }
    }
    Ok(())
}

/// The compiler's version, in one line.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    output.map_or_else(
        |_| "an unknown compiler".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// How a count compares with the stored one.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    New,
    /// From this count.
    Risen(u64),
    /// From this count, so far that it is worth storing.
    Fallen(u64),
    Same,
}

impl Verdict {
    fn text(&self) -> String {
        match self {
            Verdict::New => ", not stored yet".to_owned(),
            Verdict::Risen(from) => format!(", risen from {from}"),
            Verdict::Fallen(from) => format!(", fallen from {from}: store it with --update"),
            Verdict::Same => String::new(),
        }
    }
}

/// Stored counts per operation: `count  name` in each line, after `# compiler`.
#[derive(Default)]
struct Figures {
    compiler: String,
    counts: BTreeMap<String, u64>,
}

impl Figures {
    fn load(path: &Path) -> Result<Figures, String> {
        match fs::read_to_string(path) {
            Ok(text) => Figures::parse(&text)
                .map_err(|line| format!("{}: {line:?} is not `count  name`", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Figures::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// The error: the line that does not fit.
    fn parse(text: &str) -> Result<Figures, String> {
        let mut figures = Figures::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if let Some(compiler) = line.strip_prefix("# ") {
                compiler.clone_into(&mut figures.compiler);
                continue;
            }
            let (count, name) = line.trim_start().split_once("  ").ok_or_else(|| line.to_owned())?;
            figures.counts.insert(name.to_owned(), count.parse().map_err(|_| line.to_owned())?);
        }
        Ok(figures)
    }

    fn text(&self) -> String {
        let mut text = format!("# {}\n", self.compiler);
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{count:>10}  {name}");
        }
        text
    }

    fn verdict(&self, name: &str, count: u64) -> Verdict {
        match self.counts.get(name).copied() {
            None => Verdict::New,
            Some(stored) if count * 100 > stored * (100 + RISE_PERCENT_MAX) => Verdict::Risen(stored),
            Some(stored) if count * 100 < stored * (100 - RISE_PERCENT_MAX) => Verdict::Fallen(stored),
            Some(_) => Verdict::Same,
        }
    }
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
        return Err(format!(
            "the example ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    total(&out)
}

/// What one of callgrind's files sums up to.
fn total(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("{}: no sum", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{AT_MOST, Figures, Verdict, beyond};

    #[test]
    fn counts_are_held_against_each_other() {
        let (name, _, than) = AT_MOST[0];
        let counted = |one, other| BTreeMap::from([(name.to_owned(), one), (than.to_owned(), other)]);
        assert_eq!(beyond(&counted(120, 100)), Ok(()));
        assert!(beyond(&counted(121, 100)).is_err_and(|error| error.contains("121 instructions")));
        assert_eq!(beyond(&BTreeMap::from([(name.to_owned(), 500)])), Ok(()));
    }

    #[test]
    fn figures_are_read_back_and_a_rise_is_noticed() {
        let figures = Figures::parse("# rustc 1\n      1000  get, cached\n        10  next\n").unwrap();
        let again = Figures::parse(&figures.text()).unwrap();
        assert_eq!((again.compiler.as_str(), again.counts.len()), ("rustc 1", 2));
        assert_eq!(again.verdict("get, cached", 1030), Verdict::Same);
        assert_eq!(again.verdict("get, cached", 1031), Verdict::Risen(1000));
        assert_eq!(again.verdict("get, cached", 970), Verdict::Same);
        assert_eq!(again.verdict("get, cached", 969), Verdict::Fallen(1000));
        assert_eq!(again.verdict("put", 1), Verdict::New);
        assert!(Figures::parse("get 1000\n").is_err_and(|line| line == "get 1000"));
    }
}
