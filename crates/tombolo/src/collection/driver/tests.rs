use std::collections::BTreeSet;

use tombolo_env::simulated::World;
use tombolo_env::{TaskClass, completion};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{KeyspaceOptions, TableDescription};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{Placement, Request};

use super::*;
use crate::manifest::{ManifestOptions, OpenMode};

struct Database {
    _world: World,
    env: Env,
    store: Arc<dyn ObjectStore>,
    manifest: Manifest,
    collector: Collector,
}

const REQUEST: Request = Request {
    purpose: Purpose::Flush,
    priority: tombolo_storage::Priority::Normal,
    deadline: None,
    epoch: Epoch::NONE,
};

impl Database {
    fn new() -> Database {
        let world = World::new(1);
        let env = world.process("writer").env();
        let store: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let manifest = env.block_on(Database::open(&env, &store, OpenMode::Create));
        let keyspace = Edit::KeyspaceCreated {
            id: 0,
            name: "default".into(),
            stream: 0,
            options: KeyspaceOptions::default(),
        };
        env.block_on(manifest.committed(vec![keyspace])).unwrap();
        let collector = Collector::new(manifest.clone());
        Database { _world: world, env, store, manifest, collector }
    }

    async fn open(env: &Env, store: &Arc<dyn ObjectStore>, mode: OpenMode) -> Manifest {
        let options = ManifestOptions { mode, log_identity: "memory".into() };
        Manifest::open(env, Arc::clone(store), options).await.unwrap().0
    }

    /// Puts a table's object.
    async fn object(&self, name: TableName) {
        let name = names::table(self.manifest.incarnation(), name);
        let placement = Placement::new(ObjectKind::Table, Life::Medium);
        self.store.put_if_absent(REQUEST, &name, placement, Bytes::from_static(b"table")).await.unwrap();
    }

    /// Puts tables' objects and names them.
    async fn tables(&self, count: usize) -> Vec<TableName> {
        let names: Vec<TableName> = (0..count).map(|_| self.manifest.fresh_table_name()).collect();
        for name in &names {
            self.object(*name).await;
        }
        self.manifest
            .committed(names.iter().map(|name| Edit::TableAdded(table(*name))).collect())
            .await
            .unwrap();
        names
    }

    async fn make_obsolete(&self, names: &[TableName]) {
        let edits = names.iter().map(|name| Edit::TableObsolete { name: *name }).collect();
        self.manifest.committed(edits).await.unwrap();
    }

    async fn exists(&self, name: TableName) -> bool {
        self.store.length(REQUEST, &names::table(self.manifest.incarnation(), name)).await.is_ok()
    }
}

fn table(name: TableName) -> TableDescription {
    TableDescription {
        name,
        offset: 0,
        length: 5,
        identity: name.random,
        keyspace: 0,
        level: 0,
        first_key: Bytes::from_static(b"a"),
        last_key: Bytes::from_static(b"b"),
        first_sequence: SequenceNumber(1),
        last_sequence: SequenceNumber(2),
        entries: 1,
        deletes: 0,
        tail_bytes: 1,
        oldest_unix_seconds: 0,
        features: 0,
        properties: tombolo_format::property::PropertyList::default(),
        source: None,
    }
}

const CHECKPOINT: PinOptions = PinOptions { kind: PinKind::Checkpoint, lease: None };
const LEASE: Duration = Duration::from_secs(60);
const READER: PinOptions = PinOptions { kind: PinKind::Reader, lease: Some(LEASE) };

fn live(state: &State) -> Vec<TableName> {
    state
        .tables()
        .filter(|table| table.status == TableStatus::Live)
        .map(|table| table.description.name)
        .collect()
}

