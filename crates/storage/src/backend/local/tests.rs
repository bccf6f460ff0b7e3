use super::*;
use crate::conformance;

#[test]
fn keeps_every_promise_on_a_real_disk() {
    let env = Env::real();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = LocalObjectStore::new(&env, directory.path().join("not/yet/there"), LocalOptions::default()).expect("a store");
    env.block_on(conformance::object_store(&env, Arc::new(store))).expect("all promises");
}
