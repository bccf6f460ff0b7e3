//! Mirrors: what they show, what ends them in between, and how one takes its source's place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo::{
    Builder, Db, Env, ErrorKind, KeyspaceOptions, Mirror, MirrorOptions, OperatorName, Options, Registry,
    TakeOver,
};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultPlan, Rule};
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectName, Placement, Purpose, Request, Uri};

use crate::stores::faulty_registry;

type State = BTreeMap<(String, Vec<u8>), Vec<u8>>;

pub(crate) const SOURCE: &str = "file:///source";
pub(crate) const MIRROR: &str = "mem://far/mirror";

/// A source on a disk, and a mirror in another store, whose requests may fail.
#[derive(Clone)]
pub(crate) struct Two {
    pub(crate) env: Env,
    registry: Registry,
    /// Of the mirror's store.
    pub(crate) plan: FaultPlan,
    /// Of the source's.
    pub(crate) near: FaultPlan,
}

impl Two {
    pub(crate) fn new(env: &Env) -> Two {
        let (plan, near) = (FaultPlan::scripted(), FaultPlan::scripted());
        let registry = faulty_registry(&Registry::with_defaults(), "mem", &plan);
        let registry = faulty_registry(&registry, "file", &near);
        Two { env: env.clone(), registry, plan, near }
    }

    pub(crate) fn at(&self, uri: &str) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
        Db::builder(uri).env(self.env.clone()).registry(self.registry.clone()).options(options)
    }

    pub(crate) async fn mirror(&self) -> tombolo::Result<Mirror> {
        Mirror::begin(self.at(SOURCE), self.at(MIRROR), MirrorOptions::default()).await
    }

    /// What lies at a URI, read without a claim.
    pub(crate) async fn contents(&self, uri: &str) -> tombolo::Result<State> {
        let db = self.at(uri).open_read_only().await?;
        let found = contents(&db).await;
        db.close().await?;
        found
    }
}

pub(crate) fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Two) -> F) {
    let process = World::new(1).process("writer");
    process.run(test(Two::new(&process.env()))).unwrap();
}

async fn contents(db: &Db) -> tombolo::Result<State> {
    let mut state = State::new();
    for keyspace in db.keyspaces() {
        let mut scan = keyspace.scan::<&[u8]>(..);
        while let Some((key, value)) = scan.next_async().await? {
            state.insert((keyspace.name().to_owned(), key.to_vec()), value.to_vec());
        }
    }
    Ok(state)
}

fn counter() -> KeyspaceOptions {
    KeyspaceOptions { operator: Some(OperatorName::new("add_u64", 1).unwrap()), ..KeyspaceOptions::default() }
}

/// Writes of all kinds: puts, large values, merges, deletes, range deletes, keyspaces that come and
/// go, a flush and a compaction now and then.
async fn write(db: &Db, numbers: std::ops::Range<u32>) {
    let counts = match db.keyspace("counts") {
        Ok(counts) => counts,
        Err(_) => db.create_keyspace("counts", counter()).await.unwrap(),
    };
    let apart = KeyspaceOptions { separate_bytes: 1024, ..KeyspaceOptions::default() };
    let large = match db.keyspace("large") {
        Ok(large) => large,
        Err(_) => db.create_keyspace("large", apart).await.unwrap(),
    };
    // Writes into keyspaces that are in no table yet come with the next flush.
    db.flush().await.unwrap();
    let keys = db.default_keyspace();
    for number in numbers {
        let key = format!("key {:03}", number * 7 % 211);
        keys.put(&key, vec![number as u8; 200]).await.unwrap();
        counts.merge(format!("count {}", number % 13), 1u64.to_le_bytes()).await.unwrap();
        if number % 5 == 0 {
            large.put(format!("large {}", number % 40), vec![number as u8; 3000]).await.unwrap();
        }
        if number % 11 == 0 {
            keys.delete(format!("key {:03}", number * 3 % 211)).await.unwrap();
        }
        if number % 60 == 59 {
            keys.delete_range(format!("key {:03}", number % 200), format!("key {:03}", number % 200 + 9))
                .await
                .unwrap();
            db.flush().await.unwrap();
        }
        if number % 150 == 149 {
            let name = format!("passing {number}");
            let passing = db.create_keyspace(&name, KeyspaceOptions::default()).await.unwrap();
            passing.put("here", "and gone").await.unwrap();
            db.flush().await.unwrap();
            if number % 2 == 1 {
                db.drop_keyspace(&name).await.unwrap();
                db.flush().await.unwrap();
            }
            db.compact().await.unwrap();
        }
    }
}

