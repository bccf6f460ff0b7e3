//! Opening, closing, and what a database does as a whole.

use std::ffi::{c_char, c_int, c_uchar};
use std::ops::Bound;
use std::ptr::null_mut;

use tombolo::{Env, ErrorKind, Keyspace, Result, Uri};
use tombolo_c::boundary::{copy_text, handle, invalid};
use tombolo_c::{bytes, give, text};

use crate::door::{check_arrays, unsupported};
use crate::handles::{Database, Family, SnapshotHandle, given};
use crate::options::OptionsHandle;
use crate::{guarded, place};

/// A database's name: a path, or a URI.
pub(crate) fn uri(name: &str) -> Result<String> {
    if name.contains("://") { Ok(name.to_owned()) } else { Ok(Uri::from_path(name)?.to_string()) }
}

pub(crate) fn open(
    options: &OptionsHandle,
    name: &str,
    families: &[&OptionsHandle],
) -> Result<Box<Database>> {
    options.check()?;
    let (env, uri) = (Env::real(), uri(name)?);
    let mut builder = options.builder(&uri, &env);
    for family in families {
        builder = family.with_operator(builder);
    }
    let db = builder.open().wait()?;
    let default = db.blocking().default_keyspace();
    Ok(Box::new(Database { db, env, default, uri }))
}

/// Does what belongs to opening; after an error the database is closed, as nobody gets its handle.
pub(crate) fn or_close<T>(
    database: Box<Database>,
    work: impl FnOnce(&Database) -> Result<T>,
) -> Result<(Box<Database>, T)> {
    match work(&database) {
        Ok(done) => Ok((database, done)),
        Err(error) => {
            // The first error says what was wrong.
            let _ = database.db.close().wait();
            Err(error)
        }
    }
}

/// Gives a keyspace the operator that its options name, where it has none yet.
///
/// # Errors
/// `Invalid` when it has another one, by which it would go on to merge.
pub(crate) fn set_operator(database: &Database, keyspace: &Keyspace, options: &OptionsHandle) -> Result<()> {
    let Some(wanted) = options.operator_name() else { return Ok(()) };
    match &keyspace.options().operator {
        Some(own) if own != wanted => {
            let (expected, found) = (format!("the operator {own}"), format!("options with {wanted}"));
            Err(invalid(format!("the column family {:?} merges by another operator", keyspace.name()))
                .expected(expected)
                .found(found))
        }
        None if !is_read_only(database) => {
            keyspace.set_options([("operator", wanted.to_string().as_str())]).wait()
        }
        _ => Ok(()),
    }
}

fn is_read_only(database: &Database) -> bool {
    database.db.age().is_some()
}

/// Opens a database, at a path or a URI, with its default column family; the others stay as they
/// are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_open(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(errptr, None, || {
        let options = handle(options, "options")?;
        let database = open(options, text!(name)?, &[])?;
        let set = |database: &Database| set_operator(database, database.default.keyspace(), options);
        Ok(Some(or_close(database, set)?.0))
    })
}

/// Opens a database to read the durable state as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_open_for_read_only(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    _error_if_wal_file_exists: c_uchar,
    errptr: *mut *mut c_char,
) -> Option<Box<Database>> {
    guarded!(errptr, None, || Ok(Some(open_to_read(handle(options, "options")?, text!(name)?, &[])?)))
}

pub(crate) fn open_to_read(
    options: &OptionsHandle,
    name: &str,
    families: &[&OptionsHandle],
) -> Result<Box<Database>> {
    options.check()?;
    let (env, uri) = (Env::real(), uri(name)?);
    let mut builder = options.builder(&uri, &env);
    for family in families {
        builder = family.with_operator(builder);
    }
    let db = builder.open_read_only().wait()?;
    let default = db.blocking().default_keyspace();
    Ok(Box::new(Database { db, env, default, uri }))
}

/// Makes accepted writes durable and ends the database. Column families, iterators and snapshots
/// have to be destroyed before.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_close(db: Option<Box<Database>>) {
    guarded!(null_mut(), (), || match db {
        None => Ok(()),
        Some(database) => database.db.close().wait(),
    });
}

/// Deletes a database, there or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_destroy_db(
    options: Option<&OptionsHandle>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let builder = handle(options, "options")?.builder(&uri(text!(name)?)?, &Env::real());
        match builder.destroy().wait() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            destroyed => destroyed.map(drop),
        }
    });
}

/// Refused: `tombolo db salvage` saves a damaged database into another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_repair_db(
    _options: Option<&OptionsHandle>,
    _name: *const c_char,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        Err(unsupported("a database is not repaired in its place")
            .advice("save it into another one: tombolo db salvage"))
    });
}

/// Writes all that is in memory to tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_flush(
    db: Option<&Database>,
    _options: Option<&crate::accepted::FlushOptions>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || handle(db, "database")?.db.flush().wait());
}

/// As `rocksdb_flush`: a flush is of all column families.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_flush_cf(
    db: Option<&Database>,
    _options: Option<&crate::accepted::FlushOptions>,
    _column_family: Option<&Family>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || handle(db, "database")?.db.flush().wait());
}

/// Makes accepted writes durable; without `sync` there is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_flush_wal(db: Option<&Database>, sync: c_uchar, errptr: *mut *mut c_char) {
    guarded!(errptr, (), || {
        let database = handle(db, "database")?;
        if sync == 0 { Ok(()) } else { database.db.sync().wait() }
    });
}

