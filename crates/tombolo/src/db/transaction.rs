//! Transactions: several reads and writes as one.
//!
//! A transaction reads at a snapshot, through its own writes, which nobody else sees. Its commit
//! asks what memtables and tables know of versions since the snapshot, and writes one batch
//! ([`crate::write`]). A pessimistic one locks what it writes, too; where a lock comes late, it
//! moves its snapshot forward, after all that it has read was found unchanged.
//!
//! Invariants:
//! 1. Its snapshot is open from its begin to its end.
//! 2. All that it rests on is unchanged between the moment at which it was read and its snapshot.
//! 3. Once it has ended it holds no locks, and every verb of it answers with an error.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::expiry::join_expiring;
use tombolo_format::key::EntryKind;
use tombolo_format::manifest::MAIN_STREAM;
use tombolo_format::prepared::TransactionEnd;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::budget::{Category, Charge};
use crate::db::outcomes::push_outcome;
use crate::db::{Batch, Db, Handle, Keyspace, Snapshot, check_stream, several_streams};
use crate::deadline::Limit;
use crate::engine::{Engine, KeyspaceInfo, Transactions};
use crate::locks::{Asked, Span};
use crate::op::Op;
use crate::options::{Durability, Isolation, Locking, TransactionOptions, check_transaction_id, ttl_ms};
use crate::read::{self, Reach, Since, Touched};
use crate::table::KeyRange;
use crate::transaction::{Mark, Operation, Own, Reads, Writes, Written, below_ms, value_of};
use crate::value::{Value, aligned};
use crate::write::{self, Cost, Told, Transactional};

/// Memory is charged in pieces of this size.
const CHARGED_BYTES: u64 = 16 << 10;
/// How often a snapshot is moved before that ends with `Conflict`.
const MOVES_MAX: u32 = 16;
/// Entries that are looked at, of a range, before tables and memory are asked in the background.
const STEPS_MAX: usize = 1024;
/// How often [`Db::transact`] begins anew.
const ATTEMPTS_MAX: u32 = 64;

/// Several reads and writes as one: all of its writes take effect or none, and what it has read is
/// as if nobody else had been at work. Dropped, it is rolled back.
///
/// Reads see one state of the database, with the transaction's own writes over it. Expiry is judged
/// by the time of that state.
///
/// A transaction is of one [stream](crate::KeyspaceOptions::stream), that of the first keyspace
/// which it reads or writes; one of another is refused with `Invalid`.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// # let db = tombolo::Db::builder("mem://accounts").open().wait()?;
/// # let accounts = db.default_keyspace();
/// accounts.put("mine", "10").wait()?;
/// let transaction = db.transaction();
/// let mine = transaction.get_for_update(&accounts, "mine").wait()?;
/// assert_eq!(mine.unwrap(), b"10");
/// transaction.put(&accounts, "mine", "7").wait()?;
/// transaction.put(&accounts, "yours", "3").wait()?;
/// assert_eq!(transaction.get(&accounts, "yours").wait()?.unwrap(), b"3");
/// assert_eq!(accounts.get("yours").wait()?, None);
/// transaction.commit().wait()?;
/// # Ok(())
/// # }
/// ```
///
/// Verbs are operations, as those of a [`Keyspace`]. Of an optimistic transaction writes are ready
/// at once; of a pessimistic one they may wait for a lock. One that is not waited for may not be
/// part of the commit.
#[derive(Debug)]
pub struct Transaction {
    pub(super) shared: Arc<Shared>,
}

/// A place among the writes of a transaction: see [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: u64,
    number: usize,
    /// Which of those that had this number.
    life: u64,
}

/// What the handles and operations of a transaction share.
pub(super) struct Shared {
    /// The database's own.
    root: Arc<Handle>,
    /// That of its stream: of the first keyspace that it is about. Set under `state`.
    of: OnceLock<Arc<Handle>>,
    limit: Limit,
    options: TransactionOptions,
    number: u64,
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shared")
            .field("number", &self.number)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

pub(super) struct State {
    /// `None` once it has ended.
    snapshot: Option<Snapshot>,
    pub(super) writes: Writes,
    /// What it has read, where that counts.
    pub(super) reads: Reads,
    /// What it has read for update.
    must: Reads,
    savepoints: Vec<(u64, Mark)>,
    lives: u64,
    charge: Charge,
}

impl State {
    fn new(engine: &Engine, snapshot: Option<Snapshot>) -> State {
        State {
            snapshot,
            writes: Writes::default(),
            reads: Reads::default(),
            must: Reads::default(),
            savepoints: Vec::new(),
            lives: 0,
            charge: engine.budget().charge(Category::Queues, 0),
        }
    }

