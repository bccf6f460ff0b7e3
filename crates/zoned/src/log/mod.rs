//! Logs on zones: the lanes of all databases of a device share zones of log.
//!
//! `append → lane's memory → batch of all lanes → log zone → sync → durable`
//!
//! A lane is a run of bytes: its entries, one after another. Bytes that are not durable yet are in
//! memory; a sync writes the bytes of all lanes as batches, in which fragments are tagged with
//! their lanes and places, and makes them durable. No metadata is written for that. A log zone
//! ends, with its length, in the transaction that begins the next one (rule 6). It is emptied when
//! no lane needs it.
//!
//! Invariants:
//! 1. `durable <= end` of each lane, and its buffer holds the bytes between.
//! 2. Whether a lane is fenced is checked in the section that appends to it.
//! 3. Batches that were not durable when a write or sync failed are written again elsewhere, the
//!    rest of their zone is never used.

mod lane;
mod read;
mod recover;
mod stream;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env};
use tombolo_format::zoned::ZoneRecord;
use tombolo_storage::lanes::Lanes;
use tombolo_storage::log_memory::LaneMemory;
use tombolo_storage::{
    Error, ErrorKind, FailureDomain, Log, LogContext, LogId, LogOffset, LogReader, LogRecord, LogStore,
    Result, Survival,
};

use crate::instance::Handle;
use crate::lanes::Lane;
use crate::state::LaneOf;
use crate::volume::Core;
use lane::ZonedLane;

/// First byte of a record's configuration.
const CONFIGURATION_VERSION: u8 = 1;

/// Logs on a zoned device.
#[derive(Clone, Debug)]
pub struct ZonedLogStore {
    env: Env,
    device: Handle,
    /// Whether it lies on the device of the database's objects.
    is_paired: bool,
}

impl ZonedLogStore {
    /// The logs of a device, on which the database's objects lie too, or not.
    pub fn new(env: &Env, device: Handle, is_paired: bool) -> ZonedLogStore {
        ZonedLogStore { env: env.clone(), device, is_paired }
    }

    fn place(&self, log: LogId) -> String {
        format!("{} epoch {} lane {}", self.identity(), log.epoch, log.lane)
    }

    /// The lane that a record names, if its configuration is one of this device.
    fn lane_of(&self, core: &Core, log: &LogRecord) -> Result<u64> {
        let expected = configuration(core, 0);
        let head = 1 + size_of::<u128>();
        let is_ours =
            log.configuration.len() == expected.len() && log.configuration[..head] == expected[..head];
        let lane =
            log.configuration.get(head..).and_then(|lane| lane.try_into().ok()).map(u64::from_le_bytes);
        lane.filter(|_| is_ours).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the manifest names a log of another device")
                .object(self.place(log.id))
                .expected(format!("a lane of the device {:032x}", core.id))
                .found(format!("{} bytes of another configuration", log.configuration.len()))
                .advice("open the database with the log that it was created with")
        })
    }

    fn gone(&self, log: LogId) -> Error {
        Error::new(ErrorKind::Corrupt, "a log that the manifest names is gone from its device")
            .object(self.place(log))
            .advice("its writes since the last flush are lost; restore the database from a copy")
    }

    /// Makes lanes, and publishes them.
    async fn begin(&self, context: &LogContext, numbers: Range<u32>) -> Result<(Arc<Core>, Arc<dyn Log>)> {
        self.env.yield_now().await;
        let core = self.device.held()?;
        let life = context.life(false).0;
        let epoch = context.epoch.0;
        let made = core.commit(|state| {
            let mut records = Vec::new();
            for (lane, number) in (state.next..).zip(numbers.clone()) {
                let is_same = |of: &LaneOf| (of.life, of.epoch, of.number) == (life, epoch, number);
                if state.lanes.values().any(is_same) {
                    let place = self.place(LogId { epoch: context.epoch, lane: number });
                    return Err(Error::new(ErrorKind::Bug, "an epoch opened its log twice").object(place));
                }
                records.push(ZoneRecord::Lane { lane, life, epoch, number });
            }
            let made = state.next..state.next + records.len() as u64;
            Ok((records, made))
        })?;
        let (mut lanes, mut records) = (Vec::new(), Vec::new());
        for (lane, number) in made.zip(numbers) {
            let id = LogId { epoch: context.epoch, lane: number };
            let memory = LaneMemory::new(&context.memory);
            core.log.stream.lock().lanes.insert(lane, Lane::new(Some(memory)));
            records.push(LogRecord { id, configuration: configuration(&core, lane) });
            lanes.push(ZonedLane::new(&core, lane, self.place(id)));
        }
        context.chain.publish_all(records).await?;
        Ok((core, Arc::new(Lanes::new(lanes))))
    }

    /// Frees lanes of a life that `is_gone` says of.
    fn free_lanes(core: &Arc<Core>, life: u64, is_gone: impl Fn(u64, &LaneOf) -> bool) -> Result<()> {
        let freed = core.commit(|state| {
            let gone = state.lanes.iter().filter(|(lane, of)| of.life == life && is_gone(**lane, of));
            let gone: Vec<u64> = gone.map(|(lane, _)| *lane).collect();
            Ok((gone.iter().map(|lane| ZoneRecord::LaneFree { lane: *lane }).collect(), gone))
        })?;
        {
            let mut stream = core.log.stream.lock();
            for lane in freed {
                stream.remove(lane);
            }
        }
        core.free_dead_log_zones()
    }
}

