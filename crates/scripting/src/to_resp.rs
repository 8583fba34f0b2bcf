//! What a script returns as a reply.

use mlua::{Lua, LuaString, Result, Table, Value};

use crate::from_resp::until_zero;
use crate::host::{Halt, Resp};
use crate::number::{format_exact, format_g, to_i64};
use crate::shared::Shared;

/// Tables in tables that are written; Redis's own bound is Lua's stack, of 8,000 slots.
const DEPTH_MAX: usize = 256;

/// The fields that make a table more than an array, and the globals of a run: kept so that each is not looked up by its text.
pub(crate) struct FieldNames {
    err: LuaString,
    ok: LuaString,
    double: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    map: LuaString,
    set: LuaString,
    pub(crate) keys: LuaString,
    pub(crate) argv: LuaString,
}

impl FieldNames {
    pub(crate) fn new(lua: &Lua) -> Result<FieldNames> {
        Ok(FieldNames {
            err: lua.create_string("err")?,
            ok: lua.create_string("ok")?,
            double: lua.create_string("double")?,
            big_number: lua.create_string("big_number")?,
            verbatim_string: lua.create_string("verbatim_string")?,
            map: lua.create_string("map")?,
            set: lua.create_string("set")?,
            keys: lua.create_string("KEYS")?,
            argv: lua.create_string("ARGV")?,
        })
    }
}

/// A reply under way.
pub(crate) struct Writer<'a> {
    pub(crate) reply: &'a mut Vec<u8>,
    pub(crate) names: &'a FieldNames,
    /// Of the client.
    pub(crate) client: Resp,
    /// What `redis.setresp` has chosen.
    pub(crate) script: Resp,
    /// A table may be in a reply more than once, and in itself.
    pub(crate) shared: &'a Shared,
}

/// Line breaks become blanks.
fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

/// An error reply with its code, without its `-`.
pub(crate) fn write_error(reply: &mut Vec<u8>, text: &[u8]) {
    reply.extend_from_slice(b"-");
    reply.extend_from_slice(&one_line(text));
    reply.extend_from_slice(b"\r\n");
}

fn string(value: Value) -> Option<LuaString> {
    match value {
        Value::String(string) => Some(string),
        _ => None,
    }
}

