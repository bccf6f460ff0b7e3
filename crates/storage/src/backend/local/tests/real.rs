//! On a real file system.

use std::path::Path;
use std::time::Duration;

use tombolo_env::simulated::{Action, Fault, OperationKind, World};

use super::*;
use crate::conformance;

struct Bench {
    env: Env,
    store: LocalObjectStore,
    directory: tempfile::TempDir,
}

fn bench() -> Bench {
    let env = Env::real();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = LocalObjectStore::new(&env, directory.path().join("store"), LocalOptions::default())
        .expect("a store");
    Bench { env, store, directory }
}

impl Bench {
    fn root(&self) -> &Path {
        self.store.root()
    }

    /// Makes a foreign file.
    fn foreign(&self, path: &str, bytes: &[u8]) {
        let path = self.root().join(path);
        self.env.files().create_directories(path.parent().expect("a parent")).expect("a directory");
        self.env.files().create_new(&path).and_then(|file| file.write_all_at(bytes, 0)).expect("a file");
    }
}

#[test]
fn every_promise_is_kept() {
    for env in [Env::real(), Env::real_without_io_uring()] {
        for direct in [false, true] {
            let bench = bench();
            let at = bench.directory.path().join("not/yet/there");
            let store =
                match LocalObjectStore::new(&env, at, LocalOptions { direct, ..LocalOptions::default() }) {
                    Err(error) if direct && error.kind() == ErrorKind::Unsupported => {
                        println!("skipped: {error}");
                        continue;
                    }
                    store => store.expect("a store"),
                };
            env.block_on(conformance::object_store(&env, Arc::new(store))).expect("all promises");
        }
    }
}

#[test]
fn opening_and_reading_make_nothing() {
    let bench = bench();
    bench.env.block_on(async {
        assert_eq!(read(&bench.store, "a").await.expect_err("nothing there").kind(), ErrorKind::NotFound);
        assert!(listed(&bench.store, "").await.expect("listed").is_empty());
        assert_eq!(bench.store.sweep(request()).await.expect("swept"), 0);
        bench.store.delete(request(), &name("a")).await.expect("deleted");
    });
    assert!(bench.env.files().metadata(bench.root()).is_err(), "the root was made");
}

#[test]
fn foreign_files_are_neither_shown_nor_touched() {
    let bench = bench();
    for path in [
        "with space",
        "Ünicode",
        "a/+plus",
        "tmp/notes.txt",
        "tmp/0123456789abcdef",
        "x/log/segment-1",
        "log/a",
    ] {
        bench.foreign(path, b"foreign");
    }
    bench.env.block_on(async {
        put(&bench.store, "a/object", pattern(1, 10)).await.expect("put");
        put(&bench.store, "x/object", pattern(1, 10)).await.expect("put");
        put(&bench.store, "x/log", pattern(1, 10)).await.expect_err("log is a directory there");
        assert_eq!(listed(&bench.store, "").await.expect("listed"), ["a/object", "x/object"]);
        for prefix in ["tmp/", "x/log/", "log/", "a/+", "../"] {
            assert!(listed(&bench.store, prefix).await.expect("listed").is_empty(), "{prefix}");
        }
        assert_eq!(bench.store.sweep(request()).await.expect("swept"), 0);
        for reserved in ["tmp/a", "x/log/a", "log/a", "tmp"] {
            let error = put(&bench.store, reserved, Bytes::new()).await.expect_err("reserved");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{reserved}");
            assert!(error.next_step().is_some_and(|advice| advice.contains("log")));
        }
    });
    for path in [
        "with space",
        "Ünicode",
        "a/+plus",
        "tmp/notes.txt",
        "tmp/0123456789abcdef",
        "x/log/segment-1",
        "log/a",
    ] {
        assert_eq!(
            bench.env.files().metadata(&bench.root().join(path)).expect("still there").length,
            7,
            "{path}"
        );
    }
}

#[test]
fn a_link_to_nowhere_is_no_object() {
    let bench = bench();
    bench.env.block_on(async {
        put(&bench.store, "d/b", pattern(1, 10)).await.expect("put");
        std::os::unix::fs::symlink("/nowhere/at/all", bench.root().join("d/a")).expect("a link");
        assert_eq!(listed(&bench.store, "d/").await.expect("listed"), ["d/b"]);
        let one = bench.store.list(request(), "d/", None, 1).await.expect("listed");
        assert_eq!(one.objects[0].name, name("d/b"));
    });
}

