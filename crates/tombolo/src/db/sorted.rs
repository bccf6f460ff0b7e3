//! Batches whose entries are sorted already.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::TaskClass;
use tombolo_format::expiry::join_expiring;
use tombolo_format::key::EntryKind;
use tombolo_format::operands::OperandList;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::{Blocking, Db, Keyspace, engine_of};
use crate::engine::Engine;
use crate::op::Op;
use crate::outside::{Published, Sorted};

/// A batch of any size whose entries come in the order of their keys, keyspace by keyspace or
/// mixed: an operator's state that spills, say. A large batch becomes tables without a log, a
/// memtable and a compaction of its own; a batch of less than 1 MiB, or a quarter of a memtable, is
/// written as a [`Batch`](crate::Batch) is.
///
/// Nothing is seen of it before [`SortedBatch::publish`], and all of it at once after that, in all
/// keyspaces. It lies over every write that was acknowledged before, and under all that come after.
/// Dropped, it leaves nothing. About 1 MiB of entries are held in memory, and of each table that is
/// open a block, a piece of output and the index. Of at most 16: where entries of more keyspaces
/// than that come mixed, their tables are small, of about 16 KiB, for which a quarter of a memtable
/// is held in memory at most. A batch has up to 65,536 tables.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::{Db, KeyspaceOptions};
///
/// let db = Db::builder("mem://spill").open().wait()?;
/// let (orders, totals) = (db.default_keyspace(), db.create_keyspace("totals", KeyspaceOptions::default()).wait()?);
/// let mut batch = db.sorted_batch();
/// for number in 0..1000_u32 {
///     batch.put(&orders, number.to_be_bytes(), b"an order").wait()?;
/// }
/// batch.put(&totals, "orders", b"1000").wait()?;
/// let published = batch.publish().wait()?;
/// assert_eq!((published.entries, published.tables), (1001, 0), "small: it went through the log");
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is written before SortedBatch::publish"]
pub struct SortedBatch {
    engine: Arc<Engine>,
    /// `None` while output is handed to the store, and after that has failed.
    sorted: Arc<Mutex<Option<Sorted>>>,
}

