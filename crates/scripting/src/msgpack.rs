//! `cmsgpack`: values as MessagePack.

use std::rc::Rc;

use mlua::{Either, Error, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::args::Args;
use crate::items::{self, is_key, string_item, Item};
use crate::number::to_i64;
use crate::raise;
use crate::shared::{register, Shared};

/// Tables in tables that are written; what is deeper is nil. A call of Lua's is under way for each, of which there can be 200.
const NESTING_MAX: usize = 16;
/// Tables in tables that are read: each takes slots of Lua's stack in the original, which has 8,000.
const DEPTH_MAX: usize = 256;
/// Values that a call may return beside its arguments.
const RESULTS_MAX: usize = 7_990;

/// Values of an array for which there is room from its beginning.
const ROOM_MAX: usize = 1 << 12;

/// Arguments that fit Lua's stack of a function twice.
const ARGUMENTS_MAX: usize = 4_000;

struct Encoder<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    bytes: Vec<u8>,
}

impl Encoder<'_> {
    /// The shortest of three forms for a length: `short` with it inside, if it is below `short_len`, else what 2 or 4 bytes take.
    fn length(&mut self, len: usize, short: u8, short_len: usize, code_16: u8) {
        if len < short_len {
            self.bytes.push(short | len as u8);
        } else if len <= 0xFFFF {
            self.bytes.push(code_16);
            self.bytes.extend((len as u16).to_be_bytes());
        } else {
            self.bytes.push(code_16 + 1);
            self.bytes.extend((len as u32).to_be_bytes());
        }
    }

    fn string(&mut self, string: &[u8]) {
        match string.len() {
            len @ 32..=0xFF => self.bytes.extend([0xD9, len as u8]),
            len => self.length(len, 0xA0, 32, 0xDA),
        }
        self.bytes.extend_from_slice(string);
    }

    fn number(&mut self, number: f64) {
        let integer = to_i64(number);
        if number.is_infinite() || integer as f64 != number {
            return self.float(number);
        }
        let bytes = integer.to_be_bytes();
        match integer {
            -32..=127 => self.bytes.push(integer as u8),
            128..=0xFF => self.coded(0xCC, &bytes[7..]),
            0x100..=0xFFFF => self.coded(0xCD, &bytes[6..]),
            0x1_0000..=0xFFFF_FFFF => self.coded(0xCE, &bytes[4..]),
            0x1_0000_0000.. => self.coded(0xCF, &bytes),
            -128..=-33 => self.coded(0xD0, &bytes[7..]),
            -32_768..=-129 => self.coded(0xD1, &bytes[6..]),
            -2_147_483_648..=-32_769 => self.coded(0xD2, &bytes[4..]),
            _ => self.coded(0xD3, &bytes),
        }
    }

    fn coded(&mut self, code: u8, bytes: &[u8]) {
        self.bytes.push(code);
        self.bytes.extend_from_slice(bytes);
    }

    fn float(&mut self, number: f64) {
        let single = number as f32;
        match f64::from(single) == number {
            true => self.coded(0xCA, &single.to_be_bytes()),
            false => self.coded(0xCB, &number.to_be_bytes()),
        }
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<()> {
        if self.lua.used_memory().saturating_add(self.bytes.len()) > self.shared.memory.hard_bytes {
            return Err(Error::MemoryError("not enough memory".to_owned()));
        }
        match value {
            Value::String(string) => self.string(&string.as_bytes()),
            Value::Boolean(is_true) => self.bytes.push(if *is_true { 0xC3 } else { 0xC2 }),
            Value::Number(number) => self.number(*number),
            Value::Integer(number) => self.number(*number as f64),
            Value::Table(table) if level < NESTING_MAX => self.table(table, level)?,
            _ => self.bytes.push(0xC0),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<()> {
        if is_array(table)? {
            let len = table.raw_len();
            self.length(len, 0x90, 16, 0xDC);
            let has_metatable = table.has_metatable();
            for index in 1..=len {
                let value: Value = match has_metatable {
                    true => table.get(index)?,
                    false => table.raw_get(index)?,
                };
                self.value(&value, level + 1)?;
            }
            return Ok(());
        }
        // How many there are is known behind them: kept as values they would be bounded by a stack of Lua's.
        let begin = self.bytes.len();
        let mut count = 0;
        table.for_each(|name: Value, value: Value| {
            count += 1;
            self.value(&name, level + 1)?;
            self.value(&value, level + 1)
        })?;
        let end = self.bytes.len();
        self.length(count, 0x80, 16, 0xDE);
        let head_len = self.bytes.len() - end;
        self.bytes[begin..].rotate_right(head_len);
        Ok(())
    }
}

/// Whether its keys are the whole numbers from 1 on, without gaps; an empty table is one.
fn is_array(table: &Table) -> Result<bool> {
    let (mut count, mut greatest) = (0i64, 0i64);
    // The values are not looked at, which a truth value costs least for.
    let mut is_array = true;
    let walked = table.for_each(|name, _: bool| {
        let number = match name {
            Value::Number(number) => number,
            Value::Integer(number) => number as f64,
            _ => f64::NAN,
        };
        if number.is_nan() || number <= 0.0 || f64::from(number as i32) != number {
            is_array = false;
            // Ends the walk.
            return Err(Error::StackError);
        }
        greatest = greatest.max(number as i64);
        count += 1;
        Ok(())
    });
    if !is_array {
        return Ok(false);
    }
    walked?;
    Ok(greatest == count)
}

/// Bytes that are no MessagePack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    #[error("Missing bytes in input.")]
    Missing,
    #[error("Bad data format in input.")]
    BadFormat,
}

struct Decoder<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    rest: &'a [u8],
    /// Why there is no value, to be raised in its words.
    malformed: Option<Malformed>,
}

