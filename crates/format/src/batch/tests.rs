use proptest::prelude::*;

use super::*;

fn tables() -> Vec<(TableName, u32)> {
    vec![(TableName { epoch: 7, random: 1 << 60 }, 3), (TableName { epoch: 8, random: 2 }, 1)]
}

fn sample() -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    batch.push(EntryKind::Put, 1, b"key", b"value").unwrap();
    batch.push(EntryKind::Delete, 2, b"", b"").unwrap();
    let options = KeyspaceOptions::of([("compression".into(), "lz4".into())]);
    batch.push_create_keyspace(3, "orders", 9, &options).unwrap();
    batch.push_drop_keyspace(4).unwrap();
    batch.push_ingest(&tables()).unwrap();
    batch.push_exchange(5).unwrap();
    batch.push_cut(&[(1, SequenceNumber(7)), (255, SequenceNumber(1 << 50))]).unwrap();
    batch.finish()
}

fn decode(payload: &[u8]) -> Result<Vec<Operation<'_>>> {
    Operations::new(payload)?.collect()
}

#[test]
fn operations_round_trip() {
    let payload = sample();
    let operations = decode(&payload).unwrap();
    assert_eq!(operations.len(), 7);
    let reached = vec![(1, SequenceNumber(7)), (255, SequenceNumber(1 << 50))];
    assert_eq!(operations[6], Operation::Cut { reached });
    assert_eq!(operations[4], Operation::Ingest { tables: tables() });
    assert_eq!(operations[5], Operation::Exchange { keyspace: 5 });
    assert_eq!(
        operations[0],
        Operation::Entry { kind: EntryKind::Put, keyspace: 1, key: b"key", value: b"value" }
    );
    assert_eq!(
        operations[1],
        Operation::Entry { kind: EntryKind::Delete, keyspace: 2, key: b"", value: b"" }
    );
    let options = KeyspaceOptions::of([("compression".into(), "lz4".into())]);
    assert_eq!(operations[2], Operation::CreateKeyspace { keyspace: 3, name: "orders", stream: 9, options });
    assert_eq!(operations[3], Operation::DropKeyspace { keyspace: 4 });
}

#[test]
fn a_batch_is_the_bytes_of_its_table() {
    let mut batch = BatchBuilder::new();
    batch.push(EntryKind::Put, 0x0102, b"k", b"vw").unwrap();
    let golden = [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 2, 1, 0, 0, 2, 0, 0, 0, b'k', b'v', b'w'];
    assert_eq!(batch.finish(), golden);
    assert_eq!((BATCH_HEADER_BYTES, OPERATION_HEADER_BYTES), (8, 12));
}

#[test]
fn appending_joins_batches_in_order() {
    let mut first = BatchBuilder::new();
    first.push(EntryKind::Put, 0, b"a", b"1").unwrap();
    let mut second = BatchBuilder::with_capacity(100);
    second.push(EntryKind::Delete, 0, b"b", b"").unwrap();
    first.append(&second).unwrap();
    assert_eq!((first.count(), first.operations().count()), (2, 2));
    second.clear();
    assert!(second.is_empty() && second.operations().next().is_none());
    assert_eq!(second.payload_bytes(), BATCH_HEADER_BYTES);
    let joined = first.finish();
    assert_eq!(decode(&joined).unwrap().len(), 2);
}

#[test]
fn limits_leave_the_batch_unchanged() {
    let mut batch = BatchBuilder::new();
    batch.push(EntryKind::Put, 0, b"a", b"1").unwrap();
    let before = batch.clone().finish();
    assert!(matches!(
        batch.push(EntryKind::Put, 0, &vec![0; KEY_BYTES_MAX + 1], b""),
        Err(FormatError::Limit { .. })
    ));
    assert!(batch.push_create_keyspace(1, &"n".repeat(256), 0, &KeyspaceOptions::default()).is_err());
    let long = KeyspaceOptions::of([("n".into(), "v".repeat(5000))]);
    assert!(batch.push_create_keyspace(1, "n", 0, &long).is_err());
    assert_eq!(batch.finish(), before);
}

