//! The state of a lane, under its lock: how far it is acknowledged, what came back, what was
//! published, and whose wait is over.

use std::sync::atomic::Ordering;

use tombolo_env::{Completer, Instant};
use tombolo_segment::call::Member;
use tombolo_segment::writer::{Ended, Published, Writer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use super::{Done, Lane, Mode, Place, REFUSED_TIME_MAX, Segment, State, TIME_MAX, unknown};
use crate::flight::Landed;

impl State {
    /// The segment that entries are appended to.
    pub(super) fn active(&mut self) -> Option<(u32, &mut Writer)> {
        // Those without an end are the last ones.
        let ended = self.segments.iter().rposition(|segment| segment.end.is_some());
        let segment = self.segments.get_mut(ended.map_or(0, |last| last + 1))?;
        let number = segment.number;
        segment.writer().map(|writer| (number, writer))
    }

    /// Where a segment is among those that are kept.
    fn position(&self, number: u32) -> usize {
        number.saturating_sub(self.segments.front().map_or(0, |first| first.number)) as usize
    }

    /// The first segment that an append may change anything about: before it all is acknowledged.
    pub(super) fn newest(&self) -> usize {
        self.position(self.durable.segment()).min(self.segments.len())
    }

    pub(super) fn hear(&mut self, landed: impl IntoIterator<Item = Landed<u32>>, now: Instant) {
        for (number, id, outcome) in landed {
            let at = self.position(number);
            // What was trimmed meanwhile has a number below the first one's.
            let found = self.segments.get_mut(at).filter(|segment| segment.number == number);
            if let Some(writer) = found.and_then(Segment::writer) {
                writer.answered(id, outcome, now);
            }
        }
    }

    /// Whether more than half of the memory is taken, so that the oldest segment should become an
    /// object.
    pub(crate) fn is_short(&self) -> bool {
        self.held > self.memory_bytes_max() / 2
    }

    /// So many bytes more are in the memory of this process.
    pub(super) fn hold(&mut self, bytes: u64) {
        self.held += bytes;
        self.memory.set(usize::try_from(self.held).unwrap_or(usize::MAX));
    }

    /// Whether entries are taken.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Open)
    }

    fn memory_bytes_max(&self) -> u64 {
        self.memory.bytes_max() as u64
    }

    /// Counts the bytes in the memory of this process anew.
    pub(super) fn count(&mut self) {
        let in_regions = self.segments.iter().filter(|segment| matches!(segment.place, Place::Regions(_)));
        self.held = in_regions.map(|segment| u64::from(segment.bytes())).sum();
        self.hold(0);
    }

    /// Bytes that are not acknowledged.
    pub(super) fn waiting_bytes(&self) -> u64 {
        if self.durable >= self.end {
            return 0;
        }
        self.segments
            .iter()
            .map(|segment| u64::from(segment.bytes().saturating_sub(segment.acknowledged())))
            .sum()
    }

    /// Looks how far all is acknowledged, at the segments from `first` on, before which nothing has
    /// changed. Whose wait is over is to be woken.
    pub(super) fn settle(&mut self, lane: &Lane, first: usize) -> Done {
        for segment in self.segments.range_mut(first..) {
            if let Some(ended) = segment.writer().and_then(|writer| writer.ended())
                && !matches!(self.mode, Mode::Ended(_))
            {
                let by = if let Ended::Superseded(by) = ended { Some(by.0) } else { None };
                self.mode = Mode::Ended(lane.fenced(by));
            }
        }
        if let Mode::Ended(error) = &self.mode {
            // An entry that is on its way may take effect, whatever ended the log (rule 3).
            let is_unknown = !self.waiters.is_empty()
                && error.kind() != ErrorKind::Fenced
                && !is_enabled(Mutant::NearInFlightTakenAsFailed);
            let error = if is_unknown { ended(error) } else { error.clone() };
            let waiters = std::mem::take(&mut self.waiters).into_iter().map(|(_, waiter)| waiter);
            let waiters = waiters.chain(self.opened.take()).collect();
            self.memory.set(0);
            return (waiters, Err(error));
        }
        let mut durable = self.durable;
        for segment in self.segments.range(first..) {
            if segment.acknowledged() > 0 {
                durable = durable.max(LogOffset::new(segment.number, segment.acknowledged()));
            }
            if !segment.is_complete() {
                break;
            }
        }
        let is_named =
            |segment: &Segment| matches!(&segment.place, Place::Regions(writer) if writer.is_configured());
        let is_opened = self.opened.is_some() && self.segments.front().is_some_and(is_named);
        let opened = if is_opened { self.opened.take() } else { None };
        if durable > self.durable {
            (self.durable, self.durable_changed_at) = (durable, lane.env().now());
            lane.durable.store(durable.0, Ordering::Release);
            (self.below, self.below_since) = (None, None);
        }
        let mut done: Vec<(LogOffset, Completer<Result<()>>)> = Vec::new();
        if self.waiters.iter().any(|(end, _)| *end <= durable) {
            (done, self.waiters) =
                std::mem::take(&mut self.waiters).into_iter().partition(|(end, _)| *end <= durable);
        }
        (done.into_iter().map(|(_, waiter)| waiter).chain(opened).collect(), Ok(()))
    }

    /// Tells those who wait when too few regions answer, or the chain takes none. A process that
    /// takes a log over frees its regions, and a process that stood still finds them silent before
    /// anything could answer: so the chain is asked first, by naming the same segments again.
    pub(super) fn look_whether_below(&mut self, lane: &Lane, now: Instant) -> Done {
        let is_stuck = self.durable < self.end && now.since(self.durable_changed_at) >= TIME_MAX;
        let is_opening = self.opened.is_some() && now.since(self.durable_changed_at) >= 2 * TIME_MAX;
        if let Some((since, error)) = &self.unpublished
            && now.since(*since) >= REFUSED_TIME_MAX
            && (is_stuck || is_opening)
        {
            let below = if is_opening {
                error.clone().context("no region of the log is named")
            } else {
                refusal(error).object(lane.name())
            };
            return self.tell(below, is_opening);
        }
        let first = self.segments.iter().find(|segment| !segment.is_complete());
        let Some(Segment { place: Place::Regions(writer), .. }) = first else { return (Vec::new(), Ok(())) };
        let standing = writer.standing(now);
        if self.below.is_some() && standing.healthy >= standing.needed && self.durable >= self.end {
            self.below = None;
        }
        if standing.healthy >= standing.needed {
            self.below_since = None;
            return (Vec::new(), Ok(()));
        }
        if !is_stuck && !is_opening {
            return (Vec::new(), Ok(()));
        }
        if !is_opening {
            let since = *self.below_since.get_or_insert_with(|| {
                self.is_stale = true;
                now
            });
            if (self.is_stale || self.is_publishing) && now.since(since) < TIME_MAX {
                return (Vec::new(), Ok(()));
            }
        }
        let troubles = lane.neighbours.troubles().told(&writer.silent(now));
        let message = format!(
            "{} of the {} nodes that the log needs answer; nothing took effect{troubles}",
            standing.healthy, standing.needed
        );
        let below = Error::new(ErrorKind::Retry, message)
            .object(lane.name())
            .advice("bring nodes back, or start others: the log goes on by itself");
        self.tell(below, is_opening)
    }

    /// Tells those who wait. Appends are refused from here on, unless it is opening that failed.
    fn tell(&mut self, below: Error, is_opening: bool) -> Done {
        self.below = (!is_opening).then(|| below.clone());
        let error =
            if is_opening || is_enabled(Mutant::NearInFlightTakenAsFailed) { below } else { unknown(&below) };
        let waiters = std::mem::take(&mut self.waiters).into_iter().map(|(_, waiter)| waiter);
        (waiters.chain(self.opened.take()).collect(), Err(error))
    }

    /// Whether no configuration is published any more, as the log is closed and the chain refuses:
    /// nothing is freed by that, those who waited know, and the next epoch finds the open segments.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.mode, Mode::Closed)
            && self.unpublished.is_some()
            && (self.durable >= self.end || self.below.is_some())
    }

    /// What came of a publication that began then, of these proposals and these copies.
    pub(super) fn published(
        &mut self,
        (proposed, copied): (&[u32], &[u32]),
        outcome: Result<()>,
        begun: Instant,
        lane: &Lane,
    ) {
        self.is_publishing = false;
        let now = lane.env().now();
        let said = match &outcome {
            Ok(()) => Published::Known,
            Err(error) if error.kind() == ErrorKind::Fenced => Published::Foreign,
            Err(_) => Published::Unknown,
        };
        match outcome {
            Ok(()) => {
                self.unpublished = None;
                if self.logged.is_over() {
                    tracing::info!(log = lane.name(), "configurations of the log are taken again");
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Fenced | ErrorKind::Closed | ErrorKind::Bug | ErrorKind::Invalid
                ) =>
            {
                if !matches!(self.mode, Mode::Ended(_)) {
                    self.mode = Mode::Ended(error);
                }
            }
            Err(error) => {
                if self.logged.is_news(&error) {
                    tracing::warn!(%error, log = lane.name(), "a configuration of the log is not taken; \
                        trying again");
                }
                let since = self.unpublished.as_ref().map_or(begun, |(since, _)| *since);
                self.unpublished = Some((since, error));
            }
        }
        self.is_stale |= said == Published::Unknown;
        for segment in &mut self.segments {
            let number = segment.number;
            if let Some(writer) = segment.writer().filter(|_| proposed.contains(&number)) {
                writer.published(said, now);
            }
            if copied.contains(&number) && said == Published::Known {
                segment.is_named_as_object(lane);
            }
        }
        self.count();
    }

    pub(super) fn is_busy(&mut self) -> bool {
        let is_open = self.is_open();
        let is_working = |writer: &Writer| writer.is_busy() || writer.has_untold() && is_open;
        let is_wanted_back = self.segments.iter().any(|segment| segment.wanted_back_since.is_some());
        let is_moving = is_wanted_back
            || self.is_publishing
            || self.is_stale
            || self.is_destaging
            || self.durable < self.end
            || self.opened.is_some();
        !matches!(self.mode, Mode::Ended(_))
            && (is_moving
                || self
                    .segments
                    .iter_mut()
                    .any(|segment| segment.writer().is_some_and(|writer| is_working(writer))))
    }

    /// Whether records are on their way to regions, of entries or of what was told.
    pub(super) fn has_unheard(&self) -> bool {
        !matches!(self.mode, Mode::Ended(_))
            && self.segments.iter().any(|segment| segment.acknowledged() < segment.bytes())
    }

    /// The segment that a takeover must seal, and its regions, by configuration.
    pub(super) fn what_a_takeover_seals(&mut self, lane: &Lane) -> Result<(u32, Vec<Vec<Member>>)> {
        if let Mode::Ended(error) = &self.mode {
            return Err(error.clone());
        }
        let mut last = None;
        for segment in &mut self.segments {
            let (number, is_complete) = (segment.number, segment.is_complete());
            // Once a configuration may name its object, no takeover need seal its regions.
            let must_be_sealed = segment.copy.is_none();
            if let Some(writer) = segment.writer().filter(|writer| must_be_sealed && writer.is_configured()) {
                last = Some((number, writer.may_be_newest()));
            }
            if !is_complete {
                break;
            }
        }
        last.ok_or_else(|| {
            Error::new(ErrorKind::Retry, "no region of the log is named yet").object(lane.name())
        })
    }
}

