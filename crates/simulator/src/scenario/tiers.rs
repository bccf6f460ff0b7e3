//! A database whose old data goes to a second store, which fails, is slow and is away, while its
//! writers take it from each other, and are paused and killed anywhere.
//!
//! Checked: what writers find is one state that holds all that was acknowledged, wherever it lies;
//! a store that is away is an error that says so, and never a hole; in the end nothing is damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind, KeyspaceOptions, Options, Registry, TakeOver, Uri};
use tombolo_env::simulated::{Crash, Process};
use tombolo_storage::ObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};

use super::chain::Writers;
use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "tiers";
const HOT: &str = "file:///hot";
const COLD: &str = "file:///cold";
const WRITERS: usize = 2;
/// A writer rests up to an hour now and then.
const HOUR: Duration = Duration::from_secs(3600);
/// Short, so that much of a small database goes cold.
const AGE: Duration = Duration::from_secs(300);

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut report = Report::default();
    let out = &mut report;
    let told = guarded(NAME, seed, String::new, mix(seed, 39), |run| act(run, seed, out))?;
    let Report { writes, durable, opened, cold_tables, .. } = report;
    Ok(Report { writes, durable, opened, cold_tables, ..told })
}

/// Stores, of which the cold one has these faults; behind them the tables are counted that are
/// begun there.
fn registry(plan: &FaultPlan, begun: &Arc<AtomicU64>) -> Registry {
    let (whole, plan) = (Registry::with_defaults(), plan.clone());
    let (counting, begun) = (FaultPlan::scripted(), Arc::clone(begun));
    let counts = move |asked: &Asked<'_>| {
        let is_table = asked.kind == RequestKind::Create && asked.name.contains("/table/");
        begun.fetch_add(u64::from(is_table), Ordering::Relaxed);
        false
    };
    counting.inject(Rule::new(counts, Fault::Error(ErrorKind::Bug)));
    let mut registry = whole.clone();
    let factory = move |env: &Env, uri: &Uri| {
        let store = whole.open_object_store(env, uri)?;
        let is_cold = uri.rest.starts_with("/cold");
        if !is_cold {
            return Ok(store);
        }
        let counted = Arc::new(FaultObjectStore::new(env, store, counting.clone()));
        Ok(Arc::new(FaultObjectStore::new(env, counted, plan.clone())) as Arc<dyn ObjectStore>)
    };
    registry.register_object_store("file", Arc::new(factory));
    registry
}

fn act(run: &Run, seed: u64, report: &mut Report) -> Result<(), Violation> {
    let mut random = Random::new(seed, 9);
    run.world.set_preemption_probability([0.0, 0.01][random.index(2)]);
    let plan = FaultPlan::scripted();
    let cold_tables = Arc::<AtomicU64>::default();
    let registry = registry(&plan, &cold_tables);
    let open = move |process: &Process| {
        let options = Options { memory_bytes: 1 << 20, memtable_bytes: Some(4 << 10), ..Options::default() };
        Db::builder(HOT)
            .registry(registry.clone())
            .env(process.env())
            .options(options)
            .take_over(TakeOver::Always)
            .cold_store(COLD)
    };
    let options = KeyspaceOptions { cold_after: Some(AGE), ..KeyspaceOptions::default() };
    let writers = Writers::new(options, HOUR, open);
    writers.make(&run.world.process("first"))?;
    let process = |random: &mut Random| writers.start(&run.world, random);
    let mut cast: Vec<Process> = (0..WRITERS).map(|_| process(&mut random)).collect();
    for _ in 0..16 {
        run.world.run_for(Duration::from_secs(random.below(1500)));
        if writers.is_violated() {
            break;
        }
        let nth = random.index(WRITERS);
        match random.below(20) {
            0..=1 => cast[nth].pause(),
            2..=5 => cast.iter().for_each(Process::resume),
            6..=8 => {
                cast[nth].kill();
                cast[nth] = process(&mut random);
            }
            9 => {
                run.crash(&cast, Crash::PowerLoss);
                cast = (0..WRITERS).map(|_| process(&mut random)).collect();
            }
            10..=12 => plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied))),
            13 => plan.inject(Rule::new(|_| true, Fault::Delay(Duration::from_secs(5)))),
            14 => plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)).times(20)),
            _ => plan.clear(),
        }
    }
    plan.clear();
    cast.iter().for_each(Process::resume);
    run.world.run_for(Duration::from_secs(30));
    let finished = writers.finish(run, &cast, &run.world.process("last"));
    *report = Report { cold_tables: cold_tables.load(Ordering::Relaxed), ..writers.report() };
    finished
}
