//! Memory of the block cache: frames, cut out of regions that are advised for huge pages.
//!
//! What a general allocator makes of blocks of some 8 KiB that come and go for hours is a heap of
//! holes: it held a third more than was in use. Here a region is a [slab](slab) of frames of one
//! size; a resident lies in one frame, and its holder (cache, cursor, value) holds the frame.
//!
//! ```text
//! region 2 MiB:  | frame 8 KiB | frame | frame | ...          sizes in steps of an eighth
//! larger ones:   | frame                    |                 a region each
//! ```
//!
//! Regions are a sixteenth of all that is held, so that a small cache stays small, up to a huge
//! page. Read at random over 128 MiB, memory costs 140–180 ns on huge pages and 170–330 ns on pages
//! of 4 KiB.
//!
//! Books: all regions are charged to the budget as the cache's while their frames are free; a frame
//! that is taken is charged by its taker.
//!
//! Invariants:
//! 1. A frame that is taken is no other's memory until it is dropped: its number is in no slab's
//!    `free`, and slabs share no region.
//! 2. A region lives at least as long as each of its frames, which hold it.
//!
//! Thread safety: all is shared; one lock, held for some hundred nanoseconds (longer to choose a
//! slab to give up: it looks at all), and not while memory is mapped or given back.

mod slab;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::memory::Region;

use super::CacheKey;
use crate::budget::MemoryBudget;
pub(super) use slab::BOOK_BYTES;
use slab::{Slab, frame_bytes, region_bytes};

/// Memory for one resident of the cache, still to be filled. Its content is undefined: that of its
/// last use.
#[derive(Debug)]
pub struct FrameMut(Frame);

#[derive(Debug)]
struct Frame {
    frames: Arc<Frames>,
    region: Arc<Region>,
    /// Invariant: `offset..offset + length` lies within frame `index` of the slab, and so within
    /// `region`.
    offset: usize,
    length: usize,
    slab: usize,
    index: u32,
    bytes: u64,
}

impl FrameMut {
    /// The bytes charged for it.
    pub fn charged_bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The filled frame, held by all who share its bytes.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self.0)
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes lie within the region (invariant of `offset`), which this value keeps
        // alive, and were zeroed when it was mapped, or written since. Nobody writes to them: a
        // frame is this value's alone (invariant 1), and after `freeze` there is no `FrameMut` of
        // it. Who had it before gave it back under the lock under which it was taken, so that those
        // accesses are over.
        unsafe { std::slice::from_raw_parts(self.region.base().as_ptr().add(self.offset), self.length) }
    }
}

impl Deref for FrameMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and this value, borrowed for as long as the slice lives, is the only
        // one that leads to the frame.
        unsafe {
            std::slice::from_raw_parts_mut(self.0.region.base().as_ptr().add(self.0.offset), self.0.length)
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.frames.give_back(self.slab, self.index);
    }
}

/// A slab that is to be given up, and what lies there.
#[derive(Debug)]
pub(super) struct Evacuation {
    slab: usize,
    region: Arc<Region>,
    /// Whom its frames were taken for. What the cache has of one of them now may lie elsewhere.
    pub residents: Vec<CacheKey>,
}

impl Evacuation {
    /// Whether these bytes lie in the slab.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let begin = self.region.base().as_ptr().addr();
        (begin..begin + self.region.length()).contains(&bytes.as_ptr().addr())
    }
}

/// What becomes of a slab that was evacuated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// Its memory goes back to the system.
    GiveBack,
    /// It is cut into frames of the size that this many bytes at a multiple of this alignment need.
    Cut(usize, usize),
}

/// All frames of a cache.
#[derive(Debug)]
pub(super) struct Frames {
    budget: Arc<MemoryBudget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    slabs: Vec<Option<Slab>>,
    /// Numbers of those that there are, with free frames, and that are not being evacuated; by
    /// bytes of a frame.
    open: BTreeMap<usize, Vec<usize>>,
    /// Bytes of all slabs.
    held_bytes: u64,
    /// How many hold nothing.
    empty: usize,
    /// Where the search for a slab to give up goes on.
    hand: usize,
    /// Whether the cache is gone: what becomes empty goes back.
    closed: bool,
}

impl State {
    fn slab(&self, number: usize) -> Option<&Slab> {
        self.slabs.get(number)?.as_ref()
    }

    fn slab_mut(&mut self, number: usize) -> Option<&mut Slab> {
        self.slabs.get_mut(number)?.as_mut()
    }

    fn add(&mut self, slab: Slab) {
        self.held_bytes += slab.bytes();
        self.empty += 1;
        let number = self.slabs.iter().position(Option::is_none).unwrap_or(self.slabs.len());
        self.open.entry(slab.frame_bytes()).or_default().push(number);
        if number == self.slabs.len() {
            self.slabs.push(None);
        }
        self.slabs[number] = Some(slab);
    }

