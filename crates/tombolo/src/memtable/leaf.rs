//! Leaves: up to 14 versions in order, with the part of their keys in which they differ beside
//! them.
//!
//! A leaf, aligned to a cache line:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | order: number of versions in the lowest 4 bits, then the slot of each, in their order, 4 bits each |
//! | 8 | 8 | the next leaf's fork, null after the last |
//! | 16 | 4 | skip: bytes at the start that all keys of the leaf's range share; not compared |
//! | 24 | 4 × 14 | of each slot: the 4 key bytes after `skip`, as a number that orders like them |
//! | 80 | 8 × 14 | of each slot: the record |
//!
//! One writer fills slots from the first on, and shows a version by storing the order anew; so a
//! reader who has read the order sees the slots that it names whole, and they never change. A leaf
//! that is full is left as it is: its versions go to two new ones.
//!
//! Invariants:
//! 1. Slots below the count are complete and never change. The order names each of them once, in
//!    the order of their records.
//! 2. All keys of the leaf, and all that may ever come to it, share their first `skip` bytes.
//! 3. `next` changes only from one fork to another that lies before it, both after every version of
//!    the leaf.

use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use tombolo_format::prefetch::prefetch_address;

use super::arena::Bump;
use super::record::{Record, Target};

/// Versions of a leaf at most.
pub(super) const SLOTS: usize = 14;

const ORDER_AT: usize = 0;
const NEXT_AT: usize = 8;
const SKIP_AT: usize = 16;
const HEADS_AT: usize = 24;
const RECORDS_AT: usize = HEADS_AT + 4 * SLOTS;
const LEAF_BYTES: usize = RECORDS_AT + 8 * SLOTS;

/// Alignment of a leaf: three cache lines.
const LEAF_ALIGN: usize = 64;

/// Most bytes of the arena that a leaf takes.
pub(super) const LEAF_BYTES_MAX: usize = LEAF_BYTES + LEAF_ALIGN;

/// The count and the slots in order, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots(u64);

impl Slots {
    /// Number of versions.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The slot of the version at `place`, which is less than the count.
    #[inline]
    fn slot(self, place: usize) -> usize {
        debug_assert!(place < self.count());
        (self.0 >> (4 + 4 * place) & 15) as usize
    }

    /// With the next free slot put in at `place`. There is one.
    #[inline]
    fn with(self, place: usize) -> Slots {
        debug_assert!(place <= self.count() && self.count() < SLOTS);
        let at = 4 + 4 * place;
        let before = (1u64 << at) - 1;
        Slots(((self.0 & before) | ((self.0 & !before) << 4) | ((self.0 & 15) << at)) + 1)
    }
}

/// A leaf of some list.
///
/// Invariant: a complete leaf in an arena that outlives every use; so a holder of one must hold
/// its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf(NonNull<u8>);

