//! Transactions: reads and writes of several keys as if nobody else were there.
//!
//! They are Tombolo's: of one state, which the first of their verbs takes, or `set_snapshot` when
//! they begin. Those of a `rocksdb_transactiondb_t` lock what they write and read for update; those
//! of a `rocksdb_optimistictransactiondb_t` find out when they commit.

use std::ffi::{c_char, c_uchar};
use std::ops::Bound;
use std::ptr::null_mut;

use tombolo::{
    ErrorKind, Keyspace, Op, Result, Savepoint, Snapshot, Transaction, TransactionCursor, TransactionOptions,
    Value,
};
use tombolo_c::boundary::{copy_bytes, handle_mut, invalid};
use tombolo_c::cursor::Entries;
use tombolo_c::{bytes, give};

use crate::door::{check_arrays, unsupported};
use crate::handles::{Database, Family, PinnableSlice, SnapshotHandle, given};
use crate::iterator::IteratorHandle;
use crate::options::ReadOptions;
use crate::reading::{Arrays, copied};
use crate::{guarded, place};

/// How often a snapshot is taken anew until the transaction begins at the same state.
const SNAPSHOTS_MAX: usize = 16;

/// How far a transaction is.
enum Stage {
    /// It has taken no state yet.
    Fresh,
    Running(Transaction),
    /// It waits for its decision, under its name.
    Prepared,
    /// It has ended without an effect, because it could not commit: it may be rolled back still.
    Failed,
    Ended,
}

/// A transaction that has begun. One thread uses it at a time.
pub struct TransactionHandle {
    database: Database,
    options: TransactionOptions,
    stage: Stage,
    savepoints: Vec<Savepoint>,
    /// What `set_snapshot` took, which a program may read by.
    snapshot: Option<SnapshotHandle>,
    name: Vec<u8>,
}

impl TransactionHandle {
    pub(crate) fn begin(
        database: &Database,
        options: TransactionOptions,
        is_fixed: bool,
    ) -> TransactionHandle {
        let mut begun = TransactionHandle {
            database: database.clone(),
            options,
            stage: Stage::Fresh,
            savepoints: Vec::new(),
            snapshot: None,
            name: Vec::new(),
        };
        if is_fixed {
            begun.fix();
        }
        begun
    }

    /// One that was prepared before, under this name.
    pub(crate) fn prepared(database: &Database, name: Vec<u8>) -> TransactionHandle {
        let mut begun = TransactionHandle::begin(database, TransactionOptions::default(), false);
        (begun.stage, begun.name) = (Stage::Prepared, name);
        begun
    }

    /// Takes a snapshot, and begins at the same state.
    fn fix(&mut self) {
        for _ in 0..SNAPSHOTS_MAX {
            let snapshot = self.database.db.snapshot();
            let transaction = self.database.db.transaction_with(self.options.clone());
            let is_same = snapshot.sequence() == transaction.sequence();
            self.snapshot = Some(SnapshotHandle(snapshot));
            self.stage = Stage::Running(transaction);
            if is_same {
                return;
            }
        }
    }

    fn running(&mut self) -> Result<&Transaction> {
        if matches!(self.stage, Stage::Fresh) {
            self.stage = Stage::Running(self.database.db.transaction_with(self.options.clone()));
        }
        match &self.stage {
            Stage::Running(transaction) => Ok(transaction),
            _ => Err(invalid("the transaction has ended")),
        }
    }

    /// The transaction, and the keyspace of a column family.
    fn at(&mut self, family: Option<&Family>) -> Result<(&Transaction, Keyspace)> {
        let keyspace = self.database.family(family).keyspace().clone();
        Ok((self.running()?, keyspace))
    }

    fn end(&mut self) -> Stage {
        self.savepoints.clear();
        std::mem::replace(&mut self.stage, Stage::Ended)
    }

    fn commit(&mut self) -> Result<()> {
        match self.end() {
            // It has done nothing.
            Stage::Fresh => Ok(()),
            Stage::Running(transaction) => {
                transaction.commit().wait().map(drop).inspect_err(|_| self.stage = Stage::Failed)
            }
            Stage::Prepared => self.decide(true),
            Stage::Failed | Stage::Ended => Err(invalid("the transaction has ended")),
        }
    }

