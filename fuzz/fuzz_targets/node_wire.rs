//! Fuzzes `tombolo_segment::fuzzing::node_wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tombolo_segment::fuzzing::node_wire(bytes));
