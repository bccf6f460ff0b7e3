//! What a commit writes: a batch that was encoded while it was built, one entry where its caller
//! has it, or entries of several writers as one.
//!
//! Each is encoded once. The log joins the parts of its payload in the frame; the memtable copies
//! keys and values from the same places.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Completion;
use tombolo_format::batch::{
    BATCH_HEADER_BYTES, BatchBuilder, OPERATION_HEADER_BYTES, Operation, SINGLE_HEAD_BYTES, batch_header,
    entry_header, single_head,
};
use tombolo_format::expiry::{Expiry, expiry_of};
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_format::manifest::Edit;
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use super::{BATCH_BYTES_MAX, append};
use crate::engine::{Commit, Engine, Health, KeyspaceInfo, MAIN_STREAM, Posted, Sight};
use crate::locks::{Locks, Span};
use crate::memtable::{Entry, MemtableWriter};
use crate::options::{Durability, KeyspaceOptions};

/// Most bytes of a memtable that a batch may take: what many short entries take beside their bytes
/// is bounded as well.
const MEMTABLE_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// Most that the writes of a prepared transaction take. Their decision must pass, also where they
/// are followed twice: as a keyspace, and as all of them.
const DECIDED_BYTES_MAX: usize = BATCH_BYTES_MAX / 3 - (1 << 20);
const DECIDED_MEMTABLE_BYTES_MAX: usize = MEMTABLE_BYTES_MAX - 2 * (BATCH_BYTES_MAX / 3);
const DECIDED_RANGE_KEY_BYTES_MAX: usize = RANGE_KEY_BYTES_MAX - (1 << 10);

/// Entries of a batch that the memtable is given at once.
const ENTRIES_AT_ONCE: usize = 64;

/// Most bytes that the keys of range deletes take in a batch, so that what a memtable holds of them
/// fits one table.
const RANGE_KEY_BYTES_MAX: usize = 4 << 20;

/// A batch with what its commit needs to know, gathered while it was built.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) batch: BatchBuilder,
    /// Room that its entries take in a memtable, as a rule.
    pub(crate) memtable_bytes: usize,
    /// The keyspaces that it writes to.
    pub(crate) keyspaces: Vec<Arc<KeyspaceInfo>>,
    /// Bytes of the keys of its range deletes.
    pub(crate) range_key_bytes: usize,
    /// The first limit that an entry broke.
    pub(crate) invalid: Option<Error>,
    /// When the first of its entries ends; `u64::MAX` when none does.
    pub(super) earliest_end: u64,
    /// When the first of its operands was written that end; `u64::MAX` without such.
    pub(super) earliest_written: u64,
    /// The number under which the transaction holds its locks whose batch it is; 0: of none.
    pub(crate) transaction: u64,
}

/// What an entry adds to a batch, for those who hold entries to make a batch of them later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    payload_bytes: usize,
    memtable_bytes: usize,
    range_key_bytes: usize,
}

