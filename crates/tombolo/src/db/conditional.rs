//! Writes that take effect only if something holds, and reads that say which version they found.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::expiry::join_expiring;
use tombolo_format::key::EntryKind;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::condition::{Condition, Decision, Versioned};
use crate::db::snapshot::Moment;
use crate::db::{Batch, Blocking, BlockingKeyspace, Db, Keyspace, Snapshot};
use crate::engine::Kept;
use crate::op::Op;
use crate::options::Durability;
use crate::read::{self, Asked, InMemory, Judged, Version};
use crate::value::aligned;
use crate::write::{self, Conditional, Prepared, Requirements};

impl Keyspace {
    /// The value of `key` with the number of the write that made it, for
    /// [`Condition::Unchanged`]. Costs what [`Keyspace::get`] does.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Op<Option<Versioned>> {
        self.get_versioned_at(Moment::NOW, key.as_ref())
    }

    /// Stores `value` under `key` if `condition` holds of it; durable when the operation ends. The
    /// answer says what was found, whether or not it holds. One read of the key, then one log
    /// append. A condition that does not hold costs a sync if the log is not durable yet, and a
    /// request that verifies the epoch at the log.
    ///
    /// ```no_run
    /// # fn f(locks: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// use tombolo::Condition;
    ///
    /// let decision = locks.put_if("print queue", "host 7", Condition::Absent).wait()?;
    /// match &decision.found[0] {
    ///     None => println!("ours"),
    ///     Some(holder) => println!("{:?} has it since write {}", holder.value, holder.sequence),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`] and [`Keyspace::get`]; `Conflict` when the key was written again
    /// whenever it was read: nothing was written.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Op<Decision> {
        self.put_if_with(key, value, condition, Durability::Durable)
    }

    /// As [`Keyspace::put_if`], with the durability said. Of a condition that does not hold, only a
    /// durable write waits until what was found is durable.
    ///
    /// # Errors
    /// As [`Keyspace::put_if`].
    pub fn put_if_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
        durability: Durability,
    ) -> Op<Decision> {
        self.write_if(EntryKind::Put, key.as_ref(), value.as_ref(), condition, durability)
    }

    /// Removes `key` if `condition` holds of it: as [`Keyspace::put_if`].
    ///
    /// # Errors
    /// As [`Keyspace::put_if`].
    pub fn delete_if(&self, key: impl AsRef<[u8]>, condition: Condition) -> Op<Decision> {
        self.delete_if_with(key, condition, Durability::Durable)
    }

    /// As [`Keyspace::delete_if`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::put_if`].
    pub fn delete_if_with(
        &self,
        key: impl AsRef<[u8]>,
        condition: Condition,
        durability: Durability,
    ) -> Op<Decision> {
        self.write_if(EntryKind::Delete, key.as_ref(), &[], condition, durability)
    }

    fn write_if(
        &self,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        durability: Durability,
    ) -> Op<Decision> {
        let (mut prepared, mut requirements) = (Prepared::default(), Requirements::default());
        match (kind, self.info().ttl_ms()) {
            (EntryKind::Put, ttl_ms @ 1..) => match self.end_of(ttl_ms) {
                Ok(end) => {
                    prepared.push(self.info(), EntryKind::ExpiringPut, key, &join_expiring(value, end));
                }
                Err(error) => return Op::ready(Err(error)),
            },
            _ => prepared.push(self.info(), kind, key, value),
        }
        requirements.push(self.info(), key, condition);
        let engine = &self.handle().engine;
        let conditional = Conditional { prepared, requirements, durability };
        if engine.recording.is_on() {
            let write = || write::write_if(engine, conditional, self.limit());
            return self.recorded_one(kind, key, value, write, Decision::is_met);
        }
        write::write_if(engine, conditional, self.limit())
    }

    pub(crate) fn get_versioned_at(&self, moment: Moment<'_>, key: &[u8]) -> Op<Option<Versioned>> {
        if self.handle().engine.recording.is_on() {
            let read = || self.get_versioned_at_unrecorded(moment, key);
            return self.recorded_get(key, read, |found| found.value.len());
        }
        self.get_versioned_at_unrecorded(moment, key)
    }

    fn get_versioned_at_unrecorded(&self, moment: Moment<'_>, key: &[u8]) -> Op<Option<Versioned>> {
        let engine = &self.handle().engine;
        let view = moment.view.map_or_else(|| engine.view_owned(), Arc::clone);
        if let Err(error) = read::check(engine, self.info()) {
            return Op::ready(Err(error));
        }
        let sequence = moment.sequence.unwrap_or_else(|| engine.stream.visible());
        let judged_ms = moment.judged_ms.unwrap_or_else(|| engine.judged_ms());
        let (keyspace, alignment) = (Arc::clone(self.info()), self.info().value_alignment());
        let keep = move |version: Version| Versioned {
            value: aligned(version.value, alignment),
            sequence: version.sequence.0,
        };
        let asked = Asked { keyspace: &keyspace, sequence, judged: Judged::At(judged_ms) };
        match read::get_version_in_memory(&view, asked, key) {
            Err(error) => Op::ready(Err(error)),
            Ok(InMemory::Answer(found)) => Op::ready(Ok(found.map(keep))),
            Ok(InMemory::Miss) => {
                let (engine, key) = (Arc::clone(engine), Bytes::copy_from_slice(key));
                let (view, env) = (Kept::new(&engine, view), engine.env.clone());
                Op::limited(self.limit(), &env, "get", || {
                    Op::start_read(&env, "get", async move {
                        let keys = [(&*keyspace, &key[..])];
                        let found = read::get_versions(&engine, &view, &keys, (sequence, judged_ms)).await?;
                        Ok(found.into_iter().next().flatten().map(keep))
                    })
                })
            }
        }
    }
}

