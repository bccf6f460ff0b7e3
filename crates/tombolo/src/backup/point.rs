//! Restoring: a backup into an empty database, then changes up to a point.

use std::collections::BTreeMap;

use tombolo_env::{BoxFuture, all};
use tombolo_format::backup::{BackupRecord, BackupTable};
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::change::Change as Record;
use tombolo_format::expiry::Expiry;
use tombolo_format::key::EntryKind;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogStore, ObjectStore, Result};

use super::store::{self, Named, copy};
use super::{Backups, COPIES_IN_FLIGHT_MAX, is_worthless};
use crate::db::{Batch, Builder, Db, Keyspace, stores};
use crate::manifest::{Manifest, names};
use crate::op::Op;
use crate::operator::Operators;
use crate::options::{Durability, KeyspaceOptions, OpenMode, TakeOver};
use crate::recovery::claim_empty;

/// What to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestorePoint {
    /// The newest backup, and all changes after it that are in the archive.
    #[default]
    Newest,
    /// A backup, as it is.
    Backup(u64),
    /// All writes up to this number, and none after.
    Sequence(u64),
    /// All writes up to this time, in milliseconds since the Unix epoch, and none after the first
    /// that came later. Times are those of the clocks of the writers' hosts.
    UnixMs(u64),
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup.
    pub backup: u64,
    /// All writes of the database of which it was made up to this number are there, and none
    /// after.
    pub last_sequence: u64,
    /// Changes that were applied to the backup.
    pub changes: u64,
    /// When the last of them was written, in milliseconds since the Unix epoch.
    pub last_change_unix_ms: Option<u64>,
    /// Whether nothing from before the point can be missing. Of a time that is so if the archive
    /// has a change from after it: else the database may have written more before that time.
    pub is_complete: bool,
}

/// A backup, and the changes that lie between it and a point.
struct Plan {
    backup: BackupRecord,
    /// Objects of changes that hold them.
    changes: Vec<(u64, u64)>,
    to_sequence: u64,
    to_unix_ms: u64,
}

impl Plan {
    fn is_beyond(&self, sequence: u64, unix_ms: u64) -> bool {
        sequence > self.to_sequence || unix_ms > self.to_unix_ms
    }
}

fn gone(message: String, advice: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, message).advice(advice)
}

impl Backups {
    /// Makes a database of its own of a backup and the changes after it, where `target` says: an
    /// empty place, with the log that it will use. Every byte is checked on its way. With changes
    /// to apply the target is opened with the settings and operators of `target`, and closed
    /// again; what ends early in that leaves a database that is to be destroyed. Its subscriptions
    /// end then, as its writes have other numbers.
    ///
    /// # Errors
    /// `NotFound` when the point is gone or not there yet, and when changes before it are missing;
    /// `Unsupported` for a point behind tables from outside, or behind writes by settings, that
    /// came after the backup, or behind a keyspace whose operator `target` lacks; `Corrupt` when a
    /// backup from before the point cannot be read, and no older one leads there with its changes.
    /// All of these are known before the target is touched.
    /// `AlreadyExists` when the target holds a database; those of both stores.
    pub fn restore(&self, point: RestorePoint, target: Builder) -> Op<Restored> {
        let this = self.clone();
        self.start("restore of a backup", async move {
            let plan = this.plan(point).await?;
            this.dry_run(&plan, &target.operators).await?;
            let env = target.env.clone().unwrap_or_else(|| this.place.io.env.clone());
            let (objects, log_store) = stores(&target, &env)?;
            this.restore_backup(&plan.backup, &objects, &*log_store).await?;
            let mut restored = Restored {
                backup: plan.backup.number,
                last_sequence: plan.backup.last_sequence,
                changes: 0,
                last_change_unix_ms: None,
                is_complete: !matches!(point, RestorePoint::UnixMs(_)),
            };
            if plan.changes.is_empty() {
                return Ok(restored);
            }
            let unfinished = |error: Error| {
                error.context("applying changes to the restored backup").advice(
                    "the target holds the backup and some of the changes: destroy it, and restore again",
                )
            };
            let target = target.env(env).mode(OpenMode::Open).take_over(TakeOver::Never);
            let db = target.open().await.map_err(unfinished)?;
            // The database of which the backup was made has gone on: what ended under an operand
            // that is yet to come stays, and what a transaction held then it holds no more.
            if !is_enabled(Mutant::RestoreEndsOperands) {
                db.engine().time.settle_nothing();
            }
            db.let_go_of_prepared();
            // Who followed then may not now, and there was room for what came with that.
            let applied = match db.follow_nobody().await {
                Ok(()) => this.apply(&plan, &db, &mut restored).await,
                Err(error) => Err(error),
            };
            let closed = db.close().await;
            applied.and(closed).map_err(unfinished)?;
            Ok(restored)
        })
    }

