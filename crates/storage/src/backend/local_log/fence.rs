//! A successor ends an older epoch's lane: raise the word, find the end, make everything before it
//! durable.
//!
//! Takeover, step 2. Every step may be done again, by any later epoch, at any time.
//!
//! What a fence read lies below the end that it found, and nobody may change it any more: it is
//! kept for the replay that follows, so that a log is read once.

use std::path::Path;

use bytes::Bytes;
use tombolo_env::memory::Buffer;
use tombolo_env::{Access, Env};
use tombolo_format::log_frame::{Evidence, NoFrame, SegmentIdentity, greatest_durable_through};

use super::chain::{Begun, Piece, frame_at, link, load, no_frame, survey};
use super::control::{Control, Word};
use super::owner_of;
use super::segment::FIRST_BYTE;
use crate::mutant::{Mutant, is_enabled};
use crate::{Epoch, Error, LogOffset, Result};

/// Bytes that are kept at most.
pub(super) const KEPT_BYTES_MAX: usize = 128 << 20;

/// A segment as a fence has read it.
#[derive(Debug)]
struct Loaded {
    identity: SegmentIdentity,
    /// What lies before was not read.
    start: u32,
    bytes: Bytes,
}

impl Loaded {
    fn of(&self, piece: &Piece, bound: u32) -> Option<Bytes> {
        let is_read = self.identity == piece.segment.identity
            && self.start <= piece.start
            && bound as usize <= self.bytes.len();
        is_read.then(|| self.bytes.slice(..bound as usize))
    }
}

/// What a fence has read.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<Loaded>);

impl Kept {
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|loaded| loaded.bytes.len()).sum()
    }

    /// The bytes of `piece`'s segment up to `bound`, if all of them were read.
    pub(super) fn of(&self, piece: &Piece, bound: u32) -> Option<Bytes> {
        self.0.iter().find_map(|loaded| loaded.of(piece, bound))
    }

    /// Keeps nothing of `piece`'s segment any more.
    pub(super) fn let_go(&mut self, piece: &Piece) {
        self.0.retain(|loaded| loaded.identity != piece.segment.identity);
    }

    fn keep(&mut self, piece: &Piece, bytes: Buffer) {
        if self.bytes() + bytes.len() <= KEPT_BYTES_MAX {
            self.0.push(Loaded {
                identity: piece.segment.identity,
                start: piece.start,
                bytes: Bytes::from_owner(bytes),
            });
        }
    }
}

/// Fences a lane and returns its sealed length, with what it read, which is sound and final below
/// that length.
pub(super) fn fence(
    env: &Env,
    directory: &Path,
    lane: SegmentIdentity,
    epoch: Epoch,
    from: LogOffset,
) -> Result<(LogOffset, Kept)> {
    let control = Control::open(env, directory, owner_of(lane))?;
    let same_boot = control.boot_id() == env.boot_id();
    let words = |word| control.get(word);
    let scan = || {
        Scan {
            env,
            directory,
            lane,
            words: &words,
            from,
            same_boot,
            makes_durable: true,
            kept: Kept::default(),
        }
        .run()
    };
    env.preemption_point();
    let (sealed, kept) = if is_enabled(Mutant::LogFenceReadsBeforeWord) {
        let scanned = scan()?;
        env.preemption_point();
        control.raise(epoch);
        scanned
    } else {
        control.raise(epoch);
        env.preemption_point();
        if let Some(sealed) = control.get(Word::Sealed).filter(|_| !is_enabled(Mutant::LogFenceForgetsSeal)) {
            return Ok((sealed.max(from), Kept::default()));
        }
        scan()?
    };
    control.raise_word(Word::Sealed, sealed);
    env.preemption_point();
    control.sync()?;
    Ok((sealed, kept))
}

/// Finds a lane's end.
pub(super) struct Scan<'a> {
    pub(super) env: &'a Env,
    pub(super) directory: &'a Path,
    pub(super) lane: SegmentIdentity,
    /// What the control page says when it is asked.
    pub(super) words: &'a dyn Fn(Word) -> Option<LogOffset>,
    pub(super) from: LogOffset,
    /// Whether page caches hold everything that was accepted.
    pub(super) same_boot: bool,
    /// It makes durable what it finds: a fence must, and a look need not.
    pub(super) makes_durable: bool,
    /// What was scanned so far.
    pub(super) kept: Kept,
}

/// Where a scan stopped in one segment.
struct Stop {
    byte: u32,
    reason: NoFrame,
    /// A whole frame behind, in the very bytes that were scanned: a live writer may complete the
    /// one at `byte` at any moment.
    later: Option<Evidence>,
}

