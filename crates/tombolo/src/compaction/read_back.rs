//! Cold tables, and those that were pulled from another store, are read back before a record names
//! them: what they take the place of goes.

use tombolo_format::manifest::TableDescription;
use tombolo_storage::{Error, Purpose, Result};

use crate::engine::Engine;

/// Reads the ends of those among the outputs, or of all.
///
/// # Errors
/// `Corrupt` when one is not there as it was written; those of the store.
pub(super) async fn read_back(engine: &Engine, outputs: &[TableDescription], all: bool) -> Result<()> {
    let tables = engine.versions.tables();
    for output in outputs.iter().filter(|output| all || output.cold().is_some()) {
        let (store, object) = tables.locate(output);
        let (from, end) = (output.length - u64::from(output.tail_bytes), output.length);
        let request = engine.request(Purpose::Verify);
        let (length, tail) =
            (store.length(request, &object).await?, store.read(request, &object, from..end).await?);
        if length != end || tail.len() as u64 != end - from {
            let found = format!("{length} bytes, and {} of its end", tail.len());
            return Err(Error::corrupt(&object, from, format!("{end} bytes"), found));
        }
    }
    Ok(())
}
