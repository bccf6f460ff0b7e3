//! Nodes whose memory holds the demo's log: processes of this program, one of which is killed now
//! and then, and comes back empty.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Result};

/// What each lends.
const LENT: &str = "256MiB";

/// Running nodes. Dropping them ends them.
#[derive(Debug)]
pub struct Nodes {
    running: Vec<Node>,
    /// How many were killed so far.
    pub killed: u32,
}

#[derive(Debug)]
struct Node {
    process: Child,
    /// Host and port, which it keeps when it is started again.
    address: String,
}

impl Nodes {
    /// Starts `count` nodes on free ports of the loopback.
    ///
    /// # Errors
    /// `Io` when a process cannot be started; `Check` when one does not say where it listens.
    pub fn start(count: u32) -> Result<Nodes> {
        let running = (0..count).map(|_| Node::start("127.0.0.1:0")).collect::<Result<_>>()?;
        Ok(Nodes { running, killed: 0 })
    }

    /// The log that lies on them.
    pub fn uri(&self) -> String {
        let addresses: Vec<&str> = self.running.iter().map(|node| node.address.as_str()).collect();
        format!("near://{}", addresses.join(","))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Kills the next one in turn with SIGKILL, and what it held is gone. Its number, from 1.
    ///
    /// # Errors
    /// `Io`, also when it had ended by itself.
    pub fn kill_next(&mut self) -> Result<usize> {
        let at = self.killed as usize % self.running.len();
        let node = &mut self.running[at];
        let failed = |error| Failure::io(error, format!("killing node {}", at + 1));
        if let Some(status) = node.process.try_wait().map_err(failed)? {
            return Err(Failure::Check(format!("node {} had ended before it was killed: {status}", at + 1)));
        }
        node.process.kill().map_err(failed)?;
        node.process.wait().map_err(failed)?;
        self.killed += 1;
        Ok(at + 1)
    }

    /// Starts a killed one again where it was: it knows nothing of before.
    ///
    /// # Errors
    /// As [`Nodes::start`].
    pub fn start_again(&mut self, number: usize) -> Result<()> {
        let node = &mut self.running[number - 1];
        *node = Node::start(&node.address.clone())?;
        Ok(())
    }
}

impl Node {
    /// With the secret or certificates that the environment names, as its writers have.
    fn start(listen: &str) -> Result<Node> {
        let failed = |error| Failure::io(error, "starting a node");
        let mut process = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["--json", "serve", "node", "--listen", listen, "--memory", LENT, "--drain-seconds", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            // A node that says nothing is found out below.
            let _read = BufReader::new(stdout).read_line(&mut line);
        }
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let node = Node { process, address: told["listening"].as_str().unwrap_or_default().to_owned() };
        if node.address.is_empty() {
            return Err(Failure::Check(format!(
                "a node did not say where it listens: `tombolo serve node --listen {listen} --memory \
                {LENT}` says why"
            )));
        }
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that was killed on purpose is only waited for.
        let _ended = (self.process.kill(), self.process.wait());
    }
}
