//! A directory of HDFS: `hdfs://host:port/path`, `hdfs://nameservice/path`.
//!
//! The crate hdfs-native speaks the protocols; this module gives its requests the contract of
//! [`ObjectStore`]:
//!
//! - every request runs on the runtime of remote stores (`backend::remote`), the more urgent
//!   first, up to its deadline, and each step of it is waited for with a limit (`client`);
//! - an error says whether the request may have taken effect (`failure`);
//! - an object's bytes go to a temporary file, which a rename without overwriting gives its name
//!   (`put`, `writer`): the NameNode shows a file from its creation on, before it has bytes, so
//!   that creating the object's own name would show half an object;
//! - a list walks directories in ascending order, and is settled before it is believed (`list`).
//!
//! Durable: of a closed file every block, synced with its directory by each DataNode of its
//! pipeline; of a name, what the NameNode's journal holds. A NameNode answers reads from memory,
//! which is ahead of its journal. So whatever concludes something from what it saw (a list, a name
//! that was found taken, a rename that was found to have landed) makes a change of its own before
//! it says so: the journal is written in order, and has all that came before once it has that.
//! `HdfsObjectStore::settle` is such a change.
//!
//! Invariants:
//! - A name under the root names whole and durable bytes.
//! - Nothing but `Temporary` of `put` and sweeping touches `.tmp=/`, and no name of an object
//!   begins so.

mod client;
mod failure;
mod list;
mod place;
mod put;
mod read;
mod writer;

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env};

use self::client::Cluster;
use self::failure::Failure;
use self::place::Place;
use crate::backend::begin;
use crate::backend::handles::Handles;
use crate::backend::object_log::ObjectLogStore;
use crate::backend::remote::{Attempts, Effect, THREADS, Tasks};
use crate::facts::Fact;
use crate::object::check_put;
use crate::{
    Error, ErrorKind, FailureDomain, Listed, LogStore, ObjectName, ObjectStore, ObjectWriter, Placement,
    PutOutcome, Registry, Request, Result, StoreTraits, Survival, Uri,
};

/// Requests on their way at once, of one store.
const IN_FLIGHT_MAX: usize = 128;

/// Tables whose blocks' places are remembered, four for each of these: see [`Handles`].
const LOCATED_MAX: usize = 4 * 4096;

/// Bytes that are given to the client, or copied, at once.
const PIECE_BYTES: usize = 8 << 20;

/// Where files lie until they have their name. Hidden from Hadoop's own jobs by its point, from
/// lists by a byte that no object's name has.
const TEMPORARY_DIRECTORY: &str = ".tmp=";
/// How the names of temporary files end.
const SUFFIX: &str = ".partial";

/// A temporary file that has not changed for so long, by the NameNode's clock, belongs to nobody.
/// One that does all the same is missed when it is to get its name, and nothing took effect.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// To HDFS: leave the time as it is.
const SAME_TIME: u64 = u64::MAX;

/// Objects in a directory of HDFS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HdfsObjectStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tasks: Tasks,
    cluster: Cluster,
    place: Place,
    located: Handles<Arc<read::Located>>,
}

impl HdfsObjectStore {
    /// The store that a URI names. Sends nothing.
    ///
    /// # Errors
    /// `Invalid` for a fault in the URI, or in the Hadoop configuration.
    pub fn open(env: &Env, uri: &Uri) -> Result<HdfsObjectStore> {
        let (place, settings) = place::open(uri)?;
        let tasks = Tasks::new(env, IN_FLIGHT_MAX)?;
        let (cluster, located) = (Cluster::open(settings)?, Handles::new(LOCATED_MAX));
        Ok(HdfsObjectStore { shared: Arc::new(Shared { tasks, cluster, place, located }) })
    }

    fn env(&self) -> &Env {
        &self.shared.tasks.env
    }

    fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    fn place(&self) -> &Place {
        &self.shared.place
    }

