use super::*;
use crate::conformance;

#[test]
fn objects_keep_every_promise() {
    let env = Env::real();
    env.block_on(conformance::object_store(&env, Arc::new(MemoryObjectStore::unnamed(&env))))
        .expect("all promises");
}
