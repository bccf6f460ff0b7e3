//! `tombolo explain`: what accepted and durable writes survive on a pair of stores, and what the
//! named files in a database take.

use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tombolo::{Env, ReaderOptions};
use tombolo_files::kind::FileKind;
use tombolo_files::{Files, FilesOptions, Usage};
use tombolo_storage::{Survival, Uri};

use crate::database::HowArguments;
use crate::failure::Result;
use crate::output::Output;
use crate::text;

/// Arguments of `explain`.
#[derive(Args)]
pub struct Arguments {
    /// The store, then the log where it is another; without a log, every form of the store's own
    /// log is explained.
    #[arg(value_name = "URI", value_parser = crate::place::place, required = true, num_args = 1..=2)]
    uris: Vec<String>,
    /// Says as well what the named files in the database take, by their kinds: those that RocksDB
    /// keeps there by its plugin. Looks at the database, and disturbs nobody.
    #[arg(long)]
    files: bool,
}

/// Runs it. Changes nothing: the stores are named, not opened for writing.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let (env, registry) = (Env::real(), crate::database::registry());
    let store = Uri::parse(&arguments.uris[0])?;
    let logs = match arguments.uris.get(1) {
        Some(log) => vec![Some(Uri::parse(log)?)],
        None => forms(&store),
    };
    let objects = registry.open_object_store(&env, &store)?;
    let mut found = Vec::new();
    for log in &logs {
        let logs = registry.open_log_store(&env, &store, log.as_ref(), &Arc::clone(&objects))?;
        found.push((log.as_ref().unwrap_or(&store).to_string(), logs.survival()));
    }
    let usage = if arguments.files { Some(usage(&env, arguments)?) } else { None };
    if output.is_json() {
        let logs: Vec<_> = found.iter().map(|(uri, survival)| to_json(uri, survival)).collect();
        let mut told = json!({
            "store": store.to_string(),
            "objects": to_json(&store.to_string(), &objects.survival()), "logs": logs
        });
        if let Some(usage) = usage {
            let of = |kind| json!({ "files": usage.of(kind).files, "bytes": usage.of(kind).bytes });
            told["files"] = FileKind::ALL.map(|kind| (kind.name(), of(kind))).into_iter().collect();
        }
        return output.line(told);
    }
    output.line(format!("store {store}: {}", objects.describe()))?;
    let survival = objects.survival();
    output.line(
        "  Tables and the manifest are durable there before anything names them; what is durable there:",
    )?;
    output.line(format!("  durable    {}", survival.durable))?;
    for note in &survival.notes {
        output.line(format!("  note       {note}"))?;
    }
    for (uri, survival) in &found {
        output.line(format!("\nlog {uri}: {}", survival.store))?;
        output.line("  unlogged   is in memory only, until a flush: lost with the process.")?;
        output.line(format!("  accepted   {}", survival.accepted))?;
        output.line(format!("  durable    {}", survival.durable))?;
        for note in &survival.notes {
            output.line(format!("  note       {note}"))?;
        }
    }
    let Some(usage) = usage else { return Ok(()) };
    output.line("\nnamed files, as far as they are durable")?;
    for kind in FileKind::ALL {
        let of = usage.of(kind);
        let files = text::counted(of.files, "file");
        output.line(format!("  {:<10} {files} of {}", kind.name(), text::bytes(of.bytes)))?;
    }
    Ok(())
}

/// What files take, seen as a reader sees them.
fn usage(env: &Env, arguments: &Arguments) -> Result<Usage> {
    let how = HowArguments { log: arguments.uris.get(1).cloned(), ..HowArguments::default() };
    let reader =
        crate::database::builder(&arguments.uris[0], &how)?.open_reader(ReaderOptions::default()).wait()?;
    Ok(env.block_on(async move {
        let files = Files::follow(reader, env, FilesOptions::default()).await?;
        let usage = files.usage();
        files.close().await?;
        Ok::<_, tombolo::Error>(usage)
    })?)
}

/// The log URIs to explain when none is given: a local store's log comes in two forms, and the
/// choice is the reader's question.
fn forms(store: &Uri) -> Vec<Option<Uri>> {
    if store.scheme != "file" || store.parameter("form").is_some() {
        return vec![None];
    }
    let with_form = |form: &str| {
        let mut uri = store.clone();
        uri.parameters.insert("form".to_owned(), form.to_owned());
        Some(uri)
    };
    vec![with_form("written"), with_form("mapped")]
}

fn to_json(uri: &str, survival: &Survival) -> serde_json::Value {
    json!({
        "uri": uri, "store": survival.store, "domain": survival.domain.name(),
        "accepted": survival.accepted, "durable": survival.durable, "notes": survival.notes
    })
}
