//! Writers that store to a node's memory, in the simulated world, at every moment of a seal; and
//! once for real.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, Process, World};
use tombolo_env::{Completion, TaskClass};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, encode_header, first_digest};
use tombolo_storage::{ErrorKind, Result};

use super::*;
use crate::call::{Call, Lost, Member, Shape};
use crate::lent;
use crate::message::{Answer, Body, Extent, READ_BYTES_MAX, Refusal, Request};
use crate::node::{CONNECTIONS_MAX, Node, NodeOptions};
use crate::peer::{AtOnce, Peer};
use crate::takeover::{Progress, Recovery, Takeover};
use crate::tcp::TcpPeer;

const REGION: RegionId = RegionId(7);
const OWNER: Epoch = Epoch(3);
const LATER: Epoch = Epoch(4);
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
const ADDRESS: &str = "host-0:7000";

fn options(directory: &str) -> NodeOptions {
    NodeOptions {
        listen: ADDRESS.into(),
        bytes_max: 64 << 20,
        domain: String::new(),
        credentials: None,
        connections_max: CONNECTIONS_MAX,
        disk: None,
        share: Some(directory.into()),
        rdma: None,
    }
}

fn start(world: &World) -> (Process, Node) {
    let process = world.process("node");
    let env = process.env();
    let node = process
        .run(async move { Node::start(&env, options("/shm")).await })
        .expect("alive")
        .expect("it starts");
    (process, node)
}

/// A store to one node alone.
fn store(memory: &SharedMemory, offset: u32, records: &[u8]) -> std::result::Result<(), Sealed> {
    let stored = memory.begin_store(offset, records);
    memory.end_store(stored)
}

/// Appends of one record each.
fn appends(count: u32, size: usize) -> Vec<Body> {
    let (mut offset, mut predecessor) = (0, first_digest(9, &SEGMENT));
    let mut bodies = Vec::new();
    for number in 0..count {
        let payload = vec![number.to_le_bytes()[0]; size];
        let (header, digest) = encode_header(predecessor, offset, 0, &payload);
        let records = Bytes::from([&header[..], &payload].concat());
        let length = u32::try_from(records.len()).expect("short");
        bodies.push(Body::Append { offset, predecessor, records });
        (offset, predecessor) = (offset + length, digest);
    }
    bodies
}

fn create() -> Body {
    Body::Create { database: 9, segment: SEGMENT, bytes_max: 1 << 20 }
}

async fn said(answer: Completion<Result<Answer>>) -> Answer {
    answer.await.expect("answered").expect("by the node")
}

/// What comes of an append that is a store.
fn stored(peer: &SharedPeer, request: &Request) -> Result<Answer> {
    match peer.answer_at_once(request) {
        AtOnce::Stored => peer.answer_stored(request.region),
        AtOnce::Answer(answer) => answer,
        AtOnce::No => panic!("it is no store"),
    }
}

fn length(answer: &Answer) -> u32 {
    match answer {
        Answer::Held(extent) | Answer::Sealed(Some(extent)) => extent.length,
        other => panic!("{other:?}"),
    }
}

#[test]
fn stores_are_found_by_whoever_seals_and_end_then() {
    let world = World::new(1);
    let (_process, node) = start(&world);
    let writer = world.process("writer");
    let env = writer.env();
    writer
        .run(async move {
            let peer = SharedPeer::new(&env, ADDRESS, None);
            let other = TcpPeer::new(&env, ADDRESS, None);
            let incarnation = peer.status().await.expect("answered").expect("a status").incarnation;
            let ask = |epoch, body| Request { incarnation, region: REGION, epoch, body };
            assert_eq!(length(&said(peer.call(ask(OWNER, create()))).await), 0);
            assert!(peer.is_shared(REGION));
            let mut bodies = appends(20, 100);
            let last = bodies.pop().expect("many");
            for body in &bodies {
                assert!(peer.call(ask(OWNER, body.clone())).is_ready(), "a store is answered at once");
            }
            let stored = length(&said(peer.call(ask(OWNER, bodies[18].clone()))).await);
            assert_eq!(stored, 19 * 124, "the same again");
            let read =
                said(other.call(ask(Epoch::NONE, Body::Read { from: 0, bytes_max: READ_BYTES_MAX }))).await;
            assert!(matches!(read, Answer::Bytes(bytes) if bytes.len() == 19 * 124));
            let stale = said(other.call(ask(Epoch(2), Body::Seal))).await;
            assert_eq!(stale, Answer::Refused(Refusal::OtherEpoch(OWNER)));
            let (_, digest) = match &last {
                Body::Append { offset, predecessor, .. } => (offset, predecessor),
                other => panic!("{other:?}"),
            };
            let foreign = Body::Append {
                offset: 19 * 124,
                predecessor: *digest,
                records: Bytes::from_static(b"no record"),
            };
            assert_eq!(said(peer.call(ask(OWNER, foreign))).await, Answer::Refused(Refusal::Malformed));
            assert_eq!(length(&said(other.call(ask(LATER, Body::Seal))).await), 19 * 124);
            assert_eq!(said(peer.call(ask(OWNER, last))).await, Answer::Refused(Refusal::Sealed(LATER)));
            assert_eq!(said(other.call(ask(LATER, Body::Free))).await, Answer::Freed);
        })
        .expect("alive");
    assert_eq!(node.status().bytes_taken, 0);
    assert_eq!(files(&world), 0);
}

