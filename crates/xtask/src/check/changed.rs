//! Which steps and which crates a change concerns: git's differences, mapped to crates and, by
//! cargo's own graph, to those that depend on them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::source::Source;

/// What a run of the check is about.
#[derive(Debug)]
pub enum Scope {
    /// All of the project.
    All,
    /// What changed.
    Changed(Changed),
}

/// What changed, and what depends on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Packages whose files changed, and packages that are built on such a package.
    pub packages: BTreeSet<String>,
    /// Whether a page of the documentation changed.
    pub pages: bool,
}

impl Scope {
    /// Whether it is all of the project.
    pub fn is_all(&self) -> bool {
        matches!(self, Scope::All)
    }

    /// Whether the package is concerned.
    pub fn has(&self, package: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Changed(changed) => changed.packages.contains(package),
        }
    }

    /// Whether any code is concerned.
    pub fn has_code(&self) -> bool {
        match self {
            Scope::All => true,
            Scope::Changed(changed) => !changed.packages.is_empty(),
        }
    }

    /// Whether a page of the documentation is concerned.
    pub fn has_pages(&self) -> bool {
        match self {
            Scope::All => true,
            Scope::Changed(changed) => changed.pages,
        }
    }
}

/// A crate of the workspace.
#[derive(Debug)]
struct Package {
    name: String,
    /// Its folder below the root, such as `crates/env`.
    folder: String,
    /// Crates of the workspace that it is built on, for its tests too.
    needs: Vec<String>,
}

/// What changed since `base`: committed, or not yet.
pub fn since(root: &Path, base: Option<&str>, sources: &[Source]) -> Result<Scope, String> {
    let base = match base {
        Some(base) => base.to_owned(),
        None => default_base(root)?,
    };
    let mut files: BTreeSet<String> = BTreeSet::new();
    for arguments in
        [&["diff", "--name-only", "--no-renames", &base][..], &["ls-files", "--others", "--exclude-standard"]]
    {
        files.extend(git(root, arguments)?.lines().map(str::to_owned));
    }
    println!("{} files changed since {base}", files.len());
    let scope = scope(&files, &packages(root)?, &included(sources));
    if let Scope::Changed(changed) = &scope {
        let names: Vec<&str> = changed.packages.iter().map(String::as_str).collect();
        println!("concerned: {}", if names.is_empty() { "no crate".to_owned() } else { names.join(", ") });
    }
    Ok(scope)
}

/// Where the work of this checkout left the main branch.
fn default_base(root: &Path) -> Result<String, String> {
    for main in ["main", "origin/main"] {
        if let Ok(base) = git(root, &["merge-base", main, "HEAD"]) {
            return Ok(base.trim().to_owned());
        }
    }
    Err("there is no branch main here: say with what to compare, `cargo xtask check --changed BASE`"
        .to_owned())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git, which knows what changed: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("git {} ended with {}: {}", arguments.join(" "), output.status, said.trim()))
    }
}

/// The crates of the workspace, as cargo says.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
    let names: BTreeSet<String> = all.iter().map(|package| text(&package["name"])).collect();
    let package = |package: &&Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().unwrap_or(&manifest);
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        Package {
            name: text(&package["name"]),
            folder: folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned(),
            needs: dependencies
                .map(|dependency| text(&dependency["name"]))
                .filter(|name| names.contains(name))
                .collect(),
        }
    };
    Ok(all.iter().map(package).collect())
}

/// Files outside a crate that its sources include, with the crate's folder.
fn included(sources: &[Source]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for source in sources {
        let Some(name) = source.crate_name() else { continue };
        let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
        for piece in source.text.split("include_str!(\"").skip(1) {
            let Some(target) = piece.split('"').next() else { continue };
            let path = plain(&folder.join(target));
            if !path.starts_with(&format!("crates/{name}/")) {
                found.push((path, format!("crates/{name}")));
            }
        }
    }
    found
}

/// A path without `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Files of which everything is built, or by which everything is judged.
const OF_ALL: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", ".cargo/", "rust-toolchain"];

fn scope(files: &BTreeSet<String>, packages: &[Package], included: &[(String, String)]) -> Scope {
    if files.iter().any(|file| OF_ALL.iter().any(|all| file.starts_with(all))) {
        return Scope::All;
    }
    let mut changed = Changed::default();
    let below = |file: &str, folder: &str| {
        file.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for file in files {
        changed.pages |= file.ends_with(".md") || below(file, "docs");
        for package in packages {
            let includes = included.iter().any(|(path, folder)| path == file && *folder == package.folder);
            if includes || below(file, &package.folder) {
                changed.packages.insert(package.name.clone());
            }
        }
    }
    loop {
        let before = changed.packages.len();
        for package in packages {
            if package.needs.iter().any(|need| changed.packages.contains(need)) {
                changed.packages.insert(package.name.clone());
            }
        }
        if changed.packages.len() == before {
            return Scope::Changed(changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(files: &[&str]) -> Option<(Vec<String>, bool)> {
        let package = |name: &str, needs: &[&str]| Package {
            name: format!("t-{name}"),
            folder: format!("crates/{name}"),
            needs: needs.iter().map(|need| format!("t-{need}")).collect(),
        };
        let packages = [
            package("cli", &["engine", "workload"]),
            package("engine", &["storage"]),
            package("storage", &["env"]),
            package("env", &[]),
            package("workload", &[]),
            package("env_other", &[]),
        ];
        let included = [("docs/operations.md".to_owned(), "crates/cli".to_owned())];
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        match scope(&files, &packages, &included) {
            Scope::All => None,
            Scope::Changed(changed) => Some((changed.packages.into_iter().collect(), changed.pages)),
        }
    }

    #[test]
    fn what_depends_on_a_changed_crate_is_concerned() {
        let names = |all: &[&str]| all.iter().map(|name| format!("t-{name}")).collect::<Vec<_>>();
        let code = |all: &[&str]| Some((names(all), false));
        assert_eq!(changed(&["crates/storage/src/a.rs"]), code(&["cli", "engine", "storage"]));
        assert_eq!(changed(&["crates/workload/Cargo.toml"]), code(&["cli", "workload"]));
        assert_eq!(changed(&["crates/env_other/src/lib.rs"]), code(&["env_other"]));
        assert_eq!(changed(&["docs/glossary.md"]), Some((vec![], true)));
        assert_eq!(changed(&["docs/operations.md"]), Some((names(&["cli"]), true)));
        assert_eq!(changed(&["docs/charts/fill.svg"]), Some((vec![], true)));
        assert_eq!(changed(&["fuzz/run"]), code(&[]));
        assert_eq!(changed(&["Cargo.lock", "docs/glossary.md"]), None);
        assert_eq!(changed(&[]), code(&[]));
    }

    #[test]
    fn pages_that_sources_include_are_known() {
        let text = "const PAGE: &str = include_str!(\"../../../docs/a.md\");\n\
            const OWN: &str = include_str!(\"own.txt\");\n";
        let source = Source::new("crates/cli/src/main.rs", text.to_owned());
        assert_eq!(included(&[source]), [("docs/a.md".to_owned(), "crates/cli".to_owned())]);
    }
}
