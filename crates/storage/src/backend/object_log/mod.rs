//! The log as objects, on any object store: what a database on shared storage has without a log of
//! its own (rules 7 and 10).
//!
//! ```text
//! {incarnation:016x}/log-objects/{epoch:016x}/{lane:04x}/{slot:08x}
//! ```
//!
//! - Slot 0 begins a lane, before the lane is named. The writer puts its frames into the following
//!   slots, one object for each group of commits (`lane`).
//! - A successor walks the slots from the replay point on and puts a **seal** into the first empty
//!   one (`fence`). Put-if-absent lets either the writer's object or the seal have the slot: the
//!   one that comes second sees the winner.
//! - What lies before the replay point is deleted; so is the rest with its log, seals excepted,
//!   which are never deleted.
//!
//! Accepted is durable here: an entry is acknowledged when its object and all before it were seen
//! to be in place.
//!
//! Invariants:
//! 1. A slot is only ever put with the same bytes by its writer, who never leaves one out.
//! 2. The slot of the replay point is there as long as the log is named.
//! 3. At most `PUTS_IN_FLIGHT_MAX` slots lie between the acknowledged end and the last one put.
//!
//! Cost: one put for each group of commits; nothing when idle. A takeover reads each object once
//! and puts one.

mod fence;
mod lane;
mod place;
mod read;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Completion, Env, TaskClass, all};
use tombolo_format::log_object::SEAL_BYTES;

use self::lane::Lane;
use self::place::Place;
use crate::backoff::delete_under;
use crate::fenced::Fenced;
use crate::lanes::{Lanes, LogLane, given_up, wait};
use crate::log_memory::LaneMemory;
use crate::mutant::{Mutant, is_enabled};
use crate::{
    Epoch, Error, ErrorKind, Incarnation, Log, LogAppend, LogContext, LogId, LogOffset, LogReader, LogRecord,
    LogStore, ObjectName, ObjectStore, Pressure, Purpose, Registry, Request, Result, Survival, Uri,
};

/// How a record's configuration begins.
const CONFIGURATION: &[u8] = b"objects\x01";

/// Most lanes of one epoch: their number has four digits in a name.
const LANES_MAX: u32 = 1 << 16;

/// Lanes that are begun at once.
const BEGUN_AT_ONCE: usize = 16;

/// Objects of a lane that are on their way at once.
const PUTS_IN_FLIGHT_MAX: u32 = 4;

/// An object that holds so much goes on its way, others or not.
const OBJECT_BYTES_WANTED: usize = 4 << 20;

/// Most bytes kept of logs that were fenced and not read yet.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Logs as objects of a store.
#[derive(Clone, Debug)]
pub struct ObjectLogStore {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    /// The objects' store is the database's own.
    is_paired: bool,
    /// An object that holds so much goes on its way, others or not.
    object_bytes_wanted: usize,
    /// Starts of the objects that fencing read, for the reader that comes next.
    fenced: Arc<Fenced<fence::Heads>>,
}

impl ObjectLogStore {
    /// Logs in `objects`. With `is_paired` that is the database's own store, and the identity holds
    /// wherever it is moved.
    pub fn new(env: &Env, objects: Arc<dyn ObjectStore>, is_paired: bool) -> ObjectLogStore {
        let fenced = Arc::new(Fenced::new(KEPT_BYTES_MAX));
        ObjectLogStore {
            env: env.clone(),
            objects,
            is_paired,
            object_bytes_wanted: OBJECT_BYTES_WANTED,
            fenced,
        }
    }

    /// The same with smaller objects, so that a short history has several on their way.
    #[cfg(test)]
    pub(super) fn with_object_bytes(mut self, object_bytes_wanted: usize) -> ObjectLogStore {
        self.object_bytes_wanted = object_bytes_wanted;
        self
    }

    /// What the logs of a database are kept under.
    fn life(&self, context: &LogContext) -> Incarnation {
        context.life(self.is_paired)
    }

