//! `bit`: operations on 32 bits.

use std::rc::Rc;

use mlua::{Lua, Result, Table};

use crate::args::Args;
use crate::shared::{register, Shared};

/// Added to a number, it leaves the low 32 bits of the whole number next to it in the low half of the sum: 2^52 + 2^51.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

fn operand(args: &Args, number: usize) -> Result<u32> {
    Ok((args.number(number)? + ROUNDING).to_bits() as u32)
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

fn combine(args: &Args, operation: fn(u32, u32) -> u32) -> Result<f64> {
    let mut bits = operand(args, 1)?;
    // From the last on, as the original reads them: it decides which bad argument is named.
    for number in (2..=args.count()).rev() {
        bits = operation(bits, operand(args, number)?);
    }
    Ok(signed(bits))
}

fn shift(args: &Args, operation: fn(u32, u32) -> u32) -> Result<f64> {
    let bits = operand(args, 1)?;
    Ok(signed(operation(bits, operand(args, 2)? & 31)))
}

fn tohex(args: &Args) -> Result<String> {
    let bits = operand(args, 1)?;
    let digit_count = match args.count() {
        0 | 1 => 8,
        _ => operand(args, 2)? as i32,
    };
    let width = (digit_count.unsigned_abs().min(8)) as usize;
    let text = match digit_count < 0 {
        true => format!("{bits:08X}"),
        false => format!("{bits:08x}"),
    };
    Ok(text[8 - width..].to_owned())
}

pub(crate) fn table(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let table = lua.create_table()?;
    let unary = |operation: fn(u32) -> u32| {
        shared.function(lua, move |lua, _, args| Ok(signed(operation(operand(&Args::new(lua, args), 1)?))))
    };
    let many = |operation: fn(u32, u32) -> u32| {
        shared.function(lua, move |lua, _, args| combine(&Args::new(lua, args), operation))
    };
    let shifting = |operation: fn(u32, u32) -> u32| {
        shared.function(lua, move |lua, _, args| shift(&Args::new(lua, args), operation))
    };
    register(
        &table,
        vec![
            ("tobit", unary(|bits| bits)?),
            ("bnot", unary(|bits| !bits)?),
            ("band", many(|a, b| a & b)?),
            ("bor", many(|a, b| a | b)?),
            ("bxor", many(|a, b| a ^ b)?),
            ("lshift", shifting(|bits, count| bits << count)?),
            ("rshift", shifting(|bits, count| bits >> count)?),
            ("arshift", shifting(|bits, count| (bits as i32 >> count) as u32)?),
            ("rol", shifting(u32::rotate_left)?),
            ("ror", shifting(u32::rotate_right)?),
            ("bswap", unary(u32::swap_bytes)?),
            ("tohex", shared.function(lua, |lua, _, args| tohex(&Args::new(lua, args)))?),
        ],
    )?;
    Ok(table)
}
