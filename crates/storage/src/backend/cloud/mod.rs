//! Stores of the cloud: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, and
//! whatever speaks their protocols.
//!
//! The crate object_store speaks the protocols; this module gives its requests the contract of
//! [`ObjectStore`]:
//!
//! - every request runs on the runtime of remote stores (`crate::backend::remote`), the more
//!   urgent first, up to its deadline;
//! - an error says whether the request may have taken effect (`failure`), from what came over the
//!   wire (`wire`);
//! - a put whose answer was lost is made again until the store says what holds the name, and told
//!   apart by its attempt's mark (`put`);
//! - objects that come in pieces are one put, or an upload of parts while the pieces come
//!   (`writer`).
//!
//! Nothing here is tried again without bound: waiting for a store that fails is the retry layer's,
//! and the log's.
//!
//! Promise 4: a list of one name is one request for one key. All three protocols answer lists in
//! ascending order from one consistent view.

mod answer;
mod failure;
mod list;
mod place;
mod put;
mod read;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{CopyMode, CopyOptions, GetOptions, ObjectStoreExt};
use tokio::task::JoinHandle;
use tombolo_env::{BoxFuture, Env};

use self::answer::CopyStatus;
use self::failure::Failure;
use self::place::Bucket;
use crate::backend::begin;
use crate::backend::object_log::ObjectLogStore;
use crate::backend::remote::{Attempts, Effect, THREADS, Tasks};
use crate::facts::Fact;
use crate::object::check_put;
use crate::{
    Error, ErrorKind, FailureDomain, Listed, LogStore, Meter, ObjectName, ObjectStore, ObjectWriter,
    Placement, Purpose, PutOutcome, Registry, Request, Result, StoreTraits, Survival, Uri,
};

/// Objects up to this size are copied by reading and putting them: two requests, of which the
/// second's outcome can be told.
const COPY_THROUGH_BYTES_MAX: u64 = 8 << 20;

/// Requests on their way at once, of one store.
const IN_FLIGHT_MAX: usize = 128;

/// What object_store's clients can do, all in one.
trait Client: object_store::ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: object_store::ObjectStore + MultipartStore + PaginatedListStore> Client for T {}

/// Objects of a bucket whose keys begin with a prefix. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CloudObjectStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tasks: Tasks,
    client: ClientHandle,
    bucket: Bucket,
    meter: Arc<Meter>,
}

/// A client that says nothing of itself: its credentials are not for logs.
#[derive(Clone)]
struct ClientHandle(Arc<dyn Client>);

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

impl CloudObjectStore {
    /// The store that a URI names. Sends nothing.
    ///
    /// # Errors
    /// `Invalid` for a fault in the URI, or in what the environment says about the account.
    pub fn open(env: &Env, uri: &Uri) -> Result<CloudObjectStore> {
        let (bucket, client) = place::open(uri)?;
        let tasks = Tasks::new(env, IN_FLIGHT_MAX)?;
        let client = ClientHandle(client);
        Ok(CloudObjectStore {
            shared: Arc::new(Shared { tasks, client, bucket, meter: Arc::new(Meter::of_network()) }),
        })
    }

    /// Runs work in the background whose requests are counted.
    fn spawn(
        &self,
        purpose: Purpose,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        self.shared.tasks.runtime.spawn(wire::counted(Arc::clone(&self.shared.meter), purpose, work))
    }

    fn env(&self) -> &Env {
        &self.shared.tasks.env
    }

    fn bucket(&self) -> &Bucket {
        &self.shared.bucket
    }

    fn client(&self) -> Arc<dyn Client> {
        Arc::clone(&self.shared.client.0)
    }

    fn key(&self, name: &ObjectName) -> Result<Path> {
        self.bucket().key(name.as_str())
    }

