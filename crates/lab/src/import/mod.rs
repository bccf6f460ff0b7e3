//! Traces of others: those that RocksDB writes, what YCSB prints, and lines of text with named
//! columns.

mod blocks;
mod csv;
mod io;
mod lines;
mod queries;
mod records;
mod rocksdb;
mod ycsb;

pub use csv::{Columns, import_csv};
pub use records::Counted;
pub use rocksdb::import_rocksdb;
pub use ycsb::import_ycsb;

#[cfg(test)]
mod tests;
