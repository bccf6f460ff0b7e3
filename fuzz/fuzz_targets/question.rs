//! Fuzzes `tombolo_format::fuzzing::question`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::question(bytes));
