//! The keeper of the database's [time](crate::time): sees that a manifest record bounds it before
//! an entry ends, and that compaction looks again once what has ended may be destroyed.
//!
//! A database without entries that end writes no record for it, and its keeper sets no timer.
//! Where they do, there is a record a minute at most, and only around the times at which some end.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Completion;
use tombolo_format::expiry::Expiry;
use tombolo_format::manifest::Edit;
use tombolo_storage::Result;

use crate::engine::{Background, Engine, Sight, Store, Work, steady_ms, unix_ms};
use crate::flush::Retries;

/// Keeps the time, until the database stops.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let mut retries = Retries::default();
    loop {
        // Subscribed before it looks: what comes in between is not missed.
        let (work, wanted) = (engine.work.subscribe(), engine.time.wanted.subscribe());
        if engine.is_stopping() {
            return;
        }
        let (looked, again) = match look(&engine).await {
            Ok(again) => (Ok(()), again),
            Err(error) => (Err(error), None),
        };
        match retries.after(&engine, Work::TIME, looked).await {
            Ok(true) => wait(&engine, work, wanted, again).await,
            Ok(false) => {}
            Err(_) => return,
        }
    }
}

/// Until somebody asks, or so long.
async fn wait(engine: &Store, mut work: Completion<()>, mut wanted: Completion<()>, again: Option<Duration>) {
    let mut sleep = again.map(|again| engine.env.sleep(again));
    std::future::poll_fn(|context| {
        let rings = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        let is_asked = std::pin::Pin::new(&mut work).poll(context).is_ready()
            || std::pin::Pin::new(&mut wanted).poll(context).is_ready();
        if rings || is_asked { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Looks at what ends; says when to look again.
///
/// # Errors
/// Those of the manifest.
pub(crate) async fn look(engine: &Engine) -> Result<Option<Duration>> {
    let settled = engine.time.settled();
    engine.time.step(unix_ms(&engine.env), steady_ms(&engine.env));
    let mut plan = engine.time.plan(ends(engine).into_iter(), unix_ms(&engine.env), steady_ms(&engine.env));
    if plan.wants_record {
        let times = engine.time.to_record(unix_ms(&engine.env));
        engine.manifest.committed(vec![Edit::Time { times, is_set: false }]).await?;
        engine.time.recorded(times);
        engine.time.step(unix_ms(&engine.env), steady_ms(&engine.env));
        plan = engine.time.plan(ends(engine).into_iter(), unix_ms(&engine.env), steady_ms(&engine.env));
    }
    if engine.time.settled() > settled {
        // What has ended by then may be destroyed.
        engine.work.raise();
        engine.streams.all().iter().for_each(|stream| stream.work.raise());
    }
    Ok(plan.again_ms.map(Duration::from_millis))
}

/// When entries end, of each memtable and table that has such.
fn ends(engine: &Engine) -> Vec<Expiry> {
    let mut ends = ends_of(engine);
    engine.streams.all().iter().for_each(|stream| ends.extend(ends_of(stream)));
    ends
}

fn ends_of(engine: &Sight) -> Vec<Expiry> {
    let view = engine.view_owned();
    let memtables = view.memtables().filter_map(|memtable| memtable.ends());
    let tables = view.version.keyspaces().flat_map(|(_, levels)| levels.tables());
    memtables.chain(tables.filter_map(|table| table.description().expiry())).collect()
}

/// The last record of a writer that closes, after which it judges nothing.
///
/// # Errors
/// Those of the manifest.
pub(crate) async fn close(engine: &Background) -> Result<()> {
    let Some(times) = engine.time.to_close(unix_ms(&engine.env)) else { return Ok(()) };
    engine.manifest.committed_in_time(vec![Edit::Time { times, is_set: false }]).await.map(drop)
}

/// Sets the database's time to the host's clock.
///
/// # Errors
/// Those of the manifest.
pub(crate) async fn reset(engine: &Engine) -> Result<()> {
    let times = engine.time.to_reset(unix_ms(&engine.env));
    engine.manifest.committed(vec![Edit::Time { times, is_set: true }]).await?;
    engine.time.reset(times, steady_ms(&engine.env));
    engine.forget_dead_runs();
    engine.streams.all().iter().for_each(|stream| stream.forget_dead_runs());
    Ok(())
}

#[cfg(test)]
mod tests;
