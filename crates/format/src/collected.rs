//! Properties that a program's own collectors gave a table: property 9 of its description
//! ([`crate::manifest`]), which may be ignored.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | number of properties |
//! | | the properties: collectors ascend by name, and the properties of each by theirs |
//!
//! **Property:**
//!
//! | bytes | field |
//! |---|---|
//! | 4 | bytes of the collector's name |
//! | | the collector's name, UTF-8 |
//! | 4 | bytes of the property's name |
//! | | the property's name, UTF-8 |
//! | 4 | bytes of the value |
//! | | the value |

use crate::codec::Reader;
use crate::error::{FormatError, Result};

/// The property of a table's description that holds them.
pub const PROPERTY_COLLECTED: u16 = 9;
/// Most bytes of all of a table: the manifest's state holds them for every table.
pub const COLLECTED_BYTES_MAX: usize = 1 << 10;
/// Most bytes of a name.
pub const COLLECTED_NAME_BYTES_MAX: usize = 255;

/// What a collector said of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collected<'a> {
    /// The collector.
    pub collector: &'a str,
    /// The property.
    pub name: &'a str,
    /// Its value.
    pub value: &'a [u8],
}

/// The encoding of properties that ascend by collector and name.
///
/// # Errors
/// `Limit` for long names, or more bytes than a table may have.
///
/// # Panics
/// When they do not ascend: a bug of the caller.
pub fn encode_collected(all: &[Collected<'_>]) -> Result<Vec<u8>> {
    assert!(all.is_sorted_by(|one, next| (one.collector, one.name) < (next.collector, next.name)));
    let mut out = Vec::new();
    out.extend_from_slice(&(all.len() as u32).to_le_bytes());
    for Collected { collector, name, value } in all {
        let longest = collector.len().max(name.len());
        if longest > COLLECTED_NAME_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "a name of {longest} bytes; at most {COLLECTED_NAME_BYTES_MAX}"
            )));
        }
        if out.len() + 12 + collector.len() + name.len() + value.len() > COLLECTED_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "collected properties of more than {COLLECTED_BYTES_MAX} bytes"
            )));
        }
        for part in [collector.as_bytes(), name.as_bytes(), value] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
    Ok(out)
}

/// Reads them back.
///
/// # Errors
/// `Damaged`.
pub fn decode_collected(bytes: &[u8]) -> Result<Vec<Collected<'_>>> {
    if bytes.len() > COLLECTED_BYTES_MAX {
        let expected = format!("at most {COLLECTED_BYTES_MAX} bytes of collected properties");
        return Err(FormatError::damaged(0, expected, bytes.len().to_string()));
    }
    let mut reader = Reader::new(bytes);
    let count = reader.u32()? as usize;
    let mut all: Vec<Collected<'_>> = Vec::new();
    while reader.remaining() > 0 && all.len() < count {
        let at = reader.position();
        let (collector, name) = (text(&mut reader)?, text(&mut reader)?);
        let value = reader.prefixed(COLLECTED_BYTES_MAX)?;
        if all.last().is_some_and(|last| (last.collector, last.name) >= (collector, name)) {
            return Err(FormatError::damaged(at, "properties by collector and name", format!("{name:?}")));
        }
        all.push(Collected { collector, name, value });
    }
    if all.len() != count || reader.remaining() > 0 {
        let found = format!("{} and {} bytes more", all.len(), reader.remaining());
        return Err(FormatError::damaged(0, format!("{count} properties"), found));
    }
    Ok(all)
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str> {
    let at = reader.position();
    let bytes = reader.prefixed(COLLECTED_NAME_BYTES_MAX)?;
    std::str::from_utf8(bytes).map_err(|_| FormatError::damaged(at, "a name in UTF-8", format!("{bytes:?}")))
}

#[cfg(test)]
mod tests;
