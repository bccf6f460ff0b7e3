//! Writers and nodes over the simulated network, and once over the real one.

use std::time::Duration;

use bytes::Bytes;
use tombolo_env::simulated::{Process, World};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, encode_header, first_digest};
use tombolo_storage::Epoch;

use super::*;
use crate::message::{NodeIncarnation, READ_BYTES_MAX, Refusal};
use crate::node::{CONNECTIONS_MAX, Node, NodeOptions};
use crate::wire::hello::{Challenge, Hello};
use crate::wire::secret::Secret;
use crate::wire::{TAG_BYTES, VERSION};

const REGION: RegionId = RegionId(7);
const OWNER: Epoch = Epoch(3);
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
const ADDRESS: &str = "node:7000";

fn secret() -> Secret {
    Secret::new(b"a secret of the tests, long enough").expect("long enough")
}

fn options() -> NodeOptions {
    NodeOptions {
        listen: ADDRESS.into(),
        bytes_max: 64 << 20,
        domain: "rack 1".into(),
        credentials: Some(secret().into()),
        connections_max: CONNECTIONS_MAX,
        disk: None,
        share: None,
        rdma: None,
    }
}

struct Setup {
    world: World,
    node: Process,
    writer: Process,
}

fn setup(seed: u64) -> Setup {
    let world = World::new(seed);
    let (node, writer) = (world.add_host("node").process("node"), world.add_host("writer").process("writer"));
    Setup { world, node, writer }
}

impl Setup {
    fn start(&self, options: NodeOptions) -> Node {
        let env = self.node.env();
        self.node.run(async move { Node::start(&env, options).await }).expect("alive").expect("it starts")
    }

    fn peer(&self) -> TcpPeer {
        TcpPeer::new(&self.writer, ADDRESS, Some(secret().into()))
    }

    fn wait<T: Send>(&self, completion: Completion<Result<T>>) -> Result<T> {
        self.world.run_until(completion).expect("every call is answered")
    }

    fn life(&self, peer: &TcpPeer) -> NodeIncarnation {
        self.wait(peer.status()).expect("a status").incarnation
    }
}

fn request(incarnation: NodeIncarnation, body: Body) -> Request {
    Request { incarnation, region: REGION, epoch: OWNER, body }
}

fn create() -> Body {
    Body::Create { database: 9, segment: SEGMENT, bytes_max: 16 << 20 }
}

/// Appends of records with these payloads, one each.
fn appends(payloads: impl IntoIterator<Item = Vec<u8>>) -> Vec<Body> {
    let (mut offset, mut predecessor) = (0, first_digest(9, &SEGMENT));
    let mut bodies = Vec::new();
    for payload in payloads {
        let (header, digest) = encode_header(predecessor, offset, 0, &payload);
        let records = Bytes::from([&header[..], &payload].concat());
        let length = u32::try_from(records.len()).expect("short");
        bodies.push(Body::Append { offset, predecessor, records });
        (offset, predecessor) = (offset + length, digest);
    }
    bodies
}

fn length(answer: Result<Answer>) -> u32 {
    match answer {
        Ok(Answer::Held(extent) | Answer::Sealed(Some(extent))) => extent.length,
        other => panic!("{other:?}"),
    }
}

