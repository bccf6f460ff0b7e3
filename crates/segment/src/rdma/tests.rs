//! Writers whose cards write to a node's memory. They need a card: `TOMBOLO_RDMA` names it, and
//! without it they say that they are skipped. `cargo xtask rdma` runs them in a guest that has one.

use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Completion;
use tombolo_env::real::verbs::{Channel, Memory, QueuePair};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{encode_header, first_digest};
use tombolo_storage::Epoch;

use super::*;
use crate::lent::{End, Lent};
use crate::message::{Answer, Body, READ_BYTES_MAX, Refusal, RegionId, Request};
use crate::node::{CONNECTIONS_MAX, Node, NodeOptions};
use crate::peer::Peer;
use crate::tcp::TcpPeer;

pub(crate) const REGION: RegionId = RegionId(7);
pub(crate) const OWNER: Epoch = Epoch(3);
pub(crate) const LATER: Epoch = Epoch(4);
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
const RECORD_HEADER: u32 = 24;

/// The card of these tests. `None`: none was named, and they are skipped.
pub(crate) fn device() -> Option<Device> {
    let Some(name) = std::env::var_os("TOMBOLO_RDMA") else {
        eprintln!("skipped: TOMBOLO_RDMA names no device (cargo xtask rdma makes a guest that has one)");
        return None;
    };
    let name = name.into_string().expect("a name");
    Some(open(&Env::real(), Some(&name)).expect("the device that was named"))
}

/// Appends of one record each.
pub(crate) fn appends(count: u32, size: usize) -> impl Iterator<Item = Body> {
    let (mut offset, mut predecessor) = (0, first_digest(9, &SEGMENT));
    (0..count).map(move |number| {
        let payload = vec![number.to_le_bytes()[0]; size];
        let (header, digest) = encode_header(predecessor, offset, 0, &payload);
        let records = Bytes::from([&header[..], &payload].concat());
        let length = u32::try_from(records.len()).expect("short");
        let body = Body::Append { offset, predecessor, records };
        (offset, predecessor) = (offset + length, digest);
        body
    })
}

pub(crate) fn create(bytes_max: u32) -> Body {
    Body::Create { database: 9, segment: SEGMENT, bytes_max }
}

async fn said(answer: Completion<Result<Answer>>) -> Answer {
    answer.await.expect("answered").expect("by the node")
}

fn length(answer: &Answer) -> u32 {
    match answer {
        Answer::Held(extent) | Answer::Sealed(Some(extent)) => extent.length,
        other => panic!("{other:?}"),
    }
}

/// A node with the card, and a writer that has it too.
struct Setup {
    env: Env,
    node: Node,
    peer: RdmaPeer,
    other: TcpPeer,
    life: crate::message::NodeIncarnation,
}

fn setup() -> Option<Setup> {
    let device = device()?;
    let env = Env::real();
    let options = NodeOptions {
        listen: "127.0.0.1:0".into(),
        bytes_max: 64 << 20,
        domain: String::new(),
        credentials: None,
        connections_max: CONNECTIONS_MAX,
        disk: None,
        share: None,
        rdma: Some(device.name().to_owned()),
    };
    let node = env.block_on(Node::start(&env, options)).expect("it starts");
    let peer = RdmaPeer::new(&env, node.address(), None, &device).expect("a card");
    let other = TcpPeer::new(&env, node.address(), None);
    let life = node.status().incarnation;
    Some(Setup { env, node, peer, other, life })
}

impl Setup {
    fn ask(&self, peer: &dyn Peer, epoch: Epoch, body: Body) -> Answer {
        self.env.block_on(said(peer.call(Request { incarnation: self.life, region: REGION, epoch, body })))
    }

    fn write(&self, body: Body) -> Answer {
        self.ask(&self.peer, OWNER, body)
    }

    fn read_all(&self, bytes: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < bytes as usize {
            let from = u32::try_from(all.len()).expect("short");
            let Answer::Bytes(more) =
                self.ask(&self.other, Epoch::NONE, Body::Read { from, bytes_max: READ_BYTES_MAX })
            else {
                panic!("bytes")
            };
            assert!(!more.is_empty(), "{from} of {bytes} bytes");
            all.extend_from_slice(&more);
        }
        all
    }
}