    /// Runs a request's work on the runtime, when its turn comes, up to its deadline.
    async fn run<T: Send + 'static>(
        &self,
        request: Request,
        doing: &str,
        effect: Effect,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let work = wire::counted(Arc::clone(&self.shared.meter), request.purpose, work);
        self.shared.tasks.run(request, doing, effect, work).await
    }

    /// One request that changes nothing.
    async fn ask<T: Send + 'static>(
        &self,
        request: Request,
        doing: &'static str,
        name: &ObjectName,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T> {
        let place = self.bucket().place(name.as_str());
        self.run(request, doing, Effect::Nothing, async move {
            wire::listen(work).await.map_err(|failure| failure.error(doing, &place))
        })
        .await
    }

    /// An object's length, and nothing else of it.
    async fn head(&self, request: Request, name: &ObjectName) -> Result<u64> {
        let (client, key) = (self.client(), self.key(name)?);
        self.ask(request, "asking for an object's length", name, async move {
            client.head(&key).await.map(|meta| meta.size)
        })
        .await
    }

    async fn delete_now(&self, request: Request, name: &ObjectName) -> Result<()> {
        const DOING: &str = "deleting an object";
        let (client, key, env) = (self.client(), self.key(name)?, self.env().clone());
        let place = self.bucket().place(name.as_str());
        let work = async move {
            let mut attempts = Attempts::new(&env);
            loop {
                match wire::listen(client.delete(&key)).await {
                    Ok(()) => return Ok(()),
                    Err(failure) if failure.kind == ErrorKind::NotFound => return Ok(()),
                    // Deleting again does no harm: names are not used again.
                    Err(failure) if failure.is_uncertain && attempts.again().await => {}
                    Err(failure) if failure.is_uncertain || attempts.any() => {
                        return Err(failure.unknown(DOING, &place));
                    }
                    Err(failure) => return Err(failure.error(DOING, &place)),
                }
            }
        };
        self.run(request, DOING, Effect::Change, work).await
    }

    /// Copies from a key of the same bucket.
    async fn copy_from(&self, request: Request, from: Path, to: &ObjectName) -> Result<PutOutcome> {
        const DOING: &str = "copying an object";
        let (client, place) = (self.client(), self.bucket().place(from.as_ref()));
        let source = from.clone();
        let head = async move {
            wire::listen(client.head(&source)).await.map_err(|failure| failure.error(DOING, &place))
        };
        let length = self.run(request, DOING, Effect::Nothing, head).await?.size;
        if length <= COPY_THROUGH_BYTES_MAX {
            let (client, place) = (self.client(), self.bucket().place(from.as_ref()));
            let read = async move {
                let read = async { client.get_opts(&from, GetOptions::default()).await?.bytes().await };
                wire::listen(read).await.map_err(|failure| failure.error(DOING, &place))
            };
            let bytes = self.run(request, DOING, Effect::Nothing, read).await?;
            return self.put(request, to, bytes).await;
        }
        let (client, key, place, env) =
            (self.client(), self.key(to)?, self.bucket().place(to.as_str()), self.env().clone());
        let work = async move {
            let options = CopyOptions::new().with_mode(CopyMode::Create);
            match wire::hear(client.copy_opts(&from, &key, options)).await {
                Ok(((), answer)) if answer.copy == CopyStatus::Pending => {
                    match comes_about(&*client, &env, &key, length).await {
                        Ok(CopyStatus::Made) => Ok(PutOutcome::Created),
                        Ok(CopyStatus::Pending) => Err(Error::new(
                            ErrorKind::OutcomeUnknown,
                            format!("{DOING}: the service has not made in time what it accepted"),
                        )
                        .object(place)
                        .advice("look at the name later: it holds nothing until the copy is made")),
                        Ok(CopyStatus::GivenUp) => Err(Error::new(
                            ErrorKind::OutcomeUnknown,
                            format!("{DOING}: the service has given up what it accepted"),
                        )
                        .object(place)
                        .advice("copy to another name: this one holds an empty object")),
                        Err(failure) => Err(failure.unknown(DOING, &place)),
                    }
                }
                Ok(_) => Ok(PutOutcome::Created),
                Err(Failure { kind: ErrorKind::AlreadyExists, .. }) => Ok(PutOutcome::Exists),
                Err(failure) if failure.is_uncertain => Err(failure.unknown(DOING, &place)),
                Err(failure) => Err(failure.error(DOING, &place)),
            }
        };
        self.run(request, DOING, Effect::Change, work).await
    }
}

