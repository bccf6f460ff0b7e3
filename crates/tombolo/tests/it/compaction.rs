//! Compaction through the public interface: the tree keeps its shape, loses nothing, ends, and
//! lives with damage and refusals.

use std::time::Duration;

use tombolo::{
    BackgroundRate, Compression, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Options,
    Registry, Stats,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::World;
use tombolo_storage::Purpose;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, Rule};

use crate::stores::{Stores, run as run_with};

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    run_with(&["memory_bytes=4194304", "memtable_bytes=16384"], test);
}

fn value(key: u64, round: u64) -> Vec<u8> {
    // Half of it compresses.
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let random = (0..50).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    random.chain(std::iter::repeat_n(b'v', 50)).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

async fn put(keys: &Keyspace, number: u64, round: u64) {
    keys.put_with(key(number), value(number, round), Durability::Accepted).await.unwrap();
}

/// Puts `count` keys in an order that looks random.
async fn load(keys: &Keyspace, count: u64, round: u64) {
    for number in 0..count {
        put(keys, number * 7919 % count, round).await;
    }
}

async fn check(keys: &Keyspace, count: u64, round: u64) {
    for number in 0..count {
        assert_eq!(
            keys.get(key(number)).await.unwrap().as_deref(),
            Some(&value(number, round)[..]),
            "key {number}"
        );
    }
}

async fn count(keys: &Keyspace) -> usize {
    let mut scan = keys.scan::<&[u8]>(..);
    let mut count = 0;
    while scan.next_async().await.unwrap().is_some() {
        count += 1;
    }
    count
}

fn level(stats: &Stats, level: usize) -> u64 {
    stats.tables_by_level.get(level).copied().unwrap_or(0)
}

/// Waits until nothing is compacted any more.
async fn settle(db: &Db, env: &Env) {
    let mut before = db.stats();
    loop {
        env.sleep(Duration::from_secs(1)).await;
        let now = db.stats();
        if (now.compactions, now.flushes) == (before.compactions, before.flushes) {
            return;
        }
        before = now;
    }
}

#[test]
fn everything_asked_for_ends_in_one_run_of_full_tables() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for round in 0..3 {
            load(&keys, 6000, round).await;
        }
        db.compact().await.unwrap();
        let stats = db.stats();
        assert_eq!(
            stats.tables,
            *stats.tables_by_level.last().unwrap(),
            "one level: {:?}",
            stats.tables_by_level
        );
        let mean = stats.table_bytes / stats.tables;
        assert!(
            (8 << 10..20 << 10).contains(&mean),
            "tables of {mean} bytes on average, where 16 KiB are wanted"
        );
        check(&keys, 6000, 2).await;
        assert_eq!(count(&keys).await, 6000);
    });
}

#[test]
fn a_load_leaves_a_tree_of_the_right_shape() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        load(&keys, 20_000, 0).await;
        db.flush().await.unwrap();
        settle(&db, &stores.env).await;
        let stats = db.stats();
        assert!(level(&stats, 0) < 8, "{:?}", stats.tables_by_level);
        assert!(
            level(&stats, 6) * 2 > stats.tables,
            "most of it lies in the last level: {:?}",
            stats.tables_by_level
        );
        assert_eq!(level(&stats, 1) + level(&stats, 2), 0, "{:?}", stats.tables_by_level);
        check(&keys, 20_000, 0).await;
    });
}

#[test]
fn ascending_keys_are_moved_and_not_rewritten() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for number in 0..4000 {
            put(&keys, number, 0).await;
        }
        db.flush().await.unwrap();
        settle(&db, &stores.env).await;
        let stats = db.stats();
        assert!(stats.compactions > 0 && level(&stats, 6) > 10, "{stats:?}");
        assert_eq!((stats.compacted_bytes_read, stats.compacted_bytes_written), (0, 0));
        check(&keys, 4000, 0).await;
    });
}

