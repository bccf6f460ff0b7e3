//! What a table says about itself: for people, statistics and later versions. Reading needs value
//! alignment and dictionary only.
//!
//! | id | bytes | property |
//! |---|---|---|
//! | 1 | 8 | entries |
//! | 2 | 8 | entries that delete |
//! | 3 | 8 | bytes of user keys |
//! | 4 | 8 | bytes of values |
//! | 5 | 8 | data blocks |
//! | 6 | 8 | data bytes before compression |
//! | 7 | 8 | smallest sequence number |
//! | 8 | 8 | greatest sequence number |
//! | 9 | 4 | filter bits per key |
//! | 10 | 4 | value alignment in data blocks, a power of two (1: none) |
//! | 11 | 1 | compression asked for |
//! | 12 | 4 | keyspace |
//! | 13 | 8 | seconds since the Unix epoch of the oldest data |
//! | 14 | 12 | where the block of range deletes lies: offset u64, length u32; missing without any |
//! | 15 | | the merge operator of its operands, `name@version`; of tables that were made outside of a database |
//! | 16 | 8 | keys whose newest entry in the table is a value that stays |
//! | 17 | | entries of each partition: u32 each, in their order; missing where they are more than 4,096 |
//! | 20 | | dictionary of ZSTD, with which data blocks may be compressed; none for no bytes |
//!
//! Value alignment, range deletes, operator and dictionary are critical. An id that this version
//! does not know is skipped, unless it is critical.

use bytes::Bytes;

use crate::block::VALUE_ALIGNMENT_MAX;
use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::property::{Property, put_property, read_properties};
use crate::stored::BlockHandle;

const VALUE_ALIGNMENT: u16 = 10;
const RANGES: u16 = 14;
const OPERATOR: u16 = 15;
const DICTIONARY: u16 = 20;

const VALUES: u16 = 16;
const PARTITION_ENTRIES: u16 = 17;

/// Most partitions of which a table says how many entries they hold.
pub(super) const COUNTED_PARTITIONS_MAX: usize = 4096;

/// Most bytes of the name of an operator with its version.
const OPERATOR_BYTES_MAX: usize = 128;

/// What a table says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that delete.
    pub deletes: u64,
    /// Bytes of all user keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of all data blocks before compression.
    pub raw_data_bytes: u64,
    /// Smallest sequence number.
    pub first_sequence: u64,
    /// Greatest sequence number.
    pub last_sequence: u64,
    /// Filter bits per key; 0 without filters.
    pub filter_bits_per_key: u32,
    /// Alignment of values in data blocks; 1 is none.
    pub value_alignment: u32,
    /// The compression asked for, as its byte.
    pub compression: u8,
    /// The keyspace it was written for.
    pub keyspace: u32,
    /// When its oldest data was written.
    pub oldest_unix_seconds: u64,
    /// The dictionary with which data blocks may be compressed; empty for none.
    pub dictionary: Bytes,
    /// Where the block of range deletes lies, if there is one.
    pub ranges: Option<BlockHandle>,
    /// The merge operator of its operands, where the table says it; else empty.
    pub operator: String,
    /// Keys whose newest entry in it is a value that stays.
    pub values: u64,
    /// Entries of each partition, in their order; empty where the table does not say it.
    pub partition_entries: Box<[u32]>,
}

impl Properties {
    /// The properties' bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |id: u16, value: &[u8]| {
            put_property(
                &mut out,
                Property {
                    id,
                    is_critical: [VALUE_ALIGNMENT, RANGES, OPERATOR, DICTIONARY].contains(&id),
                    value,
                },
            );
        };
        let words = [
            self.entries,
            self.deletes,
            self.key_bytes,
            self.value_bytes,
            self.data_blocks,
            self.raw_data_bytes,
            self.first_sequence,
            self.last_sequence,
        ];
        for (id, word) in (1..).zip(words) {
            put(id, &word.to_le_bytes());
        }
        put(9, &self.filter_bits_per_key.to_le_bytes());
        put(VALUE_ALIGNMENT, &self.value_alignment.to_le_bytes());
        put(11, &[self.compression]);
        put(12, &self.keyspace.to_le_bytes());
        put(13, &self.oldest_unix_seconds.to_le_bytes());
        if let Some(ranges) = self.ranges {
            put(RANGES, &ranges.encode());
        }
        if !self.operator.is_empty() {
            put(OPERATOR, self.operator.as_bytes());
        }
        put(VALUES, &self.values.to_le_bytes());
        if !self.partition_entries.is_empty() {
            let counts: Vec<u8> =
                self.partition_entries.iter().flat_map(|entries| entries.to_le_bytes()).collect();
            put(PARTITION_ENTRIES, &counts);
        }
        if !self.dictionary.is_empty() {
            put(DICTIONARY, &self.dictionary);
        }
        out
    }

    /// Reads properties.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for a value alignment that this version cannot read, and for a critical
    /// property that it does not know.
    pub fn decode(bytes: &[u8]) -> Result<Properties> {
        let mut properties = Properties { value_alignment: 1, ..Properties::default() };
        read_properties(bytes, |property, at| {
            properties.set(property.id, property.value).map_err(|error| error.shifted(at as u64))
        })?;
        Ok(properties)
    }

    /// Takes a property; whether this version knows it.
    fn set(&mut self, id: u16, value: &[u8]) -> Result<bool> {
        let mut reader = Reader::new(value);
        match id {
            1 => self.entries = reader.u64()?,
            2 => self.deletes = reader.u64()?,
            3 => self.key_bytes = reader.u64()?,
            4 => self.value_bytes = reader.u64()?,
            5 => self.data_blocks = reader.u64()?,
            6 => self.raw_data_bytes = reader.u64()?,
            7 => self.first_sequence = reader.u64()?,
            8 => self.last_sequence = reader.u64()?,
            9 => self.filter_bits_per_key = reader.u32()?,
            VALUE_ALIGNMENT => self.value_alignment = reader.u32()?,
            11 => self.compression = reader.u8()?,
            12 => self.keyspace = reader.u32()?,
            13 => self.oldest_unix_seconds = reader.u64()?,
            OPERATOR => {
                let name = std::str::from_utf8(value).ok().filter(|name| name.len() <= OPERATOR_BYTES_MAX);
                let Some(name) = name else {
                    let expected = format!("the name of an operator, of at most {OPERATOR_BYTES_MAX} bytes");
                    return Err(FormatError::damaged(0, expected, format!("{} bytes", value.len())));
                };
                name.clone_into(&mut self.operator);
                return Ok(true);
            }
            VALUES => self.values = reader.u64()?,
            PARTITION_ENTRIES => {
                let (counts, rest) = value.as_chunks::<4>();
                if !rest.is_empty() || counts.len() > COUNTED_PARTITIONS_MAX {
                    let expected = format!("counts of at most {COUNTED_PARTITIONS_MAX} partitions");
                    return Err(FormatError::damaged(0, expected, format!("{} bytes", value.len())));
                }
                self.partition_entries = counts.iter().map(|count| u32::from_le_bytes(*count)).collect();
                return Ok(true);
            }
            DICTIONARY => {
                self.dictionary = Bytes::copy_from_slice(value);
                return Ok(true);
            }
            RANGES => self.ranges = Some(BlockHandle { offset: reader.u64()?, length: reader.u32()? }),
            _ => return Ok(false),
        }
        if !self.value_alignment.is_power_of_two() || self.value_alignment > VALUE_ALIGNMENT_MAX {
            return Err(FormatError::newer(0, format!("values aligned to {} bytes", self.value_alignment)));
        }
        reader.end()?;
        Ok(true)
    }
}
