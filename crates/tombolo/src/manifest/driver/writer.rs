//! The task that puts records, one at a time.

use std::sync::Arc;

use tombolo_env::{TaskClass, completion};
use tombolo_format::manifest::{Edit, RecordKind};
use tombolo_storage::{Error, ErrorKind, Result};

use super::io::{Backoff, Patience, is_passing};
use super::{Committed, Inner, Queued, fenced_error, housekeeping};
use crate::manifest::chain::Tip;
use crate::manifest::chain::append::{Append, Appended};
use crate::manifest::state::Origin;

/// Edits of a group, beyond which the next commit waits for the next record.
const GROUP_EDITS_MAX: usize = 1024;
/// Their bytes, roughly.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Records after a failed snapshot before it is tried again.
const SNAPSHOT_RETRY_RECORDS: u64 = 32;

/// What one record will hold, and who waits for it.
struct Group {
    kind: RecordKind,
    waiting: Vec<tombolo_env::Completer<Committed>>,
}

impl Group {
    fn complete(self, result: &Committed) {
        for done in self.waiting {
            done.complete(result.clone());
        }
    }
}

/// Puts records until the manifest ends.
pub(super) async fn run(inner: Arc<Inner>, mut tip: Tip) {
    let mut snapshot_from_slot = 0;
    while let Some(first) = next(&inner).await {
        let Some(group) = form(&inner, &tip, first) else { continue };
        match put(&inner, &tip, group).await {
            Some(committed) => tip = committed,
            None => continue,
        }
        if tip.wants_snapshot() && tip.slot >= snapshot_from_slot && !tip.state.is_destroyed() && begin_snapshot(&inner, &tip) {
            snapshot_from_slot = tip.slot + SNAPSHOT_RETRY_RECORDS;
        }
    }
    inner.end(Error::new(ErrorKind::Closed, "the database was closed"), false);
    inner.task_ended(|shared| shared.finished = true);
}

/// The next item of the queue; `None` when it is empty for good.
async fn next(inner: &Inner) -> Option<Queued> {
    loop {
        let wait = {
            let mut shared = inner.shared.lock();
            if let Some(queued) = shared.queue.pop_front() {
                return Some(queued);
            }
            if shared.closing || shared.ended.is_some() {
                return None;
            }
            let (idle, wait) = completion();
            shared.idle = Some(idle);
            wait
        };
        wait.await;
    }
}

/// Roughly the bytes that an edit takes.
fn edit_bytes(edit: &Edit) -> usize {
    const FIXED: usize = 128;
    match edit {
        Edit::TableAdded(table) => FIXED + table.first_key.len() + table.last_key.len(),
        Edit::LogNamed { configuration, .. } => FIXED + configuration.len(),
        Edit::KeyspaceCreated { name, options, .. } => {
            FIXED + name.len() + options.0.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>()
        }
        _ => FIXED,
    }
}

/// A record's content: the first item, and as many of the following as may share its record. Items that do not fit the state fail alone.
fn form(inner: &Inner, tip: &Tip, first: Queued) -> Option<Group> {
    let mut state = (*tip.state).clone();
    let mut edits = Vec::new();
    let mut waiting = Vec::new();
    let mut bytes = 0;
    let mut item = Some(first);
    while let Some(Queued { kind, done }) = item {
        let RecordKind::Edits(more) = kind else {
            // Only as the first: `take_edits` leaves others in the queue.
            return Some(Group { kind, waiting: vec![done] });
        };
        let mut after = state.clone();
        match after.apply_edits(&more, Origin::Record(inner.epoch)) {
            Ok(()) => {
                state = after;
                bytes += more.iter().map(edit_bytes).sum::<usize>();
                edits.extend(more);
                waiting.push(done);
            }
            Err(why) => done.complete(Err(Error::new(ErrorKind::Bug, format!("an edit of the manifest does not fit: {why}")))),
        }
        item = if edits.len() < GROUP_EDITS_MAX && bytes < GROUP_BYTES_MAX { take_edits(inner) } else { None };
    }
    if waiting.is_empty() { None } else { Some(Group { kind: RecordKind::Edits(edits), waiting }) }
}

fn take_edits(inner: &Inner) -> Option<Queued> {
    let mut shared = inner.shared.lock();
    match shared.queue.front() {
        Some(Queued { kind: RecordKind::Edits(_), .. }) => shared.queue.pop_front(),
        _ => None,
    }
}

/// Puts one record and answers who waits; the tip after it when it is committed.
async fn put(inner: &Arc<Inner>, tip: &Tip, group: Group) -> Option<Tip> {
    let mut backoff = Backoff::new();
    loop {
        let mut append = Append::new(tip.clone(), inner.epoch, group.kind.clone());
        let appended: Result<Appended> = inner.io.run(&mut append, Patience::Endless).await.flatten();
        match appended {
            Ok(Appended::Committed(tip)) => {
                inner.state.store(Arc::clone(&tip.state));
                group.complete(&Ok(tip.slot));
                return Some(tip);
            }
            Ok(Appended::Unacknowledged(tip)) => return Some(tip),
            Ok(Appended::Refused(error)) if is_passing(error.kind()) && !backoff.is_exhausted() => backoff.pause(&inner.io.env).await,
            Ok(Appended::Refused(error)) => {
                group.complete(&Err(error));
                return None;
            }
            Ok(Appended::Fenced) => {
                inner.end(fenced_error(), true);
                group.complete(&Err(fenced_error()));
                return None;
            }
            Err(error) => {
                let unknown = Error::new(ErrorKind::OutcomeUnknown, "the manifest cannot tell whether its record is in place");
                group.complete(&Err(unknown.source(error.clone())));
                inner.end(error, false);
                return None;
            }
        }
    }
}

fn begin_snapshot(inner: &Arc<Inner>, tip: &Tip) -> bool {
    {
        let mut shared = inner.shared.lock();
        if shared.snapshotting || shared.closing || shared.ended.is_some() {
            return false;
        }
        shared.snapshotting = true;
    }
    let (task, tip) = (Arc::clone(inner), tip.clone());
    let snapshot = async move {
        if let Err(error) = housekeeping::snapshot_and_truncate(&task, &tip).await {
            tracing::warn!(%error, slot = tip.slot, "a manifest snapshot failed; it is tried again later");
        }
        task.task_ended(|shared| shared.snapshotting = false);
    };
    inner.io.env.spawn(TaskClass::Background, "manifest snapshot", snapshot).detach();
    true
}
