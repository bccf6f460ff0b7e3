//! Waiting for background work, verifying, closing.

mod close;
mod cut;
mod since;
mod size;
mod spread;
mod verify;

pub(crate) use close::close;
pub use since::CheckpointChange;
pub(crate) use since::checkpoint_after;
pub use size::RangeSize;
pub(crate) use size::range_size;
pub(crate) use spread::{Spread, tables_within};
pub(crate) use verify::verify;
pub use verify::{Finding, VerifyReport};

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tombolo_env::{Env, Instant};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::Edit;
use tombolo_storage::{Error, ErrorKind, Result};

use self::cut::Cut;
use crate::checkpoint::Checkpoint;
use crate::engine::{Background, CompactionRequest, Engine, Health, KeyspaceInfo, Sight, Store, Work};
use crate::event::Event;
use crate::options::KeyspaceOptions;
use crate::write;

/// Ends `work` with `DeadlineExceeded` at `deadline`, and with `advice` what to do then.
pub(crate) async fn until<T>(
    env: &Env,
    deadline: Option<Instant>,
    advice: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = std::pin::pin!(work);
    let mut sleep = deadline.map(|deadline| env.sleep_until(deadline));
    std::future::poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        if sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready()) {
            let error = Error::new(ErrorKind::DeadlineExceeded, "the deadline passed").advice(advice);
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    })
    .await
}

/// Waits until everything up to `last` is in tables.
pub(crate) async fn flushed(engine: &Sight, last: SequenceNumber) -> Result<()> {
    wait_for(
        engine,
        || std::iter::once(Work::FLUSH),
        || engine.view().waiting.iter().all(|sealed| sealed.last_sequence > last),
    )
    .await
}

/// Waits until flushes of what was written up to `last` have walked over the keys that they buried.
pub(crate) async fn walked(engine: &Engine, last: SequenceNumber) -> Result<()> {
    let none = std::iter::empty;
    wait_for(engine, none, || engine.stream.walking.load(Ordering::Acquire) > last.0).await
}

/// Asks for compactions and waits for them; the first that fails says why.
pub(crate) async fn compacted(background: &Background, requests: Vec<CompactionRequest>) -> Result<()> {
    background.compaction_requests.lock().extend(requests.iter().cloned());
    background.work.raise();
    // Another keyspace's trouble is not theirs.
    let compactions = || {
        requests
            .iter()
            .filter(|request| request.ended().is_none())
            .map(|request| Work::compaction(request.keyspace))
    };
    wait_for(background, compactions, || requests.iter().all(|request| request.ended().is_some())).await?;
    requests.iter().try_for_each(|request| request.ended().unwrap_or(Ok(())))
}

/// Waits until it is done, or one of `works` fails: of what fails already, another attempt is made
/// at once, and counts.
async fn wait_for<W: Iterator<Item = Work>>(
    background: &Background,
    works: impl Fn() -> W,
    done: impl Fn() -> bool,
) -> Result<()> {
    let failures = background.troubles.hurry(works());
    background.work.raise();
    loop {
        let progress = background.progress.subscribe();
        if done() {
            return Ok(());
        }
        if let Some(error) = background.failure().or_else(|| background.troubles.since(failures, works())) {
            return Err(error);
        }
        if background.is_stopping() {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        let _woken = background.manifest.in_time(progress).await?;
    }
}

/// Resolves when no other process had taken over after this call began.
pub(crate) async fn confirm(health: &Health) -> Result<()> {
    health.check_writable()?;
    let confirmed = health.confirm().await;
    if let Err(error) = &confirmed {
        health.note(error);
    }
    confirmed
}

/// Changes settings, and lets those who wait for what they rule look again.
pub(crate) fn set_options<'a>(
    engine: &Arc<Engine>,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    engine.check_open()?;
    let change = |options: &mut crate::Options| {
        let before = options.clone();
        settings.into_iter().try_for_each(|(name, value)| options.set(name, value))?;
        options.check_change(&before)
    };
    engine.change_options(change, write::log_bytes_max)?;
    engine.work.raise();
    write::advance_line(engine);
    for stream in engine.streams.all() {
        let now = crate::Options::clone(&engine.options.load());
        let change = |options: &mut crate::Options| {
            // That of a stream follows from how many there were when it began.
            *options = crate::Options { memtable_bytes: options.memtable_bytes, ..now };
            Ok(())
        };
        if let Err(error) = stream.change_options(change, write::log_bytes_max) {
            tracing::warn!(%error, stream = stream.stream_id(), "a stream keeps the settings it had");
        }
        stream.work.raise();
        write::advance_line(&stream);
    }
    Ok(())
}