impl<'a> Decoder<'a> {
    /// Ends the decoding; what it returns is not what is raised.
    fn stop(&mut self, why: Malformed) -> Error {
        self.malformed = Some(why);
        Error::StackError
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.stop(Malformed::Missing));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn unsigned(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A whole number with a sign in so many bytes.
    fn signed(&mut self, len: usize) -> Result<i64> {
        let unused_bits = 64 - 8 * len as u32;
        Ok((self.unsigned(len)? << unused_bits) as i64 >> unused_bits)
    }

    fn value(&mut self, depth: usize) -> Result<Item<'a>> {
        if depth > DEPTH_MAX {
            return Err(raise::text(
                self.lua,
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
            ));
        }
        let value = |value: Value| Ok(Either::Right(value));
        let number = |number: f64| value(Value::Number(number));
        match self.take(1)?[0] {
            code @ 0..=0x7F => number(f64::from(code)),
            code @ 0xE0..=0xFF => number(f64::from(code as i8)),
            code @ 0xA0..=0xBF => self.string(usize::from(code & 0x1F)),
            code @ 0x90..=0x9F => self.array(u64::from(code & 0xF), depth),
            code @ 0x80..=0x8F => self.map(u64::from(code & 0xF), depth),
            0xC0 => value(Value::Nil),
            0xC2 => value(Value::Boolean(false)),
            0xC3 => value(Value::Boolean(true)),
            0xCA => number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xCB => number(f64::from_bits(self.unsigned(8)?)),
            code @ 0xCC..=0xCE => number(self.unsigned(1 << (code - 0xCC))? as f64),
            // Pushed as if it had a sign.
            0xCF => number(self.unsigned(8)? as i64 as f64),
            code @ 0xD0..=0xD3 => number(self.signed(1 << (code - 0xD0))? as f64),
            code @ 0xD9..=0xDB => {
                let len = self.unsigned(1 << (code - 0xD9))?;
                self.string(len as usize)
            }
            code @ (0xDC | 0xDD) => {
                let len = self.unsigned(2 << (code - 0xDC))?;
                self.array(len, depth)
            }
            code @ (0xDE | 0xDF) => {
                let len = self.unsigned(2 << (code - 0xDE))?;
                self.map(len, depth)
            }
            _ => Err(self.stop(Malformed::BadFormat)),
        }
    }