    fn configuration(incarnation: Incarnation) -> Bytes {
        [CONFIGURATION, &incarnation.0.to_le_bytes()].concat().into()
    }

    fn place(&self, incarnation: Incarnation, id: LogId) -> Place {
        Place::new(&self.env, &self.objects, incarnation, id)
    }

    /// Where a log lies that the manifest names.
    fn find(&self, context: &LogContext, log: &LogRecord) -> Result<Place> {
        let place = self.place(self.life(context), log.id);
        let expected = ObjectLogStore::configuration(self.life(context));
        if log.configuration == expected {
            return Ok(place);
        }
        let tag = &CONFIGURATION[..CONFIGURATION.len() - 1];
        match log.configuration.strip_prefix(tag).and_then(<[u8]>::first) {
            Some(&version) if version > 1 => Err(Error::new(
                ErrorKind::Unsupported,
                format!("a newer version wrote the log's record ({version})"),
            )
            .object(place)
            .advice("use the version of Tombolo that wrote the database, or a newer one")),
            _ => Err(Error::corrupt(
                place,
                0,
                format!("the log record {expected:02x?}"),
                format!("{:02x?}", log.configuration),
            )
            .context("the manifest names a log that is no log of objects of this database")),
        }
    }

    /// Begins lanes side by side, and publishes them.
    async fn begin(&self, context: &LogContext, lanes: Range<u32>) -> Result<Arc<dyn Log>> {
        let ids: Vec<_> = lanes.map(|lane| LogId { epoch: context.epoch, lane }).collect();
        let begun = ids.iter().map(|id| -> BoxFuture<'_, Result<Arc<Lane>>> {
            let memory = LaneMemory::new(&context.memory);
            Box::pin(Lane::begin(self.place(self.life(context), *id), self.object_bytes_wanted, memory))
        });
        let made = all(begun.collect(), BEGUN_AT_ONCE).await.into_iter().collect::<Result<Vec<_>>>()?;
        let configuration = ObjectLogStore::configuration(self.life(context));
        let records = ids.into_iter().map(|id| LogRecord { id, configuration: configuration.clone() });
        context.chain.publish_all(records.collect()).await?;
        Ok(Arc::new(Lanes::new(made)) as Arc<dyn Log>)
    }

    /// Deletes the data of logs of older epochs that the manifest does not name: a predecessor died
    /// before it could, or wrote after it was fenced. Best effort.
    async fn collect(self, context: LogContext) {
        let named: Vec<LogId> = context.chain.named().into_iter().map(|record| record.id).collect();
        let life = self.life(&context);
        let prefix = Place::all(life);
        let garbage = move |name: &ObjectName| {
            Place::log_of(name, life).is_some_and(|id| id.epoch < context.epoch && !named.contains(&id))
        };
        if let Err(error) = self.delete_data(context.epoch, &prefix, garbage).await {
            tracing::warn!(%error, "log objects that nothing names stay for now");
        }
    }

    /// Deletes the data objects under `prefix` of which `which` is true. Seals stay: a late put of
    /// a fenced writer must find them.
    async fn delete_data(
        &self,
        epoch: Epoch,
        prefix: &str,
        which: impl Fn(&ObjectName) -> bool,
    ) -> Result<()> {
        let request = Request::new(Purpose::Collection, epoch);
        let is_seal = |length: u64| length == SEAL_BYTES as u64 && !is_enabled(Mutant::LogObjectSealDeleted);
        delete_under(&self.env, &*self.objects, request, prefix, |info| {
            !is_seal(info.length) && which(&info.name)
        })
        .await
    }
}

