use super::*;

fn take(followed: &mut Followed, number: u64) -> Option<u64> {
    let gone = followed.goes_with(100);
    followed.took(100, number, gone);
    gone
}

#[test]
fn what_all_have_taken_goes_and_what_is_too_much_goes_too() {
    let mut followed = Followed::default();
    followed.places.insert("slow".to_owned(), (0, 800));
    followed.places.insert("fast".to_owned(), (0, 80));
    for number in 1..=9 {
        assert_eq!(take(&mut followed, number), None, "{number}: within the bytes of one");
    }
    assert_eq!(take(&mut followed, 10), Some(1), "beyond them");
    followed.places.insert("slow".to_owned(), (5, 800));
    assert_eq!(take(&mut followed, 11), Some(2), "the other has taken nothing");
    followed.places.insert("fast".to_owned(), (6, 80));
    assert_eq!(take(&mut followed, 12), Some(5));
    followed.places.clear();
    assert_eq!(take(&mut followed, 13), Some(12));
}

#[test]
fn a_change_that_was_not_committed_counts_for_nothing() {
    let mut followed = Followed::default();
    followed.places.insert("one".to_owned(), (0, 800));
    for number in 1..=9 {
        take(&mut followed, number);
    }
    for _again in 0..100 {
        assert_eq!(followed.goes_with(100), Some(1), "only what the next one makes too much");
    }
    assert_eq!(followed.total_bytes, 900);
}
