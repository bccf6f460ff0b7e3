use super::*;

#[test]
fn each_condition_holds_where_it_should_and_nowhere_else() {
    let absent = None;
    let seven = Some((SequenceNumber(7), &b"seven"[..]));
    let cases: [(Condition, bool, bool); 7] = [
        (Condition::Absent, true, false),
        (Condition::Present, false, true),
        (Condition::equal("seven"), false, true),
        (Condition::equal(""), false, false),
        (Condition::Unchanged(None), true, false),
        (Condition::Unchanged(Some(7)), false, true),
        (Condition::Unchanged(Some(8)), false, false),
    ];
    for (condition, of_absent, of_seven) in cases {
        assert_eq!(condition.holds(absent), of_absent, "{condition:?} of an absent key");
        assert_eq!(condition.holds(seven), of_seven, "{condition:?} of version 7");
    }
    assert!(Condition::equal("").holds(Some((SequenceNumber(1), &[]))), "an empty value is a value");
}
