//! Deletes what left the version, by the rules of deletion, and what was never part of one.

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::away;
use crate::collection::Collector;
use crate::engine::{Background, Work};
use crate::event::Event;
use crate::flush::Retries;
use crate::manifest::names;

/// Deletes what left the version, once nothing of this process reads it and no pin keeps it; and
/// what earlier epochs and failed attempts left behind. Until the database stops. A pass follows
/// background work, so that an idle database makes no request; one that fails is tried again.
pub(crate) async fn collect(background: &Background) {
    let collector = Collector::new(background.manifest.clone());
    let (mut retries, mut has_swept) = (Retries::default(), (false, false));
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = background.work.subscribe();
        if background.is_stopping() {
            return;
        }
        let attempt = pass(background, &collector, &mut has_swept).await.map_err(repeatable);
        match retries.after(background, Work::COLLECTION, attempt).await {
            Ok(true) => {
                let _woken = work.await;
            }
            Ok(false) => {}
            Err(_) => return,
        }
    }
}

/// Deletions may be repeated: one of unknown outcome is tried again.
fn repeatable(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutcomeUnknown => {
            Error::new(ErrorKind::Retry, format!("a deletion may or may not have taken effect: {error}"))
                .source(error)
        }
        _ => error,
    }
}

/// What may fail for long, by a pin that cannot be read or a source that refuses, comes last, and
/// keeps nothing else from being done.
async fn pass(
    background: &Background,
    collector: &Collector,
    (has_swept, has_swept_cold): &mut (bool, bool),
) -> Result<()> {
    away::sweep(background).await?;
    while let Some(table) = background.left_behind.next() {
        if let Err(error) = collector.discard(table).await {
            background.left_behind.add(table);
            return Err(error);
        }
    }
    if !*has_swept {
        collector.collect_orphans().await?;
        *has_swept = true;
    }
    // One pass takes so many and no more.
    while collector.has_undeleted() || background.manifest.state().unneeded().next().is_some() {
        let deleted = collector
            .collect(|table| {
                background.versions.is_used(table) && !is_enabled(Mutant::DeleteIgnoresOwnReaders)
            })
            .await?
            .deleted;
        if deleted.is_empty() {
            break;
        }
        for table in deleted.into_iter().filter(|table| !collector.is_undeleted(*table)) {
            let object = || names::table(background.context.incarnation, table).to_string();
            background.events.tell(|| Event::TableDeleted { object: object() });
        }
    }
    let left: Vec<_> = std::iter::from_fn(|| background.left_behind.next_cold()).collect();
    let cold = collector.collect_cold_orphans(&left, !*has_swept_cold).await;
    match &cold {
        Ok(()) => *has_swept_cold = true,
        Err(_) => left.into_iter().for_each(|table| background.left_behind.add_cold(table)),
    }
    // Of which no table is named any more, by this pass or by an epoch before, whose last steps
    // they are. A source keeps its tables for those pins, whatever else is out of reach.
    let released = collector.release_sources().await;
    cold.and(collector.check_deleted()).and(released)
}
