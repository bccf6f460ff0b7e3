//! Modules of every crate import each other in no circle.
//!
//! The rule is about siblings: two modules of one folder, each with all that lies below it. What a
//! module and its own parent have of each other is one part, as the parent is where the children's
//! common words stand. A circle is named with the shortest way around it, an import for each step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Context, Outcome, verdict};
use crate::source::{Source, paths};

/// A module: its segments below the crate's root; the root has none.
type Module = Vec<String>;

/// Imports between the children of one module: from, to, and the line that says so.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

/// Each crate below `crates/`.
pub fn check(context: &Context<'_>) -> Outcome {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in context.sources {
        if let Some(name) = source.crate_name() {
            crates.entry(name).or_default().push(source);
        }
    }
    let (mut failures, mut modules) = (Vec::new(), 0);
    for (name, sources) in &crates {
        let found = Crate::new(sources);
        modules += found.modules.len();
        failures.extend(found.circles().into_iter().map(|circle| format!("crates/{name}: {circle}")));
    }
    verdict(failures, format!("{modules} modules in {} crates, no circle", crates.len()))
}

struct Crate<'a> {
    modules: BTreeMap<Module, &'a Source>,
    /// What `use` makes known in a module of what its children have: name to the path below it.
    exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl<'a> Crate<'a> {
    fn new(sources: &[&'a Source]) -> Crate<'a> {
        let modules: BTreeMap<Module, &Source> =
            sources.iter().filter_map(|source| Some((module_of(&source.path)?, *source))).collect();
        let exports =
            modules.iter().map(|(module, source)| (module.clone(), uses_below(module, source))).collect();
        Crate { modules, exports }
    }

    /// The deepest module that `path`, seen from the crate's root, leads to.
    fn reach(&self, path: &[String]) -> Module {
        let mut at = Module::new();
        let mut rest: VecDeque<String> = path.iter().cloned().collect();
        // A name that stands for itself leads nowhere: each step is taken once.
        for _ in 0..64 {
            let Some(next) = rest.pop_front() else { break };
            let below = [at.as_slice(), std::slice::from_ref(&next)].concat();
            if self.modules.contains_key(&below) {
                at = below;
            } else if let Some(other) = self.exports.get(&at).and_then(|exports| exports.get(&next)) {
                for segment in other.iter().rev() {
                    rest.push_front(segment.clone());
                }
            } else {
                break;
            }
        }
        at
    }

    /// Imports between siblings, by their parent.
    fn edges(&self) -> BTreeMap<&[String], Edges<'_>> {
        let mut edges: BTreeMap<&[String], Edges<'_>> = BTreeMap::new();
        for (module, source) in &self.modules {
            for named in paths(&source.product) {
                let Some(path) = absolute(module, &named.segments) else { continue };
                let reached = self.reach(&path);
                let Some((target, _)) = self.modules.get_key_value(&reached) else { continue };
                let common = module.iter().zip(target).take_while(|(one, other)| one == other).count();
                if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                    let line = format!("{}:{} {}", source.path, named.line, named.segments.join("::"));
                    let among = edges.entry(&module[..common]).or_default();
                    among.entry(from).or_default().entry(to).or_insert(line);
                }
            }
        }
        edges
    }

    /// One line per circle of siblings.
    fn circles(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (parent, edges) in self.edges() {
            let mut told: BTreeSet<&str> = BTreeSet::new();
            for module in edges.keys() {
                if told.contains(module) {
                    continue;
                }
                let Some(circle) = way_back(&edges, module) else { continue };
                told.extend(&circle);
                let place =
                    if parent.is_empty() { String::new() } else { format!("{}: ", parent.join("::")) };
                let steps = circle.iter().zip(circle.iter().cycle().skip(1));
                let imports: Vec<&str> = steps.map(|(from, to)| edges[from][to].as_str()).collect();
                found.push(format!(
                    "{place}{} → {module} is a circle: move what the lower one needs into a module of its own\n\
                     \x20     {}",
                    circle.join(" → "),
                    imports.join("\n      ")
                ));
            }
        }
        found
    }
}

