//! What requests and space would cost at a service's list prices: an estimate for people, to
//! compare one way to work with another.
//!
//! Left out: discounts, free allowances, taxes, minimum charges, requests that a service does not
//! charge for when they fail.

use std::time::Duration;

use crate::Counted;
use crate::layer::RequestKind;

/// Bytes that services call a gigabyte on their bills.
const GIGABYTE: f64 = (1_u64 << 30) as f64;

/// How a request is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceClass {
    /// Those that write, and lists.
    A,
    /// Those that read.
    B,
    /// Deletions.
    Free,
}

impl PriceClass {
    /// The class of a kind.
    pub const fn of(kind: RequestKind) -> PriceClass {
        match kind {
            RequestKind::Create
            | RequestKind::Append
            | RequestKind::Finish
            | RequestKind::Put
            | RequestKind::Copy
            | RequestKind::List => PriceClass::A,
            RequestKind::Read | RequestKind::ReadRanges | RequestKind::Length => PriceClass::B,
            _ => PriceClass::Free,
        }
    }
}

/// List prices of a service, in US dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Whose they are.
    pub service: &'static str,
    /// The month of the list.
    pub as_of: &'static str,
    /// Where it is.
    pub source: &'static str,
    /// For 1,000 requests of class A.
    pub thousand_of_class_a: f64,
    /// For 1,000 requests of class B.
    pub thousand_of_class_b: f64,
    /// For a gigabyte (2^30 bytes) kept for a month.
    pub gigabyte_month: f64,
    /// For a gigabyte read from outside of the region. Reads within it cost nothing, nor do bytes
    /// sent to the service.
    pub gigabyte_read_from_outside: f64,
}

/// S3 Standard in US East (N. Virginia), first tier: 0.023 for the first 50 TB, 0.09 for the first
/// 10 TB read over the internet. As listed at <https://aws.amazon.com/s3/pricing> in March 2026,
/// and unchanged for years before.
pub const S3_STANDARD: Prices = Prices {
    service: "S3 Standard, US East (N. Virginia)",
    as_of: "2026-03",
    source: "https://aws.amazon.com/s3/pricing",
    thousand_of_class_a: 0.005,
    thousand_of_class_b: 0.0004,
    gigabyte_month: 0.023,
    gigabyte_read_from_outside: 0.09,
};

/// What it comes to, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Requests of class A.
    pub class_a: u64,
    /// Requests of class B.
    pub class_b: u64,
    /// Requests that cost nothing.
    pub free: u64,
    /// What all requests cost together.
    pub requests: f64,
    /// What an hour of such requests costs.
    pub requests_hour: f64,
    /// What an hour of such reads costs beside, where they come from outside of the region.
    pub read_from_outside_hour: f64,
    /// What the space costs in a month.
    pub space_month: f64,
}

impl Prices {
    /// What `counted`, made within `elapsed`, and `space_bytes` kept come to. Rates are those of at
    /// least a second.
    #[allow(clippy::cast_precision_loss, reason = "an estimate of a few digits")]
    pub fn estimate(&self, counted: &[Counted], elapsed: Duration, space_bytes: u64) -> Estimate {
        let of = |class| {
            counted
                .iter()
                .filter(|one| PriceClass::of(one.kind) == class)
                .map(|one| one.requests)
                .sum::<u64>()
        };
        let (class_a, class_b, free) = (of(PriceClass::A), of(PriceClass::B), of(PriceClass::Free));
        let received: u64 = counted.iter().map(|one| one.bytes_received).sum();
        let requests =
            (class_a as f64 * self.thousand_of_class_a + class_b as f64 * self.thousand_of_class_b) / 1000.0;
        let an_hour = 3600.0 / elapsed.as_secs_f64().max(1.0);
        Estimate {
            class_a,
            class_b,
            free,
            requests,
            requests_hour: requests * an_hour,
            read_from_outside_hour: received as f64 / GIGABYTE * self.gigabyte_read_from_outside * an_hour,
            space_month: space_bytes as f64 / GIGABYTE * self.gigabyte_month,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meter, Purpose};

    /// Worked out by hand from the list.
    #[test]
    fn an_estimate_is_what_the_list_says() {
        let meter = Meter::of_network();
        for _ in 0..40 {
            meter.sent(Purpose::Log, RequestKind::Put, 1000);
            meter.sent(Purpose::Get, RequestKind::Read, 0);
            meter.received(Purpose::Get, RequestKind::Read, 1 << 20);
        }
        meter.sent(Purpose::Manifest, RequestKind::List, 0);
        meter.sent(Purpose::Flush, RequestKind::Create, 0);
        meter.sent(Purpose::Flush, RequestKind::Append, 8 << 20);
        meter.sent(Purpose::Flush, RequestKind::Finish, 0);
        meter.sent(Purpose::Manifest, RequestKind::Length, 0);
        meter.sent(Purpose::Collection, RequestKind::Delete, 0);
        let estimate = S3_STANDARD.estimate(&meter.counted(), Duration::from_secs(10), 100 << 30);
        assert_eq!((estimate.class_a, estimate.class_b, estimate.free), (44, 41, 1));
        let close = |left: f64, right: f64| assert!((left - right).abs() < 1e-9, "{left} is not {right}");
        close(estimate.requests, 44.0 * 0.000_005 + 41.0 * 0.000_000_4);
        close(estimate.requests_hour, estimate.requests * 360.0);
        close(estimate.read_from_outside_hour, 40.0 / 1024.0 * 0.09 * 360.0);
        close(estimate.space_month, 2.3);
        // A moment after opening the rate is that of a second, and not without bound.
        let at_once = S3_STANDARD.estimate(&meter.counted(), Duration::ZERO, 0);
        close(at_once.requests_hour, estimate.requests * 3600.0);
        assert_eq!(S3_STANDARD.estimate(&[], Duration::from_secs(1), 0), Estimate::default());
    }
}
