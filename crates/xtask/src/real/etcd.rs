//! Nodes that announce themselves in a real etcd: writers find them, and one that is killed
//! vanishes with its lease.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::servers::{Kind, free_port};
use crate::nodes::Node;
use crate::programs::build;

/// How long etcd may take to answer, and a dead node to vanish: its lease is 15 s.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Why it did not pass.
pub enum Trouble {
    /// It cannot be built or started here.
    Skipped(String),
    /// Something of ours is wrong.
    Failed(String),
}

/// A running etcd, and its directory.
struct Etcd {
    process: Child,
    directory: PathBuf,
    address: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ended = (self.process.kill(), self.process.wait());
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

impl Etcd {
    fn start(program: &Path) -> Result<Etcd, String> {
        let (address, peers) =
            (format!("127.0.0.1:{}", free_port()?), format!("http://127.0.0.1:{}", free_port()?));
        let directory = std::env::temp_dir().join(format!("tombolo-real-etcd-{}", std::process::id()));
        let client = format!("http://{address}");
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(directory.join("etcd")).args([
            "--log-level",
            "error",
            "--unsafe-no-fsync",
        ]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
        ]);
        let started = command
            .arg(format!("default={peers}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = started.map_err(|error| format!("starting it: {error}"))?;
        Ok(Etcd { process, directory, address })
    }

    fn uri(&self) -> String {
        format!("etcd://{}", self.address)
    }
}

/// Runs it.
pub fn run(root: &Path, cached: bool, profile: &str) -> Result<(), Trouble> {
    let program = Kind::Etcd.program(cached).map_err(Trouble::Skipped)?;
    let etcd = Etcd::start(&program).map_err(Trouble::Skipped)?;
    eprintln!("etcd serves at {}", etcd.address);
    let binary = build(root, profile).map_err(Trouble::Failed)?;
    try_out(&binary, &etcd).map_err(Trouble::Failed)
}

fn try_out(binary: &Path, etcd: &Etcd) -> Result<(), String> {
    let announced = ["--announce".to_owned(), etcd.uri(), "--registry".to_owned(), "real".to_owned()];
    let mut nodes = (0..4).map(|_| Node::start(binary, &announced)).collect::<Result<Vec<_>, _>>()?;
    let store = format!("file://{}", etcd.directory.join("orders").display());
    let log = format!("near://real?registry={}", etcd.uri());
    let announced = |count: usize| {
        let said = range(etcd)?;
        if said.matches("\"key\"").count() == count { Ok(()) } else { Err(said) }
    };
    // etcd elects a leader first, and nodes try again every five seconds.
    until("all nodes have announced themselves", || announced(nodes.len()))?;
    database(binary, &["create"], &store, &log, &[])?;
    database(binary, &["put"], &store, &log, &["a", "1"])?;
    let killed = nodes.remove(0);
    drop(killed);
    database(binary, &["put"], &store, &log, &["b", "2"])?;
    until("the killed node has vanished", || announced(nodes.len()))?;
    for (key, value) in [("a", "1"), ("b", "2")] {
        let found = database(binary, &["get"], &store, &log, &[key])?;
        if found.trim() != value {
            return Err(format!("{key} is {found:?} after a node was lost"));
        }
    }
    drop(nodes);
    let status = database(binary, &["put"], &store, &log, &["c", "3"]);
    let refused = status.err().ok_or("a write without nodes was acknowledged")?;
    eprintln!("without nodes: {refused}");
    Ok(())
}

/// Tries again until it goes well, or the time is up.
fn until<T>(what: &str, attempt: impl Fn() -> Result<T, String>) -> Result<(), String> {
    let end = Instant::now() + TIME_MAX;
    loop {
        match attempt() {
            Ok(_) => {
                eprintln!("{what}");
                return Ok(());
            }
            Err(error) if Instant::now() > end => {
                return Err(format!("not within {} s: {what}: {error}", TIME_MAX.as_secs()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// A command on the database; what it prints.
fn database(binary: &Path, verb: &[&str], store: &str, log: &str, rest: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary);
    command.arg("db").args(verb).arg(store).args(rest).args(["--log", log]).env_remove("TOMBOLO_NODE_SECRET");
    let output = command.output().map_err(|error| format!("cannot start tombolo: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{verb:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// The registry's entries, asked for without any of our code: `tombolo/nodes/` to `tombolo/nodes0`.
fn range(etcd: &Etcd) -> Result<String, String> {
    let body = r#"{"key":"dG9tYm9sby9ub2Rlcy8=","range_end":"dG9tYm9sby9ub2RlczA="}"#;
    let url = format!("http://{}/v3/kv/range", etcd.address);
    let output = Command::new("curl").args(["--silent", "--max-time", "5", "--data", body, &url]).output();
    let output = output.map_err(|error| format!("cannot start curl: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
