//! Settings that change while the database runs.

use tombolo::{Batch, Compression, Db, Durability, Env, ErrorKind, KeyspaceOptions, Options, Registry};
use tombolo_storage::Purpose;

fn open(name: &str, env: &Env, registry: &Registry) -> Db {
    let options = Options::parse(["memory_bytes=4194304"]).unwrap();
    Db::builder(format!("mem://{name}"))
        .env(env.clone())
        .registry(registry.clone())
        .options(options)
        .open()
        .wait()
        .unwrap()
}

#[test]
fn settings_change_whole_while_writes_run_and_count_at_once() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let db = open("settings", &env, &registry);
    let keys = db.default_keyspace();
    let before = db.options();
    for wrong in [
        &[("writes_in_flight_max", "1"), ("memtable_bytes", "1")][..],
        &[("writes_in_flight_max", "1"), ("colour", "red")],
        &[("writes_in_flight_max", "1"), ("memory_bytes", "1048576"), ("memtable_bytes", "1048576")],
    ] {
        let error = db.set_options(wrong.iter().copied()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(db.options(), before, "nothing has changed");
    }
    db.set_options([("writes_in_flight_max", "2")]).unwrap();
    let in_flight = [keys.put(b"1", b""), keys.put(b"2", b"")];
    let mut batch = Batch::new();
    batch.put(&keys, b"3", b"");
    let rejected = db.try_write(batch, Durability::Durable).unwrap_err();
    assert_eq!(rejected.error.kind(), ErrorKind::Busy);
    db.set_options([("writes_in_flight_max", "100")]).unwrap();
    db.try_write(rejected.batch, Durability::Durable).unwrap().wait().unwrap();
    in_flight.into_iter().for_each(|write| write.wait().unwrap());
    // Smaller memtables are sealed sooner.
    assert_eq!(db.stats().flushes, 0);
    db.set_options([("memtable_bytes", "4096")]).unwrap();
    for index in 0..100u8 {
        keys.put_with([index], [7; 400], Durability::Accepted).wait().unwrap();
    }
    db.flush().wait().unwrap();
    assert!(db.stats().flushes >= 5, "{} flushes", db.stats().flushes);
    assert_eq!(db.options().memtable_bytes, Some(4096));
}

#[test]
fn a_keyspace_keeps_its_new_settings() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let db = open("keyspace", &env, &registry);
    let fresh = db.create_keyspace("fresh", KeyspaceOptions::default()).wait().unwrap();
    for keyspace in [&fresh, &db.default_keyspace()] {
        for wrong in [("block_bytes", "1"), ("colour", "red")] {
            let error = keyspace.set_options([("compression", "none"), wrong]).wait().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        assert_eq!(keyspace.options(), KeyspaceOptions::default());
        keyspace.set_options([("compression", "none"), ("filter_bits", "0")]).wait().unwrap();
        assert_eq!((keyspace.options().compression, keyspace.options().filter_bits), (Compression::None, 0));
    }
    // New tables follow: what shrinks well is no longer compressed.
    let write = |keyspace: &tombolo::Keyspace| {
        keyspace.put(b"k", vec![0; 100_000]).wait().unwrap();
        db.flush().wait().unwrap();
        db.stats().table_bytes
    };
    let before = db.stats().table_bytes;
    assert!(write(&fresh) > before + 100_000);
    fresh.set_options([("compression", "zstd")]).wait().unwrap();
    db.compact().wait().unwrap();
    assert!(db.stats().table_bytes < 50_000, "compaction follows too: {} bytes", db.stats().table_bytes);
    db.drop_keyspace("fresh").wait().unwrap();
    assert_eq!(fresh.set_options([("compression", "none")]).wait().unwrap_err().kind(), ErrorKind::NotFound);
    drop((db, fresh));
    let db = open("keyspace", &env, &registry);
    assert_eq!(db.default_keyspace().options().compression, Compression::None);
}

