use proptest::prelude::*;

use super::*;

fn list(properties: &[(u16, bool, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, is_critical, value) in properties {
        put_property(&mut out, Property { id: *id, is_critical: *is_critical, value });
    }
    out
}

#[test]
fn a_list_is_the_bytes_of_its_table() {
    let bytes = list(&[(2, false, b"ab"), (0x0103, true, b"")]);
    assert_eq!(bytes, [2, 0, 0, 2, 0, 0, 0, b'a', b'b', 3, 1, 1, 0, 0, 0, 0]);
    assert_eq!(PROPERTY_HEADER_BYTES, 7);
}

#[test]
fn what_may_be_ignored_is_kept_as_it_is() {
    for bytes in [list(&[]), list(&[(2, false, b"")]), list(&[(0, false, b"x"), (9, false, &[7; 300])])] {
        let kept = PropertyList::decode(&bytes).unwrap();
        assert_eq!(kept.bytes(), bytes);
        assert_eq!(PropertyList::decode(kept.bytes()), Ok(kept));
    }
    assert_eq!(PropertyList::decode(&list(&[(0, false, b"x"), (9, false, b"")])).unwrap().ids(), [0, 9]);
    assert_eq!(PropertyList::decode(&[]), Ok(PropertyList::default()));
}

#[test]
fn what_is_critical_and_unknown_is_refused_and_named() {
    let error = PropertyList::decode(&list(&[(2, false, b"a"), (99, true, b"b")])).unwrap_err();
    assert_eq!(error, FormatError::newer(8, "unknown critical property 99"));
    let known = |property: Property<'_>, at: usize| Ok(property.id == 7 && at == 15);
    assert_eq!(read_properties(&list(&[(2, false, b"a"), (7, true, b"b")]), known), Ok(()));
    let mut flagged = list(&[(2, false, b"a")]);
    flagged[2] = 2;
    assert!(matches!(PropertyList::decode(&flagged), Err(FormatError::Newer { offset: 2, .. })));
}

#[test]
fn a_number_takes_the_place_of_all_in_a_table() {
    let known = list(&[(2, false, b"a"), (9, false, b"")]);
    let plain = PropertyList::decode(&known).unwrap();
    assert_eq!((plain.sequence_override(), plain.get(9), plain.get(8)), (None, Some(&b""[..]), None));
    let of = |number: u64| Property { id: 7, is_critical: true, value: &number.to_le_bytes() }.value.to_vec();
    let with = plain.with(Property { id: 7, is_critical: true, value: &of(5) });
    assert_eq!((with.sequence_override(), with.ids()), (Some(SequenceNumber(5)), vec![2, 7, 9]));
    assert_eq!(PropertyList::decode(with.bytes()), Ok(with.clone()));
    let again = with.with(Property { id: 7, is_critical: true, value: &of(6) });
    assert_eq!((again.sequence_override(), again.ids()), (Some(SequenceNumber(6)), vec![2, 7, 9]));
    let last = PropertyList::default().with(Property { id: 7, is_critical: true, value: &of(0) });
    assert_eq!((last.sequence_override(), last.ids()), (Some(SequenceNumber(0)), vec![7]));
    for wrong in [&b"short"[..], &[255; 8], &[0; 9]] {
        assert!(PropertyList::decode(&list(&[(7, true, wrong)])).is_err(), "{wrong:?}");
    }
}

#[test]
fn lists_out_of_order_twice_too_long_or_cut_are_damage() {
    for bytes in [list(&[(3, false, b""), (2, false, b"")]), list(&[(2, false, b""), (2, false, b"")])] {
        assert!(matches!(PropertyList::decode(&bytes), Err(FormatError::Damaged { offset: 7, .. })));
    }
    let bytes = list(&[(2, false, b"abc")]);
    for cut in 1..bytes.len() {
        assert!(matches!(PropertyList::decode(&bytes[..cut]), Err(FormatError::Damaged { .. })), "{cut}");
    }
    let long: Vec<u8> = list(&[(2, false, &[0; PROPERTIES_BYTES_MAX])]);
    assert!(matches!(PropertyList::decode(&long), Err(FormatError::Damaged { offset: 0, .. })));
}

#[test]
fn what_a_description_says_of_range_deletes_is_known() {
    let said = RangeDeletes { count: 3, bytes: 77, ends_before_last: true };
    let known = KnownProperties { range_deletes: Some(said), ..KnownProperties::default() };
    let value = &said.encode();
    let of = PropertyList::of([Property { id: PROPERTY_RANGE_DELETES, is_critical: true, value }]);
    assert_eq!(of.bytes(), list(&[(1, true, &[3, 0, 0, 0, 77, 0, 0, 0, 1])]));
    assert_eq!(PropertyList::decode(of.bytes()).map(|list| list.known()), Ok(known));
    assert_eq!(of.known(), known);
    for (value, is_newer) in [
        (&[0, 0, 0, 0, 9, 0, 0, 0, 1][..], false),
        (&[1, 0, 0, 0, 9, 0, 0, 0, 2], true),
        (&[1, 0, 0, 0, 1], false),
    ] {
        let refused = PropertyList::decode(&list(&[(1, true, value)])).unwrap_err();
        assert_eq!(matches!(refused, FormatError::Newer { .. }), is_newer, "{refused:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(list) = PropertyList::decode(&bytes) {
            prop_assert_eq!(list.bytes(), &bytes[..]);
            list.ids();
        }
    }
}
