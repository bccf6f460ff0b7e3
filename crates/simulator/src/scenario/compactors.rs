//! Writers who take a database from each other, and workers on other hosts that compact it: all of
//! them paused, resumed and killed anywhere, the network between them slow, cut and reset.
//!
//! Checked: what writers find is one state that holds all that was acknowledged, by whom
//! it was compacted, and in the end nothing is damaged.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    CompactionPlace, CompactionWorker, Db, Error, KeyspaceOptions, MemoryBudget, Options, Registry, TakeOver,
};
use tombolo_compactor::{Compactor, CompactorOptions, Found, Workers};
use tombolo_env::simulated::Process;
use tombolo_storage::{ObjectStore, Uri};

use super::chain::Writers;
use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "compactors";
const PLACE: &str = "mem://database";
const HOSTS: usize = 2;
const WRITERS: usize = 2;

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut report = Report::default();
    let out = &mut report;
    let told = guarded(NAME, seed, String::new, mix(seed, 38), |run| act(run, seed, out))?;
    Ok(Report { writes: report.writes, durable: report.durable, opened: report.opened, ..told })
}

struct Worker {
    process: Process,
    _compactor: Option<Compactor>,
}

fn serve(process: &Process, objects: &Arc<dyn ObjectStore>, listen: String) -> Worker {
    let (env, objects) = (process.env(), Arc::clone(objects));
    let compactor = process.run(async move {
        let budget = MemoryBudget::new(8 << 20)?;
        let worker = CompactionWorker::new(&env, Registry::with_defaults(), &budget).store(PLACE, objects);
        let options = CompactorOptions { listen, credentials: None, jobs_max: 2, connections_max: 16 };
        Compactor::start(&env, worker, options).await
    });
    Worker { process: process.clone(), _compactor: compactor.and_then(Result::ok) }
}

fn unopened(error: &Error) -> Violation {
    Violation::new(error.to_string())
}

fn act(run: &Run, seed: u64, report: &mut Report) -> Result<(), Violation> {
    let mut random = Random::new(seed, 8);
    // Nobody is preempted: the stores are of one process for all, which would let the others go on
    // in the midst of what a writer has locked.
    run.world.set_preemption_probability(0.0);
    let store = run.world.process("store");
    let (registry, uri) = (Registry::with_defaults(), Uri::parse(PLACE).map_err(|error| unopened(&error))?);
    let objects = registry.open_object_store(&store.env(), &uri).map_err(|error| unopened(&error))?;
    let log =
        registry.open_log_store(&store.env(), &uri, None, &objects).map_err(|error| unopened(&error))?;
    let hosts: Vec<_> = (0..HOSTS).map(|nth| run.world.add_host(&format!("worker{nth}"))).collect();
    let addresses: Vec<String> = (0..HOSTS).map(|nth| format!("worker{nth}:7430")).collect();
    let place = if random.percent(50) { CompactionPlace::Remote } else { CompactionPlace::RemoteOrLocal };
    let (shared, at) = (Arc::clone(&objects), addresses.clone());
    let open = move |process: &Process| {
        let found = Found::At(at.clone());
        let workers = Workers::new(&process.env(), found, None, Some(PLACE.into()));
        let options = Options {
            memory_bytes: 1 << 20,
            memtable_bytes: Some(4 << 10),
            compaction: place,
            ..Options::default()
        };
        Db::builder(PLACE)
            .env(process.env())
            .stores(Arc::clone(&shared), Arc::clone(&log))
            .options(options)
            .take_over(TakeOver::Always)
            .compaction_workers(Arc::new(workers))
    };
    let mut workers: Vec<Worker> = hosts
        .iter()
        .zip(&addresses)
        .map(|(host, address)| serve(&host.process("worker"), &objects, address.clone()))
        .collect();
    let writers = Writers::new(KeyspaceOptions::default(), Duration::from_secs(2), open);
    writers.make(&run.world.process("first"))?;
    let process = |random: &mut Random| writers.start(&run.world, random);
    let mut cast: Vec<Process> = (0..WRITERS).map(|_| process(&mut random)).collect();
    let home = run.world.host(0);
    // Short histories among the long ones: those of the check.
    let steps = if seed.is_multiple_of(4) { 6 } else { 20 };
    for _ in 0..steps {
        run.world.run_for(Duration::from_millis(random.below(4_000)));
        if writers.is_violated() {
            break;
        }
        let (nth, far) = (random.index(WRITERS), random.index(HOSTS));
        match random.below(20) {
            0..=1 => cast[nth].pause(),
            2..=4 => cast.iter().for_each(Process::resume),
            5..=6 => {
                cast[nth].kill();
                cast[nth] = process(&mut random);
            }
            7..=9 => workers[far].process.pause(),
            10..=12 => workers.iter().for_each(|worker| worker.process.resume()),
            13..=14 => {
                workers[far].process.kill();
                workers[far] = serve(&hosts[far].process("worker"), &objects, addresses[far].clone());
            }
            15 => run.world.partition(&home, &hosts[far]),
            16..=17 => hosts.iter().for_each(|host| run.world.heal(&home, host)),
            18 => run.world.reset_connections(&home, &hosts[far]),
            _ => {
                let max = Duration::from_millis(1 + random.below(200));
                run.world.set_network_delay(Duration::ZERO, max);
            }
        }
    }
    hosts.iter().for_each(|host| run.world.heal(&home, host));
    workers.iter().for_each(|worker| worker.process.resume());
    cast.iter().for_each(Process::resume);
    run.world.run_for(Duration::from_secs(15));
    let finished = writers.finish(run, &cast, &run.world.process("last"));
    *report = writers.report();
    finished
}
