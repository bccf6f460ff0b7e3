//! What a newer version wrote: refused by name, before anything is claimed where the manifest says
//! it, and left as it is.

use std::sync::Arc;

use bytes::Bytes;
use tombolo::internals::{Manifest, ManifestOptions, OpenMode};
use tombolo::{Db, Error, ErrorKind, ReaderOptions, SalvageMode};
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_format::manifest::{Edit, KeyspaceOptions, LogRole, TableDescription};
use tombolo_format::property::PropertyList;
use tombolo_storage::log_memory::Uncounted;
use tombolo_storage::{ConfigurationChain, LogEntry};

use crate::stores::{Stores, run};

/// A database with a key in a table and one in its log.
async fn created(stores: &Stores) {
    let db = stores.open(&[]).await;
    let keys = db.default_keyspace();
    keys.put(b"table", b"1").await.unwrap();
    db.flush().await.unwrap();
    keys.put(b"log", b"2").await.unwrap();
}

/// As a newer version that has claimed the database.
async fn newer(stores: &Stores) -> Manifest {
    let options = ManifestOptions { mode: OpenMode::Open, log_identity: stores.log.identity() };
    Manifest::open(&stores.env, Arc::clone(&stores.objects), options).await.unwrap().0
}

/// Every way to open it is refused, and says this.
async fn refused(stores: &Stores, says: &[&str]) {
    let check = |way: &str, error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{way}: {error}");
        for said in says {
            assert!(error.to_string().contains(said), "{way} says nothing of {said:?}: {error}");
        }
        assert!(error.to_string().contains("version"), "{way} says nothing to do: {error}");
    };
    check("opening", stores.builder(&[]).open().await.unwrap_err());
    check("reading", stores.builder(&[]).open_reader(ReaderOptions::default()).await.unwrap_err());
}

fn described(manifest: &Manifest, features: u64) -> Edit {
    Edit::TableAdded(TableDescription {
        name: manifest.fresh_table_name(),
        offset: 0,
        length: 1 << 20,
        identity: 7,
        keyspace: 0,
        level: 6,
        first_key: Bytes::from_static(b"a"),
        last_key: Bytes::from_static(b"z"),
        first_sequence: SequenceNumber(1),
        last_sequence: SequenceNumber(1),
        entries: 1,
        deletes: 0,
        tail_bytes: 4096,
        oldest_unix_seconds: 0,
        features,
        properties: PropertyList::default(),
        source: None,
    })
}

#[test]
fn a_table_with_entries_of_an_unknown_kind_is_refused_before_anything_is_claimed() {
    run(&[], |stores| async move {
        created(&stores).await;
        let manifest = newer(&stores).await;
        manifest.commit(vec![described(&manifest, 1 << 13)]).await.unwrap().unwrap();
        let objects = stores.names().await;
        refused(&stores, &["table 0", "kind 13"]).await;
        assert_eq!(stores.names().await, objects, "nothing was put");
        // The newer one goes on.
        manifest.commit(vec![described(&manifest, 1 << 13)]).await.unwrap().unwrap();
        manifest.close().await;
    });
}

#[test]
fn a_keyspace_with_what_nobody_may_ignore_is_refused_by_its_bit() {
    run(&[], |stores| async move {
        created(&stores).await;
        let manifest = newer(&stores).await;
        let options = KeyspaceOptions { features: 1 << 17, ..KeyspaceOptions::default() };
        let edit = Edit::KeyspaceCreated { id: 1, name: "coloured".into(), stream: 0, options };
        manifest.commit(vec![edit]).await.unwrap().unwrap();
        manifest.close().await;
        refused(&stores, &["coloured", "0x20000"]).await;
    });
}

