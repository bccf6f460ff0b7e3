//! Segments become objects of the database's own store when memory runs short (rule 6): first the object, then a configuration that names it, then
//! their regions and this process's copy are given back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::patience::patiently;
use tombolo_storage::{Error, Incarnation, Life, LogId, ObjectKind, ObjectName, Placement, Purpose, Request, Result};

use crate::lane::{Lane, Place, State};

/// The directory of these objects under an incarnation.
const DIRECTORY: &str = "near-log";

/// After a put that failed it is made again, for as long as the lane takes entries.
const PAUSE: Duration = Duration::from_millis(100);

/// Prefix of all segments of a database that are objects.
pub(crate) fn prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/{DIRECTORY}/", incarnation.0)
}

/// The name of a segment's object.
pub(crate) fn name(identity: &SegmentIdentity) -> Result<ObjectName> {
    let SegmentIdentity { incarnation, epoch, lane, segment } = *identity;
    ObjectName::new(format!("{}{epoch:016x}/{lane:04x}/{segment:08x}", prefix(Incarnation(incarnation))))
}

/// Whose object a name is.
pub(crate) fn log_of(object: &ObjectName, incarnation: Incarnation) -> Option<LogId> {
    let mut parts = object.as_str().strip_prefix(&prefix(incarnation))?.split('/');
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    Some(LogId { epoch: tombolo_storage::Epoch(number()?), lane: u32::try_from(number()?).ok()? })
}

impl Lane {
    /// Writes the oldest segment that is complete to an object, when more than half of the memory is taken and nobody is at it.
    pub(crate) fn begin_destaging(self: &Arc<Lane>, state: &mut State) {
        if !state.is_open() || state.is_destaging || state.held_bytes() <= state.memory_bytes_max() / 2 {
            return;
        }
        let is_next = |place: &Place| matches!(place, Place::Regions(_));
        let next = state.segments.iter_mut().find(|segment| is_next(&segment.place) && segment.copy.is_none());
        let Some(segment) = next.filter(|segment| segment.is_complete()) else { return };
        let Place::Regions(writer) = &mut segment.place else { return };
        let (number, digest) = (segment.number, writer.digest());
        let records = writer.records().concat();
        let length = u32::try_from(records.len()).unwrap_or(u32::MAX);
        if is_enabled(Mutant::DestagedFreedBeforePut) {
            segment.copy = Some((length, digest));
            segment.is_named_as_object(self);
        }
        state.is_destaging = true;
        let lane = Arc::clone(self);
        let work = async move {
            let outcome = lane.put_object(number, records.into()).await;
            let mut state = lane.state.lock();
            state.is_destaging = false;
            match outcome {
                Ok(()) => {
                    // Trimmed meanwhile: then it is garbage, which the next epoch finds.
                    if let Some(segment) = state.segments.iter_mut().find(|segment| segment.number == number) {
                        segment.copy = Some((length, digest));
                        if is_enabled(Mutant::DestagedFreedBeforeNamed) {
                            segment.is_named_as_object(&lane);
                        }
                        state.is_stale = true;
                    }
                }
                Err(error) => tracing::warn!(%error, "a segment of the log stays in memory"),
            }
            lane.go_on(state);
        };
        self.env().spawn(TaskClass::Foreground, "log destage", work).detach();
    }

    /// Puts a segment's object. Only this epoch writes that name, and only these bytes.
    async fn put_object(&self, number: u32, bytes: Bytes) -> Result<()> {
        let name = name(&self.identity(number))?;
        let request = Request::new(Purpose::Log, self.id.epoch);
        let placement = Placement::new(ObjectKind::Log, Life::Short);
        loop {
            match self.context.objects.put_if_absent(request, &name, placement, bytes.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if !self.state.lock().is_open() => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the store refuses a segment of the log; trying again");
                    self.env().sleep(PAUSE).await;
                }
            }
        }
    }

    /// Deletes a segment's object, which nothing names any more. What fails stays until the log is freed.
    pub(crate) async fn delete_object(&self, number: u32) {
        let Ok(name) = name(&self.identity(number)) else { return };
        let request = Request::new(Purpose::Collection, self.id.epoch);
        if let Err(error) = patiently(self.env(), || self.context.objects.delete(request, &name)).await {
            tracing::warn!(%error, "an object of the log stays until the log is freed");
        }
    }
}

/// What a destaged segment's object holds.
pub(crate) async fn read_object(context: &tombolo_storage::LogContext, identity: &SegmentIdentity, length: u32) -> Result<Bytes> {
    let name = name(identity)?;
    let request = Request::new(Purpose::Open, context.epoch);
    let bytes = context.objects.read(request, &name, 0..u64::from(length)).await?;
    if bytes.len() != length as usize {
        return Err(Error::corrupt(name, bytes.len() as u64, format!("{length} bytes"), format!("{} bytes", bytes.len())));
    }
    Ok(bytes)
}
