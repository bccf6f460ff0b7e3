use proptest::prelude::*;

use super::*;
use crate::compression::Compression;
use crate::key::{EntryKind, Trailer};

type Owned = (Vec<u8>, u64, Vec<u8>);

const IDENTITY: u64 = 0x7ab1e;

fn options(compression: Compression) -> TableOptions {
    TableOptions { block_bytes: 256, partition_bytes: 128, compression, ..TableOptions::default() }
}

fn build(entries: &[Owned], options: TableOptions) -> (Bytes, TableSummary) {
    let mut builder = TableBuilder::new(options, IDENTITY);
    let mut bytes = Vec::new();
    for (user_key, sequence, value) in entries {
        let kind = if value.is_empty() { EntryKind::Delete } else { EntryKind::Put };
        builder.add(user_key, SequenceNumber(*sequence), kind, value).unwrap();
        if builder.output_bytes() > 300 {
            bytes.extend_from_slice(&builder.take_output());
        }
    }
    let (end, summary) = builder.finish().unwrap();
    bytes.extend_from_slice(&end);
    assert_eq!(bytes.len() as u64, summary.table_bytes);
    (bytes.into(), summary)
}

fn many(count: usize) -> Vec<Owned> {
    (0..count)
        .map(|index| {
            (format!("key-{index:06}").into_bytes(), 1 + index as u64, format!("value {index}").into_bytes())
        })
        .collect()
}

fn read_all(bytes: &Bytes) -> Result<Vec<Owned>> {
    let top = Top::decode(bytes, bytes.len() as u64, IDENTITY)?;
    let mut entries = Vec::new();
    verify(bytes, &top, |key, value| {
        entries.push((key.user_key.to_vec(), key.trailer.sequence().0, value.to_vec()));
        Ok(())
    })?;
    Ok(entries)
}

#[test]
fn a_footer_is_the_bytes_of_its_table() {
    let top_index = BlockHandle { offset: 300, length: 40 };
    let footer = Footer {
        identity: 0x11,
        table_bytes: 446,
        data_end: 200,
        top_index,
        properties_bytes: 10,
        features: 0,
    };
    let bytes = footer.encode();
    assert_eq!(FOOTER_BYTES, 96);
    for (at, value) in [(0, 0x11), (8, 446), (16, 200), (24, 300)] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(value), "offset {at}");
    }
    assert_eq!((bytes[32], bytes[36], bytes[80]), (40, 10, 1));
    assert!(bytes[40..80].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[84..88], crc32c(&bytes[..84]).to_le_bytes());
    assert_eq!(&bytes[88..], b"TMBLOTAB");
    assert_eq!(Footer::decode(&bytes), Ok(footer));
}

#[test]
fn newer_footers_are_told_from_damaged_ones() {
    let top_index = BlockHandle { offset: 300, length: 40 };
    let bytes = Footer {
        identity: 0x11,
        table_bytes: 446,
        data_end: 200,
        top_index,
        properties_bytes: 10,
        features: 0,
    }
    .encode();
    for at in 0..FOOTER_BYTES {
        let mut flipped = bytes;
        flipped[at] ^= 2;
        assert!(matches!(Footer::decode(&flipped), Err(FormatError::Damaged { .. })), "byte {at}");
    }
    // A bit of no kind, and that of a kind that is kept free; the version.
    for (at, value, field) in [(40, 2, 40), (41, 1 << 5, 40), (80, 2, 80)] {
        let mut newer = bytes;
        newer[at] = value;
        let checksum = crc32c(&newer[..84]).to_le_bytes();
        newer[84..88].copy_from_slice(&checksum);
        assert!(
            matches!(Footer::decode(&newer), Err(FormatError::Newer { offset, .. }) if offset == field),
            "byte {at}"
        );
    }
}

/// A change of any written byte changes this number, and then needs a feature bit or a
/// version.
#[test]
fn a_table_is_the_same_bytes_for_ever() {
    let (bytes, summary) = build(&many(300), options(Compression::None));
    assert_eq!((summary.table_bytes, summary.tail_bytes, crc32c(&bytes)), GOLDEN);
}

const GOLDEN: (u64, u32, u32) = (6932, 1549, 1_334_043_311);

