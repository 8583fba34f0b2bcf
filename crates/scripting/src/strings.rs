//! The functions of `string` that use patterns, and `string.rep`: bounded in stack and time, unlike those of C.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Error, Function, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::args::Args;
use crate::pattern::{Capture, Matcher, PatternError};
use crate::raise;
use crate::shared::{register, Shared};

/// The greatest string of Lua's with a length that fits what counts it.
const STRING_BYTES_MAX: usize = i32::MAX as usize;

fn raised(lua: &Lua, shared: &Shared, error: PatternError) -> Error {
    match error {
        PatternError::Interrupted => match shared.check() {
            Err(error) => error,
            Ok(()) => raise::text(lua, error.to_string()),
        },
        error => raise::text(lua, error.to_string()),
    }
}

fn capture_value(lua: &Lua, text: &[u8], capture: Capture) -> Result<Value> {
    match capture {
        Capture::Position(at) => Ok(Value::Number((at + 1) as f64)),
        Capture::Range(from, len) => lua.create_string(&text[from..from + len])?.into_lua(lua),
        Capture::Open(_) => Ok(Value::Nil),
    }
}

fn push_captures(
    lua: &Lua,
    shared: &Shared,
    matcher: &Matcher,
    text: &[u8],
    whole: Option<(usize, usize)>,
    into: &mut MultiValue,
) -> Result<()> {
    for capture in matcher.captures(whole) {
        let capture = capture.map_err(|error| raised(lua, shared, error))?;
        into.push_back(capture_value(lua, text, capture)?);
    }
    Ok(())
}

/// Where a search begins: from 0; a position of Lua's counts from 1, and from the end if it is negative.
fn start(position: i64, len: usize) -> usize {
    let len = len as i64;
    let from = if position < 0 { position.saturating_add(len).saturating_add(1).max(0) } else { position };
    from.saturating_sub(1).clamp(0, len) as usize
}

fn find_plain(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn find(lua: &Lua, shared: &Shared, args: &Args, is_find: bool) -> Result<MultiValue> {
    let (text, pattern) = (args.string(1)?, args.string(2)?);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(args.integer_or(3, 1)?, text.len());
    let is_plain = args.get(4).is_some_and(|value| !matches!(value, Value::Nil | Value::Boolean(false)));
    let has_special = pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    let mut found = MultiValue::new();
    if is_find && (is_plain || !has_special) {
        match find_plain(&text[from..], &pattern) {
            Some(at) => {
                found.push_back(Value::Number((from + at + 1) as f64));
                found.push_back(Value::Number((from + at + pattern.len()) as f64));
            }
            None => found.push_back(Value::Nil),
        }
        return Ok(found);
    }
    let is_anchored = pattern.first() == Some(&b'^');
    let is_interrupted = || shared.is_to_end();
    let mut matcher = Matcher::new(&text, &pattern, &is_interrupted);
    for at in from..=text.len() {
        let end =
            matcher.match_at(at, usize::from(is_anchored)).map_err(|error| raised(lua, shared, error))?;
        if let Some(end) = end {
            if is_find {
                found.push_back(Value::Number((at + 1) as f64));
                found.push_back(Value::Number(end as f64));
            }
            let whole = (!is_find).then_some((at, end));
            push_captures(lua, shared, &matcher, &text, whole, &mut found)?;
            return Ok(found);
        }
        if is_anchored {
            break;
        }
    }
    found.push_back(Value::Nil);
    Ok(found)
}

fn gmatch(lua: &Lua, shared: &Rc<Shared>, args: &Args) -> Result<Function> {
    let (text, pattern) = (args.string(1)?, args.string(2)?);
    let next_at = Cell::new(0);
    shared.function(lua, move |lua, shared, _| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let is_interrupted = || shared.is_to_end();
        let mut matcher = Matcher::new(&text, &pattern, &is_interrupted);
        let mut found = MultiValue::new();
        for at in next_at.get()..=text.len() {
            let end = matcher.match_at(at, 0).map_err(|error| raised(lua, shared, error))?;
            if let Some(end) = end {
                next_at.set(if end == at { end + 1 } else { end });
                push_captures(lua, shared, &matcher, &text, Some((at, end)), &mut found)?;
                return Ok(found);
            }
        }
        next_at.set(text.len() + 1);
        Ok(found)
    })
}

/// What `gsub` has looked at.
struct Gsub {
    text: LuaString,
    pattern: LuaString,
    is_anchored: bool,
    matches_left: i64,
    /// Where the next match is looked for.
    at: usize,
    /// What is before has been given.
    given: usize,
}

impl Gsub {
    fn new(lua: &Lua, args: &Args) -> Result<Gsub> {
        let (text, pattern) = (args.string(1)?, args.string(2)?);
        if !matches!(
            args.get(3),
            Some(
                Value::Table(_)
                    | Value::Function(_)
                    | Value::String(_)
                    | Value::Number(_)
                    | Value::Integer(_)
            )
        ) {
            return Err(raise::bad_argument(lua, 3, "string/function/table expected"));
        }
        let matches_left = match args.is_absent(4) {
            true => i64::MAX,
            false => i64::from(args.int(4)?),
        };
        let is_anchored = pattern.as_bytes().first() == Some(&b'^');
        Ok(Gsub { text, pattern, is_anchored, matches_left, at: 0, given: 0 })
    }

    /// From where to where the next match is.
    fn next(
        &mut self,
        matcher: &mut Matcher,
        len: usize,
    ) -> std::result::Result<Option<(usize, usize)>, PatternError> {
        while self.matches_left > 0 && self.at <= len {
            let from = self.at;
            let end = matcher.match_at(from, usize::from(self.is_anchored))?;
            self.at = end.filter(|end| *end > from).unwrap_or(from + 1);
            if self.is_anchored {
                self.at = len + 1;
            }
            if let Some(end) = end {
                self.matches_left -= 1;
                return Ok(Some((from, end)));
            }
        }
        Ok(None)
    }
}

