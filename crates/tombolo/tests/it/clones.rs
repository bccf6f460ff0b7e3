//! Clones that share their sources' tables: what they show, what they keep, what they give back,
//! and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo::{CloneState, Db, Env, ErrorKind, ReaderOptions, Registry, Result, SharedClone, TakeOver};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultPlan, Rule};
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectName, Placement, Purpose, Request, Uri};

use crate::bucket::{self, Bucket};
use crate::stores::{faulty_registry, slow_registry};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

impl Bucket {
    /// The database `source`, filled, and `clone`, made of it.
    async fn shared(&self) -> Db {
        let source = self.open("source").await;
        fill(&source, 1).await.unwrap();
        source.share_to(self.builder("clone")).await.unwrap();
        source
    }

    async fn clones(&self, name: &str) -> Vec<SharedClone> {
        self.builder(name).clones().await.unwrap()
    }

    /// Names of the objects of a database with `part` in them.
    async fn objects(&self, name: &str, part: &str) -> Vec<ObjectName> {
        self.listed(name, part).await.into_iter().map(|object| object.name).collect()
    }

    /// Deletes all that a database has, as nobody should.
    async fn wipe(&self, name: &str) {
        for object in self.objects(name, "").await {
            self.store(name).delete(Request::new(Purpose::Collection, Epoch::NONE), &object).await.unwrap();
        }
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Bucket) -> F) {
    bucket::run(&["memory_bytes=1048576", "memtable_bytes=4096"], test);
}

async fn contents(db: &Db) -> Result<Contents> {
    let mut contents = Contents::new();
    let mut scan = db.default_keyspace().scan::<&[u8]>(..);
    while let Some((key, value)) = scan.next_async().await? {
        contents.insert(key.to_vec(), value.to_vec());
    }
    Ok(contents)
}

/// Writes a hundred keys that say who wrote them, and flushes.
async fn fill(db: &Db, what: u8) -> Result<()> {
    for number in 0..100u8 {
        db.default_keyspace().put([number], Bytes::from(vec![what; 100])).await?;
    }
    db.flush().await
}

fn states(clones: &[SharedClone]) -> Vec<CloneState> {
    clones.iter().map(|clone| clone.state).collect()
}

/// A clone shows what its source held, whatever the source does later, and writes what only it has;
/// nothing was copied.
#[test]
fn a_clone_shows_its_sources_tables_and_neither_disturbs_the_other() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        source.default_keyspace().put(b"in the log", b"too").await.unwrap();
        let before = contents(&source).await.unwrap();
        source.share_to(bucket.builder("clone")).await.unwrap();
        assert!(bucket.objects("clone", "/table/").await.is_empty(), "no table was copied");
        assert!(source.checkpoints().await.unwrap().is_empty());
        let clone = bucket.open("clone").await;
        let reads = || {
            clone
                .requests()
                .counted
                .iter()
                .filter(|one| one.purpose == Purpose::Scan)
                .map(|one| one.requests)
                .sum::<u64>()
        };
        assert_eq!((reads(), contents(&clone).await.unwrap()), (0, before.clone()));
        assert!(reads() > 0, "what it asks of its source counts");
        assert!(clone.stats().tables_shared > 0 && clone.stats().tables_shared == clone.stats().tables);
        let clones = bucket.clones("source").await;
        assert_eq!((clones[0].place.as_str(), states(&clones)), ("../clone", vec![CloneState::Needed]));
        // The source replaces all its tables, in other lives of its process too; the clone still
        // has the old ones.
        for what in 2..5 {
            fill(&source, what).await.unwrap();
            source.compact().await.unwrap();
            bucket.settle().await;
        }
        drop(source);
        let source = bucket.open("source").await;
        source.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(contents(&clone).await.unwrap(), before);
        assert!(clone.verify().await.unwrap().damage.is_empty());
        clone.default_keyspace().put([7], b"of the clone").await.unwrap();
        clone.flush().await.unwrap();
        drop(clone);
        let clone = bucket.open("clone").await;
        assert_eq!(contents(&clone).await.unwrap()[&vec![7]], b"of the clone");
        assert_ne!(contents(&source).await.unwrap()[&vec![7]], b"of the clone");
        drop((source, clone));
    });
}

