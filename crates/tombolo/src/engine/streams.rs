//! The streams of a database beside the main one, each of which is an engine of its own.
//!
//! They share the manifest, the stores, the cache, the memory budget and the database's time, and
//! each has what orders and keeps its writes: numbers, commit section, memtables, view, snapshots,
//! tasks, and one lane of the log at a time. So a write to one touches no word that a write to
//! another writes. The main stream's engine owns the others; its commit section orders the
//! creations and drops of all keyspaces.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tombolo_storage::Error;

use super::{Cuts, Engine};
use crate::signal::Turn;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Streams {
    /// Read by every batch of a stream: no lock, and no word that others write.
    all: ArcSwap<BTreeMap<u32, Arc<Engine>>>,
    /// Set with the first one, for ever.
    is_any: AtomicBool,
    /// Whose turn it is to begin one.
    pub(crate) beginning: Turn,
    pub(crate) cuts: Arc<Cuts>,
    /// Whether flushes are held back of what came after a cut, in all streams. Locked before any
    /// commit section.
    pub(crate) held: Mutex<bool>,
    /// Of a reader: held while a round shows all of them, and while a snapshot of all is opened.
    pub(crate) showing: Mutex<()>,
    /// Whether cuts are written into the main log by some task.
    pub(crate) is_marking: AtomicBool,
    /// Of a stream's engine: the main one.
    pub(super) main: OnceLock<Weak<Engine>>,
}

impl Streams {
    /// Whether there are, or were, any.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }

    /// That of a number.
    pub(crate) fn get(&self, stream: u32) -> Option<Arc<Engine>> {
        self.all.load().get(&stream).cloned()
    }

    /// All, by number.
    pub(crate) fn all(&self) -> Vec<Arc<Engine>> {
        if self.is_any() { self.all.load().values().cloned().collect() } else { Vec::new() }
    }

    /// Shows one to those who look for it.
    pub(crate) fn add(&self, stream: &Arc<Engine>) {
        let held = self.held.lock();
        if *held {
            // All that will be written to it came after the cut.
            stream.stream.flush_up_to.store(stream.stream.visible().0, Ordering::Release);
        }
        self.all.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.insert(stream.stream_id(), Arc::clone(stream));
            all
        });
        self.is_any.store(true, Ordering::SeqCst);
    }

    /// Nobody holds a cut any more.
    pub(crate) fn close_cut(&self, cut: u64) {
        self.cuts.close(cut);
        for stream in self.all() {
            if let Some(cuts) = stream.snapshots.cuts() {
                cuts.close(cut);
            }
        }
    }
}

impl Engine {
    /// The engine of the main stream, which this one may be.
    pub(crate) fn main_engine(self: &Arc<Engine>) -> Arc<Engine> {
        self.streams.main.get().and_then(Weak::upgrade).unwrap_or_else(|| Arc::clone(self))
    }

    /// This engine, and those of all other streams.
    pub(crate) fn with_streams(self: &Arc<Engine>) -> Vec<Arc<Engine>> {
        let mut all = vec![Arc::clone(self)];
        all.extend(self.streams.all());
        all
    }

    /// Flushes of all streams go on, if they were held back.
    pub(crate) fn let_flushes_go(self: &Arc<Engine>) {
        let engines = {
            let mut held = self.streams.held.lock();
            if !std::mem::take(&mut *held) {
                return;
            }
            let engines = self.with_streams();
            engines.iter().for_each(|of| of.stream.flush_up_to.store(u64::MAX, Ordering::Release));
            engines
        };
        engines.iter().for_each(|engine| engine.work.raise());
    }

    /// Nobody has a handle any more: as [`super::Background::abandon`], of all streams.
    pub(crate) fn abandon_all(&self) {
        self.streams.all().iter().for_each(|stream| stream.abandon());
        self.abandon();
    }
}

/// The engines of a database, of which each is finished for writing when one is.
#[derive(Default)]
pub(crate) struct Kin(RwLock<Vec<Weak<Engine>>>);

impl Kin {
    /// Another one.
    pub(super) fn add(&self, engine: &Arc<Engine>) {
        self.0.write().push(Arc::downgrade(engine));
    }

    /// One has failed, which all are told.
    pub(super) fn tell(&self, error: &Error) {
        let all: Vec<_> = self.0.read().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|engine| engine.fail(error));
    }
}
