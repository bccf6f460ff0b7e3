//! How far the defaults are from the best settings: a random search over what a user may set, at
//! equal memory and compression.
//!
//! ```text
//! search:   default, candidate, default, candidate, …   each with the default run beside it
//! confirm:  default, best, default, best, …             rounds of their own: the best of many noisy runs looks better than it is
//! ```
//!
//! A run's score is the geometric mean, over the benchmarks, of its rate by that of the default
//! beside it. The verdict is the median of the confirming rounds with its bootstrap interval: the
//! defaults hold when not all of it lies beyond the bound.

mod settings;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use self::settings::Candidate;
use crate::peers::statistics::{Spread, spread_with_interval};

/// Options of `tune`.
#[derive(Args)]
pub struct Arguments {
    /// Random candidates of the search.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1000))]
    candidates: u32,
    /// Rounds that confirm the best of them; fewer than 5 give no interval.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(5..=100))]
    rounds: u32,
    /// Keys of the database in the search; the rounds that confirm have up to a quarter more, so
    /// that each load ends elsewhere.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    num: u64,
    /// Memory of each, equal for all.
    #[arg(long, default_value_t = 256 << 20)]
    memory_bytes: u64,
    /// What counts, in this order; each as much as the others.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillrandom,overwrite,wait,readrandom,readmissing,seekrandom,readseq,ycsb-a,ycsb-b"
    )]
    benchmarks: Vec<String>,
    /// How much better the best may be than the defaults, in percent.
    #[arg(long, default_value_t = 10.0)]
    allowed_percent: f64,
    /// Of the candidates and of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the databases are made; a temporary directory when not given.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Keeps every run's settings and score as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A candidate with its score by the default beside it.
struct Scored {
    candidate: Candidate,
    /// (benchmark, rate by the default's).
    ratios: Vec<(String, f64)>,
    score: f64,
}

/// Searches, confirms, and says how far the defaults are from the best.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let mut searched = Vec::new();
    for nth in 1..=arguments.candidates {
        let candidate = Candidate::draw(&mut random, arguments.memory_bytes);
        let scored = pair(root, arguments, &candidate, arguments.num, nth % 2 == 0)?;
        eprintln!(
            "candidate {nth} of {}: {:.3} of the default with {candidate}",
            arguments.candidates, scored.score
        );
        searched.push(scored);
    }
    let best = searched
        .iter()
        .max_by(|one, other| one.score.total_cmp(&other.score))
        .ok_or("no candidate was run")?
        .candidate
        .clone();
    let mut confirmed = Vec::new();
    for round in 1..=arguments.rounds {
        let num = keys_of_round(arguments.num, round, arguments.rounds);
        let scored = pair(root, arguments, &best, num, round % 2 == 0)?;
        eprintln!(
            "round {round} of {}, {num} keys: {:.3} of the default with {best}",
            arguments.rounds, scored.score
        );
        confirmed.push(scored);
    }
    let scores: Vec<f64> = confirmed.iter().map(|scored| scored.score).collect();
    let found = spread_with_interval(&scores).ok_or("no round gave a score")?;
    if let Some(path) = &arguments.json {
        let record = |scored: &Scored, phase: &str| {
            json!({
                "phase": phase, "settings": scored.candidate.to_string(), "score": scored.score,
                "ratios": scored.ratios
            })
        };
        let all: Vec<Value> = searched
            .iter()
            .map(|scored| record(scored, "search"))
            .chain(confirmed.iter().map(|scored| record(scored, "confirm")))
            .collect();
        let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    print(&best, &confirmed, &found);
    verdict(&found, arguments.allowed_percent)
}

/// Keys of a round, from `num` to a quarter more, evenly. How many runs a load leaves depends on
/// where it ends, by more than the settings are apart: 6 % more keys have turned 1.14 into 0.87.
fn keys_of_round(num: u64, round: u32, rounds: u32) -> u64 {
    num + num / 4 * u64::from(round - 1) / u64::from((rounds - 1).max(1))
}

/// Fails when the best is better than allowed, with all of its interval.
fn verdict(found: &Spread, allowed_percent: f64) -> Result<(), String> {
    let allowed = 1.0 + allowed_percent / 100.0;
    let low = found.interval.map_or(found.least, |(low, _)| low);
    if low <= allowed {
        return Ok(());
    }
    Err(format!(
        "the defaults are more than {allowed_percent} % from the best settings found: {low:.3} at least; \
        look at what they have in common"
    ))
}

