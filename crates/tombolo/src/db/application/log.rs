//! An application's log: a lane of the epoch's log.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_format::manifest::{Edit, LogRole};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Log, LogAppend, LogId, LogOffset, LogReader, LogRecord, Result,
};

use crate::db::Handle;
use crate::deadline::Limit;
use crate::engine::{Engine, MAIN_LANE, OwnLane, Store};
use crate::manifest::LogState;
use crate::op::Op;
use crate::options::Durability;

/// The stream in the frames of an application's lanes: none of the database's.
const STREAM: u32 = u32::MAX;

/// An entry's place in an application's log: the epoch, and which of the epoch's entries it is.
/// Ordered as the entries are; the same at every reading of the entry, by every process.
#[derive(Clone, Copy, Debug)]
pub struct LogPosition {
    epoch: u64,
    number: u64,
    /// Where the entry ended when its place was told. A failed sync moves entries that are not
    /// durable, only forward. Not part of what the position is.
    end: LogOffset,
}

impl LogPosition {
    /// The epoch whose writer appended it.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// Which of the epoch's entries it is, counted from 1, trimmed ones too.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn key(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

impl PartialEq for LogPosition {
    fn eq(&self, other: &LogPosition) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LogPosition {}

impl PartialOrd for LogPosition {
    fn partial_cmp(&self, other: &LogPosition) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LogPosition {
    fn cmp(&self, other: &LogPosition) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for LogPosition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// An entry that an earlier epoch left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplicationEntry {
    /// Its place, as the append told it.
    pub end: LogPosition,
    /// What was appended.
    pub payload: Bytes,
}

/// One of the application's logs: see [`crate::Builder::application_logs`]. Cheap to clone; appends
/// from several threads take their places one after the other.
///
/// ```no_run
/// # fn main() -> tombolo::Result<()> {
/// let db = tombolo::Db::builder("file:///data/orders").application_logs(1).open().wait()?;
/// let log = db.application_log(0)?;
/// let mut earlier = log.earlier();
/// while let Some(entry) = earlier.next()? {
///     println!("{} bytes of epoch {}", entry.payload.len(), entry.end.epoch());
/// }
/// log.append("what an earlier process left is applied").wait()?;
/// log.release_earlier().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApplicationLog {
    handle: Arc<Handle>,
    limit: Limit,
    lane: u32,
}

impl fmt::Debug for ApplicationLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ApplicationLog")
            .field("place", &self.engine().place)
            .field("lane", &self.lane)
            .finish()
    }
}

impl ApplicationLog {
    /// # Errors
    /// `Invalid` when the database was not opened with so many.
    pub(crate) fn new(handle: &Arc<Handle>, limit: Limit, number: u32) -> Result<ApplicationLog> {
        let engine = &handle.engine;
        let lane = number.saturating_add(MAIN_LANE + 1);
        if engine.following().is_some() {
            super::check_logs(number.saturating_add(1))?;
            return Ok(ApplicationLog { handle: Arc::clone(handle), limit, lane });
        }
        engine.check_writable()?;
        let lanes = engine.application.lanes.len();
        if number < u32::try_from(lanes).unwrap_or(u32::MAX) {
            return Ok(ApplicationLog { handle: Arc::clone(handle), limit, lane });
        }
        let error = Error::new(
            ErrorKind::Invalid,
            format!("the database was not opened with an application's log number {number}"),
        );
        Err(error.found(format!("{lanes} logs")).advice("say how many with Builder::application_logs"))
    }

    fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// The same log, of which every verb ends within `limit` of its call: see
    /// [`crate::Keyspace::within`]. An entry that is too late may still become durable; releasing
    /// and trimming go on to their end.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> ApplicationLog {
        self.limit = Limit(Some(limit));
        self
    }

    /// # Errors
    /// `Bug` when there is none.
    fn log(&self) -> Result<&Arc<dyn Log>> {
        self.engine()
            .application
            .log
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a lane that was not opened"))
    }

    /// # Errors
    /// `Bug` when there is none.
    fn own_lane(&self) -> Result<&OwnLane> {
        let lane = self.engine().application.lanes.get((self.lane - 1) as usize);
        lane.ok_or_else(|| Error::new(ErrorKind::Bug, "a lane that was not opened"))
    }

    /// Appends an entry; durable when the operation ends, and so is every one before it. One
    /// append; the sync is shared.
    ///
    /// # Errors
    /// As [`ApplicationLog::append_with`].
    pub fn append(&self, payload: impl AsRef<[u8]>) -> Op<LogPosition> {
        self.append_with(payload, Durability::Durable)
    }

    /// As [`ApplicationLog::append`], with the durability said.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over: outcome unknown; `Invalid` for an unlogged
    /// entry, or one that is larger than a segment; `Busy` while too much waits to be durable (wait
    /// for an earlier append), `OutOfSpace` and `Retry`: nothing took effect; `OutcomeUnknown` when
    /// storing it failed.
    pub fn append_with(&self, payload: impl AsRef<[u8]>, durability: Durability) -> Op<LogPosition> {
        let engine = self.engine();
        if durability == Durability::Unlogged {
            return Op::ready(Err(Error::new(ErrorKind::Invalid, "an entry of a log cannot be unlogged")));
        }
        let appended = engine.check_writable().and_then(|()| {
            let mut own = self.own_lane()?.appended.lock();
            let entry = LogAppend {
                stream: STREAM,
                first_sequence: own.count + 1,
                count: 1,
                parts: &[payload.as_ref()],
            };
            let appended = self.log()?.append_parts(self.lane, &entry)?;
            own.count += 1;
            own.end = appended.end;
            Ok((appended, own.count))
        });
        let (appended, number) = match appended {
            Ok(appended) => appended,
            Err(error) => return Op::ready(Err(self.judged(error))),
        };
        let position = LogPosition { epoch: engine.context.epoch.0, number, end: appended.end };
        if appended.accepted.is_none() && durability == Durability::Accepted {
            return Op::ready(Ok(position));
        }
        let (log, end) = (self.clone(), appended.end);
        let work = async move {
            let ended = || Err(Error::new(ErrorKind::Closed, "the log has ended"));
            if let Some(accepted) = appended.accepted {
                accepted.await.unwrap_or_else(ended).map_err(|error| log.judged(error))?;
            }
            if durability == Durability::Durable {
                log.log()?
                    .durable(log.lane, end)
                    .await
                    .unwrap_or_else(ended)
                    .map_err(|error| log.judged(error))?;
            }
            Ok(position)
        };
        self.begin("append to an application's log", work)
    }

    /// Makes durable every entry that was appended before the call. No append; the sync is shared.
    ///
    /// # Errors
    /// As [`ApplicationLog::append_with`], of a durable entry.
    pub fn sync(&self) -> Op<()> {
        let end = self.engine().check_writable().and_then(|()| Ok(self.own_lane()?.appended.lock().end));
        let end = match end {
            Ok(LogOffset::ZERO) => return Op::ready(Ok(())),
            Ok(end) => end,
            Err(error) => return Op::ready(Err(self.judged(error))),
        };
        let log = self.clone();
        self.begin("sync of an application's log", async move {
            let ended = || Err(Error::new(ErrorKind::Closed, "the log has ended"));
            let durable = log.log()?.durable(log.lane, end).await;
            durable.unwrap_or_else(ended).map_err(|error| log.judged(error))
        })
    }

    /// Starts what goes on to its end; only the wait for it is limited.
    fn begin<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        Op::begin(self.limit, &self.engine().env, what, work)
    }

    /// An error of the log; when it says that the epoch has ended, the handle ends with it.
    fn judged(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Fenced {
            self.engine().fail(&error);
        }
        error
    }

    /// The entries that earlier epochs left, oldest first: all that was acknowledged as durable,
    /// and a prefix of what was appended after it. They stay until
    /// [`ApplicationLog::release_earlier`].
    ///
    /// The log of a [`crate::Reader`] has those of the writer too, as far as they were durable when
    /// the reader came up to date last or later.
    pub fn earlier(&self) -> EarlierLogs {
        EarlierLogs { log: self.clone(), waiting: self.earlier_logs().into(), reader: None }
    }

    /// Logs of this lane that earlier epochs left.
    fn earlier_logs(&self) -> Vec<EarlierLog> {
        let state = self.engine().manifest.state();
        let follows = self.engine().following().is_some();
        let mine = |id: &LogId| id.lane == self.lane && (follows || id.epoch < self.engine().context.epoch);
        let logs = state.logs().iter().filter(|(id, log)| mine(id) && log.role == LogRole::Application);
        // Opening has recorded where each ends; a reader finds one that has not ended.
        let log = |(id, log): (&LogId, &LogState)| EarlierLog {
            record: LogRecord { id: *id, configuration: log.configuration.clone() },
            from: log.replay_point,
            to: log.sealed,
            trimmed: log.trimmed,
        };
        logs.map(log).collect()
    }

    /// Gives up what earlier epochs left. To be called once what it holds is kept elsewhere,
    /// durably: in keyspaces, or in this epoch's log. One record of the manifest, then deletions.
    ///
    /// # Errors
    /// `Fenced`; those of the stores: leftovers are deleted by a later opening.
    pub fn release_earlier(&self) -> Op<()> {
        if let Err(error) = self.engine().check_writable() {
            return Op::ready(Err(error));
        }
        let log = self.clone();
        self.begin("release of an application's logs", async move {
            let earlier = log.earlier_logs();
            if earlier.is_empty() {
                return Ok(());
            }
            let unnamed = |log: &EarlierLog| Edit::LogUnnamed {
                epoch: log.record.id.epoch.0,
                lane: log.record.id.lane,
            };
            log.engine().manifest.committed_in_time(earlier.iter().map(unnamed).collect()).await?;
            for EarlierLog { record, .. } in &earlier {
                log.engine().log_store.free(&log.engine().context, record).await?;
            }
            Ok(())
        })
    }

    /// Gives up this epoch's entries up to and including the one at `position`: they are not among
    /// what a later epoch reads. One record of the manifest; the space is given back as the log
    /// can.
    ///
    /// # Errors
    /// `Invalid` for a position of another epoch, or one that is not durable; `Fenced`; those of
    /// the stores.
    pub fn trim(&self, position: LogPosition) -> Op<()> {
        let durable = self
            .engine()
            .application
            .log
            .as_ref()
            .map_or(LogOffset::ZERO, |log| log.durable_through(self.lane));
        if let Err(error) = self.engine().check_writable() {
            return Op::ready(Err(error));
        }
        if position.epoch != self.engine().context.epoch.0 || position.end > durable {
            let error = Error::new(
                ErrorKind::Invalid,
                "a position to trim to that is of another epoch, or not durable",
            );
            return Op::ready(Err(error
                .expected(format!("at most {durable} of epoch {}", self.engine().context.epoch))
                .found(format!("{position:?}"))));
        }
        let log = self.clone();
        self.begin("trim of an application's log", async move {
            let _turn = log.own_lane()?.trimming.take().await;
            let Store { manifest, context, .. }: &Store = log.engine();
            let (epoch, lane) = (context.epoch.0, log.lane);
            if manifest
                .state()
                .logs()
                .get(&LogId { epoch: context.epoch, lane })
                .is_some_and(|log| position.number <= log.trimmed)
            {
                return Ok(());
            }
            // Nothing before the place that was told is needed: entries only move forward, and keep
            // their order. What lies between is told by number.
            let place = Edit::LogReplayPoint { epoch, lane, offset: position.end.0 };
            let mut edits = vec![place, Edit::LogTrimmed { epoch, lane, entries: position.number }];
            if is_enabled(Mutant::ApplicationLogTrimmedByPlace) {
                edits.truncate(1);
            }
            manifest.committed_in_time(edits).await?;
            log.log()?.trim(lane, position.end)
        })
    }
}

