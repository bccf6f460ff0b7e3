use super::*;
use crate::error::FormatError;

fn identity() -> UnitIdentity {
    UnitIdentity { device: 7 << 64 | 9, generation: 3, number: 4, zone: 1, block: 12 }
}

fn records() -> Vec<ZoneRecord> {
    let extents = vec![
        Extent { zone: 5, block: 6, bytes: 7000, hash: 8 },
        Extent { zone: 9, block: 0, bytes: 1, hash: 10 },
    ];
    vec![
        ZoneRecord::Body {
            body: 1,
            length: 7001,
            kind: 0,
            level: 2,
            life: 1,
            age_seconds: 60,
            born: 99,
            extents: extents.clone(),
        },
        ZoneRecord::Name { name: "a/b".into(), body: 1 },
        ZoneRecord::NameGone { name: "a/b".into() },
        ZoneRecord::Moved { body: 1, extents },
        ZoneRecord::LogZone { zone: 3, generation: 4 },
        ZoneRecord::LogZoneEnded { zone: 3, generation: 4, blocks: 17 },
        ZoneRecord::LogZoneFree { zone: 3, generation: 4 },
        ZoneRecord::Lane { lane: 2, life: 3, epoch: 4, number: 5 },
        ZoneRecord::LaneSealed { lane: 2, end: 800 },
        ZoneRecord::LaneFree { lane: 2 },
        ZoneRecord::Learned { kind: 0, level: 1, life: 2, mean: 3, samples: 4 },
        ZoneRecord::Clock { written: 5, next: 6 },
    ]
}

fn encoded(records: &[ZoneRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let before = out.len();
        encode_record(&mut out, record);
        assert_eq!(out.len() - before, record_bytes(record), "{record:?}");
    }
    out
}

#[test]
fn records_come_back() {
    let payload = encoded(&records());
    assert_eq!(decode_records(&payload), Ok(records()));
    for cut in 1..payload.len() {
        // Cut between two records it is another list; within one it is damage.
        if let Ok(fewer) = decode_records(&payload[..cut]) {
            assert_eq!(encoded(&fewer), payload[..cut]);
        }
    }
    assert!(matches!(decode_records(&[99]), Err(FormatError::Newer { .. })));
}

#[test]
fn a_unit_is_found_whole_and_in_its_place_or_not_at_all() {
    let payload = encoded(&records());
    let bytes = encode_unit(identity(), UnitKind::Transaction, &payload, 4096);
    assert_eq!(bytes.len(), unit_bytes(payload.len(), 4096));
    let unit = Unit::decode(&bytes).expect("whole");
    assert_eq!((unit.identity, unit.kind, unit.payload), (identity(), UnitKind::Transaction, &payload[..]));
    assert_eq!(Unit::payload_bytes(&bytes), Ok(payload.len()));
    for at in 0..UNIT_HEADER_BYTES + payload.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(Unit::decode(&damaged).is_err(), "byte {at}");
    }
    assert!(Unit::decode(&bytes[..UNIT_HEADER_BYTES + payload.len() - 1]).is_err());
}

#[test]
fn superblocks_come_back_and_newer_ones_are_told() {
    let superblock = Superblock {
        block_bytes: 4096,
        zone_bytes: 4 << 20,
        zones: 64,
        metadata_zones: 3,
        finish_percent: 5,
        formatted_ms: 1,
        label: "orders".into(),
    };
    let bytes = superblock.encode();
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    for (at, is_newer) in [(0, true), (4, true), (8, false), (20, false)] {
        let mut other = bytes.clone();
        other[at] = 77;
        let found = Superblock::decode(&other);
        assert_eq!(matches!(found, Err(FormatError::Newer { .. })), is_newer, "byte {at}: {found:?}");
    }
}

#[test]
fn batches_and_entries_come_back() {
    let parts: [&[u8]; 2] = [b"one ", b"operation"];
    let header = encode_entry_header(3, 4, 5, &parts);
    let mut lane = header.to_vec();
    lane.extend_from_slice(&parts.concat());
    lane.resize(lane.len().next_multiple_of(8), 0);
    let entry = decode_entry(&lane, 100).expect("sound").expect("whole");
    assert_eq!((entry.stream, entry.count, entry.first_sequence), (3, 4, 5));
    assert_eq!((entry.payload, entry.bytes), (&parts.concat()[..], lane.len()));
    assert_eq!(decode_entry(&lane[..lane.len() - 1], 100), Ok(None));
    assert!(decode_entry(&lane, 12).is_err(), "too long");
    lane[30] ^= 1;
    assert!(decode_entry(&lane, 100).is_err(), "damaged");

    let mut payload = encode_batch_head(17).to_vec();
    for (number, at, bytes) in [(1, 0, &b"abc"[..]), (2, 8, b"d")] {
        payload.extend_from_slice(&encode_fragment_header(number, at, bytes.len() as u32));
        payload.extend_from_slice(bytes);
    }
    let (durable, fragments) = decode_batch(&payload).expect("sound");
    assert_eq!(durable, 17);
    let found: Vec<_> =
        fragments.iter().map(|fragment| (fragment.lane, fragment.at, fragment.bytes)).collect();
    assert_eq!(found, [(1, 0, &b"abc"[..]), (2, 8, b"d")]);
    assert_eq!(&payload[fragments[1].offset..], b"d");
    payload.extend_from_slice(&encode_fragment_header(1, 3, 0));
    assert!(decode_batch(&payload).is_err(), "an empty fragment");
}

#[test]
fn emulated_devices_come_back() {
    let header = EmulatedHeader {
        block_bytes: 4096,
        zone_bytes: 4 << 20,
        capacity_bytes: 3 << 20,
        zones: 100,
        open_max: 8,
        active_max: 12,
    };
    let bytes = header.encode();
    assert_eq!(EmulatedHeader::decode(&bytes), Ok(header));
    assert_eq!(header.zone_offset(1) - header.zone_offset(0), header.zone_bytes);
    assert!(header.zone_offset(0) >= header.slot_offset(100));
    let slot = ZoneSlot { zone: 3, state: 14, pointer: 8192 };
    assert_eq!(ZoneSlot::decode(&slot.encode()), Ok(slot));
    for at in 0..EMULATED_HEADER_BYTES {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert!(EmulatedHeader::decode(&damaged).is_err(), "byte {at}");
    }
}