#[test]
fn a_file_where_a_directory_is_needed_is_said() {
    let bench = bench();
    bench.foreign("file", b"x");
    let error = LocalObjectStore::new(&bench.env, bench.root().join("file"), LocalOptions::default())
        .expect_err("a file");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.object_name().is_some_and(|object| object.ends_with("/file")) && error.next_step().is_some(),
        "{error}"
    );
    bench.env.block_on(async {
        let error = put(&bench.store, "file/below", Bytes::new()).await.expect_err("below a file");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        put(&bench.store, "tree/object", Bytes::new()).await.expect("put");
        let error = put(&bench.store, "tree", Bytes::new()).await.expect_err("a directory");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let error = put(&bench.store, &format!("a/{}", "x".repeat(300)), Bytes::new())
            .await
            .expect_err("too long for a file");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
    assert!(
        bench
            .env
            .files()
            .list_atomically(&bench.root().join(TEMPORARY_DIRECTORY))
            .expect("listed")
            .is_empty()
    );
}

#[test]
fn an_open_table_is_read_on_after_another_process_deleted_it() {
    let bench = bench();
    let other = LocalObjectStore::new(&bench.env, bench.root(), LocalOptions::default()).expect("a store");
    let get = Request::new(Purpose::Get, Epoch::NONE);
    bench.env.block_on(async {
        put(&bench.store, "t", pattern(5, 10_000)).await.expect("put");
        assert_eq!(
            bench.store.read(get, &name("t"), 0..5000).await.expect("read"),
            pattern(5, 10_000).slice(..5000)
        );
        other.delete(request(), &name("t")).await.expect("deleted");
        assert_eq!(
            bench.store.read(get, &name("t"), 5000..10_000).await.expect("read"),
            pattern(5, 10_000).slice(5000..)
        );
        assert_eq!(read(&bench.store, "t").await.expect_err("gone").kind(), ErrorKind::NotFound);
        bench.store.delete(request(), &name("t")).await.expect("deleted");
        assert_eq!(
            bench.store.read(get, &name("t"), 0..1).await.expect_err("gone").kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn a_request_after_its_deadline_has_no_effect() {
    let bench = bench();
    bench.env.block_on(async {
        let late = request().until(Some(bench.env.now()));
        let error = bench
            .store
            .put_if_absent(late, &name("a"), placement(), Bytes::new())
            .await
            .expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(read(&bench.store, "a").await.expect_err("absent").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_read_is_not_waited_for_beyond_its_deadline() {
    let world = World::new(3);
    let process = world.process("p");
    let env = process.env();
    world.inject(Fault::new(Action::Stall(Duration::from_secs(50)), |operation| {
        operation.kind == OperationKind::Read
    }));
    process
        .run(async move {
            let store = LocalObjectStore::new(&env, "/store", LocalOptions::default()).expect("a store");
            put(&store, "a", pattern(1, 10_000)).await.expect("put");
            let soon =
                Request::new(Purpose::Get, Epoch::NONE).until(Some(env.now() + Duration::from_secs(60)));
            assert_eq!(store.read(soon, &name("a"), 0..10).await.expect("in time").len(), 10);
            let ranges = [0..10, 5000..5010, 9990..10_000];
            let mut outcomes = std::collections::BTreeSet::new();
            for nanos in 0..60 {
                let soon = Request::new(Purpose::Get, Epoch::NONE)
                    .until(Some(env.now() + Duration::from_nanos(nanos * 200)));
                match store.read_ranges(soon, &name("a"), &ranges).await {
                    Ok(read) => outcomes.insert(format!("{} ranges", read.len())),
                    Err(error) => outcomes.insert(format!("{:?}: {}", error.kind(), error.message())),
                };
            }
            assert!(outcomes.contains("3 ranges") || outcomes.len() > 1, "{outcomes:?}");
            assert!(
                outcomes.contains("DeadlineExceeded: the deadline passed before an object was read"),
                "{outcomes:?}"
            );
        })
        .expect("it lives");
}

#[test]
fn the_registry_opens_it() {
    let bench = bench();
    let registry = Registry::default();
    let open = |parameters: &str| {
        let uri = Uri::parse(&format!("file://{}{parameters}", bench.root().display())).expect("a URI");
        registry.open_object_store(&bench.env, &uri)
    };
    bench.env.block_on(async {
        put(&bench.store, "a", pattern(1, 5)).await.expect("put");
        let store = open("?form=written&single_host=no&io=buffered").expect("opened");
        assert_eq!(store.read(request(), &name("a"), 0..5).await.expect("read"), pattern(1, 5));
    });
    for wrong in ["?from=written", "?single_host=maybe", "?io=fast"] {
        assert_eq!(open(wrong).expect_err(wrong).kind(), ErrorKind::Invalid);
    }
}

#[test]
fn the_store_tells_what_it_lies_on() {
    let bench = bench();
    let facts = bench.env.block_on(bench.store.facts(request())).expect("facts");
    for wanted in ["file system", "mount options", "durability", "space", "direct io", "device"] {
        assert_eq!(facts.iter().filter(|fact| fact.name == wanted).count(), 1, "{wanted}: {facts:?}");
    }
    for fact in &facts {
        assert_eq!(fact.advice.is_none(), fact.verdict == crate::facts::Verdict::Fine, "{fact:?}");
    }
    assert!(bench.env.files().metadata(bench.root()).is_err(), "looking made the root");
}

#[test]
fn layers_pass_on_where_objects_lie_and_who_takes_them_over() {
    use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
    use crate::layer::retry::{RetryObjectStore, RetryPolicy};
    use crate::layer::trace::{TraceObjectStore, Tracer};
    let (bench, other) = (bench(), bench());
    let plan = FaultPlan::scripted();
    let layers = |store: &LocalObjectStore, tracer: Tracer| {
        let fault = FaultObjectStore::new(&bench.env, Arc::new(store.clone()), plan.clone());
        let retry = RetryObjectStore::new(&bench.env, Arc::new(fault), RetryPolicy::default());
        TraceObjectStore::new(Arc::new(retry), tracer)
    };
    bench.env.block_on(async {
        put(&bench.store, "a", pattern(1, 5000)).await.expect("put");
        for (number, on) in [false, true].into_iter().enumerate() {
            let tracer = Tracer::new(&bench.env);
            tracer.set_on(on);
            let (from, to) = (layers(&bench.store, tracer.clone()), layers(&other.store, tracer));
            let place = from.place(&name("a")).expect("a place");
            let taken = format!("taken-{number}");
            plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)).times(1));
            assert_eq!(
                to.adopt(request(), &place, &name(&taken)).await.expect("adopted"),
                Some(PutOutcome::Created)
            );
            assert_eq!(
                to.adopt(request(), &place, &name(&taken)).await.expect("adopted"),
                Some(PutOutcome::Exists)
            );
            assert_eq!(read(&other.store, &taken).await.expect("read"), pattern(1, 5000));
            assert_eq!(to.adopt(request(), "elsewhere", &name("b")).await.expect("asked"), None);
        }
    });
}
