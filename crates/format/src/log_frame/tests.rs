use proptest::prelude::*;

use super::*;

const IDENTITY: SegmentIdentity = SegmentIdentity { incarnation: 0x1122, epoch: 7, lane: 3, segment: 5 };

fn header(first_sequence: u64, durable_through: u64) -> FrameHeader {
    FrameHeader { identity: IDENTITY, stream: 2, first_sequence, count: 1, durable_through }
}

/// A segment with these payloads; each frame states that everything before the frame before it is
/// durable.
fn segment(payloads: &[&[u8]], capacity: usize) -> (Vec<u8>, Vec<u32>) {
    let page =
        SegmentHeader { identity: IDENTITY, capacity: capacity as u64, predecessor_end: 8, boot_id: 9 };
    let mut bytes = page.encode(0).to_vec();
    let mut starts = vec![bytes.len() as u32];
    for (index, payload) in payloads.iter().enumerate() {
        let byte = bytes.len() as u32;
        let durable = starts[index.saturating_sub(1)];
        header(index as u64 + 1, IDENTITY.offset(durable)).append_to(&mut bytes, byte, payload);
        starts.push(bytes.len() as u32);
    }
    bytes.resize(capacity, 0);
    (bytes, starts)
}

#[test]
fn a_segment_bounded_in_the_middle_of_a_frame_is_damaged() {
    let sound = SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 8, boot_id: 9 };
    for header in [
        SegmentHeader { capacity: (1 << 20) - 4, ..sound },
        SegmentHeader { predecessor_end: 4096 + 65, ..sound },
    ] {
        assert!(
            matches!(SegmentHeader::decode(&header.encode(0)), Err(FormatError::Damaged { .. })),
            "{header:?}"
        );
    }
}

#[test]
fn constants_are_those_of_the_byte_tables() {
    assert_eq!((SEGMENT_HEADER_BYTES, DURABLE_SLOT_OFFSET, FENCE_WORD_OFFSET), (4096, 512, 1024));
    assert_eq!((FRAME_COMPACT_HEADER_BYTES, FRAME_HEADER_BYTES, FRAME_LONG_HEADER_BYTES), (16, 24, 40));
    let page =
        SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 0x55, boot_id: 0xabcd }
            .encode(0x99);
    assert_eq!(&page[0..8], b"TMBLOSEG");
    assert_eq!(page[8..12], 3u32.to_le_bytes());
    assert_eq!(page[12..16], 4096u32.to_le_bytes());
    assert_eq!(page[32..40], 0x1122u64.to_le_bytes());
    assert_eq!(page[40..48], 7u64.to_le_bytes());
    assert_eq!(page[48..52], 3u32.to_le_bytes());
    assert_eq!(page[52..56], 5u32.to_le_bytes());
    assert_eq!(page[56..64], (1u64 << 20).to_le_bytes());
    assert_eq!(page[64..72], 0x55u64.to_le_bytes());
    assert_eq!(page[72..88], 0xabcdu128.to_le_bytes());
    assert_eq!(page[88..92], crc32c(&page[..88]).to_le_bytes());
    assert_eq!(page[512..520], 0x99u64.to_le_bytes());
    let lane = LaneHeader { incarnation: 1, epoch: 2, lane: 3 }.encode();
    assert_eq!(&lane[0..8], b"TMBLOLAN");
    assert_eq!((&lane[40..48], &lane[48..52]), (&2u64.to_le_bytes()[..], &3u32.to_le_bytes()[..]));
    assert_eq!(lane[52..56], crc32c(&lane[..52]).to_le_bytes());
    assert!(lane[56..].iter().all(|byte| *byte == 0));
}

