//! `tombolo demo`: the main job on real input, while everything that can happen to a writer happens
//! to it.
//!
//! `writer 1 indexes → SIGSTOP → writer 2 takes over and goes on → SIGCONT 1: it learns that it is fenced → SIGKILL 2 → writer 3 takes over → SIGKILL … → the last writer closes → read back every acknowledged write`.
//! The log lies in the memory of nodes, unless a store or a log is named: one node is killed
//! together with a writer, and another while a writer writes on.

mod nodes;
mod oracle;
mod report;
mod tree;
pub mod writer;

use std::ffi::OsString;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tombolo::OpenMode;
use tombolo_storage::Uri;

use self::nodes::Nodes;
use self::oracle::{Check, History, Oracle, Verdict};
use self::report::{Report, Takeover};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::process::child::Writer;
use crate::scratch::Scratch;
use crate::text;

/// Arguments of `demo`.
#[derive(Args)]
#[command(after_help = "\
The writers are this program again, in processes of their own; each reports every acknowledgement over a pipe. Each file is one durable
batch over two keyspaces: its newest record, and a journal entry that no later write replaces. At the end every acknowledged write is
read back. Exit code 1 when one is lost or wrong; the database is then kept, and its path printed.")]
pub struct Arguments {
    /// Where to make the database, as a URI; a temporary directory, removed afterwards, when not
    /// given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    store: Option<String>,
    #[command(flatten)]
    how: HowArguments,
    /// The tree to index: path → size, mode, times, checksum. Default: /usr/share.
    #[arg(long, value_name = "DIRECTORY")]
    source: Option<PathBuf>,
    /// Nodes to start, whose memory holds the log, and of which some are killed too; 0: the log
    /// lies beside the store.
    ///
    /// Three are needed for three copies, and a fourth takes the place of one that is lost.
    /// Default: 4, or 0 where --store or --log is given.
    #[arg(
        long, value_name = "COUNT", conflicts_with = "log",
        value_parser = clap::value_parser!(u32).range(0..=16)
    )]
    nodes: Option<u32>,
    /// How many writers to kill with SIGKILL, after the one that is paused.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: u32,
    /// About how long to write, in seconds; reading back comes on top.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Most writes in flight in a writer.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    window: u32,
}

/// Longest wait for a process to do its next step.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How often the parent looks.
const TICK: Duration = Duration::from_millis(5);
/// Acknowledged writes that a writer has made, at least, before the next thing happens to it.
const WRITES_MIN: u64 = 20;

/// With how many nodes, unless it is said.
const NODES: u32 = 4;
/// With fewer, the loss of one stops writes.
const NODES_MIN: u32 = 3;

/// Runs the demo.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let source = arguments.source.clone().unwrap_or_else(tree::default_source);
    if !source.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is no directory: name a tree to index with --source",
            source.display()
        )));
    }
    let source =
        source.canonicalize().map_err(|error| Failure::io(error, format!("finding {}", source.display())))?;
    if tree::is_made_up(&source) {
        return Err(Failure::Usage(format!(
            "--source {}: the kernel makes its files up, and some never end: name a directory of a disk",
            source.display()
        )));
    }
    let mut scratch = Scratch::new(arguments.store.as_deref(), "demo")?;
    for uri in [Some(scratch.uri()), arguments.how.log.as_deref()].into_iter().flatten() {
        if Uri::parse(uri)?.scheme == "mem" {
            return Err(Failure::Usage(format!(
                "{uri} lives in one process, and the demo takes a database over between processes: name \
                another store"
            )));
        }
    }
    let is_placed = arguments.store.is_some() || arguments.how.log.is_some();
    let nodes = match arguments.nodes.unwrap_or(if is_placed { 0 } else { NODES }) {
        0 => None,
        count if count < NODES_MIN => {
            return Err(Failure::Usage(format!(
                "--nodes {count}: a log on nodes needs {NODES_MIN} at least, one of which may be lost"
            )));
        }
        count => Some(Nodes::start(count)?),
    };
    let mut show = Show::new(arguments, scratch.uri().to_owned(), source, nodes, output)?;
    let result = show.run();
    show.bar.finish_and_clear();
    let report = match result {
        Ok(report) => report,
        Err(failure) => {
            scratch.keep_unless(matches!(failure, Failure::Interrupted | Failure::Usage(_)));
            return Err(failure);
        }
    };
    let failed = report.failed();
    scratch.keep_unless(!failed);
    output.result(|| report.to_json(), || report.to_text())?;
    output.finish()?;
    if !failed {
        return Ok(());
    }
    Err(Failure::Check(report.verdict_words()))
}

