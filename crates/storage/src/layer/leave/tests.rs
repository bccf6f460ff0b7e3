//! What a store says of itself reaches the engine through every layer.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env};

use crate::backend::memory::MemoryObjectStore;
use crate::layer::fault::{FaultObjectStore, FaultPlan};
use crate::layer::flow::FlowObjectStore;
use crate::layer::hedge::HedgeObjectStore;
use crate::layer::meter::MeterObjectStore;
use crate::layer::retry::{RetryObjectStore, RetryPolicy};
use crate::layer::throttle::{Throttle, ThrottleObjectStore};
use crate::layer::trace::{TraceObjectStore, Tracer};
use crate::{ObjectName, ObjectStore, Request, Result, StoreTraits};

/// A store that says that.
#[derive(Debug)]
struct Says {
    inner: MemoryObjectStore,
    traits: StoreTraits,
}

impl ObjectStore for Says {
    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.inner.read(request, name, range)
    }

    fn traits(&self) -> StoreTraits {
        self.traits
    }

    leave_to_inner!(create put_if_absent read_ranges length list delete copy survival describe);
}

#[test]
fn no_layer_changes_what_the_store_below_it_says() {
    let env = Env::real();
    let plan = FaultPlan::scripted();
    for (must_prove_put_if_absent, lists_may_walk) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let traits = StoreTraits { must_prove_put_if_absent, lists_may_walk };
        let store: Arc<dyn ObjectStore> = Arc::new(Says { inner: MemoryObjectStore::unnamed(&env), traits });
        let below = || Arc::clone(&store);
        let layers: [Arc<dyn ObjectStore>; 7] = [
            Arc::new(FaultObjectStore::new(&env, below(), plan.clone())),
            Arc::new(FlowObjectStore::new(&env, below())),
            Arc::new(HedgeObjectStore::new(&env, below())),
            MeterObjectStore::wrap(below()),
            Arc::new(RetryObjectStore::new(&env, below(), RetryPolicy::default())),
            Arc::new(ThrottleObjectStore::new(&env, below(), Throttle::default())),
            Arc::new(TraceObjectStore::new(below(), Tracer::new(&env))),
        ];
        for layer in layers {
            assert_eq!(layer.traits(), traits, "{layer:?}");
        }
    }
    plan.set_lists_walk(true);
    let traits = FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan).traits();
    assert_eq!(traits, StoreTraits { must_prove_put_if_absent: false, lists_may_walk: true });
}