/// A keyspace of a version that knew no merges that end takes them once its settings were written
/// by this one, whichever they are; the error says so.
#[test]
fn a_keyspace_of_an_older_version_takes_newer_kinds_once_its_settings_were_set() {
    run(&[], |stores| async move {
        created(&stores).await;
        let manifest = newer(&stores).await;
        let settings = [("operator".into(), "add_u64@1".into())];
        let features = EntryKind::Merge.feature() | EntryKind::MergeList.feature();
        let options = KeyspaceOptions { features, ..KeyspaceOptions::of(settings) };
        let edit = Edit::KeyspaceCreated { id: 1, name: "older".into(), stream: 0, options };
        manifest.commit(vec![edit]).await.unwrap().unwrap();
        manifest.close().await;
        let db = stores.open(&[]).await;
        let keys = db.keyspace("older").unwrap();
        keys.merge(b"k", 1u64.to_le_bytes()).await.unwrap();
        let hour = std::time::Duration::from_secs(3600);
        let error = keys.merge_ttl(b"k", 2u64.to_le_bytes(), hour).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("keyspace set"), "{error}");
        let error = keys.put_ttl(b"e", b"v", hour).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        keys.set_options([("filter_bits", "10")]).await.unwrap();
        keys.merge_ttl(b"k", 2u64.to_le_bytes(), hour).await.unwrap();
        keys.put_ttl(b"e", b"v", hour).await.unwrap();
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), 3u64.to_le_bytes()[..]);
        db.close().await.unwrap();
        let db = stores.open(&[]).await;
        let keys = db.keyspace("older").unwrap();
        keys.merge_ttl(b"k", 4u64.to_le_bytes(), hour).await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn a_setting_of_a_newer_version_that_may_be_ignored_stays() {
    run(&[], |stores| async move {
        created(&stores).await;
        let manifest = newer(&stores).await;
        let options = KeyspaceOptions::of([("colour".into(), "red".into())]);
        let edit = Edit::KeyspaceCreated { id: 1, name: "coloured".into(), stream: 0, options };
        manifest.commit(vec![edit]).await.unwrap().unwrap();
        manifest.close().await;
        let db = stores.open(&[]).await;
        let keys = db.keyspace("coloured").unwrap();
        keys.put(b"k", b"v").await.unwrap();
        keys.set_options([("filter_bits", "0")]).await.unwrap();
        db.close().await.unwrap();
        let manifest = newer(&stores).await;
        let state = manifest.state();
        let kept = &state.keyspace_by_name("coloured").unwrap().options.settings;
        assert!(kept.contains(&("colour".to_owned(), "red".to_owned())), "{kept:?}");
        assert!(kept.contains(&("filter_bits".to_owned(), "0".to_owned())), "{kept:?}");
        manifest.close().await;
    });
}

#[test]
fn a_log_with_an_entry_of_an_unknown_kind_is_refused_and_nothing_of_it_is_lost() {
    run(&[], |stores| async move {
        created(&stores).await;
        let manifest = newer(&stores).await;
        let chain: Arc<dyn ConfigurationChain> = Arc::new(manifest.clone());
        let context = manifest.log_context(chain, Arc::new(Uncounted));
        manifest.assign_lanes([(0, LogRole::Main)]);
        let log = stores.log.open(&context, 1).await.unwrap();
        // A single entry: version, kind, bytes of the key, keyspace, key and operand.
        let payload = Bytes::from_static(&[2, 13, 1, 0, 0, 0, 0, 0, b'k', b'+']);
        let entry = LogEntry { stream: 0, first_sequence: 100, count: 1, payload };
        let end = log.append(0, &entry).unwrap().end;
        log.sync(0, end).unwrap();
        manifest.close().await;
        for _ in 0..2 {
            refused(&stores, &["kind 13", "the log of epoch"]).await;
        }
        let error = Db::builder("mem://test")
            .env(stores.env.clone())
            .stores(Arc::clone(&stores.objects), Arc::clone(&stores.log))
            .survey_damage(SalvageMode::Consistent)
            .await
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "what is whole is not salvaged in parts: {error}");
    });
}
