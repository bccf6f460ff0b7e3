//! How far a lane can be followed that nobody may have sealed yet. Writes nothing.

use std::path::Path;

use tombolo_env::Env;
use tombolo_format::log_frame::SegmentIdentity;

use super::control::{PageRead, Word};
use super::fence::{Kept, Scan};
use super::owner_of;
use crate::mutant::{Mutant, is_enabled};
use crate::{Error, ErrorKind, LogOffset, Result};

/// How often a word is read again that does not fit its check.
const ATTEMPTS_MAX: u32 = 16;

/// How far a lane is known to be durable, with what was read to find that out: at least what was
/// acknowledged before the call, and within what every fence yields.
///
/// As long as the writer's host has not started again, its word on the control page says so. The
/// writer may be storing it just now: its check does not fit then, and it is read again. One that
/// never fits says nothing, and what was acknowledged may not be left out: an error.
///
/// The word is not synced with what it tells of. Once the host has lost its memory, the word may be
/// an old one; but then whatever is found lies on the disk, and nobody appends any more: the lane
/// ends where a fence would find its end.
///
/// # Errors
/// `Corrupt` and `Unsupported` as fencing; `Retry` when the word does not fit its check.
pub(super) fn durable_end(
    env: &Env,
    directory: &Path,
    lane: SegmentIdentity,
    from: LogOffset,
) -> Result<(LogOffset, Kept)> {
    let told = if is_enabled(Mutant::LogTailShowsAccepted) { Word::Accepted } else { Word::Durable };
    let mut place = String::new();
    for _ in 0..ATTEMPTS_MAX {
        let page = PageRead::of(env, directory, owner_of(lane))?;
        if page.boot_id() != env.boot_id() && !is_enabled(Mutant::LogTailBelievesWordOfLostHost) {
            return end_on_disk(env, directory, lane, from, &page);
        }
        if let Some(end) = page.get(told) {
            return Ok((end, Kept::default()));
        }
        place = page.place();
    }
    Err(Error::new(ErrorKind::Retry, "the writer is just telling how far its log is durable")
        .object(place)
        .advice(
            "try again; if it stays so, the writer stands still in the middle of it, or died: let \
            another take the database over",
        ))
}

/// The end of a lane whose writer's host has started again.
fn end_on_disk(
    env: &Env,
    directory: &Path,
    lane: SegmentIdentity,
    from: LogOffset,
    page: &PageRead,
) -> Result<(LogOffset, Kept)> {
    match page.get(Word::Sealed) {
        // What a fenced writer stored behind it was never acknowledged, and no fence yields it.
        Some(sealed) => Ok((sealed, Kept::default())),
        None => {
            let words = |word| page.get(word);
            let scan = Scan {
                env,
                directory,
                lane,
                words: &words,
                from,
                same_boot: false,
                makes_durable: false,
                kept: Kept::default(),
            };
            scan.run()
        }
    }
}
