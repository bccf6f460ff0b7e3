//! A writer of the crash test: threads that write scripted batches, one that flushes and compacts,
//! until killed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tombolo::{Batch, Db, ErrorKind, Keyspace, KeyspaceOptions, Op, OpenMode};

use super::script::{self, KEYSPACES, THREADS};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::process::Message;
use crate::process::child::{Pipe, die_with_parent, finish_requested};

/// Writes in flight of a thread.
const WINDOW: usize = 64;

/// Arguments of `crash-writer`.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
    #[arg(long)]
    pub seed: u64,
    #[arg(long)]
    pub round: u64,
    /// The number of each thread's last batch in the database.
    #[arg(long, num_args = 1..)]
    pub last: Vec<u64>,
    #[arg(long)]
    pub parent: u32,
}

/// Runs until killed, or until standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    die_with_parent(arguments.parent).map_err(|error| Failure::io(error, "starting a writer"))?;
    let pipe = Pipe::default();
    let result = write(arguments, &pipe);
    if let Err(failure) = &result {
        let ended = Message::Ended { exit_code: failure.exit_code(), text: failure.to_string() };
        pipe.send(&[ended]).map_err(|error| Failure::io(error, "reporting to the parent process"))?;
    }
    result
}

fn write(arguments: &Arguments, pipe: &Pipe) -> Result<()> {
    let finish = finish_requested();
    let db = database::open(&arguments.store, &arguments.how, OpenMode::CreateOrOpen)?;
    let keyspaces = open_keyspaces(&db)?;
    let opened =
        Message::Opened { epoch: db.epoch().0, open_nanos: 0, replayed_bytes: db.stats().replayed_bytes };
    pipe.send(&[opened]).map_err(|error| Failure::io(error, "reporting to the parent process"))?;
    let result = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, keyspaces, finish) = (&db, &keyspaces, &*finish);
                scope.spawn(move || write_batches(arguments, thread, db, keyspaces, pipe, finish))
            })
            .collect();
        let disturbed = disturb(arguments, &db, &finish);
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::Check("a writing thread panicked".to_owned())))
        })?;
        disturbed
    });
    result?;
    Ok(db.close().wait()?)
}

/// The keyspaces of the script; creates missing ones.
pub fn open_keyspaces(db: &Db) -> Result<Vec<Keyspace>> {
    let open = |name: &&str| match db.keyspace(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(db.create_keyspace(name, KeyspaceOptions::default()).wait()?)
        }
        other => Ok(other?),
    };
    KEYSPACES.iter().map(open).collect()
}

/// Flushes and compacts between the writes, so that kills meet every step.
fn disturb(arguments: &Arguments, db: &Db, finish: &AtomicBool) -> Result<()> {
    let mut turn = arguments.round;
    while !finish.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(7));
        turn += 1;
        let result = if turn.is_multiple_of(5) { db.compact().wait() } else { db.flush().wait() };
        result?;
    }
    Ok(())
}

/// A write's sequence in messages: the thread in the upper byte.
pub fn tag(thread: u8, number: u64) -> u64 {
    u64::from(thread) << 56 | number
}

fn write_batches(
    arguments: &Arguments,
    thread: u8,
    db: &Db,
    keyspaces: &[Keyspace],
    pipe: &Pipe,
    finish: &AtomicBool,
) -> Result<()> {
    let report = |message| {
        pipe.send(&[message]).map_err(|error| Failure::io(error, "reporting to the parent process"))
    };
    let mut in_flight: VecDeque<(u64, Op<()>)> = VecDeque::new();
    let mut number = arguments.last.get(usize::from(thread)).copied().unwrap_or(0);
    loop {
        let finishing = finish.load(Ordering::Relaxed);
        while in_flight.len() >= WINDOW || (finishing && !in_flight.is_empty()) {
            let Some((number, operation)) = in_flight.pop_front() else { break };
            operation.wait()?;
            report(Message::Acknowledged { sequence: tag(thread, number), latency_nanos: 0 })?;
        }
        if finishing {
            return Ok(());
        }
        number += 1;
        let scripted = script::batch(script::KEYS, arguments.seed, arguments.round, thread, number);
        let mut batch = Batch::new();
        for write in &scripted.writes {
            let keyspace = &keyspaces[write.keyspace];
            match &write.value {
                Some(value) => batch.put(keyspace, &write.key, value),
                None => batch.delete(keyspace, &write.key),
            };
        }
        // Announced first: what the database holds beyond the announcements was invented.
        report(Message::Intent { sequence: tag(thread, number), record: Vec::new(), path: Vec::new() })?;
        // A write without room would take its place when it is waited for, behind later ones: order
        // is kept by making room first.
        let operation = loop {
            match (db.try_write(batch, scripted.durability), in_flight.pop_front()) {
                (Ok(operation), first) => {
                    if let Some(first) = first {
                        in_flight.push_front(first);
                    }
                    break operation;
                }
                (Err(rejected), Some((number, operation))) => {
                    operation.wait()?;
                    report(Message::Acknowledged { sequence: tag(thread, number), latency_nanos: 0 })?;
                    batch = rejected.batch;
                }
                (Err(rejected), None) => {
                    std::thread::sleep(Duration::from_millis(1));
                    batch = rejected.batch;
                }
            }
        };
        in_flight.push_back((number, operation));
    }
}