impl fmt::Debug for SortedBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SortedBatch").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl SortedBatch {
    /// The next entry of a keyspace: `key` has this value.
    ///
    /// Most often it is there at once; now and then output is handed to the store, and the next
    /// entry has to wait for it.
    ///
    /// # Errors
    /// `Invalid` when the key is not greater than the one before of its keyspace, beyond a limit,
    /// or when the keyspace is of another database, or of another stream than the first entry's:
    /// nothing was added. `Busy` while
    /// the one before is not there. Those of the store, and `Invalid` of too many tables: the batch
    /// is lost, begin again.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op<()> {
        let value = value.as_ref();
        match keyspace.info().ttl_ms() {
            0 => self.add(keyspace, EntryKind::Put, key.as_ref(), value),
            ttl_ms => match keyspace.end_of(ttl_ms) {
                Ok(end) => {
                    self.add(keyspace, EntryKind::ExpiringPut, key.as_ref(), &join_expiring(value, end))
                }
                Err(error) => Op::ready(Err(error)),
            },
        }
    }

    /// The next entry of a keyspace: these operands, oldest first, are merged into what it has for
    /// `key`, by its operator.
    ///
    /// # Errors
    /// As [`SortedBatch::put`]; `Invalid` without an operand, for a keyspace without an operator,
    /// and for one whose operands end.
    pub fn merge<O: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operands: impl IntoIterator<Item = O>,
    ) -> Op<()> {
        if keyspace.info().ttl_ms() != 0 {
            let message = format!("operands of keyspace {:?}, whose values end", keyspace.name());
            let error = Error::new(ErrorKind::Invalid, message);
            return Op::ready(Err(error.advice("write them with a Batch")));
        }
        let operands: Vec<O> = operands.into_iter().collect();
        let checked = operands.iter().try_for_each(|operand| keyspace.info().check_operand(operand.as_ref()));
        match (checked, &operands[..]) {
            (Err(error), _) => Op::ready(Err(error)),
            (Ok(()), []) => {
                let error = Error::new(ErrorKind::Invalid, "a merge without an operand");
                Op::ready(Err(error.advice("give one at least, or leave the key out")))
            }
            (Ok(()), [operand]) => self.add(keyspace, EntryKind::Merge, key.as_ref(), operand.as_ref()),
            (Ok(()), operands) => {
                let mut list = OperandList::default();
                operands.iter().for_each(|operand| list.push(operand.as_ref()));
                self.add(keyspace, EntryKind::MergeList, key.as_ref(), &list.finish())
            }
        }
    }

    /// The next entry of a keyspace: `key` has no value any more.
    ///
    /// # Errors
    /// As [`SortedBatch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<()> {
        self.add(keyspace, EntryKind::Delete, key.as_ref(), b"")
    }

    /// Its entries so far; 0 while output is handed to the store.
    pub fn entries(&self) -> u64 {
        self.sorted.lock().as_ref().map_or(0, Sorted::entries)
    }

    /// Makes all of it part of the database, durably and at once, or nothing.
    ///
    /// A large one costs what its tables take, a manifest record and one log append, and the
    /// memtable is flushed soon after; a small one costs a write.
    ///
    /// # Errors
    /// Those of a write, and of the store; `NotFound` for a keyspace that was dropped. Nothing was
    /// published then, after `OutcomeUnknown` and `Fenced` perhaps all of it.
    pub fn publish(self) -> Op<Published> {
        let Some(sorted) = self.sorted.lock().take() else { return Op::ready(Err(busy())) };
        let env = self.engine.env.clone();
        Op::start(&env, TaskClass::Foreground, "publish a batch", async move { sorted.publish().await })
    }

    fn add(&mut self, keyspace: &Keyspace, kind: EntryKind, key: &[u8], value: &[u8]) -> Op<()> {
        // One guard for all of it: the entry before may give the batch back at any moment.
        let mut held = self.sorted.lock();
        let Some(sorted) = held.as_mut() else { return Op::ready(Err(busy())) };
        if !Arc::ptr_eq(&keyspace.handle().engine, &self.engine) {
            let main = self.engine.main_engine();
            let of = (sorted.entries() > 0).then_some(&self.engine);
            match engine_of(&main, keyspace, of) {
                // Nothing was added yet: its stream is that of the first entry.
                Ok(engine) => {
                    *sorted = Sorted::new(&engine);
                    self.engine = engine;
                }
                Err(error) => return Op::ready(Err(error)),
            }
        }
        match sorted.add(keyspace.info(), kind, key, value) {
            Ok(false) => return Op::ready(Ok(())),
            Ok(true) => {}
            Err(error) => return Op::ready(Err(error)),
        }
        let Some(mut sorted) = held.take() else { return Op::ready(Err(busy())) };
        let place = Arc::clone(&self.sorted);
        drop(held);
        Op::start(&self.engine.env, TaskClass::Foreground, "write a sorted batch", async move {
            sorted.work().await?;
            *place.lock() = Some(sorted);
            Ok(())
        })
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, "output of the batch is being handed to the store, or that has failed")
        .advice("wait for each entry before the next; begin the batch again after an error")
}

impl Db {
    /// A batch for entries that come sorted, which may be larger than memory: see [`SortedBatch`].
    pub fn sorted_batch(&self) -> SortedBatch {
        let engine = Arc::clone(self.engine());
        let sorted = Arc::new(Mutex::new(Some(Sorted::new(&engine))));
        SortedBatch { engine, sorted }
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`SortedBatch::publish`].
    pub fn publish(&self, batch: SortedBatch) -> Result<Published> {
        batch.publish().wait()
    }
}
