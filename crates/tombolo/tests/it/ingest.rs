//! Tables from outside: made without a database, taken into one whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{
    Bring, Db, Durability, Env, ErrorKind, Ingest, IngestOptions, Keyspace, KeyspaceOptions, ReaderOptions,
    Registry, Result, TableFileBuilder, TablePlace,
};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::{Epoch, ObjectName, Purpose, Request};

use crate::reader::builder;
use crate::stores::{Stores, run};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
/// By keyspace.
type All = BTreeMap<String, Contents>;
/// A key, and its value, or that it is deleted.
type Entries = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const OPTIONS: &[&str] = &["memory_bytes=1048576", "memtable_bytes=4096"];

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:02}").into_bytes()
}

/// Makes a table of entries.
async fn table(env: &Env, place: impl Into<TablePlace>, entries: &Entries) -> Result<()> {
    let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
    let mut table = TableFileBuilder::create_with(env.clone(), registry, place, options).await?;
    for (key, value) in entries {
        match value {
            Some(value) => table.put(key, value).await?,
            None => table.delete(key).await?,
        }
    }
    let made = table.finish().await?;
    assert_eq!(made.entries, entries.len() as u64);
    Ok(())
}

fn entries(from: u64, to: u64, value: &str) -> Entries {
    (from..to).map(|number| (key(number), Some(value.as_bytes().to_vec()))).collect()
}

fn apply(contents: &mut Contents, entries: &Entries) {
    for (key, value) in entries {
        match value {
            Some(value) => drop(contents.insert(key.clone(), value.clone())),
            None => drop(contents.remove(key)),
        }
    }
}

/// All that a keyspace holds, by every way to read it.
async fn contents(keyspace: &Keyspace) -> Result<Contents> {
    let mut scan = keyspace.scan::<&[u8]>(..);
    let mut forward = Vec::new();
    while let Some((key, value)) = scan.next_async().await? {
        assert_eq!(keyspace.get(&key).await?.as_ref(), Some(&value), "get and scan agree");
        forward.push((key.to_vec(), value.to_vec()));
    }
    let mut backward = Vec::new();
    while let Some((key, value)) = scan.prev_async().await? {
        backward.push((key.to_vec(), value.to_vec()));
    }
    backward.reverse();
    assert_eq!(forward, backward, "both directions agree");
    let found: Contents = forward.into_iter().collect();
    let keys: Vec<_> = (0..40).map(key).collect();
    for (key, value) in keys.iter().zip(keyspace.multi_get(&keys).await?) {
        assert_eq!(found.get(key).map(|value| &value[..]), value.as_deref(), "multi-get and scan agree");
    }
    Ok(found)
}

async fn all_contents(db: &Db) -> Result<All> {
    let mut all = All::new();
    for keyspace in db.keyspaces() {
        all.insert(keyspace.name().to_owned(), contents(&keyspace).await?);
    }
    Ok(all)
}

/// What the script has done, told outside the world.
struct Log {
    /// The state after each step.
    states: Vec<All>,
    /// Steps that were acknowledged as durable.
    durable: usize,
}

/// Whether the process has not ended: code goes on to the end of its poll after its process has.
fn alive(env: &Env) -> bool {
    !env.files().metadata(Path::new("/db")).is_err_and(|error| tombolo_env::simulated::is_crash(&error))
}

const NAMES: [&str; 2] = ["default", "second"];

