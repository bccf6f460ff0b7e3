use proptest::prelude::*;
use tombolo_format::trace::{Asked, EventBlock, Found};

use super::*;
use crate::trace::{TraceError, TraceReader};

type Seen = (u64, Asked, u32, Vec<u8>, Vec<u8>, u32);

fn events(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = TraceReader::new(bytes, false).unwrap();
    let (mut block, mut all) = (EventBlock::default(), Vec::new());
    while reader.next(&mut block).unwrap() {
        all.extend(block.iter().map(|event| {
            (
                event.time_ns,
                event.asked,
                event.keyspace,
                event.key.to_vec(),
                event.end.to_vec(),
                event.value_bytes,
            )
        }));
    }
    all
}

fn record(us: u64, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = us.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn slice(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(bytes.len()).unwrap()];
    out.extend_from_slice(bytes);
    out
}

fn head(version: &str) -> Vec<u8> {
    let text = format!(
        "feedcafedeadbeef\tTrace Version: {version}\tRocksDB Version: 7.8\tFormat: Timestamp OpType Payload\n"
    );
    record(1000, 1, text.as_bytes())
}

/// A batch: a put, a delete of family 2, a merge, a single delete and a range delete.
fn batch() -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&5_u32.to_le_bytes());
    bytes.extend([vec![1], slice(b"a"), slice(b"value")].concat());
    bytes.extend([vec![4, 2], slice(b"b")].concat());
    bytes.extend([vec![2], slice(b"c"), slice(b"m")].concat());
    bytes.extend([vec![7], slice(b"d")].concat());
    bytes.extend([vec![15], slice(b"e"), slice(b"f")].concat());
    bytes
}

