//! Which versions of a key somebody can still see.

use bytes::Bytes;
use tombolo_format::expiry::{EXPIRY_BYTES, Expiry, OPERAND_TIMES_BYTES, join_expiring, split_expiring};
use tombolo_format::key::{
    ENTRY_FEATURES_ENDING, ENTRY_FEATURES_OPERANDS, EntryKind, SequenceNumber, Trailer, VALUE_BYTES_MAX,
};
use tombolo_format::operands::OperandList;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, Result};

use super::fold::{OperandEnds, Operands, operand_of};
use super::{Judge, Says, Unresolved, apart, says};
use crate::operator::Named;

/// Bytes of one key's operands that are held at most before they are joined: more come to several
/// entries.
const HELD_BYTES_MAX: usize = 16 << 20;
/// What an entry that is held takes beside its bytes: operands may have none.
const HELD_ENTRY_BYTES: usize = size_of::<(Trailer, Bytes)>();

/// Whence somebody looks, beside now, and what of the past is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    /// The numbers that snapshots look from, ascending, each with the earliest time by which it is
    /// judged from there what has expired; those times ascend too.
    pub(crate) snapshots: Vec<(SequenceNumber, u64)>,
    /// What ended up to then may be destroyed. Taken before the snapshots were listed: one that is
    /// opened later judges by no earlier time.
    pub(crate) settled_ms: u64,
}

/// When the first operand that ends was written.
pub(crate) fn operands_ms(ends: impl Iterator<Item = Option<Expiry>>) -> u64 {
    ends.flatten().map(|ends| ends.written_ms).min().unwrap_or(u64::MAX)
}

impl Moments {
    /// What operands elsewhere may lie over is not destroyed: what ended after one was written. The
    /// ends are those of all tables and memtables that may hold such.
    pub(crate) fn spare_operands(&mut self, ends: impl Iterator<Item = Option<Expiry>>) {
        if self.settled_ms > 0 && !is_enabled(Mutant::ExpiredForgetsOperandsAbove) {
            self.settled_ms = self.settled_ms.min(operands_ms(ends));
        }
    }

    /// The numbers alone.
    pub(crate) fn numbers(&self) -> Vec<SequenceNumber> {
        self.snapshots.iter().map(|(number, _)| *number).collect()
    }
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is kept as it is.
    Kept,
    /// Nobody needs it.
    Dropped,
    /// It is held with others of its key, and comes to something once they are released.
    Held,
}

/// Decides for entries that come in the order of internal keys.
///
/// The sequence numbers that snapshots look from cut all numbers into stripes. Of a key, only what
/// the newest version of each stripe says is seen: a put or a delete alone, an operand with those
/// below it in its stripe, up to the first put or delete.
#[derive(Debug)]
pub(crate) struct Retention {
    moments: Moments,
    judge: Judge,
    key: Vec<u8>,
    /// The stripe of the last version kept of `key`; `None` before the first.
    stripe: Option<usize>,
    /// Operands of `stripe`, and what they lie over if that has come. Invariant: of `key`.
    held: Vec<(Trailer, Bytes)>,
    held_bytes: usize,
    /// Whether older entries of `stripe` belong to what the newest of it says.
    is_open: bool,
    /// When the oldest operand so far of `stripe` was written that ends: older entries count if
    /// they ended after that. `None`: by the time of who looks.
    cut_ms: Option<u64>,
    /// The same of operands in newer stripes, below which those of `stripe` lie, too; `u64::MAX`:
    /// there is none.
    above_ms: u64,
    /// What an operator failed with first.
    trouble: Option<Error>,
    single: Single,
    misused: u64,
}

/// What lies under operands.
enum Base {
    /// A value, and its end if it has one: it counts for them.
    Value(Bytes, Option<u64>),
    /// Nothing.
    Absent,
    /// Something that is not here.
    Unknown,
}

impl Base {
    /// What an entry says to operands over it.
    fn of(trailer: Trailer, stored: &Bytes) -> Base {
        match (says(trailer), trailer.kind()) {
            (Ok(Says::Value), _) => Base::Value(stored.clone(), None),
            (Ok(Says::Absent), _) => Base::Absent,
            (_, Some(EntryKind::ExpiringPut)) => match split_expiring(stored) {
                Ok((value, end)) => Base::Value(stored.slice(..value.len()), Some(end)),
                Err(_) => Base::Unknown,
            },
            // A value that lies apart stays, and the operands over it.
            _ => Base::Unknown,
        }
    }
}

