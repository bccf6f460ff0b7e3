//! Shapes of a keyspace, through the public interface: the bytes written and kept under each.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo::{Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Shape};

use crate::stores::{Stores, run as run_with};

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    run_with(&["memory_bytes=4194304", "memtable_bytes=16384"], test);
}

/// Bytes that the keyspaces of these tests may hold.
const FIFO_BYTES: u64 = 1 << 20;
const VALUE_BYTES: usize = 200;

fn value(key: u64, round: u64) -> Vec<u8> {
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let random = (0..VALUE_BYTES).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    random.collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

async fn put(keys: &Keyspace, number: u64, round: u64) {
    keys.put_with(key(number), value(number, round), Durability::Accepted).await.unwrap();
}

fn of_shape(shape: Shape) -> KeyspaceOptions {
    let fifo_bytes = (shape == Shape::Fifo).then_some(FIFO_BYTES);
    KeyspaceOptions { shape, fifo_bytes, ..KeyspaceOptions::default() }
}

fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Tiered => "tiered",
        Shape::Auto => "auto",
        _ => "leveled",
    }
}

async fn keyspace(db: &Db, shape: Shape) -> Keyspace {
    db.open_or_create_keyspace("shaped", of_shape(shape)).await.unwrap()
}

/// Waits until nothing is compacted any more.
async fn settle(db: &Db, env: &Env) {
    db.flush().await.unwrap();
    let mut before = db.stats();
    loop {
        env.sleep(Duration::from_secs(1)).await;
        let now = db.stats();
        if (now.compactions, now.flushes) == (before.compactions, before.flushes) {
            return;
        }
        before = now;
    }
}

async fn all(keys: &Keyspace) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut scan = keys.scan::<&[u8]>(..);
    let mut all = BTreeMap::new();
    while let Some((key, value)) = scan.next_async().await.unwrap() {
        all.insert(key.to_vec(), value.to_vec());
    }
    all
}

/// The same history under every shape that keeps all reads the same, with snapshots, other shapes
/// and reopening in between.
#[test]
fn every_shape_reads_the_same() {
    for first in [Shape::Leveled, Shape::Tiered, Shape::Auto] {
        run(move |stores| async move {
            let mut db = stores.open(&[]).await;
            let mut model = BTreeMap::new();
            let mut state = 7u64;
            for (round, shape) in [first, Shape::Tiered, Shape::Leveled, Shape::Auto].into_iter().enumerate()
            {
                let keys = keyspace(&db, first).await;
                keys.set_options([("shape", shape_name(shape))]).await.unwrap();
                let mut snapshot = None;
                for step in 0..2000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (state >> 40) % 2000;
                    if (state >> 33).is_multiple_of(4) {
                        keys.delete_with(key(number), Durability::Accepted).await.unwrap();
                        model.remove(&key(number));
                    } else {
                        put(&keys, number, round as u64).await;
                        model.insert(key(number), value(number, round as u64));
                    }
                    if step == 1000 {
                        snapshot = Some((db.snapshot(), model.clone()));
                    }
                }
                settle(&db, &stores.env).await;
                if let Some((snapshot, then)) = snapshot {
                    for number in (0..2000).step_by(37) {
                        let found = snapshot.get(&keys, key(number)).await.unwrap();
                        assert_eq!(found.as_deref(), then.get(&key(number)).map(|value| &value[..]));
                    }
                }
                assert_eq!(all(&keys).await, model, "round {round}");
                if round % 2 == 1 {
                    db.close().await.unwrap();
                    db = stores.open(&[]).await;
                }
            }
        });
    }
}

