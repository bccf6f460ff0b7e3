//! Memory of open regions that their writers fill themselves, as a node sees it: what it checks at
//! the seal is what it would have checked at each append.

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

    /// Ends the writer's filling it. From the return on whatever its writer took for held is found
    /// by [`Lent::copy`], and it takes nothing more for held.
    ///
    /// # Errors
    /// Neither is certain: what lies there is no answer any more.
    fn end(&mut self, why: End) -> Result<()>;

    /// Copies bytes out of it. `false`: nothing was ever stored there, and it must not be touched.
    fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool;

    /// Memory that stays readable when this is dropped, and where in it records begin: records
    /// found sound there once its writer's filling had ended need not be copied. A writer that
    /// stores all the same stores what lies there already, or behind it (rule 3); other bytes
    /// their readers find.
    fn stays(&self) -> Option<(Arc<dyn Mapping>, usize)> {
        None
    }

    /// Says there how many bytes of records are sealed and stay, to their readers there.
    fn tell_length(&self, bytes: u32) {
        let _ = bytes;
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

/// Bytes that are copied out of it at once, before what they hold is checked: few at first, as a
/// rule little is new; then more, which stay in the processor's cache.
const COPIED_BYTES_MIN: usize = 16 << 10;
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Finds the whole, sound records behind `held`, which is what lies in it up to there, and says the
/// held length with them; `keep` gets them in pieces. They are checked as they were copied: bytes
/// stored later, or twice, are in no piece.
pub(crate) fn sound_records(memory: &dyn Lent, held: Extent, mut keep: impl FnMut(&[u8])) -> Extent {
    let mut held = held;
    let mut copy = Vec::new();
    let mut wanted = COPIED_BYTES_MIN;
    loop {
        let room = memory.bytes_max().saturating_sub(held.length) as usize;
        copy.resize(wanted.min(room), 0);
        if copy.len() < RECORD_HEADER_BYTES || !memory.copy(held.length, &mut copy) {
            return held;
        }
        let mut walk = Records::new(held.digest, held.length, &copy);
        let mut committed = held.committed;
        while let Some(Ok(record)) = walk.next() {
            committed = committed.max(record.committed);
        }
        let (sound, rest) = copy.split_at((walk.at() - held.length) as usize);
        keep(sound);
        held = Extent { length: walk.at(), digest: walk.digest(), committed };
        // What ends the walk: a record that goes beyond the copied bytes, or none.
        let payload = rest.first_chunk().map(|head| u64::from_le_bytes(*head));
        let whole = match payload
            .map(|bytes| usize::try_from(bytes).ok().filter(|bytes| *bytes <= RECORD_PAYLOAD_BYTES_MAX))
        {
            None => RECORD_HEADER_BYTES,
            Some(Some(bytes)) => RECORD_HEADER_BYTES + bytes,
            Some(None) => return held,
        };
        if copy.len() == room || whole <= rest.len() {
            return held;
        }
        wanted = (2 * copy.len()).min(COPIED_BYTES_MAX).max(whole);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tombolo_format::log_frame::SegmentIdentity;
    use tombolo_format::segment_record::{encode_header, first_digest};

    use super::*;

    /// Memory that nobody stores to any more.
    #[derive(Debug)]
    struct Still(Vec<u8>);

    impl Lent for Still {
        fn bytes_max(&self) -> u32 {
            u32::try_from(self.0.len()).expect("short")
        }

        fn end(&mut self, _why: End) -> Result<()> {
            Ok(())
        }

        fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            true
        }
    }

    fn payload_bytes() -> impl Strategy<Value = usize> {
        let near = |bytes: usize| bytes - 60..bytes + 60;
        prop_oneof![
            4 => 0..100_usize, 4 => 1000..9000_usize, 2 => near(COPIED_BYTES_MIN),
            1 => near(COPIED_BYTES_MAX), 1 => 300_000..600_000_usize
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Wherever records lie in the bytes copied at once: all up to the first damaged one are
        /// found, from wherever the search begins; and exactly they are kept.
        #[test]
        fn all_records_before_the_damage_are_found(
            payloads in prop::collection::vec(payload_bytes(), 0..40),
            room in prop_oneof![Just(0), 0..40_usize, 0..600_000_usize],
            begin in any::<prop::sample::Index>(),
            damage in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let segment = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
            let mut held = Extent { length: 0, digest: first_digest(9, &segment), committed: 0 };
            let (mut bytes, mut ends) = (Vec::new(), vec![held]);
            for (number, payload) in payloads.iter().enumerate() {
                let payload = vec![number.to_le_bytes()[0]; *payload];
                let committed = held.length / 2;
                let (header, digest) = encode_header(held.digest, held.length, committed, &payload);
                bytes.extend_from_slice(&header);
                bytes.extend_from_slice(&payload);
                held = Extent { length: u32::try_from(bytes.len()).expect("short"), digest, committed };
                ends.push(held);
            }
            let damage = damage.filter(|_| !bytes.is_empty()).map(|at| at.index(bytes.len()));
            if let Some(at) = damage {
                bytes[at] ^= 1;
            }
            let sound = |extent: &&Extent| damage.is_none_or(|at| extent.length as usize <= at);
            let begin = begin.index(ends.iter().filter(sound).count());
            let expected = *ends.iter().rfind(sound).expect("the beginning");
            bytes.resize(bytes.len() + room, 0);
            let mut kept = Vec::new();
            let found = sound_records(
                &Still(bytes.clone()), ends[begin], |some| kept.extend_from_slice(some)
            );
            prop_assert_eq!(found, expected);
            prop_assert!(kept == bytes[ends[begin].length as usize..found.length as usize]);
        }
    }
}
