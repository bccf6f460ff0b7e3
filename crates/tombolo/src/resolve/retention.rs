//! Which versions of a key somebody can still see.

use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Says, Unresolved, says};

/// Decides for entries that come in the order of internal keys.
///
/// The sequence numbers that snapshots look from cut all numbers into stripes; of a key, only the
/// newest version of each stripe is seen.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    key: Vec<u8>,
    /// The stripe of the last version kept of `key`; `None` before the first.
    stripe: Option<usize>,
}

impl Retention {
    /// For readers that look from `snapshots`, ascending, and from now on.
    pub(crate) fn new(snapshots: Vec<SequenceNumber>) -> Retention {
        Retention { snapshots, key: Vec::new(), stripe: None }
    }

    /// Whether `key` is another than that of the entry before.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        self.stripe.is_none() || self.key != key
    }

    /// Whether the next entry is kept. `is_bottom` is asked of deletes that all see: whether
    /// nothing older of the key lies anywhere else.
    ///
    /// # Errors
    /// When the entry's kind is not known, whether somebody sees the entry or not.
    #[inline]
    pub(crate) fn keeps(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Result<bool, Unresolved> {
        let says = says(trailer)?;
        if self.is_new(key) {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = None;
        }
        let stripe = match self.snapshots.len() {
            0 => 0,
            _ => self.snapshots.partition_point(|snapshot| *snapshot < trailer.sequence()),
        };
        if self.stripe == Some(stripe) {
            return Ok(false);
        }
        self.stripe = Some(stripe);
        // In the oldest stripe, a delete says what absence says as well.
        let bottom = || is_bottom(key) || is_enabled(Mutant::DeleteDroppedOverOlder);
        Ok(!(stripe == 0 && says == Says::Absent && bottom()))
    }
}
