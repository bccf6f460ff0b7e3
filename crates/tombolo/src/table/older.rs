//! Older versions of a key, beside one that was found: its block says most often that there are
//! none, without another search of filter and index.

use tombolo_format::block::Within;
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Found, Hit, Lookup, Probe, Table};

impl Table {
    /// Looks for a version of the key of which `hit` is one of this table's, in the block that the
    /// hit holds; `None` when that does not say, and [`Table::try_get`] must.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn try_get_older(&self, hit: Hit, lookup: &Lookup<'_>) -> Result<Option<Probe>> {
        let Found::Within(pinned, _) = hit.value else { return Ok(None) };
        let Some(block) = pinned.block().filter(|_| self.number.is_none()) else { return Ok(None) };
        let (trailer, value) = match block.get_within(lookup.target).map_err(|error| self.damaged(error))? {
            Within::Found(entry) => (entry.trailer, block.range_of(entry.value)),
            Within::Absent => return Ok(Some(Probe::Absent)),
            Within::Beyond if is_enabled(Mutant::OlderVersionsEndWithTheBlock) => {
                return Ok(Some(Probe::Absent));
            }
            Within::Beyond => return Ok(None),
        };
        Ok(Some(Probe::Found(Hit { trailer, value: Found::Within(pinned, value) })))
    }
}
