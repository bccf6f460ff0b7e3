//! Databases of transactions: with locks, and optimistic.
//!
//! Both are databases as any other. Single writes of one with locks are small transactions, as
//! RocksDB's are, so that they wait for keys that others have locked.

use std::ffi::{c_char, c_int, c_uchar};
use std::ptr::null_mut;
use std::time::Duration;

use tombolo::{Keyspace, Locking, Op, Result, Transaction, TransactionOptions};
use tombolo_c::boundary::{copy_bytes, handle, handle_mut};
use tombolo_c::bytes;

use crate::accepted::FlushOptions;
use crate::batch::WriteBatch;
use crate::checkpoint::{CheckpointHandle, rocksdb_checkpoint_object_create};
use crate::database::{
    rocksdb_create_snapshot, rocksdb_flush, rocksdb_flush_wal, rocksdb_open, rocksdb_property_int,
    rocksdb_property_value,
};
use crate::families::{rocksdb_create_column_family, rocksdb_open_column_families};
use crate::guarded;
use crate::handles::{Database, Family, PinnableSlice, SnapshotHandle, given};
use crate::iterator::{IteratorHandle, rocksdb_create_iterator, rocksdb_create_iterator_cf};
use crate::options::{OptionsHandle, ReadOptions, WriteOptions};
use crate::reading::{
    rocksdb_get, rocksdb_get_cf, rocksdb_get_pinned, rocksdb_get_pinned_cf, rocksdb_multi_get,
    rocksdb_multi_get_cf,
};
use crate::transaction::TransactionHandle;

/// What a wait without an end is.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// RocksDB's defaults, in milliseconds.
const LOCK_TIMEOUT_MS: i64 = 1000;

fn wait(ms: i64) -> Duration {
    u64::try_from(ms).map_or(FOR_EVER, Duration::from_millis)
}

/// How a database with locks is opened.
pub struct TransactionDbOptions {
    transaction_timeout_ms: i64,
    default_timeout_ms: i64,
}

/// As they are by default: locks are waited for a second.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_create() -> Option<Box<TransactionDbOptions>> {
    let (transaction_timeout_ms, default_timeout_ms) = (LOCK_TIMEOUT_MS, LOCK_TIMEOUT_MS);
    Some(Box::new(TransactionDbOptions { transaction_timeout_ms, default_timeout_ms }))
}

/// What was opened with them stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_destroy(opt: Option<Box<TransactionDbOptions>>) {
    drop(opt);
}

/// Without effect: memory bounds locks.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_set_max_num_locks(
    _opt: Option<&mut TransactionDbOptions>,
    _max_num_locks: i64,
) {
}

/// Without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_set_num_stripes(
    _opt: Option<&mut TransactionDbOptions>,
    _num_stripes: usize,
) {
}

/// How long a transaction waits for a lock, in milliseconds, unless its options say; negative is
/// without an end.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_set_transaction_lock_timeout(
    opt: Option<&mut TransactionDbOptions>,
    txn_lock_timeout: i64,
) {
    if let Some(options) = opt {
        options.transaction_timeout_ms = txn_lock_timeout;
    }
}

/// How long a single write waits for a lock, in milliseconds; negative is without an end.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_options_set_default_lock_timeout(
    opt: Option<&mut TransactionDbOptions>,
    default_lock_timeout: i64,
) {
    if let Some(options) = opt {
        options.default_timeout_ms = default_lock_timeout;
    }
}

/// How a transaction with locks begins.
pub struct LockingOptions {
    set_snapshot: bool,
    lock_timeout_ms: i64,
    bytes_max: usize,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_create() -> Option<Box<LockingOptions>> {
    Some(Box::new(LockingOptions { set_snapshot: false, lock_timeout_ms: -1, bytes_max: 0 }))
}

/// Transactions that began with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_destroy(opt: Option<Box<LockingOptions>>) {
    drop(opt);
}

/// Whether it takes its state when it begins, and not with its first verb.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_set_snapshot(opt: Option<&mut LockingOptions>, v: c_uchar) {
    if let Some(options) = opt {
        options.set_snapshot = v != 0;
    }
}

