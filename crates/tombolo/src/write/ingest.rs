//! Ingest in the commit section: `staged tables → one log entry → the memtable is sealed → view`.
//!
//! Invariants:
//! 1. Staged tables are shown with a log entry that says so, and never before it is appended; the
//!    caller is told once that entry is durable.
//! 2. The memtable is sealed with the entry: it holds nothing newer than what was ingested, and its
//!    flush makes the tables live. So level 0 keeps its order.
//! 3. The visible number is raised before the view is shown: a read sees what the exchange of a
//!    keyspace ended, or looks at a number that needs none of it. No snapshot is opened in between.
//! 4. Tables that are ingested behind have number 0: every snapshot would see them, so none is
//!    open then, and they meet no other that was.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::TableDescription;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{Content, Prepared, Unfinished, commit_locked, no_room, rotate, waiting_max};
use crate::engine::{Commit, Committed, Engine, KeyspaceInfo, Sight, took_no_effect};
use crate::locks::{Locks, Span};
use crate::options::Durability;
use crate::version::Ingested;

/// Staged tables that are to become part of the database together.
#[derive(Debug)]
pub(crate) struct Ingestion {
    /// Oldest first; the tables of a layer meet nowhere within a keyspace.
    pub(crate) layers: Vec<Vec<TableDescription>>,
    /// All keyspaces that it is about.
    pub(crate) keyspaces: Vec<Arc<KeyspaceInfo>>,
    /// Those of which all that is older ends.
    pub(crate) exchanged: Vec<Arc<KeyspaceInfo>>,
    /// The number of its last operation, once it has one.
    taken: OnceLock<SequenceNumber>,
    /// An append ended so that nobody knows whether a log has it.
    may_be_logged: AtomicBool,
}

impl Ingestion {
    /// Of these layers.
    pub(crate) fn new(
        layers: Vec<Vec<TableDescription>>,
        keyspaces: Vec<Arc<KeyspaceInfo>>,
        exchanged: Vec<Arc<KeyspaceInfo>>,
    ) -> Ingestion {
        let (taken, may_be_logged) = (OnceLock::new(), AtomicBool::new(false));
        Ingestion { layers, keyspaces, exchanged, taken, may_be_logged }
    }

    /// The tables that come to lie behind all that their keyspaces hold.
    fn behind(&self) -> impl Iterator<Item = &TableDescription> {
        self.layers.iter().flatten().filter(|table| table.level > 0)
    }

    /// # Errors
    /// `Invalid` when something cannot lie behind what its keyspace holds.
    fn check_behind(&self, engine: &Engine) -> Result<()> {
        let view = engine.view();
        for table in self.behind() {
            let Some(keyspace) = self.keyspaces.iter().find(|known| known.id == table.keyspace) else {
                continue;
            };
            keyspace.check_behind()?;
            let levels = view.version.levels(keyspace.id);
            let met = levels.and_then(|levels| levels.behind(&table.first_key, &table.last_key));
            if let Some(met) = met.filter(|_| !is_enabled(Mutant::BehindMeetsBehind)) {
                let message = format!(
                    "keys from {:?} to {:?} meet those of a table that was ingested behind before",
                    table.first_key, table.last_key
                );
                let met = met.description();
                return Err(Error::new(ErrorKind::Invalid, message)
                    .found(format!("{:?} to {:?} there", met.first_key, met.last_key))
                    .advice(
                        "leave out of the table what is there, or ingest it over what the keyspace holds",
                    ));
            }
        }
        Ok(())
    }

    /// The number of its last operation, once it is part of the database.
    pub(crate) fn taken(&self) -> Option<SequenceNumber> {
        self.taken.get().copied()
    }

    /// Whether a log may show its tables, now or to a successor.
    pub(crate) fn may_be_logged(&self) -> bool {
        self.taken().is_some() || self.may_be_logged.load(Ordering::Acquire)
    }

    fn prepare(&self) -> Result<Prepared> {
        let invalid = |error: tombolo_format::FormatError| Error::new(ErrorKind::Invalid, error.to_string());
        let mut prepared = Prepared { keyspaces: self.keyspaces.clone(), ..Prepared::default() };
        for keyspace in &self.exchanged {
            prepared.batch.push_exchange(keyspace.id).map_err(invalid)?;
        }
        for layer in &self.layers {
            let names: Vec<_> = layer.iter().map(|table| (table.name, table.keyspace)).collect();
            prepared.batch.push_ingest(&names).map_err(invalid)?;
        }
        Ok(prepared)
    }

    /// What it has made part of the database by operations up to `last`.
    fn ingested(&self, last: SequenceNumber) -> Ingested {
        let first = last.0 + 1 - self.layers.len() as u64;
        let tables = (first..).zip(&self.layers).flat_map(|(number, layer)| {
            layer.iter().map(move |table| Arc::new(table.ingested_at(SequenceNumber(number))))
        });
        let exchanged = self.exchanged.iter().map(|keyspace| keyspace.id).collect();
        Ingested { tables: tables.collect(), exchanged, last }
    }

