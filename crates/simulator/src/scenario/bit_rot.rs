//! Each byte of a small database changed in turn: an error that names the damage, or all reads
//! right; never a panic, a hang, a wrong answer, or further damage.

use std::path::{Path, PathBuf};

use tombolo::{Durability, Error, ErrorKind, Keyspace};
use tombolo_env::simulated::{DiskImage, Process, World};

use super::{Run, form_of, guarded, mix, needed};
use crate::client::{Client, Entry, Form, Setup, Step, Stop};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::{Content, show};

const NAME: &str = "bit-rot";
/// Each seed takes every so manieth byte.
const STRIDE: u64 = 512;
/// Seeds that change every byte, of a database with a log in either form.
pub(super) const SEEDS: u64 = 2 * STRIDE;

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { offset: u64, mask: u8 },
    Cut { length: u64 },
    Missing,
}

/// A small database, closed cleanly, and what it holds.
struct Specimen {
    setup: Setup,
    image: DiskImage,
    files: Vec<(PathBuf, u64)>,
    content: Content,
}

fn history() -> Vec<Step> {
    let put = |keyspace: &str, key: &str, length| Entry::Put(keyspace.into(), key.into(), length);
    let mut steps = vec![Step::Create("orders".into())];
    for number in 0..24 {
        let key = format!("key-{number:02}");
        steps.push(Step::Write(vec![put("default", &key, 40), put("orders", &key, 15)], Durability::Durable));
        if number == 10 {
            steps.push(Step::Flush);
        }
        if number == 16 {
            steps.push(Step::Compact);
        }
    }
    steps.push(Step::Write(vec![Entry::Delete("default".into(), b"key-03".to_vec())], Durability::Durable));
    steps.push(Step::Write(vec![put("default", "last", 100)], Durability::Durable));
    steps
}

fn specimen(run: &Run, form: Form) -> Result<Specimen, Violation> {
    let setup = Setup { memtable_bytes: 64 << 10, ..Setup::small(form) };
    let process = run.world.process("maker");
    let (inside, opened, oracle) = (process.clone(), setup.clone(), run.oracle.clone());
    let outcome = process.run(async move {
        let mut client = Client::open(&inside, &opened, &oracle).await?;
        client.steps(&history()).await?;
        let expected = oracle.lock().expected(client.id());
        client.close().await?;
        Ok::<_, Stop>(expected)
    });
    let content = match outcome {
        None => return Err(Violation::new("the maker ended by itself")),
        Some(Err(stop)) => {
            Stop::unexpected_error(stop, "making the specimen")?;
            return Err(Violation::new("the maker ended by itself"));
        }
        Some(Ok(expected)) => expected.content().clone(),
    };
    process.kill();
    let host = run.world.host(0);
    Ok(Specimen { setup, image: host.disk_image(), files: host.all_files(), content })
}

/// The damages of a seed: every `STRIDE`th byte of all files, and some cuts.
fn damages(specimen: &Specimen, offset: u64, seed: u64) -> Vec<(PathBuf, Damage)> {
    let mut all = Vec::new();
    let mut place = 0;
    for (nth, (path, length)) in specimen.files.iter().enumerate() {
        for byte in 0..*length {
            if place % STRIDE == offset {
                let mask = if mix(seed, place).is_multiple_of(4) { 0xFF } else { 1 << (place % 8) };
                all.push((path.clone(), Damage::Flip { offset: byte, mask }));
            }
            place += 1;
        }
        if nth as u64 % 8 == offset % 8 && *length > 0 {
            all.push((path.clone(), Damage::Missing));
            for length in [0, length / 2, length - 1, mix(seed, place) % length] {
                all.push((path.clone(), Damage::Cut { length }));
            }
        }
    }
    all
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let (form, offset) = (form_of(seed), seed / 2 % STRIDE);
    let mut made = None;
    let mut report = needed(
        NAME,
        seed,
        || "making the specimen".to_owned(),
        1,
        |run| {
            made = Some(specimen(run, form)?);
            Ok(())
        },
    )?;
    let Some(specimen) = made else { return Ok(report) };
    report.add(&guarded(
        NAME,
        seed,
        || "the specimen as it is".to_owned(),
        seed,
        |run| {
            run.world.host(0).set_disk(&specimen.image);
            let process = run.world.process("reader");
            if read(run, &process, &specimen, false)? {
                Ok(())
            } else {
                Err(Violation::new("something is missing"))
            }
        },
    )?);
    for (path, damage) in damages(&specimen, offset, seed) {
        let place = || format!("{damage:?} of {}, log {}", path.display(), form.name());
        report.add(&guarded(NAME, seed, place, seed, |run| examine(run, &specimen, &path, damage))?);
    }
    Ok(report)
}

fn apply(world: &World, path: &Path, damage: Damage) -> Result<(), Violation> {
    let host = world.host(0);
    let done = match damage {
        Damage::Flip { offset, mask } => host.damage(path, |content| {
            if let Some(byte) = usize::try_from(offset).ok().and_then(|offset| content.get_mut(offset)) {
                *byte ^= mask;
            }
        }),
        Damage::Cut { length } => host.truncate(path, length),
        Damage::Missing => world.process("remover").files().remove_file(path),
    };
    done.map_err(|error| Violation::new(format!("the scenario cannot damage {}: {error}", path.display())))
}

