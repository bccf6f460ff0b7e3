//! Verification of a whole database, and sizes of ranges.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{Db, Durability, Env, KeyspaceOptions, Options};
use tombolo_env::simulated::World;

async fn open(env: Env) -> Db {
    let options = Options::parse(["memory_bytes=4194304", "automatic_compaction=false"]).unwrap();
    Db::builder("file:///db").log("file:///db?form=written").env(env).options(options).open().await.unwrap()
}

/// A database of some tables of several blocks, and a log.
async fn write(env: Env) {
    let db = open(env).await;
    let keys = db.default_keyspace();
    keys.set_options([("block_bytes", "8192")]).await.unwrap();
    for round in 0..3u32 {
        for index in 0..200u32 {
            let mut value = vec![round as u8; 200];
            value
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = byte.wrapping_add((at as u32 * index) as u8));
            keys.put_with(index.to_be_bytes(), value, Durability::Accepted).await.unwrap();
        }
        if round < 2 {
            db.flush().await.unwrap();
        }
    }
    keys.put(b"last", b"durable").await.unwrap();
}

#[test]
fn a_sound_database_is_read_whole_and_progress_is_told() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            write(env.clone()).await;
            let db = open(env).await;
            db.default_keyspace().put(b"more", b"1").await.unwrap();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&seen);
            let report =
                db.verify_with(move |report| told.lock().push((report.tables, report.bytes))).await.unwrap();
            assert!(report.damage.is_empty() && report.findings.is_empty(), "{:?}", report.damage);
            assert_eq!((report.tables, report.entries, report.tables_all), (2, 400, 2));
            assert_eq!(report.bytes, report.bytes_all);
            assert_eq!(
                (report.log_entries, db.stats().tables),
                (202, 2),
                "200 of the old log, one durable, one of the new log: {report:?}"
            );
            let seen = seen.lock();
            assert!(
                seen.len() >= 3 && seen.is_sorted() && seen.last() == Some(&(2, report.bytes)),
                "{seen:?}"
            );
        })
        .unwrap();
}

#[test]
fn all_damage_is_told_with_its_place() {
    let world = World::new(1);
    let writer = world.process("writer");
    writer.run(write(writer.env())).unwrap();
    writer.kill();
    let files = world.host(0).all_files();
    let tables: Vec<_> =
        files.iter().filter(|(path, _)| path.to_string_lossy().contains("/table/")).collect();
    assert_eq!(tables.len(), 2);
    // Three blocks of one table, and the other one cut off.
    let reader = world.process("reader");
    let env = reader.env();
    let db = reader.run(open(env)).unwrap();
    for offset in [100, 10_000, 20_000] {
        world.host(0).damage(&tables[0].0, |content| content[offset] ^= 0x55).unwrap();
    }
    world.host(0).damage(&tables[1].0, |content| content.truncate(5000)).unwrap();
    let report = reader.run(async move { db.verify().await.unwrap() }).unwrap();
    let of = |number: usize| {
        let name = tables[number].0.file_name().unwrap().to_string_lossy().into_owned();
        report
            .findings
            .iter()
            .filter(move |finding| finding.object.as_ref().is_some_and(|object| object.contains(&name)))
    };
    let offsets: Vec<_> = of(0).map(|finding| finding.offset.unwrap()).collect();
    // A block's checksum stands at its end.
    let within = offsets
        .iter()
        .zip([100, 10_000, 20_000])
        .all(|(offset, damaged)| (damaged..damaged + 8192).contains(offset));
    assert!(offsets.len() == 3 && within, "{offsets:?} of {:?}", report.damage);
    assert!(
        of(0).chain(of(1)).all(|finding| finding.expected.is_some() && finding.found.is_some()),
        "{:?}",
        report.findings
    );
    assert_eq!((of(1).count(), report.findings.len(), report.damage.len()), (1, 4, 4), "{:?}", report.damage);
    assert_eq!((report.tables, report.entries), (2, 0));
}

