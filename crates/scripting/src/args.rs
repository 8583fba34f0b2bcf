//! The arguments of a function of this crate, looked at as Lua's own library does.

use mlua::{Lua, LuaString, MultiValue, Result, Value};

use crate::number::{to_i32, to_i64};
use crate::raise;

pub(crate) struct Args<'a> {
    pub(crate) lua: &'a Lua,
    values: MultiValue,
}

impl<'a> Args<'a> {
    pub(crate) fn new(lua: &'a Lua, values: MultiValue) -> Args<'a> {
        Args { lua, values }
    }

    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// Numbers count from 1.
    pub(crate) fn get(&self, number: usize) -> Option<&Value> {
        self.values.get(number - 1)
    }

    pub(crate) fn is_absent(&self, number: usize) -> bool {
        self.get(number).is_none_or(Value::is_nil)
    }

    /// A string, or a number as one.
    pub(crate) fn string(&self, number: usize) -> Result<LuaString> {
        match self.get(number) {
            Some(Value::String(string)) => Ok(string.clone()),
            value => match as_string(self.lua, value)? {
                Some(string) => Ok(string),
                None => Err(raise::bad_type(self.lua, number, "string", value)),
            },
        }
    }

    /// A number, or a string that is one.
    pub(crate) fn number(&self, number: usize) -> Result<f64> {
        let value = self.get(number);
        match as_number(self.lua, value)? {
            Some(found) => Ok(found),
            None => Err(raise::bad_type(self.lua, number, "number", value)),
        }
    }

    /// The same cut to 32 bits.
    pub(crate) fn int(&self, number: usize) -> Result<i32> {
        Ok(to_i32(self.number(number)?))
    }

    /// The same cut to 64 bits.
    pub(crate) fn integer(&self, number: usize) -> Result<i64> {
        Ok(to_i64(self.number(number)?))
    }

    pub(crate) fn integer_or(&self, number: usize, default: i64) -> Result<i64> {
        match self.is_absent(number) {
            true => Ok(default),
            false => self.integer(number),
        }
    }

    /// The same with a nil behind them.
    pub(crate) fn with_nil(&self) -> Args<'a> {
        let mut values = self.values.clone();
        values.push_back(Value::Nil);
        Args { lua: self.lua, values }
    }
}

/// A value that Lua takes for a number.
pub(crate) fn as_number(lua: &Lua, value: Option<&Value>) -> Result<Option<f64>> {
    Ok(match value {
        Some(Value::Number(number)) => Some(*number),
        Some(Value::Integer(integer)) => Some(*integer as f64),
        Some(Value::String(_)) => value.cloned().map_or(Ok(None), |value| lua.coerce_number(value))?,
        _ => None,
    })
}

/// A value that Lua takes for a string.
pub(crate) fn as_string(lua: &Lua, value: Option<&Value>) -> Result<Option<LuaString>> {
    match value {
        Some(Value::String(string)) => Ok(Some(string.clone())),
        Some(value @ (Value::Number(_) | Value::Integer(_))) => lua.coerce_string(value.clone()),
        _ => Ok(None),
    }
}