    /// Without a decision its locks are held still: the caller may try again.
    fn decide(&mut self, commits: bool) -> Result<()> {
        let decided = self.database.db.decide(&self.name, commits).wait();
        decided.inspect_err(|_| self.stage = Stage::Prepared)
    }

    fn roll_back(&mut self) -> Result<()> {
        match self.end() {
            Stage::Fresh | Stage::Failed => Ok(()),
            Stage::Running(transaction) => {
                transaction.roll_back();
                Ok(())
            }
            Stage::Prepared => self.decide(false),
            Stage::Ended => Err(invalid("the transaction has ended")),
        }
    }
}

/// Whether a transaction can read as options say: its own state is the only one that it reads.
fn check(transaction: &Transaction, options: Option<&ReadOptions>) -> Result<()> {
    let Some(options) = options else { return Ok(()) };
    options.check()?;
    match &options.snapshot {
        Some(snapshot) if Snapshot::sequence(snapshot) != transaction.sequence() => {
            Err(unsupported("a transaction reads its own state, and this snapshot is of another").advice(
                "set the snapshot with rocksdb_transaction_options_set_set_snapshot, and begin again when a \
                lock has moved the transaction on",
            ))
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Purpose {
    Look,
    Update,
}

fn read(
    transaction: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: &[u8],
    purpose: Purpose,
) -> Result<Option<Value>> {
    let (transaction, keyspace) = handle_mut(transaction, "transaction")?.at(family)?;
    check(transaction, options)?;
    match purpose {
        Purpose::Look => transaction.get(&keyspace, key).wait(),
        Purpose::Update => transaction.get_for_update(&keyspace, key).wait(),
    }
}

fn write(
    transaction: Option<&mut TransactionHandle>,
    family: Option<&Family>,
    start: impl FnOnce(&Transaction, &Keyspace) -> Result<Op<()>>,
) -> Result<()> {
    let (transaction, keyspace) = handle_mut(transaction, "transaction")?.at(family)?;
    start(transaction, &keyspace)?.wait()
}

fn multi_get(
    mut transaction: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    arrays: &Arrays,
    families: Option<*const *const Family>,
    purpose: Purpose,
) -> Result<()> {
    arrays.check()?;
    check_arrays(arrays.count, &[families.is_some_and(<*const *const Family>::is_null)])?;
    arrays.each(|index, key| {
        let family = match families {
            None => None,
            Some(families) => {
                let family = place!(families, index);
                // SAFETY: null, or a column family of this library, which outlives the call.
                given(unsafe { family.as_ref() })?
            }
        };
        read(transaction.as_deref_mut(), options, family, key, purpose)
    });
    Ok(())
}

/// Names it, for its preparation. A name that was prepared under is known for a day, and is not
/// used again meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_set_name(
    txn: Option<&mut TransactionHandle>,
    name: *const c_char,
    name_len: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let (transaction, name) = (handle_mut(txn, "transaction")?, bytes!(name, name_len)?);
        if name.is_empty() || !transaction.name.is_empty() {
            return Err(invalid("a transaction is named once, and not by nothing"));
        }
        name.clone_into(&mut transaction.name);
        Ok(())
    });
}

/// Its name, to be freed, with its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_name(
    txn: Option<&TransactionHandle>,
    name_len: *mut usize,
) -> *mut c_char {
    let name = txn.map_or(&[][..], |transaction| &transaction.name);
    give!(name_len, name.len());
    copy_bytes(name)
}

/// Makes it durable under its name, without an effect yet. Its locks are held, also after a crash,
/// until it is committed or rolled back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_prepare(
    txn: Option<&mut TransactionHandle>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let handle = handle_mut(txn, "transaction")?;
        if handle.name.is_empty() {
            return Err(invalid("a transaction is named before it is prepared"));
        }
        handle.running()?;
        if let Stage::Running(transaction) = handle.end() {
            let prepared = transaction.prepare(&handle.name).wait().map(drop);
            let may_be = |error: &tombolo::Error| error.kind() == ErrorKind::OutcomeUnknown;
            let is_one = prepared.as_ref().err().is_none_or(may_be);
            handle.stage = if is_one { Stage::Prepared } else { Stage::Failed };
            prepared?;
        }
        Ok(())
    });
}

