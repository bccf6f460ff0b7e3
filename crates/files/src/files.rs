//! The handle: mounting, following, syncs of names, and deletions that wait.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    ApplicationObject, ApplicationObjects, Batch, Db, Durability, Env, Error, ErrorKind, Instant, Keyspace,
    KeyspaceOptions, Op, Reader, Result,
};
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::catalog::Catalog;
use crate::content::{File, Tail};
use crate::lanes::{GiveUp, Lane};
use crate::load::{LANES, Loaded, check_still_there, load};
use crate::rows::{self, Tag};
use crate::usage::{Counters, Usage};

/// How often room is waited for before `Busy` is an error.
pub(crate) const BUSY_TRIES_MAX: usize = 1000;
/// Epochs that may have left something in a lane before it is copied into objects.
const EARLIER_EPOCHS_MAX: usize = 8;
/// Objects that are deleted at once.
const DELETIONS_MAX: usize = 64;

/// How files are kept. Set the fields that matter and take the rest from [`Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesOptions {
    /// Bytes of logs and manifests that may be in memory together. Beyond it the file that is
    /// written is copied into an object. Default: 256 MiB.
    pub lane_memory_bytes: u64,
    /// Bytes of a manifest in memory beyond which it is copied into an object. Default: 4 MiB.
    pub manifest_bytes: u64,
    /// A lane is trimmed once so many bytes of it are needed no more. Default: 1 MiB.
    pub trim_bytes: u64,
    /// How long an object stays when no file needs it any more: for processes that follow, and look
    /// at files as they were. Default: 1 min, as long as the lease of a reader.
    pub unnamed_stay: Duration,
}

impl Default for FilesOptions {
    fn default() -> FilesOptions {
        FilesOptions {
            lane_memory_bytes: 256 << 20,
            manifest_bytes: 4 << 20,
            trim_bytes: 1 << 20,
            unnamed_stay: Duration::from_secs(60),
        }
    }
}

/// The files of a database. See the crate's documentation.
#[derive(Debug)]
pub struct Files {
    pub(crate) db: Db,
    pub(crate) env: Env,
    pub(crate) options: FilesOptions,
    pub(crate) objects: ApplicationObjects,
    pub(crate) catalog: Mutex<Catalog>,
    /// `None` of who follows.
    pub(crate) writing: Option<Writing>,
    pub(crate) reader: Option<Reader>,
    /// Bytes of lanes in memory.
    pub(crate) lane_memory: Arc<AtomicU64>,
    /// Bytes of windows that are fetched ahead.
    pub(crate) ahead_bytes: Arc<AtomicU64>,
    pub(crate) counters: Counters,
}

/// What a handle that changes files has beside.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) names: Keyspace,
    pub(crate) inodes: Keyspace,
    pub(crate) lanes: [Lane; 2],
    /// Changes of rows that were begun, and how many of them are durable.
    changes: AtomicU64,
    durable: AtomicU64,
    /// The last of them that had to wait for room: a sync of the log does not cover it until then.
    waited: AtomicU64,
    next_tag: AtomicU64,
    failure: Mutex<Option<Error>>,
    /// Objects that no file needs: from when on they may go, and the file that had them.
    unnamed: Mutex<VecDeque<Unnamed>>,
    deleting: AtomicBool,
}

#[derive(Debug)]
struct Unnamed {
    due: Instant,
    object: ApplicationObject,
    file: Weak<File>,
}

impl Files {
    /// Takes over the files of `db`, which was opened with two application logs. Reads all rows and
    /// what lanes hold; lists objects, and deletes by and by those that no row names.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for rows that this library does not write; those of the database.
    pub async fn mount(db: Db, env: &Env, options: FilesOptions) -> Result<Files> {
        let names = db.open_or_create_keyspace(rows::NAMES, KeyspaceOptions::default()).await?;
        let inodes = db.open_or_create_keyspace(rows::INODES, KeyspaceOptions::default()).await?;
        let lane_memory = Arc::default();
        let Loaded { catalog, epochs, .. } = load(&db, &lane_memory, false).await?;
        let lanes = [Lane::new(db.application_log(0)?), Lane::new(db.application_log(1)?)];
        for (lane, epochs) in lanes.iter().zip(epochs) {
            lane.state.lock().has_earlier = epochs > 0;
        }
        let writing = Writing {
            names,
            inodes,
            lanes,
            changes: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            next_tag: AtomicU64::new(1),
            failure: Mutex::default(),
            unnamed: Mutex::default(),
            deleting: AtomicBool::new(false),
        };
        let files = Files {
            objects: db.application_objects(),
            db,
            env: env.clone(),
            options,
            catalog: Mutex::new(catalog),
            writing: Some(writing),
            reader: None,
            lane_memory,
            ahead_bytes: Arc::default(),
            counters: Counters::default(),
        };
        files.take_earlier(epochs).await?;
        files.sweep().await?;
        files.tidy().await?;
        Ok(files)
    }

