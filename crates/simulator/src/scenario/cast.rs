//! Processes that do the same, and what befalls them.

use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};

use super::Run;
use crate::failure::Violation;
use crate::random::Random;

/// Some processes, of which each is replaced when it dies.
pub(super) struct Cast<'a, F> {
    run: &'a Run,
    processes: Vec<Process>,
    started: u64,
    /// What one does.
    live: F,
}

impl<'a, F, L> Cast<'a, F>
where
    F: Fn(Process, Random) -> L,
    L: Future<Output = ()> + Send + 'static,
{
    /// So many.
    pub(super) fn new(run: &'a Run, random: &mut Random, count: usize, live: F) -> Cast<'a, F> {
        let mut cast = Cast { run, processes: Vec::new(), started: 0, live };
        (0..count).for_each(|nth| cast.start(random, nth));
        cast
    }

    fn start(&mut self, random: &mut Random, nth: usize) {
        let process = self.run.world.process(&format!("process {}", self.started));
        let life = (self.live)(process.clone(), Random::new(random.next(), 5));
        process.spawn(TaskClass::Foreground, "live", life).detach();
        self.started += 1;
        match self.processes.get_mut(nth) {
            Some(place) => *place = process,
            None => self.processes.push(process),
        }
    }

    /// Something befalls one of them, or all. `lease` is how long one stands still until others do
    /// without it; `stalled` is the one whose requests stall, where only one's may.
    pub(super) fn befall(&mut self, random: &mut Random, lease: Duration, stalled: Option<usize>) {
        let nth = random.index(self.processes.len());
        match random.below(20) {
            0..=3 => self.processes[nth].pause(),
            4 => {
                self.processes[nth].pause();
                self.run.world.run_for(lease);
            }
            5..=9 => self.processes.iter().for_each(Process::resume),
            10..=15 => {
                let process = &self.processes[stalled.unwrap_or(nth)];
                let number = process.operations() + 1 + random.below(100);
                process.stall_at(number, Duration::from_millis(1 + random.below(15_000)));
            }
            16..=18 => {
                self.processes[nth].kill();
                self.start(random, nth);
            }
            _ => {
                self.run.crash(&self.processes, Crash::PowerLoss);
                (0..self.processes.len()).for_each(|nth| self.start(random, nth));
            }
        }
    }

    /// All go on a while, are told that it is over, and end.
    ///
    /// # Errors
    /// The violation that one of them found.
    pub(super) fn end(
        self,
        over: &Mutex<bool>,
        violation: &Mutex<Option<Violation>>,
    ) -> Result<(), Violation> {
        self.processes.iter().for_each(Process::resume);
        self.run.world.run_for(Duration::from_secs(5));
        *over.lock() = true;
        self.run.world.run_for(Duration::from_secs(20));
        if let Some(violation) = violation.lock().take() {
            return Err(violation);
        }
        self.run.crash(&self.processes, Crash::Kill);
        Ok(())
    }
}
