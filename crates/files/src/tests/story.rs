//! Random stories with crashes, against a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo::{Env, Result};
use tombolo_env::simulated::{Crash, World};

use crate::Files;
use crate::kind::FileKind;

use super::{content, mount, sync, write};

const PATHS: [&str; 7] =
    ["/db/1.log", "/db/2.log", "/db/MANIFEST-1", "/db/3.sst", "/db/4.sst", "/db/CURRENT", "/db/temporary"];
/// Steps of a story.
const STEPS: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Made anew, with so many bytes.
    Write(usize, usize),
    /// Appended to, if it is a log.
    Append(usize, usize),
    Cut(usize, u64),
    Spill(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Delete(usize),
    Sync(usize),
}

/// A file by its number in the story, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, (Lane, Vec<u8>)>,
}

/// Whether a lane holds it, and which.
type Lane = Option<usize>;

/// What was told outside the world: the states that may have been reached, in their order, and from
/// which on a crash may leave one.
#[derive(Debug, Default)]
struct Told {
    states: Vec<State>,
    /// By all that was accepted: names, and lanes.
    accepted: usize,
    /// By syncs: of names, and of each lane.
    names_durable: usize,
    lanes_durable: [usize; 2],
}

impl State {
    fn file(&self, path: usize) -> Option<u64> {
        self.names.get(PATHS[path]).copied()
    }

    fn content(&mut self, path: usize) -> Option<&mut Vec<u8>> {
        let file = self.file(path)?;
        self.files.get_mut(&file).map(|(_, bytes)| bytes)
    }

    /// What the step makes of it, state by state; none where it cannot be done.
    fn after(&self, step: Step, number: u64) -> Vec<State> {
        let mut next = self.clone();
        let fill = u8::try_from(number % 250).unwrap() + 1;
        match step {
            Step::Write(path, length) => {
                let kind = FileKind::of(PATHS[path].as_bytes()).lane();
                next.names.insert(PATHS[path].to_owned(), number);
                next.files.insert(number, (kind, Vec::new()));
                let empty = next.clone();
                next.files.insert(number, (kind, vec![fill; length]));
                return vec![empty, next];
            }
            Step::Append(path, length) => {
                let Some(bytes) = next.content(path) else { return Vec::new() };
                bytes.resize(bytes.len() + length, fill);
            }
            Step::Cut(path, size) => {
                let Some(bytes) = next.content(path) else { return Vec::new() };
                if size > bytes.len() as u64 {
                    return Vec::new();
                }
                bytes.truncate(usize::try_from(size).unwrap());
            }
            Step::Spill(path) | Step::Sync(path) => {
                if self.file(path).is_none() {
                    return Vec::new();
                }
            }
            Step::Rename(from, to) => {
                let Some(file) = self.file(from) else { return Vec::new() };
                if from == to || self.file(to) == Some(file) {
                    return Vec::new();
                }
                next.names.remove(PATHS[from]);
                next.names.insert(PATHS[to].to_owned(), file);
            }
            Step::Link(from, to) => {
                let Some(file) = self.file(from).filter(|_| self.file(to).is_none()) else {
                    return Vec::new();
                };
                next.names.insert(PATHS[to].to_owned(), file);
            }
            Step::Delete(path) => {
                if next.names.remove(PATHS[path]).is_none() {
                    return Vec::new();
                }
            }
        }
        vec![next]
    }
}

async fn take(files: &Files, step: Step, fill: u8) -> Result<()> {
    let path = |number: usize| PATHS[number].as_bytes();
    match step {
        Step::Write(at, length) => write(files, PATHS[at], &vec![fill; length]).await,
        Step::Append(at, length) => {
            let file = files.open(path(at))?;
            files.append(&file, &vec![fill; length]).await?;
            files.finish(&file).await
        }
        Step::Cut(at, size) => files.truncate(&files.open(path(at))?, size).await,
        Step::Spill(at) => files.spill(&files.open(path(at))?).await,
        Step::Rename(from, to) => files.rename(path(from), path(to)).await,
        Step::Link(from, to) => files.link(path(from), path(to)).await,
        Step::Delete(at) => files.delete(path(at)).await,
        Step::Sync(at) => sync(files, PATHS[at]).await,
    }
}

fn random_step(env: &Env) -> Step {
    let draw = |bound: usize| usize::try_from(env.random_u64() % bound as u64).unwrap();
    let (at, to) = (draw(PATHS.len()), draw(PATHS.len()));
    match draw(20) {
        0..=4 => Step::Write(at, [0, 10, 300, 3000, 70_000][draw(5)]),
        5..=9 => Step::Append(draw(3), [1, 100, 5000][draw(3)]),
        10 => Step::Cut(at, draw(4000) as u64),
        11 => Step::Spill(draw(3)),
        12..=13 => Step::Rename(at, to),
        14 => Step::Link(at, to),
        15..=16 => Step::Delete(at),
        _ => Step::Sync(at),
    }
}