#[test]
fn tables_round_trip_with_every_compression() {
    let entries = many(2000);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (bytes, summary) = build(&entries, options(compression));
        assert_eq!(read_all(&bytes).as_ref(), Ok(&entries));
        assert_eq!(
            (summary.first_key.as_ref(), summary.last_key.as_ref()),
            (&b"key-000000"[..], &b"key-001999"[..])
        );
        assert_eq!(
            (summary.sequences.first.0, summary.sequences.last.0, summary.properties.entries),
            (1, 2000, 2000)
        );
        let top = Top::decode(
            &bytes.slice(bytes.len() - summary.tail_bytes as usize..),
            summary.table_bytes,
            IDENTITY,
        )
        .unwrap();
        assert_eq!(top.properties, summary.properties);
        assert!(summary.properties.data_blocks > 10);
    }
}

#[test]
fn a_table_of_one_entry_and_of_large_entries_round_trips() {
    for entries in [
        vec![(vec![], 1, vec![])],
        vec![(b"a".to_vec(), 1, vec![1]), (b"b".to_vec(), 2, vec![2; 100_000]), (b"c".to_vec(), 3, vec![3])],
    ] {
        let (bytes, _) = build(&entries, options(Compression::Lz4));
        assert_eq!(read_all(&bytes), Ok(entries));
    }
    assert!(TableBuilder::new(TableOptions::default(), 1).finish().is_none());
}

#[test]
fn memory_is_two_pieces_of_output_and_little_more() {
    let output_bytes = 64 << 10;
    let options = TableOptions { output_bytes, compression: Compression::None, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, IDENTITY);
    let mut taken = 0;
    for (key, sequence, _) in many(4000) {
        builder.add(&key, SequenceNumber(sequence), EntryKind::Put, &[7; 400]).unwrap();
        if builder.wants_output_taken() {
            let (memory, block_filters_and_index) = (builder.memory_bytes(), 100 << 10);
            assert!(
                memory <= 2 * (output_bytes + output_bytes / 8) + block_filters_and_index,
                "{memory} bytes after {taken} pieces"
            );
            assert!((output_bytes..output_bytes + output_bytes / 4).contains(&builder.take_output().len()));
            taken += 1;
        }
    }
    assert!(taken > 10);
}

#[test]
fn many_versions_of_one_key_span_blocks_and_partitions() {
    let entries: Vec<Owned> = (0..500u64)
        .rev()
        .map(|sequence| (b"same".to_vec(), sequence, sequence.to_le_bytes().to_vec()))
        .collect();
    let (bytes, _) = build(&entries, options(Compression::None));
    assert_eq!(read_all(&bytes).as_ref(), Ok(&entries));
}

#[test]
fn a_large_tail_is_fetched_without_its_partitions() {
    let entries: Vec<Owned> =
        (0..60_000).map(|index| (format!("{index:032}").into_bytes(), 1, vec![0; 40])).collect();
    let (bytes, summary) = build(&entries, TableOptions { block_bytes: 64, ..TableOptions::default() });
    let footer = Footer::decode(&bytes).unwrap();
    assert!(summary.table_bytes - footer.data_end > u64::from(TAIL_BYTES_MAX));
    assert_eq!(u64::from(summary.tail_bytes), summary.table_bytes - footer.top_index.offset);
    assert!(
        Top::decode(&bytes.slice(bytes.len() - summary.tail_bytes as usize..), summary.table_bytes, IDENTITY)
            .is_ok()
    );
}

#[test]
#[should_panic(expected = "out of order")]
fn entries_out_of_order_are_a_bug_across_blocks_too() {
    build(&[(b"b".to_vec(), 1, vec![0; 300]), (b"a".to_vec(), 1, vec![])], options(Compression::None));
}

#[test]
fn every_flipped_byte_is_damage() {
    let entries = many(60);
    let (bytes, _) = build(&entries, options(Compression::Lz4));
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x08;
        assert!(matches!(read_all(&flipped.into()), Err(FormatError::Damaged { .. })), "byte {at}");
    }
}

#[test]
fn every_truncation_is_damage() {
    let (bytes, _) = build(&many(60), options(Compression::None));
    for length in 0..bytes.len() {
        let cut = bytes.slice(..length);
        assert!(Top::decode(&cut, length as u64, IDENTITY).is_err(), "{length} bytes");
        assert!(Top::decode(&cut, bytes.len() as u64, IDENTITY).is_err(), "{length} bytes");
    }
    assert!(Top::decode(&bytes, bytes.len() as u64, IDENTITY + 1).is_err(), "another table");
}

