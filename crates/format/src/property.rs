//! Lists of properties, each critical or ignorable: what tables say of themselves, and what the
//! manifest says of a table beside its fixed fields.
//!
//! | bytes | field |
//! |---|---|
//! | 2 | id: ids ascend, and none comes twice |
//! | 1 | flags: 1 critical |
//! | 4 | bytes of the value |
//! | | value |
//!
//! A critical property changes the meaning of what it is about. A program that does not know it
//! refuses the whole. A property that is not critical may be ignored, and is kept as it is where
//! the list is written again.

use std::sync::Arc;

use crate::codec::Reader;
use crate::cold::{PROPERTY_COLD, PROPERTY_EIGHTHS, decode_cold, decode_eighths};
use crate::error::{FormatError, Result};
use crate::expiry::{Expiry, PROPERTY_EXPIRY};
use crate::key::SequenceNumber;
use crate::value_object::{PROPERTY_VALUE_OBJECTS, decode_referred};

/// Bytes of a property before its value.
pub const PROPERTY_HEADER_BYTES: usize = 7;
/// Most bytes of a list.
pub const PROPERTIES_BYTES_MAX: usize = 64 << 10;

const FLAG_CRITICAL: u8 = 1;

/// One property, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property<'a> {
    /// What it is.
    pub id: u16,
    /// Whether who does not know it must not go on.
    pub is_critical: bool,
    /// Its value.
    pub value: &'a [u8],
}

/// Appends a property. Ids must ascend from call to call.
///
/// # Panics
/// When the value is longer than [`PROPERTIES_BYTES_MAX`]: a bug of the caller.
pub fn put_property(out: &mut Vec<u8>, property: Property<'_>) {
    let Property { id, is_critical, value } = property;
    assert!(value.len() <= PROPERTIES_BYTES_MAX, "property {id} of {} bytes", value.len());
    out.extend_from_slice(&id.to_le_bytes());
    out.push(if is_critical { FLAG_CRITICAL } else { 0 });
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
}

/// Walks the properties of a list. `each` takes one, with the offset of its value, and says whether
/// it knows it.
///
/// # Errors
/// `Damaged`; `Newer` for a critical property that `each` does not know, or for flags that this
/// version does not know; what `each` returns.
pub fn read_properties<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(Property<'a>, usize) -> Result<bool>,
) -> Result<()> {
    if bytes.len() > PROPERTIES_BYTES_MAX {
        let expected = format!("at most {PROPERTIES_BYTES_MAX} bytes of properties");
        return Err(FormatError::damaged(0, expected, bytes.len().to_string()));
    }
    let mut reader = Reader::new(bytes);
    let mut last = None;
    while reader.remaining() > 0 {
        let at = reader.position();
        let (id, flags) = (reader.u16()?, reader.u8()?);
        let value = reader.prefixed(PROPERTIES_BYTES_MAX)?;
        if last.is_some_and(|last| id <= last) {
            let expected = format!("a property after {}", last.unwrap_or_default());
            return Err(FormatError::damaged(at, expected, id.to_string()));
        }
        if flags & !FLAG_CRITICAL != 0 {
            return Err(FormatError::newer(at + 2, format!("property {id} with unknown flags {flags:#x}")));
        }
        last = Some(id);
        let is_critical = flags & FLAG_CRITICAL != 0;
        let property = Property { id, is_critical, value };
        if !each(property, at + PROPERTY_HEADER_BYTES)? && is_critical {
            return Err(FormatError::newer(at, format!("unknown critical property {id}")));
        }
    }
    Ok(())
}

/// Id of the property of a description that says which sequence number takes the place of all in a
/// table.
pub const SEQUENCE_OVERRIDE: u16 = 7;

fn sequence(value: &[u8]) -> Result<SequenceNumber> {
    let mut reader = Reader::new(value);
    let number = reader.u64()?;
    reader.end()?;
    if number > SequenceNumber::MAX.0 {
        return Err(FormatError::damaged(0, "a sequence number of 56 bits", number.to_string()));
    }
    Ok(SequenceNumber(number))
}

