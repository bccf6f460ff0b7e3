//! From RocksDB to Tombolo.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Bring, Db, Env, Error, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Registry, Result,
    TableFileBuilder, TablePlace,
};

use crate::digest::Digesting;
use crate::library::{Database, Library};
use crate::survey::{Known, survey};
use crate::{Digest, Report, Tell, stopped};

/// The keyspace that says that a migration is under way, and from where.
pub(crate) const MARK: &str = "tombolo-migration";
const MARK_KEY: &[u8] = b"from";
/// The family that is the default keyspace.
const DEFAULT: &str = "default";
/// Entries between two looks at the time and at the caller.
const LOOK_ENTRIES: u64 = 1024;
/// Bytes that the TTL wrapper adds to a value: when it was written, in seconds.
const TTL_BYTES: usize = 4;

/// A migration from RocksDB.
pub struct FromRocksdb<'a> {
    /// RocksDB's library.
    pub rocksdb: Arc<Library>,
    /// The database's directory.
    pub directory: PathBuf,
    /// The merge operator as RocksDB's library knows it (`stringappend`, `uint64add`, `max`): its
    /// operands are folded while they are read.
    pub merge_operator: Option<String>,
    /// The database was written by the TTL wrapper: its values end so long after they were written,
    /// or never with 0.
    pub ttl: Option<Duration>,
    /// No transaction is prepared.
    pub nothing_prepared: bool,
    /// A table is finished once it has so many bytes.
    pub table_bytes: u64,
    /// Bytes of entries that are read in a second, at most.
    pub bytes_per_second: Option<u64>,
    /// Both sides are read again and compared.
    pub compare: bool,
    /// The world, and the schemes of stores: those of the target.
    pub env: Env,
    /// The schemes of stores.
    pub registry: Registry,
    /// Where the table of this number is made, for as long as it is no part of the database.
    pub place: &'a dyn Fn(u64) -> Result<TablePlace>,
}

impl std::fmt::Debug for FromRocksdb<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FromRocksdb").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Carries a database over to `db`, which is empty, or holds what a stopped run has left.
///
/// # Errors
/// `Unsupported` for what would be carried over wrongly, by its name; `Invalid` for a target that
/// holds something else; `Corrupt` when the two sides differ in the end; `Closed` when `tell` ended
/// it; those of both databases.
pub fn from_rocksdb(db: &Db, asked: &FromRocksdb<'_>, tell: &mut Tell<'_>) -> Result<Report> {
    let known = Known {
        operator: asked.merge_operator.is_some(),
        ttl: asked.ttl.is_some(),
        nothing_prepared: asked.nothing_prepared,
    };
    survey(&asked.directory)?.check(known)?;
    let families = asked.rocksdb.families(&asked.directory)?;
    let operator = asked.merge_operator.as_deref();
    let source = Database::open_read_only(&asked.rocksdb, &asked.directory, &families, operator)?;
    for (index, family) in families.iter().enumerate() {
        check_operands(&source, index, family, operator)?;
    }
    let mark = mark(&asked.directory, &source)?;
    check_target(db, &mark, families.iter().any(|family| family == MARK))?;
    let mut run = Run { asked, tell, report: Report::default(), begun: asked.env.now() };
    for (index, family) in families.iter().enumerate() {
        let keyspace = keyspace(db, family)?;
        run.carry(db, &source, index, &keyspace)?;
        run.report.progress.keyspaces += 1;
    }
    if asked.compare {
        for (index, family) in families.iter().enumerate() {
            let keyspace = keyspace(db, family)?;
            let (from, to) = run.compare(db, &source, index, &keyspace)?;
            run.report.digests.push((family.clone(), from, to));
        }
    }
    db.drop_keyspace(MARK).wait()?;
    Ok(run.report)
}

