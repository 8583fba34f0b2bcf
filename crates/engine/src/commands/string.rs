//! Reading strings, and writing parts of them. Whole values are set in `set`.

use std::ops::Range;

use stillframe_store::{Deadline, OpError, Reach, StrRef, ValueType, MAX_STRING_BYTES, SENDING_MIN_BYTES};

use super::walk::leave_to_readers;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::encode;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("append", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, append).event("append").acl(acl::STRING).ahead(leave_to_readers).reaching(appended_range)
        .doc(Group::String, "2.0.0", "Append a value to a key", "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("get", 2, flag::READONLY | flag::FAST, Touch::OneOperation, get).acl(acl::STRING).reaching(sends_whole)
        .doc(Group::String, "1.0.0", "Get the value of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("getrange", 4, flag::READONLY, Touch::OneOperation, getrange).acl(acl::STRING).reaching(sent_range)
        .doc(Group::String, "2.4.0", "Get a substring of the string stored at a key", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .quick(),
    Command::new("mget", -2, flag::READONLY | flag::FAST, Touch::EachKey, mget).acl(acl::STRING).reaching(sends_whole)
        .doc(Group::String, "1.0.0", "Get the values of all the given keys", "O(N) where N is the number of keys to retrieve.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["request_policy:multi_shard"]),
    Command::new("setrange", 4, flag::WRITE | flag::DENYOOM, Touch::OneOperation, setrange).event("setrange").acl(acl::STRING).ahead(leave_to_readers).reaching(written_range)
        .doc(Group::String, "2.2.0", "Overwrite part of a string at key starting at the specified offset", "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("strlen", 2, flag::READONLY | flag::FAST, Touch::OneOperation, strlen).acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "2.2.0", "Get the length of the value stored in a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("substr", 4, flag::READONLY, Touch::OneOperation, getrange).acl(acl::STRING).reaching(sent_range)
        .doc(Group::String, "1.0.0", "Get a substring of the string stored at a key", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .quick(),
];

pub fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_value(ctx, args, 1).map(drop)
}

/// The whole value is sent.
pub(super) fn sends_whole(_: &Args<'_>, _: usize) -> Reach {
    Reach::SENT
}

/// Replies with the value of the key at an argument index, or null; returns whether it is there.
pub(super) fn reply_value(ctx: &mut Ctx<'_>, args: &Args<'_>, index: usize) -> Result<bool, CmdError> {
    let found = reply_part(ctx, args, index, |len| 0..len)?;
    if !found {
        ctx.reply.null();
    }
    Ok(found)
}

/// Replies with the bytes that `wanted` chooses, by its length, of the value of the key at an argument index. If there is no
/// such key it replies nothing and returns false.
fn reply_part(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    wanted: impl Fn(u64) -> Range<u64>,
) -> Result<bool, CmdError> {
    let key = ctx.key(args, index);
    let Ctx { worker, reply, client, .. } = ctx;
    let sends_values = reply.out.sends_values();
    let is_sent = |bytes: &Range<u64>| sends_values && bytes.end - bytes.start >= SENDING_MIN_BYTES;
    let copied = |len| Some(wanted(len)).filter(|bytes| !is_sent(bytes));
    let mut is_left = false;
    let answer = |value: StrRef<'_>| match copied(value.len()) {
        Some(bytes) => reply.bulk_range(&value, bytes.start, bytes.end),
        None => is_left = true,
    };
    let mut found =
        worker.string_at(client.db, &key).get_part(|len| copied(len).unwrap_or(0..0), answer)?.is_some();
    if is_left {
        worker.counting().look_anew();
        found = match worker.string_at(client.db, &key).begin_sending(&wanted)? {
            Some(value) => {
                reply.bulk_sending(value);
                true
            }
            // Too many are being sent, or somebody has changed it just now.
            None => {
                let answer = |value: StrRef<'_>| {
                    let bytes = wanted(value.len());
                    reply.bulk_range(&value, bytes.start, bytes.end);
                };
                worker.counting().look_anew();
                worker.string_at(client.db, &key).get_part(&wanted, answer)?.is_some()
            }
        };
    }
    ctx.looked_up(&key, found);
    Ok(found)
}

pub fn mget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.reply.array(args.len() - 1);
    for index in 1..args.len() {
        match reply_value(ctx, args, index) {
            Err(CmdError::Store(OpError::WrongType)) => {
                ctx.stats.looked_up(true);
                ctx.reply.null();
            }
            result => drop(result?),
        }
        if ctx.reply.out.is_over() {
            break;
        }
    }
    Ok(())
}

pub fn strlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.string_at(ctx.client.db, &key).get_part(|_| 0..0, |value| value.len())?;
    ctx.looked_up(&key, len.is_some());
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
            entry.must_be(ValueType::String)?;
            check_len(ctx, entry.value_bytes, suffix.len())?;
            ctx.worker.string_at(db, &key).write_range(entry.value_bytes, suffix)?
        }
    };
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
    let fits = check_len(ctx, offset, bytes.len());
    if bytes.is_empty() || fits.is_err() {
        let entry = ctx.worker.entry(db, &key)?;
        entry.map_or(Ok(()), |entry| entry.must_be(ValueType::String))?;
        if !bytes.is_empty() {
            return fits;
        }
        ctx.reply.int(entry.map_or(0, |entry| entry.value_bytes) as i64);
        return Ok(());
    }
    let len = ctx.worker.string_at(db, &key).write_range(offset, bytes)?;
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn getrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    let is_backwards = start < 0 && end < 0 && start > end;
    let wanted = |len| match clamp(start, end, len) {
        Some((start, end)) if !is_backwards => start..end + 1,
        _ => 0..0,
    };
    if !reply_part(ctx, args, 1, wanted)? {
        ctx.reply.bulk(b"");
    }
    Ok(())
}

/// What `GETRANGE` sends; nothing if its arguments are no numbers.
pub fn sent_range(args: &Args<'_>, _: usize) -> Reach {
    match (integer(args.at(2)), integer(args.at(3))) {
        (Ok(first), Ok(last)) => Reach::Send { first, last },
        _ => Reach::Nothing,
    }
}

fn written_range(args: &Args<'_>, _: usize) -> Reach {
    match integer(args.at(2)).ok().and_then(|offset| u64::try_from(offset).ok()) {
        Some(offset) => Reach::Write { offset, len_bytes: args.len_of(3) as u64 },
        None => Reach::Nothing,
    }
}

fn appended_range(args: &Args<'_>, _: usize) -> Reach {
    Reach::Append { len_bytes: args.len_of(2) as u64 }
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
