//! How many times as good as others each row must be.

use super::bucket;
use super::record::Key;
use super::rows::{
    ACCEPTED, Bar, COMPACTED, DEVICE, DEVICE_READS, DIRECT_IO, Measure, NATURAL, SETTLED, SMALL_CACHE,
};

/// The bar of a row, if it has one.
pub fn bar(key: &Key) -> Option<Bar> {
    if let Some(bar) = bucket::bar(key) {
        return Some(bar);
    }
    let rate = |rocksdb, peer| Some(Bar { measure: Measure::Rate, rocksdb: Some(rocksdb), peer });
    match (key.workload.as_str(), key.shape.as_str()) {
        ("fillseq" | "fillrandom" | "overwrite", _) if key.threads == 1 => rate(2.0, 1.3),
        ("fillseq" | "fillrandom" | "overwrite" | "fillrandom own" | "overwrite own", _) => rate(2.0, 1.5),
        ("readrandom" | "readmissing" | "multireadrandom", NATURAL | COMPACTED) => rate(2.0, 1.5),
        ("seekrandom", NATURAL) => rate(3.0, 1.3),
        ("seekrandom", COMPACTED) => rate(1.5, 1.3),
        ("readseq" | "readreverse", COMPACTED) => rate(1.3, 1.3),
        ("readrandom", SMALL_CACHE) => rate(1.5, 1.3),
        ("readrandom" | "multireadrandom 32", DIRECT_IO)
            if key.threads == DEVICE_READS || key.workload != "readrandom" =>
        {
            Some(Bar { measure: Measure::Rate, rocksdb: None, peer: 1.0 })
        }
        (_, DEVICE) => Some(Bar { measure: Measure::Rate, rocksdb: None, peer: 0.9 }),
        ("readwhilewriting", _) => Some(Bar { measure: Measure::P99, rocksdb: Some(1.0), peer: 1.0 }),
        ("mixgraph", _) => rate(1.5, 1.3),
        (workload, _) if workload.starts_with("fillbatch") => rate(1.5, 1.0),
        (workload, _) if workload.starts_with("ycsb") => rate(1.5, 1.3),
        ("mergerandom" | "mergerandom zipfian" | "getmerged" | "getmerged zipfian", _) => rate(2.0, 1.0),
        ("seekrandom ranges" | "longscan ranges" | "readseq ranges" | "deleterange+get", _) => rate(2.0, 1.0),
        ("fillbig 16K" | "fillbig 1M" | "overbig 16K" | "overbig 1M", SETTLED) => rate(1.5, 1.0),
        ("ingest", ACCEPTED) => rate(1.0, 1.0),
        ("fillsync", _) if key.threads == 1 => rate(1.2, 1.0),
        ("fillsync", _) if key.threads == 8 => rate(2.0, 1.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::DURABLE;
    use super::*;

    #[test]
    fn bars_are_those_that_were_set() {
        let of = |workload, shape, threads| {
            bar(&Key::new(workload, shape, threads)).map(|bar| (bar.rocksdb, bar.peer))
        };
        assert_eq!(of("fillrandom", SETTLED, 1), Some((Some(2.0), 1.3)));
        assert_eq!(of("fillrandom own", ACCEPTED, 2), Some((Some(2.0), 1.5)));
        assert_eq!(of("seekrandom", NATURAL, 1), Some((Some(3.0), 1.3)));
        assert_eq!(of("seekrandom", COMPACTED, 2), Some((Some(1.5), 1.3)));
        assert_eq!(of("readseq", NATURAL, 1), None);
        assert_eq!(of("fillsync", DURABLE, 2), None);
        assert_eq!(of("fillsync", DURABLE, 8), Some((Some(2.0), 1.0)));
        assert_eq!(of("readrandom", DIRECT_IO, 32), Some((None, 1.0)));
        assert_eq!(of("mergerandom zipfian", ACCEPTED, 2), Some((Some(2.0), 1.0)));
        assert_eq!(of("fillbig 1M", ACCEPTED, 1), None);
        assert_eq!(of("ycsb-a uniform", NATURAL, 1), Some((Some(1.5), 1.3)));
        assert_eq!(bar(&Key::new("readwhilewriting", NATURAL, 1)).map(|bar| bar.measure), Some(Measure::P99));
    }
}
