//! What happens in a history, for people.

use tombolo_env::Instant;
use tombolo_segment::call::Call;
use tombolo_segment::message::{Answer, Body, Extent, RegionId};
use tombolo_segment::writer::Published;

use super::Message;
use super::chain::Record;

#[expect(clippy::cast_precision_loss, reason = "shown to people only")]
pub(super) fn milliseconds(now: Instant) -> f64 {
    now.as_nanos() as f64 / 1e6
}

/// A region's name, short: its maker counts from 64 random bits.
pub(super) fn region(RegionId(number): RegionId) -> String {
    format!("region {:04x}-{:x}", (number >> 64) & 0xFFFF, number & 0xFFFF_FFFF)
}

fn call(call: &Call) -> String {
    let what = match &call.request.body {
        Body::Create { .. } => "make".to_owned(),
        Body::Append { offset, records, .. } => format!("append {} bytes at {offset} to", records.len()),
        Body::Seal => "seal".to_owned(),
        Body::Read { from, bytes_max } => format!("read {bytes_max} bytes from {from} of"),
        Body::Free => "free".to_owned(),
        Body::Collect { keep, .. } => format!("free all but {} regions, not", keep.len()),
    };
    format!("{what} {} on {}, epoch {}", region(call.request.region), call.node, call.request.epoch)
}

fn extent(extent: &Extent) -> String {
    format!("{} bytes", extent.length)
}

/// What a node said; `None`: nothing.
pub(super) fn answer(said: Option<&Answer>) -> String {
    match said {
        None => "no answer".to_owned(),
        Some(Answer::Held(held)) => format!("holds {}", extent(held)),
        Some(Answer::Sealed(None)) => "sealed, never seen".to_owned(),
        Some(Answer::Sealed(Some(held))) => format!("sealed with {}", extent(held)),
        Some(Answer::Bytes(bytes)) => format!("{} bytes read", bytes.len()),
        Some(Answer::Freed) => "freed".to_owned(),
        Some(Answer::Refused(refusal)) => format!("refused: {refusal}"),
    }
}

fn record(record: &Record) -> String {
    match record {
        Record::Claim => "a claim".to_owned(),
        Record::Configuration { log, members, settled } => {
            let members: Vec<String> = members
                .iter()
                .map(|member| format!("{} on {}", region(member.region), member.node))
                .collect();
            let settled =
                settled.map(|(length, _)| format!(", settled at {length} bytes")).unwrap_or_default();
            format!("log {log} is on {}{settled}", members.join(", "))
        }
    }
}

/// A message that arrives.
pub(super) fn message(message: &Message) -> String {
    match message {
        Message::Request { process, call: made, .. } => format!("from process {process}: {}", call(made)),
        Message::Checked { process, call: made, .. } => {
            format!("from process {process}, checked before: {}", call(made))
        }
        Message::Answer { process, outcome, tag: (log, _), .. } => {
            format!("to process {process}, log {log}: {}", answer(outcome.as_ref().ok()))
        }
        Message::Put { process, put } => {
            format!("from process {process}: put into slot {}: {}", put.slot, record(&put.record))
        }
        Message::PutEnded { process, outcome, .. } => {
            let outcome = match outcome {
                Published::Known => "holds its slot",
                Published::Foreign => "found another's record in its slot",
                Published::Unknown => "is of unknown outcome",
            };
            format!("to process {process}: its put {outcome}")
        }
    }
}