#[test]
fn writes_are_found_by_whoever_seals_and_end_then() {
    let Some(setup) = setup() else { return };
    assert_eq!(length(&setup.write(create(1 << 20))), 0);
    assert!(setup.peer.is_paired(REGION) && setup.node.counters().regions_paired == 1);
    let mut bodies: Vec<Body> = appends(20, 100).collect();
    let last = bodies.pop().expect("many");
    for (number, body) in (1..).zip(&bodies) {
        assert_eq!(length(&setup.write(body.clone())), number * 124);
    }
    assert_eq!(setup.node.counters().appends, 0, "the node has seen none of them");
    assert_eq!(length(&setup.write(bodies[18].clone())), 19 * 124, "the same again");
    let Answer::Bytes(read) =
        setup.ask(&setup.other, Epoch::NONE, Body::Read { from: 0, bytes_max: READ_BYTES_MAX })
    else {
        panic!("bytes")
    };
    assert_eq!(read.len(), 19 * 124);
    assert_eq!(setup.ask(&setup.other, Epoch(2), Body::Seal), Answer::Refused(Refusal::OtherEpoch(OWNER)));
    let Body::Append { predecessor, .. } = last.clone() else { unreachable!() };
    // An empty request is answered by the node, and later appends are held as ever.
    let nothing = Body::Append { offset: 19 * 124, predecessor, records: Bytes::new() };
    let asked = setup.node.counters().requests;
    assert_eq!(length(&setup.write(nothing.clone())), 19 * 124);
    assert_eq!(setup.node.counters().requests, asked + 1);
    let foreign = Body::Append { offset: 19 * 124, predecessor, records: Bytes::from_static(b"no record") };
    assert_eq!(setup.write(foreign), Answer::Refused(Refusal::Malformed));
    assert_eq!(length(&setup.ask(&setup.other, LATER, Body::Seal)), 19 * 124);
    assert_eq!(setup.write(nothing), Answer::Refused(Refusal::Sealed(LATER)));
    // The card notices in its own time that nobody acknowledges; by then nobody knows what came of
    // it. Asked again, the node says.
    let late = setup.peer.call(Request {
        incarnation: setup.life,
        region: REGION,
        epoch: OWNER,
        body: last.clone(),
    });
    let error = setup.env.block_on(late).expect("answered").expect_err("nobody acknowledges it");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(!setup.peer.is_paired(REGION));
    assert_eq!(setup.write(last), Answer::Refused(Refusal::Sealed(LATER)));
    assert_eq!(setup.ask(&setup.other, LATER, Body::Free), Answer::Freed);
    assert_eq!((setup.node.status().bytes_taken, setup.node.status().regions), (0, 0));
}

#[test]
fn many_are_on_their_way_and_long_ones_take_several_writes() {
    let Some(setup) = setup() else { return };
    setup.write(create(24 << 20));
    // Longer than a slot, and longer than all of them.
    let sizes = [(3000, 500), (10, 200_000), (2, 5 << 20)];
    let (mut offset, mut predecessor) = (0, first_digest(9, &SEGMENT));
    let (mut written, mut waiting) = (Vec::new(), Vec::new());
    for (count, size) in sizes {
        for number in 0..count {
            let payload = vec![u8::try_from(number % 251).expect("short"); size];
            let (header, digest) = encode_header(predecessor, offset, 0, &payload);
            let records = Bytes::from([&header[..], &payload].concat());
            written.extend_from_slice(&records);
            let body = Body::Append { offset, predecessor, records: records.clone() };
            waiting.push(setup.peer.call(Request {
                incarnation: setup.life,
                region: REGION,
                epoch: OWNER,
                body,
            }));
            (offset, predecessor) = (offset + u32::try_from(records.len()).expect("short"), digest);
        }
    }
    let lengths: Vec<u32> =
        waiting.into_iter().map(|answer| length(&setup.env.block_on(said(answer)))).collect();
    assert!(lengths.is_sorted() && lengths.last() == Some(&offset), "{:?}", lengths.last());
    assert_eq!(setup.node.counters().appends, 0);
    assert!(setup.read_all(offset) == written);
    let sealed = setup.ask(&setup.other, LATER, Body::Seal);
    assert_eq!(length(&sealed), offset);
    assert!(matches!(sealed, Answer::Sealed(Some(extent)) if extent.digest == predecessor));
}

#[test]
fn a_region_that_is_full_or_collected_takes_no_more() {
    let Some(setup) = setup() else { return };
    setup.write(create(300));
    let bodies: Vec<Body> = appends(3, 100).collect();
    assert_eq!(length(&setup.write(bodies[0].clone())), 124);
    assert_eq!(length(&setup.write(bodies[1].clone())), 248);
    assert_eq!(setup.write(bodies[2].clone()), Answer::Refused(Refusal::Full(52)));
    assert_eq!(
        setup.ask(&setup.other, LATER, Body::Collect { database: 9, keep: vec![REGION] }),
        Answer::Freed
    );
    assert_eq!(setup.read_all(248).len(), 248);
    assert_eq!(
        setup.ask(&setup.other, LATER, Body::Collect { database: 9, keep: Vec::new() }),
        Answer::Freed
    );
    assert_eq!((setup.node.status().bytes_taken, setup.node.status().regions), (0, 0));
}

#[test]
fn a_connection_that_ends_takes_its_pairs_along_and_what_was_held_stays() {
    let Some(setup) = setup() else { return };
    setup.write(create(1 << 20));
    assert_eq!(setup.node.status().bytes_taken, 2 << 20);
    for body in appends(10, 100) {
        setup.write(body);
    }
    let Setup { env, node, peer, other, life } = setup;
    drop(peer);
    // The node hears of the end on another connection's time.
    while node.counters().connections > 1 {
        std::thread::yield_now();
    }
    let read = Request {
        incarnation: life,
        region: REGION,
        epoch: Epoch::NONE,
        body: Body::Read { from: 0, bytes_max: READ_BYTES_MAX },
    };
    assert!(matches!(env.block_on(said(other.call(read))), Answer::Bytes(bytes) if bytes.len() == 1240));
    assert_eq!(node.status().bytes_taken, 1 << 20, "the memory is the node's again");
}