    fn string(&mut self, len: usize) -> Result<Item<'a>> {
        let bytes = self.take(len)?;
        string_item(self.lua, bytes)
    }

    fn array(&mut self, len: u64, depth: usize) -> Result<Item<'a>> {
        // Each value takes a byte at least.
        let room = usize::try_from(len).map_or(ROOM_MAX, |len| len.min(self.rest.len()).min(ROOM_MAX));
        let mut left = len;
        let array = items::sequence(self.lua, room, || {
            self.shared.check_memory(self.lua)?;
            let Some(rest) = left.checked_sub(1) else { return Ok(None) };
            left = rest;
            self.value(depth + 1).map(Some)
        });
        array.map(Either::Right)
    }

    fn map(&mut self, len: u64, depth: usize) -> Result<Item<'a>> {
        let mut left = len;
        let map = items::fields(self.lua, || {
            self.shared.check_memory(self.lua)?;
            let Some(rest) = left.checked_sub(1) else { return Ok(None) };
            left = rest;
            let (name, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            check_key(&name)?;
            Ok(Some((name, value)))
        });
        map.map(Either::Right)
    }
}

/// # Errors
/// No field can have that name. Lua itself raises this in the original, which names no place then.
fn check_key(name: &Item<'_>) -> Result<()> {
    if is_key(name) {
        return Ok(());
    }
    let what = if matches!(name, Either::Right(Value::Nil)) { "nil" } else { "NaN" };
    Err(raise::Raised::Text(format!("table index is {what}").into_bytes()).into())
}

fn pack(lua: &Lua, shared: &Shared, args: MultiValue) -> Result<LuaString> {
    if args.is_empty() {
        return Err(raise::bad_argument(lua, 0, "MessagePack pack needs input."));
    }
    if args.len() > ARGUMENTS_MAX {
        return Err(raise::bad_argument(lua, 0, "Too many arguments for MessagePack pack."));
    }
    let mut encoder = Encoder { lua, shared, bytes: Vec::new() };
    for value in &args {
        encoder.value(value, 0)?;
    }
    lua.create_string(encoder.bytes)
}

/// Up to `limit` values from `offset` on; all of them if both are 0.
fn unpack(lua: &Lua, shared: &Shared, args: &Args, limit: i64, offset: i64) -> Result<MultiValue> {
    let string = args.string(1)?;
    let bytes = string.as_bytes();
    if offset < 0 || limit < 0 {
        return Err(raise::text(
            lua,
            format!(
                "Invalid request to unpack with offset of {} and limit of {}.",
                offset as i32,
                bytes.len() as i32
            ),
        ));
    }
    let Some(rest) = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)) else {
        return Err(raise::text(
            lua,
            format!("Start offset {} greater than input length {}.", offset as i32, bytes.len() as i32),
        ));
    };
    let is_all = limit == 0 && offset == 0;
    let limit = if is_all { i64::from(i32::MAX) } else { limit };
    let mut decoder = Decoder { lua, shared, rest, malformed: None };
    let mut values = MultiValue::new();
    let mut count = 0;
    while !decoder.rest.is_empty() && count < limit {
        if values.len() >= RESULTS_MAX {
            return Err(raise::text(
                lua,
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
            ));
        }
        let value = decoder.value(0);
        if let Some(malformed) = decoder.malformed {
            return Err(raise::text(lua, malformed.to_string()));
        }
        values.push_back(value?.into_lua(lua)?);
        count += 1;
    }
    if !is_all {
        let next = match decoder.rest.len() {
            0 => -1.0,
            left => (bytes.len() - left) as f64,
        };
        values.push_front(next.into_lua(lua)?);
    }
    Ok(values)
}

pub(crate) fn table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let table = lua.create_table()?;
    let one = |lua: &Lua, shared: &Rc<Shared>, args: MultiValue| {
        let args = Args::new(lua, args);
        let offset = args.integer_or(2, 0)?;
        unpack(lua, shared, &args, 1, offset)
    };
    let limited = |lua: &Lua, shared: &Rc<Shared>, args: MultiValue| {
        let args = Args::new(lua, args);
        let (limit, offset) = (args.integer(2)?, args.integer_or(3, 0)?);
        unpack(lua, shared, &args, limit, offset)
    };
    register(
        &table,
        vec![
            ("pack", shared.function(lua, |lua, shared, args| pack(lua, shared, args))?),
            (
                "unpack",
                shared.function(lua, |lua, shared, args| unpack(lua, shared, &Args::new(lua, args), 0, 0))?,
            ),
            ("unpack_one", shared.function(lua, one)?),
            ("unpack_limit", shared.function(lua, limited)?),
        ],
    )?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        table.raw_set(name, text)?;
    }
    Ok(table)
}
