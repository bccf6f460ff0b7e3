use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Owned {
    event: Event<'static>,
    key: Vec<u8>,
    end: Vec<u8>,
    value: Vec<u8>,
}

impl Owned {
    fn event(&self) -> Event<'_> {
        Event { key: &self.key, end: &self.end, value: &self.value, ..self.event }
    }
}

fn events() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = || proptest::collection::vec(0..4_u8, 0..9);
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>());
    let one = (numbers, 0..Asked::ALL.len(), 0..3_u8, any::<bool>(), bytes(), bytes(), bytes());
    let one = one.prop_map(|(numbers, asked, found, joined, key, end, value)| {
        let (time_ns, latency_ns, ttl_ms, keyspace, entries, value_bytes) = numbers;
        let found = [Found::Unknown, Found::Yes, Found::No][usize::from(found)];
        let event = Event {
            latency_ns,
            ttl_ms,
            entries,
            value_bytes,
            found,
            joined,
            thread: entries / 2,
            blocks_read: keyspace / 3,
            blocks_hit: value_bytes / 3,
            ..Event::new(time_ns, Asked::ALL[asked], keyspace, &[])
        };
        Owned { event, key, end, value }
    });
    proptest::collection::vec(one, 0..50)
}

#[test]
fn keys_ends_and_values_of_zeros_come_back() {
    let zeros = [0; 3];
    let event = Event { end: &zeros[..2], value: &zeros[..1], ..Event::new(1, Asked::Put, 2, &zeros) };
    let mut builder = BlockBuilder::default();
    builder.push(&event).unwrap();
    let bytes = builder.finish();
    let head = TraceFrame::decode(&bytes).unwrap();
    let mut block = EventBlock::default();
    block.decode(&head, &bytes[TRACE_FRAME_BYTES..]).unwrap();
    assert_eq!(block.iter().collect::<Vec<_>>(), [event]);
}

proptest! {
    #[test]
    fn events_come_back_as_they_were(events in events()) {
        let mut builder = BlockBuilder::default();
        for _ in 0..2 {
            events.iter().for_each(|owned| builder.push(&owned.event()).unwrap());
            let bytes = builder.finish();
            let head = TraceFrame::decode(&bytes).unwrap();
            let payload = &bytes[TRACE_FRAME_BYTES..];
            prop_assert_eq!(head.payload_bytes as usize, payload.len());
            head.check(payload).unwrap();
            let mut block = EventBlock::default();
            block.decode(&head, payload).unwrap();
            prop_assert_eq!(block.len(), events.len());
            for (read, owned) in block.iter().zip(&events) {
                prop_assert_eq!(read, owned.event());
            }
        }
    }

    #[test]
    fn a_changed_byte_is_noticed(events in events(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut builder = BlockBuilder::default();
        events.iter().for_each(|owned| builder.push(&owned.event()).unwrap());
        let mut bytes = builder.finish();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let checked = TraceFrame::decode(&bytes).and_then(|head| head.check(&bytes[TRACE_FRAME_BYTES..]));
        prop_assert!(checked.is_err(), "byte {}", at);
    }
}

#[test]
fn what_surrounds_the_events_comes_back() {
    let header = Header {
        start_unix_ns: 7,
        sampled_one_in: 64,
        keys: TracedKeys::Anonymised,
        has_values: true,
        is_of_blocks: false,
        origin: "orders".to_owned(),
    };
    let payload = |bytes: &[u8]| {
        let head = TraceFrame::decode(bytes).unwrap();
        head.check(&bytes[TRACE_FRAME_BYTES..]).unwrap();
        bytes[TRACE_FRAME_BYTES..].to_vec()
    };
    assert_eq!(Header::decode(&payload(&header.encode())), Ok(header));
    assert_eq!(decode_name(&payload(&encode_name(3, "größe"))), Ok((3, "größe".to_owned())));
    let entry = IndexEntry { offset: 40, first_ns: 1, last_ns: 9, events: 2 };
    assert_eq!(decode_index(&payload(&encode_index(&[entry, entry]))), Ok(vec![entry, entry]));
    let end = End { index_offset: 1, events: 2, dropped: 3 };
    let bytes = end.encode();
    assert_eq!((End::decode(&payload(&bytes)), bytes.len()), (Ok(end), TRACE_END_BYTES));
}

#[test]
fn names_of_operations_are_their_own() {
    for (index, asked) in Asked::ALL.into_iter().enumerate() {
        assert_eq!(Asked::from_byte(index as u8 + 1), Some(asked));
        assert_eq!((Asked::from_name(asked.name()), asked as usize), (Some(asked), index + 1));
    }
    assert_eq!((Asked::from_byte(0), Asked::from_byte(11)), (None, None));
}

#[test]
fn foreign_and_newer_frames_are_told_apart() {
    let mut bytes = End::default().encode();
    assert!(matches!(TraceFrame::decode(b"TbTx"), Err(FormatError::Damaged { offset: 0, .. })));
    bytes[4] = 9;
    let crc = crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(TraceFrame::decode(&bytes), Err(FormatError::Newer { .. })));
}

#[test]
fn a_block_says_what_it_cannot_hold() {
    let key = vec![0; (1 << 20) + 1];
    let mut builder = BlockBuilder::default();
    assert!(builder.push(&Event::new(0, Asked::Get, 0, &key)).is_err());
    assert!(builder.is_empty() && !builder.is_full());
}
