//! Accepted and durable puts per second with both forms of the local log, in interleaved rounds:
//! what a form gains is told from what the machine does meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

const FORMS: [&str; 2] = ["mapped", "written"];

/// Options of `puts`.
#[derive(Args)]
pub struct Puts {
    /// A directory on the disk to be measured; it must not exist, and is removed afterwards.
    #[arg(long)]
    directory: PathBuf,
    /// Rounds; each runs every form once, the first one in turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Numbers of writing threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8")]
    threads: Vec<u32>,
    /// Keys of the accepted fill; of the durable one a hundredth.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
}

/// What one kind of put came to, in all rounds.
#[derive(Default)]
struct Measured {
    operations_per_second: Vec<f64>,
    micros_p50: Vec<f64>,
    micros_p99: Vec<f64>,
    cpu_micros: Vec<f64>,
    bytes_written: Vec<f64>,
}

/// Runs the rounds and prints medians.
pub fn run(root: &Path, arguments: &Puts) -> Result<(), String> {
    let Puts { directory, rounds, threads, num } = arguments;
    if directory.exists() {
        return Err(format!("{} exists: name a directory that does not", directory.display()));
    }
    if *rounds == 0 {
        return Err("--rounds 0 measures nothing".to_owned());
    }
    std::fs::create_dir_all(directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
    let directory =
        directory.canonicalize().map_err(|error| format!("looking at {}: {error}", directory.display()))?;
    let measured = rounds_in(root, &directory, *rounds, threads, *num);
    std::fs::remove_dir_all(&directory)
        .map_err(|error| format!("removing {}: {error}", directory.display()))?;
    print(&measured?);
    Ok(())
}

type Key = (&'static str, u32, &'static str);

fn rounds_in(
    root: &Path,
    directory: &Path,
    rounds: u32,
    threads: &[u32],
    num: u64,
) -> Result<BTreeMap<Key, Measured>, String> {
    let mut measured: BTreeMap<Key, Measured> = BTreeMap::new();
    for round in 0..rounds {
        for &threads in threads {
            for nth in 0..FORMS.len() {
                let form = FORMS[(nth + round as usize) % FORMS.len()];
                for (kind, benchmark, num) in
                    [("accepted", "fillrandom", num), ("durable", "fillsync", num.saturating_mul(10))]
                {
                    eprintln!("round {} of {rounds}: {kind}, {form}, {threads} threads", round + 1);
                    let result = bench(root, &directory.join("database"), form, benchmark, num, threads)?;
                    measured.entry((kind, threads, form)).or_default().add(&result)?;
                }
            }
        }
    }
    Ok(measured)
}

/// One run in a fresh database.
fn bench(
    root: &Path,
    database: &Path,
    form: &str,
    benchmark: &str,
    num: u64,
    threads: u32,
) -> Result<Value, String> {
    let store = format!("file://{}?form={form}", database.display());
    let output = Command::new(env!("CARGO"))
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
            "--store",
            &store,
        ])
        .args(["--benchmarks", benchmark, "--num", &num.to_string(), "--threads", &threads.to_string()])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{benchmark} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    std::fs::remove_dir_all(database).map_err(|error| format!("removing {}: {error}", database.display()))?;
    let results: Vec<Value> = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{benchmark} printed no JSON: {error}"))?;
    results.into_iter().next().ok_or_else(|| format!("{benchmark} printed no result"))
}

impl Measured {
    fn add(&mut self, result: &Value) -> Result<(), String> {
        let number = |name: &str| {
            result[name].as_f64().ok_or_else(|| format!("the result has no number {name}: {result}"))
        };
        let operations = number("operations")?;
        self.operations_per_second.push(number("operations_per_second")?);
        self.micros_p50.push(number("micros_p50")?);
        self.micros_p99.push(number("micros_p99")?);
        self.cpu_micros.push(number("cpu_micros_per_operation")?);
        self.bytes_written.push(number("bytes_written")? / operations.max(1.0));
        Ok(())
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (low + high) / 2.0
}

fn print(measured: &BTreeMap<Key, Measured>) {
    println!(
        "| puts of 16 + 100 B, medians | form | operations/s (least to most) | p50 µs | p99 µs | CPU µs | \
        device bytes |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((kind, threads, form), of) in measured {
        let rates = &of.operations_per_second;
        let (least, most) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
        println!(
            "| {kind}, {threads} threads | {form} | {:.0} ({least:.0} to {most:.0}) | {:.1} | {:.1} | {:.2} \
            | {:.0} |",
            median(rates),
            median(&of.micros_p50),
            median(&of.micros_p99),
            median(&of.cpu_micros),
            median(&of.bytes_written),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
    }
}
