//! Backups in another store, archived changes, and databases restored of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Backups, Batch, Builder, Db, Durability, Env, ErrorKind, Ingest, Keep, KeyspaceOptions, OpenMode,
    Options, ReaderOptions, Registry, RestorePoint, Restored, Result, TableFileBuilder, TablePlace, TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_format::backup::BackupRecord;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, LogStore, ObjectName, ObjectStore, Placement, Purpose, Request};

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

#[derive(Clone)]
struct Places {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    kept: Arc<dyn ObjectStore>,
}

impl Places {
    fn of(env: &Env) -> Places {
        let objects = Arc::new(MemoryObjectStore::unnamed(env));
        let log = Arc::new(MemoryLogStore::unnamed(env));
        let kept = Arc::new(MemoryObjectStore::unnamed(env));
        Places { env: env.clone(), objects, log, kept }
    }

    fn builder_of(&self, objects: &Arc<dyn ObjectStore>, log: &Arc<dyn LogStore>) -> Builder {
        let settings = ["memory_bytes=2097152", "memtable_bytes=65536", "automatic_compaction=false"];
        let options = Options::parse(settings).unwrap();
        let builder = Db::builder("mem://backups").env(self.env.clone()).take_over(TakeOver::Always);
        builder.stores(Arc::clone(objects), Arc::clone(log)).options(options)
    }

    fn builder(&self) -> Builder {
        self.builder_of(&self.objects, &self.log)
    }

    /// An empty place.
    fn elsewhere(&self) -> Builder {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&self.env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&self.env));
        self.builder_of(&objects, &log)
    }

    fn backups(&self) -> Backups {
        Backups::of(&self.env, Arc::clone(&self.kept))
    }

    /// The same place, where `rule` goes wrong.
    fn failing(&self, rule: Rule) -> Backups {
        let plan = FaultPlan::scripted();
        plan.inject(rule);
        Backups::of(&self.env, Arc::new(FaultObjectStore::new(&self.env, Arc::clone(&self.kept), plan)))
    }

    async fn back_up(&self, db: &Db) -> Result<tombolo::Backup> {
        db.checkpoint("moment").await.unwrap();
        let backup = self.backups().create(self.builder().at_checkpoint("moment")).await;
        db.delete_checkpoint("moment").await.unwrap();
        backup
    }

    /// What a restore of a point holds.
    async fn restored(&self, point: RestorePoint) -> Result<(Restored, Contents)> {
        let target = self.elsewhere();
        let restored = self.backups().restore(point, target.clone()).await?;
        let db = target.mode(OpenMode::Open).open().await?;
        Ok((restored, contents(&db).await))
    }

    async fn names(&self, prefix: &str) -> Vec<ObjectName> {
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let listed = self.kept.list(request, prefix, None, 1000).await.unwrap();
        listed.objects.into_iter().map(|object| object.name).collect()
    }

    /// Changes a byte of an object of backups.
    async fn damage(&self, object: &ObjectName) {
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let mut bytes = self.kept.read(request, object, 0..1 << 30).await.unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.kept.delete(request, object).await.unwrap();
        let placement = Placement::new(tombolo_storage::ObjectKind::Table, tombolo_storage::Life::Long);
        self.kept.put_if_absent(request, object, placement, bytes.into()).await.unwrap();
    }
}

async fn contents(db: &Db) -> Contents {
    let mut all = Contents::new();
    for keyspace in db.keyspaces() {
        let mut scan = keyspace.scan::<&[u8]>(..);
        while let Some((key, value)) = scan.next_async().await.unwrap() {
            all.insert((keyspace.name().to_owned(), key.to_vec()), value.to_vec());
        }
    }
    all
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Places) -> F + Send + 'static) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    process.run(async move { test(Places::of(&env)).await }).unwrap();
}

async fn fill(db: &Db, from: u32, to: u32) {
    for number in from..to {
        // Bytes that hardly compress.
        let mut seed = u64::from(number) + 1;
        let mut byte = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        };
        let value: Vec<u8> = (0..2000).map(|_| byte()).collect();
        db.default_keyspace().put_with(number.to_be_bytes(), value, Durability::Accepted).await.unwrap();
    }
}