/// The bytes of a frame, in hexadecimal.
fn written(header: &FrameHeader) -> String {
    let mut bytes = Vec::new();
    header.append_to(&mut bytes, 4096, b"payload");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_frame_is_the_bytes_of_its_table() {
    let short = FrameHeader {
        identity: IDENTITY,
        stream: 0,
        first_sequence: 0x0a0b,
        count: 1,
        durable_through: IDENTITY.offset(0x0c0d),
    };
    assert_eq!(written(&short), "ac347329564092b2070000000d0c00000b0a0000000000007061796c6f616400");
    let compact = FrameHeader { durable_through: 0, first_sequence: 0x0001_0203_0a0b_0c0d, ..short };
    assert_eq!(written(&compact), "ac3473294461f47f073020500d0c0b0a7061796c6f616400");
    let long = FrameHeader { stream: 2, count: 4, durable_through: 0x0c0d, ..short };
    assert_eq!(
        written(&long),
        "ac347329150456f707000020040000000b0a00000000000002000000000000000d0c0000000000007061796c6f616400"
    );
}

#[test]
fn a_frame_has_the_shortest_form_that_says_it_all() {
    let short = FrameHeader {
        identity: IDENTITY,
        stream: 0,
        first_sequence: 9,
        count: 1,
        durable_through: IDENTITY.offset(4096),
    };
    let earlier = SegmentIdentity { segment: 4, ..IDENTITY }.offset(4096);
    let later = SegmentIdentity { segment: 6, ..IDENTITY }.offset(4096);
    for (header, header_bytes) in [
        (short, 24),
        (FrameHeader { first_sequence: u64::MAX, durable_through: IDENTITY.offset(u32::MAX), ..short }, 24),
        (FrameHeader { durable_through: IDENTITY.offset(0), ..short }, 40),
        (FrameHeader { stream: 1, ..short }, 40),
        (FrameHeader { count: 0, ..short }, 40),
        (FrameHeader { count: 2, ..short }, 40),
        (FrameHeader { durable_through: earlier, ..short }, 40),
        (FrameHeader { durable_through: later, ..short }, 40),
        (FrameHeader { durable_through: 0, ..short }, 16),
        (FrameHeader { durable_through: 0, first_sequence: (1 << 49) - 1, ..short }, 16),
        (FrameHeader { durable_through: 0, first_sequence: 1 << 49, ..short }, 24),
        (FrameHeader { durable_through: 0, stream: 1, ..short }, 40),
        (FrameHeader { durable_through: 0, count: 2, ..short }, 40),
    ] {
        let mut bytes = vec![0; 4096];
        header.append_to(&mut bytes, 4096, b"payload");
        assert_eq!(bytes.len(), 4096 + header_bytes + 8, "{header:?}");
        assert_eq!(header.frame_bytes(7), header_bytes + 8);
        assert!(frame_bytes_max(7) >= header.frame_bytes(7));
        let frame = decode_frame(&bytes, 4096, &IDENTITY).expect("just written");
        assert_eq!(
            (frame.header, frame.payload, frame.payload_byte),
            (header, &b"payload"[..], 4096 + header_bytes as u32)
        );
    }
}

#[test]
fn payloads_of_all_lengths_are_read_back_from_frames_of_all_forms() {
    for (durable_through, forms) in [(0, [24, 16, 16, 16, 16, 24, 24]), (IDENTITY.offset(4096), [24; 7])] {
        for (length, header_bytes) in [0usize, 1, 8, 9, 4095, 4096, 5000].into_iter().zip(forms) {
            let header = FrameHeader {
                identity: IDENTITY,
                stream: 0,
                first_sequence: (1 << 49) - 2,
                count: 1,
                durable_through,
            };
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut bytes = vec![0; 4096];
            header.append_to(&mut bytes, 4096, &payload);
            assert_eq!(bytes.len(), 4096 + header_bytes + length.next_multiple_of(8), "{length} bytes");
            assert!(bytes.len() - 4096 >= FRAME_BYTES_MIN);
            let frame = decode_frame(&bytes, 4096, &IDENTITY).expect("just written");
            assert_eq!(
                (frame.header, frame.payload, frame.end as usize),
                (header, &payload[..], bytes.len())
            );
        }
    }
}

/// A length that is mixed up with the sequence number beside it would end the search for evidence
/// at once.
#[test]
fn a_damaged_compact_frame_of_a_great_sequence_number_hides_no_evidence() {
    let mut bytes = SegmentHeader { identity: IDENTITY, capacity: 8192, predecessor_end: 8, boot_id: 9 }
        .encode(0)
        .to_vec();
    let compact = FrameHeader {
        identity: IDENTITY,
        stream: 0,
        first_sequence: (1 << 49) - 9,
        count: 1,
        durable_through: 0,
    };
    compact.append_to(&mut bytes, 4096, b"first");
    let says = FrameHeader { durable_through: IDENTITY.offset(4096 + 24), ..compact };
    says.append_to(&mut bytes, 4096 + 24, b"second");
    bytes.resize(8192, 0);
    assert_eq!(FrameScanner::new(&bytes, 4096, IDENTITY).count(), 2);
    bytes[4096 + FRAME_COMPACT_HEADER_BYTES] ^= 1;
    let verdict = FrameScanner::new(&bytes, 4096, IDENTITY).verdict(None);
    assert!(
        matches!(verdict, Verdict::Damaged { byte: 4096, evidence: Some(Evidence { byte: 4120, .. }), .. }),
        "{verdict:?}"
    );
}

#[test]
fn pages_round_trip_and_every_flipped_byte_is_noticed() {
    let page =
        SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 0x58, boot_id: 0xabcd };
    let bytes = page.encode(77);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(page));
    assert_eq!(decode_durable_slot(&IDENTITY, &bytes[DURABLE_SLOT_OFFSET..]), Some(77));
    for at in 0..SEGMENT_HEADER_FIELDS_BYTES {
        let mut bytes = bytes;
        bytes[at] ^= 0x40;
        assert!(matches!(SegmentHeader::decode(&bytes), Err(FormatError::Damaged { .. })), "byte {at}");
    }
    for at in DURABLE_SLOT_OFFSET..DURABLE_SLOT_OFFSET + DURABLE_SLOT_BYTES {
        let mut bytes = bytes;
        bytes[at] ^= 1;
        assert_eq!(decode_durable_slot(&IDENTITY, &bytes[DURABLE_SLOT_OFFSET..]), None);
    }
    let other = SegmentIdentity { segment: 6, ..IDENTITY };
    assert_eq!(
        decode_durable_slot(&other, &bytes[DURABLE_SLOT_OFFSET..]),
        None,
        "a recycled segment's old slot says nothing"
    );
    assert_eq!(decode_durable_slot(&IDENTITY, &[0; 12]), None);
    for length in 0..SEGMENT_HEADER_FIELDS_BYTES {
        assert!(SegmentHeader::decode(&bytes[..length]).is_err());
    }
    let lane = LaneHeader { incarnation: 1, epoch: 2, lane: 3 };
    assert_eq!(LaneHeader::decode(&lane.encode()), Ok(lane));
    for at in 0..LANE_FIELDS_BYTES {
        let mut bytes = lane.encode();
        bytes[at] ^= 0x80;
        assert!(LaneHeader::decode(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn a_newer_segment_is_told_from_a_damaged_one() {
    let mut bytes =
        SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 0, boot_id: 0 }.encode(0);
    for (at, what) in
        [(8, "version 9; this program reads up to 3"), (16, "unknown incompatible feature bits 0x9")]
    {
        let before = bytes[at];
        bytes[at] = 9;
        let checksum = crc32c(&bytes[..88]).to_le_bytes();
        bytes[88..92].copy_from_slice(&checksum);
        assert_eq!(SegmentHeader::decode(&bytes), Err(FormatError::newer(at, what)));
        bytes[at] = before;
    }
}

#[test]
fn a_log_of_the_first_version_is_refused_and_not_taken_for_an_empty_one() {
    let mut bytes =
        SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 0, boot_id: 0 }.encode(0);
    bytes[8] = 1;
    let checksum = crc32c(&bytes[..88]).to_le_bytes();
    bytes[88..92].copy_from_slice(&checksum);
    let error = SegmentHeader::decode(&bytes).expect_err("another layout of frames");
    assert!(error.to_string().contains("earlier build"), "{error}");
}

#[test]
fn a_log_of_the_version_before_is_read() {
    let header = SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 0, boot_id: 0 };
    let mut bytes = header.encode(0);
    bytes[8] = 2;
    let checksum = crc32c(&bytes[..88]).to_le_bytes();
    bytes[88..92].copy_from_slice(&checksum);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
}

