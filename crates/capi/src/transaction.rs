//! Transactions: reads and writes of several keys as if nobody else were there.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Bound;
use std::ptr::null_mut;
use std::time::Duration;

use tombolo::{Isolation, Locking, Result, Savepoint, Transaction, TransactionOptions, TransactionOutcome};

use crate::boundary::{copy_bytes, durability, handle, handle_mut, invalid};
use crate::cursor::{CursorHandle, Entries};
use crate::database::Database;
use crate::keyspace::KeyspaceHandle;
use crate::reading::UseBytes;
use crate::{bytes, give, guarded};

/// Nobody is kept away: the second of two commits that meet ends with `Conflict`.
pub const TOMBOLO_OPTIMISTIC: c_int = 0;
/// Writes and reads for update lock their keys; others that want them wait.
pub const TOMBOLO_PESSIMISTIC: c_int = 1;
/// All reads see one state.
pub const TOMBOLO_SNAPSHOT_ISOLATION: c_int = 0;
/// As if transactions ran one after the other.
pub const TOMBOLO_SERIALIZABLE: c_int = 1;

/// The id says nothing of a commit, or it is a day old.
pub const TOMBOLO_TRANSACTION_UNKNOWN: c_int = 0;
/// It was committed.
pub const TOMBOLO_TRANSACTION_COMMITTED: c_int = 1;
/// It was rolled back.
pub const TOMBOLO_TRANSACTION_ROLLED_BACK: c_int = 2;
/// It is prepared, and waits for its decision.
pub const TOMBOLO_TRANSACTION_IN_DOUBT: c_int = 3;

/// A transaction that has begun. One thread uses it at a time. After its commit, its preparation or
/// an error of these nothing but destroying it is left to do.
pub struct TransactionHandle {
    /// `None` once it has ended.
    transaction: Option<Transaction>,
    savepoints: Vec<Savepoint>,
}

impl TransactionHandle {
    fn running(&self) -> Result<&Transaction> {
        self.transaction.as_ref().ok_or_else(|| invalid("the transaction has ended"))
    }

    fn end(&mut self) -> Result<Transaction> {
        self.transaction.take().ok_or_else(|| invalid("the transaction has ended"))
    }
}

fn running(transaction: Option<&TransactionHandle>) -> Result<&Transaction> {
    handle(transaction, "transaction")?.running()
}

/// Begins a transaction over all keyspaces. `locking` is `TOMBOLO_OPTIMISTIC` or
/// `TOMBOLO_PESSIMISTIC`, `isolation` `TOMBOLO_SNAPSHOT_ISOLATION` or `TOMBOLO_SERIALIZABLE`,
/// `survives` `TOMBOLO_DURABLE` or another, of its commit. A pessimistic one waits for a lock for
/// `lock_wait_ms`; 0 is ten seconds. `id` is null, or a name of the caller's by which
/// `tombolo_transaction_outcome` says for a day what became of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_begin(
    database: Option<&Database>,
    locking: c_int,
    isolation: c_int,
    survives: c_int,
    lock_wait_ms: u64,
    id: *const c_char,
    id_bytes: usize,
    error: *mut *mut c_char,
) -> Option<Box<TransactionHandle>> {
    guarded!(error, None, || {
        let mut options = TransactionOptions { durability: durability(survives)?, ..Default::default() };
        options.locking = match locking {
            TOMBOLO_OPTIMISTIC => Locking::Optimistic,
            TOMBOLO_PESSIMISTIC => Locking::Pessimistic,
            other => return Err(invalid(format!("{other} is no way of locking"))),
        };
        options.isolation = match isolation {
            TOMBOLO_SNAPSHOT_ISOLATION => Isolation::Snapshot,
            TOMBOLO_SERIALIZABLE => Isolation::Serializable,
            other => return Err(invalid(format!("{other} is no isolation"))),
        };
        if lock_wait_ms > 0 {
            options.lock_wait = Duration::from_millis(lock_wait_ms);
        }
        let name = bytes!(id, id_bytes)?;
        options.id = (!id.is_null()).then(|| name.to_vec());
        let transaction = Some(handle(database, "database")?.db.transaction_with(options));
        Ok(Some(Box::new(TransactionHandle { transaction, savepoints: Vec::new() })))
    })
}

/// Rolls it back if it has not ended, and lets go of it.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_transaction_destroy(transaction: Option<Box<TransactionHandle>>) {
    drop(transaction);
}

/// The value of a key as the transaction sees it, copied: null when there is none, and after an
/// error. To be freed. With `for_update` it counts as written: others that write the key meet this
/// transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_get(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    for_update: c_int,
    value_bytes: *mut usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    give!(value_bytes, 0);
    guarded!(error, null_mut(), || {
        let transaction = running(transaction)?;
        let (keyspace, key) = (handle(keyspace, "keyspace")?.keyspace(), bytes!(key, key_bytes)?);
        let found = match for_update {
            0 => transaction.get(keyspace, key),
            _ => transaction.get_for_update(keyspace, key),
        };
        let Some(value) = found.wait()? else { return Ok(null_mut()) };
        give!(value_bytes, value.len());
        Ok(copy_bytes(&value))
    })
}

/// Locks all keys from `from` on and before `to`, those that are not there included. A null pointer
/// of length 0 is no bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_lock_range(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let keyspace = handle(keyspace, "keyspace")?.keyspace();
        let (first, last) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        let lower = if from.is_null() { Bound::Unbounded } else { Bound::Included(first) };
        let upper = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(last) };
        running(transaction)?.lock_range::<&[u8]>(keyspace, (lower, upper)).wait()
    });
}

