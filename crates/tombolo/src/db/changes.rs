//! The changes of a keyspace, or of all, batch by batch, as they became durable.
//!
//! `commit → the batch with a record of what it changes → durable → told`. The records are data of
//! a keyspace of the database's own. So they are there after a crash and a takeover, a reader sees
//! them, and a checkpoint has them.
//!
//! Invariants:
//! 1. A change is told once it is durable.
//! 2. Changes come in the order of their numbers, none is left out: one that is gone ends the walk
//!    with an error.
//! 3. What a key held before a change is told only where a snapshot has been held since before it,
//!    and all changes since were walked over. Else it is unknown.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::either;
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::change::{ALL_KEYSPACES, Change as Record, change_key, change_sequence, trimmed_key};
use tombolo_format::expiry::{split_expiring, split_operand};
use tombolo_format::key::EntryKind;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::{Blocking, BlockingKeyspace, Db, Keyspace, Snapshot};
use crate::value::Value;
use crate::write;

/// The keyspace in which changes are kept.
pub(super) const CHANGES: &str = "tombolo.changes";
/// Changes that are read at once, and their bytes.
const AT_ONCE: usize = 64;
const AT_ONCE_BYTES: usize = 1 << 20;
/// How long a walk waits before it looks whether its database is still open, and a reader before it
/// looks for news.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Most bytes that are remembered of what has changed since a snapshot.
const SINCE_BYTES_MAX: usize = 64 << 20;
/// What each of them takes beside its own bytes, about.
const NOTE_BYTES: usize = 100;

/// What a key held before a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Nobody has held a snapshot since before it, or too much has changed since; or it held a
    /// value that has ended by the time that the change is told.
    #[default]
    Unknown,
    /// It had no value.
    Absent,
    /// This one.
    Value(Value),
}

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The key has this value, and until when, in milliseconds of the database's time, if it ends.
    Put {
        /// The key.
        key: Value,
        /// The value.
        value: Value,
        /// When it ends.
        expires_ms: Option<u64>,
    },
    /// The key was removed.
    Delete {
        /// The key.
        key: Value,
        /// Whether its writer has promised that it was put once: [`Keyspace::single_delete`].
        is_single: bool,
    },
    /// An operand was merged into the key's value, which ends then, if it does.
    Merge {
        /// The key.
        key: Value,
        /// The operand.
        operand: Value,
        /// When the value ends.
        expires_ms: Option<u64>,
    },
    /// All keys from one on and before another were removed.
    DeleteRange {
        /// The first key.
        from: Value,
        /// The key before which they end.
        to: Value,
    },
    /// Tables from outside became part of the keyspace: read it anew.
    Ingest,
    /// All that the keyspace held was removed, as tables from outside took its place.
    Exchange,
    /// The keyspace was made. Told to those who follow the whole database.
    Create,
    /// The keyspace was dropped: of a walk over it, the last change.
    Drop,
}

/// One write of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// The keyspace's name then.
    pub keyspace: Arc<str>,
    /// What the write did.
    pub kind: ChangeKind,
    /// What the key held before the batch, of writes of one key: see [`Changes::with_before`].
    pub before: Before,
}

/// What one batch did, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its number: that of the batch's last write that is told. They ascend; with the number of the
    /// last that was taken, a follower takes each once.
    pub sequence: u64,
    /// When it was written, in milliseconds since the Unix epoch, by the clock of the writer's
    /// host.
    pub unix_ms: u64,
    /// The writes, in their order.
    pub events: Vec<ChangeEvent>,
    /// The number of each event's keyspace.
    ids: Vec<u32>,
    /// As it is kept.
    raw: Bytes,
}

impl Change {
    /// As it is kept.
    pub(crate) fn raw(&self) -> &Bytes {
        &self.raw
    }
}

/// A keyspace that is followed, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) db: Db,
    /// `None`: all keyspaces.
    pub(super) keyspace: Option<Keyspace>,
}

impl Followed {
    pub(super) fn keyspace(keyspace: &Keyspace) -> Followed {
        Followed { db: Db::of_keyspace(keyspace), keyspace: Some(keyspace.clone()) }
    }

    pub(super) fn all(db: &Db) -> Followed {
        Followed { db: db.clone(), keyspace: None }
    }