/// What the manifest keeps of a lane: version, the device, the lane's number on it.
fn configuration(core: &Core, lane: u64) -> Bytes {
    let mut bytes = vec![CONFIGURATION_VERSION];
    bytes.extend_from_slice(&core.id.to_le_bytes());
    bytes.extend_from_slice(&lane.to_le_bytes());
    bytes.into()
}

impl LogStore for ZonedLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let (core, log) = self.begin(context, 0..lanes).await?;
            let named = context.chain.named();
            let is_named = |lane: u64| {
                named
                    .iter()
                    .any(|record| self.lane_of(&core, record).is_ok_and(|of_record| of_record == lane))
            };
            let is_gone = |lane: u64, of: &LaneOf| of.epoch < context.epoch.0 && !is_named(lane);
            ZonedLogStore::free_lanes(&core, context.life(false).0, is_gone)?;
            Ok(log)
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move { Ok(self.begin(context, lane..lane + 1).await?.1) })
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let core = self.device.held()?;
            let lane = self.lane_of(&core, log)?;
            context.check_older(log, "fences", self.place(log.id))?;
            if !core.log.stream.lock().fence(lane) {
                return Err(self.gone(log.id));
            }
            // What was accepted lies within.
            core.write_log()?;
            if let Some(end) = read::whole_end(&core, lane, self.place(log.id), from.0)? {
                core.log.stream.lock().end_found(lane, end);
            }
            let end = core.log.stream.lock().sealed_end(lane, &self.place(log.id))?;
            let end = end.max(from.0);
            core.commit(|state| {
                let sealed = state.lanes.get(&lane).ok_or_else(|| self.gone(log.id))?.sealed;
                let is_new = sealed.is_none_or(|before| before < end);
                Ok((is_new.then_some(ZoneRecord::LaneSealed { lane, end }).into_iter().collect(), ()))
            })?;
            self.env.yield_now().await;
            Ok(LogOffset(end))
        })
    }

    fn read<'a>(
        &'a self,
        _context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
        to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let core = self.device.held()?;
            let lane = self.lane_of(&core, log)?;
            let reader = read::Reader::new(&core, lane, self.place(log.id), from.0, Some(to.0))?;
            Ok(Box::new(reader.ok_or_else(|| self.gone(log.id))?) as Box<dyn LogReader>)
        })
    }

    fn tail<'a>(
        &'a self,
        _context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let core = self.device.held().map_err(|error| match error.kind() {
                ErrorKind::InUse => Error::new(
                    ErrorKind::Unsupported,
                    "a log on zones is followed by the process that holds the device",
                )
                .source(error)
                .advice("open the database for reading only, which shows what is in tables"),
                _ => error,
            })?;
            let lane = self.lane_of(&core, log)?;
            let reader = read::Reader::new(&core, lane, self.place(log.id), from.0, None)?;
            Ok(Box::new(reader.ok_or_else(|| self.gone(log.id))?) as Box<dyn LogReader>)
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let core = self.device.held()?;
            let lane = self.lane_of(&core, log)?;
            context.check_freed(log, self.place(log.id))?;
            ZonedLogStore::free_lanes(&core, context.life(false).0, |found, _| found == lane)
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let core = self.device.held()?;
            let is_older = |_, of: &LaneOf| of.epoch < context.epoch.0;
            ZonedLogStore::free_lanes(&core, context.life(false).0, is_older)
        })
    }

    fn is_of_one_host(&self) -> bool {
        true
    }

    fn survival(&self) -> Survival {
        Survival {
            store: format!("zoned://{}", self.device.place().path().display()),
            domain: FailureDomain::Host,
            accepted: "survives as long as this process lives; its end, however it comes, loses what was not \
                synced"
                .into(),
            durable: "survives the process, the host's restart and a loss of power; is lost with the device, or \
                with a zone of it that goes bad"
                .into(),
            notes: vec![
                "One process owns a zoned device. Another takes over when that has ended, and never while it is \
                paused: a database here has no takeover from a process that hangs."
                    .into(),
                "Damage of the very last batch before a crash cannot be told from a write that it tore."
                    .into(),
            ],
        }
    }

    /// Beside the objects it needs no place: the configuration of each lane knows its device, which
    /// may be found under another path, or be a restored one.
    fn identity(&self) -> String {
        if self.is_paired {
            return "zoned-log".into();
        }
        format!("zoned://{}", self.device.place().path().display())
    }
}
