//! What a store of the cloud does to its users, and what each of these becomes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use tombolo_env::{BoxFuture, Env, all};

use super::promises::{name, open, pattern, placement, request};
use super::server::{Asked, ConditionalPut, Server, Trouble};
use crate::backend::cloud::failure::Failure;
use crate::backend::cloud::writer::PART_BYTES;
use crate::backend::cloud::{Client, place, wire};
use crate::conformance::object_store;
use crate::object::read_whole;
use crate::probe::exclusive;
use crate::{Error, ErrorKind, ObjectStore, PutOutcome, Result};

/// A store that does not wait for a server that fails.
fn impatient(env: &Env, server: &Server) -> Arc<dyn ObjectStore> {
    Arc::new(
        crate::backend::cloud::CloudObjectStore::open(
            env,
            &crate::Uri::parse(&server.uri("db", "")).expect("a URI"),
        )
        .expect("a store"),
    )
}

async fn put(store: &dyn ObjectStore, key: &str, bytes: &'static [u8]) -> Result<PutOutcome> {
    store.put_if_absent(request(), &name(key), placement(), Bytes::from_static(bytes)).await
}

#[test]
fn a_put_whose_answer_is_lost_is_told_by_its_mark() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    env.block_on(async {
        server.next("PUT", 1, Trouble::LostAnswer);
        assert_eq!(put(&*store, "landed", b"bytes").await?, PutOutcome::Created, "it is in place, and ours");
        server.next("PUT", 1, Trouble::LostRequest);
        assert_eq!(
            put(&*store, "lost", b"bytes").await?,
            PutOutcome::Created,
            "it was not, and was put again"
        );
        // The same bytes under the name, put by another: its mark tells.
        assert_eq!(put(&*store, "taken", b"bytes").await?, PutOutcome::Created);
        server.next("PUT", 1, Trouble::LostRequest);
        assert_eq!(put(&*store, "taken", b"bytes").await?, PutOutcome::Exists);
        // A server that keeps no marks: the bytes tell.
        server.plant("db/unmarked", b"theirs");
        server.next("PUT", 1, Trouble::LostRequest);
        assert_eq!(put(&*store, "unmarked", b"mine..").await?, PutOutcome::Exists);
        server.next("PUT", 1, Trouble::Refuse(500, "InternalError"));
        assert_eq!(put(&*store, "internal", b"bytes").await?, PutOutcome::Created);
        server.next("PUT", 100, Trouble::LostRequest);
        let error = put(&*store, "never", b"bytes").await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        Ok::<_, Error>(())
    })
    .expect("no errors");
}

#[test]
fn refusals_have_their_kind_and_say_what_to_do() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    for (status, code, kind, said) in [
        (403, "InvalidAccessKeyId", ErrorKind::PermissionDenied, "check the credentials"),
        (403, "SignatureDoesNotMatch", ErrorKind::PermissionDenied, "check the credentials"),
        (400, "ExpiredToken", ErrorKind::PermissionDenied, "renew the credentials"),
        (403, "AccessDenied", ErrorKind::PermissionDenied, "rights"),
        (403, "RequestTimeTooSkewed", ErrorKind::PermissionDenied, "clock"),
        (404, "NoSuchBucket", ErrorKind::Invalid, "create the bucket"),
        // versitygw's word on a user that it does not know, and what another server may say:
        // neither is a word on the object.
        (404, "XAdminUserNotFound", ErrorKind::PermissionDenied, "check the credentials"),
        (404, "NoSuchTenant", ErrorKind::PermissionDenied, "is not about an object"),
        (404, "NoSuchKey", ErrorKind::NotFound, "404"),
        (429, "TooManyRequests", ErrorKind::Retry, "throttles"),
        (409, "ConditionalRequestConflict", ErrorKind::Retry, "409"),
        (507, "XMinioStorageFull", ErrorKind::OutOfSpace, "free space"),
        (301, "PermanentRedirect", ErrorKind::Invalid, "region"),
        (400, "RequestTimeout", ErrorKind::Retry, "400"),
        (501, "NotImplemented", ErrorKind::Unsupported, "docs/storage.md"),
    ] {
        for method in ["PUT", "GET"] {
            server.next(method, 1, Trouble::Refuse(status, code));
            let error = env.block_on(async {
                match method {
                    "PUT" => put(&*store, "refused", b"bytes").await.map(drop),
                    _ => store.read(request(), &name("refused"), 0..1).await.map(drop),
                }
            });
            let error = error.expect_err(code);
            assert_eq!(error.kind(), kind, "{method} {code}: {error}");
            assert!(error.to_string().contains(said), "{method} {code}: {error}");
            assert!(error.object_name().is_some_and(|object| object == "s3://bucket/db/refused"), "{error}");
        }
    }
    assert!(
        server.object("db/refused").is_none(),
        "what was refused is not put again behind its caller's back"
    );
}

