//! Segments become objects of the database's own store when memory runs short, here or on nodes
//! that no others stand in for (rule 6): first the object, then a configuration that names it, then
//! their regions and this process's copy are given back.
//!
//! An object's name holds the length and the digest of its content. So an object that is there
//! already is the wanted one, whichever process put it and however late: a writer's last records
//! may only tell what was committed, and its successor may have found more of them, or fewer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::Digest;
use tombolo_storage::backoff::{delete_under, with_backoff};
use tombolo_storage::logged::LoggedErrors;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Error, Incarnation, Life, LogContext, LogId, ObjectInfo, ObjectKind, ObjectName, Placement, Purpose,
    Request, Result,
};

use crate::lane::{Lane, Place, Segment, State};

/// The directory of these objects under an incarnation.
const DIRECTORY: &str = "near-log";

/// After a put that failed it is made again, for as long as the lane takes entries.
const PAUSE: Duration = Duration::from_millis(100);

/// Prefix of all segments of a database that are objects.
pub(crate) fn prefix(incarnation: Incarnation) -> String {
    format!("{:016x}/{DIRECTORY}/", incarnation.0)
}

/// The name of a segment's object, by its contents: so many bytes with that digest.
pub(crate) fn name(identity: &SegmentIdentity, (length, digest): (u32, Digest)) -> Result<ObjectName> {
    let SegmentIdentity { incarnation, epoch, lane, segment } = *identity;
    ObjectName::new(format!(
        "{}{epoch:016x}/{lane:04x}/{segment:08x}-{length:08x}-{:016x}",
        prefix(Incarnation(incarnation)),
        digest.0
    ))
}

/// Whose object a name is.
fn log_of(object: &ObjectName, incarnation: Incarnation) -> Option<LogId> {
    let mut parts = object.as_str().strip_prefix(&prefix(incarnation))?.split('/');
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    Some(LogId { epoch: tombolo_storage::Epoch(number()?), lane: u32::try_from(number()?).ok()? })
}

impl Lane {
    /// Writes a segment that is complete to an object, when nobody is at it: one whose nodes want
    /// its memory back, or the oldest one when more than half of this process's memory is taken.
    pub(crate) fn begin_destaging(self: &Arc<Lane>, state: &mut State) {
        if !state.is_open() || state.is_destaging {
            return;
        }
        let now = self.env().now();
        let is_in_regions =
            |segment: &Segment| matches!(segment.place, Place::Regions(_)) && segment.copy.is_none();
        // Where entries go on there must be room for another segment first: any segment's memory
        // may give it.
        let needs_room =
            state.segments.iter().any(|segment| segment.end.is_none() && segment.is_reclaimed(now));
        let is_reclaimed = |segment: &Segment| {
            is_in_regions(segment) && segment.is_complete() && (needs_room || segment.is_reclaimed(now))
        };
        let next = match state.segments.iter().position(is_reclaimed) {
            None if state.is_short() => state.segments.iter().position(is_in_regions),
            reclaimed => reclaimed,
        };
        let Some(segment) =
            next.and_then(|next| state.segments.get_mut(next)).filter(|segment| segment.is_complete())
        else {
            return;
        };
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
            let outcome = lane.put_object(number, (length, digest), records.into()).await;
            let mut state = lane.state.lock();
            state.is_destaging = false;
            match outcome {
                Ok(()) => {
                    // Trimmed meanwhile: then it is garbage, which the next epoch finds.
                    if let Some(segment) = state.segments.iter_mut().find(|segment| segment.number == number)
                    {
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

    /// Puts a segment's object.
    async fn put_object(&self, number: u32, settled: (u32, Digest), bytes: Bytes) -> Result<()> {
        let mut logged = LoggedErrors::default();
        loop {
            match put(&self.context, &self.identity(number), settled, bytes.clone()).await {
                Ok(()) => {
                    if logged.is_over() {
                        tracing::info!("the store takes segments of the log again");
                    }
                    return Ok(());
                }
                Err(error) if !self.state.lock().is_open() => return Err(error),
                Err(error) => {
                    if logged.is_news(&error) {
                        tracing::warn!(%error, "the store refuses a segment of the log, and is asked until \
                            it takes it");
                    }
                    self.env().sleep(PAUSE).await;
                }
            }
        }
    }

    /// Deletes a segment's object, which nothing names any more. What fails stays until the log is
    /// freed.
    pub(crate) async fn delete_object(&self, number: u32, settled: (u32, Digest)) {
        let Ok(name) = name(&self.identity(number), settled) else { return };
        let request = Request::new(Purpose::Collection, self.id.epoch);
        if let Err(error) = with_backoff(self.env(), || self.context.objects.delete(request, &name)).await {
            tracing::warn!(%error, "an object of the log stays until the log is freed");
        }
    }
}

/// Puts a segment's object, unless it is there.
pub(crate) async fn put(
    context: &LogContext,
    identity: &SegmentIdentity,
    settled: (u32, Digest),
    bytes: Bytes,
) -> Result<()> {
    let name = name(identity, settled)?;
    let request = Request::new(Purpose::Log, context.epoch);
    context
        .objects
        .put_if_absent(request, &name, Placement::new(ObjectKind::Log, Life::Short), bytes)
        .await
        .map(drop)
}

/// What a destaged segment's object holds.
pub(crate) async fn read_object(
    context: &LogContext,
    identity: &SegmentIdentity,
    settled: (u32, Digest),
) -> Result<Bytes> {
    let (name, length) = (name(identity, settled)?, settled.0);
    let request = Request::new(Purpose::Open, context.epoch);
    let bytes = context.objects.read(request, &name, 0..u64::from(length)).await?;
    if bytes.len() != length as usize {
        return Err(Error::corrupt(
            name,
            bytes.len() as u64,
            format!("{length} bytes"),
            format!("{} bytes", bytes.len()),
        ));
    }
    Ok(bytes)
}

/// Deletes segments that are objects, of logs of which `which` is true.
pub(crate) async fn delete_objects(context: &LogContext, which: impl Fn(LogId) -> bool) -> Result<()> {
    let request = Request::new(Purpose::Collection, context.epoch);
    let is_chosen = |info: &ObjectInfo| log_of(&info.name, context.incarnation).is_some_and(&which);
    delete_under(&context.env, &*context.objects, request, &prefix(context.incarnation), is_chosen).await
}
