//! An ordered map of its own in a database.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_format::expiry::{OperandTimes, join_expiring, join_operand};
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_storage::Result;

use crate::db::prefix::prefix_range;
use crate::db::snapshot::Moment;
use crate::db::{BlockingKeyspace, Cursor, Handle, Scan, Snapshot};
use crate::deadline::{self, Limit};
use crate::engine::{CompactionRequest, Engine, Kept, KeyspaceInfo, View, unix_ms};
use crate::lifecycle::{self, RangeSize};
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions, ttl_ms};
use crate::read::{self, Asked, InMemory, Judged};
use crate::table::KeyRange;
use crate::value::{Value, aligned, read_aligned};
use crate::write;

/// An ordered map in a database. Cheap to clone.
#[derive(Clone)]
pub struct Keyspace {
    handle: Arc<Handle>,
    info: Arc<KeyspaceInfo>,
    limit: Limit,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Its number in the database; never used again.
    pub fn id(&self) -> u32 {
        self.info.id
    }

    /// Its settings.
    pub fn options(&self) -> KeyspaceOptions {
        KeyspaceOptions::clone(&self.info.options())
    }

    /// A handle of which every verb ends within `limit` of its call, at the latest with
    /// `DeadlineExceeded`; so does every move of its cursors and scans, and what snapshots read
    /// through it. Costs nothing that memory answers.
    ///
    /// A read that is too late is given up, and its requests with it, unless others wait for the
    /// same. They carry the deadline to the store, so that nothing is asked that would come too
    /// late. A write that is too late may still take effect, as the log goes on with it.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// use std::time::Duration;
    ///
    /// let soon = orders.within(Duration::from_millis(50));
    /// match soon.get("order 7").wait() {
    ///     Err(error) if error.kind() == tombolo::ErrorKind::DeadlineExceeded => println!("not now: {error}"),
    ///     value => println!("{:?}", value?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, limit: Duration) -> Keyspace {
        Keyspace { limit: Limit(Some(limit)), ..self.clone() }
    }

    /// The same keyspace, whose verbs wait.
    pub fn blocking(&self) -> BlockingKeyspace {
        BlockingKeyspace::new(self.clone())
    }

    /// Changes settings of the keyspace: all of them, or none when one is wrong. Tables made from
    /// here on follow them, also after the database is opened again; those that exist stay as they
    /// are until compaction writes them anew. One manifest record, and a flush before it when the
    /// keyspace is so new that the manifest does not know it. See [`KeyspaceOptions::SETTINGS`] for
    /// their names.
    ///
    /// # Errors
    /// `Invalid` for an unknown name or a value out of range: nothing has changed then. `NotFound`
    /// when the keyspace was dropped; those of [`crate::Db::flush`].
    pub fn set_options<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Op<()> {
        let settings: Vec<_> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let checked = self.options().with(&settings).map(drop);
        if let Err(error) =
            checked.and_then(|()| self.engine().check_writable()).and_then(|()| self.info.check())
        {
            return Op::ready(Err(error));
        }
        let (engine, info) = (Arc::clone(self.engine()), Arc::clone(&self.info));
        Op::start(&self.engine().env, TaskClass::Foreground, "set options", async move {
            lifecycle::set_keyspace_options(&engine, &info, &settings).await
        })
    }

    /// Stores `value` under `key`; durable when the operation ends. One log append; the sync is
    /// shared with other writes.
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
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> Op<()> {
        match self.info.ttl_ms() {
            0 => self.write_one(EntryKind::Put, key.as_ref(), value.as_ref(), durability),
            ttl_ms => self.write_expiring(key.as_ref(), value.as_ref(), self.end_of(ttl_ms), durability),
        }
    }

    /// Stores `value` under `key` for `ttl`, by the database's own time; durable when the operation
    /// ends. The key has no value then, and its bytes go an hour later, with a compaction. The
    /// keyspace's own [`KeyspaceOptions::ttl`] does not count.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let db = tombolo::Db::builder("mem://sessions").open().wait()?;
    /// let sessions = db.default_keyspace();
    /// sessions.put_ttl("token", "of a user", Duration::from_secs(600)).wait()?;
    /// assert!(sessions.get("token").wait()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` for less than a millisecond, or an end beyond all time;
    /// `Unsupported` when an older version made the keyspace.
    pub fn put_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Op<()> {
        self.put_ttl_with(key, value, ttl, Durability::Durable)
    }

    /// As [`Keyspace::put_ttl`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::put_ttl`].
    pub fn put_ttl_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
        durability: Durability,
    ) -> Op<()> {
        self.write_expiring(key.as_ref(), value.as_ref(), self.end_of(ttl_ms(ttl)), durability)
    }

    /// As [`Keyspace::put_ttl_with`], until a moment of the database's time, in milliseconds since
    /// the Unix epoch ([`crate::Db::time_ms`]).
    ///
    /// # Errors
    /// As [`Keyspace::put_ttl`]; `Invalid` for a moment that has passed.
    pub fn put_until_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_ms: u64,
        durability: Durability,
    ) -> Op<()> {
        self.write_expiring(key.as_ref(), value.as_ref(), self.check_end(expires_ms), durability)
    }

    /// Removes `key`; durable when the operation ends. Removing a missing key succeeds.
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
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Op<()> {
        self.write_one(EntryKind::Delete, key.as_ref(), &[], durability)
    }

    /// Removes all keys from `from` on and before `to`; durable when the operation ends. One log
    /// append, however many keys there are. Reads and scans go past what it removed; compaction
    /// takes it away, whole tables unread.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// orders.delete_range("2025-", "2026-").wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` when `to` does not come after `from`; `Unsupported` when an
    /// older version made the keyspace.
    pub fn delete_range(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Op<()> {
        self.delete_range_with(from, to, Durability::Durable)
    }

    /// As [`Keyspace::delete_range`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`].
    pub fn delete_range_with(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Op<()> {
        self.write_one(EntryKind::RangeDelete, from.as_ref(), to.as_ref(), durability)
    }

    /// Removes `key`, of which the caller says that it was put once since it was last removed. It
    /// reads as [`Keyspace::delete`] does, also where that is wrong: no older value comes back.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Unsupported` when an older version made the keyspace.
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Op<()> {
        self.single_delete_with(key, Durability::Durable)
    }

    /// As [`Keyspace::single_delete`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::single_delete`].
    pub fn single_delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Op<()> {
        self.write_one(EntryKind::SingleDelete, key.as_ref(), &[], durability)
    }

    /// Merges `operand` into the value of `key`, by the keyspace's operator
    /// ([`KeyspaceOptions::operator`]); durable when the operation ends. Costs as a put: the value
    /// is not read. Operands are folded later, by flushes, compactions and reads.
    ///
    /// ```
    /// use tombolo::{Db, KeyspaceOptions, OperatorName};
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let db = Db::builder("mem://counts").open().wait()?;
    /// let operator = Some(OperatorName::parse("add_u64")?);
    /// let counts = db.create_keyspace("counts", KeyspaceOptions { operator, ..Default::default() }).wait()?;
    /// counts.merge(b"visits", 2_u64.to_le_bytes()).wait()?;
    /// counts.merge(b"visits", 3_u64.to_le_bytes()).wait()?;
    /// assert_eq!(counts.get(b"visits").wait()?.as_deref(), Some(&5_u64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` when the keyspace names no operator, or its operator cannot
    /// read the operand; `Unsupported` when the database was opened without its operator.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Op<()> {
        self.merge_with(key, operand, Durability::Durable)
    }

    /// As [`Keyspace::merge`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Op<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        match self.info.ttl_ms() {
            0 => match self.info.check_operand(operand) {
                Ok(()) => self.write_one(EntryKind::Merge, key, operand, durability),
                Err(error) => Op::ready(Err(error)),
            },
            ttl_ms => self.merge_expiring(key, operand, self.end_of(ttl_ms), durability),
        }
    }

    /// As [`Keyspace::merge`], and the key has no value after `ttl`, by the database's own time: it
    /// ends with all operands and values below. An operand over something that has ended lies over
    /// nothing. In a keyspace with a [`KeyspaceOptions::ttl`], [`Keyspace::merge`] does the same.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tombolo::{Db, KeyspaceOptions, OperatorName};
    ///
    /// # fn main() -> tombolo::Result<()> {
    /// let db = Db::builder("mem://visits").open().wait()?;
    /// let operator = Some(OperatorName::parse("add_u64")?);
    /// let visits = db.create_keyspace("visits", KeyspaceOptions { operator, ..Default::default() }).wait()?;
    /// visits.merge_ttl(b"home", 1_u64.to_le_bytes(), Duration::from_secs(600)).wait()?;
    /// assert!(visits.get(b"home").wait()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::merge`]; as [`Keyspace::put_ttl`].
    pub fn merge_ttl(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>, ttl: Duration) -> Op<()> {
        self.merge_ttl_with(key, operand, ttl, Durability::Durable)
    }

    /// As [`Keyspace::merge_ttl`], with the durability said.
    ///
    /// # Errors
    /// As [`Keyspace::merge_ttl`].
    pub fn merge_ttl_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        ttl: Duration,
        durability: Durability,
    ) -> Op<()> {
        self.merge_expiring(key.as_ref(), operand.as_ref(), self.end_of(ttl_ms(ttl)), durability)
    }

    /// As [`Keyspace::merge_ttl_with`], until a moment as in [`Keyspace::put_until_with`].
    ///
    /// # Errors
    /// As [`Keyspace::merge_ttl`]; `Invalid` for a moment that has passed.
    pub fn merge_until_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        expires_ms: u64,
        durability: Durability,
    ) -> Op<()> {
        self.merge_expiring(key.as_ref(), operand.as_ref(), self.check_end(expires_ms), durability)
    }

    /// The value of `key`. Ready at once when memory holds the answer; else one ranged request per
    /// table that may hold the key.
    ///
    /// # Errors
    /// `Corrupt` with object and offset; those of the object store; `Closed`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        self.get_at(Moment::NOW, key.as_ref())
    }

    /// Gives the value of `key` to `read` without copying it. `read` runs on the thread that takes
    /// the result.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_with<R: Send + 'static>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R + Send + 'static,
    ) -> Op<Option<R>> {
        self.get_with_at(Moment::NOW, key.as_ref(), read)
    }

    /// As [`Keyspace::get`], and the answer is known not to be stale: the epoch is verified at the
    /// log after the read began.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Fenced` when another process has taken over.
    pub fn get_confirmed(&self, key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        Op::limited(self.limit, &self.engine().env, "confirmed get", || {
            let read = self.get(key);
            let engine = Arc::clone(self.engine());
            Op::start_read(&self.engine().env, "confirmed get", async move {
                let value = read.await?;
                lifecycle::confirm(&engine).await?;
                Ok(value)
            })
        })
    }

    /// The values of several keys, in their order, all at one moment. Keys that lie near each other
    /// share what they need in memory; of blocks not in memory, those of one table come with one
    /// request, for a thousand keys at a time.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Op<Vec<Option<Value>>> {
        self.multi_get_at(Moment::NOW, keys)
    }

    /// The entries of the keys in `range`, at one moment, in order. It holds memory and tables
    /// until it is dropped. Tables that have no key in the range are not touched.
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
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        Scan::new(self.cursor_at(None, range))
    }

    /// As [`Keyspace::scan`], of all keys that begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        Scan::new(self.cursor_at(None, prefix_range(prefix.as_ref())))
    }

    /// A cursor over the keys in `range`, at one moment; it starts before the first. It lends its
    /// entries and moves freely.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Cursor {
        self.cursor_at(None, range)
    }

    /// Flushes, then merges the tables that hold keys of `range` down to the last level: all that
    /// was written before the call, however much is written meanwhile. Whole tables take part, and
    /// all of level 0. Reclaims the space of what was deleted or overwritten.
    ///
    /// # Errors
    /// As [`crate::Db::compact`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable().and_then(|()| self.info.check()) {
            return Op::ready(Err(error));
        }
        // Tables are taken whole, so that an excluded bound may be taken as an included one.
        let key = |bound: Bound<&K>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(Bytes::copy_from_slice(key.as_ref())),
            Bound::Unbounded => None,
        };
        let request = CompactionRequest::new(self.info.id, key(range.start_bound()), key(range.end_bound()));
        let last = write::seal(&engine);
        let env = engine.env.clone();
        let start = || {
            Op::start(&env, TaskClass::Background, "wait for compaction", async move {
                deadline::waits_for(format_args!("a flush"));
                lifecycle::flushed(&engine, last).await?;
                deadline::waits_for(format_args!("the compaction, which goes on"));
                lifecycle::compacted(&engine, vec![request]).await
            })
        };
        Op::limited(self.limit, &env, "compaction", start)
    }

    /// About how much the keys in `range` take, without reading them: from the indexes of tables,
    /// right to about two blocks for each table that the range cuts, and by counting entries in
    /// memory. At most two requests for each of those tables.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// let size = orders.approximate_size("2026-01".."2026-02").wait()?;
    /// println!("about {} entries in {} bytes", size.table_entries + size.memory_entries, size.table_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Op<RangeSize> {
        let engine = Arc::clone(self.engine());
        let (view, keyspace, env) =
            (Kept::new(&engine, engine.view_owned()), self.info.id, engine.env.clone());
        if let Err(error) = read::check(&engine, &self.info) {
            return Op::ready(Err(error));
        }
        let owned = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (lower, upper) = (owned(range.start_bound()), owned(range.end_bound()));
        let start = || {
            Op::start_read(&env, "approximate size", async move {
                lifecycle::range_size(
                    &engine,
                    &view,
                    keyspace,
                    lower.as_ref().map(Vec::as_slice),
                    upper.as_ref().map(Vec::as_slice),
                )
                .await
            })
        };
        Op::limited(self.limit, &env, "approximate size", start)
    }

    pub(crate) fn new(handle: Arc<Handle>, info: Arc<KeyspaceInfo>, limit: Limit) -> Keyspace {
        Keyspace { handle, info, limit }
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    pub(crate) fn info(&self) -> &Arc<KeyspaceInfo> {
        &self.info
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    fn asked<'a>(&'a self, sequence: SequenceNumber, judged: Judged<'a>) -> Asked<'a> {
        Asked { keyspace: &self.info, sequence, judged }
    }

    /// When a value ends that is put now and lives so long.
    pub(crate) fn end_of(&self, ttl_ms: u64) -> Result<u64> {
        let engine = self.engine();
        engine.time.end_of(ttl_ms, unix_ms(&engine.env))
    }

    /// A moment at which a value may end.
    pub(crate) fn check_end(&self, expires_ms: u64) -> Result<u64> {
        let engine = self.engine();
        engine.time.check_end(expires_ms, unix_ms(&engine.env)).map(|()| expires_ms)
    }

    fn write_expiring(&self, key: &[u8], value: &[u8], end: Result<u64>, durability: Durability) -> Op<()> {
        let end = match end {
            Ok(end) => end,
            Err(error) => return Op::ready(Err(error)),
        };
        self.write_one(EntryKind::ExpiringPut, key, &join_expiring(value, end), durability)
    }

    fn merge_expiring(&self, key: &[u8], operand: &[u8], end: Result<u64>, durability: Durability) -> Op<()> {
        match self.expiring_operand(operand, end) {
            Ok(stored) => self.write_one(EntryKind::ExpiringMerge, key, &stored, durability),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// What an operand stores that is written now.
    pub(crate) fn expiring_operand(&self, operand: &[u8], end: Result<u64>) -> Result<Vec<u8>> {
        self.info.check_operand(operand)?;
        let expires_ms = end?;
        let engine = self.engine();
        let written_ms = engine.time.now(unix_ms(&engine.env));
        Ok(join_operand(operand, OperandTimes { written_ms, expires_ms }))
    }

    #[inline]
    fn write_one(&self, kind: EntryKind, key: &[u8], value: &[u8], durability: Durability) -> Op<()> {
        let write = || {
            Op::limited(self.limit, &self.engine().env, "write", || {
                write::write_one(self.engine(), &self.info, kind, key, value, durability)
            })
        };
        if self.engine().recording.is_on() {
            return self.recorded_one(kind, key, value, write, |()| true);
        }
        write()
    }

    pub(crate) fn get_at(&self, moment: Moment<'_>, key: &[u8]) -> Op<Option<Value>> {
        if self.engine().recording.is_on() {
            return self.recorded_get(key, || self.get_at_unrecorded(moment, key), |value| value.len());
        }
        self.get_at_unrecorded(moment, key)
    }

    #[inline]
    fn get_at_unrecorded(&self, moment: Moment<'_>, key: &[u8]) -> Op<Option<Value>> {
        let engine = self.engine();
        let now;
        let view = match moment.view {
            Some(view) => view,
            None => {
                now = engine.view();
                &now
            }
        };
        if let Err(error) = read::check(engine, &self.info) {
            return Op::ready(Err(error));
        }
        let alignment = self.info.value_alignment();
        let sequence = moment.sequence.unwrap_or_else(|| engine.stream.visible());
        let now = || engine.judged_ms();
        let judged = moment.judged_ms.map_or(Judged::Now(&now), Judged::At);
        match read::get_value_in_memory(view, self.asked(sequence, judged), key) {
            Err(error) => Op::ready(Err(error)),
            Ok(InMemory::Answer(value)) => Op::ready(Ok(value.map(|value| aligned(value, alignment)))),
            Ok(InMemory::Miss) => Op::limited(self.limit, &engine.env, "get", || {
                let work = self.miss(Arc::clone(view), sequence, judged.ms(), key);
                Op::read(&engine.env, engine.is_near(), "get", work)
            }),
        }
    }

    /// The rest of a read that memory could not answer.
    fn miss(
        &self,
        view: Arc<View>,
        sequence: SequenceNumber,
        judged_ms: u64,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Value>>> + Send + 'static {
        let key = Bytes::copy_from_slice(key);
        let keyspace = Arc::clone(&self.info);
        let engine = Arc::clone(self.engine());
        let view = Kept::new(&engine, view);
        let alignment = self.info.value_alignment();
        async move {
            let asked = Asked { keyspace: &keyspace, sequence, judged: Judged::At(judged_ms) };
            let value = read::get_from_tables(&engine, &view, asked, &key).await?;
            Ok(value.map(|value| aligned(value, alignment)))
        }
    }

    pub(crate) fn get_with_at<R: Send + 'static>(
        &self,
        moment: Moment<'_>,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R + Send + 'static,
    ) -> Op<Option<R>> {
        if self.engine().recording.is_on() {
            let bytes = Arc::new(AtomicUsize::new(0));
            let of_value = Arc::clone(&bytes);
            let read = move |value: &[u8]| {
                of_value.store(value.len(), Ordering::Relaxed);
                read(value)
            };
            let read = || self.get_with_at_unrecorded(moment, key, read);
            return self.recorded_get(key, read, move |_| bytes.load(Ordering::Relaxed));
        }
        self.get_with_at_unrecorded(moment, key, read)
    }

    #[inline]
    fn get_with_at_unrecorded<R: Send + 'static>(
        &self,
        moment: Moment<'_>,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R + Send + 'static,
    ) -> Op<Option<R>> {
        let engine = self.engine();
        let now;
        let view = match moment.view {
            Some(view) => view,
            None => {
                now = engine.view();
                &now
            }
        };
        if let Err(error) = read::check(engine, &self.info) {
            return Op::ready(Err(error));
        }
        let sequence = moment.sequence.unwrap_or_else(|| engine.stream.visible());
        let alignment = self.info.value_alignment();
        let mut read = Some(move |value: &[u8]| read_aligned(value, alignment, read));
        let now = || engine.judged_ms();
        let judged = moment.judged_ms.map_or(Judged::Now(&now), Judged::At);
        match read::get_in_memory(view, self.asked(sequence, judged), key, &mut read) {
            Err(error) => Op::ready(Err(error)),
            Ok(InMemory::Answer(answer)) => Op::ready(Ok(answer)),
            Ok(InMemory::Miss) => {
                let work = self.miss(Arc::clone(view), sequence, judged.ms(), key);
                let then = move |value: Option<Value>| value.and_then(|value| read.map(|read| read(&value)));
                Op::limited(self.limit, &engine.env, "get", || {
                    Op::read_with(&engine.env, engine.is_near(), "get", work, then)
                })
            }
        }
    }

    /// As [`Keyspace::get_with`], waiting here, so that `read` may borrow.
    pub(crate) fn get_with_here<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        if self.engine().recording.is_on() {
            let with_size = |value: &[u8]| (value.len(), read(value));
            let here = || self.get_with_here_unrecorded(key, with_size);
            return Ok(self.recorded_here(key, here, |(bytes, _)| *bytes)?.map(|(_, given)| given));
        }
        self.get_with_here_unrecorded(key, read)
    }

    #[inline]
    fn get_with_here_unrecorded<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let engine = self.engine();
        let view = engine.view();
        read::check(engine, &self.info)?;
        let sequence = engine.stream.visible();
        let alignment = self.info.value_alignment();
        let mut read = Some(move |value: &[u8]| read_aligned(value, alignment, read));
        let now = || engine.judged_ms();
        match read::get_in_memory(&view, self.asked(sequence, Judged::Now(&now)), key, &mut read)? {
            InMemory::Answer(answer) => Ok(answer),
            InMemory::Miss => {
                let view = Kept::new(engine, Arc::clone(&view));
                let value = self.miss_here(&view, sequence, key)?;
                Ok(value.and_then(|value| read.map(|read| read(&value))))
            }
        }
    }

    /// As [`Keyspace::get`], waiting here: a miss needs no hand-off.
    pub(crate) fn get_here(&self, key: &[u8]) -> Result<Option<Value>> {
        if self.engine().recording.is_on() {
            return self.recorded_here(key, || self.get_here_unrecorded(key), |value| value.len());
        }
        self.get_here_unrecorded(key)
    }

    #[inline]
    fn get_here_unrecorded(&self, key: &[u8]) -> Result<Option<Value>> {
        let engine = self.engine();
        let view = engine.view();
        read::check(engine, &self.info)?;
        let sequence = engine.stream.visible();
        let now = || engine.judged_ms();
        let value = match read::get_value_in_memory(&view, self.asked(sequence, Judged::Now(&now)), key)? {
            InMemory::Answer(value) => value,
            InMemory::Miss => {
                let view = Kept::new(engine, Arc::clone(&view));
                self.miss_here(&view, sequence, key)?
            }
        };
        Ok(value.map(|value| aligned(value, self.info.value_alignment())))
    }

    /// The rest of a read that memory could not answer, waiting here.
    fn miss_here(&self, view: &View, sequence: SequenceNumber, key: &[u8]) -> Result<Option<Bytes>> {
        let engine = self.engine();
        let asked = self.asked(sequence, Judged::At(engine.judged_ms()));
        self.wait_here("get", read::get_from_tables(engine, view, asked, key))
    }

    /// Waits for a read on the calling thread, up to the deadline of this handle.
    fn wait_here<T: Send>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let env = &self.engine().env;
        match self.limit.scope(env, what) {
            Some(scope) => env.block_on(scope.until(env, work)),
            None => env.block_on(work),
        }
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        moment: Moment<'_>,
        keys: &[K],
    ) -> Op<Vec<Option<Value>>> {
        if self.engine().recording.is_on() {
            return self.recorded_several_later(keys, || self.multi_get_at_unrecorded(moment, keys));
        }
        self.multi_get_at_unrecorded(moment, keys)
    }

    #[inline]
    fn multi_get_at_unrecorded<K: AsRef<[u8]>>(
        &self,
        moment: Moment<'_>,
        keys: &[K],
    ) -> Op<Vec<Option<Value>>> {
        let mut looked = match self.look_up_several(moment, keys) {
            Err(error) => return Op::ready(Err(error)),
            Ok(looked) if looked.missing.is_empty() => return Op::ready(Ok(looked.values)),
            Ok(looked) => looked,
        };
        let engine = self.engine();
        let (keyspace, alignment) = (Arc::clone(&self.info), self.info.value_alignment());
        let (env, is_near) = (engine.env.clone(), engine.is_near());
        let (engine, view) = (Arc::clone(engine), Kept::new(engine, looked.view));
        let start = || {
            Op::read(&env, is_near, "multi-get", async move {
                let judged = Judged::At(looked.judged_ms);
                let asked = Asked { keyspace: &keyspace, sequence: looked.sequence, judged };
                let found = read::get_several_from_tables(&engine, &view, asked, &looked.missing).await?;
                put_values(&mut looked.values, found, alignment);
                Ok(looked.values)
            })
        };
        Op::limited(self.limit, &env, "multi-get", start)
    }

    /// As [`Keyspace::multi_get`], waiting here: what misses needs no hand-off.
    pub(crate) fn multi_get_here<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        if self.engine().recording.is_on() {
            return self.recorded_several(keys, || self.multi_get_here_unrecorded(keys));
        }
        self.multi_get_here_unrecorded(keys)
    }

    #[inline]
    fn multi_get_here_unrecorded<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut looked = self.look_up_several(Moment::NOW, keys)?;
        if !looked.missing.is_empty() {
            let engine = self.engine();
            let view = Kept::new(engine, looked.view);
            let asked = self.asked(looked.sequence, Judged::At(looked.judged_ms));
            let work = read::get_several_from_tables(engine, &view, asked, &looked.missing);
            put_values(&mut looked.values, self.wait_here("multi-get", work)?, self.info.value_alignment());
        }
        Ok(looked.values)
    }

    /// Looks several keys up in memory.
    fn look_up_several<K: AsRef<[u8]>>(&self, moment: Moment<'_>, keys: &[K]) -> Result<LookedUp> {
        let engine = self.engine();
        let view = moment.view.map_or_else(|| engine.view_owned(), Arc::clone);
        read::check(engine, &self.info)?;
        let sequence = moment.sequence.unwrap_or_else(|| engine.stream.visible());
        let judged_ms = moment.judged_ms.unwrap_or_else(|| engine.judged_ms());
        let asked = self.asked(sequence, Judged::At(judged_ms));
        let found = read::get_several_in_memory(&view, asked, keys)?;
        let alignment = self.info.value_alignment();
        let values =
            found.values.into_iter().map(|value| value.map(|value| aligned(value, alignment))).collect();
        let missing = found
            .missing
            .into_iter()
            .map(|index| (index, Bytes::copy_from_slice(keys[index].as_ref())))
            .collect();
        Ok(LookedUp { view, sequence, judged_ms, values, missing })
    }

    pub(crate) fn cursor_at<K: AsRef<[u8]>>(
        &self,
        snapshot: Option<Snapshot>,
        range: impl RangeBounds<K>,
    ) -> Cursor {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let range = KeyRange { lower: owned(range.start_bound()), upper: owned(range.end_bound()) };
        Cursor::open(self, snapshot, range)
    }
}

/// What memory answered of a multi-get.
struct LookedUp {
    view: Arc<View>,
    sequence: SequenceNumber,
    judged_ms: u64,
    /// In the order of the keys; `None` for missing ones, too.
    values: Vec<Option<Value>>,
    /// The keys that tables must be asked for, with their numbers, ascending.
    missing: Vec<(usize, Bytes)>,
}

fn put_values(values: &mut [Option<Value>], found: Vec<(usize, Option<Bytes>)>, alignment: usize) {
    for (index, value) in found {
        values[index] = value.map(|value| aligned(value, alignment));
    }
}
