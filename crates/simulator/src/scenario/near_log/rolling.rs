//! A writer takes a log over and lives on, while all nodes are started again, one after the other,
//! and lose their memory each time. No write fails, and its successor finds all.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::Durability;
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};

use super::super::neighbours::{Keeps, Neighbour, SHARED_DIRECTORY};
use super::Run;
use crate::client::{Client, Entry, Form, Setup, Step, Stop, key, large_write};
use crate::failure::Violation;
use crate::oracle::Shared;
use crate::random::Random;

/// Within that a living writer has missed a lost region, and has all of its log where it must be.
const REPAIR: Duration = Duration::from_secs(8);

/// A writer that lives until it is killed, and writes little: no flush frees what it took over.
struct Living {
    process: Process,
    violation: Arc<Mutex<Option<Violation>>>,
}

impl Living {
    fn start(run: &Run, setup: &Setup, name: &str, random: &mut Random) -> Living {
        let (process, violation) = (run.world.process(name), Arc::new(Mutex::new(None)));
        let (inside, setup, oracle, chance) =
            (process.clone(), setup.clone(), run.oracle.clone(), Random::new(random.next(), 3));
        let told = Arc::clone(&violation);
        let life = async move {
            if let Err(stop) = live(&inside, &setup, &oracle, chance).await {
                *told.lock() = stop.unexpected_error(&inside.name()).err();
            }
        };
        process.spawn(TaskClass::Foreground, "write a little", life).detach();
        Living { process, violation }
    }

    fn judged(&self) -> Result<(), Violation> {
        self.violation.lock().take().map_or(Ok(()), Err)
    }
}

async fn live(process: &Process, setup: &Setup, oracle: &Shared, mut random: Random) -> Result<(), Stop> {
    let mut client = Client::open(process, setup, oracle).await?;
    loop {
        let entry = Entry::Put("default".to_owned(), key(&mut random), random.index(60));
        client.step(&Step::Write(vec![entry], Durability::Durable)).await?;
        process.sleep(Duration::from_millis(random.below(2000))).await;
    }
}

/// Starts every node again, in an order by chance.
fn restart_all(run: &Run, neighbours: &mut [Neighbour], random: &mut Random) {
    let first = random.index(neighbours.len());
    for nth in 0..neighbours.len() {
        run.world.run_for(REPAIR + Duration::from_millis(random.below(3000)));
        let neighbour = &mut neighbours[(first + nth) % 4];
        neighbour.kill();
        if random.percent(50) {
            run.world.run_for(Duration::from_millis(random.below(3000)));
        }
        neighbour.start();
    }
    run.world.run_for(REPAIR);
}

pub(super) fn run(run: &Run, form: Form, random: &mut Random) -> Result<(), Violation> {
    let mut neighbours = Neighbour::all(run, form, Keeps::Nothing);
    let setup = Setup { memtable_bytes: 256 << 10, ..Setup::small(form) };
    let count = 1 + random.index(4);
    let writes = (0..count).map(|_| large_write(random)).collect();
    let first = run.world.process("first");
    run.life(&first, &setup, writes, false, "writing to a log of its own")?;
    run.crash(std::slice::from_ref(&first), Crash::Kill);
    let shared =
        run.world.host(0).all_files().into_iter().any(|(path, _)| path.starts_with(SHARED_DIRECTORY));
    if shared != (form == Form::NearShared) {
        return Err(Violation::new(format!("nodes of {form:?} share memory with the writer: {shared}")));
    }
    for number in 0..=random.below(2) {
        let living = Living::start(run, &setup, &format!("taker {number}"), random);
        run.world.run_for(Duration::from_secs(2));
        restart_all(run, &mut neighbours, random);
        living.judged()?;
        run.crash(std::slice::from_ref(&living.process), Crash::Kill);
    }
    run.life(
        &run.world.process("last"),
        &setup,
        Vec::new(),
        true,
        "opening after all nodes were started again",
    )?;
    run.verify(&setup)
}
