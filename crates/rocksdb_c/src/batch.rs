//! Batches, in the bytes that RocksDB keeps them in, so that programs that read them find the same.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | sequence number: 0 |
//! | 4 | number of writes, little-endian |
//! | | records |
//!
//! A record is a tag, in a column family its number as a varint, then texts, each with its length
//! as a varint before it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use tombolo::{Batch, Error, Keyspace, Result, Transaction};
use tombolo_c::boundary::{handle_mut, invalid};
use tombolo_c::{bytes, give};

use crate::door::unsupported;
use crate::guarded;
use crate::handles::{Database, Family, given};

const HEADER_BYTES: usize = 12;

/// Kinds of records: the tag for the default column family, that for another, and how many texts
/// follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    SingleDelete,
    DeleteRange,
    Merge,
    LogData,
}

const TAGS: [(Kind, u8, u8, usize); 6] = [
    (Kind::Delete, 0, 4, 1),
    (Kind::Put, 1, 5, 2),
    (Kind::Merge, 2, 6, 2),
    (Kind::LogData, 3, 3, 1),
    (Kind::SingleDelete, 7, 8, 1),
    (Kind::DeleteRange, 15, 14, 2),
];

/// Writes that take effect together. One thread uses it at a time.
pub struct WriteBatch {
    bytes: Vec<u8>,
    /// Column families that were named, so that they need not be looked for.
    families: Vec<Keyspace>,
    save_points: Vec<SavePoint>,
    /// What an addition failed with, which had no place to say so: the batch cannot be written.
    wrong: Option<Error>,
}

/// To what it may be rolled back.
struct SavePoint {
    length: usize,
    count: u32,
    is_well: bool,
}

struct Record<'a> {
    kind: Kind,
    family: u32,
    first: &'a [u8],
    second: &'a [u8],
}

