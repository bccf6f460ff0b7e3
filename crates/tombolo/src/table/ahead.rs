//! Reading ahead of a walk through a table.
//!
//! Read path of scans and compactions, between cache and object store. Blocks entered in a row make
//! a walk a sequential one; its misses then read pieces of several blocks. While one piece is
//! walked through, the next ones are on their way:
//!
//! ```text
//! forward:   ... left behind | current piece | coming piece | coming piece | ...
//! ```
//!
//! Pieces double from 16 KiB to 256 KiB, and to 1 MiB while the walk has to wait for coming pieces:
//! a slow store wants more in flight. At a store whose latency is measured they follow it
//! ([`Reach`]): what moves in the time of one request's latency costs little more than the request.
//! There several are on their way then, up to four times what the walk came through, and as long as
//! all walks take no more than a quarter of the memory budget: one connection gives what it gives,
//! several give more. All pieces are charged to the memory budget; without room there, blocks are
//! read one by one.
//!
//! There a seek reads at once what walks that begin with one usually come to ([`Habit`]), and a few
//! blocks at least; nothing more is asked for until the walk has come further than that.
//!
//! Invariants:
//! 1. Each coming piece begins where the one before ends, in the direction of the walk; a block may
//!    lie in the current piece and the first coming one.
//! 2. What was read ahead is a hope: when it fails or falls short, the block is read alone, and
//!    that read's error counts.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Bound, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tombolo_env::{Completion, Env, Task, TaskClass, completion};
use tombolo_format::stored::BlockHandle;
use tombolo_storage::{Purpose, Request, Result, StorePerformance};

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
/// What moves in the time of a request's latency, until that is measured.
const UNKNOWN_BYTES: u64 = 256 << 10;
/// Pieces on their way at once, at most, from a store whose latency is measured.
const COMING_MAX: u64 = 8;
/// Beyond the piece that each is in and the next one, what all walks have on their way takes at
/// most this part of the memory budget there.
const COMING_OF_BUDGET: u64 = 4;
/// Into so many pieces it is cut at least, as long as they do not become too small: they wait side
/// by side.
const COMING_MIN: u64 = 4;
/// Bytes that a seek reads, at most, beyond the block that it looks for.
const SEEK_BYTES_MAX: u64 = 64 << 10;
/// What a seek reads beyond its block takes at most this part of the latency.
const SEEK_OF_LATENCY: u64 = 16;
/// What a walk that goes on adds to the usual length, beside an eighth of it.
const HABIT_STEP_BYTES: u64 = 8 << 10;
/// What the first piece of a walk takes at most this part of the latency.
const FIRST_OF_LATENCY: u64 = 4;

/// How much is worth reading at once, from what was measured of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Bytes that a seek reads beyond its block; 0: it reads that alone.
    pub(super) seek_bytes: u64,
    /// Bytes of the first piece of a walk, and how many times as large the next one is each time.
    first_bytes: u64,
    growth: u64,
    /// Bytes of a piece, at most, while the walk does not wait, and when it does.
    bytes_max: u64,
    slow_bytes_max: u64,
    /// Bytes of the smallest piece whose wait says that more is wanted: a fast reader waits for
    /// smaller ones.
    waited_bytes_min: u64,
    /// Pieces on their way at once, at most, when the walk had to wait again and again.
    coming_max: u64,
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

    /// What a walk has on its way at most.
    pub(super) fn coming_bytes_max(self) -> u64 {
        self.coming_max * self.bytes_max
    }

    /// With one piece on its way while another is walked through.
    pub(super) fn with_few_coming(self) -> Reach {
        Reach { coming_max: 1, ..self }
    }

    /// Whether the store's latency is measured.
    pub(super) fn is_far(self) -> bool {
        self.seek_bytes > 0
    }

    /// At a store of this host.
    const NEAR: Reach = Reach {
        seek_bytes: 0,
        first_bytes: BYTES_MIN,
        growth: 2,
        bytes_max: BYTES_MAX,
        slow_bytes_max: SLOW_BYTES_MAX,
        waited_bytes_min: BYTES_MAX,
        coming_max: 1,
    };

    /// At a store of which so much is known, for who has a memory budget of `budget_bytes`.
    pub(super) fn of(performance: Option<StorePerformance>, budget_bytes: u64) -> Reach {
        let Some(performance) = performance else { return Reach::NEAR };
        let bytes =
            if performance.latency_p50.is_zero() { UNKNOWN_BYTES } else { performance.bytes_of_latency() };
        let room = budget_bytes / COMING_OF_BUDGET;
        let bytes_max = bytes.clamp(BYTES_MAX, SLOW_BYTES_MAX).min((room / COMING_MIN).max(BYTES_MAX));
        let first_bytes = (bytes / FIRST_OF_LATENCY).clamp(BYTES_MIN, BYTES_MAX);
        Reach {
            seek_bytes: (bytes / SEEK_OF_LATENCY).min(SEEK_BYTES_MAX),
            first_bytes,
            // There each piece that is too small costs more than bytes in vain.
            growth: 4,
            waited_bytes_min: first_bytes,
            bytes_max,
            slow_bytes_max: bytes_max,
            coming_max: (room / bytes_max).clamp(1, COMING_MAX),
        }
    }
}

