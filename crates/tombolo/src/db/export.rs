//! Giving a keyspace out as tables: `cursor → tables, one after the other`.

use std::fmt;

use tombolo_storage::location::location_of;
use tombolo_storage::{Epoch, Error, ErrorKind, Purpose, Request, Result, Uri};

use crate::db::{Cursor, Db, Ingest, Keyspace, Snapshot};
use crate::engine::Engine;
use crate::op::Op;
use crate::outside::{IngestOptions, TableFile, TableFileBuilder, TablePlace};

/// A table ends at about so many bytes, unless its exporter says otherwise.
const TABLE_BYTES: u64 = 64 << 20;

/// What was exported, so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Tables that are whole.
    pub tables: u64,
    /// Keys that were read.
    pub keys: u64,
    /// Bytes of their keys, values and operands.
    pub bytes: u64,
}

type Progress = Box<dyn FnMut(&ExportReport) + Send>;

/// A keyspace to be exported as tables: see [`Db::export_tables`].
///
/// ```no_run
/// # fn f(db: &tombolo::Db, other: &tombolo::Db) -> tombolo::Result<()> {
/// use tombolo::Export;
///
/// let orders = db.keyspace("orders")?;
/// let exported = db.export_tables(Export::new(&orders), "file:///backup/orders").wait()?;
/// let copy = other.create_keyspace("orders", orders.options()).wait()?;
/// other.ingest(exported.ingest_into(&copy).exchange(&copy)).wait()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is exported before Db::export_tables"]
pub struct Export {
    keyspace: Keyspace,
    snapshot: Option<Snapshot>,
    table_bytes: u64,
    keeps_merges: bool,
    progress: Progress,
}

impl fmt::Debug for Export {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Export")
            .field("keyspace", &self.keyspace)
            .field("snapshot", &self.snapshot)
            .field("table_bytes", &self.table_bytes)
            .field("keeps_merges", &self.keeps_merges)
            .finish_non_exhaustive()
    }
}

impl Export {
    /// All of the keyspace as it is when the export begins.
    pub fn new(keyspace: &Keyspace) -> Export {
        Export {
            keyspace: keyspace.clone(),
            snapshot: None,
            table_bytes: TABLE_BYTES,
            keeps_merges: false,
            progress: Box::new(|_report| ()),
        }
    }

    /// As it is in a snapshot. So several keyspaces are exported as they were at one moment.
    pub fn at(mut self, snapshot: &Snapshot) -> Export {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// A table ends at about so many bytes. Default: 64 MiB, which suits a database well.
    pub fn table_bytes(mut self, bytes: u64) -> Export {
        self.table_bytes = bytes;
        self
    }

    /// Operands are written as they are, in tables that lie over those of the values, and none is
    /// folded: where the keyspace's operator is not there. The keyspace that they are ingested into
    /// must name the same operator.
    pub fn keep_merges(mut self) -> Export {
        self.keeps_merges = true;
        self
    }

    /// Who is told how far it has come, now and then and after each table.
    pub fn progress(mut self, progress: impl FnMut(&ExportReport) + Send + 'static) -> Export {
        self.progress = Box::new(progress);
        self
    }
}

/// A table of an export.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExportedTable {
    /// Its name below the place of the export: `part-00001.table`, or `merges-00001.table`.
    pub name: String,
    /// Where it is.
    pub place: TablePlace,
    /// What it holds.
    pub table: TableFile,
}

/// The tables of a keyspace, which are part of no database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exported {
    /// None of an empty keyspace. Where operands were kept, their tables come last.
    pub tables: Vec<ExportedTable>,
    /// Whether tables may hold the same keys, so that later ones must lie over earlier ones
    /// ([`IngestOptions::ordered`]).
    pub ordered: bool,
}

