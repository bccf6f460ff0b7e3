//! Segments made ahead of need, so that a writer seldom waits for one.
//!
//! Invariants:
//! 1. A number is given out once per lane; the segment in use has the greatest number of all that
//!    were ever taken.
//! 2. Once [`Supply::close`] has come to its end nothing is made any more: the log's directory is
//!    its owner's to delete.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Env, completion};
use tombolo_format::log_frame::SEGMENT_BYTES_MAX;

use super::segment::{Blocks, Making, Segment};
use super::{Form, LocalLogOptions};
use crate::{Error, ErrorKind, Result};

/// A segment that is zeroed while its writer waits is no larger than it must be, or than this; and
/// any, where a larger one finds no room.
const HURRIED_BYTES: u64 = 1 << 20;

/// The same for one that is only reserved. Reading so many pages into the cache takes some ten
/// milliseconds.
const HURRIED_RESERVED_BYTES: u64 = 16 << 20;

/// A lane at rest keeps no segment that is more than so many times as large as the next one would
/// be.
const EXCESS_FACTOR: u64 = 4;

/// Room in the segment in use at which the next one is made anew. Zeroing the largest takes a tenth
/// of a second, in which a fast writer fills less than this; the later it is made, the better it is
/// known whether it is to be zeroed.
const ROOM_BYTES: u64 = 16 << 20;

/// Page granularity of segments.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Default)]
struct State {
    /// The greatest number given out.
    last_number: u32,
    /// The greatest number taken into use.
    last_taken: u32,
    /// Invariant: its number is greater than `last_taken`.
    ready: Option<Arc<Segment>>,
    /// Retired and not used again yet: one at most.
    stock: Option<Arc<Segment>>,
    preparing: bool,
    /// Making one ahead failed: wait until the writer needs one and sees the error.
    failed: bool,
    /// None is made ahead any more.
    closed: bool,
    /// Waits for the one that is being made ahead.
    closer: Option<Completer<()>>,
}

/// The segments of one lane.
#[derive(Debug)]
pub(super) struct Supply {
    env: Env,
    directory: PathBuf,
    form: Form,
    bytes_min: u64,
    bytes_max: u64,
    /// Segments up to this size are zeroed in any case, and kept in any case.
    small_bytes: u64,
    state: Mutex<State>,
}

impl Supply {
    pub(super) fn new(env: &Env, directory: PathBuf, options: &LocalLogOptions) -> Supply {
        Supply {
            env: env.clone(),
            directory,
            form: options.form,
            bytes_min: u64::from(options.segment_bytes_min),
            bytes_max: u64::from(options.segment_bytes_max),
            small_bytes: u64::from(options.small_segment_bytes),
            state: Mutex::default(),
        }
    }

    fn make(&self, number: u32, bytes: u64, making: Making) -> Result<Arc<Segment>> {
        let making = if bytes <= self.small_bytes { Making::SMALL } else { making };
        let bytes = bytes.next_multiple_of(PAGE_BYTES).min(SEGMENT_BYTES_MAX);
        let capacity = u32::try_from(bytes).unwrap_or(u32::MAX);
        match Segment::create(&self.env, &self.directory, number, capacity, making, self.form) {
            Ok(segment) => Ok(Arc::new(segment)),
            Err(error) => {
                Err(Error::io(error, "making a log segment; nothing took effect", self.directory.display()))
            }
        }
    }

