//! Reading ahead of a walk through a table.
//!
//! Read path of scans and compactions, between cache and object store. Blocks entered in a row make a walk a sequential one; its misses
//! then read pieces of several blocks. While one piece is walked through, the next one is on its way:
//!
//! ```text
//! forward:   ... left behind | current piece | coming piece | ...
//! ```
//!
//! Pieces double from 16 KiB to 256 KiB, and to 1 MiB while the walk has to wait for what is coming: a slow store wants more in flight. At a store whose
//! latency is measured they follow it ([`Reach`]): what moves in the time of one request's latency costs little more than the request.
//! Both pieces are charged to the memory budget; without room there, blocks are read one by one.
//!
//! There a seek reads at once what walks that begin with one usually come to ([`Habit`]), and a few blocks at least.
//!
//! Invariants:
//! 1. The coming piece begins where the current one ends, in the direction of the walk; a block may lie in both.
//! 2. What was read ahead is a hope: when it fails or falls short, the block is read alone, and that read's error counts.

use std::future::poll_fn;
use std::ops::{Bound, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tombolo_env::{Completion, Env, Task, TaskClass, completion};
use tombolo_format::stored::BlockHandle;
use tombolo_storage::{Pulse, Purpose, Request, Result};

use super::Table;
use crate::budget::{Category, Charge};

/// Blocks entered in a row that make a walk sequential.
const IN_A_ROW_MIN: u32 = 2;
/// Bytes of the first piece.
const BYTES_MIN: u64 = 16 << 10;
/// Bytes of a piece, at most, from a store that keeps up.
const BYTES_MAX: u64 = 256 << 10;
/// Bytes of a piece, at most, from a store that does not.
const SLOW_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a piece, at most, whatever was measured.
const FAR_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a seek reads, at most, beyond the block that it looks for.
const SEEK_BYTES_MAX: u64 = 64 << 10;
/// What a seek reads beyond its block takes at most this part of the latency.
const SEEK_OF_LATENCY: u64 = 16;
/// What a walk that goes on adds to what is usual, beside an eighth of it.
const HABIT_STEP_BYTES: u64 = 8 << 10;
/// What the first piece of a walk takes at most this part of the latency.
const FIRST_OF_LATENCY: u64 = 4;

/// How much is worth reading at once, from what was measured of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Bytes that a seek reads beyond its block; 0: it reads that alone.
    pub(super) seek_bytes: u64,
    /// Bytes of the first piece of a walk.
    first_bytes: u64,
    /// Bytes of a piece, at most, while the walk does not wait, and when it does.
    bytes_max: u64,
    slow_bytes_max: u64,
}

impl Reach {
    /// Bytes that a seek reads, at most, where walks usually come so far.
    pub(super) fn seek(self, habit: u64) -> u64 {
        if self.seek_bytes == 0 || habit <= self.seek_bytes {
            return self.seek_bytes;
        }
        // Somewhat more: who falls short by a block waits for another request.
        (habit + habit / 8 + HABIT_STEP_BYTES).min(self.bytes_max)
    }

    /// At a store of this host, or one of which nothing is known.
    const NEAR: Reach = Reach { seek_bytes: 0, first_bytes: BYTES_MIN, bytes_max: BYTES_MAX, slow_bytes_max: SLOW_BYTES_MAX };

    pub(super) fn of(pulse: Option<Pulse>) -> Reach {
        let Some(bytes) = pulse.map(|pulse| pulse.bytes_of_latency()).filter(|bytes| *bytes > 0) else { return Reach::NEAR };
        Reach {
            seek_bytes: (bytes / SEEK_OF_LATENCY).min(SEEK_BYTES_MAX),
            first_bytes: (bytes / FIRST_OF_LATENCY).clamp(BYTES_MIN, BYTES_MAX),
            bytes_max: bytes.clamp(BYTES_MAX, SLOW_BYTES_MAX),
            slow_bytes_max: bytes.saturating_mul(2).clamp(SLOW_BYTES_MAX, FAR_BYTES_MAX),
        }
    }
}

/// How far walks that begin with a seek usually go in a table: about the median, in bytes, found by going up or down an eighth with each of them. Half of
/// the seeks then read too much, and half too little: at a far store, where bytes are cheap and requests are not, that is a good place.
#[derive(Debug, Default)]
pub(super) struct Habit(AtomicU64);

