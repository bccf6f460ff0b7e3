//! One region, as its writer sees it.

use std::time::Duration;

use tombolo_env::Instant;

use crate::call::Member;
use crate::message::{NodeIncarnation, RegionId};
use crate::pace::Pace;

/// Requests on their way to one region.
const WINDOW: usize = 8;

/// After so long without any answer, sent records are taken for lost, and sent again.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// After a call that was lost nothing is sent for so long.
const PAUSE: Duration = Duration::from_millis(20);

/// How far a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was asked for.
    Creating,
    /// It answers.
    Live,
    /// It was lost, or never came to be, and never counts again.
    Gone,
}

/// A call that was made.
#[derive(Debug)]
struct Outstanding {
    number: u32,
    sent_at: Instant,
    /// What the region holds at least when it says that it holds this; 0 where nothing was
    /// appended.
    end: u32,
}

/// A region.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) member: Member,
    pub(crate) phase: Phase,
    /// Bytes that it said it holds, with the digest that they must have. Invariant: rises only.
    pub(crate) held: u32,
    /// Its node wants the memory back.
    pub(crate) is_wanted_back: bool,
    /// It answers late, and has for long.
    pub(crate) is_slow: bool,
    pub(crate) pace: Pace,
    /// It is sealed and holds all, and was not made here: it is not freed here, for the
    /// published configuration names it.
    pub(crate) is_holder: bool,
    /// When a holder has said so to this writer last.
    pub(crate) confirmed_at: Option<Instant>,
    /// The batch to send next.
    pub(crate) next: usize,
    /// Calls without an answer.
    outstanding: Vec<Outstanding>,
    numbers: u32,
    /// Calls up to this one were about another name of the region, which never came to be: answers
    /// to them that come late are not about this one.
    named_after: u32,
    resume_at: Option<Instant>,
    /// Since when it has answered nothing of what it was sent.
    silent_since: Option<Instant>,
    sent_at: Instant,
}

impl Replica {
    /// One that is asked for, on a node that was found to be so far.
    pub(crate) fn new(member: Member, distance: Option<Duration>, now: Instant) -> Replica {
        Replica {
            member,
            phase: Phase::Creating,
            held: 0,
            is_wanted_back: false,
            is_slow: false,
            pace: Pace::of_node(distance),
            is_holder: false,
            confirmed_at: None,
            next: 0,
            outstanding: Vec::new(),
            numbers: 0,
            named_after: 0,
            resume_at: None,
            silent_since: None,
            sent_at: now,
        }
    }

    /// One that is sealed and holds all, in so many batches.
    pub(crate) fn holding(member: Member, held: u32, batches: usize) -> Replica {
        let never = Instant::from_nanos(0);
        Replica {
            phase: Phase::Live,
            held,
            is_holder: true,
            next: batches,
            ..Replica::new(member, None, never)
        }
    }

    /// Bytes that count: none of those that are gone.
    pub(crate) fn counted(&self) -> u32 {
        if self.phase == Phase::Live { self.held } else { 0 }
    }

    /// Whether it is to be asked once more whether it holds all.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.is_holder && self.confirmed_at.is_none()
    }

    /// Whether it answers, as far as is known.
    pub(crate) fn is_healthy(&self, now: Instant) -> bool {
        self.phase == Phase::Live && !self.is_silent(now)
    }

    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| now.since(since) >= SILENCE)
    }

    /// Whether something may be sent now.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.phase != Phase::Gone
            && self.outstanding.len() < WINDOW
            && self.resume_at.is_none_or(|at| at <= now)
    }

    /// Whether its last call was lost.
    pub(crate) fn has_failed(&self) -> bool {
        self.resume_at.is_some()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Whether nothing was sent for so long.
    pub(crate) fn is_idle(&self, now: Instant, for_long: Duration) -> bool {
        self.outstanding.is_empty() && now.since(self.sent_at) >= for_long && !self.is_holder
    }

    /// The number of a call that is sent now, with records up to `end`, or with none and 0.
    pub(crate) fn sent(&mut self, end: u32, now: Instant) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.outstanding.push(Outstanding { number: self.numbers, sent_at: now, end });
        self.silent_since.get_or_insert(now);
        self.sent_at = now;
        self.numbers
    }

    /// It is asked for by this name from here on.
    pub(crate) fn rename(&mut self, incarnation: NodeIncarnation, region: RegionId) {
        (self.member.incarnation, self.member.region) = (incarnation, region);
        self.named_after = self.numbers;
    }

    /// Whether a call was about the region by its name of now.
    pub(crate) fn is_about(&self, number: u32) -> bool {
        number > self.named_after
    }

    /// An answer came. Where the records end that it is about, if it is still waited for; 0 when it
    /// is about none.
    pub(crate) fn answered(&mut self, number: u32, now: Instant) -> u32 {
        let at = self.outstanding.iter().position(|outstanding| outstanding.number == number);
        let call = at.map(|at| self.outstanding.remove(at));
        if let Some(call) = &call {
            self.pace.answered(now.since(call.sent_at));
        }
        self.silent_since = (!self.outstanding.is_empty()).then_some(now);
        self.resume_at = None;
        call.map_or(0, |call| call.end)
    }

    /// A call was lost. Whether it was still waited for.
    pub(crate) fn lost(&mut self, number: u32, now: Instant) -> bool {
        let before = self.outstanding.len();
        self.outstanding.retain(|outstanding| outstanding.number != number);
        self.resume_at = Some(now + PAUSE);
        self.silent_since.get_or_insert(now);
        self.outstanding.len() < before
    }

    /// Waits no more for records sent before the silence. Whether there was any.
    pub(crate) fn give_up_waiting(&mut self, now: Instant) -> bool {
        let is_late =
            self.is_silent(now) && now.since(self.sent_at) >= SILENCE && !self.outstanding.is_empty();
        if is_late {
            self.outstanding.clear();
        }
        is_late
    }
}