#[test]
fn what_is_collected_is_stored_to_no_more() {
    let world = World::new(4);
    let (_process, node) = start(&world);
    let writer = world.process("writer");
    let env = writer.env();
    writer
        .run(async move {
            let (peer, other) = (SharedPeer::new(&env, ADDRESS, None), TcpPeer::new(&env, ADDRESS, None));
            let incarnation = peer.status().await.expect("answered").expect("a status").incarnation;
            let ask = |region, epoch, body| Request { incarnation, region, epoch, body };
            said(peer.call(ask(REGION, OWNER, create()))).await;
            let bodies = appends(2, 100);
            assert_eq!(length(&said(peer.call(ask(REGION, OWNER, bodies[0].clone()))).await), 124);
            let collect = |keep| ask(RegionId(0), LATER, Body::Collect { database: 9, keep });
            assert_eq!(said(other.call(collect(vec![REGION]))).await, Answer::Freed);
            assert_eq!(length(&said(peer.call(ask(REGION, OWNER, bodies[1].clone()))).await), 248);
            assert_eq!(said(other.call(collect(Vec::new()))).await, Answer::Freed);
            let late = appends(3, 100).pop().expect("three");
            assert_eq!(said(peer.call(ask(REGION, OWNER, late))).await, Answer::Refused(Refusal::Freed));
        })
        .expect("alive");
    assert_eq!((node.status().bytes_taken, node.status().regions), (0, 0));
}

/// A writer stores while another seals. Whatever the writer took for held is within the sealed
/// length.
fn nothing_held_is_beyond_a_seal() {
    for seed in 0..300 {
        let world = World::new(seed);
        world.set_preemption_probability(0.3);
        let (node_process, _node) = start(&world);
        let (writer, sealer) = (world.process("writer"), world.process("sealer"));
        let held = Arc::new(Mutex::new(0));
        let (env, noted) = (writer.env(), Arc::clone(&held));
        let (ready, begun) = tombolo_env::completion();
        let task = writer.spawn(TaskClass::Foreground, "writer", async move {
            let peer = SharedPeer::new(&env, ADDRESS, None);
            let incarnation = peer.status().await.expect("answered").expect("a status").incarnation;
            let ask = |body| Request { incarnation, region: REGION, epoch: OWNER, body };
            said(peer.call(ask(create()))).await;
            ready.complete(incarnation);
            for body in appends(2000, 40) {
                match stored(&peer, &ask(body)).expect("the connection is up") {
                    Answer::Held(extent) => *noted.lock() = extent.length,
                    _ => return,
                }
                env.sleep(Duration::from_micros(3)).await;
            }
        });
        let env = sealer.env();
        let sealed = sealer.run(async move {
            let incarnation = begun.await.expect("the writer lives");
            let peer = TcpPeer::new(&env, ADDRESS, None);
            length(
                &said(peer.call(Request { incarnation, region: REGION, epoch: LATER, body: Body::Seal }))
                    .await,
            )
        });
        let sealed = sealed.expect("alive");
        world.run_until(task);
        assert!(*held.lock() <= sealed, "seed {seed}: {} held, {sealed} sealed", held.lock());
        drop(node_process);
    }
}

#[test]
fn a_seal_finds_whatever_was_held() {
    nothing_held_is_beyond_a_seal();
}

/// What a processor keeps in its store buffer, others do not see.
fn what_was_held_has_left_the_processor() {
    let Body::Append { records, predecessor, .. } = appends(1, 100).remove(0) else { unreachable!() };
    for seed in 0..50 {
        let world = World::new(seed);
        let (node, writer) = (world.process("node"), world.process("writer"));
        let life = NodeIncarnation(1);
        let mut memory = SharedMemory::create(&node, Path::new("/"), REGION, life, 1 << 16).expect("room");
        let mapped = SharedMemory::open(&writer, memory.path(), REGION, life, 1 << 16).expect("it is there");
        assert_eq!(store(&mapped, 0, &records), Ok(()));
        memory.end(End::Sealed(LATER)).expect("a word");
        assert!(sound_records(&memory, predecessor) == records, "seed {seed}");
    }
}

