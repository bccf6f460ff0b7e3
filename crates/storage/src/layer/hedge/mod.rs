//! A second request for what takes long, a read or a put of the log, at a store where one request
//! in a hundred takes ten times as long as the others.
//!
//! Read path, between the retry layer and a remote store. After a delay that follows what reads of
//! the same size took lately, the same range is asked for once more; the first answer counts, and
//! the other request is given up. So a read waits for the slower of two only when both are slow.
//!
//! | not hedged | because |
//! |---|---|
//! | other puts, deletions, lists, lengths | ranged reads of immutable objects are the same from every server; an object of the log is put with the same bytes until it was seen to be there, so that a second put is one more try. Others' puts have one answer |
//! | puts of more than 512 KiB | their second request is not cheap |
//! | reads that nobody waits for (compaction, flush, verification) | their tail costs nobody time |
//! | more than one read in twenty | a second request is work for the store; a part of one is earned by each read |
//! | while the median itself rose | the store as a whole is slow: more requests would make it slower |
//! | for a second after an error that passes | the same, said by the store |
//! | most, while few second requests win | they only cost; one in sixteen is made to see when that changes |
//! | before 16 reads of a size were seen | nothing is known; before 64 only what takes three medians is late for certain |
//!
//! Errors: those of the first request mean what they always do. One that passes waits for a second
//! request that is on its way; any other ends the read. An error of the second request leaves the
//! first one to answer. Deadlines go down with both requests. Of a put made twice the first success
//! counts, and `Exists` is one: it may be this very object. Without any the outcome is unknown,
//! unless both say that nothing took effect.
//!
//! Invariants: those of `judge`; and a read that ended, or was dropped, leaves no request of its
//! own.

mod judge;
mod latencies;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant};

use self::judge::{Judge, Size};
use crate::backoff::may_have_landed;
use crate::mutant::{Mutant, is_enabled};
use crate::{
    Error, ErrorKind, ObjectName, ObjectStore, Placement, Priority, Purpose, PutOutcome, Request, Result,
    StorePerformance,
};

/// Puts of the log are made twice up to this size.
const PUT_BYTES_MAX: usize = 512 << 10;

/// Wraps a store; see the module's documentation.
#[derive(Clone, Debug)]
pub struct HedgeObjectStore {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    judge: Arc<Mutex<Judge>>,
    /// Of puts, which take another time than reads.
    puts: Arc<Mutex<Judge>>,
}

type Reading<'a> = BoxFuture<'a, Result<Bytes>>;
type Putting<'a> = BoxFuture<'a, Result<PutOutcome>>;

impl HedgeObjectStore {
    /// Wraps `inner`.
    pub fn new(env: &Env, inner: Arc<dyn ObjectStore>) -> HedgeObjectStore {
        HedgeObjectStore { env: env.clone(), inner, judge: Arc::default(), puts: Arc::default() }
    }

    async fn read_once_or_twice(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let (size, began) = (Size::of(range.end.saturating_sub(range.start)), self.env.now());
        let delay = self.judge.lock().begin(size);
        let mut first = self.inner.read(request, name, range.clone());
        if let Some(delay) = delay {
            let timer = self.env.sleep_until(began + delay);
            if let Some(result) = before(&mut first, timer).await {
                return self.first_ended(result, began);
            }
            if self.judge.lock().hedge(size, self.env.now()) {
                let second = self.inner.read(request, name, range);
                let (result, won) = self.race(first, second).await;
                self.judge.lock().hedged(won);
                // Where the second one won, the first took longer than this.
                return self.first_ended(result, began);
            }
        }
        let result = first.await;
        self.first_ended(result, began)
    }

