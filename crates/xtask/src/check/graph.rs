//! The crate graph and the engine's module graph, against the two tables in ARCHITECTURE.md.
//!
//! The tables are fenced blocks whose info string is `layers` and `modules`; each line is a number
//! and the names on that layer. An import must go to a lower number, so a cycle cannot pass. The
//! document itself is checked: it cannot drift from the code.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{Context, Outcome, verdict};
use crate::source::{Source, paths};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Reads the table `kind` of ARCHITECTURE.md: name to layer.
fn table(document: &str, kind: &str) -> Result<BTreeMap<String, u32>, String> {
    let opening = format!("```{kind}");
    let mut lines = document.lines().skip_while(|line| line.trim() != opening);
    if lines.next().is_none() {
        return Err(format!("   {DOCUMENT} has no block {opening}"));
    }
    let mut layers = BTreeMap::new();
    for line in lines.take_while(|line| line.trim() != "```") {
        // What follows a dash is a remark for readers.
        let line = line.split(" - ").next().unwrap_or(line);
        let mut words = line.split_whitespace();
        let Some(number) = words.next() else { continue };
        let number =
            number.parse().map_err(|_| format!("   {DOCUMENT}, block {kind}: {number:?} is no layer"))?;
        for name in words {
            if layers.insert(name.to_owned(), number).is_some() {
                return Err(format!("   {DOCUMENT}, block {kind}: {name} stands twice"));
            }
        }
    }
    Ok(layers)
}

fn document(context: &Context<'_>) -> Result<String, String> {
    fs::read_to_string(context.root.join(DOCUMENT))
        .map_err(|error| format!("   cannot read {DOCUMENT}: {error}"))
}

