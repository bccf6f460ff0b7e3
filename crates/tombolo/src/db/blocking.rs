//! The same verbs without `.wait()`, for programs that have no runtime.

use std::time::Duration;

use tombolo_storage::Result;

use crate::checkpoint::Checkpoint;
use crate::db::{Batch, Db, Export, Exported, Ingest, Keyspace, VerifyReport};
use crate::options::{Durability, KeyspaceOptions};
use crate::outside::{IngestOptions, IngestReport, TablePlace};
use crate::value::Value;

/// A database whose verbs wait. Must not be used inside a task.
#[derive(Clone, Debug)]
pub struct Blocking(Db);

/// A keyspace whose verbs wait. Must not be used inside a task.
#[derive(Clone, Debug)]
pub struct BlockingKeyspace(Keyspace);

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    pub(crate) fn new(db: Db) -> Blocking {
        Blocking(db)
    }

    pub(super) fn db(&self) -> &Db {
        &self.0
    }

    /// As [`Db::create_keyspace`].
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<BlockingKeyspace> {
        self.0.create_keyspace(name, options).wait().map(BlockingKeyspace)
    }

    /// As [`Db::open_or_create_keyspace`].
    pub fn open_or_create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<BlockingKeyspace> {
        self.0.open_or_create_keyspace(name, options).wait().map(BlockingKeyspace)
    }

    /// As [`Db::keyspace`].
    pub fn keyspace(&self, name: &str) -> Result<BlockingKeyspace> {
        self.0.keyspace(name).map(BlockingKeyspace)
    }

    /// As [`Db::default_keyspace`].
    pub fn default_keyspace(&self) -> BlockingKeyspace {
        BlockingKeyspace(self.0.default_keyspace())
    }

    /// As [`Db::drop_keyspace`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.0.drop_keyspace(name).wait()
    }

    /// As [`Db::write`].
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.0.write(batch).wait()
    }

    /// As [`Db::write_with`].
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.0.write_with(batch, durability).wait()
    }

    /// As [`Db::ingest`].
    pub fn ingest(&self, tables: Ingest) -> Result<IngestReport> {
        self.0.ingest(tables).wait()
    }

    /// As [`Db::export_tables`].
    pub fn export_tables(&self, export: Export, place: impl Into<TablePlace>) -> Result<Exported> {
        self.0.export_tables(export, place).wait()
    }

    /// As [`Db::sync`].
    pub fn sync(&self) -> Result<()> {
        self.0.sync().wait()
    }

    /// As [`Db::flush`].
    pub fn flush(&self) -> Result<()> {
        self.0.flush().wait()
    }

    /// As [`Db::compact`].
    pub fn compact(&self) -> Result<()> {
        self.0.compact().wait()
    }

    /// As [`Db::checkpoint`].
    pub fn checkpoint(&self, name: &str) -> Result<Checkpoint> {
        self.0.checkpoint(name).wait()
    }

    /// As [`Db::checkpoints`].
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.0.checkpoints().wait()
    }

    /// As [`Db::delete_checkpoint`].
    pub fn delete_checkpoint(&self, name: &str) -> Result<()> {
        self.0.delete_checkpoint(name).wait()
    }

    /// As [`Db::verify`].
    pub fn verify(&self) -> Result<VerifyReport> {
        self.0.verify().wait()
    }

    /// As [`Db::set_options`], which does not wait.
    pub fn set_options<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
        self.0.set_options(settings)
    }

    /// As [`Db::close`].
    pub fn close(&self) -> Result<()> {
        self.0.close().wait()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    pub(super) fn new(keyspace: Keyspace) -> BlockingKeyspace {
        BlockingKeyspace(keyspace)
    }

    /// The keyspace itself, for batches and scans.
    pub fn keyspace(&self) -> &Keyspace {
        &self.0
    }

    /// As [`Keyspace::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.0.put(key, value).wait()
    }

    /// As [`Keyspace::put_with`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.0.put_with(key, value, durability).wait()
    }

    /// As [`Keyspace::put_ttl`].
    pub fn put_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.0.put_ttl(key, value, ttl).wait()
    }

    /// As [`Keyspace::put_ttl_with`].
    pub fn put_ttl_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
        durability: Durability,
    ) -> Result<()> {
        self.0.put_ttl_with(key, value, ttl, durability).wait()
    }

    /// As [`Keyspace::put_until_with`].
    pub fn put_until_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_ms: u64,
        durability: Durability,
    ) -> Result<()> {
        self.0.put_until_with(key, value, expires_ms, durability).wait()
    }

    /// As [`Keyspace::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.delete(key).wait()
    }

    /// As [`Keyspace::delete_with`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.0.delete_with(key, durability).wait()
    }

    /// As [`Keyspace::delete_range`].
    pub fn delete_range(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.0.delete_range(from, to).wait()
    }

    /// As [`Keyspace::delete_range_with`].
    pub fn delete_range_with(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.0.delete_range_with(from, to, durability).wait()
    }

    /// As [`Keyspace::single_delete`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.single_delete(key).wait()
    }

    /// As [`Keyspace::single_delete_with`].
    pub fn single_delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.0.single_delete_with(key, durability).wait()
    }

    /// As [`Keyspace::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.0.merge(key, operand).wait()
    }

    /// As [`Keyspace::merge_with`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.0.merge_with(key, operand, durability).wait()
    }

    /// As [`Keyspace::merge_ttl`].
    pub fn merge_ttl(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.0.merge_ttl(key, operand, ttl).wait()
    }

    /// As [`Keyspace::merge_ttl_with`].
    pub fn merge_ttl_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: Duration,
        durability: Durability,
    ) -> Result<()> {
        self.0.merge_ttl_with(key, operand, ttl, durability).wait()
    }

    /// As [`Keyspace::merge_until_with`].
    pub fn merge_until_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        expires_ms: u64,
        durability: Durability,
    ) -> Result<()> {
        self.0.merge_until_with(key, operand, expires_ms, durability).wait()
    }

    /// As [`Keyspace::ingest`].
    pub fn ingest<P: Into<TablePlace>>(&self, tables: impl IntoIterator<Item = P>) -> Result<IngestReport> {
        self.0.ingest(tables).wait()
    }

    /// As [`Keyspace::ingest_with`].
    pub fn ingest_with<P: Into<TablePlace>>(
        &self,
        tables: impl IntoIterator<Item = P>,
        options: IngestOptions,
    ) -> Result<IngestReport> {
        self.0.ingest_with(tables, options).wait()
    }

    /// As [`Keyspace::export_tables`].
    pub fn export_tables(&self, place: impl Into<TablePlace>) -> Result<Exported> {
        self.0.export_tables(place).wait()
    }

    /// As [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.0.get_here(key.as_ref())
    }

    /// As [`Keyspace::get_with`]; the closure may borrow.
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.0.get_with_here(key.as_ref(), read)
    }

    /// As [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.0.multi_get_here(keys)
    }
}
