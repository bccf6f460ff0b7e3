//! Several writes that take effect together.

use std::time::Duration;

use tombolo_format::expiry::join_expiring;
use tombolo_format::key::EntryKind;
use tombolo_storage::Result;

use crate::condition::Condition;
use crate::db::Keyspace;
use crate::options::ttl_ms;
use crate::write::{Prepared, Requirements};

/// Writes that take effect whole or not at all, in the order in which they were added; of one key,
/// the last wins.
///
/// ```no_run
/// # fn f(db: &tombolo::Db, orders: &tombolo::Keyspace) -> tombolo::Result<()> {
/// use tombolo::Batch;
///
/// let mut batch = Batch::new();
/// batch.put(orders, b"2", b"a lamp").delete(orders, b"1");
/// db.write(batch).wait()
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) prepared: Prepared,
    pub(crate) requirements: Requirements,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. A key of 64 KiB or more, a value over 64 MiB or a batch over 96 MiB makes
    /// writing it fail with `Invalid`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        match keyspace.info().ttl_ms() {
            0 => self.prepared.push(keyspace.info(), EntryKind::Put, key.as_ref(), value.as_ref()),
            ttl_ms => self.push_expiring(keyspace, key.as_ref(), value.as_ref(), keyspace.end_of(ttl_ms)),
        }
        self
    }

    /// Adds a [`Keyspace::put_ttl`]; the time to live begins now. A wrong one makes writing the
    /// batch fail with `Invalid`.
    pub fn put_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut Batch {
        self.push_expiring(keyspace, key.as_ref(), value.as_ref(), keyspace.end_of(ttl_ms(ttl)));
        self
    }

    /// Adds a [`Keyspace::put_until_with`]. A moment that has passed makes writing the batch fail
    /// with `Invalid`.
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_ms: u64,
    ) -> &mut Batch {
        let end = keyspace.check_end(expires_ms);
        self.push_expiring(keyspace, key.as_ref(), value.as_ref(), end);
        self
    }

    fn push_expiring(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], end: Result<u64>) {
        match end {
            Ok(end) => {
                let stored = join_expiring(value, end);
                self.prepared.push(keyspace.info(), EntryKind::ExpiringPut, key, &stored);
            }
            Err(error) => self.prepared.refuse(error),
        }
    }

    /// Adds a delete.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Batch {
        self.prepared.push(keyspace.info(), EntryKind::Delete, key.as_ref(), &[]);
        self
    }

    /// Adds a [`Keyspace::single_delete`].
    pub fn single_delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Batch {
        self.prepared.push(keyspace.info(), EntryKind::SingleDelete, key.as_ref(), &[]);
        self
    }

    /// Adds a merge: see [`Keyspace::merge`]. An operand that the keyspace's operator cannot read
    /// makes writing the batch fail.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut Batch {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        match keyspace.info().ttl_ms() {
            0 => match keyspace.info().check_operand(operand) {
                Ok(()) => self.prepared.push(keyspace.info(), EntryKind::Merge, key, operand),
                Err(error) => self.prepared.refuse(error),
            },
            ttl_ms => self.push_operand(keyspace, key, operand, keyspace.end_of(ttl_ms)),
        }
        self
    }

    /// Adds a [`Keyspace::merge_ttl`]; the time to live begins now, and the batch is to be written
    /// within a quarter of an hour.
    pub fn merge_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut Batch {
        self.push_operand(keyspace, key.as_ref(), operand.as_ref(), keyspace.end_of(ttl_ms(ttl)));
        self
    }

    /// Adds a [`Keyspace::merge_until_with`].
    pub fn merge_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        expires_ms: u64,
    ) -> &mut Batch {
        self.push_operand(keyspace, key.as_ref(), operand.as_ref(), keyspace.check_end(expires_ms));
        self
    }

    fn push_operand(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8], end: Result<u64>) {
        match keyspace.expiring_operand(operand, end) {
            Ok(stored) => self.prepared.push(keyspace.info(), EntryKind::ExpiringMerge, key, &stored),
            Err(error) => self.prepared.refuse(error),
        }
    }

    /// Adds a condition: the batch takes effect only if it holds before its first write. All
    /// conditions are judged at one moment. [`crate::Db::write_if`] writes such a batch, and says
    /// what was found. At most 4,096 conditions, whose keys and bytes are together at most 96 MiB.
    pub fn require(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        condition: Condition,
    ) -> &mut Batch {
        self.requirements.push(keyspace.info(), key.as_ref(), condition);
        self
    }

    /// Adds a [`Keyspace::delete_range`]. A range without a key, and keys of more than 4 MiB in all
    /// range deletes of the batch, make writing it fail with `Invalid`.
    pub fn delete_range(
        &mut self,
        keyspace: &Keyspace,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> &mut Batch {
        self.prepared.push(keyspace.info(), EntryKind::RangeDelete, from.as_ref(), to.as_ref());
        self
    }

    /// Whether one more put of such a key and value stays within what a batch may hold (96 MiB, and
    /// 192 MiB in memory, where a short entry takes some hundred bytes). An empty batch has room
    /// for any key and value that are within their own limits.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db, orders: &tombolo::Keyspace, all: Vec<(Vec<u8>, Vec<u8>)>) -> tombolo::Result<()> {
    /// let mut batch = tombolo::Batch::new();
    /// for (key, value) in &all {
    ///     if !batch.has_room(key, value) {
    ///         db.write(std::mem::take(&mut batch)).wait()?;
    ///     }
    ///     batch.put(orders, key, value);
    /// }
    /// db.write(batch).wait()
    /// # }
    /// ```
    pub fn has_room(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> bool {
        self.prepared.has_room(key.as_ref().len(), value.as_ref().len())
    }

    /// Number of writes in it.
    pub fn len(&self) -> usize {
        self.prepared.batch.count() as usize
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.prepared.batch.is_empty()
    }

    /// Bytes of its encoding, which is what the log gets.
    pub fn bytes(&self) -> usize {
        self.prepared.batch.payload_bytes()
    }
}
