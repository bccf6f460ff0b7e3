//! A transaction whose verbs wait, for programs that have no runtime.

use std::ops::RangeBounds;
use std::time::Duration;

use tombolo_storage::Result;

use crate::db::{Blocking, BlockingKeyspace, Savepoint, Transaction, TransactionCursor};
use crate::options::TransactionOptions;
use crate::value::Value;

/// A [`Transaction`] whose verbs wait. Must not be used inside a task.
#[derive(Debug)]
pub struct BlockingTransaction(Transaction);

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingTransaction {
    pub(super) fn inner(&self) -> &Transaction {
        &self.0
    }

    pub(super) fn into_inner(self) -> Transaction {
        self.0
    }

    /// As [`Transaction::get`].
    pub fn get(&self, keyspace: &BlockingKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.0.get(keyspace.keyspace(), key).wait()
    }

    /// As [`Transaction::get_for_update`].
    pub fn get_for_update(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.0.get_for_update(keyspace.keyspace(), key).wait()
    }

    /// As [`Transaction::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &BlockingKeyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        self.0.multi_get(keyspace.keyspace(), keys).wait()
    }

    /// As [`Transaction::lock_range`].
    pub fn lock_range<K: AsRef<[u8]>>(
        &self,
        keyspace: &BlockingKeyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.0.lock_range(keyspace.keyspace(), range).wait()
    }

    /// As [`Transaction::cursor`], whose verbs wait as well.
    pub fn cursor<K: AsRef<[u8]>>(
        &self,
        keyspace: &BlockingKeyspace,
        range: impl RangeBounds<K>,
    ) -> TransactionCursor {
        self.0.cursor(keyspace.keyspace(), range)
    }

    /// As [`Transaction::put`].
    pub fn put(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.0.put(keyspace.keyspace(), key, value).wait()
    }

    /// As [`Transaction::put_ttl`].
    pub fn put_ttl(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.0.put_ttl(keyspace.keyspace(), key, value, ttl).wait()
    }

    /// As [`Transaction::delete`].
    pub fn delete(&self, keyspace: &BlockingKeyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.delete(keyspace.keyspace(), key).wait()
    }

    /// As [`Transaction::single_delete`].
    pub fn single_delete(&self, keyspace: &BlockingKeyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.single_delete(keyspace.keyspace(), key).wait()
    }

    /// As [`Transaction::delete_range`].
    pub fn delete_range(
        &self,
        keyspace: &BlockingKeyspace,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.0.delete_range(keyspace.keyspace(), from, to).wait()
    }

    /// As [`Transaction::savepoint`].
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.0.savepoint()
    }

    /// As [`Transaction::roll_back_to`].
    pub fn roll_back_to(&self, savepoint: Savepoint) -> Result<()> {
        self.0.roll_back_to(savepoint)
    }

    /// As [`Transaction::roll_back`].
    pub fn roll_back(self) {
        self.0.roll_back();
    }

    /// As [`Transaction::commit`].
    pub fn commit(self) -> Result<u64> {
        self.0.commit().wait()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`crate::Db::transaction`].
    pub fn transaction(&self) -> BlockingTransaction {
        BlockingTransaction(self.db().transaction())
    }

    /// As [`crate::Db::transaction_with`].
    pub fn transaction_with(&self, options: TransactionOptions) -> BlockingTransaction {
        BlockingTransaction(self.db().transaction_with(options))
    }

    /// As [`crate::Db::transact`].
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let db = tombolo::Db::builder("mem://visits").open().wait()?.blocking();
    /// # let counts = db.default_keyspace();
    /// db.transact(&Default::default(), |transaction| {
    ///     let visits = transaction.get_for_update(&counts, "visits")?.map_or(0, |value| value[0]);
    ///     transaction.put(&counts, "visits", [visits + 1])?;
    ///     transaction.commit()
    /// })?;
    /// assert_eq!(counts.get("visits")?.unwrap(), [1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transact<T>(
        &self,
        options: &TransactionOptions,
        mut work: impl FnMut(BlockingTransaction) -> Result<T>,
    ) -> Result<T> {
        self.db().transact_here(options, |transaction| work(BlockingTransaction(transaction)))
    }
}
