//! Every command on a real server, beside a process that has the database open and writes: the rows
//! of the tests of the command line, `beside_a_writer.txt`, where there are no servers. Between two
//! rows the writer writes; it ends well.

use std::path::{Path, PathBuf};

use super::live::Writer;
use super::misuse::{Prompt, expect};
use super::servers::Server;

const ROWS: &str = include_str!("../../../cli/tests/it/beside_a_writer.txt");

/// What the words of rows stand for on this server.
struct Places<'a> {
    server: &'a Server,
    folder: PathBuf,
    /// The pin of a clone that shares tables.
    clone: String,
    /// After this write changes are kept.
    sequence: String,
    news: u32,
}

impl Places<'_> {
    fn fill(&mut self, word: &str) -> String {
        self.news += 1;
        let (live, new) = (self.server.uri("beside/live"), format!("beside-new/{}", self.news));
        word.replace("{db}", &live)
            .replace("{uri}", &live)
            .replace("{root}", &self.server.uri("beside"))
            .replace("{other}", &self.server.uri("beside/other"))
            .replace("{new}", &self.server.uri(&new))
            .replace("{folder}", &self.folder.display().to_string())
            .replace("{clone}", &self.clone)
            .replace("{sequence}", &self.sequence)
    }
}

/// The text of a field of an object of JSON.
fn field(json: &str, name: &str) -> Result<String, String> {
    let missing = || format!("no {name} in {json}");
    let (_, rest) = json.split_once(&format!("\"{name}\":")).ok_or_else(missing)?;
    let end = rest.find([',', '}']).ok_or_else(missing)?;
    Ok(rest[..end].trim_matches('"').to_owned())
}

/// Runs it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let ends = |arguments: &[&str], code, words: &[&str]| expect(&prompt, &[], arguments, code, words);
    let folder = std::env::temp_dir().join(format!("tombolo-real-beside-{}", std::process::id()));
    let failed = |error| format!("writing in {}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(folder.join("lines"), "{\"key\":\"1\",\"value\":\"one\"}\n").map_err(failed)?;
    std::fs::write(folder.join("model"), ends(&["workload", "preset", "ycsb-a"], 0, &[])?).map_err(failed)?;
    ends(&["workload", "generate", &path("model"), &path("trace"), "--events", "10"], 0, &[])?;

    // The key `a` in a table, `b` put after that; a checkpoint, a clone and a subscription.
    let (uri, clone) = (server.uri("beside/live"), server.uri("beside-clone"));
    ends(&["db", "put", &server.uri("beside/other"), "1", "one"], 0, &[])?;
    ends(&["db", "put", &uri, "a", "in a table"], 0, &[])?;
    ends(&["db", "flush", &uri], 0, &[])?;
    ends(&["db", "checkpoint", "create", &uri, "kept"], 0, &[])?;
    ends(&["db", "checkpoint", "restore", &uri, "kept", &clone, "--share"], 0, &[])?;
    let clone = field(&ends(&["--json", "db", "clones", "list", &uri], 0, &[])?, "id")?;
    let subscribed = ends(&["--json", "db", "subscriptions", "create", &uri, "archive", "--all"], 0, &[])?;
    let sequence = field(&subscribed, "place")?;
    ends(&["db", "keyspace", "create", &uri, "orders"], 0, &[])?;
    ends(&["db", "put", &uri, "b", "in the log"], 0, &[])?;

    let mut writer = Writer::open(&prompt, &uri, "orders")?;
    writer.write("begun")?;
    let mut places = Places { server, folder: folder.clone(), clone, sequence, news: 0 };
    let (mut written, mut wrong) = (1, Vec::new());
    for row in ROWS.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let (does, rest) = row.split_once(' ').unwrap_or((row, ""));
        let (words, says) = rest.split_once(" => ").unwrap_or((rest, ""));
        let process = writer.process();
        let mut says: Vec<&str> = says.split(" | ").map(str::trim).filter(|part| !part.is_empty()).collect();
        let code = match does {
            "none" => continue,
            "looks" | "beside" => 0,
            "asks" => {
                says.push(&process);
                0
            }
            "taken" => 2,
            "refuses" => {
                says.extend([process.as_str(), "since 20", "InUse", "--take-over"]);
                9
            }
            _ => return Err(format!("{does:?} is nothing that a command does: {row}")),
        };
        let words: Vec<String> = words.split_whitespace().map(|word| places.fill(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match ends(&words, code, &says) {
            // RocksDB's, which need not be here.
            Err(error) if error.contains("library cannot be loaded") => {}
            Err(error) => wrong.push(error),
            Ok(_) => {}
        }
        writer.write(&format!("{written:04}"))?;
        written += 1;
    }
    match writer.end()? {
        Some(0) => {}
        code => wrong.push(format!("a command has disturbed the writer: it ended with {code:?}")),
    }
    let count = ends(&["db", "count", &uri, "--keyspace", "orders"], 0, &[])?;
    if count.trim() != written.to_string() {
        wrong.push(format!("the writer wrote {written} entries, and there are {count}"));
    }
    // Best effort: it lies in the system's directory of temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    if wrong.is_empty() {
        println!("looks: {} commands beside a writer, which went on", written - 1);
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}
