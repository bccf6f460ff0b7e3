//! Fuzzes `tombolo_format::fuzzing::filter_and_index`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::filter_and_index(bytes));