    pub(super) fn id(&self) -> u32 {
        self.keyspace.as_ref().map_or(ALL_KEYSPACES, Keyspace::id)
    }

    /// # Errors
    /// `NotFound` when it was dropped.
    pub(super) fn check(&self) -> Result<()> {
        self.keyspace.as_ref().map_or(Ok(()), |keyspace| keyspace.info().check())
    }

    pub(super) fn kept_in(&self) -> Option<Keyspace> {
        let info = self.db.engine().catalog.by_name(CHANGES)?;
        Some(self.db.handle_of(info))
    }

    fn changes(&self, after: u64) -> Result<Changes> {
        match self.kept_in() {
            Some(kept_in) => Ok(Changes::new(self.clone(), kept_in, after)),
            None => Err(self.not_kept()),
        }
    }

    fn not_kept(&self) -> Error {
        Error::new(ErrorKind::Unsupported, format!("changes of {self} are not kept"))
            .advice("subscribe first: Keyspace::subscribe, Db::subscribe, `tombolo db subscriptions`")
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keyspace {
            Some(keyspace) => write!(formatter, "keyspace {:?}", keyspace.name()),
            None => formatter.write_str("the database"),
        }
    }
}

/// What keys held at a snapshot, and what has changed since.
struct Images {
    snapshot: Snapshot,
    /// Keys of keyspaces that changes have written since, and what they held after the last.
    since: BTreeMap<(u32, Bytes), (Before, Option<u64>)>,
    /// Ranges that were deleted since; a key in `since` was written after them, or with them.
    ranges: Vec<(u32, Bytes, Bytes)>,
    bytes: usize,
    /// Too much has changed, or nobody knows what.
    is_lost: bool,
}

impl Images {
    fn new(snapshot: Snapshot) -> Images {
        Images { snapshot, since: BTreeMap::new(), ranges: Vec::new(), bytes: 0, is_lost: false }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.since = BTreeMap::new();
        self.ranges = Vec::new();
    }

    /// Counts bytes before they are noted; whether there is room.
    fn count(&mut self, bytes: usize) -> bool {
        self.bytes += NOTE_BYTES + bytes;
        if self.bytes > SINCE_BYTES_MAX {
            self.lose();
        }
        !self.is_lost
    }

    fn note(&mut self, keyspace: u32, kind: &ChangeKind) {
        if self.is_lost {
            return;
        }
        let (key, held) = match kind {
            ChangeKind::Put { key, value, expires_ms } => (key, (Before::Value(value.clone()), *expires_ms)),
            ChangeKind::Delete { key, .. } => (key, (Before::Absent, None)),
            // What it comes to only its operator knows.
            ChangeKind::Merge { key, .. } => (key, (Before::Unknown, None)),
            ChangeKind::DeleteRange { from, to } => {
                let (from, to) = (from.clone().into_bytes(), to.clone().into_bytes());
                let range = (keyspace, from.clone())..(keyspace, to.clone());
                self.since.range_mut(range).for_each(|(_, held)| *held = (Before::Absent, None));
                if self.count(from.len() + to.len()) {
                    self.ranges.push((keyspace, from, to));
                }
                return;
            }
            ChangeKind::Ingest | ChangeKind::Exchange => {
                self.lose();
                return;
            }
            ChangeKind::Create | ChangeKind::Drop => return,
        };
        let value_bytes = if let Before::Value(value) = &held.0 { value.len() } else { 0 };
        if self.count(key.len() + value_bytes) {
            self.since.insert((keyspace, key.clone().into_bytes()), held);
        }
    }

    /// What the key held after the last change that was noted. Of a value that has ended by now
    /// nobody knows whether it had before the next write.
    async fn of(&self, keyspace: &Keyspace, key: &Value, now_ms: u64) -> Result<Before> {
        let (id, key) = (keyspace.id(), key.clone().into_bytes());
        if self.is_lost {
            return Ok(Before::Unknown);
        }
        if let Some((held, end)) = self.since.get(&(id, key.clone())) {
            return Ok(if end.is_some_and(|end| end <= now_ms) { Before::Unknown } else { held.clone() });
        }
        if self.ranges.iter().any(|(of, from, to)| *of == id && *from <= key && key < *to) {
            return Ok(Before::Absent);
        }
        let mut cursor = self.snapshot.cursor(keyspace, key.clone()..=key);
        if !cursor.next_async().await? {
            return Ok(Before::Absent);
        }
        let has_ended = cursor.expires_ms().is_some_and(|end| end <= now_ms);
        let found = cursor.entry().filter(|_| !has_ended);
        Ok(found.map_or(Before::Unknown, |(_, value)| Before::Value(value)))
    }
}

