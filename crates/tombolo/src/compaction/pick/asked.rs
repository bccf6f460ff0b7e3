//! Compactions that somebody asked for: level by level, what lies in a range goes down, to the last
//! level. Pure, as all picking.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::TableName;

use super::dropped;
use super::{Job, Picking, Reason, Targets, job, kept_aside, next_level, runs_that_may_go};
use crate::engine::DroppedRange;
use crate::version::{Levels, TableHandle};

/// A compaction that somebody asked for: level by level, what lies in a range when the level's turn
/// comes goes down, to the last level.
///
/// Only tables present when their level's turn comes take part, so that it ends however much is
/// written meanwhile.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) keyspace: u32,
    /// Inclusive; `None` without bound.
    pub(crate) first: Option<Bytes>,
    /// Inclusive; `None` without bound.
    pub(crate) last: Option<Bytes>,
    /// Tables within the range go unread: see [`dropped`].
    dropped: Option<DroppedRange>,
    level: u8,
    /// Tables of `level` whose turn it is; `None` before the turn.
    remaining: Option<BTreeSet<TableName>>,
    /// Of level 0 older tables take part, also once they have become one run with others; `None`
    /// before the turn.
    newest: Option<SequenceNumber>,
    /// Tables of the last level that were there at first, of which a filter is asked. `None` before
    /// the first turn.
    last_level: Option<BTreeSet<TableName>>,
    /// A damaged table stayed where it was.
    pub(crate) met_damage: Option<TableName>,
}

/// What an asked compaction does next.
#[derive(Debug)]
pub(crate) enum Turn {
    Do(Box<Job>),
    /// A job that runs is in the way.
    Wait,
    Done,
}

impl Asked {
    pub(crate) fn new(keyspace: u32, first: Option<Bytes>, last: Option<Bytes>) -> Asked {
        Asked {
            keyspace,
            first,
            last,
            dropped: None,
            level: 0,
            remaining: None,
            newest: None,
            last_level: None,
            met_damage: None,
        }
    }

    /// The same, of a range whose tables go unread.
    pub(crate) fn dropping(self, dropped: Option<DroppedRange>) -> Asked {
        Asked { dropped, ..self }
    }

    fn is_in_range(&self, table: &TableHandle) -> bool {
        let description = table.description();
        self.first.as_ref().is_none_or(|first| !description.ends_before(first))
            && self.last.as_ref().is_none_or(|last| description.first_key <= *last)
    }

    /// The next job.
    pub(crate) fn next(&mut self, levels: &Levels, picking: &Picking<'_>) -> Turn {
        if let (Some(dropped), Some(from), Some(to)) = (self.dropped, &self.first, &self.last) {
            return match dropped::next(levels, picking, (from, to), dropped) {
                Ok(job) => Turn::Do(Box::new(job)),
                Err(true) => Turn::Wait,
                Err(false) => Turn::Done,
            };
        }
        let trimmed = kept_aside(levels, &picking.settings);
        let levels = trimmed.as_ref().unwrap_or(levels);
        let last = picking.settings.bottom();
        let targets = Targets::new(levels, &picking.settings);
        if self.last_level.is_none() {
            let all = levels.level(last).filter(|_| picking.is_filtered);
            let names = all.into_iter().flat_map(|run| run.iter()).map(|table| table.description().name);
            self.last_level = Some(names.collect());
        }
        while self.level <= last {
            let tables: Vec<_> = match self.level {
                0 => levels.runs.clone(),
                level => levels.level(level).map_or_else(Vec::new, |run| run.iter().cloned().collect()),
            };
            let remaining = match self.level {
                0 => self.turn_of_level_0(&tables),
                _ => self.remaining.take().unwrap_or_else(|| self.turn(&tables, picking)),
            };
            let here: Vec<_> =
                tables.into_iter().filter(|table| remaining.contains(&table.description().name)).collect();
            let (damaged, here): (Vec<_>, Vec<_>) =
                here.into_iter().partition(|table| picking.busy.is_damaged(table));
            self.met_damage = self.met_damage.or(damaged.first().map(|table| table.description().name));
            if !here.is_empty() {
                self.remaining = Some(here.iter().map(|table| table.description().name).collect());
                match self.job(levels, picking, &targets, &here) {
                    Some(job) => return Turn::Do(Box::new(job)),
                    None if self.is_kept_by_damage(levels, picking, &here) => self.remaining = None,
                    None => return Turn::Wait,
                }
            }
            self.level += 1;
        }
        Turn::Done
    }

