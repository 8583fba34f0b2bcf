//! `struct`: numbers and strings as bytes in a prescribed layout.

use std::rc::Rc;

use mlua::{Error, IntoLua, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::args::Args;
use crate::number::to_u64;
use crate::raise;
use crate::shared::{register, Shared};

/// The longest whole number, in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` without a number aligns to, in bytes.
const ALIGNMENT_BYTES: usize = 8;
/// Values that a call may return beside its arguments.
const RESULTS_MAX: usize = 7_990;

#[derive(Clone, Copy)]
struct Layout {
    is_big_endian: bool,
    alignment_bytes: usize,
}

/// A format under way.
struct Format<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
    layout: Layout,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, text: &'a [u8]) -> Format<'a> {
        let layout = Layout { is_big_endian: cfg!(target_endian = "big"), alignment_bytes: 1 };
        Format { lua, rest: crate::from_resp::until_zero(text), layout }
    }

    fn error(&self, text: impl AsRef<str>) -> Error {
        raise::text(self.lua, text.as_ref())
    }

    /// The number that follows an option.
    fn number_or(&mut self, default: usize) -> Result<usize> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return Ok(default);
        }
        let mut number: i32 = 0;
        for digit in &self.rest[..len] {
            let digit = i32::from(digit - b'0');
            number = match number.checked_mul(10).and_then(|n| n.checked_add(digit)) {
                Some(number) => number,
                None => return Err(self.error("integral size overflow")),
            };
        }
        self.rest = &self.rest[len..];
        Ok(number as usize)
    }

    /// The next option and the bytes that its value has.
    fn next(&mut self) -> Result<Option<(u8, usize)>> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number_or(1)?,
            b'i' | b'I' => {
                let size = self.number_or(4)?;
                if size > INTEGER_BYTES_MAX {
                    return Err(self
                        .error(format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}")));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    /// Bytes to skip before a value of that size.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.layout.alignment_bytes);
        // As it is written, also for sizes that are no power of two.
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.layout.is_big_endian = true,
            b'<' => self.layout.is_big_endian = false,
            b'!' => {
                let alignment_bytes = self.number_or(ALIGNMENT_BYTES)?;
                if !alignment_bytes.is_power_of_two() {
                    return Err(self.error(format!("alignment {alignment_bytes} is not a power of 2")));
                }
                self.layout.alignment_bytes = alignment_bytes;
            }
            other => {
                let mut text = b"invalid format option '".to_vec();
                text.extend_from_slice(&[other, b'\'']);
                return Err(raise::bad_argument(self.lua, 1, &String::from_utf8_lossy(&text)));
            }
        }
        Ok(())
    }
}

fn put_integer(number: f64, size: usize, is_big_endian: bool, into: &mut Vec<u8>) {
    let mut value = to_u64(number);
    let begin = into.len();
    for _ in 0..size {
        into.push(value as u8);
        value >>= 8;
    }
    if is_big_endian {
        into[begin..].reverse();
    }
}

fn get_integer(bytes: &[u8], is_signed: bool, is_big_endian: bool) -> f64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = match is_big_endian {
        true => bytes.iter().fold(0, fold),
        false => bytes.iter().rev().fold(0, fold),
    };
    if !is_signed {
        return value as f64;
    }
    // As the processor shifts: by the count modulo 64.
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1));
    let extended = if value & mask != 0 { value | mask } else { value };
    extended as i64 as f64
}

fn pack(lua: &Lua, shared: &Shared, args: &Args) -> Result<LuaString> {
    let text = args.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(lua, &text);
    let mut packed = Vec::new();
    let mut number = 2;
    // The original keeps a nil behind the arguments: that is what it finds in place of the first that is not there.
    let args = &args.with_nil();
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(packed.len(), option, size);
        if lua.used_memory().saturating_add(packed.len() + padding) > shared.memory.hard_bytes {
            return Err(Error::MemoryError("not enough memory".to_owned()));
        }
        packed.resize(packed.len() + padding, 0);
        let is_big_endian = format.layout.is_big_endian;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put_integer(args.number(number)?, size, is_big_endian, &mut packed);
            }
            b'x' => packed.push(0),
            b'f' => {
                let value = args.number(number)? as f32;
                packed.extend(if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
            }
            b'd' => {
                let value = args.number(number)?;
                packed.extend(if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
            }
            b'c' | b's' => put_string(lua, args, number, option, size, &mut packed)?,
            other => format.control(other)?,
        }
        if !matches!(option, b'x' | b' ' | b'<' | b'>' | b'!') {
            number += 1;
        }
    }
    lua.create_string(packed)
}

