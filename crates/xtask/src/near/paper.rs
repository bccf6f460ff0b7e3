//! What the paper's graphs show: "SplitFT", the slides' evaluation on RocksDB. Read off the graphs,
//! so that the last digit means nothing.
//!
//! There: 8 hosts of 10 cores, 25 Gb RDMA, three CephFS replicas, three log peers, an insert-only
//! run of RocksDB.

/// Insert-only latency against throughput: what the curve is, and points of (operations a second,
/// microseconds).
pub const INSERT: [(&str, &[(f64, f64)]); 3] = [
    ("paper: strong, 4.2 to 5 ms below 6 k/s", &[(6_000.0, 4_600.0)]),
    ("paper: weak, at most 243 k/s", &[(93_000.0, 10.0)]),
    ("paper: SplitFT over RDMA", &[(72_000.0, 12.0), (265_000.0, 52.0)]),
];

/// Thousands of operations a second of YCSB's workloads: strong, weak, SplitFT.
pub const YCSB: [(&str, [f64; 3]); 5] = [
    ("ycsb-a", [9.0, 82.0, 82.0]),
    ("ycsb-b", [32.0, 49.0, 48.0]),
    ("ycsb-c", [45.0, 45.0, 44.0]),
    ("ycsb-d", [49.0, 101.0, 98.0]),
    ("ycsb-f", [9.0, 45.0, 45.0]),
];

/// Recovery of RocksDB with a log of 60 MB, in seconds: SplitFT, CephFS, ext4.
pub const RECOVERY: [(&str, f64); 3] = [("SplitFT", 1.22), ("CephFS", 1.17), ("ext4", 1.06)];
