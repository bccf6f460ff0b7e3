//! The questions to each program, and how its answer is read.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A number and what it is.
pub struct Measured {
    pub quantity: &'static str,
    pub value: f64,
}

/// An unmodified program.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    Sqlite,
    Redis,
    RocksDb,
}

/// Transactions, each of one row of 100 B.
const SQLITE_TRANSACTIONS: u64 = 3000;
/// Rows of 4 KB, each its own transaction, that make a write-ahead log of 60 MB.
const SQLITE_LOG_ROWS: u64 = 7500;
/// Writes of 512 B by one client, and by sixteen.
const REDIS_WRITES: [(&str, &str, &str); 2] =
    [("1", "5000", "writes/s, 1 client"), ("16", "30000", "writes/s, 16 clients")];
/// Writes of 512 B to different keys that make an append-only file of 60 MB.
const REDIS_LOG_WRITES: &str = "107000";
/// Writes of 100 B that make a write-ahead log of 60 MB, and how many of them are a batch that is
/// synced.
const ROCKSDB_LOG_WRITES: u64 = 440_000;
const ROCKSDB_LOG_BATCH: &str = "100";
/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);

impl Program {
    pub const ALL: [Program; 3] = [Program::Sqlite, Program::Redis, Program::RocksDb];

    pub fn name(self) -> &'static str {
        match self {
            Program::Sqlite => "SQLite",
            Program::Redis => "Redis",
            Program::RocksDb => "RocksDB",
        }
    }

    /// What of it is not installed.
    pub fn missing(self) -> Option<&'static str> {
        let programs: &[&'static str] = match self {
            Program::Sqlite => &["sqlite3"],
            Program::Redis => &["redis-server", "redis-benchmark", "redis-cli"],
            Program::RocksDb => &["db_bench", "ldb"],
        };
        programs
            .iter()
            .find(|program| {
                Command::new(program)
                    .arg("--version")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .is_err()
            })
            .copied()
    }

    /// Measures it in `base`, which is empty: on its disk, or in a database with that log. What it
    /// writes is synced unless `is_weak`.
    pub fn measure(
        self,
        is_weak: bool,
        log: Option<String>,
        library: &Path,
        base: &Path,
    ) -> Result<Vec<Measured>, String> {
        let place = Place {
            is_synced: !is_weak,
            log,
            preloaded: library,
            files: base.join("files"),
            store: base.join("store"),
        };
        std::fs::create_dir_all(&place.files).map_err(|error| error.to_string())?;
        match self {
            Program::Sqlite => sqlite(&place),
            Program::Redis => redis(&place),
            Program::RocksDb => rocksdb(&place),
        }
    }
}

/// Where a program runs, and where its files are kept.
struct Place<'a> {
    is_synced: bool,
    log: Option<String>,
    preloaded: &'a Path,
    files: PathBuf,
    store: PathBuf,
}

impl Place<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.files);
        if let Some(log) = &self.log {
            let files = self.files.display();
            let patterns = format!(
                "{files}/*.db:{files}/*.db-wal:{files}/*.db-journal:{files}/appendonlydir/*:{files}/*.log"
            );
            command
                .env("LD_PRELOAD", self.preloaded)
                .env("TOMBOLO_PRELOAD_STORE", format!("file://{}", self.store.display()))
                .env("TOMBOLO_PRELOAD_LOG", log)
                .env("TOMBOLO_PRELOAD_FILES", patterns);
        }
        command
    }
}

fn printed(command: &mut Command, input: &str) -> Result<String, String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {shown}: {error}"))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let input = input.to_owned();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let _written = writer.join();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn kill(mut child: Child) -> Result<(), String> {
    child.kill().and_then(|()| child.wait()).map(drop).map_err(|error| error.to_string())
}

fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is no number"))
}

