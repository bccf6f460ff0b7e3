//! Fuzzes `tombolo_format::fuzzing::zoned`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::zoned(bytes));