/// A walk over changes: [`Keyspace::changes`], [`Db::changes`].
pub struct Changes {
    followed: Followed,
    kept_in: Keyspace,
    /// Told so far.
    at: u64,
    ready: VecDeque<Change>,
    /// Once all in `ready` is told, all is told that this one sees.
    reached: Option<Snapshot>,
    images: Option<Images>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Changes")
            .field("of", &self.followed.to_string())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

pub(super) fn damaged(error: tombolo_format::FormatError) -> Error {
    Error::format(format!("keyspace {CHANGES:?}"), 0, error)
}

fn kind_of(raw: &Bytes, operation: &Operation<'_>) -> Result<Option<(u32, ChangeKind)>> {
    let own = |bytes: &[u8]| Value::from(raw.slice_ref(bytes));
    Ok(Some(match operation {
        Operation::CreateKeyspace { keyspace, .. } => (*keyspace, ChangeKind::Create),
        Operation::DropKeyspace { keyspace } => (*keyspace, ChangeKind::Drop),
        Operation::Exchange { keyspace } => (*keyspace, ChangeKind::Exchange),
        Operation::Cut { .. } => return Ok(None),
        Operation::Ingest { tables } => match tables.first() {
            Some((_, keyspace)) => (*keyspace, ChangeKind::Ingest),
            None => return Ok(None),
        },
        Operation::Entry { kind, keyspace, key, value } => {
            let key = own(key);
            let kind = match kind {
                EntryKind::Put => ChangeKind::Put { key, value: own(value), expires_ms: None },
                EntryKind::ExpiringPut => {
                    let (value, end) = split_expiring(value).map_err(damaged)?;
                    ChangeKind::Put { key, value: own(value), expires_ms: Some(end) }
                }
                EntryKind::Delete => ChangeKind::Delete { key, is_single: false },
                EntryKind::SingleDelete => ChangeKind::Delete { key, is_single: true },
                EntryKind::Merge => ChangeKind::Merge { key, operand: own(value), expires_ms: None },
                EntryKind::ExpiringMerge => {
                    let (operand, times) = split_operand(value).map_err(damaged)?;
                    ChangeKind::Merge { key, operand: own(operand), expires_ms: Some(times.expires_ms) }
                }
                EntryKind::RangeDelete => ChangeKind::DeleteRange { from: key, to: own(value) },
                // Only tables hold them.
                EntryKind::MergeList
                | EntryKind::ExpiringMergeList
                | EntryKind::SeparatedPut
                | EntryKind::SeparatedExpiringPut => return Ok(None),
            };
            (*keyspace, kind)
        }
    }))
}

/// The change that is kept under this number as `raw`.
///
/// # Errors
/// `Corrupt`, `Unsupported` when it cannot be read.
pub(crate) fn change_of(sequence: u64, raw: Bytes) -> Result<Change> {
    let record = Record::decode(&raw).map_err(damaged)?;
    let names: BTreeMap<u32, Arc<str>> =
        record.names.iter().map(|(keyspace, name)| (*keyspace, Arc::from(*name))).collect();
    let (mut events, mut ids) = (Vec::new(), Vec::new());
    for operation in Operations::new(record.payload).map_err(damaged)? {
        let Some((id, kind)) = kind_of(&raw, &operation.map_err(damaged)?)? else { continue };
        let keyspace = names.get(&id).cloned().unwrap_or_else(|| Arc::from(""));
        events.push(ChangeEvent { keyspace, kind, before: Before::Unknown });
        ids.push(id);
    }
    let unix_ms = record.unix_ms;
    drop(record);
    Ok(Change { sequence, unix_ms, events, ids, raw })
}

/// The number of the change that has this key.
pub(super) fn number_of(key: &[u8]) -> Result<u64> {
    change_sequence(key)
        .ok_or_else(|| Error::corrupt(format!("keyspace {CHANGES:?}"), 0, "the key of a change", "another"))
}

/// A number that a key of the keyspace holds.
pub(super) fn number_in(value: &[u8]) -> Result<u64> {
    let bytes = value.try_into().map_err(|_| {
        Error::corrupt(
            format!("keyspace {CHANGES:?}"),
            0,
            "a number of 8 bytes",
            format!("{} bytes", value.len()),
        )
    })?;
    Ok(u64::from_le_bytes(bytes))
}

impl Changes {
    pub(super) fn new(followed: Followed, kept_in: Keyspace, after: u64) -> Changes {
        Changes { followed, kept_in, at: after, ready: VecDeque::new(), reached: None, images: None }
    }