#[test]
fn tables_of_one_key_become_few() {
    run(|stores| async move {
        for number in 0..120 {
            let db = stores.open(&[]).await;
            db.default_keyspace().put(key(number), value(number, 0)).await.unwrap();
            db.flush().await.unwrap();
            settle(&db, &stores.env).await;
            db.close().await.unwrap();
        }
        let db = stores.open(&[]).await;
        assert!(db.stats().tables < 12, "{:?}", db.stats().tables_by_level);
        check(&db.default_keyspace(), 120, 0).await;
    });
}

#[test]
fn without_automatic_compaction_only_what_is_asked_for_is_compacted() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keys = db.default_keyspace();
        load(&keys, 1500, 0).await;
        db.flush().await.unwrap();
        settle(&db, &stores.env).await;
        let stats = db.stats();
        assert_eq!((stats.compactions, level(&stats, 0)), (0, stats.tables));
        assert!(stats.tables > 4);
        db.compact().await.unwrap();
        assert_eq!(level(&db.stats(), 0), 0);
        check(&keys, 1500, 0).await;
    });
}

/// A compaction that was asked for ends although flushes never do.
#[test]
fn an_asked_compaction_ends_under_constant_writes() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        load(&keys, 3000, 0).await;
        let (writer, env) = (keys.clone(), stores.env.clone());
        let writes = stores.env.spawn(TaskClass::Foreground, "writes", async move {
            for round in 1.. {
                load(&writer, 500, round).await;
                env.sleep(Duration::from_millis(1)).await;
            }
        });
        for _ in 0..5 {
            db.compact().await.unwrap();
            keys.compact_range(key(100)..key(200)).await.unwrap();
        }
        drop(writes);
    });
}

#[test]
fn a_range_is_compacted_and_the_rest_left_alone() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keys = db.default_keyspace();
        load(&keys, 6000, 0).await;
        db.compact().await.unwrap();
        let before = db.stats();
        for number in 0..3000 {
            keys.delete_with(key(number), Durability::Accepted).await.unwrap();
        }
        keys.compact_range(key(4000)..).await.unwrap();
        let beside = db.stats();
        keys.compact_range(..key(3000)).await.unwrap();
        let after = db.stats();
        assert!(
            after.table_bytes < before.table_bytes * 6 / 10,
            "{} of {} bytes are left",
            after.table_bytes,
            before.table_bytes
        );
        let read = beside.compacted_bytes_read - before.compacted_bytes_read;
        assert!(read < before.table_bytes * 9 / 10, "a range beside took part: {read} bytes");
        assert_eq!(count(&keys).await, 3000);
    });
}

/// Deletes go without being asked, and take what they delete with them.
#[test]
fn what_was_deleted_gives_its_space_back() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        load(&keys, 6000, 0).await;
        let snapshot = db.snapshot();
        for number in 0..6000 {
            keys.delete_with(key(number), Durability::Accepted).await.unwrap();
        }
        db.flush().await.unwrap();
        settle(&db, &stores.env).await;
        assert_eq!(snapshot.get(&keys, key(77)).await.unwrap().as_deref(), Some(&value(77, 0)[..]));
        drop(snapshot);
        // Something must happen for the engine to look.
        put(&keys, 0, 1).await;
        db.flush().await.unwrap();
        settle(&db, &stores.env).await;
        let stats = db.stats();
        assert!(
            stats.table_bytes < 64 << 10,
            "{} bytes for one key: {:?}",
            stats.table_bytes,
            stats.tables_by_level
        );
    });
}