    /// Removes an empty slab.
    fn remove(&mut self, number: usize) -> Option<Slab> {
        self.close(number);
        let slab = self.slabs.get_mut(number)?.take()?;
        self.held_bytes -= slab.bytes();
        self.empty -= 1;
        Some(slab)
    }

    /// Nothing is taken from it any more.
    fn close(&mut self, number: usize) {
        let Some(frame_bytes) = self.slab(number).map(Slab::frame_bytes) else { return };
        if let Some(open) = self.open.get_mut(&frame_bytes) {
            open.retain(|other| *other != number);
        }
    }

    /// Frames may be taken from it again.
    fn open(&mut self, number: usize) {
        let Some(slab) = self.slab(number).filter(|slab| !slab.is_full()) else { return };
        let frame_bytes = slab.frame_bytes();
        self.open.entry(frame_bytes).or_default().push(number);
    }

    /// A slab with a free frame; one that holds nothing is cut anew when need be.
    fn with_free_frame(&mut self, frame_bytes: usize) -> Option<usize> {
        if let Some(number) = self.open.get(&frame_bytes).and_then(|open| open.last()) {
            return Some(*number);
        }
        if self.empty == 0 {
            return None;
        }
        let fits = |slab: &Slab| slab.is_empty() && !slab.is_evacuated() && slab.may_be_cut(frame_bytes);
        let number = self.slabs.iter().position(|slab| slab.as_ref().is_some_and(fits))?;
        self.cut(number, frame_bytes);
        Some(number)
    }

    fn cut(&mut self, number: usize, frame_bytes: usize) {
        self.close(number);
        if let Some(slab) = self.slab_mut(number) {
            slab.cut(frame_bytes);
        }
        self.open(number);
    }
}

/// All slabs with frames of one size that are not being evacuated.
#[derive(Clone, Copy, Default)]
struct OfSize {
    bytes: u64,
    /// Frames that are free.
    free: usize,
}

/// Bytes of a frame for `bytes` at a multiple of `alignment`.
fn frame_bytes_for(bytes: usize, alignment: usize) -> usize {
    let exact = frame_bytes(bytes);
    if exact.is_multiple_of(alignment) { exact } else { frame_bytes(bytes + alignment - 1) }
}

impl Frames {
    pub fn new(budget: &Arc<MemoryBudget>) -> Arc<Frames> {
        Arc::new(Frames { budget: Arc::clone(budget), state: Mutex::default() })
    }

    /// A free frame of the held ones, for the resident of `key`, of `bytes` at a multiple of
    /// `alignment`.
    pub fn take(self: &Arc<Self>, key: CacheKey, bytes: usize, alignment: usize) -> Option<FrameMut> {
        let frame_bytes = frame_bytes_for(bytes, alignment);
        let mut state = self.state.lock();
        let number = state.with_free_frame(frame_bytes)?;
        let slab = state.slab_mut(number)?;
        let was_empty = slab.is_empty();
        let index = slab.take(key)?;
        let begin = index as usize * frame_bytes;
        let offset = begin.next_multiple_of(alignment);
        assert!(
            offset + bytes <= begin + frame_bytes,
            "a frame of {frame_bytes} bytes for {bytes} at a multiple of {alignment}"
        );
        let region = Arc::clone(slab.region());
        let is_full = slab.is_full();
        if is_full && let Some(open) = state.open.get_mut(&frame_bytes) {
            open.pop();
        }
        state.empty -= usize::from(was_empty);
        let charged = frame_bytes as u64;
        self.budget.subtract_cached(charged);
        drop(state);
        Some(FrameMut(Frame {
            frames: Arc::clone(self),
            region,
            offset,
            length: bytes,
            slab: number,
            index,
            bytes: charged,
        }))
    }

    /// Maps another region, if the budget has room for it. What it leaves over keeps regions from
    /// coming and going with every buffer.
    pub fn grow(&self, bytes: usize, alignment: usize) -> bool {
        let frame_bytes = frame_bytes_for(bytes, alignment);
        let mut state = self.state.lock();
        let region_bytes = region_bytes(frame_bytes, state.held_bytes, self.budget.bytes());
        let left_over = region_bytes as u64 + state.held_bytes / 64;
        let Some(wanted) = self.budget.cache_bytes_max().checked_sub(left_over) else { return false };
        // A mapping without its pages: they come when they are touched.
        let new = || Region::new(region_bytes).ok();
        let is_room = || self.budget.yielding_bytes() + region_bytes as u64 <= wanted;
        let region = if is_room() {
            new()
        } else {
            // Chunks kept for memtables give way, and usually suffice. Their bytes are
            // initialised as those of a new one are.
            let Some((spare, charge)) = self.budget.take_spare() else { return false };
            drop(charge);
            if !is_room() {
                return false;
            }
            if spare.length() == region_bytes { Some(spare) } else { new() }
        };
        let Some(region) = region else { return false };
        let slab = Slab::new(region, frame_bytes);
        self.budget.add_cached(slab.bytes());
        state.add(slab);
        true
    }