fn said(answer: Result<Answer>) -> Answer {
    answer.expect("the node answers")
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

#[test]
fn calls_are_answered_in_their_order() {
    for seed in 0..20 {
        let setup = setup(seed);
        let _node = setup.start(options());
        let peer = setup.peer();
        let life = setup.life(&peer);
        let mut bodies = vec![create()];
        bodies.extend(appends((0..50).map(|number: u8| vec![number; usize::from(number) * 7])));
        let answers: Vec<_> = bodies.into_iter().map(|body| peer.call(request(life, body))).collect();
        let lengths: Vec<u32> = answers.into_iter().map(|answer| length(setup.wait(answer))).collect();
        assert!(lengths.is_sorted() && lengths[0] == 0, "{lengths:?}");
        let sealed = length(setup.wait(peer.call(request(life, Body::Seal))));
        assert_eq!(Some(&sealed), lengths.last());
        let read = setup.wait(peer.call(request(life, Body::Read { from: 0, bytes_max: u32::MAX })));
        assert!(matches!(read, Ok(Answer::Bytes(bytes)) if bytes.len() == sealed as usize));
        assert_eq!(said(setup.wait(peer.call(request(life, Body::Free)))), Answer::Freed);
    }
}

#[test]
fn long_records_arrive_beside_others() {
    let setup = setup(1);
    let node = setup.start(options());
    let (one, other) = (setup.peer(), setup.peer());
    let life = setup.life(&one);
    let mut answers = vec![one.call(request(life, create()))];
    for body in appends((0..5).map(|number: u8| vec![number; 2 << 20])) {
        answers.push(one.call(request(life, body)));
        answers.push(other.call(request(life, Body::Read { from: 0, bytes_max: READ_BYTES_MAX })));
    }
    let answers: Vec<_> = answers.into_iter().map(|answer| setup.wait(answer)).collect();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let held = length(setup.wait(one.call(request(life, Body::Seal))));
    assert_eq!(held, 5 * ((2 << 20) + 24));
    let too_long = Body::Append {
        offset: 0,
        predecessor: Digest(0),
        records: Bytes::from(vec![0; APPEND_BYTES_MAX + 1]),
    };
    assert_eq!(kind(setup.wait(one.call(request(life, too_long)))), ErrorKind::Invalid);
    assert_eq!((node.counters().appends, node.counters().connections), (5, 2));
}

#[test]
fn only_who_knows_the_secret_is_welcome() {
    let setup = setup(2);
    let node = setup.start(options());
    let other = Secret::new(b"another secret, as long as that").expect("long enough");
    for secret in [Some(other.into()), None] {
        let peer = TcpPeer::new(&setup.writer, ADDRESS, secret);
        assert_eq!(kind(setup.wait(peer.status())), ErrorKind::PermissionDenied);
    }
    drop(node);
    setup.world.run_for(Duration::from_secs(1));
    let open = setup.start(NodeOptions { credentials: None, ..options() });
    assert_eq!(
        kind(setup.wait(setup.peer().status())),
        ErrorKind::PermissionDenied,
        "a writer with a secret wants one of the node"
    );
    assert!(setup.wait(TcpPeer::new(&setup.writer, ADDRESS, None).status()).is_ok());
    assert_eq!(open.counters().connections_accepted, 1);
}

/// A secret takes the place of another without a moment at which nobody is let in: first nodes take
/// both, then writers show the new one, then nodes take that alone.
#[test]
fn a_secret_takes_the_place_of_another_step_by_step() {
    const OLD: &str = "a secret of the tests, long enough";
    const NEW: &str = "another secret, as long as that";
    let credentials = |text: &str| Some(Secret::new(text.as_bytes()).expect("secrets").into());
    let setup = setup(4);
    for (held, let_in, refused) in [
        (OLD.to_owned(), vec![OLD.to_owned(), format!("{OLD}\n{NEW}")], vec![NEW.to_owned()]),
        (
            format!("{OLD}\n{NEW}"),
            vec![OLD.to_owned(), NEW.to_owned(), format!("{NEW}\r\n\r\n{OLD}")],
            vec![format!("{OLD}, not quite")],
        ),
        (
            format!("  {NEW}\n"),
            vec![NEW.to_owned(), format!("{NEW}\n{OLD}\n")],
            vec![OLD.to_owned(), format!("{OLD}\n{NEW}")],
        ),
    ] {
        let node = setup.start(NodeOptions { credentials: credentials(&held), ..options() });
        for shown in let_in {
            let peer = TcpPeer::new(&setup.writer, ADDRESS, credentials(&shown));
            let life = setup.life(&peer);
            assert_eq!(
                length(setup.wait(peer.call(request(life, create())))),
                0,
                "{shown:?} at a node with {held:?}"
            );
        }
        for shown in refused {
            let peer = TcpPeer::new(&setup.writer, ADDRESS, credentials(&shown));
            assert_eq!(
                kind(setup.wait(peer.status())),
                ErrorKind::PermissionDenied,
                "{shown:?} at a node with {held:?}"
            );
        }
        drop(node);
        setup.world.run_for(Duration::from_secs(5));
    }
}

#[test]
fn what_was_in_flight_when_a_node_died_is_unknown_and_its_next_life_is_another() {
    let setup = setup(3);
    let _node = setup.start(options());
    let peer = setup.peer();
    let life = setup.life(&peer);
    assert_eq!(length(setup.wait(peer.call(request(life, create())))), 0);
    let in_flight = peer.call(request(life, Body::Seal));
    setup.node.kill();
    assert_eq!(kind(setup.wait(in_flight)), ErrorKind::OutcomeUnknown);
    assert_eq!(
        kind(setup.wait(peer.call(request(life, Body::Seal)))),
        ErrorKind::Retry,
        "at once: it pauses"
    );
    let again = Setup { node: setup.world.host(1).process("node again"), ..setup };
    let _node = again.start(options());
    again.world.run_for(Duration::from_secs(2));
    let current = again.life(&peer);
    assert_ne!(current, life);
    let refusal = again.wait(peer.call(request(life, Body::Seal)));
    assert_eq!(said(refusal), Answer::Refused(Refusal::OtherIncarnation(current)));
}

#[test]
fn a_node_that_does_not_answer_is_given_up() {
    let setup = setup(4);
    let _node = setup.start(options());
    let peer = setup.peer();
    let life = setup.life(&peer);
    setup.world.partition(&setup.world.host(1), &setup.world.host(2));
    let began = setup.world.now();
    assert_eq!(kind(setup.wait(peer.call(request(life, create())))), ErrorKind::OutcomeUnknown);
    assert!(setup.world.now().since(began) >= ANSWER_MAX);
    setup.world.heal(&setup.world.host(1), &setup.world.host(2));
    setup.world.run_for(Duration::from_secs(1));
    assert_eq!(length(setup.wait(peer.call(request(life, create())))), 0);
}

#[test]
fn nothing_of_an_earlier_connection_takes_effect_after_a_later_one() {
    let setup = setup(5);
    let node = setup.start(options());
    let delay =
        |millis| setup.world.set_network_delay(Duration::from_millis(millis), Duration::from_millis(millis));
    let earlier = setup.peer();
    let later = TcpPeer::speaking_for(&setup.writer, ADDRESS, Some(secret().into()), earlier.0.client, None);
    let life = setup.life(&earlier);
    // What the earlier one sends is under way for longer than the later one takes.
    delay(500);
    let late = earlier.call(request(life, create()));
    delay(1);
    assert!(setup.wait(later.status()).is_ok());
    setup.world.run_for(Duration::from_secs(1));
    assert_eq!(node.status().regions, 0);
    assert_eq!(kind(setup.wait(late)), ErrorKind::OutcomeUnknown);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(
        Mutant::NodeKeepsEarlierConnection,
        nothing_of_an_earlier_connection_takes_effect_after_a_later_one,
    );
    notices(Mutant::NodeForgetsProof, what_is_no_frame_ends_its_connection_only);
}

#[test]
fn what_is_no_frame_ends_its_connection_only() {
    let setup = setup(6);
    let node = setup.start(NodeOptions { connections_max: 3, ..options() });
    let peer = setup.peer();
    let life = setup.life(&peer);
    let hello = Hello { version: VERSION, has_secret: true, nonce: [1; 32], client: 1 };
    let mut long = framed(Kind::Hello, &hello.encode());
    long[0] = 0xff;
    let mut newer = hello.encode();
    newer[8] = 9;
    let inputs = [
        b"GET / HTTP/1.1\r\nHost: a.node.org\r\n\r\n".to_vec(),
        vec![0; 100],
        long[..40].to_vec(),
        framed(Kind::Hello, &newer),
        framed(Kind::Seal, &[0; 32]),
        [framed(Kind::Hello, &hello.encode()), framed(Kind::Proof, &[0; 32])].concat(),
        [framed(Kind::Hello, &hello.encode()), framed(Kind::Seal, &[0; 32])].concat(),
    ];
    for input in &inputs {
        let (env, sent) = (setup.writer.env(), input.clone());
        let answer = setup.writer.run(async move {
            let mut connection = env.network().connect(ADDRESS).await.expect("it listens");
            connection.write_all(&sent).await.expect("it reads");
            let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
            while let Some(Ok(count @ 1..)) =
                within(&env, Duration::from_secs(20), connection.read(&mut buffer)).await
            {
                all.extend_from_slice(&buffer[..count]);
            }
            all
        });
        let answer = answer.expect("alive");
        let last = answer.len().checked_sub(TAG_BYTES + 16 + 8).map(|at| &answer[at..]);
        assert!(last.is_some_and(|last| last[4] == Kind::Farewell as u8), "{input:?} gets {answer:?}");
    }
    assert_eq!(length(setup.wait(peer.call(request(life, create())))), 0, "others go on");
    let counters = node.counters();
    assert_eq!((counters.connections_malformed, counters.connections_refused), (5, 2));
    let others = [setup.peer(), setup.peer()];
    assert!(others.iter().all(|other| setup.wait(other.status()).is_ok()));
    let error = setup.wait(setup.peer().status()).expect_err("one too many");
    assert!(error.to_string().contains("as many connections"), "{error}");
}

fn framed(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append_frame(&mut out, &mut Way::plain(), kind, 0, |out| out.extend_from_slice(body));
    out
}

/// What comes of a call when a node that does not keep to the protocol answers it.
fn answered_with(seed: u64, answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> Result<Answer> {
    asked(seed, answer, |peer| peer.call(request(NodeIncarnation(1), Body::Free)))
}

/// The same of whatever is asked first.
fn asked<T: Send>(
    seed: u64,
    answer: impl FnOnce(u64) -> Vec<u8> + Send + 'static,
    ask: impl FnOnce(&TcpPeer) -> Completion<Result<T>>,
) -> Result<T> {
    let setup = setup(seed);
    let env = setup.node.env();
    let node = setup.node.spawn(TaskClass::Network, "liar", async move {
        let mut listener = env.network().listen(ADDRESS).await.expect("free");
        let (mut read, mut write) = listener.accept().await.expect("a writer").split();
        let mut inbox = Inbox::new();
        let challenge = Challenge { version: VERSION, has_secret: false, nonce: [0; 32] };
        let mut status = vec![0; 32];
        let nothing = crate::region::Regions::new(NodeIncarnation(1), 1 << 20)
            .status(crate::message::NodeMedium::Memory, "");
        crate::wire::body::put_status(&nothing, &mut status);
        let mut answer = Some(answer);
        loop {
            while let Some((header, _)) = inbox.next(&mut Way::plain()).expect("sound") {
                let said = match header.kind {
                    Kind::Hello => framed(Kind::Challenge, &challenge.encode()),
                    Kind::Proof => framed(Kind::Welcome, &status),
                    _ => answer.take().map_or(Vec::new(), |answer| answer(header.number)),
                };
                write.write_all(&said).await.expect("it reads");
            }
            if !matches!(inbox.fill(&mut *read).await, Ok(1..)) {
                return;
            }
        }
    });
    let peer = TcpPeer::new(&setup.writer, ADDRESS, None);
    let result = setup.wait(ask(&peer));
    drop(node);
    result
}

fn numbered(kind: Kind, number: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append_frame(&mut out, &mut Way::plain(), kind, number, |out| out.extend_from_slice(body));
    out
}

#[test]
fn a_node_of_an_earlier_version_cannot_be_told_how_much_to_lend() {
    let malformed = |_| framed(Kind::Farewell, &Farewell::Malformed.encode());
    let told = asked(7, malformed, |peer| peer.lend(1 << 20)).expect_err("it does not know the request");
    assert_eq!(told.kind(), ErrorKind::Unsupported, "{told}");
    assert!(told.to_string().contains("cannot be told"), "{told}");
    // What every version knows is of unknown outcome then, and whatever another farewell ends as
    // well.
    assert_eq!(kind(asked(8, malformed, TcpPeer::status)), ErrorKind::OutcomeUnknown);
    let ending = |_| framed(Kind::Farewell, &Farewell::Ending.encode());
    assert_eq!(kind(asked(9, ending, |peer| peer.lend(1 << 20))), ErrorKind::OutcomeUnknown);
}

#[test]
fn a_node_lends_the_least_of_what_it_was_started_with_told_and_spared() {
    let setup = setup(3);
    let node = setup.start(options());
    let peer = setup.peer();
    let life = setup.life(&peer);
    assert_eq!(length(setup.wait(peer.call(request(life, create())))), 0);
    let lend = |bytes: u64| setup.wait(peer.lend(bytes)).map(|status| status.bytes_max);
    assert_eq!(lend(40 << 20).expect("less"), 40 << 20);
    assert!(!peer.is_wanted_back(REGION), "it fits");
    node.lend(20 << 20);
    assert_eq!(node.status().bytes_max, 20 << 20, "the host has no more");
    assert_eq!(lend(30 << 20).expect("less"), 20 << 20);
    node.lend(64 << 20);
    assert_eq!(node.status().bytes_max, 30 << 20, "it was told");
    let refused = lend((64 << 20) + 1).expect_err("it was started with less");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains(&(64 << 20).to_string()), "{refused}");
    assert_eq!(node.status().bytes_max, 30 << 20, "nothing changed");
    // The region takes 16 MiB.
    assert_eq!(lend(10 << 20).expect("less"), 10 << 20);
    setup.world.run_for(Duration::from_millis(100));
    assert!(peer.is_wanted_back(REGION));
    let second = Request { region: RegionId(8), ..request(life, create()) };
    assert_eq!(said(setup.wait(peer.call(second.clone()))), Answer::Refused(Refusal::Full(0)));
    assert_eq!(said(setup.wait(peer.call(request(life, Body::Free)))), Answer::Freed);
    assert_eq!(lend(0).expect("nothing at all"), 0);
    assert_eq!(lend(64 << 20).expect("all again"), 64 << 20);
    assert_eq!(length(setup.wait(peer.call(second))), 0);
    assert_eq!((node.counters().requests, node.counters().refusals), (10, 2));
}

#[test]
fn who_is_not_welcome_tells_a_node_nothing() {
    let setup = setup(4);
    let node = setup.start(options());
    for credentials in
        [None, Some(Secret::new(b"another secret, of the same length").expect("long enough").into())]
    {
        let stranger = TcpPeer::new(&setup.writer, ADDRESS, credentials);
        assert_eq!(kind(setup.wait(stranger.lend(0))), ErrorKind::PermissionDenied);
    }
    assert_eq!(node.status().bytes_max, 64 << 20);
}

#[test]
fn what_a_lying_node_answers_is_of_unknown_outcome() {
    assert_eq!(said(answered_with(7, |number| numbered(Kind::Freed, number, b""))), Answer::Freed);
    let lies: [fn(u64) -> Vec<u8>; 7] = [
        |number| numbered(Kind::Freed, number + 1, b""),
        |number| numbered(Kind::Freed, number, b"more"),
        |number| numbered(Kind::StatusIs, number, b""),
        |number| numbered(Kind::Free, number, &[0; 32]),
        |number| numbered(Kind::Held, number, &[0; 15]),
        |_| vec![0xff; 64],
        |number| {
            let mut cut = numbered(Kind::Bytes, number, &[0; 100]);
            cut[20] ^= 1;
            cut
        },
    ];
    for (seed, lie) in (8..).zip(lies) {
        assert_eq!(kind(answered_with(seed, lie)), ErrorKind::OutcomeUnknown, "lie {seed}");
    }
}

#[test]
fn memory_that_a_node_wants_back_is_told_of_until_it_is_freed() {
    let setup = setup(20);
    let node = setup.start(options());
    let peer = setup.peer();
    let life = setup.life(&peer);
    assert_eq!(length(setup.wait(peer.call(request(life, create())))), 0);
    assert!(!peer.is_wanted_back(REGION));
    node.lend(1 << 20);
    setup.world.run_for(Duration::from_millis(10));
    assert!(peer.is_wanted_back(REGION));
    let later = setup.peer();
    assert!(setup.wait(later.status()).is_ok());
    setup.world.run_for(Duration::from_millis(10));
    assert!(later.is_wanted_back(REGION), "who comes later is told as well");
    let env = setup.node.env();
    let drained = setup.node.spawn(TaskClass::Network, "drain", async move {
        node.drain(None).await.expect("it has no disk");
        drop(env);
    });
    setup.world.run_for(Duration::from_secs(1));
    assert!(!drained.is_finished());
    let other = Request { region: RegionId(8), ..request(life, create()) };
    assert_eq!(said(setup.wait(peer.call(other))), Answer::Refused(Refusal::Draining));
    assert_eq!(said(setup.wait(peer.call(request(life, Body::Free)))), Answer::Freed);
    assert!(!peer.is_wanted_back(REGION));
    setup.world.run_for(Duration::from_secs(1));
    assert!(drained.is_finished());
}

#[test]
fn over_the_real_network() {
    let env = Env::real();
    let node = env
        .block_on(Node::start(&env, NodeOptions { listen: "127.0.0.1:0".into(), ..options() }))
        .expect("it starts");
    let peer = TcpPeer::new(&env, node.address(), Some(secret().into()));
    let wait =
        |completion: Completion<Result<Answer>>| env.block_on(completion).expect("every call is answered");
    let life = env.block_on(peer.status()).expect("answered").expect("a status").incarnation;
    assert_eq!(length(wait(peer.call(request(life, create())))), 0);
    let bodies = appends((0..500).map(|number| vec![1; number * 13 % 700]).chain([vec![2; 3 << 20]]));
    let answers: Vec<_> = bodies.into_iter().map(|body| peer.call(request(life, body))).collect();
    let last = answers.into_iter().map(|answer| length(wait(answer))).last().expect("some");
    assert_eq!(length(wait(peer.call(request(life, Body::Seal)))), last);
    let mut read = 0;
    while read < last {
        match wait(peer.call(request(life, Body::Read { from: read, bytes_max: u32::MAX }))) {
            Ok(Answer::Bytes(bytes)) if !bytes.is_empty() => {
                read += u32::try_from(bytes.len()).expect("short");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, last);
    drop(node);
    assert!(
        wait(peer.call(request(life, Body::Seal))).is_err()
            || wait(peer.call(request(life, Body::Seal))).is_err()
    );
}