/// A step of the script: tables for both keyspaces at once, some of which meet, perhaps as an
/// exchange.
async fn ingest_step(db: &Db, env: &Env, random: &mut Random, number: usize, state: &mut All) -> Result<()> {
    let options = IngestOptions {
        bring: [Bring::Link, Bring::Copy, Bring::Move][random.below(3) as usize],
        ordered: true,
        trusted: random.below(3) == 0,
        behind: false,
    };
    let mut ingest = Ingest::new().options(options);
    for name in NAMES {
        let keyspace = db.keyspace(name)?;
        let held = state.entry(name.to_owned()).or_default();
        if random.below(4) == 0 {
            held.clear();
            ingest = ingest.exchange(&keyspace);
        }
        for part in 0..=random.below(3) {
            let from = random.below(12);
            let mut entries = entries(from, from + 1 + random.below(6), &format!("{number}/{part}"));
            if random.below(2) == 0 {
                entries.insert(key(random.below(12)), None);
            }
            let place = format!("file:///parts/{number}/{name}-{part}.table");
            table(env, place.as_str(), &entries).await?;
            apply(held, &entries);
            ingest = ingest.table(&keyspace, place);
        }
    }
    db.ingest(ingest).await.map(drop)
}

async fn open(env: &Env, uri: &str) -> Result<Db> {
    builder(env, uri).open().await
}

/// Runs writes, ingests, flushes, compactions and openings, one after the other.
async fn script(env: Env, uri: String, seed: u64, steps: usize, log: Arc<Mutex<Log>>) -> Result<()> {
    let mut db = open(&env, &uri).await?;
    db.open_or_create_keyspace("second", KeyspaceOptions::default()).await?;
    let mut random = Random(seed);
    for number in 1..=steps {
        let mut state = log.lock().states.last().cloned().unwrap_or_default();
        let is_ingest = random.below(3) == 0;
        if is_ingest {
            // Whether or not it comes to an end: what it will have been is told before.
            let mut ahead = Random(random.0);
            let mut planned = state.clone();
            plan(&mut ahead, number, &mut planned);
            log.lock().states.push(planned.clone());
            ingest_step(&db, &env, &mut random, number, &mut state).await?;
            assert_eq!(planned, state);
        } else {
            let name = NAMES[random.below(2) as usize];
            let (key, value) =
                (key(random.below(12)), format!("{number}:{}", "x".repeat(random.below(200) as usize)));
            state.entry(name.to_owned()).or_default().insert(key.clone(), value.clone().into_bytes());
            log.lock().states.push(state);
            db.keyspace(name)?.put_with(&key, value.as_bytes(), Durability::Durable).await?;
        }
        if alive(&env) {
            log.lock().durable = number;
        }
        match random.below(12) {
            0 => db.flush().await?,
            1 => db.compact().await?,
            2 => {
                drop(db);
                db = open(&env, &uri).await?;
            }
            _ => {}
        }
    }
    db.close().await
}

/// What [`ingest_step`] does to the state.
fn plan(random: &mut Random, number: usize, state: &mut All) {
    let _options = (random.below(3), random.below(3));
    for name in NAMES {
        let held = state.entry(name.to_owned()).or_default();
        if random.below(4) == 0 {
            held.clear();
        }
        for part in 0..=random.below(3) {
            let from = random.below(12);
            let mut entries = entries(from, from + 1 + random.below(6), &format!("{number}/{part}"));
            if random.below(2) == 0 {
                entries.insert(key(random.below(12)), None);
            }
            apply(held, &entries);
        }
    }
}

fn all_empty() -> All {
    NAMES.iter().map(|name| ((*name).to_owned(), Contents::new())).collect()
}

/// Opens what a crash left, checks it, writes on, and checks again after a clean end.
fn check_after(world: &World, uri: &str, log: &Mutex<Log>, what: &str) {
    let checker = world.process("checker");
    let (env, place) = (checker.env(), uri.to_owned());
    let found = checker.run(async move {
        let db = open(&env, &place).await?;
        db.open_or_create_keyspace("second", KeyspaceOptions::default()).await?;
        let found = all_contents(&db).await?;
        db.flush().await?;
        assert_eq!(all_contents(&db).await?, found, "after a flush");
        db.compact().await?;
        assert_eq!(all_contents(&db).await?, found, "after a compaction");
        assert!(db.verify().await?.damage.is_empty());
        db.close().await?;
        Ok::<_, tombolo::Error>(found)
    });
    let found = found.expect("nothing ends the checker").unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = log.lock();
    let prefix = log.states.iter().rposition(|state| *state == found);
    let Some(prefix) = prefix else { panic!("{what}: no prefix of the script is found: {found:?}") };
    assert!(prefix >= log.durable, "{what}: {} steps were acknowledged, {prefix} are found", log.durable);
    let again = world.process("again");
    let (env, place) = (again.env(), uri.to_owned());
    let after = again.run(async move { all_contents(&open(&env, &place).await?).await }).unwrap().unwrap();
    assert_eq!(after, found, "{what}: after the second opening");
}