/// Tables are copied once, and go with the last backup that names them.
fn backups_share_tables() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        let backups = places.backups();
        assert_eq!(
            backups.restore(RestorePoint::Newest, places.elsewhere()).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        fill(&db, 0, 100).await;
        let first = places.back_up(&db).await.unwrap();
        assert_eq!((first.number, first.copied_bytes), (1, Some(first.bytes)));
        let before = contents(&db).await;
        fill(&db, 100, 120).await;
        let second = places.back_up(&db).await.unwrap();
        assert!(second.copied_bytes.unwrap() < second.bytes / 2, "{second:?}");
        fill(&db, 110, 130).await;
        db.compact().await.unwrap();
        let third = places.back_up(&db).await.unwrap();
        let unchanged = places.back_up(&db).await.unwrap();
        assert_eq!((unchanged.number, unchanged.copied_bytes), (4, Some(0)));
        assert_eq!(backups.list().await.unwrap().len(), 4);
        let report = backups.verify().await.unwrap();
        assert_eq!((report.backups, &report.damage[..], &report.gaps[..]), (4, &[][..], &[][..]));
        assert_eq!(places.restored(RestorePoint::Backup(1)).await.unwrap().1, before);
        let (restored, found) = places.restored(RestorePoint::Newest).await.unwrap();
        assert_eq!((restored.backup, restored.changes, restored.is_complete), (4, 0, true));
        assert_eq!(found, contents(&db).await);
        // Onto one that is not empty.
        let error = backups.restore(RestorePoint::Newest, places.builder()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let pruned = backups.prune(Keep { newest: 2, younger_than: None }).await.unwrap();
        assert_eq!(pruned.backups, [1, 2]);
        assert!(pruned.tables > 0, "{pruned:?}");
        assert!(places.restored(RestorePoint::Backup(3)).await.unwrap().1 == found, "{third:?}");
        assert_eq!(places.restored(RestorePoint::Backup(1)).await.unwrap_err().kind(), ErrorKind::NotFound);
        let all = Keep { newest: 0, younger_than: Some(Duration::from_secs(3600)) };
        assert!(backups.prune(all).await.unwrap().backups.is_empty(), "they are young");
        assert_eq!(backups.prune(Keep { newest: 0, younger_than: None }).await.unwrap().backups, [3]);
        assert_eq!(backups.verify().await.unwrap().damage, [""; 0]);
        // Another database.
        let other = places.elsewhere();
        let db = other.clone().open().await.unwrap();
        db.checkpoint("moment").await.unwrap();
        let error = backups.create(other.clone().at_checkpoint("moment")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(backups.create(other).await.unwrap_err().kind(), ErrorKind::Invalid, "without a name");
    });
}

#[test]
fn backups_are_incremental_and_go_one_by_one() {
    backups_share_tables();
}

/// Damage is told by a check, and not restored.
fn damaged_backups() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 50).await;
        places.back_up(&db).await.unwrap();
        let table = places.names("tables/").await.remove(0);
        places.damage(&table).await;
        let report = places.backups().verify().await.unwrap();
        assert_eq!(report.damage.len(), 1, "{report:?}");
        let error = places.restored(RestorePoint::Newest).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(table.as_str()), "{error}");
        let backup = places.names("backups/").await.remove(0);
        places.damage(&backup).await;
        assert!(places.backups().list().await.unwrap()[0].damage.is_some());
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn what_is_damaged_is_not_restored() {
    damaged_backups();
}

/// One at a time makes or deletes backups; of one that died the lock can be broken, and what it
/// left is deleted.
fn locked_backups() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 10).await;
        places.back_up(&db).await.unwrap();
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let placement = Placement::new(tombolo_storage::ObjectKind::Pin, tombolo_storage::Life::Long);
        for name in ["locks/00000000000000aa", "tables/00000000000000aa-00000000000000bb"] {
            let object = ObjectName::new(name).unwrap();
            places.kept.put_if_absent(request, &object, placement, b"left".to_vec().into()).await.unwrap();
        }
        let keep = Keep { newest: 1, younger_than: None };
        assert_eq!(places.backups().prune(keep).await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(places.back_up(&db).await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(places.backups().break_locks().await.unwrap(), 1);
        assert_eq!(places.backups().prune(keep).await.unwrap().tables, 1);
        assert!(places.names("locks/").await.is_empty());
    });
}

#[test]
fn one_at_a_time_is_at_work() {
    locked_backups();
}

