//! Taking from lists and sorted sets, or waiting until one of them holds something.

use stillframe_store::{End, ValueType};

use crate::command::operand::timeout;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::{list, sorted_set_pop};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::waiting::{take_or_wait, Blocking};
use crate::protocol::args::Args;
use crate::protocol::reply::Reply;

const TAKEN: u32 = key_flag::RW | key_flag::ACCESS | key_flag::DELETE;
const INSERTED: u32 = key_flag::RW | key_flag::INSERT;

// Each changes one key, or moves an item, in one operation of the store: they may begin anew.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("blmove", 6, flag::WRITE | flag::DENYOOM | flag::NOSCRIPT | flag::BLOCKING, Touch::OneOperation, blmove).acl(acl::LIST)
        .doc(Group::List, "6.2.0", "Pop an element from a list, push it to another list and return it; or block until one is available", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, TAKEN), KeySpec::range(2, 0, 1, INSERTED)]),
    Command::new("blmpop", -5, flag::WRITE | flag::BLOCKING | flag::MOVABLEKEYS, Touch::OneOperation, blmpop).acl(acl::LIST)
        .doc(Group::List, "7.0.0", "Pop elements from a list, or block until one is available", "O(N+M) where N is the number of provided keys and M is the number of elements returned.")
        .keys(&[KeySpec::counted(2, TAKEN)]),
    Command::new("blpop", -3, flag::WRITE | flag::NOSCRIPT | flag::BLOCKING, Touch::OneOperation, blpop).acl(acl::LIST)
        .doc(Group::List, "2.0.0", "Remove and get the first element in a list, or block until one is available", "O(N) where N is the number of provided keys.")
        .keys(&[KeySpec::range(1, -2, 1, TAKEN)]),
    Command::new("brpop", -3, flag::WRITE | flag::NOSCRIPT | flag::BLOCKING, Touch::OneOperation, brpop).acl(acl::LIST)
        .doc(Group::List, "2.0.0", "Remove and get the last element in a list, or block until one is available", "O(N) where N is the number of provided keys.")
        .keys(&[KeySpec::range(1, -2, 1, TAKEN)]),
    Command::new("brpoplpush", 4, flag::WRITE | flag::DENYOOM | flag::NOSCRIPT | flag::BLOCKING, Touch::OneOperation, brpoplpush).acl(acl::LIST)
        .doc(Group::List, "2.2.0", "Pop an element from a list, push it to another list and return it; or block until one is available", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, TAKEN), KeySpec::range(2, 0, 1, INSERTED)]),
    Command::new("bzmpop", -5, flag::WRITE | flag::BLOCKING | flag::MOVABLEKEYS, Touch::OneOperation, bzmpop).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "7.0.0", "Remove and return members with scores in a sorted set or block until one is available", "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.")
        .keys(&[KeySpec::counted(2, TAKEN)]),
    Command::new("bzpopmax", -3, flag::WRITE | flag::NOSCRIPT | flag::BLOCKING | flag::FAST, Touch::OneOperation, bzpopmax).acl(acl::SORTEDSET).event("zpopmax")
        .doc(Group::SortedSet, "5.0.0", "Remove and return the member with the highest score from one or more sorted sets, or block until one is available", "O(log(N)) with N being the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, -2, 1, TAKEN)]),
    Command::new("bzpopmin", -3, flag::WRITE | flag::NOSCRIPT | flag::BLOCKING | flag::FAST, Touch::OneOperation, bzpopmin).acl(acl::SORTEDSET).event("zpopmin")
        .doc(Group::SortedSet, "5.0.0", "Remove and return the member with the lowest score from one or more sorted sets, or block until one is available", "O(log(N)) with N being the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, -2, 1, TAKEN)]),
];

/// Of a command that replies with an array: without one there is nothing.
fn no_array(reply: &mut Reply<'_>) {
    reply.null_array();
}

/// Of a command that replies with an item, once its time is over it is [`no_array`] in Redis, too.
fn no_item(reply: &mut Reply<'_>) {
    reply.null();
}

/// Keys that are followed by the timeout, the last argument.
fn keys_then_timeout(args: &Args<'_>, wants: ValueType) -> Result<Blocking, CmdError> {
    let last = args.len() - 1;
    Ok(Blocking {
        keys: 1..last,
        timeout: timeout(args.at(last))?,
        wants,
        minds_end: false,
        nothing: no_array,
    })
}

/// The timeout, the number of keys, and so many keys.
fn counted_keys(args: &Args<'_>, key_count: usize, wants: ValueType) -> Result<Blocking, CmdError> {
    Ok(Blocking {
        keys: 3..3 + key_count,
        timeout: timeout(args.at(1))?,
        wants,
        minds_end: false,
        nothing: no_array,
    })
}

fn pop_item(ctx: &mut Ctx<'_>, args: &Args<'_>, end: End) -> CmdResult {
    let blocking = keys_then_timeout(args, ValueType::List)?;
    take_or_wait(ctx, args, &blocking, |ctx, index| list::pop_one_named(ctx, args, index, end))
}

pub fn blpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop_item(ctx, args, End::Left)
}

pub fn brpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop_item(ctx, args, End::Right)
}

pub fn blmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = list::PopOptions::parse(args, 2)?;
    let blocking = counted_keys(args, options.key_count, ValueType::List)?;
    take_or_wait(ctx, args, &blocking, |ctx, index| {
        list::pop_named(ctx, args, index, options.end, options.count)
    })
}

fn move_item(ctx: &mut Ctx<'_>, args: &Args<'_>, from: End, to: End) -> CmdResult {
    let timeout = timeout(args.at(args.len() - 1))?;
    let blocking =
        Blocking { keys: 1..2, timeout, wants: ValueType::List, minds_end: false, nothing: no_item };
    take_or_wait(ctx, args, &blocking, |ctx, _| list::move_item(ctx, args, from, to))
}

pub fn blmove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (from, to) = (list::end_argument(args, 3)?, list::end_argument(args, 4)?);
    move_item(ctx, args, from, to)
}

pub fn brpoplpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    move_item(ctx, args, End::Right, End::Left)
}

fn pop_member(ctx: &mut Ctx<'_>, args: &Args<'_>, is_downwards: bool) -> CmdResult {
    let blocking = keys_then_timeout(args, ValueType::SortedSet)?;
    take_or_wait(ctx, args, &blocking, |ctx, index| {
        sorted_set_pop::pop_one_named(ctx, args, index, is_downwards)
    })
}

pub fn bzpopmin(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop_member(ctx, args, false)
}

pub fn bzpopmax(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop_member(ctx, args, true)
}

pub fn bzmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = sorted_set_pop::PopOptions::parse(args, 2)?;
    let blocking = counted_keys(args, options.key_count, ValueType::SortedSet)?;
    take_or_wait(ctx, args, &blocking, |ctx, index| sorted_set_pop::pop_named(ctx, args, index, &options))
}
