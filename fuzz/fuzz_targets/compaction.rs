//! Fuzzes `tombolo_format::fuzzing::compaction`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::compaction(bytes));
