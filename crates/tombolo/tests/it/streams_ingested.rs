//! Tables from outside, exchanges and sorted batches in keyspaces of streams.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Bring, Db, Env, ErrorKind, Ingest, IngestOptions, Keyspace, KeyspaceOptions, ReaderOptions, Registry,
    TableFileBuilder, TablePlace, TakeOver,
};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, Rule};

use crate::streams::{Stores, at, of_stream, run, three, value};

/// A table with a value under each of the keys.
async fn table(env: &Env, place: impl Into<TablePlace>, keys: &[&[u8]], value: &[u8]) {
    let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
    let made = TableFileBuilder::create_with(env.clone(), registry, place.into(), options);
    let mut table = made.await.unwrap();
    for key in keys {
        table.put(key, value).await.unwrap();
    }
    table.finish().await.unwrap();
}

async fn part(stores: &Stores, name: &str, keys: &[&[u8]], value: &[u8]) -> TablePlace {
    let place = TablePlace::object(Arc::clone(&stores.objects), name).unwrap();
    table(&stores.env, place.clone(), keys, value).await;
    place
}

fn behind() -> IngestOptions {
    IngestOptions { behind: true, ..IngestOptions::default() }
}

fn exchange(keys: &Keyspace, table: &TablePlace) -> Ingest {
    Ingest::new().exchange(keys).table(keys, table.clone())
}

/// The tables of one are of one stream.
#[test]
fn what_is_ingested_is_of_one_stream() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let [main, one, two] = three(&db).await;
        let made = part(&stores, "made", &[b"a"], b"v").await;
        for (first, second) in [(&one, &two), (&main, &one), (&one, &main)] {
            let both = Ingest::new().table(first, made.clone()).table(second, made.clone());
            let error = db.ingest(both).await.unwrap_err();
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("two streams"),
                "{error}"
            );
            let both = Ingest::new().exchange(first).table(second, made.clone());
            assert_eq!(db.ingest(both).await.unwrap_err().kind(), ErrorKind::Invalid);
            let mut batch = db.sorted_batch();
            batch.put(first, b"a", b"v").await.unwrap();
            let error = batch.put(second, b"b", b"v").await.unwrap_err();
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("two streams"),
                "{error}"
            );
            batch.put(first, b"c", b"v").await.unwrap();
            assert_eq!(batch.publish().await.unwrap().entries, 2);
        }
        let elsewhere = Stores::new(&stores.env, "memory").open().await;
        let error = elsewhere.ingest(Ingest::new().table(&one, made.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
}

/// By each way to bring them, over other values; one batch that is large, and small ones.
#[test]
fn streams_take_tables_and_sorted_batches() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let [_, one, two] = three(&db).await;
        one.put(b"a", b"old").await.unwrap();
        for (number, bring) in [Bring::Link, Bring::Copy, Bring::Move].into_iter().enumerate() {
            let name = format!("part-{number}");
            let made = part(&stores, &name, &[b"a", name.as_bytes()], name.as_bytes()).await;
            let options = IngestOptions { bring, ..IngestOptions::default() };
            one.ingest_with([made], options).await.unwrap();
            assert_eq!(value(&one, b"a").await.unwrap(), name.as_bytes());
        }
        let mut batch = db.sorted_batch();
        for number in 0..200u8 {
            batch.put(&two, [number], [number; 1000]).await.unwrap();
        }
        let published = batch.publish().await.unwrap();
        assert!(published.tables > 0 && published.sequence > 0, "{published:?}");
        one.put(b"part-0", b"newer").await.unwrap();
        let check = async |db: &Db| {
            let (one, two) = (db.keyspace("one").unwrap(), db.keyspace("two").unwrap());
            assert_eq!(value(&one, b"a").await.unwrap(), b"part-2");
            assert_eq!(value(&one, b"part-0").await.unwrap(), b"newer");
            assert_eq!(value(&one, b"part-1").await.unwrap(), b"part-1");
            assert_eq!(value(&two, &[199]).await.unwrap(), [199; 1000]);
            assert!(db.verify().await.unwrap().damage.is_empty());
            assert!(db.background_errors().is_empty());
        };
        check(&db).await;
        drop((db, one, two));
        let db = stores.open().await;
        check(&db).await;
        db.compact().await.unwrap();
        check(&db).await;
    });
}

/// A snapshot from before there was any stream sees nothing of one, and no table behind it.
#[test]
fn a_snapshot_from_before_all_streams_sees_no_table_behind() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let snapshot = db.snapshot();
        let options = KeyspaceOptions { ingest_behind: true, ..of_stream(2) };
        let keys = db.create_keyspace("behind", options).await.unwrap();
        let made = part(&stores, "made", &[b"a"], b"new").await;
        assert_eq!(at(&snapshot, &keys, b"a").await, None);
        keys.ingest_with([made], behind()).await.unwrap();
        assert_eq!(value(&keys, b"a").await.unwrap(), b"new");
        assert_eq!(at(&snapshot, &keys, b"a").await, None);
        assert!(snapshot.multi_get(&keys, &[b"a"]).await.unwrap()[0].is_none());
        assert!(!snapshot.cursor::<&[u8]>(&keys, ..).seek_to_first_async().await.unwrap());
        assert!(db.snapshot().cursor::<&[u8]>(&keys, ..).seek_to_first_async().await.unwrap());
    });
}

