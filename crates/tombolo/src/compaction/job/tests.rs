use tombolo_env::simulated::World;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use tombolo_format::manifest::{Edit, KeyspaceOptions as Recorded};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, Incarnation, ObjectStore};

use super::*;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::compaction::pick::{Means, Reason, Tier};
use crate::flush::OutputWorld;
use crate::manifest::{Places, State};
use crate::options::KeyspaceOptions;
use crate::pace::Paces;
use crate::version::LEVEL_LAST;
use crate::version::{LeftBehind, Levels, Tables, Version, Versions};

const KEYSPACE: u32 = 1;

/// A store, and nothing else: no database, no manifest, no log.
struct Plain {
    tables: Tables,
    named: AtomicU64,
    stops: AtomicBool,
    pace: Paces,
    left_behind: LeftBehind,
}

impl OutputWorld for Plain {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn fresh_name(&self) -> TableName {
        TableName { epoch: 9, random: self.named.fetch_add(1, Ordering::Relaxed) }
    }

    fn pace(&self) -> &Paces {
        &self.pace
    }

    fn left_behind(&self) -> &LeftBehind {
        &self.left_behind
    }
}

impl JobWorld for Plain {
    fn is_given_up(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }
}

/// An entry: key, number and kind. The value is the number.
type Entry = (&'static str, u64, EntryKind);

const OLD: [Entry; 3] = [("a", 1, EntryKind::Put), ("b", 2, EntryKind::Put), ("c", 3, EntryKind::Put)];
const NEW: [Entry; 3] = [("a", 11, EntryKind::Put), ("b", 12, EntryKind::Delete), ("d", 13, EntryKind::Put)];

fn plain(world: &World, plan: &FaultPlan) -> Arc<Plain> {
    let env = world.process("worker").env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, objects, plan.clone()));
    let tables = Tables {
        cache: BlockCache::of(&MemoryBudget::new(64 << 20).unwrap()),
        places: Arc::new(Mutex::new(Places::own(&objects, Incarnation(1)))),
        collectors: Arc::default(),
        flash: crate::flash::FlashUse::None,
        incarnation: Incarnation(1),
        epoch: Epoch(1),
        env,
        objects,
        silence: Arc::default(),
        naming: crate::version::Naming::default(),
        left_behind: Arc::default(),
        cold: None,
    };
    Arc::new(Plain {
        tables,
        named: AtomicU64::new(100),
        stops: AtomicBool::new(false),
        pace: Paces::new(0, None),
        left_behind: LeftBehind::default(),
    })
}

async fn table(world: &Plain, number: u64, level: u8, entries: &[Entry]) -> TableDescription {
    table_with(world, number, level, entries, &[]).await
}

/// A range delete: from, to and number.
type Deleted = (&'static str, &'static str, u64);

async fn table_with(
    world: &Plain,
    number: u64,
    level: u8,
    entries: &[Entry],
    ranges: &[Deleted],
) -> TableDescription {
    let output = Output {
        name: TableName { epoch: 1, random: number },
        keyspace: KEYSPACE,
        level,
        lowest: level == LEVEL_LAST,
        oldest_unix_seconds: Some(7),
        table_bytes: 0,
        purpose: Purpose::Flush,
    };
    let mut writer = TableWriter::create(&world.tables, output, &KeyspaceOptions::default()).await.unwrap();
    for (key, number, kind) in entries {
        let trailer = Trailer::new(SequenceNumber(*number), *kind);
        let value = if *kind == EntryKind::Put { number.to_le_bytes().to_vec() } else { Vec::new() };
        writer.add_now(InternalKey::new(key.as_bytes(), trailer), &value).unwrap();
    }
    let mut hiding = Hiding::new(Vec::new());
    for (from, to, number) in ranges {
        hiding.add(Covered { from: from.as_bytes(), to: to.as_bytes(), number: SequenceNumber(*number) });
    }
    writer.set_ranges(hiding.kept(None, None, |_, _| false)).unwrap();
    writer.finish().await.unwrap().unwrap().table
}