    /// From here on a snapshot is held, and events say what their key held before the batch, as far
    /// as that is known: of changes that come after this call, unless a merge or tables from
    /// outside wrote the key between two looks, the value ends before the change is told, or more
    /// than 64 MiB have changed between two looks. All versions stay that the snapshot sees; it
    /// moves on each time the walk has come to its end. As of any snapshot, what ingests behind
    /// what a keyspace holds, and what takes the place of all that it holds, answers `Conflict`
    /// meanwhile.
    #[must_use]
    pub fn with_before(mut self) -> Changes {
        self.hold();
        self
    }

    pub(super) fn hold(&mut self) {
        self.images = Some(Images::new(self.followed.db.snapshot()));
    }

    /// The number of the change that was given last, or after which it began.
    pub fn sequence(&self) -> u64 {
        self.at
    }

    /// The next change, once there is one that is durable. Waits as long as that takes.
    ///
    /// # Errors
    /// `NotFound` when changes after the last one are not kept any more, which says up to where,
    /// and once a keyspace was dropped and that was told. `Unsupported` when they are not kept at
    /// all. `Fenced`; `Closed`; those of [`Keyspace::get`] and [`Db::sync`].
    pub async fn next_async(&mut self) -> Result<Change> {
        loop {
            let engine = Arc::clone(self.followed.db.engine());
            // Before it looks: what comes in between is not missed.
            let news = engine.feed.news.subscribe();
            if let Some(change) = self.try_next_async().await? {
                return Ok(change);
            }
            self.followed.check()?;
            if engine.is_read_only() {
                engine.check_open()?;
                engine.env.sleep(LOOK_AGAIN).await;
            } else {
                either(news, engine.env.sleep(LOOK_AGAIN)).await;
                engine.check_writable()?;
            }
        }
    }

    /// The next change, if there is one now; it is made durable first.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    pub async fn try_next_async(&mut self) -> Result<Option<Change>> {
        if self.ready.is_empty() {
            self.read().await?;
        }
        let Some(next) = self.ready.front() else { return Ok(None) };
        let next = self.with_images(next.clone()).await?;
        if let Some(images) = self.images.as_mut().filter(|images| next.sequence > images.snapshot.sequence())
        {
            next.ids.iter().zip(&next.events).for_each(|(id, event)| images.note(*id, &event.kind));
        }
        self.ready.pop_front();
        self.at = next.sequence;
        Ok(Some(next))
    }

    /// As [`Changes::next_async`], waiting here.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    #[allow(clippy::should_implement_trait, reason = "it waits, and has an error")]
    pub fn next(&mut self) -> Result<Change> {
        let env = self.followed.db.engine().env.clone();
        env.block_on(self.next_async())
    }

    /// As [`Changes::try_next_async`], waiting here.
    ///
    /// # Errors
    /// As [`Changes::next_async`].
    pub fn try_next(&mut self) -> Result<Option<Change>> {
        let env = self.followed.db.engine().env.clone();
        env.block_on(self.try_next_async())
    }

