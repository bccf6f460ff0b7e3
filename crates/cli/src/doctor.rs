//! `tombolo doctor`: what this machine and a store offer, and bad settings.
//!
//! The facts come from the library, which judges them; added are those that only the command line
//! knows: the build, the memory budget as it would be set, and whether what lies at the URI is a
//! database. Nothing of a database is changed, no writer is disturbed; a store of the cloud gets a
//! few small objects under `probe/`, which are removed again.

use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use tombolo::{Env, Epoch, Error, ErrorKind, Options};
use tombolo_env::FileSystemKind;
use tombolo_storage::backend::local::{file_system_kind, trial};
use tombolo_storage::facts::{self, Fact, Verdict};
use tombolo_storage::object::read_whole;
use tombolo_storage::probe::exclusive;
use tombolo_storage::{
    Life, LogStore, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Uri,
};

use crate::database::HowArguments;
use crate::failure::{Failure, Result};
use crate::machine::Machine;
use crate::output::Output;
use crate::text;

/// Arguments of `doctor`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo doctor                                             this machine
  tombolo doctor file:///data/orders                         and the store there, before or after a database is in it
  tombolo doctor file:///data/orders --set memory_bytes=8589934592
  tombolo doctor --set flash_cache_directory=/nvme/cache     and whether a flash cache may lie there
  tombolo --json doctor file:///data/orders | jq '.facts[] | select(.verdict != \"ok\")'

Each line is ok, warn (it works, slower or with less room than it could) or bad (it will fail, or can lose data), and says what to do.
Exit code 1 when something is bad. No database is changed, and no writer is disturbed. Writing is tried: with empty files in directories, with small
objects under probe/ elsewhere, which are removed again; the nodes of a near-compute log are asked whether they are there. What a store can do is measured by `tombolo bench store`.")]
pub struct Arguments {
    /// A store, as a URI; only this machine when not given.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    store: Option<String>,
    #[command(flatten)]
    how: HowArguments,
}

