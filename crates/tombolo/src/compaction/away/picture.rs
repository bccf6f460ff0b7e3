//! Levels made of what a job or an answer names, without a database.

use std::sync::Arc;

use tombolo_format::manifest::Edit;
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use crate::manifest::State;
use crate::version::{Levels, Tables, Version, Versions};

/// The levels of a keyspace, as these edits say it from nothing. Their handles are known to nobody
/// else.
///
/// # Errors
/// `Invalid` for edits that do not fit; those of opening the stores of sources.
pub(super) fn levels_of(tables: &Tables, keyspace: u32, edits: &[Edit]) -> Result<Arc<Levels>> {
    let state = State::from_snapshot(1, Epoch(tables.epoch.0), edits).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("tables that do not fit together: {error}"))
    })?;
    tables.places.lock().learn(&state)?;
    let version = Versions::new(tables.clone()).build(&state, &Version::default(), &[]);
    Ok(version.levels(keyspace).map_or_else(Arc::default, Arc::clone))
}
