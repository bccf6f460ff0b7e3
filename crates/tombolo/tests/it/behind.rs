//! Tables that are ingested behind all that a keyspace holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Condition, Db, Env, ErrorKind, Ingest, IngestOptions, Keyspace, KeyspaceOptions, OperatorName, Options,
    ReaderOptions, Registry, Result, Shape, TableFileBuilder, TablePlace, TakeOver,
};
use tombolo_env::simulated::World;

use crate::reader::builder;
use crate::stores::{Stores, run};

const OPTIONS: &[&str] = &["memory_bytes=1048576", "memtable_bytes=4096"];
const BEHIND: IngestOptions =
    IngestOptions { behind: true, bring: tombolo::Bring::Link, ordered: false, trusted: false };

fn kept() -> KeyspaceOptions {
    KeyspaceOptions { ingest_behind: true, ..KeyspaceOptions::default() }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:02}").into_bytes()
}

/// Makes a table with a value under each of the keys.
async fn table(env: &Env, place: TablePlace, keys: impl IntoIterator<Item = Vec<u8>>) -> TablePlace {
    let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
    let made = TableFileBuilder::create_with(env.clone(), registry, place.clone(), options);
    let mut table = made.await.unwrap();
    for key in keys {
        table.put(&key, b"behind").await.unwrap();
    }
    table.finish().await.unwrap();
    place
}

async fn part(stores: &Stores, name: &str, keys: impl IntoIterator<Item = Vec<u8>>) -> TablePlace {
    table(&stores.env, TablePlace::object(Arc::clone(&stores.objects), name).unwrap(), keys).await
}

/// What a keyspace holds, by every way to read it.
async fn contents(keyspace: &Keyspace) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut scan = keyspace.scan::<&[u8]>(..);
    while let Some((key, value)) = scan.next_async().await? {
        found.insert(key.to_vec(), value.to_vec());
    }
    let mut backward = BTreeMap::new();
    while let Some((key, value)) = scan.prev_async().await? {
        backward.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(found, backward, "both directions agree");
    let keys: Vec<_> = (0..48).map(key).collect();
    for (key, value) in keys.iter().zip(keyspace.multi_get(&keys).await?) {
        assert_eq!(found.get(key).map(|value| &value[..]), value.as_deref(), "multi-get and scan agree");
        assert_eq!(keyspace.get(key).await?.as_deref(), value.as_deref(), "get and multi-get agree");
    }
    Ok(found)
}

/// Keys that were written, deleted or within a range delete have what the keyspace says of them,
/// and the others what the table says: while it waits for its flush, then, and after compactions.
#[test]
fn a_table_lies_behind_what_is_there() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let operator = Some(OperatorName::parse("append_comma@1").unwrap());
        let keys = db.create_keyspace("kept", KeyspaceOptions { operator, ..kept() }).await.unwrap();
        keys.put(key(1), b"mine").await.unwrap();
        keys.put(key(2), b"mine").await.unwrap();
        keys.delete(key(2)).await.unwrap();
        keys.delete(key(3)).await.unwrap();
        keys.put(key(4), b"mine").await.unwrap();
        keys.delete_range(key(4), key(6)).await.unwrap();
        keys.single_delete(key(7)).await.unwrap();
        keys.merge(key(8), b"+").await.unwrap();
        // Nothing of it goes, although nothing lies below it.
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        db.compact().await.unwrap();
        let part = part(&stores, "part", (0..10).map(key)).await;
        let report = keys.ingest_with([part], BEHIND).await.unwrap();
        assert_eq!((report.tables, report.entries), (1, 10));
        let text = |text: &str| text.as_bytes().to_vec();
        let expected = BTreeMap::from([
            (key(0), text("behind")),
            (key(1), text("mine")),
            (key(6), text("behind")),
            (key(8), text("behind,+")),
            (key(9), text("behind")),
        ]);
        assert_eq!(contents(&keys).await.unwrap(), expected, "before the flush");
        // A condition sees it as it is.
        let found = keys.get_versioned(key(0)).await.unwrap();
        let unmet = keys.put_if(key(0), b"new", Condition::Absent).await.unwrap();
        assert_eq!((unmet.sequence, found.map(|found| found.value.to_vec())), (None, Some(text("behind"))));
        for what in ["flushed", "compacted", "compacted again"] {
            db.flush().await.unwrap();
            assert_eq!(contents(&keys).await.unwrap(), expected, "{what}");
            db.compact().await.unwrap();
        }
        assert!(db.verify().await.unwrap().damage.is_empty());
        // What comes now lies over it, and deletes stay told.
        keys.delete(key(9)).await.unwrap();
        keys.put(key(0), b"mine").await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        let found = contents(&keys).await.unwrap();
        assert_eq!((found.get(&key(0)), found.get(&key(9))), (Some(&text("mine")), None));
        // Without the setting compaction merges all, and lets deletes go.
        keys.set_options([("ingest_behind", "false")]).await.unwrap();
        db.compact().await.unwrap();
        assert_eq!(contents(&keys).await.unwrap(), found);
        let deletes: u64 = keys.table_properties().unwrap().iter().map(|table| table.deletes).sum();
        assert_eq!(deletes, 0);
        db.close().await.unwrap();
    });
}