/// What a hundred readers cost: each pin is read once, side by side with the others, and released
/// without a list.
#[test]
fn many_pins_are_read_side_by_side_and_released_without_a_list() {
    const LATENCY: Duration = Duration::from_millis(25);
    let database = Database::new();
    let latency = Latency { p50: LATENCY, ..Latency::default() };
    let tracer = Tracer::new(&database.env);
    let traced = Arc::new(TraceObjectStore::new(Arc::clone(&database.store), tracer.clone()));
    let slow: Arc<dyn ObjectStore> = Arc::new(ThrottleObjectStore::new(
        &database.env,
        traced,
        Throttle { latency, ..Throttle::default() },
    ));
    database.env.block_on(async {
        let names = database.tables(2).await;
        let mut pins = Vec::new();
        for _ in 0..100 {
            pins.push(pin(&database.env, &database.store, READER, |_| names.clone()).await.unwrap());
        }
        database.make_obsolete(&names[..1]).await;
        let mut collector = Collector::new(database.manifest.clone());
        collector.io.store = Arc::clone(&slow);
        for reads in [100, 0] {
            tracer.reset();
            let began = database.env.now();
            assert_eq!(collector.collect(|_| false).await.unwrap().kept, names[..1]);
            let took = database.env.now().since(began);
            assert!(took <= LATENCY * 7, "{took:?}");
            assert_eq!(tracer.of_kind(RequestKind::Read).requests, reads, "a pin never changes");
        }
        for pin in &mut pins {
            pin.io.store = Arc::clone(&slow);
            for _ in 0..2 {
                pin.heartbeat().await.unwrap();
            }
        }
        tracer.reset();
        for pin in &pins {
            pin.release().await.unwrap();
        }
        assert_eq!(
            (tracer.of_kind(RequestKind::List).requests, tracer.of_kind(RequestKind::Delete).requests),
            (0, 200)
        );
        let left = database
            .store
            .list(REQUEST, &names::pin_prefix(database.manifest.incarnation()), None, 10)
            .await
            .unwrap();
        assert!(left.objects.is_empty(), "no pin is left, and no heartbeat: {left:?}");
        assert_eq!(collector.collect(|_| false).await.unwrap().deleted, names[..1]);
    });
}

/// Heartbeats whose puts failed may have landed: they go with the pin as well.
#[test]
fn a_pin_is_released_with_all_its_heartbeats() {
    let database = Database::new();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&database.env, Arc::clone(&database.store), plan.clone()));
    database.env.block_on(async {
        let names = database.tables(1).await;
        let mut pin = pin(&database.env, &database.store, READER, |_| names.clone()).await.unwrap();
        pin.io.store = faulty;
        pin.heartbeat().await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(2));
        for _ in 0..2 {
            assert_eq!(pin.heartbeat().await.unwrap_err().kind(), ErrorKind::Retry);
        }
        plan.clear();
        pin.release().await.unwrap();
        let left = database
            .store
            .list(REQUEST, &names::pin_prefix(database.manifest.incarnation()), None, 10)
            .await
            .unwrap();
        assert!(left.objects.is_empty(), "{left:?}");
    });
}

/// A pin that may be there still keeps its heartbeats: without them it would look like one whose
/// heartbeats move under a list, and never expire.
#[test]
fn a_pin_that_may_be_there_still_keeps_its_heartbeats() {
    let database = Database::new();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&database.env, Arc::clone(&database.store), plan.clone()));
    database.env.block_on(async {
        let names = database.tables(1).await;
        let mut pin = pin(&database.env, &database.store, READER, |_| names.clone()).await.unwrap();
        pin.io.store = faulty;
        pin.heartbeat().await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Delete, Fault::Unknown { landed: false }));
        assert_eq!(pin.release().await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        plan.clear();
        let objects = async || {
            let listed = database
                .store
                .list(REQUEST, &names::pin_prefix(database.manifest.incarnation()), None, 10)
                .await;
            listed.unwrap().objects.len()
        };
        assert_eq!(objects().await, 2, "the pin and its heartbeat");
        plan.inject(Rule::of_kind(RequestKind::Delete, Fault::Unknown { landed: false }).times(1));
        pin.release().await.unwrap();
        assert_eq!(objects().await, 0, "what did not land is deleted again");
    });
}

