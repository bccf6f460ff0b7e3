//! The promises of both interfaces, on zones made of a file: for real, and in simulated worlds.

use std::sync::Arc;

use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_storage::conformance::log::{LogSubject, check_log_store};
use tombolo_storage::conformance::object_store;
use tombolo_storage::{ObjectStore, Registry, Uri};

fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_zoned::register(&mut registry);
    registry
}

/// Large enough for the largest log entries, small enough that zones change often.
const SHAPE: &str = "zone=1MiB&zones=64&capacity=768KiB&open=8&active=12";

fn objects(env: &Env, uri: &str) -> Arc<dyn ObjectStore> {
    registry().open_object_store(env, &Uri::parse(uri).expect("a URI")).expect("a store")
}

fn subject(env: &Env, uri: &str) -> LogSubject {
    let registry = registry();
    let uri = Uri::parse(uri).expect("a URI");
    let objects = registry.open_object_store(env, &uri).expect("a store");
    let store = registry.open_log_store(env, &uri, None, &objects).expect("its log");
    LogSubject { env: env.clone(), store, objects }
}

#[test]
fn objects_keep_every_promise() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real();
    let store = objects(&env, &format!("zoned+file://{}/zones?{SHAPE}", directory.path().display()));
    env.block_on(object_store(&env, Arc::clone(&store))).expect("conformance");
    // And below a name, on the same device.
    drop(store);
    let store = objects(&env, &format!("zoned+file://{}/zones/orders/new", directory.path().display()));
    env.block_on(object_store(&env, store)).expect("conformance below a name");
}

#[test]
fn logs_keep_every_promise() {
    let directory = tempfile::tempdir().expect("a directory");
    let uri = format!("zoned+file://{}/zones?{SHAPE}", directory.path().display());
    check_log_store(&subject(&Env::real(), &uri));
}

#[test]
fn both_keep_their_promises_in_simulated_worlds() {
    for seed in 0..2 {
        let world = World::new(seed);
        let process = world.process("conformance");
        let uri = format!("zoned+file:///zones?{SHAPE}");
        let subject = subject(&process.env(), &uri);
        check_log_store(&subject);
        let (env, objects) = (process.env(), Arc::clone(&subject.objects));
        let checked = process.run(async move { object_store(&env, objects).await });
        checked.expect("the process lives").expect("conformance");
    }
}

/// A zoned block device that was formatted, as a URI: its objects are deleted.
const DEVICE: &str = "TOMBOLO_ZONED_DEVICE";

#[test]
fn a_device_that_is_named_keeps_the_promises_of_objects() {
    let Ok(uri) = std::env::var(DEVICE) else {
        println!("skipped: {DEVICE} names no device; cargo xtask zoned has one");
        return;
    };
    let env = Env::real();
    env.block_on(object_store(&env, objects(&env, &format!("{uri}/objects")))).expect("conformance");
}

#[test]
fn a_device_that_is_named_keeps_the_promises_of_logs() {
    let Ok(uri) = std::env::var(DEVICE) else {
        println!("skipped: {DEVICE} names no device; cargo xtask zoned has one");
        return;
    };
    check_log_store(&subject(&Env::real(), &format!("{uri}/logs")));
}
