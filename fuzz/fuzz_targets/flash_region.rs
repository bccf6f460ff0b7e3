//! Fuzzes `tombolo_format::fuzzing::flash_region`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_format::fuzzing::flash_region(bytes));