impl Cost {
    /// Of an entry that may be written.
    ///
    /// # Errors
    /// `Invalid` when key, value or range are beyond their limits; `Unsupported` when the keyspace
    /// may hold no such entries.
    pub(crate) fn of(
        keyspace: &Arc<KeyspaceInfo>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<Cost> {
        One::new(keyspace, kind, key, value)?;
        let is_range = kind == EntryKind::RangeDelete;
        Ok(Cost {
            payload_bytes: OPERATION_HEADER_BYTES + key.len() + value.len(),
            memtable_bytes: MemtableWriter::entry_bytes(key.len(), value.len()),
            range_key_bytes: if is_range { key.len() + value.len() } else { 0 },
        })
    }

    /// Of both.
    pub(crate) fn with(self, other: Cost) -> Cost {
        Cost {
            payload_bytes: self.payload_bytes + other.payload_bytes,
            memtable_bytes: self.memtable_bytes + other.memtable_bytes,
            range_key_bytes: self.range_key_bytes + other.range_key_bytes,
        }
    }

    /// Bytes of memory until the batch is made, about.
    pub(crate) fn bytes(self) -> usize {
        self.payload_bytes
    }

    /// Whether a batch may hold as much.
    pub(crate) fn fits(self) -> bool {
        BATCH_HEADER_BYTES + self.payload_bytes <= BATCH_BYTES_MAX
            && self.memtable_bytes <= MEMTABLE_BYTES_MAX
            && self.range_key_bytes <= RANGE_KEY_BYTES_MAX
    }
}

impl Default for Prepared {
    fn default() -> Prepared {
        Prepared {
            batch: BatchBuilder::default(),
            memtable_bytes: 0,
            keyspaces: Vec::new(),
            invalid: None,
            range_key_bytes: 0,
            earliest_end: u64::MAX,
            earliest_written: u64::MAX,
            transaction: 0,
        }
    }
}

/// When an entry ends; `u64::MAX`: it does not.
#[inline]
fn end_of(kind: EntryKind, value: &[u8]) -> u64 {
    expiry_of(kind, value).ok().flatten().unwrap_or(u64::MAX)
}

/// When an operand was written that ends; `u64::MAX` of another entry.
fn written_of(kind: EntryKind, value: &[u8]) -> u64 {
    let one = Expiry::of_entry(kind, value).ok().flatten();
    one.map_or(u64::MAX, |one| one.written_ms)
}

/// Refuses a range without a key.
#[inline]
fn check_range(kind: EntryKind, from: &[u8], to: &[u8]) -> Result<()> {
    if kind == EntryKind::RangeDelete && from >= to { Err(empty_range(from, to)) } else { Ok(()) }
}

#[cold]
fn empty_range(from: &[u8], to: &[u8]) -> Error {
    let message = "a range delete whose range holds no key";
    Error::new(ErrorKind::Invalid, message)
        .expected(format!("an end after its first key, \"{}\"", from.escape_ascii()))
        .found(format!("\"{}\"", to.escape_ascii()))
        .advice("give the first key, and the key before which the range ends")
}

pub(super) fn beyond_limit(error: &tombolo_format::FormatError) -> Error {
    Error::new(ErrorKind::Invalid, error.to_string())
        .advice("use shorter keys and values, or smaller batches")
}

impl Prepared {
    /// An empty one of the transaction that holds locks under this number.
    pub(crate) fn of_transaction(number: u64) -> Prepared {
        Prepared { transaction: number, ..Prepared::default() }
    }

    /// Whether one more entry of these lengths stays within the limits of a batch.
    pub(crate) fn has_room(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let payload_bytes = self.batch.payload_bytes() + OPERATION_HEADER_BYTES + key_bytes + value_bytes;
        let memtable_bytes = self.memtable_bytes + MemtableWriter::entry_bytes(key_bytes, value_bytes);
        payload_bytes <= BATCH_BYTES_MAX && memtable_bytes <= MEMTABLE_BYTES_MAX
    }

    /// Whether it could be written later, whatever follows it then.
    ///
    /// # Errors
    /// `Invalid` when it is too large for that.
    pub(crate) fn check_decidable(&self) -> Result<()> {
        let bytes = self.batch.payload_bytes();
        if bytes <= DECIDED_BYTES_MAX
            && self.memtable_bytes <= DECIDED_MEMTABLE_BYTES_MAX
            && self.range_key_bytes <= DECIDED_RANGE_KEY_BYTES_MAX
        {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, format!("a prepared transaction with writes of {bytes} bytes"))
            .expected(format!("at most {DECIDED_BYTES_MAX}, and {DECIDED_MEMTABLE_BYTES_MAX} in memory"))
            .advice("prepare smaller transactions"))
    }

    /// Remembers an entry that cannot be written.
    pub(crate) fn refuse(&mut self, error: Error) {
        self.invalid.get_or_insert(error);
    }

