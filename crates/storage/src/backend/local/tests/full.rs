//! Disks that fill and empty again, for real and simulated; and how tables are written.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex as Lock;
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, Process, World};

use super::*;
use crate::log_memory::Uncounted;
use crate::{ConfigurationChain, LogContext, LogEntry, LogOffset};

const ROOT: &str = "/data/store";
const MIB: u64 = 1 << 20;

fn request_of(purpose: Purpose) -> Request {
    Request::new(purpose, Epoch(1))
}

/// Writes a table as flush or compaction does.
async fn write_table(store: &LocalObjectStore, purpose: Purpose, to: &str, bytes: u64) -> Result<()> {
    let mut writer =
        store.create(request_of(purpose), &name(to), Placement::new(ObjectKind::Table, Life::Short)).await?;
    let piece = pattern(9, 100_000);
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let now = left.min(piece.len());
        writer.append(piece.slice(..now)).await?;
        left -= now;
    }
    writer.finish().await.map(drop)
}

fn kind_of<T>(result: &Result<T>) -> Option<ErrorKind> {
    result.as_ref().err().map(Error::kind)
}

/// Fills the disk with objects of nobody's until none of 256 KiB fits any more.
async fn fill(store: &LocalObjectStore) -> Vec<String> {
    let mut filled = Vec::new();
    loop {
        let object = format!("fill/{:04}", filled.len());
        match put(store, &object, pattern(1, 256 << 10)).await {
            Ok(_) => filled.push(object),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                assert!(error.next_step().is_some_and(|advice| advice.contains("free space")), "{error}");
                return filled;
            }
        }
    }
}

/// On a disk of 64 MiB: what makes space goes on when it is full, what does not stops, and all of
/// it heals.
async fn fills_and_empties(store: LocalObjectStore, direct: bool) {
    let what = format!("direct: {direct}");
    write_table(&store, Purpose::Flush, "table/first", 300_000).await.expect("room");
    let reserved = store.shared.reserve.bytes();
    assert!((MIB..=2 * MIB).contains(&reserved), "{what}: a reserve of {reserved} bytes on 64 MiB");
    let filled = fill(&store).await;
    assert_eq!(store.shared.reserve.bytes(), reserved, "{what}: what frees nothing drew on the reserve");
    for purpose in [Purpose::Verify, Purpose::Log, Purpose::Get] {
        assert_eq!(
            kind_of(&write_table(&store, purpose, "table/other", 700_000).await),
            Some(ErrorKind::OutOfSpace),
            "{what}"
        );
    }
    // A compaction writes its output, records it, and deletes its inputs.
    write_table(&store, Purpose::Compaction, "table/output", 700_000)
        .await
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let record = store
        .put_if_absent(request_of(Purpose::Manifest), &name("manifest/1"), placement(), pattern(2, 3000))
        .await;
    assert_eq!(record.expect("the record"), PutOutcome::Created);
    let left = store.shared.reserve.bytes();
    assert!(left < reserved, "{what}: {left} bytes of {reserved} are left");
    // More than the reserve holds fails, and leaves nothing behind.
    assert_eq!(
        kind_of(&write_table(&store, Purpose::Compaction, "table/large", 8 * MIB).await),
        Some(ErrorKind::OutOfSpace),
        "{what}"
    );
    assert_eq!(store.shared.reserve.bytes(), 0);
    assert_eq!(read(&store, "table/first").await.expect("read").len(), 300_000);
    // Somebody frees space: everything goes on, and the reserve is there again.
    for object in &filled[..filled.len() / 2] {
        store.delete(request(), &name(object)).await.expect("deleting needs no space");
    }
    // What a file system does by itself within seconds: then the space of removed names is free.
    let _ = store.files().sync_directory(&store.root().join(TEMPORARY_DIRECTORY));
    write_table(&store, Purpose::Compaction, "table/large", 8 * MIB).await.expect("room again");
    write_table(&store, Purpose::Flush, "table/next", 1000).await.expect("room again");
    assert_eq!(store.shared.reserve.bytes(), reserved, "{what}: the reserve was not built again");
    put(&store, "anything", pattern(1, 1000)).await.expect("room again");
    assert_eq!(
        listed(&store, "table/").await.expect("listed"),
        ["table/first", "table/large", "table/next", "table/output"]
    );
    assert_eq!(store.sweep(request()).await.expect("swept"), 0, "{what}: temporary files were left");
}