/// The demo while it runs.
struct Show<'a> {
    arguments: &'a Arguments,
    output: &'a Output,
    store: String,
    source: PathBuf,
    /// As given, with the log that lies on the nodes.
    how: HowArguments,
    nodes: Option<Nodes>,
    oracle: Arc<Mutex<Oracle>>,
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
    begun: Instant,
    last_line: Instant,
    phase: String,
    takeovers: Vec<Takeover>,
}

impl<'a> Show<'a> {
    fn new(
        arguments: &'a Arguments,
        store: String,
        source: PathBuf,
        nodes: Option<Nodes>,
        output: &'a Output,
    ) -> Result<Show<'a>> {
        let log = nodes.as_ref().map(Nodes::uri).or_else(|| arguments.how.log.clone());
        let interrupted = interrupt::listen()?;
        let bar = if output.is_watched() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Ok(Show {
            arguments,
            output,
            store,
            source,
            how: HowArguments { log, ..arguments.how.clone() },
            nodes,
            oracle: Arc::default(),
            interrupted,
            bar,
            begun: Instant::now(),
            last_line: Instant::now(),
            phase: String::new(),
            takeovers: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<Report> {
        self.say(&format!("indexing {} into {}", self.source.display(), self.store));
        if let Some(nodes) = &self.nodes {
            self.say(&format!(
                "the log lies in the memory of three of {} nodes at a time, and is durable in two of them",
                nodes.count()
            ));
        }
        let phases = self.arguments.rounds + 3;
        let phase = Duration::from_secs(self.arguments.seconds) / phases;
        let writing = Instant::now();

        "writer 1 opens".clone_into(&mut self.phase);
        let first = self.start(1)?;
        self.until_opened(1)?;
        self.write_for(1, phase, "writer 1 writes".to_owned())?;

        let mut current =
            if self.is_owned() { self.replace_first(first, phase)? } else { self.pause_first(first, phase)? };

        for round in 1..=self.arguments.rounds {
            let number = round + 1;
            let killed = Instant::now();
            current.kill().map_err(|error| Failure::io(error, format!("killing writer {number}")))?;
            // The first time with a node: what its memory held is gone in the same moment.
            let lost = if round == 1 { self.kill_node()? } else { None };
            let beside = lost.map_or_else(String::new, |node| format!(" together with node {node}"));
            self.say(&format!(
                "writer {number} is killed{beside} (SIGKILL), kill {round} of {}; writer {} takes over",
                self.arguments.rounds,
                number + 1
            ));
            self.phase = format!("writer {} takes over", number + 1);
            current = self.start(number + 1)?;
            self.until_opened(number + 1)?;
            self.start_node_again(lost)?;
            self.write_for(number + 1, phase / 2, format!("writer {} writes", number + 1))?;
            self.note_takeover(number + 1, killed, "killed");
            let lost = if round == 2 { self.kill_node()? } else { None };
            if let Some(node) = lost {
                self.say(&format!(
                    "node {node} is killed (SIGKILL) while writer {} writes: another takes its place",
                    number + 1
                ));
            }
            self.write_for(number + 1, phase / 2, format!("writer {} writes", number + 1))?;
            self.start_node_again(lost)?;
        }

        let number = self.arguments.rounds + 2;
        let wrote = writing.elapsed();
        current.finish();
        self.until(number, "finish", |writer| writer.ended.is_some())?;
        current.wait().map_err(|error| Failure::io(error, "waiting for the last writer"))?;
        if let Some((code, text)) = self
            .oracle()
            .writers
            .last()
            .and_then(|writer| writer.ended.clone())
            .filter(|(code, _)| *code != 0)
        {
            return Err(Failure::Check(format!("writer {number} failed with exit code {code}: {text}")));
        }
        let reading = Instant::now();
        let verdict = self.read_back()?;
        let read = reading.elapsed();
        let oracle = self.oracle();
        let nodes = self.nodes.as_ref().map(|nodes| (nodes.count(), nodes.killed));
        Ok(Report::new(
            &oracle,
            verdict,
            self.takeovers.clone(),
            [&self.store, &self.source.display().to_string()],
            nodes,
            [wrote, read, self.begun.elapsed()],
        ))
    }

    /// Whether one process owns the store: then none takes it over from one that is paused.
    fn is_owned(&self) -> bool {
        Uri::parse(&self.store).is_ok_and(|uri| ["zoned", "zoned+file"].contains(&uri.scheme.as_str()))
    }

    /// Stops the first writer while the second takes over, and wakes it.
    fn pause_first(&mut self, first: Writer, phase: Duration) -> Result<Writer> {
        first.stop().map_err(|error| Failure::io(error, "stopping writer 1"))?;
        let stopped = Instant::now();
        self.say("writer 1 is stopped in the middle (SIGSTOP); writer 2 takes the database over");
        "writer 2 takes over".clone_into(&mut self.phase);
        let second = self.start(2)?;
        self.until_opened(2)?;
        self.oracle().taken_over(1);
        self.write_for(2, phase, "writer 2 writes, writer 1 stands still".to_owned())?;
        self.note_takeover(2, stopped, "paused");

        first.wake().map_err(|error| Failure::io(error, "waking writer 1"))?;
        self.say("writer 1 is woken (SIGCONT): it goes on where it stood");
        self.until(1, "learn that it is fenced", |writer| writer.ended.is_some())?;
        drop(first);
        self.expect_fenced()?;
        self.write_for(2, phase, "writer 2 writes on".to_owned())?;
        Ok(second)
    }

    /// Kills the first writer, and has the second take over.
    fn replace_first(&mut self, first: Writer, phase: Duration) -> Result<Writer> {
        let killed = Instant::now();
        first.kill().map_err(|error| Failure::io(error, "killing writer 1"))?;
        self.say(
            "one process owns a zoned device: writer 1 is killed instead of paused; writer 2 takes over",
        );
        "writer 2 takes over".clone_into(&mut self.phase);
        let second = self.start(2)?;
        self.until_opened(2)?;
        self.write_for(2, phase * 2, "writer 2 writes".to_owned())?;
        self.note_takeover(2, killed, "killed");
        Ok(second)
    }

    /// Kills a node, where the log lies on some.
    fn kill_node(&mut self) -> Result<Option<usize>> {
        self.nodes.as_mut().map(Nodes::kill_next).transpose()
    }

    fn start_node_again(&mut self, killed: Option<usize>) -> Result<()> {
        let (Some(nodes), Some(number)) = (&mut self.nodes, killed) else { return Ok(()) };
        nodes.start_again(number)?;
        self.say(&format!("node {number} is back, and empty"));
        Ok(())
    }

    /// A thread that panicked while it held the lock has failed the demo already.
    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, number: u32) -> Result<Writer> {
        let mut arguments: Vec<OsString> =
            vec!["demo-writer".into(), "--store".into(), self.store.clone().into()];
        for (name, value) in
            [("--writer", number), ("--window", self.arguments.window), ("--parent", std::process::id())]
        {
            arguments.extend([name.into(), value.to_string().into()]);
        }
        arguments.extend(["--source".into(), self.source.clone().into()]);
        if let Some(log) = &self.how.log {
            arguments.extend(["--log".into(), log.into()]);
        }
        for setting in &self.how.settings {
            arguments.extend(["--set".into(), setting.into()]);
        }
        let oracle = Arc::clone(&self.oracle);
        let heard = move |message| {
            oracle.lock().unwrap_or_else(PoisonError::into_inner).hear(number, message, Instant::now());
        };
        Writer::start(&arguments, heard)
            .map_err(|error| Failure::io(error, format!("starting writer {number}")))
    }

    fn until_opened(&mut self, number: u32) -> Result<()> {
        self.until(number, "open the database", |writer| writer.opened.is_some() || writer.ended.is_some())?;
        self.check_alive(number)
    }

    /// Lets a writer write for a while, and in any case until it has something to lose.
    fn write_for(&mut self, number: u32, time: Duration, phase: String) -> Result<()> {
        self.phase = phase;
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.tick()?;
            self.check_alive(number)?;
        }
        self.until(number, "write", |writer| writer.acknowledged >= WRITES_MIN || writer.ended.is_some())?;
        self.check_alive(number)
    }

