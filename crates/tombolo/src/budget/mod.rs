//! One memory budget: everything that an engine keeps in memory in bulk is charged here, and the
//! block cache gives way to the rest.
//!
//! ```text
//! memtables, open tables, pinned values, scans, compactions, queued writes, what the log holds, the flash cache's index: charged as they grow
//! chunks that memtables gave back, block cache (which give way in this order):                 what the others leave, less a sixteenth
//! ```
//!
//! A database has a budget of its own, of [`memory_bytes`](crate::Options::memory_bytes), or shares
//! one with other databases of the process ([`crate::Builder::memory_budget`]); who shares a budget
//! shares the block cache.
//!
//! Charging is three additions. It is meant for pieces of some size (a chunk, a block, a buffer),
//! not for single entries.
//!
//! Memtables must go on: a write that was let in cannot be refused its memory. So each database is
//! promised two when it joins, one that takes writes and one that is flushed, and asks for `Room`
//! before it begins further ones. Read-ahead, which can do with less, gets nothing of what others
//! were promised.
//!
//! Invariants:
//! 1. `used(category)` is the sum of the living [`Charge`]s of that category; dropping a charge
//!    gives it back.
//! 2. The cache gives way before a charge counts: `used_bytes` exceeds `bytes` only by what does
//!    not give way.
//! 3. The least that all members need to work with is at most the budget: [`MemoryBudget::join`]
//!    refuses what would not fit.
//! 4. What does not give way stays within the budget, save for what nobody can refuse: the part of
//!    a batch that is larger than a memtable, memtables that readers keep after their flush, values
//!    and cursors that a program keeps, the tops of open tables, and writes that wait for room:
//!    beyond a memtable's bytes of them, only those that somebody waits for.
//!
//! Thread safety: all is shared. No lock is held while the cache gives way.

mod log;
mod spare;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tombolo_env::memory::Region;
use tombolo_storage::{Error, ErrorKind, Result};

pub(crate) use self::log::LogBooks;
pub(crate) use self::spare::SPARE_BYTES;

/// Least bytes of a budget.
pub(crate) const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// What a database needs beside its memtables: blocks for both ends of a merge.
pub(crate) const WORKING_BYTES: u64 = 256 << 10;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// The newest writes, until they are flushed.
    Memtables,
    /// Blocks, filters and indexes in the block cache. It gives way to all others.
    Cache,
    /// What open tables hold outside the cache.
    Tables,
    /// Values handed out that share a block's memory.
    Pinned,
    /// Buffers of scans.
    Scans,
    /// Buffers of flushes and compactions.
    Compactions,
    /// Writes that wait for room.
    Queues,
    /// What the log keeps until it is durable.
    Log,
    /// What the flash cache knows of its pieces, and those that wait to be written.
    Flash,
    /// Memory of memtables that ended, kept for the next ones. It gives way to all others, before
    /// the cache does.
    Spare,
}

impl Category {
    /// All categories.
    pub const ALL: [Category; 10] = [
        Category::Memtables,
        Category::Cache,
        Category::Tables,
        Category::Pinned,
        Category::Scans,
        Category::Compactions,
        Category::Queues,
        Category::Log,
        Category::Flash,
        Category::Spare,
    ];

    /// Its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Memtables => "memtables",
            Category::Cache => "block cache",
            Category::Tables => "open tables",
            Category::Pinned => "pinned values",
            Category::Scans => "scans",
            Category::Compactions => "compactions",
            Category::Queues => "queues",
            Category::Log => "log",
            Category::Flash => "flash cache",
            Category::Spare => "spare memory of memtables",
        }
    }
}

