use tombolo_format::trace::{Event, Header, TracedKeys};
use tombolo_workload::fit::Sizes;
use tombolo_workload::{Distribution, Keys, random};

use super::*;
use crate::analysis::{Analyser, Analysis, Bounds};
use crate::comparison::{compare, reuse_distance};
use crate::flags::mixgraph_flags;
use crate::generate::Generator;

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
