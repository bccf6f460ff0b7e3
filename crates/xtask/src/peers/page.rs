//! The result as one HTML file that needs no network: the data in it, a small script that draws.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::record::Record;
use super::rows::Measure;
use super::statistics::Spread;
use super::verdict::Verdict;

/// What the page says besides the figures.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// One line below the title.
    pub line: String,
    /// Rounds.
    pub rounds: u32,
    /// Each engine's version.
    pub versions: BTreeMap<String, String>,
    /// Names and texts: machine, command, settings.
    pub facts: Vec<(String, String)>,
}

const PAGE: &str = include_str!("page.html");
/// Where the data goes.
const MARK: &str = "__DATA__";

/// The page.
pub fn page(about: &About, engines: &[String], records: &[Record], verdicts: &[Verdict]) -> String {
    let loads = records.iter().map(|record| record.load);
    let (least, most) =
        loads.fold((f64::INFINITY, 0.0f64), |(least, most), load| (least.min(load), most.max(load)));
    let data = json!({
        "about": about.line,
        "rounds": about.rounds,
        "load": format!("{:.1} to {most:.1}", if least.is_finite() { least } else { 0.0 }),
        "engines": engines,
        "versions": about.versions,
        "facts": about.facts,
        "records": records,
        "verdicts": verdicts.iter().map(verdict).collect::<Vec<_>>(),
    });
    // Nothing in the data ends the element that holds it.
    PAGE.replace(MARK, &data.to_string().replace("</", "<\\/"))
}

fn verdict(verdict: &Verdict) -> Value {
    let spread = |spread: Option<Spread>| {
        spread.map(|Spread { median, least, most, interval }| {
            json!({
                "median": median, "least": least, "most": most, "interval": interval
            })
        })
    };
    json!({
        "workload": verdict.key.workload,
        "shape": verdict.key.shape,
        "threads": verdict.key.threads,
        "measure": match verdict.bar.map(|bar| bar.measure) {
            Some(Measure::P99) => "p99",
            _ => "rate",
        },
        "bar_rocksdb": verdict.bar.and_then(|bar| bar.rocksdb),
        "bar_peer": verdict.bar.map(|bar| bar.peer),
        "to_rocksdb": spread(verdict.to_rocksdb),
        "peer": verdict.to_peer.map(|(engine, _)| engine),
        "to_peer": spread(verdict.to_peer.map(|(_, ratio)| ratio)),
        "reached": verdict.is_reached(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::record::Key;
    use crate::peers::rows::{self, ENGINES};
    use crate::peers::verdict::judge;
    use crate::peers::verdict::tests::record;

    fn data(page: &str) -> Value {
        let begin = page.find("type=\"application/json\">").unwrap() + "type=\"application/json\">".len();
        let end = begin + page[begin..].find("</script>").unwrap();
        serde_json::from_str(&page[begin..end]).unwrap()
    }

    #[test]
    fn the_page_holds_its_data_and_loads_nothing() {
        let key = Key::new("readrandom", rows::NATURAL, 1);
        let mut records =
            vec![record("tombolo", &key, 1, 300.0, 1.0), record("rocksdb", &key, 1, 100.0, 2.0)];
        // A text that would end the script's element, were it not escaped.
        records[1].figures.first_error = Some("</script><b>".to_owned());
        let about = About { line: "a run".to_owned(), rounds: 1, ..About::default() };
        let engines: Vec<String> = ["tombolo", "rocksdb"].map(str::to_owned).into();
        let page = page(&about, &engines, &records, &judge(&records));
        let data = data(&page);
        assert_eq!(data["records"][1]["first_error"], "</script><b>");
        assert_eq!(
            (&data["verdicts"][0]["to_rocksdb"]["median"], &data["verdicts"][0]["reached"]),
            (&json!(3.0), &json!(true))
        );
        for outside in ["src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "{outside} would need the network");
        }
        assert!(!page.contains(MARK));
    }

    #[test]
    fn every_engine_has_a_colour_in_both_themes() {
        for engine in ENGINES {
            assert_eq!(PAGE.matches(&format!("--{engine}:#")).count(), 3, "{engine}");
        }
    }
}
