//! A cursor over what one moment sees of a range: one entry for each key that has a value.
//!
//! A move is synchronous while memory has what it needs; when it answers [`Step::Blocked`],
//! [`RangeCursor::load`] completes it.
//!
//! Invariant: the cursor stands at an entry or in a gap between keys, which `place` and `anchor`
//! say. `merge` is only a means: where it stands is trusted while `stands` says so, and found again
//! from the place otherwise. So an error, or a dropped future, leaves the cursor beside the entry
//! where it was.
//!
//! Of a key whose newest version alone says nothing, as an operand of a merge, the merge walks over
//! as many versions as it takes, and the cursor holds the value. It stands at the key then, and the
//! merge behind the newest version.
//!
//! Of a key with many versions, or with many newer than the moment, a few are stepped over; then
//! the rest is skipped by a seek: a move costs a number of steps that does not grow with the number
//! of versions.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::{Error, Purpose, Result};

use dead::DeadKeys;

use super::Merge;
use super::hides::Hides;
use crate::engine::{KeyspaceInfo, View};
use crate::resolve::{Answer, Fold, Judge, Moment, Parts, Unresolved};
use crate::table::{KeyRange, Step};
use crate::version::Owed;
use ahead::ValuesApart;

mod ahead;

/// Versions of a key that are stepped over one by one before a seek skips the rest. A seek of a
/// merge costs as much as some 20 steps.
const STEPS_MAX: u32 = 16;

/// Values from here on are shared instead of copied, where the cursor must set one aside.
const SHARE_BYTES_MIN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where the merge stands, of a cursor that stands at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// At the entry.
    Forward,
    /// Before all versions of `anchor`, whose value is in `saved`.
    Backward,
    /// After the newest version of `anchor` that is seen, whose value is in `saved`.
    Folded,
}

/// Where the cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before all keys.
    Start,
    /// After all keys.
    End,
    /// Before the key in `anchor`, and after all that are less.
    Before,
    /// After the key in `anchor`, and before all that are greater.
    After,
    /// At an entry. Going forward the merge stands there too; going backward, and where its value
    /// was folded, its key is in `anchor`, its value in `saved`.
    Entry,
}

/// What a move backward is about to do; it sees the oldest version of a key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Look at the next key.
    Key,
    /// Look at newer and newer versions of `anchor`.
    Versions,
    /// There are many: the merge seeks the newest one that is visible.
    Newest,
    /// That one does not say all: the merge walks forward over the versions.
    Fold,
    /// The merge steps before all versions of `anchor`.
    Leave,
}

/// A value set aside: short ones copied, long ones shared.
#[derive(Debug, Default)]
struct Saved {
    copied: Vec<u8>,
    shared: Option<Bytes>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RangeCursor {
    merge: Merge,
    /// Keeps what the merge reads from.
    view: Arc<View>,
    keyspace: Arc<KeyspaceInfo>,
    sequence: SequenceNumber,
    /// The time by which it judges what has expired.
    judged_ms: u64,
    /// When the value ends of the entry that was folded last, if it does.
    expires_ms: Option<u64>,
    /// `None`: all keys.
    range: Option<Arc<KeyRange>>,
    place: Place,
    /// See [`Place`].
    anchor: Vec<u8>,
    saved: Saved,
    /// In which direction `merge` stands where the place says; `None`: nowhere of use.
    stands: Option<Stand>,
    /// The direction of the move that is blocked.
    goal: Direction,
    walk: Walk,
    /// The fold of `anchor`, while the merge walks over its versions.
    fold: Option<Fold>,
    /// Whether the newest visible version of `anchor` seen so far is a value, while walking
    /// backward.
    has_value: bool,
    /// Whether that version is one of several that say it together.
    needs_fold: bool,
    /// That version is of a kind that nobody knows.
    refused: Option<Error>,
    /// Versions of one key stepped over in a row.
    steps: u32,
    scratch: Vec<u8>,
    /// What range deletes hide; `None`: nothing.
    hides: Option<Box<Hides>>,
    /// Keys in a row that they hid.
    hidden: u32,
    /// Keys in a row without a value.
    dead: DeadKeys,
    /// Whether the blocked move waits for tables whose range deletes must be known.
    is_opening: bool,
    /// Runs that a seek looks into and would not after a merge.
    extra_runs: u64,
    owed: Owed,
    /// Whether values that lie apart are fetched.
    fetches: bool,
    /// Once it has met values that lie apart.
    apart: Option<Box<ValuesApart>>,
    /// Operands are not folded: those of the last key that has some.
    kept: Option<Box<Kept>>,
}

/// What a key has that was merged, as it is.
#[derive(Debug, Default)]
struct Kept {
    key: Vec<u8>,
    parts: Parts,
}

impl RangeCursor {
    pub(crate) fn new(
        view: Arc<View>,
        keyspace: Arc<KeyspaceInfo>,
        (sequence, judged_ms): (SequenceNumber, u64),
        range: KeyRange,
    ) -> RangeCursor {
        RangeCursor::for_purpose(Purpose::Scan, view, keyspace, (sequence, judged_ms), range)
    }

