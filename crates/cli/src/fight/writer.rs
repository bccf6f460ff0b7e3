//! A writer of a fight: opens the database, tells what it finds, writes until it is fenced, waits a
//! moment, opens it again. A standby does the same, and takes the database over where the other
//! opens it: when its writer has fallen silent.
//!
//! Invariant: a thread writes batch `n + 1` only after batch `n` took effect, as in `soak`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use rand::Rng;
use tombolo::{Batch, Db, Error, ErrorKind, Keyspace, OpenMode, StandbyOptions};

use super::oracle::Place;
use super::script;
use crate::crash::script::THREADS;
use crate::crash::writer::{open_keyspaces, tag};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::process::Message;
use crate::process::child::{Pipe, die_with_parent, finish_requested};

/// The longest that a writer which was fenced leaves the database to the other.
const TRUCE_MS_MAX: u64 = 1_500;

/// Arguments of `fight-writer`.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
    #[arg(long)]
    pub seed: u64,
    /// Tells the processes of a fight apart.
    #[arg(long)]
    pub process: u64,
    #[arg(long)]
    pub parent: u32,
}

/// The names of checkpoints begin so.
pub const CHECKPOINT_PREFIX: &str = "fight-";

/// How a writer gets the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Takes it from the process that has it.
    Open,
    /// Waits until the process that has it falls silent.
    StandBy,
}

/// How long a writer may be silent: short, so that a standby gets its turn among writers that come
/// back within [`TRUCE_MS_MAX`].
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// Runs until killed, or until standard input ends.
pub fn run(arguments: &Arguments, entry: Entry) -> Result<()> {
    die_with_parent(arguments.parent).map_err(|error| Failure::io(error, "starting a writer"))?;
    let pipe = Pipe::default();
    let result = fight(arguments, entry, &pipe);
    if let Err(failure) = &result {
        report(&pipe, Message::Ended { exit_code: failure.exit_code(), text: failure.to_string() })?;
    }
    result
}

/// Tells the parent.
pub fn report(pipe: &Pipe, message: Message) -> Result<()> {
    pipe.send(&[message]).map_err(|error| Failure::io(error, "reporting to the parent process"))
}

/// What a store that is far away and a rival may answer; damage, bugs and mistakes are none of it.
pub fn check_kind(failure: Failure) -> Result<()> {
    use ErrorKind::{Busy, Closed, Conflict, DeadlineExceeded, Fenced, OutcomeUnknown, PinLost, Retry};
    match failure {
        Failure::Engine(error)
            if matches!(
                error.kind(),
                Busy | Closed | Conflict | DeadlineExceeded | Fenced | OutcomeUnknown | PinLost | Retry
            ) =>
        {
            Ok(())
        }
        failure => Err(failure),
    }
}

fn fight(arguments: &Arguments, entry: Entry, pipe: &Pipe) -> Result<()> {
    let finish = finish_requested();
    let mut random = tombolo_workload::random(arguments.seed, arguments.process);
    while !finish.load(Ordering::Relaxed) {
        if let Some(db) =
            enter(arguments, entry, &finish).or_else(|failure| check_kind(failure).map(|()| None))?
        {
            live(&db, arguments, pipe, &finish, random.random()).or_else(check_kind)?;
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..TRUCE_MS_MAX)));
    }
    Ok(())
}

/// The database, open to write; `None` when it is time to end.
fn enter(arguments: &Arguments, entry: Entry, finish: &AtomicBool) -> Result<Option<Db>> {
    let opened = match entry {
        Entry::Open => return database::open(&arguments.store, &arguments.how, OpenMode::Open).map(Some),
        Entry::StandBy => {
            let builder = database::builder(&arguments.store, &arguments.how)?;
            interrupt::wait(builder.stand_by(StandbyOptions { silence_max: SILENCE_MAX }), finish, || ())
                .and_then(|standby| interrupt::wait(standby.take_over(), finish, || ()))
        }
    };
    match opened {
        Err(Failure::Interrupted) => Ok(None),
        opened => opened.map(Some),
    }
}