/// Once compaction has moved a clone away from its source's tables, the pin goes, and the source's
/// collection takes the tables.
#[test]
fn a_clone_that_was_compacted_keeps_nothing_of_its_source() {
    run(|bucket| async move {
        let source = bucket.shared().await;
        let clone = bucket.open("clone").await;
        fill(&clone, 2).await.unwrap();
        let expected = contents(&clone).await.unwrap();
        fill(&source, 3).await.unwrap();
        source.compact().await.unwrap();
        bucket.settle().await;
        let kept = bucket.objects("source", "/table/").await.len();
        // A cursor of this very process still looks at the old tables.
        let mut scan = clone.default_keyspace().scan::<&[u8]>(..);
        scan.next_async().await.unwrap();
        clone.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(states(&bucket.clones("source").await), [CloneState::Needed]);
        drop(scan);
        clone.default_keyspace().put(b"more", b"work").await.unwrap();
        clone.flush().await.unwrap();
        bucket.settle().await;
        assert_eq!(clone.stats().tables_shared, 0);
        assert!(bucket.clones("source").await.is_empty());
        fill(&source, 4).await.unwrap();
        source.compact().await.unwrap();
        bucket.settle().await;
        assert!(bucket.objects("source", "/table/").await.len() < kept);
        drop((clone, source));
        let clone = bucket.open("clone").await;
        assert_eq!(contents(&clone).await.unwrap().len(), expected.len() + 1);
        assert_eq!(clone.default_keyspace().get([7]).await.unwrap().unwrap(), [2; 100]);
        // And the source can go.
        bucket.builder("source").destroy().await.unwrap();
        drop(clone);
        assert!(bucket.open("clone").await.verify().await.unwrap().damage.is_empty());
    });
}

/// A source that lets nothing be deleted keeps what was shared, and what a pass has to do beside
/// that is done.
#[test]
fn a_source_that_refuses_keeps_no_garbage_of_the_clone() {
    run(|bucket| async move {
        let _source = bucket.shared().await;
        let plan = FaultPlan::scripted();
        let release = |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.contains("/pin/");
        plan.inject(Rule::new(release, Fault::Error(ErrorKind::PermissionDenied)));
        let refusing = faulty_registry(&bucket.registry, "mem", &plan);
        let open = || bucket.builder("clone").log("mem://bucket/clone").registry(refusing.clone()).open();
        let clone = open().await.unwrap();
        clone.compact().await.unwrap();
        drop(clone);
        let orphan = ObjectName::new("0000000000000001/table/0000000000000001-00000000000000aa").unwrap();
        let placement = Placement::new(ObjectKind::Table, Life::Long);
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        bucket
            .store("clone")
            .put_if_absent(request, &orphan, placement, Bytes::from_static(b"x"))
            .await
            .unwrap();
        let clone = open().await.unwrap();
        bucket.settle().await;
        assert!(!bucket.objects("clone", "/table/").await.contains(&orphan));
        assert!(clone.stats().background_error.is_some_and(|told| told.contains("collection")));
        assert!(plan.injected() > 0);
        plan.clear();
        bucket.env.sleep(Duration::from_secs(60)).await;
        assert!(bucket.clones("source").await.is_empty() && clone.stats().background_error.is_none());
    });
}

/// Compaction of a clone that has nothing of its own rewrites the tables all the same: else nothing
/// would ever give them back.
#[test]
fn compacting_an_untouched_clone_makes_its_tables_its_own() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        source.compact().await.unwrap();
        let before = contents(&source).await.unwrap();
        source.share_to(bucket.builder("clone")).await.unwrap();
        let clone = bucket.open("clone").await;
        clone.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(clone.stats().tables_shared, 0);
        assert!(bucket.clones("source").await.is_empty());
        assert_eq!(contents(&clone).await.unwrap(), before);
        drop((clone, source));
    });
}

