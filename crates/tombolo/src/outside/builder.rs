//! Making a table that is part of no database.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Env, TaskClass};
use tombolo_format::expiry::{EXPIRY_MS_MAX, join_expiring};
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::TableName;
use tombolo_format::operands::OperandList;
use tombolo_storage::{Epoch, Error, ErrorKind, ObjectName, ObjectStore, Purpose, Registry, Request};

use super::TablePlace;
use crate::op::Op;
use crate::options::KeyspaceOptions;
use crate::table::{NewTable, TableWriter};
use crate::version::{BLOCK_BYTES_BEYOND, LEVEL_LAST, table_options};

/// Output is handed to the store in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A table that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableFile {
    /// Its bytes.
    pub bytes: u64,
    /// Its entries, deletes included.
    pub entries: u64,
    /// Its deletes.
    pub deletes: u64,
    /// Its smallest key.
    pub first_key: Bytes,
    /// Its greatest key.
    pub last_key: Bytes,
}

/// Makes a table outside of any database, of entries in the order of their keys, which
/// [`Db::ingest`](crate::Db::ingest) makes part of one: without a log, a memtable or a compaction
/// of their data. Any number of processes may make tables at once, on any host.
///
/// Entries come in ascending order of keys, each key once. One block of data, a piece of output and
/// the table's index (about 2 % of the data) are held in memory. Nothing is there before
/// [`TableFileBuilder::finish`]; dropping the builder leaves nothing.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// use tombolo::{Db, KeyspaceOptions, TableFileBuilder};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let part = directory.join("part-1.table");
/// let mut table = TableFileBuilder::create(part.as_path(), KeyspaceOptions::default()).wait()?;
/// for number in 0..1000_u32 {
///     table.put(&number.to_be_bytes(), b"value").wait()?;
/// }
/// assert_eq!(table.finish().wait()?.entries, 1000);
///
/// let db = Db::from_path(directory.join("orders"))?.open().wait()?;
/// db.default_keyspace().ingest([part]).wait()?;
/// assert!(db.default_keyspace().get(&7_u32.to_be_bytes()).wait()?.is_some());
/// # db.close().wait()?;
/// # Ok(())
/// # }
/// ```
pub struct TableFileBuilder {
    env: Env,
    place: TablePlace,
    /// `None` while output is handed to the store, and after that has failed.
    writer: Arc<Mutex<Option<TableWriter>>>,
    last: Option<Vec<u8>>,
    options: KeyspaceOptions,
}

impl fmt::Debug for TableFileBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TableFileBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}

impl TableFileBuilder {
    /// Begins a table at `place`, where nothing may be, built as those of a keyspace with these
    /// options.
    ///
    /// # Errors
    /// `Invalid` for a place that is none, or an option out of range; those of the store.
    #[allow(clippy::needless_pass_by_value, reason = "callers write the options in place")]
    pub fn create(place: impl Into<TablePlace>, options: KeyspaceOptions) -> Op<TableFileBuilder> {
        TableFileBuilder::create_with(Env::real(), Registry::with_defaults(), place, options)
    }

    /// As [`TableFileBuilder::create`], in a world and with schemes that the caller has: those of
    /// the databases beside it share threads and stores.
    ///
    /// # Errors
    /// As there.
    #[allow(clippy::needless_pass_by_value, reason = "clones of one registry are as good as it")]
    pub fn create_with(
        env: Env,
        registry: Registry,
        place: impl Into<TablePlace>,
        options: KeyspaceOptions,
    ) -> Op<TableFileBuilder> {
        let place = place.into();
        if let Err(error) = options.check() {
            return Op::ready(Err(error));
        }
        let opened = match place.resolve(|uri| registry.open_object_store(&env, uri)) {
            Ok(opened) => opened,
            Err(error) => return Op::ready(Err(error)),
        };
        TableFileBuilder::begin(env, place, opened, options)
    }

    /// As [`TableFileBuilder::create_with`], where the store is open and the object has a name.
    pub(crate) fn begin(
        env: Env,
        place: TablePlace,
        (store, object): (Arc<dyn ObjectStore>, ObjectName),
        options: KeyspaceOptions,
    ) -> Op<TableFileBuilder> {
        let world = env.clone();
        Op::start(&world, TaskClass::Foreground, "begin a table", async move {
            let oldest = env.unix_time().as_secs();
            let new = NewTable {
                name: TableName { epoch: 0, random: 0 },
                object,
                identity: env.random_u64(),
                // That is where most tables from outside stay.
                level: LEVEL_LAST,
                options: table_options(&options, 0, true, oldest, BLOCK_BYTES_BEYOND, PIECE_BYTES),
            };
            let request = Request::new(Purpose::Flush, Epoch::NONE);
            let operator = options.operator.as_ref().map(ToString::to_string);
            let writer = TableWriter::create(&*store, request, new).await?.with_operator(operator);
            let writer = Arc::new(Mutex::new(Some(writer)));
            Ok(TableFileBuilder { env, place, writer, last: None, options })
        })
    }