/// What compaction merged, and why.
#[derive(Default)]
struct Reasons(parking_lot::Mutex<Vec<&'static str>>);

impl tombolo::Listener for Reasons {
    fn event(&self, event: &tombolo::Event) {
        if let tombolo::Event::CompactionBegan { reason, .. } = event {
            self.0.lock().push(reason);
        }
    }
}

/// Writes alone leave an auto keyspace as a tiered one, and no reads are paid for. Reads that look
/// into its runs merge them, which those of a tiered one never do.
#[test]
fn auto_is_chosen_by_writes_and_by_reads() {
    const KEYS: u64 = 800;
    for shape in [Shape::Auto, Shape::Tiered] {
        run(move |stores| async move {
            let told = std::sync::Arc::new(Reasons::default());
            let listener = std::sync::Arc::<Reasons>::clone(&told);
            let db = stores.builder(&[]).listener(listener).open().await.unwrap();
            let keys = keyspace(&db, shape).await;
            for number in 0..KEYS {
                put(&keys, number * 7919 % KEYS, 0).await;
            }
            settle(&db, &stores.env).await;
            let runs = || db.stats().tables_by_level[0];
            let reasons = std::mem::take(&mut *told.0.lock());
            assert!(!reasons.is_empty() && reasons.iter().all(|reason| *reason != "reads"), "{reasons:?}");
            // Two runs above the others: too few for any merge by their number.
            while runs() < 2 {
                for number in 0..60 {
                    put(&keys, number * 13, 1).await;
                }
                db.flush().await.unwrap();
                stores.env.sleep(Duration::from_secs(1)).await;
            }
            told.0.lock().clear();
            // Until reads have paid, which takes a few thousand at most.
            for _ in 0..30 {
                for number in 0..KEYS {
                    keys.get(key(number)).await.unwrap();
                }
                assert_eq!(all(&keys).await.len() as u64, KEYS);
                stores.env.sleep(Duration::from_secs(1)).await;
                if runs() == 0 {
                    break;
                }
            }
            let reasons = std::mem::take(&mut *told.0.lock());
            match shape {
                Shape::Auto => assert!(reasons.contains(&"reads") && runs() == 0, "{reasons:?}, {}", runs()),
                _ => assert!(reasons.is_empty() && runs() >= 2, "{reasons:?}, {}", runs()),
            }
        });
    }
}

/// Random writes over much data: tiers write less.
#[test]
fn tiers_write_less_than_levels() {
    let written = |shape| {
        let written = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let out = std::sync::Arc::clone(&written);
        run(move |stores| async move {
            let db = stores.open(&[]).await;
            let keys = keyspace(&db, shape).await;
            for number in 0..12_000 {
                put(&keys, number * 7919 % 12_000, 0).await;
            }
            settle(&db, &stores.env).await;
            out.store(db.stats().compacted_bytes_written, std::sync::atomic::Ordering::Relaxed);
        });
        written.load(std::sync::atomic::Ordering::Relaxed)
    };
    let (leveled, tiered) = (written(Shape::Leveled), written(Shape::Tiered));
    assert!(tiered * 10 < leveled * 9, "tiers wrote {tiered} bytes, levels {leveled}");
}

#[test]
fn fifo_keeps_the_newest_within_its_bytes_and_merges_nothing() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = keyspace(&db, Shape::Fifo).await;
        for number in 0..20_000 {
            put(&keys, number, 0).await;
        }
        settle(&db, &stores.env).await;
        let stats = db.stats();
        assert!(stats.table_bytes <= FIFO_BYTES, "{} bytes", stats.table_bytes);
        assert!(stats.table_bytes > FIFO_BYTES * 9 / 10, "no more goes than must: {}", stats.table_bytes);
        assert_eq!(stats.compacted_bytes_written, 0, "each byte is written once");
        let kept = all(&keys).await;
        let first = kept.keys().next().unwrap().clone();
        let expected: Vec<_> = (0..20_000).map(key).filter(|key| *key >= first).collect();
        assert!(kept.keys().eq(expected.iter()), "the newest, without a gap");
        // Another opening finds the same.
        db.close().await.unwrap();
        let db = stores.open(&[]).await;
        assert_eq!(all(&keyspace(&db, Shape::Fifo).await).await, kept);
    });
}

#[test]
fn fifo_counts_values_that_lie_apart() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let options = KeyspaceOptions { separate_bytes: 1024, ..of_shape(Shape::Fifo) };
        let keys = db.create_keyspace("shaped", options).await.unwrap();
        for number in 0..1000 {
            let value: Vec<u8> = (0..20).flat_map(|round| value(number, round)).collect();
            keys.put_with(key(number), value, Durability::Accepted).await.unwrap();
        }
        settle(&db, &stores.env).await;
        let kept = all(&keys).await.len() as u64;
        assert!((FIFO_BYTES / 4000 / 2..=FIFO_BYTES / 4000).contains(&kept), "{kept} values are kept");
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

#[test]
fn fifo_waits_for_a_snapshot_and_goes_on_when_it_closes() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = keyspace(&db, Shape::Fifo).await;
        put(&keys, 0, 0).await;
        db.flush().await.unwrap();
        let snapshot = db.snapshot();
        for number in 1..10_000 {
            put(&keys, number, 0).await;
        }
        settle(&db, &stores.env).await;
        assert!(db.stats().table_bytes > FIFO_BYTES);
        assert_eq!(snapshot.get(&keys, key(0)).await.unwrap().as_deref(), Some(&value(0, 0)[..]));
        drop(snapshot);
        settle(&db, &stores.env).await;
        assert!(db.stats().table_bytes <= FIFO_BYTES, "{} bytes", db.stats().table_bytes);
        assert_eq!(keys.get(key(0)).await.unwrap(), None);
    });
}

#[test]
fn a_shape_without_what_it_needs_is_refused() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let without = KeyspaceOptions { shape: Shape::Fifo, ..KeyspaceOptions::default() };
        let error = db.create_keyspace("f", without).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("fifo_bytes"), "{error}");
        let bytes = KeyspaceOptions { fifo_bytes: Some(FIFO_BYTES), ..KeyspaceOptions::default() };
        assert_eq!(db.create_keyspace("f", bytes).await.unwrap_err().kind(), ErrorKind::Invalid);
        let small = KeyspaceOptions { fifo_bytes: Some(1), ..of_shape(Shape::Fifo) };
        assert_eq!(db.create_keyspace("f", small).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(db.keyspace("f").is_err(), "nothing was created");
    });
}
