//! An analysis as one page of HTML, with its figures as SVG and as CSV. Nothing is fetched.

mod chart;

use std::fmt::Write as _;

use tombolo_format::trace::Asked;
use tombolo_workload::fit::{fit_sine, fit_sizes};
use tombolo_workload::sketch::Counts;

use self::chart::{Chart, Line, heat};
use crate::analysis::{Analysis, KeyspaceAnalysis, SampledKey};
use crate::comparison::Compared;

/// A page, and each of its figures as a table: name and text.
#[derive(Clone, Debug)]
pub struct Report {
    /// The page.
    pub html: String,
    /// Name and CSV of each figure.
    pub figures: Vec<(String, String)>,
}

const STYLE: &str = "\
:root{--back:#fbfbf9;--card:#fff;--ink:#1c2430;--dim:#667085;--line:#e3e5e8;--a:#2563eb;--b:#e8590c;--c:#12915f;\
--d:#9333ea;--hot:37,99,235}
@media(prefers-color-scheme:dark){:root{--back:#14171c;--card:#1c2027;--ink:#e8eaed;--dim:#98a2b3;--line:#323843;\
--a:#7aa7ff;--b:#ff9e64;--c:#4fd1a1;--d:#c79bff;--hot:122,167,255}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 20px 80px}h1{font-size:28px;margin:0 0 4px}
h2{font-size:21px;margin:40px 0 12px;padding-top:16px;border-top:1px solid var(--line)}h3{font-size:15px;margin:0 0 8px}
p.dim,.dim{color:var(--dim)}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}
.card,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:0}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.card span{color:var(--dim);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));gap:16px}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.axis{stroke:var(--line)}table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
td,th{text-align:left;padding:4px 8px;border-bottom:1px solid var(--line)}td.n,th.n{text-align:right}
code{font:12px ui-monospace,monospace;word-break:break-all}figcaption{color:var(--dim);font-size:13px;margin-top:8px}";