    async fn plan(&self, point: RestorePoint) -> Result<Plan> {
        self.place.database().await?;
        let (mut to_sequence, mut to_unix_ms) = (u64::MAX, u64::MAX);
        match point {
            RestorePoint::Sequence(sequence) => to_sequence = sequence,
            RestorePoint::UnixMs(unix_ms) => to_unix_ms = unix_ms,
            RestorePoint::Newest | RestorePoint::Backup(_) => {}
        }
        let numbers = self.place.backup_numbers().await?;
        let (mut backup, mut damaged) = (None, None);
        for number in numbers.into_iter().rev() {
            if matches!(point, RestorePoint::Backup(wanted) if wanted != number) {
                continue;
            }
            let record = match self.place.backup(number).await {
                // It may be from before the point; an older one does as well, if changes lead on
                // from there.
                Err(error)
                    if is_worthless(&error)
                        && matches!(point, RestorePoint::Sequence(_) | RestorePoint::UnixMs(_)) =>
                {
                    let context = format!("backup {number} may be the last from before that point");
                    damaged.get_or_insert(error.context(context));
                    continue;
                }
                record => record?,
            };
            if record.last_sequence <= to_sequence && record.created_unix_ms <= to_unix_ms {
                backup = Some(record);
                break;
            }
        }
        let Some(backup) = backup else {
            if let Some(damaged) = damaged {
                return Err(damaged);
            }
            let message = match point {
                RestorePoint::Backup(number) => format!("there is no backup {number}"),
                _ => "there is no backup from before that point".to_owned(),
            };
            return Err(gone(message, "Backups::list and `tombolo backup list` say which there are"));
        };
        let mut plan = Plan { backup, changes: Vec::new(), to_sequence, to_unix_ms };
        if matches!(point, RestorePoint::Backup(_)) {
            return Ok(plan);
        }
        let led = self.lead_on(&mut plan).await;
        let Some(damaged) = damaged.filter(|_| !is_enabled(Mutant::RestorePassesDamagedBackup)) else {
            return led.map(|()| plan);
        };
        let leads = (led.is_ok() && to_sequence != u64::MAX) || self.is_passed(&plan).await?;
        if leads { Ok(plan) } else { Err(damaged) }
    }

    /// Finds the changes that lead from the backup of the plan to its point.
    async fn lead_on(&self, plan: &mut Plan) -> Result<()> {
        let (to_sequence, to_unix_ms) = (plan.to_sequence, plan.to_unix_ms);
        let mut reached = plan.backup.last_sequence;
        for (after, last) in self.place.changes().await? {
            if last <= reached || reached >= to_sequence {
                continue;
            }
            if after > reached && !is_enabled(Mutant::RestoreAcrossGap) {
                // A time that lies before the gap needs none of it.
                if to_unix_ms != u64::MAX && self.is_passed(plan).await? {
                    return Ok(());
                }
                let message = format!("changes between {reached} and {after} are not in the archive");
                return Err(gone(
                    message,
                    "restore a backup from after that, the backup before it as it is, or a number before it",
                ));
            }
            plan.changes.push((after, last));
            reached = last;
        }
        if to_sequence != u64::MAX && reached < to_sequence {
            let message = format!("the archive ends at write {reached}, before write {to_sequence}");
            return Err(gone(message, "archive the changes up to there, or restore to a number before"));
        }
        Ok(())
    }