    /// A segment with room for `bytes`: the one made ahead, or one made now.
    ///
    /// # Errors
    /// `OutOfSpace` and whatever else the file system says; nothing took effect, and a later call
    /// tries again.
    pub(super) fn take(&self, bytes: u64, wanted: u64, making: Making) -> Result<Arc<Segment>> {
        let number = {
            let mut state = self.state.lock();
            if state.ready.as_ref().is_some_and(|ready| u64::from(ready.capacity) >= bytes)
                && let Some(ready) = state.ready.take()
            {
                state.last_taken = ready.number;
                return Ok(ready);
            }
            state.last_number += 1;
            state.last_number
        };
        let no_more_than = |most: u64| self.within_limits(wanted).min(most.max(self.bytes_min)).max(bytes);
        let hurried = no_more_than(HURRIED_BYTES);
        let made = match making.blocks {
            Blocks::Zeroed => self.make(number, hurried, making),
            Blocks::Reserved => match self.make(number, no_more_than(HURRIED_RESERVED_BYTES), making) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => self.make(number, hurried, making),
                made => made,
            },
        }?;
        let mut state = self.state.lock();
        state.failed = false;
        state.last_taken = number;
        // One made ahead for a smaller entry has a number too low to follow this one.
        if let Some(late) = state.ready.take() {
            let kept = state.stock.replace(late);
            drop(state);
            self.discard(kept);
        }
        Ok(made)
    }

    fn within_limits(&self, wanted: u64) -> u64 {
        wanted.clamp(self.bytes_min, self.bytes_max)
    }

    /// What somebody should do now, while the segment in use has `room` left: make the next one,
    /// `wanted` bytes long within the limits. Says so once. A large segment is made anew only
    /// shortly before it is needed: by then a flush may have retired one, which need not be zeroed.
    pub(super) fn wants_preparing(
        self: &Arc<Supply>,
        room: u64,
        wanted: u64,
        making: impl Fn() -> Making,
    ) -> Option<Preparation> {
        let mut state = self.state.lock();
        let wanted = self.within_limits(wanted);
        let now = room < ROOM_BYTES
            || state.stock.as_ref().is_some_and(|stock| u64::from(stock.capacity) >= wanted);
        if !now || state.ready.is_some() || state.preparing || state.failed || state.closed {
            return None;
        }
        state.preparing = true;
        Some(Preparation { supply: Arc::clone(self), wanted, making: making() })
    }

    /// Whether a segment of `capacity` is much larger than what a lane with so many live bytes
    /// needs next.
    pub(super) fn is_excess(&self, capacity: u32, live_bytes: u64) -> bool {
        let wanted = self.within_limits(live_bytes.next_power_of_two());
        u64::from(capacity) > self.small_bytes.max(EXCESS_FACTOR * wanted)
    }

    /// Whether a segment that is not in use is.
    pub(super) fn holds_excess(&self, live_bytes: u64) -> bool {
        let state = self.state.lock();
        [&state.ready, &state.stock]
            .into_iter()
            .flatten()
            .any(|spare| self.is_excess(spare.capacity, live_bytes))
    }

    /// Deletes segments that are not in use and much larger than the live bytes. Until what it
    /// returns is dropped none is made ahead but by it: the smallest. `None` while one is being
    /// made, and once the supply is closed.
    pub(super) fn begin_resting(self: &Arc<Supply>, live_bytes: u64) -> Option<Preparation> {
        let discarded = {
            let state = &mut *self.state.lock();
            if state.preparing || state.closed {
                return None;
            }
            state.preparing = true;
            let spares = [&mut state.ready, &mut state.stock];
            spares.map(|spare| spare.take_if(|spare| self.is_excess(spare.capacity, live_bytes)))
        };
        let resting = Preparation { supply: Arc::clone(self), wanted: self.bytes_min, making: Making::SMALL };
        for segment in discarded {
            self.discard(segment);
        }
        Some(resting)
    }

    /// Whether one was made ahead.
    pub(super) fn is_ready(&self) -> bool {
        self.state.lock().ready.is_some()
    }

    /// Has no more made ahead, and deletes what was; ready when none is being made.
    pub(super) fn close(&self) -> Completion<()> {
        let (closer, closed) = completion();
        let mut state = self.state.lock();
        state.closed = true;
        if state.preparing {
            state.closer = Some(closer);
        } else {
            drop(state);
            self.discard_spares();
            closer.complete(());
        }
        closed
    }

    fn discard_spares(&self) {
        let spares = {
            let mut state = self.state.lock();
            [state.ready.take(), state.stock.take()]
        };
        for segment in spares {
            self.discard(segment);
        }
    }

    /// Makes the next segment: from the stock, or anew.
    fn prepare(&self, wanted: u64, making: Making) {
        let (stock, number) = {
            let mut state = self.state.lock();
            if state.ready.is_some() {
                return;
            }
            let stock = state.stock.take_if(|stock| u64::from(stock.capacity) >= wanted);
            if stock.is_none() {
                state.last_number += 1;
            }
            (stock, state.last_number)
        };
        let made = match stock {
            Some(stock) => Ok(stock),
            None => self.make(number, wanted, making),
        };
        let mut state = self.state.lock();
        match made.and_then(|made| self.renumber(&mut state, made)) {
            Ok(segment) => state.ready = Some(segment),
            Err(error) => {
                state.failed = true;
                tracing::warn!(%error, "no log segment could be made ahead");
            }
        }
    }

    /// Gives a segment a number above every one in use.
    fn renumber(&self, state: &mut State, segment: Arc<Segment>) -> Result<Arc<Segment>> {
        if segment.number > state.last_taken {
            return Ok(segment);
        }
        state.last_number += 1;
        match segment.recycle(&self.env, &self.directory, state.last_number) {
            Ok(segment) => Ok(Arc::new(segment)),
            Err(error) => Err(Error::io(error, "recycling a log segment", segment.path.display())),
        }
    }

    /// Takes a segment back whose content is not needed any more: keeps one, deletes the others.
    pub(super) fn retire(&self, segment: Arc<Segment>, reuse: bool) {
        let discarded = {
            let mut state = self.state.lock();
            match &state.stock {
                _ if !reuse || state.closed => Some(segment),
                Some(kept) if kept.capacity >= segment.capacity => Some(segment),
                _ => state.stock.replace(segment),
            }
        };
        self.discard(discarded);
    }

    fn discard(&self, segment: Option<Arc<Segment>>) {
        if let Some(segment) = segment
            && let Err(error) = self.env.files().remove_file(&segment.path)
            // A successor frees the log of whom it has fenced.
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %segment.path.display(), "a retired log segment stays until its \
                log is freed");
        }
    }
}

/// A segment that is to be made ahead. Whether it was made or given up, the supply knows when this
/// is dropped.
#[derive(Debug)]
pub(super) struct Preparation {
    supply: Arc<Supply>,
    wanted: u64,
    making: Making,
}

impl Preparation {
    /// Makes it, on the calling thread.
    pub(super) fn run(&self) {
        self.supply.prepare(self.wanted, self.making);
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        let closer = {
            let mut state = self.supply.state.lock();
            state.preparing = false;
            state.closer.take()
        };
        if let Some(closer) = closer {
            self.supply.discard_spares();
            closer.complete(());
        }
    }
}