/// A live source, whose every state a mirror comes to show: with all that is in memory, and without
/// counting anything twice.
fn it_shows_what_its_source_does() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..40).await;
        let mirror = two.mirror().await.unwrap();
        for step in 0..12 {
            mirror.refresh().await.unwrap();
            let expected = contents(&db).await.unwrap();
            assert_eq!(two.contents(MIRROR).await.unwrap(), expected, "step {step}");
            let status = mirror.status();
            assert_eq!(status.lag_writes(), 0);
            assert_eq!((status.tables_left, status.bytes_left), (0, 0));
            write(&db, 40 + step * 37..77 + step * 37).await;
        }
        let published = mirror.status().published;
        mirror.refresh().await.unwrap();
        mirror.refresh().await.unwrap();
        assert_eq!(mirror.status().published, published + 1, "what is the same is not published again");
        let verified = mirror.verify().await.unwrap();
        assert!(verified.differences.is_empty() && verified.skipped.is_empty(), "{verified:?}");
        assert_eq!(verified.entries, contents(&db).await.unwrap().len() as u64);
        // Nothing is left of what it needs no more.
        let look = two.at(MIRROR).open_read_only().await.unwrap();
        let needed = look.stats().tables;
        look.close().await.unwrap();
        let tables = two.tables(MIRROR).await;
        assert!(tables <= needed + 40, "{tables} objects, of which {needed} are needed");
        mirror.close().await.unwrap();
        assert_eq!(mirror.refresh().await.unwrap_err().kind(), ErrorKind::Closed);
        db.close().await.unwrap();
    });
}

impl Two {
    async fn tables(&self, uri: &str) -> u64 {
        let store = self.registry.open_object_store(&self.env, &Uri::parse(uri).unwrap()).unwrap();
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = store.list(request, "", None, 100_000).await.unwrap();
        listed.objects.iter().filter(|object| object.name.as_str().contains("/table/")).count() as u64
    }
}

#[test]
fn a_mirror_shows_what_its_source_does() {
    it_shows_what_its_source_does();
}

/// What comes with the next flush only keeps a mirror where it is, and takes nothing back.
fn it_never_goes_back() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("in memory", "only").await.unwrap();
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        let before = contents(&db).await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), before);
        let new = db.create_keyspace("new", KeyspaceOptions::default()).await.unwrap();
        new.put("key", "value").await.unwrap();
        mirror.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), before);
        assert_eq!(mirror.status().lag_writes(), 2);
        db.flush().await.unwrap();
        mirror.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        mirror.close().await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn a_mirror_never_goes_back() {
    it_never_goes_back();
}

fn nobody_claims_it() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..20).await;
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
        let error = two.at(MIRROR).take_over(TakeOver::Always).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("a mirror of file:///source"), "{error}");
        // Nor is anything restored or cloned into it.
        db.checkpoint("now").await.unwrap();
        let restored = two.at(SOURCE).at_checkpoint("now").restore_to(two.at(MIRROR)).await;
        assert_eq!(restored.unwrap_err().kind(), ErrorKind::AlreadyExists);
        // It goes on, and is destroyed like any other.
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
        two.at(MIRROR).destroy().await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn nobody_claims_a_mirror_by_mistake() {
    nobody_claims_it();
}

