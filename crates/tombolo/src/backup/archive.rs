//! Changes of a database, kept beside its backups for as long as they are wanted.
//!
//! Invariant: an object of changes says after which number it comes; between that number and its
//! first change there is none. So a place knows where changes are missing.

use tombolo_format::backup::ArchivedChanges;
use tombolo_storage::{Error, ErrorKind, Result};

use super::store::Place;
use super::{BackupReport, Backups, is_damage};
use crate::db::{Changes, Db};
use crate::op::Op;

/// Bytes of changes that are put at once, about.
const AT_ONCE_BYTES: usize = 8 << 20;

/// What one look has brought into the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archived {
    /// Changes.
    pub changes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All changes up to this number are in the archive, but for gaps.
    pub last: u64,
    /// Changes between these numbers were gone before they came here.
    pub gap: Option<(u64, u64)>,
}

impl Backups {
    /// The name of the subscription by which an archive keeps its changes at the database:
    /// [`Backups::archive`].
    pub const SUBSCRIPTION: &str = "archive";

    /// Brings all changes that the database keeps ([`Db::subscribe`]) and that are not here yet
    /// into the archive, up to now. With the backups, any later point can be restored of them:
    /// [`Backups::restore`]. `db` is a writer, or that of a reader. A writer then lets go of what
    /// is kept for the subscription [`Backups::SUBSCRIPTION`]; by a reader, its bytes bound that.
    /// Changes that were gone before they came here are told as a gap, now and by
    /// [`Backups::verify`]. An archive begins with the oldest backup, if there is one.
    ///
    /// # Errors
    /// `Unsupported` when the database keeps no changes as a whole; `Invalid` for a place of
    /// another database; those of [`Changes::try_next`] and of the store. They say what was
    /// archived before them.
    pub fn archive(&self, db: &Db) -> Op<Archived> {
        let (this, db) = (self.clone(), db.clone());
        self.start("archive of changes", async move {
            let database = db.engine().manifest.state().database().map_or(0, |database| database.id);
            this.place.claim(database).await?;
            let mut archived = Archived::default();
            let ended = archive(&this.place, &db, database, &mut archived).await;
            ended.map_err(|error| archived.told_with(error))?;
            if !db.engine().is_read_only() {
                db.took(Backups::SUBSCRIPTION, archived.last).await?;
            }
            Ok(archived)
        })
    }

    /// `backups`: up to where each goes that can be read.
    pub(super) async fn verify_changes(&self, report: &mut BackupReport, backups: &[u64]) -> Result<()> {
        let mut reached = None::<u64>;
        for (after, last) in self.place.changes().await? {
            reached = reached.or_else(|| backups.iter().copied().filter(|moment| *moment <= after).max());
            match self.place.read_changes(after, last).await {
                Ok(found) => report.changes += found.changes.len() as u64,
                Err(error) if is_damage(&error) => report.damage.push(error.to_string()),
                Err(error) => return Err(error),
            }
            if let Some(reached) = reached.filter(|reached| *reached < after) {
                report.gaps.push((reached, after));
            }
            reached = Some(reached.map_or(last, |reached| reached.max(last)));
        }
        Ok(())
    }
}

impl Archived {
    /// An error, with what came into the archive before it.
    fn told_with(&self, error: Error) -> Error {
        let mut error = error;
        if self.changes > 0 {
            error = error.context(format!(
                "{} changes up to write {} were archived before this",
                self.changes, self.last
            ));
        }
        if let Some((from, to)) = self.gap {
            error = error.context(format!("changes between writes {from} and {to} were gone"));
        }
        error
    }
}

/// `archived` says what has come in, also where it fails then.
async fn archive(place: &Place, db: &Db, database: u64, archived: &mut Archived) -> Result<()> {
    let mut reached = place.changes().await?.into_iter().map(|(_, last)| last).max();
    if reached.is_none() {
        // Older ones lead on from no backup.
        reached = place.oldest_moment().await?;
    }
    let mut changes = match reached {
        Some(reached) => db.changes(reached)?,
        None => begin(db).await?,
    };
    loop {
        let (after, mut bytes) = (changes.sequence(), 0);
        let mut found = Vec::new();
        let mut ended = None;
        while bytes < AT_ONCE_BYTES {
            match changes.try_next_async().await {
                Ok(Some(change)) => {
                    bytes += ArchivedChanges::bytes_of(change.raw());
                    found.push((change.sequence, change.raw().to_vec()));
                }
                Ok(None) => break,
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        let last = changes.sequence();
        // What was found is put, whatever came then.
        let count = found.len() as u64;
        if count > 0 {
            place.put_changes(&ArchivedChanges { database, after, changes: found }).await?;
            archived.changes += count;
            archived.bytes += bytes as u64;
        }
        archived.last = last;
        match ended {
            // The archive has not come in time: it goes on with what there is.
            Some(error) if error.kind() == ErrorKind::NotFound => {
                changes = begin(db).await?;
                if changes.sequence() <= last {
                    return Err(error);
                }
                archived.gap = Some((archived.gap.map_or(last, |(from, _)| from), changes.sequence()));
            }
            Some(error) => return Err(error),
            None if count == 0 => return Ok(()),
            None => {}
        }
    }
}

/// A walk over all changes that are kept.
async fn begin(db: &Db) -> Result<Changes> {
    let after = db.changes_kept_after().await?;
    db.changes(after)
}
