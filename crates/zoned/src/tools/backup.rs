//! `tombolo zoned backup` and `restore`: a device's objects and logs in another store, and back.
//!
//! A backup is of a device that nobody writes to meanwhile: this process holds it.
//!
//! | object of the backup | what it is |
//! |---|---|
//! | `objects/` and the name | an object, as it is |
//! | `lanes/` and the number | the bytes of a lane of log: 8 life, 8 epoch, 4 number, 8 place of the first byte, then the bytes |
//! | `device` | 16 the device's random number, by which databases know their logs, 8 objects, 8 lanes; put last |

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::codec::Reader;
use tombolo_format::zoned::{UNIT_HEADER_BYTES, ZoneRecord};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request, Result,
};

use super::Tool;
use crate::instance::FormatOptions;
use crate::lanes::LogCore;
use crate::objects::ZonedObjectStore;
use crate::volume::Core;

/// Bytes copied at once.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes of a lane's head.
const LANE_HEAD_BYTES: usize = 28;
/// No device gives a lane this number, nor a later one.
const LANES_END: u64 = 1 << 62;
/// Most bytes of a lane that a backup takes.
const LANE_BYTES_MAX: u64 = 4 << 30;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Objects.
    pub objects: u64,
    /// Lanes of log.
    pub lanes: u64,
    /// Bytes of both.
    pub bytes: u64,
}

fn request() -> Request {
    Request::new(Purpose::Application, Epoch::NONE)
}

fn placement() -> Placement {
    Placement::new(ObjectKind::Other, Life::Long)
}

async fn copy(
    from: &dyn ObjectStore,
    from_name: &ObjectName,
    to: &dyn ObjectStore,
    to_name: &ObjectName,
    placement: Placement,
) -> Result<u64> {
    let length = from.length(request(), from_name).await?;
    let mut writer = to.create(request(), to_name, placement).await?;
    let mut at = 0;
    while at < length {
        let end = (at + PIECE_BYTES).min(length);
        writer.append(from.read(request(), from_name, at..end).await?).await?;
        at = end;
    }
    writer.finish().await?;
    Ok(length)
}

/// Copies all objects and logs of a device to `to`, which must be empty.
///
/// # Errors
/// `InUse` when another process holds the device; those of either store.
pub async fn backup(env: &Env, tool: &Tool, to: &dyn ObjectStore) -> Result<BackedUp> {
    let core = tool.hold()?;
    if !to.list(request(), "", None, 1).await?.objects.is_empty() {
        return Err(Error::new(ErrorKind::AlreadyExists, "the place of the backup is not empty")
            .object(to.describe())
            .advice("name an empty directory, or one that is not there yet"));
    }
    core.write_log()?;
    let objects = ZonedObjectStore::new(env, Arc::clone(&tool.device), String::new());
    let mut done = BackedUp::default();
    for row in core.name_rows("") {
        let name = ObjectName::new(&row.name)?;
        let copied = ObjectName::new(format!("objects/{name}"))?;
        done.bytes += copy(&objects, &name, to, &copied, placement()).await?;
        done.objects += 1;
    }
    for row in core.lane_rows() {
        let (from, bytes) = core.lane_bytes(row.lane)?;
        let mut head = Vec::with_capacity(LANE_HEAD_BYTES + bytes.len());
        head.extend_from_slice(&row.life.to_le_bytes());
        head.extend_from_slice(&row.epoch.to_le_bytes());
        head.extend_from_slice(&row.number.to_le_bytes());
        head.extend_from_slice(&from.to_le_bytes());
        head.extend_from_slice(&bytes);
        done.bytes += bytes.len() as u64;
        let mut writer =
            to.create(request(), &ObjectName::new(format!("lanes/{}", row.lane))?, placement()).await?;
        writer.append(head.into()).await?;
        writer.finish().await?;
        done.lanes += 1;
    }
    let mut device = core.id.to_le_bytes().to_vec();
    device.extend_from_slice(&done.objects.to_le_bytes());
    device.extend_from_slice(&done.lanes.to_le_bytes());
    to.put_if_absent(request(), &ObjectName::new("device")?, placement(), device.into()).await?;
    Ok(done)
}

