//! JSON to values.

use std::borrow::Cow;

use mlua::{Either, Error, Lua, Result, Value};

use super::options::{Options, DEPTH_MAX};
use crate::items::{self, string_item, Item};
use crate::number::parse_prefix;
use crate::raise;
use crate::shared::Shared;

/// A token, with what it stands for.
enum Token<'t> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Cow<'t, [u8]>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// What is wrong.
    Error(&'static str),
}

impl Token<'_> {
    /// As errors call it.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        }
    }
}

struct Decoder<'a, 't> {
    lua: &'a Lua,
    shared: &'a Shared,
    options: Options,
    text: &'t [u8],
    at: usize,
    /// Where the last token begins, or where it went wrong.
    token_at: usize,
    depth: i32,
}

/// The value of a text.
///
/// # Errors
/// Raised in the script: the text is no JSON, or its value needs too much memory.
pub(super) fn decode<'t>(lua: &Lua, shared: &Shared, options: Options, text: &'t [u8]) -> Result<Item<'t>> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(raise::text(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { lua, shared, options, text, at: 0, token_at: 0, depth: 0 };
    let token = decoder.next();
    let value = decoder.value(token)?;
    match decoder.next() {
        Token::End => Ok(value),
        other => Err(decoder.unexpected("the end", &other)),
    }
}

impl<'t> Decoder<'_, 't> {
    /// The byte there; 0 behind the end, as where C's strings end.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn unexpected(&self, expected: &str, found: &Token<'_>) -> Error {
        let text =
            format!("Expected {expected} but found {} at character {}", found.name(), self.token_at + 1);
        raise::text(self.lua, text)
    }

    fn error(&mut self, what: &'static str) -> Token<'t> {
        self.token_at = self.at;
        Token::Error(what)
    }

    fn next(&mut self) -> Token<'t> {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.byte(self.at) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return self.word(),
            _ => return self.error("invalid token"),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token<'t> {
        let rest = &self.text[self.at..];
        for (word, token) in
            [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        match self.options.decodes_invalid_numbers && self.is_invalid_number() {
            true => self.any_number(),
            false => self.error("invalid token"),
        }
    }

    /// Something that C reads as a number, and JSON does not have.
    fn is_invalid_number(&self) -> bool {
        if self.byte(self.at) == b'+' {
            return true;
        }
        let at = self.at + usize::from(self.byte(self.at) == b'-');
        match self.byte(at) {
            b'0' => matches!(self.byte(at + 1), b'x' | b'X' | b'0'..=b'9'),
            first if first <= b'9' => false,
            _ => {
                let word = self.text.get(at..at + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    fn number(&mut self) -> Token<'t> {
        match !self.options.decodes_invalid_numbers && self.is_invalid_number() {
            true => self.error("invalid number"),
            false => self.any_number(),
        }
    }

    fn any_number(&mut self) -> Token<'t> {
        let (number, len) = parse_prefix(&self.text[self.at..]);
        if len == 0 {
            return self.error("invalid number");
        }
        self.at += len;
        Token::Number(number)
    }

    fn string(&mut self) -> Token<'t> {
        let begin = self.at + 1;
        let rest = &self.text[begin..];
        let len = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
        self.at = begin + len;
        if self.byte(self.at) == b'"' {
            self.at += 1;
            return Token::String(Cow::Borrowed(&rest[..len]));
        }
        self.escaped_string(rest[..len].to_vec())
    }

    /// The same from its first escape on.
    fn escaped_string(&mut self, mut string: Vec<u8>) -> Token<'t> {
        loop {
            match self.byte(self.at) {
                b'"' => {
                    self.at += 1;
                    return Token::String(Cow::Owned(string));
                }
                0 => return self.error("unexpected end of string"),
                b'\\' => {
                    let escaped = match self.byte(self.at + 1) {
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        same @ (b'"' | b'\\' | b'/') => same,
                        b'u' => match self.unicode(&mut string) {
                            Some(()) => continue,
                            None => return self.error("invalid unicode escape code"),
                        },
                        _ => return self.error("invalid escape code"),
                    };
                    string.push(escaped);
                    self.at += 2;
                }
                byte => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
    }

    /// `\uXXXX`, or two of them that make one character.
    fn unicode(&mut self, string: &mut Vec<u8>) -> Option<()> {
        let mut code = self.hex4(self.at + 2)?;
        let mut len = 6;
        if code & 0xF800 == 0xD800 {
            if code & 0x400 != 0 || self.text.get(self.at + 6..self.at + 8)? != b"\\u" {
                return None;
            }
            let low = self.hex4(self.at + 8)?;
            if low & 0xFC00 != 0xDC00 {
                return None;
            }
            code = ((code & 0x3FF) << 10 | low & 0x3FF) + 0x1_0000;
            len = 12;
        }
        let character = char::from_u32(code)?;
        string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        Some(())
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > self.options.decode_depth_max.min(DEPTH_MAX) {
            let text =
                format!("Found too many nested data structures ({}) at character {}", self.depth, self.at);
            return Err(raise::text(self.lua, text));
        }
        self.shared.check_memory(self.lua)
    }

    fn value(&mut self, token: Token<'t>) -> Result<Item<'t>> {
        Ok(Either::Right(match token {
            Token::String(string) => return self.text(string),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(is_true) => Value::Boolean(is_true),
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            Token::Null => Value::NULL,
            other => return Err(self.unexpected("value", &other)),
        }))
    }

    fn text(&self, string: Cow<'t, [u8]>) -> Result<Item<'t>> {
        match string {
            Cow::Borrowed(bytes) => string_item(self.lua, bytes),
            Cow::Owned(bytes) => Ok(Either::Right(Value::String(self.lua.create_string(bytes)?))),
        }
    }

    /// The token that an item begins with; none at the end of its table.
    fn begin_item(
        &mut self,
        is_first: bool,
        is_end: fn(&Token<'_>) -> bool,
        expected: &str,
    ) -> Result<Option<Token<'t>>> {
        let token = self.next();
        match token {
            token if is_end(&token) => {
                self.depth -= 1;
                Ok(None)
            }
            token if is_first => Ok(Some(token)),
            Token::Comma => Ok(Some(self.next())),
            other => Err(self.unexpected(expected, &other)),
        }
    }

    fn field(&mut self, is_first: bool) -> Result<Option<(Item<'t>, Item<'t>)>> {
        let is_end = |token: &Token<'_>| matches!(token, Token::ObjectEnd);
        let Some(token) = self.begin_item(is_first, is_end, "comma or object end")? else { return Ok(None) };
        let Token::String(name) = token else { return Err(self.unexpected("object key string", &token)) };
        let colon = self.next();
        if !matches!(colon, Token::Colon) {
            return Err(self.unexpected("colon", &colon));
        }
        let token_of_value = self.next();
        Ok(Some((self.text(name)?, self.value(token_of_value)?)))
    }

    fn object(&mut self) -> Result<Value> {
        self.descend()?;
        let mut is_first = true;
        items::fields(self.lua, || self.field(std::mem::take(&mut is_first)))
    }

    fn element(&mut self, is_first: bool) -> Result<Option<Item<'t>>> {
        let is_end = |token: &Token<'_>| matches!(token, Token::ArrayEnd);
        let token = self.begin_item(is_first, is_end, "comma or array end")?;
        token.map(|token| self.value(token)).transpose()
    }

    fn array(&mut self) -> Result<Value> {
        self.descend()?;
        let mut is_first = true;
        items::sequence(self.lua, 0, || self.element(std::mem::take(&mut is_first)))
    }
}
