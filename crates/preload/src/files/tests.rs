//! Files against a model: what reads give, what reopening finds, and what a crash leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tombolo::{Db, Env, Options, TakeOver};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Registry, Uri};

use super::*;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const MEMORY_BYTES: u64 = 64 << 20;
const PATHS: [&str; 4] = ["/a", "/a-journal", "/b", "/c/d"];

/// A change of one file or name: one batch of the database.
#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Write(usize, u64, usize),
    Append(usize, usize),
    Truncate(usize, u64),
    Rename(usize, usize),
    Unlink(usize),
    Sync,
}

fn path(number: usize) -> &'static [u8] {
    PATHS[number].as_bytes()
}

fn step() -> impl Strategy<Value = Step> {
    let (file, other) = (0..PATHS.len(), 0..PATHS.len());
    let length = prop_oneof![3 => 1_usize..300, 1 => 4096..=4096_usize, 1 => 15_000_usize..40_000];
    let offset = prop_oneof![0_u64..1000, 16_000_u64..17_000, 0_u64..40_000];
    prop_oneof![
        2 => file.clone().prop_map(Step::Create),
        5 => (file.clone(), offset.clone(), length.clone()).prop_map(
            |(file, offset, length)| Step::Write(file, offset, length)
        ),
        5 => (file.clone(), length).prop_map(|(file, length)| Step::Append(file, length)),
        2 => (file.clone(), offset).prop_map(|(file, size)| Step::Truncate(file, size)),
        1 => (file.clone(), other).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => file.prop_map(Step::Unlink),
        2 => Just(Step::Sync),
    ]
}

/// What the step makes of the files; whether it can be done.
fn apply(state: &mut State, step: &Step, fill: u8) -> bool {
    match *step {
        Step::Create(file) => _ = state.entry(path(file).to_vec()).or_default(),
        Step::Write(file, offset, length) => {
            let Some(bytes) = state.get_mut(path(file)) else { return false };
            let start = usize::try_from(offset).unwrap();
            bytes.resize(bytes.len().max(start + length), 0);
            bytes[start..start + length].fill(fill);
        }
        Step::Append(file, length) => {
            let Some(bytes) = state.get_mut(path(file)) else { return false };
            bytes.resize(bytes.len() + length, fill);
        }
        Step::Truncate(file, size) => {
            let Some(bytes) = state.get_mut(path(file)) else { return false };
            bytes.resize(usize::try_from(size).unwrap(), 0);
        }
        Step::Rename(from, to) => {
            let Some(bytes) = state.remove(path(from)) else { return false };
            state.insert(path(to).to_vec(), bytes);
        }
        Step::Unlink(file) => return state.remove(path(file)).is_some(),
        Step::Sync => {}
    }
    true
}

/// Begins the step; the operation to wait for, if it could be done.
async fn begin(files: &Files, step: &Step, fill: u8) -> Result<Op<()>> {
    let open = |file: usize| files.open(path(file), OpenHow::default());
    match *step {
        Step::Create(file) => files
            .open(path(file), OpenHow { create: true, exclusive: false })
            .await
            .map(|_| Op::ready(Ok(()))),
        Step::Write(file, offset, length) => {
            let (began, written, op) =
                files.begin_write(&*open(file).await?, At::Offset(offset), &vec![fill; length])?;
            assert_eq!((began, written), (offset, length));
            Ok(op)
        }
        Step::Append(file, length) => {
            Ok(files.begin_write(&*open(file).await?, At::End, &vec![fill; length])?.2)
        }
        Step::Truncate(file, size) => Ok(files.begin_truncate(&*open(file).await?, size)?.0),
        Step::Rename(from, to) => files.begin_rename(path(from), path(to)),
        Step::Unlink(file) => files.begin_unlink(path(file)),
        Step::Sync => Ok(files.db().sync()),
    }
}

/// All files with what they hold.
async fn state_of(files: &Files) -> Result<State> {
    let mut state = State::new();
    for path in files.paths() {
        let file = files.open(&path, OpenHow::default()).await?;
        let mut bytes = vec![0xEE; usize::try_from(file.size()?).unwrap() + 7];
        let length = file.read(0, &mut bytes)?;
        bytes.truncate(length);
        state.insert(path, bytes);
    }
    Ok(state)
}

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap()
}

