use std::collections::BTreeSet;

use super::{TOTALS, scaled};
use crate::db::{Db, Unit};

fn filled(name: &str) -> Db {
    let db = Db::builder(format!("mem://metrics-{name}")).open().wait().unwrap();
    let orders = db.default_keyspace();
    for number in 0..100_u32 {
        orders.put(number.to_be_bytes(), b"an order").wait().unwrap();
    }
    db.flush().wait().unwrap();
    db
}

#[test]
fn every_line_is_one_of_the_format() {
    let db = filled("1");
    let text = db.metrics_text("or\"ders\\\n");
    let (mut typed, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(typed.insert(name), "{name} is said twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, value) = rest.rsplit_once("} ").unwrap();
            assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')), "{line}");
            assert!(typed.contains(name), "{line} comes before its type");
            assert!(labels.starts_with(r#"database="or\"ders\\\n""#), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert((name.to_owned(), labels.to_owned())), "{line} is said twice");
        }
    }
    assert!(text.contains("tombolo_write_delay_seconds_total{"));
    assert!(text.contains("tombolo_tables{") && text.contains(",level=\"0\"} 1\n"), "{text}");
    assert!(text.contains("tombolo_object_requests_total{"));
}

#[test]
fn each_total_is_a_property() {
    let db = filled("2");
    let names: BTreeSet<_> = db.properties().iter().map(|property| property.name).collect();
    for total in TOTALS.iter().filter(|total| !total.starts_with("flash-")) {
        assert!(names.contains(total), "{total} is no property");
    }
}

#[test]
fn what_grew_is_a_total() {
    let db = filled("3");
    let before = db.properties();
    let orders = db.default_keyspace();
    for round in 0..3_u32 {
        orders.put(round.to_be_bytes(), b"another").wait().unwrap();
        orders.get(round.to_be_bytes()).wait().unwrap();
        db.flush().wait().unwrap();
    }
    for (before, after) in before.iter().zip(db.properties()) {
        assert_eq!(before.name, after.name);
        if after.is_total() {
            assert!(before.value.number() <= after.value.number(), "{} went back", after.name);
        }
    }
    let writes = db.property("writes").unwrap();
    assert!(writes.is_total() && writes.metric_name() == "tombolo_writes_total");
}

#[test]
fn numbers_are_scaled_without_a_loss() {
    assert_eq!(scaled(1_000_000_001, Unit::Nanoseconds), "1.000000001");
    assert_eq!(scaled(u64::MAX, Unit::Nanoseconds), "18446744073.709551615");
    assert_eq!(scaled(1250, Unit::Thousandths), "1.250");
    assert_eq!(scaled(7, Unit::Bytes), "7");
}