#[test]
fn a_throttled_store_is_waited_for() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    env.block_on(async {
        for method in ["PUT", "GET", "DELETE"] {
            server.next(method, 3, Trouble::Refuse(503, "SlowDown"));
        }
        assert_eq!(put(&*store, "a", b"bytes").await?, PutOutcome::Created);
        assert_eq!(store.read(request(), &name("a"), 0..9).await?, "bytes");
        store.delete(request(), &name("a")).await
    })
    .expect("no errors");
    assert!(server.object("db/a").is_none());
    let tries = server.requests().iter().filter(|request| request.starts_with("PUT")).count();
    assert_eq!(tries, 4);
}

/// As MinIO's are that meet too few drives: to take it for nothing would be to put another thing in
/// its place, and to delete what it names.
#[test]
fn a_change_that_is_refused_by_a_throttle_may_be_there() {
    for code in ["SlowDown", "SlowDownWrite", "ServiceUnavailable", "ServerBusy"] {
        let (env, server) = (Env::real(), Server::start());
        let store = impatient(&env, &server);
        server.next("PUT", 1, Trouble::KeepAndRefuse(503, code));
        let outcome = env.block_on(put(&*store, "a", b"bytes")).expect("it is found out");
        assert_eq!(outcome, PutOutcome::Created, "{code}");
        server.next("PUT", 100, Trouble::KeepAndRefuse(503, code));
        let error = env.block_on(put(&*store, "b", b"bytes")).expect_err("nobody knows");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{code}: {error}");
        assert!(error.to_string().contains("throttles"), "{error}");
    }
}

#[test]
fn answers_that_break_off_are_no_answers() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    env.block_on(async {
        assert_eq!(put(&*store, "a", b"0123456789").await?, PutOutcome::Created);
        server.next("GET", 1, Trouble::CutBody(4));
        let error = store.read(request(), &name("a"), 0..10).await.expect_err("half an answer");
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        server.next("GET", 1, Trouble::LostRequest);
        let error = store.read(request(), &name("a"), 0..10).await.expect_err("a closed connection");
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(store.read(request(), &name("a"), 0..10).await?, "0123456789");
        Ok::<_, Error>(())
    })
    .expect("no errors");
}

#[test]
fn a_deadline_ends_the_wait() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    server.trouble(|_| Some(Trouble::Silence(Duration::from_secs(60))));
    let soon = || request().until(Some(env.now() + Duration::from_millis(50)));
    env.block_on(async {
        let error = store.read(soon(), &name("a"), 0..1).await.expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        let error =
            store.put_if_absent(soon(), &name("a"), placement(), Bytes::new()).await.expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "a put may still land: {error}");
        let past = request().until(Some(env.now()));
        let error =
            store.put_if_absent(past, &name("b"), placement(), Bytes::new()).await.expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "nothing was sent: {error}");
    });
    assert!(!server.requests().iter().any(|request| request == "PUT db/b"));
}

