//! The flash cache: pieces of tables on a local disk, under the block cache, for databases whose
//! store is far away.
//!
//! Read path, between block cache and object store:
//!
//! ```text
//! block cache --miss--> flash cache --miss--> object store
//!      ^                    |    ^                 |
//!      +--- decoder <-------+    +--- admission <--+--> decoder --> block cache
//! ```
//!
//! What it keeps are data blocks, partitions and tails as they lie in their tables, in files that
//! are written from front to back and never changed: regions (bytes: [`tombolo_format::flash`]).
//! When there is no room, the oldest region goes; pieces read in it since enter the newest one, up
//! to half of that. A task of the background writes; reads never wait for it, and pieces that come
//! faster than it writes are dropped.
//!
//! What may enter: a block that a user's read missed twice of late, the tail of a table that a
//! user's read opened, and what a compaction writes where most of its input was in a cache. Scans
//! that read ahead, compactions and verification neither enter nor drive out. All of it is bounded
//! by a rate: free space may be filled at once, after that the cache is rewritten a few times a
//! day.
//!
//! Invariants:
//! 1. What a read gets from here passes the same decoder, with the table's identity and the piece's
//!    offset, as what comes from the store. What does not pass is a miss: it is told, counted,
//!    forgotten, and read from the store.
//! 2. No error of the disk reaches a read or a writer of the database; after some of them the cache
//!    rests for a minute.
//! 3. A file is never written after its region was sealed, nor under a name that had other bytes:
//!    a process that holds it open reads its old content.
//! 4. All files together take at most `bytes`, but for those removed that a read still holds open,
//!    or the kept part of the one that went last.
//! 5. Nothing is ever synced, and nothing needs to be: whatever survives a crash is checked before
//!    it is believed.
//! 6. Names of tables are never used again (rule 6): nothing has to be invalidated, pieces of
//!    deleted tables go with their region.
//!
//! Thread safety: all is shared. No lock is held while a file is read for a reader.

mod admission;
mod facts;
mod index;
mod writer;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tombolo_env::{Access, Env, File, Instant, Task, TaskClass};
use tombolo_format::flash::{FLASH_RECORD_BYTES, FlashKey, FlashRecord, REGION_BYTES_MAX};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use crate::budget::{Category, Charge, MemoryBudget};
use crate::options::{FLASH_CACHE_BYTES_MAX, FLASH_CACHE_BYTES_MIN, Options};
use crate::signal::Signal;
use admission::{Bucket, Ghosts};
pub use facts::facts;
use index::{Index, Place};
use writer::Writer;

/// The file whose lock says that a process uses the directory.
const LOCK_NAME: &str = "lock";
/// Most bytes that wait to be written.
const QUEUE_BYTES_MAX: u64 = 8 << 20;
/// After errors of its disk the cache rests this long.
const REST: Duration = Duration::from_secs(60);
/// So many errors of reads in a row, and the cache rests.
const READ_ERRORS_MAX: u32 = 8;
/// How often a day the cache may be rewritten: what drives of data centres are made for.
const REWRITES_A_DAY: u64 = 3;
/// A small cache may be rewritten more often: it is a small part of its disk. 1 MiB a second is 84
/// GiB a day.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// How a flash cache is opened. Set the fields that matter and take the rest from
/// [`FlashCacheOptions::new`]: later versions may have more.
///
/// ```
/// use tombolo::FlashCacheOptions;
///
/// let options = FlashCacheOptions {
///     bytes_per_second_max: Some(10 << 20),
///     ..FlashCacheOptions::new("/mnt/nvme/cache", 64 << 30)
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashCacheOptions {
    /// Where it lies: a directory of its own on a local disk. Made if it is not there.
    pub directory: PathBuf,
    /// Most bytes that its files take, at least 4 MiB. Each GiB takes about 5 MiB of the memory
    /// budget, of which the cache takes an eighth at most.
    pub bytes: u64,
    /// Most bytes a second that it writes once it is full; `None`: three times its size a day, at
    /// least 1 MiB a second.
    pub bytes_per_second_max: Option<u64>,
}

impl FlashCacheOptions {
    /// A cache of `bytes` in `directory`.
    pub fn new(directory: impl Into<PathBuf>, bytes: u64) -> FlashCacheOptions {
        FlashCacheOptions { directory: directory.into(), bytes, bytes_per_second_max: None }
    }
}

