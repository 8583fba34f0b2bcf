//! Streams: entries that are added, counted and removed.

use stillframe_store::{AddRule, Added, Marks, NewId, StreamId, StreamInfo, Trim, TrimTo};

use crate::command::operand::integer;
use crate::command::stream_id::{self, Asked};
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("xadd", -5, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, xadd).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Appends a new entry to a stream", "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE).notes("UPDATE instead of INSERT because of the optional trimming feature")])
        .tips(&["nondeterministic_output"]),
    Command::new("xdel", -3, flag::WRITE | flag::FAST, Touch::OneOperation, xdel).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Removes the specified entries from the stream. Returns the number of items actually deleted, that may be different from the number of IDs passed in case certain IDs do not exist.", "O(1) for each single item to delete in the stream, regardless of the stream size.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("xlen", 2, flag::READONLY | flag::FAST, Touch::OneOperation, xlen).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return the number of entries in a stream", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("xtrim", -4, flag::WRITE, Touch::OneOperation, xtrim).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Trims the stream to (approximately if '~' is passed) a certain size", "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)])
        .tips(&["nondeterministic_output"]),
    Command::new("xsetid", -3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, xsetid).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "An internal command for replicating stream values", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
];

/// What `~` takes at most where the command does not say, in nodes, and in entries.
const TRIMMED_NODES: u64 = 100;
const TRIMMED_MAX: u64 = 1_000_000;
/// Where nodes have any number of entries.
const TRIMMED_WITHOUT_NODES: u64 = 10_000;

/// What `XADD` and `XTRIM` have in common.
#[derive(Default)]
struct Options {
    only_present: bool,
    trim: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
    /// The argument that is the ID of an `XADD`.
    id_at: usize,
}

impl Options {
    fn parse(args: &Args<'_>, is_add: bool) -> Result<Options, CmdError> {
        let (mut options, mut index) = (Options::default(), 2);
        while let Some(word) = args.get(index) {
            let has_more = index + 1 < args.len();
            if is_add && word == b"*" {
                break;
            } else if has_more && (args.is(index, "MAXLEN") || args.is(index, "MINID")) {
                index = options.parse_trim(args, index)?;
            } else if has_more && args.is(index, "LIMIT") {
                let limit = u64::try_from(integer(args.at(index + 1))?);
                options.limit = Some(limit.map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
                index += 2;
            } else if is_add && args.is(index, "NOMKSTREAM") {
                options.only_present = true;
                index += 1;
            } else if is_add {
                break;
            } else {
                return Err(errors::SYNTAX.into());
            }
        }
        options.id_at = index;
        // Redis reads the ID before it looks at what belongs together.
        if is_add && index < args.len() {
            stream_id::of_new(args.at(index))?;
        }
        options.check(is_add)?;
        Ok(options)
    }

    /// Returns the index behind it.
    fn parse_trim(&mut self, args: &Args<'_>, at: usize) -> Result<usize, CmdError> {
        if self.trim.is_some() {
            return Err(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into()
            );
        }
        let (mut value_at, has_two) = (at + 1, at + 2 < args.len());
        self.is_approximate = false;
        if has_two && (args.at(value_at) == b"~" || args.at(value_at) == b"=") {
            self.is_approximate = args.at(value_at) == b"~";
            value_at += 1;
        }
        self.trim = Some(match args.is(at, "MAXLEN") {
            true => {
                let most = u64::try_from(integer(args.at(value_at))?);
                TrimTo::Length(most.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
            }
            false => TrimTo::Id(stream_id::strict(args.at(value_at), 0)?),
        });
        Ok(value_at + 1)
    }

    fn check(&self, is_add: bool) -> CmdResult {
        let error = match (self.trim, self.limit) {
            (None, Some(1..)) => {
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            }
            (None, _) if !is_add => "ERR syntax error, XTRIM must be called with a trimming strategy",
            (_, Some(_)) if !self.is_approximate => {
                "ERR syntax error, LIMIT cannot be used without the special ~ option"
            }
            _ => return Ok(()),
        };
        Err(error.into())
    }

    fn trim(&self, ctx: &Ctx<'_>) -> Option<Trim> {
        let node_entries = ctx.config.settings.collection_limits.stream_node_entries as u64;
        let usual = match node_entries.saturating_mul(TRIMMED_NODES) {
            0 => TRIMMED_WITHOUT_NODES,
            entries => entries.min(TRIMMED_MAX),
        };
        let approximately = self.is_approximate.then(|| self.limit.unwrap_or(usual));
        self.trim.map(|to| Trim { to, approximately })
    }
}

pub fn xadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args, true)?;
    let parts_at = options.id_at + 1;
    let part_count = args.len().saturating_sub(parts_at);
    if part_count < 2 || part_count % 2 != 0 {
        return Err(errors::wrong_arity("xadd").into());
    }
    let id = match stream_id::of_new(args.at(options.id_at))? {
        Asked::Any => NewId::Any,
        Asked::OfMillis(ms) => NewId::OfMillis(ms),
        Asked::Exact(StreamId::MIN) => return Err(IS_ZERO.into()),
        Asked::Exact(id) => NewId::Exact(id),
    };
    let rule = AddRule { only_present: options.only_present, trim: options.trim(ctx) };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let parts: Vec<&[u8]> = args.from(parts_at).collect();
    let before = ctx.worker.change_count();
    match ctx.worker.stream_at(db, &key).add(id, &parts, &rule)? {
        Added::Done { id, trimmed_count } => {
            ctx.count_as(before, 1 + trimmed_count);
            ctx.reply.bulk(stream_id::IdText::of(id).bytes());
        }
        Added::NoStream => ctx.reply.null(),
        Added::IsZero => return Err(IS_ZERO.into()),
        Added::NotAbove => {
            return Err(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item".into()
            );
        }
        Added::Exhausted => {
            return Err("ERR The stream has exhausted the last possible ID, unable to add more items".into());
        }
    }
    Ok(())
}