/// How far walks that begin with a seek usually go in a table, and in those of its level: about the
/// median, in bytes, found by going up or down an eighth with each of them, and up to the double
/// when two in a row went further. Half of the seeks then read too much, and half too little: at a
/// far store, where bytes are cheap and requests are not, that is a good place.
#[derive(Debug, Default)]
pub struct Habit(
    /// The bytes, and in the lowest bit whether the last walk went further.
    AtomicU64,
);

impl Habit {
    /// A walk has ended after so many bytes.
    pub(super) fn saw(&self, bytes: u64) {
        // Of two that come at once one may be lost.
        let word = self.0.load(Ordering::Relaxed);
        let (usual, again) = (word & !1, word & 1 == 1);
        let step = usual / 8 + HABIT_STEP_BYTES;
        let next = if bytes <= usual {
            bytes.max(usual.saturating_sub(step)) & !1
        } else {
            bytes.min(usual + if again { usual + step } else { step }) | 1
        };
        if next != word {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    /// The usual length; 0 when nothing is known.
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !1
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
pub struct Pace {
    pub(super) backward: bool,
    in_a_row: u32,
    /// Of the piece asked for last; 0: none yet.
    bytes: u64,
    /// Bytes of all pieces that were entered.
    entered_bytes: u64,
    /// Whether the walk had to wait for what was coming.
    slow: bool,
}

/// What to do when a walk has asked for the last bytes of its table, from a store whose
/// latency is measured: the next table may be opened meanwhile.
pub struct AtEnd(pub Box<dyn FnOnce(Pace) + Send + Sync>);

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AtEnd")
    }
}

impl Pace {
    /// Whether the walk goes backward.
    pub fn is_backward(self) -> bool {
        self.backward
    }

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
        (self.bytes * reach.growth)
            .clamp(reach.first_bytes, if self.slow { reach.slow_bytes_max } else { reach.bytes_max })
    }

    /// Whether that many pieces of so many bytes are enough on their way: while the walk has to
    /// wait, as many times what it has come through as a piece is of the one before.
    fn is_enough(&self, coming: u64, coming_bytes: u64, reach: Reach) -> bool {
        coming > 0
            && (!self.slow || coming >= reach.coming_max || coming_bytes >= reach.growth * self.entered_bytes)
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
        let within =
            |at: u64| usize::try_from(at.clamp(self.start, self.end()) - self.start).unwrap_or(usize::MAX);
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
    coming: VecDeque<Coming>,
    /// Partitions on their way, and where the one lies from which they were asked for. Dropping the
    /// task gives them up.
    partitions: Option<(u64, Option<Task>)>,
}

impl ReadAhead {
    /// Of a walk that begins, or goes on at `pace` from another table.
    pub(super) fn at(pace: Pace) -> ReadAhead {
        ReadAhead { pace, ..ReadAhead::default() }
    }

    /// As that, in the place of this one, which most often holds nothing.
    #[inline]
    pub(super) fn begin_at(&mut self, pace: Pace) {
        if self.current.is_some() || !self.coming.is_empty() || self.partitions.is_some() {
            *self = ReadAhead::at(pace);
        }
        self.pace = pace;
    }

    /// Room for a piece, if the budget has it.
    pub(super) fn room(table: &Table, request: Request, range: &Range<u64>) -> Option<Charge> {
        let category =
            if request.purpose == Purpose::Compaction { Category::Compactions } else { Category::Scans };
        table.cache.budget().try_charge(category, range.end - range.start).ok()
    }

    /// Whether all walks together have room for a further piece, beside those that each needs: else
    /// the walks of a scan over many runs would drive the cache out.
    fn has_more_room(table: &Table, range: &Range<u64>) -> bool {
        let budget = table.cache.budget();
        budget.used(Category::Scans) + (range.end - range.start) <= budget.bytes() / COMING_OF_BUDGET
    }

