//! Salvage of a database with streams: the newest checkpoint that is sound.

use std::collections::BTreeSet;

use tombolo::{ErrorKind, SalvageMode};
use tombolo_storage::{Epoch, ObjectName, Purpose, Request};

use crate::streams::{NAMES, Stores, one_moment, rounds, run, three, value};

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

async fn tables(stores: &Stores) -> BTreeSet<ObjectName> {
    let listed = stores.objects.list(request(), "", None, 10_000).await.unwrap();
    let names = listed.objects.into_iter().map(|object| object.name);
    names.filter(|name| name.as_str().contains("/table/")).collect()
}

#[test]
fn of_a_database_with_streams_the_newest_checkpoint_is_salvaged() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..3).await;
        // Streams that have flushed more than others.
        db.sync().await.unwrap();
        let error = stores.builder().survey_damage(SalvageMode::Consistent).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("streams"), "{error}");
        db.checkpoint("zero").await.unwrap();
        let before = tables(&stores).await;
        rounds(&all, 3..7).await;
        db.checkpoint("one").await.unwrap();
        let of_one: Vec<_> = tables(&stores).await.difference(&before).cloned().collect();
        for keys in &all {
            rounds(&all, 7..8).await;
            keys.put(b"more", vec![1; 70_000]).await.unwrap();
        }
        drop((db, all));
        for (mode, damage, name, last) in [
            (SalvageMode::Consistent, false, "one", 20),
            (SalvageMode::WithHoles, false, "one", 20),
            (SalvageMode::Consistent, true, "zero", 8),
        ] {
            if damage {
                stores.objects.delete(request(), &of_one[0]).await.unwrap();
            }
            let looked = stores.builder().survey_damage(mode).await.unwrap();
            let target = Stores::new(&stores.env, "memory");
            let report = stores.builder().salvage_to(target.builder(), mode).await.unwrap();
            assert_eq!(report, looked);
            assert_eq!(report.checkpoint.as_deref(), Some(name));
            assert!(!report.is_whole() && report.log_entries == 0, "{report:?}");
            assert!(
                report.losses.iter().any(|loss| loss.what.contains("after the checkpoint")),
                "{report:?}"
            );
            for _ in 0..2 {
                let saved = target.open().await;
                assert_eq!(one_moment(&saved).await, last);
                for name in NAMES {
                    let keys = saved.keyspace(name).unwrap();
                    keys.put(b"new", b"v").await.unwrap();
                    assert_eq!(value(&keys, b"new").await.unwrap(), b"v");
                }
                assert!(saved.verify().await.unwrap().damage.is_empty());
            }
        }
        // Whatever holes it has, it is of the newest checkpoint.
        let report = stores.builder().survey_damage(SalvageMode::WithHoles).await.unwrap();
        assert_eq!(report.checkpoint.as_deref(), Some("one"));
        assert!(report.losses.iter().any(|loss| loss.keyspace.is_some()), "{report:?}");
    });
}

/// Its newest state is of one moment again, and its log goes on from there.
#[test]
fn a_database_that_went_back_to_no_streams_is_salvaged_whole() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..3).await;
        db.checkpoint("zero").await.unwrap();
        drop(all);
        for name in &NAMES[1..] {
            db.drop_keyspace(name).await.unwrap();
        }
        db.close().await.unwrap();
        let db = stores.open().await;
        db.default_keyspace().put(b"after", b"v").await.unwrap();
        db.sync().await.unwrap();
        drop(db);
        let target = Stores::new(&stores.env, "memory");
        let report = stores.builder().salvage_to(target.builder(), SalvageMode::Consistent).await.unwrap();
        assert!(report.checkpoint.is_none() && report.is_whole(), "{report:?}");
        let saved = target.open().await;
        assert_eq!(value(&saved.default_keyspace(), b"after").await.unwrap(), b"v");
    });
}
