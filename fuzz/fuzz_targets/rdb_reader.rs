#![no_main]

#[path = "../../crates/store/tests/rdb/checks.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::dump(bytes));