    /// Whether one of the plan's changes comes after its point. Reads up to that one.
    async fn is_passed(&self, plan: &Plan) -> Result<bool> {
        for object in &plan.changes {
            if self.part(plan, *object, plan.backup.last_sequence).await?.1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Those of an object of changes that come after `applied` and belong to the point, and whether
    /// one comes after it.
    async fn part(
        &self,
        plan: &Plan,
        (after, last): (u64, u64),
        applied: u64,
    ) -> Result<(Vec<(u64, Vec<u8>)>, bool)> {
        let object = || store::changes(after, last);
        let found = self.place.read_changes(after, last).await?;
        if found.database != plan.backup.database {
            return Err(Error::corrupt(
                object(),
                16,
                format!("changes of database {:016x}", plan.backup.database),
                format!("of {:016x}", found.database),
            ));
        }
        let mut part = Vec::new();
        for (sequence, change) in found.changes {
            if sequence <= applied && !is_enabled(Mutant::RestoreAppliesTwice) {
                continue;
            }
            let record = Record::decode(&change).map_err(|error| Error::format(object(), 0, error))?;
            if plan.is_beyond(sequence, record.unix_ms) {
                return Ok((part, true));
            }
            part.push((sequence, change));
        }
        Ok((part, false))
    }

    /// Whether all changes can be applied.
    async fn dry_run(&self, plan: &Plan, operators: &Operators) -> Result<()> {
        let mut applied = plan.backup.last_sequence;
        let mut keyspaces = Known::of(&plan.backup.edits()?)?;
        for object in &plan.changes {
            let (part, is_beyond) = self.part(plan, *object, applied).await?;
            for (sequence, change) in &part {
                keyspaces.check(*sequence, change, operators)?;
                applied = *sequence;
            }
            if is_beyond {
                break;
            }
        }
        Ok(())
    }

    async fn restore_backup(
        &self,
        backup: &BackupRecord,
        target: &std::sync::Arc<dyn ObjectStore>,
        log_store: &dyn LogStore,
    ) -> Result<()> {
        let named = backup.edits()?;
        let tables: BTreeMap<TableName, BackupTable> =
            backup.tables.iter().map(|table| (table.name, *table)).collect();
        let manifest = claim_empty(&self.place.io.env, target, log_store).await?;
        let committed = match self.copy_out(&manifest, named, &tables, target).await {
            Ok(edits) => manifest.committed_in_time(edits).await.map(drop),
            Err(error) => Err(error),
        };
        manifest.leave().await;
        committed.map_err(|error| error.context(format!("restoring backup {}", backup.number)))
    }

    async fn copy_out(
        &self,
        manifest: &Manifest,
        named: Vec<Edit>,
        tables: &BTreeMap<TableName, BackupTable>,
        target: &std::sync::Arc<dyn ObjectStore>,
    ) -> Result<Vec<Edit>> {
        let mut edits = Vec::new();
        let mut copies: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
        for edit in named {
            match edit {
                Edit::DatabaseCreated { .. } => {}
                Edit::TableAdded(table) => {
                    let Some(known) = tables.get(&table.name).copied() else {
                        return Err(Error::new(ErrorKind::Corrupt, "a backup that lacks a table of its own")
                            .object(store::table(table.name)));
                    };
                    let name = manifest.fresh_table_name();
                    let (from, to) = (store::table(table.name), names::table(manifest.incarnation(), name));
                    let level = table.level;
                    copies.push(Box::pin(async move {
                        let io = &self.place.io;
                        let copied = copy(io, (&io.store, &from), (target, &to), level, false).await?;
                        copied.check(&known, &from)
                    }));
                    edits.push(Edit::TableAdded(TableDescription { name, source: None, ..table }));
                }
                other => edits.push(other),
            }
        }
        let copied: Result<Vec<()>> = all(copies, COPIES_IN_FLIGHT_MAX).await.into_iter().collect();
        copied.map(|_| edits)
    }

    async fn apply(&self, plan: &Plan, db: &Db, restored: &mut Restored) -> Result<()> {
        let mut keyspaces: BTreeMap<u32, Keyspace> =
            db.keyspaces().into_iter().map(|keyspace| (keyspace.id(), keyspace)).collect();
        for object in &plan.changes {
            let (part, is_beyond) = self.part(plan, *object, restored.last_sequence).await?;
            for (sequence, change) in &part {
                let record = Record::decode(change).map_err(damaged)?;
                apply(db, &mut keyspaces, &record).await?;
                restored.changes += 1;
                restored.last_sequence = *sequence;
                restored.last_change_unix_ms = Some(record.unix_ms);
            }
            if is_beyond {
                restored.is_complete = true;
                break;
            }
        }
        db.sync().await
    }
}

fn damaged(error: tombolo_format::FormatError) -> Error {
    Error::format("an archived change", 0, error)
}

/// Facts of the target when a change is applied.
#[derive(Default)]
struct Known {
    /// Its keyspaces: the features of entries that they take, and whether they have an operator.
    keyspaces: BTreeMap<u32, (u64, bool)>,
    /// What ended up to then may have been destroyed.
    settled_ms: u64,
}

impl Known {
    fn of(edits: &[Edit]) -> Result<Known> {
        let mut known = Known::default();
        for edit in edits {
            match edit {
                Edit::KeyspaceCreated { id, options, .. } | Edit::KeyspaceChanged { id, options } => {
                    let merges = KeyspaceOptions::from_manifest(options)?.operator.is_some();
                    known.keyspaces.insert(*id, (options.features, merges));
                }
                Edit::KeyspaceDropped { id } => drop(known.keyspaces.remove(id)),
                Edit::Time { times, .. } => known.settled_ms = times.settled_ms,
                _ => {}
            }
        }
        Ok(known)
    }

    /// # Errors
    /// `Unsupported` for a change that is not there with all it did, and for one that the backup's
    /// settings do not allow, and for a keyspace whose operator the target is not opened with;
    /// `Corrupt` for one of a keyspace that is not there.
    fn check(&mut self, sequence: u64, change: &[u8], operators: &Operators) -> Result<()> {
        let unsupported = |message: String| {
            Err(Error::new(ErrorKind::Unsupported, message).advice(format!(
                "restore a backup from after that, or up to write {}",
                sequence.saturating_sub(1)
            )))
        };
        let record = Record::decode(change).map_err(damaged)?;
        for operation in Operations::new(record.payload).map_err(damaged)? {
            match operation.map_err(damaged)? {
                Operation::Ingest { .. } | Operation::Exchange { .. } => {
                    return unsupported(format!(
                        "tables from outside became part of the database by write {sequence}"
                    ));
                }
                Operation::Cut { .. } => {}
                Operation::Entry { kind, keyspace, value, .. } => {
                    let (features, merges) =
                        *self.keyspaces.get(&keyspace).ok_or_else(|| unknown(keyspace))?;
                    let is_merge = matches!(kind, EntryKind::Merge | EntryKind::ExpiringMerge);
                    if kind.feature() & !features != 0 || (is_merge && !merges) {
                        return unsupported(format!(
                            "settings that the backup does not have let keyspace {keyspace} take write \
                             {sequence}"
                        ));
                    }
                    let expiry = Expiry::of_entry(kind, value).map_err(damaged)?;
                    if expiry.is_some_and(|expiry| expiry.written_ms < self.settled_ms) {
                        return unsupported(format!(
                            "the database's time was set back: what was below an operand of write {sequence} \
                             may be gone from the backup"
                        ));
                    }
                }
                Operation::CreateKeyspace { keyspace, name, options, .. } => {
                    let operator = KeyspaceOptions::from_manifest(&options)?.operator;
                    if let Some(operator) = &operator {
                        let context = |error: Error| {
                            error.context(format!("keyspace {name:?}, which write {sequence} made"))
                        };
                        operators.named(operator).get().map_err(context)?;
                    }
                    self.keyspaces.insert(keyspace, (u64::MAX, operator.is_some()));
                }
                Operation::DropKeyspace { keyspace } => {
                    self.keyspaces.remove(&keyspace).ok_or_else(|| unknown(keyspace))?;
                }
            }
        }
        Ok(())
    }
}

fn unknown(keyspace: u32) -> Error {
    let message = format!("an archived change of keyspace {keyspace}, which is not there");
    Error::new(ErrorKind::Corrupt, message)
}

/// Applies one change.
async fn apply(db: &Db, keyspaces: &mut BTreeMap<u32, Keyspace>, record: &Record<'_>) -> Result<()> {
    let mut batch = Batch::new();
    for operation in Operations::new(record.payload).map_err(damaged)? {
        match operation.map_err(damaged)? {
            Operation::Entry { kind, keyspace, key, value } => {
                let keyspace = keyspaces.get(&keyspace).ok_or_else(|| unknown(keyspace))?;
                batch.prepared.push(keyspace.info(), kind, key, value);
            }
            Operation::CreateKeyspace { keyspace, name, options, .. } => {
                let options = KeyspaceOptions::from_manifest(&options)?;
                keyspaces.insert(keyspace, db.create_keyspace(name, options).await?);
            }
            Operation::DropKeyspace { keyspace } => {
                let dropped = keyspaces.remove(&keyspace).ok_or_else(|| unknown(keyspace))?;
                db.drop_keyspace(dropped.name()).await?;
            }
            Operation::Ingest { .. } | Operation::Exchange { .. } | Operation::Cut { .. } => {}
        }
    }
    db.write_with(batch, Durability::Accepted).await
}
