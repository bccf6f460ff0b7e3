//! Several processes fight for a database in the simulated world, on a store with a bad day: late,
//! duplicated and unknown outcomes, passing errors, delays, torn lists; processes are paused, woken
//! and killed.
//!
//! Checked for each seed: whatever was acknowledged before a load or an open began is in the state
//! that it gives; slots and epochs of acknowledged edits rise together, so that no two epochs
//! interleave; nothing that is named is missing; no unexpected error is seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::simulated::{Process, World};
use tombolo_env::{Env, TaskClass};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, KeyspaceOptions, TableDescription, TableName};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::fault::{Chances, FaultObjectStore, FaultPlan};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Incarnation, Life, ObjectKind, ObjectStore, Placement, Purpose, Request,
};

use crate::collection::Collector;
use crate::manifest::{Manifest, ManifestOptions, OpenMode, State, TableStatus, load, names};

/// The promises, and to whom.
#[derive(Debug, Default)]
struct Ledger {
    /// Epoch by slot of each acknowledged edit.
    acknowledged: BTreeMap<u64, Epoch>,
    /// Highest acknowledged number of each process.
    reached: BTreeMap<u32, u64>,
    wrong: Vec<String>,
    takeovers: u64,
    deleted: usize,
}

impl Ledger {
    /// What `reached` at some time must be in a state loaded since.
    fn check(&mut self, what: &str, before: &BTreeMap<u32, u64>, state: &State) {
        for (process, number) in before {
            let found =
                state.keyspace_by_name(&own_keyspace(*process)).map_or(0, |keyspace| keyspace.flushed.0);
            if found < *number {
                self.wrong.push(format!(
                    "{what}: process {process} was acknowledged {number}, the state of slot {} has {found}",
                    state.slot()
                ));
            }
        }
    }
}

/// A process's number is how far a keyspace of its own was flushed.
fn own_keyspace(process: u32) -> String {
    format!("of process {process}")
}

type Shared = Arc<Mutex<Ledger>>;

fn is_expected(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Fenced
            | Kind::Retry
            | Kind::OutcomeUnknown
            | Kind::Busy
            | Kind::Closed
            | Kind::DeadlineExceeded
    )
}

fn description(name: TableName) -> TableDescription {
    TableDescription {
        name,
        offset: 0,
        length: 5,
        identity: name.random,
        keyspace: 0,
        level: 0,
        first_key: Bytes::new(),
        last_key: Bytes::new(),
        first_sequence: SequenceNumber(0),
        last_sequence: SequenceNumber(0),
        entries: 0,
        deletes: 0,
        tail_bytes: 1,
        oldest_unix_seconds: 0,
        features: 0,
        properties: tombolo_format::property::PropertyList::default(),
        source: None,
    }
}

struct Contender {
    env: Env,
    store: Arc<dyn ObjectStore>,
    process: u32,
    number: u64,
    ledger: Shared,
}

impl Contender {
    async fn run(mut self, rounds: u32, edits: u32) {
        for _ in 0..rounds {
            if let Err(error) = self.round(edits).await
                && !is_expected(&error)
            {
                self.ledger.lock().wrong.push(format!("process {}: {error}", self.process));
            }
            self.env.sleep(Duration::from_millis(self.env.random_u64() % 3000)).await;
        }
    }

    async fn round(&mut self, edits: u32) -> tombolo_storage::Result<()> {
        let before = self.ledger.lock().reached.clone();
        if self.env.random_u64().is_multiple_of(3) {
            match load(&self.env, &self.store).await {
                Ok(loaded) => self.ledger.lock().check("load", &before, &loaded.state),
                Err(error) if error.kind() == ErrorKind::NotFound && before.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        let options = ManifestOptions { mode: OpenMode::CreateOrOpen, log_identity: "none".into() };
        let (manifest, state) = Manifest::open(&self.env, Arc::clone(&self.store), options).await?;
        {
            let mut ledger = self.ledger.lock();
            ledger.check("open", &before, &state);
            ledger.takeovers += 1;
        }
        let collector = Collector::new(manifest.clone());
        let orphans = collector.collect_orphans().await?;
        self.ledger.lock().deleted += orphans.len();
        for edit in 0..edits {
            self.edit(&manifest, edit).await?;
            if edit % 16 == 15 {
                let collected = collector.collect(|_| false).await?;
                self.ledger.lock().deleted += collected.deleted.len();
            }
        }
        manifest.close().await;
        Ok(())
    }

    async fn edit(&mut self, manifest: &Manifest, edit: u32) -> tombolo_storage::Result<()> {
        self.number += 1;
        let number = self.number;
        let state = manifest.state();
        let mut edits = Vec::new();
        let mut keyspace = |id: u32, name: String| {
            let options = KeyspaceOptions::default();
            edits.push(Edit::KeyspaceCreated { id, name, stream: 0, options });
            id
        };
        let next = state.keyspaces().map(|keyspace| keyspace.id + 1).max();
        if next.is_none() {
            keyspace(0, "default".into());
        }
        let own = own_keyspace(self.process);
        let id = match state.keyspace_by_name(&own) {
            Some(keyspace) => keyspace.id,
            None => keyspace(next.unwrap_or(1), own),
        };
        edits.push(Edit::KeyspaceFlushed { id, sequence: SequenceNumber(number) });
        if next.is_some() && edit.is_multiple_of(3) {
            let name = manifest.fresh_table_name();
            let object = names::table(manifest.incarnation(), name);
            let placement = Placement::new(ObjectKind::Table, Life::Medium);
            let request = Request::new(Purpose::Flush, manifest.epoch());
            self.store.put_if_absent(request, &object, placement, Bytes::from_static(b"table")).await?;
            edits.push(Edit::TableAdded(description(name)));
            let live = state.tables().find(|table| table.status == TableStatus::Live);
            edits.extend(live.map(|table| Edit::TableObsolete { name: table.description.name }));
        }
        let slot = manifest.committed(edits).await?;
        let mut ledger = self.ledger.lock();
        ledger.reached.insert(self.process, number);
        if let Some(other) = ledger.acknowledged.insert(slot, manifest.epoch()) {
            ledger.wrong.push(format!(
                "slot {slot} was acknowledged to epoch {other} and to epoch {}",
                manifest.epoch()
            ));
        }
        Ok(())
    }
}

struct Fight {
    world: World,
    infrastructure: Env,
    base: Arc<dyn ObjectStore>,
    plan: FaultPlan,
    ledger: Shared,
    processes: Vec<Process>,
}

impl Fight {
    fn new(seed: u64) -> Fight {
        let world = World::new(seed);
        let infrastructure = world.process("store").env();
        let base: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&infrastructure));
        let plan =
            FaultPlan::random(seed, Chances { lateness_max: Duration::from_secs(20), ..Chances::ROUGH });
        plan.set_lists_walk(seed % 4 == 1);
        Fight { world, infrastructure, base, plan, ledger: Shared::default(), processes: Vec::new() }
    }