/// Without effect: deadlocks are always found.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_deadlock_detect(
    _opt: Option<&mut LockingOptions>,
    _v: c_uchar,
) {
}

/// How long it waits for a lock, in milliseconds; negative is as the database says.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_lock_timeout(
    opt: Option<&mut LockingOptions>,
    lock_timeout: i64,
) {
    if let Some(options) = opt {
        options.lock_timeout_ms = lock_timeout;
    }
}

/// Without effect: locks are held until it ends.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_expiration(
    _opt: Option<&mut LockingOptions>,
    _expiration: i64,
) {
}

/// Without effect: deadlocks of any depth are found.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_deadlock_detect_depth(
    _opt: Option<&mut LockingOptions>,
    _depth: i64,
) {
}

/// Most bytes of its writes; 0 is 64 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_max_write_batch_size(
    opt: Option<&mut LockingOptions>,
    size: usize,
) {
    if let Some(options) = opt {
        options.bytes_max = size;
    }
}

/// Without effect: a transaction may be committed that was not prepared.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_options_set_skip_prepare(
    _opt: Option<&mut LockingOptions>,
    _v: c_uchar,
) {
}

/// How an optimistic transaction begins.
#[derive(Default)]
pub struct OptimisticOptions {
    set_snapshot: bool,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransaction_options_create() -> Option<Box<OptimisticOptions>> {
    Some(Box::default())
}

/// Transactions that began with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransaction_options_destroy(opt: Option<Box<OptimisticOptions>>) {
    drop(opt);
}

/// Whether it takes its state when it begins, and not with its first verb.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransaction_options_set_set_snapshot(
    opt: Option<&mut OptimisticOptions>,
    v: c_uchar,
) {
    if let Some(options) = opt {
        options.set_snapshot = v != 0;
    }
}

/// A database whose transactions lock. Any number of threads may use it at once.
pub struct TransactionDb {
    database: Database,
    transaction_wait: Duration,
    default_wait: Duration,
}

/// A database whose transactions find out when they commit. Any number of threads may use it at
/// once.
pub struct OptimisticDb(Database);

impl TransactionDb {
    fn boxed(database: Database, options: &TransactionDbOptions) -> Box<TransactionDb> {
        Box::new(TransactionDb {
            database,
            transaction_wait: wait(options.transaction_timeout_ms),
            default_wait: wait(options.default_timeout_ms),
        })
    }
}

fn base(txn_db: Option<&TransactionDb>) -> Option<&Database> {
    txn_db.map(|open| &open.database)
}

fn optimistic_base(otxn_db: Option<&OptimisticDb>) -> Option<&Database> {
    otxn_db.map(|open| &open.0)
}

/// A write as a transaction of its own.
fn write(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    family: Option<&Family>,
    start: impl FnOnce(&Transaction, &Keyspace) -> Result<Op<()>>,
) -> Result<()> {
    let TransactionDb { database, default_wait, .. } = handle(txn_db, "database")?;
    let transaction = database.db.transaction_with(TransactionOptions {
        locking: Locking::Pessimistic,
        durability: WriteOptions::durability(options),
        lock_wait: *default_wait,
        ..TransactionOptions::default()
    });
    start(&transaction, database.family(family).keyspace())?.wait()?;
    transaction.commit().wait().map(drop)
}

/// Opens a database whose transactions lock, at a path or a URI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_open(
    options: Option<&OptionsHandle>,
    txn_db_options: Option<&TransactionDbOptions>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> Option<Box<TransactionDb>> {
    let of_transactions = guarded!(errptr, None, || Ok(Some(handle(txn_db_options, "options")?)))?;
    // SAFETY: the caller keeps it, as of every function.
    let database = unsafe { rocksdb_open(options, name, errptr) }?;
    Some(TransactionDb::boxed(*database, of_transactions))
}