    /// Runs a request's work when its turn comes, up to its deadline.
    async fn run<T: Send + 'static>(
        &self,
        request: Request,
        doing: &str,
        effect: Effect,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.shared.tasks.run(request, doing, effect, work).await
    }

    /// What an object's length is, on the runtime.
    async fn length_now(&self, name: &ObjectName) -> std::result::Result<u64, Failure> {
        let path = self.place().path(name.as_str());
        let status =
            self.cluster().ask(|connected| async move { connected.client.get_file_info(&path).await }).await;
        match status {
            Ok(status) if status.isdir => Err(Failure::absent()),
            Ok(status) => Ok(status.length as u64),
            Err(failure) if failure.is_no_file => Err(Failure::absent()),
            Err(failure) => Err(failure),
        }
    }

    async fn head(&self, request: Request, name: &ObjectName) -> Result<u64> {
        const DOING: &str = "asking for an object's length";
        let (store, name) = (self.clone(), name.clone());
        let work = async move {
            store
                .length_now(&name)
                .await
                .map_err(|failure| failure.error(DOING, &store.place().shown(name.as_str())))
        };
        self.run(request, DOING, Effect::Nothing, work).await
    }

    /// Makes all durable that the NameNode showed before: a change that means nothing, after which
    /// its journal has what came earlier. Where there is no directory yet, nothing was shown.
    async fn settle(&self) -> std::result::Result<(), Failure> {
        let root = self.place().root().to_owned();
        let now = u64::try_from(self.env().unix_time().as_millis()).unwrap_or(SAME_TIME);
        match self
            .cluster()
            .ask(|connected| async move { connected.client.set_times(&root, now, SAME_TIME).await })
            .await
        {
            Err(failure) if failure.is_no_file => Ok(()),
            settled => settled,
        }
    }

    /// Deletes a file; `false` when there is none.
    async fn delete_file(&self, path: String) -> std::result::Result<bool, Failure> {
        match self.cluster().ask(|connected| async move { connected.client.delete(&path, false).await }).await
        {
            Err(failure) if failure.is_no_file => Ok(false),
            deleted => deleted,
        }
    }

    async fn delete_now(&self, request: Request, name: &ObjectName) -> Result<()> {
        const DOING: &str = "deleting an object";
        let (store, path, shown) =
            (self.clone(), self.place().path(name.as_str()), self.place().shown(name.as_str()));
        self.shared.located.forget(name);
        let work = async move {
            let mut attempts = Attempts::new(store.env());
            loop {
                match store.delete_file(path.clone()).await {
                    Ok(_) => return Ok(()),
                    // Deleting again does no harm: names are not used again.
                    Err(failure) if failure.is_uncertain && attempts.again().await => {}
                    Err(failure) if failure.is_uncertain || attempts.any() => {
                        return Err(failure.unknown(DOING, &shown));
                    }
                    Err(failure) => return Err(failure.error(DOING, &shown)),
                }
            }
        };
        self.run(request, DOING, Effect::Change, work).await
    }

    /// HDFS copies nothing by itself: the bytes go through here, a piece at a time.
    async fn copy_through(&self, request: Request, from: &ObjectName, to: &ObjectName) -> Result<PutOutcome> {
        let length = self.head(request, from).await?;
        let mut writer = Box::new(writer::HdfsWriter::new(self.clone(), request, to.clone()));
        let mut position = 0;
        while position < length {
            let bytes =
                self.read_range(request, from, position..length.min(position + PIECE_BYTES as u64)).await?;
            if bytes.is_empty() {
                return Err(
                    Error::new(ErrorKind::Retry, "an object became shorter while it was copied").object(from)
                );
            }
            position += bytes.len() as u64;
            writer.append(bytes).await?;
        }
        match writer.finish().await {
            Ok(_) => Ok(PutOutcome::Created),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(PutOutcome::Exists),
            Err(error) => Err(error),
        }
    }

    /// Removes temporary files that have not changed for long. The directory's own time says what
    /// the NameNode's clock was when last one came or went, so that no clock of ours is asked;
    /// where nothing comes or goes, nothing is swept.
    async fn sweep_now(&self) -> std::result::Result<u64, Failure> {
        let directory = self.place().path(TEMPORARY_DIRECTORY);
        let asked = directory.clone();
        let status =
            self.cluster().ask(|connected| async move { connected.client.get_file_info(&asked).await }).await;
        let now = match status {
            Ok(status) => status.modification_time,
            Err(failure) if failure.is_no_file => return Ok(0),
            Err(failure) => return Err(failure),
        };
        let mut removed = 0;
        let connected = self.cluster().connected();
        let files = connected.client.list_status_iter(&directory, false);
        while let Some(file) =
            self.cluster().wait(&connected, 1, async { files.next().await.transpose() }).await?
        {
            if !file.isdir && is_abandoned(&file.path, file.modification_time, now) {
                removed += u64::from(self.delete_file(file.path).await?);
            }
        }
        Ok(removed)
    }
}

