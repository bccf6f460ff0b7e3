//! Probing a log store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::Env;

use super::ProbePlan;
use super::measure::{Measured, Measurement, measure};
use crate::conformance::log::MemoryChain;
use crate::log_memory::Uncounted;
use crate::{
    ConfigurationChain, Epoch, Error, ErrorKind, Incarnation, Log, LogContext, LogEntry, LogOffset, LogStore,
    ObjectStore, Result,
};

/// Bytes appended in one measurement at most: nothing is trimmed meanwhile.
const APPENDED_BYTES_MAX: u64 = 64 << 20;

/// Measures a log store: `append` (accepted) and `sync` (durable, as many writers at once as the
/// depth says). `told` hears of each figure as it is there; its error ends the rest. The log is of
/// a fresh incarnation, and freed at the end.
///
/// # Errors
/// `Invalid` for a plan that makes no sense; the first error of the store.
pub async fn log(
    env: &Env,
    store: &Arc<dyn LogStore>,
    objects: &Arc<dyn ObjectStore>,
    plan: &ProbePlan,
    told: &(dyn Fn(&Measured) -> Result<()> + Send + Sync),
) -> Result<Vec<Measured>> {
    plan.check()?;
    let chain = Arc::new(MemoryChain::default());
    let mut context = LogContext {
        env: env.clone(),
        incarnation: Incarnation(env.random_u64()),
        database: env.random_u64(),
        epoch: Epoch(1),
        chain: Arc::<MemoryChain>::clone(&chain),
        objects: Arc::clone(objects),
        memory: Arc::new(Uncounted),
    };
    let log = store.open(&context, 1).await?;
    // Where the log begins: what lies before was freed.
    let trimmed = AtomicU64::new(0);
    let outcome = run(env, &log, plan, told, &trimmed).await;
    let closed = log.close().await;
    drop(log);
    // Only a later epoch frees a log, once its end is known.
    context.epoch = Epoch(2);
    for record in chain.named() {
        store.fence(&context, &record, LogOffset(trimmed.load(Ordering::Relaxed))).await?;
        chain.unname(&record);
        store.free(&context, &record).await?;
    }
    let measured = outcome?;
    closed.map(|()| measured)
}

async fn run(
    env: &Env,
    log: &Arc<dyn Log>,
    plan: &ProbePlan,
    told: &(dyn Fn(&Measured) -> Result<()> + Send + Sync),
    trimmed: &AtomicU64,
) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    // The caller orders the appends of a lane.
    let lane = Arc::new(Mutex::new(0_u64));
    let end = Arc::new(AtomicU64::new(0));
    for &size in &plan.sizes {
        let operations_max = APPENDED_BYTES_MAX / (size as u64 + 64) + 1;
        for (operation, depth, durable) in std::iter::once(("append", 1, false))
            .chain(plan.depths.iter().map(|depth| ("sync", *depth, true)))
        {
            let lane = Arc::clone(&lane);
            let payload = bytes::Bytes::from(vec![0x5a; size]);
            let last = Arc::clone(&end);
            let measurement =
                Measurement { operation, bytes: size as u64, depth, duration: plan.duration, operations_max };
            let log_of_requests = Arc::clone(log);
            let measured = measure(env, measurement, move |_| {
                let (log, lane, payload, last) =
                    (Arc::clone(&log_of_requests), Arc::clone(&lane), payload.clone(), Arc::clone(&last));
                Box::pin(async move {
                    let appended = {
                        let mut number = lane.lock();
                        let entry = LogEntry { stream: 0, first_sequence: *number, count: 1, payload };
                        let appended = log.append(0, &entry)?;
                        *number += 1;
                        appended
                    };
                    last.fetch_max(appended.end.0, Ordering::Relaxed);
                    let gone = || Error::new(ErrorKind::Closed, "the log ended");
                    if let Some(accepted) = appended.accepted {
                        accepted.await.ok_or_else(gone)??;
                    }
                    if durable {
                        log.durable(0, appended.end).await.ok_or_else(gone)??;
                    }
                    Ok(())
                })
            })
            .await?;
            told(&measured)?;
            all.push(measured);
            // Room for the next one.
            let before = LogOffset(end.load(Ordering::Relaxed));
            log.durable(0, before).await.ok_or_else(|| Error::new(ErrorKind::Closed, "the log ended"))??;
            log.trim(0, before)?;
            trimmed.store(before.0, Ordering::Relaxed);
        }
    }
    Ok(all)
}
