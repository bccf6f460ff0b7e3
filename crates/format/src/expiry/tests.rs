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
    assert_eq!(whole, Expiry { entries: 3, earliest_ms: 3, latest_ms: 9 });
    assert_eq!(Expiry::decode(&whole.encode()), Ok(whole));
    let bad = [
        Expiry { entries: 0, ..whole },
        Expiry { earliest_ms: 10, ..whole },
        Expiry { latest_ms: EXPIRY_MS_MAX + 1, ..whole },
    ];
    for bad in bad {
        assert!(matches!(Expiry::decode(&bad.encode()), Err(FormatError::Damaged { .. })), "{bad:?}");
    }
    for cut in 0..24 {
        assert!(Expiry::decode(&whole.encode()[..cut]).is_err());
    }
}
