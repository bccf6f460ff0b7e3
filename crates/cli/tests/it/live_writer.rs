//! Commands beside a process that has the database open and goes on writing: this one.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind, Options, Presence, Registry};

use super::near_log::started;
use super::{Ran, fails, json, ok, tombolo, uri};

fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, Ok(None));
    registry
}

/// A database, and where its log is.
pub struct Place {
    pub store: String,
    pub log: Option<String>,
}

impl Place {
    pub fn builder(&self) -> tombolo::Builder {
        let builder = Db::builder(&self.store)
            .env(Env::real())
            .registry(registry())
            .options(Options::parse(["memory_bytes=33554432"]).unwrap());
        match &self.log {
            Some(log) => builder.log(log),
            None => builder,
        }
    }

    /// A command about the database, with its log.
    fn with<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let log = self.log.iter().flat_map(|log| ["--log", log.as_str()]);
        arguments.iter().copied().chain(log).collect()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        ok(&self.with(arguments))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        tombolo(&self.with(arguments))
    }
}

/// This process writes to a database; what commands say to people and programs beside it, and what
/// it does for them. Every command there is: `beside_a_writer.rs`.
fn no_command_disturbs_a_writer(place: &Place, folder: &Path) {
    let store = place.store.as_str();
    let db = place.builder().open().wait().unwrap();
    let orders = db.create_keyspace("orders", tombolo::KeyspaceOptions::default()).wait().unwrap();
    let mut written = 0u32;
    let mut goes_on = || {
        for _ in 0..10 {
            written += 1;
            orders.put(written.to_be_bytes(), b"an order").wait().expect("nobody has disturbed the writer");
        }
    };
    goes_on();
    let own = std::process::id().to_string();
    let host = Env::real().process_facts().host;
    let process = format!("process {own} ");
    let words = [process.as_str(), &host, "since 20", "InUse", "let that process do it", "--take-over"];
    fails(&place.with(&["db", "put", store, "1", "two books"]), 9, &words);
    let error = place.run(&["--json", "db", "put", store, "1", "two books"]);
    assert_eq!(json(&error.stderr)["error"]["kind"], "InUse");
    let created = place.run(&["db", "create", store]);
    assert_eq!(created.code, 2, "{}", created.stderr);
    goes_on();

    // The writer does itself what it is asked for.
    assert!(db.stats().tables == 0);
    let flushed = place.run(&["--json", "db", "flush", store]);
    assert_eq!(flushed.code, 0, "{}", flushed.stderr);
    assert!(flushed.stderr.contains(&format!("asking process {own} ")), "{}", flushed.stderr);
    let report = json(&flushed.stdout);
    assert_eq!(report["by_writer_of_epoch"].as_u64(), Some(db.epoch().0));
    assert_eq!((report["tables_before"].as_u64(), report["tables"].as_u64()), (Some(0), Some(1)));
    assert_eq!(db.stats().flushes, 1);
    goes_on();
    let report = json(&place.ok(&["--json", "db", "compact", store]));
    assert_eq!((report["tables_before"].as_u64(), report["tables"].as_u64()), (Some(1), Some(1)), "{report}");
    goes_on();
    let made = json(&place.ok(&["--json", "db", "checkpoint", "create", store, "monday"]));
    assert_eq!(
        (made["name"].as_str(), made["by_writer_of_epoch"].as_u64()),
        (Some("monday"), Some(db.epoch().0))
    );
    assert_eq!(db.checkpoints().wait().unwrap().len(), 1);
    goes_on();
    let stats = json(&place.ok(&["--json", "db", "stats", store]));
    assert_eq!(
        (stats["flushes"].as_u64(), stats["tables"].as_u64()),
        (Some(db.stats().flushes), Some(db.stats().tables)),
        "{stats}"
    );
    let asked = ["epoch", "entries", "slow-operations"];
    let properties = json(&place.ok(&[&["--json", "db", "properties", store][..], &asked].concat()));
    assert_eq!(properties["slow-operations"].as_u64(), Some(0), "{properties}");
    assert_eq!(properties["epoch"].as_u64(), Some(db.epoch().0), "{properties}");
    fails(&place.with(&["db", "properties", store, "no-such-name"]), 2, &["no-such-name", "entries"]);
    goes_on();
    fails(&place.with(&["db", "checkpoint", "create", store, "monday"]), 2, &["AlreadyExists", "monday"]);
    goes_on();
    place.ok(&["db", "checkpoint", "delete", store, "monday"]);
    let clone = uri(&folder.join("clone"));
    place.ok(&["db", "clone", store, &clone]);
    assert_eq!(db.checkpoints().wait().unwrap().len(), 0, "that for the clone is gone");
    goes_on();
    assert!(ok(&["db", "scan", &clone, "--keyspace", "orders", "--keys-only"]).lines().count() > 50);

    // Told to, a command takes it; what was acknowledged is there.
    place.ok(&["db", "put", store, "1", "two books", "--take-over"]);
    assert_eq!(orders.put(b"late", b"").wait().unwrap_err().kind(), ErrorKind::Fenced);
    let count = written as usize;
    assert_eq!(
        place.ok(&["db", "scan", store, "--keyspace", "orders", "--keys-only"]).lines().count(),
        count
    );

    // After a clean close nobody is asked.
    let db = place.builder().open().wait().unwrap();
    db.close().wait().unwrap();
    for arguments in
        [&["db", "put", store, "2", "a map"][..], &["db", "flush", store], &["db", "compact", store]]
    {
        let ran = place.run(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn no_command_disturbs_a_writer_on_a_local_disk() {
    for form in ["mapped", "written"] {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("{}?form={form}", uri(&folder.path().join("db")));
        no_command_disturbs_a_writer(&Place { store, log: None }, folder.path());
    }
}

#[test]
fn no_command_disturbs_a_writer_on_a_near_compute_log() {
    let folder = tempfile::tempdir().unwrap();
    let (_nodes, log) = started(&["", "", ""]);
    let place = Place { store: uri(&folder.path().join("db")), log: Some(log) };
    no_command_disturbs_a_writer(&place, folder.path());
}

/// A process that has the database open until its input ends.
struct Importing(Child);

impl Importing {
    fn start(place: &Place) -> Importing {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        command.args(place.with(&[
            "db",
            "import",
            &place.store,
            "--durability",
            "durable",
            "--batch-bytes",
            "1",
        ]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"{\"key\":\"1\",\"value\":\"two books\"}\n").unwrap();
        let is_open = || match place.builder().presence(Duration::ZERO).wait() {
            Ok(Presence::Alive(writer, _)) => writer.process == child.id(),
            _ => false,
        };
        while !is_open() {
            std::thread::yield_now();
        }
        Importing(child)
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_writer_that_was_killed_on_this_host_stands_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { store: uri(&folder.path().join("db")), log: None };
    let mut importing = Importing::start(&place);
    fails(
        &["db", "put", &place.store, "2", "a map"],
        9,
        &["(tombolo)", &format!("process {} ", importing.0.id())],
    );
    // SIGKILL, and nobody has waited for it yet.
    importing.0.kill().unwrap();
    while !matches!(place.builder().presence(Duration::ZERO).wait().unwrap(), Presence::Dead(_)) {
        std::thread::yield_now();
    }
    for arguments in [&["db", "put", &place.store, "2", "a map"][..], &["db", "flush", &place.store]] {
        let ran = place.run(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    }
}
