//! `XREAD`: entries behind those that the client knows, or waiting for one.

use std::time::Duration;

use stillframe_store::{EntryRange, StreamId, ValueType};

use crate::command::operand::integer;
use crate::command::stream_id;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::stream_range::{look, Entries};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::waiting::{wait, Blocking};
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::errors;
use crate::protocol::reply::Reply;
use crate::state::session::Within;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("xread", -4, flag::READONLY | flag::BLOCKING | flag::MOVABLEKEYS, Touch::Steps, xread).keys_fn(keys_of_read).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.", "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.")
        .keys(&[KeySpec::halved("STREAMS", 1, key_flag::RO | key_flag::ACCESS)]),
];

/// The keys of a call: the first half of what is behind the word that is an option, not a value of one.
fn keys_of_read(args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
    let mut index = 1;
    while index < args.len() {
        if args.is(index, "STREAMS") {
            let count = (args.len() - index - 1) / 2;
            return (index + 1..index + 1 + count).for_each(|key| give(key, key_flag::RO | key_flag::ACCESS));
        }
        index += if args.is(index, "BLOCK") || args.is(index, "COUNT") { 2 } else { 1 };
    }
}

/// How long a client waits, in milliseconds; `Some(None)`: for ever.
fn timeout(text: &[u8]) -> Result<Option<Duration>, CmdError> {
    let millis = parse_i64(text).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok(Some(Duration::from_millis(millis)).filter(|time| !time.is_zero()))
}

/// What an `XREAD` asks for.
struct Options {
    /// 0: all.
    most: u64,
    /// `None`: it does not wait; none within: for ever.
    block: Option<Option<Duration>>,
    /// The first key, and how many there are; as many IDs follow.
    keys_at: usize,
    count: usize,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, CmdError> {
        let mut options = Options { most: 0, block: None, keys_at: 0, count: 0 };
        let mut index = 1;
        while index < args.len() {
            let has_more = index + 1 < args.len();
            if has_more && args.is(index, "BLOCK") {
                options.block = Some(timeout(args.at(index + 1))?);
                index += 1;
            } else if has_more && args.is(index, "COUNT") {
                options.most = u64::try_from(integer(args.at(index + 1))?).unwrap_or(0);
                index += 1;
            } else if has_more && args.is(index, "STREAMS") {
                let rest = args.len() - index - 1;
                if rest % 2 != 0 {
                    return Err(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.".into()
                    );
                }
                (options.keys_at, options.count) = (index + 1, rest / 2);
                break;
            } else if args.is(index, "GROUP") && index + 2 < args.len() {
                return Err(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into(),
                );
            } else if args.is(index, "NOACK") {
                return Err(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into(),
                );
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 1;
        }
        match options.count {
            0 => Err(errors::SYNTAX.into()),
            _ => Ok(options),
        }
    }

    fn most(&self) -> u64 {
        if self.most == 0 {
            u64::MAX
        } else {
            self.most
        }
    }
}

/// A stream of a call: the argument that is its key, and the last ID that the client knows.
struct Known {
    key_at: usize,
    id: StreamId,
}

fn known(ctx: &mut Ctx<'_>, args: &Args<'_>, key_at: usize, id_at: usize) -> Result<Known, CmdError> {
    let key = ctx.key(args, key_at);
    let info = ctx.worker.stream_at(ctx.client.db, &key).info()?;
    ctx.looked_up(&key, info.is_some());
    let id = match args.at(id_at) {
        b"$" => info.map_or(StreamId::MIN, |info| info.last),
        b">" => {
            return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.".into());
        }
        text => stream_id::strict(text, 0)?,
    };
    Ok(Known { key_at, id })
}

/// The entries of a stream behind those that the client knows, if there are any.
fn behind(ctx: &mut Ctx<'_>, args: &Args<'_>, known: &Known, most: u64) -> Result<Option<Entries>, CmdError> {
    let Some(from) = known.id.next() else { return Ok(None) };
    let range = EntryRange { from, to: StreamId::MAX, is_downwards: false, most };
    Ok(look(ctx, args, known.key_at, &range)?.filter(|entries| entries.count > 0))
}

/// Streams with their entries: a map in RESP3.
fn put_streams(reply: &mut Reply<'_>, args: &Args<'_>, found: Vec<(usize, Entries)>) {
    let is_map = reply.resp3;
    match is_map {
        true => reply.map(found.len()),
        false => reply.array(found.len()),
    }
    for (key_at, entries) in found {
        if !is_map {
            reply.array(2);
        }
        reply.bulk(args.at(key_at));
        entries.give(reply);
    }
}

pub fn xread(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args)?;
    let Options { keys_at, count, .. } = options;
    let is_served = match ctx.client.within {
        Within::Served { index } => Some(index),
        _ => None,
    };
    let mut all = Vec::new();
    for key_at in (keys_at..keys_at + count).filter(|key_at| is_served.is_none_or(|served| served == *key_at))
    {
        all.push(known(ctx, args, key_at, key_at + count)?);
    }
    let mut found = Vec::new();
    for known in &all {
        if let Some(entries) = behind(ctx, args, known, options.most())? {
            found.push((known.key_at, entries));
        }
    }
    if !found.is_empty() {
        put_streams(&mut ctx.reply, args, found);
    } else if is_served.is_some() {
        ctx.client.within = Within::ServedInVain;
    } else if options.block.is_none() || ctx.client.within.is_transaction() {
        ctx.reply.null_array();
    } else {
        wait_for(ctx, args, &options, &all);
    }
    Ok(())
}

/// Waits with the IDs that the client knows now in the place of `$`.
fn wait_for(ctx: &mut Ctx<'_>, args: &Args<'_>, options: &Options, all: &[Known]) {
    let ids_at = options.keys_at + options.count;
    let (mut buf, mut ranges) = (Vec::new(), Vec::with_capacity(args.len()));
    for (index, arg) in args.from(0).enumerate() {
        let start = buf.len() as u32;
        match index.checked_sub(ids_at).and_then(|at| all.get(at)) {
            Some(known) => buf.extend_from_slice(known.id.to_string().as_bytes()),
            None => buf.extend_from_slice(arg),
        }
        ranges.push(ArgRange { start, len: buf.len() as u32 - start });
    }
    let blocking = Blocking {
        keys: options.keys_at..ids_at,
        timeout: options.block.flatten(),
        wants: ValueType::Stream,
        nothing: |reply| reply.null_array(),
    };
    wait(ctx, &Args::new(&buf, &ranges), &blocking);
}
