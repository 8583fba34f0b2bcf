#![no_main]

#[path = "../../crates/store/tests/rdb/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../../crates/store/tests/rdb/streams.rs"]
mod streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| streams::check(bytes));
