//! The promises of both interfaces on a server of the S3 protocol, and what requests they cost.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;

use super::server::{ConditionalPut, Server, Trouble};
use crate::backend::cloud::CloudObjectStore;
use crate::backend::cloud::writer::PART_BYTES;
use crate::conformance::log::{LogSubject, check_log_store};
use crate::conformance::object_store;
use crate::layer::RequestKind;
use crate::object::read_whole;
use crate::{
    Epoch, Error, ErrorKind, Life, LogStore, ObjectKind, ObjectName, ObjectStore, Placement, Purpose,
    PutOutcome, Registry, Request, Result, Uri,
};

pub(super) fn open(env: &Env, uri: &str) -> (Arc<dyn ObjectStore>, Arc<dyn LogStore>) {
    let (registry, uri) = (Registry::with_defaults(), Uri::parse(uri).expect("a URI"));
    let objects = registry.open_object_store(env, &uri).expect("a store");
    let logs = registry.open_log_store(env, &uri, None, &objects).expect("a log");
    (objects, logs)
}

pub(super) fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

pub(super) fn placement() -> Placement {
    Placement::new(ObjectKind::Other, Life::Short)
}

pub(super) fn name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

#[test]
fn objects_keep_every_promise() {
    let (env, server) = (Env::real(), Server::start());
    let (objects, _) = open(&env, &server.uri("db", ""));
    env.block_on(object_store(&env, objects)).expect("all promises");
    let (whole_bucket, _) = open(&env, &server.uri("", ""));
    env.block_on(object_store(&env, whole_bucket)).expect("all promises, without a prefix");
    let careless_of_ranges = Server::with(ConditionalPut::Atomic, true);
    let (objects, _) = open(&env, &careless_of_ranges.uri("db", ""));
    env.block_on(object_store(&env, objects))
        .expect("all promises, where a range that holds all is taken for none");
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn the_log_keeps_every_promise() {
    let (env, server) = (Env::real(), Server::with(ConditionalPut::Atomic, true));
    let (objects, store) = open(&env, &server.uri("db", ""));
    assert_eq!(store.identity(), "object-log");
    check_log_store(&LogSubject { env, store, objects });
}

/// Bytes that come again after 251, which no part holds a multiple of.
pub(super) fn pattern(bytes: usize) -> Bytes {
    let mut pattern = (0..=250).collect::<Vec<u8>>().repeat(bytes.div_ceil(251));
    pattern.truncate(bytes);
    pattern.into()
}

/// Writes an object in pieces that fit no part.
async fn stream(store: &dyn ObjectStore, name: &ObjectName, bytes: &Bytes) -> Result<()> {
    let mut writer = store.create(request(), name, placement()).await?;
    for piece in bytes.chunks(1_000_003) {
        writer.append(Bytes::copy_from_slice(piece)).await?;
    }
    writer.finish().await.map(drop)
}

#[test]
fn a_table_goes_up_in_parts_while_it_is_built_and_a_small_one_in_one_put() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    env.block_on(async {
        for length in [0, 5, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 4 * PART_BYTES + 77] {
            let (name, bytes) = (name(&format!("table/{length}")), pattern(length));
            let before = server.requests().len();
            stream(&*store, &name, &bytes).await?;
            let requests = server.requests()[before..].to_vec();
            assert_eq!(read_whole(&*store, request(), &name, u64::MAX - 1).await?, bytes);
            let puts = requests.iter().filter(|request| request.starts_with("PUT")).count();
            assert_eq!(puts, length.div_ceil(PART_BYTES).max(1), "{length}: {requests:?}");
            // A large one is begun, looked for and completed besides.
            assert_eq!(
                requests.len() - puts,
                if length > PART_BYTES { 3 } else { 0 },
                "{length}: {requests:?}"
            );
        }
        let taken = name("table/5");
        let large = pattern(2 * PART_BYTES);
        assert_eq!(
            stream(&*store, &taken, &large).await.expect_err("taken").kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!(store.length(request(), &taken).await?, 5);
        Ok::<_, Error>(())
    })
    .expect("no errors");
    // What was given up is given up at the server too, if not at once.
    for _ in 0..1000 {
        if server.open_uploads() == 0 {
            return;
        }
        env.block_on(env.sleep(std::time::Duration::from_millis(5)));
    }
    panic!("an upload that was given up stays open");
}

#[test]
fn reads_and_copies_cost_what_they_must() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    let count = |method: &str| server.requests().iter().filter(|request| request.starts_with(method)).count();
    env.block_on(async {
        let (small, large, bytes) = (name("small"), name("large"), pattern(PART_BYTES + 1_000_000));
        store.put_if_absent(request(), &small, placement(), bytes.slice(..100)).await?;
        stream(&*store, &large, &bytes).await?;
        let before = count("GET");
        let read =
            store.read_ranges(request(), &large, &[0..100, 200..300, 50..60, 1_000_000..1_000_010]).await?;
        assert_eq!(
            read,
            [
                bytes.slice(..100),
                bytes.slice(200..300),
                bytes.slice(50..60),
                bytes.slice(1_000_000..1_000_010)
            ]
        );
        assert_eq!(count("GET") - before, 2, "neighbours share a request");
        let before = count("GET");
        assert_eq!(store.read(request(), &large, 7..9).await?, bytes.slice(7..9));
        assert_eq!(count("GET") - before, 1, "a ranged read is one request");
        assert_eq!(
            store.copy(request(), &small, &name("small copy".replace(' ', "-").as_str())).await?,
            PutOutcome::Created
        );
        let before = count("GET");
        assert_eq!(store.copy(request(), &large, &name("large-copy")).await?, PutOutcome::Created);
        assert_eq!(count("GET"), before, "a large object is copied by the server");
        assert_eq!(store.copy(request(), &small, &name("large-copy")).await?, PutOutcome::Exists);
        assert_eq!(read_whole(&*store, request(), &name("large-copy"), u64::MAX - 1).await?, bytes);
        // Another prefix of the same bucket takes objects over by reference.
        let (other, _) = open(&env, &server.uri("restored", ""));
        let place = store.place(&large).expect("a place");
        assert_eq!(other.adopt(request(), &place, &name("adopted")).await?, Some(PutOutcome::Created));
        assert_eq!(other.adopt(request(), "s3://elsewhere/bucket/x", &name("no")).await?, None);
        assert_eq!(server.object("restored/adopted").map(|found| found.len()), Some(bytes.len()));
        Ok::<_, Error>(())
    })
    .expect("no errors");
}

