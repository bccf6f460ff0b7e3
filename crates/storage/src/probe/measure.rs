//! One measurement: tasks that make requests until the time is over.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, TaskClass};

use crate::{Error, ErrorKind, Result};

/// Latencies kept of one task; later ones count only towards the rate.
const SAMPLES_MAX: usize = 200_000;

/// The measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What was asked: `write`, `put`, `read`, `list`, `delete`, `append`, `sync`.
    pub operation: &'static str,
    /// Bytes of one request; 0 where it has none.
    pub bytes: u64,
    /// Requests at once.
    pub depth: usize,
    /// Requests that were answered.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Requests in a second.
    pub operations_per_second: f64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// Latency that half of the requests stayed within, in microseconds.
    pub micros_p50: f64,
    /// That 99 of 100 stayed within.
    pub micros_p99: f64,
    /// The longest.
    pub micros_max: f64,
}

#[derive(Default)]
struct Sum {
    operations: u64,
    nanos: Vec<u64>,
    error: Option<Error>,
}

/// What to measure.
pub(super) struct Measurement {
    pub(super) operation: &'static str,
    pub(super) bytes: u64,
    pub(super) depth: usize,
    pub(super) duration: Duration,
    /// Requests at most, all tasks together.
    pub(super) operations_max: u64,
}

/// Makes requests, told their number, until the time or the requests are over.
///
/// # Errors
/// The first that a request ends with.
pub(super) async fn measure(
    env: &Env,
    measurement: Measurement,
    request: impl Fn(u64) -> BoxFuture<'static, Result<()>> + Send + Sync + 'static,
) -> Result<Measured> {
    let Measurement { operation, bytes, depth, duration, operations_max } = measurement;
    let (request, sum) = (Arc::new(request), Arc::new(Mutex::new(Sum::default())));
    let began = env.now();
    let until = began + duration;
    let tasks: Vec<_> = (0..depth as u64)
        .map(|worker| {
            let (env, request, sum) = (env.clone(), Arc::clone(&request), Arc::clone(&sum));
            let env_of_task = env.clone();
            env.spawn(TaskClass::Foreground, "probe", async move {
                let mut own = Sum::default();
                let mut now = env_of_task.now();
                let mut number = worker;
                while now < until && number < operations_max && own.error.is_none() {
                    own.error = request(number).await.err();
                    let after = env_of_task.now();
                    if own.error.is_none() {
                        own.operations += 1;
                        if own.nanos.len() < SAMPLES_MAX {
                            own.nanos.push(u64::try_from(after.since(now).as_nanos()).unwrap_or(u64::MAX));
                        }
                    }
                    now = after;
                    number += depth as u64;
                }
                let mut sum = sum.lock();
                sum.operations += own.operations;
                sum.nanos.append(&mut own.nanos);
                sum.error = sum.error.take().or(own.error);
            })
        })
        .collect();
    for task in tasks {
        if task.await.is_none() {
            return Err(Error::new(ErrorKind::Closed, format!("measuring {operation} ended early")));
        }
    }
    let elapsed = env.now().since(began).as_secs_f64();
    let mut sum = std::mem::take(&mut *sum.lock());
    if let Some(error) = sum.error {
        return Err(error.context(format_args!("measuring {operation} of {bytes} bytes, {depth} at once")));
    }
    sum.nanos.sort_unstable();
    Ok(summary(operation, bytes, depth, sum.operations, elapsed, &sum.nanos))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn summary(
    operation: &'static str,
    bytes: u64,
    depth: usize,
    operations: u64,
    seconds: f64,
    nanos: &[u64],
) -> Measured {
    let seconds = seconds.max(1e-9);
    let at = |hundredths: usize| {
        let index = (nanos.len() * hundredths / 100).min(nanos.len().saturating_sub(1));
        nanos.get(index).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
    };
    let operations_per_second = operations as f64 / seconds;
    Measured {
        operation,
        bytes,
        depth,
        operations,
        seconds,
        operations_per_second,
        bytes_per_second: operations_per_second * bytes as f64,
        micros_p50: at(50),
        micros_p99: at(99),
        micros_max: at(100),
    }
}