    /// Adds another one; a broken limit is remembered.
    ///
    /// # Errors
    /// `Invalid` when there are too many operations then.
    #[cold]
    fn append(&mut self, other: &Prepared) -> Result<()> {
        self.batch.append(&other.batch).map_err(|error| beyond_limit(&error))?;
        self.memtable_bytes += other.memtable_bytes;
        self.range_key_bytes += other.range_key_bytes;
        self.earliest_end = self.earliest_end.min(other.earliest_end);
        self.earliest_written = self.earliest_written.min(other.earliest_written);
        self.transaction = other.transaction;
        for keyspace in &other.keyspaces {
            if !self.keyspaces.iter().any(|known| Arc::ptr_eq(known, keyspace)) {
                self.keyspaces.push(Arc::clone(keyspace));
            }
        }
        let bytes = self.batch.payload_bytes();
        if bytes > BATCH_BYTES_MAX || self.memtable_bytes > MEMTABLE_BYTES_MAX {
            let error = Error::new(ErrorKind::Invalid, format!("a batch of {bytes} bytes"))
                .expected(format!("at most {BATCH_BYTES_MAX} bytes"));
            self.refuse(error.advice("write smaller batches to keyspaces that are followed"));
        }
        Ok(())
    }

    /// Adds an entry; a broken limit is remembered.
    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInfo>, kind: EntryKind, key: &[u8], value: &[u8]) {
        if self.invalid.is_some() {
            return;
        }
        if let Err(error) = keyspace.check_kind(kind) {
            self.invalid = Some(error);
            return;
        }
        if let Err(error) = check_range(kind, key, value) {
            self.invalid = Some(error);
            return;
        }
        if kind == EntryKind::RangeDelete {
            self.range_key_bytes += key.len() + value.len();
            if self.range_key_bytes > RANGE_KEY_BYTES_MAX {
                let message =
                    format!("range deletes with keys of {} bytes in one batch", self.range_key_bytes);
                let error = Error::new(ErrorKind::Invalid, message);
                self.invalid = Some(
                    error
                        .expected(format!("at most {RANGE_KEY_BYTES_MAX} bytes"))
                        .advice("write smaller batches"),
                );
                return;
            }
        }
        if let Err(error) = self.batch.push(kind, keyspace.id, key, value) {
            self.invalid = Some(beyond_limit(&error));
            return;
        }
        if self.batch.payload_bytes() > BATCH_BYTES_MAX {
            let message =
                format!("a batch of {} bytes; at most {BATCH_BYTES_MAX}", self.batch.payload_bytes());
            self.invalid = Some(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
            return;
        }
        self.earliest_end = self.earliest_end.min(end_of(kind, value));
        self.earliest_written = self.earliest_written.min(written_of(kind, value));
        self.memtable_bytes += MemtableWriter::entry_bytes(key.len(), value.len());
        if self.memtable_bytes > MEMTABLE_BYTES_MAX {
            let message = format!(
                "a batch of {} entries that takes {} bytes in memory",
                self.batch.count(),
                self.memtable_bytes
            );
            let error = Error::new(ErrorKind::Invalid, message)
                .expected(format!("at most {MEMTABLE_BYTES_MAX} bytes"));
            self.invalid =
                Some(error.advice(
                    "write smaller batches: a short entry takes some hundred bytes until it is flushed",
                ));
            return;
        }
        if !self.keyspaces.last().is_some_and(|last| Arc::ptr_eq(last, keyspace))
            && !self.keyspaces.iter().any(|known| Arc::ptr_eq(known, keyspace))
        {
            self.keyspaces.push(Arc::clone(keyspace));
        }
    }
}

/// One entry, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One<'a> {
    keyspace: &'a Arc<KeyspaceInfo>,
    kind: EntryKind,
    key: &'a [u8],
    value: &'a [u8],
    /// What the payload has before the key.
    head: [u8; SINGLE_HEAD_BYTES],
}

