//! Two writers fight for one database for as long as asked: each takes it from the other again and
//! again, while they are paused, woken and killed, and their connections cut, frozen and refused. A
//! standby waits beside them: it steps in by itself when both are dead, which happens at least
//! once, and is then fought as they are. A reader follows, checkpoints are cloned, garbage is
//! collected under them. A checker knows every acknowledgement.
//!
//! `create → writers, standby, reader, clones and gc, at once → calm → end all → open once more → judge → verify`

mod beside;
mod oracle;
mod proxy;
pub mod reader;
mod script;
pub mod writer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use rand::Rng;
use serde_json::json;
use tombolo::OpenMode;
use tombolo_storage::Uri;

use self::beside::Beside;
use self::oracle::{Looker, Oracle, Place, Sight, Verdict};
use self::proxy::{Endpoint, Proxy, Weather};
use crate::crash::script::THREADS;
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::process::Message;
use crate::process::child::Writer;
use crate::scratch::Scratch;
use crate::text;

/// Arguments of `fight`.
#[derive(Args)]
pub struct Arguments {
    /// The store, as a URI: no database may be there, and it is kept. A temporary directory when
    /// not given. Connections are disturbed where the URI has an `endpoint=http://…`, or is
    /// `hdfs://host:port/…`: those to the NameNode.
    #[arg(long, value_name = "URI")]
    store: Option<String>,
    #[command(flatten)]
    how: HowArguments,
    /// How long, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Seed of keys, values and moments.
    #[arg(long)]
    seed: Option<u64>,
}

/// Processes that fight.
const WRITERS: usize = 2;
/// The one that stands by comes after them, and then the one that reads.
const STANDBY: usize = WRITERS;
const READER: usize = STANDBY + 1;
/// Longest wait for a process to come to its end once all is calm.
const TIME_MAX: Duration = Duration::from_secs(120);

/// What the processes have said.
#[derive(Debug, Default)]
struct Ears {
    threads: [Oracle; THREADS as usize],
    /// The epoch of each process, or the number of its reader.
    current: BTreeMap<u64, u64>,
    /// The highest epoch with which the database was opened to write, and the process that did.
    owner: (u64, u64),
    openings: u64,
    refused: u64,
    failed: Option<String>,
}

impl Ears {
    fn hear(&mut self, process: u64, is_writer: bool, message: Message) {
        let current = self.current.get(&process).copied().unwrap_or(0);
        let place = |sequence: u64| {
            (usize::try_from(sequence >> 56).unwrap_or(usize::MAX), sequence & ((1 << 56) - 1))
        };
        match message {
            Message::Opened { epoch, .. } => {
                self.current.insert(process, epoch);
                if is_writer {
                    self.openings += 1;
                    self.owner = self.owner.max((epoch, process));
                }
            }
            Message::Seen { thread, epoch, sequence, digest } => {
                let looker = if is_writer { Looker::Opening(current) } else { Looker::Reader(current) };
                let sight = Sight { place: Place { epoch, number: sequence }, digest };
                self.saw(usize::try_from(thread).unwrap_or(usize::MAX), looker, sight);
            }
            Message::Intent { sequence, .. } => {
                let (thread, number) = place(sequence);
                if let Some(oracle) = self.threads.get_mut(thread) {
                    oracle.announced(current, number);
                }
            }
            Message::Acknowledged { sequence, .. } => {
                let (thread, number) = place(sequence);
                if let Some(oracle) = self.threads.get_mut(thread) {
                    oracle.acknowledged(current, number);
                }
            }
            Message::Refused { .. } => self.refused += 1,
            Message::Ended { text, .. } => {
                self.failed.get_or_insert(text);
            }
            Message::Unreadable { .. } | Message::Memory { .. } => {}
        }
    }

    fn saw(&mut self, thread: usize, looker: Looker, sight: Sight) {
        if let Some(Err(what)) = self.threads.get_mut(thread).map(|oracle| oracle.saw(looker, sight)) {
            self.failed.get_or_insert(what);
        }
    }

    /// What went wrong so far.
    fn check(&self) -> Result<()> {
        let lost = || self.threads.iter().find_map(Oracle::lost_so_far);
        match self.failed.clone().or_else(lost) {
            Some(what) => Err(Failure::Check(what)),
            None => Ok(()),
        }
    }
}

