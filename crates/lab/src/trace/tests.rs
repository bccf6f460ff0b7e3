use tombolo_format::trace::{Asked, TracedKeys};

use super::*;

fn header() -> Header {
    Header {
        start_unix_ns: 1,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: "test".to_owned(),
    }
}

/// A trace of many blocks, and where they begin.
fn written(events: u32) -> (Vec<u8>, Vec<IndexEntry>) {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    writer.name(0, "orders").unwrap();
    for number in 0..events {
        writer.push(&Event::new(u64::from(number), Asked::Get, 0, &number.to_be_bytes())).unwrap();
        if number % 100 == 99 {
            writer.block().unwrap();
        }
    }
    let index = writer.index.clone();
    (writer.finish().unwrap(), index)
}

fn read(bytes: &[u8], salvages: bool) -> Result<(Vec<u32>, Vec<Skipped>), TraceError> {
    let mut reader = TraceReader::new(bytes, salvages)?;
    let (mut block, mut keys) = (EventBlock::default(), Vec::new());
    while reader.next(&mut block)? {
        keys.extend(block.iter().map(|event| u32::from_be_bytes(event.key.try_into().unwrap())));
    }
    Ok((keys, reader.skipped().to_vec()))
}

#[test]
fn what_is_written_is_read() {
    let (bytes, _) = written(1050);
    assert_eq!(read(&bytes, false).unwrap(), ((0..1050).collect(), vec![]));
    let mut reader = TraceReader::new(&bytes[..], false).unwrap();
    let mut block = EventBlock::default();
    while reader.next(&mut block).unwrap() {}
    assert_eq!((reader.names()[&0].as_str(), reader.end().unwrap().events), ("orders", 1050));
}

#[test]
fn damage_is_told_with_its_place_and_salvage_goes_on_behind_it() {
    let (mut bytes, index) = written(1000);
    let damaged = usize::try_from(index[3].offset).unwrap();
    bytes[damaged + 50] ^= 1;
    match read(&bytes, false) {
        Err(TraceError::Damaged { at, events, .. }) => assert_eq!((at, events), (index[3].offset, 300)),
        other => panic!("{other:?}"),
    }
    let (keys, skipped) = read(&bytes, true).unwrap();
    assert_eq!(keys, (0..300).chain(400..1000).collect::<Vec<_>>());
    let bytes_lost = index[4].offset - index[3].offset;
    assert_eq!((skipped.len(), skipped[0].at, skipped[0].bytes), (1, index[3].offset, bytes_lost));
}

#[test]
fn a_header_that_is_lost_takes_no_event_with_it() {
    let (bytes, index) = written(1000);
    let names = header().encode().len();
    let first = usize::try_from(index[0].offset).unwrap();
    // Its payload, its frame, its text; and a file without it and without the name.
    for at in [0, 20, names - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let (keys, skipped) = read(&damaged, true).unwrap();
        assert_eq!(keys, (0..1000).collect::<Vec<_>>(), "{at}");
        assert_eq!((skipped[0].at, skipped[0].bytes), (0, names as u64), "{at}");
        assert!(read(&damaged, false).is_err());
    }
    assert_eq!(read(&bytes[first..], true).unwrap(), ((0..1000).collect(), vec![]));
    match read(&bytes[first..], false) {
        Err(TraceError::Damaged { at: 0, events: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    let behind = [&b"what is no trace"[..], &bytes].concat();
    let mut reader = TraceReader::new(&behind[..], true).unwrap();
    assert_eq!((reader.header(), reader.skipped()[0].bytes), (&header(), 16));
    assert!(reader.next(&mut EventBlock::default()).unwrap());
}

#[test]
fn a_trace_that_is_cut_off_gives_what_came_before() {
    let (bytes, index) = written(1000);
    let cut = usize::try_from(index[5].offset).unwrap() + 20;
    match read(&bytes[..cut], false) {
        Err(TraceError::Truncated { at, events }) => assert_eq!((at, events), (index[5].offset, 500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&bytes[..cut], true).unwrap().0, (0..500).collect::<Vec<_>>());
}

#[test]
fn other_files_are_told_apart() {
    for foreign in [&b""[..], b"P", b"PAR1 and more of it, which is long enough for a frame"] {
        assert!(matches!(read(foreign, false), Err(TraceError::Foreign(_))));
        assert_eq!(read(foreign, true).unwrap().0, Vec::<u32>::new());
    }
}
