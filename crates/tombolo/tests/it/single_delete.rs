//! Single deletes through the public interface.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{Batch, Db, Durability, Env, Event, Listener, PropertyValue};

/// Each face of it deletes, also where the key was put more than once: nothing older comes back.
#[test]
fn what_was_single_deleted_stays_away() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open =
        || Db::builder("mem://single").env(env.clone()).registry(registry.clone()).open().wait().unwrap();
    let db = open();
    let keys = db.default_keyspace();
    for key in ["once", "twice", "batch", "blocking", "kept"] {
        keys.put(key, "first").wait().unwrap();
    }
    db.flush().wait().unwrap();
    keys.put("twice", "second").wait().unwrap();
    let before = db.snapshot();
    keys.single_delete("once").wait().unwrap();
    keys.single_delete_with("twice", Durability::Accepted).wait().unwrap();
    keys.single_delete("missing").wait().unwrap();
    let mut batch = Batch::new();
    batch.single_delete(&keys, "batch").put(&keys, "kept", "again");
    db.write(batch).wait().unwrap();
    db.blocking().default_keyspace().single_delete("blocking").unwrap();
    let check = |db: &Db| {
        let keys = db.default_keyspace();
        let all: Vec<_> = keys.scan::<&[u8]>(..).map(|entry| entry.unwrap().0.to_vec()).collect();
        assert_eq!(all, [b"kept"]);
        for gone in ["once", "twice", "missing", "batch", "blocking"] {
            assert_eq!(keys.get(gone).wait().unwrap(), None, "{gone}");
        }
        assert_eq!(keys.get("kept").wait().unwrap().unwrap(), b"again");
    };
    let then = |snapshot: &tombolo::Snapshot| {
        assert_eq!(snapshot.get(&keys, "once").wait().unwrap().unwrap(), b"first");
        assert_eq!(snapshot.get(&keys, "twice").wait().unwrap().unwrap(), b"second");
        assert_eq!(snapshot.scan::<&[u8]>(&keys, ..).count(), 5);
    };
    check(&db);
    then(&before);
    db.flush().wait().unwrap();
    check(&db);
    db.compact().wait().unwrap();
    check(&db);
    then(&before);
    drop(before);
    db.compact().wait().unwrap();
    check(&db);
    assert!(db.verify().wait().unwrap().damage.is_empty());
    drop((db, keys));
    check(&open());
}

#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Listener for Told {
    fn event(&self, event: &Event) {
        if let Event::SingleDeletesMisused { count, .. } = event {
            self.0.lock().push(*count);
        }
    }
}

/// A single delete over anything but one put is counted, and told once for each job.
#[test]
fn a_wrong_use_is_counted() {
    let told = Arc::new(Told::default());
    let db = Db::builder("mem://misused").listener(Arc::<Told>::clone(&told)).open().wait().unwrap();
    let keys = db.default_keyspace();
    let misused = || match db.property("single-deletes-misused").unwrap().value {
        PropertyValue::Number(number) => number,
        other => panic!("{other:?}"),
    };
    let live = |key: &str| {
        keys.put(key, "v").wait().unwrap();
        keys.single_delete(key).wait().unwrap();
    };
    // Right: one put each, in several lives.
    for _ in 0..3 {
        live("right");
    }
    keys.put("deleted before", "v").wait().unwrap();
    keys.delete("deleted before").wait().unwrap();
    live("deleted before");
    keys.single_delete("missing").wait().unwrap();
    db.flush().wait().unwrap();
    db.compact().wait().unwrap();
    assert_eq!(misused(), 0);
    // Wrong: put twice, deleted, deleted so.
    keys.put("twice", "v").wait().unwrap();
    live("twice");
    for key in ["deleted", "deleted so"] {
        keys.put(key, "v").wait().unwrap();
    }
    keys.delete("deleted").wait().unwrap();
    keys.single_delete("deleted").wait().unwrap();
    keys.single_delete("deleted so").wait().unwrap();
    keys.single_delete("deleted so").wait().unwrap();
    keys.put("in a table", "v").wait().unwrap();
    db.flush().wait().unwrap();
    assert_eq!(misused(), 3);
    keys.put("in a table", "v").wait().unwrap();
    keys.single_delete("in a table").wait().unwrap();
    db.flush().wait().unwrap();
    assert_eq!(misused(), 3, "nobody knows yet");
    db.compact().wait().unwrap();
    assert_eq!(keys.scan::<&[u8]>(..).count(), 0);
    db.close().wait().unwrap();
    assert_eq!(*told.0.lock(), [3]);
}
