//! The task that puts records, one at a time.

use std::sync::Arc;

use tombolo_env::{TaskClass, completion};
use tombolo_format::manifest::{EDIT_BYTES_MAX, Edit, KeyspaceOptions, Part, RECORD_BYTES_MAX, RecordKind};
use tombolo_storage::backoff::{Backoff, is_passing};
use tombolo_storage::{Error, ErrorKind, Result};

use super::io::RetryLimit;
use super::{Committed, Inner, Queued, fenced_error, housekeeping};
use crate::guard::guarded;
use crate::manifest::chain::Tip;
use crate::manifest::chain::append::{Append, Appended};
use crate::manifest::state::Origin;

/// Edits of a record that several commits share.
const GROUP_EDITS_MAX: usize = 1024;
/// Bytes of a record that several commits share, and of a part of edits that are too large for one
/// record; with one edit more it is still within the limit.
const GROUP_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(GROUP_BYTES_MAX + EDIT_BYTES_MAX <= RECORD_BYTES_MAX / 2);
/// Records after a failed snapshot before it is tried again.
const SNAPSHOT_RETRY_RECORDS: u64 = 32;

/// What one record will hold, or several, and who waits for it.
struct Group {
    /// One, or all parts of the edits of one commit.
    kinds: Vec<RecordKind>,
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
        if tip.wants_snapshot()
            && tip.slot >= snapshot_from_slot
            && !tip.state.is_destroyed()
            && begin_snapshot(&inner, &tip)
        {
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

/// At least the bytes that an edit takes.
fn edit_bytes(edit: &Edit) -> usize {
    const FIXED: usize = 160;
    match edit {
        Edit::SourceNamed(source) => FIXED + source.place.len(),
        Edit::TableAdded(table) | Edit::TableStaged(table) => {
            FIXED + table.first_key.len() + table.last_key.len() + table.properties.bytes().len()
        }
        Edit::LogNamed { configuration, .. } => FIXED + configuration.len(),
        Edit::KeyspaceCreated { name, options, .. } => FIXED + name.len() + options_bytes(options),
        Edit::KeyspaceChanged { options, .. } => FIXED + options_bytes(options),
        Edit::DatabaseCreated { log_identity, .. } => FIXED + log_identity.len(),
        _ => FIXED,
    }
}

fn options_bytes(options: &KeyspaceOptions) -> usize {
    options.settings.iter().map(|(name, value)| name.len() + value.len() + 8).sum()
}

/// A record's content, or the parts of a content too large for one.
fn kinds(edits: Vec<Edit>) -> Vec<RecordKind> {
    let mut pieces = vec![Vec::new()];
    let mut bytes = 0;
    for edit in edits {
        let more = edit_bytes(&edit);
        if bytes > 0 && bytes + more > GROUP_BYTES_MAX {
            pieces.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(piece) = pieces.last_mut() {
            piece.push(edit);
        }
    }
    let last = pieces.len() - 1;
    let part = |(number, edits): (usize, Vec<Edit>)| match number {
        _ if last == 0 => RecordKind::Edits(edits),
        0 => RecordKind::Part(Part::First, edits),
        _ if number == last => RecordKind::Part(Part::Last, edits),
        _ => RecordKind::Part(Part::Further, edits),
    };
    pieces.into_iter().enumerate().map(part).collect()
}

/// A record's content: the first item, and as many of the following as may share its record. Items
/// that do not fit the state fail alone.
fn form(inner: &Inner, tip: &Tip, first: Queued) -> Option<Group> {
    let mut state = (*tip.state).clone();
    let mut edits = Vec::new();
    let mut waiting = Vec::new();
    let mut bytes = 0;
    let mut item = Some(first);
    while let Some(Queued { kind, done }) = item {
        let RecordKind::Edits(more) = kind else {
            // Only as the first: `take_edits` leaves others in the queue.
            return Some(Group { kinds: vec![kind], waiting: vec![done] });
        };
        let mut after = state.clone();
        match after.apply_edits(&more, Origin::Record(inner.epoch)) {
            Ok(()) => {
                state = after;
                bytes += more.iter().map(edit_bytes).sum::<usize>();
                edits.extend(more);
                waiting.push(done);
            }
            Err(why) => done.complete(Err(Error::new(
                ErrorKind::Bug,
                format!("an edit of the manifest does not fit: {why}"),
            ))),
        }
        item = take_edits(inner, edits.len(), bytes);
    }
    if waiting.is_empty() { None } else { Some(Group { kinds: kinds(edits), waiting }) }
}

/// The next item of the queue, if it may share the record of `count` edits of `bytes` bytes.
fn take_edits(inner: &Inner, count: usize, bytes: usize) -> Option<Queued> {
    let mut shared = inner.shared.lock();
    let Some(Queued { kind: RecordKind::Edits(more), .. }) = shared.queue.front() else { return None };
    let fits = count + more.len() <= GROUP_EDITS_MAX
        && bytes + more.iter().map(edit_bytes).sum::<usize>() <= GROUP_BYTES_MAX;
    if fits || count == 0 { shared.queue.pop_front() } else { None }
}

/// Puts the records of a group and answers who waits; the tip after those that were committed. What
/// is refused between two parts takes no effect: the next record forgets the parts before it.
async fn put(inner: &Arc<Inner>, tip: &Tip, group: Group) -> Option<Tip> {
    let mut backoff = Backoff::new();
    let mut tip = tip.clone();
    let kinds = group.kinds.clone();
    let mut kinds = kinds.iter();
    let mut kind = kinds.next()?;
    // Gone once those who wait were told that nobody knows.
    let mut group = Some(group);
    let putting = Putting::begin(inner);
    loop {
        let mut append = Append::new(tip.clone(), inner.epoch, kind.clone());
        let mut tell = |error| give_up_waiting(inner, &mut group, error);
        let appended: Result<Appended> =
            inner.io.run_telling(&mut append, RetryLimit::Endless, &mut tell).await.flatten();
        let Some(waiting) = group.take() else {
            if let Ok(Appended::Fenced) = appended {
                inner.end(fenced_error(), true);
            }
            return None;
        };
        match appended {
            Ok(Appended::Committed(committed)) => {
                putting.answered();
                tip = committed;
                inner.state.store(Arc::clone(&tip.state));
                match kinds.next() {
                    Some(next) => (kind, group) = (next, Some(waiting)),
                    None => {
                        waiting.complete(&Ok(tip.slot));
                        return Some(tip);
                    }
                }
            }
            Ok(Appended::Unacknowledged(tip)) => return Some(tip),
            Ok(Appended::Refused(error)) if is_passing(&error) && !backoff.is_exhausted(&inner.io.env) => {
                group = Some(waiting);
                putting.answered();
                backoff.pause(&inner.io.env).await;
            }
            Ok(Appended::Refused(error)) => {
                waiting.complete(&Err(error));
                return Some(tip);
            }
            Ok(Appended::Fenced) => {
                inner.end(fenced_error(), true);
                waiting.complete(&Err(fenced_error()));
                return None;
            }
            Err(error) => {
                let unknown = Error::new(
                    ErrorKind::OutcomeUnknown,
                    "the manifest cannot tell whether its record is in place",
                )
                .source(error.clone());
                waiting.complete(&Err(unknown.clone()));
                // Nothing is put behind an unknown outcome: an attempt learns just that, and
                // does not try for ever.
                inner.end(if error.kind() == ErrorKind::Closed { error } else { unknown }, false);
                return None;
            }
        }
    }
}

/// While it lives a record is being put, of which the store has not said whether it is in place.
struct Putting<'a>(&'a Inner);

impl Putting<'_> {
    fn begin(inner: &Inner) -> Putting<'_> {
        let putting = Putting(inner);
        putting.answered();
        putting
    }

    /// The store has said something; the next attempt begins.
    fn answered(&self) {
        *self.0.putting_since.lock() = Some(self.0.io.env.now());
    }
}

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        *self.0.putting_since.lock() = None;
    }
}

/// A record may be in place or not, and the store does not say for long: the handle ends, while the
/// task goes on until it knows (rule 5).
fn give_up_waiting(inner: &Inner, group: &mut Option<Group>, error: Error) {
    tracing::error!(%error, store = %inner.io.store.describe(), "the database's handle ends");
    if let Some(group) = group.take() {
        group.complete(&Err(error.clone()));
    }
    inner.end(error, false);
    inner.task_ended(|shared| shared.finished = true);
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
    let watching = Arc::clone(inner);
    let snapshot = guarded(snapshot, move || watching.task_ended(|shared| shared.snapshotting = false));
    inner.io.env.spawn(TaskClass::Background, "manifest snapshot", snapshot).detach();
    true
}