#[test]
fn every_flipped_byte_of_a_frame_ends_the_walk_before_it_or_changes_nothing() {
    let (bytes, starts) = segment(&[b"first", b"second one", b"third"], 8192);
    for at in starts[1] as usize..starts[2] as usize {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let frames: Vec<_> = FrameScanner::new(&bytes, 4096, IDENTITY).collect();
        let padding = at >= starts[1] as usize + FRAME_LONG_HEADER_BYTES + b"second one".len();
        assert_eq!(frames.len(), if padding { 3 } else { 1 }, "byte {at}");
        assert_eq!(frames[0].payload, b"first");
    }
}

#[test]
fn frames_of_other_segments_and_places_are_not_taken() {
    let (bytes, starts) = segment(&[b"first", b"second"], 8192);
    for other in [
        SegmentIdentity { incarnation: 1, ..IDENTITY },
        SegmentIdentity { epoch: 8, ..IDENTITY },
        SegmentIdentity { lane: 4, ..IDENTITY },
        SegmentIdentity { segment: 6, ..IDENTITY },
    ] {
        assert!(matches!(
            decode_frame(&bytes, 4096, &other),
            Err(NoFrame::Mark { found, .. }) if found == frame_mark(&IDENTITY)
        ));
    }
    // Even where the mark is the same, which may happen once in four milliards of segments.
    let other = SegmentIdentity { segment: 6, ..IDENTITY };
    let mut marked = bytes.clone();
    marked[4096..4100].copy_from_slice(&frame_mark(&other).to_le_bytes());
    assert!(matches!(decode_frame(&marked, 4096, &other), Err(NoFrame::Checksum(..))));
    // The first frame's bytes at the second's place: right segment, wrong place.
    let mut moved = bytes.clone();
    moved.copy_within(4096..starts[1] as usize, starts[1] as usize);
    assert!(matches!(decode_frame(&moved, starts[1], &IDENTITY), Err(NoFrame::Checksum(..))));
}

