//! `cargo xtask peers`: Tombolo and its peers on the same work in one run.
//!
//! `rows → for each round, scene, engine: a process → records → verdicts → table, JSON, page`. The
//! engines live in `bench/peers`, a workspace of its own; this side knows none of them. Each engine
//! runs each scene of a round in a process of its own, so that memory, CPU time and bytes written
//! are its own, and its crash is a row without figures.

mod bars;
mod bucket;
pub mod child;
mod device;
pub mod machine;
mod page;
mod record;
mod rows;
pub mod statistics;
pub mod table;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::bucket::Far;
use self::child::{Ended, Limits};
use self::page::About;
use self::record::{Figures, Key, Record};
use self::rows::{ENGINES, Scene, Size};

const EXAMPLES: &str = "\
Examples:
  cargo xtask peers --engines tombolo,rocksdb --workloads readrandom,seekrandom --threads 1 --rounds 3
  cargo xtask peers --num 500000 --rounds 1 --engines tombolo,fjall --workloads fill      a first look, without RocksDB
  cargo xtask peers --rounds 5 --json peers.json --html peers.html                        all of it, for figures to publish
  cargo xtask peers --engines tombolo,rocksdb --workloads merge,getmerged,deleterange,fillbig,ingest   operations beside put and get
  cargo xtask peers --list                                                                rows, steps and bars; measures nothing
  cargo xtask peers --bucket --rounds 5 --json bucket.json --html bucket.html             Tombolo and SlateDB in a bucket far away
  cargo xtask peers --read peers.json --html peers.html                                   draws a run again

Building RocksDB takes 20 to 45 minutes, once: everything built is kept in ~/.cache/tombolo-peers, outside the repository, or in --built. It needs a C++
compiler, clang's library and liburing; `bench/peers/prepare` installs them on Debian. Without rocksdb among --engines none of that is needed.

Each engine gets the same memory (896 MiB of blocks, two memtables of 64 MiB), LZ4, blocks of 8 KiB, 10 filter bits, checksums on, and accepted
writes unless a row says durable; what that means in each is printed. A quiet machine matters more than many rounds: its load is printed too.

With --bucket Tombolo and SlateDB (its defaults, and tuned) lie on a real server of S3, versitygw as `cargo xtask real` builds it, behind a proxy that
gives every request of both the latency of a store of the cloud. Caches and memtables are equal, each row says in its steps how large.";

/// Options of `peers`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Engines, separated by commas; all that take part when not given. RocksDB with everything
    /// equal, and as its guides recommend.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(ENGINES))]
    engines: Vec<String>,
    /// Workloads, separated by commas, each a name or how names begin (`ycsb`, `fill`); all when
    /// not given. `--list` shows them.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Shapes, separated by commas (`accepted`, `settled`, `natural`, `compacted`, …); all when not
    /// given.
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<String>,
    /// Threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Rounds, each of which runs every engine once; 5 or more for figures to publish.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keys of 20 bytes with values of 100, in a bucket of 400; 2,000,000, and in a bucket 300,000,
    /// when not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    num: Option<u64>,
    /// Seconds of each read.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Writes all records as a list of objects to this file, after each round.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the result into this file: one page that needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measures nothing: judges and draws the records of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    read: Option<PathBuf>,
    /// The rows of databases in a bucket, in place of those on this machine's disk.
    #[arg(long)]
    bucket: bool,
    /// Of a bucket, how long requests take: `s3`, `cluster`, or parts as in p50_us:740,p99_us:2000.
    #[arg(long, default_value = "s3", requires = "bucket")]
    latency: String,
    /// Prints the rows, their bars and the steps that measure them.
    #[arg(long)]
    list: bool,
    /// Where the databases are made, each removed when its process ends; a directory of the cache
    /// when not given.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// The directory of the build.
    #[arg(long, value_name = "DIRECTORY")]
    built: Option<PathBuf>,
    /// Longest step, in seconds: a process that takes longer is ended and told as failed.
    #[arg(long, default_value_t = 900)]
    step_seconds: u64,
}

