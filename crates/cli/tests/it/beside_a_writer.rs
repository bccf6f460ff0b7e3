//! Every command beside a writer at work: this process. The rows of `beside_a_writer.txt` say what
//! each is expected to do; that no command is without a row, a unit test of the command line says.

use std::path::Path;

use tombolo::{Db, Keyspace};

use super::live_writer::Place;
use super::near_log::started;
use super::{ok, tombolo, uri};

/// What a command does to a database that somebody has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Looks,
    Asks,
    Beside,
    Refuses,
    Taken,
}

impl Does {
    fn exit_code(self) -> i32 {
        match self {
            Does::Looks | Does::Asks | Does::Beside => 0,
            Does::Refuses => 9,
            Does::Taken => 2,
        }
    }
}

/// What a command does, its words, and what it has to say.
fn rows(text: &str) -> Vec<(Does, Vec<&str>, Vec<&str>)> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (does, rest) = line.split_once(' ').unwrap();
        let does = match does {
            "looks" => Does::Looks,
            "asks" => Does::Asks,
            "beside" => Does::Beside,
            "refuses" => Does::Refuses,
            "taken" => Does::Taken,
            "none" => continue,
            other => panic!("{other:?} is nothing that a command does: {line}"),
        };
        let (words, says) = rest.split_once(" => ").unwrap_or((rest, ""));
        let says = says.split(" | ").map(str::trim).filter(|part| !part.is_empty()).collect();
        rows.push((does, words.split_whitespace().collect(), says));
    }
    rows
}

/// A database with a writer at work, and what commands need beside it.
struct Beside<'a> {
    folder: &'a Path,
    place: Place,
    db: Db,
    orders: Keyspace,
    clone: String,
    sequence: u64,
    written: u32,
    news: u32,
}

impl Beside<'_> {
    /// A database with the key `a` in a table, `b` in the log only, a checkpoint before that, a
    /// clone and a subscription; and another one that nobody has open.
    fn begin(folder: &Path, log: Option<String>) -> Beside<'_> {
        let place = Place { store: uri(&folder.join("root/live")), log };
        let other = uri(&folder.join("root/other"));
        ok(&["db", "put", &other, "1", "one"]);
        std::fs::write(folder.join("lines"), "{\"key\":\"1\",\"value\":\"one\"}\n").unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        std::fs::write(folder.join("model"), ok(&["workload", "preset", "ycsb-a"])).unwrap();
        ok(&["workload", "generate", &path("model"), &path("trace"), "--events", "10"]);
        let db = place.builder().open().wait().unwrap();
        let default = db.default_keyspace();
        default.put("a", "in a table").wait().unwrap();
        db.flush().wait().unwrap();
        db.checkpoint("kept").wait().unwrap();
        let shared = tombolo::Db::builder(uri(&folder.join("clone")));
        place.builder().at_checkpoint("kept").share_to(shared).wait().unwrap();
        let clone = place.builder().clones().wait().unwrap()[0].id;
        db.subscribe("archive", 1 << 20).wait().unwrap();
        let orders = db.create_keyspace("orders", tombolo::KeyspaceOptions::default()).wait().unwrap();
        default.put("b", "in the log").wait().unwrap();
        let sequence = db.snapshot().sequence();
        let clone = format!("{clone:032x}");
        Beside { folder, place, db, orders, clone, sequence, written: 0, news: 0 }
    }

    /// The words of a command, for this database.
    fn words(&mut self, row: &[&str]) -> Vec<String> {
        let mut words = Vec::new();
        for word in row {
            if *word == "{db}" {
                words.push(self.place.store.clone());
                words.extend(self.place.log.iter().flat_map(|log| ["--log".to_owned(), log.clone()]));
                continue;
            }
            self.news += 1;
            let at = |name: &str| uri(&self.folder.join(name));
            words.push(
                word.replace("{uri}", &self.place.store)
                    .replace("{root}", &at("root"))
                    .replace("{other}", &at("root/other"))
                    .replace("{live}", &self.folder.join("root/live").display().to_string())
                    .replace("{new}", &at(&format!("new/{}", self.news)))
                    .replace("{folder}", &self.folder.display().to_string())
                    .replace("{clone}", &self.clone)
                    .replace("{sequence}", &self.sequence.to_string()),
            );
        }
        words
    }

    /// The writer goes on: nobody has disturbed it.
    fn goes_on(&mut self) -> tombolo::Result<()> {
        self.written += 1;
        self.orders.put(self.written.to_be_bytes(), b"an order").wait()
    }

    /// A fault of a row, if it has one.
    fn row(&mut self, does: Does, row: &[&str], says: &[&str]) -> Option<String> {
        let words = self.words(row);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = tombolo(&words);
        let said = format!("{words:?}\n  exit code {}: {}{}", ran.code, ran.stdout, ran.stderr);
        if let Err(error) = self.goes_on() {
            panic!("it has disturbed the writer: {error}\n{said}");
        }
        if ran.code == 2 && ran.stderr.contains("library cannot be loaded") {
            return None;
        }
        // Who names no log leaves a database of another log than its store's own alone.
        if self.place.log.is_some() && !row.contains(&"{db}") && ran.stderr.contains("uses another log") {
            return (ran.code != 2).then_some(said);
        }
        if ran.code != does.exit_code() {
            return Some(format!("it has to end with {}: {said}", does.exit_code()));
        }
        if let Some(part) = says.iter().find(|part| !ran.stdout.contains(**part)) {
            return Some(format!("it does not say {part:?}: {said}"));
        }
        let process = format!("process {} ", std::process::id());
        let parts = match does {
            Does::Refuses => &[process.as_str(), "since 20", "InUse", "--take-over"][..],
            Does::Asks => &[process.as_str()],
            Does::Looks | Does::Beside | Does::Taken => &[],
        };
        // One that asked and got no answer looks by itself; one that was not understood was refused
        // for its words.
        let wrong = match does {
            Does::Asks => "was not asked",
            Does::Taken => "Usage:",
            Does::Looks | Does::Beside | Does::Refuses => "panicked",
        };
        if said.contains(wrong) {
            return Some(format!("it says {wrong:?}: {said}"));
        }
        let missing = parts.iter().find(|part| !said.contains(**part));
        missing.map(|part| format!("it does not say {part:?}: {said}"))
    }

    fn run(&mut self) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/beside_a_writer.txt");
        let text = std::fs::read_to_string(path).unwrap();
        self.goes_on().unwrap();
        let rows = rows(&text);
        assert!(rows.len() > 70, "{} rows: are the right lines read?", rows.len());
        let wrong: Vec<_> = rows.iter().filter_map(|(does, row, says)| self.row(*does, row, says)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(self.db.failure().is_none());
        assert_eq!(self.orders.count::<&[u8]>(..).wait().unwrap(), u64::from(self.written));
    }
}

fn run(log: impl FnOnce(&Path) -> Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path());
    Beside::begin(folder.path(), log).run();
}

#[test]
fn every_command_beside_a_writer_on_a_local_log() {
    run(|_| None);
}

#[test]
fn every_command_beside_a_writer_on_a_log_of_objects() {
    run(|_| Some("objects://".to_owned()));
}

#[test]
fn every_command_beside_a_writer_on_a_near_compute_log() {
    let (_nodes, log) = started(&["", "", ""]);
    run(|_| Some(log));
}
