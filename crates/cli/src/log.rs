//! `tombolo log`: the nodes and segments of a near-compute log.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo::Env;
use tombolo_near_compute_log::{RegionState, SegmentStatus, log_status};
use tombolo_storage::{LogRecord, Uri};

use crate::failure::Result;
use crate::note::note;
use crate::output::Output;
use crate::serve::Showing;

/// What to ask of a log.
#[derive(Subcommand)]
pub enum Command {
    /// Says which nodes hold which segments of a database's logs, and what each of them has.
    /// Changes nothing, disturbs no writer.
    Status(Arguments),
}

/// Arguments of `log status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo log status s3://bucket/orders
  tombolo log status file:///data/orders --secret-file secret --json")]
pub struct Arguments {
    /// The store that holds the database, as a URI.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    store: String,
    #[command(flatten)]
    showing: Showing,
}

/// Runs it.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    let Command::Status(arguments) = command;
    let env = Env::real();
    let objects = crate::database::registry().open_object_store(&env, &Uri::parse(&arguments.store)?)?;
    let credentials = arguments.showing.credentials()?;
    let world = env.clone();
    let (database, found, elsewhere) = env.block_on(async move {
        let loaded = tombolo::internals::load(&world, &objects).await?;
        let database = loaded.state.database().map_or(0, |database| database.id);
        let identity = loaded.state.database().map(|database| database.log_identity.to_string());
        let is_near = identity.as_deref().is_none_or(|identity| identity == "near");
        let mut found = Vec::new();
        for log in loaded.state.log_records() {
            // Of a log that is kept elsewhere nodes know nothing.
            let segments = if is_near {
                log_status(&world, credentials.as_ref(), loaded.incarnation, database, &log).await?
            } else {
                Vec::new()
            };
            let known = loaded.state.logs().get(&log.id);
            let (sealed, replay) =
                known.map_or((None, None), |known| (known.sealed, Some(known.replay_point)));
            found.push((
                log,
                sealed.map(|sealed| sealed.to_string()),
                replay.map(|replay| replay.to_string()),
                segments,
            ));
        }
        Ok::<_, tombolo::Error>((format!("{database:016x}"), found, identity.filter(|_| !is_near)))
    })?;
    if let Some(identity) = &elsewhere {
        let store = &arguments.store;
        note(format_args!(
            "tombolo: the log is kept at {identity}, not on nodes; \
            `tombolo inspect {store} log` shows its bytes"
        ));
    }
    if found.is_empty() {
        return output.result(
            || json!({ "database": database, "logs": [] }),
            || "no record names a log: all is in the store".to_owned(),
        );
    }
    output.result(
        || {
            json!({
                "database": database,
                "kept_at": elsewhere,
                "logs": found.iter().map(
                    |(log, sealed, replay, segments)| as_json(log, sealed.as_ref(), replay.as_ref(), segments)
                ).collect::<Vec<_>>()
            })
        },
        || {
            let logs = found.iter().map(|(log, sealed, replay, segments)| {
                as_text(log, sealed.as_ref(), replay.as_ref(), segments)
            });
            std::iter::once(format!("database {database}")).chain(logs).collect::<Vec<_>>().join("\n")
        },
    )
}

fn state_text(state: &RegionState) -> String {
    match state {
        RegionState::Open { length, committed } => {
            format!("holds {length} bytes, {committed} known there to be acknowledged")
        }
        RegionState::Sealed(by) => format!("sealed in the name of epoch {by}"),
        RegionState::Lost(why) => format!("LOST: {why}"),
        RegionState::Silent(why) => format!("SILENT: {why}"),
    }
}

fn as_json(
    log: &LogRecord,
    sealed: Option<&String>,
    replay: Option<&String>,
    segments: &[SegmentStatus],
) -> Value {
    let region = |region: &tombolo_near_compute_log::RegionStatus| {
        let (word, length) = match &region.state {
            RegionState::Open { length, .. } => ("open", Some(*length)),
            RegionState::Sealed(_) => ("sealed", None),
            RegionState::Lost(_) => ("lost", None),
            RegionState::Silent(_) => ("silent", None),
        };
        json!({
            "node": &*region.member.node,
            "life": region.member.incarnation.to_string(),
            "region": region.member.region.to_string(),
            "state": word,
            "length": length,
            "says": state_text(&region.state),
        })
    };
    let segments = segments.iter().map(|segment| {
        json!({
            "number": segment.number,
            "length": segment.length,
            "in_object": segment.regions.is_empty(),
            "regions": segment.regions.iter().map(region).collect::<Vec<_>>(),
        })
    });
    json!({
        "epoch": log.id.epoch.0,
        "lane": log.id.lane,
        "sealed": sealed,
        "replay_point": replay,
        "segments": segments.collect::<Vec<_>>(),
    })
}

fn as_text(
    log: &LogRecord,
    sealed: Option<&String>,
    replay: Option<&String>,
    segments: &[SegmentStatus],
) -> String {
    let sealed =
        sealed.map_or_else(|| "its writer may append".to_owned(), |sealed| format!("sealed at {sealed}"));
    let replay = replay.map_or_else(String::new, |replay| format!(", flushed up to {replay}"));
    let mut lines = vec![format!("log of epoch {} lane {}: {sealed}{replay}", log.id.epoch, log.id.lane)];
    for segment in segments {
        let length = segment
            .length
            .map_or_else(|| "appended to".to_owned(), |length| format!("{length} bytes, settled"));
        let place = if segment.regions.is_empty() { ", in an object of the store" } else { "" };
        lines.push(format!("  segment {}: {length}{place}", segment.number));
        for region in &segment.regions {
            let member = &region.member;
            lines.push(format!(
                "    {} (life {}) region {}: {}",
                member.node,
                member.incarnation,
                member.region,
                state_text(&region.state)
            ));
        }
    }
    lines.join("\n")
}
