//! A database's stores in a simulated world, whose faults a test says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{Builder, Db, Env, Options, Registry};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, LogStore, ObjectStore, Purpose, Request, Uri};

/// Stores in memory. `plan` says the faults of the objects.
pub(crate) struct Stores {
    pub(crate) env: Env,
    pub(crate) plan: FaultPlan,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log: Arc<dyn LogStore>,
    /// With which each opening begins.
    options: &'static [&'static str],
}

impl Stores {
    pub(crate) fn new(env: &Env, options: &'static [&'static str]) -> Stores {
        let plan = FaultPlan::scripted();
        let objects =
            Arc::new(FaultObjectStore::new(env, Arc::new(MemoryObjectStore::unnamed(env)), plan.clone()));
        Stores { env: env.clone(), plan, objects, log: Arc::new(MemoryLogStore::unnamed(env)), options }
    }

    pub(crate) fn builder(&self, options: &[&str]) -> Builder {
        let options = Options::parse(self.options.iter().chain(options).copied()).unwrap();
        Db::builder("mem://test")
            .env(self.env.clone())
            .options(options)
            .stores(Arc::clone(&self.objects), Arc::clone(&self.log))
    }

    pub(crate) async fn open(&self, options: &[&str]) -> Db {
        self.builder(options).open().await.unwrap()
    }

    /// Names of the objects that the store holds.
    pub(crate) async fn names(&self) -> BTreeSet<String> {
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = self.objects.list(request, "", None, 100_000).await.unwrap();
        listed.objects.iter().map(|object| object.name.to_string()).collect()
    }

    /// Names of the tables that the store holds.
    pub(crate) async fn tables(&self) -> BTreeSet<String> {
        self.names().await.into_iter().filter(|name| name.contains("/table/")).collect()
    }
}

/// A registry in whose stores of `scheme` requests for names with this part take a minute.
pub(crate) fn slow_registry(registry: &Registry, scheme: &str, part: &'static str) -> Registry {
    let plan = FaultPlan::scripted();
    plan.inject(Rule::new(
        move |asked: &Asked<'_>| asked.name.contains(part),
        Fault::Delay(Duration::from_secs(60)),
    ));
    faulty_registry(registry, scheme, &plan)
}

/// A registry whose stores of `scheme` have these faults.
pub(crate) fn faulty_registry(registry: &Registry, scheme: &str, plan: &FaultPlan) -> Registry {
    let (whole, plan) = (registry.clone(), plan.clone());
    let mut faulty = registry.clone();
    let factory = move |env: &Env, uri: &Uri| {
        Ok(Arc::new(FaultObjectStore::new(env, whole.open_object_store(env, uri)?, plan.clone()))
            as Arc<dyn ObjectStore>)
    };
    faulty.register_object_store(scheme, Arc::new(factory));
    faulty
}

/// Runs a test in a process of a world of its own.
pub(crate) fn run<F>(options: &'static [&'static str], test: impl FnOnce(Stores) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let process = World::new(1).process("writer");
    process.run(test(Stores::new(&process.env(), options))).unwrap();
}
