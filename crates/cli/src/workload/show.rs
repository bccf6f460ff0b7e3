//! What a trace says: as text, as a page, as what caches would miss.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tombolo_format::trace::Asked;
use tombolo_lab::analysis::{Analysis, Bounds, KeyspaceAnalysis, SampledKey};
use tombolo_lab::caches::CacheSimulation;
use tombolo_lab::comparison::compare as compared;
use tombolo_lab::report::{self as pages, Report, shown};
use tombolo_workload::cache::Policy;
use tombolo_workload::fit::fit_sizes;
use tombolo_workload::sketch::Counts;

use super::files::{TraceArguments, create, walk};
use super::load::{analysed, analysed_model, read_model};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Arguments of `analyse`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo bench --benchmarks fillrandom,mixgraph --num 100000 --record my.trace
  tombolo workload analyse my.trace
  tombolo workload report my.trace --out my.html")]
pub struct AnalyseArguments {
    #[command(flatten)]
    trace: TraceArguments,
    #[command(flatten)]
    bounds: BoundsArguments,
}

/// How much memory is taken.
#[derive(Args, Clone, Copy, Debug)]
pub struct BoundsArguments {
    /// Keys that are followed one by one; of more, a sample by hash.
    #[arg(long, value_name = "N", default_value_t = Bounds::default().sampled_keys_max,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(16..=100_000_000))]
    keys: usize,
}

impl BoundsArguments {
    fn bounds(self) -> Bounds {
        Bounds { sampled_keys_max: self.keys, ..Bounds::default() }
    }
}

fn counts_json(counts: &Counts) -> Value {
    let fitted = fit_sizes(counts);
    json!({
        "count": counts.count(), "mean": counts.mean(), "deviation": counts.deviation(),
        "min": counts.least(),
        "p50": counts.percentile(50.0), "p99": counts.percentile(99.0), "max": counts.most(),
        "fit": { "family": fitted.family.name(), "distance": fitted.distance },
    })
}

fn keyspace_json(keyspace: &KeyspaceAnalysis) -> Value {
    let operations: std::collections::BTreeMap<_, _> = Asked::ALL
        .into_iter()
        .filter(|asked| keyspace.of(*asked) > 0)
        .map(|asked| (asked.name(), keyspace.of(asked)))
        .collect();
    let correlations: std::collections::BTreeMap<_, _> = keyspace.correlations().into_iter().collect();
    json!({
        "id": keyspace.id, "name": keyspace.name, "events": keyspace.events(), "operations": operations,
        "found": keyspace.found[0], "not_found": keyspace.found[1], "distinct_keys": keyspace.distinct_keys,
        "keys_for_half_the_accesses": keyspace.hot_set(0.5),
        "accesses_of_a_key": counts_json(&keyspace.access_counts(SampledKey::accesses)),
        "key_bytes": counts_json(&keyspace.key_bytes), "value_bytes": counts_json(&keyspace.value_bytes),
        "read_bytes": counts_json(&keyspace.read_bytes), "scan_entries": counts_json(&keyspace.scan_entries),
        "correlations": correlations,
    })
}

fn analysis_json(seen: &Analysis) -> Value {
    let curve: Vec<Value> = seen.miss_ratios().iter().map(|point| json!([point.size, point.ratio])).collect();
    json!({
        "origin": seen.header.origin, "events": seen.events, "seconds": seen.seconds(),
        "backwards": seen.backwards, "sampled_keys": seen.sampled,
        "keyspaces": seen.keyspaces.iter().map(keyspace_json).collect::<Vec<_>>(),
        "miss_ratios": curve,
        "miss_ratio_error": seen.reuse.error(),
    })
}