/// Against an oracle: what the database held after each write.
fn points_between_backups() {
    run(|places| async move {
        let mut db = places.builder().open().await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        let backups = places.backups();
        let mut held: Vec<(u64, u64, Contents)> = Vec::new();
        let mut dropped = 0;
        let rounds: u32 = if crate::is_deep() { 400 } else { 60 };
        for round in 0..rounds {
            let keys = db.default_keyspace();
            let number = |salt: u32| (round * 7 + salt) as u8 % 16;
            match round % 10 {
                3 => {
                    let name = format!("more-{round}");
                    db.create_keyspace(&name, KeyspaceOptions::default()).await.unwrap();
                }
                6 => keys.delete_range([number(0)], [number(0) + 3]).await.unwrap(),
                8 if round % 20 == 18 => {
                    db.drop_keyspace(&format!("more-{}", round - 5)).await.unwrap();
                    dropped += 1;
                }
                _ => {
                    let mut batch = Batch::new();
                    batch.put(&keys, [number(1)], format!("{round}")).delete(&keys, [number(2)]);
                    if let Some(other) = db.keyspaces().iter().find(|other| other.name() != "default") {
                        batch.put(other, [number(3)], format!("{round}"));
                    }
                    db.write(batch).await.unwrap();
                }
            }
            let last = db.snapshot().sequence();
            let time = u64::try_from(places.env.unix_time().as_millis()).unwrap();
            held.push((last, time, contents(&db).await));
            places.env.sleep(Duration::from_millis(1500)).await;
            if round % 15 == 5 {
                places.back_up(&db).await.unwrap();
            }
            if round % 4 == 1 {
                let archived = backups.archive(&db).await.unwrap();
                assert_eq!((archived.last, archived.gap), (last, None));
            }
            if round % 13 == 12 {
                db = places.builder().open().await.unwrap();
            }
        }
        assert!(dropped > 0);
        // By a reader as well; nothing comes twice.
        let reader = places.builder().open_reader(ReaderOptions::default()).await.unwrap();
        backups.archive(reader.db()).await.unwrap();
        assert_eq!(backups.archive(reader.db()).await.unwrap().changes, 0);
        let first = backups.list().await.unwrap()[0].clone();
        let behind = held.iter().filter(|(last, ..)| *last >= first.last_sequence);
        for (at, (last, time, expected)) in behind.enumerate().filter(|(at, _)| at % 3 == 0) {
            let (restored, found) = places.restored(RestorePoint::Sequence(*last)).await.unwrap();
            assert_eq!(found, *expected, "{at}: write {last} by {restored:?}");
            if *time < first.created_unix_ms {
                continue;
            }
            let (restored, found) = places.restored(RestorePoint::UnixMs(*time)).await.unwrap();
            assert_eq!(found, *expected, "{at}: time {time} by {restored:?}");
        }
        let (restored, found) = places.restored(RestorePoint::Newest).await.unwrap();
        assert_eq!((&found, restored.is_complete), (&held.last().unwrap().2, true));
        let (restored, _) = places.restored(RestorePoint::UnixMs(u64::MAX - 1)).await.unwrap();
        assert!(!restored.is_complete, "nobody knows what came after the archive");
        for point in [RestorePoint::Sequence(0), RestorePoint::Sequence(1 << 40), RestorePoint::UnixMs(1)] {
            assert_eq!(places.restored(point).await.unwrap_err().kind(), ErrorKind::NotFound, "{point:?}");
        }
    });
}

#[test]
fn every_point_between_backups_is_as_it_was() {
    points_between_backups();
}

/// Two that archive at once leave changes twice, and each is applied once.
fn changes_that_were_archived_twice() {
    run(|places| async move {
        let operator = Some(tombolo::OperatorName::parse("append").unwrap());
        let db = places.builder().open().await.unwrap();
        let keys =
            db.create_keyspace("keys", KeyspaceOptions { operator, ..Default::default() }).await.unwrap();
        db.subscribe("other", 1 << 20).await.unwrap();
        places.back_up(&db).await.unwrap();
        let kept: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&places.env));
        let aside = Backups::of(&places.env, Arc::clone(&kept));
        for number in 0..3 {
            keys.merge("k", number.to_string()).await.unwrap();
            if number > 0 {
                // Another that began before, and comes with less.
                let backups = if number == 1 { aside.clone() } else { places.backups() };
                backups.archive(&db).await.unwrap();
            }
        }
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        for object in kept.list(request, "changes/", None, 10).await.unwrap().objects {
            let bytes = kept.read(request, &object.name, 0..1 << 20).await.unwrap();
            let placement = Placement::new(tombolo_storage::ObjectKind::Table, tombolo_storage::Life::Long);
            places.kept.put_if_absent(request, &object.name, placement, bytes).await.unwrap();
        }
        assert_eq!(places.names("changes/").await.len(), 2);
        let (_, found) = places.restored(RestorePoint::Newest).await.unwrap();
        assert_eq!(found[&("keys".to_owned(), b"k".to_vec())], b"012");
    });
}

