//! A worker of the soak: threads that write scripted batches and check what they read, on stores
//! that misbehave, until killed.
//!
//! Invariants:
//! 1. A thread writes batch `n + 1` only after batch `n` took effect: one that may not have is
//!    written again, which changes nothing when it had.
//! 2. When a handle has ended, all threads stop; the database is opened again, and must hold what
//!    was acknowledged, whole and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng;
use tombolo::{Batch, Db, Env, Error, ErrorKind, Keyspace, OpenMode, Options};
use tombolo_storage::Uri;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Chances, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};

use super::KEYS;
use crate::crash::script::{self, KEYSPACES, Known, State, THREADS};
use crate::crash::writer::{Arguments, open_keyspaces, tag};
use crate::crash::{Heard, judge, read};
use crate::failure::{Failure, Result};
use crate::machine::Memory;
use crate::process::Message;
use crate::process::child::{Pipe, die_with_parent, finish_requested};

/// One of so many reads of objects is answered short, while times are rough.
const SHORT_EVERY: u64 = 400;

/// Runs until killed, or until standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    die_with_parent(arguments.parent).map_err(|error| Failure::io(error, "starting a worker"))?;
    let worker = Worker {
        arguments,
        env: Env::real(),
        pipe: Pipe::default(),
        plan: FaultPlan::random(arguments.seed ^ arguments.round, Chances::NONE),
        finish: finish_requested(),
        reopened: AtomicU64::new(0),
    };
    let result = worker.run();
    if let Err(failure) = &result {
        worker.report(Message::Ended { exit_code: failure.exit_code(), text: failure.to_string() })?;
    }
    result
}

struct Worker<'a> {
    arguments: &'a Arguments,
    env: Env,
    pipe: Pipe,
    plan: FaultPlan,
    finish: Arc<AtomicBool>,
    reopened: AtomicU64,
}

/// What a thread knows of its keys.
struct Thread {
    number: u8,
    /// The state after batch `last`.
    state: State,
    last: u64,
    heard: Heard,
}

/// What every error may be while stores misbehave; a bug is none of them, and a wrong answer is no
/// error.
fn check_kind(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::Bug { Err(error.into()) } else { Ok(()) }
}

/// Whether nothing took effect, or what did is the same when it is done again.
fn may_be_repeated(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Retry | ErrorKind::Busy | ErrorKind::OutOfSpace | ErrorKind::DeadlineExceeded)
}