impl Category {
    /// Whether it gives way to the others.
    const fn gives_way(self) -> bool {
        matches!(self, Category::Cache | Category::Spare)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What gives memory back when others grow: the block cache.
pub(crate) trait GiveWay: Any + Send + Sync {
    /// The budget has another number of bytes.
    fn resized(&self) {}

    /// Gives back what lies beyond [`MemoryBudget::cache_bytes_max`].
    fn give_way(&self);
}

/// A counter on a cache line of its own: threads that charge different categories do not contend.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// A number of bytes for one or several databases of a process. See the module's documentation.
pub struct MemoryBudget {
    bytes: AtomicU64,
    /// Made for one database: it follows that one's settings.
    private: bool,
    used: [Counter; Category::ALL.len()],
    /// Sum of `used`.
    total: Counter,
    /// Sum of `used` without what gives way, and what that gives way to at this moment.
    firm: Counter,
    /// What memtables may come to take: of `needed`, and the living [`Room`]s.
    promised: AtomicU64,
    peak: AtomicU64,
    /// Of what the cache has.
    cached_index: AtomicU64,
    /// The least that the members need.
    needed: Mutex<Needed>,
    cache: Mutex<Option<Weak<dyn GiveWay>>>,
    /// Chunks that memtables gave back. Counted as used by [`Category::Spare`].
    spares: Mutex<Vec<Region>>,
}

#[derive(Default)]
struct Needed {
    members: u64,
    bytes: u64,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryBudget")
            .field("bytes", &self.bytes())
            .field("used", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// A budget of `bytes`.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// let budget = tombolo::MemoryBudget::new(64 << 20)?;
    /// let orders = tombolo::Db::builder("mem:///orders").memory_budget(&budget).open().wait()?;
    /// let events = tombolo::Db::builder("mem:///events").memory_budget(&budget).open().wait()?;
    /// # drop((orders, events));
    /// assert!(budget.used_bytes() <= budget.bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` below 1 MiB.
    pub fn new(bytes: u64) -> Result<Arc<MemoryBudget>> {
        if bytes < BUDGET_BYTES_MIN {
            return Err(Error::new(ErrorKind::Invalid, "a memory budget too small to work with")
                .expected(format!("at least {BUDGET_BYTES_MIN} bytes"))
                .found(bytes)
                .advice("give the database more memory_bytes"));
        }
        Ok(MemoryBudget::of_any_size(bytes))
    }

    /// The budget of one database, which follows its settings.
    ///
    /// # Errors
    /// As [`MemoryBudget::new`].
    pub(crate) fn private(bytes: u64) -> Result<Arc<MemoryBudget>> {
        MemoryBudget::new(bytes)?;
        Ok(Arc::new(MemoryBudget { private: true, ..MemoryBudget::make(bytes) }))
    }

    /// A budget of `bytes`, which may be too few for a database: for tests of single parts.
    pub(crate) fn of_any_size(bytes: u64) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::make(bytes))
    }

    fn make(bytes: u64) -> MemoryBudget {
        MemoryBudget {
            bytes: AtomicU64::new(bytes),
            private: false,
            used: Default::default(),
            total: Counter::default(),
            firm: Counter::default(),
            promised: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            cached_index: AtomicU64::new(0),
            needed: Mutex::default(),
            cache: Mutex::default(),
            spares: Mutex::default(),
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Grows or shrinks the budget; the cache gives way. What does not give way may lie beyond a
    /// smaller one until it is given back.
    ///
    /// # Errors
    /// `Invalid` below 1 MiB, or below what its databases need to work: nothing has changed then.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        {
            let needed = self.needed.lock();
            check_bytes(bytes, needed.bytes.max(BUDGET_BYTES_MIN), needed.members)?;
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        self.resized();
        Ok(())
    }

    /// Bytes in use by a category.
    pub fn used(&self, category: Category) -> u64 {
        self.used[category as usize].0.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed)
    }

    /// The most bytes that were in use at once since the budget was made.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes in use that give way: the cache's, and those kept for memtables.
    pub(crate) fn yielding_bytes(&self) -> u64 {
        self.used(Category::Cache) + self.used(Category::Spare)
    }

    /// Bytes in use that do not give way: all others.
    pub(crate) fn firm_bytes(&self) -> u64 {
        self.firm.0.load(Ordering::SeqCst)
    }

    /// The same, with what memtables were promised and do not use yet.
    fn spoken_for_bytes(&self) -> u64 {
        let memtables = self.used(Category::Memtables);
        self.firm_bytes().saturating_add(self.promised.load(Ordering::SeqCst).saturating_sub(memtables))
    }

    /// The most that may be spoken for: a sixteenth is for memory too small to be charged.
    fn firm_bytes_max(&self) -> u64 {
        self.bytes() - self.bytes() / 16
    }

    /// Bytes that the cache may take now: what the others leave, less a sixteenth of the budget for
    /// memory too small to be charged.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        self.firm_bytes_max().saturating_sub(self.firm_bytes())
    }

    /// Whether what does not give way takes three quarters or more: time to flush, and to let go of
    /// unneeded memory.
    pub(crate) fn is_short(&self) -> bool {
        self.firm_bytes() >= self.bytes() / 4 * 3
    }

    /// Charges `bytes`; the cache gives way. For what must go on: it succeeds when there is no
    /// room, too.
    pub(crate) fn charge(self: &Arc<Self>, category: Category, bytes: u64) -> Charge {
        let mut charge = Charge { budget: Arc::clone(self), category, bytes: 0 };
        charge.grow(bytes);
        charge
    }

    /// Charges `bytes` if there is room beside all that does not give way, and what of the cache
    /// cannot because it is held. For what can wait, or do with less.
    ///
    /// # Errors
    /// `Busy` when there is no room now; `Invalid` when there never can be.
    pub(crate) fn try_charge(self: &Arc<Self>, category: Category, bytes: u64) -> Result<Charge> {
        let mut charge = Charge { budget: Arc::clone(self), category, bytes: 0 };
        charge.try_grow(bytes)?;
        Ok(charge)
    }

