//! Kills a real writer process with SIGKILL at random moments, and checks after each kill that what
//! it acknowledged is there.
//!
//! The oracle: each thread's batches are numbered, and each writes its number under a marker key.
//! After a kill the database must hold, for each thread, exactly the state after its first `m`
//! batches, where `m` is the marker, not below the last acknowledged batch and not above the last
//! announced one. That is durability, order and wholeness in one comparison.

pub mod judge;
pub mod script;
pub mod writer;

use std::ffi::OsString;
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use rand::Rng;
use serde_json::json;
use tombolo::{Db, OpenMode, Presence};

use self::script::{KEYSPACES, State, THREADS};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::note::note;
use crate::output::Output;
use crate::process::Message;
use crate::process::child::Writer;
use crate::text;

/// Arguments of `crash`.
#[derive(Args)]
pub struct Arguments {
    /// How many times to kill.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Form of the local log.
    #[arg(long, value_parser = ["mapped", "written"])]
    form: Option<String>,
    /// Seed of keys, values and moments.
    #[arg(long)]
    seed: Option<u64>,
    /// Where to keep the database; it must not exist, and is kept.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The store of the database, as a URI, instead of a directory: no database may be there, and
    /// it is kept.
    #[arg(long, value_name = "URI", conflicts_with_all = ["directory", "form"])]
    store: Option<String>,
    /// The log store, as a URI; the store's own log when not given.
    #[arg(long, value_name = "URI", conflicts_with = "form")]
    log: Option<String>,
    /// Longest life of a writer, in milliseconds.
    #[arg(long, default_value_t = 150)]
    life_ms: u64,
}

/// What a writer said of one thread's batches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// The last batch that it was about to write.
    pub announced: u64,
    /// The last one that was acknowledged.
    pub acknowledged: u64,
}

/// What a writer said.
#[derive(Clone, Debug, Default)]
struct Ears {
    heard: Vec<Heard>,
    failed: Option<String>,
    memory: Memory,
}

/// What writers took and met, over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// The most bytes of its own (heap and stacks, not mapped files) that one process was seen
    /// with.
    pub own_peak_bytes: u64,
    /// The most bytes that one process was seen to hold: of the allocator and of mappings, not what
    /// was freed and is kept for later.
    pub held_peak_bytes: u64,
    /// The most bytes charged to the budget.
    pub budget_peak_bytes: u64,
    /// Faults met, in all.
    pub faults: u64,
    /// Handles that ended and were opened again, in all.
    pub reopened: u64,
}

impl Memory {
    fn add(&mut self, other: Memory) {
        self.own_peak_bytes = self.own_peak_bytes.max(other.own_peak_bytes);
        self.held_peak_bytes = self.held_peak_bytes.max(other.held_peak_bytes);
        self.budget_peak_bytes = self.budget_peak_bytes.max(other.budget_peak_bytes);
        self.faults += other.faults;
        self.reopened += other.reopened;
    }
}

/// Removes the databases of a run.
pub fn remove(folder: &Path) -> Result<()> {
    std::fs::remove_dir_all(folder)
        .map_err(|error| Failure::io(error, format!("removing {}", folder.display())))
}

/// Refuses a place where a database is: it would be taken from its writer, and written to.
pub fn check_new(store: &str, how: &HowArguments) -> Result<()> {
    match database::builder(store, how)?.presence(Duration::ZERO).wait()? {
        Presence::Nobody => Ok(()),
        _ => Err(Failure::Usage(format!("{store} holds a database: name a new place"))),
    }
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| tombolo::Env::real().random_u64());
    let folder = if arguments.store.is_some() { None } else { Some(folder(arguments)?) };
    let store = match (&arguments.store, &folder) {
        (None, Some((folder, _))) => {
            format!(
                "file://{}",
                folder.to_str().ok_or_else(|| Failure::Usage(format!("{} is no UTF-8", folder.display())))?
            )
        }
        (store, _) => store.clone().unwrap_or_default(),
    };
    let log =
        arguments.form.as_ref().map(|form| format!("{store}?form={form}")).or_else(|| arguments.log.clone());
    // Small memtables: flushes and trims happen all the time.
    let how = HowArguments {
        log,
        settings: vec!["memory_bytes=8388608".to_owned(), "memtable_bytes=262144".to_owned()],
        cold_store: None,
    };
    check_new(&store, &how)?;
    let mut test = Test::new(store.clone(), how, seed, "crash-writer", script::KEYS, 0..=arguments.life_ms);
    for round in 1..=arguments.rounds {
        if let Err(failure) = test.round(round) {
            let form = arguments.form.as_deref().unwrap_or("the default");
            return Err(Failure::Check(format!(
                "round {round} of seed {seed}, {form} form: {failure}\n  the database is kept: {store}\n  \
                again: cargo xtask crash --rounds {round} --seed {seed}"
            )));
        }
        if round.is_multiple_of(10) && !output.is_json() {
            note(format_args!(
                "{round} kills, {} batches acknowledged, none lost",
                text::count(test.acknowledged)
            ));
        }
    }
    if let Some((folder, true)) = &folder {
        remove(folder)?;
    }
    test.tested()?;
    let form = arguments.form.as_deref().unwrap_or("default");
    output.result(
        || {
            json!({
                "rounds": arguments.rounds, "seed": seed, "form": form,
                "batches_acknowledged": test.acknowledged,
                "batches_unacknowledged_surviving": test.surviving
            })
        },
        || {
            let (acknowledged, surviving) = (text::count(test.acknowledged), text::count(test.surviving));
            format!(
                "{} kills of a real process, log form {form}, seed {seed}: {acknowledged} batches \
                acknowledged, 0 lost, 0 half; {surviving} unacknowledged ones survived whole",
                arguments.rounds
            )
        },
    )
}

