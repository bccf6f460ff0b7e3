//! Ingest as an operation: at once, or at its turn in line.

use std::sync::Arc;

use tombolo_storage::ErrorKind;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::change::Change;
use super::ingest::Ingestion;
use super::line::{Wanted, stand_in_line};
use super::{acknowledge, check_in_flight, check_line, finish_commit, stands_in_line};
use crate::engine::Engine;
use crate::op::Op;
use crate::options::Durability;

/// Makes staged tables part of the database; resolves once that is durable.
pub(crate) fn ingest(engine: &Arc<Engine>, ingestion: &Arc<Ingestion>) -> Op<()> {
    let change = Change::Ingest(Arc::clone(ingestion));
    let committed = check_in_flight(engine, Durability::Durable).and_then(|()| {
        let mut commit = engine.stream.commit.lock();
        check_line(&commit).and_then(|()| change.commit(engine, &mut commit))
    });
    let committed = match committed {
        // Nothing was tried: nobody needs to be told.
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Err(error),
        committed => finish_commit(engine, committed),
    };
    match committed {
        Ok(_) if is_enabled(Mutant::IngestAcknowledgedEarly) => Op::ready(Ok(())),
        Ok(committed) => acknowledge(engine, committed, Durability::Durable),
        Err(error) if stands_in_line(engine, &error) => {
            Op::ticket(stand_in_line(engine, Wanted::Change(change), Durability::Durable, error), ())
        }
        Err(error) => Op::ready(Err(error)),
    }
}
