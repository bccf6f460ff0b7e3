use tombolo_format::trace::{Asked, Event};

use super::*;

#[test]
fn an_object_is_a_key_of_a_keyspace() {
    let event =
        |asked, keyspace| Event { value_bytes: 4, ..Event::new(3_000_000_000, asked, keyspace, b"key") };
    assert_eq!(object(&event(Asked::Get, 1)), object(&event(Asked::Put, 1)));
    assert_ne!(object(&event(Asked::Get, 1)), object(&event(Asked::Get, 2)));
    assert_eq!(object(&event(Asked::RangeDelete, 1)), None);
    let (mut line, number) = (String::new(), object(&event(Asked::Get, 1)).unwrap());
    cache_line(&event(Asked::Get, 1), &mut line);
    assert_eq!(line, format!("3,{number},7,get\n"));
    cache_line(&event(Asked::RangeDelete, 1), &mut line);
    assert!(line.is_empty());
    let mut record = Vec::new();
    oracle_general(&event(Asked::Get, 1), 9, &mut record).unwrap();
    assert_eq!(
        (record.len(), &record[4..12], &record[16..]),
        (24, &number.to_le_bytes()[..], &9_i64.to_le_bytes()[..])
    );
}

#[cfg(feature = "parquet")]
#[test]
fn rows_of_parquet_have_every_field() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::RowAccessor;
    use tombolo_format::trace::{Found, Header, TracedKeys};
    let header = Header {
        start_unix_ns: 5,
        sampled_one_in: 64,
        keys: TracedKeys::Clear,
        has_values: true,
        is_of_blocks: false,
        origin: "a test".to_owned(),
    };
    let mut rows = ParquetExport::new(Vec::new(), &header).unwrap();
    let event =
        Event { value: b"value", value_bytes: 5, ttl_ms: 7, ..Event::new(1, Asked::Put, u32::MAX, b"\xff") };
    rows.push(&event, Some("users")).unwrap();
    let found = Event { found: Found::No, latency_ns: 9, ..Event::new(2, Asked::Get, 0, b"k") };
    rows.push(&found, None).unwrap();
    let bytes = bytes::Bytes::from(rows.finish().unwrap());
    let reader = SerializedFileReader::new(bytes).unwrap();
    let told = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(told.iter().any(|one| one.key == "sampled_one_in" && one.value.as_deref() == Some("64")));
    let all: Vec<_> = reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].get_ulong(0).unwrap(), all[0].get_string(1).unwrap().as_str()), (1, "put"));
    assert_eq!((all[0].get_uint(2).unwrap(), all[0].get_string(3).unwrap().as_str()), (u32::MAX, "users"));
    assert_eq!(
        (all[0].get_bytes(5).unwrap().data(), all[0].get_bytes(8).unwrap().data()),
        (&b"\xff"[..], &b"value"[..])
    );
    // Nobody said whether the first found something.
    assert!(all[0].get_bool(10).is_err() && !all[1].get_bool(10).unwrap());
    assert_eq!((all[0].get_ulong(15).unwrap(), all[1].get_ulong(14).unwrap()), (7, 9));
}