/// A cursor over what the transaction sees: see `tombolo_cursor`. It sees the writes of the
/// transaction that were made before, and those since once it is refreshed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_cursor(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    error: *mut *mut c_char,
) -> Option<Box<CursorHandle>> {
    guarded!(error, None, || {
        let keyspace = handle(keyspace, "keyspace")?.keyspace();
        let (first, last) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        let lower = if from.is_null() { Bound::Unbounded } else { Bound::Included(first) };
        let upper = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(last) };
        let cursor = running(transaction)?.cursor::<&[u8]>(keyspace, (lower, upper));
        Ok(Some(Box::new(CursorHandle(Entries::OfTransaction(Box::new(cursor))))))
    })
}

/// Puts a value. A pessimistic transaction waits for the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_put(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        running(transaction)?.put(handle(keyspace, "keyspace")?.keyspace(), key, value).wait()
    });
}

/// Puts a value that lives for so many milliseconds from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_put_ttl(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    ttl_ms: u64,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        let (keyspace, ttl) = (handle(keyspace, "keyspace")?.keyspace(), Duration::from_millis(ttl_ms));
        running(transaction)?.put_ttl(keyspace, key, value, ttl).wait()
    });
}

/// Merges an operand into the value of a key, by the keyspace's operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_merge(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    operand: *const c_char,
    operand_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, operand) = (bytes!(key, key_bytes)?, bytes!(operand, operand_bytes)?);
        running(transaction)?.merge(handle(keyspace, "keyspace")?.keyspace(), key, operand).wait()
    });
}

/// Removes a key, there or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_delete(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        running(transaction)?.delete(handle(keyspace, "keyspace")?.keyspace(), key).wait()
    });
}

/// Removes a key that was put once since it was last removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_single_delete(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        running(transaction)?.single_delete(handle(keyspace, "keyspace")?.keyspace(), key).wait()
    });
}

/// Removes all keys from `from` on and before `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_delete_range(
    transaction: Option<&TransactionHandle>,
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (from, to) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        running(transaction)?.delete_range(handle(keyspace, "keyspace")?.keyspace(), from, to).wait()
    });
}

/// Sets a savepoint, on top of those that are set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_set_savepoint(
    transaction: Option<&mut TransactionHandle>,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let handle = handle_mut(transaction, "transaction")?;
        let savepoint = handle.running()?.savepoint()?;
        handle.savepoints.push(savepoint);
        Ok(())
    });
}

/// Undoes all writes since the newest savepoint, and takes that away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_rollback_to_savepoint(
    transaction: Option<&mut TransactionHandle>,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let handle = handle_mut(transaction, "transaction")?;
        let savepoint = handle.savepoints.pop().ok_or_else(|| invalid("no savepoint is set"))?;
        handle.running()?.roll_back_to(savepoint)
    });
}

/// Commits it: all of its writes take effect, or none. Says the number of the commit, at which a
/// snapshot sees it. An error of the kind Conflict says that somebody else was there: begin again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_commit(
    transaction: Option<&mut TransactionHandle>,
    error: *mut *mut c_char,
) -> u64 {
    guarded!(error, 0, || handle_mut(transaction, "transaction")?.end()?.commit().wait())
}

/// Undoes it, and ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_rollback(
    transaction: Option<&mut TransactionHandle>,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        handle_mut(transaction, "transaction")?.end()?.roll_back();
        Ok(())
    });
}

/// Makes it durable under an id of the caller's without an effect yet, the first step of a commit
/// over several databases. Its locks are held, also after a crash, until `tombolo_decide`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_prepare(
    transaction: Option<&mut TransactionHandle>,
    id: *const c_char,
    id_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let id = bytes!(id, id_bytes)?;
        handle_mut(transaction, "transaction")?.end()?.prepare(id).wait().map(drop)
    });
}

/// Commits a prepared transaction, or rolls it back where `commits` is 0. The same decision twice
/// is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_decide(
    database: Option<&Database>,
    id: *const c_char,
    id_bytes: usize,
    commits: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let id = bytes!(id, id_bytes)?;
        handle(database, "database")?.db.decide(id, commits != 0).wait()
    });
}

/// Lends the id of each prepared transaction that was not decided to `use_bytes`, which must not
/// call this library; says how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_in_doubt(
    database: Option<&Database>,
    use_bytes: UseBytes,
    state: *mut c_void,
    error: *mut *mut c_char,
) -> usize {
    guarded!(error, 0, || {
        let use_bytes = use_bytes.ok_or_else(|| invalid("the callback is a null pointer"))?;
        let all = handle(database, "database")?.db.in_doubt().wait()?;
        for one in &all {
            // SAFETY: the caller's function, called as its type says, with bytes that live longer.
            unsafe { use_bytes(state, one.id.as_ptr().cast(), one.id.len()) };
        }
        Ok(all.len())
    })
}

/// What became of a transaction with this id: `TOMBOLO_TRANSACTION_COMMITTED` or another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_transaction_outcome(
    database: Option<&Database>,
    id: *const c_char,
    id_bytes: usize,
    error: *mut *mut c_char,
) -> c_int {
    guarded!(error, TOMBOLO_TRANSACTION_UNKNOWN, || {
        let id = bytes!(id, id_bytes)?;
        Ok(match handle(database, "database")?.db.transaction_outcome(id).wait()? {
            None => TOMBOLO_TRANSACTION_UNKNOWN,
            Some(TransactionOutcome::Committed) => TOMBOLO_TRANSACTION_COMMITTED,
            Some(TransactionOutcome::RolledBack) => TOMBOLO_TRANSACTION_ROLLED_BACK,
            Some(TransactionOutcome::InDoubt) => TOMBOLO_TRANSACTION_IN_DOUBT,
        })
    })
}