#[test]
fn changes_are_applied_once() {
    changes_that_were_archived_twice();
}

/// Changes that were gone before they were archived are told, and nothing is restored over them.
fn an_archive_that_came_too_late() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        db.subscribe("other", 64 << 10).await.unwrap();
        fill(&db, 0, 5).await;
        places.back_up(&db).await.unwrap();
        let backups = places.backups();
        let archived = backups.archive(&db).await.unwrap();
        assert_eq!((archived.changes, archived.gap), (0, None), "the backup has what came before it");
        fill(&db, 5, 200).await;
        let late = backups.archive(&db).await.unwrap();
        assert_eq!(late.gap.unwrap().0, archived.last);
        let report = backups.verify().await.unwrap();
        assert_eq!(report.gaps, [late.gap.unwrap()]);
        assert_eq!(report.damage, [""; 0]);
        assert!(places.restored(RestorePoint::Sequence(archived.last)).await.is_ok(), "before the gap");
        let error = places.restored(RestorePoint::Newest).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("not in the archive"), "{error}");
        let error = places.restored(RestorePoint::Sequence(late.last)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        places.back_up(&db).await.unwrap();
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
        // Tables from outside are in backups, and not in changes.
        let place = TablePlace::object(Arc::clone(&places.objects), "part").unwrap();
        let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
        let mut table = TableFileBuilder::create_with(places.env.clone(), registry, place.clone(), options)
            .await
            .unwrap();
        table.put("c", "3").await.unwrap();
        table.finish().await.unwrap();
        db.ingest(Ingest::new().table(&db.default_keyspace(), place)).await.unwrap();
        backups.archive(&db).await.unwrap();
        let error = places.restored(RestorePoint::Newest).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        places.back_up(&db).await.unwrap();
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
        // Changes older than the oldest backup go.
        let pruned = backups.prune(Keep { newest: 1, younger_than: None }).await.unwrap();
        assert!(pruned.changes > 0 && backups.verify().await.unwrap().gaps.is_empty(), "{pruned:?}");
    });
}

#[test]
fn a_gap_in_the_archive_is_told() {
    an_archive_that_came_too_late();
}

fn of_kind(kind: RequestKind, prefix: &'static str) -> impl FnMut(&Asked<'_>) -> bool + Send + 'static {
    move |asked| asked.kind == kind && asked.name.starts_with(prefix)
}

fn refused(kind: RequestKind, prefix: &'static str) -> Rule {
    Rule::new(of_kind(kind, prefix), Fault::Error(ErrorKind::PermissionDenied))
}

async fn merged(db: &Db) -> tombolo::Keyspace {
    let operator = Some(tombolo::OperatorName::parse("append").unwrap());
    db.create_keyspace("merged", KeyspaceOptions { operator, ..Default::default() }).await.unwrap()
}

/// What lay below an operand when it was written lies below it in a restored database, however
/// long after.
#[test]
fn operands_that_end_are_restored_at_any_time() {
    const MINUTE: Duration = Duration::from_secs(60);
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        let keys = merged(&db).await;
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        keys.put_ttl("old", "ended;", MINUTE).await.unwrap();
        keys.put_ttl("k", "base;", 10 * MINUTE).await.unwrap();
        places.back_up(&db).await.unwrap();
        places.env.sleep(5 * MINUTE).await;
        keys.merge_ttl("k", "early;", 3000 * MINUTE).await.unwrap();
        keys.merge_ttl("old", "anew;", 3000 * MINUTE).await.unwrap();
        places.env.sleep(10 * MINUTE).await;
        keys.merge_ttl("k", "late", 3000 * MINUTE).await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let expected = contents(&db).await;
        assert_eq!(expected[&("merged".to_owned(), b"k".to_vec())], b"base;early;late");
        assert_eq!(expected[&("merged".to_owned(), b"old".to_vec())], b"anew;");
        db.close().await.unwrap();
        places.env.sleep(300 * MINUTE).await;
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, expected);
    });
}