async fn mount(env: &Env, uri: &str) -> Result<Files> {
    let builder = Db::builder(uri).env(env.clone()).options(options()).take_over(TakeOver::Always);
    Files::mount(builder.open().await?, MEMORY_BYTES).await
}

/// Files in a directory, which lives as long as what comes first: it, the URI of the store in it,
/// what the files run in, and they.
fn on_disk() -> (tempfile::TempDir, String, Env, Files) {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("file://{}", directory.path().display());
    let env = Env::real();
    let files = env.block_on(mount(&env, &uri)).unwrap();
    (directory, uri, env, files)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn files_are_the_model_before_and_after_reopening(
        steps in prop::collection::vec(step(), 1..60),
        reopen_at in 0_usize..60
    ) {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("file://{}", directory.path().display());
        let env = Env::real();
        let mut files = env.block_on(mount(&env, &uri)).unwrap();
        let mut model = State::new();
        for (number, step) in steps.iter().enumerate() {
            let fill = u8::try_from(number % 250 + 1).unwrap();
            let expected = apply(&mut model, step, fill);
            let began = files.begun(|| env.block_on(begin(&files, step, fill)));
            prop_assert_eq!(began.is_ok(), expected, "{:?}", step);
            if let Ok(op) = began {
                files.settle(op).unwrap();
            }
            if number == reopen_at {
                files.sync().unwrap();
                drop(files);
                files = env.block_on(mount(&env, &uri)).unwrap();
            }
        }
        prop_assert!(env.block_on(state_of(&files)).unwrap() == model, "before reopening");
        files.sync().unwrap();
        drop(files);
        let files = env.block_on(mount(&env, &uri)).unwrap();
        prop_assert!(env.block_on(state_of(&files)).unwrap() == model, "after reopening");
    }
}

/// What a process has told outside the world.
#[derive(Debug, Default)]
struct Told {
    /// The state after each step that was done; the first is empty.
    states: Vec<State>,
    /// How many steps are known to be durable.
    durable: usize,
    finished: bool,
}

/// Whether the process lives: code goes on to the end of its poll after its process has ended, and
/// acknowledges nothing then.
fn is_alive(env: &Env) -> bool {
    !env.files()
        .metadata(std::path::Path::new("/db"))
        .is_err_and(|error| tombolo_env::simulated::is_crash(&error))
}

async fn script(env: Env, steps: Vec<Step>, told: Arc<Mutex<Told>>) -> Result<()> {
    let files = mount(&env, "file:///db").await?;
    let mut pending = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let fill = u8::try_from(number % 250 + 1).unwrap();
        let mut state = told.lock().states.last().cloned().unwrap_or_default();
        if !apply(&mut state, step, fill) {
            assert_eq!(begin(&files, step, fill).await.unwrap_err().kind(), ErrorKind::NotFound);
            continue;
        }
        told.lock().states.push(state);
        let op = loop {
            match begin(&files, step, fill).await {
                Err(error) if error.kind() == ErrorKind::Busy && !pending.is_empty() => {
                    for op in pending.drain(..) {
                        op.await?;
                    }
                }
                op => break op?,
            }
        };
        if let Step::Sync = step {
            let reached = told.lock().states.len() - 1;
            for op in pending.drain(..) {
                op.await?;
            }
            op.await?;
            if is_alive(&env) {
                told.lock().durable = reached;
            }
        } else {
            pending.push(op);
            files.delete_leftovers().await?;
        }
    }
    if is_alive(&env) {
        told.lock().finished = true;
    }
    Ok(())
}

