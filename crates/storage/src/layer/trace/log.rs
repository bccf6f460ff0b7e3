//! A log store whose requests are told. Latency of an append is that of the call; of a sync, until
//! the lane is durable.

use std::sync::Arc;

use tombolo_env::{BoxFuture, Completion, TaskClass, completion};

use super::objects::Span;
use super::{Tracer, outcome_of};
use crate::facts::Fact;
use crate::layer::RequestKind;
use crate::{
    Appended, Error, ErrorKind, Log, LogAppend, LogContext, LogId, LogOffset, LogReader, LogRecord, LogStore,
    Pressure, Purpose, Result, Survival,
};

/// Wraps a log store; a [`Tracer`] sees each request.
#[derive(Clone, Debug)]
pub struct TraceLogStore {
    inner: Arc<dyn LogStore>,
    tracer: Tracer,
}

fn name_of(id: LogId) -> String {
    format!("{}/{}", id.epoch, id.lane)
}

impl TraceLogStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn LogStore>, tracer: Tracer) -> TraceLogStore {
        TraceLogStore { inner, tracer }
    }

    async fn told<T>(
        &self,
        kind: RequestKind,
        name: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if !self.tracer.is_on() {
            return request.await;
        }
        let span = Span::begin(&self.tracer, Purpose::Open, kind, name, 0);
        let result = request.await;
        span.end(outcome_of(&result));
        result
    }
}

impl LogStore for TraceLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let name = context.epoch.to_string();
            let inner = self.told(RequestKind::LogOpen, &name, self.inner.open(context, lanes)).await?;
            let names =
                (0..inner.lanes()).map(|lane| name_of(LogId { epoch: context.epoch, lane })).collect();
            Ok(Arc::new(TraceLog { env: context.env.clone(), inner, tracer: self.tracer.clone(), names })
                as Arc<dyn Log>)
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let name = name_of(LogId { epoch: context.epoch, lane });
            let inner = self.told(RequestKind::LogOpen, &name, self.inner.open_lane(context, lane)).await?;
            Ok(Arc::new(TraceLog {
                env: context.env.clone(),
                inner,
                tracer: self.tracer.clone(),
                names: vec![name],
            }) as Arc<dyn Log>)
        })
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            self.told(RequestKind::LogFence, &name_of(log.id), self.inner.fence(context, log, from)).await
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
            self.told(RequestKind::LogRead, &name_of(log.id), self.inner.read(context, log, from, to)).await
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            self.told(RequestKind::LogRead, &name_of(log.id), self.inner.tail(context, log, from)).await
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.told(RequestKind::LogFree, &name_of(log.id), self.inner.free(context, log)).await
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.told(RequestKind::LogFree, "all", self.inner.clear(context)).await })
    }

    fn is_of_one_host(&self) -> bool {
        self.inner.is_of_one_host()
    }

    fn facts(&self) -> BoxFuture<'_, Result<Vec<Fact>>> {
        self.inner.facts()
    }

    fn survival(&self) -> Survival {
        self.inner.survival()
    }

    fn identity(&self) -> String {
        self.inner.identity()
    }
}

#[derive(Debug)]
struct TraceLog {
    env: tombolo_env::Env,
    inner: Arc<dyn Log>,
    tracer: Tracer,
    /// Names of the lanes.
    names: Vec<String>,
}

impl TraceLog {
    fn name(&self, lane: u32) -> &str {
        self.names.get(lane as usize).map_or("?", String::as_str)
    }

    fn told<T>(
        &self,
        kind: RequestKind,
        lane: u32,
        bytes: u64,
        request: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.tracer.is_on() {
            return request();
        }
        let span = Span::begin(&self.tracer, Purpose::Log, kind, self.name(lane), bytes);
        let result = request();
        span.end(outcome_of(&result));
        result
    }
}

impl Log for TraceLog {
    fn lanes(&self) -> u32 {
        self.inner.lanes()
    }

    fn append_parts(&self, lane: u32, entry: &LogAppend<'_>) -> Result<Appended> {
        self.told(RequestKind::LogAppend, lane, entry.payload_bytes() as u64, || {
            self.inner.append_parts(lane, entry)
        })
    }

    fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>> {
        if !self.tracer.is_on() {
            return self.inner.durable(lane, end);
        }
        let mut inner = self.inner.durable(lane, end);
        let (completer, completion) = completion();
        let closed = || Err(Error::new(ErrorKind::Closed, "the log was closed"));
        let began = self.tracer.begin();
        let (tracer, name) = (self.tracer.clone(), self.name(lane).to_string());
        let tell = move |result: &Result<()>| {
            tracer.end(began, Purpose::Log, RequestKind::LogSync, &name, 0, outcome_of(result));
        };
        if inner.is_ready() {
            let result = inner.try_take().unwrap_or_else(closed);
            tell(&result);
            completer.complete(result);
        } else {
            self.env
                .spawn(TaskClass::Foreground, "traced-sync", async move {
                    let result = inner.await.unwrap_or_else(closed);
                    tell(&result);
                    completer.complete(result);
                })
                .detach();
        }
        completion
    }

    fn sync(&self, lane: u32, end: LogOffset) -> Result<()> {
        self.told(RequestKind::LogSync, lane, 0, || self.inner.sync(lane, end))
    }

    fn wants_gathered(&self, lane: u32) -> bool {
        self.inner.wants_gathered(lane)
    }

    fn durable_through(&self, lane: u32) -> LogOffset {
        self.inner.durable_through(lane)
    }

    fn trim(&self, lane: u32, before: LogOffset) -> Result<()> {
        self.told(RequestKind::LogTrim, lane, 0, || self.inner.trim(lane, before))
    }

    fn pressure(&self, lane: u32) -> Pressure {
        self.inner.pressure(lane)
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !self.tracer.is_on() {
                return self.inner.confirm().await;
            }
            let span = Span::begin(&self.tracer, Purpose::Log, RequestKind::LogConfirm, self.name(0), 0);
            let result = self.inner.confirm().await;
            span.end(outcome_of(&result));
            result
        })
    }

    fn give_up(&self, lane: u32) {
        self.inner.give_up(lane);
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !self.tracer.is_on() {
                return self.inner.close().await;
            }
            let span = Span::begin(&self.tracer, Purpose::Log, RequestKind::LogClose, self.name(0), 0);
            let result = self.inner.close().await;
            span.end(outcome_of(&result));
            result
        })
    }
}
