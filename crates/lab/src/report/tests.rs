use tombolo_format::trace::{Event, Header, TracedKeys};

use super::*;
use crate::analysis::{Analyser, Bounds};
use crate::comparison::compare;

fn seen(events: u32, key_of: impl Fn(u32) -> Vec<u8>) -> Analysis {
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: "a <b>".to_owned(),
    };
    let mut analyser = Analyser::new(header, Bounds::default());
    for number in 0..events {
        let key = key_of(number);
        let asked = if number % 5 == 0 { Asked::Put } else { Asked::Get };
        let event =
            Event { value_bytes: number % 90, ..Event::new(u64::from(number) * 3_000_000, asked, 0, &key) };
        analyser.add(&event);
    }
    analyser.finish()
}

#[test]
fn a_page_is_whole_and_fetches_nothing() {
    let seen = seen(3000, |number| format!("<script>{}", number % 700).into_bytes());
    let report = report(&seen, "orders & more");
    assert!(report.html.starts_with("<!doctype html>") && report.html.ends_with("</html>\n"));
    for foreign in ["http:", "https:", "src=", "@import", "<script>", "NaN", "inf"] {
        assert!(!report.html.contains(foreign), "{foreign}");
    }
    for there in ["orders &amp; more", "a &lt;b&gt;", "prefers-color-scheme:dark", "&lt;script&gt;"] {
        assert!(report.html.contains(there), "{there}");
    }
    assert!(report.html.matches("<svg").count() >= 8 && report.figures.len() >= 8);
    for (name, csv) in &report.figures {
        assert!(csv.lines().count() > 1 || name.contains("reuse"), "{name} has no numbers");
    }
}

#[test]
fn nothing_at_all_is_a_page_too() {
    let seen = seen(0, |_| Vec::new());
    assert!(!report(&seen, "empty").html.contains("NaN"));
    let one = self::seen(1, |_| Vec::new());
    assert!(!report(&one, "one").html.contains("NaN"));
}

#[test]
fn two_workloads_lie_side_by_side() {
    let one = seen(2000, |number| (number % 100).to_be_bytes().to_vec());
    let other = seen(2000, |number| (number % 1000).to_be_bytes().to_vec());
    let compared = compare(&one, &other);
    let page = comparison((&one, "first"), (&other, "second"), &compared).html;
    assert!(page.contains("first and second") && page.contains("distinct keys"));
    assert!(compare(&one, &one).iter().all(|compared| compared.distance < 1e-9));
}
