//! Objects that attempts of this process made, and that no record names.

use parking_lot::Mutex;
use tombolo_format::manifest::TableName;

/// Most objects that [`LeftBehind`] remembers.
const LEFT_BEHIND_MAX: usize = 1 << 16;

/// Tables and value objects that attempts of this process made, that no record names or will name,
/// and that are to be deleted. Those forgotten, beyond so many and when the process ends, the next
/// opening finds.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind(Mutex<Vec<TableName>>);

impl LeftBehind {
    pub(crate) fn add(&self, table: TableName) {
        let mut tables = self.0.lock();
        if tables.len() < LEFT_BEHIND_MAX {
            tables.push(table);
        }
    }

    /// One of them, which is remembered no more.
    pub(crate) fn next(&self) -> Option<TableName> {
        self.0.lock().pop()
    }
}