/// Tables count the operands that they hold; those in the log are met by reading.
fn check_operands(source: &Database, index: usize, family: &str, operator: Option<&str>) -> Result<()> {
    let told = source.property(index, "rocksdb.aggregated-table-properties").unwrap_or_default();
    let operands = told
        .split(';')
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.trim().ends_with("merge operands"))
        .and_then(|(_, count)| count.trim().parse::<u64>().ok())
        .unwrap_or(0);
    if operands == 0 || operator.is_some() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("column family {family} has {operands} merge operands"))
        .advice("name their operator as RocksDB's library knows it: --merge-operator NAME"))
}

/// What tells this state of this database from others.
fn mark(directory: &Path, source: &Database) -> Result<String> {
    let path = directory.join("IDENTITY");
    let identity = match std::fs::read_to_string(&path) {
        Ok(identity) => identity,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::io(error, "reading a RocksDB database", path.display())),
    };
    Ok(format!("{} {}", identity.trim(), source.sequence()))
}

fn check_target(db: &Db, mark: &str, is_taken: bool) -> Result<()> {
    if is_taken {
        return Err(Error::new(ErrorKind::Unsupported, format!("a column family has the name {MARK}"))
            .advice("give it another name first"));
    }
    match db.keyspace(MARK) {
        Ok(marks) => {
            let held = marks.get(MARK_KEY).wait()?;
            if held.as_deref().is_none_or(|held| held == mark.as_bytes()) {
                return marks.put(MARK_KEY, mark).wait();
            }
            let held = held.map(|held| String::from_utf8_lossy(&held).into_owned()).unwrap_or_default();
            Err(Error::new(ErrorKind::Invalid, "the target holds a part of another state of a database")
                .expected(mark)
                .found(held)
                .advice("carry it over to another place, or destroy the target first"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut others = db.keyspaces();
            others.retain(|keyspace| keyspace.name() != DEFAULT);
            let mut cursor = db.default_keyspace().cursor::<&[u8]>(..);
            if !others.is_empty() || cursor.seek_to_first()? {
                return Err(Error::new(ErrorKind::Invalid, "the target is not empty")
                    .advice("carry it over to a new database"));
            }
            let marks = db.create_keyspace(MARK, KeyspaceOptions::default()).wait()?;
            marks.put(MARK_KEY, mark).wait()
        }
        Err(error) => Err(error),
    }
}

fn keyspace(db: &Db, family: &str) -> Result<Keyspace> {
    if family == DEFAULT {
        return Ok(db.default_keyspace());
    }
    db.open_or_create_keyspace(family, KeyspaceOptions::default()).wait()
}

struct Run<'a, 'b, 'c> {
    asked: &'a FromRocksdb<'b>,
    tell: &'a mut Tell<'c>,
    report: Report,
    begun: tombolo::Instant,
}

impl Run<'_, '_, '_> {
    /// Every so often: tells how far it is, and keeps to the rate.
    fn look(&mut self) -> Result<()> {
        if !(self.tell)(&self.report.progress) {
            return Err(stopped());
        }
        let Some(rate) = self.asked.bytes_per_second.filter(|rate| *rate > 0) else { return Ok(()) };
        let read = self.report.progress.bytes + self.report.progress.compared_bytes;
        #[allow(clippy::cast_precision_loss, reason = "a pace")]
        let due = self.begun + Duration::from_secs_f64(read as f64 / rate as f64);
        self.asked.env.block_on(self.asked.env.sleep_until(due));
        Ok(())
    }

    fn carry(&mut self, db: &Db, source: &Database, index: usize, keyspace: &Keyspace) -> Result<()> {
        let mut last = keyspace.cursor::<&[u8]>(..);
        let behind = if last.seek_to_last()? { Some(last.key().to_vec()) } else { None };
        drop(last);
        let mut entries = source.entries(index, behind.as_deref());
        let mut open: Option<(TablePlace, TableFileBuilder)> = None;
        let mut count = 0_u64;
        while let Some((key, value)) = entries.next()? {
            if behind.as_deref() == Some(key) {
                continue;
            }
            count += 1;
            if count.is_multiple_of(LOOK_ENTRIES) {
                self.look()?;
            }
            self.report.progress.bytes += (key.len() + value.len()) as u64;
            let Some((value, end)) = self.live(db, value)? else {
                self.report.progress.expired += 1;
                continue;
            };
            let (_, table) = match &mut open {
                Some(open) => open,
                None => open.insert(self.begin(keyspace)?),
            };
            match end {
                Some(end) => table.put_until(key, value, end).wait()?,
                None => table.put(key, value).wait()?,
            }
            self.report.progress.entries += 1;
            if table.bytes() >= self.asked.table_bytes
                && let Some(open) = open.take()
            {
                self.ingest(keyspace, open)?;
            }
        }
        match open {
            Some(open) => self.ingest(keyspace, open),
            None => Ok(()),
        }
    }

    fn begin(&self, keyspace: &Keyspace) -> Result<(TablePlace, TableFileBuilder)> {
        let place = (self.asked.place)(self.report.progress.tables)?;
        let (env, registry) = (self.asked.env.clone(), self.asked.registry.clone());
        let table = TableFileBuilder::create_with(env, registry, place.clone(), keyspace.options()).wait()?;
        Ok((place, table))
    }

    fn ingest(&mut self, keyspace: &Keyspace, (place, table): (TablePlace, TableFileBuilder)) -> Result<()> {
        table.finish().wait()?;
        let options = IngestOptions { bring: Bring::Move, trusted: true, ..IngestOptions::default() };
        keyspace.ingest_with([place], options).wait()?;
        self.report.progress.tables += 1;
        self.look()
    }

    /// The value by itself, and when it ends; `None` when it has ended.
    fn live<'v>(&self, db: &Db, value: &'v [u8]) -> Result<Option<(&'v [u8], Option<u64>)>> {
        let Some(ttl) = self.asked.ttl else { return Ok(Some((value, None))) };
        let Some((value, written)) = value.split_last_chunk::<TTL_BYTES>() else {
            return Err(Error::new(ErrorKind::Corrupt, "a value of the TTL wrapper has no time")
                .advice("leave --ttl away if the wrapper did not write the database"));
        };
        if ttl.is_zero() {
            return Ok(Some((value, None)));
        }
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let end = (u64::from(u32::from_le_bytes(*written)) * 1000).saturating_add(ttl_ms);
        Ok((end > db.time_ms()).then_some((value, Some(end))))
    }

    /// Reads both sides again.
    fn compare(
        &mut self,
        db: &Db,
        source: &Database,
        index: usize,
        keyspace: &Keyspace,
    ) -> Result<(Digest, Digest)> {
        let (mut from, mut to) = (Digesting::default(), Digesting::default());
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        let mut entries = source.entries(index, None);
        let mut count = 0_u64;
        let differ = |key: &[u8], found: String| {
            Error::new(ErrorKind::Corrupt, format!("the two sides differ in keyspace {}", keyspace.name()))
                .object(key.escape_ascii())
                .found(found)
                .advice("keep the RocksDB database, and report it")
        };
        let mut is_there = cursor.next()?;
        while let Some((key, value)) = entries.next()? {
            count += 1;
            if count.is_multiple_of(LOOK_ENTRIES) {
                self.look()?;
            }
            self.report.progress.compared_bytes += (key.len() + value.len()) as u64;
            let is_here = is_there && cursor.key() == key;
            let Some((value, end)) = self.live(db, value)? else {
                // The cursor judges by the time when it began.
                if is_here {
                    is_there = cursor.next()?;
                }
                continue;
            };
            if !is_here {
                // It may have ended since it was looked at; then neither side has it.
                if end.is_some_and(|end| end <= db.time_ms()) {
                    continue;
                }
                return Err(differ(key, "it is not in the target".to_owned()));
            }
            if cursor.value() != value {
                return Err(differ(key, format!("{} bytes, or others", cursor.value().len())));
            }
            if cursor.expires_ms() != end {
                return Err(differ(key, format!("an end at {:?} ms, not {end:?}", cursor.expires_ms())));
            }
            from.add(key, value);
            to.add(cursor.key(), cursor.value());
            is_there = cursor.next()?;
        }
        if is_there {
            return Err(differ(cursor.key(), "the source has it not".to_owned()));
        }
        Ok((from.end(), to.end()))
    }
}
