//! Opening stores by URI.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_storage::{
    Epoch, ErrorKind, Life, LogStore, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome,
    Registry, Request, Result, Uri,
};

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

fn open(registry: &Registry, env: &Env, uri: &str) -> Result<(Arc<dyn ObjectStore>, Arc<dyn LogStore>)> {
    let uri = Uri::parse(uri)?;
    let objects = registry.open_object_store(env, &uri)?;
    let log = registry.open_log_store(env, &uri, None, &objects)?;
    Ok((objects, log))
}

async fn put(store: &dyn ObjectStore, name: &str) -> Result<PutOutcome> {
    let placement = Placement::new(ObjectKind::Other, Life::Short);
    store.put_if_absent(request(), &ObjectName::new(name)?, placement, Bytes::from_static(b"bytes")).await
}

#[test]
fn handles_of_one_name_share_and_others_do_not() {
    let env = Env::real();
    env.block_on(async {
        let (one, _) = open(&Registry::default(), &env, "mem://registry-one")?;
        let (same, _) = open(&Registry::default(), &env, "mem://registry-one")?;
        let (other, _) = open(&Registry::default(), &env, "mem://registry-other")?;
        assert_eq!(put(&*one, "a").await?, PutOutcome::Created);
        assert_eq!(put(&*same, "a").await?, PutOutcome::Exists);
        assert_eq!(put(&*other, "a").await?, PutOutcome::Created);
        Ok::<_, tombolo_storage::Error>(())
    })
    .expect("no errors");
}

#[test]
fn simulated_worlds_do_not_share_memory() {
    let registry = Registry::default();
    for seed in 0..2 {
        let world = World::new(seed);
        let process = world.process("p");
        let env = process.env();
        let outcome = process.run(async move {
            let (store, _) = open(&Registry::default(), &env, "mem://shared")?;
            put(&*store, "a").await
        });
        assert!(matches!(outcome, Some(Ok(PutOutcome::Created))), "{outcome:?}");
    }
    // Across simulated restarts, a registry that is kept keeps it.
    let world = World::new(9);
    for expected in [PutOutcome::Created, PutOutcome::Exists] {
        let process = world.process("p");
        let (env, registry) = (process.env(), registry.clone());
        let outcome = process.run(async move {
            let (store, _) = open(&registry, &env, "mem://kept")?;
            put(&*store, "a").await
        });
        assert!(matches!(outcome, Some(Ok(outcome)) if outcome == expected), "{outcome:?}");
        process.kill();
    }
}

#[test]
fn mistakes_are_named_and_answered() {
    let env = Env::real();
    let registry = Registry::default();
    for (uri, said) in [
        ("ftp://bucket/x", "unknown object store scheme"),
        // All that there are, those of cargo features among them.
        ("ftp://bucket/x", "file, "),
        ("ftp://bucket/x", "mem"),
        ("mem://", "mem://orders"),
        ("mem://x?form=written", "takes no parameters"),
        ("file://relative/path", "three slashes"),
        ("file:///nowhere/orders?fom=written", "form"),
        ("file:///nowhere/orders?form=paper", "form=mapped or form=written"),
        ("file:///nowhere/orders?single_host=1", "single_host=yes or single_host=no"),
        ("mem://x?trace=here", "trace=/tmp/traces"),
        ("mem://x?retry_seconds=0", "retry_seconds=120"),
        ("mem://x?retry_seconds=-1", "retry_seconds=120"),
        ("mem://x?retry_seconds=99999999999999999999", "retry_seconds=120"),
    ] {
        let error = open(&registry, &env, uri).expect_err(uri);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{uri}: {error}");
        assert!(error.to_string().contains(said), "{uri}: {error}");
    }
}

#[test]
fn a_scheme_without_a_log_says_which_there_are() {
    let env = Env::real();
    let mut registry = Registry::default();
    registry.register_object_store(
        "only-objects",
        Arc::new(|env, _| Registry::default().open_object_store(env, &Uri::parse("mem://x")?)),
    );
    let error = open(&registry, &env, "only-objects://x").expect_err("no log");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        ["file, ", "mem, ", "objects"].iter().all(|scheme| error.to_string().contains(scheme)),
        "{error}"
    );
    let uri = Uri::parse("only-objects://x").expect("a URI");
    let objects = registry.open_object_store(&env, &uri).expect("objects");
    let log = Uri::parse("mem://log").expect("a URI");
    assert!(registry.open_log_store(&env, &uri, Some(&log), &objects).is_ok());
    let unknown = Uri::parse("near://a,b,c").expect("a URI");
    let error = registry.open_log_store(&env, &uri, Some(&unknown), &objects).expect_err("unknown");
    assert!(error.to_string().contains("unknown log scheme"), "{error}");
}

#[test]
fn a_trace_is_one_parameter_away() {
    let world = World::new(1);
    let process = world.process("p");
    let env = process.env();
    let outcome = process.run(async move {
        {
            let (store, _log) = open(&Registry::default(), &env, "file:///data?trace=/traces")?;
            put(&*store, "a").await?;
        }
        let files = env.files().list_atomically(std::path::Path::new("/traces")).expect("traces");
        Ok::<_, tombolo_storage::Error>(files.into_iter().map(|entry| entry.name).collect::<Vec<_>>())
    });
    let files = outcome.expect("it lives").expect("no errors");
    assert_eq!(files.len(), 2, "{files:?}");
    let lines = files.iter().map(|file| {
        String::from_utf8(world.host(0).content(format!("/traces/{file}")).expect("read")).expect("text")
    });
    let all: String = lines.collect();
    assert!(
        all.contains(r#""purpose":"verify","kind":"put","name":"a","bytes":5"#)
            && all.contains(r#""outcome":"created""#),
        "{all}"
    );
}
