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

#[test]
fn the_mark_of_what_is_gone_goes_on_only() {
    let mut followed = Followed::default();
    followed.places.insert("one".to_owned(), (10, 800));
    followed.begin(10, None);
    assert_eq!(take(&mut followed, 11), None, "nothing is kept that could go");
    followed.places.insert("one".to_owned(), (11, 800));
    assert_eq!(take(&mut followed, 12), Some(11));
    // The only one ended, and another one begins.
    followed.begins(20);
    followed.places.insert("one".to_owned(), (20, 800));
    assert_eq!(take(&mut followed, 21), None, "what was kept before is not there any more");
    followed.places.insert("one".to_owned(), (21, 800));
    assert_eq!(take(&mut followed, 22), Some(21));
}

#[test]
fn all_may_be_kept_for_ever() {
    let mut followed = Followed::default();
    followed.places.insert("all".to_owned(), (0, u64::MAX));
    followed.begin(0, Some((u64::MAX - 150, 5)));
    for number in 6..10 {
        assert_eq!(take(&mut followed, number), None, "{number}");
    }
}