/// The sound records behind `predecessor`, from the beginning on.
fn sound_records(memory: &SharedMemory, predecessor: Digest) -> Vec<u8> {
    let mut records = Vec::new();
    let none = Extent { length: 0, digest: predecessor, committed: 0 };
    let held = lent::sound_records(memory, none, |some| records.extend_from_slice(some));
    assert_eq!(held.length as usize, records.len());
    records
}

#[test]
fn a_store_is_held_once_others_see_it() {
    what_was_held_has_left_the_processor();
}

/// All that a region holds, as its node answers.
async fn read_all(peer: &TcpPeer, incarnation: NodeIncarnation, epoch: Epoch) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let from = u32::try_from(all.len()).expect("short");
        // Few at once, of odd length: whatever they are of lies in several answers.
        let body = Body::Read { from, bytes_max: 10_007 };
        match said(peer.call(Request { incarnation, region: REGION, epoch, body })).await {
            Answer::Bytes(bytes) if bytes.is_empty() => return all,
            Answer::Bytes(bytes) => all.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_was_sealed_is_answered_from_where_it_was_stored_until_it_is_freed() {
    // Followers made the node keep copies of so many records before the seal.
    for followed in [0, 1, 150, 299, 300] {
        let world = World::new(6);
        let (_process, node) = start(&world);
        let (writer, sealer) = (world.process("writer"), world.process("sealer"));
        let env = writer.env();
        let other = Arc::new(TcpPeer::new(&sealer.env(), ADDRESS, None));
        let incarnation = world.run_until(other.status()).expect("answered").expect("a status").incarnation;
        let mut bodies = appends(301, 1000);
        let Some(Body::Append { records: late, .. }) = bodies.pop() else { unreachable!() };
        let stored: Vec<u8> = bodies
            .iter()
            .flat_map(
                |body| if let Body::Append { records, .. } = body { records.to_vec() } else { Vec::new() },
            )
            .collect();
        let length = u32::try_from(stored.len()).expect("short");
        let follower = Arc::clone(&other);
        let (mapped, _peer) = writer
            .run(async move {
                let peer = SharedPeer::new(&env, ADDRESS, None);
                let ask = |body| Request { incarnation, region: REGION, epoch: OWNER, body };
                said(peer.call(ask(create()))).await;
                for (number, body) in bodies.into_iter().enumerate() {
                    if followed > 0 && number == followed {
                        assert_eq!(read_all(&follower, incarnation, Epoch::NONE).await.len(), number * 1024);
                    }
                    assert!(matches!(said(peer.call(ask(body))).await, Answer::Held(_)));
                }
                if followed == 300 {
                    read_all(&follower, incarnation, Epoch::NONE).await;
                }
                let path = Path::new("/shm").join(format!("region-{REGION}"));
                (SharedMemory::open(&env, &path, REGION, incarnation, 1 << 20).expect("it is there"), peer)
            })
            .expect("alive");
        let taken = || node.status().bytes_taken;
        assert_eq!(taken(), 2 << 20);
        let ask = |epoch, body| {
            world.run_until(said(other.call(Request { incarnation, region: REGION, epoch, body })))
        };
        let sealed = ask(LATER, Body::Seal);
        assert!(matches!(sealed, Answer::Sealed(Some(extent)) if extent.length == length), "{sealed:?}");
        assert_eq!(taken(), 1 << 20, "memory is taken once");
        // A file is there for its permitted readers, unless nothing lies there that the node has
        // not copied before.
        assert_eq!(files(&world), usize::from(followed < 300), "followed {followed}");
        assert!(world.run_until(read_all(&other, incarnation, LATER)) == stored, "followed {followed}");
        // A writer that has not heard of it stores once more what it stored, and goes on.
        assert_eq!(store(&mapped, 0, &stored), Err(Sealed::By(LATER)));
        assert_eq!(store(&mapped, length, &late), Err(Sealed::By(LATER)));
        assert!(world.run_until(read_all(&other, incarnation, LATER)) == stored, "followed {followed}");
        writer.kill();
        let next = Epoch(LATER.0 + 1);
        assert_eq!(ask(next, Body::Seal), sealed);
        assert!(world.run_until(read_all(&other, incarnation, next)) == stored, "followed {followed}");
        assert_eq!(ask(next, Body::Free), Answer::Freed);
        assert_eq!((taken(), files(&world)), (0, 0));
    }
}

/// Files of regions that are there.
fn files(world: &World) -> usize {
    world
        .host(0)
        .all_files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("region"))
        .count()
}