impl Habit {
    /// A walk has ended after so many bytes.
    pub(super) fn saw(&self, bytes: u64) {
        // Of two that come at once one may be lost.
        let usual = self.0.load(Ordering::Relaxed);
        let step = usual / 8 + HABIT_STEP_BYTES;
        let next = if bytes > usual { bytes.min(usual + step) } else { bytes.max(usual.saturating_sub(step)) };
        if next != usual {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    /// What is usual; 0 when nothing is known.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The user keys that a walk is about; nothing beyond is read ahead.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Where it begins.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Whether `key` lies before the range.
    #[inline]
    pub fn is_below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(bound) => key < &bound[..],
            Bound::Excluded(bound) => key <= &bound[..],
        }
    }

    /// Whether `key` lies after the range.
    #[inline]
    pub fn is_above(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(bound) => key > &bound[..],
            Bound::Excluded(bound) => key >= &bound[..],
        }
    }
}

/// How far a walk has come: what goes on from one table to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) backward: bool,
    in_a_row: u32,
    /// Of the piece asked for last; 0: none yet.
    bytes: u64,
    /// Whether the walk had to wait for what was coming.
    slow: bool,
}

impl Pace {
    /// Of a walk through whole tables: large pieces from the start.
    pub(super) fn whole() -> Pace {
        Pace { in_a_row: IN_A_ROW_MIN, bytes: BYTES_MAX / 2, ..Pace::default() }
    }

    /// Another block was entered.
    #[inline]
    pub(super) fn step(&mut self, backward: bool) {
        if self.backward != backward {
            *self = Pace { backward, ..Pace::default() };
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    pub(super) fn is_sequential(&self) -> bool {
        self.in_a_row >= IN_A_ROW_MIN
    }

    /// Bytes of the piece to read next, within `reach`.
    pub(super) fn wanted(&self, reach: Reach) -> u64 {
        (self.bytes * 2).clamp(reach.first_bytes, if self.slow { reach.slow_bytes_max } else { reach.bytes_max })
    }
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Bytes,
    _charge: Charge,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The part of `range` that lies in the piece.
    fn part(&self, range: Range<u64>) -> Bytes {
        let within = |at: u64| usize::try_from(at.clamp(self.start, self.end()) - self.start).unwrap_or(usize::MAX);
        self.bytes.slice(within(range.start)..within(range.end))
    }
}

/// A piece on its way.
#[derive(Debug)]
struct Coming {
    range: Range<u64>,
    charge: Charge,
    completion: Completion<Result<Bytes>>,
    /// Dropping it gives the read up.
    _task: Task,
}

/// What was read ahead of one table. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    pub(super) pace: Pace,
    current: Option<Piece>,
    coming: Option<Coming>,
}

impl ReadAhead {
    /// Of a walk that begins, or goes on at `pace` from another table.
    pub(super) fn at(pace: Pace) -> ReadAhead {
        ReadAhead { pace, ..ReadAhead::default() }
    }

    /// Room for a piece, if the budget has it.
    pub(super) fn room(table: &Table, request: Request, range: &Range<u64>) -> Option<Charge> {
        let category = if request.purpose == Purpose::Compaction { Category::Compactions } else { Category::Scans };
        table.cache.budget().try_charge(category, range.end - range.start).ok()
    }

    /// Takes a piece that was read.
    pub(super) fn install(&mut self, start: u64, bytes: Bytes, charge: Charge) {
        self.pace.bytes = bytes.len() as u64;
        self.coming = None;
        self.current = Some(Piece { start, bytes, _charge: charge });
    }

    /// Where the next piece has to begin; `None` when one is coming already.
    pub(super) fn edge(&self) -> Option<u64> {
        let piece = self.current.as_ref().filter(|_| self.coming.is_none())?;
        Some(if self.pace.backward { piece.start } else { piece.end() })
    }

    /// Begins to read the next piece.
    pub(super) fn start(&mut self, env: &Env, table: &Arc<Table>, request: Request, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Some(charge) = ReadAhead::room(table, request, &range) else { return };
        let (completer, completion) = completion();
        let class = if request.purpose == Purpose::Compaction { TaskClass::Background } else { TaskClass::Foreground };
        let (table, wanted) = (Arc::clone(table), range.clone());
        let task = env.spawn(class, "read ahead", async move { completer.complete(table.read(request, wanted).await) });
        self.pace.bytes = range.end - range.start;
        self.coming = Some(Coming { range, charge, completion, _task: task });
    }

    /// The bytes of a block from what was read ahead and has come, with the offset where they begin.
    pub(super) fn take(&mut self, handle: BlockHandle) -> Option<(Bytes, u64)> {
        let piece = self.current.as_ref()?;
        if piece.start <= handle.offset && handle.end() <= piece.end() {
            return Some((piece.bytes.clone(), piece.start));
        }
        if !self.awaits(handle) || !self.coming.as_ref().is_some_and(|coming| coming.completion.is_ready()) {
            return None;
        }
        let mut coming = self.coming.take()?;
        let arrived = coming.completion.try_take()?.ok();
        self.promote(handle, coming, arrived)
    }

