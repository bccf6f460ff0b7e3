//! Each dependency has its reason beside it, in one place: the workspace's table in the root
//! Cargo.toml.

use std::fs;

use super::{Context, Outcome, verdict};
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
    verdict(failures, format!("{count} dependencies, each with its reason"))
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
