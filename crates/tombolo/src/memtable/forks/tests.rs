use super::*;

#[test]
fn prefixes_order_like_keys() {
    let keys: [&[u8]; 6] = [b"", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"b"];
    assert!(keys.windows(2).all(|pair| prefix_of(pair[0]) <= prefix_of(pair[1])));
}

#[test]
fn heights_fall_off_by_four() {
    let mut random = 1;
    let mut counts = [0u32; HEIGHT_MAX + 1];
    for _ in 0..100_000 {
        counts[random_height(&mut random)] += 1;
    }
    assert!((70_000..80_000).contains(&counts[1]) && (15_000..22_000).contains(&counts[2]), "{counts:?}");
}
