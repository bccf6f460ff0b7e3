//! What somebody may show who reads regions that are not sealed (rule 6).

use tombolo_format::segment_record::{Digest, Records};
use tombolo_storage::mutant::{Mutant, is_enabled};

/// Bytes of a region, walked up to where they were committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// All before this byte of the segment was acknowledged, as its records say; never less than
    /// where the walk began.
    pub end: u32,
    /// Where the sound records end.
    pub sound_end: u32,
}

/// Walks `records`, which lie at byte `at` of their segment behind `predecessor`.
pub fn committed(predecessor: Digest, at: u32, records: &[u8]) -> Committed {
    let mut walk = Records::new(predecessor, at, records);
    let end = walk.by_ref().map_while(Result::ok).map(|record| record.committed).max().unwrap_or(at).max(at);
    let sound_end = walk.at();
    let end =
        if is_enabled(Mutant::SegmentFollowerShowsUncommitted) { sound_end } else { end.min(sound_end) };
    Committed { end, sound_end }
}
