#![no_main]

#[path = "../../crates/pagepool/tests/pagefile_damage/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|script: &[u8]| checks::damaged(script));
