//! Single deletes through the public interface.

use tombolo::{Batch, Db, Durability, Env};

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
