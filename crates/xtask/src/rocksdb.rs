//! Stock RocksDB on our stores: its own benchmark and tools with the plugin, as Debian has them.
//!
//! `packages → plugin → benchmarks → kills → a fight for the lock`. Anything lost or wrong ends
//! the run with an error.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;

/// A program that the steps run, and the package that has it.
const PROGRAMS: [(&str, &str); 3] =
    [("db_bench", "rocksdb-tools"), ("ldb", "rocksdb-tools"), ("sst_dump", "rocksdb-tools")];
const HEADER: &str = "/usr/include/rocksdb/file_system.h";
const HEADER_PACKAGE: &str = "librocksdb-dev";

/// Benchmarks of db_bench, run one after the other in one process.
const BENCHMARKS: [&str; 3] = [
    "fillseq,readrandom,multireadrandom,seekrandom,readseq,overwrite,compact,readrandom",
    "fillrandom,readrandom,readwhilewriting,mixgraph,backup,stats",
    "fillsync,readreverse,deleterandom",
];

/// Options of `rocksdb`.
#[derive(Args)]
pub struct Arguments {
    /// Entries of each benchmark.
    #[arg(long, default_value_t = 20_000)]
    entries: u64,
    /// How often a writer is killed.
    #[arg(long, default_value_t = 5)]
    kills: u64,
    /// URI of a store in place of a directory of this run.
    #[arg(long)]
    store: Option<String>,
    /// URI of the log; the store's own without it.
    #[arg(long)]
    log: Option<String>,
    /// Builds the plugin optimised.
    #[arg(long)]
    release: bool,
    /// Builds it with the stores s3://, gs:// and az://.
    #[arg(long)]
    cloud: bool,
}

/// Builds the plugin, and runs RocksDB's programs on it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let missing = missing_after_install();
    if !missing.is_empty() {
        println!("skipped: {} cannot be had here; install them with apt-get", missing.join(" and "));
        return Ok(());
    }
    let library = build(root, arguments)?;
    let place = std::env::temp_dir().join(format!("tombolo-rocksdb-{}", std::process::id()));
    let ran = steps(&Site::new(&library, &place, arguments), arguments);
    if ran.is_ok() {
        let _gone = std::fs::remove_dir_all(&place);
    } else {
        println!("what was there stays: {}", place.display());
    }
    ran
}

fn steps(site: &Site, arguments: &Arguments) -> Result<(), String> {
    site.benchmarks(arguments.entries)?;
    for round in 0..arguments.kills {
        site.killed(round)?;
    }
    site.fight()?;
    println!("rocksdb: nothing lost, nothing wrong");
    Ok(())
}

fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| found(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !Path::new(HEADER).exists() {
        missing.push(HEADER_PACKAGE);
    }
    missing.dedup();
    missing
}

fn missing_after_install() -> Vec<&'static str> {
    let needed = missing();
    if needed.is_empty() {
        return needed;
    }
    println!("$ apt-get install -y {}", needed.join(" "));
    let installed = Command::new("apt-get").args(["install", "-y", "-qq"]).args(&needed).status();
    if !installed.is_ok_and(|status| status.success()) {
        println!("apt-get could not install them");
    }
    missing()
}

fn found(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(program)).find(|path| path.exists())
}

/// Builds the plugin: a workspace of its own, whose output lies beside that of the others.
fn build(root: &Path, arguments: &Arguments) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet"]).current_dir(root.join("crates/rocksdb_plugin"));
    command.env("CARGO_TARGET_DIR", &target);
    command.args(if arguments.release { &["--release"][..] } else { &[] });
    command.args(if arguments.cloud { &["--features", "cloud"][..] } else { &[] });
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err(format!("building the plugin ended with {status}"));
    }
    let profile = if arguments.release { "release" } else { "debug" };
    let library = target.join(profile).join("libtombolo_rocksdb_plugin.so");
    println!("the plugin: {}", library.display());
    Ok(library)
}

/// Where the programs run.
struct Site {
    plugin: PathBuf,
    uri: String,
}

/// What a URI within a URI cannot say as it is.
fn encoded(uri: &str) -> String {
    uri.replace('%', "%25").replace('&', "%26")
}

impl Site {
    fn new(plugin: &Path, place: &Path, arguments: &Arguments) -> Site {
        let own = format!("file://{}", place.join("store").display());
        let store = arguments.store.as_deref().unwrap_or(&own);
        let info = place.join("info");
        let mut uri = format!("tombolo://?store={}&info_log={}", encoded(store), info.display());
        if let Some(log) = &arguments.log {
            uri = format!("{uri}&log={}", encoded(log));
        }
        Site { plugin: plugin.to_path_buf(), uri }
    }

    fn command(&self, program: &str, database: &str) -> Command {
        self.command_at(&self.uri, program, database)
    }

