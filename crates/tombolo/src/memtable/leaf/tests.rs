use super::*;

#[test]
fn heads_order_like_what_follows_the_skipped_bytes() {
    let keys: [&[u8]; 7] = [b"xx", b"xx\0", b"xxa", b"xxab", b"xxabcd", b"xxabcde", b"xxb"];
    assert!(keys.windows(2).all(|pair| head_of(pair[0], 2) <= head_of(pair[1], 2)));
    assert_eq!(head_of(b"x", 2), 0);
}

#[test]
fn slots_keep_the_order_in_which_they_were_put() {
    let mut slots = Slots(0);
    let mut model = Vec::new();
    for (index, place) in [0, 0, 2, 1, 4, 0, 6, 3, 8, 9, 5, 0, 12, 7].into_iter().enumerate() {
        slots = slots.with(place);
        model.insert(place, index);
        assert_eq!(slots.count(), model.len());
        assert!((0..model.len()).all(|place| slots.slot(place) == model[place]));
    }
    assert_eq!(slots.count(), SLOTS);
}
