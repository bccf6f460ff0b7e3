//! Models of traces, and traces of models.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tombolo_lab::analysis::Bounds;
use tombolo_lab::fitting::fit;
use tombolo_lab::flags::mixgraph_flags;
use tombolo_lab::presets::{self, PRESETS};
use tombolo_lab::{Generator, TraceWriter, figures};

use super::files::{TraceArguments, create, failed};
use super::load::{analysed, model_header, read_model, wrong_model};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Arguments of `model`.
#[derive(Args)]
pub struct ModelArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// The model that is made; standard output when not given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `model`.
pub fn model(arguments: &ModelArguments, output: &Output) -> Result<()> {
    let seen = analysed(&arguments.trace, Bounds::default(), output)?;
    if seen.events == 0 {
        return Err(Failure::Usage("the trace has no events, and nothing can be fitted".to_owned()));
    }
    let model = fit(&seen);
    let text = model.to_toml().map_err(|error| Failure::Usage(error.to_string()))?;
    for keyspace in &model.keyspaces {
        for (what, sizes) in [("keys", &keyspace.key_bytes), ("values", &keyspace.value_bytes)] {
            if sizes.family == "quantiles" {
                output.note(&format!(
                    "{}: no family fits the sizes of {what}; measured quantiles are taken",
                    keyspace.name
                ));
            }
        }
    }
    let Some(path) = &arguments.out else { return output.bytes(text.as_bytes()) };
    let writing = |error| Failure::io(error, format!("writing {}", path.display()));
    let mut file = create(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(writing)?;
    output.result(
        || json!({ "model": path.display().to_string(), "bytes": text.len() }),
        || format!("{}: {} bytes", path.display(), text.len()),
    )
}

/// Arguments of `preset`.
#[derive(Args)]
pub struct PresetArguments {
    /// Its name.
    #[arg(value_parser = PRESETS)]
    name: String,
    /// Keys of all keyspaces.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    keys: u64,
    /// Operations in a second.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// `preset`.
pub fn preset(arguments: &PresetArguments, output: &Output) -> Result<()> {
    let unknown = || Failure::Usage(format!("there is no preset {:?}", arguments.name));
    let model =
        presets::preset(&arguments.name, arguments.keys, arguments.rate.into()).ok_or_else(unknown)?;
    let text = model.to_toml().map_err(|error| Failure::Usage(error.to_string()))?;
    output.bytes(text.as_bytes())
}

/// Arguments of `figure15`.
#[derive(Args)]
pub struct FigureArguments {
    /// Events.
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Keys.
    #[arg(long, value_name = "N", default_value_t = 30_000_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Seconds, which is the period of the rate, too.
    #[arg(long, value_name = "N", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

/// `figure15`.
pub fn figure15(arguments: &FigureArguments, output: &Output) -> Result<()> {
    let all = figures::figure15(arguments.events, arguments.keys, arguments.seconds);
    let all = all.map_err(|error| Failure::Usage(error.to_string()))?;
    let row =
        |one: &figures::Bounded| json!({ "of": one.what, "distance": one.distance, "bound": one.bound });
    let line = |one: &figures::Bounded| format!("{:20} {:.4} of {:.2}", one.what, one.distance, one.bound);
    output.result(
        || json!(all.iter().map(row).collect::<Vec<_>>()),
        || all.iter().map(line).collect::<Vec<_>>().join("\n"),
    )?;
    match all.iter().find(|one| one.distance > one.bound) {
        Some(one) => Err(Failure::Check(format!("{} are farther apart than {}", one.what, one.bound))),
        None => Ok(()),
    }
}

/// Arguments of `generate`.
#[derive(Args)]
pub struct GenerateArguments {
    /// The model.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The trace that is made.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Events; as many as the model's trace had when not given.
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// Of everything random: the same seed makes the same events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// `generate`.
pub fn generate(arguments: &GenerateArguments, output: &Output) -> Result<()> {
    let model = read_model(&arguments.model)?;
    let mut generator =
        Generator::new(&model, arguments.seed).map_err(|error| wrong_model(&arguments.model, &error))?;
    let trace_failed = |error| failed(&arguments.trace, error);
    let mut writer =
        TraceWriter::new(create(&arguments.trace)?, &model_header(&model)).map_err(trace_failed)?;
    for (id, name) in generator.names() {
        writer.name(id, name).map_err(trace_failed)?;
    }
    let events = arguments.events.unwrap_or(model.events);
    for _ in 0..events {
        writer.push(&generator.draw()).map_err(trace_failed)?;
    }
    writer.finish().map_err(trace_failed)?;
    output
        .result(|| json!({ "events": events }), || format!("{}: {events} events", arguments.trace.display()))
}

/// Arguments of `flags`.
#[derive(Args)]
pub struct FlagsArguments {
    /// The model.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
}

/// `flags`.
pub fn flags(arguments: &FlagsArguments, output: &Output) -> Result<()> {
    let (flags, lost) = mixgraph_flags(&read_model(&arguments.model)?);
    lost.iter().for_each(|lost| output.note(&format!("not in the flags: {lost}")));
    output.result(|| json!({ "flags": flags, "lost": lost }), || format!("db_bench {flags}"))
}
