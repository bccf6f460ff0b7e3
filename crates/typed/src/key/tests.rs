use std::cmp::Reverse;
use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::prefix::{between, under};
use crate::{Key, PrefixOf, Shape, StartsWith};

fn bytes(key: &impl Key) -> Vec<u8> {
    key.to_key().bytes().to_vec()
}

/// The order of the encodings is the order of the values; each is read back; and none is the
/// beginning of another.
fn holds<K: Key + std::fmt::Debug>(
    one: &K,
    other: &K,
    order: Ordering,
    same: impl Fn(&K, &K) -> bool,
) -> Result<(), TestCaseError> {
    let (first, second) = (bytes(one), bytes(other));
    prop_assert_eq!(first.cmp(&second), order, "{:?} and {:?}: {:?}, {:?}", one, other, first, second);
    prop_assert!(order == Ordering::Equal || !second.starts_with(&first));
    for (value, encoded) in [(one, &first), (other, &second)] {
        let found = K::from_key(encoded);
        prop_assert!(found.as_ref().is_ok_and(|found| same(found, value)), "{:?} of {:?}", found, value);
    }
    Ok(())
}

fn ordered<K: Key + Ord + std::fmt::Debug>(one: &K, other: &K) -> Result<(), TestCaseError> {
    holds(one, other, one.cmp(other), |found, value| found == value)
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(prefix(OfCustomer(customer), OfDay(customer, day)))]
struct OrderKey {
    customer: u64,
    day: i32,
    note: Option<String>,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begun,
    #[key(number = 3)]
    Moved {
        by: i64,
        note: Vec<u8>,
    },
    #[key(number = 9)]
    Ended(String, Reverse<u16>),
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair<T>(T, [u16; 3]);

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Begun),
        (-2_i64..3, few_bytes()).prop_map(|(by, note)| Event::Moved { by, note }),
        (few_text(), 0..3_u16).prop_map(|(text, number)| Event::Ended(text, Reverse(number))),
    ]
}

/// Few bytes, so that values meet: with zeros and the bytes that escape and end them.
fn few_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0xFE), Just(0xFF)], 0..5)
}

fn few_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('é')], 0..5)
        .prop_map(|characters| characters.into_iter().collect())
}

fn order_key() -> impl Strategy<Value = OrderKey> {
    (0..3_u64, -1..2_i32, proptest::option::of(few_text())).prop_map(|(customer, day, note)| OrderKey {
        customer,
        day,
        note,
    })
}

