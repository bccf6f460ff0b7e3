//! Runs one benchmark: threads, a clock, a progress bar, and a look at the memory now and then.

use std::cell::RefCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tombolo_workload::Target;
use tombolo_workload::bench::{Benchmark, Outcome, Plan, Shared, Work, Worker, work};

use super::engine::Engine;
use super::report::Row;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::machine::{self, Memory};
use crate::text;

/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(20);

/// What the watcher sees while threads work.
struct Watch<'a> {
    bar: ProgressBar,
    duration: Option<Duration>,
    interrupted: &'a AtomicBool,
    begun: Instant,
    peak: Memory,
}

impl<'a> Watch<'a> {
    fn new(plan: &Plan, benchmark: Benchmark, watched: bool, interrupted: &'a AtomicBool) -> Watch<'a> {
        let total = plan.duration.map_or(plan.operations(benchmark), |duration| {
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
        });
        let bar = match (watched, benchmark.is_threaded()) {
            (false, _) => ProgressBar::hidden(),
            (true, true) => ProgressBar::new(total),
            (true, false) => ProgressBar::new_spinner(),
        };
        let template = if benchmark.is_threaded() {
            "{prefix:18} {wide_bar} {msg}"
        } else {
            "{prefix:18} {spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(benchmark.name);
        Watch { bar, duration: plan.duration, interrupted, begun: Instant::now(), peak: Memory::default() }
    }

    fn look(&mut self, operations: u64) {
        let memory = Memory::look();
        self.peak.own_bytes = self.peak.own_bytes.max(memory.own_bytes);
        self.peak.mapped_bytes = self.peak.mapped_bytes.max(memory.mapped_bytes);
        if self.bar.is_hidden() {
            return;
        }
        let elapsed = self.begun.elapsed();
        let position = if self.duration.is_some() {
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        } else {
            operations
        };
        self.bar.set_position(position);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        let rate = (operations as f64 / elapsed.as_secs_f64().max(1e-3)) as u64;
        let memory = text::bytes(memory.own_bytes);
        let text =
            if operations > 0 { format!("{} operations/s, {memory}", text::count(rate)) } else { memory };
        self.bar.set_message(text);
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Runs `benchmark` on `engine`.
///
/// # Errors
/// `Interrupted`; what the benchmark failed with as a whole. Failed operations are in the row.
pub fn run(
    engine: &Engine,
    plan: &Plan,
    benchmark: Benchmark,
    watched: bool,
    interrupted: &AtomicBool,
) -> Result<Row> {
    engine.count_requests(!benchmark.is_reading() || benchmark.work == Work::ReadWhileWriting);
    let put_before = engine.put_bytes();
    let (cpu_before, written_before) = (machine::cpu_time(), machine::written_bytes());
    let mut watch = Watch::new(plan, benchmark, watched, interrupted);
    let (outcome, background) = if benchmark.is_threaded() {
        threads(engine, plan, benchmark, &mut watch)
    } else {
        (once(engine, benchmark, &mut watch), None)
    };
    watch.look(outcome.operations);
    watch.bar.finish_and_clear();
    let put = engine
        .put_bytes()
        .into_iter()
        .zip(put_before)
        .map(|((name, after), (_, before))| (name, after - before))
        .collect();
    let row = Row {
        benchmark,
        threads: if benchmark.is_threaded() { plan.threads } else { 1 },
        cpu: machine::cpu_time().saturating_sub(cpu_before),
        written_bytes: machine::written_bytes().saturating_sub(written_before),
        put_bytes: put,
        peak: watch.peak,
        table_bytes: engine.stats().table_bytes,
        text: (benchmark.work == Work::Stats).then(|| engine.statistics()),
        outcome,
        background,
    };
    if watch.is_interrupted() { Err(Failure::Interrupted) } else { Ok(row) }
}

/// On so many threads as the plan says, and on one more for a background writer.
fn threads(
    engine: &Engine,
    plan: &Plan,
    benchmark: Benchmark,
    watch: &mut Watch<'_>,
) -> (Outcome, Option<Outcome>) {
    let workers = work(plan, benchmark);
    let (shared, start, epoch) =
        (Shared::new(plan.threads).sleeping(std::thread::sleep), Barrier::new(workers.len()), Instant::now());
    let clock = || epoch.elapsed();
    let one = |worker: Worker| {
        start.wait();
        (worker.is_background(), worker.run(engine, &shared, &clock))
    };
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || one(worker))).collect();
        while running.iter().any(|thread| !thread.is_finished()) {
            watch.look(shared.operations());
            if watch.is_interrupted() {
                shared.stop();
            }
            std::thread::sleep(LOOK);
        }
        let (mut outcome, mut background) = (Outcome::default(), None);
        for thread in running {
            match thread.join() {
                Ok((false, done)) => outcome.merge(done),
                Ok((true, done)) => background = Some(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (outcome, background)
    })
}

/// One call that is no loop.
fn once(engine: &Engine, benchmark: Benchmark, watch: &mut Watch<'_>) -> Outcome {
    let begun = Instant::now();
    let interrupted = watch.interrupted;
    let looking = RefCell::new(watch);
    let look = || looking.borrow_mut().look(0);
    let result = match benchmark.work {
        Work::Compact => interrupt::wait(engine.begin_compaction(), interrupted, look)
            .map_err(|failure| failure.to_string()),
        Work::Flush => {
            interrupt::wait(engine.begin_flush(), interrupted, look).map_err(|failure| failure.to_string())
        }
        Work::Wait => {
            let go_on = || {
                look();
                !interrupted.load(Ordering::Relaxed)
            };
            engine.settle(&go_on).map_err(|error| error.message)
        }
        _ => Ok(()),
    };
    let mut outcome =
        Outcome { operations: 1, sampled_every: 1, ended: begun.elapsed(), ..Outcome::default() };
    outcome.latencies.record(outcome.ended);
    if let Err(message) = result {
        outcome = Outcome { operations: 0, errors: 1, first_error: Some(message), ..outcome };
    }
    outcome
}
