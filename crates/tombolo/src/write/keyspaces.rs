//! Creating and dropping keyspaces: operations in the main stream, which stand in line like writes
//! when there is no room.
//!
//! Invariants:
//! 1. Numbers of keyspaces rise in the order of the log: one is given in the commit section, when
//!    its creation is committed.
//! 2. Whether a name is taken is judged in the commit section, at the creation's turn: what stands
//!    in line before it has been done by then.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use tombolo_storage::{Error, ErrorKind, Result};

use super::line::{Wanted, stand_in_line};
use super::{
    Content, Prepared, acknowledge_with, check_in_flight, check_line, commit_locked, finish_commit, so_far,
    stands_in_line,
};
use crate::engine::{Commit, Committed, Engine, KeyspaceInfo, MAIN_STREAM};
use crate::op::Op;
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

/// What is to become of a keyspace.
#[derive(Debug)]
pub(super) enum Change {
    Create(Arc<Creation>),
    Drop(Box<str>),
}

impl Change {
    /// About what it takes in memory while it stands in line.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Create(creation) => size_of::<Creation>() + creation.name.len(),
            Change::Drop(name) => name.len(),
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
                let id = commit.next_keyspace;
                let options = creation.options.to_manifest();
                let pushed = prepared.batch.push_create_keyspace(id, &creation.name, MAIN_STREAM, &options);
                pushed.map_err(invalid)?;
                let committed =
                    commit_locked(engine, commit, Content::Batch(&prepared), Durability::Durable)?;
                commit.next_keyspace = id + 1;
                if let Some(made) = engine.catalog.by_id(id) {
                    let _first = creation.made.set(made);
                }
                Ok(committed)
            }
            Change::Drop(name) => {
                let Some(keyspace) = engine.catalog.by_name(name) else {
                    return Err(Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")));
                };
                prepared.batch.push_drop_keyspace(keyspace.id).map_err(invalid)?;
                let committed =
                    commit_locked(engine, commit, Content::Batch(&prepared), Durability::Durable)?;
                // One flush after what is flushed now, for however many are dropped meanwhile.
                engine.stream.has_drops.store(true, Ordering::Release);
                Ok(Committed { rotated: true, ..committed })
            }
        }
    }
}

impl Creation {
    /// One of the name is there. Whoever opens it waits until its creation is durable as well.
    fn found(&self, engine: &Engine, commit: &Commit, found: Arc<KeyspaceInfo>) -> Result<Committed> {
        if !self.opens {
            let error = Error::new(ErrorKind::AlreadyExists, format!("keyspace {:?} exists", self.name));
            return Err(error.advice("open it with Db::keyspace, or with Db::open_or_create_keyspace"));
        }
        engine.check_writable()?;
        let _first = self.made.set(found);
        Ok(so_far(commit))
    }

    fn keyspace(&self) -> Result<Arc<KeyspaceInfo>> {
        let missing =
            || Error::new(ErrorKind::Bug, format!("the creation of keyspace {:?} gave none", self.name));
        self.made.get().cloned().ok_or_else(missing)
    }
}

/// Creates a keyspace; `opens` says whether one that is there will do.
pub(crate) fn create_keyspace<T: 'static>(
    engine: &Arc<Engine>,
    name: &str,
    options: &KeyspaceOptions,
    opens: bool,
    handle: impl FnOnce(Arc<KeyspaceInfo>) -> T + Send + 'static,
) -> Op<T> {
    let creation =
        Arc::new(Creation { name: name.into(), options: options.clone(), opens, made: OnceLock::new() });
    let change = Change::Create(Arc::clone(&creation));
    match commit(engine, &change) {
        Ok(committed) => match creation.keyspace() {
            Ok(made) => acknowledge_with(engine, committed, Durability::Durable, handle(made)),
            Err(error) => Op::ready(Err(error)),
        },
        Err(error) if stands_in_line(engine, &error) => {
            let turn = stand_in_line(engine, Wanted::Change(change), Durability::Durable, error);
            Op::ticket_for(turn, move || creation.keyspace().map(handle))
        }
        Err(error) => Op::ready(Err(error)),
    }
}

/// Drops a keyspace.
pub(crate) fn drop_keyspace(engine: &Arc<Engine>, name: &str) -> Op<()> {
    let change = Change::Drop(name.into());
    match commit(engine, &change) {
        Ok(committed) => acknowledge_with(engine, committed, Durability::Durable, ()),
        Err(error) if stands_in_line(engine, &error) => {
            Op::ticket(stand_in_line(engine, Wanted::Change(change), Durability::Durable, error), ())
        }
        Err(error) => Op::ready(Err(error)),
    }
}

fn commit(engine: &Engine, change: &Change) -> Result<Committed> {
    check_in_flight(engine, Durability::Durable)?;
    let committed = {
        let mut commit = engine.stream.commit.lock();
        check_line(&commit).and_then(|()| change.commit(engine, &mut commit))
    };
    match committed {
        // Nothing was tried: nobody needs to be told.
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Err(error),
        committed => finish_commit(engine, committed),
    }
}
