//! In the simulated world: loss of power at every operation, full and read-only disks, failing
//! operations, races between processes.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tombolo_env::simulated::{Action, Crash, Fault, OperationKind, Process, World};

use super::*;
use crate::conformance;
use crate::layer::fault::{FaultObjectStore, FaultPlan};
use crate::layer::trace::{TraceObjectStore, Tracer};

const ROOT: &str = "/data/store";

fn open(env: &Env) -> Result<LocalObjectStore> {
    LocalObjectStore::new(env, ROOT, LocalOptions::default())
}

/// What a history was told, noted only while its process lives.
#[derive(Default)]
struct Told {
    /// Objects that must be there, with their bytes.
    there: BTreeMap<String, Bytes>,
    /// Names that must be gone.
    gone: Vec<String>,
}

type Notes = Arc<Lock<Told>>;

/// Notes something if the process lives.
fn note(process: &Process, notes: &Notes, what: impl FnOnce(&mut Told)) {
    if process.is_alive() {
        what(&mut notes.lock());
    }
}

/// Bytes of each object of the history, by its name.
fn bytes_of(object: &str) -> Bytes {
    let seed = object.bytes().map(u64::from).sum();
    pattern(seed, if object == "stream" { 9_000 } else { 700 })
}

/// The scripted history. Errors are returned only where `strict`; whatever happens, what was told
/// is noted.
async fn history(process: Process, notes: Notes) -> Result<()> {
    // Half of the histories write and read past the page cache.
    let direct = process.world().seed() % 2 == 1;
    let store =
        LocalObjectStore::new(&process.env(), ROOT, LocalOptions { direct, ..LocalOptions::default() })?;
    for object in ["a", "x/y/c", "x/b", "x/b", "a"] {
        match put(&store, object, bytes_of(object)).await? {
            PutOutcome::Created | PutOutcome::Exists => note(&process, &notes, |told| {
                told.there.insert(object.into(), bytes_of(object));
            }),
        }
    }
    let mut writer =
        store.create(request(), &name("stream"), Placement::new(ObjectKind::Table, Life::Short)).await?;
    for piece in bytes_of("stream").chunks(1000) {
        writer.append(Bytes::copy_from_slice(piece)).await?;
    }
    writer.finish().await?;
    note(&process, &notes, |told| drop(told.there.insert("stream".into(), bytes_of("stream"))));
    store.copy(request(), &name("a"), &name("x/copy")).await?;
    note(&process, &notes, |told| drop(told.there.insert("x/copy".into(), bytes_of("a"))));
    for object in listed(&store, "").await? {
        let bytes = if object == "x/copy" { bytes_of("a") } else { bytes_of(&object) };
        note(&process, &notes, |told| drop(told.there.insert(object, bytes)));
    }
    // Neither there nor gone from the moment the deletion begins.
    note(&process, &notes, |told| drop(told.there.remove("x/b")));
    store.delete(request(), &name("x/b")).await?;
    note(&process, &notes, |told| told.gone.push("x/b".into()));
    store.sweep(request()).await?;
    Ok(())
}

/// What a process finds after a crash: all that was told, nothing torn, and a store that works.
async fn inspect(env: Env, notes: Notes) -> std::result::Result<(), String> {
    let fail = |error: Error| format!("an error after the crash: {error}");
    let store = open(&env).map_err(fail)?;
    let found = listed(&store, "").await.map_err(fail)?;
    for object in &found {
        let expected = if object == "x/copy" { bytes_of("a") } else { bytes_of(object) };
        if read(&store, object).await.map_err(fail)? != expected {
            return Err(format!("{object} is torn"));
        }
    }
    let (there, gone) = {
        let told = notes.lock();
        (told.there.clone(), told.gone.clone())
    };
    for object in there.keys() {
        if !found.contains(object) {
            return Err(format!("{object} was created and is gone"));
        }
    }
    if let Some(object) = gone.iter().find(|object| found.contains(object)) {
        return Err(format!("{object} was deleted and is back"));
    }
    store.sweep(request()).await.map_err(fail)?;
    let temporary = env.files().list_atomically(&Path::new(ROOT).join(TEMPORARY_DIRECTORY));
    match temporary {
        Ok(entries) if entries.is_empty() => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return Err(format!("temporary files of a dead process stay: {other:?}")),
    }
    for object in ["a", "x/y/c", "x/b", "fresh/one"] {
        put(&store, object, bytes_of(object)).await.map_err(fail)?;
        if read(&store, object).await.map_err(fail)? != bytes_of(object) {
            return Err(format!("{object} put after the crash reads wrong"));
        }
    }
    Ok(())
}