/// What operands that follow each other come to.
enum Grouped {
    /// They stay, or one stands for all.
    Operands(Vec<(Trailer, Bytes)>),
    /// An entry that has the value, and that value.
    Value((Trailer, Bytes), Base),
    /// Nothing, from this number on.
    Absent(SequenceNumber),
}

/// Whether older entries of its key count as well.
fn is_operand(trailer: Trailer) -> bool {
    trailer.kind().is_some_and(|kind| kind.feature() & ENTRY_FEATURES_OPERANDS != 0)
}

/// Whether it ends.
fn is_ending(trailer: Trailer) -> bool {
    trailer.kind().is_some_and(|kind| kind.feature() & ENTRY_FEATURES_ENDING != 0)
}

/// What a single delete has met of its key and stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Single {
    /// There is none, or it is known what it met.
    None,
    /// Nothing yet.
    Awaits,
    /// One put.
    Met,
}

impl Retention {
    /// For readers that look from `moments`, and from now on.
    pub(crate) fn new(moments: Moments, judge: Judge) -> Retention {
        Retention {
            moments,
            judge,
            key: Vec::new(),
            stripe: None,
            held: Vec::new(),
            held_bytes: 0,
            is_open: false,
            cut_ms: None,
            above_ms: u64::MAX,
            trouble: None,
            single: Single::None,
            misused: 0,
        }
    }