/// A region that is freed while its memory is being mapped, at whatever moment, leaves none behind;
/// nor does one that is freed while it is asked where it lies.
#[test]
fn what_is_freed_while_it_is_mapped_is_let_go() {
    for seed in 0..60 {
        let world = World::new(seed);
        world.set_preemption_probability(0.3);
        let (_process, node) = start(&world);
        let (writer, sealer) = (world.process("writer"), world.process("sealer"));
        let peer = SharedPeer::new(&writer.env(), ADDRESS, None);
        let incarnation = world.run_until(peer.status()).expect("answered").expect("a status").incarnation;
        let ask = |region, epoch, body| Request { incarnation, region: RegionId(region), epoch, body };
        let made = peer.call(ask(7, OWNER, create()));
        while files(&world) == 0 {
            world.run_for(Duration::from_micros(1));
        }
        world.run_for(Duration::from_micros(seed));
        let freed = world.run_until(said(peer.call(ask(7, OWNER, Body::Free))));
        assert_eq!(freed, Answer::Freed);
        world.run_until(said(made));
        assert!(!peer.is_shared(REGION), "seed {seed}");
        world.run_until(said(peer.call(ask(8, OWNER, create()))));
        let stored = stored(&peer, &ask(8, OWNER, appends(1, 100).remove(0)));
        assert_eq!(length(&stored.expect("it is shared")), 124);
        let reader = SharedPeer::new(&sealer.env(), ADDRESS, None);
        world.run_until(said(reader.call(ask(8, LATER, Body::Seal))));
        let read = reader.call(ask(8, LATER, Body::Read { from: 0, bytes_max: 124 }));
        let freed = reader.call(ask(8, LATER, Body::Free));
        world.run_until(said(read));
        assert_eq!(world.run_until(said(freed)), Answer::Freed);
        assert!(!reader.is_read(RegionId(8)), "seed {seed}");
        assert_eq!((node.status().bytes_taken, files(&world)), (0, 0), "seed {seed}");
    }
}

/// A node that looked while a store of two records was under way says of the first alone that it
/// holds it, until it has a reason to look again.
#[test]
fn a_question_may_be_answered_with_less_than_was_held() {
    let world = World::new(4);
    let (_process, _node) = start(&world);
    let (writer, other) = (world.process("writer"), world.process("follower"));
    let peer = SharedPeer::new(&writer.env(), ADDRESS, None);
    let incarnation = world.run_until(peer.status()).expect("answered").expect("a status").incarnation;
    let ask = |epoch, body| Request { incarnation, region: REGION, epoch, body };
    world.run_until(said(peer.call(ask(OWNER, create()))));
    let path = Path::new("/shm").join(format!("region-{REGION}"));
    let mapped = SharedMemory::open(&writer.env(), &path, REGION, incarnation, 1 << 20).expect("it is there");
    let [Body::Append { records: first, predecessor, .. }, Body::Append { records: second, .. }] =
        &appends(2, 100)[..]
    else {
        unreachable!()
    };
    let _begun = mapped.begin_store(0, first);
    let reader = TcpPeer::new(&other.env(), ADDRESS, None);
    assert_eq!(world.run_until(read_all(&reader, incarnation, Epoch::NONE)), first[..]);
    let records = Bytes::from([&first[..], second].concat());
    let append = Body::Append { offset: 0, predecessor: *predecessor, records };
    assert_eq!(length(&stored(&peer, &ask(OWNER, append)).expect("it is shared")), 248);
    let question = Body::Append { offset: 0, predecessor: *predecessor, records: Bytes::new() };
    assert_eq!(length(&world.run_until(said(peer.call(ask(OWNER, question))))), 124);
    assert_eq!(length(&world.run_until(said(reader.call(ask(LATER, Body::Seal))))), 248);
}

