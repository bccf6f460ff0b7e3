//! A writer process of the demo: walks the tree, writes what it finds, reports every
//! acknowledgement.
//!
//! `walk → look (two threads) → announce → write (pipelined) → wait → report`. Each file is one
//! batch over two keyspaces: `files` holds the newest record of a path, `journal` every write for
//! ever, so that a later write hides no loss.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use tombolo::{Batch, Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Op, OpenMode};

use super::tree::{self, Record};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::process::Message;
use crate::process::child::{Pipe, die_with_parent, finish_requested};

/// The keyspace of newest records, by path.
pub const FILES: &str = "files";
/// The keyspace of all writes, by writer and count.
pub const JOURNAL: &str = "journal";

/// Writes announced and submitted together.
const GROUP: usize = 32;
/// Writes that a stale writer still attempts once it knows: all of them must be refused.
const STALE_ATTEMPTS: usize = 100;

/// Arguments of `demo-writer`.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    store: String,
    #[command(flatten)]
    how: HowArguments,
    #[arg(long)]
    source: PathBuf,
    /// The writer's number; writer 1 creates the database.
    #[arg(long)]
    writer: u32,
    /// Most writes in flight.
    #[arg(long)]
    window: usize,
    #[arg(long)]
    parent: u32,
}

/// The journal's key of a write.
pub fn journal_key(writer: u32, sequence: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&writer.to_be_bytes());
    key[4..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// The writer and count of a journal key.
pub fn parse_journal_key(key: &[u8]) -> Option<(u32, u64)> {
    let (writer, sequence) = key.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*writer), u64::from_be_bytes(sequence.try_into().ok()?)))
}

/// What the threads of a writer share.
struct Shared {
    pipe: Pipe,
    finish: Arc<AtomicBool>,
    fenced: AtomicBool,
    unreadable: AtomicU64,
}

impl Shared {
    fn go_on(&self) -> bool {
        !self.finish.load(Ordering::Relaxed) && !self.fenced.load(Ordering::Relaxed)
    }
}

/// Runs until standard input ends, the database is taken over, or something fails; the last message
/// says which.
pub fn run(arguments: &Arguments) -> Result<()> {
    die_with_parent(arguments.parent).map_err(|error| Failure::io(error, "starting a writer"))?;
    let shared = Arc::new(Shared {
        pipe: Pipe::default(),
        finish: finish_requested(),
        fenced: AtomicBool::new(false),
        unreadable: AtomicU64::new(0),
    });
    let result = index(arguments, &shared);
    let (exit_code, text) = match &result {
        Ok(()) => (0, String::new()),
        Err(failure) => (failure.exit_code(), failure.to_string()),
    };
    let count = shared.unreadable.load(Ordering::Relaxed);
    // A parent that is gone hears nothing.
    let _ = shared.pipe.send(&[Message::Unreadable { count }, Message::Ended { exit_code, text }]);
    match result {
        Ok(()) => Ok(()),
        // The parent tells the user; the exit code tells the parent.
        Err(failure) => std::process::exit(failure.exit_code().into()),
    }
}

fn index(arguments: &Arguments, shared: &Arc<Shared>) -> Result<()> {
    let begun = Instant::now();
    let mode = if arguments.writer == 1 { OpenMode::Create } else { OpenMode::Open };
    let db = database::open(&arguments.store, &arguments.how, mode)?;
    let open_nanos = nanos(begun.elapsed());
    let replayed_bytes = db.stats().replayed_bytes;
    let (files, journal) = (keyspace(&db, FILES)?, keyspace(&db, JOURNAL)?);
    shared
        .pipe
        .send(&[Message::Opened { epoch: db.epoch().0, open_nanos, replayed_bytes }])
        .map_err(report_failure)?;
    let found = start_looking(arguments, &files, shared);
    let result = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(arguments.window);
        let acknowledging = scope.spawn(move || acknowledge(&receiver, shared));
        let submitted = submit(arguments.writer, &db, &files, &journal, &found, &sender, shared);
        drop(sender);
        let acknowledged = acknowledging
            .join()
            .map_err(|_| Failure::Check("the thread that waits for writes panicked".to_owned()))?;
        acknowledged.and(submitted)
    });
    // Threads that still look at files find nobody listening, and end.
    drop(found);
    result?;
    Ok(db.close().wait()?)
}

fn keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    match db.keyspace(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(db.create_keyspace(name, KeyspaceOptions::default()).wait()?)
        }
        other => Ok(other?),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn report_failure(error: std::io::Error) -> Failure {
    Failure::io(error, "reporting to the parent process")
}

/// A file that was looked at.
type Found = (PathBuf, Record);

/// Starts the threads that walk the tree and look at its files, over and over.
fn start_looking(arguments: &Arguments, files: &Keyspace, shared: &Arc<Shared>) -> Receiver<Found> {
    let (path_sender, path_receiver) = sync_channel::<PathBuf>(1024);
    let (sender, receiver) = sync_channel(1024);
    let source = arguments.source.clone();
    let walking = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut found_any = true;
        while found_any && walking.go_on() {
            found_any = false;
            let mut visit = |path| {
                found_any = true;
                walking.go_on() && path_sender.send(path).is_ok()
            };
            let (ended, unreadable) = tree::walk(&source, &mut visit);
            walking.unreadable.fetch_max(unreadable, Ordering::Relaxed);
            if !ended {
                return;
            }
        }
    });
    let paths = Arc::new(Mutex::new(path_receiver));
    for _ in 0..2 {
        let (paths, sender, files, shared) =
            (Arc::clone(&paths), sender.clone(), files.clone(), Arc::clone(shared));
        std::thread::spawn(move || look_at_files(&paths, &sender, &files, &shared));
    }
    receiver
}

