//! A prepared transaction, and how one ended: values of the keyspace in which a database keeps what
//! it knows of transactions.
//!
//! That keyspace, `tombolo.transactions`, is made with the first of them. Its keys are a byte and
//! the transaction's id:
//!
//! | first byte | value |
//! |---|---|
//! | `p` | a prepared transaction, below; deleted by the batch that decides it |
//! | `o` | how one ended, which expires a day later: 1 byte, 1 committed, 2 rolled back |
//!
//! **Prepared transaction:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version (1) |
//! | 4 | 4 | number of spans |
//! | 8 | 8 | id of the database that prepared it, which its manifest says |
//! | 16 | 8 | when that was, in milliseconds since the Unix epoch |
//! | 24 | | spans that nobody else may write until it is decided |
//! | | | its writes: the payload of a batch ([`crate::batch`]) |
//!
//! **Span:** keyspace (u32); kind (u8): 0 a key, 1 a range up to a key, 2 a range without end; the
//! key, or the first one of the range, with its length (u32) before it; of kind 1 the end, which it
//! does not hold, the same.

use crate::batch::{BatchBuilder, Operations};
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_version};
use crate::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The version written, and the newest read.
pub const PREPARED_VERSION: u32 = 1;
/// Bytes before the spans.
pub const PREPARED_HEADER_BYTES: usize = 24;
/// Least bytes of a span.
const SPAN_BYTES_MIN: usize = 9;
/// Most bytes of a span's key: the least key above the longest one is a byte longer.
const SPAN_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + 1;
/// The first byte of the key of a prepared transaction.
pub const PREPARED_KEY: u8 = b'p';
/// The first byte of the key of an outcome.
pub const OUTCOME_KEY: u8 = b'o';

/// What a prepared transaction keeps others from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedSpan<'a> {
    /// Of which keyspace.
    pub keyspace: u32,
    /// The key, or the first one of a range.
    pub from: &'a [u8],
    /// What it ends with.
    pub end: SpanEnd<'a>,
}

/// Where a span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanEnd<'a> {
    /// It is one key.
    Key,
    /// Before this key.
    Before(&'a [u8]),
    /// With the keyspace.
    Never,
}

/// A prepared transaction.
#[derive(Clone, Debug)]
pub struct PreparedTransaction<'a> {
    /// The id of the database that prepared it.
    pub database: u64,
    /// When that was.
    pub unix_ms: u64,
    /// What nobody else may write.
    pub spans: Vec<PreparedSpan<'a>>,
    /// The payload of its batch.
    pub payload: &'a [u8],
}

impl<'a> PreparedTransaction<'a> {
    /// # Errors
    /// `Limit` when it is larger than a value may be, or a key is longer than keys are.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(PREPARED_HEADER_BYTES + 64 * self.spans.len() + self.payload.len());
        out.extend_from_slice(&PREPARED_VERSION.to_le_bytes());
        let count = u32::try_from(self.spans.len()).map_err(|_| FormatError::limit("spans"))?;
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.database.to_le_bytes());
        out.extend_from_slice(&self.unix_ms.to_le_bytes());
        for PreparedSpan { keyspace, from, end } in &self.spans {
            let kind = match end {
                SpanEnd::Key => 0,
                SpanEnd::Before(_) => 1,
                SpanEnd::Never => 2,
            };
            out.extend_from_slice(&keyspace.to_le_bytes());
            out.push(kind);
            put_key(&mut out, from)?;
            if let SpanEnd::Before(to) = end {
                put_key(&mut out, to)?;
            }
        }
        out.extend_from_slice(self.payload);
        if out.len() > VALUE_BYTES_MAX {
            let what = format!("a prepared transaction of {} bytes; at most {VALUE_BYTES_MAX}", out.len());
            return Err(FormatError::limit(what));
        }
        Ok(out)
    }

    /// # Errors
    /// `Damaged`; `Newer` for a version that this program does not know.
    pub fn decode(bytes: &'a [u8]) -> Result<PreparedTransaction<'a>> {
        let mut reader = Reader::new(bytes);
        check_version(0, reader.u32()?, PREPARED_VERSION)?;
        let count = reader.u32()? as usize;
        let (database, unix_ms) = (reader.u64()?, reader.u64()?);
        if count > reader.remaining() / SPAN_BYTES_MIN {
            return Err(FormatError::damaged(4, "spans within the value", format!("{count} spans")));
        }
        let mut spans = Vec::with_capacity(count);
        for _ in 0..count {
            let keyspace = reader.u32()?;
            let (at, kind) = (reader.position(), reader.u8()?);
            let from = reader.prefixed(SPAN_KEY_BYTES_MAX)?;
            let end = match kind {
                0 => SpanEnd::Key,
                1 => SpanEnd::Before(reader.prefixed(SPAN_KEY_BYTES_MAX)?),
                2 => SpanEnd::Never,
                kind => return Err(FormatError::damaged(at, "a span of kind 0 to 2", format!("{kind}"))),
            };
            spans.push(PreparedSpan { keyspace, from, end });
        }
        let payload = reader.take(reader.remaining())?;
        for operation in Operations::new(payload)? {
            operation?;
        }
        Ok(PreparedTransaction { database, unix_ms, spans, payload })
    }
}

