//! Operations that took long, and spans around operations.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tombolo::{Batch, Db, Event, Listener, Options};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};

fn open(name: &str, slow_operation: Option<Duration>) -> Db {
    let options = Options { slow_operation, ..Options::default() };
    Db::builder(format!("mem://{name}")).options(options).open().wait().unwrap()
}

const ANY: Option<Duration> = Some(Duration::from_nanos(1));
const NONE: Option<Duration> = Some(Duration::from_secs(3600));

#[test]
fn what_took_long_is_noted() {
    let db = open("slow-noted", ANY);
    let keys = db.default_keyspace();
    let long_key = [b'k'; 100];
    keys.put(long_key, b"1").wait().unwrap();
    assert!(keys.get(long_key).wait().unwrap().is_some());
    keys.multi_get(&[b"a", b"b"]).wait().unwrap();
    let mut batch = Batch::default();
    batch.put(&keys, b"a", b"1").delete(&keys, b"b");
    db.write(batch).wait().unwrap();
    let blocking = db.blocking();
    blocking.default_keyspace().get(b"a").unwrap();

    let noted = db.slow_operations();
    let seen: Vec<_> = noted.iter().map(|slow| (slow.operation, slow.entries)).collect();
    assert_eq!(seen, [("put", 1), ("get", 1), ("multi_get", 2), ("write", 2), ("get", 1)]);
    assert_eq!((noted[0].keyspace.as_deref(), noted[0].key.len()), (Some("default"), 64));
    assert_eq!((&noted[3].keyspace, noted[3].key.len(), noted[3].error), (&None, 0, None));
    assert_eq!(db.property("slow-operations").unwrap().value.number(), Some(5));
    let newest = db.property("slow-operation").unwrap().value.to_string();
    assert!(newest.starts_with("get of ") && newest.contains(" in default; write of "), "{newest}");
}

#[test]
fn what_was_quick_is_not_noted() {
    let db = open("slow-quick", NONE);
    let keys = db.default_keyspace();
    keys.put(b"a", b"1").wait().unwrap();
    keys.get(b"a").wait().unwrap();
    assert!(db.slow_operations().is_empty());
    db.set_options([("slow_operation", "1ms")]).unwrap();
    assert!(db.set_options([("slow_operation", "0ms")]).is_err());
    db.set_options([("slow_operation", "none")]).unwrap();
    keys.get(b"a").wait().unwrap();
    assert!(db.slow_operations().is_empty());
}

#[test]
fn a_bounded_number_is_kept() {
    let db = open("slow-bounded", ANY);
    let keys = db.default_keyspace();
    (0..200u32).for_each(|number| keys.put(number.to_be_bytes(), b"").wait().unwrap());
    let noted = db.slow_operations();
    assert_eq!((noted.len(), &noted[127].key[..]), (128, &199u32.to_be_bytes()[..]));
    assert_eq!(db.property("slow-operations").unwrap().value.number(), Some(200));
}

#[derive(Default)]
struct Heard(Mutex<Vec<&'static str>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        if let Event::SlowOperation(slow) = event {
            self.0.lock().unwrap().push(slow.operation);
        }
    }
}

#[test]
fn the_listener_is_told() {
    let heard = Arc::new(Heard::default());
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    let options = Options { slow_operation: ANY, ..Options::default() };
    let builder = Db::builder("mem://slow-heard").options(options).listener(listener);
    let db = builder.open().wait().unwrap();
    db.default_keyspace().put(b"a", b"1").wait().unwrap();
    db.close().wait().unwrap();
    assert_eq!(heard.0.lock().unwrap()[..], ["put"]);
}

/// Keeps the fields of the spans of operations.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Spans {
    /// It is asked each time: a kept answer would outlive it, in tests beside this one.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tombolo::operation" && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.0.lock().unwrap();
        spans.push(String::new());
        let id = spans.len();
        span.record(&mut Fields(&mut spans[id - 1]));
        Id::from_u64(id as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.0.lock().unwrap();
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fields(&mut spans[index]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn spans_have_the_names_of_opentelemetry() {
    let spans = Spans::default();
    let db = open("spans", None);
    let keys = db.default_keyspace();
    tracing::subscriber::with_default(spans.clone(), || {
        keys.put(b"a", b"1").wait().unwrap();
        keys.multi_get(&[b"a", b"b"]).wait().unwrap();
        db.close().wait().unwrap();
        keys.get(b"a").wait().unwrap_err();
    });
    let spans = spans.0.lock().unwrap();
    let common = "otel.kind=\"internal\" db.system.name=\"tombolo\"";
    assert_eq!(
        spans[0].trim(),
        format!(
            "otel.name=\"put\" {common} db.operation.name=\"put\" db.operation.batch.size=1 \
            db.collection.name=\"default\""
        )
    );
    assert!(spans[1].contains("db.operation.batch.size=2"), "{}", spans[1]);
    assert!(spans[2].ends_with(" otel.status_code=\"ERROR\" error.type=Closed"), "{}", spans[2]);
}
