use super::*;

#[test]
fn a_value_and_its_end_come_apart_again() {
    let stored = join_expiring(b"value", 77);
    assert_eq!(split_expiring(&stored), Ok((&b"value"[..], 77)));
    assert_eq!(expiry_of(EntryKind::ExpiringPut, &stored), Ok(Some(77)));
    assert_eq!(expiry_of(EntryKind::Put, &stored), Ok(None));
    assert!(matches!(split_expiring(&stored[..7]), Err(FormatError::Damaged { .. })));
    assert!(split_expiring(&join_expiring(b"", EXPIRY_MS_MAX)).is_ok());
    assert!(matches!(
        split_expiring(&join_expiring(b"", EXPIRY_MS_MAX + 1)),
        Err(FormatError::Damaged { .. })
    ));
}

#[test]
fn what_a_table_says_of_its_ends_is_checked() {
    let whole = Expiry::of(5).with(Expiry::of(3)).with(Expiry::of(9));
    assert_eq!(whole, Expiry { entries: 3, earliest_ms: 3, latest_ms: 9, written_ms: u64::MAX });
    assert_eq!(Expiry::decode(&whole.encode()), Ok(whole));
    let bad = [
        Expiry { entries: 0, ..whole },
        Expiry { earliest_ms: 10, ..whole },
        Expiry { latest_ms: EXPIRY_MS_MAX + 1, ..whole },
    ];
    for bad in bad {
        assert!(matches!(Expiry::decode(&bad.encode()), Err(FormatError::Damaged { .. })), "{bad:?}");
    }
    for cut in 0..32 {
        assert!(Expiry::decode(&whole.encode()[..cut]).is_err());
    }
}

#[test]
fn an_operand_and_its_times_come_apart_again() {
    let times = OperandTimes { written_ms: 5, expires_ms: 77 };
    let stored = join_operand(b"operand", times);
    assert_eq!(split_operand(&stored), Ok((&b"operand"[..], times)));
    for kind in [EntryKind::ExpiringMerge, EntryKind::ExpiringMergeList] {
        assert_eq!(expiry_of(kind, &stored), Ok(Some(77)));
        assert!(expiry_of(kind, &stored[..15]).is_err());
        let found = Expiry::of_entry(kind, &stored);
        assert_eq!(found, Ok(Some(Expiry { written_ms: 5, ..Expiry::of(77) })));
    }
    for wrong in [
        OperandTimes { written_ms: EXPIRY_MS_MAX + 1, ..times },
        OperandTimes { expires_ms: u64::MAX, ..times },
    ] {
        assert!(matches!(split_operand(&join_operand(b"", wrong)), Err(FormatError::Damaged { .. })));
    }
    let all = Expiry::of(90).with(Expiry { written_ms: 5, ..Expiry::of(77) });
    assert_eq!(all, Expiry { entries: 2, earliest_ms: 77, latest_ms: 90, written_ms: 5 });
}