/// The levels of the keyspace with these tables.
fn levels(world: &Plain, tables: Vec<TableDescription>) -> Arc<Levels> {
    let mut edits = vec![Edit::KeyspaceCreated {
        id: KEYSPACE,
        name: "k".into(),
        stream: 0,
        options: Recorded::default(),
    }];
    edits.extend(tables.into_iter().map(Edit::TableAdded));
    let state = State::from_snapshot(1, Epoch(9), &edits).unwrap();
    let version = Versions::new(world.tables.clone()).build(&state, &Version::default(), &[]);
    Arc::clone(version.levels(KEYSPACE).unwrap())
}

/// Merges a run of level 0 into the last level.
async fn job(world: &Plain) -> Arc<Job> {
    let (new, old) = (table(world, 1, 0, &NEW).await, table(world, 2, LEVEL_LAST, &OLD).await);
    let levels = levels(world, vec![new, old]);
    Arc::new(Job {
        keyspace: KEYSPACE,
        reason: Reason::Runs,
        from: 0,
        upper: levels.runs.clone(),
        to: LEVEL_LAST,
        lower: levels.level(LEVEL_LAST).unwrap().iter().cloned().collect(),
        means: Means::Merge,
        passed: Vec::new(),
        table_bytes: 1 << 20,
        tier: Tier::default(),
        older_runs: Vec::new(),
        deeper: Vec::new(),
        keeps_last: false,
    })
}

/// Merges a run of level 0 into the level over the last one, where `deep` lies.
async fn over(world: &Plain, new: TableDescription, deep: TableDescription, table_bytes: u64) -> Arc<Job> {
    let levels = levels(world, vec![new, deep]);
    Arc::new(Job {
        upper: levels.runs.clone(),
        lower: Vec::new(),
        to: LEVEL_LAST - 1,
        deeper: vec![Arc::clone(levels.level(LEVEL_LAST).unwrap())],
        table_bytes,
        ..Job::clone(&*job(world).await)
    })
}

fn terms(snapshots: &[u64]) -> Terms {
    let snapshots = snapshots.iter().map(|snapshot| (SequenceNumber(*snapshot), 0)).collect();
    let moments = crate::resolve::Moments { snapshots, settled_ms: 0 };
    let (judge, collected) = (crate::resolve::Judge::default(), std::collections::BTreeSet::new());
    Terms { moments, judge, filter: None, time_ms: 0, options: Arc::default(), table_bytes: 0, collected }
}

fn run(world: &Arc<Plain>, job: &Arc<Job>, snapshots: &[u64]) -> Arc<Run> {
    let world: Arc<dyn JobWorld> = Arc::<Plain>::clone(world);
    Run::new(world, job, terms(snapshots))
}

/// What a job wrote: keys and numbers.
async fn read(world: &Plain, outputs: Vec<TableDescription>) -> Vec<(String, u64)> {
    let levels = levels(world, outputs);
    let mut read = Vec::new();
    for table in levels.tables() {
        let mut merge = Merge::open(vec![vec![Arc::clone(table)]], None, None).await.unwrap();
        while let Some((key, _)) = merge.entry() {
            let name = String::from_utf8(key.user_key.to_vec()).unwrap();
            read.push((name, key.trailer.sequence().0));
            if let Some(step) = merge.advance().unwrap() {
                merge.settle(step).await.unwrap();
            }
        }
    }
    read
}

/// A job needs its inputs, a store for its outputs and names for them: no database is there.
#[test]
fn a_job_runs_on_a_plain_store() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let job = job(&plain).await;
        for (snapshots, expected) in [
            (&[][..], &[("a", 11), ("c", 3), ("d", 13)][..]),
            (&[5], &[("a", 11), ("a", 1), ("b", 12), ("b", 2), ("c", 3), ("d", 13)]),
        ] {
            let run = run(&plain, &job, snapshots);
            run.run().await.unwrap();
            let outputs = run.take_outputs();
            assert!(outputs.iter().all(|table| table.name.epoch == 9 && table.oldest_unix_seconds == 7));
            assert_eq!(run.take_older().is_empty(), snapshots.is_empty());
            let expected: Vec<_> =
                expected.iter().map(|(key, number)| ((*key).to_owned(), *number)).collect();
            assert_eq!(read(&plain, outputs).await, expected, "{snapshots:?}");
        }
        assert_eq!(plain.named.load(Ordering::Relaxed), 102, "one output of each run");
        assert!(plain.left_behind.next().is_none());
    });
}