    fn start(&mut self, rounds: u32, edits: u32) {
        let number = u32::try_from(self.processes.len()).unwrap();
        let process = self.world.process(&format!("contender-{number}"));
        let store = FaultObjectStore::new(&self.infrastructure, Arc::clone(&self.base), self.plan.clone());
        let (env, ledger) = (process.env(), Arc::clone(&self.ledger));
        let contender =
            Contender { env: env.clone(), store: Arc::new(store), process: number, number: 0, ledger };
        env.spawn(TaskClass::Foreground, "contender", contender.run(rounds, edits)).detach();
        self.processes.push(process);
    }

    fn random(&self, below: u64) -> u64 {
        self.infrastructure.random_u64() % below
    }

    fn disturb(&mut self) {
        let index = usize::try_from(self.random(self.processes.len() as u64)).unwrap();
        match self.random(8) {
            0 if self.processes.len() < 8 => {
                self.processes[index].kill();
                self.start(4, 80);
            }
            1..=3 => self.processes[index].pause(),
            _ => self.processes.iter().for_each(Process::resume),
        }
    }

    /// Opens the database on a good day and checks the rest.
    fn verify(&self, seed: u64) {
        let env = self.world.process("verifier").env();
        let options = ManifestOptions { mode: OpenMode::Open, log_identity: "none".into() };
        let (_manifest, state) = env.block_on(Manifest::open(&env, Arc::clone(&self.base), options)).unwrap();
        let mut ledger = self.ledger.lock();
        let reached = ledger.reached.clone();
        ledger.check("in the end", &reached, &state);
        let epochs: Vec<Epoch> = ledger.acknowledged.values().copied().collect();
        assert!(epochs.is_sorted(), "seed {seed}: epochs interleave: {:?}", ledger.acknowledged);
        for table in state.tables() {
            let object = names::table(Incarnation(1), table.description.name);
            let request = Request::new(Purpose::Verify, Epoch::NONE);
            assert!(
                env.block_on(self.base.length(request, &object)).is_ok(),
                "seed {seed}: {object} is named, and gone"
            );
        }
        assert!(ledger.wrong.is_empty(), "seed {seed}: {:#?}", ledger.wrong);
    }
}

/// Returns {edits acknowledged, takeovers, tables deleted, faults}.
fn fight(seed: u64) -> [u64; 4] {
    let mut fight = Fight::new(seed);
    for _ in 0..3 {
        fight.start(4, 80);
    }
    for _ in 0..40 {
        let pause = Duration::from_millis(fight.random(1500));
        fight.world.run_for(pause);
        fight.disturb();
    }
    fight.processes.iter().for_each(Process::resume);
    fight.world.run_for(Duration::from_secs(120));
    fight.verify(seed);
    let ledger = fight.ledger.lock();
    [ledger.acknowledged.len() as u64, ledger.takeovers, ledger.deleted as u64, fight.plan.injected()]
}

/// `TOMBOLO_SEEDS` runs more of them; a failure names its seed.
#[test]
fn processes_that_fight_for_a_database_lose_nothing() {
    let seeds = std::env::var("TOMBOLO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut totals = [0; 4];
    for seed in 0..seeds {
        for (total, one) in totals.iter_mut().zip(fight(seed)) {
            *total += one;
        }
    }
    let [acknowledged, takeovers, deleted, faults] = totals;
    println!(
        "{seeds} seeds: {acknowledged} edits acknowledged, {takeovers} takeovers, {deleted} tables deleted, \
        {faults} faults"
    );
    assert!(acknowledged > seeds * 50 && takeovers > seeds * 3 && deleted > seeds * 5 && faults > seeds * 50);
}