/// A bound on background work holds, in virtual time.
#[test]
fn background_work_keeps_its_rate() {
    run(|stores| async move {
        let seconds = async |setting: &str| {
            let db = stores.open(&[setting, "memtable_bytes=1048576", "automatic_compaction=false"]).await;
            let keys = db.default_keyspace();
            let written = db.stats();
            let began = stores.env.now();
            load(&keys, 12_000, 0).await;
            db.flush().await.unwrap();
            load(&keys, 12_000, 1).await;
            db.compact().await.unwrap();
            let seconds = stores.env.now().since(began).as_secs_f64();
            let stats = db.stats();
            let bytes = stats.flushed_bytes + stats.compacted_bytes_written - written.flushed_bytes;
            db.close().await.unwrap();
            (seconds, bytes as f64)
        };
        let (fast, _) = seconds("background_bytes_per_second_max=0").await;
        let (slow, bytes) = seconds("background_bytes_per_second_max=100000").await;
        assert!(slow > bytes * 0.8 / 100_000.0, "{bytes} bytes in {slow} s");
        assert!(slow < bytes * 1.3 / 100_000.0 + fast, "{bytes} bytes in {slow} s");
    });
}

/// Two databases within one bound take as long as both together, and closing one does not wait for
/// it.
#[test]
fn databases_share_a_rate_of_background_work() {
    run(|stores| async move {
        let rate = BackgroundRate::new(100_000);
        let registry = Registry::with_defaults();
        let open = async |name: &str| {
            let options = Options::parse(["memtable_bytes=1048576", "automatic_compaction=false"]).unwrap();
            let builder = Db::builder(format!("mem://{name}"))
                .env(stores.env.clone())
                .registry(registry.clone())
                .options(options);
            builder.background_rate(&rate).open().await.unwrap()
        };
        let databases = [open("one").await, open("two").await];
        for db in &databases {
            load(&db.default_keyspace(), 6_000, 0).await;
        }
        let began = stores.env.now();
        let flushes: Vec<_> = databases.iter().map(Db::flush).collect();
        for flush in flushes {
            flush.await.unwrap();
        }
        let seconds = stores.env.now().since(began).as_secs_f64();
        let bytes: u64 = databases.iter().map(|db| db.stats().flushed_bytes).sum();
        assert!(seconds > bytes as f64 * 0.8 / 100_000.0, "{bytes} bytes in {seconds} s");
        rate.set(10);
        let [one, two] = databases;
        let compaction = one.compact();
        stores.env.sleep(Duration::from_secs(1)).await;
        let began = stores.env.now();
        one.close().await.unwrap();
        assert!(stores.env.now().since(began) < Duration::from_secs(5));
        drop(compaction);
        assert_eq!(rate.bytes_per_second(), 10, "the other keeps it");
        drop(two);
    });
}

#[test]
fn the_last_level_is_compressed_as_it_should() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let mut sizes = Vec::new();
        for (name, lowest) in
            [("plain", None), ("lowest", Some(Compression::Lz4)), ("zstd", Some(Compression::Zstd))]
        {
            let options = KeyspaceOptions {
                compression: Compression::None,
                compression_lowest: lowest,
                ..KeyspaceOptions::default()
            };
            let keys = db.create_keyspace(name, options).await.unwrap();
            let before = db.stats().table_bytes;
            for number in 0..3000 {
                put(&keys, number, 0).await;
            }
            db.compact().await.unwrap();
            check(&keys, 3000, 0).await;
            sizes.push(db.stats().table_bytes - before);
        }
        assert!(sizes[1] < sizes[0] * 9 / 10, "{sizes:?}");
        assert!(sizes[2] < sizes[1], "{sizes:?}");
    });
}

/// A store that refuses for a while delays compaction, and no more.
#[test]
fn refusals_of_the_store_heal() {
    for kind in [ErrorKind::OutOfSpace, ErrorKind::Retry, ErrorKind::PermissionDenied] {
        run(move |stores| async move {
            let db = stores.open(&["automatic_compaction=false"]).await;
            let keys = db.default_keyspace();
            load(&keys, 2000, 0).await;
            db.flush().await.unwrap();
            for request in [RequestKind::Create, RequestKind::Put] {
                stores.plan.inject(Rule::of_kind(request, Fault::Error(kind)).times(6));
            }
            if let Err(error) = db.compact().await {
                assert_eq!(error.kind(), kind, "{error}");
            }
            stores.env.sleep(Duration::from_secs(60)).await;
            db.compact().await.unwrap();
            assert_eq!(db.stats().background_error, None);
            check(&keys, 2000, 0).await;
        });
    }
}

