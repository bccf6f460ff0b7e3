//! Benchmarks, kills and fights: db_bench writes, ldb and sst_dump read the result.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::site::{Loaded, printed};
use crate::nodes::signal;

/// Benchmarks of db_bench, run one after the other in one process.
const BENCHMARKS: [&str; 3] = [
    "fillseq,readrandom,multireadrandom,seekrandom,readseq,overwrite,compact,readrandom",
    "fillrandom,readrandom,readwhilewriting,mixgraph,backup,stats",
    "fillsync,readreverse,deleterandom",
];
/// How long a writer may take to say something new.
const SILENCE_MAX: Duration = Duration::from_secs(120);

pub(super) fn benchmarks(site: &Loaded<'_>, entries: u64) -> Result<(), String> {
    for (number, benchmarks) in BENCHMARKS.iter().enumerate() {
        let database = format!("/bench-{number}");
        let mut command = site.command("db_bench", &database);
        command.args([
            format!("--benchmarks={benchmarks}"),
            format!("--num={entries}"),
            format!("--reads={}", entries / 4),
            format!("--backup_dir=/backup-{number}"),
            "--write_buffer_size=1048576".into(),
            "--compression_type=none".into(),
            "--multiread_batched=1".into(),
        ]);
        let text = printed(command)?;
        for line in text.lines().filter(|line| line.contains(" micros/op ")) {
            println!("  {}", line.trim());
        }
        let lost = |line: &&str| {
            // Every key was written by `fillseq`.
            let counts = line.rsplit_once('(').and_then(|(_, found)| found.split_once(" found)"));
            counts.and_then(|(counts, _)| counts.split_once(" of ")).is_some_and(|(a, b)| a != b)
        };
        if number == 0
            && let Some(line) = text.lines().find(lost)
        {
            return Err(format!("not every key that was written was found: {line}"));
        }
        verify(site, &database)?;
        if benchmarks.contains("backup") {
            restored(site, number)?;
        }
    }
    Ok(())
}

/// A backup, which read the logs of the process that wrote them, holds what the database does.
fn restored(site: &Loaded<'_>, number: usize) -> Result<(), String> {
    let (from, to) = (format!("/bench-{number}"), format!("/restored-{number}"));
    let uri = format!("{}&takeover=always&claim=change", site.uri());
    let mut restore = site.command_at(&uri, "ldb", &to);
    restore.args([
        "restore".into(),
        format!("--backup_dir=/backup-{number}"),
        format!("--backup_fs_uri={uri}"),
    ]);
    printed(restore)?;
    let scanned = |database: &str| {
        let mut scan = site.command("ldb", database);
        scan.args(["scan", "--hex"]);
        printed(scan)
    };
    let (there, here) = (scanned(&from)?, scanned(&to)?);
    if there != here {
        return Err(format!("{to} was restored from a backup of {from}, and differs from it"));
    }
    println!("  {to}: restored from a backup, the same {} entries", here.lines().count());
    Ok(())
}

/// What RocksDB's own tools say of a database.
fn verify(site: &Loaded<'_>, database: &str) -> Result<(), String> {
    let mut check = site.command("ldb", database);
    check.arg("checkconsistency");
    let text = printed(check)?;
    if !text.contains("OK") {
        return Err(format!("ldb checkconsistency of {database}: {text}"));
    }
    let mut verify = site.command("sst_dump", database);
    verify.arg("--command=verify");
    let text = match printed(verify) {
        // Everything is in the log still.
        Err(told) if told.contains("No valid SST files found") => told,
        told => told?,
    };
    let wrong = |line: &&str| line.contains("orrupt") || line.contains("not ok");
    if let Some(line) = text.lines().find(wrong) {
        return Err(format!("sst_dump --command=verify of {database}: {line}"));
    }
    println!("  {database}: checkconsistency and sst_dump verify find nothing wrong");
    Ok(())
}

/// A db_bench that writes in order; how many operations it says that it has finished.
pub(super) struct Writer {
    child: Child,
    finished: Arc<AtomicU64>,
    said: Option<JoinHandle<String>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ended = (self.child.kill(), self.child.wait());
    }
}

impl Writer {
    /// Starts one that syncs each write.
    fn start(site: &Loaded<'_>, uri: &str, database: &str) -> Result<Writer, String> {
        let mut command = site.command_at(uri, "db_bench", database);
        command.args(["--sync=1", "--value_size=100", "--write_buffer_size=65536"]);
        Writer::of(command)
    }

