//! Deadlines of keys.

use stillframe_store::UnixMillis;

use super::set::{invalid_expire_time, TimeFormat};
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("expire", -3, flag::WRITE | flag::FAST, Touch::OneOperation, expire).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Set a key's time to live in seconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("expireat", -3, flag::WRITE | flag::FAST, Touch::OneOperation, expireat).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.2.0", "Set the expiration for a key as a UNIX timestamp", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("expiretime", 2, flag::READONLY | flag::FAST, Touch::OneOperation, expiretime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "7.0.0", "Get the expiration Unix timestamp for a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("persist", 2, flag::WRITE | flag::FAST, Touch::OneOperation, persist).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.0", "Remove the expiration from a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpire", -3, flag::WRITE | flag::FAST, Touch::OneOperation, pexpire).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Set a key's time to live in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpireat", -3, flag::WRITE | flag::FAST, Touch::OneOperation, pexpireat).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Set the expiration for a key as a UNIX timestamp specified in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpiretime", 2, flag::READONLY | flag::FAST, Touch::OneOperation, pexpiretime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "7.0.0", "Get the expiration Unix timestamp for a key in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("pttl", 2, flag::READONLY | flag::FAST, Touch::OneOperation, pttl).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Get the time to live for a key in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("ttl", 2, flag::READONLY | flag::FAST, Touch::OneOperation, ttl).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Get the time to live for a key in seconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
];

pub fn expire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::Seconds, "expire")
}

pub fn pexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::Millis, "pexpire")
}

pub fn expireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::UnixSeconds, "expireat")
}

pub fn pexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::UnixMillis, "pexpireat")
}

/// `NX XX GT LT`: when the new deadline replaces what there is.
#[derive(Clone, Copy, Default)]
pub(super) struct Condition {
    if_none: bool,
    if_some: bool,
    if_greater: bool,
    if_less: bool,
}

impl Condition {
    fn parse(args: &Args<'_>) -> Result<Condition, CmdError> {
        let mut condition = Condition::default();
        for word in args.from(3) {
            match condition.flag(word) {
                Some(flag) => *flag = true,
                None => return Err([b"ERR Unsupported option ", errors::printed(word)].concat().into()),
            }
        }
        if condition.if_none && (condition.if_some || condition.if_greater || condition.if_less) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if condition.if_greater && condition.if_less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(condition)
    }

    /// The condition of this name, if it is one.
    pub fn one(word: &[u8]) -> Option<Condition> {
        let mut condition = Condition::default();
        condition.flag(word).map(|flag| *flag = true)?;
        Some(condition)
    }

    fn flag(&mut self, word: &[u8]) -> Option<&mut bool> {
        match word {
            _ if word.eq_ignore_ascii_case(b"NX") => Some(&mut self.if_none),
            _ if word.eq_ignore_ascii_case(b"XX") => Some(&mut self.if_some),
            _ if word.eq_ignore_ascii_case(b"GT") => Some(&mut self.if_greater),
            _ if word.eq_ignore_ascii_case(b"LT") => Some(&mut self.if_less),
            _ => None,
        }
    }

    /// No deadline counts as one infinitely far off.
    pub fn is_met(self, new: UnixMillis, old: Option<UnixMillis>) -> bool {
        !(self.if_none && old.is_some()
            || self.if_some && old.is_none()
            || self.if_greater && old.is_none_or(|old| new <= old)
            || self.if_less && old.is_some_and(|old| new >= old))
    }
}

fn set_deadline(ctx: &mut Ctx<'_>, args: &Args<'_>, format: TimeFormat, name: &str) -> CmdResult {
    let condition = Condition::parse(args)?;
    let number = integer(args.at(2))?;
    let now = ctx.worker.now();
    let factor = if format.is_in_seconds() { 1000 } else { 1 };
    let origin = if format.is_absolute() { 0 } else { now };
    let deadline = number
        .checked_mul(factor)
        .and_then(|ms| ms.checked_add(origin))
        .ok_or_else(|| invalid_expire_time(name))?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let Some(entry) = ctx.worker.entry(db, &key)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let is_met = condition.is_met(deadline, entry.deadline);
    if is_met {
        if deadline <= now {
            ctx.worker.remove(db, &key)?;
        } else {
            ctx.worker.set_deadline(db, &key, Some(deadline))?;
        }
    }
    ctx.reply.int(i64::from(is_met));
    Ok(())
}

pub fn persist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let has_deadline = ctx.worker.entry(db, &key)?.is_some_and(|entry| entry.deadline.is_some());
    if has_deadline {
        ctx.worker.set_deadline(db, &key, None)?;
    }
    ctx.reply.int(i64::from(has_deadline));
    Ok(())
}

pub fn ttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadline(ctx, args, TimeFormat::Seconds)
}

pub fn pttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadline(ctx, args, TimeFormat::Millis)
}

pub fn expiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadline(ctx, args, TimeFormat::UnixSeconds)
}

pub fn pexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadline(ctx, args, TimeFormat::UnixMillis)
}

fn reply_deadline(ctx: &mut Ctx<'_>, args: &Args<'_>, format: TimeFormat) -> CmdResult {
    let key = ctx.key(args, 1);
    let entry = ctx.worker.entry(ctx.client.db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    let number = match entry.map(|entry| entry.deadline) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let origin = if format.is_absolute() { 0 } else { ctx.worker.now() };
            let ms = deadline.saturating_sub(origin).max(0);
            if format.is_in_seconds() {
                ms.saturating_add(500) / 1000
            } else {
                ms
            }
        }
    };
    ctx.reply.int(number);
    Ok(())
}
