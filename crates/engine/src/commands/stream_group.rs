//! Groups of consumers: made, moved and removed; entries that are acknowledged.

use stillframe_store::{GroupMade, GroupStart, NoGroup, StreamId};

use crate::command::operand::integer;
use crate::command::stream_id;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("xgroup", -2, 0)
        .doc(Group::Stream, "5.0.0", "A container for consumer groups commands", "Depends on subcommand."),
    Command::new("xgroup|destroy", 4, flag::WRITE, Touch::OneOperation, destroy).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Destroy a consumer group.", "O(N) where N is the number of entries in the group's pending entries list (PEL).")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("xgroup|create", -5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, create).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Create a consumer group.", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("xgroup|setid", -5, flag::WRITE, Touch::OneOperation, setid).event("xgroup-setid").acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Set a consumer group to an arbitrary last delivered ID value.", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("xgroup|createconsumer", 5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, createconsumer).acl(acl::STREAM)
        .doc(Group::Stream, "6.2.0", "Create a consumer in a consumer group.", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("xgroup|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("xgroup|delconsumer", 5, flag::WRITE, Touch::OneOperation, delconsumer).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Delete a consumer from a consumer group.", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("xack", -4, flag::WRITE | flag::FAST, Touch::OneOperation, xack).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Marks a pending message as correctly processed, effectively removing it from the pending entries list of the consumer group. Return value of the command is the number of messages successfully acknowledged, that is, the IDs we were actually able to resolve in the PEL.", "O(1) for each message ID processed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
];

const NEEDS_KEY: &str =
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
     MKSTREAM option to create an empty stream automatically.";

/// Of a subcommand of `XGROUP`, whose key and group are its arguments.
fn no_group(args: &Args<'_>, why: NoGroup) -> CmdError {
    match why {
        NoGroup::NoStream => NEEDS_KEY.into(),
        NoGroup::NoGroup => {
            let words = [args.at(3), args.at(2)];
            errors::with_words("NOGROUP No such consumer group '%' for key name '%'", &words).into()
        }
    }
}

/// Of a command whose key and group are at these arguments.
pub fn no_such_group(args: &Args<'_>, key_at: usize, group_at: usize) -> CmdError {
    let words = [args.at(key_at), args.at(group_at)];
    errors::with_words("NOGROUP No such key '%' or consumer group '%'", &words).into()
}

fn wrong_options(args: &Args<'_>) -> CmdError {
    let text = "ERR unknown subcommand or wrong number of arguments for '%'. Try XGROUP HELP.";
    errors::with_words(text, &[args.at(1)]).into()
}

/// Once the key has been looked at: an option that comes twice is one too many.
fn must_be_few(args: &Args<'_>, most: usize) -> CmdResult {
    match args.len() <= most {
        true => Ok(()),
        false => Err(wrong_options(args)),
    }
}

/// What `CREATE` and `SETID` say behind the ID.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    read_count: Option<u64>,
}

impl Options {
    fn parse(args: &Args<'_>, is_create: bool) -> Result<Options, CmdError> {
        let (mut options, mut index) = (Options::default(), 5);
        while index < args.len() {
            if is_create && args.is(index, "MKSTREAM") {
                options.makes_stream = true;
                index += 1;
            } else if args.is(index, "ENTRIESREAD") && index + 1 < args.len() {
                let count = integer(args.at(index + 1))?;
                if count < -1 {
                    return Err("ERR value for ENTRIESREAD must be positive or -1".into());
                }
                options.read_count = u64::try_from(count).ok();
                index += 2;
            } else {
                return Err(wrong_options(args));
            }
        }
        Ok(options)
    }
}

/// The ID behind which a group is to go on; `None`: the stream's last.
fn after(text: &[u8]) -> Result<Option<StreamId>, CmdError> {
    match text {
        b"$" => Ok(None),
        text => stream_id::strict(text, 0).map(Some),
    }
}

pub fn create(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args, true)?;
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    // Redis looks at the key before it reads the ID.
    if ctx.worker.stream_at(db, &key).info()?.is_none() && !options.makes_stream {
        return Err(NEEDS_KEY.into());
    }
    must_be_few(args, 8)?;
    let start = GroupStart { after: after(args.at(4))?, read_count: options.read_count };
    match ctx.worker.stream_at(db, &key).group(args.at(3)).create(&start, options.makes_stream)? {
        GroupMade::Done => ctx.reply.ok(),
        GroupMade::NoStream => return Err(NEEDS_KEY.into()),
        GroupMade::Exists => return Err("BUSYGROUP Consumer Group name already exists".into()),
    }
    Ok(())
}

pub fn setid(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = Options::parse(args, false)?;
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    let found = ctx.worker.stream_at(db, &key).group(args.at(3)).info()?;
    found.map_err(|why| no_group(args, why))?;
    must_be_few(args, 7)?;
    // As in Redis, `CREATE` does not take these.
    let after = match args.at(4) {
        b"-" => Some(StreamId::MIN),
        b"+" => Some(StreamId::MAX),
        text => after(text)?,
    };
    let start = GroupStart { after, read_count: options.read_count };
    let set = ctx.worker.stream_at(db, &key).group(args.at(3)).set(&start)?;
    set.map_err(|why| no_group(args, why))?;
    ctx.reply.ok();
    Ok(())
}

pub fn destroy(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    match ctx.worker.stream_at(db, &key).group(args.at(3)).remove()? {
        Ok(()) => ctx.reply.int(1),
        Err(NoGroup::NoGroup) => ctx.reply.int(0),
        Err(NoGroup::NoStream) => return Err(NEEDS_KEY.into()),
    }
    Ok(())
}

pub fn createconsumer(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    let added = ctx.worker.stream_at(db, &key).group(args.at(3)).add_consumer(args.at(4))?;
    let added = added.map_err(|why| no_group(args, why))?;
    ctx.reply.int(i64::from(added));
    Ok(())
}

pub fn delconsumer(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    let removed = ctx.worker.stream_at(db, &key).group(args.at(3)).remove_consumer(args.at(4))?;
    let removed = removed.map_err(|why| no_group(args, why))?;
    ctx.reply.int(removed.unwrap_or(0) as i64);
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "XGROUP",
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Create a new consumer group. Options are:",
            "    * MKSTREAM",
            "      Create the empty stream if it does not exist.",
            "    * ENTRIESREAD entries_read",
            "      Set the group's entries_read counter (internal use).",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Create a new consumer in the specified group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove the specified consumer.",
            "DESTROY <key> <groupname>",
            "    Remove the specified group.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the current group ID and entries_read counter.",
        ],
    );
    Ok(())
}

pub fn xack(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if ctx.worker.stream_at(db, &key).group(args.at(2)).info()?.is_err() {
        ctx.reply.int(0);
        return Ok(());
    }
    let ids: Vec<StreamId> = args.from(3).map(|id| stream_id::strict(id, 0)).collect::<Result<_, _>>()?;
    let before = ctx.worker.change_count();
    let count = ctx.worker.stream_at(db, &key).group(args.at(2)).acknowledge(&ids)?.unwrap_or(0);
    ctx.count_as(before, count);
    ctx.reply.int(count as i64);
    Ok(())
}
