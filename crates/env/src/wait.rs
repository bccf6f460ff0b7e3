//! Waiting for the first of two things.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::Env;

/// Which of two came first.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
}

/// Whichever is ready first; the other is dropped. When both are, the first.
pub async fn either<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Either::First(value)),
        Poll::Pending => second.as_mut().poll(context).map(Either::Second),
    })
    .await
}

/// What `future` gives, unless that takes longer than `duration`: then it is dropped.
pub async fn within<T>(env: &Env, duration: Duration, future: impl Future<Output = T>) -> Option<T> {
    match either(future, env.sleep(duration)).await {
        Either::First(value) => Some(value),
        Either::Second(()) => None,
    }
}
