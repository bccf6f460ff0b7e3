//! Fuzzes `tombolo_format::fuzzing::value_object`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::value_object(bytes));
