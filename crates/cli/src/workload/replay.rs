//! Traces done on databases, by several threads, and what that cost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tombolo::{Db, Durability, OpenMode};
use tombolo_format::trace::{Asked, Event};
use tombolo_lab::Generator;
use tombolo_lab::replay::{Filler, Replayed, Timing, TomboloSubject, perform, thread_of};
use tombolo_lab::report::shown;

use super::files::{TraceArguments, walk};
use super::load::read_model;
use crate::database::WriterArguments;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::scratch::Scratch;
use crate::text;

/// Events of a piece that goes to a thread, and pieces that wait for it.
const PIECE: usize = 256;
const PIECES: usize = 64;

/// What writes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Survives {
    /// The end of the process.
    Accepted,
    /// What the log's failure model says.
    Durable,
}

/// How it is replayed.
#[derive(Args, Clone, Debug)]
pub(super) struct PaceArguments {
    /// At the trace's own times, so many times as fast; latencies then count from when an event
    /// should have begun. As fast as it goes when not given.
    #[arg(long, value_name = "TIMES", value_parser = positive)]
    speed: Option<f64>,
    /// Threads. The events of a key stay in order; range deletes go by where they begin.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: usize,
    /// What writes survive before they return.
    #[arg(long, value_enum, default_value = "accepted")]
    durability: Survives,
    /// Entries that a scan reads whose length the trace does not say.
    #[arg(long, value_name = "N", default_value_t = 10)]
    scan_entries: u32,
}

impl PaceArguments {
    /// One operation after the other, in one thread.
    pub(super) fn closed() -> PaceArguments {
        PaceArguments { speed: None, threads: 1, durability: Survives::Accepted, scan_entries: 10 }
    }
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("it must be above 0".to_owned()) }
}

/// Arguments of `replay`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo workload replay my.trace file:///data/copy
  tombolo workload replay my.trace 'mem://try?latency=s3' --speed 10 --threads 8")]
pub struct Arguments {
    #[command(flatten)]
    trace: TraceArguments,
    #[command(flatten)]
    database: WriterArguments,
    #[command(flatten)]
    how: PaceArguments,
}

/// An event with bytes of its own, on its way to a thread.
struct Owned {
    event: Event<'static>,
    key: Vec<u8>,
    end: Vec<u8>,
    value: Vec<u8>,
}

impl Owned {
    fn of(event: &Event<'_>) -> Owned {
        let (key, end, value) = (event.key.to_vec(), event.end.to_vec(), event.value.to_vec());
        let Event { time_ns, asked, keyspace, thread, value_bytes, entries, found, joined, .. } = *event;
        let Event { blocks_read, blocks_hit, latency_ns, ttl_ms, .. } = *event;
        let (none, none_too, nor_this) = (&[][..], &[][..], &[][..]);
        let event = Event {
            time_ns,
            asked,
            keyspace,
            thread,
            key: none,
            end: none_too,
            value_bytes,
            value: nor_this,
            entries,
            found,
            joined,
            blocks_read,
            blocks_hit,
            latency_ns,
            ttl_ms,
        };
        Owned { event, key, end, value }
    }

    fn event(&self) -> Event<'_> {
        Event { key: &self.key, end: &self.end, value: &self.value, ..self.event }
    }
}

/// What a replay did and cost.
pub(super) struct Outcome {
    replayed: Replayed,
    took: Duration,
    pub(super) requests: Vec<(String, f64)>,
}

/// Bytes and requests of a database, by name.
fn costs(db: &Db) -> Vec<(String, f64)> {
    let names = [
        "cache-hits",
        "cache-misses",
        "request-bytes-sent",
        "request-bytes-received",
        "requests-class-a",
        "requests-class-b",
        "flushed-bytes",
        "compacted-bytes-read",
        "compacted-bytes-written",
        "table-bytes",
    ];
    let number = |name: &str| {
        let found = db.property(name).ok()?.value.number()?;
        Some((name.to_owned(), found as f64))
    };
    names.into_iter().filter_map(number).collect()
}

/// One thread: does its events at their times.
fn thread(
    pieces: &Receiver<Vec<Owned>>,
    mut subject: TomboloSubject,
    timing: Timing,
    begun: Instant,
) -> std::result::Result<Replayed, String> {
    let (mut replayed, mut filler) = (Replayed::new(), Filler::default());
    let now = || begun.elapsed();
    for piece in pieces {
        for owned in &piece {
            let event = owned.event();
            if let Some(wait) = timing.begin(event.time_ns).and_then(|begin| begin.checked_sub(now())) {
                std::thread::sleep(wait);
            }
            perform(&mut subject, &event, &mut filler, timing, &now, &mut replayed)?;
        }
    }
    Ok(replayed)
}