fn new_log() -> Arc<Mutex<Log>> {
    Arc::new(Mutex::new(Log { states: vec![all_empty()], durable: 0 }))
}

fn crash_everywhere(uri: &str, seed: u64, steps: usize, crash: Crash, step: usize) {
    let world = World::new(seed);
    let writer = world.process("writer");
    let log = new_log();
    writer.run(script(writer.env(), uri.to_owned(), seed, steps, Arc::clone(&log))).unwrap().unwrap();
    check_after(&world, uri, &log, "without a crash");
    for number in (1..=writer.mutations()).step_by(step) {
        let world = World::new(seed);
        let writer = world.process("writer");
        writer.crash_at_mutation(number, crash);
        let log = new_log();
        let ended = writer.run(script(writer.env(), uri.to_owned(), seed, steps, Arc::clone(&log)));
        if ended.is_none_or(|ended| ended.is_err()) {
            check_after(&world, uri, &log, &format!("{uri} seed {seed}, {crash:?} at mutation {number}"));
        }
    }
}

const MAPPED: &str = "file:///db file:///db?form=mapped";
const WRITTEN: &str = "file:///db file:///db?form=written";

fn every(deep: usize) -> usize {
    if crate::is_deep() { 1 } else { deep }
}

#[test]
fn an_ingest_is_whole_or_absent_and_stays_once_acknowledged_when_the_power_goes() {
    crash_everywhere(MAPPED, 1, 12, Crash::PowerLoss, every(41));
    crash_everywhere(WRITTEN, 2, 12, Crash::PowerLoss, every(41));
}

#[test]
fn an_ingest_is_whole_or_absent_when_its_process_is_killed() {
    crash_everywhere(WRITTEN, 3, 12, Crash::Kill, every(17));
}

/// Writes and ingests against a plain map, with snapshots, a reader, flushes, compactions and
/// openings in between.
#[test]
fn ingests_among_writes_read_as_a_map_does() {
    for seed in 1..=if crate::is_deep() { 60 } else { 3 } {
        let world = World::new(seed);
        let process = world.process("p");
        let env = process.env();
        process.run(model(env, seed)).unwrap().unwrap();
    }
}

async fn model(env: Env, seed: u64) -> Result<()> {
    let uri = "file:///db";
    let mut db = open(&env, uri).await?;
    db.open_or_create_keyspace("second", KeyspaceOptions::default()).await?;
    let following = ReaderOptions { lag_max: std::time::Duration::MAX, ..ReaderOptions::default() };
    let reader = builder(&env, uri).open_reader(following).await?;
    let mut state = all_empty();
    let mut random = Random(seed);
    let mut snapshots = Vec::new();
    for number in 1..=60 {
        match random.below(8) {
            0 | 1 => {
                snapshots.clear();
                ingest_step(&db, &env, &mut random, number, &mut state).await?;
            }
            2 => db.flush().await?,
            3 => db.compact().await?,
            4 => snapshots.push((db.snapshot(), state.clone())),
            5 if random.below(3) == 0 => {
                snapshots.clear();
                drop(db);
                db = open(&env, uri).await?;
            }
            _ => {
                let name = NAMES[random.below(2) as usize];
                let (key, value) = (key(random.below(12)), format!("{number}").into_bytes());
                state.entry(name.to_owned()).or_default().insert(key.clone(), value.clone());
                db.keyspace(name)?.put(&key, &value).await?;
            }
        }
        assert_eq!(all_contents(&db).await?, state, "seed {seed}, step {number}");
        for (snapshot, expected) in &snapshots {
            for (name, held) in expected {
                let keyspace = db.keyspace(name)?;
                for key in (0..20).map(key) {
                    let found = snapshot.get(&keyspace, &key).await?;
                    assert_eq!(found.as_deref(), held.get(&key).map(|value| &value[..]), "{number}");
                }
            }
        }
        reader.refresh().await?;
        for (name, held) in &state {
            assert_eq!(contents(&reader.keyspace(name)?).await?, *held, "reader, seed {seed}, step {number}");
        }
    }
    db.close().await
}

