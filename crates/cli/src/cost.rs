//! Requests for objects, and what they would cost, for people and for programs.

use serde_json::{Value, json};
use tombolo::Requests;
use tombolo_storage::price::{PriceClass, S3_STANDARD};

use crate::text;

/// Requests by purpose and kind.
pub fn requests_json(requests: &Requests) -> Value {
    let counted = requests.counted.iter().map(|one| {
        json!({
            "purpose": one.purpose.name(), "kind": one.kind.name(), "requests": one.requests,
            "failed": one.failed,
            "bytes_sent": one.bytes_sent, "bytes_received": one.bytes_received,
        })
    });
    json!(counted.collect::<Vec<_>>())
}

/// What they would cost; null where nobody charges for them.
pub fn cost_json(requests: &Requests) -> Value {
    if !requests.go_over_network {
        return Value::Null;
    }
    let estimate = S3_STANDARD.estimate(&requests.counted, requests.since_open, requests.space_bytes);
    json!({
        "prices": {
            "service": S3_STANDARD.service, "as_of": S3_STANDARD.as_of,
            "source": S3_STANDARD.source, "currency": "USD"
        },
        "seconds": requests.since_open.as_secs_f64(), "space_bytes": requests.space_bytes,
        "requests_class_a": estimate.class_a, "requests_class_b": estimate.class_b,
        "requests_free": estimate.free,
        "requests": estimate.requests, "requests_hour": estimate.requests_hour,
        "read_from_outside_hour": estimate.read_from_outside_hour, "space_month": estimate.space_month,
    })
}

/// Both, for people.
pub fn text(requests: &Requests) -> String {
    let mut lines = vec![format!(
        "requests    for objects, in {} since opening began:",
        text::duration(requests.since_open)
    )];
    for one in &requests.counted {
        let class = match PriceClass::of(one.kind) {
            PriceClass::A => "A",
            PriceClass::B => "B",
            PriceClass::Free => "free",
        };
        let failed =
            if one.failed > 0 { format!(", {} failed", text::count(one.failed)) } else { String::new() };
        let (sent, received) = (text::bytes(one.bytes_sent), text::bytes(one.bytes_received));
        lines.push(format!(
            "            {:<10} {:<11} {:>9}  class {class:<4} {sent:>11} sent {received:>11} \
            received{failed}",
            one.purpose.name(),
            one.kind.name(),
            text::count(one.requests)
        ));
    }
    if !requests.go_over_network {
        lines.push("cost        none by the request: the store is on this machine".to_owned());
        return lines.join("\n");
    }
    let estimate = S3_STANDARD.estimate(&requests.counted, requests.since_open, requests.space_bytes);
    let dollars = |dollars: f64| {
        if dollars > 0.0 && dollars < 0.005 { format!("${dollars:.6}") } else { format!("${dollars:.2}") }
    };
    let (an_hour, outside) = (dollars(estimate.requests_hour), dollars(estimate.read_from_outside_hour));
    lines.push(format!(
        "cost        {} for these requests; {an_hour} an hour at this rate, {outside} more if read from \
        outside of the region",
        dollars(estimate.requests)
    ));
    lines.push(format!(
        "            {} a month for {} of tables",
        dollars(estimate.space_month),
        text::bytes(requests.space_bytes)
    ));
    lines.push(format!(
        "            an estimate by the list prices of {} ({}, {})",
        S3_STANDARD.service, S3_STANDARD.as_of, S3_STANDARD.source
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tombolo_storage::layer::RequestKind;
    use tombolo_storage::{Meter, Purpose};

    fn requests(go_over_network: bool) -> Requests {
        let meter = Meter::of_network();
        for _ in 0..2000 {
            meter.sent(Purpose::Log, RequestKind::Put, 1024);
            meter.sent(Purpose::Get, RequestKind::Read, 0);
            meter.received(Purpose::Get, RequestKind::Read, 1 << 20);
        }
        meter.failed(Purpose::Get, RequestKind::Read);
        meter.sent(Purpose::Collection, RequestKind::Delete, 0);
        let mut requests = Requests::default();
        requests.counted = meter.counted();
        requests.go_over_network = go_over_network;
        requests.since_open = Duration::from_secs(100);
        requests.space_bytes = 10 << 30;
        requests
    }

    #[test]
    fn requests_and_their_price_are_told() {
        let told = text(&requests(true));
        for words in [
            "in 100.00 s since opening",
            "log        put             2,000  class A        2.0 MiB sent         0 B received",
            "get        read            2,000  class B            0 B sent     2.0 GiB received, 1 failed",
            "delete              1  class free",
            "$0.01 for these requests; $0.39 an hour at this rate, $6.33 more if read from outside of the \
            region",
            "$0.23 a month for 10.0 GiB of tables",
            "S3 Standard, US East (N. Virginia) (2026-03, https://aws.amazon.com/s3/pricing)",
        ] {
            assert!(told.contains(words), "{words:?} is not in\n{told}");
        }
        let value = cost_json(&requests(true));
        assert_eq!(
            (value["requests_class_a"].as_u64(), value["space_bytes"].as_u64()),
            (Some(2000), Some(10 << 30))
        );
        assert!((value["requests_hour"].as_f64().unwrap() - 0.3888).abs() < 1e-9, "{value}");
        assert_eq!(requests_json(&requests(true)).as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn a_store_of_this_machine_costs_nothing() {
        assert!(text(&requests(false)).ends_with("the store is on this machine"));
        assert_eq!(cost_json(&requests(false)), Value::Null);
    }
}