/// An output that may be there is remembered by the world, which deletes it.
#[test]
fn an_output_of_unknown_outcome_is_left_to_the_world() {
    let world = World::new(1);
    let plan = FaultPlan::scripted();
    let plain = plain(&world, &plan);
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let job = job(&plain).await;
        plan.inject(Rule::of_kind(RequestKind::Finish, Fault::Unknown { landed: true }).times(1));
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(1));
        let run = run(&plain, &job, &[]);
        assert_eq!(run.run().await.unwrap_err().error.kind(), ErrorKind::OutcomeUnknown);
        assert!(run.take_outputs().is_empty());
        assert_eq!(plain.left_behind.next(), Some(TableName { epoch: 9, random: 100 }));
        assert_eq!(plain.left_behind.next(), None);
    });
}

/// A long job that nobody wants any more ends soon.
#[test]
fn a_job_that_is_not_wanted_ends() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let keys: Vec<String> = (0..=ENTRIES_PER_TURN).map(|number| format!("{number:08}")).collect();
        let keys: Vec<Entry> = keys.leak().iter().map(|key| (&key[..], 1, EntryKind::Put)).collect();
        let levels = levels(&plain, vec![table(&plain, 3, 0, &keys).await]);
        let short = job(&plain).await;
        let long = Arc::new(Job { upper: levels.runs.clone(), ..Job::clone(&short) });
        plain.stops.store(true, Ordering::Relaxed);
        let error = run(&plain, &long, &[]).run().await.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Closed);
        run(&plain, &short, &[]).run().await.unwrap();
    });
}

/// The range deletes of what a job wrote, table by table.
async fn ranges_of(world: &Plain, outputs: Vec<TableDescription>) -> Vec<Vec<(String, String, u64)>> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let mut all = Vec::new();
    let levels = levels(world, outputs);
    for table in levels.tables() {
        table.open().await.unwrap();
        let ranges = table.ranges().unwrap().iter();
        all.push(ranges.map(|range| (text(range.from), text(range.to), range.number.0)).collect());
    }
    all
}

fn said(ranges: &[Deleted]) -> Vec<(String, String, u64)> {
    ranges.iter().map(|(from, to, number)| ((*from).to_owned(), (*to).to_owned(), *number)).collect()
}

fn a_range_delete_takes_what_it_covers_and_goes_at_the_bottom() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let new = table_with(&plain, 11, 0, &[("b", 9, EntryKind::Put)], &[("a", "c", 7)]).await;
        let old = table(&plain, 12, LEVEL_LAST, &OLD).await;
        let read_from = levels(&plain, vec![new, old]);
        let upper = read_from.runs.clone();
        let lower = read_from.level(LEVEL_LAST).unwrap().iter().cloned().collect();
        let job = Arc::new(Job { upper, lower, ..Job::clone(&*job(&plain).await) });
        let merged = run(&plain, &job, &[]);
        merged.run().await.unwrap();
        let outputs = merged.take_outputs();
        assert_eq!(ranges_of(&plain, outputs.clone()).await, [vec![]]);
        assert_eq!(read(&plain, outputs).await, [("b".to_owned(), 9), ("c".to_owned(), 3)]);
        // A snapshot between sees what it covers: both stay.
        let kept = run(&plain, &job, &[5]);
        kept.run().await.unwrap();
        let outputs = kept.take_outputs();
        assert_eq!(ranges_of(&plain, outputs.clone()).await, [said(&[("a", "c", 7)])]);
        assert_eq!(read(&plain, outputs).await.len(), 4);
    });
}

/// Nothing lies below where the range begins, and something does within it.
fn a_range_delete_stays_for_what_lies_below_within_it() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let new = table_with(&plain, 11, 0, &[], &[("a", "m", 7), ("x", "z", 8)]).await;
        let deep = table(&plain, 12, LEVEL_LAST, &[("f", 1, EntryKind::Put)]).await;
        let job = over(&plain, new, deep, 1 << 20).await;
        let run = run(&plain, &job, &[]);
        run.run().await.unwrap();
        let outputs = run.take_outputs();
        let description = outputs[0].clone();
        assert_eq!((&description.first_key[..], &description.last_key[..]), (&b"a"[..], &b"m"[..]));
        assert_eq!((description.entries, description.ends_before(b"m")), (0, true));
        assert_eq!(ranges_of(&plain, outputs).await, [said(&[("a", "m", 7)])]);
    });
}