impl Snapshot {
    /// As [`Keyspace::get_versioned`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_versioned(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<Option<Versioned>> {
        match self.of(keyspace) {
            Ok(here) => keyspace.get_versioned_at(here.moment(), key.as_ref()),
            Err(error) => Op::ready(Err(error)),
        }
    }
}

impl Db {
    /// Applies a batch, whole or not at all, if all its conditions hold ([`Batch::require`]). It is
    /// durable when the operation ends. The answer says what was found for each condition. A batch
    /// of conditions alone writes nothing, and says whether they hold at one moment.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db, accounts: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// use tombolo::{Batch, Condition};
    ///
    /// let (mine, yours) = (accounts.get_versioned("mine").wait()?, accounts.get_versioned("yours").wait()?);
    /// let mut batch = Batch::new();
    /// batch.require(accounts, "mine", Condition::unchanged(mine.as_ref()));
    /// batch.require(accounts, "yours", Condition::unchanged(yours.as_ref()));
    /// batch.put(accounts, "mine", "4").put(accounts, "yours", "6");
    /// if !db.write_if(batch).wait()?.is_met() {
    ///     println!("somebody was faster: read both again");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put_if`]; `Invalid` for a batch without conditions.
    pub fn write_if(&self, batch: Batch) -> Op<Decision> {
        self.write_if_with(batch, Durability::Durable)
    }

    /// As [`Db::write_if`], with the durability said.
    ///
    /// # Errors
    /// As [`Db::write_if`].
    pub fn write_if_with(&self, batch: Batch, durability: Durability) -> Op<Decision> {
        if batch.requirements.is_empty() {
            let error = Error::new(ErrorKind::Invalid, "a batch without conditions");
            return Op::ready(Err(error.advice("write it with Db::write, or add Batch::require")));
        }
        let engine = match self.check_batch(&batch) {
            Ok(engine) => engine,
            Err(error) => return Op::ready(Err(error)),
        };
        let engine = engine.as_ref().unwrap_or(self.engine());
        let write = |Batch { prepared, requirements }: Batch| {
            write::write_if(engine, Conditional { prepared, requirements, durability }, self.limit)
        };
        if self.engine().recording.is_on() {
            return self.recorded_write(batch, write, Decision::is_met);
        }
        write(batch)
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`Db::write_if`].
    pub fn write_if(&self, batch: Batch) -> Result<Decision> {
        self.db().write_if(batch).wait()
    }

    /// As [`Db::write_if_with`].
    pub fn write_if_with(&self, batch: Batch, durability: Durability) -> Result<Decision> {
        self.db().write_if_with(batch, durability).wait()
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    /// As [`Keyspace::get_versioned`].
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Result<Option<Versioned>> {
        self.keyspace().get_versioned(key).wait()
    }

    /// As [`Keyspace::put_if`].
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<Decision> {
        self.keyspace().put_if(key, value, condition).wait()
    }

    /// As [`Keyspace::put_if_with`].
    pub fn put_if_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
        durability: Durability,
    ) -> Result<Decision> {
        self.keyspace().put_if_with(key, value, condition, durability).wait()
    }

    /// As [`Keyspace::delete_if`].
    pub fn delete_if(&self, key: impl AsRef<[u8]>, condition: Condition) -> Result<Decision> {
        self.keyspace().delete_if(key, condition).wait()
    }

    /// As [`Keyspace::delete_if_with`].
    pub fn delete_if_with(
        &self,
        key: impl AsRef<[u8]>,
        condition: Condition,
        durability: Durability,
    ) -> Result<Decision> {
        self.keyspace().delete_if_with(key, condition, durability).wait()
    }
}