    /// # Errors
    /// `NotFound` when a keyspace was dropped; `Conflict` for an exchange, and for tables behind,
    /// while snapshots are open, and for keys that a prepared transaction holds; `Invalid` for
    /// tables that cannot lie behind; `Busy` without room; those of a commit.
    pub(super) fn commit(&self, engine: &Engine, commit: &mut Commit) -> Result<Committed> {
        engine.check_writable()?;
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check())?;
        let waiting = engine.view().waiting.len();
        if waiting >= waiting_max(engine) {
            return Err(no_room(engine, waiting));
        }
        let is_behind = self.behind().next().is_some();
        if is_behind {
            self.check_behind(engine)?;
        }
        if engine.transactions.locks.has_prepared() {
            self.check_prepared(&engine.transactions.locks)?;
        }
        let prepared = self.prepare()?;
        // Between number and view no snapshot is opened: it would see the tables from its second
        // read on, and a write with a condition would not take them for newer than what it read.
        engine.snapshots.while_none_is_opened(|are_open| {
            if are_open && !self.exchanged.is_empty() {
                let error = Error::new(ErrorKind::Conflict, "snapshots see what the exchange would end");
                return Err(error.advice("close the snapshots and cursors of this process, and try again"));
            }
            if are_open && is_behind && !is_enabled(Mutant::BehindUnderSnapshots) {
                let error = Error::new(ErrorKind::Conflict, "snapshots would see what comes to lie behind");
                return Err(error.advice("close the snapshots and cursors of this process, and try again"));
            }
            self.commit_prepared(engine, commit, &prepared)
        })
    }

    /// # Errors
    /// `Conflict` when a prepared transaction holds a key of it.
    #[cold]
    fn check_prepared(&self, locks: &Locks) -> Result<()> {
        for keyspace in &self.exchanged {
            let all = Span::range(keyspace.id, &keyspace.name, Bound::Unbounded, Bound::Unbounded);
            locks.check_prepared(&all, 0)?;
        }
        for table in self.layers.iter().flatten() {
            if let Some(keyspace) = self.keyspaces.iter().find(|known| known.id == table.keyspace) {
                let (first, last) =
                    (Bound::Included(&table.first_key[..]), Bound::Included(&table.last_key[..]));
                locks.check_prepared(&Span::range(keyspace.id, &keyspace.name, first, last), 0)?;
            }
        }
        Ok(())
    }

    fn commit_prepared(
        &self,
        engine: &Engine,
        commit: &mut Commit,
        prepared: &Prepared,
    ) -> Result<Committed> {
        let committed = commit_locked(engine, commit, Content::Batch(prepared), Durability::Durable);
        let committed = committed.inspect_err(|error| {
            if !took_no_effect(error) && error.kind() != ErrorKind::NotFound {
                self.may_be_logged.store(true, Ordering::Release);
            }
        })?;
        let unfinished = Unfinished(engine);
        let last = SequenceNumber(commit.last);
        debug_assert_eq!(engine.stream.visible.load(Ordering::Relaxed), last.0, "shown before the view");
        debug_assert!(engine.snapshots.none_is_opened(), "a number without its view is looked from");
        let ingested = Arc::new(self.ingested(last));
        let _first = self.taken.set(last);
        if is_enabled(Mutant::IngestWithoutSeal) {
            show_unsealed(engine, commit, ingested);
        } else {
            rotate(engine, commit, Some(ingested));
        }
        std::mem::forget(unfinished);
        let tables = self.layers.iter().flatten();
        let ends = tables.filter_map(|table| Some(table.expiry()?.earliest_ms));
        let wants_time = committed.wants_time || ends.min().is_some_and(|end| engine.time.is_news(end));
        Ok(Committed { rotated: true, wants_time, ..committed })
    }
}

/// From here on nothing is ingested behind a keyspace, or is again.
pub(crate) fn end_behind(engine: &Engine, keyspace: &KeyspaceInfo, ends: bool) {
    let _commit = engine.stream.commit.lock();
    keyspace.end_behind(ends);
}

/// A mutant: the tables are taken for those of the memtable before, so that the one that takes the
/// writes holds older ones as well.
#[cold]
fn show_unsealed(engine: &Sight, commit: &mut Commit, ingested: Arc<Ingested>) {
    let (memtable, writer) = crate::memtable::Memtable::create(engine.budget(), 1 << 20);
    drop(writer);
    let older = Arc::new(crate::engine::Sealed {
        memtable,
        last_sequence: ingested.last,
        log_end: Some(commit.log_end),
        keyspace_edits: std::mem::take(&mut commit.keyspace_edits),
        ingested: Some(ingested),
        old_logs: Vec::new(),
        buried: Mutex::default(),
    });
    super::show_sealed(engine, &older, None);
}
