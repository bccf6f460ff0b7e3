//! Fuzzes `tombolo_format::fuzzing::operands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::operands(bytes));
