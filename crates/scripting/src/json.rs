//! `cjson`: values as JSON.

mod decode;
mod encode;
mod options;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Result, Table, Value};

use self::options::{InvalidNumbers, Options, DEFAULTS};
use crate::args::Args;
use crate::raise;
use crate::shared::{register, Shared};

/// A setting of a script's lasts until its run ends.
#[derive(Default)]
struct Config {
    /// With the number of the run that has set them.
    own: Cell<Option<Options>>,
}

/// Functions share the options of their table.
struct Call<'a> {
    args: Args<'a>,
    config: &'a Config,
    shared: &'a Shared,
}

impl Config {
    fn get(&self, shared: &Shared) -> Options {
        match shared.has_json_options.get() {
            true => self.own.get().unwrap_or(DEFAULTS),
            // A run has ended since.
            false => DEFAULTS,
        }
    }
}

impl Call<'_> {
    fn options(&self) -> Options {
        self.config.get(self.shared)
    }

    fn set(&self, options: Options) {
        self.config.own.set(Some(options));
        self.shared.has_json_options.set(true);
    }

    fn at_most(&self, count: usize) -> Result<()> {
        match self.args.count() <= count {
            true => Ok(()),
            false => Err(raise::bad_argument(self.args.lua, count + 1, "found too many arguments")),
        }
    }

    fn integer(&self, number: usize, value: &mut i32, least: i32, most: i32) -> Result<Value> {
        if !self.args.is_absent(number) {
            let given = self.args.int(number)?;
            if !(least..=most).contains(&given) {
                let text = format!("expected integer between {least} and {most}");
                return Err(raise::bad_argument(self.args.lua, 1, &text));
            }
            *value = given;
        }
        Ok(Value::Number(f64::from(*value)))
    }

    /// One of `names` by its index; a boolean is one as well.
    fn choice(&self, number: usize, current: usize, names: &[&str]) -> Result<usize> {
        match self.args.get(number) {
            None | Some(Value::Nil) => Ok(current),
            Some(Value::Boolean(is_true)) => Ok(usize::from(*is_true)),
            _ => {
                let given = self.args.string(number)?;
                let given = given.as_bytes();
                let given = crate::from_resp::until_zero(&given);
                names.iter().position(|name| name.as_bytes() == given).ok_or_else(|| {
                    let text = format!("invalid option '{}'", String::from_utf8_lossy(given));
                    raise::bad_argument(self.args.lua, number, &text)
                })
            }
        }
    }

    fn switch(&self, number: usize, value: &mut bool) -> Result<Value> {
        *value = self.choice(number, usize::from(*value), &["off", "on"])? == 1;
        Ok(Value::Boolean(*value))
    }
}

fn sparse_array(call: &Call) -> Result<MultiValue> {
    call.at_most(3)?;
    let mut options = call.options();
    let mut results = MultiValue::new();
    results.push_back(call.switch(1, &mut options.converts_sparse)?);
    results.push_back(call.integer(2, &mut options.sparse_ratio, 0, i32::MAX)?);
    results.push_back(call.integer(3, &mut options.sparse_safe, 0, i32::MAX)?);
    call.set(options);
    Ok(results)
}

/// An option that is a number.
fn number_option(call: &Call, field: fn(&mut Options) -> &mut i32, most: i32) -> Result<MultiValue> {
    call.at_most(1)?;
    let mut options = call.options();
    let result = call.integer(1, field(&mut options), 1, most)?;
    call.set(options);
    Ok(MultiValue::from_vec(vec![result]))
}

/// An option that is on or off.
fn switch_option(call: &Call, field: fn(&mut Options) -> &mut bool) -> Result<MultiValue> {
    call.at_most(1)?;
    let mut options = call.options();
    let result = call.switch(1, field(&mut options))?;
    call.set(options);
    Ok(MultiValue::from_vec(vec![result]))
}

fn encode_invalid_numbers(call: &Call) -> Result<MultiValue> {
    const CHOICES: [InvalidNumbers; 3] =
        [InvalidNumbers::Refused, InvalidNumbers::AsTheyAre, InvalidNumbers::Null];
    call.at_most(1)?;
    let mut options = call.options();
    let current = CHOICES.iter().position(|choice| *choice == options.invalid_numbers).unwrap_or(0);
    let chosen = call.choice(1, current, &["off", "on", "null"])?;
    options.invalid_numbers = CHOICES[chosen];
    call.set(options);
    let result = match chosen {
        2 => "null".into_lua(call.args.lua)?,
        other => Value::Boolean(other == 1),
    };
    Ok(MultiValue::from_vec(vec![result]))
}

fn one_argument(call: &Call) -> Result<()> {
    match call.args.count() {
        1 => Ok(()),
        _ => Err(raise::bad_argument(call.args.lua, 1, "expected 1 argument")),
    }
}

fn encode(call: &Call) -> Result<MultiValue> {
    one_argument(call)?;
    let value = call.args.get(1).cloned().unwrap_or(Value::Nil);
    let text = encode::encode(call.args.lua, call.shared, call.options(), &value)?;
    Ok(MultiValue::from_vec(vec![Value::String(call.args.lua.create_string(text)?)]))
}

fn decode(call: &Call) -> Result<MultiValue> {
    one_argument(call)?;
    let text = call.args.string(1)?;
    let text = text.as_bytes();
    let value = decode::decode(call.args.lua, call.shared, call.options(), &text)?;
    Ok(MultiValue::from_vec(vec![value.into_lua(call.args.lua)?]))
}

/// A table with options of its own.
pub(crate) fn table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let config = Rc::new(Config::default());
    let function = |body: fn(&Call) -> Result<MultiValue>| {
        let config = Rc::clone(&config);
        shared.function(lua, move |lua, shared, args| {
            body(&Call { args: Args::new(lua, args), config: &config, shared })
        })
    };
    let table = lua.create_table()?;
    register(
        &table,
        vec![
            ("encode", function(encode)?),
            ("decode", function(decode)?),
            ("encode_sparse_array", function(sparse_array)?),
            (
                "encode_max_depth",
                function(|call| number_option(call, |options| &mut options.encode_depth_max, i32::MAX))?,
            ),
            (
                "decode_max_depth",
                function(|call| number_option(call, |options| &mut options.decode_depth_max, i32::MAX))?,
            ),
            (
                "encode_number_precision",
                function(|call| number_option(call, |options| &mut options.precision, 14))?,
            ),
            (
                "encode_keep_buffer",
                function(|call| switch_option(call, |options| &mut options.keeps_buffer))?,
            ),
            ("encode_invalid_numbers", function(encode_invalid_numbers)?),
            (
                "decode_invalid_numbers",
                function(|call| switch_option(call, |options| &mut options.decodes_invalid_numbers))?,
            ),
            ("new", shared.function(lua, |lua, shared, _| self::table(lua, shared))?),
        ],
    )?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}
