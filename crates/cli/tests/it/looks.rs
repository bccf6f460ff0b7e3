//! Commands that only look, beside a writer of another process that goes on afterwards; without the
//! right to write; as another user; and where the log cannot be read.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::near_log::started;
use super::{Ran, json, ok, ran, tombolo, uri};

/// A user who owns nothing here.
const NOBODY: &str = "65534";

/// How often it is looked until a write is seen: each time is a process of its own.
const TRIES: u32 = 500;

/// A writer at work: an import that writes each line when it comes, durably.
struct Writer {
    process: Child,
    lines: ChildStdin,
}

impl Writer {
    fn start(place: &[&str]) -> Writer {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(["--json", "db", "import"])
            .args(place)
            .args(["--format", "tsv", "--batch-bytes", "1", "--durability", "durable"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = process.stdin.take().unwrap();
        Writer { process, lines }
    }

    fn put(&mut self, key: &str, value: &str) {
        writeln!(self.lines, "{key}\t{value}").unwrap();
    }

    /// Ends well, with so many entries written: nobody fenced it.
    fn end(self, entries: u64) {
        drop(self.lines);
        let output = self.process.wait_with_output().unwrap();
        let (text, message) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{text}{message}");
        assert_eq!(json(&text)["imported"].as_u64(), Some(entries));
    }
}

/// Runs the command as this process's user, or as another one.
pub fn run_as(user: Option<&Copied>, arguments: &[&str]) -> Ran {
    match user {
        None => tombolo(arguments),
        Some(Copied { binary, .. }) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
            command.arg(binary).args(arguments);
            ran(command, arguments)
        }
    }
}

/// The command where another user can run it. Others than root can run nothing as another user:
/// they have their own right to write taken away instead.
pub struct Copied {
    binary: PathBuf,
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A folder that others may enter.
pub fn open_folder() -> (tempfile::TempDir, Option<Copied>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let binary = folder.path().join("tombolo");
    let copied = is_root().then(|| {
        if std::fs::hard_link(env!("CARGO_BIN_EXE_tombolo"), &binary).is_err() {
            std::fs::copy(env!("CARGO_BIN_EXE_tombolo"), &binary).unwrap();
        }
        std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
        Copied { binary }
    });
    (folder, copied)
}

/// All that lies in a directory, with what tells of a change: length, mode, owner, times of content
/// and of attributes.
fn everything(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(path) = left.pop() {
        let is = std::fs::symlink_metadata(&path).unwrap();
        let times = (is.mtime(), is.mtime_nsec(), is.ctime(), is.ctime_nsec());
        found.push(format!("{} {} {:o} {} {times:?}", path.display(), is.len(), is.mode(), is.uid()));
        if is.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Every command that only looks: its words, and what it says of a database with the key `a` in a
/// table and the key `b` in the log only. Who may ask a live writer (`asks`) is told by it what no
/// look can know.
fn looking(place: &[&str], asks: bool) -> Vec<(Vec<String>, Vec<&'static str>)> {
    let store = place[0];
    let of = |words: &[&str], rest: &[&str], says: &[&'static str]| {
        let words = words.iter().chain(place).chain(rest).map(|word| (*word).to_owned()).collect();
        (words, says.to_vec())
    };
    let alone = |words: &[&str], says: &[&'static str]| {
        (words.iter().map(|word| (*word).to_owned()).collect(), says.to_vec())
    };
    let by_look = ["seen        by a look", " ago)", "tables      1 of", "beyond the tables"];
    let json_by_look = ["\"seen_by\":\"look\"", "\"age_ms\":", "\"as_of\":\"20"];
    vec![
        of(&["db", "get"], &["b"], &["in the log\n"]),
        of(&["db", "scan"], &[], &["a\tin a table\n", "b\tin the log\n"]),
        of(&["db", "export"], &[], &["in a table", "in the log"]),
        of(&["db", "stats"], &[], if asks { &["flushes"] } else { &by_look }),
        of(&["--json", "db", "stats"], &[], if asks { &["\"by_writer_of_epoch\":"] } else { &json_by_look }),
        of(&["db", "stats"], &["--tables-only"], &["seen        by a look", "log         not read"]),
        of(&["db", "properties"], &["tables", "log-bytes", "shown-age"], &["shown-age"]),
        alone(&["db", "levels", store], &["level 0", "1 entr"]),
        of(&["db", "verify"], &[], &["read 1 table (", "of the log", "as of 20"]),
        of(&["--json", "db", "verify"], &[], &["\"damage\":[]", "\"age_ms\":"]),
        of(&["db", "keyspace", "list"], &[], &["default\tid 0"]),
        of(&["db", "checkpoint", "list"], &[], &["kept\t"]),
        of(&["db", "get"], &["a", "--checkpoint", "kept"], &["in a table\n"]),
        of(&["db", "clones", "list"], &[], &[]),
        alone(&["inspect", store], &["record", "table"]),
        alone(&["inspect", store, "manifest"], &["claim", "log named"]),
        alone(&["explain", store], &["accepted", "durable"]),
        alone(&["gc", store], &["objects in use"]),
    ]
}

/// A database with the key `a` in a table.
fn made(place: &[&str]) {
    let with = |words: &[&str], rest: &[&str]| ok(&[words, place, rest].concat());
    with(&["db", "put"], &["a", "in a table"]);
    with(&["db", "flush"], &[]);
    with(&["db", "checkpoint", "create"], &["kept"]);
}

/// Runs all looks beside a writer, which goes on: as another user, where there is one to be. As its
/// own user `beside_a_writer.rs` runs them.
fn look_beside_a_writer(place: &[&str], user: Option<&Copied>, more: &[(Vec<String>, Vec<&str>)]) {
    made(place);
    let mut writer = Writer::start(place);
    writer.put("b", "in the log");
    let get = [&["db", "get"][..], place, &["b"]].concat();
    let mut tries = 0;
    while tombolo(&get).code != 0 {
        tries += 1;
        assert!(tries < TRIES, "{place:?}: the writer's line is not seen");
    }
    for (words, says) in looking(place, user.is_none()).iter().chain(more) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let looked = run_as(user, &words);
        assert_eq!(looked.code, 0, "{words:?}: {}{}", looked.stdout, looked.stderr);
        for what in says {
            assert!(looked.stdout.contains(what), "{words:?} does not say {what:?}: {}", looked.stdout);
        }
    }
    for number in 0..20 {
        writer.put(&format!("c{number}"), "after");
    }
    writer.end(21);
    assert_eq!(ok(&[&["db", "get"][..], place, &["c19"]].concat()), "after\n");
}

#[test]
fn no_look_disturbs_a_writer_on_a_local_log() {
    for form in ["mapped", "written"] {
        let (folder, other) = open_folder();
        let store = uri(&folder.path().join("db"));
        let log = format!("{store}?form={form}");
        let entries = ["inspect", &store, "log", "--entries"].map(str::to_owned).to_vec();
        let more = [(entries, vec!["in the log"])];
        look_beside_a_writer(&[&store, "--log", &log], other.as_ref(), &more);
        // The last writer closed it, and of looks nothing is left.
        let pins = std::fs::read_dir(folder.path().join("db/0000000000000001/pin")).unwrap();
        assert_eq!(pins.count(), 1, "the checkpoint's own");
    }
}

#[test]
fn no_look_disturbs_a_writer_on_a_log_of_objects() {
    let (folder, other) = open_folder();
    let store = uri(&folder.path().join("db"));
    look_beside_a_writer(&[&store, "--log", "objects://"], other.as_ref(), &[]);
}

#[test]
fn no_look_disturbs_a_writer_on_a_near_compute_log() {
    let (folder, other) = open_folder();
    let store = uri(&folder.path().join("db"));
    let (nodes, log) = started(&["", "", ""]);
    let status = ["log", "status", &store].map(str::to_owned).to_vec();
    let more = [(status, vec!["its writer may append", "holds"])];
    look_beside_a_writer(&[&store, "--log", &log], other.as_ref(), &more);
    // A writer that is killed leaves its last writes with the nodes. Without those nobody knows
    // what the log holds: an error, and never an empty answer.
    let mut writer = Writer::start(&[&store, "--log", &log]);
    writer.put("d", "in the log");
    let mut tries = 0;
    while tombolo(&["db", "get", &store, "d", "--log", &log]).code != 0 {
        tries += 1;
        assert!(tries < TRIES, "the writer's line is not seen");
    }
    writer.process.kill().unwrap();
    writer.process.wait().unwrap();
    drop(nodes);
    let scan = tombolo(&["db", "scan", &store, "--log", &log]);
    assert_eq!((scan.code, scan.stdout.as_str()), (7, ""), "{}", scan.stderr);
    assert!(scan.stderr.contains("answer") && scan.stderr.contains("tombolo log status"), "{}", scan.stderr);
    let tables = tombolo(&["db", "scan", &store, "--log", &log, "--tables-only"]);
    assert_eq!(tables.code, 0, "{}", tables.stderr);
    assert!(tables.stdout.starts_with("a\tin a table\n") && !tables.stdout.contains("d\t"));
    assert!(tables.stderr.contains("tables only"), "{}", tables.stderr);
}

#[test]
fn what_was_put_is_exported_though_no_table_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = uri(&folder.path().join("db"));
    ok(&["db", "create", &store]);
    ok(&["db", "put", &store, "k", "v"]);
    assert_eq!(ok(&["db", "export", &store]), "{\"key\":\"k\",\"value\":\"v\"}\n");
    let report = json(&ok(&["--json", "db", "verify", &store]));
    assert_eq!((report["tables"].as_u64(), report["log_entries"].as_u64()), (Some(0), Some(1)), "{report}");
    let file = folder.path().join("out").display().to_string();
    let exported = ok(&["db", "export", &store, "--file", &file]);
    assert!(exported.contains("exported 1 entr") && exported.contains("as of 20"), "{exported}");
    let tables = tombolo(&["--json", "db", "export", &store, "--tables-only"]);
    assert_eq!((tables.code, tables.stdout.as_str()), (0, ""));
    assert!(json(&tables.stderr)["note"].as_str().unwrap().contains("tables only"), "{}", tables.stderr);
}

#[test]
fn a_log_that_cannot_be_read_fails_loudly() {
    let folder = tempfile::tempdir().unwrap();
    let (store, log) = (uri(&folder.path().join("db")), folder.path().join("logs"));
    let place = [store.as_str(), "--log", &uri(&log)];
    made(&place);
    ok(&[&["db", "put"][..], &place, &["b", "in the log"]].concat());
    std::fs::rename(&log, folder.path().join("elsewhere")).unwrap();
    for words in [
        &["db", "scan"][..],
        &["db", "export"],
        &["db", "stats"],
        &["db", "verify"],
        &["db", "properties"],
        &["db", "keyspace", "list"],
    ] {
        let ran = tombolo(&[words, &place].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("the control page of a log that the manifest names"), "{}", ran.stderr);
    }
    let tables = tombolo(&[&["db", "scan"][..], &place, &["--tables-only"]].concat());
    assert_eq!((tables.code, tables.stdout.as_str()), (0, "a\tin a table\n"), "{}", tables.stderr);
    std::fs::rename(folder.path().join("elsewhere"), &log).unwrap();
    assert_eq!(ok(&[&["db", "get"][..], &place, &["b"]].concat()), "in the log\n");
}

/// A directory that may only be read: nothing in it is made, locked or changed.
#[test]
fn a_directory_without_the_right_to_write_is_looked_at_and_left_as_it_is() {
    for form in ["mapped", "written"] {
        let (folder, other) = open_folder();
        let directory = folder.path().join("db");
        let store = uri(&directory);
        let log = format!("{store}?form={form}");
        let place = [store.as_str(), "--log", &log];
        made(&place);
        ok(&[&["db", "put"][..], &place, &["b", "in the log"]].concat());
        let mode = |mode| {
            for line in everything(&directory) {
                let path = line.split(' ').next().unwrap();
                if Path::new(path).is_dir() {
                    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
                }
            }
        };
        mode(0o555);
        let before = everything(&directory);
        for (words, says) in looking(&place, false) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let looked = run_as(other.as_ref(), &words);
            assert_eq!(looked.code, 0, "{words:?}: {}{}", looked.stdout, looked.stderr);
            let notes = usize::from(words.contains(&"--tables-only"));
            assert_eq!(looked.stderr.lines().count(), notes, "{words:?}: {}", looked.stderr);
            assert!(says.iter().all(|what| looked.stdout.contains(what)), "{words:?}: {}", looked.stdout);
        }
        assert_eq!(everything(&directory), before, "looking has changed something");
        // Nor may it be written.
        let refused = run_as(other.as_ref(), &[&["db", "put"][..], &place, &["b", "mine"]].concat());
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        mode(0o755);
        ok(&[&["db", "put"][..], &place, &["b", "again"]].concat());
    }
}

/// What another user may not read is an error that says so, and no empty answer.
#[test]
fn a_log_of_another_user_that_is_closed_to_others_is_an_error() {
    let (folder, other) = open_folder();
    let directory = folder.path().join("db");
    let store = uri(&directory);
    made(&[&store]);
    ok(&["db", "put", &store, "b", "in the log"]);
    let log = directory.join("0000000000000001/log");
    let mode = |mode| std::fs::set_permissions(&log, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o000);
    let scanned = run_as(other.as_ref(), &["db", "scan", &store]);
    let tables = run_as(other.as_ref(), &["db", "scan", &store, "--tables-only"]);
    mode(0o755);
    assert_eq!((scanned.code, scanned.stdout.as_str()), (6, ""), "{}", scanned.stderr);
    assert!(scanned.stderr.contains("PermissionDenied"), "{}", scanned.stderr);
    assert_eq!((tables.code, tables.stdout.as_str()), (0, "a\tin a table\n"), "{}", tables.stderr);
}

/// Root looks at the database of a service: what that leaves for a moment, and the directories that
/// it makes, are the service's, which goes on.
#[test]
fn what_root_looks_at_stays_its_owners() {
    let (folder, other) = open_folder();
    let directory = folder.path().join("db");
    std::fs::create_dir(&directory).unwrap();
    if other.is_some() {
        let nobody = NOBODY.parse().ok();
        chown(&directory, nobody, nobody).unwrap();
    }
    let store = uri(&directory);
    let owner = |words: &[&str]| {
        let ran = run_as(other.as_ref(), words);
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    };
    owner(&["db", "put", &store, "a", "in a table"]);
    owner(&["db", "flush", &store]);
    // The first pin of all.
    assert_eq!(ok(&["db", "get", &store, "a"]), "in a table\n");
    ok(&["db", "put", &store, "b", "by root"]);
    let pins = directory.join("0000000000000001/pin");
    assert!(pins.is_dir(), "looking has pinned");
    let uid = std::fs::metadata(&directory).unwrap().uid();
    let of_others: Vec<String> = everything(&directory)
        .into_iter()
        .filter(|line| std::fs::metadata(line.split(' ').next().unwrap()).unwrap().uid() != uid)
        .collect();
    assert!(of_others.is_empty(), "{of_others:?}");
    owner(&["db", "checkpoint", "create", &store, "kept"]);
    owner(&["db", "checkpoint", "delete", &store, "kept"]);
    owner(&["db", "compact", &store]);
    assert_eq!(owner(&["db", "get", &store, "b"]), "by root\n");
}
