//! A place for an entry that readers borrow from without counting: no cache line is written that
//! another reader writes.
//!
//! Hazard pointers with debts, as in the crate `arc-swap`: who borrows notes the address in a slot
//! of its own; who takes the entry out looks through all notes, counts once for each that it finds,
//! and marks it as paid. A borrower whose note is paid when it ends owns that count. The difference
//! is what taking out costs: here notes are read, and written only where the address is found;
//! there each of nine for each thread is the target of a locked exchange, which was a fifth of the
//! CPU of 32 threads that miss the cache.
//!
//! ```text
//! note:  null = free → address = borrowed → null
//!                                  ↓ taken out of its place
//!                         address + 1 = paid → null
//! ```
//!
//! Invariants:
//! 1. A borrower's entry has a count that cannot end before the borrowing does: the place's own, or
//!    the one that paid for its note.
//! 2. A note is made before the place is looked at once more; an entry is taken out before the
//!    notes are looked at. All four are sequentially consistent, so that the borrower sees the
//!    change, or the taker the note.
//! 3. Only the thread that has a node turns a free note into one that is not; only its borrower
//!    frees it; takers turn borrowed into paid, and nothing else. So a note is its borrower's alone
//!    until that frees it, on whatever thread.
//! 4. Nodes live for ever: a note may outlive its thread. There are as many as threads borrowed at
//!    once, and one more for each six borrowings that one thread has at once.
//! 5. All notes are of entries: one made too late may be paid for by the thread that takes out
//!    another entry, which has come to the same address.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::entry::Entry;

/// Notes of a node: with the rest of it they fill a cache line.
const NOTES: usize = 6;
/// Added to an address that was paid for.
const PAID: usize = 1;
const _: () = assert!(align_of::<Entry>() > PAID);

/// The address of an entry that somebody borrows, with [`PAID`] in it or not, or null.
type Note = AtomicPtr<Entry>;

#[derive(Debug)]
#[repr(align(64))]
struct Node {
    notes: [Note; NOTES],
    /// Written before anybody else sees the node, and never again.
    next: AtomicPtr<Node>,
    /// Whether a thread has it.
    taken: AtomicBool,
}

/// The newest node. Invariant: null, or one that lives for ever, and so are all that follow.
static NODES: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// The node of this thread, given back with the thread.
struct Own(Cell<Option<&'static Node>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(node) = self.0.take() {
            node.give_back();
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

fn node_at(address: *mut Node) -> Option<&'static Node> {
    // SAFETY: addresses of nodes come from `NODES` and `next` alone, where only leaked boxes are
    // put.
    unsafe { address.as_ref() }
}

/// All nodes that were there when it began.
fn nodes() -> impl Iterator<Item = &'static Node> {
    std::iter::successors(node_at(NODES.load(Ordering::SeqCst)), |node| {
        node_at(node.next.load(Ordering::Acquire))
    })
}

impl Node {
    /// A free note. The owner of the node may use it.
    #[inline]
    fn free(&self) -> Option<&Note> {
        // Acquire: what its last borrower did is over.
        self.notes.iter().find(|note| note.load(Ordering::Acquire).is_null())
    }

    /// Takes a node with a free note for this thread alone.
    #[cold]
    fn take() -> (&'static Node, &'static Note) {
        let take = |node: &'static Node| {
            if node.taken.load(Ordering::Relaxed) || node.taken.swap(true, Ordering::Acquire) {
                return None;
            }
            let free = node.free();
            if free.is_none() {
                node.give_back();
            }
            Some((node, free?))
        };
        if let Some(taken) = nodes().find_map(take) {
            return taken;
        }
        let node: &'static mut Node = Box::leak(Box::new(Node {
            notes: Default::default(),
            next: AtomicPtr::default(),
            taken: AtomicBool::new(true),
        }));
        let address = ptr::from_mut(node);
        let mut first = NODES.load(Ordering::Relaxed);
        loop {
            // SAFETY: a leaked box lives for ever, and is shared from here on.
            let node = unsafe { &*address };
            node.next.store(first, Ordering::Relaxed);
            match NODES.compare_exchange_weak(first, address, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return (node, &node.notes[0]),
                Err(other) => first = other,
            }
        }
    }

    /// Its notes stay until their borrowers end.
    fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// Makes a note of `address`.
#[inline]
fn note(address: *mut Entry) -> &'static Note {
    let noted = OWN.try_with(|own| {
        let note = own.0.get().and_then(Node::free).unwrap_or_else(|| {
            let (node, note) = Node::take();
            if let Some(full) = own.0.replace(Some(node)) {
                full.give_back();
            }
            note
        });
        note.swap(address, Ordering::SeqCst);
        note
    });
    noted.unwrap_or_else(|_| {
        // The thread is ending: it has a node for this note only.
        let (node, note) = Node::take();
        note.swap(address, Ordering::SeqCst);
        node.give_back();
        note
    })
}

/// Frees the borrower's note; the entry that it was paid with, as `Arc::into_raw` gives it, if it
/// was. The borrower owns a count of that.
#[inline]
fn free(note: &Note, address: *mut Entry) -> Option<*mut Entry> {
    match note.compare_exchange(address, ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => None,
        Err(paid) => {
            debug_assert_eq!(paid.addr(), address.addr() | PAID);
            note.store(ptr::null_mut(), Ordering::Release);
            Some(paid.map_addr(|address| address & !PAID))
        }
    }
}

