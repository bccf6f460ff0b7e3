//! Changes, followed by subscriptions and readers, through takeovers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Batch, Before, Builder, Change, ChangeEvent, ChangeKind, Db, Durability, Env, ErrorKind, Ingest,
    KeyspaceOptions, OperatorName, Options, ReaderOptions, Registry, Subscription, TableFileBuilder,
    TablePlace, TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore};

struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    /// A database whose log fails by the plan.
    async fn with_a_faulty_log(self) -> (Db, FaultPlan) {
        let plan = FaultPlan::scripted();
        let log = Arc::new(FaultLogStore::new(&self.env, Arc::clone(&self.log), plan.clone()));
        (Stores { log, ..self }.open().await, plan)
    }

    fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
        let builder = Db::builder("mem://changes").env(self.env.clone()).take_over(TakeOver::Always);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).options(options)
    }

    async fn open(&self) -> Db {
        self.builder().open().await.unwrap()
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F + Send + 'static) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(async move { test(Stores { env, objects, log }).await }).unwrap();
}

const KEPT: u64 = 1 << 20;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn word(event: &ChangeEvent) -> String {
    let end = |end: &Option<u64>| if end.is_some() { "!" } else { "" };
    let word = match &event.kind {
        ChangeKind::Put { key, value, expires_ms } => {
            format!("{}={}{}", text(key), text(value), end(expires_ms))
        }
        ChangeKind::Delete { key, is_single } => {
            format!("-{}{}", text(key), if *is_single { "?" } else { "" })
        }
        ChangeKind::Merge { key, operand, expires_ms } => {
            format!("{}+{}{}", text(key), text(operand), end(expires_ms))
        }
        ChangeKind::DeleteRange { from, to } => format!("-{}..{}", text(from), text(to)),
        other => format!("{other:?}"),
    };
    match &event.before {
        Before::Unknown => word,
        Before::Absent => format!("{word} (none)"),
        Before::Value(value) => format!("{word} ({})", text(value)),
    }
}

fn words_of(change: &Change) -> Vec<String> {
    change.events.iter().map(word).collect()
}

/// The events of the next change, as words.
async fn words(subscription: &mut Subscription) -> Vec<String> {
    words_of(&subscription.next_async().await.unwrap())
}

#[test]
fn every_kind_of_write_is_told_batch_by_batch() {
    run(|stores| async move {
        let db = stores.open().await;
        let operator = Some(OperatorName::parse("append").unwrap());
        let options = KeyspaceOptions { operator, ..Default::default() };
        let keys = db.create_keyspace("keys", options).await.unwrap();
        let other = db.default_keyspace();
        keys.put("before", "it").await.unwrap();
        assert_eq!(keys.changes(0).unwrap_err().kind(), ErrorKind::Unsupported);
        let mut follower = keys.subscribe("follower", KEPT).await.unwrap();
        assert!(follower.try_next_async().await.unwrap().is_none());
        keys.put("a", "1").await.unwrap();
        let mut batch = Batch::new();
        batch.put(&other, "x", "not followed").put(&keys, "b", "2").delete(&keys, "a");
        db.write(batch).await.unwrap();
        other.put("y", "not followed").await.unwrap();
        keys.merge("c", "3").await.unwrap();
        keys.delete_range("a", "c").await.unwrap();
        keys.put_ttl("d", "4", Duration::from_secs(9)).await.unwrap();
        keys.merge_ttl("d", "4", Duration::from_secs(9)).await.unwrap();
        let transaction = db.transaction();
        transaction.put(&keys, "e", "5").await.unwrap();
        transaction.single_delete(&keys, "f").await.unwrap();
        transaction.commit().await.unwrap();
        let absent = tombolo::Condition::Absent;
        assert!(keys.put_if("g", "7", absent.clone()).await.unwrap().is_met());
        assert!(!keys.put_if("g", "8", absent).await.unwrap().is_met());
        for wanted in [
            vec!["a=1"],
            vec!["b=2", "-a"],
            vec!["c+3"],
            vec!["-a..c"],
            vec!["d=4!"],
            vec!["d+4!"],
            vec!["e=5", "-f?"],
            vec!["g=7"],
        ] {
            assert_eq!(words(&mut follower).await, wanted);
        }
        assert!(follower.try_next_async().await.unwrap().is_none());
        assert_eq!(keys.subscriptions().await.unwrap(), [("follower".to_owned(), follower.place())]);
        assert!(follower.take(u64::MAX).await.is_err(), "it was not told");
        keys.unsubscribe("follower").await.unwrap();
        keys.put_with("h", "9", Durability::Unlogged).await.expect("nobody follows any more");
        let errors = [
            keys.unsubscribe("follower").await.unwrap_err().kind(),
            follower.take(follower.place()).await.unwrap_err().kind(),
            follower.try_next_async().await.unwrap_err().kind(),
            keys.subscribe("", KEPT).await.unwrap_err().kind(),
            keys.subscribe("little", 1).await.unwrap_err().kind(),
        ];
        use ErrorKind::{Invalid, NotFound, Unsupported};
        assert_eq!(errors, [NotFound, NotFound, Unsupported, Invalid, Invalid]);
    });
}