fn sample(is_old: bool) -> Vec<u8> {
    let with = |bits: u64, fields: &[u8]| {
        if is_old { fields.to_vec() } else { [&bits.to_le_bytes()[..], fields].concat() }
    };
    let written = if is_old { batch() } else { with(2, &slice(&batch())) };
    let get = with(0b1100, &[&3_u32.to_le_bytes()[..], &slice(b"key")].concat());
    let seek = with(0b11_0000, &[&0_u32.to_le_bytes()[..], &slice(b"from")].concat());
    let mut all = [head(if is_old { "0.1" } else { "0.2" }), record(1002, 3, &written)].concat();
    all.extend(record(1003, 4, &get));
    all.extend(record(1004, 5, &seek));
    if !is_old {
        let families = [0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
        let keys = [slice(b"x"), slice(b"y")].concat();
        let several = [&2_u32.to_le_bytes()[..], &slice(&families), &slice(&keys)].concat();
        all.extend(record(1005, 13, &with(0b111_0000_0000, &several)));
    }
    all.extend(record(1006, 2, b""));
    all
}

#[test]
fn both_versions_of_rocksdbs_query_traces_are_read() {
    for is_old in [true, false] {
        let (bytes, counted) = import_rocksdb(&sample(is_old)[..], Vec::new(), false).unwrap();
        let all = events(&bytes);
        assert_eq!(all[0], (2000, Asked::Put, 0, b"a".to_vec(), vec![], 5));
        assert_eq!(all[1], (2000, Asked::Delete, 2, b"b".to_vec(), vec![], 0));
        assert_eq!((all[2].1, all[3].1), (Asked::Merge, Asked::SingleDelete));
        assert_eq!(all[4], (2000, Asked::RangeDelete, 0, b"e".to_vec(), b"f".to_vec(), 0));
        assert_eq!(all[5], (3000, Asked::Get, 3, b"key".to_vec(), vec![], 0));
        assert_eq!(all[6], (4000, Asked::Scan, 0, b"from".to_vec(), vec![], 0));
        assert_eq!(all.len(), if is_old { 7 } else { 9 });
        assert_eq!(counted.events.values().sum::<u64>(), all.len() as u64);
        if !is_old {
            assert_eq!(all[8], (5000, Asked::MultiGet, 1, b"y".to_vec(), vec![], 0));
        }
    }
}

#[test]
fn damage_of_a_foreign_trace_is_told_with_its_place() {
    let whole = sample(false);
    let at = head("0.2").len() as u64;
    for cut in 0..whole.len() - 13 {
        match import_rocksdb(&whole[..cut], Vec::new(), false) {
            Err(TraceError::Truncated { at: found, .. }) => assert!(found <= cut as u64),
            Err(TraceError::Foreign(_)) => assert_eq!(cut, 0),
            // Cut between two records: a writer that ended.
            Ok(_) => assert!(cut as u64 >= at),
            Err(error) => panic!("{cut}: {error}"),
        }
    }
    let (_, counted) = import_rocksdb(&whole[..whole.len() - 15], Vec::new(), true).unwrap();
    assert!(counted.cut_at.is_some() && counted.events["get"] == 1);
    let mut wrong = whole.clone();
    wrong[usize::try_from(at).unwrap() + 13 + 8] = 200;
    let told = match import_rocksdb(&wrong[..], Vec::new(), false) {
        Err(TraceError::Damaged { at, .. }) => Some(at),
        _ => None,
    };
    assert_eq!(told, Some(at));
    assert!(matches!(import_rocksdb(&head("0.9")[..], Vec::new(), false), Err(TraceError::Invalid(_))));
    assert!(matches!(
        import_rocksdb(&b"TbTr and more of what is not there"[..], Vec::new(), false),
        Err(TraceError::Foreign(_))
    ));
}

#[test]
fn lines_are_read_by_their_columns() {
    let twitter = "0,3JJW7XjQ,10,213,35,get,0\n1,4x,4,9,35,set,60\n";
    let (bytes, count, _) =
        import_csv(twitter.as_bytes(), Vec::new(), Some(Columns::twitter()), "t", false).unwrap();
    let all = events(&bytes);
    assert_eq!((count, all[0].3.as_slice(), all[0].5), (2, &b"3JJW7XjQ.."[..], 213));
    assert_eq!((all[1].0, all[1].1), (1_000_000_000, Asked::Put));
    let meta =
        "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n5,k,1,GET,1,100,1,0,a,b\n";
    let (bytes, ..) = import_csv(meta.as_bytes(), Vec::new(), None, "m", false).unwrap();
    assert_eq!(events(&bytes)[0], (0, Asked::Get, 0, b"k".to_vec(), vec![], 100));
    let wrong = "key,op\na,get\nb,frobnicate\nc,get\n";
    let error = import_csv(wrong.as_bytes(), Vec::new(), None, "w", false).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("after 1 events"), "{error}");
    let (_, events, passed_over) = import_csv(wrong.as_bytes(), Vec::new(), None, "w", true).unwrap();
    assert_eq!((events, passed_over), (2, 1));
    assert!(import_csv(&b"time,size\n"[..], Vec::new(), None, "w", false).is_err());
}

#[test]
fn lines_that_are_too_long_or_no_text_are_told_and_passed_over() {
    let long = "k".repeat(3 << 20);
    let key = "k".repeat(70_000);
    for wrong in [long.as_bytes(), key.as_bytes(), b"\xff\xfe"] {
        let text = [b"key\r\na\r\n", wrong, b"\nc"].concat();
        let error = import_csv(&text[..], Vec::new(), None, "w", false).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("after 1 events") && error.len() < 400, "{error}");
        let (bytes, count, passed_over) = import_csv(&text[..], Vec::new(), None, "w", true).unwrap();
        assert_eq!((count, passed_over), (2, 1));
        let keys: Vec<_> = events(&bytes).into_iter().map(|event| event.3).collect();
        assert_eq!(keys, [b"a", b"c"]);
    }
    assert!(import_csv(&b"key_hex\n+a+b\n"[..], Vec::new(), None, "w", false).is_err());
    assert!(import_csv(long.as_bytes(), Vec::new(), None, "w", true).is_err());
}

