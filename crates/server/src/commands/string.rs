//! Reading strings, and writing parts of them. Whole values are set in `set`.

use stillframe_store::{Deadline, MAX_STRING_BYTES};

use crate::command::{Args, CmdError, CmdResult};
use crate::ctx::Ctx;
use crate::errors;
use crate::number::{encode, integer};

pub fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_value(ctx, args, 1).map(drop)
}

/// Replies with the value of the key at an argument index, or null; returns whether it is there.
pub(super) fn reply_value(ctx: &mut Ctx<'_>, args: &Args<'_>, index: usize) -> Result<bool, CmdError> {
    let key = ctx.key(args, index);
    let Ctx { worker, reply, client, stats, .. } = ctx;
    let found = worker.get(client.db, &key, |value| reply.bulk_value(&value))?.is_some();
    stats.looked_up(found);
    if !found {
        reply.null();
    }
    Ok(found)
}

pub fn mget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.reply.array(args.len() - 1);
    for index in 1..args.len() {
        reply_value(ctx, args, index)?;
        if ctx.reply.out.is_over() {
            break;
        }
    }
    Ok(())
}

pub fn strlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.get(ctx.client.db, &key, |value| value.len())?;
    ctx.stats.looked_up(len.is_some());
    ctx.reply.int(len.unwrap_or(0) as i64);
    Ok(())
}

pub fn append(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key, suffix) = (ctx.db(), ctx.key(args, 1), args.at(2));
    let len = match ctx.worker.entry(db, &key)? {
        None => {
            ctx.worker.set(db, &key, encode(suffix), Deadline::Clear)?;
            suffix.len() as u64
        }
        Some(entry) => {
            check_len(ctx, entry.value_bytes, suffix.len())?;
            ctx.worker.write_range(db, &key, entry.value_bytes, suffix)?
        }
    };
    ctx.modified(db, &key);
    ctx.reply.int(len as i64);
    Ok(())
}

/// The longest string that commands may build, in bytes: `proto-max-bulk-len`, as far as the store allows.
pub(super) fn max_string_bytes(ctx: &Ctx<'_>) -> u64 {
    MAX_STRING_BYTES.min(ctx.config.settings.max_bulk_bytes as u64)
}

/// Whether `len` bytes from `offset` on fit a string.
pub(super) fn check_len(ctx: &Ctx<'_>, offset: u64, len: usize) -> CmdResult {
    match offset.checked_add(len as u64) {
        Some(end) if end <= max_string_bytes(ctx) => Ok(()),
        _ => Err(errors::TOO_LARGE.into()),
    }
}

pub fn setrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key, bytes) = (ctx.db(), ctx.key(args, 1), args.at(3));
    let Ok(offset) = u64::try_from(integer(args.at(2))?) else {
        return Err("ERR offset is out of range".into());
    };
    if bytes.is_empty() {
        let len = ctx.worker.entry(db, &key)?.map_or(0, |entry| entry.value_bytes);
        ctx.reply.int(len as i64);
        return Ok(());
    }
    check_len(ctx, offset, bytes.len())?;
    let len = ctx.worker.write_range(db, &key, offset, bytes)?;
    ctx.modified(db, &key);
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn getrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, stats, .. } = ctx;
    let is_backwards = start < 0 && end < 0 && start > end;
    let found = worker.get(client.db, &key, |value| match clamp(start, end, value.len()) {
        Some((start, end)) if !is_backwards => reply.bulk_range(&value, start, end + 1),
        _ => reply.bulk(b""),
    })?;
    stats.looked_up(found.is_some());
    if found.is_none() {
        reply.bulk(b"");
    }
    Ok(())
}

/// First and last index of a range given from either end of something of this length; `None` if it is empty.
/// What lies before the start is moved to it.
pub(super) fn clamp(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { (len.saturating_add(index)).max(0) } else { index };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end).then_some((start as u64, end as u64))
}

#[cfg(test)]
mod tests {
    use super::clamp;

    #[test]
    fn ranges_are_clamped_as_redis_clamps_them() {
        assert_eq!(clamp(0, -1, 5), Some((0, 4)));
        assert_eq!(clamp(-3, -1, 5), Some((2, 4)));
        assert_eq!(clamp(-100, 100, 5), Some((0, 4)));
        assert_eq!(clamp(i64::MIN, i64::MAX, 5), Some((0, 4)));
        assert_eq!(clamp(-100, -200, 5), Some((0, 0)));
        assert_eq!(clamp(-200, -100, 5), Some((0, 0)));
        assert_eq!(clamp(5, 10, 5), None);
        assert_eq!(clamp(3, 2, 5), None);
        assert_eq!(clamp(0, 0, 0), None);
    }
}
