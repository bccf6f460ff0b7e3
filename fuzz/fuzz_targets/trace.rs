//! Fuzzes `tombolo_format::fuzzing::trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::trace(bytes));