/// All of its writes take effect, or none. `Resource busy` says that somebody else was there:
/// nothing was written, and it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_commit(
    txn: Option<&mut TransactionHandle>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || handle_mut(txn, "transaction")?.commit());
}

/// Undoes it, and ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_rollback(
    txn: Option<&mut TransactionHandle>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || handle_mut(txn, "transaction")?.roll_back());
}

/// Sets a savepoint, on top of those that are set. One that cannot be set, of a transaction that
/// has ended, is missing when it is rolled back to.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_set_savepoint(txn: Option<&mut TransactionHandle>) {
    guarded!(null_mut(), (), || {
        let transaction = handle_mut(txn, "transaction")?;
        let savepoint = transaction.running()?.savepoint()?;
        transaction.savepoints.push(savepoint);
        Ok(())
    });
}

/// Undoes all writes since the newest savepoint, and takes that away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_rollback_to_savepoint(
    txn: Option<&mut TransactionHandle>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let transaction = handle_mut(txn, "transaction")?;
        let missing = || tombolo::Error::new(ErrorKind::NotFound, "no savepoint is set");
        let savepoint = transaction.savepoints.pop().ok_or_else(missing)?;
        transaction.running()?.roll_back_to(savepoint)
    });
}

/// Rolls it back if it has not ended, and lets go of it. What was prepared stays so.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_destroy(txn: Option<Box<TransactionHandle>>) {
    drop(txn);
}

/// The snapshot that `set_snapshot` took, for read options of this transaction; null without. It is
/// freed with `rocksdb_free`, and used as long as the transaction is there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_get_snapshot(txn: Option<&TransactionHandle>) -> *const SnapshotHandle {
    let Some(own) = txn.and_then(|transaction| transaction.snapshot.as_ref()) else { return null_mut() };
    // SAFETY: the bytes of a handle that lives as long as the transaction. The copy owns nothing:
    // it is lent by shared reference only, and `free` drops nothing.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *own).cast::<u8>(), size_of_val(own)) };
    copy_bytes(bytes).cast_const().cast()
}

fn iterator(
    transaction: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    family: Result<Option<&Family>>,
) -> Option<Box<IteratorHandle>> {
    guarded!(null_mut(), None, || {
        let default = ReadOptions::default();
        let options = options.unwrap_or(&default);
        let made = family.and_then(|family| cursor(transaction, options, family));
        Ok(Some(IteratorHandle::boxed(made.map(|cursor| Entries::OfTransaction(Box::new(cursor))), false)))
    })
}

fn cursor(
    transaction: Option<&mut TransactionHandle>,
    options: &ReadOptions,
    family: Option<&Family>,
) -> Result<TransactionCursor> {
    let (transaction, keyspace) = handle_mut(transaction, "transaction")?.at(family)?;
    options.check_iterator()?;
    check(transaction, Some(options))?;
    let lower = options.lower.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let upper = options.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(transaction.cursor::<&[u8]>(&keyspace, (lower, upper)))
}

/// An iterator over what the transaction sees: its writes until now, and those since once it is
/// refreshed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_create_iterator(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
) -> Option<Box<IteratorHandle>> {
    iterator(txn, options, Ok(None))
}

/// As `rocksdb_transaction_create_iterator`, over a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_create_iterator_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
) -> Option<Box<IteratorHandle>> {
    iterator(txn, options, given(column_family))
}

/// The value of a key as the transaction sees it, to be freed; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    klen: usize,
    vlen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vlen, 0);
    guarded!(errptr, null_mut(), || Ok(copied(
        read(txn, options, None, bytes!(key, klen)?, Purpose::Look)?,
        vlen
    )))
}

/// The value of a key of a column family as the transaction sees it, to be freed; null when there
/// is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    vlen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vlen, 0);
    guarded!(errptr, null_mut(), || Ok(copied(
        read(txn, options, given(column_family)?, bytes!(key, klen)?, Purpose::Look)?,
        vlen
    )))
}