/// Runs the history with a crash at operation `number`, then inspects.
fn crash_at(seed: u64, number: u64, crash: Crash) -> std::result::Result<(), String> {
    let world = World::new(seed);
    let (process, notes) = (world.process("writer"), Notes::default());
    process.crash_at(number, crash);
    if process.run(history(process.clone(), Arc::clone(&notes))).is_some() {
        return Err(format!("the history ended before operation {number}"));
    }
    // What was told before the crash holds; a second loss of power changes nothing.
    for _ in 0..2 {
        let inspector = world.process("inspector");
        match inspector.run(inspect(inspector.env(), Arc::clone(&notes))) {
            Some(verdict) => {
                verdict.map_err(|what| format!("seed {seed}, {crash:?} at operation {number}: {what}"))?;
            }
            None => return Err("the inspector ended".into()),
        }
        notes.lock().gone.clear();
        world.host(0).power_loss();
    }
    Ok(())
}

fn operations_of_history(seed: u64) -> u64 {
    let world = World::new(seed);
    let process = world.process("writer");
    process.run(history(process.clone(), Notes::default())).expect("it lives").expect("no errors");
    process.operations()
}

/// Crashes at every operation; the first violation.
fn crash_everywhere(seeds: std::ops::Range<u64>, crash: Crash) -> std::result::Result<(), String> {
    for seed in seeds {
        let operations = operations_of_history(seed);
        assert!(operations > 60, "{operations}");
        for number in 1..=operations {
            crash_at(seed, number, crash)?;
        }
    }
    Ok(())
}

#[test]
fn every_promise_is_kept_in_memory_on_disk_and_through_layers() {
    for seed in 0..6 {
        let world = World::new(seed);
        world.set_preemption_probability(0.3);
        let process = world.process("tester");
        let env = process.env();
        let memory: Arc<dyn ObjectStore> = Arc::new(crate::backend::memory::MemoryObjectStore::unnamed(&env));
        let local: Arc<dyn ObjectStore> = Arc::new(open(&env).expect("a store"));
        let stores = [
            Arc::clone(&memory),
            Arc::clone(&local),
            Arc::new(
                LocalObjectStore::new(
                    &env,
                    "/data/direct",
                    LocalOptions { direct: true, ..LocalOptions::default() },
                )
                .expect("a store"),
            ),
            Arc::new(FaultObjectStore::new(&env, memory, FaultPlan::scripted())),
            Arc::new(TraceObjectStore::new(local, Tracer::new(&env))),
        ];
        for store in stores {
            let what = format!("{store:?}");
            let verdict = process.run({
                let env = env.clone();
                async move { conformance::object_store(&env, store).await }
            });
            assert_eq!(verdict, Some(Ok(())), "seed {seed}: {what}");
        }
    }
}

#[test]
fn nothing_told_is_lost_when_the_power_goes_at_any_operation() {
    crash_everywhere(0..8, Crash::PowerLoss).expect("all promises");
}

#[test]
fn nothing_told_is_lost_when_the_process_is_killed_at_any_operation() {
    crash_everywhere(0..2, Crash::Kill).expect("all promises");
}

/// Two processes put one name; the power goes at operation `number` of the first. At most one was
/// told `Created`, what anybody was told stays, and both see the same object.
fn race_with_power_loss(seed: u64, number: u64) -> std::result::Result<(), String> {
    let world = World::new(seed);
    world.set_preemption_probability(0.4);
    let told: Arc<Lock<Vec<(u64, PutOutcome, Bytes)>>> = Arc::default();
    let racer = |process: Process, racer: u64| {
        let told = Arc::clone(&told);
        async move {
            let Ok(store) = open(&process.env()) else { return };
            let Ok(outcome) = put(&store, "d/slot", pattern(racer, 600)).await else { return };
            let Ok(seen) = read(&store, "d/slot").await else { return };
            if process.is_alive() {
                told.lock().push((racer, outcome, seen));
            }
        }
    };
    let (one, other) = (world.process("one"), world.process("other"));
    one.crash_at(number, Crash::PowerLoss);
    let second = other.env().spawn(tombolo_env::TaskClass::Foreground, "racer", racer(other.clone(), 2));
    let _ = one.run(racer(one.clone(), 1));
    world.run_until_idle();
    drop(second);
    world.host(0).power_loss();
    let inspector = world.process("inspector");
    let held = inspector.run({
        let env = inspector.env();
        async move { read(&open(&env).ok()?, "d/slot").await.ok() }
    });
    let told = told.lock();
    if told.iter().filter(|(_, outcome, _)| *outcome == PutOutcome::Created).count() > 1 {
        return Err(format!("seed {seed}, operation {number}: two winners"));
    }
    for (racer, outcome, seen) in &*told {
        if held.as_ref().and_then(Option::as_ref) != Some(seen) {
            return Err(format!(
                "seed {seed}, operation {number}: racer {racer} was told {outcome:?}, and what it read is \
                gone"
            ));
        }
    }
    Ok(())
}