async fn names(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<ObjectName>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(request(), prefix, after.as_ref(), 1000).await?;
        found.extend(page.objects.into_iter().map(|object| object.name));
        after = found.last().cloned();
        if !page.more {
            return Ok(found);
        }
    }
}

/// Formats a device and fills it from a backup.
///
/// # Errors
/// As [`crate::Zoned::format`]; `Corrupt` when the backup is not whole; those of either store.
pub async fn restore(
    env: &Env,
    from: &dyn ObjectStore,
    tool: &Tool,
    options: &FormatOptions,
) -> Result<BackedUp> {
    let device = ObjectName::new("device")?;
    let head = from.read(request(), &device, 0..64).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, "there is no whole backup").object(from.describe()).advice(
                "name the directory that `tombolo zoned backup` wrote; one that was broken off has no end",
            )
        }
        _ => error,
    })?;
    let mut reader = Reader::new(&head);
    let mut fields = || Ok((reader.u128()?, reader.u64()?, reader.u64()?));
    let (id, objects, lanes) = fields().map_err(|error| Error::format(&device, 0, error))?;
    let (object_names, lane_names) = (names(from, "objects/").await?, names(from, "lanes/").await?);
    if (object_names.len() as u64, lane_names.len() as u64) != (objects, lanes) {
        return Err(Error::new(ErrorKind::Corrupt, "the backup is not whole")
            .object(from.describe())
            .expected(format!("{objects} objects and {lanes} lanes"))
            .found(format!("{} objects and {} lanes", object_names.len(), lane_names.len())));
    }
    tool.device.format_as(options, Some(id))?;
    let core = tool.hold()?;
    let store = ZonedObjectStore::new(env, Arc::clone(&tool.device), String::new());
    let mut done = BackedUp::default();
    for name in object_names {
        let own = ObjectName::new(name.as_str().trim_start_matches("objects/"))?;
        done.bytes += copy(from, &name, &store, &own, placement()).await?;
        done.objects += 1;
    }
    for name in lane_names {
        let bytes = tombolo_storage::object::read_whole(from, request(), &name, LANE_BYTES_MAX).await?;
        let number = name.as_str().trim_start_matches("lanes/").parse();
        let number = number.map_err(|_| Error::corrupt(&name, 0, "lanes/ and a number", &name))?;
        core.restore_lane(number, &name, &bytes)?;
        done.bytes += (bytes.len() - LANE_HEAD_BYTES) as u64;
        done.lanes += 1;
    }
    core.write_log()?;
    Ok(done)
}

impl Core {
    /// The bytes of a lane, and the place of the first.
    fn lane_bytes(&self, lane: u64) -> Result<(u64, Vec<u8>)> {
        let pieces = self.log.pieces(lane)?;
        let from = pieces.first().map_or_else(|| self.log.durable(lane), |piece| piece.at);
        let mut bytes = Vec::new();
        for piece in pieces {
            let unit = self.read_batch(&piece)?;
            let begin = UNIT_HEADER_BYTES + piece.offset as usize;
            // Pieces may overlap by what was written again.
            let skip =
                usize::try_from((from + bytes.len() as u64).saturating_sub(piece.at)).unwrap_or(usize::MAX);
            bytes.extend_from_slice(
                &unit[begin + skip.min(piece.bytes as usize)..begin + piece.bytes as usize],
            );
        }
        Ok((from, bytes))
    }

    fn restore_lane(self: &Arc<Core>, lane: u64, name: &ObjectName, bytes: &Bytes) -> Result<()> {
        let mut reader = Reader::new(bytes);
        let mut head = || Ok((reader.u64()?, reader.u64()?, reader.u32()?, reader.u64()?));
        let (life, epoch, number, from) = head().map_err(|error| Error::format(name, 0, error))?;
        let rest = &bytes[LANE_HEAD_BYTES..];
        let is_possible = lane < LANES_END && from.checked_add(rest.len() as u64).is_some();
        self.commit(|state| {
            if !is_possible || state.lanes.contains_key(&lane) {
                let found = format!("lane {lane} from byte {from}");
                return Err(Error::corrupt(name, 0, "a lane of its own", found));
            }
            Ok((vec![ZoneRecord::Lane { lane, life, epoch, number }], ()))
        })?;
        LogCore::fill(&self.log, lane, from, rest);
        self.write_log()
    }
}
