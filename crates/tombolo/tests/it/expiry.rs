//! Values that end, through the public interface, in a simulated world whose clocks jump.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Batch, Condition, Db, ErrorKind, Ingest, IngestOptions, KeyspaceOptions, Options, ReaderOptions,
    Registry, TableFileBuilder, TakeOver,
};
use tombolo_env::simulated::{Process, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

const MINUTE: Duration = Duration::from_secs(60);

fn builder(process: &Process) -> tombolo::Builder {
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap();
    Db::builder("file:///db").env(process.env()).options(options).take_over(TakeOver::Always)
}

fn get(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.default_keyspace().get(key).wait().unwrap().map(|value| value.to_vec())
}

/// Every way to read agrees on the keys that have a value.
fn check(db: &Db, expected: &[&str]) {
    let keys = db.default_keyspace();
    let forward: Vec<_> = keys.scan::<&[u8]>(..).map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(forward, expected.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
    let mut cursor = keys.cursor::<&[u8]>(..);
    let mut backward = Vec::new();
    let mut more = cursor.seek_to_last().unwrap();
    while more {
        backward.push(cursor.key().to_vec());
        more = cursor.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(backward, forward);
    for key in ["long", "put", "short"] {
        let is_there = expected.contains(&key);
        assert_eq!(get(db, key).is_some(), is_there, "{key}");
        assert_eq!(keys.multi_get(&[key]).wait().unwrap()[0].is_some(), is_there, "{key}");
        assert_eq!(keys.get_with(key, |_| ()).wait().unwrap().is_some(), is_there, "{key}");
        assert_eq!(keys.get_versioned(key).wait().unwrap().is_some(), is_there, "{key}");
    }
}

#[test]
fn values_end_at_their_time_in_memory_and_in_tables_and_for_successors() {
    let world = World::new(1);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.put("put", "stays").wait().unwrap();
    keys.put("short", "older").wait().unwrap();
    keys.put_ttl("short", "value", MINUTE).wait().unwrap();
    let mut batch = Batch::new();
    batch.put_ttl(&keys, "long", "value", 10 * MINUTE);
    db.write(batch).wait().unwrap();
    check(&db, &["long", "put", "short"]);
    assert_eq!(get(&db, "short").unwrap(), b"value");
    let before = db.snapshot();
    world.run_for(MINUTE + Duration::from_millis(1));
    check(&db, &["long", "put"]);
    assert_eq!(before.get(&keys, "short").wait().unwrap().unwrap(), b"value", "a snapshot has its time");
    db.flush().wait().unwrap();
    db.compact().wait().unwrap();
    check(&db, &["long", "put"]);
    assert_eq!(before.get(&keys, "short").wait().unwrap().unwrap(), b"value");
    assert_eq!(before.scan::<&[u8]>(&keys, ..).count(), 3);
    drop((before, keys, db));
    // A host whose clock is an hour behind revives nothing.
    world.host(0).jump_unix_time(-3600);
    let db = builder(&process).open().wait().unwrap();
    check(&db, &["long", "put"]);
    // Ahead of its host's clock, time goes on at half of its pace.
    let began = db.time_ms();
    world.run_for(30 * MINUTE);
    let passed = db.time_ms() - began;
    assert!((15 * 60_000..=30 * 60_000).contains(&passed), "{passed} ms");
    check(&db, &["put"]);
    assert!(db.verify().wait().unwrap().damage.is_empty());
}

/// A time to live counts from the database's time, however far behind it the host's clock is: else
/// values would be gone as they are written.
fn a_ttl_where_the_hosts_clock_is_behind() {
    let world = World::new(8);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    // Something ends, so that the database keeps its time.
    keys.put_ttl("earlier", "value", MINUTE).wait().unwrap();
    world.run_for(2 * MINUTE);
    assert_eq!(get(&db, "earlier"), None);
    drop((keys, db));
    world.host(0).jump_unix_time(-3600);
    let db = builder(&process).open().wait().unwrap();
    let options = KeyspaceOptions { ttl: Some(MINUTE), ..KeyspaceOptions::default() };
    let sessions = db.create_keyspace("sessions", options).wait().unwrap();
    let keys = db.default_keyspace();
    let now = db.time_ms();
    keys.put_ttl("put", "value", MINUTE).wait().unwrap();
    sessions.put("put", "value").wait().unwrap();
    let mut batch = Batch::new();
    batch.put_ttl(&keys, "long", "value", MINUTE);
    db.write(batch).wait().unwrap();
    check(&db, &["long", "put"]);
    let mut cursor = sessions.cursor::<&[u8]>(..);
    assert!(cursor.next().unwrap(), "the keyspace's own time to live");
    let end = cursor.expires_ms().unwrap();
    assert!((now + 60_000..=db.time_ms() + 60_000).contains(&end), "{end} after {now}");
    drop(cursor);
    // Ahead of its host's clock the database's time goes at half of its pace.
    world.run_for(2 * MINUTE + Duration::from_millis(10));
    check(&db, &[]);
    assert_eq!(sessions.scan::<&[u8]>(..).count(), 0);
}

/// A reader has its writer's time, whatever its own host's clock says: what has ended for one has
/// ended for the other, and nothing else.
fn a_reader_on_a_host_with_another_clock(seconds: i64) {
    let world = World::new(9);
    let (host, other) = (world.host(0), world.add_host("reader"));
    let writer = host.process("writer");
    let stores = {
        let env = writer.env();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        move |builder: tombolo::Builder| builder.stores(Arc::clone(&objects), Arc::clone(&log))
    };
    let db = stores(builder(&writer)).open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.put_ttl("short", "value", 5 * MINUTE).wait().unwrap();
    keys.put_ttl("long", "value", 60 * MINUTE).wait().unwrap();
    keys.put("put", "stays").wait().unwrap();
    db.flush().wait().unwrap();
    other.jump_unix_time(seconds);
    let reader = stores(builder(&other.process("reader"))).open_reader(ReaderOptions::default());
    let reader = reader.wait().unwrap();
    for expected in [&["long", "put", "short"][..], &["long", "put"], &["put"]] {
        world.run_for(Duration::from_secs(10));
        check(reader.db(), expected);
        let (shown, now) = (reader.db().time_ms(), db.time_ms());
        assert!(shown <= now, "{shown} and {now}");
        world.run_for(if expected.len() == 3 { 10 * MINUTE } else { 60 * MINUTE });
    }
}

#[test]
fn a_ttl_counts_from_the_databases_time() {
    a_ttl_where_the_hosts_clock_is_behind();
}

#[test]
fn a_reader_judges_by_the_databases_time() {
    a_reader_on_a_host_with_another_clock(40_000);
    a_reader_on_a_host_with_another_clock(-40_000);
}

#[cfg(feature = "mutants")]
#[test]
fn hosts_clocks_that_decide_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::TtlByHostClock, a_ttl_where_the_hosts_clock_is_behind);
    notices(Mutant::ReaderJudgesByHostClock, || a_reader_on_a_host_with_another_clock(40_000));
    notices(Mutant::ReaderJudgesByHostClock, || a_reader_on_a_host_with_another_clock(-40_000));
    notices(Mutant::ReadersNotToldOfEnds, || a_reader_on_a_host_with_another_clock(0));
}

/// Tables from outside hold values that end, and say so to whom it concerns: nothing else tells the
/// keeper of the time that something ends.
#[test]
fn values_of_tables_from_outside_end() {
    for trusted in [false, true] {
        let world = World::new(1);
        let process = world.process("writer");
        let db = builder(&process).open().wait().unwrap();
        let keys = db.default_keyspace();
        let (env, registry) = (process.env(), Registry::with_defaults());
        let made = TableFileBuilder::create_with(env, registry, "file:///parts/1.table", keys.options());
        let mut table = made.wait().unwrap();
        let now = db.time_ms();
        table.put_until("long", "value", now + 600_000).wait().unwrap();
        table.put("put", "stays").wait().unwrap();
        table.put_until("short", "value", now + 60_000).wait().unwrap();
        let beyond = table.put_until("zero", "value", u64::MAX).wait().unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::Invalid, "{beyond}");
        table.finish().wait().unwrap();
        let options = IngestOptions { trusted, ..IngestOptions::default() };
        db.ingest(Ingest::new().options(options).table(&keys, "file:///parts/1.table")).wait().unwrap();
        check(&db, &["long", "put", "short"]);
        world.run_for(MINUTE + Duration::from_millis(1));
        check(&db, &["long", "put"]);
        assert!(db.verify().wait().unwrap().damage.is_empty());
        drop((keys, db));
        let db = builder(&process).open().wait().unwrap();
        check(&db, &["long", "put"]);
        world.run_for(10 * MINUTE);
        check(&db, &["put"]);
        // An hour later the bytes are gone.
        world.run_for(90 * MINUTE);
        db.compact().wait().unwrap();
        assert_eq!(db.property("entries").unwrap().value.number(), Some(1));
    }
}

