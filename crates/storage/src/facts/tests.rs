use super::*;

#[test]
fn every_fact_of_this_machine_has_a_value_and_what_is_not_fine_has_a_next_step() {
    let facts = host(&Env::real());
    assert!(facts.len() >= 6);
    for fact in &facts {
        assert!(!fact.name.is_empty() && !fact.value.is_empty(), "{fact:?}");
        assert_eq!(fact.advice.is_none(), fact.verdict == Verdict::Fine, "{fact:?}");
    }
    let mut names: Vec<_> = facts.iter().map(|fact| fact.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), facts.len(), "two facts of one name");
}

#[test]
fn bytes_are_told_in_the_largest_unit_that_they_fill() {
    for (bytes, text) in [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1023.9 KiB"),
        (5 << 30, "5.0 GiB"),
        (u64::MAX, "16777215.9 TiB"),
    ] {
        assert_eq!(bytes_text(bytes), text);
    }
}