impl<'a> One<'a> {
    /// # Errors
    /// `Invalid` when key or value is beyond its limit; `Unsupported` when the keyspace may hold no
    /// such entries.
    #[inline]
    pub(crate) fn new(
        keyspace: &'a Arc<KeyspaceInfo>,
        kind: EntryKind,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<One<'a>> {
        keyspace.check_kind(kind)?;
        check_range(kind, key, value)?;
        match single_head(kind, keyspace.id, key, value) {
            Ok(head) => Ok(One { keyspace, kind, key, value, head }),
            Err(error) => Err(beyond_limit(&error)),
        }
    }

    /// Key and value bytes.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    fn memtable_bytes(&self) -> usize {
        MemtableWriter::entry_bytes(self.key.len(), self.value.len())
    }

    #[inline]
    fn apply(&self, commit: &mut Commit, number: u64) {
        let trailer = Trailer::new(SequenceNumber(number), self.kind);
        commit.writer.insert(self.keyspace.id, self.key, trailer, self.value);
    }

    /// As a batch, which owns its bytes.
    pub(super) fn to_prepared(self) -> Prepared {
        let mut prepared = Prepared {
            batch: BatchBuilder::with_capacity(BATCH_HEADER_BYTES + OPERATION_HEADER_BYTES + self.bytes()),
            ..Prepared::default()
        };
        prepared.push(self.keyspace, self.kind, self.key, self.value);
        prepared
    }

    /// Leaves a copy for the writer in the commit section.
    pub(super) fn leave(&self, posted: &mut Posted, durability: Durability) {
        posted.keyspace = Some(Arc::clone(self.keyspace));
        posted.kind = self.kind;
        posted.head = self.head;
        posted.bytes.extend_from_slice(self.key);
        posted.bytes.extend_from_slice(self.value);
        posted.key_bytes = self.key.len();
        posted.durability = durability;
    }

    /// What was left.
    pub(super) fn left(posted: &Posted) -> Option<One<'_>> {
        let (key, value) = posted.bytes.split_at_checked(posted.key_bytes)?;
        posted.keyspace.as_ref().map(|keyspace| One {
            keyspace,
            kind: posted.kind,
            key,
            value,
            head: posted.head,
        })
    }
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    One(&'a One<'a>),
    /// Of several writers, a log entry together.
    Several(&'a [One<'a>]),
    Batch(&'a Prepared),
}

