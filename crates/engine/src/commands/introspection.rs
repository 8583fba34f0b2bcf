//! `COMMAND`: the table, told to clients.

mod docs;

use crate::command::{acl, flag, key_flag, Begin, CmdError, CmdResult, Find, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx, Found, Registry};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::Reply;
use crate::text::glob::Glob;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("command", -1, flag::LOADING | flag::STALE)
        .alone(command)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get array of Redis command details", "O(N) where N is the total number of Redis commands")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|count", 2, flag::LOADING | flag::STALE, Touch::Nothing, count)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get total number of Redis commands", "O(1)"),
    Command::new("command|docs", -2, flag::LOADING | flag::STALE, Touch::Nothing, command_docs)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Get array of specific Redis command documentation", "O(N) where N is the number of commands to look up")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|getkeys", -4, flag::LOADING | flag::STALE, Touch::Nothing, getkeys)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Extract keys given a full Redis command", "O(N) where N is the number of arguments to the command"),
    Command::new("command|getkeysandflags", -4, flag::LOADING | flag::STALE, Touch::Nothing, getkeysandflags)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Extract keys and access flags given a full Redis command", "O(N) where N is the number of arguments to the command"),
    Command::new("command|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("command|info", -2, flag::LOADING | flag::STALE, Touch::Nothing, info)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get array of specific Redis command details, or all when no argument is given.", "O(N) where N is the number of commands to look up")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|list", -2, flag::LOADING | flag::STALE, Touch::Nothing, list)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Get an array of Redis command names", "O(N) where N is the total number of Redis commands")
        .tips(&["nondeterministic_output_order"]),
];

/// Commands without subcommands' rows.
fn top_level(registry: &Registry) -> impl Iterator<Item = Found> + '_ {
    registry
        .rows()
        .iter()
        .filter(|row| !row.name.contains('|'))
        .filter_map(|row| registry.lookup(row.name.as_bytes()))
}

fn words(reply: &mut Reply<'_>, names: &[(u32, &str)], bits: u32, prefix: &str) {
    let set: Vec<_> = names.iter().filter(|(bit, _)| bits & bit != 0).collect();
    reply.set(set.len());
    for (_, name) in set {
        reply.simple(&format!("{prefix}{name}"));
    }
}

fn describe(reply: &mut Reply<'_>, registry: &Registry, found: Found) {
    let command = found.command;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(i64::from(command.arity));
    words(reply, flag::NAMES, command.flags, "");
    let (first, last, step) = command.key_range();
    for number in [first, last, step] {
        reply.int(i64::from(number));
    }
    words(reply, acl::NAMES, command.acl_categories(), "@");
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.key_specs.len());
    command.key_specs.iter().for_each(|spec| describe_keys(reply, spec));
    let subcommands: Vec<Found> = registry.subcommands(found.id).collect();
    // Redis says "an empty set", but "an array" if there are any.
    match subcommands.len() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    subcommands.into_iter().for_each(|sub| describe(reply, registry, sub));
}

fn describe_keys(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(if spec.notes.is_empty() { 3 } else { 4 });
    if !spec.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    words(reply, key_flag::NAMES, spec.flags, "");
    reply.bulk(b"begin_search");
    let pair = |reply: &mut Reply<'_>, kind: &str, field_count: usize| {
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        reply.map(field_count);
    };
    let field = |reply: &mut Reply<'_>, name: &str, value: i32| {
        reply.bulk(name.as_bytes());
        reply.int(i64::from(value));
    };
    match spec.begin {
        Begin::Index(index) => {
            pair(reply, "index", 1);
            field(reply, "index", index);
        }
        Begin::Keyword { word, from } => {
            pair(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            field(reply, "startfrom", from);
        }
        Begin::Unknown => pair(reply, "unknown", 0),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            pair(reply, "range", 3);
            field(reply, "lastkey", last);
            field(reply, "keystep", step);
            field(reply, "limit", limit);
        }
        Find::Counted => {
            pair(reply, "keynum", 3);
            field(reply, "keynumidx", 0);
            field(reply, "firstkey", 1);
            field(reply, "keystep", 1);
        }
        Find::Unknown => pair(reply, "unknown", 0),
    }
}

pub fn command(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let all: Vec<Found> = top_level(ctx.registry).collect();
    ctx.reply.array(all.len());
    all.into_iter().for_each(|found| describe(&mut ctx.reply, ctx.registry, found));
    Ok(())
}

pub fn count(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.int(top_level(ctx.registry).count() as i64);
    Ok(())
}

