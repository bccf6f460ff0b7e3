//! The book: the pages below `docs/`, and those of the root that its summary names, as HTML.
//!
//! 1. Every page is copied below `target/book/src`. Decisions need no line in the summary: they are
//!    listed below their own page.
//! 2. A link to another page of the book stays one. A link to anything else of the repository
//!    becomes one to where the repository is published.
//! 3. mdbook builds it. It is installed in `~/.cache/tombolo-tools`, for all checkouts, when it is
//!    not there.
//! 4. Every link of what was built is followed: to a file, and to the anchor in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::source;

/// Its version is part of the build, so that all build the same.
const MDBOOK: &str = "0.5.4";
/// The folder of decisions, and the end of the line of the summary that they stand below.
const DECISIONS: &str = "docs/decisions";
const DECISIONS_LINK: &str = "(decisions/README.md)
";
/// Where files that are no page of the book are shown.
const PUBLISHED: &str = "https://github.com/tombolo-db/tombolo/blob/main";

/// Options of `book`.
#[derive(Args)]
pub struct Arguments {
    /// Shows it in a browser.
    #[arg(long)]
    open: bool,
}

/// Builds the book, and says where it is.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    println!("{}", build(root)?);
    if arguments.open {
        let page = root.join("target/book/html/index.html");
        let status = Command::new("xdg-open").arg(&page).status();
        if !status.is_ok_and(|status| status.success()) {
            println!("no browser could be started: open {}", page.display());
        }
    }
    Ok(())
}

/// Builds the book and follows its links. Returns what there is to say, in a few words.
pub fn build(root: &Path) -> Result<String, String> {
    let folder = root.join("target/book");
    let pages = Pages::read(root)?;
    let sources = folder.join("src");
    remove(&sources)?;
    pages.copy(root, &sources)?;
    for name in ["book.toml", "book.css"] {
        copy(&root.join("docs").join(name), &folder.join(name))?;
    }
    let program = mdbook()?;
    let output = Command::new(&program)
        .arg("build")
        .arg(&folder)
        .output()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!(
            "mdbook ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let html = folder.join("html");
    let followed = follow(&html)?;
    let mut built = Vec::new();
    source::collect(&html, "html", &mut built).map_err(|error| format!("{}: {error}", html.display()))?;
    for page in built {
        let text = read(&page)?;
        std::fs::write(&page, with_breaks(&text)).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    Ok(format!("{} pages, {followed} links: {}", pages.pages.len(), html.join("index.html").display()))
}

/// The program, installed when it is not there.
fn mdbook() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set: where should tools be kept?")?;
    let tools = Path::new(&home).join(".cache/tombolo-tools").join(format!("mdbook-{MDBOOK}"));
    let own = tools.join("bin/mdbook");
    let wanted = format!("mdbook v{MDBOOK}");
    for program in [own.clone(), PathBuf::from("mdbook")] {
        let output = Command::new(&program).arg("--version").output();
        if output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == wanted) {
            return Ok(program);
        }
    }
    println!("installing {wanted} below {} (once; about a minute of processor time)", tools.display());
    // Unoptimised: it is built sooner, and builds the book in four seconds all the same.
    let status = Command::new(env!("CARGO"))
        .args(["install", "mdbook", "--version", MDBOOK, "--locked", "--debug", "--quiet"])
        .args(["--no-default-features", "--features", "search", "--root"])
        .arg(&tools)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() {
        Ok(own)
    } else {
        Err(format!("mdbook could not be installed ({status}): install {wanted} yourself, or leave this out"))
    }
}

/// The book's pages: where each is in the repository, and where it goes.
struct Pages {
    pages: BTreeMap<PathBuf, PathBuf>,
}

impl Pages {
    /// All Markdown files below `docs`, each of which the summary must name unless it is a
    /// decision, and those of the root that it names.
    fn read(root: &Path) -> Result<Pages, String> {
        let summary = PathBuf::from("docs/SUMMARY.md");
        let text = read(&root.join(&summary))?;
        let named: BTreeSet<PathBuf> =
            links(&text).into_iter().map(|target| resolved(&summary, &target)).collect();
        let mut files = Vec::new();
        source::collect(&root.join("docs"), "md", &mut files).map_err(|error| format!("docs: {error}"))?;
        let mut pages = BTreeMap::new();
        for file in files {
            let path = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
            if path != summary && !named.contains(&path) && !path.starts_with(DECISIONS) {
                return Err(format!("docs/SUMMARY.md does not name {}", path.display()));
            }
            pages.insert(path.clone(), place(&path));
        }
        pages.extend(named.into_iter().map(|path| (path.clone(), place(&path))));
        Ok(Pages { pages })
    }

    fn copy(&self, root: &Path, to: &Path) -> Result<(), String> {
        for (path, place) in &self.pages {
            let text = read(&root.join(path))?;
            let text = if path.ends_with("SUMMARY.md") { self.with_decisions(root, &text)? } else { text };
            write(&to.join(place), &self.with_links(root, path, place, &text)?)?;
        }
        let mut charts = Vec::new();
        source::collect(&root.join("docs"), "svg", &mut charts).map_err(|error| format!("docs: {error}"))?;
        for chart in charts {
            copy(&chart, &to.join(chart.strip_prefix(root.join("docs")).unwrap_or(&chart)))?;
        }
        Ok(())
    }