/// As `rocksdb_transactiondb_open`, with these column families.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_open_column_families(
    options: Option<&OptionsHandle>,
    txn_db_options: Option<&TransactionDbOptions>,
    name: *const c_char,
    num_column_families: c_int,
    column_family_names: *const *const c_char,
    column_family_options: *const *const OptionsHandle,
    column_family_handles: *mut *mut Family,
    errptr: *mut *mut c_char,
) -> Option<Box<TransactionDb>> {
    let of_transactions = guarded!(errptr, None, || Ok(Some(handle(txn_db_options, "options")?)))?;
    // SAFETY: the caller keeps it, as of every function.
    let database = unsafe {
        rocksdb_open_column_families(
            options,
            name,
            num_column_families,
            column_family_names,
            column_family_options,
            column_family_handles,
            errptr,
        )
    }?;
    Some(TransactionDb::boxed(*database, of_transactions))
}

/// Makes accepted writes durable and ends the database. Column families, iterators, snapshots and
/// transactions have to be destroyed before.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_close(txn_db: Option<Box<TransactionDb>>) {
    crate::database::rocksdb_close(txn_db.map(|open| Box::new(open.database)));
}

/// Opens a database whose transactions are optimistic, at a path or a URI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_open(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> Option<Box<OptimisticDb>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_open(options, name, errptr) }.map(|database| Box::new(OptimisticDb(*database)))
}

/// As `rocksdb_optimistictransactiondb_open`, with these column families.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_open_column_families(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    num_column_families: c_int,
    column_family_names: *const *const c_char,
    column_family_options: *const *const OptionsHandle,
    column_family_handles: *mut *mut Family,
    errptr: *mut *mut c_char,
) -> Option<Box<OptimisticDb>> {
    // SAFETY: the caller keeps it, as of every function.
    let database = unsafe {
        rocksdb_open_column_families(
            options,
            name,
            num_column_families,
            column_family_names,
            column_family_options,
            column_family_handles,
            errptr,
        )
    };
    database.map(|database| Box::new(OptimisticDb(*database)))
}

/// Makes accepted writes durable and ends the database. Column families, iterators, snapshots and
/// transactions have to be destroyed before.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransactiondb_close(otxn_db: Option<Box<OptimisticDb>>) {
    crate::database::rocksdb_close(otxn_db.map(|open| Box::new(open.0)));
}

/// The database without transactions: its writes take no locks, and a commit that meets one fails.
/// Given back by `rocksdb_transactiondb_close_base_db`.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_get_base_db(txn_db: Option<&TransactionDb>) -> Option<Box<Database>> {
    base(txn_db).map(|database| Box::new(database.clone()))
}

/// The database itself stays open.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_close_base_db(base_db: Option<Box<Database>>) {
    drop(base_db);
}

/// The database for everything but transactions: given back by
/// `rocksdb_optimistictransactiondb_close_base_db`.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransactiondb_get_base_db(
    otxn_db: Option<&OptimisticDb>,
) -> Option<Box<Database>> {
    optimistic_base(otxn_db).map(|database| Box::new(database.clone()))
}

/// The database itself stays open.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransactiondb_close_base_db(base_db: Option<Box<Database>>) {
    drop(base_db);
}

/// In the memory of an earlier handle, if there is one.
fn begun(begun: TransactionHandle, old: Option<Box<TransactionHandle>>) -> Option<Box<TransactionHandle>> {
    match old {
        None => Some(Box::new(begun)),
        Some(mut old) => {
            *old = begun;
            Some(old)
        }
    }
}

/// Begins a transaction with locks. `old_txn`, if it is not null, is rolled back and used again.
/// Null of a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transaction_begin(
    txn_db: Option<&TransactionDb>,
    write_options: Option<&WriteOptions>,
    txn_options: Option<&LockingOptions>,
    old_txn: Option<Box<TransactionHandle>>,
) -> Option<Box<TransactionHandle>> {
    guarded!(null_mut(), None, || {
        let open = handle(txn_db, "database")?;
        let own_wait = txn_options.map(|options| options.lock_timeout_ms).filter(|ms| *ms >= 0);
        let default = TransactionOptions::default();
        let bytes_max = txn_options.map(|options| options.bytes_max).filter(|bytes| *bytes > 0);
        let options = TransactionOptions {
            locking: Locking::Pessimistic,
            durability: WriteOptions::durability(write_options),
            lock_wait: own_wait.map_or(open.transaction_wait, wait),
            bytes_max: bytes_max.map_or(default.bytes_max, |bytes| bytes as u64),
            ..default
        };
        let is_fixed = txn_options.is_some_and(|options| options.set_snapshot);
        Ok(begun(TransactionHandle::begin(&open.database, options, is_fixed), old_txn))
    })
}