    /// The runs of level 0 that take part: all or none, for an older one must not stay behind. Told
    /// by what they hold and not by their names: a job that runs may be making one run of several.
    fn turn_of_level_0(&mut self, runs: &[Arc<TableHandle>]) -> BTreeSet<TableName> {
        let newest_of_all =
            || runs.iter().map(|run| run.description().last_sequence).max().unwrap_or(SequenceNumber::ZERO);
        let none = SequenceNumber::ZERO;
        let is_met = || runs.iter().any(|run| self.is_in_range(run));
        let newest = self.newest.unwrap_or_else(|| if is_met() { newest_of_all() } else { none });
        self.newest = Some(newest);
        let takes_part =
            |run: &&Arc<TableHandle>| newest > none && run.description().first_sequence <= newest;
        runs.iter().filter(takes_part).map(|run| run.description().name).collect()
    }

    /// The tables of this level, which is not level 0, that take part.
    fn turn(&self, tables: &[Arc<TableHandle>], picking: &Picking<'_>) -> BTreeSet<TableName> {
        let takes_part = |table: &&Arc<TableHandle>| match self.level {
            level if level == picking.settings.bottom() => {
                let description = table.description();
                let has_expired =
                    description.expiry().is_some_and(|expiry| expiry.earliest_ms <= picking.expired_ms());
                let holds_unneeded = description.deletes > 0
                    || table.has_ranges()
                    || has_expired
                    || picking.busy.holds_older(table);
                let drops = holds_unneeded && description.last_sequence <= picking.oldest_snapshot;
                // What a snapshot sees is not offered.
                let is_offered =
                    picking.newest_snapshot.is_none_or(|snapshot| snapshot < description.last_sequence)
                        && self.last_level.as_ref().is_some_and(|all| all.contains(&description.name));
                // A compaction on request makes a clone's tables its own.
                self.is_in_range(table) && (drops || is_offered || description.source.is_some())
            }
            _ => self.is_in_range(table),
        };
        tables.iter().filter(takes_part).map(|table| table.description().name).collect()
    }

    fn job(
        &self,
        levels: &Levels,
        picking: &Picking<'_>,
        targets: &Targets,
        here: &[Arc<TableHandle>],
    ) -> Option<Job> {
        if self.level == 0 {
            let wanted = |table: &Arc<TableHandle>| here.iter().any(|other| Arc::ptr_eq(table, other));
            let to = next_level(levels, targets, 0);
            let runs = runs_that_may_go(levels, picking.busy, to);
            // From the oldest on, up to the newest that is wanted.
            let newest = runs.iter().position(wanted)?;
            return job(levels, picking, targets, Reason::Asked, (0, runs[newest..].to_vec()), to);
        }
        let last = picking.settings.bottom();
        let to = match self.level {
            level if level == last => level,
            level => levels
                .sorted
                .iter()
                .map(|(number, _)| *number)
                .find(|number| *number > level)
                .unwrap_or(last)
                // Nothing goes to the cold store but from the level above it.
                .min(if level < targets.last { targets.last } else { last }),
        };
        let run = levels.level(self.level)?;
        let bytes_max = picking.settings.table_bytes_at(to, targets.base).saturating_mul(8);
        for table in here.iter().filter(|table| picking.busy.is_free(table)) {
            let at = run.before(&table.description().first_key);
            let mut bytes = 0;
            let fits = |next: &&Arc<TableHandle>| {
                bytes += next.description().length;
                bytes <= bytes_max
                    && picking.busy.is_free(next)
                    && here.iter().any(|other| Arc::ptr_eq(next, other))
            };
            let mut upper: Vec<_> = run.range(at..run.len()).take_while(fits).cloned().collect();
            if upper.is_empty() || self.level == picking.settings.bottom() {
                upper = vec![Arc::clone(table)];
            }
            if let Some(job) = job(levels, picking, targets, Reason::Asked, (self.level, upper), to) {
                return Some(job);
            }
        }
        None
    }

    /// Whether no job runs that these wait for: then only damage can be in their way, and it stays.
    fn is_kept_by_damage(
        &mut self,
        levels: &Levels,
        picking: &Picking<'_>,
        here: &[Arc<TableHandle>],
    ) -> bool {
        let waits =
            here.iter().any(|table| !picking.busy.is_free(table)) || picking.busy.is_at(self.keyspace);
        let damaged = levels
            .tables()
            .find(|table| picking.busy.is_damaged(table))
            .map(|table| table.description().name);
        if waits || damaged.is_none() {
            return false;
        }
        self.met_damage = self.met_damage.or(damaged);
        true
    }
}