    /// Takes a piece that was read.
    pub(super) fn install(&mut self, start: u64, bytes: Bytes, charge: Charge) {
        self.pace.bytes = bytes.len() as u64;
        self.pace.entered_bytes += self.pace.bytes;
        self.coming.clear();
        self.current = Some(Piece { start, bytes, _charge: charge });
    }

    /// Whether the partitions behind the one at `offset` were looked after.
    pub(super) fn is_brought_from(&self, offset: u64) -> bool {
        self.partitions.as_ref().is_some_and(|(from, _)| *from == offset)
    }

    /// They are, by a task if any had to be asked for.
    pub(super) fn brought_from(&mut self, offset: u64, task: Option<Task>) {
        // A read on its way from the one before goes on.
        let under_way = self.partitions.take().and_then(|(_, task)| task);
        self.partitions = Some((offset, task.or(under_way)));
    }

    /// Where the next piece has to begin; `None` when enough are coming already.
    pub(super) fn edge(&self, reach: Reach) -> Option<u64> {
        let piece = self.current.as_ref()?;
        let coming_bytes = self.coming.iter().map(|coming| coming.range.end - coming.range.start).sum();
        if self.pace.is_enough(self.coming.len() as u64, coming_bytes, reach) {
            return None;
        }
        let last = self.coming.back().map_or(piece.start..piece.end(), |coming| coming.range.clone());
        Some(if self.pace.backward { last.start } else { last.end })
    }

    /// Whether the last bytes of a table of `data_end` bytes have come or are coming, in the
    /// direction of the walk: all but what a first piece would be.
    pub(super) fn is_at_end(&self, data_end: u64, reach: Reach) -> bool {
        let last = self.coming.back().map(|coming| coming.range.clone());
        let last = last.or_else(|| self.current.as_ref().map(|piece| piece.start..piece.end()));
        last.is_some_and(|range| {
            if self.pace.backward {
                range.start <= reach.first_bytes
            } else {
                range.end + reach.first_bytes >= data_end
            }
        })
    }

    /// Begins to read the next piece; says whether it did.
    pub(super) fn start(
        &mut self,
        env: &Env,
        table: &Arc<Table>,
        request: Request,
        range: Range<u64>,
    ) -> bool {
        let is_further = !self.coming.is_empty();
        if range.is_empty() || is_further && !ReadAhead::has_more_room(table, &range) {
            return false;
        }
        let Some(charge) = ReadAhead::room(table, request, &range) else { return false };
        let (completer, completion) = completion();
        let class = if request.purpose == Purpose::Compaction {
            TaskClass::Background
        } else {
            TaskClass::Foreground
        };
        let (table, wanted) = (Arc::clone(table), range.clone());
        let task = env
            .spawn(class, "read ahead", async move { completer.complete(table.read(request, wanted).await) });
        self.pace.bytes = range.end - range.start;
        self.coming.push_back(Coming { range, charge, completion, _task: task });
        true
    }

    /// The bytes of a block from what was read ahead and has come, with the offset where they
    /// begin.
    pub(super) fn take(&mut self, handle: BlockHandle) -> Option<(Bytes, u64)> {
        let piece = self.current.as_ref()?;
        if piece.start <= handle.offset && handle.end() <= piece.end() {
            return Some((piece.bytes.clone(), piece.start));
        }
        if !self.awaits(handle) {
            return None;
        }
        self.pass(handle);
        loop {
            let is_last = self.is_next(handle);
            self.coming.front().filter(|coming| coming.completion.is_ready())?;
            let mut coming = self.coming.pop_front()?;
            let arrived = coming.completion.try_take()?.ok();
            if is_last {
                return self.promote(handle, coming, arrived);
            }
            self.enter(coming, arrived)?;
        }
    }

    /// Whether the current piece and the next one bring a block. Else it lies further on, where it
    /// was waited for: the blocks between were in memory, but for the last ones.
    fn is_next(&self, handle: BlockHandle) -> bool {
        let (Some(piece), Some(coming)) = (&self.current, self.coming.front()) else { return true };
        piece.start.min(coming.range.start) <= handle.offset
            && handle.end() <= piece.end().max(coming.range.end)
    }

    /// Whether a coming piece brings the missing part of a block.
    pub(super) fn awaits(&self, handle: BlockHandle) -> bool {
        let Some(piece) = &self.current else { return false };
        let mut before = piece.start..piece.end();
        self.coming.iter().any(|coming| {
            let both = before.start.min(coming.range.start)..before.end.max(coming.range.end);
            before = coming.range.clone();
            both.start <= handle.offset && handle.end() <= both.end
        })
    }