const IS_ZERO: &str = "ERR The ID specified in XADD must be greater than 0-0";

pub fn xtrim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args, false)?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let Some(trim) = options.trim(ctx) else { return Err(errors::SYNTAX.into()) };
    let before = ctx.worker.change_count();
    let count = ctx.worker.stream_at(db, &key).trim(&trim)?;
    ctx.count_as(before, count);
    ctx.reply.int(count as i64);
    Ok(())
}

pub fn xlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let info = ctx.worker.stream_at(ctx.client.db, &key).info()?;
    ctx.looked_up(&key, info.is_some());
    ctx.reply.int(info.map_or(0, |info| info.len) as i64);
    Ok(())
}

pub fn xdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if ctx.worker.stream_at(db, &key).info()?.is_none() {
        ctx.reply.int(0);
        return Ok(());
    }
    let ids: Vec<StreamId> = args.from(2).map(|id| stream_id::strict(id, 0)).collect::<Result<_, _>>()?;
    let before = ctx.worker.change_count();
    let count = ctx.worker.stream_at(db, &key).remove(&ids)?;
    ctx.count_as(before, count);
    ctx.reply.int(count as i64);
    Ok(())
}

/// What an `XSETID` asks for.
struct MarkOptions {
    last: StreamId,
    added_count: Option<u64>,
    /// `0-0`: as it is.
    max_deleted: StreamId,
}

impl MarkOptions {
    fn parse(args: &Args<'_>) -> Result<MarkOptions, CmdError> {
        let last = stream_id::strict(args.at(2), 0)?;
        let mut options = MarkOptions { last, added_count: None, max_deleted: StreamId::MIN };
        let mut index = 3;
        while index < args.len() {
            let Some(value) = args.get(index + 1) else { return Err(errors::SYNTAX.into()) };
            if args.is(index, "ENTRIESADDED") {
                let count = u64::try_from(integer(value)?);
                options.added_count = Some(count.map_err(|_| "ERR entries_added must be positive")?);
            } else if args.is(index, "MAXDELETEDID") {
                options.max_deleted = stream_id::strict(value, 0)?;
                if last < options.max_deleted {
                    return Err(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
                            .into(),
                    );
                }
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 2;
        }
        Ok(options)
    }

    fn marks(&self, info: &StreamInfo, last_entry: StreamId) -> Result<Marks, CmdError> {
        let MarkOptions { last, added_count, max_deleted } = *self;
        if info.len > 0 && last < last_entry {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
        }
        if info.len > 0 && added_count.is_some_and(|count| count < info.len) {
            return Err(
                "ERR The entries_added specified in XSETID is smaller than the target stream length".into()
            );
        }
        let max_deleted = if max_deleted == StreamId::MIN { info.max_deleted } else { max_deleted };
        Ok(Marks { last, added_count: added_count.unwrap_or(info.added_count), max_deleted })
    }
}

pub fn xsetid(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = MarkOptions::parse(args)?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let mut refused = Ok(());
    let is_there = ctx.worker.stream_at(db, &key).set_marks(|info, last_entry| {
        match options.marks(&info, last_entry) {
            Ok(marks) => Some(marks),
            Err(error) => {
                refused = Err(error);
                None
            }
        }
    })?;
    refused?;
    match is_there {
        true => ctx.reply.ok(),
        false => return Err(errors::NO_SUCH_KEY.into()),
    }
    Ok(())
}
