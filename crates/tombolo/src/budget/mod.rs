//! One memory budget: everything that an engine keeps in memory in bulk is charged here, and the block cache gives way to the rest.
//!
//! ```text
//! memtables, open tables, pinned values, scans, compactions, queues: charged as they grow
//! block cache:                                                       what the others leave, less a sixteenth
//! ```
//!
//! A database has a budget of its own, of [`memory_bytes`](crate::Options::memory_bytes), or shares one with other databases of the
//! process ([`crate::Builder::memory_budget`]); who shares a budget shares the block cache.
//!
//! Charging is two relaxed additions. It is meant for pieces of some size (a chunk, a block, a buffer), not for single entries.
//!
//! Invariants:
//! 1. `used(category)` is the sum of the living [`Charge`]s of that category; dropping a charge gives it back.
//! 2. When [`MemoryBudget::charge`] returns, the cache has given way to it as far as it can.
//! 3. The least that all members need to work with is at most the budget: [`MemoryBudget::join`] refuses what would not fit.
//!
//! Thread safety: all is shared. No lock is held while the cache gives way.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tombolo_env::Completion;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::signal::Signal;

/// Least bytes of a budget.
pub const BUDGET_BYTES_MIN: u64 = 1 << 20;

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
    /// Requests in flight, and what waits in queues.
    Queues,
}

impl Category {
    /// All categories.
    pub const ALL: [Category; 7] = [
        Category::Memtables,
        Category::Cache,
        Category::Tables,
        Category::Pinned,
        Category::Scans,
        Category::Compactions,
        Category::Queues,
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
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What gives memory back when others grow: the block cache.
pub(crate) trait GiveWay: Any + Send + Sync {
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
    peak: AtomicU64,
    /// The least that the members need.
    needed: Mutex<Needed>,
    cache: Mutex<Option<Weak<dyn GiveWay>>>,
    freed: Signal,
    /// Whether somebody may wait for `freed`.
    awaited: AtomicBool,
}

#[derive(Default)]
struct Needed {
    members: u64,
    bytes: u64,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryBudget").field("bytes", &self.bytes()).field("used", &self.used_bytes()).finish_non_exhaustive()
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

    /// A budget of `bytes`, which may be too few for a database: for what is tested alone.
    pub(crate) fn of_any_size(bytes: u64) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::make(bytes))
    }

    fn make(bytes: u64) -> MemoryBudget {
        MemoryBudget {
            bytes: AtomicU64::new(bytes),
            private: false,
            used: Default::default(),
            total: Counter::default(),
            peak: AtomicU64::new(0),
            needed: Mutex::default(),
            cache: Mutex::default(),
            freed: Signal::default(),
            awaited: AtomicBool::new(false),
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Grows or shrinks the budget; the cache gives way. What does not give way may lie beyond a smaller one until it is given back.
    ///
    /// # Errors
    /// `Invalid` below 1 MiB, or below what its databases need to work: nothing has changed then.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        {
            let needed = self.needed.lock();
            check_bytes(bytes, needed.bytes.max(BUDGET_BYTES_MIN), needed.members)?;
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        self.make_way();
        self.freed.raise();
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

    /// Bytes in use that do not give way: all but the cache's.
    pub fn firm_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.used(Category::Cache))
    }

    /// Bytes that the cache may take now: what the others leave, less a sixteenth of the budget for what is too small to be charged.
    pub fn cache_bytes_max(&self) -> u64 {
        (self.bytes() - self.bytes() / 16).saturating_sub(self.firm_bytes())
    }

    /// Whether what does not give way takes three quarters or more: time to flush, and to let go of what is not needed now.
    pub fn is_short(&self) -> bool {
        self.firm_bytes() >= self.bytes() / 4 * 3
    }

    /// Charges `bytes`; the cache gives way. For what must go on: it succeeds when there is no room, too.
    pub fn charge(self: &Arc<Self>, category: Category, bytes: u64) -> Charge {
        let mut charge = Charge { budget: Arc::clone(self), category, bytes: 0 };
        charge.grow(bytes);
        charge
    }

    /// Charges `bytes` if there is room beside all that does not give way. For what can wait, or do with less.
    ///
    /// # Errors
    /// `Busy` when there is no room now; `Invalid` when there never can be.
    pub fn try_charge(self: &Arc<Self>, category: Category, bytes: u64) -> Result<Charge> {
        let mut charge = Charge { budget: Arc::clone(self), category, bytes: 0 };
        charge.try_grow(bytes)?;
        Ok(charge)
    }

