//! Code of the program's own that a database is opened with, beside its listener.

use tombolo_storage::Result;

use crate::collector::Collectors;
use crate::filter::Filters;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions {
    /// Who says properties of tables.
    pub(crate) collectors: Collectors,
    /// Who says what compaction keeps.
    pub(crate) filters: Filters,
}

impl Extensions {
    /// # Errors
    /// `Invalid` for more of them, or longer names, than may be.
    pub(crate) fn check(&self) -> Result<()> {
        self.collectors.check()
    }
}
