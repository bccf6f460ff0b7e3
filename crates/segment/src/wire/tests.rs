//! Every message comes back as it was sent, and nothing else does.

use tombolo_env::simulated::World;
use tombolo_storage::Epoch;

use super::body::Message;
use super::hello::{CHALLENGE_BYTES, Challenge, HELLO_BYTES, Hello};
use super::secret::{Introduction, Secret, Way};
use super::*;
use crate::fuzzing::{TARGETS, seeds};
use crate::message::{NodeIncarnation, QueueAddress, RegionId};

fn introduction(secret: &Secret) -> Introduction<'_> {
    let hello = Hello { version: VERSION, has_secret: true, nonce: [1; 32], client: 2 };
    Introduction {
        secret: Some(secret),
        hello,
        challenge: Challenge { version: VERSION, has_secret: true, nonce: [3; 32] },
    }
}

fn secret() -> Secret {
    Secret::new(b"  a secret of the tests, long enough\n").expect("long enough")
}

fn framed(way: &mut Way, message: &Message, number: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    append_frame(&mut frame, way, message.kind(), number, |out| message.put(out));
    frame
}

#[test]
fn layouts_have_their_sizes() {
    assert_eq!(framed(&mut Way::plain(), &Message::Status, 1).len(), HEADER_BYTES);
    let hello = Hello { version: VERSION, has_secret: true, nonce: [1; 32], client: 2 };
    assert_eq!((hello.encode().len(), HELLO_BYTES), (64, 64));
    assert_eq!(CHALLENGE_BYTES, 48);
    let bytes = |index: usize| framed(&mut Way::plain(), &seeds::messages()[index], 1).len() - HEADER_BYTES;
    assert_eq!(
        [bytes(0), bytes(1), bytes(2), bytes(3), bytes(4), bytes(5)],
        [72, 48 + 7, 32, 40, 32, 40 + 2 * 16]
    );
    assert_eq!([bytes(7), bytes(8), bytes(9), bytes(10), bytes(11)], [16, 24, 24, 5, 0]);
    assert_eq!(
        [bytes(12), bytes(13), bytes(14), bytes(16), bytes(20), bytes(21)],
        [52 + 6 + 8 + 4 + 4 + 24, 16, 32, 0, 8, 24]
    );
    assert_eq!([bytes(17), bytes(18), bytes(19)], [64, 48, 0]);
}

#[test]
fn every_message_comes_back_with_and_without_a_secret() {
    let secret = secret();
    let introduction = introduction(&secret);
    let ((keyed, _), (other_keyed, _)) = (introduction.ways(), introduction.ways());
    for (mut sender, mut receiver) in [(Way::plain(), Way::plain()), (keyed, other_keyed)] {
        for (number, message) in (7..).zip(seeds::messages()) {
            let mut frame = framed(&mut sender, &message, number);
            let header = Header::decode(&frame).expect("sound");
            assert_eq!((header.frame_bytes(), header.number), (frame.len(), number));
            let body = open(&mut frame, &mut receiver).expect("sound");
            assert_eq!(Message::decode(header.kind, body), Ok(message));
        }
    }
}

#[test]
fn a_changed_bit_is_noticed_with_and_without_a_secret() {
    let secret = secret();
    let introduction = introduction(&secret);
    for is_keyed in [false, true] {
        let way = || if is_keyed { introduction.ways().0 } else { Way::plain() };
        for message in seeds::messages() {
            let frame = framed(&mut way(), &message, 1);
            for at in 0..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 1 << (at % 8);
                let same_length =
                    Header::decode(&changed).is_ok_and(|header| header.frame_bytes() == changed.len());
                assert!(!same_length || open(&mut changed, &mut way()).is_err(), "byte {at} of {message:?}");
            }
        }
    }
}

