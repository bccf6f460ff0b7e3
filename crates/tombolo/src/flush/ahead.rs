//! The tables of the next memtable, written while the one before is being flushed: that one waits
//! for its tables to be durable, then for the log, then for the manifest, and a processor would be
//! idle meanwhile.
//!
//! Invariants:
//! 1. A table that is written here is named by the memtable's own flush, after the one before was
//!    named, or deleted.
//! 2. Nothing is written ahead of a memtable that creates or drops keyspaces: which ones live is
//!    known once the manifest has that.
//! 3. One memtable at most is written ahead; nothing of it is kept while the one before fails,
//!    which may be for want of room.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering};

use tombolo_env::{Completion, Instant, Task, TaskClass, completion};
use tombolo_format::manifest::TableDescription;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{FlushWorld, delete_unnamed, streams, write_tables};
use crate::engine::{Engine, FilteringJob, Sealed, Store, View};

/// No memtable is sealed after the one before yet.
const WATCHES: u8 = 0;
const WRITES: u8 = 1;
const GIVEN_UP: u8 = 2;

/// What was written ahead.
struct Written {
    sealed: Weak<Sealed>,
    began: Instant,
    tables: Vec<TableDescription>,
    filtering: Option<Arc<FilteringJob>>,
    result: Result<()>,
}

/// See the module's documentation.
pub(super) struct Ahead {
    stage: Arc<AtomicU8>,
    written: Completion<Written>,
    _task: Task,
}

/// The memtable after another, which is being flushed, or the oldest when that one was.
fn after(view: &View, before: &Weak<Sealed>) -> Option<Arc<Sealed>> {
    let place = view.waiting.iter().rposition(|sealed| std::ptr::eq(Arc::as_ptr(sealed), before.as_ptr()));
    view.waiting.get(place.unwrap_or(view.waiting.len()).checked_sub(1)?).cloned()
}

impl Ahead {
    /// Waits in the background for a memtable to be sealed after `before`, and writes its tables.
    /// Not where both would share a rate: then they would only end at the same time, and memory
    /// come back by fits and starts.
    pub(super) fn begin(engine: &Arc<Engine>, before: &Arc<Sealed>) -> Option<Ahead> {
        let changes_keyspaces =
            !before.keyspace_edits.is_empty() && !is_enabled(Mutant::FlushAheadOfKeyspaceChanges);
        if changes_keyspaces || engine.pace.is_bounded() {
            return None;
        }
        let (completer, written) = completion();
        let stage = Arc::new(AtomicU8::new(WATCHES));
        let work = {
            let (engine, before, stage) = (Arc::clone(engine), Arc::downgrade(before), Arc::clone(&stage));
            async move {
                let sealed = loop {
                    // Subscribed before it looks: what comes in between is not missed.
                    let work = engine.work.subscribe();
                    if engine.is_stopping() {
                        return;
                    }
                    let next = after(&engine.view(), &before);
                    if let Some(next) = next {
                        break next;
                    }
                    let _woken = work.await;
                };
                if stage.compare_exchange(WATCHES, WRITES, Ordering::AcqRel, Ordering::Acquire).is_err() {
                    return;
                }
                let (began, mut tables) = (engine.env.now(), Vec::new());
                let (result, filtering) = match streams::wait_until_known(&engine, &sealed).await {
                    Ok(()) => {
                        let world = FlushWorld::now(&engine, &sealed);
                        let filtering = world.filtering.clone();
                        (write_tables(world, &sealed, &mut tables).await, filtering)
                    }
                    Err(error) => (Err(error), None),
                };
                let sealed = Arc::downgrade(&sealed);
                completer.complete(Written { sealed, began, tables, filtering, result });
            }
        };
        Some(Ahead { stage, written, _task: engine.env.spawn(TaskClass::Flush, "flush ahead", work) })
    }

    /// Whether a memtable was found; otherwise none will be.
    fn has_begun(&self) -> bool {
        self.stage
            .compare_exchange(WATCHES, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire)
            .is_err_and(|stage| stage == WRITES)
    }

    /// What was written ahead of this memtable, and since when; `None`: nothing.
    pub(super) async fn take(
        self,
        store: &Store,
        sealed: &Arc<Sealed>,
        tables: &mut Vec<TableDescription>,
    ) -> Option<(Instant, Option<Arc<FilteringJob>>, Result<()>)> {
        if !self.has_begun() {
            return None;
        }
        let bug = || Error::new(ErrorKind::Bug, "what writes a memtable ahead panicked");
        let Some(written) = self.written.await else { return Some((store.env.now(), None, Err(bug()))) };
        if std::ptr::eq(written.sealed.as_ptr(), Arc::as_ptr(sealed)) {
            tables.extend(written.tables);
            return Some((written.began, written.filtering, written.result));
        }
        delete_unnamed(store, &written.tables).await;
        None
    }

    /// Keeps it if it has found a memtable.
    pub(super) fn if_begun(self) -> Option<Ahead> {
        self.has_begun().then_some(self)
    }

    /// Deletes what it has written.
    pub(super) async fn discard(self, store: &Store) {
        if self.has_begun()
            && let Some(written) = self.written.await
        {
            delete_unnamed(store, &written.tables).await;
        }
    }
}
