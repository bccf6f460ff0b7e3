use tombolo_env::simulated::World;
use tombolo_segment::announce::Place;
use tombolo_storage::ObjectStore;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};

use super::*;

/// Databases share the workers that they know: one that closes while it looks does not take the
/// registry with it.
#[test]
fn a_look_that_is_given_up_is_made_again() {
    let world = World::new(1);
    let env = world.process("writer").env();
    let plan = FaultPlan::scripted();
    let store: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let store: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    let registry = Registry::new(&env, Place::Store(store), "workers").unwrap();
    let workers = Workers::new(&env, Found::Announced(Box::new(registry)), None, None);
    plan.inject(Rule::of_kind(RequestKind::List, Fault::Delay(Duration::from_secs(2))).times(1));
    world.run_until(async {
        let given_up = within(&env, Duration::from_secs(1), workers.0.candidates()).await;
        assert!(given_up.is_none());
        assert!(workers.0.candidates().await.is_empty());
        assert!(workers.0.state.lock().looked.is_some(), "it was looked");
    });
}