fn print(best: &Candidate, confirmed: &[Scored], found: &Spread) {
    println!(
        "| best settings found against the defaults | ratio (median of {} rounds) | least to most |",
        confirmed.len()
    );
    println!("|---|---|---|");
    let names: Vec<&String> = confirmed
        .first()
        .map(|scored| scored.ratios.iter().map(|(name, _)| name).collect())
        .unwrap_or_default();
    for (place, name) in names.iter().enumerate() {
        let ratios: Vec<f64> =
            confirmed.iter().filter_map(|scored| scored.ratios.get(place).map(|(_, ratio)| *ratio)).collect();
        if let Some(Spread { median, least, most, .. }) = spread_with_interval(&ratios) {
            println!("| {name} | {median:.3} | {least:.3} to {most:.3} |");
        }
    }
    let interval = found.interval.map_or_else(String::new, |(low, high)| {
        format!("; 95 % interval of the median {low:.3} to {high:.3}")
    });
    println!("| geometric mean{interval} | {:.3} | {:.3} to {:.3} |", found.median, found.least, found.most);
    println!();
    println!("best settings: {best}");
}

/// A candidate and the default beside it, either first.
fn pair(
    root: &Path,
    arguments: &Arguments,
    candidate: &Candidate,
    num: u64,
    default_first: bool,
) -> Result<Scored, String> {
    let default = Candidate::default();
    let (rates, default_rates) = if default_first {
        let first = rates(root, arguments, &default, num)?;
        (rates(root, arguments, candidate, num)?, first)
    } else {
        (rates(root, arguments, candidate, num)?, rates(root, arguments, &default, num)?)
    };
    if !rates.iter().map(|(name, _)| name).eq(default_rates.iter().map(|(name, _)| name)) {
        return Err(format!("a benchmark gave no rate with {candidate}, or with the defaults"));
    }
    let ratios: Vec<(String, f64)> = rates
        .into_iter()
        .zip(default_rates)
        .map(|((name, mine), (_, default))| (name, mine / default))
        .collect();
    let score = geometric_mean(ratios.iter().map(|(_, ratio)| *ratio));
    if score.is_finite() {
        Ok(Scored { candidate: candidate.clone(), ratios, score })
    } else {
        Err(format!("a rate of zero with {candidate}"))
    }
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    f64::exp(sum / count)
}

/// The rates of one run in a fresh database, by benchmark, in order.
fn rates(
    root: &Path,
    arguments: &Arguments,
    candidate: &Candidate,
    num: u64,
) -> Result<Vec<(String, f64)>, String> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "tombolo-cli",
            "--",
            "bench",
            "--json",
            "-",
            "--key-size",
            "20",
        ])
        .args([
            "--benchmarks",
            &arguments.benchmarks.join(","),
            "--num",
            &num.to_string(),
            "--seed",
            &arguments.seed.to_string(),
        ])
        .args(["--setting", &format!("memory_bytes={}", arguments.memory_bytes)])
        .args(candidate.arguments())
        .current_dir(root);
    let directory = arguments.directory.as_ref().map(|directory| directory.join("tune"));
    if let Some(directory) = &directory {
        command.args(["--store", &format!("file://{}", directory.display())]);
    }
    let output = command.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "bench with {candidate} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    if let Some(directory) = &directory {
        std::fs::remove_dir_all(directory)
            .map_err(|error| format!("removing {}: {error}", directory.display()))?;
    }
    let rows: Vec<Value> =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("bench printed no JSON: {error}"))?;
    let rate = |row: &Value| {
        Some((
            row["benchmark"].as_str()?.to_owned(),
            row["operations_per_second"].as_f64().filter(|rate| *rate > 0.0)?,
        ))
    };
    let rates: Vec<_> = rows.iter().filter_map(rate).collect();
    if rates.is_empty() { Err("bench printed no rate".to_owned()) } else { Ok(rates) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_same_whichever_benchmark_gained() {
        assert!((geometric_mean([2.0, 0.5].into_iter()) - 1.0).abs() < 1e-9);
        assert!((geometric_mean([4.0, 1.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!(!geometric_mean([0.0, 1.0].into_iter()).is_normal());
    }

    #[test]
    fn each_round_has_other_keys() {
        assert_eq!(
            (1..=5).map(|round| keys_of_round(1000, round, 5)).collect::<Vec<_>>(),
            [1000, 1062, 1125, 1187, 1250]
        );
    }

    #[test]
    fn defaults_fail_only_when_the_whole_interval_is_beyond() {
        let found = |low: f64, high: f64| Spread {
            median: f64::midpoint(low, high),
            least: low,
            most: high,
            interval: Some((low, high)),
        };
        assert!(verdict(&found(0.9, 1.05), 10.0).is_ok());
        assert!(verdict(&found(1.05, 1.3), 10.0).is_ok(), "it may as well be noise");
        assert!(verdict(&found(1.11, 1.3), 10.0).is_err());
    }
}
