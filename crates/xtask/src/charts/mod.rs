//! Charts and tables of `docs/benchmarks.md`, drawn from the figures of measured runs.
//!
//! 1. Each question has a file of figures, `docs/charts/data/NAME.json`: what was measured, when,
//!    where, with which command, and the values.
//! 2. A run's records (`cargo xtask peers --json`, `near --json`) replace the values of the figures
//!    that come from such runs, all of a figure: values of two runs are not compared.
//! 3. Each file becomes a chart, `docs/charts/NAME.svg`, and a table in the page between two marks.
//!
//! Invariant: charts and tables hold nothing that the files do not say. A test draws them again and
//! compares.

mod figure;
mod page;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::Value;

use crate::peers::machine;
use figure::{Figure, Measured};

const EXAMPLES: &str = "\
Examples:
  cargo xtask charts                                                     draws all charts and tables again
  cargo xtask charts peers.json --command 'cargo xtask peers --rounds 5'  takes the values of a run over";

/// Options of `charts`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Records of a run, as `cargo xtask peers --json` and `near --json` write them; of a run in
    /// parts several files. A figure that has one value of the run has all its values of it.
    files: Vec<PathBuf>,
    /// Where charts go, and their figures in `data/` below it.
    #[arg(long, default_value = "docs/charts", value_name = "DIRECTORY")]
    to: PathBuf,
    /// The page with the tables.
    #[arg(long, default_value = "docs/benchmarks.md", value_name = "FILE")]
    page: PathBuf,
    /// The command that made the run.
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// The commit that was measured; the one that is checked out when not given.
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
    /// What else the reader must know of the run, such as what else the machine did.
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
}

/// Takes runs over, and draws.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let folder = root.join(&arguments.to);
    let mut figures = read_all(&folder)?;
    let records = read_records(&arguments.files)?;
    if !records.is_empty() {
        let Some(command) = &arguments.command else {
            return Err("--command says how the run was made, so that a reader can make it again".to_owned());
        };
        let measured = Measured {
            date: today(),
            commit: arguments.commit.clone().map_or_else(|| head(root), Ok)?,
            machine: machine::describe(),
            command: command.clone(),
            note: arguments.note.clone(),
        };
        let mut taken = 0;
        for (name, figure) in &mut figures {
            let values = figure.take(&records);
            if values > 0 {
                figure.measured = vec![measured.clone()];
                println!("{name}: {values} values");
                taken += values;
                let text = serde_json::to_string_pretty(figure).map_err(|error| error.to_string())?;
                write(&folder.join("data").join(format!("{name}.json")), &(text + "\n"))?;
            }
        }
        if taken == 0 {
            return Err("no figure has a value of this run".to_owned());
        }
    }
    for (name, figure) in &figures {
        write(&folder.join(format!("{name}.svg")), &svg::draw(figure))?;
    }
    let path = root.join(&arguments.page);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    write(&path, &page::with_figures(&text, &figures)?)?;
    println!("{} charts in {}, their tables in {}", figures.len(), folder.display(), path.display());
    Ok(())
}

/// The records of all files, as of one run.
fn read_records(files: &[PathBuf]) -> Result<Vec<Value>, String> {
    let mut records = Vec::new();
    for path in files {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let found: Vec<Value> = serde_json::from_str(&text)
            .map_err(|error| format!("{}: not the records of a run: {error}", path.display()))?;
        records.extend(found);
    }
    if records.is_empty() && !files.is_empty() {
        return Err("the files have no records".to_owned());
    }
    Ok(records)
}

/// The figures below `folder`, by name.
fn read_all(folder: &Path) -> Result<Vec<(String, Figure)>, String> {
    let folder = folder.join("data");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut figures = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let figure: Figure =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        figure.check().map_err(|error| format!("{}: {error}", path.display()))?;
        figures.push((name, figure));
    }
    figures.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(figures)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn head(root: &Path) -> Result<String, String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git: {error}; --commit says what was measured"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The day in UTC, as 2026-11-27.
fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02}")
}

/// The date that lies `days` after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_784), (2026, 11, 27));
    }

    /// The page and its charts say what the files of figures say.
    #[test]
    fn charts_and_tables_are_drawn_from_the_figures() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = root.join("docs/charts");
        let figures = read_all(&folder).unwrap();
        assert!(figures.len() > 8, "{}", figures.len());
        for (name, figure) in &figures {
            let drawn = fs::read_to_string(folder.join(format!("{name}.svg"))).unwrap_or_default();
            assert!(drawn == svg::draw(figure), "{name}.svg is not of its figures: `cargo xtask charts`");
        }
        let page = fs::read_to_string(root.join("docs/benchmarks.md")).unwrap();
        let again = page::with_figures(&page, &figures).unwrap();
        assert!(page == again, "a table is not of its figures: `cargo xtask charts`");
    }
}
