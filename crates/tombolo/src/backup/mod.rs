//! Backups of a database in another store, and its changes, from which any later point is restored.
//!
//! `checkpoint → copy the tables that the place does not have → one object names all of them`,
//! `followed changes → objects of changes`, and back: `a backup → its tables into an empty
//! database → changes up to a number or a time`.
//!
//! A place is of one database, and any object store will do. Tables never change and their names
//! are never used again, so that a backup copies only those that no earlier one has.
//!
//! Invariants:
//! 1. A backup is put after all its tables, whose checksums it holds. What ended early leaves
//!    tables that no backup names, and the next backup or prune deletes.
//! 2. Of those who make backups and those who delete some, one at a time is at work: each puts a
//!    lock, and goes on only where it lists no other.
//! 3. Nothing is restored whose checksum is wrong. Changes are applied only if each of them is
//!    there from the backup's number on; that is known before the target is touched.

mod archive;
mod point;
mod store;

pub use archive::Archived;
pub use point::{RestorePoint, Restored};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{BoxFuture, Env, TaskClass, all};
use tombolo_format::backup::{BackupRecord, BackupTable};
use tombolo_format::cold::PROPERTY_COLD;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, ObjectName, ObjectStore, Registry, Result, Uri};

use crate::checkpoint::{self, Checkpoints};
use crate::db::{Builder, objects};
use crate::engine::unix_ms;
use crate::manifest::driver::io::RetryLimit;
use crate::manifest::{self, Places};
use crate::op::Op;
use store::{Copied, Named, Place, copy, hash};

/// Tables copied at once.
const COPIES_IN_FLIGHT_MAX: usize = 8;

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Its number; later ones have greater numbers.
    pub number: u64,
    /// All writes up to this number are in it, and none after.
    pub last_sequence: u64,
    /// When its state was made, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Its tables, and their bytes.
    pub tables: u64,
    /// See `tables`.
    pub bytes: u64,
    /// Of those, what no earlier backup had when it was made; unknown of one that is only listed.
    pub copied_bytes: Option<u64>,
    /// Why it cannot be read, if so: then all but its number is unknown.
    pub damage: Option<String>,
}

impl Backup {
    fn of(record: &BackupRecord, copied_bytes: Option<u64>) -> Backup {
        Backup {
            number: record.number,
            last_sequence: record.last_sequence,
            created_unix_ms: record.created_unix_ms,
            tables: record.tables.len() as u64,
            bytes: record.tables.iter().map(|table| table.length).sum(),
            copied_bytes,
            damage: None,
        }
    }

    fn damaged(number: u64, error: &Error) -> Backup {
        let (last_sequence, created_unix_ms, tables, bytes) = (0, 0, 0, 0);
        let damage = Some(error.to_string());
        Backup { number, last_sequence, created_unix_ms, tables, bytes, copied_bytes: None, damage }
    }
}

/// What a look at all bytes of a place has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Backups looked at.
    pub backups: u64,
    /// Tables read, each once.
    pub tables: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Archived changes.
    pub changes: u64,
    /// All that is damaged or gone.
    pub damage: Vec<String>,
    /// Numbers between which changes are not in the archive, from the newest backup on that was
    /// made before it begins.
    pub gaps: Vec<(u64, u64)>,
}

/// Which backups stay: all that any of the two keeps, and always the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest.
    pub newest: usize,
    /// All that are younger; `None`: none for that reason.
    pub younger_than: Option<Duration>,
}

/// What was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Numbers of backups.
    pub backups: Vec<u64>,
    /// Tables that no backup names any more.
    pub tables: u64,
    /// Objects of changes, all of them older than the oldest backup.
    pub changes: u64,
}

/// A place that keeps backups of a database, and its changes.
#[derive(Clone)]
pub struct Backups {
    place: Place,
    by_reference: bool,
}

impl fmt::Debug for Backups {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Backups").field("at", &self.place.describe()).finish_non_exhaustive()
    }
}

impl Backups {
    /// The place at a URI of a store that the registry has. Touches nothing yet.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::{Backups, Db, RestorePoint};
    ///
    /// let backups = Backups::at("s3://backups/orders", &tombolo::Registry::with_defaults())?;
    /// let db = Db::builder("file:///var/lib/orders").open().wait()?;
    /// db.checkpoint("for the backup").wait()?;
    /// let orders = || Db::builder("file:///var/lib/orders");
    /// backups.create(orders().at_checkpoint("for the backup")).wait()?;
    /// db.delete_checkpoint("for the backup").wait()?;
    /// // Somewhere else, later:
    /// backups.restore(RestorePoint::Newest, Db::builder("file:///var/lib/orders-again")).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a wrong URI; those of opening the store.
    pub fn at(uri: &str, registry: &Registry) -> Result<Backups> {
        let env = Env::real();
        let store = registry.open_object_store(&env, &Uri::parse(uri)?)?;
        Ok(Backups::of(&env, store))
    }

