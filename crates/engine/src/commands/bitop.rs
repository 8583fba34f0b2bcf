//! `BITOP`: bitwise operations between strings.

use stillframe_store::{Deadline, Key, NewValue, Reach, StrRef, ValueType};

use super::walk::go_on;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::combination::{BitOperation, Combination};
use crate::state::session::Ahead;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("bitop", -4, flag::WRITE | flag::DENYOOM, Touch::Steps, bitop).reading().acl(acl::BITMAP).ahead_of_exec(combine_large).reaching(operands)
        .doc(Group::Bitmap, "2.6.0", "Perform bitwise operations between strings", "O(N)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(3, -1, 1, key_flag::RO | key_flag::ACCESS)]),
];

/// From here on values are combined part by part: their pages need not be in memory.
const LARGE_BYTES: u64 = 1 << 20;

fn operands(_: &Args<'_>, index: usize) -> Reach {
    if index == 2 {
        Reach::Nothing
    } else {
        Reach::WHOLE
    }
}

fn operation(args: &Args<'_>) -> Result<BitOperation, CmdError> {
    let operation = match args.at(1) {
        word if word.eq_ignore_ascii_case(b"AND") => BitOperation::And,
        word if word.eq_ignore_ascii_case(b"OR") => BitOperation::Or,
        word if word.eq_ignore_ascii_case(b"XOR") => BitOperation::Xor,
        word if word.eq_ignore_ascii_case(b"NOT") => BitOperation::Not,
        _ => return Err(errors::SYNTAX.into()),
    };
    if operation == BitOperation::Not && args.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    Ok(operation)
}

fn sources<'k>(ctx: &Ctx<'_>, args: &Args<'k>) -> Vec<Key<'k>> {
    (3..args.len()).map(|index| ctx.key(args, index)).collect()
}

/// Before a `BITOP` of which a source is large: makes the result, part by part.
pub fn combine_large(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (operation, keys, db) = (operation(args)?, sources(ctx, args), ctx.db());
    let mut len_bytes = 0;
    for key in &keys {
        match ctx.worker.entry(db, key)? {
            Some(entry) if entry.value_type != ValueType::String => return Ok(()),
            entry => len_bytes = entry.map_or(len_bytes, |entry| entry.value_bytes.max(len_bytes)),
        }
    }
    if len_bytes < LARGE_BYTES {
        ctx.client.ahead = None;
        return Ok(());
    }
    match ctx.client.ahead.as_deref_mut() {
        Some(Ahead::Combination(made)) if !made.result().is_complete() => go_on(made.step()),
        Some(Ahead::Combination(made)) if made.is_current(ctx.worker, db, &keys)? => Ok(()),
        _ => {
            ctx.client.ahead = None;
            let begun = Combination::begin(ctx.worker, db, operation, &keys, len_bytes)?;
            ctx.client.ahead = Some(Box::new(Ahead::Combination(begun)));
            go_on(Ok(false))
        }
    }
}

pub fn bitop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (operation, keys, db) = (operation(args)?, sources(ctx, args), ctx.db());
    let target = ctx.key(args, 2);
    if let Some(Ahead::Combination(made)) = ctx.client.ahead.take().map(|ahead| *ahead) {
        if made.is_current(ctx.worker, db, &keys)? {
            ctx.worker.set(db, &target, NewValue::Incoming(made.result()), Deadline::Clear)?;
            ctx.reply.int(made.result().len_bytes() as i64);
            return Ok(());
        }
        if !ctx.client.within.is_transaction() {
            // Somebody has changed a source just now.
            return go_on(Ok(false));
        }
    }
    let mut result = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let found = ctx.worker.get(db, key, |value| combine(operation, &mut result, &value, index == 0))?;
        ctx.looked_up(key, found.is_some());
        if found.is_none() && operation == BitOperation::And {
            result.fill(0);
        }
    }
    if result.is_empty() {
        ctx.worker.remove(db, &target)?;
    } else {
        ctx.worker.set(db, &target, NewValue::Bytes { bytes: &result, raw: true }, Deadline::Clear)?;
    }
    ctx.reply.int(result.len() as i64);
    Ok(())
}

/// Combines what there is with one more string; the shorter of the two goes on with zeros.
fn combine(operation: BitOperation, result: &mut Vec<u8>, value: &StrRef<'_>, is_first: bool) {
    if is_first {
        value.append_to(result);
        if operation == BitOperation::Not {
            result.iter_mut().for_each(|b| *b = !*b);
        }
        return;
    }
    let len = value.len() as usize;
    if result.len() < len {
        result.resize(len, 0);
    }
    let mut at = 0;
    value.chunks(0, len as u64, |chunk| {
        operation.combine(&mut result[at..], chunk);
        at += chunk.len();
    });
    if operation == BitOperation::And {
        result[len..].fill(0);
    }
}
