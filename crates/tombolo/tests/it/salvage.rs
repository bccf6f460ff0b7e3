//! Salvage: any file of a database is damaged or gone, and salvage gives a state that it once
//! showed, or all but the ranges that are told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo::{Builder, Db, Durability, Env, ErrorKind, Options, Result, SalvageMode, SalvageReport};
use tombolo_env::simulated::{DiskImage, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{Epoch, LogStore, ObjectStore, Purpose, Request};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u32 = 30;

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096", "automatic_compaction=false"]).unwrap()
}

fn database(env: &Env, place: &str) -> Builder {
    Db::builder(format!("file://{place}")).env(env.clone()).options(options())
}

async fn contents(db: &Db) -> Result<Entries> {
    let mut entries = Entries::new();
    let mut scan = db.default_keyspace().scan::<&[u8]>(..);
    while let Some((key, value)) = scan.next_async().await? {
        entries.insert(key.to_vec(), value.to_vec());
    }
    Ok(entries)
}

/// What the database held after each sequence number.
#[derive(Clone, Debug, Default)]
struct Told {
    states: BTreeMap<u64, Entries>,
}

impl Told {
    fn at(&self, sequence: u64) -> Entries {
        self.states.range(..=sequence).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn newest(&self) -> Entries {
        self.at(u64::MAX)
    }

    /// Whatever a key has ever held.
    fn ever(&self, key: &[u8]) -> BTreeSet<Vec<u8>> {
        self.states.values().filter_map(|state| state.get(key).cloned()).collect()
    }
}

/// Writes of each opening. The last ones are too few for a flush: several logs wait to be replayed.
const LIVES: [u32; 5] = [60, 60, 60, 12, 12];

/// Several openings, tables of several levels, a checkpoint, records behind a snapshot, and logs
/// that must be replayed. Some keys are written again and again, and others once: of those each
/// lost write shows.
async fn write(env: Env) -> Result<Told> {
    let mut told = Told::default();
    let mut state = Entries::new();
    let mut numbers = 0..u32::MAX;
    for (life, steps) in (0..).zip(LIVES) {
        let db = database(&env, "/db").open().await?;
        let keys = db.default_keyspace();
        for number in numbers.by_ref().take(steps as usize) {
            let again = format!("key-{:02}", number * 7 % KEYS);
            let key = if number % 3 == 1 { format!("once-{number:03}") } else { again }.into_bytes();
            if number % 9 == 5 {
                keys.delete(&key).await?;
                state.remove(&key);
            } else {
                let value = format!("value {number} {}", "z".repeat(30)).into_bytes();
                keys.put_with(
                    &key,
                    &value,
                    if number % 3 == 0 { Durability::Durable } else { Durability::Accepted },
                )
                .await?;
                state.insert(key, value);
            }
            told.states.insert(db.stats().last_sequence, state.clone());
            match number {
                20 | 75 | 95 | 140 => db.flush().await?,
                50 => db.compact().await?,
                110 => drop(db.checkpoint("monday").await?),
                _ => {}
            }
        }
        keys.put(b"last", number(life)).await?;
        state.insert(b"last".to_vec(), number(life));
        told.states.insert(db.stats().last_sequence, state.clone());
    }
    Ok(told)
}

fn number(life: u32) -> Vec<u8> {
    life.to_be_bytes().to_vec()
}

/// Salvages the database, and reads what came of it.
async fn salvage(env: Env, mode: SalvageMode) -> Result<(SalvageReport, Entries)> {
    let surveyed = database(&env, "/db").survey_damage(mode).await?;
    let report = database(&env, "/db").salvage_to(database(&env, "/saved"), mode).await?;
    assert_eq!(surveyed, report, "what was announced is what was done");
    let saved = database(&env, "/saved").open().await?;
    let found = contents(&saved).await?;
    assert!(saved.verify().await?.damage.is_empty());
    saved.default_keyspace().put(b"goes", b"on").await?;
    saved.close().await?;
    Ok((report, found))
}

/// The disk after the history, and what it holds.
fn history() -> (DiskImage, Vec<(PathBuf, u64)>, Told) {
    let world = World::new(3);
    let writer = world.process("writer");
    let told = writer.run(write(writer.env())).unwrap().unwrap();
    writer.kill();
    let files = world.host(0).all_files();
    (world.host(0).disk_image(), files, told)
}

/// Whether what was had is what the report says.
fn check(told: &Told, mode: SalvageMode, (report, found): &(SalvageReport, Entries), what: &str) {
    let expected = told.at(report.last_sequence);
    if report.is_whole() {
        assert_eq!(*found, told.newest(), "{what}: said to be whole: {report:?}");
    }
    match mode {
        SalvageMode::Consistent => assert_eq!(*found, expected, "{what}: {report:?}"),
        SalvageMode::WithHoles => {
            let lost = |key: &[u8]| {
                let mut ranges = report.losses.iter().filter_map(|loss| loss.keys.as_ref());
                ranges.any(|(first, last)| **first <= *key && *key <= **last)
            };
            for key in expected.keys().chain(found.keys()) {
                let value = found.get(key);
                if lost(key) {
                    assert!(
                        value.is_none_or(|value| told.ever(key).contains(value)),
                        "{what}: {key:?} was invented"
                    );
                } else {
                    assert_eq!(value, expected.get(key), "{what}: key {key:?}: {report:?}");
                }
            }
        }
    }
}

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip,
    Cut,
    Empty,
}

