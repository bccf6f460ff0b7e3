use super::*;

#[test]
fn heights_fall_off_by_four() {
    let mut random = 1;
    let mut counts = [0u32; HEIGHT_MAX + 1];
    let thousands = if cfg!(miri) { 1 } else { 100 };
    for _ in 0..thousands * 1000 {
        counts[random_height(&mut random)] += 1;
    }
    let share = |height: usize| counts[height] / thousands;
    assert!((700..800).contains(&share(1)) && (150..220).contains(&share(2)), "{counts:?}");
}
