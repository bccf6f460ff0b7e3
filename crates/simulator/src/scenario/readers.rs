//! Writers that take one database from each other, and readers that follow the current writer, or
//! look once, all paused, resumed and killed anywhere. Two seeds in eight have a near-compute log,
//! whose nodes have troubles of their own.
//!
//! Checked of each thing that a reader shows:
//!
//! 1. It is one cut: in both keyspaces exactly what the chain of its last write says, now and, of a
//!    snapshot, later.
//! 2. It holds all writes acknowledged as durable before the round that brought it began.
//! 3. Nothing of it is taken back: the next opener of the database finds it, and so does the
//!    next look.
//! 4. A reader is told `PinLost` only when it stood still, and `Corrupt` or `NotFound` never.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, ErrorKind, Keyspace, OpenMode, ReaderOptions, Snapshot};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};

use super::contest::{Contest, LAST, OTHER, Stop, TROUBLES, WriteId, Writer, decode};
use super::site::Site;
use super::{Run, guarded, log_beside, mix};
use crate::client::Setup;
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "readers";

/// A writer's life: open, write, be fenced, again.
async fn compete(process: Process, contest: Contest, mut random: Random) {
    while !contest.is_over() {
        let outcome = write(&process, &contest, &mut random).await;
        if !contest.goes_on(&process, outcome, &TROUBLES) {
            return;
        }
        process.sleep(Duration::from_millis(random.below(4000))).await;
    }
}

async fn write(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let db = contest.setup.builder(process).mode(OpenMode::CreateOrOpen).open().await?;
    let mut writer = Writer::begin(process, contest, db).await?;
    for _ in 0..1 + random.below(80) {
        if contest.is_over() {
            break;
        }
        writer.write(random).await?;
        match random.below(30) {
            0 => writer.db.compact().await?,
            1 => writer.db.flush().await?,
            2..=8 => process.sleep(Duration::from_millis(random.below(1000))).await,
            _ => {}
        }
    }
    if random.percent(30) {
        writer.db.close().await?;
    }
    Ok(())
}

/// A reader's life: open, look again and again, be closed or killed, again.
async fn follow(process: Process, contest: Contest, mut random: Random) {
    while !contest.is_over() {
        let outcome = if random.percent(25) {
            look_once(&process, &contest, &mut random).await
        } else {
            read(&process, &contest, &mut random).await
        };
        // `NotFound`: before the first writer has made the database.
        let empty = contest.history.lock().report.opened == 0;
        let expected = [
            ErrorKind::Retry,
            ErrorKind::Busy,
            ErrorKind::PinLost,
            if empty { ErrorKind::NotFound } else { ErrorKind::Retry },
        ];
        if !contest.goes_on(&process, outcome, &expected) {
            return;
        }
        process.sleep(Duration::from_millis(random.below(500))).await;
    }
}

async fn read(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let options = ReaderOptions {
        lag: Duration::from_secs(1),
        lag_max: Duration::from_secs(10),
        lease: Duration::from_secs(3),
    };
    let durable = contest.history.lock().durable;
    let reader = contest.setup.builder(process).open_reader(options).await?;
    let mut kept = vec![look(process, contest, reader.db(), durable).await?];
    for _ in 0..1 + random.below(40) {
        if contest.is_over() {
            break;
        }
        if random.percent(60) {
            process.sleep(Duration::from_millis(random.below(3000))).await;
        }
        let durable = contest.history.lock().durable;
        reader.refresh().await?;
        kept.push(look(process, contest, reader.db(), durable).await?);
        // Snapshots stay as they were.
        let (snapshot, last) = &kept[random.index(kept.len())];
        check(process, contest, reader.db(), snapshot, *last).await?;
        if kept.len() > 3 {
            kept.remove(random.index(kept.len()));
        }
    }
    drop(kept);
    if random.percent(50) {
        reader.close().await?;
    }
    Ok(())
}

/// Looks without following: a look shows all that was durable before, and stays as it is.
async fn look_once(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let durable = contest.history.lock().durable;
    let db = contest.setup.builder(process).open_read_only().await?;
    let (_, last) = look(process, contest, &db, durable).await?;
    for _ in 0..random.below(3) {
        process.sleep(Duration::from_millis(random.below(4000))).await;
        check(process, contest, &db, &db.snapshot(), last).await?;
    }
    if random.percent(50) {
        db.close().await?;
    }
    Ok(())
}

/// Looks at the shown state, which must hold `durable`.
async fn look(
    process: &Process,
    contest: &Contest,
    db: &Db,
    durable: Option<WriteId>,
) -> Result<(Snapshot, Option<WriteId>), Stop> {
    let snapshot = db.snapshot();
    let last = snapshot.get(&db.default_keyspace(), LAST).await?.as_ref().and_then(|value| decode(value));
    if !process.is_alive() {
        return Err(Stop::Ended);
    }
    {
        let mut history = contest.history.lock();
        if !history.precedes(durable, last) {
            return Err(Stop::Violation(format!(
                "a reader shows {last:?} and lacks {durable:?}, acknowledged before it looked"
            )));
        }
        if history.precedes(history.shown, last) {
            history.shown = last;
        } else if !history.precedes(last, history.shown) {
            return Err(Stop::Violation(format!(
                "a reader shows {last:?}, and {:?} was shown before",
                history.shown
            )));
        }
    }
    check(process, contest, db, &snapshot, last).await?;
    contest.history.lock().report.verified += 1;
    Ok((snapshot, last))
}