    /// Charges for what it holds, and `more` bytes.
    ///
    /// # Errors
    /// `Invalid` when it is larger than it may be; `Busy` when the memory budget has no room.
    pub(super) fn charge(&mut self, more: usize, bytes_max: u64) -> Result<()> {
        let held = self.writes.bytes() + self.reads.bytes() + self.must.bytes();
        let bytes = (held + more) as u64;
        if bytes > bytes_max {
            let message = format!("a transaction that takes {bytes} bytes in memory");
            return Err(Error::new(ErrorKind::Invalid, message)
                .expected(format!("at most {bytes_max} bytes, which is TransactionOptions::bytes_max"))
                .advice("read and write less in one transaction, or give it more memory"));
        }
        let wanted = bytes.next_multiple_of(CHARGED_BYTES);
        match wanted.checked_sub(self.charge.bytes()) {
            Some(0) => Ok(()),
            Some(more) => self.charge.try_grow(more),
            None => {
                self.charge.set(wanted);
                Ok(())
            }
        }
    }

    /// All that must be as it was for the snapshot to be moved.
    fn all(&self) -> Vec<Touched> {
        let mut all = self.writes.touched();
        all.extend(self.must.touched());
        if !is_enabled(Mutant::TransactionMovesWithoutReads) {
            all.extend(self.reads.touched());
        }
        all
    }

    /// Changes whenever [`State::all`] does.
    fn changes(&self) -> (u64, u64, usize) {
        (self.reads.changes, self.must.changes, self.writes.operations.len())
    }
}

/// What own writes say of a read.
enum Look {
    Here(Option<Value>),
    /// The value at the snapshot, under these writes.
    Below(Snapshot, Option<Arc<Vec<Written>>>),
}

#[cold]
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction has ended").advice("begin another one")
}

/// What follows an operation, at once where it is ready.
pub(super) fn then<T: Send + 'static, U: Send + 'static>(
    engine: &Engine,
    op: Op<T>,
    next: impl FnOnce(T) -> Op<U> + Send + 'static,
) -> Op<U> {
    match op.try_take() {
        Ok(Ok(value)) => next(value),
        Ok(Err(error)) => Op::ready(Err(error)),
        Err(op) => Op::start_read(&engine.env, "step of a transaction", async move { next(op.await?).await }),
    }
}

pub(super) fn span_of(touched: &Touched) -> Span {
    let Touched { keyspace, what } = touched;
    match what {
        Reach::Key(key) => Span::key(keyspace.id, &keyspace.name, key.clone()),
        Reach::Range(range) => Span::range(
            keyspace.id,
            &keyspace.name,
            range.lower.as_ref().map(Vec::as_slice),
            range.upper.as_ref().map(Vec::as_slice),
        ),
    }
}