impl Default for WriteBatch {
    fn default() -> WriteBatch {
        WriteBatch {
            bytes: vec![0; HEADER_BYTES],
            families: Vec::new(),
            save_points: Vec::new(),
            wrong: None,
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_varint(bytes)? as usize;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

impl WriteBatch {
    fn count(&self) -> u32 {
        self.bytes[8..HEADER_BYTES].try_into().map_or(0, u32::from_le_bytes)
    }

    fn set_count(&mut self, count: u32) {
        self.bytes[8..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    fn add(&mut self, kind: Kind, family: Option<&Family>, texts: &[&[u8]]) -> Result<()> {
        let lengths: Vec<u32> = texts
            .iter()
            .map(|text| u32::try_from(text.len()).map_err(|_| invalid("a key or value of 4 GiB or more")))
            .collect::<Result<_>>()?;
        let Some((_, plain, with_family, _)) = TAGS.iter().find(|(known, ..)| *known == kind) else {
            return Ok(());
        };
        let number = family.map_or(0, |family| family.0.keyspace().id());
        if let Some(family) = family.filter(|_| number != 0) {
            if !self.families.iter().any(|known| known.id() == number) {
                self.families.push(family.0.keyspace().clone());
            }
            self.bytes.push(*with_family);
            put_varint(&mut self.bytes, number);
        } else {
            self.bytes.push(*plain);
        }
        for (text, length) in texts.iter().zip(lengths) {
            put_varint(&mut self.bytes, length);
            self.bytes.extend_from_slice(text);
        }
        if kind != Kind::LogData {
            self.set_count(self.count().saturating_add(1));
        }
        Ok(())
    }

    /// Gives its records to `each`, in their order.
    ///
    /// # Errors
    /// `Invalid` for bytes that are none, after the records before them; those of `each`.
    fn records(&self, mut each: impl FnMut(Record<'_>) -> Result<()>) -> Result<()> {
        let mut rest = &self.bytes[HEADER_BYTES..];
        let mut writes = 0_u32;
        let damaged = || invalid("the bytes are no batch of RocksDB's");
        while let Some((tag, after)) = rest.split_first() {
            rest = after;
            let known = TAGS.iter().find(|(_, plain, family, _)| plain == tag || family == tag);
            let (kind, plain, _, texts) = known.ok_or_else(|| {
                damaged().expected("a put, merge, delete or log data").found(format!("a record of tag {tag}"))
            })?;
            let family = if tag == plain { 0 } else { take_varint(&mut rest).ok_or_else(damaged)? };
            let first = take_text(&mut rest).ok_or_else(damaged)?;
            let second = if *texts == 2 { take_text(&mut rest).ok_or_else(damaged)? } else { &[] };
            writes = writes.saturating_add(u32::from(*kind != Kind::LogData));
            each(Record { kind: *kind, family, first, second })?;
        }
        // Without this, bytes that end early between two records would be a shorter batch.
        if writes != self.count() {
            return Err(damaged().expected(format!("{} writes", self.count())).found(writes));
        }
        Ok(())
    }

    /// As Tombolo writes it.
    ///
    /// # Errors
    /// `Invalid` for bytes that are none, and for column families that are not there; what an
    /// addition failed with.
    pub(crate) fn to_batch(&self, database: &Database) -> Result<Batch> {
        let mut batch = Batch::new();
        self.writes(database, |kind, keyspace, first, second| {
            match kind {
                Kind::Put => batch.put(keyspace, first, second),
                Kind::Delete => batch.delete(keyspace, first),
                Kind::SingleDelete => batch.single_delete(keyspace, first),
                Kind::DeleteRange => batch.delete_range(keyspace, first, second),
                Kind::Merge | Kind::LogData => batch.merge(keyspace, first, second),
            };
            Ok(())
        })?;
        Ok(batch)
    }

    /// Makes its writes those of a transaction.
    ///
    /// # Errors
    /// As of `to_batch`; those of the transaction's verbs.
    pub(crate) fn write_in(&self, database: &Database, transaction: &Transaction) -> Result<()> {
        self.writes(database, |kind, keyspace, first, second| {
            let write = match kind {
                Kind::Put => transaction.put(keyspace, first, second),
                Kind::Delete => transaction.delete(keyspace, first),
                Kind::SingleDelete => transaction.single_delete(keyspace, first),
                Kind::DeleteRange => transaction.delete_range(keyspace, first, second),
                Kind::Merge | Kind::LogData => transaction.merge(keyspace, first, second),
            };
            write.wait()
        })
    }

    /// Gives its writes to `each`, in their order, with their keyspaces.
    fn writes(
        &self,
        database: &Database,
        mut each: impl FnMut(Kind, &Keyspace, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        if let Some(error) = &self.wrong {
            return Err(error.clone());
        }
        let mut families: Vec<Keyspace> = self.families.clone();
        families.push(database.default.keyspace().clone());
        self.records(|record| {
            if record.kind == Kind::LogData {
                return Ok(());
            }
            let at = match families.iter().position(|known| known.id() == record.family) {
                Some(at) => at,
                None => {
                    let missing = || {
                        invalid(format!("Invalid column family specified in write batch: {}", record.family))
                    };
                    families.push(database.by_number(record.family).ok_or_else(missing)?);
                    families.len() - 1
                }
            };
            each(record.kind, &families[at], record.first, record.second)
        })
    }
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writebatch_create() -> Option<Box<WriteBatch>> {
    Some(Box::default())
}

/// A batch of the bytes that `rocksdb_writebatch_data` gave; null of bytes that are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_create_from(
    rep: *const c_char,
    size: usize,
) -> Option<Box<WriteBatch>> {
    guarded!(null_mut(), None, || {
        let bytes = bytes!(rep, size)?.to_vec();
        if bytes.len() < HEADER_BYTES {
            return Err(invalid("the bytes are no batch of RocksDB's"));
        }
        Ok(Some(Box::new(WriteBatch { bytes, ..WriteBatch::default() })))
    })
}

/// What was not written is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writebatch_destroy(b: Option<Box<WriteBatch>>) {
    drop(b);
}

/// Forgets all writes in it.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writebatch_clear(b: Option<&mut WriteBatch>) {
    if let Some(batch) = b {
        *batch = WriteBatch::default();
    }
}

/// How many writes are in it.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writebatch_count(b: Option<&mut WriteBatch>) -> c_int {
    b.map_or(0, |batch| c_int::try_from(batch.count()).unwrap_or(c_int::MAX))
}

/// The bytes of the batch, until it changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_data(
    b: Option<&mut WriteBatch>,
    size: *mut usize,
) -> *const c_char {
    let bytes = b.map(|batch| &batch.bytes);
    give!(size, bytes.map_or(0, Vec::len));
    bytes.map_or(null(), |bytes| bytes.as_ptr().cast())
}

fn add(
    b: Option<&mut WriteBatch>,
    kind: Kind,
    family: Result<Option<&Family>>,
    first: (*const c_char, usize),
    second: Option<(*const c_char, usize)>,
) {
    let Some(batch) = b else { return };
    let texts = || -> Result<Vec<&[u8]>> {
        let first = bytes!(first.0, first.1)?;
        let second = second.map(|second| bytes!(second.0, second.1)).transpose()?;
        Ok(std::iter::once(first).chain(second).collect())
    };
    // RocksDB has no place for an error here. Writing the batch tells it, and writes nothing.
    if let Err(error) = family.and_then(|family| batch.add(kind, family, &texts()?)) {
        batch.wrong.get_or_insert(error);
    }
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_put(
    b: Option<&mut WriteBatch>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    add(b, Kind::Put, Ok(None), (key, klen), Some((val, vlen)));
}

/// Adds a put into a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_put_cf(
    b: Option<&mut WriteBatch>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    add(b, Kind::Put, given(column_family), (key, klen), Some((val, vlen)));
}

/// Adds a merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_merge(
    b: Option<&mut WriteBatch>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    add(b, Kind::Merge, Ok(None), (key, klen), Some((val, vlen)));
}

/// Adds a merge into a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_merge_cf(
    b: Option<&mut WriteBatch>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    add(b, Kind::Merge, given(column_family), (key, klen), Some((val, vlen)));
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_delete(
    b: Option<&mut WriteBatch>,
    key: *const c_char,
    klen: usize,
) {
    add(b, Kind::Delete, Ok(None), (key, klen), None);
}

/// Adds a delete in a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_delete_cf(
    b: Option<&mut WriteBatch>,
    column_family: Option<&Family>,
    key: *const c_char,
    klen: usize,
) {
    add(b, Kind::Delete, given(column_family), (key, klen), None);
}

/// Adds a delete of a key that was put once since it was last deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_singledelete(
    b: Option<&mut WriteBatch>,
    key: *const c_char,
    klen: usize,
) {
    add(b, Kind::SingleDelete, Ok(None), (key, klen), None);
}

