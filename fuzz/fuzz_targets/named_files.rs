//! Fuzzes `tombolo_files::fuzzing::named_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_files::fuzzing::named_files(bytes));