fn race_everywhere() -> std::result::Result<(), String> {
    for number in 1..=40 {
        for seed in 0..40 {
            race_with_power_loss(seed, number)?;
        }
    }
    Ok(())
}

#[test]
fn one_of_two_processes_wins_a_name_and_stays_the_winner() {
    race_everywhere().expect("all promises");
}

/// A process is killed between naming an object and syncing its directory. Another is told of the
/// object by `ask`; then the power goes.
fn seen_then_power_loss<F>(
    seed: u64,
    ask: impl FnOnce(LocalObjectStore) -> F,
) -> std::result::Result<(), String>
where
    F: Future<Output = bool> + Send + 'static,
{
    let world = World::new(seed);
    world.set_write_back_probability(0.0);
    let maker = world.process("maker");
    let prepare = {
        let env = maker.env();
        async move { put(&open(&env)?, "d/first", pattern(1, 10)).await }
    };
    maker.run(prepare).expect("it lives").expect("put");
    let linked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&linked);
    world.inject(Fault::new(Action::Crash(Crash::Kill), move |operation| {
        if operation.kind == OperationKind::HardLink && operation.path.ends_with("d/object") {
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        operation.kind == OperationKind::SyncDirectory && seen.load(std::sync::atomic::Ordering::SeqCst)
    }));
    let making = {
        let env = maker.env();
        async move { put(&open(&env)?, "d/object", pattern(2, 10)).await }
    };
    if maker.run(making).is_some() {
        return Err("the maker was to die".into());
    }
    let observer = world.process("observer");
    let told = observer.run(ask(open(&observer.env()).map_err(|error| error.to_string())?)).unwrap_or(false);
    if !told {
        return Err(format!("seed {seed}: the observer was not told of the object"));
    }
    world.host(0).power_loss();
    let inspector = world.process("inspector");
    let held = inspector.run({
        let env = inspector.env();
        async move { read(&open(&env)?, "d/object").await }
    });
    match held {
        Some(Ok(bytes)) if bytes == pattern(2, 10) => Ok(()),
        other => Err(format!("seed {seed}: the object that was shown is {other:?}")),
    }
}

fn exists_is_durable(seed: u64) -> std::result::Result<(), String> {
    seen_then_power_loss(seed, |store| async move {
        matches!(put(&store, "d/object", pattern(3, 10)).await, Ok(PutOutcome::Exists))
    })
}

fn listed_is_durable(seed: u64) -> std::result::Result<(), String> {
    seen_then_power_loss(seed, |store| async move {
        store.list(request(), "d/o", None, 1).await.is_ok_and(|page| page.objects.len() == 1)
    })
}

#[test]
fn what_exists_or_is_listed_is_durable() {
    for seed in 0..30 {
        exists_is_durable(seed).expect("durable");
        listed_is_durable(seed).expect("durable");
    }
}

#[test]
fn an_error_of_any_operation_is_told_and_breaks_nothing() {
    let operations = operations_of_history(0).max(operations_of_history(1));
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull, io::ErrorKind::PermissionDenied] {
        for number in 1..=operations {
            let world = World::new(number);
            let (process, notes) = (world.process("writer"), Notes::default());
            process.fail_at(number, kind);
            let outcome = process.run(history(process.clone(), Arc::clone(&notes))).expect("it lives");
            if let Err(error) = &outcome {
                assert!(error.object_name().is_some(), "no place in {error}");
                let fits = match kind {
                    io::ErrorKind::StorageFull => {
                        matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::OutcomeUnknown)
                    }
                    io::ErrorKind::PermissionDenied => {
                        matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::OutcomeUnknown)
                    }
                    _ => matches!(error.kind(), ErrorKind::Retry | ErrorKind::OutcomeUnknown),
                };
                assert!(fits, "{kind:?} at operation {number} became {error}");
            }
            process.kill();
            let inspector = world.process("inspector");
            let verdict = inspector.run(inspect(inspector.env(), notes)).expect("it lives");
            verdict.unwrap_or_else(|what| panic!("{kind:?} at operation {number} ({outcome:?}): {what}"));
        }
    }
}

