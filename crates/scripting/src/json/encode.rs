//! Values to JSON.

use mlua::{Error, Lua, Result, Table, Value};

use super::options::{InvalidNumbers, Options, DEPTH_MAX};
use crate::number::format_g;
use crate::raise;
use crate::shared::Shared;

/// Tables in tables that are walked in one call of Lua's each, of which 200 can be under way. A deeper one is walked pair by pair, with
/// frames so small that `DEPTH_MAX` of them fit a stack.
const WALKS_MAX: i32 = 32;

struct Encoder<'a> {
    lua: &'a Lua,
    shared: &'a Shared,
    options: Options,
    text: Vec<u8>,
    /// Why there is no text, to be raised where the script sees its own place.
    refused: Option<String>,
}

/// What a table is written as.
enum Shape {
    Object,
    /// The numbers from 1 to this one, in their order.
    List(i32),
    /// Up to this number, with gaps or in another order.
    Sparse(i32),
}

/// The text of a value.
///
/// # Errors
/// Raised in the script: the value has no text, or one that is too long.
pub(super) fn encode(lua: &Lua, shared: &Shared, options: Options, value: &Value) -> Result<Vec<u8>> {
    let mut encoder = Encoder { lua, shared, options, text: Vec::new(), refused: None };
    let encoded = encoder.value(value, 0);
    match encoder.refused {
        Some(reason) => Err(raise::text(lua, reason)),
        None => encoded.map(|()| encoder.text),
    }
}

