//! Nodes that lend memory, as processes of this host: started, counted, killed, paused.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// What each node lends; half of it where memory is shared.
const LENT: &str = "768MiB";
/// What an acknowledged write survives whose log is on three of them.
pub const SURVIVES: &str = "its writer's death with at most one of three nodes' memories lost, counted \
    since the regions were made; here all are one host";
/// Ticks of a process's CPU time in a second, as Linux shows it everywhere.
const TICKS_PER_SECOND: f64 = 100.0;

/// Running nodes. Dropping them ends them, and removes what they shared.
pub struct Nodes {
    running: Vec<Node>,
}

/// A running node. Dropping it ends it.
pub struct Node {
    process: Child,
    address: String,
    shared: Option<PathBuf>,
}

impl Nodes {
    /// Starts `count` nodes of `binary` on free ports of the loopback; with `is_shared` they share
    /// their memory with writers of this host.
    pub fn start(binary: &Path, count: usize, is_shared: bool) -> Result<Nodes, String> {
        let mut nodes = Nodes { running: Vec::new() };
        for number in 0..count {
            nodes.running.push(if is_shared {
                Node::start_shared(binary, number)?
            } else {
                Node::start(binary, &[])?
            });
        }
        Ok(nodes)
    }

    /// The log that lies on them.
    pub fn uri(&self) -> String {
        let addresses: Vec<&str> = self.running.iter().map(|node| node.address.as_str()).collect();
        format!("near://{}", addresses.join(","))
    }

    /// Their process ids.
    pub fn ids(&self) -> Vec<u32> {
        self.running.iter().map(|node| node.process.id()).collect()
    }
}

impl Node {
    /// Starts a node of `binary` on a free port of the loopback.
    pub fn start(binary: &Path, arguments: &[String]) -> Result<Node, String> {
        let mut command = Command::new(binary);
        command
            .args([
                "--json",
                "serve",
                "node",
                "--listen",
                "127.0.0.1:0",
                "--memory",
                LENT,
                "--drain-seconds",
                "0",
            ])
            .args(arguments);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start a node: {error}"))?;
        let mut line = String::new();
        let read = process.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let node = Node {
            process,
            address: told["listening"].as_str().unwrap_or_default().to_owned(),
            shared: None,
        };
        if node.address.is_empty() {
            return Err(format!("a node did not say where it listens: {read:?} {line:?}"));
        }
        Ok(node)
    }

    /// The same, sharing its memory with writers of this host.
    fn start_shared(binary: &Path, number: usize) -> Result<Node, String> {
        let shared = PathBuf::from(format!("/dev/shm/tombolo-near-{}-{number}", std::process::id()));
        let mut node = Node::start(binary, &["--shared-memory".to_owned(), shared.display().to_string()])?;
        node.shared = Some(shared);
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that was killed on purpose is only waited for; one that is stopped dies all the same.
        let _ended = (self.process.kill(), self.process.wait());
        if let Some(shared) = &self.shared {
            let _removed = std::fs::remove_dir_all(shared);
        }
    }
}

/// CPU time of processes so far, in microseconds: their own, and the kernel's for them. One that
/// has ended counts nothing.
pub fn cpu_micros(ids: &[u32]) -> f64 {
    let ticks = |id: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        ticks_of(&text)
    };
    ids.iter().map(ticks).sum::<f64>() / TICKS_PER_SECOND * 1e6
}

/// User and system time of a line of `/proc/PID/stat`. The name before them is in brackets, and may
/// hold anything.
fn ticks_of(stat: &str) -> f64 {
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0.0 };
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

/// How long the machine's processors have worked so far, in seconds of all of them together.
pub fn machine_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(text.lines().next().unwrap_or_default()) / TICKS_PER_SECOND
}

/// Ticks of the first line of `/proc/stat` that were no waiting: neither idle, nor for IO.
fn busy_ticks(line: &str) -> f64 {
    let fields = line.split_whitespace().skip(1).take(8).enumerate();
    fields.filter(|(nth, _)| *nth != 3 && *nth != 4).filter_map(|(_, ticks)| ticks.parse::<f64>().ok()).sum()
}

/// Sends a signal to a process that this one started.
pub fn signal(signal: &str, id: u32) {
    let _told = Command::new("kill").args([signal, &id.to_string()]).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 1 0";
        assert_eq!(ticks_of(stat), 100.0);
        assert_eq!(ticks_of(""), 0.0);
        assert_eq!(busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128"), 63.0);
        assert!(cpu_micros(&[std::process::id()]) >= 0.0 && machine_seconds() > 0.0);
    }
}