impl Arguments {
    fn wants(&self, key: &Key) -> bool {
        let named = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| name.starts_with(wanted.as_str()))
        };
        named(&self.workloads, &key.workload) && (self.shapes.is_empty() || self.shapes.contains(&key.shape))
    }

    /// Keys.
    fn num(&self) -> u64 {
        self.num.unwrap_or(if self.bucket { bucket::NUM } else { 2_000_000 })
    }

    /// The engines that take part.
    fn engines(&self) -> Result<Vec<String>, String> {
        let able = if self.bucket { bucket::ENGINES } else { ENGINES };
        if let Some(unable) = self.engines.iter().find(|engine| !able.contains(&engine.as_str())) {
            return Err(format!("{unable} keeps no database in a bucket; {} do", able.join(", ")));
        }
        let all = if self.bucket { bucket::ENGINES } else { rows::LOCAL };
        Ok(if self.engines.is_empty() {
            all.iter().map(|engine| (*engine).to_owned()).collect()
        } else {
            self.engines.clone()
        })
    }

    fn scenes(&self) -> Result<Vec<Scene>, String> {
        let size = Size { num: self.num(), seconds: self.seconds, threads: self.threads.clone() };
        let of = if self.bucket { bucket::scenes } else { rows::scenes };
        let scenes = of(&size, &|key| self.wants(key));
        if scenes.is_empty() {
            return Err("no row is left: `cargo xtask peers --list` shows the names of workloads and shapes"
                .to_owned());
        }
        Ok(scenes)
    }
}

/// Measures, or lists, or draws again.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        return list(&arguments.scenes()?);
    }
    let mut about = About { rounds: arguments.rounds, ..About::default() };
    if let Some(path) = &arguments.read {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let records: Vec<Record> =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        about.rounds = records.iter().map(|record| record.round).max().unwrap_or(0);
        about.line = format!("{} records of an earlier run.", records.len());
        about.versions =
            records.iter().map(|record| (record.engine.clone(), record.version.clone())).collect();
        return show(arguments, &about, &records);
    }
    let (scenes, engines) = (arguments.scenes()?, arguments.engines()?);
    let cache = cache()?;
    let built = arguments.built.as_ref().map_or_else(|| Ok(cache.join("target")), std::path::absolute);
    let built = built.map_err(|error| format!("--built: {error}"))?;
    let binary = build(root, &built, &engines, arguments.bucket)?;
    let far = arguments.bucket.then(|| Far::start(&binary, &arguments.latency)).transpose()?;
    about.versions = machine::versions(root)?;
    let machine = machine::describe();
    let rows: usize = scenes
        .iter()
        .flat_map(|scene| &scene.steps)
        .map(|step| usize::from(step.row.is_some()) + usize::from(step.settled.is_some()))
        .sum();
    about.line = format!(
        "{} keys of 20 B with values of {} B, compressible by half{}; {rows} rows, {} round{}. {machine}.",
        table::short(f64::from(u32::try_from(arguments.num()).unwrap_or(u32::MAX))),
        if arguments.bucket { bucket::VALUE_BYTES } else { 100 },
        if arguments.bucket {
            format!(", in a bucket of versitygw behind latencies of {}", arguments.latency)
        } else {
            String::new()
        },
        arguments.rounds,
        if arguments.rounds == 1 { "" } else { "s, interleaved" }
    );
    println!("{}\nload {:.2} at the start", about.line, machine::load());
    let directory = arguments.directory.clone().unwrap_or_else(|| cache.join("data"));
    let run = Run {
        arguments,
        engines,
        binary,
        far,
        directory: directory.join(format!("run-{}", std::process::id())),
        versions: about.versions.clone(),
    };
    let measured = run.rounds(&scenes);
    let removed = child::remove(&run.directory);
    let (records, settings) = measured?;
    removed?;
    about.facts = facts(&machine, &settings, arguments);
    println!();
    for (name, text) in &about.facts {
        println!("{name:<14} {text}");
    }
    println!();
    show(arguments, &about, &records)
}

fn list(scenes: &[Scene]) -> Result<(), String> {
    let mut text = String::new();
    for scene in scenes {
        let of = if scene.engines.is_empty() {
            String::new()
        } else {
            format!(" ({} only)", scene.engines.join(", "))
        };
        text += &format!("{}{of}\n", scene.name);
        for step in &scene.steps {
            text += &format!("    {}\n", step.text);
            for key in [&step.row, &step.settled].into_iter().flatten() {
                let bar = bars::bar(key).map_or_else(String::new, |bar| {
                    let rocksdb =
                        bar.rocksdb.map_or_else(String::new, |least| format!("{least} x RocksDB, "));
                    format!(": {:?}, bar {rocksdb}{} x the best LSM peer", bar.measure, bar.peer)
                        .to_lowercase()
                });
                text += &format!("        {} {} x{}{bar}\n", key.workload, key.shape, key.threads);
            }
        }
    }
    // A reader that has seen enough is no failure.
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("printing the rows: {error}")),
        _ => Ok(()),
    }
}

