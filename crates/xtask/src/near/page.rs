//! The result as one HTML file that needs no network: curves drawn here, no script.

use std::fmt::Write;

use super::paper;
use super::record::{Record, median, rows, ways};
use super::table;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 430.0;
/// Room for the axes: left, right, top, bottom.
const EDGES: [f64; 4] = [62.0, 18.0, 14.0, 40.0];
/// What the figures' curves are drawn with, by way.
const COLOURS: [(&str, &str); 10] = [
    ("accepted", "#8a8f98"),
    ("objects", "#b8741a"),
    ("near-shared", "#0f7c8a"),
    ("near-tcp", "#35a0d0"),
    ("file", "#7b6cc4"),
    ("slatedb", "#d08fa8"),
    ("slatedb-tuned", "#b3426e"),
    ("bare", "#555"),
    ("bare-process", "#777"),
    ("bare-two-of-three", "#999"),
];
const PAPER_COLOUR: &str = "#9a9a9a";

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>The near-compute log, measured</title>
<style>
:root { color-scheme: light dark; --ink: light-dark(#1d2530, #e8ebef); --soft: light-dark(#677180, #98a2b0); --line: light-dark(#e4e1da, #2c3440); --card: light-dark(#fff, #1a2029); }
body { margin: 0 auto; max-width: 940px; padding: 24px 16px 60px; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: light-dark(#fbfaf7, #12161c) }
h1 { font-size: 1.5rem; margin: 0 0 6px } h2 { font-size: 1.1rem; margin: 30px 0 8px } p { margin: 4px 0; color: var(--soft) }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px } svg { width: 100%; height: auto; display: block }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif } .grid { stroke: var(--line) } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums } td, th { padding: 3px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
td:first-child, th:first-child, td.text { text-align: left; white-space: normal } .yes { color: #1f8a56 } .no { color: #c2452d; font-weight: 600 }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; margin: 8px 0 } .legend i { display: inline-block; width: 18px; height: 3px; margin-right: 6px; vertical-align: middle }
</style></head><body>
"#;

/// A curve on the figure.
struct Curve {
    name: String,
    colour: &'static str,
    is_paper: bool,
    /// Operations a second, microseconds, what it says when it is pointed at.
    points: Vec<(f64, f64, String)>,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn colour(way: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == way).map_or("#444", |(_, colour)| colour)
}

/// Median latency against throughput of each way, with one point for each number of clients; the
/// paper's beside the insertions.
fn curves(records: &[Record], workload: &str) -> Vec<Curve> {
    let rows: Vec<_> = rows(records).into_iter().filter(|(of, _)| of == workload).collect();
    let mut curves = Vec::new();
    for way in ways(records) {
        let point = |clients: usize| {
            let rate =
                median(records, &way, workload, clients, |record| record.operations_per_second)?.median;
            let p50 = median(records, &way, workload, clients, |record| record.micros_p50)?.median;
            let p99 = median(records, &way, workload, clients, |record| record.micros_p99)?.median;
            let said = format!("{way}, {clients} clients: {rate:.0}/s, p50 {p50:.1} µs, p99 {p99:.0} µs");
            (rate > 0.0 && p50 > 0.0).then_some((rate, p50, said))
        };
        let points: Vec<_> = rows.iter().filter_map(|(_, clients)| point(*clients)).collect();
        if !points.is_empty() {
            curves.push(Curve { colour: colour(&way), name: way, is_paper: false, points });
        }
    }
    // Alone they would be a figure of the paper's.
    if workload == "insert" && !curves.is_empty() {
        for (name, points) in paper::INSERT {
            let points = points
                .iter()
                .map(|(rate, micros)| (*rate, *micros, format!("{name}: {rate:.0}/s, {micros:.0} µs")))
                .collect();
            curves.push(Curve { name: name.to_owned(), colour: PAPER_COLOUR, is_paper: true, points });
        }
    }
    curves
}

/// Powers of ten around the values that are drawn.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (least, most) = values
        .fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)));
    #[allow(clippy::cast_possible_truncation, reason = "a few decades")]
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (low, high.max(low + 1))
}

fn figure(curves: &[Curve]) -> String {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    if all().next().is_none() {
        return String::new();
    }
    let (across, up) = (decades(all().map(|point| point.0)), decades(all().map(|point| point.1)));
    let place = |value: f64, (low, high): (i32, i32), from: f64, to: f64| {
        from + (to - from) * (value.log10() - f64::from(low)) / f64::from(high - low)
    };
    let x = |value: f64| place(value, across, EDGES[0], WIDTH - EDGES[1]);
    let y = |value: f64| place(value, up, HEIGHT - EDGES[3], EDGES[2]);
    let mut svg = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency against \
        throughput\">"
    );
    for power in across.0..=across.1 {
        let (value, at) = (10f64.powi(power), x(10f64.powi(power)));
        let (top, bottom) = (EDGES[2], HEIGHT - EDGES[3]);
        let _ =
            write!(svg, "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>");
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - EDGES[3] + 16.0,
            crate::peers::table::short(value)
        );
    }
    for power in up.0..=up.1 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
            EDGES[0],
            WIDTH - EDGES[1]
        );
        let label =
            if value >= 1000.0 { format!("{:.0} ms", value / 1000.0) } else { format!("{value} µs") };
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            EDGES[0] - 6.0,
            at + 4.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">operations a second; up: latency at the median</text>",
        WIDTH - EDGES[1],
        HEIGHT - 6.0
    );
    for curve in curves {
        let line: Vec<String> = curve
            .points
            .iter()
            .map(|(rate, micros, _)| format!("{:.1},{:.1}", x(*rate), y(*micros)))
            .collect();
        let dash = if curve.is_paper { " stroke-dasharray=\"5 5\"" } else { "" };
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash} points=\"{}\"/>",
            curve.colour,
            line.join(" ")
        );
        for (rate, micros, said) in &curve.points {
            let (x, y, fill) = (x(*rate), y(*micros), if curve.is_paper { "none" } else { curve.colour });
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{fill}\" stroke=\"{}\" \
                stroke-width=\"1.5\"><title>{}</title></circle>",
                curve.colour,
                escape(said)
            );
        }
    }
    svg.push_str("</svg><div class=\"legend\">");
    for curve in curves {
        let _ =
            write!(svg, "<span><i style=\"background:{}\"></i>{}</span>", curve.colour, escape(&curve.name));
    }
    svg.push_str("</div></figure>");
    svg
}

