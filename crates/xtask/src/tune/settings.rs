//! What may be set without buying speed with memory, space or safety.

use std::fmt;

use rand::Rng;
use rand::rngs::SmallRng;

/// Settings to be tried. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    settings: Vec<(&'static str, u64)>,
    keyspace_settings: Vec<(&'static str, u64)>,
}

impl Candidate {
    /// Each setting from its range, evenly on a logarithmic scale.
    pub fn draw(random: &mut SmallRng, memory_bytes: u64) -> Candidate {
        let mut power = |least: u64, most: u64| least << random.random_range(0..=(most / least).ilog2());
        let memtable = power(memory_bytes / 64, memory_bytes / 4);
        let block = power(2048, 65536);
        let filter = random.random_range(6..=14);
        Candidate {
            settings: vec![("memtable_bytes", memtable)],
            keyspace_settings: vec![("block_bytes", block), ("filter_bits", filter)],
        }
    }

    /// As `bench` takes them.
    pub fn arguments(&self) -> Vec<String> {
        let of = |flag: &str, settings: &[(&'static str, u64)]| -> Vec<String> {
            settings.iter().flat_map(|(name, value)| [flag.to_owned(), format!("{name}={value}")]).collect()
        };
        [of("--setting", &self.settings), of("--keyspace-setting", &self.keyspace_settings)].concat()
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self
            .settings
            .iter()
            .chain(&self.keyspace_settings)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if all.is_empty() { formatter.write_str("the defaults") } else { formatter.write_str(&all.join(" ")) }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn candidates_differ_and_stay_in_their_ranges() {
        let mut random = SmallRng::seed_from_u64(1);
        let drawn: Vec<Candidate> = (0..100).map(|_| Candidate::draw(&mut random, 1 << 28)).collect();
        assert!(drawn.iter().any(|candidate| *candidate != drawn[0]));
        for candidate in &drawn {
            assert_eq!(candidate.arguments().len(), 6);
            let (name, memtable) = candidate.settings[0];
            assert_eq!(name, "memtable_bytes");
            assert!((1 << 22..=1 << 26).contains(&memtable), "{memtable}");
        }
        assert!(Candidate::default().arguments().is_empty());
    }
}