/// What a flash cache did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashCacheStats {
    /// Pieces that it has.
    pub pieces: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Look-ups that found what they sought.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Pieces that entered.
    pub insertions: u64,
    /// Bytes written, those that were kept when their region went included.
    pub written_bytes: u64,
    /// Of those, the bytes that were kept when their region went.
    pub kept_bytes: u64,
    /// Pieces that would have entered but for the rate at which the disk may be written.
    pub dropped_by_rate: u64,
    /// Pieces that would have entered but for what waits to be written, the memory budget, or an
    /// error of the disk.
    pub dropped_by_room: u64,
    /// Pieces that did not pass their checks: misses.
    pub damaged: u64,
    /// Operations on files that failed.
    pub errors: u64,
    /// The present trouble; empty when there is none.
    pub trouble: String,
}

/// A region that is read.
struct Region {
    id: u64,
    number: u64,
    slot: u16,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Of the file, once it is sealed.
    bytes: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    insertions: AtomicU64,
    written_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    dropped_by_rate: AtomicU64,
    dropped_by_room: AtomicU64,
    damaged: AtomicU64,
    errors: AtomicU64,
    file_bytes: AtomicU64,
}

impl Counters {
    fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Something that is not asked of the disk for a while, because it failed.
#[derive(Default)]
struct Rest {
    /// In nanoseconds of the clock; 0: no.
    until: AtomicU64,
    trouble: Mutex<String>,
}

impl Rest {
    fn is_on(&self, env: &Env) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && env.now() < Instant::from_nanos(until)
    }

    #[cold]
    fn begin(&self, inner: &Inner, doing: &str, error: &std::io::Error) {
        Counters::one(&inner.counters.errors);
        let directory = inner.directory.display();
        let mut trouble = self.trouble.lock();
        if trouble.is_empty() {
            tracing::warn!(%directory, %error, doing, "the flash cache fails: reads go to the store; it is \
                tried again every minute");
        }
        *trouble = format!("{doing}: {error}");
        self.until.store((inner.env.now() + REST).as_nanos(), Ordering::Relaxed);
    }

    /// It worked.
    #[inline]
    fn end(&self, inner: &Inner) {
        if self.until.load(Ordering::Relaxed) != 0 && self.until.swap(0, Ordering::Relaxed) != 0 {
            self.trouble.lock().clear();
            tracing::info!(directory = %inner.directory.display(), "the flash cache works again");
        }
    }
}

/// A piece that waits to be written.
struct Offered {
    key: FlashKey,
    piece: Bytes,
}

#[derive(Default)]
struct Queue {
    offered: VecDeque<Offered>,
    /// Fingerprints of pieces offered and not in the index yet.
    pending: BTreeSet<u64>,
    bytes: u64,
}

struct Inner {
    env: Env,
    directory: PathBuf,
    bytes: u64,
    region_bytes: u64,
    per_second: u64,
    index: Index,
    /// By slot.
    regions: RwLock<Vec<Option<Arc<Region>>>>,
    ghosts: Ghosts,
    bucket: Mutex<Bucket>,
    queue: Mutex<Queue>,
    queue_memory: Mutex<Charge>,
    /// Something waits to be written, or the cache was closed.
    offered: Signal,
    /// The writer has done something.
    progress: Signal,
    /// The writer has read the old regions and written the offered pieces.
    idle: AtomicBool,
    closed: AtomicBool,
    writer: Mutex<Writer>,
    read_errors: AtomicU32,
    reads: Rest,
    writes: Rest,
    counters: Counters,
    _ghost_memory: Charge,
}

/// A cache on a local disk that databases of a process share: [`crate::Builder::flash_cache`]. See
/// the module's documentation.
///
/// Dropping it lets go of its directory, as soon as the write under way has ended;
/// [`FlashCache::close`] has let go of it when it returns, and makes the next opening faster.
pub struct FlashCache {
    inner: Arc<Inner>,
    _writer: Task,
}

impl fmt::Debug for FlashCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FlashCache")
            .field("directory", &self.inner.directory)
            .field("bytes", &self.inner.bytes)
            .finish_non_exhaustive()
    }
}

impl Drop for FlashCache {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Release);
        // If the task writes at this moment, it lets go after that.
        if let Some(mut writer) = self.inner.writer.try_lock() {
            writer.let_go();
        }
    }
}

