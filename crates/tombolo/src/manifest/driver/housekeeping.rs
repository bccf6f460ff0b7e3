//! Snapshots, truncation, and the deletion of a life that has ended. Beside the edits, never in
//! their way.

use tombolo_format::manifest::RecordKind;
use tombolo_format::manifest::snapshot::{SnapshotEncoder, SnapshotEnd, SnapshotIdentity};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Incarnation, Life, ObjectKind, ObjectName, Placement, Result};

use super::Inner;
use super::io::{Io, RetryLimit, TRUNCATION_AGE_MIN};
use crate::manifest::chain::Tip;
use crate::manifest::chain::truncate::Truncate;
use crate::manifest::names;

/// Writes the state of `tip` as an object, puts a record that names it, and deletes what lies
/// below.
pub(super) async fn snapshot_and_truncate(inner: &Inner, tip: &Tip) -> Result<()> {
    let random = inner.io.env.random_u64();
    let end = write_snapshot(&inner.io, tip, random).await?;
    let kind = RecordKind::Snapshot {
        slot: tip.slot,
        epoch: tip.epoch().0,
        record_hash: tip.hash,
        random,
        length: end.length,
        checksum: end.checksum,
    };
    if is_enabled(Mutant::ManifestTruncatesBeforeNamed) {
        inner.io.run(&mut Truncate::new(inner.incarnation, tip.slot), RetryLimit::Bounded).await.flatten()?;
    }
    let committed = inner.enqueue(kind).await;
    if let Err(error) =
        committed.unwrap_or_else(|| Err(Error::new(ErrorKind::OutcomeUnknown, "the manifest's task ended")))
    {
        // Of unknown outcome, the object may be named: it stays.
        if !matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Fenced) {
            inner.io.delete(&names::snapshot(inner.incarnation, tip.slot, random)).await?;
        }
        return Err(error);
    }
    if let Some(through) = inner.truncates_through(tip.slot) {
        inner.io.run(&mut Truncate::new(inner.incarnation, through), RetryLimit::Bounded).await.flatten()?;
    }
    let older = |name: &ObjectName| {
        names::parse_snapshot(inner.incarnation, name).is_some_and(|(slot, _)| slot < tip.slot)
    };
    delete_under(&inner.io, &names::snapshot_prefix(inner.incarnation), older).await.map(drop)
}

impl Inner {
    /// Up to where records may be deleted, now that a snapshot of the state in `slot` is named.
    ///
    /// Where a list is one answer, up to there. Where it may be a walk, up to a snapshot that was
    /// named for longer than a walk is believed ([`Io::first_name`]): what lies below was not the
    /// newest at any moment since, and a walk that needs to see a record began while it was. The
    /// rest goes with a later snapshot.
    fn truncates_through(&self, slot: u64) -> Option<u64> {
        if !self.io.store.traits().lists_may_walk || is_enabled(Mutant::ManifestTruncatesUnderWalks) {
            return Some(slot);
        }
        let now = self.io.env.now();
        let mut named = self.named.lock();
        named.push_back((slot, now));
        let mut ripe = None;
        while let Some((slot, since)) = named.front()
            && now.since(*since) >= TRUNCATION_AGE_MIN
        {
            ripe = Some(*slot);
            named.pop_front();
        }
        ripe
    }
}

async fn write_snapshot(io: &Io, tip: &Tip, random: u64) -> Result<SnapshotEnd> {
    let identity = SnapshotIdentity { incarnation: tip.incarnation.0, slot: tip.slot, random };
    let name = names::snapshot(tip.incarnation, tip.slot, random);
    let placement = Placement::new(ObjectKind::Manifest, Life::Medium);
    let mut writer = io.store.create(io.request(), &name, placement).await?;
    let edits = tip.state.edits();
    let mut encoder = SnapshotEncoder::of(identity, &edits);
    for edit in &edits {
        let piece = encoder.push(edit).map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))?;
        if let Some(piece) = piece {
            writer.append(piece.into()).await?;
        }
    }
    let mut end = encoder.finish();
    writer.append(std::mem::take(&mut end.piece).into()).await?;
    writer.finish().await?;
    Ok(end)
}

/// Deletes the objects under a prefix that `doomed` says; how many there were.
async fn delete_under(io: &Io, prefix: &str, doomed: impl Fn(&ObjectName) -> bool) -> Result<u64> {
    let mut deleted = 0;
    for name in io.list_all(prefix).await? {
        if doomed(&name) {
            io.delete(&name).await?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Deletes what an incarnation that has ended named, and its signs of life; how many objects there
/// were. No pin of it is left: see [`crate::collection`].
pub(crate) async fn delete_named(io: &Io, incarnation: Incarnation) -> Result<u64> {
    let mut deleted = 0;
    for prefix in [names::table_prefix, names::application_prefix, names::alive_prefix, names::standby_prefix]
    {
        deleted += delete_under(io, &prefix(incarnation), |_| true).await?;
    }
    Ok(deleted)
}

/// Deletes what says what an incarnation named that ended with the record in slot `last`, but for
/// its claims and that record; how many objects there were. No log of it is left, and no pin at a
/// source: nothing else says where they are.
pub(crate) async fn delete_chain(io: &Io, incarnation: Incarnation, last: u64) -> Result<u64> {
    let deleted = delete_under(io, &names::snapshot_prefix(incarnation), |_| true).await?;
    Ok(deleted + io.run(&mut Truncate::new(incarnation, last - 1), RetryLimit::Bounded).await.flatten()?)
}
