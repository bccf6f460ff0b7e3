//! Lines that fit beside each other on a screen, and comments in usual words.
//!
//! rustfmt keeps code within its columns where it can. It leaves macros, long strings and comments
//! as they are: those are held here.

use std::io;
use std::path::Path;

use super::{Context, Outcome, verdict};
use crate::source::{Source, collect, line_of, long_literals, words};

/// Most columns of a line of code.
const CODE_COLUMNS_MAX: usize = 110;

/// Most columns of a line that is a comment.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Words that make a sentence hard to read, of which a plainer form exists.
const HARD_WORDS: &[&str] = &["whoever", "whomever", "what is"];

/// Folders with sources that other checks leave out.
const MORE_FOLDERS: &[&str] = &["examples", "bench"];

/// Looks at every line.
pub fn check(context: &Context<'_>) -> Outcome {
    let more = more_sources(context.root)
        .map_err(|error| format!("cannot read the sources of {}: {error}", MORE_FOLDERS.join(", ")))?;
    let mut failures = Vec::new();
    let mut lines = 0;
    for source in context.sources.iter().chain(&more) {
        columns(source, &mut failures);
        hard_words(source, &mut failures);
        lines += source.text.lines().count();
    }
    verdict(failures, format!("{lines} lines"))
}

fn more_sources(root: &Path) -> io::Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in MORE_FOLDERS.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir()) {
        collect(&folder, "rs", &mut paths)?;
    }
    paths.sort();
    paths.iter().map(|path| Source::read(root, path)).collect()
}

/// Lines that are too long and can be broken.
fn columns(source: &Source, failures: &mut Vec<String>) {
    let literals = long_literals(&source.text);
    let mut is_fenced = false;
    for (index, line) in source.text.lines().enumerate() {
        let number = index + 1;
        let comment = comment_of(line);
        match comment {
            Some(text) if text.trim_start().starts_with("```") => is_fenced = !is_fenced,
            Some(_) => {}
            None => is_fenced = false,
        }
        let columns = line.chars().count();
        let max = if comment.is_some() { COMMENT_COLUMNS_MAX } else { CODE_COLUMNS_MAX };
        if columns <= max {
            continue;
        }
        let excused = match comment {
            Some(text) => is_fenced || text.trim_start().starts_with('|') || !can_be_broken(line, max),
            None => {
                let is_one_word = !line.trim().contains(' ');
                is_one_word
                    || literals.iter().any(|literal| {
                        let last = line_of(&source.text, literal.end);
                        (line_of(&source.text, literal.start)..=last).contains(&number)
                    })
            }
        };
        if !excused {
            failures.push(format!("{}:{number}: {columns} columns, more than {max}", source.path));
        }
    }
}

/// The text of a line that is a comment and nothing else.
fn comment_of(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    Some(rest.strip_prefix(['/', '!']).unwrap_or(rest))
}

/// Whether the comment has a space within the columns at which it can be broken: one behind a word,
/// outside of code spans.
fn can_be_broken(line: &str, columns_max: usize) -> bool {
    let (mut in_span, mut word_seen) = (false, false);
    // The marks of the comment and of a list are no words.
    let text_at = line.find(|character: char| !"/! -*".contains(character)).unwrap_or(line.len());
    for (column, character) in line.chars().enumerate().take(columns_max) {
        match character {
            '`' => in_span = !in_span,
            ' ' if word_seen && !in_span => return true,
            _ => {}
        }
        // Everything before the text is ASCII, so that columns are bytes there.
        word_seen |= column >= text_at;
    }
    false
}

/// Comments with hard words.
fn hard_words(source: &Source, failures: &mut Vec<String>) {
    for (index, line) in source.text.lines().enumerate() {
        let Some(text) = comment_of(line).map(str::to_lowercase) else { continue };
        if let Some(hard) = HARD_WORDS.iter().find(|hard| !words(&text, hard).is_empty()) {
            failures.push(format!("{}:{}: '{hard}' in a comment: say it plainly", source.path, index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut failures = Vec::new();
        columns(&Source::new("crates/x/src/a.rs", text.to_owned()), &mut failures);
        failures
    }

    #[test]
    fn long_lines_that_can_be_broken_are_named() {
        let (code, word) = ("x".repeat(111), "y".repeat(95));
        assert_eq!(found(&format!("{}\n", "x".repeat(110))).len(), 0);
        assert_eq!(found(&format!("f {code}\n")), ["crates/x/src/a.rs:1: 113 columns, more than 110"]);
        assert_eq!(found(&format!("{code}\n")).len(), 0);
        assert_eq!(found(&format!("// a {word}\n")).len(), 0);
        assert_eq!(found(&format!("// a word {word}\n")).len(), 1);
        assert_eq!(found(&format!("f(); // a {word} b {word}\n")).len(), 1);
    }

    #[test]
    fn what_cannot_be_broken_is_left() {
        let word = "y".repeat(120);
        assert_eq!(found(&format!("//! | a | {word} |\n")).len(), 0);
        assert_eq!(found(&format!("//! `a → b → {word}`,\n")).len(), 0);
        assert_eq!(found(&format!("/// - https://{word} here\n")).len(), 0);
        assert_eq!(found(&format!("/// see `a b {word}`\n")).len(), 1);
        assert_eq!(found(&format!("/// ```\n/// f(a, {word})\n/// ```\n/// see {word}\n")).len(), 1);
        assert_eq!(found(&format!("const A: &str = \"a\n    b {word}\";\n")).len(), 0);
        assert_eq!(found(&format!("const A: &str = \"a b {word}\";\n")).len(), 1);
    }

    #[test]
    fn hard_words_are_found_in_comments_only() {
        let text = "// Whoever asks.\nlet what = \"what is\"; // whoever\n/// what is_it\n".to_owned();
        let mut failures = Vec::new();
        hard_words(&Source::new("crates/new/src/a.rs", text), &mut failures);
        assert_eq!(failures, ["crates/new/src/a.rs:1: 'whoever' in a comment: say it plainly"]);
    }
}