/// A damaged table is named, once, and everything else goes on: other keyspaces, other ranges,
/// writes, flushes.
#[test]
fn a_damaged_table_is_set_aside() {
    let world = World::new(3);
    let process = world.process("writer");
    let env = process.env();
    let open = |env: Env| {
        let options =
            Options::parse(["memory_bytes=4194304", "memtable_bytes=16384", "automatic_compaction=false"])
                .unwrap();
        Db::builder("file:///db").env(env).options(options).open()
    };
    process
        .run({
            let env = env.clone();
            async move {
                let db = open(env).await.unwrap();
                load(&db.default_keyspace(), 3000, 0).await;
                db.compact().await.unwrap();
                db.close().await.unwrap();
            }
        })
        .unwrap();
    process.kill();
    let mut tables: Vec<_> = world
        .host(0)
        .all_files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("/table/"))
        .collect();
    tables.sort();
    let (path, length) = tables[tables.len() / 2].clone();
    world.host(0).damage(&path, |content| content[length as usize / 4] ^= 0x55).unwrap();
    let process = world.process("again");
    let env = process.env();
    process
        .run(async move {
            let db = open(env.clone()).await.unwrap();
            let (keys, other) = (
                db.default_keyspace(),
                db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap(),
            );
            load(&keys, 3000, 1).await;
            load(&other, 3000, 1).await;
            let error = db.compact().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(error.to_string().contains(&name), "{error} does not name {name}");
            let reported = db.stats().background_error.unwrap();
            assert!(reported.contains(&name), "{reported} does not name {name}");
            other.compact_range::<&[u8]>(..).await.unwrap();
            let before = db.stats();
            load(&keys, 3000, 2).await;
            let error = keys.compact_range::<&[u8]>(..).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            env.sleep(Duration::from_secs(600)).await;
            let after = db.stats();
            assert!(after.flushes > before.flushes);
            assert!(after.compactions < before.compactions + 10, "no job is made again and again");
            check(&other, 3000, 1).await;
            check(&keys, 3000, 2).await;
        })
        .unwrap();
}

/// Damage in the base, or in level 0 itself, holds back what meets it and nothing else: runs stay
/// few however much is written, what can be read is right, and the rest of the tree keeps its
/// shape.
#[test]
fn runs_stay_few_above_a_damaged_table() {
    // Beyond the bound, if each flush left a run.
    let rounds = if crate::is_deep() { 40 } else { 30 };
    for in_level_0 in [false, true] {
        run(move |stores| async move {
            let db = stores.open(&[]).await;
            let keys = db.default_keyspace();
            load(&keys, 3000, 0).await;
            db.compact().await.unwrap();
            // What was merged is deleted.
            stores.env.sleep(Duration::from_secs(1)).await;
            let base = stores.tables().await;
            if in_level_0 {
                db.set_options([("automatic_compaction", "false")]).unwrap();
                load(&keys, 100, 0).await;
                db.flush().await.unwrap();
            }
            let all = stores.tables().await;
            let damaged =
                if in_level_0 { all.difference(&base).next() } else { base.iter().nth(base.len() / 2) }
                    .unwrap()
                    .clone();
            let is_met =
                move |asked: &Asked<'_>| asked.name == damaged && asked.purpose == Purpose::Compaction;
            stores.plan.inject(Rule::new(is_met, Fault::Error(ErrorKind::Corrupt)));
            db.set_options([("automatic_compaction", "true")]).unwrap();
            let mut runs_most = 0;
            for round in 1..rounds {
                load(&keys, 3000, round).await;
                db.flush().await.unwrap();
                stores.env.sleep(Duration::from_secs(10)).await;
                runs_most = runs_most.max(level(&db.stats(), 0));
            }
            assert_eq!(
                db.background_errors().iter().map(|known| known.work).collect::<Vec<_>>(),
                ["damaged table"]
            );
            assert!(runs_most <= 24, "{runs_most} runs");
            let stats = db.stats();
            // 3000 keys of 106 bytes, half of which compresses: what was overwritten is merged
            // away.
            assert!(stats.table_bytes < 3000 * 110 * 6, "{} bytes", stats.table_bytes);
            check(&keys, 3000, rounds - 1).await;
        });
    }
}

