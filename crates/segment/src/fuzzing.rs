//! Entry functions of the fuzz targets, as those of `tombolo_format::fuzzing`: each takes any
//! bytes, decodes them and uses what came out.

use crate::wire::body::Message;
use crate::wire::hello::{CHALLENGE_BYTES, Challenge, Farewell, HELLO_BYTES, Hello};
use crate::wire::secret::Way;
use crate::wire::{HEADER_BYTES, Header, append_frame, open};

pub mod seeds;

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 1] = [("node_wire", node_wire)];

/// Frames of a node's connection and all their bodies; a message that decodes must encode to the
/// same bytes.
pub fn node_wire(bytes: &[u8]) {
    if let Ok(hello) = bytes.get(..HELLO_BYTES).map_or(Hello::decode(bytes), Hello::decode) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Ok(challenge) = bytes.get(..CHALLENGE_BYTES).map_or(Challenge::decode(bytes), Challenge::decode) {
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
    }
    if let Ok(farewell) = Farewell::decode(bytes) {
        assert_eq!(farewell.encode(), bytes);
    }
    let mut rest = bytes;
    while let Ok(header) = Header::decode(rest) {
        let Some(frame) = rest.get(..header.frame_bytes()) else { return };
        rest = &rest[frame.len()..];
        let sound = open(&mut frame.to_vec(), &mut Way::plain()).is_ok();
        // A tag stands in the way of most mutations: bodies are read behind wrong ones as well.
        let body = &frame[HEADER_BYTES..];
        let Ok(message) = Message::decode(header.kind, body) else { continue };
        let mut again = Vec::new();
        append_frame(&mut again, &mut Way::plain(), message.kind(), header.number, |out| message.put(out));
        assert_eq!(&again[HEADER_BYTES..], body);
        assert!(!sound || again == frame);
    }
}