#[test]
fn a_keyed_frame_counts_once_in_its_place_and_on_its_way() {
    let secret = secret();
    let introduction = introduction(&secret);
    let (mut to_node, mut to_writer) = introduction.ways();
    let frames: Vec<Vec<u8>> = (0..2).map(|number| framed(&mut to_node, &Message::Status, number)).collect();
    let receiver = || introduction.ways().0;
    assert!(open(&mut frames[1].clone(), &mut receiver()).is_err(), "out of order");
    let mut again = receiver();
    assert!(open(&mut frames[0].clone(), &mut again).is_ok());
    assert!(open(&mut frames[0].clone(), &mut again).is_err(), "played back");
    assert!(open(&mut frames[0].clone(), &mut to_writer).is_err(), "sent back");
    let other = Secret::new(b"another secret, as long as that").expect("long enough");
    let other = Introduction { secret: Some(&other), ..introduction.clone() };
    assert!(open(&mut frames[0].clone(), &mut other.ways().0).is_err(), "another secret");
    assert_ne!(introduction.writer_proof(), other.writer_proof());
    assert_ne!(introduction.writer_proof(), introduction.node_proof(b""));
    let later = Introduction {
        challenge: Challenge { nonce: [4; 32], ..introduction.challenge },
        ..introduction.clone()
    };
    assert_ne!(introduction.writer_proof(), later.writer_proof(), "another connection");
}

#[test]
fn a_secret_is_neither_short_nor_shown() {
    assert!(Secret::new(b"   fifteen bytes \n").is_err());
    assert!(Secret::new(b"\n \r\n").is_err());
    let line = "a secret of the tests, long enough\n";
    assert!(Secret::new(line.repeat(4).as_bytes()).is_ok_and(|several| several.each().count() == 4));
    assert!(Secret::new(line.repeat(5).as_bytes()).is_err());
    assert!(
        Secret::new(format!("{line}too short\n").as_bytes()).is_err(),
        "a second one is no better than the first"
    );
    assert_eq!(format!("{:?}", secret()), "Secret");
}

#[test]
fn what_a_newer_version_says_is_told_as_that() {
    let mut hello = Hello { version: VERSION, has_secret: true, nonce: [1; 32], client: 2 }.encode();
    hello[8] = 2;
    assert!(matches!(Hello::decode(&hello), Err(FormatError::Newer { offset: 8, .. })));
    assert!(matches!(
        Challenge::decode(&hello[..CHALLENGE_BYTES]),
        Err(FormatError::Newer { offset: 8, .. })
    ));
    assert!(matches!(Hello::decode(b"GET / HTTP/1.1\r\n"), Err(FormatError::Damaged { offset: 0, .. })));
}

#[test]
fn a_length_that_no_frame_has_is_refused_before_it_arrives() {
    let mut frame = framed(&mut Way::plain(), &Message::Status, 1);
    frame[..4].copy_from_slice(&u32::try_from(BODY_BYTES_MAX + 1).expect("short").to_le_bytes());
    assert!(Header::decode(&frame).is_err());
    assert!(Header::decode(b"GET / HTTP/1.1\r\nHost: a.node.org\r\n").is_err());
}

#[test]
fn targets_take_their_seeds_and_mutations_of_them() {
    let random = World::new(5).process("fuzz").env();
    let next = |below: usize| usize::try_from(random.random_u64() >> 16).expect("64 bits") % below.max(1);
    for (name, target) in TARGETS {
        for (_, seed) in seeds::all().into_iter().filter(|(of, _)| *of == name) {
            target(&seed);
            for _ in 0..2000 {
                let mut bytes = seed.clone();
                for _ in 0..=next(3) {
                    let at = next(bytes.len());
                    match next(4) {
                        0 => bytes[at] ^= 1 << next(8),
                        1 => bytes[at] = [0, 1, 0x7f, 0xff][next(4)],
                        2 => bytes.truncate(at + 1),
                        _ => bytes.insert(at, 9),
                    }
                }
                target(&bytes);
            }
        }
    }
}

#[test]
fn a_queue_pair_that_no_card_has_is_refused() {
    let queue = QueueAddress { queue: 0x00ff_ffff, first_packet: 1, lid: 2, mtu: 5, gid: [3; 16] };
    let mut body = Vec::new();
    Message::Pair(NodeIncarnation(1), RegionId(2), Epoch(3), queue).put(&mut body);
    assert!(Message::decode(Kind::Pair, &body).is_ok());
    for (at, byte) in [(35, 1), (39, 1), (42, 1), (44, 0), (44, 6), (45, 1)] {
        let mut wrong = body.clone();
        wrong[at] = byte;
        assert!(Message::decode(Kind::Pair, &wrong).is_err(), "byte {at}");
    }
    assert!(Message::decode(Kind::PairedWith, &[]).is_ok());
    assert!(Message::decode(Kind::PairedWith, &[0; 48]).is_err(), "packets of no size");
}
