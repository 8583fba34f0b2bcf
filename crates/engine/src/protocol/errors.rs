//! Error replies that several commands share, word for word as Redis gives them.

pub const SYNTAX: &str = "ERR syntax error";
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NO_SUCH_KEY: &str = "ERR no such key";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub const OUT_OF_RANGE: &str = "ERR index out of range";
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
pub const TOO_LARGE: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A call with a number of arguments that the command, by its name in lower case, does not take.
pub fn wrong_arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

/// Text from a client at the end of an error, as C prints it: up to the first NUL, without trailing line breaks.
pub fn printed(text: &[u8]) -> &[u8] {
    let mut text = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
    while let [rest @ .., b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

/// An error with words of a client in the places of `%`, as C prints them: each up to its first NUL.
pub fn with_words(text: &str, words: &[&[u8]]) -> Vec<u8> {
    let mut words = words.iter();
    let mut filled = Vec::new();
    for (index, part) in text.split('%').enumerate() {
        if index > 0 {
            let word = words.next().copied().unwrap_or_default();
            filled.extend(word.iter().take_while(|byte| **byte != 0));
        }
        filled.extend_from_slice(part.as_bytes());
    }
    filled
}

/// The error of an `EXEC` that was refused with `text`, whose general code is left out.
pub fn discarded(text: &[u8]) -> Vec<u8> {
    let mut full = b"EXECABORT Transaction discarded because of: ".to_vec();
    full.extend_from_slice(text.strip_prefix(b"ERR ").unwrap_or(text));
    full
}

pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub const NO_AUTH: &str = "NOAUTH Authentication required.";
pub const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
     persist to disk. Commands that may modify the data set are disabled, because this instance is configured \
     to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check \
     the Redis logs for details about the RDB error.";
