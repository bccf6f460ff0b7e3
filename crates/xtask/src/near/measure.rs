//! One measurement: nodes, a process with a database, and what both took.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::record::Record;
use super::ways::Way;
use crate::nodes::{Nodes, cpu_micros, machine_seconds, signal};
use crate::peers::{child, machine};

/// Keys of a key and its value's, less the value's.
pub const KEY_BYTES: usize = 16;
/// A number of writes that no run comes to the end of.
const ENDLESS: &str = "100000000";
/// Memory and memtable of a database whose log is to hold 60 MB that neither a flush nor the object
/// store has taken.
const TAKEOVER_SETTINGS: [&str; 2] = ["memory_bytes=2147483648", "memtable_bytes=268435456"];
/// Values of 100 B that make a log of 60 MB.
const TAKEOVER_WRITES: &str = "430000";
/// Memory of a peer's blocks and of one of its two memtables: together the 256 MiB that a database
/// of ours has when nobody says otherwise.
const PEER_OPEN: &str = "open cache=234881024 memtable=16777216";
/// The steps of a peer's script that are no writes: opening, and what follows the writes so that
/// their end is heard of.
const PEER_WRITES: usize = 1;
/// How long a peer may say nothing, and take for a step beyond the writes' time.
const PEER_TIME_MAX: Duration = Duration::from_secs(120);
/// How long filling it may take.
const FILL_SECONDS: &str = "300";

/// What happens to a node while clients write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// `kill -9`; another node is there to take its place.
    Killed,
    /// `kill -9`; none is.
    KilledWithoutSpare,
    /// It does not answer any more, and its connections stay.
    Stopped,
}

impl Loss {
    pub const ALL: [Loss; 3] = [Loss::Killed, Loss::KilledWithoutSpare, Loss::Stopped];

    pub fn workload(self) -> &'static str {
        match self {
            Loss::Killed => "insert, a node killed",
            Loss::KilledWithoutSpare => "insert, one of three killed",
            Loss::Stopped => "insert, a node stopped",
        }
    }

    fn nodes(self) -> usize {
        if self == Loss::KilledWithoutSpare { 3 } else { 4 }
    }

    fn signal(self) -> &'static str {
        if self == Loss::Stopped { "-STOP" } else { "-KILL" }
    }
}

/// Where and with what everything is measured.
pub struct Bench {
    /// The `tombolo` program.
    pub binary: PathBuf,
    /// That of the peers, where one takes part.
    pub peers: Option<PathBuf>,
    /// Of this run alone.
    pub directory: PathBuf,
    /// How slow the object store is.
    pub latency: String,
    pub value_bytes: usize,
    pub seconds: u64,
    pub round: u32,
}

/// Figures of nodes and machine at a moment.
#[derive(Clone, Copy)]
pub struct Moment {
    nodes_micros: f64,
    machine_seconds: f64,
    at: Instant,
}

impl Moment {
    pub fn now(nodes: &[u32]) -> Moment {
        Moment { nodes_micros: cpu_micros(nodes), machine_seconds: machine_seconds(), at: Instant::now() }
    }
}

impl Bench {
    fn store(&self) -> String {
        format!("file://{}?latency={}", self.directory.join("store").display(), self.latency)
    }

    fn nodes(&self, way: Way, count: usize) -> Result<Option<Nodes>, String> {
        way.nodes().map(|is_shared| Nodes::start(&self.binary, count, is_shared)).transpose()
    }

