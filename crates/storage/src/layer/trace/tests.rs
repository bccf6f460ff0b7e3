use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::{Epoch, Life, ObjectKind, ObjectName, ObjectStore, Placement, Registry, Request, Uri};

fn traced(env: &Env, tracer: &Tracer) -> TraceObjectStore {
    TraceObjectStore::new(Arc::new(MemoryObjectStore::unnamed(env)), tracer.clone())
}

fn name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

async fn history(store: &dyn ObjectStore) {
    let placement = Placement::new(ObjectKind::Table, Life::Long);
    let flush = Request::new(Purpose::Flush, Epoch(3));
    let get = Request::new(Purpose::Get, Epoch(3));
    assert!(store.put_if_absent(flush, &name("a"), placement, Bytes::from_static(b"12345")).await.is_ok());
    assert!(store.put_if_absent(flush, &name("a"), placement, Bytes::from_static(b"12345")).await.is_ok());
    assert!(store.read(get, &name("a"), 1..3).await.is_ok());
    assert!(store.read(get, &name("b"), 0..1).await.is_err());
    let mut writer = store.create(flush, &name("c"), placement).await.expect("a writer");
    writer.append(Bytes::from_static(b"xyz")).await.expect("taken");
    writer.finish().await.expect("finished");
    assert_eq!(store.list(get, "", None, 10).await.expect("listed").objects.len(), 2);
}

#[test]
fn what_is_shown_counts_as_a_read_and_what_is_not_as_nothing() {
    let env = Env::real();
    let directory = tempfile::tempdir().expect("a directory");
    let uri = Uri::parse(&format!("file://{}", directory.path().display())).expect("a URI");
    let inner = Registry::with_defaults().open_object_store(&env, &uri).expect("a store");
    let tracer = Tracer::new(&env);
    let store = TraceObjectStore::new(inner, tracer.clone());
    let get = Request::new(Purpose::Get, Epoch(3));
    env.block_on(async {
        store
            .put_if_absent(
                get,
                &name("a"),
                Placement::new(ObjectKind::Table, Life::Long),
                Bytes::from_static(b"12345"),
            )
            .await
            .expect("put");
        store.read(get, &name("a"), 0..1).await.expect("read");
    });
    let before = tracer.events().len();
    let shown: usize = (0..8)
        .map(|_| usize::from(store.with_held(get, &name("a"), 1..3, &mut |held| assert_eq!(held, b"23"))))
        .sum();
    assert!(!store.with_held(get, &name("b"), 1..3, &mut |_| panic!("there is no b")));
    let events = tracer.events().split_off(before);
    assert_eq!(events.len(), shown);
    assert!(
        events.iter().all(|event| event.kind == RequestKind::Read
            && event.bytes == 2
            && event.outcome == Outcome::Done)
    );
}

#[test]
fn every_promise_is_kept_on_and_off() {
    let env = Env::real();
    let tracer = Tracer::new(&env);
    for on in [true, false] {
        tracer.set_on(on);
        env.block_on(conformance::object_store(&env, Arc::new(traced(&env, &tracer)))).expect("all promises");
    }
    assert!(
        tracer.of_kind(RequestKind::Put).requests > 100 && tracer.of_kind(RequestKind::Put).errors == 1,
        "the put over the limit"
    );
}

#[test]
fn each_request_is_told() {
    let env = Env::real();
    let tracer = Tracer::new(&env);
    env.block_on(history(&traced(&env, &tracer)));
    let told: Vec<_> = tracer
        .events()
        .iter()
        .map(|event| (event.purpose, event.kind, event.name.clone(), event.bytes, event.outcome))
        .collect();
    let expected = [
        (Purpose::Flush, RequestKind::Put, "a", 5, Outcome::Created),
        (Purpose::Flush, RequestKind::Put, "a", 5, Outcome::Exists),
        (Purpose::Get, RequestKind::Read, "a", 2, Outcome::Done),
        (Purpose::Get, RequestKind::Read, "b", 0, Outcome::Error(ErrorKind::NotFound)),
        (Purpose::Flush, RequestKind::Create, "c", 0, Outcome::Done),
        (Purpose::Flush, RequestKind::Append, "c", 3, Outcome::Done),
        (Purpose::Flush, RequestKind::Finish, "c", 3, Outcome::Done),
        (Purpose::Get, RequestKind::List, "", 2, Outcome::Done),
    ]
    .map(|(purpose, kind, name, bytes, outcome)| (purpose, kind, name.to_string(), bytes, outcome));
    assert_eq!(told, expected);
    let reads = tracer.counters()[&(Purpose::Get, RequestKind::Read)];
    assert_eq!((reads.requests, reads.bytes, reads.errors), (2, 2, 1));
    assert_eq!(tracer.of_kind(RequestKind::Put).requests, 2);
    assert!(tracer.events().iter().all(|event| !event.is_trouble()));
}

#[test]
fn off_it_sees_nothing_and_the_ring_is_bounded() {
    let env = Env::real();
    let tracer = Tracer::with_sink(&env, 3, None);
    env.block_on(history(&traced(&env, &tracer)));
    let numbers: Vec<u64> = tracer.events().iter().map(|event| event.number).collect();
    assert_eq!(numbers, [6, 7, 8]);
    tracer.reset();
    tracer.set_on(false);
    env.block_on(history(&traced(&env, &tracer)));
    assert!(tracer.events().is_empty() && tracer.counters().is_empty());
}

#[test]
fn a_request_that_nobody_waits_for_is_told_as_dropped() {
    let env = Env::real();
    let tracer = Tracer::new(&env);
    let store = traced(&env, &tracer);
    drop(store.read(Request::new(Purpose::Get, Epoch(1)), &name("a"), 0..1));
    assert!(tracer.events().is_empty(), "it never began");
    let span = objects::Span::begin(&tracer, Purpose::Get, RequestKind::Read, "a", 0);
    drop(span);
    assert_eq!(tracer.events()[0].outcome, Outcome::Dropped);
}

#[test]
fn lines_of_json_go_to_a_file_and_go_on_there() {
    let env = Env::real();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("trace.jsonl");
    for _ in 0..2 {
        let lines = JsonLines::open(&env, &path).expect("a file");
        let tracer = Tracer::with_sink(&env, 0, Some(lines.sink()));
        env.block_on(history(&traced(&env, &tracer)));
    }
    let file = env.files().open(&path, tombolo_env::Access::Read).expect("the trace");
    let mut bytes = vec![0; usize::try_from(file.length().expect("a length")).expect("small")];
    tombolo_env::file::read_exact_at(&*file, &mut bytes, 0).expect("read");
    let text = String::from_utf8(bytes).expect("text");
    assert_eq!(text.lines().count(), 16);
    for line in text.lines() {
        assert!(line.starts_with(r#"{"number":"#) && line.ends_with(r#""}"#), "{line}");
    }
    assert!(text.contains(r#""purpose":"get","kind":"read","name":"b","bytes":0"#), "{text}");
}

#[test]
fn json_is_escaped() {
    let event = Event {
        number: 1,
        began: Instant::from_nanos(5),
        purpose: Purpose::Open,
        kind: RequestKind::List,
        name: "a\"b\\\n".into(),
        bytes: 0,
        latency: Duration::from_micros(3),
        outcome: Outcome::Error(ErrorKind::OutcomeUnknown),
    };
    let expected = concat!(
        r#"{"number":1,"began_ns":5,"purpose":"open","kind":"list","name":"a\"b\\\u000a","#,
        r#""bytes":0,"latency_ns":3000,"outcome":"OutcomeUnknown"}"#
    );
    assert_eq!(event.to_json(), expected);
}
