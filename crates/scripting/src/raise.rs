//! Errors that functions of this crate raise in a script, with the place in it that Lua itself would name.
//!
//! What such a function raises reaches Lua as a value of `mlua`'s, which no script sees: whatever catches errors (`pcall`,
//! `xpcall`, `coroutine.resume`, `coroutine.wrap`) is replaced, and makes of it what it stands for ([`Raised`]).

use std::sync::Arc;

use mlua::{Error, Lua, Value};
use thiserror::Error as ThisError;

use crate::host::Halt;

/// The name of the chunk that has the functions written in Lua. Its lines are never named.
pub(crate) const OWN_CHUNK: &str = "=?";

/// What an error stands for.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub(crate) enum Raised {
    /// A string.
    #[error("{}", .0.escape_ascii())]
    Text(Vec<u8>),
    /// A table with `err`, as `redis.call` raises it.
    #[error("{}", .text.escape_ascii())]
    Reply { text: Vec<u8>, is_counted: bool },
    /// The end of the run.
    #[error("{0:?}")]
    Halt(Halt),
}

impl Raised {
    /// An error of Redis's: with the general code.
    pub(crate) fn general(text: &str) -> Error {
        Raised::Reply { text: format!("ERR {text}").into_bytes(), is_counted: false }.into()
    }

    /// What an error that was caught stands for, if a function of this crate has raised it.
    pub(crate) fn of(error: &Error) -> Option<&Raised> {
        match error {
            Error::CallbackError { cause, .. } => Raised::of(cause),
            Error::WithContext { cause, .. } => Raised::of(cause),
            Error::ExternalError(inner) => inner.downcast_ref(),
            _ => None,
        }
    }
}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Error {
        Error::ExternalError(Arc::new(raised))
    }
}

/// Levels of the function that a script has called (that of this crate which runs, or the one written in Lua here that has
/// called it), and of what has called that.
fn levels(lua: &Lua) -> (usize, usize) {
    let is_own =
        |level: usize| lua.inspect_stack(level, |frame| frame.source().source.as_deref() == Some(OWN_CHUNK));
    let mut called = 0;
    let mut level = 1;
    // No deeper than functions of this crate call each other.
    while level < 8 {
        match is_own(level) {
            Some(true) => called = level,
            // What is left of a function that called another as the last thing it did.
            Some(false) if called > 0 && is_tail_call(lua, level) => {}
            _ => break,
        }
        level += 1;
    }
    (called, level)
}

fn is_tail_call(lua: &Lua, level: usize) -> bool {
    lua.inspect_stack(level, |frame| frame.source().what == "tail").unwrap_or_default()
}

/// `chunk:line: ` of what has called the function that a script has called; nothing if that is not one of Lua's.
pub(crate) fn place(lua: &Lua) -> String {
    lua.inspect_stack(levels(lua).1, |frame| {
        let line = frame.current_line().filter(|line| *line > 0)?;
        let source = frame.source();
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or("?")))
    })
    .flatten()
    .unwrap_or_default()
}

/// An error text with its place.
pub(crate) fn text(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut full = place(lua).into_bytes();
    full.extend_from_slice(text.as_ref());
    Raised::Text(full).into()
}

/// An argument that the function does not take. `number` counts from 1.
pub(crate) fn bad_argument(lua: &Lua, number: usize, what: &str) -> Error {
    let names = lua.inspect_stack(levels(lua).0, |frame| {
        let names = frame.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = names.unwrap_or_default();
    let name = name.as_deref().unwrap_or("?");
    let message = match (is_method, number) {
        (true, 1) => format!("calling '{name}' on bad self ({what})"),
        (true, number) => format!("bad argument #{} to '{name}' ({what})", number.wrapping_sub(1) as i32),
        (false, number) => format!("bad argument #{number} to '{name}' ({what})"),
    };
    text(lua, message)
}

/// The name that Lua gives to the type of an argument that may not be there.
pub(crate) fn type_name(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(Value::LightUserData(_) | Value::UserData(_) | Value::Error(_)) => "userdata",
        Some(value) => value.type_name(),
    }
}

pub(crate) fn bad_type(lua: &Lua, number: usize, expected: &str, value: Option<&Value>) -> Error {
    bad_argument(lua, number, &format!("{expected} expected, got {}", type_name(value)))
}
