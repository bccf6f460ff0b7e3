//! The manifest: incarnations, records, snapshots.

use bytes::Bytes;
use serde_json::{Value, json};
use tombolo_format::FormatError;
use tombolo_format::checkpoint::CheckpointHeader;
use tombolo_format::collected::{PROPERTY_COLLECTED, decode_collected};
use tombolo_format::expiry::PROPERTY_EXPIRY;
use tombolo_format::incarnation::{INCARNATION_BYTES, decode_incarnation};
use tombolo_format::manifest::snapshot::{SNAPSHOT_HEADER_BYTES, SnapshotDecoder, SnapshotIdentity};
use tombolo_format::manifest::{
    Edit, LogRole, Part, RECORD_HEADER_BYTES, RecordKind, TableDescription, TableName, TableSource, Writer,
    decode_record, record_hash,
};
use tombolo_format::pin::{PIN_HEADER_BYTES, decode_pin};
use tombolo_format::property::{PROPERTY_RANGE_DELETES, SEQUENCE_OVERRIDE};
use tombolo_format::value_object::PROPERTY_VALUE_OBJECTS;
use tombolo_storage::LogOffset;

use super::report::Report;
use crate::text;

/// Reports on the record that begins an incarnation.
pub fn incarnation(bytes: &Bytes, report: &mut Report) {
    report.kind("incarnation record");
    match decode_incarnation(bytes) {
        Ok(number) => {
            report.part(
                0,
                INCARNATION_BYTES as u64,
                "record",
                vec![("incarnation", json!(number)), ("checksum", json!("right"))],
            );
        }
        Err(error) => {
            report.damage(0, "record", error);
            raw(bytes, &[(32, 8, "incarnation")], report);
        }
    }
}

/// Reports on a record of the chain.
pub fn record(bytes: &Bytes, report: &mut Report) {
    report.kind("manifest record");
    let record = match decode_record(bytes) {
        Ok(record) => record,
        Err(error) => {
            report.damage(0, "record", error);
            let fields = [
                (12, 4, "bytes"),
                (32, 8, "incarnation"),
                (40, 8, "slot"),
                (48, 8, "epoch"),
                (88, 8, "snapshot_slot"),
                (96, 4, "kind"),
                (100, 4, "edits"),
            ];
            return raw(bytes, &fields, report);
        }
    };
    let kind = match &record.kind {
        RecordKind::Claim(_) => "claim",
        RecordKind::Edits(_) => "edits",
        RecordKind::Snapshot { .. } => "snapshot",
        RecordKind::Destroyed => "destroyed",
        RecordKind::Part(Part::First, _) => "first part of edits",
        RecordKind::Part(Part::Further, _) => "further part of edits",
        RecordKind::Part(Part::Last, _) => "last part of edits",
    };
    let fields = vec![
        ("slot", json!(record.slot)),
        ("epoch", json!(record.epoch)),
        ("incarnation", json!(record.incarnation)),
        ("attempt", json!(format!("{:032x}", record.attempt))),
        ("predecessor_hash", json!(format!("{:032x}", record.predecessor_hash))),
        ("hash", json!(format!("{:032x}", record_hash(bytes)))),
        ("snapshot_slot", json!(record.snapshot_slot)),
        ("checksum", json!("right")),
    ];
    report.part(0, RECORD_HEADER_BYTES as u64, kind, fields);
    match &record.kind {
        RecordKind::Edits(edits) | RecordKind::Part(_, edits) => {
            edits.iter().for_each(|edit| edit_part(edit, RECORD_HEADER_BYTES as u64, report));
        }
        RecordKind::Claim(writer) => {
            report.part(RECORD_HEADER_BYTES as u64, None, "writer", writer_fields(writer));
        }
        RecordKind::Snapshot { .. } => {
            report.part(RECORD_HEADER_BYTES as u64, None, format!("{:?}", record.kind), Vec::new());
        }
        _ => {}
    }
}

/// Reports on a snapshot object.
pub fn snapshot(bytes: &Bytes, report: &mut Report) {
    report.kind("manifest snapshot");
    // Its record states length and checksum; here they are its own, so that only a missing end is
    // found.
    snapshot_at(0, bytes, None, report);
}

