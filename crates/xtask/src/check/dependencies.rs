//! Each dependency has its reason beside it, in one place: the workspace's table in the root
//! Cargo.toml. And each that `cargo xtask` needs is built once: see [`built_twice`].

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Context, Outcome, verdict};
use crate::built::FEATURES;
use crate::source;

/// Crates take every dependency from the workspace's table; there each has a comment above it.
pub fn check(context: &Context<'_>) -> Outcome {
    let mut manifests = Vec::new();
    source::collect(context.root, "toml", &mut manifests)
        .map_err(|error| format!("   cannot list manifests: {error}"))?;
    let mut failures = Vec::new();
    let mut count = 0;
    for path in manifests.iter().filter(|path| path.file_name().is_some_and(|name| name == "Cargo.toml")) {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("   cannot read {}: {error}", path.display()))?;
        let name = path.strip_prefix(context.root).unwrap_or(path).display().to_string();
        count += manifest(&name, &text, &mut failures);
    }
    failures.extend(built_twice(context.root)?);
    verdict(failures, format!("{count} dependencies, each with its reason"))
}

/// Dependencies of `cargo xtask` that the check would build again.
///
/// Cargo chooses features by what it is asked to build. One that is built with some features for
/// `cargo xtask` and with more for the workspace is built twice, with all that depends on it.
fn built_twice(root: &Path) -> Result<Vec<String>, String> {
    let of_xtask = tree(root, &["--package", "xtask", "--edges", "normal,build"])?;
    let of_all = tree(root, &["--workspace", "--features", FEATURES])?;
    let differs = of_xtask.difference(&of_all).filter(|line| !line.starts_with("xtask "));
    let one = |line: &String| {
        let name = line.split(' ').next().unwrap_or_default();
        let other = of_all.iter().find(|other| other.split(' ').next() == Some(name));
        format!(
            "`cargo xtask` is built with `{line}`, and the check with `{}`: name the features that are \
            missing, as \"One build of each\" in crates/xtask/Cargo.toml does",
            other.map_or("none", String::as_str)
        )
    };
    Ok(differs.map(one).collect())
}

/// Packages with their versions and features.
fn tree(root: &Path, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--prefix", "none", "--format", "{p} [{f}]"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("   cannot start cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("   cargo tree failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    // What was shown before is marked, and so are macros.
    let plain = |line: &str| line.replace(" (*)", "").replace(" (proc-macro)", "");
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(plain).filter(|line| !line.is_empty()).collect())
}

/// Checks one manifest; returns how many dependencies need and have a reason there.
fn manifest(name: &str, text: &str, failures: &mut Vec<String>) -> usize {
    let (mut section, mut reason, mut count) = (String::new(), false, 0);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            reason = false;
        } else if line.starts_with('#') {
            reason = true;
        } else if line.is_empty() {
            reason = false;
        } else if section.ends_with("dependencies") && line.contains('=') {
            let from_workspace = section != "workspace.dependencies"
                && (line.contains("workspace = true") || line.contains(".workspace=true"));
            if from_workspace {
                continue;
            }
            let ours = line.contains("path = ");
            if !reason && !ours && !line.contains('#') {
                failures.push(format!(
                    "{name}:{}: `{line}` has no reason: a comment above it says why it is needed",
                    index + 1
                ));
            }
            count += usize::from(!ours);
            // One comment covers one dependency.
            reason = false;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::manifest;

    #[test]
    fn a_dependency_without_a_reason_is_named() {
        let text = "[workspace.dependencies]\n# Because.\na = \"1\"\nb = \"1\"\nours = { path \
            = \"crates/ours\" }\n[dependencies]\na.workspace = true\nc = \"2\"\n";
        let mut failures = Vec::new();
        assert_eq!(manifest("Cargo.toml", text, &mut failures), 3);
        assert_eq!(failures.len(), 2);
        assert!(failures[0].contains("Cargo.toml:4") && failures[1].contains("Cargo.toml:8"));
    }
}
