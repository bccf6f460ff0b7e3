//! Values that lie apart, read before a walk comes to them.
//!
//! A walk that has waited for one value waits for the next one, too. From its second wait on it
//! reads several: a scout, which fetches nothing, walks ahead over blocks in memory and finds the
//! references of the next entries. Values of one object come with one request, in which those that
//! lie near each other are read together, and objects are read side by side.
//!
//! Each wait in a row reads twice as many as the one before. A move to another place, or in the
//! other direction, begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, all};
use tombolo_format::value_object::Reference;
use tombolo_storage::{Purpose, Result};

use super::{Direction, Place, RangeCursor};
use crate::budget::{Category, Charge};
use crate::table::{Step, ValueObject};
use crate::version::Apart;

/// Values that are read at once, at most.
const VALUES_MAX: usize = 64;
/// Bytes of values that are read ahead, at most, and which part of the memory budget.
const BYTES_MAX: u64 = 4 << 20;
const BUDGET_PART: u64 = 32;
/// Entries that a scout passes for each value that it may find.
const ENTRIES_PER_VALUE: usize = 4;
/// Objects that are read side by side.
const OBJECTS_AT_ONCE: usize = 16;

/// A value object, and references to it with their keys.
type Group<'a> = (&'a Arc<ValueObject>, Vec<(Reference, &'a [u8])>);

/// What a cursor keeps that has met values which lie apart. Most never do.
#[derive(Debug, Default)]
pub(super) struct ValuesApart {
    /// The value of the entry at which it stands, if that lies apart.
    pub(super) value: Option<Bytes>,
    /// What the blocked move waits for, if that is a value.
    pub(super) waits: Option<Apart>,
    /// What it waited for, and has come.
    come: Option<(Reference, Bytes)>,
    /// Of the version that a move backward has set aside, if its value lies apart.
    pub(super) saved: Option<Apart>,
    ahead: Ahead,
}

impl ValuesApart {
    #[cold]
    fn leave(&mut self) {
        (self.value, self.waits) = (None, None);
    }

    #[cold]
    pub(super) fn forget_saved(&mut self) {
        self.saved = None;
    }

    #[cold]
    fn forget_ahead(&mut self) {
        self.ahead.forget();
    }

    /// What was waited for, if it is this.
    pub(super) fn take_come(&mut self, reference: &Reference) -> Option<Bytes> {
        let come = self.come.take().filter(|(come, _)| come == reference);
        come.map(|(_, value)| value)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
struct Ahead {
    /// Values to read at the next wait; 0 before the first.
    count: usize,
    /// The direction of the last wait.
    direction: Option<Direction>,
    /// Those that came, and were not taken.
    come: BTreeMap<Reference, Bytes>,
    charge: Option<Charge>,
    /// Of a scout: what it has met.
    met: Option<Vec<Apart>>,
}

impl Ahead {
    /// The walk goes on elsewhere.
    fn forget(&mut self) {
        if self.count > 0 {
            (self.count, self.direction, self.charge) = (0, None, None);
            self.come.clear();
        }
    }

    /// A value that came.
    fn take(&mut self, reference: &Reference) -> Option<Bytes> {
        self.come.remove(reference)
    }

    /// A scout has met a value.
    fn meet(&mut self, apart: Apart) {
        if let Some(met) = &mut self.met {
            met.push(apart);
        }
    }

    /// How many values to read at this wait.
    fn count_now(&mut self, direction: Direction) -> usize {
        if self.direction != Some(direction) {
            self.forget();
        }
        self.direction = Some(direction);
        // What was read and not taken was skipped.
        (self.charge, self.count) = (None, (self.count * 2).clamp(1, VALUES_MAX));
        self.come.clear();
        self.count
    }
}

impl RangeCursor {
    /// The value of the entry at which it stands, if that lies apart.
    #[inline]
    pub(super) fn value_apart(&self) -> Option<&Bytes> {
        self.apart.as_ref()?.value.as_ref().filter(|_| self.place == Place::Entry)
    }

    /// Lets go of the value of the entry where it stood, if that lies apart, and of what a move
    /// waited for that was given up.
    #[inline]
    pub(super) fn leave_apart(&mut self) {
        if let Some(values) = &mut self.apart {
            values.leave();
        }
    }

    /// It goes on elsewhere.
    #[inline]
    pub(super) fn forget_ahead(&mut self) {
        if let Some(values) = &mut self.apart {
            values.forget_ahead();
        }
    }

    /// Sets aside where the value lies of the version at which the merge stands.
    #[cold]
    pub(super) fn save_apart(&mut self, apart: Apart) {
        self.apart.get_or_insert_default().saved = Some(apart);
    }

    /// Where the value lies that was set aside, if it lies apart.
    #[inline]
    pub(super) fn saved_apart(&self) -> Option<&Apart> {
        self.apart.as_ref()?.saved.as_ref()
    }

    /// Takes the value at which it comes to stand from where it lies apart; `false`: it is not in
    /// memory, and the move waits for it.
    #[cold]
    pub(super) fn take_apart(&mut self, apart: Apart) -> Result<bool> {
        let values = self.apart.get_or_insert_default();
        let come = values.take_come(&apart.reference);
        if !self.fetches {
            values.ahead.meet(apart);
            values.value = Some(Bytes::new());
            return Ok(true);
        }
        values.value = match come.or_else(|| values.ahead.take(&apart.reference)) {
            Some(value) => Some(value),
            None => apart.in_memory(Purpose::Scan)?,
        };
        if values.value.is_none() {
            values.waits = Some(apart);
        }
        Ok(values.value.is_some())
    }

    /// Brings the value for which a move waits.
    pub(super) async fn bring_apart(&mut self, apart: Apart) -> Result<()> {
        let reference = apart.reference;
        let value = self.read_apart(apart).await?;
        self.apart.get_or_insert_default().come = Some((reference, value));
        Ok(())
    }

    /// What the entry refers to at which the merge stands.
    #[cold]
    pub(super) fn referred(&self) -> Result<Apart> {
        self.merge.source().map_or_else(|| Err(crate::read::misplaced()), crate::read::Source::referred)
    }

    /// The value for which a move waits; others that the next moves will want come with it.
    async fn read_apart(&mut self, apart: Apart) -> Result<Bytes> {
        let count = self.apart.get_or_insert_default().ahead.count_now(self.goal);
        if count == 1 {
            return apart.get(Purpose::Scan).await;
        }
        let wanted = self.scout(&apart, count);
        let mut groups: BTreeMap<u64, Group<'_>> = BTreeMap::new();
        for one in std::iter::once(&apart).chain(&wanted) {
            let (_, references) =
                groups.entry(one.reference.object).or_insert_with(|| (&one.object, Vec::new()));
            references.push((one.reference, &one.user_key[..]));
        }
        let bytes = wanted.iter().map(|one| u64::from(one.reference.value_bytes)).sum();
        let charge = apart.object.budget().charge(Category::Scans, bytes);
        let reads = groups.values().map(|(object, references)| {
            Box::pin(object.get_several(Purpose::Scan, references, apart.alignment))
                as BoxFuture<'_, Result<Vec<Bytes>>>
        });
        let mut read = all(reads.collect(), OBJECTS_AT_ONCE).await;
        let (mut value, ahead) = (None, &mut self.apart.get_or_insert_default().ahead);
        for ((_, references), read) in groups.values().zip(read.drain(..)) {
            // What fails of those ahead is told by the move that comes to it.
            let Ok(read) = read else { continue };
            for ((reference, _), read) in references.iter().zip(read) {
                if *reference == apart.reference {
                    value = Some(read);
                } else {
                    ahead.come.insert(*reference, read);
                }
            }
        }
        ahead.charge = Some(charge);
        match value {
            Some(value) => Ok(value),
            None => apart.get(Purpose::Scan).await,
        }
    }

    /// What the entries behind the one that refers to `apart` refer to, as far as memory has those
    /// entries, without values that it has.
    fn scout(&self, apart: &Apart, count: usize) -> Vec<Apart> {
        let mut scout = self.twin();
        (scout.fetches, scout.extra_runs) = (false, 0);
        scout.apart.get_or_insert_default().ahead.met = Some(Vec::new());
        let mut step = match self.goal {
            Direction::Forward => scout.seek(&apart.user_key),
            Direction::Backward => scout.seek_for_prev(&apart.user_key),
        };
        let mut bytes_left = BYTES_MAX.min(apart.object.budget().bytes() / BUDGET_PART);
        let mut wanted = Vec::new();
        for _ in 0..count * ENTRIES_PER_VALUE {
            // An error is met again by the move that comes to it.
            if !matches!(step, Ok(Step::Done)) || !scout.valid() {
                break;
            }
            let met = scout.apart.as_mut().and_then(|values| values.ahead.met.as_mut());
            for met in met.map(std::mem::take).unwrap_or_default() {
                let bytes = u64::from(met.reference.value_bytes);
                let is_known = met.reference == apart.reference
                    || matches!(met.in_memory(Purpose::Scan), Ok(Some(_)) | Err(_));
                if is_known {
                    continue;
                }
                if bytes > bytes_left || wanted.len() + 1 >= count {
                    return wanted;
                }
                bytes_left -= bytes;
                wanted.push(met);
            }
            step = match self.goal {
                Direction::Forward => scout.next(),
                Direction::Backward => scout.prev(),
            };
        }
        wanted
    }
}