fn put_string(
    lua: &Lua,
    args: &Args,
    number: usize,
    option: u8,
    size: usize,
    into: &mut Vec<u8>,
) -> Result<()> {
    let string = args.string(number)?;
    let bytes = string.as_bytes();
    let size = if size == 0 { bytes.len() } else { size };
    let Some(kept) = bytes.get(..size) else {
        return Err(raise::bad_argument(lua, number + 1, "string too short"));
    };
    into.extend_from_slice(kept);
    if option == b's' {
        into.push(0);
    }
    Ok(())
}

fn unpack(lua: &Lua, args: &Args) -> Result<MultiValue> {
    let (text, data) = (args.string(1)?, args.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let position = args.integer_or(3, 1)?;
    if position == 0 {
        return Err(raise::bad_argument(lua, 3, "offset must be 1 or greater"));
    }
    // As C has it, a negative offset is one far beyond the end.
    let mut at = position as usize - 1;
    let mut format = Format::new(lua, &text);
    let mut values = MultiValue::new();
    let too_short = || raise::bad_argument(lua, 2, "data string too short");
    while let Some((option, mut size)) = format.next()? {
        at = at.saturating_add(format.padding(at, option, size));
        let mut bytes = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
        if values.len() >= RESULTS_MAX {
            return Err(raise::text(lua, "stack overflow (too many results)"));
        }
        let is_big_endian = format.layout.is_big_endian;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                values.push_back(Value::Number(get_integer(
                    bytes,
                    option.is_ascii_lowercase(),
                    is_big_endian,
                )));
            }
            b'x' => {}
            b'f' | b'd' => values.push_back(Value::Number(get_float(bytes, is_big_endian))),
            b'c' => {
                if size == 0 {
                    size = previous_size(lua, &mut values)?;
                    bytes = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
                }
                values.push_back(lua.create_string(bytes)?.into_lua(lua)?);
            }
            b's' => {
                let Some(len) = data[at..].iter().position(|&byte| byte == 0) else {
                    return Err(raise::text(lua, "unfinished string in data"));
                };
                values.push_back(lua.create_string(&data[at..at + len])?.into_lua(lua)?);
                size = len + 1;
            }
            other => format.control(other)?,
        }
        at += size;
    }
    values.push_back(Value::Number((at + 1) as f64));
    Ok(values)
}

/// The number before a `c0`, which it takes the place of.
fn previous_size(lua: &Lua, values: &mut MultiValue) -> Result<usize> {
    let error = || raise::text(lua, "format 'c0' needs a previous size");
    let value = values.pop_back().ok_or_else(error)?;
    match crate::args::as_number(lua, Some(&value))? {
        Some(size) => Ok(to_u64(size) as usize),
        None => Err(error()),
    }
}

fn get_float(bytes: &[u8], is_big_endian: bool) -> f64 {
    let mut little = [0; 8];
    little[..bytes.len()].copy_from_slice(bytes);
    if is_big_endian {
        little[..bytes.len()].reverse();
    }
    match bytes.len() {
        4 => f64::from(f32::from_le_bytes([little[0], little[1], little[2], little[3]])),
        _ => f64::from_le_bytes(little),
    }
}

fn size(lua: &Lua, args: &Args) -> Result<f64> {
    let text = args.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(lua, &text);
    let mut at = 0usize;
    while let Some((option, size)) = format.next()? {
        at = at.wrapping_add(format.padding(at, option, size));
        match (option, size) {
            (b's', _) => return Err(raise::bad_argument(lua, 1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(raise::bad_argument(lua, 1, "option 'c0' has no fixed size")),
            (option, _) if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        at = at.wrapping_add(size);
    }
    Ok(at as i64 as f64)
}

pub(crate) fn table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let table = lua.create_table()?;
    register(
        &table,
        vec![
            ("pack", shared.function(lua, |lua, shared, args| pack(lua, shared, &Args::new(lua, args)))?),
            ("unpack", shared.function(lua, |lua, _, args| unpack(lua, &Args::new(lua, args)))?),
            ("size", shared.function(lua, |lua, _, args| size(lua, &Args::new(lua, args)))?),
        ],
    )?;
    Ok(table)
}