/// Tables lie over what was written before them, and under what comes after, while their memtable
/// waits for its flush and when it is flushed.
#[test]
fn a_table_lies_between_what_was_written_before_it_and_after() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keyspace = db.default_keyspace();
        keyspace.put(b"key-01", b"before").await.unwrap();
        keyspace.put(b"key-02", b"before").await.unwrap();
        let snapshot = db.snapshot();
        let part = part(&stores, "part", &entries(1, 4, "table")).await;
        let report = keyspace.ingest([part]).await.unwrap();
        assert_eq!((report.tables, report.entries), (1, 3));
        // A condition sees it as it does any write since.
        let unchanged = |number| tombolo::Condition::Unchanged(Some(number));
        let stale = keyspace.put_if(key(1), b"stale", unchanged(snapshot.sequence() - 1)).await.unwrap();
        assert_eq!(
            stale.found[0].as_ref().map(|found| (&found.value[..], found.sequence)),
            Some((&b"table"[..], report.sequence))
        );
        assert_eq!(stale.sequence, None);
        keyspace.put(b"key-02", b"after").await.unwrap();
        let expected = |number: u8| match number {
            1 | 3 => Some(&b"table"[..]),
            2 => Some(&b"after"[..]),
            _ => None,
        };
        for _ in 0..3 {
            for number in 0..5_u8 {
                let key = key(u64::from(number));
                assert_eq!(keyspace.get(&key).await.unwrap().as_deref(), expected(number), "{number}");
                let was = if number == 1 || number == 2 { Some(&b"before"[..]) } else { None };
                assert_eq!(snapshot.get(&keyspace, &key).await.unwrap().as_deref(), was, "{number}");
            }
            contents(&keyspace).await.unwrap();
            db.flush().await.unwrap();
        }
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

/// A snapshot that is opened while tables become part of the database reads the same from its first
/// read to its last. Writes with conditions rest on such snapshots.
#[test]
fn a_snapshot_that_is_opened_during_an_ingest_sees_all_of_it_or_nothing() {
    const INGESTS: u64 = 300;
    let env = Env::real();
    let db = Db::builder("mem://during").env(env.clone()).open().wait().unwrap();
    let store: Arc<dyn tombolo_storage::ObjectStore> =
        Arc::new(tombolo_storage::backend::memory::MemoryObjectStore::unnamed(&env));
    let keyspace = db.default_keyspace();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let snapshots = scope.spawn(|| {
            let mut opened = 0_u64;
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                let snapshot = db.snapshot();
                let read = || snapshot.get(&keyspace, key(0)).wait().unwrap();
                let first = read();
                for _ in 0..20 {
                    assert_eq!(read(), first, "a snapshot at {} changes", snapshot.sequence());
                }
                opened += 1;
            }
            opened
        });
        for number in 0..INGESTS {
            let place = TablePlace::object(Arc::clone(&store), format!("part-{number}")).unwrap();
            let entries = entries(0, 1, &number.to_string());
            let made = table(&env, place.clone(), &entries);
            env.block_on(made).unwrap();
            keyspace.ingest([place]).wait().unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Release);
        assert!(snapshots.join().expect("no snapshot changes") > 0);
    });
}

