//! From Tombolo to RocksDB.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo::{Db, Error, ErrorKind, Keyspace, Result, Snapshot};

use crate::digest::Digesting;
use crate::library::{Database, Library, SstWriter};
use crate::{Digest, Report, Tell, stopped};

/// A file in the target's directory that says which state of which database is carried over to it.
const MARK: &str = "TOMBOLO-MIGRATION";
/// Entries between two looks at the caller.
const LOOK_ENTRIES: u64 = 1024;

/// A migration to RocksDB.
#[derive(Debug)]
pub struct ToRocksdb {
    /// RocksDB's library.
    pub rocksdb: Arc<Library>,
    /// The directory of the database that is made.
    pub directory: PathBuf,
    /// A table is finished once it has about so many bytes of entries.
    pub table_bytes: u64,
    /// Values that end are written as if they never did.
    pub forget_ends: bool,
    /// Both sides are read again and compared.
    pub compare: bool,
}

/// Carries what `db` holds now back to a database of RocksDB, which is new, or holds what a stopped
/// run of the same state has left.
///
/// # Errors
/// `Unsupported` for values that end, unless that is to be forgotten; `Invalid` for a directory
/// that holds something else; `Corrupt` when the two sides differ in the end; `Closed` when `tell`
/// ended it; those of both databases.
pub fn to_rocksdb(db: &Db, asked: &ToRocksdb, tell: &mut Tell<'_>) -> Result<Report> {
    let snapshot = db.snapshot();
    let keyspaces = db.keyspaces();
    let mut report = Report::default();
    check_target(asked, &format!("{:016x} {}", db.incarnation().0, snapshot.sequence()))?;
    let mut families = vec!["default".to_owned()];
    let others = keyspaces.iter().map(Keyspace::name).filter(|name| *name != "default");
    families.extend(others.map(str::to_owned));
    let target = Database::create(&asked.rocksdb, &asked.directory, &families)?;
    for (index, family) in families.iter().enumerate() {
        let Some(keyspace) = keyspaces.iter().find(|keyspace| keyspace.name() == family) else { continue };
        carry((&snapshot, keyspace), (&target, index), asked, &mut report, tell)?;
        report.progress.keyspaces += 1;
    }
    if asked.compare {
        for (index, family) in families.iter().enumerate() {
            let Some(keyspace) = keyspaces.iter().find(|keyspace| keyspace.name() == family) else {
                continue;
            };
            let (from, to) = compare((&snapshot, keyspace), (&target, index), &mut report, tell)?;
            report.digests.push((family.clone(), from, to));
        }
    }
    drop(target);
    let mark = asked.directory.join(MARK);
    std::fs::remove_file(&mark).map_err(|error| failed(error, &mark))?;
    Ok(report)
}

fn failed(error: std::io::Error, path: &Path) -> Error {
    Error::io(error, "making a RocksDB database", path.display())
}

fn check_target(asked: &ToRocksdb, mark: &str) -> Result<()> {
    let directory = &asked.directory;
    std::fs::create_dir_all(directory).map_err(|error| failed(error, directory))?;
    let path = directory.join(MARK);
    match std::fs::read_to_string(&path) {
        Ok(held) if held == mark => Ok(()),
        Ok(held) => {
            Err(Error::new(ErrorKind::Invalid, "the directory holds a part of another state of a database")
                .object(directory.display())
                .expected(mark)
                .found(held)
                .advice("delete the directory, or name another one"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut entries = std::fs::read_dir(directory).map_err(|error| failed(error, directory))?;
            if entries.next().is_some() {
                return Err(Error::new(ErrorKind::Invalid, "the directory is not empty")
                    .object(directory.display())
                    .advice("name a new directory"));
            }
            std::fs::write(&path, mark).map_err(|error| failed(error, &path))
        }
        Err(error) => Err(failed(error, &path)),
    }
}

fn carry(
    (snapshot, keyspace): (&Snapshot, &Keyspace),
    (target, index): (&Database, usize),
    asked: &ToRocksdb,
    report: &mut Report,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let mut cursor = snapshot.cursor::<&[u8]>(keyspace, ..);
    let mut is_there = match target.last_key(index)? {
        Some(last) => {
            let found = cursor.seek(&last)?;
            if found && cursor.key() == last { cursor.next()? } else { found }
        }
        None => cursor.next()?,
    };
    let mut open: Option<(PathBuf, SstWriter, u64)> = None;
    while is_there {
        if report.progress.entries.is_multiple_of(LOOK_ENTRIES) && !tell(&report.progress) {
            return Err(stopped());
        }
        if cursor.expires_ms().is_some() && !asked.forget_ends {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("keyspace {} has values that end", keyspace.name()),
            )
            .object(cursor.key().escape_ascii())
            .advice("RocksDB has no such values: say --forget-ends to write them as if they never ended"));
        }
        let (_, table, bytes) = match &mut open {
            Some(open) => open,
            None => {
                let path = asked.directory.join(format!("tombolo-{}.part", report.progress.tables));
                let table = SstWriter::create(&asked.rocksdb, &path)?;
                open.insert((path, table, 0))
            }
        };
        table.put(cursor.key(), cursor.value())?;
        let entry_bytes = (cursor.key().len() + cursor.value().len()) as u64;
        *bytes += entry_bytes;
        report.progress.bytes += entry_bytes;
        report.progress.entries += 1;
        let is_full = *bytes >= asked.table_bytes;
        is_there = cursor.next()?;
        if (is_full || !is_there)
            && let Some((path, table, _)) = open.take()
        {
            table.finish()?;
            target.ingest(index, &path)?;
            report.progress.tables += 1;
        }
    }
    Ok(())
}

fn compare(
    (snapshot, keyspace): (&Snapshot, &Keyspace),
    (target, index): (&Database, usize),
    report: &mut Report,
    tell: &mut Tell<'_>,
) -> Result<(Digest, Digest)> {
    let (mut from, mut to) = (Digesting::default(), Digesting::default());
    let mut cursor = snapshot.cursor::<&[u8]>(keyspace, ..);
    let mut entries = target.entries(index, None);
    let differ = |key: &[u8]| {
        Error::new(ErrorKind::Corrupt, format!("the two sides differ in keyspace {}", keyspace.name()))
            .object(key.escape_ascii())
            .advice("keep the database, and report it")
    };
    let mut count = 0_u64;
    while cursor.next()? {
        count += 1;
        if count.is_multiple_of(LOOK_ENTRIES) && !tell(&report.progress) {
            return Err(stopped());
        }
        from.add(cursor.key(), cursor.value());
        match entries.next()? {
            Some((key, value)) if key == cursor.key() && value == cursor.value() => {
                to.add(key, value);
                report.progress.compared_bytes += (key.len() + value.len()) as u64;
            }
            _ => return Err(differ(cursor.key())),
        }
    }
    match entries.next()? {
        Some((key, _)) => Err(differ(key)),
        None => Ok((from.end(), to.end())),
    }
}
