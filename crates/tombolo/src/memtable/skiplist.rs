//! An ordered list of versions in an arena: one writer, any number of readers, no locks.
//!
//! A node, 8-byte aligned:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | the user key's first 8 bytes, as a number that orders like them |
//! | 8 | 8 | trailer: sequence number and kind |
//! | 16 | 4 | value bytes |
//! | 20 | 2 | key bytes |
//! | 22 | 1 | height |
//! | 24 | 8 × height | the next node of each level |
//! | | | key, then value |
//!
//! Order: user keys ascending, of one key the newest first. Nodes are never changed but for their next pointers, nor removed.
//!
//! Invariants:
//! 1. Every next pointer is null or leads to a complete node of the arena that the list keeps alive.
//! 2. A node is linked at level 0 before any other, each with a release store: who reads a pointer with acquire sees the whole node.
//! 3. Every level is sorted, and a level's nodes are among those of the level below.

use std::cell::UnsafeCell;
use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use tombolo_format::key::Trailer;

use super::arena::{ALIGN, Arena, Bump};

/// Levels: with a quarter of the nodes in each next one, enough for 4^12 nodes.
const HEIGHT_MAX: usize = 12;

const TRAILER_AT: usize = 8;
const VALUE_BYTES_AT: usize = 16;
const KEY_BYTES_AT: usize = 20;
const HEIGHT_AT: usize = 22;
const TOWER_AT: usize = 24;

/// Most bytes that a node takes.
pub(super) fn node_bytes_max(key_bytes: usize, value_bytes: usize) -> usize {
    (TOWER_AT + HEIGHT_MAX * 8 + key_bytes + value_bytes).next_multiple_of(ALIGN)
}

/// A version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The user's key.
    pub(crate) key: &'a [u8],
    /// Its sequence number and kind.
    pub(crate) trailer: Trailer,
    /// The value; empty for deletes.
    pub(crate) value: &'a [u8],
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Skiplist {
    head: [AtomicPtr<u8>; HEIGHT_MAX],
    /// Invariant: at least the height of every node that is linked; it only rises.
    height: AtomicUsize,
    writer: UnsafeCell<WriterState>,
    /// Keeps the nodes.
    _arena: Arc<Arena>,
}

#[derive(Debug)]
struct WriterState {
    /// The predecessors of the last insertion, null for the head: an ascending key finds its place without a search.
    /// Invariant: no node of level `i` lies between `splice[i]` and the node inserted last.
    splice: [*mut u8; HEIGHT_MAX],
    random: u64,
}

// SAFETY: `writer` is touched only by `insert`, whose contract excludes two calls at once; nodes are immutable but for atomics.
unsafe impl Send for Skiplist {}
// SAFETY: as above.
unsafe impl Sync for Skiplist {}

/// A key prepared for comparisons.
struct Target<'a> {
    prefix: u64,
    key: &'a [u8],
    trailer: Trailer,
}

impl<'a> Target<'a> {
    #[inline]
    fn new(key: &'a [u8], trailer: Trailer) -> Target<'a> {
        Target { prefix: prefix_of(key), key, trailer }
    }
}

#[inline]
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// A node of some list.
///
/// Invariant: a complete node in an arena that outlives every use; so whoever holds one must hold its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(NonNull<u8>);

impl Node {
    #[inline]
    fn word(self, at: usize) -> u64 {
        // SAFETY: a complete node begins with 24 initialised bytes that never change; `at` is 0 or 8, so the read is aligned.
        unsafe { self.0.add(at).cast::<u64>().read() }
    }

    #[inline]
    fn trailer(self) -> Trailer {
        Trailer(self.word(TRAILER_AT))
    }

    #[inline]
    fn lengths(self) -> (usize, usize, usize) {
        // SAFETY: initialised bytes of a complete node, at offsets that are multiples of the fields' sizes.
        unsafe {
            let value_bytes = self.0.add(VALUE_BYTES_AT).cast::<u32>().read() as usize;
            let key_bytes = self.0.add(KEY_BYTES_AT).cast::<u16>().read() as usize;
            let height = self.0.add(HEIGHT_AT).read() as usize;
            (key_bytes, value_bytes, height)
        }
    }