impl FlashCache {
    /// Opens the cache of a directory, and makes it if it is not there. What an earlier process
    /// left in it is found again, by a task of the background that reads about 32 bytes for each
    /// piece.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().join("cache");
    /// use tombolo::{Db, Env, FlashCache, FlashCacheOptions, MemoryBudget};
    ///
    /// let budget = MemoryBudget::new(64 << 20)?;
    /// let flash = FlashCache::open(&Env::real(), FlashCacheOptions::new(&directory, 1 << 30), &budget)?;
    /// let orders = Db::builder("mem:///orders").memory_budget(&budget).flash_cache(&flash).open().wait()?;
    /// let events = Db::builder("mem:///events").memory_budget(&budget).flash_cache(&flash).open().wait()?;
    /// # drop((orders, events));
    /// assert_eq!(flash.stats().trouble, "");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for too few bytes, or a directory with foreign files; `Busy` when
    /// another process, or another cache of this one, uses the directory; `Unavailable` and others
    /// when the disk does not let it be used.
    pub fn open(
        env: &Env,
        options: FlashCacheOptions,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Arc<FlashCache>> {
        if !(FLASH_CACHE_BYTES_MIN..=FLASH_CACHE_BYTES_MAX).contains(&options.bytes) {
            let error = Error::new(ErrorKind::Invalid, "a flash cache of a size that is of no use");
            return Err(error
                .expected(format!("{FLASH_CACHE_BYTES_MIN} to {FLASH_CACHE_BYTES_MAX} bytes"))
                .found(options.bytes));
        }
        let region_bytes = region_bytes(options.bytes, env.files().open_files_max());
        FlashCache::open_with(env, options, budget, region_bytes)
    }

    fn open_with(
        env: &Env,
        options: FlashCacheOptions,
        budget: &Arc<MemoryBudget>,
        region_bytes: u64,
    ) -> Result<Arc<FlashCache>> {
        let FlashCacheOptions { directory, bytes, bytes_per_second_max } = options;
        let lock = lock(env, &directory)?;
        let per_second = bytes_per_second_max
            .unwrap_or_else(|| (bytes / 86_400 * REWRITES_A_DAY).max(BYTES_PER_SECOND_MIN));
        let memory_max = budget.bytes() / 8;
        let ghosts = usize::try_from((bytes >> 13).clamp(1024, 1 << 24).min((memory_max / 8 / 4).max(1)))
            .unwrap_or(1024);
        let now = env.now();
        let inner = Arc::new(Inner {
            env: env.clone(),
            directory,
            bytes,
            region_bytes,
            per_second,
            index: Index::new(budget.charge(Category::Flash, 0), memory_max),
            regions: RwLock::default(),
            ghosts: Ghosts::new(ghosts),
            // Nothing is written before the old regions are known.
            bucket: Mutex::new(Bucket::new(now, 0, 0, 0)),
            queue: Mutex::default(),
            queue_memory: Mutex::new(budget.charge(Category::Flash, 0)),
            offered: Signal::default(),
            progress: Signal::default(),
            idle: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            writer: Mutex::new(Writer::new(lock, budget.charge(Category::Flash, 0))),
            read_errors: AtomicU32::new(0),
            reads: Rest::default(),
            writes: Rest::default(),
            counters: Counters::default(),
            _ghost_memory: budget.charge(Category::Flash, Ghosts::bytes(ghosts)),
        });
        let _writer = env.spawn(TaskClass::Background, "flash cache", writer::run(Arc::clone(&inner)));
        Ok(Arc::new(FlashCache { inner, _writer }))
    }

    /// What it did so far. Costs a few loads.
    pub fn stats(&self) -> FlashCacheStats {
        let Inner { counters, index, reads, writes, .. } = &*self.inner;
        let trouble = || {
            let troubles = [reads, writes].map(|rest| rest.trouble.lock().clone());
            troubles.into_iter().filter(|trouble| !trouble.is_empty()).collect::<Vec<_>>().join("; ")
        };
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlashCacheStats {
            pieces: index.entries(),
            bytes: of(&counters.file_bytes),
            hits: of(&counters.hits),
            misses: of(&counters.misses),
            insertions: of(&counters.insertions),
            written_bytes: of(&counters.written_bytes),
            kept_bytes: of(&counters.kept_bytes),
            dropped_by_rate: of(&counters.dropped_by_rate),
            dropped_by_room: of(&counters.dropped_by_room),
            damaged: of(&counters.damaged),
            errors: of(&counters.errors),
            trouble: if self.inner.is_closed() { "closed".to_owned() } else { trouble() },
        }
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Most bytes that its files take.
    pub fn bytes_max(&self) -> u64 {
        self.inner.bytes
    }

    /// Most bytes a second that it writes once it is full.
    pub fn bytes_per_second_max(&self) -> u64 {
        self.inner.per_second
    }

    /// Waits until the regions of earlier processes were read, and all offered pieces are written.
    pub async fn settled(&self) {
        loop {
            let progress = self.inner.progress.subscribe();
            if self.inner.idle.load(Ordering::Acquire) || self.inner.is_closed() {
                return;
            }
            let _woken = progress.await;
        }
    }

    /// Ends its use: it finds nothing any more, and another process may use the directory. The next
    /// opening is spared a walk through the newest region. Databases that have it go on without.
    pub fn close(&self) {
        if !self.inner.closed.swap(true, Ordering::AcqRel) {
            let mut writer = self.inner.writer.lock();
            if let Err(error) = self.inner.seal(&mut writer) {
                tracing::debug!(%error, "the newest region of the flash cache stays without its index");
            }
            writer.let_go();
        }
        self.inner.offered.raise();
        self.inner.progress.raise();
    }

    /// Whether it has a piece, as far as it knows.
    pub(crate) fn has(&self, key: FlashKey) -> bool {
        !self.inner.is_closed() && self.inner.index.peek(fingerprint(key)).is_some()
    }

    /// Shows a piece of `length` bytes if the page cache holds it, without waiting.
    pub(crate) fn with_held(&self, key: FlashKey, length: u64, show: &mut dyn FnMut(&[u8])) -> bool {
        let inner = &*self.inner;
        if inner.is_closed() || inner.reads.is_on(&inner.env) {
            return false;
        }
        let Some((place, region)) =
            inner.index.peek(fingerprint(key)).and_then(|place| inner.region_of(place))
        else {
            return false;
        };
        let Some(record_bytes) = inner.record_bytes(length) else { return false };
        let mut found = false;
        region.file.with_held(u64::from(place.at), record_bytes, &mut |bytes| {
            if let Some(start) = inner.check(key, length, place, &region, bytes) {
                found = true;
                show(&bytes[start..]);
            }
        });
        if found {
            Counters::one(&inner.counters.hits);
            inner.index.take_use(fingerprint(key));
        }
        found
    }

    /// The bytes of a piece of `length` bytes. Their own checksums are not looked at here: the
    /// decoder reports damage with [`FlashCache::forget_damaged`].
    pub(crate) async fn get(&self, key: FlashKey, length: u64) -> Option<Bytes> {
        let inner = &*self.inner;
        if inner.is_closed() || inner.reads.is_on(&inner.env) {
            return None;
        }
        let found = inner.get(key, length).await;
        Counters::one(if found.is_some() { &inner.counters.hits } else { &inner.counters.misses });
        found
    }

    /// A piece did not pass its checks: it is told, counted and forgotten.
    #[cold]
    pub(crate) fn forget_damaged(&self, key: FlashKey, error: &Error) {
        let inner = &*self.inner;
        // The hit was none.
        inner.counters.hits.fetch_sub(1, Ordering::Relaxed);
        Counters::one(&inner.counters.misses);
        if let Some((place, region)) = inner.find(key) {
            inner.damaged(key, place, &region, &error.to_string());
        }
    }

    /// A read for `purpose` missed a piece, and has it from the store now: it enters if it was
    /// missed of late already.
    pub(crate) fn offer(&self, purpose: Purpose, key: FlashKey, piece: &[u8]) {
        if is_user(purpose)
            && !self.inner.is_closed()
            && (self.inner.ghosts.knew(fingerprint(key)) || is_enabled(Mutant::FlashTakesFirstMiss))
        {
            self.admit(key, piece);
        }
    }

    /// The tail of a table that was opened for `purpose` enters: a process does that once.
    pub(crate) fn offer_tail(&self, purpose: Purpose, key: FlashKey, tail: &[u8]) {
        if is_user(purpose) {
            self.admit(key, tail);
        }
    }

    /// A piece enters, as far as the rate and the room allow.
    pub(crate) fn admit(&self, key: FlashKey, piece: &[u8]) {
        self.inner.admit(key, piece);
    }
}

/// The flash cache of an open database.
#[derive(Clone, Debug)]
pub(crate) enum FlashUse {
    /// It has none.
    None,
    /// One that the program opened.
    Shared(Arc<FlashCache>),
    /// Its own, by its settings: closed with it.
    Own(Arc<FlashCache>),
    /// Its settings name one that cannot be used.
    Off(Error),
}

impl FlashUse {
    /// The given one, or else that of the settings. A directory that cannot be used is told, and
    /// the database goes on without.
    pub(crate) fn begin(
        env: &Env,
        given: Option<Arc<FlashCache>>,
        options: &Options,
        budget: &Arc<MemoryBudget>,
    ) -> FlashUse {
        if let Some(given) = given {
            return FlashUse::Shared(given);
        }
        let Some((directory, bytes)) = options.flash_cache() else { return FlashUse::None };
        match FlashCache::open(env, FlashCacheOptions::new(directory, bytes), budget) {
            Ok(own) => FlashUse::Own(own),
            Err(error) => {
                tracing::warn!(%error, "the database is used without a flash cache");
                FlashUse::Off(error)
            }
        }
    }

    /// The cache, if there is one.
    pub(crate) fn cache(&self) -> Option<&Arc<FlashCache>> {
        match self {
            FlashUse::Shared(cache) | FlashUse::Own(cache) => Some(cache),
            FlashUse::None | FlashUse::Off(_) => None,
        }
    }

    /// The database is closed.
    pub(crate) fn end(&self) {
        if let FlashUse::Own(cache) = self {
            cache.close();
        }
    }
}

/// Whether a request is a user's read: what that misses will be missed again.
fn is_user(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Get | Purpose::Scan)
}

/// What the index knows a piece by: a hash of all bits, of names that are random already; never 0.
fn fingerprint(key: FlashKey) -> u64 {
    let FlashKey { table, offset } = key;
    let mixed = (table.random ^ table.epoch.rotate_left(32) ^ offset.rotate_left(17))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 29)).max(1)
}

