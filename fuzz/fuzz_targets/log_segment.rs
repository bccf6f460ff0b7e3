//! Fuzzes `tombolo_format::fuzzing::log_segment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::log_segment(bytes));