#[test]
fn all_keyspaces_are_followed_as_one() {
    run(|stores| async move {
        let db = stores.open().await;
        let mut all = db.subscribe("all", KEPT).await.unwrap();
        let other = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        let mut own = other.subscribe("own", KEPT).await.unwrap();
        let mut batch = Batch::new();
        batch.put(&db.default_keyspace(), "a", "1").put(&other, "b", "2");
        db.write(batch).await.unwrap();
        let place = TablePlace::object(Arc::clone(&stores.objects), "part").unwrap();
        let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
        let mut table = TableFileBuilder::create_with(stores.env.clone(), registry, place.clone(), options)
            .await
            .unwrap();
        table.put("c", "3").await.unwrap();
        table.finish().await.unwrap();
        db.ingest(Ingest::new().table(&other, place)).await.unwrap();
        // What a program writes of a transaction that it prepares is told once it is decided.
        let transaction = db.transaction();
        transaction.put(&other, "d", "4").await.unwrap();
        transaction.prepare("one").await.unwrap().commit().await.unwrap();
        db.drop_keyspace("other").await.unwrap();
        let expected = ["default a=1", "other b=2", "other Ingest", "other d=4", "other Drop"];
        let mut told = vec![];
        while let Some(change) = all.try_next_async().await.unwrap() {
            assert!(change.unix_ms > 0);
            told.extend(change.events.iter().map(|event| format!("{} {}", event.keyspace, word(event))));
        }
        assert_eq!(told[0], "other Create");
        assert_eq!(told[1..], expected);
        for wanted in ["b=2", "Ingest", "d=4", "Drop"] {
            assert_eq!(words(&mut own).await, [wanted]);
        }
        assert_eq!(own.next_async().await.unwrap_err().kind(), ErrorKind::NotFound, "it is gone");
        let error = db.default_keyspace().put_with("a", "1", Durability::Unlogged).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
        // Nothing of what was dropped is left after the next opening.
        let db = stores.open().await;
        let again = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        assert!(again.subscriptions().await.unwrap().is_empty());
        assert_eq!(
            again.changes(0).unwrap().try_next_async().await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    });
}

/// What a key held is told of what came after the snapshot, and of nothing else.
fn values_from_before() {
    run(|stores| async move {
        let db = stores.open().await;
        let operator = Some(OperatorName::parse("append").unwrap());
        let options = KeyspaceOptions { operator, ..Default::default() };
        let keys = db.create_keyspace("keys", options).await.unwrap();
        keys.put("a", "old").await.unwrap();
        let mut follower = keys.subscribe("follower", KEPT).await.unwrap();
        keys.put("a", "1").await.unwrap();
        keys.put("a", "2").await.unwrap();
        follower = follower.with_before();
        let mut batch = Batch::new();
        batch.put(&keys, "a", "3").delete(&keys, "a").put(&keys, "b", "1");
        db.write(batch).await.unwrap();
        db.flush().await.unwrap();
        keys.merge("b", "2").await.unwrap();
        keys.put("b", "3").await.unwrap();
        keys.put("c", "4").await.unwrap();
        keys.delete_range("a", "z").await.unwrap();
        keys.put("c", "5").await.unwrap();
        keys.put("new", "6").await.unwrap();
        db.compact().await.unwrap();
        for wanted in [
            vec!["a=1"],
            vec!["a=2"],
            vec!["a=3 (2)", "-a (2)", "b=1 (none)"],
            vec!["b+2 (1)"],
            vec!["b=3"],
            vec!["c=4 (none)"],
            vec!["-a..z"],
            vec!["c=5 (none)"],
            vec!["new=6 (none)"],
        ] {
            assert_eq!(words(&mut follower).await, wanted);
        }
        // At the end the snapshot moves on.
        assert!(follower.try_next_async().await.unwrap().is_none());
        keys.merge("new", "7").await.unwrap();
        assert_eq!(words(&mut follower).await, ["new+7 (6)"]);
        assert!(follower.try_next_async().await.unwrap().is_none());
        keys.delete("new").await.unwrap();
        assert_eq!(words(&mut follower).await, ["-new (67)"]);
    });
}

#[test]
fn what_a_key_held_before_is_told_where_it_is_known() {
    values_from_before();
}

/// Whether a value had ended before the next write of its key is not known once it has ended.
#[test]
fn what_has_ended_before_it_is_told_is_unknown() {
    const MINUTE: Duration = Duration::from_secs(60);
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put_ttl("a", "1", MINUTE).await.unwrap();
        keys.put_ttl("b", "1", 10 * MINUTE).await.unwrap();
        let mut follower = keys.subscribe("follower", KEPT).await.unwrap().with_before();
        keys.put("a", "2").await.unwrap();
        keys.put_ttl("c", "1", MINUTE).await.unwrap();
        keys.put("c", "2").await.unwrap();
        stores.env.sleep(2 * MINUTE).await;
        keys.put("b", "2").await.unwrap();
        for wanted in ["a=2", "c=1! (none)", "c=2", "b=2 (1)"] {
            assert_eq!(words(&mut follower).await, [wanted]);
        }
    });
}

