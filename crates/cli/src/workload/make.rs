//! Models of traces, and traces of models.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tombolo_lab::analysis::Bounds;
use tombolo_lab::fitting::fit;
use tombolo_lab::flags::mixgraph_flags;
use tombolo_lab::{Generator, TraceWriter};

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