#[test]
fn every_truncation_is_an_error() {
    let payload = sample();
    for length in 0..payload.len() {
        assert!(decode(&payload[..length]).is_err(), "{length} bytes");
    }
    let mut longer = payload;
    longer.push(0);
    assert!(decode(&longer).is_err());
}

#[test]
fn unknown_kinds_and_flags_are_newer() {
    let payload = sample();
    for (at, value) in [(0, 3), (1, 1), (8, 12), (8, 15), (8, 66), (8, 200), (9, 1)] {
        let mut payload = payload.clone();
        payload[at] = value;
        assert!(matches!(decode(&payload), Err(FormatError::Newer { .. })), "byte {at} = {value}");
    }
    let mut payload = payload;
    payload[8] = 0;
    assert!(matches!(decode(&payload), Err(FormatError::Damaged { .. })));
}

proptest! {
    #[test]
    fn any_bytes_end_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn flipped_payloads_end_without_panic(at in 0usize..100, bit in 0u8..8) {
        let mut payload = sample();
        let at = at % payload.len();
        payload[at] ^= 1 << bit;
        let _ = decode(&payload);
    }
}

#[test]
fn a_single_entry_is_a_batch_of_one() {
    for (kind, key, value) in [
        (EntryKind::Put, &b"key"[..], &b"value"[..]),
        (EntryKind::Delete, b"", b""),
        (EntryKind::Put, &[7; 70], &[8; 70_000]),
    ] {
        let mut batch = BatchBuilder::new();
        batch.push(kind, 9, key, value).unwrap();
        let payload = [&single_head(kind, 9, key, value).unwrap()[..], key, value].concat();
        assert_eq!(decode(&payload).unwrap(), decode(batch.payload()).unwrap());
        assert_eq!(Operations::new(&payload).unwrap().remaining(), 1);
        for length in 0..SINGLE_HEAD_BYTES + key.len() {
            assert!(decode(&payload[..length]).is_err(), "{length} bytes");
        }
    }
    let payload = [&single_head(EntryKind::Put, 0x0102, b"k", b"vw").unwrap()[..], b"kvw"].concat();
    assert_eq!(payload, [2, 1, 1, 0, 2, 1, 0, 0, b'k', b'v', b'w'], "the bytes of its table");
    let with_kind = |kind: u8| [&[2, kind][..], &payload[2..]].concat();
    assert!(matches!(decode(&with_kind(0)), Err(FormatError::Damaged { .. })));
    assert!(matches!(decode(&with_kind(200)), Err(FormatError::Newer { .. })));
    assert_eq!(decode(&with_kind(13)), Err(FormatError::newer(1, "an entry of kind 13")));
    assert!(single_head(EntryKind::Put, 0, &[0; KEY_BYTES_MAX + 1], b"").is_err());
}

#[test]
fn a_range_delete_names_some_keys() {
    let mut batch = BatchBuilder::new();
    batch.push(EntryKind::RangeDelete, 1, b"a", b"c").unwrap();
    let read = batch.operations().next().unwrap().unwrap();
    let expected = Operation::Entry { kind: EntryKind::RangeDelete, keyspace: 1, key: b"a", value: b"c" };
    assert_eq!(read, expected);
    for (from, to) in [(&b"a"[..], &b"a"[..]), (b"b", b"a"), (b"", b""), (b"a", &[b'b'; KEY_BYTES_MAX + 1])] {
        let refused = batch.push(EntryKind::RangeDelete, 1, from, to);
        assert!(matches!(refused, Err(FormatError::Limit { .. })), "{refused:?}");
        assert!(single_head(EntryKind::RangeDelete, 1, from, to).is_err());
    }
    assert_eq!(batch.count(), 1);
    // Nobody writes such a one: it is damage.
    let mut payload = batch.finish();
    let end = payload.len() - 1;
    payload[end] = b'a';
    let read = Operations::new(&payload).unwrap().next().unwrap();
    assert!(matches!(read, Err(FormatError::Damaged { .. })), "{read:?}");
}
