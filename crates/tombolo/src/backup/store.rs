//! Objects of a place: their names, reading and copying them, the lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::backup::{
    ArchivedChanges, BACKUP_PLACE_BYTES, BackupRecord, BackupTable, CHANGES_BYTES_MAX, decode_backup_place,
    encode_backup_place,
};
use tombolo_format::checksum::StreamHash;
use tombolo_format::manifest::snapshot::SnapshotDecoder;
use tombolo_format::manifest::{Edit, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome,
    Result,
};

use super::is_damage;
use crate::manifest::chain::undecodable;
use crate::manifest::driver::io::{Io, RetryLimit};

/// Bytes written at once.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes copied by one request.
const COPY_BYTES: u64 = PIECE_BYTES as u64;
/// Most bytes of a backup's own object.
const BACKUP_BYTES_MAX: u64 = 1 << 30;

fn name(text: impl AsRef<str>) -> ObjectName {
    ObjectName::new(text).unwrap_or_else(|_| unreachable!("names of backups are names"))
}

fn place() -> ObjectName {
    name("database")
}

/// Of a backup.
pub(super) fn backup(number: u64) -> ObjectName {
    name(format!("backups/{number:016x}"))
}

/// Of a table.
pub(super) fn table(table: TableName) -> ObjectName {
    name(format!("tables/{:016x}-{:016x}", table.epoch, table.random))
}

/// Of changes.
pub(super) fn changes(after: u64, last: u64) -> ObjectName {
    name(format!("changes/{after:016x}-{last:016x}"))
}

fn number(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn two_numbers(object: &ObjectName, prefix: &str) -> Option<(u64, u64)> {
    let (first, second) = object.as_str().strip_prefix(prefix)?.split_once('-')?;
    Some((number(first)?, number(second)?))
}

/// A store with backups.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) io: Io,
}

/// A lock that was taken.
#[derive(Debug)]
pub(super) struct Lock {
    io: Io,
    object: ObjectName,
}

impl Lock {
    pub(super) async fn release(self) -> Result<()> {
        self.io.delete_surely(&self.object).await
    }
}

impl Place {
    pub(super) fn new(env: &Env, store: Arc<dyn ObjectStore>) -> Place {
        Place { io: Io { env: env.clone(), store, epoch: Epoch::NONE, purpose: Purpose::Compaction } }
    }

    pub(super) fn describe(&self) -> String {
        self.io.store.describe()
    }

    async fn read(&self, object: &ObjectName, bytes_max: u64) -> Result<Bytes> {
        let missing = || Error::new(ErrorKind::NotFound, "an object of backups is gone").object(object);
        self.io.read_whole(object, bytes_max, RetryLimit::Bounded).await?.ok_or_else(missing)
    }