#[test]
fn silence_and_absence_are_told() {
    let (env, server) = (Env::real(), Server::start());
    let uri = crate::Uri::parse(&server.uri("db", "&timeout_seconds=1")).expect("a URI");
    let store = crate::backend::cloud::CloudObjectStore::open(&env, &uri).expect("a store");
    server.next("GET", 1, Trouble::Silence(Duration::from_secs(5)));
    let error = env.block_on(store.read(request(), &name("a"), 0..1)).expect_err("silence");
    assert!(error.kind() == ErrorKind::Retry && error.to_string().contains("in time"), "{error}");
    // A port that was free a moment ago: nobody listens there.
    let uri = server.uri("db", "");
    drop(server);
    let closed =
        crate::backend::cloud::CloudObjectStore::open(&env, &crate::Uri::parse(&uri).expect("a URI"))
            .expect("a store");
    let error = env
        .block_on(closed.put_if_absent(request(), &name("a"), placement(), Bytes::new()))
        .expect_err("nobody there");
    assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::OutcomeUnknown), "{error}");
}

#[test]
fn parts_and_their_completion_survive_a_bad_day() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    let bytes = Bytes::from(vec![7; 3 * PART_BYTES]);
    let mut calls = 0;
    server.trouble(move |asked| {
        calls += 1;
        match (asked.method.as_str(), calls % 3) {
            ("PUT", 0) => Some(Trouble::LostRequest),
            ("PUT", 1) => Some(Trouble::Refuse(503, "SlowDown")),
            _ => None,
        }
    });
    let mut completions = 0;
    server.trouble(move |asked| {
        completions += u32::from(asked.method == "POST" && asked.query.contains_key("uploadId"));
        (asked.method == "POST" && completions == 1 && asked.query.contains_key("uploadId"))
            .then_some(Trouble::LostAnswer)
    });
    env.block_on(async {
        let mut writer = store.create(request(), &name("table"), placement()).await?;
        writer.append(bytes.clone()).await?;
        writer.finish().await?;
        assert_eq!(read_whole(&*store, request(), &name("table"), u64::MAX - 1).await?, bytes);
        Ok::<_, Error>(())
    })
    .expect("no errors");
}

/// A store that throttles for some seconds delays a table, whatever its size: to end it would be to
/// write all of it again.
#[test]
fn tables_outlast_a_store_that_throttles() {
    // One more than the questions about an outcome that is not known.
    const REFUSALS: u32 = 6;
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    let mut asked_for = BTreeMap::<String, u32>::new();
    server.trouble(move |asked| {
        let (upload, part) = (asked.query.contains_key("uploadId"), asked.query.get("partNumber"));
        let times = asked_for.entry(format!("{} {} {upload} {part:?}", asked.method, asked.key)).or_default();
        *times += 1;
        let refusal = if asked.key.ends_with("503") { (503, "SlowDown") } else { (429, "TooManyRequests") };
        (asked.method != "GET" && *times <= REFUSALS).then_some(Trouble::Refuse(refusal.0, refusal.1))
    });
    let write = |key: &'static str, length: usize| -> BoxFuture<'_, Result<bool>> {
        let store = &store;
        Box::pin(async move {
            let (name, bytes) = (name(key), Bytes::from(vec![7; length]));
            let mut writer = store.create(request(), &name, placement()).await?;
            writer.append(bytes.clone()).await?;
            writer.finish().await?;
            Ok(read_whole(&**store, request(), &name, u64::MAX - 1).await? == bytes)
        })
    };
    let large = 2 * PART_BYTES + 1;
    let tables = vec![
        write("large-429", large),
        write("large-503", large),
        write("small-429", 5),
        write("small-503", 5),
    ];
    for whole in env.block_on(all(tables, 4)) {
        assert!(whole.expect("written"));
    }
}

