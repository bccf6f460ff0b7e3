//! Checkpoints as RocksDB means them: databases of their own, in other directories.

use std::ffi::c_char;

use tombolo::{Db, Env};
use tombolo_c::boundary::handle;
use tombolo_c::text;

use crate::database::uri;
use crate::guarded;
use crate::handles::Database;

/// Makes checkpoints of a database.
pub struct CheckpointHandle {
    db: Db,
    env: Env,
    uri: String,
}

/// Of this database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_checkpoint_object_create(
    db: Option<&Database>,
    errptr: *mut *mut c_char,
) -> Option<Box<CheckpointHandle>> {
    guarded!(errptr, None, || {
        let Database { db, env, uri, .. } = handle(db, "database")?;
        Ok(Some(Box::new(CheckpointHandle { db: db.clone(), env: env.clone(), uri: uri.clone() })))
    })
}

/// Makes a database of its own of the state as it is now, in another directory or at another URI.
/// Tables are linked where they can be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_checkpoint_create(
    checkpoint: Option<&CheckpointHandle>,
    checkpoint_dir: *const c_char,
    _log_size_for_flush: u64,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let CheckpointHandle { db, env, uri: source } = handle(checkpoint, "checkpoint")?;
        let target = Db::builder(uri(text!(checkpoint_dir)?)?).env(env.clone());
        let name = format!("rocksdb-{:016x}", env.random_u64());
        db.checkpoint(&name).wait()?;
        let made =
            Db::builder(source.clone()).env(env.clone()).at_checkpoint(&name).restore_to(target).wait();
        let deleted = db.delete_checkpoint(&name).wait();
        made.and(deleted)
    });
}

/// The databases that it made stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_checkpoint_object_destroy(checkpoint: Option<Box<CheckpointHandle>>) {
    drop(checkpoint);
}