/// Each output has its part of the range, and ends where the next one begins.
fn a_range_delete_is_cut_where_outputs_end() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let keys: Vec<String> = (0..3000).map(|number| format!("{number:08}")).collect();
        let keys: Vec<Entry> = keys.leak().iter().map(|key| (&key[..], 20, EntryKind::Put)).collect();
        let new = table_with(&plain, 11, 0, &keys, &[("00000100", "9", 7)]).await;
        let deep = table(&plain, 12, LEVEL_LAST, &[("00000200", 1, EntryKind::Put)]).await;
        let job = over(&plain, new, deep, 8 << 10).await;
        let run = run(&plain, &job, &[]);
        run.run().await.unwrap();
        let mut outputs = run.take_outputs();
        assert!(outputs.len() > 2, "{}", outputs.len());
        outputs.sort_by(|one, other| one.first_key.cmp(&other.first_key));
        for pair in outputs.windows(2) {
            assert!(pair[0].ends_before(&pair[1].first_key), "{:?} meets {:?}", pair[0], pair[1]);
        }
        let mut end = b"00000100".to_vec();
        for table in ranges_of(&plain, outputs).await {
            for (from, to, number) in table {
                assert_eq!((from.as_bytes(), number), (&end[..], 7));
                end = to.into_bytes();
            }
        }
        assert_eq!(end, b"9");
    });
}

/// How what a job wrote differs within a range from the same job, run again.
async fn differs(
    world: &Arc<Plain>,
    job: &Arc<Job>,
    wrote: Vec<TableDescription>,
    range: Range,
) -> Option<String> {
    let again = Run::again(Arc::<Plain>::clone(world), job, terms(&[]), range.clone()).await.unwrap();
    let levels = levels(world, wrote);
    let tables: Vec<_> = levels.tables().cloned().collect();
    for table in &tables {
        table.open().await.unwrap();
    }
    let theirs = Again::read(tables, (range.0.as_ref(), range.1.as_ref())).await.unwrap();
    again.difference(&theirs, job, &terms(&[]).moments)
}

/// A range delete stays whole for what lies below a part of it: a range merged again beside that
/// needs none of it, and yet finds it right.
#[test]
fn range_deletes_are_compared_where_they_are_needed() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let new = table_with(&plain, 11, 0, &[("b", 9, EntryKind::Put)], &[("a", "m", 7)]).await;
        let deep = table(&plain, 12, LEVEL_LAST, &[("f", 1, EntryKind::Put)]).await;
        let job = over(&plain, new, deep, 1 << 20).await;
        let right = run(&plain, &job, &[]);
        right.run().await.unwrap();
        let right = right.take_outputs();
        let bare = table(&plain, 13, LEVEL_LAST - 1, &[("b", 9, EntryKind::Put)]).await;
        let more = [("a", "m", 7), ("m", "n", 8)];
        let more = table_with(&plain, 14, LEVEL_LAST - 1, &[("b", 9, EntryKind::Put)], &more).await;
        let key = |key: &'static str| Some(Bytes::from_static(key.as_bytes()));
        let (all, beside, over) = ((None, None), (key("g"), key("k")), (key("c"), key("g")));
        for range in [all.clone(), beside.clone(), over.clone()] {
            assert_eq!(differs(&plain, &job, right.clone(), range).await, None);
        }
        // Where nothing lies below, it may go.
        assert_eq!(differs(&plain, &job, vec![bare.clone()], beside.clone()).await, None);
        for range in [all.clone(), over] {
            let missing = differs(&plain, &job, vec![bare.clone()], range).await;
            assert_eq!(missing.as_deref(), Some("a range delete is missing"));
        }
        let none = differs(&plain, &job, vec![more], all).await;
        assert_eq!(none.as_deref(), Some("a range delete that is none"));
    });
}