impl LogStore for ObjectLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            if lanes == 0 || lanes > LANES_MAX {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("a log of {lanes} lanes; 1 to {LANES_MAX} are possible"),
                ));
            }
            self.fenced.clear();
            let log = self.begin(context, 0..lanes).await?;
            let collecting = self.clone().collect(context.clone());
            self.env.spawn(TaskClass::Background, "log collection", collecting).detach();
            Ok(log)
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(self.begin(context, lane..lane + 1))
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            let place = self.find(context, log)?;
            context.check_older(log, "fences", &place)?;
            let (sealed, heads) =
                fence::fence(&place, context.epoch, from, LaneMemory::new(&context.memory)).await?;
            self.fenced.keep(self.life(context), log.id, heads.bytes(), heads);
            Ok(sealed)
        })
    }

    fn read<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
        to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let place = self.find(context, log)?;
            let heads = self.fenced.take(self.life(context), log.id);
            let memory = LaneMemory::new(&context.memory);
            Ok(Box::new(read::Reader::new(place, context.epoch, heads, from, to, memory))
                as Box<dyn LogReader>)
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let place = self.find(context, log)?;
            let (end, heads) =
                fence::follow(&place, context.epoch, from, LaneMemory::new(&context.memory)).await?;
            let memory = LaneMemory::new(&context.memory);
            Ok(Box::new(read::Reader::new(place, context.epoch, heads, from, end, memory))
                as Box<dyn LogReader>)
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let place = self.find(context, log)?;
            context.check_freed(log, &place)?;
            self.fenced.take(self.life(context), log.id);
            self.delete_data(context.epoch, &place.prefix(), |_| true).await
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (life, epoch) = (self.life(context), context.epoch);
            let is_older = |name: &ObjectName| Place::log_of(name, life).is_some_and(|id| id.epoch < epoch);
            self.delete_data(epoch, &Place::all(life), is_older).await
        })
    }

    fn survival(&self) -> Survival {
        let objects = self.objects.survival();
        let notes = [
            "Accepted is durable here: a write is acknowledged as either when its log object, and every \
            earlier one, is in the store."
                .to_owned(),
            "Writes that come while an object is on its way share the next one: each waits for one to two \
            round trips to the store."
                .to_owned(),
            format!(
                "A write may take {} bytes of log at most, which is one \
                object.",
                place::OBJECT_BYTES_MAX
            ),
            "A takeover fences writers on any machine: the store's put-if-absent decides.".to_owned(),
        ];
        Survival {
            store: format!("the log as objects of {}", objects.store),
            domain: objects.domain,
            accepted: format!("the same as durable: {}", objects.durable),
            durable: objects.durable,
            notes: notes.into_iter().chain(objects.notes).collect(),
        }
    }

    fn identity(&self) -> String {
        if self.is_paired { "object-log".into() } else { format!("object-log:{}", self.objects.describe()) }
    }
}

/// Registers `objects://`: the log as objects of the database's own store, whichever that is.
pub(crate) fn register(registry: &mut Registry) {
    let open = |env: &Env, uri: &Uri, objects: &Arc<dyn ObjectStore>| {
        uri.allow_parameters(&[])?;
        if !uri.rest.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} names a place: this log lies in the database's own store", uri.shown()),
            )
            .advice(
                "write objects:// alone, or name a store that keeps its logs as objects: s3://bucket/log",
            ));
        }
        Ok(Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true)) as Arc<dyn LogStore>)
    };
    registry.register_log_store("objects", Arc::new(open));
}

impl LogLane for Arc<Lane> {
    fn append(&self, entry: &LogAppend<'_>) -> Result<crate::Appended> {
        Lane::append(self, entry)
    }

    fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        Lane::durable(self, end)
    }

    fn sync(&self, end: LogOffset) -> Result<()> {
        wait(self.env(), Lane::durable(self, end))
    }

    fn durable_through(&self) -> LogOffset {
        Lane::durable_through(self)
    }

    fn trim(&self, before: LogOffset) {
        Lane::trim(self, before);
    }

    fn pressure(&self) -> Pressure {
        Lane::pressure(self)
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Lane::confirm(self))
    }

    fn give_up(&self) {
        self.end(given_up(self.place()));
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Lane::close(self))
    }
}
