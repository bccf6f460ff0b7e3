use tombolo_format::trace::{Event, Header, TracedKeys};
use tombolo_workload::fit::Sizes;
use tombolo_workload::{Distribution, Keys, random};

use super::*;
use crate::analysis::{Analyser, Analysis, Bounds};
use crate::comparison::{compare, reuse_distance};
use crate::flags::mixgraph_flags;
use crate::generate::Generator;
use crate::model::RangeModel;

fn analyser() -> Analyser {
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: "test".to_owned(),
    };
    Analyser::new(header, Bounds::default())
}

/// Skewed gets and puts, and some scans, of 5,000 keys.
fn reference(events: u32) -> Analysis {
    let mut analyser = analyser();
    let mut random = random(11, 0);
    let mut keys = Keys::new(Distribution::Zipfian { exponent: 0.9 }, 5000).unwrap();
    let values = Sizes::Pareto { location: 0.0, scale: 60.0, shape: 0.2, most: 4000 };
    for number in 0..events {
        let key = format!("user:{:012}", keys.draw(&mut random));
        let time = u64::from(number) * 20_000;
        let mut event = Event::new(
            time,
            [Asked::Get, Asked::Get, Asked::Get, Asked::Put][number as usize % 4],
            3,
            key.as_bytes(),
        );
        if event.asked == Asked::Put {
            event.value_bytes = u32::try_from(values.draw(&mut random)).unwrap();
        }
        if number % 40 == 0 {
            event = Event { entries: 1 + number % 50, ..Event::new(time, Asked::Scan, 3, key.as_bytes()) };
        }
        analyser.add(&event);
    }
    analyser.finish()
}

fn generated(model: &Model, seed: u64, events: u64) -> Analysis {
    let (mut analyser, mut generator) = (analyser(), Generator::new(model, seed).unwrap());
    (0..events).for_each(|_| analyser.add(&generator.draw()));
    analyser.finish()
}

#[test]
fn a_model_makes_what_it_was_fitted_to() {
    let seen = reference(60_000);
    let model = fit(&seen);
    let text = model.to_toml().unwrap();
    assert!(!text.contains("user"), "a key of the user's");
    let again = generated(&Model::from_toml(&text).unwrap(), 1, seen.events);
    for compared in compare(&seen, &again) {
        // The number of accesses of a key is drawn, and so wider than it was.
        let bound = if compared.what.ends_with("accesses of a key") { 0.2 } else { 0.06 };
        assert!(compared.distance < bound, "{compared:?}");
    }
    assert!(reuse_distance(&seen.reuse, &again.reuse) < 0.03);
    assert_eq!(generated(&model, 5, 100).keyspaces[0].top, generated(&model, 5, 100).keyspaces[0].top);
}

#[test]
fn pages_that_are_no_models_are_refused_with_a_reason() {
    let text = fit(&reference(2000)).to_toml().unwrap();
    for (from, to, reason) in [
        ("form = 1", "form = 9", "form"),
        ("family = \"", "family = \"un", "family"),
        ("operation = \"get\"", "operation = \"fly\"", "fly"),
        (" | ", " ", "range"),
        ("events = ", "frobs = ", "frobs"),
    ] {
        let error = Model::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn flags_of_mixgraph_say_what_they_lose() {
    let (flags, lost) = mixgraph_flags(&fit(&reference(20_000)));
    for flag in ["-benchmarks=mixgraph", "-mix_get_ratio=0.7", "-value_k=", "-keyrange_num=", "-key_size=17"]
    {
        assert!(flags.contains(flag), "{flag} of {flags}");
    }
    assert!(lost.iter().any(|lost| lost.contains("no memory")), "{lost:?}");
}

/// Keys of which neighbours are asked for together, in a window that moves; hotter ones have larger
/// values; a third of the keys is never asked for.
fn drifting(events: u32) -> (Analysis, Vec<Vec<u8>>) {
    use rand::Rng;
    let key = |number: u32| format!("user:{number:08}").into_bytes();
    let (mut analyser, mut random) = (analyser(), random(5, 0));
    for number in 0..events {
        let window = number * 8 / events * 2000;
        let run = window + random.random_range(0..25_u32) * random.random_range(0..25) / 25 * 24;
        let at = run + random.random_range(0..16);
        let asked = if number % 4 == 0 { Asked::Put } else { Asked::Get };
        let key = key(at);
        let mut event = Event::new(u64::from(number) * 20_000, asked, 0, &key);
        if asked == Asked::Put {
            // The nearer to the beginning of a window, the hotter.
            event.value_bytes = 20 + random.random_range(0..10) + (600 + window - run) / 10;
        }
        analyser.add(&event);
    }
    (analyser.finish(), (0..24_000).map(key).collect())
}

#[test]
fn a_model_keeps_what_drifts_and_what_lies_beside_each_other() {
    let (seen, keys) = drifting(40_000);
    let mut there = KeysThere::new();
    keys.iter().for_each(|key| there.add(&seen.keyspaces[0], key));
    let model = fit_among(&seen, &[there]);
    let keyspace = &model.keyspaces[0];
    let lines: Vec<_> = keyspace.access.ranges.iter().map(|line| RangeModel::parse(line).unwrap()).collect();
    // All keys are in some range, and those that nobody asked for are most.
    let (asked, cold) = lines
        .iter()
        .fold((0, 0), |(asked, cold), line| (asked + line.keys.iter().sum::<u64>(), cold + line.cold));
    assert_eq!((asked + cold, asked), (24_000, keyspace.keys));
    assert!((2..64).contains(&keyspace.access.run), "{}", keyspace.access.run);
    assert!(keyspace.size_with_hotness > 0.4, "{}", keyspace.size_with_hotness);
    // The made workload moves as well: a range is asked for in one part of the time.
    assert!(lines.iter().all(|line| line.phases.len() == crate::model::PHASES));
    let again = generated(&Model::from_toml(&model.to_toml().unwrap()).unwrap(), 1, seen.events);
    for analysis in [&seen, &again] {
        let map = analysis.keyspaces[0].heat_map(32);
        let busiest: f64 = map
            .accesses
            .iter()
            .map(|row| {
                let quarter = row.chunks(4).map(|part| part.iter().sum::<u64>()).max().unwrap_or(0);
                quarter as f64 / row.iter().sum::<u64>().max(1) as f64
            })
            .sum();
        assert!(busiest / map.accesses.len() as f64 > 0.4, "{busiest}");
    }
    let refitted = fit(&again);
    let far = refitted.keyspaces[0].size_with_hotness - keyspace.size_with_hotness;
    assert!(far.abs() < 0.25, "{far}");
}

#[test]
fn a_workload_that_stays_has_no_phases_and_the_second_half_is_near() {
    let seen = reference(30_000);
    let model = fit(&seen);
    assert!(model.keyspaces[0].access.ranges.iter().all(|line| line.matches('|').count() == 1));
    assert_eq!((model.bursts, model.keyspaces[0].size_with_hotness), (None, 0.0));
    for one in held_out(&seen, &reference(30_000), &model) {
        assert!(one.itself < 1e-9 && one.model.distance < 0.25, "{one:?}");
    }
}
