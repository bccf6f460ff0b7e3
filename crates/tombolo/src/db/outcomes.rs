//! How transactions ended, by their ids: entries of the keyspace in which a database keeps what it
//! knows of transactions.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::expiry::join_expiring;
use tombolo_format::key::EntryKind;
use tombolo_format::prepared::{OUTCOME_KEY, TransactionEnd, transaction_key};

use crate::db::Keyspace;
use crate::read::{Reach, Touched};
use crate::write::Prepared;

/// How long an outcome is known.
const OUTCOME_MS: u64 = 24 * 60 * 60 * 1000;

/// Adds an outcome to a batch; gives what must be as it was for it to be the only one.
pub(super) fn push_outcome(
    prepared: &mut Prepared,
    reserved: &Keyspace,
    id: &[u8],
    end: TransactionEnd,
) -> Touched {
    let key = transaction_key(OUTCOME_KEY, id);
    match reserved.end_of(OUTCOME_MS) {
        Ok(until) => {
            let value = join_expiring(&end.encode(), until);
            prepared.push(reserved.info(), EntryKind::ExpiringPut, &key, &value);
        }
        Err(error) => prepared.refuse(error),
    }
    Touched { keyspace: Arc::clone(reserved.info()), what: Reach::Key(Bytes::from(key)) }
}