/// What a checkpoint of the clone, or a reader of another process, looks at stays at the source,
/// though the clone itself needs it no more.
#[test]
fn checkpoints_and_readers_of_a_clone_keep_the_sources_tables() {
    run(|bucket| async move {
        let source = bucket.shared().await;
        let clone = bucket.open("clone").await;
        let before = contents(&clone).await.unwrap();
        clone.checkpoint("kept").await.unwrap();
        let reader = bucket
            .builder("clone")
            .open_reader(ReaderOptions { lease: Duration::from_secs(5), ..ReaderOptions::default() })
            .await
            .unwrap();
        let snapshot = reader.snapshot();
        fill(&clone, 2).await.unwrap();
        clone.compact().await.unwrap();
        bucket.settle().await;
        // Of the source, all is replaced, and nothing but the clone's pin keeps the old.
        fill(&source, 3).await.unwrap();
        source.compact().await.unwrap();
        bucket.settle().await;
        let kept = bucket.builder("clone").at_checkpoint("kept").open_read_only().await.unwrap();
        assert_eq!(contents(&kept).await.unwrap(), before);
        assert!(kept.verify().await.unwrap().damage.is_empty());
        drop(kept);
        assert_eq!(snapshot.get(&reader.default_keyspace(), [7]).await.unwrap().unwrap(), [1; 100]);
        // A copy of the checkpoint is a database without sources.
        bucket.builder("clone").at_checkpoint("kept").restore_to(bucket.builder("copy")).await.unwrap();
        clone.delete_checkpoint("kept").await.unwrap();
        bucket.settle().await;
        assert_eq!(states(&bucket.clones("source").await), [CloneState::Needed], "the reader looks on");
        drop(snapshot);
        reader.close().await.unwrap();
        drop(reader);
        clone.default_keyspace().put(b"more", b"work").await.unwrap();
        clone.compact().await.unwrap();
        bucket.settle().await;
        assert!(bucket.clones("source").await.is_empty());
        let copy = bucket.open("copy").await;
        assert_eq!((contents(&copy).await.unwrap(), copy.stats().tables_shared), (before, 0));
        drop((source, clone, copy));
    });
}

/// A clone of a clone pins at each place where its tables lie, and needs nothing of the clone in
/// between but what that wrote.
#[test]
fn a_clone_of_a_clone_keeps_what_lies_at_both() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        source.share_to(bucket.builder("middle")).await.unwrap();
        let middle = bucket.open("middle").await;
        middle.default_keyspace().put([7], b"of the middle").await.unwrap();
        middle.share_to(bucket.builder("deep/last")).await.unwrap();
        let expected = contents(&middle).await.unwrap();
        assert_eq!(bucket.clones("source").await.len(), 2);
        assert_eq!(bucket.clones("middle").await.len(), 1);
        assert_eq!(bucket.builder("middle").destroy().await.unwrap_err().kind(), ErrorKind::Invalid);
        // The one in the middle moves away from the source, and is compacted.
        let middle = bucket.builder("middle").take_over(TakeOver::Always).open().await.unwrap();
        fill(&middle, 2).await.unwrap();
        middle.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(bucket.clones("source").await.len(), 1);
        fill(&source, 3).await.unwrap();
        source.compact().await.unwrap();
        bucket.settle().await;
        let last = bucket.open("deep/last").await;
        assert_eq!(contents(&last).await.unwrap(), expected);
        drop(last);
        bucket.builder("deep/last").destroy().await.unwrap();
        assert!(bucket.clones("source").await.is_empty() && bucket.clones("middle").await.is_empty());
        drop((source, middle));
        bucket.builder("middle").destroy().await.unwrap();
        bucket.builder("source").destroy().await.unwrap();
    });
}

