//! The whole engine on one thread in virtual time, on a disk that loses what was not synced.
//!
//! A script of batches runs until the process or the power goes at a chosen operation. Then the
//! database is opened again, and must hold the state after some prefix of the batches: each whole,
//! none reordered, and none missing that was acknowledged and survives such an end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{Batch, Db, Durability, Env, KeyspaceOptions, Options, Result};
use tombolo_env::simulated::{Crash, World};

type State = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// What the writer has done, told outside the world.
#[derive(Debug)]
struct Log {
    /// The state after each prefix of the batches; the first is empty.
    states: Vec<State>,
    /// Batches acknowledged as durable, and as accepted: prefixes of the script.
    durable: usize,
    accepted: usize,
    finished: bool,
}

impl Log {
    fn new() -> Arc<Mutex<Log>> {
        Arc::new(Mutex::new(Log { states: vec![State::new()], durable: 0, accepted: 0, finished: false }))
    }
}

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap()
}

async fn open(env: &Env, uri: &str) -> Result<Db> {
    let (store, log) = uri.split_once(' ').unwrap_or((uri, "file:///db"));
    Db::builder(store).log(log).env(env.clone()).options(options()).open().await
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Whether the process has not ended: code goes on to the end of its poll after its process has,
/// and acknowledges nothing then.
fn alive(env: &Env) -> bool {
    !env.files().metadata(Path::new("/db")).is_err_and(|error| tombolo_env::simulated::is_crash(&error))
}

/// Runs `batches` batches with flushes and compactions between; some are pipelined.
async fn script(env: Env, uri: String, seed: u64, batches: usize, log: Arc<Mutex<Log>>) -> Result<()> {
    let mut db = open(&env, &uri).await?;
    let names = ["default", "second"];
    if db.keyspace("second").is_err() {
        db.create_keyspace("second", KeyspaceOptions::default()).await?;
    }
    let mut random = Random(seed);
    let mut pipelined = Vec::new();
    for number in 1..=batches {
        let mut state = log.lock().states.last().cloned().unwrap_or_default();
        let mut batch = Batch::new();
        for _ in 0..=random.below(3) {
            let name = names[random.below(2) as usize];
            let keyspace = db.keyspace(name)?;
            let key = format!("key-{}", random.below(12)).into_bytes();
            if random.below(4) == 0 {
                batch.delete(&keyspace, &key);
                state.remove(&(name.to_owned(), key));
            } else {
                let value = format!("{number}:{}", "x".repeat(random.below(300) as usize)).into_bytes();
                batch.put(&keyspace, &key, &value);
                state.insert((name.to_owned(), key), value);
            }
        }
        log.lock().states.push(state);
        let durability = if random.below(3) == 0 { Durability::Accepted } else { Durability::Durable };
        let write = db.write_with(batch, durability);
        match (durability, random.below(3)) {
            (Durability::Durable, 0) => pipelined.push(write),
            (Durability::Durable, _) => {
                write.await?;
                if alive(&env) {
                    log.lock().durable = number;
                }
            }
            _ => {
                write.await?;
                if alive(&env) {
                    log.lock().accepted = number;
                }
                if random.below(3) == 0 {
                    db.sync().await?;
                    if alive(&env) {
                        log.lock().durable = number;
                    }
                }
            }
        }
        if number == batches / 2 {
            // Without a close, so that the logs are replayed and end with the flush of what they
            // held.
            for write in pipelined.drain(..) {
                write.await?;
            }
            drop(db);
            db = open(&env, &uri).await?;
        }
        match random.below(16) {
            0 => db.flush().await?,
            1 => db.compact().await?,
            _ => {}
        }
    }
    for write in pipelined {
        write.await?;
    }
    let all = log.lock().states.len() - 1;
    if alive(&env) {
        log.lock().durable = all;
    }
    db.close().await?;
    log.lock().finished = true;
    Ok(())
}

/// All that the database holds, read forward and backward.
async fn contents(db: &Db) -> Result<State> {
    let mut state = State::new();
    for keyspace in db.keyspaces() {
        let mut scan = keyspace.scan::<&[u8]>(..);
        let mut forward = Vec::new();
        while let Some((key, value)) = scan.next_async().await? {
            assert_eq!(keyspace.get(&key).await?.as_ref(), Some(&value), "get and scan agree");
            forward.push((key, value));
        }
        let mut backward = Vec::new();
        while let Some(entry) = scan.prev_async().await? {
            backward.push(entry);
        }
        backward.reverse();
        assert_eq!(forward, backward, "both directions agree");
        state.extend(
            forward
                .into_iter()
                .map(|(key, value)| ((keyspace.name().to_owned(), key.to_vec()), value.to_vec())),
        );
    }
    Ok(state)
}

/// Opens what a crash left, checks it, writes on, and checks again after a clean end.
fn check_after(world: &World, uri: &str, log: &Mutex<Log>, survived: usize, what: &str) {
    let checker = world.process("checker");
    let (env, place) = (checker.env(), uri.to_owned());
    let found = checker.run(async move {
        let db = open(&env, &place).await?;
        let found = contents(&db).await?;
        db.default_keyspace().put(b"after", b"the crash").await?;
        db.flush().await?;
        assert!(db.verify().await?.damage.is_empty());
        db.close().await?;
        Ok::<_, tombolo::Error>(found)
    });
    let found = found.expect("nothing ends the checker").unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = log.lock();
    let prefix = log.states.iter().rposition(|state| *state == found);
    let Some(prefix) = prefix else {
        panic!(
            "{what}: the database holds no prefix of the {} batches\nfound: {found:?}\n{:#?}",
            log.states.len() - 1,
            world.trace()
        );
    };
    // Several prefixes may have the same state: the longest counts.
    assert!(
        prefix >= survived,
        "{what}: {survived} batches were acknowledged, {prefix} are found\n{:#?}",
        world.trace()
    );
    let again = world.process("again");
    let (env, place) = (again.env(), uri.to_owned());
    let mut expected = found;
    expected.insert(("default".into(), b"after".to_vec()), b"the crash".to_vec());
    let found = again.run(async move { contents(&open(&env, &place).await?).await }).unwrap().unwrap();
    assert_eq!(found, expected, "{what}: after the second opening");
}

/// Mutations of the disk that the script makes when nothing happens.
fn mutations(uri: &str, seed: u64, batches: usize) -> u64 {
    let world = World::new(seed);
    let writer = world.process("writer");
    let log = Log::new();
    writer.run(script(writer.env(), uri.to_owned(), seed, batches, Arc::clone(&log))).unwrap().unwrap();
    assert!(log.lock().finished);
    check_after(&world, uri, &log, batches, "without a crash");
    writer.mutations()
}

/// Batches of the script: the number of crashes grows with it, and so does the cost of each.
fn batches() -> usize {
    if crate::is_deep() { 24 } else { 16 }
}

/// So manieth mutation; in a deep run every one.
fn every(few: usize) -> usize {
    if crate::is_deep() { 1 } else { few }
}

fn crash_everywhere(uri: &str, seed: u64, batches: usize, crash: Crash, step: usize) {
    let total = mutations(uri, seed, batches);
    assert!(total > 50, "the script writes: {total} mutations");
    for number in (1..=total).step_by(step) {
        let world = World::new(seed);
        let writer = world.process("writer");
        writer.crash_at_mutation(number, crash);
        let log = Log::new();
        let ended = writer.run(script(writer.env(), uri.to_owned(), seed, batches, Arc::clone(&log)));
        if ended.is_some_and(|ended| ended.is_ok()) {
            continue;
        }
        let survived = {
            let log = log.lock();
            if crash == Crash::PowerLoss { log.durable } else { log.durable.max(log.accepted) }
        };
        check_after(
            &world,
            uri,
            &log,
            survived,
            &format!("{uri} seed {seed}, {crash:?} at mutation {number} of {total}"),
        );
    }
}

const MAPPED: &str = "file:///db file:///db?form=mapped";
const WRITTEN: &str = "file:///db file:///db?form=written";

#[test]
fn power_loss_at_any_mutation_loses_nothing_durable_with_the_mapped_log() {
    crash_everywhere(MAPPED, 1, batches(), Crash::PowerLoss, every(3));
}

#[test]
fn power_loss_at_any_mutation_loses_nothing_durable_with_the_written_log() {
    crash_everywhere(WRITTEN, 2, batches(), Crash::PowerLoss, every(3));
}

#[test]
fn a_kill_at_any_mutation_loses_nothing_accepted() {
    crash_everywhere(MAPPED, 3, batches(), Crash::Kill, every(7));
    crash_everywhere(WRITTEN, 4, batches(), Crash::Kill, every(7));
}

#[cfg(feature = "mutants")]
mod mutants {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tombolo_storage::mutant::{Mutant, enable};

    use super::*;

    /// Whether some crash of the script shows that a rule was taken out. Several seeds: the moment
    /// between an answer and the record that it should have waited for is short, and not in every
    /// schedule is a write acknowledged within it.
    fn is_noticed(mutant: Mutant, crash: Crash) -> bool {
        let _guard = enable(mutant);
        [MAPPED, WRITTEN].iter().any(|uri| {
            (1..=8).any(|seed| {
                catch_unwind(AssertUnwindSafe(|| crash_everywhere(uri, seed, 24, crash, 1))).is_err()
            })
        })
    }

    #[test]
    fn serving_before_the_log_is_named_is_noticed() {
        assert!(is_noticed(Mutant::LogServeBeforeNamed, Crash::Kill));
    }

    #[test]
    fn freeing_a_log_before_the_record_that_ends_it_is_noticed() {
        assert!(is_noticed(Mutant::LogFreeBeforeReplayPointDurable, Crash::Kill));
    }
}
