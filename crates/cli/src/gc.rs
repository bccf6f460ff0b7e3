//! `tombolo gc`: what serves nobody any more in all databases under one root.
//!
//! - [`roots`]: which databases there are, from one list of all names.

mod roots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tombolo::internals::sweep::{self, Garbage, GarbageKind};
use tombolo::{CloneState, Db, Env, Epoch, Error, ErrorKind, TakeOver};
use tombolo_storage::{ObjectStore, Purpose, Request, Uri};

use self::roots::Roots;
use crate::db::clones;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// Arguments of `gc`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo gc file:///data
  tombolo gc file:///data --delete
  tombolo gc s3://bucket --live orders --live eu/users            which databases would go, were these all that live
  tombolo gc s3://bucket --live orders --live eu/users --delete

Databases are found by their names, at any depth. Without --delete nothing is changed. Live databases, checkpoints, pins of readers and clones
keep what they use; of a destroyed database, with --delete, a reader's pin is waited for until it is renewed or its lease has run out. The pin of a clone that shares tables is given back once the clone's place shows that nobody needs it, and never because nothing is
found there. Logs and records are their writers' to delete; what belongs to no database is counted as foreign, and never touched.

With --live the databases that are not named are destroyed, by the rules of `tombolo db destroy`: those with checkpoints are not, nor those with which
another shares tables, and readers keep their tables. A name under which there is no database is refused before anything is done.")]
pub struct Arguments {
    /// The root under which databases lie, or one database, as a URI.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    root: String,
    /// Delete what was found.
    #[arg(long)]
    delete: bool,
    /// A database that lives, by its path below the root (`.` is the root itself). May be given
    /// several times; then all others are to go.
    #[arg(long, value_name = "PATH")]
    live: Vec<String>,
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

/// The databases under a root, and how many objects belong to none.
fn databases(env: &Env, store: &dyn ObjectStore) -> Result<(BTreeSet<String>, u64)> {
    let request = Request::new(Purpose::Collection, Epoch::NONE);
    let (mut roots, mut after) = (Roots::default(), None);
    loop {
        let page = env.block_on(store.list(request, "", after.as_ref(), NAMES_PER_LIST))?;
        for object in &page.objects {
            roots.take(object.name.as_str());
        }
        after = page.objects.last().map(|object| object.name.clone());
        if !page.more || after.is_none() {
            return Ok(roots.finish());
        }
    }
}

/// What became of a database of which this went wrong.
fn untouched(error: &Error, delete: bool) -> &'static str {
    // All is read, and judged, before anything is deleted.
    let is_refused = matches!(
        error.kind(),
        ErrorKind::InUse | ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Corrupt
    );
    if delete && !is_refused { "what was deleted of it stays so" } else { "nothing of it is touched" }
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let (env, registry) = (Env::real(), crate::database::registry());
    let root = Uri::parse(&arguments.root)?;
    let store = registry.open_object_store(&env, &root)?;
    let (databases, outside) = databases(&env, &*store)?;
    if databases.is_empty() && outside == 0 {
        let hint = format!("0 databases; nothing lies in {}: check the URI", root.shown());
        return output.result(|| json!({ "databases": 0, "outside": 0 }), || hint);
    }
    let live: BTreeSet<_> = arguments.live.iter().map(|path| directory_of(path)).collect();
    if let Some(unknown) = live.iter().find(|directory| !databases.contains(*directory)) {
        let known: Vec<_> =
            databases.iter().map(|directory| if directory.is_empty() { "." } else { directory }).collect();
        let message = format!(
            "there is no database {unknown:?} under {}, where there are: {}",
            root.shown(),
            known.join(", ")
        );
        return Err(Failure::Usage(message));
    }
    let (mut failed, mut doomed) = (None, Vec::new());
    for directory in &databases {
        let mut uri = root.clone();
        if !directory.is_empty() {
            uri.rest = format!("{}/{}", uri.rest.trim_end_matches('/'), directory.trim_end_matches('/'));
        }
        let store = registry.open_object_store(&env, &uri)?;
        if !live.is_empty() && !live.contains(directory) {
            doomed.push((store, uri));
            continue;
        }
        let swept = env.block_on(async {
            if arguments.delete {
                sweep::expire(&env, &store).await?;
            }
            let garbage = sweep::survey(&env, &store).await?;
            if arguments.delete {
                sweep::delete(&env, &store, &garbage).await?;
            }
            Ok::<_, Error>(garbage)
        });
        match swept {
            Ok(garbage) => report(&uri.to_string(), &garbage, arguments.delete, output)?,
            // Destroyed, or never completed: the rest of it goes when it is destroyed again.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                output.result(
                    || json!({ "database": uri.to_string(), "ended": true }),
                    || format!("{uri}: {}", error.message()),
                )?;
            }
            // One that is damaged does not keep the others from being swept.
            Err(error) => {
                let (shown, message) = (uri.to_string(), error.message().to_owned());
                let left = untouched(&error, arguments.delete);
                output.result(
                    || json!({ "database": shown, "error": message }),
                    || format!("{shown}: {message}; {left}"),
                )?;
                failed.get_or_insert(error);
            }
        }
        if let Err(error) = pins_of_clones(&env, &uri, arguments.delete, output)? {
            failed.get_or_insert(error);
        }
    }
    if let Err(error) = all_abandoned(&env, doomed, arguments.delete, output)? {
        failed.get_or_insert(error);
    }
    output.result(
        || json!({ "databases": databases.len(), "outside": outside }),
        || {
            let databases = text::counted(databases.len() as u64, "database");
            format!("{databases}; {} outside of all", text::counted(outside, "object"))
        },
    )?;
    output.finish()?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// A database's path below the root, as its objects' names begin.