/// Sealed bytes, read where they lie: the node hears of the first read, and of
/// no other; and never are more read than were sealed.
#[test]
fn what_was_sealed_is_read_where_it_lies() {
    for followed in [false, true] {
        let world = World::new(8);
        let (node_process, node) = start(&world);
        let (writer, sealer) = (world.process("writer"), world.process("sealer"));
        let (bodies, late) = {
            let mut bodies = appends(301, 1000);
            let late = bodies.pop().expect("many");
            (bodies, late)
        };
        let records =
            |body: &Body| if let Body::Append { records, .. } = body { records.to_vec() } else { Vec::new() };
        let all: Vec<u8> = bodies.iter().flat_map(records).collect();
        let peer = SharedPeer::new(&writer.env(), ADDRESS, None);
        let incarnation = world.run_until(peer.status()).expect("answered").expect("a status").incarnation;
        let ask = |epoch, body| Request { incarnation, region: REGION, epoch, body };
        world.run_until(said(peer.call(ask(OWNER, create()))));
        let path = Path::new("/shm").join(format!("region-{REGION}"));
        let deposed =
            SharedMemory::open(&writer.env(), &path, REGION, incarnation, 1 << 20).expect("it is there");
        for body in bodies {
            assert!(matches!(stored(&peer, &ask(OWNER, body)), Ok(Answer::Held(_))));
        }
        // A writer that has nothing to write asks whether it is there: what lies in it is not
        // looked at for that.
        let question =
            Body::Append { offset: 0, predecessor: first_digest(9, &SEGMENT), records: Bytes::new() };
        assert_eq!(length(&world.run_until(said(peer.call(ask(OWNER, question))))), 0);
        let reader = SharedPeer::new(&sealer.env(), ADDRESS, None);
        let read = |epoch, from, bytes_max| {
            world.run_until(said(reader.call(ask(epoch, Body::Read { from, bytes_max }))))
        };
        if followed {
            assert_eq!(
                read(Epoch::NONE, 0, READ_BYTES_MAX),
                Answer::Bytes(Bytes::copy_from_slice(&all)),
                "a follower asks the node"
            );
        }
        let seal = |epoch| world.run_until(said(reader.call(ask(epoch, Body::Seal))));
        let sealed = seal(LATER);
        assert_eq!(length(&sealed) as usize, all.len());
        // The writer has not heard of it.
        assert_eq!(store(&deposed, length(&sealed), &records(&late)), Err(Sealed::By(LATER)));
        // Several at once, before it is known where it lies.
        let part = |from: usize, bytes: usize| {
            Answer::Bytes(Bytes::copy_from_slice(&all[from.min(all.len())..(from + bytes).min(all.len())]))
        };
        let at_once: Vec<_> = (0..5)
            .map(|number| reader.call(ask(LATER, Body::Read { from: number * 7000, bytes_max: 7000 })))
            .collect();
        for (number, answer) in at_once.into_iter().enumerate() {
            assert_eq!(world.run_until(said(answer)), part(number * 7000, 7000));
        }
        let requests = node.counters().requests;
        for (from, bytes) in [
            (0, 1 << 20),
            (1, 10),
            (7, 100_000),
            (all.len() - 3, 3),
            (all.len() - 3, 4),
            (all.len(), 100),
            (1 << 20, 5),
        ] {
            let answer =
                read(LATER, u32::try_from(from).expect("short"), u32::try_from(bytes).expect("short"));
            assert_eq!(answer, part(from, bytes), "{bytes} from {from}");
        }
        // Of what the node has a copy, all of it before the seal, it is asked.
        let asked = node.counters().requests - requests;
        assert_eq!(asked, if followed { 7 } else { 0 });
        let stale = SharedPeer::new(&sealer.env(), ADDRESS, None);
        let refused = world.run_until(said(stale.call(ask(OWNER, Body::Read { from: 0, bytes_max: 10 }))));
        assert_eq!(refused, Answer::Refused(Refusal::OtherEpoch(LATER)));
        // Once anything else is asked of it, it is read anew.
        assert_eq!(seal(LATER), sealed);
        assert_eq!(read(LATER, 0, 10), part(0, 10));
        assert_eq!(world.run_until(said(reader.call(ask(LATER, Body::Free)))), Answer::Freed);
        assert_eq!(read(LATER, 0, 10), Answer::Refused(Refusal::Freed));
        assert_eq!((node.status().bytes_taken, files(&world)), (0, 0));
        // Who waits for a node that dies is not left waiting, and nothing of its life is read then.
        let waiting =
            reader.call(Request { region: RegionId(8), ..ask(LATER, Body::Read { from: 0, bytes_max: 10 }) });
        node_process.kill();
        assert!(!matches!(world.run_until(waiting), Some(Ok(_))));
    }
}

/// A reader that cannot read the bytes there asks the node for them, and says so in the log; all
/// waiters are answered, in whatever order.
#[test]
fn what_cannot_be_read_there_the_node_is_asked_for() {
    for fails_from in 0..12 {
        let world = World::new(fails_from);
        let (_process, node) = start(&world);
        let (writer, sealer) = (world.process("writer"), world.process("sealer"));
        let peer = SharedPeer::new(&writer.env(), ADDRESS, None);
        let incarnation = world.run_until(peer.status()).expect("answered").expect("a status").incarnation;
        let ask = |epoch, body| Request { incarnation, region: REGION, epoch, body };
        world.run_until(said(peer.call(ask(OWNER, create()))));
        let mut all = Vec::new();
        for body in appends(100, 1000) {
            if let Body::Append { records, .. } = &body {
                all.extend_from_slice(records);
            }
            assert!(matches!(stored(&peer, &ask(OWNER, body)), Ok(Answer::Held(_))));
        }
        let reader = SharedPeer::new(&sealer.env(), ADDRESS, None);
        world.run_until(said(reader.call(ask(LATER, Body::Seal))));
        let is_read =
            |operation: &Operation| matches!(operation.kind, OperationKind::Open | OperationKind::Read);
        world.inject(Fault::new(Action::Fail(io::ErrorKind::Other), is_read).after(fails_from).always());
        let requests = node.counters().requests;
        let answers: Vec<_> = (0..9)
            .map(|number| reader.call(ask(LATER, Body::Read { from: number * 9000, bytes_max: 9000 })))
            .collect();
        for (number, answer) in answers.into_iter().enumerate() {
            let expected = Bytes::copy_from_slice(&all[number * 9000..(number + 1) * 9000]);
            assert_eq!(world.run_until(said(answer)), Answer::Bytes(expected), "from {fails_from}, {number}");
        }
        // It is opened, its header read, and then each piece.
        let asked = node.counters().requests - requests;
        assert_eq!(asked, if fails_from < 2 { 9 } else { 11 - fails_from.min(11) }, "from {fails_from}");
    }
}

