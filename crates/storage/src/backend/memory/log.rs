//! Logs in memory: a lane is a list of entries under a lock.
//!
//! Append and fence take the same lock, so that an append is either within the sealed length or
//! refused. An entry is durable the moment it is accepted, in the sense of this store: as long as
//! the process lives.
//!
//! Offsets count what a frame would take (header and payload, rounded up to 8 bytes), in segments
//! of bounded size, so that the engine sees the arithmetic of a log on disk.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Completion, Env, completion};

use crate::lanes::given_up;
use crate::{
    Appended, Error, ErrorKind, FailureDomain, Incarnation, Log, LogAppend, LogContext, LogEntry, LogId,
    LogOffset, LogReader, LogRecord, LogStore, Pressure, Result, Survival,
};

/// Bytes that an entry takes besides its payload.
const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// Most bytes of a segment; an entry lies in one.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// Beyond this a lane asks for a flush.
const WANTED_BYTES_MAX: u64 = 256 << 20;

/// First byte of a record's configuration.
const CONFIGURATION_VERSION: u8 = 1;

/// One lane of one epoch.
#[derive(Debug, Default)]
struct Lane {
    /// Entries with the offsets they begin and end at. Invariant: ascending; the last ends at
    /// `end`.
    entries: VecDeque<(LogOffset, LogOffset, LogEntry)>,
    /// Invariant: never falls.
    end: LogOffset,
    /// What lies before is gone. Invariant: `trimmed <= end`.
    trimmed: LogOffset,
    /// Bytes of `entries`.
    live_bytes: u64,
    /// Invariant: once set, `end` stays.
    fenced: bool,
    /// The owner closed it.
    closed: bool,
    /// The owner gave it up.
    given_up: bool,
}

/// A lane as its writer, its readers and its fencer share it.
type SharedLane = Arc<Mutex<Lane>>;

/// What all handles of one name share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    lanes: Mutex<BTreeMap<(Incarnation, LogId), SharedLane>>,
}

/// A handle of a log store in memory. Handles of the same name see the same logs.
#[derive(Clone, Debug)]
pub struct MemoryLogStore {
    env: Env,
    name: String,
    shared: Arc<Shared>,
}

impl MemoryLogStore {
    pub(super) fn new(env: Env, name: String, shared: Arc<Shared>) -> MemoryLogStore {
        MemoryLogStore { env, name, shared }
    }

    /// A store of its own, shared with nobody but its clones.
    pub fn unnamed(env: &Env) -> MemoryLogStore {
        MemoryLogStore::new(env.clone(), "unnamed".into(), Arc::default())
    }

    fn configuration(&self) -> Bytes {
        let mut bytes = vec![CONFIGURATION_VERSION];
        bytes.extend_from_slice(self.identity().as_bytes());
        bytes.into()
    }

    fn place(&self, log: LogId) -> String {
        format!("{} epoch {} lane {}", self.identity(), log.epoch, log.lane)
    }

    fn check(&self, log: &LogRecord) -> Result<()> {
        if log.configuration != self.configuration() {
            return Err(Error::new(ErrorKind::Corrupt, "the manifest names a log of another store")
                .object(self.place(log.id))
                .expected(format!(
                    "a configuration of {} bytes for {}",
                    self.configuration().len(),
                    self.identity()
                ))
                .found(String::from_utf8_lossy(log.configuration.get(1..).unwrap_or_default()))
                .advice("open the database with the log that it was created with"));
        }
        Ok(())
    }

    /// Begins lanes, and publishes them.
    async fn begin(&self, context: &LogContext, lanes: Range<u32>) -> Result<Arc<dyn Log>> {
        self.env.yield_now().await;
        let (mut opened, mut records) = (Vec::new(), Vec::new());
        for lane in lanes {
            let id = LogId { epoch: context.epoch, lane };
            let fresh = Arc::clone(self.shared.lanes.lock().entry((context.life(false), id)).or_default());
            {
                let fresh = fresh.lock();
                if fresh.fenced {
                    return Err(fenced(&self.place(id)));
                }
                if fresh.end != LogOffset::ZERO || fresh.closed {
                    return Err(
                        Error::new(ErrorKind::Bug, "an epoch opened its log twice").object(self.place(id))
                    );
                }
            }
            records.push(LogRecord { id, configuration: self.configuration() });
            opened.push((fresh, self.place(id)));
        }
        context.chain.publish_all(records).await?;
        Ok(Arc::new(MemoryLog { env: self.env.clone(), lanes: opened }) as Arc<dyn Log>)
    }