/// A table that the store does not give holds up its own compaction, and no other; once nobody
/// wants it, nothing fails any more.
#[test]
fn what_fails_holds_nothing_else_up() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let failing = db.create_keyspace("failing", KeyspaceOptions::default()).await.unwrap();
        load(&failing, 5000, 0).await;
        db.flush().await.unwrap();
        let tables = stores.tables().await;
        assert!(tables.len() > 20);
        let is_met =
            move |asked: &Asked<'_>| asked.purpose == Purpose::Compaction && tables.contains(asked.name);
        stores.plan.inject(Rule::new(is_met, Fault::Error(ErrorKind::Retry)));
        db.set_options([("automatic_compaction", "true")]).unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(db.stats().background_error.is_some());
        let before = db.stats();
        let keys = db.default_keyspace();
        load(&keys, 5000, 0).await;
        db.flush().await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        let after = db.stats();
        assert!(level(&after, 0) < level(&before, 0) + 8, "{:?}", after.tables_by_level);
        check(&keys, 5000, 0).await;
        db.drop_keyspace("failing").await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(db.stats().background_error, None);
        assert_eq!(stores.tables().await.len() as u64, db.stats().tables, "and it leaves nothing behind");
    });
}

/// What one keyspace's compaction fails with is told until that one goes well, and to nobody who
/// asks for another's.
#[test]
fn a_keyspace_has_trouble_of_its_own() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let failing = db.create_keyspace("failing", KeyspaceOptions::default()).await.unwrap();
        load(&failing, 1000, 0).await;
        db.flush().await.unwrap();
        let tables = stores.tables().await;
        let is_met =
            move |asked: &Asked<'_>| asked.purpose == Purpose::Compaction && tables.contains(asked.name);
        stores.plan.inject(Rule::new(is_met, Fault::Error(ErrorKind::Retry)));
        db.set_options([("automatic_compaction", "true")]).unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        let before = db.background_errors();
        assert_eq!(before.len(), 1, "{before:?}");
        assert!(before[0].error.to_string().contains("\"failing\""), "it says which: {}", before[0]);
        let keys = db.default_keyspace();
        for round in 0..4 {
            load(&keys, 1000, round).await;
            keys.compact_range::<&[u8]>(..).await.unwrap();
        }
        let after = db.background_errors();
        assert!(
            after.len() == 1 && after[0].attempts >= before[0].attempts,
            "another's success ended it: {before:?}, then {after:?}"
        );
        assert!(after[0].lasting > Duration::from_secs(59), "{after:?}");
        let error = failing.compact_range::<&[u8]>(..).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        stores.plan.clear();
        // A caller that asks has its next attempt made, without waiting for the pause to end.
        let began = stores.env.now();
        failing.compact_range::<&[u8]>(..).await.unwrap();
        assert!(
            stores.env.now().since(began) < Duration::from_secs(1),
            "{:?}",
            stores.env.now().since(began)
        );
        assert!(db.background_errors().is_empty());
        check(&failing, 1000, 0).await;
    });
}

