//! Where a region's records lie: in memory of its own; once it is sealed, if its writer stored
//! records itself, all where it stored them.
//!
//! Copies of these took longer to find memory for than all else at a seal: three nodes of one
//! virtual machine needed 0.4 s of processor time for copies of 53 MB each.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tombolo_env::Mapping;

use crate::message::READ_BYTES_MAX;

/// See the module's documentation.
pub(super) enum Held {
    Own(Vec<u8>),
    Stored {
        /// To which nothing stores any more, but perhaps a deposed writer.
        mapping: Arc<dyn Mapping>,
        /// Where byte 0 of the region lies.
        begin: usize,
        /// Bytes of records.
        length: usize,
    },
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Held")
            .field("length", &self.len())
            .field("is_stored", &self.is_stored())
            .finish()
    }
}

impl Held {
    /// Whether they lie where their writer stored them.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self, Held::Stored { .. })
    }

    /// Bytes of records.
    pub(super) fn len(&self) -> usize {
        match self {
            Held::Own(own) => own.len(),
            Held::Stored { length, .. } => *length,
        }
    }

    /// All of them, of a region that is open; or of any whose writer stored nothing itself.
    ///
    /// # Panics
    /// When they are in a writer's memory: those are read in parts.
    pub(super) fn own(&self) -> &[u8] {
        match self {
            Held::Own(own) => own,
            Held::Stored { .. } => unreachable!("a sealed region's bytes are read in parts"),
        }
    }

    /// Adds bytes, to an open region's.
    ///
    /// # Panics
    /// As [`Held::own`].
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            Held::Own(own) => own.extend_from_slice(bytes),
            Held::Stored { .. } => unreachable!("nothing is added to what is sealed"),
        }
    }

    /// Those behind its own, up to `length`, lie in `mapping`, where byte 0 lies at `begin`. They
    /// stay; its own go there as well, as a rule the same bytes again, so that a region takes
    /// memory once. Where there are none behind its own nothing of the mapping is touched, which
    /// its writer may never have taken.
    pub(super) fn stay_in(&mut self, mapping: Arc<dyn Mapping>, begin: usize, length: usize) {
        let own = self.own();
        if length > own.len() {
            mapping.write(begin, own);
            *self = Held::Stored { mapping, begin, length };
        }
    }

    /// A copy of the range asked for by [`Body::Read`](crate::message::Body::Read): shorter where
    /// it ends before.
    pub(super) fn read(&self, from: u32, bytes_max: u32) -> Bytes {
        let from = (from as usize).min(self.len());
        let to = from.saturating_add(bytes_max.min(READ_BYTES_MAX) as usize).min(self.len());
        self.copy(from, to)
    }

    /// A copy of a part, which lies within the held bytes.
    pub(super) fn copy(&self, from: usize, to: usize) -> Bytes {
        match self {
            Held::Own(own) => Bytes::copy_from_slice(&own[from..to]),
            Held::Stored { mapping, begin, length } => {
                assert!(from <= to && to <= *length, "bytes {from} to {to} of {length}");
                let mut bytes = BytesMut::zeroed(to - from);
                mapping.read(begin + from, &mut bytes);
                bytes.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tombolo_env::simulated::World;

    use super::*;

    #[test]
    fn what_its_writer_stored_follows_what_it_has_itself() {
        let world = World::new(1);
        let env = world.process("node").env();
        let file = env.files().create_new(Path::new("/region")).expect("room");
        file.set_length(100).expect("room");
        let mapping = file.map(100).expect("a mapping");
        // What it got over the network was never stored.
        mapping.write(10, b"\0\0\0\0own.stored, and more");
        let mut held = Held::Own(b"its own.".to_vec());
        held.stay_in(Arc::clone(&mapping), 10, 8);
        assert_eq!(held.own(), b"its own.", "nothing is there");
        held.stay_in(mapping, 10, 14);
        assert!(matches!(held, Held::Stored { length: 14, .. }));
        let all = b"its own.stored";
        for from in 0..=14 {
            for to in from..=14 {
                assert_eq!(held.copy(from, to), all[from..to], "{from} to {to}");
            }
        }
    }
}
