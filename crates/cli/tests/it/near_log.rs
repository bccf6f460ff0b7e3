//! A database on a near-compute log, with nodes as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tombolo::{Db, Registry};

use super::{fails, json, ok, uri};

pub struct Node {
    process: Child,
    address: String,
}

impl Node {
    fn start(listen: &str, arguments: &[&str]) -> Node {
        Node::start_with(listen, arguments, Stdio::inherit())
    }

    fn start_with(listen: &str, arguments: &[&str], errors: Stdio) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command.stderr(errors);
        command.args(["--json", "serve", "node", "--listen", listen, "--memory", "256MiB"]).args(arguments);
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

/// Some nodes, and the log on them.
pub fn started(domains: &[&str]) -> (Vec<Node>, String) {
    let nodes: Vec<Node> =
        domains.iter().map(|domain| Node::start("127.0.0.1:0", &["--domain", domain])).collect();
    let log =
        format!("near://{}", nodes.iter().map(|node| node.address.as_str()).collect::<Vec<_>>().join(","));
    (nodes, log)
}

/// A database that is open in this process; dropped, it is as one whose process was killed: a
/// command would close it, and then no log is needed.
fn open(store: &str, log: &str) -> Db {
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, Ok(None));
    Db::builder(store).registry(registry).log(log).open().wait().unwrap()
}

/// Writes, and is killed.
fn written(store: &str, log: &str, key: &str, value: &str) {
    open(store, log).default_keyspace().put(key, value).wait().unwrap();
}

/// Reads, and is killed.
fn read(store: &str, log: &str, key: &str) -> Option<Vec<u8>> {
    open(store, log).default_keyspace().get(key).wait().unwrap().map(|value| value.to_vec())
}

/// The regions of the newest log's last segment, as `log status` tells them: on which node, and in
/// which state.
fn regions(store: &str) -> Vec<(String, String)> {
    let status = json(&ok(&["--json", "log", "status", store]));
    let newest = status["logs"].as_array().unwrap().last().unwrap();
    let regions = newest["segments"].as_array().unwrap().last().unwrap()["regions"].as_array().unwrap();
    let text = |region: &serde_json::Value, name: &str| region[name].as_str().unwrap().to_owned();
    regions.iter().map(|region| (text(region, "node"), text(region, "state"))).collect()
}

#[test]
fn a_database_outlives_one_of_three_nodes_and_says_when_two_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    let (mut nodes, log) = started(&["", "", ""]);
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    ok(&["db", "create", &store, "--log", &log]);
    for (key, value) in [("a", "1"), ("b", "2")] {
        written(&store, &log, key, value);
    }
    assert_eq!(regions(&store).len(), 3);
    nodes.pop();
    assert_eq!(read(&store, &log, "a").as_deref(), Some(&b"1"[..]));
    assert!(ok(&["log", "status", &store]).contains("holds"));
    // All three again, and then one of them.
    nodes.push(Node::start(&addresses[2], &[]));
    written(&store, &log, "c", "3");
    nodes.truncate(1);
    let states = |word: &str| regions(&store).iter().filter(|(_, state)| state == word).count();
    assert_eq!((regions(&store).len(), states("silent")), (3, 2));
    // Logs of before that are still named say the same of the same nodes.
    let says = |word: &str| {
        let status = ok(&["log", "status", &store]);
        let mut of_gone = status
            .lines()
            .filter(|line| addresses[1..].iter().any(|address| line.contains(address.as_str())));
        assert!(of_gone.all(|line| line.contains(word)), "{status}");
    };
    says("SILENT: ");
    // What does not answer may come back with all that it held: it is waited for, and nothing is
    // served or shown meanwhile.
    fails(
        &["db", "put", &store, "d", "4", "--log", &log, "--take-over"],
        7,
        &["1 of the 2 answers", &addresses[1], &addresses[2], "tombolo log status"],
    );
    fails(
        &["db", "get", &store, "a", "--log", &log],
        7,
        &["1 of the 3 nodes", "0 have lost it", &addresses[1], &addresses[2], "tombolo log status"],
    );
    // They come back without it.
    nodes.extend(addresses[1..].iter().map(|address| Node::start(address, &[])));
    assert_eq!(states("lost"), 2);
    says("LOST: ");
    // A writer that lived would make that good, of which a look knows nothing.
    fails(
        &["db", "get", &store, "a", "--log", &log],
        7,
        &["1 of the 3 nodes", "2 have lost it", "opening the database says whether it is gone"],
    );
    fails(
        &["db", "put", &store, "d", "4", "--log", &log, "--take-over"],
        5,
        &["a log that the manifest names is gone", "regions lost what they held", "restore the database"],
    );
    fails(&["db", "get", &store, "a", "--log", "near://127.0.0.1:1"], 2, &["too few nodes, 1, for 3 copies"]);
}