/// A failure is told to the caller that asked when it happened, not to one that asks after the
/// cause is gone.
#[test]
fn what_failed_before_says_nothing_to_whoever_asks_now() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for kind in [ErrorKind::OutOfSpace, ErrorKind::Retry] {
            stores
                .plan
                .inject(Rule::new(|asked: &Asked<'_>| asked.purpose == Purpose::Flush, Fault::Error(kind)));
            put(&keys, 1, 0).await;
            assert_eq!(db.flush().await.unwrap_err().kind(), kind);
            stores.env.sleep(Duration::from_secs(60)).await;
            assert_eq!(db.background_errors().len(), 1);
            stores.plan.clear();
            let began = stores.env.now();
            db.flush().await.unwrap();
            assert!(
                stores.env.now().since(began) < Duration::from_secs(1),
                "nor do they wait for the end of a pause"
            );
        }
    });
}

/// What attempts leave behind when neither they nor their tidying-up go well is deleted by and by,
/// in the same life.
#[test]
fn failed_attempts_leave_nothing_behind() {
    for landed in [false, true] {
        run(move |stores| async move {
            let db = stores.open(&["automatic_compaction=false"]).await;
            let keys = db.default_keyspace();
            load(&keys, 2000, 0).await;
            // Tables are made, and named by nobody: what should name them, and what should delete
            // them, fails.
            let fails =
                |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.contains("/table/");
            stores.plan.inject(Rule::new(fails, Fault::Error(ErrorKind::Retry)));
            let unknown =
                |asked: &Asked<'_>| asked.kind == RequestKind::Finish && asked.purpose == Purpose::Compaction;
            stores.plan.inject(Rule::new(unknown, Fault::Unknown { landed }).times(3));
            let refused =
                |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.purpose == Purpose::Compaction;
            stores.plan.inject(Rule::new(refused, Fault::Error(ErrorKind::OutOfSpace)).skip(8).times(3));
            while db.compact().await.is_err() {
                stores.env.sleep(Duration::from_secs(1)).await;
            }
            stores.env.sleep(Duration::from_secs(60)).await;
            assert!(stores.tables().await.len() as u64 > db.stats().tables);
            assert!(
                db.background_errors().iter().any(|known| known.work == "collection"),
                "{:?}",
                db.background_errors()
            );
            stores.plan.clear();
            stores.env.sleep(Duration::from_secs(60)).await;
            assert!(db.background_errors().is_empty(), "{:?}", db.background_errors());
            assert_eq!(stores.tables().await.len() as u64, db.stats().tables);
            check(&keys, 2000, 0).await;
        });
    }
}

/// Versions that a snapshot saw go once it is closed and a compaction is asked for, though they lie
/// in the last level and nothing was deleted.
#[test]
fn what_was_overwritten_gives_its_space_back() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        load(&keys, 3000, 0).await;
        db.compact().await.unwrap();
        let once = db.stats().table_bytes;
        let snapshot = db.snapshot();
        load(&keys, 3000, 1).await;
        db.compact().await.unwrap();
        let twice = db.stats().table_bytes;
        assert!(twice > once * 3 / 2, "{twice} bytes of {once}");
        assert_eq!(snapshot.get(&keys, key(77)).await.unwrap().as_deref(), Some(&value(77, 0)[..]));
        drop(snapshot);
        db.compact().await.unwrap();
        let last = db.stats();
        assert!(last.table_bytes < once * 11 / 10, "{} bytes of {once} and {twice}", last.table_bytes);
        check(&keys, 3000, 1).await;
        db.compact().await.unwrap();
        assert_eq!(db.stats().compacted_bytes_read, last.compacted_bytes_read, "there is nothing left to do");
    });
}

/// What the last reader lets go is deleted though nothing else happens.
#[test]
fn tables_go_with_their_last_reader() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keys = db.default_keyspace();
        load(&keys, 3000, 0).await;
        db.flush().await.unwrap();
        let mut scan = keys.scan::<&[u8]>(..);
        assert!(scan.next_async().await.unwrap().is_some());
        db.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(600)).await;
        assert!(stores.tables().await.len() as u64 > db.stats().tables);
        drop(scan);
        stores.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(stores.tables().await.len() as u64, db.stats().tables);
    });
}

