//! What each verb promises, on stores in memory.

use tombolo::{Batch, Db, Durability, Env, ErrorKind, KeyspaceOptions, OpenMode, Options, TakeOver};

fn builder(name: &str, env: &Env) -> tombolo::Builder {
    Db::builder(format!("mem://{name}")).env(env.clone())
}

#[test]
fn what_is_put_is_got_before_and_after_flush_compaction_and_reopening() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || builder("lifecycle", &env).registry(registry.clone()).open().wait().unwrap();
    let db = open();
    let keys = db.default_keyspace();
    let other = db.create_keyspace("other", KeyspaceOptions::default()).wait().unwrap();
    keys.put(b"a", b"1").wait().unwrap();
    keys.put_with(b"b", b"2", Durability::Accepted).wait().unwrap();
    keys.put_with(b"c", b"3", Durability::Unlogged).wait().unwrap();
    other.put(b"a", b"other").wait().unwrap();
    keys.delete(b"b").wait().unwrap();
    let check = |db: &Db| {
        let keys = db.default_keyspace();
        assert_eq!(keys.get(b"a").wait().unwrap().unwrap(), b"1");
        assert_eq!(keys.get(b"b").wait().unwrap(), None);
        assert_eq!(keys.get(b"c").wait().unwrap().unwrap(), b"3");
        assert_eq!(keys.get_with(b"c", <[u8]>::to_vec).wait().unwrap().unwrap(), b"3");
        assert_eq!(db.keyspace("other").unwrap().get(b"a").wait().unwrap().unwrap(), b"other");
        let many = keys.multi_get(&[b"a", b"b", b"c", b"d"]).wait().unwrap();
        let many: Vec<_> =
            many.iter().map(|value: &Option<tombolo::Value>| value.as_deref().map(<[u8]>::to_vec)).collect();
        assert_eq!(many, [Some(b"1".to_vec()), None, Some(b"3".to_vec()), None]);
        let scanned: Vec<_> = keys.scan::<&[u8]>(..).map(|entry| entry.unwrap().0.to_vec()).collect();
        assert_eq!(scanned, [b"a", b"c"]);
        let mut scan = keys.scan::<&[u8]>(..);
        scan.seek_to_last();
        assert_eq!(scan.prev().unwrap().unwrap().0, b"c");
        assert_eq!(scan.prev().unwrap().unwrap().0, b"a");
        assert!(scan.prev().is_none());
        assert_eq!(scan.next().unwrap().unwrap().0, b"a");
    };
    check(&db);
    db.flush().wait().unwrap();
    check(&db);
    keys.put(b"z", b"26").wait().unwrap();
    keys.delete(b"z").wait().unwrap();
    db.compact().wait().unwrap();
    check(&db);
    assert!(db.verify().wait().unwrap().damage.is_empty());
    db.close().wait().unwrap();
    assert_eq!(keys.get(b"a").wait().unwrap_err().kind(), ErrorKind::Closed);
    drop((db, keys, other));
    let db = open();
    check(&db);
    // A handle dropped without close is a crash: the log has what was acknowledged.
    db.default_keyspace().put(b"k", b"v").wait().unwrap();
    drop(db);
    let db = open();
    assert_eq!(db.default_keyspace().get(b"k").wait().unwrap().unwrap(), b"v");
}

#[test]
fn a_second_process_takes_over_and_the_first_learns_it() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || {
        let builder = builder("takeover", &env).registry(registry.clone());
        builder.take_over(TakeOver::Always).open().wait().unwrap()
    };
    let first = open();
    let keys = first.default_keyspace();
    keys.put(b"a", b"1").wait().unwrap();
    let second = open();
    assert!(second.epoch() > first.epoch());
    assert_eq!(second.default_keyspace().get(b"a").wait().unwrap().unwrap(), b"1");
    for _ in 0..2 {
        assert_eq!(keys.put(b"b", b"2").wait().unwrap_err().kind(), ErrorKind::Fenced);
    }
    assert_eq!(keys.get(b"a").wait().unwrap().unwrap(), b"1", "reads go on, and may be stale");
    assert_eq!(keys.get_confirmed(b"a").wait().unwrap_err().kind(), ErrorKind::Fenced);
    second.default_keyspace().put(b"b", b"3").wait().unwrap();
    assert_eq!(second.default_keyspace().get(b"b").wait().unwrap().unwrap(), b"3");
    assert_eq!(first.close().wait().unwrap_err().kind(), ErrorKind::Fenced);
    drop((first, keys));
    second.flush().wait().unwrap();
    drop(second);
    let third = open();
    assert_eq!(third.default_keyspace().get(b"b").wait().unwrap().unwrap(), b"3");
}