fn an_unlogged_write_to_what_is_followed() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let _follower = keys.subscribe("follower", KEPT).await.unwrap();
        let error = keys.put_with("a", "1", Durability::Unlogged).await.expect_err("it could be lost");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        keys.put_with("a", "1", Durability::Accepted).await.unwrap();
    });
}

#[test]
fn what_could_be_lost_is_not_told() {
    an_unlogged_write_to_what_is_followed();
}

/// One that fell behind is told how far, and one that keeps up loses nothing.
fn a_follower_that_fell_behind() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let mut slow = keys.subscribe("slow", 64 << 10).await.unwrap();
        let mut fast = keys.subscribe("fast", 64 << 10).await.unwrap();
        for number in 0..100_u32 {
            keys.put("k", number.to_string()).await.unwrap();
            let change = fast.next_async().await.unwrap();
            fast.take(change.sequence).await.unwrap();
            assert_eq!(words_of(&change), [format!("k={number}")]);
        }
        assert!(slow.try_next_async().await.unwrap().is_some(), "within its bytes all is kept");
        let mut late = keys.changes(slow.place()).unwrap();
        for _ in 0..20 {
            keys.put("k", [b'x'; 8000]).await.unwrap();
        }
        let error = late.try_next_async().await.expect_err("much more than its bytes");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("begin anew"), "{error}");
    });
}

/// Once all have taken them, changes go, long before they are too many to keep.
#[test]
fn what_all_have_taken_goes() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let mut fast = keys.subscribe("fast", KEPT).await.unwrap();
        let mut slow = keys.subscribe("slow", KEPT).await.unwrap();
        let begins = fast.place();
        let is_there = async |after| keys.changes(after).unwrap().try_next_async().await.is_ok();
        let mut first = None;
        for round in 0..60 {
            keys.put("k", [b'x'; 8000]).await.unwrap();
            let change = fast.next_async().await.unwrap();
            first.get_or_insert(change.sequence);
            fast.take(change.sequence).await.unwrap();
            assert!(is_there(begins).await, "{round}: the other has taken nothing");
        }
        let change = slow.next_async().await.unwrap();
        assert_eq!(Some(change.sequence), first);
        slow.take(change.sequence).await.unwrap();
        keys.put("k", "1").await.unwrap();
        assert!(is_there(begins).await, "one change is no piece");
        keys.unsubscribe("slow").await.unwrap();
        keys.put("k", "2").await.unwrap();
        assert!(!is_there(begins).await, "the last has taken them");
        assert_eq!(words(&mut fast).await, ["k=1"]);
        assert_eq!(words(&mut fast).await, ["k=2"]);
    });
}

#[test]
fn who_falls_behind_is_told_what_was_lost() {
    a_follower_that_fell_behind();
}

/// From before a subscription began nothing is told, also where the writer ended before it wrote
/// anything that is followed.
#[test]
fn what_came_before_a_subscription_is_not_there_after_an_opening() {
    run(|stores| async move {
        let db = stores.open().await;
        for number in 0..10_u32 {
            db.default_keyspace().put("k", number.to_string()).await.unwrap();
        }
        let begins = db.default_keyspace().subscribe("archive", u64::MAX).await.unwrap().place();
        assert!(begins >= 10);
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put("k", "followed").await.unwrap();
        for after in [0, 3] {
            let error = keys.changes(after).unwrap().try_next_async().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{after}: the ten are not there");
        }
        let mut follower = keys.subscribe("archive", KEPT).await.unwrap();
        assert_eq!(follower.place(), begins);
        assert_eq!(words(&mut follower).await, ["k=followed"]);
    });
}