#[test]
fn foreign_objects_are_neither_shown_nor_in_the_way() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    for key in ["db/!first", "db/", "dba/other", "db-/other", "a", "z", "db/m n", "db/\u{e9}"] {
        server.plant(key, b"foreign");
    }
    env.block_on(async {
        for own in ["m", "n", "o"] {
            store.put_if_absent(request(), &name(own), placement(), Bytes::from_static(b"own")).await?;
        }
        let shown = |listed: crate::Listed| {
            listed.objects.iter().map(|info| info.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(store.list(request(), "", None, 1).await?), ["m"]);
        assert_eq!(shown(store.list(request(), "", Some(&name("m")), 1).await?), ["n"]);
        assert_eq!(shown(store.list(request(), "", None, 2).await?), ["m", "n"]);
        assert_eq!(shown(store.list(request(), "", None, 100).await?), ["m", "n", "o"]);
        Ok::<_, Error>(())
    })
    .expect("no errors");
    for number in 0..20 {
        server.plant(&format!("db/#{number:02}"), b"foreign");
    }
    let error = env.block_on(store.list(request(), "", None, 1)).expect_err("too many to step over");
    assert!(error.kind() == ErrorKind::Invalid && error.next_step().is_some(), "{error}");
}

/// Stores may answer a list with a page without a key and a token to go on with: Azure does so
/// where its partitions meet.
#[test]
fn a_page_without_keys_is_not_the_end() {
    let (env, server) = (Env::real(), Server::start());
    for key in ["db/m", "db/n", "db/o", "e"] {
        server.plant(key, b"own");
    }
    let shown = |listed: crate::Listed| {
        (listed.objects.iter().map(|info| info.name.to_string()).collect::<Vec<_>>().join(" "), listed.more)
    };
    for uri in [server.uri("db", ""), server.azure_uri("db")] {
        let store = CloudObjectStore::open(&env, &Uri::parse(&uri).expect("a URI")).expect("a store");
        for (after, limit, names, more) in [
            (None, 0, "", true),
            (None, 1, "m", true),
            (None, 2, "m n", true),
            (None, 9, "m n o", false),
            (Some("n"), 1, "o", false),
            (Some("n"), 9, "o", false),
            (Some("o"), 1, "", false),
            (Some("o"), 9, "", false),
        ] {
            for pages in [0, 1, 3] {
                server.next("GET", pages, Trouble::EmptyPage(None));
                let listed =
                    env.block_on(store.list(request(), "", after.map(name).as_ref(), limit)).expect("a list");
                assert_eq!(
                    shown(listed),
                    (names.to_owned(), more),
                    "{uri}, {limit} after {after:?}, {pages} empty pages"
                );
            }
        }
    }
}