/// What gc thinks of a clone that was destroyed while a reader looks at it.
#[cfg(feature = "mutants")]
#[test]
fn a_destroyed_clones_readers_that_are_not_asked_for_are_noticed() {
    let _despite =
        tombolo_storage::mutant::enable(tombolo_storage::mutant::Mutant::CloneReleasedDespiteReaders);
    run(|bucket| async move {
        drop(bucket.open("source").await);
        fill(&bucket.open("source").await, 1).await.unwrap();
        bucket.builder("source").share_to(bucket.builder("clone")).await.unwrap();
        let lease = Duration::from_secs(5);
        let reader = bucket
            .builder("clone")
            .open_reader(ReaderOptions { lease, ..ReaderOptions::default() })
            .await
            .unwrap();
        let snapshot = reader.snapshot();
        bucket.builder("clone").destroy().await.unwrap();
        let clones = bucket.clones("source").await;
        bucket.builder("source").release_clone(clones[0].id, false).await.unwrap();
        let source = bucket.open("source").await;
        fill(&source, 2).await.unwrap();
        source.compact().await.unwrap();
        bucket.settle().await;
        let lost = snapshot.get(&reader.default_keyspace(), [7]).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
        drop((snapshot, source));
    });
}

/// Destroying waits for databases that share, and gives back.
#[test]
fn a_source_is_not_destroyed_under_its_clone() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        drop(source);
        bucket.builder("source").share_to(bucket.builder("clone")).await.unwrap();
        let refused = bucket.builder("source").destroy().await.unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Invalid && refused.to_string().contains("../clone"),
            "{refused}"
        );
        assert_eq!(contents(&bucket.open("clone").await).await.unwrap().len(), 100);
        // A reader of the destroyed clone still looks at the source's tables.
        let lease = Duration::from_secs(5);
        let reader = bucket
            .builder("clone")
            .open_reader(ReaderOptions { lease, ..ReaderOptions::default() })
            .await
            .unwrap();
        let destroyed = bucket.builder("clone").destroy().await.unwrap();
        assert!(!destroyed.is_deleted());
        let clones = bucket.clones("source").await;
        assert_eq!(states(&clones), [CloneState::Needed], "{clones:?}");
        reader.close().await.unwrap();
        drop(reader);
        assert_eq!(states(&bucket.clones("source").await), [CloneState::Unneeded]);
        // It had no tables of its own: its chain is left, which says what lies at the source.
        assert!(bucket.builder("clone").destroy().await.unwrap().is_deleted());
        assert!(bucket.clones("source").await.is_empty());
        assert_eq!(bucket.builder("clone").destroy().await.unwrap_err().kind(), ErrorKind::NotFound);
        bucket.builder("source").destroy().await.unwrap();
    });
}

