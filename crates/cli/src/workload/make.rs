//! Models of traces, and traces of models.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tombolo_format::trace::{Header, TracedKeys};
use tombolo_lab::analysis::{Analyser, Analysis, Bounds};
use tombolo_lab::model::{ModelError, fit};
use tombolo_lab::{Generator, Model, TraceWriter};

use super::files::{TraceArguments, create, failed, open};
use super::show;
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
    let seen = show::analysed(&arguments.trace, Bounds::default(), output)?;
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

/// Reads a model.
pub fn read(path: &Path) -> Result<Model> {
    let mut text = String::new();
    let reading = |error| Failure::io(error, format!("reading {}", path.display()));
    // Far more than a model may have: what is longer is none.
    let mut file = std::io::Read::take(open(path)?, 1 << 20);
    std::io::Read::read_to_string(&mut file, &mut text).map_err(reading)?;
    Model::from_toml(&text).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, error: &ModelError) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

/// What a model's events look like.
pub fn analysed(model: &Model, seed: u64, events: u64, bounds: Bounds) -> Result<Analysis> {
    let mut generator = Generator::new(model, seed).map_err(|error| Failure::Usage(error.to_string()))?;
    let names = generator.names().map(|(id, name)| (id, name.to_owned())).collect();
    let mut analyser = Analyser::new(header(model), bounds);
    analyser.name(&names);
    (0..events).for_each(|_| analyser.add(&generator.draw()));
    Ok(analyser.finish())
}

fn header(model: &Model) -> Header {
    Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: format!("a model of {}", model.origin),
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
    let model = read(&arguments.model)?;
    let mut generator =
        Generator::new(&model, arguments.seed).map_err(|error| wrong(&arguments.model, &error))?;
    let trace_failed = |error| failed(&arguments.trace, error);
    let mut writer = TraceWriter::new(create(&arguments.trace)?, &header(&model)).map_err(trace_failed)?;
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
    let (flags, lost) = read(&arguments.model)?.mixgraph_flags();
    lost.iter().for_each(|lost| output.note(&format!("not in the flags: {lost}")));
    output.result(|| json!({ "flags": flags, "lost": lost }), || format!("db_bench {flags}"))
}