#[test]
fn swapped_blocks_are_damage_although_each_is_sound() {
    let entries: Vec<Owned> = (0..8u8).map(|key| (vec![key], 1, vec![key; 40])).collect();
    let (bytes, _) = build(
        &entries,
        TableOptions { block_bytes: 64, compression: Compression::None, ..TableOptions::default() },
    );
    let top = Top::decode(&bytes, bytes.len() as u64, IDENTITY).unwrap();
    let length = top.footer.data_end as usize / 4;
    let mut swapped = bytes.to_vec();
    swapped[..2 * length].rotate_left(length);
    let error = read_all(&swapped.into()).unwrap_err();
    assert!(
        matches!(&error, FormatError::Damaged { expected, .. } if expected.starts_with("checksum")),
        "{error}"
    );
}

/// Counts of keys trust them.
#[test]
fn numbers_that_are_not_so_are_damage() {
    let (bytes, summary) = build(&many(300), options(Compression::None));
    assert_eq!(summary.properties.values, 300);
    let lies: [fn(&mut Properties); 4] = [
        |properties| properties.values -= 1,
        |properties| properties.entries -= 1,
        |properties| properties.partition_entries[0] += 1,
        |properties| properties.partition_entries = properties.partition_entries[1..].into(),
    ];
    for lie in lies {
        let mut top = Top::decode(&bytes, bytes.len() as u64, IDENTITY).unwrap();
        verify(&bytes, &top, |_, _| Ok(())).unwrap();
        lie(&mut top.properties);
        let error = verify(&bytes, &top, |_, _| Ok(())).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "{error}");
    }
    // Deletes are no values, and older versions are none of their own.
    let mut entries = many(9);
    entries[3].2.clear();
    entries.insert(5, (entries[4].0.clone(), 1, b"older".to_vec()));
    let (bytes, summary) = build(&entries, options(Compression::None));
    assert_eq!((summary.properties.values, summary.properties.entries), (8, 10));
    assert_eq!(read_all(&bytes), Ok(entries));
}

#[test]
fn properties_skip_what_they_do_not_know() {
    let properties = Properties { entries: 5, value_alignment: 1, keyspace: 9, ..Properties::default() };
    let mut bytes = properties.encode();
    assert_eq!(bytes[..15], [1, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    let own = bytes.len();
    bytes.extend_from_slice(&[200, 0, 0, 1, 0, 0, 0, 77]);
    assert_eq!(Properties::decode(&bytes), Ok(properties.clone()));
    bytes[own + 2] = 1;
    assert_eq!(Properties::decode(&bytes), Err(FormatError::newer(own, "unknown critical property 200")));
    let merged = Properties { operator: "sum@3".into(), ..properties.clone() };
    assert_eq!(Properties::decode(&merged.encode()), Ok(merged.clone()));
    let long = Properties { operator: "x".repeat(200), ..merged };
    assert!(matches!(Properties::decode(&long.encode()), Err(FormatError::Damaged { .. })));
    let aligned = Properties { value_alignment: 8192, ..properties };
    assert!(matches!(Properties::decode(&aligned.encode()), Err(FormatError::Newer { .. })));
}

proptest! {
    #[test]
    fn random_tables_round_trip(
        mut entries in prop::collection::vec(
            (prop::collection::vec(0u8..4, 0..6), 0u64..4, prop::collection::vec(any::<u8>(), 0..60)),
            1..120
        ),
        block_bytes in 1usize..400,
        partition_bytes in 1usize..200,
        bits in 0u32..12,
    ) {
        entries.sort_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(&left.1)));
        entries.dedup_by(|left, right| left.0 == right.0 && left.1 == right.1);
        let options = TableOptions {
            block_bytes, partition_bytes, filter_bits_per_key: bits, ..TableOptions::default()
        };
        let (bytes, _) = build(&entries, options);
        prop_assert_eq!(read_all(&bytes), Ok(entries));
    }
}

/// Keys of which each block holds one, and neighbours share most: their separators are as long.
#[test]
fn the_top_index_of_long_keys_stays_small() {
    let key = |group: u32, index: u32| [&group.to_be_bytes()[..], &[0; 9992], &index.to_be_bytes()].concat();
    let mut builder = TableBuilder::new(
        TableOptions { compression: Compression::Lz4, ..TableOptions::default() },
        IDENTITY,
    );
    let mut bytes = Vec::new();
    for number in 0..4000 {
        builder.add(&key(number / 8, number % 8), SequenceNumber(1), EntryKind::Put, b"").unwrap();
        bytes.extend_from_slice(&builder.take_output());
    }
    let told = builder.table_bytes();
    let (end, summary) = builder.finish().unwrap();
    bytes.extend_from_slice(&end);
    assert!(told >= summary.table_bytes / 2, "{told} of {} were told", summary.table_bytes);
    assert!(summary.tail_bytes < 4 << 20, "{}", summary.tail_bytes);
    assert_eq!(read_all(&bytes.into()).unwrap().len(), 4000);
}