pub fn info(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() == 2 {
        return command(ctx, args);
    }
    ctx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match ctx.registry.find(name) {
            Some(found) => describe(&mut ctx.reply, ctx.registry, found),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The conditions of `COMMAND LIST FILTERBY`.
fn is_listed(row: &Command, filter: &[u8], value: &[u8], pattern: &Glob<'_>) -> Result<bool, CmdError> {
    match filter.to_ascii_lowercase().as_slice() {
        b"pattern" => Ok(pattern.matches(row.name.as_bytes())),
        b"module" => Ok(false),
        b"aclcat" => {
            let category = acl::NAMES.iter().find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(value));
            Ok(category.is_some_and(|(bit, _)| row.acl_categories() & bit != 0))
        }
        _ => Err(errors::SYNTAX.into()),
    }
}

pub fn list(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut names = Vec::new();
    match args.len() {
        2 => names.extend(ctx.registry.rows().iter().map(|row| row.name)),
        5 if args.is(2, "filterby") => {
            let pattern = Glob::new(args.at(4), true);
            for row in ctx.registry.rows() {
                if is_listed(row, args.at(3), args.at(4), &pattern)? {
                    names.push(row.name);
                }
            }
        }
        _ => return Err(errors::SYNTAX.into()),
    }
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    Ok(())
}

fn describe_docs(reply: &mut Reply<'_>, registry: &Registry, found: Found) {
    let command = found.command;
    let subcommands: Vec<Found> = registry.subcommands(found.id).collect();
    let has_complexity = !command.complexity.is_empty();
    reply.bulk(command.name.as_bytes());
    let more_count = docs::field_count(command.name);
    reply.map(3 + usize::from(has_complexity) + more_count + usize::from(!subcommands.is_empty()));
    let mut fields =
        vec![("summary", command.summary), ("since", command.since), ("group", command.group.name())];
    if has_complexity {
        fields.push(("complexity", command.complexity));
    }
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    docs::write(reply, command.name);
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.into_iter().for_each(|sub| describe_docs(reply, registry, sub));
    }
}

pub fn command_docs(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let found: Vec<Found> = if args.len() == 2 {
        top_level(ctx.registry).collect()
    } else {
        args.from(2).filter_map(|name| ctx.registry.find(name)).collect()
    };
    ctx.reply.map(found.len());
    found.into_iter().for_each(|f| describe_docs(&mut ctx.reply, ctx.registry, f));
    Ok(())
}

/// The keys of the call that follows in the arguments, with their flags.
fn keys_of<'a>(registry: &Registry, args: &Args<'a>) -> Result<Vec<(&'a [u8], u32)>, CmdError> {
    let call = args.tail(2);
    let found = match registry.lookup(call.at(0)) {
        Some(found) if found.command.is_container && call.len() > 1 => registry.subcommand(found, call.at(1)),
        found => found,
    };
    let Some(Found { command, .. }) = found else { return Err("ERR Invalid command specified".into()) };
    if !command.has_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.arity_fits(call.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = command.told_keys(&call).filter(|keys| !keys.is_empty());
    // A script without keys has none, whatever its number of keys is.
    let keys = keys.or_else(|| command.is(flag::NO_MANDATORY_KEYS).then(Vec::new));
    let keys = keys.ok_or("ERR Invalid arguments specified for command")?;
    let flags_of = |flags| command.flags_fn.map_or(flags, |flags_of| flags_of(&call));
    Ok(keys.into_iter().map(|(index, flags)| (call.at(index), flags_of(flags))).collect())
}

pub fn getkeys(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let keys = keys_of(ctx.registry, args)?;
    ctx.reply.array(keys.len());
    keys.iter().for_each(|(key, _)| ctx.reply.bulk(key));
    Ok(())
}

pub fn getkeysandflags(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let keys = keys_of(ctx.registry, args)?;
    ctx.reply.array(keys.len());
    for (key, flags) in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        words(&mut ctx.reply, key_flag::NAMES, flags & !key_flag::VARIABLE_FLAGS, "");
    }
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "COMMAND",
        &[
            "(no subcommand)",
            "    Return details about all Redis commands.",
            "COUNT",
            "    Return the total number of commands in this Redis server.",
            "LIST",
            "    Return a list of all commands in this Redis server.",
            "INFO [<command-name> ...]",
            "    Return details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "DOCS [<command-name> ...]",
            "    Return documentation details about multiple Redis commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "GETKEYS <full-command>",
            "    Return the keys from a full Redis command.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the keys and the access flags from a full Redis command.",
        ],
    );
    Ok(())
}