/// What happened, for the report.
#[derive(Clone, Copy, Debug, Default)]
struct Happened {
    kills: u64,
    pauses: u64,
    faults: u64,
    /// Times that nobody was left but the standby, and it took over.
    stood_in: u64,
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| tombolo::Env::real().random_u64());
    let mut scratch = Scratch::new(arguments.store.as_deref(), "fight")?;
    let result = Fight::new(arguments, scratch.uri(), seed, output).and_then(|mut fight| fight.run());
    scratch.keep_unless(result.is_ok());
    let report = result.map_err(|failure| match failure {
        Failure::Check(what) => {
            Failure::Check(format!("seed {seed}: {what}\n  the database is kept: {}", scratch.uri()))
        }
        failure => failure,
    })?;
    report.print(arguments.seconds, seed, output)
}

/// A fight while it goes on.
struct Fight<'a> {
    arguments: &'a Arguments,
    output: &'a Output,
    seed: u64,
    store: Uri,
    how: HowArguments,
    endpoint: Option<Endpoint>,
    /// One for each writer, one for the standby, and one for the readers.
    proxies: Vec<Proxy>,
    ears: Arc<Mutex<Ears>>,
    processes: AtomicU64,
    interrupted: Arc<AtomicBool>,
    happened: Happened,
}