fn folder(arguments: &Arguments) -> Result<(PathBuf, bool)> {
    if let Some(folder) = &arguments.directory {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::io(error, format!("making {}", folder.display())))?;
        let folder = folder
            .canonicalize()
            .map_err(|error| Failure::io(error, format!("finding {}", folder.display())))?;
        return Ok((folder, false));
    }
    let folder = std::env::temp_dir().join(format!(
        "tombolo-crash-{}-{}",
        std::process::id(),
        arguments.form.as_deref().unwrap_or("default")
    ));
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::io(error, format!("making {}", folder.display())))?;
    Ok((folder, true))
}

/// Lives grow to at most so many times what was asked.
const STRETCH_MAX: u64 = 64;

/// Rounds of writing, killing and checking.
pub struct Test {
    store: String,
    how: HowArguments,
    seed: u64,
    /// The command of a writer.
    writer: &'static str,
    keys: u32,
    life_ms: RangeInclusive<u64>,
    /// The state of each thread's keys after its last batch in the database.
    base: Vec<State>,
    /// The number of that batch.
    last: Vec<u64>,
    /// How many times longer than asked lives are: doubled while nothing is acknowledged, on a
    /// machine too busy for short ones.
    stretch: u64,
    /// Batches acknowledged so far.
    pub acknowledged: u64,
    surviving: u64,
    /// What the writers took.
    pub memory: Memory,
}

impl Test {
    /// Rounds on a database that does not exist yet.
    pub fn new(
        store: String,
        how: HowArguments,
        seed: u64,
        writer: &'static str,
        keys: u32,
        life_ms: RangeInclusive<u64>,
    ) -> Test {
        let threads = usize::from(THREADS);
        let (base, last) = (vec![State::default(); threads], vec![0; threads]);
        Test {
            store,
            how,
            seed,
            writer,
            keys,
            life_ms,
            base,
            last,
            stretch: 1,
            acknowledged: 0,
            surviving: 0,
            memory: Memory::default(),
        }
    }