/// Events that `feed` gives, on a database.
pub(super) fn on_database(
    db: &Db,
    names: &BTreeMap<u32, String>,
    how: &PaceArguments,
    feed: impl FnOnce(&mut dyn FnMut(&Event<'_>) -> Result<()>) -> Result<()>,
) -> Result<Outcome> {
    let timing = how.speed.map_or(Timing::Closed, Timing::Open);
    let durability = match how.durability {
        Survives::Accepted => Durability::Accepted,
        Survives::Durable => Durability::Durable,
    };
    let (before, begun) = (costs(db), Instant::now());
    let ended: Result<Replayed> = std::thread::scope(|scope| {
        let (mut senders, mut threads): (Vec<SyncSender<Vec<Owned>>>, Vec<_>) = (Vec::new(), Vec::new());
        for _ in 0..how.threads {
            let (sender, receiver) = sync_channel(PIECES);
            let subject = TomboloSubject::new(db.clone(), names.clone(), durability, how.scan_entries);
            senders.push(sender);
            threads.push(scope.spawn(move || thread(&receiver, subject, timing, begun)));
        }
        let mut pieces: Vec<Vec<Owned>> = (0..how.threads).map(|_| Vec::with_capacity(PIECE)).collect();
        let size = if how.speed.is_some() { 1 } else { PIECE };
        let fed = feed(&mut |event| {
            let at = thread_of(event, how.threads);
            pieces[at].push(Owned::of(event));
            if pieces[at].len() >= size {
                // A thread that has ended says why when it is joined.
                let _ = senders[at].send(std::mem::take(&mut pieces[at]));
            }
            Ok(())
        });
        for (sender, piece) in senders.iter().zip(pieces) {
            let _ = sender.send(piece);
        }
        drop(senders);
        let mut all = Replayed::new();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(replayed)) => all.merge(&replayed),
                Ok(Err(error)) => failed = Some(Failure::Check(format!("the replay ended: {error}"))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        fed?;
        failed.map_or(Ok(all), Err)
    });
    let (replayed, took) = (ended?, begun.elapsed());
    let requests = costs(db)
        .into_iter()
        .map(|(name, after)| {
            let at = before.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, before)| *before);
            (name, after - at)
        })
        .collect();
    Ok(Outcome { replayed, took, requests })
}

fn outcome_json(outcome: &Outcome) -> Value {
    let replayed = &outcome.replayed;
    let latency = |asked: Asked| {
        let of = replayed.of(asked);
        let at = |percent: f64| of.percentile(percent).as_secs_f64();
        let (p50, p99) = (at(50.0), at(99.0));
        let figures =
            json!({ "count": of.count(), "p50": p50, "p99": p99, "p99.9": at(99.9), "p99.99": at(99.99) });
        (asked.name(), figures)
    };
    let done = Asked::ALL.into_iter().filter(|asked| replayed.of(*asked).count() > 0);
    json!({
        "events": replayed.events, "seconds": outcome.took.as_secs_f64(), "late": replayed.late,
        "found_otherwise": replayed.found_otherwise, "passed_over": replayed.passed_over,
        "latencies": done.map(latency).collect::<BTreeMap<_, _>>(),
        "costs": outcome.requests.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

fn outcome_text(outcome: &Outcome) -> String {
    let replayed = &outcome.replayed;
    let seconds = outcome.took.as_secs_f64();
    let mut text = format!(
        "{} in {seconds:.2} s, {} a second\n",
        text::counted(replayed.events, "event"),
        shown(replayed.events as f64 / seconds.max(1e-9))
    );
    if replayed.found_otherwise > 0 {
        text.push_str(&format!(
            "{} found something and had not, or the other way round: the database began otherwise\n",
            text::counted(replayed.found_otherwise, "read")
        ));
    }
    if replayed.late > 0 {
        let late = text::counted(replayed.late, "event");
        text.push_str(&format!("{late} began more than a millisecond late\n"));
    }
    for asked in Asked::ALL.into_iter().filter(|asked| replayed.of(*asked).count() > 0) {
        let of = replayed.of(asked);
        let at = |percent: f64| of.percentile(percent).as_secs_f64() * 1e6;
        text.push_str(&format!(
            "  {:14} {:>9}  p50 {:.1}  p99 {:.1}  p99.9 {:.1}  p99.99 {:.1} µs\n",
            asked.name(),
            of.count(),
            at(50.0),
            at(99.0),
            at(99.9),
            at(99.99)
        ));
    }
    for (name, number) in &outcome.requests {
        text.push_str(&format!("  {name:26} {}\n", shown(*number)));
    }
    text.pop();
    text
}

/// Names of the keyspaces of a trace: they may come anywhere in it.
fn names_of(trace: &TraceArguments, output: &Output) -> Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    walk(trace, output, |reader, _| {
        if reader.names().len() != names.len() {
            names.clone_from(reader.names());
        }
        Ok(())
    })?;
    Ok(names)
}

/// `replay`.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let names = names_of(&arguments.trace, output)?;
    let db = arguments.database.open(OpenMode::CreateOrOpen)?;
    let outcome = on_database(&db, &names, &arguments.how, |each| {
        walk(&arguments.trace, output, |_, event| each(event)).map(drop)
    })?;
    db.close().wait()?;
    output.result(|| outcome_json(&outcome), || outcome_text(&outcome))
}

/// Arguments of `score`.
#[derive(Args)]
pub struct ScoreArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// The model.
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// A setting of both databases, as name=value; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    how: PaceArguments,
}

