//! Memory of open regions that their writers fill themselves, as a node sees it: what it checks at the seal is what it would have checked at each append.

use std::fmt;
use std::path::Path;

use tombolo_format::segment_record::{self, Digest, RECORD_HEADER_BYTES, RECORD_PAYLOAD_BYTES_MAX};
use tombolo_storage::{Epoch, Result};

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

    /// A file of it that goes with it.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// For tests: whether it is read before its writer was stopped.
    fn is_read_early(&self) -> bool {
        false
    }
}

/// A copy of the whole, sound records from `offset` on, behind `predecessor`. It is checked as it was copied: what is stored later, or twice, reaches nobody.
pub(crate) fn sound_records(memory: &dyn Lent, mut predecessor: Digest, offset: u32) -> Vec<u8> {
    let mut sound = Vec::new();
    let mut record = Vec::new();
    let mut at = offset;
    loop {
        let room = memory.bytes_max().saturating_sub(at) as usize;
        let mut head = [0; RECORD_HEADER_BYTES];
        if room < head.len() || !memory.copy(at, &mut head) {
            return sound;
        }
        let payload = head.first_chunk().map_or(u64::MAX, |head| u64::from_le_bytes(*head));
        let whole = usize::try_from(payload).ok().filter(|bytes| *bytes <= RECORD_PAYLOAD_BYTES_MAX.min(room - head.len()));
        let Some(bytes) = whole.map(|bytes| head.len() + bytes) else { return sound };
        record.resize(bytes, 0);
        memory.copy(at, &mut record);
        match segment_record::decode(predecessor, at, &record) {
            // Its length was read before it: it may have been stored in between.
            Ok(decoded) if decoded.bytes() == bytes => predecessor = decoded.digest,
            _ => return sound,
        }
        at += u32::try_from(bytes).unwrap_or(u32::MAX);
        sound.extend_from_slice(&record);
    }
}
