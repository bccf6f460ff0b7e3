//! Where the keys of a range lie: neighbours of like hotness in runs, and the runs mixed.

use tombolo_format::checksum::mix64;

/// A mapping of ranks to places, each `0..count`, every one once: runs of so many ranks stay beside
/// each other, and the runs are mixed. Keys behind the last whole run stay at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    run: u64,
    /// Whole runs.
    runs: u64,
    step: u64,
    /// `step · back = 1` modulo `runs`.
    back: u64,
    offset: u64,
}

impl Placement {
    pub(super) fn new(count: u64, run: u64, seed: u64) -> Placement {
        let run = run.max(1);
        let runs = (count / run).max(1);
        // A walk by a step that has no factor in common with the number of runs.
        let mut step = (mix64(seed) % runs) | 1;
        let back = loop {
            match inverse(step % runs, runs) {
                Some(back) => break back,
                None => step += 2,
            }
        };
        Placement { run, runs, step: step % runs, back, offset: mix64(seed ^ 1) % runs }
    }

    /// The place of a rank.
    pub(super) fn place(&self, rank: u64) -> u64 {
        let (run, within) = (rank / self.run, rank % self.run);
        if run >= self.runs {
            return rank;
        }
        let moved =
            (u128::from(run) * u128::from(self.step) + u128::from(self.offset)) % u128::from(self.runs);
        u64::try_from(moved).unwrap_or(0) * self.run + within
    }

    /// The rank at a place.
    pub(super) fn rank(&self, place: u64) -> u64 {
        let (moved, within) = (place / self.run, place % self.run);
        if moved >= self.runs {
            return place;
        }
        let before = u128::from(moved + self.runs - self.offset);
        let run = before * u128::from(self.back) % u128::from(self.runs);
        u64::try_from(run).unwrap_or(0) * self.run + within
    }
}

/// The number whose product with `number` is 1 modulo `modulus`, if there is one.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    if modulus == 1 {
        return Some(0);
    }
    let (mut rests, mut factors) = ((i128::from(modulus), i128::from(number)), (0_i128, 1_i128));
    while rests.1 != 0 {
        let quotient = rests.0 / rests.1;
        rests = (rests.1, rests.0 - quotient * rests.1);
        factors = (factors.1, factors.0 - quotient * factors.1);
    }
    (rests.0 == 1).then(|| u64::try_from(factors.0.rem_euclid(i128::from(modulus))).unwrap_or(0))
}
