//! An ordered map of its own in a database.

use std::fmt;
use std::ops::RangeBounds;

use crate::db::{Scan, unsupported};
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions};
use crate::value::Value;

/// An ordered map in a database. Cheap to clone.
#[derive(Clone)]
pub struct Keyspace {}

impl fmt::Debug for Keyspace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        ""
    }

    /// Its number in the database; never used again.
    pub fn id(&self) -> u32 {
        0
    }

    /// Its settings.
    pub fn options(&self) -> KeyspaceOptions {
        KeyspaceOptions::default()
    }

    /// Stores `value` under `key`; durable when the operation ends. One log append; the sync is shared with other writes.
    ///
    /// # Errors
    /// As [`crate::Db::write`]; `NotFound` when the keyspace was dropped.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op<()> {
        self.put_with(key, value, Durability::Durable)
    }

    /// As [`Keyspace::put`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn put_with(&self, _key: impl AsRef<[u8]>, _value: impl AsRef<[u8]>, _durability: Durability) -> Op<()> {
        Op::ready(unsupported())
    }

    /// Removes `key`; durable when the operation ends. Removing what is not there succeeds.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Op<()> {
        self.delete_with(key, Durability::Durable)
    }

    /// As [`Keyspace::delete`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, _key: impl AsRef<[u8]>, _durability: Durability) -> Op<()> {
        Op::ready(unsupported())
    }

    /// The value of `key`. Ready at once when memory holds the answer; else one ranged request per table that may hold the key.
    ///
    /// # Errors
    /// `Corrupt` with object and offset; those of the object store; `Closed`.
    pub fn get(&self, _key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        Op::ready(unsupported())
    }

    /// Gives the value of `key` to `read` without copying it. `read` runs on the thread that takes the result.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_with<R: Send + 'static>(&self, _key: impl AsRef<[u8]>, _read: impl FnOnce(&[u8]) -> R + Send + 'static) -> Op<Option<R>> {
        Op::ready(unsupported())
    }

    /// As [`Keyspace::get`], and the answer is known not to be stale: the epoch is verified at the log after the read began.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Fenced` when another process has taken over.
    pub fn get_confirmed(&self, _key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        Op::ready(unsupported())
    }

    /// The values of several keys, in their order, all at one moment. Misses are fetched together.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, _keys: &[K]) -> Op<Vec<Option<Value>>> {
        Op::ready(unsupported())
    }

    /// A cursor over the keys in `range`, at one moment; it starts before the first. It holds memory and tables until it is dropped.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// for entry in orders.scan::<&[u8]>(..) {
    ///     let (key, value) = entry?;
    ///     println!("{key:?} {value:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan<K: AsRef<[u8]>>(&self, _range: impl RangeBounds<K>) -> Scan {
        Scan {}
    }
}