/// A database for a while, which begins with a value for each key that is read or written.
fn loaded(
    name: &str,
    settings: &[String],
    load: impl FnOnce(&mut dyn FnMut(&Event<'_>) -> Result<()>) -> Result<()>,
    how: &PaceArguments,
    names: &BTreeMap<u32, String>,
) -> Result<(Scratch, Db)> {
    let scratch = Scratch::new(None, name)?;
    let mut options = tombolo::Options::default();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("{setting:?} is no setting: name=value is expected")))?;
        options.set(key, value)?;
    }
    let db = Db::builder(scratch.uri()).options(options).open().wait()?;
    let loading = PaceArguments { speed: None, durability: Survives::Accepted, ..how.clone() };
    on_database(&db, names, &loading, load)?;
    db.flush().wait()?;
    db.compact().wait()?;
    Ok((scratch, db))
}

/// `score`: the trace's keys are loaded into one database, and the model's into another; then both
/// are run.
pub fn score(arguments: &ScoreArguments, output: &Output) -> Result<()> {
    let (trace, how) = (&arguments.trace, &arguments.how);
    let names = names_of(trace, output)?;
    let model = read_model(&arguments.model)?;
    let wrong = |error: tombolo_lab::model::ModelError| Failure::Usage(error.to_string());
    let first_of_each = |each: &mut dyn FnMut(&Event<'_>) -> Result<()>| {
        let mut seen = std::collections::BTreeSet::new();
        walk(trace, output, |_, event| {
            let hash = tombolo_format::checksum::key_hash(event.key) ^ u64::from(event.keyspace);
            if seen.insert(hash) && !event.asked.is_scan() && event.found != tombolo_format::trace::Found::No
            {
                let value_bytes = if event.value_bytes > 0 { event.value_bytes } else { 100 };
                each(&Event { value_bytes, ..Event::new(0, Asked::Put, event.keyspace, event.key) })?;
            }
            Ok(())
        })
        .map(drop)
    };
    let (scratch, db) = loaded("replay", &arguments.settings, first_of_each, how, &names)?;
    let mut events = 0;
    let replayed = on_database(&db, &names, how, |each| {
        walk(trace, output, |_, event| {
            events += 1;
            each(event)
        })
        .map(drop)
    })?;
    db.close().wait()?;
    drop(scratch);
    let mut generator = Generator::new(&model, 1).map_err(wrong)?;
    let names: BTreeMap<u32, String> = generator.names().map(|(id, name)| (id, name.to_owned())).collect();
    let load = |each: &mut dyn FnMut(&Event<'_>) -> Result<()>| {
        let mut failed = None;
        generator.load(|keyspace, key, value_bytes| {
            let put = Event { value_bytes, ..Event::new(0, Asked::Put, keyspace, key) };
            each(&put).map_err(|error| failed = Some(error)).is_ok()
        });
        failed.map_or(Ok(()), Err)
    };
    let (_scratch, db) = loaded("model", &arguments.settings, load, how, &names)?;
    let made = on_database(&db, &names, how, |each| (0..events).try_for_each(|_| each(&generator.draw())))?;
    db.close().wait()?;
    let rows: Vec<(String, f64, f64)> = replayed
        .requests
        .iter()
        .zip(&made.requests)
        .map(|((name, first), (_, second))| (name.clone(), *first, *second))
        .collect();
    output.result(
        || {
            let cost = |row: &(String, f64, f64)| json!({ "of": row.0, "replay": row.1, "model": row.2 });
            let costs: Vec<Value> = rows.iter().map(cost).collect();
            json!({ "replay": outcome_json(&replayed), "model": outcome_json(&made), "costs": costs })
        },
        || {
            let mut text = format!("{:28} {:>12} {:>12} {:>8}", "of", "replay", "model", "ratio");
            for (name, first, second) in &rows {
                let ratio = if *first > 0.0 { format!("{:.2}", second / first) } else { "-".to_owned() };
                let (first, second) = (shown(*first), shown(*second));
                text.push_str(&format!("\n{name:28} {first:>12} {second:>12} {ratio:>8}"));
            }
            text
        },
    )
}
