//! Every command that only looks, on a real server beside a process that writes, and goes on
//! writing afterwards.

use std::path::Path;
use std::time::{Duration, Instant};

use super::live::Writer;
use super::misuse::{Prompt, expect};
use super::servers::Server;

/// How long it may take until what the writer wrote is seen.
const SEEN_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let ends = |arguments: &[&str], code, words: &[&str]| expect(&prompt, &[], arguments, code, words);
    let uri = server.uri("looks");
    ends(&["db", "put", &uri, "a", "in a table"], 0, &[])?;
    ends(&["db", "flush", &uri], 0, &[])?;
    ends(&["db", "checkpoint", "create", &uri, "kept"], 0, &[])?;
    let mut writer = Writer::open(&prompt, &uri)?;
    writer.write("b")?;
    let end = Instant::now() + SEEN_TIME_MAX;
    while !ends(&["db", "scan", &uri], 0, &[])?.contains("of the writer") {
        if Instant::now() > end {
            return Err("what the writer wrote is not seen".to_owned());
        }
    }
    let looks: [(&[&str], &[&str]); 16] = [
        (&["db", "get", &uri, "b"], &["of the writer"]),
        (&["db", "get", &uri, "a", "--checkpoint", "kept"], &["in a table"]),
        (&["db", "scan", &uri], &["in a table", "of the writer"]),
        (&["db", "scan", &uri, "--tables-only"], &["in a table", "tables only"]),
        (&["db", "export", &uri], &["in a table", "of the writer"]),
        (&["db", "stats", &uri], &["flushes"]),
        (&["db", "stats", &uri, "--tables-only"], &["by a look", "ago)", "tables      1 of"]),
        (&["db", "properties", &uri, "tables", "shown-age"], &["shown-age"]),
        (&["db", "levels", &uri], &["level 0"]),
        (&["db", "verify", &uri], &["read 1 table (", "of the log", "as of 20"]),
        (&["db", "keyspace", "list", &uri], &["default"]),
        (&["db", "checkpoint", "list", &uri], &["kept"]),
        (&["db", "clones", "list", &uri], &[]),
        (&["inspect", &uri, "manifest"], &["claim", "log named"]),
        (&["explain", &uri], &["durable"]),
        (&["gc", &uri], &["objects in use"]),
    ];
    let mut expected = vec!["a".to_owned(), "b".to_owned()];
    for (number, (arguments, words)) in looks.into_iter().enumerate() {
        ends(arguments, 0, words)?;
        let key = format!("c{number:02}");
        writer.write(&key)?;
        expected.push(key);
    }
    match writer.end()? {
        Some(0) => {}
        code => return Err(format!("a look has disturbed the writer: it ended with {code:?}")),
    }
    let found = ends(&["db", "scan", &uri, "--keys-only"], 0, &[])?;
    if found.lines().ne(expected.iter().map(String::as_str)) {
        return Err(format!("of what the writer wrote this is there: {found}"));
    }
    println!("looks: {} commands beside a writer, which went on", looks.len());
    Ok(())
}
