//! Objects of logs that are kept as objects: data and seals.

use bytes::Bytes;
use serde_json::json;
use tombolo_format::FormatError;
use tombolo_format::log_frame::{SegmentIdentity, decode_frame};
use tombolo_format::log_object::{LOG_OBJECT_FIRST_BYTE, LOG_OBJECT_HEADER_BYTES, LogObject, SEAL_BYTES};
use tombolo_storage::LogOffset;

use super::log::{frame, identity_by_bytes, next_frame};
use super::report::Report;

/// Reports on an object of a log.
pub fn inspect(name: &str, bytes: &Bytes, entries: bool, report: &mut Report) {
    report.kind("log object");
    // What the name says, where it says it: a sound object in another's place is damage.
    let Some(identity) = identity_by_name(name).or_else(|| identity_by_bytes(bytes)) else {
        let found = format!("{} bytes", bytes.len());
        return report.damage(
            0,
            "header",
            FormatError::damaged(0, format!("a header of {LOG_OBJECT_HEADER_BYTES} bytes"), found),
        );
    };
    let mut fields = vec![
        ("incarnation", json!(format!("{:016x}", identity.incarnation))),
        ("epoch", json!(identity.epoch)),
        ("lane", json!(identity.lane)),
        ("slot", json!(identity.segment)),
    ];
    match LogObject::decode(bytes, &identity) {
        Ok(LogObject::Seal { by, sealed }) => {
            fields.extend([
                ("by_epoch", json!(by)),
                ("length", json!(LogOffset(sealed).to_string())),
                ("checksum", json!("right")),
            ]);
            return report.part(0, SEAL_BYTES as u64, "seal: the log ends before this slot", fields);
        }
        Ok(LogObject::Data { bytes: length, writer, known_through }) => {
            let writer = format!("{writer:016x}");
            fields.extend([
                ("bytes", json!(length)),
                ("writer", json!(writer)),
                ("known_through", json!(known_through)),
            ]);
            fields.push(("checksum", json!("right")));
            report.part(0, LOG_OBJECT_HEADER_BYTES as u64, "header of data", fields);
            if length as usize != bytes.len() {
                let found = format!("{} bytes", bytes.len());
                report.damage(
                    0,
                    "object",
                    FormatError::damaged(bytes.len(), format!("an object of {length} bytes"), found),
                );
            }
        }
        Err(error) => report.damage(0, "header", error),
    }
    let mut at = LOG_OBJECT_FIRST_BYTE;
    while (at as usize) < bytes.len() {
        match decode_frame(bytes, at, &identity) {
            Ok(found) => {
                frame(&found, entries, report);
                at = found.end;
            }
            Err(reason) => {
                report.damage(0, "frame", reason.into_error(at));
                // Frames beyond the bad place are shown too, though recovery stops there.
                match next_frame(bytes, at, &identity) {
                    Some(next) => at = next,
                    None => return,
                }
            }
        }
    }
}

/// Of `…/{incarnation}/log-objects/{epoch}/{lane}/{slot}`.
fn identity_by_name(name: &str) -> Option<SegmentIdentity> {
    let mut segments = name.rsplit('/');
    let (slot, lane, epoch) = (segments.next()?, segments.next()?, segments.next()?);
    let incarnation =
        segments.next().filter(|directory| *directory == "log-objects").and_then(|_| segments.next())?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some(SegmentIdentity {
        incarnation: number(incarnation)?,
        epoch: number(epoch)?,
        lane: u32::from_str_radix(lane, 16).ok()?,
        segment: u32::from_str_radix(slot, 16).ok()?,
    })
}