impl Worker<'_> {
    fn report(&self, message: Message) -> Result<()> {
        self.pipe.send(&[message]).map_err(|error| Failure::io(error, "reporting to the parent process"))
    }

    fn is_finishing(&self) -> bool {
        self.finish.load(Ordering::Relaxed)
    }

    fn run(&self) -> Result<()> {
        let mut threads: Option<Vec<Thread>> = None;
        while !self.is_finishing() {
            let db = match self.open() {
                Ok(db) => db,
                Err(failure) => {
                    self.plan.set_chances(Chances::NONE);
                    self.plan.set_full(false);
                    self.plan.clear();
                    std::thread::sleep(Duration::from_millis(5));
                    let Failure::Engine(error) = failure else { return Err(failure) };
                    check_kind(error)?;
                    continue;
                }
            };
            self.live(&db, &mut threads)?;
            // Calm, so that what comes next is begun on sound ground half of the time.
            self.plan.clear();
            drop(db);
            self.reopened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Opens the database on its stores with faults over them.
    fn open(&self) -> Result<Db> {
        let (env, registry) = (&self.env, crate::database::registry());
        let store = Uri::parse(&self.arguments.store)?;
        let log = self.arguments.how.log.as_deref().map(Uri::parse).transpose()?;
        let objects = registry.open_object_store(env, &store)?;
        let logs = registry.open_log_store(env, &store, log.as_ref(), &objects)?;
        let objects = Arc::new(FaultObjectStore::new(env, objects, self.plan.clone()));
        let logs = Arc::new(FaultLogStore::new(env, logs, self.plan.clone()));
        let options = Options::parse(self.arguments.how.settings.iter().map(String::as_str))?;
        let builder = Db::builder(&self.arguments.store)
            .env(env.clone())
            .stores(objects, logs)
            .mode(OpenMode::CreateOrOpen);
        Ok(builder.options(options).open().wait()?)
    }

    /// Until the handle has ended, or all shall finish.
    fn live(&self, db: &Db, threads: &mut Option<Vec<Thread>>) -> Result<()> {
        self.plan.set_chances(Chances::NONE);
        self.plan.set_full(false);
        self.plan.clear();
        let keyspaces = match open_keyspaces(db) {
            Ok(keyspaces) => keyspaces,
            Err(Failure::Engine(error)) => return check_kind(error),
            Err(failure) => return Err(failure),
        };
        let known = match self.know(db, threads.as_deref()) {
            Ok(known) => threads.insert(known),
            Err(Failure::Engine(error)) => return check_kind(error),
            Err(failure) => return Err(failure),
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = known
                .iter_mut()
                .map(|thread| {
                    let (keyspaces, over) = (&keyspaces, &over);
                    scope.spawn(move || {
                        let result = self.write_and_read(db, keyspaces, thread, over);
                        over.store(true, Ordering::Relaxed);
                        result
                    })
                })
                .collect();
            let disturbed = self.disturb(db, &over);
            over.store(true, Ordering::Relaxed);
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(Failure::Check("a thread panicked".to_owned())))
            })?;
            disturbed
        })
    }

    /// Reads the database, and judges it against what was known.
    fn know(&self, db: &Db, known: Option<&[Thread]>) -> Result<Vec<Thread>> {
        let Arguments { seed, round, .. } = *self.arguments;
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let found = read(db, number)?;
            let before = known.and_then(|known| known.get(usize::from(number)));
            let marker = match before {
                None => found.marker(),
                Some(thread) => {
                    let mut state = thread.state.clone();
                    judge(&mut state, thread.last, &found, thread.heard, |batch| {
                        script::batch(KEYS, seed, round, number, batch)
                    })
                    .map_err(|what| Failure::Check(format!("thread {number}, after opening again: {what}")))?
                }
            };
            threads.push(Thread {
                number,
                state: found,
                last: marker,
                heard: Heard { announced: marker, acknowledged: marker },
            });
        }
        Ok(threads)
    }

    /// Writes and reads until the handle has ended.
    fn write_and_read(
        &self,
        db: &Db,
        keyspaces: &[Keyspace],
        thread: &mut Thread,
        over: &AtomicBool,
    ) -> Result<()> {
        let Arguments { seed, round, .. } = *self.arguments;
        let mut random = tombolo_workload::random(seed ^ round, 100 + u64::from(thread.number) + thread.last);
        let mut kept: Option<(tombolo::Snapshot, State)> = None;
        while !over.load(Ordering::Relaxed) && !self.is_finishing() {
            let number = thread.last + 1;
            let scripted = script::batch(KEYS, seed, round, thread.number, number);
            self.report(Message::Intent {
                sequence: tag(thread.number, number),
                record: Vec::new(),
                path: Vec::new(),
            })?;
            thread.heard.announced = number;
            loop {
                let mut batch = Batch::new();
                for write in &scripted.writes {
                    let keyspace = &keyspaces[write.keyspace];
                    match &write.value {
                        Some(value) => batch.put(keyspace, &write.key, value),
                        None => batch.delete(keyspace, &write.key),
                    };
                }
                match db.write_with(batch, scripted.durability).wait() {
                    Ok(()) => break,
                    Err(error) if may_be_repeated(error.kind()) => {
                        std::thread::sleep(Duration::from_millis(2));
                        if over.load(Ordering::Relaxed) || self.is_finishing() {
                            return Ok(());
                        }
                    }
                    Err(error) => return check_kind(error),
                }
            }
            self.report(Message::Acknowledged { sequence: tag(thread.number, number), latency_nanos: 0 })?;
            thread.heard.acknowledged = number;
            thread.last = number;
            thread.state.apply(&scripted);
            if number.is_multiple_of(8) {
                self.check_some(keyspaces, thread, &mut random)?;
            }
            if number.is_multiple_of(512) {
                if let Some((snapshot, state)) = kept.take() {
                    check_all(&snapshot, keyspaces, thread.number, &state)?;
                }
                kept = Some((db.snapshot(), thread.state.clone()));
            }
        }
        Ok(())
    }

    /// Reads some keys, there or not, in each way.
    fn check_some(&self, keyspaces: &[Keyspace], thread: &Thread, random: &mut impl Rng) -> Result<()> {
        for _ in 0..4 {
            let place = random.random_range(0..KEYSPACES.len());
            let key = script::key(thread.number, random.random_range(0..KEYS));
            match keyspaces[place].get(&key).wait() {
                Ok(value) => check_value(thread, place, &key, value.as_deref())?,
                Err(error) => check_kind(error)?,
            }
        }
        let place = random.random_range(0..KEYSPACES.len());
        let from = random.random_range(0..KEYS - 40);
        let (from, to) = (script::key(thread.number, from), script::key(thread.number, from + 40));
        let mut expected = thread.state.range(place, &from, &to);
        let wrong = || {
            Failure::Check(format!(
                "thread {}, batch {}: a scan gives a wrong answer",
                thread.number, thread.last
            ))
        };
        for entry in keyspaces[place].scan(from.clone()..to.clone()) {
            match entry {
                Ok((key, value)) if expected.next() != Some((&key[..], Known::of(&value))) => {
                    return Err(wrong());
                }
                Ok(_) => {}
                Err(error) => return check_kind(error),
            }
        }
        if expected.next().is_some() { Err(wrong()) } else { Ok(()) }
    }

    /// Changes the weather, flushes and compacts, and tells what the process takes.
    fn disturb(&self, db: &Db, over: &AtomicBool) -> Result<()> {
        let mut random = tombolo_workload::random(self.arguments.seed ^ self.arguments.round, 99);
        let mut turn = 0u64;
        while !over.load(Ordering::Relaxed) && !self.is_finishing() {
            turn += 1;
            match random.random_range(0..10) {
                0..=3 => self.plan.set_chances(Chances::NONE),
                4..=7 => {
                    let rough = Chances {
                        delay_max: Duration::from_millis(4),
                        lateness_max: Duration::from_millis(300),
                        ..Chances::ROUGH
                    };
                    self.plan.set_chances(rough);
                    let mut reads = random.random_range(0..SHORT_EVERY);
                    let short = move |asked: &tombolo_storage::layer::fault::Asked<'_>| {
                        reads += u64::from(asked.kind == RequestKind::Read && asked.bytes > 1);
                        asked.kind == RequestKind::Read
                            && asked.bytes > 1
                            && reads.is_multiple_of(SHORT_EVERY)
                    };
                    self.plan.clear();
                    self.plan.inject(Rule::new(short, Fault::Short(1)).times(3));
                }
                8 => {
                    self.plan.set_full(true);
                    std::thread::sleep(Duration::from_millis(random.random_range(20..400)));
                    self.plan.set_full(false);
                }
                _ => {
                    let result = if turn.is_multiple_of(3) { db.compact().wait() } else { db.flush().wait() };
                    result.or_else(check_kind)?;
                }
            }
            std::thread::sleep(Duration::from_millis(random.random_range(20..200)));
            let memory = Memory::look();
            self.report(Message::Memory {
                own_peak_bytes: memory.own_bytes,
                held_peak_bytes: memory.held_bytes,
                budget_peak_bytes: db.memory().peak_bytes(),
                faults: self.plan.injected(),
                reopened: self.reopened.load(Ordering::Relaxed),
            })?;
        }
        Ok(())
    }
}