/// Reports on a snapshot that begins at `base` of an object, with its checksum where that is
/// stated.
fn snapshot_at(base: u64, bytes: &[u8], checksum: Option<u64>, report: &mut Report) {
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let (Some(incarnation), Some(slot), Some(random)) = (word(32), word(40), word(48)) else {
        let found = format!("{} bytes", bytes.len());
        return report.damage(
            base,
            "header",
            FormatError::damaged(0, format!("a header of {SNAPSHOT_HEADER_BYTES} bytes"), found),
        );
    };
    let mut decoder = SnapshotDecoder::new(SnapshotIdentity { incarnation, slot, random });
    let mut edits = Vec::new();
    let pushed = decoder.push(bytes, &mut edits);
    let fields = vec![
        ("incarnation", json!(incarnation)),
        ("slot", json!(slot)),
        ("random", json!(format!("{random:016x}"))),
        ("edits", json!(edits.len())),
    ];
    report.part(base, SNAPSHOT_HEADER_BYTES as u64, "header", fields);
    for edit in &edits {
        edit_part(edit, base + SNAPSHOT_HEADER_BYTES as u64, report);
    }
    let mut hash = tombolo_format::checksum::StreamHash::new();
    hash.update(bytes);
    let checksum = checksum.unwrap_or_else(|| hash.digest());
    if let Err(error) = pushed.and_then(|()| decoder.finish(bytes.len() as u64, checksum)) {
        report.damage(base, "chunk", error);
    }
}

/// Reports on a checkpoint: its header, and the snapshot after it.
pub fn checkpoint(bytes: &Bytes, report: &mut Report) {
    report.kind("checkpoint");
    let (header, length) = match CheckpointHeader::decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            report.damage(0, "header", error);
            let fields = [
                (32, 8, "incarnation"),
                (56, 8, "epoch"),
                (64, 8, "slot"),
                (88, 8, "tables"),
                (112, 8, "snapshot_bytes"),
            ];
            return raw(bytes, &fields, report);
        }
    };
    let fields = vec![
        ("name", json!(header.name)),
        ("id", json!(format!("{:032x}", header.id))),
        ("incarnation", json!(header.incarnation)),
        ("epoch", json!(header.epoch)),
        ("slot", json!(header.slot)),
        ("last_sequence", json!(header.last_sequence.0)),
        ("created", json!(text::date(header.created_unix_seconds))),
        ("tables", json!(header.tables)),
        ("table_bytes", json!(header.table_bytes)),
        ("entries", json!(header.entries)),
        ("checksum", json!("right")),
    ];
    report.part(0, length as u64, "header", fields);
    if header.snapshot_bytes != (bytes.len() - length) as u64 {
        let found = format!("{} bytes", bytes.len() - length);
        report.damage(
            0,
            "snapshot",
            FormatError::damaged(112, format!("a snapshot of {} bytes", header.snapshot_bytes), found),
        );
    }
    snapshot_at(length as u64, &bytes[length..], Some(header.snapshot_checksum), report);
}

/// Reports on a pin.
pub fn pin(bytes: &Bytes, report: &mut Report) {
    report.kind("pin");
    let pin = match decode_pin(bytes) {
        Ok(pin) => pin,
        Err(error) => {
            report.damage(0, "pin", error);
            return raw(
                bytes,
                &[(32, 8, "incarnation"), (56, 4, "kind"), (60, 4, "tables"), (64, 8, "lease_ms")],
                report,
            );
        }
    };
    let fields = vec![
        ("kind", json!(format!("{:?}", pin.kind).to_lowercase())),
        ("id", json!(format!("{:032x}", pin.id))),
        ("incarnation", json!(pin.incarnation)),
        ("lease_ms", json!(pin.lease_ms)),
        ("created", json!(text::date(pin.created_unix_seconds))),
        ("tables", json!(pin.tables.len())),
        ("checksum", json!("right")),
    ];
    report.part(0, PIN_HEADER_BYTES as u64, "pin", fields);
    for (index, table) in pin.tables.iter().enumerate() {
        report.part((PIN_HEADER_BYTES + 16 * index) as u64, 16, "keeps", vec![("table", table_name(*table))]);
    }
    if let Some(clone) = &pin.clone {
        let fields = vec![
            ("place", json!(clone.place)),
            ("incarnation", json!(clone.incarnation)),
            ("database", json!(format!("{:016x}", clone.database))),
            ("epoch", json!(clone.epoch)),
            ("seen from", json!(format!("{:016x}", clone.seen_from))),
        ];
        report.part(
            (PIN_HEADER_BYTES + 16 * pin.tables.len()) as u64,
            (36 + clone.place.len()) as u64,
            "for the clone",
            fields,
        );
    }
}

/// Reports on an object whose name says all.
pub fn sign(bytes: &Bytes, report: &mut Report) {
    report.kind("sign");
    if !bytes.is_empty() {
        report.damage(
            0,
            "sign",
            FormatError::damaged(0, "no bytes: its name says all", format!("{} bytes", bytes.len())),
        );
    }
}

