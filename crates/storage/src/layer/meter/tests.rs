use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::layer::trace::{TraceObjectStore, Tracer};
use crate::{Counted, Epoch, ErrorKind, Life, ObjectKind, Registry, Uri, conformance};

fn name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

fn of(store: &dyn ObjectStore, purpose: Purpose, kind: RequestKind) -> (u64, u64, u64, u64) {
    let counted = store.meter().expect("a meter").counted();
    let found = counted.into_iter().find(|counted| counted.purpose == purpose && counted.kind == kind);
    found.map_or((0, 0, 0, 0), |Counted { requests, failed, bytes_sent, bytes_received, .. }| {
        (requests, failed, bytes_sent, bytes_received)
    })
}

#[test]
fn every_promise_is_kept() {
    let env = Env::real();
    let store = MeterObjectStore::wrap(Arc::new(MemoryObjectStore::unnamed(&env)));
    env.block_on(conformance::object_store(&env, Arc::clone(&store))).expect("all promises");
    assert!(store.meter().expect("a meter").counted().len() > 5);
}

#[test]
fn requests_and_bytes_are_counted_by_purpose_and_kind_also_those_that_fail() {
    let env = Env::real();
    let plan = FaultPlan::scripted();
    let faulty = FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone());
    let store = MeterObjectStore::wrap(Arc::new(faulty));
    let placement = Placement::new(ObjectKind::Table, Life::Long);
    let (flush, get) = (Request::new(Purpose::Flush, Epoch(3)), Request::new(Purpose::Get, Epoch(3)));
    env.block_on(async {
        store.put_if_absent(flush, &name("a"), placement, Bytes::from_static(b"12345")).await?;
        store.put_if_absent(flush, &name("a"), placement, Bytes::from_static(b"123")).await?;
        store.read(get, &name("a"), 1..100).await?;
        store.read_ranges(get, &name("a"), &[0..1, 2..4]).await?;
        plan.inject(Rule::of_kind(RequestKind::Read, Fault::Error(ErrorKind::Retry)));
        assert!(store.read(get, &name("a"), 0..5).await.is_err());
        let mut writer = store.create(flush, &name("c"), placement).await?;
        writer.append(Bytes::from_static(b"xyz")).await?;
        writer.append(Bytes::from_static(b"xy")).await?;
        writer.finish().await?;
        store.list(get, "", None, 10).await?;
        store.copy(flush, &name("a"), &name("d")).await?;
        assert_eq!(store.adopt(flush, "elsewhere", &name("e")).await?, None);
        store.delete(flush, &name("a")).await?;
        assert!(store.length(get, &name("a")).await.is_err());
        Ok::<_, crate::Error>(())
    })
    .expect("no errors");
    for (purpose, kind, counted) in [
        (Purpose::Flush, RequestKind::Put, (2, 0, 8, 0)),
        (Purpose::Get, RequestKind::Read, (2, 1, 0, 4)),
        (Purpose::Get, RequestKind::ReadRanges, (1, 0, 0, 3)),
        (Purpose::Flush, RequestKind::Create, (1, 0, 0, 0)),
        (Purpose::Flush, RequestKind::Append, (2, 0, 5, 0)),
        (Purpose::Flush, RequestKind::Finish, (1, 0, 0, 0)),
        (Purpose::Get, RequestKind::List, (1, 0, 0, 0)),
        (Purpose::Flush, RequestKind::Copy, (2, 0, 0, 0)),
        (Purpose::Flush, RequestKind::Delete, (1, 0, 0, 0)),
        (Purpose::Get, RequestKind::Length, (1, 1, 0, 0)),
        (Purpose::Get, RequestKind::Put, (0, 0, 0, 0)),
    ] {
        assert_eq!(of(&*store, purpose, kind), counted, "{purpose} {kind}");
    }
}

#[test]
fn stores_of_a_registry_are_counted_once_each_attempt_and_what_the_host_holds() {
    let (env, directory) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let uri = format!("file://{}?retry_seconds=1&latency_ms=1", directory.path().display());
    let store = Registry::with_defaults()
        .open_object_store(&env, &Uri::parse(&uri).expect("a URI"))
        .expect("a store");
    let again = MeterObjectStore::wrap(Arc::clone(&store));
    assert!(
        Arc::ptr_eq(store.meter().expect("a meter"), again.meter().expect("a meter")),
        "what counts is not counted twice"
    );
    assert!(!store.meter().expect("a meter").goes_over_network());
    let get = Request::new(Purpose::Get, Epoch(3));
    let placement = Placement::new(ObjectKind::Table, Life::Long);
    env.block_on(async {
        store.put_if_absent(get, &name("a"), placement, Bytes::from_static(b"12345")).await.expect("put");
        store.read(get, &name("a"), 0..1).await.expect("read");
    });
    let traced = TraceObjectStore::new(Arc::clone(&store), Tracer::new(&env));
    let shown = (0..8).map(|_| u64::from(traced.with_held(get, &name("a"), 1..3, &mut |_| {}))).sum::<u64>();
    assert_eq!(of(&traced, Purpose::Get, RequestKind::Read), (1 + shown, 0, 0, 1 + 2 * shown));
}