impl ObjectStore for CloudObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            begin(self.env(), request, "creating an object").await?;
            Ok(Box::new(writer::CloudWriter::new(self.clone(), request, name.clone())?)
                as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            check_put(name, bytes.len())?;
            self.put(request, name, bytes).await
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(self.read_range(request, name, range))
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(self.read_several(request, name, ranges))
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.head(request, name))
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(self.list_names(request, prefix, after, limit))
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.delete_now(request, name))
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move { self.copy_from(request, self.key(from)?, to).await })
    }

    fn place(&self, name: &ObjectName) -> Option<String> {
        Some(format!("{}{}", self.bucket().identity(), self.bucket().key(name.as_str()).ok()?))
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(async move {
            match place.strip_prefix(self.bucket().identity().as_str()).and_then(|key| Path::parse(key).ok())
            {
                Some(key) => self.copy_from(request, key, to).await.map(Some),
                None => Ok(None),
            }
        })
    }

    fn facts(&self, request: Request) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(async move {
            let began = self.env().now();
            self.list_names(request, "", None, 1).await?;
            let took = self.env().now().since(began);
            let reached =
                Fact::fine("bucket", format!("{}, answers a list in {took:.1?}", self.bucket().identity()));
            let threads = Fact::fine("requests", format!("{THREADS} threads, {IN_FLIGHT_MAX} at once"));
            Ok(vec![reached, threads, self.bucket().transport()])
        })
    }

    // Lists of the large operators do not walk; those of servers on top of a file system do, and
    // nothing in their answers tells.
    fn traits(&self) -> StoreTraits {
        StoreTraits { must_prove_put_if_absent: true, lists_may_walk: true }
    }

    fn meter(&self) -> Option<&Arc<Meter>> {
        Some(&self.shared.meter)
    }

    fn survival(&self) -> Survival {
        let durable = "survives whatever the store's operator promises for an object that was acknowledged; \
            no loss of this machine matters";
        Survival {
            store: self.describe(),
            domain: FailureDomain::Service,
            accepted: durable.into(),
            durable: durable.into(),
            notes: vec![
                "One writer at a time, decided by the store's put-if-absent: it is tried by many at once \
                when a database is created."
                    .into(),
                "Versioning, replication to another bucket and object lock are the bucket's own; lifecycle \
                rules that delete or move objects \
                 under this prefix damage the database, save one that ends unfinished multipart uploads, \
                 which it should have."
                    .into(),
            ],
        }
    }

    fn describe(&self) -> String {
        self.bucket().describe()
    }
}

/// Waits for a copy that the service goes on with: what became of it. Until it is made its name
/// holds nothing.
async fn comes_about(
    client: &dyn Client,
    env: &Env,
    key: &Path,
    length: u64,
) -> std::result::Result<CopyStatus, Failure> {
    let mut attempts = Attempts::persistent(env);
    while attempts.again().await {
        match wire::hear(client.head(key)).await {
            Ok((_, answer)) if answer.copy == CopyStatus::GivenUp => return Ok(CopyStatus::GivenUp),
            Ok((meta, answer)) if answer.copy == CopyStatus::Made && meta.size == length => {
                return Ok(CopyStatus::Made);
            }
            Err(failure) if !matches!(failure.kind, ErrorKind::Retry | ErrorKind::NotFound) => {
                return Err(failure);
            }
            _ => {}
        }
    }
    Ok(CopyStatus::Pending)
}

/// The log of a store of the cloud: objects of it.
fn open_log(env: &Env, uri: &Uri, objects: &Arc<dyn ObjectStore>) -> Result<Arc<dyn LogStore>> {
    let own = CloudObjectStore::open(env, uri)?;
    if own.describe() == objects.describe() {
        return Ok(Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true)));
    }
    Ok(Arc::new(ObjectLogStore::new(env, Arc::new(own), false)))
}

/// Registers `s3://`, `gs://` and `az://`.
pub(crate) fn register(registry: &mut Registry) {
    for scheme in place::SCHEMES {
        registry.register_remote_object_store(
            scheme,
            Arc::new(|env, uri| Ok(Arc::new(CloudObjectStore::open(env, uri)?) as Arc<dyn ObjectStore>)),
        );
        registry.register_log_store(scheme, Arc::new(open_log));
    }
}