#[test]
fn a_partition_ends_with_a_large_filter() {
    let options = TableOptions { block_bytes: 1 << 20, filter_bits_per_key: 30, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, IDENTITY);
    let mut bytes = Vec::new();
    for number in 0..2_500_000_u32 {
        builder.add(&number.to_be_bytes(), SequenceNumber(1), EntryKind::Put, b"").unwrap();
        bytes.extend_from_slice(&builder.take_output());
    }
    let (end, summary) = builder.finish().unwrap();
    bytes.extend_from_slice(&end);
    let top = Top::decode(&bytes.into(), summary.table_bytes, IDENTITY).unwrap();
    assert!(
        top.partition_for(InternalKey::new(&[0; 4], Trailer::FIRST))
            != top.partition_for(InternalKey::new(&[0, 38, 0, 0], Trailer::FIRST))
    );
}

/// Rows that have much in common, and little within a block.
fn similar_rows(count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut state = 0x1dea_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let words = ["shipped", "returned", "waiting for payment", "cancelled by customer", "in the warehouse"];
    (0..count)
        .map(|number| {
            let value = format!(
                "{{\"customer\":{},\"state\":\"{}\",\"warehouse\":\"north-{}\",\"amount_in_cents\":{}}}",
                next() % 100_000,
                words[(next() % 5) as usize],
                next() % 10,
                next() % 1_000_000
            );
            (format!("order-{number:08}").into_bytes(), value.into_bytes())
        })
        .collect()
}

fn of_rows(rows: &[(Vec<u8>, Vec<u8>)], dictionary_bytes: usize) -> (Bytes, TableSummary) {
    let options = TableOptions {
        block_bytes: 1 << 10,
        compression: Compression::Zstd,
        dictionary_bytes,
        ..TableOptions::default()
    };
    let mut builder = TableBuilder::new(options, 7);
    let mut bytes = Vec::new();
    for (number, (key, value)) in rows.iter().enumerate() {
        assert_eq!(builder.entries(), number as u64);
        builder.add(key, SequenceNumber(9), EntryKind::Put, value).unwrap();
        assert!(!builder.is_empty());
        if builder.wants_output_taken() {
            bytes.extend_from_slice(&builder.take_output());
        }
    }
    let (last, summary) = builder.finish().unwrap();
    bytes.extend_from_slice(&last);
    (bytes.into(), summary)
}