/// Id of the property of a description with the sum of the hashes of the table's entries, as they
/// are stored ([`crate::checksum::entry_hash`]), modulo 2^64.
pub const PROPERTY_ENTRY_SUM: u16 = 6;

/// Id of the property of a description, without a value, that each entry of the table is a value
/// that stays, of a key of its own.
pub const PROPERTY_ONE_EACH: u16 = 13;

/// The id of the property that says what range deletes a table holds ([`crate::manifest`]).
pub const PROPERTY_RANGE_DELETES: u16 = 1;
const ENDS_BEFORE_LAST: u8 = 1;

/// What the manifest says of the range deletes that a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeDeletes {
    /// Number of ranges.
    pub count: u32,
    /// Bytes that they take in the table.
    pub bytes: u32,
    /// The table ends before its last key, which is where a range ends.
    pub ends_before_last: bool,
}

impl RangeDeletes {
    /// The property's value.
    pub fn encode(self) -> [u8; 9] {
        let mut value = [0; 9];
        value[..4].copy_from_slice(&self.count.to_le_bytes());
        value[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        value[8] = if self.ends_before_last { ENDS_BEFORE_LAST } else { 0 };
        value
    }

    fn decode(value: &[u8]) -> Result<RangeDeletes> {
        let mut reader = Reader::new(value);
        let (count, bytes, flags) = (reader.u32()?, reader.u32()?, reader.u8()?);
        reader.end()?;
        if count == 0 {
            return Err(FormatError::damaged(0, "a number of range deletes", "0"));
        }
        if flags & !ENDS_BEFORE_LAST != 0 {
            return Err(FormatError::newer(8, format!("range deletes with unknown flags {flags:#x}")));
        }
        Ok(RangeDeletes { count, bytes, ends_before_last: flags != 0 })
    }
}

/// A list that goes along with a table's description. Clones share it; an empty one takes no
/// memory.
///
/// Invariant: [`read_properties`] finds nothing wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyList(Option<Arc<List>>);

#[derive(Debug, PartialEq, Eq)]
struct List {
    bytes: Box<[u8]>,
    /// What the bytes say, for who asks often.
    known: KnownProperties,
}

/// What this version knows of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownProperties {
    /// The range deletes that the table holds.
    pub range_deletes: Option<RangeDeletes>,
    /// The sequence number that takes the place of all in the table.
    pub sequence_override: Option<SequenceNumber>,
    /// The id of the cold store in which the table lies.
    pub cold: Option<u64>,
    /// Each entry of the table is a value that stays, of a key of its own.
    pub one_each: bool,
}

impl PropertyList {
    /// Takes a list as it was written, of a table's description. Those that this version knows are
    /// sound afterwards.
    ///
    /// # Errors
    /// As [`read_properties`]; `Damaged` and `Newer` for what a property says.
    pub fn decode(bytes: &[u8]) -> Result<PropertyList> {
        Ok(PropertyList::new(bytes, known_of(bytes, true)?))
    }

    fn new(bytes: &[u8], known: KnownProperties) -> PropertyList {
        PropertyList((!bytes.is_empty()).then(|| Arc::new(List { bytes: bytes.into(), known })))
    }

    /// What this version knows of it.
    #[inline]
    pub fn known(&self) -> KnownProperties {
        self.0.as_ref().map_or(KnownProperties::default(), |list| list.known)
    }

