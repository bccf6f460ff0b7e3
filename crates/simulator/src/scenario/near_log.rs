//! The whole engine on a near-compute log: processes of one host that take one database from each other, paused and killed anywhere, and nodes of other
//! hosts that are cut off, paused, killed and started again.
//!
//! One node, by seed, loses its memory as often as chance wants: no configuration names two regions of it, so that no log loses more than its failure
//! model allows, whoever is alive. The other nodes keep theirs. One seed in eight is about nodes that are all started again ([`rolling`]).

mod rolling;
mod takeovers;

use std::time::Duration;

use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Host, Process};
use tombolo_segment::node::{CONNECTIONS_MAX, Node, NodeOptions};

use self::takeovers::Takeovers;
use super::two_writers::{Contest, stall, start};
use super::{Run, guarded, mix};
use crate::client::{Form, Setup};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "near-log";

/// Bytes that a node lends.
const NODE_BYTES: u64 = 256 << 20;

/// A host with a node on it.
struct Neighbour {
    host: Host,
    node: Process,
    is_cut: bool,
}

impl Neighbour {
    fn start(host: Host) -> Neighbour {
        let node = host.process("node");
        let env = node.env();
        let serve = async move {
            let options = NodeOptions {
                listen: format!("0.0.0.0:{}", Form::NODE_PORT),
                bytes_max: NODE_BYTES,
                domain: "a rack".into(),
                credentials: None,
                connections_max: CONNECTIONS_MAX,
                disk: None,
                share: None,
                rdma: None,
            };
            // Until the process ends.
            let _node = Node::start(&env, options).await;
            std::future::pending::<()>().await;
        };
        node.spawn(TaskClass::Foreground, "a node", serve).detach();
        Neighbour { host, node, is_cut: false }
    }
}

/// Something happens to a node.
fn trouble(run: &Run, neighbours: &mut [Neighbour], victim: usize, random: &mut Random) {
    let nth = random.index(neighbours.len());
    let writers = run.world.host(0);
    let neighbour = &mut neighbours[nth];
    match random.below(10) {
        0..3 if !neighbour.is_cut => {
            neighbour.is_cut = true;
            match random.below(3) {
                0 => run.world.partition(&writers, &neighbour.host),
                1 => run.world.partition_one_way(&writers, &neighbour.host),
                _ => run.world.partition_one_way(&neighbour.host, &writers),
            }
        }
        3..5 => run.world.reset_connections(&writers, &neighbour.host),
        5 => neighbour.node.pause(),
        6..8 => {
            neighbours[victim].node.kill();
            neighbours[victim] = Neighbour::start(neighbours[victim].host.clone());
        }
        _ => heal(run, neighbours),
    }
}

fn heal(run: &Run, neighbours: &mut [Neighbour]) {
    for neighbour in neighbours {
        neighbour.node.resume();
        run.world.heal(&run.world.host(0), &neighbour.host);
        neighbour.is_cut = false;
    }
}

/// Half of the contests are about a log that outgrows its memory, so that segments become objects.
fn contest(run: &Run, random: &mut Random) -> Contest {
    let mut contest = Contest::new(run, Setup::small(Form::Near));
    if random.percent(50) {
        contest.setup.memtable_bytes = 256 << 10;
        contest.large_percent = 25;
    }
    contest
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let takeovers = Takeovers::default();
    let report = tracing::subscriber::with_default(takeovers.clone(), || judged(seed))?;
    let (regions_kept, regions_copied) = takeovers.regions();
    Ok(Report { regions_kept, regions_copied, ..report })
}

fn judged(seed: u64) -> Result<Report, Failure> {
    guarded(
        NAME,
        seed,
        || "nodes over the network".to_owned(),
        mix(seed, 17),
        |run| {
            let mut random = Random::new(seed, 18);
            run.world.set_preemption_probability([0.01, 0.05, 0.2][random.index(3)]);
            if seed % 8 == 5 { rolling::run(run, &mut random) } else { compete(run, &mut random) }
        },
    )
}

fn compete(run: &Run, random: &mut Random) -> Result<(), Violation> {
    let mut neighbours: Vec<Neighbour> = Form::NODES.iter().map(|name| Neighbour::start(run.world.add_host(name))).collect();
    let victim = random.index(neighbours.len());
    let contest = contest(run, random);
    let mut started = 1 + random.below(2);
    let mut processes: Vec<Process> = (0..started).map(|number| start(run, &contest, number, random)).collect();
    for _ in 0..40 {
        run.world.run_for(Duration::from_micros(random.below(60_000)));
        if contest.violation.lock().is_some() {
            break;
        }
        let nth = random.index(processes.len());
        match random.below(20) {
            0..=2 => processes[nth].pause(),
            3..=6 => processes.iter().for_each(Process::resume),
            7 => stall(&processes[nth], random),
            8..=9 => {
                processes[nth].kill();
                processes[nth] = start(run, &contest, started, random);
                started += 1;
            }
            10..=16 => trouble(run, &mut neighbours, victim, random),
            // Long enough that a lost region is missed and replaced.
            17 if random.percent(40) => run.world.run_for(Duration::from_millis(random.below(2500))),
            _ => {}
        }
    }
    heal(run, &mut neighbours);
    processes.iter().for_each(Process::resume);
    run.world.run_for(Duration::from_millis(500));
    *contest.over.lock() = true;
    run.world.run_for(Duration::from_secs(5));
    if let Some(violation) = contest.violation.lock().take() {
        return Err(violation);
    }
    run.crash(&processes, Crash::Kill);
    run.life(&run.world.process("last"), &contest.setup, Vec::new(), true, "opening after the contest")?;
    run.verify(&contest.setup)
}