/// What left the version is deleted, save what a local reader or a pin uses; that follows when it
/// is let go.
#[test]
fn deletes_what_nobody_uses() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(4).await;
        let [live, used, pinned, free] = names[..] else { unreachable!() };
        let checkpoint = pin(&database.env, &database.store, CHECKPOINT, |_| vec![pinned]).await.unwrap();
        database.make_obsolete(&[used, pinned, free]).await;
        let collected = database.collector.collect(|name| name == used).await.unwrap();
        assert_eq!(collected, Collected { deleted: vec![free], kept: vec![pinned] });
        assert!(!database.exists(free).await && database.exists(pinned).await && database.exists(used).await);
        assert!(database.manifest.state().table(free).is_none());
        assert_eq!(database.manifest.state().table(pinned).unwrap().status, TableStatus::Obsolete);
        let slot = database.manifest.state().slot();
        assert_eq!(
            database.collector.collect(|name| name == used).await.unwrap(),
            Collected { deleted: vec![], kept: vec![pinned] }
        );
        assert_eq!(
            database.manifest.state().slot(),
            slot,
            "a table that is pinned still is not condemned again"
        );
        let derived = checkpoint.derive(CHECKPOINT).await.unwrap();
        checkpoint.release().await.unwrap();
        assert_eq!(
            database.collector.collect(|_| false).await.unwrap(),
            Collected { deleted: vec![used], kept: vec![pinned] }
        );
        derived.release().await.unwrap();
        assert_eq!(
            database.collector.collect(|_| false).await.unwrap(),
            Collected { deleted: vec![pinned], kept: vec![] }
        );
        assert_eq!(database.collector.collect(|_| false).await.unwrap(), Collected::default());
        assert!(database.exists(live).await);
    });
}

/// A reader that goes on putting heartbeats keeps its tables; one that stops loses them, and learns
/// it.
#[test]
fn a_reader_without_heartbeats_loses_its_pin() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(2).await;
        let reader = pin(&database.env, &database.store, READER, live).await.unwrap();
        assert_eq!(reader.tables().iter().copied().collect::<BTreeSet<_>>(), names.iter().copied().collect());
        database.make_obsolete(&names).await;
        for _ in 0..20 {
            reader.heartbeat().await.unwrap();
            reader.check().unwrap();
            let collected = database.collector.collect(|_| false).await.unwrap();
            assert!(collected.deleted.is_empty());
            database.env.sleep(LEASE / 3).await;
        }
        database.env.sleep(LEASE).await;
        assert_eq!(reader.check().unwrap_err().kind(), ErrorKind::PinLost);
        assert_eq!(reader.heartbeat().await.unwrap_err().kind(), ErrorKind::PinLost);
        for _ in 0..3 {
            database.collector.collect(|_| false).await.unwrap();
            database.env.sleep(LEASE).await;
        }
        assert!(!database.exists(names[0]).await && !database.exists(names[1]).await);
        let pins = database
            .collector
            .io
            .list_all(&names::pin_prefix(database.manifest.incarnation()))
            .await
            .unwrap();
        assert!(pins.is_empty(), "{pins:?}");
    });
}

/// What a deleter does by whose clock a lease has run out, and which therefore does not look at the
/// pin.
async fn ignore_pins(manifest: &Manifest, names: &[TableName]) {
    let of = |edit: fn(TableName) -> Edit| names.iter().map(|name| edit(*name)).collect::<Vec<_>>();
    manifest.committed(of(|name| Edit::TableCondemned { name })).await.unwrap();
    manifest.committed(of(|name| Edit::TableUnnamed { name })).await.unwrap();
}

/// A reader whose clock stood still, with its host, for longer than the lease: its own clock says
/// that it holds, and the heartbeat finds out.
fn a_heartbeat_finds_out_that_the_pin_was_ignored() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(3).await;
        let reader = pin(&database.env, &database.store, READER, live).await.unwrap();
        reader.heartbeat().await.unwrap();
        database.make_obsolete(&names[..2]).await;
        reader.heartbeat().await.unwrap();
        // Somebody is about to look at the pins, or has looked.
        database.manifest.committed(vec![Edit::TableCondemned { name: names[1] }]).await.unwrap();
        assert_eq!(reader.heartbeat().await.unwrap_err().kind(), ErrorKind::Retry);
        reader.check().unwrap();
        database.manifest.committed(vec![Edit::TableObsolete { name: names[1] }]).await.unwrap();
        reader.heartbeat().await.unwrap();
        ignore_pins(&database.manifest, &names[..1]).await;
        reader.check().unwrap();
        assert_eq!(reader.heartbeat().await.unwrap_err().kind(), ErrorKind::PinLost);
        assert_eq!(reader.check().unwrap_err().kind(), ErrorKind::PinLost);
        assert_eq!(reader.heartbeat().await.unwrap_err().kind(), ErrorKind::PinLost, "for good");
        let pins = database
            .collector
            .io
            .list_all(&names::pin_prefix(database.manifest.incarnation()))
            .await
            .unwrap();
        assert!(pins.is_empty(), "{pins:?}");
    });
}