/// The shortest way from `start` over imports back to it.
fn way_back<'a>(edges: &Edges<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front() {
        for target in edges.get(module).into_iter().flat_map(BTreeMap::keys).copied() {
            if target == start {
                let mut circle = vec![module];
                while let Some(earlier) = before.get(circle[circle.len() - 1]) {
                    circle.push(earlier);
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(target) {
                before.insert(target, module);
                next.push_back(target);
            }
        }
    }
    None
}

/// The module that a file below `src` is.
fn module_of(path: &str) -> Option<Module> {
    let below = path.split_once("/src/")?.1.strip_suffix(".rs")?;
    let mut module: Module = below.split('/').map(str::to_owned).collect();
    let last = module.last().map(String::as_str);
    if last == Some("mod") || module.len() == 1 && matches!(last, Some("lib" | "main")) {
        module.pop();
    }
    Some(module)
}

/// A path of `module` from the crate's root on. `None` where it begins with no `crate`, `self` or
/// `super`: then it names another crate, or what an import has named already.
fn absolute(module: &[String], segments: &[String]) -> Option<Vec<String>> {
    match segments[0].as_str() {
        "crate" => Some(segments[1..].to_vec()),
        "self" => Some([module, &segments[1..]].concat()),
        "super" => {
            let ups = segments.iter().take_while(|segment| *segment == "super").count();
            let kept = module.len().checked_sub(ups)?;
            Some([&module[..kept], &segments[ups..]].concat())
        }
        _ => None,
    }
}

/// Names that `use` at the top of a module's file makes known, of what lies below the module.
fn uses_below(module: &[String], source: &Source) -> BTreeMap<String, Module> {
    let mut names = BTreeMap::new();
    for piece in source.product.split(';') {
        // rustfmt puts each at the beginning of its line.
        let begins =
            |line: &str| line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ");
        let Some(line) = piece.lines().find(|line| begins(line)) else { continue };
        let Some(tree) = piece.find(line).and_then(|at| piece.get(at..)) else { continue };
        let Some(tree) = tree.find("use ").and_then(|at| tree.get(at..)) else { continue };
        for named in paths(tree) {
            let path = match absolute(module, &named.segments) {
                Some(path) => match path.strip_prefix(module) {
                    Some(below) => below.to_vec(),
                    None => continue,
                },
                None => named.segments,
            };
            if let [_, .., name] = &path[..] {
                names.insert(name.clone(), path.clone());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(&format!("crates/x/src/{path}"), (*text).to_owned()))
            .collect();
        Crate::new(&sources.iter().collect::<Vec<_>>()).circles()
    }

    #[test]
    fn imports_one_way_pass_and_so_do_parents_with_their_children() {
        let files = [
            ("lib.rs", "mod a;\npub use a::Deep;\npub struct Root;"),
            ("a/mod.rs", "mod c;\npub use c::Deep;\nfn f() { c::g() }"),
            ("a/c.rs", "use super::X;\nuse crate::Root;"),
            ("b.rs", "use crate::Deep;\nuse crate::a::c::Y;"),
        ];
        assert_eq!(circles(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_named_once_with_an_import_for_each_step() {
        let found = circles(&[
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", "\nfn f() { crate::c::g() }"),
            ("b/deep.rs", "use super::super::c::C;"),
            ("c.rs", "use crate::{d, a::A};"),
            ("d.rs", ""),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a → b → c → a is a circle"), "{found:?}");
        for import in ["src/a.rs:1 crate::b::B", "src/c.rs:1 crate::a::A"] {
            assert!(found[0].contains(import), "{found:?}");
        }
    }

    #[test]
    fn circles_below_a_module_and_through_what_it_exports_are_seen() {
        let found = circles(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\nmod c;\npub use b::{B, Other};\nfn c() { c::X() }"),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", "use super::B;"),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a: b → c → b is a circle"), "{found:?}");
    }

    #[test]
    fn tests_may_import_anything() {
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)]\nmod t { use crate::a::A; }"),
        ];
        assert_eq!(circles(&files), Vec::<String>::new());
    }
}
