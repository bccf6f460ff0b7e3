//! What requests took lately, as a histogram that forgets.

use std::time::Duration;

/// Latencies below are one class: 1 µs.
const EXPONENT_MIN: u32 = 10;
/// Latencies from here on are one class: 69 s.
const EXPONENT_MAX: u32 = 36;
/// Classes of a factor of two: neighbours differ by 4.4 % on average.
const STEPS: u32 = 16;
const CLASSES: usize = ((EXPONENT_MAX - EXPONENT_MIN) * STEPS) as usize;

/// Counts of latencies by length. After so many samples all counts are halved, so that about twice
/// as many of the last ones have a say.
#[derive(Debug)]
pub(super) struct Latencies {
    counts: Box<[u32; CLASSES]>,
    /// Invariant: the sum of `counts`.
    total: u32,
    /// Samples until counts are halved.
    left: u32,
    window: u32,
}

impl Latencies {
    pub(super) fn new(window: u32) -> Latencies {
        Latencies { counts: Box::new([0; CLASSES]), total: 0, left: window, window }
    }

    /// Adds what a request took.
    pub(super) fn add(&mut self, latency: Duration) {
        if self.left == 0 {
            self.left = self.window;
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        self.left -= 1;
        self.counts[class_of(latency)] += 1;
        self.total += 1;
    }

    /// How many samples have a say.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// What so many of a thousand samples do not exceed, rounded up by a class; zero without
    /// samples.
    pub(super) fn permille(&self, permille: u32) -> Duration {
        let wanted = u64::from(self.total) * u64::from(permille.min(1000));
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count) * 1000;
            if seen >= wanted && seen > 0 {
                return end_of(class);
            }
        }
        Duration::ZERO
    }
}

fn class_of(latency: Duration) -> usize {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1 << EXPONENT_MIN);
    let exponent = nanos.ilog2();
    if exponent >= EXPONENT_MAX {
        return CLASSES - 1;
    }
    let step = (nanos >> (exponent - STEPS.ilog2())) % u64::from(STEPS);
    ((exponent - EXPONENT_MIN) * STEPS) as usize + usize::try_from(step).unwrap_or(0)
}

/// The longest latency of a class.
fn end_of(class: usize) -> Duration {
    let class = u32::try_from(class).unwrap_or(0);
    let (exponent, step) = (EXPONENT_MIN + class / STEPS, u64::from(class % STEPS));
    Duration::from_nanos((u64::from(STEPS) + step + 1) << (exponent - STEPS.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_class_and_old_samples_are_forgotten() {
        let mut latencies = Latencies::new(1000);
        assert_eq!(latencies.permille(500), Duration::ZERO);
        for micros in 1..=1000 {
            latencies.add(Duration::from_micros(micros));
        }
        for (permille, micros) in [(500, 500), (950, 950), (990, 990), (1000, 1000)] {
            let (found, wanted) = (latencies.permille(permille), Duration::from_micros(micros));
            assert!(found >= wanted && found <= wanted.mul_f64(1.07), "{permille}: {found:?}");
        }
        for _ in 0..10_000 {
            latencies.add(Duration::from_millis(20));
        }
        assert!(
            latencies.permille(10) >= Duration::from_millis(20) && latencies.total() <= 2000,
            "{latencies:?}"
        );
    }

    #[test]
    fn latencies_of_every_length_have_a_class() {
        for nanos in (0..64).map(|bit| 1_u64 << bit).chain([0, u64::MAX]) {
            let class = class_of(Duration::from_nanos(nanos));
            assert!(class < CLASSES);
            if (1 << EXPONENT_MIN..1 << EXPONENT_MAX).contains(&nanos) {
                assert!(
                    end_of(class) > Duration::from_nanos(nanos)
                        && end_of(class) <= Duration::from_nanos(nanos).mul_f64(1.07)
                );
            }
        }
    }
}