impl<'a> Fight<'a> {
    fn new(arguments: &'a Arguments, store: &str, seed: u64, output: &'a Output) -> Result<Fight<'a>> {
        let store = Uri::parse(store)?;
        let endpoint = Endpoint::of(&store);
        let proxies = match &endpoint {
            None => Vec::new(),
            Some(endpoint) => (0..=READER as u64)
                .map(|number| Proxy::start(endpoint.address.clone(), seed ^ number << 40))
                .collect::<Result<_>>()?,
        };
        let mut how = arguments.how.clone();
        if how.settings.is_empty() {
            // Small memtables: flushes and trims happen all the time.
            how.settings = vec!["memory_bytes=8388608".to_owned(), "memtable_bytes=262144".to_owned()];
        }
        let interrupted = interrupt::listen()?;
        let (ears, processes, happened) = (Arc::default(), AtomicU64::new(0), Happened::default());
        Ok(Fight {
            arguments,
            output,
            seed,
            store,
            how,
            endpoint,
            proxies,
            ears,
            processes,
            interrupted,
            happened,
        })
    }

    /// A thread that panicked while it held the lock has failed the test already.
    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&mut self) -> Result<Report> {
        let direct = self.store.to_string();
        database::open(&direct, &self.how, OpenMode::Create)?.close().wait()?;
        let (clones, sweeps) = (AtomicU64::new(0), AtomicU64::new(0));
        let beside = Beside { store: self.store.clone(), how: self.how.clone(), clones, sweeps };
        let (over, ears) = (AtomicBool::new(false), Arc::clone(&self.ears));
        std::thread::scope(|scope| {
            let besides = scope.spawn(|| {
                beside.run(&over, |thread, least, sight| {
                    let mut ears = ears.lock().unwrap_or_else(PoisonError::into_inner);
                    ears.saw(thread, Looker::Clone(least), sight);
                    Ok(())
                })
            });
            let fought = self.fight();
            over.store(true, Ordering::Relaxed);
            let besides =
                besides.join().unwrap_or_else(|_| Err(Failure::Check("what goes on beside panicked".into())));
            fought.and(besides)
        })?;
        self.happened.faults = self.proxies.iter().map(Proxy::injected).sum();
        self.last_look(&direct)?;
        let seed = self.seed;
        let ears = self.ears();
        ears.check()?;
        let mut verdicts = Vec::new();
        for (thread, oracle) in (0..THREADS).zip(&ears.threads) {
            let judged = oracle.judge(|place| script::batch(seed, thread, place));
            verdicts.push(judged.map_err(|what| Failure::Check(format!("thread {thread}: {what}")))?);
        }
        if self.happened.stood_in == 0 {
            return Err(Failure::Check(
                "the standby never had to take over, so that was not tested; give it more time".into(),
            ));
        }
        if verdicts.iter().any(|verdict| verdict.acknowledged == 0) {
            return Err(Failure::Check(
                "a thread had nothing acknowledged, so nothing was tested; give it more time".into(),
            ));
        }
        Ok(Report {
            verdicts,
            happened: self.happened,
            openings: ears.openings,
            refused: ears.refused,
            clones: beside.clones.into_inner(),
            sweeps: beside.sweeps.into_inner(),
        })
    }

    /// Opens it once more when all have ended, and reads all of it.
    fn last_look(&self, direct: &str) -> Result<()> {
        let db = database::open(direct, &self.how, OpenMode::Open)?;
        for (thread, sight) in script::look(&db, &db.snapshot())?.into_iter().enumerate() {
            self.ears().saw(thread, Looker::Opening(db.epoch().0), sight);
        }
        match db.verify().wait()?.damage.first() {
            Some(damage) => Err(Failure::Check(format!("verify found {damage}"))),
            None => Ok(db.close().wait()?),
        }
    }

    /// Starts a process; also its number.
    fn start(&self, slot: usize) -> Result<(u64, Writer)> {
        let command = match slot {
            READER => "fight-reader",
            STANDBY => "fight-standby",
            _ => "fight-writer",
        };
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let store = match (&self.endpoint, self.proxies.get(slot)) {
            (Some(endpoint), Some(proxy)) => proxy.uri(&self.store, endpoint),
            _ => self.store.clone(),
        };
        let mut arguments: Vec<OsString> = vec![command.into(), "--store".into(), store.to_string().into()];
        for (name, value) in
            [("--seed", self.seed), ("--process", process), ("--parent", u64::from(std::process::id()))]
        {
            arguments.extend([name.into(), value.to_string().into()]);
        }
        if let Some(log) = &self.how.log {
            arguments.extend(["--log".into(), log.into()]);
        }
        for setting in &self.how.settings {
            arguments.extend(["--set".into(), setting.into()]);
        }
        let (ears, is_writer) = (Arc::clone(&self.ears), slot != READER);
        let heard = move |message| {
            ears.lock().unwrap_or_else(PoisonError::into_inner).hear(process, is_writer, message);
        };
        let started =
            Writer::start(&arguments, heard).map_err(|error| Failure::io(error, "starting a process"))?;
        Ok((process, started))
    }

    fn fight(&mut self) -> Result<()> {
        let mut random = tombolo_workload::random(self.seed, 1 << 20);
        let begun = Instant::now();
        let end = begun + Duration::from_secs(self.arguments.seconds);
        // All that write: the standby too, when its time has come.
        let mut writers = (0..=STANDBY).map(|slot| self.start(slot)).collect::<Result<Vec<_>>>()?;
        let mut reader = self.start(READER)?.1;
        let mut paused: [Option<Instant>; STANDBY + 1] = [None; STANDBY + 1];
        let mut told = Instant::now();
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(random.random_range(50..800)));
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            self.ears().check()?;
            for ((_, writer), until) in writers.iter().zip(&mut paused) {
                if until.is_some_and(|until| Instant::now() >= until) {
                    *until = None;
                    writer.wake().map_err(|error| Failure::io(error, "waking a writer"))?;
                }
            }
            let is_halfway = begun.elapsed() > Duration::from_secs(self.arguments.seconds) / 2;
            let slot = random.random_range(0..writers.len());
            match random.random_range(0..10) {
                // Once at least, and in a long fight again and again.
                _ if self.happened.stood_in == 0 && is_halfway || random.random_bool(0.02) => {
                    self.leave_to_standby(&mut writers, &mut paused)?;
                }
                0 | 1 if paused[slot].is_none() => {
                    writers[slot].1.stop().map_err(|error| Failure::io(error, "stopping a writer"))?;
                    paused[slot] =
                        Some(Instant::now() + Duration::from_millis(random.random_range(100..5000)));
                    self.happened.pauses += 1;
                }
                2 => {
                    self.replace(&mut writers, slot)?;
                    paused[slot] = None;
                }
                3 if random.random_bool(0.3) => {
                    let fresh = self.start(READER)?.1;
                    std::mem::replace(&mut reader, fresh)
                        .kill()
                        .map_err(|error| Failure::io(error, "killing a reader"))?;
                }
                _ => self.change_weather(&mut random),
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                self.tell(end);
            }
        }
        let writers: Vec<Writer> = writers.into_iter().map(|(_, writer)| writer).collect();
        self.calm_down(&writers, paused)?;
        for process in writers.into_iter().chain([reader]) {
            self.end(process)?;
        }
        self.ears().check()
    }

    /// Kills a process and starts another in its place.
    fn replace(&mut self, writers: &mut [(u64, Writer)], slot: usize) -> Result<()> {
        let fresh = self.start(slot)?;
        std::mem::replace(&mut writers[slot], fresh)
            .1
            .kill()
            .map_err(|error| Failure::io(error, "killing a writer"))?;
        self.happened.kills += 1;
        Ok(())
    }

    /// Kills the writers, and waits until the standby owns the database.
    fn leave_to_standby(
        &mut self,
        writers: &mut Vec<(u64, Writer)>,
        paused: &mut [Option<Instant>; STANDBY + 1],
    ) -> Result<()> {
        self.proxies.iter().for_each(|proxy| proxy.set(Weather::Calm));
        let standby = writers.split_off(STANDBY);
        if paused[STANDBY].take().is_some() {
            standby[0].1.wake().map_err(|error| Failure::io(error, "waking a standby"))?;
        }
        for (_, writer) in writers.drain(..) {
            writer.kill().map_err(|error| Failure::io(error, "killing a writer"))?;
            self.happened.kills += 1;
        }
        // What the dead said has been heard: it owned the database before, or whatever it opens
        // from here on it took over.
        let before = self.ears().owner;
        let end = Instant::now() + TIME_MAX;
        while before.1 != standby[0].0 && self.ears().owner.1 != standby[0].0 {
            self.ears().check()?;
            if Instant::now() > end {
                return Err(Failure::Check(format!(
                    "the writers were killed, and {} s later the standby has not taken over",
                    TIME_MAX.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.happened.stood_in += u64::from(before.1 != standby[0].0);
        for (slot, until) in paused.iter_mut().enumerate().take(WRITERS) {
            *until = None;
            writers.push(self.start(slot)?);
        }
        writers.extend(standby);
        Ok(())
    }

    fn change_weather(&self, random: &mut impl Rng) {
        if self.proxies.is_empty() {
            return;
        }
        let weather = [Weather::Calm, Weather::Calm, Weather::Rough, Weather::Rough, Weather::Down]
            [random.random_range(0..5)];
        self.proxies[random.random_range(0..self.proxies.len())].set(weather);
    }

    fn calm_down(&self, writers: &[Writer], paused: [Option<Instant>; STANDBY + 1]) -> Result<()> {
        self.proxies.iter().for_each(|proxy| proxy.set(Weather::Calm));
        for (writer, _) in writers.iter().zip(paused).filter(|(_, paused)| paused.is_some()) {
            writer.wake().map_err(|error| Failure::io(error, "waking a writer"))?;
        }
        Ok(())
    }

    /// Ends a process as it wishes, and hears its last words.
    fn end(&self, mut process: Writer) -> Result<()> {
        process.finish();
        let status =
            process.wait_for(TIME_MAX).map_err(|error| Failure::io(error, "waiting for a process"))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::Check(format!("a process ended with {status}: {:?}", self.ears().failed)))
        }
    }

    fn tell(&self, end: Instant) {
        if self.output.is_json() {
            return;
        }
        let ears = self.ears();
        let acknowledged: u64 = ears.threads.iter().map(Oracle::acknowledged_all).sum();
        note(format_args!(
            "{:>4} s left: {} takeovers, {} batches acknowledged, {} kills, {} pauses",
            end.saturating_duration_since(Instant::now()).as_secs(),
            ears.openings,
            text::count(acknowledged),
            self.happened.kills,
            self.happened.pauses
        ));
    }
}

/// What it amounted to.
struct Report {
    verdicts: Vec<Verdict>,
    happened: Happened,
    openings: u64,
    refused: u64,
    clones: u64,
    sweeps: u64,
}

impl Report {
    fn print(&self, seconds: u64, seed: u64, output: &Output) -> Result<()> {
        let sum = |count: fn(&Verdict) -> u64| self.verdicts.iter().map(count).sum::<u64>();
        let (acknowledged, surviving) =
            (sum(|verdict| verdict.acknowledged), sum(|verdict| verdict.surviving));
        let sights = sum(|verdict| verdict.sights);
        let Happened { kills, pauses, faults, stood_in } = self.happened;
        output.result(
            || {
                json!({
                    "seed": seed, "seconds": seconds, "takeovers": self.openings,
                    "batches_acknowledged": acknowledged,
                    "batches_unacknowledged_surviving": surviving, "refused": self.refused, "kills": kills,
                    "pauses": pauses, "faults": faults, "standby_takeovers": stood_in,
                    "looks": sights, "clones": self.clones, "sweeps": self.sweeps, "lost": 0, "stale": 0,
                })
            },
            || {
                format!(
                    "two writers fought for {seconds} s, seed {seed}: {} takeovers, {} of them by a standby \
                    when all others were dead, {} kills, {} pauses, {} faults of connections; {} batches \
                     acknowledged, 0 lost, 0 half, nothing of a stale writer seen; {} unacknowledged ones \
                     survived whole, {} refused; {} looks of readers and \
                     at {} clones, {} sweeps of gc",
                    text::count(self.openings),
                    stood_in,
                    kills,
                    pauses,
                    text::count(faults),
                    text::count(acknowledged),
                    text::count(surviving),
                    text::count(self.refused),
                    text::count(sights),
                    self.clones,
                    self.sweeps
                )
            },
        )
    }
}
