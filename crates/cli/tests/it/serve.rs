//! Nodes as processes: started, asked, told to end.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use super::{fails, json, ok, tombolo, uri};

struct Node {
    process: Child,
    lines: BufReader<ChildStdout>,
    address: String,
    begun: Value,
}

/// A test that fails leaves no process behind.
impl Drop for Node {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    fn start(arguments: &[&str]) -> Node {
        Node::of("node", arguments)
    }

    fn of(verb: &str, arguments: &[&str]) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command
            .args(["--json", "serve", verb, "--listen", "127.0.0.1:0", "--memory", "8MiB"])
            .args(arguments);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let begun = json(&line);
        Node { process, lines, address: begun["listening"].as_str().unwrap().to_owned(), begun }
    }

    fn end(mut self) -> Value {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(self.process.wait().unwrap().success());
        json(&line)
    }
}

#[test]
fn a_worker_that_compacts_is_asked() {
    let worker = Node::of("compactor", &["--jobs", "3"]);
    let status = json(&ok(&["--json", "compactor", "status", &worker.address]));
    assert_eq!((status["jobs_max"].as_u64(), status["running"].as_u64()), (Some(3), Some(0)), "{status}");
    assert_eq!(status["abilities"], worker.begun["worker"]["abilities"]);
    assert!(ok(&["compactor", "status", &worker.address]).contains("operator add_u64@1"));
    // A node is no worker, and a worker is no node.
    let node = Node::start(&[]);
    assert_ne!(tombolo(&["compactor", "status", &node.address]).code, 0);
    assert_ne!(tombolo(&["serve", "status", &worker.address]).code, 0);
    fails(&["serve", "compactor", "--listen", "0.0.0.0:0"], 2, &["--secret-file"]);
}

#[test]
fn a_node_is_asked_and_drains() {
    let node = Node::start(&["--domain", "rack-7"]);
    let status = json(&ok(&["--json", "serve", "status", &node.address]));
    assert_eq!(
        (status["domain"].as_str(), status["bytes_free"].as_u64()),
        (Some("rack-7"), Some(8 << 20)),
        "{status}"
    );
    assert_eq!(status["incarnation"], node.begun["node"]["incarnation"]);
    let end = node.end();
    assert_eq!(
        (end["drained"].as_bool(), end["counters"]["connections_accepted"].as_u64()),
        (Some(true), Some(1)),
        "{end}"
    );
}

#[test]
fn a_node_is_told_how_much_to_lend() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let secret = secret.to_str().unwrap();
    let node = Node::start(&["--secret-file", secret]);
    let lend =
        |size: &str| json(&ok(&["--json", "serve", "lend", &node.address, size, "--secret-file", secret]));
    let told = lend("2MiB");
    assert_eq!(
        (told["told"].as_u64(), told["node"]["bytes_max"].as_u64()),
        (Some(2 << 20), Some(2 << 20)),
        "{told}"
    );
    assert_eq!(told["bytes_wanted_back"].as_u64(), Some(0), "{told}");
    let status = json(&ok(&["--json", "serve", "status", &node.address, "--secret-file", secret]));
    assert_eq!(status["bytes_free"].as_u64(), Some(2 << 20), "{status}");
    assert_eq!(lend("0")["node"]["bytes_free"].as_u64(), Some(0));
    assert!(
        ok(&["serve", "lend", &node.address, "8MiB", "--secret-file", secret]).contains("the node lends 8")
    );
    fails(
        &["serve", "lend", &node.address, "9MiB", "--secret-file", secret],
        2,
        &["8388608 bytes at most", "--memory"],
    );
    fails(&["serve", "lend", &node.address, "much", "--secret-file", secret], 2, &["64MiB"]);
    fails(&["serve", "lend", &node.address, "1MiB"], 6, &["secret"]);
    fails(&["serve", "lend", "127.0.0.1:1", "1MiB"], 7, &["no connection"]);
    node.end();
}

/// A directory with the files of `--tls`: signed by `issuer`, whose certificate is `authority`.
fn certificates(
    folder: &Path,
    name: &str,
    issuer: &Issuer<'_, KeyPair>,
    authority: &str,
    year: i32,
) -> String {
    let directory = folder.join(name);
    std::fs::create_dir(&directory).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    parameters.not_after = date_time_ymd(year, 12, 31);
    let certificate = parameters.signed_by(&key, issuer).unwrap().pem();
    for (file, text) in [("ca.crt", authority), ("tls.crt", &certificate), ("tls.key", &key.serialize_pem())]
    {
        std::fs::write(directory.join(file), text).unwrap();
    }
    directory.to_str().unwrap().to_owned()
}

