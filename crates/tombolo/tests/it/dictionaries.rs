//! Tables whose blocks need the dictionary that was trained for them, through the whole engine:
//! reopened, cloned, followed and salvaged. (How a single table reads is tested beside its code.)

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tombolo::{Builder, Compression, Db, KeyspaceOptions, Options, ReaderOptions, Result, SalvageMode};
use tombolo_env::Env;
use tombolo_format::table::{Footer, Top};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

use crate::bucket::{Bucket, run};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// With less memory no table has a dictionary.
const SETTINGS: &[&str] = &["memory_bytes=33554432", "memtable_bytes=1048576"];
/// Enough for a dictionary, which is trained from the first half a MiB.
const ENTRIES: u64 = 8000;

fn key(number: u64) -> Vec<u8> {
    format!("order-{number:08}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let amount = (number ^ (round << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    format!("{{\"state\":\"shipped from the north, not paid for yet\",\"amount_in_cents\":{amount}}}")
        .into_bytes()
}

async fn fill(db: &Db, round: u64) -> Contents {
    let options = KeyspaceOptions { compression: Compression::Zstd, ..KeyspaceOptions::default() };
    let keys = db.open_or_create_keyspace("orders", options).await.unwrap();
    let all: Contents = (0..ENTRIES).map(|number| (key(number), value(number, round))).collect();
    for (key, value) in &all {
        keys.put_with(key, value, tombolo::Durability::Accepted).await.unwrap();
    }
    db.compact().await.unwrap();
    all
}

/// All keys by walks both ways, and some by look-ups.
async fn contents(db: &Db) -> Result<Contents> {
    let keys = db.keyspace("orders")?;
    let mut cursor = keys.cursor::<&[u8]>(..);
    let mut all = Contents::new();
    let mut more = cursor.seek_to_last_async().await?;
    while more {
        all.insert(cursor.key().to_vec(), cursor.value().to_vec());
        more = cursor.prev_async().await?;
    }
    let mut forward = keys.scan::<&[u8]>(..);
    let mut count = 0;
    while let Some((key, value)) = forward.next_async().await? {
        assert_eq!(all.get(&key[..]).map(|value| &value[..]), Some(&value[..]));
        count += 1;
    }
    assert_eq!(count, all.len());
    for (key, value) in all.iter().step_by(53) {
        assert_eq!(keys.get(key).await?.as_deref(), Some(&value[..]));
    }
    Ok(all)
}

/// How many tables have a dictionary: those of the last level, which hold all here. Others may wait
/// for their end.
fn dictionaries(tables: &[Vec<u8>]) -> usize {
    tables.iter().filter(|table| has_dictionary(table)).count()
}

fn has_dictionary(table: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(table);
    let footer = Footer::decode(&bytes).unwrap();
    let top = Top::decode(&bytes, bytes.len() as u64, footer.identity).unwrap();
    top.dictionary.is_some()
}

async fn tables(bucket: &Bucket, name: &str) -> Vec<Vec<u8>> {
    let mut tables = Vec::new();
    for table in bucket.listed(name, "/table/").await {
        tables.push(bucket.bytes(name, &table.name).await);
    }
    tables
}

/// All that open such tables have their dictionary from them: the writer's next life, a reader, a
/// clone, and the clone's compaction, which reads them and makes others.
#[test]
fn tables_with_dictionaries_are_read_by_all() {
    run(SETTINGS, |bucket| async move {
        let db = bucket.open("source").await;
        let expected = fill(&db, 0).await;
        assert_eq!(dictionaries(&tables(&bucket, "source").await), 1);
        assert_eq!(contents(&db).await.unwrap(), expected);
        let reader = bucket.builder("source").open_reader(ReaderOptions::default()).await.unwrap();
        assert_eq!(contents(reader.db()).await.unwrap(), expected);
        db.share_to(bucket.builder("clone")).await.unwrap();
        drop((reader, db));

        let db = bucket.open("source").await;
        assert_eq!(contents(&db).await.unwrap(), expected);
        assert!(db.verify().await.unwrap().damage.is_empty());
        // Others take their place, with dictionaries of their own.
        let newer = fill(&db, 1).await;
        assert_eq!(contents(&db).await.unwrap(), newer);
        drop(db);

        let clone = bucket.open("clone").await;
        assert_eq!(contents(&clone).await.unwrap(), expected);
        let keys = clone.keyspace("orders").unwrap();
        keys.put(key(7), "of the clone").await.unwrap();
        clone.compact().await.unwrap();
        assert_eq!(dictionaries(&tables(&bucket, "clone").await), 1);
        let mut expected = expected;
        expected.insert(key(7), b"of the clone".to_vec());
        assert_eq!(contents(&clone).await.unwrap(), expected);
        assert!(clone.verify().await.unwrap().damage.is_empty());
    });
}

fn elsewhere(env: &Env) -> impl Fn() -> Builder {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let env = env.clone();
    move || {
        let builder = Db::builder("mem://saved")
            .env(env.clone())
            .options(Options::parse(SETTINGS.iter().copied()).unwrap());
        builder.stores(Arc::clone(&objects), Arc::clone(&log))
    }
}

/// Salvage reads blocks one by one: all of a whole table, and all but the damaged one of another.
#[test]
fn tables_with_dictionaries_are_salvaged() {
    run(SETTINGS, |bucket| async move {
        let db = bucket.open("source").await;
        let expected = fill(&db, 0).await;
        drop(db);
        let whole = elsewhere(&bucket.env);
        let report = bucket.builder("source").salvage_to(whole(), SalvageMode::Consistent).await.unwrap();
        assert!(report.is_whole(), "{report:?}");
        let saved = whole().open().await.unwrap();
        assert_eq!(contents(&saved).await.unwrap(), expected);
        drop(saved);

        let mut with_dictionary = None;
        for table in bucket.listed("source", "/table/").await {
            let bytes = bucket.bytes("source", &table.name).await;
            if has_dictionary(&bytes) {
                with_dictionary = Some((table.name, bytes));
            }
        }
        let (table, mut bytes) = with_dictionary.unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bucket.replace("source", &table, bytes).await;
        let holes = elsewhere(&bucket.env);
        let report = bucket.builder("source").salvage_to(holes(), SalvageMode::WithHoles).await.unwrap();
        assert_eq!(report.losses.len(), 1, "{report:?}");
        let (first, last) = report.losses[0].keys.clone().unwrap();
        let saved = holes().open().await.unwrap();
        let found = contents(&saved).await.unwrap();
        // All that is lost lies in the range; some of what lies there may have been found.
        for (key, value) in &expected {
            let is_within = first <= *key && *key <= last;
            match found.get(key) {
                Some(found) => assert_eq!(found, value),
                None => assert!(is_within, "{} is lost", String::from_utf8_lossy(key)),
            }
        }
        assert!((7000..8000).contains(&found.len()), "{} of {ENTRIES}", found.len());
    });
}
