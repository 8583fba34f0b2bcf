//! Scripts that are known to all workers, by their SHA1. Each worker compiles for itself what it runs (`lua.rs`).
//!
//! ```text
//!   EVAL ──▶ known ── SCRIPT LOAD ──▶ kept
//!              │ many others since     │ SCRIPT FLUSH
//!              ▼                       ▼
//!            gone                    gone
//! ```
//! What `EVAL` alone has brought is bounded: clients that put values into the text of a script would fill memory (redis#1688).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};

/// Scripts that only `EVAL` has brought: at most so many, as in Redis 7.4.
const UNKEPT_MAX: usize = 500;
/// And so many bytes of text.
const UNKEPT_BYTES_MAX: usize = 16 << 20;

/// What a byte is as a hexadecimal digit; `NO_DIGIT`: it is none.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut byte = 0;
    while byte < 256 {
        if let Some(digit) = (byte as u8 as char).to_digit(16) {
            digits[byte] = digit as u8;
        }
        byte += 1;
    }
    digits
};
const NO_DIGIT: u8 = 0x80;

/// A SHA1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest([u8; 20]);

impl Hash for Digest {
    /// A part of it does: it is a hash itself, and each call of a script looks for one.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    }
}

impl Digest {
    /// Hexadecimal digits.
    pub const HEX_LEN: usize = 40;

    pub fn of(source: &[u8]) -> Digest {
        Digest(Sha1::digest(source).into())
    }

