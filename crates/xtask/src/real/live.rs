//! Commands beside a process that has a database open on a real server: they disturb it only when
//! they are told to, and what they ask of it, it does.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::misuse::{Prompt, expect};
use super::servers::Server;

/// How long it may take until the writer has the database open.
const OPEN_TIME_MAX: Duration = Duration::from_secs(120);

/// A process that has the database open until its input ends.
pub struct Writer(Child);

impl Writer {
    /// Starts one that writes to a keyspace, and waits until it has the database open.
    pub fn open(prompt: &Prompt<'_>, uri: &str, keyspace: &str) -> Result<Writer, String> {
        let writer = Writer::start(prompt.command(), uri, keyspace)?;
        let (end, process) = (Instant::now() + OPEN_TIME_MAX, writer.process());
        loop {
            let said = expect(prompt, &[], &["db", "writer", uri, "--no-ask"], 0, &[])?;
            if said.starts_with("alive") && said.contains(&process) {
                return Ok(writer);
            }
            if Instant::now() > end {
                return Err(format!("the writer does not open the database: {said}"));
            }
        }
    }

    fn start(mut command: Command, uri: &str, keyspace: &str) -> Result<Writer, String> {
        command.args(["db", "import", uri, "--durability", "durable", "--batch-bytes", "1"]);
        command.args(["--keyspace", keyspace]);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("starting a writer: {error}"))?;
        Ok(Writer(child))
    }

    /// As commands name it.
    pub fn process(&self) -> String {
        format!("process {} ", self.0.id())
    }

    /// Has it write a key, durably.
    pub fn write(&mut self, key: &str) -> Result<(), String> {
        let stdin = self.0.stdin.as_mut().ok_or("the writer has no input")?;
        writeln!(stdin, "{{\"key\":\"{key}\",\"value\":\"of the writer\"}}")
            .map_err(|error| format!("the writer reads no more: {error}"))
    }

    /// Ends its input; its exit code.
    pub fn end(mut self) -> Result<Option<i32>, String> {
        drop(self.0.stdin.take());
        self.0.wait().map(|status| status.code()).map_err(|error| format!("waiting for the writer: {error}"))
    }

    fn kill(&mut self) -> Result<(), String> {
        self.0
            .kill()
            .and_then(|()| self.0.wait())
            .map(drop)
            .map_err(|error| format!("killing the writer: {error}"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Best effort: it may have ended already.
        let _ = self.kill();
    }
}

/// Runs it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let ends = |arguments: &[&str], code, words: &[&str]| expect(&prompt, &[], arguments, code, words);
    let uri = server.uri("live");
    ends(&["db", "keyspace", "create", &uri, "more"], 0, &[])?;
    let open = |uri: &str| Writer::open(&prompt, uri, "default");
    let mut writer = open(&uri)?;
    let process = writer.process();
    let refused: [&[&str]; 6] = [
        &["db", "put", &uri, "1", "one"],
        &["db", "delete", &uri, "1", "--no-take-over"],
        &["db", "import", &uri, "--file", "/dev/null"],
        &["db", "keyspace", "create", &uri, "others"],
        &["db", "keyspace", "drop", &uri, "more"],
        &["db", "destroy", &uri, "--yes"],
    ];
    for (number, arguments) in refused.into_iter().enumerate() {
        ends(arguments, 9, &[&process, "since", "--take-over"])?;
        writer.write(&format!("{number}"))?;
    }
    ends(&["db", "flush", &uri], 0, &["done by the writer"])?;
    ends(&["db", "compact", &uri], 0, &["done by the writer"])?;
    ends(&["db", "checkpoint", "create", &uri, "monday"], 0, &["made by the writer"])?;
    ends(&["db", "clone", &uri, &server.uri("live-clone")], 0, &[])?;
    ends(&["db", "checkpoint", "delete", &uri, "monday"], 0, &[])?;
    writer.write("last")?;
    match writer.end()? {
        Some(0) => {}
        code => return Err(format!("the writer was disturbed: it ended with {code:?}")),
    }
    // It has closed: nobody is asked.
    ends(&["db", "writer", &uri], 0, &["closed"])?;
    ends(&["db", "put", &uri, "1", "one"], 0, &[])?;
    let found = ends(&["db", "scan", &uri, "--keys-only"], 0, &[])?;
    if found != "0\n1\n2\n3\n4\n5\nlast\n" {
        return Err(format!("of what the writer wrote this is there: {found}"));
    }
    let mut killed = open(&uri)?;
    killed.kill()?;
    ends(&["db", "put", &uri, "2", "two"], 0, &[])?;
    let mut taken = open(&uri)?;
    ends(&["db", "put", &uri, "3", "three", "--take-over"], 0, &[])?;
    // It may have ended at the first of them already.
    let _ = taken.write("late").and_then(|()| taken.write("later"));
    if taken.end()? != Some(4) {
        return Err("a writer that was taken over does not say that it is fenced".to_owned());
    }
    println!("live: no command disturbs a writer unless it is told to, and what it is asked it does");
    Ok(())
}