impl Writer<'_> {
    /// Writes what `items` writes, and how many those are before it. Kept as values they would be bounded by a stack of Lua's.
    fn counted(&mut self, kind: u8, items: impl FnOnce(&mut Self) -> Result<i64>) -> Result<()> {
        let begin = self.reply.len();
        let count = items(self)?;
        let end = self.reply.len();
        self.head(kind, count);
        let head_len = self.reply.len() - end;
        self.reply[begin..].rotate_right(head_len);
        Ok(())
    }

    fn head(&mut self, kind: u8, number: i64) {
        // As much as the least number and its line have.
        let mut text = [0; 24];
        let mut at = text.len() - 2;
        text[at..].copy_from_slice(b"\r\n");
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            text[at] = b'-';
        }
        at -= 1;
        text[at] = kind;
        self.reply.extend_from_slice(&text[at..]);
    }

    fn null(&mut self) {
        self.reply.extend_from_slice(match self.client {
            Resp::Two => b"$-1\r\n",
            Resp::Three => b"_\r\n",
        });
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as i64);
        self.reply.extend_from_slice(bytes);
        self.reply.extend_from_slice(b"\r\n");
    }

    /// Writes a value. Metamethods of tables are not asked.
    ///
    /// # Errors
    /// No memory, or the reply would take more than a run may have. What was written is not a reply.
    pub(crate) fn value(&mut self, value: &Value) -> Result<()> {
        self.value_at(value, 0)
    }

    fn value_at(&mut self, value: &Value, depth: usize) -> Result<()> {
        if self.reply.len() > self.shared.memory.hard_bytes {
            return Err(self.shared.end(Halt::OutOfMemory));
        }
        match value {
            Value::String(string) => self.bulk(&string.as_bytes()),
            Value::Boolean(is_true) => self.boolean(*is_true),
            Value::Number(number) => self.head(b':', to_i64(*number)),
            Value::Integer(number) => self.head(b':', *number),
            Value::Table(_) if depth > DEPTH_MAX => {
                write_error(self.reply, b"ERR reached lua stack limit");
            }
            Value::Table(table) => self.table(table, depth)?,
            _ => self.null(),
        }
        Ok(())
    }

    fn boolean(&mut self, is_true: bool) {
        match (self.script, self.client, is_true) {
            (Resp::Two, _, true) => self.reply.extend_from_slice(b":1\r\n"),
            (Resp::Two, _, false) => self.null(),
            (Resp::Three, Resp::Two, is_true) => self.head(b':', i64::from(is_true)),
            (Resp::Three, Resp::Three, true) => self.reply.extend_from_slice(b"#t\r\n"),
            (Resp::Three, Resp::Three, false) => self.reply.extend_from_slice(b"#f\r\n"),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let names = self.names;
        if let Some(text) = string(table.raw_get(&names.err)?) {
            let text = text.as_bytes();
            let text = until_zero(&text);
            let kept =
                text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
            write_error(self.reply, &text[..kept]);
        } else if let Some(text) = string(table.raw_get(&names.ok)?) {
            self.reply.extend_from_slice(b"+");
            self.reply.extend_from_slice(&one_line(until_zero(&text.as_bytes())));
            self.reply.extend_from_slice(b"\r\n");
        } else if let Value::Number(number) = table.raw_get(&names.double)? {
            self.double(number);
        } else if let Value::Integer(number) = table.raw_get(&names.double)? {
            self.double(number as f64);
        } else if let Some(text) = string(table.raw_get(&names.big_number)?) {
            self.big_number(&one_line(&text.as_bytes()));
        } else if self.verbatim(table)? {
        } else if let Value::Table(map) = table.raw_get(&names.map)? {
            self.map(&map, depth)?;
        } else if let Value::Table(set) = table.raw_get(&names.set)? {
            self.set(&set, depth)?;
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    fn double(&mut self, number: f64) {
        let text = match number.is_finite() {
            true => format_exact(number),
            false => format_g(number, 17),
        };
        match self.client {
            Resp::Two => self.bulk(text.as_bytes()),
            Resp::Three => self.reply.extend_from_slice(format!(",{text}\r\n").as_bytes()),
        }
    }

    fn big_number(&mut self, digits: &[u8]) {
        match self.client {
            Resp::Two => self.bulk(digits),
            Resp::Three => {
                self.reply.extend_from_slice(b"(");
                self.reply.extend_from_slice(digits);
                self.reply.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Whether it was one.
    fn verbatim(&mut self, table: &Table) -> Result<bool> {
        let Value::Table(inner) = table.raw_get(&self.names.verbatim_string)? else { return Ok(false) };
        let (Value::String(format), Value::String(string)) =
            (inner.raw_get("format")?, inner.raw_get("string")?)
        else {
            return Ok(false);
        };
        let string = string.as_bytes();
        if self.client == Resp::Two {
            self.bulk(&string);
            return Ok(true);
        }
        let mut padded = [b' '; 3];
        let format = format.as_bytes();
        for (to, from) in padded.iter_mut().zip(until_zero(&format)) {
            *to = *from;
        }
        self.head(b'=', string.len() as i64 + 4);
        self.reply.extend_from_slice(&padded);
        self.reply.extend_from_slice(b":");
        self.reply.extend_from_slice(&string);
        self.reply.extend_from_slice(b"\r\n");
        Ok(true)
    }

    fn map(&mut self, map: &Table, depth: usize) -> Result<()> {
        let (kind, each) = if self.client == Resp::Two { (b'*', 2) } else { (b'%', 1) };
        self.counted(kind, |writer| {
            let mut count = 0;
            for pair in map.pairs::<Value, Value>() {
                let (name, value) = pair?;
                writer.value_at(&name, depth + 1)?;
                writer.value_at(&value, depth + 1)?;
                count += each;
            }
            Ok(count)
        })
    }

    fn set(&mut self, set: &Table, depth: usize) -> Result<()> {
        self.counted(if self.client == Resp::Two { b'*' } else { b'~' }, |writer| {
            let mut count = 0;
            for pair in set.pairs::<Value, bool>() {
                writer.value_at(&pair?.0, depth + 1)?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// Up to the first nil.
    fn array(&mut self, table: &Table, depth: usize) -> Result<()> {
        self.counted(b'*', |writer| {
            for index in 1.. {
                let item: Value = table.raw_get(index)?;
                if item.is_nil() {
                    return Ok(index - 1);
                }
                writer.value_at(&item, depth + 1)?;
            }
            Ok(0)
        })
    }
}
