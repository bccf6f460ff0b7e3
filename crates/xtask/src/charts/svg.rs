//! A chart as SVG: a group of lines for each row, a line for each series, its name and value
//! beside.
//!
//! It carries its own background and follows the reader's light or dark theme. On a narrow screen,
//! where the whole picture shrinks, its letters grow.

use std::fmt::Write;

use super::figure::{Figure, Scale, shown};

const WIDTH: f64 = 560.0;
const MARGIN: f64 = 16.0;
/// About the width of a letter where letters are largest: on a narrow screen.
const LETTER: f64 = 9.2;
const BAR_HEIGHT: f64 = 13.0;
const LINE: f64 = 21.0;
const HEAD: f64 = 26.0;
const GAP: f64 = 12.0;

/// The first is for what the reader came for; the others keep apart from it and from each other.
const COLOURS: [&str; 7] = ["#d9730d", "#4c78a8", "#72a15a", "#a371c4", "#8b949e", "#c2587a", "#4ba3a3"];

const STYLE: &str = "\
.ground{fill:#ffffff;stroke:#d8dee4}\
text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}\
.name{font-weight:600}.soft{fill:#59636e}.track{stroke:#d8dee4}\
@media (prefers-color-scheme:dark){.ground{fill:#1b1e24;stroke:#3a404a}text{fill:#e6e8eb}\
.soft{fill:#a5afba}.track{stroke:#3a404a}}\
@media (max-width:460px){text{font-size:18px}}";

/// The chart of `figure`.
pub fn draw(figure: &Figure) -> String {
    let place = places(figure);
    let mut body = String::new();
    let mut y = MARGIN + 12.0;
    let _ = writeln!(body, "<text class=\"soft\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&unit(figure)));
    y += GAP;
    for row in &figure.rows {
        y += HEAD - 6.0;
        let _ = writeln!(body, "<text class=\"name\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&row.name));
        y += 6.0;
        for ((series, value), colour) in figure.series.iter().zip(&row.values).zip(COLOURS.iter().cycle()) {
            let Some(value) = value else { continue };
            let end = MARGIN + place(*value);
            let middle = y + LINE / 2.0;
            match figure.scale {
                Scale::Linear => {
                    let width = (end - MARGIN).max(1.0);
                    let top = middle - BAR_HEIGHT / 2.0;
                    let _ = writeln!(
                        body,
                        "<rect x=\"{MARGIN}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\" \
                         fill=\"{colour}\"/>"
                    );
                }
                Scale::Log => {
                    let _ = writeln!(
                        body,
                        "<line class=\"track\" x1=\"{MARGIN}\" y1=\"{middle:.1}\" x2=\"{end:.1}\" \
                         y2=\"{middle:.1}\"/>\
                         <circle cx=\"{end:.1}\" cy=\"{middle:.1}\" r=\"5.5\" fill=\"{colour}\"/>"
                    );
                }
            }
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{:.1}\">{} <tspan class=\"soft\">{}</tspan></text>",
                end + 10.0,
                middle + 5.0,
                shown(*value),
                escaped(&series.name)
            );
            y += LINE;
        }
        y += GAP;
    }
    let height = y + MARGIN - GAP;
    let title = escaped(&figure.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{body}</svg>\n",
        WIDTH - 1.0,
        height - 1.0
    )
}

fn unit(figure: &Figure) -> String {
    match figure.scale {
        Scale::Linear => figure.unit.clone(),
        Scale::Log => format!("{} (logarithmic)", figure.unit),
    }
}

/// How long the longest line is: names and values beside it have room.
fn longest(figure: &Figure) -> f64 {
    let lengths = figure.rows.iter().flat_map(|row| {
        let named = row.values.iter().zip(&figure.series);
        named.filter_map(|(value, series)| Some(shown((*value)?).len() + 1 + series.name.chars().count()))
    });
    #[expect(clippy::cast_precision_loss, reason = "a name has few letters")]
    let letters = lengths.max().unwrap_or(0) as f64;
    (WIDTH - 2.0 * MARGIN - 10.0 - LETTER * letters).clamp(150.0, 380.0)
}

/// How long a value's line is.
fn places(figure: &Figure) -> impl Fn(f64) -> f64 + use<> {
    let values = || figure.rows.iter().flat_map(|row| row.values.iter().copied().flatten());
    let most = values().fold(f64::MIN_POSITIVE, f64::max);
    let least = values().fold(most, f64::min);
    // The least dot stands a little way from the edge.
    let (floor, ceiling) = ((least / 1.5).log10(), most.log10());
    let (scale, longest) = (figure.scale, longest(figure));
    move |value| match scale {
        Scale::Linear => longest * value / most,
        Scale::Log => longest * (value.log10() - floor) / (ceiling - floor),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::figure;
    use super::*;

    #[test]
    fn lengths_follow_the_scale() {
        let mut figure = figure();
        figure.rows[0].values = vec![Some(1000.0), Some(10.0)];
        let linear = places(&figure);
        assert!((linear(1000.0) / linear(10.0) - 100.0).abs() < 1e-9);
        figure.scale = Scale::Log;
        let log = places(&figure);
        assert!((log(1000.0) - longest(&figure)).abs() < 1e-9 && log(10.0) > 0.0);
        assert!(((log(1000.0) - log(100.0)) - (log(100.0) - log(10.0))).abs() < 1e-9);
    }

    #[test]
    fn names_are_text_and_missing_values_have_no_line() {
        let drawn = draw(&figure());
        assert!(drawn.contains("2,000") && !drawn.contains("A & B") && !drawn.contains("A &amp; B"));
        let mut full = figure();
        full.rows[0].values[1] = Some(1.0);
        assert!(draw(&full).contains("A &amp; B"));
        assert!(drawn.contains("prefers-color-scheme:dark"));
    }
}
