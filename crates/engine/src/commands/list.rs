//! Lists: items at the ends, by index, and by what they are.

use std::cell::RefCell;
use std::ops::ControlFlow;

use stillframe_store::{Bytes, End, Insertion, Setting};

use crate::command::operand::{integer, positive};
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, Shape};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::Reply;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("lindex", 3, flag::READONLY, Touch::OneOperation, lindex).acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Get an element from a list by its index", "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("linsert", 5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, linsert).acl(acl::LIST).receives(|index| index >= 3)
        .doc(Group::List, "2.2.0", "Insert an element before or after another element in a list", "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("llen", 2, flag::READONLY | flag::FAST, Touch::OneOperation, llen).acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Get the length of a list", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("lmove", 5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, lmove).acl(acl::LIST)
        .doc(Group::List, "6.2.0", "Pop an element from a list, push it to another list and return it", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("lmpop", -4, flag::WRITE | flag::MOVABLEKEYS, Touch::OneOperation, lmpop).acl(acl::LIST)
        .doc(Group::List, "7.0.0", "Pop elements from a list", "O(N+M) where N is the number of provided keys and M is the number of elements returned.")
        .keys(&[KeySpec::counted(1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("lpop", -2, flag::WRITE | flag::FAST, Touch::OneOperation, lpop).acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Remove and get the first elements in a list", "O(N) where N is the number of elements returned")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("lpos", -3, flag::READONLY, Touch::OneOperation, lpos).acl(acl::LIST).receives(|index| index == 2)
        .doc(Group::List, "6.0.6", "Return the index of matching elements on a list", "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("lpush", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, lpush).acl(acl::LIST).receives(|index| index >= 2)
        .doc(Group::List, "1.0.0", "Prepend one or multiple elements to a list", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("lpushx", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, lpushx).acl(acl::LIST).receives(|index| index >= 2)
        .doc(Group::List, "2.2.0", "Prepend an element to a list, only if the list exists", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("lrange", 4, flag::READONLY, Touch::OneOperation, lrange).acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Get a range of elements from a list", "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("lrem", 4, flag::WRITE, Touch::OneOperation, lrem).acl(acl::LIST).receives(|index| index == 3)
        .doc(Group::List, "1.0.0", "Remove elements from a list", "O(N+M) where N is the length of the list and M is the number of elements removed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("lset", 4, flag::WRITE | flag::DENYOOM, Touch::OneOperation, lset).acl(acl::LIST).receives(|index| index == 3)
        .doc(Group::List, "1.0.0", "Set the value of an element in a list by its index", "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("ltrim", 4, flag::WRITE, Touch::OneOperation, ltrim).event("ltrim").acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Trim a list to the specified range", "O(N) where N is the number of elements to be removed by the operation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("rpop", -2, flag::WRITE | flag::FAST, Touch::OneOperation, rpop).acl(acl::LIST)
        .doc(Group::List, "1.0.0", "Remove and get the last elements in a list", "O(N) where N is the number of elements returned")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("rpoplpush", 3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, rpoplpush).acl(acl::LIST)
        .doc(Group::List, "1.2.0", "Remove the last element in a list, prepend it to another list and return it", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("rpush", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, rpush).acl(acl::LIST).receives(|index| index >= 2)
        .doc(Group::List, "1.0.0", "Append one or multiple elements to a list", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("rpushx", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, rpushx).acl(acl::LIST).receives(|index| index >= 2)
        .doc(Group::List, "2.2.0", "Append an element to a list, only if the list exists", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
];

fn push(ctx: &mut Ctx<'_>, args: &Args<'_>, end: End, only_if_exists: bool) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let len = if args.len() == 3 {
        ctx.worker.list_at(db, &key).push(end, &[args.bytes(2)], only_if_exists)?
    } else {
        let items: Vec<Bytes<'_>> = args.bytes_from(2).collect();
        ctx.worker.list_at(db, &key).push(end, &items, only_if_exists)?
    };
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn lpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    push(ctx, args, End::Left, false)
}

pub fn rpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    push(ctx, args, End::Right, false)
}

pub fn lpushx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    push(ctx, args, End::Left, true)
}

pub fn rpushx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    push(ctx, args, End::Right, true)
}

fn pop(ctx: &mut Ctx<'_>, args: &Args<'_>, end: End, name: &str) -> CmdResult {
    if args.len() > 3 {
        return Err(errors::wrong_arity(name).into());
    }
    let count = args.get(2).map(positive).transpose()?;
    let found = pop_into(ctx, args, 1, (end, count.unwrap_or(1) as u64), |reply, popped| {
        if count.is_some() {
            reply.array(popped);
        }
    })?;
    match (found, count) {
        (true, _) => {}
        (false, None) => ctx.reply.null(),
        (false, Some(_)) => ctx.reply.null_array(),
    }
    Ok(())
}

pub fn lpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop(ctx, args, End::Left, "lpop")
}

pub fn rpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop(ctx, args, End::Right, "rpop")
}

pub fn llen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.list_at(ctx.client.db, &key).len()?;
    ctx.looked_up(&key, len > 0);
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn lindex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.list_at(ctx.client.db, &key).len()?;
    ctx.looked_up(&key, len > 0);
    if len == 0 {
        ctx.reply.null();
        return Ok(());
    }
    let index = integer(args.at(2))?;
    let Ctx { worker, reply, client, .. } = ctx;
    let mut is_found = false;
    worker.counting().look_anew();
    worker.list_at(client.db, &key).send_index(index, |item| {
        is_found = true;
        reply.bulk_given(item);
    })?;
    if !is_found {
        ctx.reply.null();
    }
    Ok(())
}

pub fn lset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if ctx.worker.list_at(db, &key).len()? == 0 {
        return Err(errors::NO_SUCH_KEY.into());
    }
    match ctx.worker.list_at(db, &key).set(integer(args.at(2))?, args.bytes(3))? {
        Setting::Done => ctx.reply.ok(),
        Setting::OutOfRange => return Err(errors::OUT_OF_RANGE.into()),
        Setting::NoList => return Err(errors::NO_SUCH_KEY.into()),
    }
    Ok(())
}

pub fn linsert(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let is_before = args.is(2, "BEFORE");
    if !is_before && !args.is(2, "AFTER") {
        return Err(errors::SYNTAX.into());
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let len = match ctx.worker.list_at(db, &key).insert(is_before, args.bytes(3), args.bytes(4))? {
        Insertion::NoList => 0,
        Insertion::NoPivot => -1,
        Insertion::Done(len) => len as i64,
    };
    ctx.reply.int(len);
    Ok(())
}

pub fn lrem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let count = integer(args.at(2))?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    let removed = ctx.worker.list_at(db, &key).remove(count, args.bytes(3))?;
    ctx.count_as(before, removed);
    ctx.reply.int(removed as i64);
    Ok(())
}

pub fn ltrim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let (before, len) = (ctx.worker.change_count(), ctx.worker.list_at(db, &key).len()?);
    ctx.worker.list_at(db, &key).trim(start, stop)?;
    // Its last operation: with one more after it, it might begin anew.
    ctx.count_as(before, len - kept_by_trim(start, stop, len));
    ctx.reply.ok();
    Ok(())
}

/// How many items of a list of so many `LTRIM` keeps.
fn kept_by_trim(start: i64, stop: i64, len: u64) -> u64 {
    let len = len as i64;
    let from_left = |index: i64| if index < 0 { len.saturating_add(index) } else { index };
    let (first, last) = (from_left(start).max(0), from_left(stop).min(len - 1));
    (last.saturating_sub(first) + 1).max(0) as u64
}

pub fn lrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let key = ctx.key(args, 1);
    if !stream::is_short(start, stop) {
        let len = ctx.worker.list_at(ctx.client.db, &key).len()?;
        if let Some((first, last)) = super::string::clamp(start, stop, len) {
            let shape = Shape::Items { start: first, count: last - first + 1 };
            if stream::begin(ctx, key.bytes, last - first + 1, shape) {
                return Ok(());
            }
        }
    }
    let Ctx { worker, reply, client, .. } = ctx;
    worker.counting().look_anew();
    let reply = RefCell::new(reply);
    let begin = |count: u64| reply.borrow_mut().array(count as usize);
    let found = worker.list_at(client.db, &key).send_range(start, stop, begin, |item| {
        let mut reply = reply.borrow_mut();
        reply.bulk_given(item);
        if reply.out.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if !found {
        ctx.reply.array(0);
    }
    ctx.looked_up(&key, found);
    Ok(())
}

/// What an `LPOS` asks for.
struct PosOptions {
    /// The first match counts as 1, or as -1 from the right.
    rank: i64,
    count: Option<u64>,
    most_compared: u64,
}

impl PosOptions {
    fn parse(args: &Args<'_>) -> Result<PosOptions, CmdError> {
        let mut options = PosOptions { rank: 1, count: None, most_compared: u64::MAX };
        let not_negative = |text: &[u8], error: &'static str| {
            parse_i64(text).and_then(|number| u64::try_from(number).ok()).ok_or(CmdError::from(error))
        };
        let mut index = 3;
        while index < args.len() {
            let Some(value) = args.get(index + 1) else { return Err(errors::SYNTAX.into()) };
            if args.is(index, "RANK") {
                options.rank = integer(value)?;
                if options.rank == 0 {
                    return Err(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                                or use negative to start from the end of the list"
                            .into(),
                    );
                }
            } else if args.is(index, "COUNT") {
                options.count = Some(not_negative(value, "ERR COUNT can't be negative")?);
            } else if args.is(index, "MAXLEN") {
                let most = not_negative(value, "ERR MAXLEN can't be negative")?;
                options.most_compared = if most == 0 { u64::MAX } else { most };
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 2;
        }
        Ok(options)
    }
}

pub fn lpos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let PosOptions { rank, count, most_compared } = PosOptions::parse(args)?;
    let key = ctx.key(args, 1);
    // The lowest of all ranks has no opposite: Redis skips nothing then and counts nothing.
    let (counts, first) = rank.checked_abs().map_or((false, 1), |first| (true, first as u64));
    let wanted = count.map_or(1, |count| if count == 0 || !counts { u64::MAX } else { count });
    let (mut skipped, mut found) = (first - 1, Vec::new());
    let is_there =
        ctx.worker.list_at(ctx.client.db, &key).pos(args.bytes(2), rank > 0, most_compared, |index| {
            match skipped {
                0 => found.push(index),
                _ => skipped -= 1,
            }
            (found.len() as u64) < wanted
        })?;
    ctx.looked_up(&key, is_there);
    if count.is_some() {
        ctx.reply.array(found.len());
    } else if found.is_empty() {
        ctx.reply.null();
    }
    found.into_iter().for_each(|index| ctx.reply.int(index as i64));
    Ok(())
}

/// An end of a list by its name.
pub(super) fn end_argument(args: &Args<'_>, index: usize) -> Result<End, CmdError> {
    if args.is(index, "LEFT") {
        Ok(End::Left)
    } else if args.is(index, "RIGHT") {
        Ok(End::Right)
    } else {
        Err(errors::SYNTAX.into())
    }
}

/// Moves an item from the list at argument 1 to that at argument 2; whether there was one. Then it is the reply.
pub(super) fn move_item(ctx: &mut Ctx<'_>, args: &Args<'_>, from: End, to: End) -> Result<bool, CmdError> {
    let (db, source, target) = (ctx.db(), ctx.key(args, 1), ctx.key(args, 2));
    let before = ctx.worker.change_count();
    let Ctx { worker, reply, .. } = ctx;
    let is_moved =
        worker.list_at(db, &source).send_moved(from, (&target, to), |item| reply.bulk_given(item))?;
    ctx.count_as(before, u64::from(is_moved));
    Ok(is_moved)
}

pub fn lmove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (from, to) = (end_argument(args, 3)?, end_argument(args, 4)?);
    if !move_item(ctx, args, from, to)? {
        ctx.reply.null();
    }
    Ok(())
}

pub fn rpoplpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if !move_item(ctx, args, End::Right, End::Left)? {
        ctx.reply.null();
    }
    Ok(())
}

/// What an `LMPOP` asks for, whose number of keys is at an index.
pub(super) struct PopOptions {
    pub key_count: usize,
    pub end: End,
    pub count: u64,
}

impl PopOptions {
    pub fn parse(args: &Args<'_>, at: usize) -> Result<PopOptions, CmdError> {
        let at_least_one = |text: &[u8], error: &'static str| {
            parse_i64(text).filter(|number| *number >= 1).ok_or(CmdError::from(error))
        };
        let key_count = at_least_one(args.at(at), "ERR numkeys should be greater than 0")?;
        let key_count = usize::try_from(key_count).unwrap_or(usize::MAX);
        let end_index = key_count.checked_add(at + 1).filter(|index| *index < args.len());
        let Some(end_index) = end_index else { return Err(errors::SYNTAX.into()) };
        let end = end_argument(args, end_index)?;
        let mut count = None;
        let mut index = end_index + 1;
        while index < args.len() {
            if count.is_some() || !args.is(index, "COUNT") || index + 1 >= args.len() {
                return Err(errors::SYNTAX.into());
            }
            count = Some(at_least_one(args.at(index + 1), "ERR count should be greater than 0")?);
            index += 2;
        }
        Ok(PopOptions { key_count, end, count: count.unwrap_or(1) as u64 })
    }
}