fn directory_of(path: &str) -> String {
    let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty() && *segment != ".").collect();
    if segments.is_empty() { String::new() } else { format!("{}/", segments.join("/")) }
}

/// Asks each clone that shares a database's tables whether it needs them; says which do not, and
/// gives back what they kept if asked. A database that has ended may have some, too. The inner
/// error is the database's own.
fn pins_of_clones(
    env: &Env,
    uri: &Uri,
    delete: bool,
    output: &Output,
) -> Result<std::result::Result<(), Error>> {
    let shown = uri.to_string();
    let builder = || Db::builder(shown.clone()).env(env.clone()).registry(crate::database::registry());
    let clones = match env.block_on(builder().clones()) {
        Ok(clones) => clones,
        // Damage was told already.
        Err(error) => return Ok(Err(error)),
    };
    for clone in clones {
        let is_gone = clone.state == CloneState::Unneeded;
        if delete
            && is_gone
            && let Err(error) = env.block_on(builder().release_clone(clone.id, false))
        {
            return Ok(Err(error));
        }
        let done = match (is_gone, delete) {
            (true, true) => "given back",
            (true, false) => "would be given back",
            (false, _) => "kept",
        };
        let mut line = clones::to_json(&clone);
        line["database"] = json!(shown);
        line["given_back"] = json!(is_gone && delete);
        let tables = text::counted(clone.tables, "table");
        output.result(
            || line,
            || {
                format!(
                    "  {done}: {tables} shared with {}: {} (pin {:032x})",
                    clone.place, clone.why, clone.id
                )
            },
        )?;
        if clone.state == CloneState::Unknown && !output.is_json() {
            output.line(format!(
                "    if it is gone for good: tombolo db clones release {shown} {:032x} --force",
                clone.id
            ))?;
        }
    }
    Ok(Ok(()))
}

/// Databases that are not among the live ones, one after the other. One that was kept by another's
/// sharing its tables comes again once another has gone. The inner error is the first of those of
/// databases that stay.
fn all_abandoned(
    env: &Env,
    mut doomed: Vec<(Arc<dyn ObjectStore>, Uri)>,
    delete: bool,
    output: &Output,
) -> Result<std::result::Result<(), Error>> {
    loop {
        let (before, mut stays, mut failed) = (doomed.len(), Vec::new(), None);
        for (store, uri) in doomed {
            if let Err(error) = abandoned(env, &store, &uri, delete, output)? {
                failed.get_or_insert(error);
                stays.push((store, uri));
            }
        }
        match failed {
            Some(error) if stays.is_empty() || stays.len() == before => return Ok(Err(error)),
            Some(_) => doomed = stays,
            None => return Ok(Ok(())),
        }
    }
}