#[test]
fn only_an_unknown_outcome_leaves_an_object_behind() {
    for number in 1..=40 {
        let world = World::new(number);
        let process = world.process("writer");
        process.fail_at(number, io::ErrorKind::Other);
        let putting = {
            let env = process.env();
            async move { put(&open(&env)?, "d/object", pattern(1, 600)).await }
        };
        let outcome = process.run(putting).expect("it lives");
        let reader = world.process("reader");
        let reading = {
            let env = reader.env();
            async move { read(&open(&env)?, "d/object").await }
        };
        let held = reader.run(reading).expect("it lives").is_ok();
        match outcome {
            Ok(outcome) => assert!(held && outcome == PutOutcome::Created, "operation {number}"),
            Err(error) => {
                assert!(!held || error.kind() == ErrorKind::OutcomeUnknown, "operation {number}: {error}");
            }
        }
    }
}

#[test]
fn a_full_disk_leaves_nothing_behind_and_damages_nothing() {
    let world = World::new(1);
    let process = world.process("writer");
    let host = world.host(0);
    let run = |what: &'static str, bytes: usize| {
        let env = process.env();
        process
            .run(async move {
                let store = open(&env)?;
                let mut writer = store.create(request(), &name(what), placement()).await?;
                for piece in pattern(3, bytes).chunks(100_000) {
                    writer.append(Bytes::copy_from_slice(piece)).await?;
                }
                writer.finish().await?;
                put(&store, &format!("{what}-small"), pattern(4, 5000)).await
            })
            .expect("it lives")
    };
    run("before", 50_000).expect("room");
    let used = host.used();
    host.set_capacity(Some(used + 400_000));
    for round in 0..3 {
        let error = run("large", 1_000_000).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert!(
            error.next_step().is_some_and(|advice| advice.contains("free space"))
                && error.object_name().is_some(),
            "{error}"
        );
        // The removal of a name frees its file for certain once it is durable.
        process.files().sync_directory(&Path::new(ROOT).join(TEMPORARY_DIRECTORY)).expect("synced");
        assert_eq!(host.used(), used, "round {round} left something behind");
    }
    let env = process.env();
    process
        .run(async move {
            let store = open(&env).expect("a store");
            assert_eq!(read(&store, "before").await.expect("read"), pattern(3, 50_000));
            assert_eq!(listed(&store, "").await.expect("listed"), ["before", "before-small"]);
            store.delete(request(), &name("before")).await.expect("deleting needs no space");
        })
        .expect("it lives");
    host.set_capacity(None);
    run("large", 1_000_000).expect("room again");
}

#[test]
fn a_read_only_disk_is_read() {
    let world = World::new(1);
    let process = world.process("writer");
    let notes = Notes::default();
    process.run(history(process.clone(), notes)).expect("it lives").expect("no errors");
    world.host(0).set_read_only(true);
    let env = process.env();
    process
        .run(async move {
            let store = open(&env).expect("a store");
            for (what, outcome) in [
                ("put", put(&store, "new", Bytes::new()).await.map(drop)),
                ("put below", put(&store, "new/below", Bytes::new()).await.map(drop)),
                ("create", store.create(request(), &name("new"), placement()).await.map(drop)),
                ("copy", store.copy(request(), &name("a"), &name("new")).await.map(drop)),
                ("delete", store.delete(request(), &name("a")).await),
            ] {
                let error = outcome.expect_err(what);
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
                assert!(
                    error.next_step().is_some_and(|advice| advice.contains("read-only")),
                    "{what}: {error}"
                );
            }
            assert_eq!(
                put(&store, "a", Bytes::new()).await.expect("a taken name needs no writing"),
                PutOutcome::Exists
            );
            assert_eq!(listed(&store, "").await.expect("listed"), ["a", "stream", "x/copy", "x/y/c"]);
            assert_eq!(read(&store, "a").await.expect("read"), bytes_of("a"));
        })
        .expect("it lives");
}

#[test]
fn network_file_systems_are_refused_unless_vouched_for() {
    let world = World::new(1);
    world.host(0).set_kind(FileSystemKind::Network("nfs".into()));
    let env = world.process("p").env();
    let error = LocalObjectStore::new(&env, ROOT, LocalOptions::default()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("nfs") && error.to_string().contains("single_host=yes"), "{error}");
    assert!(
        LocalObjectStore::new(&env, ROOT, LocalOptions { single_host: true, ..LocalOptions::default() })
            .is_ok()
    );
}