fn sqlite(place: &Place<'_>) -> Result<Vec<Measured>, String> {
    let synchronous = if place.is_synced { "FULL" } else { "OFF" };
    let pragmas = format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous};\nCREATE TABLE IF NOT EXISTS t(x);\n"
    );
    let now = "SELECT 'at', julianday('now');\n";
    let mut script = format!("{pragmas}{now}");
    for _ in 0..SQLITE_TRANSACTIONS {
        script.push_str("INSERT INTO t VALUES(hex(randomblob(50)));\n");
    }
    script.push_str(now);
    let told = printed(place.command("sqlite3").arg("a.db"), &script)?;
    let moments = told
        .lines()
        .filter_map(|line| line.strip_prefix("at|"))
        .map(number)
        .collect::<Result<Vec<_>, _>>()?;
    let [first, .., last] = moments[..] else { return Err(format!("no moments in {told:?}")) };
    let rate = f64::from(u32::try_from(SQLITE_TRANSACTIONS).unwrap_or(0)) / ((last - first) * 86_400.0);
    // A write-ahead log that was never moved into the database, and a process that is killed with
    // it.
    let mut script =
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0;\nCREATE TABLE t(x);\n"
            .to_owned();
    for _ in 0..SQLITE_LOG_ROWS {
        script.push_str("INSERT INTO t VALUES(randomblob(3500));\n");
    }
    // The shell is killed by itself: a statement after it would not run.
    if place.is_synced {
        script.push_str("PRAGMA synchronous=FULL; INSERT INTO t VALUES(1);\n");
    }
    script.push_str(".shell kill -9 $PPID\n");
    let _killed = printed(place.command("sqlite3").arg("b.db"), &script);
    let begin = Instant::now();
    let count = number(&printed(place.command("sqlite3").args(["b.db", "SELECT count(*) FROM t;"]), "")?)?;
    let restart = begin.elapsed().as_secs_f64();
    if count < f64::from(u32::try_from(SQLITE_LOG_ROWS).unwrap_or(0)) {
        return Err(format!("SQLite found {count} rows of {SQLITE_LOG_ROWS}"));
    }
    Ok(vec![
        Measured { quantity: "transactions/s, 1 client", value: rate },
        Measured { quantity: "restart with a log of 60 MB, s", value: restart },
    ])
}

fn start_redis(place: &Place<'_>, sync: &str) -> Result<Child, String> {
    let socket = place.files.join("socket");
    let _gone = std::fs::remove_file(&socket);
    let mut command = place.command("redis-server");
    command.args([
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "yes",
        "--auto-aof-rewrite-percentage",
        "0",
        "--appendfsync",
        sync,
    ]);
    command.arg("--unixsocket").arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot start redis-server: {error}"))?;
    let begin = Instant::now();
    loop {
        let told =
            printed(Command::new("redis-cli").arg("-s").arg(&socket).arg("PING"), "").unwrap_or_default();
        if told.trim() == "PONG" {
            return Ok(child);
        }
        if begin.elapsed() > START_MAX || child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err(format!("redis-server does not answer: {told}"));
        }
    }
}

fn redis(place: &Place<'_>) -> Result<Vec<Measured>, String> {
    let socket = place.files.join("socket");
    let server = start_redis(place, if place.is_synced { "always" } else { "no" })?;
    let bench = |arguments: &[&str]| {
        let told = printed(
            Command::new("redis-benchmark")
                .arg("-s")
                .arg(&socket)
                .args(["-t", "set", "-d", "512", "--csv"])
                .args(arguments),
            "",
        )?;
        let rate = told
            .lines()
            .last()
            .and_then(|line| line.split(',').nth(1))
            .map(|rate| rate.trim_matches('"').to_owned());
        number(&rate.unwrap_or_default())
    };
    let mut measured = Vec::new();
    for (clients, writes, quantity) in REDIS_WRITES {
        measured.push(Measured { quantity, value: bench(&["-c", clients, "-n", writes])? });
    }
    let cli = |words: &[&str]| printed(Command::new("redis-cli").arg("-s").arg(&socket).args(words), "");
    cli(&["CONFIG", "SET", "appendfsync", "no"])?;
    bench(&["-c", "16", "-P", "16", "-r", "100000000", "-n", REDIS_LOG_WRITES])?;
    let before = cli(&["DBSIZE"])?;
    if place.is_synced {
        cli(&["CONFIG", "SET", "appendfsync", "always"])?;
        cli(&["SET", "last", "one"])?;
    }
    kill(server)?;
    let begin = Instant::now();
    let server = start_redis(place, "no")?;
    let restart = begin.elapsed().as_secs_f64();
    let after = cli(&["DBSIZE"])?;
    kill(server)?;
    if number(&after)? < number(&before)? {
        return Err(format!("Redis found {after} keys of {before}"));
    }
    measured.push(Measured { quantity: "restart with a log of 60 MB, s", value: restart });
    Ok(measured)
}

