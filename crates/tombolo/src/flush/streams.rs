//! Flushes of streams beside the main one, whose keyspaces the main one makes and drops.
//!
//! The manifest learns of that with the main stream's flushes. Until it knows a keyspace, no table
//! of it can be named; and what lives the manifest says, not the catalog: a drop that is in the
//! main log alone may be lost, and with it would go what a flush had left out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::manifest::{Edit, MAIN_STREAM, TableDescription};
use tombolo_storage::{Error, ErrorKind, Result};

use super::delete_unnamed;
use crate::engine::{Engine, Sealed, Store};
use crate::manifest::State;
use crate::write;

/// Waits until the manifest knows, or knew, every keyspace of a memtable: has the main stream's
/// flush tell it, if need be.
///
/// # Errors
/// `Closed` when the database stops meanwhile.
pub(super) async fn wait_until_known(engine: &Arc<Engine>, sealed: &Sealed) -> Result<()> {
    if engine.stream_id() == MAIN_STREAM {
        return Ok(());
    }
    let Some(newest) = sealed.memtable.lists().into_iter().map(|(id, _)| id).max() else { return Ok(()) };
    let main = engine.main_engine();
    let mut is_asked = false;
    loop {
        // Subscribed before it looks: what comes in between is not missed.
        let progress = main.progress.subscribe();
        if newest < engine.manifest.state().next_keyspace_id() {
            return Ok(());
        }
        if engine.is_stopping() || main.is_stopping() {
            return Err(Error::new(ErrorKind::Closed, "the database stopped before a keyspace was known"));
        }
        if !std::mem::replace(&mut is_asked, true) {
            write::seal(&main);
        }
        let _woken = progress.await;
    }
}

/// Deletes tables of keyspaces that a state of the manifest has dropped since they were written.
pub(super) async fn leave_dropped(store: &Store, state: &State, tables: &mut Vec<TableDescription>) {
    if store.stream_id() == MAIN_STREAM {
        return;
    }
    let gone = |table: &mut TableDescription| state.keyspace(table.keyspace).is_none();
    let dropped: Vec<_> = tables.extract_if(.., gone).collect();
    if !dropped.is_empty() {
        delete_unnamed(store, &dropped).await;
    }
}

/// The manifest knows of drops by a flush of the main stream: streams that hold something of those
/// keyspaces show it no more, and flush what they have in memory, so that an idle one gives its
/// space back too.
pub(super) fn let_dropped_go(engine: &Engine, sealed: &Sealed) {
    let dropped = |edit: &Edit| match edit {
        Edit::KeyspaceDropped { id } => Some(*id),
        _ => None,
    };
    let dropped: Vec<u32> = sealed.keyspace_edits.iter().filter_map(dropped).collect();
    if dropped.is_empty() || engine.stream_id() != MAIN_STREAM {
        return;
    }
    for stream in engine.streams.all() {
        let (in_tables, in_memory) = {
            let view = stream.view();
            let in_tables = dropped.iter().any(|id| view.version.levels(*id).is_some());
            let mut lists = view.memtables().flat_map(|memtable| memtable.lists());
            (in_tables, lists.any(|(id, _)| dropped.contains(&id)))
        };
        if in_tables {
            stream.install(None);
        }
        if in_memory {
            stream.stream.has_drops.store(true, Ordering::Release);
        }
        if in_tables || in_memory {
            stream.work.raise();
        }
    }
}

/// Whether a keyspace of a memtable was dropped in the manifest since `state`: then edits of before
/// do not fit.
pub(super) fn drops_meanwhile(store: &Store, state: &State, sealed: &Sealed) -> bool {
    let newest = store.manifest.state();
    let is_dropped = |id: u32| state.keyspace(id).is_some() && newest.keyspace(id).is_none();
    let mut ids: Vec<u32> = sealed.memtable.lists().iter().map(|(id, _)| *id).collect();
    ids.extend(sealed.ingested.iter().flat_map(|ingested| ingested.keyspaces()));
    store.stream_id() != MAIN_STREAM && ids.into_iter().any(is_dropped)
}
