//! Tables: footer, properties, top index, partitions, data blocks.

use bytes::Bytes;
use serde_json::{Value, json};
use tombolo_format::FormatError;
use tombolo_format::block::{Block, Cursor};
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::stored::{BlockHandle, STORED_TRAILER_BYTES};
use tombolo_format::table::{FOOTER_BYTES, Footer, Partition, Top, open_data_within};

use super::entry;
use super::report::Report;
use crate::text;

/// Reports on a table.
pub fn inspect(bytes: &Bytes, entries: bool, report: &mut Report) {
    report.kind("table");
    let footer = match Footer::decode(bytes) {
        Ok(footer) => footer,
        Err(error) => return report.damage(0, "footer", error),
    };
    let identity = format!("{:016x}", footer.identity);
    let fields = vec![
        ("identity", json!(identity)),
        ("table_bytes", json!(footer.table_bytes)),
        ("data_end", json!(footer.data_end)),
        ("top_index", json!(footer.top_index.offset)),
        ("checksum", json!("right")),
    ];
    report.part(bytes.len() as u64 - FOOTER_BYTES as u64, FOOTER_BYTES as u64, "footer", fields);
    // The identity is the footer's own: whether it is the manifest's, `verify` knows.
    let top = match Top::decode(bytes, bytes.len() as u64, footer.identity) {
        Ok(top) => top,
        Err(error) => return report.damage(0, "top index or properties", error),
    };
    let properties = &top.properties;
    let mut fields = vec![
        ("keyspace", json!(properties.keyspace)),
        ("entries", json!(properties.entries)),
        ("deletes", json!(properties.deletes)),
        ("sequences", json!(format!("{}–{}", properties.first_sequence, properties.last_sequence))),
        ("data_blocks", json!(properties.data_blocks)),
        ("raw_data_bytes", json!(properties.raw_data_bytes)),
        ("filter_bits_per_key", json!(properties.filter_bits_per_key)),
    ];
    if !properties.dictionary.is_empty() {
        fields.push(("dictionary_bytes", json!(properties.dictionary.len())));
    }
    report.part(footer.properties().offset, u64::from(footer.properties_bytes), "properties", fields);
    report.part(
        footer.top_index.offset,
        u64::from(footer.top_index.length),
        "top index",
        vec![("checksum", json!("right"))],
    );
    if let Some(handle) = properties.ranges {
        ranges(&top, handle, entries, report);
    }
    walk(&top.index, footer.top_index.offset, "top index", report, |value, report| {
        match PartitionHandle::decode(value, footer.top_index.offset) {
            Ok(handle) => partition(bytes, &top, handle, entries, report),
            Err(error) => report.damage(footer.top_index.offset, "partition handle", error),
        }
    });
}

/// The block of range deletes: each range of it with `entries`.
fn ranges(top: &Top, handle: BlockHandle, entries: bool, report: &mut Report) {
    let ends = top.ranges.bounds().unwrap_or_default();
    let fields = vec![
        ("ranges", json!(top.ranges.len())),
        ("layers", json!(top.ranges.layers().len())),
        ("first", text::to_json(ends.0)),
        ("end", text::to_json(ends.1)),
        ("checksum", json!("right")),
    ];
    report.part(handle.offset, u64::from(handle.length), "range deletes", fields);
    for range in top.ranges.iter().filter(|_| entries) {
        let fields = vec![
            ("key", text::to_json(range.from)),
            ("sequence", json!(range.number.0)),
            ("delete_to", text::to_json(range.to)),
        ];
        report.part(handle.offset, None, "RangeDelete", fields);
    }
}

/// Calls `each` with every value of an index block; damage in the block ends the walk.
fn walk(
    block: &Block,
    offset: u64,
    what: &str,
    report: &mut Report,
    mut each: impl FnMut(&[u8], &mut Report),
) {
    let mut cursor = Cursor::new();
    let mut moved = cursor.first(block);
    while moved.is_ok() && cursor.valid() {
        each(cursor.value(block), report);
        moved = cursor.next(block);
    }
    if let Err(error) = moved {
        report.damage(offset, what, error);
    }
}

fn partition(bytes: &Bytes, top: &Top, handle: PartitionHandle, entries: bool, report: &mut Report) {
    let footer = &top.footer;
    let found = match Partition::decode(bytes, 0, handle, footer.identity) {
        Ok(found) => found,
        // The filter may be damaged and the index sound: go on with that.
        Err(error) => {
            report.damage(0, "filter or index partition", error);
            match index_only(bytes, footer, handle) {
                Some(index) => Partition { filter: None, index },
                None => return,
            }
        }
    };
    let fields =
        vec![("filter_bytes", json!(handle.filter_bytes)), ("index_bytes", json!(handle.index_bytes))];
    report.part(handle.offset, handle.length(), "partition", fields);
    walk(&found.index, handle.index().offset, "index partition", report, |value, report| {
        match decode_block_handle(value, footer.data_end) {
            Ok(handle) => data_block(bytes, top, handle, entries, report),
            Err(error) => report.damage(handle.index().offset, "block handle", error),
        }
    });
}

fn index_only(bytes: &Bytes, footer: &Footer, handle: PartitionHandle) -> Option<Block> {
    let without_filter =
        PartitionHandle { offset: handle.index().offset, filter_bytes: 0, index_bytes: handle.index_bytes };
    Some(Partition::decode(bytes, 0, without_filter, footer.identity).ok()?.index)
}

fn data_block(bytes: &Bytes, top: &Top, handle: BlockHandle, entries: bool, report: &mut Report) {
    let (identity, dictionary) = (top.footer.identity, top.dictionary.as_ref());
    let opened = open_data_within(bytes, 0, handle, identity, dictionary)
        .and_then(|raw| Ok((raw.len(), Block::new(raw).map_err(|error| error.shifted(handle.offset))?)));
    let (raw_bytes, block) = match opened {
        Ok(opened) => opened,
        Err(error) => return report.damage(0, &format!("data block at {}", handle.offset), error),
    };
    let mut count = 0u64;
    let (mut first, mut last) = (Value::Null, Value::Null);
    let mut lines = Vec::new();
    let checked = block.verify(|key, value| {
        last = text::to_json(key.user_key);
        if count == 0 {
            first.clone_from(&last);
        }
        count += 1;
        if entries {
            let (kind, said) = match key.trailer.kind() {
                Some(kind) => (format!("{kind:?}"), entry::fields(kind, value)?),
                None => ("unknown".to_owned(), vec![("value", text::to_json(value))]),
            };
            let mut fields = vec![("key", last.clone()), ("sequence", json!(key.trailer.sequence().0))];
            fields.extend(said);
            lines.push((kind, fields));
        }
        Ok::<(), FormatError>(())
    });
    let compression =
        usize::try_from(handle.end()).ok().and_then(|end| bytes.get(end - STORED_TRAILER_BYTES)).copied();
    let compression = compression.map_or("unknown", tombolo_format::stored::compression_name);
    let fields = vec![
        ("entries", json!(count)),
        ("raw_bytes", json!(raw_bytes)),
        ("compression", json!(compression)),
        ("first", first),
        ("last", last),
    ];
    report.part(handle.offset, u64::from(handle.length), "data block", fields);
    for (kind, fields) in lines {
        report.part(handle.offset, None, kind, fields);
    }
    if let Err(error) = checked {
        report.damage(handle.offset, "order of keys", error);
    }
}
