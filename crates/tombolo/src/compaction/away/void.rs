//! Attempts that came to nothing: what they have left is found by its names, and deleted.
//!
//! A worker that was paused may write at any time. So it is looked twice, while the database has
//! work to do at all; what comes later, the next opening finds, as it finds all that no record
//! names.

use std::collections::BTreeSet;
use std::time::Duration;

use tombolo_format::manifest::TableName;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use super::names;
use crate::engine::Background;
use crate::manifest::names::{parse_table, table_prefix};
use crate::workers::{Attempts, Void};

/// When it is looked, after the job has ended, and again.
const LOOKS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];
/// Names of one page of a list.
const NAMES_PER_LIST: usize = 1000;

/// Has collection look for what attempts have left that came to nothing, a while from now.
pub(in super::super) fn sweep_later(background: &Background, attempts: Attempts) {
    if !attempts.all.is_empty() && !is_enabled(Mutant::VoidAttemptsKept) {
        let due = background.env.now() + LOOKS[0];
        background.void_attempts.lock().push(Void { due, looks: 0, attempts });
    }
}

/// Hands over to collection what lies there under names of attempts that came to nothing, once it
/// is time to look.
///
/// # Errors
/// Those of listing: it is looked again.
pub(in super::super) async fn sweep(background: &Background) -> Result<()> {
    let now = background.env.now();
    let due: Vec<Void> = {
        let mut void = background.void_attempts.lock();
        void.extract_if(.., |void| void.due <= now).collect()
    };
    if due.is_empty() {
        return Ok(());
    }
    let swept = look(background, &due).await;
    let again = due.into_iter().filter_map(|void| {
        let looks = if swept.is_ok() { void.looks + 1 } else { void.looks };
        let pause = LOOKS.get(looks)?;
        Some(Void { due: now + *pause, looks, ..void })
    });
    background.void_attempts.lock().extend(again);
    swept
}

async fn look(background: &Background, due: &[Void]) -> Result<()> {
    let incarnation = background.context.incarnation;
    let attempts = due.iter().map(|void| &void.attempts);
    let theirs: BTreeSet<TableName> = attempts
        .flat_map(|attempts| attempts.all.iter().flat_map(|attempt| names(attempt, attempts.names_max)))
        .collect();
    // Names begin with the epoch that wrote them.
    let prefix = format!("{}{:016x}-", table_prefix(incarnation), background.context.epoch.0);
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let request = background.request(Purpose::Collection);
        let page = background.objects.list(request, &prefix, after.as_ref(), NAMES_PER_LIST).await?;
        found.extend(page.objects.iter().filter_map(|object| parse_table(incarnation, &object.name)));
        match page.objects.into_iter().next_back() {
            Some(last) if page.more => after = Some(last.name),
            _ => break,
        }
    }
    let state = background.manifest.state();
    let is_left = |name: &TableName| theirs.contains(name) && state.table(*name).is_none();
    let left: Vec<_> = found.into_iter().filter(is_left).collect();
    if !left.is_empty() {
        let objects = left.len();
        tracing::info!(objects, "deleting what workers have left of attempts that came to nothing");
        left.into_iter().for_each(|name| background.left_behind.add(name));
    }
    Ok(())
}