    /// The node's tower at `level`, which must be below its height.
    #[inline]
    fn tower<'a>(self, level: usize) -> &'a AtomicPtr<u8> {
        debug_assert!(level < self.lengths().2);
        // SAFETY: a complete node has `height` initialised, aligned pointers there; they are changed only as atomics. The lifetime is
        // cut to that of the list by every caller in this module.
        unsafe { self.0.add(TOWER_AT + level * 8).cast::<AtomicPtr<u8>>().as_ref() }
    }

    /// Key, trailer and value. The caller must hold the list as long as `'a`.
    #[inline]
    unsafe fn entry<'a>(self) -> Entry<'a> {
        let (key_bytes, value_bytes, height) = self.lengths();
        // SAFETY: after the tower lie `key_bytes + value_bytes` initialised bytes that never change, alive as long as the list.
        unsafe {
            let key_at = self.0.add(TOWER_AT + height * 8);
            let key = std::slice::from_raw_parts(key_at.as_ptr(), key_bytes);
            let value = std::slice::from_raw_parts(key_at.add(key_bytes).as_ptr(), value_bytes);
            Entry { key, trailer: self.trailer(), value }
        }
    }

    /// How the node lies to `target`.
    #[inline]
    fn compare(self, target: &Target<'_>) -> Order {
        let by_prefix = self.word(0).cmp(&target.prefix);
        if by_prefix != Order::Equal {
            return by_prefix;
        }
        // SAFETY: the borrow ends with this function, whose caller holds the list.
        let entry = unsafe { self.entry() };
        entry.key.cmp(target.key).then_with(|| target.trailer.cmp(&entry.trailer))
    }
}

impl Skiplist {
    pub(super) fn new(arena: Arc<Arena>) -> Skiplist {
        Skiplist {
            head: [const { AtomicPtr::new(null_mut()) }; HEIGHT_MAX],
            height: AtomicUsize::new(1),
            writer: UnsafeCell::new(WriterState { splice: [null_mut(); HEIGHT_MAX], random: 0x9e37_79b9_7f4a_7c15 }),
            _arena: arena,
        }
    }

    /// The pointer after `before` (null: the head) at `level`.
    #[inline]
    fn link(&self, before: *mut u8, level: usize) -> &AtomicPtr<u8> {
        match NonNull::new(before) {
            Some(node) => Node(node).tower(level),
            None => &self.head[level],
        }
    }

    #[inline]
    fn after(&self, before: *mut u8, level: usize) -> Option<Node> {
        NonNull::new(self.link(before, level).load(Ordering::Acquire)).map(Node)
    }