/// Adds the key of a span: one that is read back.
fn put_key(out: &mut Vec<u8>, key: &[u8]) -> Result<()> {
    if key.len() > SPAN_KEY_BYTES_MAX {
        let what = format!("a key of {} bytes that a transaction rests on", key.len());
        return Err(FormatError::limit(format!("{what}; at most {SPAN_KEY_BYTES_MAX}")));
    }
    put_prefixed(out, key);
    Ok(())
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    /// Its writes took effect.
    Committed,
    /// They did not.
    RolledBack,
}

impl TransactionEnd {
    /// The value.
    pub fn encode(self) -> [u8; 1] {
        match self {
            TransactionEnd::Committed => [1],
            TransactionEnd::RolledBack => [2],
        }
    }

    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8]) -> Result<TransactionEnd> {
        match bytes {
            [1] => Ok(TransactionEnd::Committed),
            [2] => Ok(TransactionEnd::RolledBack),
            _ => Err(FormatError::damaged(0, "1 or 2", format!("{} bytes", bytes.len()))),
        }
    }
}

/// The key of a transaction, by what it is about.
pub fn transaction_key(about: u8, id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + id.len());
    key.push(about);
    key.extend_from_slice(id);
    key
}

/// For fuzzing: what decodes must encode to the same bytes.
pub(crate) fn check_any(bytes: &[u8]) {
    if let Ok(prepared) = PreparedTransaction::decode(bytes) {
        assert_eq!(prepared.encode().as_deref(), Ok(bytes));
    }
    if let Ok(end) = TransactionEnd::decode(bytes) {
        assert_eq!(end.encode(), bytes);
    }
}

/// An example, for tests and as a seed of fuzzing.
pub(crate) fn example() -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    for key in [b"a", b"b"] {
        let _pushed = batch.push(crate::key::EntryKind::Put, 3, key, b"value");
    }
    let spans = vec![
        PreparedSpan { keyspace: 3, from: b"a", end: SpanEnd::Key },
        PreparedSpan { keyspace: 3, from: b"b", end: SpanEnd::Before(b"c") },
        PreparedSpan { keyspace: 7, from: b"", end: SpanEnd::Never },
    ];
    let prepared =
        PreparedTransaction { database: 9, unix_ms: 1_700_000_000_000, spans, payload: batch.payload() };
    prepared.encode().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_transaction_is_read_back() {
        let bytes = example();
        let prepared = PreparedTransaction::decode(&bytes).unwrap();
        assert_eq!((prepared.database, prepared.unix_ms, prepared.spans.len()), (9, 1_700_000_000_000, 3));
        assert_eq!(prepared.spans[1].end, SpanEnd::Before(b"c"));
        assert_eq!(Operations::new(prepared.payload).unwrap().count(), 2);
        check_any(&bytes);
        assert_eq!(bytes[..4], PREPARED_VERSION.to_le_bytes());
        assert_eq!(&bytes[PREPARED_HEADER_BYTES..][..5], &[3, 0, 0, 0, 0]);
    }

    /// Nothing is encoded that is not read back: a database that holds it could not be opened.
    #[test]
    fn a_span_of_a_key_that_is_too_long_is_not_encoded() {
        let payload = BatchBuilder::new();
        let longest = vec![b'k'; SPAN_KEY_BYTES_MAX];
        let longer = vec![b'k'; SPAN_KEY_BYTES_MAX + 1];
        let encode = |from, end| {
            let spans = vec![PreparedSpan { keyspace: 3, from, end }];
            let payload = payload.payload();
            PreparedTransaction { database: 9, unix_ms: 1, spans, payload }.encode()
        };
        let bytes = encode(&longest, SpanEnd::Before(&longest)).unwrap();
        assert_eq!(PreparedTransaction::decode(&bytes).unwrap().spans.len(), 1);
        assert!(encode(&longer, SpanEnd::Key).is_err() && encode(&longer, SpanEnd::Never).is_err());
        assert!(encode(b"", SpanEnd::Before(&longer)).is_err());
    }

    #[test]
    fn every_cut_and_changed_byte_is_refused_or_read_as_it_is() {
        let bytes = example();
        for end in 0..bytes.len() {
            assert!(PreparedTransaction::decode(&bytes[..end]).is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            check_any(&changed);
        }
        let newer = [&2_u32.to_le_bytes()[..], &bytes[4..]].concat();
        assert!(matches!(PreparedTransaction::decode(&newer), Err(FormatError::Newer { .. })));
        let many = [&bytes[..4], &u32::MAX.to_le_bytes()[..], &bytes[8..]].concat();
        assert!(PreparedTransaction::decode(&many).is_err());
        for end in [TransactionEnd::Committed, TransactionEnd::RolledBack] {
            assert_eq!(TransactionEnd::decode(&end.encode()), Ok(end));
        }
        assert!(TransactionEnd::decode(&[3]).is_err() && TransactionEnd::decode(&[]).is_err());
    }
}