/// Runs `steps` until the operation `crash_at` of the process; then checks that the state after
/// some prefix is found, no shorter than what was synced. Says how many operations there were.
fn crash_once(seed: u64, steps: &[Step], crash_at: Option<(u64, Crash)>) -> u64 {
    let world = World::new(seed);
    let told = Arc::new(Mutex::new(Told { states: vec![State::new()], ..Told::default() }));
    let process = world.process("program");
    if let Some((number, crash)) = crash_at {
        process.crash_at(number, crash);
    }
    if let Some(result) = process.run(script(process.env(), steps.to_vec(), Arc::clone(&told))) {
        result.unwrap();
    }
    let operations = process.operations();
    process.kill();
    let told = told.lock();
    assert!(told.finished || crash_at.is_some());
    let successor = world.process("successor");
    let env = successor.env();
    let found = successor.run(async move {
        let files = mount(&env, "file:///db").await?;
        state_of(&files).await
    });
    let found = found.unwrap().unwrap();
    let reached = told.states.iter().rposition(|state| *state == found);
    let durable = told.durable;
    assert!(
        reached.is_some_and(|reached| reached >= durable),
        "seed {seed}, crash {crash_at:?}: found the state after {reached:?} steps of {}, and {durable} were \
        synced",
        told.states.len() - 1
    );
    operations
}

