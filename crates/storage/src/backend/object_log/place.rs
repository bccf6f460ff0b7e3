//! One lane's objects by their slots: names, and requests that are made again while the store fails
//! in passing.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_format::log_frame::SegmentIdentity;

use crate::backoff::with_backoff;
use crate::object::PUT_BYTES_MAX;
use crate::{
    Epoch, Error, ErrorKind, Incarnation, Life, LogId, ObjectKind, ObjectName, ObjectStore, Placement,
    Purpose, PutOutcome, Request, Result,
};

/// Most bytes of an object, and so of an entry with its frame.
pub(super) const OBJECT_BYTES_MAX: usize = PUT_BYTES_MAX;

/// The directory of these logs under an incarnation. `log` belongs to the local log.
const DIRECTORY: &str = "log-objects";

/// The store's answers do not fit each other.
pub(super) fn contradiction(name: &ObjectName) -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        "the store says that a slot of the log is taken, and shows nothing there",
    )
    .object(name)
    .advice("let `tombolo doctor` look at the store: put-if-absent and the read after it must agree")
}

/// Where a lane's objects lie.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) env: Env,
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) incarnation: Incarnation,
    pub(super) id: LogId,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.objects.describe(), self.prefix())
    }
}

impl Place {
    pub(super) fn new(
        env: &Env,
        objects: &Arc<dyn ObjectStore>,
        incarnation: Incarnation,
        id: LogId,
    ) -> Place {
        Place { env: env.clone(), objects: Arc::clone(objects), incarnation, id }
    }

    /// Prefix of all logs of an incarnation.
    pub(super) fn all(incarnation: Incarnation) -> String {
        format!("{:016x}/{DIRECTORY}/", incarnation.0)
    }

    /// Whose object a name is.
    pub(super) fn log_of(name: &ObjectName, incarnation: Incarnation) -> Option<LogId> {
        let mut parts = name.as_str().strip_prefix(&Place::all(incarnation))?.split('/');
        let (epoch, lane, _slot) = (parts.next()?, parts.next()?, parts.next()?);
        let id = LogId {
            epoch: Epoch(u64::from_str_radix(epoch, 16).ok()?),
            lane: u32::from_str_radix(lane, 16).ok()?,
        };
        (parts.next().is_none()
            && format!("{:016x}/{:04x}", id.epoch.0, id.lane) == format!("{epoch}/{lane}"))
        .then_some(id)
    }

    /// Prefix of the lane's names.
    pub(super) fn prefix(&self) -> String {
        format!("{}{:016x}/{:04x}/", Place::all(self.incarnation), self.id.epoch.0, self.id.lane)
    }

    /// The name of a slot's object.
    pub(super) fn name(&self, slot: u32) -> Result<ObjectName> {
        ObjectName::new(format!("{}{slot:08x}", self.prefix()))
    }

    /// What a slot's object must say that it is.
    pub(super) fn identity(&self, slot: u32) -> SegmentIdentity {
        SegmentIdentity {
            incarnation: self.incarnation.0,
            epoch: self.id.epoch.0,
            lane: self.id.lane,
            segment: slot,
        }
    }

    /// One attempt at a put.
    pub(super) async fn put(&self, epoch: Epoch, slot: u32, bytes: Bytes) -> Result<PutOutcome> {
        let placement = Placement::new(ObjectKind::Log, Life::Short);
        self.objects
            .put_if_absent(Request::new(Purpose::Log, epoch), &self.name(slot)?, placement, bytes)
            .await
    }

    /// Reads a part of a slot's object; `None` when there is no object.
    pub(super) async fn read(
        &self,
        purpose: Purpose,
        epoch: Epoch,
        slot: u32,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Bytes>> {
        let name = self.name(slot)?;
        let read = || self.objects.read(Request::new(purpose, epoch), &name, range.clone());
        match with_backoff(&self.env, read).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