    /// The summary with a line for each decision, newest first, below their page.
    fn with_decisions(&self, root: &Path, summary: &str) -> Result<String, String> {
        let mut lines = String::new();
        let decisions = self.pages.keys().rev().filter(|path| path.starts_with(DECISIONS));
        for path in decisions.filter(|path| !path.ends_with("README.md")) {
            let text = read(&root.join(path))?;
            let title = text.lines().find_map(|line| line.strip_prefix("# "));
            let title = title.ok_or_else(|| format!("{} has no heading of level 1", path.display()))?;
            let link = path.strip_prefix("docs").unwrap_or(path);
            lines.push_str(&format!("  - [{}]({})\n", undated(title), link.display()));
        }
        let (before, after) = summary
            .split_once(DECISIONS_LINK)
            .ok_or_else(|| format!("docs/SUMMARY.md has no line that ends with {DECISIONS_LINK}"))?;
        Ok(format!("{before}{DECISIONS_LINK}{lines}{after}"))
    }

    /// The page's text with its links as they are in the book.
    fn with_links(&self, root: &Path, path: &Path, place: &Path, text: &str) -> Result<String, String> {
        let mut page = String::new();
        let mut fenced = false;
        for line in text.lines() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                page.push_str(line);
            } else {
                for (number, piece) in line.split("](").enumerate() {
                    if number == 0 {
                        page.push_str(piece);
                        continue;
                    }
                    let (target, rest) = piece.split_once(')').unwrap_or((piece, ""));
                    page.push_str("](");
                    page.push_str(&self.link(root, path, place, target)?);
                    page.push(')');
                    page.push_str(rest);
                }
            }
            page.push('\n');
        }
        Ok(page)
    }

    fn link(&self, root: &Path, path: &Path, place: &Path, target: &str) -> Result<String, String> {
        let (file, anchor) = target.split_once('#').map_or((target, ""), |(file, anchor)| (file, anchor));
        if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
            return Ok(target.to_owned());
        }
        let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        let found = resolved(path, file);
        if !root.join(&found).exists() {
            return Err(format!("{}: the link to {target} names no file", path.display()));
        }
        let is_chart = found.extension().is_some_and(|extension| extension == "svg");
        let within = match self.pages.get(&found) {
            Some(within) => within.clone(),
            None if is_chart => found.strip_prefix("docs").unwrap_or(&found).to_path_buf(),
            None => return Ok(format!("{PUBLISHED}/{}{anchor}", found.display())),
        };
        let ups = "../".repeat(place.components().count().saturating_sub(1));
        Ok(format!("{ups}{}{anchor}", within.display()))
    }
}

/// A title without the day that it begins with, if it does: `2026-11-22: the log` is `The log`.
fn undated(title: &str) -> String {
    let day = |byte: char| byte.is_ascii_digit() || "-: ".contains(byte);
    let title = title.trim_start_matches("Decision").trim_start_matches(day);
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Where a page goes. mdbook begins a folder with `index`, hosting sites with `README`.
fn place(path: &Path) -> PathBuf {
    let place = path.strip_prefix("docs").unwrap_or(path);
    if place.ends_with("README.md") { place.with_file_name("index.md") } else { place.to_path_buf() }
}

/// The targets of links of a summary.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|piece| piece.split(')').next());
    targets.filter(|target| !target.is_empty()).map(str::to_owned).collect()
}

