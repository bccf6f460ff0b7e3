//! Bad input on a real server, as somebody at the prompt gets it: wrong credentials, no bucket,
//! nobody there, foreign objects, a table that was changed and one that was deleted behind the
//! database's back. Each ends with its exit code, names its cause and what to do, and tells no
//! secret.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::servers::{Kind, PASSWORD, Server};

/// Secrets of the environment that are wrong here, and that no message may show.
const WRONG_SECRETS: [&str; 2] = ["AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY"];
const WRONG_SECRET: &str = "bm90LXRoZS1zZWNyZXQtdGhhdC1pdC1zaG91bGQtYmU=";

/// Runs a command with the right credentials, and compares its exit code and words.
type Expect<'a> = dyn Fn(&[&str], i32, &[&str]) -> Result<String, String> + 'a;

/// The command, and the server that it is tried on.
pub struct Prompt<'a> {
    /// Of the project.
    pub root: &'a Path,
    pub server: &'a Server,
    /// How the command is built.
    pub profile: &'a str,
}

impl Prompt<'_> {
    /// The command as far as its arguments; once it runs it is the process that was started.
    pub fn command(&self) -> Command {
        let Prompt { root, server, profile } = self;
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--profile", profile, "--package", "tombolo-cli"]);
        command.args(["--features", server.feature(), "--"]).envs(server.credentials()).current_dir(root);
        command
    }
}

struct Ran {
    code: i32,
    output: String,
}

fn tombolo(prompt: &Prompt<'_>, overrides: &[(&str, &str)], arguments: &[&str]) -> Result<Ran, String> {
    let output = prompt
        .command()
        .args(arguments)
        .envs(overrides.iter().copied())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(Ran { code: output.status.code().unwrap_or(-1), output: String::from_utf8_lossy(&text).into_owned() })
}

/// Runs the command, and compares how it ends.
pub fn expect(
    prompt: &Prompt<'_>,
    overrides: &[(&str, &str)],
    arguments: &[&str],
    code: i32,
    words: &[&str],
) -> Result<String, String> {
    let ran = tombolo(prompt, overrides, arguments)?;
    let shown = arguments.join(" ");
    if ran.code != code {
        return Err(format!("{shown} ended with {} instead of {code}:\n{}", ran.code, ran.output));
    }
    if let Some(missing) = words.iter().find(|word| !ran.output.contains(**word)) {
        return Err(format!("{shown} does not say {missing:?}:\n{}", ran.output));
    }
    let secrets = prompt
        .server
        .credentials()
        .into_iter()
        .filter(|(name, _)| WRONG_SECRETS.contains(name))
        .map(|(_, value)| value);
    if let Some(told) = secrets.chain([WRONG_SECRET, PASSWORD]).find(|secret| ran.output.contains(secret)) {
        return Err(format!("{shown} tells the secret {told:?}:\n{}", ran.output));
    }
    Ok(ran.output)
}

/// Runs all of it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let uri = server.uri("misuse");
    let right = |arguments: &[&str], code, words: &[&str]| expect(&prompt, &[], arguments, code, words);
    right(&["db", "put", &uri, "key", "value"], 0, &[])?;
    right(&["db", "flush", &uri], 0, &[])?;
    if server.kind() == Kind::Hdfs {
        return on_hdfs(server, &uri, &right);
    }
    let wrong = WRONG_SECRETS.map(|name| (name, WRONG_SECRET));
    expect(
        &prompt,
        &wrong,
        &["db", "get", &uri, "key"],
        6,
        &["PermissionDenied", "to do", "check the credentials"],
    )?;
    expect(
        &prompt,
        &wrong,
        &["db", "put", &server.uri("none"), "key", "value"],
        6,
        &["PermissionDenied", "check the credentials"],
    )?;
    right(
        &["db", "get", &uri.replace("://bucket/", "://no-such-bucket/"), "key"],
        2,
        &["Invalid", "to do", "create the bucket"],
    )?;
    right(&["db", "get", &server.uri("no-database"), "key"], 3, &["NotFound", "there is no database here"])?;
    let nobody = format!("{}&retry_seconds=1", uri.replace(&server.address(), "127.0.0.1:9"));
    right(&["db", "get", &nobody, "key"], 7, &["Retry", "no connection to the store", "check the endpoint"])?;
    right(&["db", "get", &uri, "key"], 0, &["value"])?;
    if let Some(directory) = server.plain_files() {
        behind_its_back(&uri, &directory.join("misuse"), &right)?;
    }
    println!("misuse: every mistake has its exit code, its name and its next step");
    Ok(())
}