    /// Makes room for a database with memtables of `memtable_bytes`, until the membership is
    /// dropped: two of them are promised to it, and beside them it needs [`WORKING_BYTES`].
    ///
    /// # Errors
    /// `Invalid` when all members together need more than there is.
    pub(crate) fn join(self: &Arc<Self>, memtable_bytes: u64) -> Result<Membership> {
        let mut needed = self.needed.lock();
        let wanted = needed.bytes.saturating_add(needed_bytes(memtable_bytes));
        check_bytes(self.bytes(), wanted, needed.members + 1)?;
        needed.bytes = wanted;
        needed.members += 1;
        self.promised.fetch_add(2 * memtable_bytes, Ordering::SeqCst);
        Ok(Membership { budget: Arc::clone(self), memtable_bytes: AtomicU64::new(memtable_bytes) })
    }

    /// Room for a further memtable of `bytes`, if there is: memtables may fill three quarters of
    /// the budget together with all else that does not give way.
    pub(crate) fn room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        // Counted first, looked at after: of two that take the last room at once, at most one
        // stays.
        let room = Room { budget: Arc::clone(self), bytes };
        self.promised.fetch_add(bytes, Ordering::SeqCst);
        (self.spoken_for_bytes() <= self.bytes() / 4 * 3).then_some(room)
    }

    /// Databases that share the budget now.
    pub fn members(&self) -> u64 {
        self.needed.lock().members
    }

    /// The budget's cache, or the one that `make` makes.
    pub(crate) fn cache_or<C: GiveWay>(&self, make: impl FnOnce() -> Arc<C>) -> Arc<C> {
        let mut slot = self.cache.lock();
        let known = slot.as_ref().and_then(Weak::upgrade).and_then(|cache| {
            let any: Arc<dyn Any + Send + Sync> = cache;
            any.downcast::<C>().ok()
        });
        known.unwrap_or_else(|| {
            let made = make();
            let weak: Weak<C> = Arc::downgrade(&made);
            *slot = Some(weak);
            made
        })
    }

    /// Counts bytes in that do not give way; the cache does, first.
    fn add_firm(&self, category: Category, bytes: u64) {
        self.firm.0.fetch_add(bytes, Ordering::SeqCst);
        self.make_way();
        self.add(category, bytes);
    }

    /// Counts bytes of the cache in, which has looked for room.
    pub(crate) fn add_cached(&self, bytes: u64) {
        self.add(Category::Cache, bytes);
    }

    /// Counts bytes of filters and indexes in, which the cache has counted: every read needs them.
    pub(crate) fn add_cached_index(&self, bytes: u64) {
        self.cached_index.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts them out.
    pub(crate) fn subtract_cached_index(&self, bytes: u64) {
        self.cached_index.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of the cache that are filters and indexes.
    pub(crate) fn cached_index_bytes(&self) -> u64 {
        self.cached_index.load(Ordering::Relaxed)
    }

    /// Counts bytes of the cache out.
    pub(crate) fn subtract_cached(&self, bytes: u64) {
        self.subtract(Category::Cache, bytes);
    }

    /// Counts bytes in that left the cache while somebody holds them: they do not give way any
    /// more. Nothing else gives way here.
    pub(crate) fn add_pinned(&self, bytes: u64) {
        self.firm.0.fetch_add(bytes, Ordering::SeqCst);
        self.add(Category::Pinned, bytes);
    }

    /// Counts out what [`MemoryBudget::add_pinned`] counted in.
    pub(crate) fn subtract_pinned(&self, bytes: u64) {
        self.subtract(Category::Pinned, bytes);
    }

    /// Counts bytes in; those that do not give way are in `firm` already.
    fn add(&self, category: Category, bytes: u64) {
        self.used[category as usize].0.fetch_add(bytes, Ordering::Relaxed);
        let total = self.total.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Counts bytes out.
    fn subtract(&self, category: Category, bytes: u64) {
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
        self.used[category as usize].0.fetch_sub(bytes, Ordering::Relaxed);
        if !category.gives_way() {
            self.firm.0.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// Another number of bytes counts from here on.
    fn resized(&self) {
        let cache = self.cache.lock().as_ref().and_then(Weak::upgrade);
        if let Some(cache) = cache {
            cache.resized();
        }
        self.trim_spares();
        self.make_way();
    }

    /// What gives way does, to what others hold.
    pub(crate) fn make_way(&self) {
        while self.yielding_bytes() > self.cache_bytes_max() && self.give_spare_back() {}
        if self.used(Category::Cache) <= self.cache_bytes_max() {
            return;
        }
        let cache = self.cache.lock().as_ref().and_then(Weak::upgrade);
        if let Some(cache) = cache {
            cache.give_way();
        }
    }
}

/// What a database with memtables of `memtable_bytes` cannot work without.
fn needed_bytes(memtable_bytes: u64) -> u64 {
    memtable_bytes.saturating_mul(2).saturating_add(WORKING_BYTES)
}

/// The promise of a further memtable's bytes, until dropped.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.promised.fetch_sub(self.bytes, Ordering::SeqCst);
        self.budget.trim_spares();
    }
}

/// A database's place in a budget, until dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    budget: Arc<MemoryBudget>,
    /// Changed under the budget's `needed`.
    memtable_bytes: AtomicU64,
}

impl Membership {
    /// The budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The database has memtables of `memtable_bytes` from here on, and settings that give it
    /// `bytes` in all: a budget made for it alone follows.
    ///
    /// # Errors
    /// `Invalid` when there would be too few bytes: nothing has changed then.
    pub(crate) fn change(&self, memtable_bytes: u64, bytes: u64) -> Result<()> {
        let budget = &self.budget;
        {
            let mut all = budget.needed.lock();
            let old = self.memtable_bytes.load(Ordering::Relaxed);
            let wanted = (all.bytes - needed_bytes(old)).saturating_add(needed_bytes(memtable_bytes));
            let bytes = if budget.private { bytes } else { budget.bytes() };
            check_bytes(bytes, wanted.max(BUDGET_BYTES_MIN), all.members)?;
            all.bytes = wanted;
            budget.promised.fetch_add(2 * memtable_bytes, Ordering::SeqCst);
            budget.promised.fetch_sub(2 * old, Ordering::SeqCst);
            self.memtable_bytes.store(memtable_bytes, Ordering::Relaxed);
            budget.bytes.store(bytes, Ordering::Relaxed);
        }
        budget.resized();
        Ok(())
    }
}

/// # Errors
/// `Invalid` when a budget of `bytes` is smaller than `needed`.
fn check_bytes(bytes: u64, needed: u64, members: u64) -> Result<()> {
    if bytes >= needed {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "a memory budget too small to work with")
        .expected(format!("at least {needed} bytes for {members} databases with their memtable_bytes"))
        .found(bytes)
        .advice("give the budget more bytes, or the databases fewer memtable_bytes"))
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut needed = self.budget.needed.lock();
        let memtable_bytes = self.memtable_bytes.load(Ordering::Relaxed);
        needed.bytes -= needed_bytes(memtable_bytes);
        needed.members -= 1;
        self.budget.promised.fetch_sub(2 * memtable_bytes, Ordering::SeqCst);
        self.budget.trim_spares();
    }
}