impl Exported {
    /// What takes them into a keyspace, of this database or another. With [`Ingest::exchange`] it
    /// then holds exactly them.
    pub fn ingest_into(&self, keyspace: &Keyspace) -> Ingest {
        let options = IngestOptions { ordered: self.ordered, ..IngestOptions::default() };
        let all = Ingest::new().options(options);
        self.tables.iter().fold(all, |all, table| all.table(keyspace, table.place.clone()))
    }
}

impl Db {
    /// Writes all of a keyspace, as it is at one moment, as tables that are part of no database: at
    /// `place`, a path or a URI under which nothing may be yet. Any keyspace can take them in
    /// ([`Exported::ingest_into`], [`Db::ingest`]), here or elsewhere.
    ///
    /// One version of each key, in order; values that end keep their end, and what was put apart
    /// lies in the tables. Costs a walk over the keyspace, and its bytes once in that store.
    /// Readers and read-only databases export as well. After an error nothing of it is there;
    /// dropped, the operation leaves the tables that were whole.
    ///
    /// # Errors
    /// `AlreadyExists` where tables are; `Unsupported` where operands are to be folded and the
    /// operator is not there; `Invalid` for operands that end and are to be kept, as a table does
    /// not say when each was written; `NotFound` for a keyspace that was dropped; those of reads
    /// and of that store.
    pub fn export_tables(&self, export: Export, place: impl Into<TablePlace>) -> Op<Exported> {
        let place = place.into();
        if let Err(error) = self.check_export(&export) {
            return Op::ready(Err(error));
        }
        let engine = std::sync::Arc::clone(self.engine());
        self.limited("export", || {
            let env = engine.env.clone();
            Op::start_read(&env, "export a keyspace", async move {
                let mut tables = Tables { engine: &engine, export, place, made: Vec::new() };
                match tables.write().await {
                    Ok(ordered) => Ok(Exported { tables: tables.made, ordered }),
                    Err(error) => {
                        tables.delete().await;
                        Err(error)
                    }
                }
            })
        })
    }

    /// # Errors
    /// `Invalid` for a keyspace or snapshot of another database; `NotFound` for a keyspace that was
    /// dropped.
    fn check_export(&self, export: &Export) -> Result<()> {
        let Export { keyspace, snapshot, .. } = export;
        if !std::sync::Arc::ptr_eq(&keyspace.handle().root().engine, self.engine()) {
            let message = format!("keyspace {:?} is of another database", keyspace.name());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        keyspace.info().check()?;
        snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.of(keyspace).map(drop))
    }
}

impl Keyspace {
    /// As [`Db::export_tables`], of all that this keyspace holds now.
    ///
    /// # Errors
    /// As there.
    pub fn export_tables(&self, place: impl Into<TablePlace>) -> Op<Exported> {
        Db::of_keyspace(self).export_tables(Export::new(self), place)
    }
}

/// Tables on their way.
struct Tables<'a> {
    engine: &'a Engine,
    export: Export,
    place: TablePlace,
    made: Vec<ExportedTable>,
}

/// The table that is being written, of those with one name.
struct Open {
    /// Before the number, in the names of the objects.
    name: &'static str,
    tables: usize,
    table: Option<(String, TablePlace, TableFileBuilder)>,
}

impl Open {
    fn new(name: &'static str) -> Open {
        Open { name, tables: 0, table: None }
    }
}