#[test]
fn a_bad_frame_followed_by_proof_is_damage_and_else_a_tail() {
    let (bytes, starts) = segment(&[b"one", b"two", b"three", b"four"], 8192);
    let flip = |frame: usize| {
        let mut bytes = bytes.clone();
        bytes[starts[frame] as usize + FRAME_HEADER_BYTES] ^= 1;
        bytes
    };
    assert_eq!(FrameScanner::new(&bytes, 4096, IDENTITY).verdict(None), Verdict::Tail { byte: starts[4] });
    // The fourth frame says that everything before the third is durable: the second was.
    let damaged = flip(1);
    let verdict = FrameScanner::new(&damaged, 4096, IDENTITY).verdict(None);
    let Verdict::Damaged { byte, durable_through, evidence, reason } = verdict else { panic!("{verdict:?}") };
    assert_eq!((byte, durable_through), (starts[1], IDENTITY.offset(starts[2])));
    assert_eq!(evidence, Some(Evidence { byte: starts[3], durable_through }));
    assert!(matches!(reason, NoFrame::Checksum(..)));
    // The third was not known durable by anybody: a tail, although a valid frame follows (it was
    // never acknowledged).
    assert_eq!(FrameScanner::new(&flip(2), 4096, IDENTITY).verdict(None), Verdict::Tail { byte: starts[2] });
    // A durable offset known from outside the frames counts as well, to the byte.
    let known = |offset| FrameScanner::new(&flip(2), 4096, IDENTITY).verdict(Some(IDENTITY.offset(offset)));
    assert_eq!(known(starts[2]), Verdict::Tail { byte: starts[2] });
    assert!(matches!(known(starts[2] + 1), Verdict::Damaged { evidence: None, .. }));
    // A frame whose header is zeroed: the scan goes on through it in steps of 8.
    let mut zeroed = bytes.clone();
    zeroed[starts[1] as usize..starts[2] as usize].fill(0);
    assert!(matches!(FrameScanner::new(&zeroed, 4096, IDENTITY).verdict(None), Verdict::Damaged { .. }));
}