    /// Makes room for a database that needs at least `bytes` to work, until the membership is dropped.
    ///
    /// # Errors
    /// `Invalid` when all members together need more than there is.
    pub fn join(self: &Arc<Self>, bytes: u64) -> Result<Membership> {
        let mut needed = self.needed.lock();
        let wanted = needed.bytes.saturating_add(bytes);
        check_bytes(self.bytes(), wanted, needed.members + 1)?;
        needed.bytes = wanted;
        needed.members += 1;
        Ok(Membership { budget: Arc::clone(self), bytes: AtomicU64::new(bytes) })
    }

    /// Databases that share the budget now.
    pub fn members(&self) -> u64 {
        self.needed.lock().members
    }

    /// Resolves when some charge is given back after this call. To miss none: subscribe, then look, then wait.
    pub fn freed(&self) -> Completion<()> {
        let completion = self.freed.subscribe();
        self.awaited.store(true, Ordering::SeqCst);
        completion
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

    /// Counts bytes in, without looking for room.
    pub(crate) fn add(&self, category: Category, bytes: u64) {
        self.used[category as usize].0.fetch_add(bytes, Ordering::Relaxed);
        let total = self.total.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Counts bytes out.
    pub(crate) fn subtract(&self, category: Category, bytes: u64) {
        self.used[category as usize].0.fetch_sub(bytes, Ordering::Relaxed);
        // Sequentially consistent with the store of `awaited`: who subscribed before this sees it, or sees the room.
        self.total.0.fetch_sub(bytes, Ordering::SeqCst);
        if category != Category::Cache && self.awaited.load(Ordering::SeqCst) && self.awaited.swap(false, Ordering::SeqCst) {
            self.freed.raise();
        }
    }

    fn make_way(&self) {
        if self.used(Category::Cache) <= self.cache_bytes_max() {
            return;
        }
        let cache = self.cache.lock().as_ref().and_then(Weak::upgrade);
        if let Some(cache) = cache {
            cache.give_way();
        }
    }
}

/// A database's place in a budget, until dropped.
#[derive(Debug)]
pub struct Membership {
    budget: Arc<MemoryBudget>,
    /// Changed under the budget's `needed`.
    bytes: AtomicU64,
}

impl Membership {
    /// The budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The database needs `needed` bytes from here on, and has settings that give it `bytes` in all: a budget made for it alone follows.
    ///
    /// # Errors
    /// `Invalid` when there would be too few bytes: nothing has changed then.
    pub(crate) fn change(&self, needed: u64, bytes: u64) -> Result<()> {
        let budget = &self.budget;
        {
            let mut all = budget.needed.lock();
            let wanted = (all.bytes - self.bytes.load(Ordering::Relaxed)).saturating_add(needed);
            let bytes = if budget.private { bytes } else { budget.bytes() };
            check_bytes(bytes, wanted.max(BUDGET_BYTES_MIN), all.members)?;
            all.bytes = wanted;
            self.bytes.store(needed, Ordering::Relaxed);
            budget.bytes.store(bytes, Ordering::Relaxed);
        }
        budget.make_way();
        budget.freed.raise();
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
        needed.bytes -= self.bytes.load(Ordering::Relaxed);
        needed.members -= 1;
    }
}

/// Bytes taken from a budget, until dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<MemoryBudget>,
    category: Category,
    bytes: u64,
}

impl Charge {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` more; the cache gives way.
    pub fn grow(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.budget.add(self.category, bytes);
        self.bytes += bytes;
        if self.category != Category::Cache {
            self.budget.make_way();
        }
    }

    /// Takes `bytes` more if there is room beside all that does not give way.
    ///
    /// # Errors
    /// `Busy` when there is no room now; `Invalid` when there never can be. It holds what it held.
    pub fn try_grow(&mut self, bytes: u64) -> Result<()> {
        let budget = &self.budget;
        let firm_max = budget.bytes() - budget.bytes() / 16;
        if bytes > firm_max {
            return Err(Error::new(ErrorKind::Invalid, format!("{bytes} bytes for {} never fit the memory budget", self.category))
                .expected(format!("at most {firm_max} bytes"))
                .advice("give the budget more bytes"));
        }
        // Counted first, looked at after: of two that take the last room at once, at most one stays.
        budget.add(self.category, bytes);
        if budget.firm_bytes() > firm_max {
            budget.subtract(self.category, bytes);
            return Err(Error::new(ErrorKind::Busy, format!("the memory budget has no room for {bytes} bytes for {}", self.category))
                .found(format!("{} of {} bytes in use that do not give way", budget.firm_bytes(), budget.bytes())));
        }
        self.bytes += bytes;
        self.budget.make_way();
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