fn one_at_a_time() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..20).await;
        let first = two.mirror().await.unwrap();
        first.refresh().await.unwrap();
        let second = two.mirror().await;
        assert_eq!(second.map(drop).unwrap_err().kind(), ErrorKind::InUse);
        first.refresh().await.unwrap();
        // Taken from it by who says so: the first one puts nothing more.
        let target = two.at(MIRROR).take_over(TakeOver::Always);
        let second = Mirror::begin(two.at(SOURCE), target, MirrorOptions::default()).await.unwrap();
        write(&db, 20..30).await;
        assert_eq!(first.refresh().await.unwrap_err().kind(), ErrorKind::Fenced);
        second.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        second.close().await.unwrap();
        first.close().await.unwrap();
        db.close().await.unwrap();
    });
}

/// A mirror that was taken has its copies swept: it is told so, and not that they are damaged.
#[test]
fn copies_that_a_successor_sweeps_are_no_damage() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..60).await;
        let first = two.mirror().await.unwrap();
        let is_read_back = |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::Read | RequestKind::Length) && asked.name.contains("/table/")
        };
        two.plan.inject(Rule::new(is_read_back, Fault::Delay(Duration::from_secs(20))).times(1));
        let round = first.refresh();
        two.env.sleep(Duration::from_secs(5)).await;
        let target = two.at(MIRROR).take_over(TakeOver::Always);
        let second = Mirror::begin(two.at(SOURCE), target, MirrorOptions::default()).await.unwrap();
        second.refresh().await.unwrap();
        let error = round.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        second.close().await.unwrap();
        first.close().await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn two_mirrors_at_once_are_refused() {
    one_at_a_time();
}

fn another_source_is_refused() {
    run(|two| async move {
        for uri in [SOURCE, "file:///other"] {
            let db = two.at(uri).open().await.unwrap();
            write(&db, 0..20).await;
            db.close().await.unwrap();
        }
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
        let other = Mirror::begin(two.at("file:///other"), two.at(MIRROR), MirrorOptions::default()).await;
        assert_eq!(other.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
        let onto = Mirror::begin(two.at(SOURCE), two.at("file:///other"), MirrorOptions::default()).await;
        assert_eq!(onto.map(drop).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let itself = Mirror::begin(two.at(SOURCE), two.at(SOURCE), MirrorOptions::default()).await;
        assert_eq!(itself.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_mirror_of_another_database_is_refused() {
    another_source_is_refused();
}

/// Of every request to the mirror's store, in turn, the answer is an error: the round is made
/// again, and what was copied and named counts.
fn what_was_copied_counts() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..400).await;
        let tables = db.stats().tables;
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        // The store takes four tables, and is full; then four more.
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 100, "it comes to an end");
            two.plan.clear();
            two.plan.inject(Rule::new(is_table, Fault::Error(ErrorKind::OutOfSpace)).skip(4));
            let mirror = two.mirror().await.unwrap();
            let round = mirror.refresh().await;
            let copied = mirror.status().tables_copied;
            mirror.close().await.unwrap();
            match round {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfSpace),
            }
            assert!(copied > 0 || rounds > 1, "{copied} of {tables}");
            let unmade = Mirror::promote(two.at(MIRROR), true).await;
            assert_eq!(unmade.unwrap_err().kind(), ErrorKind::NotFound, "it has published nothing");
        }
        assert!(rounds > 2, "{rounds} rounds for {tables} tables");
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        db.close().await.unwrap();
    });
}

#[test]
fn a_full_mirror_goes_on_from_where_it_was() {
    what_was_copied_counts();
}

