//! The first line of a script or library: `#!lua name=... flags=...`. It knows no Lua, so that what keeps libraries can ask for
//! their names.
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

use stillframe_units::words;
use thiserror::Error;

/// What a script or function says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// Sets the flag of that name, as it is written; whether there is one.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// The names of those that are set, in the order in which Redis lists them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
    }
}

/// The header of a script for `EVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptHeader<'a> {
    /// None: there is no first line, so Redis's rules from before 7.0 hold.
    pub flags: Option<Flags>,
    /// What Lua compiles: without the first line, with its line break, so that lines keep their numbers.
    pub body: &'a [u8],
}

/// The header of a library for `FUNCTION LOAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryHeader<'a> {
    /// Letters, digits and underscores, at least one.
    pub name: String,
    pub body: &'a [u8],
}

/// A header that is refused. Its text is the reply, with code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    #[error("ERR Invalid script shebang")]
    NoLineBreak,
    #[error("ERR Invalid engine in script shebang")]
    BadWords,
    #[error("ERR Unexpected engine in script shebang: {0}")]
    OtherEngine(String),
    #[error("ERR Unknown lua shebang option: {0}")]
    UnknownOption(String),
    #[error("ERR Unexpected flag in script shebang: {0}")]
    UnknownFlag(String),
    #[error("ERR Missing library metadata")]
    NoMetadata,
    #[error("ERR Invalid library metadata")]
    BadMetadata,
    #[error("ERR Invalid metadata value, name argument was given multiple times")]
    TwoNames,
    #[error("ERR Invalid metadata value given: {0}")]
    UnknownMetadata(String),
    #[error("ERR Library name was not given")]
    NoName,
    #[error("ERR Engine '{0}' not found")]
    NoSuchEngine(String),
    #[error("ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long")]
    BadName,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where the first line ends; `None`: it does not, or not before a zero byte, where C ends a string.
fn line_end(source: &[u8]) -> Option<usize> {
    source.iter().position(|byte| matches!(byte, b'\n' | 0)).filter(|&end| source[end] == b'\n')
}

/// Reads the header of a script.
///
/// # Errors
/// There is a first line, and Redis refuses it.
pub fn script_header(source: &[u8]) -> Result<ScriptHeader<'_>, HeaderError> {
    if !source.starts_with(b"#!") {
        return Ok(ScriptHeader { flags: None, body: source });
    }
    let end = line_end(source).ok_or(HeaderError::NoLineBreak)?;
    let words = words(&source[..end]).map_err(|_| HeaderError::BadWords)?;
    let (engine, options) = words.split_first().ok_or(HeaderError::BadWords)?;
    if engine != b"#!lua" {
        return Err(HeaderError::OtherEngine(text(engine)));
    }
    let mut flags = Flags::default();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err(HeaderError::UnknownOption(text(option)));
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|&byte| byte == b',') {
            if !flags.set(name) {
                return Err(HeaderError::UnknownFlag(text(name)));
            }
        }
    }
    Ok(ScriptHeader { flags: Some(flags), body: &source[end..] })
}

/// Reads the header of a library.
///
/// # Errors
/// Redis refuses it.
pub fn library_header(source: &[u8]) -> Result<LibraryHeader<'_>, HeaderError> {
    if !source.starts_with(b"#!") {
        return Err(HeaderError::NoMetadata);
    }
    let end = line_end(source).ok_or(HeaderError::BadMetadata)?;
    let words = words(&source[2..end]).map_err(|_| HeaderError::BadMetadata)?;
    let (engine, options) = match words.split_first() {
        // What is between `#!` and a blank is the engine's name, even if that is nothing.
        Some((engine, options)) if source.get(2) != Some(&b' ') => (&engine[..], options),
        _ => (&b""[..], &words[..]),
    };
    let mut name = None;
    for option in options {
        let has_name = option.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"name="));
        if !has_name {
            return Err(HeaderError::UnknownMetadata(text(option)));
        }
        if name.replace(&option[5..]).is_some() {
            return Err(HeaderError::TwoNames);
        }
    }
    let name = name.ok_or(HeaderError::NoName)?;
    if !is_name(name) {
        return Err(HeaderError::BadName);
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(HeaderError::NoSuchEngine(text(engine)));
    }
    Ok(LibraryHeader { name: text(name), body: &source[end..] })
}

/// Whether a library or function may have that name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_first_line_with_a_zero_byte() {
        for source in
            [&b"#!lua flags=no-writes\0 x\nreturn 1"[..], b"#!lua \0\nreturn 1", b"#!\0lua\nreturn 1"]
        {
            assert_eq!(script_header(source), Err(HeaderError::NoLineBreak), "{}", source.escape_ascii());
        }
        for source in [&b"#!lua name=a\0b\n"[..], b"#!\0lua name=a\n", b"#!lua name=a \0\n"] {
            assert_eq!(library_header(source), Err(HeaderError::BadMetadata), "{}", source.escape_ascii());
        }
        assert_eq!(library_header(b"#!lua name=a\n\0").unwrap().name, "a");
    }
}
