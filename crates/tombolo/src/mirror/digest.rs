//! The same ranges of keys, read on both sides at one sequence number: their digests must be equal.
//! By all that is read from the stores, and never by sizes or times.

use std::ops::Bound;
use std::sync::Arc;

use tombolo_format::checksum::StreamHash;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use super::work::{Cut, Position, Work, look_options};
use crate::db::memory_of;
use crate::engine::{Engine, KeyspaceInfo, View};
use crate::read::RangeCursor;
use crate::recovery::{WithoutClaim, without_claim};
use crate::table::{KeyRange, Step};

/// Bytes of keys and values that make one range, about.
const RANGE_BYTES: u64 = 1 << 20;
/// Bytes that continuous verification reads after each publishing, about.
const SOME_BYTES: u64 = 64 << 20;
/// Differences that are told; more would say nothing new.
const DIFFERENCES_MAX: usize = 64;

/// What both sides were found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Both were read as of this number.
    pub sequence: u64,
    /// Ranges of keys that were compared.
    pub ranges: u64,
    /// Their entries, as the source has them.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Where both differ; empty when all is well.
    pub differences: Vec<Difference>,
    /// Keyspaces that could not be compared, and why: their operator is not there.
    pub skipped: Vec<String>,
}

/// A range of keys in which a mirror differs from its source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The keyspace.
    pub keyspace: String,
    /// The range begins after this key; `None`: with the first of all.
    pub after: Option<Vec<u8>>,
    /// It ends with this key; `None`: with the last of all.
    pub last: Option<Vec<u8>>,
    /// Entries that the source has there.
    pub source_entries: u64,
    /// Entries that the mirror has there.
    pub mirror_entries: u64,
    /// The objects of the source's tables that may hold them.
    pub source_tables: Vec<String>,
    /// The objects of the mirror's tables that may hold them.
    pub mirror_tables: Vec<String>,
}

/// A side.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) engine: Arc<Engine>,
    pub(super) view: Arc<View>,
    pub(super) sequence: SequenceNumber,
    pub(super) judged_ms: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Digest {
    entries: u64,
    bytes: u64,
    hash: u64,
}

struct Walk {
    cursor: RangeCursor,
    began: bool,
}

impl Side {
    fn walk(&self, keyspace: &Arc<KeyspaceInfo>, after: Option<&[u8]>) -> Walk {
        let lower = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_vec()));
        let range = KeyRange { lower, upper: Bound::Unbounded };
        let (view, at) = (Arc::clone(&self.view), (self.sequence, self.judged_ms));
        let cursor = RangeCursor::for_purpose(Purpose::Verify, view, Arc::clone(keyspace), at, range);
        Walk { cursor, began: false }
    }

    /// The tables that may hold something of a range.
    fn tables(&self, keyspace: u32, after: Option<&[u8]>, last: Option<&[u8]>) -> Vec<String> {
        let Some(levels) = self.view.version.levels(keyspace) else { return Vec::new() };
        let meets = |table: &&Arc<crate::version::TableHandle>| {
            let description = table.description();
            after.is_none_or(|after| description.last_key[..] > *after)
                && last.is_none_or(|last| description.first_key[..] <= *last)
        };
        let tables = self.engine.versions.tables();
        levels.tables().filter(meets).map(|table| tables.locate(table.description()).1.to_string()).collect()
    }
}

impl Walk {
    async fn next(&mut self) -> Result<bool> {
        self.began = true;
        if self.cursor.next()? == Step::Blocked {
            self.cursor.load().await?;
        }
        Ok(self.cursor.valid())
    }

    /// The digest of what follows up to and with `last`, or of about so many bytes; and the last
    /// key of those, `None` at the end.
    async fn digest(&mut self, last: Option<&[u8]>, bytes_max: u64) -> Result<(Digest, Option<Vec<u8>>)> {
        let (mut digest, mut hash) = (Digest::default(), StreamHash::new());
        let mut at = if self.began { self.cursor.valid() } else { self.next().await? };
        let mut key = None;
        while at && last.is_none_or(|last| self.cursor.key() <= last) {
            let (found, value) = (self.cursor.key(), self.cursor.value());
            for part in [found, value] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            digest.entries += 1;
            digest.bytes += (found.len() + value.len()) as u64;
            let is_last = digest.bytes >= bytes_max;
            if is_last {
                key = Some(found.to_vec());
            }
            at = self.next().await?;
            if is_last {
                break;
            }
        }
        digest.hash = hash.digest();
        Ok((digest, key.filter(|_| at)))
    }
}

