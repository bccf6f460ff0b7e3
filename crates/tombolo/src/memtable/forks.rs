//! The way to the leaves: a skip list of forks, one for each leaf but the first, in the order of
//! the lowest versions that they begin with.
//!
//! A fork, 8-byte aligned:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | the key's first 8 bytes, as a number that orders like them |
//! | 8 | 8 | trailer of the lowest version: sequence number and kind |
//! | 16 | 8 | the leaf |
//! | 24 | 8 | where the key is: behind the tower, or with its version when it is long |
//! | 32 | 2 | key bytes |
//! | 40 | 8 × height | the next fork of each level |
//! | | | key, unless it is long |
//!
//! Forks are never changed but for their next pointers and their leaf, nor removed.
//!
//! Invariants:
//! 1. Every next pointer is null or leads to a complete fork of the arena that the list keeps
//!    alive.
//! 2. A fork is linked at level 0 before any other, each with a release store: who reads a pointer
//!    with acquire sees the whole fork.
//! 3. Every level is sorted, and a level's forks are among those of the level below.

use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tombolo_format::key::{Trailer, head_of};

use super::arena::{ALIGN, Bump};
use super::record::{Entry, Target};

/// Levels: with a quarter of the forks in each next one, enough for 4^12 leaves.
pub(super) const HEIGHT_MAX: usize = 12;

const TRAILER_AT: usize = 8;
const LEAF_AT: usize = 16;
const KEY_AT: usize = 24;
const KEY_BYTES_AT: usize = 32;
const TOWER_AT: usize = 40;

/// Longer keys are not copied: then what a fork takes is bounded.
const OWN_KEY_BYTES_MAX: usize = 64;

/// Most bytes that a fork takes.
pub(super) const FORK_BYTES_MAX: usize =
    (TOWER_AT + HEIGHT_MAX * 8 + OWN_KEY_BYTES_MAX).next_multiple_of(ALIGN);

/// The forks before a place, one of each level, null for the start.
pub(super) type Splice = [*mut u8; HEIGHT_MAX];

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Forks {
    head: [AtomicPtr<u8>; HEIGHT_MAX],
    /// Invariant: at least the height of every fork that is linked; it only rises.
    height: AtomicUsize,
}

/// A fork of some list.
///
/// Invariant: a complete fork in an arena that outlives every use; so a holder of one must hold
/// its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fork(NonNull<u8>);

impl Fork {
    /// The fork that [`Fork::pointer`] gave, if it is one.
    #[inline]
    pub(super) fn from_pointer(pointer: *mut u8) -> Option<Fork> {
        NonNull::new(pointer).map(Fork)
    }

    #[inline]
    pub(super) fn pointer(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Its leaf.
    #[inline]
    pub(super) fn leaf<'a>(self) -> &'a AtomicPtr<u8> {
        // SAFETY: a complete fork has an initialised, aligned pointer there; it is changed only as
        // an atomic. The lifetime is cut to that of the list by every caller in `list`.
        unsafe { self.0.add(LEAF_AT).cast::<AtomicPtr<u8>>().as_ref() }
    }

    /// The lowest key of its leaf.
    ///
    /// # Safety
    /// The caller holds the fork's list as long as `'a`.
    #[inline]
    pub(super) unsafe fn key<'a>(self) -> &'a [u8] {
        // SAFETY: initialised fields of a complete fork, at offsets that are multiples of their
        // sizes; they lead to the key, which lies in the same arena and never changes. The caller
        // holds the list.
        unsafe {
            let key = self.0.add(KEY_AT).cast::<NonNull<u8>>().read();
            let key_bytes = self.0.add(KEY_BYTES_AT).cast::<u16>().read() as usize;
            std::slice::from_raw_parts(key.as_ptr(), key_bytes)
        }
    }

    #[inline]
    fn tower<'a>(self, level: usize) -> &'a AtomicPtr<u8> {
        // SAFETY: callers stay below the fork's height; there a complete fork has initialised,
        // aligned pointers, changed only as atomics. The lifetime is cut to that of the list by
        // every caller in this module.
        unsafe { self.0.add(TOWER_AT + level * 8).cast::<AtomicPtr<u8>>().as_ref() }
    }

    /// How its lowest version lies to `target`. The caller holds the list.
    #[inline]
    pub(super) fn compare(self, target: &Target<'_>) -> Order {
        self.compare_from(head_of(target.key), target)
    }

    #[inline]
    fn compare_from(self, prefix: u64, target: &Target<'_>) -> Order {
        // SAFETY: a complete fork begins with 16 initialised bytes that never change.
        let (own, trailer) =
            unsafe { (self.0.cast::<u64>().read(), Trailer(self.0.add(TRAILER_AT).cast::<u64>().read())) };
        // SAFETY: the borrow ends with this function, whose caller holds the list.
        own.cmp(&prefix).then_with(|| target.order_of(unsafe { self.key() }, trailer))
    }
}

impl Forks {
    pub(super) fn new() -> Forks {
        Forks { head: [const { AtomicPtr::new(null_mut()) }; HEIGHT_MAX], height: AtomicUsize::new(1) }
    }

