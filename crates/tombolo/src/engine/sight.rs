//! What reads see, and how another view takes its place.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Background, Readers, Sealed};
use crate::collection::Pinned;
use crate::manifest::State;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::version::{Ingested, Version, Versions};

/// What a read sees: memtables and tables.
#[derive(Debug)]
pub(crate) struct View {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Wait for their flush, newest first.
    pub(crate) waiting: Vec<Arc<Sealed>>,
    /// The tables.
    pub(crate) version: Arc<Version>,
    /// What keeps the tables from being deleted, where this process is not the one that deletes.
    pub(crate) kept_by: Option<Arc<Pinned>>,
    /// Another one than that of the view before if it lacks what this one holds, or holds what this
    /// one lacks: see [`dead_runs`].
    pub(crate) generation: u64,
}

impl View {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.waiting.iter().map(|sealed| &sealed.memtable))
    }

    /// Whether what was ingested lies over the memtables of a keyspace: a read goes by numbers
    /// then.
    #[inline]
    pub(crate) fn is_over(&self, keyspace: u32) -> bool {
        !self.waiting.is_empty() && self.version.is_over(keyspace)
    }

    /// Those that count for a keyspace, newest first: an exchange ends everything older.
    pub(crate) fn memtables_of(&self, keyspace: u32) -> impl Iterator<Item = &Arc<Memtable>> {
        let ends = |sealed: &Arc<Sealed>| {
            sealed.ingested.as_ref().is_some_and(|ingested| ingested.exchanges(keyspace))
        };
        let older = self.waiting.iter().position(ends).unwrap_or(self.waiting.len());
        let waiting = self.waiting[..older].iter();
        std::iter::once(&self.active).chain(waiting.map(|sealed| &sealed.memtable))
    }

    /// This view with the tables of a state, and those of these memtables that wait still.
    ///
    /// Between the record of a flush and its end, others show views. What its memtable held is in
    /// tables then: together they would count operands twice, and the memtable would lie over what
    /// was ingested after it.
    pub(crate) fn with_tables(
        &self,
        versions: &Versions,
        state: &State,
        mut waiting: Vec<Arc<Sealed>>,
    ) -> View {
        let stream = versions.stream();
        waiting.retain(|sealed| {
            !sealed.is_in_tables(state, stream) || is_enabled(Mutant::ViewKeepsFlushedMemtables)
        });
        let version = versions.build(state, &self.version, &ingested_of(&waiting));
        View {
            active: Arc::clone(&self.active),
            waiting,
            version,
            kept_by: self.kept_by.clone(),
            generation: self.generation,
        }
    }
}

/// What was ingested with these memtables and is in no level yet.
pub(crate) fn ingested_of(waiting: &[Arc<Sealed>]) -> Vec<&Ingested> {
    waiting.iter().filter_map(|sealed| sealed.ingested.as_deref()).collect()
}

/// See the module's documentation.
pub(crate) struct Sight {
    background: Background,
    pub(crate) readers: Readers,
    view: ArcSwap<View>,
    view_lock: Mutex<()>,
}

impl Deref for Sight {
    type Target = Background;

    #[inline]
    fn deref(&self) -> &Background {
        &self.background
    }
}

impl Sight {
    /// Of a database that was just opened.
    pub(super) fn new(background: Background, view: View) -> Sight {
        Sight {
            readers: Readers::new(background.budget()),
            view: ArcSwap::from_pointee(view),
            view_lock: Mutex::default(),
            background,
        }
    }

    /// Changes settings, and what follows from them: all, or nothing. `log_bytes_max` says what a
    /// memtable's log may take then, at this rate of replay.
    ///
    /// # Errors
    /// `Invalid` of the change, or when the memory would be too small.
    pub(crate) fn change_options(
        &self,
        change: impl FnOnce(&mut Options) -> Result<()>,
        log_bytes_max: impl FnOnce(&Options, u64) -> u64,
    ) -> Result<()> {
        self.options.change(change, |options| {
            self.membership.change(options.memtable_bytes(), options.memory_bytes)?;
            self.log_bytes_max.store(log_bytes_max(options, self.replay_rate), Ordering::Relaxed);
            self.readers.settle();
            self.pace.set(options.background_bytes_per_second_max);
            self.recording.set_slow_from(options.slow_operation);
            Ok(())
        })
    }

    /// What reads see now.
    #[inline]
    pub(crate) fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Bytes of all tables that reads see now.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.view.load().version.keyspaces().map(|(_, levels)| levels.bytes()).sum()
    }

    /// What reads see now, to keep.
    pub(crate) fn view_owned(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the view by what `change` makes of it.
    pub(crate) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _guard = self.view_lock.lock();
        let changed = change(&self.view.load());
        self.put_view(changed);
    }

    /// No other view takes the place of this one meanwhile.
    pub(super) fn hold_view(&self) -> MutexGuard<'_, ()> {
        self.view_lock.lock()
    }

    /// Puts a view in the place of the one before; under `view_lock`.
    fn put_view(&self, view: View) {
        let old = self.view.swap(Arc::new(view));
        self.readers.replaced(&old, self.env.now());
    }

    /// Puts the tables of a state into the view, whose generation grows by `step`; under
    /// `view_lock`.
    pub(super) fn put_tables(&self, flushed: Option<&Arc<Sealed>>, state: &State, step: u64) {
        let old = self.view.load();
        let stays = |sealed: &&Arc<Sealed>| flushed.is_none_or(|flushed| !Arc::ptr_eq(sealed, flushed));
        let waiting: Vec<_> = old.waiting.iter().filter(stays).cloned().collect();
        let view = old.with_tables(&self.versions, state, waiting);
        self.put_view(View { generation: view.generation + step, ..view });
    }
}
