//! Traces of others: RocksDB's query traces, and lines of text with named columns.

mod csv;
mod rocksdb;

pub use csv::{Columns, import_csv};
pub use rocksdb::{Counted, import_rocksdb};

#[cfg(test)]
mod tests;
