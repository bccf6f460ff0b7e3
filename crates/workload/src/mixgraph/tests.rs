use super::*;
use crate::random;

const COUNT: u64 = 30_000;
const DRAWS: u32 = 200_000;

fn mixgraph(thread: u64) -> Mixgraph {
    let values = Arc::new(Values::new(VALUES, 0.5, &mut random(1, 98)));
    let ranges = Arc::new(Ranges::new(COUNT, &mut random(1, 99)));
    Mixgraph::new(ranges, KeyEncoding::BigEndian { width: 8 }, values, random(3, thread))
}

#[test]
fn verbs_and_lengths_are_the_published_ones() {
    let mut source = mixgraph(0);
    let (mut gets, mut puts, mut scans, mut value_bytes, mut entries) = (0u32, 0u32, 0u32, 0, Vec::new());
    for _ in 0..DRAWS {
        let operation = source.draw();
        match operation.verb {
            Verb::Get => gets += 1,
            Verb::Put => {
                puts += 1;
                assert!((10..=1024).contains(&operation.value.len()));
                value_bytes += operation.value.len();
            }
            Verb::Scan => {
                scans += 1;
                entries.push(operation.scan_entries);
            }
            verb => panic!("{verb:?}"),
        }
    }
    for (found, share) in [(gets, 0.83), (puts, 0.14), (scans, 0.03)] {
        let found = f64::from(found) / f64::from(DRAWS);
        assert!(
            (found - share).abs() < 6.0 * (share * (1.0 - share) / f64::from(DRAWS)).sqrt(),
            "{found}, expected {share}"
        );
    }
    // The published mean is 34 B without the least of 10; a shortest value of 10 B lifts it a
    // little.
    let mean = value_bytes as f64 / f64::from(puts);
    assert!((34.0..39.0).contains(&mean), "{mean}");
    // The median of the generalised Pareto: 14.236 · (2^2.517 − 1) / 2.517 = 26.7, drawn again
    // above 10,000 (5.6 % of all): somewhat less.
    entries.sort_unstable();
    let median = entries[entries.len() / 2];
    assert!((20..=27).contains(&median), "{median}");
    assert!(*entries.last().unwrap() <= 10_000 && entries[0] >= 1);
}

#[test]
fn one_range_takes_most_of_it_and_one_key_of_each_its_share() {
    let mut source = mixgraph(0);
    let mut counts = vec![0u32; 30_000];
    for _ in 0..DRAWS {
        counts[usize::from_be_bytes(source.draw().key.try_into().unwrap())] += 1;
    }
    let mut ranges: Vec<u32> = counts.chunks(1000).map(|range| range.iter().sum()).collect();
    let hottest = ranges.iter().position(|count| count == ranges.iter().max().unwrap()).unwrap();
    // The most popular key of a range: rank 1, with the share a.
    let first = counts[hottest * 1000 + usize::try_from(scatter(1) % 1000).unwrap()];
    let share = f64::from(first) / f64::from(ranges[hottest]);
    assert!((0.0023..0.012).contains(&share), "{share}");
    ranges.sort_unstable();
    let top = f64::from(ranges[29]) / f64::from(DRAWS);
    let [a, b, c, d] = RANGE;
    let weight = |rank: f64| a * (b * rank).exp() + c * (d * rank).exp();
    let expected = weight(1.0) / (1..=30).map(|rank| weight(f64::from(rank))).sum::<f64>();
    assert!(
        (top - expected).abs() < 6.0 * (expected / f64::from(DRAWS)).sqrt(),
        "{top}, expected {expected}"
    );
    // The published set: four of five operations in one of 30 ranges.
    assert!((0.79..0.81).contains(&expected), "{expected}");
}

#[test]
fn threads_agree_on_what_is_hot_and_a_few_keys_are_enough() {
    let popular = |thread| {
        let mut source = mixgraph(thread);
        let mut ranges = [0u32; 30];
        (0..5000)
            .for_each(|_| ranges[usize::from_be_bytes(source.draw().key.try_into().unwrap()) / 1000] += 1);
        ranges.iter().position(|count| count == ranges.iter().max().unwrap())
    };
    assert_eq!(popular(0), popular(1));
    for count in [1, 2, 29, 31] {
        let (ranges, mut random) = (Ranges::new(count, &mut random(1, 0)), random(2, 0));
        assert!((0..1000).all(|_| ranges.draw(&mut random) < count), "{count}");
    }
}
