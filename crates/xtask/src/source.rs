//! Rust sources as the checks see them: comments and literals blanked, tests blanked, paths
//! expanded.
//!
//! A full parser would cost a minute of build time in every clean check. What the checks need is
//! less: which paths a file names, on which line, outside comments, literals and tests. Blanking
//! keeps every byte at its place, so that line numbers stay true.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One file.
#[derive(Debug)]
pub struct Source {
    /// Path below the workspace root, with `/`.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// Comments and literals blanked.
    pub code: String,
    /// `code` with `#[cfg(test)]` items blanked; all blank in test files.
    pub product: String,
}

/// A path named in a file, and the line (from 1) on which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its segments: `std`, `time`, `Instant`.
    pub segments: Vec<String>,
    /// The line.
    pub line: usize,
}

impl Source {
    /// Reads and blanks a file.
    pub fn read(root: &Path, path: &Path) -> io::Result<Source> {
        let text = fs::read_to_string(path)?;
        let relative = path.strip_prefix(root).unwrap_or(path);
        Ok(Source::new(&relative.to_string_lossy().replace('\\', "/"), text))
    }

    /// Blanks `text`.
    pub fn new(path: &str, text: String) -> Source {
        let code = blank_comments_and_literals(&text);
        let product = if is_test_path(path) { blank(&code, 0..code.len()) } else { blank_test_items(&code) };
        Source { path: path.to_owned(), text, code, product }
    }

    /// Modules in files of their own that this file declares for tests only: their paths, without
    /// `.rs`.
    fn test_modules(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let folder =
            ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
        let after_attribute = self.code.split("#[cfg(").skip(1).filter_map(|rest| {
            let (condition, item) = rest.split_once(")]")?;
            (condition == "test" || condition.starts_with("all(test,")).then_some(item)
        });
        after_attribute
            .filter_map(|item| {
                item.trim_start()
                    .trim_start_matches("pub ")
                    .trim_start_matches("pub(crate) ")
                    .strip_prefix("mod ")
            })
            .filter_map(|item| item.split_once(';'))
            .filter(|(name, _)| name.bytes().all(is_word))
            .map(|(name, _)| format!("{folder}/{name}"))
            .collect()
    }

    /// The crate's folder name, when the file belongs to one.
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// Whether the file holds tests only: rule 17 of the style says where those live.
fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.contains("/examples/")
}

/// All `.rs` files below `root`'s crates and fuzz, sorted.
pub fn all(root: &Path) -> io::Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in ["crates", "fuzz"] {
        if root.join(folder).is_dir() {
            collect(&root.join(folder), "rs", &mut paths)?;
        }
    }
    paths.sort();
    let mut sources: Vec<Source> =
        paths.iter().map(|path| Source::read(root, path)).collect::<io::Result<_>>()?;
    let test_modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let module = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        if test_modules.iter().any(|test| module == test || source.path.starts_with(&format!("{test}/"))) {
            source.product = blank(&source.code, 0..source.code.len());
        }
    }
    Ok(sources)
}

/// All files below `folder` with the extension, build results and hidden folders left out.
pub fn collect(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = entry.path();
        // Cargo marks its output; a source folder may be called target too.
        let output = path.join("CACHEDIR.TAG").exists();
        if output || name.starts_with('.') || name == "corpus" || name == "artifacts" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&path, extension, into)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            into.push(path);
        }
    }
    Ok(())
}

/// The line (from 1) of a byte.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Where `word` stands alone in `text`.
pub fn words(text: &str, word: &str) -> Vec<usize> {
    let edge = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| {
            edge(at.checked_sub(1).and_then(|before| bytes.get(before)))
                && (word.ends_with('!') || edge(bytes.get(at + word.len())))
        })
        .collect()
}

/// Literals that begin on one line and end on another.
pub fn long_literals(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let Some(end) = literal_or_comment_end(bytes, at) else {
            at += 1;
            continue;
        };
        let end = end.min(bytes.len());
        if bytes[at] != b'/' && bytes[at..end].contains(&b'\n') {
            found.push(at..end);
        }
        at = end;
    }
    found
}