/// What has expired hides what comes to lie behind it, also once its bytes are gone.
#[test]
fn what_has_expired_hides_what_lies_behind() {
    let world = World::new(1);
    let process = world.process("writer");
    let options = Options::parse(OPTIONS.iter().copied()).unwrap();
    let builder = Db::builder("file:///db").env(process.env()).options(options);
    let db = builder.take_over(TakeOver::Always).open().wait().unwrap();
    let keys = db.create_keyspace("kept", kept()).wait().unwrap();
    keys.put_ttl(key(1), b"mine", Duration::from_secs(60)).wait().unwrap();
    db.flush().wait().unwrap();
    db.compact().wait().unwrap();
    world.run_for(Duration::from_secs(6 * 3600));
    db.compact().wait().unwrap();
    let env = process.env();
    let made = world.run_until(table(&env, "file:///parts/1.table".into(), [key(1), key(2)]));
    keys.ingest_with([made], BEHIND).wait().unwrap();
    for _ in 0..2 {
        assert_eq!(keys.get(key(1)).wait().unwrap(), None);
        assert_eq!(keys.get(key(2)).wait().unwrap().as_deref(), Some(&b"behind"[..]));
        db.flush().wait().unwrap();
        db.compact().wait().unwrap();
    }
}

/// What cannot lie behind is refused, nothing of it is taken, and the database goes on.
#[test]
fn what_cannot_lie_behind_is_refused() {
    run(OPTIONS, |stores| async move {
        let db = stores.open(&[]).await;
        let (plain, keys) = (db.default_keyspace(), db.create_keyspace("kept", kept()).await.unwrap());
        keys.put(key(1), b"mine").await.unwrap();
        let one = part(&stores, "one", (0..3).map(key)).await;
        let other = part(&stores, "other", (2..5).map(key)).await;
        let third = part(&stores, "third", (5..7).map(key)).await;
        db.flush().await.unwrap();
        let before = stores.tables().await;
        let refused = async |ingest: Ingest, kind: ErrorKind, says: &str| {
            let error = db.ingest(ingest).await.unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(says), "{kind:?} {says}: {error}");
        };
        let behind = |keyspace: &Keyspace, places: &[&TablePlace]| {
            let all = places.iter().fold(Ingest::new(), |all, place| all.table(keyspace, (*place).clone()));
            all.options(BEHIND)
        };
        refused(behind(&plain, &[&one]), ErrorKind::Invalid, "keeps no room behind").await;
        refused(behind(&keys, &[&one]).exchange(&keys), ErrorKind::Invalid, "an exchange ends").await;
        refused(Ingest::new().exchange(&keys), ErrorKind::Invalid, "keeps all deletes").await;
        let ordered = IngestOptions { ordered: true, ..BEHIND };
        refused(behind(&keys, &[&one, &other]).options(ordered), ErrorKind::Invalid, "hold the same keys")
            .await;
        let snapshot = db.snapshot();
        refused(behind(&keys, &[&one]), ErrorKind::Conflict, "snapshots would see").await;
        assert_eq!(snapshot.get(&keys, key(0)).await.unwrap(), None);
        drop(snapshot);
        stores.env.sleep(Duration::from_secs(5)).await;
        assert_eq!(stores.tables().await, before, "nothing is left of what was refused");
        // What was ingested behind is met while it waits for its flush, and then.
        db.ingest(behind(&keys, &[&one])).await.unwrap();
        for _ in 0..2 {
            refused(behind(&keys, &[&other]), ErrorKind::Invalid, "ingested behind before").await;
            db.flush().await.unwrap();
        }
        db.ingest(behind(&keys, &[&third])).await.unwrap();
        assert_eq!(contents(&keys).await.unwrap().len(), 5);
        // Over it anything may lie.
        keys.ingest([other]).await.unwrap();
        assert_eq!(contents(&keys).await.unwrap().len(), 7);
        // Settings.
        let invalid = async |keyspace: &Keyspace, settings: &[(&str, &str)]| {
            let error = keyspace.set_options(settings.iter().copied()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        };
        invalid(&plain, &[("ingest_behind", "true")]).await;
        invalid(&keys, &[("shape", "fifo"), ("fifo_bytes", "1048576")]).await;
        keys.set_options([("ingest_behind", "false")]).await.unwrap();
        invalid(&keys, &[("ingest_behind", "true")]).await;
        let fourth = part(&stores, "fourth", [key(40)]).await;
        refused(behind(&keys, &[&fourth]), ErrorKind::Invalid, "keeps no room behind").await;
        db.close().await.unwrap();
    });
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What a keyspace says of each key of which it says anything.
type Told = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn shown(told: &Told) -> BTreeMap<Vec<u8>, Vec<u8>> {
    told.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
}

#[test]
fn tables_behind_among_writes_read_as_a_map_does() {
    for seed in 1..=if crate::is_deep() { 60 } else { 3 } {
        let process = World::new(seed).process("p");
        let env = process.env();
        process.run(model(env, seed)).unwrap().unwrap();
    }
}

async fn model(env: Env, seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let uri = "file:///db";
    let mut db = builder(&env, uri).open().await?;
    let shape = if random.below(2) == 0 { Shape::Leveled } else { Shape::Tiered };
    let mut keys = db.create_keyspace("kept", KeyspaceOptions { shape, ..kept() }).await?;
    let following = ReaderOptions { lag_max: Duration::MAX, ..ReaderOptions::default() };
    let reader = builder(&env, uri).open_reader(following).await?;
    let (mut told, mut snapshots, mut stretches) = (Told::new(), Vec::new(), 0);
    for number in 1..=80 {
        match random.below(10) {
            0 if stretches < 8 => {
                snapshots.clear();
                let stretch: Vec<_> = (stretches * 6..stretches * 6 + 1 + random.below(6)).map(key).collect();
                stretches += 1;
                let place =
                    table(&env, format!("file:///parts/{number}.table").into(), stretch.clone()).await;
                keys.ingest_with([place], BEHIND).await?;
                for key in stretch {
                    told.entry(key).or_insert(Some(b"behind".to_vec()));
                }
            }
            1 => db.flush().await?,
            2 => db.compact().await?,
            3 => snapshots.push((db.snapshot(), shown(&told))),
            4 if random.below(3) == 0 => {
                snapshots.clear();
                drop((keys, db));
                db = builder(&env, uri).open().await?;
                keys = db.keyspace("kept")?;
            }
            5 | 6 => {
                let key = key(random.below(48));
                keys.delete(&key).await?;
                told.insert(key, None);
            }
            7 => {
                let from = random.below(44);
                let to = from + 1 + random.below(4);
                keys.delete_range(key(from), key(to)).await?;
                told.extend((from..to).map(|number| (key(number), None)));
            }
            _ => {
                let (key, value) = (key(random.below(48)), format!("{number}").into_bytes());
                keys.put(&key, &value).await?;
                told.insert(key, Some(value));
            }
        }
        assert_eq!(contents(&keys).await?, shown(&told), "seed {seed}, step {number}");
        for (snapshot, expected) in &snapshots {
            for key in (0..48).map(key) {
                let found = snapshot.get(&keys, &key).await?;
                assert_eq!(found.as_deref(), expected.get(&key).map(|value| &value[..]), "step {number}");
            }
        }
        reader.refresh().await?;
        assert_eq!(contents(&reader.keyspace("kept")?).await?, shown(&told), "reader, step {number}");
    }
    snapshots.clear();
    keys.set_options([("ingest_behind", "false")]).await?;
    db.compact().await?;
    assert_eq!(contents(&keys).await?, shown(&told), "seed {seed}, once no room is kept");
    db.close().await
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    use super::*;

    #[test]
    fn deletes_that_go_although_something_may_come_behind() {
        notices(Mutant::BehindDeletesDropped, a_table_lies_behind_what_is_there);
    }

    #[test]
    fn tables_behind_that_lie_over() {
        notices(Mutant::BehindLiesOver, a_table_lies_behind_what_is_there);
    }

    #[test]
    fn tables_behind_that_meet_others_there() {
        notices(Mutant::BehindMeetsBehind, what_cannot_lie_behind_is_refused);
    }

    #[test]
    fn tables_behind_that_snapshots_see() {
        notices(Mutant::BehindUnderSnapshots, what_cannot_lie_behind_is_refused);
    }

    #[test]
    fn what_has_expired_and_goes_unread() {
        notices(Mutant::ExpiredGoesOverBehind, what_has_expired_hides_what_lies_behind);
    }
}