/// Begins an optimistic transaction. `old_txn`, if it is not null, is rolled back and used again.
/// Null of a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_optimistictransaction_begin(
    otxn_db: Option<&OptimisticDb>,
    write_options: Option<&WriteOptions>,
    otxn_options: Option<&OptimisticOptions>,
    old_txn: Option<Box<TransactionHandle>>,
) -> Option<Box<TransactionHandle>> {
    guarded!(null_mut(), None, || {
        let durability = WriteOptions::durability(write_options);
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        let is_fixed = otxn_options.is_some_and(|options| options.set_snapshot);
        let database = &handle(otxn_db, "database")?.0;
        Ok(begun(TransactionHandle::begin(database, options, is_fixed), old_txn))
    })
}

/// The transactions that were prepared, and wait for their commit or rollback: also those of before
/// a crash. An array to be freed, of handles to be destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_get_prepared_transactions(
    txn_db: Option<&TransactionDb>,
    cnt: *mut usize,
) -> *mut *mut TransactionHandle {
    tombolo_c::give!(cnt, 0);
    guarded!(null_mut(), null_mut(), || {
        let database = &handle(txn_db, "database")?.database;
        let waiting = database.db.in_doubt().wait()?;
        if waiting.is_empty() {
            return Ok(null_mut());
        }
        let handles: Vec<*mut TransactionHandle> = waiting
            .into_iter()
            .map(|waiting| Box::into_raw(Box::new(TransactionHandle::prepared(database, waiting.id))))
            .collect();
        tombolo_c::give!(cnt, handles.len());
        // SAFETY: pointers are bytes that may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(handles.as_ptr().cast::<u8>(), size_of_val(&handles[..])) };
        // Memory of `malloc` lies right for pointers.
        Ok(copy_bytes(bytes).cast())
    })
}

/// Writes a batch, whole or not at all, as a transaction of its own. It stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_write(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    batch: Option<&mut WriteBatch>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let batch = handle_mut(batch, "batch")?;
        let database = &handle(txn_db, "database")?.database;
        write(txn_db, options, None, |transaction, _| {
            batch.write_in(database, transaction)?;
            Ok(Op::ready(Ok(())))
        })
    });
}

/// Writes a batch, whole or not at all. It stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_write(
    otxn_db: Option<&OptimisticDb>,
    options: Option<&WriteOptions>,
    batch: Option<&mut WriteBatch>,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { crate::writing::rocksdb_write(optimistic_base(otxn_db), options, batch, errptr) };
}

/// Stores a value under a key, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_put(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, None, |transaction, keyspace| {
            Ok(transaction.put(keyspace, bytes!(key, keylen)?, bytes!(val, vallen)?))
        })
    });
}

/// Stores a value under a key of a column family, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_put_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.put(keyspace, bytes!(key, keylen)?, bytes!(val, vallen)?))
        })
    });
}

/// Merges an operand into the value of a key, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_merge(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, None, |transaction, keyspace| {
            Ok(transaction.merge(keyspace, bytes!(key, keylen)?, bytes!(val, vallen)?))
        })
    });
}

/// Merges an operand into the value of a key of a column family, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_merge_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.merge(keyspace, bytes!(key, keylen)?, bytes!(val, vallen)?))
        })
    });
}

/// Removes a key, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_delete(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, None, |transaction, keyspace| {
            Ok(transaction.delete(keyspace, bytes!(key, keylen)?))
        })
    });
}

/// Removes a key of a column family, as a transaction of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_delete_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(txn_db, options, given(column_family)?, |transaction, keyspace| {
            Ok(transaction.delete(keyspace, bytes!(key, keylen)?))
        })
    });
}

/// As `rocksdb_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_get(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_get(base(txn_db), options, key, keylen, vallen, errptr) }
}