#[test]
fn what_no_trace_holds_of_a_foreign_one_is_counted() {
    let varint = |mut number: usize| {
        let mut out = Vec::new();
        while number >= 128 {
            out.push(u8::try_from(number & 127).unwrap() | 128);
            number >>= 7;
        }
        out.push(u8::try_from(number).unwrap());
        out
    };
    let text = |bytes: usize| [varint(bytes), vec![b'x'; bytes]].concat();
    let mut batch = [vec![0; 8], 3_u32.to_le_bytes().to_vec()].concat();
    batch.extend([vec![1], slice(b"a"), text(40 << 20)].concat());
    batch.extend([vec![1], text(2 << 20), slice(b"value")].concat());
    batch.extend([vec![1], slice(b"c"), slice(b"value")].concat());
    let all = [head("0.1"), record(1002, 3, &batch), record(1006, 2, b"")].concat();
    let (bytes, counted) = import_rocksdb(&all[..], Vec::new(), false).unwrap();
    let all: Vec<_> = events(&bytes).into_iter().map(|event| (event.3, event.5)).collect();
    assert_eq!(all, [(b"a".to_vec(), 40 << 20), (b"c".to_vec(), 5)]);
    assert_eq!((counted.events["put"], counted.passed_over.values().sum::<u64>()), (2, 1));
}

/// The first record of a trace of blocks or of IO.
fn head_of_bytes() -> Vec<u8> {
    let payload = [&slice(b"feedcafedeadbeef")[..], &7_u32.to_le_bytes(), &8_u32.to_le_bytes()].concat();
    record(1000, 1, &payload)
}

/// A data block of a get, with what follows for gets, and an index block of a compaction.
fn blocks() -> Vec<u8> {
    let block = |key: &[u8], table: u64, caller: u8, hit: u8| {
        let mut bytes = slice(key);
        bytes.extend_from_slice(&4096_u64.to_le_bytes());
        bytes.extend_from_slice(&2_u64.to_le_bytes());
        bytes.extend_from_slice(&slice(b"meta"));
        bytes.extend_from_slice(&6_u32.to_le_bytes());
        bytes.extend_from_slice(&table.to_le_bytes());
        bytes.extend_from_slice(&[caller, hit, 0]);
        bytes
    };
    let of_a_get = [&block(b"one", 10, 1, 1)[..], &7_u64.to_le_bytes(), &[0], &slice(b"key")].concat();
    [head_of_bytes(), record(1002, 9, &of_a_get), record(1003, 7, &block(b"two", 9, 10, 0))].concat()
}

/// Calls of a file system: two appends, a read at a place, a failed read, a sync, a delete.
fn calls() -> Vec<u8> {
    let call = |name: &[u8], outcome: &[u8], fields: &[(u32, u64)]| {
        let bits = fields.iter().fold(0_u64, |bits, (bit, _)| bits | 1 << bit);
        let mut bytes = bits.to_le_bytes().to_vec();
        bytes.extend_from_slice(&slice(name));
        bytes.extend_from_slice(&77_u64.to_le_bytes());
        bytes.extend_from_slice(&slice(outcome));
        bytes.extend_from_slice(&slice(b"000007.sst"));
        fields.iter().for_each(|(_, field)| bytes.extend_from_slice(&field.to_le_bytes()));
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        bytes
    };
    let all = [
        call(b"Append", b"OK", &[(1, 100)]),
        call(b"Append", b"OK", &[(1, 50)]),
        call(b"Read", b"OK", &[(1, 10), (2, 90)]),
        call(b"Read", b"IO error: gone", &[(1, 0), (2, 500)]),
        call(b"Sync", b"OK", &[]),
        call(b"DeleteFile", b"OK", &[]),
    ];
    let records = (0..).zip(all).map(|(index, payload)| record(5_000_000 + index, 12, &payload));
    std::iter::once(head_of_bytes()).chain(records).collect::<Vec<_>>().concat()
}

