//! Several futures at once, in one task.

use std::collections::VecDeque;
use std::task::Poll;

use crate::BoxFuture;

/// All results in order, with at most `limit` futures in flight.
pub async fn all<T>(futures: Vec<BoxFuture<'_, T>>, limit: usize) -> Vec<T> {
    let count = futures.len();
    let mut waiting: VecDeque<(usize, BoxFuture<'_, T>)> = futures.into_iter().enumerate().collect();
    let mut running: Vec<(usize, BoxFuture<'_, T>)> = Vec::new();
    let mut results: Vec<(usize, T)> = Vec::with_capacity(count);
    while results.len() < count {
        running.extend(waiting.drain(..waiting.len().min(limit.max(1) - running.len())));
        std::future::poll_fn(|context| {
            let before = results.len();
            running.retain_mut(|(index, future)| match future.as_mut().poll(context) {
                Poll::Ready(value) => {
                    results.push((*index, value));
                    false
                }
                Poll::Pending => true,
            });
            if results.len() > before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests;