/// A closed database is in the store: its nodes are free, and may end.
#[test]
fn a_database_that_was_closed_needs_no_node_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    let (nodes, log) = started(&["", "", ""]);
    ok(&["db", "create", &store, "--log", &log]);
    ok(&["db", "put", &store, "a", "1", "--log", &log]);
    assert!(ok(&["log", "status", &store]).contains("no record names a log"));
    for node in &nodes {
        let status = json(&ok(&["--json", "serve", "status", &node.address]));
        assert_eq!((status["regions"].as_u64(), status["databases"].as_u64()), (Some(0), Some(0)));
    }
    drop(nodes);
    let (nodes, log) = started(&["", "", ""]);
    assert_eq!(ok(&["db", "get", &store, "a", "--log", &log]).trim(), "1");
    // One that is killed leaves its log, and a node that is told to end says whose it waits for.
    written(&store, &log, "b", "2");
    let status = ok(&["log", "status", &store]);
    let database = status.lines().next().unwrap().trim_start_matches("database ").to_owned();
    let held = json(&ok(&["--json", "serve", "status", &nodes[0].address]));
    assert_eq!(held["holdings"][0]["database"].as_str(), Some(&*database), "{status}");
}

/// Said on standard error, before the node ends with what nobody freed.
#[test]
fn a_node_that_is_told_to_end_says_whose_regions_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    let start = || Node::start_with("127.0.0.1:0", &["--drain-seconds", "1"], Stdio::piped());
    let mut nodes: Vec<Node> = (0..3).map(|_| start()).collect();
    let addresses: Vec<&str> = nodes.iter().map(|node| &*node.address).collect();
    let log = format!("near://{}", addresses.join(","));
    written(&store, &log, "a", "1");
    let status = ok(&["log", "status", &store]);
    let database = status.lines().next().unwrap().to_owned();
    kill_process(Pid::from_child(&nodes[0].process), Signal::TERM).unwrap();
    let mut said = String::new();
    nodes[0].process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    for part in
        ["waits until 1 region of 1 database", "s more at most", &database, "opened and closed", "once more"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_log_named_by_addresses_is_spread_over_the_domains_that_nodes_say() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    // All of one host.
    let (nodes, log) = started(&["rack-1", "rack-1", "rack-2", "rack-3"]);
    ok(&["db", "create", &store, "--log", &log]);
    written(&store, &log, "a", "1");
    let on: Vec<String> = regions(&store).into_iter().map(|(node, _)| node).collect();
    let in_first_rack = nodes[..2].iter().filter(|node| on.contains(&node.address)).count();
    assert_eq!((on.len(), in_first_rack), (3, 1), "{on:?}");
}

#[test]
fn nodes_that_announce_themselves_in_the_databases_store_keep_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("orders"));
    let nodes: Vec<Node> =
        (0..3).map(|_| Node::start("127.0.0.1:0", &["--announce", &store, "--registry", "near"])).collect();
    let announced = || std::fs::read_dir(folder.path().join("orders/nodes/near")).map_or(0, Iterator::count);
    let mut tries = 0;
    while announced() < nodes.len() {
        tries += 1;
        assert!(tries < 1000, "nodes announce themselves when they start");
        // One answers in between: no wait for a moment, but for its work.
        ok(&["serve", "status", &nodes[0].address]);
    }
    let log = "near://near";
    let explained = ok(&["explain", &store, log]);
    assert!(
        explained.contains("on the nodes that announce themselves, 3 copies")
            && explained.contains("one after the other"),
        "{explained}"
    );
    ok(&["db", "create", &store, "--log", log]);
    ok(&["db", "put", &store, "a", "1", "--log", log]);
    assert_eq!(ok(&["db", "get", &store, "a", "--log", log]).trim(), "1");
    written(&store, log, "b", "2");
    let mut on: Vec<String> = regions(&store).into_iter().map(|(node, _)| node).collect();
    let mut addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    on.sort();
    addresses.sort();
    assert_eq!(on, addresses);
    // Who opens it needs nodes that answer to the name; who looks asks those that hold the log.
    fails(&["db", "put", &store, "a", "2", "--log", "near://nobody", "--take-over"], 7, &["nodes"]);
    ok(&["db", "put", &store, "c", "3", "--log", log, "--take-over"]);
    assert_eq!(ok(&["db", "get", &store, "b", "--log", log]).trim(), "2");
    assert_eq!(ok(&["db", "get", &store, "a", "--log", "near://nobody"]).trim(), "1");
}