/// Where time was set back, so that an operand may lack what was below it, that is known at first.
#[test]
fn operands_from_before_what_is_destroyed_are_refused() {
    const MINUTE: Duration = Duration::from_secs(60);
    let world = World::new(1);
    let process = world.process("process");
    let places = Places::of(&process.env());
    let first = places.clone();
    let begun = async move {
        let db = first.builder().open().await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        let keys = merged(&db).await;
        for number in 0..24 {
            keys.put_ttl(number.to_string(), "ends", MINUTE).await.unwrap();
            first.env.sleep(10 * MINUTE).await;
        }
        first.back_up(&db).await.unwrap();
        db.close().await.unwrap();
    };
    process.run(begun).unwrap();
    world.host(0).jump_unix_time(-2 * 3600 - 1800);
    let goes_on = async move {
        let db = places.builder().open().await.unwrap();
        db.reset_time().await.unwrap();
        let keys = db.keyspace("merged").unwrap();
        keys.merge_ttl("k", "early", 3000 * MINUTE).await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let target = places.elsewhere();
        let error = places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let untouched = target.mode(OpenMode::Open).open().await.unwrap_err();
        assert_eq!(untouched.kind(), ErrorKind::NotFound);
    };
    process.run(goes_on).unwrap();
}

/// What a transaction in doubt holds at the backup holds up no write from after it, and is held
/// again once the database is opened.
#[test]
fn a_transaction_in_doubt_does_not_end_a_restore() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        let keys = db.default_keyspace();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        let transaction = db.transaction();
        transaction.put(&keys, "k", "prepared").await.unwrap();
        let prepared = transaction.prepare("one").await.unwrap();
        places.back_up(&db).await.unwrap();
        prepared.commit().await.unwrap();
        keys.put("k", "after").await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let target = places.elsewhere();
        places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap();
        let restored = target.mode(OpenMode::Open).open().await.unwrap();
        assert_eq!(contents(&restored).await, contents(&db).await);
        assert_eq!(restored.in_doubt().await.unwrap().len(), 1);
        let held = restored.default_keyspace().put("k", "another").await.unwrap_err();
        assert_eq!(held.kind(), ErrorKind::Conflict);
        restored.decide("one", false).await.unwrap();
        assert_eq!(contents(&restored).await, contents(&db).await);
        restored.default_keyspace().put("k", "another").await.unwrap();
    });
}

/// What cannot be read just now is not damage: nothing is deleted for it.
#[test]
fn what_cannot_be_read_now_is_not_deleted() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        for number in 0..3 {
            fill(&db, number * 10, number * 10 + 10).await;
            places.back_up(&db).await.unwrap();
        }
        let all = async || (places.names("backups/").await, places.names("tables/").await);
        let before = all().await;
        let keep = Keep { newest: 1, younger_than: Some(Duration::from_secs(3600)) };
        let error = places.failing(refused(RequestKind::Read, "backups/").times(1)).prune(keep).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(all().await, before);
        // A backup is made: what earlier ones have stays where it lies.
        db.checkpoint("moment").await.unwrap();
        let refuses = async |kind: RequestKind, prefix: &'static str| {
            let deleted = Rule::new(of_kind(RequestKind::Delete, "tables/"), Fault::Error(ErrorKind::Bug));
            let plan = FaultPlan::scripted();
            plan.inject(refused(kind, prefix).times(1));
            plan.inject(deleted);
            let kept = FaultObjectStore::new(&places.env, Arc::clone(&places.kept), plan);
            let backups = Backups::of(&places.env, Arc::new(kept));
            let error = backups.create(places.builder().at_checkpoint("moment")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{kind:?} {prefix}");
            assert_eq!(places.names("tables/").await, before.1);
        };
        refuses(RequestKind::Read, "backups/").await;
        refuses(RequestKind::Length, "tables/").await;
        // Of a damaged one the tables are not known, and stay while they are sound.
        for backup in places.names("backups/").await {
            places.damage(&backup).await;
        }
        refuses(RequestKind::Read, "tables/").await;
        let deleted = Rule::new(of_kind(RequestKind::Delete, "tables/"), Fault::Error(ErrorKind::Bug));
        let made = places.failing(deleted).create(places.builder().at_checkpoint("moment")).await.unwrap();
        assert_eq!(places.names("tables/").await, before.1);
        let found = places.restored(RestorePoint::Backup(made.number)).await.unwrap().1;
        assert_eq!(found, contents(&db).await);
        // One that is not whole is copied again.
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let placement = Placement::new(tombolo_storage::ObjectKind::Table, tombolo_storage::Life::Long);
        let table = &before.1[0];
        places.kept.delete(request, table).await.unwrap();
        places.kept.put_if_absent(request, table, placement, b"short".to_vec().into()).await.unwrap();
        places.backups().create(places.builder().at_checkpoint("moment")).await.unwrap();
        let found = places.restored(RestorePoint::Newest).await.unwrap().1;
        assert_eq!(found, contents(&db).await);
    });
}