/// Fields of a damaged record, as they stand: unchecked, but often enough to see what happened.
fn raw(bytes: &[u8], fields: &[(usize, usize, &'static str)], report: &mut Report) {
    for (at, length, name) in fields {
        if let Some(found) = bytes.get(*at..at + length) {
            let number = found.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            report.part(*at as u64, *length as u64, "unchecked", vec![(*name, json!(number))]);
        }
    }
}

fn table_name(name: TableName) -> Value {
    json!(format!("{:016x}-{:016x}", name.epoch, name.random))
}

fn table_fields(table: &TableDescription) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("table", table_name(table.name)),
        ("keyspace", json!(table.keyspace)),
        ("level", json!(table.level)),
        ("bytes", json!(table.length)),
        ("entries", json!(table.entries)),
        ("deletes", json!(table.deletes)),
        ("sequences", json!(format!("{}–{}", table.first_sequence.0, table.last_sequence.0))),
        ("first_key", text::to_json(&table.first_key)),
        ("last_key", text::to_json(&table.last_key)),
        ("identity", json!(format!("{:016x}", table.identity))),
    ];
    if table.features != 0 {
        fields.push(("features", json!(format!("{:#x}", table.features))));
    }
    if let Some(number) = table.properties.sequence_override() {
        fields.push(("all at sequence", json!(number.0)));
    }
    if let Some(expiry) = table.expiry() {
        fields.extend([
            ("expiring", json!(expiry.entries)),
            ("earliest_expires_ms", json!(expiry.earliest_ms)),
            ("latest_expires_ms", json!(expiry.latest_ms)),
        ]);
    }
    if let Some(ranges) = table.range_deletes() {
        fields.push(("range_deletes", json!(ranges.count)));
    }
    let referred = table.referred();
    if !referred.is_empty() {
        let objects: Vec<_> = referred
            .iter()
            .map(|to| json!({ "identity": format!("{:016x}", to.object), "bytes": to.bytes }))
            .collect();
        fields.push(("value_objects", json!(objects)));
    }
    if let Some(Ok(said)) = table.properties.get(PROPERTY_COLLECTED).map(decode_collected) {
        let said: Vec<_> = said
            .iter()
            .map(|one| {
                json!({ "collector": one.collector, "name": one.name, "value": text::to_json(one.value) })
            })
            .collect();
        fields.push(("collected", json!(said)));
    }
    let known = [
        SEQUENCE_OVERRIDE,
        PROPERTY_EXPIRY,
        PROPERTY_RANGE_DELETES,
        PROPERTY_VALUE_OBJECTS,
        PROPERTY_COLLECTED,
    ];
    let is_known = |id: &u16| known.contains(id);
    let properties: Vec<_> = table.properties.ids().into_iter().filter(|id| !is_known(id)).collect();
    if !properties.is_empty() {
        fields.push(("properties of a later version", json!(properties)));
    }
    if let Some(TableSource { source, name }) = table.source {
        fields.extend([("source", json!(source)), ("table there", table_name(name))]);
    }
    fields
}