/// Damages, opens and reads; then undoes the damage, opens and reads.
fn examine(run: &Run, specimen: &Specimen, path: &Path, damage: Damage) -> Result<(), Violation> {
    let host = run.world.host(0);
    host.set_disk(&specimen.image);
    apply(&run.world, path, damage)?;
    let damaged = host.content(path).ok();
    let process = run.world.process("reader of damage");
    let healthy = read(run, &process, specimen, true)?;
    process.kill();
    if healthy {
        run.oracle.lock().report.verified += 1;
        return Ok(());
    }
    run.oracle.lock().report.errors += 1;
    // Nothing else may be damaged: with the byte as it was, all is well again.
    if host.content(path).ok() != damaged {
        return Err(Violation::new(format!(
            "an error was answered, and the damaged file {} was changed",
            path.display()
        )));
    }
    restore(&run.world, specimen, path)?;
    let process = run.world.process("reader of what was restored");
    if read(run, &process, specimen, false)? {
        Ok(())
    } else {
        Err(Violation::new("something is still missing"))
    }
}

fn restore(world: &World, specimen: &Specimen, path: &Path) -> Result<(), Violation> {
    let pristine = World::new(0);
    pristine.host(0).set_disk(&specimen.image);
    let original = pristine.host(0).content(path).map_err(|error| Violation::new(error.to_string()))?;
    let host = world.host(0);
    if host.content(path).is_err() {
        world
            .process("restorer")
            .files()
            .create_new(path)
            .map_err(|error| Violation::new(error.to_string()))?;
    }
    host.damage(path, |content| *content = original).map_err(|error| Violation::new(error.to_string()))
}

/// Whether everything was right; an error for damage is `false` where damage is expected, and a
/// violation where not.
fn read(run: &Run, process: &Process, specimen: &Specimen, damaged: bool) -> Result<bool, Violation> {
    let (inside, setup, content) = (process.clone(), specimen.setup.clone(), specimen.content.clone());
    let outcome = process.run(async move { read_all(&inside, &setup, &content).await });
    let Some(outcome) = outcome else { return Err(Violation::new("the reader ended by itself")) };
    run.oracle.lock().report.opened += 1;
    let errors = outcome?;
    for error in &errors {
        let named = error.object_name().is_some() || error.position().is_some();
        if !damaged {
            return Err(Violation::new(format!("after the damage was undone: {error}")));
        }
        // What the manifest names and is gone is damage; `NotFound` would say that it was never
        // there.
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) || !named {
            return Err(Violation::new(format!(
                "damage must be answered by kind with the object's name: {error}"
            )));
        }
    }
    Ok(errors.is_empty())
}

/// Opens and reads all in each way. Errors are collected; every other answer must be right.
async fn read_all(process: &Process, setup: &Setup, content: &Content) -> Result<Vec<Error>, Violation> {
    let db = match setup.builder(process).open().await {
        Ok(db) => db,
        Err(error) => return Ok(vec![error]),
    };
    let mut errors = Vec::new();
    let names: Vec<String> = db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
    if !names.iter().eq(content.keys()) {
        return Err(Violation::new(format!("keyspaces are {names:?}, expected {:?}", content.keys())));
    }
    for keyspace in db.keyspaces() {
        let expected = &content[keyspace.name()];
        read_keys(&keyspace, expected, &mut errors).await?;
        read_scans(&keyspace, expected, &mut errors).await?;
    }
    match db.verify().await {
        Ok(report) if report.damage.is_empty() => {}
        // What the damage hits may be something that no read needs.
        Ok(_) => {}
        Err(error) => errors.push(error),
    }
    if let Err(error) = db.close().await {
        errors.push(error);
    }
    Ok(errors)
}

type Entries = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

async fn read_keys(
    keyspace: &Keyspace,
    expected: &Entries,
    errors: &mut Vec<Error>,
) -> Result<(), Violation> {
    let mut keys: Vec<Vec<u8>> = expected.keys().cloned().collect();
    keys.extend([b"key-03".to_vec(), b"absent".to_vec()]);
    for key in &keys {
        match keyspace.get(key).await {
            Ok(value) if value.as_deref() == expected.get(key).map(Vec::as_slice) => {}
            Ok(value) => {
                return Err(Violation::new(format!(
                    "get of {} gives {:?}",
                    show(key),
                    value.as_deref().map(show)
                )));
            }
            Err(error) => errors.push(error),
        }
    }
    match keyspace.multi_get(&keys).await {
        Ok(values) => {
            let right = keys
                .iter()
                .zip(&values)
                .all(|(key, value)| value.as_deref() == expected.get(key).map(Vec::as_slice));
            if !right || values.len() != keys.len() {
                return Err(Violation::new("multi_get gives a wrong answer"));
            }
        }
        Err(error) => errors.push(error),
    }
    Ok(())
}

async fn read_scans(
    keyspace: &Keyspace,
    expected: &Entries,
    errors: &mut Vec<Error>,
) -> Result<(), Violation> {
    for forward in [true, false] {
        let mut scan = keyspace.scan::<&[u8]>(..);
        if !forward {
            scan.seek_to_last();
        }
        let mut wanted = expected.iter();
        loop {
            let got = if forward { scan.next_async().await } else { scan.prev_async().await };
            let want = if forward { wanted.next() } else { wanted.next_back() };
            match (got, want) {
                (Err(error), _) => {
                    errors.push(error);
                    break;
                }
                (Ok(None), None) => break,
                (Ok(Some((key, value))), Some((want_key, want_value)))
                    if *key == **want_key && *value == **want_value => {}
                (Ok(got), want) => {
                    let (got, want) = (got.map(|(key, _)| show(&key)), want.map(|(key, _)| show(key)));
                    return Err(Violation::new(format!(
                        "a scan (forward: {forward}) gives {got:?}, expected {want:?}"
                    )));
                }
            }
        }
    }
    Ok(())
}