    /// One of background work: what it reads stays in no cache.
    pub(crate) fn for_purpose(
        purpose: Purpose,
        view: Arc<View>,
        keyspace: Arc<KeyspaceInfo>,
        (sequence, judged_ms): (SequenceNumber, u64),
        range: KeyRange,
    ) -> RangeCursor {
        let range = match (&range.lower, &range.upper) {
            (Bound::Unbounded, Bound::Unbounded) => None,
            _ => Some(Arc::new(range)),
        };
        let merge = Merge::of_view(&view, keyspace.id, range.as_ref(), purpose);
        RangeCursor {
            hides: Hides::of_view(&view, keyspace.id, sequence, range.as_ref()),
            hidden: 0,
            dead: DeadKeys::default(),
            is_opening: false,
            extra_runs: extra_runs(&merge, &view, keyspace.id),
            owed: Owed::default(),
            merge,
            view,
            keyspace,
            sequence,
            judged_ms,
            expires_ms: None,
            range,
            place: Place::Start,
            anchor: Vec::new(),
            saved: Saved::default(),
            stands: None,
            goal: Direction::Forward,
            walk: Walk::Key,
            fold: None,
            has_value: false,
            needs_fold: false,
            refused: None,
            steps: 0,
            scratch: Vec::new(),
            fetches: true,
            apart: None,
            kept: None,
        }
    }

    /// Fetches no values from here on that lie apart: they are empty.
    pub(crate) fn keys_only(&mut self) {
        self.fetches = false;
    }

    /// Folds no operands from here on: the value is empty of a key that has some.
    pub(crate) fn keep_operands(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// Of an entry whose operands were kept, those and the value under them.
    pub(crate) fn operands(&self) -> Option<&Parts> {
        let is_set_aside = self.place == Place::Entry && self.stands != Some(Stand::Forward);
        let kept = self.kept.as_ref().filter(|kept| is_set_aside && kept.key == self.anchor)?;
        (!kept.parts.operands.is_empty()).then_some(&kept.parts)
    }

    /// Looks at another moment from here on; stands in the gap before the entry at which it stood.
    pub(crate) fn refresh(&mut self, view: Arc<View>, (sequence, judged_ms): (SequenceNumber, u64)) {
        if self.place == Place::Entry {
            self.anchor_here();
            self.place = Place::Before;
        }
        self.stands = None;
        (self.sequence, self.judged_ms) = (sequence, judged_ms);
        // The view may be the same, and a memtable of it have got its first write to the keyspace
        // since.
        let id = self.keyspace.id;
        let lists = view.memtables_of(id).filter(|memtable| memtable.has_list(id)).count();
        if !Arc::ptr_eq(&view, &self.view) || lists != self.merge.memtables() {
            self.pay();
            self.merge = Merge::of_view(&view, self.keyspace.id, self.range.as_ref(), Purpose::Scan);
            self.view = view;
            self.extra_runs = extra_runs(&self.merge, &self.view, self.keyspace.id);
        }
        self.hides = Hides::of_view(&self.view, self.keyspace.id, sequence, self.range.as_ref());
        self.apart = None;
    }

    /// Another one over the same range at the same moment, before all entries.
    pub(crate) fn twin(&self) -> RangeCursor {
        let all = || KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
        let range = self.range.as_deref().cloned().unwrap_or_else(all);
        let (view, keyspace) = (Arc::clone(&self.view), Arc::clone(&self.keyspace));
        let mut twin = RangeCursor::new(view, keyspace, (self.sequence, self.judged_ms), range);
        twin.fetches = self.fetches;
        twin.kept = self.kept.as_ref().map(|_| Box::default());
        twin
    }

    /// Whether `key` lies after the entry or the gap at which it stands.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        match self.place {
            Place::Start => true,
            Place::End => false,
            Place::Before => &self.anchor[..] <= key,
            Place::After => &self.anchor[..] < key,
            Place::Entry => self.key() < key,
        }
    }