/// Bytes taken from a budget, until dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    category: Category,
    bytes: u64,
}

impl Charge {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` more; the cache gives way first.
    pub fn grow(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.category.gives_way() {
            true => self.budget.add(self.category, bytes),
            false => self.budget.add_firm(self.category, bytes),
        }
        self.bytes += bytes;
    }

    /// Takes `bytes` more if there is room beside all that does not give way and what memtables
    /// were promised.
    ///
    /// # Errors
    /// `Busy` when there is no room now; `Invalid` when there never can be. It holds what it held.
    pub fn try_grow(&mut self, bytes: u64) -> Result<()> {
        let budget = &self.budget;
        let firm_max = budget.firm_bytes_max();
        if bytes > firm_max {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{bytes} bytes for {} never fit the memory budget", self.category),
            )
            .expected(format!("at most {firm_max} bytes"))
            .advice("give the budget more bytes"));
        }
        // Counted first, looked at after: of two that take the last room at once, at most one
        // stays.
        budget.firm.0.fetch_add(bytes, Ordering::SeqCst);
        if budget.spoken_for_bytes() > firm_max {
            budget.firm.0.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Error::new(
                ErrorKind::Busy,
                format!("the memory budget has no room for {bytes} bytes for {}", self.category),
            )
            .found(format!(
                "{} of {} bytes spoken for that do not give way",
                budget.spoken_for_bytes(),
                budget.bytes()
            )));
        }
        budget.make_way();
        // What others hold of the cache does not give way.
        let used = budget.used_bytes();
        if used.saturating_add(bytes) > budget.bytes() {
            budget.firm.0.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the memory budget has no room for {bytes} bytes \
                for {}",
                    self.category
                ),
            )
            .found(format!(
                "{used} of {} bytes in use: the block cache cannot give up what is held by cursors and \
                    values",
                budget.bytes()
            )));
        }
        budget.add(self.category, bytes);
        self.bytes += bytes;
        Ok(())
    }

    /// Gives `bytes` back, at most what it holds.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.bytes -= bytes;
            self.budget.subtract(self.category, bytes);
        }
    }

    /// Holds `bytes` from here on.
    pub fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => self.shrink(self.bytes - bytes),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests;
