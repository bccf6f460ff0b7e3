//! What several of RocksDB's functions hand around.

use tombolo::{BlockingKeyspace, Db, Env, Keyspace, Snapshot, Value};
use tombolo_c::boundary::handle;

/// An open database. Any number of threads may use it at once.
#[derive(Clone)]
pub struct Database {
    pub(crate) db: Db,
    pub(crate) env: Env,
    pub(crate) default: BlockingKeyspace,
    /// Where it lies, as a URI.
    pub(crate) uri: String,
}

/// A column family: a keyspace. Any number of threads may use it at once.
pub struct Family(pub(crate) BlockingKeyspace);

/// A state that stays.
pub struct SnapshotHandle(pub(crate) Snapshot);

/// A value that lies where it was found.
pub struct PinnableSlice(pub(crate) Value);

impl Database {
    /// The keyspace of a column family, or the default one.
    pub(crate) fn family<'a>(&'a self, family: Option<&'a Family>) -> &'a BlockingKeyspace {
        family.map_or(&self.default, |family| &family.0)
    }

    /// The keyspace of a column family's number.
    pub(crate) fn by_number(&self, number: u32) -> Option<Keyspace> {
        if number == self.default.keyspace().id() {
            return Some(self.default.keyspace().clone());
        }
        self.db.keyspaces().into_iter().find(|keyspace| keyspace.id() == number)
    }
}

/// A column family that must be given.
///
/// # Errors
/// `Invalid` for a null pointer.
pub(crate) fn given(family: Option<&Family>) -> tombolo::Result<Option<&Family>> {
    handle(family, "column family").map(Some)
}
