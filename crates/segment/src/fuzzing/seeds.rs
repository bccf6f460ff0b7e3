//! Sound inputs, for fuzzing to begin with, and for tests.

use bytes::Bytes;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::Digest;
use tombolo_storage::Epoch;

use crate::message::{
    Answer, Body, Extent, Holding, NodeIncarnation, NodeMedium, NodeStatus, QueueAddress, Refusal, RegionId,
    Request, Window,
};
use crate::wire::append_frame;
use crate::wire::body::Message;
use crate::wire::hello::{Challenge, Farewell, Hello};
use crate::wire::secret::Way;
use crate::wire::{Kind, VERSION};

/// One message of each kind, and each refusal.
pub fn messages() -> Vec<Message> {
    let request = |body| {
        Message::Request(Request {
            incarnation: NodeIncarnation(1),
            region: RegionId(2),
            epoch: Epoch(3),
            body,
        })
    };
    let segment = SegmentIdentity { incarnation: 4, epoch: 5, lane: 6, segment: 7 };
    let extent = Extent { length: 8, digest: Digest(9), committed: 7 };
    let status = NodeStatus {
        incarnation: NodeIncarnation(1),
        bytes_max: 1 << 30,
        bytes_taken: 1 << 20,
        regions: 1,
        names: 2,
        medium: NodeMedium::Disk,
        is_draining: true,
        domain: "rack 7".into(),
        drain_millis_left: Some(60_000),
        databases: 9,
        holdings: vec![Holding { database: 40, regions: 41, bytes: 42 }],
    };
    let queue = QueueAddress { queue: 30, first_packet: 31, lid: 32, mtu: 3, gid: [33; 16] };
    let refusals = [
        Refusal::OtherIncarnation(NodeIncarnation(10)),
        Refusal::Unknown,
        Refusal::Freed,
        Refusal::Damaged { sound: 11, recorded: 12 },
        Refusal::Sealed(Epoch(13)),
        Refusal::OtherEpoch(Epoch(14)),
        Refusal::Gap(15),
        Refusal::Differs(16),
        Refusal::Malformed,
        Refusal::OtherArguments,
        Refusal::Full(17),
        Refusal::Draining,
        Refusal::LendsAtMost(18),
    ];
    let mut messages = vec![
        request(Body::Create { database: 20, segment, bytes_max: 21 }),
        request(Body::Append {
            offset: 22,
            predecessor: Digest(23),
            records: Bytes::from_static(b"records"),
        }),
        request(Body::Seal),
        request(Body::Read { from: 24, bytes_max: 25 }),
        request(Body::Free),
        request(Body::Collect { database: 20, keep: vec![RegionId(26), RegionId(27)] }),
        Message::Status,
        Message::Answer(Answer::Held(extent)),
        Message::Answer(Answer::Sealed(Some(extent))),
        Message::Answer(Answer::Sealed(None)),
        Message::Answer(Answer::Bytes(Bytes::from_static(b"bytes"))),
        Message::Answer(Answer::Freed),
        Message::StatusIs(status),
        Message::WantedBack(RegionId(26)),
        Message::Share(NodeIncarnation(27), RegionId(28), Epoch(29)),
        Message::SharedAt(Some("/dev/shm/node/region".into())),
        Message::SharedAt(None),
        Message::Pair(NodeIncarnation(27), RegionId(28), Epoch(29), queue),
        Message::PairedWith(Some((queue, Window { address: 34, key: 35 }))),
        Message::PairedWith(None),
        Message::Lend(36),
    ];
    messages.extend(refusals.map(|refusal| Message::Answer(Answer::Refused(refusal))));
    messages
}

/// One input for each target and kind.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    let mut frames = Vec::new();
    for (number, message) in (1..).zip(messages()) {
        append_frame(&mut frames, &mut Way::plain(), message.kind(), number, |out| message.put(out));
    }
    let hello = Hello { version: VERSION, has_secret: true, nonce: [1; 32], client: 2 };
    let challenge = Challenge { version: VERSION, has_secret: false, nonce: [3; 32] };
    let mut framed = Vec::new();
    append_frame(&mut framed, &mut Way::plain(), Kind::Hello, 0, |out| {
        out.extend_from_slice(&hello.encode());
    });
    vec![
        ("node_wire", frames),
        ("node_wire", framed),
        ("node_wire", hello.encode().to_vec()),
        ("node_wire", challenge.encode().to_vec()),
        ("node_wire", Farewell::Ending.encode().to_vec()),
    ]
}
