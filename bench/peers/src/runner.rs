//! Runs a script on an engine: `steps → threads, a clock, a watcher → one line of JSON each`.
//!
//! The lines go to standard output: `{"event":"settings"}` once, then for each step
//! `{"event":"begun"}`, `{"event":"progress"}` each second, and `{"event":"done"}` with its
//! figures. A line without an end means that the process died.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tombolo_storage::layer::throttle::Latency;
use tombolo_workload::bench::{Benchmark, Outcome, Plan, Shared, Work, Worker, work};
use tombolo_workload::{Distribution, Durability, Session, TargetError, ycsb};

use crate::delay::Moved;
use crate::engine::{Config, Engine, error};
use crate::measure;
use crate::script::Step;

/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(20);
/// How long the background must have been quiet to count as settled.
const QUIET: Duration = Duration::from_millis(400);
/// CPU time of the process in one look that still counts as quiet.
const CPU_QUIET: Duration = Duration::from_millis(1);
/// Longest wait for the background.
const SETTLE_MAX: Duration = Duration::from_secs(300);
/// A warm-up reads every so-many-th key: several of each block.
const WARM_STRIDE: u64 = 8;

/// What all steps have in common.
#[derive(Clone, Debug)]
pub struct Job {
    /// The database's own directory.
    pub directory: PathBuf,
    /// The database's URI in a bucket, and where requests are counted.
    pub bucket: Option<(String, String)>,
    /// How slow the directory's store is.
    pub latency: Option<Latency>,
    /// Sizes and seed.
    pub plan: Plan,
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // The listener is gone: the next look at the parent ends this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Figures that are watched while a step runs.
struct Watch {
    step: usize,
    peak_bytes: AtomicU64,
    ended: AtomicBool,
}

impl Watch {
    /// Runs `body` beside a thread that samples memory and reports progress.
    fn over<R>(
        step: usize,
        operations: &(dyn Fn() -> u64 + Sync),
        body: impl FnOnce(&Watch) -> R,
    ) -> (R, u64) {
        let watch =
            Watch { step, peak_bytes: AtomicU64::new(measure::own_bytes()), ended: AtomicBool::new(false) };
        let result = std::thread::scope(|scope| {
            scope.spawn(|| watch.run(operations));
            // Also when the body panics: the scope waits for the watcher.
            let _end = End(&watch.ended);
            body(&watch)
        });
        (result, watch.peak_bytes.into_inner())
    }

