//! Objects that attempts of this process made, and that no record names.

use parking_lot::Mutex;
use tombolo_format::manifest::TableName;

/// Most objects that [`LeftBehind`] remembers.
const LEFT_BEHIND_MAX: usize = 1 << 16;

/// Tables and value objects that attempts of this process made, that no record names or will name,
/// and that are to be deleted. Those forgotten, beyond so many and when the process ends, the next
/// opening finds.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    home: Mutex<Vec<TableName>>,
    cold: Mutex<Vec<TableName>>,
}

fn push(tables: &Mutex<Vec<TableName>>, table: TableName) {
    let mut tables = tables.lock();
    if tables.len() < LEFT_BEHIND_MAX {
        tables.push(table);
    }
}

impl LeftBehind {
    pub(crate) fn add(&self, table: TableName) {
        push(&self.home, table);
    }

    /// The same, of one in the cold store.
    pub(crate) fn add_cold(&self, table: TableName) {
        push(&self.cold, table);
    }

    /// One of them, which is remembered no more.
    pub(crate) fn next(&self) -> Option<TableName> {
        self.home.lock().pop()
    }

    /// The same, of the cold store.
    pub(crate) fn next_cold(&self) -> Option<TableName> {
        self.cold.lock().pop()
    }
}
