//! Workloads of Tombolo.