/// Of much, the beginning is compared: what ends before that is missing.
#[test]
fn what_ends_early_is_noticed_though_not_all_is_looked_at() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let job = job(&plain).await;
        let of = |count: u64| {
            let again = Again::default();
            let trailer = Trailer::new(SequenceNumber(1), EntryKind::Put);
            let take = |number: u64| {
                again.take(InternalKey::new(&number.to_be_bytes(), trailer), &vec![7; 1 << 20]).is_ok()
            };
            let taken = (0..count).take_while(|number| take(*number)).count();
            assert_eq!(again.is_full(), (taken as u64) < count);
            again
        };
        let moments = terms(&[]).moments;
        let (many, few) = (of(20), of(3));
        assert_eq!(many.difference(&of(30), &job, &moments), None);
        assert!(many.difference(&few, &job, &moments).is_some(), "theirs ends early");
        assert!(few.difference(&many, &job, &moments).is_some(), "theirs goes on");
    });
}

/// A table that one range delete covers wholly need not be read: it may even be damaged.
#[test]
fn a_table_that_nobody_sees_any_more_is_not_read() {
    let world = World::new(1);
    let plan = FaultPlan::scripted();
    let plain = plain(&world, &plan);
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let new = table_with(&plain, 11, 0, &[], &[("a", "d", 7)]).await;
        let old = table(&plain, 12, LEVEL_LAST, &OLD).await;
        let levels = levels(&plain, vec![new, old]);
        let upper = levels.runs.clone();
        let lower = levels.level(LEVEL_LAST).unwrap().iter().cloned().collect();
        let job = Arc::new(Job { upper, lower, ..Job::clone(&*job(&plain).await) });
        // The first read is that of the newer table's tail.
        levels.runs[0].open().await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Read, Fault::Error(ErrorKind::Corrupt)).times(9));
        let run = run(&plain, &job, &[]);
        run.run().await.unwrap();
        assert!(run.take_outputs().is_empty());
    });
}

#[test]
fn range_deletes_are_merged() {
    a_range_delete_takes_what_it_covers_and_goes_at_the_bottom();
    a_range_delete_stays_for_what_lies_below_within_it();
    a_range_delete_is_cut_where_outputs_end();
}

#[cfg(feature = "mutants")]
#[test]
fn range_deletes_that_are_merged_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::RangeDeleteDroppedByKey, a_range_delete_stays_for_what_lies_below_within_it);
    notices(Mutant::RangeDeleteUncut, a_range_delete_is_cut_where_outputs_end);
}

/// Of a job to the cold store, newer entries stay above if their key comes from there; those that
/// lay below stay below, whatever their number: beside the keys that come from above are tables
/// that the job knows nothing of.
fn what_lies_below_does_not_move_up() {
    let world = World::new(1);
    let plain = plain(&world, &FaultPlan::scripted());
    let env = plain.tables.env.clone();
    env.block_on(async move {
        let above = table(&plain, 11, 5, &[("b", 3, EntryKind::Put), ("d", 9, EntryKind::Put)]).await;
        let entries = [("a", 7, EntryKind::Put), ("d", 2, EntryKind::Put), ("f", 8, EntryKind::Put)];
        let below = table(&plain, 12, LEVEL_LAST, &entries).await;
        let read_from = levels(&plain, vec![above, below]);
        let of = |level| read_from.level(level).unwrap().iter().cloned().collect();
        let tier = Tier { is_cold: false, stays_after: Some(SequenceNumber(5)) };
        let job =
            Job { from: 5, upper: of(5), lower: of(LEVEL_LAST), tier, ..Job::clone(&*job(&plain).await) };
        let merged = run(&plain, &Arc::new(job), &[]);
        merged.run().await.unwrap();
        let (stay, go): (Vec<_>, Vec<_>) =
            merged.take_outputs().into_iter().partition(|table| table.level == 5);
        assert_eq!(read(&plain, stay).await, [("d".to_owned(), 9)]);
        let went = read(&plain, go).await.into_iter().map(|(key, _)| key).collect::<String>();
        assert!(went.starts_with("ab") && went.ends_with('f'), "{went}");
    });
}

#[test]
fn no_key_moves_up_from_the_cold_store() {
    what_lies_below_does_not_move_up();
}

#[cfg(feature = "mutants")]
#[test]
fn keys_that_move_up_from_the_cold_store_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::ColdKeysMoveUp, what_lies_below_does_not_move_up);
}