impl Scan<'_> {
    /// The lane's end, and what was read of it.
    pub(super) fn run(mut self) -> Result<(LogOffset, Kept)> {
        let begun = survey(self.env, self.directory, self.lane)?;
        self.env.preemption_point();
        // The newest segment that hangs together with the replay point. A newer one that does not
        // was never synced, or something is damaged.
        let pieces = begun
            .iter()
            .rev()
            .find_map(|last| link(&begun, last.identity.segment, self.from))
            .unwrap_or_default();
        let mut end = None;
        for (index, piece) in pieces.iter().enumerate() {
            if let Some(stop) = self.piece(piece)? {
                end = Some((stop, index));
                break;
            }
        }
        let end = match end {
            Some((stop, index)) => self.judge(&begun, &pieces[index], &stop)?,
            None => {
                self.judge_missing(&begun)?;
                self.from
            }
        };
        Ok((end, self.kept))
    }

    /// Scans one segment and makes what it found durable. Answers where it stopped, and why, unless
    /// it holds everything up to its bound.
    fn piece(&mut self, piece: &Piece) -> Result<Option<Stop>> {
        let bound = piece.bound.unwrap_or(piece.segment.capacity);
        let access = if self.makes_durable { Access::ReadWrite } else { Access::Read };
        let (file, bytes) = load(self.env, &piece.segment, (piece.start, bound), access)?;
        let mut byte = piece.start;
        let reason = loop {
            match frame_at(&bytes, byte, &piece.segment.identity) {
                Ok(frame) => byte = frame.end,
                Err(NoFrame::Flags(flags)) => {
                    return Err(no_frame(NoFrame::Flags(flags), byte, &piece.segment.path));
                }
                Err(reason) => break reason,
            }
        };
        self.env.preemption_point();
        if self.makes_durable && !is_enabled(Mutant::LogFenceWithoutSync) {
            let failed =
                |error| Error::io(error, "making a fenced log durable", piece.segment.path.display());
            let from = self.not_durable_from(piece);
            if self.same_boot && from < byte && !is_enabled(Mutant::LogFenceTrustsCleanPages) {
                // After a failed writeback that only the writer learned of, the pages are clean,
                // and a sync alone would lie.
                file.write_all_at(&bytes[from as usize..byte as usize], u64::from(from)).map_err(failed)?;
                self.env.preemption_point();
            }
            file.sync_data().map_err(failed)?;
        }
        let later = (piece.bound != Some(byte))
            .then(|| greatest_durable_through(&bytes, byte, &piece.segment.identity));
        self.kept.keep(piece, bytes);
        Ok(later.map(|later| Stop { byte, reason, later }))
    }

    fn not_durable_from(&self, piece: &Piece) -> u32 {
        let durable = (self.words)(Word::Durable).unwrap_or(LogOffset::ZERO);
        match durable.segment().cmp(&piece.segment.identity.segment) {
            std::cmp::Ordering::Less => piece.start,
            std::cmp::Ordering::Equal => piece.start.max(durable.byte()),
            std::cmp::Ordering::Greater => u32::MAX,
        }
    }

    /// Tells a tail from damage (rule 9). Answers the lane's end.
    fn judge(&self, begun: &[Begun], piece: &Piece, stop: &Stop) -> Result<LogOffset> {
        let end = LogOffset::new(piece.segment.identity.segment, stop.byte);
        let horizon = end.max(self.from);
        if is_enabled(Mutant::LogBadFrameIsAlwaysTail) {
            return Ok(horizon);
        }
        let damaged = |why: String| {
            Err(no_frame(stop.reason, stop.byte, &piece.segment.path)
                .context(format!("the log holds less than is known of it: {why}")))
        };
        // What was scanned up to the segment's end has told all that its frames know.
        let scanned = piece.bound.is_none().then_some((end.segment(), stop.later));
        if let Some(durable) = self.known_durable(begun, end, scanned)?.filter(|durable| *durable > horizon) {
            return damaged(format!("it was durable up to {durable}"));
        }
        if !self.same_boot {
            return Ok(horizon);
        }
        if let Some(accepted) = (self.words)(Word::Accepted).filter(|accepted| *accepted > horizon) {
            return damaged(format!("it was accepted up to {accepted} since the host started"));
        }
        if self.from <= end {
            if piece.bound.is_some() {
                return damaged("its next segment was begun since the host started".into());
            }
            if let Some(later) = stop.later {
                return damaged(format!(
                    "a whole frame lies behind at byte {}, stored since the host started",
                    later.byte
                ));
            }
        }
        Ok(horizon)
    }

    /// No segment hangs together with the replay point: nothing after it may be known to have been.
    fn judge_missing(&self, begun: &[Begun]) -> Result<()> {
        let known = if is_enabled(Mutant::LogBadFrameIsAlwaysTail) {
            None
        } else {
            self.known_durable(begun, self.from, None)?
        };
        let accepted = (self.words)(Word::Accepted).filter(|_| self.same_boot);
        let lost = known.max(accepted).filter(|known| *known > self.from);
        // A log is named only after its first segment is durable.
        let first_missing = self.from == LogOffset::ZERO;
        if lost.is_some() || first_missing {
            let up_to = lost.map_or_else(|| "segment 1".to_owned(), |lost| format!("segments up to {lost}"));
            let found: Vec<String> =
                begun.iter().map(|segment| segment.identity.segment.to_string()).collect();
            return Err(Error::corrupt(
                self.directory.display(),
                u64::from(self.from.byte()),
                format!("{up_to}, linked from {}", self.from),
                format!("sound segments [{}]", found.join(", ")),
            ));
        }
        Ok(())
    }

    /// The greatest durable end that anything tells: the control page, headers, and frames at or
    /// behind `end`. `scanned` is what those of one segment tell, if that is known.
    fn known_durable(
        &self,
        begun: &[Begun],
        end: LogOffset,
        scanned: Option<(u32, Option<Evidence>)>,
    ) -> Result<Option<LogOffset>> {
        let mut known = (self.words)(Word::Durable);
        for segment in begun {
            known = known.max(segment.durable_through);
            if let Some((_, told)) = scanned.filter(|(scanned, _)| *scanned == segment.identity.segment) {
                known = known.max(told.map(|evidence| LogOffset(evidence.durable_through)));
            } else if segment.identity.segment >= end.segment() {
                let start = if segment.identity.segment == end.segment() {
                    end.byte().max(FIRST_BYTE)
                } else {
                    FIRST_BYTE
                };
                let (_, bytes) = load(self.env, segment, (start, segment.capacity), Access::Read)?;
                let told = greatest_durable_through(&bytes, start, &segment.identity);
                known = known.max(told.map(|evidence| LogOffset(evidence.durable_through)));
            }
        }
        Ok(known)
    }
}
