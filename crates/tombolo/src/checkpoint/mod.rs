//! Checkpoints: a state of the database that stays readable, and costs no copying.
//!
//! `flush → pin the tables of a state → prove the pin (rule 12) → put the checkpoint, which holds the state`,
//! and deleting it backwards. A checkpoint holds what tables held: a prefix of the order of writes,
//! so a consistent cut of all keyspaces.
//!
//! Invariants:
//! 1. A checkpoint is put only after the pin of the same id was proven, and deleted before that
//!    pin. So one whose pin is there keeps all its tables; one without a pin is none, and nobody is
//!    shown it.
//! 2. Ids are fresh and never used again, so that a put or delete which lands late meets nothing of
//!    another checkpoint.
//! 3. A writer acknowledges a checkpoint only after its log was seen unfenced once the checkpoint
//!    was there. So a sweep after the fence sees every acknowledged one, and one that it finds
//!    half made will never be acknowledged. Before it deletes, it makes sure that nobody has fenced
//!    it in turn: what a successor is making looks the same.
//! 4. A checkpoint whose bytes are damaged, or of a newer format, hides no other. It keeps its
//!    tables until it is deleted by its id.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::checkpoint::{CHECKPOINT_HEADER_BYTES_MAX, CheckpointHeader, snapshot_identity};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::snapshot::{SnapshotDecoder, SnapshotEncoder, SnapshotEnd};
use tombolo_format::manifest::{Edit, TableName};
use tombolo_format::pin::{PIN_BYTES_MAX, PinKind, decode_pin};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Incarnation, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose,
    Result,
};

use crate::collection::driver::delete_pin;
use crate::collection::{PinOptions, Pinned, pin};
use crate::manifest::State;
use crate::manifest::chain::undecodable;
use crate::manifest::driver::fenced_error;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::names;

/// Bytes of a checkpoint read by one request.
const READ_BYTES: u64 = 4 << 20;

/// A state of the database that stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Checkpoint {
    /// What the user calls it.
    pub name: String,
    /// Its number; never used again. As 32 hexadecimal digits it names the checkpoint where no name
    /// does.
    pub id: u128,
    /// When it was made, in seconds since the Unix epoch.
    pub created_unix_seconds: u64,
    /// The greatest sequence number in it: all writes up to it are in it, and none after.
    pub last_sequence: u64,
    /// Tables that it keeps.
    pub tables: u64,
    /// Their bytes. They take space of their own only once the database itself needs them no more.
    pub table_bytes: u64,
    /// Their entries, older versions and deletes included.
    pub entries: u64,
    /// Why it cannot be read, if so: then all but its id is unknown, and it can only be deleted, by
    /// its id.
    pub damage: Option<String>,
}

impl From<&CheckpointHeader> for Checkpoint {
    fn from(header: &CheckpointHeader) -> Checkpoint {
        Checkpoint {
            name: header.name.clone(),
            id: header.id,
            created_unix_seconds: header.created_unix_seconds,
            last_sequence: header.last_sequence.0,
            tables: header.tables,
            table_bytes: header.table_bytes,
            entries: header.entries,
            damage: None,
        }
    }
}

impl From<&Listed> for Checkpoint {
    fn from(listed: &Listed) -> Checkpoint {
        match &listed.header {
            Ok(header) => Checkpoint::from(header),
            Err(error) => Checkpoint {
                name: String::new(),
                id: listed.id,
                created_unix_seconds: 0,
                last_sequence: 0,
                tables: 0,
                table_bytes: 0,
                entries: 0,
                damage: Some(error.to_string()),
            },
        }
    }
}

/// A checkpoint that is there, though it may be unreadable.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: u128,
    /// `Corrupt` or `Unsupported`: one that is damaged keeps its tables, and stands in nobody's
    /// way.
    pub(crate) header: Result<CheckpointHeader>,
}

impl Listed {
    /// Its name, if that can be read.
    pub(crate) fn name(&self) -> Option<&str> {
        self.header.as_ref().ok().map(|header| header.name.as_str())
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "{name:?}"),
            None => write!(formatter, "{:032x}, which cannot be read", self.id),
        }
    }
}

/// The checkpoints of one life of a database. Needs no claim.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    io: Io,
    incarnation: Incarnation,
}

