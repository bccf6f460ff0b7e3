//! Tables of figures within a page of Markdown, between two marks.

use std::fmt::Write;

use super::figure::{Figure, Measured, shown};

const BEGIN: &str = "<!-- figure: ";
const END: &str = "<!-- end of the figure -->";

/// The page `text` with what stands between its marks drawn again.
///
/// # Errors
/// A mark without its end, a mark that names no figure, and a figure that the page does not show.
pub fn with_figures(text: &str, figures: &[(String, Figure)]) -> Result<String, String> {
    let mut page = String::new();
    let mut rest = text;
    let mut seen = Vec::new();
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").ok_or("a mark has no end")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("the figure {name} has no end mark"))?;
        let (_, figure) = figures
            .iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| format!("there is no figure {name}"))?;
        let _ = write!(page, "{before}{BEGIN}{name} -->\n\n{}{END}", block(name, figure));
        seen.push(name);
        rest = after;
    }
    page.push_str(rest);
    match figures.iter().find(|(name, _)| !seen.contains(&name.as_str())) {
        Some((name, _)) => Err(format!("the page does not show the figure {name}")),
        None => Ok(page),
    }
}

fn block(name: &str, figure: &Figure) -> String {
    let mut text = format!("![{}](charts/{name}.svg)\n\n", figure.title);
    let names: Vec<_> = figure.series.iter().map(|series| series.name.as_str()).collect();
    let _ =
        writeln!(text, "| {} | {} |\n|---|{}", figure.unit, names.join(" | "), "--:|".repeat(names.len()));
    for row in &figure.rows {
        let values: Vec<_> =
            row.values.iter().map(|value| value.map_or_else(|| "–".to_owned(), shown)).collect();
        let _ = writeln!(text, "| {} | {} |", row.name, values.join(" | "));
    }
    text.push('\n');
    for measured in &figure.measured {
        text.push_str(&told(measured));
    }
    text
}

/// When and on what, and how to do it again.
fn told(measured: &Measured) -> String {
    let Measured { date, commit, machine, command, note } = measured;
    let commit = if commit.is_empty() { String::new() } else { format!(", commit {commit}") };
    let note = if note.is_empty() { String::new() } else { format!(" {note}") };
    let line = format!("Measured on {date}{commit}, on {machine}.{note}");
    format!("{}\n```console\n$ {command}\n```\n\n", wrapped(&line))
}

fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 100 {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced_and_the_rest_stays() {
        let figures = [("fill".to_owned(), figure())];
        let page = format!("before\n{BEGIN}fill -->\nold\n{END}\nafter\n");
        let drawn = with_figures(&page, &figures).unwrap();
        assert!(drawn.starts_with("before\n") && drawn.ends_with("\nafter\n") && !drawn.contains("old"));
        assert!(drawn.contains("| fill | 2,000 | – |"), "{drawn}");
        assert!(drawn.contains("Measured on 2026-11-27, commit abc, on two cores."), "{drawn}");
        assert_eq!(with_figures(&drawn, &figures).unwrap(), drawn);
    }

    #[test]
    fn a_figure_that_nobody_shows_and_a_mark_without_figure_are_told() {
        let figures = [("fill".to_owned(), figure())];
        assert!(with_figures("nothing", &figures).unwrap_err().contains("does not show the figure fill"));
        let page = format!("{BEGIN}other -->\n{END}");
        assert!(with_figures(&page, &figures).unwrap_err().contains("no figure other"));
        assert!(with_figures(&format!("{BEGIN}fill -->"), &figures).unwrap_err().contains("no end mark"));
    }
}