/// Changes that are made side by side are all there in the end, whatever order they end in.
#[test]
fn settings_of_a_keyspace_that_change_side_by_side_all_count() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    for round in 0..20 {
        let db = open(&format!("beside-{round}"), &env, &registry);
        let keys = db.default_keyspace();
        let changes = [
            ("compression", "zstd"),
            ("block_bytes", "4096"),
            ("filter_bits", "7"),
            ("compression_lowest", "none"),
        ];
        for change in changes.map(|change| keys.set_options([change])) {
            change.wait().unwrap();
        }
        let check = |keys: &tombolo::Keyspace| {
            let options = keys.options();
            assert_eq!(
                (options.compression, options.block_bytes, options.filter_bits),
                (Compression::Zstd, Some(4096), 7),
                "{options:?}"
            );
            assert_eq!(options.compression_lowest, Some(Compression::None));
        };
        check(&keys);
        drop((db, keys));
        check(&open(&format!("beside-{round}"), &env, &registry).default_keyspace());
    }
}

/// Blocks go by whether the memory can hold the database, unless the keyspace says how large they
/// are.
#[test]
fn blocks_are_larger_where_the_memory_can_hold_the_database() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let bytes_of_a_read = |name: &str, memory_bytes: u64, block_bytes: &str| {
        let db = open(name, &env, &registry);
        let keys = db.default_keyspace();
        db.set_options([("memory_bytes", &memory_bytes.to_string()[..])]).unwrap();
        keys.set_options([("block_bytes", block_bytes), ("compression", "none")]).wait().unwrap();
        let write = || {
            (0..3000u32).for_each(|index| {
                keys.put_with(index.to_be_bytes(), [7; 1000], Durability::Accepted).wait().unwrap();
            });
            db.compact().wait().unwrap();
        };
        // What the first round leaves is what the tables of the second go by.
        write();
        write();
        let counted = || {
            let gets = db.requests().counted.into_iter().filter(|one| one.purpose == Purpose::Get);
            gets.fold((0, 0), |(requests, bytes), one| (requests + one.requests, bytes + one.bytes_received))
        };
        let get = |index: u32| assert!(keys.get(index.to_be_bytes()).wait().unwrap().is_some());
        get(0);
        let (requests, bytes) = counted();
        (1..10).for_each(|part| get(part * 50));
        let (requests_now, bytes_now) = counted();
        (bytes_now - bytes) / (requests_now - requests)
    };
    let (large, small) = (12_000..16_500, 4_000..8_300);
    assert!(large.contains(&bytes_of_a_read("blocks-held", 32 << 20, "auto")));
    assert!(small.contains(&bytes_of_a_read("blocks-beyond", 1 << 20, "auto")));
    assert!(small.contains(&bytes_of_a_read("blocks-said", 16 << 20, "8192")));
}

#[test]
fn the_memory_budget_grows_and_shrinks_with_the_settings() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let db = open("budget", &env, &registry);
    let keys = db.default_keyspace();
    for index in 0..3000u32 {
        keys.put_with(index.to_be_bytes(), [7; 1000], Durability::Accepted).wait().unwrap();
    }
    db.compact().wait().unwrap();
    let read_all = || assert_eq!(keys.scan::<&[u8]>(..).count(), 3000);
    read_all();
    (0..3000u32).for_each(|index| assert!(keys.get(index.to_be_bytes()).wait().unwrap().is_some()));
    assert!(db.memory().used_bytes() > 2 << 20);
    db.set_options([("memory_bytes", "1048576")]).unwrap();
    assert_eq!(db.memory().bytes(), 1 << 20);
    assert!(db.memory().used_bytes() <= 1 << 20, "the cache gave way: {} bytes", db.memory().used_bytes());
    read_all();
    db.set_options([("memory_bytes", "16777216")]).unwrap();
    (0..3000u32).for_each(|index| assert!(keys.get(index.to_be_bytes()).wait().unwrap().is_some()));
    assert!(db.memory().used_bytes() > 2 << 20, "and grows again");
    // A shared budget does not follow one database, and must hold what all need.
    let budget = tombolo::MemoryBudget::new(1 << 20).unwrap();
    let shared = Db::builder("mem://shared")
        .env(env.clone())
        .registry(registry)
        .memory_budget(&budget)
        .open()
        .wait()
        .unwrap();
    let error =
        shared.set_options([("memory_bytes", "16777216"), ("memtable_bytes", "4194304")]).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("budget"), "{error}");
    shared.set_options([("memory_bytes", "16777216"), ("memtable_bytes", "65536")]).unwrap();
    assert_eq!((budget.bytes(), shared.options().memory_bytes), (1 << 20, 16 << 20));
}