    /// Starts one whose options are given.
    pub(super) fn of(mut command: Command) -> Result<Writer, String> {
        command.args(["--benchmarks=fillseq", "--num=100000000", "--compression_type=none"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start db_bench: {error}"))?;
        let mut told = child.stderr.take().ok_or("db_bench has no standard error")?;
        let finished = Arc::new(AtomicU64::new(0));
        let reached = Arc::clone(&finished);
        let said = std::thread::spawn(move || {
            let (mut line, mut all, mut byte) = (String::new(), String::new(), [0]);
            while let Ok(1) = told.read(&mut byte) {
                line.push(char::from(byte[0]));
                let count = line.rsplit_once("finished ").and_then(|(_, rest)| rest.split_once(" ops"));
                if let Some(count) = count.and_then(|(count, _)| count.parse().ok()) {
                    reached.store(count, Ordering::Release);
                    line.clear();
                } else if byte[0] == b'\n' {
                    all.push_str(&std::mem::take(&mut line));
                }
            }
            all + &line
        });
        Ok(Writer { child, finished, said: Some(said) })
    }

    /// What it said on standard error, but for what it finished. It has ended.
    fn said(&mut self) -> String {
        self.said.take().and_then(|said| said.join().ok()).unwrap_or_default()
    }

    /// What it has acknowledged so far.
    fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Waits until it has finished so many operations.
    pub(super) fn wait_for(&mut self, wanted: u64) -> Result<u64, String> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let reached = self.finished();
            if reached >= wanted {
                return Ok(reached);
            }
            if reached > last {
                (last, since) = (reached, Instant::now());
            }
            let ended = self.child.try_wait().map_err(|error| format!("wait: {error}"))?;
            if ended.is_some() || since.elapsed() > SILENCE_MAX {
                return Err(format!("db_bench stands at {reached} operations: {ended:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it; says what it had acknowledged.
    pub(super) fn kill(mut self) -> Result<u64, String> {
        self.child.kill().map_err(|error| format!("kill: {error}"))?;
        self.child.wait().map_err(|error| format!("wait: {error}"))?;
        let _said = self.said();
        Ok(self.finished())
    }

    /// Waits for its end, which must be an error that says that it was fenced; says what it had
    /// acknowledged.
    fn fenced(mut self) -> Result<u64, String> {
        let end = Instant::now() + SILENCE_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(|error| format!("wait: {error}"))? {
                break status;
            }
            if Instant::now() > end {
                return Err("the process that was fenced went on".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = self.said();
        if status.success() {
            return Err("the process that was fenced ended well".to_owned());
        }
        if !said.contains("ence") {
            return Err(format!("the process that was fenced does not say so: {said}"));
        }
        Ok(self.finished())
    }
}

/// The numbers that a database filled in order holds.
fn numbers(site: &Loaded<'_>, database: &str) -> Result<Vec<u64>, String> {
    let mut scan = site.command("ldb", database);
    scan.args(["scan", "--hex"]);
    let text = printed(scan)?;
    let digits = text.lines().filter_map(|line| line.strip_prefix("0x")?.get(..16));
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits.map(|digits| u64::from_str_radix(digits, 16).map_err(|error| error.to_string())).collect()
}

/// A database holds a prefix of what was written, no shorter than what was acknowledged.
fn holds(site: &Loaded<'_>, database: &str, acknowledged: u64) -> Result<(), String> {
    verify(site, database)?;
    let numbers = numbers(site, database)?;
    if let Some((place, number)) = (0..).zip(&numbers).find(|(place, number)| place != *number) {
        return Err(format!("{database}: a hole at {place}, {number} is there"));
    }
    let found = numbers.len() as u64;
    if found < acknowledged {
        return Err(format!("{database}: {found} keys, and {acknowledged} were acknowledged"));
    }
    println!("  {database}: {acknowledged} synced writes were acknowledged, {found} are there");
    Ok(())
}

/// A writer is killed; what it acknowledged is there.
pub(super) fn killed(site: &Loaded<'_>, round: u64) -> Result<(), String> {
    let database = format!("/killed-{round}");
    let mut writer = Writer::start(site, &format!("{}&takeover=always", site.uri()), &database)?;
    let reached = writer.wait_for(400 + round * 700 % 3000);
    let acknowledged = writer.kill()?;
    reached?;
    holds(site, &database, acknowledged)
}

/// A lock is refused while its holder lives, and the holder is not disturbed.
pub(super) fn refused(site: &Loaded<'_>) -> Result<(), String> {
    let database = "/refused";
    let mut writer = Writer::start(site, &format!("{}&takeover=always", site.uri()), database)?;
    let tried = writer.wait_for(200).and_then(|reached| {
        let mut put = site.command("ldb", "/other");
        put.args(["put", "zzz", "another process", "--create_if_missing"]);
        match printed(put) {
            Err(refused) if refused.contains("InUse") => writer.wait_for(reached + 200),
            told => Err(format!("a lock was not refused while its holder lived: {told:?}")),
        }
    });
    let acknowledged = writer.kill()?;
    tried?;
    holds(site, database, acknowledged)
}

/// Writers take the store from each other, in turn: each is fenced while it writes, or while it
/// stands still and goes on later. Everything that each acknowledged, however late, is there.
pub(super) fn fight(site: &Loaded<'_>, long: Duration) -> Result<(), String> {
    let uri = format!("{}&takeover=always", site.uri());
    let end = Instant::now() + long;
    let mut acknowledged = Vec::new();
    let mut present = Writer::start(site, &uri, "/fight-0")?;
    let fought = loop {
        let round = acknowledged.len();
        if round >= 2 && Instant::now() > end {
            break Ok(());
        }
        if let Err(error) = present.wait_for(300) {
            break Err(error);
        }
        // Every other one is stopped, so that it finds out when all is over.
        let (is_stopped, id) = (round % 2 == 1, present.child.id());
        if is_stopped {
            signal("-STOP", id);
        }
        let mut next = match Writer::start(site, &uri, &format!("/fight-{}", round + 1)) {
            Ok(next) => next,
            Err(error) => break Err(error),
        };
        let took = next.wait_for(1);
        if is_stopped {
            signal("-CONT", id);
        }
        let old = std::mem::replace(&mut present, next);
        match took.and_then(|_| old.fenced()) {
            Ok(finished) => acknowledged.push(finished),
            Err(error) => break Err(error),
        }
    };
    acknowledged.push(present.kill()?);
    fought?;
    for (round, acknowledged) in acknowledged.iter().enumerate() {
        holds(site, &format!("/fight-{round}"), *acknowledged)?;
    }
    println!("  {} writers fought; those that were fenced harmed nothing", acknowledged.len());
    Ok(())
}