fn random_steps(seed: u64, count: usize) -> Vec<Step> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    (0..count).map(|_| step().new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn a_crash_leaves_a_prefix_that_holds_all_that_was_synced() {
    for seed in 0..12 {
        let steps = random_steps(seed, 40);
        let operations = crash_once(seed, &steps, None);
        for part in 1..=16 {
            let crash = if part % 2 == 0 { Crash::Kill } else { Crash::PowerLoss };
            crash_once(seed, &steps, Some(((operations * part / 17).max(1), crash)));
        }
    }
}

#[test]
fn what_was_unlinked_is_read_on_and_leaves_no_rows() {
    let (_directory, uri, env, files) = on_disk();
    let file = env.block_on(files.open(b"/a", OpenHow { create: true, exclusive: true })).unwrap();
    files.write(&file, 0, b"before").unwrap();
    files.settle(files.begin_unlink(b"/a").unwrap()).unwrap();
    files.write(&file, 6, b" and after").unwrap();
    let mut bytes = [0; 16];
    assert_eq!(file.read(0, &mut bytes).unwrap(), 16);
    assert_eq!(&bytes, b"before and after");
    assert_eq!(files.rows_of(&file), 0);
    assert!(!file.is_named());
    assert!(files.image_bytes() > 0);
    drop(file);
    assert_eq!(files.image_bytes(), 0);
    // Of one that was never read nobody knows the rows: it is noted, and they are deleted after;
    // also by the next process.
    for path in [b"/b", b"/c"] {
        let file = env.block_on(files.open(path, OpenHow { create: true, exclusive: true })).unwrap();
        files.write(&file, 0, &[7; 100_000]).unwrap();
    }
    files.sync().unwrap();
    drop(files);
    let files = env.block_on(mount(&env, &uri)).unwrap();
    let rows = |files: &Files| files.extents.scan::<&[u8]>(..).count();
    files.settle(files.begin_unlink(b"/b").unwrap()).unwrap();
    assert_eq!(rows(&files), 2 * 7);
    env.block_on(files.delete_leftovers()).unwrap();
    assert_eq!(rows(&files), 7);
    files.settle(files.begin_unlink(b"/c").unwrap()).unwrap();
    files.sync().unwrap();
    drop(files);
    let files = env.block_on(mount(&env, &uri)).unwrap();
    assert_eq!(rows(&files), 0);
    assert!(files.unlinked.scan::<&[u8]>(..).next().is_none());
}

#[test]
fn a_file_that_loses_its_name_before_it_was_read_is_not_shown_empty() {
    let (_directory, uri, env, files) = on_disk();
    for (path, text) in [(b"/a", b"old"), (b"/b", b"new")] {
        let file = env.block_on(files.open(path, OpenHow { create: true, exclusive: true })).unwrap();
        files.write(&file, 0, text).unwrap();
    }
    files.sync().unwrap();
    drop(files);
    let files = env.block_on(mount(&env, &uri)).unwrap();
    // An open that has found the file of that name, and not read it yet.
    let (file, _) = files.begin_open(b"/a", OpenHow::default()).unwrap();
    files.settle(files.begin_rename(b"/b", b"/a").unwrap()).unwrap();
    env.block_on(files.delete_leftovers()).unwrap();
    assert!(env.block_on(files.load(file)).unwrap().is_none());
    let file = env.block_on(files.open(b"/a", OpenHow::default())).unwrap();
    let mut bytes = [0; 3];
    assert_eq!((file.read(0, &mut bytes).unwrap(), &bytes), (3, b"new"));
}

#[test]
fn memory_is_bounded_and_closed_files_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("file://{}", directory.path().display());
    let env = Env::real();
    let db = env.block_on(Db::builder(uri).env(env.clone()).options(options()).open()).unwrap();
    let files = env.block_on(Files::mount(db, 1 << 20)).unwrap();
    let create = OpenHow { create: true, exclusive: false };
    let first = env.block_on(files.open(b"/a", create)).unwrap();
    files.write(&first, 0, &vec![1; 700 << 10]).unwrap();
    assert_eq!(
        files.write(&first, 700 << 10, &vec![1; 700 << 10]).unwrap_err().kind(),
        ErrorKind::OutOfSpace
    );
    assert_eq!(first.size().unwrap(), 700 << 10, "what was refused is not there");
    let second = files.begun(|| env.block_on(files.open(b"/b", create))).unwrap();
    assert_eq!(files.write(&second, 0, &vec![2; 700 << 10]).unwrap_err().kind(), ErrorKind::OutOfSpace);
    files.sync().unwrap();
    drop(first);
    files.write(&second, 0, &vec![2; 700 << 10]).unwrap();
    drop(second);
    let first = files.begun(|| env.block_on(files.open(b"/a", create))).unwrap();
    let mut bytes = vec![0; 700 << 10];
    assert_eq!(first.read(0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes.iter().all(|byte| *byte == 1));
}

#[test]
fn no_image_is_dropped_while_another_call_waits_for_a_batch() {
    let (_directory, _, env, files) = on_disk();
    let file = env.block_on(files.open(b"/a", OpenHow { create: true, exclusive: true })).unwrap();
    files.write(&file, 0, b"text").unwrap();
    drop(file);
    files.sync().unwrap();
    let turn = files.settling.lock();
    files.forget_closed();
    assert!(files.image_bytes() > 0);
    drop(turn);
    files.forget_closed();
    assert_eq!(files.image_bytes(), 0);
}

#[test]
fn a_failure_that_is_noted_while_a_sync_waits_fails_it() {
    let (_directory, _, _, files) = on_disk();
    std::thread::scope(|scope| {
        let turn = files.settling.lock();
        let sync = scope.spawn(|| files.sync());
        // Long enough for it to look for failures and to wait for its turn.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let _failed =
            files.noted(Err(Error::new(ErrorKind::OutcomeUnknown, "a write that another call waited for")));
        drop(turn);
        assert_eq!(sync.join().unwrap().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    });
}

/// Rounds of two threads that meet in a call.
const MEETINGS: usize = 400;

#[test]
fn growing_a_file_takes_nothing_from_another_thread() {
    let (_directory, _, env, files) = on_disk();
    let file = env.block_on(files.open(b"/a", OpenHow { create: true, exclusive: true })).unwrap();
    files.write(&file, 0, &[1; 200]).unwrap();
    files.extend(&file, 100).unwrap();
    assert_eq!(file.size().unwrap(), 200);
    for _ in 0..MEETINGS {
        let (before, barrier) = (file.size().unwrap(), std::sync::Barrier::new(2));
        let appended = std::thread::scope(|scope| {
            let appender = scope.spawn(|| {
                barrier.wait();
                let (offset, length, op) =
                    files.begun(|| files.begin_write(&file, At::End, &[2; 10])).unwrap();
                files.settle(op).unwrap();
                offset + length as u64
            });
            barrier.wait();
            files.extend(&file, before + 100).unwrap();
            appender.join().unwrap()
        });
        assert!(file.size().unwrap() >= appended.max(before + 100));
    }
}

#[test]
fn a_file_is_cut_once_by_one_call() {
    let (_directory, _, env, files) = on_disk();
    let file = env.block_on(files.open(b"/a", OpenHow { create: true, exclusive: true })).unwrap();
    for _ in 0..MEETINGS {
        files.write(&file, 0, &[1; 200]).unwrap();
        let barrier = std::sync::Barrier::new(2);
        let offsets: Vec<u64> = std::thread::scope(|scope| {
            let appender = scope.spawn(|| {
                barrier.wait();
                let append = |_| {
                    let (offset, _, op) =
                        files.begun(|| files.begin_write(&file, At::End, &[2; 10])).unwrap();
                    files.settle(op).unwrap();
                    offset
                };
                (0..300).map(append).collect()
            });
            barrier.wait();
            files.truncate(&file, 0).unwrap();
            appender.join().unwrap()
        });
        let cuts = offsets.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(cuts <= 1, "{offsets:?}");
    }
}

/// A name that the database refused after all: bytes written to its file would be found in the
/// next one that gets its number.
#[test]
fn a_creation_that_fails_late_ends_all_files() {
    let world = World::new(1);
    let process = world.process("program");
    let env = process.env();
    let ended = process.run(async move {
        let (object_faults, log_faults) = (FaultPlan::scripted(), FaultPlan::scripted());
        let (registry, uri) = (Registry::with_defaults(), Uri::parse("file:///db")?);
        let objects = registry.open_object_store(&env, &uri)?;
        let log = registry.open_log_store(&env, &uri, None, &objects)?;
        let log = Arc::new(FaultLogStore::new(&env, log, log_faults.clone()));
        let objects = Arc::new(FaultObjectStore::new(&env, objects, object_faults.clone()));
        let db =
            Db::builder("file:///db").env(env.clone()).stores(objects, log).options(options()).open().await?;
        let files = Files::mount(db, MEMORY_BYTES).await?;
        let create = OpenHow { create: true, exclusive: true };
        let file = files.open(b"/a", create).await?;
        // While nothing can be flushed a write comes that waits for room.
        let minutes = std::time::Duration::from_secs(600);
        object_faults.inject(Rule::new(|asked| asked.kind != RequestKind::Read, Fault::Delay(minutes)));
        let waiting = loop {
            let (_, _, op) = files.begin_write(&file, At::End, &[7; 10_000])?;
            if let Err(op) = op.try_take() {
                break op;
            }
        };
        let mut created = std::pin::pin!(files.open(b"/b", create));
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(
                created.as_mut().poll(context).is_pending()
            ))
            .await
        );
        log_faults.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::OutOfSpace)));
        object_faults.clear();
        assert!(created.await.is_err());
        drop(waiting);
        assert!(files.failure().is_some() || !files.exists(b"/b"));
        Ok::<(), Error>(())
    });
    ended.unwrap().unwrap();
}

