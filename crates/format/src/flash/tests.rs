use super::*;

fn key(number: u64) -> FlashKey {
    FlashKey { table: TableName { epoch: number, random: number << 32 }, offset: number * 7 }
}

/// A sealed region with pieces of 1, 2, … bytes.
fn region(id: u64, count: u32) -> (Vec<u8>, Vec<FlashRecord>) {
    let mut bytes = RegionHeader { id, number: 9 }.encode().to_vec();
    let mut records = Vec::new();
    for number in 0..count {
        let record = FlashRecord { at: bytes.len() as u32, length: number + 1, key: key(u64::from(number)) };
        bytes.extend_from_slice(&record.encode(id));
        bytes.extend(std::iter::repeat_n(number as u8, number as usize + 1));
        records.push(record);
    }
    let end = encode_region_end(id, bytes.len() as u64, &records);
    assert_eq!(end.len(), region_end_bytes(records.len()));
    bytes.extend_from_slice(&end);
    (bytes, records)
}

fn read(bytes: &[u8], id: u64) -> Result<Vec<FlashRecord>> {
    let footer = bytes.last_chunk::<REGION_FOOTER_BYTES>().unwrap();
    let footer = RegionFooter::decode(footer, id, bytes.len() as u64)?;
    footer.records(&bytes[footer.index_offset as usize..bytes.len() - REGION_FOOTER_BYTES], id)
}

#[test]
fn a_sealed_region_tells_its_records() {
    for count in [0, 1, 5] {
        let (bytes, records) = region(7, count);
        assert_eq!(RegionHeader::decode(&bytes), Ok(RegionHeader { id: 7, number: 9 }));
        assert_eq!(read(&bytes, 7), Ok(records.clone()));
        for record in records {
            assert_eq!(FlashRecord::decode(&bytes[record.at as usize..], 7, record.at), Ok(record));
        }
    }
}

#[test]
fn every_damaged_byte_outside_the_pieces_is_noticed() {
    let (bytes, records) = region(7, 3);
    let end = records.last().unwrap().end() as usize;
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        if at < REGION_HEADER_BYTES {
            assert!(RegionHeader::decode(&bad).is_err(), "byte {at}");
        } else if at >= end {
            assert!(read(&bad, 7).is_err(), "byte {at}");
        }
        for record in &records {
            let start = record.at as usize;
            if (start..start + FLASH_RECORD_BYTES).contains(&at) {
                assert!(FlashRecord::decode(&bad[start..], 7, record.at).is_err(), "byte {at}");
            }
        }
    }
}

#[test]
fn what_is_of_another_region_or_place_is_refused() {
    let (bytes, records) = region(7, 2);
    assert!(read(&bytes, 8).is_err());
    assert!(read(&bytes[..bytes.len() - 1], 7).is_err());
    let record = records[1];
    let header = &bytes[record.at as usize..];
    assert!(FlashRecord::decode(header, 8, record.at).is_err());
    assert!(FlashRecord::decode(header, 7, record.at + 1).is_err());
    assert!(FlashRecord::decode(&header[..FLASH_RECORD_BYTES - 1], 7, record.at).is_err());
}

#[test]
fn a_newer_region_is_told_from_a_damaged_one() {
    let mut bytes = RegionHeader { id: 1, number: 2 }.encode();
    bytes[8] = 2;
    let checksum = crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(RegionHeader::decode(&bytes), Err(FormatError::Newer { .. })));
}

#[test]
fn an_index_with_gaps_is_refused() {
    let record = |at: u32, number: u64| FlashRecord { at, length: 4, key: key(number) };
    let end = 64 + 2 * 40;
    for records in
        [[record(64, 1), record(105, 2)], [record(104, 1), record(64, 2)], [record(64, 1), record(64, 1)]]
    {
        let mut bytes = vec![0; end];
        bytes.extend_from_slice(&encode_region_end(3, end as u64, &records));
        assert!(read(&bytes, 3).is_err());
    }
}
