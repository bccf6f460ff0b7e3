use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The number that covers each of the keys, by the plainest means.
type Model = BTreeMap<Vec<u8>, u64>;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(&b"\x00ab\xff"[..]), 0..4),
        prop::collection::vec(prop::sample::select(&b"ab"[..]), 0..4).prop_map(|rest| [
            b"a long beginning ",
            &rest[..]
        ]
        .concat()),
    ]
}

fn range() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (key(), key()).prop_filter_map("a range", |(one, other)| match one.cmp(&other) {
        std::cmp::Ordering::Less => Some((one, other)),
        std::cmp::Ordering::Greater => Some((other, one)),
        std::cmp::Ordering::Equal => None,
    })
}

fn layer(ranges: &[(&str, &str, u64)]) -> RangeSet {
    let mut set = RangeSet::default();
    for (from, to, number) in ranges {
        set.insert(from.as_bytes(), to.as_bytes(), SequenceNumber(*number));
    }
    set
}

fn listed(set: &RangeSet) -> Vec<(String, String, u64)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    set.iter().map(|range| (text(range.from), text(range.to), range.number.0)).collect()
}

#[test]
fn a_block_is_the_bytes_of_its_table() {
    let layers = RangeLayers::of_stripes(vec![layer(&[("b", "cd", 3)]), layer(&[("a", "c", 7)])]);
    let mut expected = vec![2, 0, 0, 0];
    expected.extend_from_slice(&[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, b'a', b'c']);
    expected.extend_from_slice(&[1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, b'b', b'c', b'd']);
    assert_eq!(layers.encode().unwrap(), expected);
    assert_eq!(layers.encoded_bytes(), expected.len());
    assert_eq!(RangeLayers::decode(&expected).unwrap(), layers);
    assert_eq!(layers.bounds(), Some((&b"a"[..], &b"cd"[..])));
    assert_eq!(layers.numbers(), Some((SequenceNumber(3), SequenceNumber(7))));
}

#[test]
fn a_newer_range_cuts_an_older_one() {
    let set = layer(&[("a", "z", 1), ("f", "k", 2), ("h", "i", 1)]);
    let expected = [("a", "f", 1), ("f", "k", 2), ("k", "z", 1)];
    assert_eq!(listed(&set), expected.map(|(from, to, number)| (from.into(), to.into(), number)));
    let whole = layer(&[("b", "c", 1), ("d", "e", 2), ("a", "z", 3)]);
    assert_eq!(listed(&whole), [("a".into(), "z".into(), 3)]);
}

#[test]
fn the_end_is_not_covered_and_an_older_layer_answers_an_older_moment() {
    let layers = RangeLayers::of_stripes(vec![layer(&[("b", "f", 3)]), layer(&[("a", "c", 7)])]);
    let number = |key: &str, snapshot| {
        layers.covered(key.as_bytes(), SequenceNumber(snapshot)).map(|covered| covered.number.0)
    };
    assert_eq!(number("b", 9), Some(7));
    assert_eq!(number("b", 6), Some(3));
    assert_eq!(number("b", 2), None);
    assert_eq!(number("c", 9), Some(3));
    assert_eq!(number("f", 9), None);
    assert_eq!(number("a", 6), None);
}

#[test]
fn blocks_that_no_builder_makes_are_damage() {
    let good = layer(&[("a", "c", 7)]);
    let bytes = RangeLayers::of_stripes(vec![good]).encode().unwrap();
    for (at, byte) in [(0, 2), (4, 0), (4, 9), (8, 0), (20, b'c'), (16, 200), (0, 0)] {
        let mut wrong = bytes.clone();
        wrong[at] = byte;
        assert!(matches!(RangeLayers::decode(&wrong), Err(FormatError::Damaged { .. })), "{at}: {byte}");
    }
    for cut in 0..bytes.len() {
        assert!(RangeLayers::decode(&bytes[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn ten_thousand_ranges_are_found() {
    let key = |number: u32| format!("key-{number:08}").into_bytes();
    let mut set = RangeSet::default();
    for number in 0..10_000 {
        set.insert(&key(number * 10), &key(number * 10 + 5), SequenceNumber(u64::from(number) + 1));
    }
    assert_eq!(set.len(), 10_000);
    for number in (0..100_000).step_by(7) {
        let expected = (number % 10 < 5).then_some(u64::from(number / 10) + 1);
        assert_eq!(set.covered(&key(number)).map(|covered| covered.number.0), expected, "{number}");
    }
    set.insert(&key(500), &key(90_000), SequenceNumber(20_000));
    assert_eq!(set.len(), 50 + 1 + 1000);
    assert_eq!(set.iter().count(), set.len());
}

proptest! {
    /// A set says of every key what a plain list of the ranges says.
    #[test]
    fn a_set_covers_what_its_ranges_do(
        ranges in prop::collection::vec((range(), 1_u64..40), 0..200),
        bounds in range(),
        probes in prop::collection::vec(key(), 20),
    ) {
        let mut set = RangeSet::default();
        for ((from, to), number) in &ranges {
            set.insert(from, to, SequenceNumber(*number));
        }
        let mut keys: Vec<Vec<u8>> = probes;
        keys.extend(ranges.iter().flat_map(|((from, to), _)| [from.clone(), to.clone()]));
        let model: Model = keys.iter().map(|key| {
            let covering = ranges.iter().filter(|((from, to), _)| from <= key && key < to);
            (key.clone(), covering.map(|(_, number)| *number).max().unwrap_or(0))
        }).collect();
        let within = set.within(Some(&bounds.0), Some(&bounds.1));
        for (key, number) in &model {
            let covered = set.covered(key);
            prop_assert_eq!(covered.map_or(0, |covered| covered.number.0), *number);
            if let Some(covered) = covered {
                prop_assert!(covered.from <= &key[..] && &key[..] < covered.to);
            }
            let stretch = set.stretch(key);
            prop_assert_eq!(stretch.number.map_or(0, |number| number.0), *number);
            for (other, said) in &model {
                let is_in = stretch.from.is_none_or(|from| from <= &other[..])
                    && stretch.to.is_none_or(|to| &other[..] < to);
                prop_assert!(!is_in || said == number, "{:?} is not as {:?}", other, key);
            }
            prop_assert!(stretch.from.is_none_or(|from| from <= &key[..]));
            prop_assert!(stretch.to.is_none_or(|to| &key[..] < to));
            let is_in = bounds.0 <= *key && *key < bounds.1;
            let expected = if is_in { *number } else { 0 };
            prop_assert_eq!(within.covered(key).map_or(0, |covered| covered.number.0), expected);
        }
        prop_assert_eq!(set.iter().count(), set.len());
        let layers = RangeLayers::of_stripes(vec![set]);
        prop_assert_eq!(RangeLayers::decode(&layers.encode().unwrap()), Ok(layers));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = RangeLayers::decode(&bytes);
    }
}
