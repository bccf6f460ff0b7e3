//! Deletes what left the version, by the rules of deletion.

use std::sync::Arc;

use crate::collection::Collector;
use crate::engine::Engine;

/// Deletes what left the version, once nothing of this process reads it and no pin keeps it; until the database stops. A pass follows
/// background work, so that an idle database makes no request.
pub(crate) async fn collect(engine: Arc<Engine>) {
    let collector = Collector::new(engine.manifest.clone());
    if let Err(error) = collector.collect_orphans().await {
        engine.note(&error);
        tracing::warn!(error = %error, "collecting orphans failed");
    }
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        if engine.manifest.state().unneeded().next().is_some() {
            match collector.collect(|table| engine.versions.is_used(table)).await {
                // One pass takes so many and no more.
                Ok(collected) if !collected.deleted.is_empty() => continue,
                Ok(_) => {}
                Err(error) => {
                    engine.note(&error);
                    tracing::warn!(error = %error, "collection failed");
                }
            }
        }
        let _woken = work.await;
    }
}