    fn lane(&self, context: &LogContext, log: &LogRecord) -> Result<SharedLane> {
        self.check(log)?;
        match self.shared.lanes.lock().get(&(context.life(false), log.id)) {
            Some(lane) => Ok(Arc::clone(lane)),
            None => Err(Error::new(
                ErrorKind::Corrupt,
                "a log that the manifest names is gone: it was in the memory of a process that ended",
            )
            .object(self.place(log.id))
            .advice("its writes since the last flush are lost; restore the database from a copy")),
        }
    }
}

impl LogStore for MemoryLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let log = self.begin(context, 0..lanes).await?;
            let (life, named) = (context.life(false), context.chain.named());
            let is_garbage =
                |id: LogId| id.epoch < context.epoch && !named.iter().any(|record| record.id == id);
            self.shared.lanes.lock().retain(|(of, id), _| *of != life || !is_garbage(*id));
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
        _from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let sealed = {
                let lane = self.lane(context, log)?;
                let mut lane = lane.lock();
                lane.fenced = true;
                lane.end
            };
            self.env.yield_now().await;
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
            self.env.yield_now().await;
            let lane = self.lane(context, log)?;
            let (trimmed, end) = {
                let lane = lane.lock();
                (lane.trimmed, lane.end)
            };
            if to > end || from < trimmed && from < to {
                return Err(Error::new(ErrorKind::Corrupt, "a log does not hold what the manifest says")
                    .object(self.place(log.id))
                    .expected(format!("bytes {from} to {to}"))
                    .found(format!("bytes {trimmed} to {end}")));
            }
            Ok(Box::new(MemoryReader {
                env: self.env.clone(),
                lane,
                next: from,
                to,
                place: self.place(log.id),
            }) as Box<dyn LogReader>)
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let to = self.lane(context, log)?.lock().end;
            self.read(context, log, from, to.max(from)).await
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            self.check(log)?;
            context.check_freed(log, self.place(log.id))?;
            self.shared.lanes.lock().remove(&(context.life(false), log.id));
            Ok(())
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            self.shared
                .lanes
                .lock()
                .retain(|(life, id), _| *life != context.life(false) || id.epoch >= context.epoch);
            Ok(())
        })
    }

    fn survival(&self) -> Survival {
        Survival {
            store: self.identity(),
            domain: FailureDomain::Process,
            accepted:
                "survives as long as this process lives; the end of the process, however it comes, loses it"
                    .into(),
            durable: "the same as accepted: this log is in memory only".into(),
            notes: vec![
                "For tests and for data that may be lost. A database whose log is gone is not opened again."
                    .into(),
            ],
        }
    }

    fn identity(&self) -> String {
        format!("mem://{}", self.name)
    }
}

fn fenced(place: &str) -> Error {
    Error::new(ErrorKind::Fenced, "a successor has fenced this log; what was in flight is of unknown outcome")
        .object(place)
        .advice("this handle is finished: open the database again, which takes it over")
}

#[derive(Debug)]
struct MemoryLog {
    env: Env,
    /// Lanes with their names for messages.
    lanes: Vec<(SharedLane, String)>,
}

impl MemoryLog {
    fn lane(&self, lane: u32) -> Result<(&Mutex<Lane>, &str)> {
        match self.lanes.get(lane as usize) {
            Some((lane, place)) => Ok((lane, place)),
            None => Err(Error::new(
                ErrorKind::Invalid,
                format!("lane {lane} of a log of {} lanes", self.lanes.len()),
            )),
        }
    }
}