#[test]
fn traces_of_rocksdbs_block_cache_are_read() {
    let (bytes, counted) = import_rocksdb(&blocks()[..], Vec::new(), false).unwrap();
    let mut reader = TraceReader::new(&bytes[..], false).unwrap();
    assert!(reader.header().is_of_blocks && reader.header().origin.ends_with("rocksdb 7.8"));
    let mut block = EventBlock::default();
    assert!(reader.next(&mut block).unwrap());
    assert_eq!(reader.names()[&2], "meta");
    let all: Vec<_> = block.iter().collect();
    let key = |table: u64, block: &[u8]| [&table.to_be_bytes()[..], block].concat();
    assert_eq!((all[0].time_ns, all[0].asked, all[0].keyspace), (2000, Asked::Block, 2));
    assert_eq!((all[0].key, all[0].value_bytes), (&key(10, b"one")[..], 4096));
    assert_eq!((all[0].found, all[0].blocks_hit), (Found::Yes, 1));
    assert_eq!((all[1].key, all[1].found, all[1].blocks_read), (&key(9, b"two")[..], Found::No, 1));
    assert_eq!(counted.told["data blocks"] + counted.told["index blocks"], 2);
    assert_eq!(counted.told["asked for by get"] + counted.told["asked for by compaction"], 2);
}

#[test]
fn calls_of_a_file_system_become_rows_of_files() {
    let (bytes, counted) = import_rocksdb(&calls()[..], Vec::new(), false).unwrap();
    let all = events(&bytes);
    let key = |at: u64| [&b"000007.sst\0"[..], &at.to_be_bytes()].concat();
    assert_eq!(all[0], (0, Asked::Put, 0, key(0), vec![], 100));
    assert_eq!(all[1], (1, Asked::Put, 0, key(100), vec![], 50));
    assert_eq!(all[2], (2, Asked::Get, 0, key(90), vec![], 10));
    assert_eq!(all[3], (3, Asked::Get, 0, key(500), vec![], 0));
    let (from, to) = (b"000007.sst\0".to_vec(), b"000007.sst\x01".to_vec());
    assert_eq!((all[4].1, &all[4].3, &all[4].4, all.len()), (Asked::RangeDelete, &from, &to, 5));
    assert_eq!((counted.events["put"], counted.told["calls of Sync, which move no bytes"]), (2, 1));
}