impl Tables<'_> {
    /// Writes all of them; says whether their order counts.
    async fn write(&mut self) -> Result<bool> {
        let (mut values, mut merges) = (Open::new("part"), Open::new("merges"));
        let (Export { keyspace, snapshot, keeps_merges, .. }, mut report) =
            (&self.export, ExportReport::default());
        let ordered = *keeps_merges;
        let cursor = match snapshot {
            Some(snapshot) => snapshot.cursor::<&[u8]>(keyspace, ..),
            None => keyspace.cursor::<&[u8]>(..),
        };
        let mut cursor = if ordered { cursor.unfolded() } else { cursor };
        while cursor.next_async().await? {
            report.keys += 1;
            report.bytes += (cursor.key().len() + cursor.value().len()) as u64;
            match cursor.operands() {
                None => {
                    self.add(&mut values, &mut report, |table| match cursor.expires_ms() {
                        None => table.put(cursor.key(), cursor.value()),
                        Some(end) => table.put_until(cursor.key(), cursor.value(), end),
                    })
                    .await?;
                }
                Some(unfolded) if unfolded.operands_end => return Err(operands_end(&cursor)),
                Some(unfolded) => {
                    // Over nothing they lie over nothing where they are ingested, too.
                    self.add(&mut values, &mut report, |table| {
                        match (&unfolded.value, unfolded.value_expires_ms) {
                            (Some(value), None) => table.put(cursor.key(), value),
                            (Some(value), Some(end)) => table.put_until(cursor.key(), value, end),
                            (None, _) => table.delete(cursor.key()),
                        }
                    })
                    .await?;
                    report.bytes += unfolded.operands.iter().map(|operand| operand.len() as u64).sum::<u64>();
                    let operands = &unfolded.operands;
                    self.add(&mut merges, &mut report, |table| table.merge(cursor.key(), operands)).await?;
                }
            }
        }
        self.end(&mut values, &mut report).await?;
        let before = self.made.len();
        self.end(&mut merges, &mut report).await?;
        // Some of them were whole before the last values.
        let last = self.made.split_off(before);
        let (of_merges, of_values) =
            std::mem::take(&mut self.made).into_iter().partition(|table| table.name.starts_with(merges.name));
        self.made = of_values;
        self.made.extend::<Vec<_>>(of_merges);
        self.made.extend(last);
        Ok(ordered)
    }

    /// Adds an entry to the table that is open, or to another.
    async fn add(
        &mut self,
        open: &mut Open,
        report: &mut ExportReport,
        entry: impl FnOnce(&mut TableFileBuilder) -> Op<()>,
    ) -> Result<()> {
        if open.table.is_none() {
            open.tables += 1;
            let name = format!("{}-{:05}.table", open.name, open.tables);
            let place = self.place.below(&name)?;
            let options = self.export.keyspace.options();
            let opened = place.resolve(|uri: &Uri| location_of(&*self.engine.objects)?.open(uri))?;
            let env = self.engine.env.clone();
            let table = TableFileBuilder::begin(env, place.clone(), opened, options).await?;
            open.table = Some((name, place, table));
        }
        let Some((_, _, table)) = &mut open.table else { return Ok(()) };
        entry(table).await?;
        if table.bytes() >= self.export.table_bytes { self.end(open, report).await } else { Ok(()) }
    }

    async fn end(&mut self, open: &mut Open, report: &mut ExportReport) -> Result<()> {
        if let Some((name, place, table)) = open.table.take() {
            let table = table.finish().await?;
            self.made.push(ExportedTable { name, place, table });
            report.tables += 1;
            (self.export.progress)(report);
        }
        Ok(())
    }

    /// Deletes what was made; what cannot be deleted stays, and is part of nothing.
    async fn delete(&mut self) {
        let request = Request::new(Purpose::Collection, Epoch::NONE);
        for ExportedTable { place, .. } in &self.made {
            let resolved = place.resolve(|uri: &Uri| location_of(&*self.engine.objects)?.open(uri));
            let deleted = match resolved {
                Ok((store, object)) => store.delete(request, &object).await,
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                tracing::warn!(%error, %place, "a table of an export that failed stays");
            }
        }
    }
}

#[cold]
fn operands_end(cursor: &Cursor) -> Error {
    let key = bytes::Bytes::copy_from_slice(cursor.key());
    Error::new(ErrorKind::Invalid, format!("operands of key {key:?} end, and cannot be kept in a table"))
        .advice("export without keeping them, by a program that has the merge operator")
}