/// A file that is not the region's memory, or says more than it can hold, is not read: the node is
/// asked.
#[test]
fn memory_that_is_not_the_regions_is_not_read() {
    let world = World::new(9);
    let env = world.process("node").env();
    env.files().create_directories(Path::new("/shm")).expect("it can");
    let life = NodeIncarnation(5);
    let memory = SharedMemory::create(&env, Path::new("/shm"), REGION, life, 1 << 16).expect("room");
    let open =
        |region, life| reading::Records::open(&env, memory.path(), RegionId(region), NodeIncarnation(life));
    assert!(open(7, 5).expect("it is there").is_none(), "nobody has said how much is sealed");
    memory.tell_length(1000);
    assert_eq!(open(7, 5).expect("it is there").expect("sealed").bytes(), 1000);
    assert!(open(8, 5).is_err() && open(7, 6).is_err());
    memory.tell_length((1 << 16) + 1);
    assert!(open(7, 5).expect("it is there").is_none(), "more than it can hold");
    memory.mapping.write(20, b"x");
    memory.mapping.full_fence();
    assert!(open(7, 5).is_err(), "another region's header");
    let short = env.files().create_new(Path::new("/shm/short")).expect("room");
    short.set_length(20).expect("room");
    assert!(reading::Records::open(&env, Path::new("/shm/short"), REGION, life).is_err());
    assert!(reading::Records::open(&env, Path::new("/shm/none"), REGION, life).is_err());
}

/// A writer that nobody stops stores to three nodes, while others take over, one after the other:
/// what it was told is held is recovered by any successor, and all later ones recover the
/// same.
#[test]
fn takeovers_beside_a_writer_recover_what_was_held_and_all_the_same() {
    let mut parts = 0;
    for seed in 0..150 {
        let world = World::new(seed);
        world.set_preemption_probability(0.2);
        let addresses: Vec<String> = (0..3).map(|number| format!("host-0:{}", 7000 + number)).collect();
        let nodes: Vec<_> = (0..3)
            .map(|number| {
                let (process, listen) = (world.process("node"), addresses[number].clone());
                let env = process.env();
                let options = NodeOptions { listen, ..options(&format!("/shm-{number}")) };
                let node = process
                    .run(async move { Node::start(&env, options).await })
                    .expect("alive")
                    .expect("it starts");
                (process, node)
            })
            .collect();
        let writer = world.process("writer");
        let held = Arc::new(Mutex::new(0));
        let (env, noted, to) = (writer.env(), Arc::clone(&held), addresses.clone());
        let (ready, begun) = tombolo_env::completion();
        let task = writer.spawn(TaskClass::Foreground, "writer", async move {
            let peers: Vec<SharedPeer> =
                to.iter().map(|address| SharedPeer::new(&env, address, None)).collect();
            let mut members = Vec::new();
            for (peer, node) in peers.iter().zip(&to) {
                let incarnation = peer.status().await.expect("answered").expect("a status").incarnation;
                let made = Request { incarnation, region: REGION, epoch: OWNER, body: create() };
                assert_eq!(length(&said(peer.call(made)).await), 0);
                assert!(peer.is_shared(REGION));
                members.push(Member { node: node.as_str().into(), incarnation, region: REGION });
            }
            ready.complete(members.clone());
            for body in appends(600, 700) {
                let mut count = 0;
                let ask = |member: &Member| Request {
                    incarnation: member.incarnation,
                    region: REGION,
                    epoch: OWNER,
                    body: body.clone(),
                };
                // As a log does: all are stored to before the first is asked.
                let are_stored: Vec<bool> = peers
                    .iter()
                    .zip(&members)
                    .map(|(peer, member)| matches!(peer.answer_at_once(&ask(member)), AtOnce::Stored))
                    .collect();
                for (peer, _) in peers.iter().zip(are_stored).filter(|(_, is_stored)| *is_stored) {
                    if let Ok(Answer::Held(extent)) = peer.answer_stored(REGION) {
                        count += 1;
                        if count == 2 {
                            *noted.lock() = extent.length;
                        }
                    }
                }
                env.sleep(Duration::from_micros(2)).await;
            }
        });
        let members = world.run_until(begun).expect("the writer lives");
        let mut recovered = None;
        for epoch in [4, 5, 6] {
            let process = world.process("successor");
            let (env, members) = (process.env(), members.clone());
            let records =
                process.run(async move { take_over(&env, members, Epoch(epoch)).await }).expect("alive");
            let first = recovered.get_or_insert_with(|| records.clone());
            assert!(
                *first == records,
                "seed {seed}, epoch {epoch}: {} bytes, {} the first time",
                records.len(),
                first.len()
            );
            assert!(*held.lock() as usize <= records.len(), "seed {seed}, epoch {epoch}");
        }
        let all: Vec<u8> = appends(600, 700)
            .iter()
            .flat_map(
                |body| if let Body::Append { records, .. } = body { records.to_vec() } else { Vec::new() },
            )
            .collect();
        let recovered = recovered.expect("three did");
        assert!(all.starts_with(&recovered), "seed {seed}");
        parts += usize::from(!recovered.is_empty() && recovered.len() < all.len());
        world.run_until(task);
        drop(nodes);
    }
    assert!(parts > 50, "{parts} of them came in the middle");
}