/// As `rocksdb_get_cf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_get_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_get_cf(base(txn_db), options, column_family, key, keylen, vallen, errptr) }
}

/// As `rocksdb_get_pinned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_get_pinned(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_get_pinned(base(txn_db), options, key, keylen, errptr) }
}

/// As `rocksdb_get_pinned_cf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_get_pinned_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_get_pinned_cf(base(txn_db), options, column_family, key, keylen, errptr) }
}

/// As `rocksdb_multi_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_multi_get(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    // SAFETY: the caller keeps it, as of every function.
    unsafe {
        rocksdb_multi_get(
            base(txn_db),
            options,
            num_keys,
            keys_list,
            keys_list_sizes,
            values_list,
            values_list_sizes,
            errs,
        );
    };
}

/// As `rocksdb_multi_get_cf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_multi_get_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    column_families: *const *const Family,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    // SAFETY: the caller keeps it, as of every function.
    unsafe {
        rocksdb_multi_get_cf(
            base(txn_db),
            options,
            column_families,
            num_keys,
            keys_list,
            keys_list_sizes,
            values_list,
            values_list_sizes,
            errs,
        );
    };
}

/// As `rocksdb_create_iterator`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_create_iterator(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
) -> Option<Box<IteratorHandle>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_create_iterator(base(txn_db), options) }
}

/// As `rocksdb_create_iterator_cf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_create_iterator_cf(
    txn_db: Option<&TransactionDb>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
) -> Option<Box<IteratorHandle>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_create_iterator_cf(base(txn_db), options, column_family) }
}

/// As `rocksdb_create_snapshot`.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_create_snapshot(
    txn_db: Option<&TransactionDb>,
) -> Option<Box<SnapshotHandle>> {
    rocksdb_create_snapshot(base(txn_db))
}

/// Lets go of what a snapshot keeps.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_transactiondb_release_snapshot(
    _txn_db: Option<&TransactionDb>,
    snapshot: Option<Box<SnapshotHandle>>,
) {
    drop(snapshot);
}

/// As `rocksdb_property_value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_property_value(
    txn_db: Option<&TransactionDb>,
    propname: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_property_value(base(txn_db), propname) }
}

/// As `rocksdb_property_int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_property_int(
    txn_db: Option<&TransactionDb>,
    propname: *const c_char,
    out_val: *mut u64,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_property_int(base(txn_db), propname, out_val) }
}

/// As `rocksdb_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_flush(
    txn_db: Option<&TransactionDb>,
    options: Option<&FlushOptions>,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_flush(base(txn_db), options, errptr) };
}

/// As `rocksdb_flush_wal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_flush_wal(
    txn_db: Option<&TransactionDb>,
    sync: c_uchar,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_flush_wal(base(txn_db), sync, errptr) };
}

/// As `rocksdb_checkpoint_object_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_checkpoint_object_create(
    txn_db: Option<&TransactionDb>,
    errptr: *mut *mut c_char,
) -> Option<Box<CheckpointHandle>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_checkpoint_object_create(base(txn_db), errptr) }
}

/// As `rocksdb_create_column_family`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_transactiondb_create_column_family(
    txn_db: Option<&TransactionDb>,
    column_family_options: Option<&OptionsHandle>,
    column_family_name: *const c_char,
    errptr: *mut *mut c_char,
) -> Option<Box<Family>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_create_column_family(base(txn_db), column_family_options, column_family_name, errptr) }
}

/// As `rocksdb_property_value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_property_value(
    otxn_db: Option<&OptimisticDb>,
    propname: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_property_value(optimistic_base(otxn_db), propname) }
}

/// As `rocksdb_property_int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_property_int(
    otxn_db: Option<&OptimisticDb>,
    propname: *const c_char,
    out_val: *mut u64,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_property_int(optimistic_base(otxn_db), propname, out_val) }
}

/// As `rocksdb_checkpoint_object_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_optimistictransactiondb_checkpoint_object_create(
    otxn_db: Option<&OptimisticDb>,
    errptr: *mut *mut c_char,
) -> Option<Box<CheckpointHandle>> {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { rocksdb_checkpoint_object_create(optimistic_base(otxn_db), errptr) }
}