/// Facts of one kind.
struct Group {
    about: String,
    facts: Vec<Fact>,
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let env = Env::real();
    let options = Options::parse(arguments.how.settings.iter().map(String::as_str))?;
    if arguments.store.is_none() && arguments.how.log.is_some() {
        return Err(Failure::Usage("a log without a store: name the store too".to_owned()));
    }
    let mut groups = vec![machine(&env, &options)];
    let flash = tombolo::internals::flash_facts(&env, &options);
    if !flash.is_empty() {
        groups.push(Group { about: "flash cache".to_owned(), facts: flash });
    }
    if let Some(store) = &arguments.store {
        groups.extend(store_groups(&env, store, arguments.how.log.as_deref())?);
    }
    show(&groups, output)?;
    output.finish()?;
    let bad: Vec<_> =
        groups.iter().flat_map(|group| &group.facts).filter(|fact| fact.verdict == Verdict::Bad).collect();
    match bad[..] {
        [] => Ok(()),
        [fact] => Err(Failure::Check(format!("{} is bad", fact.name))),
        _ => Err(Failure::Check(format!(
            "{} are bad",
            bad.iter().map(|fact| fact.name).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn machine(env: &Env, options: &Options) -> Group {
    let machine = Machine::look();
    let mut all = vec![Fact::fine("processor", machine.processor.clone())];
    all.extend(facts::host(env));
    all.push(budget(options.memory_bytes, env.host_facts().memory_bytes));
    all.push(load(&machine));
    all.push(if cfg!(debug_assertions) {
        Fact::warning(
            "build",
            "without optimisation",
            "figures of this build mean nothing: cargo build --release",
        )
    } else {
        Fact::fine("build", format!("{}, optimised", env!("CARGO_PKG_VERSION")))
    });
    Group { about: "this machine".to_owned(), facts: all }
}

/// The memory budget against the memory that there is.
fn budget(budget: u64, memory: u64) -> Fact {
    let name = "memory budget";
    let value = format!("{} of {}", text::bytes(budget), text::bytes(memory));
    match () {
        () if budget >= memory => Fact::bad(
            name,
            value,
            "the process would be killed: --set memory_bytes to at most half of the memory",
        ),
        () if budget > memory / 4 * 3 => {
            let advice = "little is left for the page cache and other programs: --set memory_bytes to at \
                most half of the memory";
            Fact::warning(name, value, advice)
        }
        () => Fact::fine(name, value),
    }
}

fn load(machine: &Machine) -> Fact {
    #[allow(clippy::cast_precision_loss, reason = "a few cores")]
    let is_busy = machine.load > machine.cores as f64;
    let value = format!("{:.2} on {} cores", machine.load, machine.cores);
    match is_busy {
        true => {
            Fact::warning("load", value, "more wants to run than can: what is measured now is worth little")
        }
        false => Fact::fine("load", value),
    }
}

fn store_groups(env: &Env, store: &str, log: Option<&str>) -> Result<Vec<Group>> {
    let registry = crate::database::registry();
    let store = Uri::parse(store)?;
    let log = log.map(Uri::parse).transpose()?;
    let objects = registry.open_object_store(env, &store)?;
    let logs = registry.open_log_store(env, &store, log.as_ref(), &objects)?;
    let mut found = env.block_on(objects.facts(Request::new(Purpose::Open, Epoch::NONE)))?;
    found.extend(database(env, &objects));
    found.push(match store.scheme.as_str() {
        "file" => trial(env, &store.path()?),
        _ => writing(env, &objects),
    });
    if objects.traits().must_prove_put_if_absent {
        found.push(put_if_absent(env, &objects)?);
    }
    let mut groups = vec![Group { about: format!("store {store}"), facts: found }];
    let log = log.as_ref().unwrap_or(&store);
    let mut facts = survival(logs.as_ref());
    facts.extend(env.block_on(logs.facts())?);
    if log.scheme == "file" {
        facts.extend(form(log, &file_system_kind(env, &log.path()?)?));
        facts.push(trial(env, &log.path()?));
    }
    groups.push(Group { about: format!("log {log}"), facts });
    Ok(groups)
}

/// The form of a local log, where the file system makes it matter.
fn form(log: &Uri, kind: &FileSystemKind) -> Option<Fact> {
    let FileSystemKind::CopyOnWrite(name) = kind else { return None };
    Some(match log.parameter("form") {
        Some("mapped") => {
            let value = format!("mapped, and {name} copies on write");
            Fact::bad(
                "form",
                value,
                "a full disk kills the process: leave form=mapped out, and keep a tenth of the disk free",
            )
        }
        _ => Fact::fine("form", format!("written, since {name} copies on write")),
    })
}

/// Whether the store's put-if-absent is one, tried now, and when it was tried before.
fn put_if_absent(env: &Env, objects: &Arc<dyn ObjectStore>) -> Result<Fact> {
    let name = "put-if-absent";
    match env.block_on(exclusive::put_if_absent(env, objects)) {
        Ok(()) => {
            let recorded = env.block_on(exclusive::recorded(objects))?;
            let before = if recorded.is_some() { "; also when the database was created" } else { "" };
            Ok(Fact::fine(
                name,
                format!("one of {} won each of {} races{before}", exclusive::RACERS, exclusive::RACES),
            ))
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Ok(Fact::bad(name, error.to_string(), "create no database here: two writers could both own it"))
        }
        Err(error) => Ok(bad(name, &error)),
    }
}

/// What a refusal says, and what to do.
fn bad(name: &'static str, error: &Error) -> Fact {
    let advice = error.next_step().unwrap_or("check the URI, the credentials and the rights there");
    Fact::bad(name, error.message(), advice)
}

/// Puts a small object, reads it and deletes it.
fn writing(env: &Env, objects: &Arc<dyn ObjectStore>) -> Fact {
    let name = "writing";
    let request = Request::new(Purpose::Open, Epoch::NONE);
    let tried = env.block_on(async {
        let object = ObjectName::new(format!("probe/{:016x}{:016x}", env.random_u64(), env.random_u64()))?;
        let bytes = Bytes::from_static(b"tombolo doctor");
        let placement = Placement::new(ObjectKind::Other, Life::Short);
        objects.put_if_absent(request, &object, placement, bytes.clone()).await?;
        let read = read_whole(&**objects, request, &object, bytes.len() as u64).await;
        objects.delete(request, &object).await?;
        let found = read?;
        if found == bytes { Ok(()) } else { Err(Error::corrupt(&object, 0, "what was put", "other bytes")) }
    });
    match tried {
        Ok(()) => Fact::fine(name, "works: an object was put, read and deleted"),
        Err(error) => bad(name, &error),
    }
}

/// What lies at the URI.
fn database(env: &Env, objects: &Arc<dyn ObjectStore>) -> Vec<Fact> {
    let (world, store) = (env.clone(), Arc::clone(objects));
    match env.block_on(async move { tombolo::internals::load(&world, &store).await }) {
        Ok(loaded) => {
            let tables = text::counted(loaded.state.table_count() as u64, "table");
            let clock_ms = u64::try_from(env.unix_time().as_millis()).unwrap_or(u64::MAX);
            let said = format!(
                "epoch {}, {tables}, manifest record {}",
                loaded.state.epoch().0,
                loaded.state.slot()
            );
            let mut facts = vec![Fact::fine("database", said)];
            facts.extend(time(loaded.state.times().reached_ms, clock_ms));
            facts
        }
        Err(error) if error.kind() == ErrorKind::NotFound => vec![Fact::fine("database", "none here yet")],
        Err(error) => vec![Fact::bad(
            "database",
            Failure::from(error).to_string(),
            "restore what is damaged from a copy; without one `tombolo db salvage` says what can be had",
        )],
    }
}

/// So far a database's time may be ahead of the clock: a process that ended leaves it 70 s ahead.
const AHEAD_MS_MAX: u64 = 120_000;

/// The time by which values expire, where it has run ahead.
fn time(reached_ms: u64, clock_ms: u64) -> Option<Fact> {
    let ahead_ms = reached_ms.saturating_sub(clock_ms);
    (ahead_ms > AHEAD_MS_MAX).then(|| {
        let value = format!("{} s ahead of this host's clock: values end too early", ahead_ms / 1000);
        let advice = "if this clock is right, `tombolo db time URI --reset` within the hour: bytes go an hour after \
                      their end";
        Fact::warning("time", value, advice)
    })
}

fn survival(logs: &dyn LogStore) -> Vec<Fact> {
    let survival = logs.survival();
    vec![
        Fact::fine("kind", survival.store),
        Fact::fine("accepted writes", survival.accepted),
        Fact::fine("durable writes", survival.durable),
    ]
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "ok",
        Verdict::Warning => "warn",
        Verdict::Bad => "bad",
    }
}

fn show(groups: &[Group], output: &Output) -> Result<()> {
    if output.is_json() {
        let facts: Vec<_> = groups
            .iter()
            .flat_map(|group| group.facts.iter().map(move |fact| (group, fact)))
            .map(|(group, fact)| {
                json!({
                    "about": group.about, "name": fact.name, "value": fact.value,
                    "verdict": word(fact.verdict), "to_do": fact.advice
                })
            })
            .collect();
        return output.line(json!({ "facts": facts }));
    }
    for group in groups {
        output.line(&group.about)?;
        for fact in &group.facts {
            output.line(format!("  {:<4}  {:<16} {}", word(fact.verdict), fact.name, fact.value))?;
            if let Some(advice) = &fact.advice {
                output.line(format!("  {:<4}  {:<16} → {advice}", "", ""))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_log_is_bad_where_the_file_system_copies_on_write() {
        let verdict =
            |uri: &str, kind: FileSystemKind| form(&Uri::parse(uri).unwrap(), &kind).map(|fact| fact.verdict);
        let btrfs = || FileSystemKind::CopyOnWrite("btrfs".into());
        assert_eq!(verdict("file:///db", btrfs()), Some(Verdict::Fine));
        assert_eq!(verdict("file:///db?form=mapped", btrfs()), Some(Verdict::Bad));
        assert_eq!(verdict("file:///db?form=mapped", FileSystemKind::Local), None);
    }

    #[test]
    fn a_time_that_ran_ahead_is_told() {
        assert_eq!(time(1_000_000, 5_000_000).map(|fact| fact.verdict), None);
        assert_eq!(time(1_120_000, 1_000_000).map(|fact| fact.verdict), None);
        let ahead = time(1_180_000, 1_000_000).unwrap();
        assert_eq!(ahead.verdict, Verdict::Warning);
        assert!(ahead.value.starts_with("180 s ahead"), "{}", ahead.value);
        assert!(ahead.advice.unwrap().contains("db time URI --reset"));
    }

    #[test]
    fn budgets_are_judged_by_the_memory_that_there_is() {
        let verdict = |bytes| budget(bytes, 1000).verdict;
        assert_eq!(
            (verdict(500), verdict(900), verdict(1000)),
            (Verdict::Fine, Verdict::Warning, Verdict::Bad)
        );
    }
}
