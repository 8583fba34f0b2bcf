#![no_main]

#[path = "../../crates/journal/tests/damaged_log/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|script: &[u8]| checks::damaged(script));