    #[inline]
    fn link(&self, before: *mut u8, level: usize) -> &AtomicPtr<u8> {
        match Fork::from_pointer(before) {
            Some(fork) => fork.tower(level),
            None => &self.head[level],
        }
    }

    #[inline]
    fn after(&self, before: *mut u8, level: usize) -> *mut u8 {
        self.link(before, level).load(Ordering::Acquire)
    }

    /// The last fork that comes before `target` (null: none), and the first that does not (null:
    /// none).
    #[inline]
    pub(super) fn search(&self, target: &Target<'_>, mut splice: Option<&mut Splice>) -> (*mut u8, *mut u8) {
        let prefix = head_of(target.key);
        let mut before = null_mut();
        let mut bound: *const u8 = null();
        let mut level = self.height.load(Ordering::Acquire) - 1;
        loop {
            let next = self.after(before, level);
            // What bounded the level above needs no second comparison.
            if let Some(fork) = Fork::from_pointer(next)
                && next.cast_const() != bound
            {
                if fork.compare_from(prefix, target) == Order::Less {
                    before = next;
                    continue;
                }
                bound = next;
            }
            if let Some(splice) = splice.as_deref_mut() {
                splice[level] = before;
            }
            if level == 0 {
                return (before, next);
            }
            level -= 1;
        }
    }

    /// The last fork (null: none).
    pub(super) fn last(&self) -> *mut u8 {
        let mut before = null_mut();
        for level in (0..self.height.load(Ordering::Acquire)).rev() {
            loop {
                let next = self.after(before, level);
                if next.is_null() {
                    break;
                }
                before = next;
            }
        }
        before
    }

    /// Writes the fork of a leaf that begins with `lowest`, a version of the same arena. It is not
    /// linked. [`FORK_BYTES_MAX`] were reserved.
    ///
    /// # Safety
    /// `lowest` lies in the arena that `bump` hands out.
    pub(super) unsafe fn write(bump: &mut Bump, lowest: &Entry<'_>, leaf: *mut u8, height: usize) -> Fork {
        let Ok(key_bytes) = u16::try_from(lowest.key.len()) else {
            unreachable!("limits are checked before the memtable")
        };
        assert!((1..=HEIGHT_MAX).contains(&height));
        let tower_end = TOWER_AT + height * 8;
        let is_own = lowest.key.len() <= OWN_KEY_BYTES_MAX;
        let place = bump.allocate(tower_end + if is_own { lowest.key.len() } else { 0 });
        let key: NonNull<u8> = NonNull::from(lowest.key).cast();
        // SAFETY: the allocation is fresh, 8-byte aligned and holds header, tower and own key; all
        // writes stay within it, at offsets that are multiples of the fields' sizes. A key that is
        // not copied lies in the same arena, by this function's contract.
        unsafe {
            place.cast::<u64>().write(head_of(lowest.key));
            place.add(TRAILER_AT).cast::<u64>().write(lowest.trailer.0);
            place.add(LEAF_AT).cast::<AtomicPtr<u8>>().write(AtomicPtr::new(leaf));
            place.add(KEY_AT).cast::<NonNull<u8>>().write(if is_own { place.add(tower_end) } else { key });
            place.add(KEY_BYTES_AT).cast::<u16>().write(key_bytes);
            for level in 0..height {
                place.add(TOWER_AT + level * 8).cast::<AtomicPtr<u8>>().write(AtomicPtr::new(null_mut()));
            }
            if is_own {
                place.add(tower_end).copy_from_nonoverlapping(key, lowest.key.len());
            }
        }
        Fork(place)
    }

    /// Links a fork of that height behind `splice`. One writer at a time.
    pub(super) fn insert(&self, fork: Fork, height: usize, splice: &Splice) {
        if height > self.height.load(Ordering::Relaxed) {
            // Levels above the old height start at the head: a search leaves their splice null.
            self.height.store(height, Ordering::Release);
        }
        for (level, before) in splice.iter().enumerate().take(height) {
            let link = self.link(*before, level);
            fork.tower(level).store(link.load(Ordering::Relaxed), Ordering::Relaxed);
            link.store(fork.pointer(), Ordering::Release);
        }
    }
}

/// Height 1, 2, 3 … with probability 3/4, 3/16, 3/64 …
pub(super) fn random_height(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let quarters = (*random >> 8).trailing_zeros() as usize / 2;
    1 + quarters.min(HEIGHT_MAX - 1)
}

#[cfg(test)]
mod tests;
