//! Ranges as columns, in the layout that Arrow has for bytes of any length.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tombolo::{Cursor, Error, ErrorKind};

use crate::buffer::Value;
use crate::error::OrRaise;

/// Most bytes that one call gathers: a limit, or a shorter range, is for more.
const BYTES_MAX: usize = 4 << 30;

#[derive(Default)]
struct Column {
    offsets: Vec<u8>,
    bytes: Vec<u8>,
}

impl Column {
    fn end(&mut self) {
        self.offsets.extend_from_slice(&(self.bytes.len() as i64).to_le_bytes());
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end();
    }
}

fn gather(mut cursor: Cursor, limit: Option<usize>) -> tombolo::Result<(usize, Column, Column)> {
    let (mut keys, mut values, mut count) = (Column::default(), Column::default(), 0);
    keys.end();
    values.end();
    while limit.is_none_or(|limit| count < limit) && cursor.next()? {
        keys.push(cursor.key());
        values.push(cursor.value());
        count += 1;
        if keys.bytes.len() + values.bytes.len() > BYTES_MAX {
            let error = Error::new(ErrorKind::Invalid, "the range has more than 4 GiB");
            return Err(error.advice("ask for a part: start, end, limit"));
        }
    }
    Ok((count, keys, values))
}

/// The number of entries, then offsets and bytes of keys, then of values.
pub fn columns(cursor: Cursor, limit: Option<usize>, python: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    let (count, keys, values) = python.detach(|| gather(cursor, limit)).or_raise()?;
    let object = |bytes: Vec<u8>| Bound::new(python, Value(tombolo::Value::from(bytes::Bytes::from(bytes))));
    let parts = [object(keys.offsets)?, object(keys.bytes)?, object(values.offsets)?, object(values.bytes)?];
    let [key_offsets, key_bytes, value_offsets, value_bytes] = parts;
    (count, key_offsets, key_bytes, value_offsets, value_bytes).into_pyobject(python)
}
