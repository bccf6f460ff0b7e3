//! Zoned devices: what lies in the zones of one, besides the objects' own bytes.
//!
//! **Unit**: what one write to a metadata or log zone holds; padded with zeros to whole blocks of
//! the device.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLZONE` |
//! | 8 | 4 | checksum of all from byte 12 to the end of the payload |
//! | 12 | 4 | payload bytes |
//! | 16 | 16 | the device's random number, drawn when it was formatted |
//! | 32 | 8 | generation: of the metadata, or of the log zone |
//! | 40 | 8 | number: of the unit in its generation, from 0 |
//! | 48 | 4 | zone |
//! | 52 | 4 | block in the zone |
//! | 56 | 1 | kind |
//! | 57 | 7 | zero |
//! | 64 | | payload |
//!
//! A unit that was moved, or that a reset left behind from an earlier life of its zone, has another
//! identity and is none.
//!
//! **Payload by kind:**
//!
//! | kind | payload |
//! |---|---|
//! | 1: superblock | below; unit 0 of each generation of the metadata |
//! | 2: part of a snapshot | records |
//! | 3: end of the snapshot | 8 records in it, 8 hash of the parts' payloads, one after another |
//! | 4: transaction | records, which take effect together |
//! | 5: end of the generation | 8 the generation that follows |
//! | 6: batch of log | 4 blocks of this zone known to be durable when it was made; then fragments |
//!
//! **Superblock:**
//!
//! | bytes | field |
//! |---|---|
//! | 4 | version (1) |
//! | 4 | features that a reader must know (0) |
//! | 4 | bytes of a block |
//! | 8 | bytes of a zone |
//! | 4 | zones |
//! | 4 | of these, the first so many are for metadata |
//! | 1 | a zone with less than so many percent left is finished |
//! | 8 | when it was formatted, in milliseconds since 1970 |
//! | 4 + text | label |
//!
//! **Fragment** of a lane's bytes, in a batch:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | lane |
//! | 8 | place in the lane |
//! | 4 + bytes | the bytes |
//!
//! **Entry** in a lane's bytes, padded with zeros to 8 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | checksum of all from byte 4 to the end of the payload |
//! | 4 | 4 | payload bytes |
//! | 8 | 4 | stream |
//! | 12 | 4 | count: sequence numbers taken |
//! | 16 | 8 | first sequence number |
//! | 24 | | the operations |
//!
//! **Record**: its kind in one byte, then:
//!
//! | kind | fields |
//! |---|---|
//! | 1: body | 8 number, 8 length, 1 kind, 1 level, 1 life, 8 age in seconds, 8 born (bytes written to the device before it), 4 extents, each 4 zone, 4 block, 8 bytes, 8 hash |
//! | 2: name | 4 + text name, 8 body |
//! | 3: name gone | 4 + text name |
//! | 4: body moved | 8 number, 4 extents, each as above |
//! | 5: log zone | 4 zone, 8 generation |
//! | 6: log zone ended | 4 zone, 8 generation, 4 blocks that hold batches |
//! | 7: log zone free | 4 zone, 8 generation |
//! | 8: lane | 8 lane, 8 life, 8 epoch, 4 number |
//! | 9: lane sealed | 8 lane, 8 end |
//! | 10: lane free | 8 lane |
//! | 11: learned | 1 kind, 1 level, 1 life, 8 mean life in bytes written, 4 samples |
//! | 12: clock | 8 bytes written to the device, 8 next number |
//!
//! **Emulated device**: a file. Block 0 is its header, zones × 64 bytes of states follow, then the
//! zones, from the next multiple of a zone's bytes on.
//!
//! | offset | bytes | field of the header |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLZEMU` |
//! | 8 | 4 | checksum of bytes 12 to 52 |
//! | 12 | 4 | version (1) |
//! | 16 | 4 | bytes of a block |
//! | 20 | 8 | bytes of a zone |
//! | 28 | 8 | of these, bytes that can be written |
//! | 36 | 4 | zones |
//! | 40 | 4 | zones that may be open at once; 0: any number |
//! | 44 | 4 | zones that may be active at once; 0: any number |
//! | 48 | 4 | zero |
//!
//! | offset | bytes | field of a zone's state |
//! |---|---|---|
//! | 0 | 4 | checksum of bytes 4 to 24 |
//! | 4 | 4 | zone |
//! | 8 | 1 | state |
//! | 9 | 7 | zero |
//! | 16 | 8 | write pointer, in bytes of the zone |

mod emulated;
mod record;
mod unit;

#[cfg(test)]
mod tests;

pub use emulated::{EMULATED_HEADER_BYTES, EMULATED_MAGIC, EmulatedHeader, ZONE_SLOT_BYTES, ZoneSlot};
pub use record::{
    EXTENTS_MAX, Extent, RECORD_NAME_BYTES_MAX, ZoneRecord, decode_records, encode_record, record_bytes,
};
pub use unit::{
    ENTRY_HEADER_BYTES, FRAGMENT_HEADER_BYTES, Fragment, LABEL_BYTES_MAX, Superblock, UNIT_HEADER_BYTES,
    UNIT_MAGIC, UNIT_PAYLOAD_BYTES_MAX, Unit, UnitIdentity, UnitKind, ZONED_VERSION, ZonedEntry,
    decode_batch, decode_entry, decode_snapshot_end, encode_batch_head, encode_entry_header,
    encode_fragment_header, encode_snapshot_end, encode_unit, unit_bytes,
};
