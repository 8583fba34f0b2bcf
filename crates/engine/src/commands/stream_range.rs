//! Entries of a stream as they are read: `XRANGE` and `XREVRANGE`.

use stillframe_store::{EntryRange, StreamId};

use crate::command::operand::integer;
use crate::command::stream_id;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::{Reply, ReplyBuf};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("xrange", -4, flag::READONLY, Touch::OneOperation, xrange).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return a range of elements in a stream, with IDs matching the specified IDs interval", "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("xrevrange", -4, flag::READONLY, Touch::OneOperation, xrevrange).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order (from greater to smaller IDs) compared to XRANGE", "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

/// An entry: its ID, and a field, its value, a field, ...
pub fn put_entry(reply: &mut Reply<'_>, id: StreamId, parts: &[&[u8]]) {
    reply.array(2);
    reply.bulk(stream_id::IdText::of(id).bytes());
    reply.array(parts.len());
    parts.iter().for_each(|part| reply.bulk(part));
}

/// Entries, which are announced when they are there.
pub struct Entries {
    out: ReplyBuf,
    pub count: usize,
    resp3: bool,
}

impl Entries {
    /// As many as a reply may have.
    pub fn new(reply: &Reply<'_>) -> Entries {
        Entries { out: ReplyBuf::within(reply.out.max_bytes()), count: 0, resp3: reply.resp3 }
    }

    pub fn clear(&mut self) {
        self.out.discard();
        self.count = 0;
    }

    /// An entry that has changed its owner: the ID alone if that is asked for.
    pub fn put_claimed(&mut self, id: StreamId, parts: Option<&[&[u8]]>, is_silent: bool) {
        if !is_silent {
            return self.put_read(id, parts);
        }
        Reply { resp3: self.resp3, out: &mut self.out }.bulk(stream_id::IdText::of(id).bytes());
        self.count += 1;
    }

    /// An entry that may have gone.
    pub fn put_read(&mut self, id: StreamId, parts: Option<&[&[u8]]>) {
        if let Some(parts) = parts {
            return self.put(id, parts);
        }
        let mut reply = Reply { resp3: self.resp3, out: &mut self.out };
        reply.array(2);
        reply.bulk(stream_id::IdText::of(id).bytes());
        reply.null_array();
        self.count += 1;
    }

    pub fn put(&mut self, id: StreamId, parts: &[&[u8]]) {
        put_entry(&mut Reply { resp3: self.resp3, out: &mut self.out }, id, parts);
        self.count += 1;
    }

    /// One without a word of how many; null if there is none.
    pub fn give_one(mut self, reply: &mut Reply<'_>) {
        match self.count {
            0 => reply.null(),
            _ if self.out.is_over() => reply.out.give_up(),
            _ => {
                reply.out.note_value();
                reply.out.append(self.out.split_off_all(0));
            }
        }
    }

    pub fn give(mut self, reply: &mut Reply<'_>) {
        if self.out.is_over() {
            return reply.out.give_up();
        }
        reply.array(self.count);
        reply.out.note_values(self.count as u64);
        reply.out.append(self.out.split_off_all(0));
    }
}

/// Looks at the entries of a range; `None` if there is no such stream.
pub fn look(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    key_at: usize,
    range: &EntryRange,
) -> Result<Option<Entries>, CmdError> {
    let key = ctx.key(args, key_at);
    let entries = std::cell::RefCell::new(Entries::new(&ctx.reply));
    let is_there = ctx.worker.stream_at(ctx.client.db, &key).range(
        range,
        || entries.borrow_mut().clear(),
        |id, parts| {
            let mut entries = entries.borrow_mut();
            entries.put(id, parts);
            // More than a reply may have is not gone through.
            !entries.out.is_over()
        },
    )?;
    Ok(is_there.then(|| entries.into_inner()))
}

fn range(ctx: &mut Ctx<'_>, args: &Args<'_>, is_downwards: bool) -> CmdResult {
    let (from, to) = if is_downwards { (3, 2) } else { (2, 3) };
    let (from, to) = (stream_id::least(args.at(from))?, stream_id::greatest(args.at(to))?);
    let (mut count, mut index) = (None, 4);
    while index < args.len() {
        if !args.is(index, "COUNT") || index + 1 >= args.len() {
            return Err(errors::SYNTAX.into());
        }
        count = Some(u64::try_from(integer(args.at(index + 1))?).unwrap_or(0));
        index += 2;
    }
    let range = EntryRange { from, to, is_downwards, most: count.unwrap_or(u64::MAX) };
    let found = look(ctx, args, 1, &range)?;
    ctx.looked_up(&ctx.key(args, 1), found.is_some());
    match found {
        Some(_) if count == Some(0) => ctx.reply.null_array(),
        Some(entries) => entries.give(&mut ctx.reply),
        None => ctx.reply.array(0),
    }
    Ok(())
}

pub fn xrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    range(ctx, args, false)
}

pub fn xrevrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    range(ctx, args, true)
}
