//! What entries say, in tables and in logs: by the names that lines of import have.

use serde_json::{Value, json};
use tombolo_format::error::Result;
use tombolo_format::expiry::{OperandTimes, split_expiring, split_operand};
use tombolo_format::key::EntryKind;
use tombolo_format::operands::operands;
use tombolo_format::value_object::Reference;

use crate::text;

/// The fields of an entry, its key excepted.
///
/// # Errors
/// `Damaged` for bytes that no entry of this kind has.
pub fn fields(kind: EntryKind, stored: &[u8]) -> Result<Vec<(&'static str, Value)>> {
    Ok(match kind {
        EntryKind::Put => vec![("value", text::to_json(stored))],
        EntryKind::Delete | EntryKind::SingleDelete => Vec::new(),
        EntryKind::Merge => vec![("merge", text::to_json(stored))],
        EntryKind::RangeDelete => vec![("delete_to", text::to_json(stored))],
        EntryKind::ExpiringPut => {
            let (value, end) = split_expiring(stored)?;
            vec![("value", text::to_json(value)), ("expires_ms", json!(end))]
        }
        EntryKind::MergeList => {
            let all: Vec<_> = operands(stored)?.into_iter().map(text::to_json).collect();
            vec![("merges", json!(all))]
        }
        EntryKind::ExpiringMerge => {
            let (operand, times) = split_operand(stored)?;
            [vec![("merge", text::to_json(operand))], times_of(times)].concat()
        }
        EntryKind::ExpiringMergeList => {
            let (list, times) = split_operand(stored)?;
            let all: Vec<_> = operands(list)?.into_iter().map(text::to_json).collect();
            [vec![("merges", json!(all))], times_of(times)].concat()
        }
        EntryKind::SeparatedPut => reference(stored)?,
        EntryKind::SeparatedExpiringPut => {
            let (stored, end) = split_expiring(stored)?;
            [reference(stored)?, vec![("expires_ms", json!(end))]].concat()
        }
    })
}

fn times_of(times: OperandTimes) -> Vec<(&'static str, Value)> {
    vec![("written_ms", json!(times.written_ms)), ("expires_ms", json!(times.expires_ms))]
}

fn reference(stored: &[u8]) -> Result<Vec<(&'static str, Value)>> {
    let reference = Reference::decode(stored)?;
    Ok(vec![
        ("value_object", json!(format!("{:016x}", reference.object))),
        ("value_offset", json!(reference.offset)),
        ("record_bytes", json!(reference.record_bytes)),
        ("value_bytes", json!(reference.value_bytes)),
    ])
}