/// A mirror whose process is killed, or whose host loses its power, at any change of its disk: who
/// looks then finds a state of the source, and the next mirror goes on.
fn killed_at(number: u64, crash: Crash) -> bool {
    const DISK: &str = "file:///mirror";
    let world = World::new(number);
    let states = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let writes = |from: u32, to: u32| {
        let states = Arc::clone(&states);
        let process = world.process("writer");
        let env = process.env();
        process
            .run(async move {
                let two = Two::new(&env);
                let db = two.at(SOURCE).open().await.unwrap();
                write(&db, from..to).await;
                let state = contents(&db).await.unwrap();
                states.lock().push(state);
                db.close().await.unwrap();
            })
            .unwrap();
    };
    writes(0, 70);
    let process = world.process("mirror");
    process.crash_at_mutation(number, crash);
    let mirrors = |env: Env| async move {
        let two = Two::new(&env);
        let target = two.at(DISK).take_over(TakeOver::Always);
        let mirror = Mirror::begin(two.at(SOURCE), target, MirrorOptions::default()).await?;
        mirror.refresh().await?;
        mirror.close().await
    };
    let ended = process.run(mirrors(process.env()));
    let was_killed = ended.is_none();
    writes(70, 100);
    let looks = |what: &str| {
        let process = world.process("looks");
        let env = process.env();
        let found = process.run(async move { Two::new(&env).contents(DISK).await }).unwrap();
        match found {
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}"),
            Ok(found) => {
                let is_unmade = found.is_empty();
                assert!(is_unmade || states.lock().contains(&found), "{what}: {crash:?} at {number}");
            }
        }
    };
    looks("after the crash");
    let process = world.process("mirror again");
    process.run(mirrors(process.env())).unwrap().unwrap();
    states.lock().remove(0);
    looks("at the end");
    was_killed
}

#[test]
fn killed_anywhere_it_goes_on() {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let step = if crate::is_deep() { 1 } else { 43 };
        let mut number = 1;
        while killed_at(number, crash) {
            number += step;
        }
        assert!(number > 50, "{number} changes of the disk");
    }
}

/// A source that merges and deletes its tables while the mirror copies.
#[test]
fn the_source_collects_meanwhile() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..300).await;
        let slow = |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        two.plan.inject(Rule::new(slow, Fault::Delay(Duration::from_secs(5))));
        let mirror = two.mirror().await.unwrap();
        let round = mirror.refresh();
        for step in 0..10 {
            write(&db, 300 + step * 20..320 + step * 20).await;
            db.compact().await.unwrap();
            two.env.sleep(Duration::from_secs(3)).await;
        }
        round.await.unwrap();
        two.plan.clear();
        mirror.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        mirror.close().await.unwrap();
        two.env.sleep(Duration::from_secs(300)).await;
        db.close().await.unwrap();
    });
}

/// Copies into keyspaces that are new there, of a round that failed.
#[test]
fn copies_into_new_keyspaces_count() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        db.flush().await.unwrap();
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        for number in 0..6 {
            let new = db.create_keyspace(&format!("{number}"), KeyspaceOptions::default()).await.unwrap();
            new.put("key", vec![number; 100]).await.unwrap();
        }
        db.flush().await.unwrap();
        db.default_keyspace().put("in memory", "value").await.unwrap();
        let before = mirror.status().tables_copied;
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        two.plan.inject(Rule::new(is_table, Fault::Error(ErrorKind::OutOfSpace)).skip(3));
        assert_eq!(mirror.refresh().await.unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert_eq!(mirror.status().tables_copied - before, 3);
        // Copies of no use any more, as of a keyspace that is gone meanwhile, are deleted.
        db.drop_keyspace("0").await.unwrap();
        db.flush().await.unwrap();
        two.plan.clear();
        // All but the record that names what was written.
        let is_record = |asked: &Asked<'_>| asked.kind == RequestKind::Put;
        two.plan.inject(Rule::new(is_record, Fault::Error(ErrorKind::PermissionDenied)).times(1));
        drop(mirror.refresh().await);
        two.plan.clear();
        mirror.refresh().await.unwrap();
        mirror.refresh().await.unwrap();
        assert!(mirror.status().tables_copied - before <= 7, "{:?}", mirror.status());
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        let look = two.at(MIRROR).open_read_only().await.unwrap();
        let needed = look.stats().tables;
        look.close().await.unwrap();
        assert!(two.tables(MIRROR).await <= needed + 2, "{} for {needed}", two.tables(MIRROR).await);
        mirror.close().await.unwrap();
        db.close().await.unwrap();
    });
}

