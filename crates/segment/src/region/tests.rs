//! Examples of each refusal, and a model of bytes that only grow.

use proptest::prelude::*;
use tombolo_format::segment_record::encode_header;

use super::*;

const LIFE: NodeIncarnation = NodeIncarnation(11);
const REGION: RegionId = RegionId(5);
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
const OWNER: Epoch = Epoch(3);
const LATER: Epoch = Epoch(4);

fn ask(regions: &mut Regions, epoch: Epoch, body: Body) -> Answer {
    regions.handle(Request { incarnation: LIFE, region: REGION, epoch, body })
}

fn create() -> Body {
    Body::Create { database: 9, segment: SEGMENT, bytes_max: 1000 }
}

fn node() -> Regions {
    Regions::new(LIFE, 1500)
}

fn made() -> Regions {
    let mut regions = node();
    assert!(matches!(ask(&mut regions, OWNER, create()), Answer::Held(Extent { length: 0, .. })));
    regions
}

/// A record behind `predecessor`, as the body of an append, and the digest after it.
fn record(offset: u32, predecessor: Digest, payload: &[u8]) -> (Body, u32, Digest) {
    let (header, digest) = encode_header(predecessor, offset, 0, payload);
    let records = [&header, payload].concat();
    let end = offset + u32::try_from(records.len()).expect("short");
    (Body::Append { offset, predecessor, records: records.into() }, end, digest)
}

fn start() -> Digest {
    first_digest(9, &SEGMENT)
}

