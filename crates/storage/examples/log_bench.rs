//! Measures the local log in both forms: accepted appends, durable appends by 1, 2 and 8 threads,
//! device bytes per durable commit.
//!
//! `cargo run --release -p tombolo-storage --example log_bench -- [DIRECTORY [ROUNDS]]`
//!
//! The forms take turns, round by round; medians over the rounds are printed. The first line is the
//! disk alone: a 512-byte `pwrite` into a zeroed file and `fdatasync`, which is what a durable
//! commit cannot beat. Device bytes count everything that anyone wrote to the disk meanwhile:
//! measure on a quiet machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tombolo_env::{BoxFuture, Env};
use tombolo_storage::backend::local_log::{Form, LocalLogOptions, LocalLogStore};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::log_memory::Uncounted;
use tombolo_storage::{
    ConfigurationChain, Epoch, ErrorKind, Incarnation, Log, LogContext, LogEntry, LogOffset, LogRecord,
    LogStore, Result,
};

const ACCEPTED: u64 = 400_000;
const DURABLE: u64 = 4_000;

/// Publishes nowhere: a measurement has no manifest.
#[derive(Debug)]
struct NoChain;

impl ConfigurationChain for NoChain {
    fn publish(&self, _record: LogRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn named(&self) -> Vec<LogRecord> {
        Vec::new()
    }
}

fn entry(number: u64, payload_bytes: usize) -> LogEntry {
    LogEntry { stream: 0, first_sequence: number, count: 1, payload: vec![0x5a; payload_bytes].into() }
}

/// CPU time of the calling thread, by the kernel's own count.
fn thread_cpu_nanos() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(f64::NAN)
}

struct Bench {
    env: Env,
    directory: PathBuf,
    epoch: u64,
}

impl Bench {
    fn log(&mut self, form: Form) -> Result<Arc<dyn Log>> {
        self.epoch += 1;
        let options = LocalLogOptions { form, ..LocalLogOptions::default() };
        let store = LocalLogStore::new(&self.env, &self.directory, true, options);
        let context = LogContext {
            env: self.env.clone(),
            incarnation: Incarnation(1),
            database: 1,
            epoch: Epoch(self.epoch),
            chain: Arc::new(NoChain),
            objects: Arc::new(MemoryObjectStore::unnamed(&self.env)),
            memory: Arc::new(Uncounted),
        };
        self.env.block_on(store.open(&context, 1))
    }

    fn device_bytes(&self) -> u64 {
        self.env.files().device_bytes_written(&self.directory).unwrap_or(0)
    }

    /// Appends per second that are accepted, by one thread; and that thread's CPU time for each, in
    /// nanoseconds.
    fn accepted(&mut self, form: Form, payload_bytes: usize) -> Result<[f64; 2]> {
        let log = self.log(form)?;
        let entry = entry(1, payload_bytes);
        let cpu = thread_cpu_nanos();
        let start = Instant::now();
        for number in 0..ACCEPTED {
            loop {
                match log.append(0, &entry) {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::Busy => {
                        log.sync(0, LogOffset(log.durable_through(0).0 + 1))?;
                    }
                    Err(error) => return Err(error),
                }
            }
            if number % 4096 == 0 {
                log.trim(0, log.durable_through(0))?;
            }
        }
        let rate = ACCEPTED as f64 / start.elapsed().as_secs_f64();
        let cpu = (thread_cpu_nanos() - cpu) / ACCEPTED as f64;
        self.env.block_on(log.close())?;
        Ok([rate, cpu])
    }

