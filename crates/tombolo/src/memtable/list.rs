//! An ordered list of versions in an arena: one writer, any number of readers, no locks.
//!
//! The versions hang in leaves ([`super::leaf`]), found through the forks ([`super::forks`]). A
//! random insert touches the few forks that every search does and the lines of one leaf, and looks
//! at a version only when its key does not differ in the four bytes that the leaf holds.
//!
//! A leaf that is full when a version must go into it is split: the versions go to two new leaves,
//! the right one with a fork of its own.
//! 1. The left one takes the old one's place in the fork before it. It leads to the new fork, so
//!    that a search for entries that moved right finds them from here on, though no other fork
//!    leads there yet.
//! 2. The new fork is linked.
//!
//! Who has found the old leaf goes on in it: it holds all that had been put in by then, and leads
//! to what comes after. Ascending keys need no copying: the full leaf leads to a new one.
//!
//! Invariants:
//! 1. A leaf holds what lies from its fork's lowest version (the first leaf: from the start) up to
//!    the lowest of the fork that it leads to.
//! 2. Every leaf holds at least one version. Of a fork's leaf the lowest is the fork's.
//! 3. What a reader reaches was current at some time after the reader began.

use std::cell::UnsafeCell;
use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use tombolo_format::key::Trailer;
use tombolo_format::prefetch::prefetch_address;

use super::arena::{Arena, Bump};
use super::forks::{FORK_BYTES_MAX, Fork, Forks, HEIGHT_MAX, random_height};
use super::leaf::{LEAF_BYTES_MAX, Leaf, SLOTS, Slots};
use super::record::{Entry, Record, Target};

/// Most bytes that an insert takes beside those of the record: two leaves and a fork.
pub(super) const STRUCTURE_BYTES_MAX: usize = 2 * LEAF_BYTES_MAX + FORK_BYTES_MAX;

/// The heads of a leaf are computed anew when they then begin so many bytes later: it costs a look
/// at every version.
const SKIP_MORE_BYTES: usize = 2;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct SortedList {
    forks: Forks,
    /// The leaf before all forks; null while the list is empty.
    first: AtomicPtr<u8>,
    writer: UnsafeCell<WriterState>,
    /// Keeps records, leaves and forks.
    _arena: Arc<Arena>,
}

#[derive(Debug)]
struct WriterState {
    random: u64,
    recent: Option<Recent>,
}

/// Where the last insert was: an ascending key finds its place without a search.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The fork of `leaf`, null for the first.
    fork: *mut u8,
    leaf: Leaf,
    record: Record,
    /// No version of the leaf lies behind it, as far as is known.
    is_last: bool,
}

/// The place of a version that is inserted soon.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// Behind the last insert: it was compared with the version before it.
    Follows,
    /// The fork before it (null: none), its leaf, and the fork after it (null: none).
    At { fork: *mut u8, leaf: Leaf, next: *mut u8 },
}

// SAFETY: `writer` is touched only by `insert`, whose contract excludes two calls at once; all else
// is immutable but for atomics.
unsafe impl Send for SortedList {}
// SAFETY: as above.
unsafe impl Sync for SortedList {}

/// Where a version stands in a list. A holder of one must hold the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    leaf: Leaf,
    /// Invariant: what some load of the leaf's order gave, and `at` is less than its count.
    slots: Slots,
    at: usize,
}

impl Place {
    /// The first of a leaf, if there is a leaf.
    #[inline]
    fn first_of(leaf: Option<Leaf>) -> Option<Place> {
        let leaf = leaf?;
        let slots = leaf.slots();
        (slots.count() > 0).then_some(Place { leaf, slots, at: 0 })
    }

    #[inline]
    fn record(self) -> Record {
        self.leaf.record(self.slots, self.at)
    }
}

/// A split whose new fork is to be linked.
struct Split<'a> {
    /// Of which fork the half is that has the new version.
    of: *mut u8,
    half: Leaf,
    /// Of the right half.
    fork: Fork,
    height: usize,
    /// The lowest version of the right half.
    lowest: Entry<'a>,
}

#[inline]
fn load_leaf(word: &AtomicPtr<u8>) -> Option<Leaf> {
    NonNull::new(word.load(Ordering::Acquire)).map(Leaf::from_pointer)
}

fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl SortedList {
    pub(super) fn new(arena: Arc<Arena>) -> SortedList {
        SortedList {
            forks: Forks::new(),
            first: AtomicPtr::new(null_mut()),
            writer: UnsafeCell::new(WriterState { random: 0x9e37_79b9_7f4a_7c15, recent: None }),
            _arena: arena,
        }
    }

    /// Where the leaf of `fork` (null: the first) is said.
    #[inline]
    fn leaf_word(&self, fork: *mut u8) -> &AtomicPtr<u8> {
        match Fork::from_pointer(fork) {
            Some(fork) => fork.leaf(),
            None => &self.first,
        }
    }

    /// Adds a version. Its key and sequence number are not in the list yet.
    ///
    /// # Safety
    /// No two calls at once. `bump` hands out memory of the list's own arena, and has the record's
    /// bytes and [`STRUCTURE_BYTES_MAX`] reserved.
    pub(super) unsafe fn insert(
        &self,
        bump: &mut Bump,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        found: Option<Found>,
    ) {
        // SAFETY: nobody else is in `insert`, and nothing else touches `writer`.
        let writer = unsafe { &mut *self.writer.get() };
        let target = Target { key, trailer };
        let record = Record::write(bump, &target, value);
        let is_known = matches!(found, Some(Found::Follows));
        debug_assert!(
            !is_known || writer.recent.is_some_and(|recent| recent.record.compare(&target) == Order::Less)
        );
        // A split may have brought the next fork nearer than it was when the place was looked for.
        let followed = writer.recent.filter(|recent| {
            if is_known { is_before_next(recent.leaf, &target) } else { follows(recent, &target) }
        });
        let (fork, leaf) = match (followed, found) {
            (Some(recent), _) => (recent.fork, Some(recent.leaf)),
            (None, Some(Found::At { fork, leaf, next })) if self.is_still(fork, leaf, next) => {
                (fork, Some(leaf))
            }
            (None, _) => {
                let (fork, _) = self.forks.search(&target, None);
                (fork, load_leaf(self.leaf_word(fork)))
            }
        };
        let Some(leaf) = leaf else {
            let leaf = Leaf::write(bump, null_mut(), 0);
            leaf.insert(leaf.slots(), 0, key, record);
            self.first.store(leaf.pointer(), Ordering::Release);
            writer.recent = Some(Recent { fork: null_mut(), leaf, record, is_last: true });
            return;
        };
        let slots = leaf.slots();
        let place = match followed {
            Some(recent) if recent.is_last => slots.count(),
            _ => leaf.rank(slots, &target),
        };
        let is_last = place == slots.count();
        let (fork, leaf) = if slots.count() < SLOTS {
            leaf.insert(slots, place, key, record);
            (fork, leaf)
        } else if place == SLOTS && (followed.is_some() || leaf.next().is_null()) {
            self.append_leaf(bump, &mut writer.random, leaf, record)
        } else {
            let split = self.split(bump, &mut writer.random, fork, leaf, (place, record));
            self.link(split.fork, split.height, &split.lowest);
            (split.of, split.half)
        };
        writer.recent = Some(Recent { fork, leaf, record, is_last });
    }

    /// Where versions will go that are inserted next, in this order, with their memory on its way:
    /// of each the processor waits for the forks alone, which searches keep near. Those that follow
    /// the last insert one after the other need no search, and are compared here for the only time.
    ///
    /// # Safety
    /// As of [`SortedList::insert`].
    pub(super) unsafe fn find<'k>(
        &self,
        targets: impl Iterator<Item = (&'k [u8], Trailer)>,
        mut found: impl FnMut(Option<Found>),
    ) {
        // SAFETY: by this function's contract nobody is in `insert`.
        let recent = unsafe { (*self.writer.get()).recent };
        let mut before: Option<Target<'_>> = None;
        let mut is_ascending = recent.is_some();
        for (key, trailer) in targets {
            let target = Target { key, trailer };
            is_ascending = is_ascending
                && recent.is_some_and(|recent| match &before {
                    Some(before) => {
                        target.order_of(before.key, before.trailer) == Order::Less
                            && is_before_next(recent.leaf, &target)
                    }
                    None => follows(&recent, &target),
                });
            if is_ascending {
                before = Some(target);
                found(Some(Found::Follows));
                continue;
            }
            let (fork, next) = self.forks.search(&target, None);
            found(load_leaf(self.leaf_word(fork)).map(|leaf| {
                leaf.prefetch();
                Found::At { fork, leaf, next }
            }));
        }
    }

    /// Whether a leaf has its place still, and no other was put behind it.
    #[inline]
    fn is_still(&self, fork: *mut u8, leaf: Leaf, next: *mut u8) -> bool {
        self.leaf_word(fork).load(Ordering::Relaxed) == leaf.pointer() && leaf.next() == next
    }

    /// Puts a version that comes after all of a full leaf into a new leaf behind it. Returns the
    /// leaf and its fork.
    fn append_leaf(&self, bump: &mut Bump, random: &mut u64, full: Leaf, record: Record) -> (*mut u8, Leaf) {
        // SAFETY: the list is held; the borrows end with this function.
        let lowest = unsafe { record.entry() };
        let next = full.next();
        // SAFETY: as above.
        let skip = Fork::from_pointer(next).map_or(0, |next| shared_bytes(lowest.key, unsafe { next.key() }));
        let leaf = Leaf::write(bump, next, skip);
        leaf.insert(leaf.slots(), 0, lowest.key, record);
        let height = random_height(random);
        // SAFETY: the record lies in the arena of the list, which is that of `bump`.
        let fork = unsafe { Forks::write(bump, &lowest, leaf.pointer(), height) };
        full.set_next(fork.pointer());
        self.link(fork, height, &lowest);
        (fork.pointer(), leaf)
    }

    /// Splits a full leaf and puts a version into one of its halves, at that place of the whole.
    /// Step 1: the new fork is not linked yet.
    fn split(
        &self,
        bump: &mut Bump,
        random: &mut u64,
        before: *mut u8,
        full: Leaf,
        new: (usize, Record),
    ) -> Split<'_> {
        const MIDDLE: usize = SLOTS / 2;
        let slots = full.slots();
        // SAFETY: the list is held; the borrows end with this function.
        let lowest = unsafe { full.record(slots, MIDDLE).entry() };
        let skip_to = |fork: *mut u8| {
            // SAFETY: as above.
            let shared =
                Fork::from_pointer(fork).map_or(0, |fork| shared_bytes(lowest.key, unsafe { fork.key() }));
            if shared >= full.skip() + SKIP_MORE_BYTES { shared } else { full.skip() }
        };
        let right = Leaf::write(bump, full.next(), skip_to(full.next()));
        right.take(full, slots, MIDDLE, SLOTS);
        let height = random_height(random);
        // SAFETY: the record lies in the arena of the list, which is that of `bump`.
        let fork = unsafe { Forks::write(bump, &lowest, right.pointer(), height) };
        let left = Leaf::write(bump, fork.pointer(), skip_to(before));
        left.take(full, slots, 0, MIDDLE);
        let (place, record) = new;
        // SAFETY: as above.
        let key = unsafe { record.entry() }.key;
        let (of, half) = if place > MIDDLE {
            right.insert(right.slots(), place - MIDDLE, key, record);
            (fork.pointer(), right)
        } else {
            left.insert(left.slots(), place, key, record);
            (before, left)
        };
        self.leaf_word(before).store(left.pointer(), Ordering::Release);
        Split { of, half, fork, height, lowest }
    }

    fn link(&self, fork: Fork, height: usize, lowest: &Entry<'_>) {
        let mut splice = [null_mut(); HEIGHT_MAX];
        self.forks.search(&Target { key: lowest.key, trailer: lowest.trailer }, Some(&mut splice));
        self.forks.insert(fork, height, &splice);
    }

    /// The leaf in which `target` belongs, and the fork that it leads to.
    #[inline]
    fn leaf_for(&self, target: &Target<'_>) -> Option<(Leaf, *mut u8)> {
        let (before, bound) = self.forks.search(target, None);
        let mut leaf = load_leaf(self.leaf_word(before))?;
        loop {
            let next = leaf.next();
            // A split may have taken place since the search.
            match Fork::from_pointer(next) {
                Some(fork) if next != bound && fork.compare(target) == Order::Less => {
                    leaf = load_leaf(fork.leaf())?;
                }
                _ => return Some((leaf, next)),
            }
        }
    }

    /// The first version at or after (`key`, `trailer`).
    #[inline]
    pub(super) fn seek(&self, key: &[u8], trailer: Trailer) -> Option<Place> {
        let target = Target { key, trailer };
        let (leaf, next) = self.leaf_for(&target)?;
        let slots = leaf.slots();
        let at = leaf.rank(slots, &target);
        if at < slots.count() {
            Some(Place { leaf, slots, at })
        } else {
            Place::first_of(load_leaf(Fork::from_pointer(next)?.leaf()))
        }
    }

    /// The last version before (`key`, `trailer`).
    pub(super) fn seek_before(&self, key: &[u8], trailer: Trailer) -> Option<Place> {
        let target = Target { key, trailer };
        let (leaf, _) = self.leaf_for(&target)?;
        let slots = leaf.slots();
        let at = leaf.rank(slots, &target).checked_sub(1)?;
        Some(Place { leaf, slots, at })
    }

    pub(super) fn first(&self) -> Option<Place> {
        Place::first_of(load_leaf(&self.first))
    }

    pub(super) fn last(&self) -> Option<Place> {
        let mut leaf = load_leaf(self.leaf_word(self.forks.last()))?;
        while let Some(fork) = Fork::from_pointer(leaf.next()) {
            leaf = load_leaf(fork.leaf())?;
        }
        let slots = leaf.slots();
        let at = slots.count().checked_sub(1)?;
        Some(Place { leaf, slots, at })
    }

    /// Asks for the memory of what comes after `place` in its leaf, and of the way to the leaf
    /// after it: for a walk that begins there.
    #[inline]
    pub(super) fn prefetch_from(&self, place: Place) {
        prefetch_address(place.leaf.next());
        place.leaf.prefetch_records(place.slots, place.at + 1);
    }

    /// The version after `place`, which must be of this list.
    ///
    /// Versions that follow each other lie anywhere, so a walk asks for the next leaf's while it is
    /// in this one, in steps of which each needs what the last has asked for: the fork, the leaf,
    /// its versions and the fork after it.
    #[inline]
    pub(super) fn next(&self, place: Place) -> Option<Place> {
        const LEAF_ASKED_AT: usize = 1;
        const RECORDS_ASKED_AT: usize = 3;
        let at = place.at + 1;
        if at == place.slots.count() {
            return Place::first_of(load_leaf(Fork::from_pointer(place.leaf.next())?.leaf()));
        }
        if (at == LEAF_ASKED_AT || at == RECORDS_ASKED_AT)
            && let Some(leaf) = Fork::from_pointer(place.leaf.next()).and_then(|next| load_leaf(next.leaf()))
        {
            if at == LEAF_ASKED_AT {
                leaf.prefetch();
            } else {
                leaf.prefetch_records(leaf.slots(), 0);
                prefetch_address(leaf.next());
            }
        }
        Some(Place { at, ..place })
    }

    /// The version before `place`, which must be of this list.
    pub(super) fn prev(&self, place: Place) -> Option<Place> {
        match place.at.checked_sub(1) {
            Some(at) => Some(Place { at, ..place }),
            None => {
                // SAFETY: the place is of this list; the borrow ends here.
                let entry = unsafe { place.record().entry() };
                self.seek_before(entry.key, entry.trailer)
            }
        }
    }

    /// What stands at `place`.
    ///
    /// # Safety
    /// `place` is of this list.
    #[inline]
    pub(super) unsafe fn entry(&self, place: Place) -> Entry<'_> {
        // SAFETY: the entry borrows the list, which keeps the arena.
        unsafe { place.record().entry() }
    }
}

/// Whether `target` belongs into the leaf of the last insert, after it.
#[inline]
fn follows(recent: &Recent, target: &Target<'_>) -> bool {
    recent.record.compare(target) == Order::Less && is_before_next(recent.leaf, target)
}

/// Whether `target` comes before all that lies in the leaves behind this one.
#[inline]
fn is_before_next(leaf: Leaf, target: &Target<'_>) -> bool {
    Fork::from_pointer(leaf.next()).is_none_or(|next| next.compare(target) == Order::Greater)
}

#[cfg(test)]
mod tests;