#[test]
fn a_pin_that_was_ignored_is_lost() {
    a_heartbeat_finds_out_that_the_pin_was_ignored();
}

#[cfg(feature = "mutants")]
#[test]
fn a_heartbeat_without_proof_is_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::LeaseRenewedUnproven,
        a_heartbeat_finds_out_that_the_pin_was_ignored,
    );
}

/// A reader whose clock stood still for longer than the lease, while nothing of what it keeps was
/// deleted: it goes on with its pin, which is there.
fn a_reader_that_lost_nothing_goes_on_with_its_pin() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(3).await;
        let [kept, pinned, free] = names[..] else { unreachable!() };
        let reader = pin(&database.env, &database.store, READER, |_| vec![kept]).await.unwrap();
        let _checkpoint = pin(&database.env, &database.store, CHECKPOINT, |_| vec![pinned]).await.unwrap();
        database.make_obsolete(&[pinned]).await;
        assert!(database.collector.collect(|_| false).await.unwrap().deleted.is_empty());
        database.env.sleep(LEASE * 2).await;
        database.make_obsolete(&[free]).await;
        assert_eq!(database.collector.collect(|_| false).await.unwrap().deleted, [free]);
        // By its own clock no time has passed.
        *reader.lease.as_ref().unwrap().lock() = Lease::new(LEASE, database.env.now());
        reader.heartbeat().await.unwrap();
        database.make_obsolete(&[kept]).await;
        assert!(database.collector.collect(|_| false).await.unwrap().deleted.is_empty());
        reader.heartbeat().await.unwrap();
        assert!(
            database.collector.collect(|_| false).await.unwrap().deleted.is_empty()
                && database.exists(kept).await
        );
        // The pin of one that stood still and lost something goes.
        database.env.sleep(LEASE * 2).await;
        assert_eq!(database.collector.collect(|_| false).await.unwrap().deleted, [kept]);
        let pins = database
            .collector
            .io
            .list_all(&names::pin_prefix(database.manifest.incarnation()))
            .await
            .unwrap();
        assert_eq!(pins.len(), 1, "the checkpoint's: {pins:?}");
    });
}

#[test]
fn an_expired_pin_stays_while_its_tables_do() {
    a_reader_that_lost_nothing_goes_on_with_its_pin();
}

#[cfg(feature = "mutants")]
#[test]
fn an_expired_pin_that_is_deleted_before_its_tables_is_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::LeasePinDeletedUnlost,
        a_reader_that_lost_nothing_goes_on_with_its_pin,
    );
}

/// A collector that has never looked at the pins condemns nothing that one of them keeps: were its
/// process to end then, nobody would take that back.
#[test]
fn the_first_pass_of_a_collector_looks_at_the_pins_before_it_condemns() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(2).await;
        let checkpoint =
            pin(&database.env, &database.store, CHECKPOINT, |_| names[..1].to_vec()).await.unwrap();
        database.make_obsolete(&names[..1]).await;
        let slot = database.manifest.state().slot();
        let collector = Collector::new(database.manifest.clone());
        assert_eq!(collector.collect(|_| false).await.unwrap().kept, names[..1]);
        assert_eq!(database.manifest.state().slot(), slot);
        // One pass deletes the tables that come free and leaves the kept ones.
        database.make_obsolete(&names[1..]).await;
        let collected = Collector::new(database.manifest.clone()).collect(|_| false).await.unwrap();
        assert_eq!(collected, Collected { deleted: names[1..].to_vec(), kept: names[..1].to_vec() });
        checkpoint.release().await.unwrap();
    });
}