fn harm(world: &World, path: &Path, harm: Harm, at: usize) {
    world
        .host(0)
        .damage(path, |content| match harm {
            // Behind what was used of a log's segment there are zeros that nobody reads.
            Harm::Flip => {
                let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if let Some(byte) = content.get_mut(at % used.max(1)) {
                    *byte ^= 0x11;
                }
            }
            Harm::Cut => content.truncate(content.len() / 2),
            Harm::Empty => content.clear(),
        })
        .unwrap();
}

/// Damages each file in turn, in each way; returns how often all was had, a part, and nothing.
fn damage_each(mode: SalvageMode) -> (usize, usize, usize) {
    let (image, files, told) = history();
    let (mut whole, mut part, mut nothing) = (0, 0, 0);
    for (number, (path, _)) in files.iter().enumerate() {
        for (turn, kind) in
            [Harm::Flip, Harm::Flip, Harm::Flip, Harm::Cut, Harm::Empty].into_iter().enumerate()
        {
            let world = World::new((number * 5 + turn) as u64);
            world.host(0).set_disk(&image);
            harm(&world, path, kind, number * 131 + turn * 977);
            let what = format!("{kind:?} of {}", path.display());
            let process = world.process("salvager");
            match process.run(salvage(process.env(), mode)).expect("nothing ends the salvager") {
                Ok(salvaged) => {
                    check(&told, mode, &salvaged, &what);
                    if salvaged.0.is_whole() { whole += 1 } else { part += 1 }
                }
                Err(error) => {
                    let typed = matches!(
                        error.kind(),
                        ErrorKind::Corrupt
                            | ErrorKind::NotFound
                            | ErrorKind::Invalid
                            | ErrorKind::Unsupported
                    );
                    assert!(typed, "{what}: {error}");
                    nothing += 1;
                }
            }
        }
    }
    (whole, part, nothing)
}

#[test]
fn what_is_whole_is_salvaged_whole() {
    let (image, _, told) = history();
    let world = World::new(1);
    world.host(0).set_disk(&image);
    let process = world.process("salvager");
    let salvaged = process.run(salvage(process.env(), SalvageMode::Consistent)).unwrap().unwrap();
    assert!(salvaged.0.is_whole() && salvaged.0.log_entries > 10, "{:?}", salvaged.0);
    check(&told, SalvageMode::Consistent, &salvaged, "nothing");
}

#[test]
fn the_last_consistent_point_is_a_state_that_the_database_showed() {
    let (whole, part, nothing) = damage_each(SalvageMode::Consistent);
    assert!(whole > 10 && part > 20, "{whole} whole, {part} in part, {nothing} not at all");
}

#[test]
fn with_holes_all_keys_outside_of_what_is_told_are_right() {
    let (whole, part, nothing) = damage_each(SalvageMode::WithHoles);
    assert!(whole > 10 && part > 20, "{whole} whole, {part} in part, {nothing} not at all");
}

/// Keys of the large table.
const LARGE: u32 = 4000;