    /// The last node that comes before `target` (null: none), and the first that does not.
    #[inline]
    fn search(&self, target: &Target<'_>, mut splice: Option<&mut [*mut u8; HEIGHT_MAX]>) -> (*mut u8, Option<Node>) {
        let mut before = null_mut();
        let mut bound: *const u8 = null();
        let mut level = self.height.load(Ordering::Acquire) - 1;
        loop {
            let next = self.after(before, level);
            // What bounded the level above needs no second comparison.
            if let Some(node) = next
                && node.0.as_ptr().cast_const() != bound
            {
                if node.compare(target) == Order::Less {
                    before = node.0.as_ptr();
                    continue;
                }
                bound = node.0.as_ptr();
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

    /// Adds a version. Its key and sequence number are not in the list yet.
    ///
    /// # Safety
    /// No two calls at once. `bump` hands out memory of the list's own arena, and has [`node_bytes_max`] reserved.
    pub(super) unsafe fn insert(&self, bump: &mut Bump, key: &[u8], trailer: Trailer, value: &[u8]) {
        // SAFETY: nobody else is in `insert`, and nothing else touches `writer`.
        let writer = unsafe { &mut *self.writer.get() };
        let target = Target::new(key, trailer);
        let height = random_height(&mut writer.random);
        if !self.follows_splice(writer.splice[0], &target) {
            let (_, next) = self.search(&target, Some(&mut writer.splice));
            debug_assert!(next.is_none_or(|node| node.compare(&target) == Order::Greater), "a version is inserted once");
        }
        let node = write_node(bump, &target, value, height);
        if height > self.height.load(Ordering::Relaxed) {
            // Levels above the old height start at the head: their splice was never set, so it is null.
            self.height.store(height, Ordering::Release);
        }
        for level in 0..height {
            let link = self.link(writer.splice[level], level);
            Node(node).tower(level).store(link.load(Ordering::Relaxed), Ordering::Relaxed);
            link.store(node.as_ptr(), Ordering::Release);
            writer.splice[level] = node.as_ptr();
        }
    }

    /// Whether `target` belongs directly after `before` at level 0; by the splice's invariant the levels above then fit too.
    #[inline]
    fn follows_splice(&self, before: *mut u8, target: &Target<'_>) -> bool {
        let Some(node) = NonNull::new(before).map(Node) else { return false };
        node.compare(target) == Order::Less && self.after(before, 0).is_none_or(|next| next.compare(target) == Order::Greater)
    }

    /// The first node at or after (`key`, `trailer`).
    #[inline]
    pub(super) fn seek(&self, key: &[u8], trailer: Trailer) -> Option<Node> {
        self.search(&Target::new(key, trailer), None).1
    }

    /// The last node before (`key`, `trailer`).
    pub(super) fn seek_before(&self, key: &[u8], trailer: Trailer) -> Option<Node> {
        NonNull::new(self.search(&Target::new(key, trailer), None).0).map(Node)
    }

    pub(super) fn first(&self) -> Option<Node> {
        self.after(null_mut(), 0)
    }

    pub(super) fn last(&self) -> Option<Node> {
        let mut before = null_mut();
        for level in (0..self.height.load(Ordering::Acquire)).rev() {
            while let Some(node) = self.after(before, level) {
                before = node.0.as_ptr();
            }
        }
        NonNull::new(before).map(Node)
    }

    /// The node after `node`, which must be of this list.
    #[inline]
    pub(super) fn next(&self, node: Node) -> Option<Node> {
        self.after(node.0.as_ptr(), 0)
    }

    /// What `node` holds.
    ///
    /// # Safety
    /// `node` is of this list.
    #[inline]
    pub(super) unsafe fn entry(&self, node: Node) -> Entry<'_> {
        // SAFETY: the entry borrows the list, which keeps the arena.
        unsafe { node.entry() }
    }
}

/// Height 1, 2, 3 … with probability 3/4, 3/16, 3/64 …
fn random_height(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let quarters = (*random >> 8).trailing_zeros() as usize / 2;
    1 + quarters.min(HEIGHT_MAX - 1)
}

/// A complete node with a tower of null pointers.
fn write_node(bump: &mut Bump, target: &Target<'_>, value: &[u8], height: usize) -> NonNull<u8> {
    let (Ok(key_bytes), Ok(value_bytes)) = (u16::try_from(target.key.len()), u32::try_from(value.len())) else {
        unreachable!("limits are checked before the memtable");
    };
    let tower_end = TOWER_AT + height * 8;
    let node = bump.allocate(tower_end + target.key.len() + value.len());
    // SAFETY: the allocation is fresh, 8-byte aligned and holds header, tower, key and value; all writes stay within it, at offsets that
    // are multiples of the fields' sizes. `height` is at most 12.
    unsafe {
        node.cast::<u64>().write(target.prefix);
        node.add(TRAILER_AT).cast::<u64>().write(target.trailer.0);
        node.add(VALUE_BYTES_AT).cast::<u32>().write(value_bytes);
        node.add(KEY_BYTES_AT).cast::<u16>().write(key_bytes);
        node.add(HEIGHT_AT).write(height.to_le_bytes()[0]);
        for level in 0..height {
            node.add(TOWER_AT + level * 8).cast::<AtomicPtr<u8>>().write(AtomicPtr::new(null_mut()));
        }
        node.add(tower_end).copy_from_nonoverlapping(NonNull::from(target.key).cast(), target.key.len());
        node.add(tower_end + target.key.len()).copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
    }
    node
}

#[cfg(test)]
mod tests;