    /// Puts an object under a name that is fresh, but for an earlier attempt at the same.
    async fn put(&self, object: &ObjectName, bytes: Vec<u8>) -> Result<PutOutcome> {
        let placement = Placement::new(ObjectKind::Table, Life::Long);
        let mut writer = self.io.store.create(self.io.request(), object, placement).await?;
        let mut bytes = Bytes::from(bytes);
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            writer.append(piece).await?;
        }
        match writer.finish().await {
            Ok(_) => Ok(PutOutcome::Created),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(PutOutcome::Exists),
            Err(error) => Err(error),
        }
    }

    /// Makes it the place of this database, if it is nobody's.
    ///
    /// # Errors
    /// `Invalid` when it is another's; those of the store.
    pub(super) async fn claim(&self, database: u64) -> Result<()> {
        let object = place();
        if self.io.read_whole(&object, BACKUP_PLACE_BYTES as u64, RetryLimit::Bounded).await?.is_none() {
            let placement = Placement::new(ObjectKind::Pin, Life::Long);
            let bytes = Bytes::from(encode_backup_place(database));
            self.io.store.put_if_absent(self.io.request(), &object, placement, bytes).await?;
        }
        let found = self.database().await?;
        if found == database {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, format!("{} keeps backups of another database", self.describe()))
            .expected(format!("database {database:016x}"))
            .found(format!("database {found:016x}"))
            .advice("give each database a place of its own; a restored database is another one"))
    }

    /// Of which database it is.
    ///
    /// # Errors
    /// `NotFound` when it is no place of backups; `Corrupt`; those of the store.
    pub(super) async fn database(&self) -> Result<u64> {
        let object = place();
        let bytes = match self.io.read_whole(&object, BACKUP_PLACE_BYTES as u64, RetryLimit::Bounded).await? {
            Some(bytes) => bytes,
            None => {
                let message = format!("there are no backups at {}", self.describe());
                return Err(Error::new(ErrorKind::NotFound, message));
            }
        };
        decode_backup_place(&bytes).map_err(|error| undecodable(&object, error))
    }

    /// # Errors
    /// `Busy` when somebody else is at work there; those of the store.
    pub(super) async fn lock(&self) -> Result<Lock> {
        let object = name(format!("locks/{:016x}", self.io.env.random_u64()));
        let lock = Lock { io: self.io.clone(), object };
        let placement = Placement::new(ObjectKind::Pin, Life::Long);
        self.io.store.put_if_absent(self.io.request(), &lock.object, placement, Bytes::new()).await?;
        let all = self.io.list_all("locks/").await;
        let is_alone = |all: &Vec<ObjectName>| all.iter().all(|other| *other == lock.object);
        match all {
            Ok(all) if is_alone(&all) || is_enabled(Mutant::BackupsUnlocked) => Ok(lock),
            Ok(all) => {
                let other = all.into_iter().find(|other| *other != lock.object);
                // One that stays behind is found by who comes next.
                let _released = lock.release().await;
                let error = Error::new(ErrorKind::Busy, "somebody else makes or deletes backups there");
                let error = other.map_or_else(|| error.clone(), |other| error.clone().object(other));
                Err(error.advice(
                    "try again; if that process has died, delete its lock: Backups::break_locks, \
                    `tombolo backup unlock`",
                ))
            }
            Err(error) => {
                let _released = lock.release().await;
                Err(error)
            }
        }
    }

    pub(super) async fn break_locks(&self) -> Result<u64> {
        let all = self.io.list_all("locks/").await?;
        for lock in &all {
            self.io.delete_surely(lock).await?;
        }
        Ok(all.len() as u64)
    }

    /// Numbers of backups, in order.
    pub(super) async fn backup_numbers(&self) -> Result<Vec<u64>> {
        let all = self.io.list_all("backups/").await?;
        let numbers: BTreeSet<u64> =
            all.iter().filter_map(|object| number(object.as_str().strip_prefix("backups/")?)).collect();
        Ok(numbers.into_iter().collect())
    }

    /// A backup.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`; those of the store.
    pub(super) async fn backup(&self, number: u64) -> Result<BackupRecord> {
        let object = backup(number);
        let bytes = self.read(&object, BACKUP_BYTES_MAX).await?;
        let record = BackupRecord::decode(&bytes).map_err(|error| undecodable(&object, error))?;
        if record.number != number {
            let (expected, found) = (format!("backup {number}"), format!("backup {}", record.number));
            return Err(Error::corrupt(&object, 32, expected, found));
        }
        Ok(record)
    }

    /// Up to which number the oldest backup goes that can be read; `None`: there is none.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn oldest_moment(&self) -> Result<Option<u64>> {
        for number in self.backup_numbers().await? {
            match self.backup(number).await {
                Ok(record) => return Ok(Some(record.last_sequence)),
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) async fn put_backup(&self, record: &BackupRecord) -> Result<()> {
        let object = backup(record.number);
        let bytes = record.encode().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        if bytes.len() as u64 > BACKUP_BYTES_MAX {
            let message = format!("a backup that takes {} bytes to name its tables", bytes.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        match self.put(&object, bytes).await? {
            PutOutcome::Created => Ok(()),
            PutOutcome::Exists => Err(Error::new(ErrorKind::AlreadyExists, "another made this backup")
                .object(object)
                .advice("make it again")),
        }
    }

    /// Names of tables that lie there.
    pub(super) async fn tables(&self) -> Result<Vec<TableName>> {
        let all = self.io.list_all("tables/").await?;
        let parsed = all.iter().filter_map(|object| two_numbers(object, "tables/"));
        Ok(parsed.map(|(epoch, random)| TableName { epoch, random }).collect())
    }

    /// Reads a table and compares.
    ///
    /// # Errors
    /// `Corrupt`; `NotFound`; those of the store.
    pub(super) async fn check_table(&self, named: &BackupTable) -> Result<()> {
        let object = table(named.name);
        let found = hash(&self.io, &self.io.store, &object).await?;
        found.check(named, &object)
    }

    /// Changes: after which number, up to which, in order.
    pub(super) async fn changes(&self) -> Result<Vec<(u64, u64)>> {
        let all = self.io.list_all("changes/").await?;
        let mut parsed: Vec<_> = all.iter().filter_map(|object| two_numbers(object, "changes/")).collect();
        parsed.sort_unstable();
        Ok(parsed)
    }

    /// # Errors
    /// `Corrupt`; `NotFound`; those of the store.
    pub(super) async fn read_changes(&self, after: u64, last: u64) -> Result<ArchivedChanges> {
        let object = changes(after, last);
        let bytes = self.read(&object, CHANGES_BYTES_MAX as u64).await?;
        let found = ArchivedChanges::decode(&bytes).map_err(|error| undecodable(&object, error))?;
        let found_last = found.changes.last().map_or(found.after, |(sequence, _)| *sequence);
        if (found.after, found_last) != (after, last) {
            return Err(Error::corrupt(
                &object,
                24,
                format!("changes after {after} up to {last}"),
                format!("changes after {} up to {found_last}", found.after),
            ));
        }
        Ok(found)
    }

    pub(super) async fn put_changes(&self, found: &ArchivedChanges) -> Result<()> {
        let last = found.changes.last().map_or(found.after, |(sequence, _)| *sequence);
        let bytes = found.encode().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        // One that is there holds the same changes.
        self.put(&changes(found.after, last), bytes).await.map(drop)
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) length: u64,
    pub(super) checksum: u64,
}

impl Copied {
    /// # Errors
    /// `Corrupt` when it is not what a backup says.
    pub(super) fn check(self, named: &BackupTable, object: &ObjectName) -> Result<()> {
        if (self.length, self.checksum) == (named.length, named.checksum)
            || is_enabled(Mutant::BackupChecksumIgnored)
        {
            return Ok(());
        }
        Err(Error::corrupt(
            object,
            0,
            format!("{} bytes with checksum {:#018x}", named.length, named.checksum),
            format!("{} bytes with checksum {:#018x}", self.length, self.checksum),
        ))
    }
}

/// Reads an object.
///
/// # Errors
/// Those of the store.
pub(super) async fn hash(io: &Io, store: &Arc<dyn ObjectStore>, object: &ObjectName) -> Result<Copied> {
    let (mut hash, mut length) = (StreamHash::new(), 0);
    loop {
        let read = || store.read(io.request(), object, length..length + COPY_BYTES);
        let piece = io.retried(RetryLimit::Bounded, read).await?;
        if piece.is_empty() {
            return Ok(Copied { length, checksum: hash.digest() });
        }
        hash.update(&piece);
        length += piece.len() as u64;
    }
}

/// Copies an object, and says what was read.
///
/// # Errors
/// Those of both stores.
pub(super) async fn copy(
    io: &Io,
    (source, from): (&Arc<dyn ObjectStore>, &ObjectName),
    (target, to): (&Arc<dyn ObjectStore>, &ObjectName),
    level: u8,
    by_reference: bool,
) -> Result<Copied> {
    if by_reference
        && let Some(place) = source.place(from)
        && let Some(PutOutcome::Created) = target.adopt(io.request(), &place, to).await?
    {
        return hash(io, target, to).await;
    }
    let mut placement = Placement::new(ObjectKind::Table, Life::Long);
    placement.level = level;
    let mut writer = target.create(io.request(), to, placement).await?;
    let (mut hash, mut length) = (StreamHash::new(), 0);
    loop {
        let read = || source.read(io.request(), from, length..length + COPY_BYTES);
        let piece = io.retried(RetryLimit::Bounded, read).await?;
        if piece.is_empty() {
            break;
        }
        hash.update(&piece);
        length += piece.len() as u64;
        writer.append(piece).await?;
    }
    writer.finish().await?;
    Ok(Copied { length, checksum: hash.digest() })
}

/// What a backup's snapshot says.
pub(super) trait Named {
    /// The edits that name what it holds.
    ///
    /// # Errors
    /// `Corrupt`.
    fn edits(&self) -> Result<Vec<Edit>>;
}

impl Named for BackupRecord {
    fn edits(&self) -> Result<Vec<Edit>> {
        let object = backup(self.number);
        let damaged = |error| undecodable(&object, error);
        let mut decoder = SnapshotDecoder::new(BackupRecord::snapshot_identity(self.database, self.number));
        let mut edits = Vec::new();
        decoder.push(&self.snapshot, &mut edits).map_err(damaged)?;
        let mut hash = StreamHash::new();
        hash.update(&self.snapshot);
        decoder.finish(self.snapshot.len() as u64, hash.digest()).map_err(damaged)?;
        Ok(edits)
    }
}