/// Neither its first nor its last entry ends.
#[test]
fn a_trusted_table_is_read_for_what_ends_in_it() {
    let world = World::new(1);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    let (env, registry) = (process.env(), Registry::with_defaults());
    let made = TableFileBuilder::create_with(env, registry, "file:///parts/1.table", keys.options());
    let mut table = made.wait().unwrap();
    table.put("a", "stays").wait().unwrap();
    table.put_until("short", "value", db.time_ms() + 60_000).wait().unwrap();
    table.put("z", "stays").wait().unwrap();
    table.finish().wait().unwrap();
    let options = IngestOptions { trusted: true, ..IngestOptions::default() };
    keys.ingest_with(["file:///parts/1.table"], options).wait().unwrap();
    assert_eq!(get(&db, "short").as_deref(), Some(&b"value"[..]));
    world.run_for(2 * MINUTE);
    assert_eq!(get(&db, "short"), None);
    assert_eq!(get(&db, "z").as_deref(), Some(&b"stays"[..]));
}

#[test]
fn a_clock_that_jumps_ahead_hides_and_can_be_set_back() {
    let world = World::new(2);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.put_ttl("short", "value", 100 * MINUTE).wait().unwrap();
    db.flush().wait().unwrap();
    world.host(0).jump_unix_time(400 * 86_400);
    world.run_for(2 * MINUTE);
    assert_eq!(get(&db, "short"), None);
    db.compact().wait().unwrap();
    world.host(0).jump_unix_time(-400 * 86_400);
    world.run_for(MINUTE);
    assert_eq!(get(&db, "short"), None, "time does not go back by itself");
    db.reset_time().wait().unwrap();
    assert_eq!(get(&db, "short").unwrap(), b"value", "and the bytes are there");
}

