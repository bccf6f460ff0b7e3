//! The end of a region, as a writer knows it that fills the memory itself: it checks what a node
//! checks at each append (rule 2).

use tombolo_format::segment_record::{Digest, Records};

use crate::message::{Extent, Refusal};

/// Records that are there, or on their way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    extent: Extent,
    bytes_max: u32,
}

/// What there is to be done with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// They follow the held records, which then end here.
    Follows(Extent),
    /// The node would refuse them.
    Refused(Refusal),
    /// What lies before them is not known here, and the node must be asked.
    Elsewhere,
}

impl Tail {
    /// Of a region of at most `bytes_max` bytes that holds this for certain.
    pub(crate) fn new(extent: Extent, bytes_max: u32) -> Tail {
        Tail { extent, bytes_max }
    }

    /// Whether whole, sound records at `offset`, behind `predecessor`, follow the held ones.
    pub(crate) fn fit(&self, offset: u32, predecessor: Digest, records: &[u8]) -> Fit {
        let Extent { length, digest, mut committed } = self.extent;
        if offset != length || predecessor != digest {
            return Fit::Elsewhere;
        }
        let room = self.bytes_max.saturating_sub(length);
        if records.len() > room as usize {
            return Fit::Refused(Refusal::Full(room.into()));
        }
        let mut walk = Records::new(digest, length, records);
        for record in walk.by_ref() {
            match record {
                Ok(record) => committed = committed.max(record.committed),
                Err(_) => return Fit::Refused(Refusal::Malformed),
            }
        }
        Fit::Follows(Extent { length: walk.at(), digest: walk.digest(), committed })
    }

    /// It is there, or on its way.
    pub(crate) fn extend(&mut self, extent: Extent) {
        self.extent = extent;
    }
}