/// Bytes of a region of a cache of `bytes`: a sixty-fourth, 64 MiB at most, but so many that
/// regions take an eighth of the files that may be open.
fn region_bytes(bytes: u64, open_files_max: usize) -> u64 {
    let files_max = (open_files_max as u64 / 8).clamp(16, 1 << 15);
    (bytes / 64).clamp(1 << 20, 64 << 20).max(bytes / files_max).min(REGION_BYTES_MAX)
}

/// Whether a name may be in the cache's directory.
fn is_own_name(name: &str) -> bool {
    name == LOCK_NAME || writer::region_number(name).is_some() || name == "lost+found"
}

/// Takes the directory's lock.
fn lock(env: &Env, directory: &Path) -> Result<Arc<dyn File>> {
    let files = env.files();
    let failed = |error| {
        let error = Error::io(error, "opening a flash cache", directory.display());
        error.advice("name a directory of its own on a local disk, which this process may write to")
    };
    files.create_directories(directory).map_err(failed)?;
    // Where anything else lies, nothing is written, and above all nothing removed.
    for entry in files.list_atomically(directory).map_err(failed)? {
        if !is_own_name(&entry.name) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the directory of a flash cache holds something else",
            )
            .object(directory.display())
            .expected("nothing but the cache's own files")
            .found(format!("{:?}", entry.name))
            .advice("name a directory of its own; one that is not there is made"));
        }
    }
    let path = directory.join(LOCK_NAME);
    let file = match files.create_new(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            files.open(&path, Access::ReadWrite)
        }
        made => made,
    };
    let file = file.map_err(failed)?;
    if file.try_lock().map_err(failed)? {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::Busy, "the directory of a flash cache is in use")
        .object(directory.display())
        .advice(
            "each process needs a directory of its own; databases of one process share a cache with \
            Builder::flash_cache",
        ))
}