    /// Whether the coming piece brings what is missing of a block.
    pub(super) fn awaits(&self, handle: BlockHandle) -> bool {
        let (Some(piece), Some(coming)) = (&self.current, &self.coming) else { return false };
        let both = piece.start.min(coming.range.start)..piece.end().max(coming.range.end);
        both.start <= handle.offset && handle.end() <= both.end
    }

    /// Waits for the coming piece, after which [`ReadAhead::take`] has the block, unless the read failed. If the future is dropped, nothing
    /// is lost.
    pub(super) async fn wait(&mut self, handle: BlockHandle) -> Option<(Bytes, u64)> {
        let arrived = match &mut self.coming {
            Some(coming) => {
                // Small pieces are waited for by whoever is fast.
                self.pace.slow |= self.pace.bytes >= BYTES_MAX;
                poll_fn(|context| Pin::new(&mut coming.completion).poll(context)).await
            }
            None => return None,
        };
        let coming = self.coming.take()?;
        self.promote(handle, coming, arrived.and_then(Result::ok))
    }

    /// The coming piece becomes the current one; gives the block that asked for it.
    fn promote(&mut self, handle: BlockHandle, coming: Coming, arrived: Option<Bytes>) -> Option<(Bytes, u64)> {
        let old = self.current.take()?;
        let bytes = arrived.filter(|bytes| bytes.len() as u64 == coming.range.end - coming.range.start)?;
        let piece = Piece { start: coming.range.start, bytes, _charge: coming.charge };
        let block = handle.offset..handle.end();
        let taken = if piece.start <= block.start && block.end <= piece.end() {
            (piece.bytes.clone(), piece.start)
        } else {
            let (low, high) = if self.pace.backward { (&piece, &old) } else { (&old, &piece) };
            let mut whole = BytesMut::with_capacity(handle.length as usize);
            whole.extend_from_slice(&low.part(block.clone()));
            whole.extend_from_slice(&high.part(block.clone()));
            (whole.freeze(), block.start)
        };
        self.current = Some(piece);
        Some(taken)
    }

    /// Whether a block lies wholly before the pieces, so that they are of no use any more.
    pub(super) fn has_left(&self, handle: BlockHandle) -> bool {
        self.current.as_ref().is_some_and(|piece| handle.end() <= piece.start || handle.offset >= piece.end()) && !self.awaits(handle)
    }

    /// Lets go of the pieces.
    pub(super) fn clear(&mut self) {
        (self.current, self.coming) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_usual_follows_the_median() {
        let habit = Habit::default();
        (0..40).for_each(|_| habit.saw(300_000));
        assert_eq!(habit.bytes(), 300_000);
        // Rare long ones do not matter.
        (0..200).for_each(|turn| habit.saw(if turn % 10 == 0 { 50_000_000 } else { 9_000 }));
        assert!((9_000..60_000).contains(&habit.bytes()), "{}", habit.bytes());
        assert_eq!(Reach::NEAR.seek(300_000), 0);
    }

    #[test]
    fn pieces_follow_what_is_measured() {
        assert_eq!(Reach::of(None), Reach::NEAR);
        assert_eq!(Reach::of(Some(Pulse::default())), Reach::NEAR, "nothing is measured yet");
        let pulse = |micros, bytes_per_second| {
            Reach::of(Some(Pulse { latency_p50: Duration::from_micros(micros), bytes_per_second, ..Pulse::default() }))
        };
        let cloud = pulse(25_000, 90_000_000);
        assert_eq!((cloud.seek_bytes, cloud.bytes_max, cloud.slow_bytes_max), (64 << 10, 1 << 20, 4 << 20));
        assert_eq!((cloud.seek(0), cloud.seek(300_000), cloud.seek(9 << 20)), (64 << 10, 345_692, 1 << 20));
        let cluster = pulse(740, 400_000_000);
        assert_eq!((cluster.seek_bytes, cluster.first_bytes, cluster.slow_bytes_max), (18_500, 74_000, 1 << 20));
        let mut pace = Pace::default();
        assert_eq!(pace.wanted(cloud), 256 << 10);
        pace.bytes = 8 << 20;
        assert_eq!((pace.wanted(cloud), pace.wanted(Reach::NEAR)), (1 << 20, 256 << 10));
        pace.slow = true;
        assert_eq!((pace.wanted(cloud), pace.wanted(Reach::NEAR)), (4 << 20, 1 << 20));
    }
}