impl Shared {
    /// That of its stream; of the main one before it has one.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.of.get().unwrap_or(&self.root).engine
    }

    /// The open transactions of the database, whatever their streams. Numbers are of these.
    fn transactions(&self) -> &Transactions {
        &self.root.engine.transactions
    }

    pub(super) fn options(&self) -> &TransactionOptions {
        &self.options
    }

    /// # Errors
    /// `Invalid` once it has ended; those of `work`.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.snapshot.is_none() {
            return Err(ended());
        }
        work(&mut state)
    }

    /// As [`Shared::with`], with the snapshot that it reads at and the most bytes that it may take.
    pub(super) fn with_snapshot<T>(
        &self,
        work: impl FnOnce(&Snapshot, &mut State, u64) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.state.lock();
        let Some(snapshot) = state.snapshot.clone() else { return Err(ended()) };
        work(&snapshot, &mut state, self.options.bytes_max)
    }

    /// The snapshot that it reads at.
    ///
    /// # Errors
    /// `Invalid` once it has ended.
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        self.state.lock().snapshot.clone().ok_or_else(ended)
    }

    /// # Errors
    /// `Invalid` for a keyspace of another database, or of another stream than the transaction's;
    /// `NotFound` for one that was dropped; those of its first one.
    pub(super) fn check(&self, keyspace: &Keyspace) -> Result<()> {
        let is_of_it = |of: &Arc<Handle>| Arc::ptr_eq(&keyspace.handle().engine, &of.engine);
        if !self.of.get().is_some_and(is_of_it) {
            self.begin_in(keyspace)?;
        }
        keyspace.info().check()
    }

    /// Its first keyspace says of which stream it is.
    ///
    /// # Errors
    /// `Invalid` when it has another stream already, and for a keyspace of another database;
    /// `Unsupported` for a stream beside the main one where the outcome is to be kept.
    #[cold]
    fn begin_in(&self, keyspace: &Keyspace) -> Result<()> {
        let handle = keyspace.handle();
        if !Arc::ptr_eq(&handle.root().engine, &self.root.engine) {
            let message =
                format!("keyspace {:?} is of another database than the transaction", keyspace.name());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut state = self.state.lock();
        let Some(snapshot) = state.snapshot.as_ref() else { return Err(ended()) };
        if let Some(of) = self.of.get().filter(|of| !Arc::ptr_eq(&of.engine, &handle.engine)) {
            return Err(several_streams("transaction", keyspace.info(), of.engine.stream_id()));
        }
        if self.options.id.is_some() {
            check_stream(keyspace.info(), "transactions whose outcome is kept under an id")?;
        }
        // What it saw of all streams from its begin on.
        let here = snapshot.of(keyspace)?;
        state.snapshot = Some(here);
        let _first = self.of.set(Arc::clone(handle));
        Ok(())
    }

    /// A snapshot of now, of its stream.
    fn fresh(&self) -> Result<Snapshot> {
        let fresh = Snapshot::new(Arc::clone(&self.root));
        self.of.get().map_or_else(|| Ok(fresh.clone()), |of| fresh.of_handle(of))
    }

    /// It has ended, and holds no locks any more.
    fn end_open(&self) {
        if let Some(of) = self.of.get() {
            of.engine.transactions.locks.release(self.number);
        }
        self.transactions().end(self.number);
    }

    fn look(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Look> {
        self.check(keyspace)?;
        let info = keyspace.info();
        let mut state = self.state.lock();
        let Some(snapshot) = state.snapshot.clone() else { return Err(ended()) };
        let own = match state.writes.index.is_empty() {
            true => Own::Nothing,
            false => state.writes.index.of(info.id, key),
        };
        let written = match own {
            Own::Absent => return Ok(Look::Here(None)),
            Own::Written(written, false) => {
                drop(state);
                return keep(info, key, &written, None).map(Look::Here);
            }
            Own::Written(written, true) => Some(written),
            Own::Nothing => None,
        };
        if self.options.keeps_reads() {
            state.reads.add_key(info, &Bytes::copy_from_slice(key));
            state.charge(0, self.options.bytes_max)?;
        }
        Ok(Look::Below(snapshot, written))
    }

    /// Takes a write.
    fn push(&self, operation: Operation) -> Result<()> {
        self.with(|state| {
            state.charge(operation.bytes(), self.options.bytes_max)?;
            state.writes.push(operation)
        })
    }

    /// Has the lock on all that is touched, and a snapshot no older than it; then goes on.
    fn locked<T: Send + 'static>(
        self: &Arc<Self>,
        touched: Touched,
        next: impl FnOnce(&Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Op<T> {
        if let Err(error) = self.snapshot() {
            return Op::ready(Err(error));
        }
        let engine = self.engine();
        let waiter = match engine.transactions.locks.ask(self.number, span_of(&touched)) {
            Err(error) => return Op::ready(Err(error)),
            Ok(Asked::Waits(waiter)) => Some(waiter),
            Ok(Asked::Held) => match self.is_unchanged(&touched) {
                Err(error) => return Op::ready(Err(error)),
                Ok(true) => return Op::ready(next(self)),
                Ok(false) => None,
            },
        };
        let (shared, env) = (Arc::clone(self), engine.env.clone());
        Op::limited(self.limit, &env.clone(), "lock", || {
            Op::start_read(&env.clone(), "lock", async move {
                if let Some(waiter) = waiter {
                    crate::deadline::waits_for(format_args!("a lock"));
                    waiter.wait(&env, shared.options.lock_wait).await?;
                    // The transaction ended in the meantime: its locks are given back again.
                    if shared.snapshot().is_err() {
                        shared.engine().transactions.locks.release_unprepared(shared.number);
                        return Err(ended());
                    }
                }
                shared.move_for(&touched).await?;
                next(&shared)
            })
        })
    }

    /// Whether memory says that nothing touched is newer than the snapshot.
    fn is_unchanged(&self, touched: &Touched) -> Result<bool> {
        let seen = self.snapshot()?.number();
        let mut steps = STEPS_MAX;
        let since = read::changed_in_memory(&self.engine().view(), touched, seen, &mut steps)?;
        Ok(since == Since::Unchanged)
    }

    /// Moves the snapshot forward if `touched` has changed since, and nothing else that the
    /// transaction rests on.
    async fn move_for(&self, touched: &Touched) -> Result<()> {
        let engine = self.engine();
        for _ in 0..MOVES_MAX {
            let (old, all, changes) =
                self.with(|state| Ok((state.snapshot.clone(), state.all(), state.changes())))?;
            let Some(old) = old else { return Err(ended()) };
            let fresh = self.fresh()?;
            let view = engine.view_owned();
            let only = std::slice::from_ref(touched);
            if read::first_changed(engine, &view, only, old.number()).await?.is_none() {
                return Ok(());
            }
            if let Some((touched, changed)) = read::first_changed(engine, &view, &all, old.number()).await? {
                return Err(write::conflict(&touched, &changed, old.number()));
            }
            let is_moved = self.with(|state| {
                let is_same = state.snapshot.as_ref().is_some_and(|now| now.number() == old.number())
                    && state.changes() == changes;
                if is_same {
                    state.snapshot = Some(fresh);
                }
                Ok(is_same)
            })?;
            if is_moved {
                return Ok(());
            }
        }
        let message =
            format!("the transaction has read more whenever its snapshot was moved, {MOVES_MAX} times");
        Err(Error::new(ErrorKind::Conflict, message)
            .advice("roll back and try again, one verb after the other"))
    }

    /// Ends it, and gives what it was; `None`: it has ended before.
    fn end(&self) -> Option<(Snapshot, State)> {
        let mut state = self.state.lock();
        let snapshot = state.snapshot.take()?;
        Some((snapshot, std::mem::replace(&mut *state, State::new(self.engine(), None))))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.shared.end().is_some() {
            self.shared.end_open();
        }
    }
}

/// The value that own writes come to.
pub(super) fn keep(
    info: &Arc<KeyspaceInfo>,
    key: &[u8],
    written: &[Written],
    below: Option<Value>,
) -> Result<Option<Value>> {
    let value = value_of(info, key, written, below.map(Bytes::from))?;
    Ok(value.map(|value| aligned(value, info.value_alignment())))
}

impl Transaction {
    pub(super) fn begin(handle: &Arc<Handle>, limit: Limit, options: TransactionOptions) -> Transaction {
        let engine = &handle.engine;
        let number = engine.transactions.begin(engine.env.now());
        let state = State::new(engine, Some(Snapshot::new(Arc::clone(handle))));
        let (root, of, state) = (Arc::clone(handle), OnceLock::new(), Mutex::new(state));
        Transaction { shared: Arc::new(Shared { root, of, limit, options, number, state }) }
    }

    /// Its number, which messages about locks say. Every transaction of a process has another one.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    /// The newest sequence number that its reads see.
    pub fn sequence(&self) -> u64 {
        self.shared.state.lock().snapshot.as_ref().map_or(0, Snapshot::sequence)
    }

    fn engine(&self) -> &Arc<Engine> {
        self.shared.engine()
    }

    /// The value of `key`: of its own writes, or else of the state that it sees. As
    /// [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` for a keyspace of another database or of another stream than
    /// the transaction's, or when what it has read takes more memory than it may; `Unsupported` for
    /// a keyspace of a stream when it has an [id](TransactionOptions::id); `Busy` when the memory
    /// budget has no room for that.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        get(&self.shared, keyspace, key.as_ref())
    }

    /// As [`Transaction::get`], and its commit fails if others write the key in the meantime,
    /// whatever the isolation. A pessimistic transaction locks the key first, and then sees the
    /// newest value.
    ///
    /// # Errors
    /// As [`Transaction::get`]. Of a pessimistic transaction also: `DeadlineExceeded` when the lock
    /// did not come in time, with its holder; `Conflict` when waiting would be a deadlock, with the
    /// circle, or when something that it has read was changed meanwhile.
    pub fn get_for_update(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<Option<Value>> {
        if let Err(error) = self.shared.check(keyspace) {
            return Op::ready(Err(error));
        }
        let key = Bytes::copy_from_slice(key.as_ref());
        let (info, taken) = (Arc::clone(keyspace.info()), key.clone());
        let op = self.rest_on(
            Touched { keyspace: Arc::clone(&info), what: Reach::Key(key.clone()) },
            move |state| {
                state.must.add_key(&info, &taken);
            },
        );
        let (shared, keyspace) = (Arc::clone(&self.shared), keyspace.clone());
        then(self.engine(), op, move |()| get(&shared, &keyspace, &key))
    }

    /// From here on the commit fails if others write a key of the range, or have since the state
    /// that it sees. A pessimistic transaction locks the range, and others wait.
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub fn lock_range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Op<()> {
        if let Err(error) = self.shared.check(keyspace) {
            return Op::ready(Err(error));
        }
        let owned = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let range = KeyRange { lower: owned(range.start_bound()), upper: owned(range.end_bound()) };
        let info = Arc::clone(keyspace.info());
        let touched = Touched { keyspace: Arc::clone(&info), what: Reach::Range(Arc::new(range.clone())) };
        self.rest_on(touched, move |state| {
            state.must.add_range(&info, range);
        })
    }

    /// Notes what it rests on, with the lock where it takes locks.
    fn rest_on(&self, touched: Touched, note: impl FnOnce(&mut State) + Send + 'static) -> Op<()> {
        let add = |shared: &Arc<Shared>| {
            shared.with(|state| {
                note(state);
                state.charge(0, shared.options.bytes_max)
            })
        };
        match self.shared.options.locking {
            Locking::Optimistic => Op::ready(add(&self.shared)),
            Locking::Pessimistic => self.shared.locked(touched, add),
        }
    }

    /// The values of several keys, in their order: as [`Transaction::get`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Op<Vec<Option<Value>>> {
        let mut values = vec![None; keys.len()];
        let (mut below, mut places, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = None;
        for (number, key) in keys.iter().enumerate() {
            match self.shared.look(keyspace, key.as_ref()) {
                Err(error) => return Op::ready(Err(error)),
                Ok(Look::Here(value)) => values[number] = value,
                Ok(Look::Below(snapshot, Some(written))) if below_ms(&written).is_some() => {
                    alone.push((number, below_own(&self.shared, &snapshot, keyspace, key.as_ref(), written)));
                }
                Ok(Look::Below(snapshot, written)) => {
                    at = Some(snapshot);
                    below.push(Bytes::copy_from_slice(key.as_ref()));
                    places.push((number, written));
                }
            }
        }
        if at.is_none() && alone.is_empty() {
            return Op::ready(Ok(values));
        }
        let op = at.map_or_else(|| Op::ready(Ok(Vec::new())), |at| at.multi_get(keyspace, &below));
        let (info, engine) = (Arc::clone(keyspace.info()), Arc::clone(self.engine()));
        then(self.engine(), op, move |found| {
            for (((number, written), key), value) in places.into_iter().zip(&below).zip(found) {
                values[number] = match written {
                    None => value,
                    Some(written) => match keep(&info, key, &written, value) {
                        Ok(value) => value,
                        Err(error) => return Op::ready(Err(error)),
                    },
                };
            }
            if alone.is_empty() {
                return Op::ready(Ok(values));
            }
            Op::start_read(&engine.env, "reads of a transaction", async move {
                for (number, op) in alone {
                    values[number] = op.await?;
                }
                Ok(values)
            })
        })
    }

    /// Adds a put: as [`Batch::put`].
    ///
    /// # Errors
    /// `Invalid` beyond the limits of a batch, or of the transaction's memory; `Busy` when the
    /// memory budget has no room; of a pessimistic transaction those of its lock
    /// ([`Transaction::get_for_update`]).
    pub fn put(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op<()> {
        match keyspace.info().ttl_ms() {
            0 => self.write(keyspace, EntryKind::Put, key.as_ref(), value.as_ref()),
            ttl_ms => self.put_expiring(keyspace, key.as_ref(), value.as_ref(), keyspace.end_of(ttl_ms)),
        }
    }

    /// Adds a [`Keyspace::put_ttl`]; the time to live begins now.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Keyspace::put_ttl`].
    pub fn put_ttl(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Op<()> {
        self.put_expiring(keyspace, key.as_ref(), value.as_ref(), keyspace.end_of(ttl_ms(ttl)))
    }

    /// Adds a [`Keyspace::put_until_with`].
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Keyspace::put_until_with`].
    pub fn put_until(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_ms: u64,
    ) -> Op<()> {
        self.put_expiring(keyspace, key.as_ref(), value.as_ref(), keyspace.check_end(expires_ms))
    }

    fn put_expiring(&self, keyspace: &Keyspace, key: &[u8], value: &[u8], end: Result<u64>) -> Op<()> {
        match end {
            Ok(end) => self.write(keyspace, EntryKind::ExpiringPut, key, &join_expiring(value, end)),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<()> {
        self.write(keyspace, EntryKind::Delete, key.as_ref(), &[])
    }

    /// Adds a [`Keyspace::single_delete`].
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Keyspace::single_delete`].
    pub fn single_delete(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Op<()> {
        self.write(keyspace, EntryKind::SingleDelete, key.as_ref(), &[])
    }

    /// Adds a [`Keyspace::delete_range`]: it conflicts with others' writes of all keys in the
    /// range.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Keyspace::delete_range`].
    pub fn delete_range(&self, keyspace: &Keyspace, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Op<()> {
        self.write(keyspace, EntryKind::RangeDelete, from.as_ref(), to.as_ref())
    }

    pub(super) fn write(&self, keyspace: &Keyspace, kind: EntryKind, key: &[u8], value: &[u8]) -> Op<()> {
        // Before anything is locked for it.
        let checked =
            self.shared.check(keyspace).and_then(|()| Cost::of(keyspace.info(), kind, key, value).map(drop));
        if let Err(error) = checked {
            return Op::ready(Err(error));
        }
        let operation = Operation {
            keyspace: Arc::clone(keyspace.info()),
            kind,
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
        };
        match self.shared.options.locking {
            Locking::Optimistic => Op::ready(self.shared.push(operation)),
            Locking::Pessimistic => {
                let touched = operation.touched();
                self.shared.locked(touched, move |shared| shared.push(operation))
            }
        }
    }

    /// Remembers the writes so far, to go back to them: [`Transaction::roll_back_to`].
    ///
    /// # Errors
    /// `Invalid` once the transaction has ended.
    pub fn savepoint(&self) -> Result<Savepoint> {
        let transaction = self.shared.number;
        self.shared.with(|state| {
            let (number, life) = (state.savepoints.len(), state.lives);
            state.lives += 1;
            let mark = state.writes.mark();
            state.savepoints.push((life, mark));
            Ok(Savepoint { transaction, number, life })
        })
    }

    /// Takes back all writes since a savepoint, which stays; later savepoints end. Locks stay, and
    /// so does what it has read.
    ///
    /// # Errors
    /// `Invalid` for a savepoint that has ended, or is of another transaction.
    pub fn roll_back_to(&self, savepoint: Savepoint) -> Result<()> {
        self.shared.with(|state| {
            let known = state.savepoints.get(savepoint.number).filter(|(life, _)| *life == savepoint.life);
            let Some((_, mark)) = known.filter(|_| savepoint.transaction == self.shared.number) else {
                let message = "a savepoint that has ended, or is of another transaction";
                return Err(Error::new(ErrorKind::Invalid, message));
            };
            let mark = mark.clone();
            state.writes.go_back(&mark);
            state.savepoints.truncate(savepoint.number + 1);
            state.charge(0, u64::MAX)
        })
    }

    /// Number of writes in it.
    pub fn len(&self) -> usize {
        self.shared.state.lock().writes.operations.len()
    }

    /// Whether it has written nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes back all, and gives its locks to others. So does dropping it.
    pub fn roll_back(self) {}

    /// Makes its writes take effect, whole or not at all; durable when the operation ends, if its
    /// options say nothing else. Gives the sequence number of its last write; of a transaction that
    /// has written nothing, that of the state which it saw. One log append, and as a rule no
    /// request: what was written since is in memory.
    ///
    /// # Errors
    /// `Conflict` when something that it rests on was written by others, with the key: nothing was
    /// written. `OutcomeUnknown`, and `Fenced`, of which nobody knows whether it was committed: the
    /// next writer says it by its id ([`TransactionOptions::id`]). `AlreadyExists` when one of its
    /// id was committed before; those of [`Db::write`].
    pub fn commit(self) -> Op<u64> {
        let Some(id) = self.shared.options.id.clone() else { return self.commit_as(None) };
        if let Err(error) = check_transaction_id(&id) {
            return Op::ready(Err(error));
        }
        let db = self.db();
        let op = db.reserved();
        then(&Arc::clone(self.engine()), op, move |reserved| {
            let transaction = self;
            let check = transaction.outcome_is_free(&reserved, &id);
            then(&Arc::clone(transaction.engine()), check, move |()| {
                transaction.commit_as(Some((reserved, id)))
            })
        })
    }

    pub(super) fn db(&self) -> Db {
        Db { handle: Arc::clone(&self.shared.root), limit: self.shared.limit }
    }

    /// Commits; with the outcome under an id, if it is to be kept.
    fn commit_as(self, outcome: Option<(Keyspace, Vec<u8>)>) -> Op<u64> {
        let Some(state) = self.shared.end() else { return Op::ready(Err(ended())) };
        let engine = Arc::clone(self.engine());
        let number = self.shared.number;
        let (durability, limit) = (self.shared.options.durability, self.shared.limit);
        let mut parts = Parts::of(state, self.shared.options.isolation);
        if parts.writes.operations.is_empty() && outcome.is_none() {
            self.shared.end_open();
            self.shared.transactions().committed.fetch_add(1, Ordering::Relaxed);
            let seen = parts.snapshot.sequence();
            // What it has read is durable, as what a write rests on is.
            let is_asked = durability == Durability::Durable && !engine.is_read_only();
            let rests = if is_asked { write::sync(&engine) } else { Op::ready(engine.check_open()) };
            return then(&engine, rests, move |()| Op::ready(Ok(seen)));
        }
        let mut prepared = parts.writes.to_prepared();
        prepared.transaction = number;
        if let Some((reserved, id)) = outcome {
            parts.rests_on.push(push_outcome(&mut prepared, &reserved, &id, TransactionEnd::Committed));
        }
        let batch = Batch { prepared, ..Batch::default() };
        let recorder = engine.recording.is_on().then(|| self.db());
        let commit = move |Batch { prepared, .. }: Batch| {
            let ended = parts.ended(&engine, number, false);
            let transactional = Transactional {
                prepared,
                seen: parts.snapshot.number(),
                rests_on: parts.rests_on,
                durability,
                ended,
                prepares: None,
            };
            write::commit_transaction(&engine, transactional, limit)
        };
        match recorder {
            Some(db) => db.recorded_write(batch, commit, |_| true),
            None => commit(batch),
        }
    }

    /// # Errors
    /// `Unsupported` when it is of another stream than the main one, where records of prepared
    /// transactions lie.
    pub(super) fn check_preparable(&self) -> Result<()> {
        let stream = self.engine().stream_id();
        if stream == MAIN_STREAM {
            return Ok(());
        }
        let message = format!("a transaction of stream {stream} cannot be prepared");
        Err(Error::new(ErrorKind::Unsupported, message)
            .expected("a transaction of the database's own stream")
            .advice("commit it, or use keyspaces that were made without a stream"))
    }

    /// Ends it, to be prepared.
    pub(super) fn take(&self) -> Result<(u64, Parts)> {
        let state = self.shared.end().ok_or_else(ended)?;
        Ok((self.shared.number, Parts::of(state, self.shared.options.isolation)))
    }
}

/// The rest of a transaction that is to be committed.
pub(super) struct Parts {
    pub(super) snapshot: Snapshot,
    pub(super) writes: Writes,
    pub(super) rests_on: Vec<Touched>,
}

impl Parts {
    fn of(state: (Snapshot, State), isolation: Isolation) -> Parts {
        let (snapshot, State { writes, reads, must, .. }) = state;
        let mut rests_on = writes.touched();
        rests_on.extend(must.touched());
        if isolation == Isolation::Serializable && !is_enabled(Mutant::SerializableForgetsReads) {
            rests_on.extend(reads.touched());
        }
        Parts { snapshot, writes, rests_on }
    }

    /// To be called once the transaction's fate is known; it keeps the snapshot open until
    /// then. One that is prepared keeps its locks.
    pub(super) fn ended(&self, engine: &Arc<Engine>, number: u64, is_prepared: bool) -> Told {
        let (engine, snapshot) = (Arc::clone(engine), self.snapshot.clone());
        Box::new(move |fate| {
            let main = engine.main_engine();
            let transactions = &main.transactions;
            match fate {
                Ok(()) if is_prepared => {}
                Ok(()) => {
                    transactions.committed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    transactions.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            if is_prepared && fate.is_ok() {
                transactions.end_keeping_locks(number);
            } else {
                engine.transactions.locks.release(number);
                transactions.end(number);
            }
            drop(snapshot);
        })
    }
}

fn get(shared: &Arc<Shared>, keyspace: &Keyspace, key: &[u8]) -> Op<Option<Value>> {
    match shared.look(keyspace, key) {
        Err(error) => Op::ready(Err(error)),
        Ok(Look::Here(value)) => Op::ready(Ok(value)),
        Ok(Look::Below(snapshot, None)) => snapshot.get(keyspace, key),
        Ok(Look::Below(snapshot, Some(written))) => below_own(shared, &snapshot, keyspace, key, written),
    }
}

/// What own writes come to over the value at a snapshot.
fn below_own(
    shared: &Shared,
    snapshot: &Snapshot,
    keyspace: &Keyspace,
    key: &[u8],
    written: Arc<Vec<Written>>,
) -> Op<Option<Value>> {
    let (info, own) = (Arc::clone(keyspace.info()), Bytes::copy_from_slice(key));
    let op = match below_ms(&written) {
        Some(judged_ms) => snapshot.get_judged(keyspace, key, judged_ms),
        None => snapshot.get(keyspace, key),
    };
    then(shared.engine(), op, move |below| Op::ready(keep(&info, &own, &written, below)))
}

/// Whether a transaction that failed so may succeed when it is begun again.
fn may_succeed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict)
}

impl Db {
    /// Begins an optimistic transaction with snapshot isolation: see [`Transaction`]. Costs no
    /// request.
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::default())
    }

    /// Begins a transaction.
    pub fn transaction_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::begin(&self.handle, self.limit, options)
    }

    /// Runs `work` with a transaction, which it is to commit: what it does not commit is rolled
    /// back. Begins anew, up to 64 times and after a short pause that grows, when `work` ends with
    /// `Conflict`.
    ///
    /// ```no_run
    /// # async fn f(db: &tombolo::Db, counts: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// db.transact(Default::default(), |transaction| async move {
    ///     let visits = transaction.get_for_update(counts, "visits").await?;
    ///     let visits: u64 = visits.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap_or(0));
    ///     transaction.put(counts, "visits", (visits + 1).to_string()).await?;
    ///     transaction.commit().await
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn transact<T, F: Future<Output = Result<T>>>(
        &self,
        options: TransactionOptions,
        work: impl Fn(Transaction) -> F,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            let tried = work(self.transaction_with(options.clone())).await;
            attempt += 1;
            match tried {
                Err(error) if may_succeed(&error) && attempt < ATTEMPTS_MAX => {
                    self.engine().env.sleep(self.pause(attempt)).await;
                }
                tried => return tried,
            }
        }
    }

    /// The same, waiting here.
    pub(super) fn transact_here<T>(
        &self,
        options: &TransactionOptions,
        mut work: impl FnMut(Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 0;
        loop {
            let tried = work(self.transaction_with(options.clone()));
            attempt += 1;
            match tried {
                Err(error) if may_succeed(&error) && attempt < ATTEMPTS_MAX => {
                    let env = &self.engine().env;
                    env.block_on(env.sleep(self.pause(attempt)));
                }
                tried => return tried,
            }
        }
    }

    /// A pause by chance: of two that met, one is first the next time.
    fn pause(&self, attempt: u32) -> Duration {
        let most = 100_u64 << attempt.min(10);
        Duration::from_micros(self.engine().env.random_u64() % most)
    }
}