/// What others do to the objects, where the server keeps them as files.
fn behind_its_back(uri: &str, directory: &Path, right: &Expect<'_>) -> Result<(), String> {
    let io = |error: std::io::Error| format!("changing objects: {error}");
    for foreign in ["a-letter", "!odd", "zzz"] {
        std::fs::write(directory.join(foreign), b"foreign").map_err(io)?;
    }
    right(&["db", "get", uri, "key"], 0, &["value"])?;
    // `!odd` is no name of an object, and not seen at all.
    right(&["gc", uri, "--delete"], 0, &["2 foreign"])?;
    let tables: Vec<PathBuf> = std::fs::read_dir(directory.join("0000000000000001/table"))
        .map_err(io)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(io)?;
    let [table] = &tables[..] else {
        return Err(format!("one table was written, and {} are there", tables.len()));
    };
    let name = table.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = std::fs::read(table).map_err(io)?;
    let mut changed = bytes.clone();
    changed[10] ^= 1;
    std::fs::write(table, changed).map_err(io)?;
    right(&["db", "get", uri, "key"], 5, &["Corrupt", &name, "expected", "found", "to do"])?;
    right(&["db", "verify", uri], 1, &["1 damaged places", &name])?;
    std::fs::remove_file(table).map_err(io)?;
    right(&["db", "get", uri, "key"], 5, &["Corrupt", &name, "no such object", "to do"])?;
    std::fs::write(table, bytes).map_err(io)?;
    right(&["db", "get", uri, "key"], 0, &["value"]).map(drop)
}

/// Where a cluster takes one's word for who one is, and a NameNode has moods.
fn on_hdfs(server: &Server, uri: &str, right: &Expect<'_>) -> Result<(), String> {
    let root = uri.strip_suffix("/misuse").ok_or("the database lies elsewhere")?;
    let path = &uri[uri.find("/data").ok_or("the database lies elsewhere")?..];
    right(
        &["db", "put", &format!("{root}/none?user=stranger"), "key", "value"],
        6,
        &["PermissionDenied", "to do", "?user="],
    )?;
    right(
        &["db", "put", &format!("{uri}?user=stranger"), "key", "value"],
        6,
        &["PermissionDenied", "?user="],
    )?;
    right(
        &["db", "get", &format!("{root}/no-database"), "key"],
        3,
        &["NotFound", "there is no database here"],
    )?;
    right(
        &["db", "get", "hdfs://no-such-service/data/misuse", "key"],
        2,
        &["Invalid", "to do", "HADOOP_CONF_DIR"],
    )?;
    right(
        &["db", "get", root.strip_suffix("/data").unwrap_or(root), "key"],
        2,
        &["Invalid", "no directory"],
    )?;
    let nobody = format!("{}?retry_seconds=1", uri.replace(&server.address(), "127.0.0.1:9"));
    right(&["db", "get", &nobody, "key"], 7, &["Retry", "check host and port"])?;
    server.tell("safemode on")?;
    right(&["db", "get", &format!("{uri}?retry_seconds=1"), "key"], 7, &["Retry", "safe mode"])?;
    server.tell("safemode off")?;
    right(&["db", "get", uri, "key"], 0, &["value"])?;
    server.tell(&format!("quota {path} 1000"))?;
    right(&["db", "put", &format!("{uri}?retry_seconds=1"), "key", "other"], 6, &["OutOfSpace", "quota"])?;
    server.tell(&format!("quota {path} -1"))?;
    for foreign in ["a-letter", "!odd", "zzz"] {
        server.tell(&format!("write {path}/{foreign} foreign"))?;
    }
    right(&["gc", uri, "--delete"], 0, &["2 foreign"])?;
    let tables = format!("{path}/0000000000000001/table");
    let name = server.tell(&format!("list {tables}"))?;
    if name.is_empty() || name.contains(' ') {
        return Err(format!("one table was written, and these are there: {name:?}"));
    }
    server.tell(&format!("rename {tables}/{name} {path}/taken"))?;
    right(&["db", "get", uri, "key"], 5, &["Corrupt", &name, "no such object", "to do"])?;
    server.tell(&format!("rename {path}/taken {tables}/{name}"))?;
    right(&["db", "get", uri, "key"], 0, &["value"])?;
    // All was in the NameNode's journal.
    server.tell("restart")?;
    right(&["db", "get", uri, "key"], 0, &["value"])?;
    println!("misuse: every mistake has its exit code, its name and its next step");
    Ok(())
}