#[test]
fn a_frame_inside_a_payload_is_no_evidence() {
    // A user who knows the segment stores bytes that look like a frame of it, which claim that
    // everything is durable.
    let mut forged = vec![0; 8];
    header(9, u64::MAX).append_to(&mut forged, 4096, b"forged");
    let (mut bytes, starts) = segment(&[b"first", &forged], 8192);
    bytes[starts[1] as usize + 4] ^= 1;
    assert_eq!(FrameScanner::new(&bytes, 4096, IDENTITY).verdict(None), Verdict::Tail { byte: starts[1] });
}

#[test]
fn unknown_flags_are_newer_and_not_a_tail() {
    let (bytes, starts) = segment(&[b"first", b"second"], 8192);
    let at = starts[1] as usize;
    for (flag_at, bit, flags) in [(28, 2, 2), (11, 0x80, 1 << 31), (11, 0x40, 1 << 30)] {
        let mut bytes = bytes.clone();
        bytes[at + flag_at] |= bit;
        let end = at + FRAME_LONG_HEADER_BYTES + b"second".len();
        let checksum = stamp(crc32c(&bytes[at + 8..end]), IDENTITY.binding().place, at as u64).to_le_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&checksum);
        let verdict = FrameScanner::new(&bytes, 4096, IDENTITY).verdict(None);
        assert_eq!(verdict, Verdict::Newer { byte: starts[1], flags });
    }
    assert!(matches!(NoFrame::Flags(2).into_error(starts[1]), FormatError::Newer { .. }));
}

#[test]
fn forged_marks_cannot_make_the_walk_quadratic() {
    // 40,000 headers of this segment, each with a length to the segment's end: the budget ends the
    // walk after 8 segments' worth.
    let mut bytes = SegmentHeader { identity: IDENTITY, capacity: 1 << 20, predecessor_end: 8, boot_id: 9 }
        .encode(0)
        .to_vec();
    while bytes.len() + FRAME_HEADER_BYTES <= 1 << 20 {
        let start = bytes.len();
        let short = FrameHeader { stream: 0, ..header(1, IDENTITY.offset(u32::MAX)) };
        short.append_to(&mut bytes, start as u32, b"");
        let length = ((1 << 20) - start - FRAME_HEADER_BYTES) as u32;
        bytes[start + 8..start + 12].copy_from_slice(&length.to_le_bytes());
    }
    assert_eq!(greatest_durable_through(&bytes, 4096, &IDENTITY), None);
}

proptest! {
    #[test]
    fn scans_return_what_was_appended(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)
    ) {
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let (bytes, starts) = segment(&slices, 16 << 10);
        let mut scanner = FrameScanner::new(&bytes, 4096, IDENTITY);
        for (index, payload) in payloads.iter().enumerate() {
            let frame = scanner.next().unwrap();
            prop_assert_eq!(frame.payload, payload.as_slice());
            prop_assert_eq!((frame.byte, frame.end), (starts[index], starts[index + 1]));
            prop_assert_eq!(frame.header.first_sequence, index as u64 + 1);
        }
        let end = scanner.byte();
        prop_assert_eq!(scanner.verdict(None), Verdict::Tail { byte: end });
    }

    #[test]
    fn any_bytes_are_scanned_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        marks in prop::collection::vec(0usize..600, 0..8)
    ) {
        for at in marks {
            if at + 4 <= bytes.len() {
                bytes[at..at + 4].copy_from_slice(&frame_mark(&IDENTITY).to_le_bytes());
            }
        }
        let _ = FrameScanner::new(&bytes, 0, IDENTITY).verdict(None);
        let _ = SegmentHeader::decode(&bytes);
        let _ = LaneHeader::decode(&bytes);
    }
}