fn blank(text: &str, range: std::ops::Range<usize>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank_bytes(&mut bytes[range]);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn blank_bytes(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn blank_comments_and_literals(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_or_comment_end(&bytes, at) {
            Some(end) => end,
            None => {
                at += 1;
                continue;
            }
        };
        blank_bytes(&mut bytes[at..end]);
        at = end;
    }
    // Blanking is by bytes, and every blanked character went whole.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the comment or literal that begins at `at` ends, if one does.
fn literal_or_comment_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    if !after_word {
        let prefix = rest.iter().take_while(|byte| b"bcr".contains(byte)).count();
        if (1..=2).contains(&prefix) && rest[..prefix].contains(&b'r') {
            let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
            if rest.get(prefix + hashes) == Some(&b'"') {
                return Some(raw_string_end(bytes, at + prefix + hashes + 1, hashes));
            }
        }
    }
    match rest.first()? {
        b'"' => Some(quoted_end(bytes, at + 1, b'"')),
        b'\'' => character_end(bytes, at),
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut position) = (0, at);
    while position < bytes.len() {
        if bytes[position..].starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if bytes[position..].starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], mut at: usize, hashes: usize) -> usize {
    while at < bytes.len() {
        if bytes[at] == b'"'
            && bytes[at + 1..].iter().take(hashes).filter(|byte| **byte == b'#').count() == hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal; `None` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        return Some(quoted_end(bytes, at + 1, b'\''));
    }
    let length = match first {
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + 2 + length)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Blanks every item under `#[cfg(test)]` or `#[cfg(all(test, …))]`, and `#[test]` functions.
fn blank_test_items(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    let mut at = 0;
    while let Some(found) = find(&bytes, at, b"#[") {
        let Some(end) = matching(&bytes, found + 1, b'[', b']') else { break };
        let attribute: String = code.get(found + 2..end).unwrap_or("").split_whitespace().collect();
        let test = attribute == "cfg(test)"
            || attribute.starts_with("cfg(all(test,")
            || attribute == "test"
            || attribute == "cfg(loom)";
        if test {
            let stop = item_end(&bytes, end + 1);
            blank_bytes(&mut bytes[found..stop]);
            at = stop;
        } else {
            at = end;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes[from..].windows(needle.len()).position(|window| window == needle).map(|position| from + position)
}

/// Where the bracket opened at `at` closes.
fn matching(bytes: &[u8], at: usize, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in bytes[at..].iter().enumerate() {
        if *byte == open {
            depth += 1;
        } else if *byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + offset);
            }
        }
    }
    None
}

/// The end of the item that follows an attribute: its closing brace, or its semicolon.
fn item_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'[' => at = matching(bytes, at, b'[', b']').unwrap_or(bytes.len()),
            b'(' => at = matching(bytes, at, b'(', b')').unwrap_or(bytes.len()),
            b'{' => return matching(bytes, at, b'{', b'}').map_or(bytes.len(), |end| end + 1),
            b';' | b',' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Every path that `code` names: `use` trees expanded, and paths of two or more segments elsewhere.
pub fn paths(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].0 {
            // `impl Trait + use<'a>` names what it captures, and no path.
            "use" if tokens.get(at + 1).is_some_and(|next| next.0 == "<") => at += 1,
            "use" => at = use_tree(&tokens, at + 1, &mut Vec::new(), &mut found),
            word if is_word(word.as_bytes()[0]) => at = plain_path(&tokens, at, &mut found),
            _ => at += 1,
        }
    }
    found
}

fn tokens(code: &str) -> Vec<(&str, usize)> {
    let bytes = code.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut tokens = Vec::new();
    while at < bytes.len() {
        let start = at;
        if bytes[at] == b'\n' {
            line += 1;
        }
        if is_word(bytes[at]) {
            at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
        } else if bytes[at..].starts_with(b"::") {
            at += 2;
        } else {
            at += 1;
            if bytes[start].is_ascii_whitespace() {
                continue;
            }
        }
        tokens.push((&code[start..at], line));
    }
    tokens
}