/// A server whose put-if-absent is no such thing keeps the promises of a store badly enough to be
/// noticed.
#[test]
fn a_store_without_a_real_conditional_put_breaks_a_promise() {
    for kind in [ConditionalPut::LooksThenPuts, ConditionalPut::Ignored] {
        let (env, server) = (Env::real(), Server::with(kind, false));
        let (store, _) = open(&env, &server.uri("db", ""));
        let error = env.block_on(exclusive::prove(&env, &store)).expect_err("found out at creation");
        assert!(
            error.kind() == ErrorKind::Unsupported && error.to_string().contains("exactly one winner"),
            "{kind:?}: {error}"
        );
        let violation = env.block_on(object_store(&env, store)).expect_err("a broken promise");
        assert!(
            violation.to_string().contains("Created") || violation.to_string().contains("taken"),
            "{kind:?}: {violation}"
        );
    }
}

#[test]
fn a_sound_store_proves_itself_once() {
    let (env, server) = (Env::real(), Server::start());
    let (store, _) = open(&env, &server.uri("db", ""));
    env.block_on(exclusive::prove(&env, &store)).expect("sound");
    let races = server.requests().len();
    assert!(server.object("db/probe/put-if-absent").is_some());
    env.block_on(exclusive::prove(&env, &store)).expect("recorded");
    assert_eq!(server.requests().len(), races + 1, "one read shows that it was tried");
    // A lost answer is no second winner.
    server.next("PUT", 3, Trouble::LostAnswer);
    env.block_on(exclusive::put_if_absent(&env, &store)).expect("sound");
}

