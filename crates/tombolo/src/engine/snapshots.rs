//! Which sequence numbers readers still look from, so that flush and compaction keep what they see.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::Instant;
use tombolo_format::key::SequenceNumber;

use super::StreamCuts;

/// The open snapshots.
///
/// Invariant: a snapshot reads the visible sequence number under this lock, so that a job which
/// lists the snapshots either finds it or has read a visible number that is no greater.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    all: Mutex<All>,
    /// Jobs at work that ask a filter. They begin under the lock.
    filtering: AtomicU64,
    /// Of a stream beside the main one: the cuts whose numbers it fixes.
    cuts: OnceLock<StreamCuts>,
}

#[derive(Debug, Default)]
struct All {
    open: BTreeMap<SequenceNumber, Open>,
    /// Compaction has something to do once the oldest looks from here or later.
    awaited: Option<SequenceNumber>,
}

impl All {
    fn moments(&self) -> Vec<(SequenceNumber, u64)> {
        self.open.iter().map(|(sequence, open)| (*sequence, open.judged_ms)).collect()
    }

    /// Whether the awaited number has come; it is awaited no more then.
    fn has_come(&mut self) -> bool {
        let oldest = self.open.keys().next().copied().unwrap_or(SequenceNumber::MAX);
        self.awaited.take_if(|awaited| *awaited <= oldest).is_some()
    }
}

/// A snapshot that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) sequence: SequenceNumber,
    /// The time by which it judges what has expired.
    pub(crate) judged_ms: u64,
    /// It must look at one view for all its reads.
    pub(crate) keeps_view: bool,
}

/// Those that look from one number.
#[derive(Debug)]
struct Open {
    count: u64,
    /// The time by which the first of them judges what has expired; the others judge by no earlier.
    judged_ms: u64,
    /// When the first of them was opened.
    since: Instant,
}

impl Snapshots {
    /// The cuts that a stream beside the main one knows of; none of the main one.
    #[inline]
    pub(crate) fn cuts(&self) -> Option<&StreamCuts> {
        self.cuts.get()
    }

    /// These are of a stream that meets these cuts.
    pub(super) fn set_cuts(&self, cuts: StreamCuts) {
        let _first = self.cuts.set(cuts);
    }

    /// Before snapshots are listed, or looked for.
    fn meet_cuts(&self) {
        if let Some(cuts) = self.cuts() {
            cuts.meet();
        }
    }

    /// Opens one at what `visible` and `judged_ms` say.
    pub(crate) fn open(
        &self,
        now: Instant,
        visible: impl FnOnce() -> SequenceNumber,
        judged_ms: impl FnOnce() -> u64,
    ) -> Opened {
        let mut all = self.all.lock();
        let (sequence, judged_ms) = (visible(), judged_ms());
        let open = all.open.entry(sequence).or_insert(Open { count: 0, judged_ms, since: now });
        open.count += 1;
        // A cut may have been raised before others were opened, and met after.
        open.judged_ms = open.judged_ms.min(judged_ms);
        Opened { sequence, judged_ms, keeps_view: self.is_filtering() }
    }

    /// As [`Snapshots::moments`], for a job that takes away what a filter says, until
    /// [`Snapshots::end_filtering`]. It knows nothing of snapshots that are opened meanwhile: each
    /// keeps the view that it begins with, and sees all of what the job makes, or nothing.
    pub(crate) fn begin_filtering(&self) -> Vec<(SequenceNumber, u64)> {
        self.meet_cuts();
        let all = self.all.lock();
        self.filtering.fetch_add(1, Ordering::AcqRel);
        all.moments()
    }

    /// What the job made is seen, or never will be.
    pub(crate) fn end_filtering(&self) {
        self.filtering.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether such a job is at work.
    pub(crate) fn is_filtering(&self) -> bool {
        self.filtering.load(Ordering::Acquire) > 0
    }

    /// Does what none may be opened during, and says to it whether some are open: cuts too that the
    /// stream has not met yet. In the commit section.
    pub(crate) fn while_none_is_opened<T>(&self, work: impl FnOnce(bool) -> T) -> T {
        let work = || {
            let all = self.all.lock();
            work(!all.open.is_empty())
        };
        match self.cuts() {
            Some(cuts) => cuts.while_none_is_met(work),
            None => work(),
        }
    }

    /// Whether none can be opened now, for what relies on that.
    pub(crate) fn none_is_opened(&self) -> bool {
        self.all.is_locked()
    }

    /// Closes one; whether compaction waited for that.
    pub(crate) fn close(&self, sequence: SequenceNumber) -> bool {
        let mut all = self.all.lock();
        if let Some(those) = all.open.get_mut(&sequence) {
            those.count -= 1;
            if those.count == 0 {
                all.open.remove(&sequence);
                return all.has_come();
            }
        }
        false
    }

    /// [`Snapshots::close`] tells when the oldest looks from `awaited` or later; whether it does
    /// already.
    pub(crate) fn wake_at(&self, awaited: Option<SequenceNumber>) -> bool {
        self.meet_cuts();
        let mut all = self.all.lock();
        all.awaited = awaited;
        all.has_come()
    }

    /// How many are open, and the age of the oldest in nanoseconds; 0 when there is none.
    pub(crate) fn ages(&self, now: Instant) -> (u64, u64) {
        let open = &self.all.lock().open;
        let oldest = open.values().map(|those| now.since(those.since)).max().unwrap_or_default();
        (open.values().map(|those| those.count).sum(), u64::try_from(oldest.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The sequence numbers that are looked from, ascending, each with the earliest time by which
    /// somebody there judges what has expired.
    pub(crate) fn moments(&self) -> Vec<(SequenceNumber, u64)> {
        self.meet_cuts();
        self.all.lock().moments()
    }

    /// The sequence numbers that are looked from, ascending.
    pub(crate) fn list(&self) -> Vec<SequenceNumber> {
        self.meet_cuts();
        self.all.lock().open.keys().copied().collect()
    }
}