/// A function that gives what is before each match, the match, and its captures; at the end, what is left.
pub(crate) fn gsub_matches(lua: &Lua, shared: &Rc<Shared>, args: &Args) -> Result<Function> {
    let gsub = RefCell::new(Gsub::new(lua, args)?);
    shared.function(lua, move |lua, shared, _| {
        let mut gsub = gsub.borrow_mut();
        let (text, pattern) = (gsub.text.clone(), gsub.pattern.clone());
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let is_interrupted = || shared.is_to_end();
        let mut matcher = Matcher::new(&text, &pattern, &is_interrupted);
        let found = gsub.next(&mut matcher, text.len()).map_err(|error| raised(lua, shared, error))?;
        let mut values = MultiValue::new();
        let Some((from, end)) = found else {
            values.push_back(lua.create_string(&text[gsub.given..])?.into_lua(lua)?);
            return Ok(values);
        };
        values.push_back(lua.create_string(&text[gsub.given..from])?.into_lua(lua)?);
        gsub.given = end;
        values.push_back(lua.create_string(&text[from..end])?.into_lua(lua)?);
        push_captures(lua, shared, &matcher, &text, Some((from, end)), &mut values)?;
        Ok(values)
    })
}

/// A text with matches replaced under way.
struct Substitution<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    text: &'a [u8],
    result: Vec<u8>,
}

impl Substitution<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.lua.used_memory().saturating_add(self.result.len() + bytes.len())
            > self.shared.memory.hard_bytes
        {
            return Err(Error::MemoryError("not enough memory".to_owned()));
        }
        self.result.extend_from_slice(bytes);
        Ok(())
    }

    fn append_capture(&mut self, matcher: &Matcher, index: usize, whole: (usize, usize)) -> Result<()> {
        let capture = matcher.capture(index, whole).map_err(|error| raised(self.lua, self.shared, error))?;
        match capture {
            Capture::Range(from, len) => self.append(&self.text[from..from + len]),
            Capture::Position(at) => self.append((at + 1).to_string().as_bytes()),
            Capture::Open(_) => Ok(()),
        }
    }

    fn append_template(&mut self, matcher: &Matcher, template: &[u8], whole: (usize, usize)) -> Result<()> {
        let mut rest = template.iter();
        while let Some(&byte) = rest.next() {
            match (byte, (byte == b'%').then(|| rest.next().copied())) {
                (_, Some(Some(b'0'))) => self.append(&self.text[whole.0..whole.1])?,
                (_, Some(Some(digit))) if digit.is_ascii_digit() => {
                    self.append_capture(matcher, usize::from(digit - b'1'), whole)?;
                }
                (_, Some(next)) => self.append(&[next.unwrap_or(0)])?,
                (byte, None) => self.append(&[byte])?,
            }
        }
        Ok(())
    }
}

/// With a string to put in place of matches.
pub(crate) fn gsub(lua: &Lua, shared: &Shared, args: &Args) -> Result<(LuaString, f64)> {
    let mut gsub = Gsub::new(lua, args)?;
    let template = args.string(3)?;
    let (text, pattern) = (gsub.text.clone(), gsub.pattern.clone());
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let is_interrupted = || shared.is_to_end();
    let mut matcher = Matcher::new(&text, &pattern, &is_interrupted);
    let mut work = Substitution { lua, shared, text: &text, result: Vec::new() };
    let mut count = 0.0;
    while let Some((from, end)) =
        gsub.next(&mut matcher, text.len()).map_err(|error| raised(lua, shared, error))?
    {
        work.append(&text[gsub.given..from])?;
        gsub.given = end;
        work.append_template(&matcher, &template.as_bytes(), (from, end))?;
        count += 1.0;
    }
    work.append(&text[gsub.given..])?;
    Ok((lua.create_string(&work.result)?, count))
}

fn dump(lua: &Lua, args: &Args) -> Result<()> {
    match args.get(1) {
        Some(Value::Function(_)) => Err(raise::text(lua, "unable to dump given function")),
        other => Err(raise::bad_type(lua, 1, "function", other)),
    }
}

fn rep(lua: &Lua, shared: &Shared, args: &Args) -> Result<LuaString> {
    let string = args.string(1)?;
    let count = usize::try_from(args.int(2)?).unwrap_or(0);
    let bytes = string.as_bytes();
    let len = bytes.len().saturating_mul(count);
    if len > STRING_BYTES_MAX || lua.used_memory().saturating_add(len) > shared.memory.hard_bytes {
        return Err(Error::MemoryError("not enough memory".to_owned()));
    }
    lua.create_string(bytes.repeat(if bytes.is_empty() { 0 } else { count }))
}

/// Puts them in place of Lua's.
pub(crate) fn replace(lua: &Lua, shared: &Rc<Shared>, table: &Table) -> Result<()> {
    let gmatch = shared.function(lua, |lua, shared, args| gmatch(lua, shared, &Args::new(lua, args)))?;
    let functions = vec![
        ("find", shared.function(lua, |lua, shared, args| find(lua, shared, &Args::new(lua, args), true))?),
        ("match", shared.function(lua, |lua, shared, args| find(lua, shared, &Args::new(lua, args), false))?),
        ("gmatch", gmatch.clone()),
        ("gfind", gmatch),
        ("rep", shared.function(lua, |lua, shared, args| rep(lua, shared, &Args::new(lua, args)))?),
        ("dump", shared.function(lua, |lua, _, args| dump(lua, &Args::new(lua, args)))?),
    ];
    register(table, functions)
}