#[test]
fn a_node_with_certificates_answers_who_shows_one() {
    let folder = tempfile::tempdir().unwrap();
    let (key, mut parameters) = (KeyPair::generate().unwrap(), CertificateParams::new(Vec::new()).unwrap());
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(parameters, key);
    let side = |name: &str, year| certificates(folder.path(), name, &issuer, &authority, year);
    let (of_node, right, expired) = (side("node", 4000), side("right", 4000), side("expired", 2001));
    let nodes: Vec<Node> =
        (0..3).map(|_| Node::start(&["--tls", &of_node, "--drain-seconds", "0"])).collect();
    let address = nodes[0].address.as_str();
    assert!(ok(&["serve", "status", address, "--tls", &right]).contains("acknowledges from memory"));
    fails(
        &["serve", "status", address, "--tls", &expired],
        6,
        &["refuses this side's certificate", "expired"],
    );
    fails(&["serve", "status", address], 6, &["takes certificates only"]);
    fails(&["serve", "status", address, "--tls", "/no/such/directory"], 3, &["ca.crt"]);
    let store = uri(&folder.path().join("orders"));
    let addresses: Vec<&str> = nodes.iter().map(|node| node.address.as_str()).collect();
    let log = |directory: &str| format!("near://{}?tls={directory}", addresses.join(","));
    ok(&["db", "create", &store, "--log", &log(&right)]);
    ok(&["db", "put", &store, "a", "1", "--log", &log(&right)]);
    assert_eq!(ok(&["db", "get", &store, "a", "--log", &log(&right)]).trim(), "1");
    for node in nodes {
        node.end();
    }
}

#[test]
fn a_node_with_a_secret_answers_nobody_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong, short) = (
        file("right", "0123456789abcdef0123456789abcdef\n"),
        file("wrong", "0123456789abcdef................"),
        file("short", "abc"),
    );
    let node = Node::start(&["--secret-file", &right]);
    assert!(
        ok(&["serve", "status", &node.address, "--secret-file", &right]).contains("acknowledges from memory")
    );
    for arguments in [
        vec!["serve", "status", &node.address],
        vec!["serve", "status", &node.address, "--secret-file", &wrong],
    ] {
        let told = fails(&arguments, 6, &["secret"]);
        assert!(!told.contains("0123456789"), "{told}");
    }
    fails(
        &["serve", "status", &node.address, "--secret-file", &short],
        2,
        &["a secret of 3 bytes", "openssl"],
    );
    assert_eq!(node.end()["counters"]["connections_refused"].as_u64(), Some(2));
}

#[test]
fn a_node_announces_itself_and_takes_that_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("registry"));
    let node = Node::start(&["--announce", &store, "--registry", "near"]);
    let announced =
        || std::fs::read_dir(folder.path().join("registry/nodes/near")).map_or(0, Iterator::count);
    let mut tries = 0;
    while announced() == 0 {
        tries += 1;
        assert!(tries < 1000, "the node announces itself when it starts");
        // It answers in between: no wait for a moment, but for its work.
        ok(&["serve", "status", &node.address]);
    }
    node.end();
    assert_eq!(announced(), 0);
}

#[test]
fn a_node_with_a_disk_begins_another_life_there() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("node");
    let disk = disk.to_str().unwrap();
    let first = Node::start(&["--disk", disk]);
    assert_eq!(first.begun["node"]["acknowledges_from"].as_str(), Some("disk"));
    fails(
        &["serve", "node", "--listen", "127.0.0.1:0", "--memory", "1MiB", "--disk", disk],
        7,
        &["another node has the directory"],
    );
    let life = first.begun["node"]["incarnation"].clone();
    first.end();
    let second = Node::start(&["--disk", disk, "--acknowledge", "memory"]);
    assert_ne!(second.begun["node"]["incarnation"], life);
    second.end();
}

#[test]
fn where_a_node_cannot_listen_it_says_what_to_do() {
    let node = Node::start(&[]);
    let taken = ["serve", "node", "--memory", "1MiB", "--listen", &node.address];
    fails(
        &taken,
        7,
        &["the node cannot listen", &node.address, "another process listens there", "another port"],
    );
    node.end();
}

#[test]
fn what_a_node_cannot_be_is_refused() {
    fails(
        &["serve", "node", "--listen", "0.0.0.0:0", "--memory", "1MiB"],
        2,
        &["--secret-file", "openssl rand"],
    );
    fails(&["serve", "node", "--memory", "1GB"], 2, &["64MiB"]);
    fails(
        &["serve", "node", "--memory", "1MiB", "--disk", "/nodes/a", "--shared-memory", "/nodes/b"],
        2,
        &["cannot be used with"],
    );
    fails(&["serve", "node"], 2, &["--memory"]);
    fails(&["serve", "status", "127.0.0.1:1"], 7, &["no connection to node"]);
}
