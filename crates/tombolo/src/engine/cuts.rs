//! Cuts through the streams of a database: what a snapshot of all of them sees.
//!
//! A cut has a number, which is raised in constant time in the commit section of the main stream;
//! there the snapshot takes the number of that stream. Every other stream fixes its own number when
//! it first meets the cut: in a commit before it takes a number, in a read at the snapshot, or when
//! a job lists snapshots. The first to come fixes it, once.
//!
//! That is consistent. If a write returned before another began, and the second is in the snapshot,
//! then its commit met no new cut: so the first had been shown before the cut was raised, and is in
//! what its stream fixed after that. A commit that has looked before the cut was raised and shows
//! its write after the number was fixed is left out: it had not returned.
//!
//! Locks, from outer to inner: `commit`, `StreamCuts::fixed`, `Cuts::open`, those of `Snapshots`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Engine, View};

/// The cuts of a database. Every commit of a stream reads `newest`; snapshots alone write it.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    newest: AtomicU64,
    /// Those that somebody holds, with the time by which it is judged there what has expired.
    open: Mutex<BTreeMap<u64, u64>>,
}

impl Cuts {
    /// Another cut. In the commit section of the main stream.
    pub(crate) fn raise(&self, judged_ms: u64) -> u64 {
        let mut open = self.open.lock();
        let cut = self.newest.load(Ordering::Relaxed) + 1;
        open.insert(cut, judged_ms);
        self.newest.store(cut, Ordering::SeqCst);
        cut
    }

    /// Nobody holds it any more: streams that have not met it never will.
    pub(crate) fn close(&self, cut: u64) {
        self.open.lock().remove(&cut);
    }
}

/// What a cut sees of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) sequence: SequenceNumber,
    /// While a compaction filter was at work: what it looks at.
    pub(crate) view: Option<Arc<View>>,
}

/// A panic leaves nothing held.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What a stream beside the main one knows of cuts.
pub(crate) struct StreamCuts {
    cuts: Arc<Cuts>,
    engine: Weak<Engine>,
    /// The newest cut that it has met.
    met: AtomicU64,
    fixed: Mutex<BTreeMap<u64, Fixed>>,
    /// Who is in the commit section holds `fixed`. Changed in the commit section only.
    is_held: AtomicBool,
}

impl fmt::Debug for StreamCuts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StreamCuts").field("met", &self.met).finish_non_exhaustive()
    }
}

impl StreamCuts {
    /// Of a stream that nobody has written to yet: it holds nothing that open cuts would see.
    pub(super) fn new(cuts: &Arc<Cuts>, engine: &Arc<Engine>) -> StreamCuts {
        StreamCuts {
            cuts: Arc::clone(cuts),
            engine: Arc::downgrade(engine),
            met: AtomicU64::new(0),
            fixed: Mutex::default(),
            is_held: AtomicBool::new(false),
        }
    }

    /// Fixes the stream's number for each cut that it has not met. One load where there is none.
    #[inline]
    pub(crate) fn meet(&self) {
        // What was shown before by anybody whom this one follows is seen by who raises a cut after
        // this look, and the other way round.
        fence(Ordering::SeqCst);
        if self.cuts.newest.load(Ordering::SeqCst) != self.met.load(Ordering::Acquire) {
            self.meet_new();
        }
    }

    /// As [`StreamCuts::meet`], in the commit section.
    #[inline]
    pub(crate) fn meet_in_commit(&self) {
        if !self.is_held.load(Ordering::Relaxed) {
            self.meet();
        }
    }

    /// Does something in the commit section, during which the stream meets no cut. It has met those
    /// that were raised before; one that is raised meanwhile sees of the stream what it is after.
    pub(super) fn while_none_is_met<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut fixed = self.fixed.lock();
        if !is_enabled(Mutant::IngestMissesCuts) {
            fence(Ordering::SeqCst);
            self.fix_new(&mut fixed);
        }
        self.is_held.store(true, Ordering::Relaxed);
        let _held = Held(&self.is_held);
        work()
    }

    #[cold]
    fn meet_new(&self) {
        self.fix_new(&mut self.fixed.lock());
    }

    fn fix_new(&self, fixed: &mut BTreeMap<u64, Fixed>) {
        let Some(engine) = self.engine.upgrade() else { return };
        let open = self.cuts.open.lock();
        let met = self.met.load(Ordering::Relaxed);
        let newest = self.cuts.newest.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for (cut, judged_ms) in open.range(met + 1..) {
            let opened = engine.snapshots.open(engine.env.now(), || engine.stream.visible(), || *judged_ms);
            // After the number, so that the view holds all up to it.
            // Of a reader, whose rounds replace view and number together, none is made meanwhile.
            let keeps_view = opened.keeps_view || engine.is_read_only();
            let view = keeps_view.then(|| engine.view_owned());
            fixed.insert(*cut, Fixed { sequence: opened.sequence, view });
        }
        self.met.store(newest, Ordering::Release);
    }

    /// What an open cut sees of the stream.
    pub(crate) fn at(&self, cut: u64) -> Option<Fixed> {
        self.meet();
        let found = self.fixed.lock().get(&cut).cloned();
        if is_enabled(Mutant::CutFixedTwice)
            && let (Some(engine), Some(found)) = (self.engine.upgrade(), &found)
        {
            return Some(Fixed { sequence: engine.stream.visible(), ..found.clone() });
        }
        found
    }

    /// A cut was closed.
    pub(super) fn close(&self, cut: u64) {
        let gone = self.fixed.lock().remove(&cut);
        let (Some(gone), Some(engine)) = (gone, self.engine.upgrade()) else { return };
        if engine.snapshots.close(gone.sequence) || gone.view.is_some() {
            drop(gone);
            engine.work.raise();
        }
    }
}
