//! A database that is read at a far store.

use tombolo::{Db, Keyspace};
use tombolo_storage::layer::RequestKind;

use crate::failure::{Failure, Result};

/// The database at a far store.
pub(super) struct Far {
    pub(super) db: Db,
    pub(super) keyspace: Keyspace,
}

impl Far {
    pub(super) fn close(self) -> Result<()> {
        drop(self.keyspace);
        Ok(self.db.close().wait()?)
    }

    /// Requests that may be on their way at once.
    pub(super) fn in_flight_max(&self) -> Result<u64> {
        Ok(self.db.property("store-requests-max")?.value.number().unwrap_or(0))
    }

    /// Reads of the store so far, for all callers.
    pub(super) fn reads(&self) -> u64 {
        self.db
            .requests()
            .counted
            .iter()
            .filter(|counted| counted.kind == RequestKind::Read)
            .map(|counted| counted.requests)
            .sum()
    }

    /// Reads that somebody waited for so far, and second requests for them.
    pub(super) fn hedges(&self) -> Result<(u64, u64)> {
        let number = |name| Ok::<_, Failure>(self.db.property(name)?.value.number().unwrap_or(0));
        Ok((number("store-reads")?, number("store-hedges")?))
    }
}