/// One that ended halfway leaves nothing that a later one would rest on.
#[test]
fn a_subscription_that_ends_halfway_leaves_no_mark() {
    for appended in 0..2 {
        run(move |stores| async move {
            let plan = FaultPlan::scripted();
            let log: Arc<dyn LogStore> =
                Arc::new(FaultLogStore::new(&stores.env, Arc::clone(&stores.log), plan.clone()));
            let db = Stores { log, ..stores }.open().await;
            let keys = db.default_keyspace();
            let begins = keys.subscribe("follower", KEPT).await.unwrap().place();
            keys.put("k", "1").await.unwrap();
            plan.inject(
                Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Retry)).skip(appended).times(1),
            );
            let ended = keys.unsubscribe("follower").await;
            plan.clear();
            keys.put("k", "2").await.unwrap();
            keys.subscribe("follower", KEPT).await.unwrap();
            keys.put("k", "3").await.unwrap();
            let mut changes = keys.changes(begins).unwrap();
            match changes.try_next_async().await {
                Ok(first) => {
                    assert_eq!(first.map(|change| words_of(&change)), Some(vec!["k=1".to_owned()]));
                    let second = changes.try_next_async().await.unwrap();
                    assert_eq!(second.map(|change| words_of(&change)), Some(vec!["k=2".to_owned()]));
                    assert!(ended.is_err(), "it had gone on");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{appended}: {ended:?}"),
            }
        });
    }
}

/// Where one ends of two that follow a keyspace, the other's changes stay, also once it is dropped.
#[test]
fn one_of_two_that_ends_leaves_the_others_changes() {
    for is_dropped in [false, true] {
        run(move |stores| async move {
            let db = stores.open().await;
            let keys = db.create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
            let mut stays = keys.subscribe("stays", KEPT).await.unwrap();
            keys.subscribe("ends", KEPT).await.unwrap();
            keys.put("k", "1").await.unwrap();
            if is_dropped {
                db.drop_keyspace("keys").await.unwrap();
            }
            keys.unsubscribe("ends").await.unwrap();
            assert_eq!(words(&mut stays).await, ["k=1"]);
            if is_dropped {
                assert_eq!(words(&mut stays).await, ["Drop"]);
            } else {
                keys.put("k", "2").await.unwrap();
                assert_eq!(words(&mut stays).await, ["k=2"]);
            }
        });
    }
}

/// A place goes on only, whichever handle takes, and tells a durable number.
#[test]
fn a_place_never_goes_back() {
    run(|stores| async move {
        let (db, plan) = stores.with_a_faulty_log().await;
        let keys = db.default_keyspace();
        let mut older = keys.subscribe("follower", KEPT).await.unwrap();
        let mut newer = keys.subscribe("follower", KEPT).await.unwrap();
        for number in 0..3_u32 {
            keys.put("k", number.to_string()).await.unwrap();
        }
        let first = older.next_async().await.unwrap().sequence;
        let mut last = 0;
        for _ in 0..3 {
            last = newer.next_async().await.unwrap().sequence;
        }
        newer.take(last).await.unwrap();
        older.take(first).await.unwrap();
        assert_eq!(keys.subscriptions().await.unwrap(), [("follower".to_owned(), last)]);
        assert_eq!((older.place(), newer.place()), (last, last));
        keys.put("k", "4").await.unwrap();
        let next = newer.next_async().await.unwrap().sequence;
        plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Retry)).times(1));
        newer.take(next).await.expect_err("the log took nothing");
        assert_eq!(newer.place(), last, "it is not durable");
        newer.take(next).await.unwrap();
        assert_eq!(newer.place(), next);
    });
}

/// What was prepared can be committed, however it is followed by then.
#[test]
fn a_decision_has_room_for_those_who_follow() {
    run(|stores| async move {
        let options = Options::parse(["memory_bytes=1073741824"]).unwrap();
        let db = stores.builder().options(options).open().await.unwrap();
        let keys = db.default_keyspace();
        let prepared = async |mebibytes: usize| {
            let transaction = db.transaction();
            for at in 0..mebibytes.div_ceil(16) {
                let bytes = mebibytes.saturating_sub(16 * at).min(16) << 20;
                transaction.put(&keys, at.to_string(), vec![b'x'; bytes - 100]).await.unwrap();
            }
            transaction.prepare(mebibytes.to_string()).await
        };
        assert_eq!(prepared(32).await.unwrap_err().kind(), ErrorKind::Invalid);
        let prepared = prepared(31).await.unwrap();
        let mut one = keys.subscribe("one", KEPT).await.unwrap();
        let mut all = db.subscribe("all", KEPT).await.unwrap();
        prepared.commit().await.unwrap();
        for follower in [&mut one, &mut all] {
            assert_eq!(follower.next_async().await.unwrap().events.len(), 2);
        }
    });
}

