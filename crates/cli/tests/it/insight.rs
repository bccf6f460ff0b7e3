//! The console and the metrics, beside a process that has the database open: this one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tombolo::{Db, Options};

use super::{ok, uri};

fn writer(store: &str) -> Db {
    let options = Options::parse(["memory_bytes=33554432"]).unwrap();
    let db = Db::builder(store).options(options).open().wait().unwrap();
    let orders = db.default_keyspace();
    for number in 0..1000_u32 {
        orders.put_with(number.to_be_bytes(), b"an order", tombolo::Durability::Accepted).wait().unwrap();
    }
    db.flush().wait().unwrap();
    db
}

/// The value of a metric.
fn value(text: &str, metric: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let line = line.unwrap_or_else(|| panic!("{metric} is not in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn asked(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_the_writers_at_the_prompt_and_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(folder.path());
    let db = writer(&store);
    let text = ok(&["metrics", &store, "--name", "orders"]);
    assert!(value(&text, "tombolo_writes_total") >= 1000.0);
    assert!(text.contains("tombolo_writes_total{database=\"orders\"} "));

    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(["metrics", &store, "--name", "orders", "--listen", "127.0.0.1:0"]);
    let mut served = Served(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("listening at http://").unwrap().strip_suffix("/metrics").unwrap();
    let answer = asked(address, "GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    let before = value(body, "tombolo_writes_total");
    db.default_keyspace().put("one", "more").wait().unwrap();
    let answer = asked(address, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(value(&answer, "tombolo_writes_total") > before);
    assert!(asked(address, "HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("connection: close\r\n\r\n"));
    assert!(asked(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(asked(address, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(asked(address, "nothing of the kind").starts_with("HTTP/1.1 400 "));
    let long = format!("GET /metrics HTTP/1.0\r\nx: {}", "x".repeat(9000));
    // It may have hung up before all of it was sent.
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "));
    // The writer was not disturbed.
    db.default_keyspace().put("and", "another").wait().unwrap();
    db.close().wait().unwrap();
    let answer = asked(address, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "a look answers: {answer}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(folder.path());
    let text = writer(&store).metrics_text("orders");
    let dashboard = include_str!("../../../../docs/grafana.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() >= 15);
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for rest in dashboard.split("tombolo_").skip(1) {
        let name = format!("tombolo_{}", rest.split(|letter| !is_part(letter)).next().unwrap());
        assert!(text.contains(&format!("# TYPE {name} ")), "there is no metric {name}");
    }
}

/// In a process of its own: a console by the number of a process wants that to have one database.
#[test]
fn the_console_shows_a_writer_and_a_look() {
    const ALONE: &str = "TOMBOLO_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "insight::the_console_shows_a_writer_and_a_look", "--nocapture"]);
        assert!(alone.env(ALONE, "1").status().unwrap().success());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = uri(folder.path());
    let db = writer(&store);
    let process = std::process::id().to_string();
    for place in [store.as_str(), process.as_str()] {
        let screen = ok(&["top", place, "--once"]);
        for part in ["tombolo top: file://", "no trouble", "Levels", "Writes a second", "none by the request"]
        {
            assert!(screen.contains(part), "{part} is not on {screen}");
        }
        assert!(screen.contains(&format!("process {process}")), "{screen}");
    }
    let numbers: serde_json::Value = serde_json::from_str(&ok(&["--json", "top", &store])).unwrap();
    assert!(numbers["values"]["writes"].as_u64().unwrap() >= 1000, "{numbers}");
    assert_eq!(numbers["dollars_an_hour"], serde_json::Value::Null);
    db.close().wait().unwrap();
    let screen = ok(&["top", &store, "--once"]);
    assert!(screen.contains("a look: nobody has it open"), "{screen}");
    super::fails(&["top", &process, "--once"], 2, &["has no database"]);
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    ok(&["manual", pages.to_str().unwrap()]);
    for (page, says) in [("tombolo.1", "key"), ("tombolo-db-put.1", "durability"), ("tombolo-top.1", "every")]
    {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.starts_with(".ie") && text.contains(says), "{page}: {text}");
    }
    assert!(!pages.join("tombolo-crash-writer.1").exists());
}
