//! How long a database is without a writer:
//! `cargo run --release -p tombolo --example takeover -- /path 100 1000`, or, with
//! `--features cloud`, `… -- 's3://bucket/takeover?endpoint=http://127.0.0.1:7070' 100 1000`.
//!
//! For each size, in megabytes, a database is filled. Then a process writes to it durably, one
//! write after the other, and beside each 100 kB for which it does not wait, so that there is log
//! to replay (`--alone` leaves them out); and another stands by for it. The writer is killed with
//! SIGKILL, or hands over; measured is the time from there to the first durable write of the other,
//! in its process, as this one hears it. The other is the writer of the next round. What the dead
//! one had reported must be found. The last column are the requests for objects of an opening, all
//! of them, in flight together or not.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tombolo::{Db, Durability, Error, ErrorKind, OpenMode, Result, StandbyOptions};

const ROUNDS: usize = 5;
const VALUE_BYTES: usize = 1000;
const SILENCES_MS: [u64; 2] = [1000, 200];
/// Written beside each write that is waited for, and the keys that these have.
const BESIDE: usize = 10;
const BESIDE_BYTES: usize = 10_000;
const BESIDE_KEYS: u64 = 20_000;

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Bug, "a process of the example failed").source(error)
}

fn say(line: &str) {
    println!("{line}");
    // A pipe that nobody reads any more: the parent has gone, and so should this.
    if std::io::stdout().flush().is_err() {
        std::process::exit(1);
    }
}

/// The URI of a database below a directory or a URI.
fn below(root: &str, name: u64) -> String {
    match root.split_once('?') {
        Some((root, parameters)) => format!("{root}/{name}?{parameters}"),
        None if root.contains("://") => format!("{root}/{name}"),
        None => format!("file://{root}/{name}"),
    }
}

/// Fills a database with `megabytes` of values that do not compress. Unlogged, and flushed at the
/// end: in a bucket each accepted write waits for a put.
fn fill(uri: &str, megabytes: u64) -> Result<()> {
    let db = Db::builder(uri).mode(OpenMode::CreateOrOpen).open().wait()?;
    let keys = db.default_keyspace();
    let mut random = 1u64;
    for number in 0..megabytes * 1000 {
        let value: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        })
        .take(VALUE_BYTES)
        .collect();
        keys.put_with(number.to_be_bytes(), value, Durability::Unlogged).wait()?;
    }
    db.flush().wait()?;
    db.close().wait()
}

/// The requests for objects of an opening.
fn opening(uri: &str) -> Result<String> {
    let db = Db::builder(uri).mode(OpenMode::Open).open().wait()?;
    let mut kinds = std::collections::BTreeMap::<&str, u64>::new();
    for counted in db.requests().counted {
        *kinds.entry(counted.kind.name()).or_default() += counted.requests;
    }
    db.close().wait()?;
    Ok(kinds.iter().map(|(kind, requests)| format!("{requests} {kind}")).collect::<Vec<_>>().join(", "))
}

/// A child: stands by if asked, takes over, writes until it is killed or told to hand over.
fn work(role: &str, uri: &str, silence_ms: u64, beside: usize) -> Result<()> {
    let db = if role == "standby" {
        let options = StandbyOptions { silence_max: Duration::from_millis(silence_ms) };
        let standby = Db::builder(uri).stand_by(options).wait()?;
        say("standing");
        standby.take_over().wait()?
    } else {
        Db::builder(uri).mode(OpenMode::Open).open().wait()?
    };
    let keys = db.default_keyspace();
    let found = keys
        .get(b"counter")
        .wait()?
        .and_then(|value| value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)))
        .unwrap_or(0);
    let leaving = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&leaving);
    std::thread::spawn(move || {
        let mut line = String::new();
        let _read = std::io::stdin().read_line(&mut line);
        told.store(true, Ordering::Relaxed);
    });
    let mut value = vec![0; BESIDE_BYTES];
    for counter in found + 1.. {
        for number in 0..beside as u64 {
            value[..8].copy_from_slice(&counter.to_be_bytes());
            // A write goes on without the thread that began it; one that the log has no room for is
            // left out.
            drop(keys.put(((counter * beside as u64 + number) % BESIDE_KEYS).to_be_bytes(), &value));
        }
        keys.put(b"counter", counter.to_be_bytes()).wait()?;
        say(&format!("wrote {counter} after {found}"));
        if leaving.load(Ordering::Relaxed) {
            break;
        }
    }
    // Writes go on until the database is closed.
    let last = Arc::new(Mutex::new(String::new()));
    let (writing, heard) = (keys.clone(), Arc::clone(&last));
    let writer = std::thread::spawn(move || {
        for counter in found + 1_000_000.. {
            if writing.put(b"counter", u64::to_be_bytes(counter)).wait().is_err() {
                return;
            }
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = format!("left {counter}");
            say(&format!("wrote {counter} after {found}"));
        }
    });
    db.hand_over().wait()?;
    let _ended = writer.join();
    say(&last.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
    /// The newest write that it reported.
    written: u64,
}

