//! The same histories on a real store, in real time: `cargo xtask real --stage metamorphic`.
//!
//! `seed → history → for each set of options: a database of its own below the URI → what each operation answers → destroyed`.
//! The sets keep their options, and lie on one store, whose own log they have. A crash in the
//! simulated world is here a handle that is dropped, with all that it was doing, and another that
//! takes the database over: processes that are killed are `tombolo crash`'s.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Options};
use tombolo_env::Env;
use tombolo_storage::Uri;

use super::history::{Action, history};
use super::sets::{OptionSet, SETS};
use super::{ACTIONS, Shared, live, unexpected};
use crate::failure::Violation;

/// Where the sets' flash caches lie in the simulated world.
const SIMULATED_CACHE: &str = "/cache/flash";

/// A store to run histories on.
#[derive(Clone, Copy, Debug)]
pub struct Real<'a> {
    /// Databases lie below it.
    pub store: &'a Uri,
    /// A directory of this host, for flash caches.
    pub scratch: &'a Path,
    /// The first history.
    pub seed: u64,
    /// No other set is begun after that time.
    pub limit: Duration,
}

/// The run on a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Histories that were begun.
    pub histories: u64,
    /// Sets under which one was run to its end.
    pub sets: u64,
    /// Times that a database was opened.
    pub opened: u64,
    /// Operations whose answers were compared.
    pub operations: u64,
}

/// Runs one history after the other, each under every set, until the time is over.
///
/// # Errors
/// The first answer that is not that of an ordered map, or an error, with the seed and the set.
pub fn on_store(env: &Env, real: Real<'_>) -> Result<Ran, Violation> {
    let end = env.now() + real.limit;
    let mut ran = Ran::default();
    for seed in real.seed.. {
        // Nobody waits for hours to pass: nothing ends here.
        let passes = |action: &Action| matches!(action, Action::Pass);
        let actions: Vec<_> = history(seed, ACTIONS).into_iter().filter(|action| !passes(action)).collect();
        let actions = Arc::new(actions);
        ran.histories += 1;
        for set in SETS {
            if env.now() >= end && ran.sets > 0 {
                return Ok(ran);
            }
            ran.opened += run_set(env, real, set, &actions)
                .map_err(|violation| violation.at(format!("seed {seed}, option set {:?}", set.name)))?;
            ran.sets += 1;
            ran.operations += actions.len() as u64;
        }
    }
    Ok(ran)
}

/// Runs a history under a set; how often it opened the database.
fn run_set(
    env: &Env,
    real: Real<'_>,
    set: &'static OptionSet,
    actions: &Arc<Vec<Action>>,
) -> Result<u64, Violation> {
    let name = format!("{:016x}", env.random_u64());
    let mut store = real.store.clone();
    store.rest = format!("{}-{name}", store.rest.trim_end_matches('/'));
    let cache = real.scratch.join(&name).display().to_string();
    let options: Vec<String> =
        set.options.iter().map(|option| option.replace(SIMULATED_CACHE, &cache)).collect();
    let options =
        Options::parse(options.iter().map(String::as_str)).map_err(|error| unexpected("the set", &error))?;
    let shared = Shared::new(set, (store.to_string(), None), options, actions, env.unix_time());
    let (mut next, mut opened) = (0, 0);
    while next < actions.len() {
        opened += 1;
        next = env.block_on(live(env.clone(), shared.clone(), next))?.next;
    }
    env.block_on(async { Db::builder(store.to_string()).env(env.clone()).destroy().await })
        .map(|_destroyed| opened)
        .map_err(|error| unexpected("destroying", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on a store in a directory of this host, which is removed.
    fn in_a_directory<T>(seed: u64, work: impl FnOnce(&Env, Real<'_>) -> T) -> T {
        let env = Env::real();
        let directory = std::env::temp_dir().join(format!(
            "tombolo-metamorphic-{}-{:x}",
            std::process::id(),
            env.random_u64()
        ));
        let store = Uri::parse(&format!("file://{}/db", directory.display())).unwrap();
        let done = work(&env, Real { store: &store, scratch: &directory, seed, limit: Duration::ZERO });
        std::fs::remove_dir_all(&directory).unwrap();
        done
    }

    #[test]
    fn a_directory_of_this_host_is_a_store_as_well() {
        let ran = in_a_directory(3, on_store).unwrap();
        assert_eq!((ran.histories, ran.sets), (1, 1));
        assert!(ran.operations > ACTIONS as u64 * 9 / 10);
        assert!(ran.opened >= 1);
    }

    #[test]
    fn tables_from_outside_are_those_of_one_database() {
        let is_ingest = |action: &Action| matches!(action, Action::Ingest(..));
        let create = |action: &Action| matches!(action, Action::Create(_));
        let all = history(3, ACTIONS);
        let created = all.iter().filter(|action| create(action));
        let ingested = all.iter().find(|action| is_ingest(action)).expect("a history has each kind");
        let actions = Arc::new(created.chain([ingested]).cloned().collect());
        in_a_directory(3, |env, real| {
            for _ in 0..2 {
                run_set(env, real, &SETS[0], &actions).unwrap();
            }
        });
    }
}