fn plain_path(tokens: &[(&str, usize)], mut at: usize, found: &mut Vec<Named>) -> usize {
    let line = tokens[at].1;
    let mut segments = vec![tokens[at].0.to_owned()];
    at += 1;
    while at + 1 < tokens.len() && tokens[at].0 == "::" && is_word(tokens[at + 1].0.as_bytes()[0]) {
        segments.push(tokens[at + 1].0.to_owned());
        at += 2;
    }
    if segments.len() > 1 {
        found.push(Named { segments, line });
    }
    at
}

/// Expands the tree that begins at `at`; returns the token after it.
fn use_tree(
    tokens: &[(&str, usize)],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<Named>,
) -> usize {
    let depth = prefix.len();
    while at < tokens.len() {
        let token = tokens[at].0;
        match token {
            "::" => at += 1,
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at].0 != "}" {
                    at = use_tree(tokens, at, prefix, found);
                    // No tree has a semicolon in it: text that is no Rust is read to its end too.
                    if at < tokens.len() && matches!(tokens[at].0, "," | ";") {
                        at += 1;
                    }
                }
                prefix.truncate(depth);
                return at + 1;
            }
            "as" => at += 2,
            "," | "}" | ";" => {
                if prefix.len() > depth {
                    found.push(Named { segments: prefix.clone(), line: tokens[at - 1].1 });
                }
                prefix.truncate(depth);
                return at;
            }
            _ => {
                prefix.push(token.to_owned());
                at += 1;
            }
        }
    }
    prefix.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str) -> Vec<String> {
        paths(&Source::new("crates/x/src/a.rs", code.to_owned()).product)
            .into_iter()
            .map(|named| format!("{} {}", named.line, named.segments.join("::")))
            .collect()
    }

    #[test]
    fn use_trees_are_expanded_with_their_lines() {
        let code = "use std::{\n    fs,\n    time::{Duration, Instant as Moment},\n};\nuse crate::read::*;\n";
        assert_eq!(
            named(code),
            ["2 std::fs", "3 std::time::Duration", "3 std::time::Instant", "5 crate::read::*"]
        );
    }

    #[test]
    fn what_is_captured_is_no_path_and_everything_is_read_to_its_end() {
        assert_eq!(
            named("fn f<'a>(x: &'a X) -> impl Iterator<Item = a::B> + use<'a> { { c::d(); } }\nuse e::f;\n"),
            ["1 a::B", "1 c::d", "2 e::f"]
        );
        assert_eq!(named("use a::{b; c}; d::e"), ["1 a::b", "1 a::c", "1 d::e"]);
    }

    #[test]
    fn comments_literals_and_tests_do_not_count() {
        let code = "// std::fs\n/* std::a /* std::b */ */ let x = \"std::c\\\"\"; let y = r#\"std::d\"#; \
            let z = '\"'; f::<'a>(); let w = a::b;\n\
                    #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n#[cfg(test)]\nmod more;\nuse std::io;\n";
        assert_eq!(named(code), ["2 a::b", "9 std::io"]);
    }

    #[test]
    fn modules_for_tests_only_are_known_by_their_declaration() {
        let text = "#[cfg(test)]\nmod model;\n#[cfg(all(test, feature = \"x\"))]\nmod \
            other;\n#[cfg(test)]\nmod inline { }\nmod product;\n";
        assert_eq!(
            Source::new("crates/x/src/a/mod.rs", text.to_owned()).test_modules(),
            ["crates/x/src/a/model", "crates/x/src/a/other"]
        );
        assert_eq!(
            Source::new("crates/x/src/a.rs", text.to_owned()).test_modules()[0],
            "crates/x/src/a/model"
        );
        assert_eq!(
            Source::new("crates/x/src/lib.rs", text.to_owned()).test_modules()[0],
            "crates/x/src/model"
        );
    }

    #[test]
    fn test_files_are_blank() {
        assert!(
            paths(&Source::new("crates/x/src/read/tests.rs", "use std::fs;".to_owned()).product).is_empty()
        );
        assert!(
            !paths(&Source::new("crates/x/src/read/tests.rs", "use std::fs;".to_owned()).code).is_empty()
        );
    }
}