/// A snapshot that was opened before the exchange sees what it ends, also where the stream has met
/// no cut since.
fn snapshots_that_the_stream_has_not_met() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let options = KeyspaceOptions { ingest_behind: true, ..of_stream(2) };
        let behind_it = db.create_keyspace("behind", options).await.unwrap();
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        one.put(b"k", b"old").await.unwrap();
        behind_it.put(b"k", b"old").await.unwrap();
        db.flush().await.unwrap();
        let made = part(&stores, "made", &[b"a"], b"new").await;
        let snapshot = db.snapshot();
        let error = db.ingest(exchange(&one, &made)).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("snapshots"), "{error}");
        let error = behind_it.ingest_with([made.clone()], behind()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("snapshots"), "{error}");
        assert_eq!(at(&snapshot, &one, b"k").await.unwrap(), b"old");
        // What lies over all does not disturb it.
        one.ingest([made.clone()]).await.unwrap();
        assert_eq!(at(&snapshot, &one, b"a").await, None);
        drop(snapshot);
        db.ingest(exchange(&one, &made)).await.unwrap();
        behind_it.ingest_with([made], behind()).await.unwrap();
        for _ in 0..2 {
            assert_eq!(value(&one, b"k").await, None);
            assert_eq!(value(&one, b"a").await.unwrap(), b"new");
            assert_eq!(value(&behind_it, b"a").await.unwrap(), b"new");
            assert_eq!(value(&behind_it, b"k").await.unwrap(), b"old");
            db.flush().await.unwrap();
        }
    });
}

#[test]
fn an_exchange_in_a_stream_waits_for_snapshots_of_all() {
    snapshots_that_the_stream_has_not_met();
}

/// Records of the manifest take long, so that what was ingested lies in the log alone: readers,
/// looks and the next writer find it there.
#[test]
fn what_only_the_lane_shows_is_read_and_taken_over() {
    run("memory", |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let slow = Stores { objects: Arc::new(objects), ..stores.clone() };
        let db = slow.open().await;
        let [_, one, _] = three(&db).await;
        one.put(b"a", b"old").await.unwrap();
        one.put(b"b", b"old").await.unwrap();
        db.flush().await.unwrap();
        let made = part(&stores, "made", &[b"a"], b"new").await;
        let options = ReaderOptions { lag: Duration::from_millis(100), ..ReaderOptions::default() };
        let reader = stores.builder().open_reader(options).await.unwrap();
        let is_record =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/manifest/");
        stores.plan.inject(Rule::new(is_record, Fault::Delay(Duration::from_secs(60))).skip(1));
        db.ingest(exchange(&one, &made)).await.unwrap();
        let check = async |db: &Db| {
            let one = db.keyspace("one").unwrap();
            assert_eq!(value(&one, b"a").await.unwrap(), b"new");
            assert_eq!(value(&one, b"b").await, None);
            let found: Vec<_> = one.multi_get(&[b"a", b"b"]).await.unwrap();
            assert!(found[0].is_some() && found[1].is_none());
        };
        check(&db).await;
        let before = db.stats().flushes;
        reader.refresh().await.unwrap();
        check(reader.db()).await;
        let look = stores.builder().open_read_only().await.unwrap();
        check(&look).await;
        look.close().await.unwrap();
        assert_eq!(db.stats().flushes, before, "it was in the log alone");
        let next = stores.builder().take_over(TakeOver::Always).open().await.unwrap();
        check(&next).await;
        next.flush().await.unwrap();
        check(&next).await;
        reader.refresh().await.unwrap();
        check(reader.db()).await;
        assert!(next.verify().await.unwrap().damage.is_empty());
        reader.close().await.unwrap();
        next.close().await.unwrap();
    });
}

/// The manifest has dropped a keyspace before its stream says what was ingested there.
#[test]
fn a_keyspace_is_dropped_before_what_was_ingested_is_flushed() {
    run("memory", |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let slow = Stores { objects: Arc::new(objects), ..stores.clone() };
        let db = slow.open().await;
        let [main, one, _] = three(&db).await;
        let also = db.create_keyspace("also", of_stream(1)).await.unwrap();
        db.flush().await.unwrap();
        let made = part(&stores, "made", &[b"a"], b"new").await;
        one.put(b"b", b"v").await.unwrap();
        also.put(b"b", b"v").await.unwrap();
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        stores.plan.inject(Rule::new(is_table, Fault::Delay(Duration::from_secs(20))).times(1));
        let flushing = db.flush();
        stores.env.sleep(Duration::from_secs(1)).await;
        db.ingest(Ingest::new().exchange(&one).table(&one, made.clone()).table(&also, made)).await.unwrap();
        db.drop_keyspace("one").await.unwrap();
        main.put(b"k", b"v").await.unwrap();
        let after = db.flush();
        flushing.await.unwrap();
        after.await.unwrap();
        assert!(db.background_errors().is_empty());
        assert_eq!(value(&also, b"a").await.unwrap(), b"new");
        assert_eq!(value(&also, b"b").await.unwrap(), b"v");
        db.close().await.unwrap();
        let db = stores.open().await;
        assert!(db.keyspace("one").is_err());
        assert_eq!(value(&db.keyspace("also").unwrap(), b"a").await.unwrap(), b"new");
    });
}

#[cfg(feature = "mutants")]
#[test]
fn cuts_that_an_ingest_has_not_met_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::IngestMissesCuts, snapshots_that_the_stream_has_not_met);
}