    fn run(&self, operations: &(dyn Fn() -> u64 + Sync)) {
        let (begun, mut told) = (Instant::now(), 0);
        while !self.ended.load(Ordering::Acquire) {
            self.peak_bytes.fetch_max(measure::own_bytes(), Ordering::Relaxed);
            let seconds = begun.elapsed().as_secs();
            if seconds > told {
                told = seconds;
                say(&json!({
                    "event": "progress",
                    "step": self.step,
                    "operations": operations(),
                    "seconds": seconds,
                }));
            }
            std::thread::sleep(LOOK);
        }
        self.peak_bytes.fetch_max(measure::own_bytes(), Ordering::Relaxed);
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until nothing happens in the background; returns when it last did.
fn settle<E: Engine>(engine: &E) -> Result<Instant, TargetError> {
    engine.settle(&|| true)?;
    let begun = Instant::now();
    let (mut active, mut cpu, mut written) = (begun, measure::cpu_time(), measure::written_bytes());
    while active.elapsed() < QUIET && begun.elapsed() < SETTLE_MAX {
        std::thread::sleep(LOOK);
        let (cpu_now, written_now) = (measure::cpu_time(), measure::written_bytes());
        if engine.is_busy() || cpu_now.saturating_sub(cpu) > CPU_QUIET || written_now > written {
            active = Instant::now();
        }
        (cpu, written) = (cpu_now, written_now);
    }
    Ok(active)
}

fn plan(job: &Job, number: usize, step: &Step, benchmark: Benchmark) -> Result<Plan, String> {
    let mut plan = Plan { step: number as u64, ..job.plan.clone() };
    plan.num = step.number("num", plan.num)?;
    let count = step.number("count", plan.num)?;
    let size = |number: u64| usize::try_from(number).map_err(|_| format!("{number} is too large"));
    plan.threads = size(step.number("threads", 1)?)?;
    plan.batch_size = size(step.number("batch", plan.batch_size as u64)?)?;
    plan.seek_nexts = size(step.number("nexts", plan.seek_nexts as u64)?)?;
    plan.ranges = step.number("ranges", plan.ranges)?;
    plan.range_keys = step.number("width", plan.range_keys)?;
    plan.value_bytes = size(step.number("value", plan.value_bytes as u64)?)?;
    // A batch of large values would be too large; they are written one by one.
    if plan.value_bytes > job.plan.value_bytes {
        plan.batch_size = 1;
    }
    plan.multiread_stride = step.number("stride", 0)?;
    plan.beside_rate = Some(step.number("beside", 0)?).filter(|rate| *rate > 0);
    plan.reads = count;
    let seconds = step.number("seconds", 0)?;
    // Reads run for a time, writes to a count: what they leave behind is then the same everywhere.
    if (benchmark.is_reading() || benchmark.is_mixed()) && seconds > 0 {
        plan.duration = Some(Duration::from_secs(seconds));
    }
    plan.durability = Some(match step.text("durability") {
        None | Some("accepted") => Durability::Accepted,
        Some("durable") => Durability::Durable,
        Some("unlogged") => Durability::Unlogged,
        Some(other) => return Err(format!("durability={other}: accepted, durable or unlogged")),
    });
    plan.distribution = match step.text("distribution") {
        None => None,
        Some("uniform") => Some(Distribution::Uniform),
        Some("zipfian") => Some(Distribution::Zipfian { exponent: ycsb::EXPONENT }),
        Some("latest") => Some(Distribution::Latest { exponent: ycsb::EXPONENT }),
        Some("hotspot") => Some(Distribution::Hotspot { hot_keys: 0.2, hot_accesses: 0.8 }),
        Some(other) => return Err(format!("distribution={other}: uniform, zipfian, latest or hotspot")),
    };
    plan.check().map_err(|error| error.to_string())?;
    Ok(plan)
}

/// Foreground threads, the writer beside them apart.
fn threads<E: Engine>(
    engine: &E,
    plan: &Plan,
    benchmark: Benchmark,
    shared: &Shared,
    stop_after: Option<Duration>,
) -> (Outcome, Option<Outcome>) {
    let workers = work(plan, benchmark);
    let (start, epoch) = (Barrier::new(workers.len()), Instant::now());
    let clock = || epoch.elapsed();
    let one = |worker: Worker| {
        start.wait();
        (worker.is_background(), worker.run(engine, shared, &clock))
    };
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || one(worker))).collect();
        if let Some(limit) = stop_after {
            while running.iter().any(|thread| !thread.is_finished()) {
                if epoch.elapsed() > limit {
                    shared.stop();
                }
                std::thread::sleep(LOOK / 4);
            }
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

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e9).round() / 1e3
}

/// One benchmark, and the wait for the background when the step asks for it.
fn run<E: Engine>(engine: &E, job: &Job, number: usize, step: &Step) -> Result<Value, TargetError> {
    let benchmark: Benchmark = step.name.as_deref().unwrap_or_default().parse().map_err(error)?;
    let plan = plan(job, number, step, benchmark).map_err(error)?;
    let stop_after = match step.number("seconds", 0).map_err(error)? {
        seconds if seconds > 0 && plan.duration.is_none() => Some(Duration::from_secs(seconds)),
        _ => None,
    };
    let runs_before = engine.runs();
    let (file_reads, read, moved) = (engine.file_reads(), measure::read_bytes(), requests(job)?);
    let (begun, cpu, written) = (Instant::now(), measure::cpu_time(), measure::written_bytes());
    let shared = Shared::new(plan.threads).sleeping(std::thread::sleep);
    let (measured, peak_bytes) = Watch::over(number, &|| shared.operations(), |_| {
        let (outcome, background) = threads(engine, &plan, benchmark, &shared, stop_after);
        let accepted = (measure::cpu_time(), measure::written_bytes());
        let settled = if step.is_set("settle") {
            engine.flush()?;
            Some(settle(engine)?)
        } else {
            None
        };
        Ok::<_, TargetError>((outcome, background, accepted, settled))
    });
    let (outcome, background, (cpu_accepted, written_accepted), settled) = measured?;
    // CPU and writes until settled belong to the writes that caused them.
    let (cpu_end, written_end) = match settled {
        Some(_) => (measure::cpu_time(), measure::written_bytes()),
        None => (cpu_accepted, written_accepted),
    };
    // A wrong answer ends the process: none of its figures counts.
    if let (Work::CheckMerged, Some(message)) = (benchmark.work, &outcome.first_error) {
        return Err(error(format!("a wrong answer: {message}")));
    }
    let latencies = outcome.latencies.summary();
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let (operations, cpu_micros) =
        (outcome.operations.max(1) as f64, cpu_end.saturating_sub(cpu).as_secs_f64() * 1e6);
    let mut line = json!({
        "event": "done",
        "step": number,
        "operations": outcome.operations,
        "seconds": outcome.elapsed().as_secs_f64(),
        "operations_per_second": outcome.operations_per_second(),
        "micros_p50": micros(latencies.p50),
        "micros_p99": micros(latencies.p99),
        "micros_max": micros(latencies.max),
        "cpu_micros_per_operation": cpu_micros / operations,
        "bytes_written": written_end.saturating_sub(written),
        "bytes_read": measure::read_bytes().saturating_sub(read),
        "file_reads": engine.file_reads().zip(file_reads).map(|(after, before)| after - before),
        "bytes_on_disk": measure::disk_bytes(&job.directory),
        "peak_bytes": peak_bytes,
        "found": outcome.found,
        "errors": outcome.errors,
        "first_error": outcome.first_error,
        "sorted_runs": runs_before,
    });
    if let Some(fields) = line.as_object_mut() {
        if let (Some(before), Some(after)) = (moved, requests(job)?) {
            #[allow(clippy::cast_precision_loss, reason = "a ratio")]
            let requests = (after.requests - before.requests) as f64 / operations;
            fields.insert("requests_per_operation".to_owned(), json!(requests));
            fields.insert("bytes_sent".to_owned(), json!(after.sent - before.sent));
            fields.insert("bytes_received".to_owned(), json!(after.received - before.received));
        }
        if let Some(settled) = settled {
            let seconds = (settled - begun).as_secs_f64().max(outcome.elapsed().as_secs_f64());
            fields.insert("seconds_settled".to_owned(), json!(seconds));
            fields.insert("operations_per_second_settled".to_owned(), json!(operations / seconds));
            fields.insert("sorted_runs".to_owned(), json!(engine.runs()));
        }
        if let Some(writer) = &background {
            fields.insert("writes_per_second_beside".to_owned(), json!(writer.operations_per_second()));
            let errors = outcome.errors + writer.errors;
            fields.insert("errors".to_owned(), json!(errors));
        }
    }
    Ok(line)
}

/// What went to and came from the bucket so far.
fn requests(job: &Job) -> Result<Option<Moved>, TargetError> {
    job.bucket.as_ref().map(|(_, counter)| Moved::ask(counter).map_err(error)).transpose()
}

/// Reads several keys of each block.
fn warm<E: Engine>(engine: &E, plan: &Plan, spaces: usize) -> Result<(), TargetError> {
    let (encoding, mut key) = (plan.key_encoding(), Vec::new());
    for _ in 0..spaces {
        let mut session = engine.session(Durability::Accepted);
        for number in (0..plan.num).step_by(usize::try_from(WARM_STRIDE).unwrap_or(1)) {
            encoding.encode(number, &mut key);
            session.get(&key, &mut |_| ())?;
        }
    }
    Ok(())
}

fn config(job: &Job, step: &Step) -> Result<Config, String> {
    Ok(Config {
        directory: job.directory.clone(),
        bucket: job.bucket.as_ref().map(|(uri, _)| uri.clone()),
        latency: job.latency,
        cache_bytes: step.number("cache", 896 << 20)?,
        memtable_bytes: step.number("memtable", 64 << 20)?,
        direct: step.is_set("direct"),
        apart: step.is_set("apart"),
        spaces: usize::try_from(step.number("spaces", 1)?).unwrap_or(1).max(1),
    })
}

/// Runs all steps.
///
/// # Errors
/// The first step that failed as a whole, and why.
pub fn script<E: Engine>(job: &Job, steps: &[Step]) -> Result<(), String> {
    let mut engine: Option<(E, Config)> = None;
    for (number, step) in steps.iter().enumerate() {
        say(&json!({"event": "begun", "step": number}));
        let line = one(job, number, step, &mut engine)
            .map_err(|failure| format!("step {number} ({}): {failure}", step.verb))?;
        say(&line);
    }
    match engine {
        Some((engine, _)) => engine.close().map_err(|failure| format!("closing: {failure}")),
        None => Ok(()),
    }
}

fn one<E: Engine>(
    job: &Job,
    number: usize,
    step: &Step,
    engine: &mut Option<(E, Config)>,
) -> Result<Value, TargetError> {
    let begun = Instant::now();
    let (cpu, written) = (measure::cpu_time(), measure::written_bytes());
    if step.verb == "run" {
        let (engine, _) = engine.as_ref().ok_or_else(|| error("nothing is open"))?;
        return run(engine, job, number, step);
    }
    let mut runs = None;
    let (result, peak_bytes) = Watch::over(number, &|| 0, |_| match step.verb.as_str() {
        "open" | "destroy" => {
            if let Some((engine, _)) = engine.take() {
                engine.close()?;
            }
            if step.verb == "destroy" {
                std::fs::remove_dir_all(&job.directory).map_err(error)?;
                return Ok(begun.elapsed());
            }
            let config = config(job, step).map_err(error)?;
            say(&json!({"event": "settings", "settings": E::settings(&config)}));
            let opening = Instant::now();
            *engine = Some((E::open(&config)?, config));
            Ok(opening.elapsed())
        }
        verb => {
            let (engine, config) = engine.as_ref().ok_or_else(|| error("nothing is open"))?;
            match verb {
                "flush" => engine.flush()?,
                "settle" => drop(settle(engine)?),
                "compact" => {
                    engine.compact()?;
                    settle(engine)?;
                }
                _ => warm(engine, &job.plan, config.spaces)?,
            }
            runs = engine.runs();
            Ok::<_, TargetError>(begun.elapsed())
        }
    });
    let elapsed = result?;
    Ok(json!({
        "event": "done",
        "step": number,
        "operations": 1,
        "seconds": elapsed.as_secs_f64(),
        "operations_per_second": 1.0 / elapsed.as_secs_f64().max(1e-9),
        "micros_p50": micros(elapsed),
        "micros_p99": micros(elapsed),
        "micros_max": micros(elapsed),
        "cpu_micros_per_operation": micros(measure::cpu_time().saturating_sub(cpu)),
        "bytes_written": measure::written_bytes().saturating_sub(written),
        "bytes_on_disk": measure::disk_bytes(&job.directory),
        "peak_bytes": peak_bytes,
        "errors": 0,
        "sorted_runs": runs,
    }))
}
