//! The README's tour at the prompt: each command does what the page says.

use std::path::Path;
use std::process::{Command, Stdio};

/// What differs from run to run: names by chance, times, and how many records of the manifest share
/// their edits with others.
fn masked(text: &str) -> String {
    if text.starts_with("as of ") {
        return "as of #".to_owned();
    }
    let words = text.split_inclusive(|byte: char| !byte.is_ascii_alphanumeric()).map(|word| {
        let digits = word.trim_end_matches(|byte: char| !byte.is_ascii_alphanumeric());
        let by_chance = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if by_chance { format!("#{}", &word[digits.len()..]) } else { word.to_owned() }
    });
    let text: String = words.collect();
    match text.split_once(" and ") {
        Some((before, after)) if after.ends_with("records of the manifest") => {
            format!("{before} and # records of the manifest")
        }
        _ => text,
    }
}

/// The commands of the tour, each with the lines that follow it.
fn tour() -> Vec<(String, Vec<String>)> {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let tour =
        page.split_once("## Five minutes at the prompt").unwrap().1.split_once("```console\n").unwrap().1;
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in tour.split_once("```").unwrap().0.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), Vec::new())),
            None => commands.last_mut().unwrap().1.push(line.to_owned()),
        }
    }
    commands
}

#[test]
fn the_tour_at_the_prompt_shows_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let place = super::uri(&folder.path().join("orders"));
    let program = Path::new(env!("CARGO_BIN_EXE_tombolo")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let commands = tour();
    assert!(commands.len() > 8, "the tour is not found: {commands:?}");
    let written =
        commands.iter().flat_map(|(command, _)| command.split(' ')).find(|word| word.starts_with("file:///"));
    let written = written.expect("the tour's database").to_owned();
    for (command, expected) in commands {
        if command.starts_with("cargo ") {
            continue;
        }
        let line = format!("{{ {}; }} 2>&1", command.replace(&written, &place));
        let output =
            Command::new("sh").args(["-c", &line]).env("PATH", &path).stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap().replace(&place, &written);
        let shown: Vec<_> = shown.lines().map(masked).collect();
        let expected: Vec<_> = expected.iter().map(|line| masked(line)).collect();
        assert_eq!(shown, expected, "$ {command}");
    }
}