    /// Leaves the coming pieces behind that the walk has come past, because what they bring was in
    /// memory.
    fn pass(&mut self, handle: BlockHandle) {
        let backward = self.pace.backward;
        let is_behind = |range: &Range<u64>| {
            if backward { handle.end() <= range.start } else { handle.offset >= range.end }
        };
        while self.coming.front().is_some_and(|coming| is_behind(&coming.range)) {
            let Some(passed) = self.coming.pop_front() else { return };
            let start = if backward { passed.range.start } else { passed.range.end };
            self.current = Some(Piece { start, bytes: Bytes::new(), _charge: passed.charge });
        }
    }

    /// Waits for the coming piece, after which [`ReadAhead::take`] has the block, unless the read
    /// failed. If the future is dropped, nothing is lost.
    pub(super) async fn wait(&mut self, handle: BlockHandle, reach: Reach) -> Option<(Bytes, u64)> {
        self.pass(handle);
        loop {
            let is_last = self.is_next(handle);
            let coming = self.coming.front_mut()?;
            let counts = self.pace.bytes >= reach.waited_bytes_min;
            let arrived =
                poll_fn(|context| Pin::new(&mut coming.completion).poll(context)).await.and_then(Result::ok);
            self.pace.slow |= counts;
            let coming = self.coming.pop_front()?;
            if is_last {
                return self.promote(handle, coming, arrived);
            }
            self.enter(coming, arrived)?;
        }
    }

    /// The coming piece becomes the current one; gives the one before.
    fn enter(&mut self, coming: Coming, arrived: Option<Bytes>) -> Option<Piece> {
        let old = self.current.take()?;
        let bytes = arrived.filter(|bytes| bytes.len() as u64 == coming.range.end - coming.range.start)?;
        self.pace.entered_bytes += bytes.len() as u64;
        self.current = Some(Piece { start: coming.range.start, bytes, _charge: coming.charge });
        Some(old)
    }

    /// The same; gives the block that asked for it, out of the piece, or put together of both.
    fn promote(
        &mut self,
        handle: BlockHandle,
        coming: Coming,
        arrived: Option<Bytes>,
    ) -> Option<(Bytes, u64)> {
        let old = self.enter(coming, arrived)?;
        let piece = self.current.as_ref()?;
        let block = handle.offset..handle.end();
        if piece.start <= block.start && block.end <= piece.end() {
            return Some((piece.bytes.clone(), piece.start));
        }
        let (low, high) = if self.pace.backward { (piece, &old) } else { (&old, piece) };
        let mut whole = BytesMut::with_capacity(handle.length as usize);
        whole.extend_from_slice(&low.part(block.clone()));
        whole.extend_from_slice(&high.part(block.clone()));
        Some((whole.freeze(), block.start))
    }

    /// Whether a block lies wholly before the pieces, so that they are of no use any more.
    pub(super) fn has_left(&self, handle: BlockHandle) -> bool {
        self.current.as_ref().is_some_and(|piece| handle.end() <= piece.start || handle.offset >= piece.end())
            && !self.awaits(handle)
    }

    /// Whether the current piece is where these bytes lie.
    #[cfg(test)]
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        self.current.as_ref().is_some_and(|piece| piece.bytes.as_ptr_range().contains(&bytes.as_ptr()))
    }