/// A record of which the store says nothing for long: who follows goes on once it is known.
#[test]
fn a_record_on_its_way_is_waited_for() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        let mirror = two.mirror().await.unwrap();
        let following = mirror.follow();
        two.env.sleep(Duration::from_secs(30)).await;
        let is_record = |asked: &Asked<'_>| asked.kind == RequestKind::Put;
        two.plan.inject(Rule::new(is_record, Fault::Delay(Duration::from_secs(300))));
        db.default_keyspace().put("later", "value").await.unwrap();
        two.env.sleep(Duration::from_secs(200)).await;
        let error = mirror.status().error.expect("it is not known yet");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        two.plan.clear();
        two.env.sleep(Duration::from_secs(400)).await;
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        let following = following.try_take().expect_err("it goes on");
        mirror.close().await.unwrap();
        following.await.unwrap();
        db.close().await.unwrap();
    });
}

/// A keyspace of any name, beside one that came and went before the mirror saw it.
#[test]
fn a_dropped_keyspace_takes_nobodys_name() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        for number in 1..5 {
            let name = format!("dropped keyspace {number}");
            db.create_keyspace(&name, KeyspaceOptions::default()).await.unwrap();
        }
        db.create_keyspace("passing", KeyspaceOptions::default()).await.unwrap();
        let last = db.create_keyspace("dropped keyspace 5", KeyspaceOptions::default()).await.unwrap();
        last.put("key", "value").await.unwrap();
        db.flush().await.unwrap();
        db.drop_keyspace("passing").await.unwrap();
        db.create_keyspace("last", KeyspaceOptions::default()).await.unwrap();
        db.flush().await.unwrap();
        db.drop_keyspace("last").await.unwrap();
        let name = format!("dropped keyspace {}", 7);
        db.create_keyspace(&name, KeyspaceOptions::default()).await.unwrap().put("key", "x").await.unwrap();
        db.flush().await.unwrap();
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), contents(&db).await.unwrap());
        mirror.close().await.unwrap();
        db.close().await.unwrap();
    });
}

/// Damage of a table does not get into a mirror.
fn damage_is_not_copied() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..60).await;
        db.compact().await.unwrap();
        db.close().await.unwrap();
        let store = two.registry.open_object_store(&two.env, &Uri::parse(SOURCE).unwrap()).unwrap();
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = store.list(request, "", None, 100_000).await.unwrap();
        let names = listed.objects.into_iter().map(|object| object.name);
        for name in names.filter(|name: &ObjectName| name.as_str().contains("/table/")) {
            let length = store.length(request, &name).await.unwrap();
            let mut bytes = store.read(request, &name, 0..length).await.unwrap().to_vec();
            bytes[20] ^= 1;
            store.delete(request, &name).await.unwrap();
            let placement = Placement::new(ObjectKind::Table, Life::Long);
            let mut writer = store.create(request, &name, placement).await.unwrap();
            writer.append(Bytes::from(bytes)).await.unwrap();
            writer.finish().await.unwrap();
        }
        let options = MirrorOptions { verify: false, ..MirrorOptions::default() };
        let mirror = Mirror::begin(two.at(SOURCE), two.at(MIRROR), options).await.unwrap();
        assert_eq!(mirror.refresh().await.unwrap_err().kind(), ErrorKind::Corrupt);
        mirror.close().await.unwrap();
    });
}

#[test]
fn damage_does_not_get_into_a_mirror() {
    damage_is_not_copied();
}

/// The source is lost; the mirror says what it lacks, and is a database like any other.
#[test]
fn a_mirror_takes_the_place_of_a_lost_source() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..100).await;
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
        let mirrored = contents(&db).await.unwrap();
        let before = Mirror::state(two.at(MIRROR)).await.unwrap().unwrap();
        assert_eq!((before.is_mirror, before.missing()), (true, Some(0)));
        for number in 0..17 {
            db.default_keyspace().put(format!("later {number}"), "x").await.unwrap();
        }
        let state = Mirror::state(two.at(MIRROR)).await.unwrap().unwrap();
        assert_eq!(state.missing(), Some(17));
        let error = Mirror::promote(two.at(MIRROR), false).await.unwrap_err();
        assert!(error.to_string().contains("lacks 17 of its writes"), "{error}");
        drop(db);
        two.near.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied)));
        let promoted = Mirror::promote(two.at(MIRROR), false).await.unwrap();
        assert_eq!((promoted.missing, Some(promoted.sequence)), (None, before.sequence));
        let db = two.at(MIRROR).open().await.unwrap();
        assert_eq!(contents(&db).await.unwrap(), mirrored);
        write(&db, 100..200).await;
        db.compact().await.unwrap();
        let found = contents(&db).await.unwrap();
        assert!(db.verify().await.unwrap().damage.is_empty());
        db.close().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), found);
        assert_eq!(Mirror::state(two.at(MIRROR)).await.unwrap(), None);
    });
}

