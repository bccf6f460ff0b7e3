//! One world with databases by name, all on one store in memory.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Builder, Db, Env, Options, Registry};
use tombolo_env::simulated::World;
use tombolo_storage::{
    Epoch, Life, ObjectInfo, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Uri,
};

#[derive(Clone)]
pub struct Bucket {
    pub env: Env,
    pub registry: Registry,
    /// Of the databases. When tables are rewritten the tests say.
    settings: &'static [&'static str],
}

impl Bucket {
    pub fn builder(&self, name: &str) -> Builder {
        let settings = self.settings.iter().copied().chain(["automatic_compaction=false"]);
        Db::builder(format!("mem://bucket/{name}"))
            .registry(self.registry.clone())
            .env(self.env.clone())
            .options(Options::parse(settings).unwrap())
    }

    pub async fn open(&self, name: &str) -> Db {
        self.builder(name).open().await.unwrap()
    }

    pub fn store(&self, name: &str) -> Arc<dyn ObjectStore> {
        let uri = Uri::parse(&format!("mem://bucket/{name}")).unwrap();
        self.registry.open_object_store(&self.env, &uri).unwrap()
    }

    /// The objects of a database with `part` in their names.
    pub async fn listed(&self, name: &str, part: &str) -> Vec<ObjectInfo> {
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = self.store(name).list(request, "", None, 100_000).await.unwrap();
        listed.objects.into_iter().filter(|object| object.name.as_str().contains(part)).collect()
    }

    /// The bytes of an object.
    pub async fn bytes(&self, name: &str, object: &ObjectName) -> Vec<u8> {
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        self.store(name).read(request, object, 0..u64::MAX).await.unwrap().to_vec()
    }

    /// Deletes an object, as nobody should.
    pub async fn delete(&self, name: &str, object: &ObjectName) {
        self.store(name).delete(Request::new(Purpose::Collection, Epoch::NONE), object).await.unwrap();
    }

    pub async fn replace(&self, name: &str, object: &ObjectName, bytes: Vec<u8>) {
        self.delete(name, object).await;
        let request = Request::new(Purpose::Collection, Epoch::NONE);
        let placement = Placement::new(ObjectKind::Table, Life::Short);
        self.store(name).put_if_absent(request, object, placement, bytes.into()).await.unwrap();
    }

    /// A moment, in which collection looks again.
    pub async fn settle(&self) {
        self.env.sleep(Duration::from_secs(1)).await;
    }
}

/// Runs a test in a world of its own.
pub fn run<F: Future<Output = ()> + Send + 'static>(
    settings: &'static [&'static str],
    test: impl FnOnce(Bucket) -> F,
) {
    let world = World::new(1);
    let process = world.process("p");
    let bucket = Bucket { env: process.env(), registry: Registry::with_defaults(), settings };
    process.run(test(bucket)).unwrap();
}
