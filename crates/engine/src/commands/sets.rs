//! Sets: members that are added, removed, looked at and drawn. Combinations are in `set_combine`.

use std::cell::RefCell;
use std::ops::ControlFlow;

use stillframe_store::{Bytes, Draw};

use super::random::{drawn, reply_drawn};
use super::scan::{ScanOptions, MAX_CURSOR};
use crate::command::operand::{integer_in, positive};
use crate::command::{acl, flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, Shape};
use crate::protocol::args::Args;
use crate::protocol::collected::Collected;
use crate::protocol::errors;
use crate::state::drawing::Drawn;
use crate::text::number::parse_cursor;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("sadd", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, sadd).element(2).acl(acl::SET).receives_names(|index| index >= 2)
        .doc(Group::Set, "1.0.0", "Add one or more members to a set", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("scard", 2, flag::READONLY | flag::FAST, Touch::OneOperation, scard).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Get the number of members in a set", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("sismember", 3, flag::READONLY | flag::FAST, Touch::OneOperation, sismember).element(2).acl(acl::SET).receives_names(|index| index >= 2)
        .doc(Group::Set, "1.0.0", "Determine if a given value is a member of a set", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("smembers", 2, flag::READONLY, Touch::OneOperation, smembers).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Get all the members in a set", "O(N) where N is the set cardinality.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("smismember", -3, flag::READONLY | flag::FAST, Touch::OneOperation, smismember).element(2).acl(acl::SET).receives_names(|index| index >= 2)
        .doc(Group::Set, "6.2.0", "Returns the membership associated with the given elements for a set", "O(N) where N is the number of elements being checked for membership")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("smove", 4, flag::WRITE | flag::FAST, Touch::OneOperation, smove).acl(acl::SET).receives_names(|index| index == 3)
        .doc(Group::Set, "1.0.0", "Move a member from one set to another", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("spop", -2, flag::WRITE | flag::FAST, Touch::OneOperation, spop).event("spop").acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Remove and return one or multiple random members from a set", "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)])
        .tips(&["nondeterministic_output"]),
    Command::new("srandmember", -2, flag::READONLY, Touch::Of(drawn), srandmember).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Get one or multiple random members from a set", "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("srem", -3, flag::WRITE | flag::FAST, Touch::OneOperation, srem).element(2).acl(acl::SET).receives_names(|index| index >= 2)
        .doc(Group::Set, "1.0.0", "Remove one or more members from a set", "O(N) where N is the number of members to be removed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("sscan", -3, flag::READONLY, Touch::OneOperation, sscan).acl(acl::SET)
        .doc(Group::Set, "2.8.0", "Incrementally iterate Set elements", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
];

pub fn sadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let added = if args.len() == 3 {
        ctx.worker.set_at(db, &key).add(&[args.bytes(2)])?
    } else {
        let members: Vec<Bytes<'_>> = args.bytes_from(2).collect();
        ctx.worker.set_at(db, &key).add(&members)?
    };
    ctx.reply.int(added as i64);
    Ok(())
}

pub fn srem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let (members, before): (Vec<Bytes<'_>>, u64) = (args.bytes_from(2).collect(), ctx.worker.change_count());
    let removed = ctx.worker.set_at(db, &key).remove(&members)?;
    ctx.count_as(before, removed);
    ctx.reply.int(removed as i64);
    Ok(())
}

pub fn smove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, from, to) = (ctx.db(), ctx.key(args, 1), ctx.key(args, 2));
    let is_moved = ctx.worker.set_at(db, &from).move_to(&to, args.bytes(3))?;
    ctx.reply.int(i64::from(is_moved));
    Ok(())
}

pub fn scard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.set_at(ctx.client.db, &key).len()?;
    ctx.looked_up(&key, len > 0);
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn sismember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    let members = [args.bytes(2)].into_iter();
    let found =
        worker.set_at(client.db, &key).contains(members, |_, is_there| reply.int(i64::from(is_there)))?;
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn smismember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    reply.array(args.len() - 2);
    let found = worker
        .set_at(client.db, &key)
        .contains(args.bytes_from(2), |_, is_there| reply.int(i64::from(is_there)))?;
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn smembers(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.set_at(ctx.client.db, &key).len()?;
    if stream::begin(ctx, key.bytes, len, Shape::Members) {
        return Ok(());
    }
    let Ctx { worker, reply, client, .. } = ctx;
    worker.counting().look_anew();
    let reply = RefCell::new(reply);
    let begin = |count: u64| reply.borrow_mut().set(count as usize);
    let found = worker.set_at(client.db, &key).send_all(begin, |member| {
        let mut reply = reply.borrow_mut();
        reply.bulk_given(member);
        if reply.out.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if !found {
        ctx.reply.set(0);
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn spop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() > 3 {
        return Err(errors::SYNTAX.into());
    }
    let count = args.get(2).map(positive).transpose()?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    let Ctx { worker, reply, .. } = ctx;
    let reply = RefCell::new(reply);
    let begin = |popped: u64| {
        if count.is_some() {
            reply.borrow_mut().set(popped as usize);
        }
    };
    let mut popped = 0;
    let found = worker.set_at(db, &key).send_popped(count.unwrap_or(1) as u64, begin, |member| {
        reply.borrow_mut().bulk_given(member);
        popped += 1;
    })?;
    match (found, count) {
        (true, _) => ctx.count_as(before, popped),
        (false, None) => ctx.reply.null(),
        (false, Some(_)) => ctx.reply.set(0),
    }
    Ok(())
}

pub fn srandmember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() > 3 {
        return Err(errors::SYNTAX.into());
    }
    let count = args.get(2).map(|text| integer_in(text, -i64::MAX..=i64::MAX)).transpose()?;
    let key = ctx.key(args, 1);
    if let Some(count @ ..0) = count {
        let has_members = ctx.worker.set_at(ctx.client.db, &key).len()? > 0;
        ctx.looked_up(&key, has_members);
        let count = if has_members { count.unsigned_abs() } else { 0 };
        return reply_drawn(ctx, key.bytes, Drawn::Members, count);
    }
    let draw = Draw::Distinct(count.map_or(1, |count| count as u64));
    let Ctx { worker, reply, client, .. } = ctx;
    let reply = RefCell::new(reply);
    let begin = |drawn: u64| {
        if count.is_some() {
            reply.borrow_mut().array(drawn as usize);
        }
    };
    let found = worker.set_at(client.db, &key).send_random(draw, begin, |member| {
        let mut reply = reply.borrow_mut();
        reply.bulk_given(member);
        if reply.out.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if !found {
        match count {
            None => ctx.reply.null(),
            Some(_) => ctx.reply.array(0),
        }
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn sscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(cursor) = parse_cursor(args.at(2)) else { return Err("ERR invalid cursor".into()) };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    // Whether the options are right is only looked at where there is a set.
    let options = ScanOptions::parse(args, 3, false);
    let count = options.as_ref().map_or(1, |options| options.count);
    let is_wanted = |name: &[u8]| options.as_ref().is_ok_and(|options| options.pattern.matches(name));
    let mut found = Collected::new(&ctx.reply);
    let next = ctx.worker.set_at(db, &key).scan(cursor.min(MAX_CURSOR), count, |member| {
        if is_wanted(member) {
            found.push(member);
        }
    })?;
    if next.is_some() {
        options?;
    }
    ctx.looked_up(&key, next.is_some());
    ctx.reply.array(2);
    ctx.reply.bulk_int(next.unwrap_or(0) as i64);
    found.reply(&mut ctx.reply);
    Ok(())
}