#[test]
fn a_second_opener_fences_the_first() {
    let (_directory, uri, env, first) = on_disk();
    let file = env.block_on(first.open(b"/a", OpenHow { create: true, exclusive: true })).unwrap();
    first.write(&file, 0, b"synced").unwrap();
    first.sync().unwrap();
    let second = env.block_on(mount(&env, &uri)).unwrap();
    let _maybe_taken = first.write(&file, 0, b"late");
    assert_eq!(first.sync().unwrap_err().kind(), ErrorKind::Fenced);
    let size = file.size().unwrap();
    assert_eq!(first.write(&file, size, b"later").unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(file.size().unwrap(), size, "what was refused is not shown");
    let state = env.block_on(state_of(&second)).unwrap();
    assert_eq!(state, State::from([(b"/a".to_vec(), b"synced".to_vec())]));
}

#[test]
fn a_rename_is_whole_after_a_crash() {
    let mut steps =
        vec![Step::Create(0), Step::Append(0, 100), Step::Create(2), Step::Append(2, 50), Step::Sync];
    for _ in 0..4 {
        steps.extend([Step::Rename(0, 2), Step::Sync, Step::Rename(2, 0), Step::Create(2), Step::Sync]);
    }
    let operations = crash_once(7, &steps, None);
    for number in 1..=operations {
        crash_once(7, &steps, Some((number, Crash::Kill)));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_rule_taken_out_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::FilesRenameInTwoBatches, a_rename_is_whole_after_a_crash);
    notices(Mutant::FilesUnlinkKeepsRows, what_was_unlinked_is_read_on_and_leaves_no_rows);
    notices(Mutant::FilesShowRefused, a_second_opener_fences_the_first);
}
