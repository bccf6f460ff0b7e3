//! Relative links of the project's Markdown files lead to files, and their anchors to headings; no
//! line of their prose is longer than a page is wide.

use std::fs;
use std::path::Path;

use super::{Context, Outcome, verdict};
use crate::source;

/// Most columns of prose. Tables, code and what cannot be broken may be wider.
const COLUMNS_MAX: usize = 100;

/// Checks every Markdown file of the workspace.
pub fn check(context: &Context<'_>) -> Outcome {
    let mut files = Vec::new();
    source::collect(context.root, "md", &mut files)
        .map_err(|error| format!("   cannot list Markdown files: {error}"))?;
    let mut failures = Vec::new();
    let mut count = 0;
    for file in &files {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("   cannot read {}: {error}", file.display()))?;
        let name = file.strip_prefix(context.root).unwrap_or(file).display().to_string();
        for (line, columns) in wide_lines(&text) {
            failures.push(format!("{name}:{line}: {columns} columns; prose is wrapped at {COLUMNS_MAX}"));
        }
        for (line, target) in links(&text) {
            count += 1;
            if let Err(reason) = leads_somewhere(file, &text, &target) {
                failures.push(format!("{name}:{line}: the link to {target} {reason}"));
            }
        }
    }
    verdict(failures, format!("{count} links in {} files", files.len()))
}

fn leads_somewhere(file: &Path, text: &str, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = file.parent().unwrap_or(file);
    let found = if path.is_empty() { file.to_path_buf() } else { folder.join(path) };
    if !found.exists() {
        return Err("names no file".to_owned());
    }
    if anchor.is_empty() || found.extension().is_none_or(|extension| extension != "md") {
        return Ok(());
    }
    let read = if path.is_empty() { Ok(text.to_owned()) } else { fs::read_to_string(&found) };
    let headings = read.map_err(|error| format!("cannot be read: {error}"))?;
    if headings.lines().filter(|line| line.starts_with('#')).any(|heading| slug(heading) == anchor) {
        Ok(())
    } else {
        Err("names no heading there".to_owned())
    }
}

/// As hosting sites derive anchors: lower case, spaces to dashes, punctuation dropped.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .collect()
}

/// Lines of prose that are too long, with their columns.
fn wide_lines(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        let columns = line.chars().count();
        let breaks = line.trim_start().trim_start_matches(['-', '*', '!']).trim_start().contains(' ');
        let is_prose = !fenced && breaks && !line.starts_with('|') && !line.starts_with('#');
        if is_prose && columns > COLUMNS_MAX {
            found.push((index + 1, columns));
        }
    }
    found
}

/// Relative link targets with their lines; code blocks and code spans left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for piece in prose.split("](").skip(1) {
            let Some(target) = piece.split(')').next() else { continue };
            if !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty() {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_code_are_found() {
        let text = "[a](b.md#c) and `[x](y)` and [w](https://x.y)\n```\n[d](e)\n```\n[f](g)";
        assert_eq!(links(text), [(1, "b.md#c".to_owned()), (5, "g".to_owned())]);
    }

    #[test]
    fn prose_is_as_wide_as_a_page_and_the_rest_as_wide_as_it_must_be() {
        let wide = "word ".repeat(30);
        let unbroken = "x".repeat(150);
        let text = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n# {wide}\n- {unbroken}\n- {wide}\n");
        assert_eq!(wide_lines(&text), [(1, 150), (8, 152)]);
    }

    #[test]
    fn anchors_are_derived_as_sites_do() {
        assert_eq!(slug("## What it is, and `why`"), "what-it-is-and-why");
    }
}
