//! Column families: keyspaces.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use tombolo::{Env, ErrorKind, Result};
use tombolo_c::boundary::{copy_bytes, copy_text, handle, invalid};
use tombolo_c::{give, text};

use crate::database::{open, open_to_read, or_close, set_operator, uri};
use crate::door::check_arrays;
use crate::handles::{Database, Family};
use crate::options::OptionsHandle;
use crate::{guarded, place};

/// What opening several is asked.
struct Wanted<'a> {
    names: Vec<&'a str>,
    options: Vec<&'a OptionsHandle>,
}

fn wanted<'a>(
    count: c_int,
    names: *const *const c_char,
    options: *const *const OptionsHandle,
    places: *mut *mut Family,
) -> Result<Wanted<'a>> {
    let count = usize::try_from(count).map_err(|_| invalid("a negative number of column families"))?;
    check_arrays(count, &[names.is_null(), options.is_null(), places.is_null()])?;
    let names = (0..count).map(|index| text!(place!(names, index))).collect::<Result<Vec<&str>>>()?;
    let option = |index: usize| {
        let options = place!(options, index);
        // SAFETY: null, or options of this library, which live as long as the call.
        unsafe { options.as_ref() }
    };
    let options: Vec<&OptionsHandle> =
        (0..count).map(|index| handle(option(index), "options")).collect::<Result<_>>()?;
    options.iter().try_for_each(|options| options.check())?;
    Ok(Wanted { names, options })
}

fn families(database: &Database, wanted: &Wanted<'_>, creates: bool) -> Result<Vec<Family>> {
    let db = database.db.blocking();
    wanted
        .names
        .iter()
        .zip(&wanted.options)
        .map(|(name, options)| {
            let family = match db.keyspace(name) {
                Err(error) if error.kind() == ErrorKind::NotFound && creates => {
                    db.open_or_create_keyspace(name, options.keyspace())
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(invalid(format!("Column family not found: {name}")))
                }
                found => found,
            }?;
            set_operator(database, family.keyspace(), options)?;
            Ok(Family(family))
        })
        .collect()
}

fn hand_out(families: Vec<Family>, places: *mut *mut Family) {
    for (index, family) in families.into_iter().enumerate() {
        // SAFETY: the caller's array has as many places as there are names, and is not null.
        give!(unsafe { places.add(index) }, Box::into_raw(Box::new(family)));
    }
}

/// Opens a database with these column families. Those that are there and not named stay as they
/// are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_open_column_families(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    num_column_families: c_int,
    column_family_names: *const *const c_char,
    column_family_options: *const *const OptionsHandle,
    column_family_handles: *mut *mut Family,
    errptr: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(errptr, None, || {
        let options = handle(options, "options")?;
        let wanted =
            wanted(num_column_families, column_family_names, column_family_options, column_family_handles)?;
        let database = open(options, text!(name)?, &wanted.options)?;
        let creates = options.create_missing_families;
        let (database, families) = or_close(database, |database| families(database, &wanted, creates))?;
        hand_out(families, column_family_handles);
        Ok(Some(database))
    })
}

/// As `rocksdb_open_column_families`, to read the durable state as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_open_for_read_only_column_families(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    num_column_families: c_int,
    column_family_names: *const *const c_char,
    column_family_options: *const *const OptionsHandle,
    column_family_handles: *mut *mut Family,
    _error_if_wal_file_exists: std::ffi::c_uchar,
    errptr: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(errptr, None, || {
        let options = handle(options, "options")?;
        let wanted =
            wanted(num_column_families, column_family_names, column_family_options, column_family_handles)?;
        let database = open_to_read(options, text!(name)?, &wanted.options)?;
        let (database, families) = or_close(database, |database| families(database, &wanted, false))?;
        hand_out(families, column_family_handles);
        Ok(Some(database))
    })
}

/// The names of all column families; to be given back by `rocksdb_list_column_families_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_list_column_families(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    lencf: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut *mut c_char {
    give!(lencf, 0);
    guarded!(errptr, null_mut(), || {
        let builder = handle(options, "options")?.builder(&uri(text!(name)?)?, &Env::real());
        let db = builder.open_read_only().wait()?;
        let names: Vec<*mut c_char> =
            db.keyspaces().iter().map(|keyspace| copy_text(keyspace.name())).collect();
        db.close().wait()?;
        give!(lencf, names.len());
        // SAFETY: pointers are bytes that may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(names.as_ptr().cast::<u8>(), size_of_val(&names[..])) };
        // Memory of `malloc` lies right for pointers.
        Ok(copy_bytes(bytes).cast())
    })
}

/// Gives a list of names back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_list_column_families_destroy(list: *mut *mut c_char, len: usize) {
    if list.is_null() {
        return;
    }
    for index in 0..len {
        let name = place!(list, index);
        // SAFETY: made above, and given back once.
        unsafe { libc::free(name.cast()) };
    }
    // SAFETY: as above.
    unsafe { libc::free(list.cast()) };
}

/// Creates a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_create_column_family(
    db: Option<&Database>,
    column_family_options: Option<&OptionsHandle>,
    column_family_name: *const c_char,
    errptr: *mut *mut c_char,
) -> Option<Box<Family>> {
    guarded!(errptr, None, || {
        let options = handle(column_family_options, "options")?;
        options.check()?;
        let db = handle(db, "database")?.db.blocking();
        Ok(Some(Box::new(Family(db.create_keyspace(text!(column_family_name)?, options.keyspace())?))))
    })
}

/// Drops a column family with all in it. Its handle has to be destroyed still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_drop_column_family(
    db: Option<&Database>,
    handle_: Option<&Family>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let (family, database) = (handle(handle_, "column family")?, handle(db, "database")?);
        let (name, number) = (family.0.keyspace().name(), family.0.keyspace().id());
        // Another one may have its name by now.
        if database.by_number(number).is_none_or(|found| found.name() != name) {
            return Err(invalid(format!("Column family already dropped: {name}")));
        }
        database.db.drop_keyspace(name).wait()
    });
}

/// The column family itself stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_column_family_handle_destroy(handle: Option<Box<Family>>) {
    drop(handle);
}

/// Its number.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_column_family_handle_get_id(handle: Option<&Family>) -> u32 {
    handle.map_or(0, |family| family.0.keyspace().id())
}

/// Its name, to be freed, with its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_column_family_handle_get_name(
    handle: Option<&Family>,
    name_len: *mut usize,
) -> *mut c_char {
    let name = handle.map_or("", |family| family.0.keyspace().name());
    give!(name_len, name.len());
    copy_text(name)
}

/// A handle of the default column family.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_get_default_column_family_handle(db: Option<&Database>) -> Option<Box<Family>> {
    db.map(|database| Box::new(Family(database.default.clone())))
}
