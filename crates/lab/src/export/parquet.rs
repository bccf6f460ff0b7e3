//! Traces as Parquet, for DuckDB, pandas and whatever else reads columns.
//!
//! A group of rows is held in memory and written when it is full: 128 Ki events, or 32 MiB of keys
//! and values.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use tombolo_format::trace::{Event, Found, Header};

use crate::trace::TraceError;

const ROWS_MAX: usize = 1 << 17;
const BYTES_MAX: usize = 32 << 20;

/// The columns, in the order in which they are written.
const MESSAGE: &str = "message trace {
    required int64 time_ns (INTEGER(64, false));
    required binary operation (STRING);
    required int32 keyspace (INTEGER(32, false));
    required binary keyspace_name (STRING);
    required int32 thread (INTEGER(32, false));
    required binary key;
    required binary end;
    required int32 value_bytes (INTEGER(32, false));
    required binary value;
    required int32 entries (INTEGER(32, false));
    optional boolean found;
    required boolean joined;
    required int32 blocks_read (INTEGER(32, false));
    required int32 blocks_hit (INTEGER(32, false));
    required int64 latency_ns (INTEGER(64, false));
    required int64 ttl_ms (INTEGER(64, false));
}";

/// Rows that are not written yet, by column.
#[derive(Debug, Default)]
struct Rows {
    time_ns: Vec<i64>,
    operation: Vec<ByteArray>,
    keyspace: Vec<i32>,
    keyspace_name: Vec<ByteArray>,
    thread: Vec<i32>,
    key: Vec<ByteArray>,
    end: Vec<ByteArray>,
    value_bytes: Vec<i32>,
    value: Vec<ByteArray>,
    entries: Vec<i32>,
    found: Vec<bool>,
    is_known: Vec<i16>,
    joined: Vec<bool>,
    blocks_read: Vec<i32>,
    blocks_hit: Vec<i32>,
    latency_ns: Vec<i64>,
    ttl_ms: Vec<i64>,
    bytes: usize,
}

/// Writes events as rows.
#[derive(Debug)]
pub struct ParquetExport<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Rows,
    names: BTreeMap<u32, ByteArray>,
}

fn failed(error: ParquetError) -> TraceError {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(inner) => std::io::Error::other(inner),
        },
        other => std::io::Error::other(other),
    };
    TraceError::Io { doing: "exported", error }
}

/// The bits of an unsigned number: the schema says that it is one.
fn unsigned(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

fn long(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

impl<W: Write + Send> ParquetExport<W> {
    /// Begins a file of a trace. What the trace is goes into the file's metadata.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(output: W, header: &Header) -> Result<ParquetExport<W>, TraceError> {
        let schema = Arc::new(parse_message_type(MESSAGE).map_err(failed)?);
        let told = [
            ("origin", header.origin.clone()),
            ("start_unix_ns", header.start_unix_ns.to_string()),
            ("sampled_one_in", header.sampled_one_in.to_string()),
            ("keys", header.keys.name().to_owned()),
        ];
        let told = told.map(|(key, value)| KeyValue::new(key.to_owned(), value)).to_vec();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(told))
            .build();
        let writer = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(failed)?;
        Ok(ParquetExport { writer, rows: Rows::default(), names: BTreeMap::new() })
    }

    /// Adds an event of a keyspace of that name.
    ///
    /// # Errors
    /// Those of the file.
    pub fn push(&mut self, event: &Event<'_>, keyspace: Option<&str>) -> Result<(), TraceError> {
        let rows = &mut self.rows;
        let name = self.names.entry(event.keyspace).or_insert_with(|| ByteArray::from(Vec::new()));
        if let Some(keyspace) =
            keyspace.filter(|keyspace| name.is_empty() || name.data() != keyspace.as_bytes())
        {
            *name = ByteArray::from(keyspace.as_bytes().to_vec());
        }
        rows.keyspace_name.push(name.clone());
        rows.time_ns.push(long(event.time_ns));
        rows.operation.push(ByteArray::from(event.asked.name()));
        rows.keyspace.push(unsigned(event.keyspace));
        rows.thread.push(unsigned(event.thread));
        rows.key.push(ByteArray::from(event.key.to_vec()));
        rows.end.push(ByteArray::from(event.end.to_vec()));
        rows.value_bytes.push(unsigned(event.value_bytes));
        rows.value.push(ByteArray::from(event.value.to_vec()));
        rows.entries.push(unsigned(event.entries));
        if event.found != Found::Unknown {
            rows.found.push(event.found == Found::Yes);
        }
        rows.is_known.push(i16::from(event.found != Found::Unknown));
        rows.joined.push(event.joined);
        rows.blocks_read.push(unsigned(event.blocks_read));
        rows.blocks_hit.push(unsigned(event.blocks_hit));
        rows.latency_ns.push(long(event.latency_ns));
        rows.ttl_ms.push(long(event.ttl_ms));
        rows.bytes += event.key.len() + event.end.len() + event.value.len();
        if rows.time_ns.len() >= ROWS_MAX || rows.bytes >= BYTES_MAX { self.group() } else { Ok(()) }
    }

    /// Writes the rows that are held.
    fn group(&mut self) -> Result<(), TraceError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.time_ns.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        columns(&mut group, &rows).map_err(failed)?;
        group.close().map(drop).map_err(failed)
    }

    /// Ends the file, and gives it back.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.group()?;
        self.writer.into_inner().map_err(failed)
    }
}

/// Writes the next column of a type.
macro_rules! column {
    ($group:expr, $type:ty, $values:expr, $known:expr) => {
        if let Some(mut column) = $group.next_column()? {
            column.typed::<$type>().write_batch($values, $known, None)?;
            column.close()?;
        }
    };
}

fn columns<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &Rows,
) -> Result<(), ParquetError> {
    column!(group, Int64Type, &rows.time_ns, None);
    column!(group, ByteArrayType, &rows.operation, None);
    column!(group, Int32Type, &rows.keyspace, None);
    column!(group, ByteArrayType, &rows.keyspace_name, None);
    column!(group, Int32Type, &rows.thread, None);
    column!(group, ByteArrayType, &rows.key, None);
    column!(group, ByteArrayType, &rows.end, None);
    column!(group, Int32Type, &rows.value_bytes, None);
    column!(group, ByteArrayType, &rows.value, None);
    column!(group, Int32Type, &rows.entries, None);
    column!(group, BoolType, &rows.found, Some(&rows.is_known));
    column!(group, BoolType, &rows.joined, None);
    column!(group, Int32Type, &rows.blocks_read, None);
    column!(group, Int32Type, &rows.blocks_hit, None);
    column!(group, Int64Type, &rows.latency_ns, None);
    column!(group, Int64Type, &rows.ttl_ms, None);
    Ok(())
}
