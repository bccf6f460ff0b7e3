//! `tombolo db salvage`: what can be had of a database of which objects are gone or damaged.

use clap::Args;
use serde_json::{Value, json};
use tombolo::{Loss, SalvageMode, SalvageReport};

use crate::database::{self, DatabaseArguments, HowArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::text;

/// Arguments of `salvage`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db salvage file:///data/orders                                    what can be had, and what is lost
  tombolo db salvage file:///data/orders --to file:///data/orders-saved
  tombolo db salvage file:///data/orders --to file:///data/orders-saved --with-holes

Takes the newest state that is whole: all writes up to one moment, of the manifest's records, of the logs behind it, or of a checkpoint. Reads and checks
every byte that it takes. Changes nothing of the damaged database, and claims nothing; end its writer first. Exit code 1 when something is lost:
the new database is there all the same, and the list says what is not in it.")]
pub struct Salvage {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The new database, as a URI; without it nothing is written.
    #[arg(long, value_name = "NEW_URI", value_parser = crate::place::place)]
    to: Option<String>,
    /// The log store of the new database, as a URI; its store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place, requires = "to")]
    target_log: Option<String>,
    /// Take the newest state without the damaged parts of its tables: keys in the ranges of damaged
    /// blocks may then be missing, or show what was overwritten or deleted.
    #[arg(long)]
    with_holes: bool,
}

/// Runs it.
pub fn run(arguments: &Salvage, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let mode = if arguments.with_holes { SalvageMode::WithHoles } else { SalvageMode::Consistent };
    let source = arguments.database.builder()?;
    let salvaging = match &arguments.to {
        None => source.survey_damage(mode),
        Some(target) => {
            let how =
                HowArguments { log: arguments.target_log.clone(), settings: Vec::new(), cold_store: None };
            source.salvage_to(database::builder(target, &how)?, mode)
        }
    };
    let report = interrupt::wait(salvaging, &interrupted, || ())?;
    // Who looks first is told what the other way would save.
    let holes = if arguments.to.is_none() && !arguments.with_holes && !report.is_whole() {
        let survey = arguments.database.builder()?.survey_damage(SalvageMode::WithHoles);
        Some(interrupt::wait(survey, &interrupted, || ())?)
    } else {
        None
    };
    let (target, store) = (arguments.to.as_deref(), &arguments.database.store);
    output.result(
        || {
            let mut json = to_json(&report, target);
            json["with_holes"] = holes.as_ref().map_or(Value::Null, |holes| to_json(holes, None));
            json
        },
        || {
            let mut text = to_text(&report, target);
            if let Some(holes) = &holes {
                text += &format!("\nwith --with-holes {}", to_text(holes, None));
            }
            if target.is_none() {
                let also = if arguments.with_holes || holes.is_some() { " --with-holes" } else { "" };
                let optional = if holes.is_some() { ", or without it for one moment's state" } else { "" };
                text += &format!("\nto save that: tombolo db salvage {store} --to NEW_URI{also}{optional}");
            }
            text
        },
    )?;
    output.finish()?;
    if report.is_whole() { Ok(()) } else { Err(Failure::Check("something is lost: see the list".to_owned())) }
}

fn to_json(report: &SalvageReport, target: Option<&str>) -> Value {
    let losses: Vec<_> = report
        .losses
        .iter()
        .map(|loss| {
            json!({
                "what": loss.what, "keyspace": loss.keyspace,
                "first_key": loss.keys.as_ref().map(|keys| text::to_json(&keys.0)),
                "last_key": loss.keys.as_ref().map(|keys| text::to_json(&keys.1)), "entries": loss.entries,
                "bytes": loss.bytes,
            })
        })
        .collect();
    json!({
        "checkpoint": report.checkpoint, "slot": report.slot, "newest_slot": report.newest_slot,
        "last_sequence": report.last_sequence,
        "newest_sequence": report.newest_sequence, "tables": report.tables, "table_bytes": report.table_bytes,
        "log_entries": report.log_entries, "whole": report.is_whole(), "losses": losses, "store": target,
    })
}

fn to_text(report: &SalvageReport, target: Option<&str>) -> String {
    let whence = match &report.checkpoint {
        Some(name) => format!("the checkpoint {name:?}"),
        None => format!("record {} of {} of the manifest", report.slot, report.newest_slot),
    };
    let done = target.map_or("can be had".to_owned(), |target| format!("is now the database {target}"));
    let mut lines = vec![format!(
        "the state of {whence} {done}: {} ({}), {} of logs, writes up to {} of {} known",
        text::counted(report.tables, "table"),
        text::bytes(report.table_bytes),
        text::counted(report.log_entries, "entry"),
        report.last_sequence,
        report.newest_sequence
    )];
    lines.extend(report.losses.iter().map(loss));
    if report.is_whole() {
        lines.push("nothing is lost".to_owned());
    }
    lines.join("\n")
}

fn loss(loss: &Loss) -> String {
    let range = loss.keys.as_ref().map_or(String::new(), |(first, last)| {
        format!(
            "\n        {} ({}) of keyspace {:?}, from {} to {}",
            text::counted(loss.entries, "entry"),
            text::bytes(loss.bytes),
            loss.keyspace.as_deref().unwrap_or_default(),
            text::shown(first),
            text::shown(last)
        )
    });
    format!("  LOST: {}{range}", loss.what)
}