impl Checkpoints {
    pub(crate) fn new(
        env: &Env,
        store: &Arc<dyn ObjectStore>,
        incarnation: Incarnation,
        epoch: Epoch,
    ) -> Checkpoints {
        Checkpoints {
            io: Io { env: env.clone(), store: Arc::clone(store), epoch, purpose: Purpose::Manifest },
            incarnation,
        }
    }

    /// Makes a checkpoint of the newest state, if `check` finds that it may be of that. The caller
    /// makes sure that the name is free, and confirms its epoch afterwards.
    ///
    /// # Errors
    /// As [`pin()`]; those of `check` and of the store.
    pub(crate) async fn create(
        &self,
        name: &str,
        check: impl FnOnce(&State) -> Result<()>,
    ) -> Result<Checkpoint> {
        let chosen: Mutex<Option<State>> = Mutex::default();
        let choose = |state: &State| {
            *chosen.lock() = Some(state.clone());
            state.live_names().collect()
        };
        let options = PinOptions { kind: PinKind::Checkpoint, lease: None };
        let pinned = pin(&self.io.env, &self.io.store, options, choose).await?;
        let Some(state) = chosen.into_inner() else {
            return Err(Error::new(ErrorKind::Bug, "a pin was made of no state"));
        };
        // Of a state that another epoch wrote, the checkpoint would pass for that one's, which may
        // have made one of this name.
        let checked = if state.epoch() == self.io.epoch { check(&state) } else { Err(fenced_error()) };
        let put = match checked {
            Ok(()) => self.put(name, &pinned, &state).await,
            Err(error) => Err(error),
        };
        match put {
            Ok(header) => Ok(Checkpoint::from(&header)),
            // It may be there, or come to be: then its pin must stay.
            Err(error) if matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::DeadlineExceeded) => {
                Err(error)
            }
            Err(error) => {
                if let Err(left) = pinned.release().await {
                    tracing::warn!(error = %left, "the pin of a checkpoint that failed is left; the next \
                        checkpoint or opening sweeps it");
                }
                Err(error)
            }
        }
    }

    async fn put(&self, name: &str, pinned: &Pinned, state: &State) -> Result<CheckpointHeader> {
        let edits = edits(state);
        let identity = snapshot_identity(self.incarnation.0, state.slot(), pinned.id());
        // Once for the length and checksum that the header holds; again to write.
        let end = encode(&edits, identity, |_piece| ())?;
        let objects = || state.keyspaces().flat_map(|keyspace| keyspace.objects());
        let tables = || objects().filter(|object| !object.is_values());
        let header = CheckpointHeader {
            incarnation: self.incarnation.0,
            id: pinned.id(),
            epoch: state.epoch().0,
            slot: state.slot(),
            last_sequence: last_sequence(state),
            created_unix_seconds: self.io.env.unix_time().as_secs(),
            tables: objects().count() as u64,
            table_bytes: objects().map(|object| object.length).sum(),
            entries: tables().map(|table| table.entries).sum(),
            snapshot_bytes: end.length,
            snapshot_checksum: end.checksum,
            name: name.to_owned(),
        };
        let mut pieces =
            vec![header.encode().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?];
        let end = encode(&edits, identity, |piece| pieces.push(piece))?;
        let object = names::checkpoint(self.incarnation, pinned.id());
        let mut writer = self
            .io
            .store
            .create(self.io.request(), &object, Placement::new(ObjectKind::Pin, Life::Long))
            .await?;
        for piece in pieces.into_iter().chain([end.piece]) {
            writer.append(piece.into()).await?;
        }
        writer.finish().await?;
        Ok(header)
    }

    /// All, oldest first, and then those that cannot be read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>> {
        let objects = self.io.list_all(&names::checkpoint_prefix(self.incarnation)).await?;
        // Listed after them: a pin is there before its checkpoint, and goes after it.
        let pins = if objects.is_empty() { BTreeSet::new() } else { self.pins().await? };
        let mut all = Vec::new();
        for object in objects {
            let Some(id) = names::parse_checkpoint(self.incarnation, &object).filter(|id| pins.contains(id))
            else {
                continue;
            };
            let header = match self.header(&object, id).await {
                Ok(None) => continue,
                Ok(Some(header)) => Ok(header),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    Err(error)
                }
                Err(error) => return Err(error),
            };
            all.push(Listed { id, header });
        }
        all.sort_by_key(|listed| match &listed.header {
            Ok(header) => (header.created_unix_seconds, header.slot, listed.id),
            Err(_) => (u64::MAX, u64::MAX, listed.id),
        });
        Ok(all)
    }

    async fn pins(&self) -> Result<BTreeSet<u128>> {
        let pins = self.io.list_all(&names::pin_prefix(self.incarnation)).await?;
        let ids = pins.iter().filter_map(|name| names::parse_pin(self.incarnation, name));
        Ok(ids.filter_map(|(id, heartbeat)| heartbeat.is_none().then_some(id)).collect())
    }

    /// The header of a checkpoint; `None` when it was deleted meanwhile.
    async fn header(&self, object: &ObjectName, id: u128) -> Result<Option<CheckpointHeader>> {
        let read = || self.io.store.read(self.io.request(), object, 0..CHECKPOINT_HEADER_BYTES_MAX as u64);
        let bytes = match self.io.retried(RetryLimit::Bounded, read).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let (header, _) = CheckpointHeader::decode(&bytes).map_err(|error| undecodable(object, error))?;
        if header.id != id || header.incarnation != self.incarnation.0 {
            return Err(Error::corrupt(
                object,
                32,
                format!("checkpoint {id:032x}"),
                format!("checkpoint {:032x}", header.id),
            ));
        }
        Ok(Some(header))
    }

    /// The checkpoint of that name. Of two, which only a stale writer can have made, the one of the
    /// newer epoch.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` or `Unsupported` when it may be one that cannot be read; as
    /// [`Checkpoints::list`].
    pub(crate) async fn find(&self, name: &str) -> Result<CheckpointHeader> {
        let all = self.list().await?;
        let sound =
            all.iter().filter_map(|listed| listed.header.as_ref().ok()).filter(|header| header.name == name);
        if let Some(found) = sound.max_by_key(|header| (header.epoch, header.slot)) {
            return Ok(found.clone());
        }
        match all.into_iter().map(|listed| listed.header).collect::<Result<Vec<_>>>() {
            Err(error) => Err(error
                .context(format!("no checkpoint that can be read is called {name:?}, but this one may be"))),
            Ok(known) => Err(not_found(name, known.iter().map(|header| format!("{:?}", header.name)))),
        }
    }

    /// The state that a checkpoint holds.
    ///
    /// # Errors
    /// `Corrupt`; `NotFound` when it was deleted; those of the store.
    pub(crate) async fn load(&self, header: &CheckpointHeader) -> Result<State> {
        let object = names::checkpoint(self.incarnation, header.id);
        let start =
            header.encode().map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))?.len() as u64;
        let mut decoder = SnapshotDecoder::new(header.snapshot_identity());
        let (mut edits, mut at) = (Vec::new(), 0);
        let damaged = |error| undecodable(&object, error);
        while at < header.snapshot_bytes {
            let range = start + at..start + header.snapshot_bytes.min(at + READ_BYTES);
            let piece = self
                .io
                .retried(RetryLimit::Bounded, || {
                    self.io.store.read(self.io.request(), &object, range.clone())
                })
                .await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            decoder.push(&piece, &mut edits).map_err(damaged)?;
        }
        decoder.finish(header.snapshot_bytes, header.snapshot_checksum).map_err(damaged)?;
        State::from_snapshot(header.slot, Epoch(header.epoch), &edits)
            .map_err(|error| Error::corrupt(&object, start, "edits that fit each other", error))
    }

    /// Whether the tables of a checkpoint are still kept.
    pub(crate) async fn is_kept(&self, id: u128) -> Result<bool> {
        Ok(self
            .io
            .read_whole(&names::pin(self.incarnation, id), PIN_BYTES_MAX as u64, RetryLimit::Bounded)
            .await?
            .is_some())
    }

    /// Deletes the checkpoint of that name, or else the one of that id, which need not be readable;
    /// then its pin. Its tables go with the next collection.
    ///
    /// # Errors
    /// `NotFound`; those of the store: it may be gone then, and its pin left to the next sweep.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let all = self.list().await?;
        let mut doomed: Vec<u128> =
            all.iter().filter(|listed| listed.name() == Some(name)).map(|listed| listed.id).collect();
        if doomed.is_empty() {
            doomed.extend(all.iter().map(|listed| listed.id).find(|id| format!("{id:032x}") == name));
        }
        if doomed.is_empty() {
            return Err(not_found(name, all.iter().map(Listed::to_string)));
        }
        for id in doomed {
            self.io.delete(&names::checkpoint(self.incarnation, id)).await?;
            delete_pin(&self.io, self.incarnation, id).await?;
        }
        Ok(())
    }

    /// Deletes what attempts that ended left half made or half deleted. For a writer that has
    /// fenced the logs of all others, and makes no checkpoint meanwhile. `own` ends with an error
    /// when another may have taken over since: what a successor is about to finish looks half made,
    /// too, but none has begun before this epoch ended.
    ///
    /// # Errors
    /// Those of `own` and of the store.
    pub(crate) async fn sweep(&self, own: impl Future<Output = Result<()>>) -> Result<u64> {
        let pins = self.pins().await?;
        let objects = self.io.list_all(&names::checkpoint_prefix(self.incarnation)).await?;
        own.await?;
        let whole: BTreeSet<u128> =
            objects.iter().filter_map(|object| names::parse_checkpoint(self.incarnation, object)).collect();
        let mut swept = 0;
        for id in whole.difference(&pins) {
            self.io.delete(&names::checkpoint(self.incarnation, *id)).await?;
            swept += 1;
        }
        for id in pins.difference(&whole) {
            let object = names::pin(self.incarnation, *id);
            let Some(bytes) = self.io.read_whole(&object, PIN_BYTES_MAX as u64, RetryLimit::Bounded).await?
            else {
                continue;
            };
            match decode_pin(&bytes) {
                Ok(pin) if pin.kind == PinKind::Checkpoint => {
                    delete_pin(&self.io, self.incarnation, *id).await?;
                    swept += 1;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %undecodable(&object, error), "a pin that cannot be read stays, \
                        and keeps all tables");
                }
            }
        }
        Ok(swept)
    }
}