fn counts_text(name: &str, counts: &Counts) -> String {
    let fitted = fit_sizes(counts);
    format!(
        "  {name:20} {} ± {}, p50 {}, p99 {}, max {}; {} fits, distance {:.3}\n",
        shown(counts.mean()),
        shown(counts.deviation()),
        counts.percentile(50.0),
        counts.percentile(99.0),
        counts.most(),
        fitted.family.name(),
        fitted.distance
    )
}

fn analysis_text(seen: &Analysis) -> String {
    let mut text = format!(
        "{} events in {} seconds, of {} ({} keys)\n",
        shown(seen.events as f64),
        shown(seen.seconds()),
        seen.header.origin,
        seen.header.keys.name()
    );
    if seen.sampled < 1.0 {
        text.push_str(&format!("of keys one by one: a sample of {:.2} %\n", seen.sampled * 100.0));
    }
    for keyspace in &seen.keyspaces {
        text.push_str(&format!("\n{}\n", keyspace.name));
        let whole = keyspace.events().max(1) as f64;
        for asked in Asked::ALL.into_iter().filter(|asked| keyspace.of(*asked) > 0) {
            let count = keyspace.of(asked);
            text.push_str(&format!(
                "  {:20} {count} ({:.2} %)\n",
                asked.name(),
                count as f64 * 100.0 / whole
            ));
        }
        text.push_str(&format!("  {:20} {}\n", "distinct keys", shown(keyspace.distinct_keys)));
        text.push_str(&format!(
            "  {:20} {:.2} % of the keys have half the accesses\n",
            "hot set",
            keyspace.hot_set(0.5) * 100.0
        ));
        for (name, counts) in [
            ("accesses of a key", &keyspace.access_counts(SampledKey::accesses)),
            ("bytes of keys", &keyspace.key_bytes),
            ("bytes of values", &keyspace.value_bytes),
            ("entries of scans", &keyspace.scan_entries),
        ] {
            if counts.count() > 0 {
                text.push_str(&counts_text(name, counts));
            }
        }
    }
    text.push_str("\nan LRU cache would miss\n");
    let curve = seen.miss_ratios();
    let step = curve.len().div_ceil(8).max(1);
    for point in curve.iter().filter(|point| point.size > 0).step_by(step) {
        text.push_str(&format!("  {:6.2} % with {} bytes\n", point.ratio * 100.0, shown(point.size as f64)));
    }
    text.pop();
    text
}

/// `analyse`.
pub fn analyse(arguments: &AnalyseArguments, output: &Output) -> Result<()> {
    let seen = analysed(&arguments.trace, arguments.bounds.bounds(), output)?;
    output.result(|| analysis_json(&seen), || analysis_text(&seen))
}

/// Arguments of `report`.
#[derive(Args)]
pub struct ReportArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// Another trace, or a model (.toml), to lay beside it.
    #[arg(long, value_name = "TRACE|MODEL")]
    beside: Option<PathBuf>,
    /// The page that is made.
    #[arg(long, value_name = "FILE", default_value = "workload.html")]
    out: PathBuf,
    /// A directory for each figure as CSV.
    #[arg(long, value_name = "DIRECTORY")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    bounds: BoundsArguments,
}

fn title(path: &Path) -> String {
    path.file_name().map_or_else(|| "workload".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A trace, or what a model makes, as many events as `like` has.
fn other(path: &Path, salvage: bool, bounds: Bounds, like: &Analysis, output: &Output) -> Result<Analysis> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        return analysed_model(&read_model(path)?, 1, like.events, bounds);
    }
    analysed(&TraceArguments { trace: path.to_owned(), salvage }, bounds, output)
}

