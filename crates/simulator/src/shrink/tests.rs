use tombolo_env::simulated::tape;

use super::*;
use crate::random::Random;

/// An account: paid into, drawn from by others who are seeded by the first one's chance, closed. It
/// must not be overdrawn, nor closed twice.
fn account(seed: u64) -> Result<Report, Failure> {
    let failed = |what: String| Err(Failure::new("account", seed, String::new(), what));
    let mut random = Random::new(seed, 1);
    let (mut balance, mut closed) = (0_i64, 0);
    for _ in 0..200 {
        match random.below(10) {
            0..4 => {}
            4..7 => balance += i64::try_from(random.below(60)).unwrap_or(0),
            7..9 => {
                let mut other = Random::new(random.next(), 2);
                for _ in 0..other.below(6) {
                    let drawn = other.below(60);
                    tape::note(|| format!("{drawn} are drawn"));
                    balance -= i64::try_from(drawn).unwrap_or(0);
                }
            }
            _ => closed += u64::from(random.percent(5)),
        }
        if balance < -40 {
            return failed(format!("overdrawn by {}", -balance));
        }
        if closed > 1 {
            return failed("closed twice".to_owned());
        }
    }
    Ok(Report::default())
}

const ACCOUNT: Scenario = Scenario { name: "account", purpose: "", runs: 1, runs_whole: None, run: account };

/// Seeds of failures of both kinds.
fn seeds(class: &str) -> Vec<u64> {
    (0..400)
        .filter(|seed| account(*seed).is_err_and(|failure| failure.what.starts_with(class)))
        .take(5)
        .collect()
}

#[test]
fn what_is_left_is_what_matters() {
    for seed in seeds("overdrawn") {
        let Shrunk { failure, choices, choices_found, .. } =
            shrink(&ACCOUNT, seed, Bounds::default()).unwrap();
        assert_eq!(failure.what, "overdrawn by 41", "seed {seed}");
        assert_eq!(failure.steps, ["41 are drawn"], "seed {seed}");
        // Each drawer comes, draws once, and that much.
        assert_eq!(choices, 3, "seed {seed}: {}", failure.tape.unwrap());
        assert!(choices_found > 3);
    }
}

#[test]
fn a_history_that_fails_otherwise_is_not_the_same() {
    let seeds = seeds("closed");
    assert!(!seeds.is_empty());
    for seed in seeds {
        let shrunk = shrink(&ACCOUNT, seed, Bounds::default()).unwrap();
        assert_eq!(shrunk.failure.what, "closed twice");
        assert_eq!(shrunk.choices, 4, "two closings, each of two choices");
    }
}

#[test]
fn what_was_shrunk_is_played_again_from_its_text() {
    let seed = seeds("overdrawn")[0];
    let shrunk = shrink(&ACCOUNT, seed, Bounds::default()).unwrap().failure;
    let text = shrunk.tape.as_ref().unwrap().to_string();
    assert!(shrunk.replay().ends_with(&format!("--scenario account --seed {seed} --tape '{text}'")));
    let again = replay(&ACCOUNT, seed, &text.parse().unwrap()).unwrap_err();
    assert_eq!((again.what, again.steps), (shrunk.what, shrunk.steps));
}

#[test]
fn shrinking_is_deterministic_and_bounded() {
    let seed = seeds("overdrawn")[1];
    let text = |bounds| {
        shrink(&ACCOUNT, seed, bounds).map(|shrunk| (shrunk.runs, shrunk.failure.tape.unwrap().to_string()))
    };
    assert_eq!(text(Bounds::default()), text(Bounds::default()));
    let (runs, _) = text(Bounds { runs: 7, ..Bounds::default() }).unwrap();
    assert!(runs <= 8);
    // A bound that is reached leaves a history that fails.
    let few = shrink(&ACCOUNT, seed, Bounds { runs: 7, ..Bounds::default() }).unwrap();
    assert!(replay(&ACCOUNT, seed, &few.failure.tape.unwrap()).is_err());
    let (runs, _) = text(Bounds { choices: 900, ..Bounds::default() }).unwrap();
    assert!(runs < 40, "{runs}");
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let seed = (0..400).find(|seed| account(*seed).is_ok()).unwrap();
    assert!(shrink(&ACCOUNT, seed, Bounds::default()).is_none());
}