async fn take_over(env: &Env, members: Vec<Member>, epoch: Epoch) -> Vec<u8> {
    let peer = |member: &Member| -> Box<dyn Peer> {
        // Half of them read where it lies.
        if epoch.0.is_multiple_of(2) {
            Box::new(SharedPeer::new(env, &member.node, None))
        } else {
            Box::new(TcpPeer::new(env, &member.node, None))
        }
    };
    let peers: Vec<Box<dyn Peer>> = members.iter().map(peer).collect();
    let shape = Shape { copies: 3, quorum: 2 };
    let recovery =
        Recovery { shape, database: 9, segment: SEGMENT, epoch, settled: None, is_mark: |_| false };
    let mut takeover = Takeover::new(recovery, members);
    loop {
        takeover.tick(env.now());
        for Call { id, request, .. } in takeover.take_calls() {
            let answer = peers[id.replica as usize].call(request).await.expect("answered");
            takeover.answered(id, answer.map_err(|_| Lost), env.now());
        }
        match takeover.progress() {
            Progress::Working => {}
            Progress::Recovered(recovered) => return recovered.records.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_died_is_noticed() {
    let world = World::new(2);
    let (process, _node) = start(&world);
    let writer = world.process("writer");
    let env = writer.env();
    let peer = Arc::new(SharedPeer::new(&env, ADDRESS, None));
    let asked = Arc::clone(&peer);
    let incarnation = writer
        .run(async move {
            let incarnation = asked.status().await.expect("answered").expect("a status").incarnation;
            said(asked.call(Request { incarnation, region: REGION, epoch: OWNER, body: create() })).await;
            incarnation
        })
        .expect("alive");
    process.kill();
    world.run_for(Duration::from_millis(10));
    let body = appends(1, 10).remove(0);
    let answer = world
        .run_until(peer.call(Request { incarnation, region: REGION, epoch: OWNER, body }))
        .expect("answered");
    assert_eq!(answer.expect_err("nobody is there").kind(), ErrorKind::Retry);
    // Its files go with the next node.
    let (_process, _node) = start(&world);
    assert_eq!(files(&world), 0);
}

#[test]
fn nothing_is_held_of_a_connection_that_has_ended() {
    let world = World::new(5);
    let (process, node) = start(&world);
    let writer = world.process("writer");
    let peer = SharedPeer::new(&writer, ADDRESS, None);
    let incarnation = world.run_until(peer.status()).expect("answered").expect("a status").incarnation;
    let ask = |region, body| Request { incarnation, region, epoch: OWNER, body };
    assert_eq!(length(&world.run_until(said(peer.call(ask(REGION, create()))))), 0);
    assert!(peer.is_shared(REGION));
    // While another region is being made its asker goes: so does the connection, and
    // nobody waits for ever.
    let making = peer.call(ask(RegionId(8), create()));
    let began = world.now();
    drop(peer);
    let made = world.run_until(making);
    assert!(!matches!(made, Some(Ok(_))) && world.now().since(began) < Duration::from_secs(1), "{made:?}");
    world.run_for(Duration::from_secs(1));
    assert_eq!(node.counters().connections, 0);
    let peer = SharedPeer::new(&writer, ADDRESS, None);
    assert_eq!(length(&world.run_until(said(peer.call(ask(RegionId(9), create()))))), 0);
    assert!(peer.is_shared(RegionId(9)));
    process.kill();
    world.run_for(Duration::from_millis(10));
    assert!(!peer.is_shared(RegionId(9)), "its memory is mapped no more");
}

#[test]
fn what_a_writer_stores_there_that_is_no_record_is_not_taken() {
    let world = World::new(3);
    let process = world.process("all");
    let mut memory =
        SharedMemory::create(&process, Path::new("/"), REGION, NodeIncarnation(1), 1 << 16).expect("room");
    let _taken = SharedMemory::open(&process, memory.path(), REGION, NodeIncarnation(1), 1 << 16)
        .expect("it is there");
    let Body::Append { records, predecessor, .. } = appends(1, 100).remove(0) else { unreachable!() };
    assert!(sound_records(&memory, predecessor).is_empty());
    for at in 0..records.len() {
        let mut changed = records.to_vec();
        changed[at] ^= 0x80;
        store(&memory, 0, &changed).expect("not sealed");
        assert!(sound_records(&memory, predecessor).is_empty(), "byte {at}");
    }
    store(&memory, 0, &[0xff; 24]).expect("not sealed");
    assert!(sound_records(&memory, predecessor).is_empty());
    store(&memory, 0, &records).expect("not sealed");
    assert_eq!(sound_records(&memory, predecessor), records);
    let path = memory.path().to_owned();
    let open = |incarnation, bytes_max| {
        SharedMemory::open(&process, &path, REGION, NodeIncarnation(incarnation), bytes_max)
    };
    assert!(open(1, 1 << 16).is_ok() && open(2, 1 << 16).is_err() && open(1, 1 << 15).is_err());
    memory.end(End::Sealed(LATER)).expect("a word");
    assert_eq!(store(&open(1, 1 << 16).expect("it is there"), 0, &records), Err(Sealed::By(LATER)));
    memory.end(End::Freed).expect("a word");
    assert_eq!(store(&memory, 0, &records), Err(Sealed::Freed));
}

#[test]
fn for_real() {
    let folder = tempfile::tempdir().expect("a directory");
    let env = Env::real();
    let options =
        NodeOptions { listen: "127.0.0.1:0".into(), ..options(folder.path().to_str().expect("UTF-8")) };
    let node = env.block_on(Node::start(&env, options)).expect("it starts");
    let peer = SharedPeer::new(&env, node.address(), None);
    let incarnation = env.block_on(peer.status()).expect("answered").expect("a status").incarnation;
    let ask = |epoch, body| Request { incarnation, region: REGION, epoch, body };
    env.block_on(said(peer.call(ask(OWNER, create()))));
    for body in appends(1000, 500) {
        assert!(matches!(env.block_on(said(peer.call(ask(OWNER, body)))), Answer::Held(_)));
    }
    assert!(peer.is_shared(REGION));
    // What nobody asked about is stored all the same.
    for body in appends(1003, 500).split_off(1000) {
        assert!(matches!(peer.answer_at_once(&ask(OWNER, body)), AtOnce::Stored));
    }
    // Somebody asks meanwhile whether the region is there.
    let question = Body::Append { offset: 0, predecessor: first_digest(9, &SEGMENT), records: Bytes::new() };
    assert!(matches!(env.block_on(said(peer.call(ask(OWNER, question)))), Answer::Held(_)));
    assert_eq!(length(&peer.answer_stored(REGION).expect("it was stored")), 1003 * 524);
    assert_eq!(peer.answer_stored(REGION).expect_err("once").kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(length(&env.block_on(said(peer.call(ask(LATER, Body::Seal))))), 1003 * 524);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use tombolo_storage::mutant::notices;
    notices(Mutant::SharedWordCheckedBeforeStore, nothing_held_is_beyond_a_seal);
    notices(Mutant::SharedStoredWithoutFence, what_was_held_has_left_the_processor);
    notices(Mutant::SharedReadsBeforeWord, nothing_held_is_beyond_a_seal);
}

#[test]
fn memory_that_no_writer_has_taken_is_not_touched() {
    let world = World::new(1);
    let env = world.process("node").env();
    let directory = Path::new("/shm");
    env.files().create_directories(directory).expect("it can");
    let (incarnation, first) = (NodeIncarnation(5), first_digest(9, &SEGMENT));
    let memory = SharedMemory::create(&env, directory, REGION, incarnation, 1 << 20).expect("room");
    let Body::Append { records, .. } = &appends(1, 100)[0] else { panic!("an append") };
    // As it could only be found behind a writer that took it.
    memory.mapping.write(SHARED_HEADER_BYTES, records);
    assert_eq!(sound_records(&memory, first), b"");
    let _taken = SharedMemory::open(&env, memory.path(), REGION, incarnation, 1 << 20).expect("it is there");
    assert_eq!(sound_records(&memory, first), records[..]);
}
