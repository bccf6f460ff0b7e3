//! Models of traces, and traces of models.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tombolo_lab::analysis::{Analyser, Bounds};
use tombolo_lab::fitting::{fit, fit_among, held_out, keys_there};
use tombolo_lab::flags::mixgraph_flags;
use tombolo_lab::presets::{self, PRESETS};
use tombolo_lab::report::shown;
use tombolo_lab::{Generator, TraceWriter, figures};

use super::files::{TraceArguments, create, failed, walk};
use super::load::{analysed, model_header, read_model, wrong_model};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// Arguments of `model`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo workload model my.trace --out my.toml
  tombolo workload model my.trace --among file:///data/orders --out my.toml
  tombolo workload model my.trace --held-out")]
pub struct ModelArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// The database that was asked, or a copy of it: the model then also has the keys that nobody
    /// asked for. It walks over all of them.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    among: Option<String>,
    /// Makes no model, but fits one to the first half of the trace and says how far what it makes
    /// is from the second half.
    #[arg(long, conflicts_with_all = ["out", "among"])]
    held_out: bool,
    /// The model that is made; standard output when not given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `model`.
pub fn model(arguments: &ModelArguments, output: &Output) -> Result<()> {
    if arguments.held_out {
        return second_half(&arguments.trace, output);
    }
    let seen = analysed(&arguments.trace, Bounds::default(), output)?;
    if seen.events == 0 {
        return Err(Failure::Usage("the trace has no events, and nothing can be fitted".to_owned()));
    }
    let model = match &arguments.among {
        Some(store) => {
            let db = database::builder(store, &HowArguments::default())?.open_read_only().wait()?;
            let there = keys_there(&db, &seen);
            db.close().wait()?;
            fit_among(&seen, &there?)
        }
        None => fit(&seen),
    };
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

/// Fits a model to the first half of a trace, and compares what it makes with the second.
fn second_half(trace: &TraceArguments, output: &Output) -> Result<()> {
    let mut events = 0_u64;
    walk(trace, output, |_, _| {
        events += 1;
        Ok(())
    })?;
    if events < 2 {
        return Err(Failure::Usage(format!("the trace has {events} events, and no two halves")));
    }
    let (mut halves, mut at) = ([None, None], 0);
    walk(trace, output, |reader, event| {
        let half = &mut halves[usize::from(at >= events / 2)];
        let analyser = half.get_or_insert_with(|| Analyser::new(reader.header().clone(), Bounds::default()));
        analyser.name(reader.names());
        analyser.add(event);
        at += 1;
        Ok(())
    })?;
    let [Some(first), Some(second)] = halves.map(|half: Option<Analyser>| half.map(Analyser::finish)) else {
        return Err(Failure::Usage("the trace has no two halves".to_owned()));
    };
    let all = held_out(&first, &second, &fit(&first));
    output.result(
        || {
            let one = |one: &tombolo_lab::fitting::HeldOut| {
                json!({ "what": one.model.what, "second_half": one.model.first, "model": one.model.second,
                    "distance": one.model.distance, "distance_of_first_half": one.itself })
            };
            json!(all.iter().map(one).collect::<Vec<_>>())
        },
        || {
            let mut text = format!(
                "{:50} {:>12} {:>12} {:>9} {:>11}",
                "of", "second half", "model", "distance", "first half"
            );
            for one in &all {
                let (first, second) = (shown(one.model.first), shown(one.model.second));
                text.push_str(&format!(
                    "\n{:50} {first:>12} {second:>12} {:9.3} {:11.3}",
                    one.model.what, one.model.distance, one.itself
                ));
            }
            text
        },
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
    output.result(
        || json!({ "events": events }),
        || format!("{}: {}", arguments.trace.display(), text::counted(events, "event")),
    )
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