impl Log for MemoryLog {
    fn lanes(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)
    }

    fn append_parts(&self, lane: u32, entry: &LogAppend<'_>) -> Result<Appended> {
        let bytes = (ENTRY_OVERHEAD_BYTES + entry.payload_bytes() as u64).next_multiple_of(8);
        if bytes > SEGMENT_BYTES_MAX {
            let message = format!("a log entry of {bytes} bytes; {SEGMENT_BYTES_MAX} are the most");
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
        }
        self.env.preemption_point();
        let (lane, place) = self.lane(lane)?;
        let mut lane = lane.lock();
        if lane.given_up {
            return Err(given_up(place));
        }
        if lane.closed {
            return Err(Error::new(ErrorKind::Closed, "the log was closed").object(place));
        }
        if lane.fenced {
            return Err(fenced(place));
        }
        let in_segment = u64::from(lane.end.byte());
        let start = if in_segment + bytes > SEGMENT_BYTES_MAX {
            LogOffset::new(lane.end.segment() + 1, 0)
        } else {
            lane.end
        };
        let end = LogOffset(start.0 + bytes);
        lane.entries.push_back((start, end, entry.to_entry()));
        lane.end = end;
        lane.live_bytes += bytes;
        Ok(Appended { end, accepted: None })
    }

    fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>> {
        let (completer, completion) = completion();
        completer.complete(self.sync(lane, end));
        completion
    }

    fn sync(&self, lane: u32, end: LogOffset) -> Result<()> {
        let (lane, place) = self.lane(lane)?;
        let lane = lane.lock();
        if end <= lane.end {
            return Ok(());
        }
        if lane.fenced {
            return Err(fenced(place));
        }
        Err(Error::new(ErrorKind::Bug, format!("a sync to {end}, beyond the end {}", lane.end)).object(place))
    }

    /// It costs nothing, but tests on this log are tests for logs that want it.
    fn wants_gathered(&self, _lane: u32) -> bool {
        true
    }

    fn durable_through(&self, lane: u32) -> LogOffset {
        self.lane(lane).map_or(LogOffset::ZERO, |(lane, _)| lane.lock().end)
    }

    fn trim(&self, lane: u32, before: LogOffset) -> Result<()> {
        let (lane, _) = self.lane(lane)?;
        let mut lane = lane.lock();
        let before = before.min(lane.end);
        while let Some((start, end, _)) = lane.entries.front() {
            if *end > before {
                break;
            }
            let bytes = end.0 - start.0;
            lane.live_bytes -= bytes;
            lane.entries.pop_front();
        }
        lane.trimmed = lane.trimmed.max(before);
        Ok(())
    }

    fn pressure(&self, lane: u32) -> Pressure {
        let live_bytes = self.lane(lane).map_or(0, |(lane, _)| lane.lock().live_bytes);
        Pressure { live_bytes, wanted_bytes_max: WANTED_BYTES_MAX }
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            for (lane, place) in &self.lanes {
                let lane = lane.lock();
                if lane.fenced && !lane.given_up {
                    return Err(fenced(place));
                }
            }
            Ok(())
        })
    }

    fn give_up(&self, lane: u32) {
        if let Ok((lane, _)) = self.lane(lane) {
            lane.lock().given_up = true;
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.env.yield_now().await;
            for (lane, _) in &self.lanes {
                lane.lock().closed = true;
            }
            Ok(())
        })
    }
}

#[derive(Debug)]
struct MemoryReader {
    env: Env,
    lane: SharedLane,
    next: LogOffset,
    to: LogOffset,
    place: String,
}

impl LogReader for MemoryReader {
    /// Nothing: what was acknowledged is in the store that it reads.
    fn lacks(&self) -> Option<Error> {
        None
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            let lane = self.lane.lock();
            let index = lane.entries.partition_point(|(start, _, _)| *start < self.next);
            match lane.entries.get(index) {
                _ if self.next >= self.to => Ok(None),
                Some((_, end, entry)) if *end <= self.to => {
                    self.next = *end;
                    Ok(Some((entry.clone(), *end)))
                }
                found => Err(Error::new(ErrorKind::Corrupt, "a log ends before its recorded length")
                    .object(&self.place)
                    .offset(self.next.0)
                    .expected(format!("an entry that ends by {}", self.to))
                    .found(found.map_or_else(
                        || "nothing".into(),
                        |(start, end, _)| format!("one from {start} to {end}"),
                    ))),
            }
        })
    }
}