#[test]
fn what_is_bad_about_a_disk_is_said() {
    let world = World::new(1);
    let env = world.process("p").env();
    let verdict_of = |name: &str| {
        let store =
            LocalObjectStore::new(&env, ROOT, LocalOptions { single_host: true, ..LocalOptions::default() })
                .expect("a store");
        let facts = store.judge().expect("facts");
        facts.into_iter().find(|fact| fact.name == name).map(|fact| fact.verdict).expect("the fact")
    };
    use crate::facts::Verdict;
    assert_eq!(
        [verdict_of("file system"), verdict_of("space"), verdict_of("mount options")],
        [Verdict::Fine; 3]
    );
    world.host(0).set_capacity(Some(1 << 30));
    assert_eq!(verdict_of("space"), Verdict::Warning);
    world.host(0).set_capacity(Some(1 << 20));
    assert_eq!(verdict_of("space"), Verdict::Bad);
    world.host(0).set_read_only(true);
    assert_eq!(verdict_of("mount options"), Verdict::Bad);
    world.host(0).set_kind(FileSystemKind::Network("nfs".into()));
    assert_eq!(verdict_of("file system"), Verdict::Bad);
}

/// A process is killed in the middle of a stream while another is in the middle of its own.
fn sweep_beside_the_living() -> std::result::Result<(), String> {
    let world = World::new(1);
    let (dead, living) = (world.process("dead"), world.process("living"));
    let begin = |process: &Process, object: &'static str| {
        let env = process.env();
        let begun = process.run(async move {
            let mut writer = open(&env)?.create(request(), &name(object), placement()).await?;
            writer.append(pattern(1, 300_000)).await?;
            Ok::<_, Error>(writer)
        });
        begun.expect("it lives").expect("begun")
    };
    let abandoned = begin(&dead, "abandoned");
    let writer = begin(&living, "object");
    dead.kill();
    let sweeper = world.process("sweeper");
    let swept = sweeper.run({
        let env = sweeper.env();
        async move { open(&env)?.sweep(request()).await }
    });
    drop(abandoned);
    let finished = living.run(writer.finish()).expect("it lives");
    match (swept, finished) {
        (Some(Ok(1)), Ok(_)) => Ok(()),
        other => Err(format!("a sweep beside a living process: {other:?}")),
    }
}

#[test]
fn a_sweep_takes_only_what_belongs_to_the_dead() {
    sweep_beside_the_living().expect("only the dead's");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let digest = |seed| {
        let world = World::new(seed);
        let process = world.process("tester");
        let env = process.env();
        let store = Arc::new(open(&env).expect("a store"));
        process
            .run(async move { conformance::object_store(&env, store).await })
            .expect("it lives")
            .expect("all promises");
        world.run_for(Duration::from_secs(1));
        world.digest()
    };
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use crate::mutant::enable;

    fn caught(mutant: Mutant, check: impl Fn() -> std::result::Result<(), String>) {
        check().expect("nothing to catch without the mutant");
        let _on = enable(mutant);
        assert!(check().is_err(), "{mutant:?} was not caught");
    }

    fn some_seeds(check: impl Fn(u64) -> std::result::Result<(), String>) -> std::result::Result<(), String> {
        (0..30).try_for_each(check)
    }

    #[test]
    fn naming_before_syncing_the_bytes_is_caught() {
        caught(Mutant::ObjectNamedBeforeSync, || crash_everywhere(0..4, Crash::PowerLoss));
    }

    #[test]
    fn replacing_what_holds_a_name_is_caught() {
        caught(Mutant::ObjectPutReplaces, race_everywhere);
    }

    #[test]
    fn created_before_the_directory_is_durable_is_caught() {
        caught(Mutant::ObjectCreatedBeforeDirectorySync, || crash_everywhere(0..4, Crash::PowerLoss));
    }

    #[test]
    fn exists_before_the_directory_is_durable_is_caught() {
        caught(Mutant::ObjectExistsBeforeDirectorySync, || some_seeds(exists_is_durable));
    }

    #[test]
    fn a_list_before_the_directory_is_durable_is_caught() {
        caught(Mutant::ObjectListedBeforeDirectorySync, || some_seeds(listed_is_durable));
    }

    #[test]
    fn a_deletion_that_is_not_durable_is_caught() {
        caught(Mutant::ObjectDeletedWithoutDirectorySync, || crash_everywhere(0..4, Crash::PowerLoss));
    }

    #[test]
    fn sweeping_what_is_being_written_is_caught() {
        caught(Mutant::ObjectSweepIgnoresLocks, sweep_beside_the_living);
    }
}