/// Crates depend on lower layers only; dev-dependencies count as well, save on a crate's own
/// layer's test helpers: there are none.
pub fn crates(context: &Context<'_>) -> Outcome {
    let layers = table(&document(context)?, "layers")?;
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(context.root)
        .output()
        .map_err(|error| format!("   cannot start cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("   cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("   cargo metadata: {error}"))?;
    let packages: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut failures = Vec::new();
    let mut edges = 0;
    for package in &packages {
        let Some(name) = package["name"].as_str() else { continue };
        let Some(layer) = layers.get(name) else {
            failures.push(format!("crate {name} stands in no layer of {DOCUMENT}: give it one"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(target) = dependency["name"].as_str().filter(|target| names.contains(target)) else {
                continue;
            };
            edges += 1;
            match layers.get(target) {
                Some(lower) if lower < layer => {}
                Some(other) => failures.push(format!(
                    "crate {name} (layer {layer}) depends on {target} (layer {other}): only downward"
                )),
                None => failures.push(format!("crate {target} stands in no layer of {DOCUMENT}")),
            }
        }
    }
    for name in layers.keys().filter(|name| !names.contains(&name.as_str())) {
        failures.push(format!("{DOCUMENT} names the crate {name}, which the workspace does not have"));
    }
    verdict(failures, format!("{} crates, {edges} edges, all downward", names.len()))
}

/// Modules of the engine import lower modules only.
pub fn modules(context: &Context<'_>) -> Outcome {
    let layers = table(&document(context)?, "modules")?;
    let sources: Vec<&Source> =
        context.sources.iter().filter(|source| source.path.starts_with("crates/tombolo/src/")).collect();
    let (failures, edges) = check_modules(&layers, &sources);
    verdict(failures, format!("{} modules, {edges} edges, all downward", layers.len()))
}

/// The first folder or file name below `src`: the module that the graph is about. `None` for the
/// crate's root.
fn module_of(path: &str) -> Option<&str> {
    let below = path.split("/src/").nth(1)?;
    let first = below.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

fn check_modules(layers: &BTreeMap<String, u32>, sources: &[&Source]) -> (Vec<String>, usize) {
    let mut failures = Vec::new();
    let mut edges = std::collections::BTreeSet::new();
    let exports = reexports(sources);
    let mut seen = std::collections::BTreeSet::new();
    for source in sources {
        let Some(module) = module_of(&source.path) else { continue };
        let Some(layer) = layers.get(module) else {
            failures.push(format!(
                "{}: module {module} stands in no layer of {DOCUMENT}: give it one",
                source.path
            ));
            continue;
        };
        seen.insert(module);
        for named in paths(&source.product) {
            let Some(first) = below_root(source, &named.segments) else { continue };
            let target =
                if layers.contains_key(first) { Some(first) } else { exports.get(first).map(String::as_str) };
            let Some(target) = target.filter(|target| *target != module) else { continue };
            edges.insert((module, target.to_owned()));
            if layers.get(target).is_some_and(|lower| lower >= layer) {
                let what = named.segments.join("::");
                let other = layers[target];
                failures.push(format!(
                    "{}:{}: {module} (layer {layer}) imports {what} of {target} (layer {other}): only \
                    downward",
                    source.path, named.line
                ));
            }
        }
    }
    for name in layers.keys().filter(|name| !seen.contains(name.as_str())) {
        failures.push(format!("{DOCUMENT} names the module {name}, which crates/tombolo does not have"));
    }
    (failures, edges.len())
}

/// What the crate's root re-exports of its own modules: name to module.
fn reexports(sources: &[&Source]) -> BTreeMap<String, String> {
    let Some(root) = sources.iter().find(|source| source.path.ends_with("/src/lib.rs")) else {
        return BTreeMap::new();
    };
    let mut exports = BTreeMap::new();
    for named in paths(&root.product) {
        let segments: Vec<&str> = named
            .segments
            .iter()
            .map(String::as_str)
            .skip_while(|segment| *segment == "crate" || *segment == "self")
            .collect();
        if let [module, .., item] = segments[..] {
            exports.insert(item.to_owned(), module.to_owned());
        }
    }
    exports
}

/// The segment just below the crate's root that a path reaches, by `crate::` or by enough
/// `super::`s.
fn below_root<'a>(source: &Source, segments: &'a [String]) -> Option<&'a str> {
    if segments[0] == "crate" {
        return segments.get(1).map(String::as_str);
    }
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    // Depth of the file's module below the root; an inline module adds one, so a path may stay
    // inside by one more: harmless.
    let below = source.path.split("/src/").nth(1)?;
    let depth = below.split('/').count() - usize::from(below.ends_with("/mod.rs"));
    (ups > 0 && ups == depth).then(|| segments.get(ups).map(String::as_str)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "x\n```modules\n0 option  - settings\n1 read write\n2 db\n```\n";

    fn failures(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, (*text).to_owned())).collect();
        check_modules(&table(DOCUMENT, "modules").unwrap(), &sources.iter().collect::<Vec<_>>()).0
    }

    fn whole(read: &str) -> Vec<String> {
        failures(&[
            ("crates/tombolo/src/lib.rs", "pub use db::Db; pub use option::Options; pub use bytes::Bytes;"),
            ("crates/tombolo/src/option.rs", ""),
            ("crates/tombolo/src/write/mod.rs", "use crate::option::Options;"),
            ("crates/tombolo/src/db.rs", "use crate::{read, write::commit};"),
            ("crates/tombolo/src/read/get.rs", read),
        ])
    }

    #[test]
    fn downward_imports_pass() {
        assert_eq!(
            whole("use crate::option::X; use super::merge; use crate::Bytes; fn f() { crate::read::g() }"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn upward_and_sideways_imports_are_named_with_their_line() {
        assert!(
            whole("\nuse crate::db::Db;")[0].contains("read/get.rs:2: read (layer 1) imports crate::db::Db")
        );
        assert!(whole("use crate::Db;")[0].contains("of db (layer 2)"));
        assert!(whole("fn f() { crate::write::commit() }")[0].contains("of write (layer 1)"));
        assert!(whole("use super::super::db::Db;")[0].contains("of db (layer 2)"));
    }

    #[test]
    fn tests_may_import_upward() {
        assert_eq!(whole("#[cfg(test)] mod tests { use crate::db::Db; }"), Vec::<String>::new());
    }

    #[test]
    fn unknown_and_missing_modules_fail() {
        let found = failures(&[("crates/tombolo/src/stray.rs", "")]);
        assert!(found[0].contains("module stray stands in no layer"));
        assert!(found.iter().any(|failure| failure.contains("names the module db, which")));
    }
}