#[test]
fn damage_of_blocks_and_calls_is_told_with_its_place() {
    for whole in [blocks(), calls()] {
        for cut in 0..whole.len() {
            match import_rocksdb(&whole[..cut], Vec::new(), false) {
                Err(TraceError::Truncated { at, .. } | TraceError::Damaged { at, .. }) => {
                    assert!(at <= cut as u64);
                }
                Err(TraceError::Foreign(_)) => assert_eq!(cut, 0),
                // Cut between two records.
                Ok(_) => {}
                Err(error) => panic!("{cut}: {error}"),
            }
            // Whole records come in.
            assert!(cut < 38 || import_rocksdb(&whole[..cut], Vec::new(), true).is_ok());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any bytes in a trace give an error or events, and take no memory that they do not have.
    #[test]
    fn any_damage_is_an_error_or_events(
        which in 0_usize..4,
        at in any::<prop::sample::Index>(),
        wrong in prop::collection::vec(any::<u8>(), 1..12),
        salvages in any::<bool>(),
    ) {
        let mut bytes = vec![sample(true), sample(false), blocks(), calls()].swap_remove(which);
        let at = at.index(bytes.len());
        for (byte, wrong) in bytes[at..].iter_mut().zip(&wrong) {
            *byte = *wrong;
        }
        if let Ok((made, _)) = import_rocksdb(&bytes[..], Vec::new(), salvages) {
            drop(events(&made));
        }
        drop(import_ycsb(&bytes[..], Vec::new(), salvages));
        drop(import_csv(&bytes[..], Vec::new(), Some(Columns::twitter()), "any", salvages));
    }
}

const YCSB: &str = "***************** properties *****************
\"workload\"=\"site.ycsb.workloads.CoreWorkload\"
INSERT usertable user1 [ field0=ab cd field1=x] ]
READ usertable user1 [ <all fields>]
SCAN usertable user2 34 [ field0 ]
DELETE other user1
UPDATE usertable user1 [ field0=abc ]
[OVERALL], RunTime(ms), 12
";

#[test]
fn what_ycsb_prints_is_read() {
    let (bytes, counted) = import_ycsb(YCSB.as_bytes(), Vec::new(), false).unwrap();
    let all = events(&bytes);
    let asked: Vec<_> = all.iter().map(|event| (event.1, event.2, event.5)).collect();
    let wanted = [
        (Asked::Put, 0, 22),
        (Asked::Get, 0, 0),
        (Asked::Scan, 0, 0),
        (Asked::Delete, 1, 0),
        (Asked::Put, 0, 10),
    ];
    assert_eq!(asked, wanted);
    assert_eq!((all[2].3.as_slice(), counted.passed_over.values().sum::<u64>()), (&b"user2"[..], 3));
    for wrong in ["SCAN t k many [ ]\n", "READ t\n", "DELETE t k more\n", "INSERT t k [ field0=a\n"] {
        let text = format!("{YCSB}{wrong}");
        let error = import_ycsb(text.as_bytes(), Vec::new(), false).unwrap_err().to_string();
        assert!(error.contains("line 9") && error.contains("after 5 events"), "{error}");
        assert!(import_ycsb(text.as_bytes(), Vec::new(), true).is_ok());
    }
    let error = import_ycsb(&b"[READ], Operations, 5\n"[..], Vec::new(), false).unwrap_err().to_string();
    assert!(error.contains("basicdb.verbose"), "{error}");
}

#[test]
fn a_line_of_metas_traces_stands_for_several_operations() {
    let head = "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n";
    let text = format!("{head}7,k,3,GET,3,100,2,0\n9,\"a,\"\"b\",1,SET,1,50,0,60\n");
    let (bytes, count, _) = import_csv(text.as_bytes(), Vec::new(), None, "meta", false).unwrap();
    let mut reader = TraceReader::new(&bytes[..], false).unwrap();
    let mut block = EventBlock::default();
    assert!(reader.next(&mut block).unwrap());
    let found: Vec<_> = block.iter().map(|event| event.found).collect();
    assert_eq!((count, found), (4, vec![Found::Yes, Found::Yes, Found::No, Found::Unknown]));
    let last = block.iter().last().unwrap();
    assert_eq!((last.key, last.time_ns, last.ttl_ms), (&b"a,\"b"[..], 2_000_000_000, 60_000));
    for wrong in ["7,k,3,GET,0,100,0,0\n", "7,k,3,GET,9999999999,1,0,0\n", "7,\"k,3,GET,1,1,0,0\n"] {
        assert!(import_csv(format!("{head}{wrong}").as_bytes(), Vec::new(), None, "m", false).is_err());
    }
}

#[test]
fn our_own_lines_come_back() {
    use tombolo_format::trace::Event;
    let all = [
        Event { value_bytes: 7, ttl_ms: 9000, ..Event::new(5, Asked::Put, 2, b"\x00key") },
        Event { thread: 4, joined: true, found: Found::No, ..Event::new(6, Asked::MultiGet, 0, b"") },
        Event { end: b"z", ..Event::new(7, Asked::RangeDelete, 0, b"a") },
        Event {
            entries: 12,
            blocks_read: 3,
            blocks_hit: 4,
            latency_ns: 500,
            found: Found::Yes,
            ..Event::new(8, Asked::ScanBack, 1, b"q")
        },
    ];
    let (mut line, mut text) = (String::new(), crate::export::CSV_HEAD.to_owned());
    for event in &all {
        crate::export::csv_line(event, &mut line);
        text.push_str(&line);
    }
    let (bytes, ..) = import_csv(text.as_bytes(), Vec::new(), None, "ours", false).unwrap();
    let mut reader = TraceReader::new(&bytes[..], false).unwrap();
    let mut block = EventBlock::default();
    assert!(reader.next(&mut block).unwrap());
    // Times count from the first line.
    assert!(block.iter().eq(all.map(|event| Event { time_ns: event.time_ns - 5, ..event })));
}
