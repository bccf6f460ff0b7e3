//! A change of the catalog as it is committed: at once, or at its turn in line.
//!
//! Invariants:
//! 1. Numbers of keyspaces rise in the order of the log: one is given in the commit section, when
//!    its creation is committed.
//! 2. Whether a name is taken is judged in the commit section, at the creation's turn: every change
//!    before it in line has been made by then.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::ingest::Ingestion;
use super::{Content, Prepared, commit_locked, so_far};
use crate::engine::{Commit, Committed, Engine, Health, KeyspaceInfo, MAIN_STREAM};
use crate::event::Event;
use crate::options::{Durability, KeyspaceOptions};

/// A keyspace that is to be made.
#[derive(Debug)]
pub(super) struct Creation {
    name: Box<str>,
    options: KeyspaceOptions,
    /// Whether one that is there will do.
    opens: bool,
    /// The keyspace, once there is one.
    made: OnceLock<Arc<KeyspaceInfo>>,
}

/// What shall become of a keyspace.
#[derive(Debug)]
pub(super) enum Change {
    Create(Arc<Creation>),
    Drop(Box<str>),
    Ingest(Arc<Ingestion>),
}

impl Change {
    /// About what it takes in memory while it stands in line.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Create(creation) => size_of::<Creation>() + creation.name.len(),
            Change::Drop(name) => name.len(),
            Change::Ingest(ingestion) => ingestion.layers.iter().map(|layer| size_of_val(&layer[..])).sum(),
        }
    }

    /// # Errors
    /// `AlreadyExists`, `NotFound` for the name; those of a commit.
    pub(super) fn commit(&self, engine: &Engine, commit: &mut Commit) -> Result<Committed> {
        let invalid = |error: tombolo_format::FormatError| Error::new(ErrorKind::Invalid, error.to_string());
        let mut prepared = Prepared::default();
        match self {
            Change::Create(creation) => {
                if let Some(found) = engine.catalog.by_name(&creation.name) {
                    return creation.found(engine, commit, found);
                }
                // Nobody could merge into it.
                if let Some(operator) = &creation.options.operator {
                    engine.catalog.operators().named(operator).get()?;
                }
                let stream = creation.options.stream;
                if stream != MAIN_STREAM
                    && engine.streams.get(stream).is_none()
                    && !is_enabled(Mutant::StreamNeverBegun)
                {
                    return Err(no_stream(&creation.name));
                }
                let id = commit.next_keyspace;
                let options = creation.options.to_manifest();
                let pushed = prepared.batch.push_create_keyspace(id, &creation.name, stream, &options);
                pushed.map_err(invalid)?;
                let committed =
                    commit_locked(engine, commit, Content::Batch(&prepared), Durability::Durable)?;
                commit.next_keyspace = id + 1;
                let name = || creation.name.to_string();
                engine.events.tell(|| Event::KeyspaceCreated { keyspace: id, name: name() });
                if let Some(made) = engine.catalog.by_id(id) {
                    let _first = creation.made.set(made);
                }
                Ok(committed)
            }
            Change::Ingest(ingestion) => ingestion.commit(engine, commit),
            Change::Drop(name) => {
                let Some(keyspace) = engine.catalog.by_name(name) else {
                    return Err(Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")));
                };
                prepared.batch.push_drop_keyspace(keyspace.id).map_err(invalid)?;
                let committed =
                    commit_locked(engine, commit, Content::Batch(&prepared), Durability::Durable)?;
                let name = || name.to_string();
                engine.events.tell(|| Event::KeyspaceDropped { keyspace: keyspace.id, name: name() });
                // One flush after the present one, for however many are dropped meanwhile.
                engine.stream.has_drops.store(true, Ordering::Release);
                Ok(Committed { rotated: true, ..committed })
            }
        }
    }
}

/// Its stream was not begun, as the name was taken when the creation came: writes to it would have
/// no log of their own.
#[cold]
fn no_stream(name: &str) -> Error {
    Error::new(ErrorKind::Retry, format!("keyspace {name:?} was dropped meanwhile"))
        .advice("create it again, which begins its stream")
}

impl Creation {
    /// A keyspace `name`; `opens` says whether an existing one will do.
    pub(super) fn new(name: &str, options: &KeyspaceOptions, opens: bool) -> Creation {
        Creation { name: name.into(), options: options.clone(), opens, made: OnceLock::new() }
    }

    /// One of the name is there. Its opener waits until its creation is durable as well.
    fn found(&self, engine: &Health, commit: &Commit, found: Arc<KeyspaceInfo>) -> Result<Committed> {
        if !self.opens {
            let error = Error::new(ErrorKind::AlreadyExists, format!("keyspace {:?} exists", self.name));
            return Err(error.advice("open it with Db::keyspace, or with Db::open_or_create_keyspace"));
        }
        engine.check_writable()?;
        let _first = self.made.set(found);
        Ok(so_far(commit))
    }

    /// The keyspace, once the change is committed.
    pub(super) fn keyspace(&self) -> Result<Arc<KeyspaceInfo>> {
        let missing =
            || Error::new(ErrorKind::Bug, format!("the creation of keyspace {:?} gave none", self.name));
        self.made.get().cloned().ok_or_else(missing)
    }
}
