//! Where a region's records lie: in memory of its own; once it is sealed those that its writer stored itself where it stored them.
//!
//! Copies of these took longer to find memory for than all else at a seal: three nodes of one virtual machine needed 0.4 s of processor time for copies of
//! 53 MB each.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tombolo_env::Mapping;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Held {
    own: Vec<u8>,
    /// What follows. Invariant: no bytes are added to `own` behind it.
    stored: Option<Stored>,
}

/// Records in a writer's memory.
struct Stored {
    mapping: Arc<dyn Mapping>,
    /// Where byte 0 of the region would lie.
    begin: usize,
    /// Where they end in the region.
    end: usize,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").field("own", &self.own.len()).field("length", &self.len()).finish()
    }
}

impl Held {
    /// Bytes of records.
    pub(super) fn len(&self) -> usize {
        self.stored.as_ref().map_or(self.own.len(), |stored| stored.end)
    }

    /// All of them, as long as none are in a writer's memory: those of an open region.
    pub(super) fn own(&self) -> &[u8] {
        debug_assert!(self.stored.is_none(), "a sealed region's bytes are read in parts");
        &self.own
    }

    /// Adds bytes, to an open region's.
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        debug_assert!(self.stored.is_none(), "nothing is added to what is sealed");
        self.own.extend_from_slice(bytes);
    }

    /// Those behind its own, up to `end`, lie in `mapping`, where byte 0 would lie at `begin`. They stay.
    pub(super) fn stay_in(&mut self, mapping: Arc<dyn Mapping>, begin: usize, end: usize) {
        if end > self.own.len() {
            self.stored = Some(Stored { mapping, begin, end });
        }
    }

    /// A copy of a part, which is within what is held.
    pub(super) fn copy(&self, from: usize, to: usize) -> Bytes {
        let own = self.own.len();
        let Some(Stored { mapping, begin, .. }) = self.stored.as_ref().filter(|_| to > own) else {
            return Bytes::copy_from_slice(&self.own[from..to]);
        };
        let mut bytes = BytesMut::zeroed(to - from);
        let split = own.clamp(from, to);
        bytes[..split - from].copy_from_slice(&self.own[from.min(own)..split.min(own)]);
        mapping.read(begin + split, &mut bytes[split - from..]);
        bytes.freeze()
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
        mapping.write(10, b"........stored");
        let mut held = Held::default();
        held.extend_from_slice(b"its own.");
        held.stay_in(mapping, 10, 14);
        assert_eq!(held.len(), 14);
        let all = b"its own.stored";
        for from in 0..=14 {
            for to in from..=14 {
                assert_eq!(held.copy(from, to), all[from..to], "{from} to {to}");
            }
        }
    }
}
