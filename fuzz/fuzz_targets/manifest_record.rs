//! Fuzzes `tombolo_format::fuzzing::manifest_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::manifest_record(bytes));