/// Text in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number as people read it.
#[must_use]
pub fn shown(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size >= 1e12 => format!("{:.2} T", number / 1e12),
        _ if size >= 1e9 => format!("{:.2} G", number / 1e9),
        _ if size >= 1e6 => format!("{:.2} M", number / 1e6),
        _ if size >= 1e4 => format!("{:.1} k", number / 1e3),
        _ if size >= 100.0 || (number - number.round()).abs() < 1e-9 => format!("{number:.0}"),
        _ if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A key as people are shown it.
fn key_text(key: &[u8]) -> String {
    let text = key[..key.len().min(48)].escape_ascii().to_string();
    if key.len() > 48 { format!("{text}…") } else { text }
}

#[derive(Default)]
struct Page {
    body: String,
    figures: Vec<(String, String)>,
}

impl Page {
    fn card(&mut self, what: &str, value: &str) {
        let _ =
            write!(self.body, "<div class=card><b>{}</b><span>{}</span></div>", escape(value), escape(what));
    }

    fn chart(&mut self, name: &str, title: &str, chart: &Chart, caption: &str) {
        let (svg, csv) = chart.draw();
        let _ = write!(
            self.body,
            "<figure><h3>{}</h3>{svg}<figcaption>{}</figcaption></figure>",
            escape(title),
            escape(caption)
        );
        self.figures.push((name.to_owned(), csv));
    }

    fn table(&mut self, title: &str, head: &[&str], rows: &[Vec<String>]) {
        let _ = write!(self.body, "<figure><h3>{}</h3><table><tr>", escape(title));
        for (index, name) in head.iter().enumerate() {
            let _ = write!(self.body, "<th{}>{}</th>", if index > 0 { " class=n" } else { "" }, escape(name));
        }
        self.body.push_str("</tr>");
        for row in rows {
            self.body.push_str("<tr>");
            for (index, cell) in row.iter().enumerate() {
                let text = escape(cell);
                let _ = match index {
                    0 => write!(self.body, "<td><code>{text}</code></td>"),
                    _ => write!(self.body, "<td class=n>{text}</td>"),
                };
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</table></figure>");
    }

    fn finish(self, title: &str) -> Report {
        let html = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport \
            content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style>\
            <main>{}</main></html>\n",
            self.body,
            title = escape(title),
        );
        Report { html, figures: self.figures }
    }
}

/// The page of an analysis.
#[must_use]
pub fn report(seen: &Analysis, title: &str) -> Report {
    let mut page = Page::default();
    let _ = write!(
        page.body,
        "<h1>{}</h1><p class=dim>{} · keys are {}{}</p>",
        escape(title),
        escape(&seen.header.origin),
        seen.header.keys.name(),
        match seen.header.sampled_one_in {
            1 => String::new(),
            one_in => format!(" · one of {one_in} keys was recorded"),
        }
    );
    overview(&mut page, seen);
    for keyspace in &seen.keyspaces {
        keyspace_section(&mut page, seen, keyspace);
    }
    page.finish(title)
}

fn overview(page: &mut Page, seen: &Analysis) {
    page.body.push_str("<div class=cards>");
    page.card("events", &shown(seen.events as f64));
    page.card("seconds", &shown(seen.seconds()));
    page.card("events a second", &shown(seen.events as f64 / seen.seconds().max(1e-9)));
    page.card("keyspaces", &seen.keyspaces.len().to_string());
    page.card("distinct keys", &shown(seen.keyspaces.iter().map(|one| one.distinct_keys).sum()));
    page.card("keys in the sample", &percent(seen.sampled));
    page.body.push_str("</div>");
    if seen.backwards > 0 {
        let _ = write!(
            page.body,
            "<p class=dim>{} events are older than the one before them: threads were mixed, or the clock went \
            back.</p>",
            seen.backwards
        );
    }
    page.body.push_str("<div class=grid>");
    let curve = seen.miss_ratios();
    let points =
        curve.iter().filter(|point| point.size > 0).map(|point| (point.size as f64, point.ratio * 100.0));
    let caption = match seen.reuse.rate() {
        rate if rate < 1.0 => format!(
            "Keys with their values. A sample of {} of the keys; the error of a ratio is about {:.2} points.",
            percent(rate),
            seen.reuse.error() * 100.0
        ),
        _ => "Keys with their values; exact.".to_owned(),
    };
    let chart = Chart::new("bytes of an LRU cache", "misses, %").log_x().line("misses", points.collect());
    page.chart("miss-ratios", "What a cache would miss", &chart, &caption);
    let mut sum = 0.0;
    let reuse = seen.reuse.distances().into_iter().map(|(distance, share)| {
        sum += share * 100.0;
        (distance.max(1) as f64, sum)
    });
    let chart =
        Chart::new("distinct keys in between", "accesses, %").log_x().line("accesses", reuse.collect());
    page.chart(
        "reuse-distances",
        "How soon keys come again",
        &chart,
        "Accesses of keys that came before, by distance.",
    );
    page.body.push_str("</div>");
}

/// Shares up to each number, in percent.
fn shares(counts: &Counts) -> Vec<(f64, f64)> {
    let (whole, mut sum) = (counts.count().max(1) as f64, 0);
    counts
        .iter()
        .map(|(number, times)| {
            sum += times;
            (number.max(1) as f64, sum as f64 * 100.0 / whole)
        })
        .collect()
}

fn fitted_caption(counts: &Counts) -> String {
    let fitted = fit_sizes(counts);
    let tried: Vec<String> =
        fitted.tried.iter().map(|(family, distance)| format!("{} {distance:.3}", family.name())).collect();
    format!(
        "{} ± {}, from {} to {}. Nearest: {}, distance {:.3} ({}).",
        shown(counts.mean()),
        shown(counts.deviation()),
        counts.least(),
        counts.most(),
        fitted.family.name(),
        fitted.distance,
        tried.join(", ")
    )
}

fn keyspace_section(page: &mut Page, seen: &Analysis, keyspace: &KeyspaceAnalysis) {
    let name = &keyspace.name;
    let file = |what: &str| format!("k{}-{what}", keyspace.id);
    let _ = write!(page.body, "<h2>{}</h2><div class=cards>", escape(name));
    let whole = keyspace.events().max(1) as f64;
    for asked in Asked::ALL.into_iter().filter(|asked| keyspace.of(*asked) > 0) {
        page.card(asked.name(), &percent(keyspace.of(asked) as f64 / whole));
    }
    page.card("distinct keys", &shown(keyspace.distinct_keys));
    page.card("of them have half the accesses", &percent(keyspace.hot_set(0.5)));
    if keyspace.found[0] + keyspace.found[1] > 0 {
        let told = (keyspace.found[0] + keyspace.found[1]) as f64;
        page.card("reads that find nothing", &percent(keyspace.found[1] as f64 / told));
    }
    page.body.push_str("</div><div class=grid>");
    let rates = |series: &tombolo_workload::sketch::Series| series.rates().collect::<Vec<_>>();
    let (reads, writes) = (rates(&keyspace.reads), rates(&keyspace.writes));
    let sine = fit_sine(if reads.len() >= writes.len() { &reads } else { &writes });
    let mut chart = Chart::new("seconds", "operations a second");
    if !reads.is_empty() {
        chart = chart.line("reads", reads);
    }
    if !writes.is_empty() {
        chart = chart.line("writes", writes);
    }
    let caption = match sine {
        Some(sine) => format!(
            "{:.1} · sin({:.6} · t + {:.2}) + {:.1} explains {} of the variance.",
            sine.a,
            sine.b,
            sine.c,
            sine.d,
            percent(sine.explained.max(0.0))
        ),
        None => "No sine is fitted: the trace is short, or the rate does not change.".to_owned(),
    };
    page.chart(&file("rate"), "Rate over time", &chart, &caption);
    let points = keyspace.hotness().into_iter().map(|(keys, share)| (keys * 100.0, share * 100.0)).collect();
    let chart = Chart::new("hottest keys, %", "accesses, %").line("accesses", points);
    page.chart(
        &file("hotness"),
        "How much the hottest keys have",
        &chart,
        "A straight line would be uniform.",
    );
    let mut chart = Chart::new("accesses of a key", "keys, %").log_x();
    for (what, counts) in [
        ("reads", keyspace.access_counts(|key| key.reads.into())),
        ("writes", keyspace.access_counts(|key| key.writes.into())),
        ("scans", keyspace.access_counts(|key| key.scans.into())),
    ] {
        if counts.count() > 0 {
            chart = chart.line(what, shares(&counts));
        }
    }
    let accesses = keyspace.access_counts(SampledKey::accesses);
    page.chart(&file("access-counts"), "How often keys are accessed", &chart, &fitted_caption(&accesses));
    for (what, title, counts) in [
        ("key-bytes", "Sizes of keys", &keyspace.key_bytes),
        ("value-bytes", "Sizes of values that are written", &keyspace.value_bytes),
        ("read-bytes", "Sizes of values that are read", &keyspace.read_bytes),
        ("scan-entries", "Entries of scans", &keyspace.scan_entries),
    ] {
        if counts.count() > 0 {
            let unit = if what == "scan-entries" { "entries" } else { "bytes" };
            let chart = Chart::new(unit, "up to there, %").log_x().line(what, shares(counts));
            page.chart(&file(what), title, &chart, &fitted_caption(counts));
        }
    }
    let slot_seconds = seen.slot_ns as f64 / 1e9;
    let points = keyspace.distinct_over_time.iter().enumerate();
    let points = points.map(|(slot, keys)| ((slot + 1) as f64 * slot_seconds, *keys)).collect();
    let chart = Chart::new("seconds", "distinct keys").line("distinct keys", points);
    page.chart(
        &file("distinct-keys"),
        "Keys seen so far",
        &chart,
        "Within 0.8 %, or exact where all keys are in the sample.",
    );
    let map = keyspace.heat_map(96);
    let (svg, csv) = heat(&map, slot_seconds);
    let _ = write!(
        page.body,
        "<figure><h3>Where and when</h3>{svg}<figcaption>Ranges of equally many keys, from the first (bottom) to \
        the last; darker is more.</figcaption></figure>"
    );
    page.figures.push((file("heat-map"), csv));
    page.body.push_str("</div><div class=grid style=margin-top:16px>");
    tables(page, keyspace);
    page.body.push_str("</div>");
}

fn tables(page: &mut Page, keyspace: &KeyspaceAnalysis) {
    let whole = keyspace.events().max(1) as f64;
    let rows: Vec<Vec<String>> = keyspace
        .top
        .iter()
        .filter(|heavy| heavy.count > 2 * heavy.error)
        .take(10)
        .map(|heavy| {
            vec![key_text(&heavy.item), shown(heavy.count as f64), percent(heavy.count as f64 / whole)]
        })
        .collect();
    page.table("The most frequent keys", &["key", "accesses", "share"], &rows);
    let mut rows = Vec::new();
    for bytes in [1, 2, 3, 4, 6, 8, 12, 16] {
        let prefixes = keyspace.prefixes(bytes);
        if let Some((hot, share)) = prefixes.top.first() {
            rows.push(vec![
                format!("{bytes} bytes"),
                shown(prefixes.distinct as f64),
                key_text(hot),
                percent(*share),
            ]);
        }
    }
    page.table("Prefixes", &["length", "distinct", "hottest", "its share"], &rows);
    let correlations = keyspace.correlations();
    let rows: Vec<Vec<String>> =
        correlations.iter().map(|(what, value)| vec![(*what).to_owned(), format!("{value:.3}")]).collect();
    page.table("Correlations over keys", &["of", "Pearson"], &rows);
    let mut rows = Vec::new();
    for (before, counts) in Asked::ALL.iter().zip(&keyspace.follows) {
        let sum: u64 = counts.iter().sum();
        for (after, count) in Asked::ALL.iter().zip(counts).filter(|(_, count)| **count > 0) {
            let share = *count as f64 / sum as f64;
            rows.push(vec![
                format!("{}, then {}", before.name(), after.name()),
                shown(*count as f64),
                percent(share),
            ]);
        }
    }
    page.table("What follows on a key", &["operations", "times", "of the first"], &rows);
    let rows: Vec<Vec<String>> = keyspace
        .latencies
        .iter()
        .map(|(asked, latencies)| {
            let at = |percent: f64| format!("{:.1} µs", latencies.percentile(percent).as_secs_f64() * 1e6);
            vec![asked.name().to_owned(), at(50.0), at(99.0), at(99.9), at(99.99)]
        })
        .collect();
    if !rows.is_empty() {
        page.table("Latencies", &["operation", "p50", "p99", "p99.9", "p99.99"], &rows);
    }
}

/// The page of two workloads side by side.
#[must_use]
pub fn comparison(first: (&Analysis, &str), second: (&Analysis, &str), compared: &[Compared]) -> Report {
    let mut page = Page::default();
    let title = format!("{} and {}", first.1, second.1);
    let _ = write!(page.body, "<h1>{}</h1>", escape(&title));
    let rows: Vec<Vec<String>> = compared
        .iter()
        .map(|one| {
            let distance = format!("{:.3}", one.distance);
            vec![one.what.clone(), shown(one.first), shown(one.second), distance]
        })
        .collect();
    page.table("How far they are apart", &["of", first.1, second.1, "distance"], &rows);
    page.body.push_str("<div class=grid style=margin-top:16px>");
    let curve = |seen: &Analysis| -> Line {
        let points = seen.reuse.by_items().into_iter().filter(|point| point.size > 0);
        points.map(|point| (point.size as f64, point.ratio * 100.0)).collect()
    };
    let chart = Chart::new("keys of an LRU cache", "misses, %").log_x();
    let chart = chart.line(first.1, curve(first.0)).line(second.1, curve(second.0));
    page.chart("miss-ratios", "What a cache would miss", &chart, "");
    for (one, other) in first.0.keyspaces.iter().zip(&second.0.keyspaces) {
        for (what, of) in [
            ("hotness", KeyspaceAnalysis::hotness as fn(&KeyspaceAnalysis) -> Line),
            ("value-bytes", |keyspace: &KeyspaceAnalysis| shares(&keyspace.value_bytes)),
        ] {
            let (one_line, other_line) = (of(one), of(other));
            // Nothing was written: no figure.
            if one_line.is_empty() && other_line.is_empty() {
                continue;
            }
            let chart = Chart::new(what, "share").line(first.1, one_line).line(second.1, other_line);
            page.chart(&format!("k{}-{what}", one.id), &format!("{}: {what}", one.name), &chart, "");
        }
    }
    page.body.push_str("</div>");
    page.finish(&title)
}

#[cfg(test)]
mod tests;