/// The 4 bytes of `key` after `skip`, as a number that orders like them.
#[inline]
fn head_of(key: &[u8], skip: usize) -> u32 {
    match key.get(skip..).unwrap_or_default() {
        [one, two, three, four, ..] => u32::from_be_bytes([*one, *two, *three, *four]),
        rest => {
            let mut bytes = [0; 4];
            bytes[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(bytes)
        }
    }
}

impl Leaf {
    /// An empty leaf before the fork `next`, whose keys share `skip` bytes. [`LEAF_BYTES_MAX`] were
    /// reserved.
    pub(super) fn write(bump: &mut Bump, next: *mut u8, skip: usize) -> Leaf {
        // Comparing the shared part as well is never wrong.
        let skip = u32::try_from(skip).unwrap_or(0);
        let place = bump.allocate_aligned(LEAF_BYTES, LEAF_ALIGN);
        // SAFETY: the allocation is fresh and holds a leaf; the offsets are multiples of the
        // fields' sizes.
        unsafe {
            place.add(ORDER_AT).cast::<AtomicU64>().write(AtomicU64::new(0));
            place.add(NEXT_AT).cast::<AtomicPtr<u8>>().write(AtomicPtr::new(next));
            place.add(SKIP_AT).cast::<u32>().write(skip);
        }
        Leaf(place)
    }

    /// The leaf that [`Leaf::pointer`] gave.
    #[inline]
    pub(super) fn from_pointer(pointer: NonNull<u8>) -> Leaf {
        Leaf(pointer)
    }

    #[inline]
    pub(super) fn pointer(self) -> *mut u8 {
        self.0.as_ptr()
    }

    #[inline]
    fn order_word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: a complete leaf has it there, aligned; it is changed as an atomic only. Uses end
        // within this module's functions, whose callers hold the list.
        unsafe { self.0.add(ORDER_AT).cast::<AtomicU64>().as_ref() }
    }

    #[inline]
    fn next_word<'a>(self) -> &'a AtomicPtr<u8> {
        // SAFETY: as for `order_word`.
        unsafe { self.0.add(NEXT_AT).cast::<AtomicPtr<u8>>().as_ref() }
    }

    /// The versions that are there now.
    #[inline]
    pub(super) fn slots(self) -> Slots {
        Slots(self.order_word().load(Ordering::Acquire))
    }

    /// The fork of the leaf after this one.
    #[inline]
    pub(super) fn next(self) -> *mut u8 {
        self.next_word().load(Ordering::Acquire)
    }

    /// Leads to another fork, which is complete: the leaf behind it lies before the old one.
    pub(super) fn set_next(self, next: *mut u8) {
        self.next_word().store(next, Ordering::Release);
    }

    /// Bytes that are not compared.
    #[inline]
    pub(super) fn skip(self) -> usize {
        // SAFETY: initialised when the leaf was written, and never changed.
        unsafe { self.0.add(SKIP_AT).cast::<u32>().read() as usize }
    }

    #[inline]
    fn head(self, slot: usize) -> u32 {
        debug_assert!(slot < SLOTS);
        // SAFETY: `slot` was named by an order that was read with acquire (or is the writer's own),
        // so it was written before, and never changes.
        unsafe { self.0.add(HEADS_AT + 4 * slot).cast::<u32>().read() }
    }

    #[inline]
    fn record_in(self, slot: usize) -> Record {
        debug_assert!(slot < SLOTS);
        // SAFETY: as for `head`; the value written there is the address of a record of the same
        // list.
        Record::from_pointer(unsafe { self.0.add(RECORDS_AT + 8 * slot).cast::<NonNull<u8>>().read() })
    }

    /// The version at `place` of the order, which is less than its count.
    #[inline]
    pub(super) fn record(self, slots: Slots, place: usize) -> Record {
        self.record_in(slots.slot(place))
    }

    /// Asks for its memory.
    #[inline]
    pub(super) fn prefetch(self) {
        for line in 0..LEAF_BYTES.div_ceil(LEAF_ALIGN) {
            prefetch_address(self.pointer().wrapping_add(line * LEAF_ALIGN));
        }
    }

    /// Asks for the beginnings of the versions from `from` on.
    #[inline]
    pub(super) fn prefetch_records(self, slots: Slots, from: usize) {
        for place in from..slots.count() {
            let record = self.record(slots, place).pointer();
            prefetch_address(record);
            prefetch_address(record.wrapping_add(LEAF_ALIGN));
        }
    }

    /// How many of the versions come before `target`.
    #[inline]
    pub(super) fn rank(self, slots: Slots, target: &Target<'_>) -> usize {
        let head = head_of(target.key, self.skip());
        let (mut low, mut high) = (0, slots.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            let slot = slots.slot(middle);
            let order = self.head(slot).cmp(&head).then_with(|| self.record_in(slot).compare(target));
            if order == Order::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds a version at `place`. The leaf is not full, and the writer's own.
    #[inline]
    pub(super) fn insert(self, slots: Slots, place: usize, key: &[u8], record: Record) {
        self.fill(slots.count(), head_of(key, self.skip()), record);
        self.order_word().store(slots.with(place).0, Ordering::Release);
    }

    /// Adds versions `from` on of another leaf, in their order.
    pub(super) fn take(self, other: Leaf, slots: Slots, from: usize, to: usize) {
        let same = self.skip() == other.skip();
        for place in from..to {
            let slot = slots.slot(place);
            let record = other.record_in(slot);
            let head = if same {
                other.head(slot)
            } else {
                // SAFETY: the caller holds the list, and the entry ends here.
                head_of(unsafe { record.entry() }.key, self.skip())
            };
            let own = self.slots();
            self.fill(own.count(), head, record);
            self.order_word().store(own.with(own.count()).0, Ordering::Release);
        }
    }

    #[inline]
    fn fill(self, slot: usize, head: u32, record: Record) {
        assert!(slot < SLOTS, "a full leaf is split before");
        // SAFETY: the slot lies in the leaf, and no order that anyone has read names it: the single
        // writer alone touches it.
        unsafe {
            self.0.add(HEADS_AT + 4 * slot).cast::<u32>().write(head);
            self.0.add(RECORDS_AT + 8 * slot).cast::<*mut u8>().write(record.pointer());
        }
    }
}

#[cfg(test)]
mod tests;