/// A table in the store of the database, under a name of its own.
async fn part(stores: &Stores, name: &str, entries: &Entries) -> TablePlace {
    let place = TablePlace::object(Arc::clone(&stores.objects), name).unwrap();
    table(&stores.env, place.clone(), entries).await.unwrap();
    place
}

/// A fault of a table is told, with what to do; nothing is taken, nothing stays, and the
/// database goes on.
#[test]
fn bad_tables_are_refused_and_nothing_is_taken() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = db.default_keyspace();
        keyspace.put(b"key-01", b"here").await.unwrap();
        db.flush().await.unwrap();
        let before = stores.tables().await;
        let good = part(&stores, "good", &entries(0, 3, "good")).await;
        let meeting = part(&stores, "meeting", &entries(2, 5, "meeting")).await;
        let request = Request::new(Purpose::Flush, Epoch::NONE);
        let place = |name: &str| TablePlace::object(Arc::clone(&stores.objects), name).unwrap();
        let put = async |name: &str, bytes: Vec<u8>| {
            let placement = tombolo_storage::Placement::new(
                tombolo_storage::ObjectKind::Table,
                tombolo_storage::Life::Long,
            );
            let object = ObjectName::new(name).unwrap();
            stores.objects.put_if_absent(request, &object, placement, bytes.into()).await.unwrap();
            place(name)
        };
        let bytes =
            stores.objects.read(request, &ObjectName::new("good").unwrap(), 0..u64::MAX).await.unwrap();
        let mut damaged = bytes.to_vec();
        damaged[20] ^= 1;
        let newer = {
            let mut newer = bytes.to_vec();
            let at = newer.len() - 96 + 40;
            newer[at + 1] = 0x40;
            let footer = newer.len() - 96;
            let checksum = tombolo_format::checksum::crc32c(&newer[footer..footer + 84]);
            newer[footer + 84..footer + 88].copy_from_slice(&checksum.to_le_bytes());
            newer
        };
        let own = before.iter().next().unwrap().clone();
        let own_bytes =
            stores.objects.read(request, &ObjectName::new(&own).unwrap(), 0..u64::MAX).await.unwrap();
        let copied = put("copied", own_bytes.to_vec()).await;
        let cases = [
            (vec![place("nowhere")], ErrorKind::NotFound, "no such object"),
            (
                vec![put("text", b"not a table at all".repeat(20)).await],
                ErrorKind::Invalid,
                "not end as a table",
            ),
            (vec![put("short", b"short".to_vec()).await], ErrorKind::Invalid, "5 bytes"),
            (vec![put("damaged", damaged).await], ErrorKind::Corrupt, "checksum"),
            (
                vec![put("cut", bytes[..bytes.len() - 1].to_vec()).await],
                ErrorKind::Invalid,
                "not end as a table",
            ),
            (vec![put("newer", newer).await], ErrorKind::Unsupported, "feature"),
            (vec![place(&own)], ErrorKind::Invalid, "is a table of a database"),
            (vec![copied], ErrorKind::Invalid, "sequence numbers of their own"),
            (vec![good.clone(), meeting.clone()], ErrorKind::Invalid, "may hold the same keys"),
            (vec![good.clone(), place("nowhere")], ErrorKind::NotFound, "no such object"),
            (vec![], ErrorKind::Invalid, "no table"),
        ];
        for (number, (tables, kind, says)) in cases.into_iter().enumerate() {
            let error = keyspace.ingest(tables).await.unwrap_err();
            let shown = error.to_string();
            assert!(error.kind() == kind && shown.contains(says), "case {number}: {kind:?}, {says}: {shown}");
            assert_eq!(stores.tables().await, before, "case {number} leaves nothing");
        }
        assert_eq!(contents(&keyspace).await.unwrap(), Contents::from([(key(1), b"here".to_vec())]));
        let options = IngestOptions { ordered: true, ..IngestOptions::default() };
        keyspace.ingest_with([good, meeting], options).await.unwrap();
        assert_eq!(contents(&keyspace).await.unwrap()[&key(2)], b"meeting");
    });
}

