//! The fuzz targets are a workspace of their own that ordinary builds do not see: their four lists
//! must agree, and each target must call the function of its name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Context, Outcome, verdict};

/// Where the targets are listed with their functions.
const TABLES: [&str; 3] =
    ["crates/format/src/fuzzing.rs", "crates/segment/src/fuzzing.rs", "crates/files/src/fuzzing.rs"];

/// Targets by name, as each place lists them.
pub fn check(context: &Context<'_>) -> Outcome {
    let read = |path: &str| {
        fs::read_to_string(context.root.join(path))
            .map_err(|error| format!("   {path} cannot be read: {error}"))
    };
    let mut known = BTreeSet::new();
    for table in TABLES {
        known.extend(in_table(&read(table)?));
    }
    let mut failures = Vec::new();
    let mut compare = |place: &str, found: &BTreeSet<String>| {
        failures.extend(known.difference(found).map(|name| format!("{place} lacks the target {name}")));
        failures.extend(
            found.difference(&known).map(|name| format!("{place} has {name}, which fuzzing::TARGETS lacks")),
        );
    };
    compare("fuzz/Cargo.toml", &in_manifest(&read("fuzz/Cargo.toml")?));
    compare("fuzz/run", &in_script(&read("fuzz/run")?));
    compare("fuzz/fuzz_targets", &in_folder(&context.root.join("fuzz/fuzz_targets"))?);
    for name in &known {
        let path = format!("fuzz/fuzz_targets/{name}.rs");
        if !read(&path).unwrap_or_default().contains(&format!("fuzzing::{name}")) {
            failures.push(format!("{path} does not call fuzzing::{name}"));
        }
    }
    if known.is_empty() {
        failures.push(format!("no table TARGETS in {}", TABLES.join(", ")));
    }
    verdict(failures, format!("{} targets", known.len()))
}

/// Names of the table `TARGETS`: entries such as `("batch", batch),`.
fn in_table(text: &str) -> BTreeSet<String> {
    let table = text
        .split_once("pub const TARGETS")
        .and_then(|(_, rest)| rest.split_once("];"))
        .map_or("", |(table, _)| table);
    table.split("(\"").skip(1).filter_map(|entry| Some(entry.split_once('"')?.0.to_owned())).collect()
}

/// Binaries below `fuzz_targets`: lines such as `path = "fuzz_targets/batch.rs"`.
fn in_manifest(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| {
            Some(line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\"")?.to_owned())
        })
        .collect()
}

/// The line `all="batch …"`.
fn in_script(text: &str) -> BTreeSet<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("all=\"")?.strip_suffix('"'));
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn in_folder(path: &Path) -> Result<BTreeSet<String>, String> {
    let entries =
        fs::read_dir(path).map_err(|error| format!("   {} cannot be read: {error}", path.display()))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::{in_manifest, in_script, in_table};

    #[test]
    fn names_are_found_where_they_stand() {
        let names = ["batch", "pin"].map(str::to_owned).into();
        assert_eq!(
            in_table(
                "pub const TARGETS: [(&str, Target); 2] = [\n    (\"batch\", batch),\n    (\"pin\", \
                pin),\n];\n(\"other\", x)"
            ),
            names
        );
        assert_eq!(
            in_manifest(
                "name = \"batch\"\npath = \"fuzz_targets/batch.rs\"\npath = \"fuzz_targets/pin.rs\"\npath \
                = \"seeds.rs\""
            ),
            names
        );
        assert_eq!(in_script("set -eu\nall=\"batch pin\"\n"), names);
    }
}