    /// From 40 hexadecimal digits in any case; `None`: it is no SHA1.
    pub fn parse(text: &[u8]) -> Option<Digest> {
        let digits: &[u8; Digest::HEX_LEN] = text.try_into().ok()?;
        let (mut bytes, mut seen) = ([0; 20], 0);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
            seen |= high | low;
            *byte = high << 4 | low;
        }
        (seen & NO_DIGIT == 0).then_some(Digest(bytes))
    }

    /// Forty digits, in lower case.
    pub fn hex(self) -> String {
        self.0.iter().fold(String::with_capacity(Digest::HEX_LEN), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// The text of a script that has been compiled once.
#[derive(Debug)]
pub struct Source {
    pub digest: Digest,
    pub text: Box<[u8]>,
    is_kept: AtomicBool,
    /// In uses of all scripts.
    used_at: AtomicU64,
    is_gone: AtomicBool,
}

impl Source {
    /// Whether it is to be forgotten by workers, too.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

#[derive(Default)]
struct Known {
    sources: HashMap<Digest, Arc<Source>>,
    /// Of those that are not kept.
    unkept_count: usize,
    unkept_bytes: usize,
}

impl Known {
    fn remove(&mut self, digest: Digest) {
        let Some(source) = self.sources.remove(&digest) else { return };
        source.is_gone.store(true, Relaxed);
        if !source.is_kept.load(Relaxed) {
            self.unkept_count -= 1;
            self.unkept_bytes -= source.text.len();
        }
    }

    fn is_over(&self) -> bool {
        self.unkept_count > UNKEPT_MAX || self.unkept_bytes > UNKEPT_BYTES_MAX
    }

    /// The one that was used longest ago, of those that are not kept; not the one that has just come.
    fn oldest(&self, newest: Digest) -> Option<Digest> {
        let unkept = self.sources.values().filter(|source| !source.is_kept.load(Relaxed));
        let others = unkept.filter(|source| source.digest != newest);
        others.min_by_key(|source| source.used_at.load(Relaxed)).map(|source| source.digest)
    }
}

/// See the module.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<Known>,
    use_count: AtomicU64,
    evicted_count: AtomicU64,
    /// Rises with each flush: states of Lua from before are let go.
    generation: AtomicU64,
    /// Function libraries, and functions, as a worker has found them last.
    library_count: AtomicU64,
    function_count: AtomicU64,
}

impl Scripts {
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// A script that compiles is known from now on; `is_kept`: until it is flushed.
    pub fn add(&self, digest: Digest, text: &[u8], is_kept: bool) -> Arc<Source> {
        let mut known = self.known.lock();
        if let Some(source) = known.sources.get(&digest).cloned() {
            if is_kept && !source.is_kept.swap(true, Relaxed) {
                known.unkept_count -= 1;
                known.unkept_bytes -= source.text.len();
            }
            self.note_use(&source);
            return source;
        }
        let source = Arc::new(Source {
            digest,
            text: text.into(),
            is_kept: AtomicBool::new(is_kept),
            used_at: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
        });
        self.note_use(&source);
        known.sources.insert(digest, source.clone());
        if !is_kept {
            known.unkept_count += 1;
            known.unkept_bytes += text.len();
        }
        while known.is_over() {
            let Some(oldest) = known.oldest(digest) else { break };
            known.remove(oldest);
            self.evicted_count.fetch_add(1, Relaxed);
        }
        source
    }

    pub fn find(&self, digest: Digest) -> Option<Arc<Source>> {
        self.known.lock().sources.get(&digest).cloned()
    }

    /// It is run: the others have to go before it.
    pub fn note_use(&self, source: &Source) {
        source.used_at.store(self.use_count.fetch_add(1, Relaxed), Relaxed);
    }

    pub fn flush(&self) {
        let mut known = self.known.lock();
        known.sources.values().for_each(|source| source.is_gone.store(true, Relaxed));
        *known = Known::default();
        self.generation.fetch_add(1, Relaxed);
    }

    /// There are so many function libraries, and functions.
    pub fn note_libraries(&self, library_count: usize, function_count: usize) {
        self.library_count.store(library_count as u64, Relaxed);
        self.function_count.store(function_count as u64, Relaxed);
    }

    /// Function libraries and functions.
    pub fn library_counts(&self) -> (u64, u64) {
        (self.library_count.load(Relaxed), self.function_count.load(Relaxed))
    }

    /// Scripts, bytes of their texts, and how many were evicted.
    pub fn counts(&self) -> (usize, usize, u64) {
        let known = self.known.lock();
        let bytes = known.sources.values().map(|source| source.text.len()).sum();
        (known.sources.len(), bytes, self.evicted_count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> (Digest, Vec<u8>) {
        let text = format!("return {number}").into_bytes();
        (Digest::of(&text), text)
    }

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let (known, _) = digest(1);
        assert_eq!(known.hex(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Digest::parse(known.hex().as_bytes()), Some(known));
        assert_eq!(Digest::parse(known.hex().to_uppercase().as_bytes()), Some(known));
        for text in [&b""[..], b"e0", &[b'g'; 40], &[b'0'; 41], &[0xFF; 40]] {
            assert_eq!(Digest::parse(text), None);
        }
    }

    #[test]
    fn what_was_not_loaded_goes_once_there_are_many_others() {
        let scripts = Scripts::default();
        let (kept, text) = digest(0);
        scripts.add(kept, &text, true);
        let (used, text) = digest(1);
        let used_source = scripts.add(used, &text, false);
        for number in 2..UNKEPT_MAX + 10 {
            let (other, text) = digest(number);
            scripts.add(other, &text, false);
            scripts.note_use(&used_source);
        }
        assert!(scripts.find(kept).is_some() && scripts.find(used).is_some());
        assert!(scripts.find(digest(2).0).is_none(), "the oldest one has gone");
        assert_eq!(scripts.counts().0, UNKEPT_MAX + 1);
        assert_eq!(scripts.counts().2, 9);
        scripts.flush();
        assert!(used_source.is_gone() && scripts.counts().0 == 0);
    }

    #[test]
    fn what_is_loaded_later_is_kept() {
        let scripts = Scripts::default();
        let large = vec![b' '; UNKEPT_BYTES_MAX];
        let first = scripts.add(Digest::of(&large), &large, false);
        scripts.add(first.digest, &large, true);
        let (other, text) = digest(1);
        scripts.add(other, &text, false);
        assert!(scripts.find(first.digest).is_some(), "it does not count any more");
        let larger = vec![b'\n'; UNKEPT_BYTES_MAX];
        scripts.add(Digest::of(&larger), &larger, false);
        assert!(scripts.find(other).is_none() && scripts.counts().2 == 1);
    }
}