#[test]
fn modes_and_names_are_checked() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = |mode| builder("modes", &env).registry(registry.clone()).mode(mode).open().wait();
    assert_eq!(open(OpenMode::Open).unwrap_err().kind(), ErrorKind::NotFound);
    let db = open(OpenMode::Create).unwrap();
    assert_eq!(open(OpenMode::Create).unwrap_err().kind(), ErrorKind::AlreadyExists);
    for name in ["", "bell\u{7}", &"n".repeat(256)] {
        assert_eq!(
            db.create_keyspace(name, KeyspaceOptions::default()).wait().unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    db.create_keyspace("k", KeyspaceOptions::default()).wait().unwrap();
    assert_eq!(
        db.create_keyspace("k", KeyspaceOptions::default()).wait().unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(db.keyspace("missing").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_keyspace("missing").wait().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_keyspace("default").wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        Db::builder("nowhere://x").env(env.clone()).open().wait().unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(Db::builder("no uri").env(env.clone()).open().wait().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_dropped_keyspace_is_gone_and_its_name_is_free() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || builder("drops", &env).registry(registry.clone()).open().wait().unwrap();
    let db = open();
    let old = db.create_keyspace("k", KeyspaceOptions::default()).wait().unwrap();
    old.put(b"a", b"old").wait().unwrap();
    db.flush().wait().unwrap();
    old.put(b"b", b"old").wait().unwrap();
    db.drop_keyspace("k").wait().unwrap();
    assert_eq!(old.put(b"a", b"x").wait().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.get(b"a").wait().unwrap_err().kind(), ErrorKind::NotFound);
    let fresh = db.create_keyspace("k", KeyspaceOptions::default()).wait().unwrap();
    assert!(fresh.id() > old.id());
    assert_eq!(fresh.get(b"a").wait().unwrap(), None);
    fresh.put(b"a", b"new").wait().unwrap();
    drop((db, old, fresh));
    for _ in 0..2 {
        let db = open();
        let names: Vec<_> = db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
        assert_eq!(names, ["default", "k"]);
        let fresh = db.keyspace("k").unwrap();
        assert_eq!(
            (fresh.get(b"a").wait().unwrap().unwrap().to_vec(), fresh.get(b"b").wait().unwrap()),
            (b"new".to_vec(), None)
        );
        db.flush().wait().unwrap();
    }
}

#[test]
fn limits_are_named() {
    let env = Env::real();
    let options =
        Options::parse(["memory_bytes=1048576", "memtable_bytes=65536", "writes_in_flight_max=2"]).unwrap();
    let db = builder("limits", &env)
        .registry(tombolo::Registry::with_defaults())
        .options(options)
        .open()
        .wait()
        .unwrap();
    let keys = db.default_keyspace();
    let error = keys.put(vec![0; 64 << 10], b"").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("65535"), "{error}");
    let error = keys.put(b"k", vec![0; (64 << 20) + 1]).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("67108864"), "{error}");
    let mut batch = Batch::new();
    batch.put(&keys, b"1", vec![0; 60 << 20]).put(&keys, b"2", vec![0; 60 << 20]);
    assert_eq!(db.write(batch).wait().unwrap_err().kind(), ErrorKind::Invalid);
    // In flight: the third is handed back while the first two have not ended.
    let (one, two) = (keys.put(b"1", b""), keys.put(b"2", b""));
    let mut batch = Batch::new();
    batch.put(&keys, b"3", b"three");
    let rejected = db.try_write(batch, Durability::Durable).unwrap_err();
    assert_eq!((rejected.error.kind(), rejected.batch.len()), (ErrorKind::Busy, 1));
    one.wait().unwrap();
    db.try_write(rejected.batch, Durability::Durable).unwrap().wait().unwrap();
    two.wait().unwrap();
    assert_eq!(keys.get(b"3").wait().unwrap().unwrap(), b"three");
    // Memory: far more than the budget goes through it.
    for index in 0..400u32 {
        keys.put_with(index.to_be_bytes(), vec![7; 8 << 10], Durability::Accepted).wait().unwrap();
        assert!(db.stats().memtable_bytes < 1 << 20, "memory is bounded");
    }
    assert_eq!(keys.scan::<&[u8]>(..).count(), 403);
}

#[test]
fn several_keys_are_what_single_gets_give_over_memtable_runs_and_levels() {
    let env = Env::real();
    let registry = tombolo::Registry::with_defaults();
    let open = || {
        let options = Options { automatic_compaction: false, ..Options::default() };
        builder("several", &env).registry(registry.clone()).options(options).open().wait().unwrap()
    };
    let db = open();
    let keys = db.default_keyspace();
    for round in 0..4u32 {
        for key in (0..3000u32).filter(|key| (key * 7919 + round) % 3 == 0) {
            let name = format!("{key:05}");
            match (key + round) % 11 {
                0 => keys.delete_with(name, Durability::Unlogged).wait().unwrap(),
                _ => keys.put_with(name, format!("{round}-{key}"), Durability::Unlogged).wait().unwrap(),
            }
        }
        match round {
            0 => db.compact().wait().unwrap(),
            1 | 2 => db.flush().wait().unwrap(),
            _ => {}
        }
    }
    let check = |keys: &tombolo::Keyspace| {
        let snapshot: Vec<_> =
            (0..3100u32).rev().step_by(3).chain(40..60).map(|key| format!("{key:05}")).collect();
        let several = keys.multi_get(&snapshot).wait().unwrap();
        for (key, value) in snapshot.iter().zip(several) {
            assert_eq!(value, keys.get(key).wait().unwrap(), "{key}");
        }
    };
    check(&keys);
    db.flush().wait().unwrap();
    db.close().wait().unwrap();
    // Nothing is in memory now.
    let db = open();
    check(&db.default_keyspace());
}
