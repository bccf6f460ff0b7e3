//! A consistent cut of a database.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::prefix::prefix_range;
use crate::db::{Cursor, Handle, Keyspace, Scan};
use crate::engine::{Fixed, Opened, StreamCuts, View};
use crate::op::Op;
use crate::value::Value;

/// All keyspaces as they were at one moment. Reads of it give the same before and after any flush,
/// compaction or write.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Open>);

/// Keeps what the snapshot sees.
#[derive(Debug)]
struct Open {
    handle: Arc<Handle>,
    sequence: SequenceNumber,
    /// The time by which it judges what has expired.
    judged_ms: u64,
    /// Of a reader: the writer, which flushes and compacts, knows nothing of its snapshots. And of
    /// one that was opened while a compaction filter was at work, which knows nothing of it.
    view: Option<Arc<View>>,
    /// What it sees of other streams.
    cut: Option<u64>,
    /// Of that, what was looked at: fixed as long as the cut is open, and found here without the
    /// lock of the stream.
    met: ArcSwapOption<BTreeMap<u32, Fixed>>,
    /// Of what a snapshot sees of another stream: that snapshot, which keeps it.
    of: Option<Snapshot>,
}

/// When a read looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// A snapshot's; `None` is now.
    pub(crate) sequence: Option<SequenceNumber>,
    /// A snapshot's time, by which it is judged what has expired; `None` is now.
    pub(crate) judged_ms: Option<u64>,
    /// What it looks at, if not at the newest.
    pub(crate) view: Option<&'a Arc<View>>,
}

/// Where and when a read of a snapshot looks.
enum Seen<'a> {
    /// Of the database's own stream, or that which it was narrowed to.
    Own(Moment<'a>),
    Other {
        fixed: Fixed,
        judged_ms: u64,
    },
}

impl Seen<'_> {
    fn moment(&self) -> Moment<'_> {
        match self {
            Seen::Own(moment) => *moment,
            Seen::Other { fixed, judged_ms } => Moment {
                sequence: Some(fixed.sequence),
                judged_ms: Some(*judged_ms),
                view: fixed.view.as_ref(),
            },
        }
    }
}

