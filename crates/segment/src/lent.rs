//! Memory of open regions that their writers fill themselves, as a node sees it: what it checks at the seal is what it would have checked at each append.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tombolo_env::Mapping;
use tombolo_format::segment_record::{RECORD_HEADER_BYTES, RECORD_PAYLOAD_BYTES_MAX, Records};
use tombolo_storage::{Epoch, Result};

use crate::message::Extent;

/// Why a writer fills it no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was sealed in the name of an epoch.
    Sealed(Epoch),
    /// It was freed, or is lent no more.
    Freed,
}

/// Memory of an open region that its writer fills.
pub(crate) trait Lent: Send + fmt::Debug {
    /// Most bytes of records.
    fn bytes_max(&self) -> u32;

    /// Ends the writer's filling it. From the return on whatever its writer took for held is found by [`Lent::copy`], and it takes nothing more for held.
    ///
    /// # Errors
    /// Neither is certain: what lies there is no answer any more.
    fn end(&mut self, why: End) -> Result<()>;

    /// Copies bytes out of it. `false`: nothing was ever stored there, and it must not be touched.
    fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool;

    /// Memory that stays readable when this is dropped, and where in it records begin: what was found sound there once its writer's filling had ended need
    /// not be copied. A writer that stores all the same stores what lies there already, or behind it (rule 3); other bytes whoever reads them finds.
    fn stays(&self) -> Option<(Arc<dyn Mapping>, usize)> {
        None
    }

    /// A file of it that goes with it.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// For tests: whether it is read before its writer was stopped.
    fn is_read_early(&self) -> bool {
        false
    }
}

/// Bytes that are copied out of it at once, before what they hold is checked: they stay in the processor's cache.
const COPIED_BYTES: usize = 256 << 10;

/// Finds the whole, sound records behind `held`, which is what lies in it up to there, and says what is held with them; `keep` gets them in pieces. They are
/// checked as they were copied: what is stored later, or twice, is in no piece.
pub(crate) fn sound_records(memory: &dyn Lent, held: Extent, mut keep: impl FnMut(&[u8])) -> Extent {
    let mut held = held;
    let mut copy = vec![0; COPIED_BYTES.min(memory.bytes_max().saturating_sub(held.length) as usize)];
    loop {
        let room = memory.bytes_max().saturating_sub(held.length) as usize;
        let copied = copy.len().min(room);
        if copied < RECORD_HEADER_BYTES || !memory.copy(held.length, &mut copy[..copied]) {
            return held;
        }
        let mut walk = Records::new(held.digest, held.length, &copy[..copied]);
        let mut committed = held.committed;
        while let Some(Ok(record)) = walk.next() {
            committed = committed.max(record.committed);
        }
        let sound = (walk.at() - held.length) as usize;
        keep(&copy[..sound]);
        held = Extent { length: walk.at(), digest: walk.digest(), committed };
        // What ends the walk: a record that goes beyond what was copied, or none.
        let head = copy[sound..copied].first_chunk().map(|head| u64::from_le_bytes(*head));
        let payload = head.and_then(|payload| usize::try_from(payload).ok()).filter(|bytes| *bytes <= RECORD_PAYLOAD_BYTES_MAX);
        let is_cut = match payload {
            _ if copied == room => false,
            Some(bytes) => sound + RECORD_HEADER_BYTES + bytes > copied,
            None => copied - sound < RECORD_HEADER_BYTES,
        };
        if !is_cut {
            return held;
        }
        let whole = RECORD_HEADER_BYTES + payload.unwrap_or(0);
        if whole > copy.len() {
            copy.resize(whole, 0);
        }
    }
}