#[test]
fn a_list_that_does_not_end_fails_and_so_does_one_that_changes_underway() {
    let (env, server) = (Env::real(), Server::start());
    server.plant("db/m", b"own");
    let store =
        CloudObjectStore::open(&env, &Uri::parse(&server.uri("db", "")).expect("a URI")).expect("a store");
    // The smallest name appears behind the first of two pages.
    let (mut pages, shared) = (0, server.handle());
    server.trouble(move |_| {
        pages += 1;
        if pages == 2 {
            shared.plant("db/b", b"own");
        }
        (pages == 1).then_some(Trouble::EmptyPage(Some("db/c")))
    });
    let error = env.block_on(store.list(request(), "", None, 1)).expect_err("of no single moment");
    assert!(error.kind() == ErrorKind::Retry && error.to_string().contains("changed"), "{error}");
    assert_eq!(env.block_on(store.list(request(), "", None, 1)).expect("a list").objects[0].name, name("b"));
    server.trouble(|_| Some(Trouble::EmptyPage(None)));
    for limit in [0, 1, 5] {
        let error = env.block_on(store.list(request(), "", None, limit)).expect_err("no end");
        assert!(
            error.kind() == ErrorKind::Retry && error.to_string().contains("pages without a key"),
            "{error}"
        );
    }
}

/// As the service counts them: parts, pages and attempts that were made again are requests of their
/// own.
#[test]
fn what_goes_out_is_counted_as_it_goes_out() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    let meter = Arc::clone(store.meter().expect("a meter"));
    assert!(meter.goes_over_network());
    let of = |purpose: Purpose, kind: RequestKind| {
        let counted =
            meter.counted().into_iter().find(|counted| counted.purpose == purpose && counted.kind == kind);
        counted.map_or((0, 0, 0, 0), |counted| {
            (counted.requests, counted.failed, counted.bytes_sent, counted.bytes_received)
        })
    };
    let (flush, get) = (Request::new(Purpose::Flush, Epoch(1)), Request::new(Purpose::Get, Epoch(1)));
    let (small, large, bytes) = (name("small"), name("large"), pattern(2 * PART_BYTES + 5));
    env.block_on(async {
        server.next("PUT", 1, Trouble::Refuse(503, "SlowDown"));
        store.put_if_absent(flush, &small, placement(), bytes.slice(..100)).await?;
        assert_eq!(of(Purpose::Flush, RequestKind::Put), (2, 1, 200, 0));
        let mut writer = store.create(flush, &large, placement()).await?;
        writer.append(bytes.clone()).await?;
        writer.finish().await?;
        let sent = bytes.len() as u64;
        assert_eq!(of(Purpose::Flush, RequestKind::Append), (3, 0, sent, 0));
        assert_eq!(of(Purpose::Flush, RequestKind::Create).0, 1);
        assert_eq!(of(Purpose::Flush, RequestKind::Finish).0, 1);
        // The name is looked at before the upload is completed.
        assert_eq!(of(Purpose::Flush, RequestKind::Length), (1, 1, 0, 0));
        store.read_ranges(get, &large, &[0..100, 200..300, 8_000_000..8_000_010]).await?;
        assert_eq!(of(Purpose::Get, RequestKind::Read), (2, 0, 0, 310));
        assert_eq!(store.length(get, &large).await?, sent);
        assert_eq!(of(Purpose::Get, RequestKind::Length), (1, 0, 0, 0));
        store.list(get, "", None, 10).await?;
        assert_eq!(of(Purpose::Get, RequestKind::List).0, 1);
        store.copy(get, &large, &name("copy")).await?;
        store.delete(get, &large).await?;
        assert_eq!(of(Purpose::Get, RequestKind::Delete), (1, 0, 0, 0));
        Ok::<_, Error>(())
    })
    .expect("no errors");
    let counted: u64 = meter.counted().iter().map(|counted| counted.requests).sum();
    assert_eq!(counted, server.requests().len() as u64, "{:?}", meter.counted());
}

/// A prefix may be a whole name, also where the client of the protocol leaves such a key out.
#[test]
fn a_name_is_listed_under_itself() {
    let (env, server) = (Env::real(), Server::start());
    for key in ["db/a", "db/m", "db/m-1", "db/m/x", "db/n", "db/lz", "e"] {
        server.plant(key, b"own");
    }
    for uri in [server.uri("db", ""), server.azure_uri("db")] {
        let store = CloudObjectStore::open(&env, &Uri::parse(&uri).expect("a URI")).expect("a store");
        for (prefix, after, limit, names, more) in [
            ("m", None, 9, "m m-1 m/x", false),
            ("m", None, 1, "m", true),
            ("m", Some("m"), 1, "m-1", true),
            ("m", Some("m"), 9, "m-1 m/x", false),
            ("m", Some("a"), 2, "m m-1", true),
            ("m", Some("m/x"), 1, "", false),
            ("m", Some("n"), 9, "", false),
            ("m/", None, 9, "m/x", false),
            ("mm", None, 1, "", false),
            ("l", None, 9, "lz", false),
        ] {
            let listed =
                env.block_on(store.list(request(), prefix, after.map(name).as_ref(), limit)).expect("a list");
            let shown = listed.objects.iter().map(|info| info.name.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(shown, names, "{uri}, {limit} of {prefix} after {after:?}");
            // Whether more follow may be asked for once too often, never once too little.
            assert!(listed.more || !more, "{uri}, {limit} of {prefix} after {after:?}");
        }
    }
}
