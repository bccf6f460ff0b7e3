//! A region cut into frames of one size, and which of them are taken. Books only: nothing here
//! touches the memory.

use std::sync::Arc;

use tombolo_env::memory::{Region, page_bytes};

use crate::cache::CacheKey;

/// Least bytes of a frame. All are multiples of a cache line.
const FRAME_BYTES_MIN: usize = 512;
/// Steps between a size and its double.
const STEPS: usize = 8;
/// Least frames of a region that is shared.
const FRAMES_MIN: usize = 4;
const REGION_BYTES_MIN: usize = 16 << 10;
/// A huge page.
const REGION_BYTES_MAX: usize = 2 << 20;
/// Bytes of the books of a frame.
pub(in crate::cache) const BOOK_BYTES: usize = size_of::<Option<CacheKey>>() + size_of::<u32>();
/// So many regions are held at least.
const REGIONS: u64 = 16;

/// Bytes of a frame for `bytes`: at most an eighth more, from [`FRAME_BYTES_MIN`] on.
pub(super) fn frame_bytes(bytes: usize) -> usize {
    let bytes = bytes.max(FRAME_BYTES_MIN);
    let below = 1usize << (bytes - 1).ilog2();
    bytes.next_multiple_of(below / STEPS)
}

fn power_of_two_below(bytes: u64) -> usize {
    usize::try_from(bytes.max(1)).map_or(REGION_BYTES_MAX, |bytes| 1 << bytes.ilog2())
}

/// Bytes of a new region for such frames, when `held_bytes` are held of a budget of `budget_bytes`.
pub(super) fn region_bytes(frame_bytes: usize, held_bytes: u64, budget_bytes: u64) -> usize {
    let largest = power_of_two_below(budget_bytes / 4 / REGIONS).clamp(page_bytes(), REGION_BYTES_MAX);
    let wanted =
        power_of_two_below(held_bytes / REGIONS).clamp(REGION_BYTES_MIN, REGION_BYTES_MAX).min(largest);
    let least = (FRAMES_MIN * frame_bytes).next_power_of_two();
    if least <= largest { wanted.max(least) } else { frame_bytes.next_multiple_of(page_bytes()) }
}

#[derive(Debug)]
pub(super) struct Slab {
    region: Arc<Region>,
    frame_bytes: usize,
    /// Invariant: each number once, below that of `keys`; those of which `keys` has none.
    free: Vec<u32>,
    /// For whom each frame was taken.
    keys: Vec<Option<CacheKey>>,
    is_evacuated: bool,
    /// It was evacuated in vain: somebody holds a frame. Until one is given back.
    is_stuck: bool,
}

impl Slab {
    pub(super) fn new(region: Region, frame_bytes: usize) -> Slab {
        let region = Arc::new(region);
        let mut slab = Slab {
            region,
            frame_bytes,
            free: Vec::new(),
            keys: Vec::new(),
            is_evacuated: false,
            is_stuck: false,
        };
        slab.cut(frame_bytes);
        slab
    }

    /// Cuts it into other frames.
    ///
    /// # Panics
    /// When one is taken, or none fits.
    pub(super) fn cut(&mut self, frame_bytes: usize) {
        assert!(self.is_empty(), "a region is cut anew while frames of it are taken");
        let frames = u32::try_from(self.region.length() / frame_bytes).unwrap_or(u32::MAX);
        assert!(frames > 0, "a frame of {frame_bytes} bytes in a region of {}", self.region.length());
        self.frame_bytes = frame_bytes;
        // The first ones are taken first.
        self.free = (0..frames).rev().collect();
        self.keys = vec![None; frames as usize];
    }

    /// Whether frames of this size waste nothing much of it.
    pub(super) fn may_be_cut(&self, frame_bytes: usize) -> bool {
        self.region.length() / frame_bytes >= FRAMES_MIN
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.region.length() as u64
    }

    /// Takes a frame, if one is free.
    pub(super) fn take(&mut self, key: CacheKey) -> Option<u32> {
        let index = self.free.pop()?;
        self.keys[index as usize] = Some(key);
        Some(index)
    }

    /// # Panics
    /// When the frame is not taken.
    pub(super) fn give_back(&mut self, index: u32) {
        let key = self.keys.get_mut(index as usize).and_then(Option::take);
        assert!(key.is_some(), "frame {index} is given back and was not taken");
        self.free.push(index);
        self.is_stuck = false;
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.keys.len()
    }

    /// Whether it has room for one resident only.
    pub(super) fn is_single(&self) -> bool {
        self.keys.len() == 1
    }

    pub(super) fn is_evacuated(&self) -> bool {
        self.is_evacuated
    }

    pub(super) fn set_evacuated(&mut self, is_evacuated: bool) {
        self.is_evacuated = is_evacuated;
    }

    pub(super) fn set_stuck(&mut self) {
        self.is_stuck = true;
    }

    pub(super) fn may_be_evacuated(&self) -> bool {
        !self.is_evacuated && !self.is_stuck && !self.is_single()
    }

    /// How much of it is taken, in 64ths: so coarse that slabs that are about as full take turns.
    pub(super) fn taken_share(&self) -> usize {
        self.taken() * 64 / self.keys.len()
    }

    pub(super) fn taken(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Who lies there.
    pub(super) fn residents(&self) -> Vec<CacheKey> {
        self.keys.iter().flatten().copied().collect()
    }
}