/// A log of an earlier epoch.
#[derive(Debug)]
struct EarlierLog {
    record: LogRecord,
    /// Where what was not read yet begins.
    from: LogOffset,
    /// `None` while its writer has not ended.
    to: Option<LogOffset>,
    /// So many of its first entries count no more, some of which may lie behind `from`.
    trimmed: u64,
}

/// The entries that earlier epochs left, one after the other.
///
/// A read that ended with an error, by its deadline, or by being dropped is made again by the next
/// one: no entry is skipped.
#[derive(Debug)]
pub struct EarlierLogs {
    log: ApplicationLog,
    /// The first is the one that is read.
    waiting: VecDeque<EarlierLog>,
    /// Reads on in that. Invariant: taken out while it reads, so that one which was given up midway
    /// reads no more.
    reader: Option<Box<dyn LogReader>>,
}

impl EarlierLogs {
    /// The next entry; `None` at the end. As [`EarlierLogs::next_async`], on a thread that runs no
    /// tasks.
    ///
    /// # Errors
    /// As [`EarlierLogs::next_async`].
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator of results ends with an error, and this goes on"
    )]
    pub fn next(&mut self) -> Result<Option<ApplicationEntry>> {
        let env = self.log.engine().env.clone();
        env.block_on(self.next_async())
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`: what was sealed must be there; `DeadlineExceeded` of a log with a limit; those of
    /// the log store.
    pub async fn next_async(&mut self) -> Result<Option<ApplicationEntry>> {
        let env = self.log.engine().env.clone();
        match self.log.limit.scope(&env, "read of an application's log") {
            Some(scope) => {
                scope.note("the log's store");
                scope.until(&env, self.read_on()).await
            }
            None => self.read_on().await,
        }
    }

    async fn read_on(&mut self) -> Result<Option<ApplicationEntry>> {
        let follows = self.log.engine().following().is_some();
        let Store { log_store, context, .. }: &Store = self.log.engine();
        while let Some(log) = self.waiting.front_mut() {
            let mut reader = match self.reader.take() {
                Some(reader) => reader,
                None => match log.to {
                    Some(to) if log.from < to => log_store.read(context, &log.record, log.from, to).await?,
                    None if follows => log_store.tail(context, &log.record, log.from).await?,
                    _ => {
                        self.waiting.pop_front();
                        continue;
                    }
                },
            };
            let Some((entry, end)) = reader.next().await? else {
                // What a following log builds on would be lacking.
                if let Some(error) = reader.lacks() {
                    return Err(error);
                }
                self.waiting.pop_front();
                continue;
            };
            log.from = end;
            self.reader = Some(reader);
            let position = LogPosition { epoch: log.record.id.epoch.0, number: entry.first_sequence, end };
            if position.number > log.trimmed {
                return Ok(Some(ApplicationEntry { end: position, payload: entry.payload }));
            }
        }
        Ok(None)
    }
}
