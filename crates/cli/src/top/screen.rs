//! One screen, drawn from what was sampled.

use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::history::History;
use crate::text;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, history: &History, paused: bool) {
    let rows = [
        Constraint::Length(3),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Min(5),
        Constraint::Length(5),
    ];
    let [head, rates, middle, levels, curve] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, head, history, paused);
    let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(rates);
    pairs(frame, left, "Work", &work(history));
    pairs(frame, right, "Memory and cache", &memory(history));
    let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(middle);
    pairs(frame, left, "Store: requests, latency, price", &store(history));
    pairs(frame, right, "Log, readers, background", &log(history));
    draw_levels(frame, levels, history);
    let points: Vec<u64> = newest(history, curve.width);
    let most = points.iter().max().copied().unwrap_or(0);
    let title = format!(" Writes a second, most {} ", text::count(most));
    frame.render_widget(Sparkline::default().block(Block::bordered().title(title)).data(points), curve);
}

/// One screen as text.
pub fn printed(history: &History, (columns, lines): (u16, u16)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(|frame| draw(frame, history, false));
    let buffer = terminal.backend().buffer().clone();
    let line = |row: u16| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..lines).map(|row| line(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn newest(history: &History, width: u16) -> Vec<u64> {
    let room = usize::from(width.saturating_sub(2));
    history.writes.iter().rev().take(room).rev().copied().collect()
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, history: &History, paused: bool) {
    let now = &history.now;
    let by = if now.by.is_empty() {
        "a look: nobody has it open".to_owned()
    } else {
        format!("as {} says", now.by)
    };
    let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let trouble = [
        history.trouble.as_deref().unwrap_or_default(),
        now.text("failure"),
        now.text("background-error"),
        now.text("flash-trouble"),
    ];
    let state = match trouble.iter().find(|text| !text.is_empty()) {
        Some(trouble) => Line::from(Span::styled((*trouble).to_owned(), alarm)),
        None => Line::from("no trouble"),
    };
    let title = format!(" tombolo top: {} {}", history.name, if paused { "(paused) " } else { "" });
    let by = Line::from(by).right_aligned();
    frame.render_widget(Paragraph::new(state).block(Block::bordered().title(title).title_bottom(by)), area);
}

type Pair = (&'static str, String);

fn pairs(frame: &mut Frame<'_>, area: Rect, title: &str, pairs: &[Pair]) {
    let rows = pairs.iter().map(|(name, value)| Row::new([(*name).to_owned(), value.clone()]));
    let table = Table::new(rows, [Constraint::Length(18), Constraint::Min(10)]);
    frame.render_widget(table.block(Block::bordered().title(format!(" {title} "))), area);
}

fn a_second(history: &History, name: &str) -> String {
    format!("{}/s", text::bytes(history.rate(name)))
}

fn work(history: &History) -> Vec<Pair> {
    let now = &history.now;
    let stall = match now.text("write-stall") {
        "" => "none".to_owned(),
        reason => format!("{reason}, at {}/s", text::bytes(now.number("write-rate-max"))),
    };
    let amplification = now.number("write-amplification");
    vec![
        (
            "writes",
            format!(
                "{}/s, {} in all",
                text::count(history.rate("writes")),
                text::count(now.number("writes"))
            ),
        ),
        (
            "in flight",
            format!(
                "{} writes, {} wait for room",
                now.number("writes-in-flight"),
                now.number("writes-waiting")
            ),
        ),
        ("stall", stall),
        ("flushed", format!("{}, {} flushes", a_second(history, "flushed-bytes"), now.number("flushes"))),
        (
            "compacted",
            format!(
                "{}, {} run",
                a_second(history, "compacted-bytes-written"),
                now.number("compactions-running")
            ),
        ),
        ("to compact", text::bytes(now.number("compaction-bytes-pending"))),
        ("amplification", format!("{}.{:02}", amplification / 1000, amplification % 1000 / 10)),
    ]
}

fn hits(history: &History, hits: &str, misses: &str) -> String {
    match history.hits(hits, misses) {
        Some(percent) => {
            format!("{percent} % of {}/s", text::count(history.rate(hits) + history.rate(misses)))
        }
        None => "nobody reads".to_owned(),
    }
}

fn memory(history: &History) -> Vec<Pair> {
    let bytes = |name: &str| text::bytes(history.now.number(name));
    vec![
        ("memory", format!("{} of {}", bytes("memory-used"), bytes("memory-budget"))),
        (
            "memtables",
            format!("{}, {} wait", bytes("memory-memtables"), history.now.number("memtables-waiting")),
        ),
        ("cache", bytes("memory-cache")),
        ("cache hits", hits(history, "cache-hits", "cache-misses")),
        ("rows", format!("{} in {}", history.now.number("cache-rows"), bytes("cache-row-bytes"))),
        ("flash", format!("{} of {}", bytes("flash-bytes"), bytes("flash-bytes-max"))),
        ("flash hits", hits(history, "flash-hits", "flash-misses")),
    ]
}

fn store(history: &History) -> Vec<Pair> {
    let now = &history.now;
    let time = |name: &str| text::duration(std::time::Duration::from_nanos(now.number(name)));
    let latency = match now.number("store-requests-max") {
        0 => "a store on this host".to_owned(),
        _ => format!("{} median, {} p99", time("store-latency-p50"), time("store-latency-p99")),
    };
    let price = match history.dollars_an_hour() {
        Some(dollars) => format!("${dollars:.4} an hour as now"),
        None => "none by the request".to_owned(),
    };
    let each = |name: &str| {
        format!("{}/s, {} in all", text::count(history.rate(name)), text::count(now.number(name)))
    };
    vec![
        ("writes, lists", each("requests-class-a")),
        ("reads", each("requests-class-b")),
        ("failed", each("requests-failed")),
        ("sent", a_second(history, "request-bytes-sent")),
        ("received", a_second(history, "request-bytes-received")),
        ("latency", latency),
        ("price", price),
    ]
}

fn log(history: &History) -> Vec<Pair> {
    let now = &history.now;
    let age = |name: &str| text::duration(std::time::Duration::from_nanos(now.number(name)));
    vec![
        ("log", format!("{} not freed", text::bytes(now.number("log-bytes")))),
        (
            "sequence",
            format!(
                "{} ({}/s)",
                text::count(now.number("last-sequence")),
                text::count(history.rate("last-sequence"))
            ),
        ),
        ("epoch", now.number("epoch").to_string()),
        ("snapshots", format!("{}, oldest {}", now.number("snapshots"), age("snapshot-age-max"))),
        ("readers behind", format!("{}, oldest {}", now.number("readers-behind"), age("reader-age-max"))),
        ("delayed", age("write-delay")),
        ("keys", format!("about {}", text::count(now.number("keys-estimated")))),
    ]
}

fn draw_levels(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let (tables, bytes) = (history.now.levels("tables"), history.now.levels("table-bytes"));
    let (read, written) = (history.now.levels("level-bytes-read"), history.now.levels("level-bytes-written"));
    let of = |all: &[u64], level: usize| all.get(level).copied().unwrap_or(0);
    let rows = (0..tables.len()).map(|level| {
        Row::new([
            level.to_string(),
            text::count(of(&tables, level)),
            text::bytes(of(&bytes, level)),
            text::bytes(of(&read, level)),
            text::bytes(of(&written, level)),
        ])
    });
    let head = Row::new(["level", "tables", "bytes", "merged", "written"]).style(Modifier::BOLD);
    let table = Table::new(
        rows,
        [
            Constraint::Length(6),
            Constraint::Length(10),
            Constraint::Length(14),
            Constraint::Length(14),
            Constraint::Min(10),
        ],
    );
    frame.render_widget(table.header(head).block(Block::bordered().title(" Levels ")), area);
}