    /// Whether `key` is another than that of the entry before.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        self.stripe.is_none() || self.key != key
    }

    #[inline]
    fn stripe_of(&self, trailer: Trailer) -> usize {
        let snapshots = &self.moments.snapshots;
        match snapshots.len() {
            0 => 0,
            _ if is_enabled(Mutant::MergeFoldedAcrossSnapshots) && !self.held.is_empty() => {
                self.stripe.unwrap_or(0)
            }
            _ => snapshots.partition_point(|(snapshot, _)| *snapshot < trailer.sequence()),
        }
    }

    /// Whether entries are held that are to be released before this one is taken.
    #[inline]
    pub(crate) fn is_due(&self, key: &[u8], trailer: Trailer) -> bool {
        !self.held.is_empty()
            && (self.key != key
                || self.held_bytes > HELD_BYTES_MAX
                || self.stripe != Some(self.stripe_of(trailer)))
    }

    /// Whether entries are held: released at the latest when no more come.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the next entry, of which `value` is asked when it is held. `is_bottom` is asked of
    /// deletes that all see: whether nothing older of the key lies anywhere else. What
    /// [`Retention::is_due`] is released before.
    ///
    /// # Errors
    /// When the entry's kind is not known, whether somebody sees the entry or not.
    #[inline]
    pub(crate) fn take(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: impl FnOnce() -> Bytes,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> std::result::Result<Taken, Unresolved> {
        let says = says(trailer)?;
        let is_new = self.is_new(key);
        if is_new {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = None;
        }
        let stripe = self.stripe_of(trailer);
        let goes_on = self.stripe == Some(stripe);
        if self.single != Single::None || trailer.kind() == Some(EntryKind::SingleDelete) {
            self.meet(trailer.kind(), goes_on);
        }
        if goes_on && !self.is_open {
            return Ok(Taken::Dropped);
        }
        self.stripe = Some(stripe);
        if !goes_on {
            self.above_ms = match self.cut_ms {
                _ if is_new || !self.is_open => u64::MAX,
                Some(written_ms) => written_ms,
                None => self.above_ms,
            };
            self.cut_ms = None;
        }
        if goes_on || says == Says::Operand {
            let (trailer, value) = match says {
                Says::Operand => self.judge_end(trailer, value()),
                _ => (trailer, value()),
            };
            // Below a value, nothing counts, whatever the time.
            self.is_open = is_operand(trailer);
            self.held_bytes += HELD_ENTRY_BYTES + value.len();
            self.held.push((trailer, value));
            return Ok(Taken::Held);
        }
        self.is_open = false;
        // In the oldest stripe, a delete says what absence says as well.
        let dropped_over_older = is_enabled(Mutant::DeleteDroppedOverOlder)
            || (trailer.kind() == Some(EntryKind::SingleDelete) && is_enabled(Mutant::SingleDeleteRevives));
        let bottom = || is_bottom(key) || dropped_over_older;
        Ok(if stripe == 0 && says == Says::Absent && bottom() { Taken::Dropped } else { Taken::Kept })
    }

    /// A single delete meets the next entry, or is it. What it meets in its stripe is not kept, and
    /// so counts once.
    #[cold]
    fn meet(&mut self, kind: Option<EntryKind>, goes_on: bool) {
        let met = if goes_on { self.single } else { Single::None };
        self.single = match kind {
            Some(
                EntryKind::Put
                | EntryKind::SeparatedPut
                | EntryKind::ExpiringPut
                | EntryKind::SeparatedExpiringPut,
            ) if met == Single::Awaits => Single::Met,
            Some(EntryKind::SingleDelete) => Single::Awaits,
            _ => Single::None,
        };
        // Below the one put lies another life of the key, which ended before it.
        let has_ended = matches!(kind, Some(EntryKind::Delete | EntryKind::SingleDelete));
        self.misused += match met {
            Single::Awaits => u64::from(self.single != Single::Met),
            Single::Met => u64::from(!has_ended),
            Single::None => 0,
        };
    }

    /// Single deletes that met anything but one put, since this was last asked.
    pub(crate) fn take_misused(&mut self) -> u64 {
        std::mem::take(&mut self.misused)
    }

    /// The key of the entries that are held.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Gives those that stay of the entries that are held, newest first. `next` is the key of the
    /// entry to come, if there is one; `is_bottom` says whether nothing older of the key that is
    /// held lies anywhere else.
    pub(crate) fn release(
        &mut self,
        next: Option<&[u8]>,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Vec<(Trailer, Bytes)> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let has_older_here = next.is_some_and(|next| next == self.key);
        match self.folded(&held, has_older_here, is_bottom) {
            Ok(Some(folded)) => folded,
            Ok(None) => held,
            Err(error) => {
                self.trouble.get_or_insert(error);
                held
            }
        }
    }

    /// What entries that are held come to; `None`: they stay as they are.
    fn folded(
        &self,
        held: &[(Trailer, Bytes)],
        has_older_here: bool,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<Vec<(Trailer, Bytes)>>> {
        if let [(only, _)] = held
            && !is_operand(*only)
        {
            // A delete stands for what has expired, and goes only where a delete may.
            let is_bottom = || is_bottom(&self.key) || is_enabled(Mutant::ExpiredDroppedOverOlder);
            let goes = only.kind() == Some(EntryKind::Delete) && self.stripe == Some(0) && is_bottom();
            return Ok(goes.then(Vec::new));
        }
        // Without the operator, operands are kept for who has it.
        let Some(operator) = self.judge.operator.as_ref().filter(|operator| operator.get().is_ok()) else {
            return Ok(None);
        };
        let (lowest, operands) = match held.split_last() {
            Some((lowest, operands)) if !is_operand(lowest.0) => (Some(lowest), operands),
            _ => (None, held),
        };
        let is_apart = lowest.is_some_and(|(trailer, stored)| apart(*trailer, stored).is_some());
        // Nothing older is seen: it lies behind a put or a delete, or there is none.
        let is_last = lowest.is_some() || !has_older_here;
        let is_bottom = is_last && !is_apart && is_bottom(&self.key);
        let mut base = match lowest {
            Some((trailer, stored)) => Base::of(*trailer, stored),
            None if is_bottom || is_enabled(Mutant::MergeFoldedWithoutProof) => Base::Absent,
            None => Base::Unknown,
        };
        let mut folded: Vec<_> = lowest.cloned().into_iter().collect();
        // Those that do not end lie over what ends, and so above; those that do make one operand.
        let newer = operands.iter().take_while(|(trailer, _)| !is_ending(*trailer)).count();
        let (newer, older) = operands.split_at(newer);
        for group in [older, newer].into_iter().filter(|group| !group.is_empty()) {
            match self.group(operator, group, &base)? {
                Grouped::Operands(operands) => {
                    folded.splice(0..0, operands);
                    base = Base::Unknown;
                }
                Grouped::Value(entry, value) => {
                    folded = vec![entry];
                    base = value;
                }
                Grouped::Absent(number) => {
                    let goes = is_bottom && (self.stripe == Some(0) || !has_older_here);
                    let delete = (Trailer::new(number, EntryKind::Delete), Bytes::new());
                    folded = if goes { Vec::new() } else { vec![delete] };
                    base = Base::Absent;
                }
            }
        }
        Ok(Some(folded))
    }

    /// What operands come to that follow each other, newest first: none of them ends, or the newest
    /// does.
    fn group(&self, operator: &Named, group: &[(Trailer, Bytes)], base: &Base) -> Result<Grouped> {
        let as_they_are = || Ok(Grouped::Operands(group.to_vec()));
        let Some((newest, _)) = group.first() else { return as_they_are() };
        let (mut operands, mut ends) = (Operands::default(), OperandEnds::default());
        for (trailer, stored) in group {
            let Ok((operand, times)) = operand_of(*trailer, stored) else { return as_they_are() };
            operands.push_entry(trailer.kind(), operand)?;
            ends.push(times);
        }
        let number = newest.sequence();
        let base = match (base, ends.expires_ms()) {
            (Base::Absent, _) => Some(None),
            (Base::Value(value, None), _) | (Base::Value(value, Some(_)), Some(_)) => Some(Some(&value[..])),
            // What operands come to over it depends on the time, until it is gone for all.
            (Base::Value(_, Some(_)), None) | (Base::Unknown, _) => None,
        };
        if let Some(base) = base {
            return match (operator.fold(&self.key, base, operands.oldest_first())?, ends.expires_ms()) {
                (None, _) => Ok(Grouped::Absent(number)),
                (Some(value), None) => {
                    let value = Bytes::from(value);
                    let entry = (Trailer::new(number, EntryKind::Put), value.clone());
                    Ok(Grouped::Value(entry, Base::Value(value, None)))
                }
                (Some(value), Some(_)) if value.len() > VALUE_BYTES_MAX - EXPIRY_BYTES => as_they_are(),
                (Some(value), Some(end)) => {
                    let stored = Bytes::from(join_expiring(&value, end));
                    let entry = (Trailer::new(number, EntryKind::ExpiringPut), stored);
                    Ok(Grouped::Value(entry, Base::Value(value.into(), Some(end))))
                }
            };
        }
        if operands.count() == 1 {
            return as_they_are();
        }
        let (joined, is_list) = match operator.join(&self.key, operands.oldest_first())? {
            Some(joined) => (joined, false),
            None if group.len() == 1 => return as_they_are(),
            None => {
                let mut list = OperandList::default();
                operands.oldest_first().for_each(|operand| list.push(operand));
                (list.finish(), true)
            }
        };
        let bytes_max = if is_list { HELD_BYTES_MAX } else { VALUE_BYTES_MAX - OPERAND_TIMES_BYTES };
        match ends.entry(number, joined.into(), is_list) {
            Some((trailer, stored)) if stored.len() <= bytes_max => {
                Ok(Grouped::Operands(vec![(trailer, stored)]))
            }
            _ => as_they_are(),
        }
    }

    /// What ended up to then has ended for all who look from the stripe, and may be destroyed.
    fn gone_ms(&self) -> u64 {
        // Who looks from the stripe's own snapshot judges by the earliest time of all who see the
        // entry.
        let snapshot = self.stripe.and_then(|stripe| self.moments.snapshots.get(stripe));
        let judged_ms = snapshot.map_or(u64::MAX, |(_, judged_ms)| *judged_ms);
        let above_ms = if is_enabled(Mutant::ExpiredForgetsOperandsAbove) { u64::MAX } else { self.above_ms };
        self.moments.settled_ms.min(judged_ms).min(above_ms)
    }

    /// Takes note of an entry that may end. One that counts no more for anybody becomes a delete.
    fn judge_end(&mut self, trailer: Trailer, stored: Bytes) -> (Trailer, Bytes) {
        let Some(kind) = trailer.kind() else { return (trailer, stored) };
        let Ok(Some(Expiry { latest_ms, written_ms, .. })) = Expiry::of_entry(kind, &stored) else {
            return (trailer, stored);
        };
        let counts_from = self.cut_ms.unwrap_or_else(|| self.gone_ms());
        if latest_ms <= counts_from {
            return (Trailer::new(trailer.sequence(), EntryKind::Delete), Bytes::new());
        }
        if written_ms != u64::MAX {
            self.cut_ms = Some(written_ms);
        }
        (trailer, stored)
    }

    /// What an operator failed with first, since this was last asked. The operands were kept.
    pub(crate) fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }
}
