//! A log store with faults.
//!
//! Appends and syncs are synchronous: a delay there postpones the word that an entry is accepted or
//! durable, not the call.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{BoxFuture, Completion, Env, TaskClass, completion};

use super::objects::{injected, meet};
use super::plan::{Fault, FaultPlan};
use crate::layer::RequestKind;
use crate::{
    Appended, Log, LogAppend, LogContext, LogId, LogOffset, LogReader, LogRecord, LogStore, Pressure,
    Purpose, Result, Survival,
};
use crate::{Epoch, Error, ErrorKind};

/// Wraps a log store; a [`FaultPlan`] says what goes wrong.
#[derive(Clone, Debug)]
pub struct FaultLogStore {
    env: Env,
    inner: Arc<dyn LogStore>,
    plan: FaultPlan,
}

fn name_of(id: LogId) -> String {
    format!("{}/{}", id.epoch, id.lane)
}

impl FaultLogStore {
    /// Wraps `inner`.
    pub fn new(env: &Env, inner: Arc<dyn LogStore>, plan: FaultPlan) -> FaultLogStore {
        FaultLogStore { env: env.clone(), inner, plan }
    }

    fn opened(&self, context: &LogContext, inner: Arc<dyn Log>, first: u32) -> Arc<dyn Log> {
        Arc::new(FaultLog {
            env: self.env.clone(),
            inner,
            plan: self.plan.clone(),
            epoch: context.epoch,
            first,
        })
    }

    async fn ask<T>(
        &self,
        kind: RequestKind,
        name: &str,
        effect: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        let faults = self.plan.ask(kind, Purpose::Open, name, 0);
        let lost =
            faults.iter().any(|fault| matches!(fault, Fault::Unknown { landed: false } | Fault::Late(_)));
        let unknown = lost || faults.iter().any(|fault| matches!(fault, Fault::Unknown { landed: true }));
        let course = meet(&self.env, faults, kind, name).await?;
        if lost {
            return Err(injected(ErrorKind::OutcomeUnknown, kind, name));
        }
        let result = effect().await;
        course.end(&self.env).await;
        if unknown { Err(injected(ErrorKind::OutcomeUnknown, kind, name)) } else { result }
    }
}

impl LogStore for FaultLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let name = context.epoch.to_string();
            let log =
                self.ask(RequestKind::LogOpen, &name, async || self.inner.open(context, lanes).await).await?;
            Ok(self.opened(context, log, 0))
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let name = name_of(LogId { epoch: context.epoch, lane });
            let log = self
                .ask(RequestKind::LogOpen, &name, async || self.inner.open_lane(context, lane).await)
                .await?;
            Ok(self.opened(context, log, lane))
        })
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            self.ask(RequestKind::LogFence, &name_of(log.id), async || {
                self.inner.fence(context, log, from).await
            })
            .await
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
            self.ask(RequestKind::LogRead, &name_of(log.id), async || {
                self.inner.read(context, log, from, to).await
            })
            .await
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            self.ask(RequestKind::LogRead, &name_of(log.id), async || {
                self.inner.tail(context, log, from).await
            })
            .await
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.ask(RequestKind::LogFree, &name_of(log.id), async || self.inner.free(context, log).await)
                .await
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.ask(RequestKind::LogFree, "all", async || self.inner.clear(context).await).await
        })
    }

    fn is_of_one_host(&self) -> bool {
        self.inner.is_of_one_host()
    }

    fn survival(&self) -> Survival {
        self.inner.survival()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }
}

#[derive(Debug)]
struct FaultLog {
    env: Env,
    inner: Arc<dyn Log>,
    plan: FaultPlan,
    epoch: Epoch,
    /// The number of its first lane.
    first: u32,
}

impl FaultLog {
    /// What a synchronous request meets: its delay, or its error; the error, too, that it fails
    /// with after it took effect.
    fn meet(&self, kind: RequestKind, lane: u32, bytes: u64) -> Result<(Option<Duration>, Result<()>)> {
        let name = name_of(LogId { epoch: self.epoch, lane: self.first + lane });
        let mut delay = None;
        let (mut failure, mut after) = (None, Ok(()));
        for fault in self.plan.ask(kind, Purpose::Log, &name, bytes) {
            match fault {
                Fault::Error(kind) => failure = Some(kind),
                Fault::Delay(time) => delay = Some(time),
                Fault::Unknown { landed: false } => failure = Some(ErrorKind::OutcomeUnknown),
                Fault::Unknown { landed: true } => {
                    after = Err(injected(ErrorKind::OutcomeUnknown, kind, &name));
                }
                Fault::Before(hook) | Fault::After(hook) => {
                    hook();
                    self.env.preemption_point();
                }
                _ => {}
            }
        }
        match failure {
            Some(error) => Err(injected(error, kind, &name)),
            None => Ok((delay, after)),
        }
    }

    /// What `inner` resolves to, `delay` later.
    fn postponed(&self, inner: Option<Completion<Result<()>>>, delay: Duration) -> Completion<Result<()>> {
        let (completer, completion) = completion();
        let sleep = self.env.sleep(delay);
        self.env
            .spawn(TaskClass::Foreground, "late-acceptance", async move {
                let result = match inner {
                    None => Ok(()),
                    Some(inner) => inner
                        .await
                        .unwrap_or_else(|| Err(Error::new(ErrorKind::Closed, "the log was closed"))),
                };
                sleep.await;
                completer.complete(result);
            })
            .detach();
        completion
    }
}

impl Log for FaultLog {
    fn lanes(&self) -> u32 {
        self.inner.lanes()
    }

    fn append_parts(&self, lane: u32, entry: &LogAppend<'_>) -> Result<Appended> {
        let (delay, after) = self.meet(RequestKind::LogAppend, lane, entry.payload_bytes() as u64)?;
        let appended = self.inner.append_parts(lane, entry)?;
        after?;
        Ok(match delay {
            Some(delay) => {
                Appended { end: appended.end, accepted: Some(self.postponed(appended.accepted, delay)) }
            }
            None => appended,
        })
    }

    fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>> {
        match self.meet(RequestKind::LogSync, lane, 0) {
            Ok((None, Ok(()))) => self.inner.durable(lane, end),
            Ok((Some(delay), Ok(()))) => self.postponed(Some(self.inner.durable(lane, end)), delay),
            Ok((_, Err(error))) | Err(error) => {
                let (completer, completion) = completion();
                completer.complete(Err(error));
                completion
            }
        }
    }

    fn sync(&self, lane: u32, end: LogOffset) -> Result<()> {
        let (_, after) = self.meet(RequestKind::LogSync, lane, 0)?;
        self.inner.sync(lane, end)?;
        after
    }

    fn wants_gathered(&self, lane: u32) -> bool {
        self.inner.wants_gathered(lane)
    }

    fn durable_through(&self, lane: u32) -> LogOffset {
        self.inner.durable_through(lane)
    }

    fn trim(&self, lane: u32, before: LogOffset) -> Result<()> {
        let (_, after) = self.meet(RequestKind::LogTrim, lane, 0)?;
        self.inner.trim(lane, before)?;
        after
    }

    fn pressure(&self, lane: u32) -> Pressure {
        self.inner.pressure(lane)
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (delay, _) = self.meet(RequestKind::LogConfirm, 0, 0)?;
            if let Some(delay) = delay {
                self.env.sleep(delay).await;
            }
            self.inner.confirm().await
        })
    }

    fn give_up(&self, lane: u32) {
        self.inner.give_up(lane);
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (_, after) = self.meet(RequestKind::LogClose, 0, 0)?;
            self.inner.close().await?;
            after
        })
    }
}
