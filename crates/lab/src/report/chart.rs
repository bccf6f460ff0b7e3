//! Lines and heat as SVG that is part of a page.

use std::fmt::Write as _;

use super::{escape, shown};
use crate::analysis::HeatMap;

/// Points of a line.
pub(super) type Line = Vec<(f64, f64)>;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 22.0;
/// Points of a line beyond which neighbours are left out.
const POINTS_MAX: usize = 400;

/// Lines over one axis.
pub(super) struct Chart {
    x: &'static str,
    y: &'static str,
    is_log: bool,
    lines: Vec<(String, Line)>,
}

impl Chart {
    pub(super) fn new(x: &'static str, y: &'static str) -> Chart {
        Chart { x, y, is_log: false, lines: Vec::new() }
    }

    pub(super) fn log_x(mut self) -> Chart {
        self.is_log = true;
        self
    }

    pub(super) fn line(mut self, name: &str, points: Line) -> Chart {
        self.lines.push((name.to_owned(), points));
        self
    }

    /// The picture, and the numbers.
    pub(super) fn draw(&self) -> (String, String) {
        let all = || {
            self.lines.iter().flat_map(|(_, points)| points).filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        let bound = |of: fn(&(f64, f64)) -> f64, start: f64, pick: fn(f64, f64) -> f64| {
            all().map(of).fold(start, pick)
        };
        let (mut low, mut high) =
            (bound(|p| p.0, f64::INFINITY, f64::min), bound(|p| p.0, f64::NEG_INFINITY, f64::max));
        if low >= high {
            (low, high) = (low.min(high).clamp(0.0, 1e300), low.min(high).clamp(0.0, 1e300) + 1.0);
        }
        if !self.is_log {
            low = low.min(0.0);
        }
        let most = bound(|p| p.1, 0.0, f64::max).max(1e-9);
        let scale = |x: f64| {
            let share = if self.is_log {
                (x.max(1e-9).ln() - low.max(1e-9).ln()) / (high.max(1e-9).ln() - low.max(1e-9).ln()).max(1e-9)
            } else {
                (x - low) / (high - low)
            };
            LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - 10.0)
        };
        let height = |y: f64| HEIGHT - BOTTOM - y / most * (HEIGHT - BOTTOM - TOP);
        let mut svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{}\">", escape(self.y));
        for step in 0..=4 {
            let value = most * f64::from(step) / 4.0;
            let y = height(value);
            let _ = write!(
                svg,
                "<line class=axis x1={LEFT} x2={:.0} y1={y:.1} y2={y:.1} />\
                <text x={:.0} y={:.1} text-anchor=end>{}</text>",
                WIDTH - 10.0,
                LEFT - 6.0,
                y + 4.0,
                shown(value)
            );
        }
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let value = if self.is_log {
                (low.max(1e-9).ln() + share * (high.max(1e-9).ln() - low.max(1e-9).ln())).exp()
            } else {
                low + share * (high - low)
            };
            let _ = write!(
                svg,
                "<text x={:.1} y={:.0} text-anchor=middle>{}</text>",
                scale(value),
                HEIGHT - BOTTOM + 15.0,
                shown(value)
            );
        }
        let _ = write!(
            svg,
            "<text x={:.0} y={:.0} text-anchor=end>{}</text>",
            WIDTH - 10.0,
            HEIGHT - 4.0,
            escape(self.x)
        );
        let mut csv = format!("line,{},{}\n", self.x.replace(',', ""), self.y.replace(',', ""));
        for (index, (name, points)) in self.lines.iter().enumerate() {
            let colour = ["--a", "--b", "--c", "--d"][index % 4];
            let step = points.len().div_ceil(POINTS_MAX).max(1);
            let mut path = String::new();
            for (place, (x, y)) in
                points.iter().enumerate().filter(|(_, (x, y))| x.is_finite() && y.is_finite())
            {
                let _ = writeln!(csv, "{},{x},{y}", name.replace(',', " "));
                if place % step == 0 || place + 1 == points.len() {
                    let verb = if path.is_empty() { 'M' } else { 'L' };
                    let _ = write!(path, "{verb}{:.1} {:.1}", scale(*x), height(*y));
                }
            }
            let _ = write!(
                svg,
                "<path d=\"{path}\" fill=none stroke=\"var({colour})\" stroke-width=2 stroke-linejoin=round />\
                <text x={:.0} y=14 style=\"fill:var({colour})\">{}</text>",
                LEFT + index as f64 * 120.0,
                escape(name)
            );
        }
        svg.push_str("</svg>");
        (svg, csv)
    }
}

/// Accesses by range and time; the picture, and the numbers.
pub(super) fn heat(map: &HeatMap, slot_seconds: f64) -> (String, String) {
    let used = map.accesses.iter().filter_map(|row| row.iter().rposition(|count| *count > 0)).max();
    let (slots, rows) = (used.map_or(1, |last| last + 1), map.accesses.len().max(1));
    let most = map.accesses.iter().flatten().copied().max().unwrap_or(1).max(1) as f64;
    let (width, height) = ((WIDTH - LEFT - 10.0) / slots as f64, (HEIGHT - BOTTOM - TOP) / rows as f64);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"accesses by range and time\">");
    let mut csv = "first_key_hex,second,accesses\n".to_owned();
    for (row, (first, counts)) in map.ranges.iter().zip(&map.accesses).enumerate() {
        let key: String = first.iter().map(|byte| format!("{byte:02x}")).collect();
        for (slot, count) in counts[..slots].iter().enumerate() {
            let _ = writeln!(csv, "{key},{},{count}", slot as f64 * slot_seconds);
            if *count > 0 {
                // By its logarithm: a few ranges are far hotter than all others.
                let strength = (1.0 + *count as f64).ln() / (1.0 + most).ln();
                let _ = write!(
                    svg,
                    "<rect x={:.1} y={:.1} width={:.1} height={:.1} \
                    style=\"fill:rgba(var(--hot),{strength:.2})\" />",
                    LEFT + slot as f64 * width,
                    HEIGHT - BOTTOM - (row + 1) as f64 * height,
                    width + 0.3,
                    height + 0.3
                );
            }
        }
    }
    let _ = write!(
        svg,
        "<text x={LEFT} y={:.0}>0</text><text x={:.0} y={:.0} text-anchor=end>{} s</text>\
        <text x={:.0} y={:.0} text-anchor=end>first</text><text x={:.0} y={:.0} text-anchor=end>last</text></svg>",
        HEIGHT - BOTTOM + 15.0,
        WIDTH - 10.0,
        HEIGHT - BOTTOM + 15.0,
        shown(slots as f64 * slot_seconds),
        LEFT - 6.0,
        HEIGHT - BOTTOM,
        LEFT - 6.0,
        TOP + 8.0
    );
    (svg, csv)
}
