//! Taking tables from outside into a database.

use std::fmt;
use std::sync::Arc;

use tombolo_storage::Error;

use crate::db::{Db, Keyspace, engine_of};
use crate::engine::Engine;
use crate::op::Op;
use crate::outside::ingest::{IngestRequest, Progress, ingest};
use crate::outside::{IngestOptions, IngestReport, TablePlace};

/// Tables from outside that become part of a database together: see [`Db::ingest`].
///
/// ```no_run
/// # fn f(db: &tombolo::Db) -> tombolo::Result<()> {
/// use tombolo::{Bring, Ingest, IngestOptions};
///
/// let (orders, customers) = (db.keyspace("orders")?, db.keyspace("customers")?);
/// let tables = Ingest::new()
///     .table(&orders, "file:///parts/orders-1.table")
///     .table(&orders, "file:///parts/orders-2.table")
///     .table(&customers, "file:///parts/customers.table")
///     .options(IngestOptions { bring: Bring::Move, ..IngestOptions::default() });
/// let report = db.ingest(tables).wait()?;
/// println!("{} entries, visible from {}", report.entries, report.sequence);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "nothing is ingested before Db::ingest"]
pub struct Ingest {
    tables: Vec<(Keyspace, TablePlace)>,
    exchanged: Vec<Keyspace>,
    options: IngestOptions,
    progress: Option<Progress>,
}

impl fmt::Debug for Ingest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ingest")
            .field("tables", &self.tables)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Ingest {
    /// Nothing yet.
    pub fn new() -> Ingest {
        Ingest::default()
    }

    /// A table for a keyspace, after those before.
    pub fn table(mut self, keyspace: &Keyspace, place: impl Into<TablePlace>) -> Ingest {
        self.tables.push((keyspace.clone(), place.into()));
        self
    }

    /// All that the keyspace holds ends, and the tables for it take its place: at once, and
    /// durably, as one event. Without a table for it the keyspace is empty then.
    pub fn exchange(mut self, keyspace: &Keyspace) -> Ingest {
        self.exchanged.push(keyspace.clone());
        self
    }

    /// How they are ingested.
    pub fn options(mut self, options: IngestOptions) -> Ingest {
        self.options = options;
        self
    }

    /// Who is told how far it has come, after each table.
    pub fn progress(mut self, progress: impl FnMut(&IngestReport) + Send + 'static) -> Ingest {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Of this database; with the engine of the stream that it is of.
    fn of(self, main: &Arc<Engine>) -> Result<(Arc<Engine>, IngestRequest), Error> {
        let mut engine = None;
        for keyspace in self.tables.iter().map(|(keyspace, _)| keyspace).chain(&self.exchanged) {
            engine = Some(engine_of(main, keyspace, engine.as_ref())?);
        }
        let own = |keyspace: &Keyspace| Arc::clone(keyspace.info());
        let request = IngestRequest {
            tables: self.tables.into_iter().map(|(keyspace, place)| (own(&keyspace), place)).collect(),
            exchanged: self.exchanged.iter().map(own).collect(),
            options: self.options,
            progress: self.progress.unwrap_or_else(|| Box::new(|_report| ())),
        };
        Ok((engine.unwrap_or_else(|| Arc::clone(main)), request))
    }
}

impl Db {
    /// Makes tables from outside part of the database, all of them or none, in as many keyspaces of
    /// one stream as one likes: durable when the operation ends, and seen by reads, readers and
    /// snapshots as one event that is newer than every write before it.
    ///
    /// Their data goes through no log and no memtable. It costs a link or a copy of each table, one
    /// read of all its bytes to check them, one manifest record and one log append; the memtable is
    /// flushed soon after. Writers go on meanwhile. Tables that meet nothing stay as they are;
    /// others are merged by compaction like what flushes bring.
    ///
    /// # Errors
    /// `Invalid` for anything but a table of a [`TableFileBuilder`](crate::TableFileBuilder), for
    /// tables that meet without [`IngestOptions::ordered`], for keyspaces of several streams, and
    /// for nothing at all; `Corrupt` for a damaged table; `Unsupported` for one of a newer version,
    /// or with entries that the keyspace does not take; `NotFound` for a table that is not there or
    /// a keyspace that was dropped;
    /// `Conflict` for an exchange, and for tables [behind](IngestOptions::behind), while this
    /// process has snapshots open; those of the stores and of a write. Nothing was taken then,
    /// after `OutcomeUnknown` and `Fenced` perhaps all of it.
    pub fn ingest(&self, tables: Ingest) -> Op<IngestReport> {
        let engine = Arc::clone(self.engine());
        let (engine, request) = match engine.check_writable().and_then(|()| tables.of(&engine)) {
            Ok(request) => request,
            Err(error) => return Op::ready(Err(error)),
        };
        self.begin("ingest", async move { ingest(engine, request).await })
    }
}

impl Keyspace {
    /// As [`Db::ingest`], of tables for this keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn ingest<P: Into<TablePlace>>(&self, tables: impl IntoIterator<Item = P>) -> Op<IngestReport> {
        self.ingest_with(tables, IngestOptions::default())
    }

    /// As [`Keyspace::ingest`], in another way.
    ///
    /// # Errors
    /// As there.
    pub fn ingest_with<P: Into<TablePlace>>(
        &self,
        tables: impl IntoIterator<Item = P>,
        options: IngestOptions,
    ) -> Op<IngestReport> {
        let all = Ingest::new().options(options);
        let all = tables.into_iter().fold(all, |all, place| all.table(self, place));
        Db::of_keyspace(self).ingest(all)
    }
}
