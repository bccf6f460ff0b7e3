//! Zones as a picture: for a terminal, and as an SVG.

use std::fmt::Write;

use super::ZoneRow;

/// Zones of a row of the picture.
const COLUMNS: usize = 64;
/// Width and height of a zone in the SVG.
const CELL: usize = 12;

/// A character for each zone: `M` metadata, `.` free, `0` to `5` open, by the class of life, `#`
/// full of what lives, `+` half, `-` hardly any, `L` log, `x` worn.
pub fn map(rows: &[ZoneRow]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 && index % COLUMNS == 0 {
            text.push('\n');
        }
        text.push(match row.used {
            "metadata" => 'M',
            "free" => '.',
            "log" => 'L',
            "worn" => 'x',
            "open" => char::from_digit(u32::from(row.class.unwrap_or(0)), 10).unwrap_or('?'),
            _ if row.live_bytes * 4 > row.capacity_bytes * 3 => '#',
            _ if row.live_bytes * 4 > row.capacity_bytes => '+',
            _ => '-',
        });
    }
    text
}

fn colour(row: &ZoneRow) -> &'static str {
    match row.used {
        "metadata" => "#7b5ea7",
        "free" => "#e8e8e8",
        "log" => "#d98e04",
        "worn" => "#b00020",
        "open" => "#3d8b7d",
        _ => "#2f6db5",
    }
}

/// Zones as an SVG: a cell each, filled as far as its bytes live, with what it is as its title.
pub fn svg(rows: &[ZoneRow], title: &str) -> String {
    let lines = rows.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS * CELL + 20, lines * CELL + 60);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"10\" y=\"16\">{}</text>\n",
        escaped(title)
    );
    for (index, row) in rows.iter().enumerate() {
        let (x, y) = (10 + index % COLUMNS * CELL, 26 + index / COLUMNS * CELL);
        let inner = CELL - 1;
        let share = |bytes: u64| {
            let capacity = row.capacity_bytes.max(1);
            usize::try_from(bytes.min(capacity) * inner as u64 / capacity).unwrap_or(0)
        };
        let live = if row.used == "full" || row.used == "open" { share(row.live_bytes) } else { inner };
        let written = share(row.written_bytes);
        let class = row.class.map_or_else(String::new, |class| format!(", class {class}"));
        let _ = writeln!(
            text,
            "<g><title>zone {}: {}{class}, {}, {} of {} bytes written, {} live</title>\
             <rect x=\"{x}\" y=\"{y}\" width=\"{inner}\" height=\"{inner}\" fill=\"#f4f4f4\"/>\
             <rect x=\"{x}\" y=\"{}\" width=\"{inner}\" height=\"{written}\" fill=\"#c9c9c9\"/>\
             <rect x=\"{x}\" y=\"{}\" width=\"{inner}\" height=\"{live}\" fill=\"{}\"/></g>",
            row.zone,
            row.used,
            row.state,
            row.written_bytes,
            row.capacity_bytes,
            row.live_bytes,
            y + inner - written,
            y + inner - live,
            colour(row),
        );
    }
    let legend = 26 + lines * CELL + 14;
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"{legend}\">violet: metadata; orange: log; green: open; blue: full, as far as it lives; \
         dark grey: written, and dead; red: worn</text>\n</svg>"
    );
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
