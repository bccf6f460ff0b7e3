//! `tombolo gc`: what serves nobody any more in all databases under one root.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;
use tombolo::sweep::{self, Garbage, GarbageKind};
use tombolo::{Env, Epoch, Error, ErrorKind, Registry};
use tombolo_storage::{ObjectStore, Purpose, Request, Uri};

use crate::failure::Result;
use crate::output::Output;
use crate::text;

/// Arguments of `gc`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo gc file:///data
  tombolo gc file:///data --delete

Databases are found by their names, at any depth. Without --delete nothing is changed. Live databases, checkpoints, pins of readers and clones
keep what they use; logs and records are their writers' to delete; what belongs to no database is counted as foreign, and never touched.")]
pub struct Arguments {
    /// The root under which databases lie, or one database, as a URI.
    #[arg(value_name = "URI")]
    root: String,
    /// Delete what was found.
    #[arg(long)]
    delete: bool,
}

/// Names of one page of a list.
const NAMES_PER_LIST: usize = 1000;

fn word(kind: GarbageKind) -> &'static str {
    match kind {
        GarbageKind::Orphan => "tables that nothing names",
        GarbageKind::EndedLife => "of lives that were destroyed",
        GarbageKind::OldSnapshot => "old snapshots of the manifest",
        GarbageKind::Unpinned => "left of checkpoints and pins",
        GarbageKind::OldSign => "old signs of life",
        _ => "others",
    }
}

/// The directories under a root that hold databases, each ending in a slash or empty; and how many names lie in none of them.
fn databases(env: &Env, store: &dyn ObjectStore) -> Result<(BTreeSet<String>, u64)> {
    let request = Request::new(Purpose::Collection, Epoch::NONE);
    let (mut found, mut names, mut after) = (BTreeSet::new(), Vec::new(), None);
    loop {
        let page = env.block_on(store.list(request, "", after.as_ref(), NAMES_PER_LIST))?;
        after = page.objects.last().map(|object| object.name.clone());
        for object in &page.objects {
            let name = object.name.as_str();
            if let Some(at) = name.find("incarnation/")
                && (at == 0 || name[..at].ends_with('/'))
            {
                found.insert(name[..at].to_owned());
            }
            names.push(name.to_owned());
        }
        if !page.more || after.is_none() {
            break;
        }
    }
    let outside = names.iter().filter(|name| !found.iter().any(|database| name.starts_with(database.as_str()))).count();
    Ok((found, outside as u64))
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let root = Uri::parse(&arguments.root)?;
    let store = registry.open_object_store(&env, &root)?;
    let (databases, outside) = databases(&env, &*store)?;
    if databases.is_empty() && outside == 0 {
        let hint = format!("0 databases; nothing lies in {}: check the URI", root.shown());
        return output.result(|| json!({ "databases": 0, "outside": 0 }), || hint);
    }
    let mut failed = None;
    for directory in &databases {
        let mut uri = root.clone();
        if !directory.is_empty() {
            uri.rest = format!("{}/{}", uri.rest.trim_end_matches('/'), directory.trim_end_matches('/'));
        }
        let store = registry.open_object_store(&env, &uri)?;
        let swept = env.block_on(async {
            let garbage = sweep::survey(&env, &store).await?;
            if arguments.delete {
                sweep::delete(&env, &store, &garbage).await?;
            }
            Ok::<_, Error>(garbage)
        });
        match swept {
            Ok(garbage) => report(&uri.to_string(), &garbage, arguments.delete, output)?,
            // Destroyed, or never completed: what is left of it is for the next life's opening.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                output.result(|| json!({ "database": uri.to_string(), "ended": true }), || format!("{uri}: {}", error.message()))?;
            }
            // One that is damaged does not keep the others from being swept.
            Err(error) => {
                let (shown, message) = (uri.to_string(), error.message().to_owned());
                output.result(
                    || json!({ "database": shown, "error": message }),
                    || format!("{shown}: {message}; nothing of it is touched"),
                )?;
                failed.get_or_insert(error);
            }
        }
    }
    output.result(
        || json!({ "databases": databases.len(), "outside": outside }),
        || format!("{} databases; {outside} objects belong to none", databases.len()),
    )?;
    output.finish()?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn report(database: &str, garbage: &Garbage, deleted: bool, output: &Output) -> Result<()> {
    let mut kinds: BTreeMap<GarbageKind, (u64, u64)> = BTreeMap::new();
    for object in &garbage.objects {
        let (count, bytes) = kinds.entry(object.kind).or_default();
        (*count, *bytes) = (*count + 1, *bytes + object.bytes);
    }
    output.result(
        || {
            let found: Vec<_> =
                kinds.iter().map(|(kind, (count, bytes))| json!({ "what": word(*kind), "objects": count, "bytes": bytes })).collect();
            json!({
                "database": database, "epoch": garbage.epoch.0, "kept": garbage.kept, "kept_bytes": garbage.kept_bytes,
                "foreign": garbage.foreign.len(), "garbage": found, "deleted": deleted,
            })
        },
        || {
            let mut lines = vec![format!(
                "{database}: {} objects in use ({}), {} foreign",
                text::count(garbage.kept),
                text::bytes(garbage.kept_bytes),
                garbage.foreign.len()
            )];
            let done = if deleted { "deleted" } else { "would go" };
            lines.extend(
                kinds
                    .iter()
                    .map(|(kind, (count, bytes))| format!("  {done}: {} {}, {}", text::count(*count), word(*kind), text::bytes(*bytes))),
            );
            lines.join("\n")
        },
    )
}