/// Every way to read gives `key` a value at a multiple of `alignment`.
fn check_alignment(
    keyspace: &tombolo::Keyspace,
    expected: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    alignment: usize,
) {
    let check = move |value: &[u8]| {
        assert_eq!(value.as_ptr().addr() % alignment, 0, "{} bytes at {alignment}", value.len());
    };
    let keys: Vec<_> = expected.keys().collect();
    let several = keyspace.multi_get(&keys).wait().unwrap();
    for ((key, value), one) in expected.iter().zip(&several) {
        let got = keyspace.get(key).wait().unwrap().unwrap();
        check(&got);
        check(one.as_ref().unwrap());
        assert!(got == *value && one.as_deref() == Some(&value[..]));
        let wanted = value.clone();
        keyspace
            .get_with(key, move |value| (check(value), assert!(*value == *wanted)))
            .wait()
            .unwrap()
            .unwrap();
    }
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    for (key, value) in expected {
        assert!(cursor.next().unwrap());
        check(cursor.value());
        assert!(cursor.key() == *key && cursor.value() == *value);
        let (_, kept) = cursor.entry().unwrap();
        check(&kept);
        assert!(kept == *value);
    }
    assert!(!cursor.next().unwrap());
    for value in expected.values().rev() {
        assert!(cursor.prev().unwrap());
        check(cursor.value());
        check(&cursor.entry().unwrap().1);
        assert!(cursor.value() == *value);
    }
    for (entry, value) in keyspace.scan::<&[u8]>(..).zip(expected.values()) {
        let (_, kept) = entry.unwrap();
        check(&kept);
        assert!(kept == *value);
    }
}

#[test]
fn values_lie_as_aligned_as_the_keyspace_says() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for alignment in [8, 64, 4096u16] {
            let place = format!("aligned-{compression:?}-{alignment}");
            let db = open(&place, &env, &registry);
            let options =
                KeyspaceOptions { compression, value_alignment: alignment, ..KeyspaceOptions::default() };
            let keyspace = db.create_keyspace("cast", options).wait().unwrap();
            let mut expected = std::collections::BTreeMap::new();
            for number in 0..120usize {
                // Such as compress and such as do not, empty ones, and some that share their block.
                let length = if number % 20 == 0 { 5000 + number } else { number * 7 % 200 };
                let value: Vec<u8> = (0..length)
                    .map(|at| if number % 2 == 0 { 7 } else { (at * at * number) as u8 })
                    .collect();
                keyspace.put_with(format!("key {number:03}"), &value, Durability::Unlogged).wait().unwrap();
                expected.insert(format!("key {number:03}").into_bytes(), value);
            }
            check_alignment(&keyspace, &expected, alignment.into());
            db.flush().wait().unwrap();
            check_alignment(&keyspace, &expected, alignment.into());
            db.close().wait().unwrap();
            drop((keyspace, db));
            let db = open(&place, &env, &registry);
            let keyspace = db.keyspace("cast").unwrap();
            assert_eq!(keyspace.options().value_alignment, alignment);
            check_alignment(&keyspace, &expected, alignment.into());
            // Tables that were written with less.
            keyspace.set_options([("value_alignment", "1")]).wait().unwrap();
            db.compact().wait().unwrap();
            keyspace.put_with("key 000", [9; 9], Durability::Unlogged).wait().unwrap();
            db.flush().wait().unwrap();
            expected.insert(b"key 000".to_vec(), vec![9; 9]);
            keyspace.set_options([("value_alignment", "128")]).wait().unwrap();
            check_alignment(&keyspace, &expected, 128);
        }
    }
}