/// A range of keys.
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Range bounds of pointers that may be null.
fn range<'a>(
    start: *const c_char,
    start_length: usize,
    limit: *const c_char,
    limit_length: usize,
) -> Result<Range<'a>> {
    let bound = |pointer: *const c_char, length, side: fn(&'a [u8]) -> Bound<&'a [u8]>| {
        let key: &'a [u8] = bytes!(pointer, length)?;
        Ok::<_, tombolo::Error>(if pointer.is_null() { Bound::Unbounded } else { side(key) })
    };
    Ok((bound(start, start_length, Bound::Included)?, bound(limit, limit_length, Bound::Excluded)?))
}

fn compact(db: Option<&Database>, family: Option<&Family>, range: Result<Range<'_>>) -> Result<()> {
    handle(db, "database")?.family(family).keyspace().compact_range::<&[u8]>(range?).wait()
}

/// Compacts the keys from `start_key` on and before `limit_key`; null is no bound. An error is not
/// told, as RocksDB does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_compact_range(
    db: Option<&Database>,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    guarded!(null_mut(), (), || {
        compact(db, None, range(start_key, start_key_len, limit_key, limit_key_len))
    });
}

/// As `rocksdb_compact_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_compact_range_cf(
    db: Option<&Database>,
    column_family: Option<&Family>,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    guarded!(null_mut(), (), || {
        compact(db, given(column_family)?, range(start_key, start_key_len, limit_key, limit_key_len))
    });
}

/// A state of all column families, which stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_create_snapshot(db: Option<&Database>) -> Option<Box<SnapshotHandle>> {
    guarded!(null_mut(), None, || {
        Ok(Some(Box::new(SnapshotHandle(handle(db, "database")?.db.snapshot()))))
    })
}

/// Lets go of what a snapshot keeps.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_release_snapshot(_db: Option<&Database>, snapshot: Option<Box<SnapshotHandle>>) {
    drop(snapshot);
}

/// The newest sequence number that a snapshot sees.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_snapshot_get_sequence_number(snapshot: Option<&SnapshotHandle>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.0.sequence())
}

/// The newest sequence number that reads see.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_get_latest_sequence_number(db: Option<&Database>) -> u64 {
    db.map_or(0, |database| database.db.stats().last_sequence)
}

/// RocksDB's properties that have a sense here, and Tombolo's own by their names.
fn property(db: Option<&Database>, name: &str) -> Result<String> {
    let db = &handle(db, "database")?.db;
    if let Some(level) = name.strip_prefix("rocksdb.num-files-at-level") {
        let levels = db.stats().tables_by_level;
        let level: usize = level.parse().map_err(|_| unsupported("there is no such level"))?;
        return Ok(levels.get(level).copied().unwrap_or(0).to_string());
    }
    let name = match name {
        "rocksdb.estimate-num-keys" => "keys-estimated",
        "rocksdb.total-sst-files-size"
        | "rocksdb.live-sst-files-size"
        | "rocksdb.estimate-live-data-size" => "table-bytes",
        "rocksdb.cur-size-all-mem-tables" | "rocksdb.size-all-mem-tables" => "memory-memtables",
        "rocksdb.block-cache-usage" => "memory-cache",
        "rocksdb.num-immutable-mem-table" => "memtables-waiting",
        "rocksdb.num-running-compactions" => "compactions-running",
        "rocksdb.estimate-pending-compaction-bytes" => "compaction-bytes-pending",
        "rocksdb.num-snapshots" => "snapshots",
        "rocksdb.background-errors" => "background-errors",
        "rocksdb.actual-delayed-write-rate" => "write-rate-max",
        "rocksdb.stats" => {
            let all = db.properties();
            let line = |property: &tombolo::Property| format!("{}: {}\n", property.name, property.value);
            return Ok(all.iter().map(line).collect());
        }
        own => own,
    };
    let property = db.property(name)?;
    Ok(property.value.number().map_or_else(|| property.value.to_string(), |number| number.to_string()))
}

/// What the database says of itself, to be freed; null of an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_property_value(
    db: Option<&Database>,
    propname: *const c_char,
) -> *mut c_char {
    guarded!(null_mut(), null_mut(), || Ok(copy_text(&property(db, text!(propname)?)?)))
}

/// As `rocksdb_property_value`: of the whole database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_property_value_cf(
    db: Option<&Database>,
    _column_family: Option<&Family>,
    propname: *const c_char,
) -> *mut c_char {
    guarded!(null_mut(), null_mut(), || Ok(copy_text(&property(db, text!(propname)?)?)))
}

/// As a number; -1 of an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_property_int(
    db: Option<&Database>,
    propname: *const c_char,
    out_val: *mut u64,
) -> c_int {
    guarded!(null_mut(), -1, || {
        let number = property(db, text!(propname)?)?;
        give!(out_val, number.parse().map_err(|_| unsupported("a property that is no number"))?);
        Ok(0)
    })
}

/// The bytes of tables that keys of each range take, about.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_approximate_sizes(
    db: Option<&Database>,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let count = usize::try_from(num_ranges).unwrap_or(0);
        check_arrays(
            count,
            &[
                range_start_key.is_null(),
                range_start_key_len.is_null(),
                range_limit_key.is_null(),
                range_limit_key_len.is_null(),
                sizes.is_null(),
            ],
        )?;
        let keyspace = handle(db, "database")?.default.keyspace();
        for index in 0..count {
            let range = range(
                place!(range_start_key, index),
                place!(range_start_key_len, index),
                place!(range_limit_key, index),
                place!(range_limit_key_len, index),
            )?;
            let size = keyspace.approximate_size::<&[u8]>(range).wait()?;
            // SAFETY: the caller's array has as many places, and is not null.
            give!(unsafe { sizes.add(index) }, size.table_bytes);
        }
        Ok(())
    });
}
