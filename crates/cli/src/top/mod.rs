//! `tombolo top`: what a database does, live, in a terminal.
//!
//! `sample → history (differences, rates) → draw`. Drawing is pure, so that tests look at screens.

mod history;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::database::HowArguments;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::sample::{Source, databases_of};
use history::History;

/// Arguments of `top`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo top file:///data/orders
  tombolo top 4711                         the database that process 4711 of this host has open
  tombolo top s3://bucket/orders --every 60
  tombolo top file:///data/orders --once   prints one screen, as from a script

Keys: q ends it, p pauses.

The process that has the database open is asked, and answers by itself; where there is none, a look shows what is durable. A writer on another
host looks for questions once a minute, and each question is a few requests.")]
pub struct Arguments {
    /// A database, or the number of a process of this host that has one open.
    #[arg(value_name = "URI|PID")]
    place: String,
    #[command(flatten)]
    how: HowArguments,
    /// Seconds between two looks.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    every: u64,
    /// Prints one screen, with rates over that time, and ends.
    #[arg(long)]
    once: bool,
}

/// Columns and lines of a screen that is printed.
const PRINTED: (u16, u16) = (110, 36);

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let source = source(&arguments.place, &arguments.how)?;
    let every = Duration::from_secs(arguments.every);
    if arguments.once || output.is_json() || !std::io::stdout().is_terminal() {
        return once(&source, every, output);
    }
    let mut terminal = ratatui::try_init().map_err(|error| Failure::io(error, "using the terminal"))?;
    let shown = live(&mut terminal, &source, every);
    ratatui::restore();
    shown
}

fn source(place: &str, how: &HowArguments) -> Result<Source> {
    let Ok(process) = place.parse::<u32>() else {
        let uri = crate::place::place(place).map_err(|error| Failure::Usage(error.to_string()))?;
        return Ok(Source::new(crate::database::builder(&uri, how)?, uri));
    };
    let found = databases_of(process)?;
    match &found[..] {
        [(folder, _)] => {
            let uri = tombolo::Uri::from_path(folder)?.to_string();
            Ok(Source::new(crate::database::builder(&uri, how)?, uri))
        }
        [] => Err(Failure::Usage(format!(
            "process {process} has no database of this host's disks open: name its URI"
        ))),
        several => {
            let names: Vec<_> = several.iter().map(|(folder, _)| folder.display().to_string()).collect();
            Err(Failure::Usage(format!(
                "process {process} has several open: name one of {}",
                names.join(", ")
            )))
        }
    }
}

/// One screen, of two looks.
fn once(source: &Source, every: Duration, output: &Output) -> Result<()> {
    let mut history = History::new(source.name.clone());
    let begun = Instant::now();
    history.add(Ok(source.sample()?), begun.elapsed());
    std::thread::sleep(every);
    history.add(Ok(source.sample()?), begun.elapsed());
    output.result(|| history.to_json(), || screen::printed(&history, PRINTED))
}

fn live(terminal: &mut ratatui::DefaultTerminal, source: &Source, every: Duration) -> Result<()> {
    let failed = |error| Failure::io(error, "using the terminal");
    let mut history = History::new(source.name.clone());
    let begun = Instant::now();
    let mut paused = false;
    loop {
        if !paused {
            history.add(source.sample(), begun.elapsed());
        }
        let until = Instant::now() + every;
        loop {
            terminal.draw(|frame| screen::draw(frame, &history, paused)).map_err(failed)?;
            let left = until.saturating_duration_since(Instant::now());
            if !event::poll(left).map_err(failed)? {
                break;
            }
            let Event::Key(key) = event::read().map_err(failed)? else { continue };
            let ends = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                _ if key.kind == KeyEventKind::Release => {}
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                _ if ends => return Err(Failure::Interrupted),
                KeyCode::Char('p') => paused = !paused,
                _ => {}
            }
        }
    }
}