impl Worker {
    fn start(role: &str, uri: &str, silence_ms: u64, beside: usize) -> Result<Worker> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .args([role, uri, &silence_ms.to_string(), &beside.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        match (child.stdout.take(), child.stdin.take()) {
            (Some(stdout), Some(stdin)) => {
                Ok(Worker { child, lines: BufReader::new(stdout).lines(), stdin, written: 0 })
            }
            _ => Err(Error::new(ErrorKind::Bug, "a process without pipes")),
        }
    }

    /// The next line; `None` at the end.
    fn hear(&mut self) -> Option<String> {
        let line = self.lines.next()?.ok()?;
        if let Some(counter) = line
            .strip_prefix("wrote ")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|number| number.parse().ok())
        {
            self.written = counter;
        }
        Some(line)
    }

    /// Waits for the first write, and says what it had found.
    fn first_write(&mut self) -> Result<u64> {
        let found = |line: String| line.rsplit(' ').next().and_then(|number| number.parse().ok());
        std::iter::from_fn(|| self.hear())
            .find(|line| line.starts_with("wrote"))
            .and_then(found)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a process ended before it wrote"))
    }
}

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() - 1])
}

/// One change of writers; milliseconds without one.
fn change(mut old: Worker, new: &mut Worker, kill: bool) -> Result<f64> {
    // The other stands by, and the writer knows it.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until {
        old.hear().ok_or_else(|| Error::new(ErrorKind::Bug, "the writer ended"))?;
    }
    let began = if kill {
        let began = Instant::now();
        old.child.kill().map_err(failed)?;
        began
    } else {
        writeln!(old.stdin, "leave").map_err(failed)?;
        Instant::now()
    };
    let reader = std::thread::spawn(move || {
        // Without a writer from its last acknowledged write on.
        let mut last = began;
        while old.hear().is_some_and(|line| !line.starts_with("left")) {
            last = Instant::now();
        }
        let _ended = old.child.wait();
        (old.written, last)
    });
    let found = new.first_write()?;
    let took = Instant::now();
    let (reported, last) = reader.join().map_err(|_| Error::new(ErrorKind::Bug, "a thread panicked"))?;
    assert!(found >= reported, "a write was lost: {reported} was acknowledged, {found} was found");
    Ok(took.duration_since(if kill { began } else { last }).as_secs_f64() * 1e3)
}

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, uri, silence_ms, beside] = &arguments[..]
        && (role == "writer" || role == "standby")
    {
        return work(role, uri, silence_ms.parse().unwrap_or(1000), beside.parse().unwrap_or(0));
    }
    let given = arguments.len();
    arguments.retain(|argument| argument != "--alone");
    let beside = if arguments.len() < given { 0 } else { BESIDE };
    let directory = arguments
        .first()
        .cloned()
        .unwrap_or_else(|| std::env::temp_dir().join("tombolo-takeover").display().to_string());
    let mut sizes: Vec<u64> = arguments.iter().skip(1).filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![100];
    }
    println!("{ROUNDS} rounds, ms: median (longest)");
    println!(
        "{:>8} {:>12} {:>24} {:>24}   an opening's requests",
        "MB", "silence", "kill to first write", "hand-over"
    );
    for size in sizes {
        let uri = below(&directory, size);
        fill(&uri, size)?;
        let opening = opening(&uri)?;
        for silence_ms in SILENCES_MS {
            let (mut killed, mut handed) = (Vec::new(), Vec::new());
            let mut writer = Worker::start("writer", &uri, silence_ms, beside)?;
            // The first one looks for who stands by when it opens, and then once a minute: the
            // first change is not counted.
            for round in 0..=2 * ROUNDS {
                let mut standby = Worker::start("standby", &uri, silence_ms, beside)?;
                standby.hear();
                if round == 0 {
                    writer.first_write()?;
                    writer.child.kill().map_err(failed)?;
                    let _ended = writer.child.wait();
                    let mut next = Worker::start("writer", &uri, silence_ms, beside)?;
                    next.first_write()?;
                    writer = next;
                }
                let took = change(writer, &mut standby, round % 2 == 0)?;
                writer = standby;
                match round {
                    0 => {}
                    _ if round % 2 == 0 => killed.push(took),
                    _ => handed.push(took),
                }
            }
            writer.child.kill().map_err(failed)?;
            let _ended = writer.child.wait();
            let shown = |times| {
                let (middle, longest) = median(times);
                format!("{middle:.0} ({longest:.0})")
            };
            println!("{size:>8} {silence_ms:>9} ms {:>24} {:>24}   {opening}", shown(killed), shown(handed));
        }
    }
    Ok(())
}