/// The error is that of what was wanted, and not of what tidies up behind it.
#[test]
fn why_there_is_no_backup_is_said() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 10).await;
        db.checkpoint("moment").await.unwrap();
        let plan = FaultPlan::scripted();
        let objects: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&places.env, Arc::clone(&places.objects), plan.clone()));
        let source = places.builder_of(&objects, &places.log).at_checkpoint("moment");
        // From when it copies on, the database is out of reach, first with another error.
        let switched = plan.clone();
        let full = Fault::After(Arc::new(move || {
            switched.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied)));
        }));
        let copies = Rule::new(
            |asked: &Asked<'_>| asked.kind == RequestKind::Create,
            Fault::Error(ErrorKind::OutOfSpace),
        );
        plan.inject(Rule::new(
            |asked| asked.kind == RequestKind::Read && asked.name.contains("tables/"),
            full,
        ));
        let error = places.failing(copies).create(source).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        // The lock of somebody else, where the own one cannot be deleted.
        let placement = Placement::new(tombolo_storage::ObjectKind::Pin, tombolo_storage::Life::Long);
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let other = ObjectName::new("locks/00000000000000aa").unwrap();
        places.kept.put_if_absent(request, &other, placement, b"".to_vec().into()).await.unwrap();
        let keep = Keep { newest: 1, younger_than: None };
        let error = places.failing(refused(RequestKind::Delete, "locks/")).prune(keep).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    });
}

/// What was found before the rest was gone is archived, and the gap is told behind it.
#[test]
fn what_was_found_before_a_gap_is_archived() {
    archive_over_a_gap(false);
}

/// An error from behind that says what was archived, and what was gone.
#[test]
fn what_was_archived_before_an_error_is_told() {
    archive_over_a_gap(true);
}

fn archive_over_a_gap(fails: bool) {
    run(move |places| async move {
        let plan = FaultPlan::scripted();
        let log: Arc<dyn LogStore> =
            Arc::new(FaultLogStore::new(&places.env, Arc::clone(&places.log), plan.clone()));
        let db = places.builder_of(&places.objects, &log).open().await.unwrap();
        db.subscribe("other", 64 << 10).await.unwrap();
        let keys = db.default_keyspace();
        for number in 0..100_u32 {
            keys.put_with("k", number.to_string(), Durability::Accepted).await.unwrap();
        }
        let late = Fault::Delay(Duration::from_secs(5));
        plan.inject(Rule::of_kind(RequestKind::LogSync, late).times(1));
        let backups = if fails {
            places.failing(refused(RequestKind::Create, "changes/").skip(1))
        } else {
            places.backups()
        };
        let archiving = backups.archive(&db);
        places.env.sleep(Duration::from_secs(1)).await;
        fill(&db, 0, 200).await;
        let archived = archiving.await;
        if fails {
            let error = archived.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("were archived before this"), "{error}");
            assert!(error.to_string().contains("were gone"), "{error}");
            assert_eq!(places.names("changes/").await.len(), 1);
            return;
        }
        let archived = archived.unwrap();
        assert!(archived.changes >= 64, "{archived:?}");
        let (from, to) = archived.gap.expect("most of it was gone");
        assert_eq!(backups.verify().await.unwrap().gaps, [(from, to)]);
        assert!(archived.last > to && from > 0, "{archived:?}");
    });
}

/// An older backup and the changes after it lead to a point that a damaged one may be from before.
#[test]
fn a_damaged_backup_does_not_bar_points_that_changes_lead_to() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        let time = || u64::try_from(places.env.unix_time().as_millis()).unwrap();
        fill(&db, 0, 3).await;
        places.back_up(&db).await.unwrap();
        places.env.sleep(Duration::from_secs(5)).await;
        fill(&db, 3, 6).await;
        let (at, at_time, expected) = (db.snapshot().sequence(), time(), contents(&db).await);
        places.backups().archive(&db).await.unwrap();
        places.env.sleep(Duration::from_secs(5)).await;
        fill(&db, 6, 9).await;
        places.back_up(&db).await.unwrap();
        places.env.sleep(Duration::from_secs(5)).await;
        let newest = places.names("backups/").await.pop().unwrap();
        places.damage(&newest).await;
        let (restored, found) = places.restored(RestorePoint::Sequence(at)).await.unwrap();
        assert_eq!((restored.backup, found == expected), (1, true));
        // What the archive does not lead to might be in the damaged one.
        let beyond = db.snapshot().sequence();
        for point in [
            RestorePoint::Newest,
            RestorePoint::Sequence(beyond),
            RestorePoint::UnixMs(at_time),
            RestorePoint::UnixMs(time()),
            RestorePoint::Backup(2),
        ] {
            let error = places.restored(point).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{point:?}");
        }
        places.backups().archive(&db).await.unwrap();
        let (restored, found) = places.restored(RestorePoint::UnixMs(at_time)).await.unwrap();
        assert_eq!((restored.is_complete, found == expected), (true, true));
        let (_, found) = places.restored(RestorePoint::Sequence(beyond)).await.unwrap();
        assert_eq!(found, contents(&db).await);
    });
}