    /// How many tables and sorted runs it reads.
    pub(crate) fn tables(&self) -> usize {
        self.merge.tables()
    }

    /// Moves of single sources so far.
    #[cfg(test)]
    pub(crate) fn moves(&self) -> usize {
        self.merge.moves
    }

    /// The number that it looks from.
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The time by which it judges what has expired.
    pub(crate) fn judged_ms(&self) -> u64 {
        self.judged_ms
    }

    /// Its range; `None`: all keys.
    pub(crate) fn range(&self) -> Option<&KeyRange> {
        self.range.as_deref()
    }

    /// What it looks at.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Whether it stands at an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.place == Place::Entry
    }

    /// The entry's key; empty at no entry.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match (self.place, self.stands) {
            (Place::Entry, Some(Stand::Forward)) => self.merge.entry().map_or(&[], |(key, _)| key),
            (Place::Entry, _) => &self.anchor,
            _ => &[],
        }
    }

    /// The entry's value; empty at no entry.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        if let Some(value) = self.value_apart() {
            return value;
        }
        match (self.place, self.stands) {
            (Place::Entry, Some(Stand::Forward)) => self.merge.source().map_or(&[], super::Source::value),
            (Place::Entry, _) => self.saved.shared.as_deref().unwrap_or(&self.saved.copied),
            _ => &[],
        }
    }

    /// The entry's value, sharing the memory it lies in where that pays.
    pub(crate) fn value_bytes(&self) -> Bytes {
        if let Some(value) = self.value_apart() {
            return value.clone();
        }
        match (self.place, self.stands) {
            (Place::Entry, Some(Stand::Forward)) => {
                self.merge.source().map_or_else(Bytes::new, super::Source::value_bytes)
            }
            (Place::Entry, _) => {
                self.saved.shared.clone().unwrap_or_else(|| Bytes::copy_from_slice(&self.saved.copied))
            }
            _ => Bytes::new(),
        }
    }

    /// When the entry ends at which it stands, if it does.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        // One that ends is folded, alone as it is.
        let is_set_aside = self.place == Place::Entry && self.stands != Some(Stand::Forward);
        self.expires_ms.filter(|_| is_set_aside)
    }

    /// Stands before the first key at or after `key` from now on, without looking.
    pub(crate) fn stand_before(&mut self, key: &[u8]) {
        self.forget_ahead();
        self.anchor.clear();
        self.anchor.extend_from_slice(key);
        self.place = Place::Before;
        self.stands = None;
    }

    /// Stands before the first entry from now on, without looking.
    pub(crate) fn stand_at_start(&mut self) {
        self.forget_ahead();
        self.place = Place::Start;
        self.stands = None;
    }

    /// Stands after the last entry from now on, without looking.
    pub(crate) fn stand_at_end(&mut self) {
        self.forget_ahead();
        self.place = Place::End;
        self.stands = None;
    }

    /// To the first entry at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Step> {
        self.stand_before(key);
        self.next()
    }

    /// To the first entry after `key`.
    pub(crate) fn seek_after(&mut self, key: &[u8]) -> Result<Step> {
        self.stand_before(key);
        self.place = Place::After;
        self.next()
    }

    /// To the last entry at or before `key`.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<Step> {
        self.stand_before(key);
        self.place = Place::After;
        self.prev()
    }

    /// To the entry after the one at which it stands, or after the gap.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Step> {
        self.leave_apart();
        let step = if self.place == Place::Entry && self.stands == Some(Stand::Forward) {
            if self.hides.is_none()
                && let Some(table) = self.merge.alone()
            {
                // Most often: the next entry of the only table is the newest version of another
                // key, and a value.
                let moment = Moment(self.sequence);
                if table.next_key_if(|trailer| moment.feed(trailer) == Ok(Answer::Value))? {
                    if self.range.as_ref().is_some_and(|range| range.is_above(table.key().user_key)) {
                        (self.place, self.stands) = (Place::End, None);
                    }
                    return Ok(Step::Done);
                }
                self.anchor.clear();
                self.anchor.extend_from_slice(table.key().user_key);
                self.place = Place::After;
                let step = table.next();
                if table.valid() { step } else { self.merge.finish_alone(step) }
            } else {
                self.anchor_here();
                self.place = Place::After;
                self.owed.stepped();
                self.merge.try_next()
            }
        } else if self.place == Place::Entry && self.stands == Some(Stand::Folded) {
            self.place = Place::After;
            Ok(Step::Done)
        } else {
            if self.place == Place::Entry {
                self.place = Place::After;
            }
            self.stand_forward()
        };
        self.fold = None;
        self.goal = Direction::Forward;
        self.stands = None;
        self.steps = 0;
        self.dead.begin();
        match step? {
            Step::Done => self.settle_forward(),
            Step::Blocked => Ok(Step::Blocked),
        }
    }

    /// To the entry before the one at which it stands, or before the gap.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<Step> {
        self.leave_apart();
        self.dead.begin();
        let step = if self.place == Place::Entry && self.stands == Some(Stand::Backward) {
            self.place = Place::Before;
            if let Some(step) = self.prev_alone() {
                return step;
            }
            self.owed.stepped();
            Ok(Step::Done)
        } else {
            if self.place == Place::Entry {
                self.anchor_here();
                self.place = Place::Before;
            }
            self.stand_backward()
        };
        self.fold = None;
        self.goal = Direction::Backward;
        self.stands = None;
        self.walk = Walk::Key;
        match step? {
            Step::Done => self.settle_backward(),
            Step::Blocked => Ok(Step::Blocked),
        }
    }

    /// Completes a move that is blocked. If the future is dropped or fails, the cursor stays in the
    /// gap beside the entry where it was.
    pub(crate) async fn load(&mut self) -> Result<()> {
        if self.is_opening && self.open_and_move().await? == Step::Done {
            return Ok(());
        }
        loop {
            match self.apart.as_mut().and_then(|values| values.waits.take()) {
                Some(apart) => self.bring_apart(apart).await?,
                None => self.merge.load().await?,
            }
            let step = match self.goal {
                Direction::Forward => self.settle_forward()?,
                Direction::Backward => self.settle_backward()?,
            };
            if step == Step::Done {
                return Ok(());
            }
        }
    }

    /// Whether tables must be opened first whose range deletes the move has to know.
    #[inline]
    fn must_open(&mut self) -> bool {
        let range = self.range.as_ref();
        let Some(hides) = &self.hides else {
            self.is_opening = false;
            return false;
        };
        self.is_opening = !hides.closed_tables(range).is_empty();
        self.is_opening
    }

    /// Opens them, side by side, and begins the move.
    async fn open_and_move(&mut self) -> Result<Step> {
        if let Some(hides) = &self.hides {
            let tables = hides.closed_tables(self.range.as_ref());
            let mut opening: Vec<_> = tables.iter().map(|table| table.open()).collect();
            super::for_all(&mut opening, |()| ()).await?;
        }
        let step = match self.goal {
            Direction::Forward => self.stand_forward()?,
            Direction::Backward => self.stand_backward()?,
        };
        debug_assert!(!self.is_opening, "all tables were opened");
        match (step, self.goal) {
            (Step::Blocked, _) => Ok(Step::Blocked),
            (Step::Done, Direction::Forward) => self.settle_forward(),
            (Step::Done, Direction::Backward) => self.settle_backward(),
        }
    }

    /// Remembers the key at which the merge stands, going forward.
    #[inline]
    fn anchor_here(&mut self) {
        if self.stands == Some(Stand::Forward)
            && let Some((key, _)) = self.merge.entry()
        {
            self.anchor.clear();
            self.anchor.extend_from_slice(key);
        }
    }

    #[inline]
    fn is_above(&self, key: &[u8]) -> bool {
        self.range.as_ref().is_some_and(|range| range.is_above(key))
    }

    /// What reading several runs cost so far goes to their read_cost.
    #[cold]
    fn pay(&mut self) {
        if let Some(levels) = self.view.version.levels(self.keyspace.id)
            && self.owed.owes(self.extra_runs > 0)
        {
            self.owed.settle(&levels.read_cost, &self.anchor);
        }
    }

    #[inline]
    fn searched(&mut self) {
        self.owed.searched(self.extra_runs);
        if self.owed.is_due() {
            self.pay();
        }
    }

    /// Moves the merge to the first entry after the gap that is visible or old enough to be
    /// skipped.
    fn stand_forward(&mut self) -> Result<Step> {
        self.hidden = 0;
        if self.must_open() {
            return Ok(Step::Blocked);
        }
        self.searched();
        let visible = Trailer::seek(self.sequence);
        let lower = match self.range.as_ref().map(|range| &range.lower) {
            None | Some(Bound::Unbounded) => None,
            Some(Bound::Included(bound)) => Some((&bound[..], visible)),
            Some(Bound::Excluded(bound)) => Some((&bound[..], Trailer::LAST)),
        };
        let gap = match self.place {
            Place::Start => None,
            Place::Before => Some((&self.anchor[..], visible)),
            Place::After | Place::Entry => Some((&self.anchor[..], Trailer::LAST)),
            Place::End => {
                self.merge.end();
                return Ok(Step::Done);
            }
        };
        // Of two places, the later one: keys ascend, and within a key trailers descend.
        let later = |one: (&[u8], Trailer), other: (&[u8], Trailer)| {
            one.0 > other.0 || one.0 == other.0 && one.1 < other.1
        };
        let start = match (lower, gap) {
            (Some(lower), Some(gap)) => Some(if later(lower, gap) { lower } else { gap }),
            (lower, gap) => lower.or(gap),
        };
        match start {
            Some((key, trailer)) => self.merge.try_seek(key, trailer),
            None => self.merge.try_first(),
        }
    }

    /// Moves the merge to the last entry before the gap.
    fn stand_backward(&mut self) -> Result<Step> {
        self.hidden = 0;
        if self.must_open() {
            return Ok(Step::Blocked);
        }
        self.searched();
        let upper = match self.range.as_ref().map(|range| &range.upper) {
            None | Some(Bound::Unbounded) => None,
            Some(Bound::Included(bound)) => Some((&bound[..], Trailer::LAST)),
            Some(Bound::Excluded(bound)) => Some((&bound[..], Trailer::FIRST)),
        };
        let gap = match self.place {
            Place::Start => {
                self.merge.end();
                return Ok(Step::Done);
            }
            Place::Before | Place::Entry => Some((&self.anchor[..], Trailer::FIRST)),
            Place::After => Some((&self.anchor[..], Trailer::LAST)),
            Place::End => None,
        };
        let earlier = |one: (&[u8], Trailer), other: (&[u8], Trailer)| {
            one.0 < other.0 || one.0 == other.0 && one.1 > other.1
        };
        let end = match (upper, gap) {
            (Some(upper), Some(gap)) => Some(if earlier(upper, gap) { upper } else { gap }),
            (upper, gap) => upper.or(gap),
        };
        match end {
            Some((key, trailer)) => self.merge.try_seek_before(key, trailer),
            None => self.merge.try_last(),
        }
    }

    /// From where the merge stands to the first key with a value.
    #[inline]
    fn settle_forward(&mut self) -> Result<Step> {
        loop {
            if self.fold.is_some() {
                if self.go_on_folding()? == Step::Blocked {
                    return Ok(Step::Blocked);
                }
                if self.end_fold()? {
                    self.stands = Some(Stand::Folded);
                    self.end_of_dead();
                    return Ok(Step::Done);
                }
                self.place = Place::After;
                if let Some(step) = self.pass_folded()
                    && step? == Step::Blocked
                {
                    return Ok(Step::Blocked);
                }
            }
            let step = self.pass_to_value()?;
            if step == Step::Blocked || self.fold.is_none() {
                return Ok(step);
            }
        }
    }

    /// From where the merge stands to the first key with a value, or the first that is to be
    /// folded, of which `fold` is begun.
    #[inline]
    fn pass_to_value(&mut self) -> Result<Step> {
        while let Some((key, trailer)) = self.merge.entry() {
            if self.is_above(key) {
                break;
            }
            // After the newest visible version of a key, which moved the place, all others of it
            // are older.
            let step = if self.place == Place::After && key == &self.anchor[..] {
                self.skip(Trailer::LAST)
            } else if let Some(hides) = &mut self.hides
                && Moment(self.sequence).sees(trailer)
                && hides.hides(key, trailer)
            {
                // So are all older versions of the key.
                self.anchor.clear();
                self.anchor.extend_from_slice(key);
                self.place = Place::After;
                self.steps = 0;
                match self.pass_hidden().or_else(|| self.pass_dead(self.sequence)) {
                    Some(step) => step,
                    None => self.merge.try_next(),
                }
            } else {
                match Moment(self.sequence).feed(trailer) {
                    Ok(Answer::More) => self.skip(Trailer::seek(self.sequence)),
                    Ok(Answer::Value) => {
                        self.place = Place::Entry;
                        self.stands = Some(Stand::Forward);
                        self.end_of_dead();
                        return Ok(Step::Done);
                    }
                    Ok(Answer::Separated) => {
                        let apart = self.referred()?;
                        if !self.take_apart(apart)? {
                            return Ok(Step::Blocked);
                        }
                        self.place = Place::Entry;
                        self.stands = Some(Stand::Forward);
                        self.end_of_dead();
                        return Ok(Step::Done);
                    }
                    Ok(Answer::Absent) => {
                        self.anchor.clear();
                        self.anchor.extend_from_slice(key);
                        self.place = Place::After;
                        self.steps = 0;
                        match self.pass_dead(trailer.sequence()) {
                            Some(step) => step,
                            None => self.merge.try_next(),
                        }
                    }
                    Ok(Answer::Fold) => {
                        self.anchor.clear();
                        self.anchor.extend_from_slice(key);
                        // What fails from here on leaves the cursor before the key.
                        self.place = Place::Before;
                        self.steps = 0;
                        self.fold = Some(Fold::default());
                        return Ok(Step::Done);
                    }
                    Err(unresolved) => return Err(self.unresolved(unresolved)),
                }
            };
            if step? == Step::Blocked {
                return Ok(Step::Blocked);
            }
        }
        self.place = Place::End;
        self.end_of_dead();
        Ok(Step::Done)
    }

    /// Feeds the fold of `anchor` with versions from where the merge stands, until it has an answer
    /// or they end.
    fn go_on_folding(&mut self) -> Result<Step> {
        let judge = self.judge();
        while let Some(source) = self.merge.source()
            && let Some((key, trailer)) = source.entry().filter(|(key, _)| *key == &self.anchor[..])
            && let Some(fold) = &mut self.fold
        {
            // Nothing older of the key is seen.
            if self.hides.as_mut().is_some_and(|hides| hides.hides(key, trailer)) {
                break;
            }
            if let Some((_, end)) = fold.apart(&judge, trailer, source.value()) {
                let apart = source.referred()?;
                let values = self.apart.get_or_insert_default();
                let value = match values.take_come(&apart.reference) {
                    Some(value) => Some(value),
                    None => apart.in_memory(Purpose::Scan)?,
                };
                let Some(value) = value else {
                    values.waits = Some(apart);
                    return Ok(Step::Blocked);
                };
                fold.feed_value(value, end);
                break;
            }
            let (kept, place) = (|| source.value_bytes(), || source.place());
            let answer = fold.feed(&judge, key, trailer, source.value(), kept, place)?;
            if answer != Answer::More {
                break;
            }
            if self.merge.try_next()? == Step::Blocked {
                return Ok(Step::Blocked);
            }
        }
        Ok(Step::Done)
    }

    fn judge(&self) -> Judge {
        Judge { judged_ms: self.judged_ms, keeps_operands: self.kept.is_some(), ..self.keyspace.judge() }
    }

    /// Ends the fold of `anchor`: stands at it if it has a value.
    fn end_fold(&mut self) -> Result<bool> {
        let Some(fold) = self.fold.take() else { return Ok(false) };
        self.expires_ms = fold.expires_ms();
        let value = match &mut self.kept {
            Some(kept) if fold.operands() > 0 => {
                kept.key.clone_from(&self.anchor);
                kept.parts = fold.into_parts();
                Some(Bytes::new())
            }
            kept => {
                // Those of another key, or of this one as it was.
                if let Some(kept) = kept {
                    **kept = Kept::default();
                }
                fold.finish(&self.judge(), &self.anchor)?
            }
        };
        self.has_value = value.is_some();
        self.saved.copied.clear();
        self.saved.shared = value;
        if self.has_value {
            self.place = Place::Entry;
        }
        Ok(self.has_value)
    }

    /// After several keys that a range delete hid: goes past the rest of them, where all is older
    /// than it. Tables and levels that it hides wholly are not read.
    fn pass_hidden(&mut self) -> Option<Result<Step>> {
        self.hidden += 1;
        if self.hidden < STEPS_MAX {
            return None;
        }
        let hides = self.hides.as_mut()?;
        let (key, _) = self.merge.entry()?;
        let number = hides.number(key)?;
        let to = match self.goal {
            Direction::Forward => hides.to()?,
            Direction::Backward => hides.from()?,
        };
        self.hidden = 0;
        self.dead.pass(self.sequence);
        self.merge.try_pass(to, number)
    }

    /// Steps over a version of the key at which the merge stands; after a few, over all that lie
    /// before `trailer`.
    #[inline]
    fn skip(&mut self, trailer: Trailer) -> Result<Step> {
        self.steps += 1;
        if self.steps < STEPS_MAX {
            return self.merge.try_next();
        }
        self.steps = 0;
        self.scratch.clear();
        if let Some((key, _)) = self.merge.entry() {
            self.scratch.extend_from_slice(key);
        }
        self.merge.try_skip_to(&self.scratch, trailer)
    }

    /// The error of the entry at which the merge stands.
    #[cold]
    fn unresolved(&self, unresolved: Unresolved) -> Error {
        unresolved.at(self.merge.source().map_or_else(String::new, super::Source::place))
    }
}

impl Drop for RangeCursor {
    fn drop(&mut self) {
        self.pay();
    }
}

/// Of the runs that a merge reads, those that it would not read once they are merged.
fn extra_runs(merge: &Merge, view: &View, keyspace: u32) -> u64 {
    view.version.levels(keyspace).map_or(0, |levels| levels.read_cost.extra(merge.tables() as u64))
}

mod backward;
mod dead;
#[cfg(test)]
mod tests;