impl Content<'_> {
    /// Operations.
    #[inline]
    pub(super) fn count(self) -> u32 {
        match self {
            Content::One(_) => 1,
            Content::Several(several) => narrow(several.len()),
            Content::Batch(prepared) => prepared.batch.count(),
        }
    }

    /// Room in a memtable, as a rule.
    #[inline]
    pub(super) fn memtable_bytes(self) -> usize {
        match self {
            Content::One(one) => one.memtable_bytes(),
            Content::Several(several) => several.iter().map(One::memtable_bytes).sum(),
            Content::Batch(prepared) => prepared.memtable_bytes,
        }
    }

    /// When the first of its entries ends; `u64::MAX` when none does.
    #[inline]
    pub(super) fn earliest_end(self) -> u64 {
        let end = |one: &One<'_>| end_of(one.kind, one.value);
        match self {
            Content::One(one) => end(one),
            Content::Several(several) => several.iter().map(end).min().unwrap_or(u64::MAX),
            Content::Batch(prepared) => prepared.earliest_end,
        }
    }

    /// When the first of its operands was written that end; `u64::MAX` without such. Asked only
    /// where something ends.
    #[cold]
    pub(super) fn earliest_written(self) -> u64 {
        let written = |one: &One<'_>| written_of(one.kind, one.value);
        match self {
            Content::One(one) => written(one),
            Content::Several(several) => several.iter().map(written).min().unwrap_or(u64::MAX),
            Content::Batch(prepared) => prepared.earliest_written,
        }
    }

    /// # Errors
    /// `Invalid` when a limit was broken; `NotFound` when a keyspace was dropped.
    #[inline]
    pub(super) fn check(self) -> Result<()> {
        match self {
            Content::One(one) => one.keyspace.check(),
            Content::Several(several) => several.iter().try_for_each(|one| one.keyspace.check()),
            Content::Batch(Prepared { invalid: Some(error), .. }) => Err(error.clone()),
            Content::Batch(prepared) => prepared.keyspaces.iter().try_for_each(|keyspace| keyspace.check()),
        }
    }

    /// # Errors
    /// `Conflict` when a prepared transaction holds what it writes.
    #[cold]
    pub(super) fn check_prepared(self, locks: &Locks) -> Result<()> {
        let check = |keyspace: &KeyspaceInfo, kind, key: &[u8], value: &[u8], owner| {
            let span = match kind {
                EntryKind::RangeDelete => {
                    Span::range(keyspace.id, &keyspace.name, Bound::Included(key), Bound::Excluded(value))
                }
                _ => Span::key(keyspace.id, &keyspace.name, Bytes::copy_from_slice(key)),
            };
            locks.check_prepared(&span, owner)
        };
        match self {
            Content::One(one) => check(one.keyspace, one.kind, one.key, one.value, 0),
            Content::Several(several) => {
                several.iter().try_for_each(|one| check(one.keyspace, one.kind, one.key, one.value, 0))
            }
            Content::Batch(prepared) => {
                let owner = prepared.transaction;
                for operation in prepared.batch.operations().flatten() {
                    if let Operation::Entry { kind, keyspace, key, value } = operation
                        && let Some(keyspace) = prepared.keyspaces.iter().find(|known| known.id == keyspace)
                    {
                        check(keyspace, kind, key, value, owner)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes that callers have made.
    #[inline]
    pub(super) fn writes(self) -> u64 {
        match self {
            Content::One(_) | Content::Batch(_) => 1,
            Content::Several(several) => several.len() as u64,
        }
    }

    /// Appends it to the log.
    #[inline]
    pub(super) fn append(
        self,
        engine: &Health,
        commit: &mut Commit,
    ) -> Result<(LogOffset, Option<Completion<Result<()>>>)> {
        match self {
            Content::One(one) => append(engine, commit, &[&one.head, one.key, one.value], 1),
            Content::Several(several) => append_several(engine, commit, several),
            Content::Batch(prepared) => {
                append(engine, commit, &[prepared.batch.payload()], prepared.batch.count())
            }
        }
    }

    /// Before it is applied: stretches of dead keys end where it puts something. Numbers up to
    /// `last` were given out.
    #[cold]
    pub(super) fn meet_dead_runs(self, engine: &Sight, last: u64) {
        let dead_runs = engine.catalog.dead_runs();
        dead_runs.take_note(last, engine.view().generation);
        let met = |kind, keyspace, key: &[u8]| match kind {
            EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete => {}
            _ => dead_runs.cut(keyspace, key),
        };
        match self {
            Content::One(one) => met(one.kind, one.keyspace.id, one.key),
            Content::Several(several) => {
                several.iter().for_each(|one| met(one.kind, one.keyspace.id, one.key));
            }
            Content::Batch(prepared) => {
                for operation in prepared.batch.operations().flatten() {
                    if let Operation::Entry { kind, keyspace, key, .. } = operation {
                        met(kind, keyspace, key);
                    }
                }
            }
        }
    }

    /// Gives each operation to `each`, with its place.
    ///
    /// # Errors
    /// Those of `each`.
    #[cold]
    pub(super) fn for_each(self, mut each: impl FnMut(u64, Operation<'_>) -> Result<()>) -> Result<()> {
        let mut one = |at, one: &One<'_>| {
            let (kind, keyspace) = (one.kind, one.keyspace.id);
            each(at, Operation::Entry { kind, keyspace, key: one.key, value: one.value })
        };
        match self {
            Content::One(content) => one(0, content),
            Content::Several(several) => (0..).zip(several).try_for_each(|(at, content)| one(at, content)),
            Content::Batch(prepared) => {
                for (at, operation) in (0..).zip(prepared.batch.operations()) {
                    let Ok(operation) = operation else { unreachable!("a batch reads back what it wrote") };
                    each(at, operation)?;
                }
                Ok(())
            }
        }
    }

    /// Adds it to a batch, in which a broken limit is remembered.
    ///
    /// # Errors
    /// `Invalid` when the batch has too many operations then.
    #[cold]
    pub(super) fn join(self, prepared: &mut Prepared) -> Result<()> {
        match self {
            Content::One(one) => prepared.push(one.keyspace, one.kind, one.key, one.value),
            Content::Several(several) => {
                several.iter().for_each(|one| prepared.push(one.keyspace, one.kind, one.key, one.value));
            }
            Content::Batch(own) => prepared.append(own)?,
        }
        Ok(())
    }

    /// Puts it into the memtable and the catalog, with numbers from `first` on.
    #[inline]
    pub(super) fn apply(self, engine: &Engine, commit: &mut Commit, first: u64) {
        match self {
            Content::One(one) => one.apply(commit, first),
            Content::Several(several) => {
                (first..).zip(several).for_each(|(number, one)| one.apply(commit, number));
            }
            Content::Batch(prepared) => apply_batch(engine, commit, &prepared.batch, first),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "as many as have a place at the commit_queue")]
fn narrow(count: usize) -> u32 {
    count as u32
}

/// As one payload of several operations.
fn append_several(
    engine: &Health,
    commit: &mut Commit,
    several: &[One<'_>],
) -> Result<(LogOffset, Option<Completion<Result<()>>>)> {
    let header = batch_header(narrow(several.len()));
    let head = |one: &One<'_>| entry_header(one.kind, one.keyspace.id, one.key, one.value);
    let heads = several
        .iter()
        .map(head)
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| beyond_limit(&error))?;
    let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + 3 * several.len());
    parts.push(&header);
    for (head, one) in heads.iter().zip(several) {
        parts.extend_from_slice(&[head, one.key, one.value]);
    }
    append(engine, commit, &parts, narrow(several.len()))
}

fn apply_batch(engine: &Engine, commit: &mut Commit, batch: &BatchBuilder, first: u64) {
    let mut entries = Vec::with_capacity(ENTRIES_AT_ONCE.min(batch.count() as usize));
    for (index, operation) in batch.operations().enumerate() {
        let Ok(operation) = operation else { unreachable!("a batch reads back what it wrote") };
        match operation {
            Operation::Entry { kind, keyspace, key, value } => {
                let trailer = Trailer::new(SequenceNumber(first + index as u64), kind);
                entries.push((keyspace, Entry { key, trailer, value }));
                if entries.len() == ENTRIES_AT_ONCE {
                    commit.writer.insert_several(&entries);
                    entries.clear();
                }
            }
            Operation::CreateKeyspace { keyspace, name, stream, options } => {
                let settings = KeyspaceOptions::of_stream(&options, stream).unwrap_or_default();
                let info = KeyspaceInfo::new(keyspace, name, settings, options.features);
                if let Some(stream) = engine.streams.get(stream) {
                    info.set_created(commit.log.id.lane, commit.log_end);
                    stream.catalog.insert(&info);
                }
                engine.catalog.insert(&info);
                commit.keyspace_edits.push(Edit::KeyspaceCreated {
                    id: keyspace,
                    name: name.to_owned(),
                    stream,
                    options,
                });
            }
            // Shown with the memtable that is sealed after it: see `ingest`.
            Operation::Ingest { .. } | Operation::Exchange { .. } | Operation::Cut { .. } => {}
            Operation::DropKeyspace { keyspace } => {
                let stream = engine.catalog.by_id(keyspace).map_or(MAIN_STREAM, |info| info.stream);
                engine.catalog.remove(keyspace);
                if let Some(stream) = engine.streams.get(stream) {
                    stream.catalog.remove(keyspace);
                }
                commit.keyspace_edits.push(Edit::KeyspaceDropped { id: keyspace });
            }
        }
    }
    commit.writer.insert_several(&entries);
}