/// Adds a delete of all keys from `start_key` on and before `end_key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_delete_range(
    b: Option<&mut WriteBatch>,
    start_key: *const c_char,
    start_key_len: usize,
    end_key: *const c_char,
    end_key_len: usize,
) {
    add(b, Kind::DeleteRange, Ok(None), (start_key, start_key_len), Some((end_key, end_key_len)));
}

/// As `rocksdb_writebatch_delete_range`, in a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_delete_range_cf(
    b: Option<&mut WriteBatch>,
    column_family: Option<&Family>,
    start_key: *const c_char,
    start_key_len: usize,
    end_key: *const c_char,
    end_key_len: usize,
) {
    add(b, Kind::DeleteRange, given(column_family), (start_key, start_key_len), Some((end_key, end_key_len)));
}

/// Adds bytes that are no write; they are in the batch's bytes and nowhere else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_put_log_data(
    b: Option<&mut WriteBatch>,
    blob: *const c_char,
    len: usize,
) {
    add(b, Kind::LogData, Ok(None), (blob, len), None);
}

/// Remembers how far the batch has come.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writebatch_set_save_point(b: Option<&mut WriteBatch>) {
    if let Some(batch) = b {
        let (length, count, is_well) = (batch.bytes.len(), batch.count(), batch.wrong.is_none());
        batch.save_points.push(SavePoint { length, count, is_well });
    }
}

/// Takes away what was added since the last save point, and the save point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_rollback_to_save_point(
    b: Option<&mut WriteBatch>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let batch = handle_mut(b, "batch")?;
        let missing = || Error::new(tombolo::ErrorKind::NotFound, "there is no save point");
        let SavePoint { length, count, is_well } = batch.save_points.pop().ok_or_else(missing)?;
        batch.bytes.truncate(length);
        batch.set_count(count);
        batch.wrong = batch.wrong.take().filter(|_| !is_well);
        Ok(())
    });
}

/// Gives puts and deletes of the default column family to functions of the program's, in their
/// order. As with RocksDB, it ends at the first write of another column family or of a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_writebatch_iterate(
    b: Option<&mut WriteBatch>,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
) {
    guarded!(null_mut(), (), || {
        handle_mut(b, "batch")?.records(|Record { kind, family, first, second }| {
            if family != 0 || kind == Kind::DeleteRange {
                return Err(unsupported("the functions take neither other column families nor ranges"));
            }
            let (key, length) = (first.as_ptr().cast(), first.len());
            match (kind, put, deleted) {
                // SAFETY: the caller's function, called as its type says; the bytes live longer.
                (Kind::Put, Some(put), _) => unsafe {
                    put(state, key, length, second.as_ptr().cast(), second.len());
                },
                // SAFETY: as above.
                (Kind::Delete, _, Some(deleted)) => unsafe { deleted(state, key, length) },
                _ => {}
            }
            Ok(())
        })
    });
}
