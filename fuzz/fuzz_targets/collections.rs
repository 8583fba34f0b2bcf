#![no_main]

#[path = "../../crates/store/tests/crafted/collections.rs"]
#[allow(dead_code)]
mod collections;
#[path = "../../crates/store/tests/crafted/edits.rs"]
mod edits;
#[path = "../../crates/store/tests/faulty_device/model.rs"]
#[allow(dead_code)]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| edits::serve(bytes));