/// Whether a snapshot holds exactly what the chain of `last` says.
async fn check(
    process: &Process,
    contest: &Contest,
    db: &Db,
    snapshot: &Snapshot,
    last: Option<WriteId>,
) -> Result<(), Stop> {
    let expected = contest.history.lock().state(last);
    let mut keyspaces: Vec<Keyspace> = vec![db.default_keyspace()];
    keyspaces.extend(db.keyspace(OTHER).ok());
    for keyspace in keyspaces {
        let mut found = BTreeMap::new();
        let mut scan = snapshot.scan::<&[u8]>(&keyspace, ..);
        while let Some((key, value)) = scan.next_async().await? {
            if key != LAST
                && let (Some(key), Some(id)) =
                    (key.first_chunk().map(|key| u64::from_be_bytes(*key)), decode(&value))
            {
                found.insert(key, id);
            }
        }
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        if found != expected {
            let what = format!(
                "a reader shows {found:?} in {:?}, and {expected:?} was written up to {last:?}",
                keyspace.name()
            );
            return Err(Stop::Violation(what));
        }
    }
    Ok(())
}

struct Cast {
    processes: Vec<Process>,
    started: u64,
}

impl Cast {
    /// Starts a writer or reader.
    fn start(&mut self, site: &mut Site<'_>, contest: &Contest, nth: usize, random: &mut Random) {
        let (writes, number) = (nth < 2, self.started);
        let process = site.host().process(&format!("{} {number}", if writes { "writer" } else { "reader" }));
        let chance = Random::new(random.next(), 5);
        if writes {
            process
                .spawn(TaskClass::Foreground, "compete", compete(process.clone(), contest.clone(), chance))
                .detach();
        } else {
            process
                .spawn(TaskClass::Foreground, "follow", follow(process.clone(), contest.clone(), chance))
                .detach();
        }
        self.started += 1;
        match self.processes.get_mut(nth) {
            Some(place) => *place = process,
            None => self.processes.push(process),
        }
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let contest = Contest::new(Setup::small(log_beside(seed)));
    let history = Arc::clone(&contest.history);
    let place = || format!("log {}", log_beside(seed).name());
    let mut report = guarded(NAME, seed, place, mix(seed, 7), |run| act(run, seed, &contest))?;
    let seen = history.lock().report.clone();
    (report.writes, report.durable, report.opened, report.verified) =
        (seen.writes, seen.durable, seen.opened, seen.verified);
    Ok(report)
}

fn act(run: &Run, seed: u64, contest: &Contest) -> Result<(), Violation> {
    let mut random = Random::new(seed, 6);
    let mut site = Site::new(run, contest.setup.form, seed);
    let contest = &contest.at(&site);
    run.world.set_preemption_probability([0.0, 0.01, 0.1][random.index(3)]);
    let mut cast = Cast { processes: Vec::new(), started: 0 };
    (0..4).for_each(|nth| cast.start(&mut site, contest, nth, &mut random));
    for _ in 0..24 {
        run.world.run_for(Duration::from_millis(random.below(4_000)));
        if contest.violation.lock().is_some() {
            break;
        }
        site.trouble();
        let nth = random.index(cast.processes.len());
        match random.below(20) {
            0..=4 => cast.processes[nth].pause(),
            // Long enough for a lease and its margin.
            5..=6 => {
                cast.processes[2 + random.index(2)].pause();
                run.world.run_for(Duration::from_secs(16));
            }
            7..=12 => cast.processes.iter().for_each(Process::resume),
            13..=15 => {
                let number = cast.processes[nth].operations() + 1 + random.below(60);
                cast.processes[nth].stall_at(number, Duration::from_millis(1 + random.below(15_000)));
            }
            16..=17 => {
                cast.processes[nth].kill();
                cast.start(&mut site, contest, nth, &mut random);
            }
            18 => {
                site.power_loss(&cast.processes);
                (0..4).for_each(|nth| cast.start(&mut site, contest, nth, &mut random));
            }
            // Leases are counted by clocks that do not jump.
            _ => site.host().jump_unix_time(i64::from(random.percent(50)) * 200_000 - 100_000),
        }
    }
    cast.processes.iter().for_each(Process::resume);
    site.heal();
    run.world.run_for(Duration::from_secs(5));
    *contest.over.lock() = true;
    run.world.run_for(Duration::from_secs(10));
    if let Some(violation) = contest.violation.lock().take() {
        return Err(violation);
    }
    run.crash(&cast.processes, Crash::Kill);
    *contest.over.lock() = false;
    // The last opener finds everything.
    let last = run.world.process("last");
    let (inside, contest) = (last.clone(), contest.clone());
    let found = last.run(async move { write(&inside, &contest, &mut Random::new(1, 1)).await });
    match found {
        Some(Err(Stop::Violation(what))) => Err(Violation::new(what).at("opening after the contest")),
        Some(Err(Stop::Error(error))) => Err(Violation::new(format!("opening after the contest: {error}"))),
        _ => Ok(()),
    }
}