fn rates(records: &[Record]) -> String {
    let rows: Vec<_> =
        rows(records).into_iter().filter(|(workload, _)| workload.starts_with("ycsb")).collect();
    let ways: Vec<String> = ways(records)
        .into_iter()
        .filter(|way| {
            rows.iter().any(|(workload, clients)| {
                median(records, way, workload, *clients, |record| record.micros_p50).is_some()
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<h2>YCSB, thousands of operations a second</h2><div class=\"scroll\"><table><tr><th>workload, \
        clients</th>",
    );
    for way in ways.iter().map(String::as_str).chain(["paper: strong", "paper: weak", "paper: SplitFT"]) {
        let _ = write!(text, "<th>{}</th>", escape(way));
    }
    for (workload, clients) in &rows {
        let _ = write!(text, "</tr><tr><td>{workload}, {clients}</td>");
        for way in &ways {
            let rate = median(records, way, workload, *clients, |record| record.operations_per_second / 1e3);
            let _ = write!(
                text,
                "<td>{}</td>",
                rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1}", rate.median))
            );
        }
        let of_paper = paper::YCSB.iter().find(|(name, _)| name == workload);
        for nth in 0..3 {
            let _ = write!(
                text,
                "<td>{}</td>",
                of_paper.map_or_else(|| "-".to_owned(), |(_, rates)| format!("{:.0}", rates[nth]))
            );
        }
    }
    text + "</tr></table></div>"
}

fn bars(records: &[Record]) -> String {
    let mut text = String::from("<h2>What it is to reach</h2><div class=\"scroll\"><table>");
    for bar in table::bars(records) {
        let (class, word) = if bar.is_reached() { ("yes", "reached") } else { ("no", "missed") };
        let _ = write!(
            text,
            "<tr><td class=\"text\">{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(&bar.text())
        );
    }
    text + "</table></div>"
}

/// The page. `about` says machine, command and whatever else it was measured with, a line each.
pub fn page(about: &[String], records: &[Record]) -> String {
    let mut text = format!("{HEAD}<h1>The near-compute log, measured</h1>");
    for line in about {
        let _ = write!(text, "<p>{}</p>", escape(line));
    }
    let _ =
        write!(text, "<h2>Insertions: latency against throughput</h2>{}", figure(&curves(records, "insert")));
    text.push_str(
        "<p>One point for each number of clients. Dashed: the paper's graph (SplitFT, RocksDB on CephFS; 8 \
        hosts, 25 Gb RDMA), read off it, on other machines.</p>",
    );
    text.push_str(&bars(records));
    text.push_str(&rates(records));
    text.push_str("<h2>What an acknowledged write survives</h2><div class=\"scroll\"><table>");
    for way in ways(records) {
        let survives =
            records.iter().find(|record| record.way == way).map_or("", |record| record.survives.as_str());
        let _ =
            write!(text, "<tr><td>{}</td><td class=\"text\">{}</td></tr>", escape(&way), escape(survives));
    }
    let recovery: Vec<String> =
        paper::RECOVERY.iter().map(|(name, seconds)| format!("{name} {seconds} s")).collect();
    let _ = writeln!(
        text,
        "</table></div><h2>All figures</h2><div class=\"scroll\"><pre>{}</pre></div><p>The paper's recovery \
        of RocksDB with a log of 60 MB, read off its graph: {}.</p></body></html>",
        escape(&table::text(records)),
        recovery.join(", ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::near::record::tests::record;
    use crate::near::ways::Way;

    #[test]
    fn the_page_draws_ours_and_the_papers_and_loads_nothing() {
        let records = [
            record("near-tcp", "insert", 1, 1, 9000.0, 76.0),
            record("near-tcp", "insert", 64, 1, 21000.0, 1200.0),
            record("near-tcp", "ycsb-a", 16, 1, 30_000.0, 300.0),
        ];
        let page = page(&["a <run>".to_owned()], &records);
        assert!(
            page.contains("a &lt;run&gt;")
                && page.contains("near-tcp, 64 clients")
                && page.contains("SplitFT over RDMA"),
            "{page}"
        );
        assert_eq!(page.matches("<circle").count(), 2 + 4);
        assert!(page.contains("<td>30.0</td>") && page.contains("<td>82</td>"));
        for outside in ["src=", "href=", "@import", "url(", "<script"] {
            assert!(!page.contains(outside), "{outside} would need the network");
        }
        assert!(!super::page(&[], &[]).contains("<svg"));
    }

    #[test]
    fn every_way_has_a_colour() {
        assert!(Way::ALL.iter().all(|way| COLOURS.iter().any(|(name, _)| *name == way.name())));
    }
}