fn check_value(thread: &Thread, place: usize, key: &[u8], found: Option<&[u8]>) -> Result<()> {
    let (expected, found) = (thread.state.get(place, key), found.map(Known::of));
    if found == expected {
        return Ok(());
    }
    let say =
        |value: Option<Known>| value.map_or("nothing".to_owned(), |value| format!("{} bytes", value.bytes()));
    Err(Failure::Check(format!(
        "thread {}, batch {}: key {} of keyspace {}: found {}, expected {}",
        thread.number,
        thread.last,
        crate::text::shown(key),
        KEYSPACES[place],
        say(found),
        say(expected)
    )))
}

/// Compares all that a snapshot shows of a thread's keys.
fn check_all(snapshot: &tombolo::Snapshot, keyspaces: &[Keyspace], number: u8, state: &State) -> Result<()> {
    let mut found = State::default();
    for (place, keyspace) in keyspaces.iter().enumerate() {
        for entry in snapshot.scan(keyspace, vec![number]..vec![number + 1]) {
            match entry {
                Ok((key, value)) => found.set(place, &key, Some(&value)),
                Err(error) => return check_kind(error),
            };
        }
    }
    match state.difference(&found) {
        None => Ok(()),
        Some((_, words)) => Err(Failure::Check(format!("thread {number}: a snapshot has changed: {words}"))),
    }
}
