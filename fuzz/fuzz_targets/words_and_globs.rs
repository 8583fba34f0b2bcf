//! Words in quotes come back from their quoting; a pattern of literals matches itself alone.

#![no_main]

use stillframe_engine::text::{glob, words};

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8])| {
    let (a, b) = input;
    if let Ok(words) = words::words(a) {
        let mut quoted = Vec::new();
        for word in &words {
            words::quote(word, &mut quoted);
            quoted.push(b' ');
        }
        assert_eq!(words::words(&quoted), Ok(words));
    }
    let is_match = glob::matches(a, b, false);
    if !a.iter().any(|byte| b"*?[\\".contains(byte)) {
        assert_eq!(is_match, a == b);
    }
    let escaped: Vec<u8> = b.iter().flat_map(|byte| [b'\\', *byte]).collect();
    assert!(glob::matches(&escaped, b, false));
});