    fn check_alive(&self, number: u32) -> Result<()> {
        let ended = self.oracle().writers.get(number as usize - 1).and_then(|writer| writer.ended.clone());
        match ended {
            None => Ok(()),
            Some((2, text)) => Err(Failure::Usage(text)),
            Some((code, text)) => {
                Err(Failure::Check(format!("writer {number} ended by itself with exit code {code}: {text}")))
            }
        }
    }

    fn until(&mut self, number: u32, what: &str, done: impl Fn(&History) -> bool) -> Result<()> {
        let end = Instant::now() + TIME_MAX;
        while !self.oracle().writers.get(number as usize - 1).is_some_and(&done) {
            self.tick()?;
            if Instant::now() > end {
                return Err(Failure::Check(format!(
                    "writer {number} did not {what} within {} s",
                    TIME_MAX.as_secs()
                )));
            }
        }
        Ok(())
    }

    fn expect_fenced(&self) -> Result<()> {
        let (ended, refused) = {
            let oracle = self.oracle();
            (oracle.writers[0].ended.clone(), oracle.writers[0].refused)
        };
        match ended {
            Some((4, _)) if refused > 0 => {
                self.say(&format!("writer 1 has learnt it: {} refused", text::counted(refused, "write")));
                Ok(())
            }
            other => Err(Failure::Check(format!(
                "the woken writer should have been refused, exit code 4; it ended with {other:?} after \
                {refused} refusals"
            ))),
        }
    }