/// That something else lies at the source's place, or that a part of it is gone, does not say that
/// the source is lost.
#[test]
fn a_mirror_does_not_take_the_place_of_a_source_that_may_be_there() {
    for is_another in [false, true] {
        run(move |two| async move {
            let db = two.at(SOURCE).open().await.unwrap();
            write(&db, 0..20).await;
            let mirror = two.mirror().await.unwrap();
            mirror.refresh().await.unwrap();
            mirror.close().await.unwrap();
            db.close().await.unwrap();
            if is_another {
                two.at(SOURCE).destroy().await.unwrap();
                two.at(SOURCE).open().await.unwrap().close().await.unwrap();
            } else {
                let is_pin = |asked: &Asked<'_>| asked.name.contains("/pin/");
                two.near.inject(Rule::new(is_pin, Fault::Error(ErrorKind::NotFound)));
            }
            let error = Mirror::promote(two.at(MIRROR), false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("could not be asked"), "{error}");
            Mirror::promote(two.at(MIRROR), true).await.unwrap();
        });
    }
}

/// Roles are exchanged, and back: nothing is lost, and what both have is not copied again.
fn roles_are_exchanged() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..200).await;
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        write(&db, 200..230).await;
        let expected = contents(&db).await.unwrap();
        let handed = mirror.hand_over().await.unwrap();
        assert_eq!(handed.place, MIRROR);
        let late = db.default_keyspace().put("late", "write").await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Fenced);
        drop(db);
        let error = two.at(SOURCE).take_over(TakeOver::Always).open().await.unwrap_err();
        assert!(error.to_string().contains("moved to mem://far/mirror"), "{error}");
        // The other way round: both have it all.
        let back = Mirror::begin(two.at(MIRROR), two.at(SOURCE), MirrorOptions::default()).await.unwrap();
        back.refresh().await.unwrap();
        assert_eq!(back.status().tables_copied, 0);
        let db = two.at(MIRROR).open().await.unwrap();
        assert_eq!(contents(&db).await.unwrap(), expected);
        write(&db, 230..260).await;
        let expected = contents(&db).await.unwrap();
        assert!(back.verify().await.unwrap().differences.is_empty());
        drop(db);
        back.hand_over().await.unwrap();
        assert_eq!(two.contents(SOURCE).await.unwrap(), expected);
        assert_eq!(
            two.at(MIRROR).open().await.map(drop).unwrap_err().kind(),
            ErrorKind::Invalid,
            "it has moved back"
        );
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 260..300).await;
        db.close().await.unwrap();
    });
}

#[test]
fn roles_are_exchanged_and_back() {
    roles_are_exchanged();
}

/// Writes until the source is taken come along.
fn late_writes_come_along() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        write(&db, 0..100).await;
        let mirror = two.mirror().await.unwrap();
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        two.plan.inject(Rule::new(is_table, Fault::Delay(Duration::from_secs(3))));
        let handing = mirror.hand_over();
        two.env.sleep(Duration::from_secs(1)).await;
        db.default_keyspace().put("late", "write").await.unwrap();
        let expected = contents(&db).await.unwrap();
        handing.await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap(), expected);
    });
}

#[test]
fn writes_until_the_source_is_taken_come_along() {
    late_writes_come_along();
}

