//! How a log is replicated, and how it is cut.

use tombolo_segment::call::Shape;
use tombolo_storage::LogContext;

/// A segment is at least so long, however little memory there is.
const SEGMENT_BYTES_MIN: u32 = 64 << 10;

/// How the log is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Regions wanted of a segment, and needed to acknowledge.
    pub shape: Shape,
    /// Bytes of a segment, if the memory of a lane is eight times that. Each node lends as much for
    /// each segment that is not flushed.
    pub segment_bytes: u32,
}

impl Replication {
    /// Bytes of a segment of a lane: all its segments are in the memory of its database.
    pub(crate) fn segment_bytes_for(&self, context: &LogContext) -> u32 {
        let eighth = u32::try_from(context.memory.lane_bytes_max() / 8).unwrap_or(u32::MAX);
        self.segment_bytes.min(eighth).max(SEGMENT_BYTES_MIN)
    }
}

impl Default for Replication {
    /// Three regions, two to acknowledge, segments of 8 MiB.
    fn default() -> Replication {
        Replication { shape: Shape { copies: 3, quorum: 2 }, segment_bytes: 8 << 20 }
    }
}
