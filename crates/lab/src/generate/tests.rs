use super::recent::Recent;
use super::scattered;

#[test]
fn the_key_at_a_distance_is_the_one_of_a_plain_list() {
    let (mut recent, mut plain) = (Recent::new(100_000), Vec::<u64>::new());
    let mut key = 1_u64;
    for step in 0..5000_usize {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (key >> 33) % 300;
        recent.access(key);
        plain.retain(|held| *held != key);
        plain.insert(0, key);
        let at = step % plain.len();
        assert_eq!(recent.at_distance(at as u64 + 1), Some(plain[at]));
    }
    assert_eq!((recent.at_distance(301), recent.at_distance(0)), (None, None));
}

#[test]
fn only_the_newest_keys_are_remembered() {
    let mut recent = Recent::new(500);
    (0..10_000).for_each(|key| recent.access(key));
    assert_eq!((recent.at_distance(1), recent.at_distance(400)), (Some(9999), Some(9600)));
    assert_eq!(recent.at_distance(5000), None);
}

#[test]
fn every_rank_has_a_place_of_its_own() {
    for count in [1, 2, 7, 100, 1024] {
        let mut places: Vec<u64> = (0..count).map(|rank| scattered(rank, count, 9)).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..count), "{count}");
    }
}