    /// Lets go of the pieces.
    pub(super) fn clear(&mut self) {
        self.current = None;
        self.coming.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tombolo_env::simulated::World;

    use super::*;
    use crate::budget::MemoryBudget;

    /// A walk whose blocks up to `handle` were in memory: it lies in the second and the third
    /// piece.
    #[test]
    fn a_block_of_two_coming_pieces_comes_from_both() {
        let env = World::new(1).process("walker").env();
        let budget = MemoryBudget::new(1 << 20).unwrap();
        let data = Bytes::from((0..=255).chain(0..44).collect::<Vec<u8>>());
        let piece = |range: Range<usize>| (range.start as u64..range.end as u64, data.slice(range));
        for (backward, pieces) in
            [(false, [0..100, 100..200, 200..300]), (true, [200..300, 100..200, 0..100])]
        {
            for ready in [true, false] {
                let mut ahead = ReadAhead::at(Pace { backward, ..Pace::default() });
                let charge = || budget.try_charge(Category::Scans, 100).unwrap();
                let mut pieces = pieces.iter().cloned().map(piece);
                let (range, bytes) = pieces.next().unwrap();
                ahead.install(range.start, bytes, charge());
                let mut answers = Vec::new();
                for (range, bytes) in pieces {
                    let (completer, completion) = completion();
                    let _task = env.spawn(TaskClass::Foreground, "read ahead", async {});
                    ahead.coming.push_back(Coming { range, charge: charge(), completion, _task });
                    answers.push((completer, bytes));
                }
                let handle = if backward {
                    BlockHandle { offset: 90, length: 30 }
                } else {
                    BlockHandle { offset: 180, length: 40 }
                };
                let answer =
                    || answers.into_iter().for_each(|(completer, bytes)| completer.complete(Ok(bytes)));
                assert!(ahead.awaits(handle));
                let taken = if ready {
                    answer();
                    ahead.take(handle)
                } else {
                    assert!(ahead.take(handle).is_none() && ahead.coming.len() == 2);
                    answer();
                    env.block_on(ahead.wait(handle, Reach::NEAR))
                };
                let (bytes, start) = taken.unwrap();
                let [at, from, to] = [handle.offset - start, handle.offset, handle.end()]
                    .map(|at| usize::try_from(at).unwrap());
                let whole = from..to;
                assert_eq!(
                    bytes.get(at..at + whole.len()),
                    data.get(whole),
                    "backward {backward}, ready {ready}"
                );
            }
        }
    }

    #[test]
    fn what_is_usual_follows_the_median() {
        let habit = Habit::default();
        (0..40).for_each(|_| habit.saw(300_000));
        assert_eq!(habit.bytes(), 300_000);
        // From nothing it is soon found.
        let found = Habit::default();
        let took = (1..40).find(|_| {
            found.saw(300_000);
            found.bytes() == 300_000
        });
        assert!(took <= Some(7), "{took:?}");
        // Rare long ones do not matter.
        (0..200).for_each(|turn| habit.saw(if turn % 10 == 0 { 50_000_000 } else { 9_000 }));
        assert!((9_000..60_000).contains(&habit.bytes()), "{}", habit.bytes());
        assert_eq!(Reach::NEAR.seek(300_000), 0);
    }

    #[test]
    fn pieces_follow_what_is_measured() {
        const BUDGET: u64 = 64 << 20;
        assert_eq!(Reach::of(None, BUDGET), Reach::NEAR);
        let unknown = Reach::of(Some(StorePerformance::default()), BUDGET);
        assert_eq!(
            (unknown.seek_bytes, unknown.first_bytes, unknown.bytes_max),
            (16 << 10, 64 << 10, 256 << 10),
            "nothing is measured yet"
        );
        let performance = |micros, bytes_per_second, budget_bytes| {
            let performance = StorePerformance {
                latency_p50: Duration::from_micros(micros),
                bytes_per_second,
                ..StorePerformance::default()
            };
            Reach::of(Some(performance), budget_bytes)
        };
        let cloud = performance(25_000, 90_000_000, BUDGET);
        assert_eq!((cloud.seek_bytes, cloud.bytes_max, cloud.coming_max), (64 << 10, 1 << 20, 8));
        assert_eq!((cloud.seek(0), cloud.seek(300_000), cloud.seek(9 << 20)), (64 << 10, 345_692, 1 << 20));
        let cluster = performance(740, 400_000_000, BUDGET);
        assert_eq!((cluster.seek_bytes, cluster.first_bytes, cluster.bytes_max), (18_500, 74_000, 296_000));
        // A small budget: smaller pieces, and fewer at once.
        let small = performance(25_000, 90_000_000, 8 << 20);
        assert_eq!((small.bytes_max, small.coming_max), (512 << 10, 4));
        let tiny = performance(25_000, 90_000_000, 1 << 20);
        assert_eq!((tiny.bytes_max, tiny.coming_max), (256 << 10, 1));
        let mut pace = Pace::default();
        assert_eq!(pace.wanted(cloud), 256 << 10);
        pace.bytes = 8 << 20;
        assert_eq!((pace.wanted(cloud), pace.wanted(Reach::NEAR)), (1 << 20, 256 << 10));
        pace.slow = true;
        assert_eq!((pace.wanted(cloud), pace.wanted(Reach::NEAR)), (1 << 20, 1 << 20));
        let enough = |slow, entered_bytes, reach: Reach| {
            let pace = Pace { slow, entered_bytes, ..pace };
            (0..20).find(|coming| pace.is_enough(*coming, coming * reach.bytes_max, reach))
        };
        assert_eq!(
            [300 << 10, 1 << 20, 1 << 30].map(|entered| enough(true, entered, cloud)),
            [2, 4, 8].map(Some)
        );
        assert_eq!([enough(false, 1 << 30, cloud), enough(true, 1 << 30, Reach::NEAR)], [Some(1); 2]);
        assert_eq!(enough(true, 1 << 30, cloud.with_few_coming()), Some(1));
    }
}