/// Keys and tokens are in no message and no description.
#[test]
fn nothing_secret_is_said() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    server.trouble(|_| Some(Trouble::Refuse(403, "AccessDenied")));
    let error = env.block_on(put(&*store, "a", b"")).expect_err("refused");
    for text in [format!("{store:?}"), error.to_string(), store.describe()] {
        for secret in ["Authorization", "Signature=", "AccessKey", "secret", "token"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

/// What S3 answers to giving an upload up, which the client does after a copy that failed, says
/// nothing about the copy.
#[test]
fn a_large_copy_that_fails_is_judged_by_what_failed() {
    let (env, server) = (Env::real(), Server::start());
    let store = impatient(&env, &server);
    server.plant("db/large", &vec![7; PART_BYTES + 1]);
    let completes = |asked: &Asked| asked.method == "POST" && asked.query.contains_key("uploadId");
    let copy = |to: &str| env.block_on(store.copy(request(), &name("large"), &name(to)));
    for (trouble, kind, is_there) in [
        (Trouble::LostAnswer, ErrorKind::OutcomeUnknown, true),
        (Trouble::LostRequest, ErrorKind::OutcomeUnknown, false),
        (Trouble::Refuse(500, "InternalError"), ErrorKind::OutcomeUnknown, false),
        (Trouble::Refuse(503, "SlowDown"), ErrorKind::OutcomeUnknown, false),
        (Trouble::Refuse(403, "AccessDenied"), ErrorKind::PermissionDenied, false),
    ] {
        let (mut is_new, shown, to) = (true, format!("{trouble:?}"), format!("to-{kind:?}-{is_there}"));
        server
            .trouble(move |asked| (completes(asked) && std::mem::take(&mut is_new)).then(|| trouble.clone()));
        let error = copy(&to).expect_err("trouble");
        assert_eq!(error.kind(), kind, "{shown}: {error}");
        assert_eq!(server.object(&format!("db/{to}")).is_some(), is_there, "{shown}");
    }
    assert_eq!(copy("good").expect("no trouble"), PutOutcome::Created);
    assert_eq!(copy("good").expect("taken"), PutOutcome::Exists);
}

/// Azure accepts a copy and makes it later: until then its name holds nothing, and for ever when it
/// comes to nothing.
#[test]
fn a_copy_that_was_accepted_is_created_once_it_is_there() {
    let (env, server) = (Env::real(), Server::start());
    let bytes = pattern(PART_BYTES + 1);
    server.plant("db/large", &bytes);
    let open = |prefix: &str| {
        let uri = crate::Uri::parse(&server.azure_uri(prefix)).expect("a URI");
        crate::backend::cloud::CloudObjectStore::open(&env, &uri).expect("a store")
    };
    let (source, target) = (open("db"), open("restored"));
    let place = source.place(&name("large")).expect("a place");
    let adopt = |to: &str, request| env.block_on(target.adopt(request, &place, &name(to)));
    assert_eq!(adopt("at-once", request()).expect("no trouble"), Some(PutOutcome::Created));
    assert_eq!(adopt("at-once", request()).expect("taken"), Some(PutOutcome::Exists));
    server.next("PUT", 1, Trouble::PendingCopy(3));
    assert_eq!(adopt("later", request()).expect("made"), Some(PutOutcome::Created));
    let read =
        env.block_on(read_whole(&target, request(), &name("later"), u64::MAX - 1)).expect("it is there");
    assert!(read == bytes, "{} bytes of {}", read.len(), bytes.len());
    server.next("PUT", 1, Trouble::PendingCopy(u32::MAX));
    let soon = request().until(Some(env.now() + Duration::from_secs(1)));
    let error = adopt("never", soon).expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    server.next("PUT", 1, Trouble::FailingCopy(2));
    let error = adopt("given-up", request()).expect_err("it comes to nothing");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("given up"), "{error}");
}

/// A store behind a server of credentials.
fn with_credentials(
    of: &Server,
    server: &Server,
    token: &std::path::Path,
) -> [(&'static str, Box<dyn Client>); 2] {
    let connector = wire::Connector::default;
    let s3 = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_retry(place::no_retries())
        .with_config(AmazonS3ConfigKey::ContainerCredentialsFullUri, format!("{}/credentials", of.url()))
        .with_config(AmazonS3ConfigKey::ContainerAuthorizationTokenFile, token.display().to_string())
        .with_http_connector(connector())
        .build();
    let azure = MicrosoftAzureBuilder::new()
        .with_container_name("bucket")
        .with_account("tests")
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_retry(place::no_retries())
        .with_config(AzureConfigKey::MsiEndpoint, of.url())
        .with_http_connector(connector())
        .build();
    [("s3", Box::new(s3.expect("a client"))), ("az", Box::new(azure.expect("a client")))]
}

/// An answer of who gives out credentials says nothing about objects.
#[test]
fn who_gives_no_credentials_does_not_say_that_an_object_is_not_there() {
    let (objects, credentials, directory) =
        (Server::start(), Server::start(), tempfile::tempdir().expect("a directory"));
    let token = directory.path().join("token");
    std::fs::write(&token, "token").expect("a file of a token");
    for same_host in [false, true] {
        let of = if same_host { &objects } else { &credentials };
        for (scheme, client) in with_credentials(of, &objects, &token) {
            for (status, code, kind) in [
                (404, "NotFound", ErrorKind::PermissionDenied),
                (412, "PreconditionFailed", ErrorKind::PermissionDenied),
                (409, "Conflict", ErrorKind::PermissionDenied),
                (403, "AccessDenied", ErrorKind::PermissionDenied),
                (503, "SlowDown", ErrorKind::Retry),
            ] {
                of.next("GET", 1, Trouble::Refuse(status, code));
                let failure = listen(&*client).expect_err("no credentials");
                assert!(
                    failure.kind == kind && !failure.is_uncertain,
                    "{scheme} {status}, same host {same_host}: {failure:?}"
                );
                let error = failure.error("testing", "it").to_string();
                assert!(error.contains("credentials"), "{error}");
            }
        }
    }
    assert!(
        !objects.requests().iter().any(|request| request.ends_with(" x")),
        "nothing was asked of the store"
    );
    let anonymous =
        place::open(&crate::Uri::parse(&objects.uri("", "")).expect("a URI")).expect("a client").1;
    assert_eq!(
        listen(&*anonymous).expect_err("no object").kind,
        ErrorKind::NotFound,
        "the store itself may say so"
    );
}

/// Asks for the object `x` on a runtime, as the store does.
fn listen(client: &dyn Client) -> std::result::Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(wire::listen(async { client.head(&"x".into()).await.map(drop) }))
}