/// Nor do changes that are damaged, and come after the point.
#[test]
fn damaged_changes_from_after_a_point_do_not_bar_it() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        places.back_up(&db).await.unwrap();
        places.env.sleep(Duration::from_secs(5)).await;
        let mut points = Vec::new();
        for number in 0..3 {
            fill(&db, number, number + 1).await;
            places.backups().archive(&db).await.unwrap();
            points.push((u64::try_from(places.env.unix_time().as_millis()).unwrap(), contents(&db).await));
            places.env.sleep(Duration::from_secs(5)).await;
        }
        let newest = places.names("changes/").await.pop().unwrap();
        places.damage(&newest).await;
        let (restored, found) = places.restored(RestorePoint::UnixMs(points[0].0)).await.unwrap();
        assert_eq!((restored.is_complete, found == points[0].1), (true, true));
        let error = places.restored(RestorePoint::UnixMs(points[2].0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    });
}

/// That the backup cannot take a change is known before the target is touched.
#[test]
fn what_a_backup_cannot_take_is_known_at_first() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        let keys = db.create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        places.back_up(&db).await.unwrap();
        keys.put("k", "1").await.unwrap();
        let before = db.snapshot().sequence();
        keys.set_options([("operator", "append")]).await.unwrap();
        keys.merge("k", "2").await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let target = places.elsewhere();
        let error = places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let untouched = target.mode(OpenMode::Open).open().await.unwrap_err();
        assert_eq!(untouched.kind(), ErrorKind::NotFound);
        let (_, found) = places.restored(RestorePoint::Sequence(before)).await.unwrap();
        assert_eq!(found[&("keys".to_owned(), b"k".to_vec())], b"1");
        places.back_up(&db).await.unwrap();
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
    });
}

/// Between a backup and the beginning of the archive nothing can be restored: that is a gap.
#[test]
fn an_archive_that_begins_after_the_backup_is_told() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 3).await;
        let backup = places.back_up(&db).await.unwrap();
        fill(&db, 3, 6).await;
        let begins = db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap().place();
        fill(&db, 6, 9).await;
        let backups = places.backups();
        assert_eq!(backups.verify().await.unwrap().gaps, [], "nothing is archived");
        let archived = backups.archive(&db).await.unwrap();
        assert_eq!(archived.gap, Some((backup.last_sequence, begins)));
        assert_eq!(backups.verify().await.unwrap().gaps, [(backup.last_sequence, begins)]);
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap_err().kind(), ErrorKind::NotFound);
        let second = places.back_up(&db).await.unwrap();
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
        // Once all of it is pruned, it begins anew with the oldest backup.
        let keep = Keep { newest: 1, younger_than: None };
        assert_eq!(backups.prune(keep).await.unwrap().changes, 1);
        let archived = backups.archive(&db).await.unwrap();
        assert_eq!((archived.changes, archived.last, archived.gap), (0, second.last_sequence, None));
        fill(&db, 9, 10).await;
        let archived = backups.archive(&db).await.unwrap();
        assert_eq!((archived.changes, archived.gap), (1, None));
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
    });
}

/// A table that the place has lost is copied again only as it was.
fn a_table_that_was_lost() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 10).await;
        places.back_up(&db).await.unwrap();
        let table = places.names("tables/").await.remove(0);
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        places.kept.delete(request, &table).await.unwrap();
        let source = Places { kept: Arc::clone(&places.objects), ..places.clone() };
        let lies = source.names("").await;
        let lies: Vec<_> = lies.iter().filter(|name| name.as_str().contains("/table")).collect();
        assert_eq!(lies.len(), 1, "{lies:?}");
        source.damage(lies[0]).await;
        let error = places.back_up(&db).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(places.names("tables/").await, []);
        source.damage(lies[0]).await;
        places.back_up(&db).await.unwrap();
        assert_eq!(places.restored(RestorePoint::Newest).await.unwrap().1, contents(&db).await);
    });
}

