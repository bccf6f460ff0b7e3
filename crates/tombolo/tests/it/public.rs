//! What users hold. Every public item stands in `public.txt`, so that one more is seen in review:
//! what only the engine or this project's own tools need is not among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/public.txt");

/// A file of the library, its tests excepted.
struct Source {
    /// Below `src`.
    path: PathBuf,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_stem().is_some_and(|name| name == "tests") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(&root).unwrap().to_owned(), text });
            }
        }
    }
    found
}

/// What the crate's root exports: the module that it comes from, its name there and its own.
fn exports(root: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    // Formatted as `cargo fmt` does: an export for users begins a line.
    for item in root.split("\npub use ").skip(1) {
        let (item, _) = item.split_once(';').unwrap();
        let (module, names) = item.split_once("::").unwrap();
        for name in names.trim_matches(|c| c == '{' || c == '}').split(',').map(str::trim) {
            let (name, shown) = name.split_once(" as ").unwrap_or((name, name));
            if !name.is_empty() {
                all.push((module.to_owned(), name.to_owned(), shown.to_owned()));
            }
        }
    }
    all
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// What a file says in public of the type `name`: its methods, fields and variants.
fn members(text: &str, name: &str, found: &mut BTreeSet<String>) -> bool {
    // The block that begins with a line, and whether a variant may stand in it.
    let block = |line: &str| -> Option<bool> {
        for (begin, has_variants) in
            [("pub struct ", false), ("pub enum ", true), ("pub trait ", false), ("impl ", false)]
        {
            if let Some(rest) = line.strip_prefix(begin)
                && word(rest) == name
                && !rest.contains(" for ")
            {
                return Some(has_variants);
            }
        }
        let (_, of) = line.strip_prefix("impl<")?.split_once("> ")?;
        (word(of) == name && !of.contains(" for ")).then_some(false)
    };
    let (mut inside, mut is_defined) = (None, false);
    for line in text.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with([' ', '}']) {
            inside = block(line);
            is_defined |= inside.is_some() && line.starts_with("pub ");
            continue;
        }
        let Some(has_variants) = inside else { continue };
        let Some(item) = line.strip_prefix("    ").filter(|item| !item.starts_with(' ')) else {
            inside = inside.filter(|_| !line.starts_with('}'));
            continue;
        };
        if let Some(item) = item.strip_prefix("pub ") {
            let kinds = ["const fn ", "async fn ", "fn ", "const "];
            let item = kinds.iter().find_map(|kind| item.strip_prefix(kind)).unwrap_or(item);
            found.insert(word(item).to_owned());
        } else if has_variants && item.starts_with(char::is_uppercase) {
            found.insert(word(item).to_owned());
        }
    }
    is_defined
}

#[test]
fn what_is_public_stands_in_a_list() {
    let sources = sources();
    let root = sources.iter().find(|source| source.path == Path::new("lib.rs")).unwrap();
    let mut lines = BTreeSet::new();
    for (module, name, shown) in exports(&root.text) {
        lines.insert(format!("tombolo::{shown}"));
        let is_of =
            |source: &&Source| source.path.starts_with(&module) || source.path.with_extension("") == *module;
        let mut found = BTreeSet::new();
        let mut is_defined = false;
        for source in sources.iter().filter(is_of) {
            is_defined |= members(&source.text, &name, &mut found);
        }
        if !is_defined {
            found.clear();
            for source in &sources {
                members(&source.text, &name, &mut found);
            }
        }
        lines.extend(found.iter().map(|member| format!("tombolo::{shown}::{member}")));
    }
    assert!(lines.contains("tombolo::Db::open_or_create_keyspace") && lines.contains("tombolo::Op::wait"));
    assert!(lines.contains("tombolo::Durability::Accepted") && lines.contains("tombolo::Stats::tables"));
    let modules: Vec<_> = root.text.split("\npub mod ").skip(1).map(word).collect();
    assert_eq!(modules, ["internals"], "modules are the engine's own");
    let listed = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os("UPDATE").is_some() {
        fs::write(LIST, &listed).unwrap();
    }
    let before = fs::read_to_string(LIST).unwrap_or_default();
    let (before, now): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), listed.lines().collect());
    assert!(
        before == now,
        "more is public: {:#?}\nno more is: {:#?}\nif that is meant, UPDATE=1 writes {LIST} anew",
        now.difference(&before).collect::<Vec<_>>(),
        before.difference(&now).collect::<Vec<_>>()
    );
}

/// The tests of a crate by the names that pages have for them: `it ` before those of its
/// integration binary, and without the modules that hold nothing but tests.
fn tests_of(krate: &Path) -> Vec<String> {
    let mut tests = Vec::new();
    for (folder, before) in [("src", ""), ("tests/it", "it ")] {
        let root = krate.join(folder);
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let place = path.strip_prefix(&root).unwrap().with_extension("");
                    let modules = place.iter().map(|part| part.to_str().unwrap());
                    let modules = modules.filter(|part| !["mod", "main", "lib", "tests"].contains(part));
                    let modules: String = modules.map(|module| format!("{module}::")).collect();
                    let text = fs::read_to_string(&path).unwrap();
                    let named = text.split("#[test]").skip(1).filter_map(|test| test.split_once("fn "));
                    tests.extend(named.map(|(_, name)| format!("{before}{modules}{}", word(name))));
                }
            }
        }
    }
    tests
}

/// What the last cell of a table's row has in backquotes.
fn quoted_in_last_cell(row: &str) -> impl Iterator<Item = &str> {
    let cells = row.trim_end().trim_end_matches('|');
    let last = cells.rmatch_indices('|').find(|(at, _)| !cells[..*at].ends_with('\\'));
    cells[last.map_or(0, |(at, _)| at)..].split('`').skip(1).step_by(2)
}

/// Tests that pages name as showing what they say are there, so that they say nothing that no test
/// shows.
#[test]
fn tests_that_a_page_names_are_there() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut known = BTreeMap::new();
    for page in ["rocksdb.md", "rules.md"] {
        let text = fs::read_to_string(crates.join("../docs").join(page)).unwrap();
        let (mut missing, mut named) = (Vec::new(), 0);
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let mut krate = "tombolo";
            // Of `it module::one`, `other` the second is of the same module.
            let mut module = None;
            for quoted in quoted_in_last_cell(row) {
                if let Some(other) = quoted.strip_prefix("tombolo-") {
                    krate = other;
                    continue;
                }
                let (krate, name) = match quoted.strip_prefix("cli ") {
                    Some(name) => ("cli", name),
                    None => (krate, quoted),
                };
                let of_it = name.strip_prefix("it ").and_then(|name| name.split_once("::"));
                let is_word = name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_:".contains(&byte));
                let wanted = match (of_it, module) {
                    (Some((of, _)), _) => {
                        module = Some(of);
                        name.to_owned()
                    }
                    (None, _) if is_word && name.contains("::") => name.replace("tests::", ""),
                    (None, Some(module)) if is_word => format!("it {module}::{name}"),
                    _ => continue,
                };
                named += 1;
                let tests = known.entry(krate.to_owned()).or_insert_with(|| tests_of(&crates.join(krate)));
                let begins = |test: &str, name: &str| {
                    test.starts_with(name)
                        || !name.starts_with("it ") && test.contains(&format!("::{name}"))
                        || test.strip_prefix("it ").is_some_and(|test| test.starts_with(name))
                };
                if !tests.iter().any(|test| begins(test, &wanted)) {
                    missing.push(quoted);
                }
            }
        }
        assert!(named > 40, "{named} in {page}");
        assert!(missing.is_empty(), "docs/{page} names {missing:?}");
    }
}