impl Encoder<'_> {
    fn refuse(&mut self, value: &Value, reason: &str) -> Error {
        self.stop(format!("Cannot serialise {}: {reason}", raise::type_name(Some(value))))
    }

    /// Ends the encoding; what it returns is not what is raised.
    fn stop(&mut self, reason: String) -> Error {
        self.refused = Some(reason);
        Error::StackError
    }

    fn value(&mut self, value: &Value, depth: i32) -> Result<()> {
        if self.lua.used_memory().saturating_add(self.text.len()) > self.shared.memory.hard_bytes {
            return Err(Error::MemoryError("not enough memory".to_owned()));
        }
        match value {
            Value::String(string) => self.string(&string.as_bytes()),
            Value::Number(number) => self.number(value, *number)?,
            Value::Integer(number) => self.number(value, *number as f64)?,
            Value::Boolean(true) => self.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.text.extend_from_slice(b"false"),
            Value::Table(table) => self.table(value, table, depth + 1)?,
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.text.extend_from_slice(b"null"),
            other => return Err(self.refuse(other, "type not supported")),
        }
        Ok(())
    }

    fn string(&mut self, string: &[u8]) {
        self.text.push(b'"');
        for &byte in string {
            match byte {
                b'"' => self.text.extend_from_slice(b"\\\""),
                b'\\' => self.text.extend_from_slice(b"\\\\"),
                b'/' => self.text.extend_from_slice(b"\\/"),
                8 => self.text.extend_from_slice(b"\\b"),
                b'\t' => self.text.extend_from_slice(b"\\t"),
                b'\n' => self.text.extend_from_slice(b"\\n"),
                12 => self.text.extend_from_slice(b"\\f"),
                b'\r' => self.text.extend_from_slice(b"\\r"),
                0..=31 | 127 => self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                other => self.text.push(other),
            }
        }
        self.text.push(b'"');
    }

    fn number(&mut self, value: &Value, number: f64) -> Result<()> {
        match self.options.invalid_numbers {
            InvalidNumbers::Refused if !number.is_finite() => {
                return Err(self.refuse(value, "must not be NaN or Inf"));
            }
            InvalidNumbers::AsTheyAre if number.is_nan() => self.text.extend_from_slice(b"nan"),
            InvalidNumbers::Null if !number.is_finite() => self.text.extend_from_slice(b"null"),
            _ => {
                let digits = usize::try_from(self.options.precision).unwrap_or(14);
                self.text.extend_from_slice(format_g(number, digits).as_bytes());
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn shape(&mut self, value: &Value, table: &Table) -> Result<Shape> {
        let (mut greatest, mut count) = (0i32, 0i32);
        let (mut is_object, mut is_in_order) = (false, true);
        // The values are not looked at, which a truth value costs least for.
        let walked = table.for_each(|name, _: bool| {
            let number = match name {
                Value::Number(number) => number,
                Value::Integer(number) => number as f64,
                _ => f64::NAN,
            };
            if number.floor() != number || number < 1.0 {
                is_object = true;
                // Ends the walk.
                return Err(Error::StackError);
            }
            if number > f64::from(greatest) {
                // As C casts to `int` what does not fit.
                greatest = if number < 2_147_483_648.0 { number as i32 } else { i32::MIN };
            }
            count = count.saturating_add(1);
            is_in_order &= number == f64::from(count);
            Ok(())
        });
        if is_object {
            return Ok(Shape::Object);
        }
        walked?;
        if greatest <= 0 {
            return Ok(Shape::Object);
        }
        let options = &self.options;
        let is_sparse = options.sparse_ratio > 0
            && greatest > count.wrapping_mul(options.sparse_ratio)
            && greatest > options.sparse_safe;
        match (is_sparse, options.converts_sparse) {
            (true, true) => Ok(Shape::Object),
            (true, false) => Err(self.refuse(value, "excessively sparse array")),
            (false, _) if is_in_order => Ok(Shape::List(greatest)),
            (false, _) => Ok(Shape::Sparse(greatest)),
        }
    }

    fn table(&mut self, value: &Value, table: &Table, depth: i32) -> Result<()> {
        if depth > self.options.encode_depth_max.min(DEPTH_MAX) {
            return Err(self.stop(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.shape(value, table)? {
            Shape::Object => self.object(table, depth),
            Shape::List(_) if depth < WALKS_MAX => self.list(table, depth),
            Shape::List(len) | Shape::Sparse(len) => self.array(table, len, depth),
        }
    }

    fn list(&mut self, table: &Table, depth: i32) -> Result<()> {
        self.text.push(b'[');
        let mut is_first = true;
        table.for_each(|_: Value, item: Value| {
            self.comma(&mut is_first);
            self.value(&item, depth)
        })?;
        self.text.push(b']');
        Ok(())
    }

    fn array(&mut self, table: &Table, len: i32, depth: i32) -> Result<()> {
        self.text.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.text.push(b',');
            }
            let item: Value = table.raw_get(index)?;
            self.value(&item, depth)?;
        }
        self.text.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i32) -> Result<()> {
        self.text.push(b'{');
        match depth < WALKS_MAX {
            true => self.fields(table, depth)?,
            false => self.fields_one_by_one(table, depth)?,
        }
        self.text.push(b'}');
        Ok(())
    }

    fn fields(&mut self, table: &Table, depth: i32) -> Result<()> {
        let mut is_first = true;
        table.for_each(|name: Value, value: Value| {
            self.comma(&mut is_first);
            self.name(&name)?;
            self.value(&value, depth)
        })
    }

    #[inline(never)]
    fn fields_one_by_one(&mut self, table: &Table, depth: i32) -> Result<()> {
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            self.comma(&mut is_first);
            self.name(&name)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }

    /// Between two.
    fn comma(&mut self, is_first: &mut bool) {
        if !std::mem::take(is_first) {
            self.text.push(b',');
        }
    }

    /// With the colon behind it.
    #[inline(never)]
    fn name(&mut self, name: &Value) -> Result<()> {
        match name {
            Value::Number(number) => {
                self.text.push(b'"');
                self.number(name, *number)?;
                self.text.push(b'"');
            }
            Value::Integer(number) => self.text.extend_from_slice(format!("\"{number}\"").as_bytes()),
            Value::String(string) => self.string(&string.as_bytes()),
            other => return Err(self.refuse(other, "table key must be a number or string")),
        }
        self.text.push(b':');
        Ok(())
    }
}