fn edit_part(edit: &Edit, at: u64, report: &mut Report) {
    let offset = |word: u64| json!(LogOffset(word).to_string());
    let (what, fields) = match edit {
        Edit::TableAdded(table) => (
            match (table.is_values(), table.source.is_some()) {
                (false, false) => "table added",
                (false, true) => "table of a source added",
                (true, false) => "value object added",
                (true, true) => "value object of a source added",
            },
            table_fields(table),
        ),
        Edit::TableStaged(table) => ("table staged", table_fields(table)),
        Edit::StagedTableLive { name, level, sequence } => (
            "staged table live",
            vec![("table", table_name(*name)), ("level", json!(level)), ("sequence", json!(sequence.0))],
        ),
        Edit::KeyspaceEmptied { id } => ("keyspace emptied", vec![("id", json!(id))]),
        Edit::SourceNamed(source) => (
            "source named",
            vec![
                ("source", json!(source.number)),
                ("place", json!(source.place)),
                ("incarnation", json!(source.incarnation)),
                ("database", json!(format!("{:016x}", source.database))),
                ("pin", json!(format!("{:032x}", source.pin))),
            ],
        ),
        Edit::SourceUnnamed { number } => ("source un-named", vec![("source", json!(number))]),
        Edit::TableMoved { name, level } => {
            ("table moved", vec![("table", table_name(*name)), ("level", json!(level))])
        }
        Edit::TableObsolete { name } => ("table obsolete", vec![("table", table_name(*name))]),
        Edit::TableCondemned { name } => ("table condemned", vec![("table", table_name(*name))]),
        Edit::TableUnnamed { name } => ("table un-named", vec![("table", table_name(*name))]),
        Edit::LogNamed { epoch, lane, role, configuration } => (
            "log named",
            vec![
                ("epoch", json!(epoch)),
                ("lane", json!(lane)),
                ("role", json!(role_name(*role))),
                ("configuration", text::to_json(configuration)),
            ],
        ),
        Edit::LogSealed { epoch, lane, length } => {
            ("log sealed", vec![("epoch", json!(epoch)), ("lane", json!(lane)), ("length", offset(*length))])
        }
        Edit::LogReplayPoint { epoch, lane, offset: point } => (
            "log replay point",
            vec![("epoch", json!(epoch)), ("lane", json!(lane)), ("offset", offset(*point))],
        ),
        Edit::LogTrimmed { epoch, lane, entries } => {
            ("log trimmed", vec![("epoch", json!(epoch)), ("lane", json!(lane)), ("entries", json!(entries))])
        }
        Edit::LogUnnamed { epoch, lane } => {
            ("log un-named", vec![("epoch", json!(epoch)), ("lane", json!(lane))])
        }
        Edit::KeyspaceCreated { id, name, stream, options } => (
            "keyspace created",
            vec![
                ("id", json!(id)),
                ("name", json!(name)),
                ("stream", json!(stream)),
                ("options", json!(options.settings)),
            ],
        ),
        Edit::KeyspaceChanged { id, options } => {
            ("keyspace changed", vec![("id", json!(id)), ("options", json!(options.settings))])
        }
        Edit::WriterNamed { epoch, writer } => {
            let mut fields = vec![("epoch", json!(epoch))];
            fields.extend(writer_fields(writer));
            ("writer named", fields)
        }
        Edit::WriterClosed => ("writer closed", Vec::new()),
        Edit::KeyspaceDropped { id } => ("keyspace dropped", vec![("id", json!(id))]),
        Edit::KeyspaceFlushed { id, sequence } => {
            ("keyspace flushed", vec![("id", json!(id)), ("sequence", json!(sequence.0))])
        }
        Edit::Time { times, is_set } => {
            let fields = vec![
                ("reached_ms", json!(times.reached_ms)),
                ("bound_ms", json!(times.bound_ms)),
                ("settled_ms", json!(times.settled_ms)),
                ("set_back", json!(is_set)),
            ];
            ("time", fields)
        }
        Edit::ColdStoreNamed(cold) => {
            let fields = vec![
                ("id", json!(format!("{:016x}", cold.id))),
                ("database", json!(format!("{:016x}", cold.database))),
                ("place", json!(cold.place)),
                ("own", json!(cold.is_own)),
            ];
            ("cold store named", fields)
        }
        Edit::Aged { stream, aged } => {
            let fields = vec![
                ("stream", json!(stream)),
                ("sequence", json!(aged.sequence)),
                ("unix_seconds", json!(aged.unix_seconds)),
            ];
            ("aged", fields)
        }
        Edit::Marked(mark) => {
            let fields = mark.as_ref().map_or_else(Vec::new, |mark| {
                vec![
                    ("kind", json!(format!("{:?}", mark.kind).to_lowercase())),
                    ("place", json!(mark.place)),
                    ("database", json!(format!("{:016x}", mark.database))),
                    ("incarnation", json!(mark.incarnation)),
                    ("epoch", json!(mark.epoch)),
                    ("slot", json!(mark.slot)),
                    ("sequence", json!(mark.sequence.0)),
                    ("unix_ms", json!(mark.unix_ms)),
                ]
            });
            ("marked", fields)
        }
        Edit::StreamReached { stream, sequence } => {
            ("stream reached", vec![("stream", json!(stream)), ("sequence", json!(sequence.0))])
        }
        Edit::DatabaseCreated { id, log_identity, created_unix_seconds } => (
            "database created",
            vec![
                ("id", json!(format!("{id:016x}"))),
                ("log_identity", json!(log_identity)),
                ("created_unix_seconds", json!(created_unix_seconds)),
            ],
        ),
    };
    report.part(at, None, what, fields);
}

fn role_name(role: LogRole) -> String {
    match role {
        LogRole::Main => "main".to_owned(),
        LogRole::Application => "application".to_owned(),
        LogRole::Stream(stream) => format!("stream {stream}"),
    }
}

fn writer_fields(writer: &Writer) -> Vec<(&'static str, Value)> {
    vec![
        ("host", json!(writer.host)),
        ("program", json!(writer.program)),
        ("process", json!(writer.process)),
        ("process_start", json!(writer.process_start)),
        ("process_namespace", json!(writer.process_namespace)),
        ("boot_id", json!(format!("{:032x}", writer.boot_id))),
        ("since_unix_seconds", json!(writer.since_unix_seconds)),
    ]
}