    /// Durable appends per second, their latencies in microseconds (p50, p99), device bytes for
    /// each.
    fn durable(&mut self, form: Form, threads: u64, payload_bytes: usize) -> Result<[f64; 4]> {
        let log = self.log(form)?;
        // What every log does once is not measured.
        for number in 0..200 {
            let end = log.append(0, &entry(number, payload_bytes))?.end;
            log.sync(0, end)?;
        }
        let order = Mutex::new(());
        let latencies = Mutex::new(Vec::new());
        let device = self.device_bytes();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let entry = entry(1, payload_bytes);
                    let mut own = Vec::new();
                    for _ in 0..DURABLE / threads {
                        let begin = Instant::now();
                        let appended = {
                            let _order = order.lock();
                            log.append(0, &entry)
                        };
                        if let Err(error) = appended.and_then(|appended| log.sync(0, appended.end)) {
                            eprintln!("{error}");
                            return;
                        }
                        own.push(begin.elapsed().as_secs_f64() * 1e6);
                    }
                    if let Ok(mut latencies) = latencies.lock() {
                        latencies.append(&mut own);
                    }
                });
            }
        });
        let elapsed = start.elapsed().as_secs_f64();
        let device = self.device_bytes().saturating_sub(device);
        let mut latencies = latencies.into_inner().unwrap_or_default();
        latencies.sort_by(f64::total_cmp);
        let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(f64::NAN);
        self.env.block_on(log.close())?;
        let count = latencies.len() as f64;
        Ok([count / elapsed, at(50), at(99), device as f64 / count])
    }

    /// Device bytes of one durable append by one thread: the median over many, so that what others
    /// write in between does not count.
    fn device_bytes_each(&mut self, form: Form, payload_bytes: usize) -> Result<f64> {
        let log = self.log(form)?;
        let mut deltas = Vec::new();
        for number in 0..600 {
            let end = log.append(0, &entry(number, payload_bytes))?.end;
            let before = self.device_bytes();
            log.sync(0, end)?;
            deltas.push(self.device_bytes().saturating_sub(before) as f64);
        }
        self.env.block_on(log.close())?;
        Ok(median(deltas))
    }

    /// The disk alone: p50 and p99 of a `pwrite` with `fdatasync`.
    fn disk(&self) -> std::io::Result<[f64; 2]> {
        let path = self.directory.join("disk");
        let file = self.env.files().create_new(&path)?;
        let zeros = vec![0; 16 << 10];
        for piece in 0..256 {
            file.write_all_at(&zeros, piece * zeros.len() as u64)?;
        }
        file.sync_data()?;
        let mut latencies = Vec::new();
        for number in 0..2000 {
            let begin = Instant::now();
            file.write_all_at(&[0x5a; 512], number * 576)?;
            file.sync_data()?;
            latencies.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        self.env.files().remove_file(&path)?;
        latencies.sort_by(f64::total_cmp);
        Ok([latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]])
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn column<const N: usize>(rows: &[[f64; N]], index: usize) -> f64 {
    median(rows.iter().map(|row| row[index]).collect())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        arguments.next().map_or_else(|| Path::new("target/log_bench").to_path_buf(), PathBuf::from);
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    std::fs::create_dir_all(&directory)?;
    let mut bench = Bench { env: Env::real(), directory, epoch: u64::from(std::process::id()) << 32 };
    let forms = [Form::Mapped, Form::Written];
    let cases: Vec<(u64, usize)> = vec![(1, 512), (2, 512), (8, 512), (1, 100), (8, 100)];
    let mut disk = Vec::new();
    let mut accepted = vec![Vec::new(); 4];
    let mut durable = vec![Vec::new(); 2 * cases.len()];
    let mut device = vec![Vec::new(); 2];
    for _ in 0..rounds {
        disk.push(bench.disk()?);
        for (index, form) in forms.into_iter().enumerate() {
            for (size, payload_bytes) in [100, 512].into_iter().enumerate() {
                accepted[2 * size + index].push(bench.accepted(form, payload_bytes)?);
            }
        }
        for (index, form) in forms.into_iter().enumerate() {
            device[index].push([bench.device_bytes_each(form, 512)?]);
        }
        for (case, (threads, payload_bytes)) in cases.iter().enumerate() {
            for (index, form) in forms.into_iter().enumerate() {
                durable[2 * case + index].push(bench.durable(form, *threads, *payload_bytes)?);
            }
        }
    }
    std::fs::remove_dir_all(&bench.directory)?;
    for (index, form) in forms.into_iter().enumerate() {
        println!(
            "{form:?}: {:.0} device bytes for a durable append of 512 B, median",
            column(&device[index], 0)
        );
    }
    println!("medians of {rounds} rounds");
    println!(
        "disk alone, 512 B pwrite + fdatasync: p50 {:.0} µs, p99 {:.0} µs",
        column(&disk, 0),
        column(&disk, 1)
    );
    println!("| what | form | per second | p50 µs | p99 µs | device bytes each |");
    println!("|---|---|---|---|---|---|");
    for (size, payload_bytes) in [100, 512].into_iter().enumerate() {
        for (index, form) in forms.into_iter().enumerate() {
            let rate = column(&accepted[2 * size + index], 0);
            let cpu = column(&accepted[2 * size + index], 1);
            println!(
                "| accepted, {payload_bytes} B, 1 thread | {form:?} | {rate:.0} | {:.2} ({cpu:.0} ns of \
                CPU) | | |",
                1e6 / rate
            );
        }
    }
    for (case, (threads, payload_bytes)) in cases.iter().enumerate() {
        for (index, form) in forms.into_iter().enumerate() {
            let rows = &durable[2 * case + index];
            let [rate, p50, p99, device] = [0, 1, 2, 3].map(|at| column(rows, at));
            println!(
                "| durable, {payload_bytes} B, {threads} threads | {form:?} | {rate:.0} | {p50:.0} | \
                {p99:.0} | {device:.0} |"
            );
        }
    }
    Ok(())
}