    /// Whether a frame can be had without anything leaving for it.
    pub fn has_room(&self, bytes: usize, alignment: usize) -> bool {
        self.state.lock().with_free_frame(frame_bytes_for(bytes, alignment)).is_some()
            || self.grow(bytes, alignment)
    }

    fn give_back(&self, number: usize, index: u32) {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(slab) = state.slab_mut(number) else { return };
        let was_full = slab.is_full();
        let frame_bytes = slab.frame_bytes();
        slab.give_back(index);
        let (is_empty, may_open) = (slab.is_empty(), was_full && !slab.is_evacuated());
        // What holds one resident only goes with it.
        let goes = is_empty && (closed || slab.is_single());
        if may_open {
            state.open.entry(frame_bytes).or_default().push(number);
        }
        state.empty += usize::from(is_empty);
        self.budget.add_cached(frame_bytes as u64);
        let removed = if goes { self.remove(&mut state, number) } else { None };
        drop(state);
        drop(removed);
    }

    /// Removes an empty slab. Its memory goes back when it is dropped: not under the lock.
    fn remove(&self, state: &mut State, number: usize) -> Option<Slab> {
        let removed = state.remove(number)?;
        self.budget.subtract_cached(removed.bytes());
        Some(removed)
    }

    /// Gives an empty slab back to the system, if there is one.
    pub fn give_empty_back(&self) -> bool {
        let mut state = self.state.lock();
        if state.empty == 0 {
            return false;
        }
        let number = state
            .slabs
            .iter()
            .position(|slab| slab.as_ref().is_some_and(|slab| slab.is_empty() && !slab.is_evacuated()));
        let removed = number.and_then(|number| self.remove(&mut state, number));
        drop(state);
        removed.is_some()
    }

    /// Begins to evacuate a slab: the one that holds least of those whose residents find free
    /// frames elsewhere; if there is none, of those of the size that most are of, where most leave.
    /// Of equals, each in its turn. `None` when no slab of several frames can be.
    ///
    /// Were it only the one that holds least, it would be one of a size of which there are few,
    /// over and over: a slab of four partitions of which one is free holds less than any of a
    /// hundred full ones of blocks. Its partitions, which every read needs, would find no frame.
    pub fn begin_evacuation(&self) -> Option<Evacuation> {
        let mut state = self.state.lock();
        let mut sizes: BTreeMap<usize, OfSize> = BTreeMap::new();
        for slab in state.slabs.iter().flatten().filter(|slab| !slab.is_evacuated()) {
            let of_size = sizes.entry(slab.frame_bytes()).or_default();
            of_size.bytes += slab.bytes();
            of_size.free += slab.free();
        }
        let count = state.slabs.len();
        let hand = state.hand;
        let candidates = (0..count).map(|step| (hand + step) % count);
        let candidates = candidates
            .filter_map(|number| Some((number, state.slab(number).filter(|slab| slab.may_be_evacuated())?)));
        let (number, _) = candidates.min_by_key(|(_, slab)| {
            let of_size = sizes.get(&slab.frame_bytes()).copied().unwrap_or_default();
            let finds_frames = of_size.free - slab.free() >= slab.taken();
            (if finds_frames { None } else { Some(Reverse(of_size.bytes)) }, slab.taken_share())
        })?;
        state.hand = number + 1;
        state.close(number);
        let slab = state.slab_mut(number)?;
        slab.set_evacuated(true);
        Some(Evacuation { slab: number, region: Arc::clone(slab.region()), residents: slab.residents() })
    }

    /// Ends it; says whether the slab was empty.
    pub fn end_evacuation(&self, evacuation: &Evacuation, then: Then) -> bool {
        let number = evacuation.slab;
        let mut state = self.state.lock();
        let Some(slab) = state.slab_mut(number) else { return false };
        slab.set_evacuated(false);
        if !slab.is_empty() {
            slab.set_stuck();
            state.open(number);
            return false;
        }
        match then {
            Then::Cut(bytes, alignment) if slab.may_be_cut(frame_bytes_for(bytes, alignment)) => {
                state.cut(number, frame_bytes_for(bytes, alignment));
                true
            }
            _ => {
                let removed = self.remove(&mut state, number);
                drop(state);
                removed.is_some()
            }
        }
    }

    /// The cache is gone: what holds nothing goes back now, the rest when it is let go of.
    pub fn close(&self) {
        self.state.lock().closed = true;
        while self.give_empty_back() {}
    }
}

#[cfg(test)]
mod tests;