fn not_found(name: &str, known: impl Iterator<Item = String>) -> Error {
    let known: Vec<_> = known.collect();
    let advice = if known.is_empty() {
        "the database has no checkpoints: make one first".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    Error::new(ErrorKind::NotFound, format!("there is no checkpoint {name:?}")).advice(advice)
}

/// The greatest sequence number that the tables of a state can hold.
pub(crate) fn last_sequence(state: &State) -> SequenceNumber {
    let reached = state.streams().values().copied().max().unwrap_or(SequenceNumber::ZERO);
    state.keyspaces().map(|keyspace| keyspace.flushed).max().unwrap_or(SequenceNumber::ZERO).max(reached)
}

/// The edits that build what a checkpoint keeps of a state: no logs, no writer, and none but live
/// tables.
pub(crate) fn edits(state: &State) -> Vec<Edit> {
    let unneeded: BTreeSet<TableName> = state.unneeded().map(|table| table.description.name).collect();
    let kept = |edit: &Edit| match edit {
        Edit::LogNamed { .. }
        | Edit::LogSealed { .. }
        | Edit::LogReplayPoint { .. }
        | Edit::LogTrimmed { .. }
        | Edit::LogUnnamed { .. } => false,
        Edit::WriterNamed { .. } | Edit::WriterClosed | Edit::Marked(_) => false,
        Edit::TableStaged(_)
        | Edit::TableObsolete { .. }
        | Edit::TableCondemned { .. }
        | Edit::TableUnnamed { .. } => false,
        Edit::TableAdded(table) => !unneeded.contains(&table.name),
        _ => true,
    };
    state.edits().into_iter().filter(kept).collect()
}

pub(crate) fn encode(
    edits: &[Edit],
    identity: tombolo_format::manifest::snapshot::SnapshotIdentity,
    mut take: impl FnMut(Vec<u8>),
) -> Result<SnapshotEnd> {
    let mut encoder = SnapshotEncoder::of(identity, edits);
    for edit in edits {
        if let Some(piece) =
            encoder.push(edit).map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))?
        {
            take(piece);
        }
    }
    Ok(encoder.finish())
}
