//! A consistent cut of a database.

use std::ops::RangeBounds;

use crate::db::{Keyspace, Scan, unsupported};
use crate::op::Op;
use crate::value::Value;

/// All keyspaces as they were at one moment. Reads of it give the same before and after any flush, compaction or write.
#[derive(Clone, Debug)]
pub struct Snapshot {}

impl Snapshot {
    /// The newest sequence number that it sees.
    pub fn sequence(&self) -> u64 {
        0
    }

    /// As [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` for a keyspace of another database.
    pub fn get(&self, _keyspace: &Keyspace, _key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        Op::ready(unsupported())
    }

    /// As [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<R: Send + 'static>(
        &self,
        _keyspace: &Keyspace,
        _key: impl AsRef<[u8]>,
        _read: impl FnOnce(&[u8]) -> R + Send + 'static,
    ) -> Op<Option<R>> {
        Op::ready(unsupported())
    }

    /// As [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, _keyspace: &Keyspace, _keys: &[K]) -> Op<Vec<Option<Value>>> {
        Op::ready(unsupported())
    }

    /// As [`Keyspace::scan`].
    pub fn scan<K: AsRef<[u8]>>(&self, _keyspace: &Keyspace, _range: impl RangeBounds<K>) -> Scan {
        Scan {}
    }
}