/// Records other settings of a keyspace in the manifest, which tables made from then on follow. One
/// call at a time: each changes what the one before it left.
pub(crate) async fn set_keyspace_options(
    engine: &Arc<Engine>,
    keyspace: &KeyspaceInfo,
    settings: &[(String, String)],
) -> Result<()> {
    let _turn = engine.configuring.take().await;
    if engine.manifest.state().keyspace(keyspace.id).is_none() {
        // Its creation is in the main log only: the flush tells the manifest.
        let main = engine.main_engine();
        let last = write::seal(&main);
        flushed(&main, last).await?;
    }
    keyspace.check()?;
    let options = KeyspaceOptions::clone(&keyspace.options()).with(settings)?;
    options.check_change(&keyspace.options())?;
    if let Some(operator) = options.operator.as_ref().filter(|_| keyspace.options().operator.is_none()) {
        engine.catalog.operators().named(operator).get()?;
    }
    let before = engine.manifest.state().keyspace(keyspace.id).map(|known| Arc::clone(&known.options));
    let changed = options.to_manifest_over(&before.unwrap_or_default());
    let features = changed.features;
    let edit = Edit::KeyspaceChanged { id: keyspace.id, options: changed };
    // No view may say that the last level is not kept, before nothing more is ingested behind.
    write::end_behind(engine, keyspace, !options.ingest_behind);
    if let Err(error) = engine.manifest.committed_in_time(vec![edit]).await {
        engine.note(&error);
        write::end_behind(engine, keyspace, !keyspace.options().ingest_behind);
        // The manifest refuses what does not fit it: the keyspace was dropped meanwhile.
        keyspace.check()?;
        return Err(error);
    }
    let ends_behind = keyspace.options().ingest_behind && !options.ingest_behind;
    keyspace.set_options(options, features);
    if ends_behind {
        engine.install(None);
        engine.work.raise();
    }
    Ok(())
}

/// Makes a checkpoint of all that was written before this call, and of what came to be flushed with
/// it.
pub(crate) async fn checkpoint(engine: &Arc<Engine>, name: &str) -> Result<Checkpoint> {
    let _turn = engine.checkpointing.take().await;
    engine.check_writable()?;
    let checkpoints = engine.checkpoints();
    let known = checkpoints.list().await?;
    for (unreadable, error) in
        known.iter().filter_map(|listed| Some((listed.id, listed.header.as_ref().err()?)))
    {
        tracing::warn!(%error, id = format!("{unreadable:032x}"), "a checkpoint cannot be read; delete it \
            by its id once it is not needed");
    }
    if known.iter().any(|listed| listed.name() == Some(name)) {
        let message = format!("there is a checkpoint {name:?} already");
        return Err(Error::new(ErrorKind::AlreadyExists, message)
            .advice("choose another name, or delete that one first"));
    }
    // What an attempt before has left would keep its tables.
    if let Err(error) = checkpoints.sweep(confirm(engine)).await {
        if error.kind() == ErrorKind::Fenced {
            return Err(error);
        }
        tracing::warn!(%error, "sweeping unfinished checkpoints failed; the next one tries again");
    }
    let made = loop {
        let cut = Cut::now(engine);
        cut.flushed().await?;
        match checkpoints.create(name, |state| cut.chosen(state)).await {
            // The first stream was begun: the next cut is of it as well.
            Err(error) if error.kind() == ErrorKind::Retry && !cut.is_held() && engine.streams.is_any() => {}
            made => break made?,
        }
    };
    // A process that fences this epoch's log after this finds the checkpoint whole.
    confirm(engine).await?;
    tracing::info!(
        name,
        tables = made.tables,
        bytes = made.table_bytes,
        sequence = made.last_sequence,
        "checkpoint made"
    );
    engine.events.tell(|| Event::CheckpointMade { name: name.to_owned() });
    Ok(made)
}

/// # Errors
/// `Unsupported` with streams beside the main one: `what` would not show them as they are.
pub(crate) fn check_no_streams(engine: &Engine, what: &str) -> Result<()> {
    engine.manifest.state().check_no_streams(what)
}

/// All checkpoints, oldest first.
pub(crate) async fn checkpoints(store: &Store) -> Result<Vec<Checkpoint>> {
    Ok(store.checkpoints().list().await?.iter().map(Checkpoint::from).collect())
}

/// Deletes a checkpoint, and lets collection look for what it kept.
pub(crate) async fn delete_checkpoint(background: &Background, name: &str) -> Result<()> {
    let _turn = background.checkpointing.take().await;
    background.check_writable()?;
    background.checkpoints().delete(name).await?;
    tracing::info!(name, "checkpoint deleted");
    background.events.tell(|| Event::CheckpointDeleted { name: name.to_owned() });
    background.work.raise();
    Ok(())
}