    /// The change with what its keys held before.
    async fn with_images(&self, mut change: Change) -> Result<Change> {
        let Some(images) = &self.images else { return Ok(change) };
        if change.sequence <= images.snapshot.sequence() && !is_enabled(Mutant::BeforeImageAcrossGap) {
            return Ok(change);
        }
        let engine = self.followed.db.engine();
        let now_ms = self.followed.db.time_ms();
        for (id, event) in change.ids.iter().zip(&mut change.events) {
            let key = match &event.kind {
                ChangeKind::Put { key, .. }
                | ChangeKind::Delete { key, .. }
                | ChangeKind::Merge { key, .. } => key,
                _ => continue,
            };
            // Of a keyspace that was dropped nothing is kept.
            let Some(info) = engine.catalog.by_id(*id) else { continue };
            let keyspace = self.followed.db.handle_of(info);
            event.before = match images.of(&keyspace, key, now_ms).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Before::Unknown,
                before => before?,
            };
        }
        Ok(change)
    }

    /// Reads some that follow, all at one moment with the number up to which they are gone.
    async fn read(&mut self) -> Result<()> {
        // All was told that it saw: what follows is newer.
        if let (Some(reached), Some(images)) = (self.reached.take(), &mut self.images)
            && reached.sequence() > images.snapshot.sequence()
        {
            *images = Images::new(reached);
        }
        let snapshot = self.followed.db.snapshot();
        let id = self.followed.id();
        let Some(gone) = snapshot.get(&self.kept_in, trimmed_key(id)).await? else {
            return Err(self.followed.not_kept());
        };
        let gone = number_in(&gone)?;
        if gone > self.at {
            let message = format!(
                "changes of {} up to {gone} are not kept any more, and {} was the last taken",
                self.followed, self.at
            );
            return Err(Error::new(ErrorKind::NotFound, message).advice(
                "begin anew: take a snapshot, read all at it, and follow from Snapshot::sequence on",
            ));
        }
        let (from, to) = (change_key(id, self.at), change_key(id, u64::MAX));
        let bounds = (Bound::Excluded(from), Bound::Included(to));
        let mut cursor = snapshot.cursor::<[u8; 13]>(&self.kept_in, bounds);
        let (mut found, mut bytes) = (VecDeque::new(), 0);
        let is_whole = loop {
            if found.len() >= AT_ONCE || bytes >= AT_ONCE_BYTES {
                break false;
            }
            if !cursor.next_async().await? {
                break true;
            }
            bytes += cursor.value().len();
            let sequence = number_of(cursor.key())?;
            found.push_back(change_of(sequence, Bytes::copy_from_slice(cursor.value()))?);
        };
        // A reader sees only durable writes.
        if !found.is_empty()
            && !self.followed.db.engine().is_read_only()
            && !is_enabled(Mutant::ChangesToldEarly)
        {
            write::sync(self.followed.db.engine()).await?;
        }
        self.ready = found;
        self.reached = (is_whole && self.images.is_some()).then_some(snapshot);
        Ok(())
    }
}

impl Keyspace {
    /// The changes of the keyspace after the write of this number, batch by batch, in order,
    /// durable ones only. They are kept while the keyspace has a subscription
    /// ([`Keyspace::subscribe`]). From a writer, and from a reader or a look, which show them as
    /// they show all else.
    ///
    /// # Errors
    /// `Unsupported` when the database keeps no changes.
    pub fn changes(&self, after: u64) -> Result<Changes> {
        Followed::keyspace(self).changes(after)
    }
}

impl Db {
    /// The number after which changes of all keyspaces are kept.
    ///
    /// # Errors
    /// `Unsupported` when they are not kept.
    pub(crate) async fn changes_kept_after(&self) -> Result<u64> {
        let followed = Followed::all(self);
        let Some(kept_in) = followed.kept_in() else { return Err(followed.not_kept()) };
        match kept_in.get(trimmed_key(ALL_KEYSPACES)).await? {
            Some(gone) => number_in(&gone),
            None => Err(followed.not_kept()),
        }
    }

    /// The changes of all keyspaces: as [`Keyspace::changes`], and kept while the database as a
    /// whole has a subscription ([`Db::subscribe`]). That keyspaces are made and dropped is told
    /// as well.
    ///
    /// # Errors
    /// As [`Keyspace::changes`].
    pub fn changes(&self, after: u64) -> Result<Changes> {
        Followed::all(self).changes(after)
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl Blocking {
    /// As [`Db::changes`].
    pub fn changes(&self, after: u64) -> Result<Changes> {
        self.db().changes(after)
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    /// As [`Keyspace::changes`].
    pub fn changes(&self, after: u64) -> Result<Changes> {
        self.keyspace().changes(after)
    }
}