    /// The place in a store.
    pub fn of(env: &Env, store: Arc<dyn ObjectStore>) -> Backups {
        Backups { place: Place::new(env, store), by_reference: true }
    }

    /// Copies every byte, also where the place could take tables over by reference (hard links
    /// within one file system), which saves the space but dies with the same disk.
    #[must_use]
    pub fn copying(mut self) -> Backups {
        self.by_reference = false;
        self
    }

    fn start<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        Op::start(&self.place.io.env, TaskClass::Background, name, work)
    }

    /// Makes a backup of the checkpoint that `source` names ([`Builder::at_checkpoint`]), of which
    /// it copies what no earlier backup has. Disturbs no writer. Reads what it copies once, and
    /// asks for the length of the rest. A table that lies there and belongs to no backup that can
    /// be read is read on both sides, and copied anew if it is not the same.
    ///
    /// # Errors
    /// `Invalid` without a checkpoint's name, and for a place of another database; `NotFound` when
    /// there is no such checkpoint; `Busy` while another backup is made or some are deleted there;
    /// those of both stores.
    pub fn create(&self, source: Builder) -> Op<Backup> {
        let this = self.clone();
        self.start("backup", async move {
            let Some(checkpoint) = source.checkpoint.clone() else {
                return Err(Error::new(ErrorKind::Invalid, "no checkpoint was named")
                    .advice("make one, and name it with at_checkpoint"));
            };
            let objects = objects(&source, &this.place.io.env)?;
            this.back_up(&objects, &checkpoint).await
        })
    }

    async fn back_up(&self, source: &Arc<dyn ObjectStore>, checkpoint: &str) -> Result<Backup> {
        let env = &self.place.io.env;
        let loaded = manifest::load(env, source).await?;
        let checkpoints = Checkpoints::new(env, source, loaded.incarnation, Epoch::NONE);
        let header = checkpoints.find(checkpoint).await?;
        let state = checkpoints.load(&header).await?;
        let database = state.database().map_or(0, |database| database.id);
        self.place.claim(database).await?;
        let lock = self.place.lock().await?;
        let places = Places::of(source, loaded.incarnation, &state)?;
        let made = self.put_backup(&places, &checkpoint::edits(&state), &header, database).await;
        let unlocked = lock.release().await;
        // Where that cannot be asked either, the error of the copy is the one that matters.
        let kept = made.is_ok() || checkpoints.is_kept(header.id).await.unwrap_or(true);
        let backup = made.map_err(|error| match kept {
            true => error,
            false => error.context(format!("checkpoint {checkpoint:?} was deleted while it was backed up")),
        })?;
        unlocked.map(|()| backup)
    }

    async fn put_backup(
        &self,
        places: &Places,
        edits: &[Edit],
        header: &tombolo_format::checkpoint::CheckpointHeader,
        database: u64,
    ) -> Result<Backup> {
        let mut known: BTreeMap<TableName, BackupTable> = BTreeMap::new();
        let mut number = 0;
        for listed in self.place.backup_numbers().await? {
            number = number.max(listed);
            match self.place.backup(listed).await {
                Ok(record) => known.extend(record.tables.iter().map(|table| (table.name, *table))),
                // It has nothing that could be relied on.
                Err(error) if is_worthless(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let lying: BTreeSet<TableName> = self.place.tables().await?.into_iter().collect();
        let whole = self.whole(edits, &known, &lying).await?;
        let (mut named, mut tables, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for edit in edits {
            match edit {
                Edit::SourceNamed(_) | Edit::ColdStoreNamed(_) => {}
                Edit::TableAdded(table) => {
                    let properties = table.properties.without(PROPERTY_COLD);
                    let here = TableDescription { source: None, properties, ..table.clone() };
                    named.push(Edit::TableAdded(here));
                    match known.get(&table.name).filter(|_| whole.contains(&table.name)) {
                        Some(found) => tables.push(*found),
                        None => copies.push(table),
                    }
                }
                other => named.push(other.clone()),
            }
        }
        let copied = copies.iter().map(|table| {
            let is_lying = lying.contains(&table.name);
            let copied: BoxFuture<'_, Result<BackupTable>> =
                Box::pin(self.copy_table(places, table, is_lying, known.get(&table.name)));
            copied
        });
        let copied: Vec<BackupTable> =
            all(copied.collect(), COPIES_IN_FLIGHT_MAX).await.into_iter().collect::<Result<_>>()?;
        let copied_bytes = copied.iter().map(|table| table.length).sum();
        tables.extend(copied);
        tables.sort_unstable();
        number += 1;
        let mut snapshot = Vec::new();
        let identity = BackupRecord::snapshot_identity(database, number);
        let end = checkpoint::encode(&named, identity, |piece| snapshot.extend_from_slice(&piece))?;
        snapshot.extend_from_slice(&end.piece);
        let record = BackupRecord {
            database,
            number,
            last_sequence: header.last_sequence.0,
            // The second that its state was put in has begun then.
            created_unix_ms: (header.created_unix_seconds + 1) * 1000,
            epoch: header.epoch,
            tables,
            snapshot,
        };
        self.place.put_backup(&record).await?;
        Ok(Backup::of(&record, Some(copied_bytes)))
    }

    /// Of the tables that lie there and that an earlier backup has, those with all their bytes.
    async fn whole(
        &self,
        edits: &[Edit],
        known: &BTreeMap<TableName, BackupTable>,
        lying: &BTreeSet<TableName>,
    ) -> Result<BTreeSet<TableName>> {
        let io = &self.place.io;
        let asked = edits.iter().filter_map(|edit| match edit {
            Edit::TableAdded(table) if lying.contains(&table.name) => known.get(&table.name),
            _ => None,
        });
        let lengths = asked.map(|table| {
            let length: BoxFuture<'_, Result<Option<TableName>>> = Box::pin(async move {
                let object = store::table(table.name);
                let ask = || io.store.length(io.request(), &object);
                match io.retried(RetryLimit::Bounded, ask).await {
                    Ok(length) => Ok((length == table.length).then_some(table.name)),
                    Err(error) if is_worthless(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            });
            length
        });
        let lengths = all(lengths.collect(), COPIES_IN_FLIGHT_MAX).await.into_iter();
        Ok(lengths.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// `known`: as an earlier backup has it, which has lost it since.
    async fn copy_table(
        &self,
        places: &Places,
        table: &TableDescription,
        is_lying: bool,
        known: Option<&BackupTable>,
    ) -> Result<BackupTable> {
        let (io, to) = (&self.place.io, store::table(table.name));
        let (source, from) = places.locate(table);
        if let Some(known) = known {
            // Before anything goes: what lies there may be all that is left of it.
            let damaged = |error: Error| {
                error.context("a table is not what it was at an earlier backup").advice(
                    "verify the database, which says whether it is damaged; if it is sound, delete \
                     the backups from before: `tombolo backup prune`",
                )
            };
            hash(io, &source, &from).await?.check(known, &from).map_err(damaged)?;
        }
        let copied = match is_lying {
            // Of a backup that ended early, or of one whose own object is damaged: then it may be
            // sound, and stays.
            true if !is_enabled(Mutant::BackupDeletesUncompared) => self.same(&to, (&source, &from)).await?,
            _ => None,
        };
        let Copied { length, checksum } = match copied {
            Some(copied) => copied,
            None => {
                if is_lying {
                    io.delete_surely(&to).await?;
                }
                copy(io, (&source, &from), (&io.store, &to), table.level, self.by_reference).await?
            }
        };
        let whole = table.offset.saturating_add(table.length);
        if length < whole {
            return Err(Error::corrupt(&from, length, format!("{whole} bytes"), "the end of the object"));
        }
        Ok(BackupTable { name: table.name, length, checksum })
    }

    /// What lies there, if it is what the source has.
    async fn same(
        &self,
        lying: &ObjectName,
        (source, from): (&Arc<dyn ObjectStore>, &ObjectName),
    ) -> Result<Option<Copied>> {
        let io = &self.place.io;
        let found = match hash(io, &io.store, lying).await {
            Ok(found) => found,
            Err(error) if is_worthless(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let wanted = hash(io, source, from).await?;
        Ok((found == wanted).then_some(found))
    }

    /// All backups, oldest first; those that cannot be read say why.
    ///
    /// # Errors
    /// Those of the store.
    pub fn list(&self) -> Op<Vec<Backup>> {
        let this = self.clone();
        self.start("list of backups", async move {
            let mut backups = Vec::new();
            for number in this.place.backup_numbers().await? {
                backups.push(match this.place.backup(number).await {
                    Ok(record) => Backup::of(&record, None),
                    Err(error) if is_damage(&error) => Backup::damaged(number, &error),
                    Err(error) => return Err(error),
                });
            }
            Ok(backups)
        })
    }

    /// Reads every byte of the place, and compares checksums: tables, backups, changes. Damage is
    /// in the report.
    ///
    /// # Errors
    /// Those of the store, damage excepted.
    pub fn verify(&self) -> Op<BackupReport> {
        let this = self.clone();
        self.start("verification of backups", async move {
            let mut report = BackupReport::default();
            // Where two say different things of one table, one of both is wrong.
            let mut tables: BTreeSet<BackupTable> = BTreeSet::new();
            let mut moments = Vec::new();
            for number in this.place.backup_numbers().await? {
                report.backups += 1;
                match this.place.backup(number).await.and_then(|record| Ok((record.edits()?, record))) {
                    Ok((_, record)) => {
                        moments.push(record.last_sequence);
                        tables.extend(record.tables);
                    }
                    Err(error) if is_damage(&error) => report.damage.push(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            for table in &tables {
                report.tables += 1;
                report.bytes += table.length;
                match this.place.check_table(table).await {
                    Ok(()) => {}
                    Err(error) if is_damage(&error) => report.damage.push(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            this.verify_changes(&mut report, &moments).await?;
            Ok(report)
        })
    }

    /// Deletes backups that `keep` does not keep, tables that no backup names any more, and changes
    /// that are older than the oldest backup.
    ///
    /// # Errors
    /// `Busy` while a backup is made or others are deleted; `Corrupt` when a backup that stays
    /// cannot be read, as its tables are not known; `Unsupported` for a backup of a newer version
    /// whose age is asked; those of the store. Nothing is deleted then.
    pub fn prune(&self, keep: Keep) -> Op<Pruned> {
        let this = self.clone();
        self.start("deletion of backups", async move {
            let lock = this.place.lock().await?;
            let pruned = this.delete_old(keep).await;
            let unlocked = lock.release().await;
            let pruned = pruned?;
            unlocked.map(|()| pruned)
        })
    }

    async fn delete_old(&self, keep: Keep) -> Result<Pruned> {
        let now = unix_ms(&self.place.io.env);
        let numbers = self.place.backup_numbers().await?;
        let first_kept = numbers.len().saturating_sub(keep.newest.max(1));
        let (mut pruned, mut named, mut oldest) = (Pruned::default(), BTreeSet::new(), None::<u64>);
        for (index, number) in numbers.into_iter().enumerate() {
            let is_newest = index >= first_kept;
            if !is_newest && keep.younger_than.is_none() {
                pruned.backups.push(number);
                continue;
            }
            let record = match self.place.backup(number).await {
                Err(error)
                    if !is_newest && (is_worthless(&error) || is_enabled(Mutant::PruneDeletesUnread)) =>
                {
                    pruned.backups.push(number);
                    continue;
                }
                record => record?,
            };
            let is_young = keep.younger_than.is_some_and(|age| {
                let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                record.created_unix_ms.saturating_add(age) > now
            });
            if is_newest || is_young {
                named.extend(record.tables.iter().map(|table| table.name));
                oldest = Some(oldest.map_or(record.last_sequence, |known| known.min(record.last_sequence)));
            } else {
                pruned.backups.push(number);
            }
        }
        for number in &pruned.backups {
            self.place.io.delete_surely(&store::backup(*number)).await?;
        }
        for table in self.place.tables().await? {
            if !named.contains(&table) || is_enabled(Mutant::PruneDeletesNamed) {
                self.place.io.delete_surely(&store::table(table)).await?;
                pruned.tables += 1;
            }
        }
        for (after, last) in self.place.changes().await? {
            if oldest.is_some_and(|oldest| last <= oldest) {
                self.place.io.delete_surely(&store::changes(after, last)).await?;
                pruned.changes += 1;
            }
        }
        Ok(pruned)
    }

    /// Deletes the locks of those who ended without it: only when it is known that nobody makes or
    /// deletes backups there. Says how many there were.
    ///
    /// # Errors
    /// Those of the store.
    pub fn break_locks(&self) -> Op<u64> {
        let this = self.clone();
        self.start("deletion of locks", async move { this.place.break_locks().await })
    }
}

/// Whether nothing can be restored of what lies there, now or later.
fn is_worthless(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
}

/// Whether it is what lies there that is wrong.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::NotFound)
}