/// One epoch.
fn live(db: &Db, arguments: &Arguments, pipe: &Pipe, finish: &AtomicBool, seed: u64) -> Result<()> {
    let epoch = db.epoch().0;
    let sights = script::look(db, &db.snapshot())?;
    report(
        pipe,
        Message::Opened {
            epoch,
            open_nanos: db.stats().open_nanos,
            replayed_bytes: db.stats().replayed_bytes,
        },
    )?;
    for (thread, sight) in (0..).zip(&sights) {
        report(
            pipe,
            Message::Seen {
                thread,
                epoch: sight.place.epoch,
                sequence: sight.place.number,
                digest: sight.digest,
            },
        )?;
    }
    let keyspaces = open_keyspaces(db)?;
    let (over, acknowledged) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; THREADS as usize]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let writing = Writing { arguments, pipe, db, keyspaces: &keyspaces, epoch, thread };
                let (over, acknowledged) = (&over, &acknowledged[usize::from(thread)]);
                scope.spawn(move || {
                    let result = writing.write(acknowledged, || {
                        over.load(Ordering::Relaxed) || finish.load(Ordering::Relaxed)
                    });
                    over.store(true, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let disturbed = disturb(db, epoch, &acknowledged, seed, || {
            over.load(Ordering::Relaxed) || finish.load(Ordering::Relaxed)
        });
        over.store(true, Ordering::Relaxed);
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::Check("a thread panicked".into()))));
        results.chain([disturbed]).try_for_each(|result| result.or_else(check_kind))
    })?;
    if finish.load(Ordering::Relaxed) { Ok(db.close().wait()?) } else { Ok(()) }
}

/// One thread's writes.
struct Writing<'a> {
    arguments: &'a Arguments,
    pipe: &'a Pipe,
    db: &'a Db,
    keyspaces: &'a [Keyspace],
    epoch: u64,
    thread: u8,
}

impl Writing<'_> {
    fn write(&self, acknowledged: &AtomicU64, over: impl Fn() -> bool) -> Result<()> {
        for number in 1.. {
            if over() {
                break;
            }
            report(
                self.pipe,
                Message::Intent { sequence: tag(self.thread, number), record: Vec::new(), path: Vec::new() },
            )?;
            while let Err(error) = self.batch(number) {
                let again =
                    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded);
                if error.kind() == ErrorKind::Fenced {
                    report(self.pipe, Message::Refused { sequence: tag(self.thread, number) })?;
                }
                if !again || over() {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            report(
                self.pipe,
                Message::Acknowledged { sequence: tag(self.thread, number), latency_nanos: 0 },
            )?;
            acknowledged.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    fn batch(&self, number: u64) -> std::result::Result<(), Error> {
        let scripted = script::batch(self.arguments.seed, self.thread, Place { epoch: self.epoch, number });
        let mut batch = Batch::new();
        for write in &scripted.writes {
            let keyspace = &self.keyspaces[write.keyspace];
            match &write.value {
                Some(value) => batch.put(keyspace, &write.key, value),
                None => batch.delete(keyspace, &write.key),
            };
        }
        self.db.write_with(batch, scripted.durability).wait()
    }
}

/// Flushes, compacts and makes checkpoints, which say in their names what was acknowledged before.
fn disturb(
    db: &Db,
    epoch: u64,
    acknowledged: &[AtomicU64],
    seed: u64,
    over: impl Fn() -> bool,
) -> Result<()> {
    let mut random = tombolo_workload::random(seed, 7);
    let mut checkpoints = 0;
    while !over() {
        std::thread::sleep(Duration::from_millis(random.random_range(50..300)));
        let result = match random.random_range(0..8) {
            0 => db.compact().wait(),
            1 => {
                checkpoints += 1;
                let known: Vec<_> = acknowledged
                    .iter()
                    .map(|number| format!("{:x}", number.load(Ordering::Relaxed)))
                    .collect();
                db.checkpoint(&format!("{CHECKPOINT_PREFIX}{epoch:x}-{}-{checkpoints:x}", known.join("-")))
                    .wait()
                    .map(drop)
            }
            2..=4 => db.flush().wait(),
            _ => Ok(()),
        };
        result.map_err(Failure::from).or_else(check_kind)?;
    }
    Ok(())
}

/// What was acknowledged before a checkpoint of this name, of each thread; `None` when it is none
/// of a fight's.
pub fn parse_checkpoint(name: &str) -> Option<Vec<Place>> {
    let mut numbers =
        name.strip_prefix(CHECKPOINT_PREFIX)?.split('-').map(|digits| u64::from_str_radix(digits, 16).ok());
    let epoch = numbers.next()??;
    let places: Option<Vec<_>> = numbers
        .by_ref()
        .take(usize::from(THREADS))
        .map(|number| Some(Place { epoch, number: number? }))
        .collect();
    places.filter(|places| places.len() == usize::from(THREADS))
}