    pub fn empty(&self) -> Result<(), String> {
        child::remove(&self.directory)?;
        fs::create_dir_all(&self.directory).map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    fn record(&self, way: Way, workload: &str, clients: usize) -> Record {
        Record {
            way: way.name().to_owned(),
            workload: workload.to_owned(),
            clients,
            round: self.round,
            load: machine::load(),
            survives: way.survives().to_owned(),
            ..Record::default()
        }
    }

    /// The command of a bench of `benchmarks` by `clients`.
    fn command(&self, way: Way, log: &str, benchmarks: &str, clients: usize) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["bench", "--store", &self.store(), "--log", log, "--benchmarks", benchmarks]);
        command.args([
            "--threads",
            &clients.to_string(),
            "--durability",
            way.durability(),
            "--key-size",
            &KEY_BYTES.to_string(),
        ]);
        command.args(["--value-size", &self.value_bytes.to_string(), "--seed", &self.round.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Insertions by `clients`; with a loss in the middle.
    pub fn insert(&self, way: Way, clients: usize, loss: Option<Loss>) -> Result<Vec<Record>, String> {
        self.empty()?;
        if way.is_peer() {
            return Ok(vec![self.peer(way, clients)?]);
        }
        let nodes = self.nodes(way, loss.map_or(3, Loss::nodes))?;
        let log = way.log(&self.directory, nodes.as_ref().map(Nodes::uri).as_deref());
        let mut command = self.command(way, &log, "fillrandom", clients);
        command.args(["--num", ENDLESS, "--duration", &self.seconds.to_string()]);
        let workload = loss.map_or("insert", Loss::workload);
        let ids = nodes.as_ref().map(Nodes::ids).unwrap_or_default();
        let half = Duration::from_secs(self.seconds) / 2;
        let strike = loss.zip(ids.first().copied()).map(|(loss, id)| (half, loss.signal(), id));
        let drafts = vec![self.record(way, workload, clients)];
        self.run(command, drafts, &ids, strike)
    }

    /// Insertions by `clients` of another engine, into a directory that is as slow as our store.
    fn peer(&self, way: Way, clients: usize) -> Result<Record, String> {
        let binary = self.peers.as_ref().ok_or("the peers' program was not built")?;
        let mut command = Command::new(binary);
        command.arg(way.name()).arg(self.directory.join("peer")).arg(format!("latency={}", self.latency));
        command.args([
            format!("num={ENDLESS}"),
            format!("key={KEY_BYTES}"),
            format!("value={}", self.value_bytes),
        ]);
        let writes = format!("run fillrandom threads={clients} durability=durable seconds={}", self.seconds);
        command.arg(format!("seed={}", self.round)).args(["--", PEER_OPEN, &writes, "flush"]);
        let mut moments = Vec::new();
        let limits =
            child::Limits { silence: PEER_TIME_MAX, step: PEER_TIME_MAX + Duration::from_secs(self.seconds) };
        let ended = child::run(command, limits, |step, operations| {
            // A step's first sign of life tells that it begins.
            if operations == 0 && step == PEER_WRITES + moments.len() {
                moments.push(Moment::now(&[]));
            }
        });
        let mut record = self.record(way, "insert", clients);
        match (ended.done.iter().find(|(step, _)| *step == PEER_WRITES), &moments[..]) {
            (Some((_, row)), [before, after, ..]) => record.fill(row, before, after),
            _ => {
                record.failure =
                    Some(ended.failure.unwrap_or_else(|| "it did not say what it did".to_owned()));
            }
        }
        Ok(record)
    }

    /// YCSB's workloads by `clients`, on a database of `num` keys.
    pub fn ycsb(
        &self,
        way: Way,
        workloads: &[String],
        clients: usize,
        num: u64,
    ) -> Result<Vec<Record>, String> {
        self.empty()?;
        let nodes = self.nodes(way, 3)?;
        let log = way.log(&self.directory, nodes.as_ref().map(Nodes::uri).as_deref());
        let mut command = self.command(way, &log, &format!("fillbatch,{}", workloads.join(",")), clients);
        command.args(["--num", &num.to_string(), "--duration", &self.seconds.to_string()]);
        let mut drafts = vec![self.record(way, "fillbatch", clients)];
        drafts.extend(workloads.iter().map(|workload| self.record(way, workload, clients)));
        let mut records =
            self.run(command, drafts, &nodes.as_ref().map(Nodes::ids).unwrap_or_default(), None)?;
        // The load is no row: it ends after a time that differs.
        records.remove(0);
        Ok(records)
    }

    /// Runs a bench, and says of each benchmark what the writer, the nodes and the machine took.
    fn run(
        &self,
        mut command: Command,
        mut drafts: Vec<Record>,
        nodes: &[u32],
        strike: Option<(Duration, &'static str, u32)>,
    ) -> Result<Vec<Record>, String> {
        let results = self.directory.join("results.json");
        let mut process = command
            .arg("--json")
            .arg(&results)
            .spawn()
            .map_err(|error| format!("cannot start tombolo: {error}"))?;
        let stderr = process.stderr.take().map(|stderr| std::thread::spawn(move || child::tail(stderr)));
        let (mut moments, mut striker) = (Vec::new(), None);
        // The line above the rows, then a line when a benchmark has ended.
        let names: Vec<String> = std::iter::once("benchmark")
            .chain(drafts.iter().map(|draft| bench_name(&draft.workload)))
            .map(|name| format!("{name} "))
            .collect();
        for line in process
            .stdout
            .take()
            .into_iter()
            .flat_map(|stdout| BufReader::new(stdout).lines())
            .map_while(Result::ok)
        {
            if names.get(moments.len()).is_some_and(|name| line.starts_with(name)) {
                if let (true, Some((after, signal_name, id))) = (moments.is_empty(), strike) {
                    striker = Some(std::thread::spawn(move || {
                        std::thread::sleep(after);
                        signal(signal_name, id);
                    }));
                }
                moments.push(Moment::now(nodes));
            }
        }
        let status = process.wait().map_err(|error| error.to_string())?;
        let complaint = stderr.and_then(|thread| thread.join().ok()).unwrap_or_default();
        if let Some(striker) = striker {
            let _struck = striker.join();
        }
        let text = fs::read_to_string(&results).unwrap_or_default();
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        for (nth, draft) in drafts.iter_mut().enumerate() {
            match (rows.get(nth), moments.get(nth), moments.get(nth + 1)) {
                (Some(row), Some(before), Some(after)) => draft.fill(row, before, after),
                _ => draft.failure = Some(format!("{status}: {complaint}")),
            }
        }
        Ok(drafts)
    }

    /// A writer with a log of 60 MB is killed; the next process takes over.
    pub fn takeover(&self, way: Way) -> Result<Record, String> {
        self.empty()?;
        let nodes = self.nodes(way, 3)?;
        let log = way.log(&self.directory, nodes.as_ref().map(Nodes::uri).as_deref());
        let small = Bench {
            value_bytes: 100,
            binary: self.binary.clone(),
            peers: None,
            directory: self.directory.clone(),
            latency: self.latency.clone(),
            ..*self
        };
        let mut record = self.record(way, "takeover", 1);
        // It reads until it is killed.
        let mut command = small.command(way, &log, "fillseq,readrandom", 16);
        command.args(["--num", TAKEOVER_WRITES, "--duration", FILL_SECONDS]);
        command.args(TAKEOVER_SETTINGS.iter().flat_map(|setting| ["--set", setting])).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| format!("cannot start tombolo: {error}"))?;
        let mut lines = process
            .stdout
            .take()
            .into_iter()
            .flat_map(|stdout| BufReader::new(stdout).lines())
            .map_while(Result::ok);
        let is_filled = lines.any(|line| line.starts_with("fillseq "));
        let killed = process.kill().and_then(|()| process.wait());
        killed.map_err(|error| format!("killing the writer: {error}"))?;
        if !is_filled {
            record.failure = Some("the writer ended before it had filled the log".to_owned());
            return Ok(record);
        }
        let mut command = Command::new(&self.binary);
        command.args(["--json", "db", "flush", &self.store(), "--log", &log]);
        command.args(TAKEOVER_SETTINGS.iter().flat_map(|setting| ["--set", setting]));
        let output = command.output().map_err(|error| format!("cannot start tombolo: {error}"))?;
        match takeover_of(&String::from_utf8_lossy(&output.stdout)) {
            Some((nanos, bytes)) => {
                (record.open_millis, record.replayed_bytes) = (nanos / 1e6, bytes);
                (record.micros_p50, record.operations) = (nanos / 1e3, 1);
            }
            None => {
                record.failure =
                    Some(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
            }
        }
        Ok(record)
    }
}

fn bench_name(workload: &str) -> &str {
    if workload.starts_with("insert") { "fillrandom" } else { workload }
}

/// How long opening took, in nanoseconds, and what it replayed, of what `tombolo db flush` says.
fn takeover_of(stats: &str) -> Option<(f64, u64)> {
    let stats: Value = serde_json::from_str(stats).ok()?;
    Some((stats["open_nanos"].as_f64()?, stats["replayed_bytes"].as_u64()?))
}

impl Record {
    pub fn fill(&mut self, row: &Value, before: &Moment, after: &Moment) {
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
        self.operations = row["operations"].as_u64().unwrap_or(0);
        self.operations_per_second = number("operations_per_second");
        (self.micros_p50, self.micros_p99, self.micros_max) =
            (number("micros_p50"), number("micros_p99"), number("micros_max"));
        self.cpu_micros_client = number("cpu_micros_per_operation");
        self.errors = row["errors"].as_u64().unwrap_or(0);
        self.first_error = row["first_error"].as_str().map(str::to_owned);
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let operations = self.operations.max(1) as f64;
        // A node that was killed takes its count along.
        self.cpu_micros_nodes = (after.nodes_micros - before.nodes_micros).max(0.0) / operations;
        let seconds = after.at.duration_since(before.at).as_secs_f64().max(1e-3);
        self.cores_busy = (after.machine_seconds - before.machine_seconds) / seconds;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_takeover_is_read_from_the_statistics() {
        let text = json!({"open_nanos": 2_500_000, "replayed_bytes": 17, "x": "y"}).to_string();
        assert_eq!(takeover_of(&text), Some((2_500_000.0, 17)));
        assert_eq!(takeover_of("no JSON"), None);
    }

    #[test]
    fn a_row_takes_its_figures_and_its_nodes_time() {
        let now = Instant::now();
        let before = Moment { nodes_micros: 100.0, machine_seconds: 1.0, at: now };
        let after = Moment { nodes_micros: 1100.0, machine_seconds: 4.0, at: now + Duration::from_secs(2) };
        let mut record = Record::default();
        record.fill(
            &json!({"operations": 10, "micros_p50": 3.5, "errors": 1, "first_error": "full"}),
            &before,
            &after,
        );
        assert_eq!((record.operations, record.micros_p50, record.cpu_micros_nodes), (10, 3.5, 100.0));
        assert!((record.cores_busy - 1.5).abs() < 1e-9);
        assert_eq!((record.errors, record.first_error.as_deref()), (1, Some("full")));
    }
}
