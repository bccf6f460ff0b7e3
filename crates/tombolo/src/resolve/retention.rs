//! Which versions of a key somebody can still see.

use bytes::Bytes;
use tombolo_format::expiry::split_expiring;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_format::operands::OperandList;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, Result};

use super::fold::Operands;
use super::{Judge, Says, Unresolved, says};

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

impl Moments {
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
    /// What an operator failed with first.
    trouble: Option<Error>,
    single: Single,
    misused: u64,
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
        if self.is_new(key) {
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
        if goes_on || says == Says::Operand {
            // What ends is no operand: nothing below it counts, whatever the time.
            self.is_open = says == Says::Operand && trailer.kind() != Some(EntryKind::ExpiringPut);
            let value = value();
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
            Some(EntryKind::Put | EntryKind::SeparatedPut | EntryKind::ExpiringPut)
                if met == Single::Awaits =>
            {
                Single::Met
            }
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
            Ok(None) => self.without_gone(held),
            Err(error) => {
                self.trouble.get_or_insert(error);
                self.without_gone(held)
            }
        }
    }

    /// Entries that stay as they are: what has expired below operands is a delete from then on, or
    /// a table would be written again for it for ever.
    fn without_gone(&self, mut held: Vec<(Trailer, Bytes)>) -> Vec<(Trailer, Bytes)> {
        if let Some((trailer, value)) = held.last_mut()
            && trailer.kind() == Some(EntryKind::ExpiringPut)
            && self.is_gone(value)
        {
            (*trailer, *value) = (Trailer::new(trailer.sequence(), EntryKind::Delete), Bytes::new());
        }
        held
    }

    /// What entries that are held come to; `None`: they stay as they are.
    fn folded(
        &self,
        held: &[(Trailer, Bytes)],
        has_older_here: bool,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<Vec<(Trailer, Bytes)>>> {
        let Some((newest, stored)) = held.first() else { return Ok(None) };
        if newest.kind() == Some(EntryKind::ExpiringPut) {
            return Ok(self.expired(*newest, stored, is_bottom));
        }
        // Without the operator, operands are kept for who has it.
        let Some(operator) = self.judge.operator.as_ref().filter(|operator| operator.get().is_ok()) else {
            return Ok(None);
        };
        let mut operands = Operands::default();
        // `under`: a value that lies apart, and is not here. It stays, and the operands over it.
        let (mut base, mut under) = (None, None);
        for (trailer, value) in held {
            match says(*trailer) {
                Ok(Says::Value) => base = Some(Some(&value[..])),
                Ok(Says::Absent) => base = Some(None),
                _ if trailer.kind() == Some(EntryKind::ExpiringPut) => {
                    // What operands come to over it depends on the time, until it is gone for all.
                    if !self.is_gone(value) {
                        return Ok(None);
                    }
                    base = Some(None);
                }
                Ok(Says::Separated) => under = Some((*trailer, value.clone())),
                _ => operands.push_entry(trailer.kind(), value)?,
            }
        }
        if operands.count() == 0 {
            return Ok(None);
        }
        // Nothing older is seen: it lies behind a put or a delete, or there is none.
        let is_last = base.is_some() || !has_older_here;
        let is_bottom = is_last && under.is_none() && is_bottom(&self.key);
        let base = match base {
            Some(base) => Some(base),
            None if is_bottom || is_enabled(Mutant::MergeFoldedWithoutProof) => Some(None),
            None => None,
        };
        let entry = |kind, value| {
            let folded = (Trailer::new(newest.sequence(), kind), value);
            Ok(Some(std::iter::once(folded).chain(under.clone()).collect()))
        };
        if let Some(base) = base {
            return match operator.fold(&self.key, base, operands.oldest_first())? {
                Some(value) => entry(EntryKind::Put, value.into()),
                None if is_bottom && (self.stripe == Some(0) || !has_older_here) => Ok(Some(Vec::new())),
                None => entry(EntryKind::Delete, Bytes::new()),
            };
        }
        if operands.count() == 1 {
            return Ok(None);
        }
        if let Some(joined) = operator.join(&self.key, operands.oldest_first())? {
            return entry(EntryKind::Merge, joined.into());
        }
        if held.len() == 1 + usize::from(under.is_some()) {
            return Ok(None);
        }
        let mut list = OperandList::default();
        operands.oldest_first().for_each(|operand| list.push(operand));
        let list = list.finish();
        if list.len() > HELD_BYTES_MAX { Ok(None) } else { entry(EntryKind::MergeList, list.into()) }
    }

    /// Whether a value has expired for all who look from the stripe, and may be destroyed.
    fn is_gone(&self, stored: &[u8]) -> bool {
        // Who looks from the stripe's own snapshot judges by the earliest time of all who see the
        // entry.
        let snapshot = self.stripe.and_then(|stripe| self.moments.snapshots.get(stripe));
        let judged_ms = snapshot.map_or(u64::MAX, |(_, judged_ms)| *judged_ms);
        let gone_ms = self.moments.settled_ms.min(judged_ms);
        split_expiring(stored).is_ok_and(|(_, expires_ms)| expires_ms <= gone_ms)
    }

    /// What a put that ends comes to; `None`: it stays. Once it has expired it acts as a delete,
    /// and goes only where a delete may.
    fn expired(
        &self,
        trailer: Trailer,
        stored: &[u8],
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Vec<(Trailer, Bytes)>> {
        if !self.is_gone(stored) {
            return None;
        }
        let dropped_over_older = is_enabled(Mutant::ExpiredDroppedOverOlder);
        if self.stripe == Some(0) && (is_bottom(&self.key) || dropped_over_older) {
            return Some(Vec::new());
        }
        Some(vec![(Trailer::new(trailer.sequence(), EntryKind::Delete), Bytes::new())])
    }

    /// What an operator failed with first, since this was last asked. The operands were kept.
    pub(crate) fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }
}
