//! How much a range holds, without reading it.

use std::ops::Bound;

use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::Result;

use crate::engine::{Health, View};

/// About how much lies in a range of keys: [`crate::Keyspace::approximate_size`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeSize {
    /// Bytes in tables, as they are stored: compressed, older versions and deletes included.
    pub table_bytes: u64,
    /// Entries in tables, in proportion to the bytes.
    pub table_entries: u64,
    /// Bytes in value objects to which these entries refer, in proportion to the tables' bytes.
    pub value_bytes: u64,
    /// Bytes of keys and values in memory, not yet flushed.
    pub memory_bytes: u64,
    /// Entries in memory.
    pub memory_entries: u64,
}

/// Sums up what the tables' indexes and the memtables say.
pub(crate) async fn range_size(
    health: &Health,
    view: &View,
    keyspace: u32,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Result<RangeSize> {
    let mut size = RangeSize::default();
    let memtables = view.memtables_of(keyspace);
    for list in memtables.filter_map(|memtable| memtable.list(keyspace)) {
        let mut cursor = list.cursor();
        match lower {
            Bound::Unbounded => cursor.first(),
            Bound::Included(key) => cursor.seek(key, Trailer::seek(SequenceNumber::MAX)),
            Bound::Excluded(key) => {
                cursor.seek(key, Trailer::seek(SequenceNumber::MAX));
                while cursor.entry().is_some_and(|entry| entry.key == key) {
                    cursor.next();
                }
            }
        }
        while let Some(entry) = cursor.entry() {
            let beyond = match upper {
                Bound::Unbounded => false,
                Bound::Included(key) => entry.key > key,
                Bound::Excluded(key) => entry.key >= key,
            };
            if beyond {
                break;
            }
            size.memory_entries += 1;
            size.memory_bytes += (entry.key.len() + entry.value.len()) as u64;
            cursor.next();
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(size) };
    for table in levels.tables() {
        let bytes = match table.bytes_within(lower, upper).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(health.judge_read(view, error).await),
        };
        let description = table.description();
        let share = |all: u64| {
            let share = u128::from(all) * u128::from(bytes) / u128::from(description.length.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        size.table_bytes += bytes;
        size.table_entries += share(description.entries);
        size.value_bytes += share(description.referred().iter().map(|to| to.bytes).sum());
    }
    Ok(size)
}