/// More tables than one pass of collection takes leave at once, and none stays.
#[test]
fn a_keyspace_of_many_tables_leaves_nothing_behind() {
    run(|stores| async move {
        let db = stores.open(&["automatic_compaction=false", "memtable_bytes=4096"]).await;
        let keys = db.create_keyspace("many", KeyspaceOptions::default()).await.unwrap();
        let mut number = 0;
        while db.stats().tables < 1100 {
            number += 1;
            put(&keys, number, 0).await;
            if number % 4 == 0 {
                db.flush().await.unwrap();
            }
        }
        db.drop_keyspace("many").await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(stores.tables().await.len(), 0);
    });
}

/// Two runs of level 0 over a full last level, which writes alone leave as they are.
async fn leave_two_runs(stores: &Stores) -> (Db, Keyspace) {
    let db = stores.open(&[]).await;
    let keys = db.default_keyspace();
    load(&keys, 2000, 0).await;
    db.compact().await.unwrap();
    for round in 1..3 {
        for number in (0..2000).step_by(40) {
            put(&keys, number, round).await;
        }
        db.flush().await.unwrap();
    }
    settle(&db, &stores.env).await;
    assert_eq!(level(&db.stats(), 0), 2, "{:?}", db.stats().tables_by_level);
    (db, keys)
}

#[test]
fn runs_that_reads_meet_again_and_again_are_merged() {
    for read in ["gets", "several", "seeks", "walks"] {
        run(move |stores| async move {
            let (db, keys) = leave_two_runs(&stores).await;
            // Of absent keys within the runs: each get looks into the filter of every run.
            let absent = |number: u64| [key(number % 1900), b"-".to_vec()].concat();
            let mut reads = 0;
            let reads_max = if read == "walks" { 1000 } else { 200_000 };
            while level(&db.stats(), 0) > 0 && reads < reads_max {
                match read {
                    "gets" => assert_eq!(keys.get(absent(reads)).await.unwrap(), None),
                    "several" => assert_eq!(keys.multi_get(&[absent(reads)]).await.unwrap(), [None]),
                    "seeks" => {
                        let mut cursor = keys.cursor::<&[u8]>(..);
                        assert!(cursor.seek_async(absent(reads)).await.unwrap());
                    }
                    _ => assert_eq!(count(&keys).await, 2000),
                }
                reads += 1;
                if reads % 1000 == 0 || read == "walks" {
                    stores.env.sleep(Duration::from_millis(10)).await;
                }
            }
            assert_eq!(level(&db.stats(), 0), 0, "{read}: {:?}", db.stats().tables_by_level);
            assert!(reads >= 10, "{read}: a merge is paid for by more than {reads} reads");
            for number in (0..2000).step_by(40) {
                assert_eq!(keys.get(key(number)).await.unwrap().as_deref(), Some(&value(number, 2)[..]));
            }
        });
    }
}

#[test]
fn runs_that_few_reads_meet_stay() {
    run(|stores| async move {
        let (db, keys) = leave_two_runs(&stores).await;
        for number in (0..2000).step_by(40) {
            assert!(keys.get(key(number)).await.unwrap().is_some());
        }
        settle(&db, &stores.env).await;
        assert_eq!(level(&db.stats(), 0), 2);
        // Nor are any merged for reads where nothing is to be compacted by itself.
        drop(keys);
        db.close().await.unwrap();
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keys = db.default_keyspace();
        for number in 0..100 {
            assert_eq!(count(&keys).await, 2000, "walk {number}");
        }
        settle(&db, &stores.env).await;
        assert_eq!(level(&db.stats(), 0), 2);
    });
}