/// Where everything built is kept.
pub fn cache() -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(base.ok_or("neither XDG_CACHE_HOME nor HOME says where a cache may be")?.join("tombolo-peers"))
}

/// Builds the program with the engines that are asked for, and no others.
pub fn build(root: &Path, target: &Path, engines: &[String], is_remote: bool) -> Result<PathBuf, String> {
    let mut features: Vec<&str> = engines
        .iter()
        .map(|engine| engine.trim_end_matches("-tuned"))
        .filter(|engine| *engine != "tombolo")
        .collect();
    features.extend(is_remote.then_some("cloud"));
    features.dedup();
    let features = features.join(",");
    eprintln!(
        "$ cargo build --release --no-default-features --features {features:?}    (in bench/peers, into {})",
        target.display()
    );
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--no-default-features", "--features", &features])
        .current_dir(root.join("bench/peers"))
        .env("CARGO_TARGET_DIR", target)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() {
        Ok(target.join("release/tombolo-peers"))
    } else {
        Err("bench/peers does not build; RocksDB needs what `bench/peers/prepare` installs, the others need \
            nothing"
            .to_owned())
    }
}

fn facts(machine: &str, settings: &BTreeMap<String, String>, arguments: &Arguments) -> Vec<(String, String)> {
    let mut facts = vec![("machine".to_owned(), machine.to_owned())];
    let words: Vec<String> = std::env::args().skip(1).collect();
    facts.push(("command".to_owned(), format!("cargo xtask {}", words.join(" "))));
    facts.push((
        "built".to_owned(),
        "release, thin LTO, for this processor (target-cpu=native, -march=native), the system's allocator, \
        checksums on"
            .to_owned(),
    ));
    let rounds = format!(
        "each engine once in each of {} rounds, in turn; each scene in a process of its own; seeds are the \
        rounds' numbers",
        arguments.rounds
    );
    facts.push(("rounds".to_owned(), rounds));
    facts.extend(settings.iter().map(|(engine, text)| (engine.clone(), text.clone())));
    facts
}

fn show(arguments: &Arguments, about: &About, records: &[Record]) -> Result<(), String> {
    let verdicts = verdict::judge(records);
    let engines: Vec<String> = ENGINES
        .iter()
        .filter(|engine| records.iter().any(|record| record.engine == **engine))
        .map(|engine| (*engine).to_owned())
        .collect();
    println!(
        "{}\n{}\n{}",
        table::rates(&verdicts, &engines),
        table::space(&verdicts),
        table::costs(&verdicts, records, &engines)
    );
    let failures = table::failures(records);
    if !failures.is_empty() {
        println!("failed:\n{failures}");
    }
    let odd = verdict::disagreements(records);
    if !odd.is_empty() {
        println!(
            "found something else than the others (wrong answers, or writes that were cut off):\n{}",
            odd.join("\n")
        );
    }
    if let Some(path) = &arguments.html {
        fs::write(path, page::page(about, &engines, records, &verdicts))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        println!("drawn in {}", path.display());
    }
    Ok(())
}

/// A run.
struct Run<'a> {
    arguments: &'a Arguments,
    engines: Vec<String>,
    binary: PathBuf,
    /// Where databases of a bucket lie.
    far: Option<Far>,
    /// Of this run alone.
    directory: PathBuf,
    versions: BTreeMap<String, String>,
}