    fn command_at(&self, uri: &str, program: &str, database: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.plugin).arg(format!("--fs_uri={uri}"));
        // sst_dump names files, the others a database.
        let option = if program == "sst_dump" { "--file" } else { "--db" };
        command.arg(format!("{option}={database}"));
        command
    }

    /// What a program that must succeed prints.
    fn printed(mut command: Command) -> Result<String, String> {
        let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("{command:?}: {}: {text}", output.status))
        }
    }

    fn benchmarks(&self, entries: u64) -> Result<(), String> {
        for (number, benchmarks) in BENCHMARKS.iter().enumerate() {
            let database = format!("/bench-{number}");
            let mut command = self.command("db_bench", &database);
            command.args([
                format!("--benchmarks={benchmarks}"),
                format!("--num={entries}"),
                format!("--reads={}", entries / 4),
                format!("--backup_dir=/backup-{number}"),
                "--write_buffer_size=1048576".into(),
                "--compression_type=none".into(),
                "--multiread_batched=1".into(),
            ]);
            let text = Site::printed(command)?;
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
            self.verify(&database)?;
        }
        Ok(())
    }

    /// What RocksDB's own tools say of a database.
    fn verify(&self, database: &str) -> Result<(), String> {
        let mut check = self.command("ldb", database);
        check.arg("checkconsistency");
        let text = Site::printed(check)?;
        if !text.contains("OK") {
            return Err(format!("ldb checkconsistency of {database}: {text}"));
        }
        let mut verify = self.command("sst_dump", database);
        verify.arg("--command=verify");
        let text = match Site::printed(verify) {
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

    fn writer(&self, database: &str) -> Result<Child, String> {
        let mut command = self.command("db_bench", database);
        command.args([
            "--benchmarks=fillseq",
            "--num=100000000",
            "--sync=1",
            "--value_size=100",
            "--compression_type=none",
            "--write_buffer_size=65536",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("cannot start db_bench: {error}"))
    }

    /// The numbers that a database filled in order holds.
    fn numbers(&self, database: &str) -> Result<Vec<u64>, String> {
        let mut scan = self.command("ldb", database);
        scan.args(["scan", "--hex"]);
        let text = Site::printed(scan)?;
        let digits = text.lines().filter_map(|line| line.strip_prefix("0x")?.get(..16));
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        digits.map(|digits| u64::from_str_radix(digits, 16).map_err(|error| error.to_string())).collect()
    }

    /// A database holds a prefix of what was written, no shorter than what was acknowledged.
    fn holds(&self, database: &str, acknowledged: u64) -> Result<(), String> {
        self.verify(database)?;
        let numbers = self.numbers(database)?;
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

    fn killed(&self, round: u64) -> Result<(), String> {
        let database = format!("/killed-{round}");
        let mut child = self.writer(&database)?;
        let reached = finished(&mut child, 400 + round * 700 % 3000);
        child.kill().map_err(|error| format!("kill: {error}"))?;
        child.wait().map_err(|error| format!("wait: {error}"))?;
        self.holds(&database, reached?)
    }

    /// One process takes the database from another: only that one, and only when it is told to.
    fn fight(&self) -> Result<(), String> {
        let database = "/fight";
        let mut child = self.writer(database)?;
        let reached = finished(&mut child, 500);
        let ended = reached.and_then(|reached| {
            let put = |uri: &str| {
                let mut put = self.command_at(uri, "ldb", database);
                put.args(["put", "zzz", "another process"]);
                Site::printed(put)
            };
            match put(&self.uri) {
                Err(refused) if refused.contains("InUse") => {}
                told => return Err(format!("a lock was not refused while its holder lived: {told:?}")),
            }
            put(&format!("{}&takeover=always", self.uri))?;
            Ok(reached)
        });
        let ended = ended.and_then(|reached| {
            let status = child.wait().map_err(|error| format!("wait: {error}"))?;
            if status.success() { Err("the fenced process ended well".to_owned()) } else { Ok(reached) }
        });
        if ended.is_err() {
            // It is ours, and may have ended by itself.
            let _killed = child.kill();
            let _ended = child.wait();
        }
        let acknowledged = ended?;
        let mut get = self.command("ldb", database);
        get.args(["get", "zzz"]);
        let held = Site::printed(get)?;
        if !held.contains("another process") {
            return Err(format!("the write of the new holder is not there: {held}"));
        }
        let found = self.numbers(database)?.len() as u64;
        if found < acknowledged {
            return Err(format!("{found} keys after the fight, and {acknowledged} were acknowledged"));
        }
        println!("  {database}: the fenced process ended with an error, and harmed nothing");
        Ok(())
    }
}

/// Reads what db_bench reports until it has finished so many operations; says how many.
fn finished(child: &mut Child, wanted: u64) -> Result<u64, String> {
    let mut told = child.stderr.take().ok_or("db_bench has no standard error")?;
    let (mut text, mut byte, mut reached) = (String::new(), [0], 0);
    while reached < wanted {
        match told.read(&mut byte) {
            Ok(1) => text.push(char::from(byte[0])),
            _ => return Err(format!("db_bench ended: {text}")),
        }
        if let Some((_, rest)) = text.rsplit_once("finished ")
            && let Some((count, _)) = rest.split_once(" ops")
        {
            reached = count.parse().map_err(|_| format!("db_bench says {count:?} operations"))?;
            text.clear();
        }
    }
    // It goes on, and must not wait for a reader of what it says.
    std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
    Ok(reached)
}