fn rocksdb(place: &Place<'_>) -> Result<Vec<Measured>, String> {
    let database = format!("--db={}", place.files.display());
    let sync = if place.is_synced { "--sync=1" } else { "--sync=0" };
    let mut measured = Vec::new();
    for (threads, quantity) in
        [("--threads=1", "writes/s, 1 thread"), ("--threads=16", "writes/s, 16 threads")]
    {
        let arguments = [
            "--benchmarks=fillrandom",
            "--num=1000000",
            "--duration=4",
            "--compression_type=none",
            sync,
            threads,
            &database,
        ];
        let told = printed(place.command("db_bench").args(arguments), "")?;
        let rate = told
            .lines()
            .find(|line| line.starts_with("fillrandom"))
            .and_then(|line| line.split(" ops/sec").next()?.split_whitespace().last());
        measured.push(Measured { quantity, value: number(rate.unwrap_or_default())? });
    }
    // A write-ahead log that was never flushed, and a process that is killed while it writes.
    let batch = format!("--batch_size={ROCKSDB_LOG_BATCH}");
    let fill = [
        "--benchmarks=fillseq",
        "--num=100000000",
        &batch,
        "--write_buffer_size=268435456",
        "--compression_type=none",
        sync,
    ];
    let mut filling = place.command("db_bench");
    filling.args(fill).arg(&database).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut filling = filling.spawn().map_err(|error| format!("cannot start db_bench: {error}"))?;
    let finished = filling
        .stderr
        .take()
        .map_or(Err("no standard error".to_owned()), |stderr| finished(stderr, ROCKSDB_LOG_WRITES));
    kill(filling)?;
    let finished = finished?;
    let begin = Instant::now();
    let told = printed(place.command("ldb").args([&database, "checkconsistency"]), "")?;
    let restart = begin.elapsed().as_secs_f64();
    if !told.contains("OK") {
        return Err(format!("RocksDB is not consistent: {told}"));
    }
    let told = printed(place.command("ldb").args([&database, "dump", "--count_only"]), "")?;
    let count = told.lines().find_map(|line| line.strip_prefix("Keys in range: ")).unwrap_or_default();
    if number(count)? < number(&finished.to_string())? {
        return Err(format!("RocksDB found {count} keys of {finished}"));
    }
    measured.push(Measured { quantity: "restart with a log of 60 MB, s", value: restart });
    Ok(measured)
}

/// Reads what `db_bench` says of its progress until it has finished `wanted` operations. Says how
/// many it has.
fn finished(stderr: impl Read, wanted: u64) -> Result<u64, String> {
    let mut told = String::new();
    for line in BufReader::new(stderr).split(b'\r').map_while(Result::ok) {
        told = String::from_utf8_lossy(&line).into_owned();
        let count =
            told.rsplit_once("finished ").and_then(|(_, rest)| rest.split_once(" ops")?.0.parse().ok());
        if let Some(count) = count.filter(|count| *count >= wanted) {
            return Ok(count);
        }
    }
    Err(format!("db_bench ended before it was killed: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_rocksdbs_bench_is_read() {
        let told = b"taken over\n... finished 100 ops      \r... finished 45000 ops      \r... finished \
            50000 ops      \r";
        assert_eq!(finished(&told[..], 200), Ok(45_000));
        assert!(finished(&told[..], 50_001).is_err_and(|error| error.contains("finished 50000 ops")));
    }
}