fn rows_of(bytes: &Bytes, top: &Top) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    verify(bytes, top, |key, value| {
        rows.push((key.user_key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok(rows)
}

#[test]
fn a_dictionary_makes_tables_of_similar_rows_smaller() {
    // Decided while rows come in, and at the end of a table that ends before.
    for count in [20_000, 2_000] {
        let rows = similar_rows(count);
        let (plain, summary) = of_rows(&rows, 0);
        assert!(summary.properties.dictionary.is_empty());
        let (bytes, summary) = of_rows(&rows, 8 << 10);
        assert!(!summary.properties.dictionary.is_empty());
        assert!(bytes.len() * 10 < plain.len() * 9, "{} and {} bytes", bytes.len(), plain.len());
        let top = Top::decode(&bytes, bytes.len() as u64, 7).unwrap();
        assert_eq!(rows_of(&bytes, &top).unwrap(), rows);
        // Without it nothing is read, rather than something wrong.
        let without = Top { dictionary: None, ..top };
        let error = rows_of(&bytes, &without).unwrap_err();
        assert!(error.to_string().contains("dictionary"), "{error}");
    }
}

#[test]
fn a_table_to_which_a_dictionary_brings_nothing_has_none() {
    let few = similar_rows(100);
    assert!(of_rows(&few, 8 << 10).1.properties.dictionary.is_empty(), "too few to learn from");
    let mut state = 1u64;
    let random: Vec<_> = (0..20_000u64)
        .map(|number| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (0..8).flat_map(|turn| (state.rotate_left(turn * 7) ^ state >> 9).to_le_bytes());
            (number.to_be_bytes().to_vec(), value.collect())
        })
        .collect();
    let (bytes, summary) = of_rows(&random, 8 << 10);
    let top = Top::decode(&bytes, bytes.len() as u64, 7).unwrap();
    assert_eq!(rows_of(&bytes, &top).unwrap(), random);
    assert!(summary.properties.dictionary.is_empty() || bytes.len() < 20_000 * 72);
}

#[test]
fn a_damaged_dictionary_gives_no_wrong_rows() {
    let rows = similar_rows(20_000);
    let (bytes, summary) = of_rows(&rows, 8 << 10);
    let mut wrong = summary.properties.dictionary.to_vec();
    let middle = wrong.len() / 2;
    wrong[middle..].iter_mut().for_each(|byte| *byte ^= 0x55);
    let top = Top::decode(&bytes, bytes.len() as u64, 7).unwrap();
    // The properties' checksum keeps this from happening; ZSTD's own checks are not relied upon.
    let forged = Top { dictionary: Dictionary::decode(&wrong).unwrap(), ..top };
    if let Ok(found) = rows_of(&bytes, &forged) {
        assert_ne!(found, rows, "the dictionary is used");
    }
    let long = vec![1; crate::compression::DICTIONARY_BYTES_MAX + 1];
    assert!(Dictionary::decode(&long).is_err());
}

fn ranges(of: &[(&str, &str, u64)]) -> RangeLayers {
    let mut set = crate::ranges::RangeSet::default();
    for (from, to, number) in of {
        set.insert(from.as_bytes(), to.as_bytes(), SequenceNumber(*number));
    }
    RangeLayers::of_stripes(vec![set])
}

fn with_ranges(entries: &[Owned], of: &[(&str, &str, u64)]) -> (Bytes, TableSummary) {
    let mut builder = TableBuilder::new(options(Compression::Lz4), IDENTITY);
    for (user_key, sequence, value) in entries {
        builder.add(user_key, SequenceNumber(*sequence), EntryKind::Put, value).unwrap();
    }
    builder.set_ranges(ranges(of)).unwrap();
    let (bytes, summary) = builder.finish().unwrap();
    assert_eq!(bytes.len() as u64, summary.table_bytes);
    (bytes, summary)
}

#[test]
fn range_deletes_lie_before_the_top_index_and_widen_the_bounds() {
    let entries = many(500);
    let (bytes, summary) = with_ranges(&entries, &[("a", "b", 2000), ("key-000100", "z", 3000)]);
    let top = Top::decode(&bytes, bytes.len() as u64, IDENTITY).unwrap();
    assert_eq!(top.ranges, ranges(&[("a", "b", 2000), ("key-000100", "z", 3000)]));
    assert_eq!(read_all(&bytes).unwrap(), entries);
    assert_eq!((&summary.first_key[..], &summary.last_key[..]), (&b"a"[..], &b"z"[..]));
    let ranges_bytes = top.ranges.encoded_bytes() as u32;
    let said = crate::property::RangeDeletes { count: 2, bytes: ranges_bytes, ends_before_last: true };
    assert_eq!(summary.range_deletes, Some(said));
    assert_eq!(summary.features, EntryKind::RangeDelete.feature());
    assert_eq!((summary.sequences.first.0, summary.sequences.last.0), (1, 3000));
    // A tail that is fetched in part has them still.
    let handle = top.properties.ranges.unwrap();
    let tail = bytes.slice(handle.offset as usize..);
    assert_eq!(Top::decode(&tail, bytes.len() as u64, IDENTITY).unwrap().ranges, top.ranges);
    // An entry at the very end of the ranges is within the table.
    let (_, summary) = with_ranges(&entries, &[("a", "key-000499", 2000)]);
    assert_eq!(summary.range_deletes.map(|ranges| ranges.ends_before_last), Some(false));
}

#[test]
fn a_table_of_range_deletes_alone_reads_back() {
    let (bytes, summary) = with_ranges(&[], &[("b", "f", 5)]);
    let top = Top::decode(&bytes, bytes.len() as u64, IDENTITY).unwrap();
    assert!(top.partitions.is_empty());
    assert_eq!(top.place_for(InternalKey::new(b"c", Trailer::FIRST)), None);
    assert_eq!(read_all(&bytes).unwrap(), []);
    assert_eq!((&summary.first_key[..], &summary.last_key[..]), (&b"b"[..], &b"f"[..]));
    assert_eq!(summary.properties.entries, 0);
}

/// Every byte of the block and of what says where it lies.
#[test]
fn damaged_range_deletes_are_refused() {
    let (bytes, _) = with_ranges(&many(3), &[("b", "f", 5), ("g", "h", 6)]);
    let top = Top::decode(&bytes, bytes.len() as u64, IDENTITY).unwrap();
    let handle = top.properties.ranges.unwrap();
    for at in handle.offset..handle.end() {
        let mut wrong = bytes.to_vec();
        wrong[at as usize] ^= 1;
        let wrong = Bytes::from(wrong);
        assert!(Top::decode(&wrong, wrong.len() as u64, IDENTITY).is_err(), "byte {at}");
    }
}
