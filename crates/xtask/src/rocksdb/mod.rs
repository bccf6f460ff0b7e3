//! Stock RocksDB on our stores: its own benchmark, its tools, its stress test and its tests of file
//! systems, with the plugin.
//!
//! `packages → plugin → on each place: benchmarks, kills, a fight for the lock, a takeover → RocksDB
//! from the source that the crates bundle, built once: its stress test with kills, and its tests`.
//! Anything lost or wrong ends the run with an error.

mod build;
mod places;
mod site;
mod source;
mod stress;
mod takeover;
mod work;

use std::path::Path;

use clap::{Args, ValueEnum};

use places::Place;
use site::Site;

/// Options of `rocksdb`.
#[derive(Args)]
pub struct Arguments {
    /// Entries of each benchmark.
    #[arg(long, default_value_t = 20_000)]
    entries: u64,
    /// How often a writer is killed.
    #[arg(long, default_value_t = 5)]
    kills: u64,
    /// Where the files lie: in each place that can be had here when not given. May be given several
    /// times.
    #[arg(long = "on", value_enum, conflicts_with = "store")]
    places: Vec<Place>,
    /// URI of a store in place of those.
    #[arg(long)]
    store: Option<String>,
    /// URI of the log of that store; its own without it.
    #[arg(long, requires = "store")]
    log: Option<String>,
    /// Only these steps; all when not given. May be given several times.
    #[arg(long = "stage", value_enum)]
    stages: Vec<Stage>,
    /// How long writers fight for one store, in seconds; at least two rounds are fought.
    #[arg(long, default_value_t = 10)]
    fight_seconds: u64,
    /// Megabytes of a database that another process takes over. May be given several times.
    #[arg(long = "takeover-mb", default_value = "100")]
    takeover_mb: Vec<u64>,
    /// How long RocksDB's stress test runs on each place, in seconds.
    #[arg(long, default_value_t = 60)]
    stress_seconds: u64,
    /// Builds the plugin optimised.
    #[arg(long)]
    release: bool,
    /// Builds it with the stores s3://, gs:// and az://, which a bucket asks for anyway.
    #[arg(long)]
    cloud: bool,
}

/// The steps, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// db_bench, and what ldb and sst_dump say of the result.
    Benchmarks,
    /// Writers that are killed.
    Kills,
    /// Writers that fence each other.
    Fight,
    /// The time from a kill to the first write of another host.
    Takeover,
    /// db_stress with db_crashtest.py, built from source.
    Stress,
    /// RocksDB's own tests that take a file system, built from source.
    Tests,
}

impl Arguments {
    fn wants(&self, stage: Stage) -> bool {
        self.stages.is_empty() || self.stages.contains(&stage)
    }

    fn places(&self) -> Vec<Place> {
        if self.places.is_empty() { Place::value_variants().to_vec() } else { self.places.clone() }
    }

    fn needs_cloud(&self) -> bool {
        self.cloud || (self.store.is_none() && self.places().contains(&Place::Bucket))
    }
}

/// Builds the plugin, and runs RocksDB's programs on it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let missing = build::missing_after_install();
    if !missing.is_empty() {
        println!("skipped: {} cannot be had here; install them with apt-get", missing.join(" and "));
        return Ok(());
    }
    let place = std::env::temp_dir().join(format!("tombolo-rocksdb-{}", std::process::id()));
    let ran = steps(root, &place, arguments);
    if ran.is_ok() {
        let _gone = std::fs::remove_dir_all(&place);
        println!("rocksdb: nothing lost, nothing wrong");
    } else {
        println!("what was there stays: {}", place.display());
    }
    ran
}

fn steps(root: &Path, directory: &Path, arguments: &Arguments) -> Result<(), String> {
    let (debian, newest) = (wants_installed(arguments), wants_source(arguments));
    let installed = if debian { Some(build::plugin(root, directory, arguments, None)?) } else { None };
    let source = if newest { source::build(root)? } else { None };
    let of_source = match &source {
        Some(source) => Some(build::plugin(root, directory, arguments, Some(&source.include()))?),
        None => None,
    };
    let mut sites = Vec::new();
    if let Some(store) = &arguments.store {
        sites.push(Site::named(directory, store, arguments.log.as_deref()));
    } else {
        for place in arguments.places() {
            match Site::on(root, directory, place) {
                Ok(site) => sites.push(site),
                Err(why) => println!("{place}: skipped: {why}"),
            }
        }
    }
    for site in &sites {
        println!("{}", site.name());
        if let Some(plugin) = &installed {
            on_installed(&site.with(plugin), arguments)?;
        }
        if let (Some(source), Some(plugin)) = (&source, &of_source) {
            on_source(&site.with(plugin), source, arguments)?;
        }
    }
    Ok(())
}

fn wants_installed(arguments: &Arguments) -> bool {
    [Stage::Benchmarks, Stage::Kills, Stage::Fight, Stage::Takeover]
        .iter()
        .any(|stage| arguments.wants(*stage))
}

fn wants_source(arguments: &Arguments) -> bool {
    arguments.wants(Stage::Stress) || arguments.wants(Stage::Tests)
}

/// What RocksDB as it is installed is shown with.
fn on_installed(site: &site::Loaded<'_>, arguments: &Arguments) -> Result<(), String> {
    if arguments.wants(Stage::Benchmarks) {
        work::benchmarks(site, arguments.entries)?;
    }
    if arguments.wants(Stage::Kills) {
        for round in 0..arguments.kills {
            work::killed(site, round)?;
        }
    }
    if arguments.wants(Stage::Fight) {
        work::refused(site)?;
        work::fight(site, std::time::Duration::from_secs(arguments.fight_seconds))?;
    }
    if arguments.wants(Stage::Takeover) {
        for megabytes in &arguments.takeover_mb {
            takeover::run(site, *megabytes)?;
        }
    }
    Ok(())
}

/// What RocksDB of the source that the crates bundle is shown with.
fn on_source(site: &site::Loaded<'_>, source: &source::Source, arguments: &Arguments) -> Result<(), String> {
    if arguments.wants(Stage::Stress) {
        stress::crash_test(site, source, arguments.stress_seconds)?;
    }
    if arguments.wants(Stage::Tests) {
        stress::tests(site, source)?;
    }
    Ok(())
}