    /// Follows the files of the process that has them mounted, without disturbing it: they are as
    /// they were when [`Files::refresh`] ended last. Every call that would change something ends
    /// with `PermissionDenied`.
    ///
    /// # Errors
    /// As [`Files::mount`].
    pub async fn follow(reader: Reader, env: &Env, options: FilesOptions) -> Result<Files> {
        let files = Files {
            objects: reader.db().application_objects(),
            db: reader.db().clone(),
            env: env.clone(),
            options,
            catalog: Mutex::default(),
            writing: None,
            reader: Some(reader),
            lane_memory: Arc::default(),
            ahead_bytes: Arc::default(),
            counters: Counters::default(),
        };
        files.refresh().await?;
        Ok(files)
    }

    /// Comes up to date with the process that has the files mounted. Files that are open stay as
    /// they were. Costs nothing on a handle that has them mounted itself.
    ///
    /// # Errors
    /// `Retry` while they change all the time; those of the database.
    pub async fn refresh(&self) -> Result<()> {
        let Some(reader) = &self.reader else { return Ok(()) };
        let mut tries = 0;
        loop {
            reader.refresh().await?;
            match self.load_followed(reader).await {
                Ok(catalog) => {
                    *self.catalog.lock() = catalog;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Retry && tries < 10 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The files by the rows that the reader shows. What the lanes held for those rows may be
    /// trimmed once other rows are durable: so the rows must be the same afterwards.
    pub(crate) async fn load_followed(&self, reader: &Reader) -> Result<Catalog> {
        let Loaded { catalog, tags, .. } = load(&self.db, &self.lane_memory, true).await?;
        reader.refresh().await?;
        check_still_there(&self.db, &tags).await?;
        Ok(catalog)
    }

    /// Which files need what earlier epochs left in the lanes; copies them into objects where many
    /// epochs did.
    async fn take_earlier(&self, epochs: [usize; 2]) -> Result<()> {
        let files = self.all_files();
        for file in &files {
            if let (Some(lane), Tail::Lane(tail)) = (file.kind.lane(), &file.state.lock().tail)
                && tail.is_of_earlier
            {
                self.writing()?.lanes[lane].state.lock().earlier_files += 1;
            }
        }
        for file in files {
            if file.kind.lane().is_some_and(|lane| epochs[lane] > EARLIER_EPOCHS_MAX) {
                self.spill(&file).await?;
            }
        }
        Ok(())
    }

    /// Finds the objects that no row names: left by processes that ended in between.
    async fn sweep(&self) -> Result<()> {
        let mut named = BTreeSet::new();
        for file in self.all_files() {
            named.extend(file.state.lock().parts.iter().map(|part| part.object));
        }
        if is_enabled(Mutant::FilesSweepForgetsNames) {
            named.clear();
        }
        let epoch = self.db.epoch();
        let left = self.objects.list().await?;
        self.forget_objects(
            left.into_iter().filter(|object| object.epoch() < epoch && !named.contains(object)),
            &Weak::new(),
        )
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<File>> {
        let catalog = self.catalog.lock();
        let mut files: Vec<Arc<File>> = catalog
            .nodes
            .values()
            .filter_map(|node| match node {
                crate::catalog::Node::File(file) => Some(Arc::clone(file)),
                crate::catalog::Node::Directory => None,
            })
            .collect();
        files.sort_by_key(|file| file.number);
        files.dedup_by_key(|file| file.number);
        files
    }

    /// # Errors
    /// `PermissionDenied` of who follows; why nothing can be changed any more.
    pub(crate) fn writing(&self) -> Result<&Writing> {
        let Some(writing) = &self.writing else {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "these files are looked at only: who changes them takes them over first",
            ));
        };
        match self.failure() {
            Some(error) => Err(error),
            None => Ok(writing),
        }
    }

    /// Why nothing can be changed any more, if so.
    pub fn failure(&self) -> Option<Error> {
        let noted = self.writing.as_ref().and_then(|writing| writing.failure.lock().clone());
        noted.or_else(|| self.db.failure())
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// What was changed in memory already could not be written: nothing is changed any more. So no
    /// trouble here passes, and none is told as if it did.
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let passes = matches!(
                error.kind(),
                ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded | ErrorKind::OutOfSpace
            );
            let error = if passes {
                Error::new(ErrorKind::OutcomeUnknown, "what was written last may not be there")
                    .found(&error)
                    .advice("open the files again, once the cause is gone")
                    .source(error)
            } else {
                error
            };
            if let Some(writing) = &self.writing {
                writing.failure.lock().get_or_insert_with(|| error.clone());
            }
            error
        })
    }

    /// A tag that no file has had.
    pub(crate) fn fresh_tag(&self) -> Result<Tag> {
        let number = self.writing()?.next_tag.fetch_add(1, Ordering::Relaxed);
        Ok(Tag { epoch: self.db.epoch().0, number })
    }

    /// Begins a batch of rows. Under the lock of the catalog, so that rows change in the order in
    /// which the catalog does.
    pub(crate) fn begin(&self, batch: Batch) -> Result<Op<()>> {
        let writing = self.writing()?;
        let op = match self.db.write_with(batch, Durability::Accepted).try_take() {
            Ok(ended) => {
                ended?;
                Op::ready(Ok(()))
            }
            Err(op) => {
                let number = writing.changes.load(Ordering::Acquire) + 1;
                writing.waited.fetch_max(number, Ordering::AcqRel);
                op
            }
        };
        writing.changes.fetch_add(1, Ordering::AcqRel);
        Ok(op)
    }

    /// A step that changes the catalog and begins rows, and again whenever there was no room for
    /// them: it leaves the catalog as it was then.
    pub(crate) async fn change<T: Send>(
        &self,
        step: impl Fn(&mut Catalog) -> Result<(T, Op<()>)> + Send + Sync,
    ) -> Result<T> {
        for _ in 0..BUSY_TRIES_MAX {
            self.writing()?;
            let begun = step(&mut self.catalog.lock());
            match begun {
                Ok((value, op)) => {
                    self.noted(op.await)?;
                    return Ok(value);
                }
                Err(error) if error.kind() == ErrorKind::Busy => self.db.flush().await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, "there is no room for the rows of files").advice("call again"))
    }

    /// Makes every change of names and rows durable that was made before the call. Nothing where
    /// there is none.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over; those of the log.
    pub async fn sync_names(&self) -> Result<()> {
        let writing = self.writing()?;
        let begun = writing.changes.load(Ordering::Acquire);
        if writing.durable.load(Ordering::Acquire) >= begun || is_enabled(Mutant::FilesSyncForgetsNames) {
            return Ok(());
        }
        for _ in 0..BUSY_TRIES_MAX {
            match self.sync_rows(writing).await {
                Err(error) if error.kind() == ErrorKind::Busy => self.db.flush().await?,
                synced => {
                    self.noted(synced)?;
                    writing.durable.fetch_max(begun, Ordering::AcqRel);
                    return Ok(());
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "there is no room in the database for a sync").advice("sync again"))
    }

    async fn sync_rows(&self, writing: &Writing) -> Result<()> {
        if writing.waited.load(Ordering::Acquire) <= writing.durable.load(Ordering::Acquire) {
            return self.db.sync().await;
        }
        // Writes that wait for room keep their order: one that is durable has all before it.
        let mut last = Batch::new();
        last.delete(&writing.inodes, rows::inode_key(0));
        self.db.write_with(last, Durability::Durable).await
    }

    /// These objects may go after a while, once no handle of `file` is left.
    pub(crate) fn forget_objects(
        &self,
        objects: impl IntoIterator<Item = ApplicationObject>,
        file: &Weak<File>,
    ) -> Result<()> {
        let due = self.env.now() + self.options.unnamed_stay;
        let forgotten = objects.into_iter().map(|object| Unnamed { due, object, file: file.clone() });
        self.writing()?.unnamed.lock().extend(forgotten);
        Ok(())
    }

    /// Deletes objects whose time has come, and gives lanes up where nobody needs them. Passing
    /// troubles are for the next time.
    ///
    /// # Errors
    /// `Fenced` and others that end the handle.
    pub async fn tidy(&self) -> Result<()> {
        let Some(writing) = &self.writing else { return Ok(()) };
        if !writing.deleting.swap(true, Ordering::Acquire) {
            let deleted = self.delete_due(writing).await;
            writing.deleting.store(false, Ordering::Release);
            self.passed_over(deleted, "objects that no file needs stay for now")?;
        }
        for lane in &writing.lanes {
            let Some(what) = lane.to_give_up(self.options.trim_bytes) else { continue };
            let done = self.give_up(lane, what).await;
            lane.gave_up(what, done.is_ok());
            self.passed_over(done, "what no file needs of the log stays for now")?;
        }
        Ok(())
    }

    fn passed_over(&self, done: Result<()>, what: &str) -> Result<()> {
        match done {
            Err(error) if self.failure().is_some() => Err(error),
            Err(error) => {
                tracing::warn!(%error, "{what}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn delete_due(&self, writing: &Writing) -> Result<()> {
        let now = self.env.now();
        let is_due = |unnamed: &&Unnamed| unnamed.due <= now;
        let waiting = writing.unnamed.lock().iter().take_while(is_due).count().min(DELETIONS_MAX);
        if waiting == 0 {
            return Ok(());
        }
        if !is_enabled(Mutant::FilesObjectDeletedWhileNamed) {
            self.sync_names().await?;
        }
        // The first are still those: only this takes any, one call after the other.
        let due: Vec<Unnamed> = writing.unnamed.lock().drain(..waiting).collect();
        let (mut begun, mut kept) = (Vec::new(), Vec::new());
        for unnamed in due {
            if unnamed.file.strong_count() > 0 {
                kept.push(unnamed);
            } else {
                begun.push((self.objects.delete(unnamed.object), unnamed));
            }
        }
        let mut failed = Ok(());
        for (op, unnamed) in begun {
            if let Err(error) = op.await {
                kept.push(unnamed);
                failed = Err(error);
            }
        }
        // Behind the others, which need not wait for them.
        let due = now + self.options.unnamed_stay;
        writing.unnamed.lock().extend(kept.into_iter().map(|unnamed| Unnamed { due, ..unnamed }));
        failed
    }

    async fn give_up(&self, lane: &Lane, what: GiveUp) -> Result<()> {
        // What the rows say must be durable before what they said before can be forgotten.
        self.sync_names().await?;
        match what {
            GiveUp::Earlier => lane.log.release_earlier().await,
            GiveUp::To(position, _) => {
                lane.log.sync().await?;
                lane.log.trim(position).await
            }
        }
    }

    /// What files take, and what was done with them.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.counters.fill(&mut usage);
        for file in self.all_files() {
            let of_kind = &mut usage.0[file.kind.index()];
            of_kind.files += 1;
            of_kind.bytes += file.size();
        }
        usage
    }

    /// Makes all names and logs durable, and closes the database. Files that are written are to be
    /// finished before: what their last sync did not cover is lost.
    ///
    /// # Errors
    /// Those of the last sync; `Fenced`.
    pub async fn close(&self) -> Result<()> {
        if let Some(reader) = &self.reader {
            return reader.close().await;
        }
        let mut synced = Ok(());
        for file in self.all_files() {
            synced = synced.and(self.flush(&file).await);
        }
        if let Some(writing) = &self.writing {
            for lane in &writing.lanes {
                synced = synced.and(lane.log.sync().await);
            }
            synced = synced.and(self.sync_names().await).and(self.tidy().await);
        }
        synced.and(self.db.close().await)
    }
}

const _: () = assert!(LANES == 2);
