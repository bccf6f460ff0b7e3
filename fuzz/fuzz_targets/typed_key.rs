//! Fuzzes `tombolo_format::fuzzing::typed_key`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::typed_key(bytes));
