//! Replies of commands as values for scripts.

use mlua::{Either, Error, Lua, Result, Table, Value};

use crate::items::{self, is_key, string_item, Item};

/// Levels of arrays in arrays; no command's reply comes near.
const DEPTH_MAX: usize = 64;

/// A reply of a host that is none.
fn malformed() -> Error {
    Error::runtime("the host's reply is not RESP")
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

/// The value that the first reply in `bytes` becomes.
///
/// # Errors
/// It is no reply, or there is no memory.
pub(crate) fn to_item<'t>(lua: &'t Lua, bytes: &'t [u8]) -> Result<Item<'t>> {
    Reader { lua, rest: bytes }.item(0)
}

/// The table of an error reply without its `-`.
pub(crate) fn error_table(lua: &Lua, text: &[u8], is_counted: bool) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if is_counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// An error as scripts see it: with a code, `ERR` if it has none, without line breaks around it, up to the first zero.
pub(crate) fn with_code(text: &[u8]) -> Vec<u8> {
    let text = until_zero(text);
    let (code, message) = match text.iter().position(|&byte| byte == b' ') {
        Some(blank) => (&text[..blank], &text[blank + 1..]),
        None => (&b"ERR"[..], text),
    };
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let from = message.iter().position(|byte| !is_break(byte)).unwrap_or(message.len());
    let to = message.iter().rposition(|byte| !is_break(byte)).map_or(from, |last| last + 1);
    [code, b" ", &message[from..to]].concat()
}

/// As C sees a string.
pub(crate) fn until_zero(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|&byte| byte == 0).unwrap_or(text.len())]
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == b'\r').ok_or_else(malformed)?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..).ok_or_else(malformed)?;
        Ok(line)
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let bytes = self.rest.get(..len).ok_or_else(malformed)?;
        self.rest = self.rest.get(len + 2..).ok_or_else(malformed)?;
        Ok(bytes)
    }

    fn item(&mut self, depth: usize) -> Result<Item<'a>> {
        if depth > DEPTH_MAX {
            return Err(malformed());
        }
        let (&kind, rest) = self.rest.split_first().ok_or_else(malformed)?;
        self.rest = rest;
        let line = self.line()?;
        Ok(Either::Right(match kind {
            b'$' => return self.bulk(line),
            b':' => Value::Number(integer(line)? as f64),
            b'+' => self.table_of("ok", string_item(self.lua, line)?)?,
            b'*' => self.array(line, depth)?,
            b'-' => Value::Table(error_table(self.lua, &with_code(line), true)?),
            _ => return self.newer(kind, line, depth),
        }))
    }

    fn bulk(&mut self, line: &[u8]) -> Result<Item<'a>> {
        match integer(line)? {
            len if len < 0 => Ok(Either::Right(Value::Boolean(false))),
            len => string_item(self.lua, self.bytes(len as usize)?),
        }
    }

    fn array(&mut self, line: &[u8], depth: usize) -> Result<Value> {
        let count = integer(line)?;
        if count < 0 {
            return Ok(Value::Boolean(false));
        }
        let mut left = count;
        items::sequence(self.lua, self.bounded(count), || match left {
            0 => Ok(None),
            _ => {
                left -= 1;
                self.item(depth + 1).map(Some)
            }
        })
    }

    /// No more than there can be.
    fn bounded(&self, count: i64) -> usize {
        usize::try_from(count).unwrap_or(0).min(self.rest.len())
    }

    fn table_of(&self, name: &str, value: Item<'_>) -> Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    /// What only RESP3 has.
    fn newer(&mut self, kind: u8, line: &'a [u8], depth: usize) -> Result<Item<'a>> {
        Ok(Either::Right(match kind {
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' => {
                let (number, _) = crate::number::parse_prefix(line);
                self.table_of("double", Either::Right(Value::Number(number)))?
            }
            b'(' => self.table_of("big_number", string_item(self.lua, line)?)?,
            b'=' => self.verbatim(line)?,
            b'%' => self.map(line, depth)?,
            b'~' => self.set(line, depth)?,
            b'|' => {
                for _ in 0..integer(line)?.max(0) {
                    self.item(depth + 1)?;
                    self.item(depth + 1)?;
                }
                return self.item(depth + 1);
            }
            _ => return Err(malformed()),
        }))
    }

    fn verbatim(&mut self, line: &[u8]) -> Result<Value> {
        let bytes = self.bytes(usize::try_from(integer(line)?).map_err(|_| malformed())?)?;
        let (format, string) = (bytes.get(..3), bytes.get(4..));
        let inner = self.lua.create_table()?;
        inner.raw_set("string", self.lua.create_string(string.ok_or_else(malformed)?)?)?;
        inner.raw_set("format", self.lua.create_string(format.ok_or_else(malformed)?)?)?;
        self.table_of("verbatim_string", Either::Right(Value::Table(inner)))
    }

    fn map(&mut self, line: &[u8], depth: usize) -> Result<Value> {
        let pairs = self.fields(line, |reader| Ok((reader.item(depth + 1)?, reader.item(depth + 1)?)))?;
        self.table_of("map", pairs)
    }

    fn set(&mut self, line: &[u8], depth: usize) -> Result<Value> {
        let yes = || Either::Right(Value::Boolean(true));
        let members = self.fields(line, |reader| Ok((reader.item(depth + 1)?, yes())))?;
        self.table_of("set", members)
    }

    /// A table of as many fields as the line says, without those whose name cannot be one.
    fn fields(
        &mut self,
        line: &[u8],
        mut field: impl FnMut(&mut Self) -> Result<(Item<'a>, Item<'a>)>,
    ) -> Result<Item<'a>> {
        let mut left = integer(line)?.max(0);
        let table = items::fields(self.lua, || {
            while left > 0 {
                left -= 1;
                let (name, value) = field(self)?;
                if is_key(&name) {
                    return Ok(Some((name, value)));
                }
            }
            Ok(None)
        });
        table.map(Either::Right)
    }
}

fn integer(line: &[u8]) -> Result<i64> {
    let (digits, is_negative) = match line {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        // Downwards, since there is one more negative number.
        number = number.checked_mul(10).and_then(|n| n.checked_sub(digit)).ok_or_else(malformed)?;
    }
    Ok(if is_negative { number } else { number.wrapping_neg() })
}
