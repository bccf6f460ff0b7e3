//! Code of the program's own that a database is opened with, beside its listener.

use std::fmt;
use std::sync::Arc;

use tombolo_storage::{Error, ErrorKind, Result};

use crate::collector::Collectors;
use crate::filter::Filters;
use crate::options::{CompactionPlace, Options};
use crate::workers::CompactionWorkers;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions {
    /// Who says properties of tables.
    pub(crate) collectors: Collectors,
    /// Who says what compaction keeps.
    pub(crate) filters: Filters,
    /// Who runs compactions elsewhere.
    pub(crate) workers: Option<Workers>,
}

/// Who runs compactions elsewhere.
#[derive(Clone)]
pub(crate) struct Workers(pub(crate) Arc<dyn CompactionWorkers>);

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Workers")
    }
}

impl Extensions {
    /// # Errors
    /// `Invalid` for settings that need workers, without any.
    pub(crate) fn check_for(&self, options: &Options) -> Result<()> {
        if options.compaction == CompactionPlace::Local || self.workers.is_some() {
            return Ok(());
        }
        let message = "the setting compaction asks for workers, and there are none";
        Err(Error::new(ErrorKind::Invalid, message)
            .advice("open the database with Builder::compaction_workers, or set compaction=local"))
    }

    /// # Errors
    /// `Invalid` for more of them, or longer names, than may be.
    pub(crate) fn check(&self) -> Result<()> {
        self.collectors.check()
    }
}
