//! Creating and dropping keyspaces: operations in the main stream, which stand in line like writes
//! when there is no room.

use std::sync::Arc;

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{ErrorKind, Result};

use super::change::{Change, Creation};
use super::line::{Wanted, stand_in_line};
use super::{acknowledge_with, check_in_flight, check_line, finish_commit, stands_in_line};
use crate::engine::{Committed, Engine, KeyspaceInfo, MAIN_STREAM};
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions};

/// Creates a keyspace; `opens` says whether one that is there will do.
pub(crate) fn create_keyspace<T: 'static>(
    engine: &Arc<Engine>,
    name: &str,
    options: &KeyspaceOptions,
    opens: bool,
    handle: impl FnOnce(Arc<KeyspaceInfo>) -> T + Send + 'static,
) -> Op<T> {
    let creation = Arc::new(Creation::new(name, options, opens));
    let change = Change::Create(Arc::clone(&creation));
    match commit(engine, &change) {
        Ok(_) if options.stream != MAIN_STREAM && is_enabled(Mutant::StreamServedBeforeCreation) => {
            Op::ready(creation.keyspace().map(handle))
        }
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