    async fn put_once_or_twice(
        &self,
        request: Request,
        name: &ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> Result<PutOutcome> {
        let (length, began) = (bytes.len() as u64, self.env.now());
        let size = Size::of(length);
        let ended = |result: Result<PutOutcome>| {
            let now = self.env.now();
            match &result {
                Ok(_) => self.puts.lock().took(length, now.since(began)),
                Err(error) => self.puts.lock().failed(error.kind(), now),
            }
            result
        };
        let delay = self.puts.lock().begin(size);
        let mut first = self.inner.put_if_absent(request, name, placement, bytes.clone());
        if let Some(delay) = delay {
            let timer = self.env.sleep_until(began + delay);
            if let Some(result) = before(&mut first, timer).await {
                return ended(result);
            }
            if self.puts.lock().hedge(size, self.env.now()) {
                let second = self.inner.put_if_absent(request, name, placement, bytes);
                let (result, won) = race_puts(first, second).await;
                self.puts.lock().hedged(won);
                return ended(result);
            }
        }
        let result = first.await;
        ended(result)
    }

    /// Learns from a first request; from one that was overtaken, that it took at least so long.
    fn first_ended(&self, result: Result<Bytes>, began: Instant) -> Result<Bytes> {
        let now = self.env.now();
        match &result {
            Ok(bytes) => self.judge.lock().took(bytes.len() as u64, now.since(began)),
            Err(error) => self.judge.lock().failed(error.kind(), now),
        }
        result
    }

    /// The first answer of two requests, and whether it is the second's. The other request is
    /// dropped.
    async fn race<'a>(&self, first: Reading<'a>, second: Reading<'a>) -> (Result<Bytes>, bool) {
        let (mut first, mut second) = (Some(first), Some(second));
        let mut failed: Option<Error> = None;
        poll_fn(move |context| {
            if let Some(Poll::Ready(result)) = first.as_mut().map(|first| first.as_mut().poll(context)) {
                first = None;
                match result {
                    Err(error) if passes(&error) && second.is_some() => {
                        self.judge.lock().failed(error.kind(), self.env.now());
                        failed = Some(error);
                    }
                    result => return Poll::Ready((result, false)),
                }
            }
            if let Some(Poll::Ready(result)) = second.as_mut().map(|second| second.as_mut().poll(context)) {
                second = None;
                match result {
                    Ok(bytes) => return Poll::Ready((Ok(bytes), true)),
                    Err(error) => {
                        self.judge.lock().failed(error.kind(), self.env.now());
                        if is_enabled(Mutant::HedgeErrorEndsRead) {
                            return Poll::Ready((Err(error), false));
                        }
                    }
                }
            }
            match (&first, &second, failed.take()) {
                (None, None, Some(error)) => Poll::Ready((Err(error), false)),
                (_, _, error) => {
                    failed = error;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The first success of two puts of the same bytes, and whether it is the second's; the error that
/// both come to, without one.
async fn race_puts<'a>(first: Putting<'a>, second: Putting<'a>) -> (Result<PutOutcome>, bool) {
    let mut puts = [Some(first), Some(second)];
    let mut errors = [None, None];
    poll_fn(move |context| {
        for (which, put) in puts.iter_mut().enumerate() {
            let Some(Poll::Ready(result)) = put.as_mut().map(|put| put.as_mut().poll(context)) else {
                continue;
            };
            *put = None;
            match result {
                Ok(outcome) => return Poll::Ready((Ok(outcome), which == 1)),
                Err(error) => errors[which] = Some(error),
            }
        }
        match &mut errors {
            [Some(first), Some(second)] => {
                // One that may still land decides.
                let is_unknown = may_have_landed(second) && !is_enabled(Mutant::HedgeForgetsUnknownPut);
                let error = if is_unknown { second } else { first };
                Poll::Ready((Err(error.clone()), false))
            }
            _ => Poll::Pending,
        }
    })
    .await
}

/// What a request answers before a timer ends; it stays as it is otherwise.
async fn before<T>(request: &mut BoxFuture<'_, T>, mut timer: BoxFuture<'static, ()>) -> Option<T> {
    poll_fn(|context| match request.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Pin::new(&mut timer).poll(context).map(|()| None),
    })
    .await
}

/// Whether an error passes by itself, so that another request may succeed.
fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy)
}

impl ObjectStore for HedgeObjectStore {
    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        if request.priority == Priority::High {
            Box::pin(self.read_once_or_twice(request, name, range))
        } else {
            // Nobody waits for it, but it tells what the store gives.
            Box::pin(async move {
                let began = self.env.now();
                self.first_ended(self.inner.read(request, name, range).await, began)
            })
        }
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        if request.purpose == Purpose::Log && bytes.len() <= PUT_BYTES_MAX {
            Box::pin(self.put_once_or_twice(request, name, placement, bytes))
        } else {
            self.inner.put_if_absent(request, name, placement, bytes)
        }
    }

    fn performance(&self) -> Option<StorePerformance> {
        Some(self.judge.lock().performance())
    }

    leave_to_inner!(
        create with_held read_ranges length list delete copy place adopt sweep facts meter location
        traits survival describe
    );
}
