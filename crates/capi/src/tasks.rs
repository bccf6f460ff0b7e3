//! Operations that tell a callback how they ended, for programs that must not wait.
//!
//! The callback runs on a thread of the engine, once, perhaps before the function returns. It must
//! not wait: functions here that do not end in `_then` answer it with an error. What it is given is
//! lent for the call.

use std::ffi::{c_char, c_int, c_void};
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tombolo::{Env, Op, Result};
use tombolo_env::TaskClass;

use crate::batch::BatchHandle;
use crate::boundary::{copy_text, durability, handle, handle_mut, panicked};
use crate::bytes;
use crate::database::Database;
use crate::keyspace::KeyspaceHandle;
use crate::reading::{SnapshotHandle, get};

/// Is told how an operation ended. `error` is null when it went well, and lent for the call.
pub type Ended = Option<unsafe extern "C" fn(state: *mut c_void, error: *const c_char)>;

/// Is told what a read found. `error` is null when it went well; `value` is null where there is
/// none. Both are lent for the call.
pub type Found = Option<
    unsafe extern "C" fn(state: *mut c_void, value: *const c_char, value_bytes: usize, error: *const c_char),
>;

/// A pointer that goes back to its owner.
struct Carried(*mut c_void);

// SAFETY: the caller says that its callback may run on another thread with this pointer; nobody
// else looks through it.
unsafe impl Send for Carried {}

impl Carried {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Begins an operation and tells `tell` how it ended. `begin` runs on the caller's thread, so that
/// operations of one thread take their places in its order.
fn start<T: Send + 'static>(
    env: Option<&Env>,
    begin: impl FnOnce() -> Result<Op<T>>,
    tell: impl FnOnce(Result<T>) + Send + 'static,
) {
    let begun = catch_unwind(AssertUnwindSafe(begin)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    match (begun, env) {
        (Ok(op), Some(env)) => {
            env.spawn(TaskClass::Foreground, "operation of a C program", async move { tell(op.await) })
                .detach();
        }
        (Ok(op), None) => tell(op.wait()),
        (Err(error), _) => tell(Err(error)),
    }
}

/// Gives an error as a string of C to `tell`, or null.
fn with_error(error: Option<&tombolo::Error>, tell: impl FnOnce(*const c_char)) {
    let text = error.map_or(std::ptr::null_mut(), |error| copy_text(&error.to_string()));
    tell(text);
    // SAFETY: made above, or null.
    unsafe { libc::free(text.cast()) };
}

fn telling_the_end(ended: Ended, state: *mut c_void) -> impl FnOnce(Result<()>) + Send + 'static {
    let state = Carried(state);
    move |result| {
        let state = state.pointer();
        let Some(ended) = ended else { return };
        // SAFETY: the caller's function, called once, as its type says.
        with_error(result.as_ref().err(), |error| unsafe { ended(state, error) });
    }
}

/// Begins a put; `ended` is told how it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_put_then(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    survives: c_int,
    ended: Ended,
    state: *mut c_void,
) {
    let begin = || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        Ok(handle(keyspace, "keyspace")?.keyspace().put_with(key, value, durability(survives)?))
    };
    start(keyspace.map(|keyspace| &keyspace.env), begin, telling_the_end(ended, state));
}

/// Begins a delete; `ended` is told how it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_delete_then(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    survives: c_int,
    ended: Ended,
    state: *mut c_void,
) {
    let begin = || {
        let key = bytes!(key, key_bytes)?;
        Ok(handle(keyspace, "keyspace")?.keyspace().delete_with(key, durability(survives)?))
    };
    start(keyspace.map(|keyspace| &keyspace.env), begin, telling_the_end(ended, state));
}

/// Begins to write a batch, which is empty when this returns; `ended` is told how it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_write_then(
    database: Option<&Database>,
    batch: Option<&mut BatchHandle>,
    survives: c_int,
    ended: Ended,
    state: *mut c_void,
) {
    let begin = || {
        let (database, survives) = (handle(database, "database")?, durability(survives)?);
        Ok(database.db.write_with(take(&mut handle_mut(batch, "batch")?.0), survives))
    };
    start(database.map(|database| &database.env), begin, telling_the_end(ended, state));
}

/// Begins a flush; `ended` is told how it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_flush_then(database: Option<&Database>, ended: Ended, state: *mut c_void) {
    let begin = || Ok(handle(database, "database")?.db.flush());
    start(database.map(|database| &database.env), begin, telling_the_end(ended, state));
}

/// Begins a read; `found` is told what it found. A null snapshot is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_get_then(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_char,
    key_bytes: usize,
    found: Found,
    state: *mut c_void,
) {
    let begin = || Ok(get(handle(keyspace, "keyspace")?.keyspace(), snapshot, bytes!(key, key_bytes)?));
    let state = Carried(state);
    let tell = move |result: Result<Option<tombolo::Value>>| {
        let state = state.pointer();
        let Some(found) = found else { return };
        let value = result.as_ref().ok().and_then(Option::as_ref);
        let (pointer, length) =
            value.map_or((std::ptr::null(), 0), |value| (value.as_ptr().cast(), value.len()));
        // SAFETY: the caller's function, called once, as its type says; the value lives longer.
        with_error(result.as_ref().err(), |error| unsafe { found(state, pointer, length, error) });
    };
    start(keyspace.map(|keyspace| &keyspace.env), begin, tell);
}
