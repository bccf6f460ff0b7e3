//! The bounded part of fuzzing, for every CI run: each target with its seeds, and mutations of them
//! by a fixed generator.

use tombolo_format::checksum::key_hash;
use tombolo_format::fuzzing::Target;
use tombolo_format::fuzzing::{TARGETS, seeds};

fn targets() -> impl Iterator<Item = (&'static str, Target)> {
    TARGETS.into_iter().chain(tombolo_segment::fuzzing::TARGETS).chain(tombolo_files::fuzzing::TARGETS)
}

const MUTATIONS: u64 = 500;

#[test]
fn every_target_takes_mutations_of_its_seeds() {
    for (name, target) in targets() {
        let all = seeds::all()
            .into_iter()
            .chain(tombolo_segment::fuzzing::seeds::all())
            .chain(tombolo_files::fuzzing::seeds::all());
        let own: Vec<Vec<u8>> = all.filter(|(of, _)| *of == name).map(|(_, seed)| seed).collect();
        assert!(!own.is_empty(), "{name} has no seed");
        for seed in own {
            target(&seed);
            for number in 0..MUTATIONS {
                let mut bytes = seed.clone();
                let word = key_hash(&number.to_le_bytes());
                if let Some(byte) = bytes.get_mut((word >> 8) as usize % seed.len().max(1)) {
                    *byte = word as u8;
                }
                if word & (7 << 60) == 0 {
                    bytes.truncate((word >> 16) as usize % seed.len().max(1));
                }
                target(&bytes);
            }
        }
    }
}

#[test]
fn every_target_has_a_file() {
    for (name, _) in targets() {
        let path = format!("{}/fuzz_targets/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        assert!(
            std::fs::read_to_string(&path)
                .is_ok_and(|text| text.contains(&format!("fuzzing::{name}(bytes)"))),
            "{path}"
        );
    }
}