/// Whether a file of the directory of temporary files belongs to nobody. Times are in milliseconds.
fn is_abandoned(path: &str, changed: u64, now: u64) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_ours = name
        .strip_suffix(SUFFIX)
        .is_some_and(|stem| stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_ours && u128::from(now.saturating_sub(changed)) > ABANDONED.as_millis()
}

impl ObjectStore for HdfsObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            begin(self.env(), request, "creating an object").await?;
            Ok(Box::new(writer::HdfsWriter::new(self.clone(), request, name.clone()))
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
        Box::pin(self.copy_through(request, from, to))
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        const DOING: &str = "sweeping temporary files";
        let store = self.clone();
        let work = async move {
            store.sweep_now().await.map_err(|failure| failure.error(DOING, &store.place().describe()))
        };
        Box::pin(self.run(request, DOING, Effect::Nothing, work))
    }

    fn facts(&self, request: Request) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(async move {
            let began = self.env().now();
            self.list_names(request, "", None, 1).await?;
            let took = self.env().now().since(began);
            let reached =
                Fact::fine("directory", format!("{}, answers a list in {took:.1?}", self.place().describe()));
            let threads = Fact::fine("requests", format!("{THREADS} threads, {IN_FLIGHT_MAX} at once"));
            let replicas = match self.cluster().settings().replication {
                None => Fact::fine("replication", "the cluster's default"),
                Some(1) => Fact::warning(
                    "replication",
                    "1",
                    "the loss of one disk loses objects: leave it to the cluster, or say replication=3",
                ),
                Some(replicas) => Fact::fine("replication", replicas.to_string()),
            };
            Ok(vec![reached, threads, replicas])
        })
    }

    // A page of a directory is one answer, under the NameNode's lock.
    fn traits(&self) -> StoreTraits {
        StoreTraits { must_prove_put_if_absent: true, lists_may_walk: false }
    }

    fn survival(&self) -> Survival {
        let durable = "survives the loss of this machine, and of all but one of the DataNodes that keep a \
            block; each has synced it. Names survive what the \
                       NameNode's journal survives";
        Survival {
            store: self.describe(),
            domain: FailureDomain::Service,
            accepted: durable.into(),
            durable: durable.into(),
            notes: vec![
                "One writer at a time, decided by renames without overwriting: they are tried by many at \
                once when a database is created."
                    .into(),
                "Of two NameNodes the one that lost its role must be kept from answering, reads too: \
                dfs.ha.fencing.methods must end it. Observers and \
                 routers that read from them are not asked, but cannot be told apart when they are named \
                 with a port: name the NameNodes."
                    .into(),
                "Snapshots of the directory keep the space of what is deleted; a quota is met as a full \
                store."
                    .into(),
            ],
        }
    }

    fn describe(&self) -> String {
        self.place().describe()
    }
}

/// The log of a store on HDFS: objects of it.
fn open_log(env: &Env, uri: &Uri, objects: &Arc<dyn ObjectStore>) -> Result<Arc<dyn LogStore>> {
    let own = HdfsObjectStore::open(env, uri)?;
    if own.describe() == objects.describe() {
        return Ok(Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true)));
    }
    Ok(Arc::new(ObjectLogStore::new(env, Arc::new(own), false)))
}

/// Registers `hdfs://`.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_remote_object_store(
        "hdfs",
        Arc::new(|env, uri| Ok(Arc::new(HdfsObjectStore::open(env, uri)?) as Arc<dyn ObjectStore>)),
    );
    registry.register_log_store("hdfs", Arc::new(open_log));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_files_of_our_own_are_abandoned() {
        let day = 24 * 60 * 60 * 1000;
        let ours = format!("/x/.tmp=/{}{SUFFIX}", "0a".repeat(16));
        assert!(is_abandoned(&ours, 0, day + 1));
        assert!(
            !is_abandoned(&ours, 0, day) && !is_abandoned(&ours, day, 0),
            "young, or of a clock that went back"
        );
        for foreign in
            ["/x/.tmp=/a.partial", "/x/.tmp=/letter", &ours.replace(SUFFIX, ""), &ours.replace("0a", "0g")]
        {
            assert!(!is_abandoned(foreign, 0, 10 * day), "{foreign}");
        }
        assert!(
            ObjectName::new(format!("{TEMPORARY_DIRECTORY}/a")).is_err(),
            "an object could be among the temporary files"
        );
    }
}