fn large_key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn large_value(number: u32) -> Vec<u8> {
    // Hardly compressible, so that the table has dozens of blocks.
    (0..10)
        .flat_map(|turn| (u64::from(number) * 11 + turn).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

fn large(env: &Env, place: &str) -> Builder {
    Db::builder(format!("file://{place}"))
        .env(env.clone())
        .options(Options::parse(["memory_bytes=16777216"]).unwrap())
}

/// A key of the older table that the newer one hides by a range delete.
fn hidden_key(number: u32) -> Vec<u8> {
    format!("hidden-{number:05}").into_bytes()
}

/// Writes one table of dozens of blocks over an older one, whose values must not be taken for the
/// newer ones, and of which a part is hidden.
async fn write_large(env: Env) -> Result<()> {
    let db = large(&env, "/db").open().await?;
    let keys = db.default_keyspace();
    for number in (0..LARGE).step_by(7) {
        keys.put_with(large_key(number), b"old", Durability::Accepted).await?;
        keys.put_with(hidden_key(number), b"old", Durability::Accepted).await?;
    }
    db.flush().await?;
    keys.delete_range_with(b"hidden-", b"hidden.", Durability::Accepted).await?;
    for number in 0..LARGE {
        keys.put_with(large_key(number), large_value(number), Durability::Accepted).await?;
    }
    db.flush().await?;
    db.close().await
}

async fn salvage_large(env: Env) -> Result<(SalvageReport, Entries)> {
    let surveyed = large(&env, "/db").survey_damage(SalvageMode::WithHoles).await?;
    let report = large(&env, "/db").salvage_to(large(&env, "/saved"), SalvageMode::WithHoles).await?;
    assert_eq!(surveyed, report, "what was announced is what was done");
    let saved = large(&env, "/saved").open().await?;
    assert!(saved.verify().await?.damage.is_empty());
    let found = contents(&saved).await?;
    saved.compact().await?;
    assert_eq!(contents(&saved).await?, found);
    Ok((report, found))
}

/// The bytes at these permilles of the large table are changed: the report says how much of
/// it was saved and what was not, and outside of that every key is right.
fn salvage_of_large_table(harmed: &[usize]) -> (SalvageReport, usize) {
    let world = World::new(5);
    let writer = world.process("writer");
    writer.run(write_large(writer.env())).unwrap().unwrap();
    let files = world.host(0).all_files();
    let tables = files.iter().filter(|(path, _)| path.to_string_lossy().contains("/table/"));
    let (path, bytes) = tables.max_by_key(|(_, bytes)| *bytes).expect("a table");
    for permille in harmed {
        let at = usize::try_from(*bytes).unwrap() * permille / 1000;
        world.host(0).damage(path, |content| content[at] ^= 0x41).unwrap();
    }
    let salvager = world.process("salvager");
    let (report, found) = salvager.run(salvage_large(salvager.env())).unwrap().unwrap();
    let ranges: Vec<_> = report.losses.iter().filter_map(|loss| loss.keys.as_ref()).collect();
    let lost = |key: &[u8]| ranges.iter().any(|(first, last)| **first <= *key && *key <= **last);
    let mut saved = 0;
    for number in 0..LARGE {
        let (key, value) = (large_key(number), found.get(&large_key(number)));
        if value == Some(&large_value(number)) {
            saved += 1;
        } else {
            assert!(lost(&key), "{harmed:?}: key {number} is {value:?}, and not told as lost: {report:?}");
            assert!(value.is_none_or(|value| value == b"old"), "{harmed:?}: key {number} was invented");
        }
    }
    // Whatever blocks are lost, the table's range delete is not.
    for number in (0..LARGE).step_by(7) {
        let key = hidden_key(number);
        assert!(lost(&key) || !found.contains_key(&key), "{harmed:?}: {number} was deleted: {report:?}");
    }
    assert!(!report.is_whole());
    (report, saved)
}

#[test]
fn of_a_table_with_one_damaged_block_all_others_are_saved() {
    for harmed in [0, 3, 250, 500, 777, 900] {
        let (report, saved) = salvage_of_large_table(&[harmed]);
        let [loss] = &report.losses[..] else { panic!("one block was damaged at {harmed}: {report:?}") };
        let lost = usize::try_from(LARGE).unwrap() - saved;
        assert!((1..300).contains(&lost), "{lost} keys are lost at {harmed}: {report:?}");
        assert_eq!((loss.entries, loss.keyspace.as_deref()), (lost as u64, Some("default")));
        assert!(loss.bytes > 0 && loss.bytes < 20_000, "{loss:?}");
    }
}

#[test]
fn each_range_of_damaged_blocks_is_told() {
    let (report, saved) = salvage_of_large_table(&[100, 400, 800]);
    assert_eq!(report.losses.len(), 3, "{report:?}");
    let ranges: Vec<_> = report.losses.iter().map(|loss| loss.keys.clone().unwrap()).collect();
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
    assert_eq!(report.losses[0].entries, u64::from(LARGE) - saved as u64);
}

#[test]
fn a_table_without_its_tail_is_lost_as_a_whole() {
    let (report, saved) = salvage_of_large_table(&[999]);
    assert_eq!((saved, report.losses.len()), (0, 1), "{report:?}");
    assert_eq!(report.losses[0].entries, u64::from(LARGE));
}

struct Stores {
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn new(env: &Env) -> Stores {
        Stores {
            objects: Arc::new(MemoryObjectStore::unnamed(env)),
            log: Arc::new(MemoryLogStore::unnamed(env)),
        }
    }

    fn builder(&self, env: &Env) -> Builder {
        Db::builder("mem://x")
            .env(env.clone())
            .options(options())
            .stores(Arc::clone(&self.objects), Arc::clone(&self.log))
    }

    /// Deletes the objects of a kind, newest first as their names sort; keeps the first `kept`.
    async fn delete(&self, part: &str, kept: usize) -> usize {
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = self.objects.list(request, "", None, 10_000).await.unwrap().objects;
        let doomed: Vec<_> = listed
            .into_iter()
            .map(|object| object.name)
            .filter(|name| name.as_str().contains(part))
            .skip(kept)
            .collect();
        for name in &doomed {
            self.objects.delete(request, name).await.unwrap();
        }
        doomed.len()
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env) -> F) {
    let world = World::new(1);
    let process = world.process("process");
    process.run(test(process.env())).unwrap();
}

/// Without tables there is no consistent point but a checkpoint's, whose tables they are too;
/// nothing is left, and that is said.
#[test]
fn a_database_without_tables_has_no_consistent_point() {
    run(|env| async move {
        let (stores, target) = (Stores::new(&env), Stores::new(&env));
        let db = stores.builder(&env).open().await.unwrap();
        db.default_keyspace().put(b"a", b"1").await.unwrap();
        db.flush().await.unwrap();
        db.default_keyspace().put(b"b", b"2").await.unwrap();
        drop(db);
        assert_eq!(stores.delete("/table/", 0).await, 1);
        let error = stores.builder(&env).salvage_to(target.builder(&env), SalvageMode::Consistent).await;
        // The state before the flush is whole: an empty one, and its log is trimmed.
        let report = error.unwrap();
        assert!(!report.is_whole() && report.tables == 0, "{report:?}");
        let saved = target.builder(&env).open().await.unwrap();
        assert_eq!(contents(&saved).await.unwrap(), Entries::new(), "{report:?}");
        drop(saved);
        let target = Stores::new(&env);
        let report =
            stores.builder(&env).salvage_to(target.builder(&env), SalvageMode::WithHoles).await.unwrap();
        assert_eq!((report.losses.len(), report.log_entries), (1, 1), "{report:?}");
        assert_eq!(report.losses[0].keys, Some((b"a".to_vec(), b"a".to_vec())));
        let saved = target.builder(&env).open().await.unwrap();
        assert_eq!(contents(&saved).await.unwrap(), Entries::from([(b"b".to_vec(), b"2".to_vec())]));
    });
}

/// The manifest is gone: a checkpoint still tells of a state.
#[test]
fn a_checkpoint_is_found_without_the_manifest() {
    run(|env| async move {
        let (stores, target) = (Stores::new(&env), Stores::new(&env));
        let db = stores.builder(&env).open().await.unwrap();
        db.default_keyspace().put(b"a", b"1").await.unwrap();
        db.checkpoint("monday").await.unwrap();
        db.default_keyspace().put(b"a", b"2").await.unwrap();
        db.close().await.unwrap();
        // The newest record stays, and says that there was a chain.
        assert!(stores.delete("/manifest/", 1).await > 3);
        assert_eq!(stores.builder(&env).open().await.unwrap_err().kind(), ErrorKind::Corrupt);
        let report =
            stores.builder(&env).salvage_to(target.builder(&env), SalvageMode::Consistent).await.unwrap();
        assert_eq!((report.checkpoint.as_deref(), report.is_whole()), (Some("monday"), false), "{report:?}");
        let saved = target.builder(&env).open().await.unwrap();
        assert_eq!(contents(&saved).await.unwrap(), Entries::from([(b"a".to_vec(), b"1".to_vec())]));
        // What holds a database is not written over.
        drop(saved);
        let again = stores.builder(&env).salvage_to(target.builder(&env), SalvageMode::Consistent).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        // Nothing at all is left.
        stores.delete("/checkpoint/", 0).await;
        let nothing = stores.builder(&env).survey_damage(SalvageMode::WithHoles).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::Corrupt, "{nothing}");
        let none = Stores::new(&env).builder(&env).survey_damage(SalvageMode::WithHoles).await;
        assert_eq!(none.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn a_damaged_state_must_not_be_taken() {
        notices(
            Mutant::SalvageTakesDamagedState,
            super::the_last_consistent_point_is_a_state_that_the_database_showed,
        );
    }

    #[test]
    fn nothing_behind_damage_may_be_read() {
        notices(
            Mutant::SalvageReadsPastDamage,
            super::the_last_consistent_point_is_a_state_that_the_database_showed,
        );
    }
}