fn look_at_files(
    paths: &Mutex<Receiver<PathBuf>>,
    sender: &SyncSender<Found>,
    files: &Keyspace,
    shared: &Shared,
) {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let Ok(Ok(path)) = paths.lock().map(|paths| paths.recv()) else { return };
        // The index itself says whether the content has to be read again: that is what it is for.
        let known = match files.get(tree::key(&path)).wait() {
            Ok(known) => known.and_then(|record| Record::decode(&record)),
            Err(_) => None,
        };
        match tree::look(&path, known, &mut buffer, &|| shared.go_on()) {
            Ok(record) => {
                if sender.send((path, record)).is_err() {
                    return;
                }
            }
            Err(_) if !shared.go_on() => return,
            // Unreadable, or gone since the walk: no part of the index.
            Err(_) => {
                shared.unreadable.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A write in flight.
type InFlight = (u64, Instant, Op<()>);

fn submit(
    writer: u32,
    db: &Db,
    files: &Keyspace,
    journal: &Keyspace,
    found: &Receiver<Found>,
    in_flight: &SyncSender<InFlight>,
    shared: &Shared,
) -> Result<()> {
    let mut sequence = 0;
    let mut stale_attempts = 0;
    let mut last = None;
    while !shared.finish.load(Ordering::Relaxed) {
        let fenced = shared.fenced.load(Ordering::Relaxed);
        if fenced && stale_attempts >= STALE_ATTEMPTS {
            return Ok(());
        }
        let group: Vec<Found> = if fenced {
            last.iter().cloned().cycle().take(STALE_ATTEMPTS.min(GROUP)).collect()
        } else {
            next_group(found)
        };
        if group.is_empty() {
            // The threads that look at files stop at the first refusal; the attempts of a stale
            // writer are still to be made.
            if last.is_some() && shared.fenced.load(Ordering::Relaxed) && !fenced {
                continue;
            }
            return if sequence == 0 {
                Err(Failure::Usage("no readable file: name another tree with --source".to_owned()))
            } else {
                Ok(())
            };
        }
        stale_attempts += if fenced { group.len() } else { 0 };
        last = group.last().cloned();
        let writes: Vec<(u64, PathBuf, Vec<u8>)> = group
            .into_iter()
            .map(|(path, record)| {
                sequence += 1;
                (sequence, path, Record { writer, sequence, ..record }.encode())
            })
            .collect();
        announce(&writes, shared)?;
        for (sequence, path, record) in writes {
            let key = tree::key(&path);
            let mut batch = Batch::new();
            batch.put(files, key, &record).put(
                journal,
                journal_key(writer, sequence),
                [&record, key].concat(),
            );
            let begun = Instant::now();
            if in_flight.send((sequence, begun, write_in_order(db, batch))).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Begins a durable write. One without room would take its place when it is waited for, behind
/// later ones; so it waits for room here.
fn write_in_order(db: &Db, mut batch: Batch) -> Op<()> {
    loop {
        match db.try_write(batch, Durability::Durable) {
            Ok(operation) => return operation,
            Err(rejected) => batch = rejected.batch,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next files of the tree: those ready, but at least one.
fn next_group(found: &Receiver<Found>) -> Vec<Found> {
    found.recv().into_iter().chain(found.try_iter().take(GROUP - 1)).collect()
}

fn announce(writes: &[(u64, PathBuf, Vec<u8>)], shared: &Shared) -> Result<()> {
    let intents: Vec<Message> = writes
        .iter()
        .map(|(sequence, path, record)| Message::Intent {
            sequence: *sequence,
            record: record.clone(),
            path: tree::key(path).to_vec(),
        })
        .collect();
    shared.pipe.send(&intents).map_err(report_failure)
}

/// Waits for the writes in their order and reports how each ended.
fn acknowledge(in_flight: &Receiver<InFlight>, shared: &Shared) -> Result<()> {
    let mut reports = Vec::new();
    let mut fenced = None;
    let mut waiting: Option<InFlight> = None;
    while let Some((sequence, begun, operation)) = waiting.take().or_else(|| in_flight.recv().ok()) {
        let mut ended = end(sequence, begun, operation.wait())?;
        // Take all that have arrived, so that one system call reports them.
        loop {
            if matches!(ended, Message::Refused { .. }) {
                shared.fenced.store(true, Ordering::Relaxed);
                fenced = Some(());
            }
            reports.push(ended);
            let Ok((sequence, begun, operation)) = in_flight.try_recv() else { break };
            match operation.try_take() {
                Ok(result) => ended = end(sequence, begun, result)?,
                Err(operation) => {
                    waiting = Some((sequence, begun, operation));
                    break;
                }
            }
        }
        shared.pipe.send(&reports).map_err(report_failure)?;
        reports.clear();
    }
    match fenced {
        Some(()) => {
            Err(tombolo::Error::new(ErrorKind::Fenced, "another process has taken the database over").into())
        }
        None => Ok(()),
    }
}

fn end(sequence: u64, begun: Instant, result: tombolo::Result<()>) -> Result<Message> {
    match result {
        Ok(()) => Ok(Message::Acknowledged { sequence, latency_nanos: nanos(begun.elapsed()) }),
        Err(error) if error.kind() == ErrorKind::Fenced => Ok(Message::Refused { sequence }),
        Err(error) => Err(error.into()),
    }
}