impl Inner {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn find(&self, key: FlashKey) -> Option<(Place, Arc<Region>)> {
        self.region_of(self.index.take_use(fingerprint(key))?)
    }

    fn region_of(&self, place: Place) -> Option<(Place, Arc<Region>)> {
        let region = self.regions.read().get(usize::from(place.region))?.clone()?;
        Some((place, region))
    }

    /// Bytes of a record with a piece of so many bytes, if it may be here.
    fn record_bytes(&self, length: u64) -> Option<usize> {
        usize::try_from(length)
            .ok()
            .filter(|_| length <= self.region_bytes)
            .map(|length| length + FLASH_RECORD_BYTES)
    }

    async fn get(&self, key: FlashKey, length: u64) -> Option<Bytes> {
        let (place, region) = self.find(key)?;
        let record_bytes = self.record_bytes(length)?;
        let mut read = Arc::clone(&region.file).read_many(vec![(u64::from(place.at), record_bytes)]).await;
        match read.pop()? {
            Ok(bytes) => {
                self.read_errors.store(0, Ordering::Relaxed);
                self.reads.end(self);
                let start = self.check(key, length, place, &region, &bytes)?;
                Some(Bytes::from(bytes).slice(start..))
            }
            Err(error) => {
                self.read_failed(&error);
                self.index.remove(fingerprint(key), place);
                None
            }
        }
    }

