//! Merges in a transaction.

use std::time::Duration;

use tombolo_format::key::EntryKind;
use tombolo_storage::Result;

use crate::db::{BlockingKeyspace, BlockingTransaction, Keyspace, Transaction};
use crate::op::Op;
use crate::options::ttl_ms;

impl Transaction {
    /// Adds a [`Keyspace::merge`]. It reads nothing by itself; as any write it conflicts with
    /// others' writes of the key.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Keyspace::merge`].
    pub fn merge(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Op<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        match keyspace.info().ttl_ms() {
            0 => match keyspace.info().check_operand(operand) {
                Ok(()) => self.write(keyspace, EntryKind::Merge, key, operand),
                Err(error) => Op::ready(Err(error)),
            },
            ttl_ms => self.merge_expiring(keyspace, key, operand, keyspace.end_of(ttl_ms)),
        }
    }

    /// Adds a [`Keyspace::merge_ttl`]; the time to live begins now.
    ///
    /// # Errors
    /// As [`Transaction::merge`] and [`Keyspace::merge_ttl`].
    pub fn merge_ttl(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Op<()> {
        self.merge_expiring(keyspace, key.as_ref(), operand.as_ref(), keyspace.end_of(ttl_ms(ttl)))
    }

    /// Adds a [`Keyspace::merge_until_with`].
    ///
    /// # Errors
    /// As [`Transaction::merge`] and [`Keyspace::merge_until_with`].
    pub fn merge_until(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        expires_ms: u64,
    ) -> Op<()> {
        self.merge_expiring(keyspace, key.as_ref(), operand.as_ref(), keyspace.check_end(expires_ms))
    }

    fn merge_expiring(&self, keyspace: &Keyspace, key: &[u8], operand: &[u8], end: Result<u64>) -> Op<()> {
        match keyspace.expiring_operand(operand, end) {
            Ok(stored) => self.write(keyspace, EntryKind::ExpiringMerge, key, &stored),
            Err(error) => Op::ready(Err(error)),
        }
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingTransaction {
    /// As [`Transaction::merge`].
    pub fn merge(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.inner().merge(keyspace.keyspace(), key, operand).wait()
    }

    /// As [`Transaction::merge_ttl`].
    pub fn merge_ttl(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.inner().merge_ttl(keyspace.keyspace(), key, operand, ttl).wait()
    }

    /// As [`Transaction::merge_until`].
    pub fn merge_until(
        &self,
        keyspace: &BlockingKeyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        expires_ms: u64,
    ) -> Result<()> {
        self.inner().merge_until(keyspace.keyspace(), key, operand, expires_ms).wait()
    }
}