/// What a link in `page` names, from the root on.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Follows the links of all built pages. Returns how many there were.
fn follow(folder: &Path) -> Result<usize, String> {
    let mut files = Vec::new();
    source::collect(folder, "html", &mut files).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut texts = BTreeMap::new();
    for file in files {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_path_buf();
        texts.insert(name, read(&file)?);
    }
    let mut failures = Vec::new();
    let mut count = 0;
    for (name, text) in &texts {
        // The page of everything repeats the others, and the one for missing pages has no place.
        if name == Path::new("print.html") || name == Path::new("404.html") {
            continue;
        }
        for target in attributes(text, "href").into_iter().chain(attributes(text, "src")) {
            if target.contains(':') || target.is_empty() || target == "#" {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let found = if file.is_empty() { name.clone() } else { resolved(name, file) };
            if !folder.join(&found).exists() {
                failures.push(format!("{}: the link to {target} names no file", name.display()));
            } else if let Some(page) = texts.get(&found)
                && !anchor.is_empty()
                && !attributes(page, "id").contains(&anchor)
            {
                failures.push(format!("{}: the link to {target} names no heading there", name.display()));
            }
        }
    }
    if failures.is_empty() { Ok(count) } else { Err(failures.join("\n")) }
}

/// Text of code with places where a line may end.
fn breakable(text: &str) -> String {
    let ends = ["::", "_", "/", "=", ","];
    ends.iter().fold(text.to_owned(), |text, end| text.replace(end, &format!("{end}<wbr>")))
}

/// A page on which names of code within tables may go on in the next line, behind `::`, `_`, `/`,
/// `=` and commas: a column is as wide as the longest part of a name then, and not as the longest
/// name.
fn with_breaks(page: &str) -> String {
    let mut made = String::with_capacity(page.len() + page.len() / 16);
    let (mut in_cell, mut in_code) = (false, false);
    let mut rest = page;
    while let Some((text, after)) = rest.split_once('<') {
        let (tag, next) = after.split_once('>').unwrap_or((after, ""));
        if in_cell && in_code {
            made.push_str(&breakable(text));
        } else {
            made.push_str(text);
        }
        match tag.split(' ').next().unwrap_or_default() {
            "td" => in_cell = true,
            "/td" => in_cell = false,
            "code" => in_code = true,
            "/code" => in_code = false,
            _ => {}
        }
        made.push('<');
        made.push_str(tag);
        if after.len() > tag.len() {
            made.push('>');
        }
        rest = next;
    }
    made.push_str(rest);
    made
}

/// The values of an attribute.
fn attributes<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    text.split(begin.as_str()).skip(1).filter_map(|piece| piece.split('"').next()).collect()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    write(to, &read(from)?)
}

/// Removes what an earlier build has left.
fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
    }

    #[test]
    fn the_summary_names_every_page_and_no_link_leads_nowhere() {
        let root = root();
        let pages = Pages::read(&root).unwrap();
        for (path, place) in &pages.pages {
            let text = read(&root.join(path)).unwrap();
            pages.with_links(&root, path, place, &text).unwrap();
        }
        assert!(pages.pages.len() > 60, "{}", pages.pages.len());
    }

    #[test]
    fn names_within_tables_may_go_on_in_the_next_line() {
        let page = "<p>a_b <code>c_d</code></p><td><code>e::f_g &lt;h=i&gt;</code> j_k</td> < l_m";
        let made =
            "<p>a_b <code>c_d</code></p><td><code>e::<wbr>f_<wbr>g &lt;h=<wbr>i&gt;</code> j_k</td> < l_m";
        assert_eq!(with_breaks(page), made);
    }

    #[test]
    fn decisions_are_listed_newest_first_without_a_line_in_the_summary() {
        let root = root();
        let pages = Pages::read(&root).unwrap();
        let summary =
            pages.with_decisions(&root, "- [Decisions](decisions/README.md)\n- [After](x.md)\n").unwrap();
        let place =
            |line: &str| summary.find(line).unwrap_or_else(|| panic!("{line} is missing in {summary}"));
        let newer = place("  - [Benchmarks until now](decisions/2026-11-27-benchmarks-until-now.md)");
        let older =
            place("  - [The manifest chain: what was left open, and how it is decided](decisions/2026-11-21");
        assert!(newer < older && older < place("- [After]"));
        assert!(pages.with_decisions(&root, "nothing").is_err());
        assert_eq!(undated("2026-11-22: one compaction"), "One compaction");
    }

    #[test]
    fn links_within_the_book_stay_and_others_lead_to_the_repository() {
        let root = root();
        let pages = Pages::read(&root).unwrap();
        let link = |page: &str, target: &str| {
            let page = Path::new(page);
            pages.link(&root, page, &place(page), target).unwrap()
        };
        assert_eq!(link("docs/formats.md", "storage.md#uris"), "storage.md#uris");
        assert_eq!(link("README.md", "docs/storage.md"), "storage.md");
        assert_eq!(link("docs/decisions/2026-11-22-peers.md", "../storage.md"), "../storage.md");
        assert_eq!(link("docs/formats.md", "../README.md#the-demo"), "index.md#the-demo");
        assert_eq!(link("README.md", "docs/decisions/README.md"), "decisions/index.md");
        assert_eq!(link("README.md", "LICENSE-MIT"), format!("{PUBLISHED}/LICENSE-MIT"));
        assert_eq!(link("README.md", "https://x.y"), "https://x.y");
        assert!(pages.link(&root, Path::new("README.md"), Path::new("README.md"), "none.md").is_err());
    }

    #[test]
    fn a_built_link_needs_its_file_and_its_heading() {
        let folder = std::env::temp_dir().join(format!("tombolo-book-{}", std::process::id()));
        write(&folder.join("a.html"), "<a href=\"b/c.html#beside\">").unwrap();
        write(&folder.join("b/c.html"), "<h2 id=\"beside\"></h2><a href=\"../a.html\">").unwrap();
        assert_eq!(follow(&folder).unwrap(), 2);
        write(&folder.join("d.html"), "<a href=\"b/c.html#there\"><img src=\"e.svg\">").unwrap();
        let failed = follow(&folder).unwrap_err();
        assert!(failed.contains("no heading") && failed.contains("no file"), "{failed}");
        remove(&folder).unwrap();
    }
}