/// Pops items of the list at an argument and replies with its name and them; false if there is none.
pub(super) fn pop_named(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    end: End,
    count: u64,
) -> Result<bool, CmdError> {
    let key = args.at(index);
    pop_into(ctx, args, index, (end, count), |reply, popped| {
        reply.array(2);
        reply.bulk(key);
        reply.array(popped);
    })
}

/// Pops one item and replies with the name of its list and with it; false if there is none.
pub(super) fn pop_one_named(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    end: End,
) -> Result<bool, CmdError> {
    let key = args.at(index);
    pop_into(ctx, args, index, (end, 1), |reply, _| {
        reply.array(2);
        reply.bulk(key);
    })
}

/// Pops items of the list at an argument; the reply is them, after what `begin` writes, which is told how many they are.
fn pop_into(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    (end, count): (End, u64),
    begin: impl Fn(&mut Reply<'_>, usize),
) -> Result<bool, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, index));
    let before = ctx.worker.change_count();
    let Ctx { worker, reply, .. } = ctx;
    let reply = RefCell::new(reply);
    let mut popped = 0;
    let begin = |count: u64| begin(&mut reply.borrow_mut(), count as usize);
    let found = worker.list_at(db, &key).send_popped(end, count, begin, |item| {
        reply.borrow_mut().bulk_given(item);
        popped += 1;
    })?;
    ctx.count_as(before, popped);
    Ok(found)
}

pub fn lmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = PopOptions::parse(args, 1)?;
    for index in 2..2 + options.key_count {
        if pop_named(ctx, args, index, options.end, options.count)? {
            return Ok(());
        }
    }
    ctx.reply.null_array();
    Ok(())
}
