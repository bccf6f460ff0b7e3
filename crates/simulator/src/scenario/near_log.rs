//! The whole engine on a near-compute log: processes that take one database from each other, paused
//! and killed anywhere, and nodes of other hosts that are cut off, paused, killed and started
//! again, that drain, lend less, and lose what they hold ([`neighbours`](super::neighbours)).
//!
//! The writers are on one host, with the database on its disk, or on several, with the database in
//! a store that all reach and that has bad days. Clocks jump. In one seed of three the nodes are on
//! the writers' host, and share their memory with them. One seed in eight is about nodes that are
//! all started again under a writer that lives ([`rolling`]).
//!
//! Checked beside what the oracle knows: when all is well again every writer comes to its end
//! within a stated time.

mod rolling;
mod takeovers;

use std::time::Duration;

use tombolo_env::simulated::{Crash, Host, Process};

use self::takeovers::Takeovers;
use super::two_writers::{Contest, stall, start};
use super::{Run, guarded, mix, site};
use crate::client::{Form, Setup, SharedStore};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "near-log";

/// Within that every writer has come to the end of what it was at, once all is well: an opening may
/// take a minute.
const END: Duration = Duration::from_secs(90);

/// Half of the contests are about a log that outgrows its memory, so that segments become objects.
fn contest(run: &Run, form: Form, store: Option<SharedStore>, random: &mut Random) -> Contest {
    let setup = Setup { store, ..Setup::small(form) };
    let mut contest = Contest::new(run, setup);
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
    let form = if seed % 3 == 1 { Form::NearShared } else { Form::Near };
    guarded(
        NAME,
        seed,
        || format!("log: {}", form.name()),
        mix(seed, 17),
        |run| {
            let mut random = Random::new(seed, 18);
            run.world.set_preemption_probability([0.01, 0.05, 0.2][random.index(3)]);
            if seed % 8 == 5 { rolling::run(run, form, &mut random) } else { compete(run, form, &mut random) }
        },
    )
}

/// Who writes, where, and to what.
struct Writers<'a> {
    run: &'a Run,
    contest: Contest,
    hosts: Vec<Host>,
    processes: Vec<Process>,
    started: u64,
}

impl Writers<'_> {
    fn start(&mut self, random: &mut Random) -> Process {
        let host = &self.hosts[random.index(self.hosts.len())];
        self.started += 1;
        start(host, &self.contest, self.started - 1, random)
    }

    /// Something happens to a writer.
    fn trouble(&mut self, random: &mut Random) {
        let nth = random.index(self.processes.len());
        match random.below(12) {
            0..5 => self.processes.iter().for_each(Process::resume),
            5..8 => self.processes[nth].pause(),
            8 => stall(&self.processes[nth], random),
            9 => self.processes[nth].host().jump_unix_time(i64::from(random.percent(50)) * 200_000 - 100_000),
            _ => {
                self.processes[nth].kill();
                self.processes[nth] = self.start(random);
            }
        }
    }

    /// All is well: everybody comes to an end, and the last opener finds everything.
    fn end(self) -> Result<(), Violation> {
        let Writers { run, contest, processes, .. } = self;
        processes.iter().for_each(Process::resume);
        run.world.run_for(Duration::from_millis(500));
        *contest.over.lock() = true;
        let deadline = run.world.now() + END;
        while contest.is_running() && contest.violation.lock().is_none() {
            if run.world.now() > deadline {
                let violation =
                    format!("all is well for {END:?}, and {} has not come to its end", contest.who_runs());
                return Err(Violation::new(violation));
            }
            run.world.run_for(Duration::from_secs(1));
        }
        if let Some(violation) = contest.violation.lock().take() {
            return Err(violation);
        }
        run.crash(&processes, Crash::Kill);
        run.life(&run.world.process("last"), &contest.setup, Vec::new(), true, "opening after the contest")?;
        run.verify(&contest.setup)
    }
}

fn compete(run: &Run, form: Form, random: &mut Random) -> Result<(), Violation> {
    let (hosts, mut neighbours, store) = site::around(run, form, random);
    let contest = contest(run, form, store, random);
    let plan = contest.setup.store.clone();
    let mut writers = Writers { run, contest, hosts, processes: Vec::new(), started: 0 };
    for _ in 0..=random.below(2) {
        let process = writers.start(random);
        writers.processes.push(process);
    }
    for _ in 0..40 {
        run.world.run_for(Duration::from_micros(random.below(60_000)));
        if writers.contest.violation.lock().is_some() {
            break;
        }
        match random.below(20) {
            0..4 => {}
            4..10 => writers.trouble(random),
            // Long enough that a lost region is missed and replaced.
            10 if random.percent(40) => run.world.run_for(Duration::from_millis(random.below(2500))),
            _ => neighbours.trouble(run, &writers.hosts, random),
        }
    }
    neighbours.heal(run, &writers.hosts);
    if let Some(store) = plan {
        store.heal();
    }
    neighbours.return_all(run);
    writers.end()
}
