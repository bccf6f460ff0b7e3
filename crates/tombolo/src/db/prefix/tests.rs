use super::*;

#[test]
fn a_prefix_is_a_range() {
    let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
    assert_eq!(prefix_range(b""), (Bound::Included(vec![]), Bound::Unbounded));
    assert_eq!(prefix_range(b"ab"), (Bound::Included(b"ab".to_vec()), excluded(b"ac")));
    assert_eq!(prefix_range(b"a\xff\xff"), (Bound::Included(b"a\xff\xff".to_vec()), excluded(b"b")));
    assert_eq!(prefix_range(b"\xff\xff"), (Bound::Included(b"\xff\xff".to_vec()), Bound::Unbounded));
}
