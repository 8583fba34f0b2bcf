//! `XREAD` and `XREADGROUP`: entries behind those that the client knows, or that its group has not given out, or waiting for one.

use std::time::Duration;

use stillframe_store::{EntryRange, GroupRead, NoGroup, StreamId, ValueType};

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
    Command::new("xreadgroup", -7, flag::WRITE | flag::BLOCKING | flag::MOVABLEKEYS, Touch::EachKey, xreadgroup).keys_fn(keys_of_read).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return new entries from a stream using a consumer group, or access the history of the pending entries for a given consumer. Can block.", "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.")
        .keys(&[KeySpec::halved("STREAMS", 4, key_flag::RO | key_flag::ACCESS)]),
];

/// The keys of a call: the first half of what is behind the word that is an option, not a value of one.
fn keys_of_read(args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
    let mut index = 1;
    while index < args.len() {
        if args.is(index, "STREAMS") {
            let count = (args.len() - index - 1) / 2;
            return (index + 1..index + 1 + count).for_each(|key| give(key, key_flag::RO | key_flag::ACCESS));
        }
        index += match () {
            () if args.is(index, "GROUP") => 3,
            () if args.is(index, "BLOCK") || args.is(index, "COUNT") => 2,
            () => 1,
        };
    }
}

/// How long a client waits, in milliseconds; `Some(None)`: for ever.
fn timeout(text: &[u8]) -> Result<Option<Duration>, CmdError> {
    let millis = parse_i64(text).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok(Some(Duration::from_millis(millis)).filter(|time| !time.is_zero()))
}

/// What a call asks for.
#[derive(Default)]
struct Options {
    /// 0: all.
    most: u64,
    /// `None`: it does not wait; none within: for ever.
    block: Option<Option<Duration>>,
    /// The arguments that are a group and a consumer.
    group_at: Option<usize>,
    no_ack: bool,
    /// The first key, and how many there are; as many IDs follow.
    keys_at: usize,
    count: usize,
}

impl Options {
    fn parse(args: &Args<'_>, is_of_group: bool) -> Result<Options, CmdError> {
        let mut options = Options::default();
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
                if !is_of_group {
                    return Err(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."
                            .into(),
                    );
                }
                options.group_at = Some(index + 1);
                index += 2;
            } else if args.is(index, "NOACK") {
                if !is_of_group {
                    return Err(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead."
                            .into(),
                    );
                }
                options.no_ack = true;
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 1;
        }
        if options.count == 0 {
            return Err(errors::SYNTAX.into());
        }
        match is_of_group && options.group_at.is_none() {
            true => Err("ERR Missing GROUP option for XREADGROUP".into()),
            false => Ok(options),
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
    let options = Options::parse(args, false)?;
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
            Some(known) => buf.extend_from_slice(stream_id::IdText::of(known.id).bytes()),
            None => buf.extend_from_slice(arg),
        }
        ranges.push(ArgRange { start, len: buf.len() as u32 - start });
    }
    let blocking = Blocking {
        keys: options.keys_at..ids_at,
        timeout: options.block.flatten(),
        wants: ValueType::Stream,
        minds_end: false,
        nothing: |reply| reply.null_array(),
    };
    wait(ctx, &Args::new(&buf, &ranges), &blocking);
}

/// A stream of a call by a group: the argument that is its key, and what of the consumer's own is asked for, if not what
/// nobody has got.
struct Asked {
    key_at: usize,
    history_after: Option<StreamId>,
    /// Nobody has got the last entry.
    has_new: bool,
}

const GROUP_HAS_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

fn asked(ctx: &mut Ctx<'_>, args: &Args<'_>, options: &Options, key_at: usize) -> Result<Asked, CmdError> {
    let (key, group) = (ctx.key(args, key_at), args.at(options.group_at.unwrap_or_default()));
    let found = ctx.worker.stream_at(ctx.client.db, &key).group(group).info()?;
    ctx.looked_up(&key, found != Err(NoGroup::NoStream));
    let Ok(found) = found else {
        if ctx.client.within.is_served() {
            return Err(GROUP_HAS_GONE.into());
        }
        let text = "NOGROUP No such key '%' or consumer group '%' in XREADGROUP with GROUP option";
        return Err(errors::with_words(text, &[key.bytes, group]).into());
    };
    let history_after = match args.at(key_at + options.count) {
        b">" => None,
        b"$" => {
            return Err(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an \
                 empty result set."
                    .into(),
            );
        }
        // The greatest ID is `>`, as in Redis.
        text => Some(stream_id::strict(text, 0)?).filter(|id| *id != StreamId::MAX),
    };
    let Some(from) = found.last.next() else { return Ok(Asked { key_at, history_after, has_new: false }) };
    let range = EntryRange { from, to: StreamId::MAX, is_downwards: false, most: 1 };
    let has_new = look(ctx, args, key_at, &range)?.is_some_and(|entries| entries.count > 0);
    Ok(Asked { key_at, history_after, has_new })
}

pub fn xreadgroup(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args, true)?;
    let Options { keys_at, count, .. } = options;
    let is_served = match ctx.client.within {
        Within::Served { index } => Some(index),
        _ => None,
    };
    // All are looked at before the first is changed.
    let mut all = Vec::new();
    for key_at in (keys_at..keys_at + count).filter(|key_at| is_served.is_none_or(|served| served == *key_at))
    {
        all.push(asked(ctx, args, &options, key_at)?);
    }
    all.retain(|asked| asked.history_after.is_some() || asked.has_new);
    if all.is_empty() {
        if is_served.is_some() {
            ctx.client.within = Within::ServedInVain;
        } else if options.block.is_none() || ctx.client.within.is_transaction() {
            ctx.reply.null_array();
        } else {
            let blocking = Blocking {
                keys: keys_at..keys_at + count,
                timeout: options.block.flatten(),
                wants: ValueType::Stream,
                minds_end: true,
                nothing: |reply| reply.null_array(),
            };
            wait(ctx, args, &blocking);
        }
        return Ok(());
    }
    let mut found = Vec::new();
    for asked in all {
        if let Some(entries) = read_of_group(ctx, args, &options, &asked)? {
            found.push((asked.key_at, entries));
        }
    }
    put_streams(&mut ctx.reply, args, found);
    Ok(())
}

/// `None`: the same stream came before in the call, and nothing is left of it.
fn read_of_group(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    options: &Options,
    asked: &Asked,
) -> Result<Option<Entries>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, asked.key_at));
    let group_at = options.group_at.unwrap_or_default();
    let wanted =
        GroupRead { history_after: asked.history_after, most: options.most(), no_ack: options.no_ack };
    let entries = std::cell::RefCell::new(Entries::new(&ctx.reply));
    let read = ctx.worker.stream_at(db, &key).group(args.at(group_at)).read(
        args.at(group_at + 1),
        &wanted,
        || entries.borrow_mut().clear(),
        |id, parts| entries.borrow_mut().put_read(id, parts),
    )?;
    let done = read.map_err(|_| CmdError::from(GROUP_HAS_GONE))?;
    Ok((!done.has_nothing).then(|| entries.into_inner()))
}