proptest! {
    #[test]
    fn numbers_are_in_order(
        one in any::<(u8, u16, u32, u64, u128)>(), other in any::<(u8, u16, u32, u64, u128)>(),
        signed in any::<(i8, i16, i32, i64, i128)>(), signed_other in any::<(i8, i16, i32, i64, i128)>(),
    ) {
        ordered(&one, &other)?;
        ordered(&signed, &signed_other)?;
        ordered(&one.3, &other.3)?;
        ordered(&signed.3, &signed_other.3)?;
        ordered(&signed.4, &signed_other.4)?;
    }

    #[test]
    fn floating_point_numbers_are_in_their_total_order(
        one in any::<u64>(), other in any::<u64>(), small in any::<u32>(), small_other in any::<u32>(),
    ) {
        let (one, other) = (f64::from_bits(one), f64::from_bits(other));
        holds(&one, &other, one.total_cmp(&other), |found, value| found.to_bits() == value.to_bits())?;
        let (one, other) = (f32::from_bits(small), f32::from_bits(small_other));
        holds(&one, &other, one.total_cmp(&other), |found, value| found.to_bits() == value.to_bits())?;
    }

    #[test]
    fn texts_and_bytes_are_in_order(
        one in few_text(), other in few_text(), bytes in few_bytes(), bytes_other in few_bytes(),
        long in any::<String>(), long_other in any::<String>(),
        character in any::<char>(), character_other in any::<char>(),
    ) {
        ordered(&one, &other)?;
        ordered(&bytes, &bytes_other)?;
        ordered(&long, &long_other)?;
        ordered(&Reverse(one.clone()), &Reverse(other.clone()))?;
        ordered(&(one.clone(), bytes.clone()), &(other.clone(), bytes_other.clone()))?;
        ordered(&(Reverse(bytes.clone()), one), &(Reverse(bytes_other.clone()), other))?;
        ordered(&Bytes::from(bytes), &Bytes::from(bytes_other))?;
        ordered(&character, &character_other)?;
        ordered(&(character == 'a'), &(character_other == 'b'))?;
    }

    #[test]
    fn compounds_are_in_order(
        one in order_key(), other in order_key(), event in event(), event_other in event(),
        nothing in proptest::option::of(0..3_u8), nothing_other in proptest::option::of(0..3_u8),
        numbers in any::<[u16; 3]>(), numbers_other in any::<[u16; 3]>(),
    ) {
        ordered(&one, &other)?;
        ordered(&event, &event_other)?;
        ordered(&Reverse(event.clone()), &Reverse(event_other.clone()))?;
        ordered(&nothing, &nothing_other)?;
        ordered(&NullsLast(nothing), &NullsLast(nothing_other))?;
        ordered(&Reverse(Reverse(nothing)), &Reverse(Reverse(nothing_other)))?;
        ordered(&Pair(one, numbers), &Pair(other, numbers_other))?;
        ordered(&(event, nothing, numbers), &(event_other, nothing_other, numbers_other))?;
    }

    #[test]
    fn ranges_hold_what_begins_so(
        keys in proptest::collection::vec(order_key(), 0..20), customer in 0..3_u64, day in -1..2_i32,
        to_customer in 0..3_u64, text in few_text(), texts in proptest::collection::vec(few_text(), 0..20),
    ) {
        let all: Vec<_> = keys.iter().map(|key| (key, bytes(key))).collect();
        let (from, to) = (OfCustomer { customer }, OfCustomer { customer: to_customer });
        let of_day = OfDay { customer, day };
        for (key, encoded) in &all {
            let of = key.customer;
            prop_assert_eq!(is_within(encoded, &under(&from)), of == customer);
            prop_assert_eq!(is_within(encoded, &under(&of_day)), of == customer && key.day == day);
            let range = between::<OrderKey, _>(&(from.clone()..to.clone()));
            prop_assert_eq!(is_within(encoded, &range), (customer..to_customer).contains(&of));
            let range = between::<OrderKey, _>(&(from.clone()..=to.clone()));
            prop_assert_eq!(is_within(encoded, &range), (customer..=to_customer).contains(&of));
            let range = between::<OrderKey, _>(&(Bound::Excluded(from.clone()), Bound::Unbounded));
            prop_assert_eq!(is_within(encoded, &range), of > customer);
            let first = OfCustomer::decode_prefix(&mut KeyDecoder::new(encoded));
            prop_assert_eq!(first, Ok(OfCustomer { customer: of }));
        }
        for found in &texts {
            let range = under::<String, _>(&StartsWith(&text));
            prop_assert_eq!(is_within(&bytes(found), &range), found.starts_with(&text));
        }
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(any in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(found) = Event::from_key(&any) {
            prop_assert_eq!(bytes(&found), any.clone());
        }
        if let Ok(found) = <(NullsLast<char>, Reverse<OrderKey>)>::from_key(&any) {
            prop_assert_eq!(bytes(&found), any);
        }
    }
}

fn is_within(key: &[u8], range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    std::ops::RangeBounds::<Vec<u8>>::contains(range, &key.to_vec())
}

/// The bytes that docs/formats.md states: they may not change.
#[test]
fn golden_bytes_of_compounds() {
    let key = OrderKey { customer: 7, day: -1, note: Some("é".to_owned()) };
    assert_eq!(bytes(&key), b"\0\0\0\0\0\0\0\x07\x7F\xFF\xFF\xFF\x01\xC3\xA9\0\x01");
    assert_eq!(bytes(&Event::Begun), [0]);
    assert_eq!(bytes(&Event::Moved { by: 1, note: vec![0] }), b"\x03\x80\0\0\0\0\0\0\x01\0\xFF\0\x01");
    assert_eq!(bytes(&Event::Ended("a".to_owned(), Reverse(1))), b"\x09a\0\x01\xFF\xFE");
    assert_eq!(bytes(&(None::<u8>, NullsLast(None::<u8>), NullsLast(Some(5_u8)))), [0, 2, 1, 5]);
}

#[test]
fn keys_whose_prefix_is_all_ones_have_ranges_too() {
    let all = under::<(u8, u8), _>(&(u8::MAX,));
    assert_eq!(all, (Bound::Included(vec![0xFF]), Bound::Unbounded));
    let none = between::<(u8, u8), _>(&(Bound::Excluded((u8::MAX,)), Bound::Unbounded));
    assert!(!is_within(&[0xFF, 0xFF], &none) && !is_within(&[0xFF; 1000], &none));
}

#[test]
fn descriptions_tell_types_apart() {
    let of = |shape: Shape| shape.as_str().to_owned();
    assert_eq!(of(Shape::of::<OrderKey>()), "struct { customer: u64, day: i32, note: option<str>, }");
    assert_eq!(
        of(Shape::of::<Event>()),
        "enum { 0 Begun { }, 3 Moved { by: i64, note: list<u8>, }, 9 Ended { 0: str, 1: reverse<u16>, }, }"
    );
    assert_ne!(of(Shape::of::<(u8, u16)>()), of(Shape::of::<(u16, u8)>()));
    assert_ne!(of(Shape::of::<Option<u8>>()), of(Shape::of::<NullsLast<u8>>()));
}