fn simulated(world: &World, direct: bool) -> (Process, LocalObjectStore) {
    let process = world.process("writer");
    let options = LocalOptions { direct, ..LocalOptions::default() };
    let store = LocalObjectStore::new(&process.env(), ROOT, options).expect("a store");
    (process, store)
}

#[test]
fn a_simulated_disk_fills_and_empties() {
    for seed in 0..if std::env::var_os("TOMBOLO_DEEP").is_some() { 4 } else { 1 } {
        for direct in [false, true] {
            let world = World::new(seed);
            world.host(0).set_capacity(Some(64 * MIB));
            let (process, store) = simulated(&world, direct);
            process.run(fills_and_empties(store, direct)).expect("it lives");
        }
    }
}

/// A small file system in memory, gone when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_real_disk_fills_and_empties() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("small");
    std::fs::create_dir(&path).expect("a directory");
    let mut mount = std::process::Command::new("mount");
    let mounted = mount.args(["-t", "tmpfs", "-o", "size=64m", "tombolo-test"]).arg(&path).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: this process may not mount a small file system");
        return;
    }
    let mounted = Mounted(path);
    let env = Env::real();
    let store =
        LocalObjectStore::new(&env, mounted.0.join("store"), LocalOptions::default()).expect("a store");
    env.block_on(fills_and_empties(store, false));
}

#[test]
fn with_plenty_of_space_nothing_is_kept_back() {
    let world = World::new(1);
    let (process, store) = simulated(&world, false);
    let reserve = Path::new(ROOT).join(TEMPORARY_DIRECTORY).join(reserve::NAME);
    let write = |what: &'static str| {
        let store = store.clone();
        process
            .run(async move { write_table(&store, Purpose::Flush, what, 1000).await })
            .expect("it lives")
            .expect("room");
    };
    write("one");
    assert!(process.files().metadata(&reserve).is_err());
    world.host(0).set_capacity(Some(1 << 30));
    write("two");
    let all =
        |metadata: std::io::Result<tombolo_env::Metadata>| metadata.map_or(0, |metadata| metadata.length);
    // A thirty-second of the disk, which here has room for it.
    assert_eq!(all(process.files().metadata(&reserve)), 0, "a gibibyte is plenty");
    world.host(0).set_capacity(Some(100 * MIB));
    write("three");
    assert_eq!(all(process.files().metadata(&reserve)), 100 * MIB / 32);
    world.host(0).set_capacity(None);
    write("four");
    assert!(process.files().metadata(&reserve).is_err(), "it stays although there is plenty");
}

#[test]
fn the_reserve_of_a_dead_process_is_taken_over_and_that_of_a_living_one_is_not() {
    let world = World::new(2);
    world.host(0).set_capacity(Some(64 * MIB));
    let (first, held) = simulated(&world, false);
    let flush = |process: &Process, store: LocalObjectStore, what: &'static str| {
        process.run(async move {
            write_table(&store, Purpose::Flush, what, 1000).await.map(|()| store.shared.reserve.bytes())
        })
    };
    assert_eq!(flush(&first, held.clone(), "a").expect("it lives").expect("room"), 2 * MIB);
    let (second, store) = simulated(&world, false);
    assert_eq!(flush(&second, store.clone(), "b").expect("it lives").expect("room"), 0);
    first.kill();
    drop(held);
    assert_eq!(flush(&second, store, "c").expect("it lives").expect("room"), 2 * MIB);
    assert!(world.host(0).used() < 3 * MIB, "there are two");
}