/// Bytes behind a table that nobody wrote are no part of it: reads do not see them, and
/// verification tells.
#[test]
fn an_object_that_has_grown_is_told() {
    let world = World::new(1);
    let writer = world.process("writer");
    writer.run(write(writer.env())).unwrap();
    writer.kill();
    let files = world.host(0).all_files();
    let (path, length) =
        files.into_iter().find(|(path, _)| path.to_string_lossy().contains("/table/")).unwrap();
    world.host(0).damage(&path, |content| content.extend([7; 10])).unwrap();
    let reader = world.process("reader");
    let db = reader.run(open(reader.env())).unwrap();
    let report = reader.run(async move { db.verify().await.unwrap() }).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.damage) };
    assert!(
        path.ends_with(std::path::Path::new(finding.object.as_ref().unwrap()).file_name().unwrap()),
        "{finding:?}"
    );
    assert_eq!(finding.expected, Some(format!("an object of {length} bytes")));
    assert_eq!(
        (finding.found.clone(), finding.offset),
        (Some(format!("{} bytes", length + 10)), Some(length))
    );
}

#[test]
fn damage_of_the_log_is_told_while_it_is_in_use() {
    let world = World::new(1);
    let writer = world.process("writer");
    let env = writer.env();
    let db = writer.run(open(env)).unwrap();
    let keys = db.default_keyspace();
    writer
        .run(async move {
            for index in 0..100u32 {
                keys.put(index.to_be_bytes(), [7; 100]).await.unwrap();
            }
        })
        .unwrap();
    let files = world.host(0).all_files();
    let mut damaged = 0;
    for (path, _) in files.iter().filter(|(path, _)| path.to_string_lossy().contains("/log/")) {
        let flip = |content: &mut Vec<u8>| {
            let values: Vec<_> = content
                .windows(64)
                .enumerate()
                .filter(|(_, window)| *window == [7; 64])
                .map(|(at, _)| at)
                .collect();
            if let Some(at) = values.get(values.len() / 2) {
                content[*at] ^= 0x55;
                damaged += 1;
            }
        };
        world.host(0).damage(path, flip).unwrap();
    }
    assert!(damaged > 0, "some segment holds the values");
    let report = writer.run(async move { db.verify().await.unwrap() }).unwrap();
    assert_eq!((report.findings.len(), report.tables), (1, 0), "{:?}", report.damage);
    assert!(report.log_entries < 100);
}

#[test]
fn sizes_of_ranges_are_right_to_a_block_for_each_table() {
    let env = Env::real();
    let db = Db::builder("mem://sizes").env(env).open().wait().unwrap();
    let options = KeyspaceOptions {
        compression: tombolo::Compression::None,
        block_bytes: Some(4096),
        ..KeyspaceOptions::default()
    };
    let keys = db.create_keyspace("k", options).wait().unwrap();
    let size = |range: std::ops::Range<u32>| {
        keys.approximate_size(range.start.to_be_bytes()..range.end.to_be_bytes()).wait().unwrap()
    };
    let put = |index: u32| keys.put_with(index.to_be_bytes(), [7; 96], Durability::Accepted).wait().unwrap();
    // In memory it is counted.
    (0..10_000).for_each(put);
    assert_eq!(
        (size(0..10_000).memory_entries, size(100..350).memory_entries, size(9_999..20_000).memory_entries),
        (10_000, 250, 1)
    );
    assert_eq!((size(0..10).memory_bytes, size(0..10).table_bytes), (1000, 0));
    db.flush().wait().unwrap();
    (0..10_000).step_by(2).for_each(put);
    db.flush().wait().unwrap();
    assert_eq!(size(0..10_000).memory_entries, 0);
    let all = keys.approximate_size::<&[u8]>(..).wait().unwrap();
    assert_eq!((all.table_bytes, all.table_entries), (db.stats().table_bytes, 15_000));
    assert_eq!(size(20_000..30_000).table_bytes, 0);
    for range in [0..1000, 5000..5001, 9000..30_000, 1..9_999, 4000..8000] {
        let found = size(range.clone());
        let truth = (u64::from(range.end.min(10_000)) - u64::from(range.start)) * 3 / 2;
        let (entries_max, bytes_max) = (2 * 2 * 4096 / 100, 2 * 2 * 4096);
        assert!(
            found.table_entries.abs_diff(truth) <= entries_max + truth / 50,
            "{range:?}: {found:?}, {truth} entries"
        );
        let bytes = all.table_bytes * truth / 15_000;
        assert!(
            found.table_bytes.abs_diff(bytes) <= bytes_max + bytes / 50,
            "{range:?}: {found:?}, {bytes} bytes"
        );
    }
    let excluded =
        (std::ops::Bound::Excluded(5u32.to_be_bytes()), std::ops::Bound::Included(7u32.to_be_bytes()));
    (0..10_000).for_each(put);
    assert_eq!(keys.approximate_size(excluded).wait().unwrap().memory_entries, 2);
}