    /// Whether anything was tested.
    ///
    /// # Errors
    /// `Check` when no batch was acknowledged: nothing could be lost.
    pub fn tested(&self) -> Result<()> {
        match self.acknowledged {
            0 => Err(Failure::Check(
                "no batch was acknowledged before a kill, so nothing was tested; ask for more rounds, or \
                try on a quieter machine"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Starts a writer, kills it, and checks the database.
    ///
    /// # Errors
    /// What was lost or wrong.
    pub fn round(&mut self, round: u64) -> Result<()> {
        let heard = self.write_and_kill(round)?;
        let db = database::open(&self.store, &self.how, OpenMode::CreateOrOpen)?;
        for thread in 0..THREADS {
            self.check(&db, round, thread, heard[usize::from(thread)])?;
        }
        if self.acknowledged == 0 {
            self.stretch = (self.stretch * 2).min(STRETCH_MAX);
        }
        if round.is_multiple_of(20)
            && let Some(damage) = db.verify().wait()?.damage.first()
        {
            return Err(Failure::Check(format!("verify found {damage}")));
        }
        // Closed in half of the rounds, dropped in the others: the next writer finds both.
        if round.is_multiple_of(2) {
            db.close().wait()?;
        }
        Ok(())
    }

    fn write_and_kill(&mut self, round: u64) -> Result<Vec<Heard>> {
        let heard = self.last.iter().map(|last| Heard { announced: *last, acknowledged: *last }).collect();
        let ears = Arc::new(Mutex::new(Ears { heard, ..Ears::default() }));
        let listening = Arc::clone(&ears);
        let heard =
            move |message| hear(&mut listening.lock().unwrap_or_else(PoisonError::into_inner), message);
        let writer = Writer::start(&self.writer_arguments(round), heard)
            .map_err(|error| Failure::io(error, "starting a writer"))?;
        let mut random = tombolo_workload::random(self.seed, round);
        std::thread::sleep(Duration::from_micros(
            random.random_range(self.life_ms.start() * 1000..=self.life_ms.end() * 1000) * self.stretch,
        ));
        writer.kill().map_err(|error| Failure::io(error, "killing a writer"))?;
        let Ears { heard, failed, memory } = ears.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.memory.add(memory);
        match failed {
            Some(text) => Err(Failure::Check(format!("the writer failed before it was killed: {text}"))),
            None => Ok(heard),
        }
    }

    fn writer_arguments(&self, round: u64) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            vec![self.writer.into(), "--store".into(), self.store.clone().into()];
        for (name, value) in
            [("--seed", self.seed), ("--round", round), ("--parent", u64::from(std::process::id()))]
        {
            arguments.extend([name.into(), value.to_string().into()]);
        }
        if let Some(log) = &self.how.log {
            arguments.extend(["--log".into(), log.into()]);
        }
        for setting in &self.how.settings {
            arguments.extend(["--set".into(), setting.into()]);
        }
        for last in &self.last {
            arguments.extend(["--last".into(), last.to_string().into()]);
        }
        arguments
    }

    fn check(&mut self, db: &Db, round: u64, thread: u8, heard: Heard) -> Result<()> {
        let found = read(db, thread)?;
        let index = usize::from(thread);
        let before = self.last[index];
        let batch = |number| script::batch(self.keys, self.seed, round, thread, number);
        let marker = judge(&mut self.base[index], before, &found, heard, batch)
            .map_err(|what| Failure::Check(format!("thread {thread}: {what}")))?;
        self.acknowledged += heard.acknowledged - before;
        self.surviving += marker - heard.acknowledged;
        self.last[index] = marker;
        Ok(())
    }
}

/// Whether what was found of a thread's keys is what its batches up to the marker give: brings
/// `state` from batch `last` to that batch, and returns its number.
///
/// # Errors
/// The lost, invented or half written entries, in words.
pub fn judge(
    state: &mut State,
    last: u64,
    found: &State,
    heard: Heard,
    batch: impl Fn(u64) -> script::Scripted,
) -> std::result::Result<u64, String> {
    let Heard { announced, acknowledged } = heard;
    let marker = found.marker();
    if marker < acknowledged {
        return Err(format!("batch {acknowledged} was acknowledged, the last one there is {marker}"));
    }
    if marker > announced {
        return Err(format!("batch {marker} is there, the last one announced is {announced}"));
    }
    for number in last + 1..=marker {
        state.apply(&batch(number));
    }
    if let Some((place, mut difference)) = state.difference(found) {
        for number in last + 1..=announced {
            let batch = batch(number);
            for write in
                batch.writes.iter().filter(|write| (write.keyspace, &write.key) == (place.0, &place.1))
            {
                let what = write
                    .value
                    .as_ref()
                    .map_or("deletes it".to_owned(), |value| format!("puts {} bytes", value.len()));
                difference += &format!(
                    "\n  batch {number} ({:?}, {} writes) {what}",
                    batch.durability,
                    batch.writes.len()
                );
            }
        }
        return Err(format!(
            "after batch {marker} (acknowledged {acknowledged}, announced {announced}): {difference}"
        ));
    }
    Ok(marker)
}

fn hear(ears: &mut Ears, message: Message) {
    let place =
        |sequence: u64| (usize::try_from(sequence >> 56).unwrap_or(usize::MAX), sequence & ((1 << 56) - 1));
    match message {
        Message::Intent { sequence, .. } => {
            let (thread, number) = place(sequence);
            if let Some(heard) = ears.heard.get_mut(thread) {
                heard.announced = number;
            }
        }
        Message::Acknowledged { sequence, .. } => {
            let (thread, number) = place(sequence);
            if let Some(heard) = ears.heard.get_mut(thread) {
                heard.acknowledged = number;
            }
        }
        Message::Ended { text, .. } => ears.failed = Some(text),
        Message::Memory { own_peak_bytes, held_peak_bytes, budget_peak_bytes, faults, reopened } => {
            // Each replaces the one before, the first two apart: they are of the whole time since
            // the process began.
            let own_peak_bytes = own_peak_bytes.max(ears.memory.own_peak_bytes);
            let held_peak_bytes = held_peak_bytes.max(ears.memory.held_peak_bytes);
            ears.memory = Memory { own_peak_bytes, held_peak_bytes, budget_peak_bytes, faults, reopened };
        }
        Message::Opened { .. }
        | Message::Refused { .. }
        | Message::Unreadable { .. }
        | Message::Seen { .. } => {}
    }
}

/// Everything that a thread's keys hold, read twice: by a scan and by gets.
pub fn read(db: &Db, thread: u8) -> Result<State> {
    let mut state = State::default();
    for (index, name) in KEYSPACES.iter().enumerate() {
        // A writer killed before its first batch may have left no second keyspace.
        let Ok(keyspace) = db.keyspace(name) else { continue };
        for entry in
            keyspace.scan::<Vec<u8>>((Bound::Included(vec![thread]), Bound::Excluded(vec![thread + 1])))
        {
            let (key, value) = entry?;
            let got = keyspace.get(&key).wait()?;
            if got.as_deref() != Some(&value[..]) {
                return Err(Failure::Check(format!(
                    "a get and a scan of {} differ in keyspace {name}",
                    text::shown(&key)
                )));
            }
            state.set(index, &key, Some(&value));
        }
    }
    Ok(state)
}
