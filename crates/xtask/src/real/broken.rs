//! A real server whose conditional put lets several win (s3s-fs): nobody may get a database there,
//! and who asks is told why.

use std::ffi::OsStr;
use std::path::Path;

use super::misuse::{Prompt, expect};
use super::servers::Server;

/// Runs it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let uri = server.uri("broken");
    let words = [
        "put-if-absent",
        "is broken: two writers could both own a database here",
        "exactly one winner",
        "use a store with atomic conditional puts",
    ];
    expect(&prompt, &[], &["doctor", &uri], 1, &words)?;
    let refused = expect(&prompt, &[], &["db", "create", &uri], 2, &[&["Unsupported"][..], &words].concat())?;
    println!("{}", refused.trim());
    expect(&prompt, &[], &["db", "put", &uri, "key", "value"], 2, &words)?;
    // Nothing is left that a later version would take for a database.
    let files = server.plain_files().ok_or("its objects are not files")?;
    let left: Vec<_> = std::fs::read_dir(files.join("broken"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    if let Some(name) = left.iter().find(|name| *name != OsStr::new("probe")) {
        return Err(format!("a database was refused, and {} is there", name.display()));
    }
    // It must be the suite that fails, and not its build.
    super::build_conformance(root, server)?;
    if super::conformance(root, server).is_ok() {
        return Err("the conformance suite has not noticed".to_owned());
    }
    println!("broken: refused by doctor and at creation, and noticed by the conformance suite");
    Ok(())
}