/// Whether the process lives: its code goes on to the end of a poll after its end.
fn is_alive(env: &Env) -> bool {
    let looked = env.files().metadata(std::path::Path::new("/db"));
    !looked.is_err_and(|error| tombolo_env::simulated::is_crash(&error))
}

async fn life(env: Env, seed: u64, told: Arc<parking_lot::Mutex<Told>>) -> Result<()> {
    let files = mount(&env).await?;
    if !files.exists(b"/db") {
        files.create_directory(b"/db").await?;
        files.sync_names().await?;
    }
    let mut state = told.lock().states.last().cloned().unwrap_or_default();
    for number in 0..STEPS as u64 {
        let step = random_step(&env);
        let number = (seed << 32) | (number + 1);
        let states = state.after(step, number);
        let Some(last) = states.last() else { continue };
        state = last.clone();
        let lane = match step {
            Step::Sync(path) => {
                state.file(path).and_then(|file| state.files.get(&file)).map(|(lane, _)| *lane)
            }
            _ => None,
        };
        let reached = {
            let mut told = told.lock();
            told.states.extend(states);
            told.states.len() - 1
        };
        take(&files, step, u8::try_from(number % 250).unwrap() + 1).await?;
        if !is_alive(&env) {
            return Ok(());
        }
        let mut told = told.lock();
        told.accepted = reached;
        if let Some(lane) = lane {
            told.names_durable = reached;
            if let Some(lane) = lane {
                told.lanes_durable[lane] = reached;
            }
        }
    }
    std::mem::forget(files);
    Ok(())
}

/// Whether a crash may leave what was found: names as of some state, lanes as of others, none of
/// them before what was promised.
fn is_allowed(told: &Told, found: &BTreeMap<String, Vec<u8>>, crash: Crash) -> bool {
    let floor = |durable: usize| if crash == Crash::Kill { told.accepted } else { durable };
    let states = &told.states;
    let content = |state: usize, file: u64| states[state].files.get(&file).map(|(_, bytes)| &bytes[..]);
    (floor(told.names_durable)..states.len()).any(|at| {
        let names = &states[at].names;
        let fits = |path: &String, bytes: &[u8]| {
            let Some(file) = names.get(path) else { return false };
            match states[at].files[file].0 {
                None => content(at, *file) == Some(bytes),
                Some(lane) => (floor(told.lanes_durable[lane])..states.len())
                    .any(|lane_at| content(lane_at, *file).unwrap_or_default() == bytes),
            }
        };
        names.len() == found.len() && found.iter().all(|(path, bytes)| fits(path, bytes))
    })
}

fn story(seed: u64, crash: Crash, lives: u64) {
    let world = World::new(seed);
    let told = Arc::new(parking_lot::Mutex::new(Told { states: vec![State::default()], ..Told::default() }));
    for number in 0..lives {
        let process = world.process("program");
        process.crash_at_mutation(20 + (seed * 37 + number * 53) % 300, crash);
        let ended = process.run(life(process.env(), seed * lives + number, Arc::clone(&told)));
        if let Some(result) = ended
            && is_alive(&process.env())
        {
            result.unwrap();
        }
        process.kill();
        if crash == Crash::PowerLoss {
            world.host(0).power_loss();
        }
        let successor = world.process("successor");
        let env = successor.env();
        let found = successor.run(async move {
            let files = mount(&env).await?;
            let mut found = BTreeMap::new();
            if files.exists(b"/db") {
                for (name, _) in files.list(b"/db")? {
                    let path = format!("/db/{}", String::from_utf8(name).unwrap());
                    let bytes = content(&files, &path).await?;
                    found.insert(path, bytes);
                }
            }
            files.close().await?;
            Ok::<_, tombolo::Error>(found)
        });
        let found = found.unwrap().unwrap();
        let mut told = told.lock();
        assert!(is_allowed(&told, &found, crash), "seed {seed}, life {number}: {:?}", lengths(&found));
        // The next life goes on from there, and all of it is durable: it was closed.
        let mut state = told.states.last().cloned().unwrap_or_default();
        state.names.clear();
        for (index, (path, bytes)) in found.into_iter().enumerate() {
            let file = (seed << 32) | (number << 16) | (1 << 15) | index as u64;
            let before = told.states.iter().rev().find_map(|state| {
                let (kind, bytes_then) = state.files.get(state.names.get(&path)?)?;
                (*bytes_then == bytes).then_some(*kind)
            });
            let kind = before.unwrap_or_else(|| FileKind::of(path.as_bytes()).lane());
            state.names.insert(path, file);
            state.files.insert(file, (kind, bytes));
        }
        *told = Told { states: vec![state], ..Told::default() };
    }
}

fn lengths(found: &BTreeMap<String, Vec<u8>>) -> Vec<(&str, usize)> {
    found.iter().map(|(path, bytes)| (path.as_str(), bytes.len())).collect()
}

#[test]
pub(super) fn crashes_leave_what_was_synced() {
    for seed in 0..20 {
        story(seed, Crash::Kill, 3);
        story(seed, Crash::PowerLoss, 3);
    }
}
