//! Databases: opening, closing, their keyspaces, and what they do as a whole.

use std::ffi::{c_char, c_int};

use tombolo::{Db, Env, KeyspaceOptions, Property, Result};

use crate::boundary::{copy_text, handle, invalid};
use crate::keyspace::KeyspaceHandle;
use crate::options::{OpenOptions, or_default};
use crate::{bytes, guarded, text};

/// An open database. Any number of threads may use it at once.
pub struct Database {
    pub(crate) db: Db,
    /// The world that it runs in; callbacks of its operations do as well.
    pub(crate) env: Env,
}

/// Opens the database at a URI, such as `file:///data/orders`; null options are the defaults. This
/// process is its writer then, until another takes it over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_open(
    options: Option<&OpenOptions>,
    uri: *const c_char,
    error: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(error, None, || {
        let env = Env::real();
        let db = or_default(options, |options| options.builder(text!(uri)?, &env).open().wait())?;
        Ok(Some(Box::new(Database { db, env })))
    })
}

/// Opens the durable state of the database, to read it. Disturbs no writer, and needs no right to
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_open_read_only(
    options: Option<&OpenOptions>,
    uri: *const c_char,
    error: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(error, None, || {
        let env = Env::real();
        let db = or_default(options, |options| options.builder(text!(uri)?, &env).open_read_only().wait())?;
        Ok(Some(Box::new(Database { db, env })))
    })
}

/// Makes accepted writes durable, and ends the database and its handle: also after an error, which
/// says what may not be durable. Handles of its keyspaces and snapshots answer `Closed` from here
/// on, and a cursor goes on over what it keeps at most. They still have to be destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_close(database: Option<Box<Database>>, error: *mut *mut c_char) {
    guarded!(error, (), || match database {
        None => Ok(()),
        Some(database) => database.db.close().wait(),
    });
}

/// Deletes all objects of the database at a URI: its life ends for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_destroy_database(
    options: Option<&OpenOptions>,
    uri: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let env = Env::real();
        or_default(options, |options| options.builder(text!(uri)?, &env).destroy().wait())?;
        Ok(())
    });
}

/// The keyspace of that name. Its handle is destroyed with `tombolo_keyspace_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_keyspace(
    database: Option<&Database>,
    name: *const c_char,
    error: *mut *mut c_char,
) -> Option<Box<KeyspaceHandle>> {
    guarded!(error, None, || {
        let database = handle(database, "database")?;
        let keyspace = database.db.blocking().keyspace(text!(name)?)?;
        Ok(Some(KeyspaceHandle::boxed(keyspace, &database.env)))
    })
}

/// The keyspace `default`, which every database has; null of a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_default_keyspace(database: Option<&Database>) -> Option<Box<KeyspaceHandle>> {
    guarded!(std::ptr::null_mut(), None, || {
        let database = handle(database, "database")?;
        Ok(Some(KeyspaceHandle::boxed(database.db.blocking().default_keyspace(), &database.env)))
    })
}

/// Creates a keyspace, or opens it when `may_exist` is not 0. `settings` is null, or names and
/// values as `compression=zstd filter_bits=12`, with a space between; they count for a creation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_create_keyspace(
    database: Option<&Database>,
    name: *const c_char,
    settings: *const c_char,
    may_exist: c_int,
    error: *mut *mut c_char,
) -> Option<Box<KeyspaceHandle>> {
    guarded!(error, None, || {
        let (database, name) = (handle(database, "database")?, text!(name)?);
        let mut options = KeyspaceOptions::default();
        let settings = if settings.is_null() { "" } else { text!(settings)? };
        for setting in settings.split_whitespace() {
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                invalid("a setting has no value").expected("name=value").found(format!("{setting:?}"))
            })?;
            options.set(name, value)?;
        }
        let made = match may_exist {
            0 => database.db.blocking().create_keyspace(name, options),
            _ => database.db.blocking().open_or_create_keyspace(name, options),
        };
        Ok(Some(KeyspaceHandle::boxed(made?, &database.env)))
    })
}

/// Drops a keyspace with all in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_drop_keyspace(
    database: Option<&Database>,
    name: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || handle(database, "database")?.db.drop_keyspace(text!(name)?).wait());
}

/// The names of all keyspaces, a line each; to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_keyspace_names(
    database: Option<&Database>,
    error: *mut *mut c_char,
) -> *mut c_char {
    guarded!(error, std::ptr::null_mut(), || {
        let names = handle(database, "database")?.db.keyspaces();
        Ok(copy_text(&names.iter().map(|keyspace| format!("{}\n", keyspace.name())).collect::<String>()))
    })
}

/// Makes durable what was accepted before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_sync(database: Option<&Database>, error: *mut *mut c_char) {
    guarded!(error, (), || handle(database, "database")?.db.sync().wait());
}

/// Writes all that is in memory to tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_flush(database: Option<&Database>, error: *mut *mut c_char) {
    guarded!(error, (), || handle(database, "database")?.db.flush().wait());
}

/// Merges the tables of each keyspace into one run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_compact(database: Option<&Database>, error: *mut *mut c_char) {
    guarded!(error, (), || handle(database, "database")?.db.compact().wait());
}

/// Makes a checkpoint of that name: a state that stays until it is deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_checkpoint(
    database: Option<&Database>,
    name: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || handle(database, "database")?.db.checkpoint(text!(name)?).wait().map(drop));
}

/// Deletes the checkpoint of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_delete_checkpoint(
    database: Option<&Database>,
    name: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || handle(database, "database")?.db.delete_checkpoint(text!(name)?).wait());
}

/// Changes a setting of the open database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_set_option(
    database: Option<&Database>,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || handle(database, "database")?.db.set_options([(text!(name)?, text!(value)?)]));
}

/// What the database says of itself under that name, as text; to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_property(
    database: Option<&Database>,
    name: *const c_char,
    error: *mut *mut c_char,
) -> *mut c_char {
    guarded!(error, std::ptr::null_mut(), || {
        let property: Result<Property> = handle(database, "database")?.db.property(text!(name)?);
        Ok(copy_text(&property?.value.to_string()))
    })
}

/// All that the database says of itself, as Prometheus reads it; `label` names the database there.
/// To be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_metrics(
    database: Option<&Database>,
    label: *const c_char,
    label_bytes: usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    guarded!(error, std::ptr::null_mut(), || {
        let label = std::str::from_utf8(bytes!(label, label_bytes)?)
            .map_err(|_| invalid("the label is not UTF-8"))?;
        Ok(copy_text(&handle(database, "database")?.db.metrics_text(label)))
    })
}