/// Compares from a position on, about so many bytes; and where to go on, `None` at the end of all.
///
/// # Errors
/// Those of reading.
pub(super) async fn compare(
    source: &Side,
    mirror: &Side,
    from: &Position,
    bytes_max: u64,
    verified: &mut Verified,
) -> Result<Option<Position>> {
    let mut after = from.after.clone();
    let before = verified.bytes;
    let mut keyspaces: Vec<_> = source.engine.catalog.ids();
    keyspaces.sort_unstable();
    for id in keyspaces.into_iter().filter(|id| *id >= from.keyspace) {
        if id > from.keyspace {
            after = None;
        }
        let Some(keyspace) = source.engine.catalog.by_id(id) else { continue };
        let mirrored = mirror.engine.catalog.by_id(id).unwrap_or_else(|| Arc::clone(&keyspace));
        let mut walks = (source.walk(&keyspace, after.as_deref()), mirror.walk(&mirrored, after.as_deref()));
        loop {
            if verified.bytes - before >= bytes_max {
                return Ok(Some(Position { keyspace: id, after }));
            }
            let there = match walks.0.digest(None, RANGE_BYTES).await {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    verified.skipped.push(format!("{}: {error}", keyspace.name));
                    break;
                }
                digest => digest?,
            };
            let (there, last) = there;
            let (here, _) = walks.1.digest(last.as_deref(), u64::MAX).await?;
            verified.ranges += 1;
            verified.entries += there.entries;
            verified.bytes += there.bytes;
            let is_same = match is_enabled(Mutant::MirrorDigestBySize) {
                true => (there.entries, there.bytes) == (here.entries, here.bytes),
                false => there == here,
            };
            if !is_same && verified.differences.len() < DIFFERENCES_MAX {
                verified.differences.push(Difference {
                    keyspace: keyspace.name.to_string(),
                    after: after.clone(),
                    last: last.clone(),
                    source_entries: there.entries,
                    mirror_entries: here.entries,
                    source_tables: source.tables(id, after.as_deref(), last.as_deref()),
                    mirror_tables: mirror.tables(id, after.as_deref(), last.as_deref()),
                });
            }
            after = last;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(None)
}

impl Difference {
    fn error(&self) -> Error {
        let shown = |key: Option<&[u8]>| match key {
            Some(key) => format!("{:?}", key.escape_ascii().to_string()),
            None => "all".to_owned(),
        };
        let message = format!(
            "the mirror differs from its source in keyspace {:?}, after {} up to {}",
            self.keyspace,
            shown(self.after.as_deref()),
            shown(self.last.as_deref())
        );
        Error::new(ErrorKind::Corrupt, message)
            .expected(format!("{} entries, in {}", self.source_entries, self.source_tables.join(", ")))
            .found(format!("{} entries, in {}", self.mirror_entries, self.mirror_tables.join(", ")))
            .advice("verify both databases; then make the mirror again")
    }
}

impl Work {
    /// Both sides as of what was published last.
    fn sides(&self, cut: &Cut) -> Result<(Side, Side)> {
        let engine = Arc::clone(self.driven.engine());
        let (view, judged_ms) = (engine.view_owned(), engine.judged_ms());
        let source = Side { engine, view, sequence: cut.reached, judged_ms };
        let (options, _) = memory_of(&self.source)?;
        let (options, membership) = look_options(&options, &self.budget)?;
        let engine = without_claim(WithoutClaim {
            env: self.env.clone(),
            place: self.target.uri.clone(),
            objects: Arc::clone(&self.target_objects),
            log_store: None,
            incarnation: self.manifest.incarnation(),
            state: self.manifest.state(),
            options,
            budget: Arc::clone(&self.budget),
            membership,
            kept_by: None,
            flash: None,
            operators: self.source.operators.clone(),
        })?;
        let view = engine.view_owned();
        Ok((source, Side { engine, view, sequence: cut.reached, judged_ms }))
    }

    /// Compares a part of both sides, from where the last comparison ended.
    pub(super) async fn verify_some(&mut self, cut: &Cut) -> Result<()> {
        let (source, mirror) = self.sides(cut)?;
        let mut verified = Verified::default();
        let compared = compare(&source, &mirror, &self.position, SOME_BYTES, &mut verified).await;
        mirror.engine.abandon();
        let next = compared?;
        let is_end = next.is_none();
        self.position = next.unwrap_or_default();
        {
            let mut status = self.status.lock();
            status.entries_verified += verified.entries;
            status.rounds_verified += u64::from(is_end);
        }
        verified.differences.first().map_or(Ok(()), |difference| Err(difference.error()))
    }

    /// Publishes, and compares all of both sides.
    pub(super) async fn verify_all(&mut self) -> Result<Verified> {
        let cut = self.publish().await?;
        if !cut.has_memory {
            return Err(Error::new(ErrorKind::Retry, "tables from outside are on their way into the source")
                .advice("verify again once the source has flushed"));
        }
        let (source, mirror) = self.sides(&cut)?;
        let mut verified = Verified { sequence: cut.reached.0, ..Verified::default() };
        let compared = compare(&source, &mirror, &Position::default(), u64::MAX, &mut verified).await;
        mirror.engine.abandon();
        compared.map(|_| verified)
    }
}

#[cfg(test)]
mod tests;