    /// Of these properties, whose ids ascend.
    ///
    /// # Panics
    /// As [`put_property`].
    pub fn of<'a>(properties: impl IntoIterator<Item = Property<'a>>) -> PropertyList {
        let mut bytes = Vec::new();
        properties.into_iter().for_each(|property| put_property(&mut bytes, property));
        let known = known_of(&bytes, false);
        debug_assert!(known.is_ok(), "what is written is sound: {known:?}");
        PropertyList::new(&bytes, known.unwrap_or_default())
    }

    /// The value of a property, if it is in the list.
    pub fn get(&self, id: u16) -> Option<&[u8]> {
        let mut value = None;
        let read = read_properties(self.bytes(), |property, _| {
            if property.id == id {
                value = Some(property.value);
            }
            Ok(true)
        });
        debug_assert!(read.is_ok(), "the list was checked: {read:?}");
        value
    }

    /// The list as it was written.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |list| &list.bytes)
    }

    /// The sequence number that takes the place of all in the table, if there is one.
    pub fn sequence_override(&self) -> Option<SequenceNumber> {
        self.known().sequence_override
    }

    /// The list with a property, in the place of one with the same id.
    ///
    /// # Panics
    /// As [`put_property`].
    #[must_use]
    pub fn with(&self, property: Property<'_>) -> PropertyList {
        let mut out = Vec::with_capacity(self.bytes().len() + PROPERTY_HEADER_BYTES + property.value.len());
        let mut waiting = Some(property);
        let read = read_properties(self.bytes(), |known, _| {
            if let Some(new) = waiting.take_if(|new| new.id <= known.id) {
                put_property(&mut out, new);
            }
            if known.id != property.id {
                put_property(&mut out, known);
            }
            Ok(true)
        });
        debug_assert!(read.is_ok(), "the list was checked: {read:?}");
        if let Some(new) = waiting {
            put_property(&mut out, new);
        }
        let known = known_of(&out, false);
        debug_assert!(known.is_ok(), "what is written is sound: {known:?}");
        PropertyList::new(&out, known.unwrap_or_default())
    }

    /// The list without a property.
    #[must_use]
    pub fn without(&self, id: u16) -> PropertyList {
        let mut out = Vec::with_capacity(self.bytes().len());
        let read = read_properties(self.bytes(), |known, _| {
            if known.id != id {
                put_property(&mut out, known);
            }
            Ok(true)
        });
        debug_assert!(read.is_ok(), "the list was checked: {read:?}");
        let known = known_of(&out, false);
        debug_assert!(known.is_ok(), "what is written is sound: {known:?}");
        PropertyList::new(&out, known.unwrap_or_default())
    }

    /// The ids in it, ascending.
    pub fn ids(&self) -> Vec<u16> {
        let mut ids = Vec::new();
        let read = read_properties(self.bytes(), |property, _| {
            ids.push(property.id);
            Ok(true)
        });
        debug_assert!(read.is_ok(), "the list was checked: {read:?}");
        ids
    }
}

/// What the properties of a description say that this version knows; those must be sound. `is_all`:
/// a critical one that it does not know is refused.
fn known_of(bytes: &[u8], is_all: bool) -> Result<KnownProperties> {
    let mut known = KnownProperties::default();
    read_properties(bytes, |property, at| {
        let sound = match property.id {
            PROPERTY_RANGE_DELETES => {
                RangeDeletes::decode(property.value).map(|said| known.range_deletes = Some(said))
            }
            SEQUENCE_OVERRIDE => {
                sequence(property.value).map(|number| known.sequence_override = Some(number))
            }
            PROPERTY_COLD => decode_cold(property.value).map(|id| known.cold = Some(id)),
            PROPERTY_ONE_EACH => {
                known.one_each = true;
                Reader::new(property.value).end()
            }
            PROPERTY_EIGHTHS => decode_eighths(property.value).map(drop),
            PROPERTY_EXPIRY => Expiry::decode(property.value).map(drop),
            PROPERTY_VALUE_OBJECTS => decode_referred(property.value).map(drop),
            _ => return Ok(!is_all),
        };
        sound.map(|()| true).map_err(|error| error.shifted(at as u64))
    })?;
    Ok(known)
}

#[cfg(test)]
mod tests;