impl Moment<'_> {
    /// The newest of all.
    pub(crate) const NOW: Moment<'static> = Moment { sequence: None, judged_ms: None, view: None };
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.of.is_some() {
            return;
        }
        let kept_view = self.view.take().is_some();
        // Views of streams, before these are told that nobody looks at them any more.
        self.met.store(None);
        if let Some(cut) = self.cut {
            self.handle.engine.streams.close_cut(cut);
        }
        if self.handle.engine.snapshots.close(self.sequence) || kept_view {
            self.handle.engine.work.raise();
        }
    }
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Snapshot {
        let engine = &handle.engine;
        let visible = || engine.stream.visible();
        let has_streams = engine.streams.is_any();
        let showing = (has_streams && engine.is_read_only()).then(|| engine.streams.showing.lock());
        // Of a reader the view comes first, as its rounds replace view and number together.
        let view = engine.is_read_only().then(|| engine.view_owned());
        let open = || engine.snapshots.open(engine.env.now(), visible, || engine.judged_ms());
        let (mut opened, mut cut) = (open(), None);
        // Looked at after the number was taken: a stream that begins meanwhile holds nothing that a
        // write up to there has followed.
        if engine.streams.is_any() {
            if !has_streams && engine.is_read_only() {
                // A round has met the first one since, and may be showing it.
                if engine.snapshots.close(opened.sequence) {
                    engine.work.raise();
                }
                drop(showing);
                return Snapshot::new(handle);
            }
            let before = opened.sequence;
            {
                let _commit = engine.stream.commit.lock();
                opened = open();
                cut = Some(engine.streams.cuts.raise(opened.judged_ms));
            }
            if showing.is_some() {
                // What its next round shows is no part of this one.
                engine.streams.all().iter().filter_map(|of| of.snapshots.cuts()).for_each(StreamCuts::meet);
            }
            if engine.snapshots.close(before) {
                engine.work.raise();
            }
        }
        drop(showing);
        let Opened { sequence, judged_ms, keeps_view } = opened;
        // It holds all up to the number, which was taken before.
        let keeps_view = keeps_view && !is_enabled(Mutant::FilterForgetsNewSnapshots);
        let view = view.or_else(|| keeps_view.then(|| engine.view_owned()));
        let met = ArcSwapOption::empty();
        Snapshot(Arc::new(Open { handle, sequence, judged_ms, view, cut, met, of: None }))
    }

    /// What it looks at, if not at the newest.
    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.0.view.as_ref()
    }

    pub(super) fn moment(&self) -> Moment<'_> {
        Moment {
            sequence: Some(self.0.sequence),
            judged_ms: Some(self.judged_ms()),
            view: self.0.view.as_ref(),
        }
    }

    /// The newest sequence number that it sees.
    pub fn sequence(&self) -> u64 {
        self.0.sequence.0
    }

    /// The time by which it judges what has expired.
    pub(crate) fn judged_ms(&self) -> u64 {
        if is_enabled(Mutant::SnapshotJudgesByNow) {
            return self.0.handle.engine.judged_ms();
        }
        self.0.judged_ms
    }

    /// As [`Snapshot::sequence`].
    pub(crate) fn number(&self) -> SequenceNumber {
        self.0.sequence
    }

    /// What it sees of the stream of a keyspace, to keep.
    ///
    /// # Errors
    /// `Invalid` for a keyspace of another database.
    pub(super) fn of(&self, keyspace: &Keyspace) -> Result<Snapshot> {
        self.of_handle(keyspace.handle())
    }

    /// As [`Snapshot::of`], of the stream whose handle that is.
    ///
    /// # Errors
    /// `Invalid` for one of another database.
    pub(super) fn of_handle(&self, handle: &Arc<Handle>) -> Result<Snapshot> {
        let Seen::Other { fixed: Fixed { sequence, view }, judged_ms } = self.seen_of(handle)? else {
            return Ok(self.clone());
        };
        let (handle, of) = (Arc::clone(handle), Some(self.clone()));
        let met = ArcSwapOption::empty();
        Ok(Snapshot(Arc::new(Open { handle, sequence, judged_ms, view, cut: None, met, of })))
    }

    /// The same, for one read. Of the snapshot's own stream it counts no reference and takes no
    /// lock. Of another one it counts one, and takes locks until a cut was found.
    #[inline]
    fn seen(&self, keyspace: &Keyspace) -> Result<Seen<'_>> {
        self.seen_of(keyspace.handle())
            .map_err(|error| error.object(format!("keyspace {:?}", keyspace.name())))
    }

    #[inline]
    fn seen_of(&self, handle: &Arc<Handle>) -> Result<Seen<'_>> {
        if Arc::ptr_eq(&handle.engine, &self.0.handle.engine) {
            return Ok(Seen::Own(self.moment()));
        }
        self.seen_of_stream(handle)
    }

    fn seen_of_stream(&self, handle: &Arc<Handle>) -> Result<Seen<'_>> {
        if !Arc::ptr_eq(&handle.root().engine, &self.0.handle.engine) {
            let message = "a keyspace of another database than the snapshot";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (stream, judged_ms) = (handle.engine.stream_id(), self.judged_ms());
        if let Some(fixed) = self.0.met.load().as_ref().and_then(|met| met.get(&stream)) {
            return Ok(Seen::Other { fixed: fixed.clone(), judged_ms });
        }
        let cuts = handle.engine.snapshots.cuts();
        // Without a cut it was opened before there was any stream: it sees no tables either, as
        // those that came behind all others have the number 0.
        let Some(fixed) = self.0.cut.and_then(|cut| cuts.and_then(|cuts| cuts.at(cut))) else {
            let view = handle.engine.view();
            let view = View {
                active: Arc::clone(&view.active),
                waiting: Vec::new(),
                version: Arc::default(),
                kept_by: None,
                generation: u64::MAX,
            };
            let fixed = Fixed { sequence: SequenceNumber::ZERO, view: Some(Arc::new(view)) };
            return Ok(Seen::Other { fixed, judged_ms });
        };
        self.0.met.rcu(|met| {
            let mut met = met.as_ref().map_or_else(BTreeMap::new, |met| BTreeMap::clone(met));
            met.insert(stream, fixed.clone());
            Some(Arc::new(met))
        });
        Ok(Seen::Other { fixed, judged_ms })
    }

    /// As [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` for a keyspace of another database.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        match self.seen(keyspace) {
            Ok(seen) => keyspace.get_at(seen.moment(), key.as_ref()),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// The same, and by another time it is judged what has expired.
    pub(super) fn get_judged(&self, keyspace: &Keyspace, key: &[u8], judged_ms: u64) -> Op<Option<Value>> {
        keyspace.get_at(Moment { judged_ms: Some(judged_ms), ..self.moment() }, key)
    }

    /// As [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<R: Send + 'static>(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R + Send + 'static,
    ) -> Op<Option<R>> {
        match self.seen(keyspace) {
            Ok(seen) => keyspace.get_with_at(seen.moment(), key.as_ref(), read),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// As [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Op<Vec<Option<Value>>> {
        match self.seen(keyspace) {
            Ok(seen) => keyspace.multi_get_at(seen.moment(), keys),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// As [`Keyspace::scan`]; keeps the snapshot open.
    pub fn scan<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Scan {
        match self.of(keyspace) {
            Ok(here) => Scan::new(keyspace.cursor_at(Some(here), range)),
            Err(error) => Scan::refused(keyspace, error),
        }
    }

    /// As [`Keyspace::prefix`]; keeps the snapshot open.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Scan {
        self.scan(keyspace, prefix_range(prefix.as_ref()))
    }

    /// As [`Keyspace::cursor`]; keeps the snapshot open.
    pub fn cursor<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Cursor {
        match self.of(keyspace) {
            Ok(here) => keyspace.cursor_at(Some(here), range),
            Err(error) => Cursor::refused(keyspace, error),
        }
    }
}
