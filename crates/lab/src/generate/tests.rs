use super::placement::Placement;
use super::recent::Recent;

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
fn every_rank_has_a_place_of_its_own_and_runs_stay_together() {
    for (count, run) in [(1, 1), (2, 1), (7, 3), (100, 1), (1024, 16), (1000, 7), (5, 9)] {
        let placement = Placement::new(count, run, 9);
        let places: Vec<u64> = (0..count).map(|rank| placement.place(rank)).collect();
        for (rank, place) in (0..).zip(&places) {
            assert_eq!(placement.rank(*place), rank, "{count}, {run}");
        }
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..count), "{count}, {run}");
        let whole = usize::try_from(count / run * run).unwrap();
        for run in places[..whole].chunks(usize::try_from(run).unwrap()) {
            assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 1), "{run:?}");
        }
    }
}
