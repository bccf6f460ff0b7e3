//! Fuzzes `tombolo_format::fuzzing::merge_list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::merge_list(bytes));