/// What a builder refuses, it does not add.
#[test]
fn a_builder_takes_ascending_keys_each_once() {
    run(OPTIONS, |stores| async move {
        let place = TablePlace::object(Arc::clone(&stores.objects), "part").unwrap();
        let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
        let create = || {
            TableFileBuilder::create_with(
                stores.env.clone(),
                registry.clone(),
                place.clone(),
                options.clone(),
            )
        };
        let mut table = create().await.unwrap();
        table.put(b"b", b"1").await.unwrap();
        for key in [&b"b"[..], b"a", b""] {
            let error = table.put(key, b"2").await.unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("sort"), "{error}");
        }
        let long = vec![b'x'; 70_000];
        assert_eq!(table.put(&long, b"").await.unwrap_err().kind(), ErrorKind::Invalid);
        table.put(b"c", b"3").await.unwrap();
        assert_eq!(table.finish().await.unwrap().entries, 2);
        let empty = create().await.unwrap();
        assert_eq!(empty.finish().await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

/// An exchange ends all that a keyspace held, at once; snapshots that would lose it keep it from
/// beginning.
#[test]
fn an_exchange_ends_what_was_there() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = db.default_keyspace();
        for number in 0..10 {
            keyspace.put(key(number), b"old").await.unwrap();
        }
        db.flush().await.unwrap();
        keyspace.put(key(20), b"old").await.unwrap();
        let snapshot = db.snapshot();
        let new = part(&stores, "new", &entries(3, 5, "new")).await;
        let exchange = || Ingest::new().exchange(&keyspace).table(&keyspace, new.clone());
        let error = db.ingest(exchange()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("snapshots"), "{error}");
        assert_eq!(contents(&keyspace).await.unwrap().len(), 11);
        drop(snapshot);
        let cursor = keyspace.cursor::<&[u8]>(..);
        db.ingest(exchange()).await.unwrap();
        let mut expected: Contents = (3..5).map(|number| (key(number), b"new".to_vec())).collect();
        assert_eq!(contents(&keyspace).await.unwrap(), expected);
        keyspace.put(key(1), b"newer").await.unwrap();
        expected.insert(key(1), b"newer".to_vec());
        drop(cursor);
        for _ in 0..2 {
            assert_eq!(contents(&keyspace).await.unwrap(), expected);
            db.flush().await.unwrap();
        }
        db.compact().await.unwrap();
        assert_eq!(contents(&keyspace).await.unwrap(), expected);
        db.ingest(Ingest::new().exchange(&keyspace)).await.unwrap();
        assert!(contents(&keyspace).await.unwrap().is_empty());
        db.flush().await.unwrap();
        assert!(contents(&keyspace).await.unwrap().is_empty());
        drop((db, keyspace));
        let db = stores.open(&[]).await;
        assert!(contents(&db.default_keyspace()).await.unwrap().is_empty());
    });
}

/// Tables that meet nothing are not written again: they move down as far as they can, past what
/// they do not meet, and over what they do.
#[test]
fn ingested_tables_find_their_level_unwritten() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = db.default_keyspace();
        let load = async |name: &str, number: u64| {
            let entries = entries(10 * number, 10 * number + 10, "x");
            part(&stores, name, &entries).await
        };
        let mut parts = Vec::new();
        for number in 0..9 {
            parts.push(load(&format!("part-{number}"), number).await);
        }
        keyspace.ingest(parts).await.unwrap();
        db.flush().await.unwrap();
        stores.env.sleep(std::time::Duration::from_secs(1)).await;
        let stats = db.stats();
        assert_eq!((stats.tables, stats.tables_by_level.last()), (9, Some(&9)), "{stats:?}");
        keyspace.put(key(15), b"newer").await.unwrap();
        keyspace.ingest([load("again", 1).await]).await.unwrap();
        db.flush().await.unwrap();
        stores.env.sleep(std::time::Duration::from_secs(1)).await;
        let held = contents(&keyspace).await.unwrap();
        assert_eq!((held.len(), &held[&key(15)][..]), (90, &b"x"[..]));
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

