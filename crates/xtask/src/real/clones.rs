//! Checkpoints, clones that share tables, and how both are given back, on a real server, as
//! somebody at the prompt gets them.

use std::path::Path;

use super::misuse::{Prompt, expect};
use super::servers::Server;

/// Runs it.
pub fn run(root: &Path, server: &Server, profile: &str) -> Result<(), String> {
    let prompt = Prompt { root, server, profile };
    let ends = |arguments: &[&str], code, words: &[&str]| expect(&prompt, &[], arguments, code, words);
    let holds = |uri: &str, more: &[&str], value: &str| {
        let found = ends(&[&["db", "get", uri, "1"], more].concat(), 0, &[])?;
        if found == format!("{value}\n") {
            Ok(())
        } else {
            Err(format!("{uri} {more:?} holds {found:?} instead of {value:?}"))
        }
    };
    let [all, orders, tests, copy] =
        ["clones", "clones/orders", "clones/tests", "clones/copy"].map(|name| server.uri(name));

    ends(&["db", "put", &orders, "1", "one"], 0, &[])?;
    ends(&["db", "checkpoint", "create", &orders, "monday"], 0, &[])?;
    ends(&["db", "put", &orders, "1", "two"], 0, &[])?;
    ends(&["db", "compact", &orders], 0, &[])?;
    holds(&orders, &["--checkpoint", "monday"], "one")?;
    ends(&["db", "checkpoint", "restore", &orders, "monday", &copy], 0, &[])?;
    holds(&copy, &[], "one")?;
    ends(&["db", "destroy", &orders, "--yes"], 2, &["monday"])?;
    ends(&["db", "checkpoint", "delete", &orders, "monday"], 0, &[])?;

    ends(&["db", "clone", &orders, &tests, "--share"], 0, &["shares"])?;
    ends(&["db", "clones", "list", &orders], 0, &["../tests", "needed"])?;
    ends(&["db", "put", &tests, "1", "three"], 0, &[])?;
    holds(&tests, &[], "three")?;
    holds(&orders, &[], "two")?;
    // The tables that a clone needs are kept against every command.
    ends(&["db", "destroy", &orders, "--yes"], 2, &["../tests"])?;
    ends(&["gc", &all, "--delete"], 0, &["shared with ../tests"])?;
    holds(&tests, &[], "three")?;
    ends(&["db", "verify", &tests], 0, &[])?;

    // A clone that has moved away needs nothing any more.
    ends(&["db", "compact", &tests], 0, &[])?;
    let left = ends(&["db", "clones", "list", &orders], 0, &[])?;
    if !left.is_empty() {
        return Err(format!("the clone's tables are its own, and this is listed: {left}"));
    }
    ends(
        &["gc", &all, "--live", "tests", "--live", "copy", "--delete"],
        0,
        &["clones/orders", "not among the live databases", "destroyed"],
    )?;
    ends(&["db", "get", &orders, "1"], 3, &["destroyed"])?;
    holds(&tests, &[], "three")?;
    holds(&copy, &[], "one")?;
    println!(
        "clones: checkpoints are restored, shared tables kept as long as they are needed, and all of it is \
        given back"
    );
    Ok(())
}