impl Run<'_> {
    /// All rounds: the records, and what each engine said that it set.
    fn rounds(&self, scenes: &[Scene]) -> Result<(Vec<Record>, BTreeMap<String, String>), String> {
        let runs = |scene: &Scene, engine: &str| scene.engines.is_empty() || scene.engines.contains(&engine);
        let each: Vec<(&Scene, &String)> = scenes
            .iter()
            .flat_map(|scene| self.engines.iter().map(move |engine| (scene, engine)))
            .filter(|(scene, engine)| runs(scene, engine))
            .collect();
        let bar = ProgressBar::new(each.len() as u64 * u64::from(self.arguments.rounds));
        if let Ok(style) =
            ProgressStyle::with_template("{elapsed_precise} {bar:24} {pos}/{len} {wide_msg} {eta} left")
        {
            bar.set_style(style);
        }
        let watched = std::io::stderr().is_terminal();
        let (mut records, mut settings) = (Vec::new(), BTreeMap::new());
        for round in 1..=self.arguments.rounds {
            for (scene, engine) in &each {
                let (begun, load) = (Instant::now(), machine::load());
                let ended = self.process(scene, engine, round, &bar)?;
                if let Some(text) = &ended.settings {
                    settings.entry((*engine).clone()).or_insert_with(|| text.clone());
                }
                if !watched {
                    let failed = ended
                        .failure
                        .as_ref()
                        .map_or_else(String::new, |reason| format!(": failed, {reason}"));
                    eprintln!(
                        "round {round}: {} on {engine}, {:.0} s, load {load:.1}{failed}",
                        scene.name,
                        begun.elapsed().as_secs_f64()
                    );
                }
                let collected = collect(scene, engine, self.versions.get(*engine), round, load, &ended);
                records.extend(device::records(
                    &self.directory.join("device"),
                    &collected,
                    self.arguments.seconds,
                ));
                records.extend(collected);
                bar.inc(1);
            }
            if let Some(path) = &self.arguments.json {
                let text = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())?;
                fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        bar.finish_and_clear();
        Ok((records, settings))
    }

    fn process(&self, scene: &Scene, engine: &str, round: u32, bar: &ProgressBar) -> Result<Ended, String> {
        fs::create_dir_all(&self.directory)
            .map_err(|error| format!("{}: {error}", self.directory.display()))?;
        let database = self.directory.join(engine);
        child::remove(&database)?;
        let mut command = Command::new(&self.binary);
        command
            .arg(engine)
            .arg(&database)
            .arg(format!("num={}", self.arguments.num()))
            .arg(format!("seed={round}"));
        if let Some(far) = &self.far {
            far.remove(engine)?;
            far.tell(&mut command, engine);
        }
        command.arg("--");
        command.args(scene.steps.iter().map(|step| &step.text));
        let limits = Limits {
            silence: Duration::from_secs(120),
            step: Duration::from_secs(self.arguments.step_seconds),
        };
        let ended = child::run(command, limits, |step, operations| {
            let text = scene.steps.get(step).map_or("", |step| step.text.as_str());
            let done = if operations > 0 {
                format!(", {}", table::short(f64::from(u32::try_from(operations).unwrap_or(u32::MAX))))
            } else {
                String::new()
            };
            bar.set_message(format!("round {round}, {}, {engine}: {text}{done}", scene.name));
        });
        if let Some(far) = &self.far {
            far.remove(engine)?;
        }
        child::remove(&database)?;
        Ok(ended)
    }
}

/// The records of a process: figures of the steps that ended, and why there are none of the others.
fn collect(
    scene: &Scene,
    engine: &str,
    version: Option<&String>,
    round: u32,
    load: f64,
    ended: &Ended,
) -> Vec<Record> {
    let mut records = Vec::new();
    for (number, step) in scene.steps.iter().enumerate() {
        let line = ended.done.iter().find(|(done, _)| *done == number).map(|(_, line)| line);
        for (key, settled) in [(&step.row, false), (&step.settled, true)] {
            let Some(key) = key else { continue };
            let told =
                line.ok_or_else(|| ended.failure.clone().unwrap_or_else(|| "it did not say".to_owned()));
            let (figures, failure) = match told.and_then(|line| Figures::told(line, settled)) {
                Ok(figures) => (figures, None),
                Err(reason) => (Figures::default(), Some(reason)),
            };
            let version = version.cloned().unwrap_or_default();
            records.push(Record {
                engine: engine.to_owned(),
                version,
                key: key.clone(),
                round,
                load,
                failure,
                figures,
            });
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scene() -> Scene {
        let size = Size { num: 1000, seconds: 1, threads: vec![1] };
        rows::scenes(&size, &|key| {
            ["fillrandom", "readrandom"].contains(&key.workload.as_str()) && key.shape != rows::COMPACTED
        })
        .remove(0)
    }

    #[test]
    fn what_a_process_did_before_it_died_counts() {
        let scene = scene();
        let done = json!({
            "operations": 10, "operations_per_second": 5.0, "seconds": 2.0, "seconds_settled": 5.0,
            "operations_per_second_settled": 2.0,
        });
        let write = scene.steps.iter().position(|step| step.settled.is_some()).unwrap();
        let ended =
            Ended { done: vec![(write, done)], settings: None, failure: Some("signal: 11".to_owned()) };
        let records = collect(&scene, "rocksdb", None, 2, 0.5, &ended);
        let rates: Vec<_> = records
            .iter()
            .map(|record| (record.key.shape.as_str(), record.figures.operations_per_second))
            .collect();
        assert_eq!(rates, [("accepted", 5.0), ("settled", 2.0), ("natural", 0.0)]);
        assert_eq!(records[2].failure.as_deref(), Some("signal: 11"));
        assert!(records[..2].iter().all(|record| record.failure.is_none() && record.round == 2));
    }
}