#[test]
fn a_table_is_copied_again_only_as_it_was() {
    a_table_that_was_lost();
}

/// Of two backups that say different things of one table, a check tells the one that is wrong.
#[test]
fn what_two_backups_say_of_a_table_is_checked_of_both() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        fill(&db, 0, 10).await;
        places.back_up(&db).await.unwrap();
        places.back_up(&db).await.unwrap();
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let object = places.names("backups/").await.remove(0);
        let bytes = places.kept.read(request, &object, 0..1 << 20).await.unwrap();
        let mut record = BackupRecord::decode(&bytes).unwrap();
        record.tables[0].checksum ^= 1;
        places.kept.delete(request, &object).await.unwrap();
        let placement = Placement::new(tombolo_storage::ObjectKind::Table, tombolo_storage::Life::Long);
        let bytes = record.encode().unwrap();
        places.kept.put_if_absent(request, &object, placement, bytes.into()).await.unwrap();
        assert_eq!(places.backups().verify().await.unwrap().damage.len(), 1);
    });
}

/// Changes are applied to a database that nobody follows.
fn a_restore_of_what_was_followed() {
    run(|places| async move {
        let db = places.builder().open().await.unwrap();
        let keys = db.default_keyspace();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        keys.subscribe("ends", 1 << 20).await.unwrap();
        places.back_up(&db).await.unwrap();
        keys.unsubscribe("ends").await.unwrap();
        keys.put("k", "v").await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let target = places.elsewhere();
        places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap();
        let restored = target.mode(OpenMode::Open).open().await.unwrap();
        assert_eq!(contents(&restored).await, contents(&db).await);
        assert_eq!(restored.subscriptions().await.unwrap(), []);
        assert_eq!(restored.default_keyspace().subscriptions().await.unwrap(), []);
        let write = restored.default_keyspace().put_with("k", "unlogged", Durability::Unlogged);
        write.await.expect("nobody follows");
    });
}

#[test]
fn nobody_follows_while_changes_are_applied() {
    a_restore_of_what_was_followed();
}

/// That the target lacks an operator is known before it is touched.
#[test]
fn an_operator_that_is_not_there_is_known_at_first() {
    run(|places| async move {
        let name = || tombolo::OperatorName::new("mine", 1).unwrap();
        let operator = || tombolo::Operator::append(b";");
        let db = places.builder().operator(name(), operator()).open().await.unwrap();
        db.subscribe(Backups::SUBSCRIPTION, 1 << 20).await.unwrap();
        places.back_up(&db).await.unwrap();
        let options = KeyspaceOptions { operator: Some(name()), ..Default::default() };
        let keys = db.create_keyspace("keys", options).await.unwrap();
        keys.merge("k", "1").await.unwrap();
        places.backups().archive(&db).await.unwrap();
        let target = places.elsewhere();
        let error = places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let untouched = target.clone().mode(OpenMode::Open).open().await.unwrap_err();
        assert_eq!(untouched.kind(), ErrorKind::NotFound);
        let target = target.operator(name(), operator());
        places.backups().restore(RestorePoint::Newest, target.clone()).await.unwrap();
        let restored = target.mode(OpenMode::Open).open().await.unwrap();
        assert_eq!(contents(&restored).await, contents(&db).await);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn backups_that_are_kept_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::BackupChecksumIgnored, damaged_backups);
    notices(Mutant::BackupsUnlocked, locked_backups);
    notices(Mutant::PruneDeletesNamed, backups_share_tables);
    notices(Mutant::RestoreAcrossGap, an_archive_that_came_too_late);
    notices(Mutant::RestoreAppliesTwice, changes_that_were_archived_twice);
    notices(Mutant::BackupDeletesUncompared, what_cannot_be_read_now_is_not_deleted);
    notices(Mutant::PruneDeletesUnread, what_cannot_be_read_now_is_not_deleted);
    notices(Mutant::RestoreEndsOperands, operands_that_end_are_restored_at_any_time);
    notices(Mutant::RestoreHoldsPrepared, a_transaction_in_doubt_does_not_end_a_restore);
    notices(Mutant::RestoreFollows, a_restore_of_what_was_followed);
    notices(Mutant::RestorePassesDamagedBackup, a_damaged_backup_does_not_bar_points_that_changes_lead_to);
}
