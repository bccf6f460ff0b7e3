use tombolo_format::checksum::key_hash;

use super::KeyFilter;

fn hash(number: u64) -> u64 {
    key_hash(&number.to_be_bytes())
}

#[test]
fn whatever_was_taken_in_passes_and_little_else_does() {
    let filter = KeyFilter::new(16 << 20);
    // As many keys as such a memtable holds.
    let keys = (16 << 20) / 160;
    (0..keys).for_each(|key| filter.insert(hash(key)));
    assert!((0..keys).all(|key| filter.may_contain(hash(key))));
    let passed = (keys..2 * keys).filter(|key| filter.may_contain(hash(*key))).count() as u64;
    assert!(passed * 100 < keys * 6, "{passed} of {keys} absent keys pass");
}

#[test]
fn that_of_a_small_memtable_takes_no_memory_and_lets_everything_pass() {
    let filter = KeyFilter::new(64 << 10);
    assert_eq!(filter.bytes(), 0);
    assert!(filter.is_none());
    assert!(filter.may_contain(hash(1)));
    filter.insert(hash(1));
}