#[test]
fn a_disk_found_full_by_a_sync_has_room_for_the_next_attempt() {
    for kind in [OperationKind::Sync, OperationKind::WriteOut] {
        let world = World::new(6);
        world.host(0).set_capacity(Some(64 * MIB));
        let (process, store) = simulated(&world, false);
        let table = |what: &'static str| {
            let store = store.clone();
            process
                .run(async move { write_table(&store, Purpose::Compaction, what, 3 * MIB).await })
                .expect("it lives")
        };
        table("first").expect("room");
        world.inject(Fault::new(Action::Fail(std::io::ErrorKind::StorageFull), move |operation| {
            operation.kind == kind && operation.path.to_string_lossy().ends_with(".partial")
        }));
        assert_eq!(kind_of(&table("second")), Some(ErrorKind::OutOfSpace));
        assert_eq!(store.shared.reserve.bytes(), MIB, "{kind:?}: nothing was given back");
        table("second").expect("room");
        assert_eq!(store.shared.reserve.bytes(), 2 * MIB, "{kind:?}: it was not built again");
    }
}

#[test]
fn a_log_leaves_room_for_what_trims_it() {
    let world = World::new(3);
    world.host(0).set_capacity(Some(200 * MIB));
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let uri = Uri::parse(&format!("file://{ROOT}")).expect("a URI");
            let objects = Registry::default().open_object_store(&env, &uri).expect("objects");
            let log_store = Registry::default().open_log_store(&env, &uri, None, &objects).expect("a log");
            let chain: Arc<dyn ConfigurationChain> =
                Arc::new(crate::conformance::log::MemoryChain::default());
            let (incarnation, objects_of_log) = (crate::Incarnation(1), Arc::clone(&objects));
            let (database, epoch, memory) = (1, Epoch(1), Arc::new(Uncounted));
            let context = LogContext {
                env: env.clone(),
                incarnation,
                database,
                epoch,
                chain,
                objects: objects_of_log,
                memory,
            };
            let log = log_store.open(&context, 1).await.expect("a log");
            let payload = Bytes::from(vec![7; 200_000]);
            let append = |number: u64| {
                let entry =
                    LogEntry { stream: 0, first_sequence: number, count: 1, payload: payload.clone() };
                log.append(0, &entry).map(|appended| appended.end)
            };
            let (mut number, mut end) = (0, LogOffset::ZERO);
            let error = loop {
                match append(number) {
                    Ok(after) => (number, end) = (number + 1, after),
                    Err(error) if error.kind() == ErrorKind::Busy => {
                        env.sleep(std::time::Duration::from_millis(1)).await;
                    }
                    Err(error) => break error,
                }
                env.yield_now().await;
            };
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            // A flush of a part of it has room, without any reserve.
            let flush = Request::new(Purpose::Flush, Epoch(1));
            let mut writer = objects
                .create(flush, &name("table"), Placement::new(ObjectKind::Table, Life::Short))
                .await
                .expect("room");
            writer.append(Bytes::from(vec![1; 5 << 20])).await.expect("room");
            writer.finish().await.expect("room");
            log.durable(0, end).await.expect("it lives").expect("durable");
            log.trim(0, end).expect("trimmed");
            // What a file system does by itself within seconds: then the space of removed names is
            // free.
            let directory = Path::new(ROOT).join("0000000000000001/log/0000000000000001-0000");
            let mut tries = 0;
            while let Err(error) = append(number) {
                tries += 1;
                env.files().sync_directory(&directory).expect("synced");
                assert!(tries < 1000, "a log that was trimmed takes nothing: {error}");
                env.sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .expect("it lives");
}

/// What a table of `bytes` is written with.
fn operations_of_table(direct: bool, bytes: u64) -> Vec<Operation> {
    let world = World::new(4);
    let (process, store) = simulated(&world, direct);
    let operations: Arc<Lock<Vec<Operation>>> = Arc::default();
    let noted = Arc::clone(&operations);
    world.inject(
        Fault::new(Action::Stall(std::time::Duration::ZERO), move |operation| {
            if operation.path.starts_with("/data/store/tmp") {
                noted.lock().push(operation.clone());
            }
            false
        })
        .always(),
    );
    let outcome = process.run(async move {
        write_table(&store, Purpose::Flush, "table", bytes).await?;
        assert_eq!(read(&store, "table").await?.len() as u64, bytes);
        let get = Request::new(Purpose::Get, Epoch::NONE);
        let piece = pattern(9, 100_000);
        assert_eq!(store.read(get, &name("table"), 100_000..200_000).await?, piece);
        Ok::<_, Error>(())
    });
    outcome.expect("it lives").expect("no errors");
    Arc::try_unwrap(operations).map_or_else(|shared| shared.lock().clone(), Lock::into_inner)
}

#[test]
fn dirty_pages_of_a_table_are_bounded() {
    let operations = operations_of_table(false, 7 * MIB + 12_345);
    let (mut written, mut out, mut dirty_max) = (0, 0, 0);
    for operation in &operations {
        match operation.kind {
            OperationKind::Write => written = operation.offset + operation.length,
            OperationKind::WriteOut => {
                assert_eq!(operation.offset, out, "a gap that nobody waits for");
                out = operation.offset + operation.length;
            }
            _ => {}
        }
        dirty_max = dirty_max.max(written - out);
    }
    assert!(dirty_max <= MIB + MIB / 4, "{dirty_max} bytes are left to the sync");
    assert_eq!(written, 7 * MIB + 12_345);
}

#[test]
fn past_the_page_cache_whole_units_are_written_in_space_taken_ahead_and_the_end_is_cut() {
    for bytes in [4096 * 70, 5 * MIB + 12_345] {
        let operations = operations_of_table(true, bytes);
        let writes: Vec<_> =
            operations.iter().filter(|operation| operation.kind == OperationKind::Write).collect();
        assert!(
            writes.iter().all(|write| write.offset % 4096 == 0 && write.length % 4096 == 0),
            "{writes:?}"
        );
        assert!(operations.iter().all(|operation| operation.kind != OperationKind::WriteOut));
        let lengths: Vec<u64> = operations
            .iter()
            .filter(|operation| operation.kind == OperationKind::SetLength)
            .map(|operation| operation.length)
            .collect();
        assert_eq!(lengths, [8 * MIB, bytes], "taken ahead, then cut");
        let last = operations
            .iter()
            .rposition(|operation| matches!(operation.kind, OperationKind::Write | OperationKind::SetLength));
        let sync = operations.iter().position(|operation| operation.kind == OperationKind::Sync);
        assert!(last < sync, "something is written after the sync");
    }
}

#[test]
fn a_failed_writing_out_is_never_forgotten() {
    // The kernel tells an error of writing back once: a later sync would succeed over what was
    // lost.
    let world = World::new(5);
    let (process, store) = simulated(&world, false);
    let failed = Arc::new(AtomicU64::new(0));
    world.inject(
        Fault::new(Action::Fail(std::io::ErrorKind::Other), |operation| {
            operation.kind == OperationKind::WriteOut
        })
        .after(1),
    );
    let counted = Arc::clone(&failed);
    process
        .run(async move {
            let mut writer =
                store.create(request_of(Purpose::Flush), &name("table"), placement()).await.expect("begun");
            for _ in 0..40 {
                if let Err(error) = writer.append(pattern(1, 100_000)).await {
                    let seen = counted.fetch_add(1, Ordering::SeqCst);
                    let wanted = if seen == 0 { ErrorKind::Retry } else { ErrorKind::Closed };
                    assert!(error.kind() == wanted || seen > 0, "{error}");
                }
            }
            assert_eq!(writer.finish().await.expect_err("lost").kind(), ErrorKind::Closed);
            assert!(listed(&store, "").await.expect("listed").is_empty());
        })
        .expect("it lives");
    assert!(failed.load(Ordering::SeqCst) >= 1);
}