fn held(answer: Answer) -> u32 {
    match answer {
        Answer::Held(extent) => extent.length,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_append_is_found_again_and_never_replaced() {
    let mut regions = made();
    let (first, end, digest) = record(0, start(), b"first");
    let (second, end_of_both, _) = record(end, digest, b"second");
    assert_eq!(held(ask(&mut regions, OWNER, first.clone())), end);
    assert_eq!(held(ask(&mut regions, OWNER, first)), end, "the same again");
    assert_eq!(held(ask(&mut regions, OWNER, second.clone())), end_of_both);
    let (other, ..) = record(0, start(), b"other");
    assert_eq!(ask(&mut regions, OWNER, other), Answer::Refused(Refusal::Differs(0)));
    let (gap, ..) = record(end_of_both + 8, digest, b"gap");
    assert_eq!(ask(&mut regions, OWNER, gap), Answer::Refused(Refusal::Gap(end_of_both)));
    let (stranger, ..) = record(end_of_both, digest, b"behind another predecessor");
    assert_eq!(ask(&mut regions, OWNER, stranger), Answer::Refused(Refusal::Differs(0)));
    assert_eq!(held(ask(&mut regions, OWNER, second)), end_of_both);
}

#[test]
fn only_its_owner_appends_to_a_region() {
    let mut regions = made();
    let (first, end, _) = record(0, start(), b"first");
    for stranger in [Epoch(OWNER.0 - 1), LATER] {
        assert_eq!(ask(&mut regions, stranger, first.clone()), Answer::Refused(Refusal::OtherEpoch(OWNER)));
    }
    assert_eq!(held(ask(&mut regions, OWNER, first)), end);
}

#[test]
fn only_whole_records_in_room_are_taken() {
    let mut regions = made();
    let (Body::Append { records, .. }, ..) = record(0, start(), &[7; 60]) else { unreachable!() };
    let cut = Body::Append { offset: 0, predecessor: start(), records: records.slice(..records.len() - 1) };
    assert_eq!(ask(&mut regions, OWNER, cut), Answer::Refused(Refusal::Malformed));
    let (large, ..) = record(0, start(), &[7; 1000]);
    assert_eq!(ask(&mut regions, OWNER, large), Answer::Refused(Refusal::Full(1000)));
}

#[test]
fn nothing_is_appended_after_a_seal() {
    let mut regions = made();
    let (first, end, digest) = record(0, start(), b"first");
    let (second, ..) = record(end, digest, b"second");
    assert_eq!(held(ask(&mut regions, OWNER, first)), end);
    let sealed = ask(&mut regions, LATER, Body::Seal);
    assert!(matches!(sealed, Answer::Sealed(Some(Extent { length, .. })) if length == end));
    assert_eq!(ask(&mut regions, OWNER, second), Answer::Refused(Refusal::Sealed(LATER)));
    assert_eq!(ask(&mut regions, OWNER, create()), Answer::Refused(Refusal::Sealed(LATER)));
    assert_eq!(ask(&mut regions, LATER, Body::Seal), sealed, "again, the same");
    assert_eq!(ask(&mut regions, OWNER, Body::Seal), Answer::Refused(Refusal::OtherEpoch(LATER)));
    assert_eq!(ask(&mut regions, Epoch(5), Body::Seal), sealed, "a later one");
    assert_eq!(ask(&mut regions, LATER, Body::Seal), Answer::Refused(Refusal::OtherEpoch(Epoch(5))));
}

#[test]
fn what_was_never_seen_is_sealed_for_good() {
    let mut regions = node();
    assert_eq!(ask(&mut regions, LATER, Body::Seal), Answer::Sealed(None));
    assert_eq!(ask(&mut regions, OWNER, create()), Answer::Refused(Refusal::Sealed(LATER)));
    assert_eq!(ask(&mut regions, LATER, Body::Seal), Answer::Sealed(None));
}

/// The cleaning of a journal notes a region behind a seal of it that was noted before: the
/// damaged part may have said that the name was made.
#[test]
fn of_a_damaged_life_no_name_was_sealed_unseen() {
    for (is_whole, sealed) in
        [(true, Answer::Sealed(None)), (false, Answer::Refused(Refusal::Damaged { sound: 0, recorded: 0 }))]
    {
        let mut regions = node();
        ask(&mut regions, LATER, Body::Seal);
        regions.freeze(is_whole);
        assert_eq!(ask(&mut regions, LATER, Body::Seal), sealed);
        let read = ask(&mut regions, LATER, Body::Read { from: 0, bytes_max: 100 });
        assert_eq!(read == sealed, !is_whole, "{read:?}");
    }
}

#[test]
fn only_its_owner_or_a_later_epoch_frees_a_region() {
    let mut regions = made();
    assert!(matches!(ask(&mut regions, LATER, Body::Seal), Answer::Sealed(Some(_))));
    assert_eq!(ask(&mut regions, OWNER, Body::Free), Answer::Refused(Refusal::OtherEpoch(LATER)));
    assert_eq!(regions.occupancy().bytes_taken, 1000);
    assert_eq!(ask(&mut regions, LATER, Body::Free), Answer::Freed);
    assert_eq!(regions.occupancy().bytes_taken, 0);
    for body in [Body::Seal, create(), Body::Read { from: 0, bytes_max: 1 }] {
        assert_eq!(ask(&mut regions, Epoch(9), body), Answer::Refused(Refusal::Freed), "freed is no answer");
    }
    assert_eq!(ask(&mut regions, LATER, Body::Free), Answer::Freed);
}

#[test]
fn what_nothing_names_of_older_epochs_is_collected() {
    let mut regions = made();
    let other = Request {
        incarnation: LIFE,
        region: RegionId(6),
        epoch: LATER,
        body: Body::Create { database: 9, segment: SEGMENT, bytes_max: 400 },
    };
    assert!(matches!(regions.handle(other), Answer::Held(_)));
    let collect = |database, keep| Body::Collect { database, keep };
    for body in [collect(8, vec![]), collect(9, vec![REGION])] {
        assert_eq!(ask(&mut regions, LATER, body), Answer::Freed);
    }
    assert_eq!(ask(&mut regions, OWNER, collect(9, vec![])), Answer::Freed);
    assert_eq!(regions.occupancy().regions, 2, "of another database, named, or of no older epoch");
    assert_eq!(ask(&mut regions, LATER, collect(9, vec![])), Answer::Freed);
    assert_eq!(regions.occupancy().bytes_taken, 400);
}

#[test]
fn another_life_answers_nothing() {
    let mut regions = Regions::new(NodeIncarnation(12), 1500);
    for body in [create(), Body::Seal, Body::Free, Body::Read { from: 0, bytes_max: 1 }] {
        assert_eq!(
            ask(&mut regions, LATER, body),
            Answer::Refused(Refusal::OtherIncarnation(NodeIncarnation(12)))
        );
    }
}

#[test]
fn memory_is_bounded() {
    let mut regions = made();
    let request = Request { incarnation: LIFE, region: RegionId(6), epoch: OWNER, body: create() };
    assert_eq!(regions.handle(request.clone()), Answer::Refused(Refusal::Full(500)));
    assert_eq!(ask(&mut regions, OWNER, Body::Free), Answer::Freed);
    assert!(matches!(regions.handle(request), Answer::Held(_)));
    regions.drain();
    let request = Request { incarnation: LIFE, region: RegionId(7), epoch: OWNER, body: create() };
    assert_eq!(regions.handle(request), Answer::Refused(Refusal::Draining));
}

#[test]
fn names_are_bounded_and_another_life_begins_with_none() {
    let mut regions = node().with_names_max(4);
    let mut ask =
        |id, body| regions.handle(Request { incarnation: LIFE, region: RegionId(id), epoch: OWNER, body });
    assert!(matches!(ask(1, create()), Answer::Held(_)));
    for id in 2..=4 {
        assert_eq!(ask(id, Body::Seal), Answer::Sealed(None));
    }
    for body in [Body::Seal, Body::Free, create()] {
        assert_eq!(
            ask(5, body),
            Answer::Refused(Refusal::Full(0)),
            "what cannot be remembered is not promised"
        );
    }
    assert_eq!(ask(4, Body::Seal), Answer::Sealed(None), "what is known is answered");
    assert_eq!(ask(1, Body::Free), Answer::Freed);
    assert!(regions.may_begin_anew());
    regions.begin_anew(NodeIncarnation(12));
    let seal = Request { incarnation: LIFE, region: RegionId(2), epoch: OWNER, body: Body::Seal };
    assert_eq!(regions.handle(seal), Answer::Refused(Refusal::OtherIncarnation(NodeIncarnation(12))));
    assert_eq!(regions.occupancy().names, 0);
}

#[test]
fn memory_is_wanted_back_from_the_largest_first() {
    let mut regions = Regions::new(LIFE, 10_000);
    for (id, bytes_max) in [(1, 1000), (2, 3000), (3, 2000)] {
        let body = Body::Create { database: 9, segment: SEGMENT, bytes_max };
        assert!(matches!(
            regions.handle(Request { incarnation: LIFE, region: RegionId(id), epoch: OWNER, body }),
            Answer::Held(_)
        ));
    }
    regions.lend(3000);
    assert_eq!(regions.wanted_back().collect::<Vec<_>>(), [RegionId(2)]);
    regions.lend(2999);
    assert_eq!(regions.wanted_back().collect::<Vec<_>>(), [RegionId(2), RegionId(3)]);
    regions.lend(10_000);
    assert_eq!(regions.wanted_back().len(), 0);
    regions.drain();
    assert_eq!(regions.wanted_back().len(), 3);
    // An earlier life gave something back meanwhile.
    regions.lend(10_000);
    assert_eq!(regions.wanted_back().len(), 3, "what drains takes nothing back");
}

#[test]
fn a_stale_epoch_reads_nothing_that_a_later_one_sealed() {
    let mut regions = made();
    let (first, end, _) = record(0, start(), b"first");
    assert_eq!(held(ask(&mut regions, OWNER, first)), end);
    let read = Body::Read { from: 0, bytes_max: 10 };
    assert!(matches!(ask(&mut regions, OWNER, read.clone()), Answer::Bytes(bytes) if bytes.len() == 10));
    assert!(matches!(ask(&mut regions, LATER, Body::Seal), Answer::Sealed(_)));
    assert_eq!(ask(&mut regions, OWNER, read), Answer::Refused(Refusal::OtherEpoch(LATER)));
    assert!(matches!(
        ask(&mut regions, LATER, Body::Read { from: 2, bytes_max: 100 }),
        Answer::Bytes(bytes) if bytes.len() == end as usize - 2
    ));
}

#[test]
fn the_epoch_of_a_seal_only_rises() {
    for mut regions in [made(), node()] {
        assert!(matches!(ask(&mut regions, Epoch(5), Body::Seal), Answer::Sealed(_)));
        assert_eq!(ask(&mut regions, LATER, Body::Seal), Answer::Refused(Refusal::OtherEpoch(Epoch(5))));
        let (first, ..) = record(0, start(), b"first");
        assert_eq!(ask(&mut regions, OWNER, first), Answer::Refused(Refusal::Sealed(Epoch(5))));
        assert!(matches!(ask(&mut regions, Epoch(6), Body::Seal), Answer::Sealed(_)));
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::notices;

    use super::*;

    #[test]
    fn each_is_noticed() {
        notices(Mutant::RegionIgnoresHeldBytes, an_append_is_found_again_and_never_replaced);
        notices(Mutant::RegionIgnoresPredecessor, an_append_is_found_again_and_never_replaced);
        notices(Mutant::RegionAppendsAfterSeal, nothing_is_appended_after_a_seal);
        notices(Mutant::RegionForgetsUnknown, what_was_never_seen_is_sealed_for_good);
        notices(Mutant::RegionFreedByStaleEpoch, only_its_owner_or_a_later_epoch_frees_a_region);
        notices(Mutant::RegionIgnoresIncarnation, another_life_answers_nothing);
        notices(Mutant::RegionIgnoresEpoch, only_its_owner_appends_to_a_region);
        notices(Mutant::RegionSealEpochFalls, the_epoch_of_a_seal_only_rises);
    }
}

proptest! {
    /// Any appends of any records, in any order and however often: the region holds a prefix of the
    /// writer's records, which never shrinks.
    #[test]
    fn a_region_holds_a_prefix(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..10),
        sent in prop::collection::vec((0..10_usize, 1..4_usize), 0..40)
    ) {
        let mut whole = Vec::new();
        let mut starts = Vec::new();
        let mut digest = start();
        for payload in &payloads {
            let (header, next) = encode_header(
                digest, u32::try_from(whole.len()).expect("short"), 0, payload
            );
            starts.push((whole.len(), digest));
            whole.extend_from_slice(&header);
            whole.extend_from_slice(payload);
            digest = next;
        }
        let mut regions = made();
        let mut length = 0;
        for (from, count) in sent {
            let from = from % starts.len();
            let (offset, predecessor) = starts[from];
            let end = starts.get(from + count).map_or(whole.len(), |start| start.0);
            let records = Bytes::copy_from_slice(&whole[offset..end]);
            let answer = ask(
                &mut regions,
                OWNER,
                Body::Append { offset: u32::try_from(offset).expect("short"), predecessor, records }
            );
            match answer {
                Answer::Held(extent) => {
                    prop_assert!(offset <= length);
                    length = length.max(end);
                    prop_assert_eq!(extent.length as usize, length);
                }
                Answer::Refused(Refusal::Gap(at)) => prop_assert_eq!(
                    (at as usize, true), (length, offset > length)
                ),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        let read = ask(&mut regions, OWNER, Body::Read { from: 0, bytes_max: 1000 });
        prop_assert_eq!(read, Answer::Bytes(Bytes::copy_from_slice(&whole[..length])));
    }
}