/// A place for an entry, or for none.
#[derive(Debug, Default)]
pub(super) struct Place(
    /// From `Arc::into_raw`, with the count that it stands for; or null.
    AtomicPtr<Entry>,
);

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

impl Place {
    /// Borrows the entry there.
    #[inline]
    pub fn load(&self) -> Option<Guard> {
        let mut address = self.0.load(Ordering::Acquire);
        while !address.is_null() {
            let note = note(address);
            let now = self.0.load(Ordering::SeqCst);
            match NonNull::new(now) {
                // The place has a count of it, and the note was made before that was looked at:
                // the thread that takes it out finds the note (invariant 2).
                Some(entry) if now.addr() == address.addr() => {
                    return Some(Guard { entry, note: Some(note) });
                }
                _ => {
                    if let Some(paid) = free(note, address) {
                        // SAFETY: `free` gave an address from `Arc::into_raw`, and a count with it.
                        drop(unsafe { Arc::from_raw(paid) });
                    }
                }
            }
            address = now;
        }
        None
    }

    /// The entry there, counted.
    pub fn load_full(&self) -> Option<Arc<Entry>> {
        self.load().map(Guard::into_arc)
    }

    /// Puts `new` there, and gives the old entry. Its borrowers have a count of it from here on.
    pub fn swap(&self, new: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        let new = new.map_or(ptr::null_mut(), |new| Arc::into_raw(new).cast_mut());
        let old = self.0.swap(new, Ordering::SeqCst);
        if old.is_null() {
            return None;
        }
        for note in nodes().flat_map(|node| &node.notes) {
            if note.load(Ordering::SeqCst).addr() != old.addr() {
                continue;
            }
            // Before the mark: its borrower may end at once. SAFETY: `old` is from `Arc::into_raw`,
            // and the place's count of it is ours until this function has given it on.
            unsafe { Arc::increment_strong_count(old) };
            let paid = old.map_addr(|address| address | PAID);
            if note.compare_exchange(old, paid, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // Its borrower has ended meanwhile.
                // SAFETY: the count that was raised above, and the place's is still there.
                unsafe { Arc::decrement_strong_count(old) };
            }
        }
        // SAFETY: the place had a count of it, from `Arc::into_raw`, and has it no more.
        Some(unsafe { Arc::from_raw(old) })
    }
}

/// An entry that was borrowed from a place, or that is its own.
#[derive(Debug)]
pub(super) struct Guard {
    /// Invariant: from `Arc::into_raw`, and alive (invariant 1 of the module).
    entry: NonNull<Entry>,
    /// The note that keeps `entry` alive. Without one, or once it was paid, this owns a count.
    note: Option<&'static Note>,
}

// SAFETY: it is an `Arc<Entry>` in another form, which may be sent, and a note is freed on any
// thread.
unsafe impl Send for Guard where Arc<Entry>: Send {}
// SAFETY: it gives `&Entry` only, as `&Arc<Entry>` does.
unsafe impl Sync for Guard where Arc<Entry>: Sync {}

impl Guard {
    /// The entry, counted.
    pub fn to_arc(&self) -> Arc<Entry> {
        let address = self.entry.as_ptr();
        // SAFETY: it is alive as long as the guard is, and `address` is from `Arc::into_raw`; the
        // count that is raised here is the result's.
        unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        }
    }

    /// The same, with a count of its own.
    pub fn into_arc(self) -> Arc<Entry> {
        let (address, note) = (self.entry.as_ptr(), self.note);
        std::mem::forget(self);
        if let Some(note) = note {
            // SAFETY: the note keeps the entry alive until it is freed below.
            unsafe { Arc::increment_strong_count(address) };
            if let Some(paid) = free(note, address) {
                // SAFETY: `free` gave a count with it, beside the one that was raised above.
                drop(unsafe { Arc::from_raw(paid) });
            }
        }
        // SAFETY: the guard's own count, or the one that was raised for it.
        unsafe { Arc::from_raw(address) }
    }
}

impl Guard {
    /// Whether it is of this entry.
    pub fn is(&self, entry: &Arc<Entry>) -> bool {
        ptr::eq(self.entry.as_ptr(), Arc::as_ptr(entry))
    }
}

impl From<Arc<Entry>> for Guard {
    fn from(entry: Arc<Entry>) -> Guard {
        // SAFETY: `Arc::into_raw` gives no null.
        Guard { entry: unsafe { NonNull::new_unchecked(Arc::into_raw(entry).cast_mut()) }, note: None }
    }
}

impl Deref for Guard {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        // SAFETY: it is alive as long as the guard is (invariant 1), and nobody has it mutably: it
        // lies in an `Arc`.
        unsafe { self.entry.as_ref() }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let address = self.entry.as_ptr();
        let owned = match self.note {
            None => Some(address),
            Some(note) => free(note, address),
        };
        if let Some(owned) = owned {
            // SAFETY: without a note the guard owns a count from `Arc::into_raw`; with one, `free`
            // gave it one.
            drop(unsafe { Arc::from_raw(owned) });
        }
    }
}

#[cfg(test)]
mod tests;