    /// The next entry: `key` has this value.
    ///
    /// Most often it is there at once; now and then output is handed to the store, and the next
    /// entry has to wait for it.
    ///
    /// # Errors
    /// `Invalid` when the key is not greater than the one before, or beyond a limit: nothing was
    /// added. `Busy` while the one before is not there. Those of the store: the table is lost.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op<()> {
        self.add(EntryKind::Put, key.as_ref(), value.as_ref())
    }

    /// The next entry: `key` has this value until a moment of the time of the database that takes
    /// the table, in milliseconds since the Unix epoch ([`crate::Db::time_ms`]).
    ///
    /// # Errors
    /// As [`TableFileBuilder::put`]; `Invalid` for a moment beyond all time.
    pub fn put_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires_ms: u64) -> Op<()> {
        if expires_ms > EXPIRY_MS_MAX {
            let message = format!("a value that ends at {expires_ms} ms, beyond all time");
            let error = Error::new(ErrorKind::Invalid, message).object(&self.place);
            return Op::ready(Err(error.advice(format!("the latest end is {EXPIRY_MS_MAX} ms"))));
        }
        self.add(EntryKind::ExpiringPut, key.as_ref(), &join_expiring(value.as_ref(), expires_ms))
    }

    /// The next entry: these operands, oldest first, are merged into what a database has for `key`.
    /// The table says for which operator they are, that of its options
    /// ([`KeyspaceOptions::operator`]), and no keyspace with another takes it.
    ///
    /// # Errors
    /// As [`TableFileBuilder::put`]; `Invalid` without an operator, and without an operand.
    pub fn merge<O: AsRef<[u8]>>(
        &mut self,
        key: impl AsRef<[u8]>,
        operands: impl IntoIterator<Item = O>,
    ) -> Op<()> {
        let refused = |what: &str, advice: &str| {
            let error = Error::new(ErrorKind::Invalid, what.to_owned()).object(&self.place);
            Op::ready(Err(error.advice(advice.to_owned())))
        };
        if self.options.operator.is_none() {
            return refused("operands of no operator", "name it in the options of the table");
        }
        let mut operands = operands.into_iter();
        let Some(first) = operands.next() else {
            return refused("a merge without an operand", "give one at least, or leave the key out");
        };
        let Some(second) = operands.next() else {
            return self.add(EntryKind::Merge, key.as_ref(), first.as_ref());
        };
        let mut list = OperandList::default();
        list.push(first.as_ref());
        list.push(second.as_ref());
        operands.for_each(|operand| list.push(operand.as_ref()));
        self.add(EntryKind::MergeList, key.as_ref(), &list.finish())
    }

    /// The next entry: `key` has no value, whatever a database had for it.
    ///
    /// # Errors
    /// As [`TableFileBuilder::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Op<()> {
        self.add(EntryKind::Delete, key.as_ref(), b"")
    }

    /// Bytes of the table so far, for deciding when it is large enough: about 64 MiB suit a
    /// database well.
    pub fn bytes(&self) -> u64 {
        self.writer.lock().as_ref().map_or(0, TableWriter::table_bytes)
    }

    /// Completes the table: it is durable when the operation ends.
    ///
    /// # Errors
    /// `Invalid` when it has no entry; `AlreadyExists` when the place turned out to be taken; those
    /// of the store.
    pub fn finish(self) -> Op<TableFile> {
        let Some(writer) = self.writer.lock().take() else { return Op::ready(Err(busy())) };
        Op::start(&self.env, TaskClass::Foreground, "finish a table", async move {
            let Some(table) = writer.finish().await? else {
                let error = Error::new(ErrorKind::Invalid, "a table without entries");
                return Err(error.object(&self.place).advice("add an entry, or make no table"));
            };
            Ok(TableFile {
                bytes: table.length,
                entries: table.entries,
                deletes: table.deletes,
                first_key: table.first_key,
                last_key: table.last_key,
            })
        })
    }

    /// The settings that it is built with.
    pub fn options(&self) -> &KeyspaceOptions {
        &self.options
    }

    fn add(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) -> Op<()> {
        if self.last.as_deref().is_some_and(|last| last >= key) {
            return Op::ready(Err(self.out_of_order(key)));
        }
        let mut held = self.writer.lock();
        let Some(writer) = held.as_mut() else { return Op::ready(Err(busy())) };
        let entry = InternalKey::new(key, Trailer::new(SequenceNumber::ZERO, kind));
        if let Err(error) = writer.add(entry, value) {
            return Op::ready(Err(error));
        }
        let wants_flush = writer.wants_flush();
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if !wants_flush {
            return Op::ready(Ok(()));
        }
        let Some(mut writer) = held.take() else { return Op::ready(Err(busy())) };
        let place = Arc::clone(&self.writer);
        drop(held);
        Op::start(&self.env, TaskClass::Foreground, "write a table", async move {
            writer.flush().await?;
            *place.lock() = Some(writer);
            Ok(())
        })
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let last = self.last.as_deref().unwrap_or_default();
        let what = if last == key { "a key twice in a table" } else { "keys of a table out of order" };
        Error::new(ErrorKind::Invalid, what)
            .object(&self.place)
            .expected(format!("a key after {:?}", Bytes::copy_from_slice(last)))
            .found(format!("{:?}", Bytes::copy_from_slice(key)))
            .advice("sort the entries by key, byte by byte, and keep one of each key")
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, "output of the table is being handed to the store, or that has failed")
        .advice("wait for each entry before the next; begin the table again after an error")
}
