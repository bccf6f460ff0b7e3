//! Probing an object store.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;

use super::ProbePlan;
use super::measure::{Measured, Measurement, measure, summary};
use crate::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome,
    Request, Result,
};

/// Bytes handed to a writer at once, as a table's writer does.
const PIECE_BYTES: u64 = 256 << 10;
/// Objects put in one measurement at most: their names are listed, and deleted again.
const PUTS_MAX: u64 = 20_000;
/// Bytes put in one measurement at most.
const PUT_BYTES_MAX: u64 = 256 << 20;
/// Names of one page when the prefix is emptied.
const PAGE: usize = 1000;

/// Bytes that no store compresses.
fn noise(env: &Env, length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&env.random_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

struct Probe<'a> {
    env: &'a Env,
    store: &'a Arc<dyn ObjectStore>,
    plan: &'a ProbePlan,
    told: &'a (dyn Fn(&Measured) -> Result<()> + Send + Sync),
    prefix: String,
    measured: Vec<Measured>,
}

/// Measures an object store; `told` hears of each figure as it is there; its error ends the rest.
///
/// # Errors
/// `Invalid` for a plan that makes no sense; the first error of the store.
pub async fn objects(
    env: &Env,
    store: &Arc<dyn ObjectStore>,
    plan: &ProbePlan,
    told: &(dyn Fn(&Measured) -> Result<()> + Send + Sync),
) -> Result<Vec<Measured>> {
    plan.check()?;
    let mut probe = Probe {
        env,
        store,
        plan,
        told,
        prefix: format!("probe-{:016x}", env.random_u64()),
        measured: Vec::new(),
    };
    let outcome = probe.run().await;
    let emptied = probe.empty().await;
    outcome.and(emptied).map(|()| probe.measured)
}

fn flush() -> Request {
    Request::new(Purpose::Flush, Epoch::NONE)
}

impl Probe<'_> {
    fn tell(&mut self, measured: Measured) -> Result<()> {
        let told = (self.told)(&measured);
        self.measured.push(measured);
        told
    }

    async fn run(&mut self) -> Result<()> {
        let data = self.write().await?;
        self.read(&data).await?;
        for size in self.plan.sizes.clone() {
            for depth in self.plan.depths.clone() {
                self.put(size, depth).await?;
            }
        }
        self.list().await?;
        self.delete().await
    }

    /// Writes the object that is then read.
    async fn write(&mut self) -> Result<ObjectName> {
        let name = ObjectName::new(format!("{}/data", self.prefix))?;
        let piece = noise(self.env, usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX));
        let began = self.env.now();
        let mut writer =
            self.store.create(flush(), &name, Placement::new(ObjectKind::Table, Life::Short)).await?;
        let mut written = 0;
        while written < self.plan.data_bytes {
            writer.append(piece.clone()).await?;
            written += PIECE_BYTES;
        }
        writer.finish().await?;
        let elapsed = self.env.now().since(began);
        let nanos = [u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)];
        self.tell(summary("write", written, 1, 1, elapsed.as_secs_f64(), &nanos))?;
        Ok(name)
    }

    async fn read(&mut self, name: &ObjectName) -> Result<()> {
        for size in self.plan.sizes.clone() {
            for depth in self.plan.depths.clone() {
                let (env, store, name) = (self.env.clone(), Arc::clone(self.store), name.clone());
                let (size, places) = (size as u64, self.plan.data_bytes / size as u64);
                let measurement = self.measurement("read", size, depth, u64::MAX);
                let measured = measure(self.env, measurement, move |_| {
                    let (store, name, start) =
                        (Arc::clone(&store), name.clone(), env.random_u64() % places * size);
                    Box::pin(async move {
                        let bytes = store
                            .read(Request::new(Purpose::Get, Epoch::NONE), &name, start..start + size)
                            .await?;
                        if bytes.len() as u64 == size {
                            return Ok(());
                        }
                        Err(Error::corrupt(&name, start, format!("{size} bytes"), bytes.len()))
                    })
                });
                self.tell(measured.await?)?;
            }
        }
        Ok(())
    }

    fn measurement(
        &self,
        operation: &'static str,
        bytes: u64,
        depth: usize,
        operations_max: u64,
    ) -> Measurement {
        Measurement { operation, bytes, depth, duration: self.plan.duration, operations_max }
    }

    async fn put(&mut self, size: usize, depth: usize) -> Result<()> {
        let operations_max = PUTS_MAX.min(PUT_BYTES_MAX / size as u64 + 1);
        let measurement = self.measurement("put", size as u64, depth, operations_max);
        let (store, prefix, bytes) = (Arc::clone(self.store), self.prefix.clone(), noise(self.env, size));
        let measured = measure(self.env, measurement, move |number| {
            let (store, bytes) = (Arc::clone(&store), bytes.clone());
            let name = ObjectName::new(format!("{prefix}/put/{size}-{depth}-{number:08}"));
            Box::pin(async move {
                let name = name?;
                let request = Request::new(Purpose::Manifest, Epoch::NONE);
                match store
                    .put_if_absent(request, &name, Placement::new(ObjectKind::Other, Life::Short), bytes)
                    .await?
                {
                    PutOutcome::Created => Ok(()),
                    PutOutcome::Exists => {
                        Err(Error::new(ErrorKind::AlreadyExists, "a fresh name is taken").object(&name))
                    }
                }
            })
        });
        self.tell(measured.await?)?;
        Ok(())
    }

    /// Lists of one name, as the manifest proves its newest record, among the names that were put.
    async fn list(&mut self) -> Result<()> {
        let (store, prefix) = (Arc::clone(self.store), format!("{}/put/", self.prefix));
        let measured = measure(self.env, self.measurement("list", 0, 1, u64::MAX), move |_| {
            let (store, prefix) = (Arc::clone(&store), prefix.clone());
            Box::pin(async move {
                store.list(Request::new(Purpose::Manifest, Epoch::NONE), &prefix, None, 1).await.map(drop)
            })
        });
        self.tell(measured.await?)?;
        Ok(())
    }

    async fn delete(&mut self) -> Result<()> {
        let page = self.store.list(flush(), &format!("{}/put/", self.prefix), None, PAGE).await?;
        let names: Vec<ObjectName> = page.objects.into_iter().map(|info| info.name).collect();
        let store = Arc::clone(self.store);
        let measured =
            measure(self.env, self.measurement("delete", 0, 1, names.len() as u64), move |number| {
                let (store, name) = (
                    Arc::clone(&store),
                    usize::try_from(number).ok().and_then(|number| names.get(number)).cloned(),
                );
                Box::pin(async move {
                    match name {
                        Some(name) => {
                            store.delete(Request::new(Purpose::Collection, Epoch::NONE), &name).await
                        }
                        None => Ok(()),
                    }
                })
            });
        self.tell(measured.await?)?;
        Ok(())
    }

    /// Deletes all that was made.
    async fn empty(&self) -> Result<()> {
        loop {
            let page = self.store.list(flush(), &format!("{}/", self.prefix), None, PAGE).await?;
            for info in &page.objects {
                self.store.delete(Request::new(Purpose::Collection, Epoch::NONE), &info.name).await?;
            }
            if page.objects.is_empty() || !page.more {
                break;
            }
        }
        self.store.sweep(Request::new(Purpose::Collection, Epoch::NONE)).await.map(drop)
    }
}