impl Segment {
    /// A configuration that names its object is published: its regions and its memory are given
    /// back (rule 6).
    pub(crate) fn is_named_as_object(&mut self, lane: &Lane) {
        let (Place::Regions(writer), Some((length, digest))) = (&mut self.place, self.copy) else { return };
        writer.free_all();
        let calls = writer.take_calls();
        let mut flight = lane.flight.lock();
        calls.into_iter().for_each(|call| flight.send(&lane.neighbours, self.number, call));
        drop(flight);
        self.place = Place::Object { length, digest };
        self.wanted_back_since = None;
    }
}

/// The error of an entry that is not taken while the chain refuses.
fn refusal(error: &Error) -> Error {
    let kind = match error.kind() {
        kind @ (ErrorKind::PermissionDenied | ErrorKind::OutOfSpace | ErrorKind::Unsupported) => kind,
        _ => ErrorKind::Retry,
    };
    Error::new(
        kind,
        format!(
            "the manifest has taken no region of the log for long: {:?}: {}",
            error.kind(),
            error.message()
        ),
    )
    .source(error.clone())
    .advice("mend what the store complains of: the log goes on by itself")
}

/// What ended the log, for those whose entries are on their way.
pub(super) fn ended(cause: &Error) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, "the write may be in place, and the log has ended")
        .source(cause.clone())
        .advice("open the database again to find out")
}