/// A pin is derived from another while a collection runs: what the first keeps is never without a
/// pin.
fn a_collection_runs_while_a_pin_is_derived() {
    let database = Database::new();
    let plan = FaultPlan::scripted();
    let slow: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&database.env, Arc::clone(&database.store), plan.clone()));
    database.env.block_on(async {
        let names = database.tables(2).await;
        let source = Arc::new(pin(&database.env, &slow, READER, live).await.unwrap());
        database.make_obsolete(&names).await;
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Delay(Duration::from_secs(5))));
        let (done, derived) = completion();
        let deriving = Arc::clone(&source);
        let derive = async move { done.complete(deriving.derive(CHECKPOINT).await) };
        database.env.spawn(TaskClass::Background, "derive", derive).detach();
        database.env.sleep(Duration::from_secs(2)).await;
        let collected = database.collector.collect(|_| false).await.unwrap();
        assert!(collected.deleted.is_empty(), "{collected:?}");
        let derived = derived.await.unwrap().unwrap();
        source.release().await.unwrap();
        assert!(database.collector.collect(|_| false).await.unwrap().deleted.is_empty());
        assert!(database.exists(names[0]).await && derived.tables().len() == 2);
    });
}

#[test]
fn a_derived_pin_keeps_its_source_until_then() {
    a_collection_runs_while_a_pin_is_derived();
}

#[cfg(feature = "mutants")]
#[test]
fn a_source_released_before_its_derived_pin_counts_is_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::PinDerivedReleasesSource,
        a_collection_runs_while_a_pin_is_derived,
    );
}

/// A table that is condemned cannot be pinned any more: the pinner gets another choice or an error,
/// and leaves no pin.
#[test]
fn a_condemned_table_cannot_be_pinned() {
    let database = Database::new();
    database.env.block_on(async {
        let names = database.tables(1).await;
        database.make_obsolete(&names).await;
        database.manifest.committed(vec![Edit::TableCondemned { name: names[0] }]).await.unwrap();
        let error = pin(&database.env, &database.store, CHECKPOINT, |_| names.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        // The next pass, of whatever epoch, finishes the condemned tables.
        assert_eq!(database.collector.collect(|_| true).await.unwrap().deleted, names);
    });
}

/// Objects of earlier epochs that no record names are garbage; those of this epoch may be on their
/// way into a record.
#[test]
fn orphans_of_earlier_epochs_are_deleted() {
    let database = Database::new();
    database.env.block_on(async {
        let named = database.tables(1).await[0];
        let orphan = database.manifest.fresh_table_name();
        database.object(orphan).await;
        assert!(database.collector.collect_orphans().await.unwrap().is_empty());
        let successor = Database::open(&database.env, &database.store, OpenMode::Open).await;
        let collector = Collector::new(successor.clone());
        let in_flight = successor.fresh_table_name();
        database.object(in_flight).await;
        assert_eq!(collector.collect_orphans().await.unwrap(), [orphan]);
        assert!(
            database.exists(named).await
                && database.exists(in_flight).await
                && !database.exists(orphan).await
        );
        assert_eq!(collector.discard(named).await.unwrap_err().kind(), ErrorKind::Bug);
        collector.discard(in_flight).await.unwrap();
        assert!(!database.exists(in_flight).await);
        // The stale writer's collector cannot condemn, so it deletes nothing.
        database.make_stale(named).await;
        assert!(database.exists(named).await);
    });
}

impl Database {
    async fn make_stale(&self, name: TableName) {
        let edits = vec![Edit::TableObsolete { name }];
        assert_eq!(self.manifest.committed(edits).await.unwrap_err().kind(), ErrorKind::Fenced);
        assert!(self.collector.collect(|_| false).await.unwrap_or_default().deleted.is_empty());
    }
}

/// A pin of unknown outcome is put again until it is known, but not faster than a failing store can
/// bear.
#[test]
fn a_store_that_refuses_a_pin_of_unknown_outcome_is_asked_ever_more_slowly() {
    let database = Database::new();
    let plan = FaultPlan::scripted();
    let failing: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&database.env, Arc::clone(&database.store), plan.clone()));
    let puts = || Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::PermissionDenied)).times(60);
    plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: false }).times(1));
    plan.inject(puts().skip(1));
    database.env.block_on(async {
        let began = database.env.now();
        let pinned = pin(&database.env, &failing, CHECKPOINT, |_| Vec::new()).await.unwrap();
        let took = database.env.now().since(began);
        assert_eq!(plan.injected(), 61);
        // 51 pauses of a second, of each a half at least.
        assert!(took > Duration::from_secs(26), "61 puts within {took:?}");
        pinned.release().await.unwrap();
    });
}