/// Of a hand-over each request of either store fails, in turn: the rest is undone or ended, and
/// never are both written to.
fn exchange_fails_at(number: u64, ends: bool, is_near: bool) -> (bool, u64) {
    let process = World::new(7).process("writer");
    let env = process.env();
    process
        .run(async move {
            let two = Two::new(&env);
            let plan = if is_near { two.near.clone() } else { two.plan.clone() };
            let db = two.at(SOURCE).open().await.unwrap();
            write(&db, 0..30).await;
            let expected = contents(&db).await.unwrap();
            let mirror = two.mirror().await.unwrap();
            mirror.refresh().await.unwrap();
            let asked = plan.requests();
            plan.inject(Rule::new(
                move |it: &Asked<'_>| it.number > asked + number,
                Fault::Error(ErrorKind::PermissionDenied),
            ));
            let handed = mirror.hand_over().await;
            let took = plan.requests() - asked;
            plan.clear();
            drop(db);
            let failed = handed.is_err();
            if failed {
                let target = || two.at(MIRROR).take_over(TakeOver::Always);
                let source = || two.at(SOURCE).take_over(TakeOver::Always);
                let open = source().open().await;
                let is_moving = open.is_err();
                if let Ok(db) = open {
                    assert_eq!(contents(&db).await.unwrap(), expected);
                    db.close().await.unwrap();
                }
                if is_moving && !ends {
                    match Mirror::undo_move(source(), target()).await {
                        Ok(()) => {
                            let error = target().open().await.map(drop).unwrap_err();
                            assert_eq!(error.kind(), ErrorKind::Invalid, "a mirror still");
                            assert_eq!(contents(&source().open().await.unwrap()).await.unwrap(), expected);
                            return (failed, took);
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
                    }
                }
                if Mirror::finish_move(source(), target()).await.unwrap().is_none() {
                    let mirror = Mirror::begin(source(), target(), MirrorOptions::default()).await.unwrap();
                    mirror.hand_over().await.unwrap();
                }
            }
            let error = two.at(SOURCE).take_over(TakeOver::Always).open().await.map(drop).unwrap_err();
            assert!(error.to_string().contains("moved to"), "{error}");
            let db = two.at(MIRROR).take_over(TakeOver::Always).open().await.unwrap();
            assert_eq!(contents(&db).await.unwrap(), expected);
            db.close().await.unwrap();
            (failed, took)
        })
        .unwrap()
}

fn exchanges_fail() {
    let step = if crate::is_deep() { 1 } else { 17 };
    for ends in [true, false] {
        let mut number = 0;
        while exchange_fails_at(number, ends, false).0 {
            number += step;
        }
        assert!(number > 10, "{number} requests");
    }
}

fn late_exchanges_fail() {
    // The last requests are those of the source, whose mark then says that it has moved.
    let (_, all) = exchange_fails_at(u64::from(u32::MAX), true, true);
    let first = if crate::is_deep() { 0 } else { all - 8 };
    for number in (first..all).step_by(2) {
        for ends in [true, false] {
            exchange_fails_at(number, ends, true);
        }
    }
}

#[test]
fn an_exchange_that_fails_is_ended_or_undone() {
    exchanges_fail();
    late_exchanges_fail();
}

#[cfg(feature = "mutants")]
#[test]
fn rules_of_mirrors_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::MirrorPrivateKept, it_shows_what_its_source_does);
    notices(Mutant::MirrorGoesBack, it_never_goes_back);
    notices(Mutant::MarkIgnored, nobody_claims_it);
    notices(Mutant::MirrorTwice, one_at_a_time);
    notices(Mutant::MirrorOfAnother, another_source_is_refused);
    notices(Mutant::MirrorStagedSwept, what_was_copied_counts);
    notices(Mutant::PromotedUnmade, what_was_copied_counts);
    notices(Mutant::CopyUnread, damage_is_not_copied);
    notices(Mutant::MoveUnmarked, roles_are_exchanged);
    notices(Mutant::MoveBehind, late_writes_come_along);
    notices(Mutant::MoveBackAfterwards, late_exchanges_fail);
}