/// The value of a key as the transaction sees it, not copied; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_pinned(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    klen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        let value = read(txn, options, None, bytes!(key, klen)?, Purpose::Look)?;
        Ok(value.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// The value of a key of a column family as the transaction sees it, not copied; null when there is
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_pinned_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        let value = read(txn, options, given(column_family)?, bytes!(key, klen)?, Purpose::Look)?;
        Ok(value.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// As `rocksdb_transaction_get`; the key counts as written. Whether it is `exclusive` makes no
/// difference: every lock is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_for_update(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    klen: usize,
    vlen: *mut usize,
    _exclusive: c_uchar,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vlen, 0);
    guarded!(errptr, null_mut(), || Ok(copied(
        read(txn, options, None, bytes!(key, klen)?, Purpose::Update)?,
        vlen
    )))
}

/// As `rocksdb_transaction_get`, of a column family; the key counts as written. Whether it is
/// `exclusive` makes no difference: every lock is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_for_update_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    vlen: *mut usize,
    _exclusive: c_uchar,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vlen, 0);
    guarded!(errptr, null_mut(), || Ok(copied(
        read(txn, options, given(column_family)?, bytes!(key, klen)?, Purpose::Update)?,
        vlen
    )))
}

/// As `rocksdb_transaction_get`; the key counts as written. Whether it is `exclusive` makes no
/// difference: every lock is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_pinned_for_update(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    klen: usize,
    _exclusive: c_uchar,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        let value = read(txn, options, None, bytes!(key, klen)?, Purpose::Update)?;
        Ok(value.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// As `rocksdb_transaction_get`, of a column family; the key counts as written. Whether it is
/// `exclusive` makes no difference: every lock is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_get_pinned_for_update_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    _exclusive: c_uchar,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        let value = read(txn, options, given(column_family)?, bytes!(key, klen)?, Purpose::Update)?;
        Ok(value.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// The values of several keys as the transaction sees them; each value and
/// each error is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_multi_get(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    let families = None;
    guarded!(null_mut(), (), || { multi_get(txn, options, &arrays, families, Purpose::Look) });
}

/// The values of several keys, each of its column family, as the transaction sees them; each value
/// and each error is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_multi_get_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_families: *const *const Family,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    let families = Some(column_families);
    guarded!(null_mut(), (), || { multi_get(txn, options, &arrays, families, Purpose::Look) });
}

/// The values of several keys as the transaction sees them, which count as written; each value and
/// each error is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_multi_get_for_update(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    let families = None;
    guarded!(null_mut(), (), || { multi_get(txn, options, &arrays, families, Purpose::Update) });
}

/// The values of several keys, each of its column family, as the transaction sees them, which count
/// as written; each value and each error is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_multi_get_for_update_cf(
    txn: Option<&mut TransactionHandle>,
    options: Option<&ReadOptions>,
    column_families: *const *const Family,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    let families = Some(column_families);
    guarded!(null_mut(), (), || { multi_get(txn, options, &arrays, families, Purpose::Update) });
}

/// Stores a value under a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_put(
    txn: Option<&mut TransactionHandle>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, None, |transaction, keyspace| {
            Ok(transaction.put(keyspace, bytes!(key, klen)?, bytes!(val, vlen)?))
        })
    });
}

/// Stores a value under a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_put_cf(
    txn: Option<&mut TransactionHandle>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.put(keyspace, bytes!(key, klen)?, bytes!(val, vlen)?))
        })
    });
}

/// Merges an operand into the value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_merge(
    txn: Option<&mut TransactionHandle>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, None, |transaction, keyspace| {
            Ok(transaction.merge(keyspace, bytes!(key, klen)?, bytes!(val, vlen)?))
        })
    });
}

/// Merges an operand into the value of a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_merge_cf(
    txn: Option<&mut TransactionHandle>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.merge(keyspace, bytes!(key, klen)?, bytes!(val, vlen)?))
        })
    });
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_delete(
    txn: Option<&mut TransactionHandle>,
    key: *const c_char,
    klen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, None, |transaction, keyspace| Ok(transaction.delete(keyspace, bytes!(key, klen)?)))
    });
}

/// Removes a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transaction_delete_cf(
    txn: Option<&mut TransactionHandle>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.delete(keyspace, bytes!(key, klen)?))
        })
    });
}