/// `report`.
pub fn report(arguments: &ReportArguments, output: &Output) -> Result<()> {
    let bounds = arguments.bounds.bounds();
    let seen = analysed(&arguments.trace, bounds, output)?;
    let name = title(&arguments.trace.trace);
    let Report { html, figures } = match &arguments.beside {
        None => pages::report(&seen, &name),
        Some(path) => {
            let second = other(path, arguments.trace.salvage, bounds, &seen, output)?;
            pages::comparison((&seen, &name), (&second, &title(path)), &compared(&seen, &second))
        }
    };
    let write = |path: &Path, text: &str| {
        let failed = |error| Failure::io(error, format!("writing {}", path.display()));
        let mut file = create(path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(failed)
    };
    write(&arguments.out, &html)?;
    if let Some(directory) = &arguments.csv {
        let failed = |error| Failure::io(error, format!("making {}", directory.display()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        figures.iter().try_for_each(|(name, csv)| write(&directory.join(format!("{name}.csv")), csv))?;
    }
    output.result(
        || json!({ "page": arguments.out.display().to_string(), "figures": figures.len() }),
        || format!("{}: {} figures", arguments.out.display(), figures.len()),
    )
}

/// Arguments of `compare`.
#[derive(Args)]
pub struct CompareArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// Another trace, or a model (.toml).
    #[arg(value_name = "TRACE|MODEL")]
    other: PathBuf,
    #[command(flatten)]
    bounds: BoundsArguments,
}

/// `compare`.
pub fn compare(arguments: &CompareArguments, output: &Output) -> Result<()> {
    let bounds = arguments.bounds.bounds();
    let seen = analysed(&arguments.trace, bounds, output)?;
    let second = other(&arguments.other, arguments.trace.salvage, bounds, &seen, output)?;
    let all = compared(&seen, &second);
    let line = |one: &tombolo_lab::comparison::Compared| {
        format!("{:50} {:>12} {:>12} {:8.3}", one.what, shown(one.first), shown(one.second), one.distance)
    };
    output.result(
        || json!(all),
        || {
            let head = format!("{:50} {:>12} {:>12} {:>8}", "of", "first", "second", "distance");
            std::iter::once(head).chain(all.iter().map(line)).collect::<Vec<_>>().join("\n")
        },
    )
}

/// Arguments of `simulate-cache`.
#[derive(Args)]
pub struct CacheArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// Policies, separated by commas; all when not given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Sizes in keys or blocks, separated by commas.
    #[arg(long, value_name = "ITEMS", value_delimiter = ',', default_value = "100,1000,10000,100000",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    sizes: Vec<usize>,
    /// Counts writes as accesses, too: a cache of rows that writes go through.
    #[arg(long)]
    writes: bool,
}

/// `simulate-cache`.
pub fn simulate_cache(arguments: &CacheArguments, output: &Output) -> Result<()> {
    let known = || Policy::ALL.map(Policy::name).join(", ");
    let policies = match &arguments.policies[..] {
        [] => Policy::ALL.to_vec(),
        names => names
            .iter()
            .map(|name| {
                let unknown =
                    || Failure::Usage(format!("there is no policy {name:?}; there are {}", known()));
                Policy::from_name(name).ok_or_else(unknown)
            })
            .collect::<Result<_>>()?,
    };
    let mut simulation = CacheSimulation::new(&policies, &arguments.sizes, arguments.writes);
    walk(&arguments.trace, output, |_, event| {
        simulation.add(event);
        Ok(())
    })?;
    let all = simulation.finish();
    output.result(
        || {
            let one = |one: &tombolo_lab::caches::Simulated| {
                json!({ "policy": one.policy.name(), "items": one.items_max, "accesses": one.accesses,
                    "misses": one.misses, "miss_ratio": one.miss_ratio() })
            };
            json!(all.iter().map(one).collect::<Vec<_>>())
        },
        || {
            let mut text = format!("{:12}", "misses, %");
            arguments.sizes.iter().for_each(|size| text.push_str(&format!(" {size:>10}")));
            for policy in &policies {
                text.push_str(&format!("\n{:12}", policy.name()));
                for one in all.iter().filter(|one| one.policy == *policy) {
                    text.push_str(&format!(" {:>10.2}", one.miss_ratio() * 100.0));
                }
            }
            text
        },
    )
}