#[test]
fn a_node_that_ends_is_noticed() {
    let Some(setup) = setup() else { return };
    setup.write(create(1 << 20));
    let bodies: Vec<Body> = appends(2, 100).collect();
    setup.write(bodies[0].clone());
    let Setup { env, node, peer, life, .. } = setup;
    env.block_on(node.stop()).expect("it has no disk");
    while peer.is_paired(REGION) {
        std::thread::yield_now();
    }
    let answer = env.block_on(peer.call(Request {
        incarnation: life,
        region: REGION,
        epoch: OWNER,
        body: bodies[1].clone(),
    }));
    assert!(answer.expect("answered").is_err());
}

#[test]
fn memory_that_was_taken_back_does_not_change() {
    let Some(device) = device() else { return };
    let env = Env::real();
    let channel = Channel::new(&device).expect("a channel");
    let source = Memory::source(&device, 1 << 16).expect("memory");
    let queue = QueuePair::source(&device, &channel, 1, 32, 5).expect("a pair");
    let mut target = Target::new(&env, &device, &queue.endpoint().into(), 1 << 20).expect("a target");
    queue.connect(&target.address().into()).expect("a way");
    let window = target.window();
    let mut numbers = 0..;
    let mut post = |queue: &QueuePair| -> bool {
        let number: u64 = numbers.next().expect("endless");
        source.write(0, &[number.to_le_bytes()[0] | 1; 4096]);
        queue.write(number, &source, 0..4096, window.address + number % 200 * 4096, window.key).is_ok()
    };
    // Full speed: a write for each that has completed.
    let mut completed = 0;
    (0..16).for_each(|_| assert!(post(&queue)));
    while completed < 500 {
        if let Some(done) = queue.completed().expect("it looks") {
            assert_eq!(done.outcome, Ok(()));
            completed += 1;
            assert!(post(&queue));
        }
    }
    target.end(End::Freed).expect("the fence");
    let snapshot = |target: &Target| {
        let mut bytes = vec![0; 1 << 20];
        assert!(target.copy(0, &mut bytes));
        bytes
    };
    let before = snapshot(&target);
    assert!(before[..4096].iter().all(|byte| *byte != 0));
    // The writes on their way are sent again and again: none of them lands.
    for _ in 0..2000 {
        let _told = queue.completed().expect("it looks");
        std::thread::yield_now();
    }
    queue.fail().expect("the card takes the order");
    assert!(snapshot(&target) == before, "a write landed behind the fence");
}

#[test]
fn memory_that_nobody_gave_leave_to_is_not_written() {
    let Some(device) = device() else { return };
    let env = Env::real();
    let channel = Channel::new(&device).expect("a channel");
    let source = Memory::source(&device, 4096).expect("memory");
    for wrong in 0..3 {
        let queue = QueuePair::source(&device, &channel, 1, 4, 5).expect("a pair");
        let target = Target::new(&env, &device, &queue.endpoint().into(), 1 << 16).expect("a target");
        queue.connect(&target.address().into()).expect("a way");
        let window = target.window();
        let (address, key) = match wrong {
            0 => (window.address, window.key ^ 1),
            1 => (window.address + (1 << 20), window.key),
            _ => (window.address.wrapping_sub(64), window.key),
        };
        queue.write(1, &source, 0..128, address, key).expect("it is posted");
        let outcome = loop {
            if let Some(done) = queue.completed().expect("it looks") {
                break done.outcome;
            }
            std::thread::yield_now();
        };
        assert!(outcome.is_err(), "{wrong}");
        let mut bytes = vec![0; 1 << 16];
        assert!(target.copy(0, &mut bytes) && bytes.iter().all(|byte| *byte == 0), "{wrong}");
    }
}

#[test]
fn figures_of_one_append() {
    let Some(setup) = setup() else { return };
    let mut figures = Vec::new();
    for (name, peer) in [("RDMA", &setup.peer as &dyn Peer), ("TCP", &setup.other)] {
        let region = RegionId(100 + figures.len() as u128);
        let request = |body| Request { incarnation: setup.life, region, epoch: OWNER, body };
        setup.env.block_on(said(peer.call(request(create(4 << 20)))));
        let mut took: Vec<Duration> = Vec::new();
        for body in appends(2000, 488) {
            let began = setup.env.now();
            setup.env.block_on(said(peer.call(request(body))));
            took.push(setup.env.now().since(began));
        }
        took.sort_unstable();
        figures.push((name, took[took.len() / 2], took[took.len() * 99 / 100]));
    }
    assert_eq!(RECORD_HEADER + 488, 512);
    for (name, median, high) in figures {
        eprintln!("append of 512 B to one node, one at a time, {name}: p50 {median:?}, p99 {high:?}");
    }
}
