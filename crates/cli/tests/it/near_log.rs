//! A database on a near-compute log, with nodes as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::{fails, json, ok, uri};

struct Node {
    process: Child,
    address: String,
}

impl Node {
    fn start(listen: &str) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command.args(["--json", "serve", "node", "--listen", listen, "--memory", "256MiB"]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Node { process, address: json(&line)["listening"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn a_database_outlives_one_of_three_nodes_and_says_when_two_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start("127.0.0.1:0")).collect();
    let log = format!("near://{}", nodes.iter().map(|node| node.address.as_str()).collect::<Vec<_>>().join(","));
    ok(&["db", "create", &store, "--log", &log]);
    for (key, value) in [("a", "1"), ("b", "2")] {
        ok(&["db", "put", &store, key, value, "--log", &log]);
    }
    let status = json(&ok(&["--json", "log", "status", &store]));
    let last = status["logs"].as_array().unwrap().last().unwrap().clone();
    let regions = last["segments"][0]["regions"].as_array().unwrap().clone();
    assert_eq!(regions.len(), 3, "{status}");
    nodes.pop();
    assert_eq!(ok(&["db", "get", &store, "a", "--log", &log]).trim(), "1");
    assert!(ok(&["log", "status", &store]).contains("holds"));
    nodes.clear();
    let _others: Vec<Node> = (0..3).map(|_| Node::start("127.0.0.1:0")).collect();
    fails(&["db", "get", &store, "a", "--log", "near://127.0.0.1:1"], 2, &["1 nodes for 3 copies"]);
}