/// Against an oracle: each batch once, whole, in order, through takeovers and flushes.
fn changes_through_takeovers() {
    run(|stores| async move {
        let mut db = stores.open().await;
        let mut follower = db.default_keyspace().subscribe("follower", 1 << 30).await.unwrap();
        let (mut written, mut told) = (0_u32, 0_u32);
        let mut mirror: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let rounds = if crate::is_deep() { 3000 } else { 30 };
        for round in 0..rounds {
            for _ in 0..round % 5 + 1 {
                written += 1;
                let mut batch = Batch::new();
                let keys = db.default_keyspace();
                for part in 0..written % 3 + 1 {
                    batch.put(&keys, [(written * 7 + part) as u8 % 20], format!("{written} {part}"));
                }
                let durability = [Durability::Durable, Durability::Accepted][written as usize % 2];
                db.write_with(batch, durability).await.unwrap();
            }
            match round % 4 {
                0 => db.flush().await.unwrap(),
                1 if round % 3 == 0 => db.compact().await.unwrap(),
                _ => db.sync().await.unwrap(),
            }
            while let Some(change) = follower.try_next_async().await.unwrap() {
                told += 1;
                assert_eq!(change.events.len() as u32, told % 3 + 1, "{change:?}");
                for (part, event) in change.events.iter().enumerate() {
                    let ChangeKind::Put { key, value, .. } = &event.kind else { panic!("{change:?}") };
                    assert_eq!(*value, format!("{told} {part}").into_bytes());
                    mirror.insert(key.to_vec(), value.to_vec());
                }
                if told % 4 == 0 {
                    follower.take(change.sequence).await.unwrap();
                }
            }
            assert_eq!(told, written, "nothing is missing");
            if round % 3 == 2 {
                let taken = follower.place();
                db = stores.open().await;
                follower = db.default_keyspace().subscribe("follower", 1 << 30).await.unwrap();
                assert_eq!(follower.place(), taken);
                // Those since its place come again.
                told = told / 4 * 4;
            }
        }
        let keys = db.default_keyspace();
        for (key, value) in mirror {
            assert_eq!(keys.get(&key).await.unwrap().unwrap(), value);
        }
    });
}

#[test]
fn nothing_is_missing_through_takeovers() {
    changes_through_takeovers();
}

/// What the log does not get durable is not told.
fn changes_that_are_not_durable() {
    run(|stores| async move {
        let (db, plan) = stores.with_a_faulty_log().await;
        let keys = db.default_keyspace();
        let mut follower = keys.subscribe("follower", KEPT).await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::LogSync, Fault::Error(ErrorKind::Retry)).times(1000));
        keys.put_with("a", "1", Durability::Accepted).await.unwrap();
        assert!(follower.try_next_async().await.is_err(), "it may be lost");
    });
}

#[test]
fn only_what_is_durable_is_told() {
    changes_that_are_not_durable();
}

#[test]
fn a_reader_follows_too() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let mut follower = keys.subscribe("follower", KEPT).await.unwrap();
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let after = follower.place();
        for value in ["1", "2", "3"] {
            keys.put("k", value).await.unwrap();
        }
        let mut changes = reader.default_keyspace().changes(after).unwrap();
        for _ in 0..3 {
            let (own, read) = (follower.next_async().await.unwrap(), changes.next_async().await.unwrap());
            assert_eq!(own, read);
        }
    });
}

#[cfg(feature = "mutants")]
#[test]
fn changes_that_are_kept_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::ChangesOfUnloggedWrites, an_unlogged_write_to_what_is_followed);
    notices(Mutant::ChangesGoUntold, a_follower_that_fell_behind);
    notices(Mutant::FollowedForgotten, changes_through_takeovers);
    notices(Mutant::ChangesToldEarly, changes_that_are_not_durable);
    notices(Mutant::BeforeImageAcrossGap, values_from_before);
    notices(Mutant::ChangesGoneMarkFalls, what_came_before_a_subscription_is_not_there_after_an_opening);
    notices(Mutant::PlaceGoesBack, a_place_never_goes_back);
}
