//! Fuzzes `tombolo_format::fuzzing::ranges`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::ranges(bytes));