    #[cold]
    fn read_failed(&self, error: &std::io::Error) {
        if self.read_errors.fetch_add(1, Ordering::Relaxed) + 1 < READ_ERRORS_MAX {
            return Counters::one(&self.counters.errors);
        }
        self.read_errors.store(0, Ordering::Relaxed);
        self.reads.begin(self, "reading", error);
    }

    /// Where the piece begins in the record's bytes, if they are of the record sought.
    fn check(
        &self,
        key: FlashKey,
        length: u64,
        place: Place,
        region: &Region,
        bytes: &[u8],
    ) -> Option<usize> {
        let record = match FlashRecord::decode(bytes, region.id, place.at) {
            Ok(record) => record,
            Err(error) => {
                self.damaged(key, place, region, &error.to_string());
                return None;
            }
        };
        if record.key != key && !is_enabled(Mutant::FlashIgnoresKey) {
            // Two pieces with one fingerprint, or a slot that has another region by now.
            return None;
        }
        if u64::from(record.length) != length || bytes.len() as u64 != FLASH_RECORD_BYTES as u64 + length {
            self.damaged(
                key,
                place,
                region,
                &format!("a piece of {} bytes, of which {} are there", record.length, bytes.len()),
            );
            return None;
        }
        Some(FLASH_RECORD_BYTES)
    }

    #[cold]
    fn damaged(&self, key: FlashKey, place: Place, region: &Region, error: &str) {
        self.index.remove(fingerprint(key), place);
        let count = self.counters.damaged.fetch_add(1, Ordering::Relaxed) + 1;
        // A crash may leave many: they are told ever more rarely.
        if count.is_power_of_two() {
            tracing::warn!(
                region = %region.path.display(),
                offset = place.at,
                error,
                count,
                "a piece of the flash cache is damaged: it is read from the store"
            );
        }
    }

    fn admit(&self, key: FlashKey, piece: &[u8]) {
        let fingerprint = fingerprint(key);
        let length = piece.len() as u64;
        if self.is_closed() || self.index.peek(fingerprint).is_some() {
            return;
        }
        // What takes a good part of a region would cost more than it brings.
        if length > self.region_bytes / 4 || self.writes.is_on(&self.env) {
            return Counters::one(&self.counters.dropped_by_room);
        }
        let now = self.env.now();
        {
            let mut queue = self.queue.lock();
            if queue.pending.contains(&fingerprint) {
                return;
            }
            if queue.bytes + length > QUEUE_BYTES_MAX || self.queue_memory.lock().try_grow(length).is_err() {
                return Counters::one(&self.counters.dropped_by_room);
            }
            if !self.bucket.lock().take(now, length) && !is_enabled(Mutant::FlashIgnoresRate) {
                self.queue_memory.lock().shrink(length);
                return Counters::one(&self.counters.dropped_by_rate);
            }
            queue.pending.insert(fingerprint);
            queue.bytes += length;
            queue.offered.push_back(Offered { key, piece: Bytes::copy_from_slice(piece) });
            self.idle.store(false, Ordering::Release);
        }
        self.offered.raise();
    }
}

#[cfg(test)]
mod tests;