    fn note_takeover(&mut self, number: u32, began: Instant, fate: &'static str) {
        let oracle = self.oracle();
        let writer = &oracle.writers[number as usize - 1];
        let takeover = writer.opened.zip(writer.first_acknowledged).map(|((_, open), first)| Takeover {
            writer: number,
            predecessor: fate,
            open,
            outage: first.saturating_duration_since(began),
            replayed_bytes: writer.replayed_bytes,
        });
        drop(oracle);
        self.takeovers.extend(takeover);
    }

    /// Waits a moment, shows where things stand, and looks for Ctrl-C.
    fn tick(&mut self) -> Result<()> {
        std::thread::sleep(TICK);
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        let every =
            if self.output.is_watched() { Duration::from_millis(100) } else { Duration::from_secs(1) };
        if self.last_line.elapsed() >= every {
            self.last_line = Instant::now();
            let (acknowledged, files, refused) = {
                let oracle = self.oracle();
                (oracle.acknowledged(), oracle.paths(), oracle.refused())
            };
            let line = format!(
                "{:>4.1} s  {}: {}, {} acknowledged, {} refused to the stale writer",
                self.begun.elapsed().as_secs_f64(),
                self.phase,
                text::counted(files, "file"),
                text::counted(acknowledged, "write"),
                text::count(refused)
            );
            if self.output.is_watched() {
                self.bar.set_message(line);
                self.bar.tick();
            } else if !self.output.is_json() {
                note(line);
            }
        }
        Ok(())
    }

    /// Tells what happens now.
    fn say(&self, what: &str) {
        let line = format!("{:>4.1} s  {what}", self.begun.elapsed().as_secs_f64());
        if self.output.is_watched() {
            self.bar.println(line);
        } else if !self.output.is_json() {
            note(line);
        }
    }

    fn read_back(&mut self) -> Result<Verdict> {
        self.say("the last writer has closed the database; every acknowledged write is read back");
        let db = database::open(&self.store, &self.how, OpenMode::Open)?;
        let (journal, files) = (db.keyspace(writer::JOURNAL)?, db.keyspace(writer::FILES)?);
        let mut oracle = self.oracle();
        let mut check = Check::new(&mut oracle);
        let everything = || (Bound::<Vec<u8>>::Unbounded, Bound::Unbounded);
        for entry in journal.scan(everything()) {
            let (key, value) = entry?;
            check.journal(&key, &value);
            self.look_for_interrupt()?;
        }
        for entry in files.scan(everything()) {
            let (path, record) = entry?;
            // A get takes another way than a scan: filters, one table after the other.
            let again = files.get(&path).wait()?;
            check.file(
                &path,
                if again.as_deref() == Some(&record[..]) { &record } else { b"a get and a scan differ" },
            );
            self.look_for_interrupt()?;
        }
        let verdict = check.finish();
        drop(oracle);
        let damage = db.verify().wait()?.damage;
        db.close().wait()?;
        match damage.first() {
            None => Ok(verdict),
            Some(first) => Err(Failure::Check(format!(
                "verify found {} damaged places, the first: {first}",
                damage.len()
            ))),
        }
    }

    fn look_for_interrupt(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