/// Says what a database that is not among the live ones holds, and destroys it if asked. The inner
/// error is the database's own.
fn abandoned(
    env: &Env,
    store: &Arc<dyn ObjectStore>,
    uri: &Uri,
    delete: bool,
    output: &Output,
) -> Result<std::result::Result<(), Error>> {
    let shown = uri.to_string();
    let outcome = env.block_on(async {
        let held = sweep::survey(env, store).await?;
        let objects = held.kept + held.objects.len() as u64;
        let bytes = held.kept_bytes + held.objects.iter().map(|object| object.bytes).sum::<u64>();
        let left = if delete {
            Some(
                Db::builder(shown.clone())
                    .env(env.clone())
                    .registry(crate::database::registry())
                    .take_over(TakeOver::Never)
                    .destroy()
                    .await?,
            )
        } else {
            None
        };
        Ok::<_, Error>((objects, bytes, left))
    });
    let (objects, bytes, left) = match outcome {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            output.result(
                || json!({ "database": shown, "ended": true }),
                || format!("{shown}: {}", error.message()),
            )?;
            return Ok(Ok(()));
        }
        Err(mut error) => {
            if error.kind() == ErrorKind::InUse {
                error = error.advice(format!(
                    "end that process; or `tombolo db destroy {shown} --yes --take-over`, from under it"
                ));
            }
            let (message, left) = (error.message().to_owned(), untouched(&error, delete));
            output.result(
                || json!({ "database": shown, "error": message }),
                || format!("{shown}: {message}; {left}"),
            )?;
            return Ok(Err(error));
        }
    };
    let done = match left {
        None => "would be destroyed",
        Some(left) if left.is_deleted() => "destroyed",
        Some(_) => "destroyed, but readers or other pins keep its tables: do it again once they are gone",
    };
    output.result(
        || {
            json!({
                "database": shown, "live": false, "objects": objects, "bytes": bytes,
                "destroyed": left.is_some()
            })
        },
        || {
            let objects = text::counted(objects, "object");
            format!("{shown}: not among the live databases, {objects} ({}): {done}", text::bytes(bytes))
        },
    )?;
    Ok(Ok(()))
}

fn report(database: &str, garbage: &Garbage, deleted: bool, output: &Output) -> Result<()> {
    let mut kinds: BTreeMap<GarbageKind, (u64, u64)> = BTreeMap::new();
    for object in &garbage.objects {
        let (count, bytes) = kinds.entry(object.kind).or_default();
        (*count, *bytes) = (*count + 1, *bytes + object.bytes);
    }
    output.result(
        || {
            let found: Vec<_> = kinds
                .iter()
                .map(
                    |(kind, (count, bytes))| json!({ "what": word(*kind), "objects": count, "bytes": bytes }),
                )
                .collect();
            json!({
                "database": database, "epoch": garbage.epoch.0, "kept": garbage.kept,
                "kept_bytes": garbage.kept_bytes,
                "foreign": garbage.foreign, "garbage": found, "deleted": deleted,
            })
        },
        || {
            let mut lines = vec![format!(
                "{database}: {} in use ({}), {} foreign",
                text::counted(garbage.kept, "object"),
                text::bytes(garbage.kept_bytes),
                text::count(garbage.foreign)
            )];
            let done = if deleted { "deleted" } else { "would go" };
            lines.extend(kinds.iter().map(|(kind, (count, bytes))| {
                format!(
                    "  {done}: {} {}, \
                        {}",
                    text::count(*count),
                    word(*kind),
                    text::bytes(*bytes)
                )
            }));
            lines.join("\n")
        },
    )
}