/// A dropped keyspace takes nothing, and another database's handle neither.
#[test]
fn a_keyspace_that_is_gone_takes_no_table() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let gone = db.create_keyspace("gone", KeyspaceOptions::default()).await.unwrap();
        let kept = db.create_keyspace("kept", KeyspaceOptions::default()).await.unwrap();
        db.drop_keyspace("gone").await.unwrap();
        let part = part(&stores, "part", &entries(0, 3, "x")).await;
        let both = Ingest::new().table(&kept, part.clone()).table(&gone, part.clone());
        assert_eq!(db.ingest(both).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(contents(&kept).await.unwrap().is_empty());
        let other = Stores::new(&stores.env, OPTIONS).open(&[]).await;
        let foreign = Ingest::new().table(&other.default_keyspace(), part.clone());
        assert_eq!(db.ingest(foreign).await.unwrap_err().kind(), ErrorKind::Invalid);
        kept.ingest([part]).await.unwrap();
        assert_eq!(contents(&kept).await.unwrap().len(), 3);
    });
}

/// Of each way to bring one in, the given object stays or goes.
#[test]
fn a_moved_table_is_gone_where_it_was_and_the_others_stay() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = db.default_keyspace();
        for (number, bring) in [Bring::Link, Bring::Copy, Bring::Move].into_iter().enumerate() {
            let name = format!("part-{number}");
            let part = part(&stores, &name, &entries(number as u64, number as u64 + 1, "x")).await;
            keyspace.ingest_with([part], IngestOptions { bring, ..IngestOptions::default() }).await.unwrap();
            assert_eq!(stores.names().await.contains(&name), bring != Bring::Move, "{bring:?}");
        }
        assert_eq!(contents(&keyspace).await.unwrap().len(), 3);
        // An ingested table looks like one from outside. Moved, it would be lost to its database.
        db.flush().await.unwrap();
        let options = IngestOptions { bring: Bring::Move, ..IngestOptions::default() };
        for own in stores.tables().await {
            let own = TablePlace::object(Arc::clone(&stores.objects), own).unwrap();
            let error = keyspace.ingest_with([own], options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("a table of a database"), "{error}");
        }
        assert!(db.verify().await.unwrap().damage.is_empty());
        assert_eq!(contents(&keyspace).await.unwrap().len(), 3);
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tombolo_storage::mutant::{Mutant, enable, notices};

    use super::*;

    /// Whether some crash of the script shows that a rule was taken out.
    fn is_noticed(mutant: Mutant, crash: Crash) -> bool {
        let _guard = enable(mutant);
        (1..=4).any(|seed| {
            catch_unwind(AssertUnwindSafe(|| crash_everywhere(WRITTEN, seed, 12, crash, 1))).is_err()
        })
    }

    #[test]
    fn numbers_of_entries_in_place_of_the_tables() {
        notices(Mutant::OverrideIgnored, a_table_lies_between_what_was_written_before_it_and_after);
    }

    #[test]
    fn a_memtable_that_is_not_sealed_with_an_ingest() {
        notices(Mutant::IngestWithoutSeal, a_table_lies_between_what_was_written_before_it_and_after);
    }

    #[test]
    fn an_ingest_that_is_acknowledged_before_its_entry_is_durable() {
        assert!(is_noticed(Mutant::IngestAcknowledgedEarly, Crash::PowerLoss));
    }

    #[test]
    fn staged_tables_that_no_entry_shows() {
        assert!(is_noticed(Mutant::IngestShowsStaged, Crash::Kill));
    }

    #[test]
    fn staged_tables_given_up_that_an_entry_shows() {
        assert!(is_noticed(Mutant::IngestGivenUpWithEntry, Crash::Kill));
    }
}