/// Nobody writes, and nobody asks: what has expired goes an hour later.
#[test]
fn a_keyspace_that_nobody_writes_is_cleaned() {
    let world = World::new(3);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.create_keyspace("cache", KeyspaceOptions { ttl: Some(MINUTE), ..Default::default() });
    let keys = keys.wait().unwrap();
    for number in 0..200u32 {
        keys.put(number.to_be_bytes(), [7; 100]).wait().unwrap();
    }
    db.flush().wait().unwrap();
    assert!(db.stats().table_bytes > 0);
    world.run_for(30 * MINUTE);
    assert_eq!(keys.scan::<&[u8]>(..).count(), 0);
    assert!(db.stats().table_bytes > 0, "the grace is not over");
    world.run_for(60 * MINUTE);
    assert_eq!(db.stats().table_bytes, 0);
}

#[test]
fn wrong_ends_are_refused_and_conditions_go_by_the_time() {
    let world = World::new(4);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    for wrong in [Duration::ZERO, Duration::from_micros(1), Duration::MAX] {
        assert_eq!(keys.put_ttl("a", "v", wrong).wait().unwrap_err().kind(), ErrorKind::Invalid);
    }
    let past = db.time_ms() - 1;
    let error = keys.put_until_with("a", "v", past, tombolo::Durability::Durable).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut batch = Batch::new();
    batch.put_until(&keys, "a", "v", past).put(&keys, "b", "v");
    assert_eq!(db.write(batch).wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(keys.scan::<&[u8]>(..).count(), 0, "nothing of it was taken");
    keys.put_ttl("a", "v", MINUTE).wait().unwrap();
    let absent = || keys.put_if("a", "w", Condition::Absent).wait().unwrap();
    assert!(!absent().is_met());
    world.run_for(2 * MINUTE);
    assert!(absent().is_met(), "what has expired is absent");
}

/// A lock that nobody gives back ends, though nothing else happens in the database.
#[test]
fn values_of_writes_with_conditions_end_as_others_do() {
    let world = World::new(7);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let ttl = KeyspaceOptions { ttl: Some(MINUTE), ..Default::default() };
    let keys = db.create_keyspace("locks", ttl).wait().unwrap();
    world.run_for(MINUTE);
    assert!(keys.put_if("one", "v", Condition::Absent).wait().unwrap().is_met());
    world.run_for(2 * MINUTE);
    assert_eq!(keys.get("one").wait().unwrap(), None);
    let mut batch = Batch::new();
    batch.require(&keys, "two", Condition::Absent).put(&keys, "two", "v");
    assert!(db.write_if(batch).wait().unwrap().is_met());
    world.run_for(2 * MINUTE);
    assert_eq!(keys.get("two").wait().unwrap(), None);
}

/// Without entries that end, no record says a time.
#[test]
fn time_costs_nothing_where_nothing_ends() {
    let world = World::new(5);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    db.default_keyspace().put("a", "v").wait().unwrap();
    db.flush().wait().unwrap();
    let records = || {
        let files = world.host(0).all_files();
        files.iter().filter(|(path, _)| path.to_string_lossy().contains("/manifest/")).count()
    };
    let before = records();
    world.run_for(3 * 60 * MINUTE);
    assert_eq!(records(), before);
}

/// A table lives as long as the last of its values.
#[test]
fn a_table_with_a_value_that_lives_on_is_not_dropped() {
    let world = World::new(6);
    let process = world.process("writer");
    let db = builder(&process).open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.put_ttl("short", "value", MINUTE).wait().unwrap();
    keys.put_ttl("long", "value", 600 * MINUTE).wait().unwrap();
    db.flush().wait().unwrap();
    world.run_for(300 * MINUTE);
    assert_eq!((get(&db, "short"), get(&db, "long")), (None, Some(b"value".to_vec())));
}

#[cfg(feature = "mutants")]
#[test]
fn snapshots_without_a_time_and_tables_that_end_too_early_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::SnapshotJudgesByNow, values_end_at_their_time_in_memory_and_in_tables_and_for_successors);
    notices(Mutant::ExpiryOfTableTooEarly, a_table_with_a_value_that_lives_on_is_not_dropped);
    notices(Mutant::TrustedEndsUnread, a_trusted_table_is_read_for_what_ends_in_it);
}