/// A destroy whose clone's source refuses fails, and the next one gives back what that left.
#[test]
fn a_source_that_refuses_a_destroyed_clone_is_asked_again() {
    run(|bucket| async move {
        let source = bucket.shared().await;
        drop(source);
        let clone = bucket.open("clone").await;
        fill(&clone, 2).await.unwrap();
        clone.flush().await.unwrap();
        drop(clone);
        assert!(!bucket.objects("clone", "/table/").await.is_empty());
        let plan = FaultPlan::scripted();
        let release = |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.contains("/pin/");
        plan.inject(Rule::new(release, Fault::Error(ErrorKind::PermissionDenied)));
        let refusing = faulty_registry(&bucket.registry, "mem", &plan);
        let destroy =
            || bucket.builder("clone").log("mem://bucket/clone").registry(refusing.clone()).destroy();
        assert_eq!(destroy().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(bucket.objects("clone", "/table/").await.is_empty(), "what is its own is not kept for that");
        assert_eq!(bucket.clones("source").await.len(), 1);
        plan.clear();
        assert!(destroy().await.unwrap().is_deleted());
        assert!(bucket.clones("source").await.is_empty());
        assert_eq!(destroy().await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// A clone that is gone without being destroyed proves nothing by its absence; another database in
/// its place does.
#[test]
fn the_pin_of_a_clone_that_is_gone_stays_until_something_is_proven() {
    run(|bucket| async move {
        let source = bucket.shared().await;
        bucket.wipe("clone").await;
        let clones = bucket.clones("source").await;
        assert_eq!(states(&clones), [CloneState::Unknown], "{clones:?}");
        let release = |force| bucket.builder("source").release_clone(clones[0].id, force);
        assert_eq!(release(false).await.unwrap_err().kind(), ErrorKind::Invalid);
        drop(bucket.open("clone").await);
        assert_eq!(states(&bucket.clones("source").await), [CloneState::Unneeded]);
        release(false).await.unwrap();
        assert_eq!(release(false).await.unwrap_err().kind(), ErrorKind::NotFound);
        // By hand, of one that is known to be gone.
        source.share_to(bucket.builder("other")).await.unwrap();
        bucket.wipe("other").await;
        let clones = bucket.clones("source").await;
        bucket.builder("source").release_clone(clones[0].id, true).await.unwrap();
        assert!(bucket.clones("source").await.is_empty());
        drop(source);
    });
}

/// The path by which the second registry reaches the first one's databases.
fn by_another_path(registry: &Registry) -> Registry {
    let whole = registry.clone();
    let mut other = Registry::with_defaults();
    let factory = move |env: &Env, uri: &Uri| {
        let rest = uri.rest.replace("link/source", "bucket/source");
        whole.open_object_store(env, &Uri { rest, ..uri.clone() })
    };
    other.register_object_store("mem", Arc::new(factory));
    other
}

/// By a link to a database, the place of its clone leads elsewhere: what lies there says nothing.
fn a_link_proves_nothing() -> SharedClone {
    let (sender, receiver) = std::sync::mpsc::channel();
    run(|bucket| async move {
        let source = bucket.shared().await;
        let linked = by_another_path(&bucket.registry);
        let elsewhere = |name: &str| {
            Db::builder(format!("mem://link/{name}")).registry(linked.clone()).env(bucket.env.clone())
        };
        drop(elsewhere("clone").log("mem://link/clone-log").open().await.unwrap());
        sender.send(elsewhere("source").clones().await.unwrap().remove(0)).unwrap();
        assert_eq!(states(&bucket.clones("source").await), [CloneState::Needed]);
        drop(source);
    });
    receiver.recv().unwrap()
}

#[test]
fn a_database_beside_a_link_is_not_taken_for_the_clones_successor() {
    let clone = a_link_proves_nothing();
    assert_eq!(clone.state, CloneState::Unknown, "{clone:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_path_that_is_not_compared_is_noticed() {
    let _elsewhere =
        tombolo_storage::mutant::enable(tombolo_storage::mutant::Mutant::CloneReleasedFromElsewhere);
    assert_eq!(a_link_proves_nothing().state, CloneState::Unneeded);
}

/// An opening stands still behind its claim, and its successor needs the source no more: what that
/// gave back is no damage.
#[test]
fn a_stale_opening_of_a_clone_is_fenced_and_sees_no_damage() {
    run(|bucket| async move {
        let source = bucket.shared().await;
        let stale = bucket
            .builder("clone")
            .log("mem://bucket/clone")
            .registry(slow_registry(&bucket.registry, "mem", "/pin/"))
            .open();
        bucket.settle().await;
        let clone = bucket.open("clone").await;
        fill(&clone, 2).await.unwrap();
        clone.compact().await.unwrap();
        bucket.settle().await;
        assert!(bucket.clones("source").await.is_empty(), "the clone's tables are its own");
        let error = stale.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(contents(&clone).await.unwrap()[&vec![7]], vec![2; 100]);
        drop(source);
    });
}

/// What a sweep thinks of a clone between its pin and its commit, and whether the clone is sound
/// afterwards.
fn swept_while_it_is_made() -> (CloneState, bool) {
    let (sender, receiver) = std::sync::mpsc::channel();
    run(|bucket| async move {
        fill(&bucket.open("source").await, 1).await.unwrap();
        // The target's requests take long, the source's none.
        let making = bucket.builder("source").share_to(bucket.builder("clone?latency_ms=50"));
        while bucket.objects("source", "/pin/").await.is_empty() {
            bucket.env.sleep(Duration::from_millis(1)).await;
        }
        let clones = bucket.clones("source").await;
        let _refused = bucket.builder("source").release_clone(clones[0].id, false).await;
        making.await.unwrap();
        let opened = bucket.builder("clone").open().await;
        sender.send((clones[0].state, opened.is_ok())).unwrap();
    });
    receiver.recv().unwrap()
}

#[test]
fn a_clone_that_is_being_made_keeps_its_pin() {
    assert_eq!(swept_while_it_is_made(), (CloneState::Undecided, true));
}

#[cfg(feature = "mutants")]
#[test]
fn a_pin_released_in_the_epoch_that_put_it_is_noticed() {
    let _own = tombolo_storage::mutant::enable(tombolo_storage::mutant::Mutant::CloneReleasedByItsOwnEpoch);
    assert_eq!(swept_while_it_is_made(), (CloneState::Unneeded, false));
}

/// Between two times that the source replaces and deletes all tables, in ms: some of them fall
/// between a look at the state and the pin.
const PERIODS: [u64; 9] = [300, 370, 440, 510, 580, 650, 720, 790, 860];

/// Clones the newest state while its source replaces and deletes all tables again and again;
/// whether the clone is sound.
fn made_while_tables_go(period: u64) -> bool {
    let (sender, receiver) = std::sync::mpsc::channel();
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        // Between the look at the state and the pin there is time.
        let making = bucket.builder("source?latency_ms=200").share_to(bucket.builder("clone"));
        for what in 0..6000 / period {
            fill(&source, what as u8).await.unwrap();
            source.compact().await.unwrap();
            bucket.env.sleep(Duration::from_millis(period)).await;
        }
        making.await.unwrap();
        sender.send(bucket.builder("clone").open().await.is_ok()).unwrap();
        drop(source);
    });
    receiver.recv().unwrap()
}

#[test]
fn a_clone_is_made_of_a_state_whose_tables_are_all_kept() {
    assert!(PERIODS.into_iter().all(made_while_tables_go));
}

#[cfg(feature = "mutants")]
#[test]
fn a_pin_that_is_not_proven_is_noticed() {
    let _unproven = tombolo_storage::mutant::enable(tombolo_storage::mutant::Mutant::CloneNamesUnprovenPin);
    assert!(!PERIODS.into_iter().all(made_while_tables_go));
}

/// What cannot be shared is refused before anything is claimed, and a clone that was moved alone is
/// not written.
#[test]
fn places_that_do_not_fit_are_refused() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        fill(&source, 1).await.unwrap();
        drop(bucket.open("taken").await);
        let refused = bucket.builder("source").share_to(bucket.builder("taken")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        let refused = bucket.builder("source").share_to(bucket.builder("source")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let missing = bucket
            .builder("source")
            .at_checkpoint("none")
            .share_to(bucket.builder("clone"))
            .await
            .unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(bucket.objects("clone", "").await.is_empty());
        source.share_to(bucket.builder("clone")).await.unwrap();
        // Moved beside itself: the source's pin asks for it at the old place.
        for object in bucket.objects("clone", "").await {
            let request = Request::new(Purpose::Verify, Epoch::NONE);
            let bytes = bucket.store("clone").read(request, &object, 0..1 << 24).await.unwrap();
            let placement = tombolo_storage::Placement::new(
                tombolo_storage::ObjectKind::Table,
                tombolo_storage::Life::Long,
            );
            bucket.store("moved").put_if_absent(request, &object, placement, bytes).await.unwrap();
        }
        let moved = bucket.builder("moved").log("mem://bucket/clone").open().await.unwrap_err();
        assert!(moved.kind() == ErrorKind::Invalid && moved.to_string().contains("moved"), "{moved}");
        assert!(bucket.clones("source").await.iter().all(|clone| clone.state == CloneState::Needed));
        assert!(bucket.open("clone").await.verify().await.unwrap().damage.is_empty());
        // Without the pin, which somebody gave back by force, opening tells at once.
        let clones = bucket.clones("source").await;
        bucket.builder("source").release_clone(clones[0].id, true).await.unwrap();
        let lost = bucket.builder("clone").open().await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
        drop(source);
    });
}
